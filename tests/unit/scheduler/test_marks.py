"""Which workloads an event marks for the next pass: no more than it concerns (ARCHITECTURE 3).

The stories of the other tests show that an event marks enough: their plans are compared with those of a visit to all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import ChangeNode, NodeChange, Outcome
from scheduler.apply.events import new_world
from scheduler.apply.policy import identity_changed, read_first
from scheduler.events import (
    ActionEnded,
    NamespaceSeen,
    NamespacesListed,
    NodeSeen,
    NodesListed,
    ObjectUndecoded,
    PodDeleted,
    PodSeen,
    RightsChecked,
    Scope,
    SlurmNodesPolled,
)
from scheduler.model.kubernetes import HostPort, Namespace, PodPhase, Undecoded
from scheduler.model.slurm import Partition
from scheduler.nodes.observed import NOT_YET
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from tests.builders import CONFIG, KUBE_SYSTEM, START, Story, key_of, node, pod, slurm_node

NOW = START + 20
TRAIN, OTHER = pod("train"), pod("other", namespace="other")
BUSY = frozenset({"EXTERNAL", "ALLOCATED", "DYNAMIC_NORM"})
MAIN = (Partition("main", default=True), Partition("gpu", max_time_min=600))


def marked(story: Story, *events: Any) -> set[str]:
    """The names of the pods whose workloads these events mark."""
    story.world.dirty.clear()
    story.sees(*events)
    workloads = [story.world.workloads[key] for key in story.world.dirty]
    pods = [
        pod for each in workloads for pod in (*each.pods.values(), *(gone.pod for gone in each.deleted_pods.values()))
    ]
    return {each.name for each in pods}


# --- nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "partitions", "is_marked"),
    [
        ((slurm_node("x1"), slurm_node("x2")), MAIN, False),
        ((replace(slurm_node("x1"), states=BUSY), slurm_node("x2")), MAIN, False),
        ((slurm_node("x1"), slurm_node("x2")), None, False),
        ((slurm_node("x1"),), MAIN, True),
        ((replace(slurm_node("x1"), cpus=32), slurm_node("x2")), MAIN, True),
        ((replace(slurm_node("x1"), memory_mib=1000), slurm_node("x2")), MAIN, True),
        ((slurm_node("x1", static=True), slurm_node("x2")), MAIN, True),
        ((slurm_node("x1"), slurm_node("x2")), MAIN[:1], True),
    ],
    ids=[
        "nothing",
        "states",
        "partitions are not listed",
        "a node is gone",
        "a node is smaller",
        "a node has less memory",
        "a node is in slurm.conf now",
        "a partition is gone",
    ],
)
def test_a_poll_of_slurms_nodes_marks_waiting_pods_only_if_it_changes_where_they_may_run(
    nodes: tuple[Any, ...], partitions: tuple[Partition, ...] | None, is_marked: bool
) -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    assert story.world.by_phase[Phase.GRANTED]
    assert (marked(story, SlurmNodesPolled(nodes, partitions, NOW)) == {"train"}) is is_marked


def test_the_first_poll_of_slurms_nodes_marks_waiting_pods_even_if_slurm_has_no_node() -> None:
    story = Story(nodes=())
    story.sees(TRAIN)
    story.world.slurm_nodes = None
    assert marked(story, SlurmNodesPolled((), MAIN, NOW)) == {"train"}


@pytest.mark.parametrize(("silent", "is_marked"), [("x1", {"train"}), ("x2", set())])
def test_a_kubelet_that_falls_silent_marks_only_the_pods_that_were_on_its_node(
    silent: str, is_marked: set[str]
) -> None:
    """Also a pod that is gone: its containers may still run."""
    story = Story()
    shown = replace(TRAIN, node="x1", phase=PodPhase.RUNNING)
    story.sees(shown)
    story.loses(shown, NOW)
    assert marked(story, NodeSeen(node(silent, kubelet_silent_since=NOW))) == is_marked


def test_nodes_that_were_polled_before_the_cluster_was_known_are_noted_as_soon_as_it_is() -> None:
    early = new_world(CONFIG, started=START)
    early.apply(NodesListed((node("x1"),)))
    early.apply(SlurmNodesPolled((slurm_node("x1"),), MAIN, START))
    assert early.node_state.polled == NOT_YET
    early.apply(NamespacesListed((KUBE_SYSTEM,)))
    assert early.node_state.polled == START


# --- namespaces -------------------------------------------------------------------------------------------------------


def test_labels_of_a_namespace_mark_those_bound_pods_that_another_client_bound() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(pod("stray"), node="x1"))
    assert marked(story, NamespaceSeen(Namespace("another", "9", {"a": "b"}))) == {"stray"}


def test_labels_of_a_namespace_mark_the_waiting_jobs_of_its_pods_alone() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.queues(OTHER, 18, at=NOW)
    labels = {names.MANAGED_LABEL: "true", "a": "b"}
    assert marked(story, NamespaceSeen(Namespace("other", "2", labels))) == {"other"}


@pytest.mark.parametrize(
    ("before", "after", "is_marked", "is_repeated"),
    [
        ({}, {"hpc": "why"}, {"train"}, False),
        ({"hpc": "why"}, {"hpc": "why"}, set(), False),
        ({"hpc": "why"}, {"hpc": "another"}, {"train"}, False),
        ({"hpc": "why"}, {}, {"train"}, True),
        ({"hpc": "why", "other": "why"}, {"hpc": "why"}, {"other"}, False),
    ],
)
def test_rights_mark_the_pods_of_namespaces_in_which_they_changed_and_repeat_what_failed_where_they_are_back(
    before: dict[str, str], after: dict[str, str], is_marked: set[str], is_repeated: bool
) -> None:
    story = Story()
    story.sees(TRAIN, OTHER, RightsChecked(before, NOW))
    train = story.world.workloads[key_of(TRAIN)]
    story.world.back_off(train, NOW)
    assert marked(story, RightsChecked(after, NOW + 1)) == is_marked
    assert (train.backoff.failures == 0) is is_repeated


@pytest.mark.parametrize(("namespaces", "is_noted"), [(None, True), ({"hpc"}, True), (set[str](), False)])
def test_a_change_of_identities_before_the_first_lists_is_noted_for_later(
    namespaces: set[str] | None, is_noted: bool
) -> None:
    story = Story()
    story.world.polled = None
    identity_changed(story.world, namespaces)
    assert story.world.changed_early is is_noted
    story.polls({}, at=NOW)
    assert story.world.changed_early is False


@pytest.mark.parametrize(("namespaces", "is_over"), [(None, True), ({"hpc"}, False)])
def test_only_reads_for_all_namespaces_end_the_note_and_only_jobs_that_live_are_read(
    namespaces: set[str] | None, is_over: bool
) -> None:
    story = Story(pods=(replace(TRAIN, created=START - 60),))
    for job_id, states in ((17, "RUNNING"), (18, "COMPLETED")):
        story.world.placeholders[job_id] = Placeholder(job_id, None, "", frozenset({states}), START)
    story.world.changed_early = True
    read_first(story.world, namespaces)
    assert story.world.changed_early is not is_over
    assert set(story.world.first_listed_at) == {17}


# --- objects that cannot be decoded -----------------------------------------------------------------------------------


def test_an_object_that_is_decoded_again_marks_pods_that_have_ended() -> None:
    """Their jobs may have been kept because of that object."""
    story = Story()
    over = story.runs(TRAIN, 17, at=NOW)
    story.loses(over, NOW + 1)
    waits, last = pod("waits"), pod("last")
    story.sees(ObjectUndecoded(Undecoded("pod", "hpc", "waits", waits.uid, "nonsense"), Scope.OURS))
    assert marked(story, last) == {"last"}
    assert marked(story, waits) == {"train", "waits"}


def test_a_list_with_an_object_without_a_name_shows_the_other_objects_as_they_are_now() -> None:
    """Only objects that the list lacks keep their last known state."""
    story = Story()
    nameless = Undecoded("namespace", "", "", "", "nonsense")
    story.sees(NamespacesListed((KUBE_SYSTEM, Namespace("hpc", "1", {"now": "this"})), (nameless,)))
    assert story.world.namespaces is not None
    assert story.world.namespaces["hpc"].labels == {"now": "this"}
    assert story.world.namespaces["other"].labels == {names.MANAGED_LABEL: "true"}


# --- actions on nodes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_leaving", "change", "is_given_up"),
    [(True, NodeChange.RESUME, True), (False, NodeChange.RESUME, False), (True, NodeChange.DRAIN, False)],
)
def test_a_node_is_given_up_after_it_was_resumed_when_the_bridge_is_removed(
    is_leaving: bool, change: NodeChange, is_given_up: bool
) -> None:
    story = Story(replace(CONFIG, leaving=is_leaving), checked=False)
    action = ChangeNode("x1", change, "why", slurm_node("x1"))
    story.world.under_way[action.limit_class] += 1
    story.sees(ActionEnded(action, Outcome.DONE, NOW, NOW))
    assert (story.world.node_state.given_up == {"x1"}) is is_given_up


@pytest.mark.parametrize(
    ("others", "after_s", "is_polled"), [(False, 1.0, True), (True, 4.9, False), (True, 5.0, True)]
)
def test_while_other_nodes_are_to_be_visited_nodes_are_polled_every_five_seconds(
    others: bool, after_s: float, is_polled: bool
) -> None:
    story = Story(checked=False)
    story.world.node_state.polled = NOW
    story.world.node_state.dirty = {"x2": None} if others else {}
    story.world.nodes_stale = False
    action = ChangeNode("x1", NodeChange.DRAIN, "why", slurm_node("x1"))
    story.world.under_way[action.limit_class] += 1
    story.sees(ActionEnded(action, Outcome.DONE, NOW, NOW + after_s))
    assert story.world.nodes_stale is is_polled


def test_a_node_that_a_list_shows_with_the_size_that_slurm_has_is_not_of_another_size() -> None:
    labels = {names.EXTERNAL_NODE_LABEL: "true"}
    story = Story(nodes=(node("x1", labels=labels, cpu=32000),))
    story.world.node_state.mismatched["x1"] = ((32, 512000, ()), NOW)
    story.sees(NodesListed((node("x1", labels=labels),)))
    assert story.world.node_state.mismatched == {}


# --- room -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ports", "marks"), [((HostPort(8080),), {"wants"}), ((), set())])
def test_a_pod_that_leaves_its_node_marks_the_waiting_pods_that_want_a_host_port_if_it_held_one(
    ports: tuple[HostPort, ...], marks: set[str]
) -> None:
    story = Story(nodes=(node("x1"),))
    there = pod("there", namespace="elsewhere", node="x1", scheduler_name="default-scheduler", host_ports=ports)
    story.sees(PodSeen(Scope.OTHERS, there), pod("wants", host_ports=(HostPort(8080),)), TRAIN)
    assert marked(story, PodDeleted(Scope.OTHERS, there, NOW)) == marks

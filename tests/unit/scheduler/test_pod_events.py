"""What lists and the watch show of pods: which pods are of an earlier process, and which changes came too late (N10, K8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, ReadJob, SetPodCondition
from scheduler.apply.events import new_world
from scheduler.events import (
    NamespaceDeleted,
    NamespaceSeen,
    NamespacesListed,
    PodSeen,
    PodsListed,
    Scope,
)
from scheduler.model.kubernetes import Namespace, Pod, PodPhase
from tests.builders import CLUSTER, CONFIG, KUBE_SYSTEM, START, Story, grant, pod

NOW = START + 20
TRAIN = pod("train")


def on_node(what: Pod) -> Pod:
    """Another client bound it, and wrote the id of a job that Slurm does not have."""
    return replace(what, node="x1", phase=PodPhase.RUNNING, annotations={names.JOB_ID: "9000"})


def events(story: Story, states: dict[int, str], since: float, seconds: int = 10) -> list[str]:
    """The events that pods get within so many seconds.  Each action succeeds, and a poll a second shows these jobs."""
    found = []
    for at in (since + second for second in range(seconds)):
        story.polls(states, at=at)
        for action in story.decides(at):
            found += [action.event] if isinstance(action, SetPodCondition) else []
            story.ended(action, at=at)
    return found


@pytest.mark.parametrize("is_first", [True, False])
def test_only_pods_of_the_first_list_may_be_bound_by_an_earlier_process_whatever_the_clock_of_kubernetes_shows(
    is_first: bool,
) -> None:
    """A later list, after a gap of the watch, shows pods that came while this process ran."""
    shown = on_node(TRAIN)  # created after the start, by the clock of Kubernetes
    story = Story(pods=(shown,) if is_first else ())
    story.sees(PodsListed(Scope.OURS, (shown,), NOW))
    assert (names.BYPASS in events(story, {}, NOW, 60)) is not is_first
    assert story.world.bypassing == (set() if is_first else {TRAIN.uid})


def test_the_lost_job_of_a_pod_of_the_first_list_is_replaced_whatever_the_clock_of_kubernetes_shows() -> None:
    """Lists of other pods, and later lists, change nothing about which pods came first."""
    shown = on_node(TRAIN)
    story = Story(pods=(shown,))
    story.sees(PodsListed(Scope.OURS, (shown,), START + 1))
    asked: list[AllocateNow] = []
    for second in range(20, 26):
        story.polls({}, at=START + second)
        for action in story.decides(START + second):
            if isinstance(action, ReadJob):
                story.reads(None, job_id=9000, at=START + second)
                story.ended(action, at=START + second)
            asked += [action] if isinstance(action, AllocateNow) else []
    assert [each.spec.required_nodes for each in asked] == ["x1"]


@pytest.mark.parametrize("is_bound", [True, False])
def test_only_a_change_after_the_bind_came_too_late(is_bound: bool) -> None:
    story = Story()
    longer = {**TRAIN.annotations, names.PREFIX + names.TIME_LIMIT: "60"}
    if is_bound:
        shown = story.runs(TRAIN, 17, at=NOW)
        story.sees(replace(shown, annotations={**shown.annotations, **longer}))
    else:
        story.sees(TRAIN)
        story.sees(replace(TRAIN, annotations=longer))
        [asked] = story.acts(AllocateNow, NOW)
        assert asked.spec.time_limit_min == 60
        story.ended(asked, at=NOW, job_id=17, grant=grant(17))
        [bind] = story.acts(BindPod, NOW)
        story.ended(bind, at=NOW)
        story.sees(story.bound(replace(TRAIN, annotations=longer), 17))
    assert events(story, {17: "RUNNING"}, NOW + 1).count(names.CHANGE_IGNORED) == is_bound
    assert names.CHANGE_IGNORED not in events(story, {17: "RUNNING"}, NOW + 4000), "the event is written once"


def test_pods_that_came_before_the_cluster_was_known_are_submitted_under_its_mark() -> None:
    story = Story()
    early = new_world(CONFIG, started=START)
    for event in (PodSeen(Scope.OURS, TRAIN), PodsListed(Scope.OURS, (TRAIN, pod("second")), START)):
        early.apply(event)
    assert early.workloads == {}
    early.apply(NamespacesListed((KUBE_SYSTEM,)))
    assert {each.readable for each in early.workloads.values()} == {"hpc/train", "hpc/second"}
    story.sees(NamespaceDeleted("kube-system"), NamespaceSeen(Namespace("new", "3", {names.MANAGED_LABEL: "true"})))
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    assert f"~{CLUSTER}." in asked.spec.name, "the mark stays, whatever becomes of the namespace"


def test_a_pod_that_comes_after_a_late_event_has_come_now() -> None:
    """A list of pods that was requested earlier is applied after a newer list of jobs."""
    story = Story()
    story.polls({}, at=NOW + 100)
    story.sees(PodsListed(Scope.OTHERS, (), NOW))
    story.sees(TRAIN)
    assert story.world.first_seen[TRAIN.uid].first == NOW + 100

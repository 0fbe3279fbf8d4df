"""What lists and the watch show of pods: which pods are of an earlier process, and which changes came too late (N10, K8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome, ReadJob, ReadPod, SetPodCondition, SubmitJob
from scheduler.apply.events import new_world
from scheduler.events import (
    NamespaceDeleted,
    NamespaceSeen,
    NamespacesListed,
    PodDeleted,
    PodSeen,
    PodsListed,
    PolicyChanged,
    Scope,
)
from scheduler.explain import explain
from scheduler.model.clocks import FirstSeen
from scheduler.model.kubernetes import Condition, Namespace, Pod, PodPhase
from scheduler.policy.rules import Policy, Rule, Tenant
from scheduler.state.phase import Phase
from tests.builders import CLUSTER, CONFIG, KUBE_SYSTEM, OF_A_BIND, START, Story, grant, job_of, key_of, pod
from tests.unit.scheduler.test_gangs import granted, ring

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


# --- when each fact of a pod was first seen ---------------------------------------------------------------------------


def test_each_fact_of_a_pod_has_the_time_of_the_event_that_showed_it_first() -> None:
    story, pull = Story(), "container main: ContainerCreating"
    failed = "container main: ErrImagePull"
    runs = replace(TRAIN, node="x1", started=5.0, phase=PodPhase.RUNNING)
    history = [
        (TRAIN, FirstSeen(NOW)),
        (replace(TRAIN, labels={"app": "a"}), FirstSeen(NOW)),
        (replace(TRAIN, node="x1"), FirstSeen(NOW, bound=NOW + 2)),
        (replace(TRAIN, node="x1", waits=pull, waits_since=4.0), FirstSeen(NOW, NOW + 2, None, NOW + 3, 4.0)),
        (
            replace(TRAIN, node="x1", waits=failed, waits_since=4.0),
            FirstSeen(NOW, NOW + 2, None, NOW + 3, 4.0, NOW + 4),
        ),
        (
            replace(TRAIN, node="x1", waits=failed, waits_since=6.0),
            FirstSeen(NOW, NOW + 2, None, NOW + 5, 6.0, NOW + 4),
        ),
        (runs, FirstSeen(NOW, NOW + 2, NOW + 6, NOW + 5, 6.0)),
        (replace(runs, labels={"app": "a"}), FirstSeen(NOW, NOW + 2, NOW + 6, NOW + 5, 6.0)),
    ]
    for second, (shown, _) in enumerate(history):
        story.polls({}, at=NOW + second)
        story.sees(shown)
        seen = replace(story.world.first_seen[TRAIN.uid])
        assert (second, seen) == (second, history[second][1])


@pytest.mark.parametrize(
    ("waits", "shown", "is_new"),
    [
        ("ErrImagePull", None, False),
        ("ErrImagePull", Condition(False, names.NOT_STARTING, "not started: container main: ContainerCreating."), True),
        ("ErrImagePull", Condition(False, names.NOT_STARTING, "not started: container main: ErrImagePull."), False),
        ("ErrImagePull", Condition(True, names.RUNS, "Slurm job 17 runs."), False),
        (
            "ContainerCreating",
            Condition(False, names.NOT_STARTING, "not started: container main: ErrImagePull."),
            False,
        ),
    ],
)
def test_of_a_pod_that_a_previous_process_saw_only_a_failure_that_this_process_sees_first_begins_now(
    waits: str, shown: Condition | None, is_new: bool
) -> None:
    """The other facts have the times that Kubernetes gives."""
    story = Story()
    kept = {"node": "x1", "bound_at": 2.0, "started": 3.0, "waits": f"container main: {waits}", "waits_since": 4.0}
    story.sees(replace(TRAIN, **kept, job_condition=shown))
    assert story.world.first_seen[TRAIN.uid] == FirstSeen(START, waits_since=4.0, stuck=START if is_new else None)


# --- what one event of a pod changes ----------------------------------------------------------------------------------


def told(story: Story, what: Pod) -> list[str]:
    """The story of the pod, in the order of its times, which is the order of its entries."""
    entries = explain(story.world, key_of(what), NOW).story
    assert sorted(at for at, _ in entries) == [at for at, _ in entries]
    return [entry for _, entry in entries]


def test_the_story_of_a_pod_has_its_creation_its_node_and_its_end_once_each() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(shown, replace(shown, labels={"app": "a"}))
    story.loses(shown, NOW + 5)
    events = [entry for entry in told(story, TRAIN) if entry.startswith(("pod ", "is on "))]
    assert events == ["pod hpc/train created", "is on node x1", "pod hpc/train is gone"]


def test_the_story_of_a_gang_names_the_pod_that_came_to_a_node() -> None:
    story = Story()
    story.sees(*(replace(each, node="x1") for each in ring(2)))
    [key] = {story.world.key_of_pod[each.uid] for each in ring(2)}
    assert [entry for _, entry in story.world.workloads[key].story] == [
        "pod hpc/w-0 created",
        "w-0 is on node x1",
        "pod hpc/w-1 created",
        "w-1 is on node x1",
    ]


def test_the_story_of_a_gang_that_the_bridge_binds_has_the_creation_of_each_pod_once() -> None:
    story = Story()
    story.sees(*ring(2))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    for each, bind in zip(ring(2), story.acts(BindPod, NOW), strict=True):
        story.sees(replace(each, node=bind.node, annotations={**each.annotations, **bind.annotations}))
    [key] = {story.world.key_of_pod[each.uid] for each in ring(2)}
    events = [entry for _, entry in story.world.workloads[key].story if entry.endswith((" created", "is on node x1"))]
    assert events == ["pod hpc/w-0 created", "pod hpc/w-1 created", "w-0 is on node x1", "w-1 is on node x1"]


def test_a_late_event_without_the_node_does_not_undo_a_bind_that_was_answered() -> None:
    story = Story()
    bind = story.binds(TRAIN, 17, at=NOW)
    story.ended(bind, at=NOW)
    story.sees(replace(TRAIN, labels={"app": "a"}))
    assert story.acts(BindPod, NOW + 5) == []
    assert explain(story.world, key_of(TRAIN), NOW + 5).node == "x1"


@pytest.mark.parametrize(
    ("before", "ends", "why"),
    [
        ("container main: ErrImagePull", {}, "container main: ErrImagePull"),
        ("container main: ErrImagePull", {"waits": "container b: PodInitializing"}, "container main: ErrImagePull"),
        ("", {"waits": "container main: InvalidImageName"}, "container main: InvalidImageName"),
        ("container main: ErrImagePull", {"exit_code": 3}, ""),
    ],
)
def test_a_pod_that_ends_before_it_started_still_shows_why_it_waited(
    before: str, ends: dict[str, Any], why: str
) -> None:
    """Kubelet stops showing the reason soon.  A pod with an exit code has started."""
    story = Story()
    shown = replace(story.runs(TRAIN, 17, at=NOW), phase=PodPhase.PENDING, waits=before)
    story.sees(shown, replace(shown, **({"waits": "", "phase": PodPhase.FAILED} | ends)))
    assert story.world.workloads[key_of(TRAIN)].pods[TRAIN.uid].waits == why


@pytest.mark.parametrize("on", ["x1", "x2"])
def test_a_pod_whose_bind_was_not_answered_is_the_bridges_only_on_the_node_of_the_bind(on: str) -> None:
    story = Story()
    bind = story.binds(TRAIN, 17, at=NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW)
    story.sees(story.bound(TRAIN, 17, on))
    assert (TRAIN.uid in story.world.workloads[key_of(TRAIN)].strays) is (on == "x2")
    assert set(story.world.node_info) == {on}
    assert story.acts(ReadPod, NOW + 60) == [], "the pod itself shows what became of the bind"


def test_the_job_of_an_incomplete_gang_is_kept_for_a_time_from_when_the_member_ended_whatever_else_is_seen() -> None:
    story = Story()
    pods = ring(2)
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2013)
    [queued] = story.acts(SubmitJob, NOW)
    story.ended(queued, at=NOW, job_id=17)
    failed = replace(pods[1], phase=PodPhase.FAILED)
    for at, shown in ((NOW + 10, failed), (NOW + 50, replace(failed, labels={**failed.labels, "a": "b"}))):
        story.polls({17: "PENDING"}, at=at)
        story.sees(shown)
    story.loses(failed, NOW + 55)
    story.polls({17: "PENDING"}, at=NOW + 60)
    story.sees(replace(pods[0], labels={**pods[0].labels, "a": "b"}))
    kept_s = story.world.config.tuning.gang_bind_deadline_s
    assert story.acts(CancelJob, NOW + 9.9 + kept_s) == []
    assert len(story.acts(CancelJob, NOW + 10 + kept_s)) == 1


def adopted(what: tuple[Pod, ...], *states: str) -> Story:
    """Pods of the first list, whose job 17 a previous process submitted; then the policy gives them another user."""
    story = Story(pods=what)
    name = names.job_name("", CLUSTER, story.world.key_of_pod[what[0].uid])
    read = replace(job_of(what[0], 17, *states, submitted=START - 50), name=name)
    story.polls({17: " ".join(states)}, at=NOW)
    story.reads(read, at=NOW)
    story.sees(PolicyChanged(Policy((Rule(("hpc",), Tenant("bob")),)), NOW + 1))
    return story


@pytest.mark.parametrize("comes", ["another pod", "an edit"])
def test_a_job_that_was_taken_over_stays_the_job_of_the_pods_when_an_event_comes_after_a_change_of_policy(
    comes: str,
) -> None:
    """Only the first pod of a workload shows that a job of its name, which was read before, belongs to other pods."""
    first, second = (replace(each, created=START - 60) for each in ring(2))
    story = adopted((first,), "PENDING")
    story.sees(second if comes == "another pod" else replace(first, labels={**first.labels, "a": "b"}))
    assert 17 in story.world.placeholders


@pytest.mark.parametrize("has_come_before", [False, True])
def test_a_pod_that_names_the_job_of_another_pod_makes_it_be_read_only_if_it_comes_bound(has_come_before: bool) -> None:
    """Such a pod may belong to the other workload; an edit of a pod that is known, or of a waiting pod, proves nothing."""
    story = Story()
    first, second = pod("first"), pod("second")
    story.runs(first, 17, at=NOW)
    story.reads(job_of(first, 17), at=NOW + 1, granted=grant(17))
    waits = replace(pod("third"), annotations={names.JOB_ID: "17"})
    shown = replace(second, node="x1", annotations={names.JOB_ID: "17"}, phase=PodPhase.RUNNING)
    if has_come_before:
        story.sees(replace(shown, annotations={}), shown, waits)
    else:
        story.sees(shown)
    story.polls({17: "RUNNING"}, at=NOW + 1.5)
    assert (17 in [each.job_id for each in story.acts(ReadJob, NOW + 2)]) is not has_come_before


def terminating(what: Pod, at: float | None) -> Pod:
    return replace(what, deleting_at=at)


def test_a_grant_that_waits_for_room_is_looked_at_again_when_a_pod_begins_to_terminate_and_at_no_other_change() -> None:
    story = Story()
    other = replace(pod("other"), node="x1", scheduler_name="default-scheduler", phase=PodPhase.RUNNING)
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    [key] = story.world.by_phase[Phase.GRANTED]
    visited = []
    for shown in (other, replace(other, labels={"a": "b"}), terminating(other, NOW + 40), terminating(other, NOW + 40)):
        story.world.dirty.clear()
        story.sees(PodSeen(Scope.OTHERS, shown))
        visited.append(key in story.world.dirty)
    assert visited == [True, False, True, False]


def test_a_pod_that_came_and_went_before_the_cluster_was_known_is_gone_and_other_pods_take_room_at_once() -> None:
    early = new_world(CONFIG, started=START)
    there = replace(pod("other"), node="x1", scheduler_name="default-scheduler", phase=PodPhase.RUNNING)
    early.apply(PodSeen(Scope.OTHERS, there))
    early.apply(PodSeen(Scope.OURS, TRAIN))
    early.apply(PodDeleted(Scope.OURS, TRAIN, START))
    assert early.node_of == {there.uid: "x1"}
    early.apply(NamespacesListed((KUBE_SYSTEM,)))
    assert [list(each.pods) for each in early.workloads.values()] == [[]]


def test_grants_are_looked_at_again_when_both_lists_of_a_new_leader_have_come() -> None:
    """A standby knew the pods, but not what the former leader bound last."""
    story = Story()
    for scope in (Scope.OURS, Scope.OTHERS):
        story.sees(PodsListed(scope, (), START, inherited=True))
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    assert story.acts(BindPod, NOW) == []
    story.sees(PodsListed(Scope.OURS, (TRAIN,), NOW))
    assert story.acts(BindPod, NOW) == []
    story.sees(PodsListed(Scope.OTHERS, (), NOW))
    assert len(story.acts(BindPod, NOW)) == 1


def test_the_event_of_a_late_change_names_only_the_annotations_that_changed() -> None:
    story = Story()
    shown = story.runs(pod("train", says={"qos": "high", "time-limit": "60"}), 17, at=NOW)
    edited = {**shown.annotations, names.PREFIX + "time-limit": "90", names.PREFIX + "comment": "x"}
    story.sees(replace(shown, annotations=edited))
    [said] = [each for each in story.acts(SetPodCondition, NOW + 1) if each.event == names.CHANGE_IGNORED]
    assert said.message.startswith(
        "Changed after the pod was bound: slurm-bridge/comment, slurm-bridge/time-limit. Its Slurm job stays as it is"
    )


def test_only_an_event_that_changes_an_input_makes_a_refused_pod_be_submitted_again() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2015)
    story.sees(labelled := replace(TRAIN, labels={"app": "a"}))
    assert story.acts(AllocateNow, NOW + 5) == []
    story.sees(replace(labelled, annotations={names.PREFIX + "comment": "x"}))
    assert len(story.acts(AllocateNow, NOW + 6)) == 1


def test_a_late_bind_of_a_previous_process_names_the_job_of_the_pod_and_a_later_edit_does_not() -> None:
    waits = pod("train", created=START - 60)
    story = Story(pods=(waits,))
    shown = replace(waits, node="x1", phase=PodPhase.RUNNING, annotations={**OF_A_BIND, names.JOB_ID: "17"})
    story.sees(shown)
    assert story.world.workloads[key_of(waits)].jobs == {17}
    story.sees(replace(shown, annotations={**OF_A_BIND, names.JOB_ID: "18"}))
    assert story.world.workloads[key_of(waits)].jobs == {17}


def test_a_job_of_another_user_that_was_read_before_the_pod_of_its_name_came_is_not_the_pods() -> None:
    story = Story()
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(job_of(TRAIN, 17, "PENDING", user="bob", submitted=NOW - 1), at=NOW)
    assert story.world.workloads[key_of(TRAIN)].jobs == {17}
    story.sees(TRAIN)
    assert story.world.workloads[key_of(TRAIN)].jobs == set()
    assert [each.job_id for each in story.acts(ReadJob, NOW)] == [17]


def test_a_pod_that_comes_bound_for_its_own_job_that_was_read_before_costs_no_read() -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(job_of(TRAIN, 17), at=NOW, granted=grant(17))
    story.sees(story.bound(TRAIN, 17))
    assert 17 not in story.world.first_listed_at

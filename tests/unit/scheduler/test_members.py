"""Which pods are members of a gang follows from its pods alone, whatever happened to them before (W5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    ObjectKind,
    Outcome,
    ReadOwner,
    SetPodCondition,
    SubmitJob,
)
from scheduler.apply import gang_size, pods, settling, surplus
from scheduler.events import OwnerRead
from scheduler.model.kubernetes import Owner, OwnerRef, Pod, PodPhase, Stage
from scheduler.state.in_flight import InFlight
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.translate.grouping import (
    GANG,
    GANG_SIZE,
    JOBSET,
    JOBSET_ATTEMPT,
    JOBSET_PART,
    JOBSET_UID,
    KUEUE_GROUP,
    KUEUE_SIZE,
    LWS_GROUP,
    LWS_SIZE,
    MAX_SIZE,
    POD_GROUP,
    SET_INDEX,
)
from tests.builders import CLUSTER, OF_A_BIND, START, Story, job_of, key_of, pod
from tests.defects import breaks, quarantined
from tests.unit.scheduler.test_gangs import asks, granted, runs

NOW = START + 30
SIZE = names.PREFIX + "gang-size"


def one(number: int, size: int) -> Pod:
    labels = {names.PREFIX + "gang": "ring", SET_INDEX: str(number % 7)}
    return pod(f"w-{number}", labels=labels, says={"gang-size": str(size)}, created=START + number)


def resized(each: Pod, size: int) -> Pod:
    return replace(each, annotations={**each.annotations, SIZE: str(size)})


CHANGES: dict[str, Callable[[Pod, Random], Pod]] = {
    "gated": lambda each, _: replace(each, gated=not each.node),
    "ungated": lambda each, _: replace(each, gated=False),
    "bound": lambda each, _: replace(each, node=each.node or "x1", gated=False),
    "succeeded": lambda each, _: replace(each, phase=PodPhase.SUCCEEDED, node=each.node or "x1"),
    "failed": lambda each, _: replace(each, phase=PodPhase.FAILED),
    "deleted with grace": lambda each, _: replace(each, deleting_at=NOW),
    "another rank": lambda each, random: replace(each, labels={**each.labels, SET_INDEX: str(random.randrange(9))}),
    "another size": lambda each, random: resized(each, random.choice([2, 3, 4])),
}
KINDS = [["gated", "ungated"], *([each] for each in CHANGES if "gated" not in each)]


def history(random: Random, changes: list[str], steps: int) -> Iterator[Pod | str]:
    """Pods of a gang come and change; a name alone: the pod is gone."""
    pods: dict[int, Pod] = {}
    size = random.choice([1, 2, 3, 4])
    for step in range(steps):
        what = random.choice(["comes", "comes", "goes", *changes])
        if what == "comes":
            pods[step] = one(step, size)
            yield pods[step]
        elif pods:
            number = random.choice(list(pods))
            if what == "goes":
                yield pods.pop(number).uid
            else:
                pods[number] = CHANGES[what](pods[number], random)
                yield pods[number]


def members_after_each(changes: Iterable[Pod | str]) -> Iterator[dict[str, tuple[int, list[str]]]]:
    """Workload to its size and members, after each change."""
    story = Story()
    last: dict[str, Pod] = {}
    for each in changes:
        if isinstance(each, Pod):
            last[each.uid] = each
            story.sees(each)
        else:
            story.loses(last[each], NOW)
        settling.settle_all(story.world)
        workloads = story.world.workloads.items()
        yield {key: (each.size, sorted(pod.uid for pod in each.members)) for key, each in workloads if each.members}


def test_a_pod_on_a_node_is_a_member_whatever_its_rank_and_the_last_of_the_others_is_not() -> None:
    story = Story()
    waiting = [one(0, 2), one(1, 2)]
    bound = replace(one(6, 2), node="x1", phase=PodPhase.RUNNING)
    story.sees(*waiting, bound)
    gang = story.world.workloads[story.world.key_of_pod[bound.uid]]
    assert {each.uid for each in gang.members} == {waiting[0].uid, bound.uid}


@pytest.mark.parametrize(
    ("before", "joins"),
    [
        ({"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "two"}}, True),
        ({"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "two"}, "node": "x1"}, False),
        ({}, False),
    ],
    ids=["it was refused", "it was refused, and another client bound it", "it was a workload by itself"],
)
def test_a_pod_whose_labels_are_edited_joins_its_gang_only_if_it_was_refused_before(
    before: dict[str, Any], joins: bool
) -> None:
    story = Story()
    story.sees(pod("w-1", **before), one(0, 2))
    story.decides(NOW)
    story.sees(replace(one(1, 2), node=before.get("node", "")))
    workload = story.world.workloads[story.world.key_of_pod["uid-w-1"]]
    assert (workload.group is not None) is joins


@pytest.mark.parametrize("changes", KINDS, ids=lambda changes: changes[0])
@pytest.mark.parametrize("at_once", [64, 2], ids=["small", "large"])
def test_an_event_that_is_not_looked_into_changes_no_membership(
    monkeypatch: pytest.MonkeyPatch, at_once: int, changes: list[str]
) -> None:
    """Most events of a gang change none of its counts, and then its pods are not compared."""
    for seed in range(8):
        told = list(history(Random(seed), changes, 20))
        with monkeypatch.context() as patched:
            patched.setattr(settling, "SETTLED_AT_ONCE", at_once)
            found = list(members_after_each(told))
        with monkeypatch.context() as patched:
            patched.setattr(pods, "counts_the_same", lambda *_: False)
            patched.setattr(settling, "_takes_long", lambda *_: True)
            assert found == list(members_after_each(told)), seed


# --- a pod that comes to a gang that has its size -------------------------------------------------------------------


def gang_of(story: Story, member: Pod) -> Workload:
    return story.world.workloads[story.world.key_of_pod[member.uid]]


def with_one_more() -> Story:
    """A gang of two waits, and a third pod is a workload by itself."""
    story = Story()
    story.sees(one(0, 2), one(1, 2), one(2, 2))
    return story


@pytest.mark.parametrize(
    ("comes", "members", "size"),
    [
        ({}, {"w-0", "w-1"}, 2),
        ({"node": "x1", "phase": PodPhase.RUNNING}, {"w-0", "w-6"}, 2),
        ({"gated": True}, {"w-0", "w-1"}, 2),
        ({"phase": PodPhase.FAILED}, {"w-0", "w-1"}, 2),
        ({"phase": PodPhase.SUCCEEDED}, {"w-0"}, 1),
        ({"annotations": {SIZE: "3"}}, {"w-0", "w-1", "w-6"}, 0),
    ],
    ids=["it waits", "it runs", "it is gated", "it has failed", "it has succeeded", "it shows another size"],
)
def test_a_pod_that_comes_to_a_complete_gang_is_surplus_only_if_it_waits_and_agrees_on_the_size(
    comes: dict[str, Any], members: set[str], size: int
) -> None:
    story, late = with_one_more(), replace(one(6, 2), **comes)
    story.sees(late)
    gang = gang_of(story, one(0, 2))
    assert ({each.name for each in gang.members}, gang.size) == (members, size)
    assert (gang_of(story, late) is gang) is bool(comes)


def test_a_pod_that_comes_after_the_size_was_raised_is_a_member() -> None:
    story = Story()
    story.sees(one(0, 1), one(1, 1))
    story.loses(one(1, 1), NOW)
    story.sees(one(0, 2), one(6, 2))
    assert {each.name for each in gang_of(story, one(0, 2)).members} == {"w-0", "w-6"}


def test_a_pod_that_becomes_surplus_has_a_story_that_says_so() -> None:
    story = Story()
    story.sees(one(1, 2), one(2, 2), one(0, 2))
    alone = gang_of(story, one(2, 2))
    assert alone.story[-1][1] == "hpc/ring has its 2 pods: hpc/w-2 is a workload by itself"
    story.loses(one(0, 2), NOW)
    gang = gang_of(story, one(2, 2))
    assert (gang.surplus, {each.name for each in gang.members}) == ({}, {"w-1", "w-2"})


def test_a_gang_forgets_surplus_pods_that_are_gone() -> None:
    """A controller may make pods in vain for months beside a gang that runs."""
    story = with_one_more()
    gang = gang_of(story, one(0, 2))
    assert gang.surplus == {"uid-w-2": None}
    story.loses(one(2, 2), NOW)
    assert gang.surplus == {}


# --- what changes the size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "size"), [(GANG, GANG_SIZE), (KUEUE_GROUP, KUEUE_SIZE), (LWS_GROUP, LWS_SIZE)])
def test_a_gang_is_submitted_when_the_size_that_its_pods_show_is_corrected(group: str, size: str) -> None:
    story = Story()
    waiting = [pod(f"w-{number}", labels={group: "g"}, annotations={size: "3"}) for number in range(2)]
    story.sees(*waiting)
    assert not [each for each in story.decides(START + 10) if isinstance(each, AllocateNow | SubmitJob)]
    story.sees(*(replace(each, annotations={size: "2"}) for each in waiting))
    [asked] = [each for each in story.decides(START + 11) if isinstance(each, AllocateNow | SubmitJob)]
    assert asked.spec.tasks == 2


def of_set(number: int, attempt: str = "0", **fields: Any) -> Pod:
    labels = {JOBSET: "set", JOBSET_UID: "uid-set", JOBSET_ATTEMPT: attempt}
    return pod(f"s-{number}", labels=labels, says={"gang-size": "3"}, **fields)


@pytest.mark.parametrize(
    ("pods", "changed", "sizes"),
    [
        ([one(0, 2), one(1, 2), one(2, 3)], [replace(one(2, 3), deleting_at=NOW + 60)], (0, 2)),
        ([one(0, 2), one(1, 2), one(2, 3)], [replace(one(2, 3), phase=PodPhase.FAILED)], (0, 2)),
        ([one(0, 2), one(1, 2), one(2, 3)], [one(2, 2)], (0, 2)),
        ([one(0, 2), one(1, 2)], [one(0, 3)], (2, 0)),
        (
            [of_set(0, phase=PodPhase.SUCCEEDED), of_set(1), of_set(2)],
            [of_set(1, attempt="1"), of_set(2, attempt="1")],
            (2, 3),
        ),
    ],
    ids=["it terminates", "it has ended", "it is corrected", "it is spoiled", "a new attempt of its JobSet"],
)
def test_each_change_of_a_pod_that_changes_the_size_of_its_gang_is_looked_into(
    pods: list[Pod], changed: list[Pod], sizes: tuple[int, int]
) -> None:
    story = Story()
    story.sees(*pods)
    gang = gang_of(story, pods[0])
    before = gang.size
    story.sees(*changed)
    assert (before, gang.size) == sizes


def test_a_pod_that_is_ungated_after_the_gang_has_its_size_is_surplus() -> None:
    story, gated = Story(), replace(one(2, 2), gated=True)
    story.sees(one(0, 2), one(1, 2), gated)
    story.sees(one(2, 2))
    assert {each.name for each in gang_of(story, one(0, 2)).members} == {"w-0", "w-1"}


@pytest.mark.parametrize("size", [2, 3])
def test_a_gang_of_which_no_pod_is_left_keeps_its_size(size: int) -> None:
    story, members = Story(), [one(number, size) for number in range(size)]
    story.sees(*members)
    story.sees(*(replace(each, phase=PodPhase.FAILED) for each in members))
    assert gang_of(story, members[0]).size == size


@pytest.mark.parametrize(("more", "members"), [(1, set()), (2, {"w-2", "w-3"}), (3, {"w-2", "w-3"})])
def test_surplus_pods_are_the_next_run_of_a_gang_if_they_are_enough(more: int, members: set[str]) -> None:
    story, surplus = Story(), [one(2 + number, 2) for number in range(more)]
    shown = runs(story, [one(number, 2) for number in range(2)], ("x1", 2))
    story.sees(*surplus, *(replace(each, phase=PodPhase.SUCCEEDED) for each in shown))
    gang = gang_of(story, shown[0])
    assert {each.name for each in gang.members} == members


RING_JOB = OwnerRef("batch/v1", "Job", "ring", "uid-job")
POD_GROUP_RING = OwnerRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "ring", "scheduling.x-k8s.io/v1alpha1/hpc/ring")
SET = OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "uid-set")


@pytest.mark.parametrize(
    ("owner", "labels", "says", "size"),
    [
        (Owner(RING_JOB, members=2), {names.PREFIX + "gang": "job"}, {}, 2),
        (Owner(RING_JOB, members=2), {names.PREFIX + "gang": "job"}, {"gang-size": "4"}, 3),
        (Owner(SET, members=3), {JOBSET: "set"}, {}, 2),
        (Owner(SET, members=3), {JOBSET: "set"}, {"gang-size": "5"}, 4),
        (Owner(POD_GROUP_RING, members=3), {POD_GROUP: "ring"}, {}, 2),
        (Owner(POD_GROUP_RING, members=MAX_SIZE), {POD_GROUP: "ring"}, {}, MAX_SIZE - 1),
        (Owner(POD_GROUP_RING, members=None), {POD_GROUP: "ring"}, {}, 0),
    ],
    ids=[
        "a Job does not count pods that succeeded",
        "the annotation counts all pods of a Job",
        "a JobSet counts all pods",
        "the annotation overrides a JobSet",
        "a PodGroup counts all pods",
        "the largest gang",
        "the PodGroup gives no number",
    ],
)
def test_the_size_is_the_number_of_pods_that_are_still_needed_after_one_succeeded(
    owner: Owner, labels: dict[str, str], says: dict[str, str], size: int
) -> None:
    story = Story()
    story.sees(OwnerRead(owner.ref, owner, NOW, "hpc"))
    waits, done = (pod(f"w-{number}", labels=labels, says=says, owner=owner.ref) for number in range(2))
    story.sees(waits, replace(done, phase=PodPhase.SUCCEEDED, node="x1"))
    assert gang_of(story, waits).size == size


def test_the_next_pod_joins_a_gang_that_has_a_free_place_because_its_job_wants_one_pod_more() -> None:
    story = Story()
    labels = {names.PREFIX + "gang": "job"}
    first, second, surplus, late = (pod(f"w-{number}", labels=labels, owner=RING_JOB) for number in range(4))
    story.sees(OwnerRead(RING_JOB, Owner(RING_JOB, members=2), NOW, "hpc"), first, second, surplus)
    story.loses(surplus, NOW)
    story.sees(OwnerRead(RING_JOB, Owner(RING_JOB, members=3), NOW + 1, "hpc"))
    story.sees(replace(first, labels={**labels, "a": "b"}))  # the gang is settled at this event
    story.sees(late)
    assert {each.name for each in gang_of(story, first).members} == {"w-0", "w-1", "w-3"}


def test_pods_that_were_refused_because_their_gang_had_no_size_are_submitted_once_the_size_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (gang_size, surplus):
        monkeypatch.setattr(module, "MAX_SIZE", 3)
    story = Story()
    story.sees(*(pod(f"w-{number}", labels={POD_GROUP: "ring"}) for number in range(5)))
    [read, *others] = sorted(story.decides(NOW), key=lambda each: not isinstance(each, ReadOwner))
    assert not any(isinstance(each, AllocateNow | SubmitJob) for each in others)
    for each in others:
        story.ended(each, at=NOW)
    story.decides(NOW)
    story.sees(OwnerRead(POD_GROUP_RING, Owner(POD_GROUP_RING, members=3), NOW + 1, "hpc"))
    story.ended(read, at=NOW + 1)
    asked = []
    for at in (NOW + 1, NOW + 2, NOW + 3):
        for each in story.decides(at):
            asked += [each.spec.tasks] if isinstance(each, AllocateNow) else []
            story.ended(each, Outcome.REFUSED if isinstance(each, AllocateNow) else Outcome.DONE, at=at)
    assert sorted(asked)[:3] == [1, 1, 3]


# --- labels that are edited -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edited",
    [
        {"labels": {names.PREFIX + "gang": "other"}, "annotations": {SIZE: "3"}},
        {"labels": {names.PREFIX + "gang": ""}},
        {"labels": {}, "annotations": {}},
    ],
    ids=["another gang", "no name", "no gang"],
)
def test_a_waiting_member_whose_labels_are_edited_stays_a_member_and_does_not_change_the_size(
    edited: dict[str, Any],
) -> None:
    story = Story()
    story.sees(one(0, 2), one(1, 2))
    story.sees(replace(one(1, 2), **edited))
    gang = gang_of(story, one(0, 2))
    assert ({each.name for each in gang.members}, gang.size) == ({"w-0", "w-1"}, 2)


def test_a_surplus_pod_that_became_a_member_by_edits_of_its_labels_is_not_taken_for_surplus_again() -> None:
    story, first = with_one_more(), {**one(2, 2).labels, SET_INDEX: "0"}
    story.sees(replace(one(2, 2), labels={names.PREFIX + "gang": ""}), replace(one(2, 2), labels=first))
    gang = gang_of(story, one(2, 2))
    assert {each.name for each in gang.members} == {"w-0", "w-2"}
    story.loses(one(0, 2), NOW)
    assert {each.name for each in gang.members} == {"w-1", "w-2"}


def in_flight(story: Story, asked: AllocateNow) -> None:
    """Slurm has not answered."""


def not_answered(story: Story, asked: AllocateNow) -> None:
    story.ended(asked, Outcome.UNKNOWN, at=NOW)


def queued(story: Story, asked: AllocateNow) -> None:
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2013)
    [submit] = story.acts(SubmitJob, NOW)
    story.ended(submit, at=NOW, job_id=18)


@pytest.mark.parametrize("submitted", [in_flight, not_answered, queued], ids=lambda each: each.__name__)
def test_a_pod_by_itself_that_may_have_a_job_does_not_join_a_gang_by_an_edit_of_its_labels(
    submitted: Callable[[Story, AllocateNow], None],
) -> None:
    story, single = Story(), pod("w-1")
    story.sees(single)
    [asked] = story.acts(AllocateNow, NOW)
    submitted(story, asked)
    story.sees(one(0, 2))
    story.sees(replace(single, labels={names.PREFIX + "gang": ""}))
    story.sees(one(1, 2))
    assert story.world.workloads[key_of(single)].pods.keys() == {single.uid}


def test_a_pod_that_is_labelled_while_it_waits_is_submitted_by_itself_although_the_size_of_that_gang_is_not_known() -> (
    None
):
    story, single = Story(), pod("single")
    story.sees(single, pod("w-0", labels={names.PREFIX + "gang": "ring"}))
    story.sees(replace(single, labels={names.PREFIX + "gang": "ring"}))
    assert [each.key for each in story.acts(AllocateNow, NOW)] == [key_of(single)]


# --- what a bind wrote ----------------------------------------------------------------------------------------------


def bound_for(member: Pod, key: str, job_id: int, *, size: int) -> Pod:
    """The pod as a bind of the bridge for the job of that workload leaves it."""
    wrote = {names.JOB_ID: str(job_id), names.SIZE: str(size), names.TRACEPARENT: names.traceparent(CLUSTER, key)}
    return replace(member, node="x1", phase=PodPhase.RUNNING, annotations={**member.annotations, **OF_A_BIND, **wrote})


def ring_key() -> str:
    story = Story()
    story.sees(one(0, 2))
    return story.world.key_of_pod[one(0, 2).uid]


def bound_by(story: Story, pods: list[Pod], job_id: int, at: float) -> list[Pod]:
    """The pods come, their job is granted nodes, and the watch shows them as the binds wrote them."""
    story.sees(*pods)
    story.ended(asks(story, at), at=at, job_id=job_id, grant=granted(job_id, ("x1", len(pods))))
    binds = {bind.uid: bind for bind in story.acts(BindPod, at)}
    shown = []
    for each in pods:
        story.ended(bind := binds[each.uid], at=at)
        wrote = {**each.annotations, **bind.annotations}
        shown.append(replace(each, node=bind.node, phase=PodPhase.RUNNING, annotations=wrote))
    story.sees(*shown)
    return shown


def test_when_the_binds_of_a_gang_and_of_a_surplus_pod_are_seen_no_pod_moves() -> None:
    story, pods = Story(), [one(number, 2) for number in range(3)]
    bound_by(story, pods[:2], 17, NOW)
    [shown] = bound_by(story, pods[2:], 18, NOW + 2)
    gang, alone = gang_of(story, pods[0]), gang_of(story, pods[2])
    assert (list(gang.pods), list(alone.pods)) == ([pods[0].uid, pods[1].uid], [pods[2].uid])
    story.sees(replace(shown, annotations={**shown.annotations, "note": "mine"}))
    assert alone.pods.keys() == {pods[2].uid}
    story.sees(replace(gang.pods[pods[1].uid], phase=PodPhase.SUCCEEDED))
    assert gang.size == 1, "both still count as pods of the gang"


@pytest.mark.parametrize("number", [0, 2])
def test_after_a_restart_a_surplus_pod_that_runs_for_its_own_job_is_no_member(number: int) -> None:
    members = [one(each, 2) for each in range(3) if each != number]
    own = bound_for(one(number, 2), key_of(one(number, 2)), 18, size=1)
    story = Story(pods=[*(bound_for(each, ring_key(), 17, size=2) for each in members), own])
    assert gang_of(story, members[0]).pods.keys() == {each.uid for each in members}
    assert gang_of(story, own).pods.keys() == {own.uid}


def beside_one_that_runs_by_itself(*, guarded: bool = False) -> tuple[Story, Pod]:
    """A rolling update leaves such pods: the new pod comes while the gang has its size, and the former pods go."""
    story, pods = Story(guarded=guarded), [one(number, 2) for number in range(3)]
    bound_by(story, pods[:2], 17, NOW)
    [alone] = bound_by(story, pods[2:], 18, NOW + 2)
    for each in pods[:2]:
        story.loses(each, NOW + 3)
    [cancel] = story.acts(CancelJob, NOW + 20)
    story.ended(cancel, at=NOW + 20)
    return story, alone


RUNS_ALONE = (
    "1 of 2 pods of gang ring are here in namespace hpc. 1 more runs with a job of its own, and cannot join the others: "
    "delete it to start all of them together."
)


def test_a_gang_that_lacks_pods_names_those_that_run_by_themselves_and_blames_no_quota() -> None:
    story, _ = beside_one_that_runs_by_itself()
    story.sees(one(3, 2))
    [shown] = story.acts(SetPodCondition, NOW + 86_400)
    assert shown.message == RUNS_ALONE


def test_a_gang_that_lacks_pods_goes_on_while_a_pod_that_runs_by_itself_is_in_quarantine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story, alone = beside_one_that_runs_by_itself(guarded=True)
    story.sees(one(3, 2))
    breaks(monkeypatch, pods, "note_edits", lambda workload, *_: workload.key == key_of(alone))
    story.sees(replace(alone, labels={**alone.labels, "x": "y"}))
    assert "w-3" in [shown.name for shown in story.acts(SetPodCondition, NOW + 40)]
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key_of(alone))}
    story.sees(one(4, 2))
    assert len(gang_of(story, one(3, 2)).members) == 2


def test_a_surplus_pod_that_joins_with_another_rank_after_an_edit_that_was_refused_is_a_member_and_nothing_else() -> (
    None
):
    story, late = Story(), one(5, 2)
    story.sees(one(2, 2), one(3, 2), late, resized(late, 0))
    story.sees(replace(late, labels=one(1, 2).labels))
    gang = gang_of(story, late)
    assert (sorted(gang.pods), list(gang.surplus)) == ([one(2, 2).uid, late.uid], [one(3, 2).uid])


def test_a_gang_that_lacks_pods_counts_no_pod_as_running_that_waits_for_a_job_of_its_own() -> None:
    """That pod keeps its turn in the queue: the gang would lack pods even with it."""
    story, pods = Story(), [one(number, 3) for number in range(4)]
    bound_by(story, pods[:3], 17, NOW)
    story.queues(pods[3], 18, at=NOW + 2)
    for each in pods[:3]:
        story.loses(each, NOW + 3)
    for cancel in story.acts(CancelJob, NOW + 20):
        story.ended(cancel, at=NOW + 20)
    story.polls({17: "CANCELLED", 18: "PENDING"}, at=NOW + 21)
    story.sees(one(4, 3))
    [said] = [each.message for each in story.acts(SetPodCondition, NOW + 30) if each.name == "w-4"]
    assert said.startswith(
        "1 of 3 pods of gang ring are here in namespace hpc. Their job is submitted when all of them"
    )


@pytest.mark.parametrize("how", [{"phase": PodPhase.SUCCEEDED}, {"deleting_at": NOW + 500}], ids=["ended", "deleted"])
def test_a_gang_that_lacks_pods_does_not_ask_its_user_to_delete_a_pod_that_ended_or_is_being_deleted(
    how: dict[str, Any],
) -> None:
    story, alone = beside_one_that_runs_by_itself()
    story.sees(one(3, 2))
    [shown] = story.acts(SetPodCondition, NOW + 400)
    assert shown.message == RUNS_ALONE
    story.ended(shown, at=NOW + 400)
    story.sees(replace(alone, **how))
    [shown] = story.acts(SetPodCondition, NOW + 500)
    assert shown.message.startswith("1 of 2 pods of gang ring are here in namespace hpc. The other pods are missing:")


@pytest.mark.parametrize("first", [0, 1], ids=["it comes first", "it comes last"])
def test_after_a_restart_a_gang_that_lacks_pods_names_those_that_run_by_themselves_too(first: int) -> None:
    pods = [bound_for(one(2, 2), key_of(one(2, 2)), 18, size=1), one(3, 2)]
    story = Story(pods=[pods[first], pods[1 - first]])
    story.polls({18: "RUNNING"}, at=NOW)
    story.reads(job_of(one(2, 2), 18, nodes="x1"), at=NOW, granted=granted(18, ("x1", 1)))
    assert RUNS_ALONE in [shown.message for shown in story.acts(SetPodCondition, NOW + 20)]
    story.loses(pods[0], NOW + 21)
    story.sees(one(4, 2))
    assert gang_of(story, one(3, 2)).pods.keys() == {one(3, 2).uid, one(4, 2).uid}


def test_a_waiting_pod_whose_manifest_was_copied_from_a_bound_pod_is_a_member() -> None:
    story = Story()
    copied = {**one(1, 2).annotations, **OF_A_BIND}
    story.sees(one(0, 2), replace(one(1, 2), annotations=copied))
    assert len(gang_of(story, one(0, 2)).members) == 2


def test_a_running_member_whose_annotations_are_edited_stays_a_member() -> None:
    story, key = Story(), ring_key()
    shown = [bound_for(one(number, 2), key, 17, size=2) for number in range(2)]
    story.sees(*shown)
    story.sees(replace(shown[1], annotations={SIZE: "2", names.SIZE: "1"}))
    assert gang_of(story, shown[0]).pods.keys() == {each.uid for each in shown}


def test_when_a_late_bind_of_a_previous_process_shows_that_a_member_runs_by_itself_a_surplus_pod_takes_its_place() -> (
    None
):
    story = Story()
    story.sees(bound_for(one(0, 2), ring_key(), 17, size=2), one(1, 2), one(2, 2))
    assert gang_of(story, one(2, 2)).group is None
    story.sees(bound_for(one(1, 2), key_of(one(1, 2)), 18, size=1))
    assert gang_of(story, one(0, 2)).pods.keys() == {one(0, 2).uid, one(2, 2).uid}
    assert gang_of(story, one(1, 2)).pods.keys() == {one(1, 2).uid}


# --- the job of a single pod, submitted by a previous process -------------------------------------------------------


def restarted(*members: Pod) -> Story:
    """Job 17 of the gang runs on x1, and job 18 waits, which a previous process submitted for the second pod by itself."""
    before = Story()
    before.sees(one(0, 2), one(1, 2))
    [asked] = before.acts(AllocateNow, NOW)
    story = Story(pods=members)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW)
    own = job_of(one(1, 2), 17, "RUNNING", nodes="x1")
    story.reads(replace(own, name=asked.spec.name), at=NOW, granted=granted(17, ("x1", 2)))
    return story


def reads_own_job(story: Story, user: str = "alice") -> None:
    story.reads(job_of(one(1, 2), 18, "PENDING", user=user), at=NOW + 1)


@pytest.mark.parametrize(
    ("bound", "leaves"),
    [({0}, True), (set(), False), ({0, 1}, False), ({1}, False)],
    ids=["the other member runs", "no member runs", "both run", "it runs"],
)
def test_a_pod_leaves_its_gang_for_its_own_job_of_a_previous_process_only_if_it_waits_while_the_other_member_runs(
    bound: set[int], leaves: bool
) -> None:
    members = [
        bound_for(one(number, 2), ring_key(), 17, size=2) if number in bound else one(number, 2) for number in range(2)
    ]
    story = restarted(*members)
    reads_own_job(story)
    alone = gang_of(story, one(1, 2))
    assert (alone.group is None) is leaves
    assert not leaves or (alone.jobs, alone.readable) == ({18}, "hpc/w-1")


def test_a_pod_that_becomes_surplus_keeps_its_own_job_that_was_read_before_its_pods_came() -> None:
    story = Story()
    story.polls({18: "PENDING"}, at=NOW)
    story.reads(job_of(one(2, 2), 18, "PENDING"), at=NOW)
    story.sees(one(1, 2), one(2, 2), one(0, 2))
    alone = gang_of(story, one(2, 2))
    assert (alone.group, alone.jobs, alone.readable) == (None, {18}, "hpc/w-2")


def test_a_pod_whose_bind_is_in_flight_does_not_leave_its_gang_for_its_own_job() -> None:
    story = restarted(bound_for(one(0, 2), ring_key(), 17, size=2), one(1, 2))
    at = NOW + 1
    while not (binds := story.acts(BindPod, at)):
        at += 1
    assert [bind.name for bind in binds] == ["w-1"]
    story.reads(job_of(one(1, 2), 18, "PENDING"), at=at)
    assert gang_of(story, one(1, 2)).group is not None


def test_a_pod_does_not_leave_its_gang_for_a_job_of_another_user() -> None:
    story = restarted(bound_for(one(0, 2), ring_key(), 17, size=2), one(1, 2))
    reads_own_job(story, user="bob")
    assert gang_of(story, one(1, 2)).group is not None


# --- places of pods that the bridge ends ----------------------------------------------------------------------------


def test_pods_that_come_while_the_bridge_ends_the_pods_of_the_gang_are_its_next_members() -> None:
    story = Story()
    pods = [replace(one(number, 2), owner=RING_JOB) for number in range(2)]
    story.sees(OwnerRead(RING_JOB, Owner(RING_JOB), NOW, "hpc"))
    runs(story, pods, ("x1", 2))
    story.polls({17: "PREEMPTED"}, at=NOW + 20)
    story.reads(replace(job_of(pods[0], 17, "PREEMPTED"), name=story.world.placeholders[17].name), at=NOW + 20)
    assert len(story.acts(DeletePod, NOW + 20)) == 2
    again = [replace(each, uid=f"{each.uid}-new", created=NOW + 21) for each in pods]
    story.sees(*again)
    assert all(gang_of(story, each) is gang_of(story, pods[0]) for each in again)


def test_a_pod_that_comes_while_the_last_member_is_being_bound_is_surplus() -> None:
    story = Story()
    story.sees(one(0, 2), one(1, 2))
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    first, _ = story.acts(BindPod, NOW)
    story.ended(first, at=NOW)
    story.sees(one(8, 2))
    assert gang_of(story, one(8, 2)).group is None


def test_a_gated_pod_and_a_pod_that_is_deleted_before_it_is_bound_take_no_place_in_the_gang() -> None:
    """Of the other three pods the last one is a workload by itself."""
    story = Story()
    gated, deleted, *others = (one(number, 2) for number in range(5))
    story.sees(replace(gated, gated=True), replace(deleted, deleting_at=NOW + 30), *others)
    gang = story.world.key_of_pod[gated.uid]
    assert [story.world.key_of_pod[each.uid] for each in others] == [gang, gang, key_of(others[-1])]
    assert asks(story).spec.tasks == 2


def test_a_pod_that_is_deleted_before_it_is_bound_leaves_its_running_gang_bound() -> None:
    story = Story()
    first, *_ = runs(story, [one(number, 2) for number in range(2)], ("x1", 2))
    story.sees(replace(one(2, 2), created=NOW + 2, deleting_at=NOW + 30))
    assert story.world.phase_of[story.world.key_of_pod[first.uid]] is Phase.BOUND


# --- which events settle a group ------------------------------------------------------------------------------------


PLAIN = one(0, 2)


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"node": "x1"}, True),
        ({"annotations": {**PLAIN.annotations, "a": "b"}}, True),
        ({"annotations": {SIZE: "3"}}, False),
        ({"annotations": {}}, False),
        ({"phase": PodPhase.FAILED}, False),
        ({"gated": True}, False),
        ({"deleting_at": NOW}, False),
        ({"labels": {**PLAIN.labels, "a": "b"}}, False),
    ],
)
def test_an_event_that_changes_nothing_that_is_counted_settles_nothing(changes: dict[str, Any], is_same: bool) -> None:
    story = Story()
    story.sees(one(0, 2), one(1, 2))
    gang, changed = gang_of(story, PLAIN), replace(PLAIN, **changes)
    assert settling.counts_the_same(gang, PLAIN, changed) is is_same
    assert not settling.counts_the_same(gang, None, changed), "a new pod"
    gang.surplus["uid"] = None
    assert not settling.counts_the_same(gang, PLAIN, changed), "a surplus pod may take a place"


def edited(story: Story) -> None:
    story.sees(replace(one(0, 5), labels={**one(0, 5).labels, "a": "b"}))


def loses_a_member(story: Story) -> None:
    story.loses(one(4, 5), NOW)


def one_comes_bound(story: Story) -> None:
    story.sees(replace(one(6, 5), node="x1"))


def one_disagrees(story: Story) -> None:
    story.sees(one(6, 4))


def size_is_known_again(story: Story) -> None:
    gang_of(story, one(0, 5)).size = 0
    edited(story)


def size_is_not_known(story: Story) -> None:
    gang = gang_of(story, one(0, 5))
    assert gang.group is not None
    gang.show("uid-w-1", replace(gang.group, size=4))
    gang.size = 0
    edited(story)


@pytest.mark.parametrize(
    ("here", "happens", "waits"),
    [
        (5, edited, False),
        (4, edited, False),
        (6, edited, False),
        (6, loses_a_member, True),
        (5, loses_a_member, False),
        (5, one_comes_bound, True),
        (4, one_comes_bound, False),
        (5, one_disagrees, False),
        (6, size_is_known_again, True),
        (5, size_is_known_again, False),
        (6, size_is_not_known, False),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_large_group_waits_for_more_events_only_if_single_pods_have_to_be_compared(
    here: int, happens: Callable[[Story], None], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gang of five: if pods are missing, and no surplus pod is there, or if none is missing, the counts are enough."""
    story = Story(checked=False)
    story.sees(*(one(number, 5) for number in range(here)))
    gang = gang_of(story, one(0, 5))
    assert len(gang.surplus) == max(0, here - 5)
    monkeypatch.setattr(settling, "SETTLED_AT_ONCE", 3)
    story.world.dirty.clear()
    happens(story)
    assert (gang.key in story.world.unsettled) is waits
    assert not waits or gang.key not in story.world.dirty, "no pass visits it before it is settled"


@pytest.mark.parametrize(("sizes", "is_kept"), [((2, 2), True), ((3, 3), False), ((2, 3), False)])
def test_the_next_pod_is_compared_with_the_last_rank_of_a_gang_only_while_the_gang_is_complete(
    sizes: tuple[int, int], is_kept: bool
) -> None:
    story = Story()
    story.sees(*(one(number, size) for number, size in enumerate(sizes)))
    gang = gang_of(story, one(0, sizes[0]))
    gang.last_rank = ()
    settling.settle(story.world, gang)
    assert (gang.last_rank is not None) is is_kept


def ending(gang: Workload, uid: str) -> None:
    end = DeletePod(gang.key, uid, "hpc", uid, "why")
    gang.pods_in_flight[uid] = InFlight(end, NOW)


def running_gang(size: int) -> tuple[Story, Workload]:
    story = Story(checked=False)
    story.sees(*(replace(one(number, size), node="x1", phase=PodPhase.RUNNING) for number in range(size)))
    return story, gang_of(story, one(0, size))


@pytest.mark.parametrize(
    ("is_written_off", "members"), [(True, {"w-1", "w-2", "w-3"}), (False, {"w-0", "w-1", "w-2", "w-3"})]
)
def test_the_place_of_a_pod_that_the_bridge_ends_is_free_once(is_written_off: bool, members: set[str]) -> None:
    """A pod that was written off, because its node is dead, has left its place already."""
    story, gang = running_gang(3)
    ending(gang, "uid-w-0")
    ending(gang, "uid-gone")
    if is_written_off:
        gang.write_off("uid-w-0")
    story.sees(one(3, 3), one(4, 3))
    assert {each.name for each in gang.members} == members


def test_a_surplus_pod_takes_no_place_before_the_pod_that_the_bridge_ends_terminates() -> None:
    story, gang = running_gang(2)
    story.sees(one(2, 2))
    ending(gang, "uid-w-0")
    story.sees(replace(one(1, 2), node="x1", phase=PodPhase.RUNNING, labels={**one(1, 2).labels, "a": "b"}))
    assert {each.name for each in gang.members} == {"w-0", "w-1"}


def test_a_group_of_which_no_pod_is_left_is_in_no_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only surplus pods are left of a large group, for which single pods have to be compared."""
    story, alone = Story(checked=False), of_set(0)
    story.sees(alone)
    gang = gang_of(story, alone)
    monkeypatch.setattr(settling, "SETTLED_AT_ONCE", -1)
    story.loses(alone, NOW)
    assert settling.settle(story.world, gang)


# --- pods by themselves ---------------------------------------------------------------------------------------------


def test_a_waiting_surplus_pod_does_not_join_its_gang_by_an_annotation() -> None:
    """Only a pod on a node shows by the trace of its bind that it is a member."""
    story = with_one_more()
    gang, trace = gang_of(story, one(0, 2)), names.traceparent(CLUSTER, gang_of(story, one(0, 2)).key)
    waits = one(2, 2)
    story.sees(replace(waits, annotations={**waits.annotations, names.TRACEPARENT: trace}))
    assert gang_of(story, waits) is not gang


def test_a_surplus_pod_whose_own_job_waits_does_not_take_a_free_place_at_once_by_an_annotation() -> None:
    story, waits = with_one_more(), one(2, 2)
    alone, gang = gang_of(story, waits), gang_of(story, one(1, 2))
    story.world.placeholders[17] = Placeholder(17, alone.key, "alice", frozenset({"PENDING"}), NOW)
    alone.jobs.add(17)
    story.loses(one(0, 2), NOW)
    trace = names.traceparent(CLUSTER, gang.key)
    story.sees(replace(waits, annotations={**waits.annotations, names.TRACEPARENT: trace}))
    assert gang_of(story, waits) is alone


def test_a_surplus_pod_that_was_bound_by_itself_is_no_surplus_of_itself() -> None:
    story, waits = with_one_more(), one(2, 2)
    story.sees(replace(waits, node="x1", annotations={**waits.annotations, **OF_A_BIND, names.JOB_ID: "17"}))
    alone = gang_of(story, waits)
    assert (alone.surplus, set(alone.shown), set(alone.pods)) == ({}, {waits.uid}, {waits.uid})


def test_a_gang_of_pods_of_a_jobset_is_not_divided_into_the_stages_of_the_jobset() -> None:
    """The user's own label decides."""
    story = Story()
    stages = (Stage("first", ("a",), 1), Stage("second", ("b",), 1))
    story.world.owners["hpc", SET.uid] = Owner(SET, members=2, stages=stages)
    labels = {GANG: "ring", JOBSET_UID: SET.uid}
    parts = (("w-0", "a"), ("w-1", "b"))
    story.sees(*(pod(name, labels={**labels, JOBSET_PART: part}, says={"gang-size": "2"}) for name, part in parts))
    assert [(sorted(each.pods), each.size) for each in story.world.workloads.values()] == [(["uid-w-0", "uid-w-1"], 2)]


@pytest.mark.parametrize(
    ("job", "waits"),
    [
        (("its own", "PENDING"), True),
        (("its own", "COMPLETED"), True),
        (("its own", "RUNNING"), False),
        (("shown", "PENDING"), False),
    ],
)
def test_a_surplus_pod_is_free_to_join_while_its_own_job_waits_or_has_ended(job: tuple[str, str], waits: bool) -> None:
    story = with_one_more()
    alone = gang_of(story, one(2, 2))
    key = alone.key if job[0] == "its own" else None
    story.world.placeholders[17] = Placeholder(17, key, "alice", frozenset({job[1]}), NOW)
    alone.jobs.add(17)
    story.world.polled, story.world.newest_event_at = None, NOW + 10_000
    story.loses(one(0, 2), NOW)
    story.world.newest_event_at = NOW + 10_000
    settling.settle(story.world, gang_of(story, one(1, 2)))
    assert (gang_of(story, one(2, 2)) is gang_of(story, one(1, 2))) is waits


@pytest.mark.parametrize(("after_s", "joins"), [(-0.1, False), (0.0, True)])
def test_a_surplus_pod_with_a_job_joins_when_the_member_that_left_had_time_to_be_replaced(
    after_s: float, joins: bool
) -> None:
    story = with_one_more()
    alone, gang = gang_of(story, one(2, 2)), gang_of(story, one(1, 2))
    story.world.placeholders[17] = Placeholder(17, alone.key, "alice", frozenset({"PENDING"}), NOW)
    alone.jobs.add(17)
    story.loses(one(0, 2), NOW)
    story.world.newest_event_at = NOW + story.world.config.tuning.gang_bind_deadline_s + after_s
    settling.settle(story.world, gang)
    assert (gang_of(story, one(2, 2)) is gang) is joins


def test_a_late_bind_for_the_job_of_the_gang_makes_a_waiting_member_surplus() -> None:
    """A previous process bound another pod than this process has as a member."""
    story, late = with_one_more(), one(2, 2)
    gang = gang_of(story, one(0, 2))
    written = {
        **OF_A_BIND,
        names.SIZE: "2",
        names.JOB_ID: "17",
        names.TRACEPARENT: names.traceparent(CLUSTER, gang.key),
    }
    story.sees(replace(late, node="x1", annotations={**late.annotations, **written}))
    assert {each.name for each in gang.members} == {"w-0", "w-2"}
    assert gang.surplus == {"uid-w-1": None}


def test_which_pods_of_a_gang_are_unfinished_and_which_are_members_is_counted_as_it_is_listed() -> None:
    story = Story()
    waits, gated, runs_on, is_deleted, terminates, failed, on_a_dead_node = (one(number, 7) for number in range(7))
    on_node, deleted = {"node": "x1", "phase": PodPhase.RUNNING}, {"deleting_at": NOW + 30}
    story.sees(waits, replace(gated, gated=True), replace(runs_on, **on_node), replace(is_deleted, **deleted))
    story.sees(replace(terminates, **on_node, **deleted), replace(failed, node="x1", phase=PodPhase.FAILED))
    story.sees(replace(on_a_dead_node, **on_node))
    gang = story.world.workloads[story.world.key_of_pod[waits.uid]]
    gang.write_off(on_a_dead_node.uid)
    assert [each.name for each in gang.unfinished] == ["w-0", "w-1", "w-2", "w-4"]
    assert [each.name for each in gang.members] == ["w-0", "w-2"]
    counts = gang.pod_counts
    assert (counts.unfinished, counts.unbound, counts.members, counts.members_unbound) == (4, 2, 2, 1)
    assert counts.sizes == {7: 3}, "pods that ended, or that are being deleted, do not say how many pods the gang has"

"""Gangs: all or nothing, packed, by rank; unwound, and mended (W4–W9, invariant V4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    ReadOwner,
    RecordEnd,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.apply.events import new_world
from scheduler.events import (
    ClockObserved,
    Event,
    NamespacesListed,
    NodeSeen,
    OwnerRead,
    PodSeen,
    PodsListed,
    Scope,
    Side,
    SlurmNodesPolled,
)
from scheduler.model.hostlist import expand
from scheduler.model.kubernetes import Owner, OwnerRef, Pod, PodPhase, PodTerm, Requirement, Taint, Toleration
from scheduler.model.slurm import Grant, GrantedNode, Job, JobSpec, Partition, SlurmNode
from scheduler.state.phase import Phase
from tests.builders import CONFIG, KUBE_SYSTEM, MIB, START, Story, grant, job_of, key_of, node, pod, slurm_node, without

NOW = START + 10
GANG_SIZE = names.PREFIX + names.GANG_SIZE
JOB = OwnerRef("batch/v1", "Job", "train", "uid-job")


def member(number: int, size: int = 4, *, gang: str = "ring", **fields: Any) -> Pod:
    labels = {names.PREFIX + "gang": gang, **fields.pop("labels", {})}
    return pod(f"w-{number}", labels=labels, says={"gang-size": str(size), **fields.pop("says", {})}, **fields)


def ring(size: int = 4, **fields: Any) -> list[Pod]:
    return [member(number, size, **fields) for number in range(size)]


def granted(job_id: int, *nodes: tuple[str, int], memory: int = 100) -> Grant:
    """Nodes with that many single-CPU places."""
    return Grant(job_id, tuple(GrantedNode(name, cpus, cpus * memory) for name, cpus in nodes))


def asks(story: Story, at: float = NOW) -> AllocateNow | SubmitJob:
    [asked] = [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
    return asked


def runs(story: Story, pods: list[Pod], *nodes: tuple[str, int], at: float = NOW) -> list[Pod]:
    """The gang is created, gets these nodes as job 17, and is bound."""
    story.sees(*pods)
    story.ended(asks(story, at), at=at, job_id=17, grant=granted(17, *nodes))
    binds = story.acts(BindPod, at)
    for bind in binds:
        story.ended(bind, at=at)
    by_uid = {bind.uid: bind for bind in binds}
    shown = [story.bound(each, 17, by_uid[each.uid].node) for each in pods]
    story.sees(*shown)
    story.polls({17: "RUNNING"}, at=at + 1)
    return shown


def where(binds: list[BindPod]) -> dict[str, str]:
    return {bind.name: bind.node for bind in binds}


# --- together -------------------------------------------------------------------------------------------------------


def test_nothing_is_asked_for_until_all_are_here() -> None:
    story = Story()
    *first, last = ring()
    story.sees(*first)
    assert story.decides(NOW) != []
    assert not any(isinstance(each, AllocateNow | SubmitJob) for each in story.decides(NOW))
    story.sees(last)
    assert asks(story).spec.tasks == 4


def test_a_gang_is_one_job_of_a_task_a_member() -> None:
    story = Story()
    story.sees(*ring(cpu=2000, memory=300))
    spec = asks(story).spec
    assert (spec.tasks, spec.cpus_per_task, spec.memory_mib) == (4, 2, 300)
    assert spec.name.startswith("hpc/ring~")


def test_a_gang_that_comes_after_its_job_was_read_agrees_on_the_name_of_its_job() -> None:
    """A process is killed before it cancels the job of a deleted gang; the gang comes again before the next process does."""
    before = Story()
    before.sees(*ring())
    name = asks(before).spec.name
    story = Story()
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(replace(job_of(member(0), 17, "PENDING"), name=name), at=NOW)
    story.sees(*ring(created=NOW + 1))
    story.polls({17: "RUNNING"}, at=NOW + 20)
    [read] = story.acts(ReadJob, NOW + 20)
    story.reads(replace(job_of(member(0), 17, "RUNNING"), name=name), at=NOW + 20, granted=granted(17, ("x1", 4)))
    story.ended(read, at=NOW + 20)
    assert len(story.acts(BindPod, NOW + 21)) == 4


def test_the_story_of_a_gang_says_once_that_its_job_was_granted_a_node() -> None:
    """It has room for some entries.  An entry for each pod would take the room of what happened before."""
    story = Story()
    runs(story, ring(), ("x1", 3), ("x2", 1))
    [workload] = story.world.workloads.values()
    granted_nodes = [entry for _, entry in workload.story if "granted" in entry]
    assert granted_nodes == ["Slurm job 17 was granted x1", "Slurm job 17 was granted x2"]


def with_a_job_of_a_previous_process(state: str) -> Story:
    """A bridge that has read job 17, which a previous process submitted for the gang 30 s before the start."""
    before = Story()
    before.sees(*ring())
    name = asks(before).spec.name
    story = Story()
    story.sees(*(ClockObserved(side, NOW, NOW, NOW) for side in Side))
    story.polls({17: state}, at=NOW)
    made = replace(job_of(member(0), 17, state, submitted=START - 30), name=name)
    story.reads(made, at=NOW, granted=granted(17, ("x1", 4)) if state == "RUNNING" else None)
    return story


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
@pytest.mark.parametrize(("later_s", "ends"), [(60, True), (0, False)])
def test_a_job_of_earlier_pods_is_not_that_of_new_pods_of_the_same_name(state: str, later_s: int, ends: bool) -> None:
    """A process is killed before it ends the job of a gang whose pods went.  The new pods may ask for something else."""
    story = with_a_job_of_a_previous_process(state)
    story.sees(*ring(created=START - 30 + later_s))
    story.polls({17: state}, at=NOW + 80)
    acts = story.decides(NOW + 80)
    cancels = [each for each in acts if isinstance(each, CancelJob)]
    assert [each.job_id for each in cancels] == ([17] if ends else [])
    assert not ends or cancels[0].reason == "job 17 was submitted for earlier pods of hpc/ring"
    binds = [each for each in acts if isinstance(each, BindPod)]
    assert len(binds) == (4 if state == "RUNNING" and not ends else 0)


def test_a_waiting_job_of_earlier_pods_ends_though_the_new_pods_are_refused() -> None:
    """Otherwise the job waits on for pods that are gone, and may get nodes, until the user corrects the new pods."""
    story = with_a_job_of_a_previous_process("PENDING")
    story.sees(*ring(created=START + 30, says={"time-limit": "soon"}))
    story.polls({17: "PENDING"}, at=NOW + 80)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 80)] == [17]


def test_an_adopted_job_keeps_its_place_in_the_queue_though_each_of_its_pods_is_replaced_in_turn() -> None:
    """As a job does that this process submitted: it is not of earlier pods, it was seen with the pods that it is for."""
    story = with_a_job_of_a_previous_process("PENDING")
    pods = ring(created=START - 30)
    story.sees(*pods)
    at = NOW + 80
    for old in pods:
        story.polls({17: "PENDING"}, at=at)
        assert not [each for each in story.decides(at) if isinstance(each, CancelJob)]
        story.loses(old, at + 1)
        story.sees(replace(old, uid=f"{old.uid}-new", created=at + 1))
        at += 20
    story.polls({17: "PENDING"}, at=at)
    assert not [each for each in story.decides(at) if isinstance(each, CancelJob)]


def test_members_that_wait_say_how_many_are_here() -> None:
    story = Story()
    story.sees(*ring()[:3])
    assert story.acts(SetPodCondition, START + 2) == []  # most gangs gather within a moment
    said = story.acts(SetPodCondition, START + 6)
    assert {report.name for report in said} == {"w-0", "w-1", "w-2"}
    assert {report.message for report in said} == {
        "3 of 4 pods of gang ring are here in namespace hpc. Their job is submitted when all of them are here. Create the "
        "others, or correct the size of the gang (annotation slurm-bridge/gang-size)."
    }


def test_after_its_timeout_they_also_say_what_may_hold_the_rest_back() -> None:
    story = Story()
    story.sees(*[member(number, says={"gang-timeout": "60"}) for number in range(3)])
    for report in story.acts(SetPodCondition, START + 6):
        story.ended(report, at=START + 6)
    assert story.acts(SetPodCondition, START + 50) == []
    said = story.acts(SetPodCondition, START + 62)
    assert {report.message for report in said} == {
        "3 of 4 pods of gang ring are here in namespace hpc. The other pods are missing: create them, or correct the size of "
        "the gang (annotation slurm-bridge/gang-size)."
    }
    assert all(report.warning for report in said)


def test_pods_of_a_controller_that_does_not_make_the_rest_say_what_may_hold_it_back() -> None:
    story, job = Story(), OwnerRef("batch/v1", "Job", "ring", "uid-of-ring")
    story.sees(*(replace(member(number, says={"gang-timeout": "60"}), owner=job) for number in range(3)))
    for report in story.acts(SetPodCondition, START + 6):
        assert report.message.endswith("in namespace hpc. Their job is submitted when all of them are here.")
        story.ended(report, at=START + 6)
    assert all("OrderedReady" in report.message for report in story.acts(SetPodCondition, START + 62))


def test_same_named_gangs_of_two_namespaces_are_two() -> None:
    story = Story()
    story.sees(*ring(2), *[replace(each, namespace="other", uid=each.uid + "-o") for each in ring(2)])
    first = asks(story)
    story.ended(first, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    second = asks(story)
    assert sorted((each.spec.user, each.spec.tasks) for each in (first, second)) == [("alice", 2), ("bob", 2)]


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"size": 5}, "do not agree on their number (w-0 says 4, w-3 says 5): give all of them the same"),
        ({"says": {"partition": "gpu"}}, "must agree on partition: w-0 has none, w-3 has gpu"),
        ({"says": {"account": "teama-dev"}}, "must agree on account: w-0 has none, w-3 has teama-dev"),
        ({"says": {"time-limit": "foo"}}, 'w-3: Annotation slurm-bridge/time-limit: "foo"'),
        ({"cpu": 900000}, "w-3: 0/2 nodes can run this pod"),
    ],
)
def test_all_members_show_what_they_do_not_agree_on(odd: dict[str, Any], why: str) -> None:
    story = Story()
    story.sees(*ring()[:3], member(3, **odd))
    said = story.acts(SetPodCondition, NOW)
    assert {report.name for report in said} == {"w-0", "w-1", "w-2", "w-3"}
    assert all(why in report.message for report in said), said[0].message


# --- which pods are members -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (3, 5, 0, 4, 2, 1)])
def test_pods_beyond_the_size_are_workloads_by_themselves_whatever_the_order(order: tuple[int, ...]) -> None:
    story = Story()
    for number in order:
        story.sees(member(number))
    gang = story.world.workloads[story.world.key_of_pod["uid-w-0"]]
    assert {each.name for each in gang.members} == {"w-0", "w-1", "w-2", "w-3"}
    assert story.world.key_of_pod["uid-w-4"] != story.world.key_of_pod["uid-w-5"]


def test_a_surplus_pod_returns_to_the_gang_when_a_place_becomes_free() -> None:
    story = Story()
    pods = [member(number) for number in range(5)]
    story.sees(*pods)
    story.loses(pods[1], at=NOW)
    gang = story.world.workloads[story.world.key_of_pod["uid-w-0"]]
    assert {each.name for each in gang.members} == {"w-0", "w-2", "w-3", "w-4"}


def test_a_surplus_pod_runs_by_itself_when_all_others_have_ended() -> None:
    """Nobody comes with whom it would be a gang.  Its own request is on its way when the last of the others ends."""
    story = Story()
    shown = [replace(each, phase=PodPhase.SUCCEEDED) for each in runs(story, ring(2), ("x1", 2))]
    one_more = member(2, 2)
    story.sees(one_more)
    asked = asks(story, NOW + 1)
    story.sees(*shown)
    [cancel] = story.acts(CancelJob, NOW + 20)
    story.ended(cancel, at=NOW + 20)
    story.ended(asked, Outcome.REFUSED, at=NOW + 21, number=2013)
    for each in shown:
        story.loses(each, NOW + 22)
    again = asks(story, NOW + 23)
    assert (again.key, again.spec.tasks) == (key_of(one_more), 1)


def test_as_many_as_a_gang_are_its_next_run_when_all_others_have_ended() -> None:
    story = Story()
    shown = runs(story, ring(2), ("x1", 2))
    story.sees(member(2, 2), member(3, 2), member(4, 2))
    story.sees(*[replace(each, phase=PodPhase.SUCCEEDED) for each in shown])
    gang = story.world.workloads[story.world.key_of_pod["uid-w-0"]]
    assert ({each.name for each in gang.members}, gang.size) == ({"w-2", "w-3"}, 2)


def one_more_is_queued(story: Story, **fields: Any) -> None:
    """A gang of two runs on x1 and x2 as job 17; a third pod is a workload by itself, and waits in the queue as job 18."""
    runs(story, ring(2), ("x1", 1), ("x2", 1))
    story.queues(member(2, 2, **fields), 18, at=NOW + 2)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW + 3)


def goes_on(story: Story, jobs: dict[int, str], since: float, *, seconds: int) -> list[BindPod | CancelJob]:
    """A poll a second, and all that is done succeeds.  Returns the binds and cancels."""
    done = []
    for at in (since + second for second in range(seconds)):
        story.polls(jobs, at=at)
        for action in story.decides(at):
            done += [action] if isinstance(action, BindPod | CancelJob) else []
            if isinstance(action, CancelJob):
                jobs = jobs | {action.job_id: "CANCELLED"}
            story.ended(action, at=at)
    return done


@pytest.mark.parametrize("still_here_s", [0, 20])
def test_a_surplus_pod_in_the_queue_takes_a_free_place_of_the_gang_and_its_own_job_ends(
    still_here_s: int,
) -> None:
    story = Story()
    one_more_is_queued(story)
    jobs = {17: "RUNNING", 18: "PENDING"}
    leaves = story.bound(member(1, 2), 17, "x2", deleting_at=NOW + 40)
    story.sees(leaves)
    assert goes_on(story, jobs, NOW + 10, seconds=still_here_s) == []
    story.loses(replace(leaves, phase=PodPhase.FAILED), at=NOW + 30)
    assert goes_on(story, jobs, NOW + 30, seconds=5) == [], "its controller may make it again"
    acts = goes_on(story, jobs, NOW + 35, seconds=60)
    assert [(each.name, each.node, each.job_id) for each in acts if isinstance(each, BindPod)] == [("w-2", "x2", 17)]
    assert [each.job_id for each in acts if isinstance(each, CancelJob)] == [18]


@pytest.mark.parametrize(
    "wants",
    [
        {"cpu": 2000},
        {"gpu": 1},
        {"says": {"constraints": "fast"}},
        {"says": {"time-limit": "0-02:00"}},
        {"says": {"partition": "gpu"}},
        {"node_selector": {"disk": "fast"}},
    ],
    ids=str,
)
def test_a_surplus_pod_keeps_its_turn_in_the_queue_if_a_free_place_of_the_gang_does_not_serve_it(
    wants: dict[str, Any],
) -> None:
    story = Story(nodes=[node("x1", labels={"disk": "fast"}), node("x2")])
    one_more_is_queued(story, **wants)
    jobs = {17: "RUNNING", 18: "PENDING"}
    story.loses(story.bound(member(1, 2), 17, "x2", phase=PodPhase.FAILED), at=NOW + 30)
    assert goes_on(story, jobs, NOW + 30, seconds=60) == []
    assert story.world.phase_of[key_of(member(2, 2))] is Phase.QUEUED
    story.reads(job_of(member(2, 2), 18), at=NOW + 91, granted=grant(18, cpus=2, gpu=1))
    assert [(bind.name, bind.job_id) for bind in story.acts(BindPod, NOW + 91)] == [("w-2", 18)]


def test_a_surplus_pod_stays_in_the_queue_when_the_members_of_its_gang_fail_one_after_the_other() -> None:
    story = Story()
    one_more_is_queued(story)
    for number, where in enumerate(("x1", "x2")):
        story.loses(story.bound(member(number, 2), 17, where, phase=PodPhase.FAILED), at=NOW + 30 + number)
    acts = goes_on(story, {17: "RUNNING", 18: "PENDING"}, NOW + 32, seconds=100)
    assert [each.job_id for each in acts] == [17]
    assert story.world.phase_of[story.world.key_of_pod["uid-w-2"]] is Phase.QUEUED


def test_gated_members_are_none_until_they_are_ungated() -> None:
    story = Story()
    *first, last = ring()
    story.sees(*first, replace(last, gated=True))
    assert story.world.phase_of[story.world.key_of_pod[last.uid]] is Phase.GATHERING
    story.sees(last)
    assert asks(story).spec.tasks == 4


def test_members_that_succeeded_are_not_waited_for_again() -> None:
    story = Story()
    done = [replace(member(number, 8), phase=PodPhase.SUCCEEDED, node="x1") for number in range(3)]
    story.sees(*done, *[member(number, 8) for number in range(3, 8)])
    assert asks(story).spec.tasks == 5


def test_how_many_a_batch_job_means_is_read_of_it() -> None:
    story = Story()
    labels = {names.PREFIX + "gang": "job"}
    story.sees(*[pod(f"w-{number}", owner=JOB, labels=labels) for number in range(2)])
    [read] = story.acts(ReadOwner, NOW)
    story.sees(OwnerRead(JOB, Owner(JOB, members=2), NOW, "hpc"))
    story.ended(read, at=NOW)
    assert asks(story).spec.tasks == 2


def test_the_size_that_a_job_set_shows_includes_succeeded_pods() -> None:
    story = Story()
    labels = {"jobset.sigs.k8s.io/jobset-name": "train"}
    of_set = OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "train", "uid-set")
    done, *others = [pod(f"train-{number}", owner=JOB, labels=labels) for number in range(3)]
    story.sees(replace(done, phase=PodPhase.SUCCEEDED, node="x1"), *others)
    for owner in (Owner(JOB, owner=of_set, members=3), Owner(of_set, members=3)):
        [read] = story.acts(ReadOwner, NOW)
        assert read.ref == owner.ref
        story.sees(OwnerRead(owner.ref, owner, NOW, "hpc"))
        story.ended(read, at=NOW)
    assert asks(story).spec.tasks == 2


def test_a_gated_pod_goes_on_saying_that_it_is_gated() -> None:
    story = Story()
    story.sees(*ring()[:2], member(2, gated=True))
    said = {report.name: report.message for report in story.acts(SetPodCondition, NOW)}
    assert said.keys() == {"w-0", "w-1"}
    assert all(each.startswith("2 of 4 pods of gang ring are here in namespace hpc. ") for each in said.values())


def test_a_group_of_unknown_size_says_what_to_do() -> None:
    story = Story()
    story.sees(*[pod(f"w-{number}", labels={names.PREFIX + "gang": "ring"}) for number in range(2)])
    assert all(
        "give it the annotation slurm-bridge/gang-size" in report.message for report in story.acts(SetPodCondition, NOW)
    )


# --- places ---------------------------------------------------------------------------------------------------------


def test_members_are_packed_by_rank_along_slurms_order_of_nodes() -> None:
    story = Story()
    story.sees(*reversed(ring()))
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x2", 3), ("x1", 1)))
    binds = story.acts(BindPod, NOW)
    assert where(binds) == {"w-0": "x2", "w-1": "x2", "w-2": "x2", "w-3": "x1"}
    keys = {bind.name: bind.annotations for bind in binds}
    assert {name: (each[names.RANK], each[names.LOCAL_RANK]) for name, each in keys.items()} == {
        "w-0": ("0", "0"),
        "w-1": ("1", "1"),
        "w-2": ("2", "2"),
        "w-3": ("3", "0"),
    }
    assert {(each[names.SIZE], each[names.JOB_NODES]) for each in keys.values()} == {("4", "x[1-2]")}


def test_members_of_which_one_is_called_as_another_begins_are_bound_by_rank() -> None:
    story = Story()
    said: dict[str, Any] = {"labels": {names.PREFIX + names.GANG: "ring"}, "says": {"gang-size": "2"}}
    story.sees(pod("worker1", **said), pod("worker", **said))
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    ranks = {bind.name: bind.annotations[names.RANK] for bind in story.acts(BindPod, NOW)}
    assert ranks == {"worker": "0", "worker1": "1"}


def test_a_grant_with_too_few_places_is_released() -> None:
    story = Story()
    story.polls(at=NOW + 20)
    story.sees(*ring())
    story.ended(asks(story, NOW + 20), at=NOW + 20, job_id=17, grant=granted(17, ("x1", 3)))
    [cancel] = story.acts(CancelJob, NOW + 20)
    assert "room for 4 pods (it holds 3)" in cancel.reason


def test_no_pod_is_bound_while_one_place_is_taken() -> None:
    story = Story(nodes=(node("x1", cpu=4000), node("x2", cpu=4000)))
    going = pod("old", cpu=4000, node="x2", deleting_at=NOW + 30, phase=PodPhase.RUNNING, annotations={})
    story.sees(*ring(2), going)
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x1", 1), ("x2", 1)))
    assert story.acts(BindPod, NOW) == []
    story.loses(going, at=NOW + 1)
    assert where(story.acts(BindPod, NOW + 1)) == {"w-0": "x1", "w-1": "x2"}


def test_members_do_not_take_each_others_room() -> None:
    story = Story(nodes=(node("x1", cpu=4000, memory=350), node("x2")))
    story.polls(at=NOW + 20)
    story.sees(*ring(4))
    story.ended(asks(story, NOW + 20), at=NOW + 20, job_id=17, grant=granted(17, ("x1", 4)))
    [cancel] = story.acts(CancelJob, NOW + 20)
    assert "memory" in cancel.reason


# --- unwinding and mending ------------------------------------------------------------------------------------------


def test_a_gang_that_cannot_be_bound_wholly_in_time_is_unwound() -> None:
    story = Story()
    pods = ring(2, owner=JOB)
    story.sees(OwnerRead(JOB, Owner(JOB), NOW, "hpc"), *pods)
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    one, other = story.acts(BindPod, NOW)
    story.ended(one, at=NOW)
    story.ended(other, Outcome.UNREACHED, at=NOW)
    story.sees(story.bound(pods[0], 17))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    at, cancels = NOW + 1, []
    while not cancels:
        at += 1
        assert at < NOW + 40
        acts = story.decides(at)
        cancels = [each for each in acts if isinstance(each, CancelJob)]
        for bind in [each for each in acts if isinstance(each, BindPod)]:
            story.ended(bind, Outcome.UNREACHED, at=at)
    assert at >= NOW + 30
    story.ended(cancels[0], at=at)
    acts = story.decides(at)
    said = [(each.name, each.condition, each.event) for each in acts if isinstance(each, SetPodCondition)]
    assert said == [("w-0", "", names.GRANT_RELEASED), ("w-1", names.GRANT_RELEASED, names.GRANT_RELEASED)]
    assert [each.name for each in acts if isinstance(each, DeletePod)] == ["w-0"]
    assert "only 1 of the 2 pods could be bound within 30 s (tuning: gang_bind_deadline_s)" in cancels[0].reason


def test_if_an_admin_takes_a_node_from_the_job_of_a_gang_its_pods_end_and_say_which_pod_lost_its_node() -> None:
    """`scontrol update jobid=… numnodes=1`: the job lives on with the other node, and Slurm gives the node to other jobs."""
    story = Story()
    pods = runs(story, ring(2), ("x1", 1), ("x2", 1))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    read = replace(job_of(pods[0], 17), name=asked_name(story))
    story.reads(read, at=NOW + 60, granted=granted(17, ("x1", 1)))
    [cancel] = story.acts(CancelJob, NOW + 61)
    story.ended(cancel, at=NOW + 61)
    ends = story.acts(FailByDeadline, NOW + 61)
    why = "Slurm job 17 ended: CANCELLED (slurm-bridge ended it: hpc/w-1 is on node x2, which job 17 does not hold)"
    assert {(end.name, end.reason) for end in ends} == {("w-0", why), ("w-1", why)}


def half_bound(story: Story, *outcomes: Outcome) -> list[Pod]:
    """A gang that fills its node, and how the binds of its members ended, ten seconds after they were sent."""
    pods = ring(len(outcomes), cpu=64_000 // len(outcomes))
    story.sees(*pods)
    asked, per_pod = asks(story), 64 // len(outcomes)
    grant = Grant(17, (GrantedNode("x1", 64, 100 * len(outcomes)),))
    assert asked.spec.cpus_per_task == per_pod
    story.ended(asked, at=NOW, job_id=17, grant=grant)
    binds = {bind.name: bind for bind in story.acts(BindPod, NOW)}
    story.polls({17: "RUNNING"}, at=NOW + 1)
    for number, outcome in enumerate(outcomes):
        story.ended(binds[f"w-{number}"], outcome, at=NOW + 10, began=NOW)
        if outcome is Outcome.DONE:
            story.sees(story.bound(pods[number], 17))
    return pods


def test_all_binds_of_a_gang_are_sent_at_once_however_many_may_be_in_flight() -> None:
    """To place the rest of a large gang again for each bind that ends would take most of the bridge's time."""
    story = Story(without(CONFIG, binds=2))
    story.sees(*ring(64))
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x1", 64)))
    binds = story.acts(BindPod, NOW)
    assert len(binds) == 64
    story.sees(alone := pod("alone"))
    story.ended(asks(story), at=NOW, job_id=18, grant=granted(18, ("x2", 1)))
    assert story.acts(BindPod, NOW) == [], "a single pod waits for its turn"
    for bind in binds:
        story.ended(bind, at=NOW + 1)
    assert where(story.acts(BindPod, NOW + 1)) == {alone.name: "x2"}


def test_a_bind_with_an_unknown_outcome_takes_no_second_place() -> None:
    story = Story()
    half_bound(story, Outcome.DONE, Outcome.UNKNOWN, Outcome.UNREACHED, Outcome.UNREACHED)
    story.polls({17: "RUNNING"}, at=NOW + 12)
    assert where(story.acts(BindPod, NOW + 12)) == dict.fromkeys(("w-1", "w-2", "w-3"), "x1")


def test_binds_that_were_sent_together_and_failed_are_one_attempt() -> None:
    story = Story()
    half_bound(story, *[Outcome.UNREACHED] * 8)
    story.polls({17: "RUNNING"}, at=NOW + 12)
    assert len(story.acts(BindPod, NOW + 12)) == 8, "a second later, not a minute"


def test_a_recreated_member_takes_the_freed_place() -> None:
    story = Story()
    shown = runs(story, ring(), ("x1", 2), ("x2", 2))
    story.loses(shown[1], at=NOW + 5)
    again = member(1, uid="uid-again", created=NOW + 6)
    story.sees(again)
    assert where(story.acts(BindPod, NOW + 20)) == {"w-1": "x1"}


def test_a_recreated_member_waits_until_the_former_one_is_gone() -> None:
    story = Story(nodes=(node("x1", cpu=4000), node("x2")))
    shown = runs(story, ring(), ("x1", 4))
    story.sees(replace(shown[1], deleting_at=NOW + 35), member(1, uid="uid-again", created=NOW + 6))
    acts = story.decides(NOW + 20)
    assert not [each for each in acts if isinstance(each, BindPod | CancelJob)]
    story.loses(shown[1], at=NOW + 21)
    assert where(story.acts(BindPod, NOW + 21)) == {"w-1": "x1"}


def test_a_recreated_member_waits_for_the_freed_place_even_if_the_node_has_other_room() -> None:
    story = Story()
    shown = runs(story, ring(), ("x1", 4))
    story.sees(replace(shown[1], deleting_at=NOW + 35), member(1, uid="uid-again", created=NOW + 6))
    acts = story.decides(NOW + 20)
    assert not [each for each in acts if isinstance(each, BindPod | CancelJob)]
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert said.message == "The bind for Slurm job 17 waits: hpc/w-1 still terminates."
    story.loses(shown[1], at=NOW + 21)
    assert where(story.acts(BindPod, NOW + 21)) == {"w-1": "x1"}


def test_running_members_are_followed_while_another_member_waits_for_its_place() -> None:
    """Slurm preempts their job with a grace: the pods show it, and no further pod is bound."""
    story = Story(nodes=(node("x1", cpu=4000), node("x2")))
    shown = runs(story, ring(), ("x1", 4))
    story.sees(replace(shown[1], deleting_at=NOW + 35), member(1, uid="uid-again", created=NOW + 6))
    [read] = story.acts(ReadJob, NOW + 18)
    story.reads(replace(job_of(shown[0], 17), name=asked_name(story)), at=NOW + 18, granted=granted(17, ("x1", 4)))
    story.ended(read, at=NOW + 18)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 21)
    [read] = story.acts(ReadJob, NOW + 21)
    told = job_of(shown[0], 17, "RUNNING", "SIGNALING", preempted=NOW + 21, ends=NOW + 51)
    story.reads(replace(told, name=asked_name(story)), at=NOW + 21, granted=granted(17, ("x1", 4)))
    story.ended(read, at=NOW + 21)
    story.decides(NOW + 21)  # the waiting member shows it; the next visit comes at once
    assert {each.name for each in story.acts(FailByDeadline, NOW + 21)} == {"w-0", "w-2", "w-3"}
    story.loses(shown[1], at=NOW + 22)
    assert story.acts(BindPod, NOW + 22) == []


def test_another_clients_pod_in_a_freed_place_does_not_end_the_others() -> None:
    story = Story(nodes=(node("x1", cpu=4000), node("x2")))
    shown = runs(story, ring(), ("x1", 4))
    story.loses(shown[1], at=NOW + 5)
    story.sees(pod("thief", node="x1", phase=PodPhase.RUNNING, uid="uid-thief"), member(1, uid="u2", created=NOW + 6))
    for at in (NOW + 20, NOW + 60, NOW + 120):
        assert not story.acts(CancelJob, at)


def test_when_the_job_of_a_gang_ends_all_pods_end_and_recreated_pods_wait_for_each_other() -> None:
    story = Story()
    pods = ring(2, owner=JOB)
    story.sees(OwnerRead(JOB, Owner(JOB), NOW, "hpc"))
    shown = runs(story, pods, ("x1", 2))
    at = NOW + 20
    story.polls({17: "PREEMPTED"}, at=at)
    story.reads(replace(job_of(pods[0], 17, "PREEMPTED"), name=asked_name(story)), at=at)
    assert sorted(each.name for each in story.acts(DeletePod, at)) == ["w-0", "w-1"]
    story.loses(shown[0], at=at + 1)
    story.sees(member(0, 2, owner=JOB, uid="uid-n0", created=at + 1))
    assert not [
        each for each in story.decides(at + 2) if isinstance(each, AllocateNow | SubmitJob | BindPod | DeletePod)
    ]
    story.loses(shown[1], at=at + 3)
    story.sees(member(1, 2, owner=JOB, uid="uid-n1", created=at + 3))
    assert asks(story, at + 10).spec.tasks == 2


def test_new_pods_of_a_gang_say_which_pods_of_the_former_job_they_wait_for() -> None:
    story = Story()
    shown = runs(story, ring(4), ("x1", 3), ("x2", 1))
    story.polls({17: "CANCELLED"}, at=NOW + 20)
    story.reads(replace(job_of(shown[0], 17, "CANCELLED"), name=asked_name(story)), at=NOW + 20)
    assert len(story.acts(FailByDeadline, NOW + 20)) == 4
    new = member(0, created=NOW + 21, uid="uid-new")
    story.sees(new)
    wait = "Nodes are requested when the pods of the former job of hpc/ring have ended. These still run: "
    three = "hpc/w-0 on node x1, hpc/w-1 on node x1, hpc/w-2 on node x1"
    assert [each.message for each in story.acts(SetPodCondition, NOW + 21)] == [f"{wait}{three} and 1 more."]
    story.loses(replace(shown[3], phase=PodPhase.FAILED), NOW + 30)
    assert [each.message for each in story.acts(SetPodCondition, NOW + 31)] == [f"{wait}{three}."]


def asked_name(story: Story) -> str:
    [job] = story.world.placeholders.values()
    assert isinstance(job.spec, JobSpec)
    return job.spec.name


def test_a_queued_gang_that_loses_a_member_keeps_its_place_for_a_moment() -> None:
    story = Story()
    pods = ring(2)
    story.sees(*pods)
    first = asks(story)
    story.ended(first, Outcome.REFUSED, at=NOW, number=2013)
    story.ended(asks(story), at=NOW, job_id=17)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.loses(pods[0], at=NOW + 20)
    assert story.acts(CancelJob, NOW + 25) == []
    [cancel] = story.acts(CancelJob, NOW + 51)
    assert cancel.job_id == 17


def test_a_gang_of_a_thousand_is_asked_for_once() -> None:
    story = Story(nodes=tuple(node(f"x{number}", cpu=64000, memory=64 * MIB) for number in range(1, 20)))
    story.sees(*ring(1000))
    assert asks(story).spec.tasks == 1000


def test_a_gang_of_which_one_waits_follows_its_lost_job_whose_id_is_anothers_now() -> None:
    story = Story()
    shown = [story.bound(each, 17, "x1") for each in ring(2, created=START - 60)]  # by a previous process
    story.sees(*shown, member(2, 3))
    story.sees(*[replace(each, annotations={**each.annotations, GANG_SIZE: "3"}) for each in shown])
    story.polls({17: "RUNNING"}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    story.reads(job_of(pod("other"), 17), at=NOW)
    story.ended(read, at=NOW)
    assert story.acts(FailByDeadline, NOW + 20) == [], "a job of their name is searched first"
    story.polls({17: "RUNNING"}, at=NOW + 21)
    ends = story.acts(FailByDeadline, NOW + 21)
    assert [(end.name, end.reason) for end in ends] == [
        ("w-0", "Slurm lost the job of this pod (17)"),
        ("w-1", "Slurm lost the job of this pod (17)"),
    ]


def test_after_a_restart_a_gang_keeps_the_job_of_most_members_though_a_leaving_member_shows_the_former_job() -> None:
    story = Story()
    story.sees(*[story.bound(each, 18, "x1") for each in ring(2)])
    story.sees(story.bound(member(2, 2), 17, "x1", deleting_at=NOW + 30))
    story.polls({18: "RUNNING", 17: "NODE_FAIL"}, at=NOW + 20)
    assert not story.acts(DeletePod, NOW + 20)


def of_before(number: int, job_id: int, **fields: Any) -> Pod:
    """A member as a previous process bound it."""
    return replace(Story().bound(member(number, 2), job_id, **fields), created=START - 60)


WAITED = [replace(member(number, 2), created=START - 60) for number in range(2)]


@pytest.mark.parametrize(
    ("seen", "job_id"),
    [
        ([of_before(0, 17), of_before(1, 16)], 16),
        ([of_before(0, 17), of_before(1, 16, phase=PodPhase.FAILED)], 17),
        ([of_before(0, 17), of_before(1, 16, deleting_at=NOW + 30)], 17),
        ([of_before(0, 17), WAITED[1], of_before(1, 16)], 17),
        ([*WAITED, of_before(0, 17), of_before(1, 16)], 16),
    ],
    ids=["the last one", "it has ended", "it leaves", "another client bound it", "other clients bound both"],
)
def test_after_a_restart_the_job_of_a_gang_is_the_one_that_its_last_pod_shows_unless_that_pod_says_nothing_of_it(
    seen: list[Pod], job_id: int
) -> None:
    story = Story()
    story.polls({16: "RUNNING", 17: "RUNNING"}, at=NOW)
    story.sees(*seen)
    [gang] = story.world.workloads.values()
    assert gang.hint == job_id


def test_after_a_restart_the_last_of_a_gang_is_still_its_member() -> None:
    story = Story()
    done = [replace(member(number, 2), phase=PodPhase.SUCCEEDED, node="x1") for number in range(1)]
    last = member(1, 2)
    story.sees(*done, last)
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x1", 1)))
    [bind] = story.acts(BindPod, NOW)
    assert bind.annotations[names.SIZE] == "1"
    shown = replace(last, node="x1", phase=PodPhase.RUNNING, annotations={**last.annotations, **bind.annotations})

    again = new_world(CONFIG, started=NOW + 20)
    listed = PodsListed(Scope.OURS, (*done, shown, member(2, 2)), NOW + 20)
    again.apply(listed)
    again.apply(NamespacesListed((KUBE_SYSTEM,)))
    assert [each.name for each in again.workloads[again.key_of_pod[shown.uid]].members] == ["w-1"]
    assert again.key_of_pod["uid-w-2"] != again.key_of_pod[shown.uid], "there is no place for one more"


def test_a_replacement_that_could_not_be_submitted_again_does_not_end_the_members_that_run() -> None:
    """A gang of a previous process, one a node: a node is cordoned for later, and then another member is made again."""
    apart = (PodTerm((Requirement("app", "In", ("db",)),), frozenset({"hpc"})),)
    pods = ring(2, labels={"app": "db"}, anti_affinity=apart)
    gang = runs(Story(), pods, ("x1", 1), ("x2", 1))
    story = Story()
    story.sees(gang[0], replace(pods[1], uid="uid-again", created=NOW + 20))
    [workload] = story.world.workloads.values()
    name = names.job_name(workload.readable, story.world.cluster, workload.key)
    story.polls({17: "RUNNING"}, at=NOW + 21)
    job = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", starts=NOW, tasks=2)
    story.reads(job, at=NOW + 21, granted=granted(17, ("x1", 1), ("x2", 1)))
    story.sees(NodeSeen(node("x1", unschedulable=True)))
    acts = story.decides(NOW + 40)
    assert not any(isinstance(each, CancelJob | BindPod) for each in acts)
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert said.message.startswith("The pod waits for a place in job 17. ")
    assert "only 1 node can run them" in said.message
    story.sees(NodeSeen(node("x1")))
    [bind] = story.acts(BindPod, NOW + 41)
    assert (bind.name, bind.node) == ("w-1", "x2")


def test_while_a_bind_for_a_job_that_ended_may_still_land_nothing_new_is_asked_for() -> None:
    story = Story()
    pods = ring(2, owner=JOB)
    story.sees(OwnerRead(JOB, Owner(JOB), NOW, "hpc"), *pods)
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    one, late = story.acts(BindPod, NOW)
    story.ended(one, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.loses(pods[0], at=NOW + 20)
    story.sees(member(0, 2, owner=JOB, uid="uid-again", created=NOW + 20))
    assert not [each for each in story.decides(NOW + 30) if isinstance(each, AllocateNow | SubmitJob)]
    story.ended(late, Outcome.REFUSED, at=NOW + 31)
    assert asks(story, NOW + 60).spec.tasks == 2


# --- whole nodes ----------------------------------------------------------------------------------------------------

A_NODE = 512_000  # MiB; and 64 CPUs


@pytest.mark.parametrize(
    ("size", "options", "places"),
    [
        (2, {"memory": 100}, None),  # Slurm charges 64 CPUs of 100 MiB, which a node has: it packs them as it likes
        (2, {"memory": A_NODE // 4}, 2),
        (5, {"memory": A_NODE // 4}, 4),
        (2, {"memory": A_NODE // 4, "cpu": 64_000}, None),  # no CPU is idle
        (4, {"memory": A_NODE // 3, "cpu": 20_000}, 3),
        (4, {"memory": A_NODE // 8, "gpu": 3}, 2),
        (4, {"memory": A_NODE // 4, "says": {"min-nodes": "2"}}, 2),
        (9, {"memory": A_NODE // 4}, None),  # more than the two nodes take: Slurm says that best
    ],
)
def test_an_exclusive_gang_is_not_charged_for_the_memory_of_idle_cpus(
    size: int, options: dict[str, Any], places: int | None
) -> None:
    """T10: it gets as few nodes as possible, with the number of pods of each node if Slurm would refuse it otherwise."""
    story = Story()
    says = {"exclusive": "true", **options.pop("says", {})}
    story.sees(*ring(size, says=says, **options))
    spec = asks(story).spec
    assert (spec.tasks, spec.exclusive, spec.tasks_per_node) == (size, "exclusive", places)


def test_a_gang_that_shares_its_nodes_is_laid_out_by_slurm() -> None:
    story = Story()
    story.sees(*ring(2, memory=A_NODE // 4))
    assert asks(story).spec.tasks_per_node is None


@pytest.mark.parametrize(
    ("size", "needs", "memory_mib", "says", "places"),
    [
        (2, {"cpu": 3000, "memory": 4096}, 8192, {}, 2),  # by the CPU, each pod would cost 4,098 MiB
        (2, {"cpu": 3000, "memory": 4096}, 8196, {}, None),  # that fits, too
        (2, {"cpu": 4000, "memory": 4096}, 8192, {}, None),  # nothing is rounded
        (4, {"cpu": 3000, "memory": 4096}, 8192, {}, 2),
        (3, {"cpu": 3000, "memory": 4096}, 8192, {}, 2),
        (2, {"cpu": 7000, "memory": 8192}, 8192, {}, 1),
        (2, {"cpu": 3000, "memory": 4096}, 8192, {"max-nodes": "1"}, 2),
        (5, {"cpu": 2000, "memory": 1}, 4, {}, 3),  # three on each node, although a node holds four
    ],
)
def test_a_gang_that_fits_exactly_is_not_refused_because_memory_by_the_cpu_is_rounded_up(
    size: int, needs: dict[str, int], memory_mib: int, says: dict[str, str], places: int | None
) -> None:
    """Slurm refused it as more than any node has (2014), or it waited for ever."""
    count = 1 if size == 2 and needs["memory"] * 2 <= memory_mib else 2
    there = [f"x{number + 1}" for number in range(count)]
    story = Story(nodes=[node(name, cpu=8000, memory=memory_mib, gpu=0) for name in there])
    in_slurm = tuple(replace(slurm_node(name), cpus=8, memory_mib=memory_mib, gres={}) for name in there)
    story.sees(SlurmNodesPolled(in_slurm, (Partition("main", default=True),), NOW - 1))
    story.sees(*ring(size, says=says, **needs))
    assert asks(story).spec.tasks_per_node == places


def in_slurm_conf(story: Story, *static: str, more: tuple[SlurmNode, ...] = ()) -> None:
    """These nodes are external nodes of slurm.conf."""
    nodes = (*(slurm_node(name, static=True) for name in static), *more)
    story.sees(SlurmNodesPolled(nodes, (Partition("main", default=True), Partition("gpu")), NOW - 1))


@pytest.mark.parametrize(
    ("size", "options", "places"),
    [
        (8, {"gpu": 1}, 8),
        (12, {"gpu": 1}, 6),  # evenly, so that no device is held in vain
        (13, {"gpu": 1}, 7),
        (4, {"gpu": 4}, 2),
        (2, {"gpu": 8}, 1),
        (6, {"gpu": 1, "says": {"min-nodes": "2"}}, 3),
        (6, {"gpu": 1, "memory": A_NODE // 4}, 3),
        (6, {}, None),  # nothing can be lost
    ],
)
def test_on_external_nodes_of_slurm_conf_a_gang_asks_for_devices_by_the_node(
    size: int, options: dict[str, Any], places: int | None
) -> None:
    """Asked for by the task Slurm would give none of them, and count them as used for ever (Slurm facts 7)."""
    story = Story()
    in_slurm_conf(story, "x1", "x2")
    story.sees(*ring(size, **options))
    assert asks(story).spec.tasks_per_node == places


def test_one_external_node_of_slurm_conf_among_others_is_enough() -> None:
    story = Story()
    in_slurm_conf(story, "x2", more=(slurm_node("x1"),))
    story.sees(*ring(4, gpu=1))
    assert asks(story).spec.tasks_per_node == 4


def test_a_gang_that_may_not_use_nodes_of_slurm_conf_is_laid_out_by_slurm() -> None:
    story = Story(nodes=(node("x1", labels={"disk": "fast"}), node("x2")))
    in_slurm_conf(story, "x2", more=(slurm_node("x1"),))
    story.sees(*ring(4, gpu=1, node_selector={"disk": "fast"}))
    assert asks(story).spec.tasks_per_node is None


def test_a_gang_that_would_lose_devices_in_any_layout_is_refused_in_words() -> None:
    """Three and two would fit, as Slurm packs them; three and three, or two and two and one, do not."""
    story = Story()
    small = replace(slurm_node("x2", static=True), gres={"gpu": 4})
    large = replace(slurm_node("x1", static=True), gres={"gpu": 6})
    in_slurm_conf(story, more=(large, small))
    story.sees(*ring(5, gpu=2))
    [said] = {each.message for each in story.acts(SetPodCondition, NOW)}
    assert said.startswith(
        "Slurm's external nodes x1, x2 are defined in slurm.conf, where Slurm counts the gpu of a gang correctly only"
    )
    assert "5 such pods do not fit like that" in said
    assert "label them slurm-bridge/external-node=true" in said


def test_a_waiting_gang_stays_as_it_is_when_a_node_comes_to_slurm_conf() -> None:
    story = Story()
    in_slurm_conf(story, "x1")
    pods = ring(4, gpu=2)
    story.sees(*pods)
    asked = asks(story)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2013)
    submitted = asks(story)
    story.ended(submitted, at=NOW, job_id=17)
    in_slurm_conf(story, "x1", "x2")
    acts = [each for second in range(1, 5) for each in story.decides(NOW + second)]
    assert not any(isinstance(each, CancelJob | UpdateJob | SubmitJob | AllocateNow) for each in acts)


def test_nodes_that_an_exclusive_gang_may_not_use_do_not_count() -> None:
    story = Story(nodes=(node("x1", labels={"disk": "fast"}), node("x2")))
    story.sees(*ring(5, memory=A_NODE // 4, says={"exclusive": "true"}, node_selector={"disk": "fast"}))
    spec = asks(story).spec
    assert (spec.excluded_nodes, spec.tasks_per_node) == ("x2", None)


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        (ring(5, gpu=4), "for 5 such pods, even when it is empty: 2 nodes can run them, and would take 4"),
        (
            ring(3, says={"min-nodes": "1", "max-nodes": "1"}, cpu=32_000),
            "for 3 such pods on 1 of its nodes, even when it is empty: 2 nodes can run them, and would take 2",
        ),
        (
            [member(0, 4), *(member(number, 4, gpu=8) for number in (1, 2, 3))],
            "for 3 such pods, even when it is empty: 2 nodes can run them, and would take 2",
        ),
    ],
    ids=["too large", "on too few nodes", "one of its shapes"],
)
def test_a_gang_that_even_empty_nodes_could_not_take_shows_that_and_nothing_is_submitted(
    pods: list[Pod], why: str
) -> None:
    """F3."""
    story = Story()
    story.sees(*pods)
    acts = story.decides(NOW)
    assert {(type(each), each.reason) for each in acts} == {
        (SetPodCondition, f"Slurm partition main has no room {why}.")
    }


KINDS = "kinds of pods of this gang ask for different resources or nodes, and Slurm gives each kind nodes of its own"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (({}, {"gpu": 1}, {"gpu": 2}), f"3 {KINDS}: at least 3 nodes in all. Only 2 nodes of Slurm partition main"),
        (
            ({}, {"node_selector": {"disk": "fast"}}, {"node_selector": {"disk": "fast"}, "gpu": 1}),
            f"2 {KINDS}: at least 2 nodes in all. Only 1 node of Slurm partition main",
        ),
    ],
    ids=["fewer nodes than kinds", "fewer nodes than kinds that need them"],
)
def test_a_gang_of_more_kinds_than_there_are_nodes_for_them_shows_that_and_nothing_is_submitted(
    options: tuple[dict[str, Any], ...], why: str
) -> None:
    """Slurm would accept the heterogeneous job, and never start it (F3)."""
    story = Story(nodes=(node("x1", labels={"disk": "fast"}), node("x2")))
    story.sees(*(member(rank, 3, **each) for rank, each in enumerate(options)))
    [said] = {each.reason for each in story.decides(NOW) if isinstance(each, SetPodCondition)}
    assert said == f"{why} can run them. Let the pods ask for the same, or ask the admin for more nodes."
    story.sees(NodeSeen(node("x3", labels={"disk": "fast"})))
    nodes = [slurm_node("x1"), slurm_node("x2"), slurm_node("x3")]
    story.sees(SlurmNodesPolled(tuple(nodes), (Partition("main", default=True),), NOW + 1))
    assert len(asks(story, NOW + 1).spec.parts) == len(options) - 1


@pytest.mark.parametrize(
    ("least", "kinds", "shares"),
    [
        (2, (1, 2), [1, 1]),  # each kind has a node of its own anyway
        (3, (1, 2), [1, 2]),
        (2, (2, 2), [1, 1]),
        (5, (2, 1, 4), [1, 1, 3]),
        (7, (2, 1, 4), [2, 1, 4]),
    ],
)
def test_min_nodes_of_a_gang_counts_for_all_its_kinds_together(
    least: int, kinds: tuple[int, ...], shares: list[int]
) -> None:
    """Each kind asked for all of min-nodes: Slurm refuses more nodes than tasks (2025), or the gang found too few."""
    story = Story(nodes=[node(f"x{number}") for number in range(least)])
    memory = [100 * kind for kind, pods in enumerate(kinds, 1) for _ in range(pods)]
    says = {"min-nodes": str(least)}
    story.sees(*(member(rank, sum(kinds), memory=amount, says=says) for rank, amount in enumerate(memory)))
    spec = asks(story).spec
    assert [(each.tasks, each.min_nodes) for each in (spec, *spec.parts)] == list(zip(kinds, shares, strict=True))


def test_a_gang_that_asks_for_more_nodes_than_it_has_pods_is_refused_in_words() -> None:
    story = Story()
    story.sees(*ring(2, says={"min-nodes": "4"}))
    [said] = {each.message for each in story.acts(SetPodCondition, NOW)}
    assert said.endswith("Annotation slurm-bridge/min-nodes: 4 nodes, but the gang has 2 pods. Lower the number.")


@pytest.mark.parametrize(
    ("says", "done", "nodes"),
    [
        ({"min-nodes": "4"}, 1, (3, None)),
        ({"min-nodes": "2", "max-nodes": "3"}, 1, (2, 3)),
        ({"min-nodes": "4"}, 3, (None, None)),
        ({"max-nodes": "2"}, 3, (None, None)),
    ],
)
def test_the_rest_of_a_gang_starts_again_though_it_has_fewer_pods_than_its_annotations_say(
    says: dict[str, str], done: int, nodes: tuple[int | None, int | None]
) -> None:
    """W5: some pods succeeded, the others are created again.  They were refused for ever: "the gang has 3 pods"."""
    story = Story(nodes=[node(f"x{number}") for number in range(1, 5)])
    story.sees(OwnerRead(JOB, Owner(JOB), NOW, "hpc"))
    shown = runs(story, ring(says=says, owner=JOB), *[(f"x{number}", 1) for number in range(1, 5)])
    for number, each in enumerate(shown):
        story.sees(replace(each, phase=PodPhase.SUCCEEDED if number < done else PodPhase.FAILED))
    story.polls({17: "CANCELLED"}, at=NOW + 10)
    for at in (NOW + 10, NOW + 11, NOW + 12):
        for action in story.decides(at):
            story.ended(action, at=at)
    for number in range(done, 4):
        story.loses(shown[number], NOW + 20)
        story.sees(member(number, says=says, owner=JOB, uid=f"uid-again-{number}", created=NOW + 20))
    spec = asks(story, NOW + 30).spec
    assert (spec.tasks, (spec.min_nodes, spec.max_nodes)) == (4 - done, nodes)


@pytest.mark.parametrize("cpus", [(1, 1, 1, 1), (1, 1, 2, 2)], ids=["one kind of pods", "two kinds of pods"])
def test_a_gang_that_asks_for_more_nodes_than_it_allows_is_refused_in_words(cpus: tuple[int, ...]) -> None:
    """Slurm refused such a job for a limit of the partition; a job of two kinds got more nodes than max-nodes."""
    story = Story(nodes=[node(f"x{number}") for number in range(4)])
    says = {"min-nodes": "4", "max-nodes": "2"}
    story.sees(*(member(rank, 4, cpu=1000 * count, says=says) for rank, count in enumerate(cpus)))
    acts = story.decides(NOW)
    assert not any(isinstance(each, AllocateNow | SubmitJob) for each in acts)
    [said] = {each.message for each in acts if isinstance(each, SetPodCondition)}
    least, most = "Annotation slurm-bridge/min-nodes", "annotation slurm-bridge/max-nodes"
    assert said.endswith(f'{least}: "4" is more than {most}: "2" allows. Correct one of them.')


def test_a_gang_that_was_too_large_is_submitted_once_slurms_nodes_have_grown() -> None:
    story = Story(nodes=[node(name, cpu=128_000) for name in ("x1", "x2")])
    story.sees(*ring(3, cpu=60_000))
    assert not any(isinstance(each, AllocateNow | SubmitJob) for each in story.decides(NOW))
    grown = [replace(slurm_node(name), cpus=128) for name in ("x1", "x2")]
    story.sees(SlurmNodesPolled(tuple(grown), (Partition("main", default=True),), NOW + 1))
    assert asks(story, NOW + 1).spec.tasks == 3


@pytest.mark.parametrize(
    ("size", "partition", "is_submitted"), [(2, "", True), (3, "", False), (3, "gpu", True), (4, "gpu", False)]
)
def test_only_the_nodes_of_its_partition_count_for_a_gang(size: int, partition: str, is_submitted: bool) -> None:
    where_to = {"x1": "main", "x2": "main", "x3": "gpu", "x4": "gpu", "x5": "gpu"}
    story = Story(nodes=map(node, where_to))
    in_slurm = [slurm_node(name, partitions=(partition,)) for name, partition in where_to.items()]
    story.sees(SlurmNodesPolled(tuple(in_slurm), (Partition("main", default=True), Partition("gpu")), NOW))
    story.sees(*ring(size, cpu=60_000, says={"partition": partition} if partition else {}))
    assert any(isinstance(each, AllocateNow | SubmitJob) for each in story.decides(NOW)) is is_submitted


# --- several shapes -------------------------------------------------------------------------------------------------


def launcher_and_workers() -> list[Pod]:
    return [member(0, 3, cpu=1000), member(1, 3, cpu=2000, gpu=1), member(2, 3, cpu=2000, gpu=1)]


def two_parts(job_id: int) -> Grant:
    workers = GrantedNode("x2", 4, 200, {"gpu": 2})
    return Grant(job_id, (GrantedNode("x1", 1, 100),), (Grant(job_id + 1, (workers,)),))


def het(story: Story, job_id: int, *states: str) -> Job:
    """The leader as it is read, with its other component in that state."""
    spec = next(iter(story.world.placeholders.values())).spec
    assert spec is not None
    part = Job(job_id + 1, spec.name, "alice", frozenset(states), het_id=job_id, het_offset=1)
    running = frozenset({"RUNNING"})
    return Job(job_id, spec.name, "alice", running, partition="main", het_id=job_id, het_offset=0, parts=(part,))


def launched(story: Story, pods: Sequence[Pod] = (), *meanwhile: Event) -> list[BindPod]:
    """A launcher and two workers: one heterogeneous job, started by Slurm's next pass as jobs 17 and 18.

    meanwhile   what happens between the submission and the grant
    """
    story.polls(at=NOW)
    story.sees(*(pods or launcher_and_workers()))
    [submit] = [each for each in story.decides(NOW) if isinstance(each, AllocateNow | SubmitJob)]
    assert isinstance(submit, SubmitJob)
    assert [(each.tasks, each.cpus_per_task, each.gres) for each in (submit.spec, *submit.spec.parts)] == [
        (1, 1, ()),
        (2, 2, (("gpu", 1),)),
    ]
    assert submit.components == (("uid-w-0",), ("uid-w-1", "uid-w-2"))
    story.ended(submit, at=NOW, job_id=17)
    story.sees(*meanwhile)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    story.decides(NOW + 1)
    story.reads(het(story, 17, "RUNNING"), at=NOW + 1, granted=two_parts(17))
    return story.acts(BindPod, NOW + 1)


def test_members_of_several_shapes_are_components_of_one_job() -> None:
    story = Story()
    binds = launched(story)
    assert where(binds) == {"w-0": "x1", "w-1": "x2", "w-2": "x2"}
    assert {(bind.job_id, bind.annotations[names.JOB_NODES]) for bind in binds} == {(17, "x[1-2]")}
    assert {bind.name: bind.annotations[names.LOCAL_RANK] for bind in binds} == {"w-0": "0", "w-1": "0", "w-2": "1"}


def test_pods_that_were_created_one_after_the_other_wait_for_the_begin_time_of_the_last_one() -> None:
    """A begin time that counts from the creation of a pod differs between the pods, and makes no further component."""
    story = Story()
    story.sees(*(member(number, 3, says={"begin": "now+1hour"}, created=START + number) for number in range(3)))
    spec = asks(story).spec
    assert (spec.begin, spec.tasks, spec.parts) == (int(START) + 2 + 3600, 3, ())


def test_a_node_whose_devices_others_use_is_left_out_only_by_the_pods_that_need_devices() -> None:
    """If only the first pod were judged, a node without free devices would be granted and released again every minute."""
    story = Story(nodes=[node(f"x{number}") for number in range(1, 6)])
    daemon = pod("daemon", gpu=8, namespace="elsewhere", node="x2", scheduler_name="default-scheduler")
    assert launched(story, (), PodSeen(Scope.OTHERS, daemon)) == []
    [cancel] = story.acts(CancelJob, NOW + 9)  # not in the quiet period
    story.ended(cancel, at=NOW + 9)
    [again] = story.acts(SubmitJob, NOW + 70)
    assert ["x2" in expand(each.excluded_nodes) for each in (again.spec, *again.spec.parts)] == [False, True]


def test_each_pod_takes_a_place_of_the_component_that_it_was_submitted_in_though_other_nodes_changed() -> None:
    """A node that was not granted got a taint that one of two equal workers tolerates: translated now, they differ."""
    taint = Taint("maintenance", "", "NoSchedule")
    launcher, worker, other = launcher_and_workers()
    tolerant = replace(other, tolerations=(Toleration("maintenance", "Exists"),))
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    binds = launched(story, [launcher, worker, tolerant], NodeSeen(node("x3", taints=(taint,))))
    assert where(binds) == {"w-0": "x1", "w-1": "x2", "w-2": "x2"}


def test_pods_whose_input_changed_since_the_submission_are_translated_again() -> None:
    story, pods = Story(), launcher_and_workers()
    edited = replace(pods[2], annotations={**pods[2].annotations, names.PREFIX + names.CONSTRAINTS: "fast"})
    assert launched(story, pods, PodSeen(Scope.OURS, edited)) == []


def test_a_component_is_no_twin_and_is_not_submitted_again() -> None:
    story = Story()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    for at in (NOW + 20, NOW + 40):
        story.polls({17: "RUNNING", 18: "RUNNING"}, at=at)
        acts = story.decides(at)
        assert not [each for each in acts if isinstance(each, CancelJob) or getattr(each, "job_id", None) == 18]


def test_once_a_component_ended_the_whole_job_does() -> None:
    story = Story()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    story.polls({17: "RUNNING", 18: "TIMEOUT"}, at=NOW + 20)
    [cancel] = story.acts(CancelJob, NOW + 20)
    assert cancel.job_id == 17


def test_a_component_that_outlives_its_leader_is_read_and_ended() -> None:
    """A user shortened the time limit of the leader alone: the other component held its GPUs to the end of its own limit."""
    story = Story()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    [part] = het(story, 17, "RUNNING").parts
    story.polls({17: "TIMEOUT", 18: "RUNNING"}, at=NOW + 20)
    assert 18 in story.world.unread
    story.reads(part, at=NOW + 21)
    story.world.validate()
    [cancel] = story.acts(CancelJob, NOW + 21)
    assert (cancel.job_id, cancel.reason) == (18, "a component of job 18 ended")
    story.ended(cancel, at=NOW + 21)
    story.reads(replace(het(story, 17), states=frozenset({"TIMEOUT"})), at=NOW + 22)
    ends = [each for each in story.decides(NOW + 22) if isinstance(each, DeletePod | FailByDeadline)]
    assert {each.name for each in ends} == {"w-0", "w-1", "w-2"}


def test_a_component_that_outlived_its_leader_and_its_pods_is_ended_after_a_restart() -> None:
    former = Story()
    launched(former)
    [part] = het(former, 17, "RUNNING").parts
    story = Story()
    story.polls({17: "TIMEOUT", 18: "RUNNING"}, at=NOW)
    [read] = [each for each in story.acts(ReadJob, NOW + 1) if each.job_id == 18]
    story.reads(part, at=NOW + 1)
    story.ended(read, at=NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 20)
    assert cancel.job_id == 18


def test_a_component_that_ended_in_a_previous_process_is_seen_when_its_leader_is_read() -> None:
    story = Story()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    story.reads(het(story, 17, "NODE_FAIL"), at=NOW + 20)
    [cancel] = story.acts(CancelJob, NOW + 20)
    assert cancel.job_id == 17


def test_a_broken_heterogeneous_job_ends_although_the_rest_of_it_is_read_as_no_grant() -> None:
    """The restarted bridge waited for ever for the nodes; the pods held GPUs that Slurm gave to other jobs."""
    former = Story()
    launched(former)
    left = het(former, 17, "CANCELLED")
    story = Story()
    story.sees(
        *(story.bound(each, 17, where) for each, where in zip(launcher_and_workers(), ("x1", "x2", "x2"), strict=True))
    )
    story.polls({17: "RUNNING", 18: "CANCELLED"}, at=NOW + 20)
    story.reads(left, at=NOW + 20)
    [cancel] = story.acts(CancelJob, NOW + 40)
    assert (cancel.job_id, cancel.reason) == (17, "a component of job 17 ended")


@pytest.mark.parametrize("bound", [False, True])
def test_after_a_restart_it_is_known_by_its_other_components_though_its_leader_was_renamed(bound: bool) -> None:
    """A second job of the same name would wait until every component of the first has ended (docs/decisions/0002)."""
    former = Story()
    launched(former)
    renamed = replace(het(former, 17, "RUNNING"), name="pretty")
    story = Story()
    pods, where_to = launcher_and_workers(), ("x1", "x2", "x2")
    if bound:
        pods = [story.bound(each, 17, where) for each, where in zip(pods, where_to, strict=True)]
    story.sees(*[replace(each, created=START - 60) for each in pods])
    acts = []
    for at in (START + second for second in range(1, 60)):
        story.polls({17: "RUNNING", 18: "RUNNING"}, at=at)
        for action in story.decides(at):
            acts.append(action)
            if isinstance(action, ReadJob):
                read = renamed if action.job_id == 17 else renamed.parts[0]
                story.reads(read, at=at, granted=two_parts(17) if action.job_id == 17 else None)
            story.ended(action, at=at)
    binds = [each for each in acts if isinstance(each, BindPod)]
    assert {bind.job_id for bind in binds} == (set() if bound else {17})
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob | CancelJob)]
    for each in pods:
        story.loses(replace(each, phase=PodPhase.SUCCEEDED), NOW + 70)
    assert [(each.job_id, each.name) for each in story.acts(CancelJob, NOW + 200)] == [(17, "pretty")]


# --- what accounting learns of each of its jobs (S2) ----------------------------------------------------------------


def again(pods: list[Pod], at: float) -> list[Pod]:
    return [replace(each, uid=f"{each.uid}b", name=f"{each.name}b", created=at) for each in pods]


def runs_again(story: Story, pods: list[Pod], at: float) -> list[Pod]:
    """Replaced by their controller, as job 18; the former job has ended."""
    story.ended(asks(story, at), at=at, job_id=18, grant=granted(18, ("x1", 2)))
    for bind in story.acts(BindPod, at):
        story.ended(bind, at=at)
    shown = [story.bound(each, 18) for each in pods]
    story.sees(*shown)
    story.polls({17: "CANCELLED", 18: "RUNNING"}, at=at + 1)
    return shown


def test_a_second_try_that_succeeds_is_not_recorded_with_the_exit_code_of_the_first() -> None:
    """A batch Job leaves its failed pods there."""
    story = Story(replace(CONFIG, accounting=True))
    pods = ring(2)
    first = runs(story, pods, ("x1", 2))
    story.sees(*(replace(each, phase=PodPhase.FAILED, exit_code=3, end_reason="Error") for each in first))
    [cancel] = story.acts(CancelJob, NOW + 10)
    story.ended(cancel, at=NOW + 10)
    [record] = story.acts(RecordEnd, NOW + 10)
    story.ended(record, at=NOW + 10)
    assert (record.job_id, record.exit_code) == (17, 3)
    second = again(pods, NOW + 20)
    story.sees(*second)
    shown = runs_again(story, second, NOW + 20)
    story.sees(*(replace(each, phase=PodPhase.SUCCEEDED, exit_code=0, end_reason="Completed") for each in shown))
    [cancel] = story.acts(CancelJob, NOW + 60)
    story.ended(cancel, at=NOW + 60)
    [record] = story.acts(RecordEnd, NOW + 60)
    assert (record.job_id, record.exit_code) == (18, 0)
    assert record.comment == "; ".join(f"{each.full_name}: Completed" for each in shown)


def test_a_gang_that_is_recreated_while_its_former_pods_end_has_both_jobs_recorded() -> None:
    story = Story(replace(CONFIG, accounting=True))
    pods = ring(2)
    first = runs(story, pods, ("x1", 2))
    story.polls({17: "PREEMPTED"}, at=NOW + 5)
    name = story.world.placeholders[17].name
    story.reads(Job(17, name, "alice", frozenset({"PREEMPTED"}), partition="main", nodes="x1", tasks=2), at=NOW + 6)
    story.sees(*(replace(each, deleting_at=NOW + 40) for each in first))
    second = again(pods, NOW + 10)
    story.sees(*second)
    for each in first:
        story.loses(replace(each, deleting_at=NOW + 40, phase=PodPhase.FAILED, exit_code=143), NOW + 20)
    story.polls({17: "PREEMPTED"}, at=NOW + 21)
    runs_again(story, second, NOW + 22)
    [record] = story.acts(RecordEnd, NOW + 25)
    assert (record.job_id, record.exit_code, record.comment) == (17, 143, "hpc/w-0: Deleted; hpc/w-1: Deleted")


# --- a job keeps its age in the queue ---------------------------------------------------------------------------------


def queued_for_days(pods: list[Pod]) -> tuple[Story, float]:
    """The gang waits in Slurm's queue as job 17."""
    story = Story()
    story.sees(OwnerRead(JOB, None, NOW, "hpc"))
    story.sees(*pods)
    asked = asks(story)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2013)
    [submitted] = story.acts(SubmitJob, NOW)
    story.ended(submitted, at=NOW, job_id=17)
    at = NOW + 3 * 86400
    story.polls({17: "PENDING"}, at=at)
    return story, at


def test_a_member_that_a_finalizer_holds_has_left_and_may_be_replaced_as_any_other() -> None:
    """A batch Job's pods carry batch.kubernetes.io/job-tracking: they are seen to be deleted before they are gone."""
    pods = ring(3, owner=JOB)
    story, at = queued_for_days(pods)
    held = replace(pods[2], deleting_at=at)
    story.sees(held)
    assert story.acts(CancelJob, at + 0.1) == []
    story.loses(held, at + 20)
    assert story.acts(CancelJob, at + 29) == []
    story.sees(member(2, 3, owner=JOB, uid="again", created=at + 29))
    story.polls({17: "PENDING"}, at=at + 100)
    assert story.acts(CancelJob, at + 100) == []


def test_a_member_that_a_finalizer_holds_and_that_is_not_replaced_costs_the_job_after_half_a_minute() -> None:
    pods = ring(3, owner=JOB)
    story, at = queued_for_days(pods)
    story.sees(replace(pods[2], deleting_at=at))
    assert story.acts(CancelJob, at + 29) == []
    assert [each.reason for each in story.acts(CancelJob, at + 30)] == ["2 of 3 pods of hpc/ring are left"]


def test_after_a_restart_a_member_that_is_missing_may_still_be_replaced() -> None:
    pods = ring(3)
    story = Story()
    story.sees(*pods[:2])
    [workload] = story.world.workloads.values()
    read = replace(job_of(pods[0], 17, "PENDING", tasks=3), name=f"hpc/ring~{story.world.cluster}.{workload.key}")
    story.polls({17: "PENDING"}, at=START + 1)
    story.reads(read, at=START + 1)
    assert story.acts(CancelJob, START + 29) == []
    assert len(story.acts(CancelJob, START + 30)) == 1


def test_a_new_process_gives_a_gang_that_is_half_bound_the_whole_time_to_be_bound() -> None:
    """V4: the time of the first bind of the previous process is not known any more."""
    story = Story()
    one, other = ring(2)
    story.sees(story.bound(one, 17, bound_at=START - 100, created=START - 200), replace(other, created=START - 200))
    [workload] = story.world.workloads.values()
    name = names.job_name(workload.readable, story.world.cluster, workload.key)
    story.polls({17: "RUNNING"}, at=START + 1)
    job = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", starts=START - 100, tasks=2)
    story.reads(job, at=START + 1, granted=granted(17, ("x1", 2)))
    cancelled: list[float] = []
    for second in range(2, 60):
        for action in story.decides(START + second):
            cancelled += [START + second] if isinstance(action, CancelJob) else []
            if isinstance(action, ReadJob):
                story.reads(job, at=START + second)
            done = Outcome.DONE if isinstance(action, ReadJob) else Outcome.UNREACHED
            story.ended(action, done, at=START + second)
    assert cancelled
    assert cancelled[0] >= START + 30


def test_replacements_of_all_members_come_one_after_the_other() -> None:
    """After a restart: the pods that ran in the job have failed, its first new pod is being bound, and the second comes."""
    former = [replace(each, node="x1", phase=PodPhase.FAILED, bound_at=START - 50) for each in ring(2)]
    story = Story()
    story.sees(*(replace(each, annotations={**each.annotations, names.JOB_ID: "17"}) for each in former))
    first, second = (member(number, 2, uid=f"new-{number}", created=START - 5) for number in range(2))
    story.sees(first)
    [workload] = story.world.workloads.values()
    job = Job(
        17, f"hpc/ring~{story.world.cluster}.{workload.key}", "alice", frozenset({"RUNNING"}), partition="main", tasks=2
    )
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(second)
    story.reads(job, at=START + 1, granted=granted(17, ("x1", 2)))
    assert len(story.acts(BindPod, START + 2)) == 2
    bound_soon, late = first, member(2, 2, uid="late", created=START)
    story.sees(replace(second, deleting_at=START + 3), late)
    assert not [each for each in story.decides(START + 4) if isinstance(each, CancelJob)]
    assert story.world.key_of_pod[late.uid] == story.world.key_of_pod[bound_soon.uid]


# --- labels that are edited while the pod waits -----------------------------------------------------------------------


def test_a_pod_whose_label_is_edited_while_its_gang_gathers_says_that_it_stays_in_its_gang() -> None:
    story = Story()
    first, second = member(0, 3), member(1, 3)
    story.sees(first, second)
    story.decides(NOW)
    story.sees(replace(second, labels={names.PREFIX + "gang": "other"}, annotations={GANG_SIZE: "4"}))
    shown = {each.name: each.message for each in story.acts(SetPodCondition, NOW + 10)}
    told = (
        "The labels of hpc/w-1 were edited and show gang other now. A pod stays in the gang that it had when it was created: "
        "restore its labels, or recreate it."
    )
    assert shown == {"w-0": told, "w-1": told}
    story.sees(second)
    assert {each.message for each in story.acts(SetPodCondition, NOW + 20)} == {
        "2 of 3 pods of gang ring are here in namespace hpc. Their job is submitted when all of them are here. Create the "
        "others, or correct the size of the gang (annotation slurm-bridge/gang-size)."
    }


def test_a_pod_whose_label_is_edited_after_it_ended_does_not_have_to_be_recreated() -> None:
    story = Story()
    failed = replace(member(0, 2), node="x1", phase=PodPhase.FAILED)
    story.sees(failed, member(1, 2), replace(failed, labels={names.PREFIX + "gang": "other"}))
    [shown] = story.acts(SetPodCondition, NOW + 10)
    assert shown.message.startswith("1 of 2 pods of gang ring are here in namespace hpc.")


@pytest.mark.parametrize(
    ("before", "after", "shows"),
    [
        (pod("w-0"), pod("w-0", labels={names.PREFIX + "gang": "late"}), "gang late"),
        (member(0, 1), pod("w-0"), "no gang"),
    ],
    ids=["a pod by itself gets a label", "the label is removed"],
)
def test_a_pod_whose_label_is_edited_while_its_job_waits_says_that_it_stays(
    before: Pod, after: Pod, shows: str
) -> None:
    story = Story()
    story.queues(before, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(after)
    [told] = {each.message for each in story.acts(SetPodCondition, NOW + 30)}
    assert told.endswith(
        f"The labels of hpc/w-0 were edited and show {shows} now. A pod stays in the gang that it had when it was created: "
        "restore its labels, or recreate it."
    )


def test_a_waiting_gang_that_grows_after_a_restart_gets_a_job_for_all_of_its_pods() -> None:
    before = Story()
    before.sees(*ring(2))
    [asked] = before.acts(AllocateNow, START + 10)
    story = Story()
    pods = ring(2, created=START - 100)
    job = replace(job_of(pods[0], 17, "PENDING"), name=asked.spec.name, tasks=2, reason="Resources")
    story.sees(*pods)
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(job, at=NOW)
    assert story.acts(CancelJob, NOW) == []
    story.sees(*ring(3, created=START - 100))
    [cancel] = story.acts(CancelJob, NOW + 10)
    assert cancel.reason == "hpc/ring has [3] pods by shape now, and had [2]"


def test_before_any_grant_was_read_memory_counts_as_slurms() -> None:
    story = Story()
    story.sees(*ring(2, memory=300_000))
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.tasks_per_node is None

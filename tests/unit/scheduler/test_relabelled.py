"""The labels of running pods of a gang were edited, and the bridge starts again: the bind decides their workload (W4, V7)."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import Action, AllocateNow, CancelJob, DeletePod, EvictPod, FailByDeadline, ReadJob, SubmitJob
from scheduler.apply import pods as pod_events
from scheduler.apply import relabelled
from scheduler.events import NamespaceSeen, NodeSeen, OutageBegan, OutageEnded, Side
from scheduler.model.kubernetes import Namespace, OwnerRef, Pod, PodPhase
from scheduler.model.slurm import Grant, GrantedNode, Job
from scheduler.policy.rules import Policy, Rule
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.grouping import GANG, GANG_SIZE, KUEUE_GROUP, KUEUE_SIZE, Group, group_of
from tests.builders import ALICE, CLUSTER, CONFIG, OF_A_BIND, START, Story, node, pod
from tests.defects import Defect, breaks

RESTARTED = START + 100
EDITS: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
    ({}, {GANG_SIZE: "2"}),
    ({}, {}),
    ({GANG: "b"}, {GANG_SIZE: "2"}),
    ({GANG: "b"}, {}),
    ({GANG: "job"}, {GANG_SIZE: "2"}),
    ({GANG: ""}, {GANG_SIZE: "2"}),
    ({GANG: "a"}, {GANG_SIZE: "3"}),
    ({GANG: "a"}, {GANG_SIZE: "1"}),
    ({GANG: "a"}, {GANG_SIZE: "none"}),
    ({GANG: "a"}, {}),
]
HARM = AllocateNow | SubmitJob | CancelJob | DeletePod | EvictPod | FailByDeadline


def _member(rank: int) -> Pod:
    return pod(f"w{rank}", labels={GANG: "a"}, says={"gang-size": "2"})


def _key(member: Pod) -> str:
    group = group_of(member)
    assert isinstance(group, Group)
    return names.workload_key(group.identity)


KEY = _key(_member(0))
JOB = Job(
    7,
    names.job_name("hpc/a", CLUSTER, KEY),
    "alice",
    frozenset({"RUNNING"}),
    partition="main",
    nodes="x1",
    submitted=START + 2,
    starts=START + 3,
    ends=START + 36_000,
    time_limit_min=600,
    tasks=2,
)


def _bound(rank: int, member: Pod | None = None, job: Job = JOB) -> Pod:
    """A running member of gang a as a previous process bound it for its job."""
    member = member or _member(rank)
    written = {
        names.JOB_ID: str(job.id),
        names.JOB_NODES: job.nodes,
        names.SIZE: "2",
        names.RANK: str(rank),
        names.LOCAL_RANK: str(rank),
        names.TRACEPARENT: names.traceparent(CLUSTER, _key(member)),
    }
    annotations = {**member.annotations, **written}
    return replace(member, node=job.nodes, phase=PodPhase.RUNNING, started=START + 5, annotations=annotations)


def _edited(member: Pod, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Pod:
    """The pod after its label and its gang-size were replaced by these."""
    kept = {key: value for key, value in member.annotations.items() if key != GANG_SIZE}
    return replace(member, labels=labels, annotations={**kept, **annotations})


class _Restarted(Story):
    """A bridge that started anew.  Slurm shows these jobs from the first list on."""

    def __init__(self, pods: list[Pod], *jobs: Job, guarded: bool = False) -> None:
        self.jobs = {job.id: job for job in jobs or (JOB,)}
        super().__init__(started=RESTARTED, pods=pods, guarded=guarded, checked=not guarded)

    def polls(self, states: Mapping[int, str] | None = None, *, at: float) -> None:
        super().polls(states or {job.id: " ".join(job.states) for job in self.jobs.values()}, at=at)

    def answers(self, read: ReadJob, second: int) -> bool:
        """True if Slurm answers that read, so many seconds after the restart."""
        return True

    def lives(self, since: int, until: int) -> list[Action]:
        """Go on from one second after the restart to another one.  Returns the actions that end or request something."""
        done: list[Action] = []
        for second in range(since, until):
            now = RESTARTED + second
            self.polls(at=now)
            for action in self.decides(now):
                if isinstance(action, ReadJob) and self.answers(action, second):
                    job = self.jobs.get(action.job_id)
                    granted = Grant(job.id, (GrantedNode(job.nodes, 2, 200),)) if job is not None else None
                    self.reads(job, at=now, job_id=action.job_id, granted=granted)
                if isinstance(action, HARM):
                    done.append(action)
                self.ended(action, at=now)
        return done


@pytest.mark.parametrize("edited", [(0,), (0, 1)], ids=["one", "both"])
@pytest.mark.parametrize(("labels", "annotations"), EDITS)
def test_relabelled_running_pods_keep_their_job_after_a_restart(
    edited: tuple[int, ...], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> None:
    members = [_bound(0), _bound(1)]
    story = _Restarted(
        [_edited(each, labels, annotations) if rank in edited else each for rank, each in enumerate(members)]
    )
    assert not story.lives(1, 200), "their job lives"
    assert story.world.workloads[KEY].pods.keys() == {each.uid for each in members}
    assert story.world.workloads[KEY].readable == "hpc/a"


@pytest.mark.parametrize("edited", [(0,), (0, 1)], ids=["one", "both"])
def test_the_job_ends_after_the_last_relabelled_pod(edited: tuple[int, ...]) -> None:
    pods = [_edited(_bound(rank), {}, {}) if rank in edited else _bound(rank) for rank in (0, 1)]
    story = _Restarted(pods)
    assert not story.lives(1, 100)
    story.sees(replace(pods[1], phase=PodPhase.SUCCEEDED))
    assert not story.lives(100, 200), "w0 runs on"
    story.sees(replace(pods[0], phase=PodPhase.SUCCEEDED))
    assert [type(action) for action in story.lives(200, 203)][:1] == [CancelJob]


def test_the_end_of_the_job_ends_relabelled_pods() -> None:
    pods = [_edited(_bound(rank), {GANG: "b"}, {GANG_SIZE: "2"}) for rank in (0, 1)]
    story = _Restarted(pods)
    assert not story.lives(1, 100)
    story.jobs[7] = replace(JOB, states=frozenset({"CANCELLED"}))
    ended = [action.uid for action in story.lives(100, 103) if isinstance(action, DeletePod | FailByDeadline)]
    assert set(ended) == {each.uid for each in pods}


def test_a_relabelled_pod_that_is_seen_after_its_job_was_read_keeps_its_job() -> None:
    story = _Restarted([_bound(1)])
    assert not story.lives(1, 100)
    assert not story.world.unread, "the job was read"
    story.sees(_edited(_bound(0), {}, {}))
    assert not story.lives(100, 200)
    assert len(story.world.workloads[KEY].pods) == 2


@pytest.mark.parametrize("order", [1, -1], ids=["last", "first"])
def test_a_pod_that_was_relabelled_into_another_running_gang_keeps_its_job_and_the_gang_its_own(order: int) -> None:
    others = [pod(f"v{rank}", labels={GANG: "b"}, says={"gang-size": "2"}) for rank in (0, 1)]
    job = replace(JOB, id=8, name=names.job_name("hpc/b", CLUSTER, _key(others[0])), nodes="x2")
    bound = [_bound(rank, each, job) for rank, each in enumerate(others)]
    moved = _edited(_bound(0), {GANG: "b"}, {GANG_SIZE: "2"})
    story = _Restarted([*bound, moved, _bound(1)][::order], JOB, job)
    assert not story.lives(1, 200)
    assert story.world.workloads[KEY].pods.keys() == {"uid-w0", "uid-w1"}
    assert story.world.workloads[_key(others[0])].pods.keys() == {"uid-v0", "uid-v1"}


def test_a_new_pod_of_the_gang_does_not_replace_relabelled_pods_that_run() -> None:
    pods = [_edited(_bound(rank), {GANG: "b"}, {GANG_SIZE: "2"}) for rank in (0, 1)]
    story = _Restarted(pods)
    assert not story.lives(1, 100)
    story.sees(_member(2))
    own = [action for action in story.lives(100, 103) if isinstance(action, AllocateNow)]
    assert {names.parse_job_name(action.spec.name) for action in own} == {(CLUSTER, names.workload_key("uid-w2"))}


def _of_gang_b(rank: int, **fields: Any) -> Pod:
    return replace(_edited(_bound(rank), {GANG: "b"}, {GANG_SIZE: "2"}), **fields)


def _showing(member: Pod, **shown: str) -> Pod:
    return replace(member, annotations={**member.annotations, **shown})


OWN_TRACE = names.traceparent(CLUSTER, names.workload_key("uid-w2"))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(_of_gang_b(2, namespace="other"), id="another namespace"),
        pytest.param(_of_gang_b(2, created=RESTARTED + 50), id="bound by another client"),
        pytest.param(_showing(_of_gang_b(2), **{names.TRACEPARENT: OWN_TRACE}), id="bound for its own job"),
        pytest.param(_showing(_of_gang_b(2), **{names.JOB_ID: "6"}), id="bound for an earlier job of the gang"),
    ],
)
def test_a_pod_that_was_not_bound_for_the_job_of_the_gang_does_not_join_it(foreign: Pod, order: int) -> None:
    members = [_bound(0), _of_gang_b(1)]
    story = _Restarted([members[0]])
    story.lives(1, 60)
    story.sees(*[members[1], foreign][::order])
    story.lives(60, 65)
    assert story.world.workloads[KEY].pods.keys() == {each.uid for each in members}


def test_relabelled_pods_keep_their_job_although_its_nodes_cannot_be_read() -> None:
    """A later version of Slurm may write lists of nodes in another way."""
    members = [_bound(0), _bound(1)]
    story = _Restarted([_edited(each, {}, {}) for each in members], replace(JOB, nodes="x["))
    assert not story.lives(1, 60)
    assert story.world.workloads[KEY].pods.keys() == {each.uid for each in members}


def test_a_pod_of_another_user_does_not_keep_a_job_without_pods() -> None:
    story = _Restarted([_of_gang_b(2, namespace="other")])
    ended = [action.job_id for action in story.lives(1, 100) if isinstance(action, CancelJob)]
    assert set(ended) == {7}


def test_a_pod_does_not_join_the_job_of_a_pod_by_itself() -> None:
    single = pod("train")
    key = names.workload_key(single.uid)
    trace = names.traceparent(CLUSTER, key)
    job = replace(JOB, name=names.job_name("hpc/train", CLUSTER, key), tasks=1)
    shown = _showing(replace(single, node="x1", phase=PodPhase.RUNNING, started=START + 5), **OF_A_BIND)
    shown = _showing(shown, **{names.JOB_ID: "7", names.TRACEPARENT: trace})
    story = _Restarted([shown], job)
    story.lives(1, 60)
    story.sees(_showing(_of_gang_b(2), **{names.TRACEPARENT: trace}))
    story.lives(60, 65)
    assert story.world.workloads[key].pods.keys() == {single.uid}


# --- the label names another gang that exists -----------------------------------------------------------------------------


def _of_b(rank: int) -> Pod:
    return pod(f"v{rank}", labels={GANG: "b"}, says={"gang-size": "2"})


KEY_B = _key(_of_b(0))
JOB_B = replace(JOB, id=8, name=names.job_name("hpc/b", CLUSTER, KEY_B), nodes="x2")
CANCELLED = frozenset({"CANCELLED"})


def _relabelled(rank: int, size: str = "2", job: Job = JOB) -> Pod:
    return _edited(_bound(rank, job=job), {GANG: "b"}, {GANG_SIZE: size})


def _ended(actions: list[Action]) -> set[str]:
    return {action.uid for action in actions if isinstance(action, DeletePod | FailByDeadline)}


class _SlowReads(_Restarted):
    """Each read of job 7 fails for the first 30 seconds."""

    def answers(self, read: ReadJob, second: int) -> bool:
        return read.job_id != 7 or second > 30


def test_a_waiting_gang_does_not_keep_the_size_that_a_relabelled_pod_showed() -> None:
    story = _Restarted([_relabelled(0, size="3"), _bound(1), _of_b(0), _of_b(1)])
    asked = [action.spec.name for action in story.lives(1, 60) if isinstance(action, AllocateNow | SubmitJob)]
    assert {names.parse_job_name(name) for name in asked} == {(CLUSTER, KEY_B)}


@pytest.mark.parametrize("order", [1, -1])
def test_the_end_of_the_job_of_one_gang_does_not_end_a_pod_whose_job_is_not_read_yet(order: int) -> None:
    others = [_bound(rank, _of_b(rank), JOB_B) for rank in (0, 1)]
    pods = [_relabelled(0), _bound(1), *others]
    story = _SlowReads(pods[::order], JOB, replace(JOB_B, states=CANCELLED))
    assert _ended(story.lives(1, 60)) == {each.uid for each in others}


@pytest.mark.parametrize("order", [1, -1])
def test_a_running_gang_keeps_its_job_while_the_job_of_a_relabelled_pod_is_not_read_yet(order: int) -> None:
    others = [_bound(rank, _of_b(rank), JOB_B) for rank in (0, 1)]
    story = _SlowReads([_relabelled(0), _bound(1), *others][::order], JOB, JOB_B)
    assert not story.lives(1, 60)


@pytest.mark.parametrize("order", [1, -1])
def test_a_pod_of_an_earlier_job_does_not_end_the_pods_of_the_present_job(order: int) -> None:
    earlier = replace(JOB, id=6, states=CANCELLED, nodes="x2", submitted=START - 100)
    ending = replace(_relabelled(0, job=earlier), deleting_at=RESTARTED + 3000)
    story = _Restarted([ending, _bound(0, _member(2)), _bound(1, _member(3))][::order], JOB, earlier)
    assert not story.lives(1, 100)


def test_relabelled_pods_join_their_gang_although_a_pod_of_its_earlier_job_is_still_ending_there() -> None:
    earlier = replace(JOB, id=6, states=CANCELLED, nodes="x1", submitted=START - 100)
    ending = replace(_bound(0, _member(2), earlier), deleting_at=RESTARTED + 3000)
    story = _Restarted([ending, _relabelled(0), _relabelled(1)], JOB, earlier)
    assert not story.lives(1, 60)
    assert story.world.workloads[KEY].pods.keys() >= {"uid-w0", "uid-w1"}


def test_a_pod_on_a_node_that_the_job_does_not_hold_does_not_join_the_gang() -> None:
    single = pod("p")
    key = names.workload_key(single.uid)
    own = replace(JOB, id=9, name=names.job_name("hpc/p", CLUSTER, key), nodes="x2", tasks=1)
    shown = _showing(replace(single, node="x2", phase=PodPhase.RUNNING, started=START + 5), **OF_A_BIND)
    shown = _showing(shown, **{names.JOB_ID: "7", names.TRACEPARENT: names.traceparent(CLUSTER, KEY)})
    story = _Restarted([_bound(0), _bound(1), shown], JOB, own)
    assert not story.lives(1, 100), "neither job is cancelled"


def test_a_pod_that_succeeded_in_an_earlier_run_does_not_count_for_relabelled_pods() -> None:
    before, now = (OwnerRef("example.com/v1", "Run", "run", f"uid-of-{run}") for run in ("yesterday", "today"))
    earlier = [
        replace(_bound(rank, _member(rank + 4), replace(JOB, id=3)), owner=before, phase=phase)
        for rank, phase in enumerate((PodPhase.SUCCEEDED, PodPhase.FAILED))
    ]
    story = _Restarted([*earlier, *(replace(_relabelled(rank), owner=now) for rank in (0, 1))])
    assert not story.lives(1, 60)
    assert story.world.workloads[KEY].size == 2


def test_a_pod_that_succeeded_counts_for_a_relabelled_pod_of_its_kueue_group() -> None:
    """The name of a Kueue group means one run: the relabelled pod is in the run of the pod that succeeded."""
    shown = {KUEUE_SIZE: "2"}
    made = [pod(f"w{rank}", labels={KUEUE_GROUP: "a"}, annotations=shown) for rank in (0, 1)]
    job = replace(JOB, name=names.job_name("hpc/a", CLUSTER, _key(made[0])))
    succeeded, runs = (_bound(rank, each, job) for rank, each in enumerate(made))
    story = _Restarted([replace(succeeded, phase=PodPhase.SUCCEEDED), replace(runs, labels={KUEUE_GROUP: "b"})], job)
    assert not story.lives(1, 60)
    assert story.world.workloads[_key(made[0])].size == 1


def test_the_only_pod_of_a_gang_that_was_relabelled_keeps_its_place_when_another_pod_of_the_gang_comes() -> None:
    only = pod("w0", labels={GANG: "a"}, says={"gang-size": "1"})
    job = replace(JOB, tasks=1)
    last = _edited(_showing(_bound(0, only, job), **{names.SIZE: "1"}), {}, {})
    story = _Restarted([last], job)
    assert not story.lives(1, 5)
    story.sees(pod("w1", labels={GANG: "a"}, says={"gang-size": "1"}))
    asked = [action.spec.name for action in story.lives(5, 8) if isinstance(action, AllocateNow)]
    assert {names.parse_job_name(name) for name in asked} == {(CLUSTER, names.workload_key("uid-w1"))}


def test_a_pod_that_comes_to_the_gang_of_relabelled_pods_may_correct_its_size() -> None:
    only = pod("w0", labels={GANG: "a"}, says={"gang-size": "1"})
    job = replace(JOB, tasks=1)
    story = _Restarted([_edited(_showing(_bound(0, only, job), **{names.SIZE: "1"}), {}, {})], job)
    assert not story.lives(1, 5)
    gang = story.world.workloads[KEY]
    sizes = []
    for size in ("2", "1"):
        story.sees(pod("w1", labels={GANG: "a"}, says={"gang-size": size}))
        sizes.append(gang.size)
    assert sizes == [0, 1]


def test_a_late_relabelled_pod_does_not_change_the_job_of_the_gang_whose_label_it_shows() -> None:
    others = [_bound(rank, _of_b(rank), JOB_B) for rank in (0, 1)]
    story = _Restarted([_bound(1), *others], JOB, JOB_B)
    assert not story.lives(1, 60)
    for job in (JOB, JOB_B):
        story.reads(job, at=RESTARTED + 60, granted=Grant(job.id, (GrantedNode(job.nodes, 2, 200),)))
    story.sees(_relabelled(0))
    gang = story.world.workloads[KEY_B]
    assert (gang.hint, gang.jobs, gang.pods.keys()) == (8, {8}, {each.uid for each in others})
    assert not story.lives(61, 120)


@pytest.mark.parametrize("label", [{GANG: ""}, {GANG: "job"}])
def test_an_unreadable_label_of_a_running_pod_does_not_end_a_gang_of_which_a_pod_is_still_to_be_bound(
    label: dict[str, str],
) -> None:
    story = _Restarted([_edited(_bound(0), label, {GANG_SIZE: "2"}), _member(1)])
    assert not [action for action in story.lives(1, 100) if isinstance(action, CancelJob)]


def test_each_of_several_late_relabelled_pods_keeps_its_job() -> None:
    story = _Restarted([_of_b(0), _bound(2, _member(2))])
    story.reads(JOB, at=RESTARTED + 1, granted=Grant(7, (GrantedNode("x1", 3, 300),)))
    story.sees(_relabelled(0), _relabelled(1))
    assert story.world.workloads[KEY].pods.keys() == {"uid-w0", "uid-w1", "uid-w2"}
    assert (story.world.workloads[KEY_B].hint, story.world.workloads[KEY_B].jobs) == (None, set())


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("members", [1, 2])
def test_a_relabelled_pod_whose_job_is_lost_is_ended_without_the_gang_whose_label_it_shows(
    members: int, order: int
) -> None:
    others = [_bound(rank, _of_b(rank), JOB_B) for rank in (0, 1)]
    pods = [_relabelled(0), *([_bound(1)] if members == 2 else []), *others]
    done = _Restarted(pods[::order], JOB_B).lives(1, 200)
    assert _ended(done) == {"uid-w0"}
    assert not [action for action in done if isinstance(action, CancelJob)]


def _beside_a_lost_job(*more: Pod) -> _Restarted:
    """Gang b runs for job 8, and beside it pod w0, whose job 7 is lost.  The quiet period has seven more seconds."""
    others = [_bound(rank, _of_b(rank), JOB_B) for rank in (0, 1)]
    story = _Restarted([_relabelled(0), *others, *more], JOB_B)
    assert not story.lives(1, 5)
    story.reads(JOB_B, at=RESTARTED + 5, granted=Grant(8, (GrantedNode("x2", 2, 200),)))
    return story


def test_a_relabelled_pod_whose_job_is_lost_is_ended_after_the_quiet_period_and_not_while_slurm_is_away() -> None:
    story = _beside_a_lost_job()
    assert not story.lives(5, 12)
    story.sees(OutageBegan(Side.SLURM, RESTARTED + 12, "slurmrestd does not answer."))
    assert not [action for second in range(12, 60) for action in story.decides(RESTARTED + second)]
    story.sees(OutageEnded(Side.SLURM, RESTARTED + 60))
    assert _ended(story.lives(60, 62)) == {"uid-w0"}


def test_a_relabelled_pod_whose_job_is_lost_runs_on_while_its_namespace_is_not_managed() -> None:
    story = _beside_a_lost_job()
    story.sees(NamespaceSeen(Namespace("hpc", "1")))
    assert not story.lives(5, 60)
    story.checked = False  # a workload that runs is visited after a minute, and not because of a label
    story.sees(NamespaceSeen(Namespace("hpc", "1", {names.MANAGED_LABEL: "true"})))
    assert _ended(story.lives(60, 130)) == {"uid-w0"}


def test_a_relabelled_pod_whose_job_is_lost_runs_on_while_many_jobs_are_missing() -> None:
    """X6."""
    singles = [pod(f"p{number}", node="x1", phase=PodPhase.RUNNING, started=START + 5) for number in range(12)]
    more = [_showing(each, **OF_A_BIND, **{names.JOB_ID: str(100 + at)}) for at, each in enumerate(singles)]
    done = _beside_a_lost_job(*more).lives(5, 100)
    assert _ended(done) == set()
    assert not [action for action in done if isinstance(action, CancelJob)]


def test_pods_whose_lost_job_was_replaced_run_on_if_only_some_of_them_show_the_new_job() -> None:
    before, after = replace(JOB_B, id=6), replace(JOB_B, id=9)
    story = _Restarted([_bound(0, _of_b(0), before), _bound(1, _of_b(1), after)], after)
    assert not story.lives(1, 100)


def test_of_pods_that_show_a_lost_job_only_those_end_that_are_not_on_nodes_of_the_new_job() -> None:
    before, after = replace(JOB_B, id=6), replace(JOB_B, id=9)
    elsewhere = _bound(2, _of_b(2), replace(before, nodes="x1"))
    story = _Restarted([_bound(0, _of_b(0), before), _bound(1, _of_b(1), after), elsewhere], after)
    done = story.lives(1, 100)
    assert _ended(done) == {"uid-v2"}
    assert not [action for action in done if isinstance(action, CancelJob)]


def test_a_job_for_which_no_pod_runs_is_a_twin_and_not_the_reason_to_end_pods_of_a_lost_job() -> None:
    before, twin = replace(JOB_B, id=6), replace(JOB_B, id=9, nodes="x1")
    done = _Restarted([_bound(rank, _of_b(rank), before) for rank in (0, 1)], twin).lives(1, 20)
    assert {action.job_id for action in done if isinstance(action, CancelJob)} == {9}
    assert _ended(done) == set()


def test_a_late_pod_whose_ended_job_is_of_a_gang_with_another_job_has_lost_its_job() -> None:
    earlier = replace(JOB, id=6, states=CANCELLED, submitted=START - 100)
    story = _Restarted([_bound(0), _bound(1)], JOB, earlier)
    for job in (JOB, earlier):
        story.reads(job, at=RESTARTED + 1, granted=Grant(job.id, (GrantedNode("x1", 2, 200),)))
    assert not story.lives(2, 20)
    story.sees(_edited(_bound(0, _member(2), earlier), {}, {}))
    story.lives(20, 22)
    assert story.world.phase_of[names.workload_key("uid-w2")] is Phase.ORPHANED


# --- errors of the bridge itself (X8) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "broken"),
    [
        (relabelled, "move"),
        (relabelled, "settle_and_refresh"),
        (relabelled, "detach_unproven"),
        (Workload, "take_out"),
        (World, "note_needs"),
        (World, "refresh"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("late", [(), ("w0",), ("w0", "w1")], ids=lambda late: f"{len(late)} pods come late")
@pytest.mark.parametrize("edited", [[0], [0, 1]], ids=["one", "both"])
@pytest.mark.parametrize("labels", [{GANG: "b"}, {}], ids=["another gang", "no gang"])
def test_an_error_while_a_relabelled_pod_is_moved_harms_no_gang(
    owner: Any,
    broken: str,
    late: tuple[str, ...],
    edited: list[int],
    labels: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [_bound(rank, _of_b(rank), JOB_B) for rank in (0, 1)]
    members = [_edited(_bound(rank), labels, {}) if rank in edited else _bound(rank) for rank in (0, 1)]
    story = _Restarted([*others, *(each for each in members if each.name not in late)], JOB, JOB_B, guarded=True)
    with monkeypatch.context() as patch:
        if late:
            assert not story.lives(1, 5)
        breaks(patch, owner, broken, lambda *_: "gather" in {frame.name for frame in traceback.extract_stack()})
        story.sees(*(each for each in members if each.name in late))
        assert not story.lives(5, 10)
    assert story.world.quarantine
    story.world.validate()
    assert not story.lives(10, 400)
    assert not story.world.quarantine
    assert story.world.workloads[KEY].pods.keys() == {each.uid for each in members}
    assert story.world.workloads[KEY_B].pods.keys() == {each.uid for each in others}
    story.world.validate()


def test_the_job_of_a_relabelled_pod_in_quarantine_lives_although_all_other_pods_of_its_gang_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        breaks(patch, pod_events, "take_hint", lambda _, __, pod: pod.name == "w0")
        story = _Restarted([_edited(_bound(0), {}, {}), _bound(1)], guarded=True)
    assert not story.lives(1, 30)
    story.sees(replace(_bound(1), phase=PodPhase.SUCCEEDED))
    assert not story.lives(30, 300)
    story.sees(replace(_edited(_bound(0), {}, {}), phase=PodPhase.SUCCEEDED))
    assert [type(action) for action in story.lives(300, 305)][:1] == [CancelJob]


def test_a_relabelled_pod_in_quarantine_that_has_ended_does_not_keep_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, pod_events, "take_hint", lambda _, __, pod: pod.name == "w0")
    story = _Restarted([_edited(_bound(0), {}, {}), _bound(1)], guarded=True)
    assert not story.lives(1, 30)
    story.sees(*(replace(each, phase=PodPhase.SUCCEEDED) for each in (_edited(_bound(0), {}, {}), _bound(1))))
    assert [type(action) for action in story.lives(30, 35)][:1] == [CancelJob]
    assert story.world.quarantine


def test_the_end_of_the_job_of_a_relabelled_pod_in_quarantine_ends_the_pod_after_the_quarantine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        breaks(patch, pod_events, "_follow_relabelled", lambda _, __, pod: pod.name == "w0")
        story = _Restarted([_edited(_bound(0), {}, {}), _bound(1)], guarded=True)
    assert not story.lives(1, 30)
    story.jobs[7] = replace(JOB, states=CANCELLED)
    story.sees(replace(_bound(1), phase=PodPhase.SUCCEEDED))
    assert not story.lives(30, 60)
    story.loses(_bound(1), RESTARTED + 60)
    assert _ended(story.lives(60, 400)) == {"uid-w0"}


def test_after_a_restart_a_running_gang_keeps_its_job_beside_a_pod_of_its_earlier_job_that_does_not_end() -> None:
    """The node of that pod is dead, and the process before had written the pod off (S8)."""
    earlier = replace(JOB, id=6, states=CANCELLED, nodes="x2", submitted=START - 900)
    stuck = replace(_bound(0, _member(2), earlier), deleting_at=START - 800, created=START - 1000, started=START - 890)
    story = _Restarted([stuck, _bound(0), _bound(1)], JOB, earlier)
    story.sees(NodeSeen(node("x2", ready=False)))
    assert not story.lives(1, 100)


# --- which pods move, and what is left --------------------------------------------------------------------------------


BOTH = replace(CONFIG, policy=Policy((Rule(("hpc", "other"), ALICE),)))


def _apart(pod_of_job: Pod, *, beside: bool = True) -> tuple[Story, Workload, Workload]:
    """A relabelled pod by itself, and the gang of its job, with another pod or without pods."""
    gang_pods = [_bound(1)] if beside else []
    story = Story(BOTH, pods=[pod_of_job, *gang_pods], checked=False)
    record = story.world.placeholders[7]
    assert record.hinted_by
    other = story.world.workloads[story.world.key_of_pod[pod_of_job.uid]]
    gang = story.world.workloads.get(KEY)
    if gang is None:
        gang = story.world.workloads[KEY] = Workload(KEY)
    return story, other, gang


def _annotated(**changes: str | None) -> Pod:
    """The relabelled pod with other annotations of its bind; None: without this one."""
    shown = _edited(_bound(0), {}, {})
    keys = {names.PREFIX + key.replace("_", "-"): value for key, value in changes.items()}
    return replace(
        shown, annotations={key: value for key, value in (shown.annotations | keys).items() if value is not None}
    )


ALONE = names.traceparent(CLUSTER, names.workload_key(_member(0).uid))


@pytest.mark.parametrize(
    ("shown", "job", "moves"),
    [
        (_annotated(), JOB, True),
        (_annotated(job_id="8"), JOB, False),
        (_annotated(rank=None), JOB, False),
        (replace(_annotated(), annotations={**_annotated().annotations, names.TRACEPARENT: "another"}), JOB, False),
        (replace(_annotated(), node="x2"), JOB, False),
        (replace(_annotated(), node="x2"), replace(JOB, nodes="x["), True),
        (replace(_annotated(), node=""), replace(JOB, nodes="x["), False),
        (replace(_annotated(traceparent="of its user"), labels={GANG: "b"}), JOB, False),
        (replace(_annotated(traceparent=ALONE, size="1"), labels={GANG: "a"}), JOB, False),
        (_annotated(), replace(JOB, user="bob"), False),
        (replace(_annotated(), namespace="other"), JOB, False),
    ],
    ids=[
        "bound for the job",
        "for another job",
        "by another client",
        "for another gang",
        "on a node of another job",
        "the nodes of the job cannot be read",
        "it waits, and the nodes of the job cannot be read",
        "with a trace of its user, and a label of another gang",
        "bound by itself",
        "of another user",
        "in another namespace",
    ],
)
def test_only_pods_that_were_bound_for_the_job_move_to_its_gang(shown: Pod, job: Job, moves: bool) -> None:
    story, other, gang = _apart(shown)
    story.world.placeholders[7].hinted_by.add(other.key)
    relabelled.gather(story.world, gang, job)
    assert (shown.uid in gang.pods) is moves
    assert (shown.uid in other.pods) is not moves


def test_a_pod_that_another_client_bound_does_not_move() -> None:
    story, other, gang = _apart(_annotated())
    other.strays[_annotated().uid] = RESTARTED
    relabelled.gather(story.world, gang, JOB)
    assert set(other.pods) == {_annotated().uid}


@pytest.mark.parametrize(("before", "after"), [("", "hpc/a"), ("known before", "known before")])
def test_a_gang_of_which_only_the_job_is_known_is_called_as_its_job(before: str, after: str) -> None:
    story, _, gang = _apart(_annotated(), beside=False)
    gang.readable = before
    relabelled.gather(story.world, gang, JOB)
    assert gang.readable == after
    assert gang.group is not None
    assert gang.group.name == after.rpartition("/")[2]


def test_a_pod_with_the_annotations_of_a_pod_by_itself_does_not_join_it() -> None:
    """A manifest was copied from a bound pod.  Only gangs have several pods."""
    alone = pod("alone")
    written = {
        **OF_A_BIND,
        names.JOB_ID: "7",
        names.TRACEPARENT: names.traceparent(CLUSTER, names.workload_key(alone.uid)),
    }
    original, copy = (replace(each, node="x1", annotations=written) for each in (alone, pod("copy")))
    story = Story(pods=(original, copy))
    workload = story.world.workloads[names.workload_key(alone.uid)]
    relabelled.gather(story.world, workload, JOB)
    assert set(workload.pods) == {alone.uid}


def test_an_error_while_pods_move_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise Defect("while pods move")

    monkeypatch.setattr(relabelled, "_gather_from", fails)
    story, _, gang = _apart(_annotated())
    story.world.guarded = True
    with pytest.raises(Defect):
        relabelled.gather(story.world, gang, JOB)


def test_pods_that_stay_name_the_job_that_one_of_them_shows_and_that_they_have() -> None:
    """The job of a waiting pod does not count, nor a job of another workload, nor the job that the pods named before."""
    of_b = {"labels": {GANG: "b"}, "says": {"gang-size": "4"}}
    waits = replace(pod("b0", **of_b), annotations={**pod("b0", **of_b).annotations, names.JOB_ID: "10"})
    edited, stays = (
        replace(each, node="x1", annotations={**each.annotations, **OF_A_BIND, names.SIZE: "4", names.JOB_ID: shown})
        for each, shown in ((pod("b1", **of_b), "99"), (pod("b2", **of_b), "8"))
    )
    moves = replace(_annotated(), labels={GANG: "b"})
    story = Story(pods=[waits, edited, stays, moves, _bound(1)], checked=False)
    other = story.world.workloads[story.world.key_of_pod[stays.uid]]
    for job_id in (7, 8, 10):
        known = story.world.placeholders.setdefault(
            job_id, replace(story.world.placeholders[7], id=job_id, hinted_by=set())
        )
        known.hinted_by.add(other.key)
    other.jobs, other.hint = {7, 8, 10}, 7
    relabelled.gather(story.world, story.world.workloads[KEY], JOB)
    assert moves.uid not in other.pods
    assert (other.hint, other.jobs) == (8, {8, 10})
    story.world.placeholders[7].hinted_by.add(other.key)
    other.put(moves := replace(moves, uid="uid-again"))
    other.jobs, other.hint = {7, 8, 10}, 10
    story.world.key_of_pod[moves.uid] = other.key
    other.show(moves.uid, next(iter(other.shown.values())))
    relabelled.gather(story.world, story.world.workloads[KEY], JOB)
    assert (other.hint, other.jobs) == (10, {8, 10}), "they named another job"


def test_a_member_may_wait_beside_a_pod_that_names_a_lost_job() -> None:
    before, after = replace(JOB, id=6), replace(JOB, id=9)
    story = _Restarted([_bound(0, job=before), _member(1)], after)
    assert not story.lives(1, 100)


def test_a_gang_on_two_jobs_of_its_own_ends_as_a_whole_if_slurm_loses_one_of_them() -> None:
    before, after = replace(JOB, id=6), replace(JOB, id=9, nodes="x2")
    story = _Restarted([_bound(1, job=after), _bound(0, job=before)], before, after)
    for job in (before, after):
        story.reads(job, at=RESTARTED + 1, granted=Grant(job.id, (GrantedNode(job.nodes, 2, 200),)))
    assert not story.lives(2, 6)
    del story.jobs[6]
    done = story.lives(6, 30)
    assert {action.job_id for action in done if isinstance(action, CancelJob)} == {9}


def test_a_pod_that_waits_is_not_ended_although_it_names_a_lost_job() -> None:
    """Its manifest was copied from a pod that ran for that job."""
    suspended = replace(JOB_B, states=frozenset({"SUSPENDED"}))
    runs, waits = (_showing(_of_b(rank), **{names.PREFIX + "gang-size": "3"}) for rank in (0, 1))
    waits = _showing(waits, **{names.JOB_ID: "7"})
    story = _Restarted([_relabelled(0, "3"), _bound(0, runs, JOB_B), waits], suspended)
    story.reads(suspended, at=RESTARTED + 1, granted=Grant(8, (GrantedNode("x2", 2, 200),)))
    assert _ended(story.lives(2, 60)) == {"uid-w0"}


def test_the_end_of_a_lost_job_does_not_end_a_pod_of_the_gang_that_another_client_bound_with_its_id() -> None:
    """After a restart, nothing proves that the job was the gang's."""
    of_three = [_showing(_member(rank), **{GANG_SIZE: "3"}) for rank in range(3)]
    story = _Restarted([_bound(0, of_three[0]), *of_three[1:]], JOB_B)
    story.sees(_bound(1, of_three[1]))
    assert _ended(story.lives(1, 60)) == {"uid-w0"}

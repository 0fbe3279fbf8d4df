"""The next process: a re-list, hints that are read, a short search, and a quiet period (ARCHITECTURE 3 and 4, X3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    Outcome,
    Plan,
    ReadClaims,
    ReadJob,
    ReadOwner,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.apply.events import new_world
from scheduler.events import (
    ClaimsRead,
    JobRead,
    JobsPolled,
    NamespacesListed,
    OutageBegan,
    OutageEnded,
    OwnerRead,
    Planned,
    PodDeleted,
    PodsListed,
    PredecessorDrained,
    Scope,
    Side,
    SlurmNodesPolled,
)
from scheduler.explain import explain
from scheduler.model.kubernetes import (
    Claim,
    Condition,
    Container,
    HostPort,
    NodeTerm,
    Owner,
    OwnerRef,
    Pod,
    PodPhase,
    PodTerm,
    Requirement,
)
from scheduler.model.slurm import Grant, GrantedNode, Job
from scheduler.place.fit import NodeInfo
from scheduler.state.earlier_binds import EarlierBinds
from scheduler.state.phase import Phase
from scheduler.translate.job_spec import Translation
from tests.builders import (
    CLUSTER,
    CONFIG,
    KUBE_SYSTEM,
    OWNER,
    START,
    Story,
    amounts,
    grant,
    job_of,
    key_of,
    node,
    pod,
    slurm_node,
    without,
)

OLD = START - 3600  # created before this process
TRAIN = pod("train", created=OLD)
QUIET_END = START + 12
RING: Any = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, "created": START - 60}


def older(name: str, **fields: object):  # type: ignore[no-untyped-def]
    return pod(name, created=OLD, **fields)


def foreign(job_id: int, user: str = "carol") -> Job:
    return Job(job_id, "interactive", user, frozenset({"RUNNING"}))


def test_running_pods_whose_jobs_run_are_left_in_peace_and_their_jobs_read_one_by_one_later() -> None:
    """A restart with 10,000 pods never reads 10,000 jobs at once; when each of them ends it learns in time."""
    story = Story()
    pods = [story.bound(older(f"p{number}"), number) for number in range(1, 101)]
    story.sees(PodsListed(Scope.OURS, tuple(pods), START))
    story.polls(dict.fromkeys(range(1, 101), "RUNNING"), at=START + 0.1)
    assert story.decides(START + 0.1) == []
    assert story.decides(START + 29) == []
    assert [type(each) for each in story.decides(START + 60)] == [ReadJob] * 4
    assert len(story.world.by_phase[Phase.BOUND]) == 100


def test_the_same_whichever_of_the_two_clusters_answers_first() -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(story.bound(TRAIN, 17))
    assert story.decides(START + 0.1) == []


def test_a_job_that_a_waiting_pod_shows_is_read_and_adopted() -> None:
    story = Story()
    said = "Waiting in Slurm partition main (Priority). Job 17, as of 13:40 UTC."
    story.polls({17: "PENDING"}, at=START + 0.1)
    story.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", said)))
    [read] = story.decides(START + 0.1)
    assert read == ReadJob(17, "is job 17 the placeholder of hpc/train?", key_of(TRAIN))
    story.reads(replace(job_of(TRAIN, 17, "PENDING"), reason="Priority"), at=START + 0.2)
    story.ended(read, at=START + 0.2)
    acts = story.decides(START + 0.2)
    assert [type(each) for each in acts] == [SetPodCondition]
    assert story.world.phase_of[key_of(TRAIN)] is Phase.QUEUED


@pytest.mark.parametrize("bound_first", [True, False])
@pytest.mark.parametrize("shown", [True, False])
def test_a_pod_with_a_job_of_its_own_keeps_it_beside_its_gang_that_runs(bound_first: bool, shown: bool) -> None:
    """A previous process submitted the job, because the gang had its size.  Since then a member of the gang has ended."""
    story = Story()
    waits = pod("w-2", **RING)
    if shown:
        waits = replace(waits, scheduled=Condition(False, "SlurmJobPending", "… Job 9, as of …"))
    runs = story.bound(pod("w-0", **RING), 3)
    story.polls({3: "RUNNING", 9: "PENDING"}, at=START + 0.1)
    story.sees(*((runs, waits) if bound_first else (waits, runs)))
    name = names.job_name("hpc/ring", CLUSTER, story.world.key_of_pod[runs.uid])
    answers = {
        3: (replace(job_of(runs, 3), name=name), grant(3, cpus=2)),
        9: (job_of(waits, 9, "PENDING"), None),
    }
    for read in story.acts(ReadJob, START + 0.1):
        job, granted = answers[read.job_id]
        story.reads(job, at=START + 0.2, granted=granted)
        story.ended(read, at=START + 0.2)
    assert story.world.phase_of[key_of(waits)] is Phase.QUEUED
    assert story.acts(CancelJob, QUIET_END + 1) == []


def test_a_late_bind_for_a_job_of_its_own_takes_the_pod_out_of_its_gang_and_the_job_lives_on() -> None:
    """The previous process submitted the job because the gang had its size.  Its members have failed since then."""
    story = Story()
    waits = pod("w-2", **RING)
    story.sees(story.bound(pod("w-0", **RING), 3, phase=PodPhase.FAILED), waits)
    story.polls({9: "RUNNING"}, at=START + 0.1)
    story.sees(story.bound(replace(waits, annotations={**waits.annotations, names.SIZE: "1"}), 9))
    for read in story.acts(ReadJob, START + 0.2):
        story.reads(job_of(waits, 9), at=START + 0.2, granted=grant(9))
        story.ended(read, at=START + 0.2)
    assert story.world.job_of_bound_pods(story.world.workloads[key_of(waits)]) is story.world.placeholders[9]
    assert story.acts(CancelJob, QUIET_END + 1) == []


def test_a_pod_that_leaves_its_running_gang_by_a_late_bind_does_not_take_the_free_place_of_the_gang() -> None:
    story = Story()
    runs, waits = story.bound(pod("w-0", **RING), 3), pod("w-2", **RING)
    story.polls({3: "RUNNING", 9: "RUNNING"}, at=START + 0.1)
    story.sees(runs, waits)
    assert story.world.key_of_pod[waits.uid] == story.world.key_of_pod[runs.uid]
    story.sees(story.bound(replace(waits, annotations={**waits.annotations, names.SIZE: "1"}), 9))
    story.world.validate()
    assert story.world.key_of_pod[waits.uid] == key_of(waits)
    assert list(story.world.workloads[story.world.key_of_pod[runs.uid]].pods) == [runs.uid]


def test_a_late_bind_for_the_job_of_its_gang_takes_the_pod_into_the_gang() -> None:
    """The previous process did not know the pod that ranks before it."""
    story = Story()
    waits = [pod(f"w-{number}", **RING) for number in range(3)]
    story.sees(*waits)
    gang = story.world.key_of_pod[waits[0].uid]
    assert story.world.key_of_pod[waits[2].uid] == key_of(waits[2]), "it is one too many"
    written = {names.SIZE: "2", names.TRACEPARENT: names.traceparent(CLUSTER, gang)}
    for late in (waits[0], waits[2]):
        story.sees(story.bound(replace(late, annotations=late.annotations | written), 9))
    assert {story.world.key_of_pod[each.uid] for each in (waits[0], waits[2])} == {gang}
    story.plan(START + 0.1)
    assert story.world.key_of_pod[waits[1].uid] == key_of(waits[1]), "the gang has its size without it"


def test_a_job_of_another_user_takes_no_pod_out_of_its_gang() -> None:
    story = Story()
    waits, runs = pod("w-2", **RING), story.bound(pod("w-0", **RING), 3)
    story.polls({3: "RUNNING", 9: "PENDING"}, at=START + 0.1)
    story.sees(runs, waits)
    story.reads(job_of(waits, 9, "PENDING", user="bob"), at=START + 0.2)
    assert story.world.key_of_pod[waits.uid] == story.world.key_of_pod[runs.uid]


def test_a_hint_that_leads_nowhere_is_dropped_and_slurm_is_asked_again() -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", "… Job 17, as of …")))
    [read] = story.decides(START + 0.1)
    story.reads(foreign(17), at=START + 0.2)
    story.ended(read, at=START + 0.2)
    assert [type(each) for each in story.decides(START + 0.2)] == [AllocateNow]
    assert story.world.placeholders == {}


def test_a_hint_at_a_job_that_is_over_asks_for_no_read() -> None:
    story = Story()
    story.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", "… Job 17, as of …")))
    assert [type(each) for each in story.decides(START + 0.1)] == [AllocateNow]


def test_pods_that_are_older_than_this_process_wait_until_the_unknown_jobs_were_read() -> None:
    story = Story()
    story.polls({15: "RUNNING", 16: "PENDING"}, at=START + 0.1)
    young = pod("young")
    story.sees(TRAIN, young)
    acts = story.decides(START + 0.1)
    assert [each.spec.name.split("~")[0] for each in acts if isinstance(each, AllocateNow)] == ["hpc/young"]
    reads = [each for each in acts if isinstance(each, ReadJob)]
    assert [(read.job_id, read.bucket) for read in reads] == [(16, "scan"), (15, "scan")]  # newest first

    story.reads(foreign(16), at=START + 0.2)
    story.ended(reads[0], at=START + 0.2)
    assert story.acts(SubmitJob, START + 0.2) == []
    story.reads(job_of(TRAIN, 15), at=START + 0.2, granted=grant(15))
    story.ended(reads[1], at=START + 0.2)
    assert story.acts(AllocateNow, START + 0.2) == []
    story.polls({15: "RUNNING"}, at=QUIET_END)
    assert [bind.job_id for bind in story.acts(BindPod, QUIET_END)] == [15]


def test_pods_that_name_their_job_wait_longer_because_singleton_holds_back_only_jobs_of_that_name() -> None:
    """The user may have edited the name after the former process had asked for the job, which is still to be read."""
    story = Story()
    story.sees(TRAIN, pod("named", says={"job-name": "nightly"}, created=OLD))
    story.polls({15: "RUNNING"}, at=START)
    story.decides(START)  # the read of the job gets no answer
    asked: list[tuple[float, str]] = []
    for at in (2.9, 3.0, 8.9, 9.0):
        for submission in story.acts(AllocateNow, START + at):
            asked.append((at, submission.spec.name.partition("~")[0]))
            story.ended(submission, at=START + at, job_id=16 + len(asked), grant=grant(16 + len(asked)))
    assert asked == [(3.0, "hpc/train"), (9.0, "nightly")]


def test_the_time_in_which_they_wait_for_unknown_jobs_does_not_pass_in_an_outage_of_slurm() -> None:
    story = Story()
    story.polls({15: "RUNNING"}, at=START + 0.1)
    story.sees(TRAIN, OutageBegan(Side.SLURM, START + 0.2, "slurmrestd does not answer."))
    assert story.decides(START + 2) == []
    story.sees(OutageEnded(Side.SLURM, START + 60))
    story.polls({15: "RUNNING"}, at=START + 60)
    assert [type(each) for each in story.decides(START + 60)] == [ReadJob]


def test_the_time_in_which_they_wait_for_unknown_jobs_does_not_pass_before_all_lists_are_here() -> None:
    story = Story()
    del story.world.listed[Scope.OTHERS]
    story.polls({15: "RUNNING"}, at=START + 0.1)
    story.polls({15: "RUNNING"}, at=START + 60)
    story.sees(PodsListed(Scope.OTHERS, (), START + 60), TRAIN)
    assert [type(each) for each in story.decides(START + 60)] == [ReadJob]


def _why(story: Story, at: float) -> str:
    return explain(story.world, key_of(TRAIN), at).sentence


def test_no_pod_is_bound_for_the_job_of_a_process_before_while_its_cancel_may_take_effect() -> None:
    """That process may have cancelled the job just before it was killed: a later poll shows that it did not."""
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(TRAIN)
    story.reads(job_of(TRAIN, 17), at=START + 0.2, granted=grant(17))
    [said] = story.decides(START + 0.3)
    assert isinstance(said, SetPodCondition), "the wait takes 12 s or more (L1)"
    assert "a cancel that it sent before may still end Slurm job 17" in said.message
    assert said.message in _why(story, START + 0.3)
    assert not said.warning
    story.polls({17: "RUNNING"}, at=START + 11.9)
    assert story.acts(BindPod, START + 12.5) == [], "that poll began too early"
    story.polls({17: "RUNNING"}, at=START + 12.6)
    assert [bind.job_id for bind in story.acts(BindPod, START + 13)] == [17]


def test_pods_that_finished_for_a_former_job_of_its_id_do_not_show_that_no_cancel_of_a_job_is_on_its_way() -> None:
    """slurmctld lost the jobs of the gang's first pods, and gave their job's id to the job of its next pods."""
    story = Story()
    ran = {"phase": PodPhase.SUCCEEDED, "bound_at": START - 50, "started": START - 50}
    former = [story.bound(pod(f"a-{number}", **RING), 17, **ran) for number in range(2)]
    waits = [pod(f"b-{number}", **RING) for number in range(2)]
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(*former, *waits)
    key = story.world.key_of_pod[waits[0].uid]
    assert key == story.world.key_of_pod[former[0].uid]
    shown = replace(job_of(waits[0], 17, submitted=START - 5), name=names.job_name("hpc/ring", CLUSTER, key))
    for read in story.acts(ReadJob, START + 0.2):
        story.reads(shown, at=START + 0.2, granted=grant(17, cpus=2, memory=200))
        story.ended(read, at=START + 0.2)
    assert story.acts(BindPod, START + 0.3) == []
    assert "a cancel that it sent before may still end Slurm job 17" in explain(story.world, key, START + 0.3).sentence
    story.polls({17: "RUNNING"}, at=START + 12.6)
    assert [bind.name for bind in story.acts(BindPod, START + 13)] == [each.name for each in waits]


def test_a_job_that_was_read_while_the_quiet_period_ended_is_used_after_the_next_poll() -> None:
    """The cancel may have taken effect between the read and its answer."""
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(TRAIN)
    story.sees(JobRead(17, QUIET_END - 0.1, QUIET_END, job_of(TRAIN, 17), grant(17)))
    assert story.acts(BindPod, QUIET_END) == []
    story.polls({17: "RUNNING"}, at=QUIET_END + 0.1)
    assert [bind.job_id for bind in story.acts(BindPod, QUIET_END + 1)] == [17]
    assert not story.world.earlier_jobs, "later a job of this name and id is another one"


def room_is_back_after_a_cancel(outcome: Outcome) -> Story:
    """The grant was to be released, and the cancel ended like this at START + 42; by then the pod had room again."""
    story = Story()
    story.polls({}, at=START + 0.1)
    other = pod("other", cpu=64000, node="x1")
    story.sees(PodsListed(Scope.OTHERS, (other,), START + 0.1))
    story.sees(TRAIN)
    [ask] = story.acts(AllocateNow, START + 20)
    story.ended(ask, at=START + 20, job_id=17, grant=grant(17))
    story.polls({17: "RUNNING"}, at=START + 21)
    [cancel] = story.acts(CancelJob, START + 40)
    story.sees(PodDeleted(Scope.OTHERS, other, START + 41))
    story.ended(cancel, outcome, at=START + 42)
    return story


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNREACHED])
def test_a_pod_is_bound_for_a_job_whose_cancel_had_no_effect(outcome: Outcome) -> None:
    story = room_is_back_after_a_cancel(outcome)
    story.polls({17: "RUNNING"}, at=START + 42.5)
    assert [bind.job_id for bind in story.acts(BindPod, START + 43)] == [17]


def test_a_pod_is_not_bound_for_a_job_whose_cancel_was_not_answered() -> None:
    """The cancel may still take effect."""
    story = room_is_back_after_a_cancel(Outcome.UNKNOWN)
    story.polls({17: "RUNNING"}, at=START + 53.9)
    assert story.acts(BindPod, START + 54.5) == []
    assert "the answer to a cancel of Slurm job 17 was lost" in _why(story, START + 54.5)
    story.polls({17: "RUNNING"}, at=START + 54.6)
    assert [bind.job_id for bind in story.acts(BindPod, START + 55)] == [17]


def test_a_cancel_without_an_answer_is_forgotten_when_it_cannot_take_effect_any_more() -> None:
    story = Story()
    for number in (17, 18, 19):
        story.queues(pod(f"p{number}"), number, at=START + 20)
    settle_s = CONFIG.tuning.settle_s
    cancels = [CancelJob(key_of(pod(f"p{number}")), number, "n", "alice", "why") for number in (17, 18, 19)]
    story.sees(Planned(Plan(tuple(cancels)), START + 30))
    for cancel, after_s in zip(cancels, (0, 1, settle_s), strict=True):
        story.ended(cancel, Outcome.UNKNOWN, at=START + 30 + after_s)
    assert [job_id for job_id, _ in story.world.lost_cancels] == [18, 19]


def test_no_pod_is_bound_for_a_new_job_that_the_lost_cancel_of_a_former_job_may_end() -> None:
    """Slurm lost its jobs, and gives the id to the new job; a cancel names a job by its id and its name."""
    story = room_is_back_after_a_cancel(Outcome.UNKNOWN)
    story.polls({}, at=START + 43)
    [read] = story.acts(ReadJob, START + 43)
    story.reads(None, job_id=17, at=START + 43)
    story.ended(read, at=START + 43)
    story.polls({}, at=START + 45)
    [ask] = story.acts(AllocateNow, START + 45)
    story.ended(ask, at=START + 45, job_id=17, grant=grant(17, "x2"))
    assert story.acts(BindPod, START + 46) == []
    story.polls({17: "RUNNING"}, at=START + 54.6)
    assert [bind.job_id for bind in story.acts(BindPod, START + 55)] == [17]


def test_the_search_over_and_nothing_found_they_go_on_at_once() -> None:
    story = Story()
    story.polls({16: "PENDING"}, at=START + 0.1)
    story.sees(TRAIN)
    [read] = story.decides(START + 0.1)
    story.reads(foreign(16), at=START + 0.2)
    story.ended(read, at=START + 0.2)
    assert [type(each) for each in story.decides(START + 0.2)] == [AllocateNow]


def test_the_search_is_brief() -> None:
    story = Story(without(CONFIG, reads=1))
    story.sees(JobsPolled(START + 0.1, START + 0.1, {number: frozenset({"RUNNING"}) for number in range(1, 1000)}))
    story.sees(TRAIN)
    assert story.acts(AllocateNow, START + 1) == []
    assert len(story.acts(AllocateNow, START + 3.2)) == 1


def test_what_a_standby_knew_of_the_pods_is_listed_again_before_a_pod_is_bound() -> None:
    """Its watch may have been behind: another pod may have the room (V3)."""
    story = Story()
    story.sees(PodsListed(Scope.OURS, (TRAIN,), START, inherited=True))
    story.polls({17: "RUNNING"}, at=START + 0.1)
    [read] = story.acts(ReadJob, START + 0.1)
    story.reads(job_of(TRAIN, 17), at=START + 0.2, granted=grant(17))
    story.ended(read, at=START + 0.2)
    assert story.decides(START + 0.2) == []
    story.sees(PodsListed(Scope.OURS, (TRAIN,), START + 0.3))
    assert story.acts(BindPod, START + 0.3) == []
    story.polls({17: "RUNNING"}, at=QUIET_END)
    assert [bind.job_id for bind in story.acts(BindPod, QUIET_END)] == [17]


def test_nothing_is_cancelled_or_evicted_in_the_quiet_period() -> None:
    """A request of the previous process may still take effect."""
    story = Story()
    shown = story.bound(TRAIN, 17, owner=OWNER)
    story.sees(shown)
    story.polls({17: "CANCELLED", 18: "RUNNING"}, at=START + 0.1)
    gone = pod("gone")
    for read in story.acts(ReadJob, START + 0.1):
        what = {17: job_of(TRAIN, 17, "CANCELLED"), 18: job_of(gone, 18)}[read.job_id]
        story.reads(what, at=START + 0.2)
        story.ended(read, at=START + 0.2)
    plan = story.plan(QUIET_END - 0.1)
    assert plan.actions == ()
    assert plan.wake_at == QUIET_END
    acts = story.decides(QUIET_END)
    assert {type(each) for each in acts} == {DeletePod, CancelJob}


def test_a_job_without_a_workload_is_ended() -> None:
    """L2."""
    story = Story()
    story.polls({17: "PENDING"}, at=START + 20)
    [read] = story.decides(START + 20)
    job = job_of(pod("gone"), 17, "PENDING")
    story.reads(job, at=START + 20)
    story.ended(read, at=START + 20)
    [cancel] = story.decides(START + 20)
    assert cancel == CancelJob(key_of(pod("gone")), 17, job.name, "alice", "its workload does not exist")
    story.ended(cancel, at=START + 21)
    story.decides(START + 21)
    assert story.world.workloads == {}
    assert story.world.placeholders == {}


def test_a_pod_that_finished_while_no_process_ran_ends_its_job() -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 20)
    story.sees(story.bound(TRAIN, 17, phase=PodPhase.SUCCEEDED))
    [read] = story.decides(START + 20)
    assert isinstance(read, ReadJob)
    story.reads(job_of(TRAIN, 17), at=START + 20, granted=grant(17))
    story.ended(read, at=START + 20)
    [cancel] = story.decides(START + 20)
    assert isinstance(cancel, CancelJob)
    assert cancel.reason == "hpc/train: Succeeded"


def test_finished_pods_of_long_ago_cost_no_read_and_are_no_absent_jobs() -> None:
    for polled_first in (True, False):
        story = Story()
        if not polled_first:
            story.world.polled = None  # the list came first
        pods = [story.bound(older(f"p{number}"), number, phase=PodPhase.SUCCEEDED) for number in range(1, 51)]
        story.sees(PodsListed(Scope.OURS, tuple(pods), START))
        story.polls({}, at=START + 0.1)
        assert story.decides(START + 0.1) == []
        assert story.world.absent == set()
        assert story.world.held_back_since is None


def test_a_job_that_vanished_while_no_process_ran_is_looked_for_twice_before_its_pod_is_evicted() -> None:
    for polled_first in (True, False):
        story = Story()
        if not polled_first:
            story.world.polled = None
        story.sees(story.bound(TRAIN, 17, owner=OWNER))
        story.polls({}, at=START + 20)
        [read] = story.decides(START + 20)
        story.reads(None, job_id=17, at=START + 20)
        story.ended(read, at=START + 20)
        assert story.decides(START + 20) == []
        story.polls({}, at=START + 21)
        assert story.decides(START + 21) == []
        story.polls({}, at=START + 22)
        [owner] = story.acts(ReadOwner, START + 22)
        story.sees(OwnerRead(OWNER, Owner(OWNER), START + 22, "hpc"))
        story.ended(owner, at=START + 22)
        [asked] = story.acts(AllocateNow, START + 22)
        assert asked.spec.required_nodes == "x1"
        story.ended(asked, Outcome.REFUSED, at=START + 22, number=2016)
        [evict] = story.acts(DeletePod, START + 22)
        assert evict.reason.startswith("Slurm lost the job of this pod (17)")


def test_jobs_of_the_other_cluster_stay_the_other_clusters() -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 20)
    [read] = story.decides(START + 20)
    other = replace(job_of(TRAIN, 17), name="hpc/train~k00000000." + key_of(TRAIN))
    story.reads(other, at=START + 20)
    story.ended(read, at=START + 20)
    assert story.decides(START + 30) == []
    assert story.world.foreign == {17}


def test_a_twin_that_starts_when_the_pods_own_job_ends_does_not_hide_that_end() -> None:
    """The pod names job 17, of which only that is known; its twin 18 waited, and gets other nodes than the pod's."""
    story = Story()
    story.polls({17: "RUNNING", 18: "PENDING"}, at=START + 0.1)
    story.sees(story.bound(TRAIN, 17))
    story.reads(job_of(TRAIN, 18, "PENDING"), at=START + 0.2)
    story.polls({17: "NODE_FAIL", 18: "RUNNING"}, at=QUIET_END + 1)
    [read] = story.acts(ReadJob, QUIET_END + 1)
    assert read.job_id == 18
    story.reads(job_of(TRAIN, 18), at=QUIET_END + 1.1, granted=grant(18, "x2"))
    story.ended(read, at=QUIET_END + 1.1)
    [cancel] = story.acts(CancelJob, QUIET_END + 1.1)
    assert cancel.job_id == 18
    story.ended(cancel, at=QUIET_END + 1.2)
    assert [each.job_id for each in story.acts(ReadJob, QUIET_END + 1.2)] == [17], "did the pod's own job end?"
    story.reads(job_of(TRAIN, 17, "NODE_FAIL"), at=QUIET_END + 2)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.ORPHANED


def test_a_twin_that_waits_when_the_pods_own_job_ends_does_not_hide_that_end() -> None:
    story = Story()
    story.polls({17: "RUNNING", 18: "PENDING"}, at=START + 0.1)
    story.sees(story.bound(TRAIN, 17))
    story.reads(job_of(TRAIN, 18, "PENDING"), at=START + 0.2)
    [read] = story.acts(ReadJob, QUIET_END)
    story.ended(read, Outcome.UNREACHED, at=QUIET_END)
    story.polls({17: "TIMEOUT", 18: "PENDING"}, at=QUIET_END + 1)
    assert [each.job_id for each in story.acts(ReadJob, QUIET_END + 1)] == [17]
    story.reads(job_of(TRAIN, 17, "TIMEOUT"), at=QUIET_END + 2)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.ORPHANED


@pytest.mark.parametrize("states", ["RUNNING SIGNALING", "SUSPENDED", "PENDING"])
def test_a_job_that_does_more_than_run_is_read_though_thousands_wait_for_their_turn(states: str) -> None:
    """A preemption leaves its pods the rest of its grace, not what a round of reads leaves of it (S5 to S7)."""
    story = Story()
    pods = [story.bound(older(f"p{number}"), number) for number in range(1, 2001)]
    story.sees(PodsListed(Scope.OURS, tuple(pods), START))
    jobs = dict.fromkeys(range(1, 2001), "RUNNING")
    story.polls(jobs, at=START + 0.1)
    assert story.decides(START + 1) == []
    story.polls(jobs | {2000: states}, at=START + 2)
    [read] = story.acts(ReadJob, START + 2)
    assert read.job_id == 2000


@pytest.mark.parametrize(
    "asked",
    [
        {"says": {"time-limit": "1:00:00"}},
        {"annotations": {names.ALIAS_PREFIX + "timelimit": "60"}},
        {"active_deadline_s": 3600},
    ],
    ids=["annotation", "alias", "activeDeadlineSeconds"],
)
def test_jobs_of_a_previous_process_are_read_before_their_time_is_over_however_many_there_are(
    asked: dict[str, Any],
) -> None:
    """kubelet must get its deadline in time; the round alone would reach some of them after hours (S4b)."""
    story = Story(without(CONFIG, running_fresh_s=1e9))
    pods = [replace(story.bound(older(f"p{number}", **asked), number), bound_at=START - 60) for number in range(1, 301)]
    story.sees(PodsListed(Scope.OURS, tuple(pods), START))
    story.polls(dict.fromkeys(range(1, 301), "RUNNING"), at=START + 0.1)
    assert story.decides(START + 30) == []
    story.polls(dict.fromkeys(range(1, 301), "RUNNING"), at=START + 3400)
    assert story.decides(START + 3419) == []
    assert story.acts(ReadJob, START + 3420)


# --- jobs whose reads fail --------------------------------------------------------------------------------------------


def fail_to_read(story: Story, states: dict[int, str], seconds: range) -> list[int]:
    """Every read of job 7 in that time is not answered; the ids that were read."""
    tried = []
    for second in seconds:
        story.polls(states, at=START + second)
        for action in story.decides(START + second):
            if isinstance(action, ReadJob):
                tried.append(action.job_id)
            if isinstance(action, ReadJob) and action.job_id == 7:
                story.ended(action, Outcome.UNKNOWN, at=START + second)
            else:
                assert not isinstance(action, CancelJob), "nobody knows whose job 7 is"
    return tried


def test_a_job_whose_read_fails_is_read_again_and_is_ended_if_it_has_no_pods() -> None:
    """slurmctld was too slow for two minutes after the start.  The job's pod is gone: no other process will end it."""
    story = Story()
    tried = fail_to_read(story, {7: "RUNNING"}, range(1, 7200))
    assert tried.count(7) in range(20, 40), "seldom, and for ever"
    for second in range(7200, 7600):
        story.polls({7: "RUNNING"}, at=START + second)
        for read in story.acts(ReadJob, START + second):
            story.reads(job_of(pod("gone"), 7), at=START + second, granted=grant(7))
            story.ended(read, at=START + second)
            assert [each.job_id for each in story.acts(CancelJob, START + second + 1)] == [7]
            return
    pytest.fail("it was never read again")


def test_a_job_that_cannot_be_read_keeps_no_pod_waiting_for_longer_than_a_minute() -> None:
    """A pod whose submission is in doubt waits until unknown jobs are read, but not for ever for one job."""
    story = Story()
    story.polls({7: "RUNNING"}, at=START)
    fail_to_read(story, {7: "RUNNING"}, range(1, 10))
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, START + 10)
    story.ended(asked, Outcome.UNKNOWN, at=START + 11)
    for second in range(12, 120):
        story.polls({7: "RUNNING"}, at=START + second)
        for action in story.decides(START + second):
            if isinstance(action, ReadJob):
                story.ended(action, Outcome.UNKNOWN, at=START + second)
            if isinstance(action, AllocateNow):
                assert 7 not in story.world.foreign
                return
    pytest.fail("it waited for a job that cannot be read")


def test_once_slurmctld_was_away_jobs_that_could_not_be_read_are_read_at_once() -> None:
    story = Story()
    fail_to_read(story, {7: "RUNNING"}, range(1, 120))
    story.sees(OutageBegan(Side.SLURM, START + 120, "away"), OutageEnded(Side.SLURM, START + 130))
    story.polls({7: "RUNNING"}, at=START + 131)
    assert [read.job_id for read in story.acts(ReadJob, START + 131)] == [7]


LATER = START + 0.2
WEB = {"host_ports": (HostPort(80),)}
SHY = {"labels": {"app": "a"}, "anti_affinity": (PodTerm((Requirement("app", "In", ("a",)),), frozenset({"hpc"})),)}
HCA = "rdma/hca"
ONE_HCA = {"containers": (Container("main", requests={**amounts(cpu=1000, memory=100), HCA: 1}),)}
WITH_HCA = [replace(node(name), allocatable={**node(name).allocatable, HCA: 1}) for name in ("x1", "x2")]
IGNORING = replace(CONFIG, translation=Translation(gres={"nvidia.com/gpu": "gpu"}, ignored=(HCA,)))


def a_lost_bind_and_a_grant_beside_it(fields: dict[str, Any], others: dict[str, Any]) -> tuple[Story, Pod, Pod]:
    """A previous process sent the first pod's bind to x1, and an admin suspended its job.  Slurm grants x1 to a second pod.

    Slurm was asked for the second pod's nodes before the first pod's job was read.
    """
    story = Story(IGNORING, WITH_HCA)
    first, second = older("first", **fields), pod("second", **others)
    story.polls({17: "RUNNING SUSPENDED"}, at=START + 0.1)
    story.sees(first, second)
    acts = story.decides(START + 0.1)
    [asked] = [each for each in acts if isinstance(each, AllocateNow)]
    [read] = [each for each in acts if isinstance(each, ReadJob)]
    suspended = job_of(first, 17, "RUNNING", "SUSPENDED")
    story.ended(read, at=LATER)
    story.reads(suspended, at=LATER, granted=grant(17))
    story.ended(asked, at=LATER, job_id=18, grant=grant(18, cpus=asked.spec.cpus_per_task))
    return story, first, second


@pytest.mark.parametrize(
    "fields", [WEB, SHY, ONE_HCA], ids=["host port", "anti-affinity", "counted by Kubernetes alone"]
)
def test_a_bind_of_the_previous_process_that_may_still_land_keeps_its_room(fields: dict[str, Any]) -> None:
    story, first, _ = a_lost_bind_and_a_grant_beside_it(fields, fields)
    acts = story.decides(LATER)
    assert not [each for each in acts if isinstance(each, BindPod | CancelJob)]
    said = {each.name: each.message for each in acts if isinstance(each, SetPodCondition)}
    assert said["second"] == (
        "Slurm job 18 was granted x1; the bind waits: slurm-bridge has just started, and a bind that it sent before may "
        "still put another pod on node x1."
    )
    story.sees(story.bound(first, 17))
    ended = [each for each in story.decides(QUIET_END) if isinstance(each, BindPod | CancelJob)]
    assert [(type(each), each.job_id) for each in ended] == [(CancelJob, 18)]


def test_a_bind_of_the_previous_process_that_has_not_landed_by_the_end_of_the_quiet_period_never_does() -> None:
    story, _, second = a_lost_bind_and_a_grant_beside_it(WEB, WEB)
    assert not story.acts(BindPod, QUIET_END - 0.1)
    [bind] = story.acts(BindPod, QUIET_END)
    assert (bind.name, bind.node) == (second.name, "x1")


@pytest.mark.parametrize("fields", [WEB, {"cpu": 40_000}], ids=["host port", "counted by Slurm"])
def test_a_late_bind_of_the_previous_process_keeps_its_room_though_its_job_has_ended(fields: dict[str, Any]) -> None:
    """The new leader sees the job end, Slurm gives the place to another pod, and then the old leader's bind arrives (V3)."""
    story, first, second = Story(), older("first", **fields), pod("second", **fields)
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.sees(first)
    [read] = story.acts(ReadJob, START + 0.1)
    story.polls({17: "CANCELLED"}, at=LATER)
    story.reads(job_of(first, 17, "CANCELLED"), at=LATER)
    story.ended(read, at=LATER)
    story.sees(second)
    [asked] = [each for each in story.acts(AllocateNow, LATER) if each.key == key_of(second)]
    story.ended(asked, at=LATER, job_id=18, grant=grant(18, cpus=asked.spec.cpus_per_task))
    assert not story.acts(BindPod, QUIET_END - 0.1), "the first pod's bind may still arrive"
    [bind] = story.acts(BindPod, QUIET_END)
    assert (bind.name, bind.node) == ("second", "x1")


def test_a_pod_that_has_room_beside_a_bind_of_the_previous_process_is_bound_at_once() -> None:
    """Slurm gives no CPU twice, so the CPUs of the two are not added up; another host port is free."""
    story, _, second = a_lost_bind_and_a_grant_beside_it(
        {**WEB, "cpu": 40_000}, {"host_ports": (HostPort(81),), "cpu": 40_000}
    )
    [bind] = story.acts(BindPod, LATER)
    assert bind.name == second.name


def test_a_bind_waits_for_the_end_of_the_quiet_period_where_it_would_take_long_to_compare_all_that_may_land() -> None:
    """Two gangs of a thousand pods with twenty terms each took seconds, in which nothing else was decided."""
    terms = tuple(PodTerm((Requirement("app", "In", (str(each),)),), frozenset({"hpc"})) for each in range(20))
    story, _, second = a_lost_bind_and_a_grant_beside_it({}, {"anti_affinity": terms})
    landing = NodeInfo()
    for each in range(20):
        landing.put(pod(f"landing-{each}"))
    earlier = EarlierBinds(story.world)
    earlier.on = lambda node, key, binding: [landing]
    found = earlier.obstacle(second, key_of(second), node("x1"), [], ())
    assert found is not None
    assert found.until == QUIET_END
    assert earlier.effort > 0


def test_where_the_former_leader_has_ended_all_its_requests_the_next_one_waits_for_nothing() -> None:
    """It handed the lease over: no request of it is in flight, so the quiet period is over at once."""
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 0.1)
    story.reads(job_of(pod("gone"), 17), at=START + 0.2, granted=grant(17))
    assert story.acts(CancelJob, START + 1) == []
    story.sees(PredecessorDrained(START + 2))
    assert [each.job_id for each in story.acts(CancelJob, START + 2)] == [17]


def test_a_pod_that_came_and_went_before_its_cluster_was_known_leaves_nothing_behind() -> None:
    world = new_world(CONFIG, started=START)
    gone, stays = pod("gone"), pod("stays")
    for event in (PodsListed(Scope.OURS, (gone, stays), START), PodDeleted(Scope.OURS, gone, START + 1)):
        world.apply(event)
    assert world.workloads == {}
    world.apply(NamespacesListed((KUBE_SYSTEM,)))
    assert [each.readable for each in world.workloads.values() if each.pods] == ["hpc/stays"]


def test_a_standby_that_leads_now_binds_only_after_both_lists_of_pods_were_read_again() -> None:
    story = Story()
    story.sees(PodsListed(Scope.OURS, (TRAIN,), START, inherited=True))
    story.sees(PodsListed(Scope.OTHERS, (), START, inherited=True))
    story.sees(PodsListed(Scope.OURS, (TRAIN,), START + 1))
    assert story.world.pods_inherited == {Scope.OTHERS}
    story.sees(PodsListed(Scope.OTHERS, (), START + 1))
    assert story.world.pods_inherited == set()


def test_partitions_stay_as_they_were_known_while_slurm_does_not_list_them() -> None:
    story = Story()
    before = story.world.partitions
    story.sees(SlurmNodesPolled((slurm_node("x1"),), None, START + 30))
    assert story.world.partitions == before != {}


# --- owners and volumes that this process has not read yet ------------------------------------------------------------


def reads_claims(story: Story, at: float, **on: str) -> list[SubmitJob | CancelJob | UpdateJob]:
    """The volume claims of these pods are read, the volume of each on that node.  Returns what is sent to Slurm then."""
    sent: list[SubmitJob | CancelJob | UpdateJob] = []
    for step in range(3):
        for action in story.decides(at + step):
            if isinstance(action, ReadClaims):
                node_term = NodeTerm(
                    fields=(Requirement("metadata.name", "In", (on[action.uid.removeprefix("uid-")],)),)
                )
                story.sees(ClaimsRead(action.uid, (Claim("data", True, (node_term,)),), at + step))
            if isinstance(action, SubmitJob | CancelJob | UpdateJob):
                sent.append(action)
            else:
                story.ended(action, at=at + step)
    return sent


def test_the_nodes_that_a_volume_excludes_stay_excluded_while_its_claim_is_not_read_yet() -> None:
    waiting = older("a", claims=("data",))
    job = replace(job_of(waiting, 17, "PENDING", reason="Resources"), excluded_nodes="x1")
    story = Story(pods=[waiting])
    story.polls({17: "PENDING"}, at=QUIET_END + 1)
    story.reads(job, at=QUIET_END + 1)
    assert reads_claims(story, QUIET_END + 1, a="x2") == []
    story.reads(job, at=QUIET_END + 5)
    moved = ClaimsRead(waiting.uid, (Claim("data", True),), QUIET_END + 5)
    story.sees(moved)
    assert [each.changes for each in story.acts(UpdateJob, QUIET_END + 5)] == [{"excluded_nodes"}], "as while it runs"


def test_a_claim_that_cannot_be_read_leaves_the_waiting_job_as_it_is() -> None:
    waiting = older("a", claims=("data",))
    story, reads = Story(pods=[waiting]), 0
    story.polls({17: "PENDING"}, at=QUIET_END)
    for at in (QUIET_END + second for second in range(60)):
        story.reads(replace(job_of(waiting, 17, "PENDING", reason="Resources"), excluded_nodes="x1"), at=at)
        for action in story.decides(at):
            assert not isinstance(action, CancelJob | UpdateJob)
            reads += isinstance(action, ReadClaims)
            story.ended(action, Outcome.UNREACHED if isinstance(action, ReadClaims) else Outcome.DONE, at=at)
    assert 2 <= reads <= 12, "in a minute"


def test_a_waiting_gang_whose_pods_have_volumes_on_different_nodes_keeps_its_job() -> None:
    """Each node is a component of the job.  Before the claims are read the pods look alike."""
    pods = [pod(name, claims=("data",), **RING) for name in ("a", "b")]
    before = Story(pods=pods)
    [sent] = reads_claims(before, QUIET_END, a="x1", b="x2")
    assert len(sent.spec.parts) == 1
    head, part = sent.spec, sent.spec.parts[0]
    read = Job(17, head.name, "alice", frozenset({"PENDING"}), reason="Priority", excluded_nodes=head.excluded_nodes)
    second = replace(read, id=18, excluded_nodes=part.excluded_nodes)
    story = Story(pods=pods)
    story.polls({17: "PENDING", 18: "PENDING"}, at=QUIET_END + 1)
    story.reads(replace(read, parts=(second,)), at=QUIET_END + 1)
    assert reads_claims(story, QUIET_END + 1, a="x1", b="x2") == []


def test_a_gang_of_which_one_pod_is_bound_already_is_compared_after_the_owners_of_all_its_pods_are_read() -> None:
    refs = [OwnerRef("batch/v1", "Job", name, f"uid-of-{name}") for name in ("a", "b")]
    in_gpu = [Owner(ref, {names.PREFIX + names.PARTITION: "gpu"}) for ref in refs]
    bound, waits = (pod(ref.name, owner=ref, **RING) for ref in refs)
    story = Story()
    story.sees(story.bound(bound, 17, bound_at=START - 50), waits)
    [key] = story.world.workloads
    job = Job(
        17, names.job_name("hpc/ring", CLUSTER, key), "alice", frozenset({"RUNNING"}), partition="gpu", nodes="x1"
    )
    story.polls({17: "RUNNING"}, at=QUIET_END)
    story.reads(job, at=QUIET_END, granted=Grant(17, (GrantedNode("x1", 2, 200),)))
    reads = story.acts(ReadOwner, QUIET_END + 1)
    assert {read.ref for read in reads} == set(refs)
    for read, owner in zip(reads, in_gpu, strict=True):
        story.sees(OwnerRead(read.ref, owner, QUIET_END + 1, "hpc"))
        story.ended(read, at=QUIET_END + 1)
    [bind] = [each for each in story.decides(QUIET_END + 1) if isinstance(each, BindPod | CancelJob)]
    assert (type(bind), bind.key) == (BindPod, key)


def test_a_pod_that_its_group_does_not_need_keeps_its_job_while_the_size_of_the_group_cannot_be_read() -> None:
    """Two pods of three are the gang, and the third has a job of its own.  Without the size all three seem to be the gang."""
    pods = [older(f"w-{number}", labels={"scheduling.x-k8s.io/pod-group": "ring"}) for number in range(3)]
    job = job_of(pods[2], 17, "PENDING", reason="Priority")
    story = Story(pods=pods)
    story.polls({17: "PENDING"}, at=START + 1)
    story.reads(job, at=START + 1)
    for at in (START + 1 + second for second in range(60)):
        for action in story.decides(at):
            assert not isinstance(action, CancelJob)
            story.ended(action, Outcome.UNREACHED if isinstance(action, ReadOwner) else Outcome.DONE, at=at)
    at = START + 100
    [read] = story.acts(ReadOwner, at)
    story.sees(OwnerRead(read.ref, Owner(read.ref, members=2), at, "hpc"))
    assert story.acts(CancelJob, at) == []
    assert story.world.phase_of[key_of(pods[2])] is Phase.QUEUED

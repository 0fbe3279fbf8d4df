"""When either side ends, the other follows (S2 to S4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    RecordEnd,
)
from scheduler.events import (
    AccountingOutageBegan,
    AccountingOutageEnded,
    Event,
    JobsPolled,
    NodeDeleted,
    NodeSeen,
    NodesListed,
    OutageBegan,
    OutageEnded,
    Side,
    SlurmNodesPolled,
    UndecodedItems,
)
from scheduler.model.kubernetes import Container, Pod, PodPhase
from scheduler.model.slurm import Job, Partition
from scheduler.model.slurm_errors import ACCOUNTING_AWAY
from scheduler.state.phase import Phase
from scheduler.tuning import Config
from tests.builders import CONFIG, OWNER, START, Story, amounts, grant, job_of, key_of, node, pod, slurm_node, without

NOW = START + 20
TRAIN = pod("train")
NAME = job_of(TRAIN, 17).name
ACCOUNTED = replace(CONFIG, accounting=True)
OWNED = pod("web", owner=OWNER)


# --- S2: pods end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "fields", "how"),
    [
        (PodPhase.SUCCEEDED, {}, "Succeeded"),
        (PodPhase.SUCCEEDED, {"end_reason": "Completed"}, "Completed"),
        (PodPhase.FAILED, {}, "Failed"),
        (PodPhase.FAILED, {"end_reason": "OOMKilled", "exit_code": 137}, "OOMKilled"),
    ],
)
def test_when_the_pod_is_done_its_job_ends(phase: PodPhase, fields: dict[str, object], how: str) -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, phase=phase, **fields))
    [cancel] = story.decides(NOW + 5)
    assert cancel == CancelJob(key_of(TRAIN), 17, NAME, "alice", f"hpc/train: {how}", record=f"hpc/train: {how}")
    story.ended(cancel, at=NOW + 6)
    assert story.decides(NOW + 6) == []
    story.loses(shown, NOW + 7)
    assert story.decides(NOW + 7) == []
    assert story.world.workloads == {}


def finished(story: Story, comment: str = "") -> CancelJob:
    shown = story.runs(TRAIN, 17, at=NOW)
    if comment:
        story.reads(job_of(TRAIN, 17, comment=comment), at=NOW + 1, granted=grant(17))
    story.sees(replace(shown, phase=PodPhase.FAILED, exit_code=3, end_reason="Error"))
    [cancel] = story.acts(CancelJob, NOW + 5)
    story.ended(cancel, at=NOW + 6)
    return cancel


def test_accounting_learns_how_the_pods_ended() -> None:
    story = Story(ACCOUNTED)
    finished(story)
    [record] = story.decides(NOW + 6)
    assert record == RecordEnd(key_of(TRAIN), 17, "alice", 3, "hpc/train: Error", "accounting: hpc/train: Error")
    story.ended(record, at=NOW + 7)
    assert story.decides(NOW + 7) == []


def test_the_users_own_comment_stays_before_it() -> None:
    story = Story(ACCOUNTED)
    finished(story, comment="run 7 of 12")
    [record] = story.acts(RecordEnd, NOW + 6)
    assert record.comment == "run 7 of 12; hpc/train: Error"


def test_the_owner_of_the_job_is_reported_once() -> None:
    """A job that its user named says it in its comment from the start."""
    story = Story(ACCOUNTED)
    finished(story, comment="run 7 of 12; hpc/train")
    [record] = story.acts(RecordEnd, NOW + 6)
    assert record.comment == "run 7 of 12; hpc/train: Error"


def test_accounting_learns_it_too_where_the_job_ended_first() -> None:
    """sacct shows what the pod did, whichever client ended it."""
    story = Story(ACCOUNTED)
    [end] = job_ends(story, TRAIN, "TIMEOUT")
    story.ended(end, at=NOW + 6)
    story.sees(replace(story.bound(TRAIN, 17), phase=PodPhase.FAILED, exit_code=143, end_reason="DeadlineExceeded"))
    [record] = story.decides(NOW + 7)
    assert isinstance(record, RecordEnd)
    assert (record.exit_code, record.comment) == (143, "hpc/train: DeadlineExceeded")


def test_a_cancel_whose_answer_was_lost_is_recorded_all_the_same() -> None:
    story = Story(ACCOUNTED)
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED, exit_code=0, end_reason="Completed"))
    [cancel] = story.acts(CancelJob, NOW + 5)
    story.ended(cancel, Outcome.UNKNOWN, at=NOW + 6)
    story.polls({17: "CANCELLED"}, at=NOW + 8)
    assert [each.comment for each in story.acts(RecordEnd, NOW + 8)] == ["hpc/train: Completed"]


def test_a_pod_that_was_deleted_while_it_ran_is_recorded_as_deleted_with_its_exit_code() -> None:
    story = Story(ACCOUNTED)
    shown = story.runs(TRAIN, 17, at=NOW)
    ended = replace(shown, deleting_at=NOW + 35, phase=PodPhase.FAILED, exit_code=143, end_reason="Error")
    story.sees(ended)
    [cancel] = story.acts(CancelJob, NOW + 5)
    story.loses(ended, NOW + 5)
    story.ended(cancel, at=NOW + 6)
    [record] = story.acts(RecordEnd, NOW + 7)
    assert (record.exit_code, record.comment) == (143, "hpc/train: Deleted")


def test_a_job_that_never_had_a_pod_is_not_recorded() -> None:
    story = Story(ACCOUNTED)
    story.queues(TRAIN, 17, at=NOW)
    story.loses(TRAIN, NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.ended(cancel, at=NOW + 2)
    assert story.decides(NOW + 3) == []


def begins_after_both_ended(job: Job) -> Story:
    """A life whose pod names job 17, and finds this when it has read it."""
    story = Story(ACCOUNTED)
    story.polls({17: "CANCELLED"}, at=START + 1)
    story.sees(story.bound(TRAIN, 17, phase=PodPhase.FAILED, exit_code=3, end_reason="Error"))
    [read] = story.acts(ReadJob, START + 20)
    story.reads(job, at=START + 20)
    story.ended(read, at=START + 20)
    return story


def test_what_a_previous_process_did_not_record_any_more_is_recorded_by_the_next() -> None:
    """It was killed between the end of the job and the record."""
    story = begins_after_both_ended(job_of(TRAIN, 17, "CANCELLED", comment="run 7"))
    [record] = story.decides(START + 20)
    assert isinstance(record, RecordEnd)
    assert (record.job_id, record.exit_code, record.comment) == (17, 3, "run 7; hpc/train: Error")
    story.ended(record, at=START + 21)
    assert story.decides(START + 60) == []


def test_a_job_that_the_pod_merely_names_is_not_recorded() -> None:
    story = begins_after_both_ended(replace(job_of(TRAIN, 17, "CANCELLED"), name="somebody-elses"))
    assert story.decides(START + 60) == []


def test_accounting_that_does_not_answer_is_called_again_a_few_times_and_then_no_more() -> None:
    story = Story(ACCOUNTED)
    finished(story)
    at, told = NOW + 6, 0
    while records := story.acts(RecordEnd, at):
        told += 1
        story.ended(records[0], Outcome.UNKNOWN, at=at)
        assert story.acts(RecordEnd, at) == []  # a pause first
        at += 65
        assert told < 20, "for ever"
    assert told == 17


def test_a_record_that_never_reached_slurm_is_no_attempt() -> None:
    story = Story(ACCOUNTED)
    finished(story)
    for attempt in range(20):
        [record] = story.acts(RecordEnd, NOW + 6 + 65 * attempt)
        story.ended(record, Outcome.UNREACHED, at=NOW + 6 + 65 * attempt)
    assert len(story.acts(RecordEnd, NOW + 6 + 65 * 20)) == 1


def test_why_a_pod_never_started_is_recorded_though_its_kubelet_says_it_no_more() -> None:
    story = Story(ACCOUNTED)
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, waits="container main: ErrImagePull"))
    ended = replace(shown, phase=PodPhase.FAILED, end_reason="DeadlineExceeded")
    story.sees(replace(ended, waits="container main: ErrImagePull"))
    story.sees(ended)
    [cancel] = story.decides(NOW + 5)
    assert cancel.record == "hpc/train: DeadlineExceeded, container main: ErrImagePull"


def test_a_container_that_waited_to_be_restarted_is_recorded_with_its_exit_code_alone() -> None:
    story = Story(ACCOUNTED)
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, waits="container main: CrashLoopBackOff"))
    story.sees(replace(shown, phase=PodPhase.FAILED, exit_code=3, end_reason="Error"))
    [cancel] = story.acts(CancelJob, NOW + 5)
    assert cancel.record == "hpc/train: Error"


def test_without_accounting_nothing_is_recorded() -> None:
    story = Story()
    finished(story)
    assert story.decides(NOW + 6) == []


def test_a_restarted_container_is_no_end() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.sees(replace(shown, exit_code=1, end_reason="Error"))
    assert story.decides(NOW + 5) == []


# --- S3: a pod is deleted -----------------------------------------------------------------------------------------


def test_a_pod_deleted_while_it_waits_cancels_its_job() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.loses(TRAIN, NOW + 1)
    [cancel] = story.decides(NOW + 1)
    assert cancel == CancelJob(key_of(TRAIN), 17, NAME, "alice", "hpc/train: Deleted")


def test_a_pod_that_terminates_before_it_was_bound_is_as_good_as_gone() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.sees(replace(TRAIN, deleting_at=NOW + 31))
    assert [type(each) for each in story.decides(NOW + 1)] == [CancelJob]


def test_a_grant_that_arrives_for_a_deleted_pod_is_released() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.loses(TRAIN, NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.ended(cancel, Outcome.UNKNOWN, at=NOW + 2)
    story.polls({17: "RUNNING"}, at=NOW + 3)
    [cancel] = story.acts(CancelJob, NOW + 3)
    story.ended(cancel, at=NOW + 3)
    assert story.world.freed_at == NOW + 3


def test_a_terminating_pod_keeps_its_job_until_it_is_gone() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    going = replace(shown, deleting_at=NOW + 35)
    story.sees(going)
    assert story.decides(NOW + 5) == []
    ended = replace(going, phase=PodPhase.SUCCEEDED)
    story.sees(ended)
    assert [type(each) for each in story.decides(NOW + 6)] == [CancelJob]


def test_a_pod_that_vanishes_without_an_end_keeps_its_job_for_its_grace_and_ten_seconds() -> None:
    """`--force`: its containers may still run."""
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.loses(replace(shown, grace_s=60), NOW + 5)
    plan = story.plan(NOW + 5)
    assert plan.actions == ()
    assert plan.wake_at == NOW + 75
    assert story.decides(NOW + 74.9) == []
    assert [type(each) for each in story.decides(NOW + 75)] == [CancelJob]


def test_a_pod_that_vanishes_right_after_the_bind_may_run_all_the_same() -> None:
    """The watch never showed it on its node; our own bind knows better."""
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [bind] = story.decides(NOW)
    story.ended(bind, at=NOW)
    story.loses(TRAIN, NOW + 1)
    assert story.decides(NOW + 1) == []
    assert [type(each) for each in story.decides(NOW + 41)] == [CancelJob]


# --- S4: the job ends ---------------------------------------------------------------------------------------------


def job_ends(story: Story, what: Pod, *states: str, reason: str = "", at: float = NOW + 5) -> list[Action]:
    shown = story.runs(what, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.polls({17: " ".join(states)}, at=at)
    [read] = story.decides(at)
    assert isinstance(read, ReadJob), "before an eviction the job itself is read"
    story.reads(job_of(shown, 17, *states, reason=reason), at=at)
    story.ended(read, at=at)
    return story.decides(at)


MANY = [pod(f"web-{number}", owner=OWNER) for number in range(4)]
FEW_READS = without(CONFIG, reads=2)
ALL_RUN = {17 + number: "RUNNING" for number in range(4)}


def many_run(config: Config = FEW_READS) -> Story:
    """Four pods run for the jobs 17 to 20."""
    story = Story(config)
    story.world.owners["hpc", OWNER.uid] = None
    for number, each in enumerate(MANY):
        story.runs(each, 17 + number, at=NOW)
    story.polls(ALL_RUN, at=NOW + 1)
    assert story.decides(NOW + 1) == []
    return story


def test_many_jobs_that_end_together_are_not_read_one_by_one_before_their_pods_end() -> None:
    """Slurm kept its state: the list has the other job that ran, and lacks none."""
    story = many_run()
    story.polls(ALL_RUN | {17: "CANCELLED", 18: "CANCELLED", 19: "NODE_FAIL"}, at=NOW + 2)
    why = {"web-0": "17 ended: CANCELLED", "web-1": "18 ended: CANCELLED", "web-2": "19 ended: NODE_FAIL"}
    acts = story.decides(NOW + 2)
    assert {each.name: each.reason for each in acts if isinstance(each, DeletePod)} == {
        name: f"Slurm job {said}" for name, said in why.items()
    }
    assert len(acts) == 3


@pytest.mark.parametrize(
    ("states", "at"),
    [
        ({17: "CANCELLED", 18: "CANCELLED", 19: "CANCELLED"}, NOW + 2),  # job 20 is missing
        (
            {17: "CANCELLED", 18: "CANCELLED", 19: "CANCELLED", 20: "CANCELLED"},
            NOW + 2,
        ),  # no job shows that Slurm goes on
        ({17: "CANCELLED", 18: "CANCELLED", 19: "CANCELLED", 20: "RUNNING", 3: "RUNNING"}, NOW + 2),  # a low id is new
        ({17: "CANCELLED", 18: "CANCELLED", 19: "CANCELLED", 20: "RUNNING"}, NOW + 12),  # long after the former list
        (
            {17: "CANCELLED", 18: "CANCELLED", 19: "RUNNING", 20: "RUNNING"},
            NOW + 2,
        ),  # not more than can be read at once
    ],
)
def test_jobs_that_end_together_are_read_if_slurm_may_have_lost_its_state_or_if_they_are_few(
    states: dict[int, str], at: float
) -> None:
    story = many_run()
    story.polls(states, at=at)
    acts = story.decides(at)
    assert ReadJob in {type(each) for each in acts}
    assert not [each for each in acts if isinstance(each, DeletePod)]


def among_many_ends(story: Story, *more: int, began: float = NOW + 2) -> set[str]:
    """Three jobs of running pods, and these jobs, end at once.  Returns the pods that end with their jobs."""
    ended = {job_id: frozenset({"CANCELLED"}) for job_id in (17, 18, 19, *more)}
    story.sees(JobsPolled(began, NOW + 2, ended | {20: frozenset({"RUNNING"})}))
    return {each.name for each in story.decides(NOW + 2) if isinstance(each, DeletePod | FailByDeadline)}


def test_a_job_of_another_user_that_ends_with_many_is_nobodys_end() -> None:
    story = many_run()
    story.polls(ALL_RUN | {30: "RUNNING"}, at=NOW + 1.5)
    story.reads(Job(30, "theirs", "bob", frozenset({"RUNNING"})), at=NOW + 1.6)
    assert among_many_ends(story, 30) == {"web-0", "web-1", "web-2"}


def test_a_job_that_only_a_pod_names_is_read_though_it_ends_with_many() -> None:
    story = many_run()
    story.polls(ALL_RUN | {21: "RUNNING"}, at=NOW + 1.5)
    story.sees(story.bound(pod("old", created=START - 60), 21))
    assert among_many_ends(story, 21) == {"web-0", "web-1", "web-2"}
    assert story.world.placeholders[21].ended
    assert not story.world.placeholders[21].end_proven


@pytest.mark.parametrize("known_by", ["its submission", "a read"])
def test_a_heterogeneous_job_is_read_though_it_ends_with_many(known_by: str) -> None:
    """Its components may live on."""
    story = many_run()
    job = story.world.placeholders[17]
    assert job.spec is not None
    if known_by == "a read":
        part = Job(23, job_of(MANY[0], 17).name, "alice", frozenset({"RUNNING"}), het_id=17, het_offset=1)
        story.reads(job_of(MANY[0], 17, het_id=17, parts=(part,)), at=NOW + 1.5)
    else:
        job.spec = replace(job.spec, parts=(job.spec, job.spec))
    assert among_many_ends(story) == {"web-1", "web-2"}


def test_a_list_that_was_asked_for_before_the_jobs_were_known_ends_none_of_their_pods() -> None:
    assert among_many_ends(many_run(), began=NOW) == set()


def test_a_job_that_a_read_denied_is_read_again_though_it_ends_with_many() -> None:
    """Slurm may have given its id to another job."""
    story = many_run()
    story.reads(None, job_id=17, at=NOW + 1.5)
    assert among_many_ends(story) == {"web-1", "web-2"}


@pytest.mark.parametrize("out_s", [2, 40, 700])
def test_after_an_outage_ends_prove_nothing_of_jobs_that_were_not_read_since(out_s: int) -> None:
    story, back = many_run(), NOW + 2 + out_s
    story.sees(OutageBegan(Side.SLURM, NOW + 2, "no answer"))
    story.polls(ALL_RUN, at=back)
    story.sees(OutageEnded(Side.SLURM, back))
    story.decides(back)
    story.polls(ALL_RUN | {17: "COMPLETED", 18: "COMPLETED", 19: "COMPLETED"}, at=back + 1)
    assert not [each for each in story.decides(back + 1) if isinstance(each, DeletePod)]


def test_after_a_low_id_ends_prove_nothing_and_each_workload_with_a_job_is_visited() -> None:
    story = many_run()
    story.decides(NOW + 2)
    assert not story.world.dirty
    story.polls(ALL_RUN | {3: "RUNNING"}, at=NOW + 2)
    assert {key_of(each) for each in MANY} <= set(story.world.dirty)
    story.decides(NOW + 2)
    story.polls(ALL_RUN | {3: "RUNNING", 17: "COMPLETED", 18: "COMPLETED", 19: "COMPLETED"}, at=NOW + 3)
    assert not [each for each in story.decides(NOW + 3) if isinstance(each, DeletePod)]


@pytest.mark.parametrize("undecoded", [UndecodedItems(frozenset(), nameless=True), UndecodedItems(frozenset({20}))])
def test_a_list_with_items_that_cannot_be_read_proves_no_end(undecoded: UndecodedItems) -> None:
    story = many_run()
    ended = {job_id: frozenset({"CANCELLED"}) for job_id in (17, 18, 19)}
    story.world.apply(JobsPolled(NOW + 2, NOW + 2, ended, undecoded))
    assert not [each for each in story.decides(NOW + 2) if isinstance(each, DeletePod)]


def test_many_jobs_that_end_together_are_read_after_an_outage_of_slurm() -> None:
    story = many_run()
    story.sees(OutageBegan(Side.SLURM, NOW + 2, "no answer"))
    story.polls(ALL_RUN | {17: "CANCELLED", 18: "CANCELLED", 19: "CANCELLED"}, at=NOW + 3)
    story.sees(OutageEnded(Side.SLURM, NOW + 3))
    acts = story.decides(NOW + 3)
    assert {type(each) for each in acts} == {ReadJob}


@pytest.mark.parametrize(
    ("states", "reason", "why"),
    [
        (("CANCELLED",), "", "Slurm job 17 ended: CANCELLED"),
        (("CANCELLED", "COMPLETING"), "None", "Slurm job 17 ended: CANCELLED"),
        (("PREEMPTED",), "", "Slurm job 17 ended: PREEMPTED"),
        (("NODE_FAIL",), "NodeDown", "Slurm job 17 ended: NODE_FAIL (NodeDown)"),
    ],
)
def test_a_pod_with_a_controller_is_deleted_with_grace_for_that_to_recreate_it(
    states: tuple[str, ...], reason: str, why: str
) -> None:
    story = Story()
    story.world.owners["hpc", OWNER.uid] = None
    acts = job_ends(story, OWNED, *states, reason=reason)
    assert acts == [DeletePod(key_of(OWNED), OWNED.uid, "hpc", "web", why)]


def test_a_pod_without_a_controller_is_ended_by_kubelet_so_that_its_logs_stay() -> None:
    acts = job_ends(Story(), TRAIN, "CANCELLED")
    assert acts == [FailByDeadline(key_of(TRAIN), TRAIN.uid, "hpc", "train", "Slurm job 17 ended: CANCELLED")]


def test_an_eviction_is_done_once_and_repeated_only_where_the_pod_outlives_its_grace() -> None:
    story = Story()
    story.world.owners["hpc", OWNER.uid] = None
    [evict] = job_ends(story, OWNED, "CANCELLED")
    assert story.decides(NOW + 5) == []
    story.ended(evict, at=NOW + 6)
    assert story.decides(NOW + 6) == []
    assert story.decides(NOW + 65) == []  # 30 s of grace, and 30
    assert [type(each) for each in story.decides(NOW + 66)] == [DeletePod]


def test_an_eviction_that_failed_is_repeated_after_a_pause() -> None:
    story = Story()
    [end] = job_ends(story, TRAIN, "CANCELLED")
    story.ended(end, Outcome.UNREACHED, at=NOW + 6)
    assert story.decides(NOW + 6) == []
    assert [type(each) for each in story.decides(NOW + 7)] == [FailByDeadline]


def test_a_pod_that_terminates_already_is_not_ended_twice() -> None:
    story = Story()
    story.world.owners["hpc", OWNER.uid] = None
    shown = story.runs(OWNED, 17, at=NOW)
    story.sees(replace(shown, deleting_at=NOW + 35))
    story.polls({17: "CANCELLED"}, at=NOW + 5)
    story.reads(job_of(shown, 17, "CANCELLED"), at=NOW + 5)
    assert story.decides(NOW + 5) == []


def test_the_end_of_a_job_is_remembered_until_its_pods_showed_it() -> None:
    """MinJobAge passes while Kubernetes does not answer."""
    story = Story()
    [end] = job_ends(story, TRAIN, "CANCELLED")
    story.ended(end, Outcome.UNREACHED, at=NOW + 6)
    story.polls({}, at=NOW + 7)
    assert story.world.phase_of[key_of(TRAIN)] is Phase.ORPHANED
    [end] = story.acts(FailByDeadline, NOW + 8)
    assert end.reason == "Slurm job 17 ended: CANCELLED"
    shown = story.bound(TRAIN, 17, phase=PodPhase.FAILED)
    story.sees(shown)
    story.polls({}, at=NOW + 9)
    assert story.world.placeholders == {}


def test_a_recreated_pod_is_a_workload_of_its_own() -> None:
    story = Story()
    story.world.owners["hpc", OWNER.uid] = None
    [evict] = job_ends(story, OWNED, "CANCELLED")
    story.ended(evict, at=NOW + 6)
    shown = story.bound(OWNED, 17)
    story.sees(replace(pod("web-2", owner=OWNER), created=NOW + 6))
    story.loses(shown, NOW + 7)
    assert len(story.acts(AllocateNow, NOW + 7)) == 1


def test_a_waiting_pod_whose_job_was_cancelled_queues_again_after_a_pause() -> None:
    """The client that ended it may end the next pod at once."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    assert story.decides(NOW + 1) == []
    assert len(story.acts(AllocateNow, NOW + 2)) == 1


# --- G3: whose devices they are then ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("external", "gpu", "own_s", "grace_s"),
    [(False, 1, 300, 30), (False, 1, 20, None), (False, 0, 300, None), (True, 1, 300, None)],
)
@pytest.mark.parametrize("names_all", [False, True], ids=["as little as possible", "also amounts of 0"])
def test_if_slurm_may_give_devices_to_a_job_of_its_own_the_grace_is_capped_and_that_is_reported(
    external: bool, gpu: int, own_s: int, grace_s: int | None, names_all: bool
) -> None:
    story = Story()
    story.world.owners["hpc", OWNER.uid] = None
    zero = Container("beside", requests=amounts(gpu=0)) if names_all else Container("beside")
    story.sees(SlurmNodesPolled((slurm_node("x1", external=external),), (Partition("main", default=True),), START))
    web = pod("web", owner=OWNER, gpu=gpu, grace_s=own_s)
    [evict] = job_ends(story, replace(web, containers=(*web.containers, zero)), "PREEMPTED")
    assert isinstance(evict, DeletePod)
    assert evict.grace_s == grace_s
    assert ("It has 30 s to end, because Slurm may give its devices to others" in evict.reason) == (grace_s == 30)


# --- a grace of centuries keeps no node after the job -------------------------------------------------------------

CENTURIES = 10**10
CAP_S = int(CONFIG.tuning.silent_node_s)
BEYOND_S = 330  # the longest grace that counts, and how long a write may take to show


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED", "TIMEOUT"])
@pytest.mark.parametrize(("own_s", "grace_s"), [(CAP_S, None), (3600, CAP_S), (CENTURIES, CAP_S)])
def test_a_pod_with_a_controller_is_deleted_with_the_longest_grace_that_counts(
    state: str, own_s: int, grace_s: int | None
) -> None:
    story = Story()
    story.world.owners["hpc", OWNER.uid] = None
    [evict] = job_ends(story, replace(OWNED, restart_policy="Always", grace_s=own_s), state)
    assert isinstance(evict, DeletePod)
    assert evict.grace_s == grace_s
    assert ("It has 300 s to end, because a longer grace does not count" in evict.reason) == (grace_s is not None)


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED", "TIMEOUT"])
def test_a_pod_without_one_is_deleted_with_a_second_where_kubelet_gives_it_longer(state: str) -> None:
    story = Story()
    [end] = job_ends(story, replace(TRAIN, grace_s=CENTURIES), state)
    assert isinstance(end, FailByDeadline), "where its containers stop, its object and its logs stay"
    story.ended(end, at=NOW + 6)
    shown = story.bound(replace(TRAIN, grace_s=CENTURIES), 17, set_deadline_s=1, started=NOW)
    story.sees(shown)
    assert story.decides(NOW + 6 + BEYOND_S - 1) == []
    a_clocks_second = state == "TIMEOUT"  # the deadline was set by kubelet's clock
    [evict] = story.decides(NOW + 6 + BEYOND_S + a_clocks_second)
    assert isinstance(evict, DeletePod)
    assert (evict.uid, evict.grace_s) == (TRAIN.uid, 1)
    story.ended(evict, at=NOW + 400)
    story.sees(replace(shown, deleting_at=NOW + 401, grace_s=1))
    assert story.decides(NOW + 4000) == [], "its kubelet has its word"


def deleted(story: Story, grace_s: int, *, at: float, ahead: float = 0.0) -> Pod:
    """Somebody deletes the pod with that grace.  ahead: of the API server's clock"""
    shown = replace(story.runs(TRAIN, 17, at=NOW), deleting_at=at + ahead + grace_s, grace_s=grace_s)
    story.sees(shown)
    return shown


def over(story: Story, shown: Pod, at: float) -> list[Action]:
    story.polls({17: "CANCELLED"}, at=at)
    for read in story.acts(ReadJob, at):
        story.reads(job_of(shown, 17, "CANCELLED"), at=at)
        story.ended(read, at=at)
    return story.decides(at)


def test_a_pod_that_another_client_deleted_with_a_longer_grace_is_deleted_again_with_a_shorter_one() -> None:
    story = Story()
    shown = deleted(story, CENTURIES, at=NOW + 1)
    story.polls({17: "RUNNING"}, at=NOW + 2)
    [read] = story.decides(NOW + 3590)
    assert isinstance(read, ReadJob), "its job holds its place"
    story.reads(job_of(shown, 17, "RUNNING"), at=NOW + 3590)
    story.ended(read, at=NOW + 3590)
    [evict] = over(story, shown, NOW + 3600)
    assert isinstance(evict, DeletePod)
    assert (evict.uid, evict.grace_s) == (TRAIN.uid, CAP_S)
    story.ended(evict, at=NOW + 3600)
    assert story.decides(NOW + 3600 + BEYOND_S - 1) == [], "once"
    story.sees(replace(shown, deleting_at=NOW + 3600 + CAP_S, grace_s=CAP_S))
    assert story.decides(NOW + 9999) == []


def test_a_deletion_that_took_no_effect_is_repeated() -> None:
    story = Story()
    [evict] = over(story, deleted(story, CENTURIES, at=NOW + 1), NOW + 10)
    story.ended(evict, at=NOW + 10)
    assert story.decides(NOW + 10 + BEYOND_S) == [evict]


@pytest.mark.parametrize("ahead", [0.0, 7200.0, -7200.0])
def test_a_long_grace_that_is_soon_over_is_left_to_its_end(ahead: float) -> None:
    story = Story()
    story.world.clocks[Side.KUBERNETES].observe(NOW + ahead, NOW, NOW)
    shown = deleted(story, 3600, at=NOW + 1, ahead=ahead)
    assert over(story, shown, NOW + 3500) == []
    assert story.decides(NOW + 3601 + 28) == []
    assert [type(each) for each in story.decides(NOW + 3601 + 32)] == [DeletePod], "its kubelet did not end it"


def test_devices_that_slurm_gives_to_other_jobs_shorten_the_grace_of_a_deleted_pod() -> None:
    story = Story()
    story.sees(SlurmNodesPolled((slurm_node("x1", external=False),), (Partition("main", default=True),), START))
    shown = story.runs(pod("train", gpu=1), 17, at=NOW)
    story.sees(shown := replace(shown, deleting_at=NOW + 1 + 200, grace_s=200))
    [evict] = over(story, shown, NOW + 2)
    assert isinstance(evict, DeletePod)
    assert evict.grace_s == 30
    assert evict.reason.endswith("It has 30 s to end, because Slurm may give its devices to others")


# --- a Kubernetes node is not there (V7, N5) ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "news",
    [
        NodeDeleted("x1"),
        NodesListed((node("x2"),)),
        NodeSeen(node("x1", labels={names.SLURM_NODE_LABEL: "another"})),
        NodeSeen(node("x2", labels={names.SLURM_NODE_LABEL: "x1"})),
        NodeSeen(node("x9", labels={names.SLURM_NODE_LABEL: "x1"})),
    ],
    ids=["gone", "not listed", "called otherwise", "another is called like it", "a new one is called like it"],
)
def test_what_becomes_of_nodes_or_of_their_names_ends_nothing_that_runs_there(news: Event) -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17))
    story.sees(news)
    story.polls({17: "RUNNING"}, at=NOW + 2)
    assert [each for each in story.decides(NOW + 60) if isinstance(each, CancelJob | DeletePod | FailByDeadline)] == []
    assert story.world.placeholders[17].alive


def test_a_pod_that_another_client_put_on_another_node_does_not_keep_the_place() -> None:
    story = Story()
    story.sees(story.bound(TRAIN, 17, "x2"))
    story.polls({17: "RUNNING"}, at=NOW)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17))
    [cancel] = story.acts(CancelJob, NOW + 2)
    assert cancel.reason == "hpc/train is on node x2, which job 17 does not hold"


# --- slurmdbd is away (4.1) -------------------------------------------------------------------------------------------


def write_records(story: Story, at: float) -> list[int]:
    """Slurm takes each record that the bridge writes then, never more at once than it may.  Returns the ids of the jobs."""
    written: list[int] = []
    while records := story.acts(RecordEnd, at):
        assert len(records) <= ACCOUNTED.tuning.records
        for record in records:
            story.ended(record, at=at)
            written.append(record.job_id)
    return written


def many_end_while_accounting_is_away(story: Story, count: int) -> None:
    pods = [pod(f"p{number}") for number in range(count)]
    for number, each in enumerate(pods):
        shown = story.runs(each, 100 + number, at=NOW)
        story.sees(replace(shown, phase=PodPhase.SUCCEEDED, exit_code=0, end_reason="Completed"))
        [cancel] = story.acts(CancelJob, NOW + 5)
        story.ended(cancel, at=NOW + 5)
        assert story.acts(RecordEnd, NOW + 5) == []


def test_a_record_waits_for_slurmdbd_however_long_it_is_away() -> None:
    story = Story(ACCOUNTED)
    finished(story)
    [record] = story.acts(RecordEnd, NOW + 6)
    story.ended(record, Outcome.UNREACHED, at=NOW + 6, number=ACCOUNTING_AWAY, later=True)
    assert story.world.accounting_outage is not None
    for minutes in range(1, 600):
        assert story.acts(RecordEnd, NOW + 60 * minutes) == []
    story.sees(AccountingOutageEnded(NOW + 36_000))
    assert story.acts(RecordEnd, NOW + 36_000) == [record]


def test_a_record_is_written_at_once_when_slurmdbd_is_back() -> None:
    story = Story(ACCOUNTED)
    finished(story)
    [record] = story.acts(RecordEnd, NOW + 6)
    story.ended(record, Outcome.UNREACHED, at=NOW + 6, number=ACCOUNTING_AWAY, later=True)
    assert story.acts(RecordEnd, NOW + 6.1) == []
    story.sees(AccountingOutageEnded(NOW + 6.2))
    assert story.acts(RecordEnd, NOW + 6.2)


def test_pods_and_jobs_end_while_slurmdbd_is_away_and_all_is_recorded_afterwards() -> None:
    story = Story(ACCOUNTED)
    story.sees(AccountingOutageBegan(NOW, "slurmdbd does not answer."))
    many_end_while_accounting_is_away(story, 5)
    story.sees(AccountingOutageEnded(NOW + 60))
    assert sorted(write_records(story, NOW + 60)) == [100, 101, 102, 103, 104]
    assert story.world.dropped_records == 0


def test_of_more_records_than_may_wait_the_oldest_is_given_up_and_counted() -> None:
    story = Story(without(ACCOUNTED, records_waiting=3))
    story.sees(AccountingOutageBegan(NOW, "slurmdbd does not answer."))
    many_end_while_accounting_is_away(story, 5)
    assert story.world.dropped_records == 2
    story.sees(AccountingOutageEnded(NOW + 60))
    assert sorted(write_records(story, NOW + 60)) == [102, 103, 104]


def test_while_slurm_itself_is_away_no_record_is_given_up() -> None:
    """Each of them is written as soon as Slurm is back; only a long outage of slurmdbd alone may leave too many."""
    story = Story(without(ACCOUNTED, records_waiting=1))
    for shown in [story.runs(pod(f"p{number}"), 100 + number, at=NOW) for number in range(3)]:
        story.sees(replace(shown, phase=PodPhase.SUCCEEDED, exit_code=0, end_reason="Completed"))
    for cancel in story.acts(CancelJob, NOW + 5):
        story.ended(cancel, at=NOW + 5)
    story.sees(OutageBegan(Side.SLURM, NOW + 6, "slurmrestd does not answer."))
    assert story.acts(RecordEnd, NOW + 6) == []
    story.plan(NOW + 7)
    story.sees(OutageEnded(Side.SLURM, NOW + 8))
    assert sorted(write_records(story, NOW + 8)) == [100, 101, 102]


def test_records_wait_for_slurm_itself_too() -> None:
    story = Story(ACCOUNTED)
    finished(story)
    story.sees(OutageBegan(Side.SLURM, NOW + 6, "slurmrestd does not answer."))
    for minutes in range(1, 60):
        assert story.acts(RecordEnd, NOW + 60 * minutes) == []
    story.sees(OutageEnded(Side.SLURM, NOW + 3600))
    assert len(story.acts(RecordEnd, NOW + 3600)) == 1


def test_the_ends_of_many_pods_are_recorded_as_counts_and_the_worst_pod() -> None:
    """sacct shows one line."""
    labels, says = {names.PREFIX + names.GANG: "ring"}, {"gang-size": "12"}
    ring = [pod(f"w-{number}", labels=labels, says=says, cpu=100) for number in range(12)]
    story = Story(ACCOUNTED)
    story.sees(*ring)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17, cpus=12, memory=1200))
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    for number, each in enumerate(ring):
        failed = {"phase": PodPhase.FAILED, "exit_code": 137, "end_reason": "OOMKilled"}
        done = {"phase": PodPhase.SUCCEEDED, "exit_code": 0, "end_reason": "Completed"}
        story.sees(story.bound(each, 17, **(failed if number == 7 else done)))
    story.polls({17: "RUNNING"}, at=NOW + 5)
    [cancel] = story.acts(CancelJob, NOW + 5)
    story.ended(cancel, at=NOW + 6)
    [record] = story.acts(RecordEnd, NOW + 7)
    assert record.comment == "hpc/ring: 11 Completed, 1 OOMKilled; hpc/w-7: OOMKilled"
    assert record.exit_code == 137

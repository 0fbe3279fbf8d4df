"""What a record knows is not lost with the record, as long as a rule relies on it.

Records are dropped, replaced and moved: when a list lacks a job, when Slurm gives an id to another job, when a pod leaves its
workload.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome, ReadJob, RecordEnd, SetPodCondition, SubmitJob
from scheduler.events import (
    AbsenceConfirmed,
    AccountingOutageEnded,
    OutageBegan,
    OutageEnded,
    PodsListed,
    Scope,
    Side,
)
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job
from scheduler.model.slurm_errors import ACCOUNTING_AWAY
from scheduler.state import quarantine
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, pod
from tests.defects import Defect
from tests.unit.scheduler.test_absence import reads_nothing, refuses, running
from tests.unit.scheduler.test_gangs import asks, member, ring
from tests.unit.scheduler.test_gangs import runs as gang_runs
from tests.unit.scheduler.test_hints import ENDS, RENAMED, TRAIN, bound_before, lives

NOW = START + 20
OWN_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# --- a cancel whose answer was lost -----------------------------------------------------------------------------------


def test_a_cancel_without_an_answer_may_end_a_later_job_of_its_id_and_name_although_the_first_job_is_forgotten() -> (
    None
):
    """The second cancel is answered, and the next list lacks the job; then slurmctld gives out its id again."""
    story = Story()
    story.sees(train := pod("train", gpu=1))
    story.ended(asks(story, NOW), at=NOW, job_id=17, grant=grant(17))  # without its GPU
    [lost] = story.acts(CancelJob, NOW)
    story.ended(lost, Outcome.UNKNOWN, at=NOW + 1)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 3)
    story.ended(cancel, at=NOW + 3)
    story.polls({}, at=NOW + 3.5)
    assert 17 not in story.world.placeholders
    story.ended(asks(story, NOW + 6), at=NOW + 6, job_id=17)
    story.reads(job_of(train, 17), at=NOW + 6.5, granted=grant(17, gpu=1))
    story.polls({17: "RUNNING"}, at=NOW + 7)
    assert story.acts(BindPod, NOW + 7) == []
    story.polls({17: "RUNNING"}, at=NOW + 14)
    assert [each.job_id for each in story.acts(BindPod, NOW + 14)] == [17]


def test_a_cancel_of_a_previous_process_may_end_the_next_job_of_the_id_and_name_that_it_names() -> None:
    """The process cancelled the job and was killed; slurmctld loses its jobs after the first list of the next process."""
    train = pod("train", created=START - 60)
    story = Story(pods=(train,))
    story.polls({17: "RUNNING"}, at=START + 1)
    story.reads(job_of(train, 17, submitted=START - 50), at=START + 1, granted=grant(17))
    asked = list[AllocateNow]()
    for at in range(int(START) + 2, int(START) + 6):
        story.polls({}, at=at)
        for action in story.decides(at):
            if isinstance(action, AllocateNow):
                asked.append(action)
            elif isinstance(action, ReadJob):
                story.reads(None, job_id=17, at=at)
                story.ended(action, at=at)
    story.ended(asked[0], at=START + 6, job_id=17, grant=grant(17))
    [shown] = story.acts(SetPodCondition, START + 6)
    assert "slurm-bridge has just started, and a cancel that it sent before may still end Slurm job 17" in shown.message
    story.polls({17: "RUNNING"}, at=START + 13)
    assert [each.job_id for each in story.acts(BindPod, START + 13)] == [17]


# --- a job that has ended, and that the list lacks --------------------------------------------------------------------


def follows_its_renamed_job(story: Story) -> Pod:
    """A pod of a previous process runs for job 17, which its user has renamed."""
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(shown := bound_before(story, TRAIN, 17))
    story.reads(RENAMED, at=START + 2)
    assert story.world.placeholders[17].followed_by
    return shown


def test_a_pod_ends_with_its_renamed_job_although_slurm_forgets_the_job_while_kubernetes_is_away() -> None:
    story = Story()
    follows_its_renamed_job(story)
    story.polls({17: "CANCELLED"}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    story.reads(replace(RENAMED, states=frozenset({"CANCELLED"})), at=NOW)
    story.ended(read, at=NOW)
    [end] = [each for each in story.decides(NOW + 1) if isinstance(each, ENDS)]
    story.ended(end, Outcome.UNREACHED, at=NOW + 1)
    assert [each for each in lives(story, {}, NOW + 2, seconds=10) if isinstance(each, ENDS)]


def test_a_pod_whose_renamed_job_is_gone_when_its_end_is_read_has_lost_its_job() -> None:
    story = Story()
    follows_its_renamed_job(story)
    story.polls({17: "CANCELLED"}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    story.reads(None, job_id=17, at=NOW)
    story.ended(read, at=NOW)
    assert [each for each in lives(story, {}, NOW + 1) if isinstance(each, ENDS)]


def test_a_pod_whose_job_ends_and_is_forgotten_during_its_bind_is_ended_although_the_watch_shows_the_bind_first() -> (
    None
):
    story = Story()
    story.sees(train := pod("train"))
    story.ended(asks(story, NOW), at=NOW, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.reads(job_of(train, 17, "CANCELLED"), at=NOW + 1)
    story.polls({}, at=NOW + 2)
    story.sees(replace(story.bound(train, 17), annotations=bind.annotations))
    story.ended(bind, began=NOW, at=NOW + 3)
    assert [each for each in lives(story, {}, NOW + 4) if isinstance(each, ENDS)]


def test_the_end_of_pods_is_recorded_after_an_outage_of_slurmdbd_although_slurmctld_has_forgotten_their_job() -> None:
    story = Story(replace(CONFIG, accounting=True))
    shown = story.runs(pod("train"), 17, at=NOW)
    story.sees(replace(shown, phase=PodPhase.FAILED, exit_code=1, end_reason="Error"))
    [cancel] = story.acts(CancelJob, NOW + 2)
    story.ended(cancel, at=NOW + 2)
    [record] = story.acts(RecordEnd, NOW + 2)
    away = Refusal(names.REFUSED, "slurmdbd does not answer", ACCOUNTING_AWAY)
    story.ended(record, Outcome.REFUSED, at=NOW + 3, refusal=away)
    story.polls({17: "CANCELLED"}, at=NOW + 4)
    story.polls({}, at=NOW + 304)
    assert story.acts(RecordEnd, NOW + 305) == []
    story.sees(AccountingOutageEnded(NOW + 310))
    [record] = story.acts(RecordEnd, NOW + 311)
    story.ended(record, at=NOW + 311)
    story.polls({}, at=NOW + 312)
    assert 17 not in story.world.placeholders


# --- a job that is missing --------------------------------------------------------------------------------------------


def test_a_list_that_lacks_the_job_of_a_force_deleted_pod_once_does_not_shorten_the_time_of_its_containers() -> None:
    story = Story()
    shown = story.runs(pod("train", grace_s=30), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.loses(shown, NOW + 2)
    story.polls({}, at=NOW + 4)
    assert story.acts(CancelJob, NOW + 4) == []
    job = job_of(shown, 17)
    assert not [each for each in lives(story, {17: job}, NOW + 5, seconds=36) if isinstance(each, CancelJob)]
    assert [each for each in lives(story, {17: job}, NOW + 42, seconds=2) if isinstance(each, CancelJob)]


def test_a_job_without_pods_that_a_read_once_did_not_find_ends_because_the_list_still_shows_it() -> None:
    story = Story()
    shown = replace(story.runs(pod("train"), 17, at=NOW), phase=PodPhase.SUCCEEDED)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(OutageBegan(Side.SLURM, NOW + 2, "away"), OutageEnded(Side.SLURM, NOW + 3))
    story.sees(shown)
    story.loses(shown, NOW + 3)
    story.polls({17: "RUNNING"}, at=NOW + 3.5)
    [read] = story.acts(ReadJob, NOW + 4)
    story.reads(None, job_id=17, at=NOW + 4)
    story.ended(read, at=NOW + 4)
    story.decides(NOW + 4.5)  # before the next list
    job = job_of(shown, 17)
    assert [each for each in lives(story, {17: job}, NOW + 5, seconds=5) if isinstance(each, CancelJob)]


def test_a_job_that_an_ended_pod_of_a_previous_process_names_ends_although_a_read_once_did_not_find_it() -> None:
    story = Story()
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(replace(bound_before(story, TRAIN, 17), phase=PodPhase.SUCCEEDED))
    [read] = story.acts(ReadJob, NOW)
    story.reads(None, job_id=17, at=NOW)
    story.ended(read, at=NOW)
    job = job_of(TRAIN, 17, submitted=START - 55)
    assert [each for each in lives(story, {17: job}, NOW + 1, seconds=5) if isinstance(each, CancelJob)]


def test_jobs_that_an_admin_confirmed_as_gone_stay_gone_although_slurm_gives_their_ids_to_other_users() -> None:
    story, ends = Story(), set[str]()
    shown = running(story, 22)
    for at in (NOW + 5, NOW + 7):
        story.polls({}, at=at)
        reads_nothing(story, at)
    refuses(story, NOW + 7)
    assert story.world.held_back_since is not None
    story.sees(AbsenceConfirmed(NOW + 8))
    others = {job_id: Job(job_id, "x", "carol", frozenset({"RUNNING"}), nodes="x2") for job_id in range(100, 122)}
    for at in range(int(NOW) + 9, int(NOW) + 40):
        story.polls(dict.fromkeys(others, "RUNNING"), at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                story.reads(others[action.job_id], at=at)
            if isinstance(action, ENDS):
                ends.add(action.name)
            refused = isinstance(action, AllocateNow)
            story.ended(
                action, Outcome.REFUSED if refused else Outcome.DONE, at=at, **({"number": 2016} if refused else {})
            )
        assert story.world.held_back_since is None
    assert ends == {each.name for each in shown}


def test_a_job_that_was_confirmed_as_gone_and_came_back_may_be_missed_again() -> None:
    story = Story()
    shown = story.runs(pod("train"), 17, at=NOW)
    for at in (NOW + 5, NOW + 7):
        story.polls({}, at=at)
        reads_nothing(story, at)
    story.sees(AbsenceConfirmed(NOW + 8))
    job = story.world.placeholders[17]
    story.polls({17: "RUNNING"}, at=NOW + 9)
    assert job.confirmed_gone, "another job may have the id"
    story.reads(job_of(shown, 17), at=NOW + 10)
    assert not job.confirmed_gone


def test_the_time_limit_of_a_job_did_not_change_because_another_job_had_its_id_before() -> None:
    story = Story()
    before = story.runs(pod("before"), 17, at=NOW)
    story.reads(job_of(before, 17, time_limit_min=60, submitted=NOW), at=NOW + 1)
    story.sees(train := pod("train"))
    story.reads(job_of(train, 17, time_limit_min=30, submitted=NOW + 2), at=NOW + 3, granted=grant(17))
    assert story.world.placeholders[17].limit_before is None


def test_a_pod_in_quarantine_whose_id_went_to_another_pod_has_lost_its_job_after_the_quarantine() -> None:
    story = Story(guarded=True, checked=False)
    story.runs(train := pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    quarantine.quarantine_workload(story.world, key_of(train), Defect())
    story.polls({}, at=NOW + 2)
    story.runs(other := pod("other"), 17, on="x2", at=NOW + 3)
    job = job_of(other, 17, nodes="x2", submitted=NOW + 3)
    done = lives(story, {17: job}, NOW + 4, seconds=int(CONFIG.tuning.quarantine_s) + 20)
    assert {each.name for each in done if isinstance(each, ENDS)} == {"train"}


# --- a pod that may belong to its gang or be a workload by itself -----------------------------------------------------


def alone_in_its_gang(**fields: Any) -> Pod:
    """The only pod of a gang.  Its user wrote a trace on it, which the bind keeps."""
    return member(0, 1, says={"traceparent": OWN_TRACE}, **fields)


def test_the_only_pod_of_a_gang_that_has_a_trace_of_its_user_keeps_the_job_of_the_gang() -> None:
    story = Story()
    story.sees(one := alone_in_its_gang())
    asked = asks(story, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW)
    story.sees(replace(one, node="x1", annotations={**one.annotations, **bind.annotations}))  # before the answer
    story.ended(bind, at=NOW + 1)
    job = Job(17, asked.spec.name, "alice", frozenset({"RUNNING"}), nodes="x1", submitted=NOW)
    assert not [each for each in lives(story, {17: job}, NOW + 2) if isinstance(each, ENDS | CancelJob)]


def test_after_a_restart_the_only_pod_of_a_gang_that_has_a_trace_of_its_user_keeps_the_job_of_the_gang() -> None:
    before, story = Story(), Story()
    before.sees(one := alone_in_its_gang(created=START - 60))
    name = asks(before, NOW).spec.name
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(bound_before(story, one, 17))
    job = Job(17, name, "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 55)
    story.reads(job, at=START + 2, granted=grant(17))
    assert not [each for each in lives(story, {17: job}, NOW) if isinstance(each, ENDS | CancelJob)]
    over = replace(job, states=frozenset({"TIMEOUT"}))
    assert {each.name for each in lives(story, {17: over}, NOW + 100) if isinstance(each, ENDS)} == {one.name}


def test_a_surplus_pod_that_has_a_trace_of_its_user_keeps_its_own_job_over_a_restart() -> None:
    story = Story()
    one = alone_in_its_gang(created=START - 60)
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(bound_before(story, one, 17))
    job = job_of(one, 17, submitted=START - 55)
    story.reads(job, at=START + 2, granted=grant(17))
    assert not [each for each in lives(story, {17: job}, NOW) if isinstance(each, ENDS | CancelJob)]


# --- surplus pods of a gang without members ---------------------------------------------------------------------------


def test_a_pod_that_comes_after_all_members_are_gone_is_a_gang_with_the_surplus_pods_that_wait() -> None:
    story = Story()
    shown = gang_runs(story, ring(3), ("x1", 3), at=NOW)
    jobs = {job_id: job_of(each, job_id, "PENDING") for job_id, each in ((18, member(3, 3)), (19, member(4, 3)))}
    for job_id, number in ((18, 3), (19, 4)):
        story.queues(member(number, 3), job_id, at=NOW + 2)
    for each in shown:
        story.loses(replace(each, phase=PodPhase.FAILED), NOW + 3)
    lives(story, jobs, NOW + 4, seconds=4)
    story.sees(member(0, 3, uid="newcomer", created=NOW + 8))
    done = lives(story, jobs, NOW + 8, seconds=60)
    assert {each.spec.tasks for each in done if isinstance(each, AllocateNow | SubmitJob)} == {3}


def test_a_gang_of_which_only_a_surplus_pod_was_left_is_forgotten_after_that_pod() -> None:
    story = Story()
    shown = gang_runs(story, ring(2), ("x1", 2), at=NOW)
    key = story.world.key_of_pod[shown[0].uid]
    story.queues(surplus := member(2, 2), 18, at=NOW + 2)
    for each in shown:
        story.loses(replace(each, phase=PodPhase.FAILED), NOW + 3)
    lives(story, {18: job_of(surplus, 18, "PENDING")}, NOW + 4, seconds=4)
    assert key in story.world.workloads
    story.loses(surplus, NOW + 9)
    lives(story, {}, NOW + 10, seconds=4)
    assert not story.world.workloads


# --- a bind without an answer -----------------------------------------------------------------------------------------


def test_the_job_of_a_pod_that_a_new_list_lacks_stays_for_its_grace_if_a_bind_without_an_answer_may_have_started_it() -> (
    None
):
    """The bridge had no connection to the API server meanwhile, so no event shows on which node the pod was."""
    story = Story()
    story.sees(PodsListed(Scope.OURS, (train := pod("train", grace_s=30),), NOW))
    story.ended(asks(story, NOW), at=NOW, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 1)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(PodsListed(Scope.OURS, (), NOW + 20))
    job = job_of(train, 17)
    assert not [each for each in lives(story, {17: job}, NOW + 20, seconds=40) if isinstance(each, CancelJob)]
    assert [each for each in lives(story, {17: job}, NOW + 60, seconds=2) if isinstance(each, CancelJob)]


def test_the_job_of_a_pod_that_a_new_list_lacks_ends_at_once_if_no_bind_was_sent() -> None:
    story = Story()
    story.sees(PodsListed(Scope.OURS, (train := pod("train", grace_s=30),), NOW))
    story.queues(train, 17, at=NOW)
    story.sees(PodsListed(Scope.OURS, (), NOW + 20))
    assert [each.job_id for each in story.acts(CancelJob, NOW + 20)] == [17]


# --- a foreign job ----------------------------------------------------------------------------------------------------


def test_an_id_that_was_read_as_foreign_after_the_call_is_not_the_pods_although_all_jobs_are_to_be_read_again() -> None:
    """slurmctld lost its state after it made the job; the answer comes last."""
    story = Story()
    story.sees(pod("train"))
    asked = asks(story, NOW)
    story.polls({9: "RUNNING", 17: "RUNNING"}, at=NOW + 1)
    story.reads(Job(17, "x", "carol", frozenset({"RUNNING"}), nodes="x1"), at=NOW + 2)
    story.polls({9: "RUNNING", 17: "RUNNING", 5: "RUNNING"}, at=NOW + 3)  # ids begin again
    assert 17 not in story.world.foreign
    story.ended(asked, began=NOW, at=NOW + 4, job_id=17, grant=grant(17))
    assert story.acts(BindPod, NOW + 4) == []

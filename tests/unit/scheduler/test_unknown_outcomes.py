"""A request was sent, and its outcome is unknown: look before anything is repeated (ARCHITECTURE 4 and 6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions import AllocateNow, BindPod, CancelJob, FindJobs, Outcome, ReadJob, SetPodCondition, SubmitJob
from scheduler.events import AccountingOutageBegan, ActionEnded
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job
from scheduler.model.slurm_errors import ACCOUNTING_AWAY
from scheduler.tuning import Config
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, pod, without

NOW = START + 20
TRAIN = pod("train")
NAME = job_of(TRAIN, 17).name
ACCOUNTED = replace(CONFIG, accounting=True)


def lost(story: Story, at: float = NOW) -> AllocateNow:
    """A submission whose answer never came."""
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, at)
    story.ended(asked, Outcome.UNKNOWN, at=at + 2)
    return asked


def test_a_lost_answer_is_looked_up_before_it_is_sent_again() -> None:
    story = Story()
    lost(story)
    assert story.decides(NOW + 3) == []  # it may still arrive

    story.polls({17: "RUNNING"}, at=NOW + 5)
    [read] = story.decides(NOW + 5)
    assert isinstance(read, ReadJob)
    story.reads(job_of(TRAIN, 17), at=NOW + 5, granted=grant(17))
    story.ended(read, at=NOW + 5)
    [bind] = story.decides(NOW + 5)
    assert isinstance(bind, BindPod)
    assert bind.job_id == 17


def test_a_wrong_no_to_the_read_of_a_job_that_slurm_lists_is_not_the_last_word() -> None:
    """It may be the job that a lost answer made: otherwise it is not read again, and its pod waits behind it for ever."""
    story = Story()
    lost(story)
    story.polls({17: "RUNNING"}, at=NOW + 5)
    [read] = story.acts(ReadJob, NOW + 5)
    story.reads(None, job_id=17, at=NOW + 5)
    story.ended(read, at=NOW + 5)
    story.polls({17: "RUNNING"}, at=NOW + 12)
    [again] = story.acts(ReadJob, NOW + 12)
    story.reads(job_of(TRAIN, 17), at=NOW + 12, granted=grant(17))
    story.ended(again, at=NOW + 12)
    assert [each.job_id for each in story.acts(BindPod, NOW + 12)] == [17]


def test_nothing_is_repeated_before_the_settle_time_is_over_and_a_poll_began_after_it() -> None:
    story = Story()
    lost(story)
    story.polls({}, at=NOW + 13.9)
    assert story.acts(AllocateNow, NOW + 14) == []  # settled, but the answer is older
    assert story.acts(AllocateNow, NOW + 30) == []
    story.polls({}, at=NOW + 30)
    assert [type(each) for each in story.decides(NOW + 30)] == [AllocateNow]


def test_a_pod_whose_submission_was_not_answered_says_so_before_it_has_waited_for_long() -> None:
    """The call may take 12 s, and the search takes as long: together the pod showed nothing for longer than L1 allows."""
    story = Story()
    lost(story)
    story.polls({}, at=NOW + 9)
    plan = story.plan(NOW + 9)
    assert plan.actions == ()
    assert plan.wake == {key_of(TRAIN): NOW + 2 + CONFIG.tuning.unread_s}
    [said] = story.acts(SetPodCondition, NOW + 12)
    assert said.message == f"A submission was not answered; a job named {NAME} is looked for before it is repeated."
    assert not said.warning


def test_ids_that_came_after_the_call_are_read_before_anything_is_repeated() -> None:
    story = Story()
    lost(story)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW + 20)
    reads = story.acts(ReadJob, NOW + 20)
    assert [read.job_id for read in reads] == [18, 17]
    foreign = Job(18, "interactive", "carol", frozenset({"PENDING"}))
    story.reads(foreign, at=NOW + 20)
    story.ended(reads[0], at=NOW + 20)
    assert story.decides(NOW + 20) == []
    story.reads(replace(foreign, id=17), at=NOW + 20)
    story.ended(reads[1], at=NOW + 20)
    assert [type(each) for each in story.decides(NOW + 20)] == [AllocateNow]


def test_an_unknown_id_from_before_the_call_delays_no_pod() -> None:
    story = Story(without(CONFIG, scan_s=0.0, unknown_rate=0.001))
    story.polls({3: "RUNNING", 4: "RUNNING"}, at=NOW - 1)
    lost(story)
    story.polls({3: "RUNNING", 4: "RUNNING"}, at=NOW + 20)
    assert len(story.acts(AllocateNow, NOW + 20)) == 1


def test_accounting_is_asked_by_name_once_where_there_is_one() -> None:
    story = Story(ACCOUNTED)
    asked = lost(story)
    assert story.acts(FindJobs, NOW + 13) == []
    [find] = story.acts(FindJobs, NOW + 14)
    assert find == FindJobs(key_of(TRAIN), asked.spec.name, f"looking for a job named {asked.spec.name}")
    story.ended(find, at=NOW + 14, found=(17,))
    story.polls({}, at=NOW + 15)
    [read] = story.decides(NOW + 15)
    assert isinstance(read, ReadJob)
    assert read.job_id == 17
    story.reads(None, job_id=17, at=NOW + 15)
    story.ended(read, at=NOW + 15)
    assert [type(each) for each in story.decides(NOW + 15)] == [AllocateNow]


def test_a_job_that_accounting_found_is_adopted() -> None:
    story = Story(ACCOUNTED)
    lost(story)
    [find] = story.acts(FindJobs, NOW + 14)
    story.ended(find, at=NOW + 14, found=(17,))
    [read] = story.acts(ReadJob, NOW + 14)
    story.reads(job_of(TRAIN, 17), at=NOW + 14, granted=grant(17))
    story.ended(read, at=NOW + 14)
    assert [bind.job_id for bind in story.acts(BindPod, NOW + 14)] == [17]


@pytest.mark.parametrize("foreign", [False, True], ids=["of another pod", "foreign"])
def test_a_job_that_accounting_found_is_adopted_although_its_id_was_known_as_another_job(foreign: bool) -> None:
    """slurmctld lost the former job and gave its id to the job of the lost answer, and all lists show the id."""
    story = Story(ACCOUNTED)
    if foreign:
        story.polls({17: "RUNNING"}, at=NOW - 3)
        story.reads(Job(17, "lab", "carol", frozenset({"RUNNING"}), nodes="x1"), at=NOW - 3)
    else:
        story.runs(pod("former"), 17, at=NOW - 3)
    lost(story)
    story.polls({17: "RUNNING"}, at=NOW + 13)
    [find] = story.acts(FindJobs, NOW + 14)
    story.ended(find, at=NOW + 14, found=(17,))
    [read] = story.acts(ReadJob, NOW + 14)
    story.reads(job_of(TRAIN, 17, nodes="x2"), at=NOW + 14, granted=grant(17, "x2"))
    story.ended(read, at=NOW + 14)
    assert [(bind.uid, bind.job_id) for bind in story.acts(BindPod, NOW + 14)] == [(TRAIN.uid, 17)]


def test_a_job_of_another_user_that_accounting_finds_by_its_name_is_read_once() -> None:
    story = Story(ACCOUNTED)
    lost(story)
    [find] = story.acts(FindJobs, NOW + 14)
    story.ended(find, at=NOW + 14, found=(17,))
    [read] = story.acts(ReadJob, NOW + 14)
    story.reads(job_of(TRAIN, 17, user="carol"), at=NOW + 14)
    story.ended(read, at=NOW + 14)
    story.polls({17: "RUNNING"}, at=NOW + 15)
    [asked] = story.acts(AllocateNow, NOW + 15)
    story.ended(asked, Outcome.REFUSED, at=NOW + 15, number=2038)
    [find] = story.acts(FindJobs, NOW + 15)
    story.ended(find, at=NOW + 15, found=(17,))
    assert story.acts(ReadJob, NOW + 15) == []


def test_a_twin_is_looked_for_and_not_waited_for() -> None:
    """2038: a job of this name lives (Slurm facts 8)."""
    story = Story(ACCOUNTED)
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2038)
    [find] = story.decides(NOW)
    assert isinstance(find, FindJobs)
    story.ended(find, at=NOW, found=(17,))
    [read] = story.decides(NOW)
    story.reads(job_of(TRAIN, 17), at=NOW, granted=grant(17))
    story.ended(read, at=NOW)
    assert [bind.job_id for bind in story.acts(BindPod, NOW)] == [17]


def test_a_twin_that_cannot_be_found_is_queued_behind() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2038)
    assert story.decides(NOW) == []
    story.polls({}, at=NOW + 2)
    assert [type(each) for each in story.decides(NOW + 2)] == [SubmitJob]


def test_a_twin_may_be_any_id_that_is_not_read_yet() -> None:
    story = Story()
    story.polls({5: "RUNNING"}, at=NOW - 1)
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW + 4)  # older than this process's scan
    story.ended(asked, Outcome.REFUSED, at=NOW + 4, number=2038)
    story.polls({5: "RUNNING"}, at=NOW + 7)
    assert SubmitJob not in [type(each) for each in story.decides(NOW + 7)]
    story.reads(job_of(TRAIN, 5), at=NOW + 7, granted=grant(5))
    assert [bind.job_id for bind in story.acts(BindPod, NOW + 7)] == [5]


@pytest.mark.parametrize("when", ["edited", "born with it", "shown before its time"])
def test_a_pod_that_shows_a_lost_job_as_its_own_does_not_hide_it(when: str) -> None:
    """T8: no pod blocks another one; a hint is enough to leave a pod alone, never to call a job known."""
    story = Story()
    thief = pod("thief", created=START + 2)
    claim = {"slurm-bridge/job-id": "17"}
    shown = story.runs(thief, 16, at=START + 15) if when == "edited" else replace(thief, node="x1", annotations=claim)
    lost(story)
    if when == "shown before its time":
        story.sees(shown)
    story.polls({16: "RUNNING", 17: "RUNNING"}, at=NOW + 3)
    story.sees(replace(shown, annotations={**shown.annotations, **claim}))
    reads = [read for read in story.acts(ReadJob, NOW + 3) if read.job_id == 17]
    assert len(reads) == 1
    story.reads(job_of(TRAIN, 17), at=NOW + 3, granted=grant(17))
    assert [bind.name for bind in story.acts(BindPod, NOW + 3)] == ["train"]


@pytest.mark.parametrize("config", [CONFIG, ACCOUNTED], ids=["without accounting", "with it"])
def test_a_twin_that_only_a_pod_of_a_previous_process_shows_is_read(config: Config) -> None:
    story = Story(config)
    story.sees(replace(pod("thief", created=0.0), node="x1", annotations={"slurm-bridge/job-id": "17"}))
    story.polls({17: "RUNNING"}, at=NOW - 1)
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2038)
    acts = story.decides(NOW)
    assert [read.job_id for read in acts if isinstance(read, ReadJob)] == [17]
    story.reads(job_of(TRAIN, 17), at=NOW, granted=grant(17))
    for find in [each for each in acts if isinstance(each, FindJobs)]:
        story.ended(find, at=NOW, found=(17,))
    assert [bind.job_id for bind in story.acts(BindPod, NOW)] == [17]


def test_a_late_effect_beside_a_second_submission_leaves_one_job() -> None:
    """The waiting job is cancelled; the job that holds nodes is kept."""
    story = Story()
    lost(story)
    story.polls({}, at=NOW + 30)
    [again] = story.acts(AllocateNow, NOW + 30)
    story.ended(again, Outcome.REFUSED, at=NOW + 30, number=2013)
    [queued] = story.acts(SubmitJob, NOW + 30)
    story.ended(queued, at=NOW + 30, job_id=18)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW + 31)
    story.reads(job_of(TRAIN, 17), at=NOW + 31, granted=grant(17))
    acts = story.decides(NOW + 31)
    assert [each.job_id for each in acts if isinstance(each, BindPod)] == [17]
    assert [each.job_id for each in acts if isinstance(each, CancelJob)] == [18]


def test_a_late_effect_after_the_bind_is_ended() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 18, "PENDING"), at=NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 1)
    assert cancel.job_id == 18
    assert cancel.reason == "job 18 is a twin of job 17"
    assert story.world.workloads[key_of(shown)].hint == 17


def test_two_that_wait_become_the_older_one() -> None:
    story = Story()
    story.queues(TRAIN, 18, at=NOW)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17, "PENDING"), at=NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 1)
    assert cancel.job_id == 18


def test_a_pod_deleted_while_its_submission_was_lost_leaves_nothing_behind() -> None:
    story = Story()
    lost(story)
    story.loses(TRAIN, NOW + 3)
    assert story.decides(NOW + 3) == []
    assert key_of(TRAIN) in story.world.workloads  # it is still looked for
    story.polls({17: "RUNNING"}, at=NOW + 16)
    [read] = story.decides(NOW + 16)
    story.reads(job_of(TRAIN, 17), at=NOW + 16, granted=grant(17))
    story.ended(read, at=NOW + 16)
    [cancel] = story.decides(NOW + 16)
    assert isinstance(cancel, CancelJob)
    story.ended(cancel, at=NOW + 16)
    story.decides(NOW + 17)
    assert key_of(TRAIN) not in story.world.workloads


def test_a_pod_deleted_while_its_submission_was_lost_is_forgotten_when_nothing_came_of_it() -> None:
    story = Story()
    lost(story)
    story.loses(TRAIN, NOW + 3)
    story.polls({}, at=NOW + 16)
    assert story.decides(NOW + 16) == []
    assert story.world.workloads == {}


def test_a_pod_deleted_while_its_submission_is_under_way_gives_the_grant_back() -> None:
    """S3."""
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.loses(TRAIN, NOW)
    assert story.decides(NOW) == []
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    [cancel] = story.decides(NOW)
    assert cancel == CancelJob(key_of(TRAIN), 17, NAME, "alice", "hpc/train: Deleted")


@pytest.mark.parametrize("outcome", [Outcome.UNREACHED, Outcome.UNKNOWN, Outcome.REFUSED])
def test_a_cancel_that_failed_is_repeated_with_growing_pauses(outcome: Outcome) -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.loses(TRAIN, NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.ended(cancel, outcome, at=NOW + 2)
    assert story.decides(NOW + 2.5) == []
    [cancel] = story.acts(CancelJob, NOW + 3)
    story.ended(cancel, outcome, at=NOW + 3)
    assert story.acts(CancelJob, NOW + 4) == []
    assert len(story.acts(CancelJob, NOW + 5)) == 1


def test_a_cancel_that_slurm_took_back_is_noticed_by_the_next_poll() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 0.5)
    story.loses(TRAIN, NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.sees(TRAIN)  # the list of another process; the workload lives on
    story.ended(cancel, at=NOW + 1)
    story.polls({17: "PENDING"}, at=NOW + 2)
    [said, read] = story.decides(NOW + 2)
    assert isinstance(said, SetPodCondition)
    assert said.event == "SlurmNotBelieved"
    assert isinstance(read, ReadJob), "no job comes to life again: the id may be another's by now"
    story.reads(job_of(TRAIN, 17, "PENDING"), at=NOW + 2)
    assert story.world.phase_of[key_of(TRAIN)].value == "queued"


def test_what_was_not_sent_is_sent_again_after_a_pause() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, Outcome.UNREACHED, at=NOW)
    assert story.decides(NOW + 0.5) == []
    assert len(story.acts(AllocateNow, NOW + 1)) == 1


@pytest.mark.parametrize("is_running", [False, True], ids=["a pod that waits", "a pod whose job is lost"])
def test_a_submission_that_did_not_reach_slurm_is_not_shown_as_refused(is_running: bool) -> None:
    story = Story()
    if is_running:
        story.runs(TRAIN, 17, at=NOW)
        story.polls({17: "RUNNING"}, at=NOW + 1)
    else:
        story.sees(TRAIN)
    asked: list[AllocateNow] = []
    for second in range(2, 40):
        story.polls({}, at=NOW + second)
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob):
                story.reads(None, job_id=action.job_id, at=NOW + second)
            if isinstance(action, AllocateNow):
                asked.append(action)
                why = Refusal("NoConnection", "The connection was refused.")
                story.ended(action, Outcome.UNREACHED, at=NOW + second, refusal=why)
                continue
            assert not isinstance(action, SetPodCondition) or "refused" not in action.message, action
            story.ended(action, at=NOW + second)
    assert len(asked) > 1


def test_an_id_that_a_read_denied_and_a_lost_answer_got_again_is_read_again() -> None:
    """slurmctld lost job 17; the submission after that, whose answer was lost, was given the same id."""
    story = Story()
    train = pod("train")
    story.queues(train, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.polls({}, at=NOW + 2)
    [read] = story.acts(ReadJob, NOW + 2)
    story.reads(None, at=NOW + 2, job_id=17)
    story.ended(read, at=NOW + 2)
    story.polls({}, at=NOW + 5)
    [again] = [each for each in story.decides(NOW + 5) if isinstance(each, AllocateNow | SubmitJob)]
    story.ended(again, Outcome.UNKNOWN, at=NOW + 6)
    story.polls({17: "RUNNING"}, at=NOW + 7)
    [read] = story.acts(ReadJob, NOW + 7)
    assert read.job_id == 17
    story.reads(job_of(train, 17, "RUNNING"), at=NOW + 7, granted=grant(17))
    story.ended(read, at=NOW + 7)
    assert len(story.acts(BindPod, NOW + 7)) == 1


def test_an_id_that_a_lost_answer_got_again_is_read_though_each_list_showed_it() -> None:
    """Between two lists two reads found that job 17 was gone, and the submission after them was given the same id."""
    story = Story()
    train = pod("train")
    story.queues(train, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(None, at=NOW + 2, job_id=17)
    [read] = story.acts(ReadJob, NOW + 4)
    story.reads(None, at=NOW + 4, job_id=17)
    story.ended(read, at=NOW + 4)
    [again] = [each for each in story.decides(NOW + 4) if isinstance(each, AllocateNow | SubmitJob)]
    story.ended(again, Outcome.UNKNOWN, at=NOW + 5)
    story.polls({17: "PENDING"}, at=NOW + 6)
    assert [each.job_id for each in story.acts(ReadJob, NOW + 6)] == [17]
    assert story.world.forgotten_at == {}


def test_the_id_of_a_lost_job_is_read_again_if_lists_go_on_to_show_it_after_the_pod_got_another_job() -> None:
    """Two reads found that job 17 was gone.  The job that each list shows under its id may be another job of the bridge."""
    story = Story()
    train = pod("train", says={"begin": "now+1hour"})
    story.queues(train, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(None, at=NOW + 2, job_id=17)
    [read] = story.acts(ReadJob, NOW + 4)
    story.reads(None, at=NOW + 4, job_id=17)
    story.ended(read, at=NOW + 4)
    [again] = story.acts(SubmitJob, NOW + 4)
    story.ended(again, at=NOW + 5, job_id=18)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 6)
    assert 17 in [each.job_id for each in story.acts(ReadJob, NOW + 6)]


def test_a_slow_answer_does_not_take_an_id_that_was_given_out_again_meanwhile() -> None:
    """slurmctld lost its state between the two: the first job does not exist any more, and another job has its id."""
    story = Story(without(CONFIG, submits=9))
    other = pod("other")
    story.queues(TRAIN, 16, at=NOW - 10)  # so that nobody asks for nodes at once
    story.polls({16: "PENDING"}, at=NOW - 5)
    story.sees(other)
    [slow] = story.acts(SubmitJob, NOW)
    another = pod("another")
    story.sees(another)
    [quick] = story.acts(SubmitJob, NOW + 1)
    story.ended(quick, at=NOW + 1, job_id=17)
    story.world.apply(ActionEnded(slow, Outcome.DONE, NOW, NOW + 2, job_id=17))
    assert story.world.placeholders[17].key == key_of(another)
    [read] = [each for each in story.acts(ReadJob, NOW + 3) if each.job_id == 17]
    story.reads(job_of(another, 17, "PENDING"), at=NOW + 3)
    story.ended(read, at=NOW + 3)
    story.polls({16: "PENDING", 17: "PENDING"}, at=NOW + 20)
    assert [each.spec.name for each in story.acts(SubmitJob, NOW + 20)] == [slow.spec.name]


def test_while_slurmdbd_is_away_a_lost_answer_is_looked_for_as_where_there_is_none() -> None:
    story = Story(ACCOUNTED)
    lost(story)
    story.sees(AccountingOutageBegan(NOW, "slurmdbd does not answer."))
    story.polls({}, at=NOW + 30)
    assert [type(each) for each in story.decides(NOW + 30)] == [AllocateNow]


def test_a_search_that_finds_slurmdbd_away_goes_on_without_it() -> None:
    story = Story(ACCOUNTED)
    lost(story)
    story.polls({}, at=NOW + 30)
    [find] = story.acts(FindJobs, NOW + 30)
    story.ended(find, Outcome.UNREACHED, at=NOW + 30, number=ACCOUNTING_AWAY, later=True)
    assert story.world.accounting_outage is not None
    assert [type(each) for each in story.decides(NOW + 30)] == [AllocateNow]

"""What vanished is absent, not ended (ARCHITECTURE 6; S7, V7, X6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetPodCondition,
    SubmitJob,
)
from scheduler.events import AbsenceConfirmed, JobsPolled, OutageBegan, OutageEnded, Side, UndecodedItems
from scheduler.model.anomaly import Anomaly
from scheduler.model.kubernetes import Condition, Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.state.anomalies import held_back as held_back_sentence
from scheduler.state.anomalies import hints_held_back, missing
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, node, pod, told_by, without

NOW = START + 20
TRAIN = pod("train")
RUNS = frozenset({"RUNNING"})


def running(story: Story, count: int = 1) -> list[Pod]:
    shown = [story.runs(pod(f"p{number}"), 100 + number, at=NOW) for number in range(count)]
    story.polls({100 + number: "RUNNING" for number in range(count)}, at=NOW + 1)
    return shown


def reads_nothing(story: Story, at: float) -> None:
    for read in story.acts(ReadJob, at):
        story.reads(None, job_id=read.job_id, at=at)
        story.ended(read, at=at)


def cannot_have_them_again(story: Story, at: float) -> None:
    """The nodes of the lost jobs that are requested again then belong to other jobs."""
    story.decides(at)
    refuses(story, at)


def refuses(story: Story, at: float) -> None:
    """Slurm refuses the requests in flight for the nodes of lost jobs."""
    for workload in story.world.workloads.values():
        if workload.in_flight is not None and isinstance(asked := workload.in_flight.action, AllocateNow):
            assert asked.spec.required_nodes == "x1"
            story.ended(asked, Outcome.REFUSED, at=at, number=2016)


def test_pods_are_harmed_only_when_their_job_was_missing_twice_two_seconds_apart_and_denied() -> None:
    story = Story()
    running(story)
    story.polls({}, at=NOW + 5)
    [read] = story.decides(NOW + 5)
    assert read == ReadJob(100, "does job 100 live?", read.key, bucket="missing")
    story.reads(None, job_id=100, at=NOW + 5)
    story.ended(read, at=NOW + 5)
    assert story.decides(NOW + 5) == []
    story.polls({}, at=NOW + 6)
    assert story.decides(NOW + 6) == []
    story.polls({}, at=NOW + 7)
    cannot_have_them_again(story, NOW + 7)
    [end] = story.acts(FailByDeadline, NOW + 7)
    assert end.reason == (
        "Slurm lost the job of this pod (100); its nodes were asked for again: Slurm refused it (error 2016)."
    )


def test_polls_alone_harm_no_pod() -> None:
    story = Story()
    running(story)
    for second in range(5, 60):
        story.polls({}, at=NOW + second)
        acts = story.decides(NOW + second)
        assert {type(each) for each in acts} <= {ReadJob}
        for read in acts:
            story.ended(read, Outcome.UNREACHED, at=NOW + second)


def test_a_job_that_comes_back_was_never_gone() -> None:
    story = Story()
    running(story)
    story.polls({}, at=NOW + 5)
    story.polls({100: "RUNNING"}, at=NOW + 6)
    assert story.world.absent == set()
    told = story.acts(SetPodCondition, NOW + 6)
    assert {(each.event, each.message) for each in told} == {
        (
            "SlurmNotBelieved",
            "Slurm did not show job 100 for a while, and shows it again. The job never counted as lost.",
        )
    }
    for second in range(7, 20):
        story.polls({100: "RUNNING"}, at=NOW + second)
        for read in story.decides(NOW + second):
            assert isinstance(read, ReadJob), "an id that came anew is read, and no more"
            story.ended(read, Outcome.UNREACHED, at=NOW + second)


def test_a_job_that_was_denied_and_is_read_again_lives() -> None:
    story = Story()
    [shown] = running(story)
    story.polls({}, at=NOW + 5)
    reads_nothing(story, NOW + 5)
    story.polls({100: "RUNNING"}, at=NOW + 6)
    [read] = [each for each in story.acts(ReadJob, NOW + 7) if each.job_id == 100]
    story.reads(job_of(shown, 100), at=NOW + 7, granted=grant(100))
    story.ended(read, at=NOW + 7)
    story.polls({100: "RUNNING"}, at=NOW + 10)
    assert story.decides(NOW + 10) == []
    assert story.world.placeholders[100].alive


def test_an_id_that_was_given_out_again_is_another_clients_job() -> None:
    """slurmctld lost its state, and the id with it: the poll shows it running, and it is not ours."""
    story = Story()
    running(story)
    story.sees(OutageBegan(Side.SLURM, NOW + 2, "Slurm does not answer."), OutageEnded(Side.SLURM, NOW + 5))
    story.polls({100: "RUNNING"}, at=NOW + 5)
    [read] = story.acts(ReadJob, NOW + 5)
    story.reads(Job(100, "interactive", "carol", frozenset({"RUNNING"})), at=NOW + 5)
    story.ended(read, at=NOW + 5)
    story.polls({100: "RUNNING"}, at=NOW + 6)
    assert story.acts(FailByDeadline, NOW + 6) == []
    story.polls({100: "RUNNING"}, at=NOW + 7)
    cannot_have_them_again(story, NOW + 7)
    [end] = story.acts(FailByDeadline, NOW + 7)
    assert end.reason.startswith("Slurm lost the job of this pod (100)")


def test_an_id_that_falls_below_what_was_seen_makes_everything_be_read_again() -> None:
    story = Story()
    running(story)
    story.polls({100: "RUNNING", 500: "RUNNING"}, at=NOW + 2)
    story.reads(Job(500, "interactive", "carol", frozenset({"RUNNING"})), at=NOW + 2)
    story.decides(NOW + 2)
    assert story.world.foreign == {500}
    story.polls({100: "RUNNING", 101: "RUNNING", 500: "RUNNING"}, at=NOW + 3)
    assert {read.job_id for read in story.acts(ReadJob, NOW + 3)} == {100, 101, 500}


def test_a_waiting_job_that_vanished_is_asked_for_again_only_when_its_absence_is_believed() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.polls({}, at=NOW + 2)
    reads_nothing(story, NOW + 2)
    assert story.acts(AllocateNow, NOW + 3) == []
    story.polls({}, at=NOW + 4)
    assert len(story.acts(AllocateNow, NOW + 5)) == 1


def test_a_job_that_no_poll_ever_shows_is_absent_too() -> None:
    """Its submission was answered, and slurmctld died before it was written down."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({}, at=NOW + 1)
    reads_nothing(story, NOW + 1)
    story.polls({}, at=NOW + 3)
    assert len(story.acts(AllocateNow, NOW + 4)) == 1


def test_a_mass_absence_is_reported_and_rejected() -> None:
    """X6: a wrong cluster behind the URL, an empty state."""
    story = Story()
    shown = running(story, 11)
    for at in (NOW + 5, NOW + 7, NOW + 9):
        story.polls({}, at=at)
        reads_nothing(story, at)
    for at in (NOW + 9, NOW + 10):
        cannot_have_them_again(story, at)
    acts = story.decides(NOW + 10)
    assert {type(each) for each in acts} <= {SetPodCondition}
    said = [told for each in story.world.workloads.values() for told in told_by(each)]
    assert len(said) == 11
    assert all("Nothing is ended until Slurm lists these jobs again" in told.message for told in said)

    assert story.world.rejected[Anomaly.MASS_ABSENCE] == 1

    jobs = {100 + number: "RUNNING" for number in range(11)}
    story.polls(jobs, at=NOW + 11)
    assert story.world.held_back_since is not None, "ids may be given out again"
    for read in story.acts(ReadJob, NOW + 11):
        story.reads(job_of(shown[read.job_id - 100], read.job_id), at=NOW + 11)
        story.ended(read, at=NOW + 11)
    story.polls(jobs, at=NOW + 12)
    assert story.decides(NOW + 12) == []
    assert story.world.held_back_since is None
    assert story.world.rejected[Anomaly.CAME_BACK] == 11


def refuses_their_nodes(story: Story, acts: list[Action], at: float) -> list[Action]:
    """Slurm refuses the nodes of lost jobs that are requested again.  Returns the other actions."""
    asked = [each for each in acts if isinstance(each, AllocateNow) and each.spec.required_nodes]
    for each in asked:
        story.ended(each, Outcome.REFUSED, at=at, number=2016)
    return [each for each in acts if each not in asked]


def ends_after_release(story: Story, at: float) -> set[str]:
    """The admin says that the jobs are gone, and Slurm refuses the nodes once more.  Returns the UIDs of pods that end."""
    for workload in story.world.workloads.values():
        if workload.in_flight is not None:
            refuses_their_nodes(story, [workload.in_flight.action], at)
    story.sees(AbsenceConfirmed(at))
    ended = set[str]()
    for later in range(3):
        acts = refuses_their_nodes(story, story.decides(at + later), at + later)
        ended |= {each.uid for each in acts if isinstance(each, FailByDeadline)}
    return ended


def held_back(story: Story, count: int = 11) -> list[Pod]:
    """That many jobs are missing, and denied by reads; no pod is ended for it."""
    shown = running(story, count)
    for at in (NOW + 5, NOW + 7):
        story.polls({}, at=at)
        reads_nothing(story, at)
    for at in (NOW + 7, NOW + 9):
        cannot_have_them_again(story, at)
    story.decides(NOW + 9)
    return shown


def test_pods_of_many_missing_jobs_are_warned_and_hear_that_nothing_is_ended() -> None:
    story, told = Story(), list[SetPodCondition]()
    running(story, 11)
    for at in (NOW + 5, NOW + 7):
        story.polls({}, at=at)
        reads_nothing(story, at)
    for at in (NOW + 7, NOW + 9):
        told += story.acts(SetPodCondition, at)
        refuses(story, at)
    told += story.acts(SetPodCondition, NOW + 10)
    about = [each for each in told if "Nothing is ended until Slurm lists these jobs again" in each.message]
    assert {(each.name, each.warning) for each in about} == {(f"p{number}", True) for number in range(11)}


def test_a_mass_absence_is_held_back_to_its_last_job_though_some_pods_end_by_themselves() -> None:
    story = Story()
    shown = held_back(story)
    for one in shown[:5]:
        story.sees(replace(one, phase=PodPhase.SUCCEEDED))
    for second in range(10, 60):
        story.polls({}, at=NOW + second)
        acts = refuses_their_nodes(story, story.decides(NOW + second), NOW + second)
        assert {type(each) for each in acts} <= {SetPodCondition}
    story.polls({105 + number: "CANCELLED" for number in range(6)}, at=NOW + 60)
    for read in story.acts(ReadJob, NOW + 60):
        story.reads(job_of(shown[read.job_id - 100], read.job_id, "CANCELLED"), at=NOW + 60)
        story.ended(read, at=NOW + 60)
    assert len(story.acts(FailByDeadline, NOW + 61)) == 6, "what Slurm says itself is believed at once"


def test_the_admins_word_releases_a_mass_absence_once() -> None:
    story = Story()
    held_back(story)
    assert story.acts(FailByDeadline, NOW + 10) == []
    assert len(ends_after_release(story, NOW + 11)) == 11
    assert story.world.held_back_since is None

    others = [story.runs(pod(f"q{number}"), 200 + number, at=NOW + 20) for number in range(11)]
    story.polls({200 + number: "RUNNING" for number in range(11)}, at=NOW + 21)
    for at in (NOW + 25, NOW + 27):
        story.polls({}, at=at)
        reads_nothing(story, at)
    for at in (NOW + 27, NOW + 28):
        cannot_have_them_again(story, at)
    assert story.acts(FailByDeadline, NOW + 28) == [], "it was said of those that were missing then"
    assert len(others) == len(missing(story.world))


def test_pods_that_an_admin_released_end_although_many_other_jobs_vanish_before_that() -> None:
    story, ends = Story(), set[str]()
    released, others = running(story, 22)[:11], {100 + number: "RUNNING" for number in range(11, 22)}
    for at, listed in ((NOW + 5, others), (NOW + 7, others), (NOW + 9, {}), (NOW + 11, {})):
        story.polls(listed, at=at)
        reads_nothing(story, at)
        story.sees(*[AbsenceConfirmed(at)] * (at == NOW + 7))
    for at in range(int(NOW) + 12, int(NOW) + 40):
        ends |= {each.name for each in story.acts(FailByDeadline, at)}
        refuses(story, at)
    assert ends == {each.name for each in released}


def test_after_the_admins_word_pods_are_ended_only_if_slurm_refuses_their_nodes() -> None:
    """S7 comes before S4 for a released job as for any other: what `release` says (bridge/health.py) is true of both."""
    story = Story()
    running(story, 11)
    for at in (NOW + 5, NOW + 7):
        story.polls({}, at=at)
        reads_nothing(story, at)
    story.sees(AbsenceConfirmed(NOW + 8))
    story.decides(NOW + 8)
    asked = [workload.in_flight.action for workload in story.world.workloads.values() if workload.in_flight is not None]
    assert [type(each) for each in asked] == [AllocateNow] * 11, "the nodes of each are asked for"
    assert story.acts(FailByDeadline, NOW + 9) == []
    granted_again, *refused = asked
    story.ended(granted_again, at=NOW + 9, job_id=500, grant=grant(500))
    for each in refused:
        story.ended(each, Outcome.REFUSED, at=NOW + 9, number=2016)
    ended = {each.key for each in story.acts(FailByDeadline, NOW + 10)}
    assert ended == {each.key for each in refused}


def test_a_mass_absence_stays_held_back_though_slurm_gives_the_missing_ids_to_the_attempts_to_have_them_again() -> None:
    """slurmctld came back with an older state: each refused attempt leaves a record, under the id of a lost job."""
    story = Story()
    shown = held_back(story)
    others, own = [*shown[1:], shown[0]], shown
    for at, names_of in ((NOW + 12, others), (NOW + 22, own)):  # of another of the missing ones; and of the very same
        story.polls({100 + number: "FAILED" for number in range(11)}, at=at)
        while reads := story.acts(ReadJob, at):
            for read in reads:
                record = job_of(names_of[read.job_id - 100], read.job_id, "FAILED", reason="BadConstraints", nodes="")
                story.reads(record, at=at)
                story.ended(read, at=at)
        for second in range(5):
            acts = refuses_their_nodes(story, story.decides(at + second), at + second)
            assert {type(each) for each in acts} <= {SetPodCondition, ReadJob}
        assert story.world.held_back_since is not None
        assert len(missing(story.world)) == 11
    assert len(ends_after_release(story, NOW + 30)) == 11


def test_jobs_that_vanish_one_by_one_over_minutes_are_no_mass_absence() -> None:
    story = Story()
    running(story, 20)
    ended = 0
    for number in range(20):
        at, left = NOW + 20 * (number + 1), {100 + other: "RUNNING" for other in range(number + 1, 20)}
        for later in (0, 2):
            story.polls(left, at=at + later)
            while reads := story.acts(ReadJob, at + later):
                for read in reads:
                    story.reads(None, job_id=read.job_id, at=at + later)
                    story.ended(read, at=at + later)
        cannot_have_them_again(story, at + 2)
        ended += len(story.acts(FailByDeadline, at + 2))
    assert ended == 20
    assert story.world.rejected[Anomaly.MASS_ABSENCE] == 0


@pytest.mark.parametrize(("every_s", "is_held_back"), [(1.0, True), (1.125, False)])
def test_jobs_that_vanish_one_by_one_are_a_mass_absence_if_all_of_them_vanish_within_ten_seconds(
    every_s: float, is_held_back: bool
) -> None:
    """None of them is read meanwhile, so all of them stay missing."""
    story = Story()
    running(story, 11)
    for number in range(11):
        story.polls({100 + other: "RUNNING" for other in range(number + 1, 11)}, at=NOW + 5 + every_s * number)
    assert bool(held_back_sentence(story.world)) is is_held_back


def test_jobs_whose_ids_slurm_gave_to_later_jobs_of_the_bridge_are_missing_too() -> None:
    """slurmctld lost its state.  The next submissions get the ids of the jobs that ran, so each list has these ids."""
    story = Story(without(CONFIG, submits=50))
    running(story, 11)
    story.sees(*(pod(f"q{number}", says={"begin": "now+1hour"}) for number in range(11)))
    asked = story.acts(SubmitJob, NOW + 2)
    assert len(asked) == 11
    for number, each in enumerate(asked):
        story.ended(each, at=NOW + 2, job_id=100 + number)
    story.polls({100 + number: "PENDING" for number in range(11)}, at=NOW + 3)
    assert held_back_sentence(story.world)
    for at in range(3, 20):
        acts = refuses_their_nodes(story, story.decides(NOW + at), NOW + at)
        assert not [each for each in acts if isinstance(each, FailByDeadline | DeletePod)]


def test_no_pod_is_ended_for_a_lost_job_while_slurm_does_not_answer() -> None:
    story = Story()
    running(story)
    story.polls({}, at=NOW + 5)
    reads_nothing(story, NOW + 5)
    story.sees(OutageBegan(Side.SLURM, NOW + 6, "Slurm does not answer."))
    story.polls({}, at=NOW + 7.5)
    assert story.decides(NOW + 8) == []


def test_an_older_poll_that_comes_late_is_not_believed() -> None:
    story = Story()
    running(story)
    story.polls({100: "RUNNING"}, at=NOW + 5)
    story.polls({}, at=NOW + 4)
    assert story.world.absent == set()
    assert story.world.rejected[Anomaly.OLD_POLL] == 1


def test_ten_absent_jobs_are_believed() -> None:
    story = Story()
    running(story, 10)
    for at in (NOW + 5, NOW + 7):
        story.polls({}, at=at)
        reads_nothing(story, at)
    cannot_have_them_again(story, NOW + 7)
    assert len(story.acts(FailByDeadline, NOW + 7)) == 10


def test_positive_ends_are_believed_at_once_however_many_they_are() -> None:
    story = Story()
    shown = running(story, 30)
    story.polls({100 + number: "CANCELLED" for number in range(30)}, at=NOW + 5)
    while reads := story.acts(ReadJob, NOW + 5):
        for read in reads:
            story.reads(job_of(shown[read.job_id - 100], read.job_id, "CANCELLED"), at=NOW + 5)
            story.ended(read, at=NOW + 5)
    told = sum(len(each.pods_in_flight) for each in story.world.workloads.values())
    assert told == 30


def test_evictions_on_absence_are_limited_by_tokens_over_all_passes() -> None:
    """X6: at most 20 a second."""
    story = Story(
        without(CONFIG, absent_share=0.5, reacquire_rate=50.0, submits=50), nodes=[node("x1", cpu=10**6, memory=10**6)]
    )
    running(story, 100)
    gone = {100 + number: "RUNNING" for number in range(50, 100)}
    for at in (NOW + 5, NOW + 7):
        story.polls(gone, at=at)
        while reads := story.acts(ReadJob, at):
            for read in reads:
                story.reads(None, job_id=read.job_id, at=at)
                story.ended(read, at=at)
    cannot_have_them_again(story, NOW + 7)
    assert len(story.acts(FailByDeadline, NOW + 7)) == 20
    for _ in range(5):
        assert story.acts(DeletePod, NOW + 7) == story.acts(FailByDeadline, NOW + 7) == []
    assert len(story.acts(FailByDeadline, NOW + 8)) == 20
    assert len(story.acts(FailByDeadline, NOW + 9)) == 10


def test_nodes_of_lost_jobs_are_asked_for_again_at_a_limited_rate_over_all_passes() -> None:
    story = Story(without(CONFIG, reacquire_rate=2.0))
    running(story, 10)
    asked = 0
    for at in (NOW + 5, *(NOW + 7 + tick / 10 for tick in range(21))):
        story.polls({}, at=at)
        while acts := [each for each in story.decides(at) if isinstance(each, ReadJob | AllocateNow)]:
            asked += sum(isinstance(each, AllocateNow) for each in acts)
            for read in acts:
                if isinstance(read, ReadJob):
                    story.reads(None, job_id=read.job_id, at=at)
                    story.ended(read, at=at)
    assert asked == 6, "two at once, and two a second"


def test_a_pod_that_is_being_deleted_when_its_job_ends_is_waited_for_and_not_looked_at_all_the_time() -> None:
    story = Story()
    [shown] = running(story)
    story.sees(replace(shown, deleting_at=NOW + 600))
    story.polls({100: "PREEMPTED"}, at=NOW + 5)
    [read] = story.acts(ReadJob, NOW + 5)
    story.reads(job_of(shown, 100, "PREEMPTED"), at=NOW + 5)
    story.ended(read, at=NOW + 5)
    plan = story.plan(NOW + 6)
    assert plan.actions == ()
    assert plan.wake_at is None or plan.wake_at > NOW + 6


def test_of_many_that_are_missing_no_more_are_looked_at_than_may_be_read_or_asked_for_again() -> None:
    """X6: thousands that vanished keep neither slurmrestd nor the loop from what else there is to do."""
    config = without(CONFIG, missing_rate=5.0, reacquire_rate=2.0)
    story = Story(config, nodes=[node("x1", cpu=10**6, memory=10**6)])
    running(story, 40)
    story.polls({}, at=NOW + 5)
    read = 0
    for tick in range(100):
        at = NOW + 5 + tick / 10
        if tick % 10 == 0:
            story.polls({}, at=at)
        reads = story.acts(ReadJob, at)
        for each in reads:
            story.reads(None, job_id=each.job_id, at=at)
            story.ended(each, at=at)
        read += len(reads)
        assert read <= 5 + 5 * (at - NOW - 5) + 1e-6
    assert 35 <= read <= 40
    while acts := story.decides(NOW + 15):
        for each in acts:
            story.ended(
                each, Outcome.REFUSED if isinstance(each, AllocateNow) else Outcome.DONE, at=NOW + 15, number=2016
            )
    story.polls({}, at=NOW + 15.1)
    plan = story.plan(NOW + 15.2)
    assert len(plan.visited) < 10
    assert plan.wake_at is not None, "those that are left have their turn"


def test_a_list_that_lacks_a_job_which_lives_is_not_believed() -> None:
    story = Story()
    [shown] = running(story)
    story.polls({}, at=NOW + 5)
    [read] = story.acts(ReadJob, NOW + 5)
    story.reads(job_of(shown, 100), at=NOW + 5)
    story.ended(read, at=NOW + 5)
    assert story.world.absent == set()
    assert story.world.rejected[Anomaly.NOT_LISTED] == 1


def test_a_job_whose_states_cannot_be_read_stays_as_it_was() -> None:
    story = Story()
    running(story, 2)
    for second in range(5, 25):
        story.world.apply(JobsPolled(NOW + second, NOW + second, {101: RUNS}, UndecodedItems(frozenset({100}))))
        assert story.decides(NOW + second) == []
    assert story.world.states == {100: RUNS, 101: RUNS}
    assert story.world.absent == set()


def test_while_a_job_without_a_readable_id_is_listed_no_job_is_absent() -> None:
    story = Story()
    running(story, 2)
    for second in range(5, 25):
        story.world.apply(JobsPolled(NOW + second, NOW + second, {}, UndecodedItems(nameless=True)))
        assert story.decides(NOW + second) == []
    story.polls({101: "RUNNING"}, at=NOW + 25)  # all of it can be read again
    assert [read.job_id for read in story.acts(ReadJob, NOW + 25)] == [100]


def test_a_job_that_no_poll_showed_yet_is_not_absent_from_a_list_that_cannot_be_read_wholly() -> None:
    story = Story()
    story.runs(pod("new"), 100, at=NOW)
    story.world.apply(JobsPolled(NOW + 1, NOW + 1, {}, UndecodedItems(frozenset({100}))))
    assert story.world.absent == set()
    story.polls({}, at=NOW + 2)
    assert story.world.absent == {100}


def test_an_ended_job_that_leaves_the_list_is_not_kept_by_an_unreadable_item() -> None:
    story = Story()
    story.polls({7: "RUNNING", 8: "COMPLETED"}, at=NOW)
    story.world.apply(JobsPolled(NOW + 1, NOW + 1, {}, UndecodedItems(nameless=True)))
    assert story.world.states == {7: RUNS}


# --- ids that pods show, and that were never read -----------------------------------------------------------------------


def claims(story: Story, count: int, **fields: Any) -> list[Pod]:
    """So many pods that no bind of this process put on a node; each shows a job id that Slurm does not have."""
    shown = [
        pod(f"claims{number}", node="x1", phase=PodPhase.RUNNING, says={"job-id": str(9000 + number)}, **fields)
        for number in range(count)
    ]
    story.sees(*shown)
    return shown


def answers(story: Story, states: dict[int, str], *, at: float, jobs: dict[int, Job] | None = None) -> list[Action]:
    """A poll, and what follows from it: reads are answered, and the nodes of lost jobs belong to other jobs."""
    story.polls(states, at=at)
    acts = story.decides(at)
    for action in acts:
        if isinstance(action, ReadJob):
            story.reads((jobs or {}).get(action.job_id), job_id=action.job_id, at=at)
            story.ended(action, at=at)
        elif isinstance(action, AllocateNow):
            story.ended(action, Outcome.REFUSED, at=at, number=2016)
        else:
            story.ended(action, at=at)
    return acts


ENDS = (FailByDeadline, DeletePod)


def test_a_job_id_that_no_bind_wrote_counts_for_nothing() -> None:
    """Twelve pods with spec.nodeName and an invented id: nothing is held back for it, and no nodes are asked for again."""
    story = Story()
    [honest] = running(story)
    claims(story, 12, created=NOW + 5)
    jobs = {100: job_of(honest, 100)}
    acts = [each for at in range(6, 40) for each in answers(story, {100: "RUNNING"}, at=NOW + at, jobs=jobs)]
    assert story.world.held_back_since is None
    assert story.world.hints_held_back_since is None
    assert not [each for each in acts if isinstance(each, AllocateNow | FailByDeadline | DeletePod)]
    assert {each.event for each in acts if isinstance(each, SetPodCondition)} == {names.BYPASS}
    assert set(story.world.placeholders) == {100}
    ends = [each for second in range(40, 50) for each in answers(story, {}, at=NOW + second) if isinstance(each, ENDS)]
    assert [each.name for each in ends] == [honest.name], "a job that is lost indeed is believed as ever"


def test_invented_ids_from_before_a_restart_hold_back_only_the_pods_that_show_them() -> None:
    story = Story()
    honest = running(story, 3)
    claims(story, 12, created=START - 60)
    for second in range(6, 20):
        assert not [each for each in answers(story, RUN3, at=NOW + second) if isinstance(each, ENDS)]
    assert story.world.held_back_since is None
    assert story.world.hints_held_back_since is not None
    assert held_back_sentence(story.world) == ""
    ends = [each for second in range(20, 40) for each in answers(story, {}, at=NOW + second) if isinstance(each, ENDS)]
    assert sorted(each.name for each in ends) == sorted(each.name for each in honest)


def test_an_invented_id_counts_for_nothing_though_a_pod_from_before_the_restart_shows_it_too() -> None:
    """The older pod may have lost its job; the younger pod, which was never bound, is not ended with it."""
    story = Story()
    older = pod("older", node="x1", phase=PodPhase.RUNNING, says={"job-id": "9000"}, created=START - 60)
    [early, late] = (
        pod(name, node="x1", phase=PodPhase.RUNNING, says={"job-id": "9000"}, created=NOW + 5)
        for name in ("early", "late")
    )
    story.sees(older, early)
    acts = [each for second in range(6, 10) for each in answers(story, {}, at=NOW + second)]
    story.sees(late)  # the job is known to be missing
    acts += [each for second in range(10, 40) for each in answers(story, {}, at=NOW + second)]
    asked = [each.key for each in acts if isinstance(each, AllocateNow)]
    assert asked == [key_of(older)], "its nodes, and no others, are asked for again"
    assert {each.name for each in acts if isinstance(each, ENDS)} == {"older"}
    assert not story.world.placeholders.keys() - {9000}


def test_an_end_that_was_listed_and_not_read_before_slurm_lost_its_state_is_no_end() -> None:
    """After a restart, an id is all that is known: the pod's job is lost, and its nodes are asked for again (S7)."""
    story = Story()
    [shown] = claims(story, 1, created=START - 60)
    story.polls({9000: "CANCELLED"}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    story.ended(read, Outcome.UNREACHED, at=NOW)
    acts = [each for second in range(1, 10) for each in answers(story, {}, at=NOW + second)]
    [asked] = [each for each in acts if isinstance(each, AllocateNow)]
    assert (asked.key, asked.spec.required_nodes) == (key_of(shown), "x1")
    ends = [each for each in acts if isinstance(each, ENDS)]
    assert acts.index(asked) < acts.index(ends[0]), "Slurm refused that, and only then the pod ends"
    assert all(each.reason.startswith("Slurm lost the job of this pod (9000)") for each in ends)


def test_ends_that_were_listed_and_not_read_before_slurm_lost_its_state_are_weighed_as_absences() -> None:
    story = Story()
    claims(story, 12, created=START - 60)
    story.polls({9000 + number: "CANCELLED" for number in range(12)}, at=NOW)
    acts = [each for second in range(1, 20) for each in answers(story, {}, at=NOW + second)]
    assert story.world.hints_held_back_since is not None
    assert not [each for each in acts if isinstance(each, ENDS)]


RUN3 = {100: "RUNNING", 101: "RUNNING", 102: "RUNNING"}


def test_after_a_restart_beside_a_wrong_slurm_no_pod_is_ended_until_an_admin_says_so() -> None:
    """Nothing was read yet: all that is known is what the pods show."""
    story = Story()
    shown = claims(story, 12, created=START - 60)
    told: set[str] = set()
    for second in range(60):
        acts = answers(story, {}, at=NOW + second)
        assert not [each for each in acts if isinstance(each, ENDS)]
        told |= {each.name for each in acts if isinstance(each, SetPodCondition) and each.event == "SlurmJobMissing"}
    assert told == {each.name for each in shown}
    assert story.world.rejected[Anomaly.MASS_ABSENCE] == 1
    assert hints_held_back(story.world).startswith("Slurm does not list 12 jobs that pods from before the start")
    story.sees(AbsenceConfirmed(NOW + 60))
    ends = [each for second in range(61, 70) for each in answers(story, {}, at=NOW + second) if isinstance(each, ENDS)]
    assert {each.name for each in ends} == told


def test_after_a_restart_a_mass_absence_is_over_when_the_pods_have_other_jobs() -> None:
    """The process before requested the nodes of all lost jobs again.  The pods show the ids of the lost jobs yet (S7)."""
    story = Story(nodes=[node("x1", cpu=10**6, memory=10**6)])
    shown = claims(story, 12, created=START - 60)
    for second in range(6):
        answers(story, {}, at=NOW + second)
    assert hints_held_back(story.world)
    jobs = {9500 + number: job_of(each, 9500 + number) for number, each in enumerate(shown)}
    states = dict.fromkeys(jobs, "RUNNING")
    acts = [each for second in range(6, 30) for each in answers(story, states, at=NOW + second, jobs=jobs)]
    assert hints_held_back(story.world) == ""
    assert not [each for each in acts if isinstance(each, ENDS)]


def test_a_job_that_another_member_shows_and_that_was_never_read_does_not_replace_a_missing_job() -> None:
    """A user may have invented the id of the job that lives."""
    story = Story(nodes=[node("x1", cpu=10**6, memory=10**6)])
    for number in range(12):
        labels = {names.PREFIX + names.GANG: f"g{number}"}
        for job_id in (9100 + number, 9000 + number):
            says = {"gang-size": "2", "size": "2", "job-id": str(job_id)}
            story.sees(
                pod(f"w-{job_id}", node="x1", phase=PodPhase.RUNNING, says=says, labels=labels, created=START - 60)
            )
    for second in range(6):
        story.polls({9100 + number: "RUNNING" for number in range(12)}, at=NOW + second)
        for read in story.acts(ReadJob, NOW + second):
            if read.job_id < 9100:
                story.reads(None, job_id=read.job_id, at=NOW + second)
            story.ended(read, Outcome.DONE if read.job_id < 9100 else Outcome.UNREACHED, at=NOW + second)
    assert hints_held_back(story.world).startswith("Slurm does not list 12 jobs")


@pytest.mark.parametrize("first", ["failed", "waits"])
def test_after_a_restart_the_lost_job_of_a_running_member_is_known_though_another_member_shows_the_id_first(
    first: str,
) -> None:
    """A member that failed, or a member that waits, does not depend on the job that is gone; the running one does."""
    story = Story()
    gang = {"labels": {names.PREFIX + names.GANG: "g"}, "created": START - 60}
    members = {"gang-size": "2"}
    runs = pod("b", says=members | {"job-id": "17"}, node="x1", phase=PodPhase.RUNNING, **gang)
    story.polls({}, at=NOW)
    if first == "failed":
        story.sees(pod("a", says=members | {"job-id": "17"}, node="x1", phase=PodPhase.FAILED, **gang))
    else:
        waits = Condition(False, names.PENDING, "Waiting in Slurm partition main. Job 17, as of 08:00 UTC.")
        story.sees(pod("a", says=members, scheduled=waits, **gang))
    story.sees(runs)
    read = [each for second in range(8) for each in answers(story, {}, at=NOW + second) if isinstance(each, ReadJob)]
    assert 17 in {each.job_id for each in read}


def test_ids_of_other_peoples_jobs_are_no_jobs_lost() -> None:
    """Each of twelve pods shows the id of a job of ours that is another pod's."""
    story = Story()
    shown = [story.runs(pod(f"p{number}", cpu=100), 9000 + number, at=NOW) for number in range(12)]
    states = {9000 + number: "RUNNING" for number in range(12)}
    jobs = {9000 + number: job_of(each, 9000 + number) for number, each in enumerate(shown)}
    story.polls(states, at=NOW + 1)
    for created in (NOW + 5, START - 60):
        fakes = claims(story, 12, created=created)
        for second in range(6, 20):
            answers(story, states, at=NOW + second, jobs=jobs)
        assert story.world.held_back_since is None
        for fake in fakes:
            story.loses(replace(fake, phase=PodPhase.SUCCEEDED), NOW + 20)


def test_an_id_that_two_pods_show_after_a_restart_is_read_at_once() -> None:
    """One bridge wrote the id of the other's job on the pod: the job itself shows whose it is."""
    story = Story()
    honest = story.bound(pod("honest", created=START - 60), 17)
    thief = story.bound(pod("thief", created=START - 50), 17)
    story.sees(honest, thief)
    acts = answers(story, {17: "RUNNING"}, at=NOW, jobs={17: job_of(honest, 17)})
    assert [each.job_id for each in acts if isinstance(each, ReadJob)] == [17]
    for second in range(1, 20):
        for each in answers(story, {17: "RUNNING"}, at=NOW + second, jobs={17: job_of(honest, 17)}):
            assert isinstance(each, ReadJob) or each.key == key_of(thief), each
    assert story.world.placeholders[17].key == key_of(honest)


def test_only_jobs_that_the_list_lacks_are_missing() -> None:
    story = Story()
    running(story, 2)
    assert missing(story.world) == []
    story.polls({101: "RUNNING"}, at=NOW + 5)
    assert [job.id for job in missing(story.world)] == [100]


def test_the_sentence_counts_what_is_missing_among_the_jobs_of_the_bridge() -> None:
    story = Story()
    running(story, 12)
    assert (held_back_sentence(story.world), hints_held_back(story.world)) == ("", "")
    story.sees(pod("hinted", node="x2", annotations={names.JOB_ID: "7"}))
    for at in (NOW + 5, NOW + 7):
        story.polls({111: "RUNNING"}, at=at)
        reads_nothing(story, at)
    assert held_back_sentence(story.world).startswith("Slurm no longer lists 11 of 12 jobs: ")


def reads_while_contradicted(
    story: Story, states: dict[int, str], found: dict[int, Job]
) -> tuple[Counter[int], list[str]]:
    """How often each job is read in five minutes, and what pods show.  Slurm lists the jobs, and reads show those found."""
    reads, said = Counter[int](), list[str]()
    for at in (NOW + 1 + second for second in range(300)):
        story.polls(states, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                reads[action.job_id] += 1
                story.reads(found.get(action.job_id), job_id=action.job_id, at=at)
            elif isinstance(action, SetPodCondition) and action.condition:
                said.append(action.message)
            assert not isinstance(action, AllocateNow | SubmitJob | FailByDeadline)
            story.ended(action, at=at)
    return reads, said


def test_a_listed_job_whose_reads_find_nothing_is_read_ever_more_seldom_and_its_pod_says_why_it_waits() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    reads, said = reads_while_contradicted(story, {17: "PENDING"}, {})
    assert reads[17] <= 12, "every two seconds before"
    assert said[-1].startswith("Slurm lists job 17, which was made for the pod, but has no such job when it is asked")


def test_a_listed_job_that_a_pod_of_an_ended_job_names_is_read_ever_more_seldom_while_reads_find_nothing() -> None:
    story = Story()
    older = replace(TRAIN, created=START - 60)
    own = job_of(older, 17, "CANCELLED", submitted=START - 55)
    story.polls({17: "CANCELLED", 18: "RUNNING"}, at=START + 1)
    story.sees(story.bound(older, 18, started=START - 50))
    story.reads(own, at=START + 2)
    reads, _ = reads_while_contradicted(story, {17: "CANCELLED", 18: "RUNNING"}, {17: own})
    assert reads[18] <= 12, "every two seconds before"


def test_a_job_that_was_not_read_for_long_counts_as_lost_soon_after_lists_lack_it_too() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    reads_while_contradicted(story, {17: "PENDING"}, {})
    asked = []
    for at in (NOW + 301 + second for second in range(10)):
        story.polls({}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                story.reads(None, job_id=17, at=at)
                story.ended(action, at=at)
            elif isinstance(action, AllocateNow | SubmitJob):
                asked.append(at)
    assert asked


def test_a_job_that_a_read_does_not_find_is_shown_as_listed_only_after_another_list() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    shown = []
    for at in (NOW + 20, NOW + 22, NOW + 24):
        story.polls({17: "PENDING"}, at=at)
        shown.append([each.message[:18] for each in story.acts(SetPodCondition, at)])
        story.reads(None, job_id=17, at=at + 1)
        shown.append([each.message[:18] for each in story.acts(SetPodCondition, at + 1)])
    assert ["Slurm lists job 17" in messages for messages in shown] == [False, False, False, False, True, False]

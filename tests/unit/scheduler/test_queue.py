"""While Slurm decides: the statuses, when they are renewed, and how a grant is seen (Q1 to Q3, S1, ARCHITECTURE 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import BindPod, NudgeScheduler, Outcome, Plan, ReadJob, SetPodCondition
from scheduler.events import OutageBegan, OutageEnded, Planned, Side, SlurmNodesPolled, TokenMissing
from scheduler.model.kubernetes import Condition
from scheduler.model.slurm import Job, Partition
from scheduler.rules.status import brief, nearest_start
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, pod, slurm_node

NOW = START + 20
TRAIN = pod("train")


def waits(job_id: int = 17, reason: str = "Resources", **fields: object) -> Job:
    return replace(job_of(TRAIN, job_id, "PENDING"), reason=reason, **fields)


def queued(story: Story, at: float = NOW) -> None:
    story.queues(TRAIN, 17, at=at)
    story.polls({17: "PENDING"}, at=at + 0.5)


def said(story: Story, job: Job, at: float) -> list[str]:
    story.reads(job, at=at)
    return [report.message for report in story.acts(SetPodCondition, at)]


def test_a_new_waiting_job_is_read_after_a_second_and_explained_in_words() -> None:
    """Q2: Slurm's reason, the partition, the expected start, the planned nodes, and as of when."""
    story = Story()
    queued(story)
    assert story.decides(NOW + 0.9) == []
    [read] = story.decides(NOW + 1)
    assert read == ReadJob(17, "why does job 17 wait?", key_of(TRAIN), bucket="detail")
    story.reads(waits(starts=NOW + 600, planned_nodes="x2"), at=NOW + 1)
    story.ended(read, at=NOW + 1)
    [report] = story.decides(NOW + 1)
    assert isinstance(report, SetPodCondition)
    assert report.condition == "SlurmJobPending"
    assert report.event == "SlurmJobSubmitted", "the first word of a job is that it was submitted"
    assert not report.warning
    assert report.message == (
        "Waiting in Slurm partition main (Resources: waiting for nodes: first in line); "
        "expected start 00:27 UTC on x2. Job 17, as of 00:17 UTC. You can request less, or a shorter time limit."
    )


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (waits(reason="Priority"), "(Priority: others are before it in the queue). Job"),
        (
            waits(reason="AssocGrpGRES"),
            "(AssocGrpGRES: its account allows all its jobs together no more GRES such as GPUs now (GrpTRES=gres/…)). Job",
        ),
        (waits(reason="JobHeldAdmin"), "(JobHeldAdmin: held by an administrator). Job"),
        (waits(starts=NOW - 5), "first in line). Job"),
        (waits(starts=NOW + 1), "first in line). Job"),  # the time of the read
        (waits(starts=NOW + 86400 * 2), "expected start 1970-01-03 00:17 UTC. Job"),
    ],
)
def test_a_reason_is_translated_where_it_says_little(job: Job, words: str) -> None:
    story = Story()
    queued(story)
    [message] = said(story, job, NOW + 1)
    assert words in message


def test_a_reason_about_which_its_user_can_do_nothing_has_no_advice() -> None:
    story = Story()
    queued(story)
    [message] = said(story, waits(reason="Priority"), NOW + 1)
    assert message.endswith("Job 17, as of 00:17 UTC.")


def test_where_no_node_is_in_service_the_pod_is_not_told_to_request_less() -> None:
    story = Story()
    queued(story)
    drained = [replace(slurm_node(name), states=frozenset({"IDLE", "DRAIN", "EXTERNAL"})) for name in ("x1", "x2")]
    other = slurm_node("y1", partitions=("other",))
    story.sees(SlurmNodesPolled((*drained, other), (Partition("main", default=True), Partition("other")), NOW))
    [message] = said(story, waits(), NOW + 1)
    assert message.endswith(" No node of partition main is in service: an admin of Slurm sees why with sinfo -R.")
    assert "request less" not in message
    story.sees(SlurmNodesPolled((drained[0], slurm_node("x2"), other), (Partition("main", default=True),), NOW + 5))
    [message] = said(story, waits(), NOW + 6)
    assert message.endswith(" You can request less, or a shorter time limit.")


@pytest.mark.parametrize("reason", ["", "None"])
def test_a_job_that_slurm_has_not_looked_at_yet_is_reported_only_when_that_lasts(reason: str) -> None:
    story = Story()
    queued(story)
    assert said(story, waits(reason=reason), NOW + 1) == []
    [report] = [each for each in story.decides(NOW + 3.1) if isinstance(each, SetPodCondition)]
    assert "(None: not looked at yet). Job" in report.message
    assert [said(story, waits(reason=same), NOW + 10) for same in ("", "None")] == [[], []]


def test_a_condition_is_not_written_again_because_time_passes() -> None:
    story = Story()
    queued(story)
    assert len(said(story, waits(), NOW + 1)) == 1
    for minutes in range(1, 29):
        assert said(story, waits(), NOW + 60 * minutes) == []


def test_a_condition_is_written_again_when_the_reason_changes_but_not_within_two_seconds() -> None:
    story = Story()
    queued(story)
    assert len(said(story, waits(), NOW + 1)) == 1
    assert "Priority" in said(story, waits(reason="Priority"), NOW + 2)[0], "the first reason is often corrected soon"
    assert said(story, waits(), NOW + 3.9) == []
    assert "Resources" in said(story, waits(), NOW + 4)[0]


def test_the_first_reason_is_not_corrected_within_a_second() -> None:
    story = Story()
    queued(story)
    assert len(said(story, waits(), NOW + 1)) == 1
    assert said(story, waits(reason="Priority"), NOW + 1.9) == []
    assert "Priority" in said(story, waits(reason="Priority"), NOW + 2)[0]


@pytest.mark.parametrize(
    ("moves_to", "is_news"),
    [
        (None, True),
        (NOW + 1 + 600 + 59, False),
        (NOW + 1 + 600 - 59, False),
        (NOW + 1 + 600 + 61, True),
        (NOW + 1 + 600 - 61, True),
    ],
)
def test_a_start_that_moves_by_more_than_a_minute_is_news(moves_to: float | None, is_news: bool) -> None:
    story = Story()
    queued(story)
    assert len(said(story, waits(starts=NOW + 601), NOW + 1)) == 1
    assert bool(said(story, waits(starts=moves_to), NOW + 10)) is is_news


@pytest.mark.parametrize(("moves_by", "is_news"), [(950.0, False), (1050.0, True)])
def test_a_far_start_has_to_move_by_a_tenth_of_the_wait(moves_by: float, is_news: bool) -> None:
    story = Story()
    queued(story)
    assert len(said(story, waits(starts=NOW + 10_010), NOW + 1)) == 1
    assert bool(said(story, waits(starts=NOW + 10_010 + moves_by), NOW + 10)) is is_news


def test_the_event_of_a_waiting_pod_is_renewed_every_half_hour() -> None:
    """Kubernetes forgets events after an hour."""
    story = Story()
    queued(story)
    assert len(said(story, waits(), NOW + 1)) == 1
    assert said(story, waits(), NOW + 1800) == []
    assert len(said(story, waits(), NOW + 1801)) == 1


def test_a_status_that_did_not_arrive_is_written_again() -> None:
    story = Story()
    queued(story)
    story.reads(waits(), at=NOW + 1)
    [report] = story.acts(SetPodCondition, NOW + 1)
    story.ended(report, Outcome.UNREACHED, at=NOW + 2)
    assert story.acts(SetPodCondition, NOW + 2.9) == []
    [again] = story.acts(SetPodCondition, NOW + 3)
    assert replace(again, message="") == replace(report, message="")


def test_a_reason_that_a_nudge_takes_away_for_seconds_stays_on_the_pod() -> None:
    """Each time capacity was freed, the first waiting pod showed "None: not looked at yet", and then its reason again."""
    story = Story()
    queued(story)
    assert len(said(story, waits(reason="BeginTime"), NOW + 4)) == 1
    story.world.apply(Planned(Plan((NudgeScheduler(key_of(TRAIN), 17, "alice", "capacity was freed"),)), NOW + 10))
    assert said(story, waits(reason="None"), NOW + 11) == []
    assert said(story, waits(reason="None"), NOW + 15) == []
    assert said(story, waits(reason="BeginTime"), NOW + 16) == []
    [message] = said(story, waits(reason="None"), NOW + 30)  # an admin released a held job, for example
    assert "(None: not looked at yet)" in message


def test_a_reason_that_a_nudge_takes_away_stays_also_beside_a_sentence_about_what_slurm_cannot_change() -> None:
    story = Story()
    queued(story)
    assert len(said(story, waits(), NOW + 4)) == 1
    story.sees(replace(TRAIN, annotations={names.PREFIX + "exclusive": "true"}))
    [message] = said(story, waits(reason="None"), NOW + 8)
    assert "Slurm cannot change" in message, "it is shown at once, whatever the reason"
    assert len(said(story, waits(), NOW + 10)) == 1
    story.world.apply(Planned(Plan((NudgeScheduler(key_of(TRAIN), 17, "alice", "capacity was freed"),)), NOW + 20))
    assert said(story, waits(reason="None"), NOW + 21) == []
    assert said(story, waits(), NOW + 24) == []


def test_a_new_job_that_is_not_considered_says_so_in_time_although_capacity_is_freed_all_the_time() -> None:
    story = Story()
    queued(story)
    story.world.nudged_at = NOW + 3
    assert len(said(story, waits(reason="None"), NOW + 3)) == 1


DAY = 86_400


@pytest.mark.parametrize(
    ("later", "moved", "writes"),
    [(0, 0, 0), (600, 0, 0), (DAY, 0, 0), (DAY, 30, 0), (600, 18_000, 1), (600, None, 1)],
)
def test_a_restart_writes_no_condition_because_of_the_times_in_it(
    later: float, moved: float | None, writes: int
) -> None:
    """The expected start is as it was, has moved by little or by much, or is not known any more."""
    story, starts = Story(), NOW + DAY + 7200
    queued(story)
    [message] = said(story, waits(starts=starts, planned_nodes="x2"), NOW + 1)
    at = NOW + later
    next_life = Story(started=at - 20)
    next_life.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", message)))
    next_life.polls({17: "PENDING"}, at=at)
    new = waits(starts=starts + moved if moved is not None else None, planned_nodes="x2")
    next_life.reads(new, at=at)
    reports = [each for step in range(10) for each in next_life.acts(SetPodCondition, at + step)]
    assert len(reports) == writes
    assert all(each.event == "SlurmJobPending" for each in reports), (
        "the previous process posted that the job was submitted"
    )


def test_after_a_restart_the_event_of_a_waiting_pod_is_renewed_as_without_one() -> None:
    story = Story()
    queued(story)
    [message] = said(story, waits(), NOW + 1)
    next_life = Story(started=NOW + 600)
    next_life.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", message)))
    next_life.polls({17: "PENDING"}, at=NOW + 620)
    assert said(next_life, waits(), NOW + 620) == []
    renew_at = NOW + 600 + CONFIG.tuning.renew_event_s
    assert said(next_life, waits(), renew_at - 1) == []
    assert len(said(next_life, waits(), renew_at + 1)) == 1


def test_a_restart_does_not_say_again_what_the_pod_says_already() -> None:
    story = Story()
    story.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", "nonsense")))
    queued(story)
    story.reads(waits(), at=NOW + 1)
    story.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", "nonsense")))
    [report] = story.acts(SetPodCondition, NOW + 1)
    assert report.event == names.SUBMITTED, "the pod did not name the job"
    message = report.message
    next_life = Story()
    shown = replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", message))
    next_life.polls({17: "PENDING"}, at=NOW)
    next_life.sees(shown)
    assert said(next_life, waits(), NOW + 1) == []


@pytest.mark.parametrize(("configured", "shown"), [("", names.PENDING), ("Unschedulable", "Unschedulable")])
def test_the_reason_of_the_condition_may_be_set_for_autoscalers(configured: str, shown: str) -> None:
    """Q3."""
    story = Story(replace(CONFIG, pending_reason=configured))
    queued(story)
    [unread] = story.acts(SetPodCondition, NOW + 10)
    story.reads(waits(), at=NOW + 15)
    [read] = story.acts(SetPodCondition, NOW + 15)
    assert (unread.condition, read.condition) == (shown, shown)


def test_a_restart_writes_the_refusal_of_what_the_user_wrote_since_then() -> None:
    """Two refusals that differ in a time alone are two refusals, other than two statuses of one waiting job."""
    story = Story()
    story.sees(pod("train", says={"nice": "10:00 UTC"}))
    [before] = story.acts(SetPodCondition, NOW)
    assert "10:00 UTC" in before.message
    next_life = Story()
    shown = Condition(False, before.condition, before.message)
    next_life.sees(pod("train", says={"nice": "11:00 UTC"}, scheduled=shown))
    [after] = next_life.acts(SetPodCondition, NOW)
    assert after.message == before.message.replace("10:00", "11:00")


def test_a_reason_of_the_condition_that_the_admin_has_set_anew_is_written_after_the_restart() -> None:
    story = Story()
    queued(story)
    [message] = said(story, waits(), NOW + 1)
    next_life = Story(replace(CONFIG, pending_reason="Unschedulable"))
    next_life.sees(replace(TRAIN, scheduled=Condition(False, names.PENDING, message)))
    next_life.polls({17: "PENDING"}, at=NOW)
    assert said(next_life, waits(), NOW + 1) == [message]


def test_a_grant_is_seen_by_the_poll_read_and_bound() -> None:
    story = Story()
    queued(story)
    story.polls({17: "RUNNING"}, at=NOW + 2)
    [read] = [each for each in story.acts(ReadJob, NOW + 2) if each.bucket == "check"]
    story.reads(job_of(TRAIN, 17), at=NOW + 2, granted=grant(17))
    story.ended(read, at=NOW + 2)
    [bind] = story.acts(BindPod, NOW + 2)
    assert (bind.node, bind.job_id, bind.granted) == ("x1", 17, NOW + 2)


def test_a_poll_that_began_before_the_submission_was_answered_says_nothing_about_it() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({}, at=NOW - 0.1)
    assert story.world.phase_of[key_of(TRAIN)].value == "queued"
    story.polls({17: "PENDING"}, at=NOW + 1)
    assert story.world.phase_of[key_of(TRAIN)].value == "queued"


def test_an_answer_that_comes_after_a_newer_one_is_left_aside() -> None:
    story = Story()
    queued(story)
    story.polls({17: "RUNNING"}, at=NOW + 3)
    story.polls({17: "PENDING"}, at=NOW + 2)
    assert story.world.phase_of[key_of(TRAIN)].value == "granted"


def test_what_a_read_showed_is_compared_with_the_next_poll_even_where_polls_did_not_change() -> None:
    """Started and requeued between two polls."""
    story = Story()
    queued(story)
    story.reads(job_of(TRAIN, 17, "RUNNING"), at=NOW + 1, granted=grant(17))
    assert story.world.phase_of[key_of(TRAIN)].value == "granted"
    story.polls({17: "PENDING"}, at=NOW + 2)
    assert story.world.phase_of[key_of(TRAIN)].value == "queued"
    assert story.world.placeholders[17].grant is None


def test_a_job_that_was_requeued_is_bound_to_its_next_grant_only() -> None:
    story = Story()
    queued(story)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17, "x1"))
    story.polls({17: "PENDING"}, at=NOW + 2)
    assert story.acts(BindPod, NOW + 2) == []
    story.polls({17: "RUNNING"}, at=NOW + 5)
    assert story.acts(BindPod, NOW + 5) == []
    story.reads(job_of(TRAIN, 17), at=NOW + 5, granted=grant(17, "x2"))
    assert [bind.node for bind in story.acts(BindPod, NOW + 5)] == ["x2"]


# --- the nudge -----------------------------------------------------------------------------------------------------


def test_when_capacity_was_freed_slurm_is_asked_to_look_at_its_queue() -> None:
    story = Story()
    story.polls({5: "RUNNING"}, at=NOW - 1)
    story.queues(pod("older", created=START), 16, at=NOW)
    story.queues(pod("newer", created=START + 5), 17, at=NOW)
    story.polls({5: "RUNNING", 16: "PENDING", 17: "PENDING"}, at=NOW + 1)
    assert story.acts(NudgeScheduler, NOW + 1) == []
    story.polls({5: "COMPLETED", 16: "PENDING", 17: "PENDING"}, at=NOW + 2)
    [nudge] = story.acts(NudgeScheduler, NOW + 2)
    assert (nudge.job_id, nudge.user) == (16, "alice")
    assert story.acts(NudgeScheduler, NOW + 3) == []


def test_a_job_that_ends_while_it_waits_may_be_what_others_waited_for() -> None:
    story = Story()
    queued(story)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 1)
    story.polls({17: "PENDING", 18: "CANCELLED"}, at=NOW + 2)
    assert [nudge.job_id for nudge in story.acts(NudgeScheduler, NOW + 2)] == [17]


def test_without_waiting_jobs_there_is_no_nudge() -> None:
    story = Story()
    story.polls({5: "RUNNING"}, at=NOW)
    story.polls({}, at=NOW + 1)
    assert story.acts(NudgeScheduler, NOW + 1) == []


def begins_in_an_hour() -> Story:
    story = Story()
    story.queues(LATER, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.decides(NOW + 1)
    return story


LATER = pod("later", says={"begin": "now+1hour"})
DUE = LATER.created + 3600


def test_when_a_begin_time_has_come_slurm_is_asked_to_look_at_its_queue() -> None:
    """It passes without an event: on stock parameters slurmctld would see it up to 30 s later."""
    story = begins_in_an_hour()
    assert story.acts(NudgeScheduler, DUE + 0.9) == []
    plan = story.plan(DUE + 0.9)
    assert plan.wake_at == DUE + 1
    [nudge] = story.acts(NudgeScheduler, DUE + 1)
    assert (nudge.job_id, nudge.reason) == (17, "a begin time has come: Slurm is asked to look at its queue")
    assert story.acts(NudgeScheduler, DUE + 3) == []


def test_a_begin_time_of_a_job_of_a_previous_process_is_what_slurm_shows() -> None:
    story = Story()
    story.sees(LATER)
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(replace(job_of(LATER, 17, "PENDING"), reason="BeginTime", starts=NOW + 100), at=NOW)
    assert story.acts(NudgeScheduler, NOW + 100) == []
    assert len(story.acts(NudgeScheduler, NOW + 101)) == 1


def test_an_expected_start_is_no_begin_time() -> None:
    story = Story()
    story.sees(LATER)
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(replace(job_of(LATER, 17, "PENDING"), reason="Priority", starts=NOW + 100), at=NOW)
    assert story.acts(NudgeScheduler, NOW + 101) == []


def test_a_begin_time_waits_for_the_last_nudge_to_be_a_second_ago() -> None:
    story = begins_in_an_hour()
    story.polls({17: "PENDING", 18: "RUNNING"}, at=DUE)
    story.polls({17: "PENDING"}, at=DUE + 0.5)
    assert len(story.acts(NudgeScheduler, DUE + 0.5)) == 1
    assert story.acts(NudgeScheduler, DUE + 1) == []
    assert len(story.acts(NudgeScheduler, DUE + 1.5)) == 1


def test_a_begin_time_of_a_user_without_a_token_is_looked_at_once_a_second() -> None:
    """Slurm would refuse the nudge, which is sent as that user."""
    story = begins_in_an_hour()
    story.polls({17: "PENDING", 18: "RUNNING"}, at=DUE)
    story.polls({17: "PENDING"}, at=DUE + 0.5)
    assert len(story.acts(NudgeScheduler, DUE + 0.5)) == 1
    story.sees(TokenMissing("alice", DUE + 1))
    plan = story.plan(DUE + 1.5)
    assert (plan.actions, plan.wake_at) == ((), DUE + 2.5)


def test_a_job_that_waits_as_its_user_asked_is_no_sign_of_a_twin() -> None:
    """Only where singleton holds it back is a job of its name somewhere that we do not see."""
    story = Story()
    story.polls({3: "RUNNING"}, at=NOW)
    story.reads(Job(3, "not ours", "bob", frozenset({"RUNNING"})), at=NOW)
    story.queues(TRAIN, 17, at=NOW)
    story.polls({3: "RUNNING", 17: "PENDING"}, at=NOW + 1)
    story.reads(waits(reason="Dependency", dependency="afterany:3(unfulfilled)"), at=NOW + 2)
    assert 3 not in {read.job_id for read in story.acts(ReadJob, NOW + 3)}
    story.reads(waits(reason="Dependency", dependency="singleton(unfulfilled)"), at=NOW + 4)
    assert 3 in {read.job_id for read in story.acts(ReadJob, NOW + 5)}


def test_who_is_held_back_by_a_twin_has_everything_read_again_but_seldom() -> None:
    """A search of another workload, which found nothing of this one's, does not keep it waiting for minutes."""
    story = Story()
    story.polls({3: "RUNNING"}, at=NOW)
    story.reads(Job(3, "not ours", "bob", frozenset({"RUNNING"})), at=NOW)
    pods = {17: pod("a", created=START), 18: pod("b", created=START + 1)}
    for job_id, each in pods.items():
        story.queues(each, job_id, at=NOW)
    story.polls({3: "RUNNING", 17: "PENDING", 18: "PENDING"}, at=NOW + 1)

    def held(job_id: int) -> Job:
        return job_of(pods[job_id], job_id, "PENDING", reason="Dependency", dependency="singleton(unfulfilled)")

    def searches(job_id: int, at: float) -> bool:
        story.reads(held(job_id), at=at)
        wanted = {read.job_id for read in story.acts(ReadJob, at)}
        for each in wanted:
            found = held(each) if each in pods else Job(3, "not ours", "bob", frozenset({"RUNNING"}))
            story.reads(found, at=at + 0.1)
        return 3 in wanted

    assert searches(17, NOW + 2)
    assert not searches(18, NOW + 3), "everything was just read"
    assert searches(18, NOW + 15)
    assert not searches(17, NOW + 40)
    assert searches(17, NOW + 303)


def test_a_twin_among_jobs_that_were_not_read_yet_is_found_although_each_read_takes_long() -> None:
    """A new process finds many jobs, submits a second one for a pod, and needs longer for the reads than for its search."""
    story, oldest = Story(), 3
    listed = dict.fromkeys(range(oldest, 1003), "RUNNING")
    story.polls(listed, at=NOW - 10)
    story.queues(TRAIN, 2000, at=NOW)
    story.polls({**listed, 2000: "PENDING"}, at=NOW + 1)
    held = waits(2000, reason="Dependency", dependency="singleton(unfulfilled)")
    at, read = NOW + 2.0, set[int]()
    while oldest not in read:
        assert at < NOW + 120, f"{len(read)} of {len(listed)} jobs were read, and the twin was not"
        for action in story.acts(ReadJob, at):
            other = Job(action.job_id, "not ours", "bob", frozenset({"RUNNING"}))
            story.reads(held if action.job_id == 2000 else other, at=at + 0.3)
            story.ended(action, at=at + 0.3)
            read.add(action.job_id)
        at += 0.35


def test_a_held_job_is_reported_and_followed() -> None:
    """S9."""
    story = Story()
    queued(story)
    [message] = said(story, waits(reason="JobHeldAdmin"), NOW + 1)
    assert message.endswith(
        "(JobHeldAdmin: held by an administrator). Job 17, as of 00:17 UTC. "
        "You can ask the admin of Slurm why, and to release job 17."
    )
    assert brief(message) == "JobHeldAdmin: held by an administrator"
    [message] = said(story, waits(reason="Priority"), NOW + 20)
    assert "others are before it" in message
    assert names.shown_job(message) == 17


@pytest.mark.parametrize(
    ("message", "start"),
    [
        ("Waiting (Priority); expected start 2026-11-24 07:30 UTC on x1. Job 4", 1_795_505_400.0),
        ("Waiting (Priority); expected start 07:30 UTC. Job 4", 1_795_505_400.0),
        ("Waiting (Priority); expected start 2026-11-27 07:30 UTC. Job 4", 1_795_764_600.0),
        ("Waiting (Priority); expected start 23:00 UTC. Job 4", 1_795_474_800.0),  # yesterday is nearer
        ("Waiting (Priority). Job 4", None),
        ("Waiting (Priority); expected start 2026-99-99 07:30 UTC. Job 4", None),
        ("Waiting (Priority); expected start 27:30 UTC. Job 4", None),
    ],
)
def test_the_start_that_a_condition_shows_is_read_back_also_if_another_client_wrote_nonsense_there(
    message: str, start: float | None
) -> None:
    now = 1_795_500_000.0
    assert nearest_start(message, now + 5000, now) == start


def test_a_note_about_an_edit_is_shown_before_slurm_has_looked_at_the_job() -> None:
    story = Story()
    queued(story)
    story.sees(replace(TRAIN, annotations={names.PREFIX + "exclusive": "true"}))
    [message] = said(story, waits(reason="None"), NOW + 1)
    assert "(None: not looked at yet). Job" in message
    assert "Slurm cannot change slurm-bridge/exclusive of a waiting job" in message


def test_while_slurm_is_away_or_its_jobs_were_not_read_since_it_is_not_asked_to_look_at_its_queue() -> None:
    story = Story()
    story.polls({5: "RUNNING"}, at=NOW - 1)
    queued(story)
    story.polls({17: "PENDING"}, at=NOW + 2)
    story.sees(OutageBegan(Side.SLURM, NOW + 2, "slurmrestd does not answer."))
    assert story.acts(NudgeScheduler, NOW + 2) == []
    story.sees(OutageEnded(Side.SLURM, NOW + 3))
    assert story.acts(NudgeScheduler, NOW + 3) == []
    story.reads(waits(), at=NOW + 4)
    assert [each.job_id for each in story.acts(NudgeScheduler, NOW + 4)] == [17]


def test_no_start_is_read_back_by_a_clock_that_no_calendar_has() -> None:
    assert nearest_start("Waiting (Priority); expected start 07:30 UTC. Job 4", NOW, now=1e18) is None


# --- before the job is read -----------------------------------------------------------------------------------------------


def said_at(story: Story, at: float) -> list[tuple[str, str]]:
    """The messages and events of the conditions that are written, while no read of a job is answered."""
    return [(each.message, each.event) for each in story.acts(SetPodCondition, at)]


UNREAD = "Waiting in Slurm partition main as job 17. Slurm's reason follows when the job is read."


def test_a_pod_whose_job_is_not_read_says_after_ten_seconds_that_it_waits_and_then_why() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 0.5)
    for step in range(100):
        assert said_at(story, NOW + step / 10) == []
    assert said_at(story, NOW + 10) == [(UNREAD, names.SUBMITTED)]
    for second in range(11, 20):
        assert said_at(story, NOW + second) == []
    story.reads(waits(reason="Priority"), at=NOW + 20)
    [(message, event)] = said_at(story, NOW + 20)
    assert message.startswith("Waiting in Slurm partition main (Priority: ")
    assert event == names.PENDING


def test_a_pod_that_gets_nodes_within_ten_seconds_never_says_that_it_waits() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    [read] = story.acts(ReadJob, NOW + 5)
    story.polls({17: "RUNNING"}, at=NOW + 9)
    story.reads(job_of(TRAIN, 17), at=NOW + 9.1, granted=grant(17))
    story.ended(read, at=NOW + 9.1)
    [bind] = [each for each in story.decides(NOW + 9.1) if not isinstance(each, NudgeScheduler)]
    assert isinstance(bind, BindPod)
    story.ended(bind, at=NOW + 9.2)
    story.sees(story.bound(TRAIN, 17))
    for second in range(10, 30):
        assert said_at(story, NOW + second) == []


def test_what_a_previous_process_read_of_the_job_stays_until_the_job_is_read_again() -> None:
    story = Story()
    story.sees(
        replace(
            TRAIN,
            scheduled=Condition(False, names.PENDING, "Waiting in Slurm partition main. Job 17, as of 08:00 UTC."),
        )
    )
    story.queues(TRAIN, 17, at=NOW)
    story.sees(
        replace(
            TRAIN,
            scheduled=Condition(False, names.PENDING, "Waiting in Slurm partition main. Job 17, as of 08:00 UTC."),
        )
    )
    for second in range(30):
        assert said_at(story, NOW + second) == []


def test_before_the_job_is_read_a_note_about_an_edit_comes_and_goes_with_the_edit() -> None:
    """A previous process had read the job, so the pod's status stays as long as there is no note."""
    shown = replace(TRAIN, scheduled=Condition(False, names.PENDING, "Waiting. Job 17, as of 08:00 UTC."))
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.sees(shown)
    assert said_at(story, NOW + 15) == []
    story.sees(replace(shown, annotations={names.PREFIX + "exclusive": "true"}))
    [(message, event)] = said_at(story, NOW + 20)
    assert message.startswith("Waiting in Slurm partition main as job 17. Slurm cannot change ")
    assert event == names.PENDING
    story.sees(shown)
    assert said_at(story, NOW + 30) == [(UNREAD, names.PENDING)]


def test_a_pod_whose_job_is_not_read_names_the_partition_of_its_job() -> None:
    story = Story()
    story.queues(pod("train", says={"partition": "gpu"}), 17, at=NOW)
    [(message, _)] = said_at(story, NOW + 10)
    assert message.startswith("Waiting in Slurm partition gpu as job 17. ")


def test_a_first_sentence_that_could_not_be_written_is_written_again() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    [write] = story.acts(SetPodCondition, NOW + 10)
    story.ended(write, Outcome.UNREACHED, at=NOW + 10.1)
    assert said_at(story, NOW + 11) == []
    assert said_at(story, NOW + 15.1) == [(UNREAD, names.SUBMITTED)]


def test_a_condition_is_written_only_on_the_version_of_the_pod_that_was_decided_about() -> None:
    """The API server refuses a write that comes after the bind.  A refused write is repeated if the pod still waits."""
    story = Story()
    queued(story)
    story.sees(replace(TRAIN, version="101"))
    story.reads(waits(), at=NOW + 1)
    [write] = story.acts(SetPodCondition, NOW + 1)
    assert write.version == "101"
    story.sees(replace(TRAIN, version="102"))
    story.ended(write, Outcome.REFUSED, at=NOW + 1.1, number=409)
    assert story.acts(SetPodCondition, NOW + 2.9) == []
    [again] = story.acts(SetPodCondition, NOW + 3)
    assert (again.version, again.message) == ("102", write.message)


def test_a_condition_that_meets_newer_versions_of_its_pod_again_and_again_is_written_as_soon_as_the_first_time() -> (
    None
):
    """Only a policy that refuses every write makes the pauses longer."""
    story = Story()
    queued(story)
    story.reads(waits(), at=NOW + 1)
    written: list[int] = []
    for second in range(1, 12):
        story.sees(replace(TRAIN, version=f"10{second}"))
        for write in story.acts(SetPodCondition, NOW + second):
            written.append(second)
            story.ended(write, Outcome.REFUSED, at=NOW + second, number=409)
    assert written == [1, 3, 5, 7, 9, 11]


def test_a_pod_whose_condition_was_refused_because_of_its_bind_says_nothing_more() -> None:
    story = Story()
    queued(story)
    story.reads(waits(), at=NOW + 1)
    [write] = story.acts(SetPodCondition, NOW + 1)
    story.polls({17: "RUNNING"}, at=NOW + 2)
    story.reads(job_of(TRAIN, 17), at=NOW + 2, granted=grant(17))
    [bind] = story.acts(BindPod, NOW + 2)
    story.ended(bind, at=NOW + 2.1)
    story.ended(write, Outcome.REFUSED, at=NOW + 2.2, number=409)
    story.sees(story.bound(TRAIN, 17))
    for second in range(3, 60):
        assert [each for each in story.acts(SetPodCondition, NOW + second) if each.condition] == []

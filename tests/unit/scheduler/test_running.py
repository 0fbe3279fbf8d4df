"""While pods run: what is said of their job, and what is done before its end (S4b, S5, S6, S9, S12)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AskEviction,
    BindPod,
    EndByDeadline,
    EvictPod,
    HandDeadline,
    Outcome,
    ReadJob,
    Report,
    ReportRunning,
)
from scheduler.events import Side, SideLost
from scheduler.model import Condition, Pod, PodPhase
from tests.builders import CONFIG, OWNER, START, Story, grant, job_of, key_of, pod, without

NOW = START + 20
ENDS = NOW + 3600
ALONE = without(CONFIG, running_fresh_s=1e9)  # the round of reads is a story of its own
TRAIN = pod("train")
OWNED = pod("job-pod", owner=OWNER)


def web(name: str) -> Pod:
    return pod(name, owner=OWNER, restart_policy="Always")


def runs(story: Story, what: Pod, job_id: int = 17, *, ends: float | None = ENDS, **job: Any) -> Pod:
    """It runs since NOW, and its job was read."""
    story.world.owners[OWNER.uid] = None
    shown = replace(story.runs(what, job_id, at=NOW), started=NOW, bound_at=NOW)
    story.sees(shown)
    told(story, shown, job_id, at=NOW + 1, ends=ends, **job)
    return shown


def told(story: Story, what: Pod, job_id: int = 17, *states: str, at: float, **job: Any) -> None:
    """The job is read then."""
    given: dict[str, Any] = {"starts": NOW, "ends": ENDS, "time_limit_min": 60} | job
    story.reads(job_of(what, job_id, *states, **given), at=at, granted=grant(job_id))


def said(acts: list[Action]) -> list[tuple[str, bool, str]]:
    return [(each.condition, each.runs, each.message) for each in acts if isinstance(each, ReportRunning)]


def looks_and_learns(story: Story, what: Pod, *states: str, at: float, **job: Any) -> list[Action]:
    """It asks first whether what it knows still holds; then it acts."""
    acts = story.decides(at)
    assert [type(each) for each in acts] == [ReadJob], acts
    told(story, what, 17, *states, at=at, **job)
    story.ended(acts[0], at=at)
    return story.decides(at)


# --- a time limit (S4b) -------------------------------------------------------------------------------------------


def test_kubelet_is_told_to_end_the_pod_ten_seconds_before_slurm_does() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    assert story.decides(ENDS - 121) == []
    acts = looks_and_learns(story, shown, at=ENDS - 119)
    [hand] = [each for each in acts if isinstance(each, HandDeadline)]
    assert hand == HandDeadline(
        key_of(TRAIN), TRAIN.uid, "hpc", "train", 3590, "Slurm job 17 reaches its time limit at 01:17:00 UTC"
    )
    assert said(acts) == [
        (
            "SlurmJobEndsSoon",
            True,
            "Slurm job 17 reaches its time limit at 01:17:00 UTC: 119 s are left. The pod is ended 10 s before.",
        )
    ]
    story.ended(hand, at=ENDS - 118)
    story.sees(replace(shown, handed_deadline_s=3590))
    assert story.decides(ENDS - 60) == []


def test_an_end_that_was_put_off_is_followed_until_it_is_near() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    later = {"ends": ENDS + 1800, "time_limit_min": 90}
    acts = looks_and_learns(story, shown, at=ENDS - 119, **later)
    assert not [each for each in acts if isinstance(each, HandDeadline)]
    assert said(acts) == [
        (
            "SlurmJobRuns",
            True,
            "The time limit of Slurm job 17 is 90 minutes now, and was 60 minutes: it runs until 01:47:00 UTC.",
        )
    ]
    acts = looks_and_learns(story, shown, at=ENDS + 1800 - 100, **later)
    assert [each.seconds for each in acts if isinstance(each, HandDeadline)] == [5390]


@pytest.mark.parametrize("field", ["active_deadline_s", "handed_deadline_s"])
def test_a_nearer_deadline_of_the_pods_own_stays_and_one_written_before_is_not_written_again(field: str) -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(nearer := replace(shown, **{field: 3590}))  # type: ignore[arg-type]
    assert not [each for each in looks_and_learns(story, nearer, at=ENDS - 100) if isinstance(each, HandDeadline)]


def test_a_job_whose_turn_to_be_read_has_not_come_is_read_before_the_end_that_was_asked_for() -> None:
    story = Story(ALONE)
    story.runs(asked := pod("asked", says={"time-limit": "60"}), 17, at=NOW)
    assert story.decides(ENDS - 121) == []
    assert story.decides(ENDS - 119) == [ReadJob(17, "when does job 17 end?", key_of(asked))]


def test_a_job_that_was_read_before_its_node_was_set_up_is_read_again_before_its_end() -> None:
    """Its states have changed since (PrologSlurmctld), and where thousands run its turn may not come in time."""
    story = Story(ALONE)
    story.polls({17: "RUNNING CONFIGURING"}, at=NOW)
    shown = runs(story, TRAIN)
    told(story, shown, 17, "RUNNING", "CONFIGURING", at=NOW + 2)
    story.polls({17: "RUNNING"}, at=NOW + 5)
    assert story.decides(NOW + 5) == []
    acts = looks_and_learns(story, shown, at=ENDS - 119)
    assert [type(each) for each in acts] == [ReportRunning, HandDeadline]


def test_a_job_without_a_limit_has_no_end_to_prepare_for() -> None:
    story = Story(ALONE)
    runs(story, TRAIN, ends=NOW + 365 * 86400, time_limit_min=-1)
    assert story.decides(NOW + 365 * 86400 - 60) == []


def test_nothing_is_done_about_an_end_while_slurm_is_away() -> None:
    story = Story(ALONE)
    runs(story, TRAIN)
    story.sees(SideLost(Side.SLURM, ENDS - 130, "gone"))
    assert story.decides(ENDS - 100) == []


def test_a_timeout_that_came_all_the_same_counts_as_one() -> None:
    """No DisruptionTarget: the backoff limit of a batch Job counts it."""
    story = Story(ALONE)
    shown = runs(story, OWNED)
    story.polls({17: "TIMEOUT"}, at=NOW + 50)
    [end] = looks_and_learns(story, shown, "TIMEOUT", at=NOW + 50, reason="TimeLimit")
    why = "Slurm job 17 ended: TIMEOUT (TimeLimit)"
    assert end == EndByDeadline(key_of(OWNED), OWNED.uid, "hpc", "job-pod", why, counts=True)


def test_a_pod_that_kubelet_is_ending_when_the_timeout_comes_is_left_to_it() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, handed_deadline_s=3590))
    story.polls({17: "TIMEOUT"}, at=ENDS + 5)
    assert looks_and_learns(story, shown, "TIMEOUT", at=ENDS + 5) == []
    assert not story.acts(EndByDeadline, ENDS - 10 + 59)
    assert story.acts(EndByDeadline, ENDS - 10 + 60), "30 s of grace, and 30"


# --- services move (S4b) ------------------------------------------------------------------------------------------


def test_a_service_moves_one_replica_at_a_time_before_its_end() -> None:
    story = Story(ALONE)
    first, second = runs(story, web("web-1"), 17), runs(story, web("web-2"), 18)
    at = ENDS - 599
    for read in story.acts(ReadJob, at):
        told(story, first if read.job_id == 17 else second, read.job_id, at=at)
        story.ended(read, at=at)
    [evict] = story.acts(AskEviction, at)
    goes, stays = (first, second) if evict.name == "web-1" else (second, first)
    assert evict.reason.endswith(" reaches its time limit at 01:17:00 UTC")
    story.ended(evict, at=at)
    assert story.acts(AskEviction, at + 1) == []
    story.sees(replace(goes, deleting_at=at + 31))
    assert story.acts(AskEviction, at + 2) == []
    story.loses(goes, at + 3)
    story.sees(web("web-3"))
    assert story.acts(AskEviction, at + 4) == [], "its replacement is on its way"
    story.sees(replace(web("web-3"), node="x1", phase=PodPhase.RUNNING))
    assert [each.name for each in story.acts(AskEviction, at + 5)] == [stays.name]


def test_a_replica_moves_whatever_its_siblings_do_when_its_grace_is_all_that_is_left() -> None:
    story = Story(ALONE)
    shown = runs(story, web("web-1"))
    story.sees(web("web-2"))  # waits for room
    at = ENDS - 60
    [read] = story.acts(ReadJob, at)
    told(story, shown, at=at)
    story.ended(read, at=at)
    assert story.acts(AskEviction, at) == []
    assert story.acts(AskEviction, ENDS - 40.5) == []
    assert [each.name for each in story.acts(AskEviction, ENDS - 39.5)] == ["web-1"]


def test_a_budget_that_refuses_an_eviction_is_asked_again() -> None:
    story = Story(ALONE)
    shown = runs(story, web("web-1"))
    acts = looks_and_learns(story, shown, at=ENDS - 599)
    [evict] = [each for each in acts if isinstance(each, AskEviction)]
    story.ended(evict, Outcome.REFUSED, at=ENDS - 598, number=429, later=True)
    assert story.acts(AskEviction, ENDS - 597.5) == []
    assert story.acts(AskEviction, ENDS - 597)


# --- a preemption with grace (S5) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "kind"), [(TRAIN, EndByDeadline), (OWNED, EvictPod), (web("web"), EvictPod)])
def test_a_preemption_is_told_at_once_and_what_is_left_is_the_grace(what: Pod, kind: type[Action]) -> None:
    story = Story(ALONE)
    shown = runs(story, what)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 50)
    states = ("RUNNING", "SIGNALING")
    [end] = looks_and_learns(story, shown, *states, at=NOW + 51, preempted=NOW + 49, ends=NOW + 109)
    assert isinstance(end, kind)
    assert isinstance(end, EvictPod | EndByDeadline)
    assert end.reason == "Slurm preempts job 17: 58 s are left, until 00:18:49 UTC"
    assert getattr(end, "grace_s", 58) == 58
    assert not getattr(end, "counts", False)


def test_a_preemption_near_the_end_of_its_time_is_told_at_once_too() -> None:
    """That kubelet was handed that end is no reason to keep the pod's grace from it."""
    story = Story(ALONE)
    shown = runs(story, OWNED)
    acts = looks_and_learns(story, shown, at=ENDS - 100)
    [hand] = [each for each in acts if isinstance(each, HandDeadline)]
    story.ended(hand, at=ENDS - 100)
    assert story.acts(HandDeadline, ENDS - 99) == [], "it is waited for until the watch shows it"
    story.sees(replace(shown, handed_deadline_s=3590))
    story.polls({17: "RUNNING SIGNALING"}, at=ENDS - 95)
    signals = {"preempted": ENDS - 96, "ends": ENDS - 75}
    [end] = looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=ENDS - 95, **signals)
    assert isinstance(end, EvictPod)
    assert end.grace_s == 20


def test_another_signal_to_the_job_is_none_of_the_pods_business() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 50)
    assert looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=NOW + 51) == []


def test_another_signal_does_not_put_off_the_end_of_its_time() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "RUNNING SIGNALING"}, at=NOW + 50)
    assert looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=NOW + 51) == []
    acts = looks_and_learns(story, shown, "RUNNING", "SIGNALING", at=ENDS - 110)
    assert [type(each) for each in acts] == [ReportRunning, HandDeadline]


# --- suspended (S6) -----------------------------------------------------------------------------------------------


def test_a_suspended_job_kills_nothing_and_its_pods_say_so_until_it_runs_again() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    acts = story.decides(NOW + 2)
    assert said(acts) == [
        (
            "SlurmJobSuspended",
            False,
            "Slurm job 17 is suspended. Its pods are not: they run on, and nothing is ended. "
            "An admin resumes it (scontrol resume 17).",
        )
    ]
    assert len(acts) == 1
    assert story.decides(ENDS - 60) == [], "its time stands still"
    story.polls({17: "RUNNING"}, at=ENDS - 50)
    [read] = story.acts(ReadJob, ENDS - 48)
    told(story, shown, at=ENDS - 48, ends=ENDS + 3000)
    story.ended(read, at=ENDS - 48)
    assert said(story.decides(ENDS - 48)) == [("SlurmJobRuns", True, "Slurm job 17 runs until 02:07:00 UTC.")]


def test_a_job_that_is_suspended_before_its_pod_is_bound_waits_to_be_resumed() -> None:
    story = Story(ALONE)
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "SUSPENDED"}, at=NOW + 5)
    [said] = story.decides(NOW + 5)
    assert isinstance(said, Report)
    assert said.message == "The bind waits: an admin suspended Slurm job 17 (scontrol resume 17 ends that)."
    story.polls({17: "RUNNING"}, at=NOW + 10)
    [read] = story.acts(ReadJob, NOW + 10)
    story.reads(job_of(TRAIN, 17), at=NOW + 10, granted=grant(17))
    story.ended(read, at=NOW + 10)
    assert len(story.acts(BindPod, NOW + 10)) == 1


def test_what_an_earlier_life_said_is_not_said_again() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, on_job=Condition(False, names.SUSPENDED, "…")))
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    assert story.decides(NOW + 2) == []


def test_what_could_not_be_said_is_said_later() -> None:
    story = Story(ALONE)
    runs(story, TRAIN)
    story.polls({17: "SUSPENDED"}, at=NOW + 2)
    [say] = story.decides(NOW + 2)
    story.ended(say, Outcome.UNREACHED, at=NOW + 3)
    assert story.decides(NOW + 3) == []
    assert story.decides(NOW + 7) == [say]


# --- never started (S12) ------------------------------------------------------------------------------------------

STUCK = {"phase": PodPhase.PENDING, "waits": "container main: ImagePullBackOff", "waits_since": NOW}


def test_a_pod_that_does_not_start_says_so_after_a_minute_and_is_ended_after_ten() -> None:
    story = Story(ALONE)
    shown = runs(story, OWNED)
    story.sees(replace(shown, **STUCK))  # type: ignore[arg-type]
    assert not story.acts(ReportRunning, NOW + 59)
    assert said(story.decides(NOW + 60)) == [
        (
            "PodNotStarting",
            True,
            "Bound for Slurm job 17 since 00:17 UTC, and not started: container main: ImagePullBackOff. "
            "It is ended at 00:27 UTC if it does not start.",
        )
    ]
    assert not story.acts(EndByDeadline, NOW + 599)
    [end] = story.acts(EndByDeadline, NOW + 600)
    assert end.reason == "hpc/job-pod did not start within 600 s (container main: ImagePullBackOff)"
    assert end.counts, "its backoff limit is to end the trying"


def test_an_admin_who_has_less_patience_than_a_minute_is_obeyed() -> None:
    story = Story(without(ALONE, start_timeout_s=8.0))
    shown = runs(story, TRAIN)
    story.sees(replace(shown, **STUCK))  # type: ignore[arg-type]
    assert not story.acts(EndByDeadline, NOW + 7)
    assert len(story.acts(EndByDeadline, NOW + 8)) == 1


def test_an_admin_can_let_pods_try_for_ever() -> None:
    story = Story(without(ALONE, start_timeout_s=0.0))
    shown = runs(story, TRAIN)
    story.sees(replace(shown, **STUCK))  # type: ignore[arg-type]
    [(_, _, message)] = said(story.decides(NOW + 60))
    assert message.endswith("container main: ImagePullBackOff.")
    assert not story.acts(EndByDeadline, NOW + 3000)


def test_a_kubelet_that_says_nothing_is_no_reason_to_end_a_pod() -> None:
    """Its node may be cut off, and its containers may run."""
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, phase=PodPhase.PENDING, started=None))
    [(_, _, message)] = said(story.decides(NOW + 60))
    assert message.endswith("its node's kubelet has said nothing of it.")
    assert not story.acts(EndByDeadline, NOW + 3000)


def test_a_pod_that_starts_late_is_said_to_run() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, **STUCK))  # type: ignore[arg-type]
    story.acts(ReportRunning, NOW + 60)
    story.sees(shown)
    assert said(story.decides(NOW + 70)) == [("SlurmJobRuns", True, "Slurm job 17 runs until 01:17:00 UTC.")]


# --- crash loops (S12) ------------------------------------------------------------------------------------------------

LOOPS = "container main, which ended with exit code 1 (Error)"


def test_a_crash_loop_is_said_and_counted_and_nothing_is_ended() -> None:
    story = Story(ALONE)
    shown = runs(story, OWNED)
    story.sees(replace(shown, crashes=LOOPS))
    [say] = story.decides(NOW + 30)
    assert said([say]) == [
        (
            "PodCrashLooping",
            True,
            f"Kubelet starts a part of this pod again and again: {LOOPS}. Nothing is ended: "
            "Slurm job 17 holds its place until the pod is deleted or its own controller gives up.",
        )
    ]
    for second in range(40, 600, 40):  # it runs a moment, and crashes again
        story.sees(shown)
        assert story.decides(NOW + second) == []
        story.sees(replace(shown, crashes=LOOPS))
        assert story.decides(NOW + second + 10) == []
    story.sees(shown, replace(shown, crashes=LOOPS))
    assert story.decides(NOW + 640) == [say], "the same event, which is counted"


def test_a_crash_loop_is_over_when_there_was_none_for_long() -> None:
    story = Story(ALONE)
    shown = runs(story, TRAIN)
    story.sees(replace(shown, crashes=LOOPS))
    story.decides(NOW + 30)
    story.sees(shown)
    assert story.decides(NOW + 31) == []
    assert said(story.decides(NOW + 30 + 1200)) == [("SlurmJobRuns", True, "Slurm job 17 runs until 01:17:00 UTC.")]


# --- an admin changes its time (S9) -------------------------------------------------------------------------------


def test_the_jobs_of_running_pods_are_read_in_turn_so_that_a_new_limit_is_noticed_and_said() -> None:
    story = Story()
    shown = runs(story, TRAIN)
    assert story.decides(NOW + 29) == []
    [read] = story.decides(NOW + 31)
    assert read == ReadJob(17, "when does job 17 end?", key_of(TRAIN), lane="running", grant=False)
    told(story, shown, at=NOW + 31, ends=NOW + 1800, time_limit_min=30)
    story.ended(read, at=NOW + 31)
    message = "The time limit of Slurm job 17 is 30 minutes now, and was 60 minutes: it runs until 00:47:00 UTC."
    assert said(story.decides(NOW + 31)) == [("SlurmJobRuns", True, message)]
    assert story.decides(NOW + 90) == []
    assert [type(each) for each in story.decides(NOW + 91)] == [ReadJob]


def test_reads_of_running_jobs_are_few_however_many_run() -> None:
    story = Story()
    for number in range(40):
        runs(story, pod(f"p{number}"), 17 + number)
    assert len(story.acts(ReadJob, NOW + 31)) == 4
    assert len(story.acts(ReadJob, NOW + 31.5)) == 2


def test_where_thousands_run_an_idle_bridge_reads_one_of_them_in_several_seconds() -> None:
    story = Story()
    for number in range(1000):
        story.sees(story.bound(pod(f"p{number}"), 17 + number))
    story.polls({17 + number: "RUNNING" for number in range(1000)}, at=NOW)
    reads = 0
    for tenth in range(300):
        at = NOW + 31 + tenth / 10
        for read in story.acts(ReadJob, at):
            reads += read.lane == "running"
            story.ended(read, at=at)
    assert 24 <= reads <= 28, "a fifth of 4 a second, for 5 times as many as are read at that rate"

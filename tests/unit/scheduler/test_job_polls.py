"""What a list of all jobs shows: ends, jobs that are missing, components, and ids that have to be read (ARCHITECTURE 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.actions import CancelJob, FailByDeadline, NudgeScheduler, Outcome, ReadJob
from scheduler.apply import job_polls
from scheduler.events import JobsPolled, UndecodedItems
from scheduler.model.kubernetes import Pod
from scheduler.state.placeholder import Placeholder
from scheduler.state.world import World
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, pod
from tests.defects import Defect
from tests.unit.scheduler.test_gangs import launched

NOW = START + 20
TRAIN = pod("train")


def reads(story: Story, at: float) -> list[int]:
    return [each.job_id for each in story.acts(ReadJob, at)]


def runs_many(story: Story, *, are_read: bool = False) -> dict[int, Pod]:
    """More pods than jobs are read at once run; the last list shows their jobs and one more job.  Returns pods by job id."""
    shown = {100 + number: story.runs(pod(f"p{number}", cpu=10), 100 + number, at=NOW) for number in range(MANY)}
    story.polls(dict.fromkeys([*shown, 500], "RUNNING"), at=NOW + 1)
    if are_read:
        for job_id, each in shown.items():
            story.reads(job_of(each, job_id), at=NOW + 1, granted=grant(job_id))
    return shown


MANY = CONFIG.tuning.reads + 1


# --- ends -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("are_read", [True, False])
def test_many_ends_at_once_end_the_pods_whether_their_jobs_were_read_before_or_not(are_read: bool) -> None:
    story = Story()
    shown = runs_many(story, are_read=are_read)
    story.polls(dict.fromkeys(shown, "CANCELLED") | {500: "RUNNING"}, at=NOW + 2)
    assert story.acts(FailByDeadline, NOW + 2)


@pytest.mark.parametrize(("ended", "are_read"), [(MANY - 1, True), (MANY, False)])
def test_as_many_ends_as_reads_in_flight_are_read_so_that_the_pods_show_slurms_reason(
    ended: int, are_read: bool
) -> None:
    story = Story()
    shown = runs_many(story, are_read=True)
    over = list(shown)[:ended]
    story.polls(dict.fromkeys([*shown, 500], "RUNNING") | dict.fromkeys(over, "CANCELLED"), at=NOW + 2)
    acts = story.decides(NOW + 2)
    assert [each.job_id for each in acts if isinstance(each, ReadJob) and each.job_id in over] == (
        over if are_read else []
    )
    assert any(isinstance(each, FailByDeadline) for each in acts) is not are_read


def test_jobs_that_change_while_they_live_have_not_ended_however_many_they_are() -> None:
    """Then one of these jobs is listed as ended: only a read proves this end."""
    story = Story()
    shown = runs_many(story)
    suspended = dict.fromkeys(shown, "RUNNING SUSPENDED") | {500: "RUNNING"}
    story.polls(suspended, at=NOW + 2)
    story.plan(NOW + 2)
    story.polls(suspended | {100: "CANCELLED"}, at=NOW + 3)
    planned = story.decides(NOW + 3)
    assert not [each for each in planned if isinstance(each, FailByDeadline | CancelJob)]
    assert 100 in [each.job_id for each in planned if isinstance(each, ReadJob)]


def test_a_job_that_starts_frees_no_nodes() -> None:
    """Slurm is asked to look at its queue only if nodes were freed."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({16: "PENDING", 17: "PENDING"}, at=NOW + 1)
    story.plan(NOW + 1)
    story.polls({16: "RUNNING", 17: "PENDING"}, at=NOW + 2)
    assert not [each for second in range(2, 6) for each in story.acts(NudgeScheduler, NOW + second)]
    story.polls({16: "COMPLETED", 17: "PENDING"}, at=NOW + 7)
    assert story.acts(NudgeScheduler, NOW + 7)


def test_jobs_that_had_ended_before_this_process_began_are_not_read() -> None:
    """slurmctld lists ended jobs for minutes."""
    story = Story()
    story.polls(dict.fromkeys(range(1, 50), "COMPLETED") | {50: "RUNNING"}, at=START + 0.1)
    assert reads(story, START + 0.1) == [50]


# --- jobs that a list lacks ------------------------------------------------------------------------------------------------


def test_only_a_job_whose_item_could_not_be_decoded_is_not_missing() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.runs(pod("other"), 18, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    story.sees(JobsPolled(NOW + 2, NOW + 2, {}, undecoded=UndecodedItems(frozenset({17}))))
    assert [each.job_id for each in story.acts(ReadJob, NOW + 2) if each.bucket == "missing"] == [18]


def test_a_pod_whose_lost_bind_takes_effect_after_slurm_forgot_its_ended_job_is_ended_at_once() -> None:
    """The record of the end is kept until it is known that the bind had no effect."""
    story = Story()
    bind = story.binds(TRAIN, 17, at=NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + 1)
    story.polls({}, at=NOW + 2)
    story.plan(NOW + 2)
    story.sees(story.bound(TRAIN, 17))
    [end] = story.acts(FailByDeadline, NOW + 3)
    assert "Slurm job 17 ended: CANCELLED" in end.reason


@pytest.mark.parametrize("accounting", [True, False])
def test_the_record_of_an_ended_job_in_which_no_pod_ran_is_forgotten_with_the_job(accounting: bool) -> None:
    """No end of a pod has to be written to accounting."""
    story = Story(replace(CONFIG, accounting=accounting))
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + 1)
    story.polls({}, at=NOW + 2)
    assert 17 not in story.world.placeholders


def test_an_ended_job_is_forgotten_although_a_running_pod_of_another_workload_shows_its_id() -> None:
    """A manifest was copied with its annotations.  The end of that pod is not the end of this job."""
    story = Story(replace(CONFIG, accounting=True))
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + 1)
    story.sees(story.bound(pod("copy"), 17))
    story.polls({}, at=NOW + 2)
    assert 17 not in story.world.placeholders


# --- heterogeneous jobs -----------------------------------------------------------------------------------------------------


def test_a_component_that_changes_while_it_lives_does_not_end_the_job_of_its_gang() -> None:
    story = Story()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    story.polls({17: "RUNNING", 18: "RUNNING SUSPENDED"}, at=NOW + 20)
    assert not story.acts(CancelJob, NOW + 20)
    story.polls({17: "RUNNING", 18: "NODE_FAIL"}, at=NOW + 21)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 21)] == [17]


def test_of_a_heterogeneous_job_many_ends_at_once_do_not_prove_its_end() -> None:
    """Its other component may run on: a read shows that."""
    story = Story()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    shown = {100 + number: story.runs(pod(f"p{number}", cpu=10), 100 + number, at=NOW + 2) for number in range(MANY)}
    live = {17: "RUNNING", 18: "RUNNING", 500: "RUNNING", **dict.fromkeys(shown, "RUNNING")}
    story.polls(live, at=NOW + 3)
    story.polls(live | dict.fromkeys([17, *shown], "CANCELLED"), at=NOW + 4)
    ended = {each.name for each in story.acts(FailByDeadline, NOW + 4)}
    assert ended
    assert not ended & {"w-0", "w-1", "w-2"}


# --- what a list shows of one job -------------------------------------------------------------------------------------


KEY = key_of(TRAIN)


def having(*jobs: Placeholder) -> Story:
    """The pod has these jobs, whose answers no list has shown yet."""
    story = Story(checked=False)
    story.sees(TRAIN)
    for each in jobs:
        story.world.placeholders[each.id] = each
        story.world.workloads[KEY].jobs.add(each.id)
        (story.world.absent if each.absent else story.world.expected).add(each.id)
    story.world.dirty.clear()
    return story


def job(states: str = "RUNNING", *, job_id: int = 17, since: float = START, **fields: Any) -> Placeholder:
    return Placeholder(job_id, KEY, "alice", frozenset(states.split()), since, **fields)


@pytest.mark.parametrize(
    ("known", "foreign", "shown", "states", "is_visited"),
    [
        (job(), False, "CANCELLED", "CANCELLED", True),
        (job(since=NOW), False, "CANCELLED", "RUNNING", False),
        (job(), False, "RUNNING", "RUNNING", False),
        (job(absent_first=START, confirmed_gone=True), False, "RUNNING", "RUNNING", True),
        (job(), True, "CANCELLED", "CANCELLED", True),
        (job(denied=True), True, "CANCELLED", "RUNNING", True),
    ],
    ids=[
        "it ended",
        "the list is older",
        "nothing changed",
        "an admin said that it is gone",
        "it was foreign",
        "it is foreign",
    ],
)
def test_a_list_changes_a_job_if_it_is_newer_and_shows_other_states_or_that_the_job_lives(
    known: Placeholder, foreign: bool, shown: str, states: str, is_visited: bool
) -> None:
    known = replace(known)
    story = having(known)
    if foreign:
        story.world.foreign.add(17)
    story.polls({17: shown}, at=NOW)
    assert known.states == {states}
    assert (KEY in story.world.dirty) is is_visited
    assert (known.confirmed_gone, known.absent) == (False, known.denied)


@pytest.mark.parametrize(("since", "is_missing"), [(NOW, False), (NOW - 0.1, True)])
def test_a_list_that_was_requested_before_the_job_was_known_does_not_lack_it(since: float, is_missing: bool) -> None:
    known = job(since=since)
    having(known).polls({}, at=NOW)
    assert known.absent is is_missing


def test_an_ended_job_that_ends_otherwise_frees_no_nodes_a_second_time() -> None:
    story = having(job("CANCELLED COMPLETING", end_proven=True))
    story.polls({17: "CANCELLED COMPLETING"}, at=NOW)
    freed_at = story.world.freed_at
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    assert story.world.freed_at == freed_at


def test_only_components_of_the_job_that_ended_are_left_over() -> None:
    story = having()
    story.polls(dict.fromkeys(range(17, 21), "RUNNING"), at=NOW)
    story.world.first_listed_at.clear()
    story.world.component_of = {18: 17, 20: 19}
    story.polls({17: "CANCELLED"} | dict.fromkeys(range(18, 21), "RUNNING"), at=NOW + 1)
    assert set(story.world.first_listed_at) == {18}


@pytest.mark.parametrize(
    ("fields", "trust_since", "is_proven"),
    [
        ({}, START, True),
        ({}, START + 0.1, False),
        ({"since": NOW}, START, False),
        ({"since": NOW - 0.1}, START, True),
        ({"denied": True}, START, False),
    ],
)
def test_of_many_ends_at_once_a_list_proves_those_of_jobs_that_were_known_before_it_and_since_slurmctld_lost_its_state(
    fields: dict[str, Any], trust_since: float, is_proven: bool
) -> None:
    jobs = [job("RUNNING", job_id=100 + number, **fields) for number in range(MANY)]
    story = having(*jobs)
    lives = {99: "RUNNING", **{each.id: "RUNNING" for each in jobs}}
    story.world.polled = JobsPolled(NOW - 1, NOW - 1, {job_id: frozenset({"RUNNING"}) for job_id in lives})
    story.world.states = story.world.polled.states
    story.world.highest, story.world.trust_since = 200, trust_since
    story.polls({99: "RUNNING", **{each.id: "CANCELLED" for each in jobs}}, at=NOW)
    assert {each.end_proven for each in jobs} == {is_proven}


def test_lists_after_the_first_ones_begin_no_search_for_jobs_of_former_users() -> None:
    story = Story(pods=(pod("old", created=START - 60),))
    story.polls({17: "RUNNING"}, at=NOW)
    until = story.world.scan_until
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    assert story.world.scan_until == until


def test_if_it_cannot_be_judged_how_many_jobs_are_missing_no_pod_ends_for_a_missing_job_since_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(world: World, at: float) -> None:
        raise Defect(at)

    story = Story(guarded=True)
    monkeypatch.setattr(job_polls, "judge_absence", fails)
    world = story.world
    for at in (NOW, NOW + 1):
        story.polls({}, at=at)
        assert (world.held_back_since, world.hints_held_back_since) == (NOW, NOW)

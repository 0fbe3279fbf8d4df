"""What the rules of all phases do to a job before they rely on it: search it, read it, end its twins (ARCHITECTURE 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.actions import Action, BindPod, CancelJob, ReadJob
from scheduler.decide import decide
from scheduler.events import OutageBegan, Side
from scheduler.model.clocks import EXACT_S
from scheduler.model.slurm import JobSpec
from scheduler.rules.decision import Decision
from scheduler.rules.identity import (
    cancel,
    cancel_of_earlier_pods,
    cancel_twins,
    cancel_twins_of_others,
    find_unseen_job,
    is_trusted,
    read_job,
)
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.in_flight import InFlight
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from tests.builders import START, Story, grant, job_of, key_of, pod

NOW = START + 60  # the quiet period is over
TRAIN = pod("train", created=START + 10)


def known(story: Story, job_id: int, *states: str, key: str | None = key_of(TRAIN), **fields: Any) -> Placeholder:
    """A job of the workload, as it was read after slurmctld was away last."""
    found = Placeholder(job_id, key, "alice", frozenset(states or ("RUNNING",)), known_since=START + 20)
    found.job = job_of(TRAIN, job_id, *states)
    for name, value in fields.items():
        setattr(found, name, value)
    story.world.placeholders[job_id] = found
    story.world.workloads[key_of(TRAIN)].jobs.add(job_id)
    return found


@pytest.fixture
def story() -> Story:
    story = Story()
    story.sees(TRAIN)
    return story


@pytest.fixture
def workload(story: Story) -> Workload:
    return story.world.workloads[key_of(TRAIN)]


def actions(decision: Decision | None) -> list[Action]:
    return list(decision.actions) if decision is not None else []


def in_flight(workload: Workload, job: Placeholder) -> None:
    action = CancelJob(workload.key, job.id, "name", "alice", "test")
    workload.in_flight = InFlight(action, NOW)


# --- a job that may exist -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "fields", "read"),
    [
        ("RUNNING", {"key": None}, True),
        ("CANCELLED", {"key": None}, False),
        ("RUNNING", {"absent_first": NOW - 1}, True),
        ("RUNNING", {"denied": True}, True),
        ("CANCELLED", {"denied": True}, False),
        ("RUNNING", {}, False),
        ("RUNNING", {"denied": True, "absent_first": NOW - 9, "absent_last": NOW - 1}, False),  # lost
        ("RUNNING", {"key": "other", "denied": True}, False),
        ("RUNNING", {"key": "other"}, False),
    ],
)
def test_only_a_job_that_may_be_the_pods_and_is_in_doubt_is_read_before_another_is_asked_for(
    story: Story, workload: Workload, states: str, fields: dict[str, Any], read: bool
) -> None:
    known(story, 17, states, **fields)
    found = find_unseen_job(workload, Pass(story.world, NOW))
    assert (found is not None) is read
    assert [type(each) for each in actions(found)] == [ReadJob] * read


def test_nothing_is_read_of_slurm_while_it_is_away(story: Story, workload: Workload) -> None:
    job = known(story, 17, key=None)
    assert actions(read_job(job, workload, Pass(story.world, NOW), "why"))
    story.sees(OutageBegan(Side.SLURM, NOW, "away"))
    assert actions(read_job(job, workload, Pass(story.world, NOW), "why")) == []


def test_a_job_whose_read_did_not_help_is_read_again_after_a_while(story: Story, workload: Workload) -> None:
    job, again_at = known(story, 17, key=None, read_began=NOW - 1), NOW - 1 + story.world.config.tuning.absent_s
    decision = read_job(job, workload, Pass(story.world, NOW), "why")
    assert (actions(decision), decision.wake_at) == ([], again_at)
    assert actions(read_job(job, workload, Pass(story.world, again_at), "why"))
    job.granted_at = NOW  # it is news that the job holds nodes
    assert actions(read_job(job, workload, Pass(story.world, NOW), "why"))


@pytest.mark.parametrize(("absent_first", "bucket"), [(NOW - 5, "missing"), (None, "check")])
def test_reads_of_missing_jobs_take_their_own_turns(
    story: Story, workload: Workload, absent_first: float | None, bucket: str
) -> None:
    job = known(story, 17, key=None, absent_first=absent_first)
    [read] = actions(read_job(job, workload, Pass(story.world, NOW), "why"))
    assert isinstance(read, ReadJob)
    assert read.bucket == bucket


# --- the end of a job ---------------------------------------------------------------------------------------------------


def test_a_job_is_cancelled_by_what_is_known_of_it(story: Story, workload: Workload) -> None:
    job = known(story, 17)
    [action] = actions(cancel(job, workload, Pass(story.world, NOW), "why"))
    assert isinstance(action, CancelJob)
    assert (action.job_id, action.user) == (17, "alice")


def test_a_job_that_was_read_before_slurmctld_was_away_is_read_again_and_not_cancelled(
    story: Story, workload: Workload
) -> None:
    job = known(story, 17, known_since=START - 1)
    story.world.trust_since = START + 5
    [action] = actions(cancel(job, workload, Pass(story.world, NOW), "why"))
    assert isinstance(action, ReadJob)
    job.known_since = START + 5
    assert is_trusted(job, Pass(story.world, NOW)), "it was read when slurmctld was back"


def test_no_job_is_cancelled_while_another_action_of_its_workload_is_in_flight_or_slurm_is_away(
    story: Story, workload: Workload
) -> None:
    job = known(story, 17)
    in_flight(workload, job)
    assert actions(cancel(job, workload, Pass(story.world, NOW), "why")) == []
    workload.in_flight = None
    story.sees(OutageBegan(Side.SLURM, NOW, "away"))
    assert actions(cancel(job, workload, Pass(story.world, NOW), "why")) == []


# --- twins --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "fields", "ends"),
    [("PENDING", {}, True), ("CANCELLED", {}, False), ("PENDING", {"key": "other"}, False)],
)
def test_a_live_twin_of_the_job_that_counts_is_ended(
    story: Story, workload: Workload, states: str, fields: dict[str, Any], ends: bool
) -> None:
    keep = known(story, 17)
    twin = known(story, 18, states, **fields)
    assert [each.job_id for each in actions(cancel_twins(workload, keep, Pass(story.world, NOW)))] == [18] * ends
    in_flight(workload, twin)
    assert cancel_twins(workload, keep, Pass(story.world, NOW)) is None, "one thing at a time"


@pytest.mark.parametrize(
    ("states", "fields", "ends"),
    [
        ("PENDING", {"user": "bob"}, True),
        ("PENDING", {"user": "alice"}, False),
        ("RUNNING", {"user": "bob"}, False),
        ("CANCELLED", {"user": "bob"}, False),
        ("PENDING", {"user": "bob", "key": "other"}, False),
    ],
)
def test_a_waiting_twin_of_another_user_is_ended_because_singleton_does_not_hold_it_back(
    story: Story, workload: Workload, states: str, fields: dict[str, Any], ends: bool
) -> None:
    keep = known(story, 17)
    twin = known(story, 18, states, **fields)
    found = cancel_twins_of_others(workload, keep, Pass(story.world, NOW))
    assert [each.job_id for each in actions(found)] == [18] * ends
    in_flight(workload, twin)
    assert cancel_twins_of_others(workload, keep, Pass(story.world, NOW)) is None


@pytest.mark.parametrize("has_twin", [True, False])
def test_a_pod_is_bound_after_the_waiting_twin_of_another_user_was_ended(
    story: Story, workload: Workload, has_twin: bool
) -> None:
    keep = known(story, 17, grant=grant(17), read_began=NOW, asked_for=frozenset({TRAIN.uid}))
    keep.spec = JobSpec(keep.name, "alice", 1, 100)
    if has_twin:
        known(story, 18, "PENDING", user="bob")
    story.world.refresh(workload)
    acts = [each for each in decide(story.world, NOW).actions if isinstance(each, BindPod | CancelJob)]
    assert [(type(each), each.job_id) for each in acts] == [(CancelJob, 18) if has_twin else (BindPod, 17)]


# --- the job of pods that are gone --------------------------------------------------------------------------------------


def earlier(story: Story, submitted: float | None, **fields: Any) -> Placeholder:
    """A job of the name of the pod, which a previous process submitted; both clocks are known."""
    for clock in story.world.clocks.values():
        clock.is_known = True
    read = job_of(TRAIN, 17, submitted=submitted)
    return known(story, 17, job=read, grant=grant(17), **fields)


def ends_it(story: Story, workload: Workload, job: Placeholder) -> bool:
    return bool(actions(cancel_of_earlier_pods(workload, job, Pass(story.world, NOW))))


@pytest.mark.parametrize(("before_s", "ends"), [(60, True), (EXACT_S, False), (0, False), (-5, False)])
def test_a_job_that_is_older_than_all_its_pods_was_submitted_for_others(
    story: Story, workload: Workload, before_s: float, ends: bool
) -> None:
    earlier(story, None)  # the clocks are known
    created = story.world.created_at(TRAIN)
    assert ends_it(story, workload, earlier(story, created - before_s)) is ends


def test_a_job_that_this_process_submitted_or_saw_waiting_with_its_pods_stays_theirs(
    story: Story, workload: Workload
) -> None:
    spec = next(each.spec for each in story.decides(NOW) if hasattr(each, "spec"))
    workload.in_flight = None
    assert ends_it(story, workload, earlier(story, START - 60))
    assert not ends_it(story, workload, earlier(story, START - 60, spec=spec))
    assert not ends_it(story, workload, earlier(story, START - 60, adopted_as=spec))


def test_a_job_of_which_the_age_is_not_known_stays(story: Story, workload: Workload) -> None:
    assert not ends_it(story, workload, earlier(story, None))
    job = earlier(story, START - 60)
    job.job = None
    assert not ends_it(story, workload, job)


def test_a_job_for_which_a_pod_is_bound_stays(story: Story, workload: Workload) -> None:
    story.sees(replace(TRAIN, node="x1"))
    assert not ends_it(story, workload, earlier(story, START - 60))


def test_without_the_clocks_of_both_clusters_no_ages_are_compared(story: Story, workload: Workload) -> None:
    job = earlier(story, START - 60)
    story.world.clocks[Side.SLURM].is_known = False
    assert not ends_it(story, workload, job)

"""The phase of a workload, derived from facts; every combination has one answer (ARCHITECTURE 3)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.decide import RULES
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.state.phase import Phase, chosen, phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from tests.builders import pod

ABSENT_S = 2.0
KEY = "key"
PENDING = pod("a")
BOUND = pod("a", node="x1", phase=PodPhase.RUNNING)


def job(job_id: int = 17, *states: str, key: str | None = KEY, **fields: Any) -> Placeholder:
    found = Placeholder(job_id, key, "alice", frozenset(states or ("RUNNING",)), known_since=0.0)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def stands(pods: list[Pod], *jobs: Placeholder, hint: int | None = None) -> Phase:
    workload = Workload(KEY, pods={each.uid: each for each in pods}, jobs={each.id for each in jobs}, hint=hint)
    return phase(workload, {each.id: each for each in jobs}, ABSENT_S)


PROVEN = {"ended_seen": 5.0, "end_proven": True}
LOST = {"denied": True, "absent_first": 5.0, "absent_last": 7.0}


@pytest.mark.parametrize(
    ("pods", "jobs", "where"),
    [
        pytest.param([], [], Phase.DONE, id="nothing"),
        pytest.param([], [job()], Phase.DONE, id="a job without a pod"),
        pytest.param([pod(phase=PodPhase.SUCCEEDED, node="x1")], [job()], Phase.DONE, id="succeeded"),
        pytest.param([pod(phase=PodPhase.FAILED, node="x1")], [], Phase.DONE, id="failed"),
        pytest.param([pod(deleting_at=1.0)], [job(17, "PENDING")], Phase.DONE, id="deleted before it was bound"),
        pytest.param([pod(deleting_at=1.0, node="x1")], [job()], Phase.BOUND, id="terminating on its node"),
        pytest.param([pod(gated=True)], [], Phase.GATHERING, id="gated"),
        pytest.param([PENDING], [], Phase.UNSUBMITTED, id="nothing asked"),
        pytest.param([PENDING], [job(17, "PENDING")], Phase.QUEUED, id="waits in Slurm"),
        pytest.param([PENDING], [job(17, "PENDING", key=None)], Phase.UNSUBMITTED, id="only hinted at"),
        pytest.param([PENDING], [job(17, "PENDING", key="other")], Phase.UNSUBMITTED, id="another's job"),
        pytest.param([PENDING], [job(17, "PENDING", absent_first=5.0)], Phase.UNSUBMITTED, id="absent"),
        pytest.param([PENDING], [job(17, "RUNNING", denied=True)], Phase.UNSUBMITTED, id="denied"),
        pytest.param([PENDING], [job(17, "CANCELLED")], Phase.UNSUBMITTED, id="ended"),
        pytest.param([PENDING], [job(17, "CANCELLED", "COMPLETING")], Phase.UNSUBMITTED, id="ended, two states"),
        pytest.param([PENDING], [job(17, "RUNNING")], Phase.GRANTED, id="granted"),
        pytest.param([PENDING], [job(17, "RUNNING", "CONFIGURING")], Phase.GRANTED, id="granted, two states"),
        pytest.param([PENDING], [job(17, "SUSPENDED")], Phase.GRANTED, id="suspended holds its nodes"),
        pytest.param([BOUND], [job(17, "RUNNING")], Phase.BOUND, id="runs"),
        pytest.param([BOUND], [], Phase.BOUND, id="no evidence is no revocation"),
        pytest.param([BOUND], [job(17, "RUNNING", key=None)], Phase.BOUND, id="a hint is enough to leave in peace"),
        pytest.param([BOUND], [job(17, "CANCELLED")], Phase.BOUND, id="ended, says a poll alone"),
        pytest.param([BOUND], [job(17, "CANCELLED", **PROVEN)], Phase.ORPHANED, id="ended, and read"),
        pytest.param([BOUND], [job(17, "RUNNING", absent_first=5.0)], Phase.BOUND, id="absent once"),
        pytest.param(
            [BOUND], [job(17, "RUNNING", absent_first=5.0, absent_last=9.0)], Phase.BOUND, id="absent, not read"
        ),
        pytest.param([BOUND], [job(17, "RUNNING", denied=True)], Phase.BOUND, id="denied, never absent"),
        pytest.param(
            [BOUND], [job(17, **LOST | {"absent_last": 6.9})], Phase.BOUND, id="absent twice, too close together"
        ),
        pytest.param([BOUND], [job(17, **LOST)], Phase.ORPHANED, id="absent twice, and denied"),
        pytest.param([BOUND], [job(17, "CANCELLED", key="other", **PROVEN)], Phase.BOUND, id="another's job ended"),
    ],
)
def test_every_combination_has_one_answer(pods: list[Pod], jobs: list[Placeholder], where: Phase) -> None:
    assert stands(pods, *jobs) is where


def test_pods_bound_for_one_job_are_not_orphaned_by_the_end_of_another() -> None:
    older, own = job(17, "CANCELLED", **PROVEN), job(18, "RUNNING")
    assert stands([BOUND], older, own, hint=18) is Phase.BOUND
    assert stands([BOUND], older, own, hint=17) is Phase.ORPHANED


def test_where_the_job_is_not_known_all_of_them_must_have_ended() -> None:
    assert stands([BOUND], job(17, "CANCELLED", **PROVEN), job(18, "RUNNING")) is Phase.BOUND
    assert stands([BOUND], job(17, "CANCELLED", **PROVEN), job(18, "TIMEOUT", **PROVEN)) is Phase.ORPHANED


def test_a_job_that_only_a_hint_names_and_that_ended_does_not_orphan_pods_whose_own_job_runs() -> None:
    hinted = job(17, "CANCELLED", key=None, **PROVEN)
    assert stands([BOUND], hinted, job(18, "RUNNING"), hint=17) is Phase.BOUND


def test_a_job_that_is_forgotten_already_says_nothing() -> None:
    workload = Workload(KEY, pods={BOUND.uid: BOUND}, jobs={17})
    assert phase(workload, {}, ABSENT_S) is Phase.BOUND


def test_where_some_members_run_and_their_job_waits_again_none_is_bound() -> None:
    """Slurm requeued the job: it holds no nodes for the other members."""
    assert stands([BOUND, pod("b")], job(17, "PENDING")) is Phase.BOUND
    assert stands([BOUND, pod("b")], job(17, "RUNNING")) is Phase.GRANTED


ENDED = ("CANCELLED",)


@pytest.mark.parametrize(
    ("jobs", "where"),
    [
        pytest.param(
            [job(17, *ENDED, key=None, followed_by={KEY}, **PROVEN)], Phase.ORPHANED, id="followed, and ended"
        ),
        pytest.param([job(17, *ENDED, key=None, **PROVEN)], Phase.BOUND, id="ended, and not followed"),
        pytest.param([job(17, key=None, followed_by={KEY})], Phase.BOUND, id="followed, and runs"),
        pytest.param(
            [job(17, *ENDED, key=None, followed_by={KEY}, **PROVEN), job(18)], Phase.BOUND, id="their own job runs"
        ),
        pytest.param(
            [job(17, *ENDED, key=None, followed_by={KEY}, **PROVEN), job(18, key="other")],
            Phase.ORPHANED,
            id="a job of other pods runs",
        ),
        pytest.param(
            [job(17, *ENDED, key=None, **PROVEN), job(18, *ENDED, followed_by={KEY}, **PROVEN)],
            Phase.BOUND,
            id="they follow another job than the one that they name",
        ),
    ],
)
def test_a_renamed_job_orphans_pods_only_if_they_follow_it(jobs: list[Placeholder], where: Phase) -> None:
    workload = Workload(KEY, pods={BOUND.uid: BOUND}, jobs={each.id for each in jobs}, hint=17, renamed=17)
    assert phase(workload, {each.id: each for each in jobs}, ABSENT_S) is where


def test_a_job_that_was_renamed_before_the_pods_named_another_one_does_not_hide_the_end_of_that() -> None:
    workload = Workload(KEY, pods={BOUND.uid: BOUND}, jobs={17}, hint=17, renamed=16)
    assert phase(workload, {17: job(17, *ENDED, **PROVEN)}, ABSENT_S) is Phase.ORPHANED


def test_a_bind_that_the_watch_has_not_shown_yet_counts() -> None:
    workload = Workload(KEY, pods={PENDING.uid: PENDING}, jobs={17}, bound={PENDING.uid: "x1"})
    assert phase(workload, {17: job()}, ABSENT_S) is Phase.BOUND


def test_the_job_that_counts_holds_nodes_and_is_the_oldest() -> None:
    workload = Workload(KEY)
    waits, holds, later = job(17, "PENDING"), job(18, "RUNNING"), job(19, "RUNNING")
    assert chosen(workload, [waits, holds, later]) is holds
    assert chosen(workload, [later, holds]) is holds
    assert chosen(workload, [job(20, "PENDING"), waits]) is waits
    assert chosen(workload, [job(17, "CANCELLED"), job(18, key=None), job(19, key="other")]) is None


def test_there_is_one_rule_a_phase() -> None:
    assert set(RULES) == set(Phase)

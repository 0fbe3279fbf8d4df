"""Two bridges: a forged log in which one touches the pods or the jobs of the other one is found (K1, V6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.checker.forged import BRIDGE, EPOCH, SECOND, Run, key, mark

ALICE, BOB, ADMIN = 2001, 2002, 64030
POLICIES = {
    BRIDGE: {"rules": [{"namespaces": ["alice-*"], "user": "alice"}]},
    SECOND: {"rules": [{"namespaces": ["alice-*"], "user": "bob"}]},
}


@pytest.fixture
def run() -> Run:
    """Two bridges with different users.  The first one bound the pod "mine", for job 7, and the second one "theirs"."""
    run = Run(policy=POLICIES[BRIDGE])
    run.journal.policies[SECOND] = [(EPOCH - 1, POLICIES[SECOND])]
    run.second_bridge(0.5)
    for number, (name, scheduler, user) in enumerate((("mine", BRIDGE, "alice"), ("theirs", SECOND, "bob")), 7):
        uid = run.pod(1, name, scheduler=scheduler)
        run.submit(1.5, number, uid, user, name=f"alice-x/{name}~{mark(scheduler)}.{key(uid)}")
        run.grant(1.8, number, f"k{number}")
        run.bind(2, name, f"k{number}", number, by=scheduler)
    return run


def test_bridges_that_leave_each_other_alone_break_nothing(run: Run) -> None:
    for number, (name, user) in enumerate((("mine", ALICE), ("theirs", BOB)), 7):
        run.phase(20, name, "Succeeded")
        run.cancel(21, number, by=user)
    verdict = run.verdict()
    assert verdict.broken == []
    assert (verdict.judged["K1"], verdict.judged["V6"]) == (4, 2)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda run: run.annotate(30, "mine", by=SECOND, job_since="1"), "given other annotations"),
        (lambda run: run.annotate(30, "mine", by=SECOND, job_since="1", code=504), "given other annotations"),
        (lambda run: run.explain(30, "mine", by=SECOND), "given a condition"),
        (lambda run: run.deadline(30, "mine", 60, by=SECOND), "given a deadline"),
        (lambda run: run.evict(30, "mine", by=SECOND), "evicted"),
        (lambda run: run.delete(30, "mine", by=SECOND), "deleted"),
        (lambda run: run.bind(30, "mine", "k7", 7, by=SECOND), "bound"),
    ],
)
def test_a_write_on_a_pod_of_another_bridge_is_found(run: Run, write: Callable[[Run], None], what: str) -> None:
    write(run)
    [sentence] = [each for each in run.broken() if each.startswith("K1")]
    assert sentence.startswith(
        f"K1: pod alice-x/mine with schedulerName {BRIDGE} was {what} at 08:00:30.000 (audit.log:"
    )
    assert sentence.endswith(f"by the bridge with schedulerName {SECOND}")


def test_a_refused_write_on_a_pod_of_another_bridge_changed_nothing(run: Run) -> None:
    run.annotate(30, "mine", by=SECOND, job_since="1", code=403)
    assert run.broken() == []


def test_a_pod_of_no_bridge_may_be_reported_and_not_bound(run: Run) -> None:
    run.pod(3, "stray", scheduler="default-scheduler", silent=True)
    run.explain(4, "stray")
    assert run.broken() == []
    run.bind(5, "stray", "k7", 7)
    assert [each[:2] for each in run.broken()] == ["K1", "V2"]


def test_a_job_that_is_cancelled_as_its_user_while_its_bridge_does_not_run_is_found(run: Run) -> None:
    run.phase(20, "theirs", "Succeeded")
    run.second_bridge_ends(22)
    run.cancel(40, 8, by=BOB)
    [sentence] = run.broken()
    assert sentence.startswith("V6: job 8 (alice-x/theirs~")
    assert sentence.endswith(
        "was cancelled by another bridge at 08:00:40.000 (slurmctld.log:5): its bridge did not run"
    )


@pytest.mark.parametrize(
    ("ends", "by", "fault"),
    [(22, ADMIN, (0, 0)), (38, BOB, (0, 0)), (22, BOB, (30, 50))],
    ids=["by an admin", "just after its bridge ended", "while something is broken on purpose"],
)
def test_a_job_that_another_bridge_need_not_have_cancelled_is_no_violation(
    run: Run, ends: float, by: int, fault: tuple[float, float]
) -> None:
    run.phase(20, "theirs", "Succeeded")
    run.second_bridge_ends(ends)
    run.journal.faults.append((EPOCH + fault[0], EPOCH + fault[1]))
    run.cancel(40, 8, by=by)
    assert run.broken() == []


@pytest.mark.parametrize(
    ("uid", "why"), [(ALICE, "alice is a user of another bridge"), (BOB, "its bridge did not run")]
)
def test_a_job_that_another_bridge_changes_is_found(run: Run, uid: int, why: str) -> None:
    run.phase(20, "theirs", "Succeeded")
    run.second_bridge_ends(22)
    run.log(40, "_update_job: setting comment to hello for JobId=8")
    run.log(40, f"_slurm_rpc_update_job: complete JobId=8 uid={uid} usec=46")
    [sentence] = run.broken(45)
    assert sentence.startswith("V6: job 8 (alice-x/theirs~")
    assert sentence.endswith(f"was changed by another bridge at 08:00:40.000 (slurmctld.log:6): {why}")


def test_a_job_of_a_user_whom_only_the_other_bridge_has_is_foreign(run: Run) -> None:
    run.submit(3, 9, "", "bob", name=f"alice-x/odd~{mark(BRIDGE)}.{key('odd')}")
    run.grant(4, 9, "k9")
    run.cancel(5, 9, by=BOB)
    assert [each[:2] for each in run.broken(20)] == ["V6", "V8"]

"""V7: the times at which a bridge may end a pod whose job lives, and a job that the bridge cancels while its pod runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.checker.forged import EPOCH, RING, SECOND, Run


def _owned(group: str) -> dict[str, Any]:
    """Metadata of a pod with a controller."""
    return {"ownerReferences": [{"apiVersion": f"{group}/v1", "kind": "X", "name": "x", "controller": True}]}


def _bound(*, limit: str = "01:00:00", starts: bool = True, **pod: Any) -> Run:
    """A pod that is bound for its job 7 at second 2; the job has its node since second 0."""
    run = Run()
    run.submit(0, 7, run.pod(0, "train", **pod), Timelimit=limit)
    run.grant(0, 7, "k1")
    run.bind(2, "train", "k1", 7, starts=starts)
    return run


def _found(run: Run, until: float) -> list[str]:
    return [each[:2] for each in run.broken(until) if each.startswith("V7")]


@pytest.mark.parametrize(("at", "found"), [(2.5, ["V7"]), (590, ["V7"]), (602, [])])
def test_a_pod_that_has_not_started_may_be_ended_after_ten_minutes(at: float, found: list[str]) -> None:
    run = _bound(starts=False)
    run.delete(at, "train", by="slurm-bridge")
    assert _found(run, at + 2) == found


@pytest.mark.parametrize(
    ("tuned_at", "seconds", "found"), [(1, 8, []), (1, 30, ["V7"]), (1, 0, ["V7"]), (15, 600, []), (-400, 600, ["V7"])]
)
def test_the_setting_of_the_bridge_says_when(tuned_at: float, seconds: float, found: list[str]) -> None:
    """A changed setting may have effects for a while: until second 15 it was 8 seconds."""
    run = _bound(starts=False)
    run.tune(-500, start_timeout_s=8)
    run.tune(-499 if tuned_at == 1 else tuned_at, start_timeout_s=seconds)
    run.delete(20, "train", by="slurm-bridge")
    assert _found(run, 22) == found


def test_a_pod_that_has_started_may_be_ended_with_a_pod_of_its_gang_that_has_not() -> None:
    run = Run()
    for number in range(2):
        run.pod(0, f"ring{number}", gang="ring", size=2)
    run.submit(0, 7, "", name=RING)
    run.grant(1, 7, "k1", "cpu=2,mem=128M,node=1")
    run.bind(2, "ring0", "k1", 7, size=2)
    run.bind(2, "ring1", "k1", 7, size=2, starts=False)
    run.delete(610, "ring0", by="slurm-bridge")
    assert _found(run, 612) == []
    run.delete(300, "ring0", by="slurm-bridge")
    assert _found(run, 612) == ["V7"]


@pytest.mark.parametrize(
    ("at", "seconds", "found"),
    [(3480, 3586, []), (3400, 3586, ["V7"]), (3480, 3500, ["V7"]), (1900, 3586, ["V7"]), (1900, 60, ["V7"])],
    ids=["in time", "given too early", "for a time that is too early", "in the second half", "at once"],
)
def test_a_deadline_for_the_time_limit_is_given_shortly_before_it(at: float, seconds: int, found: list[str]) -> None:
    run = _bound()
    run.deadline(at, "train", seconds)
    assert _found(run, at + 1) == found


@pytest.mark.parametrize(
    ("at", "seconds", "found"),
    [(350, 376, []), (200, 376, ["V7"]), (350, 250, ["V7"])],
    ids=["in time", "given too early", "for a time that is too early"],
)
def test_the_end_of_a_running_job_may_be_earlier_than_its_changed_time_limit_says(
    at: float, seconds: int, found: list[str]
) -> None:
    """scontrol update EndTime: the job ends 89 s before its time limit of 8 minutes, which stays."""
    run = _bound(limit="00:08:00")
    run.log(100, "sched: _update_job: setting time_limit to 8 for JobId=7")
    run.deadline(at, "train", seconds)
    assert _found(run, at + 1) == found


def test_the_time_limit_before_the_first_change_is_not_known() -> None:
    """It was two minutes when the pod got its deadline."""
    run = _bound(limit="01:00:00")
    run.deadline(60, "train", 100)
    run.log(70, "sched: _update_job: setting time_limit to 60 for JobId=7")
    assert _found(run, 80) == []
    run.delete(75, "train", by="slurm-bridge")
    assert _found(run, 80) == ["V7"], "a time limit is no reason to delete a pod"


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, ["V7"]),
        ({"signal": "TERM@900"}, []),
        ({"signal": "900"}, []),
        ({"signal": "TERM"}, ["V7"]),
        ({"grace": 900}, []),
        ({"meta": _owned("batch")}, ["V7"]),
        ({"meta": _owned("batch"), "owner": "TERM@900"}, []),
        ({"owner": "TERM@900"}, ["V7"]),
        ({"meta": _owned("jobset.x-k8s.io")}, []),
    ],
    ids=[
        "neither",
        "signal",
        "seconds",
        "no seconds",
        "grace",
        "a silent owner",
        "its owner",
        "another owner",
        "an owner that the log does not show",
    ],
)
def test_sigterm_comes_earlier_if_the_pod_asks_for_it(more: dict[str, Any], found: list[str]) -> None:
    run = _bound(
        annotations={"slurm-bridge/signal": more["signal"]} if "signal" in more else {},
        meta=more.get("meta", {}),
        terminationGracePeriodSeconds=more.get("grace", 2),
    )
    if "owner" in more:
        sent = {"metadata": {"annotations": {"slurm-bridge/signal": more["owner"]}}}
        run.entry(1, "create", "jobs", sent, None, ref={"namespace": "alice-x", "apiGroup": "batch"})
    run.deadline(2650, "train", 2700)
    assert _found(run, 2651) == found


def test_a_deadline_counts_from_the_start_that_kubelet_shows() -> None:
    run = Run()
    run.submit(0, 7, run.pod(0, "train"), Timelimit="00:10:00")
    run.grant(0, 7, "k1")
    run.bind(2, "train", "k1", 7, starts=False)
    run.phase(3, "train", "Pending", startTime="2027-01-15T08:00:02Z")
    run.phase(100, "train", "Running")
    run.deadline(500, "train", 500)
    assert _found(run, 501) == ["V7"], "it ends at second 502, and not at second 600"


@pytest.mark.parametrize(("at", "found"), [(3005, []), (2900, ["V7"])])
def test_a_service_may_be_evicted_ten_minutes_before_the_time_limit(at: float, found: list[str]) -> None:
    run = _bound(meta=_owned("apps"))
    run.evict(at, "train")
    assert _found(run, at + 1) == found


def test_no_pod_is_deleted_for_the_time_limit_of_its_job() -> None:
    run = _bound(meta=_owned("apps"))
    run.delete(3590, "train", by="slurm-bridge")
    assert _found(run, 3591) == ["V7"]


def test_the_time_in_which_a_job_is_suspended_does_not_count() -> None:
    run = _bound(limit="00:10:00")
    run.state(100, 7, "SUSPENDED")
    run.state(1100, 7, "RUNNING")
    run.deadline(500, "train", 580)
    assert _found(run, 1200) == ["V7"]
    run = _bound(limit="00:10:00")
    run.state(100, 7, "SUSPENDED")
    run.state(1100, 7, "RUNNING")
    run.deadline(1490, "train", 1586)
    assert _found(run, 1500) == []


def test_a_gang_that_was_whole_is_not_ended_because_another_pod_waits() -> None:
    run = _gang(bound=2)
    run.phase(10, "ring0", "Failed")
    run.pod(11, "ring2", gang="ring", size=2)
    run.delete(20, "ring1", by="slurm-bridge")
    assert _found(run, 21) == ["V7"]


def _gang(*, bound: int) -> Run:
    """A gang of two, of job 7."""
    run = Run()
    for number in range(2):
        run.pod(0, f"ring{number}", gang="ring", size=2)
    run.submit(0, 7, "", name=RING)
    run.grant(1, 7, "k1", "cpu=2,mem=128M,node=1")
    for number in range(bound):
        run.bind(2, f"ring{number}", "k1", 7, size=2)
    return run


# --- a job that the bridge cancels ----------------------------------------------------------------------------------


def test_a_job_that_the_bridge_cancels_while_its_pod_runs_is_found() -> None:
    run = _bound()
    run.cancel(2.5, 7)
    run.delete(3, "train", by="slurm-bridge")
    [sentence] = run.broken(20)
    assert sentence.startswith("V7: job 7 (alice-x/uid-train~")
    assert "was cancelled by the bridge at 08:00:02.500 (slurmctld.log:3) while pod alice-x/train ran on it" in sentence
    assert "which was bound at 08:00:02.000 (audit.log:5) and which nobody had ended" in sentence


def test_a_bind_after_a_cancel_of_the_bridge_is_found() -> None:
    """The cancel took effect, and the bridge did not know it."""
    run = Run()
    run.submit(0, 7, run.pod(0, "train"))
    run.grant(0.5, 7, "k1")
    run.cancel(1.9, 7)
    run.bind(2, "train", "k1", 7)
    assert [each[:2] for each in run.broken(20)] == ["V2"]


@pytest.mark.parametrize("by", [64030, 0, None], ids=["the administrator", "root", "not known"])
def test_a_job_that_somebody_else_cancels_is_no_violation(by: int | None) -> None:
    run = _bound()
    run.cancel(10, 7, by=by)
    assert run.broken(20) == []


@pytest.mark.parametrize(
    ("together", "by_id", "found"),
    [(9.9, None, ["V7"]), (9.9, 9.5, []), (2, None, [])],
    ids=["a bridge", "by its id alone", "long before"],
)
def test_slurmrestd_may_know_who_cancelled_a_job(together: float, by_id: float | None, found: list[str]) -> None:
    run = _bound()
    run.rest.together.append(EPOCH + together)
    run.rest.by_id[7] = [EPOCH + by_id] if by_id else []
    run.cancel(10, 7, by=None)
    assert _found(run, 20) == found


@pytest.mark.parametrize(
    ("uid", "before_s", "found"),
    [(0, 0.001, []), (2001, 0.001, ["V7"]), (0, 5, ["V7"])],
    ids=["root", "its user", "before"],
)
def test_slurmctld_may_know_who_cancelled_a_job_by_its_id_alone(uid: int, before_s: float, found: list[str]) -> None:
    run = _bound()
    run.rest.together.append(EPOCH + 9.9)
    run.log(10 - before_s, f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=7 uid {uid}")
    run.cancel(10, 7, by=None)
    assert _found(run, 20) == found


def test_a_job_whose_pod_has_ended_or_is_being_ended_may_be_cancelled() -> None:
    ends: tuple[Callable[[Run], object], ...] = (
        lambda run: run.phase(9, "train", "Succeeded"),
        lambda run: run.delete(9, "train", by="kubectl"),
        lambda run: run.delete(9, "train", by="kubectl", gone=True),
        lambda run: run.evict(9, "train", by="kubectl"),
        lambda run: run.entry(
            9, "patch", "pods/status", {"status": {"phase": "Failed"}}, None,
            by="kwok", code=504, ref={"namespace": "alice-x", "name": "train"},
        ),
    )  # fmt: skip
    for end in ends:
        run = _bound()
        end(run)
        run.cancel(10, 7)
        verdict = run.verdict(20)
        assert (verdict.broken, verdict.judged["V7"]) == ([], 1)


@pytest.mark.parametrize(("seconds", "found"), [(100, []), (500, ["V7"])])
def test_a_deadline_ends_a_pod_when_it_is_over(seconds: int, found: list[str]) -> None:
    run = _bound(limit="00:02:00")
    run.deadline(50, "train", seconds, by="kubectl")
    run.cancel(105, 7)
    assert _found(run, 110) == found


def test_a_gang_that_is_not_whole_may_be_released() -> None:
    run = _gang(bound=1)
    run.cancel(10, 7)
    assert _found(run, 20) == []
    run = _gang(bound=2)
    run.cancel(10, 7)
    assert _found(run, 20) == ["V7", "V7"]


def test_a_job_that_waits_again_or_has_other_nodes_may_be_cancelled() -> None:
    for back in ((), ("k2",)):
        run = _bound()
        run.state(10, 7, "PENDING")
        if back:
            run.state(12, 7, "RUNNING")
            run.log(12, "sched: Allocate JobId=7 NodeList=k2 #CPUs=1 Partition=main")
        run.cancel(15, 7)
        assert _found(run, 20) == []


def test_a_job_that_took_the_place_of_a_lost_one_is_judged_too() -> None:
    run = _bound()
    run.restart(10)
    run.submit(11, 8, "uid-train")
    run.grant(12, 8, "k1")
    run.annotate(13, "train", job_id="8")
    run.cancel(20, 8)
    assert [each[:8] for each in run.broken(30)] == ["V7: job "]
    assert run.broken(30)[0].startswith("V7: job 8 (")


def test_a_pod_that_names_the_id_of_a_job_in_another_slurm_does_not_run_on_the_job_of_that_id_here() -> None:
    """As the pods of `slurm-bridge dev` on a real Kubernetes and a simulated Slurm."""
    for scheduler in (SECOND, "slurm-bridge"):
        run = _bound()
        run.pod(3, "elsewhere", scheduler=scheduler)
        run.bind(4, "elsewhere", "k1", 7, by=scheduler)
        run.phase(9, "train", "Succeeded")
        run.cancel(10, 7)
        assert _found(run, 20) == []


def test_a_pod_of_another_bridge_is_judged_by_the_settings_of_that_bridge() -> None:
    run = _bound(starts=False)
    run.tune(1, scheduler=SECOND, start_timeout_s=8)
    run.delete(20, "train", by="slurm-bridge")
    assert _found(run, 22) == ["V7"]

"""L1, and the time that counts for each of several bridges: a forged log of a pod that waits and says nothing is found."""

from __future__ import annotations

import pytest

from tests.unit.checker.forged import BRIDGE, EPOCH, Run, key, mark


def test_a_pod_that_waits_and_says_nothing_is_found() -> None:
    run = Run()
    run.pod(1, "mute", silent=True)
    assert run.broken(20) == []
    [sentence] = run.broken(100)
    assert sentence == "L1: pod alice-x/mute waited 99 calm seconds after 08:00:01.001 and did not say why"


def test_a_pod_that_says_why_breaks_nothing() -> None:
    run = Run()
    run.pod(1, "waits", silent=True)
    run.explain(19, "waits")
    verdict = run.verdict(100)
    assert (verdict.broken, verdict.judged["L1"]) == ([], 1)


@pytest.mark.parametrize("more", [{"by": "kube-scheduler"}, {"code": 403}, {"message": ""}])
def test_what_is_no_word_of_the_bridge_is_none(more: dict[str, str]) -> None:
    run = Run()
    run.pod(1, "mute", silent=True)
    run.explain(2, "mute", **more)
    assert [each[:2] for each in run.broken(100)] == ["L1"]


def test_what_may_have_been_said_counts_as_said() -> None:
    run = Run()
    run.pod(1, "waits", silent=True)
    run.explain(2, "waits", code=504)
    assert run.broken(100) == []


def test_a_pod_of_a_gang_waits_for_the_last_pod_that_is_created_before_it_says_how_many_are_missing() -> None:
    run = Run()
    for number in range(4):
        run.pod(1 + 15 * number, f"ring-{number}", silent=True, gang="ring")
    assert run.broken(60) == []
    assert {each[:2] for each in run.broken(100)} == {"L1"}


@pytest.mark.parametrize(("others", "found"), [(200, []), (50, ["L1"])])
def test_a_pod_may_wait_longer_for_its_turn_in_a_burst(others: int, found: list[str]) -> None:
    run = Run()
    run.pod(1, "last", silent=True)
    for number in range(others):
        run.submit(2, 7 + number, run.pod(2, f"p{number}"))
        run.grant(3, 7 + number, "k1")
        run.bind(4 + number / 50, f"p{number}", "k1", 7 + number)
    assert [each[:2] for each in run.broken(24)] == found
    assert [each[:2] for each in run.broken(100)] == ["L1"]


def test_a_pod_with_gates_a_bound_one_and_one_that_is_gone_need_not_say_why() -> None:
    run = Run()
    run.pod(1, "gated", silent=True, schedulingGates=[{"name": "example.com/later"}])
    run.submit(1, 7, run.pod(1, "bound", silent=True))
    run.grant(2, 7, "k1")
    run.bind(3, "bound", "k1", 7)
    run.pod(1, "gone", silent=True)
    run.delete(4, "gone", by="test", gone=True)
    assert run.broken(100) == []


@pytest.mark.parametrize(("holder", "since"), [("replica-1", 15), ("replica-0", 15)], ids=["another", "the same again"])
def test_a_replica_that_takes_over_has_its_own_time_to_say_why(holder: str, since: float) -> None:
    run = Run()
    run.pod(1, "mute", silent=True)
    for at in (2, 8, 14):
        run.lead(at, "replica-0", since=1)
    assert run.broken(30) != [], "renewals change nothing"
    run.lead(15, holder, since=since)
    assert run.broken(30) == []
    assert [each[:2] for each in run.broken(60)] == ["L1"]


def test_a_pod_of_a_scheduler_that_is_no_bridge_is_not_judged() -> None:
    run = Run()
    run.pod(1, "strange", scheduler="default-scheduler", silent=True)
    verdict = run.verdict(100)
    assert (verdict.broken, verdict.judged["L1"]) == ([], 0)


def test_only_the_time_of_a_pods_own_bridge_counts() -> None:
    """The second bridge runs for 10 seconds, and the first one all the time."""
    run = Run()
    run.second_bridge(5)
    run.pod(6, "theirs", scheduler="second", silent=True)
    run.second_bridge_ends(15)
    assert run.broken(200) == []
    run.second_bridge(200)
    assert [each[:20] for each in run.broken(270)] == ["L1: pod alice-x/thei"]


def test_a_job_of_a_bridge_that_no_longer_runs_may_stay_and_one_of_the_other_may_not() -> None:
    run = Run()
    run.second_bridge(1)
    for number, (name, scheduler) in enumerate((("mine", BRIDGE), ("theirs", "second")), 7):
        uid = run.pod(2, name, scheduler=scheduler)
        run.submit(3, number, uid, name=f"alice-x/{name}~{mark(scheduler)}.{key(uid)}")
        run.grant(4, number, "k1")
        run.bind(5, name, "k1", number, by=scheduler)
        run.phase(20, name, "Succeeded")
    run.second_bridge_ends(21)
    [sentence] = run.broken(120)
    assert sentence.startswith("L2: job 7 (alice-x/mine~")
    run.journal.faults.append((EPOCH + 30, EPOCH + 110))
    assert run.broken(120) == []

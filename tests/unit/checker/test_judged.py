"""What counts as judged: only what the logs are enough for.  Each suite demands some invariants."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from bridge.simulation.invariants.violation import INVARIANTS
from integration.checker import verdict
from tests.unit.checker.forged import Run

ROOT = Path(__file__).resolve().parents[3]


def test_a_bind_for_a_job_that_slurmdbd_does_not_know_is_not_judged() -> None:
    run = Run()
    run.pod(1, "train")
    run.log(2, "TRACE_JOBS: select_nodes: [JobId=8] change state: PENDING -> RUNNING")
    run.bind(3, "train", "k1", 8)
    run.delete(9, "train", by="slurm-bridge")
    judged = run.verdict(20).judged
    assert (judged["V2"], judged["V7"], judged["V5"], judged["L4"]) == (0, 0, 0, 0)


def test_a_job_of_which_slurmdbd_has_no_resources_is_not_judged_for_them() -> None:
    run = Run()
    run.submit(1, 7, run.pod(1, "train"))
    run.grant(2, 7, "k1", "billing=1,cpu=1")
    run.bind(3, "train", "k1", 7)
    judged = run.verdict(20).judged
    assert (judged["V2"], judged["V5"]) == (1, 0)


def test_a_foreign_job_of_which_nobody_knows_who_cancelled_it_is_not_judged() -> None:
    run = Run()
    run.submit(1, 7, "", user="carol", name="native")
    run.grant(2, 7, "k1")
    run.cancel(3, 7, by=None)
    assert run.verdict(20).judged["V6"] == 0


def test_a_pod_whose_job_may_run_again_is_not_judged_for_staying() -> None:
    run = Run()
    run.submit(1, 7, run.pod(1, "train"))
    run.grant(2, 7, "k1")
    run.bind(3, "train", "k1", 7)
    run.cancel(9, 7, by=64030)
    assert run.verdict(600).judged["L4"] == 1
    run.restart(10, 7)
    assert run.verdict(600).judged["L4"] == 0


@pytest.fixture
def run_py(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What integration/run.py defines."""
    monkeypatch.syspath_prepend(ROOT / "integration")
    return runpy.run_path(str(ROOT / "integration" / "run.py"))


def test_another_user_agent_of_the_bridge_switches_nothing_off_in_silence(run_py: dict[str, Any]) -> None:
    run = Run()
    run.submit(1, 7, run.pod(1, "train"))
    run.grant(2, 7, "k1")
    run.bind(3, "train", "k1", 7, by="another-name")
    missing = [each.partition(" ")[0] for each in run.verdict(20).missing(run_py["ALL"])]
    assert {"V2", "V3", "V5", "V7", "L4"} <= set(missing)


def test_each_suite_with_a_bridge_demands_what_shows_that_the_bridge_was_seen(run_py: dict[str, Any]) -> None:
    suites = {suite.name: set(suite.judges) for suite in run_py["SUITES"] if suite.rig is not None}
    for name, judges in suites.items():
        assert judges >= set(run_py["ALWAYS"]) or (name.startswith("contract-") and not judges)
    assert set(run_py["ALL"]) == verdict.LACKS.keys(), "there is a sentence for each"
    assert set.union(*suites.values()) == set(run_py["ALL"]), "each is demanded somewhere"


def test_each_invariant_is_judged_from_logs_and_has_a_row_in_the_record() -> None:
    assert verdict.LACKS.keys() == {"K1", *INVARIANTS}
    record = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| ([KVL]\d+) \|", record, re.MULTILINE)) == verdict.LACKS.keys()
    [heads] = re.findall(r"^\| suite \| pods, jobs \| (.*) \| announced \|$", record, re.MULTILINE)
    assert heads.split(" | ") == list(verdict.LACKS)


def test_the_record_has_what_was_judged_of_each_suite(run_py: dict[str, Any]) -> None:
    part = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").partition("## What the checker judged")[2]
    rows = re.findall(r"^\| ([a-z-]+) \| \d+, \d+ \|", part, re.MULTILINE)
    assert rows == sorted(suite.name for suite in run_py["SUITES"] if suite.judges and suite.rig is not None)

"""The alerts of manifests/monitoring, by promtool: they are valid, and each fires when it should and not before."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bridge.guard import Guard
from bridge.health import Health
from bridge.telemetry import Telemetry
from bridge.webhook.metrics import Metrics
from bridge.webhook.metrics import Outcome as Reviewed
from integration.readme import ROOT
from integration.rigging import places
from scheduler.actions import AllocateNow, BindPod, Outcome
from scheduler.events import ActionEnded, Side
from tests.builders import START, Story, grant, pod

MANIFEST = ROOT / "manifests" / "monitoring" / "rules.yaml"
TESTS = Path(__file__).with_name("rules_test.yaml")


def promtool(*arguments: str | Path, text: bytes | None = None) -> str:
    """The output of promtool.  Raises AssertionError with the output if promtool finds a fault."""
    done = subprocess.run([places.program("promtool"), *arguments], input=text, capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules as Prometheus reads them: what is in the PrometheusRule."""
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))["spec"]))
    return path


def test_the_rules_are_valid(rules: Path) -> None:
    count = len(re.findall(r"^ +- alert:", MANIFEST.read_text(encoding="utf-8"), re.MULTILINE))
    assert f"{count} rules found" in promtool("check", "rules", "--lint=all", "--lint-fatal", rules)


def test_each_alert_fires_when_it_should(rules: Path) -> None:
    shutil.copy(TESTS, rules.parent)
    assert "SUCCESS" in promtool("test", "rules", rules.parent / TESTS.name)


def test_the_metrics_are_as_prometheus_wants_them() -> None:
    story, telemetry = Story(), Telemetry()
    what = pod("train")
    story.sees(what)
    [asked] = story.acts(AllocateNow, START + 20)
    granted = ActionEnded(asked, Outcome.DONE, START + 20, START + 20, job_id=17, grant=grant(17))
    telemetry.on_ended(granted, story.world)
    story.sees(granted)
    [bind] = story.acts(BindPod, START + 20)
    telemetry.on_ended(ActionEnded(bind, Outcome.DONE, START + 20, START + 20), story.world)
    telemetry.on_call(Side.SLURM)("allocate", 0.003, "ok")
    loop: Any = SimpleNamespace(world=story.world, passed=START, guard=Guard(on=True))
    asyncio.run(Health(loop, [], telemetry, lambda: START + 20).prepare_scrape())
    text, content_type = telemetry.scrape()
    assert content_type.startswith("text/plain")
    assert b'slurm_bridge_create_to_bind_seconds_count{outcome="immediate"' in text
    assert promtool("check", "metrics", "--lint=all", text=text) == ""


def test_the_metrics_of_the_webhook_are_as_prometheus_wants_them() -> None:
    metrics = Metrics()
    metrics.reviewed(Reviewed.INTERCEPTED, 0.001)
    assert promtool("check", "metrics", text=metrics.scrape("")[0]) == ""

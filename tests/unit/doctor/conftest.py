"""What must not decide about a finding of the doctor: how busy the machine is that runs the tests, and its environment."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JWT", raising=False)
    monkeypatch.setattr("bridge.cli.doctor.slurm_checks.SLOW_S", 60.0)

"""The time that `slurm-bridge --help` takes: the time before any command of the program begins."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from integration.bench.clients import BenchError
from integration.bench.figures import Figure, at_most
from integration.bench.load import percentile
from integration.bench.scenarios import Scenario

RUNS = 5


def help_() -> Scenario:
    return Scenario("help", alone=_repeat)


async def _repeat(_: Path, __: Path | None) -> list[Figure]:
    program = Path(sys.executable).parent / "slurm-bridge"
    shown = _seconds([str(program), "--help"])
    nothing = _seconds([sys.executable, "-c", "pass"])
    return [Figure("help", "slurm-bridge --help", "s", (shown,), at_most(0.3), (nothing,))]


def _seconds(command: list[str]) -> float:
    """The median of some runs."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        times.append(time.perf_counter() - began)
        if done.returncode:
            raise BenchError(f"{' '.join(command)} ended with code {done.returncode}: {done.stderr.decode()[-300:]}")
    return percentile(times, 0.5)

"""The report: a page with the figures, the machine that they were measured on, and how to measure again.

A scenario that is measured again takes the place of what was known of it; the others stay, so that all of them need not
be measured in one go.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from integration.bench.figures import Figure, table

ROOT = Path(__file__).resolve().parents[2]
KIB_PER_GIB = 1024**2

PAGE = """\
# Performance

Measured by `make bench` ({when}): real Slurm {slurm} and real Kubernetes {kubernetes} with all
their servers, the bridge, the load and the stopwatch **on one machine**: {machine}. Nodes are external nodes of 64
CPUs, played by kwok; etcd writes without fsync; Slurm's scheduler parameters are as it ships them. So these are
figures to compare, not to plan with.

The **floor** is the fewest possible steps between the same two clusters (`integration/bench/floor.py`): watch,
allocate, ask what was allocated, bind; nothing checked, nothing remembered. It takes turns with the bridge in the
same run, on the same clusters, with the same pods and the same creators, so its *ratio* to the bridge says what a
faster or a busier machine does not change. A figure has one value a repeat; shown are their median and the smallest
and largest. "Others" is how much of the machine was busy with what has nothing to do with the run.

## What is asked

{asked}

## What else was measured

{others}

## The scenarios

* **help** `slurm-bridge --help`, beside `python -c pass`.
* **one** a pod every 83 ms on free nodes, whatever became of the one before. A time begins when the request that
  creates the pod is sent and ends when the benchmark's own watch shows it on a node.
* **burst** all pods as fast as 16 creators can; from the first creation to the last bind. The bridge's CPU counts
  until it has also posted its events. Bytes are counted in a run of their own, through a relay between bridge and
  slurmrestd; the other runs count calls by the bridge's `/metrics`, and that both agree is a figure of its own. Pod
  writes and events are counted in the API server's audit log.
* **packed** a burst whose pods may stand on half of the nodes only, which they nearly fill; beside it, in the floor's
  column, the bridge's own burst on all nodes.
* **gang** one gang of that many pods of 1 CPU on free nodes, made as a burst is.
* **freed** full nodes and a queue; every 4.7 s a pod ends, or its job is cancelled in Slurm; until the next waiting
  pod is bound.
* **pending** pods that find no room, watched for a minute once each has been told why it waits.
* **hostile** a pod every 83 ms, before and beside 1,000 standing pods of 100 terms of pod anti-affinity each, 200 waiting
  ones that are refused for as many, and 200 that wait with 20, all of other namespaces; the bridge's passes while these come,
  and then.
* **bound** with that many bound pods: one more pod every 83 ms; killed and started again in the moment in which a pod
  is created; and a minute in which nothing happens.
* **ends** of that many running pods a fiftieth end one by one, every 83 ms, then as many jobs are cancelled in Slurm; then
  a fifth of the pods end, 200 a second, and then a fifth of the jobs. From the answer to whoever ended the one until
  slurmctld says that the job has ended, or a watch shows that the pod is being deleted. The pods have a controller that
  makes none anew. The floor: as many pods are told why and deleted at the same times by the benchmark itself.

## Again

    make bench                                # all of it, some three quarters of an hour; needs what `make integration` needs
    make bench SCENARIO=burst REPEATS=1       # one of them
    make bench SCENARIO=one PROFILE=one.txt   # and where the bridge spends its time
    make bench WRITE=1                        # and this page anew; with SCENARIO= only that one's lines
"""


def describe(versions: Mapping[str, str]) -> dict[str, str]:
    """The properties, besides the code, that the figures depend on: date, commit, machine, versions."""
    cpu = _field(Path("/proc/cpuinfo"), "model name")
    memory = int(_field(Path("/proc/meminfo"), "MemTotal").split()[0]) / KIB_PER_GIB
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}",
        **versions,
    }


@dataclass(frozen=True, slots=True)
class Run:
    """One scenario as it was measured last.  about: see `describe`."""

    about: dict[str, str]
    figures: list[Figure]


def known(file: Path) -> dict[str, Run]:
    """The runs that were measured before, by scenario."""
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Run]) if file.exists() else {}


def page(runs: Mapping[str, Run]) -> str:
    """Markdown."""
    figures = [figure for run in runs.values() for figure in run.figures]
    asked = [figure for figure in figures if figure.target is not None]
    others = [figure for figure in figures if figure.target is None]
    about = [run.about for run in runs.values()]
    last = max(about, key=lambda each: each["date"])
    return PAGE.format(asked=table(asked), others=table(others), when=_when(runs), **last)


def _when(runs: Mapping[str, Run]) -> str:
    """ "2026-11-21, at commit 1a2b3c4"; where they differ, which scenarios at which."""
    at: dict[str, list[str]] = {}
    for scenario, run in runs.items():
        at.setdefault(f"{run.about['date']}, at commit {run.about['commit']}", []).append(scenario)
    if len(at) == 1:
        return next(iter(at))
    return "; ".join(f"{', '.join(scenarios)}: {when}" for when, scenarios in at.items())


def plain(runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same for JSON."""
    return {
        scenario: {"about": run.about, "figures": [figure.plain() for figure in run.figures]}
        for scenario, run in runs.items()
    }


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _commit() -> str:
    """The commit; "-dirty" where anything but what a run writes itself (`make bench WRITE=1`) differs from it."""
    commit = _git("describe", "--always")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/performance.*")
    return f"{commit}{'-dirty' if changed else ''}" if commit else "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

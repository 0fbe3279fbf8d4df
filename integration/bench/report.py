"""The report: a page with the figures, the machine that they were measured on, and how to measure again.

A scenario that is measured again takes the place of what was known of it; the others stay, so that all of them need not
be measured in one go.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from integration.bench.catalogue import scenarios
from integration.bench.figures import Figure, table
from integration.bench.limits import burst_limit, ends_limit
from integration.bench.scenarios import REPEATS

ROOT = Path(__file__).resolve().parents[2]
KIB_PER_GIB = 1024**2

PAGE = """\
# Performance

Measured by `make bench` {when}, with real Slurm {slurm} and real Kubernetes {kubernetes}; the last
column of the tables names the commit. In each scenario all servers of both clusters, the bridge, the load and the
measuring program ran **on one machine**:

{machines}

Figures of different machines cannot be compared. Nodes are
external nodes of 64 CPUs, played by kwok. etcd writes without fsync. Slurm's scheduler parameters are the defaults. The
scenarios `alone-…` run against simulated clusters. Use the figures for comparison, not for planning.

The **floor** is a program that does only the necessary steps between the same two clusters (`integration/bench/floor.py`):
watch, allocate, read the allocation, bind. It checks nothing and remembers nothing. Its event loop is the
bridge's, and its transports are the fastest that are known. Bridge and floor take turns in one run,
with the same pods and the same clients that create them. So the *ratio* of bridge to floor depends less on the machine
than the figures do. A figure is measured once in each repeat; the tables show the median, the smallest and the largest
value. There are five repeats, if no other number is asked for; {fewer}.
The column "compared with" says with what a figure is compared, and shows that value: mostly the floor's. The ratio is the
median of the ratios of the repeats. "Others" is the use of the machine by programs that are not
part of the run.

{met}

## Targets

{asked}

## Other figures

{others}

## The scenarios

* **help**: `slurm-bridge --help`, compared with `python -c pass`.
* **alone**: the bridge in a process of its own, against simulated clusters in another process: no rig, no TLS, no floor. The
  pods come as fast as the simulated clusters create them. What counts is the processor time of the bridge, because the
  simulated clusters are slower than it: the pods a second on one core are computed from that time, and compared with the
  rate that was observed. **alone-gang**: the pods are one gang. **alone-bound**: the bridge is killed and
  started again at the moment when a pod is created, with that many running pods, which it knows from their annotations
  alone. **alone-ends**: 200 jobs a second are cancelled in Slurm, until each pod is being ended. **alone-large**: 50,000
  running pods, and 5,000 that wait; also one more pod at a time, beside 100 running pods and
  beside all of them. **alone-metered**: five bursts by bridges that take the processor time of their metrics and traces while
  they run; each pod is bound, runs and ends.
* **one**: one pod every 83 ms on free nodes; a pod does not wait for the former one. The time begins when the request
  that creates the pod is sent, and ends when the benchmark's own watch shows the pod on a node.
* **burst**: 16 clients create all pods as fast as they can. The rate counts from the first creation to the last bind. The
  bridge's CPU time includes the posting of its events. Bytes are counted in a run of their own, by a relay between the
  bridge and slurmrestd. The other runs count calls by the bridge's `/metrics`; one figure checks that both counts agree.
  Pod writes and events are counted in the API server's audit log.
* **metered**: three bursts on each rig: with metrics, as usual; with metrics and traces; with neither. Each takes each
  place in turn.
* **packed**: a burst whose pods may run on only half of the nodes, and nearly fill them. It is compared with
  the bridge's own burst on all nodes.
* **gang**: one gang of that many pods of 1 CPU each on free nodes, created as in a burst. Compared with
  as many binds, which the benchmark itself sends all at once, of pods that exist.
* **freed**: all nodes are full and pods wait. Every 4.7 s a pod ends, or its job is cancelled in Slurm. The time ends when
  the next waiting pod is bound.
* **pending**: pods for which there is no room. They are watched for a minute, which begins when each pod shows why it waits.
* **hostile**: one pod every 83 ms, first alone, then beside pods of other namespaces: 1,000 bound pods with 100 terms of pod
  anti-affinity each, 200 waiting pods that are refused for as many terms, and 200 that wait with 20 terms. The bridge's
  passes are measured while these pods are created, and afterwards.
* **bound**: with that many bound pods, three measurements: one more pod every 83 ms, by floor and bridge twice in turn,
  each time after the servers have come to rest; the bridge is killed and started again
  at the moment when a pod is created; a minute in which nothing happens.
* **ends**: of that many running pods, 2 % end one by one, every 83 ms; then as many jobs are cancelled in Slurm; then 20 % of
  the pods end, 200 a second; then 20 % of the jobs. The time begins with the answer to the request that ended the pod or
  job. It ends when slurmctld reports the end of the job, or when a watch shows that the pod is being deleted. The pods have
  a controller that creates no new ones. The floor, beside the 200 jobs a second: while no bridge runs, as many jobs of the
  floor's own pods are cancelled at the same times. Each second the floor reads the states of all jobs. It writes the
  condition on the pod of each ended job, and deletes the pod.

## What limits the figures

* **The machine.** A slow machine gave 2.77 ms of CPU time a pod and 0.82 of its floor in a burst of 4,000, another one 1.62 ms and
  0.80, and the machine of the tables 1.84 ms and 0.72 on another day.
* **A burst.** The bridge's time is divided among many parts, and no function itself takes more than 2 %. Of the time of
  `alone-4000` decisions take 23 %, events 15 %, HTTP to Kubernetes 17 %, HTTP to slurmrestd 15 %, decoding of the watch 10 %,
  metrics and log 9 %. A pod is visited 5 times.
{burst_limit}
* **The same work takes longer on the rig.** Beside simulated clusters a pod takes 1.16 ms of the bridge's CPU time, on the
  rig 1.6 to 1.8 ms on a quiet machine. Counted with cProfile, the work is nearly the same, and so are the shares, sampled with
  perf: 78 % in the interpreter, 10 % in the kernel; TLS takes 2 % on the rig. There the bridge shares two cores and their
  caches with six busy servers.
* **HTTP to Kubernetes is the next limit of a burst and of a gang.** On the rig a bind's request takes 0.25 ms of CPU time,
  and the changes that the watch shows of the pod take 0.2 ms. Against a server that answers at once, a bind takes 0.103 ms.
  Over the bridge's own connections, as to slurmrestd, binds would save about 4 % of the bridge's CPU time in a burst. aiohttp
  stays, because others maintain it.
* **A restart with 10,000 bound pods** takes 0.8 s of CPU time for them: 22 µs to decode a pod, 37 µs to take it in, 7 µs
  for its job in the first poll, 14 µs to visit it. Before that, loading the modules takes 0.50 s of CPU time and 54.3 MiB.
{ends_limit}
* **50,000 running and 5,000 waiting pods** (`alone-large`): the bridge has 422 MiB, 7 kB for a running pod and 6 kB for a
  waiting one. 99 % of its passes take at most 50 ms, beside 5,000 pods of which each shows in turn why it waits. One more
  pod is bound after 1.08 times the time that it takes beside 100 pods.

## What changes saved

Measured in November 2026, mostly with `alone`: the bridge before and after a change took turns, on a machine that other
programs kept busy, so the figures spread. The tables above do not show a change if they were measured before it.

| change | before | after |
|---|---|---|
| an answer marks waiting workloads only during the scan after a start; a pod's own submission, and a poll that repeats its answer, mark nothing | 18 visits a pod in a burst | 5 |
| only a pod that has shown a wait gets the event `Scheduled` (O1) | kube-apiserver takes 2.19 times the floor's CPU time in a burst of 4,000 | the table has the present ratio |
| histograms of prometheus_client instead of those of OpenTelemetry: a pod has five observations | 6 µs each | 1.5 µs |
| passes begin at least 5 ms apart. The two figures were measured with 4 ms; 8 ms gave 1.72 and 1.67 ms | 1.95 and 1.96 ms of CPU time a pod | 1.67 and 1.81 ms |
| the four changes above together, five pairs of bursts of 1,000 | 2.39 ms a pod (1.81–3.19) | 1.33 ms (1.31–2.10) |
| a bind's deadline of 10 s counts from when the bind has a connection, not from before | 932 of 2,048 binds of a gang were repeated | none |
| all binds of a gang go out in one pass; before, beyond 1,064 binds in flight, the rest was placed again for each bind that ended | 1.37 ms a pod with `alone-gang`, 2.80 ms on the rig | 0.87 and 1.83 ms |
| a list that shows more new ends than can be read at once proves them itself, if slurmctld kept its state: `alone-ends`, the last tenth; on the rig, beside a floor without cancellations | 5.96 s, 1.05 ms of CPU time an end; 2.70 times the floor | 1.79 and 3.59 s, 0.85 and 0.73 ms; 2.40 times |
| the nodes that a waiting gang may use are grouped once, until nodes change: a visit of a gang of 64 pods beside 1,000 nodes of 20 kinds, of 256 pods of two shapes beside 5,000 nodes of 50 kinds | 4.8 and 29 ms | 2.1 and 14 ms |
| a start loads of the `kubernetes` package only the readers of kubeconfigs | 0.61 s of CPU time, 65.7 MiB | 0.50 s, 54.3 MiB |
| plain loops read the status of a bound pod, which traces need; without traces decoding took 17.7 µs | 25 µs a pod | 21.7 µs |
| the floor has the bridge's event loop and the fastest known transports (2026-11-28); earlier figures are compared with the slower floor | 0.86 ms a pod (0.71–0.96) | 0.46 ms (0.40–0.57) |

Tried, and not done, because each saves less than 2 % of a burst: a timer of the event loop in place of `asyncio.timeout` (2.0
instead of 4.8 µs, six times a pod: 1 %); fewer lines of the log (all lines take 3.7 %); mutable dataclasses (`__init__` of
frozen ones takes 4.4 %, in no class more than 0.6 %). Profile-guided optimization of the interpreter saves nothing: Debian's
Python 3.11, which has it, takes 1.16 ms of CPU time for a pod, and a build without it 1.14 ms.

All changes of November 2026 together, in one run at f832e1bd on a quiet machine with Debian's Python, beside the commit before
the code was divided into packages (two bursts, three times five restarts; the ratio is the median of the ratios):

| figure                           | 0eadaee          | f832e1bd         | ratio |
|----------------------------------|------------------|------------------|-------|
| alone-4000: CPU a pod, ms        | 1.62 (1.54–1.69) | 1.08 (1.00–1.17) | 0.67  |
| alone-4000: peak memory, MiB     | 111 (111–111)    | 108 (106–109)    | 0.97  |
| alone-bound: restart, s          | 1.88 (1.79–1.92) | 1.76 (1.67–1.78) | 0.94  |
| alone-bound: CPU of a restart, s | 1.77 (1.70–1.81) | 1.63 (1.56–1.65) | 0.92  |
| alone-bound: peak memory, MiB    | 129 (129–129)    | 124 (124–125)    | 0.97  |

## Measure again

    make bench                                # everything: about 45 minutes; needs what `make integration` needs
    make bench SCENARIO=burst REPEATS=1       # one scenario
    make bench SCENARIO=alone                 # the bridge alone, without a rig: a minute or two
    make bench SCENARIO=one PROFILE=one.txt   # also where the bridge spends its time
    make bench WRITE=1                        # also write this page; with SCENARIO= only the lines of that scenario
"""  # noqa: E501 - a row of a table is one line


def describe(versions: Mapping[str, str]) -> dict[str, str]:
    """The properties, besides the code, that the figures depend on: date, commit, machine, versions."""
    cpu = _field(Path("/proc/cpuinfo"), "model name")
    memory = int(_field(Path("/proc/meminfo"), "MemTotal").split()[0]) / KIB_PER_GIB
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GiB, Linux {platform.release().partition('-')[0]}, "
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
    about = [run.about for run in runs.values() if "slurm" in run.about]  # of those on a rig
    last = max(about, key=lambda each: each["date"])
    at = {scenario: run.about["commit"] for scenario, run in runs.items()}
    return PAGE.format(
        asked=table(asked, at),
        others=table(others, at),
        when=_when(runs),
        burst_limit=burst_limit(figures),
        ends_limit=ends_limit(figures),
        fewer=_fewer(),
        met="\n\n".join(filter(None, (_met(asked), _unrecorded(runs)))),
        machines=_machines(runs),
        **last,
    )


def _met(asked: Sequence[Figure]) -> str:
    """How many targets are met, and which are not."""
    missed: dict[str, list[str]] = {}
    for figure in asked:
        if not figure.met:
            missed.setdefault(figure.scenario, []).append(figure.name)
    count = sum(bool(figure.met) for figure in asked)
    lines = [f"* **{scenario}**: {'; '.join(names)}" for scenario, names in missed.items()]
    return "\n".join(
        [f"**{count} of {len(asked)} targets are met.**{' Not met:' if lines else ''}", "", *lines]
    ).rstrip()


def _unrecorded(runs: Mapping[str, Run]) -> str:
    """The scenarios whose figures the tables lack; "": they lack none."""
    names = [f"**{each.name}**" for each in scenarios() if each.name not in runs]
    return f"Not counted, because no figures are kept of them: {', '.join(names)}." if names else ""


def _machines(runs: Mapping[str, Run]) -> str:
    """A list of the machines and of what was measured on each; the machine of most scenarios comes first."""
    of: dict[str, list[str]] = {}
    for scenario, run in runs.items():
        of.setdefault(run.about["machine"], []).append(f"**{scenario}**")
    (usual, _), *others = sorted(of.items(), key=lambda each: -len(each[1]))
    lines = [f"{usual}: all {'other ' if others else ''}scenarios"]
    return "\n".join(f"* {line}" for line in [*lines, *(f"{each}: {', '.join(here)}" for each, here in others)])


def _fewer() -> str:
    """ "bound has two (one takes …)": the scenarios with another number of repeats than most, and why."""
    less = [each for each in scenarios() if each.repeats < REPEATS]
    return "; ".join(f"**{each.name}** has {each.repeats} ({each.why})" for each in less)


def _when(runs: Mapping[str, Run]) -> str:
    """ "on 2026-11-21", or "from 2026-11-21 to 2026-11-27"."""
    dates = sorted({run.about["date"] for run in runs.values()})
    return f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"


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

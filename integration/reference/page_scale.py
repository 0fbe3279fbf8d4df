"""docs/scale.md: people write it; what a pod costs, and which server is the limit first, are computed from the benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable

from integration.bench.figures import short
from integration.bench.report import known
from integration.readme import ROOT
from integration.reference.blocks import with_block
from integration.reference.markdown import table

PAGE = ROOT / "docs" / "scale.md"
SIZES = (1_000, 10_000, 100_000)  # the columns of the table "One bridge"
SERVERS = ("slurmctld", "slurmrestd", "kube-apiserver", "etcd")
ENDS = "200 jobs end a second: "
BOUND = 10_000  # pods of the scenario `bound`
# A poll lists all jobs.  After a poll the bridge waits at least twice as long as the poll took (bridge/slurm/poll.py), so
# polls keep at most this share of a core of slurmrestd busy.
MOST_POLLING = 1 / 3

Measured = Callable[[str, str], float]


def text() -> str:
    """The page with the computed parts."""
    return filled(PAGE.read_text(encoding="utf-8"), measured())


def measured() -> Measured:
    """The median of a figure, by scenario and name."""
    figures = [figure for run in known(ROOT / "docs" / "performance.json").values() for figure in run.figures]
    medians = {(figure.scenario, figure.name): figure.median for figure in figures}
    return lambda scenario, name: medians[scenario, name]


def filled(page: str, of: Measured) -> str:
    """The page with its computed parts."""
    page = with_block(page, "costs", _costs(of))
    page = with_block(page, "first limit", _first_limit(of))
    for row, cells in _rows(of).items():
        page, count = re.subn(rf"^(\| {re.escape(row)} \|).*$", rf"\1 {' | '.join(cells)} |", page, flags=re.MULTILINE)
        assert count == 1, f"the table has the row {row!r} once"
    return page


def _costs(of: Measured) -> str:
    """The table of what each pod and each job costs, as far as the benchmark measures it."""
    alone = of("alone-4000", "bridge: CPU a pod")
    binds = [of("burst-4000", f"{server}: CPU a pod") for server in SERVERS]
    ends = [of("ends", f"{ENDS}{server}: CPU an end") for server in SERVERS]
    rows = [
        (
            "a bind, in the bridge",
            f"{short(alone)} ms of CPU time, so {1000 / alone:.0f} pods a second of one core. Against simulated clusters, "
            f"without TLS; on real clusters it is {short(of('burst-4000', 'bridge: CPU a pod'))} ms",
            "`alone-4000`, `burst-4000`",
        ),
        (f"a bind, in {', '.join(SERVERS)}", f"{_list(binds)} ms of CPU time", "`burst-4000`"),
        (
            "the end of a job and of its pod, in the bridge",
            f"{short(of('ends', f'{ENDS}bridge: CPU an end'))} ms of CPU time",
            "`ends`",
        ),
        (f"the same, in {', '.join(SERVERS)}", f"{_list(ends)} ms of CPU time", "`ends`"),
        (
            "a job in a poll of `jobs/state`",
            f"{of('bound', 'idle: a poll, for each job'):.0f} bytes; 10 to 18 µs in slurmrestd, 1 µs in slurmctld, 0.2 µs in "
            "the bridge if nothing changed",
            "`bound`, `ends`",
        ),
    ]
    return table(("what", "cost", "measured by"), rows)


def _first_limit(of: Measured) -> str:
    """Which server takes the most time for a bind."""
    cost = {server: of("burst-4000", f"{server}: CPU a pod") for server in SERVERS}
    first, second = sorted(cost, key=cost.__getitem__)[:1:-1]
    rate = 1000 / of("alone-4000", "bridge: CPU a pod")
    cores = rate * (cost["kube-apiserver"] + cost["etcd"]) / 1000
    times = cost[first] / cost[second]
    return (
        f"**The first limit is `{first}`**: it takes {short(cost[first])} ms for a bind, {times:.1f} times as much as the\n"
        f"next server, {second}. A bridge at its own limit ({rate:.0f} binds a second) would keep {cores:.1f} cores of\n"
        "kube-apiserver and etcd busy.\n"
    )


def _rows(of: Measured) -> dict[str, list[str]]:
    """The rows of the table "One bridge" with the limits of servers: new pods a second that keep one core busy."""
    life = {
        server: of("burst-4000", f"{server}: CPU a pod") + of("ends", f"{ENDS}{server}: CPU an end")
        for server in SERVERS
    }
    polls = [polling(of, size) for size in SIZES]
    first = [_carried(size, 1000 / life["kube-apiserver"]) for size in SIZES]
    second = [_carried(size, (1 - busy) * 1000 / life["slurmrestd"]) for size, busy in zip(SIZES, polls, strict=True)]
    return {
        "first limit: new pods a second that one core of `kube-apiserver` carries": first,
        "second limit: the same for slurmrestd, beside the polls": second,
    }


def polling(of: Measured, jobs: int) -> float:
    """The share of a core of slurmrestd that polls of so many jobs keep busy."""
    return min(MOST_POLLING, of("bound", "slurmrestd: CPU") / 100 * jobs / BOUND)


def _carried(pods: int, rate: float) -> str:
    """ "97: each pod replaced every 10 s"."""
    every_s = pods / rate
    shown = f"{every_s:.0f} s" if every_s < 120 else f"{every_s / 60:.0f} minutes"
    return f"{rate:.0f}: each pod replaced every {shown}"


def _list(values: list[float]) -> str:
    *most, last = [short(value) for value in values]
    return f"{', '.join(most)} and {last}"

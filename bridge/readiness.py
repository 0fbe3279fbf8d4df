"""What /readyz says: why a bridge cannot do its work, and what does not work while the bridge as a whole works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aiohttp import web

from bridge.slurm.token import TokenSource, problem
from scheduler.events import Side
from scheduler.rules.status import clock as time_of_day
from scheduler.state.anomalies import held_back, hints_held_back
from scheduler.state.rivals import another_bridge
from scheduler.state.world import World


def not_ready(world: World, tokens: Sequence[TokenSource], now: float) -> list[str]:
    """Every reason why a bridge cannot do its work now."""
    reasons = [with_side(side, away.why) for side, away in world.outages.items()]
    reasons += [f"waiting for {missing}" for missing in world.missing]
    if world.held_back_since is not None:
        reasons.append(f"since {time_of_day(world.held_back_since, now)}: {held_back(world)}")
    problems = (problem(token, now) for token in tokens)
    return reasons + [found for found in problems if found and not any(found in reason for reason in reasons)]


def with_side(side: Side, why: str) -> str:
    """The reason, with the name of the side at its beginning."""
    cluster = side.value
    return why if why.startswith(f"{cluster}: ") else f"{cluster}: {why}"


def undecoded(world: World) -> str:
    """A sentence with the number of objects of Kubernetes that cannot be decoded; "": none."""
    counts = Counter(thing.kind for thing in world.undecoded)
    if not counts:
        return ""
    some = ", ".join(f"{count:,} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(counts.items()))
    return f"Kubernetes lists objects that slurm-bridge cannot read (the log has details): {some}. Nothing is done to these."


def quarantined(world: World) -> str:
    """A sentence with the number of objects in quarantine, by kind; "": none."""
    counts = Counter(entry.kind.value for entry in world.quarantine.values())
    if not counts:
        return ""
    some = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    return f"in quarantine after internal errors of slurm-bridge (the log has details): {some}. All others are handled."


def degraded(world: World, now: float) -> list[str]:
    """Sentences about what does not work, or is not as it should be, while the bridge as a whole works."""
    beside = list(filter(None, [another_bridge(world, now), hints_held_back(world)]))
    away = world.accounting_outage
    if away is None:
        return beside
    waiting = len(world.parked["records"])
    partitions = "are those of the last answer" if world.partitions else "are not known yet"
    jobs = "1 ended job waits" if waiting == 1 else f"{waiting:,} ended jobs wait"
    return [
        *beside,
        f"Slurm accounting, since {time_of_day(away.since, now)}: {away.why.rstrip(' .')}. {jobs} to be recorded, and "
        f"Slurm's partitions {partitions}; everything else goes on.",
    ]


def readiness(reasons: list[str], *notes: str) -> web.Response:
    """200 ok, or 503 with every reason, a line each; then the notes, a line each."""
    lines = [*(reasons or ["ok"]), *filter(None, notes)]
    return web.Response(text="\n".join(lines) + "\n", status=503 if reasons else 200)

"""The interval of an expected start: with jobs of known length ahead, starts fall into it at its stated rate (Q2).

Each pod takes all GPUs of a node, may run for a minute and runs for some seconds.  Slurm knows the time limits alone, so it
expects each start later than it comes, and the bridge learns by how much.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm

Space = Callable[[str], str]
pytestmark = pytest.mark.usefixtures("bridge")
PODS = 40
RUNS_S = 8.0
GIVE_UP_S = 400.0
STATED = 0.8
UNLIKELY = 0.01  # if intervals hold at the stated rate, so few starts in them are rarer than that
INTERVAL = re.compile(
    r"; expected start (?:between (?P<earliest>\d\d:\d\d) and )?(?P<latest>\d\d:\d\d) UTC[^();]* \(from past waits"
)


@dataclass
class Watched:
    """One pod.  interval: the last interval, minutes of the day; since: when it was seen bound; started: by Slurm"""

    interval: tuple[int, int] | None = None
    since: float = 0.0
    started: float = 0.0
    ended: bool = False


@dataclass
class Watch:
    """The pods of a namespace: what `explain` says of each that waits, and when each starts and ends."""

    kube: Kube
    slurm: Slurm
    bridge: BridgeProcess
    namespace: str
    pods: dict[str, Watched] = field(default_factory=dict)

    def look(self) -> None:
        for each in self.kube.pods(self.namespace):
            name, seen = each.metadata.name, self.pods.setdefault(each.metadata.name, Watched())
            if not each.spec.node_name:
                seen.interval = self._interval(name) or seen.interval
            elif not seen.since:
                job = int(each.metadata.annotations["slurm-bridge/job-id"])
                seen.since, seen.started = time.monotonic(), self.slurm.job(job)["start_time"]["number"]
            elif not seen.ended and time.monotonic() - seen.since > RUNS_S:
                seen.ended = True
                self.kube.succeed(self.namespace, name)

    def _interval(self, name: str) -> tuple[int, int] | None:
        status, body = self.bridge.ask(f"explain?namespace={self.namespace}&pod={name}")
        found = INTERVAL.search(json.loads(body)["sentence"]) if status == 200 else None
        return (_minute(found["earliest"] or found["latest"]), _minute(found["latest"])) if found else None


def _minute(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


def _holds(seen: Watched) -> bool:
    """True if the pod started in its interval, as far as minutes tell."""
    assert seen.interval is not None
    at = datetime.fromtimestamp(seen.started, UTC)
    earliest, latest = seen.interval
    return (at.hour * 60 + at.minute - earliest) % 1440 <= (latest - earliest) % 1440


def chance_of_at_most(held: int, intervals: int, rate: float) -> float:
    """The probability that at most so many of the intervals hold, if each holds at this rate."""
    return sum(math.comb(intervals, k) * rate**k * (1 - rate) ** (intervals - k) for k in range(held + 1))


def test_starts_fall_into_their_intervals_at_the_stated_rate(
    kube: Kube, slurm: Slurm, bridge: BridgeProcess, space: Space
) -> None:
    ns = space("alice")
    for number in range(PODS):
        kube.run(ns, f"p{number:02}", gpu=8, says={"partition": "gpu", "time-limit": "1"})
    watch, until = Watch(kube, slurm, bridge, ns), time.monotonic() + GIVE_UP_S
    while not watch.pods or not all(seen.started for seen in watch.pods.values()):
        assert time.monotonic() < until, watch.pods
        watch.look()
    judged = [_holds(seen) for seen in watch.pods.values() if seen.interval is not None]
    print(f"{len(judged)} of {PODS} pods had an interval, {sum(judged)} started in it")
    assert len(judged) >= PODS / 4
    assert chance_of_at_most(sum(judged), len(judged), STATED) > UNLIKELY

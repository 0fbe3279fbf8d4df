"""Every scenario, by name."""

from __future__ import annotations

from integration.bench.clients import BenchError
from integration.bench.figures import at_most, at_most_times
from integration.bench.scenarios import Scenario
from integration.bench.scenarios.alone import (
    alone,
    alone_bound,
    alone_ends,
    alone_gang,
    alone_large,
    alone_metered,
)
from integration.bench.scenarios.bound import bound
from integration.bench.scenarios.burst import burst, packed
from integration.bench.scenarios.ends import ends
from integration.bench.scenarios.freed import freed
from integration.bench.scenarios.gang import gang
from integration.bench.scenarios.help import help_
from integration.bench.scenarios.hostile import hostile
from integration.bench.scenarios.metered import metered
from integration.bench.scenarios.one import one
from integration.bench.scenarios.pending import pending


def scenarios(pods: int = 0, seconds: float = 0) -> list[Scenario]:
    """All of them, in the order in which they are measured.

    pods, seconds   another number of pods and length of time, where a scenario has such; 0: as they are
    """
    return [
        help_(),
        *(alone(number) for number in ([pods] if pods else [1000, 4000])),
        alone_gang(pods or 2048),
        alone_bound(pods or 10_000),
        alone_ends(pods or 1000),
        alone_large(pods or 50_000, pods // 10 or 5000),
        alone_metered(pods or 1000),
        one(pods or 150),
        *(burst(number) for number in ([pods] if pods else [1000, 4000])),
        metered(pods or 1000),
        packed(pods or 1000),
        gang(64, granted=at_most(0.3), created=at_most(0.5)),
        gang(512, granted=at_most(1.5), created=at_most(2)),
        gang(2048, granted=at_most_times(2)),
        freed(pods or 20),
        pending(pods or 1000, seconds or 60),
        hostile(pods or 150),
        bound(pods or 10_000, seconds or 60),
        ends(pods or 10_000),
    ]


def chosen(names: list[str], pods: int = 0, seconds: float = 0) -> list[Scenario]:
    """The scenarios with such a name or prefix ("burst": "burst-1000"); all if *names* is empty.  Raises BenchError."""
    known = scenarios(pods, seconds)
    for name in names:
        if not any(_is(scenario, name) for scenario in known):
            raise BenchError(f'there is no scenario "{name}"; there are {", ".join(each.name for each in known)}')
    return [scenario for scenario in known if not names or any(_is(scenario, name) for name in names)]


def _is(scenario: Scenario, name: str) -> bool:
    return scenario.name == name or scenario.name.startswith(f"{name}-")

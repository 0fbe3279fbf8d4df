"""Every scenario, by name."""

from __future__ import annotations

from integration.bench.ends import BenchError
from integration.bench.scenarios import Scenario
from integration.bench.scenarios.burst import burst

BURSTS = (1000, 4000)


def scenarios(pods: int = 0) -> list[Scenario]:
    """All of them, in the order in which they are measured.

    pods   another number of pods where a scenario has a choice; 0: as they are
    """
    return [*(burst(number) for number in ((pods,) if pods else BURSTS))]


def chosen(names: list[str], pods: int = 0) -> list[Scenario]:
    """Those of that name, or whose name begins so ("burst" for "burst-1000"); without a name all.  Raises BenchError."""
    known = scenarios(pods)
    for name in names:
        if not any(_is(scenario, name) for scenario in known):
            raise BenchError(f'there is no scenario "{name}"; there are {", ".join(each.name for each in known)}')
    return [scenario for scenario in known if not names or any(_is(scenario, name) for name in names)]


def _is(scenario: Scenario, name: str) -> bool:
    return scenario.name == name or scenario.name.startswith(f"{name}-")

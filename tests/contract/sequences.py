"""Generated sequences of calls, played on a real cluster and on the simulated one; a difference is a finding.

A sequence follows from its number.  `kube_sequences.py` and `slurm_sequences.py` make the calls and play them: each call
gives an answer, and at the end both clusters are read.  A field that differs for a reason has an Exemption and is not
compared.  Any other difference fails the test, which first drops every call that the difference does not need.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import RemoteError

FEWEST_CALLS, MOST_CALLS = 5, 12
MOST_MORE = 3  # calls that are added to a sequence
DEFAULT = "0-249"
SABOTAGE_SEQUENCES = 100  # that are played on a simulation that is wrong on purpose
MOST_REDUCED = 4  # calls of the reduced sequence that shows the difference


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a sequence.

    of         the object of the call, by its name in the sequence
    arguments  the other arguments
    """

    verb: str
    of: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.verb, self.of, *(f"{key}={value}" for key, value in self.arguments.items())])


differed_once: list[str] = []  # sequences of this run that differed once and not twice, each with a difference
Calls = Sequence[Call]
Shown = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Transcript:
    """The answers of one cluster, and what it showed.

    answers  one for each call
    end      the objects that exist at the end, by their names in the sequence
    watched  the events of the watches, in order
    """

    answers: Sequence[Any]
    end: Mapping[str, Any]
    watched: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Exemption:
    """A field that is not compared, because the real cluster sets it at times of its own.

    where  True for the objects, as they are shown, of which the field is not compared
    why    the reason, with the section of docs/slurm-facts.md or docs/kubernetes-facts.md that describes it
    """

    field: str
    where: Callable[[Shown], bool]
    why: str


def compared(shown: Shown, exemptions: Iterable[Exemption]) -> dict[str, Any]:
    """The fields of an object, with "not compared" as the value of each exempted field."""
    return {**shown, **{each.field: "not compared" for each in exemptions if each.where(shown)}}


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the real cluster and the simulated one.

    at     the call; "end NAME": an object at the end; "watch": an event of the watches
    field  the field that differs; "": the whole answer
    """

    at: str
    field: str
    real: Any
    simulated: Any

    def __str__(self) -> str:
        return f"{self.at} {self.field}:\n    real      {self.real}\n    simulated {self.simulated}"


def numbers() -> list[int]:
    """The numbers of the sequences to play: SEQUENCES is one number ("17") or a range ("0-249", the default)."""
    first, _, last = os.environ.get("SEQUENCES", DEFAULT).partition("-")
    return list(range(int(first), int(last or first) + 1))


def with_more(calls: Calls, rng: random.Random, makers: Mapping[str, Callable[[random.Random], Call]]) -> list[Call]:
    """The calls with up to MOST_MORE others in between, so that the calls of a number stay when there are other makers."""
    more = list(calls)
    for _ in range(rng.randint(1, MOST_MORE)):
        more.insert(rng.randint(1, len(more)), makers[rng.choice(list(makers))](rng))
    return more


async def said(asked: Awaitable[Any], shown: Callable[[Any], Any] = lambda value: value) -> Any:
    """The answer to a call as the bridge acts on it: the value, or the class and the number of the error."""
    try:
        return shown(await asked)
    except RemoteError as error:
        return type(error).__name__, error.number


def differences(calls: Calls, real: Transcript, simulated: Transcript) -> list[Difference]:
    """The differences; of the events of the watches only the first."""
    found: list[Difference] = []
    for call, theirs, ours in zip(calls, real.answers, simulated.answers, strict=True):
        found += _between(str(call), theirs, ours)
    for name in sorted(real.end.keys() | simulated.end.keys()):
        found += _between(f"end {name}", real.end.get(name), simulated.end.get(name))
    for place in range(max(len(real.watched), len(simulated.watched))):
        pair = [events[place] if place < len(events) else None for events in (real.watched, simulated.watched)]
        if pair[0] != pair[1]:
            return found + _between("watch", *pair)
    return found


def _between(at: str, real: Any, simulated: Any) -> list[Difference]:
    if isinstance(real, Mapping) and isinstance(simulated, Mapping):
        pairs = [(name, real.get(name), simulated.get(name)) for name in sorted(real.keys() | simulated.keys())]
        return [Difference(at, name, theirs, ours) for name, theirs, ours in pairs if theirs != ours]
    return [] if real == simulated else [Difference(at, "", real, simulated)]


Differ = Callable[[Mapping[int, Calls]], Awaitable[Mapping[int, list[Difference]]]]


async def findings(sequences: Mapping[int, Calls], differ: Differ) -> str:
    """The report of the sequences that differ, with the shortest one reduced; "": no sequence differs.

    A sequence counts if it differs twice: real clusters have actors of their own, which may have come in between once.  The
    numbers of the other sequences that differed are added to `differed_once`.

    differ  plays sequences on both clusters, and returns the differences by number
    """

    async def differing(some: Mapping[int, Calls]) -> dict[int, list[Difference]]:
        return {number: found for number, found in (await differ(some)).items() if found} if some else {}

    once = await differing(sequences)
    twice = await differing({number: sequences[number] for number in once})
    differed_once.extend(f"{number} ({once[number][0]})" for number in sorted(once.keys() - twice.keys()))
    if not twice:
        return ""
    number = min(twice, key=lambda number: len(sequences[number]))
    calls = await _shortest(sequences[number], lambda calls: differing({number: calls}))
    left = (await differing({number: calls})).get(number, twice[number])
    lines = [f"{len(twice)} of {len(sequences)} sequences differ: {', '.join(map(str, sorted(twice)))}"]
    lines += [f"SEQUENCES={number} plays one of them alone, reduced to:", *(f"  {call}" for call in calls)]
    return "\n".join([*lines, "differs in", *(f"  {each}" for each in left)])


async def assert_shown(sequence: Callable[[int], Calls], differ: Differ) -> None:
    """Assert that one of the first 100 sequences shows that the simulation is wrong, in at most MOST_REDUCED calls."""
    report = await findings({number: sequence(number) for number in range(SABOTAGE_SEQUENCES)}, differ)
    reduced, _, found = report.partition("differs in")
    assert found, f"none of {SABOTAGE_SEQUENCES} sequences shows it"
    assert reduced.count("\n") <= 2 + MOST_REDUCED, f"the reduced sequence is still long:\n{report}"


async def _shortest(calls: Calls, differ: Callable[[Calls], Awaitable[Mapping[int, object]]]) -> list[Call]:
    """The calls without those that the difference does not need."""
    kept = list(calls)
    for place in reversed(range(len(calls))):
        without = kept[:place] + kept[place + 1 :]
        if without and await differ(without):
            kept = without
    return kept

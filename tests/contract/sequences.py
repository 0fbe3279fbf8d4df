"""Generated sequences of calls, played on a real cluster and on the simulated one; a difference is a finding.

A sequence follows from its number.  `kube_sequences.py` and `slurm_sequences.py` make the calls and play them: each call
gives an answer, and at the end both clusters are read.  What stays different has a Fact, with its reason, and is not
compared; any other difference fails the test, which first drops every call that the difference does not need.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import RemoteError

FEWEST_CALLS, MOST_CALLS = 5, 12
DEFAULT = "0-249"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a sequence.

    of      the object that it is about, by its name in the sequence
    wishes  the rest of its arguments
    """

    verb: str
    of: str = ""
    wishes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.verb, self.of, *(f"{key}={value}" for key, value in self.wishes.items())])


Calls = Sequence[Call]
Shown = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """What one cluster said and showed.

    answers  one for each call
    end      what is left at the end, by its name in the sequence
    told     what the watches showed, in order
    """

    answers: Sequence[Any]
    end: Mapping[str, Any]
    told: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A field of a kind of object that is not compared, as narrowly as it is said.

    where  of which objects, as they are shown
    why    the reason, and the section of the facts that has it
    """

    field: str
    where: Callable[[Shown], bool]
    why: str


def promised(shown: Shown, facts: Iterable[Fact]) -> dict[str, Any]:
    """What is shown, without what the facts take out of the comparison."""
    return {**shown, **{fact.field: "not compared" for fact in facts if fact.where(shown)}}


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs.

    at     the call; "end" or "watch": it was seen at the end
    field  what differs in the answer; "": the whole
    """

    at: str
    field: str
    real: Any
    simulated: Any

    def __str__(self) -> str:
        return f"{self.at} {self.field}:\n    real      {self.real}\n    simulated {self.simulated}"


def numbers() -> list[int]:
    """The sequences to play: SEQUENCES is "17", "0-249" (the default)."""
    first, _, last = os.environ.get("SEQUENCES", DEFAULT).partition("-")
    return list(range(int(first), int(last or first) + 1))


async def said(asked: Awaitable[Any], shown: Callable[[Any], Any] = lambda value: value) -> Any:
    """The answer to a call as the bridge acts on it: the value, or the class and the number of the error."""
    try:
        return shown(await asked)
    except RemoteError as error:
        return type(error).__name__, error.code


def differences(calls: Calls, real: Played, simulated: Played) -> list[Difference]:
    """What differs; of the watches the first event."""
    found: list[Difference] = []
    for call, theirs, ours in zip(calls, real.answers, simulated.answers, strict=True):
        found += _between(str(call), theirs, ours)
    for name in sorted(real.end.keys() | simulated.end.keys()):
        found += _between(f"end {name}", real.end.get(name), simulated.end.get(name))
    for place in range(max(len(real.told), len(simulated.told))):
        pair = [told[place] if place < len(told) else None for told in (real.told, simulated.told)]
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
    """The report of the sequences that differ, the first one reduced; "": none does.

    differ  plays sequences on both clusters: by number what differs, without those that do not.  A sequence counts if it
            differs twice: real clusters have actors of their own, which may have come in between once
    """
    once = await differ(sequences)
    twice = await differ({number: sequences[number] for number in once}) if once else once
    if not twice:
        return ""
    number = min(twice, key=lambda number: len(sequences[number]))
    calls = await _shortest(sequences[number], lambda calls: differ({number: calls}))
    left = (await differ({number: calls})).get(number, twice[number])
    lines = [f"{len(twice)} of {len(sequences)} sequences differ: {', '.join(map(str, sorted(twice)))}"]
    lines += [f"SEQUENCES={number} plays one of them alone, reduced to:", *(f"  {call}" for call in calls)]
    return "\n".join([*lines, "differs in", *(f"  {each}" for each in left)])


async def _shortest(calls: Calls, differ: Callable[[Calls], Awaitable[Mapping[int, object]]]) -> list[Call]:
    """The calls without those that the difference does not need."""
    kept = list(calls)
    for place in reversed(range(len(calls))):
        without = kept[:place] + kept[place + 1 :]
        if without and await differ(without):
            kept = without
    return kept

"""A finding, a check, and how a table of checks becomes a list of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from bridge.cli.doctor.views import NotSeen, Observations


class Level(Enum):
    """UNKNOWN: not checked; the finding says why, and the failure that prevented the check is a finding by itself."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    ERROR = "error"


EXIT_CODES = {Level.OK: 0, Level.UNKNOWN: 0, Level.WARNING: 1, Level.ERROR: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    check       the row of the table
    sentence    what was found, and where
    do          what to do about it; "": nothing
    unchecked   why it could not be checked; "": it was checked
    """

    group: str
    check: str
    level: Level
    sentence: str
    do: str = ""
    unchecked: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A finding without its place in the table."""

    level: Level
    sentence: str
    do: str = ""
    unchecked: str = ""

    def at(self, group: str, check: str) -> Finding:
        """The finding in that row of the table."""
        return Finding(group, check, self.level, self.sentence, self.do, self.unchecked)


def ok(sentence: str, do: str = "") -> Result:
    return Result(Level.OK, sentence, do)


def warning(sentence: str, do: str) -> Result:
    return Result(Level.WARNING, sentence, do)


def error(sentence: str, do: str) -> Result:
    return Result(Level.ERROR, sentence, do)


def unknown(sentence: str) -> Result:
    return Result(Level.UNKNOWN, sentence)


def not_checked(why: str) -> Result:
    return Result(Level.UNKNOWN, f"not checked: {why}", unchecked=why)


Judge = Callable[[Observations], Iterable[Result]]


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table: its name, and the function that judges the observations."""

    name: str
    judge: Judge


def findings(groups: Sequence[tuple[str, Sequence[Check]]], observations: Observations) -> Iterator[Finding]:
    """The findings of all checks, in order.  A failed observation is one error; later checks that need it are not checked."""
    named: set[str] = set()
    for group, checks in groups:
        for check in checks:
            try:
                for result in check.judge(observations):
                    yield result.at(group, check.name)
            except NotSeen as missing:  # what the check found before it needed this observation counts
                yield _missing(missing, named).at(group, check.name)


def _missing(missing: NotSeen, named: set[str]) -> Result:
    if missing.failed and missing.why not in named:
        named.add(missing.why)
        return error(missing.why, missing.do)
    return not_checked(missing.because)


def exit_code(found: Iterable[Finding]) -> int:
    """0: nothing to do; 1: warnings; 2: errors."""
    return max((EXIT_CODES[finding.level] for finding in found), default=0)


def some(names: Iterable[str], most: int = 3) -> str:
    """ "a, b, c and 7 more"."""
    ordered = sorted(names)
    more = len(ordered) - most
    return ", ".join(ordered[:most]) + (f" and {more:,} more" if more > 0 else "")


def count(number: int, singular: str, plural: str = "") -> str:
    """ "1 node", "2 nodes"."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def wait(seconds: float) -> str:
    """The duration of a call, in words."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

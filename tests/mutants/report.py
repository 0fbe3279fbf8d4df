"""The report on the trials: the score of each package, the survivors, and which survivors are explained.

`explained.toml` has the mutants that no test can or should notice, each with its reason.  A `mutant` names the function
and both texts of the statement, and no line, so it stays true while code around it changes.  A `class` has one reason for
several mutants, and lists each: `changes` as `make mutants` prints them, without their lines, or `comparisons`: the mutants
that take `<` and `<=` for each other there.  An entry is stale if its mutant does not exist any more, or if tests notice it.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.mutations import Mutant
from tests.mutants.trials import NOTICED, Outcome, Trial

EXPLAINED = Path(__file__).with_name("explained.toml")
SEVERAL = "scheduler"  # the line of all packages
ARROW = "  →  "


@dataclass(frozen=True, slots=True)
class Change:
    """Names a mutant, or the few mutants of one function whose statements have equal texts."""

    path: str
    function: str
    before: str
    after: str

    @classmethod
    def of(cls, mutant: Mutant) -> Change:
        """The name of this mutant."""
        return cls(mutant.path, mutant.function, mutant.before, mutant.after)

    def __str__(self) -> str:
        return f"{self.path} {self.function}: {self.before}{ARROW}{self.after}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Names the mutants of one function that differ from it only if both sides of this comparison are equal."""

    path: str
    function: str
    text: str

    @classmethod
    def of(cls, mutant: Mutant) -> Comparison:
        """The comparison of this mutant; the text is empty if the mutant is of another kind."""
        return cls(mutant.path, mutant.function, mutant.boundary)

    def __str__(self) -> str:
        return f"{self.path} {self.function}: {self.text}"


Entry = Change | Comparison


@dataclass(frozen=True, slots=True)
class Explained:
    """The content of explained.toml, without the reasons."""

    entries: frozenset[Entry]

    def __contains__(self, mutant: Mutant) -> bool:
        return Change.of(mutant) in self.entries or Comparison.of(mutant) in self.entries

    @property
    def paths(self) -> list[str]:
        """The files that are named."""
        return sorted({entry.path for entry in self.entries})

    def without(self, mutants: Iterable[Mutant]) -> list[Entry]:
        """The entries that explain none of these mutants: the code has changed."""
        return sorted(self.entries - set(_names(mutants)), key=str)


def explained(text: str) -> Explained:
    """The entries of a list of explained mutants.  Raises ValueError for an entry that is not whole, or that is repeated."""
    entries: set[Entry] = set()
    for entry in _entries(tomllib.loads(text)):
        if entry in entries:
            raise ValueError(f"explained twice: {entry}")
        entries.add(entry)
    return Explained(frozenset(entries))


def _entries(content: dict[str, Any]) -> Iterator[Entry]:
    for entry in content.get("mutant", []):
        _check(entry, {"path", "function", "before", "after"})
        yield Change(entry["path"], entry["function"], entry["before"], entry["after"])
    for entry in content.get("class", []):
        _check(entry, {"comparisons" if "comparisons" in entry else "changes"})
        for text in entry.get("comparisons", []):
            (path, function), comparison = _parsed(text)
            yield Comparison(path, function, comparison)
        for text in entry.get("changes", []):
            (path, function), change = _parsed(text)
            before, after = change.split(ARROW)
            yield Change(path, function, before, after)


def _parsed(text: str) -> tuple[list[str], str]:
    """The path and the function, and the rest of the text."""
    place, rest = text.split(": ", 1)
    return place.split(" "), rest


def _names(mutants: Iterable[Mutant]) -> Iterator[Entry]:
    """By which names an entry may name these mutants."""
    for mutant in mutants:
        yield from (Change.of(mutant), Comparison.of(mutant))


def _check(entry: dict[str, object], needed: set[str]) -> None:
    if needed | {"reason"} != entry.keys() or not str(entry["reason"]).strip():
        raise ValueError(f"an entry needs {', '.join(sorted(needed))} and a reason, and has {entry}")


@dataclass(frozen=True, slots=True)
class Report:
    """Of the trials of a run."""

    trials: tuple[Trial, ...]
    explained: Explained

    @property
    def survivors(self) -> list[Trial]:
        """The trials whose mutant no test noticed, and that are not explained."""
        return [trial for trial in self.trials if self._state(trial) == "survived"]

    @property
    def stale(self) -> list[Entry]:
        """The entries all of whose mutants tests notice now."""
        tried = set(_names(trial.mutant for trial in self.trials))
        left = set(_names(trial.mutant for trial in self.trials if trial.outcome not in NOTICED))
        return sorted((self.explained.entries & tried) - left, key=str)

    def score(self) -> float:
        """Percent of the mutants that tests, or the type checker, notice: the aim is about this one."""
        return self._scores(self.trials)[0]

    def lines(self) -> Iterator[str]:
        """A table of the packages.  The last column is the percentage of mutants that are noticed or explained."""
        packages = sorted({trial.mutant.package for trial in self.trials})
        yield f"{'':28}{'mutants':>8}{'noticed':>9}{'explained':>11}{'survived':>10}{'score':>9}{'with explained':>16}"
        for package in (*packages, SEVERAL):
            trials = [trial for trial in self.trials if package in (trial.mutant.package, SEVERAL)]
            count = Counter(map(self._state, trials))
            score, with_explained = self._scores(trials)
            yield (
                f"{package:28}{len(trials):8}{count['noticed']:9}{count['explained']:11}{count['survived']:10}"
                f"{score:8.1f}%{with_explained:15.1f}%"
            )
        outcomes = Counter(trial.outcome for trial in self.trials)
        yield (
            f"{outcomes[Outcome.TIMEOUT]} did not end; the type checker rejects {outcomes[Outcome.TYPES]} that tests do not "
            f"notice; {outcomes[Outcome.SAME]} make no difference in any test."
        )

    def _state(self, trial: Trial) -> str:
        if trial.outcome in NOTICED:
            return "noticed"
        return "explained" if trial.mutant in self.explained else "survived"

    def _scores(self, trials: Sequence[Trial]) -> tuple[float, float]:
        """Percent of these mutants that are noticed, and that are noticed or explained."""
        count, of = Counter(map(self._state, trials)), max(1, len(trials))
        return 100 * count["noticed"] / of, 100 * (of - count["survived"]) / of

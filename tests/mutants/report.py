"""The report on the trials: the score of each package, the survivors, and which survivors are explained.

`explained.toml` has the mutants that no test can or should notice, each with its reason.  A `mutant` names the function
and both texts of the statement, and no line, so it stays true while code around it changes.  A `class` names functions, with
wildcards, and a regular expression that the texts, or the changed comparison, match: mutants that survive for one reason.
Either is stale if no such mutant exists any more, or if tests notice all of them.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tests.mutants.mutations import Mutant
from tests.mutants.trials import NOTICED, Outcome, Trial

EXPLAINED = Path(__file__).with_name("explained.toml")
SEVERAL = "scheduler"  # the line of all packages


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
        return f"{self.path} {self.function}: {self.before}  →  {self.after}"


@dataclass(frozen=True, slots=True)
class Class:
    """The mutants of some functions whose changes have something in common.

    where     `path function`, each with the wildcards of a shell
    change    is found in `before  →  after`
    boundary  is found in a comparison that the mutant changes at equal sides alone (`<` and `<=`)
    """

    where: tuple[str, ...]
    change: str = ""
    boundary: str = ""

    def __contains__(self, mutant: Mutant) -> bool:
        if not any(fnmatchcase(f"{mutant.path} {mutant.function}", each) for each in self.where):
            return False
        if self.boundary:
            return bool(mutant.boundary) and re.search(self.boundary, mutant.boundary) is not None
        return re.search(self.change, f"{mutant.before}  →  {mutant.after}") is not None

    def __str__(self) -> str:
        return f"{', '.join(self.where)}: {self.change or self.boundary}"


@dataclass(frozen=True, slots=True)
class Explained:
    """The content of explained.toml, without the reasons."""

    entries: frozenset[Change]
    classes: tuple[Class, ...]

    def __contains__(self, mutant: Mutant) -> bool:
        return Change.of(mutant) in self.entries or any(mutant in each for each in self.classes)

    @property
    def paths(self) -> list[str]:
        """The files that are named; of a class, with wildcards."""
        of_classes = (place.split(" ")[0] for each in self.classes for place in each.where)
        return sorted({*(change.path for change in self.entries), *of_classes})

    def without(self, mutants: Iterable[Mutant]) -> list[Change | Class]:
        """What explains none of these mutants: the code has changed."""
        existing = tuple(mutants)
        unknown: list[Change | Class] = sorted(self.entries - set(map(Change.of, existing)), key=str)
        return unknown + [each for each in self.classes if not any(mutant in each for mutant in existing)]


def explained(text: str) -> Explained:
    """The entries of a list of explained mutants.  Raises ValueError for an entry that is not whole."""
    content = tomllib.loads(text)
    entries: set[Change] = set()
    for entry in content.get("mutant", []):
        _check(entry, {"path", "function", "before", "after"})
        change = Change(entry["path"], entry["function"], entry["before"], entry["after"])
        if change in entries:
            raise ValueError(f"explained twice: {change}")
        entries.add(change)
    for entry in (classes := content.get("class", [])):
        _check(entry, {"where", "change" if "change" in entry else "boundary"})
    of = (Class(tuple(each["where"]), each.get("change", ""), each.get("boundary", "")) for each in classes)
    return Explained(frozenset(entries), tuple(of))


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
    def stale(self) -> list[Change | Class]:
        """The entries and classes all of whose mutants tests notice now."""
        tried = {Change.of(trial.mutant) for trial in self.trials}
        left = [trial.mutant for trial in self.trials if trial.outcome not in NOTICED]
        of_entries: list[Change | Class] = sorted((self.explained.entries & tried) - set(map(Change.of, left)), key=str)
        of_classes = (each for each in self.explained.classes if not any(mutant in each for mutant in left))
        return of_entries + [each for each in of_classes if any(trial.mutant in each for trial in self.trials)]

    def score(self) -> float:
        """Percent of the mutants that tests notice."""
        return 100 * sum(trial.outcome in NOTICED for trial in self.trials) / max(1, len(self.trials))

    def lines(self) -> Iterator[str]:
        """A table of the packages."""
        packages = sorted({trial.mutant.package for trial in self.trials})
        yield f"{'':28}{'mutants':>8}{'noticed':>9}{'explained':>11}{'survived':>10}{'score':>9}"
        for package in (*packages, SEVERAL):
            trials = [trial for trial in self.trials if package in (trial.mutant.package, SEVERAL)]
            count = Counter(map(self._state, trials))
            score = 100 * count["noticed"] / max(1, len(trials))
            yield (
                f"{package:28}{len(trials):8}{count['noticed']:9}{count['explained']:11}{count['survived']:10}{score:8.1f}%"
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

"""The report on the trials: the score of each package, the survivors, and which survivors are explained.

`explained.toml` has the mutants that no test can or should notice, each with its reason.  An entry names the function
and both texts of the statement, and no line, so it stays true while code around it changes.  An entry is stale if its mutant
does not exist any more, or if a test notices each mutant with these texts.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
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


def explained(text: str) -> dict[Change, str]:
    """The entries of a list of explained mutants, each with its reason.  Raises ValueError for an entry that is not whole."""
    entries: dict[Change, str] = {}
    for entry in tomllib.loads(text).get("mutant", []):
        lacking = {"path", "function", "before", "after", "reason"} ^ entry.keys()
        if lacking or not entry["reason"].strip():
            raise ValueError(f"an entry needs path, function, before, after and a reason, and has {entry}")
        change = Change(entry["path"], entry["function"], entry["before"], entry["after"])
        if change in entries:
            raise ValueError(f"explained twice: {change}")
        entries[change] = entry["reason"]
    return entries


def without_mutant(entries: Collection[Change], mutants: Iterable[Mutant]) -> list[Change]:
    """The entries whose mutant does not exist: the code has changed."""
    existing = {Change.of(mutant) for mutant in mutants}
    return [change for change in entries if change not in existing]


@dataclass(frozen=True, slots=True)
class Report:
    """Of the trials of a run."""

    trials: tuple[Trial, ...]
    entries: dict[Change, str]

    @property
    def survivors(self) -> list[Trial]:
        """The trials whose mutant no test noticed, and that are not explained."""
        return [trial for trial in self.trials if self._state(trial) == "survived"]

    @property
    def stale(self) -> list[Change]:
        """The entries all of whose mutants tests notice now."""
        outcomes: dict[Change, set[bool]] = {}
        for trial in self.trials:
            outcomes.setdefault(Change.of(trial.mutant), set()).add(trial.outcome in NOTICED)
        return [change for change in self.entries if outcomes.get(change) == {True}]

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
        yield f"{outcomes[Outcome.TIMEOUT]} did not end; {outcomes[Outcome.SAME]} make no difference in any test."

    def _state(self, trial: Trial) -> str:
        if trial.outcome in NOTICED:
            return "noticed"
        return "explained" if Change.of(trial.mutant) in self.entries else "survived"

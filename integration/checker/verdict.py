"""What the checker finds: violations, and how much it judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Broken:
    """A violation.  about: the pod (namespace/name) or the name of the job; at: when."""

    invariant: str
    about: str
    at: float
    sentence: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.sentence}"


@dataclass(slots=True)
class Verdict:
    """The result: violations that nobody announced, announced ones that did not occur, and how much was judged."""

    broken: list[Broken] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    judged: Counter[str] = field(default_factory=Counter)
    excused: int = 0

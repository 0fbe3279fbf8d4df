"""What the checker finds: violations, and how much it judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

# What the logs lack if nothing was judged of an invariant.
LACKS = {
    "K1": "no write on a pod by a bridge, which its user agent shows",
    "V1": "no placeholder of a user of the policy that had nodes",
    "V2": "no bind by a bridge, which its user agent shows, for a job of slurmdbd",
    "V3": "no bind by a bridge to a node whose allocatable resources are known",
    "V4": "no gang that was bound",
    "V5": "no bind for a job of which slurmdbd has the resources",
    "V6": "no foreign job, and no job of one of two bridges",
    "V7": "no end of a pod by a bridge, and no job that a bridge cancelled after its pods",
    "V8": "no placeholder for which a rule without templates and selectors decides",
    "L1": "no pod that waited, or on which a bridge wrote why it waits",
    "L2": "no placeholder of pods that are known",
    "L3": "no placeholder of pods that are known, and that had nodes",
    "L4": "no bind by a bridge for a job that is known",
}


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

    def missing(self, must: Iterable[str]) -> list[str]:
        """A sentence for each of these invariants of which nothing was judged."""
        return [f"{each} was not judged: the logs have {LACKS[each]}" for each in must if not self.judged[each]]

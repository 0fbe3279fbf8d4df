"""The invariants, and what violates one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

INVARIANTS: Mapping[str, str] = {
    "V1": "a workload has at most one running job",
    "V2": "a pod is bound only to nodes of its job",
    "V3": "a pod is bound only where it fits",
    "V4": "a gang is bound wholly or not at all",
    "V5": "no granted resource is given to two pods",
    "V6": "no foreign job is changed",
    "V7": "no pod is ended while its job lives",
    "V8": "each job has the user, account and partition that the policy allows",
    "L1": "every waiting pod shows why it waits",
    "L2": "no job is left without its pod",
    "L3": "the pods of each started job are bound",
    "L4": "no pod stays on its node long after its job",
}


class Violation(AssertionError):
    """A violation of an invariant.  at: when it was found, by the clock of the invariants"""

    def __init__(self, invariant: str, what: str, at: float) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what
        self.at = at


@dataclass(frozen=True, slots=True)
class Finding:
    """A violated invariant in one observation.  about: the job or pod, the same text in every observation"""

    invariant: str
    about: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


# Checks a request for a violation of that invariant, which the function returns in words; "": there is none.  The result is
# True if no violation is known now.
Judge = Callable[[str, Callable[[], str]], bool]

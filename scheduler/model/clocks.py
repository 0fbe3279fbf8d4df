"""Times that other machines tell.

The API server and slurmctld have clocks of their own, which may differ from the bridge's by hours.  So a wait of the bridge
counts from when the bridge saw what happened, not from when another clock says that it happened.  But another clock's time
is more exact, and it alone tells of what happened before the bridge looked.  So it is used once that clock has said what time
it is, and before that where it is near to what was seen.

Kubernetes' clock is the API server's; kubelets and controllers are taken to have the same, as Kubernetes itself does.
"""

from __future__ import annotations

from dataclasses import dataclass

NEAR_S = 60.0  # another clock's time that differs by less from when its news came may be the time of the news
NONSENSE_S = 2 * 86400.0  # a clock that is as far away as that is not one: credentials would not be accepted either
EXACT_S = 3.0  # what happened while the bridge looked on is not taken to have happened longer before, or after


@dataclass(slots=True)
class FarClock:
    """The clock of one side.

    ahead   seconds by which it is ahead of the bridge's; 0.0 as long as nothing contradicts that
    told    it has said what time it is
    """

    ahead: float = 0.0
    told: bool = False

    def tells(self, theirs: float, began: float, ended: float) -> None:
        """Note that an answer tells the time `theirs`, in whole seconds.  began, ended: of the call, by the bridge's clock"""
        if max(abs(theirs - ended), abs(theirs + 1.0 - began)) < NONSENSE_S:
            self.told = True
            self.ahead = min(max(self.ahead, theirs - ended), theirs + 1.0 - began)

    def ours(self, theirs: float) -> float:
        """A time of this clock, by the bridge's clock."""
        return theirs - self.ahead

    def theirs(self, ours: float) -> float:
        """A time of the bridge's clock, by this clock."""
        return ours + self.ahead

    def happened(self, theirs: float | None, seen: float) -> float:
        """When it happened, by the bridge's clock: the bridge saw it happen at `seen`, by this clock it did at `theirs`."""
        if self.told or theirs is None:
            return self.had_happened(theirs, seen)
        ours = self.ours(theirs)
        return ours if abs(ours - seen) <= NEAR_S else seen

    def had_happened(self, theirs: float | None, seen: float) -> float:
        """The same of what had happened already when the bridge looked first, at `seen`."""
        ours = self.ours(theirs) if theirs is not None else seen
        return ours if ours <= seen + (EXACT_S if self.told else NEAR_S) else seen


@dataclass(slots=True)
class Sighting:
    """When this life first saw something of a pod, by the bridge's clock; None: not yet.

    first    the pod.  What had happened by then was not seen to happen:
    bound    that it stands on a node
    started  that its kubelet took it over
    waits    why it does not start (model.Pod.waits), of this waits_since
    stuck    that what needs a person keeps it from starting, after kubelet had been at work (scheduler/model/kubelet.py)
    """

    first: float
    bound: float | None = None
    started: float | None = None
    waits: float | None = None
    waits_since: float | None = None
    stuck: float | None = None


def grace_ends(deleting_at: float, grace_s: float, seen: float) -> float:
    """When the grace of a pod ends, by the bridge's clock.

    deleting_at  by the API server's clock
    seen         when the bridge first saw that the pod is being deleted
    """
    return deleting_at if seen <= deleting_at <= seen + grace_s + NEAR_S else seen + grace_s

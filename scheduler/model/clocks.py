"""Times of other machines' clocks.

The clocks of the API server and slurmctld may differ from the bridge's by hours.  So a wait of the bridge counts from the
observation of an event, not from its time by another clock.  But the time by the other clock is more exact, and for events
before the bridge's first observation there is no other time.  So the bridge uses that time if the offset of the clock is
known.  As long as the offset is not known, the bridge uses that time only if it is near to the observation.

Kubernetes' clock is the API server's; kubelets and controllers are assumed to have the same time, as Kubernetes does.
"""

from __future__ import annotations

from dataclasses import dataclass

NEAR_S = 60.0  # another clock's time is used before its offset is known, if it differs by less from the observation
NONSENSE_S = 2 * 86400.0  # a clock with a larger offset is ignored: credentials would not be accepted either
EXACT_S = 3.0  # the most by which the time of an observed event may differ from the observation


@dataclass(slots=True)
class ClusterClock:
    """The clock of one side.

    ahead   seconds by which it is ahead of the bridge's clock; 0.0 until an answer shows another offset
    is_known  True after the first answer that showed the time of this clock
    """

    ahead: float = 0.0
    is_known: bool = False

    def observe(self, theirs: float, began: float, ended: float) -> None:
        """Note the time of an answer by this clock, in whole seconds.  began, ended: of the call, by the bridge's clock"""
        if max(abs(theirs - ended), abs(theirs + 1.0 - began)) < NONSENSE_S:
            self.is_known = True
            self.ahead = min(max(self.ahead, theirs - ended), theirs + 1.0 - began)

    def ours(self, theirs: float) -> float:
        """A time of this clock, by the bridge's clock."""
        return theirs - self.ahead

    def theirs(self, ours: float) -> float:
        """A time of the bridge's clock, by this clock."""
        return ours + self.ahead

    def happened(self, theirs: float | None, seen: float) -> float:
        """The time of an event by the bridge's clock: observed at `seen`; by that clock at `theirs` (None: unknown)."""
        if self.is_known or theirs is None:
            return self.had_happened(theirs, seen)
        ours = self.ours(theirs)
        return ours if abs(ours - seen) <= NEAR_S else seen

    def had_happened(self, theirs: float | None, seen: float) -> float:
        """The same for an event that happened before the first observation, at `seen`."""
        ours = self.ours(theirs) if theirs is not None else seen
        return ours if ours <= seen + (EXACT_S if self.is_known else NEAR_S) else seen


@dataclass(slots=True)
class FirstSeen:
    """When this process first saw each of these facts of a pod, by the bridge's clock; None: not yet.

    first    the pod exists
    bound    it has a node
    started  kubelet started it
    waits    the present reason why it does not start (Pod.waits); waits_since is the time that kubelet gives
    stuck    it cannot start without a person, although kubelet has tried (scheduler/model/kubelet.py)
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

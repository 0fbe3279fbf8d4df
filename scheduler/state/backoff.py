"""When a failed attempt is repeated: after a pause that doubles, for each kind of attempt separately (S14)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from scheduler.tuning import Tuning


class Attempt(StrEnum):
    """Kinds of actions with a backoff of their own in each workload: ends, the reads before ends, and updates (S14).

    The end of a job or of a pod must not wait because another action failed, perhaps in the other cluster.  Meanwhile a job
    whose pods are gone holds its nodes, and pods whose job is over use nodes that Slurm gives to other jobs.  A bind must not
    wait because an update of the waiting job failed.
    """

    READ_JOB = "read job"  # ReadJob
    UPDATE_JOB = "update job"  # UpdateJob
    END_JOB = "end job"  # CancelJob
    RECORD = "record"  # RecordEnd
    END_POD = "end pod"  # DeletePod, FailByDeadline
    MOVE = "move"  # EvictPod, SetDeadline: the job still lives


class Backoff(NamedTuple):
    """The state of a backoff.

    failures   how many attempts failed in a row
    until      no attempt is made before this time, epoch seconds; -inf: the next attempt is made at once
    """

    failures: int = 0
    until: float = float("-inf")

    def after(self, at: float, began: float, tuning: Tuning) -> Backoff:
        """The backoff after another failure: the wait doubles.

        began   when the failed call was sent: calls that were sent together count as one attempt
        """
        together = began < self.until and self.failures > 0
        failures = self.failures if together else min(self.failures + 1, 16)
        until = at + min(tuning.backoff_max_s, tuning.backoff_s * 2 ** (failures - 1))
        # The server may have asked for a longer pause in the answer to one of the calls.
        return Backoff(failures, max(self.until, until) if together else until)

    def after_success(self) -> Backoff:
        """The backoff after a success: the next failure counts as the first."""
        return self._replace(failures=0)

    def at_latest(self, at: float) -> Backoff:
        """The backoff with a wait that ends at *at*, or sooner."""
        return self._replace(until=min(self.until, at))

    def at_earliest(self, at: float) -> Backoff:
        """The backoff with a wait that ends at *at*, or later."""
        return self._replace(until=max(self.until, at))


NO_FAILURE = Backoff()

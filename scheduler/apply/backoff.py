"""How long a workload waits after a refused action if the server asks for a pause, for each kind of attempt (S14)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler import actions as act
from scheduler.model.refusal import Refusal
from scheduler.state.backoff import NO_FAILURE, Attempt
from scheduler.state.workload import Workload

MAX_RETRY_AFTER_S = 300.0
END_RETRY_AFTER_S = 30.0  # for an end, and the read before an end: L4 allows 45 s in all, and nodes are held meanwhile

# Each kind of attempt has a backoff of its own, so that a failed attempt delays no end of another kind.
ATTEMPTS: Mapping[type, Attempt] = {
    act.ReadJob: Attempt.READ_JOB,
    act.UpdateJob: Attempt.UPDATE_JOB,
    act.CancelJob: Attempt.END_JOB,
    act.RecordEnd: Attempt.RECORD,
    act.DeletePod: Attempt.END_POD,
    act.FailByDeadline: Attempt.END_POD,
    act.EvictPod: Attempt.MOVE,
    act.SetDeadline: Attempt.MOVE,
}


def wait_as_requested(workload: Workload, action: act.Action, refusal: Refusal, at: float) -> None:
    """Wait as long as the server asks for, within a limit.

    Actions of a kind of Attempt delay only their own kind.  For ends, and the reads before ends, the limit is lower.
    """
    requested_s = refusal.retry_after_s or 0.0
    if (attempt := ATTEMPTS.get(type(action))) is not None:
        most_s = MAX_RETRY_AFTER_S if attempt is Attempt.UPDATE_JOB else END_RETRY_AFTER_S
        before = workload.backoffs.get(attempt, NO_FAILURE)
        workload.backoffs[attempt] = before.at_earliest(at + min(requested_s, most_s))
        return
    until = at + min(requested_s, MAX_RETRY_AFTER_S)
    if until > at:
        workload.backoff = workload.backoff.at_earliest(until)
        workload.retry_at = max(workload.retry_at, until)

"""Slurm's reasons for the wait of a job, one span for each; the span is sent when the next reason is read.

Reasons are read with the details of waiting jobs (Q2).  The span of the first reason begins at the submission.  After a
restart it begins when the pod came to show the reason (in whole seconds); the former process sent the earlier reasons.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.tracing.span import JOB, Spans

QUEUE = "queue"
UNREAD = "None"  # Slurm's own word for a job that it has not considered yet


@dataclass(slots=True)
class Waiting:
    """A job that waits.

    asked   when the job was submitted; None: an earlier process submitted it, and the time is not known
    reason  why the job waits; "": not read yet
    since   since when the job waits for that reason
    """

    spans: Spans
    job: int
    asked: float | None
    reason: str = ""
    since: float = 0.0

    def read(self, reason: str, at: float, since: float) -> None:
        """Note the reason that Slurm showed.  since: when the reason began, if it is the first"""
        if not self.reason:
            self.reason, self.since = reason or UNREAD, since
        elif (reason or UNREAD) != self.reason:
            self.end(at)
            self.reason, self.since = reason or UNREAD, at

    def end(self, at: float) -> None:
        """Send the span of the present reason.  If no reason was read yet, send nothing."""
        if not self.reason:
            return
        spans, until = self.spans, max(at, self.since)
        attributes = {JOB: self.job, "slurm.job.state_reason": self.reason}
        which = (self.job, round(self.since, 3))
        spans.send(self.reason, which, self.since, until, attributes, parent=spans.id(QUEUE, self.job))
        self.reason, self.since = "", until

"""Slurm's reasons for the wait of a job, each in turn: a span as soon as the next reason is read.

Reasons are read with the details of waiting jobs (Q2).  The first reason that is read counts since the submission.  After a
restart it counts since the pod shows it (in whole seconds); the earlier reasons were sent by the former process.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.tracing.span import JOB, Spans

QUEUE = "queue"
UNREAD = "None"  # Slurm's own word for a job that it has not considered yet


@dataclass(slots=True)
class Waiting:
    """A job that waits.

    asked   when it was submitted; None: by an earlier process, and not known
    reason  why it waits; "": not read yet
    since   since when it waits for that reason
    """

    spans: Spans
    job: int
    asked: float | None
    reason: str = ""
    since: float = 0.0

    def read(self, reason: str, at: float, since: float) -> None:
        """Slurm showed that reason.  since: when the first reason began"""
        if not self.reason:
            self.reason, self.since = reason or UNREAD, since
        elif (reason or UNREAD) != self.reason:
            self.end(at)
            self.reason, self.since = reason or UNREAD, at

    def end(self, at: float) -> None:
        """Send the span of the present reason; none is read yet: there is no span."""
        if not self.reason:
            return
        spans, until = self.spans, max(at, self.since)
        attributes = {JOB: self.job, "slurm.job.state_reason": self.reason}
        which = (self.job, round(self.since, 3))
        spans.send(self.reason, which, self.since, until, attributes, parent=spans.id(QUEUE, self.job))
        self.reason, self.since = "", until

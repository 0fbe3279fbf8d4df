"""How long each step of an allocation takes: histograms by partition, QOS and outcome, with exemplars that name the trace.

    created ──► submitted ──► granted ──► bound ──► running
      create_to_submit  submit_to_grant  grant_to_bind  bind_to_running
      └──────────── create_to_bind ────────────┘

The histograms are those of prometheus_client, because OpenTelemetry's exporter for Prometheus writes no exemplars.  An
exemplar is the trace id of one observation in a bucket.  It is no label, so the number of time series does not grow with the
pods.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram

from bridge.labels import BoundedLabels
from scheduler.actions import BindPod
from scheduler.model.slurm import JobSpec
from scheduler.state.placeholder import Placeholder

OUTCOMES = IMMEDIATE, QUEUED = "immediate", "queued"
DEFAULT = "default"
LABELS = ("partition", "qos", "outcome")

Labels = tuple[str, ...]  # partition and QOS


@dataclass(frozen=True, slots=True)
class _Series:
    """The series of one partition, QOS and outcome."""

    created_bound: Histogram
    created_submitted: Histogram
    submitted_granted: Histogram
    granted_bound: Histogram
    bound_running: Histogram


class Latency:
    """The histograms.

    buckets   upper bounds, seconds
    """

    def __init__(self, registry: CollectorRegistry, buckets: tuple[float, ...]) -> None:
        self._bounded = BoundedLabels()
        self._series: dict[tuple[Labels, str], _Series] = {}

        def histogram(name: str, help_text: str, *labels: str) -> Histogram:
            return Histogram(name, help_text, labels, registry=registry, buckets=buckets)

        self._created_bound = histogram("slurm_bridge_create_to_bind_seconds", "pod created to bound", *LABELS)
        self._created_submitted = histogram(
            "slurm_bridge_create_to_submit_seconds", "pod created to its job submitted", *LABELS
        )
        self._submitted_granted = histogram(
            "slurm_bridge_submit_to_grant_seconds", "job submitted to its grant seen: Slurm's queue", *LABELS
        )
        self._granted_bound = histogram("slurm_bridge_grant_to_bind_seconds", "grant seen to bound", *LABELS)
        self._bound_running = histogram("slurm_bridge_bind_to_running_seconds", "bound to running", *LABELS)
        self._created_deleted = histogram(
            "slurm_bridge_create_to_deletion_seconds", "pod created to deleted, of pods that were never bound"
        )

    def labels_of(self, job: Placeholder | None, default_partition: str) -> Labels:
        """Partition and QOS that the job asked for; "default" for a QOS that it did not name.

        The values of the submission count first: the values of Slurm are read only of jobs that wait.
        """
        spec = job.spec or job.adopted_as if job is not None else None
        if spec is not None:
            return self.labels_of_spec(spec, default_partition)
        read = job.job if job is not None else None
        return self._bounded.of(read.partition, read.qos or DEFAULT) if read else self._bounded.of(DEFAULT, DEFAULT)

    def labels_of_spec(self, spec: JobSpec, default_partition: str) -> Labels:
        """As `labels_of`, for a submission."""
        return self._bounded.of(spec.partition or default_partition or DEFAULT, spec.qos or DEFAULT)

    def note_submitted(self, labels: Labels) -> None:
        """Begin the series of a submitted job with 0: Prometheus sees no increase of a series that was absent before."""
        for outcome in OUTCOMES:
            self._of(labels, outcome)

    def note_bound(self, bind: BindPod, created: float, at: float, labels: Labels, outcome: str, trace_id: str) -> None:
        """A pod was bound.

        created   epoch seconds, as exact as known
        outcome   IMMEDIATE: Slurm granted the nodes at the submission; QUEUED: the job waited in Slurm's queue
        trace_id  32 hexadecimal digits; "": not known
        """
        exemplar, series = _exemplar(trace_id), self._of(labels, outcome)
        series.created_bound.observe(max(0.0, at - created), exemplar)
        if bind.granted is not None:
            series.granted_bound.observe(max(0.0, at - bind.granted), exemplar)
        if bind.asked is None:
            return
        # Slurm's times are in whole seconds: a submission is never before the creation.
        asked = max(created, bind.asked)
        series.created_submitted.observe(asked - created, exemplar)
        if bind.granted is not None:
            series.submitted_granted.observe(max(0.0, bind.granted - asked), exemplar)

    def note_running(self, took_s: float, labels: Labels, outcome: str, trace_id: str) -> None:
        """The containers of a bound pod started.  outcome: that of its bind"""
        self._of(labels, outcome).bound_running.observe(max(0.0, took_s), _exemplar(trace_id))

    def note_deleted_unbound(self, took_s: float) -> None:
        """A pod was deleted before it was bound."""
        self._created_deleted.observe(max(0.0, took_s))

    def _of(self, labels: Labels, outcome: str) -> _Series:
        """The series with these labels; made once, because to look one up costs as much as to observe."""
        if (known := self._series.get((labels, outcome))) is None:
            known = self._series[labels, outcome] = _Series(
                created_bound=self._created_bound.labels(*labels, outcome),
                created_submitted=self._created_submitted.labels(*labels, outcome),
                submitted_granted=self._submitted_granted.labels(*labels, outcome),
                granted_bound=self._granted_bound.labels(*labels, outcome),
                bound_running=self._bound_running.labels(*labels, outcome),
            )
        return known


def _exemplar(trace_id: str) -> dict[str, str] | None:
    return {"trace_id": trace_id} if trace_id else None

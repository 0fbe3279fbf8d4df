"""Metrics of the webhook for Prometheus: reviews by outcome, their duration, and the expiry of the certificate.

No pod, namespace or user is a label.  docs/metrics.md explains each metric.
"""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bridge.exposition import scraped

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 3)  # the API server waits 3 s


class Outcome(StrEnum):
    """The outcome of one review."""

    INTERCEPTED = "intercepted"  # the pod gets the scheduler
    LEFT_ALONE = "left_alone"  # the pod stays as it is
    UNREADABLE = "unreadable"  # no JSON, or it did not arrive whole
    TOO_LARGE = "too_large"
    LATE = "late"  # it did not arrive in time
    BUSY = "busy"  # too many reviews were being read
    FAILED = "failed"  # an error of slurm-bridge itself, which the log has


class Metrics:
    """The metrics of one webhook, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._reviews = Counter(
            "slurm_bridge_webhook_reviews", "reviews by outcome", ["outcome"], registry=self._registry
        )
        for outcome in Outcome:
            self._reviews.labels(outcome.value)  # an increase from 0, not from nothing, shows the first review
        self._took = Histogram(
            "slurm_bridge_webhook_review_seconds",
            "from a review's headers to its answer",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._expiry = Gauge(
            "slurm_bridge_webhook_certificate_expiry_timestamp_seconds",
            "when the certificate expires",
            registry=self._registry,
        )

    def reviewed(self, outcome: Outcome, seconds: float) -> None:
        """Count one review, and how many seconds it took."""
        self._reviews.labels(outcome.value).inc()
        self._took.observe(seconds)

    def uses(self, ends: float) -> None:
        """Note that new connections get a certificate that expires at *ends*, epoch seconds."""
        self._expiry.set(ends)

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, and its content type.  accept: the header `Accept` of the request"""
        return scraped(self._registry, accept)

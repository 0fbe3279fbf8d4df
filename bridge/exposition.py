"""Metrics as text: OpenMetrics, with exemplars, for a client that accepts it; else Prometheus' text format, without."""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

# The creation times of all series would double the number of lines, and no query uses them.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


def scraped(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All metrics of the registry, and their content type.  accept: the header `Accept` of the request"""
    if "application/openmetrics-text" in accept:
        return openmetrics.generate_latest(registry), openmetrics.CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]
    return exposition.generate_latest(registry), exposition.CONTENT_TYPE_PLAIN_0_0_4

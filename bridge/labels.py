"""Label values of metrics, bounded.

Partitions, QOS and reasons are named by admins, users and future versions of Slurm.  Prometheus keeps a time series for each
combination of label values, so a metric may have only so many of them.
"""

from __future__ import annotations

OTHER = "other"
MOST_COMBINATIONS = 50


class BoundedLabels:
    """The combinations of label values of one or more metrics: the first *most* combinations keep their values."""

    def __init__(self, most: int = MOST_COMBINATIONS) -> None:
        self._most = most
        self._kept: set[tuple[str, ...]] = set()

    def of(self, *values: str) -> tuple[str, ...]:
        """The values themselves; of a combination beyond the limit: "other" in the place of each value."""
        if values not in self._kept:
            if len(self._kept) >= self._most:
                return (OTHER,) * len(values)
            self._kept.add(values)
        return values

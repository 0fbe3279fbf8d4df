"""A figure: the measured value of each repeat, with the target and the value that it is compared with."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a figure.

    bound      in the figure's unit, or as a multiple of the value that the figure is compared with
    at_least   more is better
    relative   the bound is a multiple of the compared value of the same repeat
    or_times   a larger value meets the target, too, up to this multiple of the compared value of the same repeat
    always     True: no repeat may miss it; False: the median of the repeats may not
    """

    bound: float
    at_least: bool = False
    relative: bool = False
    or_times: float | None = None
    always: bool = False

    def asked(self, unit: str, compared_with: str) -> str:
        """The target as it is printed, of a figure with this unit that is compared with this."""
        sign = "≥" if self.at_least else "≤"
        of = f"× {compared_with}" if self.relative else unit
        asked = f"{sign} {self.bound:g} {of}".rstrip()
        return asked if self.or_times is None else f"{asked}, or {self.or_times:g} × {compared_with}"


def at_most(bound: float, *, or_times: float | None = None) -> Target:
    return Target(bound, or_times=or_times)


def at_least(bound: float) -> Target:
    return Target(bound, at_least=True)


def never_more_than(bound: float) -> Target:
    """In no repeat."""
    return Target(bound, always=True)


def at_most_times(bound: float) -> Target:
    return Target(bound, relative=True)


def at_least_times(bound: float) -> Target:
    return Target(bound, at_least=True, relative=True)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report.

    values         one a repeat
    compared       the values that these are compared with, one a repeat, or none at all
    compared_with  what was measured there: the floor, or, for example, "without metrics"
    """

    scenario: str
    name: str
    unit: str
    values: tuple[float, ...]
    target: Target | None = None
    compared: tuple[float, ...] = ()
    compared_with: str = FLOOR

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def ratios(self) -> list[float]:
        """The ratios to the compared values, repeat by repeat: the state of the machine at that moment affects both."""
        if not self.compared or not all(self.compared):  # of nothing there is no share
            return []
        return [value / compared for value, compared in zip(self.values, self.compared, strict=True)]

    @property
    def met(self) -> bool | None:
        """True if the target is met; None: there is no target.  The three shown digits are compared: no more are measured."""
        if self.target is None:
            return None
        values = self.ratios if self.target.relative else self.values
        if not values:
            return None
        more = self.target.or_times
        return self._holds(values, self.target.bound) or bool(more and self.ratios and self._holds(self.ratios, more))

    def _holds(self, values: Sequence[float], bound: float) -> bool:
        assert self.target is not None
        held = values if self.target.always else [statistics.median(values)]
        shown = [float(f"{value:.3g}") for value in held]
        return all(value >= bound if self.target.at_least else value <= bound for value in shown)

    def plain(self) -> dict[str, Any]:
        """The fields, and the values that follow from them, for JSON."""
        return asdict(self) | {
            "asked": self.target.asked(self.unit, self.compared_with) if self.target else None,
            "median": self.median,
            "ratio": statistics.median(self.ratios) if self.ratios else None,
            "met": self.met,
        }

    def cells(self) -> tuple[str, ...]:
        """The cells of its row in the table."""
        shown, many = [short(value) for value in (min(self.values), max(self.values))], len(self.values)
        return (
            self.scenario,
            self.name,
            self.target.asked(self.unit, self.compared_with) if self.target else "",
            f"{short(self.median)} {self.unit}".rstrip(),
            f"{'–'.join(shown)} ({many})" if many > 1 else "(1)",
            f"{self.compared_with}: {short(statistics.median(self.compared))}" if self.compared else "",
            f"{statistics.median(self.ratios):.2f}" if self.ratios else "",
            {None: "", True: "yes", False: "NO"}[self.met],
        )


HEADINGS = ("scenario", "figure", "asked", "median", "spread (repeats)", "compared with", "ratio", "met")


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one run within a rig.

    versions  of the clusters: "slurm", "kubernetes"
    """

    figures: list[Figure]
    versions: dict[str, str]


def merged(figures: Iterable[Figure]) -> list[Figure]:
    """Repeats that were measured apart as one figure each, in the order in which they came first."""
    found: dict[tuple[str, str], Figure] = {}
    for figure in figures:
        key = figure.scenario, figure.name
        known = found.get(key)
        found[key] = (
            replace(known, values=known.values + figure.values, compared=known.compared + figure.compared)
            if known
            else figure
        )
    return list(found.values())


def table(figures: Sequence[Figure], commits: Mapping[str, str]) -> str:
    """A table that is readable in a terminal, and valid Markdown.  commits: where each scenario was measured."""
    rows = [(*HEADINGS, "measured at"), *((*figure.cells(), commits.get(figure.scenario, "")) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def short(value: float) -> str:
    """The value with three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"

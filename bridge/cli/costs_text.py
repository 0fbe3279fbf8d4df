"""What a job costs, for people: billing units, fair share, and limits with what is used of them."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.cli.paragraphs import pairs, wrapped
from bridge.cli.terminal import printable
from bridge.slurm.costs import Costs
from scheduler.model.text import decimal


def costs_lines(costs: Costs, width: int) -> Iterator[str]:
    """The section, with an empty line before it.  Nothing that Slurm sent controls the terminal."""
    yield ""
    yield "What it costs"
    yield from pairs(((name, printable(value)) for name, value in _values(costs)), width)
    for sentence in costs.terms.absent:
        yield from wrapped(printable(sentence), width)


def _values(costs: Costs) -> Iterator[tuple[str, str]]:
    terms = costs.terms
    weights = ""  # not shown; a sentence says why
    if terms.weights is not None:
        weights = (
            f" (TRESBillingWeights {terms.weights})" if terms.weights else " (no TRESBillingWeights: its CPUs count)"
        )
    if costs.billing is not None:
        yield "billing", f"{decimal(costs.billing, 6)} an hour in partition {terms.partition}{weights}"
    elif terms.weights:
        yield "billing", f"not known: the weights of partition {terms.partition} cannot be read ({terms.weights})"
    if (share := terms.share) is not None:
        yield (
            "fair share",
            f"factor {share.factor:.2f} of user {share.user} in account {share.account} (0 to 1: more comes first); "
            f"{share.shares:.0%} of the shares, {share.used:.0%} of the usage there",
        )
    for number, limit in enumerate(terms.limits):
        used = f", {limit.used:,} used" if limit.used is not None else ""
        yield "limits" if number == 0 else " ", f"{limit.limit}{used}"

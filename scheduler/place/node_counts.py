"""How many nodes each component of a gang's job may take (W7).

Slurm counts nodes for each component of a heterogeneous job, and gives each component nodes of its own (Slurm facts 11).  The
annotations `min-nodes` and `max-nodes`, and the policy's limit, count for the gang as a whole.  So the components share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler import names
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec

_AS_IF_ALL = (
    " If some pods of a kind have anti-affinity, or need resources that Slurm does not count, all pods of that kind count "
    "as such."
)


@dataclass(frozen=True, slots=True)
class Counted:
    """A component, and the number of nodes that it takes at least, if they are empty, and at most.

    usable      the number of nodes that it may use
    is_limited  True if something that Slurm does not count limits the number of its pods on one node
    """

    spec: JobSpec
    fewest: int
    most: int
    usable: int = 1
    is_limited: bool = False


def shared(least: int | None, most: int | None, components: Sequence[Counted]) -> list[JobSpec] | Refusal:
    """The components, each with its share of the gang's least and largest number of nodes; or a Refusal if it is too small.

    Each component gets one node, then as many as it cannot do without.  Further nodes go to the components with most pods.
    No component gets more nodes than it has pods, because Slurm refuses that (2025).  The sums do not depend on the nodes
    that exist.
    """
    specs = [component.spec for component in components]
    needed = [component.fewest for component in components]
    if most is not None and sum(needed) > most:
        return Refusal(
            names.REFUSED,
            f"{needed_in_all(components, sum(needed))} Annotation {names.PREFIX}{names.MAX_NODES} or the policy "
            f"(max_nodes) allows {most:,}. Raise the number, or let the pods ask for the same.",
        )
    limits = [component.most for component in components]
    at_least = [1] * len(specs)
    for bounds in (needed, [min(component.most, component.usable) for component in components], limits):
        at_least = _handed_out(least or 0, at_least, bounds)
    at_most = _handed_out(most or 0, list(map(max, needed, at_least)), limits)
    return [
        replace(spec, min_nodes=low if least is not None else None, max_nodes=high if most is not None else None)
        for spec, low, high in zip(specs, at_least, at_most, strict=True)
    ]


def needed_in_all(components: Sequence[Counted], nodes: int) -> str:
    """How many nodes these components of one job need, in words."""
    if len(components) == 1:
        return f"One kind of pods of this gang needs at least {nodes:,} nodes."
    return (
        f"{len(components):,} kinds of pods of this gang ask for different resources or nodes, and Slurm gives each kind "
        f"nodes of its own: at least {nodes:,} nodes in all."
        f"{_AS_IF_ALL if any(component.is_limited for component in components) else ''}"
    )


def _handed_out(total: int, shares: Sequence[int], limits: Sequence[int]) -> list[int]:
    """These shares, with the rest of the total added: first to the share with the largest limit, up to that limit."""
    found, further = list(shares), max(0, total - sum(shares))
    for index in sorted(range(len(found)), key=lambda at: -limits[at]):
        more = min(further, max(0, limits[index] - found[index]))
        found[index] += more
        further -= more
    return found

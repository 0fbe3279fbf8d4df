"""Where a job would go among the nodes of the simulated Slurm: now, when they are empty, or when others have ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from bridge.simulation.slurm.jobs import SimJob
from bridge.simulation.slurm.layout import layout
from bridge.simulation.slurm.nodes import NOTHING, Holding, SlurmSimNode, Wanted

Freed = Mapping[str, Mapping[int, Holding]]
NOTHING_FREED: Freed = {}


def fits_empty(wanted: Wanted, nodes: Collection[SlurmSimNode]) -> bool:
    """True if these nodes could run it if they were empty."""
    if wanted.tasks == 1:
        return any(node.room_when_empty(wanted) for node in nodes)
    return layout({node.name: node.room_when_empty(wanted) for node in nodes}, wanted) is not None


def places_for(
    wanted: Wanted,
    nodes: Mapping[str, SlurmSimNode],
    among: Iterable[SlurmSimNode] | None = None,
    freed: Freed = NOTHING_FREED,
) -> Mapping[str, int] | None:
    """Node to how many of its tasks it would get there; None: no room.

    nodes   all, in Slurm's order, from which neighbours follow
    among   only these may be taken; None: all
    freed   counted as free
    """
    allowed = nodes.values() if among is None else among
    if wanted.tasks == 1:
        fitting = (node.name for node in allowed if node.room(wanted, freed.get(node.name, NOTHING)))
        first = next(fitting, "")
        return {first: 1} if first else None
    names = {node.name for node in allowed}
    rooms = {name: node.room(wanted, freed.get(name, NOTHING)) if name in names else 0 for name, node in nodes.items()}
    return layout(rooms, wanted)


def held_by(jobs: Iterable[SimJob]) -> Freed:
    """The resources of these jobs, by node and job."""
    held: dict[str, dict[int, Holding]] = {}
    for job in jobs:
        for holding in job.holdings:
            held.setdefault(holding.node, {})[job.id] = holding
    return held

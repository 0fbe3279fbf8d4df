"""Which nodes a job gets in the simulated Slurm, and how many tasks on each: as the layout of cons_tres was measured.

A job that fits on one node gets the node where it leaves the least room.  A larger job gets the smallest run of neighbouring
nodes that is large enough, otherwise the nodes with the most room.  It fills them in Slurm's node order, and keeps one task
for each further node that it must have.  So a gang gets as few nodes as possible, unless it requests a number of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from bridge.simulation.slurm.nodes import Wanted

Run = list[tuple[str, int]]


def layout(rooms: Mapping[str, int], wanted: Wanted) -> dict[str, int] | None:
    """Node to how many tasks it takes, in node order; None if there is no room for all of them.

    rooms   every node, in Slurm's order, with the number of tasks that it could take
    """
    if wanted.tasks_per_node is not None:
        return _spread(rooms, wanted, wanted.tasks_per_node)
    most = wanted.tasks if wanted.max_nodes is None else min(wanted.max_nodes, wanted.tasks)
    aim = wanted.min_nodes if wanted.max_nodes is None else most
    if aim <= 1 and (node := _closest_fit(rooms, wanted)):
        return {node: wanted.tasks}
    picked = _neighbours(rooms, wanted) if wanted.max_nodes is None else _largest(rooms, most)
    if len(picked) < wanted.min_nodes or sum(rooms[node] for node in picked) < wanted.tasks:
        return None
    return _filled([(node, room) for node, room in rooms.items() if node in picked], wanted.tasks, aim)


def _largest(rooms: Mapping[str, int], most: int) -> set[str]:
    usable = [node for node, room in rooms.items() if room]
    return set(sorted(usable, key=lambda node: -rooms[node])[:most])


def _closest_fit(rooms: Mapping[str, int], wanted: Wanted) -> str:
    """The node on which all tasks fit and the least is left; of a single task simply the first."""
    fitting = {node: room for node, room in rooms.items() if room >= wanted.tasks}
    return min(fitting, key=lambda node: fitting[node], default="")


def _spread(rooms: Mapping[str, int], wanted: Wanted, places: int) -> dict[str, int] | None:
    """The same number of tasks on every node, even if fewer tasks are left."""
    count = max(-(-wanted.tasks // places), wanted.min_nodes)
    if wanted.max_nodes is not None and count > wanted.max_nodes:
        return None
    ordered = [node for run in _by_fit(_runs(rooms, even=False), count, count * places) for node, _ in run]
    picked = set(ordered[:count])
    return {node: places for node in rooms if node in picked} if len(picked) == count else None


def _neighbours(rooms: Mapping[str, int], wanted: Wanted) -> set[str]:
    """As many nodes as the job needs, all of one run if a run has enough."""
    picked: set[str] = set()
    tasks = 0
    even = bool(wanted.gres or wanted.task_gres)
    for run in _by_fit(_runs(rooms, even=even), wanted.min_nodes, wanted.tasks):
        for node, room in run:
            if len(picked) < wanted.min_nodes or tasks < wanted.tasks:
                picked.add(node)
                tasks += room
    return picked


def _runs(rooms: Mapping[str, int], *, even: bool) -> list[Run]:
    """Neighbours that can take something; `even`: as much as each other, which is how devices are counted."""
    runs: list[Run] = []
    before = 0
    for node, room in rooms.items():
        if room and (room == before if even else before):
            runs[-1].append((node, room))
        elif room:
            runs.append([(node, room)])
        before = room
    return runs


def _by_fit(runs: list[Run], nodes: int, tasks: int) -> list[Run]:
    """The smallest run that is large enough; if none is, all runs, the largest first."""

    def size(run: Run) -> int:
        return sum(room for _, room in run)

    enough = [run for run in runs if len(run) >= nodes and size(run) >= tasks]
    return [min(enough, key=size)] if enough else sorted(runs, key=lambda run: -size(run))


def _filled(nodes: Run, tasks: int, aim: int) -> dict[str, int]:
    """Fill the nodes in order; one task is kept for each further node that the job must have."""
    taken: dict[str, int] = {}
    for position, (node, room) in enumerate(nodes):
        left = tasks - sum(taken.values())
        owed = max(0, min(aim, len(nodes)) - position - 1)
        if left > 0:
            taken[node] = min(room, left - owed)
    return taken

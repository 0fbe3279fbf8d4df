"""Whether the components of one job can each have nodes of their own when all nodes are empty (F3, W7).

Slurm never gives one node to two components of one job (Slurm facts 11).  A job whose components cannot share out the nodes
would wait for ever.

Nodes that hold equally many tasks of each component are one class.  A search gives each component numbers of nodes of each
class.  In nearly all clusters the first try succeeds.  The search has a limit, because the problem is hard in general: beyond
the limit the job is submitted, and Slurm judges.  Memory is not judged, as in `capacity.lacking`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.place.capacity import fewest_holding, room_on
from scheduler.place.node_counts import Counted, needed_in_all

MOST_STEPS = 2000  # of the search: some 5 ms
_Class = tuple[int, ...]  # how many tasks of each component such a node holds


@dataclass(frozen=True, slots=True)
class _Needs:
    """What one component needs: room for these tasks on at least and at most so many nodes (None: any number)."""

    tasks: int
    least: int
    most: int | None


def too_few_nodes(parts: Sequence[tuple[JobSpec, Collection[SlurmNode]]], partition: str) -> str:
    """Why the components of a heterogeneous job cannot each have nodes of their own, in words; "": Slurm has to judge.

    parts   each component, and the nodes that it may use
    """
    held = [{node.name: _tasks_on(spec, node) for node in nodes} for spec, nodes in parts]
    counted = [_counted(spec, rooms) for (spec, _), rooms in zip(parts, held, strict=True)]
    every = frozenset().union(*held)
    where = f" of Slurm partition {partition}" if partition else ""
    do = "Let the pods ask for the same, or ask the admin for more nodes."
    for among in sorted({every, *map(frozenset, held)}, key=lambda nodes: (len(nodes), sorted(nodes))):
        inside = [each for each, rooms in zip(counted, held, strict=True) if rooms.keys() <= among]
        needed = sum(each.fewest for each in inside)
        if among and needed > len(among):
            return (
                f"{needed_in_all(inside, needed)} Only {len(among):,} {'node' if len(among) == 1 else 'nodes'}{where} can "
                f"run them. {do}"
            )
    classes = Counter(tuple(rooms.get(name, 0) for rooms in held) for name in every)
    if _Search([_needs(spec) for spec, _ in parts]).succeeds(classes):
        return ""
    if not all(any(room_on(spec, node) for node in nodes) for spec, nodes in parts):
        return ""  # Slurm refuses that at once, and says why
    return _cannot_share_out([spec for spec, _ in parts], len(every), where, do)


def _cannot_share_out(components: Sequence[JobSpec], nodes: int, where: str, do: str) -> str:
    limited = any(spec.min_nodes is not None or spec.max_nodes is not None for spec in components)
    limits = ", with the numbers of nodes that min-nodes and max-nodes leave to each kind" if limited else ""
    return (
        f"{len(components)} kinds of pods of this gang ask for different resources or nodes, and Slurm gives each kind nodes "
        f"of its own. The {nodes:,} nodes{where} that can run some of them cannot be shared out like that{limits}, even "
        f"when they are empty. {do}"
    )


def _counted(spec: JobSpec, rooms: Mapping[str, int]) -> Counted:
    """The component with the number of nodes that it has at least; one task has one node, whatever `min_nodes` is."""
    needs = _needs(spec)
    fewest = max(needs.least, fewest_holding(needs.tasks, rooms.values()))
    return Counted(spec, fewest, spec.tasks, len(rooms), spec.tasks > 1 and spec.tasks_per_node is not None)


def _needs(spec: JobSpec) -> _Needs:
    least = min(spec.min_nodes or 1, spec.tasks)
    if spec.tasks_per_node is None:
        return _Needs(spec.tasks, least, spec.max_nodes)
    count = max(least, -(-spec.tasks // spec.tasks_per_node))
    return _Needs(count, count, spec.max_nodes)


def _tasks_on(spec: JobSpec, node: SlurmNode) -> int:
    """The number of tasks that the empty node holds; with `tasks_per_node`, 1 if it holds that many, as Slurm requires."""
    found = min(room_on(spec, node), spec.tasks)
    return found if spec.tasks_per_node is None else int(found >= min(spec.tasks_per_node, spec.tasks))


class _Search:
    """A search for nodes for each component.  It ends as if it had succeeded after MOST_STEPS steps."""

    def __init__(self, needs: Sequence[_Needs]) -> None:
        self._needs = needs
        self._steps = 0
        self._failed: set[tuple[int, tuple[tuple[_Class, int], ...]]] = set()
        self._order: list[int] = []

    def succeeds(self, classes: Counter[_Class]) -> bool:
        """True if each component can have nodes of its own, or if the search is given up."""
        count = {index: sum(n for each, n in classes.items() if each[index]) for index in range(len(self._needs))}
        self._order = sorted(count, key=lambda index: count[index])  # few choices first
        return self._from(0, classes)

    def _from(self, position: int, classes: Counter[_Class]) -> bool:
        """The same for the components from this position of the order on, with these nodes."""
        if position == len(self._order):
            return True
        state = position, tuple(sorted(classes.items()))
        if state in self._failed:
            return False
        index = self._order[position]
        later = self._order[position + 1 :]
        useful = [each for each in classes if each[index] and classes[each]]
        useful.sort(key=lambda each: (sum(bool(each[other]) for other in later), -each[index]))
        for chosen in self._choices(index, useful, classes):
            if self._from(position + 1, classes - chosen):
                return True
        if self._steps < MOST_STEPS:
            self._failed.add(state)
        return self._steps >= MOST_STEPS

    def _choices(self, index: int, useful: Sequence[_Class], classes: Counter[_Class]) -> Iterator[Counter[_Class]]:
        """Each choice of nodes for the component that holds its tasks on an allowed number of nodes, and no needless node."""
        needs, held = self._needs[index], sum(each[index] * classes[each] for each in useful)

        def choices(at: int, tasks: int, least: int, left: int) -> Iterator[Counter[_Class]]:
            self._steps += 1
            if tasks <= 0 and least <= 0:
                yield Counter()
            elif at < len(useful) and left > 0:
                each = useful[at]
                needed = max(-(-tasks // each[index]), least)
                for number in range(min(classes[each], needed, left), -1, -1):
                    if self._steps >= MOST_STEPS:
                        return
                    for rest in choices(at + 1, tasks - number * each[index], least - number, left - number):
                        yield rest + Counter({each: number})

        if held >= needs.tasks:
            yield from choices(0, needs.tasks, needs.least, needs.most if needs.most is not None else held)

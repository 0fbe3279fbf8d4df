"""Can each component of a heterogeneous job have nodes of its own, and which nodes must it leave to the others? (F3, W7)

Slurm never gives one node to two components of one job (Slurm facts 11).  If the nodes cannot be divided among the components
even when all nodes are empty, the job would wait for ever.  It would also wait for ever if one component took the only node
that another component can use, because Slurm gives nodes to the components in their order and does not look ahead.  Where
nodes are so scarce, each component excludes the nodes that the others need.

Two nodes are of one class if they hold equally many tasks of each component.  A search decides how many nodes of each class
each component gets.  In nearly all clusters the first try succeeds.  The number of steps is limited, because the problem is
hard in general: beyond the limit the job is submitted, and Slurm judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.place.capacity import fewest_holding, rooms_on
from scheduler.place.node_counts import Counted, needed_in_all

MOST_STEPS = 2000  # of the search: some 5 ms
_Class = tuple[int, ...]  # how many tasks of each component a node of this class holds, by index of the component


@dataclass(frozen=True, slots=True)
class _Needs:
    """What one component needs: room for `tasks` on at least `least` and at most `most` nodes (None: any number)."""

    tasks: int
    least: int
    most: int | None


def too_few_nodes(parts: Sequence[tuple[JobSpec, Collection[SlurmNode]]], partition: str) -> str:
    """Why the components of a heterogeneous job cannot each have nodes of their own, in words; "": Slurm has to judge.

    Memory is not judged, as in `capacity.lacking`.

    parts   each component, and the nodes that it may use
    """
    held = _tasks_held(parts, memory=False)
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
    search = _Search([_needs(spec) for spec, _ in parts])
    if search.division(Counter(_classes(held).values())) is not None or search.is_given_up:
        return ""
    if not all(any(rooms_on(spec, nodes, memory=False)) for spec, nodes in parts):
        return ""  # Slurm refuses that at once, and says why
    return _cannot_share_out([spec for spec, _ in parts], len(every), where, do)


def kept_for_others(parts: Sequence[tuple[JobSpec, Collection[SlurmNode]]], *, memory: bool) -> list[frozenset[str]]:
    """For each component, the nodes that it must leave to the others, so that they can start whichever nodes it gets.

    All sets are empty if there are enough nodes in any case, or if the search found no division of the nodes.

    parts   each component, and the nodes that it may use
    memory  True if Slurm counts memory
    """
    held, needs = _tasks_held(parts, memory=memory), [_needs(spec) for spec, _ in parts]
    nothing = [frozenset[str]()] * len(parts)
    if all(_can_start_in_any_case(index, needs, held) for index in range(len(parts))):
        return nothing
    classes = _classes(held)
    division = _Search(needs).division(Counter(classes.values()))
    if division is None:
        return nothing
    of_class: dict[_Class, list[str]] = {}
    for name in sorted(classes, reverse=True):
        of_class.setdefault(classes[name], []).append(name)
    own = [frozenset(of_class[each].pop() for each in chosen.elements()) for chosen in division]
    every = frozenset().union(*own)
    return [(every - kept) & rooms.keys() for kept, rooms in zip(own, held, strict=True)]


def _can_start_in_any_case(index: int, needs: Sequence[_Needs], held: Sequence[Mapping[str, int]]) -> bool:
    """True if the component can start even if the other components take as many of its best nodes as they may."""
    others = [rooms for other, rooms in enumerate(held) if other != index]
    taken = sum(min(each.tasks, each.most or each.tasks) for other, each in enumerate(needs) if other != index)
    shared = sorted((room for name, room in held[index].items() if any(name in each for each in others)), reverse=True)
    alone = (room for name, room in held[index].items() if not any(name in each for each in others))
    left = sorted((room for room in (*shared[taken:], *alone) if room), reverse=True)
    return len(left) >= needs[index].least and sum(left[: needs[index].most]) >= needs[index].tasks


def _cannot_share_out(components: Sequence[JobSpec], nodes: int, where: str, do: str) -> str:
    limited = any(spec.min_nodes is not None or spec.max_nodes is not None for spec in components)
    limits = ", with the numbers of nodes that min-nodes and max-nodes leave to each kind" if limited else ""
    return (
        f"{len(components):,} kinds of pods of this gang ask for different resources or nodes, and Slurm gives each kind "
        f"nodes of its own. The {nodes:,} nodes{where} that can run some of them cannot be shared out like that{limits}, "
        f"even when they are empty. {do}"
    )


def _counted(spec: JobSpec, rooms: Mapping[str, int]) -> Counted:
    """The component, and the fewest nodes that it takes.  One task takes one node, whatever `min_nodes` is."""
    needs = _needs(spec)
    fewest = max(needs.least, fewest_holding(needs.tasks, rooms.values()))
    return Counted(spec, fewest, spec.tasks, len(rooms), spec.tasks > 1 and spec.tasks_per_node is not None)


def _needs(spec: JobSpec) -> _Needs:
    least = min(spec.min_nodes or 1, spec.tasks)
    if spec.tasks_per_node is None:
        return _Needs(spec.tasks, least, spec.max_nodes)
    count = max(least, -(-spec.tasks // spec.tasks_per_node))
    return _Needs(count, count, spec.max_nodes)


def _tasks_held(parts: Sequence[tuple[JobSpec, Collection[SlurmNode]]], *, memory: bool) -> list[dict[str, int]]:
    """For each component, by node name, how many of its tasks the node holds when the node is empty.

    If the component has `tasks_per_node`: 1 if the node holds that many tasks, as Slurm requires; otherwise 0.
    """
    found = []
    for spec, nodes in parts:
        a_node = min(spec.tasks_per_node, spec.tasks) if spec.tasks_per_node is not None else None
        rooms = zip(nodes, rooms_on(spec, nodes, memory=memory), strict=True)
        found.append(
            {node.name: min(room, spec.tasks) if a_node is None else int(room >= a_node) for node, room in rooms}
        )
    return found


def _classes(held: Sequence[Mapping[str, int]]) -> dict[str, _Class]:
    """The class of each node.  held: what `_tasks_held` returns"""
    return {name: tuple(rooms.get(name, 0) for rooms in held) for rooms in held for name in rooms}


class _Search:
    """A depth-first search for a division of the nodes among the components.  It gives up after MOST_STEPS steps."""

    def __init__(self, needs: Sequence[_Needs]) -> None:
        self._needs = needs
        self._steps = 0
        # Known dead ends: position in the order, and the nodes that are left there.
        self._failed: set[tuple[int, tuple[tuple[_Class, int], ...]]] = set()
        self._order: list[int] = []  # indexes of components, in the order in which they get nodes

    @property
    def is_given_up(self) -> bool:
        """True if the search ended before all divisions were tried."""
        return self._steps >= MOST_STEPS

    def division(self, classes: Counter[_Class]) -> list[Counter[_Class]] | None:
        """For each component, how many nodes of each class it gets; None: none was found.

        classes   how many nodes of each class there are
        """
        count = {index: sum(n for each, n in classes.items() if each[index]) for index in range(len(self._needs))}
        self._order = sorted(count, key=lambda index: count[index])  # components with the fewest usable nodes first
        found = self._divide_from(0, classes)
        return [found[index] for index in range(len(self._needs))] if found is not None else None

    def _divide_from(self, position: int, classes: Counter[_Class]) -> dict[int, Counter[_Class]] | None:
        """As `division`, for the components from this position of the order on, and the nodes that are left; by index."""
        if position == len(self._order):
            return {}
        state = position, tuple(sorted(classes.items()))
        if state in self._failed:
            return None
        index = self._order[position]
        later = self._order[position + 1 :]
        useful = [each for each in classes if each[index] and classes[each]]
        useful.sort(key=lambda each: (sum(bool(each[other]) for other in later), -each[index]))
        for chosen in self._choices(index, useful, classes):
            if (others := self._divide_from(position + 1, classes - chosen)) is not None:
                return others | {index: chosen}
        if not self.is_given_up:
            self._failed.add(state)
        return None

    def _choices(self, index: int, useful: Sequence[_Class], classes: Counter[_Class]) -> Iterator[Counter[_Class]]:
        """Each choice of nodes that satisfies the component's needs, and has no node that is not needed.

        useful   the classes from which to choose, in the order in which they are tried
        """
        needs, held = self._needs[index], sum(each[index] * classes[each] for each in useful)

        def choices(at: int, tasks: int, least: int, left: int) -> Iterator[Counter[_Class]]:
            self._steps += 1
            if tasks <= 0 and least <= 0:
                yield Counter()
            elif at < len(useful) and left > 0:
                each = useful[at]
                needed = max(-(-tasks // each[index]), least)
                for number in range(min(classes[each], needed, left), -1, -1):
                    if self.is_given_up:
                        return
                    for rest in choices(at + 1, tasks - number * each[index], least - number, left - number):
                        yield rest + Counter({each: number})

        if held >= needs.tasks:
            yield from choices(0, needs.tasks, needs.least, needs.most if needs.most is not None else held)

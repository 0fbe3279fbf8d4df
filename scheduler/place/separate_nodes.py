"""Divides nodes among the components of a heterogeneous job: whether that is possible, and which nodes each excludes (F3,
W7).

Slurm never gives one node to two components of one job (Slurm facts 11).  If the nodes cannot be divided among the components
even when all nodes are empty, the job would wait for ever.  It would also wait for ever if one component took the only node
that another component can use: Slurm gives nodes to the components in their order and does not look ahead.  So if nodes are
scarce, each component excludes the nodes that the others need.

Two nodes are of one class if they hold equally many tasks of each component.  A search decides how many nodes of each class
each component gets.  In nearly all clusters the first try succeeds.  The number of steps is limited, because the problem is
hard in general, and so is the number of components times nodes: beyond a limit the job is submitted, and Slurm judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.place.capacity import fewest_holding, room_on, rooms_on
from scheduler.place.node_counts import Counted, needed_in_all

MOST_PAIRS = 200_000  # pairs of a component and a node that it may use: some 100 ms
PAIRS_PER_NODE = 4  # to check so many pairs takes as long as to judge one node
MOST_STEPS = 4000  # of the search: some 10 ms
CLASSES_PER_STEP = 8  # to check so many classes of nodes takes as long as one step
_Parts = Sequence[tuple[JobSpec, Collection[SlurmNode]]]
_Class = tuple[int, ...]  # how many tasks of each component a node of this class holds, by index of the component


@dataclass(frozen=True, slots=True)
class _Needs:
    """What one component needs: room for `tasks` on at least `least` and at most `most` nodes (None: any number)."""

    tasks: int
    least: int
    most: int | None


class SeparateNodes:
    """The nodes of the components of a heterogeneous job.

    effort   the work so far, in nodes judged
    """

    def __init__(self, parts: _Parts, *, memory: bool) -> None:
        """Count the tasks that each node holds.

        parts   each component, and the nodes that it may use
        memory  True if memory counts
        """
        pairs = sum(len(nodes) for _, nodes in parts)
        self._parts = parts
        self._needs = [_needs(spec) for spec, _ in parts]
        self._costs_too_much = pairs > MOST_PAIRS
        self._held = [] if self._costs_too_much else _tasks_held(parts, memory=memory)
        self.effort = 0 if self._costs_too_much else pairs // PAIRS_PER_NODE

    def too_few(self, partition: str) -> str:
        """Why the nodes cannot be divided among the components, in words; "": they can, or only Slurm can judge."""
        if self._costs_too_much:
            return ""
        where = f" of Slurm partition {partition}" if partition else ""
        do = "Let the pods ask for the same, or ask the admin for more nodes."
        if why := self._too_few_in_number(where, do):
            return why
        classes = _classes(self._held)
        division, is_given_up = self._searched(classes)
        if division is not None or is_given_up:
            return ""
        if not all(any(room_on(spec, node) for node in nodes) for spec, nodes in self._parts):
            return ""  # Slurm refuses that at once, and says why
        return _cannot_share_out([spec for spec, _ in self._parts], len(classes), where, do)

    def kept_for_others(self) -> list[frozenset[str]]:
        """For each component, the nodes that it must exclude so that the other components can start.

        All sets are empty if there are enough nodes in any case, or if the search found no division of the nodes.
        """
        nothing = [frozenset[str]()] * len(self._parts)
        if self._costs_too_much or self._can_start_in_any_case():
            return nothing
        classes = _classes(self._held)
        division, _ = self._searched(classes)
        if division is None:
            return nothing
        of_class: dict[_Class, list[str]] = {}
        for name in sorted(classes):
            of_class.setdefault(classes[name], []).append(name)
        own = [frozenset(of_class[node_class].pop() for node_class in chosen.elements()) for chosen in division]
        every = frozenset().union(*own)
        return [(every - kept) & rooms.keys() for kept, rooms in zip(own, self._held, strict=True)]

    def _searched(self, classes: Mapping[str, _Class]) -> tuple[list[Counter[_Class]] | None, bool]:
        """`_Search.division` for nodes of these classes; and True if the search was given up.  Adds the effort."""
        search = _Search(self._needs, Counter(classes.values()))
        division = search.division()
        self.effort += search.steps
        return division, search.is_given_up

    def _too_few_in_number(self, where: str, do: str) -> str:
        """Why some components may use fewer nodes than they need, in words; "": all may use enough."""
        counted = [_counted(spec, rooms) for (spec, _), rooms in zip(self._parts, self._held, strict=True)]
        every = dict.fromkeys(name for rooms in self._held for name in rooms)
        # Sets of nodes as bits of a number: thousands of nodes are compared at once.
        usable = [int("0" + "".join("1" if name in rooms else "0" for name in every), 2) for rooms in self._held]
        for among in sorted({(1 << len(every)) - 1, *usable}, key=lambda nodes: (nodes.bit_count(), nodes)):
            inside = [need for need, nodes in zip(counted, usable, strict=True) if not nodes & ~among]
            needed, count = sum(need.fewest for need in inside), among.bit_count()
            if needed > count:
                return (
                    f"{needed_in_all(inside, needed)} Only {count:,} {'node' if count == 1 else 'nodes'}{where} can "
                    f"run them. {do}"
                )
        return ""

    def _can_start_in_any_case(self) -> bool:
        """True if each component can start even if the other components take as many of its best nodes as they may."""
        users = Counter(name for rooms in self._held for name in rooms)
        takes = [min(need.tasks, need.most or need.tasks) for need in self._needs]
        for need, own, rooms in zip(self._needs, takes, self._held, strict=True):
            taken = sum(takes) - own
            shared = sorted((room for name, room in rooms.items() if users[name] > 1), reverse=True)
            alone = (room for name, room in rooms.items() if users[name] == 1)
            left = sorted((room for room in (*shared[taken:], *alone) if room), reverse=True)
            if len(left) < need.least or sum(left[: need.most]) < need.tasks:
                return False
        return True


def _cannot_share_out(components: Sequence[JobSpec], nodes: int, where: str, do: str) -> str:
    limited = any(spec.min_nodes is not None or spec.max_nodes is not None for spec in components)
    limits = ", with the numbers of nodes that min-nodes and max-nodes leave to each kind" if limited else ""
    even = any(spec.tasks_per_node is not None for spec in components)
    numbers = (
        " A kind with anti-affinity, or with resources that Slurm does not count, needs equally many pods on each of its "
        "nodes: Slurm has no option for different numbers."
    )
    return (
        f"{len(components):,} kinds of pods of this gang ask for different resources or nodes, and Slurm gives each kind "
        f"nodes of its own. The {nodes:,} nodes{where} that can run some of them cannot be shared out like that{limits}, "
        f"even when they are empty.{numbers if even else ''} {do}"
    )


def _counted(spec: JobSpec, rooms: Mapping[str, int]) -> Counted:
    """The component, and the fewest nodes that it takes.  One task takes one node, whatever `min_nodes` is."""
    needs = _needs(spec)
    fewest = max(needs.least, fewest_holding(needs.tasks, Counter(rooms.values()).items()))
    return Counted(spec, fewest, spec.tasks, len(rooms), spec.tasks_per_node is not None)


def _needs(spec: JobSpec) -> _Needs:
    least = min(spec.min_nodes or 1, spec.tasks)
    if spec.tasks_per_node is None:
        return _Needs(spec.tasks, least, spec.max_nodes)
    count = max(least, -(-spec.tasks // spec.tasks_per_node))
    return _Needs(count, count, spec.max_nodes)


def _tasks_held(parts: _Parts, *, memory: bool) -> list[dict[str, int]]:
    """For each component, by node name, how many of its tasks the node holds when the node is empty.

    If the component has `tasks_per_node`: 1 if the node holds that many tasks, as Slurm requires; otherwise 0.
    """
    every = {node.name: node for _, nodes in parts for node in nodes}
    alike: dict[object, SlurmNode] = {}  # hardware to the first node that has it: few, so each is counted once
    first = {
        name: alike.setdefault((node.cpus, node.memory_mib, frozenset(node.gres.items())), node).name
        for name, node in every.items()
    }
    found = []
    for spec, nodes in parts:
        a_node = min(spec.tasks_per_node, spec.tasks) if spec.tasks_per_node is not None else None
        rooms = zip(alike.values(), rooms_on(spec, alike.values(), memory=memory), strict=True)
        holds = {node.name: min(room, spec.tasks) if a_node is None else int(room >= a_node) for node, room in rooms}
        found.append({node.name: holds[first[node.name]] for node in nodes})
    return found


def _classes(held: Sequence[Mapping[str, int]]) -> dict[str, _Class]:
    """The class of each node.  held: what `_tasks_held` returns"""
    every = dict.fromkeys(name for rooms in held for name in rooms)
    return {name: tuple([rooms.get(name, 0) for rooms in held]) for name in every}


class _Search:
    """A depth-first search for a division of the nodes among the components.  It gives up after MOST_STEPS steps."""

    def __init__(self, needs: Sequence[_Needs], classes: Mapping[_Class, int]) -> None:
        """classes   how many nodes of each class there are"""
        self.steps = 0
        self._needs = needs
        self._classes = list(classes)
        self._there = list(classes.values())
        # By component: the classes that it can use, as indexes.  By class: the components that can use it, as bits.
        self._usable: list[list[int]] = [[] for _ in needs]
        self._users = [0] * len(self._classes)
        for at, node_class in enumerate(self._classes):
            for index, room in enumerate(node_class):
                if room:
                    self._usable[index].append(at)
                    self._users[at] |= 1 << index
        # Components with the fewest usable nodes get nodes first.
        self._order = sorted(range(len(needs)), key=lambda index: sum(self._there[at] for at in self._usable[index]))
        # Known dead ends: the position in the order, and the nodes that are left.
        self._failed: set[tuple[int, tuple[int, ...]]] = set()

    @property
    def is_given_up(self) -> bool:
        """True if the search ended before all divisions were tried."""
        return self.steps >= MOST_STEPS

    def division(self) -> list[Counter[_Class]] | None:
        """For each component, how many nodes of each class it gets; None: none was found."""
        found = self._divide_from(0, self._there)
        if found is None:
            return None
        chosen = [found[index].items() for index in range(len(self._needs))]
        return [Counter({self._classes[at]: number for at, number in division}) for division in chosen]

    def _divide_from(self, position: int, left: Sequence[int]) -> dict[int, dict[int, int]] | None:
        """For each component from this position of the order on, how many nodes of each class it gets, all by index.

        left   how many nodes of each class are left
        """
        if position == len(self._order):
            return {}
        self.steps += len(left) // CLASSES_PER_STEP
        state = position, tuple(left)
        if state in self._failed:
            return None
        index = self._order[position]
        later = sum(1 << other for other in self._order[position + 1 :])
        useful = [at for at in self._usable[index] if left[at]]
        useful.sort(key=lambda at: ((self._users[at] & later).bit_count(), -self._classes[at][index]))
        for chosen in self._choices(index, useful, left):
            rest = list(left)
            for at, number in chosen.items():
                rest[at] -= number
            if (others := self._divide_from(position + 1, rest)) is not None:
                others[index] = chosen
                return others
        if not self.is_given_up:
            self._failed.add(state)
        return None

    def _choices(self, index: int, useful: Sequence[int], left: Sequence[int]) -> Iterator[dict[int, int]]:
        """Each choice of nodes that satisfies the component's needs and has no needless node: class to number of nodes.

        useful   the classes from which to choose, in the order in which they are tried
        """
        rooms = [self._classes[at][index] for at in useful]
        held = sum(room * left[at] for room, at in zip(rooms, useful, strict=True))
        needs = self._needs[index]
        tasks, least, most = needs.tasks, needs.least, needs.most if needs.most is not None else held
        numbers: list[int] = []  # how many nodes of the first, second … useful class are chosen
        while held >= needs.tasks and not self.is_given_up:
            self.steps += 1
            at = len(numbers)
            if tasks <= 0 and least <= 0:
                yield dict(zip(useful, numbers, strict=False))
            elif at < len(useful) and most > 0:
                numbers.append(min(left[useful[at]], max(-(-tasks // rooms[at]), least), most))
                tasks, least, most = tasks - numbers[at] * rooms[at], least - numbers[at], most - numbers[at]
                continue
            while numbers and not numbers[-1]:
                numbers.pop()
            if not numbers:
                return
            numbers[-1] -= 1  # the next choice: one node less of the last chosen class
            tasks, least, most = tasks + rooms[len(numbers) - 1], least + 1, most + 1

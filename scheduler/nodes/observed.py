"""What is remembered of nodes between two looks at them (rules N).

Everything that must survive a restart is in the clusters: whose node it is shows in its mark, whose drain it is in its
reason.  Here is only what a new life may learn again: which nodes changed, what is under way on them, and since when
something has been so.  These times go by the polls of Slurm's nodes, some 30 s apart, and end with the first news to the
contrary: what was true at every look in between is "steady".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from scheduler import names
from scheduler.actions import OnSlurmNode
from scheduler.model.kubernetes import Node
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import SlurmNode
from scheduler.nodes.registration import Size, outgrown, size
from scheduler.place.feasible import slurm_name

NEVER = float("-inf")
UNDER_WAY = float("inf")
# What Slurm's own words leave open, by its error number.
HINTS = {
    2010: "Slurm lets only its administrators change nodes: name a token of SlurmUser in slurm_acting_token_file.",
    2168: "Another one made it meanwhile.",
    2178: "Slurm's topology has no unit of that name: correct the node's label, or add the unit to topology.yaml.",
}


def hint(refusal: Refusal) -> str:
    """What Slurm said, and what to do about it."""
    return f"{refusal.message} {HINTS[refusal.number]}" if refusal.number in HINTS else refusal.message


@dataclass(frozen=True, slots=True)
class Failed:
    """What Slurm did not do to a node, in its words, and when it is tried again."""

    action: OnSlurmNode
    message: str
    retry_at: float


def wanted_in_slurm(node: Node) -> bool:
    """The admin says that it is to be registered (K6)."""
    return node.labels.get(names.EXTERNAL_NODE_LABEL) == "true"


class NodeState:
    """By Slurm's names of nodes, where nothing else is said.

    dirty    to be looked at
    named    the Kubernetes nodes of that name
    ours     nodes of Slurm with our mark
    holds    what is under way (UNDER_WAY), or has ended then and no poll has shown yet
    saying   Kubernetes nodes that are being written on, or were and the watch has not shown it yet
    failed   what Slurm did not do
    given_up  whose drain a bridge that is being uninstalled has undone: it is undone once
    news     whose Kubernetes nodes changed since the last poll
    gone, unready, silent   since when nobody wants it, Kubernetes says NotReady, Slurm says NOT_RESPONDING
    unlike   since when it has that size, which is not what is registered
    told     what the last poll said of each, as far as anything follows from it
    counted  names of all GRES that Slurm's nodes have
    polled   when Slurm's nodes were polled last: the time of everything here
    """

    def __init__(self) -> None:
        self.dirty: dict[str, None] = {}
        self.named: dict[str, set[str]] = {}
        self.ours: set[str] = set()
        self.holds: dict[str, float] = {}
        self.saying: set[str] = set()
        self.failed: dict[str, Failed] = {}
        self.given_up: set[str] = set()
        self.gone: dict[str, float] = {}
        self.unready: dict[str, float] = {}
        self.silent: dict[str, float] = {}
        self.unlike: dict[str, tuple[Size, float]] = {}
        self.news: set[str] = set()
        self.told: dict[str, tuple[object, ...]] = {}
        self.counted: set[str] = set()
        self.polled = NEVER
        self.cured_at = NEVER

    @property
    def everyone(self) -> set[str]:
        """All nodes that this is about."""
        return self.ours.union(self.named)

    def wanted(self, name: str, nodes: Mapping[str, Node]) -> list[Node]:
        """The labelled Kubernetes nodes that are this one in Slurm, by name."""
        return [node for node in self.there(name, nodes) if wanted_in_slurm(node)]

    def left(self, name: str, nodes: Mapping[str, Node]) -> list[Node]:
        """Kubernetes nodes of that name in Slurm that are not to be registered (any more)."""
        return [node for node in self.there(name, nodes) if not wanted_in_slurm(node)]

    def there(self, name: str, nodes: Mapping[str, Node]) -> list[Node]:
        """All Kubernetes nodes that have this name in Slurm."""
        return [nodes[each] for each in sorted(self.named.get(name, ())) if each in nodes]

    # --- Kubernetes

    def forget_names(self) -> set[str]:
        """A list begins: Kubernetes has the nodes that are seen from now on, and no others.  All that were known so far."""
        before, self.named = self.everyone, {}
        self.saying.clear()
        return before

    def look_at(self, names: Iterable[str]) -> None:
        """These may have changed."""
        for name in names:
            self._look_at(name)

    def observe(
        self, before: Node | None, node: Node, gres: Mapping[str, str], slurm_nodes: Mapping[str, SlurmNode]
    ) -> None:
        """A Kubernetes node changed.  What is well again is forgotten at once; what is wrong counts from the next poll on."""
        if before is not None:
            self._unname(before)
        self.saying.discard(node.name)
        self._name(node)
        name = slurm_name(node)
        known = slurm_nodes.get(name)
        if node.ready:
            self.unready.pop(name, None)
        if wanted_in_slurm(node):
            self.gone.pop(name, None)
            if known is not None and not outgrown(known, size(node, gres), self.counted):
                self.unlike.pop(name, None)

    def drop(self, node: str) -> None:
        """Forget that Kubernetes node, whatever name it has in Slurm."""
        for name in [name for name, there in self.named.items() if node in there]:
            self.named[name].discard(node)
            if not self.named[name]:
                del self.named[name]
        self.saying.discard(node)

    def drop_name(self, name: str) -> None:
        """Nothing is remembered of that node of Slurm but whether it is ours."""
        for index in (self.holds, self.failed, self.gone, self.unready, self.silent, self.unlike, self.told):
            index.pop(name, None)

    def only_under_way(self, names: Collection[str], at: float) -> None:
        """Actions are under way on these; on all others they ended by then."""
        for name, until in self.holds.items():
            if until == UNDER_WAY and name not in names:
                self.holds[name] = at

    def lost(self, node: Node) -> None:
        """A Kubernetes node is gone."""
        self._unname(node)
        self.saying.discard(node.name)

    def _name(self, node: Node) -> None:
        name = slurm_name(node)
        there = self.named.setdefault(name, set())
        there.add(node.name)
        if len(there) > 1:
            self._forget_times(name)
        self._look_at(name)

    def _forget_times(self, name: str) -> None:
        for times in (self.gone, self.unready, self.silent, self.unlike):
            times.pop(name, None)

    def _unname(self, node: Node) -> None:
        name = slurm_name(node)
        there = self.named.get(name)
        if there is None:
            return
        there.discard(node.name)
        if not there:
            del self.named[name]
        self._look_at(name)

    def _look_at(self, name: str) -> None:
        self.dirty[name] = None
        self.news.add(name)

    # --- Slurm

    def shown(
        self,
        slurm_nodes: Mapping[str, SlurmNode],
        nodes: Mapping[str, Node] | None,
        gres: Mapping[str, str],
        mark: str,
        began: float,
        at: float,
        failed: Callable[[str, Exception], None],
    ) -> None:
        """Slurm's nodes were polled.

        nodes    None while they are not listed yet
        mark     the feature of ours
        failed   is told of a node that could not be noted, and why

        Most nodes are as they were, but for the jobs that come and go there: they are not looked at again.
        """
        self.polled = at
        before = self.ours
        self.ours = {name for name, node in slurm_nodes.items() if mark in node.features}
        self.counted = {name for node in slurm_nodes.values() for name in node.gres}
        everyone = self.everyone
        todo = self.news | self._moved(slurm_nodes, everyone) | (before ^ self.ours)
        for index in (self.holds, self.failed, self.gone, self.unready, self.silent, self.unlike):
            todo.update(index)
        todo.update(
            name for name, there in self.named.items() if name not in slurm_nodes or not there.isdisjoint(self.saying)
        )
        self.saying.clear()  # what the watch has not shown by now did not happen, or another one wrote over it
        self.holds = {name: ended for name, ended in self.holds.items() if ended > began}
        self.dirty.update(dict.fromkeys(todo))
        if nodes is not None:
            self.news.clear()
            for name in todo:
                try:
                    self._note(name, slurm_nodes.get(name), nodes, gres)
                except Exception as error:  # noqa: BLE001 - contained to the node, or raised
                    failed(name, error)
        for name in self.failed.keys() - everyone:
            del self.failed[name]

    def _moved(self, slurm_nodes: Mapping[str, SlurmNode], everyone: Iterable[str]) -> set[str]:
        """Those that Slurm tells otherwise than at the last poll."""
        told = {name: _told(slurm_nodes[name]) for name in everyone if name in slurm_nodes}
        before, self.told = self.told, told
        return {name for name, now in told.items() if before.get(name) != now} | (before.keys() - told.keys())

    def _note(self, name: str, known: SlurmNode | None, nodes: Mapping[str, Node], gres: Mapping[str, str]) -> None:
        if len(self.named.get(name, ())) > 1:  # whose states these would be nobody knows
            self._forget_times(name)
            return
        wanted = self.wanted(name, nodes)
        node = wanted[0] if wanted else None
        ours = name in self.ours
        _since(self.gone, name, ours and node is None, self.polled)
        there = node or next(iter(self.left(name, nodes)), None)
        _since(self.unready, name, known is not None and there is not None and not there.ready, self.polled)
        silent = known is not None and known.external and "NOT_RESPONDING" in known.states
        _since(self.silent, name, silent and (ours or name in self.named), self.polled)
        offered = size(node, gres) if node is not None else None
        if ours and known is not None and offered is not None and outgrown(known, offered, self.counted):
            if name not in self.unlike or self.unlike[name][0] != offered:
                self.unlike[name] = (offered, self.polled)
        else:
            self.unlike.pop(name, None)


def _told(node: SlurmNode) -> tuple[object, ...]:
    """Jobs matter only where a node is on its way out of service."""
    wrong = node.taken_out or "NOT_RESPONDING" in node.states
    states = node.states if wrong else node.external
    return (states, node.reason, node.partitions, node.features, node.cpus, node.memory_mib, node.gres)


def _since(index: dict[str, float], name: str, holds: bool, now: float) -> None:
    if holds:
        index.setdefault(name, now)
    else:
        index.pop(name, None)

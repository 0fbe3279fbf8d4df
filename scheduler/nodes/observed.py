"""The state of nodes that is remembered between two visits (rules N).

All facts that must survive a restart are in the clusters: the mark of a node shows which cluster registered the node, and the
reason of a drain shows that the bridge drained it.  This file keeps only facts that a new process finds out again: which
nodes changed, which actions are in flight, and how long a state has lasted.  A state begins at a poll of Slurm's nodes (one
in 30 s), and ends at the first observation that contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from scheduler import names
from scheduler.actions import OnSlurmNode
from scheduler.model.kubernetes import Node
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import SlurmNode
from scheduler.model.slurm_errors import NODE_ADVICE
from scheduler.nodes.registration import Size, size, size_mismatch
from scheduler.place.feasible import slurm_name

NOT_YET = float("-inf")  # a time: it has not happened yet
UNDER_WAY = float("inf")


def with_advice(refusal: Refusal) -> str:
    """Slurm's message, with advice if there is some."""
    advice = NODE_ADVICE.get(refusal.number)
    return f"{refusal.message} {advice}" if advice else refusal.message


@dataclass(frozen=True, slots=True)
class Failed:
    """An action on a node that Slurm refused, Slurm's message, and when the action is tried again."""

    action: OnSlurmNode
    message: str
    retry_at: float


def is_to_be_registered(node: Node) -> bool:
    """True if the label says that the node is to be registered (K6)."""
    return node.labels.get(names.EXTERNAL_NODE_LABEL) == "true"


class NodeState:
    """The remembered state of each node, by its name in Slurm unless said otherwise.

    dirty     nodes to visit
    named     the Kubernetes nodes of that name
    ours      nodes of Slurm with the mark of this cluster
    in_flight  UNDER_WAY while an action is in flight; then the time at which it ended, until a poll shows its effect
    writes_in_flight  Kubernetes nodes with a write in flight, or whose write the watch has not shown yet
    failed    actions that Slurm refused
    given_up  nodes whose drain was undone during the uninstallation; the bridge undoes a drain only once
    changed   nodes whose Kubernetes nodes changed since the last poll
    without_node  when it was first seen that no labelled Kubernetes node has this name
    unready   when Kubernetes first showed the labelled node as not ready
    silent    when Slurm first showed the external node, which Kubernetes has, as NOT_RESPONDING or powered down
    mismatched  the offered size that differs from the registered size, and when that was first seen
    last_shown  of each node in the last poll, the properties on which a decision depends (_relevant)
    counted   names of all GRES of Slurm's nodes
    polled    when Slurm's nodes were polled last; all times here are times of polls
    """

    def __init__(self) -> None:
        self.dirty: dict[str, None] = {}
        self.named: dict[str, set[str]] = {}
        self.ours: set[str] = set()
        self.in_flight: dict[str, float] = {}
        self.writes_in_flight: set[str] = set()
        self.failed: dict[str, Failed] = {}
        self.given_up: set[str] = set()
        self.without_node: dict[str, float] = {}
        self.unready: dict[str, float] = {}
        self.silent: dict[str, float] = {}
        self.mismatched: dict[str, tuple[Size, float]] = {}
        self.changed: set[str] = set()
        self.last_shown: dict[str, tuple[object, ...]] = {}
        self.counted: set[str] = set()
        self.polled = NOT_YET
        self.reconfigured_at = NOT_YET

    @property
    def all_names(self) -> set[str]:
        """Slurm's names of all nodes that are remembered."""
        return self.ours.union(self.named)

    def to_register(self, name: str, nodes: Mapping[str, Node]) -> list[Node]:
        """The labelled Kubernetes nodes that have this name in Slurm, in order of their names."""
        return [node for node in self.nodes_named(name, nodes) if is_to_be_registered(node)]

    def nodes_named(self, name: str, nodes: Mapping[str, Node]) -> list[Node]:
        """All Kubernetes nodes that have this name in Slurm."""
        return [nodes[node_name] for node_name in sorted(self.named.get(name, ())) if node_name in nodes]

    # --- Kubernetes

    def remove_all_nodes(self) -> set[str]:
        """Remove all Kubernetes nodes, because a list begins.  Returns Slurm's names of all nodes known so far."""
        before, self.named = self.all_names, {}
        self.writes_in_flight.clear()
        return before

    def mark(self, names: Iterable[str]) -> None:
        """Mark these nodes for a visit."""
        for name in names:
            self._mark(name)

    def observe(
        self, before: Node | None, node: Node, gres: Mapping[str, str], slurm_nodes: Mapping[str, SlurmNode]
    ) -> None:
        """Note a change of a Kubernetes node.  The end of a bad state is noted at once, the beginning at the next poll."""
        if before is not None:
            self._unname(before)
        self.writes_in_flight.discard(node.name)
        self._name(node)
        name = slurm_name(node)
        known = slurm_nodes.get(name)
        if node.ready:
            self.unready.pop(name, None)
        if is_to_be_registered(node):
            self.without_node.pop(name, None)
            if known is not None and not size_mismatch(known, size(node, gres), self.counted):
                self.mismatched.pop(name, None)

    def drop_node(self, node: str) -> None:
        """Drop a Kubernetes node that is put into quarantine, by its name in Kubernetes.  No node is visited for that."""
        for name, there in list(self.named.items()):
            there.discard(node)
            if not there:
                del self.named[name]
        self.writes_in_flight.discard(node)

    def drop_slurm_node(self, name: str) -> None:
        """Drop the state of a Slurm node that is put into quarantine, except the fact that this cluster registered it."""
        for index in (
            self.in_flight,
            self.failed,
            self.without_node,
            self.unready,
            self.silent,
            self.mismatched,
            self.last_shown,
        ):
            index.pop(name, None)

    def set_in_flight(self, names: Collection[str], at: float) -> None:
        """Note that actions are in flight on these nodes only: the actions on other nodes ended by that time."""
        ended = {name: min(until, at) for name, until in self.in_flight.items()}
        self.in_flight = ended | dict.fromkeys(names, UNDER_WAY)

    def remove_node(self, node: Node) -> None:
        """Remove a Kubernetes node that was deleted."""
        self._unname(node)
        self.writes_in_flight.discard(node.name)

    def _name(self, node: Node) -> None:
        name = slurm_name(node)
        there = self.named.setdefault(name, set())
        there.add(node.name)
        if len(there) > 1:
            self._forget_times(name)
        self._mark(name)

    def _forget_times(self, name: str) -> None:
        for times in (self.without_node, self.unready, self.silent, self.mismatched):
            times.pop(name, None)

    def _unname(self, node: Node) -> None:
        name = slurm_name(node)
        there = self.named.get(name)
        if there is None:
            return
        there.discard(node.name)
        if not there:
            del self.named[name]
        self._mark(name)

    def _mark(self, name: str) -> None:
        self.dirty[name] = None
        self.changed.add(name)

    # --- Slurm

    def observe_slurm(
        self,
        slurm_nodes: Mapping[str, SlurmNode],
        nodes: Mapping[str, Node] | None,
        gres: Mapping[str, str],
        mark: str,
        began: float,
        at: float,
        failed: Callable[[str, Exception], None],
    ) -> None:
        """Note a poll of Slurm's nodes.

        nodes    of Kubernetes; None: not listed yet
        mark     the feature of nodes that this cluster registered
        failed   is called with the name of a node that could not be noted, and the exception

        Nodes that changed only in their jobs are not visited.
        """
        self.polled = at
        before = self.ours
        self.ours = {name for name, node in slurm_nodes.items() if mark in node.features}
        self.counted = {name for node in slurm_nodes.values() for name in node.gres}
        everyone = self.all_names
        todo = self.changed | self._take_moved(slurm_nodes, everyone) | (before ^ self.ours)
        todo |= self._unfinished(slurm_nodes)
        self.writes_in_flight.clear()  # if the watch does not show a write, the write failed or was overwritten
        self.in_flight = {name: ended for name, ended in self.in_flight.items() if ended > began}
        self.dirty.update(dict.fromkeys(todo))
        if nodes is not None:
            self.changed.clear()
            for name in todo:
                try:
                    self._note(name, slurm_nodes.get(name), nodes, gres)
                except Exception as error:  # noqa: BLE001 - contained to the node, or raised
                    failed(name, error)
        for name in self.failed.keys() - everyone:
            del self.failed[name]

    def _unfinished(self, slurm_nodes: Mapping[str, SlurmNode]) -> set[str]:
        """Nodes with an unfinished action, a failed action or a bad state, and nodes that Slurm does not have."""
        todo = set[str]().union(
            self.in_flight, self.failed, self.without_node, self.unready, self.silent, self.mismatched
        )
        unshown = (name for name, there in self.named.items() if not there.isdisjoint(self.writes_in_flight))
        return todo.union(unshown, (name for name in self.named if name not in slurm_nodes))

    def _take_moved(self, slurm_nodes: Mapping[str, SlurmNode], everyone: Iterable[str]) -> set[str]:
        """The nodes that differ from the last poll, which this poll replaces."""
        shown = {name: _relevant(slurm_nodes[name]) for name in everyone if name in slurm_nodes}
        before, self.last_shown = self.last_shown, shown
        return {name for name, now in shown.items() if before.get(name) != now} | (before.keys() - shown.keys())

    def _note(self, name: str, known: SlurmNode | None, nodes: Mapping[str, Node], gres: Mapping[str, str]) -> None:
        if len(self.named.get(name, ())) > 1:  # it is not known to which of these nodes a state belongs
            self._forget_times(name)
            return
        wanted = self.to_register(name, nodes)
        node = wanted[0] if wanted else None
        ours = name in self.ours
        _keep_since(self.without_node, name, ours and node is None, self.polled)
        _keep_since(self.unready, name, node is not None and not node.ready, self.polled)
        silent = known is not None and known.external and ("NOT_RESPONDING" in known.states or known.is_off_for_good)
        _keep_since(self.silent, name, silent and name in self.named, self.polled)
        offered = size(node, gres) if node is not None else None
        if ours and known is not None and offered is not None and size_mismatch(known, offered, self.counted):
            if name not in self.mismatched or self.mismatched[name][0] != offered:
                self.mismatched[name] = (offered, self.polled)
        else:
            self.mismatched.pop(name, None)


def _relevant(node: SlurmNode) -> tuple[object, ...]:
    """The properties on which a decision depends.  Whether it has jobs matters only if it is out of service, or sleeps."""
    wrong = node.taken_out or node.states & {"NOT_RESPONDING", "INVALID_REG"} or node.changes_power
    states = node.states if wrong else node.external
    return (states, node.reason, node.partitions, node.features, node.cpus, node.memory_mib, node.gres)


def _keep_since(index: dict[str, float], name: str, holds: bool, now: float) -> None:
    if holds:
        index.setdefault(name, now)
    else:
        index.pop(name, None)

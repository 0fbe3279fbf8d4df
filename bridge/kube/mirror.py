"""A standby's copy of Kubernetes: the last state of each object that the watches report, and nothing derived from it.

A standby lists and watches, so that it can act at once when it leads.  It has no World, because it decides nothing, and a
World without decisions would never forget a workload.  A Mirror keeps the last state of each object instead.  When the
replica leads, it creates a new World.  The Mirror gives the kept states to this World as lists, and then each new event.

A watch may be behind: by milliseconds, by seconds after an outage, by minutes if its connection hangs.  So all objects are
listed again as soon as the replica leads.  No pod is bound until the new lists of pods have come (`PodsListed.inherited`).
Requests of the earlier process may take effect later than that; the quiet period covers these requests.  If the earlier
process stopped cleanly, no such request exists, and the quiet period ends with the new lists (PredecessorDrained).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from bridge.kube.watch import KubeWatches
from scheduler import events as ev
from scheduler.events import Event, Scope, Side
from scheduler.model.kubernetes import Namespace, Node, Pod, Undecoded
from scheduler.state.undecoded import NAMESPACE, NODE

Key = tuple[object, ...]
Named = TypeVar("Named", Node, Namespace)


class Mirror:
    """Keeps what the watches emit, until it is handed over.

    outage  why Kubernetes does not answer now; None: it answers
    """

    def __init__(self, watches: Callable[[Callable[[Event], None], Callable[[Undecoded], None]], KubeWatches]) -> None:
        self.outage: ev.OutageBegan | None = None
        self._watches = watches(self._on_event, self._on_undecoded)
        self._pods: dict[Scope, dict[str, Pod]] = {}
        self._nodes: dict[str, Node] | None = None
        self._namespaces: dict[str, Namespace] | None = None
        self._undecoded: dict[Key, ev.ObjectUndecoded] = {}
        self._clock_observed: ev.ClockObserved | None = None
        self._emit: Callable[[Event], None] | None = None
        self._emit_undecoded: Callable[[Undecoded], None] = lambda _object: None
        self._again = asyncio.Event()
        self._drained = False  # no request of the predecessor is left; emitted when the pods are listed again
        self._awaited: set[Scope] = set()

    async def run(self) -> None:
        """List and watch for ever; cancel it."""
        while True:
            self._again.clear()
            watching, again = asyncio.ensure_future(self._watches.run()), asyncio.ensure_future(self._again.wait())
            try:
                await asyncio.wait({watching, again}, return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()
            finally:
                watching.cancel()
                again.cancel()
                await asyncio.gather(watching, again, return_exceptions=True)
            self._awaited = set(Scope) if self._drained else set()

    def missing(self) -> list[str]:
        """The lists that have not come yet, in words."""
        lacking = {
            "the list of namespaces": self._namespaces is None,
            "the list of Kubernetes nodes": self._nodes is None,
            "the list of this scheduler's pods": Scope.OURS not in self._pods,
            "the list of other pods": Scope.OTHERS not in self._pods,
        }
        return [name for name, is_missing in lacking.items() if is_missing]

    def hand_over(
        self, emit: Callable[[Event], None], emit_undecoded: Callable[[Undecoded], None], now: float, *, drained: bool
    ) -> None:
        """Emit all known objects as lists of this moment; then list again, and emit each event as it comes.

        drained   no request of the process that led before can take effect any more
        """
        for event in self._all(now):
            emit(event)
        self._pods, self._nodes, self._namespaces, self._undecoded = {}, None, None, {}
        self._emit, self._emit_undecoded = emit, emit_undecoded
        self._drained = drained
        self._again.set()

    def _all(self, now: float) -> Iterator[Event]:
        if self._clock_observed is not None:
            yield self._clock_observed
        if self._namespaces is not None:
            yield ev.NamespacesListed(tuple(self._namespaces.values()))
        if self._nodes is not None:
            yield ev.NodesListed(tuple(self._nodes.values()), now)
        for scope, pods in self._pods.items():
            yield ev.PodsListed(scope, tuple(pods.values()), now, inherited=True)
        yield from self._undecoded.values()
        if self.outage is not None:
            yield self.outage

    def _on_undecoded(self, undecoded: Undecoded) -> None:
        self._emit_undecoded(undecoded)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ev.OutageBegan | ev.OutageEnded):
            self.outage = event if isinstance(event, ev.OutageBegan) else None
        if self._emit is None:
            self._keep(event)
            return
        if isinstance(event, ev.PodsListed) and self._again.is_set():  # the list was requested before this replica led
            event = replace(event, inherited=True)
        self._emit(event)
        if isinstance(event, ev.PodsListed) and event.scope in self._awaited:
            self._awaited.discard(event.scope)
            if not self._awaited:
                self._drained = False
                self._emit(ev.PredecessorDrained(event.at))

    def _keep(self, event: Event) -> None:
        match event:
            case ev.PodsListed() | ev.PodSeen() | ev.PodDeleted():
                self._keep_pods(event)
            case ev.NodesListed() | ev.NodeSeen() | ev.NodeDeleted():
                self._keep_nodes(event)
            case ev.NamespacesListed() | ev.NamespaceSeen() | ev.NamespaceDeleted():
                self._keep_namespaces(event)
            case ev.ObjectUndecoded():
                it = event.object
                self._undecoded[(event.scope or it.kind, it.namespace, it.name, it.uid)] = event
            case ev.ClockObserved(side=Side.KUBERNETES):
                self._clock_observed = event

    def _keep_pods(self, event: ev.PodsListed | ev.PodSeen | ev.PodDeleted) -> None:
        if isinstance(event, ev.PodsListed):
            self._listed(event.scope, event.undecoded)
            self._pods[event.scope] = self._unread(event) | {pod.uid: pod for pod in event.pods}
            return
        self._decoded(event.scope, event.pod)
        pods = self._pods.setdefault(event.scope, {})
        if isinstance(event, ev.PodSeen):
            pods[event.pod.uid] = event.pod
        else:
            pods.pop(event.pod.uid, None)

    def _keep_nodes(self, event: ev.NodesListed | ev.NodeSeen | ev.NodeDeleted) -> None:
        known = self._nodes or {}
        if isinstance(event, ev.NodesListed):
            known = self._as_listed(NODE, known, event.nodes, event.undecoded)
        elif isinstance(event, ev.NodeSeen):
            self._decoded(NODE, event.node)
            known[event.node.name] = event.node
        else:
            known.pop(event.name, None)
        self._nodes = known

    def _keep_namespaces(self, event: ev.NamespacesListed | ev.NamespaceSeen | ev.NamespaceDeleted) -> None:
        known = self._namespaces or {}
        if isinstance(event, ev.NamespacesListed):
            known = self._as_listed(NAMESPACE, known, event.namespaces, event.undecoded)
        elif isinstance(event, ev.NamespaceSeen):
            self._decoded(NAMESPACE, event.namespace)
            known[event.namespace.name] = event.namespace
        else:
            known.pop(event.name, None)
        self._namespaces = known

    def _as_listed(
        self, kind: str, known: Mapping[str, Named], listed: Iterable[Named], undecoded: tuple[Undecoded, ...]
    ) -> dict[str, Named]:
        """The objects of a list by name.  An object that cannot be decoded now stays in its last known state."""
        self._listed(kind, undecoded)
        kept = {it.name: known[it.name] for it in undecoded if it.name in known}
        return kept | {decoded.name: decoded for decoded in listed}

    def _unread(self, event: ev.PodsListed) -> dict[str, Pod]:
        """The last known states of pods that exist and cannot be decoded now."""
        known = self._pods.get(event.scope, {})
        return {
            uid: pod
            for uid, pod in known.items()
            if any(it.is_it(pod.namespace, pod.name, uid) for it in event.undecoded)
        }

    def _listed(self, where: Scope | str, undecoded: tuple[Undecoded, ...]) -> None:
        self._undecoded = {key: event for key, event in self._undecoded.items() if key[0] != where}
        for it in undecoded:
            scope = where if isinstance(where, Scope) else None
            self._undecoded[(where, it.namespace, it.name, it.uid)] = ev.ObjectUndecoded(it, scope)

    def _decoded(self, where: Scope | str, thing: Pod | Node | Namespace) -> None:
        if not self._undecoded:
            return
        namespace = thing.namespace if isinstance(thing, Pod) else ""
        for key, event in list(self._undecoded.items()):
            if key[0] == where and event.object.name and event.object.is_it(namespace, thing.name, thing.uid):
                del self._undecoded[key]

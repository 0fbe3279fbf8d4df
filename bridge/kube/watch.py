"""List-watch: first a list of all objects, then every change, until the process ends.

A list shows what exists at one resourceVersion; a watch from there shows every change after it.  Together they show every
state, if no change is lost between the two.  The state machine below makes sure of that:

                    ┌──────────── version too old (410), or an answer that makes no sense ───────────┐
                    ▼                                                                                │
    Listing ── the last page came: one XListed event ──► Watching(version) ── stream ended, broken, ─┤
       ▲                                                    ▲                 or silent              │
       └── a page failed, or its token expired ──┐          └────────── again from that version ─────┘

Each state's `step` returns the next state.  After a failure there is a wait before the next step, which grows with each
failure and has a random part, so that two replicas do not retry at the same time.  A list is an atomic swap: pages are
gathered and emitted as one event, so that the scheduler never sees half a cluster and takes the other half for deleted.
A list that is older than what was seen before is a failure, too (bridge/kube/versions.py).

An object that cannot be decoded, or is too long to be read, still exists: a list names it as `undecoded`, beside the decoded
objects, and a watch continues with the next change.  If such an object is deleted, only a new list proves which one is gone.

A broken watch that sends nothing looks like a quiet watch.  So the server is asked to end it after some minutes
(`timeoutSeconds`), and a stream that stays silent for longer is given up; sooner if the server is known to send bookmarks,
which come once a minute.  Dead paths are found by TCP keepalive, which a server that hangs still answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bridge.errors import ContractError, Exhausted, RemoteError
from bridge.kube import codec
from bridge.kube.codec import Bookmark, Changed, Failed, Undecodable
from bridge.kube.lists import PAGE_SIZE, Expired, Listed, Query, listed
from bridge.kube.responses import http_date, refusal
from bridge.kube.transport import Reply, StreamRefused, Transport
from bridge.kube.versions import SeenVersions
from scheduler import events
from scheduler.events import ClockObserved, Event, ObjectUndecoded, OutageBegan, OutageEnded, Scope, Side
from scheduler.model import kubernetes as model
from scheduler.model.kubernetes import Undecoded

# The server is asked to end a watch after a random time from this range, so that watches end at different times.
WATCH_S = (240, 300)
STALL_MARGIN_S = 15.0
BOOKMARK_STALL_S = 150.0  # a bookmark comes every minute, the first one within two minutes (1.36, measured)
BACKOFF_FIRST_S = 0.2
BACKOFF_MOST_S = 4.0  # changes during an outage are seen within 5 s after the outage (X2)
RETRY_AFTER_MOST_S = 30.0
STEADY_S = 5.0  # a watch that lasted this long, or sent anything, counts as a success

M = TypeVar("M")
Emit = Callable[[Event], None]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Query[M]):
    """One resource to watch, and the events for it."""

    listed: Callable[[Listed[M], float], Event]
    seen: Callable[[M, float], Event]
    gone: Callable[[M, float], Event]
    undecoded: Callable[[Undecoded], Event] = ObjectUndecoded


def our_pods(scheduler_name: str) -> Resource[model.Pod]:
    """Every pod that names this scheduler, also ended pods, because the bridge ends their jobs in Slurm."""
    return _pods("our pods", Scope.OURS, f"spec.schedulerName={scheduler_name}")


def other_pods(scheduler_name: str) -> Resource[model.Pod]:
    """Other pods that take room on the nodes (V3, F6).  A pod that ends leaves the selector, and is reported as deleted."""
    not_ended = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    return _pods("other pods", Scope.OTHERS, f"spec.schedulerName!={scheduler_name},{not_ended}")


def _pods(name: str, scope: Scope, selector: str) -> Resource[model.Pod]:
    return Resource(
        name,
        "pod",
        "/api/v1/pods",
        codec.PODS,
        selector,
        listed=lambda all_, at: events.PodsListed(scope, all_.found, at, all_.undecoded),
        seen=lambda pod, at: events.PodSeen(scope, pod, at),
        gone=lambda pod, at: events.PodDeleted(scope, pod, at),
        undecoded=lambda pod: ObjectUndecoded(pod, scope),
    )


def nodes() -> Resource[model.Node]:
    """Every node."""
    return Resource(
        "nodes",
        "node",
        "/api/v1/nodes",
        codec.NODES,
        listed=lambda all_, at: events.NodesListed(all_.found, at, all_.undecoded),
        seen=events.NodeSeen,
        gone=lambda node, _at: events.NodeDeleted(node.name),
    )


def namespaces() -> Resource[model.Namespace]:
    """Every namespace."""
    return Resource(
        "namespaces",
        "namespace",
        "/api/v1/namespaces",
        codec.NAMESPACES,
        listed=lambda all_, _at: events.NamespacesListed(all_.found, all_.undecoded),
        seen=lambda namespace, _at: events.NamespaceSeen(namespace),
        gone=lambda namespace, _at: events.NamespaceDeleted(namespace.name),
    )


# --- the machine ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """The state in which nothing is known, or events are missing: a list follows."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Everything up to `version` has been emitted."""

    version: str


State = Listing | Watching


@dataclass(slots=True)
class ListWatch(Generic[M]):
    """Lists and watches one resource; `emit` receives the events.

    clock         epoch seconds; pauses go through asyncio, so a virtual loop controls both
    on_failure    called with a sentence at each failure: the facts become outdated
    on_recovered  called when a list is complete, and when a watch is accepted: the facts are current
    on_undecoded  called each time an object could not be decoded
    on_time       called with the server's time in each answer to a list, before the list is emitted
    rng           source of jitter; a seeded one makes a run repeatable
    seen          the versions that this process has seen
    """

    transport: Transport
    resource: Resource[M]
    emit: Emit
    clock: Clock
    on_failure: Callable[[str], None] = lambda _why: None
    on_recovered: Callable[[], None] = lambda: None
    on_undecoded: Callable[[Undecoded], None] = lambda _object: None
    on_time: Callable[[ClockObserved], None] = lambda _time: None
    rng: random.Random = field(default_factory=random.Random)
    page_size: int = PAGE_SIZE
    seen: SeenVersions = field(default_factory=SeenVersions)
    failures: int = 0
    bookmarked: bool = False

    async def run(self) -> None:
        """Never returns; cancel it.  An exception from it is a defect of the bridge."""
        state: State = Listing()
        while True:
            state = await self.step(state)

    async def step(self, state: State) -> State:
        """Run one state until the next state follows, which it returns.  After a failure, it waits before it returns."""
        try:
            return await (self._list() if isinstance(state, Listing) else self._watch(state))
        except ContractError as error:  # neither the answer nor the events of this watch can be trusted
            await self._wait(error)
            return Listing()
        except _TooOld:  # the first time, list again; a second time with no change in between is a failure
            if self.failures:
                await self._wait(
                    RemoteError("watch", "Kubernetes", "the server forgets versions faster than it sends changes", 410)
                )
            self.failures += 1
            return Listing()
        except _Interrupted as error:  # once is not a failure: a load balancer, or a server that restarts
            if self.failures:
                self.on_failure(str(error.cause))
            await self._pause(error.cause)
            return Watching(error.version)
        except RemoteError as error:
            await self._wait(error)
            return state

    async def _list(self) -> State:
        """Emit every page of one consistent list as one event."""
        try:
            began, seen_before = self.clock(), self.seen.newest(self.resource.path)
            everything = await listed(
                self.transport, self.resource, self.page_size, lambda reply: self._emit_time(reply, began)
            )
        except Expired:
            raise _TooOld from None
        if not everything.version:
            raise ContractError(f"list {self.resource.name}", "Kubernetes", "the list has no resourceVersion")
        self.seen.take(self.resource.path, everything.version, seen_before, self.clock())
        self.emit(self.resource.listed(everything, self.clock()))
        for thing in everything.undecoded:
            self.on_undecoded(thing)
        self.on_recovered()
        return Watching(everything.version)

    def _emit_time(self, reply: Reply, began: float) -> None:
        """Emit the server's time from the header of the answer: the server's clock may differ from the bridge's."""
        if (theirs := http_date(reply.headers.get("date", ""))) is not None:
            self.on_time(ClockObserved(Side.KUBERNETES, theirs, began, self.clock()))

    async def _watch(self, state: Watching) -> State:
        """Emit changes until the server ends the stream; then watch again from the last version."""
        version = state.version
        lasts = self.rng.randint(*WATCH_S)
        params = self.resource.params | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(lasts),
        }
        accepted: float | None = None
        silent = True
        try:
            stall_s = BOOKMARK_STALL_S if self.bookmarked else lasts + STALL_MARGIN_S
            async with self.transport.stream(self.resource.path, params=params, stall_s=stall_s) as lines:
                accepted = self.clock()
                self.on_recovered()
                async for line in lines:
                    version = self._emit_change(self.resource.codec.line(line), version)
                    self.seen.see(self.resource.path, version)
                    self.failures, silent = 0, False
        except StreamRefused as refused:
            if refused.reply.status == 410:
                raise _TooOld from None
            raise refusal(f"watch {self.resource.name}", refused.reply) from None
        except ContractError:
            raise
        except RemoteError as error:
            if accepted is not None and self.clock() - accepted >= STEADY_S:
                self.failures = 0
            raise _Interrupted(version, error) from None
        if silent and accepted is not None and self.clock() - accepted < STEADY_S:
            raise RemoteError(f"watch {self.resource.name}", "Kubernetes", "the server ends every watch at once")
        self.failures = 0
        # No bookmark came in minutes.  A server that was restored from a backup may not reach this version for days, and
        # sends nothing until then.  So list again.
        return Listing() if silent else Watching(version)

    def _emit_change(self, change: Changed[M] | Undecodable | Bookmark | Failed, version: str) -> str:
        """Emit one change; returns the version up to which everything has been emitted."""
        match change:
            case Changed(thing, newer, gone=True):
                self.emit(self.resource.gone(thing, self.clock()))
                return newer or version
            case Changed(thing, newer):
                self.emit(self.resource.seen(thing, self.clock()))
                return newer or version
            case Undecodable(_, _, gone=True):
                raise _TooOld
            case Undecodable(thing, newer):
                self.emit(self.resource.undecoded(thing))
                self.on_undecoded(thing)
                return newer or version
            case Bookmark(newer):
                self.bookmarked = True
                return newer or version
            case Failed(410, _):
                raise _TooOld
            case Failed(code, message):
                # The server could not send a change: there may be a gap, so list again.
                raise ContractError(f"watch {self.resource.name}", "Kubernetes", message, code)

    async def _wait(self, error: RemoteError) -> None:
        self.on_failure(str(error))
        await self._pause(error)

    async def _pause(self, error: RemoteError) -> None:
        """Wait longer after each failure, with a random part of up to half; at least as long as the server asked."""
        longest = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(self.failures, 16))
        self.failures += 1
        delay = longest * self.rng.uniform(0.5, 1.0)
        if isinstance(error, Exhausted) and error.retry_after_s:
            delay = max(delay, min(error.retry_after_s, RETRY_AFTER_MOST_S))
        await asyncio.sleep(delay)


class _TooOld(Exception):
    """Events may be missing: a new list is needed.

    410 Gone: the server no longer has the version, or the snapshot of a list.  Or an object that could not be decoded was
    deleted.
    """


class _Interrupted(Exception):
    """The stream broke after it had shown everything up to `version`."""

    def __init__(self, version: str, cause: RemoteError) -> None:
        super().__init__(version)
        self.version = version
        self.cause = cause


# --- all that the bridge watches ------------------------------------------------------------------------------------


@dataclass(slots=True)
class KubeWatches:
    """The four list-watches of the bridge, and the health of all of them as one.

    Emits OutageBegan when the first of them fails and OutageEnded when the last has recovered.

    on_undecoded, seen   as in ListWatch
    """

    transport: Transport
    scheduler_name: str
    emit: Emit
    clock: Clock
    rng: random.Random = field(default_factory=random.Random)
    page_size: int = PAGE_SIZE
    on_undecoded: Callable[[Undecoded], None] = lambda _object: None
    seen: SeenVersions = field(default_factory=SeenVersions)
    _troubled: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Never returns; cancel it."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches():
                group.create_task(watch.run(), name=f"watch {watch.resource.name}")

    def _watches(self) -> Iterator[ListWatch[model.Namespace] | ListWatch[model.Node] | ListWatch[model.Pod]]:
        yield self._watch(namespaces())
        yield self._watch(nodes())
        yield self._watch(our_pods(self.scheduler_name))
        yield self._watch(other_pods(self.scheduler_name))

    def _watch(self, resource: Resource[M]) -> ListWatch[M]:
        return ListWatch(
            self.transport,
            resource,
            self.emit,
            self.clock,
            on_failure=lambda why: self._failed(resource.name, why),
            on_recovered=lambda: self._recovered(resource.name),
            on_undecoded=self.on_undecoded,
            on_time=self.emit,
            rng=self.rng,
            page_size=self.page_size,
            seen=self.seen,
        )

    def _failed(self, name: str, why: str) -> None:
        if not self._troubled:
            self.emit(OutageBegan(Side.KUBERNETES, self.clock(), why))
        self._troubled[name] = why

    def _recovered(self, name: str) -> None:
        if self._troubled.pop(name, None) is not None and not self._troubled:
            self.emit(OutageEnded(Side.KUBERNETES, self.clock()))

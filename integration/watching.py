"""What watches of pods and Leases show while a journey runs, so that it can judge the whole time and not only the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from kubernetes import client, watch

from integration.clusters import Kube

LOOK_S = 2  # a watch begins again where it ended so often, and sees then that it is over


@dataclass(slots=True)
class Sight:
    """A pod.  first, bound: when it was seen first, and first with a node (monotonic; None: not yet); last: its last state"""

    first: float
    last: Any
    bound: float | None = None


@dataclass(slots=True)
class Watching:
    """Watches all pods, and the Leases of some namespaces, in threads, while it is entered.

    pods   each pod that was there meanwhile, by UID
    terms  holder and begin of each time that a Lease was held, by its namespace and name; holder "": it was released
    """

    kube: Kube
    spaces: Iterable[str]
    pods: dict[str, Sight] = field(default_factory=dict)
    terms: dict[tuple[str, str], list[tuple[str, Any]]] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _error: Exception | None = None

    def __enter__(self) -> Self:
        leases = client.CoordinationV1Api(self.kube.api)
        self._start(self.kube.core.list_pod_for_all_namespaces, self._pod)
        for space in self.spaces:
            self._start(leases.list_namespaced_lease, self._lease, namespace=space)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for each in self._threads:
            each.join(60)
        if self._error is not None and error is None:
            raise self._error

    def binds(self, namespace: str) -> list[float]:
        """When pods of the namespace were bound, in order."""
        return sorted(each.bound for each in self._of(namespace) if each.bound is not None)

    def bound_of(self, namespace: str, since: float) -> int:
        """The number of bound pods among those of the namespace that came since then."""
        return sum(each.first > since and each.bound is not None for each in self._of(namespace))

    def _of(self, namespace: str) -> Iterator[Sight]:
        return (each for each in list(self.pods.values()) if each.last.metadata.namespace == namespace)

    def _start(self, what: Callable[..., Any], see: Callable[[Any], None], **where: str) -> None:
        thread = threading.Thread(target=self._watch, args=(what, see, where), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _watch(self, what: Callable[..., Any], see: Callable[[Any], None], where: dict[str, str]) -> None:
        try:
            found = what(**where)
            for each in found.items:
                see(each)
            version = found.metadata.resource_version
            while not self._over.is_set():
                watching = watch.Watch()
                for event in watching.stream(what, **where, resource_version=version, timeout_seconds=LOOK_S):
                    see(event["object"])
                version = watching.resource_version or version
        except Exception as error:  # noqa: BLE001 - raised again at the end
            self._error = error

    def _pod(self, pod: Any) -> None:
        now = time.monotonic()
        sight = self.pods.setdefault(pod.metadata.uid, Sight(now, pod))
        sight.last = pod
        if pod.spec.node_name and sight.bound is None:
            sight.bound = now

    def _lease(self, lease: Any) -> None:
        of = self.terms.setdefault((lease.metadata.namespace, lease.metadata.name), [])
        term = lease.spec.holder_identity or "", lease.spec.acquire_time
        if not of or of[-1] != term:
            of.append(term)


def longest_gap(moments: list[float], begin: float, end: float) -> float:
    """The longest time between the two in which nothing happened."""
    there = [begin, *(each for each in moments if begin < each < end), end]
    return max(later - one for one, later in pairwise(there))

"""The user's Kubernetes cluster: the pods of one scheduler, listed and watched, and the events of one pod.

Errors are those of bridge/errors.py.  If the user lacks a right, the error names the command that shows the user's rights.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from urllib.parse import quote

from bridge.errors import BridgeError, ConfigError, NotFound, RemoteError, Unauthorized, said
from bridge.kube import auth, watch
from bridge.kube.admin_reads import PodEvent, events_of
from bridge.kube.codec import Bookmark, Changed, Undecodable
from bridge.kube.lists import Expired, Query, listed
from bridge.kube.responses import judged, refusal
from bridge.kube.transport import Call, StreamRefused, Transport, opened
from bridge.plugin.pods import PODS, Seen
from scheduler.model.kubernetes import Undecoded

DEADLINE_S = 20.0
WATCH_S = 300  # the server ends a watch after this time
STALL_S = WATCH_S + 30.0
RETRY_S = 2.0
MOST_LISTS = 5  # tries of a list; a try fails if its snapshot expires between two pages
MOST_NAMED = 5  # names of pods in the sentence about pods that cannot be read
GONE = 410
Found = dict[str, Seen]


def namespace_of(options: argparse.Namespace) -> str:
    """The namespace that the user named; if none is named, the namespace of the context."""
    return str(options.namespace) or auth.namespace_of(options.kubeconfig, options.context)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which pods to list.

    namespace   "": all namespaces
    labels      a label selector as kubectl takes it; "": all labels
    name        "": pods of every name
    """

    scheduler: str
    namespace: str
    labels: str = ""
    name: str = ""

    @property
    def query(self) -> Query[Seen]:
        """The list of these pods."""
        path = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods" if self.namespace else "/api/v1/pods"
        fields = f"spec.schedulerName={self.scheduler}" + (f",metadata.name={self.name}" if self.name else "")
        return Query("pods", "pod", path, PODS, fields, self.labels)


@dataclass(slots=True)
class Cluster:
    """Reads pods and events.  on_trouble: receives a sentence each time that a watch fails; the watch goes on"""

    transport: Transport
    on_trouble: Callable[[str], None] = field(default=lambda _sentence: None)

    async def pods(self, chosen: Selection) -> Found:
        """The pods, by UID.  Raises RemoteError; ConfigError if the user lacks the right."""
        return (await self._listed(chosen))[0]

    async def follow(self, chosen: Selection) -> AsyncIterator[Found]:
        """All pods of the selection: as they are now, and again after each change.  Lists are at least RETRY_S apart.

        Raises RemoteError if the first list fails, and ConfigError if the user lacks the right or loses it later.
        """
        found, version = await self._listed(chosen)
        yield found
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                async for newer in self._changes(chosen, found, version):
                    yield newer
            except RemoteError as error:
                self.on_trouble(said(error))
            await asyncio.sleep(max(0.0, began + RETRY_S - clock()))  # the server may end each watch at once
            found, version = await self._listed_again(chosen)
            yield found

    async def _listed_again(self, chosen: Selection) -> tuple[Found, str]:
        while True:
            try:
                return await self._listed(chosen)
            except RemoteError as error:
                self.on_trouble(said(error))
                await asyncio.sleep(RETRY_S)

    async def _listed(self, chosen: Selection) -> tuple[Found, str]:
        for _ in range(MOST_LISTS - 1):
            try:
                return await self._list(chosen)
            except Expired:
                await asyncio.sleep(RETRY_S)
        return await self._list(chosen)

    async def _list(self, chosen: Selection) -> tuple[Found, str]:
        try:
            all_ = await listed(self.transport, chosen.query)
        except Unauthorized as error:
            raise _no_right(error, chosen.namespace) from None
        if all_.undecoded:
            self.on_trouble(_unread(all_.undecoded))
        return {seen.pod.uid: seen for seen in all_.found}, all_.version

    async def _changes(self, chosen: Selection, found: Found, version: str) -> AsyncIterator[Found]:
        """Returns when the server ends the watch, or when its changes have a gap.  Raises RemoteError."""
        query = chosen.query
        params = query.params | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            async with self.transport.stream(query.path, params=params, stall_s=STALL_S) as lines:
                async for line in lines:
                    change = PODS.line(line)
                    if isinstance(change, Changed):
                        found = {uid: seen for uid, seen in found.items() if uid != change.object.pod.uid}
                        found |= {} if change.gone else {change.object.pod.uid: change.object}
                        yield found
                    elif not isinstance(change, Bookmark | Undecodable):
                        return
        except StreamRefused as refused:
            if refused.reply.status != GONE:
                raise refusal("watch pods", refused.reply) from None

    async def pod(self, namespace: str, name: str) -> Seen:
        """One pod, of any scheduler.  Raises RemoteError; ConfigError if it does not exist, or the user lacks the right."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        try:
            reply = judged("read pod", await self.transport.exchange(Call("GET", path, deadline_s=DEADLINE_S)))
        except NotFound:
            raise ConfigError(f"there is no pod {name} in namespace {namespace}. Name its namespace with -n.") from None
        except Unauthorized as error:
            raise _no_right(error, namespace) from None
        return PODS.one(reply.body)

    async def namespaces(self) -> list[str]:
        """The names of all namespaces.  Raises RemoteError."""
        return [item.name for item in (await listed(self.transport, watch.namespaces())).found]

    async def events(self, seen: Seen) -> tuple[tuple[PodEvent, ...], str]:
        """The events of a pod, oldest first, and why they are not shown, as a sentence; "": they are shown."""
        try:
            return await events_of(self.transport, seen.pod.namespace, seen.pod.uid), ""
        except RemoteError as error:
            return (), f"The events of the pod are not shown: {said(error)}"


def _unread(pods: Sequence[Undecoded]) -> str:
    named = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:MOST_NAMED])
    more = f" and {len(pods) - MOST_NAMED:,} more" if len(pods) > MOST_NAMED else ""
    return f"Pods that cannot be read are left out: {named}{more}."


def _no_right(error: Unauthorized, namespace: str) -> BridgeError:
    if error.number != 403:
        return error
    where = (
        f"in namespace {namespace}: choose another with -n" if namespace else "in all namespaces: choose one with -n"
    )
    return ConfigError(
        f"you may not read pods {where}, or ask its admin. kubectl auth can-i list pods shows your rights."
    )


async def connected(kubeconfig: str, context: str, stack: AsyncExitStack, on_trouble: Callable[[str], None]) -> Cluster:
    """The cluster of a kubeconfig ("": as kubectl finds it) and a context ("": the current one).  Raises ConfigError."""
    return Cluster(opened(await auth.load(kubeconfig or None, context=context), stack), on_trouble)

"""A simulated user of the cluster: creates pods by the API, watches them, and deletes them at the end.

Durations (create → bind) follow from what this user observes over the Kubernetes API, as with kubectl.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from bridge.errors import ConfigError, Conflict, NotFound, RemoteError, said
from bridge.kube.responses import judged
from bridge.kube.transport import NO_PARAMS, Call, Reply, StreamRefused, Transport
from scheduler import names

Object = dict[str, Any]
DEADLINE_S = 10.0
AGAIN_S = 0.5
NAMESPACE_S = 60.0
STALL_S = 600.0
ENDED = ("Succeeded", "Failed")


@dataclass(slots=True)
class PodHistory:
    """The observed times of one pod, epoch seconds; None: not yet.

    last      the last observed state of the pod
    created   when this client created the pod; None: another client did
    gone      True if the pod does not exist any more
    """

    name: str
    last: Object
    created: float | None = None
    bound: float | None = None
    ended: float | None = None
    gone: bool = False

    @property
    def phase(self) -> str:
        """The pod's phase in Kubernetes."""
        return str(self.last["status"].get("phase", "Pending"))

    @property
    def node(self) -> str:
        """The node of the pod; "": none."""
        return str(self.last["spec"].get("nodeName") or "")

    @property
    def job(self) -> int | None:
        """The Slurm job for which the pod was bound; None: it is not bound."""
        job_id = (self.last["metadata"].get("annotations") or {}).get(names.JOB_ID)
        return int(job_id) if job_id and self.node else None

    @property
    def says(self) -> str:
        """Why the pod waits, by its condition PodScheduled; "": it does not wait, or shows no reason."""
        for condition in self.last["status"].get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return str(condition.get("message", ""))
        return ""


class WorkloadClient:
    """Creates and watches pods in one namespace.

    histories   the observed pods, by UID
    on_change   called with each pod whose state has changed
    """

    def __init__(self, transport: Transport, space: str, clock: Callable[[], float]) -> None:
        self._transport = transport
        self._space = space
        self._clock = clock
        self.histories: dict[str, PodHistory] = {}
        self.on_change: Callable[[PodHistory], None] = lambda _history: None

    async def open(self) -> None:
        """Create the namespace, after the namespace of an earlier run is gone, and wait until it accepts pods.

        If the namespace does not accept pods in time, or the wait is cancelled, it is deleted again.  Raises ConfigError.
        """
        await self._create_namespace()
        try:
            await self._wait_until_ready()
        except BaseException:
            await self._delete_namespace()
            raise

    async def _create_namespace(self) -> None:
        meta = {"name": self._space, "labels": {names.MANAGED_LABEL: "true"}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        try:
            async with asyncio.timeout(NAMESPACE_S):
                while await self._is_terminating():  # noqa: ASYNC110 - polled: there is no event
                    await asyncio.sleep(AGAIN_S)
                await self._send("POST", "/api/v1/namespaces", body)
        except Conflict:
            raise ConfigError(
                f"the namespace {self._space} exists already: another `slurm-bridge dev` uses this cluster, or an "
                f"earlier one was killed. If no other uses it: kubectl delete namespace {self._space}"
            ) from None
        except (RemoteError, TimeoutError) as error:
            why = (
                said(error)
                if isinstance(error, RemoteError)
                else f"the namespace of an earlier run was not gone after {NAMESPACE_S:.0f} s."
            )
            raise ConfigError(f"the namespace {self._space} cannot be created: {why}") from None

    async def _wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(NAMESPACE_S):
                while not await self._accepts_pods():  # noqa: ASYNC110 - polled: there is no event
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            raise ConfigError(
                f"the namespace {self._space} was created, but its service account default was not, within "
                f"{NAMESPACE_S:.0f} s: does kube-controller-manager run?"
            ) from None
        except RemoteError as error:
            raise ConfigError(
                f"the namespace {self._space} was created, but its service account default cannot be read: {said(error)}"
            ) from None

    async def _delete_namespace(self) -> None:
        try:
            await self.close()
        except RemoteError as error:
            raise ConfigError(
                f"the namespace {self._space} was created and cannot be deleted: {said(error)} Try later: "
                f"kubectl delete namespace {self._space}"
            ) from None

    async def _is_terminating(self) -> bool:
        try:
            found = _read(await self._send("GET", f"/api/v1/namespaces/{self._space}"))
        except NotFound:
            return False
        return bool(found["metadata"].get("deletionTimestamp"))

    async def _accepts_pods(self) -> bool:
        """True if the namespace has its service account; before that, the API server refuses pods."""
        path = f"/api/v1/namespaces/{self._space}/serviceaccounts/default"
        try:
            await self._send("GET", path)
        except NotFound:
            return False
        return True

    async def create(self, resource: str, thing: Object) -> str:
        """Create an object and return its UID.  resource: "pods" or "replicasets".  Raises RemoteError."""
        began = self._clock()
        made = _read(await self._send("POST", self._path(resource), thing))
        uid = str(made["metadata"]["uid"])
        if resource == "pods":
            history = self.histories.setdefault(uid, PodHistory(made["metadata"]["name"], made))
            history.created = began
        return uid

    async def delete(self, resource: str, name: str) -> None:
        """Delete the object with its grace, and the objects that it owns, if it still exists.  Raises RemoteError."""
        try:
            await self._send("DELETE", f"{self._path(resource)}/{quote(name)}", {"propagationPolicy": "Background"})
        except NotFound:
            return

    async def clear(self) -> None:
        """Delete everything in the namespace.  Raises RemoteError."""
        for resource in ("replicasets", "pods"):
            for thing in _read(await self._send("GET", self._path(resource)))["items"]:
                await self.delete(resource, thing["metadata"]["name"])

    async def close(self) -> None:
        """Delete the namespace itself.  Raises RemoteError."""
        await self._send("DELETE", f"/api/v1/namespaces/{self._space}", {})

    async def pods(self) -> list[Object]:
        """Every pod of the namespace.  Raises RemoteError."""
        found: list[Object] = _read(await self._send("GET", self._path("pods")))["items"]
        return found

    async def watch(self) -> None:
        """Record the states of all pods in `histories`.  Never returns."""
        while True:
            try:
                listed = _read(await self._send("GET", self._path("pods")))
                present = {pod["metadata"]["uid"] for pod in listed["items"]}
                for pod in listed["items"]:
                    self._see(pod)
                for history in [
                    history for uid, history in self.histories.items() if uid not in present and history.last
                ]:
                    self._note_gone(history)
                params = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
                async with self._transport.stream(self._path("pods"), params=params, stall_s=STALL_S) as lines:
                    await self._follow(lines)
            except (RemoteError, StreamRefused):
                await asyncio.sleep(AGAIN_S)

    async def _follow(self, lines: AsyncIterator[bytes]) -> None:
        async for line in lines:
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                return  # list again
            if event["type"] in ("ADDED", "MODIFIED"):
                self._see(event["object"])
            elif event["type"] == "DELETED":
                self._see(event["object"])
                self._note_gone(self.histories[event["object"]["metadata"]["uid"]])

    def _see(self, pod: Object) -> None:
        history = self.histories.setdefault(pod["metadata"]["uid"], PodHistory(pod["metadata"]["name"], pod))
        history.last = pod
        if history.node and history.bound is None:
            history.bound = self._clock()
        if history.phase in ENDED and history.ended is None:
            history.ended = self._clock()
        self.on_change(history)

    def _note_gone(self, history: PodHistory) -> None:
        if not history.gone:
            history.gone = True
            history.ended = history.ended or self._clock()
            self.on_change(history)

    def forget(self, before: float) -> None:
        """Forget the pods that were gone before that time."""
        self.histories = {
            u: history for u, history in self.histories.items() if not history.gone or (history.ended or 0.0) >= before
        }

    def _path(self, resource: str) -> str:
        group = "/api/v1" if resource == "pods" else "/apis/apps/v1"
        return f"{group}/namespaces/{self._space}/{resource}"

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        raw = msgspec.json.encode(body) if body is not None else None
        reply = await self._transport.exchange(Call(method, path, params=NO_PARAMS, body=raw, deadline_s=DEADLINE_S))
        return judged(method.lower(), reply)


def _read(reply: Reply) -> Object:
    read: Object = msgspec.json.decode(reply.body)
    return read

"""The Kubernetes that the contract suite asks, and what its tests need of one.

Four subjects, one suite: what was once recorded from a real server, the simulated cluster in this process, the same one
behind its HTTP shell, and the real server of KUBECONFIG.  A test that passes on all of them says that the simulation is
honest and that the client understands the real one.

Record again: KUBECONFIG=… RECORD_KUBE=1 pytest tests/contract -k "kube and real".  What needs a server that forgets its
past takes part where KUBE_FORGET_COMMAND names a command that makes it so (compaction and a restart).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

from bridge.kube import auth, codec
from bridge.kube.access import anonymous
from bridge.kube.client import KubeClient
from bridge.kube.transport import NO_PARAMS, Call, HttpTransport, Reply, StreamRefused, Transport
from bridge.kube.watch import ListWatch, Resource
from bridge.simulation.http import serve_kube
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from scheduler.events import Event
from scheduler.model.kubernetes import Pod
from tests.patience import PATIENCE_S

RECORDINGS = Path(__file__).parent / "recordings" / "kube"
# Times in requests; recordings have "now" instead.
TIMES = {"lastHeartbeatTime", "lastTransitionTime", "firstTimestamp", "lastTimestamp"}
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

KUBECONFIG = os.environ.get("KUBECONFIG", "")
FORGET_COMMAND = os.environ.get("KUBE_FORGET_COMMAND", "")
RECORD = bool(os.environ.get("RECORD_KUBE"))
NAMES = ["recorded", "simulated", "served", *(["real"] if KUBECONFIG else [])]
FORGETFUL = ["recorded", "simulated", "served", *(["real"] if KUBECONFIG and FORGET_COMMAND else [])]


def left_out() -> str:
    """The subject that this run leaves out, for its summary; "" if nothing is missing."""
    if not KUBECONFIG:
        return "the Kubernetes contract on a real API server (set KUBECONFIG, as `integration/rig env` does)"
    if not FORGET_COMMAND:
        return "the Kubernetes contract on a real API server that forgets its past (set KUBE_FORGET_COMMAND)"
    return ""


# --- subjects -------------------------------------------------------------------------------------------------------


class Subject(Protocol):
    """One Kubernetes."""

    @property
    def transport(self) -> Transport: ...

    async def open(self, namespace: str) -> None:
        """Make it ready; the namespace of the test does not exist then."""

    async def close(self) -> None: ...

    async def furnish(self, namespace: str) -> None:
        """Wait until pods can be made in the new namespace."""

    async def forget(self) -> None:
        """Let the server forget every version before now."""


class Simulated:
    """The state machine, in this process.

    served  behind its HTTP shell, as a server would be
    lives   its kubelets and controllers act
    """

    def __init__(self, *, served: bool, lives: bool = True) -> None:
        self.kube = InProcessKube(KubeCluster(7), time.time)
        self.transport: Transport = self.kube
        self._served = served
        self._lives = lives
        self._done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self, namespace: str) -> None:
        del namespace  # every one is new
        started = asyncio.Event()
        self._task = asyncio.create_task(self._serve(started))
        await started.wait()

    async def _serve(self, started: asyncio.Event) -> None:
        living = asyncio.create_task(self.kube.live() if self._lives else asyncio.sleep(0))
        async with serve_kube(self.kube) as url:
            if self._served:
                self.transport = HttpTransport(anonymous(url))
            started.set()
            await self._done.wait()
            await self.transport.close()
        living.cancel()

    async def furnish(self, namespace: str) -> None:
        """They can be at once."""

    async def close(self) -> None:
        self._done.set()
        if self._task:
            await self._task

    async def forget(self) -> None:
        self.kube.cluster.compact()


class Real:
    """The API server of KUBECONFIG; what it answers is written down when that is asked for."""

    def __init__(self, test: str) -> None:
        self._path = RECORDINGS / f"{test}.json"
        self._wire: HttpTransport | None = None
        self._recorder: _Recorder | None = None

    @property
    def transport(self) -> Transport:
        assert self._wire
        return self._recorder or self._wire

    async def open(self, namespace: str) -> None:
        self._namespace = namespace
        self._wire = HttpTransport(await auth.load(KUBECONFIG))
        async with asyncio.timeout(PATIENCE_S):
            while await self._remove_namespace() != 404:  # noqa: ASYNC110 -- of an earlier run
                await asyncio.sleep(0.1)
        self._recorder = _Recorder(self._wire) if RECORD else None

    async def _remove_namespace(self) -> int:
        """Ask for it; 404: it is gone.  Its pods go at once: no kubelet will ever end them."""
        assert self._wire
        path, now = f"/api/v1/namespaces/{self._namespace}", {"gracePeriodSeconds": "0"}
        await self._wire.exchange(Call("DELETE", f"{path}/pods", params=now, deadline_s=30))
        return (await self._wire.exchange(Call("DELETE", path, deadline_s=30))).status

    async def furnish(self, namespace: str) -> None:
        """A controller has to make the service account first (where that admission is on)."""
        assert self._wire
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        async with asyncio.timeout(PATIENCE_S):
            while (await self._wire.exchange(Call("GET", path, deadline_s=30))).status != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        assert self._wire
        await self._remove_namespace()
        await self._wire.close()
        if self._recorder:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            said = (json.dumps(one, sort_keys=True, separators=(",", ":")) for one in self._recorder.said)
            self._path.write_text("[\n" + ",\n".join(said) + "\n]\n")

    async def forget(self) -> None:
        ended = await asyncio.to_thread(subprocess.run, FORGET_COMMAND, shell=True, check=True, timeout=300)
        assert ended.returncode == 0


class Recorded:
    """The recorded answers of a real server to the same requests."""

    def __init__(self, test: str) -> None:
        self.transport: Transport = _Replay(RECORDINGS / f"{test}.json")

    async def open(self, namespace: str) -> None:
        """Nothing to do."""

    async def furnish(self, namespace: str) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        pass

    async def forget(self) -> None:
        """Does nothing: the recorded server had forgotten its past."""


# --- recordings -----------------------------------------------------------------------------------------------------

Said = dict[str, Any]


class _Recorder:
    """A transport that writes down what passes."""

    def __init__(self, wire: Transport) -> None:
        self._wire = wire
        self.said: list[Said] = []

    async def exchange(self, call: Call) -> Reply:
        asked = _question(call.method, call.path, call.params, call.body)
        self.said.append(asked)  # in the order of the questions
        reply = await self._wire.exchange(call)
        asked["reply"] = _answer(reply)
        return reply

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        asked = _question("WATCH", path, params, None)
        self.said.append(asked)
        try:
            async with self._wire.stream(path, params=params, stall_s=stall_s) as lines:
                asked |= {"lines": [], "ended": False}
                yield self._heard(lines, asked)
        except StreamRefused as refused:
            asked["reply"] = _answer(refused.reply)
            raise

    async def _heard(self, lines: AsyncIterator[bytes], asked: Said) -> AsyncIterator[bytes]:
        async for line in lines:
            asked["lines"].append(_slim(line))
            yield line
        asked["ended"] = True

    async def close(self) -> None:
        await self._wire.close()


class _Replay:
    """A transport that answers from a recording; each answer is given once, in order of equal questions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        assert path.exists(), f"there is no recording {path.name}: run this test with RECORD_KUBE=1 on a real server"
        self._said: list[Said] = json.loads(path.read_text())

    async def exchange(self, call: Call) -> Reply:
        await asyncio.sleep(0)
        return _replied(self._find(_question(call.method, call.path, call.params, call.body))["reply"])

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        del stall_s
        await asyncio.sleep(0)
        said = self._find(_question("WATCH", path, params, None))
        if "reply" in said:
            raise StreamRefused(_replied(said["reply"]))
        yield self._lines(said)

    async def _lines(self, said: Said) -> AsyncIterator[bytes]:
        for line in said["lines"]:
            yield json.dumps(line).encode()
        if not said["ended"]:
            await asyncio.Event().wait()  # it was still open when the recording ended

    def _find(self, asked: Said) -> Said:
        for place, said in enumerate(self._said):
            if said["question"] == asked["question"]:
                return self._said.pop(place)
        raise AssertionError(f"{self._path.name} holds no answer to {asked['question']}; record it anew")

    async def close(self) -> None:
        pass


def _question(method: str, path: str, params: Mapping[str, str], body: bytes | None) -> Said:
    return {"question": [method, path, dict(params), _timeless(json.loads(body)) if body else None]}


def _timeless(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {name: "now" if name in TIMES else _timeless(value) for name, value in thing.items()}
    return [_timeless(item) for item in thing] if isinstance(thing, list) else thing


def _answer(reply: Reply) -> Said:
    kept = {name: value for name, value in reply.headers.items() if name in ("content-type", "retry-after")}
    try:
        return {"status": reply.status, "headers": kept, "body": _slim(reply.body)}
    except ValueError:
        return {"status": reply.status, "headers": kept, "text": base64.b64encode(reply.body).decode()}


def _replied(answer: Said) -> Reply:
    text = base64.b64decode(answer["text"]) if "text" in answer else json.dumps(answer["body"]).encode()
    return Reply(answer["status"], answer["headers"], text)


def _slim(text: bytes) -> Any:
    """Without managedFields, of which only that of a pod's deadline is read."""

    def without(thing: Any) -> Any:
        if isinstance(thing, dict):
            kept = {name: without(value) for name, value in thing.items() if name != "managedFields"}
            deadline = [each for each in thing.get("managedFields") or () if "f:activeDeadlineSeconds" in str(each)]
            return {**kept, "managedFields": deadline} if deadline else kept
        return [without(item) for item in thing] if isinstance(thing, list) else thing

    return without(json.loads(text))


# --- what a test holds ----------------------------------------------------------------------------------------------


class Seen:
    """The events of a list-watch so far."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()
        self._more = asyncio.Event()

    async def until(self, met: Callable[[Sequence[Event]], object]) -> None:
        """Wait until the events that were received meet the condition."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not met(self.events):
                    await self._more.wait()
        except TimeoutError:
            pytest.fail(f"nothing came within {PATIENCE_S:.0f} s; what came: {self.events}")


class Kube:
    """One Kubernetes, with a namespace and a scheduler name that are this test's own."""

    def __init__(self, subject: Subject, name: str) -> None:
        self.subject = subject
        self.namespace = self.scheduler = name
        self.client: KubeClient

    @property
    def transport(self) -> Transport:
        return self.subject.transport

    def new_client(self) -> KubeClient:
        """A client without a memory, as after a restart."""
        return KubeClient(self.transport, "slurm-bridge", time.time)

    async def raw(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """One request as an admin would send it: (status, JSON)."""
        sent = None if body is None else json.dumps(body).encode()
        reply = await self.transport.exchange(Call(method, path, body=sent, content_type=content_type, deadline_s=30))
        return reply.status, json.loads(reply.body)

    async def make(self, path: str, thing: Mapping[str, Any]) -> Any:
        """Create an object."""
        status, made = await self.raw("POST", path, thing)
        assert status == 201, made
        return made

    async def pod(self, name: str, *, metadata: Mapping[str, Any] = NO_PARAMS, **spec: Any) -> Pod:
        """A new pod of this test's scheduler."""
        container = {"name": "main", "image": "localhost/none", "imagePullPolicy": "Never"}
        thing = {
            "metadata": {"name": name, **metadata},
            "spec": {"schedulerName": self.scheduler, "containers": [container], **spec},
        }
        await self.make(f"/api/v1/namespaces/{self.namespace}/pods", thing)
        return await self.read(name)

    async def read(self, name: str) -> Pod:
        """A pod that is there."""
        status, thing = await self.raw("GET", self.path(name))
        assert status == 200, thing
        return codec.PODS.one(json.dumps(thing).encode())

    def path(self, name: str) -> str:
        """The URL path of a pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    async def bind(self, name: str, node: str) -> None:
        """As any scheduler would."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self.make(f"{self.path(name)}/binding", binding)

    async def end(self, name: str, phase: str) -> None:
        """As a kubelet would."""
        status, said = await self.raw("PATCH", f"{self.path(name)}/status", {"status": {"phase": phase}}, MERGE)
        assert status == 200, said

    async def eventually(self, ask: Callable[[], Any], met: Callable[[Any], object]) -> Any:
        """Ask until the answer meets the condition."""
        async with asyncio.timeout(PATIENCE_S):
            while not met(answer := await ask()):  # noqa: ASYNC110 -- the condition is met in another process
                await asyncio.sleep(0.05)
        return answer

    def list_watch(self, resource: Resource[Any], received: Seen, page_size: int = 500) -> ListWatch[Any]:
        return ListWatch(self.transport, resource, received, time.time, rng=random.Random(0), page_size=page_size)

    @asynccontextmanager
    async def watching(self, resource: Resource[Any], page_size: int = 500) -> AsyncIterator[Seen]:
        """The real list-watch, running, and the events that it sends; the list was received on entry."""
        received = Seen()
        task = asyncio.create_task(self.list_watch(resource, received, page_size).run())
        try:
            await received.until(lambda events: events)
            yield received
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _subject(kind: str, test: str) -> Subject:
    if kind == "recorded":
        return Recorded(test)
    if kind == "real":
        return Real(test)
    return Simulated(served=kind == "served")


async def _kube(request: pytest.FixtureRequest) -> AsyncIterator[Kube]:
    test = request.node.originalname.removeprefix("test_")
    subject = _subject(request.param, test)
    kube = Kube(subject, "contract-" + test.replace("_", "-")[:50].rstrip("-"))
    await subject.open(kube.namespace)
    try:
        kube.client = kube.new_client()
        await kube.make("/api/v1/namespaces", {"metadata": {"name": kube.namespace}})
        await subject.furnish(kube.namespace)
        yield kube
    finally:
        await subject.close()


@pytest.fixture(name="kube", params=NAMES)
async def every_kube(request: pytest.FixtureRequest) -> AsyncIterator[Kube]:
    """Every Kubernetes there is."""
    async for made in _kube(request):
        yield made


@pytest.fixture(name="forgetful_kube", params=FORGETFUL)
async def every_forgetful_kube(request: pytest.FixtureRequest) -> AsyncIterator[Kube]:
    """Every Kubernetes that can be made to forget its past."""
    async for made in _kube(request):
        yield made

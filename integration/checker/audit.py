"""The audit log of kube-apiserver, read as the history of each pod: created, bound, ended, gone, and by whose request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from integration.checker.quantities import host_ports, requests
from integration.checker.rooms import Rooms
from integration.checker.running_bridges import BRIDGE, Entry, RunningBridges, scheduler_of

DEADLINE = "given a deadline"
# What a request of a bridge does to a pod, by verb and subresource.
WRITES = {
    ("create", "binding"): "bound",
    ("create", "eviction"): "evicted",
    ("patch", None): "given other annotations",
    ("update", None): "given other annotations",
    ("patch", "status"): "given a condition",
    ("update", "status"): "given a condition",
    ("delete", None): "deleted",
}
COMMAND = "a command of slurm-bridge"
JOB_ID = "slurm-bridge/job-id"
SIZE = "slurm-bridge/size"
GANG_SIZE = "slurm-bridge/gang-size"
SIGNAL = "slurm-bridge/signal"
SLURM_NODE = "slurm-bridge/slurm-node"
OWNERS = frozenset({"apps", "batch"})  # API groups whose objects the audit log has as they were sent
KUBELETS = ("kubelet", "kwok")
REFUSED, UNKNOWN = 300, 500  # from this code on
FINISHED = ("Succeeded", "Failed")
MOST_DEEP = 50
TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]')


@dataclass(frozen=True, slots=True)
class Bind:
    """A bind that took effect.

    job     the id of the annotation that came with it; None: it has none
    size    the number of pods of the annotation that came with it; 0: it has none
    """

    at: float
    node: str
    job: int | None
    client: str
    line: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Harm:
    """A request that ends a pod.  kind: "deleted", "evicted" or "given a deadline"; seconds: that deadline."""

    at: float
    pod: Pod
    kind: str
    client: str
    line: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A request of a bridge that changed a pod, or may have changed it.

    bridge  schedulerName of the bridge
    what    what was done to the pod, as in "the pod was bound"
    """

    at: float
    pod: Pod
    bridge: str
    what: str
    line: str


@dataclass(slots=True, eq=False)
class Pod:
    """One pod, as far as requests show it; times are None if no request showed the event.

    requests   CPUs, bytes of memory, and so on, by Kubernetes' names; the least, if they were changed
    ports      ports of its node: number, protocol, address
    gang_size  the number of pods of its gang that its annotation showed when it was bound; 0: it showed none
    signal_s   the most seconds that its own annotation `signal` ever asked for
    owners     API groups of its owners, which may have the annotation `signal`, too
    service    its containers always restart, and it has a controller
    gated      it was created with scheduling gates
    explained  when the bridge first wrote to it why it waits
    begun      its startTime, from which kubelet counts its deadline
    succeeded  it ended, and without a failure
    ending     when the request came by which it ended; `finished` and `gone` are when that was answered
    jobs       job ids that the bridge wrote to it, and when
    forced     it was removed by a delete that gave its containers no time
    """

    uid: str
    namespace: str
    name: str
    scheduler: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)
    ports: frozenset[tuple[int, str, str]] = frozenset()
    gang_size: int = 0
    signal_s: float = 0.0
    owners: frozenset[str] = frozenset()
    service: bool = False
    gated: bool = False
    grace_s: float = 30.0
    created: float | None = None
    explained: float | None = None
    bind: Bind | None = None
    begun: float | None = None
    started: float | None = None
    finished: float | None = None
    succeeded: bool = False
    ending: float = float("inf")
    gone: float | None = None
    forced: bool = False
    jobs: list[tuple[float, int]] = field(default_factory=list)

    @property
    def path(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def who(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def over(self) -> float:
        """When it ended; inf if it has not."""
        return min(self.finished or float("inf"), self.gone or float("inf"))

    @property
    def bound_at(self) -> float:
        """When it was bound; inf if it was not."""
        return self.bind.at if self.bind else float("inf")

    def job_at(self, at: float) -> tuple[float, int] | None:
        """When the bridge had named a job on it, the last by then, and the id of that job."""
        return next((named for named in reversed(self.jobs) if named[0] <= at), None)


@dataclass(slots=True)
class Audit:
    """All that the log says.

    bridges   the bridges that ran, with their settings
    nodes     names of nodes in Slurm where they differ
    rooms     what each node has room for
    writes    requests of bridges that changed pods
    signals   the most seconds of the annotation `signal` of owners of pods, by namespace
    system    UID of the namespace kube-system
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    harms: list[Harm] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    bridges: RunningBridges = field(default_factory=RunningBridges)
    nodes: dict[str, str] = field(default_factory=dict)
    rooms: Rooms = field(default_factory=Rooms)
    signals: dict[str, float] = field(default_factory=dict)
    system: str = ""
    end: float = 0.0
    _names: dict[tuple[str, str], Pod] = field(default_factory=dict)
    # The last bind with unknown outcome.
    _tentative: dict[tuple[str, str], tuple[Entry, str]] = field(default_factory=dict)

    def add(self, entry: Entry, line: str) -> None:
        """Takes one entry into account.  A refused request changed nothing; a request that failed otherwise may have."""
        what = entry.get("objectRef") or {}
        self.end = max(self.end, at := seconds(entry["stageTimestamp"]))
        resource, verb = what.get("resource"), entry["verb"]
        if resource == "pods" and verb == "watch" and _client(entry) == BRIDGE:
            self.bridges.watch(entry, at)
        if entry["stage"] != "ResponseComplete" or "dryRun=" in entry["requestURI"]:
            return
        code = entry.get("responseStatus", {}).get("code", UNKNOWN)
        if code >= UNKNOWN and resource == "pods":
            self._unknown(entry, line)
        elif code >= REFUSED:
            return
        elif resource == "pods":
            self._served(entry, line)
        elif resource == "nodes":
            self._node(entry, at)
        elif resource == "configmaps":
            self.bridges.config_map_written(entry, at)
        elif resource == "leases" and what.get("namespace") == BRIDGE:
            self.bridges.lease_written(entry, at)
        elif resource == "namespaces" and verb == "create":
            meta = (entry.get("responseObject") or {}).get("metadata") or {}
            if meta.get("name") == "kube-system":
                self.system = meta["uid"]
        elif what.get("apiGroup") in OWNERS and isinstance(sent := entry.get("requestObject"), dict):
            space = what.get("namespace", "")
            self.signals[space] = max(self.signals.get(space, 0.0), _signal_s(sent.get("metadata") or {}))

    def signal_s(self, pod: Pod) -> float:
        """The most seconds before a time limit at which the annotation `signal` may ask for SIGTERM; inf: not known."""
        if pod.owners - OWNERS:
            return float("inf")
        return max(pod.signal_s, self.signals.get(pod.namespace, 0.0) if pod.owners else 0.0)

    def _node(self, entry: Entry, at: float) -> None:
        """Its name in Slurm, and its allocatable resources.  A write of a node that is there leaves its status alone."""
        verb, sent, what = entry["verb"], entry.get("requestObject"), entry["objectRef"]
        name = what.get("name") or (sent or {}).get("metadata", {}).get("name", "")
        match verb, what.get("subresource"):
            case "delete", None:
                self.rooms.deleted(name, at)
            case ("create", None) | ("update", "status"):
                self.rooms.written(name, at, sent or {})
            case "patch", "status":
                self.rooms.patched(name, at, sent or {})
        if isinstance(sent, dict) and SLURM_NODE in (labels := (sent.get("metadata") or {}).get("labels") or {}):
            self.nodes[name] = labels[SLURM_NODE]

    def _served(self, entry: Entry, line: str) -> None:
        """A request on a pod that took effect."""
        self._written(entry, line)
        if handler := _PODS.get((entry["verb"], entry["objectRef"].get("subresource"))):
            handler(self, entry, line)

    def _written(self, entry: Entry, line: str) -> None:
        """Notes a request of a bridge on a pod.  It comes before the request takes effect here: a deletion frees the name."""
        bridge, sent = scheduler_of(entry), entry.get("requestObject")
        what = WRITES.get((entry["verb"], entry["objectRef"].get("subresource")))
        if bridge and what and (pod := self._named(entry)) is not None:
            if isinstance(sent, dict) and "activeDeadlineSeconds" in (sent.get("spec") or {}):
                what = DEADLINE
            self.writes.append(Write(seconds(entry["requestReceivedTimestamp"]), pod, bridge, what, line))

    def _unknown(self, entry: Entry, line: str) -> None:
        """A request on a pod that may have taken effect: an end of it is judged, and what it says counts as said.

        If its kubelet starts it, it was bound.
        """
        self._written(entry, line)
        what, sent = entry["objectRef"], entry.get("requestObject")
        kind = entry["verb"], what.get("subresource")
        if kind == ("create", "binding"):
            self._tentative[what["namespace"], what["name"]] = entry, line
        elif kind == ("create", "eviction") or (kind == ("patch", None) and isinstance(sent, dict)):
            _PODS[kind](self, entry, line)
        elif kind == ("patch", "status"):
            pod, status = self._named(entry), _status_of(sent)
            self._explained(entry, pod)
            if pod is not None and status.get("phase") in FINISHED:
                pod.ending = min(pod.ending, seconds(entry["requestReceivedTimestamp"]))
        elif kind == ("delete", None) and (pod := self._named(entry)) is not None:
            self.harms.append(Harm(seconds(entry["requestReceivedTimestamp"]), pod, "deleted", _client(entry), line))

    def _created(self, entry: Entry, line: str) -> None:
        made = entry["responseObject"]
        meta, spec = made["metadata"], made["spec"]
        at = seconds(entry["stageTimestamp"])
        pod = self._pod(meta["uid"], meta["namespace"], meta["name"])
        pod.scheduler, pod.labels, pod.created = spec.get("schedulerName", ""), meta.get("labels") or {}, at
        pod.requests, pod.ports = requests(spec), host_ports(spec)
        pod.grace_s = float(spec.get("terminationGracePeriodSeconds", 30))
        pod.gated, pod.gang_size = bool(spec.get("schedulingGates")), _whole(meta, GANG_SIZE)
        owners = meta.get("ownerReferences") or ()
        pod.owners = frozenset(owner["apiVersion"].rpartition("/")[0] for owner in owners)
        pod.signal_s = _signal_s(meta)
        controlled = any(owner.get("controller") for owner in owners)
        pod.service = spec.get("restartPolicy", "Always") == "Always" and controlled
        if spec.get("nodeName"):
            pod.bind = Bind(at, spec["nodeName"], None, _client(entry), line)

    def _bound(self, entry: Entry, line: str) -> None:
        sent, what = entry["requestObject"], entry["objectRef"]
        uid = sent["metadata"].get("uid") or what.get("uid")
        pod = self._pod(uid, what["namespace"], what["name"]) if uid else self._named(entry)
        if pod is None:
            return
        at, job = seconds(entry["requestReceivedTimestamp"]), _whole(sent["metadata"], JOB_ID) or None
        pod.bind = Bind(at, sent["target"]["name"], job, _client(entry), line, _whole(sent["metadata"], SIZE))
        if job is not None and pod.bind.client == BRIDGE:
            pod.jobs.append((at, job))

    def _patched(self, entry: Entry, line: str) -> None:
        pod, sent = self._named(entry), entry.get("requestObject")
        if pod is None or not isinstance(sent, dict):
            return
        at, client = seconds(entry["requestReceivedTimestamp"]), _client(entry)
        meta = sent.get("metadata") or {}
        if client == BRIDGE and (job := _whole(meta, JOB_ID)):
            pod.jobs.append((at, job))
        pod.signal_s = max(pod.signal_s, _signal_s(meta))
        if GANG_SIZE in (meta.get("annotations") or {}) and pod.bind is None:
            pod.gang_size = _whole(meta, GANG_SIZE)
        deadline = (sent.get("spec") or {}).get("activeDeadlineSeconds")
        if deadline is not None and entry["verb"] == "patch":
            self.harms.append(Harm(at, pod, DEADLINE, client, line, float(deadline)))

    def _status(self, entry: Entry, line: str) -> None:
        pod, sent = self._named(entry), entry.get("requestObject")
        if pod is not None and pod.bind is None and _client(entry) in KUBELETS and pod.path in self._tentative:
            self._bound(*self._tentative.pop(pod.path))
        status = _status_of(sent)
        if pod is None:
            return
        if shown := status.get("startTime"):
            pod.begun = pod.begun or seconds(shown)
        if status.get("phase") in FINISHED:
            pod.succeeded = pod.succeeded or (status["phase"] == "Succeeded" and not pod.finished)
            pod.finished = pod.finished or seconds(entry["stageTimestamp"])
            pod.ending = min(pod.ending, seconds(entry["requestReceivedTimestamp"]))
        elif status.get("phase") == "Running":
            pod.started = pod.started or seconds(entry["stageTimestamp"])
        self._explained(entry, pod)

    def _explained(self, entry: Entry, pod: Pod | None) -> None:
        if pod is not None and pod.explained is None and _client(entry) == BRIDGE:
            sent = entry.get("requestObject")
            conditions = ((sent.get("status") or {}).get("conditions") or ()) if isinstance(sent, dict) else ()
            pod.explained = seconds(entry["stageTimestamp"]) if any(map(_explains, conditions)) else None

    def _resized(self, entry: Entry, _line: str) -> None:
        if (pod := self._named(entry)) is not None:
            now = requests(entry["responseObject"]["spec"])
            pod.requests = {each: min(asked, now.get(each, 0.0)) for each, asked in pod.requests.items()}

    def _evicted(self, entry: Entry, line: str) -> None:
        if (pod := self._named(entry)) is not None:
            self.harms.append(Harm(seconds(entry["requestReceivedTimestamp"]), pod, "evicted", _client(entry), line))

    def _deleted(self, entry: Entry, line: str) -> None:
        said = entry.get("responseObject") or {}
        meta = said.get("metadata") or {}
        pod = self.pods.get(meta.get("uid") or (said.get("details") or {}).get("uid", "")) or self._named(entry)
        if pod is not None:
            lasts = bool(meta.get("deletionTimestamp")) and meta.get("deletionGracePeriodSeconds", 0) > 0
            self._ended(entry, line, pod, lasts)

    def _all_deleted(self, entry: Entry, line: str) -> None:
        for item in (entry.get("responseObject") or {}).get("items") or ():
            pod = self.pods.get(item["metadata"]["uid"])
            if pod is not None:
                alive = item["spec"].get("nodeName") and item["status"].get("phase") not in FINISHED
                self._ended(entry, line, pod, bool(alive) and _grace(entry) != 0)

    def _ended(self, entry: Entry, line: str, pod: Pod, lasts: bool) -> None:
        client = _client(entry)
        self.harms.append(Harm(seconds(entry["requestReceivedTimestamp"]), pod, "deleted", client, line))
        if not lasts:
            pod.gone = pod.gone or seconds(entry["stageTimestamp"])
            pod.ending = min(pod.ending, seconds(entry["requestReceivedTimestamp"]))
            pod.forced = client not in KUBELETS and pod.bind is not None and pod.finished is None
            if self._names.get((pod.namespace, pod.name)) is pod:
                del self._names[pod.namespace, pod.name]

    def _pod(self, uid: str, namespace: str, name: str) -> Pod:
        pod = self.pods.setdefault(uid, Pod(uid, namespace, name))
        self._names[namespace, name] = pod
        return pod

    def _named(self, entry: Entry) -> Pod | None:
        what = entry["objectRef"]
        return self._names.get((what["namespace"], what.get("name", "")))


_PODS = {
    ("create", None): Audit._created,
    ("create", "binding"): Audit._bound,
    ("create", "eviction"): Audit._evicted,
    ("patch", None): Audit._patched,
    ("update", None): Audit._patched,
    ("patch", "status"): Audit._status,
    ("update", "status"): Audit._status,
    ("patch", "resize"): Audit._resized,
    ("update", "resize"): Audit._resized,
    ("delete", None): Audit._deleted,
    ("deletecollection", None): Audit._all_deleted,
}


def read(folder: Path) -> Audit:
    """Every entry of the logs in that folder, the oldest first."""
    found = Audit()
    for path in sorted(folder.glob("audit*.log"), key=lambda path: path.stat().st_mtime):
        for number, text in _lines(path):
            found.add(_entry(text), f"{path.name}:{number}")
    return found


def _entry(text: bytes) -> dict[str, Any]:
    """One line.  What is nested deeper than any field of interest is null: a hostile patch is logged as it was sent."""
    try:
        return dict(json.loads(text))
    except RecursionError:
        return dict(json.loads(shallow(text)))


def shallow(text: bytes) -> bytes:
    """The JSON text, with null for each array and object at a depth of more than MOST_DEEP."""
    kept, depth, begin = list[bytes](), 0, 0
    for found in TOKENS.finditer(text):
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth == MOST_DEEP + 1:
                kept.append(text[begin : found.start()] + b"null")
        elif found[0] in (b"]", b"}"):
            depth -= 1
            if depth == MOST_DEEP:
                begin = found.end()
    return b"".join([*kept, text[begin:]])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Whole lines: a server that was killed may have written half of one."""
    with path.open("rb") as log:
        for number, text in enumerate(log, 1):
            if text.endswith(b"}\n"):
                yield number, text


def seconds(shown: str) -> float:
    return datetime.fromisoformat(shown).timestamp()


def _client(entry: Entry) -> str:
    """The program that sent the request; BRIDGE for bridges alone."""
    agent: str = entry.get("userAgent", "")
    name = agent.partition("/")[0]
    return COMMAND if name == BRIDGE and not scheduler_of(entry) else name


def _status_of(sent: Any) -> Mapping[str, Any]:
    """The status in a patch or in a whole object; {}: there is none."""
    return (sent.get("status") or {}) if isinstance(sent, dict) else {}


def _signal_s(meta: Entry) -> float:
    """The seconds of the annotation `signal`: "USR1@300" and "300" -> 300, "USR1" -> 60; 0: it is absent."""
    shown = str((meta.get("annotations") or {}).get(SIGNAL) or "").strip()
    found = re.search(r"(?:\A|@)([0-9]{1,5})\Z", shown)
    return float(found[1]) if found else (60.0 if shown else 0.0)


def _explains(condition: Entry) -> bool:
    """True if it says why a pod waits (L1)."""
    return (
        condition.get("type") == "PodScheduled"
        and condition.get("status") == "False"
        and bool(condition.get("message"))
    )


def _whole(meta: Entry, key: str) -> int:
    """The number in that annotation; 0: it is absent, or no number."""
    shown = (meta.get("annotations") or {}).get(key) or ""
    return int(shown) if re.fullmatch(r"[0-9]{1,18}", shown) else 0


def _grace(entry: Entry) -> int | None:
    return (entry.get("requestObject") or {}).get("gracePeriodSeconds")

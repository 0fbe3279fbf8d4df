"""The audit log of kube-apiserver, read as the life of each pod: created, bound, ended, gone, and by whose request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

BRIDGE = "slurm-bridge"  # how its user agent begins
JOB_ID = "slurm-bridge/job-id"
SLURM_NODE = "slurm-bridge/slurm-node"
KUBELETS = ("kubelet", "kwok")
REFUSED, UNKNOWN = 300, 500  # from this code on
FINISHED = ("Succeeded", "Failed")
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
MOST_DEEP = 50
TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]')
KINDS = {"cpu": "cpu", "memory": "mem", "nvidia.com/gpu": "gres/gpu"}
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bind:
    """A bind that took effect.  job: the id in the annotation that came with it; None: none."""

    at: float
    node: str
    job: int | None
    client: str
    line: str


@dataclass(frozen=True, slots=True)
class Harm:
    """A request that ends a pod.  kind: "deleted", "evicted" or "given a deadline"; seconds: that deadline."""

    at: float
    pod: Pod
    kind: str
    client: str
    line: str
    seconds: float | None = None


@dataclass(slots=True, eq=False)
class Pod:
    """One pod, as far as requests show it; times are None if no request showed the event.

    requests   CPUs, MiB ("mem") and GPUs ("gres/gpu")
    jobs       job ids that the bridge wrote to it, and when
    forced     it was removed by a delete that gave its containers no time
    """

    uid: str
    namespace: str
    name: str
    scheduler: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)
    grace_s: float = 30.0
    created: float | None = None
    bind: Bind | None = None
    started: float | None = None
    finished: float | None = None
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

    def job_at(self, at: float) -> tuple[float, int] | None:
        """When the bridge had named a job on it, the last by then, and the id of that job."""
        return next((named for named in reversed(self.jobs) if named[0] <= at), None)


@dataclass(slots=True)
class Audit:
    """All that the log says.

    watches   the bridge's watches of pods that have ended: from, until
    nodes     names of nodes in Slurm where they differ
    system    UID of the namespace kube-system
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    harms: list[Harm] = field(default_factory=list)
    watches: list[tuple[float, float]] = field(default_factory=list)
    nodes: dict[str, str] = field(default_factory=dict)
    system: str = ""
    end: float = 0.0
    _names: dict[tuple[str, str], Pod] = field(default_factory=dict)
    _open: dict[str, float] = field(default_factory=dict)
    # The last bind with unknown outcome.
    _tentative: dict[tuple[str, str], tuple[Entry, str]] = field(default_factory=dict)

    def add(self, entry: Entry, line: str) -> None:
        """Takes one entry into account.  A refused request changed nothing; a request that failed otherwise may have."""
        what = entry.get("objectRef") or {}
        self.end = max(self.end, at := seconds(entry["stageTimestamp"]))
        resource, verb = what.get("resource"), entry["verb"]
        if resource == "pods" and verb == "watch" and _client(entry) == BRIDGE:
            self._watch(entry, at)
        if entry["stage"] != "ResponseComplete" or "dryRun=" in entry["requestURI"]:
            return
        code = entry.get("responseStatus", {}).get("code", UNKNOWN)
        if code >= UNKNOWN and resource == "pods":
            self._unknown(entry, line)
        elif code >= REFUSED:
            return
        elif resource == "pods":
            handler = _PODS.get((verb, what.get("subresource")))
            if handler:
                handler(self, entry, line)
        elif resource == "nodes" and verb in ("create", "patch", "update") and not what.get("subresource"):
            labels = ((entry.get("requestObject") or {}).get("metadata") or {}).get("labels") or {}
            if SLURM_NODE in labels:
                self.nodes[what.get("name") or entry["requestObject"]["metadata"]["name"]] = labels[SLURM_NODE]
        elif resource == "namespaces" and verb == "create":
            meta = (entry.get("responseObject") or {}).get("metadata") or {}
            if meta.get("name") == "kube-system":
                self.system = meta["uid"]

    @property
    def watched(self) -> list[tuple[float, float]]:
        """When the bridge had an open watch of pods: it ran, and reached the API server."""
        return [*self.watches, *((at, self.end) for at in self._open.values())]

    def _unknown(self, entry: Entry, line: str) -> None:
        """A request on a pod that may have taken effect: an end of it is judged; if its kubelet starts it, it was bound."""
        what, sent = entry["objectRef"], entry.get("requestObject")
        kind = entry["verb"], what.get("subresource")
        if kind == ("create", "binding"):
            self._tentative[what["namespace"], what["name"]] = entry, line
        elif kind == ("create", "eviction") or (kind == ("patch", None) and isinstance(sent, dict)):
            _PODS[kind](self, entry, line)
        elif kind == ("delete", None) and (pod := self._named(entry)) is not None:
            self.harms.append(Harm(seconds(entry["requestReceivedTimestamp"]), pod, "deleted", _client(entry), line))

    def _watch(self, entry: Entry, at: float) -> None:
        if entry["stage"] == "ResponseStarted":
            self._open[entry["auditID"]] = at
        elif entry["auditID"] in self._open:
            self.watches.append((self._open.pop(entry["auditID"]), at))

    def _created(self, entry: Entry, line: str) -> None:
        made = entry["responseObject"]
        meta, spec = made["metadata"], made["spec"]
        at = seconds(entry["stageTimestamp"])
        pod = self._pod(meta["uid"], meta["namespace"], meta["name"])
        pod.scheduler, pod.labels, pod.created = spec.get("schedulerName", ""), meta.get("labels") or {}, at
        pod.requests, pod.grace_s = _requests(spec), float(spec.get("terminationGracePeriodSeconds", 30))
        if spec.get("nodeName"):
            pod.bind = Bind(at, spec["nodeName"], None, _client(entry), line)

    def _bound(self, entry: Entry, line: str) -> None:
        sent, what = entry["requestObject"], entry["objectRef"]
        uid = sent["metadata"].get("uid") or what.get("uid")
        pod = self._pod(uid, what["namespace"], what["name"]) if uid else self._named(entry)
        if pod is None:
            return
        at, said = (
            seconds(entry["requestReceivedTimestamp"]),
            (sent["metadata"].get("annotations") or {}).get(JOB_ID, ""),
        )
        job = int(said) if said.isdecimal() else None
        pod.bind = Bind(at, sent["target"]["name"], job, _client(entry), line)
        if job is not None and pod.bind.client == BRIDGE:
            pod.jobs.append((at, job))

    def _patched(self, entry: Entry, line: str) -> None:
        pod, sent = self._named(entry), entry.get("requestObject")
        if pod is None or not isinstance(sent, dict):
            return
        at, client = seconds(entry["requestReceivedTimestamp"]), _client(entry)
        said = ((sent.get("metadata") or {}).get("annotations") or {}).get(JOB_ID)
        if client == BRIDGE and said and said.isdecimal():
            pod.jobs.append((at, int(said)))
        deadline = (sent.get("spec") or {}).get("activeDeadlineSeconds")
        if deadline is not None and entry["verb"] == "patch":
            self.harms.append(Harm(at, pod, "given a deadline", client, line, float(deadline)))

    def _status(self, entry: Entry, line: str) -> None:
        pod, sent = self._named(entry), entry.get("requestObject")
        if pod is not None and pod.bind is None and _client(entry) in KUBELETS and pod.path in self._tentative:
            self._bound(*self._tentative.pop(pod.path))
        phase = (sent.get("status") or {}).get("phase") if isinstance(sent, dict) else None
        if pod is not None and phase in FINISHED:
            pod.finished = pod.finished or seconds(entry["stageTimestamp"])
        elif pod is not None and phase == "Running":
            pod.started = pod.started or seconds(entry["stageTimestamp"])

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
    agent: str = entry.get("userAgent", "")
    return agent.partition("/")[0]


def _grace(entry: Entry) -> int | None:
    return (entry.get("requestObject") or {}).get("gracePeriodSeconds")


def _requests(spec: Entry) -> dict[str, float]:
    total: dict[str, float] = {}
    for container in spec["containers"]:
        for resource, shown in ((container.get("resources") or {}).get("requests") or {}).items():
            if resource in KINDS:
                kind = KINDS[resource]
                total[kind] = total.get(kind, 0.0) + _amount(shown) / (2**20 if kind == "mem" else 1)
    return total


def _amount(shown: str) -> float:
    if shown.endswith("m"):
        return float(shown[:-1]) / 1000
    number, unit = re.fullmatch(r"([0-9.e+]+)(\w*)", shown).groups()  # type: ignore[union-attr]
    return float(number) * UNITS[unit]

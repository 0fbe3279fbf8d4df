"""Logs of a run that never was, written line by line as the servers write them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from integration.checker.accounting import parse
from integration.checker.audit import Audit
from integration.checker.evidence import Evidence
from integration.checker.invariants import judge
from integration.checker.journal import Breach, Journal
from integration.checker.rest_log import RestLog
from integration.checker.slurm_log import SlurmLog
from integration.checker.verdict import Verdict

SYSTEM = "11111111-aaaa"
BRIDGE = "slurm-bridge"
SECOND = "second"  # the schedulerName of another bridge
POLICY = {"rules": [{"namespaces": ["alice-*"], "user": "alice", "partition": {"default": "main", "allowed": ["gpu"]}}]}
USERS = {"alice": 2001, "bob": 2002, "carol": 2003}
NOTHING: Mapping[str, Any] = {}
EPOCH = 1_800_000_000.0  # second 0 of the run


def mark(scheduler: str) -> str:
    """The mark of that bridge in the names of its jobs."""
    whose = SYSTEM if scheduler == BRIDGE else f"{SYSTEM}/{scheduler}"
    return "k" + hashlib.sha256(whose.encode()).hexdigest()[:8]


def key(identity: str) -> str:
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


MARK = mark(BRIDGE)
RING = f"alice-x/ring~{MARK}." + key("gang\0alice-x\0ring")  # the name of the job of the gang "ring"


def stamp(at: float) -> str:
    return datetime.fromtimestamp(EPOCH + at, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")


class Run:
    """A run of pods and jobs, told in order; seconds count from its beginning."""

    def __init__(self, *, policy: Mapping[str, Any] = POLICY) -> None:
        self.audit, self.slurm, self.journal, self.rest = Audit(), SlurmLog(), Journal(), RestLog()
        self.journal.policies[BRIDGE] = [(EPOCH - 1, policy)]
        self.sacct: dict[tuple[int, float], dict[str, str]] = {}
        self.numbers = {"audit.log": 0, "slurmctld.log": 0}
        self.now: dict[int, tuple[int, float]] = {}
        self.states: dict[int, str] = {}
        self.entry(0, "create", "namespaces", {}, {"metadata": {"name": "kube-system", "uid": SYSTEM}})
        self.watch(0.0)

    # --- Kubernetes -----------------------------------------------------------------------------------------------

    def entry(
        self, at: float, verb: str, resource: str, sent: Any, answer: Any, *, by: str = "test", **more: Any
    ) -> None:
        part, _, sub = resource.partition("/")
        self.numbers["audit.log"] += 1
        entry = {
            "auditID": str(self.numbers["audit.log"]), "stage": "ResponseComplete", "verb": verb, "requestURI": "/x",
            "userAgent": f"{BRIDGE}/1 ({by})" if by in (BRIDGE, SECOND) else f"{by}/1",
            "responseStatus": {"code": more.pop("code", 201)},
            "requestObject": sent, "responseObject": answer,
            "objectRef": {"resource": part, **({"subresource": sub} if sub else {}), **more.pop("ref", {})},
            "requestReceivedTimestamp": stamp(at) + "Z", "stageTimestamp": stamp(at + 0.001) + "Z", **more,
        }  # fmt: skip
        self.audit.add(json.loads(json.dumps(entry)), f"audit.log:{self.numbers['audit.log']}")

    def watch(self, at: float) -> None:
        """The bridge opens its watch of pods."""
        self.entry(at, "watch", "pods", None, None, by=BRIDGE, stage="ResponseStarted")

    def lead(self, at: float, holder: str, *, since: float) -> None:
        """A replica acquires or renews the lease."""
        spec = {"holderIdentity": holder, "acquireTime": stamp(since) + "Z", "renewTime": stamp(at) + "Z"}
        ref = {"name": "slurm-bridge", "namespace": BRIDGE}
        self.entry(at, "update", "leases", {"spec": spec}, None, by=BRIDGE, ref=ref, code=200)

    def second_bridge(self, at: float, *, stage: str = "ResponseStarted") -> None:
        """A bridge with another schedulerName opens its watch of pods."""
        self.entry(at, "watch", "pods", None, None, by=SECOND, stage=stage, auditID="second")

    def second_bridge_ends(self, at: float) -> None:
        self.second_bridge(at, stage="ResponseComplete")

    def node(self, at: float, name: str, **has: str) -> None:
        """A node is created with these allocatable resources."""
        has = {"cpu": "64", "memory": "500Gi", "pods": "110"} | has
        made = {"metadata": {"name": name}, "status": {"allocatable": has}}
        self.entry(at, "create", "nodes", made, None, ref={"name": name})

    def node_patch(self, at: float, name: str, sent: Any) -> None:
        """A merge patch or a JSON patch of its status."""
        self.entry(at, "patch", "nodes/status", sent, None, ref={"name": name})

    def pod(
        self,
        at: float,
        name: str,
        *,
        gang: str = "",
        cpu: str = "1",
        gpu: int = 0,
        space: str = "alice-x",
        scheduler: str = BRIDGE,
        size: int = 0,
        silent: bool = False,
        annotations: Mapping[str, str] = NOTHING,
        meta: Mapping[str, Any] = NOTHING,
        **spec: Any,
    ) -> str:
        """A pod is created; returns its UID.  size: its annotation gang-size; silent: nothing says why it waits."""
        uid = f"uid-{name}"
        wants = {"cpu": cpu, "memory": "64Mi"} | ({"nvidia.com/gpu": str(gpu)} if gpu else {})
        labels = {"slurm-bridge/gang": gang} if gang else {}
        notes = dict(annotations) | ({"slurm-bridge/gang-size": str(size)} if size else {})
        meta = {"uid": uid, "namespace": space, "name": name, "labels": labels, "annotations": notes, **meta}
        containers = [{"resources": {"requests": wants}}]
        spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 2, "containers": containers} | spec
        made = {"metadata": meta, "spec": spec, "status": {}}
        self.entry(at, "create", "pods", made, made, ref={"namespace": space})
        if not silent:
            self.explain(at, name, space=space, by=scheduler if scheduler == SECOND else BRIDGE)
        return uid

    def explain(
        self, at: float, name: str, *, space: str = "alice-x", message: str = "Waiting in Slurm.", **more: Any
    ) -> None:
        """The bridge writes why the pod waits."""
        sent = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}}
        ref = {"namespace": space, "name": name}
        self.entry(at, "patch", "pods/status", sent, None, **{"by": BRIDGE, "ref": ref} | more)

    def bind(
        self,
        at: float,
        name: str,
        node: str,
        job: int,
        *,
        by: str = BRIDGE,
        code: int = 201,
        size: int = 1,
        starts: bool = True,
    ) -> None:
        """starts: its containers run at once."""
        notes = {"slurm-bridge/job-id": str(job), "slurm-bridge/size": str(size)}
        meta = {"uid": f"uid-{name}", "annotations": notes}
        sent = {"metadata": meta, "target": {"name": node}}
        self.entry(at, "create", "pods/binding", sent, {}, by=by, code=code, ref=_at(name))
        if starts:
            self.phase(at + 0.01, name, "Running")

    def phase(self, at: float, name: str, phase: str, **status: str) -> None:
        self.entry(at, "patch", "pods/status", {"status": {"phase": phase} | status}, None, by="kwok", ref=_at(name))

    def deadline(self, at: float, name: str, seconds: int, *, by: str = BRIDGE) -> None:
        sent = {"spec": {"activeDeadlineSeconds": seconds}}
        self.entry(at, "patch", "pods", sent, None, by=by, ref=_at(name))

    def annotate(self, at: float, name: str, *, by: str = BRIDGE, code: int = 200, **annotations: str) -> None:
        meta = {"annotations": {f"slurm-bridge/{key.replace('_', '-')}": value for key, value in annotations.items()}}
        self.entry(at, "patch", "pods", {"metadata": meta}, None, by=by, code=code, ref=_at(name))

    def evict(self, at: float, name: str, *, by: str = BRIDGE) -> None:
        self.entry(at, "create", "pods/eviction", {}, None, by=by, ref=_at(name))

    def delete(self, at: float, name: str, *, by: str, gone: bool = False, code: int = 200) -> None:
        """gone: with its object; else it has its grace."""
        meta = {"uid": f"uid-{name}", "deletionTimestamp": "t", "deletionGracePeriodSeconds": 0 if gone else 2}
        self.entry(at, "delete", "pods", {}, {"metadata": meta}, by=by, code=code, ref=_at(name))

    # --- Slurm ----------------------------------------------------------------------------------------------------

    def log(self, at: float, text: str) -> None:
        self.numbers["slurmctld.log"] += 1
        self.slurm.add(EPOCH + at, f"[{stamp(at)}] {text}", f"slurmctld.log:{self.numbers['slurmctld.log']}")

    def submit(self, at: float, number: int, of: str, user: str = "alice", *, name: str = "", **fields: str) -> None:
        """A placeholder of the pod with that UID, or of a gang; or a job of another name."""
        self.log(at, f"_slurm_rpc_submit_batch_job: JobId={number} SLUID=s1 InitPrio=1 usec=1")
        self.now[number], self.states[number] = (number, at), "PENDING"
        self.sacct[number, at] = {
            "JobIDRaw": str(number), "JobID": str(number), "User": user, "UID": str(USERS[user]), "Account": "teama",
            "Partition": "main", "QOS": "normal", "State": "PENDING", "Submit": stamp(at)[:19], "Start": "Unknown",
            "NodeList": "None assigned", "AllocTRES": "", "Timelimit": "01:00:00", **fields,
            "JobName": name or f"alice-x/{of}~{MARK}.{key(of)}",
        }  # fmt: skip

    def state(self, at: float, number: int, new: str, **fields: str) -> None:
        self.log(at, f"TRACE_JOBS: f: [JobId={number}] change state: {self.states[number]} -> {new}")
        self.states[number] = new
        self.sacct[self.now[number]] |= {"State": new, **fields}

    def grant(self, at: float, number: int, node: str, tres: str = "billing=1,cpu=1,mem=64M,node=1") -> None:
        self.state(at, number, "RUNNING", NodeList=node, AllocTRES=tres, Start=stamp(at)[:19])

    def cancel(self, at: float, number: int, by: int | None = 2001) -> None:
        """by: UID of who cancelled it; None: slurmdbd does not say it"""
        self.state(at, number, "CANCELLED")
        self.sacct[self.now[number]]["State"] = "CANCELLED" if by is None else f"CANCELLED by {by}"

    def rename(self, at: float, number: int, name: str, *, uid: int = 2001) -> None:
        """The user of the job gives it another name."""
        self.log(at, f"_update_job: setting name to {name} for JobId={number}")
        self.log(at, f"_slurm_rpc_update_job: complete JobId={number} uid={uid} usec=46")
        self.sacct[self.now[number]]["JobName"] = name

    def shrink(self, at: float, number: int, nodes: str, tres: str) -> None:
        """The user of the running job gives up the other nodes: slurmdbd begins another record."""
        self.log(at, f"_update_job: set node count to 1 for JobId={number}")
        self.log(at, f"_update_job: set nodes to {nodes} for JobId={number}")
        self.log(at, f"_slurm_rpc_update_job: complete JobId={number} uid=2001 usec=46")
        before = self.sacct[self.now[number]]
        self.now[number] = (number, at)
        self.sacct[number, at] = before | {"Submit": stamp(at)[:19], "NodeList": nodes, "AllocTRES": tres}
        before["State"] = "RESIZING"

    def restart(self, at: float, *known: int) -> None:
        """slurmctld was killed, and knows these jobs when it is back."""
        self.log(at, "slurmctld version 26.05.5 started on cluster rig(1)")
        for number in known:
            self.log(at, f"Recovered JobId={number} Assoc=7")
        self.log(at + 0.1, "Running as primary controller")

    # --- the checker ----------------------------------------------------------------------------------------------

    def tune(self, at: float, *, scheduler: str = BRIDGE, **tuning: float) -> None:
        """The bridge has this setting `tuning` from now on."""
        self.journal.tunings.setdefault(scheduler, []).append((EPOCH + at, tuning))

    def announce(self, invariant: str, about: str) -> None:
        self.journal.breaches.append(Breach(EPOCH, invariant, about, "on purpose"))

    def verdict(self, until: float = 60.0, *, rest_s: float | None = None) -> Verdict:
        """What the checker says at that second."""
        self.entry(until, "list", "pods", None, None)
        records = parse("\n".join("\x1f".join(record.values()) for record in self.sacct.values()))
        here = frozenset(uid for uid, pod in self.audit.pods.items() if not pod.gone)
        return judge(Evidence(self.audit, self.slurm, records, self.journal, here, self.rest), rest_s=rest_s)

    def broken(self, until: float = 60.0, *, rest_s: float | None = None) -> list[str]:
        """The violations, as sentences."""
        return [str(each) for each in self.verdict(until, rest_s=rest_s).broken]


def _at(name: str) -> dict[str, str]:
    return {"namespace": "alice-x", "name": name}

"""Random calls to Kubernetes: what the bridge sends, and what users, kubelets and other schedulers do meanwhile.

All sequences of a run share a namespace, two watches, and two nodes without a kubelet, to which pods are bound; each has
three pods and two nodes of its own.  So no actor of either cluster touches what the calls made, but the calls themselves.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from bridge.kube import codec, transport
from bridge.kube.client import KubeClient
from bridge.kube.codec import encode
from bridge.kube.watch import other_pods, our_pods
from scheduler import names
from scheduler.actions import (
    BindPod,
    DeletePod,
    EvictPod,
    FailByDeadline,
    SetDeadline,
    SetJobCondition,
    SetNodeCondition,
    SetPodCondition,
)
from scheduler.events import PodDeleted, PodSeen
from scheduler.model.kubernetes import Node, Pod
from tests.contract.kube_subjects import MERGE, STRATEGIC, Kube, Seen
from tests.contract.sequences import FEWEST_CALLS, MOST_CALLS, Call, Exemption, Transcript, compared, said, with_more

ANOTHER = "00000000-0000-4000-8000-00000000dead"
TIMES = ("created", "deleting_at", "bound_at", "started", "waits_since")
PODS, NODES = ("a", "b", "c"), ("x", "y")
PLACES = ("contract-n1", "contract-n2")
GATE, FINALIZER = "example.com/quota", "example.com/held"

Manifest = Mapping[str, Any]

# --- what stays different ---------------------------------------------------------------------------------------------

NOT_COMPARED = (
    Exemption(
        "phase",
        lambda pod: pod["deleting_at"] and not pod["node"],
        "the collector of pods lets such a pod fail within 20 s, if a finalizer holds it (Kubernetes facts 2)",
    ),
)

# --- the calls ------------------------------------------------------------------------------------------------------

_CONTAINER: Manifest = {"name": "main", "image": "localhost/none", "resources": {"limits": {"cpu": "1500m"}}}
_OWNER: Manifest = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": ANOTHER, "controller": True}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_APART: Manifest = {"labelSelector": {"matchLabels": {"team": "a"}}, "topologyKey": "kubernetes.io/hostname"}
_FAST: Manifest = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}
_TOLERATION: Manifest = {"key": "slurm-bridge/managed", "operator": "Exists", "effect": "NoSchedule"}

# What a pod is made as: its metadata and its spec.
KINDS: Mapping[str, tuple[Manifest, Manifest]] = {
    "plain": ({}, {}),
    "gated": ({}, {"schedulingGates": [{"name": GATE}]}),
    "held": ({"finalizers": [FINALIZER]}, {}),
    "brief": ({}, {"activeDeadlineSeconds": 600}),
    "patient": ({}, {"terminationGracePeriodSeconds": 77}),
    "hasty": ({}, {"terminationGracePeriodSeconds": 0}),
    "labelled": (
        {"labels": {"team": "a"}, "annotations": {"slurm-bridge/partition": "main"}},
        {"restartPolicy": "Never"},
    ),
    "choosy": ({}, {"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}),
    "another's": ({}, {"schedulerName": "another"}),
    "placed": ({}, {"nodeName": PLACES[0]}),
    "of no one": ({"ownerReferences": [{**_OWNER, "uid": ""}]}, {}),
    "with a class": ({}, {"priorityClassName": "system-node-critical"}),
    "of an account": ({}, {"serviceAccountName": "default", "restartPolicy": "OnFailure"}),
    "apart": ({"labels": {"team": "a"}}, {"affinity": {"podAntiAffinity": {_REQUIRED: [_APART]}}}),
    "near": (
        {},
        {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_FAST]}}}, "nodeSelector": {"a": "b"}},
    ),
    "with a port": ({}, {"containers": [{**_CONTAINER, "ports": [{"containerPort": 80, "hostPort": 8080}]}]}),
    "with an init": ({}, {"initContainers": [{**_CONTAINER, "name": "first", "restartPolicy": "Always"}]}),
    "with a claim": ({}, {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
    "without a container": ({}, {"containers": []}),
    "of a wrong amount": ({}, {"containers": [{**_CONTAINER, "resources": {"requests": {"cpu": "many"}}}]}),
    "of more than its limit": (
        {},
        {"containers": [{**_CONTAINER, "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}}]},
    ),
    "ending": ({}, {"activeDeadlineSeconds": 0}),
    "twice tolerant": ({}, {"tolerations": [_TOLERATION, _TOLERATION]}),
}
CHANGES: Mapping[str, Manifest] = {  # merge patches of users, on the pod
    "scheduler": {"spec": {"schedulerName": "other"}},
    "selector": {"spec": {"nodeSelector": {"disk": "fast"}}},
    "deadline": {"spec": {"activeDeadlineSeconds": 300}},
    "longer": {"spec": {"activeDeadlineSeconds": 900}},
    "no deadline": {"spec": {"activeDeadlineSeconds": None}},
    "ungate": {"spec": {"schedulingGates": None}},
    "gate": {"spec": {"schedulingGates": [{"name": GATE}]}},
    "hold": {"metadata": {"finalizers": [FINALIZER]}},
    "let go": {"metadata": {"finalizers": None}},
    "label": {"metadata": {"labels": {"team": "b"}}},
    "unlabel": {"metadata": {"labels": {"team": None}}},
    "annotate": {"metadata": {"annotations": {"slurm-bridge/partition": "gpu"}}},
    "grace": {"spec": {"terminationGracePeriodSeconds": 5}},
    "priority": {"spec": {"priorityClassName": "system-node-critical"}},
    "node": {"spec": {"nodeName": PLACES[1]}},
    "nothing": {"metadata": {}},
    "no labels": {"metadata": {"labels": None}},
    "empty labels": {"metadata": {"labels": {}, "annotations": {}}},
    "image": {"spec": {"containers": [{**_CONTAINER, "image": "localhost/other"}]}},
    "more": {"spec": {"containers": [{**_CONTAINER, "resources": {"limits": {"cpu": "2"}}}]}},
    "affinity": {"spec": {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_FAST]}}}}},
    "no affinity": {"spec": {"affinity": None}},
    "tolerations": {"spec": {"tolerations": [_TOLERATION]}},
    "restart": {"spec": {"restartPolicy": "Never"}},
    "name": {"metadata": {"name": "another"}},
    "old version": {"metadata": {"resourceVersion": "1", "labels": {"team": "c"}}},
    "status": {"status": {"phase": "Running"}},
    "deletion": {"metadata": {"deletionTimestamp": "2026-11-21T05:00:00Z", "deletionGracePeriodSeconds": 3}},
    "bad label": {"metadata": {"labels": {"team": "not a label"}}},
    "bad annotation": {"metadata": {"annotations": {"a b": "c"}}},
    "bad finalizer": {"metadata": {"finalizers": ["held"]}},
    "zero deadline": {"spec": {"activeDeadlineSeconds": 0}},
}
STRATEGIC_CHANGES: Mapping[str, Manifest] = {
    "toleration": {"spec": {"tolerations": [_TOLERATION]}},
    "ungate": {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}},
    "gate": {"spec": {"schedulingGates": [{"name": "example.com/second"}]}},
    "let go": {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}},
    "hold": {"metadata": {"finalizers": ["example.com/second"]}},
    "label": {"metadata": {"labels": {"team": "d"}}},
    "image": {"spec": {"containers": [{"name": "main", "image": "localhost/third"}]}},
    "container": {"spec": {"containers": [{"name": "second", "image": "localhost/none"}]}},
}
JSON_CHANGES: Mapping[str, Sequence[Manifest]] = {
    "label": [{"op": "add", "path": "/metadata/labels", "value": {"team": "e"}}],
    "unlabel": [{"op": "remove", "path": "/metadata/labels/team"}],
    "gated": [{"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE}],
    "ungate": [{"op": "remove", "path": "/spec/schedulingGates"}],
    "toleration": [{"op": "add", "path": "/spec/tolerations/-", "value": _TOLERATION}],
    "replace": [{"op": "replace", "path": "/metadata/annotations/a", "value": "b"}],
}
_STATUS: Manifest = {
    "name": "main",
    "image": "localhost/none",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "lastState": {},
}
STATUSES: Mapping[str, Manifest] = {  # strategic patches of a kubelet, on the status
    "Running": {"phase": "Running", "startTime": "2026-11-21T05:00:00Z"},
    "Succeeded": {"phase": "Succeeded"},
    "Failed": {"phase": "Failed", "reason": "DeadlineExceeded"},
    "Pending": {"phase": "Pending"},
    "waiting": {"containerStatuses": [{**_STATUS, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
    "ended": {"containerStatuses": [{**_STATUS, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]},
    "other condition": {"conditions": [{"type": "example.com/ready", "status": "True"}]},
    "no condition": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]},
    "no disruption": {"conditions": [{"type": "DisruptionTarget", "$patch": "delete"}]},
    "nothing": {},
}
SELECTIONS = (
    {},
    {"fieldSelector": "status.phase=Running"},
    {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="},
    {"fieldSelector": "spec.nodeName=contract-n1"},
    {"fieldSelector": "spec.schedulerName=another"},
    {"labelSelector": "team=a"},
    {"labelSelector": "team"},
    {"labelSelector": "!team"},
    {"labelSelector": "team notin (a)"},
    {"labelSelector": "team in (a,b)"},
)


def sequence(number: int) -> list[Call]:
    """The calls of that number: about a pod mostly after it was made, so that most of them take effect."""
    rng = random.Random(f"kubernetes {number}")
    length = rng.randint(FEWEST_CALLS, MOST_CALLS)
    calls: list[Call] = [_new_pod(rng, "a")]
    while len(calls) < length:
        verb = rng.choices(list(_MAKERS), [weight for weight, _ in _MAKERS.values()])[0]
        calls.append(_MAKERS[verb][1](rng, rng.choice("aaaabbc")))
    return with_more(calls, random.Random(f"kubernetes more {number}"), _MORE)


def _new_pod(rng: random.Random, pod: str) -> Call:
    return Call("create", pod, {"kind": rng.choice(list(KINDS))})


def _on_a_pod(verb: str, **choices: Sequence[Any]) -> Callable[[random.Random, str], Call]:
    def make(rng: random.Random, pod: str) -> Call:
        chosen = {key: rng.choice(values) for key, values in choices.items()}
        return Call(verb, pod, chosen | ({"uid": "former"} if rng.random() < 0.15 else {}))

    return make


def _on_a_node(verb: str, **choices: Sequence[Any]) -> Callable[[random.Random, str], Call]:
    make = _on_a_pod(verb, **choices)
    return lambda rng, pod: dataclasses.replace(make(rng, pod), of="x" if pod == "a" else "y")


_MAKERS: Mapping[str, tuple[int, Callable[[random.Random, str], Call]]] = {
    "create": (6, _new_pod),
    "bind": (9, _on_a_pod("bind", node=PLACES, job=("1", "1", "2"))),
    "bind by another": (2, _on_a_pod("bind by another", node=PLACES)),
    "report": (4, _on_a_pod("report", reason=("SlurmJobPending", "SlurmJobRefused"), message=("One.", "Two."))),
    "report running": (2, _on_a_pod("report running", runs=(True, False))),
    "write annotations": (3, _on_a_pod("write annotations", job=("3", None), gpus=("0-1", None, ""))),
    "set deadline": (3, _on_a_pod("set deadline", seconds=(1, 30, 600, 700))),
    "end pod": (3, _on_a_pod("end pod", counts=(True, False))),
    "delete pod": (4, _on_a_pod("delete pod", grace_s=(None, None, 0, 5, 600))),
    "evict": (3, lambda rng, pod: Call("evict", pod)),  # of a former pod the server tries it for ten seconds
    "delete": (3, _on_a_pod("delete", grace_s=(None, 0, 1, 40), checked=(True, False))),
    "read pod": (2, lambda rng, pod: Call("read pod", pod)),
    "change": (9, _on_a_pod("change", what=tuple(CHANGES))),
    "change strategically": (3, _on_a_pod("change strategically", what=tuple(STRATEGIC_CHANGES))),
    "change by operations": (3, _on_a_pod("change by operations", what=tuple(JSON_CHANGES))),
    "replace": (2, _on_a_pod("replace", what=("label", "old version", "node", "nothing"))),
    "try": (1, _on_a_pod("try", what=("create", "label", "delete"))),
    "kubelet": (7, _on_a_pod("kubelet", status=tuple(STATUSES))),
    "list": (2, lambda rng, pod: Call("list", "", rng.choice(SELECTIONS))),
    "event": (3, _on_a_pod("event", message=("One.", "Two."), warning=(True, False))),
    "create node": (2, lambda rng, pod: Call("create node", "x" if pod == "a" else "y")),
    "show node": (2, _on_a_node("show node", status=(True, False), turns=(True, False))),
    "taint node": (2, _on_a_node("taint node")),
    "unmark node": (1, _on_a_node("unmark node")),
    "cordon": (1, _on_a_node("cordon", off=(True, None))),
    "delete node": (1, lambda rng, pod: Call("delete node", "x" if pod == "a" else "y")),
}

LEASE_WRITES = ("create", "renew", "renew", "renew", "old version", "no version", "of another name", "delete")

# Calls that are added to each sequence.
_MORE: Mapping[str, Callable[[random.Random], Call]] = {
    "lease": lambda rng: Call(
        "lease", "lease", {"how": rng.choice(LEASE_WRITES), "holder": rng.choice(("a", "b", None))}
    ),
    "watch again": lambda rng: Call("watch again", rng.choice("aab"), {"since": rng.choice(("start", "now", "last"))}),
    "list in pages": lambda rng: Call("list in pages", "", {"limit": rng.choice((7, 40)), **rng.choice(SELECTIONS)}),
    "read namespace": lambda rng: Call("read namespace", rng.choice(("own", "none"))),
    "read claims": lambda rng: Call("read claims", "claim"),
    "create claim": lambda rng: Call("create claim", "claim"),
    "select node": lambda rng: Call("select node", "claim", {"node": rng.choice(PLACES)}),
}


# --- playing them ---------------------------------------------------------------------------------------------------


class Player:
    """One sequence on one cluster.  prefix: of the names of its objects, which no other play has."""

    def __init__(self, kube: Kube, prefix: str) -> None:
        self.kube = kube
        self.client: KubeClient = kube.new_client()
        self._prefix = prefix
        self._uids: dict[str, list[str]] = {}
        self.versions: dict[str, str] = {}  # at which a watch may begin again
        self.lease: dict[str, Any] | None = None  # as it was last written

    async def play(self, calls: Sequence[Call]) -> list[Any]:
        """The answers."""
        self.versions = dict.fromkeys(("start", "last"), await self.version())
        return [await _PLAYED[call.verb](self, call) for call in calls]

    async def version(self) -> str:
        """The version of a list now."""
        asked = transport.Call("GET", _pods(self), params={"limit": "1"}, deadline_s=30)
        return str(json.loads((await self.kube.transport.exchange(asked)).body)["metadata"]["resourceVersion"])

    # --- names

    def name(self, of: str) -> str:
        """The object's name on the cluster."""
        return f"{self._prefix}-{of}"

    def uid(self, call: Call) -> str:
        """The uid that the call names: of the object now, or of one before it."""
        known = self._uids.get(call.of, [])
        if call.arguments.get("uid") == "former":
            return known[-2] if len(known) > 1 else ANOTHER
        return known[-1] if known else ANOTHER

    def remember(self, of: str, status: int, made: Any) -> tuple[int, str]:
        """What was answered to the request that makes it."""
        if status == 201:
            self._uids.setdefault(of, []).append(made["metadata"]["uid"])
        return _verdict(status, made)

    def is_mine(self, name: str) -> bool:
        return name.startswith(f"{self._prefix}-")

    # --- what is seen

    def shown(self, pod: Pod) -> dict[str, Any]:
        """The fields of the pod that two clusters have alike.

        Its uid is shown as its number among the pods of that name, and a time as True if the pod has it.
        """
        fields = {each.name: getattr(pod, each.name) for each in dataclasses.fields(pod) if each.compare}
        of = pod.name.removeprefix(f"{self._prefix}-")
        fields |= {time: getattr(pod, time) is not None for time in TIMES}
        return compared(fields | {"name": of, "uid": self._which(of, pod.uid)}, NOT_COMPARED)

    def _which(self, of: str, uid: str) -> int:
        return self._uids.get(of, []).index(uid)

    def shown_raw(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        """The pod with what the bridge does not decode of it."""
        meta, status = thing["metadata"], thing["status"]
        conditions = [_words(each) for each in status.get("conditions") or ()]
        kept = {"finalizers": meta.get("finalizers") or [], "grace": meta.get("deletionGracePeriodSeconds")}
        return self.shown(codec.PODS.one(encode(thing))) | kept | {"conditions": sorted(conditions)}

    def shown_node(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        """The node; without the taints of Kubernetes' own node controllers, which write when they like."""
        node: Node = codec.NODES.one(encode(thing))
        fields = {each.name: getattr(node, each.name) for each in dataclasses.fields(node)}
        taints = sorted(f"{taint.key}={taint.value}:{taint.effect}" for taint in node.taints)
        of = node.name.removeprefix(f"{self._prefix}-")
        labels = {key: value for key, value in node.labels.items() if not key.startswith("beta.")}
        return fields | {
            "name": of,
            "uid": self._which(of, node.uid),
            "labels": labels,
            "taints": [taint for taint in taints if not taint.startswith("node.kubernetes.io/")],
        }

    def shown_event(self, seen: PodSeen | PodDeleted) -> dict[str, Any]:
        """An event of a watch."""
        return {"event": type(seen).__name__, "scope": str(seen.scope)} | self.shown(seen.pod)

    def end(self, pods: Sequence[Any], nodes: Sequence[Any], events: Sequence[Any]) -> dict[str, Any]:
        """What is left of the sequence, of all that is there."""
        mine = [thing for thing in (*pods, *nodes) if self.is_mine(thing["metadata"]["name"])]
        left = {
            thing["metadata"]["name"].removeprefix(f"{self._prefix}-"): (
                self.shown_raw(thing) if "containers" in thing["spec"] else self.shown_node(thing)
            )
            for thing in mine
        }
        said = [
            (each["involvedObject"]["name"].removeprefix(self._prefix), *map(each.get, _OF_AN_EVENT))
            for each in events
            if self.is_mine(each["involvedObject"]["name"]) and each["source"].get("component") == self.client.component
        ]
        return left | {"events": sorted(said)}


_OF_AN_EVENT = ("reason", "type", "message", "count")


def _words(condition: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(condition.get(key) or "" for key in ("type", "status", "reason", "message"))


def _verdict(status: int, body: Any) -> tuple[int, str]:
    return status, "" if status < 400 else str(body.get("reason", ""))


async def _create(player: Player, call: Call) -> Any:
    metadata, spec = KINDS[call.arguments["kind"]]
    return player.remember(call.of, *await player.kube.raw("POST", _pods(player), _new(player, call, metadata, spec)))


def _new(player: Player, call: Call, metadata: Manifest, spec: Manifest) -> dict[str, Any]:
    return {
        "metadata": {"name": player.name(call.of), **metadata},
        "spec": {"schedulerName": player.kube.scheduler, "containers": [_CONTAINER], **spec},
    }


async def _bind(player: Player, call: Call) -> Any:
    node, job = call.arguments["node"], call.arguments["job"]
    annotations = {names.JOB_ID: job, names.JOB_NODES: node}
    namespace, name = player.kube.namespace, player.name(call.of)
    action = BindPod("key", player.uid(call), namespace, name, node, int(job), annotations, "granted")
    return await said(player.client.bind(action))


async def _bind_by_another(player: Player, call: Call) -> Any:
    target = {"apiVersion": "v1", "kind": "Node", "name": call.arguments["node"]}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": player.name(call.of)}, "target": target}
    return _verdict(*await player.kube.raw("POST", f"{_path(player, call)}/binding", binding))


async def _report(player: Player, call: Call) -> Any:
    namespace, name, uid = _pod(player, call)
    action = SetPodCondition("key", uid, namespace, name, call.arguments["reason"], call.arguments["message"])
    return await said(player.client.set_condition(action))


async def _report_running(player: Player, call: Call) -> Any:
    namespace, name, uid = _pod(player, call)
    runs = call.arguments["runs"]
    return await said(
        player.client.set_job_condition(
            SetJobCondition("key", uid, namespace, name, names.SUSPENDED, "Suspended.", runs=runs)
        )
    )


async def _write_annotations(player: Player, call: Call) -> Any:
    annotations = {names.JOB_ID: call.arguments["job"], names.JOB_GPUS: call.arguments["gpus"]}
    return await said(player.client.write_annotations(*_pod(player, call), annotations))


async def _set_deadline(player: Player, call: Call) -> Any:
    namespace, name, uid = _pod(player, call)
    action = SetDeadline("key", uid, namespace, name, call.arguments["seconds"], "the time limit is near")
    return await said(player.client.set_deadline(action))


async def _end_pod(player: Player, call: Call) -> Any:
    namespace, name, uid = _pod(player, call)
    action = FailByDeadline("key", uid, namespace, name, "Slurm job 17 ended", counts=call.arguments["counts"])
    return await said(player.client.fail_by_deadline(action))


async def _delete_pod(player: Player, call: Call) -> Any:
    namespace, name, uid = _pod(player, call)
    action = DeletePod("key", uid, namespace, name, "Slurm cancelled job 17", call.arguments["grace_s"])
    return await said(player.client.delete_pod(action))


async def _evict(player: Player, call: Call) -> Any:
    namespace, name, uid = _pod(player, call)
    return await said(player.client.evict(EvictPod("key", uid, namespace, name, "the time limit is near")))


async def _delete(player: Player, call: Call) -> Any:
    options: dict[str, Any] = {"preconditions": {"uid": player.uid(call)}} if call.arguments["checked"] else {}
    if call.arguments["grace_s"] is not None:
        options["gracePeriodSeconds"] = call.arguments["grace_s"]
    return _verdict(*await player.kube.raw("DELETE", _path(player, call), options))


async def _read_pod(player: Player, call: Call) -> Any:
    return await said(
        player.client.read_pod(player.kube.namespace, player.name(call.of)),
        lambda pod: None if pod is None else player.shown(pod),
    )


async def _change(player: Player, call: Call) -> Any:
    return _verdict(*await player.kube.raw("PATCH", _path(player, call), CHANGES[call.arguments["what"]], MERGE))


async def _change_strategically(player: Player, call: Call) -> Any:
    patch = STRATEGIC_CHANGES[call.arguments["what"]]
    return _verdict(*await player.kube.raw("PATCH", _path(player, call), patch, STRATEGIC))


async def _change_by_operations(player: Player, call: Call) -> Any:
    operations: Any = JSON_CHANGES[call.arguments["what"]]
    return _verdict(*await player.kube.raw("PATCH", _path(player, call), operations, "application/json-patch+json"))


async def _replace(player: Player, call: Call) -> Any:
    """As `kubectl replace` does: what was read, with one change."""
    status, thing = await player.kube.raw("GET", _path(player, call))
    if status != 200:
        return _verdict(status, thing)
    if call.arguments["what"] == "label":
        thing["metadata"]["labels"] = {"team": "f"}
    elif call.arguments["what"] == "old version":
        thing["metadata"] |= {"resourceVersion": "1", "labels": {"team": "f"}}
    elif call.arguments["what"] == "node":
        thing["spec"]["nodeName"] = PLACES[1]
    return _verdict(*await player.kube.raw("PUT", _path(player, call), thing))


async def _try(player: Player, call: Call) -> Any:
    """A dry run."""
    path = f"{_path(player, call)}?dryRun=All"
    if call.arguments["what"] == "create":
        path = f"{_pods(player)}?dryRun=All"
        return _verdict(*await _asked(player, "POST", path, _new(player, call, {}, {})))
    if call.arguments["what"] == "label":
        return _verdict(*await _asked(player, "PATCH", path, CHANGES["label"]))
    return _verdict(*await _asked(player, "DELETE", path, {}))


async def _asked(player: Player, method: str, target: str, body: Manifest) -> tuple[int, Any]:
    path, _, query = target.partition("?")
    params = dict(part.split("=") for part in query.split("&"))
    kind = MERGE if method == "PATCH" else "application/json"
    asked = transport.Call(method, path, params=params, body=encode(body), content_type=kind, deadline_s=30)
    reply = await player.kube.transport.exchange(asked)
    return reply.status, json.loads(reply.body)


async def _kubelet(player: Player, call: Call) -> Any:
    status = {"status": STATUSES[call.arguments["status"]]}
    return _verdict(*await player.kube.raw("PATCH", f"{_path(player, call)}/status", status, STRATEGIC))


async def _list(player: Player, call: Call) -> Any:
    asked = transport.Call("GET", _pods(player), params=call.arguments, deadline_s=30)
    reply = await player.kube.transport.exchange(asked)
    body = json.loads(reply.body)
    found = [thing["metadata"]["name"] for thing in body.get("items", ())]
    return *_verdict(reply.status, body), [name.removeprefix(player.name("")) for name in found if player.is_mine(name)]


async def _list_in_pages(player: Player, call: Call) -> Any:
    """The names in all pages; how many pages there are depends on the other sequences."""
    params = {**call.arguments, "limit": str(call.arguments["limit"])}
    found: list[str] = []
    while True:
        reply = await player.kube.transport.exchange(transport.Call("GET", _pods(player), params=params, deadline_s=30))
        body = json.loads(reply.body)
        found += [thing["metadata"]["name"] for thing in body.get("items", ())]
        token = body.get("metadata", {}).get("continue")
        if not token:
            return *_verdict(reply.status, body), [
                name.removeprefix(player.name("")) for name in found if player.is_mine(name)
            ]
        params["continue"] = token


async def _watch_again(player: Player, call: Call) -> Any:
    """The events of one pod since a version: since the sequence began, since such a watch before, or from now on."""
    now = await player.version()
    version = now if call.arguments["since"] == "now" else player.versions[call.arguments["since"]]
    player.versions["last"] = now
    params = {
        "fieldSelector": f"metadata.name={player.name(call.of)}",
        "resourceVersion": version,
        "timeoutSeconds": "1",
        "watch": "true",
    }
    events: list[Any] = []
    async with player.kube.transport.stream(_pods(player), params=params, stall_s=10) as lines:
        async for line in lines:
            event = json.loads(line)
            shown = event["type"], player.shown_raw(event["object"])
            if shown[1]["phase"] != "not compared" or shown not in events[-1:]:
                events.append(shown)
    return events


async def _lease(player: Player, call: Call) -> Any:
    """A write of a Lease as a replica sends it."""
    how, holder = call.arguments["how"], call.arguments["holder"]
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{player.kube.namespace}/leases"
    name = player.name("lease")
    if how == "delete":
        return _verdict(*await player.kube.raw("DELETE", f"{leases}/{name}"))
    before = player.lease or {"metadata": {"name": name}, "spec": {"leaseTransitions": 0}}
    spec = {
        **before["spec"],
        "holderIdentity": holder,
        "leaseDurationSeconds": 5,
        "renewTime": "2026-11-21T05:00:00.000000Z",
    }
    if holder is None:
        del spec["holderIdentity"]
    metadata = {**before["metadata"], "annotations": {"example.com/process": holder or "none"}}
    if how in ("create", "no version"):
        metadata.pop("resourceVersion", None)
    if how == "create":
        metadata.pop("uid", None)
    if how == "old version":
        metadata["resourceVersion"] = "1"
    if how == "of another name":
        metadata["name"] = player.name("another")
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    method, path = ("POST", leases) if how == "create" else ("PUT", f"{leases}/{name}")
    status, written = await player.kube.raw(method, path, body)
    if status >= 400:
        return _verdict(status, written)
    same = written["metadata"]["resourceVersion"] == before["metadata"].get("resourceVersion")
    player.lease = written
    return status, same, written["spec"], written["metadata"]["annotations"]


async def _read_namespace(player: Player, call: Call) -> Any:
    name = player.kube.namespace if call.of == "own" else player.name("none")
    return await said(player.client.namespace(name), lambda found: found is not None)


async def _create_claim(player: Player, call: Call) -> Any:
    """A claim that no class provides for, so it stays as it is."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    path = f"/api/v1/namespaces/{player.kube.namespace}/persistentvolumeclaims"
    return _verdict(*await player.kube.raw("POST", path, {"metadata": {"name": player.name(call.of)}, "spec": spec}))


async def _read_claims(player: Player, call: Call) -> Any:
    asked = player.client.read_claims(player.kube.namespace, [player.name(call.of)])
    return await said(asked, lambda claims: [str(claim).replace(player.name(""), "") for claim in claims])


async def _select_node(player: Player, call: Call) -> Any:
    asked = player.client.select_node(player.kube.namespace, player.name(call.of), call.arguments["node"])
    return await said(asked)


async def _event(player: Player, call: Call) -> Any:
    at, message = time.time(), call.arguments["message"]
    asked = player.client.post_event(*_pod(player, call), "Told", message, at, warning=call.arguments["warning"])
    return await said(asked)


async def _create_node(player: Player, call: Call) -> Any:
    """A node with a taint of somebody else, which is ready."""
    taint = {"key": "example.com/maintenance", "value": "soon", "effect": "PreferNoSchedule"}
    thing = {
        "metadata": {"name": player.name(call.of), "annotations": {names.PARTITIONS: "gpu"}},
        "spec": {"taints": [taint]},
        "status": {"addresses": [{"type": "InternalIP", "address": "198.51.100.7"}]},
    }
    made = player.remember(call.of, *await player.kube.raw("POST", "/api/v1/nodes", thing))
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-11-21T05:00:00Z"}
    patch = {"status": {"conditions": [ready]}}
    return made, _verdict(*await player.kube.raw("PATCH", f"{_node(player, call)}/status", patch, STRATEGIC))


async def _show_node(player: Player, call: Call) -> Any:
    status, turns = call.arguments["status"], call.arguments["turns"]
    action = SetNodeCondition(
        player.name(call.of), player.uid(call), status, "SlurmNodeDrained", "Drained.", turns=turns
    )
    return await said(player.client.set_node_condition(action))


async def _taint_node(player: Player, call: Call) -> Any:
    return await _retried(player.client.taint_node, player.name(call.of), player.uid(call), player)


async def _unmark_node(player: Player, call: Call) -> Any:
    return await _retried(player.client.unmark_node, player.name(call.of), player.uid(call), player)


async def _retried(write: Callable[[str, str], Awaitable[None]], node: str, uid: str, player: Player) -> Any:
    """Node controllers write on a new node, too, so that a first write may conflict; another uid is one always."""
    for _ in range(10):
        answer = await said(write(node, uid))
        if answer is None or answer[0] != "Conflict":
            break
    return answer


async def _cordon(player: Player, call: Call) -> Any:
    patch = {"spec": {"unschedulable": call.arguments["off"]}}
    return _verdict(*await player.kube.raw("PATCH", _node(player, call), patch, MERGE))


async def _delete_node(player: Player, call: Call) -> Any:
    return _verdict(*await player.kube.raw("DELETE", _node(player, call)))


def _pods(player: Player) -> str:
    return f"/api/v1/namespaces/{player.kube.namespace}/pods"


def _path(player: Player, call: Call) -> str:
    return player.kube.path(player.name(call.of))


def _node(player: Player, call: Call) -> str:
    return f"/api/v1/nodes/{player.name(call.of)}"


def _pod(player: Player, call: Call) -> tuple[str, str, str]:
    return player.kube.namespace, player.name(call.of), player.uid(call)


_PLAYED: Mapping[str, Callable[[Player, Call], Awaitable[Any]]] = {
    "create": _create,
    "bind": _bind,
    "bind by another": _bind_by_another,
    "report": _report,
    "report running": _report_running,
    "write annotations": _write_annotations,
    "set deadline": _set_deadline,
    "end pod": _end_pod,
    "delete pod": _delete_pod,
    "evict": _evict,
    "delete": _delete,
    "read pod": _read_pod,
    "change": _change,
    "change strategically": _change_strategically,
    "change by operations": _change_by_operations,
    "replace": _replace,
    "try": _try,
    "kubelet": _kubelet,
    "list": _list,
    "event": _event,
    "create node": _create_node,
    "show node": _show_node,
    "taint node": _taint_node,
    "unmark node": _unmark_node,
    "cordon": _cordon,
    "delete node": _delete_node,
    "lease": _lease,
    "watch again": _watch_again,
    "list in pages": _list_in_pages,
    "read namespace": _read_namespace,
    "create claim": _create_claim,
    "read claims": _read_claims,
    "select node": _select_node,
}


AT_ONCE = 8


async def play(kube: Kube, sequences: Mapping[str, Sequence[Call]]) -> dict[str, Transcript]:
    """What the cluster said to each sequence, by the prefix of its names; several are played at a time."""
    players = {prefix: Player(kube, prefix) for prefix in sequences}
    turns = asyncio.Semaphore(AT_ONCE)

    async def answers(prefix: str) -> list[Any]:
        async with turns:
            return await players[prefix].play(sequences[prefix])

    watches = {our_pods: Seen(), other_pods: Seen()}
    async with AsyncExitStack() as stack:
        for resource in watches:
            watches[resource] = await stack.enter_async_context(kube.watching(resource(kube.scheduler)))
        said = await asyncio.gather(*map(answers, players))
        everything = [(await kube.raw("GET", path))[1]["items"] for path in _everything(kube)]
        await _until_watched(kube, watches.values())
    await _clear(kube, *everything[:2])
    changes = [event for seen in watches.values() for event in seen.events if isinstance(event, PodSeen | PodDeleted)]
    watched: dict[str, list[Any]] = {prefix: [] for prefix in players}
    for event in changes:
        prefix, _, of = event.pod.name.rpartition("-")
        if event.pod.namespace == kube.namespace and of in PODS and prefix in watched:
            shown = players[prefix].shown_event(event)
            if shown["phase"] != "not compared" or shown not in watched[prefix][-1:]:
                watched[prefix].append(shown)
    return {
        prefix: Transcript(answered, players[prefix].end(*everything), watched[prefix])
        for prefix, answered in zip(players, said, strict=True)
    }


def _everything(kube: Kube) -> tuple[str, ...]:
    namespace = f"/api/v1/namespaces/{kube.namespace}"
    return f"{namespace}/pods", "/api/v1/nodes", f"{namespace}/events"


async def _clear(kube: Kube, pods: Sequence[Any], nodes: Sequence[Any]) -> None:
    """What would outlive the namespace, or hold it."""
    for pod in pods:
        if pod["metadata"].get("finalizers"):
            await kube.raw("PATCH", kube.path(pod["metadata"]["name"]), CHANGES["let go"], MERGE)
    for node in nodes:
        if node["metadata"]["name"].rpartition("-")[2] in NODES:
            await kube.raw("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")


async def _until_watched(kube: Kube, watches: Iterable[Seen]) -> None:
    """Wait until both watches have shown all earlier events: a last pod for each marks the end."""
    mark = f"mark-{secrets.token_hex(4)}"
    await kube.pod(f"{mark}-ours")
    await kube.pod(f"{mark}-other", schedulerName="another", nodeName=PLACES[0])
    for seen in watches:
        await seen.until(
            lambda events: any(isinstance(e, PodSeen) and e.pod.name.startswith(mark) for e in events[-9:])
        )

"""The actors of the simulated cluster: kubelets, controllers, garbage collection.

All are written like controllers: a change marks an object, the actor looks at the state of the object when its time has come,
and makes the next change that the state lacks.  So nothing here depends on the order of events, and an actor that was down
goes on from the present state.

    kubelet      starts a bound pod (or fails it if it does not fit, as a real one does), ends it when its run time,
                 its deadline or its deletion has come, then removes a deleted pod
    replica set  keeps the wanted number of pods; pods that have ended or are being deleted do not count
    deployment   keeps a replica set of its present template, and scales the sets of earlier templates to 0 once it is ready
    batch job    keeps `parallelism` pods until `completions` have succeeded or too many have failed
    garbage      deletes pods whose controller or node is gone, finished namespaces, events older than an hour
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Protocol

import msgspec

from bridge.simulation.kube.objects import (
    EXIT_CODE,
    RUN_S,
    START_S,
    STOP_S,
    WAITS,
    Object,
    condition,
    epoch,
    host_ports,
    rfc3339,
    with_condition,
)
from bridge.simulation.kube.store import Store
from scheduler.model.quantity import amount
from scheduler.place.host_ports import ports_conflict

ENDED = ("Succeeded", "Failed")
REVISION = "deployment.kubernetes.io/revision"
RECONCILE_S = 0.05
ORPHAN_S = 40.0  # a pod bound to a node that does not exist is collected after this
NOT_READY_S = 40.0  # after a kubelet's last word its node is NotReady; a flag of kube-controller-manager
EVENT_TTL_S = 3600.0
KEPT_EVENTS = 2000
SIGTERM, SIGKILL = 143, 137
SOME_S = 15.0  # of a program that is not really run
# As sleep(1) takes it: "sleep 5", "sleep 0.5m", "sleep infinity".
_NAP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?|inf(?:inity)?)([smhd]?)(?![\w.])")
_NAP_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Verbs(Protocol):
    """The interface of the cluster for its actors (KubeCluster)."""

    store: Store
    rng: Random

    def create(self, now: float, resource: str, thing: Object) -> Object: ...

    def write_status(self, resource: str, thing: Object, status: Object) -> Object: ...

    def remove(self, now: float, resource: str, thing: Object, grace_s: int | None = None) -> Object: ...


class Actors:
    """Everything in the cluster that acts by itself.  At a due time an actor only looks at its object."""

    def __init__(self, cluster: Verbs) -> None:
        self._cluster = cluster
        self._seen = cluster.store.version
        self._due: list[tuple[float, int, str, str, str]] = []  # (when, order, resource, namespace, name)
        self._order = 0
        self._ends: dict[str, float] = {}  # uid of a running pod -> when its containers end by themselves
        self._stops: dict[str, float] = {}  # uid of a pod that got a TERM -> when its containers are gone
        self._starts: dict[str, float] = {}  # uid of a bound pod -> when its kubelet starts it
        self.not_ready_s = NOT_READY_S
        self._silent: dict[str, float] = {}  # node -> since when its kubelet is down

    @property
    def silent(self) -> frozenset[str]:
        """Nodes whose kubelet is down."""
        return frozenset(self._silent)

    def stop_kubelet(self, now: float, node: str) -> None:
        """The node dies, or its network does: nothing starts or ends there, and later it is NotReady."""
        self._silent[node] = now
        self._remind(now + self.not_ready_s, "nodes", "", node)

    def start_kubelet(self, now: float, node: str) -> None:
        """Start the kubelet, which then looks at all of its pods."""
        self._silent.pop(node, None)
        self._remind(now, "nodes", "", node)
        for pod in self._pods(lambda pod: pod["spec"].get("nodeName") == node):
            self._remind_of(now, "pods", pod)

    def next_due(self) -> float | None:
        """When `act` has something to do; 0: at once."""
        if self._cluster.store.version > self._seen:
            return 0.0
        return self._due[0][0] if self._due else None

    def act(self, now: float) -> None:
        """Do all that is due."""
        self._notice(now)
        while self._due and self._due[0][0] <= now:
            _when, _order, resource, namespace, name = heapq.heappop(self._due)
            thing = self._cluster.store.get(resource, namespace, name)
            if thing is not None:
                _ACTORS[resource](self, now, thing)
            self._notice(now)

    # --- noticing ---

    def _notice(self, now: float) -> None:
        """Mark what the changes since the last time concern."""
        changes = self._cluster.store.changed_since(self._seen)
        self._seen = self._cluster.store.version
        for change in changes:
            thing = change.last.object
            if change.resource == "pods":
                if change.after:
                    self._remind_of(now, "pods", thing)
                else:
                    self._forget(thing["metadata"]["uid"])
                self._remind_owner(now, thing)
                self._remind_namespace(now, thing)
            elif change.resource in ("replicasets", "jobs", "deployments"):
                if change.after:
                    self._remind_of(now + RECONCILE_S, change.resource, thing)
                else:
                    self._orphan(now, thing["metadata"]["uid"])
                self._remind_owner(now, thing)
            elif change.resource == "events" and change.after and change.before is None:
                self._remind_of(now + EVENT_TTL_S, "events", thing)
                self._bound_events()

    def _remind(self, when: float, resource: str, namespace: str, name: str) -> None:
        self._order += 1
        heapq.heappush(self._due, (when, self._order, resource, namespace, name))

    def _remind_of(self, when: float, resource: str, thing: Object) -> None:
        self._remind(when, resource, thing["metadata"].get("namespace", ""), thing["metadata"]["name"])

    def _remind_owner(self, now: float, thing: Object) -> None:
        for owner in thing["metadata"].get("ownerReferences") or []:
            resource = {"ReplicaSet": "replicasets", "Job": "jobs", "Deployment": "deployments"}.get(owner["kind"])
            if resource:
                self._remind(now + RECONCILE_S, resource, thing["metadata"]["namespace"], owner["name"])

    def _remind_namespace(self, now: float, pod: Object) -> None:
        found = self._cluster.store.get("namespaces", "", pod["metadata"]["namespace"])
        if found and found["status"].get("phase") == "Terminating":
            self._remind(now, "namespaces", "", found["metadata"]["name"])

    def _forget(self, uid: str) -> None:
        for times in (self._ends, self._stops, self._starts):
            times.pop(uid, None)

    def _pods(self, which: Callable[[Object], bool]) -> list[Object]:
        return [pod for pod in self._cluster.store.unordered("pods") if which(pod)]

    # --- the kubelet ---

    def _kubelet(self, now: float, pod: Object) -> None:
        """The next thing that this pod lacks."""
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if not node or node in self._silent:
            return
        if self._cluster.store.get("nodes", "", node) is None:
            self._collect_orphan(now, pod)
        elif pod["metadata"].get("deletionTimestamp"):
            self._end_deleted(now, pod)
        elif pod["status"]["phase"] in ENDED:
            self._forget(uid)
        elif pod["status"]["phase"] == "Pending":
            self._start(now, pod)
        else:
            self._watch_running(now, pod)

    def _start(self, now: float, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._starts:
            self._starts[uid] = now + _seconds(pod, START_S, self._cluster.rng.uniform(0.1, 0.5))
        if now < self._starts[uid]:
            self._remind_of(self._starts[uid], "pods", pod)
            return
        if lacking := self._lacking(pod):
            status = {**pod["status"], "phase": "Failed", "reason": lacking, "message": "Pod was rejected"}
            self._cluster.write_status("pods", pod, status)
            return
        if reason := (pod["metadata"].get("annotations") or {}).get(WAITS):
            self._wait(now, pod, reason)
            return
        self._ends[uid] = now + _runs_s(pod)
        running = {**pod["status"], "phase": "Running", "startTime": rfc3339(now)}
        running["containerStatuses"] = [
            {
                "name": container["name"],
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": rfc3339(now)}},
            }
            for container in pod["spec"]["containers"]
        ]
        self._cluster.store.put(
            "pods", with_condition({**pod, "status": running}, condition("Ready", "True", "", "", now))
        )

    def _wait(self, now: float, pod: Object, reason: str) -> None:
        """A pod with a container that never starts; the deadline of the pod still counts."""
        status = pod["status"]
        if "startTime" not in status:
            waiting = [{"name": c["name"], "state": {"waiting": {"reason": reason}}} for c in pod["spec"]["containers"]]
            self._cluster.write_status("pods", pod, {**status, "startTime": rfc3339(now), "containerStatuses": waiting})
            return
        deadline = epoch(status["startTime"]) + pod["spec"].get("activeDeadlineSeconds", float("inf"))
        if deadline <= now:
            failed = {**status, "phase": "Failed", "reason": "DeadlineExceeded"}
            self._forget(pod["metadata"]["uid"])
            self._cluster.write_status("pods", pod, failed)
        elif deadline < float("inf"):
            self._remind_of(deadline, "pods", pod)

    def _lacking(self, pod: Object) -> str:
        """Why a kubelet would refuse it ("OutOfcpu"), else ""."""
        node = self._cluster.store.get("nodes", "", pod["spec"]["nodeName"])
        assert node is not None
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
            return "NodeAffinity"
        here = self._pods(
            lambda other: (
                other["spec"].get("nodeName") == node["metadata"]["name"]
                and other["status"]["phase"] not in ENDED
                and (other is pod or other["metadata"]["uid"] in self._ends)
            )
        )
        for resource, text in node["status"]["allocatable"].items():
            if sum(_asked(other, resource) for other in here) > amount(resource, text, False):
                return f"OutOf{resource}"
        others = [port for other in here if other is not pod for port in host_ports(other)]
        return "NodePorts" if ports_conflict(host_ports(pod), others) else ""

    def _watch_running(self, now: float, pod: Object) -> None:
        """A running pod ends by its deadline or by itself, whichever comes first."""
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        deadline = epoch(pod["status"]["startTime"]) + spec.get("activeDeadlineSeconds", float("inf"))
        # A kubelet that was restarted finds the containers as they are.
        ends = self._ends.setdefault(uid, now + _runs_s(pod))
        if deadline <= now:
            self._stop(now, pod, "DeadlineExceeded")
        elif ends <= now:
            self._ended_by_itself(now, pod)
        elif min(deadline, ends) != float("inf"):
            self._remind_of(min(deadline, ends), "pods", pod)

    def _ended_by_itself(self, now: float, pod: Object) -> None:
        code, policy = int(_seconds(pod, EXIT_CODE, 0)), pod["spec"]["restartPolicy"]
        if policy == "Never" or (policy == "OnFailure" and code == 0):
            self._end(now, pod, code)
            return
        self._ends[pod["metadata"]["uid"]] = now + max(1.0, _runs_s(pod))
        containers = [{**c, "restartCount": c["restartCount"] + 1} for c in pod["status"]["containerStatuses"]]
        self._cluster.write_status("pods", pod, {**pod["status"], "containerStatuses": containers})

    def _end_deleted(self, now: float, pod: Object) -> None:
        if pod["status"]["phase"] not in ENDED and not self._stop(now, pod, ""):
            return
        left = self._cluster.store.get("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        if left is not None:
            self._cluster.remove(now, "pods", left, 0)

    def _stop(self, now: float, pod: Object, reason: str) -> bool:
        """Send TERM, then wait until the containers end or their grace is over.  True when they are gone."""
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        grace = meta.get("deletionGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
        grace = 1 if grace < 0 else grace
        takes = _seconds(pod, STOP_S, 0.3) if uid in self._ends else 0.0
        # A grace that is shortened meanwhile counts from the first TERM.
        begun = self._stops.setdefault(uid, now)
        gone = begun + min(takes, float(grace))
        if now < gone:
            self._remind_of(gone, "pods", pod)
            return False
        self._end(now, pod, SIGKILL if takes >= grace else SIGTERM, reason)
        return True

    def _end(self, now: float, pod: Object, code: int, reason: str = "") -> None:
        """All containers ended: write that to the pod."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": rfc3339(now)}
        containers = [
            {"name": c["name"], "ready": False, "restartCount": 0, "state": {"terminated": ended}}
            for c in pod["spec"]["containers"]
        ]
        for each, before in zip(containers, pod["status"].get("containerStatuses") or (), strict=False):
            if began := before.get("state", {}).get("running", {}).get("startedAt"):
                each["state"] = {"terminated": {**ended, "startedAt": began}}
        status = {**pod["status"], "phase": "Failed" if code else "Succeeded", "containerStatuses": containers}
        if reason:
            status["reason"] = reason
        self._forget(pod["metadata"]["uid"])
        done = with_condition({**pod, "status": status}, condition("Ready", "False", "PodFailed", "it ended", now))
        self._cluster.store.put("pods", done)

    def _collect_orphan(self, now: float, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        since = self._starts.setdefault(uid, now)
        if now < since + ORPHAN_S:
            self._remind_of(since + ORPHAN_S, "pods", pod)
            return
        self._cluster.remove(now, "pods", pod, 0)

    # --- nodes ---

    def _node(self, now: float, node: Object) -> None:
        """Write the Ready condition of the node; it depends on its kubelet."""
        since = self._silent.get(node["metadata"]["name"])
        lost = since is not None and now >= since + self.not_ready_s
        said = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        ready = condition("Ready", *(said if lost else ("True", "KubeletReady", "simulated")), now)
        written = with_condition(node, ready)
        if written["status"]["conditions"][-1] not in node["status"]["conditions"]:
            self._cluster.store.put("nodes", written)

    # --- controllers ---

    def _replica_set(self, now: float, controller: Object) -> None:
        active = self._active(controller)
        for _ in range(controller["spec"].get("replicas", 1) - len(active)):
            self._create_pod(now, controller)
        for pod in active[controller["spec"].get("replicas", 1) :]:
            self._cluster.remove(now, "pods", pod)
        active = self._active(controller)
        ready = sum(_is_ready(pod) for pod in active)
        status = _replica_status(controller, len(active), ready)
        if controller.get("status") != status:
            self._cluster.write_status("replicasets", controller, status)

    def _deployment(self, now: float, controller: Object) -> None:
        """A rolling update: the pods of earlier templates stay until the pods of the present template are ready."""
        wanted = controller["spec"].get("replicas", 1)
        made = _replica_set_of(controller)
        name = made["metadata"]["name"]
        sets = list(self._of(controller, "replicasets"))
        earlier = [each for each in sets if each["metadata"]["name"] != name]
        present = next((each for each in sets if each not in earlier), None)
        present = self._scale(present or self._cluster.create(now, "replicasets", made), wanted)
        newest = max((_revision(each) for each in earlier), default=0)
        if _revision(present) <= newest:
            present = self._cluster.store.put("replicasets", _with_revision(present, newest + 1))
        has = present.get("status") or {}
        rolls = controller["spec"].get("strategy", {}).get("type") != "Recreate"
        if has.get("readyReplicas", 0) >= wanted or not rolls:
            earlier = [self._scale(each, 0) for each in earlier]
        self._report(now, controller, [present, *earlier])

    def _scale(self, replica_set: Object, replicas: int) -> Object:
        if replica_set["spec"].get("replicas") == replicas:
            return replica_set
        return self._cluster.store.put(
            "replicasets", {**replica_set, "spec": {**replica_set["spec"], "replicas": replicas}}
        )

    def _report(self, now: float, deployment: Object, sets: list[Object]) -> None:
        """Write the status of a Deployment.  sets: that of the present template is the first."""
        statuses = [each.get("status") or {} for each in sets]
        replicas, ready = (sum(each.get(f, 0) for each in statuses) for f in ("replicas", "readyReplicas"))
        status = {**(deployment.get("status") or {}), **_replica_status(deployment, replicas, ready)}
        status["updatedReplicas"] = statuses[0].get("replicas", 0)
        enough = ready >= deployment["spec"].get("replicas", 1)
        said = ("True", "MinimumReplicasAvailable") if enough else ("False", "MinimumReplicasUnavailable")
        after = with_condition({**deployment, "status": status}, condition("Available", *said, "", now))
        after = _with_revision(after, _revision(sets[0]))
        if after != deployment:
            self._cluster.store.put("deployments", after)

    def _job(self, now: float, controller: Object) -> None:
        spec = controller["spec"]
        if (controller.get("status") or {}).get("conditions"):
            return  # complete, or failed: for good
        pods = list(self._of(controller))
        succeeded = [pod for pod in pods if pod["status"]["phase"] == "Succeeded"]
        failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
        active, completions = self._active(controller), spec.get("completions", 1)
        begun = (controller.get("status") or {}).get("startTime") or rfc3339(now)
        counts = {"startTime": begun, "succeeded": len(succeeded), "failed": len(failed)}
        if len(succeeded) >= completions:
            self._finish_job(now, {**controller, "status": counts}, active, ("Complete", "CompletionsReached"))
        elif len(failed) > spec.get("backoffLimit", 6):
            self._finish_job(now, {**controller, "status": counts}, active, ("Failed", "BackoffLimitExceeded"))
        else:
            taken = {_index(pod) for pod in (*succeeded, *active)}
            free = (index for index in range(completions) if index not in taken)
            wanted = min(spec.get("parallelism", 1), completions - len(succeeded)) - len(active)
            for _ in range(wanted):
                self._create_pod(now, controller, next(free) if spec.get("completionMode") == "Indexed" else None)
            status = {"active": len(self._active(controller)), **counts}
            if controller.get("status") != status:
                self._cluster.write_status("jobs", controller, status)

    def _finish_job(self, now: float, controller: Object, active: list[Object], end: tuple[str, str]) -> None:
        for pod in active:
            self._cluster.remove(now, "pods", pod)
        if end[0] == "Complete":
            controller["status"]["completionTime"] = rfc3339(now)
        said = condition(end[0], "True", end[1], end[1], now)
        self._cluster.store.put("jobs", with_condition(controller, said))

    def _of(self, controller: Object, resource: str = "pods") -> Iterator[Object]:
        uid, namespace = controller["metadata"]["uid"], controller["metadata"]["namespace"]
        for thing in self._cluster.store.unordered(resource):
            owners = thing["metadata"].get("ownerReferences") or []
            if thing["metadata"]["namespace"] == namespace and any(owner["uid"] == uid for owner in owners):
                yield thing

    def _active(self, controller: Object) -> list[Object]:
        return [
            pod
            for pod in self._of(controller)
            if pod["status"]["phase"] not in ENDED and not pod["metadata"].get("deletionTimestamp")
        ]

    def _create_pod(self, now: float, controller: Object, index: int | None = None) -> None:
        template, meta = controller["spec"]["template"], controller["metadata"]
        given = template.get("metadata") or {}
        annotations, labels = dict(given.get("annotations") or {}), dict(given.get("labels") or {})
        middle = "-"
        if index is not None:
            annotations[_INDEX] = labels[_INDEX] = str(index)
            middle = f"-{index}-"
        made = {
            "metadata": {
                "namespace": meta["namespace"],
                "generateName": meta["name"] + middle,
                "annotations": annotations,
                "labels": labels,
                "ownerReferences": [_owner(controller)],
            },
            "spec": template["spec"],
        }
        namespace = self._cluster.store.get("namespaces", "", meta["namespace"])
        if namespace and namespace["status"]["phase"] == "Active":
            self._cluster.create(now, "pods", made)

    # --- garbage ---

    def _orphan(self, now: float, owner_uid: str) -> None:
        """Delete the objects of a controller that is gone."""
        for resource in ("pods", "replicasets"):
            for thing in list(self._cluster.store.unordered(resource)):
                if any(owner["uid"] == owner_uid for owner in thing["metadata"].get("ownerReferences") or []):
                    self._cluster.remove(now, resource, thing)

    def _namespace(self, now: float, namespace: Object) -> None:
        if namespace["status"]["phase"] == "Terminating":
            self._cluster.remove(now, "namespaces", namespace)

    def _event(self, now: float, event: Object) -> None:
        age = now - epoch(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])
        if age >= EVENT_TTL_S:
            self._cluster.store.delete("events", event)
        else:
            self._remind_of(now + EVENT_TTL_S - age, "events", event)

    def _bound_events(self) -> None:
        for event in list(self._cluster.store.unordered("events"))[:-KEPT_EVENTS]:
            self._cluster.store.delete("events", event)


_ACTORS: dict[str, Callable[[Actors, float, Object], None]] = {
    "pods": Actors._kubelet,
    "nodes": Actors._node,
    "replicasets": Actors._replica_set,
    "deployments": Actors._deployment,
    "jobs": Actors._job,
    "namespaces": Actors._namespace,
    "events": Actors._event,
}
_INDEX = "batch.kubernetes.io/job-completion-index"


def _owner(controller: Object) -> Object:
    """The reference by which an object names its controller."""
    meta = controller["metadata"]
    return {
        "apiVersion": controller["apiVersion"],
        "kind": controller["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def _revision(thing: Object) -> int:
    """The number of a template in the history of a Deployment; 0: none was given."""
    return int((thing["metadata"].get("annotations") or {}).get(REVISION, 0))


def _with_revision(thing: Object, revision: int) -> Object:
    meta = thing["metadata"]
    return {**thing, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), REVISION: str(revision)}}}


def _without_empty(value: Any) -> Any:
    """A template as kubectl may send it back: without the fields that hold nothing."""
    if isinstance(value, dict):
        bare = {name: _without_empty(each) for name, each in value.items()}
        return {name: each for name, each in bare.items() if each not in (None, {}, [])}
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


def _replica_set_of(deployment: Object) -> Object:
    """The ReplicaSet of a Deployment's present template; its name follows from the template."""
    meta, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    digest = hashlib.sha256(msgspec.json.encode(_without_empty(template), order="sorted")).hexdigest()[:10]
    given = template.get("metadata") or {}
    labels = {**(given.get("labels") or {}), "pod-template-hash": digest}
    return {
        "metadata": {
            "namespace": meta["namespace"],
            "name": f"{meta['name']}-{digest}",
            "labels": labels,
            "ownerReferences": [_owner(deployment)],
        },
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": {"matchLabels": labels},
            "template": {**template, "metadata": {**given, "labels": labels}},
        },
    }


def _replica_status(controller: Object, replicas: int, ready: int) -> Object:
    generation = controller["metadata"].get("generation", 1)
    return {
        "replicas": replicas,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": generation,
    }


def _is_ready(pod: Object) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or [])


def _index(pod: Object) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(_INDEX)
    return None if text is None else int(text)


def _seconds(pod: Object, annotation: str, default: float) -> float:
    """A number in an annotation of the pod that sets its behaviour."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation)
    return default if text is None else float(text)


def _runs_s(pod: Object) -> float:
    """The time that its containers run, by its annotation, otherwise by its command.

    That is the time of its `sleep`, also in a line of a shell; an unknown program takes a while.  A service, and
    what only its image knows, runs for ever.
    """
    first = pod["spec"]["containers"][0]
    line = " ".join([*(first.get("command") or []), *(first.get("args") or [])])
    naps = _NAP.findall(line)
    if naps:
        taken = sum(float(number) * _NAP_S[unit] for number, unit in naps)
    elif line and pod["spec"].get("restartPolicy") in ("Never", "OnFailure"):
        taken = SOME_S
    else:
        taken = float("inf")
    return _seconds(pod, RUN_S, taken)


def _asked(pod: Object, resource: str) -> int:
    """The sum of the requests of a pod's containers for one resource."""
    if resource == "pods":
        return 1
    requests = (container["resources"].get("requests") or {} for container in pod["spec"]["containers"])
    return sum(amount(resource, str(asked[resource]), True) for asked in requests if resource in asked)

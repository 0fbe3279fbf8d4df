"""The Kubernetes client: each method is one read or one change, and its errors say whether the change took effect.

Every write names the pod's uid, so that it affects only the pod for which it was decided, and no new pod of the same name: a
binding and a patch have the uid in their metadata, a deletion has it as a precondition.  If the pod has another uid, the
answer is a Conflict.

    returns                 the server confirmed that the change happened, by this call or before
    Refused and subclasses  the change did not happen
    Unreachable             nothing was sent
    Unanswered              the change may have happened, or may still happen; also after a 5xx
    ContractError           as Unanswered, for a write

Answers are judged in responses.py.  Nothing is repeated here, because the scheduler decides when to repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from bridge.errors import (
    BridgeError,
    Conflict,
    ContractError,
    Exhausted,
    Invalid,
    NotFound,
    RemoteError,
    Unanswered,
    Unauthorized,
)
from bridge.kube import codec
from bridge.kube.codec import encode
from bridge.kube.objects import node_terms, topology_terms
from bridge.kube.responses import judged
from bridge.kube.transport import NO_PARAMS, SIDE, Call, Reply, Transport
from bridge.kube.wire import Meta, WireClaim
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
from scheduler.model.kubernetes import Claim, Namespace, Owner, OwnerRef, Pod

DEADLINE_S = 10.0  # shorter than the settle time after an unknown outcome (12 s), which must outlast it
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
FORBIDDEN = 403
EVENTS_REMEMBERED = 4096
NAMESPACE_OF_NODES = "default"  # where Kubernetes wants events about objects without a namespace
EVENT_MESSAGE_MOST = 1024  # the longest message that the API accepts

SELECTED_NODE = "volume.kubernetes.io/selected-node"
ONE_POD = "ReadWriteOncePod"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
# The controllers that are read (W2): API group and kind to version and plural.
OWNERS = {
    ("apps", "ReplicaSet"): ("v1", "replicasets"),
    ("apps", "Deployment"): ("v1", "deployments"),
    ("apps", "StatefulSet"): ("v1", "statefulsets"),
    ("apps", "DaemonSet"): ("v1", "daemonsets"),
    ("batch", "Job"): ("v1", "jobs"),
    ("batch", "CronJob"): ("v1", "cronjobs"),
    ("", "ReplicationController"): ("v1", "replicationcontrollers"),
}
# The same for kinds that not every cluster serves.
MAY_BE_MISSING = {
    ("jobset.x-k8s.io", "JobSet"): ("v1alpha2", "jobsets"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ("v1", "leaderworkersets"),
    ("scheduling.x-k8s.io", "PodGroup"): ("v1alpha1", "podgroups"),
    ("scheduling.k8s.io", "PodGroup"): ("v1alpha2", "podgroups"),
}

_Ending = DeletePod | FailByDeadline | SetDeadline | EvictPod


@dataclass(slots=True)
class KubeClient:
    """The requests of the bridge to one API server.

    component      name of the bridge in events and as field manager
    clock          epoch seconds
    on_call        called for each call: operation, seconds, outcome ("ok" or the error's class in lower case)
    on_forbidden   called for each request that lacked a right (401, 403), with the namespace of its object; "": it has none
    """

    transport: Transport
    component: str
    clock: Callable[[], float]
    on_call: Callable[[str, float, str], None] = lambda _operation, _seconds, _outcome: None
    on_forbidden: Callable[[str], None] = lambda _namespace: None
    _events: OrderedDict[str, int] = field(default_factory=OrderedDict)

    # --- pods ---

    async def bind(self, action: BindPod) -> None:
        """Bind the pod to the node and write the annotations, in one write.

        Returns when the pod is bound to that node, by this call or an earlier one for the same job.  Raises Conflict if
        the pod is bound elsewhere or for another job, has another uid, is gated or is being deleted; NotFound if it is gone.
        The API server does not check that the node exists or that the pod fits; the scheduler did (Kubernetes facts 1).
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": action.name, "uid": action.uid, "annotations": dict(action.annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": action.node},
        }
        path = f"{_pod_path(action.namespace, action.name)}/binding"
        try:
            await self._write("bind", "POST", path, body)
        except Conflict as conflict:
            if not await self._is_bound_as_planned(action):
                raise conflict from None

    async def _is_bound_as_planned(self, action: BindPod) -> bool:
        """After a conflict: True if the pod is bound as this action binds it, so an earlier, unanswered bind took effect."""
        try:
            pod = await self.read_pod(action.namespace, action.name)
        except RemoteError as error:
            raise Unanswered("bind", SIDE, f"a conflict, and the pod could not be read: {error.message}") from None
        if pod is None or pod.uid != action.uid or pod.node != action.node:
            return False
        return pod.annotations.get(names.JOB_ID) == action.annotations.get(names.JOB_ID)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as it is now; None: the API server answers that no such pod exists."""
        try:
            reply = await self._read("read pod", _pod_path(namespace, name))
        except NotFound:
            return None
        return codec.PODS.one(reply.body)

    async def delete_pod(self, action: DeletePod) -> None:
        """Set the condition DisruptionTarget, then delete with the pod's grace, or with `grace_s` if it is given.

        Returns when this incarnation is being deleted or is gone, by this call or another client.
        """
        if not await self._set_disruption_target(action):
            return
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": action.uid},
        }
        if action.grace_s is not None:
            options["gracePeriodSeconds"] = action.grace_s
        async with self._removing_condition_if_refused(action):
            try:
                await self._write("delete pod", "DELETE", _pod_path(action.namespace, action.name), options)
            except (NotFound, Conflict) as refusal:
                await self._raise_unless_gone(refusal, action)

    async def fail_by_deadline(self, action: FailByDeadline) -> None:
        """Have kubelet fail the pod at once (activeDeadlineSeconds 1); the pod's object and its logs stay.

        The condition DisruptionTarget is written first, with the reason.  If the failure `counts`, the condition is not
        written, because controllers do not count the failure of a pod with DisruptionTarget.
        Returns when the deadline is written, or this incarnation is gone.  On a bound pod the deadline can only be lowered.
        """
        if action.counts:
            await self._set_deadline("end pod", action, 1)
        elif await self._set_disruption_target(action):
            async with self._removing_condition_if_refused(action):
                await self._set_deadline("end pod", action, 1)

    async def set_deadline(self, action: SetDeadline) -> None:
        """Have kubelet fail the pod that many seconds after kubelet accepted it (activeDeadlineSeconds, S4b).

        Returns when the deadline is written, or this incarnation is gone.  Raises Invalid if the pod has an earlier deadline.
        """
        await self._set_deadline("set deadline", action, action.seconds)

    async def _set_deadline(self, operation: str, action: FailByDeadline | SetDeadline, seconds: int) -> None:
        body = {"metadata": {"uid": action.uid}, "spec": {"activeDeadlineSeconds": seconds}}
        try:
            await self._patch(operation, _pod_path(action.namespace, action.name), body, MERGE)
        except (NotFound, Conflict) as refusal:
            await self._raise_unless_gone(refusal, action)

    async def evict(self, action: EvictPod) -> None:
        """Delete the pod by the Eviction API, with the pod's grace, unless a PodDisruptionBudget forbids it.

        Returns when this incarnation is being deleted or is gone.  Raises Exhausted if a budget forbids it now.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": action.name, "namespace": action.namespace},
            "deleteOptions": {"preconditions": {"uid": action.uid}},
        }
        try:
            await self._write("evict", "POST", f"{_pod_path(action.namespace, action.name)}/eviction", body)
        except (NotFound, Conflict) as refusal:
            await self._raise_unless_gone(refusal, action)
        except Unanswered as unknown:
            # If another pod has the name now, the API server repeats the eviction for ten seconds by itself.
            try:
                await self._raise_unless_gone(unknown, action)
            except RemoteError:  # the read says nothing about the eviction
                raise unknown from None

    async def set_condition(self, action: SetPodCondition) -> None:
        """Write PodScheduled=False with the reason and message of the action.

        Raises NotFound if the pod is gone; Conflict if it has another uid, or not the resourceVersion of the action any more.
        """
        condition = ("PodScheduled", "False", action.condition, action.message)
        await self._set_condition("report", action.namespace, action.name, action.uid, condition, action.version)

    async def write_annotations(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        """Write these annotations of a pod; None removes one.  Raises as `set_condition`."""
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        await self._patch("write annotations", _pod_path(namespace, name), body, MERGE)

    async def set_job_condition(self, action: SetJobCondition) -> None:
        """Write the condition of bound pods.  Raises as `set_condition`."""
        status = "True" if action.runs else "False"
        condition = (names.RUNNING_CONDITION, status, action.condition, action.message)
        await self._set_condition("report running", action.namespace, action.name, action.uid, condition)

    async def _set_disruption_target(self, action: DeletePod | FailByDeadline) -> bool:
        """Set the condition DisruptionTarget.  Returns False if this incarnation is gone.

        Kubernetes defines this condition as an announcement ("about to be terminated").  Failure policies of Jobs read it
        when the pod ends, which may be milliseconds after the write that ends the pod.  So the condition is written before
        that write (docs/decisions/0004).
        """
        try:
            condition = ("DisruptionTarget", "True", names.ENDED, action.reason)
            await self._set_condition("say disruption", action.namespace, action.name, action.uid, condition)
        except (NotFound, Conflict) as refusal:
            await self._raise_unless_gone(refusal, action)
            return False
        return True

    @contextlib.asynccontextmanager
    async def _removing_condition_if_refused(self, action: DeletePod | FailByDeadline) -> AsyncIterator[None]:
        """Remove the condition DisruptionTarget if the API server refuses, inside the `with`, to end the pod.

        After a conflict, or if the server is busy, the condition stays: the scheduler soon tries to end the pod again.
        """
        try:
            yield
        except (Invalid, Unauthorized):
            with contextlib.suppress(RemoteError):  # otherwise Kubernetes removes the condition after two minutes
                body = {
                    "metadata": {"uid": action.uid},
                    "status": {"conditions": [{"type": "DisruptionTarget", "$patch": "delete"}]},
                }
                path = f"{_pod_path(action.namespace, action.name)}/status"
                await self._patch("take disruption back", path, body, STRATEGIC)
            raise

    async def _raise_unless_gone(self, refusal: NotFound | Conflict | Unanswered, action: _Ending) -> None:
        """Raise *refusal* if the pod of the action still exists.

        A conflict mostly means that another pod has the name now.  It may also mean that other clients repeatedly wrote to
        the same pod first.
        """
        if isinstance(refusal, NotFound):
            return
        pod = await self.read_pod(action.namespace, action.name)
        if pod is not None and pod.uid == action.uid:
            raise refusal

    async def _set_condition(
        self,
        operation: str,
        namespace: str,
        name: str,
        uid: str,
        condition: tuple[str, str, str, str],
        version: str = "",
    ) -> None:
        """Write one condition of a pod: its type, status, reason and message.

        A strategic merge patch merges conditions by type, so the conditions of other components stay.  lastTransitionTime is
        always now, because Kubernetes removes a DisruptionTarget that is two minutes old from a living pod.
        """
        kind, status, reason, message = condition
        written = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": _rfc3339(self.clock()),
        }
        meta = {"uid": uid, "resourceVersion": version} if version else {"uid": uid}
        body = {"metadata": meta, "status": {"conditions": [written]}}
        await self._patch(operation, f"{_pod_path(namespace, name)}/status", body, STRATEGIC)

    # --- nodes ---

    async def set_node_condition(self, action: SetNodeCondition) -> None:
        """Write the bridge's own condition on the node: the node's state in Slurm.

        Raises NotFound if the node is gone, Conflict if it is another incarnation.
        """
        now = _rfc3339(self.clock())
        condition = {
            "type": names.IN_SLURM,
            "status": "True" if action.status else "False",
            "reason": action.condition,
            "message": action.message,
            "lastHeartbeatTime": now,
        }
        if action.turns:
            condition["lastTransitionTime"] = now
        await self._patch_node_conditions("show node", action.node, action.uid, condition)

    async def taint_node(self, node: str, uid: str) -> None:
        """Add the bridge's taint, which keeps pods of other schedulers away.  Running pods are not affected (NoSchedule).

        The API does not merge lists of taints.  So the whole list is written, with the resourceVersion that was read as
        precondition.
        Raises NotFound; Conflict if the node is another incarnation, or another client changed it first.
        """
        meta, taints = await self._taints(node)
        if not any(taint.get("key") == names.MANAGED_TAINT for taint in taints):
            ours = {"key": names.MANAGED_TAINT, "value": "true", "effect": "NoSchedule"}
            await self._write_taints(node, uid, meta, [*taints, ours])

    async def unmark_node(self, node: str, uid: str) -> None:
        """Remove the bridge's taint, then its condition, which shows until then that the taint is the bridge's.

        Raises NotFound; Conflict if the node is another incarnation, or another client changed it first.
        """
        meta, taints = await self._taints(node)
        others = [taint for taint in taints if taint.get("key") != names.MANAGED_TAINT]
        if len(others) < len(taints):
            await self._write_taints(node, uid, meta, others)
        await self._patch_node_conditions("unmark node", node, uid, {"type": names.IN_SLURM, "$patch": "delete"})

    async def _patch_node_conditions(self, operation: str, node: str, uid: str, condition: Mapping[str, str]) -> None:
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        await self._patch(operation, f"{_node_path(node)}/status", body, STRATEGIC)

    async def _taints(self, node: str) -> tuple[Meta, list[dict[str, Any]]]:
        found = codec.TAINTED.one((await self._read("read node", _node_path(node))).body)
        return found.metadata, found.spec.taints or []

    async def _write_taints(self, node: str, uid: str, meta: Meta, taints: list[dict[str, Any]]) -> None:
        body = {"metadata": {"uid": uid, "resourceVersion": meta.resource_version}, "spec": {"taints": taints}}
        await self._patch("taint node", _node_path(node), body, MERGE)

    # --- events ---

    async def post_event(
        self, namespace: str, name: str, uid: str, reason: str, message: str, at: float, *, warning: bool = False
    ) -> None:
        """Post an event on the pod or, if the namespace is "", on the node of that name.

        If the same event was posted before, also by an earlier process of the bridge, its count is raised instead.

        at   when the event happened, epoch seconds

        The API is core/v1, because `kubectl describe` shows the count and the time span of such events.  Raises what any
        write raises; the caller need not repeat the call.
        """
        message = message[:EVENT_MESSAGE_MOST]
        # The name is made from the content, so that a later process finds the event of an earlier process.
        digest = hashlib.sha256("\0".join((uid, reason, message)).encode()).hexdigest()[:16]
        event = f"{name[:200].rstrip('-.')}.{digest}"  # no part of a name may end in "-"
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}
        if not namespace:
            about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
            namespace = NAMESPACE_OF_NODES
        path = f"/api/v1/namespaces/{_q(namespace)}/events"
        if event in self._events and await self._count_event(path, event, at):
            return
        body = self._event_body({"name": event, "namespace": namespace}, about, reason, message, at)
        body["type"] = "Warning" if warning else "Normal"
        try:
            await self._write("post event", "POST", path, body)
        except Conflict:  # an earlier process posted the same event
            self._remember(event, await self._count_of(path, event))
            await self._count_event(path, event, at)
            return
        self._remember(event, 1)

    def _event_body(
        self, metadata: Mapping[str, str], about: Mapping[str, str], reason: str, message: str, at: float
    ) -> dict[str, Any]:
        when = _rfc3339(at)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "firstTimestamp": when,
            "lastTimestamp": when,
            "count": 1,
        }

    async def _count_event(self, path: str, event: str, at: float) -> bool:
        """Raise the count of the event.  Returns False if the server has deleted the event (events live an hour)."""
        count = self._events[event] + 1
        body = {"count": count, "lastTimestamp": _rfc3339(at)}
        try:
            await self._patch("renew event", f"{path}/{_q(event)}", body, MERGE)
        except NotFound:
            del self._events[event]
            return False
        self._remember(event, count)
        return True

    async def _count_of(self, path: str, event: str) -> int:
        try:
            return codec.event_count((await self._read("read event", f"{path}/{_q(event)}")).body)
        except (NotFound, Unauthorized):
            return 1  # deleted meanwhile, or not readable for the bridge: the count starts again

    def _remember(self, event: str, count: int) -> None:
        self._events[event] = count
        self._events.move_to_end(event)
        while len(self._events) > EVENTS_REMEMBERED:
            self._events.popitem(last=False)

    # --- what pods refer to ---

    async def read_owner(self, ref: OwnerRef, namespace: str) -> Owner | None:
        """The controller or group that the reference names (W2).

        None: the kind is not known or not served, the object is gone or was recreated, or the bridge may not read the object.
        Raises Unauthorized if the API server does not accept the bridge's credentials: that says nothing about the object.
        """
        group = ref.api_version.rpartition("/")[0]
        optional = MAY_BE_MISSING.get((group, ref.kind))
        version, plural = optional or OWNERS.get((group, ref.kind), ("", ""))
        if not plural:
            return None
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        path = f"{base}/namespaces/{_q(namespace)}/{plural}/{_q(ref.name)}"
        try:
            reply = await self._read("read owner", path)
        except NotFound:
            return None
        except Unauthorized as error:
            if error.number == FORBIDDEN:
                return None
            raise
        except ContractError as error:
            if optional and error.number == 404:  # no such API
                return None
            raise
        owner = codec.owner_codec(ref).one(reply.body)
        by_name = "/" in ref.uid  # the pod shows only the name of its group, not the UID
        return owner if by_name or not ref.uid or owner.ref.uid == ref.uid else None

    async def read_claims(self, namespace: str, names: Sequence[str]) -> tuple[Claim, ...]:
        """The persistent volume claims of these names, in that order; `problem` says why a claim cannot be used."""
        return tuple(await asyncio.gather(*(self._read_claim(namespace, name) for name in names)))

    async def _read_claim(self, namespace: str, name: str) -> Claim:
        path = f"/api/v1/namespaces/{_q(namespace)}/persistentvolumeclaims/{_q(name)}"
        try:
            claim = codec.CLAIMS.one((await self._read("read claim", path)).body)
        except NotFound:
            return Claim(name, False, problem=f"claim {name} does not exist")
        if claim.metadata.deletion_timestamp is not None:
            return Claim(name, False, problem=f"claim {name} is being deleted")
        if claim.status.phase == "Lost":
            return Claim(name, False, problem=f"claim {name} has lost its volume {claim.spec.volume_name}")
        if claim.status.phase != "Bound" or not claim.spec.volume_name:
            return await self._unbound(name, claim)
        volume = claim.spec.volume_name
        try:
            reply = await self._read("read volume", f"/api/v1/persistentvolumes/{_q(volume)}")
        except NotFound:
            return Claim(name, False, problem=f"volume {volume} of claim {name} does not exist")
        affinity = codec.VOLUMES.one(reply.body).spec.node_affinity
        return Claim(name, True, node_terms(affinity.required) if affinity else None, one_pod=_is_for_one_pod(claim))

    async def _unbound(self, name: str, claim: WireClaim) -> Claim:
        """A claim without a volume: it `waits` until a node is selected for its pod (F4), or it has a `problem`."""
        storage_class = claim.spec.storage_class_name
        if not storage_class:
            return Claim(name, False, problem=f"claim {name} is not bound to a volume yet")
        path = f"/apis/storage.k8s.io/v1/storageclasses/{_q(storage_class)}"
        try:
            found = codec.STORAGE_CLASSES.one((await self._read("read storage class", path)).body)
        except NotFound:
            problem = f"claim {name} names the storage class {storage_class}, which does not exist"
            return Claim(name, False, problem=problem)
        if found.volume_binding_mode != "WaitForFirstConsumer":
            problem = f"claim {name} is not bound to a volume yet (storage class {storage_class})"
            return Claim(name, False, problem=problem)
        if found.provisioner == NO_PROVISIONER:
            problem = (
                f"claim {name} waits for its first consumer, and storage class {storage_class} has no provisioner: "
                "bind the claim to one of its volumes first"
            )
            return Claim(name, False, problem=problem)
        selected = (claim.metadata.annotations or {}).get(SELECTED_NODE, "")
        nodes = topology_terms(found.allowed_topologies)
        return Claim(name, False, nodes, waits=True, selected=selected, one_pod=_is_for_one_pod(claim))

    async def select_node(self, namespace: str, claim: str, node: str) -> None:
        """Write the selected node on a claim that waits for its first consumer, so that its volume is made on that node."""
        path = f"/api/v1/namespaces/{_q(namespace)}/persistentvolumeclaims/{_q(claim)}"
        await self._patch("select node", path, {"metadata": {"annotations": {SELECTED_NODE: node}}}, MERGE)

    # --- the cluster ---

    async def namespace(self, name: str) -> Namespace | None:
        """Read one namespace.  The uid of `kube-system` identifies the cluster (ARCHITECTURE 4)."""
        try:
            reply = await self._read("read namespace", f"/api/v1/namespaces/{_q(name)}")
        except NotFound:
            return None
        return codec.NAMESPACES.one(reply.body)

    async def can_i(
        self, verb: str, resource: str, *, group: str = "", subresource: str = "", namespace: str = ""
    ) -> bool:
        """True if the bridge has this right in the namespace, or in all namespaces if *namespace* is ""."""
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return codec.is_allowed((await self._write("check rights", "POST", path, body)).body)

    async def server_version(self) -> str:
        """The server's version, as in "v1.36.3"."""
        return codec.git_version((await self._read("read version", "/version")).body)

    # --- calls ---

    async def _read(self, operation: str, path: str) -> Reply:
        return await self._call(operation, "GET", path, NO_PARAMS, None, "application/json")

    async def _write(self, operation: str, method: str, path: str, body: Mapping[str, Any]) -> Reply:
        return await self._call(operation, method, path, NO_PARAMS, encode(body), "application/json")

    async def _patch(self, operation: str, path: str, body: Mapping[str, Any], content_type: str) -> Reply:
        manager = {"fieldManager": self.component}  # tells the bridge's fields from the users' fields (T7)
        return await self._call(operation, "PATCH", path, manager, encode(body), content_type)

    async def _call(
        self, operation: str, method: str, path: str, params: Mapping[str, str], body: bytes | None, content_type: str
    ) -> Reply:
        """Send one request.  Raises the error that its answer means; reports duration and outcome to `on_call`."""
        loop = asyncio.get_running_loop()
        began, outcome = loop.time(), "abandoned"
        try:
            reply = await self.transport.exchange(
                Call(method, path, params=params, body=body, content_type=content_type, deadline_s=DEADLINE_S)
            )
            if 200 <= reply.status < 300 and not reply.body.lstrip().startswith(b"{"):
                raise ContractError(operation, SIDE, "the answer is no JSON object", reply.status)
            judged(operation, reply)
        except RemoteError as error:
            outcome = type(error).__name__.lower()
            if isinstance(error, Unauthorized):
                self.on_forbidden(_namespace_of(path))
            if error.operation == operation:
                raise
            raise _with_operation(operation, error) from None
        except BridgeError as error:
            outcome = type(error).__name__.lower()
            raise
        else:
            outcome = "ok"
            return reply
        finally:
            self.on_call(operation, loop.time() - began, outcome)


def _with_operation(operation: str, error: RemoteError) -> RemoteError:
    """The error with the name of the operation: the transport knows only the method."""
    renamed = type(error)(operation, error.side, error.message, error.number)
    if isinstance(error, Exhausted) and isinstance(renamed, Exhausted):
        renamed.retry_after_s = error.retry_after_s
    return renamed


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_q(namespace)}/pods/{_q(name)}"


def _namespace_of(path: str) -> str:
    """The namespace of the object that a path names; "": the object has none."""
    _, _, rest = path.partition("/namespaces/")
    name, _, object_path = rest.partition("/")
    return unquote(name) if object_path else ""


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{_q(name)}"


def _q(segment: str) -> str:
    """The text, quoted as one segment of a path."""
    return quote(segment, safe="")


def _rfc3339(epoch: float) -> str:
    return datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_for_one_pod(claim: WireClaim) -> bool:
    return ONE_POD in (claim.spec.access_modes or ())

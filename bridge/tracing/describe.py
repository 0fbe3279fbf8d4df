"""Attributes of spans: OpenTelemetry's conventions for Kubernetes, and `slurm.*` and `slurm_bridge.*` (docs/tracing.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.tracing.times import Clocks
from scheduler import actions as act
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.state.workload import Workload
from scheduler.state.world import World

# The controllers of pods for which the conventions have names.
CONTROLLERS = (
    "DaemonSet",
    "Job",
    "ReplicaSet",
    "StatefulSet",
)
Attributes = dict[str, Any]


def pod(what: Pod) -> Attributes:
    """The pod, and the node on which it ran."""
    said: Attributes = {
        "k8s.namespace.name": what.namespace,
        "k8s.pod.name": what.name,
        "k8s.pod.uid": what.uid,
        "k8s.node.name": what.node,
    }
    if what.owner is not None and what.owner.kind in CONTROLLERS:
        said[f"k8s.{what.owner.kind.lower()}.name"] = what.owner.name
    return {key: text for key, text in said.items() if text}


def exit_code(what: Pod) -> Attributes:
    """The largest exit code of the pod's containers; nothing if no container ended."""
    return {"slurm_bridge.exit_code": what.exit_code} if what.exit_code is not None else {}


def failure(what: Pod) -> str | None:
    """Why the pod failed; None: it did not."""
    return (what.end_reason or what.phase.value) if what.phase is PodPhase.FAILED else None


def containers(what: Pod) -> Attributes:
    """The names and images of the pod's containers, as far as kubelet shows them."""
    if not what.times.containers:
        return {}
    return {"slurm_bridge.containers": what.times.containers, "slurm_bridge.images": what.times.images}


def gang(workload: Workload) -> Attributes:
    """The kind, the name and the size of the gang; nothing for a single pod."""
    if workload.group is None:
        return {}
    return {"slurm_bridge.gang.kind": workload.group.kind, "slurm_bridge.gang.name": workload.group.name} | (
        {"slurm_bridge.gang.size": workload.size} if workload.size else {}
    )


def job(job_id: int, world: World) -> Attributes:
    """The options of the job, and when it was submitted and started by Slurm's clock."""
    said: Attributes = {"slurm.job.id": job_id}
    known = world.placeholders.get(job_id)
    if known is None:
        return said
    asked, read = known.spec or known.adopted_as, known.job
    said |= {"slurm.user": known.user}
    if (about := read or asked) is not None:
        said |= {"slurm.account": about.account, "slurm.partition": about.partition, "slurm.qos": about.qos}
    if read is not None:
        said |= {"slurm.job.submit_time": read.submitted, "slurm.nodes": read.nodes or read.planned_nodes}
        said |= {"slurm.job.start_time": read.starts if known.holds_nodes else None}
    return {key: value for key, value in said.items() if value not in (None, "")}


def workload(pods: Sequence[Pod], about: Workload | None, world: World, cancel: act.CancelJob | None) -> Attributes:
    """The workload, its last job, and how it ended."""
    said = gang(about) if about is not None else {}
    if pods:
        said |= pod(pods[0]) if len(pods) == 1 else {"k8s.namespace.name": pods[0].namespace}
    last = cancel.job_id if cancel is not None else about.hint if about is not None else None
    if last is not None:
        said |= job(last, world)
    if cancel is not None:
        said["slurm_bridge.end"] = cancel.record or cancel.reason
    elif (states := _states(last, world)) and last is not None:
        said["slurm_bridge.end"] = f"Slurm job {last} ended: {states}"
    return said


def _states(job_id: int | None, world: World) -> str:
    known = world.placeholders.get(job_id) if job_id is not None else None
    return " ".join(sorted(known.states)) if known is not None and known.ended else ""


def kubernetes_clock(clocks: Clocks) -> Attributes:
    """The offset by which times of Kubernetes were corrected; nothing if the offset is 0."""
    return {"slurm_bridge.kubernetes_clock_offset_s": clocks.kubernetes} if clocks.kubernetes else {}


def slurm_clock(clocks: Clocks) -> Attributes:
    """The offset by which times of Slurm were corrected."""
    return {"slurm.clock_offset_s": clocks.slurm}

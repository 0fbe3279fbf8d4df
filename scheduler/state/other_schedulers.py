"""Pods of other schedulers on nodes that Slurm allocates, in managed namespaces (N10).

The bridge is not their scheduler, and they have no placeholder.  Each of these pods is a workload by itself, so it is
visited, gets statuses and is ended as any other (bypass.py).  The bridge ignores pods on other nodes.
"""

from __future__ import annotations

from scheduler import names
from scheduler.events import Scope
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import Job
from scheduler.place.feasible import slurm_name
from scheduler.state import quarantine
from scheduler.state.workload import Workload
from scheduler.state.world import World


def is_on_slurm_node(world: World, pod: Pod) -> bool:
    """True if the pod is on a node that Slurm allocates, and is no node daemon.

    Pods of system namespaces and static pods serve their nodes.  It does not count that a DaemonSet made the pod, because any
    user of a managed namespace may create one.
    """
    if names.MIRROR in pod.annotations or _is_system(world, pod.namespace):
        return False
    node = (world.nodes or {}).get(pod.node)
    return node is not None and slurm_name(node) in (world.slurm_nodes or {})


def _is_system(world: World, namespace: str) -> bool:
    """True for kube-system and for namespaces with the label of system namespaces; admission also lets their pods pass."""
    known = (world.namespaces or {}).get(namespace)
    labelled = known is not None and known.labels.get(names.SYSTEM_LABEL) == "true"
    return labelled or namespace == "kube-system"


def note_pod(world: World, pod: Pod) -> None:
    """Note the present state of a pod of another scheduler."""
    workload = world.workloads.get(world.key_of_pod.get(pod.uid, ""))
    if workload is None:
        if pod.finished or not world.manages(pod.namespace) or not is_on_slurm_node(world, pod):
            return
        key = names.workload_key(pod.uid)
        workload = world.workloads[key] = Workload(key, pod.full_name, created=pod.created, of_other_scheduler=True)
        workload.strays[pod.uid] = world.newest_event_at
        world.key_of_pod[pod.uid] = key
    workload.put(pod)
    world.note_needs(workload, pod)
    world.refresh(workload)


def find_pods(world: World) -> None:
    """Check all pods of other schedulers again, after nodes or namespaces changed."""
    for there in tuple(world.node_info.values()):
        for pod in tuple(there.pods.values()):
            if pod.uid not in world.key_of_pod:
                try:
                    note_pod(world, pod)
                except Exception as error:  # noqa: BLE001 - contained to the pod, or raised
                    quarantine.quarantine_pod(world, Scope.OTHERS, pod, error)


def note_job_read(world: World, job_id: int, job: Job | None) -> None:
    """Note if another bridge made the job that such a pod names.  The mark in the name of the job shows this."""
    for key in world.hinted_by_others.pop(job_id, ()):
        workload = world.workloads.get(key)
        if workload is None or not workload.pods:
            continue
        pod = workload.pod
        named = names.parse_job_name(job.name) if job is not None else None
        cluster = (world.namespaces or {}).get("kube-system")
        theirs = names.cluster_id(cluster.uid, pod.scheduler_name) if cluster is not None else ""
        workload.job_of_other_bridge = named is not None and named[0] == theirs
        world.refresh(workload)

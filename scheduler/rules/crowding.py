"""Nodes that a workload does not ask for, because a grant there could not be used (F6).

Slurm does not count pods that another client bound, daemons, or how many pods a node may have.  So Slurm may grant a node
on which Kubernetes has no room.  The grant is released, and the workload leaves the node out.  Every `exclude_s` the nodes
are judged again:

* While pods that Slurm does not count leave no room for one pod of the workload, each grant there would be useless.
* A node with room is asked for again.
* A full node on which only counted pods are in the way is asked for again, too: Slurm plans with the node, and keeps it for
  jobs that have waited long.  But Slurm may believe that the node has more room than it has.  Then the grant is useless
  again.  So after each such grant the workload waits longer.

Pods of a gang that need different amounts are judged apart: a node without free devices still serves pods without devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from scheduler.model.amounts import Amounts
from scheduler.model.kubernetes import Node, Pod
from scheduler.model.left_out import Kind, LeavesOut
from scheduler.place.fit import EXTRA_WAIT_S, kind_of
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.workload import Workload
from scheduler.state.world import World

JUDGED = 5  # units of a pass's effort (Pass.effort): finding out whether one node has room
PODS_COUNTED = 4  # checking this number of pods (does Slurm count them?) is one unit of effort


def judge_left_out(workload: Workload, pods: Sequence[Pod], this_pass: Pass) -> LeavesOut:
    """The nodes that these pods do not ask for now; if it is time, the nodes are judged again."""
    known = workload.left_out
    before = this_pass.left_out.get(workload.key, workload.nodes_left_out)
    there = this_pass.world.slurm_nodes or {}  # Slurm refuses a job that names an unknown node (2018)
    nodes = {name: kinds for name, kinds in before.items() if name in there}
    if known is None or not nodes:
        return nodes
    if this_pass.now < known.judged_at:
        this_pass.judges_again[workload.key] = known.judged_at
    elif workload.key not in this_pass.left_out:
        nodes = _judge(nodes, pods, this_pass, patient=this_pass.now < known.patient_until)
        this_pass.left_out[workload.key] = nodes
        if nodes:
            this_pass.judges_again[workload.key] = this_pass.now + this_pass.tuning.exclude_s
    return nodes


def _judge(nodes: Iterable[str], pods: Sequence[Pod], this_pass: Pass, *, patient: bool) -> dict[str, frozenset[Kind]]:
    """The nodes that stay left out, each with the kinds of pods that leave it out.  nodes: all that were left out before"""
    kinds = Counter(map(kind_of, pods))
    judged = {
        name: frozenset(
            kind
            for kind, number in kinds.items()
            if _is_hopeless(name, kind, this_pass) or (patient and _is_full_for(kind, number, name, this_pass))
        )
        for name in nodes
    }
    return {name: found for name, found in judged.items() if found}


def is_full(name: str, pods: Sequence[Pod], this_pass: Pass) -> bool:
    """True if the node has less room for a kind of these pods now than when it is empty.  name: the node in Slurm"""
    return any(_is_full_for(kind, number, name, this_pass) for kind, number in Counter(map(kind_of, pods)).items())


def _is_full_for(kind: Kind, number: int, name: str, this_pass: Pass) -> bool:
    node = _node(name, this_pass)
    if node is None:
        return False
    taken: Counter[str] = Counter()
    for there in this_pass.node_infos(node.name):
        taken.update(there.taken)
    return _room(node, taken, kind) < min(_room(node, {}, kind), number)


def _is_hopeless(name: str, kind: Kind, this_pass: Pass) -> bool:
    """True if such a pod would not fit beside the pods that Slurm does not count, even if all others left the node."""
    node = _node(name, this_pass)
    return node is not None and not _room(node, _uncounted(node, this_pass), kind)


def _node(name: str, this_pass: Pass) -> Node | None:
    this_pass.effort += JUDGED
    return (this_pass.world.nodes or {}).get(this_pass.world.by_slurm_name.get(name, ""))


def _uncounted(node: Node, this_pass: Pass) -> Mapping[str, int]:
    """Resources that pods on the node use and Slurm does not count, without pods that terminate in time for a bind."""
    known = this_pass.uncounted.get(node.name)
    if known is not None:
        return known
    counts = this_pass.world.counted_by_slurm
    total: Counter[str] = Counter()
    for there in this_pass.node_infos(node.name):
        this_pass.effort += len(there.pods) // PODS_COUNTED
        for uid, pod in there.pods.items():
            ends = there.grace_ends(uid)
            if ends is None or this_pass.now >= ends + EXTRA_WAIT_S:
                counted = counts if _has_job(pod, this_pass.world) else ()
                total.update(
                    {resource: amount for resource, amount in there.needed_by(uid).items() if resource not in counted}
                )
    this_pass.uncounted[node.name] = total
    return total


def _has_job(pod: Pod, world: World) -> bool:
    """True if a job holds the pod's place."""
    workload = world.workloads.get(world.key_of_pod.get(pod.uid, ""))
    if workload is None:
        return False
    if workload.of_other_scheduler:
        return bool(workload.job_of_other_bridge)
    return any(job.holds_nodes and workload.is_bound_for(pod, job) for job in world.jobs_of(workload))


def _room(node: Node, taken: Amounts, kind: Kind) -> int:
    """The number of pods of this kind that fit into the free resources of the node."""
    left = (
        (node.allocatable.get(resource, 0) - taken.get(resource, 0)) // amount
        for resource, amount in kind
        if amount > 0
    )
    return max(0, min(left, default=0))

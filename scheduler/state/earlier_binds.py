"""Pods that a bind of a previous process may still put on a node, until the quiet period ends (V3).

The node that such a bind names is not known.  So all pods of a workload are counted on each of its granted nodes.  While the
job lives, resources that Slurm counts are left out, because no two grants share them.  After the job has ended, these
resources count, too, because Slurm may have given them to other jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from scheduler.model.hostlist import HostlistError
from scheduler.model.kubernetes import Node, Pod
from scheduler.model.slurm import nodes_of
from scheduler.place.affinity import COMPARISONS_PER_NODE, GrantedPods, violates_anti_affinity
from scheduler.place.fit import Blocked, NodeInfo, blocked
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.world import World

# The most comparisons of a term with a pod.  If there are more, the bind waits for the end of the quiet period.
MOST_COMPARED = 256


class EarlierBinds:
    """The possible binds of a previous process, as one pass sees them.

    effort   the work so far, in nodes judged
    """

    def __init__(self, world: World) -> None:
        self.effort = 0
        self._world = world
        self._granted: dict[str, list[GrantedPods]] | None = None  # by node; None: not computed yet
        self._of: dict[str, NodeInfo] = {}  # workload key to its pods that may still be bound
        self._without_jobs: dict[str, list[tuple[str, NodeInfo]]] = {}  # by node: workloads whose job has ended

    def obstacle(
        self, pod: Pod, key: str, node: Node | None, there: Sequence[NodeInfo], binding: Collection[str]
    ) -> Blocked | None:
        """Why the pod waits for the end of the quiet period; None: it has room beside all pods that may still be bound there.

        key      the key of the pod's workload
        there    the pods on the node, and the pods that are about to be bound with this pod
        binding  keys of the workloads whose pods this pass binds; they do not count, unless their job has ended
        """
        landing = self.on(node.name, key, binding) if node is not None else []
        if node is None or not landing:
            return None
        if blocked(pod, node, node.name, [*there, *landing]) is None and not self._may_violate_anti_affinity(
            pod, landing
        ):
            return None
        why = f"slurm-bridge has just started, and a bind that it sent before may still put another pod on node {node.name}"
        return Blocked(why, self._world.quiet_until())

    def on(self, node: str, key: str, binding: Collection[str]) -> list[NodeInfo]:
        """The pods of other workloads that may still be bound to the node, one NodeInfo for each workload."""
        if self._granted is None:
            self._granted = {}
            self.effort += len(self._world.by_phase[Phase.GRANTED])
            for granted in self._world.granted_unbound():
                for name in granted.nodes:
                    self._granted.setdefault(name, []).append(granted)
            self._land_without_jobs()
        others = (
            granted for granted in self._granted.get(node, ()) if granted.key != key and granted.key not in binding
        )
        living = [there for granted in others if (there := self._landing(granted)).pods]
        return living + [there for workload_key, there in self._without_jobs.get(node, ()) if workload_key != key]

    def _may_violate_anti_affinity(self, pod: Pod, landing: Sequence[NodeInfo]) -> bool:
        """True if the pod and one of these pods exclude each other by anti-affinity, or there are too many to compare."""
        others = [other for there in landing for other in there.pods.values()]
        terms = len(pod.anti_affinity) * len(others) + sum(len(other.anti_affinity) for other in others)
        self.effort += 1 + min(terms, MOST_COMPARED) // COMPARISONS_PER_NODE
        return terms > MOST_COMPARED or violates_anti_affinity(pod, others)

    def _landing(self, granted: GrantedPods) -> NodeInfo:
        """The pods of a workload with a grant that may still be bound, without the resources that Slurm counts."""
        there = self._of.get(granted.key)
        if there is None:
            there = self._of[granted.key] = self._counted(self._possibly_bound(granted.key))
            for resource in self._world.counted_by_slurm:
                there.taken.pop(resource, None)
        return there

    def _land_without_jobs(self) -> None:
        self.effort += len(self._world.placeholders) // COMPARISONS_PER_NODE  # a job takes as long as a comparison
        for granted in self._granted_before():
            there = self._counted(granted.pods.values())
            for name in granted.nodes:
                self._without_jobs.setdefault(name, []).append((granted.key, there))

    def _counted(self, pods: Collection[Pod]) -> NodeInfo:
        there = NodeInfo()
        self.effort += len(pods)
        for pod in pods:
            there.put(pod)
        return there

    def _possibly_bound(self, key: str) -> list[Pod]:
        """The pods of a workload for which a previous process may have sent a bind that takes effect later.

        Pods for which this process sent a bind are left out, because they are counted on their node already.
        """
        job = self._world.job_of.get(key)
        return self._unbound(key) if job is not None and job.asked_at is None else []

    def _granted_before(self) -> Iterator[GrantedPods]:
        """Workloads whose job, submitted by a previous process, has ended, with the pods that may have been bound for it."""
        names = self._world.by_slurm_name
        for job in self._world.placeholders.values():
            if job.key not in self._world.workloads or job.asked_at is not None or not job.shows_end:
                continue
            unbound = self._unbound(job.key)
            nodes = frozenset(names[name] for name in _known_nodes(job) if name in names)
            if unbound:
                yield GrantedPods(job.key, {pod.uid: pod for pod in unbound}, nodes)

    def _unbound(self, key: str) -> list[Pod]:
        workload, assumed = self._world.workloads[key], self._world.assumed
        return [pod for pod in workload.members if not workload.node_of(pod) and pod.uid not in assumed]


def _known_nodes(job: Placeholder) -> Collection[str]:
    """Slurm's names of the job's nodes, as far as the bridge knows them.  Slurm also shows the nodes of an ended job."""
    if job.grant is not None:
        return [node.name for node in job.grant.everywhere]
    try:
        return nodes_of(job.job) if job.job is not None else []
    except HostlistError:  # Slurm's answer makes no sense
        return []

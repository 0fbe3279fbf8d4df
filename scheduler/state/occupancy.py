"""Which pods are on which nodes or are about to be, and which waiting workloads a change concerns (F1, F5, V5).

`node_info` has every unfinished pod with a node, whatever client bound it.  A bind of the bridge counts as soon as it is
planned (`assume`), so that no other pod gets the same room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from scheduler.events import Side
from scheduler.model.kubernetes import Node, Pod
from scheduler.place.affinity import NOWHERE, AffinityIndex, GrantedPods, OwnPods, distinct_to_affinity
from scheduler.place.feasible import slurm_name
from scheduler.place.fit import NodeInfo
from scheduler.place.host_ports import HostPorts
from scheduler.place.sharing import selected_by
from scheduler.state.facts import Facts
from scheduler.state.phase import WAITING, Phase
from scheduler.state.workload import Workload
from scheduler.translate.pod_limits import beyond_limits


class Occupancy(Facts):
    """See the module."""

    def assume(self, pod: Pod, node: str) -> None:
        """Note that a bind is planned: the pod counts on the node, so that no other pod gets the same room (V5)."""
        self.assumed[pod.uid] = node
        self.put_on_node(pod, node)

    def put_on_node(self, pod: Pod, node: str) -> Pod | None:
        """Note that the pod is on the node.  Returns its former state there; None: it was not there."""
        there = self.node_info.get(node)
        if there is None:
            there = self.node_info[node] = NodeInfo()
        before = there.put(pod, self.newest_event_at, self.config.tuning.silent_node_s)
        if before is not None and _counts_the_same(before, pod):
            return before
        if before is not None:
            self._count_out(before, node)
        self.node_of[pod.uid] = node
        self._count_in(pod, node)
        self._neighbours_changed([pod] if before is None else [before, pod])
        return before

    def remove_from_node(self, node: str, uid: str) -> None:
        """Note that the pod is not on the node any more."""
        there = self.node_info.get(node)
        left = there.remove(uid) if there is not None else None
        if there is None or left is None:
            return
        if not there.pods:
            del self.node_info[node]
        del self.node_of[uid]
        self._count_out(left, node)
        self._neighbours_changed([left])
        self.room_changed()

    def forget_pod(self, uid: str) -> None:
        """Forget what was observed and read of a pod that is gone."""
        for index in (self.unanswered_binds, self.claims, self.claims_read_at, self.first_seen, self.cannot_read):
            index.pop(uid, None)
        self.translations.pop(uid, None)
        self.bypassing.discard(uid)

    def rebuild_node_info(self, without: str) -> None:
        """Recount all pods on nodes, except the pod *without*: an exception may have left its counts half-written."""
        self.assumed.pop(without, None)
        self.unanswered_binds.pop(without, None)
        self.node_info = {name: there.without(without) for name, there in self.node_info.items()}
        self.affinity_index = AffinityIndex(self.node_info, self.affinity_index.effort)
        self.host_ports = HostPorts(self.host_ports.effort)
        self.claim_users = {}
        self.node_of = {uid: name for name, there in self.node_info.items() for uid in there.pods}
        for name, there in self.node_info.items():
            for pod in there.pods.values():
                self._count_in(pod, name)
        self._mark_waiting()

    def _count_in(self, pod: Pod, node: str) -> None:
        self.affinity_index.add(pod, node)
        self.host_ports.add(pod, node)
        for claim in pod.claims:
            self.claim_users.setdefault((pod.namespace, claim), set()).add(pod.uid)

    def _count_out(self, pod: Pod, node: str) -> None:
        self.affinity_index.remove(pod, node)
        self.host_ports.remove(pod, node)
        for claim in dict.fromkeys(pod.claims):
            users = self.claim_users[pod.namespace, claim]
            users.remove(pod.uid)
            if not users:
                del self.claim_users[pod.namespace, claim]

    def user_of(self, claim: str, pod: Pod) -> Pod | None:
        """Another pod on a node that uses this volume claim of the pod; None: no pod does."""
        others = self.claim_users.get((pod.namespace, claim), set()) - {pod.uid}
        return min(
            (self.node_info[self.node_of[uid]].pods[uid] for uid in others), key=lambda user: user.name, default=None
        )

    def _neighbours_changed(self, pods: Sequence[Pod]) -> None:
        """Mark the waiting workloads that are concerned because one of these pods came to a node or left one (F1, F5)."""
        self.dirty.update(dict.fromkeys(self.waiting_terms.concerned(pods)))
        if any(pod.host_ports for pod in pods):
            self._ports_changed()

    def _ports_changed(self) -> None:
        """Mark the waiting workloads that want host ports, because a port was taken or freed."""
        self.dirty.update(self.waits_for_ports)

    def room_changed(self) -> None:
        """Mark the workloads with a grant, because a pod left a node or began to terminate: they may wait for it (F6)."""
        self.dirty.update(self.by_phase[Phase.GRANTED])

    def feasibility_changed(self) -> None:
        self.feasibility.clear()
        self.usable_kinds.clear()
        self.affinity_index.nodes_changed()
        self.granted_unbound_pods = None
        self._mark_waiting()

    def _mark_waiting(self) -> None:
        """Mark every workload that waits for nodes or for its bind."""
        for phase in WAITING:
            self.dirty.update(self.by_phase[phase])

    def map_names(self) -> None:
        """Map Slurm's node names to Kubernetes nodes.  If several nodes claim a name, it maps to none of them.

        One of these nodes may claim a name that is not its own.
        """
        claims: dict[str, list[str]] = {}
        for node in self.nodes_with_names().values():
            claims.setdefault(slurm_name(node), []).append(node.name)
        known = self.nodes or {}
        self.by_slurm_name = {name: nodes[0] for name, nodes in claims.items() if len(nodes) == 1 and nodes[0] in known}
        self.contested = {name: tuple(sorted(nodes)) for name, nodes in claims.items() if len(nodes) > 1}

    def nodes_with_names(self) -> Mapping[str, Node]:
        """The Kubernetes nodes that claim a name in Slurm: also nodes in quarantine, which no pod uses."""
        kept = {name: node for entry in self.quarantine.values() for name, node in entry.nodes.items()}
        return kept | (self.nodes or {})

    def note_health(self, nodes: Iterable[Node], new: Collection[str]) -> None:
        """Note since when these nodes are ready, or their kubelets are silent, by the bridge's clock.

        new   names of the nodes that were not known before
        """
        clock = self.clocks[Side.KUBERNETES]
        for node in nodes:
            if node.ready_since is None:
                self.ready_since.pop(node.name, None)
            elif self.ready_since.get(node.name, (None,))[0] != node.ready_since:
                when = clock.had_happened if node.name in new else clock.happened
                self.ready_since[node.name] = (node.ready_since, when(node.ready_since, self.newest_event_at))
            if node.kubelet_silent_since is None:
                self.kubelet_silent_since.pop(node.name, None)
            elif node.name not in self.kubelet_silent_since:
                when = clock.had_happened if node.name in new else clock.happened
                self.kubelet_silent_since[node.name] = when(node.kubelet_silent_since, self.newest_event_at)

    # --- affinity -----------------------------------------------------------------------------------------------------

    def note_needs(self, workload: Workload, pod: Pod) -> None:
        """Note if a pod of the workload wants host ports (F1) or has affinity terms (F5)."""
        if pod.host_ports:
            self.wants_ports.add(workload.key)
        if pod.anti_affinity or pod.affinity:
            self.affinity_workloads.add(workload.key)
            if workload.key in self.waiting_terms:
                self.waiting_terms.add(workload.key, [pod])

    def own_pods(self, key: str, pods: Sequence[Pod], more: int = 0) -> OwnPods:
        """These pods of one workload, which are placed together.  more: how many pods like the last of them will come"""
        on_nodes = tuple((pod, node) for pod in pods if (node := self.node_of.get(pod.uid)))
        together = [*pods, *(pods[-1:] if more else ())]
        terms = dict.fromkeys(term for pod in pods for term in pod.affinity)
        return OwnPods(key, on_nodes, selected_by(terms, together) if terms else {})

    def closed_to(self, pod: Pod, own_pods: OwnPods, *, with_granted: bool = False) -> frozenset[str]:
        """Nodes that the pod may not use because of other pods (F5).

        own_pods      the pods that are placed together with the pod, and the pod itself
        with_granted  unbound pods of workloads with a grant count, too
        """
        if not (
            pod.anti_affinity
            or pod.affinity
            or self.affinity_index.has_anti_affinity
            or (with_granted and self.affinity_workloads)
        ):
            return NOWHERE
        if with_granted:
            self.affinity_index.set_granted(self.granted_unbound())
        return self.affinity_index.closed(pod, self.nodes or {}, own_pods, with_granted=with_granted)

    def compare_some(self, workload: Workload, most: int, *, with_granted: bool) -> bool:
        """Prepare `closed_to` for the pods of the workload.  Returns True if all comparisons are made.

        most   make about so many comparisons now
        """
        if with_granted:
            self.affinity_index.set_granted(self.granted_unbound())
        pods = [pod for pod in workload.pods.values() if not beyond_limits(pod)]  # others are refused anyway
        return self.affinity_index.prepare(workload.key, pods, most, with_granted=with_granted)

    def granted_unbound(self) -> Sequence[GrantedPods]:
        """The workloads with a grant of which some pods are not bound yet, with these pods."""
        if self.granted_unbound_pods is None:
            self.granted_unbound_pods = tuple(self.compute_granted_unbound())
        return self.granted_unbound_pods

    def compute_granted_unbound(self) -> Iterator[GrantedPods]:
        """The value of `granted_unbound`, recomputed.  One pod represents all pods that are alike for affinity."""
        for key in self.by_phase[Phase.GRANTED]:
            workload = self.workloads[key]
            job = self.job_of.get(key)
            granted = job.grant.everywhere if job is not None and job.grant is not None else ()
            nodes = frozenset(self.by_slurm_name[node.name] for node in granted if node.name in self.by_slurm_name)
            unbound = [pod for pod in workload.members if not workload.node_of(pod)]
            if kinds := distinct_to_affinity(unbound):
                yield GrantedPods(key, {pod.uid: pod for pod in kinds}, nodes)

    def grant_changed(self, workload: Workload) -> None:
        """Note that the workload got or lost a grant: affinity starts or stops to count its pods on the granted nodes."""
        self.granted_unbound_pods = None
        before = self.granted_pods.pop(workload.key, ())
        pods = distinct_to_affinity(workload.pods.values())
        if self.phase_of.get(workload.key) is Phase.GRANTED:
            self.granted_pods[workload.key] = pods
        else:
            self.affinity_index.remove_granted(workload.key)
        self._mark_concerned((*before, *pods))

    def granted_pods_changed(self, workload: Workload, pods: Collection[Pod]) -> None:
        """Note that these pods of the workload may have come, left, been bound, or got other labels.

        If the workload has a grant, affinity counts its unbound pods on all granted nodes.
        """
        if self.phase_of.get(workload.key) is Phase.GRANTED:
            self._mark_concerned(pods)

    def _forget_granted(self, key: str) -> None:
        """Note that the workload is removed: its pods do not count for affinity on its granted nodes any more (F5)."""
        if (pods := self.granted_pods.pop(key, None)) is not None:
            self.granted_unbound_pods = None
            self.affinity_index.remove_granted(key)
            self._mark_concerned(pods)

    def _mark_concerned(self, pods: Collection[Pod]) -> None:
        for pod in pods:
            for term in pod.anti_affinity:
                self.anti_affinity_namespaces |= term.namespaces
        for key in self.waiting_terms.concerned(pods):
            if self.phase_of.get(key) in (Phase.UNSUBMITTED, Phase.QUEUED):
                self.dirty[key] = None

    def visits_for_anti_affinity(self) -> list[str]:
        """Keys of the waiting workloads with a pod that a changed anti-affinity may concern.

        The anti-affinity of a pod changed if the pod came to a node or left one, or if its workload got or lost a grant.
        """
        known: dict[object, bool] = {}  # kind of pod to the result

        def concerned(pod: Pod) -> bool:
            kind = self.affinity_index.kind(pod)
            if kind not in known:
                known[kind] = pod.namespace in self.anti_affinity_namespaces or self.affinity_index.concerns(pod)
            return known[kind]

        waiting = (key for phase in WAITING for key in self.by_phase[phase])
        return [key for key in waiting if any(map(concerned, self.workloads[key].pods.values()))]


def _counts_the_same(one: Pod, other: Pod) -> bool:
    """True if both states of a pod count the same for anti-affinity, host ports and volume claims."""
    return (
        one.labels == other.labels
        and one.anti_affinity == other.anti_affinity
        and one.host_ports == other.host_ports
        and one.claims == other.claims
    )

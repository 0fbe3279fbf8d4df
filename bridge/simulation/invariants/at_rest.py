"""V4, L1, L2, L3 and L4: both clusters when faults ended long ago."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bridge.simulation.invariants.observed import Observed
from bridge.simulation.invariants.patience import DELETED_S, GANG_S, SOON_S
from bridge.simulation.invariants.pod_facts import full_name, is_finished, keys_of, shown_job
from bridge.simulation.invariants.unused_grants import UnusedGrants
from bridge.simulation.invariants.violation import Finding
from bridge.simulation.kube.objects import host_ports
from bridge.simulation.observations import Object, SeenJob
from scheduler import names
from scheduler.place.host_ports import ports_conflict


@dataclass(frozen=True, slots=True)
class AtRest:
    """Checks that nothing is left half done."""

    seen: Observed
    grants: UnusedGrants

    def findings(self) -> Iterator[Finding]:
        """The violations of V4, L1, L2, L3 and L4, when faults ended long ago."""
        mine: dict[str, list[Object]] = {}
        ours = self.seen.ours()
        for pod in self.seen.kube.pods():
            if pod["spec"].get("schedulerName") != self.seen.scheduler_name or is_finished(pod):
                continue
            for key in keys_of(pod):
                mine.setdefault(key, []).append(pod)
            self.seen.checked["L1"] += 1
            shown = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
            if not pod["spec"].get("nodeName") and not any(condition.get("message") for condition in shown):
                yield Finding("L1", pod["metadata"]["uid"], f"{pod['metadata']['name']} waits and shows no reason")
            if pod["spec"].get("nodeName") and any(condition["status"] == "False" for condition in shown):
                yield Finding(
                    "L1", pod["metadata"]["uid"], f"{pod['metadata']['name']} is on a node and shows that it waits"
                )
            self.seen.checked["L4"] += 1
            if overstays := self._overstays(pod, ours):
                yield Finding("L4", pod["metadata"]["uid"], overstays)
        self.seen.checked["L2"] += len(ours)
        self.seen.checked["L3"] += len(ours)
        for job in ours:
            named = names.parse_job_name(job.name)
            assert named is not None
            pods = mine.get(named[1], [])
            if self._shown(job.id, besides=pods) or (not pods and self._leader_was_renamed(job)):
                continue
            if not pods:
                yield Finding("L2", str(job.id), f"job {job.id} ({job.name}) is {job.state} and has no pod")
            if (
                job.holds
                and not self._covers(job, pods)
                and self.seen.clock() - self.seen.of_slurm(job.starts) > SOON_S
            ):
                waiting = ", ".join(pod["metadata"]["name"] for pod in pods)
                yield Finding("L3", str(job.id), f"job {job.id} is {job.state}, and {waiting} is not bound for it")
            yield from self._half_bound(job, pods)
        yield from self.grants.findings(mine)

    def _overstays(self, pod: Object, ours: list[SeenJob]) -> str:
        """A sentence if the pod stays on its node, without a job there, longer than any grace after its job (L4)."""
        job_id, node = shown_job(pod), pod["spec"].get("nodeName")
        if (
            job_id is None
            or not job_id.isdecimal()
            or not node
            or self.seen.has_others_id(pod)
            or not self._is_ready(node)
        ):
            return ""
        job, name = self.seen.slurm.job(int(job_id)), self.seen.known_as(node)
        if job is None or not job.ended or not self.seen.is_for(job, pod):
            return ""
        if any(other.holds and name in other.nodes and self.seen.is_for(other, pod) for other in ours):
            return ""
        over_s = self.seen.clock() - max(self.seen.of_slurm(job.ends), self.seen.calm_since, self.seen.born)
        if over_s <= self.seen.stands_s + DELETED_S:
            return ""
        return f"{full_name(pod)} is still on {node} {over_s:.0f} s after its job {job.id} was {job.state}"

    def _is_ready(self, node: str) -> bool:
        """True if the kubelet reports the node as ready: otherwise no pod there can be ended."""
        there = self.seen.kube.node(node)
        conditions = there["status"].get("conditions") or [] if there is not None else []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def _shown(self, job_id: int, besides: list[Object]) -> bool:
        """True if another pod on a node shows this id, which slurmctld reused after it lost its state.

        If the bridge was started after that, a hint of a RUNNING job is enough for it (ARCHITECTURE 4).  It learns the owner
        of the job when it reads the job in turn (S9).
        """
        uids = {pod["metadata"]["uid"] for pod in besides}
        others = (pod for pod in self.seen.kube.pods() if pod["metadata"]["uid"] not in uids and not is_finished(pod))
        return any(shown_job(pod) == str(job_id) and not self.seen.has_others_id(pod) for pod in others)

    def _leader_was_renamed(self, job: SeenJob) -> bool:
        """True if the leader of this component was renamed: a new process does not know it (docs/decisions/0003)."""
        leader = self.seen.slurm.job(job.het_id) if job.het_id else None
        return leader is not None and leader.serial in self.seen.renamed

    def _covers(self, job: SeenJob, pods: list[Object]) -> bool:
        """True if a pod is bound for the job, or runs on one of its nodes: the pod may show the id of a lost job.

        The components of a heterogeneous job end together, so a pod on the node of one of them covers all.
        """
        ids = {str(job.id), str(job.het_id)}
        nodes = {node for part in self.seen.parts(job) for node in part.nodes}
        on_nodes = ((pod, pod["spec"].get("nodeName")) for pod in pods)
        return any(node and (shown_job(pod) in ids or node in nodes) for pod, node in on_nodes)

    def _half_bound(self, job: SeenJob, pods: list[Object]) -> Iterator[Finding]:
        """A finding if some members run on the nodes of the job, and others have been waiting for too long (V4).

        A pod that was created after the grant takes a free place of the gang; if it waits for that place, it shows that.  If
        all places are taken, or other pods wait for all free places, a new pod gets a job of its own.  The pod keeps this
        job if a place becomes free after a restart, or if the submission of the gang's job had no answer: then the process
        does not know what the job of the gang asked for (W5).  It also keeps a job of another user than that of the gang's
        job: the policy changed between the two submissions.  The place of a pod that succeeded is not free: the gang needs no
        other pod in its stead (W5).  Pods that are fewer than the free places keep their jobs, because the gang would lack
        pods even with them.  In a heterogeneous job the free place may be too small for a pod that has its own job; the sizes
        of the places are not compared here.  Nor can a pod take a place on a node where another pod has its host port.
        """
        parts = self.seen.parts(job)
        tasks = sum(part.tasks for part in parts)
        if not job.holds or tasks == 1 or job.het_id not in (0, job.id):
            return
        self.seen.checked["V4"] += 1
        staying = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        bound = [pod for pod in staying if pod["spec"].get("nodeName")]
        unbound = [pod for pod in staying if not pod["spec"].get("nodeName")]
        starts = (shown for pod in bound if (shown := pod["status"].get("startTime")))
        # The job may be a replacement (S7).
        granted = min([self.seen.of_slurm(job.starts), *map(self.seen.of_kube, starts)])
        without = [pod for pod in unbound if not self._waits_for_place(pod, granted)]
        taken = len(staying) - len(without) + self._succeeded_in(job)
        answered = self.seen.answered
        is_unknown = self.seen.is_inherited(job) or (answered is not None and job.id not in answered)
        keeps = is_unknown or len(parts) > 1 or len(without) < tasks - taken
        waiting = [pod for pod in without if not any(keeps or own.user != job.user for own in self.seen.own_jobs(pod))]
        waiting = [pod for pod in waiting if self._has_free_ports(pod, {node for part in parts for node in part.nodes})]
        made = (self.seen.of_kube(pod["metadata"]["creationTimestamp"]) for pod in waiting)
        since = max([self.seen.of_slurm(job.starts), *made])
        if bound and waiting and taken < tasks and self.seen.clock() - since > GANG_S:
            what = f"{len(bound)} pods are bound for job {job.id} of {tasks} tasks; pods that wait: {len(waiting)}"
            yield Finding("V4", str(job.id), what)

    def _has_free_ports(self, pod: Object, nodes: set[str]) -> bool:
        """True if one of the nodes has the host ports of the pod free."""
        others = (other for other in self.seen.kube.pods() if not is_finished(other))
        taken = {
            other["spec"].get("nodeName") for other in others if ports_conflict(host_ports(pod), host_ports(other))
        }
        return not nodes <= taken

    def _waits_for_place(self, pod: Object, granted: float) -> bool:
        """True if the pod shows that it waits for a place, and was created after the grant of the gang, at *granted*."""
        reasons = {condition.get("reason") for condition in pod["status"].get("conditions", [])}
        made = self.seen.of_kube(pod["metadata"]["creationTimestamp"])
        return made > granted and names.GRANT_WAITS in reasons

    def _succeeded_in(self, job: SeenJob) -> int:
        """The number of pods that succeeded on a place of the job."""
        succeeded = (pod for pod in self.seen.kube.pods() if pod["status"].get("phase") == "Succeeded")
        return sum(shown_job(pod) == str(job.id) and not self.seen.has_others_id(pod) for pod in succeeded)

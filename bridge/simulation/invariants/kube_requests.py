"""V2, V3, V5 and V7: each request of the bridge to Kubernetes, checked when it is sent."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from bridge.simulation.invariants.observed import Observed
from bridge.simulation.invariants.patience import CLOCKS_S, ON_ITS_WAY_S, UNHEARD_S, UNKNOWN_S
from bridge.simulation.invariants.pod_facts import (
    full_name,
    gang_of,
    is_bound_for,
    is_finished,
    is_settled,
    may_end_before_s,
    requests_of,
    shown_job,
    shows_earlier_job,
    stood_alone,
)
from bridge.simulation.invariants.violation import Judge
from bridge.simulation.kube.objects import host_ports
from bridge.simulation.observations import Object, SeenJob
from scheduler import names
from scheduler.model.hostlist import fold
from scheduler.model.quantity import amount
from scheduler.place.host_ports import ports_conflict

MOVES_BEFORE_S = 600.0  # before the time limit, at which services are moved (S4b); the value of scheduler/tuning.py


@dataclass(frozen=True, slots=True)
class KubeRequests:
    """Checks requests to Kubernetes.

    judge      checks one request (`Invariants.judge`)
    violated   called with a violation that needs no check
    """

    seen: Observed
    judge: Judge
    violated: Callable[[str, str], None]
    _served: dict[object, str] = field(default_factory=dict)  # job serial to the pod that it was given to

    def sent(self, method: str, path: str, body: bytes | None) -> None:
        """Check a request to Kubernetes when it is sent."""
        match = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding|/eviction)?", path)
        if match is None or method == "GET":
            return
        namespace, name, sent = match[1], match[2], json.loads(body) if body else {}
        options = sent.get("deleteOptions", sent)
        uid = sent.get("metadata", {}).get("uid") or options.get("preconditions", {}).get("uid")
        if uid is None:
            self.violated("V7", f"a write on pod {namespace}/{name} without its uid")
            return
        if match[3] == "/binding":
            self._bind(namespace, name, uid, sent["target"]["name"], int(sent["metadata"]["annotations"][names.JOB_ID]))
            return
        pod = self.seen.pod(namespace, name, uid)
        deadline = sent.get("spec", {}).get("activeDeadlineSeconds")
        if pod is None:
            return
        if match[3] == "/eviction":
            self._harm(pod, "eviction of", not_before_s=max(MOVES_BEFORE_S, 60.0 + may_end_before_s(pod)))
        elif deadline is not None:
            started, now = pod["status"].get("startTime"), self.seen.clock()
            over = now if started is None else max(now, self.seen.of_kube(started) + deadline)
            self._harm(pod, f"deadline of {deadline} s for", not_before_s=may_end_before_s(pod), at=over)
        elif method == "DELETE":
            self._harm(pod, method)

    def _bind(self, namespace: str, name: str, uid: str, node: str, job_id: int) -> None:
        full_name, sent = f"{namespace}/{name}", self.seen.clock()
        pod = self.seen.pod(namespace, name, uid)
        if self.seen.exact and (pod is None or is_settled(pod)):
            return  # the API server refuses this bind
        self.seen.note(f"bind {full_name} to {node} for job {job_id}")
        self.seen.bind_sent[uid] = sent
        self.seen.slurm.job(job_id)  # an observer that does not know the job reads it from now on

        def if_bound(judge: Callable[[Object, SeenJob | None], str]) -> Callable[[], str]:
            """If judged at once, the pod is about to be bound.  If judged later, the pod must be bound by this bind."""

            def judged() -> str:
                now = self.seen.pod(namespace, name, uid)
                if now is None or not (self.seen.exact or is_bound_for(now, node, job_id)):
                    return ""
                return judge(now, self.seen.slurm.job(job_id))

            return judged

        # Until then the bridge need not know that slurmctld lost this job.
        known = self.seen.since_lost_s(job_id) > self._unknown_s()
        if known and not self.judge("V2", if_bound(lambda pod, job: self._not_granted(pod, node, job, job_id, sent))):
            return
        if self.judge("V3", if_bound(lambda pod, _: self.too_much(pod, node))) and known:
            self.judge("V5", if_bound(lambda pod, job: self._given_twice(pod, node, job)))

    def _not_granted(self, pod: Object, node: str, job: SeenJob | None, job_id: int, sent: float) -> str:
        pod_name = full_name(pod)
        if job is None:
            return f"{pod_name} is bound for job {job_id}, which does not exist"
        if not self.seen.is_for(job, pod):
            return f"{pod_name} is bound for the job of another workload: {job.name}"
        if job.ended and (ago := sent - self.seen.of_slurm(job.ends)) > self._unknown_s():
            return f"{pod_name} is bound for job {job.id}, {job.state} {ago:.0f} s ago"
        if self.seen.exact and job.state == "PENDING":
            return f"{pod_name} is bound for job {job.id}, which has not started"
        found = self.seen.kube.node(node)
        if found is None:
            return f"{pod_name} is bound to {node}, which does not exist"
        known_as = (found["metadata"].get("labels") or {}).get(names.SLURM_NODE_LABEL, node)
        held = self.seen.held_by(job)
        if held and known_as not in held:
            return f"{pod_name} is bound to {node}, job {job.id} holds {fold(held)}"
        return ""

    def _unknown_s(self) -> float:
        """For how long the end or loss of a job may be unknown to the bridge."""
        return UNKNOWN_S if self.seen.exact else ON_ITS_WAY_S

    def too_much(self, pod: Object, node: str) -> str:
        found = self.seen.kube.node(node)
        if found is None:
            return ""  # V2 reports that
        wants, uid, ports = Counter(requests_of(pod)), pod["metadata"]["uid"], host_ports(pod)
        taken = Counter(wants)
        for other in self.seen.kube.pods():
            is_there = other["spec"].get("nodeName") == node and other["metadata"]["uid"] != uid
            bound_at, _ = self.seen.bound_by_others.get(other["metadata"]["uid"], (float("-inf"), None))
            if is_there and not is_finished(other) and self.seen.clock() - bound_at > UNHEARD_S:
                taken += Counter(requests_of(other))
                if ports_conflict(ports, host_ports(other)):
                    return f"{full_name(pod)} is bound to {node}, where {full_name(other)} has its host port"
        # Another client may have bound more than there is of a resource that this pod does not request.
        for resource in +wants:
            used, has = (
                taken[resource],
                amount(resource, found["status"]["allocatable"].get(resource, "0"), round_up=False),
            )
            if used > has:
                return f"{full_name(pod)} is bound to {node}: {used} {resource} of {has}"
        return ""

    def _given_twice(self, pod: Object, node: str, job: SeenJob | None) -> str:
        """V5: the grant of a single pod serves only that pod; the grant of a gang serves as many pods as it has places."""
        if job is None:
            return ""  # V2 reports that
        pod_name, uid = full_name(pod), pod["metadata"]["uid"]
        if job.tasks == 1 and not job.het_id and not gang_of(pod):
            first = self._served.setdefault(job.serial, uid)
            return f"job {job.id} served pod {first} before {pod_name}" if first != uid else ""
        together = [
            other
            for other in self.seen.kube.pods()
            if other["metadata"]["uid"] != uid
            and other["spec"].get("nodeName") == node
            and not is_finished(other)
            and shown_job(other) in (str(job.id), str(job.het_id))
            and self.seen.is_for(job, other)  # otherwise the pod shows an id that Slurm reused
        ]
        places = sum(part.places.get(self.seen.known_as(node), 0) for part in self.seen.parts(job))
        if places and len(together) + 1 > places:
            return f"{pod_name} is the pod number {len(together) + 1} on {node}, where job {job.id} has {places} places"
        return ""

    def _harm(self, pod: Object, method: str, *, not_before_s: float | None = None, at: float | None = None) -> None:
        """Check a request that ends the pod, now or `at` that time (V7).

        not_before_s   the pod may be ended so many seconds before the time limit of its job (S4b); None: not before its end
        """
        meta, sent = pod["metadata"], self.seen.clock()
        pod_name = full_name(pod)
        self.seen.note(f"{method} pod {pod_name}")
        shown = (meta.get("annotations") or {}).get(names.JOB_ID)
        if (
            shown is None
            or not pod["spec"].get("nodeName")
            or (self.seen.has_others_id(pod) and not self._may_be_lost(pod))
        ):
            if self.seen.exact:  # otherwise the pod may have been bound after its observation
                self.judge("V7", lambda: f"{pod_name} was never bound by the bridge, and the bridge ends it")
            return
        if self.seen.ends_pods:
            return
        ends = sent if at is None else at
        self.judge("V7", lambda: self._job_lived(pod, self._job_of(pod, int(shown), sent), sent, ends, not_before_s))

    def _job_of(self, pod: Object, shown: int, sent: float) -> SeenJob | None:
        """The job that the pod names; if Slurm lost that job, the job that replaced it some time ago (S7).

        Slurm may have reused the id of the lost job for other pods of the gang, which run elsewhere.  The pod does not show
        its replacement, or the replacement's time, yet.  So a replacement whose user the policy does not allow any more is
        not known to be the pod's job (V7).
        """
        job = self.seen.slurm.job(shown)
        node = self.seen.known_as(pod["spec"]["nodeName"])
        if job is not None and stood_alone(pod, job):
            job = None  # the pod's own job was lost, and a job of its gang got the id
        if job is not None and shows_earlier_job(pod, job) and not self._is_given(job, pod):
            job = None
        if job is not None and self.seen.is_for(job, pod) and (job.ended or node in self.seen.held_by(job)):
            return job
        own = (other for other in self.seen.ours() if self.seen.is_for(other, pod))
        own = (other for other in own if not stood_alone(pod, other))
        holding = (other for other in own if self._is_given(other, pod) and other.holds and node in other.nodes)
        return next((other for other in holding if self.seen.of_slurm(other.starts) < sent - ON_ITS_WAY_S), None)

    def _is_given(self, job: SeenJob, pod: Object) -> bool:
        """True if the policy gives the user of the job to the pods of this namespace now."""
        return self.seen.tenants.gives_now(pod["metadata"]["namespace"], job.user)

    def _job_lived(self, pod: Object, job: SeenJob | None, sent: float, ends: float, not_before_s: float | None) -> str:
        pod_name = full_name(pod)
        if job is None or not self.seen.is_for(job, pod):
            return ""  # Slurm lost it
        if any(not other["spec"].get("nodeName") for other in self.seen.members(pod)):
            return ""  # its gang could not be bound as a whole, so all its pods end (W9)
        if job.ended and (self.seen.exact or self.seen.of_slurm(job.ends) <= sent + CLOCKS_S):
            return ""
        if any("waiting" in container.get("state", {}) for container in pod["status"].get("containerStatuses") or ()):
            return ""  # the pod never started (S12)
        if job.preempted:
            return ""  # the time that is left is the pod's grace (S5)
        if not_before_s is not None and job.ends and ends >= self.seen.of_slurm(job.ends) - not_before_s - CLOCKS_S:
            return ""
        return f"{pod_name} is ended while its job {job.id} is {job.state}"

    def _may_be_lost(self, pod: Object) -> bool:
        """True if the bridge may think that Slurm lost the job of this pod, whose job id another client wrote (S7, S4).

        The bridge cannot distinguish the two cases if the namespace is managed and an earlier process may have bound the pod.
        If faults occur at a start, the first list comes late.
        """
        meta = pod["metadata"]
        since, _ = self.seen.bound_by_others.get(meta["uid"], (self.seen.of_kube(meta["creationTimestamp"]), None))
        return meta["namespace"] in self.seen.users and since < self.seen.born + ON_ITS_WAY_S

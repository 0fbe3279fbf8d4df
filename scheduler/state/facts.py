"""Queries of the facts of the World.  None of them changes anything.

Times are epoch seconds by the bridge's clock, unless a parameter says otherwise (scheduler/model/clocks.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.amounts import NO_TEXT
from scheduler.model.clocks import EXACT_S, FirstSeen
from scheduler.model.kubernetes import NodeTerm, Owner, OwnerRef, Pod, owner_key
from scheduler.model.slurm import UNLIMITED, is_ended
from scheduler.place.feasible import slurm_name
from scheduler.policy.rules import Tenant
from scheduler.state.phase import Phase
from scheduler.state.placeholder import CANCELLED, KnownTenant, Placeholder
from scheduler.state.tables import Tables
from scheduler.state.workload import Workload
from scheduler.translate.job_spec import TranslationContext

WHOLE_SECOND_S = 1.0  # Kubernetes rounds creation times down to whole seconds
MAX_OWNERS = 8  # levels of a chain of controllers that are searched for annotations
FOLLOWED = 200  # up to this many running jobs are each read at the full rate; twice as many at half of it


class Facts(Tables):
    """See the module."""

    @property
    def translation_context(self) -> TranslationContext:
        """The inputs of the translation of a pod, other than the pod."""
        return TranslationContext(
            self.config.translation,
            self.cluster,
            self.longest_min,
            self.config.policy.priorities,
            self.config.traced,
        )

    def longest_min(self, partition: str) -> int | None:
        """The longest time limit of a partition ("": of the default partition), minutes; None: not known."""
        known = self.partitions.get(partition or self.default_partition)
        if known is None:
            return None
        return UNLIMITED if known.max_time_min is None else known.max_time_min

    def manages(self, namespace: str) -> bool:
        """True if pods of that namespace may use the bridge."""
        known = (self.namespaces or {}).get(namespace)
        labelled = known is not None and known.labels.get(names.MANAGED_LABEL) == "true"
        return labelled or namespace in self.config.managed_namespaces

    def known_tenant(self, pods: Sequence[Pod]) -> KnownTenant | None:
        """The tenant of these pods, whose namespace is managed; None: a pod has no tenant, or the tenants differ."""
        tenants = [self.tenant_of(pod) for pod in pods]
        first = tenants[0] if tenants else None
        if not isinstance(first, Tenant) or any(tenant is not first for tenant in tenants):
            return None
        return KnownTenant(first, self.identity_changes)

    def quiet_until(self) -> float:
        """The end of the quiet period, in which the bridge cancels no job, evicts no pod and releases no grant."""
        return self.started if self.predecessor_drained else self.started + self.config.tuning.quiet_s

    def scanning_until(self) -> float:
        """The time until which pods older than this process wait for their placeholder to be found (ARCHITECTURE 4)."""
        return self.scan_ends_at if self.unread else float("-inf")

    @property
    def scan_ends_at(self) -> float:
        """The time after which no pod waits for unread jobs, even if there are some; -inf: before the first poll."""
        if self.first_polled is None:
            return float("-inf")
        return min(self.scan_until, self.first_polled + self.config.tuning.scan_s)

    @property
    def last_poll_began(self) -> float:
        """When the last answered poll of jobs was sent; -inf: none was answered."""
        return self.polled.began if self.polled is not None else float("-inf")

    def is_listed_alive(self, job_id: int) -> bool:
        """True if the last list of jobs shows a job of that id that has not ended."""
        return not is_ended(self.states.get(job_id, CANCELLED))

    def created_at(self, pod: Pod) -> float:
        """When the pod was created, by the bridge's clock."""
        return self.created([pod])[0]

    def created(self, pods: Iterable[Pod]) -> list[float]:
        """When each of these pods was created, by the bridge's clock."""
        clock, unseen = self.clocks[Side.KUBERNETES], FirstSeen(self.newest_event_at)
        return [
            (clock.had_happened if pod.uid in self.first_listed else clock.happened)(
                pod.created, self.first_seen.get(pod.uid, unseen).first
            )
            for pod in pods
        ]

    def since(self, theirs: float | None, pod: FirstSeen, seen: float | None) -> float:
        """When a change of a pod happened, by the bridge's clock.

        theirs   the time by the clock of Kubernetes
        pod      when this process first saw the pod
        seen     when the bridge saw the change; None: it happened before the bridge first saw the pod
        """
        clock = self.clocks[Side.KUBERNETES]
        return clock.had_happened(theirs, pod.first) if seen is None else clock.happened(theirs, seen)

    def started_at(self, pod: Pod) -> float | None:
        """When kubelet accepted the pod, by the bridge's clock; None: kubelet has not accepted it, or the time is not known.

        The node's clock may be wrong.  So kubelet's time counts only if it is between the bind, by the clock of the API
        server, and the observation, which a watch may delay.  Otherwise the time of the observation counts.
        """
        if pod.started is None:
            return None
        clock = self.clocks[Side.KUBERNETES]
        seen = self.first_seen.get(pod.uid) or FirstSeen(self.newest_event_at)
        theirs = clock.ours(pod.started)
        if seen.started is None:
            return theirs if theirs <= seen.first + EXACT_S else None
        since = seen.started
        if clock.is_known and pod.bound_at is not None:
            since = min(since, clock.ours(pod.bound_at))
        return theirs if since - EXACT_S <= theirs <= seen.started + EXACT_S else seen.started

    def is_inherited(self, workload: Workload) -> bool:
        """True if the workload is older than this process: a previous process may have bound its pods."""
        if not self.first_listed.isdisjoint(workload.pods):
            return True
        return self.clocks[Side.KUBERNETES].ours(workload.created) < self.started - WHOLE_SECOND_S

    def is_older(self, pod: Pod) -> bool:
        """True if the pod is older than this process: a previous process may have bound it."""
        is_found = pod.uid in self.first_listed
        return is_found or self.clocks[Side.KUBERNETES].ours(pod.created) < self.started - WHOLE_SECOND_S

    def may_have_bound(self, workload: Workload) -> bool:
        """True if this process or a previous one may have bound pods of the workload."""
        return workload.bound_by_this_process or self.is_inherited(workload)

    def may_be_bound_yet(self, workload: Workload) -> bool:
        """True if a bind of a pod of the workload is in flight, or its answer was lost and the pod was not read since."""
        binding = any(isinstance(in_flight.action, act.BindPod) for in_flight in workload.pods_in_flight.values())
        return binding or not self.unanswered_binds.keys().isdisjoint(workload.pods)

    def jobs_of(self, workload: Workload) -> list[Placeholder]:
        """The placeholders that are or may be this workload's, and last its lost job."""
        candidates = [self.placeholders[job_id] for job_id in workload.jobs]
        return candidates if workload.lost_job is None else [*candidates, workload.lost_job]

    def job_of_bound_pods(self, workload: Workload) -> Placeholder | None:
        """The job of bound pods: the job that they name, or the workload's own job if the pods name another job.

        None: neither is known.
        """
        own = [job for job in self.jobs_of(workload) if job.key == workload.key]
        named = self.placeholders.get(workload.hint) if workload.hint is not None else None
        if own and (named is None or named.key != workload.key):
            return min(own, key=lambda job: (not job.alive, job.id))
        return named

    def slurm_nodes_under(self, workload: Workload) -> set[str]:
        """Slurm's names of the nodes on which unfinished pods of the workload are."""
        return {self.in_slurm(node) for pod in workload.unfinished if (node := workload.node_of(pod))}

    def workloads_of(self, job: Placeholder) -> list[Workload]:
        keys = job.hinted_by | {job.key} if job.key is not None else job.hinted_by
        return [self.workloads[key] for key in sorted(keys) if key in self.workloads]

    def owners_of(self, pod: Pod) -> tuple[tuple[Owner, ...], OwnerRef | None]:
        """The known controllers of the pod, nearest first, and a reference to the first that was not read; None: all were."""
        chain: list[Owner] = []
        ref = pod.owner
        while ref is not None and len(chain) < MAX_OWNERS:
            key = owner_key(pod.namespace, ref)
            if key not in self.owners:
                return tuple(chain), ref
            owner = self.owners[key]
            if owner is None:
                break
            if owner.ref.kind == "Deployment" and chain and chain[-1].ref.kind == "ReplicaSet":
                # Kubernetes copies annotations of a Deployment to its ReplicaSets, and never takes them away there.
                chain[-1] = replace(chain[-1], annotations=NO_TEXT)
            chain.append(owner)
            ref = owner.owner
        return tuple(chain), None

    def size_source_of(self, workload: Workload) -> Owner | None:
        """The object that defines the size of the workload's group; None: it was not read, or does not exist (W2).

        The workload has pods.
        """
        group = workload.group
        if group is None:
            return None
        if group.size_source is not None:
            return self.owners.get(owner_key(workload.pod.namespace, group.size_source))
        return self.owner_of_kind(workload.pod, group.size_source_kind)

    def owner_of_kind(self, pod: Pod, kind: str) -> Owner | None:
        """The nearest controller of the pod that is of that kind; None: there is none, or it was not read."""
        return next((owner for owner in self.owners_of(pod)[0] if owner.ref.kind == kind), None)

    def grace_ends(self, pod: Pod) -> float | None:
        """When the grace period of a bound pod ends, by the bridge's clock; None: the pod is not being deleted."""
        there = self.node_info.get(pod.node)
        ends = there.grace_ends(pod.uid) if there is not None else None
        return ends if ends is not None else pod.deleting_at

    def has_undecoded_pods(self, workload: Workload, user: str) -> bool:
        """True if a workload without known pods may have a pod that cannot be decoded.  user: the Slurm user of its job

        The gang of such a pod is not known, so the pod may belong to any workload of its namespace.
        """
        if workload.pods or workload.deleted_pods:
            return False
        return any(
            pod.uid not in self.key_of_pod
            and (not pod.namespace or self.config.policy.can_give_in(pod.namespace, user))
            for pod in self.undecoded.pods()
        )

    def in_slurm(self, node: str) -> str:
        """The name of that Kubernetes node in Slurm; if the node is not known, its Kubernetes name."""
        known = (self.nodes or {}).get(node)
        return node if known is None else slurm_name(known)

    def volumes_of(self, pod: Pod) -> tuple[tuple[NodeTerm, ...], ...]:
        """The required node affinity of each volume of the pod, made or still to be made, that has one (F1)."""
        return tuple(claim.affinity for claim in self.claims.get(pod.uid, ()) if claim.affinity is not None)

    @property
    def counted_by_slurm(self) -> frozenset[str]:
        """The names in Kubernetes of the resources that Slurm counts.  No two grants share a part of these resources."""
        return frozenset({"cpu", *self.config.translation.gres, *(["memory"] if self.counts_memory else [])})

    def partition_asked(self, action: act.AllocateNow | act.SubmitJob) -> str:
        """The partition of that submission."""
        return action.spec.partition or self.default_partition

    def tokens_of_read(self, bucket: str) -> int:
        """How many tokens one read takes from the bucket.  The more jobs run, the less often each of them is read (S9)."""
        return max(1, len(self.by_phase[Phase.BOUND]) // FOLLOWED) if bucket == "running" else 1

    def is_under_way(self, action: act.Action) -> bool:
        """True if the action is in flight: its plan was applied, and it has not ended."""
        return id(action) in self.in_flight

    def story(self, key: str) -> list[tuple[float, str]]:
        """The last events and actions of one workload with their times, oldest first."""
        workload = self.workloads.get(key)
        return list(workload.story) if workload else []

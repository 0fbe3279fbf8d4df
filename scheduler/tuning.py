"""Times, rates and sizes of the decisions; each is a setting with this default (units in the names)."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.jobspec import Translation
from scheduler.policy import Policy
from scheduler.registration import ExternalNodes


@dataclass(frozen=True, slots=True)
class Tuning:
    """Seconds, counts and counts a second.

    pass_effort             a pass judges about so many nodes (2 µs each; the translation of a pod counts as 15), and leaves
                            the other workloads to the next pass, so that news never waits long
    settle_s                after an unknown outcome nothing is repeated for so long: the longest call deadline
    quiet_s                 after start nothing is cancelled, evicted or given back: a previous life's request may still land
    breaker_open_s          no immediate allocation in a partition after two refusals for lack of room (ARCHITECTURE 5)
    refused_retry_s         a job refused for good is tried again after so long, though nothing changed (Q4)
    backoff_s, backoff_max_s  first and longest wait after a failed attempt, doubling between
    absent_s                a job must be absent for so long, in two polls, before its pods are harmed (ARCHITECTURE 6)
    absent_burst, absent_share, absent_within_s  more placeholders that vanish within so many seconds than the larger of
                            the first two: nobody is ended for it (X6)
    retake_s                the nodes of a lost job are asked for so long, while Slurm gives them to nobody else (S7)
    missing_rate, retake_rate, absent_rate  of jobs that vanish so many a second are read (X6), and of lost ones so many are
                            asked for anew (S7), and so many pods ended
    exclude_s               a node on which a grant could not be used is not asked for again for so long, and then judged
                            every so long (F6, scheduler/crowding.py)
    silent_node_s           containers on a node whose kubelet says nothing are taken as running for so long (S8); and no
                            grace of a pod counts for longer: it neither holds a job, its own or one granted in its place,
                            nor keeps the pod on its nodes when its job is over (S4)
    revoke_grace_max_s      longest grace of a pod on devices that Slurm may give to a native job meanwhile (G3)
    gone_grace_s            a pod that vanished without an end keeps its placeholder for its grace, at most silent_node_s, and
                            so much more (S3)
    gang_timeout_s          after so long the members of a gang say what may hold the rest back (W6)
    gang_bind_deadline_s    a gang of which not all are bound so long after its first bind is unwound (V4)
    claims_s, claims_every_s  a bind waits so long for its volumes to be made, and looks so often (F4)
    condition_s             the condition of one pod is written at most once in so long (Q2)
    renew_event_s           the pending event is renewed after so long (Q2)
    detail_rate, detail_fresh_s, detail_every_s  reads a second of pending jobs; when a new one is first read; and each again
    outage_s     the pods are told of an outage that lasts so long; nothing is submitted from its first moment on
    stale_s      nothing is decided when Kubernetes has not answered for so long: what is known of it is too old (X2)
    unlooked_s   a waiting job that Slurm has not looked at yet is not told of, and read again, for so long
    owner_rate   owners of pods that wait are read again, so many a second
    scan_s, scan_rate, unknown_rate  reads of unknown job ids at start: for how long, how many a second; and later
    kick_every_s            at most one kick in so long
    running_rate, running_fresh_s, running_every_s  reads a second of jobs whose pods run, for their ends; when one is first
                            read; and each again at the earliest (S9); less often where more than 200 run
    end_notice_s            so long before its time limit the pods of a job are warned and their ends handed to kubelet (S4b)
    end_lead_s              they have ended, and had their grace for that, so long before Slurm ends the job
    end_lead_max_s          SIGTERM comes so long before that at most, whatever grace a pod asks for
    service_notice_s        services are evicted, one replica at a time, from so long before it on (or half of the job's time)
    start_said_s            a pod that is bound and does not start says so after so long (S12)
    start_timeout_s         and is ended after so long with a reason that needs a person (scheduler/kubelet.py); 0: never
    crashes_said_s          a crash loop is said again after so long, and taken back after twice that without one (S12)
    feasibility_every_s     pending jobs are told of changed nodes at most once in so long (F2)
    records_waiting         ends that wait to be recorded while slurmdbd is away; of more the oldest are given up
    submits, reads, cancels, records, binds, reports, node_changes, node_reports  how many actions of a kind may be under way
    node_settle_s   a node is registered when it has been ready for so long: device plugins start after kubelet (N1)
    node_unlike_s   a registered node is replaced when its size has been wrong for so long without a break (N1)
    node_gone_s     a node that is not wanted any more is removed from Slurm after so long (N5)
    node_down_s     a node that is not ready, and on which nothing runs any more, is set down after so long (N4)
    node_silent_s, cure_every_s  NOT_RESPONDING for so long is cured; at most once in so long (N3)
    node_retry_s    what Slurm did not do to a node is tried again after so long
    quarantine_s    what an error of the bridge's own is contained to is tried again after so long, though nothing changed
    """

    pass_effort: int = 4_000
    settle_s: float = 12.0
    quiet_s: float = 12.0
    breaker_open_s: float = 60.0
    refused_retry_s: float = 300.0
    backoff_s: float = 1.0
    backoff_max_s: float = 60.0
    absent_s: float = 2.0
    absent_burst: int = 10
    absent_share: float = 0.05
    absent_within_s: float = 10.0
    missing_rate: float = 100.0
    retake_rate: float = 10.0
    retake_s: float = 120.0
    absent_rate: float = 20.0
    exclude_s: float = 60.0
    gone_grace_s: float = 10.0
    silent_node_s: float = 300.0
    revoke_grace_max_s: int = 30
    gang_timeout_s: float = 300.0
    gang_bind_deadline_s: float = 30.0
    claims_s: float = 120.0
    claims_every_s: float = 1.0
    condition_s: float = 5.0
    renew_event_s: float = 1800.0
    detail_rate: float = 8.0
    detail_fresh_s: float = 1.0
    detail_every_s: float = 15.0
    unlooked_s: float = 3.0
    stale_s: float = 30.0
    outage_s: float = 3.0
    owner_rate: float = 4.0
    scan_s: float = 3.0
    scan_rate: float = 500.0
    unknown_rate: float = 5.0
    kick_every_s: float = 1.0
    running_rate: float = 4.0
    running_fresh_s: float = 30.0
    running_every_s: float = 60.0
    end_notice_s: float = 120.0
    end_lead_s: float = 10.0
    end_lead_max_s: float = 3600.0
    service_notice_s: float = 600.0
    start_said_s: float = 60.0
    start_timeout_s: float = 600.0
    crashes_said_s: float = 600.0
    feasibility_every_s: float = 1.0
    submits: int = 16
    reads: int = 16
    cancels: int = 16
    records: int = 2
    records_waiting: int = 10_000
    binds: int = 64
    reports: int = 16
    node_changes: int = 2
    node_reports: int = 4
    node_settle_s: float = 60.0
    node_unlike_s: float = 600.0
    node_gone_s: float = 60.0
    node_down_s: float = 300.0
    node_silent_s: float = 60.0
    cure_every_s: float = 600.0
    node_retry_s: float = 60.0
    quarantine_s: float = 180.0

    def grace_counts_s(self, grace_s: float) -> float:
        """What of a pod's grace counts: Kubernetes takes one of 300 years."""
        return min(grace_s, self.silent_node_s)


@dataclass(frozen=True, slots=True)
class Config:
    """What the admin decided, as the core needs it.

    managed_namespaces   managed besides those with the label
    pending_reason       reason of the condition while Slurm decides; "" : the bridge's own (Q3)
    accounting           slurmdbd answers: ends are recorded there (S2)
    device_driver        nodes give a pod the GPUs that its annotation job-gpus names (G1)
    external_nodes       how labelled nodes are kept in Slurm (rules N)
    bypass               what becomes of pods that reach a shared node without Slurm: "warn", or "end" (bypass.py)
    shared_nodes         nodes that both know anyway are drained and resumed with Kubernetes, and say how Slurm sees them (N8)
    leaving              the bridge is being uninstalled (leaving.py): "wait" lets pods run to their end, "end" ends them;
                         "": it is not
    """

    policy: Policy = field(default_factory=Policy)
    translation: Translation = field(default_factory=lambda: Translation(gres={"nvidia.com/gpu": "gpu"}))
    tuning: Tuning = field(default_factory=Tuning)
    managed_namespaces: frozenset[str] = frozenset()
    scheduler_name: str = "slurm-bridge"
    pending_reason: str = ""
    accounting: bool = False
    device_driver: bool = False
    external_nodes: ExternalNodes = field(default_factory=ExternalNodes)
    shared_nodes: bool = True
    bypass: str = "warn"
    leaving: str = ""

"""Times, rates and sizes of the decisions; each is a setting with this default (units in the names).

A value with a text is part of the reference (docs/settings.md): an admin may change it, and its text says when.  All
others are internal: settings may name them, for tests and experiments, and any release may change or drop them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scheduler.model.setting import LARGEST, setting
from scheduler.nodes.registration import ExternalNodes
from scheduler.policy.rules import Policy
from scheduler.translate.job_spec import Translation


def _seconds(default: float, description: str = "") -> Any:
    return setting(default, description, ge=0, le=LARGEST)


def _rate(default: float) -> Any:
    return setting(default, gt=0, le=LARGEST)


def _whole(default: int, description: str = "") -> Any:
    return setting(default, description, ge=1, le=LARGEST)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Seconds, counts and counts a second.  Here are the internal values; values for admins are declared with their text.

    pass_effort       nodes that one pass judges (2 µs each; the translation of a pod counts as 15); the other workloads
                      wait for the next pass, so that events never wait long
    settle_s          after an unknown outcome nothing is repeated for this time: the longest deadline of a call, which counts
                      from when the call has a connection
    quiet_s           after the start nothing is cancelled, evicted or released for this time: a request of the previous
                      process may still take effect
    backoff_s, backoff_max_s  first and longest wait after a failed attempt, doubling between
    absent_s          a job must be absent for this time, in two polls, before its pods are ended (ARCHITECTURE 6)
    absent_burst, absent_share, absent_within_s  if more placeholders than the larger of the first two (a count, a share
                      of all) vanish within the third, no pod is ended for it (X6)
    missing_rate, reacquire_rate, absent_rate  reads of vanished jobs a second (X6); resubmissions of lost jobs a second
                      (S7); ends of pods a second
    exclude_s         a node on which a grant could not be used is excluded for this time, then judged again (F6,
                      scheduler/rules/crowding.py)
    gone_grace_s      a pod that was deleted without an observed end keeps its placeholder for its grace (at most
                      silent_node_s) and this time (S3)
    claims_every_s    time between two reads of volumes that a bind waits for (F4)
    condition_s       least time between two writes of the condition of one pod (Q2)
    renew_event_s     the event of a pending pod is renewed after this time (Q2)
    detail_rate, detail_fresh_s, detail_front_s, detail_every_s  reads of pending jobs a second; time until the first read
                      of a job; time between two reads of a job at the front of the queue; longest time between two reads
                      of any other: the fewer jobs wait, the shorter
    limits_rate, limits_every_s  reads of Slurm's limits a second; least time between two reads of the same limits (Q2)
    outage_s          conditions of pods show an outage after this time; submissions stop at once
    stale_s           nothing is decided if Kubernetes has not answered for this time: the facts are stale (X2)
    unconsidered_s    a waiting job that slurmctld has not considered yet is not shown on its pods for this time; for twice
                      this time it is read as a new job is
    unread_s          a pod whose job waits and was not read yet, or is looked for, says so after this time
    owner_rate        repeated reads of the owners of waiting pods a second
    scan_s, scan_rate, unknown_rate  reads of unknown job ids: for how long after the start, and how many a second; then
                      how many a second
    nudge_every_s     least time between two nudges
    running_rate, running_fresh_s, running_every_s  reads a second of jobs whose pods run, for their ends; time until the
                      first read; least time between two reads of one job (S9), longer if more than 200 run
    crashes_said_s    a crash loop is shown again after this time, and no longer after twice that without a crash (S12)
    feasibility_every_s  least time between two updates of pending jobs because nodes changed (F2)
    submits, reads, cancels, records, binds, pod_conditions, node_changes, node_conditions  the most actions of a limit
                      class that may be in flight (scheduler/actions.py)
    node_gone_s       a registered node without a labelled Kubernetes node is removed from Slurm after this time (N5)
    node_silent_s, cure_every_s  a node that is NOT_RESPONDING for this time is registered again or reconfigured; least time
                      between two reconfigurations (N3)
    node_retry_s      an action on a node that Slurm refused is tried again after this time; after a lost answer, settle_s
    quarantine_s      an object in quarantine is tried again after this time, even without a change
    validate_every    all indexes of the World are checked after each such number of events, for debugging; 0: never.  A
                      check takes milliseconds, and a failed one ends the process (scheduler/state/derived.py)
    """

    pass_effort: int = _whole(4_000)
    settle_s: float = _seconds(12.0)
    quiet_s: float = _seconds(12.0)
    breaker_open_s: float = _seconds(  # ARCHITECTURE 5
        60.0,
        "After two immediate allocations in a partition were refused for lack of room, jobs there are only "
        "queued for this time. Each refused allocation leaves a FAILED record in accounting.\n"
        "Raise it to get fewer of these records.",
    )
    refused_retry_s: float = _seconds(  # Q4
        300.0,
        "A job that Slurm refused for good is tried again after this time, even if nothing changed.\n"
        "Lower it if changes in slurmdbd (accounts, QOS) must take effect sooner.",
    )
    backoff_s: float = _seconds(1.0)
    backoff_max_s: float = _seconds(60.0)
    absent_s: float = _seconds(2.0)
    absent_burst: int = _whole(10)
    absent_share: float = setting(0.05, ge=0, le=1)
    absent_within_s: float = _seconds(10.0)
    missing_rate: float = _rate(100.0)
    reacquire_rate: float = _rate(10.0)
    retake_s: float = _seconds(  # S7
        120.0,
        "If Slurm lost a job, the bridge asks for the same nodes again for this time. Then it ends the pods of "
        "the job.\n"
        "Raise it if nodes come back to Slurm late after slurmctld lost its state.",
    )
    absent_rate: float = _rate(20.0)
    exclude_s: float = _seconds(60.0)
    gone_grace_s: float = _seconds(10.0)
    silent_node_s: float = _seconds(  # S8, S4
        300.0,
        "Containers on a node whose kubelet is silent count as running for this time. It is also the longest "
        "grace that counts when the job of a pod is over.\n"
        "Lower it if the job of a deleted pod must give its devices back sooner after its node failed.",
    )
    revoke_grace_max_s: int = _whole(  # G3
        30,
        "Longest grace of a pod that uses devices which Slurm may already give to another job.\n"
        "Raise it if such pods need more time to save their state.",
    )
    gang_timeout_s: float = _seconds(  # W6
        300.0,
        "After this time the pods of an incomplete gang also say what may hold the others back. The annotation "
        "`gang-timeout` overrides it.\n"
        "Raise it if gangs are created slowly.",
    )
    gang_bind_deadline_s: float = _seconds(  # V4
        30.0,
        "A gang is ended and asked for again if not all of its pods are bound this long after its first bind.\n"
        "Raise it if the API server is slow or gangs have thousands of pods.",
    )
    claims_s: float = _seconds(  # F4
        120.0,
        "A bind waits this long for the volumes of the pod to be provisioned. Then the grant is released.\n"
        "Raise it if the storage provisioner needs more time.",
    )
    claims_every_s: float = _seconds(1.0)
    condition_s: float = _seconds(2.0)
    renew_event_s: float = _seconds(1800.0)
    detail_rate: float = _rate(8.0)
    detail_fresh_s: float = _seconds(1.0)
    detail_front_s: float = _seconds(1.5)
    detail_every_s: float = _seconds(15.0)
    unconsidered_s: float = _seconds(3.0)
    unread_s: float = _seconds(10.0)
    limits_rate: float = _rate(2.0)
    limits_every_s: float = _seconds(60.0)
    stale_s: float = _seconds(30.0)
    outage_s: float = _seconds(3.0)
    owner_rate: float = _rate(4.0)
    scan_s: float = _seconds(3.0)
    scan_rate: float = _rate(500.0)
    unknown_rate: float = _rate(5.0)
    nudge_every_s: float = _seconds(1.0)
    running_rate: float = _rate(4.0)
    running_fresh_s: float = _seconds(30.0)
    running_every_s: float = _seconds(60.0)
    end_notice_s: float = _seconds(  # S4b
        120.0,
        "A pod is warned this long before the time limit of its job (`SlurmJobEndsSoon`), and kubelet gets its "
        "deadline. A time limit that is extended later has no effect on the pod.\n"
        "Raise it if users need an earlier warning.",
    )
    end_lead_s: float = _seconds(  # S4b
        10.0,
        "The grace of a pod is over this long before Slurm ends its job at the time limit.\n"
        "Raise it if containers still run when Slurm ends their job.",
    )
    end_lead_max_s: float = _seconds(  # S4b
        3600.0,
        "SIGTERM comes at most this long before the time limit, even if the grace of the pod or its annotation "
        "`signal` asks for more.\n"
        "Raise it if checkpoints take longer than an hour.",
    )
    service_notice_s: float = _seconds(  # S4b
        600.0,
        "Services (`restartPolicy: Always`) are evicted one replica at a time, from this long before the time "
        "limit of their job on. At most half of the job's time.\n"
        "Raise it if services have many replicas or start slowly.",
    )
    start_said_s: float = _seconds(  # S12
        60.0,
        "A bound pod that does not start says so after this time (`PodNotStarting`).\n"
        "Raise it if large images usually take longer to pull.",
    )
    start_timeout_s: float = _seconds(  # S12, scheduler/model/kubelet.py
        600.0,
        "A bound pod that cannot start for a reason that waiting does not mend (an image that does not exist, "
        "for example) is ended after this time, so that its nodes become free. 0: never.\n"
        "Lower it to free the nodes sooner; set it to 0 if a person shall decide.",
    )
    crashes_said_s: float = _seconds(600.0)
    feasibility_every_s: float = _seconds(1.0)
    submits: int = _whole(16)
    reads: int = _whole(16)
    cancels: int = _whole(16)
    records: int = _whole(2)
    records_waiting: int = _whole(  # S2
        10_000,
        "Number of ended jobs whose end waits to be recorded while slurmdbd is away. If there are more, the "
        "oldest are dropped.\n"
        "Raise it if slurmdbd may be away for long while many pods end.",
    )
    binds: int = _whole(64)
    pod_conditions: int = _whole(16)
    node_changes: int = _whole(2)
    node_conditions: int = _whole(4)
    node_settle_s: float = _seconds(  # N1
        60.0,
        "A labelled node is registered in Slurm when it has been ready for this time.\n"
        "Raise it if device plugins start later than that: the node would be registered without devices.",
    )
    node_unlike_s: float = _seconds(  # N1
        600.0,
        "A registered node is drained and registered again if it has offered less than what is registered for "
        "this time without a break.\n"
        "Raise it if restarts of device plugins take longer.",
    )
    node_gone_s: float = _seconds(60.0)
    node_down_s: float = _seconds(  # N4
        300.0,
        "A registered node is set down in Slurm if it has not been ready for this time and nothing runs there "
        "any more.\n"
        "Raise it if nodes often are not ready for longer and come back.",
    )
    node_silent_s: float = _seconds(60.0)
    cure_every_s: float = _seconds(600.0)
    node_retry_s: float = _seconds(60.0)
    quarantine_s: float = _seconds(180.0)
    validate_every: int = setting(0, ge=0, le=LARGEST)

    def grace_counts_s(self, grace_s: float) -> float:
        """The part of a pod's grace that counts, in seconds: Kubernetes accepts 300 years."""
        return min(grace_s, self.silent_node_s)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of the scheduler.

    managed_namespaces   namespaces that are managed without the label
    pending_reason       reason of the condition of pods whose jobs wait; "" : the bridge's own (Q3)
    accounting           slurmdbd answers: ends are recorded there (S2)
    device_driver        nodes give a pod the GPUs that its annotation job-gpus names (G1)
    external_nodes       settings for labelled nodes (rules N)
    bypass               for pods of other schedulers on a node of Slurm: "warn", or "end" (scheduler/rules/bypass.py)
    shared_nodes         nodes in slurm.conf that Kubernetes has, too, are drained and resumed with Kubernetes, and have the
                         bridge's condition (N8)
    leaving              the bridge is being uninstalled (scheduler/rules/uninstall.py): "wait" lets pods run to their end,
                         "end" ends them; "": it is not
    traced               traces are sent, so comments of jobs name them (O3)
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
    traced: bool = False

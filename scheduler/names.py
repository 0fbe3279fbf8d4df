"""Every key the bridge reads or writes, spelled once (rules K), and the name that says whose a job is.

A placeholder is found again by its name and its user alone (ARCHITECTURE 4): `<readable>~<cluster>.<key>`.  The
readable part is for people; what follows the last `~` is for us.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

SCHEDULER_NAME = "slurm-bridge"
PREFIX = "slurm-bridge/"
ALIAS_PREFIX = "slurmjob.slinky.slurm.net/"

MANAGED_LABEL = PREFIX + "managed"
SYSTEM_LABEL = PREFIX + "system"  # on namespaces whose pods serve the nodes themselves
MANAGED_TAINT = PREFIX + "managed"
SLURM_NODE_LABEL = PREFIX + "slurm-node"
EXTERNAL_NODE_LABEL = PREFIX + "external-node"
PARTITIONS = PREFIX + "partitions"

# Annotations that choose what sbatch's options of that name choose.
ACCOUNT = "account"
PARTITION = "partition"
QOS = "qos"
RESERVATION = "reservation"
CONSTRAINTS = "constraints"
WCKEY = "wckey"
JOB_NAME = "job-name"
COMMENT = "comment"
TIME_LIMIT = "time-limit"
TIME_MIN = "time-min"
SIGNAL = "signal"
NICE = "nice"
EXCLUSIVE = "exclusive"
GRES = "gres"
CPUS_PER_TASK = "cpus-per-task"
MEMORY = "memory"
MIN_NODES = "min-nodes"
MAX_NODES = "max-nodes"
LICENSES = "licenses"
BEGIN = "begin"
DEPENDENCY = "dependency"
SWITCHES = "switches"

# Which pods stand or fall together: a label, and annotations of the pod itself (K3).
GANG = "gang"
GANG_SIZE = "gang-size"
GANG_TIMEOUT = "gang-timeout"
GROUPING = frozenset({GANG, GANG_SIZE, GANG_TIMEOUT})
JOB_OPTIONS = frozenset(
    {
        ACCOUNT,
        PARTITION,
        QOS,
        RESERVATION,
        CONSTRAINTS,
        WCKEY,
        JOB_NAME,
        COMMENT,
        TIME_LIMIT,
        TIME_MIN,
        SIGNAL,
        NICE,
        EXCLUSIVE,
        GRES,
        CPUS_PER_TASK,
        MEMORY,
        MIN_NODES,
        MAX_NODES,
        LICENSES,
        BEGIN,
        DEPENDENCY,
        SWITCHES,
    }
)

MIRROR = "kubernetes.io/config.mirror"  # kubelet's, on the pods that mirror its static ones

# Written with the bind; for people, and by the downward API for programs in the pod.
JOB_ID = PREFIX + "job-id"
JOB_NODES = PREFIX + "job-nodes"
SIZE = PREFIX + "size"
RANK = PREFIX + "rank"
LOCAL_RANK = PREFIX + "local-rank"
JOB_GPUS = PREFIX + "job-gpus"
STAGE = PREFIX + "stage"
TRACEPARENT = PREFIX + "traceparent"
JOB_SINCE = PREFIX + "job-since"  # written if another job takes the place of the bind's: a time at which Slurm had it
ONLY_OURS = (JOB_ID, JOB_SINCE, JOB_NODES, JOB_GPUS, STAGE, SIZE, RANK, LOCAL_RANK)  # nobody else writes these
WRITTEN_BY_US = frozenset(key.removeprefix(PREFIX) for key in (*ONLY_OURS, TRACEPARENT))

# What admission reads, before the pod has a scheduler (manifests/admission/intercept.yaml); it means nothing to the bridge.
INTERCEPT = "intercept"

# The Go slurm-bridge's keys, so that its users move by changing schedulerName.
ALIASES = {
    "account": ACCOUNT,
    "constraints": CONSTRAINTS,
    "cpu-per-task": CPUS_PER_TASK,
    "exclusive": EXCLUSIVE,
    "gres": GRES,
    "job-name": JOB_NAME,
    "licenses": LICENSES,
    "max-nodes": MAX_NODES,
    "mem-per-node": MEMORY,
    "min-nodes": MIN_NODES,
    "partition": PARTITION,
    "qos": QOS,
    "reservation": RESERVATION,
    "timelimit": TIME_LIMIT,
    "wckey": WCKEY,
}
# Those of its keys that are the admin's to decide (K7).
ALIASES_REFUSED = frozenset({"priority", "user-id", "group-id"})

# Reasons of the PodScheduled condition and of events (O1, Q3: never "Unschedulable", autoscalers would add nodes).
SUBMITTED = "SlurmJobSubmitted"
PENDING = "SlurmJobPending"
REFUSED = "SlurmJobRefused"
ENDED = "SlurmJobEnded"
ABSENCE = "SlurmJobMissing"
RETAKEN = "SlurmJobReplaced"
NO_NODE = "SlurmNoFeasibleNode"
NOT_MANAGED = "NamespaceNotManaged"
UNAVAILABLE = "SlurmUnavailable"
LIMITED = "SlurmLimitReached"
GRANT_WAITS = "SlurmGrantWaiting"
GIVEN_BACK = "SlurmGrantGivenBack"
GATHERING = "GangGathering"
SCHEDULED = "Scheduled"
BYPASS = "SlurmBypassed"
LEAVING = "SlurmBridgeUninstalled"
LACKS_RIGHTS = "SlurmBridgeLacksRights"
CHANGE_IGNORED = "SlurmChangeIgnored"
PUT_BACK = "SlurmKeysPutBack"
DISBELIEVED = "SlurmNotBelieved"
UNREADABLE = "SlurmBridgeCannotRead"
QUARANTINED = "SlurmBridgeError"
# The condition of bound pods, and its reasons.
RUNNING_CONDITION = PREFIX + "job-running"
RUNS = "SlurmJobRuns"
SUSPENDED = "SlurmJobSuspended"
ENDS_SOON = "SlurmJobEndsSoon"
NOT_STARTING = "PodNotStarting"
CRASHING = "PodCrashLooping"

# Of nodes (N2, N3): the condition that says how Slurm sees them, its reasons, and how a drain of ours begins.
IN_SLURM = "SlurmReady"
NODE_IN_SERVICE = "SlurmNodeInService"
NODE_DRAINED = "SlurmNodeDrained"
NODE_DOWN = "SlurmNodeDown"
NODE_SILENT = "SlurmNodeNotResponding"
NODE_WAITS = "SlurmNodeWaiting"
NODE_REFUSED = "SlurmNodeRefused"
NODE_INVALID = "SlurmNodeInvalid"
NODE_NOT_OURS = "SlurmNodeNotOurs"
NODE_CONTESTED = "SlurmNodeContested"
NODE_OUTSIDE = "SlurmNodeOutsidePartition"
NODE_REASON = "slurm-bridge: "
NODE_MARK = "slurm-bridge-"  # how the feature begins that says who registered it

MAX_READABLE = 200
_OURS = re.compile(r"~(k[0-9a-f]{8})\.([0-9a-f]{16})\Z")
_SHOWN_JOB = re.compile(r"\b[Jj]ob (\d{1,10})\b")


@lru_cache(64)  # there are a few; a pod may name any scheduler, and its name is cut where the pod is read
def cluster_id(kube_system_uid: str, scheduler_name: str = SCHEDULER_NAME) -> str:
    """Which Kubernetes, and which scheduler there: two of them can share one Slurm, and neither ends the other's jobs."""
    identity = kube_system_uid if scheduler_name == SCHEDULER_NAME else f"{kube_system_uid}/{scheduler_name}"
    return "k" + hashlib.sha256(identity.encode()).hexdigest()[:8]


def node_mark(cluster: str) -> str:
    """The feature that says which Kubernetes a node of Slurm was registered by: it comes with the node, and stays."""
    return NODE_MARK + cluster


def workload_key(identity: str) -> str:
    """The key of a workload: a hash of the pod's UID (of a gang: of what names the gang)."""
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def job_name(readable: str, cluster: str, key: str) -> str:
    """The name that says whose the job is.  `readable` is cut: people read it, nothing depends on it."""
    return f"{readable[:MAX_READABLE]}~{cluster}.{key}"


def whose(name: str) -> tuple[str, str] | None:
    """(cluster, key) of a job's name; None where the name is not one of ours."""
    match = _OURS.search(name)
    return (match[1], match[2]) if match else None


def shown_job(message: str) -> int | None:
    """The job id that a condition written by us shows: a hint, never a proof."""
    match = _SHOWN_JOB.search(message)
    return int(match[1]) if match else None


def traceparent(cluster: str, key: str) -> str:
    """W3C trace context whose trace id follows from the workload, so that a restart continues the same trace (O3)."""
    digest = hashlib.sha256(f"{cluster}.{key}".encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"

"""Every key that the bridge reads or writes, spelled once (rules K), and the names of jobs.

The name and the user identify a placeholder (ARCHITECTURE 4): `<readable>~<cluster>.<key>`.  The readable part is for people;
the bridge reads the part after the last `~`.
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

# Annotations that mean the same as sbatch's options of that name.
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

# Which pods form a gang: a label, and annotations of the pod itself (K3).
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

MIRROR = "kubernetes.io/config.mirror"  # set by kubelet on mirror pods of its static pods

# Written with the bind, for people, and for programs in the pod by the downward API.
JOB_ID = PREFIX + "job-id"
JOB_NODES = PREFIX + "job-nodes"
SIZE = PREFIX + "size"
RANK = PREFIX + "rank"
LOCAL_RANK = PREFIX + "local-rank"
JOB_GPUS = PREFIX + "job-gpus"
STAGE = PREFIX + "stage"
TRACEPARENT = PREFIX + "traceparent"
# Written after another job replaced the job of the bind: a time at which Slurm had that job.
JOB_SINCE = PREFIX + "job-since"
ONLY_OURS = (JOB_ID, JOB_SINCE, JOB_NODES, JOB_GPUS, STAGE, SIZE, RANK, LOCAL_RANK)  # no other client writes these
WRITTEN_BY_US = frozenset(key.removeprefix(PREFIX) for key in (*ONLY_OURS, TRACEPARENT))

# What admission reads before the pod has a scheduler (manifests/admission/intercept.yaml); it means nothing to the bridge.
INTERCEPT = "intercept"

# The keys of the Go slurm-bridge (docs/comparison.md).
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
# Its keys that only an admin decides (K7).
ALIASES_REFUSED = frozenset({"priority", "user-id", "group-id"})

# Reasons of the PodScheduled condition and of events (O1, Q3: never "Unschedulable", because autoscalers would add nodes).
SUBMITTED = "SlurmJobSubmitted"
PENDING = "SlurmJobPending"
REFUSED = "SlurmJobRefused"
ENDED = "SlurmJobEnded"
ABSENCE = "SlurmJobMissing"
REACQUIRED = "SlurmJobReplaced"
NO_NODE = "SlurmNoFeasibleNode"
NOT_MANAGED = "NamespaceNotManaged"
UNAVAILABLE = "SlurmUnavailable"
LIMITED = "SlurmLimitReached"
GRANT_WAITS = "SlurmGrantWaiting"
GRANT_RELEASED = "SlurmGrantReleased"
GATHERING = "GangGathering"
SCHEDULED = "Scheduled"
BYPASS = "SlurmBypassed"
LEAVING = "SlurmBridgeUninstalled"
LACKS_RIGHTS = "SlurmBridgeLacksRights"
CHANGE_IGNORED = "SlurmChangeIgnored"
PUT_BACK = "SlurmKeysPutBack"
REJECTED = "SlurmNotBelieved"
UNREADABLE = "SlurmBridgeCannotRead"
QUARANTINED = "SlurmBridgeError"
# The condition of bound pods, and its reasons.
RUNNING_CONDITION = PREFIX + "job-running"
RUNS = "SlurmJobRuns"
SUSPENDED = "SlurmJobSuspended"
ENDS_SOON = "SlurmJobEndsSoon"
NOT_STARTING = "PodNotStarting"
CRASHING = "PodCrashLooping"

# Of nodes (N2, N3): the condition with the state in Slurm, its reasons, and the prefix of the bridge's drain reasons.
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
NODE_MARK = "slurm-bridge-"  # prefix of the feature that names the cluster that registered the node

MAX_READABLE = 200
_OURS = re.compile(r"~(k[0-9a-f]{8})\.([0-9a-f]{16})\Z")
# Some sentences name a job that may be of others: Anomaly.NOT_ITS_USER, a hint of bound.py, and one of orphaned.py.
_SHOWN_JOB = re.compile(r"(?<!Slurm has a )(?<!but their )(?<!Slurm knows no )\b[Jj]ob (\d{1,10})\b")


@lru_cache(64)  # few values; a pod may name any scheduler, and the codec limits the length of that name
def cluster_id(kube_system_uid: str, scheduler_name: str = SCHEDULER_NAME) -> str:
    """The mark of a Kubernetes cluster and a scheduler there in job names: several may share one Slurm."""
    identity = kube_system_uid if scheduler_name == SCHEDULER_NAME else f"{kube_system_uid}/{scheduler_name}"
    return "k" + hashlib.sha256(identity.encode()).hexdigest()[:8]


def node_mark(cluster: str) -> str:
    """The feature of Slurm nodes that this cluster registered."""
    return NODE_MARK + cluster


def workload_key(identity: str) -> str:
    """The key of a workload: a hash of the pod's UID, or of the identity of the gang."""
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def job_name(readable: str, cluster: str, key: str) -> str:
    """The name of a placeholder.  `readable` is cut to MAX_READABLE characters; nothing depends on it."""
    return f"{readable[:MAX_READABLE]}~{cluster}.{key}"


@lru_cache(8192)
def parse_job_name(name: str) -> tuple[str, str] | None:
    """(cluster, key) of a job's name; None: not the name of a placeholder."""
    match = _OURS.search(name)
    return (match[1], match[2]) if match else None


def shown_job(message: str) -> int | None:
    """The job id in the message of a condition that the bridge wrote: a hint, never a proof; None: none."""
    match = _SHOWN_JOB.search(message)
    return int(match[1]) if match else None


def traceparent(cluster: str, key: str) -> str:
    """W3C trace context whose trace id follows from the workload, so that a restart continues the same trace (O3)."""
    digest = hashlib.sha256(f"{cluster}.{key}".encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"

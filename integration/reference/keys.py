"""Every key that the bridge reads or writes: on which object, which client writes it, and its meaning.

The keys are those of scheduler/names.py and of the controllers that make groups.  A test finds keys in the code that are
missing here, reads each example with the reader of the bridge, and has each refused example refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.kube import lease
from bridge.kube.client import SELECTED_NODE
from bridge.webhook.review import OPT_OUT
from scheduler import names
from scheduler.nodes.registration import MAX_PARTITIONS
from scheduler.translate import grouping


@dataclass(frozen=True, slots=True)
class JobOption:
    """An annotation that means the same as an option of sbatch.

    option    of sbatch
    syntax    in words
    examples  accepted values
    meaning   the effect
    refused   refused values: the page shows the messages
    """

    key: str
    option: str
    syntax: str
    examples: tuple[str, ...]
    meaning: str
    refused: tuple[str, ...]


LONG = "x" * 1025
NAME = "a name: letters, digits and `. _ @ + = : -`"
TIME = "`M`, `M:S`, `H:MM:SS`, `D-H`, `D-H:MM`, `D-HH:MM:SS`; seconds are rounded up to minutes"
COUNT = "a whole number from 1"

JOB_OPTIONS = (
    JobOption(names.ACCOUNT, "--account", NAME, ("teama",), "Account of the job. The policy must allow it.", ("team a",)),
    JobOption(
        names.PARTITION, "--partition", f"{NAME}; one partition", ("gpu",),
        "Partition of the job. The policy must allow it.", ("gpu,cpu",),
    ),
    JobOption(names.QOS, "--qos", NAME, ("high",), "QOS of the job. The policy must allow it.", ("high!",)),
    JobOption(
        names.RESERVATION, "--reservation", "text, at most 1,024 characters", ("maintenance",),
        "Reservation of the job. The policy must allow it.", ("mainte\tnance",),
    ),
    JobOption(
        names.CONSTRAINTS, "--constraint", "text, at most 1,024 characters", ("a100&nvlink",),
        "Features that the nodes must have. Slurm itself checks the expression.", ("a100\n",),
    ),
    JobOption(names.WCKEY, "--wckey", NAME, ("project-7",), "Workload characterization key of the job.", ("project 7",)),
    JobOption(
        names.JOB_NAME, "--job-name", "text, at most 200 characters", ("nightly-train",),
        "The readable part of the job's name; else it is NAMESPACE/POD, or the name of the gang. The bridge appends "
        "`~CLUSTER.KEY`.", ("x" * 201,),
    ),
    JobOption(
        names.COMMENT, "--comment", "text, at most 1,024 characters", ("ticket 4711",),
        "Comment of the job. The bridge appends how the pod ended and, while it sends traces, `traceparent=…` if that fits.",
        (LONG,),
    ),
    JobOption(
        names.TIME_LIMIT, "--time", f"{TIME}; `UNLIMITED`", ("90", "2:00:00", "1-12:00:00", "UNLIMITED"),
        "Time limit of the job, at most `max_time` of the policy. Without it: `activeDeadlineSeconds` of the pod or "
        "of its "
        "batch Job, else `max_time`, else (restartPolicy Always) the longest of the partition, else the default of "
        "Slurm.",
        ("soon", "0", "-1"),
    ),
    JobOption(
        names.TIME_MIN, "--time-min", TIME, ("1:00:00",),
        "Slurm may shorten the time limit to this value if the job then starts sooner. It must not exceed the time "
        "limit.",
        ("UNLIMITED",),
    ),
    JobOption(
        names.SIGNAL, "--signal", "seconds, or `SIGNAL[@SECONDS]`, also with `B:` or `R:` (without seconds: 60)",
        ("300", "TERM@300", "B:USR1@120"),
        "The pod gets SIGTERM at least this many seconds before the time limit. Kubelet sends the stop signal of the "
        "container, "
        "whichever signal is named. It may be edited while the pod runs.", ("SOON@5", "70000"),
    ),
    JobOption(
        names.NICE, "--nice", "a whole number from 0 to 2147483645", ("100",), "Lowers the priority of the job.",
        ("-5",),
    ),
    JobOption(
        names.EXCLUSIVE, "--exclusive", "`true`, `exclusive`, `user`, `mcs` or `false`", ("true", "user"),
        "The nodes are shared with no other job, with jobs of the same user alone, or with jobs of the same MCS label "
        "alone.",
        ("yes",),
    ),
    JobOption(
        names.GRES, "--gres", "`name[:type][:count]`, separated by commas", ("gpu:h100:2", "gpu:1,shard:4"),
        "Devices for each pod. By default they follow from the pod's resources (setting `gres`); the annotation may "
        "name a "
        "type or ask for more. Less than the containers take is refused.", ("gpu:h100:2:3", "2"),
    ),
    JobOption(
        names.CPUS_PER_TASK, "--cpus-per-task", COUNT, ("8",),
        "CPUs for each pod. By default the larger of requests and limits, rounded up. Less than that is refused.",
        ("1.5", "0"),
    ),
    JobOption(
        names.MEMORY, "--mem", "a whole number of MiB, or with `K`, `M`, `G`, `T`", ("4096", "32G"),
        "Memory for each pod. By default the larger of requests and limits. Less than that is refused.", ("0", "1.5G", "NaN"),
    ),
    JobOption(
        names.MIN_NODES, "--nodes", COUNT, ("2",),
        "Least number of nodes of a gang, all kinds of its pods together. For a single pod every value but 1 is refused.",
        ("0",),
    ),
    JobOption(
        names.MAX_NODES, "--nodes", COUNT, ("4",),
        "Largest number of nodes of a gang, all kinds of its pods together. For a single pod every value but 1 is refused.",
        ("many",),
    ),
    JobOption(
        names.LICENSES, "--licenses", "`name[@server][:count]`, separated by commas", ("matlab:2,ansys",),
        "Licenses that the job holds while it runs.", ("matlab=2",),
    ),
    JobOption(
        names.BEGIN, "--begin",
        "`now`, `now+COUNT UNIT` (seconds, minutes, hours, days, weeks), `HH:MM[:SS]`, `YYYY-MM-DD[THH:MM[:SS][Z or "
        "±HH:MM]]`",
        ("now+1hour", "16:30", "2027-03-31T16:30:00Z"),
        "The job does not start before. `now` is the creation of the pod; a time of day is the next one after it. UTC "
        "where no "
        "offset is given.", ("tomorrow", "25:00", "2027-02-30"),
    ),
    JobOption(
        names.DEPENDENCY, "--dependency", "`after:ID[+MINUTES]`, `afterany:ID`, `afterok:ID`, `afternotok:ID`, "
        "`aftercorr:ID`, "
        "`afterburstbuffer:ID`, each also with several ids (`:ID:ID`), separated by commas", ("afterany:4711,after:4712+5",),
        "The job waits for other jobs; all conditions must hold. The job of a pod always ends as CANCELLED: depend on "
        "it with "
        "`afterany`.", ("afterok:1?afterok:2", "expand:5"),
    ),
    JobOption(
        names.SWITCHES, "--switches", "`COUNT[@TIME]`, TIME as for `time-limit`", ("1", "2@1:00:00"),
        "Largest number of leaf switches, and how long to wait for that.", ("0", "1@soon"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Key:
    """Another key.

    key      as it is written
    kind     label, annotation, taint, …
    where    the kind of object
    writer   who writes it
    syntax   of the value; "": it has none
    example  a value
    meaning  what it does
    refused  what is refused, or what happens to an unusable value
    """

    key: str
    kind: str
    where: str
    writer: str
    syntax: str
    example: str
    meaning: str
    refused: str = ""


USER, ADMIN, BRIDGE = "user", "admin", "the bridge"
WHOLE = "whole number from 1 to {:,}"

GROUPS = (
    Key(
        grouping.GANG, "label", "Pod", USER, "a name; `job`: the pods of one batch Job", "train-7",
        "Pods of a namespace with the same value are one gang: one job, bound together or not at all. A pod that "
        "has a node stays in its gang if the label is changed.",
        "An empty value. `job` on a pod that no batch Job controls.",
    ),
    Key(
        grouping.GANG_SIZE, "annotation", "Pod", USER, WHOLE.format(grouping.MAX_SIZE), "8",
        "Number of pods of the gang. The pods of a batch Job that have it are a gang without the label.",
        "Another value. The annotation without the label on a pod that shows no other group. Different values in one "
        "gang.",
    ),
    Key(
        grouping.GANG_TIMEOUT, "annotation", "Pod", USER, f"seconds, {WHOLE.format(grouping.MAX_TIMEOUT_S)}", "600",
        "After this time the pods of an incomplete gang also say what may hold the others back (default: "
        "`tuning.gang_timeout_s`). They keep waiting.",
        "Another value.",
    ),
)  # fmt: skip

WRITTEN = (
    Key(
        names.JOB_ID, "annotation", "Pod", BRIDGE, "number", "4711",
        "Id of the Slurm job; of a heterogeneous job the id of its first component.",
    ),
    Key(
        names.JOB_SINCE, "annotation", "Pod", BRIDGE, "time in UTC", "2026-11-23T09:00:00Z",
        "Added if another job took the place of a job that Slurm lost: a time by Slurm's clock at which Slurm had the "
        "new job.",
    ),
    Key(names.JOB_NODES, "annotation", "Pod", BRIDGE, "hostlist", "g[1-4]", "All nodes of the job, as Slurm writes "
    "them."),
    Key(
        names.JOB_GPUS, "annotation", "Pod", BRIDGE, "indices, separated by commas", "0,1",
        "GPUs of the node that are this pod's. Empty without the setting `device_driver: true`.",
    ),
    Key(names.SIZE, "annotation", "Pod", BRIDGE, "number", "8", "Number of pods of the job."),
    Key(names.RANK, "annotation", "Pod", BRIDGE, "number from 0", "3", "Rank of this pod among the pods of the job."),
    Key(names.LOCAL_RANK, "annotation", "Pod", BRIDGE, "number from 0", "1", "Rank of this pod among those on its "
    "node."),
    Key(
        names.STAGE, "annotation", "Pod", BRIDGE, "text", "workers",
        "Of a JobSet whose Jobs start one after the other: the stage that the pod belongs to.",
    ),
    Key(
        names.TRACEPARENT, "annotation", "Pod", f"{BRIDGE}, or {USER}", "W3C trace context",
        "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
        "Trace of the workload ([tracing.md](tracing.md)). A value that the pod has already is kept, and continued.",
        "Nothing: any value may be written.",
    ),
)  # fmt: skip

OF_NAMESPACES = (
    Key(
        names.MANAGED_LABEL, "label", "Namespace", ADMIN, "`true`", "true",
        "Pods of the namespace may use the bridge. The setting `managed_namespaces` does the same.",
        "Any other value counts as no label.",
    ),
    Key(
        names.SYSTEM_LABEL, "label", "Namespace", ADMIN, "`true`", "true",
        "Pods of the namespace serve the nodes: they may run on nodes of Slurm without a job (as those of "
        "kube-system).",
        "Any other value counts as no label.",
    ),
)  # fmt: skip

OF_NODES = (
    Key(
        names.EXTERNAL_NODE_LABEL, "label", "Node", ADMIN, "`true`", "true",
        "The bridge registers the node in Slurm as an external node, and removes it when the label is gone "
        "([nodes.md](nodes.md)).",
        "Any other value counts as no label.",
    ),
    Key(
        names.SLURM_NODE_LABEL, "label", "Node", ADMIN, "name of a node in Slurm", "gpu-17",
        "Name of the node in Slurm, if it differs from the name in Kubernetes.",
        "A name that Slurm does not accept (`SlurmNodeInvalid`); a name that two nodes claim (`SlurmNodeContested`).",
    ),
    Key(
        names.PARTITIONS, "annotation", "Node", ADMIN, "names of partitions, separated by commas", "gpu,debug",
        "Features that the node is registered with; a NodeSet of such a feature puts the node into the partition. It "
        "counts at "
        "registration.",
        f"A partition that Slurm does not have; more than {MAX_PARTITIONS} (`SlurmNodeInvalid`).",
    ),
    Key(
        names.MANAGED_TAINT, "taint, NoSchedule", "Node", BRIDGE, "`true`", "true",
        "Keeps pods of other schedulers away from registered nodes (setting `external_nodes.taint`). Pods of the "
        "bridge ignore it.",
        "",
    ),
)  # fmt: skip

ELSEWHERE = (
    Key(
        SELECTED_NODE, "annotation", "PersistentVolumeClaim", BRIDGE, "name of a node", "g1",
        "Node where the volume is needed, for the provisioner of a WaitForFirstConsumer class.",
    ),
    Key(lease.PROCESS, "annotation", "Lease", BRIDGE, "hexadecimal text", "9f3c…", "Mark of the process that holds "
    "the Lease."),
    Key(
        lease.DRAINED, "annotation", "Lease", BRIDGE, "hexadecimal text", "9f3c…",
        "The last holder stopped cleanly: none of its requests can take effect any more "
        "([operations.md](operations.md)).",
    ),
)  # fmt: skip

JOBSETS, LWS = "JobSet", "LeaderWorkerSet"
KUEUE, BATCH, STATEFUL = "Kueue, or user", "batch Job", "StatefulSet"
READ = (
    Key(
        grouping.POD_GROUP, "label", "Pod", USER, "name", "train", "The pod belongs to this PodGroup "
        "(scheduling.x-k8s.io)."
    ),
    Key(grouping.LWS_GROUP, "label", "Pod", LWS, "hash", "", "The pods of one group are one gang."),
    Key(grouping.LWS_NAME, "label", "Pod", LWS, "name", "serve", "Name of the gang, for people."),
    Key(
        grouping.LWS_SIZE, "annotation", "Pod", LWS, WHOLE.format(grouping.MAX_SIZE), "4", "Number of pods of the "
        "gang.",
        "Another value.",
    ),
    Key(grouping.LWS_RANK, "label", "Pod", LWS, "number", "0", "Order of the pods, for `rank`."),
    Key(grouping.JOBSET, "label", "Pod", JOBSETS, "name", "train", "The pods of one JobSet are one gang."),
    Key(grouping.JOBSET_UID, "label", "Pod", JOBSETS, "UID", "", "Distinguishes JobSets of the same name."),
    Key(grouping.JOBSET_RANK, "label", "Pod", JOBSETS, "number", "0", "Order of the pods, for `rank`."),
    Key(grouping.JOBSET_PART, "label", "Pod", JOBSETS, "name", "workers", "Order of the pods, and their stage."),
    Key(grouping.JOBSET_JOB, "label", "Pod", JOBSETS, "number", "0", "Order of the pods, for `rank`."),
    Key(grouping.JOBSET_ATTEMPT, "label", "Pod", JOBSETS, "number", "0", "Distinguishes runs of one JobSet."),
    Key(grouping.KUEUE_GROUP, "label", "Pod", KUEUE, "name", "train", "The pods of one Kueue pod group are one gang."),
    Key(
        grouping.KUEUE_SIZE, "annotation", "Pod", KUEUE, WHOLE.format(grouping.MAX_SIZE), "4",
        "Number of pods of the gang.", "Another value.",
    ),
    Key(grouping.KUEUE_RANK, "label", "Pod", KUEUE, "number", "0", "Order of the pods, for `rank`."),
    Key(grouping.COMPLETION_INDEX, "label, annotation", "Pod", BATCH, "number", "0", "Order of the pods, for `rank`."),
    Key(grouping.SET_INDEX, "label", "Pod", STATEFUL, "number", "0", "Order of the pods, for `rank`."),
    Key(
        names.MIRROR, "annotation", "Pod", "kubelet", "hash", "", "Mark of a static pod. It may run on a node without "
        "a job."
    ),
    Key(
        "kubernetes.io/hostname", "topology key", "Pod", USER, "", "",
        "Required pod affinity and anti-affinity are honoured for this topology key.", "Other required topology keys.",
    ),
)  # fmt: skip

FIELDS = (
    ("`spec.schedulerName`", "Pod", USER, "The bridge schedules the pod if it is the setting `scheduler_name`."),
    ("`spec.priorityClassName`", "Pod", USER, "The setting `priority_classes` gives QOS and nice value of such pods."),
    ("`spec.schedulingGates`", "Pod", USER, "A pod with gates is not submitted, and does not count as a member of its "
    "gang."),
    (
        "`spec.schedulingGroup.podGroupName`", "Pod", USER,
        "The pod belongs to this PodGroup (scheduling.k8s.io), whose pods are one gang.",
    ),
    ("`spec.nodeName`", "Pod", BRIDGE, "The node that Slurm granted, by the Binding."),
    (
        "`spec.activeDeadlineSeconds`", "Pod", BRIDGE,
        "Shortly before the time limit of the job, or when its job has ended: kubelet then ends the pod "
        "([ends.md](ends.md)).",
    ),
    ("`metadata.finalizers`", "all", "", "The bridge writes no finalizers and has no custom resources."),
)  # fmt: skip

IN_SLURM = (
    ("name of a job", "`NAMESPACE/POD~CLUSTER.KEY`", "Says whose the job is. The part after the last `~` is the "
    "bridge's."),
    ("dependency of a job", "`singleton`", "At most one job of one name runs; conditions of the annotation are added."),
    (
        "comment, derived exit code of a job", "`ns/name: reason`",
        "How the pods ended, in accounting ([ends.md](ends.md)).",
    ),
    ("comment of a job", "`traceparent=…`", "The trace of its workload, while traces are sent ([tracing.md](tracing.md))."),
    (
        "feature of a node", f"`{names.NODE_MARK}CLUSTER`",
        "The node was registered by the bridge of this cluster. Without it no node is set down, replaced or removed.",
    ),
    (
        "reason of a node", f"`{names.NODE_REASON}…`",
        "The drain is the bridge's, which alone resumes it. An admin's drain has another reason and is never undone.",
    ),
)  # fmt: skip

OF_ADMISSION = (
    Key(
        OPT_OUT, "annotation", "Pod", USER, "`false`", "false",
        "Admission (`manifests/admission/intercept.yaml`, `slurm-bridge webhook`) does not set the `schedulerName` of this "
        "pod. For pods that another scheduler is to place.",
        "Any other value has no effect. The annotation concerns interception alone: a pod that names the bridge under "
        "`schedulerName` is scheduled by the bridge all the same.",
    ),
)  # fmt: skip

OTHERS = (*GROUPS, *OF_ADMISSION, *WRITTEN, *OF_NAMESPACES, *OF_NODES, *ELSEWHERE, *READ)

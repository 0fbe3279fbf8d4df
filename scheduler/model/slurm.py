"""The nouns of Slurm: jobs, nodes and grants as slurmrestd shows them, and the specifications of submissions.

Every noun is frozen and compares by value.  The codecs in `bridge/slurm` make these nouns from what slurmrestd sends, and
requests from the specifications.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scheduler.model.amounts import EMPTY, NO_TEXT
from scheduler.model.hostlist import expand

States = frozenset[str]

ENDED: States = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REVOKED",
        "TIMEOUT",
    }
)
HOLDS_NODES: States = frozenset({"RUNNING", "SUSPENDED"})


def is_ended(states: States) -> bool:
    """True if one of the states is an end: a job may be CANCELLED and COMPLETING at once (Slurm facts 2)."""
    return bool(states & ENDED)


def holds_nodes(states: States) -> bool:
    return bool(states & HOLDS_NODES) and not states & ENDED


# Slurm's states of a node, of which any keeps new jobs away, whatever they ask for.  A node that Slurm has powered down gets
# jobs: Slurm powers it up for them.
OUT_OF_SERVICE: States = frozenset(
    {"DOWN", "DRAIN", "ERROR", "FAIL", "FUTURE", "INVALID", "INVALID_REG", "NOT_RESPONDING", "UNKNOWN"}
)


# States of a node that Slurm has powered down, or is about to power down or up.
POWER: States = frozenset({"POWER_DOWN", "POWERED_DOWN", "POWERING_DOWN", "POWER_UP", "POWERING_UP"})


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm knows it.

    gres    GRES name ("gpu", "gpu:h100") to count; a typed GRES counts under both
    reason  why the node is drained or down, as set by the user who drained it
    held_*  what jobs hold there, all jobs of Slurm, as of the poll
    """

    name: str
    states: States = frozenset()
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    cpus: int = 0
    memory_mib: int = 0
    gres: Mapping[str, int] = EMPTY
    reason: str = ""
    held_cpus: int = 0
    held_memory_mib: int = 0
    held_gres: Mapping[str, int] = EMPTY

    @property
    def external(self) -> bool:
        """True if no slurmd runs on the node: only kubelet starts processes there (G1)."""
        return "EXTERNAL" in self.states

    @property
    def loses_devices(self) -> bool:
        """True for an external node of slurm.conf: devices that a job requests per task are lost there (Slurm facts 7).

        Devices that a job requests per node are counted correctly.
        """
        return self.external and bool(self.gres) and "DYNAMIC_NORM" not in self.states

    @property
    def taken_out(self) -> States:
        """The states in which somebody took the node out of service, so that it gets no new jobs: DRAIN, DOWN, FAIL."""
        return self.states & {"DRAIN", "DOWN", "FAIL"}

    @property
    def closed(self) -> States:
        """The states that keep new jobs off the node, whatever they ask for.  A node that powers up does not respond yet."""
        return self.states & OUT_OF_SERVICE - ({"NOT_RESPONDING"} if "POWERING_UP" in self.states else set())

    @property
    def changes_power(self) -> bool:
        """True if Slurm has powered the node down, or is about to power it down or up."""
        return bool(self.states & POWER)

    @property
    def is_off_for_good(self) -> bool:
        """True for an external node that Slurm has powered down: no slurmd reports that it is up again (Slurm facts 12).

        A job that gets it fails when ResumeTimeout is over.
        """
        return self.external and self.changes_power

    @property
    def boots_for_a_job(self) -> bool:
        """True if Slurm powers the node up for a job.  A drain would end this job (update_node in slurmctld's node_mgr.c)."""
        return bool(self.states & {"POWERED_DOWN", "POWERING_UP"}) and bool(self.states & {"ALLOCATED", "MIXED"})

    @property
    def reboots(self) -> bool:
        """True if an admin requested a reboot that is not over.  A resume would cancel it."""
        return bool(self.states & {"REBOOT_REQUESTED", "REBOOT_ISSUED"})


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition.

    max_time_min  the longest time limit in minutes; None: no limit
    qos           the QOS whose limits all jobs in the partition are under, too; "": none
    accepts       what else decides which jobs it accepts: accounts, groups, QOS, numbers of nodes, CPUs and memory of a node,
                  reservations.  Only a change counts: then refused jobs are submitted again (Q4)
    """

    name: str
    default: bool = False
    up: bool = True
    max_time_min: int | None = None
    qos: str = ""
    accepts: tuple[str | int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A job as `GET job/{id}` shows it.

    submitted, starts, ends   epoch seconds; `starts` of a pending job is Slurm's expected start; None: not known
    preempted                 when its preemption began, while its grace runs; None: it is not preempted
    reason                    why it is pending, or why it ended ("Resources", "Priority", "None"); of a waiting heterogeneous
                              job: the reason of the component that keeps it from its turn
    planned_nodes             the nodes on which Slurm plans to start the job, a hostlist
    required_nodes            nodes that it must have, a hostlist; least_nodes: how many it takes at least; None: not known
    constraints, memory_mib   features that its nodes must have; memory on each node, None: not known, or asked for by CPU
    sluid                     never reused, unlike the id (Slurm facts 2, docs/decisions/0005); "": this Slurm has none
    dependency                the conditions that the job still waits for ("singleton(unfulfilled),afterany:8(unfulfilled)")
    exit_code                 the number before the colon in sacct's ExitCode
    tasks                     the number of tasks asked for
    as_of                     slurmctld's time of the answer, epoch seconds; None: not known
    priority                  its place in the queue: higher first; it changes with its age; 0: the job is held, by whomever;
                              None: not known
    het_id, het_offset        of a component of a heterogeneous job: the leader's id, and which component it is (the leader
                              is 0); None: an ordinary job
    parts                     of the leader of a heterogeneous job: the further components, in their order
    """

    id: int
    name: str
    user: str
    states: States
    account: str = ""
    partition: str = ""
    qos: str = ""
    reason: str = ""
    comment: str = ""
    submitted: float | None = None
    starts: float | None = None
    ends: float | None = None
    preempted: float | None = None
    planned_nodes: str = ""
    nodes: str = ""
    sluid: str = ""
    time_limit_min: int | None = None
    excluded_nodes: str = ""
    required_nodes: str = ""
    least_nodes: int | None = None
    constraints: str = ""
    memory_mib: int | None = None
    dependency: str = ""
    exit_code: int = 0
    tasks: int = 1
    het_id: int | None = None
    het_offset: int | None = None
    parts: tuple[Job, ...] = ()
    as_of: float | None = field(default=None, compare=False)
    priority: int | None = field(default=None, compare=False)

    @property
    def is_held(self) -> bool:
        """True if slurmctld does not look at the waiting job: its user, an admin or slurmctld itself holds it."""
        return self.priority == 0


def nodes_of(job: Job) -> set[str]:
    """Slurm's names of the nodes of all components of the job.  Raises HostlistError."""
    return {node for component in (job, *job.parts) for node in expand(component.nodes)}


@dataclass(frozen=True, slots=True)
class GrantedNode:
    """The part of a grant on one node.

    memory_mib   0: this Slurm does not count memory (CR_Core, CR_CPU, CR_Socket); every job asks for at least 1 (T4)
    gres         as in SlurmNode; indices: GRES name to device indices, "": not known
    """

    name: str
    cpus: int
    memory_mib: int
    gres: Mapping[str, int] = EMPTY
    indices: Mapping[str, str] = NO_TEXT


@dataclass(frozen=True, slots=True)
class Grant:
    """The nodes that Slurm allocated to a job, in Slurm's own node order.

    parts   of the leader of a heterogeneous job: the grants of its further components, in their order
    """

    job_id: int
    nodes: tuple[GrantedNode, ...]
    parts: tuple[Grant, ...] = ()

    @property
    def everywhere(self) -> tuple[GrantedNode, ...]:
        """The nodes of all components."""
        return (*self.nodes, *(node for part in self.parts for node in part.nodes))


UNLIMITED = -1
MAX_NICE = 2147483645  # Slurm's own, sbatch(1)
# At most one job of a name and user runs, so a submission whose answer was lost can be repeated (ARCHITECTURE 4).
SINGLETON = "singleton"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The specification of a placeholder job; the codec turns it into a request of one API version.

    The amounts are those of one task: the placeholder of a single pod has one task, that of a gang one for each pod (W7).

    user            the submitting user (`X-SLURM-USER-NAME`); never a field of the job (I2)
    cpus_per_task   at least 1
    memory_mib      per task, at least 1
    gres            GRES name (with type) to count, per task
    time_limit_min  None: Slurm's default; UNLIMITED: no limit
    time_least_min  minutes to which backfill may cut the limit if the job starts sooner; None: it may not
    exclusive       "", "exclusive" (whole node), "user" or "mcs" as sbatch's --exclusive says
    excluded_nodes  a folded hostlist (F2)
    required_nodes  a folded hostlist: all of these nodes and no others (S7)
    licenses        name (with server) to count
    begin           epoch seconds before which the job does not start
    dependency      conditions joined by commas, all of which must hold, SINGLETON always among them
    switches        the largest number of leaf switches, and how many seconds the job waits at most for that
    tasks           at least 1; Slurm chooses how several tasks are distributed over nodes
    tasks_per_node  room for this many tasks on every node, even if fewer remain; None: as many as fit
    min_nodes, max_nodes  number of nodes for several tasks; None: as few as possible.  (If max_nodes is more than needed,
                    Slurm allocates that many.)
    parts           the further components of a heterogeneous job (W7), all of the same user; they have no parts
    """

    name: str
    user: str
    cpus_per_task: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...] = ()
    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    constraints: str = ""
    wckey: str = ""
    comment: str = ""
    time_limit_min: int | None = None
    time_least_min: int | None = None
    nice: int | None = None
    exclusive: str = ""
    excluded_nodes: str = ""
    required_nodes: str = ""
    licenses: tuple[tuple[str, int], ...] = ()
    begin: int | None = None
    dependency: str = SINGLETON
    switches: tuple[int, int] | None = None
    tasks: int = 1
    tasks_per_node: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    parts: tuple[JobSpec, ...] = ()


def in_partition(spec: JobSpec, partition: str) -> JobSpec:
    """The same job with all its components in that partition."""
    if spec.partition == partition:
        return spec
    parts = tuple(replace(part, partition=partition) for part in spec.parts)
    return replace(spec, partition=partition, parts=parts)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """An external node as it is registered in Slurm (N1); the codec turns it into a line of node configuration.

    address     NodeAddr: without it Slurm resolves the name at every allocation (Slurm facts 7)
    cpus        whole CPUs, at least 1; memory_mib: at least 1
    gres        GRES name (with type) to count, sorted by name
    features    for NodeSets and constraints; among them the mark of the cluster that registered the node
    topology    name of a topology of Slurm to the node's unit there (a leaf switch, a block), sorted by name
    """

    name: str
    address: str
    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    topology: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """The needs of one pod on one node; pods of equal shape can be tasks of one job.

    cpus        whole CPUs, at least 1 (T3)
    memory_mib  MiB, at least 1; never 0, which Slurm reads as "all of it" (T4)
    gres        GRES name to count, sorted by name (T5)
    """

    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...] = field(default=())


def tasks_of(job: Job | JobSpec) -> int:
    """The number of tasks of all components: the placeholder of a gang has one for each pod (W7)."""
    return job.tasks + sum(part.tasks for part in job.parts)

"""The nouns of Slurm: jobs, nodes and grants as slurmrestd shows them, and what Slurm is asked for.

Every noun is frozen and compares by value.  The codecs in `bridge/slurm` make these nouns from what slurmrestd sends, and
requests from the specifications.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.model.amounts import EMPTY, NO_TEXT

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
    """Set membership, never equality: a job may be CANCELLED and COMPLETING at once (Slurm facts 2)."""
    return bool(states & ENDED)


def holds_nodes(states: States) -> bool:
    return bool(states & HOLDS_NODES) and not states & ENDED


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm knows it.

    gres    GRES name ("gpu", "gpu:h100") to count; a typed GRES counts under both
    reason  why it is drained or down, in the words of who did it
    """

    name: str
    states: States = frozenset()
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    cpus: int = 0
    memory_mib: int = 0
    gres: Mapping[str, int] = EMPTY
    reason: str = ""

    @property
    def external(self) -> bool:
        """No slurmd runs there: kubelet is the only one that starts anything (G1)."""
        return "EXTERNAL" in self.states

    @property
    def loses_devices(self) -> bool:
        """Devices that a job asks for by the task are lost there: it is an external node of slurm.conf (Slurm facts 7).

        Asked for by the node they are counted rightly.
        """
        return self.external and bool(self.gres) and "DYNAMIC_NORM" not in self.states

    @property
    def taken_out(self) -> States:
        """In which ways somebody said that it is to take no more jobs."""
        return self.states & {"DRAIN", "DOWN"}


@dataclass(frozen=True, slots=True)
class Partition:
    """max_time_min: the longest time limit in minutes; None: no limit."""

    name: str
    default: bool = False
    up: bool = True
    max_time_min: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as `GET job/{id}` tells it.

    submitted, starts, ends   epoch seconds; `starts` of a pending job is Slurm's expected start; None: not known
    preempted                 when its preemption began, while its grace runs; None: nobody preempts it
    reason                    why it is pending, or why it ended ("Resources", "Priority", "None")
    planned_nodes             where Slurm plans to start it, a hostlist
    sluid                     unique for ever, unlike the id (Slurm facts 2); "" where this Slurm has none
    dependency                what it still waits for ("singleton(unfulfilled),afterany:8(unfulfilled)")
    exit_code                 of the job, as sacct shows it before the colon
    tasks                     how many it asked for
    told_at                   slurmctld's own time when it told this, epoch seconds; None: not known
    het_id, het_offset        of a component of a heterogeneous job: the leader's id, and which component it is (the leader
                              is 0); None: an ordinary job
    parts                     of a leader that was read: the further components, in their order
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
    dependency: str = ""
    exit_code: int = 0
    tasks: int = 1
    het_id: int | None = None
    het_offset: int | None = None
    parts: tuple[Job, ...] = ()
    told_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GrantedNode:
    """What a job holds on one node.

    memory_mib   0: this Slurm does not count memory (CR_Core, CR_CPU, CR_Socket); every job asks for at least 1 (T4)
    gres         as in SlurmNode; indices: GRES name to device indices, "" where not told
    """

    name: str
    cpus: int
    memory_mib: int
    gres: Mapping[str, int] = EMPTY
    indices: Mapping[str, str] = NO_TEXT


@dataclass(frozen=True, slots=True)
class Grant:
    """What Slurm gave to a job, node by node, in Slurm's own node order.

    parts   of the leader of a heterogeneous job: what its further components hold, in their order
    """

    job_id: int
    nodes: tuple[GrantedNode, ...]
    parts: tuple[Grant, ...] = ()

    @property
    def everywhere(self) -> tuple[GrantedNode, ...]:
        """The nodes of all components."""
        return (*self.nodes, *(node for part in self.parts for node in part.nodes))


UNLIMITED = -1
# Lets at most one job of a name and user run: a submission whose answer was lost can be repeated (ARCHITECTURE 4).
SINGLETON = "singleton"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A placeholder as it is asked for; the codec turns it into the words of one API version.

    What is asked for is one task's: the placeholder of a single pod has one, that of a gang one a member (W7).

    user            who submits (`X-SLURM-USER-NAME`); never a field of the job (I2)
    cpus_per_task   at least 1
    memory_mib      per task, at least 1
    gres            GRES name (with type) to count, per task
    time_limit_min  None: Slurm's default; UNLIMITED: no limit
    time_least_min  backfill may cut the limit to so many minutes where the job starts sooner for it; None: not at all
    exclusive       "", "exclusive" (whole node), "user" or "mcs" as sbatch's --exclusive says
    excluded_nodes  a folded hostlist (F2)
    required_nodes  a folded hostlist: all of these, and as many as are asked for, no other (S7)
    licenses        name (with server) to count
    begin           epoch seconds before which it does not start
    dependency      conditions joined by commas, all of which must hold, SINGLETON always among them
    switches        at most so many leaf switches, waiting for that so many seconds at most
    tasks           at least 1; one task stands on one node, several on as few or many nodes as Slurm likes
    tasks_per_node  room for so many on every node, whether there are so many left or not; None: as many as fit
    min_nodes, max_nodes  how many nodes, of several tasks; None: as few as it takes.  (Where it may have more than it
                    needs, Slurm gives it as many as it may.)
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


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """An external node as it is registered in Slurm (N1); the codec turns it into a line of node configuration.

    address     NodeAddr: without it Slurm resolves the name at every allocation (Slurm facts 7)
    cpus        whole CPUs, at least 1; memory_mib: at least 1
    gres        GRES name (with type) to count, sorted by name
    features    what NodeSets and constraints select it by; among them the mark that says whose it is
    topology    where it is in Slurm's topologies: name of one to the unit there (a leaf switch, a block), by name
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
    """What one pod needs of one node; pods of equal shape can be tasks of one job.

    cpus        whole CPUs, at least 1 (T3)
    memory_mib  MiB, at least 1; never 0, which Slurm reads as "all of it" (T4)
    gres        GRES name to count, sorted by name (T5)
    """

    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...] = field(default=())

"""Jobs, partitions and users of the simulated Slurm."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bridge.simulation.slurm.nodes import Holding, Wanted

ENDED = frozenset(
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


@dataclass(frozen=True, slots=True)
class SimPartition:
    """A partition.

    feature     of its nodes, as a NodeSet names them; "": every node is in it
    tier        PriorityTier: a waiting job of a higher tier goes first
    preempted   its running jobs give way to jobs of a higher tier (PreemptMode=REQUEUE)
    billing_weights   TRESBillingWeights
    """

    name: str
    tier: int = 10
    max_time_min: int | None = None
    default_time_min: int | None = None
    default: bool = False
    up: bool = True
    preempted: bool = False
    billing_weights: str = ""
    feature: str = ""

    def has(self, features: Collection[str]) -> bool:
        """True if a node with these features is in the partition."""
        return self.feature in ("", *features)


@dataclass(frozen=True, slots=True)
class SimUser:
    """A user and his associations.

    accounts         the first is his default one
    max_submit_jobs  waiting and running together; None: no limit
    group_tres       GRES name to how many his running jobs may hold in all
    """

    name: str
    accounts: tuple[str, ...]
    qos: tuple[str, ...] = ("normal",)
    max_submit_jobs: int | None = None
    group_tres: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that must hold.  delay_min: of `after`, minutes since that job's start; failed: it never will."""

    kind: str
    job_id: int = 0
    delay_min: int = 0
    failed: bool = False

    def __str__(self) -> str:
        state = "failed" if self.failed else "unfulfilled"
        job = f":{self.job_id}" if self.job_id else ""
        delay = f"+{self.delay_min}" if self.delay_min else ""
        return f"{self.kind}{job}{delay}({state})"


@dataclass(slots=True)
class SimJob:
    """A job.  Times are whole epoch seconds, as in Slurm.

    time_limit_min  None: no limit
    time_least_min  backfill may cut the limit to that; 0: not at all
    starts          when it started, or (of a waiting one) when Slurm expects it to
    preempted       when its grace began
    dependency      conditions that have not been seen to hold yet
    begin           it does not start before
    licenses        name to how many it holds while it runs; licenses_text: as asked
    switches        leaf switches at most, and for how many seconds to wait for that
    held            "", "JobHeldUser" or "JobHeldAdmin"
    serial          counts submissions: unique for ever, unlike the id
    holdings        what it holds, node by node; of an ended one what it held
    het_id          of a component of a heterogeneous job: the leader's id; 0: an ordinary job
    """

    id: int
    serial: int
    name: str
    user: str
    account: str
    partition: str
    qos: str
    wanted: Wanted
    gres_text: str
    excluded_text: str
    time_limit_min: int | None
    submitted: int
    state: str = "PENDING"
    reason: str = "None"
    comment: str = ""
    nice: int = 0
    wckey: str = ""
    dependency: tuple[Condition, ...] = ()
    begin: int = 0
    licenses_text: str = ""
    licenses: Mapping[str, int] = field(default_factory=dict)
    switches: tuple[int, int] = (0, 0)
    constraints: str = ""
    reservation: str = ""
    required_text: str = ""
    task_gres_text: str = ""
    shared: str = ""
    time_least_min: int = 0
    held: str = ""
    starts: int = 0
    ends: int = 0
    preempted: int = 0
    planned: str = ""
    holdings: tuple[Holding, ...] = ()
    het_id: int = 0
    het_offset: int = 0
    flags: tuple[str, ...] = ()
    exit_code: int = 0
    derived_exit_code: int = 0
    accounted_comment: str = ""

    @property
    def pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that the job holds, in Slurm's node order."""
        return tuple(holding.node for holding in self.holdings)

    @property
    def tasks(self) -> int:
        """The number of tasks that it asked for."""
        return self.wanted.tasks

    @property
    def places(self) -> Mapping[str, int]:
        """Node to how many of its tasks what it holds there is enough for."""
        return {holding.node: self.wanted.places(holding) for holding in self.holdings}

    @property
    def holds(self) -> bool:
        return self.state in ("RUNNING", "SUSPENDED")

    @property
    def ended(self) -> bool:
        return self.state in ENDED

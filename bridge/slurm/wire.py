"""The JSON that slurmrestd sends, field by field, and the versions of its interface.

Only the fields that decisions need are decoded; everything else in an answer (a job is 20 kB) is skipped.  Each decoded field
is checked: a field of another type or size than Slurm documents is a msgspec.ValidationError, which the client turns into a
ContractError; in a list only that item is left out (lists.py).

What is special in slurmrestd (Slurm facts 4): numbers that may be absent are {"set", "infinite", "number"}; job ids are
strings in jobs/state ("53+0" is a component of a heterogeneous job, "12_[0-3]" tasks of an array); hostlists stay strings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """One version of slurmrestd's interface.

    name    as in every path
    since   the first Slurm release that serves it, for people
    """

    name: str
    since: str


# Newest first.  Both serve external jobs and resources/{id} with the same fields; Slurm before 25.11 has neither, and
# its versions need a placeholder of another kind (ARCHITECTURE 5).
API_VERSIONS = (ApiVersion("v0.0.45", "26.05"), ApiVersion("v0.0.44", "25.11"))


# Slurm's own ids, error numbers and counts are 32 bits wide; its last two values mean "not set" and "infinite".
JobId = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]
ErrorNumber = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**32 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
FIRST_NO_COUNT = 2**32 - 2
# 9999-12-31 00:00 UTC: a later moment has no date in some time zone.
LAST_MOMENT = 253_402_214_400.0


class Number(msgspec.Struct):
    """A number that may be absent or infinite."""

    set: bool = False
    infinite: bool = False
    number: float = 0

    @property
    def value(self) -> int | None:
        """A count; None if it is absent, infinite, or out of range."""
        usable = self.set and not self.infinite and 0 <= self.number < FIRST_NO_COUNT
        return int(self.number) if usable else None


def moment(value: object) -> float | None:
    """Epoch seconds of a time as Slurm writes it, a number or {"set", "infinite", "number"}.

    None if it is absent, 0 ("not known"), unreadable, or out of range (a user may set a begin time in the year 9999 and
    later).  An answer with an unreadable time is still read.
    """
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is True and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LAST_MOMENT:
        return None
    return float(value)


class ErrorEntry(msgspec.Struct):
    """One of `errors`.  error: Slurm's text for the number; description: what was tried; source: Slurm's function."""

    error_number: ErrorNumber = 0
    error: str = ""
    description: str = ""
    source: str = ""


class WarningEntry(msgspec.Struct):
    """One of `warnings`: Slurm ignored something that we sent."""

    description: str = ""
    source: str = ""


class Plugin(msgspec.Struct):
    accounting_storage: str = ""


class SlurmVersion(msgspec.Struct):
    release: str = ""
    cluster: str = ""


class Meta(msgspec.Struct):
    """The server that answered."""

    plugin: Plugin | None = None
    slurm: SlurmVersion | None = None


class Envelope(msgspec.Struct):
    """The envelope of every answer of slurmrestd."""

    errors: tuple[ErrorEntry, ...] | None = ()
    warnings: tuple[WarningEntry, ...] | None = ()
    meta: Meta | None = None


class Ping(msgspec.Struct):
    responding: bool = False


class PingAnswer(Envelope, kw_only=True):
    """`GET ping/`."""

    pings: tuple[Ping, ...]


class IdAnswer(Envelope, kw_only=True):
    """`POST job/submit`, `POST job/allocate`."""

    job_id: JobId


class JobState(msgspec.Struct, gc=False):
    """One item of `GET jobs/state/`."""

    job_id: str | int
    state: tuple[str, ...]


class ExitCode(msgspec.Struct):
    return_code: Number = msgspec.field(default_factory=Number)


class StepId(msgspec.Struct):
    sluid: str = ""


class Job(msgspec.Struct):
    job_id: JobId
    name: str
    user_name: str
    job_state: tuple[str, ...]
    account: str = ""
    partition: str = ""
    qos: str = ""
    state_reason: str = ""
    comment: str = ""
    submit_time: object = None
    start_time: object = None
    end_time: object = None
    preempt_time: object = None
    scheduled_nodes: str = ""
    priority: Number = msgspec.field(default_factory=Number)
    nodes: str = ""
    excluded_nodes: str = ""
    required_nodes: str = ""
    node_count: Number = msgspec.field(default_factory=Number)
    features: str = ""
    memory_per_node: Number = msgspec.field(default_factory=Number)
    dependency: str = ""
    step_id: StepId = msgspec.field(default_factory=StepId)
    time_limit: Number = msgspec.field(default_factory=Number)
    tasks: Number = msgspec.field(default_factory=Number)
    het_job_id: Number = msgspec.field(default_factory=Number)
    het_job_offset: Number = msgspec.field(default_factory=Number)
    exit_code: ExitCode = msgspec.field(default_factory=ExitCode)


class JobAnswer(Envelope, kw_only=True):
    """`GET job/{id}`.  last_update: slurmctld's own time when it answered."""

    jobs: tuple[Job, ...]
    last_update: object = None


class Cpus(msgspec.Struct):
    count: Count = 0


class CpusOnNode(msgspec.Struct):
    name: str
    cpus: Cpus = msgspec.field(default_factory=Cpus)


class CpusOnNodes(msgspec.Struct):
    allocation: tuple[CpusOnNode, ...] | None = ()


class JobResources(msgspec.Struct):
    select_type: tuple[str, ...] | None = ()
    nodes: CpusOnNodes | None = None


class JobWithResources(msgspec.Struct):
    job_id: JobId
    job_resources: JobResources | None = None


class JobResourcesAnswer(Envelope, kw_only=True):
    """The resources in `GET job/{id}`: `resources/{id}` has whole cores only."""

    jobs: tuple[JobWithResources, ...]


class GrantedGres(msgspec.Struct):
    name: str
    type: str | None = None
    count: Count = 0
    index: str | None = None


class GrantedNode(msgspec.Struct):
    node: str
    mem_alloc: Count
    core_bitmap: str
    gres: tuple[GrantedGres, ...] | None = ()


class ResourcesAnswer(Envelope, kw_only=True):
    """`GET resources/{id}`."""

    nodes: tuple[GrantedNode, ...]


class Node(msgspec.Struct):
    """One item of `GET nodes/`."""

    name: str
    state: tuple[str, ...]
    partitions: tuple[str, ...] | None = ()
    active_features: tuple[str, ...] | None = ()
    cpus: Count = 0
    effective_cpus: Count = 0
    sockets: Count = 0
    cores: Count = 0
    threads: Count = 1
    real_memory: Count = 0
    specialized_memory: Count = 0
    gres: str = ""
    reason: str = ""
    alloc_cpus: Count = 0
    alloc_memory: Count = 0
    gres_used: str = ""


class NodesAnswer(Envelope, kw_only=True):
    """`GET node/{name}`."""

    nodes: tuple[Node, ...]


class PartitionState(msgspec.Struct):
    state: tuple[str, ...] = ()


class Maximums(msgspec.Struct):
    time: Number = msgspec.field(default_factory=Number)
    nodes: Number = msgspec.field(default_factory=Number)
    cpus_per_node: Number = msgspec.field(default_factory=Number)
    cpus_per_socket: Number = msgspec.field(default_factory=Number)
    partition_memory_per_cpu: Number = msgspec.field(default_factory=Number)
    partition_memory_per_node: Number = msgspec.field(default_factory=Number)


class Minimums(msgspec.Struct):
    nodes: int = 0


class Allowed(msgspec.Struct):
    """Names that a partition accepts, and names that it does not, separated by commas; "": it does not limit these."""

    allowed: str = ""
    deny: str = ""


class PartitionQos(Allowed):
    assigned: str = ""


class Partition(msgspec.Struct):
    """One item of `GET partitions/`."""

    name: str
    partition: PartitionState
    qos: PartitionQos = msgspec.field(default_factory=PartitionQos)
    accounts: Allowed = msgspec.field(default_factory=Allowed)
    groups: Allowed = msgspec.field(default_factory=Allowed)
    maximums: Maximums = msgspec.field(default_factory=Maximums)
    minimums: Minimums = msgspec.field(default_factory=Minimums)
    flags: tuple[str, ...] | None = ()


class KillError(msgspec.Struct):
    code: ErrorNumber = 0
    message: str = ""
    string: str = ""


class KillStatus(msgspec.Struct):
    error: KillError = msgspec.field(default_factory=KillError)


class KillAnswer(Envelope, kw_only=True):
    """`DELETE jobs/`: status code 200 proves little; `status` has the result for each job."""

    status: tuple[KillStatus, ...] | None = ()


class AccountedState(msgspec.Struct):
    current: tuple[str, ...] = ()


class AccountedTime(msgspec.Struct):
    end: object = None


class AccountedJob(msgspec.Struct):
    """One item of `GET /slurmdb/…/jobs/`."""

    job_id: JobId
    name: str
    state: AccountedState
    time: AccountedTime = msgspec.field(default_factory=AccountedTime)

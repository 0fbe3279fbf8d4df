"""What slurmrestd sends, in its own words, and the versions of its interface.

Only the fields that decisions need are read; everything else in an answer (a job is 20 kB) is skipped without being built.
What is read is checked: a field of another type than Slurm documents is a msgspec.ValidationError, and the client makes a
ContractError of it.

slurmrestd's own ways (FACTS 4): numbers that may be absent are {"set", "infinite", "number"}; job ids are strings in
jobs/state ("53+0" is a component of a heterogeneous job, "12_[0-3]" tasks of an array); hostlists stay strings.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """One version of slurmrestd's interface.

    name    as it stands in every path
    since   the first Slurm release that serves it, for people
    """

    name: str
    since: str


# Newest first.  Both serve external jobs and resources/{id} with the same fields; Slurm before 25.11 has neither, and
# its versions need a placeholder of another kind (ARCHITECTURE 5).
API_VERSIONS = (ApiVersion("v0.0.45", "26.05"), ApiVersion("v0.0.44", "25.11"))


class Number(msgspec.Struct):
    """A number that may be absent or infinite."""

    set: bool = False
    infinite: bool = False
    number: float = 0

    @property
    def value(self) -> int | None:
        """None where it is absent or infinite."""
        return int(self.number) if self.set and not self.infinite else None


class ErrorEntry(msgspec.Struct):
    """One of `errors`.  error: Slurm's text for the number; description: what was tried."""

    error_number: int = 0
    error: str = ""
    description: str = ""


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
    """Who answered."""

    plugin: Plugin | None = None
    slurm: SlurmVersion | None = None


class Envelope(msgspec.Struct):
    """What every answer of slurmrestd has around it."""

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

    job_id: int


class JobState(msgspec.Struct, gc=False):
    job_id: str | int
    state: tuple[str, ...]


class StatesAnswer(Envelope, kw_only=True):
    """`GET jobs/state/`."""

    jobs: tuple[JobState, ...]


class ExitCode(msgspec.Struct):
    return_code: Number = msgspec.field(default_factory=Number)


class StepId(msgspec.Struct):
    sluid: str = ""


class Job(msgspec.Struct):
    job_id: int
    name: str
    user_name: str
    job_state: tuple[str, ...]
    account: str = ""
    partition: str = ""
    qos: str = ""
    state_reason: str = ""
    comment: str = ""
    submit_time: Number = msgspec.field(default_factory=Number)
    start_time: Number = msgspec.field(default_factory=Number)
    end_time: Number = msgspec.field(default_factory=Number)
    preempt_time: Number = msgspec.field(default_factory=Number)
    scheduled_nodes: str = ""
    nodes: str = ""
    excluded_nodes: str = ""
    dependency: str = ""
    step_id: StepId = msgspec.field(default_factory=StepId)
    time_limit: Number = msgspec.field(default_factory=Number)
    tasks: Number = msgspec.field(default_factory=Number)
    het_job_id: Number = msgspec.field(default_factory=Number)
    het_job_offset: Number = msgspec.field(default_factory=Number)
    exit_code: ExitCode = msgspec.field(default_factory=ExitCode)


class JobAnswer(Envelope, kw_only=True):
    """`GET job/{id}`."""

    jobs: tuple[Job, ...]


class GrantedGres(msgspec.Struct):
    name: str
    type: str | None = None
    count: int = 0
    index: str | None = None


class GrantedNode(msgspec.Struct):
    node: str
    mem_alloc: int
    core_bitmap: str
    gres: tuple[GrantedGres, ...] | None = ()


class ResourcesAnswer(Envelope, kw_only=True):
    """`GET resources/{id}`."""

    nodes: tuple[GrantedNode, ...]


class Node(msgspec.Struct):
    name: str
    state: tuple[str, ...]
    partitions: tuple[str, ...] | None = ()
    active_features: tuple[str, ...] | None = ()
    cpus: int = 0
    effective_cpus: int = 0
    sockets: int = 0
    cores: int = 0
    threads: int = 1
    real_memory: int = 0
    specialized_memory: int = 0
    gres: str = ""
    reason: str = ""


class NodesAnswer(Envelope, kw_only=True):
    """`GET nodes/`."""

    nodes: tuple[Node, ...]


class PartitionState(msgspec.Struct):
    state: tuple[str, ...] = ()


class Maximums(msgspec.Struct):
    time: Number = msgspec.field(default_factory=Number)


class Partition(msgspec.Struct):
    name: str
    partition: PartitionState
    maximums: Maximums = msgspec.field(default_factory=Maximums)
    flags: tuple[str, ...] | None = ()


class PartitionsAnswer(Envelope, kw_only=True):
    """`GET partitions/`."""

    partitions: tuple[Partition, ...]


class KillError(msgspec.Struct):
    code: int = 0
    message: str = ""
    string: str = ""


class KillStatus(msgspec.Struct):
    error: KillError = msgspec.field(default_factory=KillError)


class KillAnswer(Envelope, kw_only=True):
    """`DELETE jobs/`: 200 says little, `status` says what became of it."""

    status: tuple[KillStatus, ...] | None = ()


class AccountedState(msgspec.Struct):
    current: tuple[str, ...] = ()


class AccountedTime(msgspec.Struct):
    end: int = 0


class AccountedJob(msgspec.Struct):
    job_id: int
    name: str
    state: AccountedState
    time: AccountedTime = msgspec.field(default_factory=AccountedTime)


class AccountedAnswer(Envelope, kw_only=True):
    """`GET /slurmdb/…/jobs/`."""

    jobs: tuple[AccountedJob, ...]

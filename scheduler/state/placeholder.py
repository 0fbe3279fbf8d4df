"""A placeholder: one Slurm job that is the bridge's, or whose id a pod shows, and what the World remembers of it.

Its states are from the last observation.  An absent, denied or lost job counts neither as alive nor as ended
(ARCHITECTURE 4, ARCHITECTURE 6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scheduler.model.amounts import EMPTY, NO_TEXT
from scheduler.model.slurm import Grant, Job, JobSpec, States, holds_nodes, is_ended
from scheduler.policy.rules import Tenant
from scheduler.state.estimates import Estimate

# Reasons of a waiting job that slurmctld itself holds (Slurm facts 9).
NO_NODE_EVER, WITHOUT_ITS_RESERVATION = "BadConstraints", "ReservationDeleted"
NOT_CONSIDERED = ("", "None")  # reasons of a job that slurmctld has not considered yet
PENDING: States = frozenset({"PENDING"})
RUNNING: States = frozenset({"RUNNING"})
CANCELLED: States = frozenset({"CANCELLED"})


@dataclass(frozen=True, slots=True)
class KnownTenant:
    """The tenant of pods in a managed namespace.  It is valid until the policy or the labels of a namespace change.

    changes   World.identity_changes when the tenant was determined
    """

    tenant: Tenant
    changes: int


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change of one field of a waiting job that Slurm refused (K8).

    value     the value that the field should get
    answer    what Slurm said, a sentence
    retry_at  when Slurm is asked again, epoch seconds
    """

    value: object
    answer: str
    retry_at: float


# Fields of a placeholder that are about one job, and not about whatever job Slurm lists under its id.
_OF_ONE_JOB = (
    "job",
    "grant",
    "spec",
    "adopted_as",
    "limit_before",
    "requeued",
    "broken",
    "recorded",
    "not_recorded",
    "asked_at",
    "asked_for",
    "components",
    "asked_as",
    "prepared_at",
    "estimates",
    "bind_refused",
    "bind_trouble",
    "cancelled_for",
    "refused_changes",
    "one_by_one",
    "held_retry_at",
    "chosen_by_slurm",
    "changed_at",
)


MAX_BIND_FAILURES = 5  # after so many refused binds of one pod the grant is released for other pods


@dataclass(slots=True)
class Placeholder:
    """One Slurm job that is the bridge's, or whose id a pod shows.

    key           key of its workload, if proven: this process submitted the job, or read and checked it; None: not proven
    user          the user of the job; "": not known, because only pods show the id
    states        its states as last observed
    job           the job as it was read last; None: it was not read yet
    grant         its grant, from the answer to its submission or from a read; None: it waits, or its grant was not read
    spec          the specification of the submission; None: another process submitted the job
    known_since   when the bridge learned of the job: a poll that was sent before this time does not count for it
    read_began    when the last read of the job itself was sent
    hinted_by     keys of the workloads whose pods show this id
    followed_by   keys of the workloads among these that end with the job, although it has another name (docs/decisions/0003)
    absent_first, absent_last   when the first and the latest list or read that lacked the job was sent; None: none lacked it
    confirmed_gone   an admin confirmed that the missing job is gone (X6)
    denied        a read, or a list, showed that the job of this id is not, or no longer, the workload's job
    requeued      Slurm requeued it while its pods ran, so the bridge cancelled it (S7)
    broken        a component of the heterogeneous job ended, so its grant cannot be used (docs/decisions/0002)
    states_since  when its states changed last
    ended_seen    when its end was first observed; None: it was not
    granted_at    when it was first observed that it holds nodes, since its last requeue; None: it has held none
    prepared_at   when Slurm had powered up its nodes, or its prolog was over, as this process saw it; None: it saw neither
    limit_before  its time limit in minutes before it was changed while its pods ran (S9); None: it was not changed
    recorded      the end of its pods is in accounting, or will not be written (S2)
    not_recorded  how many writes of that end accounting refused or did not answer
    end_proven    its end is proven: the job was read, the cancel was confirmed, or a list proves it
                  (scheduler/apply/job_polls.py)
    adopted_as    what the pods asked for when this process first compared it with a job that another process submitted (K8);
                  None: not yet, or this process submitted the job
    asked_at      when this process sent the submission; None: another process did
    asked_for     UIDs of the pods for whose needs the job was submitted; the needs of other pods are compared before a bind
    components    of a heterogeneous job: UID of each of these pods to the index of its component; {}: an ordinary job, or
                  another process submitted the job, or the requests of the pods changed since
    asked_as      the tenant of these pods, as decided at the submission; None: the tenants differ, or another process
                  submitted the job
    estimates     the expected starts that Slurm gave while it waits, which are judged when it starts
    bind_refused  pod UID to how many binds to the present grant were refused
    cancelled_for why this process ended the job; "": it did not
    bind_trouble  why the last bind to the present grant failed, a sentence; "": none failed, or one succeeded since
    refused_changes  index of a component, and field of JobSpec, to the change of this field that Slurm refused last
    held_retry_at  when the bridge acts on the job, which slurmctld itself holds for good; None: it does not
    one_by_one    an update of several fields was refused, so the fields are changed one by one: Slurm takes all or nothing
    chosen_by_slurm  annotation to the value that the first read by this process showed: Slurm's default, if the pods ask for
                  none; without options that the bridge changed since
    changed_at    when the bridge last changed another option of the job than its excluded nodes
    """

    id: int
    key: str | None
    user: str
    states: States
    known_since: float
    job: Job | None = None
    grant: Grant | None = None
    spec: JobSpec | None = None
    adopted_as: JobSpec | None = None
    hinted_by: set[str] = field(default_factory=set)
    followed_by: frozenset[str] = frozenset()
    read_began: float = float("-inf")
    ended_seen: float | None = None
    states_since: float = float("-inf")
    limit_before: int | None = None
    end_proven: bool = False
    absent_first: float | None = None
    absent_last: float | None = None
    confirmed_gone: bool = False
    denied: bool = False
    requeued: bool = False
    broken: bool = False
    recorded: bool = False
    not_recorded: int = 0
    asked_at: float | None = None
    asked_for: frozenset[str] = frozenset()
    components: Mapping[str, int] = EMPTY
    asked_as: KnownTenant | None = None
    granted_at: float | None = None
    prepared_at: float | None = None
    estimates: tuple[Estimate, ...] = ()
    bind_refused: Counter[str] = field(default_factory=Counter)
    bind_trouble: str = ""
    cancelled_for: str = ""
    refused_changes: Mapping[tuple[int, str], RefusedChange] = field(default_factory=dict)
    one_by_one: bool = False
    held_retry_at: float | None = None
    chosen_by_slurm: Mapping[str, str] = NO_TEXT
    changed_at: float = float("-inf")

    def forget_former_job(self) -> None:
        """Slurm gave the id to another job: forget what was asked for, granted, refused and recorded under this id before."""
        fresh = Placeholder(self.id, self.key, self.user, self.states, self.known_since)
        for name in _OF_ONE_JOB:
            setattr(self, name, getattr(fresh, name))

    def retry_changes(self) -> None:
        """Ask Slurm again at once for the changes that it refused, for all changes together, and for a job that it holds."""
        self.one_by_one = False
        if self.held_retry_at is not None:
            self.held_retry_at = float("-inf")
        self.refused_changes = {
            field: replace(refused, retry_at=float("-inf")) for field, refused in self.refused_changes.items()
        }

    @property
    def name(self) -> str:
        """The name of the job, as it was read last or submitted.  Id and name together identify the job."""
        known = self.job or self.spec
        assert known is not None, "a proven job was read, or made by this process"
        return known.name

    @property
    def proven(self) -> bool:
        """True if the job is known to be the workload's: this process submitted it, or read and checked it."""
        return self.key is not None

    @property
    def submitted(self) -> float | None:
        """When the job was submitted, by any process: a restart continues the same trace (O3).  None: not read yet."""
        return self.asked_at if self.asked_at is not None else self.job.submitted if self.job else None

    @property
    def ended(self) -> bool:
        """True if the job ended.  The end of a denied job counts only if it is proven: a list may show another job's end."""
        return is_ended(self.states) and (self.end_proven or not self.denied)

    @property
    def shows_end(self) -> bool:
        """True if the last observation of this id showed an ended job, even if it was another job."""
        return is_ended(self.states)

    @property
    def holds_nodes(self) -> bool:
        return holds_nodes(self.states)

    @property
    def absent(self) -> bool:
        return self.absent_first is not None

    @property
    def alive(self) -> bool:
        """True if Slurm showed the job last, and not as ended.  An absent or denied job is neither alive nor ended."""
        return not self.ended and not self.absent and not self.denied

    def mark_present(self) -> None:
        """Note that the id is listed, or was read.

        If a read denied the job, another job may have the id now, so what an admin confirmed stays true.
        """
        self.absent_first = self.absent_last = None
        self.confirmed_gone = self.confirmed_gone and self.denied

    def is_lost(self, absent_s: float) -> bool:
        """True if a read denied the job, and answers at least that many seconds apart lacked it (ARCHITECTURE 6)."""
        return self.denied and self.was_missed(absent_s)

    def was_missed(self, absent_s: float) -> bool:
        """True if answers at least that many seconds apart lacked the job."""
        first, last = self.absent_first, self.absent_last
        return first is not None and last is not None and last - first >= absent_s

    @property
    def lost_since(self) -> float:
        """Since when the job is absent; if it is not absent, since when it has its present states.  Epoch seconds."""
        return self.absent_first if self.absent_first is not None else self.states_since

    def has_proven_end(self, absent_s: float) -> bool:
        """True if the end of the job is proven (`end_proven`), or if the job is lost."""
        return self.end_proven or self.is_lost(absent_s)

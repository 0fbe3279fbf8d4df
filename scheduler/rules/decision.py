"""The decision of a rule, as a value (ARCHITECTURE 3).

A rule reads the World and the pass, and returns a Decision.  It changes nothing in the World; in the pass it keeps only what
it computed (scheduling_pass.py).  The driver (driver.py) enters the Decision in the plan directly after the rule, so the rule
of the next workload sees it.  Only the driver applies limits and token buckets to a Decision, and drops reads that are in
flight already and conditions that the pods show already.

A helper that checks a precondition returns `Decision | None`.  None: the precondition holds.  A Decision: the precondition
does not hold, or is not known yet; then the caller returns this Decision.

A rule for all workloads together (periodic.py) returns an iterator of SharedSteps.  The driver takes the steps one by one,
up to the first for which a limit has no room, and the rule computes no step after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec

from scheduler.actions import Action, BindPod, EvictPod
from scheduler.model.kubernetes import OwnerKey, Pod
from scheduler.model.left_out import LeavesOut
from scheduler.model.slurm import JobSpec

P = ParamSpec("P")
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Act:
    """Plan one action, if its limit class has room; otherwise the workload waits for its turn.

    bucket       the token bucket that the action takes from; "": none.  If it is empty, the workload waits for its turn
    is_optional  the action is dropped if it is not possible now; the workload does not wait for it
    """

    action: Action
    bucket: str = ""
    is_optional: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class EvictAlone:
    """Plan the eviction if no other replica of the controller is moving (S4b); otherwise try again at `retry_at`."""

    action: EvictPod
    controller: OwnerKey
    retry_at: float


@dataclass(frozen=True, slots=True)
class BindTogether:
    """Plan the binds of one workload: none if their limit class is full, otherwise all, even beyond the limit (W9)."""

    binds: tuple[BindPod, ...]


@dataclass(frozen=True, slots=True)
class PodStatus:
    """The condition PodScheduled=False of a pod, and an event; written if the status has changed (status_writes.py).

    reason       the condition's reason; "": the event alone
    event        the event's reason; "": the reason of the condition
    essence      the parts of the message that matter when it is compared with the next one; None: all of it
    starts       the expected start that the message names, epoch seconds
    annotations  annotations to write on the bound pod, too
    """

    pod: Pod
    reason: str
    message: str
    essence: tuple[str, ...] | None = None
    starts: float | None = None
    warning: bool = False
    event: str = ""
    annotations: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PodStatuses:
    """The same status of several pods.  If there is no room for all, the rest is written when there is room again."""

    pods: tuple[Pod, ...]
    reason: str
    message: str
    warning: bool = True
    event: str = ""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The condition of a bound pod about its job, and an event; written if the status has changed (status_writes.py).

    runs     the condition's status: True if the job runs
    again_s  the same status is written again after so many seconds
    """

    pod: Pod
    reason: str
    message: str
    essence: tuple[str, ...]
    runs: bool = True
    warning: bool = False
    again_s: float = NEVER


@dataclass(frozen=True, slots=True)
class InTurn:
    """Decisions that are applied one by one, up to the first whose token bucket is empty."""

    parts: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """`first`, then `planned` if an action of `first` came into the plan, otherwise `not_planned`."""

    first: Decision
    planned: Decision
    not_planned: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Entries of the plan about the workload besides actions.

    awaits        the owner after whose read the workload is visited again; None: none
    exclude       Slurm node on which a grant of the workload could not be used (F6); "": none
    leave_out     nodes that the workload does not ask for from now on (F6); None: as before
    is_charged    the submission counts against the limits of the policy's rule
    written_off   UID of a pod of a former job that counts as over (S8); "": none
    is_forgotten  nothing is left of the workload
    begin_is_due  the job's begin time has come, and slurmctld is to be nudged
    adopted       id of a job of another process, and what the pods ask for now: later edits are compared with that (K8)
    not_asked_for  id of a lost job for whose nodes no job can be submitted: pods that wait do not wait for that (S7)
    """

    awaits: OwnerKey | None = None
    exclude: str = ""
    leave_out: LeavesOut | None = None
    is_charged: bool = False
    written_off: str = ""
    is_forgotten: bool = False
    begin_is_due: bool = False
    adopted: tuple[int, JobSpec] | None = None
    not_asked_for: int | None = None
    lacks_nodes: bool = False


@dataclass(frozen=True, slots=True)
class NextPass:
    """Run another pass at that time, epoch seconds."""

    at: float


Status = PodStatus | PodStatuses | JobStatus
Step = Act | EvictAlone | BindTogether | Status | Note | InTurn | Branch
SharedStep = Act | NextPass


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a rule about one workload.

    steps       actions, statuses and notes, in the order in which they come into the plan
    wake_at     when the workload is visited again even if no event marks it, epoch seconds
    limited_by  limits in which the workload waits for its turn: limit classes, quotas, token buckets
    why         why the workload waits, a sentence that no pod shows; "": the statuses say it, or it does not wait
    """

    steps: tuple[Step, ...] = ()
    wake_at: float = NEVER
    limited_by: tuple[str, ...] = ()
    why: str = ""

    def __add__(self, other: Decision) -> Decision:
        """Both decisions, this one first."""
        return combine((self, other))

    def followed_by(self, if_planned: Decision | None = None, if_not: Decision | None = None) -> Decision:
        """This decision, then `if_planned` if one of its actions came into the plan, otherwise `if_not`."""
        return Decision((Branch(self, if_planned or NOTHING, if_not or NOTHING),))

    @property
    def actions(self) -> Iterator[Action]:
        """All actions that the driver may plan, in order."""
        for step in _flat(self):
            if isinstance(step, Act | EvictAlone):
                yield step.action
            elif isinstance(step, BindTogether):
                yield from step.binds

    @property
    def statuses(self) -> Iterator[Status]:
        """All statuses, in order, whether they are news or not."""
        for step in _flat(self):
            if isinstance(step, Status):
                yield step

    @property
    def reasons_to_wait(self) -> Iterator[str]:
        """Why the workload waits, in sentences."""
        if self.why:
            yield self.why
        for step in self.steps:
            for part in _parts(step):
                yield from part.reasons_to_wait


NOTHING = Decision()


def _alone(step: Callable[P, Step]) -> Callable[P, Decision]:
    def decision(*args: P.args, **kwargs: P.kwargs) -> Decision:
        return Decision((step(*args, **kwargs),))

    return decision


plan_action = _alone(Act)  # one action
note = _alone(Note)  # only entries in the plan


def wake(at: float, why: str = "") -> Decision:
    """Visit the workload again at that time, even if no event marks it."""
    return Decision(wake_at=at, why=why)


def wait_for(limit: str, why: str = "") -> Decision:
    """Visit the workload again when it is its turn in that limit: a limit class, quota or token bucket."""
    return Decision(limited_by=(limit,), why=why)


def in_turn(parts: Iterable[Decision]) -> Decision:
    """These decisions one by one, up to the first whose token bucket is empty."""
    return Decision((InTurn(tuple(parts)),))


def combine(decisions: Iterable[Decision]) -> Decision:
    """All of these decisions, in this order."""
    found = [decision for decision in decisions if decision is not NOTHING]
    if len(found) < 2:
        return found[0] if found else NOTHING
    steps, limited_by = list[Step](), list[str]()
    wake_at, why = NEVER, ""
    for decision in found:
        steps += decision.steps
        limited_by += decision.limited_by
        wake_at = min(wake_at, decision.wake_at)
        why = why or decision.why
    return Decision(tuple(steps), wake_at, tuple(limited_by), why)


def _flat(decision: Decision) -> Iterator[Step]:
    for step in decision.steps:
        yield step
        for part in _parts(step):
            yield from _flat(part)


def _parts(step: Step) -> tuple[Decision, ...]:
    if isinstance(step, InTurn):
        return step.parts
    return (step.first, step.planned, step.not_planned) if isinstance(step, Branch) else ()

"""A workload, its placeholders, and what the world remembers of both.

A workload is the pods that start and end together; a pod without a group is one by itself (W1).  The records here are
parts of the World: only `World.apply` changes them.  What the two clusters show is fact.  The bridge itself remembers only
what is in flight: an action that was sent, or that ended and is not visible yet (ARCHITECTURE 3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from scheduler import names
from scheduler.actions import Action, BindPod, DeletePod, EvictPod, FailByDeadline
from scheduler.model.amounts import EMPTY
from scheduler.model.kubernetes import Condition, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, Job, JobSpec, States, holds_nodes, is_ended
from scheduler.policy.rules import Tenant
from scheduler.state.estimates import Estimate
from scheduler.state.pod_counts import PodCounts
from scheduler.translate.grouping import Group, Rank
from scheduler.tuning import Tuning

STORY_LENGTH = 40
NOT_CONSIDERED = ("", "None")  # reasons of a job that slurmctld has not considered yet
PENDING: States = frozenset({"PENDING"})
RUNNING: States = frozenset({"RUNNING"})
CANCELLED: States = frozenset({"CANCELLED"})

Announced = BindPod | DeletePod | FailByDeadline | EvictPod  # writes that are announced by a Kubernetes event


@dataclass(frozen=True, slots=True)
class KnownTenant:
    """The tenant of pods in a managed namespace.  It holds until the policy, or the labels of a namespace, change.

    changes   World.identity_changes at that time
    """

    tenant: Tenant
    changes: int


@dataclass(slots=True)
class Placeholder:
    """One Slurm job that is ours, or that a pod hints at.

    key           key of its workload, once proven: made by this process, or read and checked; None: only hinted at
    known_since   when the bridge learned of the job: a poll that was sent before this time does not count for it
    read_began    when the last read of the job itself was sent
    hinted_by     keys of the workloads whose pods show this id
    followed_by   of these: those that end with the job, which has another name (docs/decisions/0003)
    absent_first, absent_last   began of the first and the latest complete answer that lacked it
    confirmed_gone   an admin confirmed that the missing job is gone (X6)
    denied        a read showed that this id is not, or not any more, the workload's job
    requeued      Slurm requeued it while its pods ran, and the bridge cancelled it for that (S7)
    broken        a component of the heterogeneous job ended: the job is no grant any more (docs/decisions/0002)
    states_since  when its states changed last
    limit_before  its time limit in minutes before it was changed while its pods ran (S9); None: it was not changed
    recorded      accounting has the end of its pods, or does not take it (S2)
    not_recorded  how often accounting did not take it
    end_read      its end is proven: the job was read, or the cancel was confirmed
    adopted_as    what the pods asked for when this process first compared it with a job that another process submitted (K8);
                  None: not yet, or this process submitted the job
    asked_at      when this process sent the submission; None: another process did
    asked_for     UIDs of the pods whose needs the submission names; the needs of other pods are compared before a bind
    components    of a heterogeneous job: UID of each of these pods to the index of its component; {}: an ordinary job, or
                  another process submitted it, or what the pods ask for changed since
    asked_as      the tenant of these pods, as decided at the submission; None: pods differ, or another process did
    estimates     the expected starts that Slurm gave while it waits, which are judged when it starts
    bind_refused  pod UID to how many binds to the present grant the API server refused
    bind_trouble  why the last bind to the present grant failed, a sentence; "": none failed, or one succeeded since
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
    end_read: bool = False
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
    estimates: tuple[Estimate, ...] = ()
    bind_refused: Counter[str] = field(default_factory=Counter)
    bind_trouble: str = ""

    @property
    def name(self) -> str:
        """The name of the job, as it was read last or submitted.  Id and name together identify the job."""
        known = self.job or self.spec
        assert known is not None, "a proven job was read, or made by this process"
        return known.name

    @property
    def proven(self) -> bool:
        """True if the job is known to be the workload's: made by this process, or read and checked."""
        return self.key is not None

    @property
    def submitted(self) -> float | None:
        """When it was submitted, by any process: a restart continues the same trace (O3).  None: not read yet."""
        return self.asked_at if self.asked_at is not None else self.job.submitted if self.job else None

    @property
    def ended(self) -> bool:
        return is_ended(self.states)

    @property
    def holds_nodes(self) -> bool:
        return holds_nodes(self.states)

    @property
    def absent(self) -> bool:
        return self.absent_first is not None

    @property
    def alive(self) -> bool:
        """True if it neither ended nor is in doubt: an absent or denied job is neither alive nor ended."""
        return not self.ended and not self.absent and not self.denied

    def mark_present(self) -> None:
        """Note that the job is not absent, or not any more."""
        self.absent_first = self.absent_last = None
        self.confirmed_gone = False

    def lost(self, absent_s: float) -> bool:
        """True if a read denied it and it was absent from polls that were sent so many seconds apart (ARCHITECTURE 6)."""
        return (
            self.denied
            and self.absent_first is not None
            and self.absent_last is not None
            and self.absent_last - self.absent_first >= absent_s
        )

    @property
    def lost_since(self) -> float:
        """Since when Slurm has not listed the job, or has had it in its queue again, epoch seconds."""
        return self.absent_first if self.absent_first is not None else self.states_since

    def proven_end(self, absent_s: float) -> bool:
        """True if the job ended, and that was read of the job itself; or if it is lost."""
        return (self.ended and self.end_read) or self.lost(absent_s)


@dataclass(slots=True)
class InFlight:
    """An action that was sent and has not ended, or whose effect is not visible yet.

    until      when to stop waiting for its effect; None: it has not ended
    lost_job   of a submission for the nodes of a lost job: the id of that job (S7)
    asked_for, components, asked_as  of a submission: as in Placeholder
    """

    action: Action
    planned_at: float
    until: float | None = None
    lost_job: int | None = None
    asked_for: frozenset[str] = frozenset()
    components: Mapping[str, int] = EMPTY
    asked_as: KnownTenant | None = None


MOST_BOUND_BY_OTHERS = 16  # binds by other clients that are remembered


@dataclass(frozen=True, slots=True)
class BoundByOther:
    """Another client bound a pod of that workload; the pod names that job since.  at: when the bridge saw this"""

    at: float
    pod: str
    key: str
    job_id: int


@dataclass(frozen=True, slots=True)
class UnansweredBind:
    """A bind whose answer was lost.  until: the bind cannot take effect after this time, so a read of the pod settles it."""

    action: BindPod
    until: float


class Attempt(StrEnum):
    """Kinds of actions with a backoff of their own in each workload: ends, the reads before them, and updates (S14).

    What ends must not wait because something else failed, perhaps in the other cluster: a job whose pods are gone holds its
    nodes meanwhile, and pods whose job is over use nodes that Slurm gives away.  A bind must not wait because an update of
    the job failed while it waited.
    """

    READ_JOB = "read job"  # ReadJob
    UPDATE_JOB = "update job"  # UpdateJob
    END_JOB = "end job"  # CancelJob
    RECORD = "record"  # RecordEnd
    END_POD = "end pod"  # DeletePod, FailByDeadline
    MOVE = "move"  # EvictPod, SetDeadline: the job lives still


class Backoff(NamedTuple):
    """How many attempts failed in a row, and until when nothing is tried again, epoch seconds."""

    failures: int = 0
    until: float = float("-inf")

    def after(self, at: float, began: float, tuning: Tuning) -> Backoff:
        """The backoff after another failure: the wait doubles.

        began   when the failed call was sent: calls that were sent together count as one attempt
        """
        together = began < self.until and self.failures > 0
        failures = self.failures if together else min(self.failures + 1, 16)
        until = at + min(tuning.backoff_max_s, tuning.backoff_s * 2 ** (failures - 1))
        # The server may have asked for a longer pause in the answer to one of the calls.
        return Backoff(failures, max(self.until, until) if together else until)


@dataclass(slots=True)
class LastStatus:
    """The status that was last set on a pod.

    essence     the parts of the message that count as a change (Q2)
    is_first    it is the first one about a job in Slurm's queue, whose first reason Slurm often corrects within seconds
    """

    condition: str
    message: str
    essence: tuple[str, ...] = ()
    starts: float | None = None
    at: float = float("-inf")
    event_at: float = float("-inf")
    is_first: bool = False


@dataclass(slots=True)
class Edited:
    """Annotations of one bound pod that only the bridge writes, and that another client changed (own_keys.py).

    right      the values that the bind wrote, by key, where the pod shows another; None: it wrote none
    put_back   how often they were written back; the next time not before next_at
    under_way  a write is in flight
    """

    right: dict[str, str | None]
    put_back: int = 0
    next_at: float = float("-inf")
    under_way: bool = False


@dataclass(slots=True)
class JobSearch:
    """A search for a job of this name, after an unknown outcome or a twin (2038): nothing is submitted before it ends.

    began   when the call was sent: ids that are new since then are read first
    until   the submission is not repeated before this time
    user    the Slurm user that the call named: a job of this name and user is the workload's, whatever user its pods have now
    """

    began: float
    until: float
    name: str
    user: str
    asked_database: bool = False
    twin: bool = False


@dataclass(slots=True)
class DeletedPod:
    """A deleted pod: its last state, and until when its containers may still run (S3)."""

    pod: Pod
    at: float
    until: float


def deleted_pod(pod: Pod, at: float, tuning: Tuning, *, was_on_node: bool) -> DeletedPod:
    """The record of a pod that is gone since *at*.  Its containers may still run if it was on a node and had not ended."""
    may_run = was_on_node and not pod.finished
    return DeletedPod(pod, at, at + tuning.grace_counts_s(pod.grace_s) + tuning.gone_grace_s if may_run else at)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Nodes that the submissions of a workload exclude, because a grant there could not be used (F6, crowding.py).

    nodes      their names in Slurm
    judged_at  when they are judged again
    unusable_grants    how many grants of the workload in a row could not be used
    patient_until  a full node is left out until then, whatever fills it
    """

    nodes: frozenset[str]
    judged_at: float
    unusable_grants: int = 0
    patient_until: float = float("-inf")


def after_unusable_grant(before: LeftOut | None, node: str, at: float, exclude_s: float) -> LeftOut:
    """The excluded nodes after a grant on that node could not be used: each time for longer, at most for 16 `exclude_s`."""
    unusable_grants = before.unusable_grants + 1 if before is not None else 1
    nodes = before.nodes | {node} if before is not None else frozenset({node})
    return LeftOut(nodes, at + exclude_s, unusable_grants, at + exclude_s * min(16, 4 ** min(unusable_grants - 1, 2)))


@dataclass(slots=True)
class Workload:
    """A workload: its pods by UID, its jobs by id, and its actions in flight.

    readable    for people: the pod's full name, or namespace and name of the group
    group       what makes its pods one; None: a pod by itself
    shown       what each of its pods shows of the group
    size        how many unfinished members it needs; 0: not known yet (W5)
    surplus     UIDs of pods of the group that are workloads by themselves, because the group was complete
    written_off  UIDs of pods of a former job on a dead node, which never shows their end: they count as ended (S8)
    left_at     when the last of its members was seen to leave: to end, to be deleted, or to be gone
    last_rank   the highest rank among the unbound members; (): there are none; None: not known since the counts changed
    pod_counts  how its pods are counted
    jobs        ids of placeholders that are its own or that its pods hint at
    left_out    nodes on which its grants could not be used (F6); None: there are none, or it was bound since
    bound       pods that a bind put on a node though the watch has not shown it yet: uid to node
    refused     why Slurm refused the last submission; retry_at: when the workload is submitted again
    asked_in    the partition of the last submission
    first_bound_at  when the first bind of its present grant went out (V4)
    failures, wait_until  how many attempts failed in a row; nothing is tried before that, apart from the kinds of Attempt
    backoffs    kind of attempt to its backoff, if the last one failed
    anomalies   pod UID to what was rejected about its job, a sentence, until the event is posted
    late_changes  pod UID to what was changed of that pod after it was bound, until the event is posted (K8, T11)
    bound_by_this_process   this process sent a bind for one of its pods
    bound_by_bridge_before  UIDs of the pods that a bind of the bridge put on their nodes
    strays      pod UID to when that pod was first seen on a node to which no process of the bridge bound it
    of_other_scheduler  it is a pod of another scheduler, in a managed namespace, on a node that Slurm allocates
    job_of_other_bridge  of such a pod: True if another bridge made the job that it names; None: not read yet
    renamed     id of the job that its pods name, which has another name and may still be the workload's; None: none
    unconfirmed_binds  pod UID to the bind that may put that pod on a node, until the watch shows what became of it
    edited      pod UID to its annotations that only the bridge writes, where another client changed them
    renewed     pod UID to what this process writes into these annotations when the job is replaced (reacquire.py)
    unanswered  pod UID to a write on that pod whose answer was lost, until the watch proves it or a later write is confirmed
    proven      pod UID to such a write that the watch has proven, until its event is posted
    releasing   the job that is being released, and the message for its pods once that is confirmed
    release_messages  pod UID to that message, once the job has ended, until the condition is set
    lost_job    its lost job, whose id Slurm gave to another job since
    foreign_jobs  ids of jobs with its name that belong to another user
    former      ids of such jobs that were submitted when its pods had another user, and that are cancelled (job_ownership.py)
    reacquired  the lost job whose nodes were asked for again, and why Slurm did not grant them (S7)
    """

    key: str
    readable: str = ""
    created: float = 0.0
    group: Group | None = None
    shown: dict[str, Group] = field(default_factory=dict)
    size: int = 1
    surplus: dict[str, None] = field(
        default_factory=dict
    )  # a dict, as an empty set takes 216 bytes and an empty dict 64
    written_off: frozenset[str] = frozenset()
    left_at: float = float("-inf")
    last_rank: Rank | tuple[()] | None = None
    pod_counts: PodCounts = field(default_factory=PodCounts)
    pods: dict[str, Pod] = field(default_factory=dict)
    gone: dict[str, DeletedPod] = field(default_factory=dict)
    jobs: set[int] = field(default_factory=set)
    hint: int | None = None
    in_flight: InFlight | None = None
    pods_in_flight: dict[str, InFlight] = field(default_factory=dict)
    last_status: dict[str, LastStatus] = field(default_factory=dict)
    job_search: JobSearch | None = None
    left_out: LeftOut | None = None
    bound: dict[str, str] = field(default_factory=dict)
    refused: Refusal | None = None
    retry_at: float = float("-inf")
    failures: int = 0
    wait_until: float = float("-inf")
    backoffs: dict[Attempt, Backoff] = field(default_factory=dict)
    asked_in: str = ""
    immediate_refused: bool = False
    updated_at: float = float("-inf")
    twin_searched_at: float = float("-inf")
    first_bound_at: float = float("-inf")
    lost_job: Placeholder | None = None
    foreign_jobs: frozenset[int] = frozenset()
    former: frozenset[int] = frozenset()
    reacquired: tuple[int, str] | None = None
    anomalies: dict[str, str] = field(default_factory=dict)
    late_changes: dict[str, str] = field(default_factory=dict)
    bound_by_this_process: bool = False
    bound_by_bridge_before: dict[str, None] = field(default_factory=dict)
    strays: dict[str, float] = field(default_factory=dict)
    of_other_scheduler: bool = False
    renamed: int | None = None
    job_of_other_bridge: bool | None = None
    unconfirmed_binds: dict[str, BindPod] = field(default_factory=dict)
    edited: dict[str, Edited] = field(default_factory=dict)
    renewed: dict[str, Mapping[str, str]] = field(default_factory=dict)
    unanswered: dict[str, Announced] = field(default_factory=dict)
    proven: dict[str, Announced] = field(default_factory=dict)
    releasing: tuple[int, str] | None = None
    release_messages: dict[str, str] = field(default_factory=dict)
    story: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for pod in self.pods.values():
            self._count(pod)

    def put(self, pod: Pod) -> None:
        """Add the pod, or replace it by its present state."""
        self.pods[pod.uid] = pod
        self._count(pod)

    def take_out(self, uid: str) -> Pod | None:
        """Remove the pod from the workload.  Returns it; None: it was not there."""
        self.pod_counts.drop(uid)
        self.last_rank = None
        self.shown.pop(uid, None)
        self.written_off -= {uid}
        self.bound_by_bridge_before.pop(uid, None)
        self.strays.pop(uid, None)
        self.release_messages.pop(uid, None)
        return self.pods.pop(uid, None)

    def retry_from(self, attempt: Attempt) -> float:
        """When the next attempt of this kind may be made, epoch seconds; -inf: at once."""
        return self.backoffs.get(attempt, Backoff()).until

    def reset_backoffs(self) -> None:
        """What failed is tried again at once."""
        self.failures, self.wait_until = 0, float("-inf")
        self.backoffs.clear()

    def end_in_flight(self, action: Action) -> InFlight | None:
        """The action is not in flight any more.  Returns its record; None: another action, or none, is in flight."""
        held = self.in_flight
        if held is None or held.action != action:
            return None
        self.in_flight = None
        return held

    def end_pod_in_flight(self, uid: str, action: Action) -> InFlight | None:
        """As `end_in_flight`, for an action on that pod."""
        held = self.pods_in_flight.get(uid)
        return self.pods_in_flight.pop(uid) if held is not None and held.action == action else None

    def is_being_bound(self, uid: str) -> bool:
        """True if a bind of that pod is in flight."""
        held = self.pods_in_flight.get(uid)
        return held is not None and isinstance(held.action, BindPod)

    def put_on(self, uid: str, node: str) -> None:
        """A bind of the bridge put the pod on the node; the watch has not shown that yet."""
        self.bound[uid] = node
        self._count(self.pods[uid])

    def write_off(self, uid: str) -> None:
        """Count the pod as ended until it is gone, because its node will never report its end."""
        if uid in self.pods:
            self.written_off |= {uid}
            self._count(self.pods[uid])

    def show(self, uid: str, group: Group) -> None:
        """Note what the pod shows of the group.  It is counted so as soon as it is one of the workload's pods."""
        if self.shown.get(uid) != group:
            self.shown[uid] = group
            if uid in self.pods:
                self._count(self.pods[uid])

    def recount(self) -> PodCounts:
        """Count all pods again: the value that `pod_counts` must have."""
        anew = PodCounts()
        for pod in self.pods.values():
            self._count_in(anew, pod)
        return anew

    def _count(self, pod: Pod) -> None:
        if self._count_in(self.pod_counts, pod):
            self.last_rank = None

    def _count_in(self, counts: PodCounts, pod: Pod) -> bool:
        over = pod.uid in self.written_off
        return counts.count(pod, self.node_of(pod), self.shown.get(pod.uid), over=over)

    def add_to_story(self, at: float, what: str) -> None:
        """Add an entry to the story, of which the last entries are kept."""
        self.story.append((at, what))
        del self.story[:-STORY_LENGTH]

    @property
    def pod(self) -> Pod:
        """The pod of a workload of one pod; of a gang any pod, also an ended one."""
        return next(iter(self.pods.values()))

    @property
    def namespace(self) -> str:
        """The namespace of its pods, also after the last one is gone; "": it never had a pod."""
        for pod in self.pods.values():
            return pod.namespace
        return next((gone.pod.namespace for gone in self.gone.values()), "")

    @property
    def unfinished(self) -> list[Pod]:
        """Its pods that still run, wait or terminate; a pod deleted before it was bound counts no more."""
        return list(self.pods.values() if self.pod_counts.unfinished == len(self.pods) else self._unfinished())

    @property
    def first(self) -> Pod:
        """The first unfinished pod."""
        return next(self._unfinished())

    def _unfinished(self) -> Iterator[Pod]:
        return (
            pod
            for pod in self.pods.values()
            if not pod.finished and (pod.deleting_at is None or self.node_of(pod)) and pod.uid not in self.written_off
        )

    @property
    def members(self) -> list[Pod]:
        """Unfinished, not gated and not terminating (W5)."""
        if self.pod_counts.members == len(self.pods):
            return list(self.pods.values())
        return [pod for pod in self.unfinished if not pod.gated and pod.deleting_at is None]

    @property
    def complete(self) -> bool:
        """True if all members exist (W6)."""
        return bool(self.size) and self.pod_counts.members >= self.size

    @property
    def gathered(self) -> str:
        """A sentence about the number of members of the gang that exist."""
        assert self.group is not None, "only a gang gathers"
        whole = f"{self.group.kind} {self.group.name}"
        if not self.size:
            return f"It is not known yet how many pods {whole} has; {self.pod_counts.members} are here."
        return f"{self.pod_counts.members} of {self.size} pods of {whole} are here in namespace {self.pod.namespace}."

    @property
    def nodes_left_out(self) -> frozenset[str]:
        """Slurm's names of the nodes that submissions exclude (F6)."""
        return self.left_out.nodes if self.left_out is not None else frozenset()

    @property
    def has_anti_affinity(self) -> bool:
        """True if a pod of it has a required anti-affinity (F5)."""
        return any(pod.anti_affinity for pod in self.pods.values())

    def node_of(self, pod: Pod) -> str:
        """The node of the pod, by the watch or by a bind of the bridge; "": none."""
        return pod.node or self.bound.get(pod.uid, "")

    def nodes(self) -> dict[str, str]:
        """UID to node, as `node_of` has it, of the pods that have one."""
        if self.pod_counts.unbound == len(self.pods):
            return {}
        return {pod.uid: node for pod in self.pods.values() if (node := self.node_of(pod))}

    def is_bound_for(self, pod: Pod, job: Placeholder) -> bool:
        """True if the pod runs for that job: the bridge bound it, or it names the job and the job is proven the workload's.

        Another copy of the bridge binds pods, too; such a pod names its job from its bind on.
        """
        names_its_job = job.key == self.key and pod.annotations.get(names.JOB_ID) == str(job.id)
        return pod.uid not in self.strays or names_its_job

    def some_bound_for(self, job: Placeholder) -> bool:
        """True if a pod of the workload runs for that job.  Called at each event: for most workloads the counts suffice."""
        on_nodes = len(self.pods) - self.pod_counts.unbound
        if job.key != self.key and len(self.strays) == on_nodes:
            return False
        if self.pod_counts.unfinished - self.pod_counts.unbound > len(self.strays):
            return True
        return any(self.is_bound_for(pod, job) for pod in self._unfinished() if self.node_of(pod))

    @property
    def all_bound_by_others(self) -> bool:
        """True if other clients than the bridge bound every bound pod of the workload."""
        return bool(self.strays) and all(pod.uid in self.strays for pod in self._unfinished() if self.node_of(pod))

    def shown_condition(self, pod: Pod) -> Condition | None:
        """The PodScheduled condition of the pod, if it is False; otherwise None."""
        return pod.scheduled if pod.scheduled is not None and not pod.scheduled.status else None

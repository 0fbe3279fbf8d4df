"""A workload: the pods that start and end together; a pod without a group is a workload by itself (W1).

The record is a part of the World: only `World.apply` changes it.  Most of it comes from what the two clusters show.  The
bridge itself remembers only actions in flight, and when to repeat a refused request (ARCHITECTURE 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scheduler import names
from scheduler.actions import Action, BindPod
from scheduler.model.kubernetes import Condition, Pod
from scheduler.model.left_out import LeavesOut
from scheduler.model.refusal import Refusal
from scheduler.state.backoff import NO_FAILURE, Attempt, Backoff
from scheduler.state.in_flight import Announced, InFlight, JobSearch
from scheduler.state.left_out import LeftOut
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_counts import PodCounts
from scheduler.state.pod_records import DeletedPod, Edited, LastStatus
from scheduler.translate.grouping import Group, Rank

STORY_LENGTH = 40


@dataclass(slots=True)
class Workload:
    """A workload: its pods by UID, its jobs by id, and its actions in flight.

    key         identifies it in the names of its jobs; it follows from the UID of the pod, or from the group
    readable    for people: the pod's full name, or namespace and name of the group
    created     when its oldest pod was created, by the clock of Kubernetes, epoch seconds; without pods: when its job was
                submitted
    group       the group of its pods; None: a pod by itself
    shown       pod UID to what the pod shows of the group
    size        how many unfinished members it needs; 0: not known yet (W5)
    surplus     UIDs of pods of the group that are workloads by themselves, because the group was complete
    written_off  UIDs of pods of a former job on a dead node, which never shows their end: they count as ended (S8)
    left_at     when a member was last seen to leave: to end, to be deleted, or to be gone
    last_rank   the highest rank among the unbound members; (): there are none; None: not known since the counts changed
    pod_counts  counts of its pods
    pods        its pods by UID, also ended pods, until they are gone from the API server
    deleted_pods  UID to a deleted pod, whose containers may still run (S3)
    jobs        ids of the placeholders that are its own, or whose ids its pods show
    hint        id of the job for which its pods run or wait: as this process submitted it, or as the pods show it; None: none
    in_flight   its action on a job that is in flight; None: there is none
    pods_in_flight  pod UID to the action on that pod, until the watch shows its effect
    last_status  pod UID to what the bridge showed last on that pod: subject to status (pod_records.py)
    job_search  the search for a job whose submission was not answered, or for a twin; None: nothing is searched
    left_out    nodes on which its grants could not be used (F6); None: there are none, or it was bound since
    bound       pod UID to the node on which a bind put the pod, until the watch shows it
    refused     why Slurm refused the last submission; None: Slurm accepted it, or there was none
    retry_at    when the workload is submitted again after a refusal, epoch seconds
    backoff     the backoff of all attempts that are of no kind of Attempt
    backoffs    kind of attempt to its backoff, if the last attempt failed
    asked_in    the partition of the last submission, or to which the bridge moved the job since
    immediate_refused  the last immediate allocation was refused, so the next job is submitted to the queue
    updated_at  when its waiting job was updated last
    twin_searched_at  when all jobs were read last because of an unknown twin of its job
    first_bound_at  when the first bind of its present grant was planned (V4)
    lost_job    its lost job, whose id Slurm gave to another job since
    foreign_jobs  ids of jobs with its name that belong to another user
    former_user_jobs  ids of its jobs of a former user, which are cancelled (job_ownership.py)
    reacquired  the lost job whose nodes were requested again, and why Slurm did not grant them (S7); None: no request failed,
                or an admin confirmed later that the job is gone (X6)
    not_asked_for  id of the lost job for whose nodes no job could be submitted at the last visit; None: none
    anomalies   pod UID to a sentence about the observation of its job that was rejected, until the event is posted
    end_refused   pod UID to a sentence why Kubernetes did not let the bridge end the pod
    late_changes  pod UID to the inputs of the user that changed after the bind, until the event is posted (K8, T11)
    bound_by_this_process   this process sent a bind for one of its pods
    bound_by_bridge_before  UIDs of the pods that a bind of the bridge put on their nodes
    strays      pod UID to when that pod was first seen on a node to which no process of the bridge bound it
    of_other_scheduler  it is a pod of another scheduler, in a managed namespace, on a node that Slurm allocates
    job_of_other_bridge  of such a pod: True if another bridge made the job that it names; None: not read yet
    renamed     id of the job that its pods name, which has another name and may still be the workload's; None: none
    unconfirmed_binds  pod UID to the bind that may put the pod on a node, until the watch shows the result
    edited      pod UID to the annotations of the bridge that another client changed
    regrouped   UID of a waiting pod, whose labels show another group than when it was created, to that group; None: none
    renewed     pod UID to what this process writes into these annotations when the job is replaced (reacquire.py)
    unanswered  pod UID to a write on the pod whose answer was lost, until the watch proves it or a later write is confirmed
    confirmed_writes  pod UID to such a write that the watch has proven, until its event is posted
    releasing   the job whose grant is being released, and the message that its pods show after the job has ended; None: none
    release_messages  pod UID to that message, from the end of the job until the event is posted
    story       the last events and actions, each with its time, for `explain` and the page
    """

    key: str
    readable: str = ""
    created: float = 0.0
    group: Group | None = None
    shown: dict[str, Group] = field(default_factory=dict)
    size: int = 1
    # A dict, because an empty set takes 216 bytes and an empty dict 64.
    surplus: dict[str, None] = field(default_factory=dict)
    written_off: frozenset[str] = frozenset()
    left_at: float = float("-inf")
    last_rank: Rank | tuple[()] | None = None
    pod_counts: PodCounts = field(default_factory=PodCounts)
    pods: dict[str, Pod] = field(default_factory=dict)
    deleted_pods: dict[str, DeletedPod] = field(default_factory=dict)
    jobs: set[int] = field(default_factory=set)
    hint: int | None = None
    in_flight: InFlight | None = None
    pods_in_flight: dict[str, InFlight] = field(default_factory=dict)
    last_status: dict[str, dict[str, LastStatus]] = field(default_factory=dict)
    job_search: JobSearch | None = None
    left_out: LeftOut | None = None
    bound: dict[str, str] = field(default_factory=dict)
    refused: Refusal | None = None
    retry_at: float = float("-inf")
    backoff: Backoff = NO_FAILURE
    backoffs: dict[Attempt, Backoff] = field(default_factory=dict)
    asked_in: str = ""
    immediate_refused: bool = False
    updated_at: float = float("-inf")
    twin_searched_at: float = float("-inf")
    first_bound_at: float = float("-inf")
    lost_job: Placeholder | None = None
    foreign_jobs: frozenset[int] = frozenset()
    former_user_jobs: frozenset[int] = frozenset()
    reacquired: tuple[int, str] | None = None
    not_asked_for: int | None = None
    anomalies: dict[str, str] = field(default_factory=dict)
    late_changes: dict[str, str] = field(default_factory=dict)
    end_refused: dict[str, str] = field(default_factory=dict)
    bound_by_this_process: bool = False
    bound_by_bridge_before: dict[str, None] = field(default_factory=dict)
    strays: dict[str, float] = field(default_factory=dict)
    of_other_scheduler: bool = False
    job_of_other_bridge: bool | None = None
    renamed: int | None = None
    unconfirmed_binds: dict[str, BindPod] = field(default_factory=dict)
    edited: dict[str, Edited] = field(default_factory=dict)
    regrouped: dict[str, Group | None] = field(default_factory=dict)
    renewed: dict[str, Mapping[str, str]] = field(default_factory=dict)
    unanswered: dict[str, Announced] = field(default_factory=dict)
    confirmed_writes: dict[str, Announced] = field(default_factory=dict)
    releasing: tuple[int, str] | None = None
    release_messages: dict[str, str] = field(default_factory=dict)
    story: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for pod in self.pods.values():
            self._count(pod)

    def put(self, pod: Pod) -> None:
        """Add the pod, or replace its former state."""
        self.pods[pod.uid] = pod
        self._count(pod)

    def take_out(self, uid: str) -> Pod | None:
        """Remove the pod from the workload.  Returns its last state; None: the workload did not have the pod."""
        self.pod_counts.drop(uid)
        self.last_rank = None
        self.shown.pop(uid, None)
        self.regrouped.pop(uid, None)
        self.written_off -= {uid}
        self.bound_by_bridge_before.pop(uid, None)
        self.strays.pop(uid, None)
        self.release_messages.pop(uid, None)
        return self.pods.pop(uid, None)

    def retry_from(self, attempt: Attempt) -> float:
        """When the next attempt of this kind may be made, epoch seconds; -inf: at once."""
        return self.backoffs.get(attempt, NO_FAILURE).until

    def reset_backoffs(self) -> None:
        """Forget all backoffs, so that failed attempts are repeated at once."""
        self.backoff = NO_FAILURE
        self.backoffs.clear()
        for of_pod in self.last_status.values():
            for last in of_pod.values():
                last.failures = 0

    def end_in_flight(self, action: Action) -> InFlight | None:
        """Note that the action is not in flight any more.  Returns its record; None: the action was not in flight."""
        in_flight = self.in_flight
        if in_flight is None or in_flight.action != action:
            return None
        self.in_flight = None
        return in_flight

    def end_pod_in_flight(self, uid: str, action: Action) -> InFlight | None:
        """As `end_in_flight`, for an action on that pod."""
        in_flight = self.pods_in_flight.get(uid)
        return self.pods_in_flight.pop(uid) if in_flight is not None and in_flight.action == action else None

    def is_being_bound(self, uid: str) -> bool:
        """True if a bind of that pod is in flight."""
        in_flight = self.pods_in_flight.get(uid)
        return in_flight is not None and isinstance(in_flight.action, BindPod)

    def put_on(self, uid: str, node: str) -> None:
        """Note that a bind of the bridge put the pod on the node, although the watch has not shown it yet."""
        self.bound[uid] = node
        self._count(self.pods[uid])

    def write_off(self, uid: str) -> None:
        """Count the pod as ended until it is gone, because its node will never report its end."""
        if uid in self.pods:
            self.written_off |= {uid}
            self._count(self.pods[uid])

    def show(self, uid: str, group: Group) -> None:
        """Note what the pod shows of the group.  It is counted as soon as the workload has the pod."""
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

    def add_to_story(self, at: float, entry: str) -> None:
        """Add an entry to the story, once for pods of a gang to which it happens together.

        Only the last STORY_LENGTH entries are kept.
        """
        if self.story[-1:] != [(at, entry)]:
            self.story.append((at, entry))
            del self.story[:-STORY_LENGTH]

    @property
    def pod(self) -> Pod:
        """The pod of the workload; of a gang any pod, which may have ended.  Raises StopIteration if there is none."""
        return next(iter(self.pods.values()))

    @property
    def namespace(self) -> str:
        """The namespace of its pods, also of pods that are gone; "": no pod of the workload is known."""
        for pod in self.pods.values():
            return pod.namespace
        return next((gone.pod.namespace for gone in self.deleted_pods.values()), "")

    @property
    def unfinished(self) -> list[Pod]:
        """Its pods that have not ended.  A pod that is being deleted and has no node does not count."""
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
        """Its pods that are unfinished, not gated and not being deleted (W5)."""
        if self.pod_counts.members == len(self.pods):
            return list(self.pods.values())
        return [pod for pod in self.unfinished if not pod.gated and pod.deleting_at is None]

    @property
    def gang(self) -> int:
        """The number of pods of its gang, with pods that have ended; 1: it is no gang."""
        if self.group is None:
            return 1
        shown = (size for size in self.pod_counts.sizes if size is not None)
        return max(1, max(shown, default=self.size + self.pod_counts.succeeded))

    @property
    def is_complete(self) -> bool:
        """True if the size is known and all members exist (W6)."""
        return bool(self.size) and self.pod_counts.members >= self.size

    @property
    def gathered(self) -> str:
        """A sentence about the number of members of the gang that exist."""
        assert self.group is not None, "only a gang gathers"
        whole = f"{self.group.kind} {self.group.name}"
        if not self.size:
            return f"It is not known yet how many pods {whole} has; {self.pod_counts.members:,} are here."
        return (
            f"{self.pod_counts.members:,} of {self.size:,} pods of {whole} are here in namespace {self.pod.namespace}."
        )

    @property
    def nodes_left_out(self) -> LeavesOut:
        """The nodes that the workload's submissions exclude, by their names in Slurm (F6)."""
        return self.left_out.nodes if self.left_out is not None else {}

    @property
    def has_anti_affinity(self) -> bool:
        """True if a pod of the workload has a required anti-affinity (F5)."""
        return any(pod.anti_affinity for pod in self.pods.values())

    def node_of(self, pod: Pod) -> str:
        """The node of the pod, as the watch or a confirmed bind shows it; "": none."""
        return pod.node or self.bound.get(pod.uid, "")

    def nodes(self) -> dict[str, str]:
        """The UID of each pod with a node to the node (`node_of`)."""
        if self.pod_counts.unbound == len(self.pods):
            return {}
        return {pod.uid: node for pod in self.pods.values() if (node := self.node_of(pod))}

    def is_bound_for(self, pod: Pod, job: Placeholder) -> bool:
        """True if the pod runs for that job: the bridge bound it, or it names the job, which is proven to be the workload's.

        Another process of the bridge may have bound the pod; then the pod names its job.
        """
        names_its_job = job.key == self.key and pod.annotations.get(names.JOB_ID) == str(job.id)
        return pod.uid not in self.strays or names_its_job

    def shows_own_bind(self, pod: Pod) -> bool:
        """True if this process bound the pod for a job of this workload: its bind is confirmed, or the pod shows it."""
        bind = self.unconfirmed_binds.get(pod.uid)
        shown = bind is not None and (bind.node, bind.annotations.get(names.JOB_ID)) == (
            pod.node,
            pod.annotations.get(names.JOB_ID),
        )
        return shown or pod.uid in self.bound_by_bridge_before

    def has_pod_bound_for(self, job: Placeholder) -> bool:
        """True if a pod of the workload runs for that job.

        This is called at each event, so it looks at single pods only if the counts do not suffice.
        """
        on_nodes = len(self.pods) - self.pod_counts.unbound
        if job.key != self.key and len(self.strays) == on_nodes:
            return False
        if self.pod_counts.unfinished - self.pod_counts.unbound > len(self.strays):
            return True
        return any(self.is_bound_for(pod, job) for pod in self._unfinished() if self.node_of(pod))

    @property
    def is_bound_by_others(self) -> bool:
        """True if each of its unfinished pods with a node is a stray; at least one has a node."""
        return all(pod.uid in self.strays for pod in self._unfinished() if self.node_of(pod))

    def status_about(self, subject: str, uid: str) -> LastStatus | None:
        """The status that this process showed last on the pod about the subject; None: it showed none."""
        about = self.last_status.get(uid)
        return about.get(subject) if about is not None else None

    def note_status(self, subject: str, uid: str, status: LastStatus) -> None:
        """Note that this process shows that status on the pod now.  Failed writes of the status before it count on."""
        if (before := self.status_about(subject, uid)) is not None:
            status.failures = before.failures
        self.last_status.setdefault(uid, {})[subject] = status

    def shown_condition(self, pod: Pod) -> Condition | None:
        """The PodScheduled condition of the pod, if it is False; otherwise None."""
        return pod.scheduled if pod.scheduled is not None and not pod.scheduled.status else None

"""Records the trace of each workload from what the loop observes, and sends each span as soon as its step is over.

If a process did not see a step begin, it takes the times from the pods and from Slurm.  The ids of the spans are the same in
each process.  Only traces that are not complete are in memory (memory.py).

A process may die before its spans are sent.  So the next process sends the spans of the last RESENT_S seconds before its
start again, with the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bridge.tracing import describe
from bridge.tracing.allocations import Allocations, Granted
from bridge.tracing.export import SpanExport
from bridge.tracing.memory import remember
from bridge.tracing.runs import Runs
from bridge.tracing.span import JOB, WORKLOAD, Spans, spans_of
from bridge.tracing.times import Clocks, asked_at, clocks_of, granted_at
from scheduler import actions as act
from scheduler import names
from scheduler.actions import Outcome
from scheduler.events import ActionEnded, Event, JobRead, JobsPolled, PodDeleted, PodSeen, PodsListed, Scope
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.slurm import States, is_ended
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World

RESENT_S = 300.0
# Looked up once: to look up a member of an Enum takes as long as two calls.
_OURS, _PENDING, _DONE = Scope.OURS, PodPhase.PENDING, Outcome.DONE


class _Ending(NamedTuple):
    """A workload whose pods have all ended, and whose job may still live.

    spans       sends the remaining spans
    at          when the last pod ended
    first_seen  as of Recorder, of these pods
    """

    spans: Spans
    pods: tuple[Pod, ...]
    created: float
    at: float
    first_seen: Mapping[str, float]


class Recorder:
    """Observer of the loop.

    first_seen   pod UID to when this process first saw the pod; shared with the metrics
    """

    def __init__(self, export: SpanExport, clock: Callable[[], float], first_seen: dict[str, float]) -> None:
        self._export = export
        self._clock = clock
        self._first_seen = first_seen
        self._allocations = Allocations(export, first_seen)
        self._runs = Runs()
        self._gang_ended: dict[str, float] = {}  # by workload key: when the member that ended last ended
        self._ending: dict[str, _Ending] = {}  # by workload key
        # Pods to be sent again, by UID.  True: the pod had ended, and shows when.
        self._inherited: dict[str, bool] = {}
        # The last read of each waiting job whose workload was not known, by job id.
        self._unproven: dict[int, JobRead] = {}
        self._read: set[str] = set()  # keys of workloads whose job was read since the last poll
        self._ends_resent = False  # True: the ends of the inherited pods were sent again

    # --- what is observed ---------------------------------------------------------------------------------------------

    def on_observed(self, event: Event, world: World) -> None:
        """Record an observation, which has not been applied to the world yet."""
        match event:
            case PodSeen(scope, pod) if scope is _OURS:
                self._pod_seen(pod, world)
            case PodDeleted(scope, pod, at) if scope is _OURS:
                self._pod_over(pod, world, at)
            case PodsListed(Scope.OURS):
                self._listed(event, world)
            case JobRead():
                self._prove(event.job_id, world)
                if _has_pods(world.placeholders.get(event.job_id), world):
                    self._allocations.note_read(event, world)
                elif event.job is not None and "PENDING" in event.job.states:  # this read may prove whose the job is
                    remember(self._unproven, event.job_id, event)
                if (
                    self._inherited
                    and event.job is not None
                    and (named := names.parse_job_name(event.job.name)) is not None
                ):
                    self._read.add(named[1])
            case JobsPolled() if self._ending or self._inherited or self._unproven:
                self._polled(event, world)

    def _pod_seen(self, pod: Pod, world: World) -> None:
        if pod.node and pod.uid in self._first_seen:
            self._bound_unconfirmed(pod, world)
        if pod.finished:
            self._pod_over(pod, world, self._clock())
        elif pod.phase is not _PENDING and pod.uid in self._runs.starting:
            self._runs.note_start(pod, self._clock())

    def _pod_over(self, pod: Pod, world: World, at: float) -> None:
        """Record that the pod ended or is gone, if that is not known already."""
        workload = _workload_of(pod.uid, world)
        before = workload.pods.get(pod.uid) if workload is not None else None
        if workload is not None and before is not None and not before.finished:
            self._member_over(workload, pod, world, at)

    def _prove(self, job_id: int, world: World) -> None:
        """If the job was read before its workload was known, and the workload is known now, note why the job waited."""
        read, known = self._unproven.get(job_id), world.placeholders.get(job_id)
        if read is None or (known is not None and not _has_pods(known, world)):
            return
        del self._unproven[job_id]
        self._allocations.note_read(read, world)

    def _listed(self, event: PodsListed, world: World) -> None:
        if Scope.OURS not in world.listed:  # the first list of this process
            self._inherit(event.pods, world)
            self._ends_resent = False
            return
        listed = {pod.uid for pod in event.pods}
        for pod in event.pods:
            self._pod_seen(pod, world)
        for uid in world.listed[Scope.OURS] - listed if not event.undecoded else ():
            workload = _workload_of(uid, world)
            if workload is not None and (last := workload.pods.get(uid)) is not None:
                self._pod_over(last, world, event.at)

    def _polled(self, event: JobsPolled, world: World) -> None:
        for job_id in tuple(self._unproven):
            self._prove(job_id, world)
        if not world.ready:
            return
        if not self._ends_resent:
            self._resend_ends(world)
        while self._read:
            if (workload := world.workloads.get(self._read.pop())) is not None:
                self._send_again(workload, world)
        for key in tuple(self._ending):
            workload = world.workloads.get(key)
            # Each poll asks about each workload that ends, so the usual answer comes first: its job has not ended.
            listed = event.states.get(workload.hint) if workload is not None and workload.hint is not None else None
            if listed is not None and not is_ended(listed):
                continue
            if workload is None or not _lives(workload, event.states, world):
                self._finish(key, world)

    # --- what the bridge did ------------------------------------------------------------------------------------------

    def on_ended(self, event: ActionEnded, world: World) -> None:
        """Record the end of an action, which has not been applied to the world yet."""
        match event.action:
            case act.BindPod() as bind:
                self._bind_ended(bind, event, world)
            case act.AllocateNow(key) | act.SubmitJob(key):
                workload = world.workloads.get(key)
                if event.job_id is not None and workload is not None and workload.pods:
                    self._allocations.note_submitted(workload, event.job_id, event.began, world)
            case act.CancelJob() as cancel if event.outcome is _DONE:
                workload = world.workloads.get(cancel.key)
                if cancel.key not in self._ending and workload is not None and _all_over(workload):
                    self._end_unseen(workload, world, event.began)
                if cancel.key in self._ending:
                    self._finish(cancel.key, world, cancel, event.at)

    def _bind_ended(self, bind: act.BindPod, event: ActionEnded, world: World) -> None:
        workload = world.workloads.get(bind.key)
        pod = workload.pods.get(bind.uid) if workload is not None else None
        if workload is None or pod is None:
            return
        if event.outcome is _DONE:
            asked = bind.asked if bind.asked is not None else event.began
            granted = bind.granted if bind.granted is not None else event.began
            self._bound(workload, Granted(pod, bind.job_id, bind.node, asked, granted, event.began, event.at), world)
        elif event.outcome is Outcome.UNKNOWN and pod.node:
            self._bound_unconfirmed(pod, world)

    def _bound_unconfirmed(self, pod: Pod, world: World) -> None:
        """The watch shows the pod on its node: send its bind.  If a bind is in flight, its answer has more exact times."""
        workload = _workload_of(pod.uid, world)
        if workload is None or workload.is_being_bound(pod.uid):
            return
        self._first_seen.pop(pod.uid, None)
        if (job := _job_of(pod, workload, world)) is not None:
            now = self._clock()
            asked, granted = asked_at(job, clocks_of(world)) or now, job.granted_at or now
            self._bound(workload, Granted(pod, job.id, pod.node, asked, granted, granted, now), world)

    def _bound(self, workload: Workload, granted: Granted, world: World) -> None:
        pod = granted.pod
        self._runs.note_bound(pod.uid, self._allocations.note_bound(workload, granted, world))
        if pod.phase is not _PENDING:  # the watch was faster than the answer to the bind
            self._runs.note_start(pod, self._clock())

    # --- the end ------------------------------------------------------------------------------------------------------

    def _member_over(self, workload: Workload, pod: Pod, world: World, at: float) -> None:
        """A pod of the workload ended, at the latest at *at*: send its end.  After the last pod, wait for the job's end."""
        clocks, spans = clocks_of(world), self._allocations.spans(workload, world)
        which = (pod.uid,) if workload.group is not None else ()
        parent = spans.id("pod", pod.uid) if which else 0
        ended = self._runs.note_end(spans, which, parent, pod, clocks, at) if pod.node else at
        if which:
            created = clocks.created(pod)
            keys = {WORKLOAD: workload.key} | describe.pod(pod)
            spans.send("pod", which, created, max(created, ended), keys, error=describe.failure(pod))
            ended = max(ended, self._gang_ended.get(workload.key, ended))
            remember(self._gang_ended, workload.key, ended)
        if workload.pod_counts.unfinished > 1:
            return
        others = [each for each in workload.pods.values() if each.uid != pod.uid]
        if all(each.finished for each in others):
            self._all_ended(workload, (pod, *others), ended, clocks, world, None if which else spans)

    def _end_unseen(self, workload: Workload, world: World, at: float) -> None:
        """Record the end of pods that ended, or were deleted, while no process of the bridge saw it."""
        for pod in tuple(workload.pods.values()):
            self._member_over(workload, pod, world, at)
        if not workload.pods:
            self._all_ended(workload, (), at, clocks_of(world), world)

    def _all_ended(
        self,
        workload: Workload,
        pods: tuple[Pod, ...],
        at: float,
        clocks: Clocks,
        world: World,
        spans: Spans | None = None,
    ) -> None:
        """All pods of the workload ended: wait for the end of its job.

        at      when the last pod ended
        spans   the sender of the workload's spans; None: it is made from all pods
        """
        every = (*pods, *(gone.pod for gone in workload.deleted_pods.values()))
        created = min(map(clocks.created, every), default=clocks.begin(workload.created))
        seen = {pod.uid: self._first_seen[pod.uid] for pod in every if pod.uid in self._first_seen}
        spans = spans or spans_of(self._export, world.cluster, workload.key, every)
        remember(self._ending, workload.key, _Ending(spans, every, created, max(created, at), seen))

    def _finish(self, key: str, world: World, cancel: act.CancelJob | None = None, at: float = 0.0) -> None:
        """Send the last spans of the trace.

        cancel   the cancel that ended the job at *at*; None: the job ended otherwise, or there was none
        """
        ending, clocks, workload = self._ending.pop(key), clocks_of(world), world.workloads.get(key)
        self._gang_ended.pop(key, None)
        spans, created, job = ending.spans, ending.created, cancel.job_id if cancel is not None else None
        if workload is not None:
            self._send_again(workload, world)
            begun = self._allocations.note_end(
                workload, spans, ending.pods, ending.first_seen, job, ending.at, clocks, world
            )
            created = min(created, begun if begun is not None else created)
        until = max(ending.at, at)
        if cancel is not None:
            spans.send("release", (), ending.at, until, {JOB: cancel.job_id})
        about = describe.workload(ending.pods, workload, world, cancel)
        clock = describe.kubernetes_clock(clocks) | describe.slurm_clock(clocks)
        error = next(filter(None, map(describe.failure, ending.pods)), None)
        name = "gang" if workload is not None and workload.group is not None else "workload"
        spans.send_root(name, created, until, {WORKLOAD: key} | about | clock, error)

    # --- after a restart ----------------------------------------------------------------------------------------------

    def _inherit(self, pods: tuple[Pod, ...], world: World) -> None:
        """Note the pods whose spans an earlier process may not have sent."""
        since, clocks = self._clock() - RESENT_S, clocks_of(world)
        for pod in pods:
            times = (pod.bound_at, pod.started, pod.times.running, pod.times.ended)
            if pod.node and any(at is not None and clocks.end(at) >= since for at in times):
                remember(self._inherited, pod.uid, pod.finished and pod.times.ended is not None)

    def _resend_ends(self, world: World) -> None:
        """Send the ends of the inherited pods again: an earlier process may have ended their jobs, too."""
        self._ends_resent = True
        for uid in [uid for uid, ended in self._inherited.items() if ended]:
            if (workload := _workload_of(uid, world)) is not None and uid in workload.pods:
                self._member_over(workload, workload.pods[uid], world, self._clock())

    def _send_again(self, workload: Workload, world: World) -> None:
        """Send the spans up to the start of inherited pods again, if their job has been read."""
        for pod in workload.pods.values():
            job = _job_of(pod, workload, world) if pod.uid in self._inherited else None
            if job is None or job.job is None:
                continue
            del self._inherited[pod.uid]
            clocks = clocks_of(world)
            # A condition that a former process wrote after its bind overwrites the time of the bind.
            shown = pod.bound_at, pod.started, pod.times.running
            at = next((clocks.end(each) for each in shown if each is not None), self._clock())
            asked, granted = asked_at(job, clocks) or at, granted_at(job, clocks, world.started) or at
            self._bound(workload, Granted(pod, job.id, pod.node, asked, granted, at, at), world)


def _workload_of(uid: str, world: World) -> Workload | None:
    return world.workloads.get(world.key_of_pod.get(uid, ""))


def _lives(workload: Workload, states: Mapping[int, States], world: World) -> bool:
    """True if an action on a job of the workload is in flight, or one of its jobs has not ended.  states: of the last poll"""
    if workload.in_flight is not None:
        return True
    return any(not is_ended(states.get(job.id, job.states)) for job in world.jobs_of(workload))


def _has_pods(job: Placeholder | None, world: World) -> bool:
    """True if the workload of the job is proven, and pods of this workload have been seen."""
    workload = world.workloads.get(job.key) if job is not None and job.key is not None else None
    return workload is not None and bool(workload.pods)


def _all_over(workload: Workload) -> bool:
    return all(pod.finished for pod in workload.pods.values())


def _job_of(pod: Pod, workload: Workload, world: World) -> Placeholder | None:
    """The job that the pod's annotation names; None: it names none, or a job that is not proven the workload's."""
    said = pod.annotations.get(names.JOB_ID, "")
    job = world.placeholders.get(int(said)) if said.isdecimal() and len(said) <= 10 else None
    return job if job is not None and job.key == workload.key else None

"""Pods run, and Slurm lost their job or requeued it: submit a job for the same nodes once more (S7).

Pods need not end because slurmctld lost its state.  The new job has the same name, asks for exactly the nodes of the pods,
and starts at once or not at all.  If Slurm grants it, the pods have a live placeholder again.  If Slurm refuses it because
another job has the nodes, the pods follow their job (S4), unless they are held because many jobs vanished (X6): then the
submission is repeated.  If the nodes are not in service, no other job can have them either, and the submission is repeated
for a while: a slurmctld that lost its state needs its nodes registered first.

Until Slurm has answered the first submission, no other job is submitted: any job that waits would make Slurm refuse it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from scheduler import actions as act
from scheduler import names
from scheduler.apply.submission_results import lost_job_of
from scheduler.events import Side
from scheduler.model.hostlist import folded
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import SINGLETON, Grant, JobSpec, tasks_of
from scheduler.place.assign import shortfall, tasks_on
from scheduler.place.feasible import slurm_name
from scheduler.rules.decision import NOTHING, Decision, combine, plan_action, wait_for, wake
from scheduler.rules.identity import former_may_live, read_job, search_for_job
from scheduler.rules.restore_keys import keys_of
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, exact_clock, status
from scheduler.rules.submission import is_managed, read_first, spec_for
from scheduler.state.named_job import names_job
from scheduler.state.own_keys import without_edits
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World


def reacquire(workload: Workload, lost: Placeholder, this_pass: Pass, *, is_held: bool) -> Decision | None:
    """Submit a job for the nodes again, or wait for its result.  None: that was tried, or is not possible now.

    is_held   the pods are held (X6), so a refused attempt is repeated after its backoff
    """
    if workload.in_flight is not None:
        return NOTHING
    search = search_for_job(workload, workload.job_search, this_pass) if workload.job_search is not None else None
    if search is not None:
        return search
    if was_tried(workload, lost) and (not is_held or this_pass.now < workload.backoff.until):
        return None
    if (former := former_may_live(workload, this_pass)) is not None:
        return former
    members = workload.members
    if not members or any(not workload.node_of(pod) for pod in members) or _is_being_ended(workload, this_pass):
        return None  # it ends, or is yet to be bound as a whole
    if this_pass.free("reacquire") < 1:  # a translation now would be thrown away
        return wait_for("reacquire")
    if (reads := read_first(workload, members, this_pass)) is not None:
        return reads
    until = lost.lost_since + this_pass.tuning.retake_s
    if this_pass.now < until and _not_in_slurm(workload, this_pass):
        return _waits_for_nodes(workload, lost, until, this_pass) + wake(min(until, this_pass.now + 1.0))
    spec = _spec(workload, this_pass)
    if spec is None:
        return None
    if this_pass.now < workload.backoff.until:
        shown = _waits_for_nodes(workload, lost, until, this_pass) if workload.backoff.failures else NOTHING
        return shown + wake(workload.backoff.until)
    why = f"Slurm has lost job {lost.id}" if not lost.requeued else f"Slurm requeued job {lost.id}"
    return plan_action(
        act.AllocateNow(workload.key, spec, f"{why}: {spec.required_nodes} is asked for again"), "reacquire"
    )


def was_tried(workload: Workload, lost: Placeholder) -> bool:
    """True if the nodes of this lost job were requested again, and Slurm refused them or its answer was lost (S7)."""
    return workload.reacquired is not None and workload.reacquired[0] == lost.id


def pods_that_run_first(workload: Workload, this_pass: Pass) -> Decision | None:
    """The wait while jobs for running pods are submitted first (S7).  None: no running pod comes first now."""
    if this_pass.first_attempts_until is None:  # the facts do not change within a pass, and thousands of pods may wait
        still = (at for at in _first_attempts_until(this_pass) if this_pass.now < at)
        this_pass.first_attempts_until = next(still, float("-inf"))
    until = this_pass.first_attempts_until
    if until <= this_pass.now:
        return None
    message = (
        "Slurm lost jobs of pods that run. slurm-bridge asks for the nodes of those pods first; it submits this pod after "
        f"that, at {exact_clock(until, this_pass.now)} at the latest."
    )
    waits = wait_for("submits", message) + wake(until)
    said_at = until - this_pass.tuning.retake_s + this_pass.tuning.outage_s
    if this_pass.now < said_at:
        return waits + wake(said_at)
    essence = ("after",)
    return waits + combine(status(pod, names.PENDING, message, essence=essence) for pod in workload.members)


def _first_attempts_until(this_pass: Pass) -> Iterable[float]:
    """Until when each workload comes first that has pods that run, a missing job, and no answered attempt (S7).

    Workloads that lost their job last are first here, because their attempts are answered last.
    """
    world = this_pass.world
    absent = (world.placeholders[job_id] for job_id in world.absent)
    affected = (workload for job in absent for workload in world.workloads_of(job))
    orphaned = (world.workloads[key] for key in reversed(world.by_phase[Phase.ORPHANED]))
    for other in chain(orphaned, affected):
        if (
            other.reacquired is None
            and other.pod_counts.members > other.pod_counts.unbound
            and is_managed(other.pod, world)
            and not _is_being_ended(other, this_pass)
        ):
            lost = lost_job_of(world, other)
            if lost is None or other.not_asked_for == lost.id:
                continue
            if _is_missing(lost, other, world) and not _has_components(lost):
                yield lost.lost_since + this_pass.tuning.retake_s


def _has_components(job: Placeholder) -> bool:
    """True if the job is heterogeneous: such a job is not asked for again, so nothing waits for that."""
    described = (job.spec, job.job, job.grant)
    return any(known is not None and known.parts for known in described)


def _is_missing(job: Placeholder, workload: Workload, world: World) -> bool:
    """True if Slurm does not show this job of the workload, and the workload has no other job that lives."""
    return not job.ended and not any(known.alive for known in world.jobs_of(workload))


def _is_being_ended(workload: Workload, this_pass: Pass) -> bool:
    """True if an end of one of its pods is in flight, or the watch has not shown it yet."""
    return any(
        isinstance(in_flight.action, act.DeletePod | act.FailByDeadline | act.EvictPod)
        and (in_flight.until is None or this_pass.now < in_flight.until)
        for in_flight in workload.pods_in_flight.values()
    )


def _not_in_slurm(workload: Workload, this_pass: Pass) -> bool:
    """True if Slurm does not know the nodes of the pods: they are yet to be registered again."""
    nodes, known = this_pass.world.nodes or {}, this_pass.world.slurm_nodes or {}
    pod_nodes = [nodes.get(workload.node_of(pod)) for pod in workload.members]
    return any(node is not None and slurm_name(node) not in known for node in pod_nodes)


def _waits_for_nodes(workload: Workload, lost: Placeholder, until: float, this_pass: Pass) -> Decision:
    why, still = "are not in service there", f" until {clock(until, this_pass.now)}"
    if workload.refused is not None:
        why, still = f"could not be requested: {workload.refused.message.rstrip('.')}", ""
    message = (
        f"Slurm {'requeued' if lost.requeued else 'lost'} job {lost.id} of this pod, and its nodes {why}. "
        f"They are requested again{still}; the pod runs on meanwhile."
    )
    essence = ("away", str(lost.id))
    return combine(
        status(pod, "", message, essence=essence, warning=True, event=names.ABSENCE) for pod in workload.members
    )


def _spec(workload: Workload, this_pass: Pass) -> JobSpec | None:
    """The job of these pods on exactly their nodes; None: it cannot start at once."""
    spec = spec_for(workload, this_pass)
    if isinstance(spec, Refusal) or spec.parts:  # Slurm starts heterogeneous jobs from its queue alone (2078)
        return None
    nodes = this_pass.world.nodes or {}
    pod_nodes = {workload.node_of(pod) for pod in workload.members}
    if not pod_nodes <= nodes.keys():
        return None
    where, several = folded(slurm_name(nodes[name]) for name in pod_nodes), len(pod_nodes) if spec.tasks > 1 else None
    return replace(
        spec,
        required_nodes=where,
        excluded_nodes="",
        min_nodes=several,
        max_nodes=several,
        begin=None,
        dependency=SINGLETON,  # what it waited for before it started has come
        switches=None,
    )


def why_not_held(workload: Workload, job: Placeholder, grant: Grant, this_pass: Pass) -> str:
    """Why the job that replaces a lost one does not hold the nodes of its pods, in words.  "": it does, or replaces none."""
    if job.spec is None or not job.spec.required_nodes:
        return ""
    if missing := shortfall(job.spec, grant):
        return f"Slurm granted job {job.id} without {missing}"
    room = {node.name: tasks_on(node, job.spec) for node in grant.nodes}
    # A node is not in Kubernetes any more: that proves nothing (V7).
    if not room.keys() <= this_pass.world.by_slurm_name.keys():
        return ""
    for name, count in Counter(this_pass.world.in_slurm(workload.node_of(pod)) for pod in workload.members).items():
        if count > room.get(name, 0):
            return f"job {job.id} has room for {room.get(name, 0):,} of the {count:,} pods on {name}"
    return ""


def show_new_job(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Pods that name another job, mostly the lost one, name this job: the next process knows them by it (ARCHITECTURE 4)."""
    found = []
    for pod in workload.members:
        edited = workload.edited.get(pod.uid)
        if edited is not None and names.JOB_ID in edited.right:
            continue  # not the id that the bind wrote: it is written back (restore_keys)
        is_named = names_job(without_edits(workload, pod), job, this_pass.world)
        if pod.node and (not is_named or _lacks_id(workload, pod, job, this_pass)):
            if job.job is None and not this_pass.world.clocks[Side.SLURM].is_known:  # by a clock that is not known yet
                found.append(read_job(job, workload, this_pass, f"when was job {job.id} submitted?"))
                break
            if pod.annotations.get(names.JOB_ID) == str(job.id):
                message = f"Slurm lost job {job.id} of this pod; a new job with the same id holds its place."
            elif names.JOB_ID in pod.annotations:
                message = f"Slurm job {job.id} holds the place of this pod; the job that the pod named does not."
            else:
                message = f"Slurm job {job.id} holds the place of this pod, which named no job."
            essence, shown = ("reacquired", str(job.id), str(job.asked_at)), keys_of(job, this_pass)
            event = names.REACQUIRED
            found.append(status(pod, "", message, essence=essence, warning=True, event=event, annotations=shown))
    return combine(found)


def _lacks_id(workload: Workload, pod: Pod, job: Placeholder, this_pass: Pass) -> bool:
    """True if a pod older than this process names no job, and this job of its workload has its node and a place for it.

    Another client removed the annotation while no bridge ran.  Without it the pod would count as bound by another client, and
    would not end with its job (L4).
    """
    if names.JOB_ID in pod.annotations or job.grant is None or not this_pass.world.is_older(pod):
        return False
    described = job.spec or job.job
    has_place = described is not None and len(workload.unfinished) <= tasks_of(described)
    return has_place and this_pass.world.in_slurm(pod.node) in {node.name for node in job.grant.everywhere}

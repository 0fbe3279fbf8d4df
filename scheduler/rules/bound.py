"""BOUND: pods are on nodes.  Find their job, and check that it lives and holds these nodes (V7, S4b, S7)."""

from __future__ import annotations

from scheduler import names
from scheduler.rules.bypass import beside_its_job, without_a_job
from scheduler.rules.decision import NOTHING, Decision, combine, wake
from scheduler.rules.end_record import record_end_of_former_job
from scheduler.rules.granted import cancel_elsewhere, pod_elsewhere
from scheduler.rules.identity import cancel, cancel_broken, cancel_twins, is_it_its_own, read_job, unproven_jobs
from scheduler.rules.one_time_events import event_alone
from scheduler.rules.orphaned import end_pods_of_lost_jobs
from scheduler.rules.reacquire import show_new_job, why_not_held
from scheduler.rules.restore_keys import restore
from scheduler.rules.running import read_hinted, watch
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.silent_nodes import end_job_of_silent_node, silent_until
from scheduler.rules.status import statuses
from scheduler.rules.uninstall import end_running, is_ending_pods
from scheduler.state.named_job import shown_id
from scheduler.state.phase import chosen
from scheduler.state.placeholder import RUNNING, Placeholder
from scheduler.state.workload import Workload


def bound(workload: Workload, this_pass: Pass) -> Decision:
    """Pods run: leave them alone; if it is not certain that their job lives, read the job itself (V7)."""
    return _report_late_changes(workload) + _by_its_job(workload, this_pass)


def _by_its_job(workload: Workload, this_pass: Pass) -> Decision:
    """The decision for bound pods, by the state of the job that they name."""
    world, absent_s = this_pass.world, this_pass.tuning.absent_s
    if workload.renamed is not None and workload.renamed == workload.hint:
        return _without_its_name(workload, this_pass)
    # A component may outlive its leader, so the pods may name another job.  A read of a broken job finds no grant.
    for job in world.jobs_of(workload):
        if job.key == workload.key and job.alive and (ends := cancel_broken(workload, job, this_pass)) is not None:
            return ends
    named = world.job_of_bound_pods(workload)
    if named is None or (named.key not in (None, workload.key) and not world.may_have_bound(workload)):
        return _bound_by_others(workload, this_pass)
    if named.key not in (None, workload.key):
        return _no_place(workload, f"Slurm lost their job (another job has its id {named.id} now)")
    if named.has_proven_end(absent_s):
        # the pod may name any other job instead: an annotation does not prove whose job it is
        other = next(unproven_jobs(workload, world), None)
        if other is not None:
            return read_job(other, workload, this_pass, is_it_its_own(other, workload))
        # Another client bound the pods, after that job or beside it.  The workload may have a later job.
        later = chosen(workload, world.jobs_of(workload))
        return (
            _hold_together(workload, later, this_pass) if later is not None else _bound_by_others(workload, this_pass)
        )
    if named.ended or named.absent or named.denied:
        return read_job(named, workload, this_pass, f"does job {named.id} live?")
    if named.key == workload.key:
        return _hold_together(workload, named, this_pass)
    return _read_hint(workload, named, this_pass)


def _read_hint(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Only the id of the job that the pods name is known: read the job if more is needed."""
    if any(not workload.node_of(pod) for pod in workload.members):  # a member of a gang is to take a place in it
        return read_job(job, workload, this_pass, is_it_its_own(job, workload))
    if job.states != RUNNING:
        return read_job(job, workload, this_pass, f"what became of job {job.id}?")
    # Another client may have removed the id from a pod of this job (reacquire.show_new_job).
    lack_id = any(shown_id(workload.pods[uid]) is None for uid in workload.strays)
    if lack_id or any(edit.right for edit in workload.edited.values()) or is_ending_pods(this_pass):
        return read_job(job, workload, this_pass, is_it_its_own(job, workload))
    return read_hinted(workload, job, this_pass)  # a hint, and RUNNING, is enough (ARCHITECTURE 4)


def _bound_by_others(workload: Workload, this_pass: Pass) -> Decision:
    """No job of the bound pods is known.  If another client bound them all, the waiting pods of their gang show that."""
    shown = _no_place(workload, "slurm-bridge did not bind them") if workload.is_bound_by_others else NOTHING
    return shown + without_a_job(workload, this_pass)


def _without_its_name(workload: Workload, this_pass: Pass) -> Decision:
    """The user may have renamed the job of these pods.  Then another job with the name of the workload is its twin."""
    job = chosen(workload, this_pass.world.jobs_of(workload))
    followed = this_pass.world.placeholders.get(workload.hint or 0)
    found = []
    if followed is not None and workload.key in followed.followed_by and (followed.shows_end or followed.absent):
        read = f"does job {followed.id} live, which may be theirs under another name?"
        found.append(read_job(followed, workload, this_pass, read))
    why = f"their job {workload.hint} may have been renamed by its user"
    if job is not None and job.holds_nodes and job.grant is None:
        found.append(read_job(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?"))
    elif job is not None and (job.grant is None or pod_elsewhere(workload, job, this_pass) is not None):
        found.append(cancel(job, workload, this_pass, f"job {job.id} is a twin: {why}"))
    return combine((*found, _no_place(workload, why)))


def _hold_together(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """The decision while the own job of bound pods lives: check that the job holds the nodes of the pods."""
    if is_ending_pods(this_pass):
        return end_running(workload, job, this_pass)
    # A twin of a previous process, which started when the other ended.  Slurm shows no grant of a job that is suspended.
    if job.holds_nodes and job.grant is None and "SUSPENDED" not in job.states:
        return read_job(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?")
    if job.grant is not None:
        if (pod := pod_elsewhere(workload, job, this_pass)) is not None:
            return cancel_elsewhere(workload, job, pod, this_pass)
        if why := why_not_held(workload, job, job.grant, this_pass):
            return cancel(job, workload, this_pass, why)
    if (settled := _may_have_started_until(workload, job, this_pass)) is not None:
        return wake(max(settled, this_pass.now + this_pass.tuning.absent_s))
    if "PENDING" in job.states and (job.id == workload.hint or workload.is_bound_by_others):
        by_others = f"another client bound the pods that wait for job {job.id}"
        requeued = f"Slurm requeued job {job.id} while its pods run"
        return cancel(job, workload, this_pass, by_others if workload.is_bound_by_others else requeued)
    silent = silent_until(workload, this_pass)
    if silent is not None and this_pass.now >= silent:
        return end_job_of_silent_node(workload, job, this_pass)
    return (wake(silent) if silent is not None else NOTHING) + _run_on(workload, job, this_pass)


def _may_have_started_until(workload: Workload, job: Placeholder, this_pass: Pass) -> float | None:
    """Until when a job that waited when it was last read may run; None: it waits.

    Another bridge that knew of the start first may have bound the pods for the job since then (scheduler/state/rivals.py).
    """
    if "PENDING" not in job.states or job.id != workload.hint or not workload.is_bound_by_others:
        return None
    settled = max(workload.strays.values()) + this_pass.tuning.settle_s
    return settled if max(this_pass.world.last_poll_began, job.read_began) < settled else None


def _run_on(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """All is well: the pods run on the nodes of their job."""
    found = [end_pods_of_lost_jobs(workload, job, this_pass), _read_named(workload, this_pass)]
    if job.holds_nodes:
        found.append(show_new_job(workload, job, this_pass))
        found.append(restore(workload, job, this_pass))
        if workload.strays:
            found.append(beside_its_job(workload, job, this_pass))
    found += [cancel_twins(workload, job, this_pass) or NOTHING, watch(workload, job, this_pass)]
    return combine((*found, record_end_of_former_job(workload, this_pass)))


def _read_named(workload: Workload, this_pass: Pass) -> Decision:
    """Read the job that the pods name if it has ended, was not read, and only its twin is known to be the workload's.

    While the twin waits, its state does not show that the job of the pods is over (L4).
    """
    named = (job for job in unproven_jobs(workload, this_pass.world) if job.id == workload.hint and job.shows_end)
    return combine(read_job(job, workload, this_pass, is_it_its_own(job, workload)) for job in named)


def _no_place(workload: Workload, why: str) -> Decision:
    """Waiting members show that the running gang has no place for them, and why.  The running pods are left alone."""
    waiting = [pod for pod in workload.members if not workload.node_of(pod)]
    message = (
        f"The other pods of {workload.readable} run, but {why}, so there is no place for this pod. The pod waits until they "
        "end; delete them to start all of them again."
    )
    return statuses(waiting, names.GATHERING, message)


def _report_late_changes(workload: Workload) -> Decision:
    """A resize, or an edit of annotations, after the bind: the job does not change, and that is shown once (K8, T11)."""
    found = []
    for uid, change in workload.late_changes.items():
        message = (
            f"Changed after the pod was bound: {change}. Its Slurm job stays as it is; recreate the pod to apply it."
        )
        found.append(event_alone(workload, workload.pods[uid], names.CHANGE_IGNORED, message))
    return combine(found)

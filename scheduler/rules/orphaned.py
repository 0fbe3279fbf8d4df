"""The rule of ORPHANED: pods are bound, and their job has ended or is lost, so the pods are ended (S4, S7)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import is_ended
from scheduler.rules.decision import NOTHING, Decision, combine, note, wake
from scheduler.rules.end_pod import deletion_awaited_until, end_awaited_until, end_pod, is_out_of_time, why_not_ended
from scheduler.rules.identity import is_it_its_own, read_job, scan_until, unproven_jobs
from scheduler.rules.reacquire import reacquire, was_tried
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.silent_nodes import over_at
from scheduler.rules.status import clock, status, statuses
from scheduler.rules.submission import is_managed, not_managed
from scheduler.state.backoff import Attempt
from scheduler.state.named_job import shown_id
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World

MOST_NAMED = 3  # pods that the sentence names one by one


def end_pods(workload: Workload, this_pass: Pass) -> Decision:
    """The rule of ORPHANED: the job is over while pods run.  The pods show why, and are ended with grace (S4)."""
    world = this_pass.world
    own = [known for known in world.jobs_of(workload) if known.key in (None, workload.key)]
    job = next((candidate for candidate in own if candidate.id == workload.hint), own[-1])  # ORPHANED has a job
    if this_pass.now < world.quiet_until():
        quiet = clock(world.quiet_until(), this_pass.now)
        return wake(
            world.quiet_until(), f"Nothing is ended before {quiet}: requests of a previous process may take effect."
        )
    held_back = _held_back(workload, job, this_pass) if not job.ended else None
    if (not job.ended or job.requeued) and (
        waits := _may_live_on(workload, job, this_pass, is_held=held_back is not None)
    ) is not None:
        return waits + held_back if held_back is not None and workload.reacquired is not None else waits
    if held_back is not None:
        was_asked_for = workload.reacquired is not None or workload.not_asked_for == job.id
        return held_back if was_asked_for else held_back + note(not_asked_for=job.id)
    unproven = {other.id: other for other in unproven_jobs(workload, world)}
    bound_pods = [pod for pod in workload.unfinished if workload.node_of(pod) and workload.is_bound_for(pod, job)]
    # A pod whose label was edited may run for a job of its former gang.  That job is read first (V7).
    pods = [pod for pod in bound_pods if shown_id(pod) not in unproven]
    reads = (read_job(other, workload, this_pass, is_it_its_own(other, workload)) for other in unproven.values())
    # The other pods wait until these have ended, and then get another job; or another client bound them.
    why = _why_ended(workload, job)
    ends = (_end_one(workload, pod, job, why, this_pass) for pod in pods)
    return combine((*reads, *ends)) + _wait_for_former_pods(workload, this_pass)


def pods_of_lost_jobs(workload: Workload, job: Placeholder, world: World) -> list[tuple[Pod, Placeholder]]:
    """The pods of a gang that were bound for another job, which Slurm has lost, while other pods run for this job.

    Their label was edited before this process started (relabelled.py).  Slurm does not know their job any more, so nothing
    shows which gang they belong to.  Each pod comes with the lost job that it shows.  If this job holds the node of a pod,
    this job may have replaced the lost job (S7).  A pod that this process saw come to its node by another client is none of
    them, whatever id it shows (V7).
    """
    if job.grant is None or len(workload.jobs) < 2:  # usual, and this runs at each visit
        return []
    absent_s = world.config.tuning.absent_s
    unproven = (other for other in world.jobs_of(workload) if other.key is None)
    lost = {other.id: other for other in unproven if other.is_lost(absent_s)}
    bound_pods = [
        (pod, shown_id(pod)) for pod in workload.unfinished if workload.node_of(pod) and pod.uid not in workload.strays
    ]
    if all(job_id != job.id for _, job_id in bound_pods):
        return []
    granted = {node.name for node in job.grant.everywhere}
    elsewhere = [(pod, job_id) for pod, job_id in bound_pods if world.in_slurm(workload.node_of(pod)) not in granted]
    return [(pod, lost[job_id]) for pod, job_id in elsewhere if job_id in lost]


def end_pods_of_lost_jobs(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """End the pods of the gang whose own job is lost.  This job and its pods go on."""
    world = this_pass.world
    pods = pods_of_lost_jobs(workload, job, world)
    if not pods or Side.SLURM in world.outages:
        return NOTHING
    if this_pass.now < world.quiet_until():
        return wake(world.quiet_until())
    ended = (
        _end_one(workload, pod, lost, _why_ended(workload, lost), this_pass)
        for pod, lost in pods
        if is_managed(pod, world) and _held_back(workload, lost, this_pass) is None
    )
    return combine(ended) + wake(this_pass.now + this_pass.tuning.backoff_max_s)


def _end_one(workload: Workload, pod: Pod, job: Placeholder, why: str, this_pass: Pass) -> Decision:
    """End one pod of a job that is over, unless the pod is being ended already."""
    until = max(end_awaited_until(workload, pod, job, this_pass), deletion_awaited_until(workload, pod, this_pass))
    if this_pass.now < until:
        return wake(until)
    if this_pass.now < (retry_from := workload.retry_from(Attempt.END_POD)):
        return wake(retry_from) + why_not_ended(workload, pod, why, this_pass)
    bucket = "" if job.ended else "absent"
    return end_pod(workload, pod, why, this_pass, job=job, counts=is_out_of_time(job), bucket=bucket)


def _why_ended(workload: Workload, job: Placeholder) -> str:
    if not job.ended or job.requeued:
        why_not = (workload.reacquired or (0, ""))[1]
        asked = f"; its nodes were asked for again: {why_not}" if was_tried(workload, job) else ""
        return f"Slurm {'requeued' if job.requeued else 'lost'} the job of this pod ({job.id}){asked}"
    return how_it_ended(job)


def how_it_ended(job: Placeholder) -> str:
    """That the job ended, with its state and Slurm's reason, in words without a full stop."""
    state = ", ".join(sorted(job.states & {flag for flag in job.states if is_ended(frozenset({flag}))}))
    reason = job.job.reason if job.job is not None and job.job.reason not in ("", "None") else ""
    if job.cancelled_for:
        reason = f"slurm-bridge ended it: {job.cancelled_for.removeprefix('released: ')}"
    return f"Slurm job {job.id} ended: {state}" + (f" ({reason})" if reason else "")


def _wait_for_former_pods(workload: Workload, this_pass: Pass) -> Decision:
    """New members of a gang wait until the pods of its former job have ended.

    A pod whose node's kubelet does not report counts as ended after the time of S8.
    """
    waiting = [pod for pod in workload.members if not workload.node_of(pod)]
    former = [pod for pod in workload.unfinished if workload.node_of(pod)]
    if not waiting:
        return NOTHING
    still_running, decisions = list[str](), list[Decision]()
    for pod in former:
        where = f"{pod.full_name} on node {workload.node_of(pod)}"
        over_at = _counts_as_over_at(workload, pod, this_pass)
        if over_at is not None and this_pass.now >= over_at:
            decisions.append(note(written_off=pod.uid))
            continue
        if over_at is not None:
            since = clock(this_pass.world.kubelet_silent_since[pod.node], this_pass.now)
            counts_at = clock(over_at, this_pass.now)
            where += f", whose kubelet has not reported since {since} (the pod counts as over at {counts_at})"
            decisions.append(wake(over_at))
        still_running.append(where)
    if still_running:
        more = f" and {len(still_running) - MOST_NAMED:,} more" if len(still_running) > MOST_NAMED else ""
        message = (
            f"Nodes are requested when the pods of the former job of {workload.readable} have ended. "
            f"These still run: {', '.join(still_running[:MOST_NAMED])}{more}."
        )
        decisions.append(statuses(waiting, names.GATHERING, message))
    return combine(decisions)


def _counts_as_over_at(workload: Workload, pod: Pod, this_pass: Pass) -> float | None:
    """When a pod counts as over that is being ended on a node whose kubelet does not report.

    None: the pod is not being ended, or the node's kubelet reports.
    """
    silent = over_at(pod, this_pass)
    ends = this_pass.world.grace_ends(pod)
    if ends is None:
        in_flight = workload.pods_in_flight.get(pod.uid)
        ends = (
            in_flight.until
            if in_flight is not None and isinstance(in_flight.action, act.DeletePod | act.FailByDeadline)
            else None
        )
    return max(silent, ends) if silent is not None and ends is not None else None


def _may_live_on(workload: Workload, job: Placeholder, this_pass: Pass, *, is_held: bool) -> Decision | None:
    """The decision while the pods may keep running although none of their jobs is known to live; None: they may not.

    They may run on while Slurm does not answer (X1), while jobs that may belong to them are unread, and while their nodes may
    be granted to them again (S7).
    """
    if Side.SLURM in this_pass.world.outages:
        return NOTHING
    until = scan_until(workload, this_pass)
    if this_pass.now < until:
        searched = f"Slurm jobs that may be the pod's are still to be read, until {clock(until, this_pass.now)}."
        return wake(until, searched)
    if not is_managed(workload.pod, this_pass.world) and not job.ended:
        return _left_alone(workload, job)
    if this_pass.world.config.leaving or not is_managed(workload.pod, this_pass.world):
        return None
    decision = reacquire(workload, job, this_pass, is_held=is_held)
    return decision if decision is not None else _search_replacement(workload, job, this_pass)


def _search_replacement(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision | None:
    """Begin the search for a job that a previous process submitted in place of this lost job; None: it is not needed.

    The search ends before the next call (`reacquire`).  A refused submission for the same nodes has begun it already.
    """
    is_searched = was_tried(workload, job) or workload.not_asked_for == job.id
    if is_searched or not this_pass.world.is_inherited(workload):
        return None
    return note(not_asked_for=job.id)


def _left_alone(workload: Workload, job: Placeholder) -> Decision:
    """The namespace is not managed now: the pods show that Slurm does not know their job, and are not ended."""
    message = (
        f"Slurm knows no job {job.id} of this pod. The pod is left alone, and no job is requested for it. "
        f"{not_managed(workload.pod)}"
    )
    return combine(status(pod, "", message, warning=True, event=names.ABSENCE) for pod in workload.unfinished)


def _held_back(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision | None:
    """The decision while many jobs vanished together (X6): the pods show that, and are not ended.  None: it is not so.

    No job counts as lost before an admin confirms it.  Meanwhile the bridge tries to get the nodes granted to these pods
    again, so the workload is visited at the time of the next attempt (S7).
    """
    world = this_pass.world
    if (world.held_back_since if job.proven else world.hints_held_back_since) is None or job.confirmed_gone:
        return None
    message = (
        "Slurm does not list the job of this pod and many other jobs any more. Nothing is ended until Slurm lists these "
        "jobs again or shows how they ended. If the jobs are gone, an admin confirms that: slurm-bridge release."
    )
    shown = combine(status(pod, "", message, warning=True, event=names.ABSENCE) for pod in workload.unfinished)
    until = workload.backoff.until
    return shown + wake(until if this_pass.now < until else this_pass.now + this_pass.tuning.backoff_max_s)

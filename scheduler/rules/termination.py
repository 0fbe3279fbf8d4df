"""ORPHANED: the job is over, so its pods are ended.  DONE: the pods are over, so their job is ended (S2–S4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.slurm import is_ended
from scheduler.model.text import span
from scheduler.place.feasible import slurm_name
from scheduler.place.fit import needs
from scheduler.rules.decision import NOTHING, Decision, combine, note, plan_action, wake
from scheduler.rules.identity import cancel, read_job, scan_until, search_for_job
from scheduler.rules.reacquire import reacquire
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, status, statuses
from scheduler.rules.submission import is_managed, not_managed
from scheduler.state.backoff import Attempt
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import DeletedPod
from scheduler.state.workload import Workload

OUTLIVES_S = 30.0  # a pod that still runs so long after its deadline and its grace is ended by other means
AT_ONCE_S = 1  # grace of a second deletion, after the first grace; with 0 the object would go before its containers
UNREAD_S = 300.0  # after a start, a job without pods is kept for so long while a JobSet is unread that may have made it
NAMED_MOST = 3  # the most pods that a record names one by one


def end_pods(workload: Workload, this_pass: Pass) -> Decision:
    """The rule of ORPHANED: the job is over while pods run.  The pods show why, and are ended with grace (S4)."""
    world = this_pass.world
    own = [each for each in world.jobs_of(workload) if each.key in (None, workload.key)]
    job = next((each for each in own if each.id == workload.hint), own[-1] if own else None)
    if this_pass.now < world.quiet_until():
        quiet = clock(world.quiet_until(), this_pass.now)
        return wake(
            world.quiet_until(), f"Nothing is ended before {quiet}: requests of a previous process may take effect."
        )
    assert job is not None, "ORPHANED is derived from a job"
    held_back = _held_back(workload, job, this_pass) if not job.ended else None
    if (not job.ended or job.requeued) and (
        waits := _may_live_on(workload, job, this_pass, is_held=held_back is not None)
    ) is not None:
        return waits + held_back if held_back is not None and workload.reacquired is not None else waits
    if held_back is not None:
        was_asked_for = workload.reacquired is not None or workload.not_asked_for == job.id
        return held_back if was_asked_for else held_back + note(not_asked_for=job.id)
    pods = [pod for pod in workload.unfinished if workload.node_of(pod) and workload.is_bound_for(pod, job)]
    # Pods that are not bound for the job wait until these have ended, and for another job; or another client bound them.
    why = _why_ended(workload, job)
    return combine(_end_one(workload, pod, job, why, this_pass) for pod in pods) + _wait_for_former_pods(
        workload, this_pass
    )


def _end_one(workload: Workload, pod: Pod, job: Placeholder, why: str, this_pass: Pass) -> Decision:
    """End one pod of a job that is over, unless the pod is being ended already."""
    until = max(end_awaited_until(workload, pod, job, this_pass), deletion_awaited_until(workload, pod, this_pass))
    if this_pass.now < until:
        return wake(until)
    if this_pass.now < (retry_from := workload.retry_from(Attempt.END_POD)):
        return wake(retry_from)
    bucket = "" if job.ended else "absent"
    return end_pod(workload, pod, why, this_pass, job=job, counts=_is_out_of_time(job), bucket=bucket)


def _wait_for_former_pods(workload: Workload, this_pass: Pass) -> Decision:
    """New members of a gang wait until the pods of its former job have ended.

    A pod whose node's kubelet does not report counts as ended after the time of S8.
    """
    waiting = [pod for pod in workload.members if not workload.node_of(pod)]
    former = [pod for pod in workload.unfinished if workload.node_of(pod)]
    if not waiting or not former:
        return NOTHING
    still_running, decisions = list[str](), list[Decision]()
    for pod in former:
        where = f"{pod.full_name} on node {workload.node_of(pod)}"
        over_at = _over_at(workload, pod, this_pass)
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
        more = f" and {len(still_running) - NAMED_MOST:,} more" if len(still_running) > NAMED_MOST else ""
        message = (
            f"Nodes are requested when the pods of the former job of {workload.readable} have ended. "
            f"These still run: {', '.join(still_running[:NAMED_MOST])}{more}."
        )
        decisions.append(statuses(waiting, names.GATHERING, message))
    return combine(decisions)


def _over_at(workload: Workload, pod: Pod, this_pass: Pass) -> float | None:
    """When a pod counts as over that is being ended on a node whose kubelet does not report.

    None: the pod is not being ended, or the node's kubelet reports.
    """
    silent = _silent_until(pod, this_pass)
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

    They may while Slurm does not answer (X1), while jobs are still to be read that may be theirs, and while their nodes may
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
    return reacquire(workload, job, this_pass, is_held=is_held)


def _left_alone(workload: Workload, job: Placeholder) -> Decision:
    """The namespace is not managed (any more): the pods show that Slurm does not know their job, and are not ended."""
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
    if (world.held_back_since if job.proven else world.claims_held_back_since) is None or job.confirmed_gone:
        return None
    message = (
        "Slurm lists neither this pod's job any more nor many others. Nothing is ended until Slurm lists them "
        "again or shows how they ended. If the jobs are gone, an admin confirms that: slurm-bridge release."
    )
    shown = combine(status(pod, "", message, warning=True, event=names.ABSENCE) for pod in workload.unfinished)
    until = workload.backoff.until
    return shown + wake(until if this_pass.now < until else this_pass.now + this_pass.tuning.backoff_max_s)


def end_awaited_until(workload: Workload, pod: Pod, job: Placeholder | None, this_pass: Pass) -> float:
    """Until when to wait for an action in flight that ends the pod, or for the deadline that was set (S4b); -inf: neither."""
    in_flight = workload.pods_in_flight.get(pod.uid)
    until = float("-inf")
    if in_flight is not None and in_flight.until is None:
        return float("inf")
    if (
        in_flight is not None
        and in_flight.until is not None
        and isinstance(in_flight.action, act.DeletePod | act.FailByDeadline)
    ):
        until = in_flight.until
    outlives_at = _outlives_at(pod, job, this_pass)
    return until if outlives_at is None else max(until, outlives_at)


def _outlives_at(pod: Pod, job: Placeholder | None, this_pass: Pass) -> float | None:
    """Until when to wait for kubelet to end the pod by the deadline that was set; None: no such deadline has passed."""
    started = this_pass.world.started_at(pod)
    if not _is_out_of_time(job) or started is None or pod.set_deadline_s is None:
        return None
    deadline = started + pod.set_deadline_s
    if deadline > this_pass.now:  # the job's time was shortened after that
        return None
    return deadline + this_pass.tuning.grace_counts_s(pod.grace_s) + OUTLIVES_S


def _outlives(workload: Workload, pod: Pod, job: Placeholder | None, this_pass: Pass) -> bool:
    """True if the pod still runs after the longest grace that counts.  Only a deletion can shorten kubelet's grace."""
    if pod.grace_s <= this_pass.tuning.silent_node_s:
        return False
    in_flight = workload.pods_in_flight.get(pod.uid)
    if in_flight is not None and isinstance(in_flight.action, act.FailByDeadline) and in_flight.until is not None:
        return this_pass.now >= in_flight.until
    outlives_at = _outlives_at(pod, job, this_pass)
    return outlives_at is not None and this_pass.now >= outlives_at


def deletion_awaited_until(workload: Workload, pod: Pod, this_pass: Pass) -> float:
    """Until when to wait for the end of a pod that is being deleted.

    -inf: do not wait, because the pod is not being deleted, or its grace is longer than `_most_grace`.  The client that
    deletes a pod chooses the grace; a second deletion can shorten it.
    """
    if pod.deleting_at is None:
        return float("-inf")
    most_s, _ = _most_grace(workload, pod, this_pass)
    if pod.grace_s <= most_s:
        return float("inf")
    ends = this_pass.world.clocks[Side.KUBERNETES].ours(pod.deleting_at)
    return ends + OUTLIVES_S if ends <= this_pass.now + most_s else float("-inf")


def _is_out_of_time(job: Placeholder | None) -> bool:
    """True if the job reached its time limit, which does not count as a disruption (S4b)."""
    return job is not None and job.ended and not job.states.isdisjoint({"TIMEOUT", "DEADLINE"})


def is_service(pod: Pod) -> bool:
    """True if the pod's controller replaces the pod whenever it ends, and counts no failures."""
    return pod.owner is not None and pod.restart_policy == "Always"


def _why_ended(workload: Workload, job: Placeholder) -> str:
    if not job.ended or job.requeued:
        tried = workload.reacquired is not None and workload.reacquired[0] == job.id
        asked = f"; its nodes were asked for again: {workload.reacquired[1]}" if tried and workload.reacquired else ""
        return f"Slurm {'requeued' if job.requeued else 'lost'} the job of this pod ({job.id}){asked}"
    state = ", ".join(sorted(job.states & {each for each in job.states if is_ended(frozenset({each}))}))
    reason = job.job.reason if job.job is not None and job.job.reason not in ("", "None") else ""
    return f"Slurm job {job.id} ended: {state}" + (f" ({reason})" if reason else "")


def end_pod(
    workload: Workload,
    pod: Pod,
    why: str,
    this_pass: Pass,
    *,
    job: Placeholder | None = None,
    counts: bool = False,
    grace_s: int | None = None,
    bucket: str = "",
) -> Decision:
    """End one pod (S4).

    A pod with a controller is deleted, so that the controller recreates it.  Any other pod is ended by kubelet, by a
    deadline, and its object stays.  If that pod still runs after the longest grace that counts, it is deleted.  A pod that is
    being deleted is deleted again, with a shorter grace.

    job       the pod's job, which has ended; None: the job lives, or the pod never had one
    counts    True if the controller shall count the end as a failure: then kubelet ends the pod, unless it is a service
    grace_s   grace of the deletion; None: the pod's own grace, at most `_most_grace`
    bucket    the token bucket from which this action takes a token; "": none
    """
    deadline = pod.deleting_at is None and (pod.owner is None or (counts and not is_service(pod)))
    if grace_s is None and _outlives(workload, pod, job, this_pass):
        grace_s = AT_ONCE_S
        why += ". It did not end in its grace"
    elif deadline:
        return plan_action(act.FailByDeadline(workload.key, pod.uid, pod.namespace, pod.name, why, counts), bucket)
    elif grace_s is None:
        most_s, because = _most_grace(workload, pod, this_pass)
        if pod.grace_s > most_s:
            grace_s = most_s
            why += f". It has {span(most_s)} to end, because {because}"
    return plan_action(act.DeletePod(workload.key, pod.uid, pod.namespace, pod.name, why, grace_s), bucket)


def _most_grace(workload: Workload, pod: Pod, this_pass: Pass) -> tuple[int, str]:
    """The longest grace that the pod may have to end, in seconds, and the reason, for a person.

    While it ends, no job holds its node (S4) and, on a shared node, its devices (G3).
    """
    world, tuning = this_pass.world, this_pass.tuning
    counts_s = max(AT_ONCE_S, int(tuning.silent_node_s)), "a longer grace does not count (tuning: silent_node_s)"
    if pod.grace_s <= tuning.revoke_grace_max_s:
        return counts_s
    node = (world.nodes or {}).get(workload.node_of(pod))
    known = (world.slurm_nodes or {}).get(slurm_name(node)) if node is not None else None
    if known is None or known.external or not needs(pod).keys() & world.config.translation.gres.keys():
        return counts_s
    return min(counts_s, (tuning.revoke_grace_max_s, "Slurm may give its devices to others"))


def end_job(workload: Workload, this_pass: Pass) -> Decision:
    """The rule of DONE: no pod runs or waits any more.  End the job, and record in accounting how the pods ended (S2, S3)."""
    if workload.in_flight is not None:
        return NOTHING
    for job in this_pass.world.jobs_of(workload):
        if job.key is None and job.alive:
            return read_job(job, workload, this_pass, f"is job {job.id} the placeholder of pods that are gone?")
        if job.key == workload.key and job.alive:
            return _end_own_job(workload, job, this_pass)
    claimed = this_pass.world.claimed_job(workload)
    if claimed is not None and may_be_unrecorded(claimed, workload, this_pass):
        if this_pass.now < this_pass.world.quiet_until():  # after a start, other reads are more urgent
            return wake(this_pass.world.quiet_until())
        why = f"is job {claimed.id}, which ended, that of {workload.readable}?"
        return read_job(claimed, workload, this_pass, why)
    if claimed is not None and is_to_be_recorded(claimed, workload, this_pass):
        return _record(claimed, workload, this_pass)
    if workload.pods or workload.unanswered or workload.proven:
        return NOTHING
    search = search_for_job(workload, workload.job_search, this_pass) if workload.job_search is not None else None
    return search if search is not None else note(is_forgotten=True)


def _end_own_job(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """End the job of the pods, unless one of the pods may still run."""
    if this_pass.world.has_undecoded_pods(workload, job.user):
        return NOTHING  # visited again when that pod is decoded, or is gone
    if not workload.pods and not workload.deleted_pods and _may_be_of_unread_jobset(this_pass):
        return wake(this_pass.now + 1.0)
    may_run_until = max(
        (_may_run_until(gone, this_pass) for gone in workload.deleted_pods.values()), default=float("-inf")
    )
    if this_pass.now < may_run_until:
        return wake(may_run_until)
    return cancel(job, workload, this_pass, _why_done(workload, job), record=_record_of(workload, job))


def _may_be_of_unread_jobset(this_pass: Pass) -> bool:
    """True if a job without pods may belong to a stage of a JobSet: the stage's pods are known once the JobSet is read."""
    world = this_pass.world
    if this_pass.now >= world.started + UNREAD_S:
        return False
    waiting = (world.workloads[key] for phase in (Phase.GATHERING, Phase.UNSUBMITTED) for key in world.by_phase[phase])
    jobsets = (each for each in waiting if each.group is not None and each.group.size_source_kind == "JobSet")
    return any(world.owners_of(each.first)[1] is not None for each in jobsets)


def _may_run_until(gone: DeletedPod, this_pass: Pass) -> float:
    """Until when a pod may still run whose object is deleted; later than its grace if its node's kubelet is silent (S8)."""
    silent = _silent_until(gone.pod, this_pass)
    return gone.until if silent is None or gone.until <= gone.at else max(gone.until, silent)


def _silent_until(pod: Pod, this_pass: Pass) -> float | None:
    """When the pods of this pod's node count as over because the node's kubelet does not report; None: kubelet reports."""
    since = this_pass.world.kubelet_silent_since.get(pod.node)
    return since + this_pass.tuning.silent_node_s if since is not None else None


def silent_until(workload: Workload, this_pass: Pass) -> float | None:
    """When to end a job whose pods are being deleted on nodes whose kubelets do not report (S8); None: not for that.

    The job ends if all of its pods are being deleted on such nodes.  The job of a gang also ends if new members wait for the
    places of such pods.  Slurm may then grant these places again; new pods are bound there when the old pods are gone (F6).
    """
    if not this_pass.world.kubelet_silent_since:
        return None
    until = float("-inf")
    in_vain = any(not workload.node_of(pod) for pod in workload.members)
    leaving = _being_deleted(workload)
    for pod in leaving if in_vain and leaving else workload.unfinished:
        silent = _silent_until(pod, this_pass)
        ends = this_pass.world.grace_ends(pod)
        if ends is None or silent is None:
            return None
        until = max(until, ends, silent)
    return until


def end_job_of_silent_node(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """End the job of pods that are being deleted on nodes whose kubelets will never report their end (S8)."""
    where = ", ".join(sorted({pod.node for pod in _being_deleted(workload)}))
    silent_s = this_pass.tuning.silent_node_s
    why = f"its pods are being deleted, and node {where} has said nothing for {span(silent_s)}"
    return cancel(job, workload, this_pass, why)


def _being_deleted(workload: Workload) -> list[Pod]:
    return [pod for pod in workload.unfinished if pod.deleting_at is not None]


def _pods_of(workload: Workload, job: Placeholder) -> list[Pod]:
    """The present and deleted pods of the workload that ran for this job, without pods of other jobs of the gang."""
    every = (*workload.pods.values(), *(gone.pod for gone in workload.deleted_pods.values()))
    return [pod for pod in every if pod.annotations.get(names.JOB_ID, str(job.id)) == str(job.id)]


def _why_done(workload: Workload, job: Placeholder) -> str:
    return _ends_of(workload, _pods_of(workload, job)) or "its workload does not exist"


def _record_of(workload: Workload, job: Placeholder) -> str:
    """How the job's pods ended, for accounting; "": none of them was ever bound to a node."""
    return _ends_of(workload, [pod for pod in _pods_of(workload, job) if pod.node])


def _ends_of(workload: Workload, pods: Sequence[Pod]) -> str:
    """How each pod ended.  Of many pods: the counts, and the pod with the highest exit code, as sacct shows one line."""
    if len(pods) <= NAMED_MOST:
        return "; ".join(f"{pod.full_name}: {_how_ended(pod)}" for pod in pods)
    counts = Counter(_how_ended(pod) for pod in pods)
    worst = max(pods, key=lambda pod: pod.exit_code or 0)
    ends = ", ".join(f"{count:,} {how}" for how, count in counts.most_common(NAMED_MOST))
    return f"{workload.readable}: {ends}" + (f"; {worst.full_name}: {_how_ended(worst)}" if worst.exit_code else "")


def _how_ended(pod: Pod) -> str:
    """How the pod ended, as kubelet reported it.  A deleted pod counts as deleted, whatever its containers returned."""
    if pod.phase is PodPhase.SUCCEEDED or (pod.finished and pod.deleting_at is None):
        how = pod.end_reason or pod.phase.value
        return f"{how}, {pod.waits}" if pod.waits else how
    return "Deleted"


def may_be_unrecorded(job: Placeholder, workload: Workload, this_pass: Pass) -> bool:
    """True if job and pods ended before this process began, and the previous process may not have recorded that."""
    return this_pass.world.config.accounting and job.key is None and job.ended and bool(_record_of(workload, job))


def is_to_be_recorded(job: Placeholder, workload: Workload, this_pass: Pass) -> bool:
    """True if the job is ours and has ended, and how its pods ended is not recorded yet."""
    known = job.key == workload.key and job.ended and not job.recorded
    return this_pass.world.config.accounting and known and bool(_record_of(workload, job))


def record_former(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Record the end of the former job of a gang that was recreated before the last pod of that job was gone (S2)."""
    if workload.group is None or workload.in_flight is not None:
        return NOTHING
    running = {pod.annotations.get(names.JOB_ID) for pod in workload.unfinished}
    for former in this_pass.world.jobs_of(workload):
        if former.id != job.id and str(former.id) not in running and is_to_be_recorded(former, workload, this_pass):
            return _record(former, workload, this_pass)
    return NOTHING


def _record(job: Placeholder, workload: Workload, this_pass: Pass) -> Decision:
    if this_pass.now < (retry_from := workload.retry_from(Attempt.RECORD)):
        return wake(retry_from)
    own = job.job.comment if job.job is not None else (job.spec.comment if job.spec is not None else "")
    said = [part for part in own.split("; ") if part not in ("", workload.readable)]  # the record names it anyway
    comment = "; ".join([*said, _record_of(workload, job)])
    code = max(pod.exit_code or 0 for pod in _pods_of(workload, job))
    return plan_action(act.RecordEnd(workload.key, job.id, job.user, code, comment, f"accounting: {comment}"))

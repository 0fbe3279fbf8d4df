"""REVOKED and DONE: the job is over and its pods follow; the pods are over and their job follows (S2–S4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.slurm import is_ended
from scheduler.place.feasible import slurm_name
from scheduler.rules.identity import cancel, look_at, looked, scan_until
from scheduler.rules.reacquire import reacquire
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, say, say_all
from scheduler.rules.submission import is_managed, not_managed
from scheduler.state.phase import Phase
from scheduler.state.workload import DeletedPod, Placeholder, Workload
from scheduler.translate.job_spec import needs

OUTLIVES_S = 30.0  # what kubelet was told to end is ended by other means when it lives so long beyond its grace
AT_ONCE_S = 1  # grace of a deletion after a grace that is over; with 0 the object would go before its containers do
UNREAD_S = 300.0  # so long after a start a job waits for the JobSet to be read that may be its own
NAMED_MOST = 3  # pods that a record names one by one


def end_pods(workload: Workload, this_pass: Pass) -> None:
    """Their job is over while pods run: they are told why, and ended with grace (S4)."""
    world = this_pass.world
    own = [each for each in world.mine(workload) if each.key in (None, workload.key)]
    job = next((each for each in own if each.id == workload.hint), own[-1] if own else None)
    ended = job is not None and job.ended
    if this_pass.now < world.quiet_until():
        this_pass.wake_at(workload.key, world.quiet_until())
        return
    assert job is not None, "REVOKED is said of a job"
    if (not ended or job.requeued) and _may_live_on(workload, job, this_pass):
        return
    if not ended and _held_back(workload, job, this_pass):
        return
    why = _why_ended(workload, job)
    for pod in workload.unfinished:
        if not workload.node_of(pod) or not workload.stands_for(pod, job):
            continue  # it waits for the others, and for another job; or somebody else bound it
        until = max(being_ended(workload, pod, job, this_pass), goes_until(workload, pod, this_pass))
        if this_pass.now < until:
            if until < float("inf"):
                this_pass.wake_at(workload.key, until)
        elif this_pass.now < workload.wait_until:
            this_pass.wake_at(workload.key, workload.wait_until)
        elif not ended and not this_pass.take_token("absent"):
            this_pass.park(workload.key, "absent")
        else:
            end_pod(workload, pod, why, this_pass, job=job, counts=_out_of_time(job))
    _wait_for_the_former(workload, this_pass)


def _wait_for_the_former(workload: Workload, this_pass: Pass) -> None:
    """New members of a gang wait until the pods of its former job have ended; for pods on a dead node as long as S8 says."""
    waiting = [pod for pod in workload.members if not workload.node_of(pod)]
    former = [pod for pod in workload.unfinished if workload.node_of(pod)]
    if not waiting or not former:
        return
    still = []
    for pod in former:
        where = f"{pod.full_name} on node {workload.node_of(pod)}"
        over_at = _over_at(workload, pod, this_pass)
        if over_at is not None and this_pass.now >= over_at:
            this_pass.written_off.append((workload.key, pod.uid))
            continue
        if over_at is not None:
            since = clock(this_pass.world.silent_since[pod.node], this_pass.now)
            counts_at = clock(over_at, this_pass.now)
            where += f", whose kubelet has said nothing since {since} (the pod counts as over at {counts_at})"
            this_pass.wake_at(workload.key, over_at)
        still.append(where)
    if still:
        more = f" and {len(still) - NAMED_MOST} more" if len(still) > NAMED_MOST else ""
        message = (
            f"Nodes are asked for when the pods of the former job of {workload.readable} have ended. "
            f"Still there: {', '.join(still[:NAMED_MOST])}{more}."
        )
        say_all(workload, waiting, this_pass, names.GATHERING, message)


def _over_at(workload: Workload, pod: Pod, this_pass: Pass) -> float | None:
    """When a pod that is being ended on a dead node counts as over; None: its node's kubelet will tell."""
    silent = _silent_until(pod, this_pass)
    ends = this_pass.world.grace_ends(pod)
    if ends is None:
        held = workload.pod_holds.get(pod.uid)
        ends = held.until if held is not None and isinstance(held.action, act.DeletePod | act.FailByDeadline) else None
    return max(silent, ends) if silent is not None and ends is not None else None


def _may_live_on(workload: Workload, job: Placeholder, this_pass: Pass) -> bool:
    """True while the pods may keep running though no job of theirs is known to live.

    Slurm does not answer (X1), another job of theirs may be found, or their nodes may be granted to them again (S7).
    """
    if Side.SLURM in this_pass.world.lost:
        return True
    until = scan_until(workload, this_pass)
    if this_pass.now < until:
        this_pass.wake_at(workload.key, until)
        return True
    if not is_managed(workload.pod, this_pass.world) and not job.ended:
        _say_left_alone(workload, job, this_pass)
        return True
    if this_pass.world.config.leaving:
        return False
    return is_managed(workload.pod, this_pass.world) and reacquire(workload, job, this_pass)


def _say_left_alone(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """Tell pods of a namespace that is not managed (any more) that they are left alone though Slurm knows no such job."""
    message = (
        f"Slurm knows no job {job.id} of this pod. It is left alone, and nothing is asked for it. "
        f"{not_managed(workload.pod)}"
    )
    for pod in workload.unfinished:
        say(this_pass, workload, pod, "", message, warning=True, event=names.ABSENCE)


def _held_back(workload: Workload, job: Placeholder, this_pass: Pass) -> bool:
    """Many vanished together: that is said, and not believed before an admin does (X6)."""
    world = this_pass.world
    if (world.held_back_since if job.proven else world.claims_held_since) is None or job.released:
        return False
    message = (
        "Slurm lists neither this pod's job any more nor many others. That is not believed, and nothing is ended, "
        "until it lists them again or tells how they ended. An admin who knows that they are gone says so: "
        "slurm-bridge release."
    )
    for pod in workload.unfinished:
        say(this_pass, workload, pod, "", message, warning=True, event=names.ABSENCE)
    return True


def being_ended(workload: Workload, pod: Pod, job: Placeholder | None, this_pass: Pass) -> float:
    """Until when an end in flight, or the deadline that kubelet was handed (S4b), is left to end the pod."""
    held = workload.pod_holds.get(pod.uid)
    until = float("-inf")
    if held is not None and held.until is None:
        return float("inf")
    if held is not None and held.until is not None and isinstance(held.action, act.DeletePod | act.FailByDeadline):
        until = held.until
    outlives_at = _outlives_at(pod, job, this_pass)
    return until if outlives_at is None else max(until, outlives_at)


def _outlives_at(pod: Pod, job: Placeholder | None, this_pass: Pass) -> float | None:
    """When kubelet should have ended it by the deadline that it was handed; None: that has not come."""
    started = this_pass.world.started_at(pod)
    if not _out_of_time(job) or started is None or pod.handed_deadline_s is None:
        return None
    deadline = started + pod.handed_deadline_s
    if deadline > this_pass.now:  # its time was shortened since
        return None
    return deadline + this_pass.tuning.grace_counts_s(pod.grace_s) + OUTLIVES_S


def _outlives(workload: Workload, pod: Pod, job: Placeholder | None, this_pass: Pass) -> bool:
    """True if kubelet, which was told to end the pod, gives it a longer grace than counts; only a deletion shortens that."""
    if pod.grace_s <= this_pass.tuning.silent_node_s:
        return False
    held = workload.pod_holds.get(pod.uid)
    if held is not None and isinstance(held.action, act.FailByDeadline) and held.until is not None:
        return this_pass.now >= held.until
    outlives_at = _outlives_at(pod, job, this_pass)
    return outlives_at is not None and this_pass.now >= outlives_at


def goes_until(workload: Workload, pod: Pod, this_pass: Pass) -> float:
    """Until when a pod that is being deleted is left to go by itself; "-inf": not at all.

    Whoever deletes a pod chooses its grace.  A later deletion can shorten a grace that is longer than it may be.
    """
    if pod.deleting_at is None:
        return float("-inf")
    most_s, _ = _most_grace(workload, pod, this_pass)
    if pod.grace_s <= most_s:
        return float("inf")
    ends = this_pass.world.clocks[Side.KUBERNETES].ours(pod.deleting_at)
    return ends + OUTLIVES_S if ends <= this_pass.now + most_s else float("-inf")


def _out_of_time(job: Placeholder | None) -> bool:
    """True if the job reached its time limit, which does not count as a disruption (S4b)."""
    return job is not None and not job.states.isdisjoint({"TIMEOUT", "DEADLINE"})


def is_service(pod: Pod) -> bool:
    """Its controller replaces it whenever it goes, and counts no failures."""
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
) -> None:
    """A pod with a controller is deleted, for that to recreate it; one without is ended by kubelet and stays (S4).

    If kubelet gives a pod a longer grace than counts, the pod is deleted after that.  A pod that is being deleted is deleted
    again, with a shorter grace.

    job       its job, which has ended; None: it has a job, or never had one
    counts    it is its own failure, which its controller is to count: kubelet ends it then too, unless it is a service
    grace_s   where it is deleted; None: its own, capped as `_most_grace` says
    """
    deadline = pod.deleting_at is None and (pod.owner is None or (counts and not is_service(pod)))
    if grace_s is None and _outlives(workload, pod, job, this_pass):
        grace_s = AT_ONCE_S
        why += ". It did not end in its grace"
    elif deadline:
        this_pass.add(act.FailByDeadline(workload.key, pod.uid, pod.namespace, pod.name, why, counts), workload.key)
        return
    elif grace_s is None:
        most_s, because = _most_grace(workload, pod, this_pass)
        if pod.grace_s > most_s:
            grace_s = most_s
            why += f". It has {most_s} s to end, because {because}"
    this_pass.add(act.DeletePod(workload.key, pod.uid, pod.namespace, pod.name, why, grace_s), workload.key)


def _most_grace(workload: Workload, pod: Pod, this_pass: Pass) -> tuple[int, str]:
    """How long a grace the end of that pod may have at most, and why: no job holds its nodes (S4), or its devices (G3)."""
    world, tuning = this_pass.world, this_pass.tuning
    counts_s = max(AT_ONCE_S, int(tuning.silent_node_s)), "no longer grace counts (tuning: silent_node_s)"
    if pod.grace_s <= tuning.revoke_grace_max_s:
        return counts_s
    node = (world.nodes or {}).get(workload.node_of(pod))
    known = (world.slurm_nodes or {}).get(slurm_name(node)) if node is not None else None
    if known is None or known.external or not needs(pod).keys() & world.config.translation.gres.keys():
        return counts_s
    return min(counts_s, (tuning.revoke_grace_max_s, "Slurm may give its devices to others"))


def end_job(workload: Workload, this_pass: Pass) -> None:
    """No pod runs or waits any more: its job ends, and accounting learns how the pods ended (S2, S3)."""
    if workload.hold is not None:
        return
    mine = this_pass.world.mine(workload)
    may_run_until = max((_may_run_until(gone, this_pass) for gone in workload.gone.values()), default=float("-inf"))
    for job in mine:
        if job.key is None and job.alive:
            look_at(job, workload, this_pass, f"is job {job.id} the placeholder of pods that are gone?")
            return
        if job.key == workload.key and job.alive:
            if this_pass.world.may_be_undecoded(workload, job.user):
                return  # looked at again when that pod is decoded, or is gone
            if not workload.pods and not workload.gone and _may_be_of_a_stage(this_pass):
                this_pass.wake_at(workload.key, this_pass.now + 1.0)
            elif this_pass.now < may_run_until:
                this_pass.wake_at(workload.key, may_run_until)
            else:
                cancel(job, workload, this_pass, _why_done(workload, job), record=_record_of(workload, job))
            return
    job_of_theirs = this_pass.world.placeholders.get(workload.hint) if workload.hint is not None else None
    if job_of_theirs is not None and may_be_unrecorded(job_of_theirs, workload, this_pass):
        if this_pass.now < this_pass.world.quiet_until():  # there are more urgent things to read after a start
            this_pass.wake_at(workload.key, this_pass.world.quiet_until())
        else:
            look_at(
                job_of_theirs,
                workload,
                this_pass,
                f"is job {job_of_theirs.id}, which ended, that of {workload.readable}?",
            )
    elif job_of_theirs is not None and is_to_be_recorded(job_of_theirs, workload, this_pass):
        _record(job_of_theirs, workload, this_pass)
    elif (
        not workload.pods
        and not (workload.unanswered or workload.proven)
        and (workload.look is None or looked(workload, workload.look, this_pass))
    ):
        this_pass.forgotten.append(workload.key)


def _may_be_of_a_stage(this_pass: Pass) -> bool:
    """After a start, a job without pods may be that of a JobSet's stage: whose pods those are the JobSet tells, once read."""
    world = this_pass.world
    if this_pass.now >= world.started + UNREAD_S:
        return False
    waiting = (world.workloads[key] for phase in (Phase.GATHERING, Phase.UNSUBMITTED) for key in world.by_phase[phase])
    jobsets = (each for each in waiting if each.group is not None and each.group.size_told_by == "JobSet")
    return any(world.owners_of(each.first)[1] is not None for each in jobsets)


def _may_run_until(gone: DeletedPod, this_pass: Pass) -> float:
    """A pod that was taken away while its node's kubelet said nothing may run there until it is surely over (S8)."""
    silent = _silent_until(gone.pod, this_pass)
    return gone.until if silent is None or gone.until <= gone.at else max(gone.until, silent)


def _silent_until(pod: Pod, this_pass: Pass) -> float | None:
    """When what stands on its node is taken as over, since that node's kubelet says nothing; None: it speaks."""
    since = this_pass.world.silent_since.get(pod.node)
    return since + this_pass.tuning.silent_node_s if since is not None else None


def end_job_of_the_silent(workload: Workload, job: Placeholder, this_pass: Pass) -> bool:
    """Its pods are being deleted on nodes that say nothing: nobody will ever say that they are gone (S8).

    All of them; or those of a gang in whose places others wait, which cannot go on without.  Their place is Slurm's to
    give again after that time; who is granted it is bound when they are gone (F6).  True where the job ends.
    """
    if not this_pass.world.silent_since:
        return False
    until = float("-inf")
    in_vain = any(not workload.node_of(pod) for pod in workload.members)
    leaving = [pod for pod in workload.unfinished if pod.deleting_at is not None]
    for pod in leaving if in_vain and leaving else workload.unfinished:
        silent = _silent_until(pod, this_pass)
        ends = this_pass.world.grace_ends(pod)
        if ends is None or silent is None:
            return False
        until = max(until, ends, silent)
    if this_pass.now < until:
        this_pass.wake_at(workload.key, until)
        return False
    where = ", ".join(sorted({pod.node for pod in leaving}))
    cancel(
        job,
        workload,
        this_pass,
        f"its pods are being deleted, and node {where} has said nothing for {this_pass.tuning.silent_node_s:.0f} s",
    )
    return True


def _all_that_were(workload: Workload, job: Placeholder) -> list[Pod]:
    """The pods that ran for this job; not those of a job that the gang had before, or has since."""
    every = (*workload.pods.values(), *(gone.pod for gone in workload.gone.values()))
    return [pod for pod in every if pod.annotations.get(names.JOB_ID, str(job.id)) == str(job.id)]


def _why_done(workload: Workload, job: Placeholder) -> str:
    return _ends_of(workload, _all_that_were(workload, job)) or "its workload does not exist"


def _record_of(workload: Workload, job: Placeholder) -> str:
    """For accounting, where pods of it ever stood on a node."""
    return _ends_of(workload, [pod for pod in _all_that_were(workload, job) if pod.node])


def _ends_of(workload: Workload, pods: Sequence[Pod]) -> str:
    """Each by its name; of many how many ended how, and the worst by its name: sacct shows it in one line."""
    if len(pods) <= NAMED_MOST:
        return "; ".join(f"{pod.full_name}: {_how_ended(pod)}" for pod in pods)
    counts = Counter(_how_ended(pod) for pod in pods)
    worst = max(pods, key=lambda pod: pod.exit_code or 0)
    ends = ", ".join(f"{count} {how}" for how, count in counts.most_common(NAMED_MOST))
    return f"{workload.readable}: {ends}" + (f"; {worst.full_name}: {_how_ended(worst)}" if worst.exit_code else "")


def _how_ended(pod: Pod) -> str:
    """By kubelet's word; what a deletion ended was deleted, whatever its containers made of it."""
    if pod.phase is PodPhase.SUCCEEDED or (pod.finished and pod.deleting_at is None):
        how = pod.end_reason or pod.phase.value
        return f"{how}, {pod.waits}" if pod.waits else how
    return "Deleted"


def may_be_unrecorded(job: Placeholder, workload: Workload, this_pass: Pass) -> bool:
    """Both ended before this life began, and the one before may not have come to its record."""
    return this_pass.world.config.accounting and job.key is None and job.ended and bool(_record_of(workload, job))


def is_to_be_recorded(job: Placeholder, workload: Workload, this_pass: Pass) -> bool:
    """True if the job is ours, has ended, and accounting is yet to be told how its pods ended."""
    known = job.key == workload.key and job.ended and not job.recorded
    return this_pass.world.config.accounting and known and bool(_record_of(workload, job))


def record_former(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """A gang that was made anew before the last pod of its job before was gone: that one's end is recorded, too (S2)."""
    if workload.group is None or workload.hold is not None:
        return
    running = {pod.annotations.get(names.JOB_ID) for pod in workload.unfinished}
    for former in this_pass.world.mine(workload):
        if former.id != job.id and str(former.id) not in running and is_to_be_recorded(former, workload, this_pass):
            _record(former, workload, this_pass)
            return


def _record(job: Placeholder, workload: Workload, this_pass: Pass) -> None:
    if this_pass.now < workload.wait_until:
        this_pass.wake_at(workload.key, workload.wait_until)
        return
    own = job.job.comment if job.job is not None else (job.spec.comment if job.spec is not None else "")
    said = [part for part in own.split("; ") if part not in ("", workload.readable)]  # the record says it anyway
    comment = "; ".join([*said, _record_of(workload, job)])
    code = max(pod.exit_code or 0 for pod in _all_that_were(workload, job))
    this_pass.add(act.RecordEnd(workload.key, job.id, job.user, code, comment, f"accounting: {comment}"), workload.key)

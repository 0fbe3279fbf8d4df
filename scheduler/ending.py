"""REVOKED and DONE: the job is over and its pods follow; the pods are over and their job follows (BEHAVIOUR S2–S4)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler import names
from scheduler.feasible import slurm_name
from scheduler.jobspec import needs
from scheduler.looking import cancel, look_at, looked
from scheduler.model import Pod, is_ended
from scheduler.telling import say
from scheduler.view import View
from scheduler.workload import Placeholder, Workload


def end_pods(workload: Workload, view: View) -> None:
    """Their job is over while pods run: they are told why, and ended with grace (S4)."""
    world = view.world
    own = [each for each in world.mine(workload) if each.key in (None, workload.key)]
    job = next((each for each in own if each.id == workload.hint), own[-1] if own else None)
    ended = job is not None and job.ended
    if view.now < world.quiet_until():
        view.wake_at(workload.key, world.quiet_until())
        return
    if not ended and world.mass_absence():
        for pod in workload.unfinished:
            message = (
                "Slurm lists neither this pod's job any more nor many others. That is not believed, and nothing is "
                "ended, until it lists them again or tells how they ended."
            )
            say(view, workload, pod, "", message, warning=True, event=names.ENDED)
        view.wake_at(workload.key, view.now + view.tuning.absent_s)
        return
    why = _why_ended(job)
    for pod in workload.unfinished:
        if not workload.node_of(pod):
            continue  # it waits for the others, and for another job
        held = workload.pod_holds.get(pod.uid)
        if pod.deleting_at is not None or (held is not None and (held.until is None or view.now < held.until)):
            if held is not None and held.until is not None:
                view.wake_at(workload.key, held.until)
        elif view.now < workload.wait_until:
            view.wake_at(workload.key, workload.wait_until)
        elif not ended and not view.ration("absent"):
            view.wake_at(workload.key, view.now + 1.0)
        else:
            _end_pod(workload, pod, why, view)


def _why_ended(job: Placeholder | None) -> str:
    if job is None or not job.ended:
        return "Slurm lost the job of this pod" + (f" ({job.id})" if job else "")
    state = ", ".join(sorted(job.states & {each for each in job.states if is_ended(frozenset({each}))}))
    reason = job.job.reason if job.job is not None and job.job.reason not in ("", "None") else ""
    return f"Slurm job {job.id} ended: {state}" + (f" ({reason})" if reason else "")


def _end_pod(workload: Workload, pod: Pod, why: str, view: View) -> None:
    """A pod with a controller is deleted, for that to recreate it; one without is ended by kubelet and stays (S4)."""
    if pod.owner is not None:
        grace_s = _capped(workload, pod, view)
        if grace_s is not None:
            why += f". It has {grace_s} s to end, because Slurm may give its devices to others"
        view.add(act.EvictPod(workload.key, pod.uid, pod.namespace, pod.name, why, grace_s), workload.key)
    else:
        view.add(act.EndByDeadline(workload.key, pod.uid, pod.namespace, pod.name, why), workload.key)


def _capped(workload: Workload, pod: Pod, view: View) -> int | None:
    """Of a pod with devices on a node with a slurmd, where Slurm's own next job may get them (G3); None: its own grace."""
    world, most = view.world, view.tuning.revoke_grace_max_s
    node = (world.nodes or {}).get(workload.node_of(pod))
    known = (world.slurm_nodes or {}).get(slurm_name(node)) if node is not None else None
    if known is None or known.external or pod.grace_s <= most:
        return None
    return most if needs(pod).keys() & world.config.translation.gres.keys() else None


def end_job(workload: Workload, view: View) -> None:
    """No pod runs or waits any more: its job ends, and accounting learns how the pods ended (S2, S3)."""
    if workload.hold is not None:
        return
    mine = view.world.mine(workload)
    may_run_until = max((gone.until for gone in workload.gone.values()), default=float("-inf"))
    for job in mine:
        if job.key is None and job.alive:
            look_at(job, workload, view, f"is job {job.id} the placeholder of pods that are gone?")
            return
        if job.key == workload.key and job.alive:
            if view.now < may_run_until:
                view.wake_at(workload.key, may_run_until)
            else:
                cancel(job, workload, view, _why_done(workload), record=_record_of(workload))
            return
    if workload.record is not None:
        _record(workload, view)
    elif not workload.pods and (workload.look is None or looked(workload, workload.look, view)):
        view.forgotten.append(workload.key)


def _why_done(workload: Workload) -> str:
    pods = [*workload.pods.values(), *(gone.pod for gone in workload.gone.values())]
    if not pods:
        return "its workload does not exist"
    return "; ".join(f"{pod.full_name}: {_how_ended(pod)}" for pod in pods)


def _record_of(workload: Workload) -> str:
    """For accounting, where pods of it ever stood on a node."""
    pods = [*workload.pods.values(), *(gone.pod for gone in workload.gone.values())]
    return "; ".join(f"{pod.full_name}: {_how_ended(pod)}" for pod in pods if pod.node)


def _how_ended(pod: Pod) -> str:
    if pod.finished:
        return pod.end_reason or pod.phase.value
    return "Deleted"


def _record(workload: Workload, view: View) -> None:
    assert workload.record is not None
    if view.now < workload.wait_until:
        view.wake_at(workload.key, workload.wait_until)
        return
    job_id, comment = workload.record
    code = max((pod.exit_code or 0 for pod in workload.pods.values()), default=0)
    codes = [code, *(gone.pod.exit_code or 0 for gone in workload.gone.values())]
    view.add(act.RecordEnd(workload.key, job_id, max(codes), comment, f"accounting: {comment}"), workload.key)

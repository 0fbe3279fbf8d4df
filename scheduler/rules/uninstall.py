"""The bridge is being uninstalled (`Config.leaving`, `slurm-bridge uninstall`): what it decides otherwise, and what is left.

    pods that wait     get no job; a job that waits, or holds nodes for pods that are not bound yet, is ended
    pods that run      run to their end, or are ended now ("end"); their job follows them, as ever.  A gang of which some
                       pods are bound is bound as a whole, as ever.  A job that Slurm loses is not asked for again
    nodes              nodes.py: own nodes leave Slurm once idle, drains are undone, taints and conditions are taken away

Everything else, above all what is looked at before something is ended, is as in a bridge that stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler import actions as act
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.nodes.observed import NEVER
from scheduler.rules.identity import cancel
from scheduler.rules.reconcile_nodes import left_on_nodes
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import say_all
from scheduler.rules.submission import is_managed
from scheduler.rules.termination import being_ended, end_pod, goes_until, is_to_be_recorded, may_be_unrecorded
from scheduler.state.anomalies import claims_held_back, held_back
from scheduler.state.phase import Phase
from scheduler.state.workload import Placeholder, Workload
from scheduler.state.world import World

WAIT, END = "wait", "end"
WHY = "slurm-bridge is being uninstalled"
MESSAGE = (
    "slurm-bridge is being uninstalled, and asks Slurm for no more nodes. The pod waits for nothing: delete it, or make it "
    "anew with another schedulerName."
)
WRITES = (
    *act.CHANGES,
    act.SetPodCondition,
    act.SetJobCondition,
    act.RegisterNode,
    act.ChangeNode,
    act.RemoveNode,
    act.SetNodeCondition,
    act.TaintNode,
    act.ReleaseNode,
)


# --- what is decided ------------------------------------------------------------------------------------------------


def is_ending_pods(this_pass: Pass) -> bool:
    """Whether running pods are to be ended now."""
    return this_pass.world.config.leaving == END


def gives_up(workload: Workload, this_pass: Pass) -> bool:
    """Whether the nodes granted to it are given back, since none of its pods is bound, nor may be by a bind on its way."""
    if not this_pass.world.config.leaving or any(map(workload.node_of, workload.unfinished)):
        return False
    binding = any(isinstance(held.action, act.BindPod) for held in workload.pod_holds.values())
    return not binding and not any(uid in this_pass.world.may_land for uid in workload.pods)


def withdraw(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """End the job of pods that are not bound."""
    cancel(job, workload, this_pass, WHY)


def say_leaving(workload: Workload, this_pass: Pass) -> bool:
    """Tell the waiting pods that nothing is asked of Slurm for them any more.  False: the bridge stays."""
    if not this_pass.world.config.leaving:
        return False
    if is_managed(workload.first, this_pass.world):
        say_all(workload, _waiting(workload), this_pass, names.LEAVING, MESSAGE)
    return True


def end_running(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """End the pods that stand for this job, which is proven to be their own; the job ends when they have ended."""
    if this_pass.now < (quiet := this_pass.world.quiet_until()):
        this_pass.wake_at(workload.key, quiet)
        return
    for pod in workload.unfinished:
        if not workload.node_of(pod) or not workload.stands_for(pod, job):
            continue
        until = max(
            being_ended(workload, pod, None, this_pass), goes_until(workload, pod, this_pass), workload.wait_until
        )
        if this_pass.now >= until:
            end_pod(workload, pod, WHY, this_pass)
        elif until < float("inf"):
            this_pass.wake_at(workload.key, until)


# --- what is left ---------------------------------------------------------------------------------------------------


def todo(world: World, now: float) -> list[str]:
    """What is still to be taken back, each as a command; complete only where `waits_for` says nothing."""
    this_pass = Pass(world, now)
    jobs = [said for workload in world.workloads.values() for said in _of_workload(workload, this_pass)]
    return [*sorted(jobs), *left_on_nodes(world)]


def not_known(world: World) -> str:
    """Why `todo` may not be complete, a sentence; "": it is, but for requests of an earlier life that are on their way."""
    lost = [f"{side.value}: {each.why}" for side, each in world.lost.items()]
    if lost:
        return " ".join(lost)
    if not world.ready or world.node_state.polled == NEVER:
        lacking = ", ".join(world.missing) or "Slurm's nodes"
        return f"Still to be read: {lacking}."
    if unread := sorted({*world.unread, *world.put_off}):
        which = ", ".join(map(str, unread[:3])) + (" and more" if len(unread) > 3 else "")
        return f"Slurm jobs that are not read yet may be the bridge's: {which}."
    if broken := sorted(f"{kind.value} {name}" for kind, name in world.quarantine):
        return (
            f"Because of an error of slurm-bridge itself nothing is done to {broken[0]}; the log says more. Report it."
        )
    if undecoded := [each for each in world.undecoded if each.kind == "node"]:
        return f"Kubernetes node {undecoded[0].name} cannot be read: {undecoded[0].why}."
    return ""


def waits_for(world: World, now: float) -> str:
    """Why it cannot be known yet whether anything is left, a sentence; "": it can."""
    if why := not_known(world):
        return why
    if held := held_back(world) or claims_held_back(world):
        return f"{held}."
    quiet = world.quiet_until()
    if now < quiet:
        return f"For {quiet - now:.0f} s more, requests of a bridge that ran before may take effect."
    if min(world.last_poll_began, world.node_state.polled) < quiet:
        return "Slurm's jobs and nodes are still to be read once more."
    return _under_way(world)


def _under_way(world: World) -> str:
    writes = sum(isinstance(action, WRITES) for action in world.in_flight.values())
    unseen = len(world.node_state.holds) + len(world.node_state.saying)
    return f"{max(writes, unseen)} changes are under way." if writes or unseen else ""


def _of_workload(workload: Workload, this_pass: Pass) -> Iterator[str]:
    """What is left of one workload, by its phase."""
    world = this_pass.world
    if workload.others or _is_left_alone(workload, world):
        return
    now, what = world.phase_of[workload.key], workload.readable or "pods that are gone"
    running = [pod for pod in workload.unfinished if workload.node_of(pod)]
    is_over = _is_proven_over if running else _is_over
    live = [job for job in world.mine(workload) if job.key in (None, workload.key) and not is_over(job, this_pass)]
    if now is Phase.ORPHANED or (running and live):
        yield from _of_running(workload, running, live, world)
    elif live:
        yield f"end{_numbers(live, brackets=False)} of {what}"
    elif now is Phase.DONE and _is_unrecorded(workload, this_pass):
        lost = world.accounting_lost
        yield f"tell Slurm's accounting how {what} ended" + (f" ({lost.why})" if lost is not None else "")
    elif workload.hold is not None or any(held.until is None for held in workload.pod_holds.values()):
        yield f"finish what is under way for {what}"
    if running or not workload.members or not is_managed(workload.first, world):
        return
    if not all(_is_told(pod.uid, workload) for pod in _waiting(workload)):
        yield f"say on {what}, which waits, that nothing is asked of Slurm any more"


def _of_running(workload: Workload, running: list[Pod], live: list[Placeholder], world: World) -> Iterator[str]:
    is_renamed = workload.renamed is not None and workload.renamed == workload.hint
    waits = world.phase_of[workload.key] is not Phase.ORPHANED and (world.config.leaving == WAIT or is_renamed)
    name = ", which has another name since: the pod is not ended for it" if is_renamed else ""
    for pod in running:
        where = f"pod {pod.full_name} on node {workload.node_of(pod)}"
        yield f"wait until {where} ends{_numbers(live)}{name}" if waits else f"end {where}{_numbers(live)}"


def _is_left_alone(workload: Workload, world: World) -> bool:
    """Pods of a namespace that is not managed name a job that Slurm does not know: nothing is done to them (ending.py)."""
    if world.phase_of[workload.key] is not Phase.ORPHANED or is_managed(workload.pod, world):
        return False
    return not any(job.ended for job in world.mine(workload))


def _is_unrecorded(workload: Workload, this_pass: Pass) -> bool:
    jobs = this_pass.world.mine(workload)
    return any(
        is_to_be_recorded(job, workload, this_pass) or may_be_unrecorded(job, workload, this_pass) for job in jobs
    )


def _waiting(workload: Workload) -> list[Pod]:
    return [pod for pod in workload.members if not workload.node_of(pod)]


def _is_told(uid: str, workload: Workload) -> bool:
    told, shown = workload.told.get(uid), workload.shown_condition(workload.pods[uid])
    return (told is not None and told.condition == names.LEAVING) or (
        shown is not None and shown.reason == names.LEAVING
    )


def _is_over(job: Placeholder, this_pass: Pass) -> bool:
    """Where no pod runs, nothing is left of a job that Slurm does not list, nor of one that is somebody else's."""
    first, last = job.absent_first, job.absent_last
    return (
        job.ended
        or (job.denied and not job.proven)
        or (first is not None and last is not None and last - first >= this_pass.tuning.absent_s)
    )


def _is_proven_over(job: Placeholder, this_pass: Pass) -> bool:
    """As it has to be before pods that run are ended for it."""
    return job.proven_end(this_pass.tuning.absent_s)


def _numbers(jobs: Iterable[Placeholder], *, brackets: bool = True) -> str:
    ids = ", ".join(str(job.id) for job in jobs)
    if not ids:
        return ""
    return f" (Slurm job {ids})" if brackets else f" Slurm job {ids}"

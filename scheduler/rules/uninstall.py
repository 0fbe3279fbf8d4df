"""Decisions that differ while the bridge is being uninstalled (`Config.leaving`), and the list of what is still to do.

    pods that wait     get no job; a job that waits, or holds nodes for pods that are not bound yet, is ended
    pods that run      run to their end, or are ended now (leaving "end"); then their job is ended, as usual.  If some pods
                       of a gang are bound, the others are bound, too, as usual.  A job that Slurm loses is not submitted
                       again
    nodes              nodes that the bridge registered leave Slurm once idle; drains, taints and conditions are removed
                       (reconcile_nodes.py)

All other decisions are as usual, above all the reads before an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler import actions as act
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.model.text import span
from scheduler.nodes.observed import NOT_YET
from scheduler.rules.decision import NOTHING, Decision, combine, wake
from scheduler.rules.end_pod import deletion_awaited_until, end_awaited_until, end_pod
from scheduler.rules.end_record import is_to_be_recorded, may_be_unrecorded
from scheduler.rules.identity import cancel
from scheduler.rules.reconcile_nodes import left_on_nodes
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import statuses
from scheduler.rules.submission import is_managed
from scheduler.state.anomalies import held_back, hints_held_back
from scheduler.state.backoff import Attempt
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import ITS_PLACE
from scheduler.state.workload import Workload
from scheduler.state.world import World

WAIT, END = "wait", "end"
WHY = "slurm-bridge is being uninstalled"
MESSAGE = (
    "slurm-bridge is being uninstalled, and asks Slurm for no more nodes. The pod will not be scheduled: delete it, or "
    "create it again with another schedulerName."
)
WRITES = frozenset({act.Effect.WORKLOAD, act.Effect.STATUS, act.Effect.NODE})


# --- the decisions --------------------------------------------------------------------------------------------------


def is_ending_pods(this_pass: Pass) -> bool:
    """True if running pods are to be ended now."""
    return this_pass.world.config.leaving == END


def releases_grant(workload: Workload, this_pass: Pass) -> bool:
    """True if the grant may be released: no pod of the workload is bound, and no bind can still take effect."""
    return not any(map(workload.node_of, workload.unfinished)) and not this_pass.world.may_be_bound_yet(workload)


def withdraw(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """End the job of pods that are not bound."""
    return cancel(job, workload, this_pass, WHY)


def no_new_job(workload: Workload, this_pass: Pass) -> Decision | None:
    """The waiting pods show that the bridge submits no more jobs.  None: the bridge is not being uninstalled."""
    if not this_pass.world.config.leaving:
        return None
    if not is_managed(workload.first, this_pass.world):
        return NOTHING
    return statuses(workload.members, names.LEAVING, MESSAGE)


def end_running(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """End the pods that are bound for this job, which is proven to be their own; the job ends when they have ended."""
    if this_pass.now < (quiet := this_pass.world.quiet_until()):
        return wake(quiet)
    found = []
    for pod in workload.unfinished:
        if not workload.node_of(pod) or not workload.is_bound_for(pod, job):
            continue
        until = max(
            end_awaited_until(workload, pod, None, this_pass),
            deletion_awaited_until(workload, pod, this_pass),
            workload.retry_from(Attempt.END_POD),
        )
        found.append(end_pod(workload, pod, WHY, this_pass) if this_pass.now >= until else wake(until))
    return combine(found)


# --- the remaining work ---------------------------------------------------------------------------------------------


def left_to_remove(world: World, now: float) -> list[str]:
    """The objects that are still to be removed, each as a command; complete only if `waits_for` returns ""."""
    this_pass = Pass(world, now)
    steps = [step for workload in world.workloads.values() for step in _of_workload(workload, this_pass)]
    return [*sorted(steps), *left_on_nodes(world)]


def why_incomplete(world: World) -> str:
    """Why `left_to_remove` may not be complete, a sentence; "": it is complete.

    Requests of a previous process that are in flight do not count.
    """
    lost = [f"{side.value}: {outage.why}" for side, outage in world.outages.items()]
    if lost:
        return " ".join(lost)
    if not world.ready or world.node_state.polled == NOT_YET:
        lacking = ", ".join(world.missing) or "Slurm's nodes"
        return f"Still to be read: {lacking}."
    if unread := sorted({*world.unread, *world.reads_postponed}):
        which = ", ".join(map(str, unread[:3])) + (" and more" if len(unread) > 3 else "")
        return f"Slurm jobs that are not read yet may be the bridge's: {which}."
    if broken := sorted(f"{kind.value} {name}" for kind, name in world.quarantine):
        return (
            f"Because of an error of slurm-bridge itself nothing is done to {broken[0]}; the log says more. Report it."
        )
    if undecoded := [thing for thing in world.undecoded if thing.kind == "node"]:
        return f"Kubernetes node {undecoded[0].name} cannot be read: {undecoded[0].why}."
    return ""


def waits_for(world: World, now: float) -> str:
    """Why it is not known yet whether anything is left, a sentence; "": it is known."""
    if why := why_incomplete(world):
        return why
    if why := held_back(world) or hints_held_back(world):
        return f"{why}."
    quiet = world.quiet_until()
    if now < quiet:
        return f"For {span(quiet - now)} more, requests of a bridge that ran before may take effect."
    if min(world.last_poll_began, world.node_state.polled) < quiet:
        return "Slurm's jobs and nodes are still to be read once more."
    return _under_way(world)


def _under_way(world: World) -> str:
    writes = sum(action.effect in WRITES for action in world.in_flight.values())
    unseen = len(world.node_state.in_flight) + len(world.node_state.writes_in_flight)
    return f"{max(writes, unseen)} changes are under way." if writes or unseen else ""


def _of_workload(workload: Workload, this_pass: Pass) -> Iterator[str]:
    """The remaining work for one workload, by its phase."""
    world = this_pass.world
    if _is_left_alone(workload, world):
        return
    now, subject = world.phase_of[workload.key], workload.readable or "pods that are gone"
    running = [pod for pod in workload.unfinished if workload.node_of(pod)]
    is_over = _is_proven_over if running else _is_over
    live = [job for job in world.jobs_of(workload) if job.key in (None, workload.key) and not is_over(job, this_pass)]
    if now is Phase.ORPHANED or (running and live):
        yield from _of_running(workload, running, live, world)
    elif live:
        yield f"end{_numbers(live, brackets=False)} of {subject}"
    elif now is Phase.DONE and _is_unrecorded(workload, this_pass):
        lost = world.accounting_outage
        yield f"record in Slurm's accounting how {subject} ended" + (f" ({lost.why})" if lost is not None else "")
    elif workload.in_flight is not None or any(
        in_flight.until is None for in_flight in workload.pods_in_flight.values()
    ):
        yield f"finish what is under way for {subject}"
    if running or not workload.members or not is_managed(workload.first, world):
        return
    if not all(_shows_uninstalled(pod.uid, workload) for pod in workload.members):
        yield f"show on {subject}, which waits, that it gets no job any more"


def _of_running(workload: Workload, running: list[Pod], live: list[Placeholder], world: World) -> Iterator[str]:
    is_renamed = workload.renamed is not None and workload.renamed == workload.hint
    waits = world.phase_of[workload.key] is not Phase.ORPHANED and (world.config.leaving == WAIT or is_renamed)
    name = ", which has another name since: the pod is not ended for it" if is_renamed else ""
    for pod in running:
        where = f"pod {pod.full_name} on node {workload.node_of(pod)}"
        yield f"wait until {where} ends{_numbers(live)}{name}" if waits else f"end {where}{_numbers(live)}"


def _is_left_alone(workload: Workload, world: World) -> bool:
    """True if its pods are left alone: their namespace is not managed, and Slurm does not know their job (orphaned.py)."""
    if world.phase_of[workload.key] is not Phase.ORPHANED or is_managed(workload.pod, world):
        return False
    return not any(job.ended for job in world.jobs_of(workload))


def _is_unrecorded(workload: Workload, this_pass: Pass) -> bool:
    jobs = this_pass.world.jobs_of(workload)
    return any(
        is_to_be_recorded(job, workload, this_pass) or may_be_unrecorded(job, workload, this_pass) for job in jobs
    )


def _shows_uninstalled(uid: str, workload: Workload) -> bool:
    last, shown = workload.status_about(ITS_PLACE, uid), workload.shown_condition(workload.pods[uid])
    return (last is not None and last.condition == names.LEAVING) or (
        shown is not None and shown.reason == names.LEAVING
    )


def _is_over(job: Placeholder, this_pass: Pass) -> bool:
    """True if nothing is left of the job, and no pod runs: Slurm does not list it, or it is another workload's."""
    return job.shows_end or (job.denied and not job.proven) or job.was_missed(this_pass.tuning.absent_s)


def _is_proven_over(job: Placeholder, this_pass: Pass) -> bool:
    """True if the end of the job is proven, as it has to be before running pods are ended for it."""
    return job.has_proven_end(this_pass.tuning.absent_s)


def _numbers(jobs: Iterable[Placeholder], *, brackets: bool = True) -> str:
    ids = ", ".join(str(job.id) for job in jobs)
    if not ids:
        return ""
    return f" (Slurm job {ids})" if brackets else f" Slurm job {ids}"

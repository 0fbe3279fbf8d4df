"""What to do now: one rule a phase (ARCHITECTURE 3).

`decide` visits the workloads that events marked, those whose time has come, and those that waited for a free lane; with
everything=True it visits all of them, which must come to the same plan (a property test says so).  It reads the world and
writes a Plan; nothing else.  RULES is the state machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from scheduler import actions as act
from scheduler import edits, names
from scheduler.actions import Plan
from scheduler.asking import all_known, ask, is_managed, spec_for, too_large
from scheduler.binding import bind
from scheduler.ending import end_job, end_job_of_the_silent, end_pods, record_former
from scheduler.events import Side
from scheduler.feasible import slurm_name
from scheduler.gangs import gather
from scheduler.looking import cancel, cancel_broken, cancel_twins, look_at, scan_until, still_in_doubt, trusted
from scheduler.model import Job, JobSpec, Pod, Refusal
from scheduler.nodes import keep_nodes
from scheduler.phase import Phase, chosen
from scheduler.retaking import check, show
from scheduler.rounds import kick, read_details, read_running, read_unknown
from scheduler.running import read_hinted, watch
from scheduler.telling import outage, say, say_all, waiting
from scheduler.view import View
from scheduler.workload import RUNNING, UNLOOKED, Placeholder, Workload
from scheduler.world import World

BEGIN_SLACK_S = 1.0  # slurmctld looks at begin times once a second, by a clock of its own


def decide(world: World, now: float, *, everything: bool = False) -> Plan:
    """The plan of this moment; empty, with the time of the next look, when there is nothing to do."""
    view = View(world, now)
    if not world.ready:
        return view.plan()
    away = world.lost.get(Side.KUBERNETES)
    if away is not None and now - away.since > view.tuning.stale_s:
        return view.plan()
    for key in _keys(view, everything):
        workload = world.workloads.get(key)
        if workload is None:
            continue
        view.looked_at.append(key)
        if workload.doubted:
            _say_doubted(workload, view)
        RULES[world.phase_of[key]](workload, view)
    read_unknown(view)
    read_details(view)
    read_running(view)
    kick(view)
    keep_nodes(view, everything=everything)
    if world.nodes_stale and now >= world.nodes_asked_from:
        view.add(act.PollNodes("what is known of Slurm's nodes is not true any more: its node list is asked for again"))
    return view.plan()


def _keys(view: View, everything: bool) -> list[str]:
    """Whom to look at: who waited for a lane first, then what changed, then whose time has come."""
    world = view.world
    keys: dict[str, None] = {}
    for lane, waiting_keys in world.parked.items():
        if waiting_keys:
            keys.update(dict.fromkeys(islice(waiting_keys, max(0, view.free(lane)))))
    keys.update(world.dirty)
    keys.update(dict.fromkeys(world.due(view.now)[0]))
    if everything:
        keys.update(dict.fromkeys(world.workloads))
    return list(keys)


def _gathering(workload: Workload, view: View) -> None:
    """Pods are missing, or gated, which Kubernetes itself says on them (W5, W6)."""
    if workload.group is None or workload.hold is not None:
        return
    job = chosen(workload, view.world.mine(workload))
    if job is not None:
        _keep_for_a_while(workload, job, view)
    elif not still_in_doubt(workload, view):
        gather(workload, view)


def _keep_for_a_while(workload: Workload, job: Placeholder, view: View) -> None:
    """Who left a gang that has a job already may be replaced in a moment: the job keeps its age so long."""
    left_at = max((gone.at for gone in workload.gone.values()), default=float("-inf"))
    until = left_at + view.tuning.gang_bind_deadline_s
    if view.now < until:
        view.wake_at(workload.key, until)
    else:
        cancel(job, workload, view, f"{len(workload.members)} of {workload.size} pods of {workload.readable} are left")


def _unclaimed(workload: Workload, view: View) -> None:
    """No placeholder lives: find the one that may exist, or ask Slurm for one (section 5, T, F, I)."""
    if workload.hold is not None:
        return
    if any(isinstance(held.action, act.BindPod) for held in workload.pod_holds.values()):
        return  # for a job that has ended; it may still land
    pods = workload.members
    if (lost := view.world.lost.get(Side.SLURM)) is not None:
        for pod in pods:
            outage(view, workload, pod, lost, "The pod waits to be submitted.")
        return
    if still_in_doubt(workload, view):
        return
    if not is_managed(pods[0], view.world):
        message = (
            f"Namespace {pods[0].namespace} is not managed by slurm-bridge: the admin has to label it "
            f"{names.MANAGED_LABEL}=true."
        )
        say_all(workload, pods, view, names.NOT_MANAGED, message)
        return
    if not all_known(workload, pods, view):
        return
    if workload.refused is None and view.free("submits") <= 0:
        view.park(workload.key, "submits")  # a translation now would be thrown away
        return
    spec = spec_for(workload, view)
    refusal = spec if isinstance(spec, Refusal) else too_large(spec, view.world)
    if refusal is not None:
        say_all(workload, pods, view, refusal.reason, refusal.message)
        return
    assert isinstance(spec, JobSpec)
    if workload.refused is not None:
        say_all(workload, pods, view, workload.refused.reason, workload.refused.message)
    until = max(workload.retry_at if workload.refused is not None else workload.wait_until, scan_until(workload, view))
    if view.now < until:
        view.wake_at(workload.key, until)
        return
    ask(workload, spec, view)


def _queued(workload: Workload, view: View) -> None:
    """A placeholder waits in Slurm: keep it as the user wants it, and say what Slurm says (Q, F2, K)."""
    world = view.world
    job = chosen(workload, world.mine(workload))
    assert job is not None, "QUEUED has a placeholder"
    if cancel_twins(workload, job, view) or cancel_broken(workload, job, view):
        return
    if (lost := world.lost.get(Side.SLURM)) is not None:
        for pod in workload.members:
            outage(view, workload, pod, lost, f"The pod waits in its queue as job {job.id}.")
        return
    note = _keep_current(workload, job, view)
    _watch_begin(workload, job, view)
    if workload.refused is not None:
        note = workload.refused.message
    reason = world.config.pending_reason or names.PENDING
    for pod in workload.members:
        if job.job is not None:
            _say_why(workload, pod, job, job.job, note, view)
        elif note:
            say(view, workload, pod, reason, f"Waiting as job {job.id}. {note}")


def _say_why(workload: Workload, pod: Pod, job: Placeholder, read: Job, note: str, view: View) -> None:
    """Most jobs that Slurm has not looked at yet start within its next passes: that is worth no write (Q2)."""
    said_at = (job.asked_at or view.world.started) + view.tuning.unlooked_s
    if read.reason in UNLOOKED and not note and view.now < said_at:
        view.wake_at(workload.key, said_at)
    else:
        waiting(view, workload, pod, read, note)


def _keep_current(workload: Workload, job: Placeholder, view: View) -> str:
    """The pod's annotations were edited, or nodes changed: change the job in place, so that it keeps its age (K, F2).

    Returns what has to be said of it: a sentence, or "".
    """
    if workload.hold is not None or (job.spec is None and job.job is None):
        return ""  # under way; or adopted, and not read in detail yet
    if not trusted(job, view):
        look_at(job, workload, view, f"is job {job.id} still the same?")
        return ""
    spec = spec_for(workload, view)
    if isinstance(spec, Refusal):
        return spec.message  # nodes come back, annotations are mended: the job keeps its age meanwhile
    asked = job.spec
    if asked is None:
        assert job.job is not None, "it was read, else nothing is known of it"
        asked = edits.adopted(spec, job.job)
    if _tasks(asked) != _tasks(spec):
        cancel(
            job, workload, view, f"{workload.readable} has {_tasks(spec)} pods by shape now, and had {_tasks(asked)}"
        )
        return ""
    changes = edits.changes(asked, spec)
    fixed = [edits.unchangeable(*each) for each in zip((spec, *spec.parts), changes, strict=True)]
    said = ", ".join(edits.keys(frozenset().union(*fixed)))
    possible = [changed - unchanging for changed, unchanging in zip(changes, fixed, strict=True)]
    component = next((index for index, changed in enumerate(possible) if changed), None)
    if component is not None:
        wanted = edits.taken(asked, spec, component, possible[component])
        _change(workload, job, wanted, component, possible[component], view)
    return f"Slurm cannot change {said} of a waiting job; recreate the pod to ask anew." if said else ""


def _change(
    workload: Workload, job: Placeholder, spec: JobSpec, component: int, changes: frozenset[str], view: View
) -> None:
    """One component a call, and one call a second: the others follow."""
    next_at = max(workload.wait_until, workload.updated_at + view.tuning.feasibility_every_s)
    parts = job.job.parts if job.job is not None else ()
    if view.now < next_at:
        view.wake_at(workload.key, next_at)
    elif component and len(parts) != len(spec.parts):
        look_at(job, workload, view, f"which ids have the components of job {job.id}?")
    else:
        component_id = (job.id, *(part.id for part in parts))[component]
        why = f"job {component_id} gets new {', '.join(sorted(changes))}"
        asked = act.UpdateJob(workload.key, job.id, job.user, spec, changes, why, component, component_id)
        view.add(asked, workload.key)


def _watch_begin(workload: Workload, job: Placeholder, view: View) -> None:
    """Nothing happens when a begin time comes: without a kick slurmctld sees it at its leisure, up to 30 s later."""
    begins = _begins(job)
    if begins is None or view.world.kicked_at >= begins + BEGIN_SLACK_S:
        return
    due = begins + BEGIN_SLACK_S
    view.begin_is_due = view.begin_is_due or view.now >= due
    view.wake_at(workload.key, max(due, view.world.kicked_at + view.tuning.kick_every_s))


def _begins(job: Placeholder) -> float | None:
    if job.spec is not None:
        return job.spec.begin
    return job.job.starts if job.job is not None and job.job.reason == "BeginTime" else None


def _tasks(spec: JobSpec) -> list[int]:
    return [each.tasks for each in (spec, *spec.parts)]


def _granted(workload: Workload, view: View) -> None:
    """Bind; those of a gang that run already are seen to meanwhile, however long the others wait for their places."""
    job = chosen(workload, view.world.mine(workload))
    assert job is not None, "GRANTED has a placeholder"
    if end_job_of_the_silent(workload, job, view):
        return
    planned = len(view.actions)
    bind(workload, job, view)
    if len(view.actions) == planned and workload.hold is None and any(map(workload.node_of, workload.unfinished)):
        watch(workload, job, view)


def _bound(workload: Workload, view: View) -> None:
    """Pods run: leave them in peace; where the job's life is in doubt, look at the job itself (V7)."""
    world = view.world
    _say_too_late(workload, view)
    own = [job for job in world.mine(workload) if job.key == workload.key]
    claimed = world.placeholders.get(workload.hint) if workload.hint is not None else None
    if own and (claimed is None or claimed.key != workload.key):
        claimed = min(own, key=lambda job: (not job.alive, job.id))
    if claimed is None:
        return
    if claimed.key not in (None, workload.key):
        _say_no_place(workload, claimed, view)
        return
    if claimed.proven_end(
        view.tuning.absent_s
    ):  # what the pod names instead may be anybody's: an annotation is no proof
        claimed = next((job for job in world.mine(workload) if job.key is None), claimed)
        look_at(claimed, workload, view, f"is job {claimed.id} the placeholder of {workload.readable}?")
        return
    if claimed.ended or claimed.absent or claimed.denied:
        look_at(claimed, workload, view, f"does job {claimed.id} live?")
        return
    if claimed.key != workload.key:
        if any(not workload.node_of(pod) for pod in workload.members):  # one of a gang is to take a place in it
            look_at(claimed, workload, view, f"is job {claimed.id} the placeholder of {workload.readable}?")
        elif claimed.states != RUNNING:
            look_at(claimed, workload, view, f"what became of job {claimed.id}?")
        else:  # a hint, and RUNNING, is enough (ARCHITECTURE 4)
            read_hinted(workload, claimed, view)
        return
    _hold_together(workload, claimed, view)


def _hold_together(workload: Workload, job: Placeholder, view: View) -> None:
    """Its own job, which lives: does it hold what the pods stand on?"""
    if job.holds_nodes and job.grant is None:  # a twin of a previous life, which started when the other ended
        look_at(job, workload, view, f"which nodes did Slurm grant job {job.id}?")
    elif job.grant is not None and not _stands_on_grant(workload, job, view):
        cancel(job, workload, view, f"the pod stands elsewhere than on what job {job.id} was granted")
    elif (
        job.grant is not None
        and job.spec is not None
        and job.spec.required_nodes
        and (why := check(workload, job, view))
    ):
        cancel(job, workload, view, why)
    elif "PENDING" in job.states and job.id == workload.hint:
        cancel(job, workload, view, f"Slurm requeued job {job.id} while its pods run")
    elif not cancel_broken(workload, job, view) and not end_job_of_the_silent(workload, job, view):
        if job.holds_nodes:
            show(workload, job, view)
        cancel_twins(workload, job, view)
        watch(workload, job, view)
        record_former(workload, job, view)


def _say_no_place(workload: Workload, other: Placeholder, view: View) -> None:
    """slurmctld lost its job and gave the id to another: who runs is left in peace, who comes anew has no place to take."""
    waiting = [pod for pod in workload.members if not workload.node_of(pod)]
    message = (
        f"The others of {workload.readable} run, but Slurm lost their job (its id {other.id} is another's now), so that "
        "there is no place for this pod. It waits until they end; delete them to start all of them anew."
    )
    say_all(workload, waiting, view, names.GATHERING, message)


def _say_doubted(workload: Workload, view: View) -> None:
    """What was not believed of its job is said once."""
    for uid, message in workload.doubted.items():
        if (pod := workload.pods.get(uid)) is not None:  # else it is in another workload by now
            _say_once(workload, pod, names.DISBELIEVED, message, view)


def _say_too_late(workload: Workload, view: View) -> None:
    """Resized in place, or annotations edited, after the bind: the job stays as it is, and that is said once (K, T11)."""
    for uid, what in workload.too_late.items():
        message = (
            f"Changed after the pod was bound: {what}. Its Slurm job stays as it is; recreate the pod to ask anew."
        )
        _say_once(workload, workload.pods[uid], names.CHANGE_IGNORED, message, view)


def _say_once(workload: Workload, pod: Pod, event: str, message: str, view: View) -> None:
    """As an event alone."""
    report = act.Report(workload.key, pod.uid, pod.namespace, pod.name, "", message, event=event, warning=True)
    view.add(report, workload.key)


def _stands_on_grant(workload: Workload, job: Placeholder, view: View) -> bool:
    """Which Kubernetes node a granted one is may not be known (any more): that proves nothing (V7).

    Asked of where each pod stands: a second node that an admin called by the same name takes no place from it.
    """
    assert job.grant is not None
    world = view.world
    granted = {node.name for node in job.grant.everywhere}
    stands = {node for pod in workload.unfinished if (node := workload.node_of(pod))}
    nodes = world.nodes or {}
    return not granted <= world.by_slurm_name.keys() or all(
        name in nodes and slurm_name(nodes[name]) in granted for name in stands
    )


Rule = Callable[[Workload, View], None]


RULES: Mapping[Phase, Rule] = {
    Phase.GATHERING: _gathering,
    Phase.UNCLAIMED: _unclaimed,
    Phase.QUEUED: _queued,
    Phase.GRANTED: _granted,
    Phase.BOUND: _bound,
    Phase.REVOKED: end_pods,
    Phase.DONE: end_job,
}

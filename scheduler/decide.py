"""What to do now: one rule a phase (ARCHITECTURE 3).

`decide` visits the workloads that events marked, those whose time has come, and those that waited for a free lane; with
everything=True it visits all of them, which must come to the same plan (a property test says so), except for owners that
are read again in passing.  It reads the world and writes a Plan; nothing else.  RULES is the state machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from scheduler import actions as act
from scheduler import names
from scheduler.actions import Kind, Plan
from scheduler.apply.membership import pods_of_group
from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job, JobSpec
from scheduler.place.feasible import slurm_name
from scheduler.rules.binding import bind
from scheduler.rules.bypass import beside_its_job, without_a_job
from scheduler.rules.gathering import gather
from scheduler.rules.guard import due, guarded, look
from scheduler.rules.identity import (
    cancel,
    cancel_broken,
    cancel_twins,
    cancel_twins_of_others,
    look_at,
    may_have_unseen_job,
    scan_until,
    trusted,
)
from scheduler.rules.missing_rights import say_lacking
from scheduler.rules.owners import read_again, read_in_passing, read_lately
from scheduler.rules.periodic import nudge, read_details, read_running, read_unknown, read_unsettled
from scheduler.rules.reacquire import check, show
from scheduler.rules.reconcile_nodes import reconcile_nodes
from scheduler.rules.restore_keys import put_back
from scheduler.rules.running import read_hinted, watch
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import outage, say, say_all, waiting
from scheduler.rules.submission import all_known, ask, is_managed, not_managed, over_limit, spec_for, too_large
from scheduler.rules.termination import end_job, end_job_of_the_silent, end_pods, record_former
from scheduler.rules.uninstall import end_running, gives_up, is_ending_pods, say_leaving, withdraw
from scheduler.state.confirmation import event_of
from scheduler.state.job_ownership import living_stray
from scheduler.state.phase import Phase, chosen
from scheduler.state.turns import Turns
from scheduler.state.workload import RUNNING, UNLOOKED, Placeholder, Workload
from scheduler.state.world import World
from scheduler.translate import job_update

LANE_AGAIN_S = 0.02
STRAY_AGAIN_S = 0.5
UNREAD_S = 9.0  # so long after the first poll a pod of an earlier life waits for jobs whose reads failed
SETTLING = 2  # of the effort of a pass: one pod of a group whose members are found anew
LOOK = 1  # of the effort of a pass, beyond what a rule counts itself
BEGIN_SLACK_S = 1.0  # slurmctld looks at begin times once a second, by a clock of its own


def decide(world: World, now: float, *, everything: bool = False) -> Plan:
    """The plan of this moment; empty, with the time of the next look, when there is nothing to do."""
    this_pass = Pass(world, now)
    if not world.ready:
        return this_pass.plan()
    away = world.lost.get(Side.KUBERNETES)
    if away is not None and now - away.since > this_pass.tuning.stale_s:
        return this_pass.plan()
    tried = list(due(this_pass)) if world.quarantine else []
    if world.unsettled:
        _settle_some(this_pass)
    if keys := _keys(this_pass, everything, [name for kind, name in tried if kind is Kind.WORKLOAD]):
        _look_in_turn(keys, this_pass)
    for what, rule in IN_TURN.items():
        guarded(this_pass, Kind.SHARED, what, None, rule, this_pass)
    nodes = [name for kind, name in tried if kind is Kind.NODE]
    guarded(this_pass, Kind.SHARED, "nodes in step", None, reconcile_nodes, this_pass, nodes, everything=everything)
    if world.nodes_stale and now >= world.nodes_asked_from:
        this_pass.add(
            act.PollNodes("what is known of Slurm's nodes is not true any more: its node list is asked for again")
        )
    return this_pass.plan()


def _keys(this_pass: Pass, everything: bool, quarantined: Iterable[str]) -> list[str]:
    """Keys of the workloads to look at: deferred by the last pass, next in line for a lane, changed, or due."""
    world = this_pass.world
    keys: dict[str, None] = dict.fromkeys(world.deferred)
    for limit_class, waiting_keys in world.parked.items() if world.parked_in else ():
        if waiting_keys:
            keys.update(dict.fromkeys(waiting_keys.first(this_pass.free(limit_class))))
    keys.update(world.dirty)
    if world.neighbours.has_news or world.anti_affinity_namespaces:
        this_pass.heard = True
        keys.update(dict.fromkeys(world.concerned_by_anti_affinity()))
    keys.update(dict.fromkeys(world.due(this_pass.now)[0]))
    keys.update(dict.fromkeys(quarantined))
    if everything:
        keys.update(dict.fromkeys(world.workloads))
    for key in world.unsettled:
        keys.pop(key, None)
    return list(keys)


def _settle_some(this_pass: Pass) -> None:
    """Large groups whose members are to be found anew: at most half of the effort of a pass is counted for them."""
    world, most = this_pass.world, this_pass.tuning.pass_effort // 2
    if this_pass.now < world.settles_at:
        this_pass.wake_shared(world.settles_at)
        return
    for key in world.unsettled:
        if this_pass.effort >= most:
            break
        this_pass.settled.append(key)
        if (workload := world.workloads.get(key)) is not None:
            this_pass.effort += SETTLING * pods_of_group(workload)
    this_pass.effort = min(this_pass.effort, most)
    this_pass.wake_shared(this_pass.now)


def _look_in_turn(keys: Iterable[str], this_pass: Pass) -> None:
    world = this_pass.world
    turns = Turns(_with_namespaces(keys, world), world.turns)
    spent = this_pass.spent
    while turns and spent < this_pass.tuning.pass_effort:
        this_pass.effort += LOOK
        look(world.workloads[turns.peek()], this_pass, _look)
        before, spent = spent, this_pass.spent
        turns.took(spent - before)
    _leave(turns, this_pass)


def _leave(turns: Turns, this_pass: Pass) -> None:
    """To the next pass: what this one has no time for.  Who waits for a lane may have to wait still, and hurries nobody."""
    world, left = this_pass.world, turns.left()
    if left:
        parked = set(world.parked_in).difference(world.dirty, world.due(this_pass.now)[0])
        this_pass.deferred += [key for key in left if key not in parked]
    this_pass.turns = turns.taken if left or this_pass.deferred else {}
    if left and not this_pass.deferred:
        this_pass.wake_shared(this_pass.now + LANE_AGAIN_S)


def _with_namespaces(keys: Iterable[str], world: World) -> Iterator[tuple[str, str]]:
    for key in keys:
        if (workload := world.workloads.get(key)) is not None:
            yield workload.namespace, key


def _look(workload: Workload, this_pass: Pass) -> bool:
    """At one workload, by the rule of its phase; where its first look is a long one, a part of that now, and False."""
    world = this_pass.world
    if not this_pass.prepared(workload):
        this_pass.deferred.append(workload.key)
        return False
    this_pass.looked_at.append(workload.key)
    if world.undecoded.among(workload.pods):
        return True  # looked at again when that pod is decoded, or is gone
    if workload.anomalies:
        _report_anomaly(workload, this_pass)
    if workload.proven:
        _say_proven(workload, this_pass)
    if workload.release_messages:
        _report_release(workload, this_pass)
    if world.phase_of[workload.key] in (Phase.QUEUED, Phase.GRANTED, Phase.BOUND):
        _read_what_waiting_pods_show(workload, this_pass)
    RULES[world.phase_of[workload.key]](workload, this_pass)
    return True


def _read_what_waiting_pods_show(workload: Workload, this_pass: Pass) -> None:
    """A pod that an earlier life let wait for a job of its own shows that job; unread, it holds its nodes for nobody.

    No scan reads a job that a pod shows.  The job that running pods name is not read for that: a hint is enough for it.
    """
    for job in this_pass.world.mine(workload):
        if job.key is None and job.alive and job.id != workload.hint:
            if not all(map(workload.node_of, workload.members)):
                look_at(job, workload, this_pass, f"is job {job.id} the placeholder of {workload.readable}?")
            return


def _gathering(workload: Workload, this_pass: Pass) -> None:
    """Pods are missing, or gated, which Kubernetes itself says on them (W5, W6)."""
    if workload.group is None or workload.hold is not None:
        return
    job = chosen(workload, this_pass.world.mine(workload))
    if job is not None and this_pass.world.config.leaving:
        withdraw(workload, job, this_pass)
    elif job is not None:
        _keep_for_a_while(workload, job, this_pass)
    elif not may_have_unseen_job(workload, this_pass) and not say_leaving(workload, this_pass):
        gather(workload, this_pass)


def _keep_for_a_while(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """Keep the job of an incomplete gang, and so its age in the queue, for as long as the lost member may be replaced."""
    until = max(workload.left_at, this_pass.world.started) + this_pass.tuning.gang_bind_deadline_s
    if this_pass.now < until:
        this_pass.wake_at(workload.key, until)
    else:
        cancel(
            job, workload, this_pass, f"{len(workload.members)} of {workload.size} pods of {workload.readable} are left"
        )


def _unsubmitted(workload: Workload, this_pass: Pass) -> None:
    """No placeholder lives: find the one that may exist, or ask Slurm for one (ARCHITECTURE 5, rules T, F and I)."""
    if workload.hold is not None or _may_be_bound_yet(workload, this_pass):
        return
    pods = workload.members
    if (lost := this_pass.world.lost.get(Side.SLURM)) is not None:
        for pod in pods:
            outage(this_pass, workload, pod, lost, "The pod waits to be submitted.")
        return
    if may_have_unseen_job(workload, this_pass):
        return
    if not is_managed(pods[0], this_pass.world):
        say_all(workload, pods, this_pass, names.NOT_MANAGED, not_managed(pods[0]))
        return
    if say_leaving(workload, this_pass) or say_lacking(workload, this_pass):
        return
    if _waits(workload, pods, this_pass):
        return
    if workload.refused is None and this_pass.free("submits") <= 0:
        this_pass.park(workload.key, "submits")  # a translation now would be thrown away
        return
    spec = spec_for(workload, this_pass)
    refusal = spec if isinstance(spec, Refusal) else too_large(workload, spec, this_pass.world)
    if refusal is not None:
        say_all(workload, pods, this_pass, refusal.reason, refusal.message)
        read_again(workload, pods, this_pass)
        return
    assert isinstance(spec, JobSpec)
    if workload.refused is not None:
        say_all(workload, pods, this_pass, workload.refused.reason, workload.refused.message)
        read_again(workload, pods, this_pass)
    until = max(
        workload.retry_at if workload.refused is not None else workload.wait_until, scan_until(workload, this_pass)
    )
    if this_pass.now < until:
        this_pass.wake_at(workload.key, until)
        return
    ask(workload, spec, this_pass)


def _waits(workload: Workload, pods: list[Pod], this_pass: Pass) -> bool:
    """True if nothing is asked for now: something else ends first, or has to be read."""
    if _stray_ends_first(workload, this_pass) or over_limit(workload, this_pass):
        return True
    return not all_known(workload, pods, this_pass) or not read_lately(workload, pods, this_pass)


def _stray_ends_first(workload: Workload, this_pass: Pass) -> bool:
    """A job that was made for its pods when they had another user still lives: two would run for them (V1).

    Also True while such a job may be among those of its name, or those that other pods show, that are read because the policy
    or the labels changed; or, soon after a start, among jobs that could not be read yet: singleton protects jobs of one user
    from one another only.
    """
    world = this_pass.world
    since = world.first_polled if world.first_polled is not None else this_pass.now
    unread = workload.foreign_jobs & world.seen_first.keys()
    if world.inherited(workload):
        unread |= world.hidden | (world.unreadable.keys() if this_pass.now < since + UNREAD_S else set())
    if any(job_id not in world.put_off for job_id in unread):
        this_pass.wake_at(workload.key, this_pass.now + STRAY_AGAIN_S)
        return True
    stray = living_stray(world, workload) if workload.former else None
    if stray is None:
        return False
    message = (
        f"Slurm job {stray.id} of {stray.user} ends first: it was made for the pod when the policy gave that user."
    )
    say_all(workload, workload.members, this_pass, names.PENDING, message)
    this_pass.wake_at(workload.key, this_pass.now + STRAY_AGAIN_S)
    return True


def _may_be_bound_yet(workload: Workload, this_pass: Pass) -> bool:
    """A bind for a job that has ended is under way, or its answer was lost and nobody has looked at the pod yet."""
    binding = any(isinstance(held.action, act.BindPod) for held in workload.pod_holds.values())
    return binding or any(uid in this_pass.world.may_land for uid in workload.pods)


def _queued(workload: Workload, this_pass: Pass) -> None:
    """A placeholder waits in Slurm: keep it as the user wants it, and say what Slurm says (Q2, F2, K8)."""
    world = this_pass.world
    job = chosen(workload, world.mine(workload))
    assert job is not None, "QUEUED has a placeholder"
    if world.config.leaving:
        withdraw(workload, job, this_pass)
        return
    if cancel_twins(workload, job, this_pass) or cancel_broken(workload, job, this_pass):
        return
    if (lost := world.lost.get(Side.SLURM)) is not None:
        for pod in workload.members:
            outage(this_pass, workload, pod, lost, f"The pod waits in its queue as job {job.id}.")
        return
    note = _keep_current(workload, job, this_pass)
    _watch_begin(workload, job, this_pass)
    if workload.refused is not None:
        note = workload.refused.message
    reason = world.config.pending_reason or names.PENDING
    for pod in workload.members:
        if job.job is not None:
            _say_why(workload, pod, job, job.job, note, this_pass)
        elif note:
            say(this_pass, workload, pod, reason, f"Waiting as job {job.id}. {note}")


def _say_why(workload: Workload, pod: Pod, job: Placeholder, read: Job, note: str, this_pass: Pass) -> None:
    """Most jobs that Slurm has not looked at yet start within its next passes: that is worth no write (Q2)."""
    said_at = (job.asked_at or this_pass.world.started) + this_pass.tuning.unlooked_s
    if read.reason in UNLOOKED and not note and this_pass.now < said_at:
        this_pass.wake_at(workload.key, said_at)
    else:
        waiting(this_pass, workload, pod, read, note)


def _keep_current(workload: Workload, job: Placeholder, this_pass: Pass) -> str:
    """The pod's annotations were edited, or nodes changed: change the job in place, so that it keeps its age (K8, F2).

    Returns what has to be said of it: a sentence, or "".
    """
    if workload.hold is not None or (job.spec is None and job.job is None):
        return ""  # under way; or adopted, and not read in detail yet
    if not trusted(job, this_pass):
        look_at(job, workload, this_pass, f"is job {job.id} still the same?")
        return ""
    if not read_in_passing(workload, workload.members, this_pass):
        return ""
    spec = spec_for(workload, this_pass)
    if isinstance(spec, Refusal):
        return spec.message  # nodes come back, annotations are mended: the job keeps its age meanwhile
    asked = job.spec
    if asked is None:
        assert job.job is not None, "it was read, else nothing is known of it"
        asked = job_update.adopted(spec, job.job)
    if _tasks(asked) != _tasks(spec):
        cancel(
            job,
            workload,
            this_pass,
            f"{workload.readable} has {_tasks(spec)} pods by shape now, and had {_tasks(asked)}",
        )
        return ""
    changes = job_update.changes(asked, spec)
    fixed = [job_update.unchangeable(*each) for each in zip((spec, *spec.parts), changes, strict=True)]
    fixed_all = frozenset().union(*fixed)
    said = ", ".join(job_update.keys(fixed_all - job_update.GOVERNED if "user" in fixed_all else fixed_all))
    possible = [changed - unchanging for changed, unchanging in zip(changes, fixed, strict=True)]
    component = next((index for index, changed in enumerate(possible) if changed), None)
    if component is not None:
        wanted = job_update.taken(asked, spec, component, possible[component])
        _change(workload, job, wanted, component, possible[component], this_pass)
    notes = [f"Slurm cannot change {said} of a waiting job; recreate the pod to ask anew."] if said else []
    if "user" in fixed_all:
        notes.append(
            f"The policy gives the pod Slurm user {spec.user} now, and job {job.id} waits on as {job.user}'s; recreate the "
            f"pod to ask as {spec.user}."
        )
    return " ".join(notes)


def _change(
    workload: Workload, job: Placeholder, spec: JobSpec, component: int, changes: frozenset[str], this_pass: Pass
) -> None:
    """Update one component of the job; at most one call a second, so that the other components follow."""
    next_at = max(workload.wait_until, workload.updated_at + this_pass.tuning.feasibility_every_s)
    parts = job.job.parts if job.job is not None else ()
    if this_pass.now < next_at:
        this_pass.wake_at(workload.key, next_at)
    elif component and len(parts) != len(spec.parts):
        look_at(job, workload, this_pass, f"which ids have the components of job {job.id}?")
    else:
        component_id = (job.id, *(part.id for part in parts))[component]
        why = f"job {component_id} gets new {', '.join(sorted(changes))}"
        asked = act.UpdateJob(workload.key, job.id, job.user, spec, changes, why, component, component_id)
        this_pass.add(asked, workload.key)


def _watch_begin(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """Nothing happens when a begin time comes: without a kick slurmctld sees it at its leisure, up to 30 s later."""
    told = _begins(job)
    begins = this_pass.from_slurm(told) if told is not None else None
    if begins is None or this_pass.world.nudged_at >= begins + BEGIN_SLACK_S:
        return
    due = begins + BEGIN_SLACK_S
    this_pass.begin_is_due = this_pass.begin_is_due or this_pass.now >= due
    this_pass.wake_at(workload.key, max(due, this_pass.world.nudged_at + this_pass.tuning.kick_every_s))


def _begins(job: Placeholder) -> float | None:
    if job.spec is not None:
        return job.spec.begin
    return job.job.starts if job.job is not None and job.job.reason == "BeginTime" else None


def _tasks(spec: JobSpec) -> list[int]:
    return [each.tasks for each in (spec, *spec.parts)]


def _granted(workload: Workload, this_pass: Pass) -> None:
    """Bind; those of a gang that run already are seen to meanwhile, however long the others wait for their places."""
    job = chosen(workload, this_pass.world.mine(workload))
    assert job is not None, "GRANTED has a placeholder"
    if end_job_of_the_silent(workload, job, this_pass):
        return
    if gives_up(workload, this_pass):
        withdraw(workload, job, this_pass)
        return
    if is_ending_pods(this_pass):
        end_running(workload, job, this_pass)
        return
    if job.grant is not None and not _stands_on_grant(workload, job, this_pass):
        _cancel_elsewhere(workload, job, this_pass)
        return
    if cancel_twins_of_others(workload, job, this_pass):
        return
    planned = len(this_pass.actions)
    bind(workload, job, this_pass)
    if workload.hold is not None or not any(map(workload.node_of, workload.unfinished)):
        return
    if len(this_pass.actions) > planned:  # one thing at a time; what was just planned need not end before the next
        this_pass.wake_at(workload.key, this_pass.now)
        return
    if workload.edited and is_managed(workload.pod, this_pass.world):
        put_back(workload, job, this_pass)
    watch(workload, job, this_pass)


def _bound(workload: Workload, this_pass: Pass) -> None:
    """Pods run: leave them in peace; where the job's life is in doubt, look at the job itself (V7)."""
    world = this_pass.world
    _report_late_changes(workload, this_pass)
    if workload.renamed is not None and workload.renamed == workload.hint:
        _without_its_name(workload, this_pass)
        return
    own = [job for job in world.mine(workload) if job.key == workload.key]
    claimed = world.placeholders.get(workload.hint) if workload.hint is not None else None
    if own and (claimed is None or claimed.key != workload.key):
        claimed = min(own, key=lambda job: (not job.alive, job.id))
    if claimed is None or (claimed.key not in (None, workload.key) and not world.may_have_bound(workload)):
        _bound_by_others(workload, this_pass)
        return
    if claimed.key not in (None, workload.key):
        _say_no_place(workload, f"Slurm lost their job (its id {claimed.id} is another's now)", this_pass)
        return
    if claimed.proven_end(
        this_pass.tuning.absent_s
    ):  # what the pod names instead may be anybody's: an annotation is no proof
        in_doubt = (
            job for job in world.mine(workload) if job.key is None and not job.proven_end(this_pass.tuning.absent_s)
        )
        claimed = next(in_doubt, None)
        if claimed is None:  # somebody else bound the pods, after that job or beside it
            _bound_by_others(workload, this_pass)
            return
        look_at(claimed, workload, this_pass, f"is job {claimed.id} the placeholder of {workload.readable}?")
        return
    if claimed.ended or claimed.absent or claimed.denied:
        look_at(claimed, workload, this_pass, f"does job {claimed.id} live?")
        return
    if claimed.key != workload.key:
        if any(not workload.node_of(pod) for pod in workload.members):  # one of a gang is to take a place in it
            look_at(claimed, workload, this_pass, f"is job {claimed.id} the placeholder of {workload.readable}?")
        elif claimed.states != RUNNING:
            look_at(claimed, workload, this_pass, f"what became of job {claimed.id}?")
        elif any(each.right for each in workload.edited.values()) or is_ending_pods(this_pass):
            look_at(claimed, workload, this_pass, f"is job {claimed.id} the placeholder of {workload.readable}?")
        else:  # a hint, and RUNNING, is enough (ARCHITECTURE 4)
            read_hinted(workload, claimed, this_pass)
        return
    _hold_together(workload, claimed, this_pass)


def _bound_by_others(workload: Workload, this_pass: Pass) -> None:
    """No job of the bound pods is known.  If somebody else bound them all, the waiting pods of their gang say so."""
    if workload.stands_for_none:
        _say_no_place(workload, "slurm-bridge did not bind them", this_pass)
    without_a_job(workload, this_pass)


def _without_its_name(workload: Workload, this_pass: Pass) -> None:
    """The user may have renamed the job of these pods.  Then another job with the name of the workload is its twin."""
    job = chosen(workload, this_pass.world.mine(workload))
    followed = this_pass.world.placeholders.get(workload.hint or 0)
    if followed is not None and workload.key in followed.followed_by and (followed.ended or followed.absent):
        look_at(followed, workload, this_pass, f"does job {followed.id} live, which may be theirs under another name?")
    why = f"their job {workload.hint} may have another name since, which its user gave it"
    if job is not None and job.holds_nodes and job.grant is None:
        look_at(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?")
    elif job is not None and (job.grant is None or not _stands_on_grant(workload, job, this_pass)):
        cancel(job, workload, this_pass, f"job {job.id} is a twin: {why}")
    _say_no_place(workload, why, this_pass)
    without_a_job(workload, this_pass)


def _hold_together(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """Its own job, which lives: does it hold what the pods stand on?"""
    world = this_pass.world
    if is_ending_pods(this_pass):
        end_running(workload, job, this_pass)
        return
    if cancel_broken(workload, job, this_pass):  # first: what is left of such a job is read as no grant
        return
    if job.holds_nodes and job.grant is None:  # a twin of a previous life, which started when the other ended
        look_at(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?")
    elif job.grant is not None and not _stands_on_grant(workload, job, this_pass):
        _cancel_elsewhere(workload, job, this_pass)
    elif (
        job.grant is not None
        and job.spec is not None
        and job.spec.required_nodes
        and (why := check(workload, job, this_pass))
    ):
        cancel(job, workload, this_pass, why)
    elif "PENDING" in job.states and (job.id == workload.hint or workload.stands_for_none):
        by_others = f"somebody else bound the pods that wait for job {job.id}"
        requeued = f"Slurm requeued job {job.id} while its pods run"
        cancel(job, workload, this_pass, by_others if workload.stands_for_none else requeued)
    elif not end_job_of_the_silent(workload, job, this_pass):
        if job.holds_nodes:
            show(workload, job, this_pass)
            if workload.edited and is_managed(workload.pod, world):
                put_back(workload, job, this_pass)
            if workload.strays:
                beside_its_job(workload, job, this_pass)
        cancel_twins(workload, job, this_pass)
        watch(workload, job, this_pass)
        record_former(workload, job, this_pass)


def _cancel_elsewhere(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    cancel(job, workload, this_pass, f"the pod stands elsewhere than on what job {job.id} was granted")


def _say_no_place(workload: Workload, why: str, this_pass: Pass) -> None:
    """Its job cannot be known any more: who runs is left in peace, who comes anew has no place to take."""
    waiting = [pod for pod in workload.members if not workload.node_of(pod)]
    message = (
        f"The others of {workload.readable} run, but {why}, so that there is no place for this pod. It waits until they "
        "end; delete them to start all of them anew."
    )
    say_all(workload, waiting, this_pass, names.GATHERING, message)


def _report_anomaly(workload: Workload, this_pass: Pass) -> None:
    """What was not believed of its job is said once."""
    for uid, message in workload.anomalies.items():
        if (pod := workload.pods.get(uid)) is not None:  # else it is in another workload by now
            _say_once(workload, pod, names.DISBELIEVED, message, this_pass)


def _say_proven(workload: Workload, this_pass: Pass) -> None:
    """The answer to a write was lost, and the pod shows that it happened: the event that the answer would have posted.

    If another write on that pod is in flight, its answer announces it.
    """
    for uid, action in workload.proven.items():
        held = workload.pod_holds.get(uid)
        if held is None or held.until is not None:
            event, message, warning = event_of(action)
            said = act.SetPodCondition(
                workload.key, uid, action.namespace, action.name, "", message, event=event, warning=warning
            )
            this_pass.add(said, workload.key)


def _report_release(workload: Workload, this_pass: Pass) -> None:
    """The grant could not be used, and its job has ended: condition and event (S11, F6).

    On a bound pod the event alone: the condition would have it that the pod is not scheduled.
    """
    for uid, message in workload.release_messages.items():
        pod = workload.pods[uid]
        condition = "" if workload.node_of(pod) else names.GIVEN_BACK
        say(this_pass, workload, pod, condition, message, warning=True, event=names.GIVEN_BACK)


def _report_late_changes(workload: Workload, this_pass: Pass) -> None:
    """Resized in place, or annotations edited, after the bind: the job stays as it is, and that is said once (K8, T11)."""
    for uid, what in workload.late_changes.items():
        message = (
            f"Changed after the pod was bound: {what}. Its Slurm job stays as it is; recreate the pod to ask anew."
        )
        _say_once(workload, workload.pods[uid], names.CHANGE_IGNORED, message, this_pass)


def _say_once(workload: Workload, pod: Pod, event: str, message: str, this_pass: Pass) -> None:
    """As an event alone."""
    report = act.SetPodCondition(workload.key, pod.uid, pod.namespace, pod.name, "", message, event=event, warning=True)
    this_pass.add(report, workload.key)


def _stands_on_grant(workload: Workload, job: Placeholder, this_pass: Pass) -> bool:
    """True unless a pod stands on a node that its job does not hold.

    If the Kubernetes node of a granted one is not known, or not any more, that proves nothing (V7).  The node of each
    pod is compared, so that a second node with the same name in Slurm changes nothing.
    """
    assert job.grant is not None
    world = this_pass.world
    granted = {node.name for node in job.grant.everywhere}
    stands = {node for pod in workload.unfinished if (node := workload.node_of(pod))}
    nodes = world.nodes or {}
    return not granted <= world.by_slurm_name.keys() or all(
        name in nodes and slurm_name(nodes[name]) in granted for name in stands
    )


Rule = Callable[[Workload, Pass], None]

IN_TURN: Mapping[str, Callable[[Pass], None]] = {
    "reads of unknown jobs": read_unknown,
    "reads of pods whose binds were not answered": read_unsettled,
    "reads of waiting jobs": read_details,
    "reads of running jobs": read_running,
    "the kick": nudge,
}


RULES: Mapping[Phase, Rule] = {
    Phase.GATHERING: _gathering,
    Phase.UNSUBMITTED: _unsubmitted,
    Phase.QUEUED: _queued,
    Phase.GRANTED: _granted,
    Phase.BOUND: _bound,
    Phase.ORPHANED: end_pods,
    Phase.DONE: end_job,
}

"""What to do now: one rule a phase (ARCHITECTURE 3).

`decide` visits the workloads that events marked, whose time has come, or whose turn it is in a limit class.  With
everything=True it visits all of them, which must give the same plan (a property test), except for owners that are read again
in passing.  It reads the world and returns a Plan; nothing else changes.  RULES is the state machine: each rule returns a
Decision, which the driver enters in the plan (rules/driver.py).
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
from scheduler.model.slurm import JobSpec
from scheduler.place.feasible import slurm_name
from scheduler.rules.binding import bind
from scheduler.rules.bypass import beside_its_job, without_a_job
from scheduler.rules.decision import NOTHING, Decision, do, every, wait_for, wake
from scheduler.rules.driver import apply
from scheduler.rules.gathering import gather
from scheduler.rules.guard import due, guarded, look
from scheduler.rules.identity import (
    cancel,
    cancel_broken,
    cancel_twins,
    cancel_twins_of_others,
    former_may_live,
    look_at,
    may_have_unseen_job,
    scan_until,
    trusted,
)
from scheduler.rules.missing_rights import without_rights
from scheduler.rules.owners import read_again, read_in_passing, read_lately
from scheduler.rules.periodic import nudge, read_details, read_running, read_unknown, read_unsettled
from scheduler.rules.reacquire import check, show
from scheduler.rules.reconcile_nodes import reconcile_nodes
from scheduler.rules.restore_keys import put_back
from scheduler.rules.running import read_hinted, watch
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, exact_clock, outage, status, statuses, waiting, waits
from scheduler.rules.submission import all_known, ask, is_managed, not_managed, over_limit, spec_for, too_large
from scheduler.rules.termination import end_job, end_job_of_the_silent, end_pods, record_former, silent_until
from scheduler.rules.uninstall import end_running, gives_up, is_ending_pods, no_new_job, withdraw
from scheduler.state.confirmation import event_of
from scheduler.state.job_ownership import living_stray
from scheduler.state.phase import Phase, chosen
from scheduler.state.turns import Turns
from scheduler.state.workload import RUNNING, UNLOOKED, Placeholder, Workload
from scheduler.state.world import World
from scheduler.translate import job_update

AGAIN_S = 0.02
SETTLING = 2  # of the effort of a pass: one pod of a group whose members are found again
VISIT = 1  # of the effort of a pass, beyond what a rule counts itself
BEGIN_SLACK_S = 1.0  # slurmctld checks begin times once a second, by its own clock


def decide(world: World, now: float, *, everything: bool = False) -> Plan:
    """The plan of this moment; if there is nothing to do, it has no actions, and the time of the next pass."""
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
        _visit_in_turn(keys, this_pass)
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
    """Keys of the workloads to visit: deferred by the last pass, next in turn for a limit class, changed, or due."""
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
    """Plan to find the members of large groups again: at most half of the effort of a pass is counted for them."""
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


def _visit_in_turn(keys: Iterable[str], this_pass: Pass) -> None:
    world = this_pass.world
    turns = Turns(_with_namespaces(keys, world), world.turns)
    spent = this_pass.spent
    while turns and spent < this_pass.tuning.pass_effort:
        this_pass.effort += VISIT
        look(world.workloads[turns.peek()], this_pass, _visit)
        before, spent = spent, this_pass.spent
        turns.took(spent - before)
    _defer(turns, this_pass)


def _defer(turns: Turns, this_pass: Pass) -> None:
    """Leave the rest to the next pass.  A workload that waits for its turn in a limit class may have to wait still."""
    world, left = this_pass.world, turns.left()
    if left:
        parked = set(world.parked_in).difference(world.dirty, world.due(this_pass.now)[0])
        this_pass.deferred += [key for key in left if key not in parked]
    this_pass.turns = turns.taken if left or this_pass.deferred else {}
    if left and not this_pass.deferred:
        this_pass.wake_shared(this_pass.now + AGAIN_S)


def _with_namespaces(keys: Iterable[str], world: World) -> Iterator[tuple[str, str]]:
    for key in keys:
        if (workload := world.workloads.get(key)) is not None:
            yield workload.namespace, key


def _visit(workload: Workload, this_pass: Pass) -> bool:
    """Visit one workload by the rule of its phase; False if its visit is a long one, and only a part of that is done now."""
    world = this_pass.world
    if not this_pass.prepared(workload):
        this_pass.deferred.append(workload.key)
        return False
    this_pass.looked_at.append(workload.key)
    if world.undecoded.among(workload.pods):
        return True  # visited again when that pod is decoded, or is gone
    apply(_news(workload, this_pass), workload, this_pass)
    apply(RULES[world.phase_of[workload.key]](workload, this_pass), workload, this_pass)
    return True


def _news(workload: Workload, this_pass: Pass) -> Decision:
    """What the pods of a workload in any phase show once; and the read of a job that a waiting pod names."""
    found = NOTHING
    if workload.anomalies:
        found += _report_anomaly(workload)
    if workload.proven:
        found += _report_proven(workload)
    if workload.release_messages:
        found += _report_release(workload)
    if this_pass.world.phase_of[workload.key] in (Phase.QUEUED, Phase.GRANTED, Phase.BOUND):
        found += _read_what_waiting_pods_show(workload, this_pass)
    return found


def _read_what_waiting_pods_show(workload: Workload, this_pass: Pass) -> Decision:
    """Read the job that a waiting pod names since a previous process: unread, that job holds its nodes in vain.

    No scan reads a job that a pod names.  The job that running pods name is not read for that: a hint is enough for it.
    """
    for job in this_pass.world.mine(workload):
        if job.key is None and job.alive and job.id != workload.hint:
            if all(map(workload.node_of, workload.members)):
                return NOTHING
            return look_at(job, workload, this_pass, f"is job {job.id} the placeholder of {workload.readable}?")
    return NOTHING


def _gathering(workload: Workload, this_pass: Pass) -> Decision:
    """Pods are missing, or gated; Kubernetes itself shows the gates (W5, W6)."""
    if workload.group is None or workload.hold is not None:
        return NOTHING
    job = chosen(workload, this_pass.world.mine(workload))
    if job is not None and this_pass.world.config.leaving:
        return withdraw(workload, job, this_pass)
    if job is not None:
        return _keep_for_a_while(workload, job, this_pass)
    if (first := may_have_unseen_job(workload, this_pass) or no_new_job(workload, this_pass)) is not None:
        return first
    return gather(workload, this_pass)


def _keep_for_a_while(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Keep the job of an incomplete gang, and so its age in the queue, for as long as the lost member may be replaced."""
    until = max(workload.left_at, this_pass.world.started) + this_pass.tuning.gang_bind_deadline_s
    if this_pass.now < until:
        return wake(until)
    why = f"{len(workload.members)} of {workload.size} pods of {workload.readable} are left"
    return cancel(job, workload, this_pass, why)


def _unsubmitted(workload: Workload, this_pass: Pass) -> Decision:
    """No placeholder lives: find the one that may exist, or ask Slurm for one (ARCHITECTURE 5, rules T, F and I)."""
    if workload.hold is not None:
        since = clock(workload.hold.placed, this_pass.now)
        return Decision(why=f"Under way since {since}: {workload.hold.action.reason}.")
    if _may_be_bound_yet(workload, this_pass):
        return Decision(why="A bind for a job that has ended may still take effect; that is looked at first.")
    pods = workload.members
    if (lost := this_pass.world.lost.get(Side.SLURM)) is not None:
        return outage(pods, lost, "The pod waits to be submitted.", this_pass)
    if (first := may_have_unseen_job(workload, this_pass)) is not None:
        return first
    if not is_managed(pods[0], this_pass.world):
        return statuses(pods, names.NOT_MANAGED, not_managed(pods[0]))
    first = no_new_job(workload, this_pass) or without_rights(workload, this_pass) or _waits(workload, pods, this_pass)
    if first is not None:
        return first
    if workload.refused is None and this_pass.free("submits") <= 0:  # a translation now would be thrown away
        return wait_for("submits", "Other pods are before it: so many submissions are under way as may be at a time.")
    return _translate_and_ask(workload, pods, this_pass)


def _translate_and_ask(workload: Workload, pods: list[Pod], this_pass: Pass) -> Decision:
    """Ask Slurm for the job of these pods, or show why that is refused; after a refusal by Slurm not before its time."""
    spec = spec_for(workload, this_pass)
    refusal = spec if isinstance(spec, Refusal) else too_large(workload, spec, this_pass.world)
    shown = NOTHING
    if (why_not := refusal or workload.refused) is not None:
        shown = statuses(pods, why_not.reason, why_not.message) + read_again(workload, pods, this_pass)
    if refusal is not None:
        return shown
    assert isinstance(spec, JobSpec)
    tried_at = workload.retry_at if workload.refused is not None else workload.wait_until
    scanned_at = scan_until(workload, this_pass)
    if this_pass.now < max(tried_at, scanned_at):
        return shown + wake(max(tried_at, scanned_at), _why_later(workload, tried_at, scanned_at, this_pass.now))
    return shown + ask(workload, spec, this_pass)


def _why_later(workload: Workload, tried_at: float, scanned_at: float, now: float) -> str:
    """Why Slurm is not asked now, a sentence."""
    if tried_at < scanned_at:
        return (
            f"The pod is older than this process of slurm-bridge, and a Slurm job of it may be among those that are still to "
            f"be read: nothing is asked before {exact_clock(scanned_at, now)}."
        )
    if workload.refused is not None:
        return f"It is tried again at {clock(tried_at, now)}, or when pod or policy change."
    return f"An attempt failed; the next one is at {clock(tried_at, now)}."


def _waits(workload: Workload, pods: list[Pod], this_pass: Pass) -> Decision | None:
    """None: nothing ends first or has to be read before Slurm is asked."""
    if (first := _stray_ends_first(workload, this_pass)) is not None:
        return first
    if (first := over_limit(workload, this_pass)) is not None:
        return first
    if (first := all_known(workload, pods, this_pass)) is not None:
        return first
    return read_lately(workload, pods, this_pass)


def _stray_ends_first(workload: Workload, this_pass: Pass) -> Decision | None:
    """A job that was made for its pods when they had another user lives, or may live: two would run for them (V1)."""
    first = former_may_live(workload, this_pass)
    if first is None or not workload.former or living_stray(this_pass.world, workload) is None:
        return first
    return statuses(workload.members, names.PENDING, first.why) + first


def _may_be_bound_yet(workload: Workload, this_pass: Pass) -> bool:
    """True if a bind for a job that has ended is in flight, or its answer was lost and the pod was not read since."""
    binding = any(isinstance(held.action, act.BindPod) for held in workload.pod_holds.values())
    return binding or any(uid in this_pass.world.may_land for uid in workload.pods)


def _queued(workload: Workload, this_pass: Pass) -> Decision:
    """A placeholder waits in Slurm: keep it as the user wants it, and show what Slurm says (Q2, F2, K8)."""
    world = this_pass.world
    job = chosen(workload, world.mine(workload))
    assert job is not None, "QUEUED has a placeholder"
    if world.config.leaving:
        return withdraw(workload, job, this_pass)
    ends = cancel_twins(workload, job, this_pass) or cancel_broken(workload, job, this_pass)
    if ends is not None:
        return ends
    if (lost := world.lost.get(Side.SLURM)) is not None:
        return outage(workload.members, lost, f"The pod waits in its queue as job {job.id}.", this_pass)
    kept, note = _keep_current(workload, job, this_pass)
    if workload.refused is not None:
        note = workload.refused.message
    shown = [_why_queued(workload, pod, job, note, this_pass) for pod in workload.members]
    return every((kept, _watch_begin(job, this_pass), *shown))


def _why_queued(workload: Workload, pod: Pod, job: Placeholder, note: str, this_pass: Pass) -> Decision:
    """Why the job waits, on the pod.  Most jobs that Slurm has not considered yet start soon: no status is written (Q2)."""
    read = job.job
    if read is None:
        reason = this_pass.world.config.pending_reason or names.PENDING
        return status(pod, reason, f"Waiting as job {job.id}. {note}") if note else NOTHING
    said_at = (job.asked_at or this_pass.world.started) + this_pass.tuning.unlooked_s
    if read.reason in UNLOOKED and not note and this_pass.now < said_at:
        return wake(said_at, waits(read, this_pass))
    return waiting(workload, pod, read, this_pass, note)


def _keep_current(workload: Workload, job: Placeholder, this_pass: Pass) -> tuple[Decision, str]:
    """The pod's annotations were edited, or nodes changed: change the job in place, so that it keeps its age (K8, F2).

    Also returns what the pods show of it: a sentence, or "".
    """
    if workload.hold is not None or (job.spec is None and job.job is None):
        return NOTHING, ""  # in flight; or adopted, and not read in detail yet
    if not trusted(job, this_pass):
        return look_at(job, workload, this_pass, f"is job {job.id} still the same?"), ""
    reads, all_read = read_in_passing(workload, workload.members, this_pass)
    if not all_read:
        return reads, ""
    spec = spec_for(workload, this_pass)
    if isinstance(spec, Refusal):
        return reads, spec.message  # nodes come back, annotations are mended: the job keeps its age meanwhile
    asked = job.spec
    if asked is None:
        assert job.job is not None, "it was read, else nothing is known of it"
        asked = job_update.adopted(spec, job.job)
    if _tasks(asked) != _tasks(spec):
        why = f"{workload.readable} has {_tasks(spec)} pods by shape now, and had {_tasks(asked)}"
        return reads + cancel(job, workload, this_pass, why), ""
    update, note = _update(workload, job, asked, spec, this_pass)
    return reads + update, note


def _update(
    workload: Workload, job: Placeholder, asked: JobSpec, spec: JobSpec, this_pass: Pass
) -> tuple[Decision, str]:
    """Change what Slurm can change of the job from `asked` to `spec`; and what it cannot change, in words."""
    changes = job_update.changes(asked, spec)
    fixed = [job_update.unchangeable(*each) for each in zip((spec, *spec.parts), changes, strict=True)]
    fixed_all = frozenset().union(*fixed)
    said = ", ".join(job_update.keys(fixed_all - job_update.GOVERNED if "user" in fixed_all else fixed_all))
    possible = [changed - unchanging for changed, unchanging in zip(changes, fixed, strict=True)]
    component = next((index for index, changed in enumerate(possible) if changed), None)
    update = NOTHING
    if component is not None:
        wanted = job_update.taken(asked, spec, component, possible[component])
        update = _change(workload, job, wanted, component, possible[component], this_pass)
    notes = [f"Slurm cannot change {said} of a waiting job; recreate the pod to ask anew."] if said else []
    if "user" in fixed_all:
        notes.append(
            f"The policy gives the pod Slurm user {spec.user} now, and job {job.id} waits on as {job.user}'s; recreate the "
            f"pod to ask as {spec.user}."
        )
    return update, " ".join(notes)


def _change(
    workload: Workload, job: Placeholder, spec: JobSpec, component: int, changes: frozenset[str], this_pass: Pass
) -> Decision:
    """Update one component of the job; at most one call a second, so that the other components follow."""
    next_at = max(workload.wait_until, workload.updated_at + this_pass.tuning.feasibility_every_s)
    parts = job.job.parts if job.job is not None else ()
    if this_pass.now < next_at:
        return wake(next_at)
    if component and len(parts) != len(spec.parts):
        return look_at(job, workload, this_pass, f"which ids have the components of job {job.id}?")
    component_id = (job.id, *(part.id for part in parts))[component]
    why = f"job {component_id} gets new {', '.join(sorted(changes))}"
    return do(act.UpdateJob(workload.key, job.id, job.user, spec, changes, why, component, component_id))


def _watch_begin(job: Placeholder, this_pass: Pass) -> Decision:
    """A begin time is no event: without a nudge slurmctld starts the job at its next pass, up to 30 s later."""
    told = _begins(job)
    begins = this_pass.from_slurm(told) if told is not None else None
    nudged_at = this_pass.world.nudged_at
    if begins is None or nudged_at >= begins + BEGIN_SLACK_S:
        return NOTHING
    due = begins + BEGIN_SLACK_S
    again = wake(max(due, nudged_at + this_pass.tuning.kick_every_s))
    return again + Decision(begin_is_due=this_pass.now >= due)


def _begins(job: Placeholder) -> float | None:
    if job.spec is not None:
        return job.spec.begin
    return job.job.starts if job.job is not None and job.job.reason == "BeginTime" else None


def _tasks(spec: JobSpec) -> list[int]:
    return [each.tasks for each in (spec, *spec.parts)]


def _granted(workload: Workload, this_pass: Pass) -> Decision:
    """Bind; the members of a gang that run already are watched meanwhile, however long the others wait for their places."""
    job = chosen(workload, this_pass.world.mine(workload))
    assert job is not None, "GRANTED has a placeholder"
    silent = silent_until(workload, this_pass)
    if silent is not None and this_pass.now >= silent:
        return end_job_of_the_silent(workload, job, this_pass)
    visit = wake(silent) if silent is not None else NOTHING
    if gives_up(workload, this_pass):
        return visit + withdraw(workload, job, this_pass)
    if is_ending_pods(this_pass):
        return visit + end_running(workload, job, this_pass)
    if job.grant is not None and not _stands_on_grant(workload, job, this_pass):
        return visit + _cancel_elsewhere(workload, job, this_pass)
    members = _bind_members(workload, job, this_pass)
    twins = cancel_twins_of_others(workload, job, this_pass)
    return visit + (twins.followed_by(if_not=members) if twins is not None else members)


def _bind_members(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Bind the members that are not bound yet; if nothing is planned for these, watch the others."""
    binds = bind(workload, job, this_pass)
    if workload.hold is not None or not any(map(workload.node_of, workload.unfinished)):
        return binds
    # one thing at a time: the next visit is at once, as what was planned need not end before it
    return binds.followed_by(if_planned=wake(this_pass.now), if_not=_watch_bound(workload, job, this_pass))


def _watch_bound(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """The members of a gang that run while others are yet to be bound."""
    if workload.edited and is_managed(workload.pod, this_pass.world):
        return put_back(workload, job, this_pass) + watch(workload, job, this_pass)
    return watch(workload, job, this_pass)


def _bound(workload: Workload, this_pass: Pass) -> Decision:
    """Pods run: leave them in peace; if it is in doubt whether their job lives, read the job itself (V7)."""
    return _report_late_changes(workload) + _by_its_job(workload, this_pass)


def _by_its_job(workload: Workload, this_pass: Pass) -> Decision:
    """What follows from what is known of the job that bound pods name."""
    world, absent_s = this_pass.world, this_pass.tuning.absent_s
    if workload.renamed is not None and workload.renamed == workload.hint:
        return _without_its_name(workload, this_pass)
    claimed = _claimed(workload, this_pass)
    if claimed is None or (claimed.key not in (None, workload.key) and not world.may_have_bound(workload)):
        return _bound_by_others(workload, this_pass)
    if claimed.key not in (None, workload.key):
        return _no_place(workload, f"Slurm lost their job (its id {claimed.id} is another's now)")
    if claimed.proven_end(absent_s):
        # what the pod names instead may be any job: an annotation is no proof
        doubtful = (job for job in world.mine(workload) if job.key is None and not job.proven_end(absent_s))
        if (other := next(doubtful, None)) is None:  # another client bound the pods, after that job or beside it
            return _bound_by_others(workload, this_pass)
        return look_at(other, workload, this_pass, _is_it_its_own(other, workload))
    if claimed.ended or claimed.absent or claimed.denied:
        return look_at(claimed, workload, this_pass, f"does job {claimed.id} live?")
    if claimed.key == workload.key:
        return _hold_together(workload, claimed, this_pass)
    return _read_hint(workload, claimed, this_pass)


def _claimed(workload: Workload, this_pass: Pass) -> Placeholder | None:
    """The job that bound pods name, or else one that is proven to be their own."""
    own = [job for job in this_pass.world.mine(workload) if job.key == workload.key]
    claimed = this_pass.world.placeholders.get(workload.hint) if workload.hint is not None else None
    if own and (claimed is None or claimed.key != workload.key):
        return min(own, key=lambda job: (not job.alive, job.id))
    return claimed


def _read_hint(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Of the job that the pods name only the id is known: read it if more has to be known."""
    if any(not workload.node_of(pod) for pod in workload.members):  # a member of a gang is to take a place in it
        return look_at(job, workload, this_pass, _is_it_its_own(job, workload))
    if job.states != RUNNING:
        return look_at(job, workload, this_pass, f"what became of job {job.id}?")
    if any(each.right for each in workload.edited.values()) or is_ending_pods(this_pass):
        return look_at(job, workload, this_pass, _is_it_its_own(job, workload))
    return read_hinted(workload, job, this_pass)  # a hint, and RUNNING, is enough (ARCHITECTURE 4)


def _is_it_its_own(job: Placeholder, workload: Workload) -> str:
    return f"is job {job.id} the placeholder of {workload.readable}?"


def _bound_by_others(workload: Workload, this_pass: Pass) -> Decision:
    """No job of the bound pods is known.  If another client bound them all, the waiting pods of their gang show that."""
    shown = _no_place(workload, "slurm-bridge did not bind them") if workload.stands_for_none else NOTHING
    return shown + without_a_job(workload, this_pass)


def _without_its_name(workload: Workload, this_pass: Pass) -> Decision:
    """The user may have renamed the job of these pods.  Then another job with the name of the workload is its twin."""
    job = chosen(workload, this_pass.world.mine(workload))
    followed = this_pass.world.placeholders.get(workload.hint or 0)
    found = []
    if followed is not None and workload.key in followed.followed_by and (followed.ended or followed.absent):
        read = f"does job {followed.id} live, which may be theirs under another name?"
        found.append(look_at(followed, workload, this_pass, read))
    why = f"their job {workload.hint} may have another name since, which its user gave it"
    if job is not None and job.holds_nodes and job.grant is None:
        found.append(look_at(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?"))
    elif job is not None and (job.grant is None or not _stands_on_grant(workload, job, this_pass)):
        found.append(cancel(job, workload, this_pass, f"job {job.id} is a twin: {why}"))
    return every((*found, _no_place(workload, why), without_a_job(workload, this_pass)))


def _hold_together(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """The own job of bound pods lives: does it hold the nodes of the pods?"""
    if is_ending_pods(this_pass):
        return end_running(workload, job, this_pass)
    if (
        ends := cancel_broken(workload, job, this_pass)
    ) is not None:  # first: the rest of such a job is read as no grant
        return ends
    if job.holds_nodes and job.grant is None:  # a twin of a previous process, which started when the other ended
        return look_at(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?")
    if job.grant is not None and not _stands_on_grant(workload, job, this_pass):
        return _cancel_elsewhere(workload, job, this_pass)
    is_replacement = job.grant is not None and job.spec is not None and bool(job.spec.required_nodes)
    if is_replacement and (why := check(workload, job, this_pass)):
        return cancel(job, workload, this_pass, why)
    if "PENDING" in job.states and (job.id == workload.hint or workload.stands_for_none):
        by_others = f"somebody else bound the pods that wait for job {job.id}"
        requeued = f"Slurm requeued job {job.id} while its pods run"
        return cancel(job, workload, this_pass, by_others if workload.stands_for_none else requeued)
    silent = silent_until(workload, this_pass)
    if silent is not None and this_pass.now >= silent:
        return end_job_of_the_silent(workload, job, this_pass)
    return (wake(silent) if silent is not None else NOTHING) + _run_on(workload, job, this_pass)


def _run_on(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """All is well: the pods run on the nodes of their job."""
    found = []
    if job.holds_nodes:
        found.append(show(workload, job, this_pass))
        if workload.edited and is_managed(workload.pod, this_pass.world):
            found.append(put_back(workload, job, this_pass))
        if workload.strays:
            found.append(beside_its_job(workload, job, this_pass))
    found += [cancel_twins(workload, job, this_pass) or NOTHING, watch(workload, job, this_pass)]
    return every((*found, record_former(workload, job, this_pass)))


def _cancel_elsewhere(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    return cancel(job, workload, this_pass, f"the pod stands elsewhere than on what job {job.id} was granted")


def _no_place(workload: Workload, why: str) -> Decision:
    """The job of the gang cannot be known any more: running pods are left in peace, a new pod has no place to take."""
    waiting = [pod for pod in workload.members if not workload.node_of(pod)]
    message = (
        f"The others of {workload.readable} run, but {why}, so that there is no place for this pod. It waits until they "
        "end; delete them to start all of them anew."
    )
    return statuses(waiting, names.GATHERING, message)


def _report_anomaly(workload: Workload) -> Decision:
    """What was observed of its job and rejected is shown once."""
    found = []
    for uid, message in workload.anomalies.items():
        if (pod := workload.pods.get(uid)) is not None:  # else it is in another workload by now
            found.append(_once(workload, pod, names.DISBELIEVED, message))
    return every(found)


def _report_proven(workload: Workload) -> Decision:
    """The answer to a write was lost, and the pod shows that it happened: the event that the answer would have posted.

    If another write on that pod is in flight, its answer announces it.
    """
    found = []
    for uid, action in workload.proven.items():
        held = workload.pod_holds.get(uid)
        if held is None or held.until is not None:
            event, message, warning = event_of(action)
            said = act.SetPodCondition(
                workload.key, uid, action.namespace, action.name, "", message, event=event, warning=warning
            )
            found.append(do(said))
    return every(found)


def _report_release(workload: Workload) -> Decision:
    """The grant could not be used, and its job has ended: condition and event (S11, F6).

    On a bound pod the event alone: the condition would have it that the pod is not scheduled.
    """
    found = []
    for uid, message in workload.release_messages.items():
        condition = "" if workload.node_of(workload.pods[uid]) else names.GIVEN_BACK
        found.append(status(workload.pods[uid], condition, message, warning=True, event=names.GIVEN_BACK))
    return every(found)


def _report_late_changes(workload: Workload) -> Decision:
    """Resized in place, or annotations edited, after the bind: the job stays as it is, and that is shown once (K8, T11)."""
    found = []
    for uid, what in workload.late_changes.items():
        message = (
            f"Changed after the pod was bound: {what}. Its Slurm job stays as it is; recreate the pod to ask anew."
        )
        found.append(_once(workload, workload.pods[uid], names.CHANGE_IGNORED, message))
    return every(found)


def _once(workload: Workload, pod: Pod, event: str, message: str) -> Decision:
    """As an event alone."""
    report = act.SetPodCondition(workload.key, pod.uid, pod.namespace, pod.name, "", message, event=event, warning=True)
    return do(report)


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


Rule = Callable[[Workload, Pass], Decision]

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

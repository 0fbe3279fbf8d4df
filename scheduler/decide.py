"""What to do now: one rule a phase (ARCHITECTURE 3).

`decide` visits the workloads that events marked, those whose time has come, and those that waited for a free lane; with
everything=True it visits all of them, which must come to the same plan (a property test says so).  It reads the world and
writes a Plan; nothing else.  RULES is the state machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from scheduler import actions as act
from scheduler import edits, names
from scheduler.actions import Plan
from scheduler.events import Side
from scheduler.feasible import Feasible, demand, feasible, miss, slurm_name
from scheduler.gangs import gather, together
from scheduler.grouping import group_of, rank_of
from scheduler.hostlist import HostlistError, expand, fold
from scheduler.jobspec import jobspec
from scheduler.model import SINGLETON, Job, JobSpec, Node, NodeTerm, Pod, Refusal, is_ended
from scheduler.phase import Phase, chosen
from scheduler.placement import Blocked, Place, Standing, blocked, places, shortfall
from scheduler.telling import outage, say, waiting
from scheduler.view import View
from scheduler.workload import UNLOOKED, Look, Placeholder, Workload
from scheduler.world import World

FRONT = 3  # waiting workloads that count as the front of the queue
RETRY_PLACE_S = 5.0  # a member of a running gang whose place is taken looks again after so long
MAX_BIND_FAILURES = 5  # then the grant is given back: somebody else may be able to use it
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
        RULES[world.phase_of[key]](workload, view)
    _read_unknown(view)
    _read_details(view)
    _kick(view)
    if world.nodes_stale and now >= world.nodes_asked_from:
        view.add(
            act.PollNodes("Slurm does not know a node that it was told to exclude: its node list is asked for again")
        )
    return view.plan()


def _keys(view: View, everything: bool) -> list[str]:
    """Whom to look at: who waited for a lane first, then what changed, then whose time has come."""
    world = view.world
    keys: dict[str, None] = {}
    for lane, waiting_keys in world.parked.items():
        keys.update(dict.fromkeys(islice(waiting_keys, max(0, view.free(lane)))))
    keys.update(world.dirty)
    keys.update(dict.fromkeys(world.due(view.now)[0]))
    if everything:
        keys.update(dict.fromkeys(world.workloads))
    return list(keys)


# --- GATHERING ----------------------------------------------------------------------------------------------------


def _gathering(workload: Workload, view: View) -> None:
    """Pods are missing, or gated, which Kubernetes itself says on them (W5, W6)."""
    if workload.group is None or workload.hold is not None:
        return
    job = chosen(workload, view.world.mine(workload))
    if job is not None:
        _keep_for_a_while(workload, job, view)
    elif not _still_in_doubt(workload, view):
        gather(workload, view)


def _keep_for_a_while(workload: Workload, job: Placeholder, view: View) -> None:
    """Who left a gang that has a job already may be replaced in a moment: the job keeps its age so long."""
    left_at = max((gone.at for gone in workload.gone.values()), default=float("-inf"))
    until = left_at + view.tuning.gang_bind_deadline_s
    if view.now < until:
        view.wake_at(workload.key, until)
    else:
        _cancel(job, workload, view, f"{len(workload.members)} of {workload.size} pods of {workload.readable} are left")


# --- UNCLAIMED ----------------------------------------------------------------------------------------------------


def _unclaimed(workload: Workload, view: View) -> None:
    """No placeholder lives: find the one that may exist, or ask Slurm for one (section 5, T, F, I)."""
    if workload.hold is not None:
        return
    pods = workload.members
    if (lost := view.world.lost.get(Side.SLURM)) is not None:
        for pod in pods:
            outage(view, workload, pod, lost, "The pod waits to be submitted.")
        return
    if _still_in_doubt(workload, view):
        return
    if not is_managed(pods[0], view.world):
        message = (
            f"Namespace {pods[0].namespace} is not managed by slurm-bridge: the admin has to label it "
            f"{names.MANAGED_LABEL}=true."
        )
        _say_all(workload, pods, view, names.NOT_MANAGED, message)
        return
    if not _all_known(workload, pods, view):
        return
    if workload.refused is None and view.free("submits") <= 0:
        view.park(workload.key, "submits")  # a translation now would be thrown away
        return
    spec = spec_for(workload, view)
    if isinstance(spec, Refusal):
        _say_all(workload, pods, view, spec.reason, spec.message)
        return
    if workload.refused is not None:
        _say_all(workload, pods, view, workload.refused.reason, workload.refused.message)
    until = max(workload.retry_at if workload.refused is not None else workload.wait_until, _scan_until(workload, view))
    if view.now < until:
        view.wake_at(workload.key, until)
        return
    _ask(workload, spec, view)


def _say_all(workload: Workload, pods: Iterable[Pod], view: View, reason: str, message: str) -> None:
    for pod in pods:
        say(view, workload, pod, reason, message, warning=True)


def is_managed(pod: Pod, world: World) -> bool:
    """Whether pods of its namespace may use the bridge."""
    namespace = (world.namespaces or {}).get(pod.namespace)
    labelled = namespace is not None and namespace.labels.get(names.MANAGED_LABEL) == "true"
    return labelled or pod.namespace in world.config.managed_namespaces


def _still_in_doubt(workload: Workload, view: View) -> bool:
    """A job of this workload may exist that we do not see: look before anything is repeated."""
    for job in view.world.mine(workload):
        hinted = job.key is None and job.alive
        vanished = job.key == workload.key and job.absent and not job.lost(view.tuning.absent_s)
        if hinted or vanished:
            _look_at(job, workload, view, f"is job {job.id} the placeholder of {workload.readable}?")
            return True
    return workload.look is not None and not _looked(workload, workload.look, view)


def _looked(workload: Workload, look: Look, view: View) -> bool:
    """After an unknown outcome, or a twin: whether everything was looked at, and nothing was found (ARCHITECTURE 4)."""
    world = view.world
    if not look.asked_database and world.config.accounting and (look.twin or view.now >= look.until):
        view.add(act.FindJobs(workload.key, look.name, f"looking for a job named {look.name}"), workload.key)
        return False
    if view.now < look.until:
        view.wake_at(workload.key, look.until)
        return False
    if world.polled is None or world.polled.began < look.until:
        return False  # the next poll marks it
    return not (world.unread if look.twin else [each for each in world.unread if world.seen_first[each] >= look.began])


def _scan_until(workload: Workload, view: View) -> float:
    """A pod that is older than this life may have a placeholder that is yet to be read (ARCHITECTURE 4)."""
    return view.world.scanning_until() if workload.created < view.world.started else float("-inf")


def _all_known(workload: Workload, pods: Iterable[Pod], view: View) -> bool:
    """Of every one, so that all reads go out at once."""
    known = [_known_enough(workload, pod, view) for pod in pods]
    return all(known)


def _known_enough(workload: Workload, pod: Pod, view: View) -> bool:
    """Owners and volume claims are read once, before the first decision about a pod."""
    world = view.world
    chain, unread = world.owners_of(pod)
    if unread is not None:
        ref = chain[-1].owner if chain else pod.owner
        assert ref is not None, "an unread owner has a reference"
        if view.now < workload.wait_until:
            view.wake_at(workload.key, workload.wait_until)
        elif not view.being_read(ref.uid):
            view.add(act.ReadOwner(pod.namespace, ref, f"annotations of {ref.kind} {ref.name}"), workload.key)
        view.wait_for_owner(workload.key, ref.uid)
        return False
    if not pod.claims:
        return True
    claims = world.claims.get(pod.uid)
    problem = next((claim.problem for claim in claims or () if claim.problem), "")
    if problem:
        say(view, workload, pod, names.REFUSED, problem, warning=True)
    if claims is not None and not problem:
        return True
    if view.now < workload.wait_until:
        view.wake_at(workload.key, workload.wait_until)
    elif not view.being_read(pod.uid):
        view.add(act.ReadClaims(workload.key, pod.uid, pod.namespace, pod.claims, "its volumes"), workload.key)
    return False


def spec_for(workload: Workload, view: View) -> JobSpec | Refusal:
    """What to ask Slurm for, nodes included; or why not."""
    asked = []
    pods = workload.members or workload.unfinished
    for pod in sorted(pods, key=rank_of) if len(pods) > 1 else pods:
        spec = _spec_of(workload, pod, len(pods), view)
        if isinstance(spec, Refusal):
            return spec if len(pods) == 1 else replace(spec, message=f"{pod.name}: {spec.message}")
        asked.append((pod, spec))
    return together(asked)


def _spec_of(workload: Workload, pod: Pod, pods: int, view: View) -> JobSpec | Refusal:
    """One member, as if it were alone."""
    world = view.world
    shown = group_of(pod)
    if isinstance(shown, Refusal):
        return shown
    tenant = world.config.policy.tenant(pod.namespace, pod.service_account)
    if isinstance(tenant, Refusal):
        return tenant
    owners = world.owners_of(pod)[0]
    spec = jobspec(pod, owners, tenant, world.around, workload.key, workload.readable, pods)
    if isinstance(spec, Refusal):
        return spec
    partition = spec.partition or world.default_partition
    if spec.partition and world.partitions and spec.partition not in world.partitions:
        known = ", ".join(sorted(world.partitions))
        return Refusal(names.REFUSED, f'Slurm has no partition "{spec.partition}". It has: {known}.')
    found = _feasible(pod, spec, partition, view)
    if found.problem:
        return Refusal(names.NO_NODE, found.problem)
    excluded = found.excluded
    if recently := view.excluded(workload):
        excluded = fold([*expand(excluded), *recently])
        if found.nodes <= frozenset(recently):
            view.wake_at(workload.key, min(until for until in workload.excluded.values() if until > view.now))
            tried = ", ".join(sorted(found.nodes))
            return Refusal(names.NO_NODE, f"The only nodes that can run this pod could not be used just now: {tried}.")
    return replace(spec, excluded_nodes=excluded, exclusive=spec.exclusive or ("exclusive" if found.exclusive else ""))


def _feasible(pod: Pod, spec: JobSpec, partition: str, view: View) -> Feasible:
    """From the world's memory where the same was asked since the nodes last changed."""
    world = view.world
    volumes: tuple[tuple[NodeTerm, ...], ...] = tuple(
        claim.affinity for claim in world.claims.get(pod.uid, ()) if claim.affinity is not None
    )
    wanted = demand(pod, spec, partition, volumes)
    known = world.feasibility.get(wanted)
    if known is None:
        ports = world.ports_taken() if pod.host_ports else {}
        known = feasible(wanted, (world.nodes or {}).values(), world.slurm_nodes or {}, ports)
        world.feasibility[wanted] = known
    return known


def _ask(workload: Workload, spec: JobSpec, view: View) -> None:
    """The ladder (section 5): nodes at once where that is likely to be granted, else a place in the queue."""
    world = view.world
    partition = spec.partition or world.default_partition
    where = f"partition {partition} as {spec.user}"
    if _immediate(workload, spec, partition, view):
        view.add(act.AllocateNow(workload.key, spec, f"asking Slurm for nodes in {where}"), workload.key)
    else:
        view.add(act.SubmitJob(workload.key, spec, f"queueing in Slurm {where}"), workload.key)


def _immediate(workload: Workload, spec: JobSpec, partition: str, view: View) -> bool:
    """It may start now, breaker closed, nobody of ours waits there, and no more than one try until one has succeeded."""
    world = view.world
    if spec.dependency != SINGLETON or (spec.begin is not None and spec.begin > view.now):
        return False
    if workload.immediate_refused or world.queued_in[partition] > 0:
        return False
    breaker = world.breakers.get(partition)
    if breaker is not None and view.now < breaker.open_until:
        return False
    trusted = breaker is not None and breaker.trusted
    return trusted or world.immediate_under_way[partition] + view.immediate[partition] == 0


# --- QUEUED -------------------------------------------------------------------------------------------------------


def _queued(workload: Workload, view: View) -> None:
    """A placeholder waits in Slurm: keep it as the user wants it, and say what Slurm says (Q, F2, K)."""
    world = view.world
    job = chosen(workload, world.mine(workload))
    assert job is not None, "QUEUED has a placeholder"
    if _cancel_twins(workload, job, view):
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
    if not _trusted(job, view):
        _look_at(job, workload, view, f"is job {job.id} still the same?")
        return ""
    spec = spec_for(workload, view)
    if isinstance(spec, Refusal):
        return spec.message  # nodes come back, annotations are mended: the job keeps its age meanwhile
    asked = job.spec or _as_adopted(spec, job)
    if asked.tasks != spec.tasks:
        _cancel(job, workload, view, f"{workload.readable} has {spec.tasks} pods now, and had {asked.tasks}")
        return ""
    changes = edits.changes(asked, spec)
    fixed = edits.unchangeable(spec, changes)
    said = ", ".join(edits.keys(fixed))
    note = f"Slurm cannot change {said} of a waiting job; recreate the pod to ask anew." if said else ""
    changes -= fixed
    next_at = max(workload.wait_until, workload.updated_at + view.tuning.feasibility_every_s)
    if changes and view.now < next_at:
        view.wake_at(workload.key, next_at)
    elif changes:
        why = f"job {job.id} gets new {', '.join(sorted(changes))}"
        view.add(act.UpdateJob(workload.key, job.id, job.user, spec, changes, why), workload.key)
    return note


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


def _as_adopted(spec: JobSpec, job: Placeholder) -> JobSpec:
    """A job of a previous life: what the user asked is taken as unchanged, the nodes are compared (K, F2)."""
    assert job.job is not None
    try:
        excluded = fold(expand(job.job.excluded_nodes))
    except HostlistError:  # its owner wrote there what we never would: it is replaced by what we would
        excluded = job.job.excluded_nodes
    return replace(spec, excluded_nodes=excluded)


def _cancel_twins(workload: Workload, keep: Placeholder, view: View) -> bool:
    """A lost answer may have made two: the one that counts stays.  True where something was planned or waits."""
    for job in view.world.mine(workload):
        if job.key == workload.key and job.alive and job.id != keep.id and workload.hold is None:
            _cancel(job, workload, view, f"job {job.id} is a twin of job {keep.id}")
            return True
    return False


def _cancel(job: Placeholder, workload: Workload, view: View, why: str, record: str = "") -> None:
    """End a job that is proven ours, once nothing of a previous life can be on its way any more (quiet period)."""
    until = max(view.world.quiet_until(), workload.wait_until)
    if view.now < until:
        view.wake_at(workload.key, until)
    elif not _trusted(job, view):
        _look_at(job, workload, view, f"is job {job.id} still the same?")
    elif workload.hold is None and Side.SLURM not in view.world.lost:
        view.add(act.CancelJob(workload.key, job.id, job.user, why, record), workload.key)


# --- GRANTED ------------------------------------------------------------------------------------------------------


def _granted(workload: Workload, view: View) -> None:
    """Slurm gave nodes: bind, or wait for room, or give the grant back (S1, S11, F6)."""
    world = view.world
    job = chosen(workload, world.mine(workload))
    assert job is not None, "GRANTED has a placeholder"
    homeless = [pod for pod in workload.members if not workload.node_of(pod) and pod.uid not in workload.pod_holds]
    if workload.hold is not None or not homeless:
        return
    lost = world.lost.get(Side.SLURM)
    if lost is not None and job.learned < lost.since:  # old news: it may have ended meanwhile
        for pod in homeless:
            outage(view, workload, pod, lost, f"The pod waits to be bound for job {job.id}.")
        return
    if job.grant is None or not _trusted(job, view):
        _look_at(job, workload, view, f"which nodes did Slurm grant job {job.id}?")
        return
    if not _all_known(workload, homeless, view):
        return
    if why_not := next((why for pod in homeless if (why := _not_allowed(pod, job, view))), ""):
        _give_back(workload, job, view, why_not)
        return
    asked = job.spec or spec_for(workload, view)
    if isinstance(asked, Refusal):
        _give_back(workload, job, view, asked.message)
        return
    if missing := shortfall(asked, job.grant):
        exclude = job.grant.nodes[0].name if len(job.grant.nodes) == 1 else ""
        _give_back(workload, job, view, f"Slurm granted it without {missing}", exclude=exclude)
        return
    replacing = all(_came_later(pod, job, view) for pod in homeless) and len(homeless) < len(workload.members)
    if not replacing and _too_long_bound(workload, view):
        _give_back(workload, job, view, f"not all pods of {workload.readable} could be bound in time")
        return
    _place(workload, homeless, job, asked, view, replacing=replacing)
    _cancel_twins(workload, job, view)


def _came_later(pod: Pod, job: Placeholder, view: View) -> bool:
    """It was created after the grant: it takes the place of one that is gone (W5)."""
    read = job.job.starts if job.job is not None else None
    granted = job.granted_at if job.granted_at is not None else read
    return granted is not None and pod.created > granted


def _too_long_bound(workload: Workload, view: View) -> bool:
    """Some are bound, and the others have had their time (V4)."""
    if not any(workload.node_of(pod) for pod in workload.members):
        return False
    until = max(workload.first_bound_at, view.world.started) + view.tuning.gang_bind_deadline_s
    if view.now < until:
        view.wake_at(workload.key, until)
    return view.now >= until


def _not_allowed(pod: Pod, job: Placeholder, view: View) -> str:
    """A job that this life did not make may have been made under another policy, or by its user himself (V8)."""
    tenant = view.world.config.policy.tenant(pod.namespace, pod.service_account)
    if isinstance(tenant, Refusal):
        return tenant.message
    if job.spec is not None or job.job is None:
        return ""
    read = job.job
    for what, choice, value in (
        (names.ACCOUNT, tenant.accounts, read.account),
        (names.PARTITION, tenant.partitions, read.partition),
        (names.QOS, tenant.qos, read.qos),
    ):
        usual = choice.default or (view.world.default_partition if what == names.PARTITION else value)
        if value != usual and isinstance(refused := choice.pick(what, value, f"namespace {pod.namespace}"), Refusal):
            return refused.message
    return ""


def _place(
    workload: Workload, homeless: Sequence[Pod], job: Placeholder, asked: JobSpec, view: View, *, replacing: bool
) -> None:
    """No member is bound until every place is fit; then all binds go out together (W9, F6).

    replacing   the others run: nothing of what they stand on is given back, whatever is in the way of these
    """
    assert job.grant is not None
    world = view.world
    stands = {
        pod.uid: slurm_name(world.nodes[stand]) if world.nodes and stand in world.nodes else stand
        for pod in workload.members
        if (stand := workload.node_of(pod) or _on_its_way(workload, pod))
    }
    found = places(asked, job.grant, workload.members, stands)
    if found is None:
        _give_back(workload, job, view, f"it has fewer places than {workload.readable} has pods")
        return
    since = job.granted_at if job.granted_at is not None else view.now
    taken: dict[str, Standing] = {}
    until, waits = float("-inf"), ""
    for pod in homeless:
        granted = found[pod.uid].node.name
        name = world.by_slurm_name.get(granted, "")
        node = (world.nodes or {}).get(name)
        here = taken.setdefault(name, Standing())
        obstacle = blocked(pod, node, name or granted, [*view.standing(name), here])
        obstacle = obstacle or _unfit(pod, job, node, granted, view)
        if obstacle is not None and replacing:
            obstacle = Blocked(obstacle.why, obstacle.until if obstacle.until is not None else view.now + RETRY_PLACE_S)
        elif obstacle is not None and (obstacle.until is None or view.now >= max(obstacle.until, since)):
            _give_back(workload, job, view, obstacle.why, exclude=granted)
            return
        if obstacle is not None and obstacle.until is not None and obstacle.until > until:
            until, waits = obstacle.until, f"Slurm job {job.id} was granted {granted}; the bind waits: {obstacle.why}."
        here.put(pod)
    if waits:
        for pod in homeless:
            say(view, workload, pod, names.GRANT_WAITS, waits)
        view.wake_at(workload.key, until)
    else:
        _bind(workload, homeless, job, found, view)


def _on_its_way(workload: Workload, pod: Pod) -> str:
    """Where a bind that is under way puts it."""
    held = workload.pod_holds.get(pod.uid)
    return held.action.node if held is not None and isinstance(held.action, act.BindPod) else ""


def _bind(workload: Workload, pods: Sequence[Pod], job: Placeholder, found: Mapping[str, Place], view: View) -> None:
    if workload.bind_failures >= MAX_BIND_FAILURES * len(workload.members):
        _give_back(workload, job, view, "Kubernetes refused the bind again and again")
        return
    if view.now < workload.wait_until:
        view.wake_at(workload.key, workload.wait_until)
        return
    for pod in pods:
        place = found[pod.uid]
        name = view.world.by_slurm_name[place.node.name]
        bind = act.BindPod(
            workload.key,
            pod.uid,
            pod.namespace,
            pod.name,
            name,
            job.id,
            _keys_of(workload, pod, job, place, view),
            reason=f"Slurm job {job.id} was granted {place.node.name}",
            created=pod.created,
            asked=job.asked_at,
            granted=job.granted_at,
            message=f"Bound to {name} by Slurm job {job.id}.",
        )
        if not view.add(bind, workload.key):
            return


def _unfit(pod: Pod, job: Placeholder, node: Node | None, granted: str, view: View) -> Blocked | None:
    """Labels and taints may have changed since the job was made; a job of a previous life may know of none (F6)."""
    if node is None or (job.spec is None and job.job is None):
        return None
    world = view.world
    volumes = tuple(claim.affinity for claim in world.claims.get(pod.uid, ()) if claim.affinity is not None)
    wanted = demand(replace(pod, host_ports=()), JobSpec("", "", 1, 1), "", volumes)
    why = miss(wanted, node, (world.slurm_nodes or {}).get(granted), frozenset())
    return Blocked(f"node {node.name} is {why}") if why else None


def _keys_of(workload: Workload, pod: Pod, job: Placeholder, place: Place, view: View) -> Mapping[str, str]:
    """The annotations that go with the bind: there before a container starts (K)."""
    assert job.grant is not None
    keys = {
        names.JOB_ID: str(job.id),
        names.JOB_NODES: fold(node.name for node in job.grant.nodes),
        names.SIZE: str(len(workload.members)),
        names.RANK: str(place.rank),
        names.LOCAL_RANK: str(place.local_rank),
        names.TRACEPARENT: names.traceparent(view.world.cluster, workload.key),
    }
    return {key: value for key, value in keys.items() if key != names.TRACEPARENT or key not in pod.annotations}


def _give_back(workload: Workload, job: Placeholder, view: View, why: str, exclude: str = "") -> None:
    """The grant cannot be used: end the job, say so, and ask again without that node (S11, F6).

    Of a gang of which some are bound that is to unwind it: they follow their job (W9, V4).
    """
    before = len(view.actions)
    _cancel(job, workload, view, f"given back: {why}")
    if len(view.actions) > before:
        view.exclude(workload.key, exclude)
        message = f"Slurm job {job.id} was given back, nodes are asked for again: {why.rstrip('.')}."
        _say_all(workload, workload.members, view, names.GIVEN_BACK, message)


# --- BOUND --------------------------------------------------------------------------------------------------------


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
    if claimed.proven_end(
        view.tuning.absent_s
    ):  # what the pod names instead may be anybody's: an annotation is no proof
        claimed = next((job for job in world.mine(workload) if job.key is None), claimed)
        _look_at(claimed, workload, view, f"is job {claimed.id} the placeholder of {workload.readable}?")
        return
    if claimed.ended or claimed.absent or claimed.denied:
        _look_at(claimed, workload, view, f"does job {claimed.id} live?")
        return
    if claimed.key != workload.key:
        if any(not workload.node_of(pod) for pod in workload.members):  # one of a gang is to take a place in it
            _look_at(claimed, workload, view, f"is job {claimed.id} the placeholder of {workload.readable}?")
        return  # else a hint, and RUNNING, is enough (ARCHITECTURE 4)
    if claimed.grant is not None and not _stands_on_grant(workload, claimed, view):
        _cancel(claimed, workload, view, f"the pod stands elsewhere than on what job {claimed.id} was granted")
    else:
        _cancel_twins(workload, claimed, view)


def _say_too_late(workload: Workload, view: View) -> None:
    """Resized in place, or annotations edited, after the bind: the job stays as it is, and that is said once (K, T11)."""
    for uid, what in workload.too_late.items():
        pod = workload.pods[uid]
        message = (
            f"Changed after the pod was bound: {what}. Its Slurm job stays as it is; recreate the pod to ask anew."
        )
        event = names.CHANGE_IGNORED
        report = act.Report(workload.key, uid, pod.namespace, pod.name, "", message, event=event, warning=True)
        view.add(report, workload.key)


def _stands_on_grant(workload: Workload, job: Placeholder, view: View) -> bool:
    assert job.grant is not None
    granted = {view.world.by_slurm_name.get(node.name, "") for node in job.grant.nodes}
    return all(workload.node_of(pod) in granted for pod in workload.unfinished if workload.node_of(pod))


def _trusted(job: Placeholder, view: View) -> bool:
    """slurmctld has not been away since we learned of the job: its id has not been given out again (ARCHITECTURE 4)."""
    return job.learned >= view.world.trust_since


def _look_at(job: Placeholder, workload: Workload, view: View, why: str) -> None:
    """Read the one job, at most once in `absent_s`."""
    if Side.SLURM in view.world.lost:
        return
    times = (job.granted_at, job.ended_seen, job.absent_first, view.world.trust_since)
    news = max(at for at in times if at is not None)
    next_at = workload.wait_until
    if job.read_began >= news:  # read since, and it did not help
        next_at = max(next_at, job.read_began + view.tuning.absent_s)
    if view.now < next_at:
        view.wake_at(workload.key, next_at)
    elif not view.being_read(job.id):
        view.add(act.ReadJob(job.id, why, workload.key), workload.key)


# --- REVOKED ------------------------------------------------------------------------------------------------------


def _revoked(workload: Workload, view: View) -> None:
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
        view.add(act.EvictPod(workload.key, pod.uid, pod.namespace, pod.name, why), workload.key)
    else:
        view.add(act.EndByDeadline(workload.key, pod.uid, pod.namespace, pod.name, why), workload.key)


# --- DONE ---------------------------------------------------------------------------------------------------------


def _done(workload: Workload, view: View) -> None:
    """No pod runs or waits any more: its job ends, and accounting learns how the pods ended (S2, S3)."""
    if workload.hold is not None:
        return
    mine = view.world.mine(workload)
    may_run_until = max((gone.until for gone in workload.gone.values()), default=float("-inf"))
    for job in mine:
        if job.key is None and job.alive:
            _look_at(job, workload, view, f"is job {job.id} the placeholder of pods that are gone?")
            return
        if job.key == workload.key and job.alive:
            if view.now < may_run_until:
                view.wake_at(workload.key, may_run_until)
            else:
                _cancel(job, workload, view, _why_done(workload), record=_record_of(workload))
            return
    if workload.record is not None:
        _record(workload, view)
    elif not workload.pods and (workload.look is None or _looked(workload, workload.look, view)):
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


# --- shared rations -----------------------------------------------------------------------------------------------


def _read_unknown(view: View) -> None:
    """Ids that nobody hints at are read once each, newest first: many at start, few later (ARCHITECTURE 4)."""
    world = view.world
    if not world.unread or Side.SLURM in world.lost:
        return
    lane = "scan" if world.looking or view.now < world.scan_until else "unknown"
    for job_id in reversed(world.unread):
        if view.being_read(job_id):
            continue
        not_before = world.unreadable.get(job_id, (0, float("-inf")))[1]
        if view.now < not_before:
            view.wake_shared(not_before)
            continue
        if view.free("reads") <= 0:
            return  # a read that ends makes the next pass
        if not view.ration(lane):
            view.wake_shared(world.rations[lane].next_at(view.now) + 0.001)
            return
        view.add(act.ReadJob(job_id, f"is job {job_id} ours?", lane=lane))


def _read_details(view: View) -> None:
    """What Slurm says of waiting jobs: new ones and the front first, then round robin (Q2)."""
    world, tuning = view.world, view.tuning
    if Side.SLURM in world.lost:
        return
    again = ((key, last + tuning.detail_every_s) for key, last in world.detail_round.items())
    for key in chain(_due(world.detail_new.items(), view), _front(view), _due(again, view)):
        job = chosen(world.workloads[key], world.mine(world.workloads[key]))
        if job is None or view.being_read(job.id):
            continue
        if view.free("reads") <= 0:
            return
        if not view.ration("detail"):
            view.wake_shared(world.rations["detail"].next_at(view.now) + 0.001)
            return
        view.add(act.ReadJob(job.id, f"why does job {job.id} wait?", key, lane="detail"))


def _front(view: View) -> Iterator[str]:
    """Those that came into the queue first start first: what is said of them is worth a read more often (Q2)."""
    world = view.world
    for key in islice(world.by_phase[Phase.QUEUED], FRONT):
        if (last := world.detail_round.get(key)) is None:
            continue
        if last + view.tuning.condition_s <= view.now:
            yield key
        else:
            view.wake_shared(last + view.tuning.condition_s)


def _due(ordered: Iterable[tuple[str, float]], view: View) -> Iterator[str]:
    """The keys whose time has come; ordered by that time."""
    for key, at in ordered:
        if at > view.now:
            view.wake_shared(at)
            return
        yield key


def _kick(view: View) -> None:
    """Capacity was freed or a begin time has come, and jobs wait: have slurmctld look now, not at its leisure (section 5)."""
    world = view.world
    news = world.freed_at > world.kicked_at or view.begin_is_due
    if not news or Side.SLURM in world.lost or not world.by_phase[Phase.QUEUED]:
        return
    at = world.kicked_at + view.tuning.kick_every_s
    if view.now < at:
        view.wake_shared(at)
        return
    front = min(world.by_phase[Phase.QUEUED], key=lambda key: world.workloads[key].created)
    job = chosen(world.workloads[front], world.mine(world.workloads[front]))
    if job is not None and _trusted(job, view):
        comment = job.job.comment if job.job is not None else (job.spec.comment if job.spec is not None else "")
        why = "a begin time has come" if view.begin_is_due else "capacity was freed"
        why += ": Slurm is asked to look at its queue"
        view.add(act.Kick(front, job.id, job.user, comment, why))


Rule = Callable[[Workload, View], None]

RULES: Mapping[Phase, Rule] = {
    Phase.GATHERING: _gathering,
    Phase.UNCLAIMED: _unclaimed,
    Phase.QUEUED: _queued,
    Phase.GRANTED: _granted,
    Phase.BOUND: _bound,
    Phase.REVOKED: _revoked,
    Phase.DONE: _done,
}

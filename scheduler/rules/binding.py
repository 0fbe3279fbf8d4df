"""GRANTED: Slurm gave nodes; bind, wait for room, or release the grant (S1, S11, F6, W9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.hostlist import folded
from scheduler.model.kubernetes import Node, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, JobSpec
from scheduler.model.text import span
from scheduler.place.affinity import violates_anti_affinity
from scheduler.place.assign import Blocked, NodeInfo, Part, Place, blocked, lacks, places, shortfall
from scheduler.place.devices import assigned_gpus
from scheduler.place.feasible import CLOSED, miss, node_requirements, slurm_name
from scheduler.rules.decision import NOTHING, BindTogether, Decision, combine, note, plan_action, wake
from scheduler.rules.identity import cancel, cancel_broken, cancel_twins, read_job, trusted
from scheduler.rules.scheduling_pass import COMPARED_PER_NODE, Pass
from scheduler.rules.status import outage, status, statuses
from scheduler.rules.submission import (
    as_the_bound_ask,
    asked_by,
    is_managed,
    not_managed,
    read_first,
    spec_for,
    translated,
)
from scheduler.state.own_keys import own_annotation
from scheduler.state.workload import Placeholder, Workload
from scheduler.translate.gang import components
from scheduler.translate.grouping import by_rank

RETRY_PLACE_S = 5.0  # a member of a running gang whose place is taken tries again after this time
SHOWN_AFTER_FAILURES = 3  # after this many failed binds in a row, the pod shows the failure
MOST_COMPARED = (
    256  # terms with pods that may still be bound; if there are more, the bind waits for the end of the quiet period
)
MAX_BIND_FAILURES = 5  # after so many refused binds of one pod, the grant is released: other pods may be able to use it


def bind(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Slurm gave nodes: bind, or wait for room, or release the grant (S1, S11, F6)."""
    world = this_pass.world
    unbound = [pod for pod in workload.members if not workload.node_of(pod) and pod.uid not in workload.pods_in_flight]
    if workload.in_flight is not None or not unbound:
        return NOTHING
    lost = world.lost.get(Side.SLURM)
    if lost is not None and job.known_since < lost.since:  # read before the outage: the job may have ended meanwhile
        return outage(unbound, lost, f"The pod waits to be bound for job {job.id}.", this_pass)
    if (ends := cancel_broken(workload, job, this_pass)) is not None:
        return ends
    if not_now := _not_now(unbound, job, this_pass):
        return statuses(unbound, names.GRANT_WAITS, f"The bind waits: {not_now}.")
    if job.grant is None or not trusted(job, this_pass):
        return read_job(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?")
    # The pods known from before this process led may lack a pod that takes the room; the next list wakes this workload.
    if world.pods_inherited:
        return Decision(why="The list of pods is read again, because another replica led before.")
    if (reads := read_first(workload, unbound, this_pass)) is not None:
        return reads
    return _use_grant(workload, unbound, job, job.grant, this_pass)


def _use_grant(workload: Workload, unbound: Sequence[Pod], job: Placeholder, grant: Grant, this_pass: Pass) -> Decision:
    """All facts that a bind needs are known: bind these pods, if the grant has what the job asked for."""
    replacing = any(map(workload.node_of, workload.members)) and _came_later(workload, unbound, job)
    if why_not := next((why for pod in unbound if (why := _not_allowed(pod, workload, job, this_pass))), ""):
        return _cannot_use(workload, unbound, job, why_not, this_pass, replacing=replacing)
    asked = _asked(workload, job, this_pass, replacing=replacing)
    if isinstance(asked, Refusal):
        return _cannot_use(workload, unbound, job, asked.message, this_pass, replacing=replacing)
    if missing := shortfall(asked, grant):
        exclude = grant.nodes[0].name if len(grant.nodes) == 1 else ""
        why = f"Slurm granted it without {missing}"
        return _cannot_use(workload, unbound, job, why, this_pass, replacing=replacing, exclude=exclude)
    until = None if replacing else _all_bound_by(workload, this_pass)
    if until is not None and this_pass.now >= until:
        within = f"within {span(this_pass.tuning.gang_bind_deadline_s)} (tuning: gang_bind_deadline_s)"
        bound = len(workload.members) - len(unbound)
        why = f"only {bound} of the {len(workload.members)} pods could be bound {within}"
        return _release_grant(workload, job, this_pass, why)
    placed = _place(workload, unbound, job, asked, this_pass, replacing=replacing)
    twins = cancel_twins(workload, job, this_pass) or NOTHING
    return combine((wake(until) if until is not None else NOTHING, placed, twins))


def _not_now(unbound: Sequence[Pod], job: Placeholder, this_pass: Pass) -> str:
    """Why no pod is bound to the nodes of the job for the moment; "": nothing is in the way."""
    if "SUSPENDED" in job.states:  # another job may use its nodes meanwhile (S6)
        return f"an admin suspended Slurm job {job.id} (scontrol resume {job.id} ends that)"
    if "SIGNALING" in job.states and job.job is not None and job.job.preempted is not None:  # the job ends soon (S5)
        return f"Slurm preempts job {job.id}"
    for pod in unbound:
        if (
            pod.uid in this_pass.world.unanswered_binds
            and job.grant is not None
            and not _on_its_way(pod, job.grant, this_pass)
        ):
            return f"the answer to an earlier bind of {pod.full_name} was lost; the pod is read first"
    return ""


def _cannot_use(
    workload: Workload,
    unbound: Sequence[Pod],
    job: Placeholder,
    why: str,
    this_pass: Pass,
    *,
    replacing: bool,
    exclude: str = "",
) -> Decision:
    """The grant does not serve these pods: release it.  If other members run in it, these pods wait and show why (W5).

    exclude   the Slurm node that the workload does not ask for again for a while (F6)
    """
    if not replacing:
        return _release_grant(workload, job, this_pass, why, exclude=exclude)
    message = f"It waits to take a place in job {job.id}. {why[:1].upper()}{why[1:].rstrip('.')}."
    return _waits(unbound, message)


def _waits(unbound: Sequence[Pod], message: str, *, warning: bool = False) -> Decision:
    """Each of these pods shows why its bind waits."""
    return combine(status(pod, names.GRANT_WAITS, message, warning=warning) for pod in unbound)


def _asked(workload: Workload, job: Placeholder, this_pass: Pass, *, replacing: bool) -> JobSpec | Refusal:
    """The specification of the job.  If a previous process submitted the job: the specification of its pods now.

    A replacement may ask for other resources than the pod whose place it takes, so it proves nothing about the job.
    """
    if job.spec is not None:
        return job.spec
    if replacing and job.grant is not None and not job.grant.parts:
        return as_the_bound_ask(workload, this_pass)
    return spec_for(workload, this_pass)


def _unplaceable(
    workload: Workload,
    unbound: Sequence[Pod],
    job: Placeholder,
    parts: Sequence[Part] | None,
    found: Mapping[str, Place] | None,
    this_pass: Pass,
) -> str:
    """Why these pods cannot take the places that the job holds, in words; "": they can.

    A pod that came, or was resized, after the job was submitted is compared with the specification of its place (W5).
    """
    newcomers = {pod.uid for pod in unbound} - job.asked_for
    joining = [(part, pod) for part in parts or () for pod in part.members if pod.uid in newcomers]
    advice = f". To submit all of them again, delete the other pods of {workload.readable}, too"
    do = advice if len(unbound) < len(workload.members) else ""
    for part, pod in joining:
        own = translated(workload, pod, len(workload.members), this_pass)
        if isinstance(own, Refusal):
            return own.message
        if more := lacks(part.spec, own):
            return f"pod {pod.name} asks for {more}, more than its place in job {job.id} has{do}"
    return "" if found is not None else f"it has fewer places than {workload.readable} has pods{do}"


def _came_later(workload: Workload, unbound: Sequence[Pod], job: Placeholder) -> bool:
    """True if these pods take the places of others that were bound for the job before (W5).

    A gang is bound as a whole.  So if as many pods have been bound for the job as it was submitted for, further pods are
    replacements, whatever their times are.  Of the pods that a previous process bound, some may be gone.  Then a
    replacement is a pod that the API server created after it bound another member, by its own clock; or, if it does not
    show when it bound them, after it created all of them.
    """
    if job.spec is not None and job.spec.required_nodes:  # submitted for pods that ran on these nodes already (S7)
        return True
    asked = job.spec or job.job
    every = (*workload.pods.values(), *(gone.pod for gone in workload.gone.values()))
    served = [pod for pod in every if workload.node_of(pod) and _names_job(pod, job)]
    if asked is not None and len(served) >= asked.tasks + sum(part.tasks for part in asked.parts):
        return True
    if job.asked_at is not None or not served:
        return False
    bound_at = [pod.bound_at for pod in served if pod.bound_at is not None]
    since = min(bound_at) if bound_at else max(pod.created for pod in served)
    return all(pod.created > since for pod in unbound)


def _names_job(pod: Pod, job: Placeholder) -> bool:
    """True unless the pod names another job.  The annotations of a bind may not have been observed yet."""
    return pod.annotations.get(names.JOB_ID, str(job.id)) == str(job.id)


def _all_bound_by(workload: Workload, this_pass: Pass) -> float | None:
    """The deadline for the binds of the other members (V4), epoch seconds; None: no member is bound yet."""
    if not any(workload.node_of(pod) for pod in workload.members):
        return None
    return max(workload.first_bound_at, this_pass.world.started) + this_pass.tuning.gang_bind_deadline_s


def _not_allowed(pod: Pod, workload: Workload, job: Placeholder, this_pass: Pass) -> str:
    """Why the pod may not use that job, in words; "": it may.

    A job that this process did not submit may have been submitted under another policy, or by its user by hand (V8).  The
    user may also change the account, partition or QOS of a waiting job.  The values that the bridge asked for stay allowed.
    """
    if not is_managed(pod, this_pass.world):
        return not_managed(pod)
    tenant = this_pass.world.tenant_of(pod)
    if isinstance(tenant, Refusal):
        return tenant.message
    if job.job is None:
        return ""
    read, spec = job.job, job.spec
    for what, choice, value, asked in (
        (names.ACCOUNT, tenant.accounts, read.account, spec.account if spec is not None else ""),
        (names.PARTITION, tenant.partitions, read.partition, workload.asked_in if spec is not None else ""),
        (names.QOS, tenant.qos, read.qos, spec.qos if spec is not None else ""),
    ):
        slurms_own = (
            this_pass.world.default_partition if what == names.PARTITION else ""
        )  # not known while slurmdbd is away
        usual = asked or choice.default or slurms_own or value
        if value != usual and isinstance(refused := choice.pick(what, value, f"namespace {pod.namespace}"), Refusal):
            return refused.message
    return ""


def _place(
    workload: Workload, unbound: Sequence[Pod], job: Placeholder, asked: JobSpec, this_pass: Pass, *, replacing: bool
) -> Decision:
    """Bind no member until every place fits; then send all binds together (W9, F6).

    replacing   the other members run: the grant is not released, even if these pods cannot be bound
    """
    assert job.grant is not None
    bound_to = _nodes_taken(workload, job.grant, this_pass)
    leaving = [pod for pod in workload.unfinished if pod.deleting_at is not None]
    parts = _parts(workload, asked, job.grant, this_pass)
    found = places(parts, bound_to, [bound_to[pod.uid] for pod in leaving]) if parts is not None else None
    if found is None and leaving:
        who = ", ".join(sorted(pod.full_name for pod in leaving)[:3])
        still = f"{who} still {'terminates' if len(leaving) == 1 else 'terminate'}"
        return _waits(unbound, f"The bind for Slurm job {job.id} waits: {still}.")
    if why := _unplaceable(workload, unbound, job, parts, found, this_pass):
        return _cannot_use(workload, unbound, job, why, this_pass, replacing=replacing)
    assert parts is not None, "places were found"
    assert found is not None, "places were found"
    if (waits := _obstructed(workload, unbound, job, found, this_pass, replacing=replacing)) is not None:
        return waits
    if (waits := _volumes_wait(workload, unbound, job, found, this_pass, replacing=replacing)) is not None:
        return waits
    gpus = _gpus(workload, unbound, found, parts, bound_to, this_pass)
    return _send_binds(workload, unbound, job, found, gpus, this_pass, replacing=replacing)


def _nodes_taken(workload: Workload, grant: Grant, this_pass: Pass) -> Mapping[str, str]:
    """UID to Slurm's name of the node, of each member that is bound, or may be bound by a bind in flight."""
    nodes = {pod.uid: workload.node_of(pod) or _on_its_way(pod, grant, this_pass) for pod in workload.unfinished}
    return {uid: this_pass.world.in_slurm(node) for uid, node in nodes.items() if node}


def _obstructed(
    workload: Workload,
    unbound: Sequence[Pod],
    job: Placeholder,
    found: Mapping[str, Place],
    this_pass: Pass,
    *,
    replacing: bool,
) -> Decision | None:
    """Something is in the way on a node: wait for it as long as it may last, else release the grant.  None: nothing is."""
    since = job.granted_at if job.granted_at is not None else this_pass.now
    taken: dict[str, NodeInfo] = {}
    until, waits = float("-inf"), ""
    for pod in unbound:
        granted = found[pod.uid].node.name
        name = this_pass.world.by_slurm_name.get(granted, "")
        here = taken.setdefault(name, NodeInfo())
        there = this_pass.node_infos(name)
        obstacle = _obstacle(workload, pod, job, granted, [*there, here], this_pass)
        if obstacle is not None and replacing:
            retry_at = this_pass.now + RETRY_PLACE_S
            obstacle = Blocked(obstacle.why, obstacle.until if obstacle.until is not None else retry_at)
        elif obstacle is not None and (obstacle.until is None or this_pass.now >= max(obstacle.until, since)):
            return _release_grant(workload, job, this_pass, obstacle.why, exclude=granted)
        if obstacle is not None and obstacle.until is not None and obstacle.until > until:
            until, waits = obstacle.until, f"Slurm job {job.id} was granted {granted}; the bind waits: {obstacle.why}."
        if not any(pod.uid in each.pods for each in there):  # it may be bound there already
            here.put(pod)
    return _waits(unbound, waits) + wake(until) if waits else None


def _obstacle(
    workload: Workload, pod: Pod, job: Placeholder, granted: str, there: Sequence[NodeInfo], this_pass: Pass
) -> Blocked | None:
    """Why the pod cannot be bound to the node that Slurm granted; None: it can.

    granted   Slurm's name of the node
    there     pods that are bound to the node, or are about to be
    """
    name = this_pass.world.by_slurm_name.get(granted, "")
    node = (this_pass.world.nodes or {}).get(name)
    obstacle = _contested(granted, this_pass) or blocked(pod, node, name or granted, there)
    obstacle = obstacle or _unfit(pod, job, node, granted, this_pass)
    return obstacle or _may_be_taken(workload, pod, node, there, this_pass)


def _parts(workload: Workload, asked: JobSpec, grant: Grant, this_pass: Pass) -> list[Part] | None:
    """The members of each component, and the nodes granted to it; None: the pods have other shapes than the job."""
    if not asked.parts:
        return [Part(asked, grant.nodes, workload.members)]
    now = asked_by(workload, this_pass)
    shapes = components(now) if not isinstance(now, Refusal) else []
    granted = [(asked, grant), *zip(asked.parts, grant.parts, strict=True)]
    if len(shapes) != len(granted):
        return None
    return [Part(spec, part.nodes, pods) for (spec, part), (_, pods) in zip(granted, shapes, strict=True)]


def _volumes_wait(
    workload: Workload,
    pods: Sequence[Pod],
    job: Placeholder,
    found: Mapping[str, Place],
    this_pass: Pass,
    *,
    replacing: bool,
) -> Decision | None:
    """Volumes are made where their pod goes: select the node, and wait for them, for a limited time (F4).

    A replacement waits for as long as it takes: the grant is not released while other members run in it.  None: no volume
    is waited for.
    """
    world = this_pass.world
    pending = {pod.uid: pod for pod in pods if any(claim.waits for claim in world.claims.get(pod.uid, ()))}
    if not pending:
        return None
    since = job.granted_at if job.granted_at is not None else world.started
    if not replacing and this_pass.now >= since + this_pass.tuning.claims_s:
        first = next(iter(pending.values()))
        where = found[first.uid].node.name
        why = f"the volumes of {first.full_name} were not made on {where}"
        return _release_grant(workload, job, this_pass, why, exclude=where)
    nodes = {uid: world.by_slurm_name[found[uid].node.name] for uid in pending}
    return combine(_await_volumes(workload, pod, job, nodes[pod.uid], this_pass) for pod in pending.values())


def _await_volumes(workload: Workload, pod: Pod, job: Placeholder, node: str, this_pass: Pass) -> Decision:
    """Select the node for the volumes of the pod, or read whether they are made; the pod shows what it waits for."""
    world = this_pass.world
    claims = world.claims[pod.uid]
    waiting = tuple(claim.name for claim in claims if claim.waits)
    selected = all(claim.selected == node for claim in claims if claim.waits)
    next_at = max(
        workload.wait_until, world.claims_read_at[pod.uid] + this_pass.tuning.claims_every_s if selected else 0.0
    )
    why = f"the volumes of {pod.full_name} are to be made on {node}"
    if this_pass.now < next_at:
        step = wake(next_at)
    elif selected:
        step = plan_action(act.ReadClaims(workload.key, pod.uid, pod.namespace, pod.claims, why))
    else:
        step = plan_action(act.SelectVolumeNode(workload.key, pod.uid, pod.namespace, pod.claims, waiting, node, why))
    message = f"Slurm job {job.id} was granted {node}; the bind waits for volumes there: {', '.join(waiting)}."
    return step + status(pod, names.GRANT_WAITS, message)


def _on_its_way(pod: Pod, grant: Grant, this_pass: Pass) -> str:
    """The node of this grant to which a bind that is in flight, or whose result is unknown, puts the pod; "": none."""
    name = this_pass.world.assumed.get(pod.uid, "")
    node = (this_pass.world.nodes or {}).get(name)
    return name if node is not None and any(each.name == slurm_name(node) for each in grant.everywhere) else ""


def _gpus(
    workload: Workload,
    pods: Sequence[Pod],
    found: Mapping[str, Place],
    parts: Sequence[Part],
    bound_to: Mapping[str, str],
    this_pass: Pass,
) -> Mapping[str, str]:
    """The GPUs of each pod, for its annotation, if a device driver reads it (G1).  bound_to: UID to Slurm node name"""
    if not this_pass.world.config.device_driver:
        return {}
    held = []
    for pod in workload.unfinished:
        assigned = own_annotation(workload, pod, names.JOB_GPUS)
        if assigned and pod.uid in bound_to:
            held.append((bound_to[pod.uid], assigned))
    return assigned_gpus(by_rank(pods), found, parts, held)


def _send_binds(
    workload: Workload,
    pods: Sequence[Pod],
    job: Placeholder,
    found: Mapping[str, Place],
    gpus: Mapping[str, str],
    this_pass: Pass,
    *,
    replacing: bool,
) -> Decision:
    """Bind these pods, later if the last attempt failed.  If binds are refused again and again, release the grant (W9)."""
    if not replacing and any(job.bind_refused[pod.uid] >= MAX_BIND_FAILURES for pod in pods):
        return _release_grant(workload, job, this_pass, "Kubernetes refused the bind again and again")
    if this_pass.now < workload.wait_until:
        message = f"The bind for Slurm job {job.id} failed and is tried again: {job.bind_trouble}"
        is_shown = job.bind_trouble and workload.failures >= SHOWN_AFTER_FAILURES
        return wake(workload.wait_until) + (_waits(pods, message, warning=True) if is_shown else NOTHING)
    common = _common_keys(workload, job, this_pass)
    binds = (
        _bind_of(workload, pod, job, found[pod.uid], _keys_of(pod, found[pod.uid], gpus, common), this_pass)
        for pod in pods
    )
    return Decision((BindTogether(tuple(binds)),))


def _bind_of(
    workload: Workload, pod: Pod, job: Placeholder, place: Place, annotations: Mapping[str, str], this_pass: Pass
) -> act.BindPod:
    name, asked_at = this_pass.world.by_slurm_name[place.node.name], _asked_at(job, this_pass)
    born = this_pass.world.created_at(pod)
    return act.BindPod(
        workload.key,
        pod.uid,
        pod.namespace,
        pod.name,
        name,
        job.id,
        annotations,
        reason=f"Slurm job {job.id} was granted {place.node.name}",
        created=min(born, asked_at) if asked_at is not None else born,
        asked=asked_at,
        granted=job.granted_at,
        message=f"Bound to {name} by Slurm job {job.id}." if _has_shown_a_wait(workload, pod) else "",
    )


def _has_shown_a_wait(workload: Workload, pod: Pod) -> bool:
    """True if this process or a previous one has shown on the pod why it waits."""
    return pod.uid in workload.last_status or workload.shown_condition(pod) is not None


def _asked_at(job: Placeholder, this_pass: Pass) -> float | None:
    """When the job was submitted, by any process, by the bridge's clock; None: not read yet."""
    if job.asked_at is not None or job.job is None or job.job.submitted is None:
        return job.asked_at
    return this_pass.from_slurm(job.job.submitted)


def _contested(granted: str, this_pass: Pass) -> Blocked | None:
    """Several Kubernetes nodes claim to be that node of Slurm: a pod may not land on the wrong one."""
    claims = this_pass.world.contested.get(granted)
    return Blocked(f"the nodes {', '.join(claims)} of Kubernetes claim to be Slurm's {granted}") if claims else None


def _unfit(pod: Pod, job: Placeholder, node: Node | None, granted: str, this_pass: Pass) -> Blocked | None:
    """Labels and taints may have changed since the job was made; a job of a previous process may exclude no nodes (F6)."""
    if node is None or (job.spec is None and job.job is None):
        return None
    world = this_pass.world
    closed = world.closed_to(pod, world.own_pods("", [pod]))
    wanted = node_requirements(pod, JobSpec("", "", 1, 1), "", world.volumes_of(pod), closed)
    why = miss(wanted, node, (world.slurm_nodes or {}).get(granted))
    with_it = this_pass.assumed.get(node.name)  # bound there by this pass: the world does not show them yet
    if why is None and with_it is not None and violates_anti_affinity(pod, with_it.pods.values()):
        why = CLOSED
    return Blocked(f"node {node.name} is {why}") if why else None


def _may_be_taken(
    workload: Workload, pod: Pod, node: Node | None, there: Sequence[NodeInfo], this_pass: Pass
) -> Blocked | None:
    """After a restart, a bind of the previous process may still take effect, and leave this pod no room (V3).

    there   pods that are bound to the node
    """
    landing = this_pass.possible_binds(node.name, workload.key) if node is not None else []
    if node is None or not landing:
        return None
    if blocked(pod, node, node.name, [*there, *landing]) is None and not _may_shun(pod, landing, this_pass):
        return None
    why = f"slurm-bridge has just started, and a bind that it sent before may still put another pod on node {node.name}"
    return Blocked(why, this_pass.world.quiet_until())


def _may_shun(pod: Pod, landing: Sequence[NodeInfo], this_pass: Pass) -> bool:
    """True if anti-affinity keeps the pod away from one of these; also if there are too many terms to compare."""
    others = [other for each in landing for other in each.pods.values()]
    terms = len(pod.anti_affinity) * len(others) + sum(len(other.anti_affinity) for other in others)
    this_pass.effort += 1 + min(terms, MOST_COMPARED) // COMPARED_PER_NODE
    return terms > MOST_COMPARED or violates_anti_affinity(pod, others)


def _common_keys(workload: Workload, job: Placeholder, this_pass: Pass) -> Mapping[str, str]:
    """The annotations that the bind writes, so that they exist before a container starts (K4): those of the workload."""
    assert job.grant is not None
    stage = workload.group.stage if workload.group is not None else ""
    return {
        **({names.STAGE: stage} if stage else {}),
        names.JOB_ID: str(job.id),
        names.JOB_NODES: folded(node.name for node in job.grant.everywhere),
        names.SIZE: str(len(workload.members)),
        names.TRACEPARENT: names.traceparent(this_pass.world.cluster, workload.key),
    }


def _keys_of(pod: Pod, place: Place, gpus: Mapping[str, str], common: Mapping[str, str]) -> Mapping[str, str]:
    """The annotations of one pod.  A `traceparent` that the pod has already is kept."""
    keys = {**common, names.RANK: str(place.rank), names.LOCAL_RANK: str(place.local_rank)}
    keys[names.JOB_GPUS] = gpus.get(pod.uid, "")  # always: what another client wrote there does not survive the bind
    if names.TRACEPARENT in pod.annotations:
        del keys[names.TRACEPARENT]
    return keys


def _release_grant(workload: Workload, job: Placeholder, this_pass: Pass, why: str, exclude: str = "") -> Decision:
    """The grant cannot be used: end the job, show why, and ask again without that node (S11, F6).

    That unwinds a gang of which some are bound: the bound pods follow their job (W9, V4).
    """
    message = f"Slurm job {job.id} was released, and nodes are requested again: {why.rstrip('.')}."
    ended = cancel(job, workload, this_pass, f"released: {why}", pod_message=message)
    return ended.followed_by(if_planned=note(exclude=exclude))

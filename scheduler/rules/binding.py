"""GRANTED: Slurm gave nodes; bind, wait for room, or give the grant back (S1, S11, F6, W9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.hostlist import folded
from scheduler.model.kubernetes import Node, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, JobSpec
from scheduler.place.affinity import shun
from scheduler.place.assign import Blocked, NodeInfo, Part, Place, blocked, lacks, places, shortfall
from scheduler.place.devices import dealt
from scheduler.place.feasible import CLOSED, demand, miss, slurm_name
from scheduler.rules.gathering import components
from scheduler.rules.identity import cancel, cancel_broken, cancel_twins, look_at, trusted
from scheduler.rules.scheduling_pass import COMPARED_PER_NODE, Pass
from scheduler.rules.status import outage, say, say_all
from scheduler.rules.submission import (
    all_known,
    as_the_bound_ask,
    asked_by,
    is_managed,
    not_managed,
    spec_for,
    translated,
)
from scheduler.state.own_keys import told_of
from scheduler.state.workload import Placeholder, Workload
from scheduler.translate.grouping import by_rank

RETRY_PLACE_S = 5.0  # a member of a running gang whose place is taken looks again after so long
SAID_AFTER_FAILURES = 3  # failed binds in a row, after which the pod says so
MOST_COMPARED = (
    256  # terms with pods that may land; where there are more, the bind waits for the end of the quiet period
)
MAX_BIND_FAILURES = (
    5  # refusals of one pod's bind, after which the grant is given back: other pods may be able to use it
)


def bind(workload: Workload, job: Placeholder, this_pass: Pass) -> None:
    """Slurm gave nodes: bind, or wait for room, or give the grant back (S1, S11, F6)."""
    world = this_pass.world
    unbound = [pod for pod in workload.members if not workload.node_of(pod) and pod.uid not in workload.pod_holds]
    if workload.hold is not None or not unbound:
        return
    lost = world.lost.get(Side.SLURM)
    if lost is not None and job.learned < lost.since:  # old news: it may have ended meanwhile
        for pod in unbound:
            outage(this_pass, workload, pod, lost, f"The pod waits to be bound for job {job.id}.")
        return
    if cancel_broken(workload, job, this_pass):
        return
    if not_now := _not_now(unbound, job, this_pass):
        say_all(workload, unbound, this_pass, names.GRANT_WAITS, f"The bind waits: {not_now}.")
        return
    if job.grant is None or not trusted(job, this_pass):
        look_at(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?")
        return
    if not all_known(workload, unbound, this_pass):
        return
    replacing = any(map(workload.node_of, workload.members)) and _came_later(workload, unbound, job)
    if why_not := next((why for pod in unbound if (why := _not_allowed(pod, workload, job, this_pass))), ""):
        _cannot_use(workload, unbound, job, why_not, this_pass, replacing=replacing)
        return
    asked = _asked(workload, job, this_pass, replacing=replacing)
    if isinstance(asked, Refusal):
        _cannot_use(workload, unbound, job, asked.message, this_pass, replacing=replacing)
        return
    if missing := shortfall(asked, job.grant):
        exclude = job.grant.nodes[0].name if len(job.grant.nodes) == 1 else ""
        why = f"Slurm granted it without {missing}"
        _cannot_use(workload, unbound, job, why, this_pass, replacing=replacing, exclude=exclude)
        return
    if not replacing and _too_long_bound(workload, this_pass):
        within = f"within {this_pass.tuning.gang_bind_deadline_s:g} s (tuning: gang_bind_deadline_s)"
        bound = len(workload.members) - len(unbound)
        _release_grant(
            workload, job, this_pass, f"only {bound} of the {len(workload.members)} pods could be bound {within}"
        )
        return
    _place(workload, unbound, job, asked, this_pass, replacing=replacing)
    cancel_twins(workload, job, this_pass)


def _not_now(unbound: Sequence[Pod], job: Placeholder, this_pass: Pass) -> str:
    """Why nobody is to be bound to what it holds for the moment; "": nothing is in the way."""
    if "SUSPENDED" in job.states:  # what it holds may be another's meanwhile (S6)
        return f"an admin suspended Slurm job {job.id} (scontrol resume {job.id} ends that)"
    if "SIGNALING" in job.states and job.job is not None and job.job.preempted is not None:  # and soon over (S5)
        return f"Slurm preempts job {job.id}"
    for pod in unbound:
        if pod.uid in this_pass.world.may_land and job.grant is not None and not _on_its_way(pod, job.grant, this_pass):
            return f"the answer to an earlier bind of {pod.full_name} was lost; it is looked at as soon as that has settled"
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
) -> None:
    """The grant does not serve these pods: give it back.  If other members run in it, these pods wait and say why (W5).

    exclude   Slurm node that is not asked for again for a while (F6)
    """
    if not replacing:
        _release_grant(workload, job, this_pass, why, exclude=exclude)
        return
    for pod in unbound:
        message = f"It waits to take a place in job {job.id}. {why[:1].upper()}{why[1:].rstrip('.')}."
        say(this_pass, workload, pod, names.GRANT_WAITS, message)


def _asked(workload: Workload, job: Placeholder, this_pass: Pass, *, replacing: bool) -> JobSpec | Refusal:
    """What the job was asked for.  Of a job that another life asked for: what its pods ask for now.

    A replacement may ask for something else than the pod whose place it takes: it says nothing about the job.
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

    A pod that came, or was resized, after the job was asked for is compared with what its place was asked for (W5).
    """
    newcomers = {pod.uid for pod in unbound} - job.asked_for
    mine = [(part, pod) for part in parts or () for pod in part.members if pod.uid in newcomers]
    anew = f". To ask for all of them anew, delete the other pods of {workload.readable}, too"
    do = anew if len(unbound) < len(workload.members) else ""
    for part, pod in mine:
        own = translated(workload, pod, len(workload.members), this_pass)
        if isinstance(own, Refusal):
            return own.message
        if more := lacks(part.spec, own):
            return f"pod {pod.name} asks for {more}, more than its place in job {job.id} has{do}"
    return "" if found is not None else f"it has fewer places than {workload.readable} has pods{do}"


def _came_later(workload: Workload, unbound: Sequence[Pod], job: Placeholder) -> bool:
    """True if these pods take the places of others that were bound for the job before (W5).

    A gang is bound as a whole.  So pods are replacements once as many pods as the job was asked for have been bound for it,
    whatever any clock says.  Of the pods that an earlier life bound, some may be gone.  Then a replacement is a pod that the
    API server created after it bound another member, by its own clock; or after it created all of them, if it does not tell
    when it bound them.
    """
    if job.spec is not None and job.spec.required_nodes:  # asked for pods that stood on these nodes already (S7)
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
    """True unless the pod says that it was bound for another job.  What a bind wrote may not have been seen yet."""
    return pod.annotations.get(names.JOB_ID, str(job.id)) == str(job.id)


def _too_long_bound(workload: Workload, this_pass: Pass) -> bool:
    """Some are bound, and the others have had their time (V4)."""
    if not any(workload.node_of(pod) for pod in workload.members):
        return False
    until = max(workload.first_bound_at, this_pass.world.started) + this_pass.tuning.gang_bind_deadline_s
    if this_pass.now < until:
        this_pass.wake_at(workload.key, until)
    return this_pass.now >= until


def _not_allowed(pod: Pod, workload: Workload, job: Placeholder, this_pass: Pass) -> str:
    """Why the pod may not use that job, in words; "": it may.

    A job that this process did not make may have been made under another policy, or by its user himself (V8).  Its user may
    also change the account, partition or QOS of a job while the job waits: what the bridge asked for stays allowed.
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
) -> None:
    """No member is bound until every place is fit; then all binds go out together (W9, F6).

    replacing   the others run: nothing of what they stand on is given back, whatever is in the way of these
    """
    assert job.grant is not None
    world = this_pass.world
    stands = {
        pod.uid: world.in_slurm(stand)
        for pod in workload.unfinished
        if (stand := workload.node_of(pod) or _on_its_way(pod, job.grant, this_pass))
    }
    leaving = [pod for pod in workload.unfinished if pod.deleting_at is not None]
    parts = _parts(workload, asked, job.grant, this_pass)
    found = places(parts, stands, [stands[pod.uid] for pod in leaving]) if parts is not None else None
    if found is None and leaving:
        who = ", ".join(sorted(pod.full_name for pod in leaving)[:3])
        still = f"{who} still {'terminates' if len(leaving) == 1 else 'terminate'}"
        for pod in unbound:
            say(this_pass, workload, pod, names.GRANT_WAITS, f"The bind for Slurm job {job.id} waits: {still}.")
        return
    if why := _unplaceable(workload, unbound, job, parts, found, this_pass):
        _cannot_use(workload, unbound, job, why, this_pass, replacing=replacing)
        return
    assert parts is not None, "places were found"
    assert found is not None, "places were found"
    since = job.granted_at if job.granted_at is not None else this_pass.now
    taken: dict[str, NodeInfo] = {}
    until, waits = float("-inf"), ""
    for pod in unbound:
        granted = found[pod.uid].node.name
        name = world.by_slurm_name.get(granted, "")
        node = (world.nodes or {}).get(name)
        here = taken.setdefault(name, NodeInfo())
        there = this_pass.standing(name)
        obstacle = _contested(granted, this_pass) or blocked(pod, node, name or granted, [*there, here])
        obstacle = obstacle or _unfit(pod, job, node, granted, this_pass)
        obstacle = obstacle or _may_be_taken(workload, pod, node, [*there, here], this_pass)
        if obstacle is not None and replacing:
            obstacle = Blocked(
                obstacle.why, obstacle.until if obstacle.until is not None else this_pass.now + RETRY_PLACE_S
            )
        elif obstacle is not None and (obstacle.until is None or this_pass.now >= max(obstacle.until, since)):
            _release_grant(workload, job, this_pass, obstacle.why, exclude=granted)
            return
        if obstacle is not None and obstacle.until is not None and obstacle.until > until:
            until, waits = obstacle.until, f"Slurm job {job.id} was granted {granted}; the bind waits: {obstacle.why}."
        if not any(pod.uid in each.pods for each in there):  # it may be bound there already, who knows
            here.put(pod)
    if waits:
        for pod in unbound:
            say(this_pass, workload, pod, names.GRANT_WAITS, waits)
        this_pass.wake_at(workload.key, until)
    elif not _volumes_wait(workload, unbound, job, found, this_pass, replacing=replacing):
        gpus = _gpus(workload, unbound, found, parts, stands, this_pass)
        _send_binds(workload, unbound, job, found, gpus, this_pass, replacing=replacing)


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
) -> bool:
    """Volumes that are made where their pod goes: tell where that is, and wait for them, not for ever (F4).

    A replacement waits for as long as it takes: the grant is not given back while other members run in it.
    """
    world = this_pass.world
    pending = {pod.uid: pod for pod in pods if any(claim.waits for claim in world.claims.get(pod.uid, ()))}
    if not pending:
        return False
    since = job.granted_at if job.granted_at is not None else world.started
    if not replacing and this_pass.now >= since + this_pass.tuning.claims_s:
        first = next(iter(pending.values()))
        where = found[first.uid].node.name
        _release_grant(
            workload, job, this_pass, f"the volumes of {first.full_name} were not made on {where}", exclude=where
        )
        return True
    for pod in pending.values():
        claims = world.claims[pod.uid]
        node = world.by_slurm_name[found[pod.uid].node.name]
        waiting = tuple(claim.name for claim in claims if claim.waits)
        told = all(claim.selected == node for claim in claims if claim.waits)
        next_at = max(
            workload.wait_until, world.claims_read_at[pod.uid] + this_pass.tuning.claims_every_s if told else 0.0
        )
        if this_pass.now < next_at:
            this_pass.wake_at(workload.key, next_at)
        elif not this_pass.being_read(pod.uid):
            why = f"the volumes of {pod.full_name} are to be made on {node}"
            if told:
                this_pass.add(act.ReadClaims(workload.key, pod.uid, pod.namespace, pod.claims, why), workload.key)
            else:
                asked = act.SelectVolumeNode(workload.key, pod.uid, pod.namespace, pod.claims, waiting, node, why)
                this_pass.add(asked, workload.key)
        message = f"Slurm job {job.id} was granted {node}; the bind waits for volumes there: {', '.join(waiting)}."
        say(this_pass, workload, pod, names.GRANT_WAITS, message)
    return True


def _on_its_way(pod: Pod, grant: Grant, this_pass: Pass) -> str:
    """Where of this grant a bind puts it that is under way, or of which nobody knows whether it happened."""
    name = this_pass.world.assumed.get(pod.uid, "")
    node = (this_pass.world.nodes or {}).get(name)
    return name if node is not None and any(each.name == slurm_name(node) for each in grant.everywhere) else ""


def _gpus(
    workload: Workload,
    pods: Sequence[Pod],
    found: Mapping[str, Place],
    parts: Sequence[Part],
    stands: Mapping[str, str],
    this_pass: Pass,
) -> Mapping[str, str]:
    """What each is told of its GPUs, where somebody goes by it (G1).  stands: UID to Slurm's name of the node."""
    if not this_pass.world.config.device_driver:
        return {}
    held = []
    for pod in workload.unfinished:
        told = told_of(workload, pod, names.JOB_GPUS)
        if told and pod.uid in stands:
            held.append((stands[pod.uid], told))
    return dealt(by_rank(pods), found, parts, held)


def _send_binds(
    workload: Workload,
    pods: Sequence[Pod],
    job: Placeholder,
    found: Mapping[str, Place],
    gpus: Mapping[str, str],
    this_pass: Pass,
    *,
    replacing: bool,
) -> None:
    """Bind them, later if the last attempt failed.  A grant whose binds are refused again and again is given back (W9)."""
    if not replacing and any(job.bind_refused[pod.uid] >= MAX_BIND_FAILURES for pod in pods):
        _release_grant(workload, job, this_pass, "Kubernetes refused the bind again and again")
        return
    if this_pass.now < workload.wait_until:
        this_pass.wake_at(workload.key, workload.wait_until)
        if job.bind_trouble and workload.failures >= SAID_AFTER_FAILURES:
            for pod in pods:
                message = f"The bind for Slurm job {job.id} failed and is tried again: {job.bind_trouble}"
                say(this_pass, workload, pod, names.GRANT_WAITS, message, warning=True)
        return
    common, asked_at = _common_keys(workload, job, this_pass), _asked_at(job, this_pass)
    for pod in pods:
        place = found[pod.uid]
        name = this_pass.world.by_slurm_name[place.node.name]
        bind = act.BindPod(
            workload.key,
            pod.uid,
            pod.namespace,
            pod.name,
            name,
            job.id,
            _keys_of(pod, place, gpus, common),
            reason=f"Slurm job {job.id} was granted {place.node.name}",
            created=min(this_pass.world.born(pod), asked_at) if asked_at is not None else this_pass.world.born(pod),
            asked=asked_at,
            granted=job.granted_at,
            message=f"Bound to {name} by Slurm job {job.id}.",
        )
        if not this_pass.add(bind, workload.key, together=len(pods) > 1):
            return


def _asked_at(job: Placeholder, this_pass: Pass) -> float | None:
    """When Slurm was asked for it, by the bridge's clock, whichever life did; None: not read yet."""
    if job.asked_at is not None or job.job is None or job.job.submitted is None:
        return job.asked_at
    return this_pass.from_slurm(job.job.submitted)


def _contested(granted: str, this_pass: Pass) -> Blocked | None:
    """Several Kubernetes nodes claim to be that node of Slurm: a pod may not land on the wrong one."""
    claims = this_pass.world.contested.get(granted)
    return Blocked(f"the nodes {', '.join(claims)} of Kubernetes claim to be Slurm's {granted}") if claims else None


def _unfit(pod: Pod, job: Placeholder, node: Node | None, granted: str, this_pass: Pass) -> Blocked | None:
    """Labels and taints may have changed since the job was made; a job of a previous life may know of none (F6)."""
    if node is None or (job.spec is None and job.job is None):
        return None
    world = this_pass.world
    closed = world.closed_to(pod, world.company("", [pod]))
    wanted = demand(pod, JobSpec("", "", 1, 1), "", world.volumes_of(pod), closed)
    why = miss(wanted, node, (world.slurm_nodes or {}).get(granted))
    with_it = this_pass.assumed.get(node.name)  # bound there by this pass: the world does not show them yet
    if why is None and with_it is not None and shun(pod, with_it.pods.values()):
        why = CLOSED
    return Blocked(f"node {node.name} is {why}") if why else None


def _may_be_taken(
    workload: Workload, pod: Pod, node: Node | None, there: Sequence[NodeInfo], this_pass: Pass
) -> Blocked | None:
    """After a restart: a bind of the earlier life may still land, and leave this pod no room (V3).

    there   pods that are bound to the node
    """
    landing = this_pass.landing(node.name, workload.key) if node is not None else []
    if node is None or not landing:
        return None
    if blocked(pod, node, node.name, [*there, *landing]) is None and not _may_shun(pod, landing, this_pass):
        return None
    why = f"slurm-bridge has just started, and a bind that it sent before may still put another pod on node {node.name}"
    return Blocked(why, this_pass.world.quiet_until())


def _may_shun(pod: Pod, landing: Sequence[NodeInfo], this_pass: Pass) -> bool:
    """True if anti-affinity keeps the pod away from one of these; also where that would take long to know."""
    others = [other for each in landing for other in each.pods.values()]
    terms = len(pod.apart) * len(others) + sum(len(other.apart) for other in others)
    this_pass.effort += 1 + min(terms, MOST_COMPARED) // COMPARED_PER_NODE
    return terms > MOST_COMPARED or shun(pod, others)


def _common_keys(workload: Workload, job: Placeholder, this_pass: Pass) -> Mapping[str, str]:
    """The annotations that go with the bind and are there before a container starts (K4): those of the workload."""
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
    keys[names.JOB_GPUS] = gpus.get(pod.uid, "")  # always: what somebody else wrote there does not survive the bind
    if names.TRACEPARENT in pod.annotations:
        del keys[names.TRACEPARENT]
    return keys


def _release_grant(workload: Workload, job: Placeholder, this_pass: Pass, why: str, exclude: str = "") -> None:
    """The grant cannot be used: end the job, say so, and ask again without that node (S11, F6).

    Of a gang of which some are bound that is to unwind it: they follow their job (W9, V4).
    """
    message = f"Slurm job {job.id} was given back, nodes are asked for again: {why.rstrip('.')}."
    before = len(this_pass.actions)
    cancel(job, workload, this_pass, f"given back: {why}", told=message)
    if len(this_pass.actions) > before:
        this_pass.exclude(workload.key, exclude)

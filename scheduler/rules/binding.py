"""Binds pods to the nodes of their grant, waits until they have room there, or releases the grant (S1, S11, F6, W9).

Right before the bind, each granted node and the room there are checked again (scheduler/place/fit.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler import actions as act
from scheduler import names
from scheduler.model.hostlist import folded
from scheduler.model.kubernetes import Pod, PodTerm
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, JobSpec, tasks_of
from scheduler.place.affinity import NOWHERE
from scheduler.place.assign import Part, Place, lacks, places
from scheduler.place.devices import assigned_gpus
from scheduler.place.feasible import slurm_name
from scheduler.place.fit import Blocked, Site, obstacle
from scheduler.place.sharing import selected_by
from scheduler.rules.decision import NOTHING, BindTogether, Decision, combine, note, wake
from scheduler.rules.identity import cancel, read_job
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import statuses
from scheduler.rules.submission import asked_by, translated
from scheduler.rules.volumes import await_volumes, users_of_volumes, why_in_use, why_not_made
from scheduler.state.named_job import names_job, shown_number
from scheduler.state.own_keys import own_annotation, without_edits
from scheduler.state.placeholder import MAX_BIND_FAILURES, Placeholder
from scheduler.state.workload import Workload
from scheduler.translate.gang import SHAPE, components
from scheduler.translate.grouping import by_rank

RETRY_PLACE_S = 5.0  # a member of a running gang whose place is taken tries again after this time
PREPARES_S = 3.0  # if Slurm prepares the nodes of a job for longer, the pods show that their bind waits for it
KUBELET_STARTS_S = 60.0  # a node that Slurm powered up for the job may start its kubelet after its slurmd
SHOWN_AFTER_FAILURES = 3  # after this many failed binds in a row, the pod shows the failure
LOOK_AGAIN_S = 0.5  # a bind that waits for a poll looks for it after this time


@dataclass(frozen=True, slots=True)
class Binding:
    """Pods that are to be bound to the nodes of their job.

    unfinished  the pods of the workload that run, wait or terminate; members: the pods among them that count (W5)
    unbound     the members to bind
    nodes       UID to Kubernetes node, of the pods that have a node
    replacing   the other members run: the grant is not released, even if these pods cannot be bound
    """

    workload: Workload
    job: Placeholder
    grant: Grant
    unfinished: Sequence[Pod]
    members: Sequence[Pod]
    unbound: Sequence[Pod]
    nodes: Mapping[str, str]
    replacing: bool


def place_and_bind(binding: Binding, asked: JobSpec, this_pass: Pass) -> Decision:
    """Bind no member until every place fits; then send all binds together (W9, F6)."""
    bound_to = _nodes_taken(binding, this_pass)
    leaving = [pod for pod in binding.unfinished if pod.deleting_at is not None]
    parts = _parts(binding, asked, bound_to, this_pass)
    found = None
    if parts is not None:
        terminating = [bound_to[pod.uid] for pod in leaving]
        found = places(parts, bound_to, terminating, ranks=_ranks_of_bound(binding, bound_to), size=_size(binding))
    if found is None and leaving:
        pods = ", ".join(sorted(pod.full_name for pod in leaving)[:3])
        still = f"{pods} still {'terminates' if len(leaving) == 1 else 'terminate'}"
        return _waits(binding, f"The bind for Slurm job {binding.job.id} waits: {still}.", this_pass)
    if why := _unplaceable(binding, parts, found, this_pass):
        return cannot_use(binding, why, this_pass)
    assert parts is not None, "places were found"
    assert found is not None, "places were found"
    if (waits := _obstructed(binding, found, this_pass)) is not None:
        return waits
    if (waits := _volumes_wait(binding, found, this_pass)) is not None:
        return waits
    return _send_binds(binding, found, parts, bound_to, this_pass)


def _nodes_taken(binding: Binding, this_pass: Pass) -> Mapping[str, str]:
    """UID to the node's name in Slurm, of each pod that is bound, or that a bind in flight may bind."""
    taken = {
        pod.uid: binding.nodes.get(pod.uid) or on_its_way(pod, binding.grant, this_pass) for pod in binding.unfinished
    }
    return {uid: this_pass.world.in_slurm(node) for uid, node in taken.items() if node}


def _ranks_of_bound(binding: Binding, bound_to: Mapping[str, str]) -> Mapping[str, tuple[int, int]]:
    """UID to (rank, local rank), of each member that is bound, or that a bind in flight may bind.

    A member is left out if its annotations show no ranks: another client changed them while no bridge ran.
    """
    found = {}
    for pod in binding.members:
        if pod.uid in bound_to:
            keys = (names.RANK, names.LOCAL_RANK)
            rank, local_rank = (shown_number(own_annotation(binding.workload, pod, key)) for key in keys)
            if rank is not None and local_rank is not None:
                found[pod.uid] = rank, local_rank
    return found


def _size(binding: Binding) -> int:
    """The number of pods of the gang; of a running gang, of which pods may be missing now, as its job was submitted."""
    asked = binding.job.spec or binding.job.job
    if not binding.replacing or asked is None:
        return len(binding.members)
    return max(len(binding.members), tasks_of(asked))


def _obstructed(binding: Binding, found: Mapping[str, Place], this_pass: Pass) -> Decision | None:
    """The decision if an obstacle prevents a bind: wait for some time, then release the grant.  None: no obstacle."""
    world, job, unbound = this_pass.world, binding.job, binding.unbound
    sites = {name: _site(name, this_pass) for name in {found[pod.uid].node.name for pod in unbound}}
    beside = _selected_beside(binding, found) if any(pod.affinity for pod in unbound) else {}
    until, waits = float("-inf"), ""
    for pod in unbound:
        granted = found[pod.uid].node.name
        site = sites[granted]
        closed = NOWHERE
        if this_pass.any_affinity:
            closed = world.closed_to(pod, replace(world.own_pods("", [pod]), selected=beside.get(granted, {})))
        blocked = obstacle(pod, site, world.volumes_of(pod) if pod.claims else (), closed)
        if blocked is None and (earlier := this_pass.earlier_binds) is not None:
            blocked = earlier.obstacle(pod, binding.workload.key, site.node, site.pods, this_pass.binding)
        if blocked is not None and not (blocked.not_ready and "CONFIGURING" in job.states):  # the node boots
            ends = _waits_until(blocked, binding, this_pass)
            if ends is None:
                return release_grant(binding.workload, job, this_pass, blocked.why, exclude=granted)
            if ends > until:
                until, waits = ends, f"Slurm job {job.id} was granted {granted}; the bind waits: {blocked.why}."
        if len(unbound) > 1:  # the next pod may get the same node
            site.expect(pod)
    return _waits(binding, waits, this_pass) + wake(until) if waits else None


def _selected_beside(binding: Binding, found: Mapping[str, Place]) -> Mapping[str, Mapping[PodTerm, Pod | None]]:
    """For each node, by its name in Slurm: the affinity terms that select members there, as `OwnPods.selected` (F5)."""
    members: dict[str, list[Pod]] = {}
    for pod in binding.members:
        members.setdefault(found[pod.uid].node.name, []).append(pod)
    terms = dict.fromkeys(term for pod in binding.unbound for term in pod.affinity)
    return {node: selected_by(terms, pods) for node, pods in members.items()}


def _waits_until(blocked: Blocked, binding: Binding, this_pass: Pass) -> float | None:
    """Until when the bind waits for the obstacle to disappear; None: it waits no longer."""
    until = _boots_until(binding.job) if blocked.not_ready else blocked.until
    if until is not None and this_pass.now < until:
        return until
    return this_pass.now + RETRY_PLACE_S if binding.replacing else None


def _boots_until(job: Placeholder) -> float | None:
    """Until when a node of the job may be about to become ready, because Slurm powered it up; None: Slurm did not."""
    return job.prepared_at + KUBELET_STARTS_S if job.prepared_at is not None else None


def _site(granted: str, this_pass: Pass) -> Site:
    """The granted node as both clusters show it now.  granted: its name in Slurm"""
    world = this_pass.world
    name = world.by_slurm_name.get(granted, "")
    return Site(
        granted,
        (world.nodes or {}).get(name),
        (world.slurm_nodes or {}).get(granted),
        world.contested.get(granted, ()),
        world.node_info.get(name),
        this_pass.assumed.get(name),
    )


def _unplaceable(
    binding: Binding, parts: Sequence[Part] | None, found: Mapping[str, Place] | None, this_pass: Pass
) -> str:
    """Why these pods cannot take the places that the job holds, in words; "": they can.

    If a pod was created or resized after the submission, it is compared with the specification of its place (W5).
    """
    workload, job, members = binding.workload, binding.job, binding.members
    place_of = {pod.uid: part.spec for part in parts or () for pod in part.members}
    advice = f". To submit all of them again, delete the other pods of {workload.readable}, too"
    do = advice if len(binding.unbound) < len(members) else ""
    for pod in binding.unbound:
        if pod.uid in job.asked_for:
            continue
        own = translated(workload, pod, len(members), this_pass)
        if isinstance(own, Refusal):
            return own.message
        if pod.uid in place_of and (more := lacks(place_of[pod.uid], own)):
            return f"pod {pod.name} asks for {more}, more than its place in job {job.id} has{do}"
    return "" if found is not None else f"it has fewer places than {workload.readable} has pods{do}"


def in_order_of_grant(
    binding: Binding, asked: JobSpec, asked_by_pod: list[tuple[Pod, JobSpec]], this_pass: Pass
) -> JobSpec:
    """The specification with its components in the order of the grant.

    asked         the job for the pods as they are now.  Its components are in the order of ranks, which a replacement may
                  change
    asked_by_pod  each of these pods with its own job
    """
    known = _components_known(binding, _nodes_taken(binding, this_pass))
    indexes = [next((known[pod.uid] for pod in pods if pod.uid in known), None) for _, pods in components(asked_by_pod)]
    free = iter(sorted(set(range(len(indexes))) - set(indexes)))
    order = [index if index is not None else next(free) for index in indexes]
    if len(set(order)) < len(order):  # pods of two components ask for the same now
        return asked
    specs = dict(zip(order, (replace(asked, parts=()), *asked.parts), strict=True))
    head, *parts = (specs[index] for index in sorted(specs))
    return replace(head, parts=tuple(parts))


def _components_known(binding: Binding, bound_to: Mapping[str, str]) -> dict[str, int]:
    """UID to index of the component, of pods that the submission named, and of pods on the nodes of one component.

    bound_to   UID to Slurm's name of the node.  Components never share a node (Slurm facts 11).
    """
    job, grant = binding.job, binding.grant
    of_node = {node.name: index for index, component in enumerate((grant, *grant.parts)) for node in component.nodes}
    return {**job.components, **{uid: of_node[node] for uid, node in bound_to.items() if node in of_node}}


def _parts(binding: Binding, asked: JobSpec, bound_to: Mapping[str, str], this_pass: Pass) -> list[Part] | None:
    """The members of each component, and the nodes granted to it; None: the pods have other shapes than the job.

    A replacement belongs to the component of its shape, whatever its rank is.
    """
    grant = binding.grant
    if not asked.parts:
        return [Part(asked, grant.nodes, binding.members)]
    specs = (asked, *asked.parts)
    known = _components_known(binding, bound_to)
    if not all(pod.uid in known for pod in binding.members):
        now = asked_by(binding.workload, this_pass)
        if isinstance(now, Refusal):
            return None
        unlike = list[Sequence[Pod]]()
        for spec, pods in components(now):
            index = _component_of(spec, pods, specs, known)
            if index is None:
                unlike.append(pods)
            else:
                known |= {pod.uid: index for pod in pods if pod.uid not in known}
        empty = sorted(set(range(len(specs))) - {known[pod.uid] for pod in binding.members if pod.uid in known})
        if len(unlike) > len(empty):
            return None
        known |= {pod.uid: index for index, pods in zip(empty, unlike, strict=False) for pod in pods}
    members: list[list[Pod]] = [[] for _ in specs]
    for pod in binding.members:
        members[known[pod.uid]].append(pod)
    granted = zip(specs, (grant, *grant.parts), members, strict=True)
    return [Part(spec, part.nodes, pods) for spec, part, pods in granted]


def _component_of(spec: JobSpec, pods: Sequence[Pod], specs: Sequence[JobSpec], known: Mapping[str, int]) -> int | None:
    """The index of the only component of this shape, or of the component of one of these pods; None: neither is known."""
    for fields in (SHAPE, SHAPE - {"excluded_nodes"}):  # excluded nodes change with time
        alike = [
            index
            for index, other in enumerate(specs)
            if all(getattr(other, name) == getattr(spec, name) for name in fields)
        ]
        if len(alike) == 1:
            return alike[0]
    return next((known[pod.uid] for pod in pods if pod.uid in known), None)


def _volumes_wait(binding: Binding, found: Mapping[str, Place], this_pass: Pass) -> Decision | None:
    """Select the node for volumes that wait for it, and wait until they are made there, for a limited time (F4).

    A replacement waits without limit: the grant is not released while other members run in it.  None: no volume is missing.
    """
    world, job = this_pass.world, binding.job
    if not (with_claims := [pod for pod in binding.unbound if pod.claims]):
        return None
    if (used := next(users_of_volumes(with_claims, this_pass), None)) is not None:
        return _volume_in_use(binding, *used, this_pass)
    pending = {pod.uid: pod for pod in with_claims if any(claim.waits for claim in world.claims.get(pod.uid, ()))}
    if not pending:
        return None
    if not binding.replacing and volumes_are_late(job, this_pass):
        first = next(iter(pending.values()))
        where = found[first.uid].node.name
        why = f"the volumes of {first.full_name} were not made on {where}. {why_not_made(first, this_pass)}".rstrip(
            ". "
        )
        return release_grant(binding.workload, job, this_pass, why, exclude=where)
    nodes = {uid: world.by_slurm_name[found[uid].node.name] for uid in pending}
    awaited = combine(await_volumes(binding.workload, pod, job, nodes[pod.uid], this_pass) for pod in pending.values())
    return awaited + _read_meanwhile(binding.workload, job, this_pass)


def _volume_in_use(binding: Binding, pod: Pod, claim: str, user: Pod, this_pass: Pass) -> Decision:
    """Wait for a terminating pod that uses a claim which only one pod at a time may use; otherwise release the grant (F4)."""
    why = why_in_use(pod, claim, user)
    if user.deleting_at is None or volumes_are_late(binding.job, this_pass):
        return cannot_use(binding, why, this_pass)
    shown = _waits(binding, f"The bind for Slurm job {binding.job.id} waits: {why}.", this_pass)
    return wake(volumes_awaited_until(binding.job, this_pass)) + shown


def volumes_are_late(job: Placeholder, this_pass: Pass) -> bool:
    """True if the job has held its nodes for so long that volumes are not waited for any more (F4)."""
    return this_pass.now >= volumes_awaited_until(job, this_pass)


def volumes_awaited_until(job: Placeholder, this_pass: Pass) -> float:
    """Until when the grant is kept for volumes, by the bridge's clock (F4)."""
    since = job.granted_at if job.granted_at is not None else this_pass.world.started
    return since + this_pass.tuning.claims_s


# --- a grant that cannot be used ----------------------------------------------------------------------------


def cannot_use(binding: Binding, why: str, this_pass: Pass, *, exclude: str = "") -> Decision:
    """Release a grant that these pods cannot use.  If other members run in it, these pods wait instead and show why (W5).

    exclude   the Slurm node that the workload does not ask for again for a while (F6)
    """
    if not binding.replacing:
        return release_grant(binding.workload, binding.job, this_pass, why, exclude=exclude)
    message = f"The pod waits for a place in job {binding.job.id}. {why[:1].upper()}{why[1:].rstrip('.')}."
    return _waits(binding, message, this_pass)


def release_grant(workload: Workload, job: Placeholder, this_pass: Pass, why: str, exclude: str = "") -> Decision:
    """The grant cannot be used: end the job, show why, and ask again without that node (S11, F6).

    If some pods of a gang are bound, they end with the job (W9, V4).  A bind without an answer may still take effect, so the
    job is kept until its pod was read (ARCHITECTURE 6).
    """
    if (waits := _await_binds(workload, job, this_pass, why)) is not None:
        return waits
    message = f"Slurm job {job.id} was released, and nodes are requested again: {why.rstrip('.')}."
    ended = cancel(job, workload, this_pass, f"released: {why}", pod_message=message)
    return ended.followed_by(if_planned=note(exclude=exclude))


def _await_binds(workload: Workload, job: Placeholder, this_pass: Pass, why: str) -> Decision | None:
    """Keep the grant while the outcome of a bind is unknown.  None: the outcome of each bind is known."""
    unanswered = this_pass.world.unanswered_binds
    pods = [pod for pod in workload.unfinished if pod.uid in unanswered and unanswered[pod.uid].action.job_id == job.id]
    if not pods:
        return None
    shown = f"Slurm job {job.id} cannot be used: {why.rstrip('.')}. It is kept until it is known if the pod was bound for it."
    return bind_waits(workload, job, pods, shown, this_pass)


def _waits(binding: Binding, message: str, this_pass: Pass, *, warning: bool = False) -> Decision:
    return bind_waits(binding.workload, binding.job, binding.unbound, message, this_pass, warning=warning)


def bind_waits(
    workload: Workload, job: Placeholder, pods: Iterable[Pod], message: str, this_pass: Pass, *, warning: bool = False
) -> Decision:
    """Show on each of these pods why its bind waits.  Meanwhile, read the job if it was never read."""
    shown = statuses(pods, names.GRANT_WAITS, message, warning=warning)
    return shown + _read_meanwhile(workload, job, this_pass)


def _read_meanwhile(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Read the job while its bind waits, if it was never read: its user may rename it.

    Only a job that was read before is known, and ended, by its new name (docs/decisions/0003).
    """
    why = f"job {job.id} is read while its bind waits"
    return read_job(job, workload, this_pass, why) if job.job is None else NOTHING


def on_its_way(pod: Pod, grant: Grant, this_pass: Pass) -> str:
    """The node of this grant to which a bind in flight, or with an unknown outcome, binds the pod; "": none."""
    name = this_pass.world.assumed.get(pod.uid, "")
    node = (this_pass.world.nodes or {}).get(name)
    return name if node is not None and any(granted.name == slurm_name(node) for granted in grant.everywhere) else ""


# --- what the bind writes -------------------------------------------------------------------------------------------


def _send_binds(
    binding: Binding,
    found: Mapping[str, Place],
    parts: Sequence[Part],
    bound_to: Mapping[str, str],
    this_pass: Pass,
) -> Decision:
    """Bind these pods, later if the last attempt failed.  If binds are refused again and again, release the grant (W9)."""
    workload, job, unbound = binding.workload, binding.job, binding.unbound
    if not binding.replacing and any(job.bind_refused[pod.uid] >= MAX_BIND_FAILURES for pod in unbound):
        why = ": ".join(filter(None, ("the bind failed again and again", job.bind_trouble)))
        return release_grant(workload, job, this_pass, why)
    if (waits := _nodes_are_prepared(binding, this_pass)) is not None:
        return waits
    if (waits := _cancel_may_take_effect(binding, this_pass)) is not None:
        return waits
    if this_pass.now < workload.backoff.until:
        message = f"The bind for Slurm job {job.id} failed and is tried again: {job.bind_trouble}"
        is_shown = job.bind_trouble and workload.backoff.failures >= SHOWN_AFTER_FAILURES
        return wake(workload.backoff.until) + (
            _waits(binding, message, this_pass, warning=True) if is_shown else NOTHING
        )
    gpus = _gpus(binding, found, parts, bound_to) if this_pass.world.config.device_driver else {}
    common = _common_keys(binding, parts, this_pass)
    binds = []
    for pod, created_at in zip(unbound, this_pass.world.created(unbound), strict=True):
        place = found[pod.uid]
        binds.append(_bind_of(binding, pod, place, _keys_of(pod, place, gpus, common), created_at, this_pass))
    return Decision((BindTogether(tuple(binds)),))


def _nodes_are_prepared(binding: Binding, this_pass: Pass) -> Decision | None:
    """The wait while Slurm powers up the nodes of the job or runs its prolog: until then it may fail (S1).  None: no wait.

    A prolog often takes milliseconds, so the wait is shown only if it lasts.
    """
    job = binding.job
    if "CONFIGURING" not in job.states:
        return None
    doing = "powers up" if "POWER_UP_NODE" in job.states else "prepares"
    nodes = folded(node.name for node in binding.grant.everywhere)
    why = f"The bind waits: Slurm {doing} {nodes} for job {job.id} (CONFIGURING)."
    shown_from = job.states_since + PREPARES_S
    if this_pass.now < shown_from:
        return wake(shown_from, why)
    return _waits(binding, why, this_pass)


def _cancel_may_take_effect(binding: Binding, this_pass: Pass) -> Decision | None:
    """The wait while a cancel that was sent before may still end the job, and the pods with it.  None: no cancel may.

    The answer to a cancel was lost; or a previous process made the job, or a former job of its id and name, and may have
    cancelled it just before it was killed.  But if it bound a pod of the gang for this job, not for the former one, it used
    the grant, and the other members must not come late (W9).  Once no such cancel can take effect any more, a poll or a read
    has to show that the job lives.
    """
    world, job = this_pass.world, binding.job
    is_new = job.asked_at is not None and (job.id, job.key) not in world.earlier_jobs
    bound = (without_edits(binding.workload, pod) for pod in binding.workload.pods.values() if pod.uid in binding.nodes)
    is_used = is_new or any(names_job(pod, job, world) for pod in bound)
    sent_before = float("-inf") if is_used else world.quiet_until()
    lost_until = world.lost_cancels.get((job.id, job.key), float("-inf"))
    until = max(lost_until, sent_before)
    if job.read_began >= until or world.last_poll_began >= until:
        return None
    why = (
        f"the answer to a cancel of Slurm job {job.id} was lost, so the job may still end"
        if lost_until >= sent_before
        else f"slurm-bridge has just started, and a cancel that it sent before may still end Slurm job {job.id}"
    )
    # At once, because the wait may take 12 s (L1).
    shown = _waits(binding, f"The bind waits: {why}.", this_pass)
    return shown + wake(max(until, this_pass.now + LOOK_AGAIN_S))


def _gpus(
    binding: Binding, found: Mapping[str, Place], parts: Sequence[Part], bound_to: Mapping[str, str]
) -> Mapping[str, str]:
    """The GPUs of each pod, for its annotation, which a device driver reads (G1).  bound_to: UID to Slurm node name"""
    held = []
    for uid, node in bound_to.items():
        if assigned := own_annotation(binding.workload, binding.workload.pods[uid], names.JOB_GPUS):
            held.append((node, assigned))
    return assigned_gpus(by_rank(binding.unbound), found, parts, held)


def _bind_of(
    binding: Binding, pod: Pod, place: Place, annotations: Mapping[str, str], created: float, this_pass: Pass
) -> act.BindPod:
    """The bind of one pod.  created: when the pod was created, by the bridge's clock"""
    job, asked_at = binding.job, _asked_at(binding.job, this_pass)
    name = this_pass.world.by_slurm_name[place.node.name]
    return act.BindPod(
        binding.workload.key,
        pod.uid,
        pod.namespace,
        pod.name,
        name,
        job.id,
        annotations,
        reason=f"Slurm job {job.id} was granted {place.node.name}",
        created=min(created, asked_at) if asked_at is not None else created,
        asked=asked_at,
        granted=job.granted_at,
        message=f"Bound to {name} by Slurm job {job.id}." if _has_shown_a_wait(binding.workload, pod) else "",
    )


def _has_shown_a_wait(workload: Workload, pod: Pod) -> bool:
    """True if this process or a previous one has shown on the pod why it waits."""
    return pod.uid in workload.last_status or (pod.scheduled is not None and not pod.scheduled.status)


def _asked_at(job: Placeholder, this_pass: Pass) -> float | None:
    """When the job was submitted, by any process, by the bridge's clock; None: not read yet."""
    if job.asked_at is not None or job.job is None or job.job.submitted is None:
        return job.asked_at
    return this_pass.from_slurm(job.job.submitted)


def _common_keys(binding: Binding, parts: Sequence[Part], this_pass: Pass) -> Mapping[str, str]:
    """The annotations that the bind writes, before a container starts (K4), except those of each pod."""
    workload, size = binding.workload, _size(binding)
    stage = workload.group.stage if workload.group is not None else ""
    return {
        **({names.STAGE: stage} if stage else {}),
        names.JOB_ID: str(binding.job.id),
        names.JOB_NODES: folded(node.name for part in parts for node in part.nodes),
        names.SIZE: str(size),
        names.TRACEPARENT: names.traceparent(this_pass.world.cluster, workload.key),
    }


def _keys_of(pod: Pod, place: Place, gpus: Mapping[str, str], common: Mapping[str, str]) -> Mapping[str, str]:
    """The annotations of one pod.  If the pod has a `traceparent` already, it is kept."""
    keys = {**common, names.RANK: str(place.rank), names.LOCAL_RANK: str(place.local_rank)}
    keys[names.JOB_GPUS] = gpus.get(pod.uid, "")  # also "": it overwrites a value that another client wrote
    if names.TRACEPARENT in pod.annotations:
        del keys[names.TRACEPARENT]
    return keys

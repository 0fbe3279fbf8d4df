"""GRANTED: the job holds nodes to which pods are still to be bound (S1, W5, W9).

This file has the order of the checks before a bind; binding.py places the pods and binds them.  What the submission decided
is carried: the specification of the job, whose needs it names, and their tenant (Placeholder).
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler import names
from scheduler.events import Side
from scheduler.model.hostlist import folded
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, Job, JobSpec
from scheduler.model.text import span
from scheduler.place.assign import shortfall
from scheduler.place.feasible import slurm_name
from scheduler.policy.rules import Tenant, is_same
from scheduler.rules.binding import (
    LOOK_AGAIN_S,
    Binding,
    bind_waits,
    cannot_use,
    in_order_of_grant,
    on_its_way,
    place_and_bind,
    release_grant,
    volumes_are_late,
    volumes_awaited_until,
)
from scheduler.rules.decision import NOTHING, Decision, note, wake
from scheduler.rules.identity import (
    cancel,
    cancel_broken,
    cancel_of_earlier_pods,
    cancel_twins,
    cancel_twins_of_others,
    is_it_its_own,
    read_job,
    unproven_jobs,
)
from scheduler.rules.orphaned import end_pods_of_lost_jobs, pods_of_lost_jobs
from scheduler.rules.replacements import are_replacements
from scheduler.rules.restore_keys import restore
from scheduler.rules.running import watch
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.silent_nodes import end_job_of_silent_node, silent_until
from scheduler.rules.status import outage
from scheduler.rules.submission import (
    LONG_AGO,
    asked_by,
    claim_problem,
    is_managed,
    job_like_bound_pods,
    not_managed,
    one_job,
    read_first,
)
from scheduler.rules.uninstall import END, end_running, releases_grant, withdraw
from scheduler.state.named_job import shown_id
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload

CLAIMS_LATELY_S = 10.0  # volume claims that were read so long before the grant are read again before the bind


def granted(workload: Workload, this_pass: Pass) -> Decision:
    """Bind; the members of a gang that run already are watched meanwhile, however long the others wait for their places."""
    job = this_pass.world.job_of[workload.key]
    some_run = workload.pod_counts.unbound < workload.pod_counts.unfinished
    silent = silent_until(workload, this_pass) if some_run else None
    if silent is not None and this_pass.now >= silent:
        return end_job_of_silent_node(workload, job, this_pass)
    found = _by_its_grant(workload, job, this_pass, some_run=some_run)
    return wake(silent) + found if silent is not None else found


def _by_its_grant(workload: Workload, job: Placeholder, this_pass: Pass, *, some_run: bool) -> Decision:
    """Release the grant if it cannot be kept; otherwise bind the members that are not bound yet."""
    if this_pass.world.config.leaving and releases_grant(workload, this_pass):
        return withdraw(workload, job, this_pass)
    if this_pass.world.config.leaving == END:
        return end_running(workload, job, this_pass)
    if some_run and job.grant is not None and (pod := pod_elsewhere(workload, job, this_pass)) is not None:
        return cancel_elsewhere(workload, job, pod, this_pass)
    members = _bind(workload, job, this_pass)
    if some_run:
        members += end_pods_of_lost_jobs(workload, job, this_pass)
        watches = restore(workload, job, this_pass) + watch(workload, job, this_pass)
        # One thing at a time.  The next visit comes at once: it need not wait for the end of the planned actions.
        members = members.followed_by(if_planned=wake(this_pass.now), if_not=watches)
    twins = cancel_twins_of_others(workload, job, this_pass) if len(workload.jobs) > 1 else None
    return twins.followed_by(if_not=members) if twins is not None else members


def _bind(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Slurm gave nodes: bind, or wait for room, or release the grant (S1, S11, F6)."""
    if workload.in_flight is not None:
        return NOTHING
    world, members, unfinished, nodes = this_pass.world, workload.members, workload.unfinished, workload.nodes()
    unbound = [pod for pod in members if pod.uid not in nodes and pod.uid not in workload.pods_in_flight]
    if not unbound:
        return NOTHING
    if (first := _comes_first(workload, unbound, job, this_pass)) is not None:
        return first
    if job.grant is None or job.known_since < world.trust_since:  # slurmctld was away since: the id may be reused
        return read_job(job, workload, this_pass, f"which nodes did Slurm grant job {job.id}?")
    # The pods known from before this process led may lack a pod that takes the room; the next list wakes this workload.
    if world.pods_inherited:
        return Decision(why="The list of pods is read again, because another replica led before.")
    # The owners of pods that the submission names are read; their volumes may have changed since.  The job of a previous
    # process is compared with all of its pods, so those of the bound pods are read, too.
    compared = members if job.spec is None else unbound
    unread = [pod for pod in compared if pod.claims or pod.uid not in job.asked_for]
    replacing = any(pod.uid in nodes for pod in members) and are_replacements(workload, unbound, job)
    if (
        unread
        and (reads := read_first(workload, unread, this_pass, claims_since=_claims_since(job, this_pass))) is not None
    ):
        problem = "" if replacing else _lasting_problem(unbound, job, this_pass)
        if problem:
            return release_grant(workload, job, this_pass, problem)
        late_at = volumes_awaited_until(job, this_pass)
        return wake(late_at) + reads if this_pass.now < late_at else reads
    return _use_grant(Binding(workload, job, job.grant, unfinished, members, unbound, nodes, replacing), this_pass)


def _claims_since(job: Placeholder, this_pass: Pass) -> float:
    """When volume claims must have been read: they may have been deleted, lost or bound while the job waited (F4).

    If they cannot be read for as long as volumes are awaited, what was read of them before counts.
    """
    if job.granted_at is None or volumes_are_late(job, this_pass):
        return LONG_AGO
    return job.granted_at - CLAIMS_LATELY_S


def _lasting_problem(unbound: Sequence[Pod], job: Placeholder, this_pass: Pass) -> str:
    """Why a volume claim of these pods cannot be used, if the time for volumes is over (F4); "": their claims are awaited."""
    if not volumes_are_late(job, this_pass):
        return ""
    return claim_problem(unbound, this_pass.world)


def _comes_first(workload: Workload, unbound: Sequence[Pod], job: Placeholder, this_pass: Pass) -> Decision | None:
    """The decision if something has to be done or awaited before the grant is used; None: the grant can be used."""
    away = this_pass.world.outages.get(Side.SLURM)
    if away is not None and job.known_since < away.since:  # read before the outage: the job may have ended meanwhile
        return outage(unbound, away, f"The pod waits to be bound for job {job.id}.", this_pass)
    if job.broken:
        return cancel_broken(workload, job, this_pass)
    if job.spec is None and (ends := cancel_of_earlier_pods(workload, job, this_pass)) is not None:
        return ends
    if not_now := _not_now(unbound, job, this_pass):
        return bind_waits(workload, job, unbound, f"The bind waits: {not_now}.", this_pass, warning=True)
    return None


def _use_grant(binding: Binding, this_pass: Pass) -> Decision:
    """Bind these pods if the grant has what the job asked for.  All facts that a bind needs are known."""
    workload, job, members, unbound = binding.workload, binding.job, binding.members, binding.unbound
    if (polled_first := _lacks_nodes(binding, this_pass)) is not None:
        return polled_first
    if why_not := _not_allowed(binding, this_pass):
        return cannot_use(binding, why_not, this_pass)
    asked = _asked(binding, this_pass)
    if isinstance(asked, Refusal):
        return cannot_use(binding, asked.message, this_pass)
    if missing := shortfall(asked, binding.grant):
        exclude = binding.grant.nodes[0].name if len(binding.grant.nodes) == 1 else ""
        return cannot_use(binding, f"Slurm granted it without {missing}", this_pass, exclude=exclude)
    if why_not := _shares_devices(binding.grant, asked, this_pass):
        return cannot_use(binding, why_not, this_pass)
    until = _all_bound_by(binding, this_pass)
    if until is not None and this_pass.now >= until:
        within = f"within {span(this_pass.tuning.gang_bind_deadline_s)} (tuning: gang_bind_deadline_s)"
        bound = len(members) - len(unbound)
        why = f"only {bound:,} of the {len(members):,} pods could be bound {within}"
        return release_grant(workload, job, this_pass, why)
    placed = place_and_bind(binding, asked, this_pass)
    if len(workload.jobs) > 1:
        placed += cancel_twins(workload, job, this_pass) or NOTHING
    return wake(until) + placed if until is not None else placed


def _lacks_nodes(binding: Binding, this_pass: Pass) -> Decision | None:
    """Slurm may have got a granted node after the last poll of its nodes: they are polled before the grant is judged (F6).

    None: the last poll has those of its nodes that Kubernetes has, or it was sent after the grant, or no newer poll has come
    for a minute.
    """
    world = this_pass.world
    since = binding.job.granted_at if binding.job.granted_at is not None else world.started
    known = world.slurm_nodes or {}
    names_granted = {node.name for part in (binding.grant, *binding.grant.parts) for node in part.nodes}
    lacking = [name for name in names_granted if name in world.by_slurm_name and name not in known]
    is_newer = world.nodes_polled is not None and world.nodes_polled[0] >= since
    if not lacking or is_newer or this_pass.now >= since + this_pass.tuning.exclude_s:
        return None
    why = f"The bind waits: slurm-bridge reads the nodes of Slurm again, because the last list lacks {folded(lacking)}."
    is_late = this_pass.now >= since + this_pass.tuning.unread_s
    shown = bind_waits(binding.workload, binding.job, binding.unbound, why, this_pass) if is_late else NOTHING
    return shown + wake(this_pass.now + LOOK_AGAIN_S, why) + note(lacks_nodes=True)


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
            and not on_its_way(pod, job.grant, this_pass)
        ):
            return f"the answer to an earlier bind of {pod.full_name} was lost; the pod is read first"
    return ""


def _not_allowed(binding: Binding, this_pass: Pass) -> str:
    """Why one of the pods may not use that job, in words; "": they may."""
    world, job = this_pass.world, binding.job
    asked_as = job.asked_as if job.asked_as is not None and job.asked_as.changes == world.identity_changes else None
    for pod in binding.unbound:
        if asked_as is not None and pod.uid in job.asked_for:
            tenant: Tenant | Refusal = asked_as.tenant
        elif is_managed(pod, world):
            tenant = world.tenant_of(pod)
        else:
            return not_managed(pod)
        if isinstance(tenant, Refusal):
            return tenant.message
        if job.job is not None and (why := _beyond(tenant, pod, binding.workload, job, job.job, this_pass)):
            return why
    return ""


def _beyond(tenant: Tenant, pod: Pod, workload: Workload, job: Placeholder, read: Job, this_pass: Pass) -> str:
    """What the policy does not allow of the job as it was read, in words; "": nothing.

    A job that this process did not submit may have been submitted under another policy, or by its user by hand (V8).  The
    user may also change the account, partition or QOS of a waiting job, or of one of its components.  The values that the
    bridge asked for stay allowed, and so does what Slurm chose if the bridge asked for none.  A job of a previous process
    in a partition that was the default then cannot be told from a job that its user moved there, and is released.
    """
    spec, slurms_own = job.spec, job.chosen_by_slurm
    # The default partition is not known while slurmdbd is away.
    default_partition = this_pass.world.default_partition
    for option, choice, asked, by_slurm in (
        (names.ACCOUNT, tenant.accounts, spec.account if spec is not None else "", slurms_own.get(names.ACCOUNT)),
        (names.PARTITION, tenant.partitions, workload.asked_in if spec is not None else "", default_partition),
        (names.QOS, tenant.qos, spec.qos if spec is not None else "", slurms_own.get(names.QOS)),
    ):
        for component in (read, *read.parts):
            value: str = getattr(component, option)
            usual = asked or choice.default or by_slurm or value
            if value == usual or is_same(option, value, usual):
                continue
            if isinstance(refused := choice.pick(option, value, f"namespace {pod.namespace}"), Refusal):
                return refused.message
    return ""


def _asked(binding: Binding, this_pass: Pass) -> JobSpec | Refusal:
    """The specification of the job.  If a previous process submitted the job: the specification of its pods now.

    A replacement may ask for other resources than the pod whose place it takes, so it proves nothing about the job.
    """
    if binding.job.spec is not None:
        return binding.job.spec
    if binding.replacing and not binding.grant.parts:
        return job_like_bound_pods(binding.workload, this_pass)
    asked_by_pod = asked_by(binding.workload, this_pass)
    asked = one_job(binding.workload, asked_by_pod, this_pass)
    if isinstance(asked_by_pod, Refusal) or isinstance(asked, Refusal):
        return asked
    return in_order_of_grant(binding, asked, asked_by_pod, this_pass)


def _shares_devices(grant: Grant, asked: JobSpec, this_pass: Pass) -> str:
    """Why Slurm could give devices that a pod gets to its own jobs, too (G2), in words; "": it does not.

    The nodes of the job are chosen so that this does not happen.  But they may change while the job waits: its external nodes
    are cordoned, or an admin lets it have other nodes.  Slurm cannot make a waiting job take its nodes whole.
    """
    world = this_pass.world
    if world.config.device_driver:
        return ""
    for spec, part in zip((asked, *asked.parts), (grant, *grant.parts), strict=False):
        for node in part.nodes if spec.exclusive != "exclusive" else ():
            known = (world.slurm_nodes or {}).get(node.name)
            shared = (name for name, _ in spec.gres if known is not None and not known.external)
            if known is not None and any(node.gres.get(name, 0) < known.gres.get(name, 0) for name in shared):
                return (
                    f"node {node.name} has a slurmd, and Slurm could give the devices of the pod to its own jobs, too"
                )
    return ""


def _all_bound_by(binding: Binding, this_pass: Pass) -> float | None:
    """The deadline for the binds of the other members (V4), epoch seconds; None: no member is bound yet, or has to be."""
    if binding.replacing or not any(pod.uid in binding.nodes for pod in binding.members):
        return None
    return max(binding.workload.first_bound_at, this_pass.world.started) + this_pass.tuning.gang_bind_deadline_s


def cancel_elsewhere(workload: Workload, job: Placeholder, pod: Pod, this_pass: Pass) -> Decision:
    """End the job, because this pod is on a node that the job does not hold: the job allows it nothing there (V2).

    A pod of a gang whose label was edited may run for another job.  If that job was not read yet, it is read first.
    """
    other = next(unproven_jobs(workload, this_pass.world), None) if workload.group is not None else None
    if other is not None:
        return read_job(other, workload, this_pass, is_it_its_own(other, workload))
    why = f"{pod.full_name} is on node {workload.node_of(pod)}, which job {job.id} does not hold"
    return cancel(job, workload, this_pass, why)


def pod_elsewhere(workload: Workload, job: Placeholder, this_pass: Pass) -> Pod | None:
    """The first pod that is on a node that its job does not hold; None: there is none.

    If a granted node is not known in Kubernetes, that proves nothing (V7).  The node of each pod is compared, so that a
    second Kubernetes node with the same name in Slurm changes nothing.  Pods of lost jobs do not count: they are ended alone.
    Nor does a pod that terminates after its own job, an earlier one of the gang, has ended: its node may be dead (S8).  Nor
    does a pod that another client bound beside pods of the bridge: it may show any labels, and the job is not its job.
    """
    assert job.grant is not None
    world = this_pass.world
    granted = {node.name for node in job.grant.everywhere}
    apart = {pod.uid for pod, _ in pods_of_lost_jobs(workload, job, world)}
    ended = {other.id for other in world.jobs_of(workload) if other.shows_end}
    terminating = (pod for pod in workload.unfinished if pod.deleting_at is not None) if ended else ()
    apart |= {pod.uid for pod in terminating if shown_id(pod) in ended}
    if not workload.is_bound_by_others:
        apart |= workload.strays.keys()
    nodes = world.nodes or {}
    if not granted <= world.by_slurm_name.keys():
        return None
    for pod in workload.unfinished:
        name = workload.node_of(pod)
        if name and pod.uid not in apart and (name not in nodes or slurm_name(nodes[name]) not in granted):
            return pod
    return None

"""The submission of a workload: translation, feasible nodes, and the request for nodes (rules T and F, ARCHITECTURE 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from scheduler import actions as act
from scheduler import names
from scheduler.apply.surplus import too_many
from scheduler.model.hostlist import expand, folded
from scheduler.model.kubernetes import Pod, owner_key
from scheduler.model.left_out import ALL_KINDS, LeavesOut, left_out_of
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import SINGLETON, JobSpec, in_partition
from scheduler.model.text import decimal, span
from scheduler.place.affinity import OwnPods
from scheduler.place.capacity import Alike, alike, lacking
from scheduler.place.feasible import Feasible, feasible, texts, weight
from scheduler.place.fit import NodeRequirements, kind_of, node_requirements
from scheduler.place.separate_nodes import SeparateNodes
from scheduler.policy.job_limits import beyond_rule
from scheduler.policy.rules import Tenant, with_filled
from scheduler.rules.crowding import is_full, judge_left_out
from scheduler.rules.decision import NOTHING, Decision, combine, note, plan_action, wait_for, wake
from scheduler.rules.gang_layout import lay_out, with_usable_nodes
from scheduler.rules.owners import OWNERS_FIRST, again_every_s, unreadable
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import status, statuses
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.gang import components, together
from scheduler.translate.grouping import Group, by_rank, group_of
from scheduler.translate.job_spec import jobspec
from scheduler.translate.pod_limits import MAX_SHAPES, beyond_limits, number_of_amounts

AMOUNTS_PER_NODE = 3  # adding up so many amounts of a pod's containers takes as long as judging one node
LONG_AGO = float("-inf")
CLAIMS_FIRST = "The pod's volume claims are read first."
_IN_VAIN = "could not be used when Slurm granted them"
ANOTHER_FIRST = "Slurm is asked for nodes for another pod first; the result decides how this pod is submitted."
FIRST_TRY_S = 0.5  # how long other workloads wait for the result of the first allocation
TRANSLATION = 15  # the effort of the translation of one pod, in nodes judged


def is_managed(pod: Pod, world: World) -> bool:
    """True if pods of its namespace may use the bridge."""
    return world.manages(pod.namespace)


def not_managed(pod: Pod) -> str:
    """Advice about a namespace that may not use the bridge, a sentence."""
    return f"Namespace {pod.namespace} is not managed by slurm-bridge: the admin has to label it {names.MANAGED_LABEL}=true."


def over_limit(workload: Workload, this_pass: Pass) -> Decision | None:
    """If the policy allows no more jobs or submissions now: show that on the pods, and wait.  None: it allows one more."""
    full = full_limit(workload, this_pass)
    if full is None:
        return None
    limit, message = full
    return statuses(workload.members, names.LIMITED, message, warning=False) + wait_for(limit)


def full_limit(workload: Workload, this_pass: Pass) -> tuple[str, str] | None:
    """The limit of the policy that the workload waits for, and a sentence that says why; None: it may be submitted."""
    quotas = this_pass.world.quotas
    tenant, jobs, rate = quotas.tenant(workload), quotas.quota(workload), quotas.rate(workload)
    if tenant is None:
        return None
    if jobs is not None and not quotas.has_one(workload) and this_pass.free(jobs) < 1:
        at_most = "1 job" if tenant.max_jobs == 1 else f"{tenant.max_jobs:,} jobs"
        return jobs, (
            f"The policy allows {at_most} at a time here (max_jobs), waiting and running, and that many exist. "
            "The pod is submitted when one of them has ended."
        )
    if rate is not None and tenant.max_submit_rate is not None and this_pass.free(rate) < 1:
        return rate, (
            f"The policy allows {decimal(tenant.max_submit_rate)} submissions a second here (max_submit_rate), and other "
            "pods are before this one. The pod is submitted in its turn."
        )
    return None


def read_first(
    workload: Workload, pods: Iterable[Pod], this_pass: Pass, *, claims_since: float = LONG_AGO
) -> Decision | None:
    """Read all owners and volume claims of these pods that have not been read yet.  None: all have been read.

    claims_since   volume claims that were read before this time are read again
    """
    reads = [read for pod in pods if (read := _reads_of(workload, pod, this_pass, claims_since)) is not None]
    return combine(reads) if reads else None


def _reads_of(workload: Workload, pod: Pod, this_pass: Pass, claims_since: float) -> Decision | None:
    """Owners and volume claims are read once, before the first decision about a pod; claims again after a wait."""
    world = this_pass.world
    _, ref = world.owners_of(pod)
    if ref is not None:
        is_backing_off = this_pass.now < workload.backoff.until
        key, owner_text = owner_key(pod.namespace, ref), f"{ref.kind} {ref.name}"
        read = (
            wake(workload.backoff.until)
            if is_backing_off
            else plan_action(act.ReadOwner(pod.namespace, ref, f"annotations of {owner_text}"))
        )
        failing = unreadable(pod, owner_text, key, this_pass)
        return combine((read, failing, note(awaits=key), Decision(why=OWNERS_FIRST)))
    if _are_claims_known(workload, pod, world, claims_since):
        return None
    problem = claim_problem([pod], world)
    shown = status(pod, names.REFUSED, claim_sentence(problem), warning=True) if problem else NOTHING
    failing = unreadable(pod, "A volume claim", pod.uid, this_pass) if not problem else NOTHING
    return combine((shown, _read_claims(workload, pod, this_pass), failing, Decision(why=CLAIMS_FIRST)))


def claim_problem(pods: Iterable[Pod], world: World) -> str:
    """Why a volume claim of these pods cannot be used, in words, as it was read last; "": each can, or was not read."""
    claims = (claim for pod in pods for claim in world.claims.get(pod.uid, ()))
    return next((claim.problem for claim in claims if claim.problem), "")


def claim_sentence(problem: str) -> str:
    """The problem of a claim as a sentence of its own; "": there is none."""
    return f"{problem[:1].upper()}{problem[1:].rstrip('.')}." if problem else ""


def read_unknown_claims(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> Decision | None:
    """Read the volume claims of queued pods of which nothing is known, as after a restart.  None: all are known.

    Until then the nodes that volumes exclude are not known, so the job stays as it is.
    """
    unknown = [pod for pod in pods if not _are_claims_known(workload, pod, this_pass.world)]
    return combine(_read_claims(workload, pod, this_pass) for pod in unknown) if unknown else None


def read_claims_again(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> Decision:
    """Read the volume claims of refused pods again, once in a while: the claims may have been made anew elsewhere (F1)."""
    read_at, found = this_pass.world.claims_read_at, []
    for pod in pods:
        if pod.uid in read_at:
            due = read_at[pod.uid] + again_every_s(this_pass)
            found.append(wake(due) if this_pass.now < due else _read_claims(workload, pod, this_pass))
    return combine(found)


def _are_claims_known(workload: Workload, pod: Pod, world: World, since: float = LONG_AGO) -> bool:
    """True if its volume claims were read since that time and can be used.  A pod on a node has its volumes, whatever its
    claims are now."""
    if not pod.claims or beyond_limits(pod):  # the pod has no volume claims, or is refused without a read
        return True
    if (claims := world.claims.get(pod.uid)) is None:
        return False
    return bool(workload.node_of(pod)) or (
        world.claims_read_at[pod.uid] >= since and not any(claim.problem for claim in claims)
    )


def _read_claims(workload: Workload, pod: Pod, this_pass: Pass) -> Decision:
    """Read the volume claims of the pod; after a failed read, or a problem, not before the end of the backoff."""
    if this_pass.now < workload.backoff.until:
        return wake(workload.backoff.until)
    return plan_action(act.ReadClaims(workload.key, pod.uid, pod.namespace, pod.claims, "its volumes"))


def spec_for(workload: Workload, this_pass: Pass) -> JobSpec | Refusal:
    """The job to submit, nodes included; or why there is none."""
    return one_job(workload, asked_by(workload, this_pass), this_pass)


def job_like_bound_pods(workload: Workload, this_pass: Pass) -> JobSpec | Refusal:
    """The job to submit if every unbound member were like the last bound member."""
    members = workload.members
    bound = by_rank([pod for pod in members if workload.node_of(pod)])
    return one_job(workload, _asked_by(workload, bound, len(members) - len(bound), this_pass), this_pass)


def foreseen_job(workload: Workload, this_pass: Pass) -> JobSpec | Refusal:
    """The job to submit once the gang is complete, if the missing pods are like the last pod that exists."""
    asked = _asked_by(workload, present_pods(workload), missing_pods(workload), this_pass)
    return one_job(workload, asked, this_pass)


def present_pods(workload: Workload) -> list[Pod]:
    """The pods of the workload that have not ended, by rank, gated pods among them."""
    return by_rank(workload.unfinished)


def missing_pods(workload: Workload) -> int:
    """The number of pods of its gang that do not exist yet; 0 if the size is not known."""
    return max(0, workload.size - len(present_pods(workload)))


def one_job(workload: Workload, asked: list[tuple[Pod, JobSpec]] | Refusal, this_pass: Pass) -> JobSpec | Refusal:
    """The job for all of these pods, nodes included; or why there is none.  asked: each pod with its own job"""
    spec = asked if isinstance(asked, Refusal) else together(asked)
    if isinstance(spec, Refusal) or isinstance(asked, Refusal) or len(asked) == 1:
        return spec
    if len(spec.parts) >= MAX_SHAPES:
        return _too_many_shapes(workload)
    world, partition = this_pass.world, spec.partition
    where = in_partition(spec, moved_to(workload, partition, world) or partition)
    job = lay_out(workload.readable, where, asked, this_pass)
    tenant = world.tenant_of(asked[0][0])
    if isinstance(job, Refusal):
        return _no_room(workload, job.message, world) if job.reason == names.NO_NODE else job
    job = in_partition(job, partition)
    return (beyond_rule(job, tenant) if isinstance(tenant, Tenant) else None) or job


def too_large(workload: Workload, spec: JobSpec, this_pass: Pass) -> Refusal | None:
    """Why the nodes of a gang could not run it even if they were empty (F3); None: they could."""
    world = this_pass.world
    partition = spec.partition or world.default_partition
    if spec.tasks <= 1 and not spec.parts:  # a short way: the nodes were judged already
        return None
    parts = with_usable_nodes((spec, *spec.parts), this_pass)
    kinds: dict[int, list[Alike]] = {}  # by identity of the list of nodes: most components have the same one
    for component, nodes in parts:
        if id(nodes) not in kinds:
            kinds[id(nodes)] = alike(nodes)
        if why := lacking(component, kinds[id(nodes)], partition):
            return _no_room(workload, why, world)
    if not spec.parts:
        return None
    separate = SeparateNodes(parts, memory=False)  # as in `lacking`
    why = separate.too_few(partition)
    this_pass.effort += separate.effort
    return _no_room(workload, why, world) if why else None


def _too_many_shapes(workload: Workload) -> Refusal:
    """Why a job for these pods would have too many components, or cost a pass too much (X7)."""
    return Refusal(
        names.REFUSED,
        f"The pods of {workload.readable} request more than {MAX_SHAPES} different combinations of nodes and resources. "
        "Let more pods request the same.",
    )


def _no_room(workload: Workload, why: str, world: World) -> Refusal:
    if left_out := workload.nodes_left_out:
        left = f"Nodes that {_IN_VAIN} are left out: {folded(left_out)}. {_looked_at_again(world)}"
        why = f"{left} Without them: {why}"
    return Refusal(names.NO_NODE, why)


def _looked_at_again(world: World) -> str:
    return f"slurm-bridge looks at them again every {span(world.config.tuning.exclude_s)}."


def asked_by(workload: Workload, this_pass: Pass) -> list[tuple[Pod, JobSpec]] | Refusal:
    """The job of each of its pods, by rank, as if the pod were alone; or why there is none."""
    return _asked_by(workload, by_rank(workload.members or workload.unfinished), 0, this_pass)


def _asked_by(workload: Workload, pods: list[Pod], more: int, this_pass: Pass) -> list[tuple[Pod, JobSpec]] | Refusal:
    """As asked_by, for these pods.  more: the number of expected pods, which count as equal to the last of these"""
    asked = []
    count = len(pods) + more
    left_out = judge_left_out(workload, pods, this_pass) if workload.left_out is not None else {}
    job_pods = _JobPods(this_pass.world.own_pods(workload.key, pods, more), count, left_out)
    for pod in pods:
        spec = _spec_of(workload, pod, job_pods, this_pass)
        if isinstance(spec, Refusal):
            return spec if len(pods) == 1 else replace(spec, message=f"{pod.name}: {spec.message}")
        if len(job_pods.requirements) > MAX_SHAPES:
            return _too_many_shapes(workload)
        asked.append((pod, spec))
    return asked + asked[-1:] * more


@dataclass(frozen=True, slots=True)
class _JobPods:
    """The pods of one job.

    own_pods    the pods of the workload that are already on nodes, where they do not compete with themselves (S7)
    pods        the number of pods
    left_out    nodes on which a grant of this workload could not be used (F6)
    requirements  the node requirements of the pods that were translated so far
    folds       hostlist of excluded nodes, and nodes left out, to the hostlist of both: most members have the same lists
    """

    own_pods: OwnPods
    pods: int
    left_out: LeavesOut
    requirements: set[NodeRequirements] = field(default_factory=set)
    folds: dict[tuple[str, frozenset[str]], str] = field(default_factory=dict)

    def with_left_out(self, excluded: str, left_out: frozenset[str], this_pass: Pass) -> str:
        """The hostlist of these excluded nodes and the nodes left out."""
        if (known := self.folds.get((excluded, left_out))) is None:
            nodes = [*expand(excluded), *left_out]
            this_pass.effort += len(nodes)
            known = self.folds[excluded, left_out] = folded(nodes)
        return known


def _spec_of(workload: Workload, pod: Pod, job_pods: _JobPods, this_pass: Pass) -> JobSpec | Refusal:
    """The job of one member as if it were alone, nodes included; or why there is none."""
    world, pods = this_pass.world, job_pods.pods
    this_pass.effort += TRANSLATION + number_of_amounts(pod) // AMOUNTS_PER_NODE
    shown = group_of(pod)
    if isinstance(shown, Refusal) and not workload.node_of(pod):  # the bind, and not the labels, decides the gang (W4)
        return shown
    if isinstance(shown, Group) and workload.group is None and (refusal := too_many(world, pod, shown)) is not None:
        return refusal
    spec = translated(workload, pod, pods, this_pass)
    if isinstance(spec, Refusal):
        return spec
    partition = moved_to(workload, spec.partition, world) or spec.partition or world.default_partition
    if spec.partition and world.partitions and spec.partition not in world.partitions:
        known = ", ".join(sorted(world.partitions))
        message = f'Slurm has no partition "{spec.partition}". It has: {known}.'
        return Refusal(names.REFUSED, with_filled(message, world.tenant_of(pod)))
    if len(job_pods.own_pods.on_nodes) == pods:
        return _on_its_node(workload, pod, spec, world)
    found = _feasible(pod, spec, partition, job_pods, this_pass)
    if found.problem:
        return Refusal(names.NO_NODE, found.problem)
    excluded = found.excluded
    if left_out := left_out_of(job_pods.left_out, kind_of(pod)):
        excluded = job_pods.with_left_out(excluded, left_out, this_pass)
        if found.nodes <= left_out:
            message = f"The only nodes that can run this pod {_IN_VAIN}: {folded(found.nodes)}."
            return Refusal(names.NO_NODE, f"{message} {_looked_at_again(world)}")
    exclusive = spec.exclusive or ("exclusive" if found.exclusive else "")
    if (excluded, exclusive) == (spec.excluded_nodes, spec.exclusive):
        return spec
    return replace(spec, excluded_nodes=excluded, exclusive=exclusive)


def _on_its_node(workload: Workload, pod: Pod, spec: JobSpec, world: World) -> JobSpec:
    """The job of a pod that is on a node, as all pods of its job are: they may ask for their own nodes again (S7).

    No other node is judged, nor excluded, and its own node may not be feasible for a new pod: a new taint does not end a pod
    that runs, nor does a device that its node lost.  Its own node decides if it takes the node whole (G2).
    """
    known = (world.slurm_nodes or {}).get(world.in_slurm(workload.node_of(pod)))
    shares = known is None or known.external or world.config.device_driver or not spec.gres
    exclusive = spec.exclusive or ("" if shares else "exclusive")
    return replace(spec, exclusive=exclusive)


def moved_to(workload: Workload, wanted: str, world: World) -> str:
    """The partition to which the job of the workload was moved, by an admin or its user; "": it was not moved.

    Its feasible nodes are those of this partition (F2), also when it has started.  The same holds if the job was submitted
    without a partition, and another partition has become the default.  If an annotation was edited meanwhile, the job goes
    where its pods want it.

    wanted   the partition that the pods ask for; "": none
    """
    job = world.job_of.get(workload.key)
    if job is None or job.job is None:
        return ""
    asked = job.spec or job.adopted_as
    if asked is not None and asked.partition != wanted:
        return ""
    is_one = job.job.partition in world.partitions  # Slurm may show several, of which it chooses one at the start
    return job.job.partition if is_one and job.job.partition != (wanted or world.default_partition) else ""


def translated(workload: Workload, pod: Pod, pods: int, this_pass: Pass) -> JobSpec | Refusal:
    """The job of one member as if it were alone, without its nodes.  pods: how many members there are

    The result is cached by its inputs: a waiting pod is translated at each visit, and hardly ever changes.
    """
    world = this_pass.world
    tenant = world.tenant_of(pod)
    if isinstance(tenant, Refusal):
        return tenant
    owners = world.owners_of(pod)[0]
    asked = (pod, owners, tenant, world.config, world.cluster, workload.key, workload.readable, pods, workload.gang)
    if (known := world.translations.get(pod.uid)) is not None:
        asked_before, longest_min, spec = known
        if asked_before == asked and longest_min == world.longest_min(spec.partition):
            return spec
    found = jobspec(
        pod, owners, tenant, world.translation_context, workload.key, workload.readable, pods, workload.gang
    )
    if isinstance(found, JobSpec):
        world.translations.keep(pod.uid, (asked, world.longest_min(found.partition), found), 1)
    return found


def _feasible(pod: Pod, spec: JobSpec, partition: str, job_pods: _JobPods, this_pass: Pass) -> Feasible:
    """The feasible nodes, from the cache if the same was asked since the nodes last changed.

    job_pods   resources that these pods use already do not exclude a node for them (S7)
    """
    world, own_pods = this_pass.world, job_pods.own_pods
    closed, taken = world.closed_to(pod, own_pods, with_granted=True), world.host_ports.taken(pod, own_pods.on_nodes)
    wanted = node_requirements(pod, spec, partition, world.volumes_of(pod), closed, taken)
    if world.config.device_driver:  # both clusters count the same devices, so a device excludes no node (G2)
        wanted = replace(wanted, devices=False)
    job_pods.requirements.add(wanted)
    known = world.feasibility.get(wanted)
    if known is None:
        nodes = world.nodes or {}
        this_pass.effort += len(nodes) * weight(wanted)
        found = feasible(wanted, nodes.values(), world.slurm_nodes or {}, world.contested)
        names_held = len(found.nodes) + len(wanted.closed) + len(wanted.ports_taken)
        known = world.feasibility.put(wanted, found, names_held, texts(wanted))
    return known


def submit(workload: Workload, spec: JobSpec, asked: list[tuple[Pod, JobSpec]], this_pass: Pass) -> Decision:
    """Request an immediate allocation if Slurm is likely to grant it; otherwise queue the job (ARCHITECTURE 5).

    asked   each pod and its job as if it were alone
    """
    partition = spec.partition or this_pass.world.default_partition
    where = f"partition {partition or '(default)'} as {spec.user}"
    first_try = _first_try(partition, this_pass)
    is_immediate = _may_be_immediate(workload, spec, partition, this_pass)
    if is_immediate and first_try is not None and this_pass.now < first_try + FIRST_TRY_S:
        # most results come within milliseconds
        return wait_for("submits", ANOTHER_FIRST) + wake(first_try + FIRST_TRY_S)
    if is_immediate and first_try is None and _chooses_beside_others(workload, this_pass):
        return wait_for("submits", ANOTHER_FIRST)  # the nodes of the other pods exclude nodes for these pods (F5)
    wanted, left_out = _where_there_is_room(workload, spec, this_pass)
    if is_immediate and first_try is None:
        allocate = act.AllocateNow(workload.key, wanted, f"asking Slurm for nodes in {where}")
        return _charged(plan_action(allocate))
    # the job will wait in the queue, so the workload leaves these nodes out until it judges them again
    parts = components(asked) if wanted.parts else ()
    pods = tuple(tuple(pod.uid for pod in part) for _, part in parts)
    submit = plan_action(act.SubmitJob(workload.key, wanted, f"queueing in Slurm {where}", pods))
    return _charged(submit) + (note(leave_out=left_out) if left_out is not None else NOTHING)


def _where_there_is_room(workload: Workload, spec: JobSpec, this_pass: Pass) -> tuple[JobSpec, LeavesOut | None]:
    """The same job, which also excludes nodes where another grant failed a moment ago and these pods have no room now (F6).

    Also returns all nodes that the workload leaves out while its job is in the queue; None: the same nodes as before.

    Pods that Slurm does not count may take room on a node that Slurm grants.  Slurm fills nodes one by one, so it would grant
    the same full node to the next jobs.  If no other node is left, the job does not exclude these nodes.
    """
    world, pods = this_pass.world, workload.members
    lately = [
        name for name, until in world.crowded.items() if until > this_pass.now and name in (world.slurm_nodes or {})
    ]
    full = [name for name in lately if is_full(name, pods, this_pass)]
    if not full:
        return spec, None
    elsewhere = replace(_without(full, spec), parts=tuple(_without(full, part) for part in spec.parts))
    have_nodes = all(nodes for _, nodes in with_usable_nodes((elsewhere, *elsewhere.parts), this_pass))
    if not have_nodes or too_large(workload, elsewhere, this_pass) is not None:
        return spec, None
    before = this_pass.left_out.get(workload.key, workload.nodes_left_out)
    return elsewhere, {**before, **dict.fromkeys(full, ALL_KINDS)}


def _without(nodes: Sequence[str], spec: JobSpec) -> JobSpec:
    return replace(spec, excluded_nodes=folded([*expand(spec.excluded_nodes), *nodes]))


def _charged(submit: Decision) -> Decision:
    """Count the submission against the limits of its rule, if the plan takes it."""
    return submit.followed_by(if_planned=note(is_charged=True))


def _may_be_immediate(workload: Workload, spec: JobSpec, partition: str, this_pass: Pass) -> bool:
    """True if the job may start now, no job of ours waits or is about to wait in the partition, and the breaker is closed."""
    world = this_pass.world
    if (
        spec.parts
        or spec.dependency != SINGLETON
        or (spec.begin is not None and this_pass.from_slurm(spec.begin) > this_pass.now)
    ):
        return False
    if workload.immediate_refused or world.queued_in[partition] + this_pass.submitted[partition] > 0:
        return False
    breaker = world.breakers.get(partition)
    return breaker is None or this_pass.now >= breaker.open_until


def _chooses_beside_others(workload: Workload, this_pass: Pass) -> bool:
    """True if its pods and pods with an allocation in flight have anti-affinity: Slurm might put both on one node."""
    return workload.has_anti_affinity and (
        this_pass.submits_anti_affinity or bool(this_pass.world.anti_affinity_in_flight)
    )


def _first_try(partition: str, this_pass: Pass) -> float | None:
    """When the first allocation in the partition was sent, if it is in flight and none has succeeded yet; None: otherwise."""
    world = this_pass.world
    breaker = world.breakers.get(partition)
    if breaker is not None and breaker.trusted:
        return None
    if this_pass.immediate[partition]:
        return this_pass.now
    return world.tried_at[partition] if world.immediate_in_flight[partition] else None

"""What a workload asks Slurm for, and how: translation, feasible nodes, the rung of the ladder (T, F, section 5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from scheduler import actions as act
from scheduler import names
from scheduler.feasible import Feasible, demand, feasible
from scheduler.gangs import together
from scheduler.grouping import by_rank, group_of
from scheduler.hostlist import expand, fold
from scheduler.jobspec import jobspec
from scheduler.membership import too_many
from scheduler.model import SINGLETON, JobSpec, Pod, Refusal, SlurmNode
from scheduler.neighbours import apart_from_its_own, beside_its_own
from scheduler.room import lacking, laid_out
from scheduler.telling import say
from scheduler.view import View
from scheduler.workload import Workload
from scheduler.world import World

FIRST_TRY_S = 0.5  # so long others wait to see whether the first of them is granted nodes
MAX_REMEMBERED = 4096  # answers of feasibility; where pods mind each other the questions change all the time


def is_managed(pod: Pod, world: World) -> bool:
    """Whether pods of its namespace may use the bridge."""
    namespace = (world.namespaces or {}).get(pod.namespace)
    labelled = namespace is not None and namespace.labels.get(names.MANAGED_LABEL) == "true"
    return labelled or pod.namespace in world.config.managed_namespaces


def all_known(workload: Workload, pods: Iterable[Pod], view: View) -> bool:
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
    return _one_job(asked_by(workload, view), view)


def foreseen(workload: Workload, view: View) -> JobSpec | Refusal:
    """What there will be to ask for once a gang is complete, if those that are missing are as the last one that is here."""
    return _one_job(_asked_by(workload, here(workload), missing(workload), view), view)


def here(workload: Workload) -> list[Pod]:
    """Its pods that wait, by rank, gated ones too: these count as soon as their gates are gone."""
    return by_rank([pod for pod in workload.unfinished if pod.deleting_at is None] or workload.unfinished)


def missing(workload: Workload) -> int:
    """How many pods of its gang do not exist yet, as far as that is known."""
    return max(0, workload.size - len(here(workload)))


def _one_job(asked: list[tuple[Pod, JobSpec]] | Refusal, view: View) -> JobSpec | Refusal:
    spec = asked if isinstance(asked, Refusal) else together(asked)
    if isinstance(spec, Refusal) or not any(each.exclusive for each in (spec, *spec.parts)):
        return spec
    head, *parts = (laid_out(each, _usable(each, view.world)) for each in (spec, *spec.parts))
    return replace(head, parts=tuple(parts))


def too_large(spec: JobSpec, world: World) -> Refusal | None:
    """A gang that its nodes could not even take if they were empty (F3)."""
    partition = spec.partition or world.default_partition
    for each in (spec, *spec.parts):
        if each.tasks > 1 and (why := lacking(each, _usable(each, world), partition)):
            return Refusal(names.NO_NODE, why)
    return None


def _usable(spec: JobSpec, world: World) -> list[SlurmNode]:
    """Slurm's nodes that its placeholder may use."""
    partition, excluded = spec.partition or world.default_partition, frozenset(expand(spec.excluded_nodes))
    nodes = (world.slurm_nodes or {}).values()
    return [each for each in nodes if partition in ("", *each.partitions) and each.name not in excluded]


def asked_by(workload: Workload, view: View) -> list[tuple[Pod, JobSpec]] | Refusal:
    """What each of its pods asks for, by rank, as if it were alone; or why not."""
    return _asked_by(workload, by_rank(workload.members or workload.unfinished), 0, view)


def _asked_by(workload: Workload, pods: list[Pod], more: int, view: View) -> list[tuple[Pod, JobSpec]] | Refusal:
    """more: so many are taken to come that ask for the same as the last of these."""
    asked = []
    own = frozenset(pod.uid for pod in pods)
    for pod in pods:
        spec = _spec_of(workload, pod, own, len(pods) + more, view)
        if isinstance(spec, Refusal):
            return spec if len(pods) == 1 else replace(spec, message=f"{pod.name}: {spec.message}")
        asked.append((pod, spec))
    return asked + asked[-1:] * more


def _spec_of(workload: Workload, pod: Pod, own: Collection[str], pods: int, view: View) -> JobSpec | Refusal:
    """One member, as if it were alone.  own: UIDs of those that are placed together; pods: how many these will be."""
    world = view.world
    shown = group_of(pod)
    if isinstance(shown, Refusal):
        return shown
    if shown is not None and workload.group is None and (refusal := too_many(world, pod, shown)) is not None:
        return refusal
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
    some_stand = workload.tally.homeless < workload.tally.unfinished
    found = _feasible(pod, spec, partition, own, own if some_stand else frozenset(), view)
    if found.problem:
        return Refusal(names.NO_NODE, found.problem)
    excluded = found.excluded
    if recently := view.excluded(workload):
        excluded = fold([*expand(excluded), *recently])
        if found.nodes <= frozenset(recently):
            view.wake_at(workload.key, min(until for until in workload.excluded.values() if until > view.now))
            tried = ", ".join(sorted(found.nodes))
            return Refusal(names.NO_NODE, f"The only nodes that can run this pod could not be used just now: {tried}.")
    if pods > 1 and beside_its_own(pod):
        spec = replace(spec, min_nodes=1, max_nodes=1)
    if pods > 1 and apart_from_its_own(pod):
        spec = replace(spec, tasks_per_node=1)
        if lacking := _too_few(pod, pods, len(found.nodes), spec.max_nodes):
            each = f"each of the {pods} pods of {workload.readable}"
            message = f"Its pod anti-affinity wants {each} on a node of its own, and {lacking}."
            return Refusal(names.NO_NODE, message)
    return replace(spec, excluded_nodes=excluded, exclusive=spec.exclusive or ("exclusive" if found.exclusive else ""))


def _too_few(pod: Pod, wanted: int, usable: int, at_most: int | None) -> str:
    """Why there are never so many nodes for them, in words; "": there are."""
    if usable < wanted:
        return f"only {usable} {'node' if usable == 1 else 'nodes'} can run them"
    if at_most is None or at_most >= wanted:
        return ""
    if beside_its_own(pod):
        return "its pod affinity wants all of them on one"
    return f"annotation {names.PREFIX}{names.MAX_NODES} allows {at_most}"


def _feasible(
    pod: Pod, spec: JobSpec, partition: str, own: Collection[str], standing: Collection[str], view: View
) -> Feasible:
    """From the world's memory where the same was asked since the nodes last changed.

    standing   UIDs of pods whose host ports are in nobody's way: they hold them themselves (S7)
    """
    world = view.world
    wanted = demand(pod, spec, partition, world.volumes_of(pod), world.closed_to(pod, own, soon=True))
    if world.config.device_driver:  # both sides mean the same devices, so any node will do (G2)
        wanted = replace(wanted, devices=False)
    if pod.host_ports and standing:
        ports = world.ports_taken(standing)
        return feasible(wanted, (world.nodes or {}).values(), world.slurm_nodes or {}, ports)
    known = world.feasibility.get(wanted)
    if known is None:
        ports = world.ports_taken() if pod.host_ports else {}
        if len(world.feasibility) >= MAX_REMEMBERED:
            world.feasibility.clear()
        known = feasible(wanted, (world.nodes or {}).values(), world.slurm_nodes or {}, ports)
        world.feasibility[wanted] = known
    return known


def ask(workload: Workload, spec: JobSpec, view: View) -> None:
    """The ladder (section 5): nodes at once where that is likely to be granted, else a place in the queue."""
    world = view.world
    partition = spec.partition or world.default_partition
    where = f"partition {partition} as {spec.user}"
    first_try = _first_try(partition, view)
    immediate = _immediate(workload, spec, partition, view)
    if immediate and first_try is not None and view.now < first_try + FIRST_TRY_S:
        view.park(workload.key, "submits")  # what becomes of it decides about the others, mostly in some milliseconds
        view.wake_at(workload.key, first_try + FIRST_TRY_S)
    elif immediate and first_try is None and _chooses_beside_others(workload, view):
        view.park(workload.key, "submits")  # where those go decides where it may go (F5)
    elif immediate and first_try is None:
        view.add(act.AllocateNow(workload.key, spec, f"asking Slurm for nodes in {where}"), workload.key)
    else:
        view.add(act.SubmitJob(workload.key, spec, f"queueing in Slurm {where}"), workload.key)


def _immediate(workload: Workload, spec: JobSpec, partition: str, view: View) -> bool:
    """It may start now, nobody of ours waits or is about to wait there, and the breaker is closed."""
    world = view.world
    if spec.parts or spec.dependency != SINGLETON or (spec.begin is not None and spec.begin > view.now):
        return False
    if workload.immediate_refused or world.queued_in[partition] + view.submitted[partition] > 0:
        return False
    breaker = world.breakers.get(partition)
    return breaker is None or view.now >= breaker.open_until


def _chooses_beside_others(workload: Workload, view: View) -> bool:
    """It keeps away from others, and so do some for whom nodes are asked for just now: Slurm would pack them together."""
    return workload.keeps_apart and (view.apart or bool(view.world.apart_under_way))


def _first_try(partition: str, view: View) -> float | None:
    """Since when one is under way there, while none has succeeded yet: no more than one until then.  None: there is none."""
    world = view.world
    breaker = world.breakers.get(partition)
    if breaker is not None and breaker.trusted:
        return None
    if view.immediate[partition]:
        return view.now
    return world.tried_at[partition] if world.immediate_under_way[partition] else None

"""Recomputes what the World derives from its facts, to check the World, and to make a copy that relies on no index.

The World keeps indexes, counts and phases up to date while events change its facts.  A wrong index is a silent defect: the
pass visits the wrong workloads, or counts room that does not exist.  `validate` computes each index again and raises
`InvalidIndex` if the World differs.  It takes milliseconds, so the bridge calls it only if the internal tuning
`validate_every` is set.  The simulation and the property tests call it.

INDEXES has the indexes that follow from the facts, with one function each.  Other indexes also depend on what happened
before; CHECKS has the statements about these indexes that hold in every World.

The pods of an unsettled group are counted at once.  Its phase and its indexes are updated when it is settled
(`settling.settle`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

from scheduler import actions as act
from scheduler import names
from scheduler.actions import ObjectKind
from scheduler.model.cache import BoundedCache, BoundedDict
from scheduler.model.kubernetes import Node, owner_key
from scheduler.place.affinity import AffinityIndex
from scheduler.place.feasible import slurm_name
from scheduler.place.fit import NodeInfo
from scheduler.place.host_ports import HostPorts
from scheduler.policy.tenants import Identities
from scheduler.state.jobs import Jobs
from scheduler.state.phase import WAITING, Phase, phase, phase_and_job
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_counts import PodCounts
from scheduler.state.waiting_order import WaitingOrder
from scheduler.state.workload import Workload

_NOTHING = "nothing"


AnyWorld = TypeVar("AnyWorld", bound=Jobs)


class InvalidIndex(AssertionError):
    """An index of the World differs from the index that follows from the facts.

    index    the name of the index; if a node has the index, with its name
    key      the key of the entry that differs; None: the index as a whole
    found, expected   the entry in the World, and the entry that follows from the facts
    """

    def __init__(self, index: str, key: object, found: object, expected: object) -> None:
        self.index, self.key, self.found, self.expected = index, key, found, expected
        entry = index if key is None else f"{index}[{key!r}]"
        super().__init__(f"{entry} is {found!r}; by the facts it is {expected!r}")


def validate(world: Jobs) -> None:
    """Compare every index of the world with its facts.  Raises InvalidIndex at the first difference."""
    for index, compute in INDEXES.items():
        _compare(index, getattr(world, index), compute(world))
    for workload in world.workloads.values():
        _compare_counts(workload)
    for node, there in world.node_info.items():
        _compare(f"node_info[{node!r}].taken", there.taken, there.without("").taken)
    _compare("host_ports", world.host_ports.held, _host_ports(world).held)
    _compare("affinity_index", world.affinity_index.counted(), _neighbours(world, world.node_info).counted())
    for index, key, found, expected in _failed_checks(world):
        raise InvalidIndex(index, key, found, expected)


def rebuilt(world: AnyWorld) -> AnyWorld:
    """A World with the same facts, recomputed indexes and counts, and empty caches.

    Decisions may be made on it.  It shares the facts with the original, so no event may be applied to it.
    """
    anew = copy(world)
    anew.workloads = {key: _recounted(workload) for key, workload in world.workloads.items()}
    for index, compute in INDEXES.items():
        setattr(anew, index, compute(anew))
    anew.node_info = {node: there.without("") for node, there in world.node_info.items()}
    anew.affinity_index, anew.host_ports = _neighbours(world, anew.node_info), _host_ports(world)
    anew.granted_unbound_pods, anew.feasibility = None, BoundedCache()
    anew.translations, anew.usable_kinds = BoundedDict(1), BoundedDict(1)
    anew.identities = Identities(world.config.policy)
    return anew


def _compare(index: str, found: Any, expected: Any) -> None:
    if found == expected:
        return
    if not isinstance(expected, Mapping):
        raise InvalidIndex(index, None, found, expected)
    none = 0 if isinstance(expected, Counter) else _NOTHING
    key = next(
        candidate for candidate in (*expected, *found) if found.get(candidate, none) != expected.get(candidate, none)
    )
    raise InvalidIndex(index, key, found.get(key, _NOTHING), expected.get(key, _NOTHING))


# --- indexes that the facts determine -------------------------------------------------------------------------------


def _phase_of(world: Jobs) -> dict[str, Phase]:
    absent_s = world.config.tuning.absent_s
    return {
        key: world.phase_of.get(key, Phase.DONE)
        if key in world.unsettled
        else phase(workload, world.placeholders, absent_s)
        for key, workload in world.workloads.items()
    }


def _job_of(world: Jobs) -> dict[str, Placeholder]:
    absent_s = world.config.tuning.absent_s
    found = {
        key: world.job_of.get(key)
        if key in world.unsettled
        else phase_and_job(workload, world.placeholders, absent_s)[1]
        for key, workload in world.workloads.items()
    }
    return {key: job for key, job in found.items() if job is not None}


def _by_phase(world: Jobs) -> dict[Phase, dict[str, None]]:
    by_phase: dict[Phase, dict[str, None]] = {phase: {} for phase in Phase}
    known = (key for keys in world.by_phase.values() for key in keys)
    for key in dict.fromkeys((*known, *world.phase_of)):  # in the order in which the workloads came to their phases
        if key in world.phase_of:
            by_phase[world.phase_of[key]][key] = None
    return by_phase


def _key_of_pod(world: Jobs) -> dict[str, str]:
    kept = {
        uid: entry.name
        for entry in world.quarantine.values()
        if entry.kind is ObjectKind.WORKLOAD
        for uid in entry.pods
    }
    return {uid: key for key, workload in world.workloads.items() for uid in workload.pods} | kept


def _node_of(world: Jobs) -> dict[str, str]:
    return {uid: node for node, there in world.node_info.items() for uid in there.pods}


def _named(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """Each node name of Slurm to the names of the Kubernetes nodes that claim it."""
    named: dict[str, list[str]] = {}
    for node in nodes.values():
        named.setdefault(slurm_name(node), []).append(node.name)
    return named


def _by_slurm_name(world: Jobs) -> dict[str, str]:
    only = {name: nodes[0] for name, nodes in _named(world.nodes_with_names()).items() if len(nodes) == 1}
    return {name: node for name, node in only.items() if node in (world.nodes or {})}


def _contested(world: Jobs) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted(nodes)) for name, nodes in _named(world.nodes_with_names()).items() if len(nodes) > 1}


def _searching(world: Jobs) -> dict[str, None]:
    return {key: None for key, workload in world.workloads.items() if workload.job_search is not None}


def _claim_users(world: Jobs) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for there in world.node_info.values():
        for pod in there.pods.values():
            for claim in pod.claims:
                found.setdefault((pod.namespace, claim), set()).add(pod.uid)
    return found


def _waits_for_ports(world: Jobs) -> dict[str, None]:
    waiting = (key for phase in WAITING for key in world.by_phase[phase])
    return {key: None for key in waiting if key in world.wants_ports}


def _partition_of(world: Jobs) -> dict[str, str]:
    found = {key: world.waits_in(workload) for key, workload in world.workloads.items()}
    return {key: partition for key, partition in found.items() if partition}


def _queued_in(world: Jobs) -> Counter[str]:
    return Counter(_partition_of(world).values())


def _waiting_order(world: Jobs) -> WaitingOrder:
    order = WaitingOrder()
    for key, workload in world.workloads.items():
        if (job := world.waiting_job(workload)) is not None:
            priority = job.job.priority if job.job is not None else None
            order.put(key, world.waits_in(workload), priority, job.id)
    return order


def _unread(world: Jobs) -> list[int]:
    return sorted(world.first_listed_at.keys() - world.reads_postponed.keys())


def count_under_way(world: Jobs) -> Counter[str]:
    """The number of actions in flight by limit class."""
    return Counter(action.limit_class for action in world.in_flight.values())


def count_immediate_under_way(world: Jobs) -> Counter[str]:
    """The number of immediate allocations in flight by partition.

    If the job specification names no partition, the partition that was the default at the plan counts.
    """
    immediate = (action for action in world.in_flight.values() if isinstance(action, act.AllocateNow))
    return Counter(world.immediate_in.get(action.key, world.partition_asked(action)) for action in immediate)


def _owners_held(world: Jobs) -> int:
    return sum(world.owner_sizes.values())


def _parked_in(world: Jobs) -> dict[str, set[str]]:
    parked_in: dict[str, set[str]] = {}
    for limit, waiting in world.parked.items():
        for key in waiting:
            parked_in.setdefault(key, set()).add(limit)
    return parked_in


def _cluster(world: Jobs) -> str:
    return world.mark_of_cluster()


# The order matters: some indexes are computed from earlier ones.
INDEXES: Mapping[str, Callable[[Jobs], object]] = {
    "cluster": _cluster,
    "phase_of": _phase_of,
    "job_of": _job_of,
    "by_phase": _by_phase,
    "key_of_pod": _key_of_pod,
    "node_of": _node_of,
    "claim_users": _claim_users,
    "by_slurm_name": _by_slurm_name,
    "contested": _contested,
    "searching_workloads": _searching,
    "waits_for_ports": _waits_for_ports,
    "partition_of": _partition_of,
    "queued_in": _queued_in,
    "waiting_order": _waiting_order,
    "unread": _unread,
    "under_way": count_under_way,
    "immediate_in_flight": count_immediate_under_way,
    "owners_weight": _owners_held,
    "parked_in": _parked_in,
}


# --- counts of pods -------------------------------------------------------------------------------------------------


def _recounted(workload: Workload) -> Workload:
    anew = replace(workload, pod_counts=PodCounts())  # __post_init__ counts its pods
    anew.last_rank = workload.last_rank
    return anew


def _compare_counts(workload: Workload) -> None:
    found, expected = workload.pod_counts, workload.recount()
    if found != expected:
        raise InvalidIndex("pod_counts", workload.key, found, expected)


def _host_ports(world: Jobs) -> HostPorts:
    anew = HostPorts(world.host_ports.effort)
    for node, there in world.node_info.items():
        for pod in there.pods.values():
            anew.add(pod, node)
    return anew


def _neighbours(world: Jobs, node_info: Mapping[str, NodeInfo]) -> AffinityIndex:
    anew = AffinityIndex(node_info, world.affinity_index.effort)
    for node, there in node_info.items():
        for pod in there.pods.values():
            anew.add(pod, node)
    if not world.affinity_index.has_changes:
        anew.clear_changes()
    return anew


# --- statements that hold in every World ----------------------------------------------------------------------------

_Difference = tuple[str, object, object, object]  # the arguments of InvalidIndex


def _failed_checks(world: Jobs) -> Iterator[_Difference]:
    for check in CHECKS:
        yield from check(world)


def _keys_are_those_of_their_objects(world: Jobs) -> Iterator[_Difference]:
    for key, workload in world.workloads.items():
        if workload.key != key:
            yield "workloads", key, workload.key, key
    for job_id, job in world.placeholders.items():
        if job.id != job_id:
            yield "placeholders", job_id, job.id, job_id


def _pods_are_where_their_workload_has_them(world: Jobs) -> Iterator[_Difference]:
    for workload in world.workloads.values():
        for pod in workload.pods.values():
            node = "" if pod.finished else pod.node or world.assumed.get(pod.uid, "")
            if world.node_of.get(pod.uid, "") != node:
                yield "node_of", pod.uid, world.node_of.get(pod.uid, ""), node
    for uid, node in world.assumed.items():
        if world.node_of.get(uid) != node:
            yield "assumed", uid, node, world.node_of.get(uid)
    for uid in world.unanswered_binds.keys() - world.assumed.keys():
        yield "unanswered_binds", uid, world.unanswered_binds[uid], _NOTHING


def _jobs_and_workloads_name_each_other(world: Jobs) -> Iterator[_Difference]:
    for workload in world.workloads.values():
        for job_id in workload.jobs:
            job = world.placeholders.get(job_id)
            if job is None:
                yield "placeholders", job_id, _NOTHING, f"a job of {workload.key}"
            elif job.key != workload.key and workload.key not in job.hinted_by:
                yield "hinted_by", job_id, job.hinted_by, {workload.key}
    for job in world.placeholders.values():
        for workload in world.workloads_of(job):
            if job.id not in workload.jobs:
                yield "jobs", workload.key, workload.jobs, {job.id}
        # Slurm may have given the id of an ended job to another job.
        is_own = job.key is not None and not job.denied and not job.ended
        if is_own and job.id in world.foreign - world.first_listed_at.keys():
            yield "foreign", job.id, "foreign", f"the job of {job.key}"


def _a_job_that_no_poll_shows_is_missed(world: Jobs) -> Iterator[_Difference]:
    """A job that the last poll lacks must be in `absent` or `expected`.  Otherwise no later poll notes that it is missing."""
    absent = {job.id for job in world.placeholders.values() if job.absent}
    for job_id in world.absent - absent:
        yield "absent", job_id, "absent", _NOTHING
    for job_id in absent - world.absent - world.expected:
        yield "absent", job_id, _NOTHING, "absent"
    for job_id in world.expected - world.placeholders.keys():
        yield "expected", job_id, "expected", _NOTHING
    if world.polled is not None:
        for job_id in world.placeholders.keys() - world.states.keys() - world.expected - world.absent:
            yield "expected", job_id, _NOTHING, "expected"
    for job_id in (world.reads_postponed.keys() | world.unreadable.keys()) - world.first_listed_at.keys():
        yield "first_listed_at", job_id, _NOTHING, "when it was seen first"


def _what_waits_is_indexed(world: Jobs) -> Iterator[_Difference]:
    for key, workload in world.workloads.items():
        if key in world.unsettled:
            continue
        for index, members, belongs in (
            ("wants_ports", world.wants_ports, any(pod.host_ports for pod in workload.pods.values())),
            (
                "affinity_workloads",
                world.affinity_workloads,
                any(p.anti_affinity or p.affinity for p in workload.pods.values()),
            ),
        ):
            if belongs and key not in members:
                yield index, key, _NOTHING, "one of them"
        waits = world.phase_of[key] in WAITING and key in world.affinity_workloads
        if waits != (key in world.waiting_terms):
            yield "waiting_terms", key, not waits, waits
        is_granted = world.phase_of[key] is Phase.GRANTED
        if is_granted != (key in world.granted_pods):
            yield "granted_pods", key, not is_granted, is_granted


def _rounds_of_reads(world: Jobs) -> Iterator[_Difference]:
    """A queued workload is in `detail_new` or in `detail_round`.  A workload with running pods may be in `running_…`."""
    rounds = (
        ("detail", world.detail_new, world.detail_round),
        ("running", world.running_new, world.running_round),
    )
    for name, new, in_turn in rounds:
        for key in new.keys() & in_turn.keys():
            yield f"{name}_round", key, "in both", "in one"
        for key in (new.keys() | in_turn.keys()) - world.workloads.keys():
            yield f"{name}_round", key, "read in turn", _NOTHING
    for key in world.by_phase[Phase.QUEUED].keys() - world.detail_new.keys() - world.detail_round.keys():
        yield "detail_new", key, _NOTHING, "when it is read"


def _limits(world: Jobs) -> Iterator[_Difference]:
    for user, keys in world.limited.items():
        for key in keys:
            workload = world.workloads.get(key)
            if workload is None or workload.refused is None:
                yield f"limited[{user!r}]", key, "held back by a limit", "not refused"
    jobs = Counter(world.quotas.counted_in().values())
    for quota in jobs.keys() | world.quotas.jobs.keys():
        if jobs[quota] != world.quotas.jobs[quota]:
            yield "quotas.jobs", quota, world.quotas.jobs[quota], jobs[quota]


def _actions_of_workloads_are_in_flight(world: Jobs) -> Iterator[_Difference]:
    for workload in world.workloads.values():
        for entry in (workload.in_flight, *workload.pods_in_flight.values()):
            if entry is not None and entry.until is None and not world.is_under_way(entry.action):
                yield "in_flight", workload.key, entry.action, "an action in flight"
    in_flight = world.in_flight.values()
    for job_id in world.reading - {action.job_id for action in in_flight if isinstance(action, act.ReadJob)}:
        yield "reading", job_id, "read in flight", _NOTHING
    for of in world.reading_limits - {action.of for action in in_flight if isinstance(action, act.ReadLimits)}:
        yield "reading_limits", of, "read in flight", _NOTHING
    of_pods = {
        action.uid for action in in_flight if isinstance(action, act.ReadClaims | act.SelectVolumeNode | act.ReadPod)
    }
    of_owners = {owner_key(action.namespace, action.ref) for action in in_flight if isinstance(action, act.ReadOwner)}
    for ref in world.reading_refs - of_pods - of_owners:
        yield "reading_refs", ref, "read in flight", _NOTHING


def _what_submissions_decided_holds(world: Jobs) -> Iterator[_Difference]:
    """The bind relies on the tenant and the components of the submission, and does not derive them again (Placeholder)."""
    for workload in world.workloads.values():
        for job in (*world.jobs_of(workload), workload.in_flight):
            if job is None:
                continue
            if job.components and job.components.keys() != job.asked_for:
                yield "components", workload.key, job.components.keys(), job.asked_for
            if job.asked_as is None or job.asked_as.changes != world.identity_changes:
                continue
            for pod in workload.pods.values():
                if pod.uid in job.asked_for and world.known_tenant([pod]) != job.asked_as:
                    yield "asked_as", pod.full_name, job.asked_as, world.known_tenant([pod])


def _timers_and_queues(world: Jobs) -> Iterator[_Difference]:
    waiting_for_owners = (key for keys in world.waits_for_owner.values() for key in keys)
    for index, keys in (("dirty", world.dirty), ("wakes", world.wakes), ("waits_for_owner", waiting_for_owners)):
        for key in dict.fromkeys(keys).keys() - world.workloads.keys():
            yield index, key, "a visit", "no workload"
    timers = set(world.timers)
    for key, at in world.wakes.items():
        if (at, key) not in timers:
            yield "timers", key, _NOTHING, at
    for place in range(1, len(world.timers)):
        if world.timers[(place - 1) // 2] > world.timers[place]:
            yield "timers", place, world.timers[place], "a heap"
    for limit, waiting in world.parked.items():
        if set(waiting.first(len(waiting))) != set(waiting):
            yield f"parked[{limit!r}]", None, waiting.first(len(waiting)), list(waiting)


def _grants_that_are_about_to_be_bound(world: Jobs) -> Iterator[_Difference]:
    if world.granted_unbound_pods is None:
        return
    found = {entry.key: (set(entry.pods), entry.nodes) for entry in world.granted_unbound_pods}
    expected = {entry.key: (set(entry.pods), entry.nodes) for entry in world.compute_granted_unbound()}
    for key in found.keys() | expected.keys():
        if found.get(key) != expected.get(key):
            yield "granted_unbound_pods", key, found.get(key), expected.get(key)


def _nodes_in_step(world: Jobs) -> Iterator[_Difference]:
    state = world.node_state
    named = {name: set(nodes) for name, nodes in _named(world.nodes or {}).items()}
    for name in named.keys() | state.named.keys():
        if named.get(name) != state.named.get(name):
            yield "node_state.named", name, state.named.get(name), named.get(name)
    mark = names.node_mark(world.cluster)
    ours = {name for name, node in (world.slurm_nodes or {}).items() if mark in node.features}
    for name in ours ^ state.ours:
        yield "node_state.ours", name, name in state.ours, name in ours


CHECKS: tuple[Callable[[Jobs], Iterator[_Difference]], ...] = (
    _keys_are_those_of_their_objects,
    _pods_are_where_their_workload_has_them,
    _jobs_and_workloads_name_each_other,
    _a_job_that_no_poll_shows_is_missed,
    _what_waits_is_indexed,
    _rounds_of_reads,
    _limits,
    _actions_of_workloads_are_in_flight,
    _what_submissions_decided_holds,
    _timers_and_queues,
    _grants_that_are_about_to_be_bound,
    _nodes_in_step,
)

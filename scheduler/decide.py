"""One pass: each marked workload is visited by the rule of its phase (ARCHITECTURE 3).

`decide` visits the workloads that events marked, whose wake-up time has come, or whose turn it is in a limit: a limit class
of actions, a quota, or a token bucket.  With everything=True it visits all workloads; a property test checks that the plan is
the same, except for additional reads of owners.  `decide` reads the World, changes nothing in it, and returns a Plan.  RULES
is the state machine: each rule returns a Decision, which the driver enters in the plan (rules/driver.py).

After the workloads, the pass does the periodic work for all of them (PERIODIC), and visits the nodes that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from scheduler import actions as act
from scheduler.actions import ObjectKind, Plan
from scheduler.apply.settling import pods_of_group
from scheduler.events import Side
from scheduler.nodes.observed import NOT_YET
from scheduler.rules.bound import bound
from scheduler.rules.decision import NOTHING, Decision
from scheduler.rules.done import end_job
from scheduler.rules.driver import enter
from scheduler.rules.gathering import gathering
from scheduler.rules.granted import granted
from scheduler.rules.guard import SharedRule, guarded, plan_retries, visit, visit_node, visit_shared
from scheduler.rules.one_time_events import one_time_events
from scheduler.rules.orphaned import end_pods
from scheduler.rules.periodic import (
    nudge,
    read_details,
    read_postponed,
    read_running,
    read_unanswered_binds,
    read_unknown,
)
from scheduler.rules.queued import queued
from scheduler.rules.reconcile_nodes import auto_reconfigure, reconcile_node
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.unsubmitted import unsubmitted
from scheduler.state.phase import Phase
from scheduler.state.turns import Turns
from scheduler.state.workload import Workload
from scheduler.state.world import World

AGAIN_S = 0.02  # the time to the next pass, if a pass leaves only workloads that wait in a limit
SETTLING = 2  # the effort for one pod of a group whose members are determined again
NODE_POLL_S = 1.0  # after a poll of Slurm's nodes for a grant, before the next one
VISIT = 1  # the effort of one visit, besides the effort that the rule counts itself


def decide(world: World, now: float, *, everything: bool = False) -> Plan:
    """The plan at *now*, epoch seconds; if there is nothing to do, it has no actions, only the time of the next pass."""
    this_pass = Pass(world, now)
    if not world.ready:  # not everything was listed once
        return this_pass.plan()
    away = world.outages.get(Side.KUBERNETES)
    if away is not None and now - away.since > this_pass.tuning.stale_s:  # the facts about pods are too old to act on
        return this_pass.plan()
    tried = plan_retries(this_pass) if world.quarantine else {}
    if world.unsettled:
        _settle_some(this_pass)
    if keys := _choose_visits(this_pass, everything, tried.get(ObjectKind.WORKLOAD, ())):
        _visit_in_turn(keys, this_pass)
    for work, rules in PERIODIC.items():
        visit_shared(work, rules, this_pass)
    visit_nodes(this_pass, tried.get(ObjectKind.NODE, ()), everything=everything)
    lacks_nodes = this_pass.lacks_nodes and now >= world.node_poll_planned_at + NODE_POLL_S
    if (world.nodes_stale or lacks_nodes) and now >= world.nodes_polled_from:
        this_pass.add(act.PollNodes("the known state of Slurm's nodes is out of date"))
    return this_pass.plan()


def _choose_visits(this_pass: Pass, everything: bool, quarantined: Iterable[str]) -> list[str]:
    """Keys of the workloads to visit: deferred by the last pass, next in turn for a limit, changed, or due."""
    world = this_pass.world
    # A workload that waits in a limit and is deferred for another reason does not overtake the workloads before it.
    keys: dict[str, None] = dict.fromkeys(key for key in world.deferred if key not in world.parked_in)
    for limit, waiting_keys in world.parked.items() if world.parked_in else ():
        if waiting_keys:
            keys.update(dict.fromkeys(waiting_keys.first(this_pass.free(limit))))
    keys.update(dict.fromkeys(world.deferred))
    keys.update(world.dirty)
    if world.affinity_index.has_changes or world.anti_affinity_namespaces:
        this_pass.anti_affinity_done = True
        keys.update(dict.fromkeys(world.visits_for_anti_affinity()))
    keys.update(dict.fromkeys(world.due(this_pass.now)[0]))
    keys.update(dict.fromkeys(quarantined))
    if everything:
        keys.update(dict.fromkeys(world.workloads))
    for key in world.unsettled:
        keys.pop(key, None)
    return list(keys)


def _settle_some(this_pass: Pass) -> None:
    """Plan that the members of large groups are determined again.  This takes at most half of the effort of a pass."""
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
    found = [workload for key in keys if (workload := world.workloads.get(key)) is not None]
    turns = Turns([(workload.namespace, workload.key) for workload in found], world.turns)
    spent = this_pass.spent
    while turns and spent < this_pass.tuning.pass_effort:
        this_pass.effort += VISIT
        visit(world.workloads[turns.peek()], this_pass, _visit)
        before, spent = spent, this_pass.spent
        turns.charge(spent - before)
    _defer(turns, this_pass)


def _defer(turns: Turns, this_pass: Pass) -> None:
    """Leave the rest to the next pass.  Workloads that only wait for their turn in a limit stay parked instead."""
    world, left = this_pass.world, turns.left()
    if left:
        parked = set(world.parked_in).difference(world.dirty, world.due(this_pass.now)[0])
        this_pass.deferred += [key for key in left if key not in parked]
    this_pass.turns = turns.taken if left or this_pass.deferred else {}
    if left:
        this_pass.wake_shared(this_pass.now + AGAIN_S)


def _visit(workload: Workload, this_pass: Pass) -> bool:
    """Visit one workload by the rule of its phase.  False if the visit takes long, and only a part of it is done now."""
    world = this_pass.world
    if not this_pass.prepare(workload):
        this_pass.deferred.append(workload.key)
        return False
    this_pass.visited.append(workload.key)
    if world.undecoded.among(workload.pods):
        return True  # visited again when that pod is decoded, or is gone
    if (shown := one_time_events(workload, this_pass)) is not NOTHING:
        enter(shown, workload, this_pass)
    enter(RULES[world.phase_of[workload.key]](workload, this_pass), workload, this_pass)
    return True


def visit_nodes(this_pass: Pass, due: Iterable[str] = (), *, everything: bool) -> None:
    """Visit the nodes that changed.  While one of the clusters does not answer, nothing is done to nodes.

    due         Slurm's names of nodes in quarantine that are tried again
    everything  visit all nodes
    """
    world, node_state = this_pass.world, this_pass.world.node_state
    found = sorted(node_state.all_names.union(node_state.dirty, due) if everything else node_state.dirty.keys() | due)
    if not found or world.outages or node_state.polled == NOT_YET:
        return
    if this_pass.now < world.quiet_until():
        this_pass.wake_shared(world.quiet_until())
        return
    for name in found:
        visit_node(name, this_pass, reconcile_node)
    for action in guarded(
        this_pass, ObjectKind.SHARED, "the reconfiguration of Slurm", (), auto_reconfigure, this_pass
    ):
        this_pass.add(action)


Rule = Callable[[Workload, Pass], Decision]

PERIODIC: Mapping[str, tuple[SharedRule, ...]] = {
    "reads of unknown jobs": (read_postponed, read_unknown),
    "reads of pods whose binds were not answered": (read_unanswered_binds,),
    "reads of waiting jobs": (read_details,),
    "reads of running jobs": (read_running,),
    "the nudge": (nudge,),
}


RULES: Mapping[Phase, Rule] = {
    Phase.GATHERING: gathering,
    Phase.UNSUBMITTED: unsubmitted,
    Phase.QUEUED: queued,
    Phase.GRANTED: granted,
    Phase.BOUND: bound,
    Phase.ORPHANED: end_pods,
    Phase.DONE: end_job,
}

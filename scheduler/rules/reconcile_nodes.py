"""Reconciles nodes of both clusters (rules N).

A labelled Kubernetes node is registered as an external node of Slurm.  If both clusters have a node, and its Kubernetes node
has no label, the node is shared, for example a node of slurm.conf.  A shared node is drained while a cause in Kubernetes
lasts (`_cause`), resumed after that, and otherwise left alone.

The bridge registers a node with a feature, the mark, which shows that this cluster registered the node.  A node of Slurm
without the mark is never removed or set down.  The prefix of a drain's reason shows that the bridge drained the node.  If an
admin drained or set down a node, the node stays so.

Several bridges of one Kubernetes cluster, each with its own schedulerName, may share nodes.  A registered node belongs to the
bridge that registered it.  All bridges drain and resume the other nodes, for the same causes.

A node is set down or removed only while Slurm has no job there, and after a poll has shown it drained, so that no job can
have started in between.  A node that has not responded for a time is removed without a drain, because Slurm starts no job
there.  So nothing here ends a running job.

The rule of a node returns actions.  `visit_node` enters them in the plan, as far as there is room (guard.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler import actions as act
from scheduler import names
from scheduler.actions import NodeChange
from scheduler.model.kubernetes import Condition, Node
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import NodeSpec, SlurmNode
from scheduler.model.text import line, span
from scheduler.nodes.registration import registration, size, size_mismatch, uncounted
from scheduler.rules.node_condition import (
    LEAVES,
    MAX_REASON,
    Actions,
    another_shows,
    contested,
    in_slurm,
    is_shown,
    not_ours,
    show,
    unmark,
)
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.world import World

NOT_READY = names.NODE_REASON + "not ready in Kubernetes"
CORDONED = names.NODE_REASON + "cordoned in Kubernetes"
GONE = names.NODE_REASON + "its Kubernetes node is gone"
UNWANTED = f"{names.NODE_REASON}no label {names.EXTERNAL_NODE_LABEL}=true any more"
REPLACED = names.NODE_REASON + "to be registered again: "
SILENT = "to be registered again: Slurm believes that it does not respond, or has powered it down"

BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


def reconcile_node(name: str, this_pass: Pass) -> Actions:
    """The actions on one node; none if both clusters show it as it should be."""
    world, node_state = this_pass.world, this_pass.world.node_state
    if name in node_state.in_flight:
        return ()  # the node is visited again when the action ends, and at the poll after that
    assert world.nodes is not None
    assert world.slurm_nodes is not None
    known = world.slurm_nodes.get(name)
    if known is None and name in world.undecoded_nodes:
        return ()  # Slurm may have the node: it is visited again after the next poll that can be decoded
    if world.config.leaving:
        return _leave(name, known, this_pass)
    if claims := world.contested.get(name):
        nodes = [world.nodes[claim] for claim in claims]
        if not _is_kept(name, this_pass):
            return unmark(nodes, this_pass)
        return _show_on(nodes, contested(name, claims), this_pass)
    wanted = node_state.to_register(name, world.nodes)
    if not wanted:
        if known is None or name in node_state.ours:
            return _retire(name, known, this_pass)
        return _share(name, known, this_pass)
    if known is None:
        return _register(wanted[0], name, this_pass)
    if name not in node_state.ours:
        return _reconcile_foreign(wanted[0], known, this_pass)
    return _reconcile(wanted[0], known, this_pass)


def _show_on(nodes: Iterable[Node], condition: Condition, this_pass: Pass) -> Actions:
    return tuple(action for node in nodes for action in show(node, condition, this_pass))


def _is_kept(name: str, this_pass: Pass) -> bool:
    """True if the bridge reconciles the node: it is registered or is to be registered, or shared nodes are reconciled."""
    world, node_state = this_pass.world, this_pass.world.node_state
    return world.config.shared_nodes or name in node_state.ours or bool(node_state.to_register(name, world.nodes or {}))


# --- nodes that are to be in Slurm ----------------------------------------------------------------------------------


def _register(node: Node, name: str, this_pass: Pass) -> Actions:
    """Register a node that Slurm does not have (N1), or show why it is not registered."""
    node_state = this_pass.world.node_state
    spec = _spec(node, this_pass)
    if isinstance(spec, Refusal):
        return show(node, Condition(False, spec.reason, spec.message), this_pass)
    failed = node_state.failed.get(name)
    if failed is not None and failed.retry_at > node_state.polled and failed.action == _registers(spec):
        return show(node, Condition(False, names.NODE_REFUSED, failed.message), this_pass)
    if until := _not_yet(node, this_pass):
        message = f"It is registered in Slurm as {name} as soon as it {until}."
        return show(node, Condition(False, names.NODE_WAITS, message), this_pass)
    return (_registers(spec),)


def _not_yet(node: Node, this_pass: Pass) -> str:
    """The condition for which the registration waits, in words that follow "as soon as it"; "": none."""
    if not node.ready:
        return "is ready"
    if node.unschedulable:
        return "is uncordoned"
    settle_s = this_pass.tuning.node_settle_s
    since = this_pass.world.ready_since.get(node.name)
    if since is not None and this_pass.world.node_state.polled - since[1] < settle_s:
        return f"has been ready for {span(settle_s)}, so that its devices are known"
    return ""


def _registers(spec: NodeSpec) -> act.RegisterNode:
    return act.RegisterNode(spec, f"node {spec.name} is labelled {names.EXTERNAL_NODE_LABEL}=true")


def _spec(node: Node, this_pass: Pass) -> NodeSpec | Refusal:
    world = this_pass.world
    config = world.config
    mark = names.node_mark(world.cluster)
    return registration(node, config.external_nodes, config.translation.gres, world.partitions, mark)


def _reconcile_foreign(node: Node, known: SlurmNode, this_pass: Pass) -> Actions:
    """Slurm has a node of that name that this cluster did not register.  If it is shared, reconcile it; show its state."""
    if _is_shared(known, this_pass):
        action = _next(node, known, _cause(node, known, this_pass), this_pass)
        if action is not None and _may_try(action, this_pass):
            return (action,)
    return show(node, not_ours(known), this_pass)


def _share(name: str, known: SlurmNode, this_pass: Pass) -> Actions:
    """Reconcile a node of both clusters without the label: drain it with Kubernetes, and show its state (N8)."""
    there = this_pass.world.node_state.nodes_named(name, this_pass.world.nodes or {})
    if not _is_shared(known, this_pass) or len(there) != 1:
        return unmark(there, this_pass)
    return _reconcile(there[0], known, this_pass)


def _is_shared(known: SlurmNode, this_pass: Pass) -> bool:
    """True if the setting `shared_nodes` is on and no other bridge registered the node."""
    return this_pass.world.config.shared_nodes and not is_anothers(known)


def _reconcile(node: Node, known: SlurmNode, this_pass: Pass) -> Actions:
    """Drain a node of both clusters while a cause lasts, otherwise resume it (N2, N4); then show its state."""
    action = _next(node, known, _cause(node, known, this_pass), this_pass)
    if action is not None and _may_try(action, this_pass):
        return (action,)
    ours = known.name in this_pass.world.node_state.ours
    failed = this_pass.world.node_state.failed.get(known.name)
    dropped = (
        uncounted(size(node, this_pass.world.config.translation.gres), this_pass.world.node_state.counted)
        if ours
        else ()
    )
    problem = failed.message if action is not None and failed else ""
    condition = in_slurm(node, known, problem, dropped, ours=ours)
    if not is_shown(node, condition, this_pass.world):
        return show(node, condition, this_pass)
    taint = ours and this_pass.world.config.external_nodes.taint
    if taint and not _is_tainted(node) and node.name not in this_pass.world.node_state.writes_in_flight:
        return (act.TaintNode(node.name, node.uid, "its pods come by way of Slurm"),)
    return ()


def _cause(node: Node, known: SlurmNode, this_pass: Pass) -> str:
    """Why the node must get no new jobs, as the reason of a drain in Slurm; "": it may get jobs.

    A node with a slurmd needs no kubelet for Slurm's own jobs.  If it is not ready, it is drained only while pods of the
    bridge are there, because these may still hold devices (S8).
    """
    node_state, world = this_pass.world.node_state, this_pass.world
    if not node.ready and (known.external or _has_our_pods(node, this_pass)):
        return NOT_READY
    if node.unschedulable:
        return CORDONED
    if known.name not in node_state.ours:
        return ""
    why = size_mismatch(known, size(node, world.config.translation.gres), node_state.counted)
    _, since = node_state.mismatched.get(known.name, (None, float("inf")))
    steady = node_state.polled - since >= this_pass.tuning.node_unlike_s
    if why and (steady or known.reason.startswith(REPLACED)):  # a previous process decided to replace it
        return REPLACED + why
    return ""


def _next(node: Node, known: SlurmNode, cause: str, this_pass: Pass) -> act.OnSlurmNode | None:
    """The action on the node in Slurm; None: its state is as wanted, or an admin set it, or it boots.

    cause   why the node must get no new jobs, as the reason of a drain in Slurm; "": it may get jobs
    """
    ours, down = known.name in this_pass.world.node_state.ours, "DOWN" in known.states
    if cause and known.boots_for_a_job:
        return None
    if not known.taken_out:
        if cause:
            return act.ChangeNode(known.name, NodeChange.DRAIN, cause, known)
        if ours and _is_silent_for_long(known.name, this_pass) and _is_empty(known):
            return act.RemoveNode(known.name, SILENT, known)
        return None
    if not known.reason.startswith(names.NODE_REASON):
        return None
    # Only a registered node was set down here.  slurmctld sets a node down whose slurmd is silent, or that did not come back
    # from a reboot in time, and keeps the reason of the drain.
    if known.reboots or (down and not ours):
        return None
    if not cause or (down and node.ready):
        return act.ChangeNode(known.name, NodeChange.RESUME, f"{known.reason}: no more", known)
    if down:
        return None
    if known.reason != cause:
        return act.ChangeNode(known.name, NodeChange.DRAIN, cause, known)
    if cause.startswith(REPLACED) and _is_empty(known):
        return act.RemoveNode(known.name, cause.removeprefix(names.NODE_REASON), known)
    if _is_empty(known) and _is_dead(node, known, this_pass):
        return act.ChangeNode(known.name, NodeChange.DOWN, NOT_READY, known)
    return None


def _is_dead(node: Node, known: SlurmNode, this_pass: Pass) -> bool:
    """True if a registered node has not been ready for node_down_s and has no pods of the bridge any more (N4)."""
    node_state = this_pass.world.node_state
    since = node_state.unready.get(known.name, float("inf"))
    long = node_state.polled - since >= this_pass.tuning.node_down_s
    return long and known.name in node_state.ours and not _has_our_pods(node, this_pass)


def _has_our_pods(node: Node, this_pass: Pass) -> bool:
    """True if pods of this bridge, or of another bridge of this cluster, are on the node: all bridges share the drain."""
    there = this_pass.world.node_info.get(node.name)
    own_name = this_pass.world.config.scheduler_name
    return there is not None and any(
        pod.scheduler_name == own_name or names.JOB_ID in pod.annotations for pod in there.pods.values()
    )


def _is_empty(known: SlurmNode) -> bool:
    """True if Slurm has no job there, not even a job that is ending."""
    return bool(known.states & {"IDLE", "DOWN"}) and not known.states & BUSY


def _is_tainted(node: Node) -> bool:
    return any(taint.key == names.MANAGED_TAINT for taint in node.taints)


def _may_try(action: act.OnSlurmNode, this_pass: Pass) -> bool:
    """False if the same action failed less than node_retry_s ago."""
    failed = this_pass.world.node_state.failed.get(action.name)
    return failed is None or failed.action != action or failed.retry_at <= this_pass.world.node_state.polled


# --- nodes that must leave Slurm ------------------------------------------------------------------------------------


def _retire(name: str, known: SlurmNode | None, this_pass: Pass) -> Actions:
    """Drain and then remove a registered node whose Kubernetes node is gone or has no label any more (N5)."""
    world, node_state = this_pass.world, this_pass.world.node_state
    leaving = bool(world.config.leaving)
    left = node_state.nodes_named(name, world.nodes or {})
    if known is None:
        return unmark(left, this_pass)
    why = LEAVES if leaving else UNWANTED if left else GONE
    is_admins = not known.reason.startswith(names.NODE_REASON)
    action: act.OnSlurmNode | None = None
    if not known.taken_out:
        action = act.ChangeNode(name, NodeChange.DRAIN, why, known)
    elif not is_admins and _is_empty(known) and (leaving or _is_gone_for_long(name, this_pass)):
        action = act.RemoveNode(name, why.removeprefix(names.NODE_REASON), known)
    if action is not None:
        if _may_try(action, this_pass):
            return (action,)
        return _show_on(left, Condition(False, names.NODE_REFUSED, node_state.failed[name].message), this_pass)
    message = f"Slurm node {name} is drained, and removed when no job is left there."
    if is_admins:
        message = f"An admin took Slurm node {name} out of service; it is removed after an admin has resumed it."
    return _show_on(left, Condition(False, names.NODE_DRAINED, message), this_pass)


def _leave(name: str, known: SlurmNode | None, this_pass: Pass) -> Actions:
    """Uninstall: remove a registered node once it is idle; on other nodes, undo a drain by the bridge."""
    node_state, world = this_pass.world.node_state, this_pass.world
    if name in node_state.ours:
        return _retire(name, known, this_pass)
    there = node_state.nodes_named(name, world.nodes or {})
    if (known is not None and is_anothers(known)) or any(another_shows(node, world) for node in there):
        return ()
    if known is not None and has_our_drain(known) and name not in node_state.given_up:
        action = act.ChangeNode(
            name, NodeChange.RESUME, f"{known.reason}: {LEAVES.removeprefix(names.NODE_REASON)}", known
        )
        return (action,) if _may_try(action, this_pass) else ()
    return unmark(there, this_pass)


def is_anothers(known: SlurmNode) -> bool:
    """True if another bridge registered the node.  Call this only for a node that this bridge did not register."""
    return any(feature.startswith(names.NODE_MARK) for feature in known.features)


def has_our_drain(known: SlurmNode) -> bool:
    """True if the bridge drained the node, and no other client has set another reason since then."""
    return bool(known.taken_out) and known.reason.startswith(names.NODE_REASON)


def left_on_nodes(world: World) -> Iterator[str]:
    """The changes on nodes that the uninstallation still has to undo, each as an imperative sentence."""
    node_state, known_nodes = world.node_state, world.slurm_nodes or {}
    for name in sorted(node_state.all_names):
        known = known_nodes.get(name)
        failed = node_state.failed.get(name)
        why = f" ({failed.message})" if failed is not None else ""
        there = [node for node in node_state.nodes_named(name, world.nodes or {}) if node.in_slurm is not None]
        if name not in node_state.ours and any(another_shows(node, world) for node in there):
            continue
        if known is None and name in world.undecoded_nodes:
            yield f"look at Slurm node {name}, which cannot be read"
        elif known is not None and name in node_state.ours:
            yield f"remove Slurm node {name}{_not_before(known)}{why}"
        elif known is not None and is_anothers(known):
            continue
        elif known is not None and has_our_drain(known) and name not in node_state.given_up:
            yield f'resume Slurm node {name}, drained with the reason "{line(known.reason, MAX_REASON)}"{why}'
        for node in there:
            taint = f"the taint {names.MANAGED_TAINT} and " if _is_tainted(node) else ""
            yield f"take {taint}the condition {names.IN_SLURM} from Kubernetes node {node.name}"


def _not_before(known: SlurmNode) -> str:
    """Why the removal of the node waits, as the end of a sentence; "": it does not wait."""
    if known.taken_out and not known.reason.startswith(names.NODE_REASON):
        return (
            f", which an admin took out of service: resume it (scontrol update nodename={known.name} state=resume), or "
            f"delete it (scontrol delete nodename={known.name})"
        )
    return "" if _is_empty(known) else ", once no job is left there"


def _is_gone_for_long(name: str, this_pass: Pass) -> bool:
    """True if the Kubernetes node has been gone for node_gone_s.  A list without any node proves nothing."""
    since = this_pass.world.node_state.without_node.get(name, float("inf"))
    return bool(this_pass.world.nodes) and this_pass.world.node_state.polled - since >= this_pass.tuning.node_gone_s


# --- nodes that do not respond ----------------------------------------------------------------------------------------


def auto_reconfigure(this_pass: Pass) -> tuple[act.Reconfigure, ...]:
    """Reconfigure Slurm, at most every cure_every_s, to bring back external nodes of slurm.conf (N3)."""
    node_state, tuning = this_pass.world.node_state, this_pass.tuning
    config = this_pass.world.config
    if (
        not config.external_nodes.cure
        or config.leaving
        or node_state.polled - node_state.reconfigured_at < tuning.cure_every_s
    ):
        return ()
    silent = sorted(
        name
        for name in node_state.silent
        if _is_silent_for_long(name, this_pass) and _wants_reconfigure(name, this_pass)
    )
    if not silent:
        return ()
    return (act.Reconfigure(f"Slurm believes that {', '.join(silent[:10])} does not respond"),)


def _is_silent_for_long(name: str, this_pass: Pass) -> bool:
    since = this_pass.world.node_state.silent.get(name, float("inf"))
    return this_pass.world.node_state.polled - since >= this_pass.tuning.node_silent_s


def _wants_reconfigure(name: str, this_pass: Pass) -> bool:
    """True for a node in slurm.conf that is not drained.  A reconfigure does not bring back nodes of `new/node` (26.05)."""
    known = (this_pass.world.slurm_nodes or {})[name]
    states = known.states & {"DYNAMIC_NORM", "NOT_RESPONDING"}
    return this_pass.world.config.shared_nodes and states == {"NOT_RESPONDING"} and not known.taken_out

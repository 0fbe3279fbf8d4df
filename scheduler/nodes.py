"""Nodes in step (rules N): a labelled Kubernetes node is registered as an external node of Slurm; one that both sides
know anyway, from slurm.conf or another hand, is shared: drained and resumed with Kubernetes, and otherwise left alone.

Whose node it is says its mark, a feature that it is registered with; without it no node of Slurm is ever removed or set
down.  Whose drain it is says how its reason begins: what an admin drained or set down stays so.

A node is never set down nor removed while Slurm has a job there, and only after a poll has shown it drained: no job can
have come in between.  So nothing here ends anything that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from scheduler import actions as act
from scheduler import names
from scheduler.actions import Kind, NodeChange
from scheduler.guard import guarded
from scheduler.model import Node, NodeSpec, Refusal, SlurmNode
from scheduler.plain import line
from scheduler.quarantine import is_dropped
from scheduler.registration import named_partitions, outgrown, registration, size, uncounted
from scheduler.upkeep import NEVER
from scheduler.view import View

if TYPE_CHECKING:
    from scheduler.world import World

NOT_READY = names.NODE_REASON + "not ready in Kubernetes"
CORDONED = names.NODE_REASON + "cordoned in Kubernetes"
GONE = names.NODE_REASON + "its Kubernetes node is gone"
LEAVES = names.NODE_REASON + "the bridge is being uninstalled"
UNWANTED = f"{names.NODE_REASON}no label {names.EXTERNAL_NODE_LABEL}=true any more"
REPLACED = names.NODE_REASON + "to be registered anew: "
SILENT = "to be registered anew: Slurm believes that it does not respond"

BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
MAX_REASON = 300


def keep_nodes(view: View, due: Iterable[str] = (), *, everything: bool) -> None:
    """Look at the nodes that changed; while one side does not answer nothing is done to any.

    due   Slurm's names of nodes in quarantine that are tried again
    """
    world, upkeep = view.world, view.world.upkeep
    todo = sorted(upkeep.everyone.union(upkeep.dirty, due) if everything else upkeep.dirty.keys() | due)
    if world.lost or upkeep.polled == NEVER or not (todo or upkeep.silent):
        return
    if view.now < world.quiet_until():
        view.wake_shared(world.quiet_until())
        return
    view.kept += [name for name in todo if _try(name, view)]
    _cure(view)


def _try(name: str, view: View) -> bool:
    """Under guard.  A node in quarantine leaves it when its rule does not raise; one that was dropped is left alone."""
    quarantine = view.world.quarantine
    if not quarantine:
        return guarded(view, Kind.NODE, name, True, _keep, name, view)
    if is_dropped(view.world, Kind.NODE, name):
        return True
    failed = len(view.failed)
    kept = guarded(view, Kind.NODE, name, True, _keep, name, view)
    if len(view.failed) == failed and (Kind.NODE, name) in quarantine:
        view.lifted.append((Kind.NODE, name))
    return kept


def _keep(name: str, view: View) -> bool:
    """False: it could not be done now, and is looked at again."""
    world, upkeep = view.world, view.world.upkeep
    if name in upkeep.holds:
        return True  # its end, and the poll after that, make the next look
    assert world.nodes is not None
    assert world.slurm_nodes is not None
    known = world.slurm_nodes.get(name)
    if known is None and name in world.unread_nodes:
        return True  # Slurm has it, or may have it: the next poll that can be read makes the next look
    if world.config.leaving:
        return _leave(name, known, view)
    if claims := world.contested.get(name):
        nodes = [world.nodes[each] for each in claims]
        if not _is_kept(name, view):
            return all(_release(node, view) for node in nodes)
        return all(_show(node, False, *_contested(name, claims), view) for node in nodes)
    wanted = upkeep.wanted(name, world.nodes)
    if not wanted:
        return _retire(name, known, view) if known is None or name in upkeep.ours else _share(name, known, view)
    if known is None:
        return _register(wanted[0], name, view)
    if name not in upkeep.ours:
        return _not_ours(wanted[0], known, view)
    return _in_step(wanted[0], known, view)


def _is_kept(name: str, view: View) -> bool:
    """False for a node that the bridge would leave alone, whoever claimed it."""
    world, upkeep = view.world, view.world.upkeep
    return world.config.shared_nodes or name in upkeep.ours or bool(upkeep.wanted(name, world.nodes or {}))


def _contested(name: str, claims: Sequence[str]) -> tuple[str, str]:
    """(reason, message) for each of the nodes that claim this name: nothing is done to Slurm's node meanwhile."""
    return names.NODE_CONTESTED, (
        f"The Kubernetes nodes {', '.join(claims)} claim to be the same node of Slurm, {name}: none of them gets pods from "
        f"slurm-bridge, and nothing is changed in Slurm. Correct the label {names.SLURM_NODE_LABEL} of all but one."
    )


# --- one that is to be there --------------------------------------------------------------------------------------


def _register(node: Node, name: str, view: View) -> bool:
    """Slurm does not know it yet (N1)."""
    upkeep = view.world.upkeep
    spec = _spec(node, view)
    if isinstance(spec, Refusal):
        return _show(node, False, spec.reason, spec.message, view)
    failed = upkeep.failed.get(name)
    if failed is not None and failed.retry_at > upkeep.polled and failed.action == _registers(spec):
        return _show(node, False, names.NODE_REFUSED, failed.message, view)
    if until := _not_yet(node, view):
        message = f"It is registered in Slurm as {name} as soon as it {until}."
        return _show(node, False, names.NODE_WAITS, message, view)
    return view.add(_registers(spec))


def _not_yet(node: Node, view: View) -> str:
    """What it still waits for, in words that follow "as soon as it"; "": nothing."""
    if not node.ready:
        return "is ready"
    if node.unschedulable:
        return "is uncordoned"
    settle_s = view.tuning.node_settle_s
    since = view.world.ready_since.get(node.name)
    if since is not None and view.world.upkeep.polled - since[1] < settle_s:
        return f"has been ready for {settle_s:.0f} s, so that its devices are known"
    return ""


def _registers(spec: NodeSpec) -> act.RegisterNode:
    return act.RegisterNode(spec, f"node {spec.name} is labelled {names.EXTERNAL_NODE_LABEL}=true")


def _spec(node: Node, view: View) -> NodeSpec | Refusal:
    world = view.world
    config = world.config
    mark = names.node_mark(world.cluster)
    return registration(node, config.external_nodes, config.translation.gres, world.partitions, mark)


def _not_ours(node: Node, known: SlurmNode, view: View) -> bool:
    """Slurm has a node of that name, and we did not make it: it stays shared, if it was, and else is left alone."""
    if _is_shared(known, view):
        action = _next(node, known, _cause(node, known, view), view)
        if action is not None and _may_try(action, view):
            return view.add(action)
    if known.external:
        message = (
            f"Slurm has an external node {known.name} already, which this slurm-bridge did not register. To hand it over, "
            f"drain it and: scontrol delete nodename={known.name}. Else remove the label {names.EXTERNAL_NODE_LABEL}."
        )
    else:
        message = (
            f"Slurm knows {known.name} as an ordinary node, with a slurmd. Remove the label "
            f"{names.EXTERNAL_NODE_LABEL} here, or the node from slurm.conf."
        )
    return _show(node, False, names.NODE_NOT_OURS, message, view)


def _share(name: str, known: SlurmNode, view: View) -> bool:
    """Both know it, and it was not registered from here: it is drained with Kubernetes, and its state is shown (N8)."""
    there = view.world.upkeep.left(name, view.world.nodes or {})
    if not _is_shared(known, view) or len(there) != 1:
        return all(_release(node, view) for node in there)
    return _in_step(there[0], known, view)


def _is_shared(known: SlurmNode, view: View) -> bool:
    """True if the setting `shared_nodes` is on and no other bridge registered the node: that bridge keeps it in step."""
    return view.world.config.shared_nodes and not is_anothers(known)


def _in_step(node: Node, known: SlurmNode, view: View) -> bool:
    """Both know it: drained while it has to be, and in service else (N2, N4)."""
    action = _next(node, known, _cause(node, known, view), view)
    if action is not None and _may_try(action, view):
        return view.add(action)
    ours = known.name in view.world.upkeep.ours
    failed = view.world.upkeep.failed.get(known.name)
    dropped = uncounted(size(node, view.world.config.translation.gres), view.world.upkeep.counted) if ours else ()
    state = _state(node, known, failed.message if action is not None and failed else "", dropped, ours=ours)
    if not _says(node, *state):
        return _show(node, *state, view)
    taint = ours and view.world.config.external_nodes.taint
    if taint and not _tainted(node) and node.name not in view.world.upkeep.saying:
        return view.add(act.TaintNode(node.name, node.uid, "its pods come by way of Slurm"))
    return True


def _cause(node: Node, known: SlurmNode, view: View) -> str:
    """Why it must take no more jobs, as Slurm's reason; "": it may.

    A node with a slurmd takes Slurm's own jobs without a kubelet; not where our pods may still hold devices (S8).
    """
    upkeep, world = view.world.upkeep, view.world
    if not node.ready and (known.external or _ours_stand_on(node, view)):
        return NOT_READY
    if node.unschedulable:
        return CORDONED
    if known.name not in upkeep.ours:
        return ""
    why = outgrown(known, size(node, world.config.translation.gres), upkeep.counted)
    _, since = upkeep.unlike.get(known.name, (None, float("inf")))
    steady = upkeep.polled - since >= view.tuning.node_unlike_s
    if why and (steady or known.reason.startswith(REPLACED)):  # that much a life before this one had decided
        return REPLACED + why
    return ""


def _next(node: Node, known: SlurmNode, cause: str, view: View) -> act.OnSlurmNode | None:
    """What is to be done to it in Slurm now; None: it is as it should be, or as an admin wants it."""
    drained, down = "DRAIN" in known.states, "DOWN" in known.states
    if not (drained or down):
        if cause:
            return act.ChangeNode(known.name, NodeChange.DRAIN, cause, known)
        if known.name in view.world.upkeep.ours and _silent_long(known.name, view) and _empty(known):
            return act.RemoveNode(known.name, SILENT, known)
        return None
    if not known.reason.startswith(names.NODE_REASON):
        return None
    if not cause or (down and node.ready):
        return act.ChangeNode(known.name, NodeChange.RESUME, f"{known.reason}: no more", known)
    if down:
        return None
    if known.reason != cause:
        return act.ChangeNode(known.name, NodeChange.DRAIN, cause, known)
    if cause.startswith(REPLACED) and _empty(known):
        return act.RemoveNode(known.name, cause.removeprefix(names.NODE_REASON), known)
    if cause == NOT_READY and _empty(known) and _dead(node, known, view):
        return act.ChangeNode(known.name, NodeChange.DOWN, NOT_READY, known)
    return None


def _dead(node: Node, known: SlurmNode, view: View) -> bool:
    """Not ready for long, and none of our pods is there any more (N4); of one that we registered."""
    upkeep = view.world.upkeep
    since = upkeep.unready.get(known.name, float("inf"))
    long = upkeep.polled - since >= view.tuning.node_down_s
    return long and known.name in upkeep.ours and not _ours_stand_on(node, view)


def _ours_stand_on(node: Node, view: View) -> bool:
    """Or those of another slurm-bridge of this Kubernetes, which share the node and its drain."""
    there = view.world.standing.get(node.name)
    mine = view.world.config.scheduler_name
    return there is not None and any(
        pod.scheduler_name == mine or names.JOB_ID in pod.annotations for pod in there.pods.values()
    )


def _empty(known: SlurmNode) -> bool:
    """Slurm has no job there, not even one that is ending."""
    return bool(known.states & {"IDLE", "DOWN"}) and not known.states & BUSY


def _tainted(node: Node) -> bool:
    return any(taint.key == names.MANAGED_TAINT for taint in node.taints)


def _may_try(action: act.OnSlurmNode, view: View) -> bool:
    """Unless just that failed a moment ago."""
    failed = view.world.upkeep.failed.get(action.name)
    return failed is None or failed.action != action or failed.retry_at <= view.world.upkeep.polled


# --- one that is not wanted any more ------------------------------------------------------------------------------


def _retire(name: str, known: SlurmNode | None, view: View) -> bool:
    """Its Kubernetes node is gone, or labelled no more: drained, then removed once idle, if it was ours (N5)."""
    world, upkeep = view.world, view.world.upkeep
    leaving = bool(world.config.leaving)
    left = upkeep.there(name, world.nodes or {}) if leaving else upkeep.left(name, world.nodes or {})
    if known is None:
        return all(_release(node, view) for node in left)
    why = LEAVES if leaving else UNWANTED if left else GONE
    theirs = not known.reason.startswith(names.NODE_REASON)
    action: act.OnSlurmNode | None = None
    if not known.taken_out:
        action = act.ChangeNode(name, NodeChange.DRAIN, why, known)
    elif not theirs and _empty(known) and (leaving or _gone_long(name, view)):
        action = act.RemoveNode(name, why.removeprefix(names.NODE_REASON), known)
    if action is not None and _may_try(action, view):
        return view.add(action)
    said = f"Slurm node {name} is drained, and removed when no job is left there."
    if known.taken_out and theirs:
        said = f"An admin took Slurm node {name} out of service; it is removed when he has resumed it."
    return all(_show(node, False, names.NODE_DRAINED, said, view) for node in left)


def _leave(name: str, known: SlurmNode | None, view: View) -> bool:
    """The bridge is being uninstalled: a node of its own is removed once idle, on others a drain of its own is undone."""
    upkeep, world = view.world.upkeep, view.world
    if known is not None and name in upkeep.ours:
        return _retire(name, known, view)
    if known is not None and is_anothers(known):
        return True
    if known is not None and has_our_drain(known) and name not in upkeep.given_up:
        action = act.ChangeNode(
            name, NodeChange.RESUME, f"{known.reason}: {LEAVES.removeprefix(names.NODE_REASON)}", known
        )
        if _may_try(action, view):
            return view.add(action)
        return True
    return all(_release(node, view) for node in upkeep.there(name, world.nodes or {}))


def is_anothers(known: SlurmNode) -> bool:
    """True if a bridge registered the node; asked of nodes that this bridge did not register."""
    return any(feature.startswith(names.NODE_MARK) for feature in known.features)


def has_our_drain(known: SlurmNode) -> bool:
    """True if the bridge drained the node, and nobody has said otherwise since."""
    return bool(known.taken_out) and known.reason.startswith(names.NODE_REASON)


def left_on_nodes(world: World) -> Iterator[str]:
    """What a bridge that is being uninstalled has still to take back from nodes, each as a command to itself."""
    upkeep, known_nodes = world.upkeep, world.slurm_nodes or {}
    for name in sorted(upkeep.everyone):
        known = known_nodes.get(name)
        failed = upkeep.failed.get(name)
        why = f" ({failed.message})" if failed is not None else ""
        there = [node for node in upkeep.there(name, world.nodes or {}) if node.in_slurm is not None]
        if known is None and name in world.unread_nodes:
            yield f"look at Slurm node {name}, which cannot be read"
        elif known is not None and name in upkeep.ours:
            yield f"remove Slurm node {name}{_not_before(known)}{why}"
        elif known is not None and is_anothers(known):
            continue
        elif known is not None and has_our_drain(known) and name not in upkeep.given_up:
            yield f'resume Slurm node {name}, drained with the reason "{line(known.reason, MAX_REASON)}"{why}'
        for node in there:
            taint = f"the taint {names.MANAGED_TAINT} and " if _tainted(node) else ""
            yield f"take {taint}the condition {names.IN_SLURM} from Kubernetes node {node.name}"


def _not_before(known: SlurmNode) -> str:
    """What the removal of a node waits for, in words."""
    if known.taken_out and not known.reason.startswith(names.NODE_REASON):
        return (
            f", which an admin took out of service: resume it (scontrol update nodename={known.name} state=resume), or "
            f"delete it (scontrol delete nodename={known.name})"
        )
    return "" if _empty(known) else ", once no job is left there"


def _gone_long(name: str, view: View) -> bool:
    """A Kubernetes without any node at all is not believed."""
    since = view.world.upkeep.gone.get(name, float("inf"))
    return bool(view.world.nodes) and view.world.upkeep.polled - since >= view.tuning.node_gone_s


def _release(node: Node, view: View) -> bool:
    if node.in_slurm is None or node.name in view.world.upkeep.saying:
        return True
    why = LEAVES.removeprefix(names.NODE_REASON) if view.world.config.leaving else "it is not in Slurm any more"
    return view.add(act.ReleaseNode(node.name, node.uid, why))


# --- what is said -------------------------------------------------------------------------------------------------


def _state(node: Node, known: SlurmNode, failed: str, dropped: Sequence[str], *, ours: bool) -> tuple[bool, str, str]:
    """(status, reason, message) of the condition (N3).

    failed    what Slurm does not do to it, in its words
    dropped   devices of it that Slurm does not count
    ours      it was registered from here
    """
    name = known.name
    because = f": {line(known.reason, MAX_REASON).rstrip('.')}" if known.reason else ""
    also = f" {failed}" if failed else ""
    if "NOT_RESPONDING" in known.states:
        return False, names.NODE_SILENT, _silent(known, ours) + also
    if "DOWN" in known.states:
        return False, names.NODE_DOWN, f"Slurm node {name} is down{because}.{also}"
    if "DRAIN" in known.states:
        return False, names.NODE_DRAINED, f"Slurm node {name} is drained{because}.{also}"
    if failed:
        return False, names.NODE_REFUSED, failed
    if dropped:
        message = (
            f"Slurm node {name} is in service without its devices {', '.join(dropped)}, which no node of this Slurm has: "
            f"name them in GresTypes of slurm.conf, then remove the label {names.EXTERNAL_NODE_LABEL}, wait until Slurm has "
            "no such node any more, and label it again."
        )
        return False, names.NODE_REFUSED, message
    outside = [each for each in named_partitions(node) if each not in known.partitions]
    if outside:
        return False, names.NODE_OUTSIDE, _outside(outside[0], known)
    partitions = ", ".join(known.partitions) or "none"
    return True, names.NODE_IN_SERVICE, f"In service in Slurm as {name}; partitions: {partitions}."


def _silent(known: SlurmNode, ours: bool) -> str:
    if not known.external:
        return f"Slurm says that the slurmd of {known.name} does not respond, and gives it no jobs."
    said = f"Slurm says that {known.name} does not respond, and gives it no jobs: a signal or preemption with grace did that."
    if ours:
        return f"{said} It is registered anew as soon as no job is there."
    if "DYNAMIC_NORM" in known.states:
        return f"{said} Delete it when no job is there, and make it anew: nothing else brings it back."
    return f"{said} `scontrol reconfigure` brings it back."


def _outside(partition: str, known: SlurmNode) -> str:
    said = f"Slurm node {known.name} is in service, but not in partition {partition}"
    if partition not in known.features:
        return (
            f"{said}: the annotation {names.PARTITIONS} was changed after the node was registered. Remove the label "
            f"{names.EXTERNAL_NODE_LABEL}, wait until Slurm has no such node any more, and label it again."
        )
    return f"{said}: slurm.conf needs NodeSet=NAME Feature={partition}, and NAME in Nodes= of that partition."


def _says(node: Node, status: bool, reason: str, message: str) -> bool:
    shown = node.in_slurm
    return shown is not None and (shown.status, shown.reason, shown.message) == (status, reason, message)


def _show(node: Node, status: bool, reason: str, message: str, view: View) -> bool:
    message = line(message)
    if _says(node, status, reason, message):
        return True
    if node.name in view.world.upkeep.saying:
        return True
    quiet = (names.NODE_IN_SERVICE, names.NODE_WAITS)
    warning = reason not in quiet and not (reason == names.NODE_DRAINED and node.unschedulable)
    turns = node.in_slurm is None or node.in_slurm.status is not status
    return view.add(act.ShowNode(node.name, node.uid, status, reason, message, warning, turns))


# --- cure ---------------------------------------------------------------------------------------------------------


def _cure(view: View) -> None:
    """External nodes of slurm.conf that Slurm believes not to respond are brought back by a reconfigure, seldom (N3)."""
    upkeep, tuning = view.world.upkeep, view.tuning
    config = view.world.config
    if not config.external_nodes.cure or config.leaving or upkeep.polled - upkeep.cured_at < tuning.cure_every_s:
        return
    silent = sorted(name for name in upkeep.silent if _silent_long(name, view) and _wants_cure(name, view))
    if silent:
        view.add(act.Reconfigure(f"Slurm believes that {', '.join(silent[:10])} does not respond"))


def _silent_long(name: str, view: View) -> bool:
    since = view.world.upkeep.silent.get(name, float("inf"))
    return view.world.upkeep.polled - since >= view.tuning.node_silent_s


def _wants_cure(name: str, view: View) -> bool:
    """It could take jobs, and stands in slurm.conf.  What `new/node` made a reconfigure does not bring back (26.05)."""
    known = (view.world.slurm_nodes or {})[name]
    if name in view.world.contested:
        return False
    return view.world.config.shared_nodes and "DYNAMIC_NORM" not in known.states and not known.taken_out

"""The bridge's condition of a Kubernetes node, which shows the state of the node in Slurm (N3).

If no bridge registered the node, the bridge that wrote the condition first keeps writing it.  The message ends with the
name of that bridge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from scheduler import actions as act
from scheduler import names
from scheduler.model.kubernetes import Condition, Node
from scheduler.model.slurm import SlurmNode
from scheduler.model.text import MOST, line
from scheduler.nodes.registration import named_partitions
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.world import World

LEAVES = names.NODE_REASON + "the bridge is being uninstalled"
MAX_REASON = 300
_SIGNED = re.compile(r" \(by ([^()]+)\)$")

Actions = tuple[act.OnSlurmNode | act.OnKubernetesNode, ...]  # the decision about one node


# --- writing --------------------------------------------------------------------------------------------------------


def show(node: Node, condition: Condition, this_pass: Pass) -> Actions:
    """Write the condition, unless the node has it, or another bridge shows one and this bridge did not register the node."""
    world = this_pass.world
    signed = _signed(condition, world)
    if node.in_slurm == signed or node.name in world.node_state.writes_in_flight:
        return ()
    if world.in_slurm(node.name) not in world.node_state.ours and another_shows(node, world):
        return ()
    quiet = (names.NODE_IN_SERVICE, names.NODE_WAITS)
    warning = signed.reason not in quiet and not (signed.reason == names.NODE_DRAINED and node.unschedulable)
    turns = node.in_slurm is None or node.in_slurm.status is not signed.status
    return (act.SetNodeCondition(node.name, node.uid, signed.status, signed.reason, signed.message, warning, turns),)


def unmark(nodes: Sequence[Node], this_pass: Pass) -> Actions:
    """Remove taint and condition from these nodes, which Slurm does not have now."""
    world = this_pass.world
    why = LEAVES.removeprefix(names.NODE_REASON) if world.config.leaving else "it is not in Slurm any more"
    return tuple(
        act.UnmarkNode(node.name, node.uid, why)
        for node in nodes
        if node.in_slurm is not None
        and not another_shows(node, world)
        and node.name not in world.node_state.writes_in_flight
    )


def is_shown(node: Node, condition: Condition, world: World) -> bool:
    """True if the node has this condition, as this bridge writes it."""
    return node.in_slurm == _signed(condition, world)


def another_shows(node: Node, world: World) -> bool:
    """True if another bridge of this Kubernetes cluster wrote the condition of the node: it ends with the bridge's name.

    A bridge with the default name does not sign its conditions.
    """
    if node.in_slurm is None:
        return False
    signed = _SIGNED.search(node.in_slurm.message)
    return (signed[1] if signed is not None else names.SCHEDULER_NAME) != world.config.scheduler_name


def _signed(condition: Condition, world: World) -> Condition:
    """The condition as this bridge writes it: one line of limited length, with the bridge's name unless it is the default."""
    own = world.config.scheduler_name
    signature = f" (by {own})" if own != names.SCHEDULER_NAME else ""
    return replace(condition, message=line(condition.message, MOST - len(signature)) + signature)


# --- what it shows --------------------------------------------------------------------------------------------------


def contested(name: str, claims: Sequence[str]) -> Condition:
    """The condition of each Kubernetes node that claims this name.  Slurm's node is not changed meanwhile."""
    return Condition(
        False,
        names.NODE_CONTESTED,
        f"The Kubernetes nodes {', '.join(claims)} claim to be the same node of Slurm, {name}: none of them gets pods from "
        f"slurm-bridge, and nothing is changed in Slurm. Correct the label {names.SLURM_NODE_LABEL} of all but one.",
    )


def not_ours(known: SlurmNode) -> Condition:
    """The condition of a labelled node if Slurm has a node of its name that this cluster did not register."""
    if known.external:
        # Slurm deletes a node of slurm.conf, too, and has it again after the next reconfigure or restart.
        made = "DYNAMIC_NORM" in known.states
        whose = "already, which this slurm-bridge did not register" if made else "already, which is in slurm.conf"
        remove = (
            f"scontrol delete nodename={known.name}" if made else "take it out of slurm.conf, and scontrol reconfigure"
        )
        message = (
            f"Slurm has an external node {known.name} {whose}. To let slurm-bridge manage it, drain it, and when no job is "
            f"there: {remove}. Otherwise remove the label {names.EXTERNAL_NODE_LABEL}."
        )
    else:
        message = (
            f"Slurm knows {known.name} as an ordinary node, with a slurmd. Remove the label "
            f"{names.EXTERNAL_NODE_LABEL} here, or the node from slurm.conf."
        )
    return Condition(False, names.NODE_NOT_OURS, message)


def in_slurm(node: Node, known: SlurmNode, refused: str, dropped: Sequence[str], *, ours: bool) -> Condition:
    """The condition of a node that Slurm has.

    refused   the message of an action that Slurm refused; "": none
    dropped   devices of the node that Slurm does not count
    ours      this cluster registered the node
    """
    name = known.name
    because = f": {line(known.reason, MAX_REASON).rstrip('.')}" if known.reason else ""
    also = f" {refused}" if refused else ""
    if "DOWN" in known.states:
        return Condition(False, names.NODE_DOWN, f"Slurm node {name} is down{because}.{also}")
    if "NOT_RESPONDING" in known.closed or known.is_off_for_good:
        return Condition(False, names.NODE_SILENT, _silent(known, ours) + also)
    if "DRAIN" in known.states:
        return Condition(False, names.NODE_DRAINED, f"Slurm node {name} is drained{because}.{also}")
    if wrong := known.states & {"FAIL", "INVALID_REG"}:
        message = f"Slurm node {name} is in the state {min(wrong)}{because}.{also}"
        return Condition(False, names.NODE_DRAINED, message)
    if refused:
        return Condition(False, names.NODE_REFUSED, refused)
    if dropped:
        return Condition(False, names.NODE_REFUSED, _without_devices(name, dropped))
    outside = [partition for partition in named_partitions(node) if partition not in known.partitions]
    if outside:
        return Condition(False, names.NODE_OUTSIDE, _outside(outside[0], known))
    partitions = ", ".join(known.partitions) or "none"
    power = _power(known)
    return Condition(True, names.NODE_IN_SERVICE, f"In service in Slurm as {name}; partitions: {partitions}.{power}")


def _power(known: SlurmNode) -> str:
    """What Slurm's power saving does with the node, as a sentence that begins with a space; "": nothing."""
    if "POWERING_UP" in known.states:
        return " Slurm powers it up."
    return " Slurm has powered it down, to save power." if known.states & {"POWERED_DOWN", "POWERING_DOWN"} else ""


def _silent(known: SlurmNode, ours: bool) -> str:
    if not known.external:
        return f"Slurm says that the slurmd of {known.name} does not respond, and gives it no jobs."
    problem = (
        f"Slurm says that {known.name} does not respond, and gives it no jobs. "
        "The cause is a signal, or a preemption with grace."
    )
    if known.is_off_for_good:
        problem = (
            f"Slurm has powered down {known.name}, and a job that gets it fails, because no slurmd there says that it is up. "
            "slurm.conf must exclude external nodes from power saving (SuspendExcStates=DYNAMIC_NORM, SuspendExcNodes)."
        )
    if ours:
        return f"{problem} It is registered again as soon as no job is there."
    if "DYNAMIC_NORM" in known.states:
        return f"{problem} Delete it when no job is there, and create it again: nothing else restores it."
    return problem if known.is_off_for_good else f"{problem} `scontrol reconfigure` brings it back."


def _without_devices(name: str, dropped: Sequence[str]) -> str:
    return (
        f"Slurm node {name} is in service without its devices {', '.join(dropped)}, which no node of this Slurm has: name "
        "them in GresTypes of slurm.conf, and scontrol reconfigure; then remove the label "
        f"{names.EXTERNAL_NODE_LABEL}, wait until Slurm has no such node any more, and label it again."
    )


def _outside(partition: str, known: SlurmNode) -> str:
    problem = f"Slurm node {known.name} is in service, but not in partition {partition}"
    if partition not in known.features:
        return (
            f"{problem}: the annotation {names.PARTITIONS} was changed after the node was registered. Remove the label "
            f"{names.EXTERNAL_NODE_LABEL}, wait until Slurm has no such node any more, and label it again."
        )
    return (
        f"{problem}: slurm.conf needs NodeSet=NAME Feature={partition}, and NAME in Nodes= of that partition; then "
        "scontrol reconfigure."
    )

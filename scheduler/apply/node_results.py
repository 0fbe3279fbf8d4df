"""Applies plans and results of actions on nodes to the World (see results.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler.actions import Outcome
from scheduler.nodes.observed import UNDER_WAY, Failed, with_advice
from scheduler.state.world import World

POLL_EVERY_S = 5.0


def _slurm_node_action_planned(world: World, action: act.OnSlurmNode, at: float) -> None:
    world.node_state.in_flight[action.name] = UNDER_WAY


def _slurm_node_ended(world: World, action: act.OnSlurmNode, event: ev.ActionEnded) -> None:
    """Ask for a poll, which shows the result.  A failure is shown on the node, and the action is tried again later.

    While many nodes are registered, there is one poll for all actions that ended meanwhile: its answer has 13 MB for 5,000
    nodes.
    """
    node_state = world.node_state
    node_state.in_flight[action.name] = event.at
    if not node_state.dirty or event.at - node_state.polled >= POLL_EVERY_S:
        world.nodes_stale = True
    if event.outcome is Outcome.DONE:
        node_state.failed.pop(action.name, None)
        if world.config.leaving and isinstance(action, act.ChangeNode) and action.change is act.NodeChange.RESUME:
            node_state.given_up.add(action.name)
    elif event.refusal is not None:
        tuning = world.config.tuning
        retry_at = event.at + (tuning.node_retry_s if event.outcome is Outcome.REFUSED else tuning.settle_s)
        node_state.failed[action.name] = Failed(action, with_advice(event.refusal), retry_at)


def _node_action_planned(world: World, action: act.OnKubernetesNode, at: float) -> None:
    world.node_state.writes_in_flight.add(action.node)


def _reconfigure_planned(world: World, action: act.Reconfigure, at: float) -> None:
    world.node_state.reconfigured_at = at


def _reconfigure_ended(world: World, action: act.Reconfigure, event: ev.ActionEnded) -> None:
    world.nodes_stale = True


def _node_poll_planned(world: World, action: act.PollNodes, at: float) -> None:
    world.nodes_stale = False
    world.node_poll_planned_at = at


def _node_poll_ended(world: World, action: act.PollNodes, event: ev.ActionEnded) -> None:
    """The nodes come as SlurmNodesPolled.  A failed poll is repeated after a pause."""
    if event.outcome is not Outcome.DONE:
        world.nodes_stale = True
        world.nodes_polled_from = event.at + world.config.tuning.backoff_s * 5


ON_PLANNED: Mapping[type, Callable[[World, Any, float], None]] = {
    act.RegisterNode: _slurm_node_action_planned,
    act.ChangeNode: _slurm_node_action_planned,
    act.RemoveNode: _slurm_node_action_planned,
    act.Reconfigure: _reconfigure_planned,
    act.PollNodes: _node_poll_planned,
    act.SetNodeCondition: _node_action_planned,
    act.TaintNode: _node_action_planned,
    act.UnmarkNode: _node_action_planned,
}

ON_ENDED: Mapping[type, Callable[[World, Any, ev.ActionEnded], None]] = {
    act.RegisterNode: _slurm_node_ended,
    act.ChangeNode: _slurm_node_ended,
    act.RemoveNode: _slurm_node_ended,
    act.Reconfigure: _reconfigure_ended,
    act.PollNodes: _node_poll_ended,
}

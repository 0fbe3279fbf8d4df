"""GRANTED: the job holds nodes, and pods are yet to be bound to these (S1, W5, W9)."""

from __future__ import annotations

from scheduler.place.feasible import slurm_name
from scheduler.rules.binding import bind
from scheduler.rules.decision import NOTHING, Decision, wake
from scheduler.rules.identity import cancel, cancel_twins_of_others
from scheduler.rules.restore_keys import restore
from scheduler.rules.running import watch
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.submission import is_managed
from scheduler.rules.termination import end_job_of_silent_node, silent_until
from scheduler.rules.uninstall import end_running, is_ending_pods, releases_grant, withdraw
from scheduler.state.phase import chosen
from scheduler.state.workload import Placeholder, Workload


def granted(workload: Workload, this_pass: Pass) -> Decision:
    """Bind; the members of a gang that run already are watched meanwhile, however long the others wait for their places."""
    job = chosen(workload, this_pass.world.jobs_of(workload))
    assert job is not None, "GRANTED has a placeholder"
    silent = silent_until(workload, this_pass)
    if silent is not None and this_pass.now >= silent:
        return end_job_of_silent_node(workload, job, this_pass)
    visit = wake(silent) if silent is not None else NOTHING
    if releases_grant(workload, this_pass):
        return visit + withdraw(workload, job, this_pass)
    if is_ending_pods(this_pass):
        return visit + end_running(workload, job, this_pass)
    if job.grant is not None and not stands_on_grant(workload, job, this_pass):
        return visit + cancel_elsewhere(workload, job, this_pass)
    members = _bind_members(workload, job, this_pass)
    twins = cancel_twins_of_others(workload, job, this_pass)
    return visit + (twins.followed_by(if_not=members) if twins is not None else members)


def _bind_members(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Bind the members that are not bound yet; if nothing is planned for these, watch the others."""
    binds = bind(workload, job, this_pass)
    if workload.in_flight is not None or not any(map(workload.node_of, workload.unfinished)):
        return binds
    # one thing at a time: the next visit is at once, as what was planned need not end before it
    return binds.followed_by(if_planned=wake(this_pass.now), if_not=_watch_bound(workload, job, this_pass))


def _watch_bound(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """The members of a gang that run while others are yet to be bound."""
    if workload.edited and is_managed(workload.pod, this_pass.world):
        return restore(workload, job, this_pass) + watch(workload, job, this_pass)
    return watch(workload, job, this_pass)


def cancel_elsewhere(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    return cancel(job, workload, this_pass, f"the pod stands elsewhere than on what job {job.id} was granted")


def stands_on_grant(workload: Workload, job: Placeholder, this_pass: Pass) -> bool:
    """True unless a pod is on a node that its job does not hold.

    If the Kubernetes node of a granted one is not known, or not any more, that proves nothing (V7).  The node of each
    pod is compared, so that a second node with the same name in Slurm changes nothing.
    """
    assert job.grant is not None
    world = this_pass.world
    granted = {node.name for node in job.grant.everywhere}
    pod_nodes = {node for pod in workload.unfinished if (node := workload.node_of(pod))}
    nodes = world.nodes or {}
    return not granted <= world.by_slurm_name.keys() or all(
        name in nodes and slurm_name(nodes[name]) in granted for name in pod_nodes
    )

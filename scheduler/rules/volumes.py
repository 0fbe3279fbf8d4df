"""A pod's volumes that are made on the node of the pod: select the node, and wait until they are made (F4)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.rules.decision import Decision, plan_action, wake
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import status
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload


def await_volumes(workload: Workload, pod: Pod, job: Placeholder, node: str, this_pass: Pass) -> Decision:
    """Select the node for the volumes of the pod, or read whether they are made; the pod shows what it waits for."""
    world = this_pass.world
    claims = world.claims[pod.uid]
    waiting = tuple(claim.name for claim in claims if claim.waits)
    selected = all(claim.selected == node for claim in claims if claim.waits)
    next_at = max(
        workload.backoff.until, world.claims_read_at[pod.uid] + this_pass.tuning.claims_every_s if selected else 0.0
    )
    why = f"the volumes of {pod.full_name} are to be made on {node}"
    if this_pass.now < next_at:
        step = wake(next_at)
    elif selected:
        step = plan_action(act.ReadClaims(workload.key, pod.uid, pod.namespace, pod.claims, why))
    else:
        step = plan_action(act.SelectVolumeNode(workload.key, pod.uid, pod.namespace, pod.claims, waiting, node, why))
    message = f"Slurm job {job.id} was granted {node}; the bind waits for volumes there: {', '.join(waiting)}."
    return step + status(pod, names.GRANT_WAITS, message)

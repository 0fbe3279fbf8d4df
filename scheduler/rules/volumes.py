"""A pod's volumes (F4).

If they are made on the node of the pod: select the node, and wait until they are made.  If only one pod at a time may use
them: which pod that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    failed = why_not_made(pod, this_pass)
    return step + status(pod, names.GRANT_WAITS, f"{message} {failed}".rstrip(), warning=bool(failed))


def why_not_made(pod: Pod, this_pass: Pass) -> str:
    """Why the last request about volume claims of the pod failed, a sentence; "": it did not fail."""
    failing = this_pass.world.cannot_read.get(pod.uid)
    return f"The last request about its claims failed: {failing[1]}" if failing is not None else ""


def users_of_volumes(pods: Iterable[Pod], this_pass: Pass) -> Iterator[tuple[Pod, str, Pod]]:
    """Pods that may not use a volume claim yet, because only one pod at a time may, each with the claim and its user.

    pods   the unbound pods of one workload.  If two of them name such a claim, the first uses it
    """
    world, first = this_pass.world, dict[str, Pod]()
    for pod in pods:
        for claim in world.claims.get(pod.uid, ()):
            if not claim.one_pod:
                continue
            user = world.user_of(claim.name, pod) or _about_to_use(claim.name, pod, this_pass)
            user = user or first.setdefault(claim.name, pod)
            if user is not pod:
                yield pod, claim.name, user


def _about_to_use(claim: str, pod: Pod, this_pass: Pass) -> Pod | None:
    """Another pod that this pass binds, and that uses this claim of the pod; None: there is none."""
    planned = (other for there in this_pass.assumed.values() for other in there.pods.values())
    users = (other for other in planned if other.namespace == pod.namespace and claim in other.claims)
    return next(users, None)


def why_in_use(pod: Pod, claim: str, user: Pod) -> str:
    """Why the pod may not use the claim yet, in words without a capital."""
    return f"only one pod at a time may use claim {claim} of {pod.full_name} (ReadWriteOncePod), and {user.full_name} uses it"

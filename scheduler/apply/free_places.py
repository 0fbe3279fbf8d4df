"""Free places in the running job of a gang, for a pod of the gang that is a workload by itself (W5).

The pod's own job may wait in Slurm's queue.  This job ends when the pod takes a place in the gang.  So the pod keeps its own
job, and its turn in the queue, unless the place certainly serves the pod as well: the pod agrees with the job of the gang in
all options in which members must agree (W7), requests no more than one task of that job, and may run on its nodes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from scheduler.model.hostlist import expand
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import Grant, JobSpec
from scheduler.place.assign import lacks, tasks_on
from scheduler.state.phase import chosen
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.gang import LATEST, SHAPE

# Fields of a job specification that say nothing about the needs of one pod.
OF_THE_JOB = frozenset(
    {"name", "comment", "tasks", "tasks_per_node", "min_nodes", "max_nodes", "required_nodes", "parts"}
)


def may_take_place(world: World, gang: Workload, alone: Workload, pod: Pod) -> bool:
    """True if the pod, which is the workload *alone*, may join the gang.

    As long as no pod of the gang is on a node, each pod may join: nodes for all pods of the gang are still to be requested.
    """
    if gang.pod_counts.unbound == gang.pod_counts.unfinished:
        return True
    own = _own_spec(world, alone, pod)
    if own is None:  # the pod's needs are not known; a pod without its own job loses nothing by joining
        return not alone.jobs
    job = chosen(gang, world.jobs_of(gang))
    if job is None or job.grant is None:
        return False
    if job.spec is None:  # a previous process submitted it, so what one task requests is not known
        return not alone.jobs
    taken = Counter(world.in_slurm(node) for pod in gang.unfinished if (node := gang.node_of(pod)))
    granted = zip((job.spec, *job.spec.parts), (job.grant, *job.grant.parts), strict=False)
    return any(_serves(spec, grant, own, taken, same_shape=bool(job.spec.parts)) for spec, grant in granted)


def _own_spec(world: World, alone: Workload, pod: Pod) -> JobSpec | None:
    """The specification of the pod's own job, or of the job that would be submitted for the pod; None: not known."""
    job = chosen(alone, world.jobs_of(alone))
    if job is not None:
        return job.spec
    known = world.translations.get(pod.uid)
    return known[2] if known is not None else None


def _serves(spec: JobSpec, grant: Grant, own: JobSpec, taken: Counter[str], *, same_shape: bool) -> bool:
    """True if the grant of this component has a free place, and each of its free places serves the pod.

    taken        Slurm's name of a node to how many places there are taken by pods of the gang
    same_shape   True: the pod must have the shape of the component, because the shape of a pod decides its component
    """
    may_differ = LATEST | OF_THE_JOB | (frozenset({"excluded_nodes"}) if same_shape else SHAPE)
    if replace(own, **{field: getattr(spec, field) for field in may_differ}) != spec or lacks(spec, own):
        return False
    free = {node.name for node in grant.nodes if tasks_on(node, spec) > taken[node.name]}
    return bool(free) and free.isdisjoint(expand(own.excluded_nodes))

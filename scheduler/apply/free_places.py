"""Free places in the running job of a gang, for a pod of it that is a workload by itself (W5).

Its own job may wait in Slurm's queue, and ends when the pod takes the place.  So the pod keeps its own job, and its turn in
the queue, unless the place is known to serve the pod as well: the pod agrees with the job of the gang in all that members
must agree on (W7), asks for no more than one of its tasks, and may run on its nodes.
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

    A gang of which no pod is on a node has no places yet: it asks for nodes for all its pods together.
    """
    if gang.pod_counts.unbound == gang.pod_counts.unfinished:
        return True
    own = _asked_by(world, alone, pod)
    if own is None:  # without a job of its own, the pod loses nothing: it can join before its needs are known
        return not alone.jobs
    job = chosen(gang, world.jobs_of(gang))
    if job is None or job.grant is None or job.spec is None:
        return False
    taken = Counter(world.in_slurm(node) for pod in gang.unfinished if (node := gang.node_of(pod)))
    granted = zip((job.spec, *job.spec.parts), (job.grant, *job.grant.parts), strict=False)
    return any(_serves(spec, grant, own, taken, same_shape=bool(job.spec.parts)) for spec, grant in granted)


def _asked_by(world: World, alone: Workload, pod: Pod) -> JobSpec | None:
    """The specification of the pod's own job, or of the job that would be submitted for the pod; None: not known."""
    job = chosen(alone, world.jobs_of(alone))
    if job is not None:
        return job.spec
    known = world.translations.get(pod.uid)
    return known[2] if known is not None else None


def _serves(spec: JobSpec, grant: Grant, own: JobSpec, taken: Counter[str], *, same_shape: bool) -> bool:
    """True if the grant of this component has a free place, and each of its free places serves the pod.

    taken        Slurm's name of a node to how many places pods of the gang have there
    same_shape   the pod must have the shape of the component: its shape decides in which component it gets a place
    """
    may_differ = LATEST | OF_THE_JOB | (frozenset({"excluded_nodes"}) if same_shape else SHAPE)
    if replace(own, **{field: getattr(spec, field) for field in may_differ}) != spec or lacks(spec, own):
        return False
    free = {node.name for node in grant.nodes if tasks_on(node, spec) > taken[node.name]}
    return bool(free) and free.isdisjoint(expand(own.excluded_nodes))

"""How a gang that wants its nodes for itself is laid out on them (BEHAVIOUR T10).

Where it is not said how many tasks a node gets, Slurm counts memory by the CPU; and it charges an exclusive job for all
CPUs of its nodes.  Two tasks of 1 CPU and 100 GiB then cost 6,400 GiB on a node of 64 CPUs, which no node has, and the job
is refused (2014).  Said how many tasks a node gets, their memory is asked of the node, and nobody pays for idle CPUs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from scheduler.model import JobSpec, SlurmNode


def laid_out(spec: JobSpec, nodes: Collection[SlurmNode]) -> JobSpec:
    """The same job, told how many tasks each node gets, if it is exclusive and its memory could not be had otherwise.

    nodes   those that it may use.  It stands on as few of them as it can; where they cannot hold it, Slurm says so.
    """
    open_question = spec.exclusive == "exclusive" and spec.tasks > 1 and spec.tasks_per_node is None
    if not open_question or all(memory_by_cpu(spec) * node.cpus <= node.memory_mib for node in nodes):
        return spec
    rooms = [room(spec, node) for node in nodes]
    most = -(-spec.tasks // (spec.min_nodes or 1))
    for places in range(min(most, max(rooms)), 0, -1):
        count = -(-spec.tasks // places)
        enough = sum(each >= places for each in rooms) >= max(count, spec.min_nodes or 1)
        if enough and count <= (spec.max_nodes or count):
            return replace(spec, tasks_per_node=places)
    return spec


def memory_by_cpu(spec: JobSpec) -> int:
    """MiB for each CPU, so that no task gets less than it asks for."""
    return -(-spec.memory_mib // spec.cpus_per_task)


def room(spec: JobSpec, node: SlurmNode) -> int:
    """How many of its tasks an empty node takes."""
    counts = [node.cpus // spec.cpus_per_task, node.memory_mib // spec.memory_mib]
    return min([*counts, *(node.gres.get(name, 0) // count for name, count in spec.gres if count)])

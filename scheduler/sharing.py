"""How many pods of a gang one node can take, as Kubernetes counts it (BEHAVIOUR W7, F6).

Slurm counts CPUs, memory and the devices that are mapped to GRES, and packs a gang by these.  Kubernetes counts more: the
number of pods, ephemeral storage, resources that are not mapped, host ports.  A gang that is packed beyond that would be
granted, given back and granted again, for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from scheduler.hostports import common_port
from scheduler.jobspec import needs
from scheduler.model import Node, Pod


@dataclass(frozen=True, slots=True)
class Most:
    """So many of these pods a node takes, and what it is that it has no more of."""

    pods: int
    of: str


def most_on(nodes: Mapping[str, Node], pods: Collection[Pod], counted: Collection[str]) -> dict[str, Most]:
    """How many of these pods, which ask Slurm for the same, each node takes when it is empty.

    nodes    by Slurm's name; the keys of the answer are these
    counted  the resources that Slurm counts
    """
    if port := common_port(pods):  # who may share with whom Slurm cannot be told: all of them stand apart
        return dict.fromkeys(nodes, Most(1, f"host port {port}"))
    wanted = {resource: amount for resource, amount in _largest(pods).items() if resource not in counted and amount > 0}
    return {name: _most(node, wanted) for name, node in nodes.items()}


def _largest(pods: Collection[Pod]) -> dict[str, int]:
    """For each resource the most that one of these pods needs."""
    largest: dict[str, int] = {}
    asking = {
        (id(pod.containers), id(pod.init_containers), id(pod.pod_requests), id(pod.overhead)): pod for pod in pods
    }
    for pod in asking.values():  # most members share what they ask for, as an object
        for resource, amount in needs(pod).items():
            largest[resource] = max(amount, largest.get(resource, 0))
    return largest


def _most(node: Node, wanted: Mapping[str, int]) -> Most:
    found = (Most(node.allocatable.get(resource, 0) // amount, resource) for resource, amount in wanted.items())
    return min(found, key=lambda most: most.pods)

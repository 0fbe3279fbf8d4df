"""Which of the devices that Slurm granted on a node each pod gets (G1).

Kubelet's device plugins choose devices by themselves.  If the admin declares a device driver that follows the annotation
`job-gpus`, the bridge chooses, and no two pods get the same device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from scheduler.model.hostlist import HostlistError, expand
from scheduler.model.kubernetes import Pod
from scheduler.place.assign import Part, Place

GPU = "gpu"
_NUMBERS = re.compile(r"[0-9,-]+", re.ASCII)


def assigned_gpus(
    pods: Sequence[Pod], found: Mapping[str, Place], parts: Sequence[Part], held: Iterable[tuple[str, str]]
) -> Mapping[str, str]:
    """The GPUs of each pod ("0,1"), by UID; without pods that asked for none, and pods whose devices Slurm does not name.

    pods   to be bound now, by rank
    held   of each pod that is bound or being bound: Slurm's name of the node, and the pod's GPUs
    """
    taken: dict[str, set[str]] = {}
    for name, indices in held:
        taken.setdefault(name, set()).update(indices.split(","))
    asked = {pod.uid: _gpus(part) for part in parts for pod in part.members}
    gpus_of: dict[str, str] = {}
    for pod in pods:
        node = found[pod.uid].node
        own: list[str] = []
        for gres, count in asked[pod.uid]:
            gone = taken.setdefault(node.name, set())
            free = [index for index in _indices(node.indices.get(gres, "")) if index not in gone]
            own += free[:count]
            gone.update(free[:count])
        if own and len(own) == sum(count for _, count in asked[pod.uid]):
            gpus_of[pod.uid] = ",".join(sorted(own, key=int))
    return gpus_of


def _gpus(part: Part) -> list[tuple[str, int]]:
    """The GPUs that each pod asks for, by GRES name; requests with a type first, because the others take any type."""
    gpus = [(name, count) for name, count in part.spec.gres if name.partition(":")[0] == GPU]
    return sorted(gpus, key=lambda asked: asked[0] == GPU)


def _indices(text: str) -> list[str]:
    """The device numbers in a text of Slurm: "0-1,4"."""
    if not _NUMBERS.fullmatch(text):
        return []
    try:
        return [name.removeprefix(GPU) for name in expand(f"{GPU}[{text}]")]
    except HostlistError:  # without device numbers no pod gets the annotation
        return []

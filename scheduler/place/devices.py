"""Which of the devices that Slurm granted on a node each member gets (G1).

Kubelet's device plugins choose devices by themselves.  Only where the admin declares a device driver that goes by the
annotation `job-gpus` is a pod told, and then two pods must never be told the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from scheduler.model.hostlist import HostlistError, expand
from scheduler.model.kubernetes import Pod
from scheduler.place.assign import Part, Place

GPU = "gpu"
_NUMBERS = re.compile(r"[0-9,-]+", re.ASCII)


def dealt(
    pods: Sequence[Pod], found: Mapping[str, Place], parts: Sequence[Part], held: Iterable[tuple[str, str]]
) -> Mapping[str, str]:
    """Pod UID to its GPUs, "0,1"; nothing for a pod that asked for none, or where Slurm does not tell which.

    pods   to be bound now, by rank
    held   of those that stand or are on their way: Slurm's name of the node, and what the pod was told
    """
    taken: dict[str, set[str]] = {}
    for name, told in held:
        taken.setdefault(name, set()).update(told.split(","))
    asked = {pod.uid: _gpus(part) for part in parts for pod in part.members}
    dealt = {}
    for pod in pods:
        node = found[pod.uid].node
        own: list[str] = []
        for gres, count in asked[pod.uid]:
            gone = taken.setdefault(node.name, set())
            free = [index for index in _indices(node.indices.get(gres, "")) if index not in gone]
            own += free[:count]
            gone.update(free[:count])
        if own and len(own) == sum(count for _, count in asked[pod.uid]):
            dealt[pod.uid] = ",".join(sorted(own, key=int))
    return dealt


def _gpus(part: Part) -> list[tuple[str, int]]:
    """What each of them asked for; those of a type first, because any other may be any."""
    gpus = [(name, count) for name, count in part.spec.gres if name.partition(":")[0] == GPU]
    return sorted(gpus, key=lambda asked: asked[0] == GPU)


def _indices(text: str) -> list[str]:
    """As Slurm spells them: "0-1,4"."""
    if not _NUMBERS.fullmatch(text):
        return []
    try:
        return [name.removeprefix(GPU) for name in expand(f"{GPU}[{text}]")]
    except HostlistError:  # it tells nothing that can be understood, so no pod is told
        return []

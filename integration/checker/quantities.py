"""What a pod requests of a node: resources in base units (CPUs, bytes, pieces; T1 written a second time), and host ports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

UNITS = {
    "": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip
QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(n|u|m|k|[MGTPE]|[KMGTPE]i)?")
ANY = "0.0.0.0"


def amount(shown: str | int) -> float:
    """The value of a quantity: "500m" -> 0.5, "1Gi" -> 2**30.  Raises ValueError if it is none."""
    found = QUANTITY.fullmatch(str(shown))
    if not found:
        raise ValueError(f"{shown!r} is no quantity")
    return float(found[1]) * UNITS[found[2] or ""]


def amounts(shown: Mapping[str, str | int] | None) -> dict[str, float]:
    """The same for each resource of an object as `allocatable` or `requests`."""
    return {resource: amount(each) for resource, each in (shown or {}).items()}


def requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """What kube-scheduler and kubelet count for a pod with this spec, and the pod itself as one of "pods"."""
    sidecars, largest = Counter[str](), Counter[str]()
    for each in spec.get("initContainers") or ():
        if each.get("restartPolicy") == "Always":
            sidecars.update(_asked(each))
        else:
            largest |= _sum([sidecars, Counter(_asked(each))])
    together = _sum([sidecars, *(Counter(_asked(each)) for each in spec["containers"])])
    whole = dict(together | largest) | _asked(spec)  # what is set for the pod itself replaces the sum
    return dict(_sum([Counter(whole), Counter(amounts(spec.get("overhead"))), Counter({"pods": 1.0})]))


def host_ports(spec: Mapping[str, Any]) -> frozenset[tuple[int, str, str]]:
    """The ports of the node that a pod with this spec takes: number, protocol, address."""
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    ports = [port for each in [*sidecars, *spec["containers"]] for port in each.get("ports") or ()]
    return frozenset(
        (port["hostPort"], port.get("protocol", "TCP"), port.get("hostIP") or ANY)
        for port in ports
        if port.get("hostPort")
    )


def _asked(of: Mapping[str, Any]) -> dict[str, float]:
    return amounts((of.get("resources") or {}).get("requests"))


def _sum(parts: Iterable[Mapping[str, float]]) -> Counter[str]:
    total = Counter[str]()
    for each in parts:
        total.update(each)
    return total

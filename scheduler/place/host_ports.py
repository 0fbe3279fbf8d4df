"""Host ports that unfinished pods hold: Slurm cannot queue for them, so nodes without a free port are excluded (F1).

The ports are counted by port, because a tenant chooses how many ports a pod asks for: the cost of a query depends on the
ports of the querying pod, not on all ports that are held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from scheduler.model.cache import BoundedCache
from scheduler.model.kubernetes import ALL_PORTS, HostPort, Pod

NOWHERE: frozenset[str] = frozenset()
EVERYWHERE = ("", "0.0.0.0")  # noqa: S104 - compared with, not bound to

_Port = tuple[int, str]


class HostPorts:
    """The host ports that pods hold, by node.

    effort   number of comparisons with held ports so far
    """

    def __init__(self, effort: int = 0) -> None:
        self.effort = effort
        self._held: dict[_Port, dict[str, Counter[str]]] = {}  # port and protocol to node to address
        self._answers: BoundedCache[tuple[HostPort, ...], frozenset[str]] = BoundedCache()

    @property
    def held(self) -> Mapping[tuple[int, str], Mapping[str, Counter[str]]]:
        """The ports that are held: port and protocol to node to address, with how many pods hold it."""
        return self._held

    def add(self, pod: Pod, node: str) -> None:
        """Note that the pod has that node."""
        self._count(pod, node, 1)

    def remove(self, pod: Pod, node: str) -> None:
        """Note that the pod, as it was at `add`, left that node."""
        self._count(pod, node, -1)

    def taken(self, pod: Pod, own: Iterable[tuple[Pod, str]] = ()) -> frozenset[str]:
        """Nodes where other pods hold a port that this pod wants.  own: pods that do not count, each with its node."""
        if not pod.host_ports:
            return NOWHERE
        discount = Counter(
            (host_port.port, host_port.protocol, node, host_port.address)
            for other, node in own
            for host_port in other.host_ports
        )
        if discount:
            return frozenset(self._conflicts(pod.host_ports, discount))
        known = self._answers.get(pod.host_ports)
        if known is None:
            found = frozenset(self._conflicts(pod.host_ports, discount))
            known = self._answers.put(pod.host_ports, found, len(found), len(pod.host_ports))
        return known

    def _conflicts(self, wanted: Iterable[HostPort], discount: Counter[tuple[int, str, str, str]]) -> Iterator[str]:
        for port in (*wanted, ALL_PORTS):
            for node, held in self._held.get((port.port, port.protocol), {}).items():
                self.effort += 1
                for address in in_the_way(port.address, held):
                    if held[address] > discount[port.port, port.protocol, node, address]:
                        yield node
                        break
                    self.effort += 1

    def _count(self, pod: Pod, node: str, by: int) -> None:
        if pod.host_ports:
            self._answers.clear()
        for port in pod.host_ports:
            where = (port.port, port.protocol)
            addresses = self._held.setdefault(where, {}).setdefault(node, Counter())
            addresses[port.address] += by
            if not addresses[port.address]:
                del addresses[port.address]
            if not addresses:
                del self._held[where][node]
            if not self._held[where]:
                del self._held[where]


def ports_conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """True if a port is in both lists."""
    return bool(conflicting_port(wanted, taken))


def conflicting_port(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> int:
    """A port that is in both lists, so that two pods would listen on one port of one address; 0: none."""
    held: dict[_Port, set[str]] = {}
    for port in taken:
        held.setdefault((port.port, port.protocol), set()).add(port.address)
    for port in wanted:
        for _ in in_the_way(port.address, held.get((port.port, port.protocol), ())):
            return port.port
    return 0


def in_the_way(address: str, held: Collection[str]) -> Iterable[str]:
    """The held addresses that exclude a socket on this address.

    Only the few possible addresses are looked up: one pod may hold ten thousand addresses with one port.
    """
    return held if address in EVERYWHERE else (candidate for candidate in (address, *EVERYWHERE) if candidate in held)


def common_port(pods: Iterable[Pod]) -> int:
    """A host port that two of these pods cannot both have on one node; 0: none."""
    held: dict[_Port, set[str]] = {}
    for pod in pods:
        for port in pod.host_ports:
            addresses = held.get((port.port, port.protocol), set())
            anywhere = port.address in EVERYWHERE or not addresses.isdisjoint(EVERYWHERE)
            if addresses and (anywhere or port.address in addresses):
                return port.port
        for port in pod.host_ports:
            held.setdefault((port.port, port.protocol), set()).add(port.address)
    return 0

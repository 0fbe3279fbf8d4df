"""The number of a gang's pods that one node can hold, as Kubernetes counts (W7, F6).

Slurm counts CPUs, memory and the devices that are mapped to GRES, and packs a gang by these.  Kubernetes counts more: the
number of pods, ephemeral storage, resources that are not mapped, host ports.  And Slurm's node may be larger than what
Kubernetes lets pods use: kubelet reserves a part, or a device is out of order.  A gang that is packed beyond that would be
granted, released and granted again, for ever.

Nor does Slurm know that two pods must not share a node, because of anti-affinity or of a host port.  For pods of one shape
the job then asks for one task per node.  Pods of two shapes never share a node, because Slurm gives each component of a
heterogeneous job nodes of its own (Slurm facts 11).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from scheduler.model.amounts import Amounts
from scheduler.model.kubernetes import Pod, PodTerm
from scheduler.place.affinity_terms import matches
from scheduler.place.fit import needs
from scheduler.place.host_ports import common_port

MOST_COMPARED = 10_000  # terms of a gang with kinds of its pods: some 10 ms


@dataclass(frozen=True, slots=True)
class PodsPerNode:
    """The number of pods that a node holds, and the resource that limits it.

    alike   False: some of the pods need less of that resource than the others, and are counted as if they did not
    """

    pods: int
    of: str
    alike: bool = True


def most_pods_on(
    offered: Mapping[str, Amounts], pods: Collection[Pod], unlimited: Collection[str] = ()
) -> dict[str, PodsPerNode]:
    """The number of these pods that each node holds when it is empty, whichever of them these are; all, if all fit.

    offered    what pods may use of each node, by Slurm's name; the keys of the answer are these
    pods       all of them ask Slurm for the same
    unlimited  resources of which any node has enough
    """
    if port := common_port(pods):  # Slurm has no option for some pairs alone, so each pod gets a node of its own
        alike = all(any(host_port.port == port for host_port in pod.host_ports) for pod in pods)
        return dict.fromkeys(offered, PodsPerNode(1, f"host port {port}", alike))
    wanted = {resource: need for resource, need in _wanted(pods).items() if resource not in unlimited}
    return {name: _most(amounts, wanted, len(pods)) for name, amounts in offered.items()}


def steps(shapes: Iterable[Collection[Pod]]) -> dict[str, list[int]]:
    """The amounts of each resource, ascending, from which on a node holds one more pod of one of these shapes.

    Nodes that offer amounts between the same steps hold equally many pods of each shape.  Nodes of one kind of hardware often
    differ by some KiB of memory, and are compared with each shape as one node.
    """
    found: dict[str, set[int]] = {}
    for pods in shapes:
        for resource, need in _wanted(pods).items():
            found.setdefault(resource, set()).update(need.steps())
    return {resource: sorted(amounts) for resource, amounts in found.items()}


def step_of(offered: Amounts, by: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """The number of steps (see `steps`) that the node reaches, by resource."""
    return tuple([bisect_right(amounts, offered.get(resource, 0)) for resource, amounts in by.items()])


def has_mutual_anti_affinity(pods: Sequence[Pod]) -> bool:
    """True if the anti-affinity of one of these pods selects another one; also if finding out takes many comparisons.

    A pod that is expected to come is the same object as the pod that it is like.
    """
    return _select_others(pods, lambda pod: pod.anti_affinity)


def need_one_node(pods: Sequence[Pod]) -> bool:
    """True if the affinity of one of these pods selects another one; also if finding out takes many comparisons.

    Slurm has no option that keeps some of them together, so all of them go on one node.  Affinity that selects its pod alone
    is met wherever the pod is.
    """
    return _select_others(pods, lambda pod: pod.affinity)


def _select_others(pods: Sequence[Pod], terms_of: Callable[[Pod], Iterable[PodTerm]]) -> bool:
    """True if a term of one of these pods selects another one; also if finding out takes many comparisons."""
    owners: dict[PodTerm, Pod | None] = {}  # None: several pods have the term
    for pod in pods:
        for term in dict.fromkeys(terms_of(pod)):
            owners[term] = None if term in owners else pod
    return any(only is None or only is not owners[term] for term, only in selected_by(owners, pods).items())


def keeps_all_apart(pods: Sequence[Pod]) -> bool:
    """True if a term of anti-affinity that all of these pods have selects all of them: no two of them may share a node."""
    return _all_select_all(pods, lambda pod: pod.anti_affinity)


def keeps_all_together(pods: Sequence[Pod]) -> bool:
    """True if a term of affinity that all of these pods have selects all of them: they have to be on one node."""
    return _all_select_all(pods, lambda pod: pod.affinity)


def _all_select_all(pods: Sequence[Pod], terms_of: Callable[[Pod], Iterable[PodTerm]]) -> bool:
    common = set.intersection(*(set(terms_of(pod)) for pod in pods))
    kinds = _kinds(common, pods).values()
    return any(all(matches(term, alike[0]) for alike in kinds) for term in common)


def has_affinity_between(kinds: Sequence[Collection[Pod]]) -> bool:
    """True if required pod affinity wants pods of several kinds, which never share a node, on one node.

    That is so if a term selects no other pod of the kind of its pod but a pod of another kind, or if pods of two kinds have
    a term that selects themselves: the first of them decides where all of them go.  True also if finding out takes many
    comparisons.

    kinds   the pods of each component of the job
    """
    if len(kinds) < 2:
        return False
    terms = dict.fromkeys(term for pods in kinds for pod in pods for term in pod.affinity)
    found = [selected_by(terms, pods) for pods in kinds]
    return any(_is_between(term, kinds, found) for term in terms)


def _is_between(term: PodTerm, kinds: Sequence[Collection[Pod]], found: Sequence[Mapping[PodTerm, Pod | None]]) -> bool:
    """The same for one term.  found: what `selected_by` returns for each kind"""
    selected_in = sum(term in kind for kind in found)
    themselves = 0
    for pods, selected in zip(kinds, found, strict=True):
        holders = [pod for pod in pods if term in pod.affinity]
        own = any(matches(term, pod) for pod in holders)
        only = selected.get(term)
        is_met = term in selected and (only is None or not own)
        if holders and not is_met and selected_in > (term in selected):
            return True
        themselves += own
    return themselves > 1


def selected_by(terms: Collection[PodTerm], pods: Iterable[Pod]) -> dict[PodTerm, Pod | None]:
    """The pod that a term selects, for each term that selects one of these pods; None: the term selects several.

    If finding out takes many comparisons, each term counts as selecting several.
    """
    kinds = _kinds(terms, pods)
    if len(terms) * len(kinds) > MOST_COMPARED:
        return dict.fromkeys(terms)
    found: dict[PodTerm, Pod | None] = {}
    for term in terms:
        for alike in kinds.values():
            if matches(term, alike[0]):
                found[term] = None if term in found or len(alike) > 1 else alike[0]
    return found


def _kinds(terms: Iterable[PodTerm], pods: Iterable[Pod]) -> Mapping[tuple[str | None, ...], list[Pod]]:
    """The pods by what the terms compare: most pods of a gang are alike to all terms."""
    keys = sorted({expression.key for term in terms for expression in term.expressions})
    kinds: dict[tuple[str | None, ...], list[Pod]] = {}
    for pod in pods:
        kinds.setdefault((pod.namespace, *map(pod.labels.get, keys)), []).append(pod)
    return kinds


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How much of one resource the pods need.

    amounts   each distinct amount but 0, the largest first
    pods      after each of these: how many pods need as much or more; sums: how much they need together
    """

    amounts: Sequence[int]
    pods: Sequence[int]
    sums: Sequence[int]

    def steps(self) -> Iterator[int]:
        """The amounts from which on one more pod is held."""
        before = 0
        for amount, used in zip(self.amounts, self.sums, strict=True):
            yield from range(before + amount, used + 1, amount)
            before = used

    def held(self, offered: int) -> int | None:
        """The number of pods for which so much is enough, whichever of them these are; None: it is enough for all."""
        at = bisect_right(self.sums, offered)
        if at == len(self.sums):
            return None
        pods, used = (self.pods[at - 1], self.sums[at - 1]) if at else (0, 0)
        return pods + (offered - used) // self.amounts[at]


def _wanted(pods: Collection[Pod]) -> dict[str, _Wanted]:
    """How much of each resource these pods need.  Pods that share the objects that hold their requests, as most do, are
    looked at once."""
    alike: dict[tuple[int, ...], list[Pod]] = {}
    for pod in pods:
        asked = id(pod.containers), id(pod.init_containers), id(pod.pod_requests), id(pod.overhead)
        alike.setdefault(asked, []).append(pod)
    counts: dict[str, Counter[int]] = {}
    for same in alike.values():
        for resource, amount in needs(same[0]).items():
            if amount > 0:
                counts.setdefault(resource, Counter())[amount] += len(same)
    return {resource: _added_up(sorted(found.items(), reverse=True)) for resource, found in counts.items()}


def _added_up(counts: Sequence[tuple[int, int]]) -> _Wanted:
    """counts: each amount, the largest first, and how many pods need it"""
    amounts = [amount for amount, _ in counts]
    pods = list(accumulate(number for _, number in counts))
    return _Wanted(amounts, pods, list(accumulate(amount * number for amount, number in counts)))


def _most(offered: Amounts, wanted: Mapping[str, _Wanted], pods: int) -> PodsPerNode:
    found = PodsPerNode(pods, "pods")
    for resource, need in wanted.items():
        held = need.held(offered.get(resource, 0))
        if held is not None and held < found.pods:
            found = PodsPerNode(held, resource, len(need.amounts) == 1 and need.pods[-1] == pods)
    return found

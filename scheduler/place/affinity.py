"""Required pod (anti-)affinity on hostname: which nodes a pod may not use because of other pods (F5).

Such a node is *closed* to the pod.

kube-scheduler's rules apply: terminating pods count until they are gone, and an anti-affinity holds in both directions.
Slurm cannot queue for affinity.  So the nodes that are closed now are excluded now, and the job is updated when that changes
(F2).

A tenant chooses how many terms its pods have, and pods of other schedulers cannot be refused.  So no query compares pod by
pod.  `AffinityIndex` counts by node:

- the anti-affinity of the pods there, each distinct list of terms once (affinity_terms.py).
- the pods that a term of a waiting pod selects, from the first query with this term on.

Both counts are kept between queries.  So a query costs as much as the changes since the previous query.

Pods that have a grant and are not bound yet are counted in the same way, by workload: each of these pods may be bound to each
node of the grant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.model.cache import BoundedCache
from scheduler.model.kubernetes import Pod, PodTerm
from scheduler.place.affinity_terms import REQUIRING, PodKind, TermIndex, TermList, matches, selects, size_of

NOWHERE: frozenset[str] = frozenset()
# The sizes of the caches.  A dropped entry is computed again by the next query that needs it.
MAX_TERMS = 16_384
MAX_CHANGES = 8192
MAX_GROUPINGS = 64
MAX_ANSWERS = 4096
# Nodes of all terms together: some 30 MiB, though each term may select a pod on each node.
MAX_COUNTED_PLACES = 1_000_000
PER_TERM = 20  # the fixed cost of one term of a query, in comparisons
COMPARISONS_PER_NODE = 4  # so many comparisons of a term with a pod take as long as to judge one node
_Groups = dict[tuple[str, tuple[str | None, ...]], Counter[str]]


def violates_anti_affinity(pod: Pod, others: Collection[Pod]) -> bool:
    """True if the anti-affinity of this pod selects another pod, or the anti-affinity of another pod selects this pod."""
    return any(matches(term, other) for term in pod.anti_affinity for other in others) or any(
        matches(term, pod) for other in others for term in other.anti_affinity
    )


@dataclass(frozen=True, slots=True, eq=False)
class OwnPods:
    """Pods that are placed together: no pod of these closes a node to another one.

    key       of their workload
    on_nodes  the pods that have a node already, each with the Kubernetes name of that node
    selected  affinity term to the one pod of these that it selects; None: the term selects several
    """

    key: str = ""
    on_nodes: tuple[tuple[Pod, str], ...] = ()
    selected: Mapping[PodTerm, Pod | None] = field(default_factory=dict)

    def meet(self, term: PodTerm, pod: Pod) -> bool:
        """True if this term of the pod's affinity selects another of these pods: both are placed on one node."""
        return term in self.selected and ((only := self.selected[term]) is None or only.uid != pod.uid)


@dataclass(frozen=True, slots=True, eq=False)
class GrantedPods:
    """Pods of one workload that have a grant and are not bound yet.

    pods    one of each kind, by UID
    nodes   Kubernetes names of the granted nodes: each pod may be bound to each of these
    """

    key: str
    pods: Mapping[str, Pod]
    nodes: frozenset[str]


def distinct_to_affinity(pods: Collection[Pod]) -> tuple[Pod, ...]:
    """One pod of each kind: pods are of one kind if affinity cannot distinguish them and their own anti-affinity is equal."""
    if len(pods) <= 1:
        return tuple(pods)
    return tuple({(pod.namespace, frozenset(pod.labels.items()), pod.anti_affinity): pod for pod in pods}.values())


class _Place(Protocol):
    """A node with its pods, or a workload with its pods that are about to be bound."""

    @property
    def pods(self) -> Mapping[str, Pod]: ...


@dataclass(slots=True)
class _PlaceCounts:
    """The number of pods that one term selects, by place, up to a change."""

    places: Counter[str]
    changes: int
    first: int  # number of places at the first count


class _Counted:
    """Counts of the pods by place, for the terms that queries name.

    places   the pods by place; its owner changes it, and reports each change here before the next query
    kept     lists of terms that stay in the answers even if no pod has them
    effort   number of comparisons of terms with pods so far
    """

    def __init__(self, places: Mapping[str, _Place], kept: Collection[TermList] = ()) -> None:
        self._effort = 0
        self._places = places
        self.anti_affinity = TermIndex(kept)  # anti-affinity of the pods; places are the holders
        self._counts: dict[PodTerm, _PlaceCounts] = {}
        self._counts_held = 0
        self._changes: list[tuple[Pod, str, int]] = []
        self._groups: dict[tuple[str | None, tuple[str, ...]], _Groups] = {}  # until the next change

    @property
    def effort(self) -> int:
        return self._effort + self.anti_affinity.effort

    def add(self, pod: Pod, place: str) -> TermList | None:
        """Note that the pod came to the place.  Returns the pod's anti-affinity, if it has one."""
        self._changed(pod, place, 1)
        return self.anti_affinity.add(pod.anti_affinity, place) if pod.anti_affinity else None

    def remove(self, pod: Pod, place: str) -> TermList | None:
        """Note that the pod, as it was at `add`, left the place.  Returns the pod's anti-affinity, if it has one."""
        self._changed(pod, place, -1)
        return self.anti_affinity.remove(pod.anti_affinity, place) if pod.anti_affinity else None

    def _changed(self, pod: Pod, place: str, by: int) -> None:
        self._groups.clear()
        if not self._counts:
            return
        self._changes.append((pod, place, by))
        if len(self._changes) > MAX_CHANGES:
            self._counts.clear()
            self._changes.clear()
            self._counts_held = 0

    def prepare(self, pod: Pod, most: int) -> bool:
        """Do about `most` comparisons ahead of the next query of this pod.  Returns True if the query needs no more."""
        until = self.effort + most
        if not self.anti_affinity.compare(pod, max(1, most)):
            return False
        for term in (*pod.anti_affinity, *pod.affinity):
            if self.effort >= until:
                return False
            self.count_by_place(term)
        return True

    def count_by_place(self, term: PodTerm) -> Counter[str]:
        """Number of pods that this term selects, by place."""
        known = self._counts.get(term)
        if known is None:
            places = self._count_all(term)
            self._counts_held += len(places)
            while self._counts and (len(self._counts) >= MAX_TERMS or self._counts_held > MAX_COUNTED_PLACES):
                self._counts_held -= self._counts.pop(next(iter(self._counts))).first
            if not self._counts:
                self._changes.clear()
            known = self._counts[term] = _PlaceCounts(places, len(self._changes), len(places))
        self._effort += len(self._changes) - known.changes
        for pod, place, by in self._changes[known.changes :]:
            if matches(term, pod):
                _count(known.places, place, by)
        known.changes = len(self._changes)
        return known.places

    def _count_all(self, term: PodTerm) -> Counter[str]:
        """Count the pods that the term selects, in groups: most pods have the same values of the labels that a term names."""
        keys = tuple(sorted({expression.key for expression in term.expressions}))
        required = next((expression.key for expression in term.expressions if expression.operator in REQUIRING), None)
        groups = self._groups.get((required, keys))
        if groups is None:
            if len(self._groups) >= MAX_GROUPINGS:
                self._groups.clear()
            groups = self._groups[required, keys] = self._grouped(required, keys)
        self._effort += len(groups)
        found: Counter[str] = Counter()
        for (namespace, values), places in groups.items():
            labels = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
            if selects(term, namespace, labels):
                for place, count in places.items():  # Counter.update takes ten times as long for a few
                    found[place] = found.get(place, 0) + count
        return found

    def _grouped(self, required: str | None, keys: tuple[str, ...]) -> _Groups:
        """Count the pods with the required label, by namespace and values of these labels."""
        groups: _Groups = {}
        for place, there in self._places.items():
            pods: Iterable[Pod] = there.pods.values()
            if required is not None:
                pods = [pod for pod in pods if required in pod.labels]
                self._effort += len(there.pods) // 4 + len(pods)
            else:
                self._effort += len(there.pods)
            for pod in pods:
                group = pod.namespace, tuple(map(pod.labels.get, keys))
                groups.setdefault(group, Counter())[place] += 1
        return groups


@dataclass(slots=True)
class _Prepared:
    """The pods of one workload whose queries are prepared, by UID, and the version at which that began.

    with_granted   granted pods that are not bound yet are compared, too
    """

    version: int
    with_granted: bool
    pods: dict[str, Pod] = field(default_factory=dict)


class AffinityIndex:
    """The unfinished pods on nodes, and the granted pods that are not bound yet, as far as affinity selects them.

    node_info  the pods by node; its owner changes it, and reports each change here
    effort     number of comparisons of terms with pods so far: a measure of cost that needs no clock
    """

    def __init__(self, node_info: Mapping[str, _Place], effort: int = 0) -> None:
        self._effort = effort
        self._changed_terms: dict[TermList, None] = {}
        self._on_nodes = _Counted(node_info, kept=self._changed_terms)
        self._granted_source: Sequence[GrantedPods] | None = (
            None  # what the index was made from; None: it is out of date
        )
        self._granted_pods: dict[str, GrantedPods] = {}
        self._by_workload = _Counted(self._granted_pods)
        self._version = 0  # number of changes so far
        self._prepared: dict[str, _Prepared] = {}  # by workload key, while `prepare` has more to do
        self._answers: BoundedCache[Hashable, frozenset[str]] = BoundedCache(MAX_ANSWERS)

    @property
    def effort(self) -> int:
        return self._effort + self._on_nodes.effort + self._by_workload.effort

    @property
    def has_anti_affinity(self) -> bool:
        """True if a pod on some node has an anti-affinity, which may close the node to any other pod."""
        return bool(self._on_nodes.anti_affinity)

    # --- what changes -------------------------------------------------------------------------------------------------

    def add(self, pod: Pod, node: str) -> None:
        """Note that the pod has that node."""
        self._answers.clear()
        self._version += 1
        terms = self._on_nodes.add(pod, node)
        if terms is not None and terms.holders[node] == 1:
            self._changed_terms[terms] = None

    def remove(self, pod: Pod, node: str) -> None:
        """Note that the pod, as it was at `add`, left that node."""
        self._answers.clear()
        self._version += 1
        terms = self._on_nodes.remove(pod, node)
        if terms is not None and node not in terms.holders:
            self._changed_terms[terms] = None

    def set_granted(self, granted: Sequence[GrantedPods]) -> None:
        """Set the granted pods that are not bound yet.  Costs as much as what changed since the last call."""
        if granted is self._granted_source:
            return
        keys = {unbound.key for unbound in granted}
        for key in [key for key in self._granted_pods if key not in keys]:
            self.remove_granted(key)
        for unbound in granted:
            self._note_granted(unbound)
        self._granted_source = granted

    def remove_granted(self, key: str) -> None:
        """Remove the granted pods of a workload."""
        gone = self._granted_pods.pop(key, None)
        if gone is None:
            return
        self._granted_source = None
        self._version += 1
        if self._granted_pods:
            for pod in gone.pods.values():
                self._by_workload.remove(pod, key)
        else:  # if no granted pods are left, their cached counts are dropped, too
            self._effort += self._by_workload.effort
            self._by_workload = _Counted(self._granted_pods)

    def _note_granted(self, now: GrantedPods) -> None:
        before = self._granted_pods.get(now.key)
        was: Mapping[str, Pod] = before.pods if before is not None else {}
        came = [pod for uid, pod in now.pods.items() if uid not in was or not _counts_the_same(was[uid], pod)]
        left = [pod for uid, pod in was.items() if uid not in now.pods or not _counts_the_same(now.pods[uid], pod)]
        self._granted_pods[now.key] = now
        if came or left or before is None or before.nodes != now.nodes:
            self._version += 1
        for pod in came:  # first, so that a list of terms that moves to another pod is not indexed again
            self._by_workload.add(pod, now.key)
        for pod in left:
            self._by_workload.remove(pod, now.key)

    def nodes_changed(self) -> None:
        """Note that nodes were added or removed."""
        self._answers.clear()

    @property
    def has_changes(self) -> bool:
        """True if an anti-affinity came to a node, or left one, since `clear_changes`."""
        return bool(self._changed_terms)

    def concerns(self, pod: Pod) -> bool:
        """True if a changed anti-affinity selects this pod, or may select it: the comparisons are limited."""
        found = self._on_nodes.anti_affinity.selecting_if_few(pod)
        return found is None or not self._changed_terms.keys().isdisjoint(found)

    def counted(self) -> Mapping[tuple[PodTerm, ...], Counter[str]]:
        """Each distinct anti-affinity of the pods on nodes, with how many pods on which nodes have it."""
        return self._on_nodes.anti_affinity.holders()

    def clear_changes(self) -> None:
        """Forget the changes, because all pods that they concern are visited."""
        self._changed_terms.clear()

    # --- questions ----------------------------------------------------------------------------------------------------

    def kind(self, pod: Pod) -> PodKind:
        """The properties of the pod by which an anti-affinity can select it.  Pods of equal kind get the same answer."""
        return self._on_nodes.anti_affinity.kind(pod)

    def prepare(self, key: str, pods: Collection[Pod], most: int, *, with_granted: bool) -> bool:
        """Do about `most` comparisons ahead of the next queries of these pods.  Returns True if the queries need no more.

        The first query of a pod is expensive: many terms may have to be compared with the pod, or its terms with many pods.

        key            of the pods' workload: the next call continues where this call ended
        with_granted   the queries will count granted pods that are not bound yet
        """
        until = self.effort + most
        asked = (self._on_nodes, self._by_workload) if with_granted else (self._on_nodes,)
        prepared = self._prepared.get(key)
        if prepared is None or prepared.with_granted != with_granted:
            prepared = self._prepared[key] = _Prepared(self._version, with_granted)
        for pod in pods:
            if prepared.pods.get(pod.uid) is pod:
                continue
            if not all(index.prepare(pod, until - self.effort) for index in asked):
                return False
            prepared.pods[pod.uid] = pod
        del self._prepared[key]
        return prepared.version == self._version or self.prepare(
            key, pods, until - self.effort, with_granted=with_granted
        )

    def drop_prepared(self, key: str) -> None:
        """Drop what was prepared for this workload."""
        self._prepared.pop(key, None)

    def closed(
        self, pod: Pod, nodes: Collection[str], own_pods: OwnPods, *, with_granted: bool = False
    ) -> frozenset[str]:
        """Kubernetes names of the nodes that other pods close to this pod.

        nodes     all nodes
        own_pods  pods that do not count, this pod among them
        with_granted  granted pods that are not bound yet count on each of their granted nodes, except own_pods
        """
        self._effort += PER_TERM * (1 + len(pod.anti_affinity) + len(pod.affinity))
        own_matches = tuple((own_pods.meet(term, pod), matches(term, pod)) for term in pod.affinity)
        by_granted: Hashable = None
        if with_granted and self._granted_pods:
            own = own_pods.key if own_pods.key in self._granted_pods else ""
            by_granted = self._version, self._by_workload.anti_affinity.kind(pod), own
        excluded = own_pods if own_pods.on_nodes else None
        question = self.kind(pod), pod.anti_affinity, pod.affinity, own_matches, excluded, by_granted
        known = self._answers.get(question)
        if known is None:
            found = frozenset(self._closed(pod, nodes, own_pods, with_granted=by_granted is not None))
            known = self._answers.put(question, found, len(found), size_of((*pod.anti_affinity, *pod.affinity)))
        return known

    def _closed(self, pod: Pod, nodes: Collection[str], own_pods: OwnPods, *, with_granted: bool) -> set[str]:
        own = own_pods.on_nodes
        closed: set[str] = set()
        for terms in self._on_nodes.anti_affinity.selecting(pod):
            closed |= _without(terms.holders, (node for member, node in own if member.anti_affinity == terms.terms))
        for term in pod.anti_affinity:
            closed |= self._nodes_of_selected(term, own)
        if with_granted:
            closed |= self._closed_by_granted(pod, own_pods)
        for term in pod.affinity:
            if own_pods.meet(term, pod):
                continue
            allowed = self._nodes_of_selected(term, own)
            if not allowed and matches(term, pod):  # the first pod of a set with self-affinity may be placed anywhere
                allowed = (
                    self._granted(self._by_workload.count_by_place(term), own_pods) if with_granted else set()
                ) or set(nodes)
            # A node that was granted to selected pods, on which none is bound, is not allowed yet: they may never be bound.
            closed |= set(nodes) - allowed
        return closed

    def _nodes_of_selected(self, term: PodTerm, own: Iterable[tuple[Pod, str]]) -> set[str]:
        """The nodes of the pods that this term selects."""
        return _without(self._on_nodes.count_by_place(term), (node for member, node in own if matches(term, member)))

    def _closed_by_granted(self, pod: Pod, own_pods: OwnPods) -> set[str]:
        """Nodes granted to pods whose anti-affinity selects this pod, or to pods that its anti-affinity selects."""
        keys: set[str] = set()
        for terms in self._by_workload.anti_affinity.selecting(pod):
            self._effort += 1
            keys.update(terms.holders)
        for term in pod.anti_affinity:
            keys.update(self._by_workload.count_by_place(term))
        return self._granted(keys, own_pods)

    def _granted(self, keys: Iterable[str], own_pods: OwnPods) -> set[str]:
        """The nodes granted to these workloads, except to the workload of *own_pods*."""
        found: set[str] = set()
        for key in keys:
            if key != own_pods.key:
                self._effort += 1
                found |= self._granted_pods[key].nodes
        return found


def _counts_the_same(one: Pod, other: Pod) -> bool:
    """True if affinity treats both pods alike."""
    return one is other or (one.labels == other.labels and one.anti_affinity == other.anti_affinity)


def _without(nodes: Counter[str], own: Iterable[str]) -> set[str]:
    """The nodes with more pods than `own` has there."""
    discount = Counter(own)
    if not discount:
        return set(nodes)
    return {node for node, count in nodes.items() if count > discount[node]}


def _count(nodes: Counter[str], node: str, by: int) -> None:
    nodes[node] += by
    if not nodes[node]:
        del nodes[node]

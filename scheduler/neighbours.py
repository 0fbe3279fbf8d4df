"""Required pod (anti-)affinity on hostname: which nodes other pods close to a pod (BEHAVIOUR F5).

kube-scheduler's rules apply: terminating pods count until they are gone, and an anti-affinity binds both ways.  Slurm cannot
queue for affinity.  So the nodes that are closed now are excluded now, and the job is updated when that changes (F2).

A tenant chooses how many terms its pods have, and pods of other schedulers cannot be refused.  So no question is answered
pod by pod.  `Neighbours` counts by node:

- the anti-affinity of the pods there, each distinct list of terms once (terms.py).
- the pods that a term of a waiting pod selects, from the first question with this term on.

Both counts are carried from one question to the next.  The cost of a question is the cost of what changed since the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.model import Pod, PodTerm
from scheduler.placement import Standing
from scheduler.remembered import Remembered
from scheduler.terms import REQUIRING, Kind, TermIndex, TermList, matches, selects

NOWHERE: frozenset[str] = frozenset()
# How much is remembered.  What is dropped is counted again by the next question that needs it.
MAX_TERMS = 16_384
MAX_CHANGES = 8192
MAX_GROUPINGS = 64
MAX_ANSWERS = 4096
MAX_HOMES = 1_000_000  # nodes of all terms together: some 30 MiB, though each term may select a pod on each node
PER_TERM = 20  # comparisons that take as long as what each term of a question costs besides
_Groups = dict[tuple[str, tuple[str | None, ...]], Counter[str]]


def apart_from_its_own(pod: Pod) -> bool:
    """Its anti-affinity speaks of pods like itself: of a gang, one member a node."""
    return any(matches(term, pod) for term in pod.apart)


def beside_its_own(pod: Pod) -> bool:
    """Its affinity speaks of pods like itself: a gang stands on one node."""
    return any(matches(term, pod) for term in pod.beside)


def shun(pod: Pod, others: Collection[Pod]) -> bool:
    """True if the anti-affinity of this pod selects one of the others, or theirs selects this pod."""
    return any(matches(term, each) for term in pod.apart for each in others) or any(
        matches(term, pod) for each in others for term in each.apart
    )


@dataclass(frozen=True, slots=True, eq=False)
class Company:
    """Pods that are placed together: none of them closes a node to another.

    key       of their workload
    standing  those that have a node already, each with the Kubernetes name of its node
    """

    key: str = ""
    standing: tuple[tuple[Pod, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """Pods of one workload that have a grant and are not bound yet.

    pods    one of each kind
    nodes   Kubernetes names of the granted nodes: each of the pods may come to each of these
    """

    key: str
    pods: tuple[Pod, ...]
    nodes: frozenset[str]


def kinds_of(pods: Collection[Pod]) -> tuple[Pod, ...]:
    """One of each kind of pod, as the affinity of others and their own anti-affinity tell them apart."""
    if len(pods) <= 1:
        return tuple(pods)
    return tuple({(pod.namespace, frozenset(pod.labels.items()), pod.apart): pod for pod in pods}.values())


@dataclass(slots=True)
class _Homes:
    """How many pods that one term selects each node has, after so many of the changes."""

    nodes: Counter[str]
    changes: int
    first: int  # how many nodes these were when they were counted


class Neighbours:
    """The unfinished pods on nodes, as far as affinity asks for them.

    standing   the pods by node; the owner of this mapping changes it, and tells each change here
    effort     how many terms were compared with pods so far; the only measure of cost that needs no clock
    """

    def __init__(self, standing: Mapping[str, Standing], effort: int = 0) -> None:
        self._effort = effort
        self._standing = standing
        self._news: dict[TermList, None] = {}
        self._apart = TermIndex(kept=self._news)  # anti-affinity of the pods there; their nodes hold the lists
        self._homes: dict[PodTerm, _Homes] = {}
        self._homes_held = 0
        self._changes: list[tuple[Pod, str, int]] = []
        self._groups: dict[tuple[str | None, tuple[str, ...]], _Groups] = {}  # until the next change
        self._answers: Remembered[Hashable, frozenset[str]] = Remembered(MAX_ANSWERS)

    @property
    def effort(self) -> int:
        return self._effort + self._apart.effort

    @property
    def some_are_shy(self) -> bool:
        """True if a pod on some node has an anti-affinity: it closes its node to others, whatever these ask for."""
        return bool(self._apart)

    # --- what changes -------------------------------------------------------------------------------------------------

    def came(self, pod: Pod, node: str) -> None:
        """The pod has that node now."""
        self._changed(pod, node, 1)
        if pod.apart:
            shy = self._apart.came(pod.apart, node)
            if shy.holders[node] == 1:
                self._news[shy] = None

    def left(self, pod: Pod, node: str) -> None:
        """The pod, as `came` was told of it, has that node no more."""
        self._changed(pod, node, -1)
        shy = self._apart.left(pod.apart, node) if pod.apart else None
        if shy is not None and node not in shy.holders:
            self._news[shy] = None

    def nodes_changed(self) -> None:
        """Nodes came or went."""
        self._answers.clear()

    @property
    def has_news(self) -> bool:
        """True if an anti-affinity came to a node, or left one, since `heard`."""
        return bool(self._news)

    def concerns(self, pod: Pod) -> bool:
        """False if none of these selects this pod; True also where that would take many comparisons to know."""
        found = self._apart.selecting_if_few(pod)
        return found is None or not self._news.keys().isdisjoint(found)

    def heard(self) -> None:
        """All pods that the news concern are being looked at."""
        self._news.clear()

    def _changed(self, pod: Pod, node: str, by: int) -> None:
        self._answers.clear()
        self._groups.clear()
        if not self._homes:
            return
        self._changes.append((pod, node, by))
        if len(self._changes) > MAX_CHANGES:
            self._homes.clear()
            self._changes.clear()
            self._homes_held = 0

    # --- questions ----------------------------------------------------------------------------------------------------

    def kind(self, pod: Pod) -> Kind:
        """All that the anti-affinity of other pods can ask of it: pods of equal kind get the same answer."""
        return self._apart.kind(pod)

    def prepare(self, pods: Iterable[Pod], most: int) -> bool:
        """Do about so many comparisons of the next questions of these pods; True when they need no more.

        The first question of a pod is the dear one: many terms may have to be compared with it, or its own terms with many.
        """
        until = self.effort + most
        for pod in pods:
            if not self._apart.compare(pod, max(1, until - self.effort)):
                return False
            for term in (*pod.apart, *pod.beside):
                if self.effort >= until:
                    return False
                self._counted(term)
        return True

    def closed(
        self, pod: Pod, nodes: Collection[str], company: Company, coming: Sequence[Coming] = ()
    ) -> frozenset[str]:
        """Nodes that other pods close to this pod.

        nodes     all nodes
        company   pods that do not count, the asking pod among them
        coming    pods that close nodes as if they had their granted nodes already, those of the company aside
        """
        self._effort += PER_TERM * (1 + len(pod.apart) + len(pod.beside))
        others = tuple(each for each in coming if each.key != company.key)
        among_its_own = tuple(matches(term, pod) for term in pod.beside)
        question = (self.kind(pod), pod.apart, pod.beside, among_its_own, company if company.standing else None, others)
        known = self._answers.get(question)
        if known is None:
            found = frozenset(self._closed(pod, nodes, company.standing, others))
            known = self._answers.put(question, found, len(found))
        return known

    def _closed(
        self, pod: Pod, nodes: Collection[str], own: Sequence[tuple[Pod, str]], coming: Sequence[Coming]
    ) -> set[str]:
        shut: set[str] = set()
        for shy in self._apart.selecting(pod):
            shut |= _without(shy.holders, (node for each, node in own if each.apart == shy.terms))
        for term in pod.apart:
            shut |= self._homes_of(term, own, coming)
        shut.update(*self._shut_by(pod, coming))
        for term in pod.beside:
            homes = self._homes_of(term, own, ())
            if not homes and matches(term, pod):  # the first of those that want each other may stand anywhere
                homes = self._homes_of(term, own, coming) or set(nodes)
            shut |= set(nodes) - homes  # where others are only about to stand is not open yet: they may never be bound
        return shut

    def _shut_by(self, pod: Pod, coming: Iterable[Coming]) -> Iterator[frozenset[str]]:
        """The nodes to which pods are coming that keep away from this pod."""
        for each in coming:
            for other in each.pods:
                self._effort += len(other.apart)
                if any(matches(term, pod) for term in other.apart):
                    yield each.nodes
                    break

    def _homes_of(self, term: PodTerm, own: Iterable[tuple[Pod, str]], coming: Iterable[Coming]) -> set[str]:
        """The nodes of the pods that this term selects."""
        homes = _without(self._counted(term), (node for each, node in own if matches(term, each)))
        for each in coming:
            self._effort += len(each.pods)
            if any(matches(term, other) for other in each.pods):
                homes |= each.nodes
        return homes

    def _counted(self, term: PodTerm) -> Counter[str]:
        known = self._homes.get(term)
        if known is None:
            nodes = self._count_all(term)
            self._homes_held += len(nodes)
            while self._homes and (len(self._homes) >= MAX_TERMS or self._homes_held > MAX_HOMES):
                self._homes_held -= self._homes.pop(next(iter(self._homes))).first
            if not self._homes:
                self._changes.clear()
            known = self._homes[term] = _Homes(nodes, len(self._changes), len(nodes))
        self._effort += len(self._changes) - known.changes
        for pod, node, by in self._changes[known.changes :]:
            if matches(term, pod):
                _count(known.nodes, node, by)
        known.changes = len(self._changes)
        return known.nodes

    def _count_all(self, term: PodTerm) -> Counter[str]:
        """By the labels that the term asks for: of thousands of pods most have the same of these."""
        keys = tuple(sorted({each.key for each in term.expressions}))
        required = next((each.key for each in term.expressions if each.operator in REQUIRING), None)
        groups = self._groups.get((required, keys))
        if groups is None:
            if len(self._groups) >= MAX_GROUPINGS:
                self._groups.clear()
            groups = self._groups[required, keys] = self._grouped(required, keys)
        self._effort += len(groups)
        found: Counter[str] = Counter()
        for (namespace, values), nodes in groups.items():
            labels = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
            if selects(term, namespace, labels):
                found.update(nodes)
        return found

    def _grouped(self, required: str | None, keys: tuple[str, ...]) -> _Groups:
        """The pods that have the required label, by namespace and their values of these labels."""
        groups: _Groups = {}
        for node, there in self._standing.items():
            pods: Iterable[Pod] = there.pods.values()
            if required is not None:
                pods = [pod for pod in pods if required in pod.labels]
                self._effort += len(there.pods) // 4 + len(pods)
            else:
                self._effort += len(there.pods)
            for pod in pods:
                group = pod.namespace, tuple(map(pod.labels.get, keys))
                groups.setdefault(group, Counter())[node] += 1
        return groups


def _without(nodes: Counter[str], own: Iterable[str]) -> set[str]:
    """The nodes that have one more pod than our own there."""
    discount = Counter(own)
    if not discount:
        return set(nodes)
    return {node for node, count in nodes.items() if count > discount[node]}


def _count(nodes: Counter[str], node: str, by: int) -> None:
    nodes[node] += by
    if not nodes[node]:
        del nodes[node]

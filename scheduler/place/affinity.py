"""Required pod (anti-)affinity on hostname: which nodes other pods close to a pod (F5).

kube-scheduler's rules apply: terminating pods count until they are gone, and an anti-affinity binds both ways.  Slurm cannot
queue for affinity.  So the nodes that are closed now are excluded now, and the job is updated when that changes (F2).

A tenant chooses how many terms its pods have, and pods of other schedulers cannot be refused.  So no question is answered
pod by pod.  `Neighbours` counts by node:

- the anti-affinity of the pods there, each distinct list of terms once (terms.py).
- the pods that a term of a waiting pod selects, from the first question with this term on.

Both counts are carried from one question to the next.  The cost of a question is the cost of what changed since the last.

Pods that have a grant and are not bound yet are counted in the same way, by workload: each of them may come to each node of
the grant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.model.cache import Remembered
from scheduler.model.kubernetes import Pod, PodTerm
from scheduler.place.affinity_terms import REQUIRING, Kind, TermIndex, TermList, matches, selects, size_of

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

    pods    one of each kind, by UID
    nodes   Kubernetes names of the granted nodes: each of the pods may come to each of these
    """

    key: str
    pods: Mapping[str, Pod]
    nodes: frozenset[str]


def kinds_of(pods: Collection[Pod]) -> tuple[Pod, ...]:
    """One of each kind of pod, as the affinity of others and their own anti-affinity tell them apart."""
    if len(pods) <= 1:
        return tuple(pods)
    return tuple({(pod.namespace, frozenset(pod.labels.items()), pod.apart): pod for pod in pods}.values())


class _Place(Protocol):
    """A node with the pods there, or a workload with those of its pods that are about to come."""

    @property
    def pods(self) -> Mapping[str, Pod]: ...


@dataclass(slots=True)
class _Homes:
    """How many pods that one term selects each place has, after so many of the changes."""

    places: Counter[str]
    changes: int
    first: int  # how many places these were when they were counted


class _Counted:
    """The pods by place, as far as affinity asks for them.

    places   the owner of this mapping changes it, and tells each change here before the next question
    kept     lists that stay in the answers though nobody holds them
    effort   how many terms were compared with pods so far
    """

    def __init__(self, places: Mapping[str, _Place], kept: Collection[TermList] = ()) -> None:
        self._effort = 0
        self._places = places
        self.apart = TermIndex(kept)  # anti-affinity of the pods there; their places hold the lists
        self._homes: dict[PodTerm, _Homes] = {}
        self._homes_held = 0
        self._changes: list[tuple[Pod, str, int]] = []
        self._groups: dict[tuple[str | None, tuple[str, ...]], _Groups] = {}  # until the next change

    @property
    def effort(self) -> int:
        return self._effort + self.apart.effort

    def came(self, pod: Pod, place: str) -> TermList | None:
        """Returns its anti-affinity, if it has one."""
        self._changed(pod, place, 1)
        return self.apart.came(pod.apart, place) if pod.apart else None

    def left(self, pod: Pod, place: str) -> TermList | None:
        """The pod, as `came` was told of it, is there no more.  Returns its anti-affinity, if it has one."""
        self._changed(pod, place, -1)
        return self.apart.left(pod.apart, place) if pod.apart else None

    def _changed(self, pod: Pod, place: str, by: int) -> None:
        self._groups.clear()
        if not self._homes:
            return
        self._changes.append((pod, place, by))
        if len(self._changes) > MAX_CHANGES:
            self._homes.clear()
            self._changes.clear()
            self._homes_held = 0

    def prepare(self, pod: Pod, most: int) -> bool:
        """Do about so many comparisons of the next question of this pod; True when it needs no more."""
        until = self.effort + most
        if not self.apart.compare(pod, max(1, most)):
            return False
        for term in (*pod.apart, *pod.beside):
            if self.effort >= until:
                return False
            self.homes(term)
        return True

    def homes(self, term: PodTerm) -> Counter[str]:
        """How many pods that this term selects each place has."""
        known = self._homes.get(term)
        if known is None:
            places = self._count_all(term)
            self._homes_held += len(places)
            while self._homes and (len(self._homes) >= MAX_TERMS or self._homes_held > MAX_HOMES):
                self._homes_held -= self._homes.pop(next(iter(self._homes))).first
            if not self._homes:
                self._changes.clear()
            known = self._homes[term] = _Homes(places, len(self._changes), len(places))
        self._effort += len(self._changes) - known.changes
        for pod, place, by in self._changes[known.changes :]:
            if matches(term, pod):
                _count(known.places, place, by)
        known.changes = len(self._changes)
        return known.places

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
        for (namespace, values), places in groups.items():
            labels = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
            if selects(term, namespace, labels):
                for place, count in places.items():  # Counter.update takes ten times as long for a few
                    found[place] = found.get(place, 0) + count
        return found

    def _grouped(self, required: str | None, keys: tuple[str, ...]) -> _Groups:
        """The pods that have the required label, by namespace and their values of these labels."""
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
class _Ahead:
    """The pods of one workload that were compared ahead of their question, by UID, and since which version.

    soon   with those that are about to come, too
    """

    version: int
    soon: bool
    pods: dict[str, Pod] = field(default_factory=dict)


class Neighbours:
    """The unfinished pods on nodes, and those that are about to come, as far as affinity asks for them.

    standing   the pods by node; the owner of this mapping changes it, and tells each change here
    effort     how many terms were compared with pods so far; the only measure of cost that needs no clock
    """

    def __init__(self, standing: Mapping[str, _Place], effort: int = 0) -> None:
        self._effort = effort
        self._news: dict[TermList, None] = {}
        self._there = _Counted(standing, kept=self._news)
        self._expected: Sequence[Coming] | None = None  # what the index was made of; None: some of that is gone
        self._coming: dict[str, Coming] = {}
        self._soon = _Counted(self._coming)
        self._version = 0  # how often pods came or left, or were expected or not any more
        self._ahead: dict[str, _Ahead] = {}  # by workload key, while `prepare` has more to do
        self._answers: Remembered[Hashable, frozenset[str]] = Remembered(MAX_ANSWERS)

    @property
    def effort(self) -> int:
        return self._effort + self._there.effort + self._soon.effort

    @property
    def some_are_shy(self) -> bool:
        """True if a pod on some node has an anti-affinity: it closes its node to others, whatever these ask for."""
        return bool(self._there.apart)

    # --- what changes -------------------------------------------------------------------------------------------------

    def came(self, pod: Pod, node: str) -> None:
        """The pod has that node now."""
        self._answers.clear()
        self._version += 1
        shy = self._there.came(pod, node)
        if shy is not None and shy.holders[node] == 1:
            self._news[shy] = None

    def left(self, pod: Pod, node: str) -> None:
        """The pod, as `came` was told of it, has that node no more."""
        self._answers.clear()
        self._version += 1
        shy = self._there.left(pod, node)
        if shy is not None and node not in shy.holders:
            self._news[shy] = None

    def expect(self, coming: Sequence[Coming]) -> None:
        """These are the pods that are about to come, until the next call.  Costs no more than what is not as before."""
        if coming is self._expected:
            return
        keys = {each.key for each in coming}
        for key in [key for key in self._coming if key not in keys]:
            self.expect_no_more(key)
        for each in coming:
            self._expect(each)
        self._expected = coming

    def expect_no_more(self, key: str) -> None:
        """No pods of this workload are about to come."""
        gone = self._coming.pop(key, None)
        if gone is None:
            return
        self._expected = None
        self._version += 1
        if self._coming:
            for pod in gone.pods.values():
                self._soon.left(pod, key)
        else:  # what was remembered for them goes with the last of them
            self._effort += self._soon.effort
            self._soon = _Counted(self._coming)

    def _expect(self, now: Coming) -> None:
        before = self._coming.get(now.key)
        was: Mapping[str, Pod] = before.pods if before is not None else {}
        came = [pod for uid, pod in now.pods.items() if uid not in was or not _asks_the_same(was[uid], pod)]
        left = [pod for uid, pod in was.items() if uid not in now.pods or not _asks_the_same(now.pods[uid], pod)]
        self._coming[now.key] = now
        if came or left or before is None or before.nodes != now.nodes:
            self._version += 1
        for pod in came:  # first, so that a list of terms which another pod has now is not filed anew
            self._soon.came(pod, now.key)
        for pod in left:
            self._soon.left(pod, now.key)

    def nodes_changed(self) -> None:
        """Nodes came or went."""
        self._answers.clear()

    @property
    def has_news(self) -> bool:
        """True if an anti-affinity came to a node, or left one, since `heard`."""
        return bool(self._news)

    def concerns(self, pod: Pod) -> bool:
        """False if none of these selects this pod; True also where that would take many comparisons to know."""
        found = self._there.apart.selecting_if_few(pod)
        return found is None or not self._news.keys().isdisjoint(found)

    def counted(self) -> Mapping[tuple[PodTerm, ...], Counter[str]]:
        """Each distinct anti-affinity of the pods on nodes, with how many pods on which nodes have it."""
        return self._there.apart.holders()

    def heard(self) -> None:
        """All pods that the news concern are being looked at."""
        self._news.clear()

    # --- questions ----------------------------------------------------------------------------------------------------

    def kind(self, pod: Pod) -> Kind:
        """All that the anti-affinity of pods on nodes can ask of it: pods of equal kind get the same answer."""
        return self._there.apart.kind(pod)

    def prepare(self, key: str, pods: Collection[Pod], most: int, *, soon: bool) -> bool:
        """Do about so many comparisons of the next questions of these pods; True when they need no more.

        The first question of a pod is the dear one: many terms may have to be compared with it, or its own terms with many.

        key    of their workload: the next call goes on where this one ended
        soon   they will be asked with those that are about to come
        """
        until = self.effort + most
        asked = (self._there, self._soon) if soon else (self._there,)
        ahead = self._ahead.get(key)
        if ahead is None or ahead.soon != soon:
            ahead = self._ahead[key] = _Ahead(self._version, soon)
        for pod in pods:
            if ahead.pods.get(pod.uid) is pod:
                continue
            if not all(each.prepare(pod, until - self.effort) for each in asked):
                return False
            ahead.pods[pod.uid] = pod
        del self._ahead[key]
        return ahead.version == self._version or self.prepare(key, pods, until - self.effort, soon=soon)

    def asks_no_more(self, key: str) -> None:
        """Of this workload nothing needs to be prepared any more."""
        self._ahead.pop(key, None)

    def closed(self, pod: Pod, nodes: Collection[str], company: Company, *, soon: bool = False) -> frozenset[str]:
        """Nodes that other pods close to this pod.

        nodes     all nodes
        company   pods that do not count, the asking pod among them
        soon      pods that are about to come count as if each had its granted nodes already, those of the company aside
        """
        self._effort += PER_TERM * (1 + len(pod.apart) + len(pod.beside))
        among_its_own = tuple(matches(term, pod) for term in pod.beside)
        expected: Hashable = None
        if soon and self._coming:
            own = company.key if company.key in self._coming else ""
            expected = self._version, self._soon.apart.kind(pod), own
        standing = company if company.standing else None
        question = self.kind(pod), pod.apart, pod.beside, among_its_own, standing, expected
        known = self._answers.get(question)
        if known is None:
            found = frozenset(self._closed(pod, nodes, company, soon=expected is not None))
            known = self._answers.put(question, found, len(found), size_of((*pod.apart, *pod.beside)))
        return known

    def _closed(self, pod: Pod, nodes: Collection[str], company: Company, *, soon: bool) -> set[str]:
        own = company.standing
        shut: set[str] = set()
        for shy in self._there.apart.selecting(pod):
            shut |= _without(shy.holders, (node for each, node in own if each.apart == shy.terms))
        for term in pod.apart:
            shut |= self._homes_of(term, own)
        if soon:
            shut |= self._shut_soon(pod, company)
        for term in pod.beside:
            homes = self._homes_of(term, own)
            if not homes and matches(term, pod):  # the first of those that want each other may stand anywhere
                homes = (self._granted(self._soon.homes(term), company) if soon else set()) or set(nodes)
            shut |= set(nodes) - homes  # where others are only about to stand is not open yet: they may never be bound
        return shut

    def _homes_of(self, term: PodTerm, own: Iterable[tuple[Pod, str]]) -> set[str]:
        """The nodes of the pods that this term selects."""
        return _without(self._there.homes(term), (node for each, node in own if matches(term, each)))

    def _shut_soon(self, pod: Pod, company: Company) -> set[str]:
        """The nodes to which pods are coming that keep away from this pod, or from which it keeps away."""
        keys: set[str] = set()
        for shy in self._soon.apart.selecting(pod):
            self._effort += 1
            keys.update(shy.holders)
        for term in pod.apart:
            keys.update(self._soon.homes(term))
        return self._granted(keys, company)

    def _granted(self, keys: Iterable[str], company: Company) -> set[str]:
        """The nodes that these workloads were granted, but for the company's own."""
        found: set[str] = set()
        for key in keys:
            if key != company.key:
                self._effort += 1
                found |= self._coming[key].nodes
        return found


def _asks_the_same(one: Pod, other: Pod) -> bool:
    """Of its neighbours, and they of it."""
    return one is other or (one.labels == other.labels and one.apart == other.apart)


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

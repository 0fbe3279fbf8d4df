"""An index of affinity terms and their holders: finds the lists that select a pod without comparing every term (F5).

A tenant chooses how many terms its pods have.  So each term is indexed by a label that it requires: a query about a pod
compares only the terms that require a label of this pod, and the terms that require none.  Pods that no term can distinguish
are one kind: their labels agree in the values that terms name.  The answer for each kind is kept, and a later query compares
only the terms added since then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from scheduler.model.kubernetes import Pod, PodTerm
from scheduler.model.selectors import holds
from scheduler.translate.pod_limits import beyond_limits

# Limits of what is remembered.  The next query that needs a dropped answer compares again.
MAX_KINDS = 16_384  # more than one gang can have, so that the queries of one workload fit
MAX_SAID = 262_144  # labels in all kinds
MAX_DEAD = 16_384  # terms
TEXTS = 8  # a term that names more values and namespaces counts as several
FEW = 256  # comparisons of a query whose effort is not counted
MAX_LABELS = 8  # a term that accepts more values of a label is indexed by the label's key alone

REQUIRING = ("In", "Exists")  # operators that select no pod without the label
OF_NAMED_VALUES = ("In", "NotIn", "Exists", "DoesNotExist")  # operators for which only the values that they name differ
Labels = Mapping[str, str]
PodKind = tuple[str, frozenset[tuple[str, str | None]]]  # namespace; labels, None for a value that no term names
_Label = tuple[str, str | None] | None


def matches(term: PodTerm, pod: Pod) -> bool:
    """True if the term selects this pod."""
    return selects(term, pod.namespace, pod.labels)


def selects(term: PodTerm, namespace: str, labels: Labels) -> bool:
    """True if the term selects a pod of this namespace with these labels."""
    return namespace in term.namespaces and all(holds(expression, labels) for expression in term.expressions)


def size_of(terms: Iterable[PodTerm]) -> int:
    """The size of these terms, in terms of usual size."""
    return sum(1 + (len(term.namespaces) + sum(1 + len(e.values) for e in term.expressions)) // TEXTS for term in terms)


@dataclass(slots=True, eq=False)
class TermList:
    """One list of terms, and how often each holder has it.  size: see size_of"""

    terms: tuple[PodTerm, ...]
    size: int
    holders: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Indexed:
    """One term at one label.  serial: ascending in the order of insertion"""

    serial: int
    term: PodTerm
    of: TermList


@dataclass(slots=True)
class _Known:
    """The lists that select one kind of pod, of those up to this serial.

    todo, until   the terms that are being compared, and the serial up to which they go
    """

    serial: int = 0
    lists: dict[TermList, None] = field(default_factory=dict)
    todo: Iterator[_Indexed] | None = None
    until: int = 0


class TermIndex:
    """Each distinct list of terms once, with its holders: names of nodes, or keys of workloads.

    kept     lists that stay in the answers though no holder has them
    effort   number of comparisons of terms with pods so far: a measure of cost that needs no clock
    """

    def __init__(self, kept: Collection[TermList] = ()) -> None:
        self.effort = 0
        self._kept = kept
        self._lists: dict[tuple[PodTerm, ...], TermList] = {}
        self._indexed: dict[_Label, list[_Indexed]] = {}
        self._serial = 0
        self._dead = 0  # size of the lists in the index without a holder
        self._named: dict[str, set[str]] = {}  # label key to the values that terms name
        self._any_value: set[str] = set()  # label keys of which a term may distinguish any two values
        self._known: dict[PodKind, _Known] = {}
        self._said = 0  # labels in all of these

    def __bool__(self) -> bool:
        return bool(self._lists)

    def add(self, terms: tuple[PodTerm, ...], holder: str) -> TermList:
        """Count this list once more for the holder."""
        known = self._lists.get(terms)
        if known is None:
            known = self._lists[terms] = TermList(terms, size_of(terms))
            if self._dead > MAX_DEAD and self._dead > sum(entry.size for entry in self._lists.values()):
                self._rebuild()
            else:
                self._insert(known)
        known.holders[holder] += 1
        return known

    def remove(self, terms: tuple[PodTerm, ...], holder: str) -> TermList | None:
        """Count this list once less for the holder.  Returns None if no holder had it."""
        known = self._lists.get(terms)
        if known is None:
            return None
        known.holders[holder] -= 1
        if not known.holders[holder]:
            del known.holders[holder]
        if not known.holders:
            del self._lists[terms]
            self._dead += known.size
        return known

    def holders(self) -> Mapping[tuple[PodTerm, ...], Counter[str]]:
        """Each list of terms that is held, with how often each holder has it."""
        return {terms: entry.holders for terms, entry in self._lists.items()}

    def kind(self, pod: Pod) -> PodKind:
        """The properties of a pod that these terms can select: pods of equal kind get the same answer."""
        labels = ((key, value, self._named.get(key)) for key, value in pod.labels.items())
        return pod.namespace, frozenset(
            (key, value if value in named or key in self._any_value else None)
            for key, value, named in labels
            if named is not None
        )

    def selecting(self, pod: Pod) -> list[TermList]:
        """The lists of which at least one term selects this pod; also kept lists without a holder."""
        while not self.compare(pod, None):
            pass
        return list(self._known_as(pod).lists)

    def selecting_if_few(self, pod: Pod) -> list[TermList] | None:
        """The same; None: that takes more than FEW comparisons.  The next query continues from there."""
        return self.selecting(pod) if self.compare(pod, FEW) else None

    def compare(self, pod: Pod, most: int | None) -> bool:
        """Compare at most `most` of the terms added since the last query about this kind of pod; True if none is left."""
        known = self._known_as(pod)
        if known.todo is None:
            if known.serial == self._serial:
                return True
            known.lists = {entry: None for entry in known.lists if entry.holders or entry in self._kept}
            known.todo, known.until = self._indexed_for(pod.labels, known.serial), self._serial
        compared = 0
        for indexed in islice(known.todo, most):
            compared += 1
            alive = indexed.of.holders or indexed.of in self._kept
            if alive and matches(indexed.term, pod):
                known.lists[indexed.of] = None
        self.effort += compared
        if most is not None and compared == most:
            return False
        known.serial, known.todo = known.until, None
        return known.serial == self._serial

    def _known_as(self, pod: Pod) -> _Known:
        kind = self.kind(pod)
        known = self._known.get(kind)
        if known is None:
            self._said += len(kind[1])
            while len(self._known) >= MAX_KINDS or (self._said > MAX_SAID and self._known):
                oldest = next(iter(self._known))
                self._said -= len(oldest[1])
                del self._known[oldest]
            known = self._known[kind] = _Known()
        return known

    def _indexed_for(self, labels: Labels, since: int) -> Iterator[_Indexed]:
        """The terms inserted after that serial that require no label, or one of these labels."""
        for label in (None, *((key, None) for key in labels), *labels.items()):
            for indexed in reversed(self._indexed.get(label, ())):
                if indexed.serial <= since:
                    break
                yield indexed

    def _insert(self, of: TermList) -> None:
        self._serial += 1
        for term in dict.fromkeys(of.terms):
            for expression in term.expressions:
                self._named.setdefault(expression.key, set()).update(expression.values)
                if expression.operator not in OF_NAMED_VALUES:
                    self._any_value.add(expression.key)
            for label in _labels_of(term):
                self._indexed.setdefault(label, []).append(_Indexed(self._serial, term, of))

    def _rebuild(self) -> None:
        for memory in (self._indexed, self._known, self._named, self._any_value):
            memory.clear()
        self._dead = self._said = 0
        for entry in dict.fromkeys((*self._lists.values(), *self._kept)):
            self._insert(entry)


def _labels_of(term: PodTerm) -> Sequence[_Label]:
    """The labels that index a term: a pod that it selects has one of them; [None]: it may have no label."""
    required = [expression for expression in term.expressions if expression.operator in REQUIRING]
    if not required:
        return [None]
    first = min(required, key=lambda expression: len(expression.values) if expression.operator == "In" else MAX_LABELS)
    if first.operator == "In" and len(first.values) <= MAX_LABELS:
        return [(first.key, value) for value in dict.fromkeys(first.values)]
    return [(first.key, None)]


class WaitingTerms:
    """The affinity terms of workloads that wait for nodes: finds the workloads that a change of pods on nodes concerns."""

    def __init__(self) -> None:
        self._index = TermIndex()
        self._lists: dict[str, set[tuple[PodTerm, ...]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._lists

    def add(self, key: str, pods: Iterable[Pod]) -> None:
        """Add pods of a waiting workload.  Pods beyond the limits are left out: they are refused in any case."""
        lists = self._lists.setdefault(key, set())
        for pod in pods:
            terms = (*pod.anti_affinity, *pod.affinity)
            if terms not in lists and not beyond_limits(pod):
                lists.add(terms)
                self._index.add(terms, key)

    def drop(self, key: str) -> None:
        """Remove a workload that stopped waiting."""
        for terms in self._lists.pop(key, ()):
            self._index.remove(terms, key)

    def concerned(self, pods: Iterable[Pod]) -> Iterable[str]:
        """Workloads with a term that selects one of these pods, by key; all keys if finding out takes many comparisons."""
        if not self._index:  # usual, and this runs at each bind
            return ()
        found: dict[str, None] = {}
        for pod in {self._index.kind(pod): pod for pod in pods}.values():
            lists = self._index.selecting_if_few(pod)
            if lists is None:
                return self._lists
            for entry in lists:
                found.update(dict.fromkeys(entry.holders))
        return found

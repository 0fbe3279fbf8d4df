"""Lists of affinity terms and their holders: finds the lists that select a pod without asking term by term (F5).

A tenant chooses how many terms its pods have.  So each term is filed under a label that it requires: a question about a pod
compares only the terms that require a label of this pod, and the terms that require none.  Pods that no term can tell
apart are one kind: their labels have the same of the values that terms name.  The answer for each kind is kept, and a later
question compares only the terms filed since then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from scheduler.model.kubernetes import Pod, PodTerm
from scheduler.model.selectors import holds
from scheduler.translate.pod_limits import beyond_limits

# How much is remembered.  What is dropped is compared again by the next question that needs it.
MAX_KINDS = 16_384  # more than one gang can have, so that the questions of one workload fit
MAX_SAID = 262_144  # labels in all kinds
MAX_DEAD = 16_384  # terms
TEXTS = 8  # a term that names more values and namespaces counts as several
FEW = 256  # comparisons: what a question may cost where nobody counts the effort
MAX_HEADINGS = 8  # a term that accepts more values of a label is filed under the label alone

REQUIRING = ("In", "Exists")  # operators that select no pod without the label
OF_NAMED_VALUES = ("In", "NotIn", "Exists", "DoesNotExist")  # operators for which only the values that they name differ
Labels = Mapping[str, str]
Kind = tuple[str, frozenset[tuple[str, str | None]]]  # namespace; labels, None for a value that no term names
_Heading = tuple[str, str | None] | None


def matches(term: PodTerm, pod: Pod) -> bool:
    """True if the term selects this pod."""
    return selects(term, pod.namespace, pod.labels)


def selects(term: PodTerm, namespace: str, labels: Labels) -> bool:
    """True if the term selects a pod of this namespace with these labels."""
    return namespace in term.namespaces and all(holds(each, labels) for each in term.expressions)


def size_of(terms: Iterable[PodTerm]) -> int:
    """How many terms of usual size these are as large as."""
    return sum(1 + (len(each.namespaces) + sum(1 + len(e.values) for e in each.expressions)) // TEXTS for each in terms)


@dataclass(slots=True, eq=False)
class TermList:
    """One list of terms, and how often each holder has it.  size: as size_of says it"""

    terms: tuple[PodTerm, ...]
    size: int
    holders: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Filed:
    """One term under one heading.  serial: ascending in the order of filing."""

    serial: int
    term: PodTerm
    of: TermList


@dataclass(slots=True)
class _Known:
    """Which lists select one kind of pod, as far as those up to this serial.

    todo, until   the terms that are being compared: up to that serial
    """

    serial: int = 0
    lists: dict[TermList, None] = field(default_factory=dict)
    todo: Iterator[_Filed] | None = None
    until: int = 0


class TermIndex:
    """Each distinct list of terms once, with its holders: names of nodes, or keys of workloads.

    kept     lists that stay in the answers though nobody holds them
    effort   how many terms were compared with pods so far; the only measure of cost that needs no clock
    """

    def __init__(self, kept: Collection[TermList] = ()) -> None:
        self.effort = 0
        self._kept = kept
        self._lists: dict[tuple[PodTerm, ...], TermList] = {}
        self._filed: dict[_Heading, list[_Filed]] = {}
        self._serial = 0
        self._dead = 0  # the size of the lists that are filed, and that nobody has any more
        self._named: dict[str, set[str]] = {}  # by label that a filed term asks for: the values that terms name
        self._any_value: set[str] = set()  # labels of which any two values may differ to a term
        self._known: dict[Kind, _Known] = {}
        self._said = 0  # labels in all of these

    def __bool__(self) -> bool:
        return bool(self._lists)

    def came(self, terms: tuple[PodTerm, ...], holder: str) -> TermList:
        """The holder has this list, once more if it had it before."""
        known = self._lists.get(terms)
        if known is None:
            known = self._lists[terms] = TermList(terms, size_of(terms))
            if self._dead > MAX_DEAD and self._dead > sum(each.size for each in self._lists.values()):
                self._file_anew()
            else:
                self._file(known)
        known.holders[holder] += 1
        return known

    def left(self, terms: tuple[PodTerm, ...], holder: str) -> TermList | None:
        """The holder has this list once less.  None: nobody has it."""
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
        return {terms: each.holders for terms, each in self._lists.items()}

    def kind(self, pod: Pod) -> Kind:
        """All that these terms can ask of a pod: pods of equal kind get the same answer."""
        said = ((key, value, self._named.get(key)) for key, value in pod.labels.items())
        return pod.namespace, frozenset(
            (key, value if value in named or key in self._any_value else None)
            for key, value, named in said
            if named is not None
        )

    def selecting(self, pod: Pod) -> list[TermList]:
        """The lists of which at least one term selects this pod; also kept ones that nobody holds."""
        while not self.compare(pod, None):
            pass
        return list(self._known_as(pod).lists)

    def selecting_if_few(self, pod: Pod) -> list[TermList] | None:
        """The same; None: that would take more than FEW comparisons.  The next question goes on from there."""
        return self.selecting(pod) if self.compare(pod, FEW) else None

    def compare(self, pod: Pod, most: int | None) -> bool:
        """Compare at most so many of the terms filed since the last question about this kind of pod; True if none is left."""
        known = self._known_as(pod)
        if known.todo is None:
            if known.serial == self._serial:
                return True
            known.lists = {each: None for each in known.lists if each.holders or each in self._kept}
            known.todo, known.until = self._filed_for(pod.labels, known.serial), self._serial
        compared = 0
        for filed in islice(known.todo, most):
            compared += 1
            alive = filed.of.holders or filed.of in self._kept
            if alive and filed.of not in known.lists and matches(filed.term, pod):
                known.lists[filed.of] = None
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

    def _filed_for(self, labels: Labels, since: int) -> Iterator[_Filed]:
        """The terms filed after that serial that require nothing, or one of these labels."""
        for heading in (None, *((key, None) for key in labels), *labels.items()):
            for filed in reversed(self._filed.get(heading, ())):
                if filed.serial <= since:
                    break
                yield filed

    def _file(self, of: TermList) -> None:
        self._serial += 1
        for term in dict.fromkeys(of.terms):
            for each in term.expressions:
                self._named.setdefault(each.key, set()).update(each.values)
                if each.operator not in OF_NAMED_VALUES:
                    self._any_value.add(each.key)
            for heading in _headings(term):
                self._filed.setdefault(heading, []).append(_Filed(self._serial, term, of))

    def _file_anew(self) -> None:
        for memory in (self._filed, self._known, self._named, self._any_value):
            memory.clear()
        self._dead = self._said = 0
        for each in dict.fromkeys((*self._lists.values(), *self._kept)):
            self._file(each)


def _headings(term: PodTerm) -> Sequence[_Heading]:
    """Where a term is filed: a pod that it selects has a label that is one of these headings; [None]: it may have none."""
    required = [each for each in term.expressions if each.operator in REQUIRING]
    if not required:
        return [None]
    first = min(required, key=lambda each: len(each.values) if each.operator == "In" else MAX_HEADINGS)
    if first.operator == "In" and len(first.values) <= MAX_HEADINGS:
        return [(first.key, value) for value in dict.fromkeys(first.values)]
    return [(first.key, None)]


class WaitingTerms:
    """The affinity terms of workloads that wait for nodes: whom it concerns that a pod comes to a node, or leaves one."""

    def __init__(self) -> None:
        self._index = TermIndex()
        self._lists: dict[str, set[tuple[PodTerm, ...]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._lists

    def add(self, key: str, pods: Iterable[Pod]) -> None:
        """This workload waits, with these pods among others.  A pod beyond the limits is refused wherever others stand."""
        lists = self._lists.setdefault(key, set())
        for pod in pods:
            terms = (*pod.apart, *pod.beside)
            if terms and terms not in lists and not beyond_limits(pod):
                lists.add(terms)
                self._index.came(terms, key)

    def drop(self, key: str) -> None:
        """This workload does not wait any more."""
        for terms in self._lists.pop(key, ()):
            self._index.left(terms, key)

    def concerned(self, pods: Iterable[Pod]) -> Iterable[str]:
        """The keys of workloads with a term that selects one of these pods; all where it would take long to know."""
        if not self._index:
            return ()
        found: dict[str, None] = {}
        for pod in {self._index.kind(pod): pod for pod in pods}.values():
            lists = self._index.selecting_if_few(pod)
            if lists is None:
                return self._lists
            for each in lists:
                found.update(dict.fromkeys(each.holders))
        return found

"""Affinity is counted, and answers as the plain definition does for any history of pods, labels and questions (F1, F5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.model.kubernetes import HostPort, Pod, PodTerm, Requirement
from scheduler.model.selectors import holds
from scheduler.place import affinity
from scheduler.place import affinity_terms as term_index
from scheduler.place.affinity import AffinityIndex, GrantedPods, OwnPods
from scheduler.place.affinity_terms import WaitingTerms
from scheduler.place.fit import NodeInfo
from scheduler.place.host_ports import HostPorts
from tests.builders import pod

NODES = ("x1", "x2", "x3")
KEYS, VALUES = ("app", "tier", "zone"), ("a", "b", "c")
NAMESPACES = ("hpc", "other")
OUTGROWN = (
    *((affinity, name) for name in ("MAX_TERMS", "MAX_CHANGES", "MAX_ANSWERS", "MAX_COUNTED_PLACES", "MAX_GROUPINGS")),
    *((term_index, name) for name in ("MAX_KINDS", "MAX_DEAD")),
)

requirements = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Newer")),
    st.lists(st.sampled_from(VALUES), max_size=2).map(tuple),
)
terms = st.builds(
    PodTerm,
    st.lists(requirements, max_size=3).map(tuple),
    st.frozensets(st.sampled_from(NAMESPACES), min_size=1),
)
several = st.lists(terms, max_size=3).map(tuple)
ports = st.lists(
    st.builds(
        HostPort,
        st.sampled_from((80, 81)),
        st.sampled_from(("TCP", "UDP")),
        st.sampled_from(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")),
    ),
    max_size=2,
).map(tuple)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    return pod(
        f"p{draw(st.integers(0, 7))}",
        namespace=draw(st.sampled_from(NAMESPACES)),
        labels=draw(labels),
        anti_affinity=draw(several),
        affinity=draw(several) if draw(st.booleans()) else (),
        host_ports=draw(ports),
    )


# A pod comes to a node, gets other labels, leaves; or a pod that comes with some of the others asks a question.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), pods(), st.sampled_from(NODES)),
        st.tuples(st.just("labels"), labels, st.integers(0, 7)),
        st.tuples(st.just("leaves"), st.none(), st.integers(0, 7)),
        st.tuples(st.just("asks"), pods(), st.sets(st.integers(0, 7), max_size=3)),
    ),
    max_size=30,
)


def selects(term: PodTerm, other: Pod) -> bool:
    return other.namespace in term.namespaces and all(holds(each, other.labels) for each in term.expressions)


def closed_by_definition(new: Pod, there: Mapping[str, list[Pod]]) -> set[str]:
    """As the API describes required terms: any anti-affinity of either side closes a node, all affinity must be met."""
    shut = {
        node
        for node, others in there.items()
        for other in others
        if any(selects(term, other) for term in new.anti_affinity)
        or any(selects(term, new) for term in other.anti_affinity)
    }
    for term in new.affinity:
        homes = {node for node, others in there.items() if any(selects(term, other) for other in others)}
        if homes or not selects(term, new):  # the first of those that want each other may stand anywhere
            shut |= set(NODES) - homes
    return shut


def clashes_by_definition(new: Pod, there: Mapping[str, list[Pod]]) -> set[str]:
    every = ("", "0.0.0.0")
    return {
        node
        for node, others in there.items()
        for other in others
        for held in other.host_ports
        for port in new.host_ports
        if (held.port, held.protocol) == (port.port, port.protocol)
        and (held.address == port.address or held.address in every or port.address in every)
    }


class Crowd:
    """The index, beside the plain facts that it counts."""

    def __init__(self) -> None:
        self.standing: dict[str, NodeInfo] = {}
        self.node_of: dict[str, str] = {}
        self.affinity_index = AffinityIndex(self.standing)
        self.ports = HostPorts()

    def comes(self, new: Pod, node: str) -> None:
        self.leaves(new.uid)
        self.node_of[new.uid] = node
        self.standing.setdefault(node, NodeInfo()).put(new)
        self.affinity_index.add(new, node)
        self.ports.add(new, node)

    def leaves(self, uid: str) -> None:
        if (node := self.node_of.pop(uid, None)) is not None:
            left = self.standing[node].remove(uid)
            assert left is not None
            self.affinity_index.remove(left, node)
            self.ports.remove(left, node)

    def relabelled(self, uid: str, to: Mapping[str, str]) -> None:
        if (node := self.node_of.get(uid)) is not None:
            self.comes(replace(self.standing[node].pods[uid], labels=to), node)

    def asks(self, new: Pod, own: set[str]) -> None:
        own = own | {new.uid}
        held = tuple((self.standing[node].pods[uid], node) for uid, node in self.node_of.items() if uid in own)
        there = {node: [each for each in self.on(node) if each.uid not in own] for node in NODES}
        own_pods = OwnPods("ours", held)
        assert self.affinity_index.closed(new, NODES, own_pods) == closed_by_definition(new, there)
        assert self.ports.taken(new, held) == clashes_by_definition(new, there)

    def on(self, node: str) -> list[Pod]:
        return list(self.standing[node].pods.values()) if node in self.standing else []


@given(steps)
@settings(max_examples=150)
def test_what_is_counted_is_what_the_definition_says_after_any_history(
    history: list[tuple[str, object, object]],
) -> None:
    crowd = Crowd()
    for step in history:
        match step:
            case "comes", Pod() as new, str(node):
                crowd.comes(new, node)
            case "labels", dict(to), int(number):
                crowd.relabelled(f"uid-p{number}", to)
            case "leaves", None, int(number):
                crowd.leaves(f"uid-p{number}")
            case "asks", Pod() as new, set(own):
                crowd.asks(new, {f"uid-p{number}" for number in own})


@given(steps)
@settings(max_examples=50)
def test_what_outgrows_the_memory_is_counted_again(history: list[tuple[str, object, object]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in OUTGROWN:
            patch.setattr(module, name, 1)
        test_what_is_counted_is_what_the_definition_says_after_any_history.hypothesis.inner_test(history)  # type: ignore[attr-defined]


# A workload waits with a pod, and perhaps with others; one waits no more; or a pod comes to a node or leaves one.
waits = st.lists(
    st.one_of(
        st.tuples(st.just("waits"), st.integers(0, 4), pods()),
        st.tuples(st.just("does not wait"), st.integers(0, 4), st.none()),
        st.tuples(st.just("comes or leaves"), st.integers(0, 4), pods()),
    ),
    max_size=30,
)


@pytest.mark.parametrize("few", [1, 10_000])
@given(waits)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_pod_that_comes_or_leaves_concerns_the_waiting_workloads_whose_terms_select_it(
    few: int, monkeypatch: pytest.MonkeyPatch, history: list[tuple[str, int, Pod | None]]
) -> None:
    monkeypatch.setattr(term_index, "FEW", few)
    monkeypatch.setattr(term_index, "MAX_DEAD", 1)
    waiting: dict[str, list[Pod]] = {}
    index = WaitingTerms()
    for what, number, one in history:
        key = f"w{number}"
        if what == "waits" and one is not None:
            waiting.setdefault(key, []).append(one)
            index.add(key, [one])
        elif what == "does not wait":
            waiting.pop(key, None)
            index.drop(key)
        elif one is not None:
            by_definition = {
                key
                for key, its in waiting.items()
                if any(selects(term, one) for each in its for term in (*each.anti_affinity, *each.affinity))
            }
            found = set(index.concerned([one]))
            assert found == by_definition if few > 1 else found in (by_definition, set(waiting))


# Pods come to nodes; those that workloads are about to have bound change; or a pod asks, of one of these workloads or not.
GANGS = ("one", "two", "ours")
expectations = st.dictionaries(
    st.sampled_from(GANGS),
    st.tuples(st.lists(pods(), min_size=1, max_size=3), st.frozensets(st.sampled_from(NODES), min_size=1)),
)
moments = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), pods(), st.sampled_from(NODES)),
        st.tuples(st.just("expects"), expectations, st.none()),
        st.tuples(st.just("expects no more"), st.none(), st.sampled_from(GANGS)),
        st.tuples(st.just("is edited"), labels, st.sampled_from(GANGS)),
        st.tuples(st.just("prepares"), st.lists(pods(), max_size=3), st.integers(0, 8)),
        st.tuples(st.just("asks"), pods(), st.sampled_from((*GANGS, "nobody's"))),
    ),
    max_size=30,
)


@given(moments)
@settings(max_examples=150)
def test_granted_pods_close_nodes_as_the_definition_says_after_any_history(
    history: list[tuple[str, object, object]],
) -> None:
    crowd, granted = Crowd(), dict[str, GrantedPods]()
    for step in history:
        match step:
            case "comes", Pod() as new, str(node):
                crowd.comes(replace(new, uid=f"there-{new.uid}"), node)
            case "expects", dict(found), None:
                granted = {
                    key: GrantedPods(key, {each.uid: each for each in some}, on) for key, (some, on) in found.items()
                }
                crowd.affinity_index.set_granted(tuple(granted.values()))
            case "expects no more", None, str(key):
                granted.pop(key, None)
                crowd.affinity_index.remove_granted(key)
            case "is edited", dict(to), str(key):
                if (of := granted.get(key)) is not None:
                    granted[key] = GrantedPods(
                        key, {each.uid: replace(each, labels=to) for each in of.pods.values()}, of.nodes
                    )
                    crowd.affinity_index.set_granted(tuple(granted.values()))
            case "prepares", list(some), int(most):
                crowd.affinity_index.prepare("ours", some, most, with_granted=True)
            case "asks", Pod() as new, str(key):
                others = [each for each in granted.values() if each.key != key]
                both = {
                    node: [
                        *crowd.on(node),
                        *(each for one in others if node in one.nodes for each in one.pods.values()),
                    ]
                    for node in NODES
                }
                found = crowd.affinity_index.closed(new, NODES, OwnPods(key), with_granted=True)
                assert found == closed_with_granted(new, {node: crowd.on(node) for node in NODES}, both)
                assert crowd.affinity_index.closed(new, NODES, OwnPods(key)) == closed_by_definition(
                    new, {node: crowd.on(node) for node in NODES}
                )


@given(moments)
@settings(max_examples=50)
def test_what_outgrows_the_memory_of_granted_pods_is_counted_again(history: list[tuple[str, object, object]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in OUTGROWN:
            patch.setattr(module, name, 1)
        test_granted_pods_close_nodes_as_the_definition_says_after_any_history.hypothesis.inner_test(history)  # type: ignore[attr-defined]


def closed_with_granted(new: Pod, there: Mapping[str, list[Pod]], both: Mapping[str, list[Pod]]) -> set[str]:
    """Expected pods shut nodes; a node is opened by them only to the first of those that want each other."""
    shut = closed_by_definition(replace(new, affinity=()), both)
    for term in new.affinity:
        homes = {node for node, others in there.items() if any(selects(term, other) for other in others)}
        if not homes and selects(term, new):
            homes = {node for node, others in both.items() if any(selects(term, other) for other in others)} or set(
                NODES
            )
        shut |= set(NODES) - homes
    return shut


@given(st.lists(st.tuples(pods(), st.sampled_from(NODES)), max_size=6), pods(), st.frozensets(st.sampled_from(NODES)))
def test_pods_that_are_about_to_come_count_on_each_of_their_nodes(
    there: list[tuple[Pod, str]], new: Pod, granted: frozenset[str]
) -> None:
    crowd = Crowd()
    for number, (each, node) in enumerate(there):
        crowd.comes(replace(each, uid=f"other-{number}"), node)
    guest = replace(new, uid="guest", labels={"app": "a"}, anti_affinity=new.affinity)
    at_once = {guest.uid: guest}
    crowd.affinity_index.set_granted(
        (GrantedPods("another", at_once, granted), GrantedPods("ours", at_once, frozenset(NODES)))
    )
    both = {node: [*crowd.on(node), *([guest] if node in granted else [])] for node in NODES}
    assert crowd.affinity_index.closed(new, NODES, OwnPods("ours"), with_granted=True) == closed_by_definition(
        new, both
    )

"""How many pods of a gang share a node, compared with the plain definitions (W7, F5, F6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.kubernetes import Pod, PodTerm, Requirement
from scheduler.place import sharing
from scheduler.place.fit import needs
from scheduler.place.sharing import (
    has_affinity_between,
    has_mutual_anti_affinity,
    keeps_all_apart,
    keeps_all_together,
    most_pods_on,
    need_one_node,
    step_of,
    steps,
)
from tests.builders import MIB, pod
from tests.properties.test_affinity import selects

labels = st.dictionaries(st.sampled_from(("app", "tier")), st.sampled_from(("a", "b")))
terms = st.builds(
    lambda key, value: PodTerm((Requirement(key, "In", (value,)),), frozenset({"hpc"})),
    st.sampled_from(("app", "tier")),
    st.sampled_from(("a", "b")),
)
several = st.lists(terms, max_size=2).map(tuple)


@st.composite
def kinds(draw: st.DrawFn, most: int = 3) -> list[list[Pod]]:
    return [
        [
            pod(f"p{kind}-{number}", labels=draw(labels), affinity=draw(several), anti_affinity=draw(several))
            for number in range(draw(st.integers(1, 3)))
        ]
        for kind in range(draw(st.integers(1, most)))
    ]


@given(kinds(most=1))
def test_pods_that_exclude_each_other_are_found(pods: Sequence[Sequence[Pod]]) -> None:
    [gang] = pods
    pairs = [(one, other) for one in gang for other in gang if one is not other]
    excluded = any(selects(term, other) for one, other in pairs for term in one.anti_affinity)
    assert has_mutual_anti_affinity(gang) == excluded
    apart = any(all(term in one.anti_affinity and selects(term, one) for one in gang) for term in gang[0].anti_affinity)
    assert keeps_all_apart(gang) == apart


@given(kinds(most=1))
def test_pods_that_affinity_wants_on_one_node_are_found(pods: Sequence[Sequence[Pod]]) -> None:
    [gang] = pods
    close = any(selects(term, other) for one in gang for other in gang if one is not other for term in one.affinity)
    assert need_one_node(gang) == close
    everywhere = any(all(term in one.affinity and selects(term, one) for one in gang) for term in gang[0].affinity)
    assert keeps_all_together(gang) == everywhere


@given(kinds())
@settings(max_examples=200)
def test_affinity_that_wants_pods_of_two_kinds_on_one_node_is_found(pods: Sequence[Sequence[Pod]]) -> None:
    wanted = False
    for kind in pods:
        elsewhere = [other for others in pods if others is not kind for other in others]
        for one in kind:
            for term in one.affinity:
                beside = any(selects(term, other) for other in kind if other is not one)
                wanted |= not beside and any(selects(term, other) for other in elsewhere)
                alike = (other for other in elsewhere if term in other.affinity and selects(term, other))
                wanted |= selects(term, one) and any(alike)
    assert has_affinity_between(pods) == wanted


def test_what_takes_too_many_comparisons_counts_as_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = PodTerm((Requirement("app", "In", ("b",)),), frozenset({"hpc"}))
    gang = [pod("p", labels={"app": "a"}, anti_affinity=(apart,))]
    assert not has_mutual_anti_affinity(gang)
    monkeypatch.setattr(sharing, "MOST_COMPARED", 0)
    assert has_mutual_anti_affinity(gang)


amounts = st.fixed_dictionaries({key: st.integers(0, 3) for key in ("cpu", "memory", "ephemeral-storage")})


@given(st.lists(amounts, min_size=1, max_size=4), amounts, st.integers(0, 5))
def test_a_node_holds_so_many_pods_that_any_of_them_fit_together(
    wants: list[dict[str, int]], has: dict[str, int], pods: int
) -> None:
    gang = [pod(f"p{number}", pod_requests=each) for number, each in enumerate(wants)]
    there = has | {"pods": pods}

    def any_fit(number: int) -> bool:
        together = [[needs(each) for each in some] for some in combinations(gang, number)]
        return all(sum(each.get(key, 0) for each in some) <= there[key] for some in together for key in there)

    found = most_pods_on({"x1": there}, gang)["x1"]
    assert found.pods == max(number for number in range(len(gang) + 1) if any_fit(number))
    assert found.pods == len(gang) or found.of in there
    if found.pods < len(gang):
        assert found.alike == (len({needs(each).get(found.of, 0) for each in gang}) == 1)
    assert most_pods_on({"x1": there}, gang, unlimited=there)["x1"].pods == len(gang)


@given(
    st.lists(st.lists(amounts, min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(amounts, min_size=2, max_size=8),
)
def test_nodes_between_the_same_steps_hold_equally_many_pods_of_each_shape(
    wants: list[list[dict[str, int]]], nodes: list[dict[str, int]]
) -> None:
    shapes = [[pod(f"p{number}", pod_requests=each) for number, each in enumerate(shape)] for shape in wants]
    by, offered = steps(shapes), {f"x{number}": has | {"pods": 3} for number, has in enumerate(nodes)}
    held: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for name, has in offered.items():
        most = tuple(most_pods_on({name: has}, pods)[name].pods for pods in shapes)
        held.setdefault(step_of(has, by), set()).add(most)
    assert all(len(different) == 1 for different in held.values())


def test_a_node_that_is_not_the_cluster_s_largest_holds_fewer() -> None:
    gang = [pod(f"p{number}", pod_requests={"ephemeral-storage": 2}) for number in range(9)]
    has = {"cpu": 9000, "memory": 900 * MIB, "ephemeral-storage": 99}
    found = most_pods_on({"x1": {**has, "pods": 3}, "x2": {**has, "pods": 4}}, gang)
    assert {name: most.pods for name, most in found.items()} == {"x1": 3, "x2": 4}

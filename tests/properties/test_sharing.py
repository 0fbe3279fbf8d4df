"""How many pods of a gang share a node, compared with the plain definitions (W7, F5, F6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.kubernetes import Node, Pod, PodTerm, Requirement
from scheduler.place import sharing
from scheduler.place.fit import needs
from scheduler.place.sharing import (
    has_affinity_between,
    has_mutual_anti_affinity,
    keeps_all_apart,
    keeps_all_together,
    most_pods_on,
    need_one_node,
)
from tests.builders import node, pod
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


@given(st.lists(amounts, min_size=1, max_size=3), amounts, st.integers(1, 5))
def test_a_node_holds_as_many_pods_as_the_resources_do_that_slurm_does_not_count(
    wants: list[dict[str, int]], has: dict[str, int], pods: int
) -> None:
    gang = [pod(f"p{number}", pod_requests=each) for number, each in enumerate(wants)]
    there = Node("x1", allocatable=has | {"pods": pods})
    found = most_pods_on({"x1": there}, gang, ("cpu", "memory"))["x1"]
    largest = max(needs(each).get("ephemeral-storage", 0) for each in gang)
    assert found.pods == min(pods, has["ephemeral-storage"] // largest if largest else pods)
    assert found.of in ("pods", "ephemeral-storage")


def test_a_node_that_is_not_the_cluster_s_largest_holds_fewer() -> None:
    gang = [pod("p", pod_requests={"ephemeral-storage": 2})]
    found = most_pods_on(
        {"x1": node("x1", pods=3), "x2": node("x2", pods=4)}, gang, ("ephemeral-storage", "cpu", "memory")
    )
    assert {name: most.pods for name, most in found.items()} == {"x1": 3, "x2": 4}

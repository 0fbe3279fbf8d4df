"""What is kept of a pod: all of one within the limits; of another enough to refuse it in the same words, and to count it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.kube import pods
from bridge.kube.codec import PODS
from bridge.kube.cut import cut
from scheduler.model.kubernetes import Container, HostPort, NodeTerm, Pod, PodTerm, Requirement, Toleration
from scheduler.place.affinity_terms import matches
from scheduler.place.fit import needs
from scheduler.place.host_ports import HostPorts
from scheduler.translate.pod_limits import beyond_limits

COUNTS = st.sampled_from((0, 1, 2, 3, 20, 63, 64, 65, 128, 129, 300))
AMOUNTS = st.builds(lambda count: {f"r{each}": each + 1 for each in range(count)}, COUNTS)
CONTAINERS = st.builds(
    lambda one, count: (one,) * count,
    st.builds(Container, st.just("c"), requests=AMOUNTS, limits=AMOUNTS, sidecar=st.booleans()),
    st.sampled_from((0, 1, 2, 5, 128, 129)),
)
PORTS = st.builds(
    lambda count, start: tuple(HostPort(start + each) for each in range(count)), COUNTS, st.integers(1, 200)
)
LABEL = st.sampled_from("abc")
REQUIREMENTS = st.builds(
    lambda key, operator, values, more: Requirement(key, operator, (*values, *map(str, range(more)))),
    LABEL,
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
    st.lists(LABEL, max_size=3),
    st.sampled_from((0, 0, 0, 600, 1100)),
)
TERMS = st.builds(
    lambda expressions, spaces, more: PodTerm(
        tuple(expressions), frozenset((*spaces, *(f"z{n}" for n in range(more))))
    ),
    st.lists(REQUIREMENTS, max_size=2),
    st.lists(LABEL, max_size=2),
    st.sampled_from((0, 0, 0, 300)),
)
LISTS = st.builds(lambda terms, times: tuple(terms) * times, st.lists(TERMS, max_size=4), st.sampled_from((1, 1, 8)))
SOME = st.builds(
    Pod,
    st.just("u"),
    LABEL,
    st.just("p"),
    node=st.sampled_from(("", "x1")),
    containers=CONTAINERS,
    init_containers=CONTAINERS,
    overhead=AMOUNTS,
    pod_requests=AMOUNTS,
    pod_limits=AMOUNTS,
    node_selector=st.builds(lambda count: {f"k{each}": "v" for each in range(count)}, COUNTS),
    node_affinity=st.none()
    | st.lists(st.builds(lambda r: NodeTerm(tuple(r)), st.lists(REQUIREMENTS, max_size=3))).map(tuple),
    anti_affinity=LISTS,
    affinity=LISTS,
    tolerations=st.builds(lambda count: (Toleration("k"),) * count, COUNTS),
    host_ports=PORTS,
    claims=st.builds(lambda count: ("c",) * count, COUNTS),
)


@given(SOME, LABEL, st.dictionaries(LABEL, LABEL), st.integers(1, 400))
def test_a_pod_that_is_cut_is_refused_in_the_same_words_and_closes_no_less(
    pod: Pod, namespace: str, labels: dict[str, str], port: int
) -> None:
    small, other = cut(pod), Pod("o", namespace, "other", labels=labels, host_ports=(HostPort(port),))
    assert beyond_limits(small) == beyond_limits(pod)
    assert cut(small) == small
    if not beyond_limits(pod):
        assert small is pod
    for kind in ("r0", "pods"):
        assert needs(small).get(kind) == needs(pod).get(kind)
    assert needs(small).items() <= needs(pod).items()
    assert keeps_away(small, other) or not keeps_away(pod, other)
    assert taken(small, other) or not taken(pod, other)


def keeps_away(pod: Pod, other: Pod) -> bool:
    """True if the other pod may not share a node with this one."""
    return any(matches(term, other) for term in pod.anti_affinity)


def taken(pod: Pod, other: Pod) -> bool:
    ports = HostPorts()
    ports.add(pod, "x1")
    return bool(ports.taken(other))


def container(requests: int, limits: int, ports: int) -> dict[str, Any]:
    return {
        "name": "c",
        "resources": {
            "requests": {f"r{each}": "1" for each in range(requests)},
            "limits": {f"l{each}": "1" for each in range(limits)},
        },
        "ports": [{"hostPort": 1 + each} for each in range(ports)],
    }


@given(
    st.lists(st.builds(container, COUNTS, COUNTS, COUNTS), max_size=4),
    st.lists(st.builds(container, COUNTS, COUNTS, COUNTS), max_size=3),
    st.sampled_from((1, 1, 1, 5, 17)),
    COUNTS,
    COUNTS,
    COUNTS,
)
def test_a_pod_that_is_not_counted_is_within_the_limits(
    containers: list[Any], inits: list[Any], times: int, tolerations: int, selector: int, volumes: int
) -> None:
    spec = {
        "containers": containers * times,
        "initContainers": inits,
        "tolerations": [{"key": f"k{each}"} for each in range(tolerations)],
        "nodeSelector": {f"k{each}": "v" for each in range(selector)},
        "volumes": [{"name": f"v{each}", "ephemeral": {}} for each in range(volumes)],
    }
    text = json.dumps({"metadata": {"name": "a", "uid": "u"}, "spec": spec}).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pods, "cut", lambda pod: pod)
        whole = PODS.one(text)
    assert PODS.one(text) == cut(whole), "so what is within the limits is read as it was"

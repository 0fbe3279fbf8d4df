"""What a node knows of its pods after any history is what it knows of the pods that are left (F6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.kubernetes import Container, HostPort, Pod
from scheduler.place.fit import NodeInfo, needs
from tests.builders import pod

ADDRESSES = ("", "10.0.0.1", "10.0.0.2")
amounts = st.dictionaries(st.sampled_from(("cpu", "memory", "ephemeral-storage")), st.integers(0, 3))
containers = st.lists(amounts.map(lambda each: Container("c", requests=each)), max_size=2).map(tuple)
ports = st.lists(
    st.builds(HostPort, st.sampled_from((80, 81)), st.sampled_from(("TCP", "UDP")), st.sampled_from(ADDRESSES)),
    max_size=2,
).map(tuple)


@st.composite
def histories(draw: st.DrawFn) -> list[Pod | str]:
    """Pods that come or are resized, and UIDs of pods that leave.  The ports of a pod never change."""
    held = [draw(ports) for _ in range(3)]
    found: list[Pod | str] = []
    for _ in range(draw(st.integers(0, 12))):
        number = draw(st.integers(0, 2))
        one = pod(
            f"p{number}",
            containers=draw(containers),
            init_containers=draw(containers),
            pod_requests=draw(amounts),
            overhead=draw(amounts),
            host_ports=held[number],
        )
        found.append(draw(st.sampled_from((one, one, replace(one, deleting_at=50.0), one.uid))))
    return found


@given(histories(), ports, st.sampled_from(("uid-p0", "uid-p1")))
def test_sums_and_ports_after_any_history_are_those_of_the_pods_that_are_left(
    history: list[Pod | str], wanted: tuple[HostPort, ...], without: str
) -> None:
    info, there = NodeInfo(), dict[str, Pod]()
    for step in history:
        if isinstance(step, Pod):
            assert info.put(step) == there.get(step.uid)
            there[step.uid] = step
        else:
            assert info.remove(step) == there.pop(step, None)
    assert info.pods == there
    assert info.taken == sums(there)
    assert {uid: info.needed_by(uid) for uid in there} == {uid: needs(each) for uid, each in there.items()}
    assert {uid for uid in there if info.grace_ends(uid) is not None} == {
        uid for uid, each in there.items() if each.deleting_at is not None
    }
    listening = {each.uid for each in info.holding_ports(wanted)}
    assert listening == {
        uid for uid, each in there.items() if any(clash(a, b) for a in each.host_ports for b in wanted)
    }
    copy, left = info.without(without), {uid: each for uid, each in there.items() if uid != without}
    assert (copy.pods, copy.taken) == (left, sums(left))
    assert copy.grace_ends(without) is None


def sums(there: dict[str, Pod]) -> dict[str, int]:
    found = Counter[str]()
    for each in there.values():
        found.update(needs(each))
    return {resource: amount for resource, amount in found.items() if amount}


def clash(one: HostPort, other: HostPort) -> bool:
    """True if one node cannot hold both: an empty address means all addresses."""
    same = (one.port, one.protocol) == (other.port, other.protocol)
    return same and (one.address == other.address or "" in (one.address, other.address))

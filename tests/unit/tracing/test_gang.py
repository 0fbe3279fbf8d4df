"""The trace of a gang: what its pods have in common, and a span for each of them (O3)."""

from __future__ import annotations

from dataclasses import replace

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob
from scheduler.model.kubernetes import Pod, PodPhase, PodTimes
from scheduler.model.slurm import Grant, GrantedNode
from scheduler.model.trace_context import MOST_CALLERS, trace_of
from tests.builders import START, pod
from tests.traces import Backend, adds_up
from tests.unit.tracing.stories import Traced

T = START + 100
RING = {names.PREFIX + "gang": "ring"}
ONE = pod("one", created=T, labels=RING, says={"gang-size": "2"})
TWO = pod("two", created=T + 3, labels=RING, says={"gang-size": "2"})
GRANT = Grant(17, (GrantedNode("x1", 1, 100), GrantedNode("x2", 1, 100)))


def is_bound(story: Traced, *pods: Pod) -> dict[str, BindPod]:
    """Created, gathered, granted at once, bound one after the other."""
    for what in pods:
        story.now = what.created + 0.5
        story.sees(what)
        asked = story.acts(AllocateNow, what.created + 0.6)
    [allocate] = asked
    story.does(allocate, T + 5, took=0.2, job_id=17, grant=GRANT)
    binds = {bind.name: bind for bind in story.acts(BindPod, T + 5.1)}
    for number, bind in enumerate(binds.values()):
        story.does(bind, T + 5.2 + number / 10, took=0.1)
    return binds


def ends(story: Traced, what: Pod, node: str, at: float, *, runs_s: float) -> None:
    """The pod started at `at`, and ran so long."""
    keys = {**what.annotations, names.JOB_ID: "17"}
    running = replace(what, node=node, annotations=keys, phase=PodPhase.RUNNING, times=PodTimes(running=at))
    story.now = at + 1
    story.sees(running)
    story.now = at + runs_s
    over = replace(running, phase=PodPhase.SUCCEEDED, exit_code=0, times=PodTimes(running=at, ended=at + runs_s - 1))
    story.sees(over)


def test_a_gang_is_one_trace_with_a_span_for_each_member() -> None:
    backend = Backend()
    story = Traced(backend)
    binds = is_bound(story, ONE, TWO)
    for what, runs_s in ((ONE, 30.0), (TWO, 50.0)):
        ends(story, what, binds[what.name].node, T + 8, runs_s=runs_s)
    [cancel] = story.acts(CancelJob, T + 70)
    story.does(cancel, T + 71, took=0.5)
    story.stops(T + 90)

    root = backend.one("gang")
    assert root.attributes.items() >= {"slurm_bridge.gang.size": 2, "k8s.namespace.name": "hpc"}.items()
    assert {span.trace for span in backend.spans} == {root.trace}
    assert backend.orphans() == []
    common = [span for span in backend.below(root) if span.name not in ("pod", "release")]
    assert [(span.name, round(span.end - T, 3)) for span in common] == [
        ("create", 0.5),
        ("gather", 3.5),
        ("submit", 4.8),
        ("queue", 5.0),
    ]
    for name, ended in (("one", T + 38), ("two", T + 58)):
        member = backend.one("pod", k8s_pod_name=name)
        assert (member.parent, member.end) == (root.id, ended)
        own = backend.below(member)
        assert [span.name for span in own] == ["grant", "bind", "start", "run"]
    release = backend.one("release")
    assert adds_up([*common, *backend.below(backend.one("pod", k8s_pod_name="two")), release], root)


def test_members_that_name_different_callers_are_linked_to_all_of_them() -> None:
    backend = Backend()
    story = Traced(backend)
    first, second = f"00-{'a' * 32}-{'1' * 16}-01", f"00-{'b' * 32}-{'2' * 16}-01"
    pods = [
        replace(what, annotations={**what.annotations, names.TRACEPARENT: said})
        for what, said in ((ONE, second), (TWO, first))
    ]
    binds = is_bound(story, *pods)
    for what in pods:
        ends(story, what, binds[what.name].node, T + 8, runs_s=30)
    [cancel] = story.acts(CancelJob, T + 70)
    story.does(cancel, T + 71)
    story.stops(T + 90)
    root = backend.one("gang")
    assert (root.trace, root.parent, root.links) == ("a" * 32, "1" * 16, ("b" * 32,))
    assert {span.trace for span in backend.spans} == {"a" * 32}


def test_a_gang_that_is_deleted_while_it_gathers_keeps_the_trace_of_its_first_caller() -> None:
    """Its pods are not read again for each pod that goes: that would grow with the square of what a tenant creates."""
    size = 150
    pods = [
        pod(f"w{number}", created=T, labels=RING, says={"gang-size": "200", "traceparent": caller(number)})
        for number in range(size)
    ]
    backend = Backend()
    story = Traced(backend)
    story.now = T + 1
    story.sees(*pods)
    for what in pods:
        story.loses(what, T + 2)
    story.polls(at=T + 3)
    story.stops(T + 4)
    assert {span.trace for span in backend.spans} == {"0" * 29 + "001"}
    assert sum(span.name == "pod" for span in backend.spans) == size


def test_of_many_callers_a_trace_is_linked_to_as_many_as_a_span_may_have() -> None:
    trace = trace_of(names.traceparent("c", "k"), map(caller, range(1000)))
    assert len(trace.others) == MOST_CALLERS - 1


def caller(number: int) -> str:
    return f"00-{number + 1:032x}-{number + 1:016x}-01"

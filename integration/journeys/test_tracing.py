"""One trace for each workload, of both clusters, as a backend gets it (O3): 200 pods, five gangs, and two restarts.

The bridge sends them to a real Collector with the configuration of manifests/tracing.  One process of the bridge is killed in
the middle of a burst, and another is stopped while pods run; the next process goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually
from integration.collector import collector
from integration.otlp import Receiver, receiver
from tests.traces import Span, adds_up, below, orphans

PODS, GANGS, MEMBERS = 200, 5, 4
POLLED_S = 5
LICENSED = 20  # pods that wait for licenses
ALL = PODS + GANGS * MEMBERS
STEPS = ("create", "submit", "queue", "grant", "bind", "start", "run", "release")


@pytest.fixture(scope="module")
def traces(bridge: BridgeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver to which a Collector sends what the bridge sends."""
    folder = tmp_path_factory.mktemp("collector")
    with receiver() as received, collector(folder, received.endpoint) as between:
        with bridge.with_environment(OTEL_EXPORTER_OTLP_ENDPOINT=between.endpoint):
            yield received
        assert between.spans() == len(received.sent) > 0


def test_each_workload_is_one_trace_whose_steps_add_up_also_across_restarts(
    kube: Kube, slurm: Slurm, bridge: BridgeProcess, traces: Receiver, space: Callable[[str], str]
) -> None:
    ns = space("alice")
    solver = slurm.submit("carol", name="solver", partition="low", licenses=f"matlab:{LICENSED}")
    eventually("it runs", lambda: "RUNNING" in slurm.job(solver)["job_state"])
    for number in range(LICENSED):
        kube.run(ns, f"licensed-{number}", cpu="100m", says={"licenses": "matlab:1"})
    eventually("they wait", lambda: kube.said(ns, "licensed-0").count("Licenses"))
    for number in range(PODS - LICENSED):
        kube.run(ns, f"at-once-{number}", cpu="100m")
    for gang in range(GANGS):
        for rank in range(MEMBERS - (gang == 0)):
            member(kube, ns, gang, rank)
    eventually("some are bound", lambda: len(kube.bound(ns)) > PODS / 4)
    bridge.kill()
    bridge.start()

    member(kube, ns, 0, MEMBERS - 1)
    eventually("it has read why each waits", lambda: waiting(bridge, "Licenses") == LICENSED)
    slurm.cancel(solver)
    eventually("all are bound", lambda: len(kube.bound(ns)) == ALL)
    pods = kube.pods(ns)
    wanted = {pod.metadata.annotations[PREFIX + "traceparent"].split("-")[1] for pod in pods}
    assert len(wanted) == PODS + GANGS
    jobs = {pod.metadata.annotations[PREFIX + "job-id"]: pod for pod in pods}
    for job_id in list(jobs)[:3]:
        assert (
            f"traceparent={jobs[job_id].metadata.annotations[PREFIX + 'traceparent']}"
            in slurm.job(int(job_id))["comment"]
        )
    for pod in pods[: ALL // 2]:
        kube.succeed(ns, pod.metadata.name)
    assert bridge.stop() == 0
    bridge.start()
    for pod in pods[ALL // 2 :]:
        kube.succeed(ns, pod.metadata.name)
    eventually("no job is left", lambda: not slurm.live(f"{ns}/"))
    eventually("each trace has its end", lambda: len(roots(traces, wanted)) == len(wanted))
    each_trace_is_whole(traces, wanted)


def waiting(bridge: BridgeProcess, reason: str) -> int:
    """The number of workloads that wait for that reason, as the bridge has read it of their jobs."""
    found = re.findall(
        rf'^slurm_bridge_waiting_workloads{{.*reason="{reason}".*}} (\d+)', bridge.ask("metrics")[1], re.MULTILINE
    )
    return sum(map(int, found))


def member(kube: Kube, ns: str, gang: int, rank: int) -> None:
    says, labels = {"gang-size": str(MEMBERS)}, {PREFIX + "gang": f"ring-{gang}"}
    kube.run(ns, f"ring-{gang}-{rank}", cpu="100m", says=says, labels=labels)


def roots(traces: Receiver, wanted: set[str]) -> list[Span]:
    return [span for span in traces.spans if span.trace in wanted and not span.parent]


def each_trace_is_whole(traces: Receiver, wanted: set[str]) -> None:
    """One root, no orphan, no gap; nothing lasts a negative time; no span has two ids."""
    by_trace: dict[str, list[Span]] = {each: [] for each in wanted}
    for span in traces.spans:
        by_trace.setdefault(span.trace, []).append(span)
    assert by_trace.keys() == wanted, "no span is in another trace"
    found = roots(traces, wanted)
    assert sorted(root.name for root in found) == ["gang"] * GANGS + ["workload"] * PODS
    for root in found:
        spans = by_trace[root.trace]
        shown = as_text(root, spans)
        assert orphans(spans) == [], shown
        assert min(each.took for each in spans) >= 0, shown
        assert any(adds_up(steps_of(root, each), root) for each in readings(traces, spans)), shown
        for start in (each for each in spans if each.name == "start"):
            sent = [(each, span) for each in readings(traces, spans) for span in each if span.id == start.id]
            assert any(adds_up(below(span, each), span) for each, span in sent), shown
    waited = [(span, queue_of(span, by_trace[span.trace])) for span in traces.spans if span.name == "Licenses"]
    assert len({span.trace for span, _ in waited}) == LICENSED
    for span, queue in waited:
        assert queue.start - 1 <= span.start, "the pod tells in whole seconds since when"
        # A queue that another process sends again ends when Slurm started the job, not with the poll that showed it.
        assert span.end <= queue.end + POLLED_S


def readings(traces: Receiver, spans: list[Span]) -> Iterator[list[Span]]:
    """The spans of a trace; and with the copies of one process in the place of those that another one sent again.

    kwok may write a pod's startTime twice, which no kubelet does: then both copies are right, each with what its process saw.
    And a process that did not see the bind knows its time in whole seconds only.
    """
    yield spans
    copies = [each for each in traces.sent if each.trace == spans[0].trace]
    for process in {each.process for each in copies}:
        own = {each.id: each for each in copies if each.process == process}
        yield [own.get(each.id, each) for each in spans]


def queue_of(span: Span, spans: list[Span]) -> Span:
    [queue] = [each for each in spans if each.id == span.parent]
    assert queue.name == "queue"
    return queue


def steps_of(root: Span, spans: list[Span]) -> list[Span]:
    """The spans below the root that are its whole: of a gang with those of the member that ended last."""
    direct = below(root, spans)
    members = [each for each in direct if each.name == "pod"]
    if root.name == "workload":
        assert [each.name for each in direct] == [*STEPS], as_text(root, spans)
        return direct
    assert len(members) == MEMBERS
    last = max(members, key=lambda each: each.end)
    common = [each for each in direct if each.name != "pod"]
    assert [each.name for each in common] == ["create", "gather", "submit", "queue", "release"]
    return [*common[:-1], *below(last, spans), common[-1]]


def as_text(root: Span, spans: list[Span]) -> str:
    """The spans of a trace, for people: when each began and ended, after the begin of the root, and which process sent it."""
    lines = (
        f"{each.name:12} {each.start - root.start:8.3f} {each.end - root.start:8.3f} {each.process[:4]}"
        for each in sorted(spans, key=lambda span: (span.start, span.end))
    )
    return "\n".join((f"trace {root.trace}: {root.attributes}", *lines))

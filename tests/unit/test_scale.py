"""The computed parts of docs/scale.md: costs, and which server is the limit first."""

from __future__ import annotations

import pytest

from integration.bench.figures import short
from integration.readme import ROOT
from integration.reference.page_scale import ENDS, SERVERS, filled, measured, polling

COSTS = {
    ("alone-4000", "bridge: CPU a pod"): 1.25,
    ("burst-4000", "bridge: CPU a pod"): 1.6,
    ("bound", "idle: a poll, for each job"): 80.3,
    ("bound", "slurmrestd: CPU"): 10.0,
    ("ends", f"{ENDS}bridge: CPU an end"): 2.0,
    **{("burst-4000", f"{server}: CPU a pod"): 2.0 for server in ("slurmctld", "slurmrestd", "etcd")},
    ("burst-4000", "kube-apiserver: CPU a pod"): 6.0,
    **{("ends", f"{ENDS}{server}: CPU an end"): 2.0 for server in ("slurmctld", "slurmrestd", "etcd")},
    ("ends", f"{ENDS}kube-apiserver: CPU an end"): 4.0,
}
PAGE = """\
<!-- generated: costs -->
<!-- end: costs -->
| first limit: new pods a second that one core of `kube-apiserver` carries | | | |
| second limit: the same for slurmrestd, beside the polls | | | |
<!-- generated: first limit -->
<!-- end: first limit -->
"""


def of(scenario: str, name: str) -> float:
    return COSTS[scenario, name]


def test_the_limits_follow_from_a_bind_and_an_end_and_from_the_polls() -> None:
    """kube-apiserver takes 10 ms for a new pod and slurmrestd 4 ms; polls take 1 %, 10 % and at most a third of a core."""
    rows = [line for line in filled(PAGE, of).splitlines() if "limit:" in line]
    assert [row.split(" | ")[1:] for row in rows] == [
        [
            "100: each pod replaced every 10 s",
            "100: each pod replaced every 100 s",
            "100: each pod replaced every 17 minutes |",
        ],
        [
            "248: each pod replaced every 4 s",
            "225: each pod replaced every 44 s",
            "167: each pod replaced every 10 minutes |",
        ],
    ]
    assert [polling(of, jobs) for jobs in (1_000, 10_000)] == [pytest.approx(0.01), pytest.approx(0.1)]
    assert polling(of, 100_000) == pytest.approx(1 / 3)


def test_the_costs_are_those_of_the_benchmark() -> None:
    page = " ".join(filled(PAGE, of).split())
    assert "1.25 ms of CPU time, so 800 pods a second of one core" in page
    assert "2, 2, 6 and 2 ms of CPU time" in page
    assert "it takes 6 ms for a bind, 3.0 times as much as the next server" in page
    assert "(800 binds a second) would keep 6.4 cores" in page


def test_the_servers_are_limits_in_the_order_that_the_document_states() -> None:
    of = measured()
    servers = ("kube-apiserver", "slurmrestd", "slurmctld")
    costs = [of("burst-4000", f"{each}: CPU a pod") + of("ends", f"{ENDS}{each}: CPU an end") for each in servers]
    assert costs == sorted(costs, reverse=True)


def test_the_shares_of_metrics_and_traces_follow_from_the_present_burst() -> None:
    """docs/monitoring.md and docs/tracing.md state them: they go out of date when the burst is measured again."""
    of, documents = measured(), ROOT / "docs"
    bridge = of("burst-4000", "bridge: CPU a pod")
    whole = bridge + sum(of("burst-4000", f"{each}: CPU a pod") for each in (*SERVERS, "bench"))
    metrics = of("alone-metered", "metrics: CPU a pod")
    traces = sum(of("alone-metered", f"traces: CPU a pod, {part}") for part in ("in the loop", "sending"))
    tracing, monitoring, performance = (
        " ".join((documents / name).read_text(encoding="utf-8").split())
        for name in ("tracing.md", "monitoring.md", "performance.md")
    )
    assert f"With the bridge it is {whole:.2f} ms" in performance
    assert f"all programs together take {whole:.2f} ms" in tracing
    assert f"the bridge takes {short(bridge)} ms" in tracing
    assert f"traces cost about {100 * traces / whole:.1f} %" in tracing
    assert f"this is about {100 * metrics / whole:.1f} % of the rate" in monitoring

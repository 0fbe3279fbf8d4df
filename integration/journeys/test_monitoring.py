"""Prometheus and the dashboards of manifests/monitoring, after a run whose numbers are known.

Twenty pods wait for licenses that another user has, for at least five seconds; then they run, on nodes that kwok plays.  A
real Prometheus scrapes the bridge.  Each query of each panel is asked; answers are compared with what the clusters say.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, condition, eventually, free_port
from integration.readme import ROOT
from integration.rigging import places

MONITORING = ROOT / "manifests" / "monitoring"
PODS, WAIT_S = 20, 5.0
LICENSED = [f"licensed-{number}" for number in range(PODS)]
EVERY_S = 1  # between two scrapes
WINDOW = "10m"  # longer than the run
CHOSEN = {
    "$__range": WINDOW,
    "$partition": ".*",
    "$qos": ".*",
    "$namespace": ".*",
    "$job": "slurm-bridge",
}  # as Grafana has them first
BIND = "slurm_bridge_create_to_bind_seconds"
Answer = dict[str, float]  # a series' label values, joined by spaces, to its value


class Prometheus:
    """A Prometheus that scrapes one bridge and has the rules of the manifests."""

    def __init__(self, folder: Path, target: int) -> None:
        self.port = free_port()
        rules = yaml.safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))["spec"]
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        scrape = {"job_name": "slurm-bridge", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        every = {"scrape_interval": f"{EVERY_S}s", "evaluation_interval": f"{EVERY_S}s"}
        settings = {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": [scrape]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        options = (
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--enable-feature=exemplar-storage",
        )
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen([places.program("prometheus"), *options], stdout=log, stderr=log)

    def get(self, path: str, **parameters: Any) -> Any:
        """The data of an answer.  Raises AssertionError if Prometheus refuses the request."""
        answer = requests.get(f"http://127.0.0.1:{self.port}/api/v1/{path}", params=parameters, timeout=30)
        assert answer.ok, f"{parameters}: {answer.text}"
        return answer.json()["data"]

    def ready(self) -> bool:
        """True if it has scraped the bridge."""
        assert self.process.poll() is None, "Prometheus ended"
        try:
            serves = requests.get(f"http://127.0.0.1:{self.port}/-/ready", timeout=30).ok
        except requests.ConnectionError:
            return False
        return serves and bool(self.ask('up{job="slurm-bridge"} == 1'))

    def ask(self, query: str) -> Answer:
        """The series of the answer, without those that are not a number."""
        series = self.get("query", query=query)["result"]
        values = {" ".join(each["metric"].values()): float(each["value"][1]) for each in series}
        return {labels: value for labels, value in values.items() if not math.isnan(value)}

    def drew(self, query: str, since: float) -> bool:
        """True if a diagram of that query from *since* to now has a point; NaN is none."""
        series = self.get("query_range", query=query, start=since, end=time.time(), step=EVERY_S)["result"]
        return any(not math.isnan(float(value)) for each in series for _, value in each["values"])

    def trace_ids(self, query: str, since: float) -> set[str]:
        """The trace ids of the exemplars of a metric."""
        found = self.get("query_exemplars", query=query, start=since, end=time.time() + 1)
        return {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}


def panels() -> dict[tuple[str, str], list[str]]:
    """The queries of each panel, by dashboard and title, as Grafana fills them in."""
    found = {}
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            queries = [target["expr"] for target in panel.get("targets", ())]
            filled = [query.replace("$__rate_interval", WINDOW) for query in queries]
            for variable, chosen in CHOSEN.items():
                filled = [query.replace(variable, chosen) for query in filled]
            found[path.stem, panel["title"]] = filled
    return {name: queries for name, queries in found.items() if queries}


@pytest.fixture(scope="module")
def prometheus(bridge: BridgeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path_factory.mktemp("prometheus"), bridge.port)
    try:
        eventually("Prometheus has scraped the bridge", made.ready)
        yield made
    finally:
        made.process.terminate()
        made.process.wait(30)


def waited_s(pod: Any) -> float:
    """From the creation of the pod to its bind, by the API server's times in whole seconds."""
    bound = condition(pod, "PodScheduled").last_transition_time
    seconds: float = (bound - pod.metadata.creation_timestamp).total_seconds()
    return seconds


class Shown:
    """The values that the panels show now."""

    def __init__(self, prometheus: Prometheus) -> None:
        self.prometheus = prometheus

    def answer(self, board: str, title: str, number: int = 0) -> Answer:
        """The answer to one query of a panel."""
        return self.prometheus.ask(panels()[board, title][number])

    def becomes(self, board: str, title: str, **expected: float) -> None:
        """Wait until these series of the panel have these values; an answer without labels is named `all`."""

        def there() -> bool:
            answer = self.answer(board, title)
            return {name: answer.get("" if name == "all" else name) for name in expected} == expected

        eventually(f"{board}, {title}: {expected}", there)


def test_each_panel_shows_the_known_values_of_a_run(
    kube: Kube, slurm: Slurm, prometheus: Prometheus, space: Callable[[str], str]
) -> None:
    began, ns, shown = time.time(), space("alice"), Shown(prometheus)
    two_are_bound_at_once(kube, prometheus, ns)
    solver = twenty_wait_for_licenses(kube, slurm, shown, ns)
    slurm.cancel(solver)
    eventually("all are bound", lambda: len(kube.bound(ns)) == PODS + 2)
    pods = [kube.pod(ns, name) for name in LICENSED]
    all_run(shown)
    the_waits_are_those_that_the_api_server_saw(shown, pods)
    exemplars_lead_to_the_traces(prometheus, pods, began)
    both_clusters_have_these_nodes(kube, slurm, shown)
    nothing_went_wrong(shown)
    the_pods_end_and_their_jobs_with_them(kube, shown, ns)
    empty = [
        (*name, query) for name, queries in panels().items() for query in queries if not prometheus.drew(query, began)
    ]
    assert empty == [], "each panel has something to show of this run"


def two_are_bound_at_once(kube: Kube, prometheus: Prometheus, ns: str) -> None:
    """With a scrape between them: a series must be there before it can increase."""
    for number in (1, 2):
        kube.run(ns, f"at-once-{number}", says={"partition": "gpu"})
        counted = f'{BIND}_count{{partition="gpu", outcome="immediate"}} == {number}'
        eventually(f"Prometheus has {number} immediate binds", lambda query=counted: prometheus.ask(query))  # type: ignore[misc]


def twenty_wait_for_licenses(kube: Kube, slurm: Slurm, shown: Shown, ns: str) -> int:
    """For five seconds, while the job that is returned has all licenses; one more pod is deleted meanwhile."""
    solver = slurm.submit("carol", name="solver", partition="low", licenses=f"matlab:{PODS}")
    eventually("it runs", lambda: "RUNNING" in slurm.job(solver)["job_state"])
    for name in (*LICENSED, "given-up"):
        kube.run(ns, name, says={"licenses": "matlab:1"})
    shown.becomes("allocation-latency", "Waiting by reason", Licenses=PODS + 1)
    all_wait = time.monotonic()
    kube.core.delete_namespaced_pod("given-up", ns)
    shown.becomes("allocation-latency", "Waiting by partition", main=PODS)
    shown.becomes("clusters", "Waiting", all=PODS)
    shown.becomes("clusters", "Workloads by phase", queued=PODS, bound=2)
    shown.becomes("clusters", "Pods by state", waiting=PODS, running=2)
    shown.becomes("clusters", "Jobs by state", pending=PODS, running=2)
    eventually("they have waited for five seconds", lambda: time.monotonic() >= all_wait + WAIT_S)
    return solver


def all_run(shown: Shown) -> None:
    """Nothing waits, and each pod has the CPU that its job holds."""
    shown.becomes("clusters", "Bound", all=PODS + 2)
    shown.becomes("clusters", "Waiting", all=0)
    shown.becomes("clusters", "Pods by state", running=PODS + 2)
    shown.becomes("clusters", "Jobs held", all=PODS + 2)
    shown.becomes("clusters", "Oldest grant with an unbound pod", all=0)
    held, bound = (shown.answer("clusters", "CPUs held and requested", number) for number in (0, 1))
    assert held == bound == {"": PODS + 2}


def the_waits_are_those_that_the_api_server_saw(shown: Shown, pods: list[Any]) -> None:
    """Twenty pods waited for so long, and in Slurm's queue for most of it."""
    truth = sum(map(waited_s, pods)) / PODS
    assert truth >= WAIT_S - 1
    mean = shown.answer("allocation-latency", "Mean by outcome")
    assert mean["queued"] == pytest.approx(truth, abs=1.5), "the API server's times are whole seconds"
    assert mean["immediate"] < 2
    by_partition = shown.answer("allocation-latency", "Mean by partition")
    assert by_partition["main"] == pytest.approx(mean["queued"], rel=1e-6)
    submitted, granted, bound, _ = (shown.answer("allocation-latency", "Mean of each step", n)[""] for n in range(4))
    of_all = shown.prometheus.ask(f"sum(rate({BIND}_sum[{WINDOW}])) / sum(rate({BIND}_count[{WINDOW}]))")[""]
    assert submitted + granted + bound == pytest.approx(of_all, abs=0.2), "the steps are the whole"
    assert granted > submitted + bound, "Slurm's queue took longest"
    assert shown.prometheus.ask(f"sum by (outcome) ({BIND}_count)") == {"immediate": 2, "queued": PODS}
    buckets = shown.answer("allocation-latency", "Created → bound, distribution")
    bound_a_second = sum(shown.answer("allocation-latency", "Pods bound a second").values())
    assert buckets["+Inf"] == max(buckets.values()) == pytest.approx(bound_a_second, rel=0.05)
    assert buckets["2.0"] < buckets["+Inf"], "the twenty waited longer"
    assert shown.answer("allocation-latency", "Bound within 2 s of the grant")[""] > 0.9
    shares = shown.answer("allocation-latency", "Share of the waiting time by reason")
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=lambda reason: shares[reason]) == "Licenses"
    assert [*shown.prometheus.ask("slurm_bridge_create_to_deletion_seconds_count").values()] == [1]


def exemplars_lead_to_the_traces(prometheus: Prometheus, pods: list[Any], began: float) -> None:
    """The points in the diagrams are traces of these pods."""
    traces = {pod.metadata.annotations[PREFIX + "traceparent"].split("-")[1] for pod in pods}
    found = prometheus.trace_ids(f'{BIND}_bucket{{outcome="queued"}}', began)
    assert found
    assert found <= traces


def both_clusters_have_these_nodes(kube: Kube, slurm: Slurm, shown: Shown) -> None:
    """And one bridge acts, to which both sides answer."""
    assert sum(shown.answer("clusters", "Kubernetes' nodes by state").values()) == len(kube.core.list_node().items)
    assert sum(shown.answer("clusters", "Slurm's nodes by state").values()) == len(slurm.nodes())
    assert shown.answer("bridge", "Leaders") == {"": 1}
    assert shown.answer("bridge", "Sides lost") == {"": 0}
    assert shown.answer("bridge", "Replicas") == {"": 1}
    [memory] = shown.answer("bridge", "Memory").values()
    assert 20e6 < memory < 2e9


def nothing_went_wrong(shown: Shown) -> None:
    """What counts trouble shows none."""
    for board, title in (
        ("clusters", "Granted"),
        ("clusters", "Orphaned"),
        ("clusters", "Bypassing pods"),
        ("clusters", "Released grants"),
        ("clusters", "Conditions on bound pods"),
        ("bridge", "In quarantine"),
        ("bridge", "Namespaces without rights"),
        ("bridge", "Errors of slurm-bridge itself"),
        ("bridge", "Accounting"),
    ):
        answer = shown.answer(board, title)
        assert answer, title
        assert set(answer.values()) == {0}, title
    [age_s] = shown.answer("bridge", "Age of the last list of Slurm's jobs").values()
    assert age_s < 60
    [left_s] = shown.answer("bridge", "Token expires in").values()
    assert left_s > 0


def the_pods_end_and_their_jobs_with_them(kube: Kube, shown: Shown, ns: str) -> None:
    """The twenty pods, and the pod that was deleted while it waited."""
    for name in LICENSED:
        kube.succeed(ns, name)
    ended = f'slurm_bridge_jobs_ended_total{{state="cancelled"}} == {PODS + 1}'
    eventually("the end of each job is counted", lambda: shown.prometheus.ask(ended))
    shown.becomes("clusters", "Bound", all=2)
    increase = shown.answer("clusters", "Jobs that ended, by Slurm's state")["cancelled"]
    assert increase == pytest.approx(PODS + 1, rel=0.1), "Prometheus extrapolates"


def test_no_alert_fires_in_an_ordinary_run(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []

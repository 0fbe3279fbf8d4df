"""What Prometheus and the dashboards of manifests/monitoring show of a run whose numbers are known.

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
EVERY_S = 1  # between two scrapes
WINDOW = "10m"  # longer than the run
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
            return bool(self.ask('up{job="slurm-bridge"} == 1'))
        except requests.ConnectionError:
            return False

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
            found[path.stem, panel["title"]] = [
                query.replace("$partition", ".*").replace("$qos", ".*") for query in filled
            ]
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


def test_each_panel_shows_the_known_values_of_a_run(
    kube: Kube, slurm: Slurm, prometheus: Prometheus, space: Callable[[str], str]
) -> None:
    began, ns = time.time(), space("alice")

    def panel(board: str, title: str, number: int = 0) -> Answer:
        return prometheus.ask(panels()[board, title][number])

    def shows(board: str, title: str, expected: Callable[[Answer], object]) -> None:
        eventually(f"{board}, {title}", lambda: expected(panel(board, title)))

    # Two pods that are bound at once, with a scrape between them: a series must be there before it can increase.
    for number in (1, 2):
        kube.run(ns, f"at-once-{number}", says={"partition": "gpu"})
        counted = f'{BIND}_count{{partition="gpu", outcome="immediate"}} == {number}'
        eventually(f"Prometheus has {number} immediate binds", lambda query=counted: prometheus.ask(query))  # type: ignore[misc]

    # All licenses are taken, and twenty pods wait for one each.
    solver = slurm.submit("carol", name="solver", partition="low", licenses=f"matlab:{PODS}")
    eventually("it runs", lambda: "RUNNING" in slurm.job(solver)["job_state"])
    names = [f"licensed-{number}" for number in range(PODS)]
    for name in names:
        kube.run(ns, name, says={"licenses": "matlab:1"})
    kube.run(ns, "given-up", says={"licenses": "matlab:1"})
    shows("allocation-latency", "Waiting by reason", lambda answer: answer.get("Licenses") == PODS + 1)
    all_wait = time.monotonic()
    kube.core.delete_namespaced_pod("given-up", ns)
    shows("allocation-latency", "Waiting by partition", lambda answer: answer.get("main") == PODS)
    shows("clusters", "Waiting", lambda answer: answer == {"": PODS})
    shows("clusters", "Workloads by phase", lambda answer: (answer["queued"], answer["bound"]) == (PODS, 2))
    shows("clusters", "Pods by state", lambda answer: (answer["waiting"], answer["running"]) == (PODS, 2))
    shows("clusters", "Jobs by state", lambda answer: (answer["pending"], answer["running"]) == (PODS, 2))
    eventually("they have waited for five seconds", lambda: time.monotonic() >= all_wait + WAIT_S)

    # The licenses are free, and all run.
    slurm.cancel(solver)
    eventually("all are bound", lambda: len(kube.bound(ns)) == PODS + 2)
    pods = [kube.pod(ns, name) for name in names]
    shows("clusters", "Bound", lambda answer: answer == {"": PODS + 2})
    shows("clusters", "Waiting", lambda answer: answer == {"": 0})
    shows("clusters", "Pods by state", lambda answer: answer["running"] == PODS + 2)
    shows("clusters", "Jobs held", lambda answer: answer == {"": PODS + 2})
    assert panel("clusters", "CPUs held and requested", 0) == {"": PODS + 2}
    assert panel("clusters", "CPUs held and requested", 1) == {"": PODS + 2}
    shows("clusters", "Oldest grant with an unbound pod", lambda answer: answer == {"": 0})

    # Twenty pods waited for so long, by the API server and by the panels.
    truth = sum(map(waited_s, pods)) / PODS
    assert truth >= WAIT_S - 1
    queued = panel("allocation-latency", "Mean by outcome")
    assert queued["queued"] == pytest.approx(truth, abs=1.5), "the API server's times are whole seconds"
    assert queued["immediate"] < 2
    assert panel("allocation-latency", "Mean by partition")["main"] == pytest.approx(queued["queued"], rel=1e-6)
    steps = [panel("allocation-latency", "Mean of each step", number)[""] for number in range(4)]
    everything = [
        panel("allocation-latency", title, 0)[""]
        for title in ("Created → submitted", "Submitted → granted", "Granted → bound")
    ]
    assert all(part >= 0 for part in everything)
    overall = prometheus.ask(f"sum(rate({BIND}_sum[{WINDOW}])) / sum(rate({BIND}_count[{WINDOW}]))")[""]
    assert sum(steps[:3]) == pytest.approx(overall, abs=0.2), "the steps are the whole"
    assert steps[1] == max(steps), "Slurm's queue took longest"
    counts = prometheus.ask(f"sum by (outcome) ({BIND}_count)")
    assert counts == {"immediate": 2, "queued": PODS}

    # The points in the diagrams lead to the traces of these pods.
    traces = {pod.metadata.annotations[PREFIX + "traceparent"].split("-")[1] for pod in pods}
    found = prometheus.trace_ids(f'{BIND}_bucket{{outcome="queued"}}', began)
    assert found
    assert found <= traces

    # Both clusters have the nodes that the panels show.
    kube_nodes, slurm_nodes = len(kube.core.list_node().items), len(slurm.nodes())
    assert sum(panel("clusters", "Kubernetes' nodes by state").values()) == kube_nodes
    assert sum(panel("clusters", "Slurm's nodes by state").values()) == slurm_nodes
    assert panel("bridge", "Leaders") == {"": 1}
    assert panel("bridge", "Sides lost") == {"": 0}
    [memory] = panel("bridge", "Memory").values()
    assert 20e6 < memory < 2e9

    # The pods end, and their jobs with them.
    for pod in pods:
        kube.succeed(ns, pod.metadata.name)
    ended = f'slurm_bridge_jobs_ended_total{{state="cancelled"}} == {PODS + 1}'
    eventually("the end of each job is counted", lambda: prometheus.ask(ended))
    shows(
        "clusters",
        "Jobs that ended, by Slurm's state",
        lambda answer: answer["cancelled"] == pytest.approx(PODS + 1, rel=0.1),
    )
    shows("clusters", "Bound", lambda answer: answer == {"": 2})
    empty = [
        (*name, query) for name, queries in panels().items() for query in queries if not prometheus.drew(query, began)
    ]
    assert empty == [], "each panel has something to show of this run"


def test_no_alert_fires_in_an_ordinary_run(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []

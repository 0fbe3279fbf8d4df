"""`podman-compose up` on docker-compose.yml: pods are bound, counted and traced; `down`, and nothing is left.

The images are stand-ins of the same names (integration/rigging/compose_images.py), and podman-compose stands in for
`docker compose` in README's commands.  kubectl runs outside of the containers, as a person's does, by the kubeconfig and the
ports that the stack publishes.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import yaml

from integration import readme
from integration.clusters import eventually
from integration.compose.stack import PODMAN, Stack, namespaces
from integration.rigging import compose_images, places

UP, URLS, DOWN = (shlex.split(line)[2:] for line in readme.lines_for(__file__))  # what follows `docker compose`
PODS, GANG = 50, 4
SPACE = "team-b"
COLOURS = re.compile(r"\x1b\[[\d;]*m")  # podman-compose prints them to a pipe, too
BIND = "slurm_bridge_create_to_bind_seconds"
KUBECONFIG = ("exec", "-T", "load", "cat", "/admin/kubeconfig-outside")  # as compose/urls.py says
SERVICES = compose_images.services()
RUNS_ON = {name for name, service in SERVICES.items() if "healthcheck" in service and "profiles" not in service}


class Seen:
    """The stack as a person outside of its containers sees it."""

    def __init__(self, stack: Stack, kubeconfig: Path) -> None:
        self.stack = stack
        self._kubectl = [str(places.kubectl()), f"--kubeconfig={kubeconfig}"]

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """The output of kubectl."""
        return self.stack.run(*self._kubectl, *arguments, text=text).stdout

    def squeue(self, *options: str) -> list[str]:
        """Slurm's jobs, a line each."""
        return self.stack.podman("exec", "slurm-bridge_slurmctld_1", "squeue", "--noheader", *options).splitlines()

    def pods(self, *selection: str) -> list[dict[str, Any]]:
        """Pods as the API server has them."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-o", "json", *selection))["items"]
        return found

    def get(self, port: int, path: str) -> str:
        """The body of a page under a published port."""
        return self.stack.run("curl", "-sSf", "--max-time", "30", f"http://127.0.0.1:{port}{path}").stdout

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Prometheus' answer to a query: the labels and the value of each series."""
        answer = json.loads(self.get(9090, f"/api/v1/query?query={quote(expression, safe='')}"))
        return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]

    def bound(self) -> float:
        """The number of binds whose latency Prometheus has."""
        return sum(value for _, value in self.query(f"{BIND}_count"))

    def bound_now(self) -> float:
        """The number of binds in the bridge's own metrics."""
        counts = re.findall(rf"^{BIND}_count\{{.*\}} (\S+)$", self.get(8080, "/metrics"), re.MULTILINE)
        return sum(map(float, counts))

    def trace(self, trace_id: str) -> list[dict[str, Any]]:
        """The spans of one trace, as Jaeger has them; [] while it has none."""
        done = self.stack.run("curl", "-s", "--max-time", "30", f"http://127.0.0.1:16686/api/traces/{trace_id}")
        data = json.loads(done.stdout).get("data") or []
        return [span for trace in data for span in trace["spans"]]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with namespaces() as made:
        try:
            made.compose(*UP)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(f"{error}\n{logs(made)}") from None
        yield made


@pytest.fixture(scope="module")
def seen(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    kubeconfig = tmp_path_factory.mktemp("outside") / "kubeconfig"
    kubeconfig.write_text(stack.compose(*KUBECONFIG))
    kubeconfig.chmod(0o600)
    return Seen(stack, kubeconfig)


@dataclass(frozen=True, slots=True)
class Created:
    """The pods of a test, bound, while the load rests; bound_before: how many pods the bridge had bound then."""

    pods: list[dict[str, Any]]
    bound_before: float


@pytest.fixture(scope="module")
def created(stack: Stack, seen: Seen) -> Created:
    stack.compose("stop", "load")
    seen.kubectl("delete", "pods", "-A", "-l", "compose/load", "--wait=true")
    before = seen.bound_now()  # no pod is left that could be bound meanwhile
    seen.kubectl("create", "-f", "-", text=manifest())

    def placed() -> list[dict[str, Any]]:
        pods = seen.pods("-n", SPACE, "-l", "by=test")
        return pods if len(pods) == PODS + GANG and all(pod["spec"].get("nodeName") for pod in pods) else []

    return Created(eventually("all are bound", placed), before)


def logs(stack: Stack) -> str:
    """The state of each container, and the last lines of its log."""
    output = [stack.podman("ps", "-a", "--format", "{{.Names}} {{.Status}}")]
    for name in stack.podman("ps", "-a", "--format", "{{.Names}}").split():
        done = stack.run(PODMAN, "logs", "--tail=15", name, check=False)
        output.append(f"--- {name}\n{done.stdout}{done.stderr}")
    return "\n".join(output)


def test_up_ends_when_everything_is_healthy_and_the_urls_that_it_prints_answer(stack: Stack, seen: Seen) -> None:
    lines = stack.podman("ps", "-a", "--format", "{{.Names}} {{.Status}}").splitlines()
    states = {name: state for name, _, state in (line.partition(" ") for line in lines)}
    assert states.keys() == {f"slurm-bridge_{name}_1" for name in SERVICES if "profiles" not in SERVICES[name]}
    for name in RUNS_ON:
        assert re.fullmatch(r"Up .* \(healthy\)", states[f"slurm-bridge_{name}_1"].strip()), states
    output = eventually("the URLs are printed", lambda: COLOURS.sub("", stack.compose(*URLS)))
    urls = re.findall(r"http://127\.0\.0\.1:(\d+)(/\S*)?", output)
    assert len(urls) == 4
    for port, path in urls:
        if port != "3000":  # Grafana: no image of it can be had here
            # Stand-ins have no pages for a browser; what they answer shows that this is their port.
            stack.run("curl", "-sS", "--max-time", "30", "-o", "/dev/null", f"http://127.0.0.1:{port}{path}")
            for [query] in (query for name, query in parse_qs(urlsplit(path).query).items() if name.endswith(".expr")):
                eventually(f"the graph has values: {query}", partial(values, seen, query))
    assert seen.get(8080, "/readyz").startswith("ok")
    assert "squeue" in output
    assert "JOBID" in stack.compose("exec", "-T", "slurmctld", "squeue")


def test_its_load_comes_and_goes(seen: Seen) -> None:
    kinds: Counter[str] = Counter()
    first = eventually(
        "the load has pods", lambda: {pod["metadata"]["name"] for pod in seen.pods("-A", "-l", "compose/load")}
    )

    def both_kinds_ran() -> bool:
        for pod in seen.pods("-A", "-l", "compose/load"):
            if pod["status"]["phase"] in ("Running", "Succeeded"):
                kinds[pod["metadata"]["labels"]["compose/load"]] += 1
        return kinds.keys() == {"pod", "gang"}

    eventually("pods and gangs of the load run", both_kinds_ran)
    eventually("one of the first is gone", lambda: first - {pod["metadata"]["name"] for pod in seen.pods("-A")})


def test_pods_are_bound_and_prometheus_has_their_latencies_and_jaeger_their_traces(
    seen: Seen, created: Created
) -> None:
    pods = created.pods
    gang = [pod for pod in pods if "slurm-bridge/gang" in pod["metadata"]["labels"]]
    alone = [pod for pod in pods if pod not in gang]
    nodes = {node["metadata"]["name"] for node in json.loads(seen.kubectl("get", "nodes", "-o", "json"))["items"]}
    assert {pod["spec"]["nodeName"] for pod in pods} <= nodes
    assert {pod["spec"]["nodeName"][0] for pod in gang} == {"g"}, "the nodes with GPUs"
    assert len({own(pod, "job-id") for pod in gang}) == 1
    assert len({own(pod, "job-id") for pod in pods}) == PODS + 1
    assert set(seen.squeue("--format=%i %u %T")) == {
        f"{job} bob RUNNING" for job in {own(pod, "job-id") for pod in pods}
    }

    eventually("Prometheus has their latencies", lambda: seen.bound() == created.bound_before + PODS + GANG)
    traces = {own(pod, "traceparent").split("-")[1] for pod in pods}
    assert len(traces) == PODS + 1, "one trace a workload"
    assert len({own(pod, "traceparent") for pod in gang}) == 1
    steps = {"submit", "queue", "bind"}
    eventually("Jaeger has their traces", lambda: all(steps <= names(seen.trace(each)) for each in sorted(traces)))
    [shared] = {own(pod, "traceparent").split("-")[1] for pod in gang}
    bound = [span for span in seen.trace(shared) if span["operationName"] == "bind"]
    assert len(bound) == GANG
    assert len(alone) == PODS


def test_pods_run_and_kubectl_shows_them_as_ready(seen: Seen, created: Created) -> None:
    def shown() -> list[str]:
        return seen.kubectl("get", "pods", "-n", SPACE, "-l", "by=test", "--no-headers").splitlines()

    eventually(
        "all are ready", lambda: [line.split()[1:3] for line in shown()] == [["1/1", "Running"]] * len(created.pods)
    )


def test_an_image_that_is_there_is_not_built_again() -> None:
    log = places.cache() / "log" / "compose.log"
    before = log.stat().st_size
    compose_images.make()
    assert log.stat().st_size == before


def test_prometheus_knows_the_alarms_of_the_manifests(seen: Seen) -> None:
    groups = json.loads(seen.get(9090, "/api/v1/rules"))["data"]["groups"]
    given = yaml.safe_load((compose_images.ROOT / "manifests/monitoring/rules.yaml").read_text(encoding="utf-8"))
    known = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert known.keys() == {rule["alert"] for group in given["spec"]["groups"] for rule in group["rules"]}
    eventually("all were evaluated", lambda: {rule["health"] for rule in evaluated(seen)} == {"ok"})


def test_ended_pods_end_their_jobs_and_their_traces(seen: Seen, created: Created) -> None:
    traces = {own(pod, "traceparent").split("-")[1] for pod in created.pods}
    seen.kubectl("delete", "pods", "-n", SPACE, "-l", "by=test", "--wait=true")
    eventually("no job is left", lambda: not seen.squeue())
    eventually(
        "each trace has its end",
        lambda: all({"release"} <= names(seen.trace(each)) for each in sorted(traces)),
    )


def test_down_leaves_nothing(stack: Stack) -> None:
    stack.compose(*DOWN)
    assert stack.podman("ps", "-a", "-q") == ""
    assert stack.podman("volume", "ls", "-q") == ""
    assert "slurm-bridge" not in stack.podman("network", "ls", "--format", "{{.Name}}")


def own(pod: dict[str, Any], key: str) -> str:
    """The value of an annotation that the bridge wrote on the pod."""
    value: str = pod["metadata"]["annotations"][f"slurm-bridge/{key}"]
    return value


def values(seen: Seen, query: str) -> list[float]:
    """The values of Prometheus' answer without NaN, which is the quantile of an empty histogram."""
    return [value for _, value in seen.query(query) if not math.isnan(value)]


def names(spans: list[dict[str, Any]]) -> set[str]:
    return {span["operationName"] for span in spans}


def evaluated(seen: Seen) -> list[dict[str, Any]]:
    return [rule for group in json.loads(seen.get(9090, "/api/v1/rules"))["data"]["groups"] for rule in group["rules"]]


def manifest() -> str:
    """50 pods, and a gang of four with GPUs."""

    def pod(name: str, labels: dict[str, str], keys: dict[str, str], amounts: dict[str, str]) -> dict[str, Any]:
        annotations = {f"slurm-bridge/{key}": value for key, value in keys.items()}
        meta = {"name": name, "namespace": SPACE, "labels": {"by": "test", **labels}, "annotations": annotations}
        container = {"name": "main", "image": "example", "resources": {"requests": amounts, "limits": amounts}}
        spec = {"schedulerName": "slurm-bridge", "restartPolicy": "Never", "containers": [container]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    small, large = {"cpu": "1", "memory": "1Gi"}, {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8"}
    gang = {"partition": "gpu", "gang-size": str(GANG)}
    pods = [pod(f"one-{i}", {}, {}, small) for i in range(PODS)]
    pods += [pod(f"together-{i}", {"slurm-bridge/gang": "together"}, gang, large) for i in range(GANG)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})

"""The webhook as it ships: manifests/webhook, applied by the lines of docs/install.md, in two pods on a real kubelet.

It runs from the built image under its own service account, makes its own certificate, and the API server calls it by its
Service.  One thing differs from a cluster in production: nothing here forwards a Service's address (there is no kube-proxy),
so the API server looks up the Service's endpoints itself (--enable-aggregator-routing) and calls a pod's own address.  What
stands for the registry, the URL and the scheduler of the bridge's own pods: test_installed.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from integration.clusters import PREFIX, Kube, Slurm, eventually, pod
from integration.documents import lines
from integration.journeys.test_installed import INSTALLING, ON_THE_KUBELET, OWN, SPACE, all_namespaces
from integration.journeys.test_installed import terminal as terminal
from integration.journeys.test_webhook import CONFIGURATION, DEFAULT, NAME, OURS, SECRET, merge, read
from integration.readme import Terminal

pytestmark = pytest.mark.usefixtures("no_bridge")
BEFORE_1_36 = lines("install.md", "Kubernetes before 1.36")
[NONE, NO_CERTIFICATE, TWO] = lines("security.md", "The webhook")
READY = BEFORE_1_36[-1]
OTHER = "installed-other"
EXPIRY = "slurm_bridge_webhook_certificate_expiry_timestamp_seconds"


@pytest.fixture(scope="module")
def webhook(terminal: Terminal, kube: Kube) -> Iterator[None]:
    """An admin has typed every line, with manifests/webhook in the place of manifests/minimal."""
    eventually("what an earlier journey left is gone", lambda: not {OWN, SPACE} & all_namespaces(kube))
    minimal = next(number for number, line in enumerate(INSTALLING) if line == "kubectl apply -k manifests/minimal")
    for line in (*INSTALLING[:minimal], *BEFORE_1_36, *INSTALLING[minimal + 1 :]):
        terminal.types(line)
    kube.namespace(OTHER, managed=False)
    yield
    kube.remove(OTHER)
    files = [f"-f manifests/webhook/{name}.yaml" for name in ("configuration", "deployment", "rbac", "own-account")]
    terminal.types(f"kubectl delete --ignore-not-found {' '.join(files)}")


def ask(kube: Kube, namespace: str) -> tuple[int, str]:
    """Create a pod that names no scheduler, in a dry run: 201 and its scheduler, or another status and why."""
    made = pod("new")
    for field in ("schedulerName", "tolerations"):  # outside managed namespaces a policy refuses these tolerations
        del made["spec"][field]
    status, text = kube.raw("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", json.dumps(made).encode())
    answer = json.loads(text)
    return status, answer["spec"]["schedulerName"] if status == 201 else answer["message"]


def replicas(kube: Kube) -> dict[str, str]:
    """The address of each pod of the webhook that is ready and not on its way out, by name."""
    selector = f"app.kubernetes.io/name={NAME}"
    return {
        each.metadata.name: each.status.pod_ip
        for each in kube.core.list_namespaced_pod(OWN, label_selector=selector).items
        if not each.metadata.deletion_timestamp
        and any(said.type == "Ready" and said.status == "True" for said in each.status.conditions or ())
    }


def metrics(kube: Kube, name: str) -> dict[str, float]:
    """The metrics of one replica, by series."""
    status, text = kube.raw("GET", f"/api/v1/namespaces/{OWN}/pods/https:{name}:8443/proxy/metrics")
    assert status == 200, text
    lines = [line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}


@pytest.mark.usefixtures("webhook")
def test_pods_of_managed_namespaces_get_the_scheduler_and_run(kube: Kube, slurm: Slurm) -> None:
    assert ask(kube, SPACE) == (201, OURS)
    assert ask(kube, OTHER) == (201, DEFAULT)
    kube.core.create_namespaced_pod(
        SPACE, pod("hello", on="", scheduler=DEFAULT, spec=ON_THE_KUBELET, command="exec sleep 600")
    )
    eventually("it runs", lambda: kube.pod(SPACE, "hello").status.phase == "Running")
    hello = kube.pod(SPACE, "hello")
    assert hello.spec.scheduler_name == OURS
    assert slurm.job(int(hello.metadata.annotations[PREFIX + "job-id"]))["user_name"] == "alice"
    kube.core.delete_namespaced_pod("hello", SPACE)


@pytest.mark.usefixtures("webhook")
def test_both_replicas_show_the_certificate_that_they_made_and_the_api_server_trusts(kube: Kube) -> None:
    kept = {key: base64.b64decode(value) for key, value in read(kube, SECRET)["data"].items()}
    shown = {ssl.get_server_certificate((address, 8443)).strip() for address in replicas(kube).values()}
    assert shown == {kept["tls.crt"].decode().strip()}
    [entry] = read(kube, CONFIGURATION)["webhooks"]
    assert base64.b64decode(entry["clientConfig"]["caBundle"]) == kept["ca.crt"]
    assert entry["clientConfig"]["service"]["name"] == NAME, "it is called by its Service"


@pytest.mark.usefixtures("webhook")
def test_what_it_decides_is_counted(kube: Kube) -> None:
    names = list(replicas(kube))
    assert len(names) == 2

    def intercepted() -> float:
        return sum(metrics(kube, name)['slurm_bridge_webhook_reviews_total{outcome="intercepted"}'] for name in names)

    before = intercepted()
    for _ in range(5):
        assert ask(kube, SPACE) == (201, OURS)
        assert ask(kube, OTHER) == (201, DEFAULT)
    assert intercepted() == before + 5, "nobody asks about other namespaces"
    ends = {metrics(kube, name)[EXPIRY] for name in names}
    assert len(ends) == 1, "both use one certificate"


@pytest.mark.usefixtures("webhook")
def test_one_replica_ends_and_no_pod_is_missed(kube: Kube, terminal: Terminal) -> None:
    gone, stays = replicas(kube)
    terminal.types(f"kubectl --namespace={OWN} delete pod {gone} --wait=false")

    def replaced() -> bool:
        assert ask(kube, SPACE) == (201, OURS)
        return len(replicas(kube)) == 2

    eventually("another one is ready", replaced)
    assert stays in replicas(kube)


@pytest.mark.usefixtures("webhook")
def test_without_any_replica_other_namespaces_notice_nothing_and_failure_policy_decides(
    kube: Kube, terminal: Terminal
) -> None:
    [entry] = read(kube, CONFIGURATION)["webhooks"]
    certificate = read(kube, SECRET)["data"]["tls.crt"]
    terminal.types(NONE)
    eventually("none is left", lambda: not of_the_webhook(kube))
    assert ask(kube, SPACE) == (201, DEFAULT), "Ignore: the pod is created as it is"
    assert ask(kube, OTHER) == (201, DEFAULT)
    merge(kube, CONFIGURATION, {"webhooks": [entry | {"failurePolicy": "Fail"}]})
    status, why = eventually("it is refused", lambda: refused(kube))
    assert status == 500
    assert re.search(r'failed calling webhook "pods\.intercept\.slurm-bridge"', why), why
    assert ask(kube, OTHER) == (201, DEFAULT)

    terminal.types(NO_CERTIFICATE)
    terminal.types(TWO)
    terminal.types(READY)  # nobody asks the webhook about its own pods
    eventually("pods of managed namespaces are created again", lambda: ask(kube, SPACE) == (201, OURS))
    assert read(kube, SECRET)["data"]["tls.crt"] != certificate
    terminal.types("kubectl apply -k manifests/webhook")
    [applied] = read(kube, CONFIGURATION)["webhooks"]
    assert applied["clientConfig"].get("caBundle"), "applying the manifests again takes nothing away"
    assert applied["failurePolicy"] == "Ignore"
    assert ask(kube, SPACE) == (201, OURS)


def refused(kube: Kube) -> tuple[int, str] | None:
    status, why = ask(kube, SPACE)
    return (status, why) if status != 201 else None


def of_the_webhook(kube: Kube) -> list[Any]:
    """Its pods, with those on their way out."""
    found: list[Any] = kube.core.list_namespaced_pod(OWN, label_selector=f"app.kubernetes.io/name={NAME}").items
    return found

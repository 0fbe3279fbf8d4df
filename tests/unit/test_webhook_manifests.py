"""manifests/webhook says what the webhook's code needs, and the same rules as the admission policy."""

from __future__ import annotations

from typing import Any

import yaml

from bridge import stopping
from bridge.webhook import command, own_certificate, server
from bridge.webhook.certificate_files import CERTIFICATE, KEY
from integration.readme import ROOT

SHIPPED = ROOT / "manifests" / "webhook"
NAME = "slurm-bridge-webhook"


def objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((SHIPPED / name).read_text(encoding="utf-8")))


def webhook() -> dict[str, Any]:
    [configuration] = objects("configuration.yaml")
    [found] = configuration["webhooks"]
    return dict(found)


def pod_spec() -> dict[str, Any]:
    [deployment] = objects("deployment.yaml")
    assert deployment["spec"]["replicas"] == 2
    return dict(deployment["spec"]["template"]["spec"])


def test_it_is_asked_about_new_pods_of_managed_namespaces_alone() -> None:
    found = webhook()
    assert found["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }
    ]
    [policy, _] = yaml.safe_load_all((ROOT / "manifests" / "admission" / "intercept.yaml").read_text(encoding="utf-8"))
    selector = found["namespaceSelector"]
    assert selector["matchLabels"] == policy["spec"]["matchConstraints"]["namespaceSelector"]["matchLabels"]
    [never] = selector["matchExpressions"]
    assert (never["key"], never["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert set(never["values"]) == {"kube-system", "slurm-bridge"}
    assert found["reinvocationPolicy"] == policy["spec"]["reinvocationPolicy"]


def test_an_outage_refuses_no_pod_and_delays_each_for_three_seconds_at_most() -> None:
    found = webhook()
    assert (found["failurePolicy"], found["timeoutSeconds"], found["sideEffects"]) == ("Ignore", 3, "None")
    assert found["timeoutSeconds"] == server.BODY_S


def test_the_api_server_reaches_it_by_its_service() -> None:
    client = webhook()["clientConfig"]
    assert "caBundle" not in client, "the webhook writes it, and an apply must not take it away"
    [service] = objects("service.yaml")
    assert client["service"]["path"] == server.PATH
    where = {key: client["service"][key] for key in ("name", "namespace")}
    assert where == {key: service["metadata"][key] for key in ("name", "namespace")}
    [port] = service["spec"]["ports"]
    assert port["port"] == client["service"]["port"]
    [container] = pod_spec()["containers"]
    assert container["ports"] == [{"name": port["targetPort"], "containerPort": 8443}]
    [deployment] = objects("deployment.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for name in ("disruption.yaml", "network.yaml"):
        [found] = objects(name)
        assert (found["spec"].get("selector") or found["spec"]["podSelector"])["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    [bridge] = yaml.safe_load_all((ROOT / "manifests" / "base" / "service.yaml").read_text(encoding="utf-8"))
    assert bridge["spec"]["selector"] != labels


def test_its_account_may_read_and_write_two_objects_and_nothing_else() -> None:
    places = command._places({})  # its default
    rules = [(each["kind"], rule) for each in objects("rbac.yaml") for rule in each.get("rules", ())]
    assert rules == [
        (
            "Role",
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [places.secret], "verbs": ["get", "update"]},
        ),
        (
            "ClusterRole",
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": ["mutatingwebhookconfigurations"],
                "resourceNames": [places.configuration],
                "verbs": ["get", "update"],
            },
        ),
    ]
    [secret] = objects("secret.yaml")
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == (places.namespace, places.secret)
    assert secret["type"] == "Opaque"
    assert not secret.keys() & {"data", "stringData"}, "an apply must not take the certificate away"
    assert f"/{places.configuration}" in places.configuration_path
    assert places.configuration_path.startswith(own_certificate.CONFIGURATIONS)


def test_the_pod_is_restricted() -> None:
    spec = pod_spec()
    [base] = yaml.safe_load_all((ROOT / "manifests" / "base" / "deployment.yaml").read_text(encoding="utf-8"))
    bridge = base["spec"]["template"]["spec"]
    assert spec["securityContext"] == bridge["securityContext"]
    assert spec["containers"][0]["securityContext"] == bridge["containers"][0]["securityContext"]
    assert spec["containers"][0]["image"] == bridge["containers"][0]["image"], "the overlay replaces both"


def test_kubelet_waits_longer_than_it_takes_to_stop() -> None:
    spec = pod_spec()
    [_, pause] = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert spec["terminationGracePeriodSeconds"] > int(pause) + stopping.END_S


def test_there_is_memory_for_the_reviews_that_are_read_at_a_time() -> None:
    limit = pod_spec()["containers"][0]["resources"]["limits"]["memory"]
    assert int(limit.removesuffix("Mi")) * 2**20 > 2 * server.MOST_AT_ONCE * server.MOST_BYTES


def test_the_documentation_names_the_options_and_the_limits_that_there_are() -> None:
    install, security = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("install.md", "security.md"))
    for option in (CERTIFICATE, KEY):
        assert f"`{option}`" in install
    assert f"within {command.LOOK_EVERY_S:.0f} s after they change" in install
    assert f"at most {server.MOST_BYTES >> 20} MiB, {server.MOST_AT_ONCE} are read at a time" in security

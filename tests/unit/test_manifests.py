"""manifests/ says what the code needs: rights, times, names and metrics.  A journey applies them; this needs no cluster."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bridge import __main__ as command_line
from bridge import stopping
from bridge.cli.doctor.look_kubernetes import REFERRED
from bridge.mint.users import Users
from bridge.preflight import rights
from bridge.preflight.rights import Right
from bridge.settings import Settings
from bridge.tracing.export import ENDPOINTS
from integration.readme import ROOT
from integration.rigging import places

MANIFESTS = ROOT / "manifests"
BASE = MANIFESTS / "base"


def objects(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def role(name: str) -> set[Right]:
    """What a ClusterRole allows."""
    [found] = [
        each
        for each in objects(BASE / "rbac.yaml")
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", name)
    ]
    allowed = set()
    for rule in found["rules"]:
        for group in rule["apiGroups"]:
            for resource, _, sub in (each.partition("/") for each in rule["resources"]):
                allowed |= {(verb, resource, group, sub) for verb in rule["verbs"]}
    return allowed


def pod_spec() -> dict[str, Any]:
    [deployment] = objects(BASE / "deployment.yaml")
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def test_the_account_has_every_right_that_is_checked() -> None:
    assert role("slurm-bridge") >= {*rights.CLUSTER, *rights.NODE, *REFERRED}
    assert role("slurm-bridge-namespace") >= set(rights.NAMESPACE)


def test_what_changes_pods_is_allowed_nowhere_but_where_a_role_binding_says_so() -> None:
    everywhere = {(verb, resource) for verb, resource, _, _ in role("slurm-bridge")} - {("patch", "nodes")}
    assert {verb for verb, _ in everywhere} == {"get", "list", "watch"}
    bound = [each["roleRef"]["name"] for each in objects(BASE / "rbac.yaml") if each["kind"] == "ClusterRoleBinding"]
    assert bound == ["slurm-bridge"]
    [binding] = objects(MANIFESTS / "namespace" / "rolebinding.yaml")
    assert binding["roleRef"]["name"] == "slurm-bridge-namespace"


def test_kubelet_waits_longer_than_the_bridge_takes_to_stop() -> None:
    assert pod_spec()["terminationGracePeriodSeconds"] > stopping.END_S


def test_the_pod_is_restricted() -> None:
    spec = pod_spec()
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = container["securityContext"]
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert f"USER {spec['securityContext']['runAsUser']}:" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def mint_patch() -> dict[str, Any]:
    [patch] = objects(MANIFESTS / "mint" / "sidecar.yaml")
    found: dict[str, Any] = patch["spec"]["template"]["spec"]
    return found


def test_the_mint_is_restricted_and_has_a_user_of_its_own() -> None:
    [mint] = mint_patch()["initContainers"]
    [bridge] = pod_spec()["containers"]
    own = dict(mint["securityContext"])
    assert own.pop("runAsUser") != pod_spec()["securityContext"]["runAsUser"]
    assert own.pop("runAsGroup")
    assert own == bridge["securityContext"]


def test_slurms_key_is_in_the_mint_alone_and_the_api_servers_token_in_the_bridge_alone() -> None:
    patch = mint_patch()
    [mint], [bridge] = patch["initContainers"], patch["containers"]
    of_mint, of_bridge = ({each["name"] for each in it["volumeMounts"] if "name" in each} for it in (mint, bridge))
    assert patch["automountServiceAccountToken"] is False
    assert (of_mint, of_bridge) == ({"key", "users", "tokens"}, {"tokens", "api"})
    [tokens] = [each for each in patch["volumes"] if each["name"] == "tokens"]
    assert tokens["emptyDir"]["medium"] == "Memory", "no token is written to a disk"


def test_the_mint_is_called_with_options_that_it_has_and_writes_where_the_bridge_reads() -> None:
    patch = mint_patch()
    [mint], [bridge] = patch["initContainers"], patch["containers"]
    options = command_line._parser().parse_args(mint["args"])
    folder = options.out
    [settings] = objects(MANIFESTS / "mint" / "settings.yaml")
    assert settings["slurm_user_token_dir"] == folder
    assert bridge["env"] == [{"name": "SLURM_BRIDGE_SLURM_TOKEN_FILE", "value": f"{folder}/{options.user[0]}"}]
    assert f"{folder}/{options.user[0]}" in mint["startupProbe"]["exec"]["command"][-1]
    assert int(options.group) == pod_spec()["securityContext"]["fsGroup"]
    listed = Users((), (str(MANIFESTS / "mint" / "users"),)).now()
    assert set(listed) == {rule.user for rule in Settings.model_validate(settings).policy.rules}


def test_the_settings_of_the_smallest_overlay_are_settings() -> None:
    [written] = objects(MANIFESTS / "minimal" / "settings.yaml")
    assert Settings.model_validate(written).policy.rules


def test_a_policy_about_labels_or_annotations_also_judges_requests_for_a_status() -> None:
    """The API server keeps the spec when a status is written, but takes labels, annotations and finalizers."""
    judged = {
        each["metadata"]["name"]: {
            resource
            for rule in each["spec"]["matchConstraints"]["resourceRules"]
            if "UPDATE" in rule["operations"]
            for resource in rule["resources"]
        }
        for path in sorted((MANIFESTS / "admission").glob("*.yaml"))
        for each in objects(path)
        if each["kind"] == "ValidatingAdmissionPolicy" and "oldObject.metadata" in str(each["spec"])
    }
    assert judged == {
        "slurm-bridge-pods": {"pods", "pods/status"},
        "slurm-bridge-nodes": {"nodes", "nodes/status"},
        "slurm-bridge-own-account-pods": {"pods", "pods/status"},
        "slurm-bridge-own-account-nodes": {"nodes", "nodes/status"},
        "slurm-bridge-own-account-claims": {
            "persistentvolumeclaims"
        },  # the account may not write the status of a claim
    }


def test_the_own_account_policies_compare_every_field_but_those_that_the_bridge_writes() -> None:
    """A field that is not listed is compared, so a policy need not know the fields of later versions.

    A binding writes labels and annotations of the pod.
    """
    policies = {
        each["metadata"]["name"].removeprefix("slurm-bridge-own-account-"): each["spec"]
        for each in objects(MANIFESTS / "admission" / "own-account.yaml")
        if each["kind"] == "ValidatingAdmissionPolicy"
    }
    both_ways = re.compile(
        r"variables\.(\w+)\.all\(key, key == '(\w+)' \|\| variables\.\w+\[\?key] == variables\.\w+\[\?key]\)"
    )
    left_out = {
        name: set(both_ways.findall(" ".join(each["expression"] for each in spec["validations"])))
        for name, spec in policies.items()
    }
    assert left_out["pods"] == {
        ("spec", "activeDeadlineSeconds"),
        ("specBefore", "activeDeadlineSeconds"),
        ("status", "conditions"),
        ("statusBefore", "conditions"),
    }
    assert left_out["nodes"] == {
        ("spec", "taints"),
        ("specBefore", "taints"),
        ("status", "conditions"),
        ("statusBefore", "conditions"),
    }
    [bound] = policies["bindings"]["matchConstraints"]["resourceRules"]
    assert (bound["operations"], bound["resources"]) == (["CREATE"], ["pods/binding"])


def test_no_role_names_an_object_as_a_generated_one_is_named() -> None:
    """kustomize takes such a name for that of the generated object, and adds its digest."""
    [overlay] = objects(MANIFESTS / "minimal" / "kustomization.yaml")
    generators = [*overlay["configMapGenerator"], *overlay["secretGenerator"]]
    generated = {each["name"] for each in generators if not each.get("options", {}).get("disableNameSuffixHash")}
    rules = [rule for each in objects(BASE / "rbac.yaml") for rule in each.get("rules", ())]
    named = {name for rule in rules for name in rule.get("resourceNames", ())}
    assert generated
    assert named
    assert not generated & named


def test_one_version_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    for name in ("minimal", "mint"):
        [overlay] = objects(MANIFESTS / name / "kustomization.yaml")
        assert [image["newTag"] for image in overlay["images"]] == [version]
    assert f"ARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_every_alarm_asks_for_a_metric_that_there_is() -> None:
    documented = set(
        re.findall(
            r"^\| `(slurm_bridge_\w+)`", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    asked = re.findall(r"slurm_bridge_\w+", (MANIFESTS / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))
    assert asked
    assert {re.sub(r"_(bucket|count|sum)$", "", each) for each in asked} <= documented


def test_the_bridge_sends_traces_to_the_port_at_which_the_collector_listens() -> None:
    [kustomization] = objects(MANIFESTS / "tracing" / "kustomization.yaml")
    [patch] = yaml.safe_load(kustomization["patches"][0]["patch"])
    variable = patch["value"]
    assert variable["name"] in ENDPOINTS
    endpoint = urlsplit(variable["value"])
    settings, deployment, service = objects(MANIFESTS / "tracing" / "collector.yaml")
    collector = yaml.safe_load(settings["data"]["config.yaml"])
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    assert service["metadata"]["name"] == endpoint.hostname
    assert service["spec"]["ports"] == [{"name": port["name"], "port": endpoint.port, "targetPort": port["name"]}]
    assert collector["receivers"]["otlp"]["protocols"] == {"http": {"endpoint": f"0.0.0.0:{port['containerPort']}"}}
    pipeline = collector["service"]["pipelines"]["traces"]
    for kind, names in pipeline.items():
        assert set(names) <= collector[kind].keys()
    assert container["image"].endswith(f":{places.COLLECTOR}"), "the version that a journey runs"

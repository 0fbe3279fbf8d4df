"""The Helm chart: the same objects as the kustomize files, and installed with the lines of docs/install.md, "With Helm".

The rig's helm is real.  What stands for the registry, the URL and the scheduler of the bridge's own pod: test_installed.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration import own_account, schemas
from integration.clusters import PREFIX, Kube, Slurm, eventually, pod
from integration.documents import lines
from integration.journeys.test_installed import (
    INSTALL,
    ON_THE_KUBELET,
    OWN,
    SPACE,
    all_namespaces,
    copied,
    operators_kinds,
    own_pod,
    ready,
)
from integration.journeys.test_installed import terminal as terminal
from integration.journeys.test_installed_webhook import ask
from integration.journeys.test_webhook import CONFIGURATION, SECRET, read
from integration.readme import ROOT, Terminal
from integration.rigging import places

SECTION = INSTALL.split("\n## With Helm\n")[1].split("\n## ")[0]
[EXAMPLE] = re.findall(r"^```yaml\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
LINES = lines("install.md", "With Helm")
SETTINGS, WEBHOOK = f"{OWN}-settings", f"{OWN}-webhook"
CHART = "helm template slurm-bridge manifests/chart"
TEMPLATED = f"{CHART} --skip-tests --values=minimal.yaml"
# Overlays as a site writes them, with the components.
SITES = {
    "before": {"resources": ["../minimal"], "components": ["../before-1.36"]},
    "mint-before": {"resources": ["../mint"], "components": ["../before-1.36"]},
    "tracing-before": {"resources": ["../tracing"], "components": ["../before-1.36"]},
    "several-admission": {"resources": ["../admission"], "components": ["../several-bridges"]},
    "taking-all": {"resources": ["../minimal"], "components": ["../intercept-all"]},
    "webhook-taking-all": {"resources": ["../webhook"], "components": ["../intercept-all"]},
}
Objects = dict[tuple[str, str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A terminal without clusters, in a checkout with a token; minimal.yaml: the values for what manifests/minimal says."""
    folder = tmp_path_factory.mktemp("chart")
    copied(folder)
    minimal = folder / "manifests" / "minimal"
    (minimal / "token").write_text("of nobody\n")
    (folder / "manifests" / "mint" / "jwt_hs256.key").write_text("of nobody\n")
    settings = yaml.safe_load((minimal / "settings.yaml").read_text())
    for name, overlay in SITES.items():
        (folder / "manifests" / name).mkdir()
        (folder / "manifests" / name / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    (folder / "minimal.yaml").write_text(json.dumps({"settings": settings, "token": {"content": "of nobody\n"}}))
    kubectl = places.kubectl()
    assert kubectl, "a rig has one"
    assert places.helm(), "a rig has one"
    return Terminal(folder, kubectl, {"HOME": str(folder)})


# --- the same objects ---------------------------------------------------------------------------------------------


def objects(printed: str) -> Objects:
    """The printed objects, without Helm's labels, the annotation that restarts pods after a change, and empty lines."""
    found = {}
    for each in yaml.safe_load_all(without_links(printed)):
        if not each:
            continue
        meta = each["metadata"]
        labels = meta.pop("labels", {})
        kept = {key: value for key, value in labels.items() if not key.startswith(("app.kubernetes.io/", "helm.sh/"))}
        if kept:
            meta["labels"] = kept
        if each["kind"] == "ConfigMap":
            meta["name"] = re.sub(r"-[a-z0-9]{10}$", "", meta["name"])  # a digest of the settings
            each["data"] = {
                key: json.loads(text) if key.endswith(".json") else yaml.safe_load(text)
                for key, text in each["data"].items()
            }
        if each["kind"] == "Deployment":
            template = each["spec"]["template"]
            template["metadata"].pop("annotations", None)  # the same
            for settings in (volume.get("configMap", {}) for volume in template["spec"].get("volumes", ())):
                settings |= {
                    key: re.sub(r"-[a-z0-9]{10}$", "", name) for key, name in settings.items() if key == "name"
                }
        identity = (each["kind"], meta.get("namespace", ""), meta["name"])
        assert identity not in found
        found[identity] = without_empty_lines(each)
    return found


def without_links(printed: str) -> str:
    """Helm says on standard error, first of all, which links it follows."""
    return re.sub(r"^walk\.go.*$", "", printed, flags=re.MULTILINE)


def without_empty_lines(value: Any) -> Any:
    """kustomize adds such lines where a long text of YAML is written in several lines."""
    if isinstance(value, dict):
        return {key: without_empty_lines(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_empty_lines(each) for each in value]
    return re.sub(r"\n+", "\n", value) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        ("minimal", ""),
        ("monitoring", "--set monitoring.enabled=true"),
        ("webhook", "--set webhook.enabled=true"),
        ("taking-all", "--set intercept=all"),
        ("webhook-taking-all", "--set intercept=all,webhook.enabled=true"),
    ],
    ids=str,
)
def test_it_makes_what_an_overlay_makes(typed: Terminal, overlay: str, values: str) -> None:
    wanted = objects(typed.types(f"kubectl kustomize manifests/{overlay}"))
    made = objects(typed.types(f"{TEMPLATED} {values}"))
    assert len(made) > 30
    assert made.keys() == wanted.keys()
    for identity, each in wanted.items():
        assert made[identity] == each


def test_it_gives_the_container_more_variables(typed: Terminal) -> None:
    values = "--set env[0].name=OTEL_EXPORTER_OTLP_ENDPOINT --set env[0].value=http://collector:4318"
    before, made = objects(typed.types(TEMPLATED)), objects(typed.types(f"{TEMPLATED} {values}"))
    [changed] = [identity for identity, each in made.items() if each != before[identity]]
    assert changed[0] == "Deployment"
    [was], [now] = (each[changed]["spec"]["template"]["spec"]["containers"] for each in (before, made))
    assert now["env"] == [*was["env"], {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}]


def test_the_dashboards_are_those_of_the_files_and_grafanas_sidecar_finds_them(typed: Terminal) -> None:
    files = {path.name: path.read_text() for path in (ROOT / "manifests" / "monitoring" / "dashboards").iterdir()}
    for line in ("kubectl kustomize manifests/monitoring", f"{TEMPLATED} --set monitoring.enabled=true"):
        [found] = [each for each in rendered(typed, line) if each["metadata"]["name"] == f"{OWN}-dashboards"]
        assert found["data"] == files, "byte for byte, with the {{…}} of Grafana"
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_what_prometheus_selects_by_label_has_the_labels_of_the_values(typed: Terminal) -> None:
    values = "--set monitoring.enabled=true,webhook.enabled=true,monitoring.labels.release=stack"
    with_it = {
        (each["kind"], each["metadata"]["name"])
        for each in rendered(typed, f"{TEMPLATED} {values}")
        if each["metadata"]["labels"].get("release") == "stack"
    }
    assert with_it == {
        *(("ServiceMonitor", name) for name in (OWN, WEBHOOK)),
        ("PrometheusRule", OWN),
        ("ConfigMap", f"{OWN}-dashboards"),
    }


def test_it_leaves_out_of_admission_what_the_values_say(typed: Terminal) -> None:
    whole = objects(typed.types(TEMPLATED)).keys()
    before = objects(typed.types(f"{TEMPLATED} --set intercept=none")).keys()
    assert {kind for kind, _, _ in whole - before} == {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert objects(typed.types("kubectl kustomize manifests/before")).keys() == before
    without = objects(typed.types(f"{TEMPLATED} --set admission.enabled=false")).keys()
    assert whole - without == objects(typed.types("kubectl kustomize manifests/admission")).keys()
    with_a_webhook = objects(
        typed.types(f"{TEMPLATED} --set admission.enabled=false --set webhook.enabled=true")
    ).keys()
    assert not [kind for kind, _, _ in with_a_webhook if "AdmissionPolicy" in kind]


def test_other_bridges_are_in_its_policies_as_the_component_names_them(typed: Terminal) -> None:
    other = "--set-string admission.others.gpu-bridge=system:serviceaccount:gpu-bridge:slurm-bridge"
    made = objects(typed.types(f"{TEMPLATED} {other}"))
    wanted = objects(typed.types("kubectl kustomize manifests/several-admission"))
    assert {key: made[key] for key in wanted} == wanted
    assert "gpu-bridge" in str(wanted)


def test_another_bridge_is_a_release_that_has_no_object_in_common_with_the_first(typed: Terminal) -> None:
    """Its account has the rights with which test_two_bridges runs: in its own namespace, and to the Lease of its name."""
    both = "--set replicas=2,namespaces={hpc},monitoring.enabled=true"
    another = "--set settings.scheduler_name=gpu-bridge,admission.enabled=false"
    first, second = (objects(typed.types(f"{TEMPLATED} {both} {values}")) for values in ("", another))
    assert not first.keys() & second.keys()
    assert {namespace for _, namespace, _ in second} == {"", "default", "hpc", "gpu-bridge"}
    for each in yaml.safe_load_all(own_account.of_another("gpu-bridge")):
        if each.get("roleRef", {}).get("name") == f"{OWN}-namespace":
            continue  # the journey's bridge has in all namespaces what a release has in `namespaces`
        name = each["metadata"]["name"].replace(f"gpu-bridge-{OWN}", "gpu-bridge")
        made = second[each["kind"], each["metadata"].get("namespace", ""), name]
        assert made.get("rules") == each.get("rules")
        assert made.get("subjects") == each.get("subjects")
    [settings] = (each for (kind, _, _), each in second.items() if kind == "ConfigMap")
    assert settings["data"]["settings.yaml"]["lease"] == {"name": "gpu-bridge", "namespace": "gpu-bridge"}
    [priority] = (each["spec"]["rules"] for (kind, _, _), each in second.items() if kind == "FlowSchema")
    assert [rule["subjects"][0]["serviceAccount"]["namespace"] for rule in priority] == ["gpu-bridge"]
    assert [rule["resourceRules"][0]["namespaces"] for rule in priority] == [["gpu-bridge"]]


def test_a_packed_chart_makes_the_same(typed: Terminal) -> None:
    typed.types("helm package manifests/chart")
    [packed] = typed.folder.glob("slurm-bridge-*.tgz")
    from_folder = objects(typed.types(TEMPLATED))
    assert objects(typed.types(TEMPLATED.replace("manifests/chart", packed.name))) == from_folder
    typed.types("helm lint manifests/chart --strict --values=minimal.yaml")


def test_the_bridges_own_namespace_is_not_part_of_a_release_in_it(typed: Terminal) -> None:
    whole = objects(typed.types(TEMPLATED)).keys()
    assert whole - objects(typed.types(f"{TEMPLATED} --namespace={OWN}")).keys() == {("Namespace", "", OWN)}


# --- what each version of Kubernetes takes ------------------------------------------------------------------------

# What is rendered, and the first version whose schemas know all of it.
EVERYTHING = (
    "--set 'replicas=2,monitoring.enabled=true,namespaces={hpc,lab},image.pullSecrets={pull},nodeSelector.role=infra' "
    "--set 'tolerations[0].key=infra,tolerations[0].operator=Exists,resources.limits.memory=4Gi'"
)
RENDERED = {
    "kubectl kustomize manifests/minimal": "1.36",
    "kubectl kustomize manifests/monitoring": "1.36",
    "kubectl kustomize manifests/webhook": "1.30",
    "kubectl kustomize manifests/mint": "1.36",
    "kubectl kustomize manifests/tracing": "1.36",
    "kubectl kustomize manifests/mint-before": "1.30",
    "kubectl kustomize manifests/tracing-before": "1.30",
    "kubectl kustomize manifests/before": "1.30",
    "kubectl kustomize manifests/taking-all": "1.36",
    TEMPLATED: "1.36",
    f"{CHART} --values=minimal.yaml {EVERYTHING}": "1.36",
    f"{TEMPLATED} {EVERYTHING} --set intercept=none": "1.30",
    f"{TEMPLATED} {EVERYTHING} --set admission.enabled=false": "1.29",
}


def rendered(typed: Terminal, line: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(without_links(typed.types(line))) if each]


@pytest.fixture(scope="module")
def renderings(typed: Terminal) -> dict[str, list[dict[str, Any]]]:
    """The objects that each line of RENDERED prints."""
    return {line: rendered(typed, line) for line in RENDERED}


@pytest.mark.parametrize("line", RENDERED)
def test_what_is_rendered_is_what_each_version_takes_that_is_claimed(
    renderings: dict[str, list[dict[str, Any]]], line: str
) -> None:
    made = renderings[line]
    assert len(made) > 15
    first = schemas.VERSIONS.index(RENDERED[line])
    for version in schemas.VERSIONS[first:]:
        assert schemas.mistakes(version, made) == [], version
    assert schemas.mistakes(schemas.VERSIONS[first - 1], made), "the version before knows less"


@pytest.mark.parametrize("version", schemas.VERSIONS[schemas.VERSIONS.index(min(RENDERED.values())) :])
def test_kubeconform_accepts_all_that_is_rendered_for_a_version_and_finds_a_mistake(
    renderings: dict[str, list[dict[str, Any]]], tmp_path: Path, version: str
) -> None:
    all_made = (each for line, found in renderings.items() if RENDERED[line] <= version for each in found)
    made = list({json.dumps(each): each for each in all_made}.values())
    custom = sum(each["apiVersion"].startswith("monitoring.coreos.com/") for each in made)
    schema = schemas.for_kubeconform(version, tmp_path)
    assert judged(version, schema, made) == (0, {"valid": len(made) - custom, "skipped": custom})
    wrong = copy.deepcopy(next(each for each in made if each["kind"] == "Deployment"))
    wrong["spec"]["replica"] = 2
    assert judged(version, schema, [wrong]) == (1, {"invalid": 1})


def judged(version: str, schema: str, made: list[dict[str, Any]]) -> tuple[int, dict[str, int]]:
    """kubeconform's exit code, and how many objects have which verdict."""
    command = [
        str(places.program("kubeconform")),
        "-strict",
        "-kubernetes-version",
        f"{version}.0",
        "-summary",
        "-output",
        "json",
    ]
    command += ["-schema-location", schema, "-skip", "ServiceMonitor,PrometheusRule"]
    answer = subprocess.run(command, input=yaml.safe_dump_all(made), capture_output=True, text=True, check=False)
    summary = json.loads(answer.stdout)["summary"]
    return answer.returncode, {verdict: number for verdict, number in summary.items() if number}


# --- what the values change ---------------------------------------------------------------------------------------

HARD_TO_QUOTE = ["on", "1_000", "2:00:00", "1e3", "0x1f", "null", "2026-01-01", "a\n b", "# a", "a: b", "{{ .Values }}"]


def test_settings_arrive_as_they_were_written(typed: Terminal) -> None:
    settings = {
        "slurm_url": "https://slurmrestd.example/slurm",
        "policy": {"default": {"user": "{namespace}", "max_time": "2:00:00"}},
        "ignored_resources": HARD_TO_QUOTE,
        "default_memory_mib": 1048576,
        "tuning": {"absent_share": 0.05, "records_waiting": 1000000},
        "lease": {"duration_s": 15},
    }
    (typed.folder / "values.yaml").write_text(json.dumps({"settings": settings}))
    made = objects(typed.types(f"{CHART} --values=values.yaml"))
    assert made["ConfigMap", OWN, SETTINGS]["data"]["settings.yaml"] == settings
    assert ("Secret", OWN, OWN) not in made


def test_two_replicas_have_a_lease(typed: Terminal) -> None:
    made = objects(typed.types(f"{TEMPLATED} --set replicas=2"))
    deployment = made["Deployment", OWN, OWN]["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["type"] == "RollingUpdate", "a rollout leaves one of them running"
    assert made["ConfigMap", OWN, SETTINGS]["data"]["settings.yaml"]["lease"] == {}


def test_the_pod_is_as_the_values_say_and_otherwise_as_it_ships(typed: Terminal) -> None:
    values = {
        "image": {"repository": "registry.example/bridge", "tag": "9", "pullPolicy": "Always", "pullSecrets": ["pull"]},
        "resources": {"limits": {"memory": "4Gi"}},
        "nodeSelector": {"role": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists", "effect": "NoSchedule"}],
        "token": {"secret": "own"},
        "namespaces": ["hpc", "lab"],
    }
    (typed.folder / "values.yaml").write_text(json.dumps(values))
    was = objects(typed.types(TEMPLATED))
    made = objects(typed.types(f"{TEMPLATED} --values=values.yaml"))
    assert made.keys() - was.keys() == {
        ("Secret", OWN, "own"),
        *(("RoleBinding", each, OWN) for each in ("hpc", "lab")),
    }
    assert made["RoleBinding", "hpc", OWN]["roleRef"]["name"] == "slurm-bridge-namespace"
    assert base64.b64decode(made["Secret", OWN, "own"]["data"]["token"]) == b"of nobody\n"
    spec, as_it_ships = (each["Deployment", OWN, OWN]["spec"]["template"]["spec"] for each in (made, was))
    [container], [shipped] = spec["containers"], as_it_ships["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example/bridge:9", "Always")
    assert container["resources"] == {**shipped["resources"], "limits": {"memory": "4Gi"}}
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert (spec["nodeSelector"], spec["tolerations"]) == (values["nodeSelector"], values["tolerations"])
    assert spec["securityContext"] == as_it_ships["securityContext"]
    assert "own" in [each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each]


def test_the_webhook_is_as_the_values_say_and_its_metrics_are_read(typed: Terminal) -> None:
    values = {
        "image": {"repository": "registry.example/bridge", "tag": "9", "pullSecrets": ["pull"]},
        "webhook": {"enabled": True, "replicas": 3, "failurePolicy": "Fail"},
        "intercept": "all",
        "nodeSelector": {"role": "infra"},
        "resources": {"limits": {"memory": "4Gi"}},
    }
    values["webhook"]["resources"] = {"requests": {"cpu": "1"}}  # type: ignore[index]
    (typed.folder / "values.yaml").write_text(json.dumps(values))
    printed = typed.types(f"{TEMPLATED} --values=values.yaml --set monitoring.enabled=true")
    labels = {
        (each["kind"], each["metadata"]["name"]): each["metadata"]["labels"]
        for each in yaml.safe_load_all(re.sub(r"^walk\.go.*$", "", printed, flags=re.MULTILINE))
        if each
    }
    made = objects(printed)
    deployment = made["Deployment", OWN, WEBHOOK]["spec"]
    spec = deployment["template"]["spec"]
    [container] = spec["containers"]
    assert deployment["replicas"] == 3
    assert (container["image"], container["args"]) == ("registry.example/bridge:9", ["webhook", "--intercept=all"])
    assert container["resources"] == {"requests": {"cpu": "1", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    assert (spec["nodeSelector"], spec["imagePullSecrets"]) == (values["nodeSelector"], [{"name": "pull"}])
    [entry] = made["MutatingWebhookConfiguration", "", WEBHOOK]["webhooks"]
    assert entry["failurePolicy"] == "Fail"
    assert "caBundle" not in entry["clientConfig"], "the webhook writes it"
    [bridge] = made["Deployment", OWN, OWN]["spec"]["template"]["spec"]["containers"]
    assert bridge["resources"]["limits"] == {"memory": "4Gi"}
    for name in (OWN, WEBHOOK):
        monitor = made["ServiceMonitor", OWN, name]["spec"]
        wanted = monitor["selector"]["matchLabels"].items()
        selected = [service for (kind, service), its in labels.items() if kind == "Service" and wanted <= its.items()]
        assert selected == [name]
        ports = [each["name"] for each in made["Service", OWN, name]["spec"]["ports"]]
        assert [each["port"] for each in monitor["endpoints"]] == ports


def test_only_some_changes_of_the_settings_restart_the_bridge(typed: Terminal) -> None:
    def noticed(values: str) -> str:
        printed = typed.types(f"{TEMPLATED} --show-only templates/objects.yaml {values}")
        digest: str
        [digest] = re.findall(r"checksum/settings: (\w+)", printed)
        return digest

    was = noticed("")
    assert noticed("--set settings.policy.default.user=bob --set settings.priority_classes.low.nice=5") == was
    assert noticed("--set settings.log_level=debug") != was


# --- what is refused, in Helm's words -------------------------------------------------------------------------------

REFUSED = {
    "--set replicas=two": "at '/replicas': got string, want integer",
    "--set replica=2": "at '': additional properties 'replica' not allowed",
    "--set image.name=x": "at '/image': additional properties 'name' not allowed",
    "--set settings.slurm_uri=https://x": "at '/settings': additional properties 'slurm_uri' not allowed",
    "--set settings.http=:80": "at '/settings': additional properties 'http' not allowed",
    "--set settings.slurm_url=": "at '/settings/slurm_url': minLength",
    "--set settings.default_memory_mib=much": "at '/settings/default_memory_mib': got string, want integer",
    "--set settings.tuning.quiet=3": "at '/settings/tuning': additional properties 'quiet' not allowed",
    "--set settings.bypass=kill": "at '/settings/bypass': value must be one of 'warn', 'end'",
    "--set settings.policy.rules[0].max_time=7200": "at '/settings/policy/rules/0/max_time': got number, want string",
    "--set settings.policy.rules[0].users=bob": "at '/settings/policy/rules/0': additional properties 'users' not allowed",
    "--set namespaces=hpc": "at '/namespaces': got string, want array",
    "--set admission=false": "at '/admission': got boolean, want object",
    "--set webhook=true": "at '/webhook': got boolean, want object",
    "--set webhook.enabled=yes": "at '/webhook/enabled': got string, want boolean",
    "--set webhook.replicas=two": "at '/webhook/replicas': got string, want integer",
    "--set webhook.failurePolicy=Open": "at '/webhook/failurePolicy': value must be one of 'Ignore', 'Fail'",
    "--set intercept=some": "at '/intercept': value must be one of 'unnamed', 'all', 'none'",
    "--set intercept=none,webhook.enabled=true": "the webhook would set the scheduler of no pod",
    "--set webhook.timeout=3": "at '/webhook': additional properties 'timeout' not allowed",
}


@pytest.mark.parametrize("values", REFUSED)
def test_a_wrong_value_is_refused_before_anything_is_made(typed: Terminal, values: str) -> None:
    said = typed.types(f"{TEMPLATED} {values}", codes=(1,))
    assert REFUSED[values] in said
    assert "kind:" not in said


def test_missing_values_are_named(typed: Terminal) -> None:
    assert "at '/settings': missing properties 'slurm_url', 'policy'" in typed.types(CHART, codes=(1,))


def test_a_chart_whose_links_lead_nowhere_says_so(typed: Terminal) -> None:
    base = typed.folder / "manifests" / "chart" / "base"
    base.rename(typed.folder / "base")
    base.write_text("../base")  # as git writes a link where there are none
    said = typed.types(TEMPLATED, codes=(1,))
    assert re.search(r"base/\w+\.yaml is missing in this chart\. Take the chart from a checkout", said)
    base.unlink()
    (typed.folder / "base").rename(base)


# --- on the real servers ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def released(no_bridge: None, terminal: Terminal, kube: Kube) -> Iterator[Terminal]:
    """An admin has typed every line."""
    eventually("what an earlier journey left is gone", lambda: not {OWN, SPACE} & all_namespaces(kube))
    url = f"http://{places.OWN_ADDRESS}:{places.REST_PORT}\n  allow_plain_http: true"
    values = EXAMPLE.replace("registry.example/", "localhost/").replace("https://slurmrestd.example", url)
    (terminal.folder / "values.yaml").write_text(values)
    said = "".join(terminal.types(line) for line in LINES)
    assert LINES[-1] in said, "the notes say what is left to do"
    yield terminal
    terminal.types(f"helm uninstall --ignore-not-found {OWN} --namespace={OWN}")


def test_an_admin_types_every_line_and_a_pod_runs_as_a_slurm_user(released: Terminal, kube: Kube, slurm: Slurm) -> None:
    kube.core.create_namespaced_pod(SPACE, pod("hello", on="", scheduler="", spec=ON_THE_KUBELET))
    eventually("it is bound", lambda: kube.pod(SPACE, "hello").spec.node_name)
    hello = kube.pod(SPACE, "hello")
    assert hello.spec.scheduler_name == "slurm-bridge", "it did not name it"
    job = slurm.job(int(hello.metadata.annotations[PREFIX + "job-id"]))
    assert (job["user_name"], job["nodes"]) == ("alice", hello.spec.node_name)
    kube.core.delete_namespaced_pod("hello", SPACE)
    eventually("its job has ended with it", lambda: not slurm.live(f"{SPACE}/hello"))


def test_every_overlay_and_the_chart_are_what_the_api_server_takes(released: Terminal) -> None:
    """A rig lacks the operator's two kinds: definitions of the same names replace them."""
    take = "kubectl apply --server-side --force-conflicts --dry-run=server"
    values = "--values=values.yaml --set monitoring.enabled=true --set replicas=2"
    with operators_kinds(released):
        for line in (
            f"{take} -k manifests/admission",
            f"{take} -k manifests/minimal",
            f"{take} -k manifests/monitoring",
            f"{CHART} --namespace={OWN} {values} | {take} -f -",
        ):
            said = released.types(line)
            # kubectl says of the namespace, which was applied otherwise, that a dry run does not change that.
            assert not [each for each in said.splitlines() if "Warning" in each and "last-applied" not in each]
            assert "validatingadmissionpolicy.admissionregistration.k8s.io/slurm-bridge-pods" in said
            assert ("servicemonitor" in said) == ("monitoring" in line)


UPGRADE = f"helm upgrade {OWN} manifests/chart --namespace={OWN} --values=values.yaml --wait"


def test_an_upgrade_restarts_the_bridge_only_if_it_has_to(released: Terminal, kube: Kube) -> None:
    before = own_pod(kube)
    released.types(f"{UPGRADE} --set settings.policy.default.user=bob")
    settings = kube.core.read_namespaced_config_map(SETTINGS, OWN).data["settings.yaml"]
    assert yaml.safe_load(settings)["policy"]["default"] == {"user": "bob"}
    assert own_pod(kube) == before
    released.types(f"{UPGRADE} --set settings.log_level=warning")
    eventually("another pod of it is there", lambda: own_pod(kube) not in ("", before))


def test_two_replicas_and_the_webhook_come_with_an_upgrade_and_another_one_leaves_the_certificate(
    released: Terminal, kube: Kube
) -> None:
    more = f"{UPGRADE} --set replicas=2 --set webhook.enabled=true"
    released.types(more)
    eventually("both are ready", lambda: len(ready(kube)) == 2)
    eventually("the API server asks the webhook", lambda: ask(kube, SPACE) == (201, OWN))
    before = made_by_the_webhook(kube)
    assert all(before)
    released.types(f"{more} --set webhook.failurePolicy=Fail")
    [entry] = read(kube, CONFIGURATION)["webhooks"]
    assert entry["failurePolicy"] == "Fail"
    assert made_by_the_webhook(kube) == before
    assert ask(kube, SPACE) == (201, OWN)
    released.types(UPGRADE)
    assert kube.apps.read_namespaced_deployment(OWN, OWN).spec.strategy.type == "Recreate"
    eventually("one is left", lambda: len(ready(kube)) == 1)


def made_by_the_webhook(kube: Kube) -> tuple[str, str]:
    """Its certificate, and what the API server trusts."""
    [entry] = read(kube, CONFIGURATION)["webhooks"]
    return read(kube, SECRET)["data"]["tls.crt"], entry["clientConfig"]["caBundle"]


def test_nothing_is_left_but_what_the_admin_made(released: Terminal) -> None:
    released.types(f"{CHART} --skip-tests --namespace={OWN} --values=values.yaml 2>said >made.yaml")
    released.types(f"helm uninstall {OWN} --namespace={OWN} --wait")
    assert "slurm-bridge" not in released.types("kubectl get --ignore-not-found -f made.yaml")
    assert "token" in released.types(f"kubectl get secret --namespace={OWN} {OWN} --output=yaml")

"""docker-compose.yml is coherent, and says what the rig really has.  integration/compose runs it; this needs no engine."""

from __future__ import annotations

import base64
import hmac
import json
import re
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from bridge.settings import Settings
from integration.readme import ROOT
from integration.rigging import compose_images, compose_programs, places
from integration.rigging.shell import RigError

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONCE = {name for name, service in SERVICES.items() if service.get("restart") == "no"}
BUILT = {"localhost/slurm-bridge:0.1.0": ".", "localhost/slurm-bridge-slurm:26.05": "compose/slurm"}
NOT_RUN = {"grafana"}  # no image of it can be had


def script(name: str) -> ModuleType:
    """A script of the stack, which is no package."""
    spec = util.spec_from_file_location(f"compose_{name}", ROOT / "compose" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_service_has_a_health_check_or_runs_once() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == ONCE
    assert {"init", "probe", "accounts", "cluster", "urls"} == ONCE
    for name in SERVICES.keys() - ONCE:
        [how, *command] = SERVICES[name]["healthcheck"]["test"]
        assert how in ("CMD", "CMD-SHELL"), name
        assert command, name


def test_every_dependency_waits_for_health_or_for_the_end() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in ONCE else "service_healthy"
            assert how == {"condition": wanted}, (name, other)


def test_the_urls_are_shown_after_everything_that_runs_is_healthy() -> None:
    waited, before = set(), {"urls"}
    while before:
        before = {other for name in before for other in SERVICES[name].get("depends_on", {})} - waited
        waited |= before
    assert waited == SERVICES.keys() - {"urls", *NOT_RUN}


def test_every_image_is_of_one_exact_version() -> None:
    for name, service in SERVICES.items():
        image = service["image"]
        assert re.fullmatch(r"(docker\.io|quay\.io|registry\.k8s\.io|localhost)/[\w./-]+:v?\d+\.\d+(\.\d+)?", image), (
            name
        )
        assert service.get("build") == BUILT.get(image), name


def test_what_ci_runs_has_the_versions_of_the_rig() -> None:
    published = {service["image"] for name, service in SERVICES.items() if name not in NOT_RUN} - BUILT.keys()
    assert published == compose_images.stand_ins().keys()
    paths = {
        name: (service["entrypoint"][0] if "entrypoint" in service else None)
        for name, service in SERVICES.items()
        if service["image"] in published
    }
    for name, path in paths.items():
        stand_in = compose_images.stand_ins()[SERVICES[name]["image"]]
        assert path is None or path.lstrip("/") in stand_in.programs, "an entry point that is there"


def test_nothing_is_privileged_and_nothing_sees_the_engine() -> None:
    text = json.dumps(COMPOSE)
    assert 'privileged": true' not in text
    for word in (".sock:", "docker.sock", "podman.sock", "network_mode", "devices", "userns_mode"):
        assert word not in text, word
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert set(service.get("cap_add", ())) <= ({"CHOWN", "DAC_OVERRIDE"} if name == "init" else set()), name


def test_ports_are_published_on_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 5
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-\d+\}:\d+", port) for port in ports)


def test_every_file_and_volume_that_is_mounted_is_there_and_is_read_only() -> None:
    for name, service in SERVICES.items():
        for mount in service.get("volumes", ()):
            source, target, *options = mount.split(":")
            if source.startswith("."):
                assert (ROOT / source).exists(), (name, source)
                assert options == ["ro"], (name, source)
            else:
                assert source in COMPOSE["volumes"], (name, source)
                writes = name in ("init", "probe") or source.endswith("-data")
                assert options == ([] if writes else ["ro"]), (name, source, target)


def test_secrets_reach_only_the_services_that_use_them() -> None:
    seen = {volume: set() for volume in ("slurm", "database", "kubernetes", "admin", "bridge")}
    for name, service in SERVICES.items():
        for mount in service.get("volumes", ()):
            seen.get(mount.split(":")[0], set()).add(name)
    assert seen == {
        "slurm": {"init", "slurmdbd", "accounts", "slurmctld"},
        "database": {"init", "mariadb"},
        "kubernetes": {"init", "kube-apiserver", "kube-controller-manager"},
        "admin": {"init", "kube-controller-manager", "cluster", "kwok", "load"},
        "bridge": {"init", "bridge"},
    }


def test_the_settings_are_settings_and_name_the_tenants_that_slurm_knows() -> None:
    settings = Settings.model_validate(yaml.safe_load((ROOT / "compose/bridge.yaml").read_text(encoding="utf-8")))
    users = {rule.user for rule in settings.policy.rules}
    accounts = (ROOT / "compose/slurm/accounts.sh").read_text(encoding="utf-8")
    dockerfile = (ROOT / "compose/slurm/Dockerfile").read_text(encoding="utf-8")
    for user in users:
        assert f"add user {user} " in accounts
        assert re.search(rf"\b{user}:\d+", dockerfile)
    namespaces = list(yaml.safe_load_all((ROOT / "compose/cluster/namespaces.yaml").read_text(encoding="utf-8")))
    made = {each["metadata"]["name"] for each in namespaces if each["kind"] == "Namespace"}
    assert made == {namespace for rule in settings.policy.rules for namespace in rule.namespaces or ()}


def test_slurm_schedules_as_the_documents_advise() -> None:
    conf = (ROOT / "compose/slurm/slurm.conf").read_text(encoding="utf-8")
    advice = (ROOT / "docs/for-slurm-admins.md").read_text(encoding="utf-8")
    [parameters] = re.findall(r"^SchedulerParameters=(.*)$", conf, re.MULTILINE)
    for parameter in parameters.split(","):
        assert f"{parameter}`" in advice, parameter


# --- the scripts of the stack -----------------------------------------------------------------------------------------


def test_a_slurm_token_is_a_jwt_that_the_key_signs() -> None:
    token = script("init").slurm_token(b"key", "slurm", 1_800_000_000.5)
    said, _, signature = token.rpartition(".")
    assert base64.urlsafe_b64decode(f"{signature}==") == hmac.digest(b"key", said.encode(), "sha256")
    claims = json.loads(base64.urlsafe_b64decode(f"{said.partition('.')[2]}=="))
    assert claims == {"iat": 1_800_000_000, "exp": 1_800_000_000 + 365 * 86400, "sun": "slurm"}


def test_the_alarms_of_the_manifests_become_prometheus_rules() -> None:
    given = (ROOT / "manifests/monitoring/rules.yaml").read_text(encoding="utf-8")
    [group] = yaml.safe_load(script("init").rules(given))["groups"]
    assert {rule["alert"] for rule in group["rules"]} >= {"SlurmBridgeAway", "SlurmBridgeTokenEnds"}


def test_the_urls_are_those_of_the_published_ports() -> None:
    ports = {"BRIDGE_PORT": "1", "PROMETHEUS_PORT": "2", "JAEGER_PORT": "3", "GRAFANA_PORT": "4"}
    text = script("urls").text(ports)
    assert re.findall(r"http://127\.0\.0\.1:(\d)", text) == ["2", "3", "1", "4"]


# --- stand-ins --------------------------------------------------------------------------------------------------------

FACTORY = """import (
{imports}
	"github.com/jaegertracing/jaeger/internal/storage/v1/memory"
)
	switch factoryType {{
{cases}
	case memoryStorageType:
		return memory.NewFactory(), nil
"""


def factory(*names: str) -> str:
    imports = "\n".join(f'\t"github.com/jaegertracing/jaeger/internal/storage/v1/{name}"' for name in names)
    cases = "\n".join(f"\tcase {name}StorageType:\n\t\treturn {name}.NewFactory(), nil" for name in names)
    return FACTORY.format(imports=imports, cases=cases)


def test_jaeger_keeps_the_storage_in_memory_alone() -> None:
    less = compose_programs.without_storages(factory(*compose_programs.LEFT_OUT))
    assert re.findall(r"storage/v1/(\w+)", less) == ["memory"]
    assert re.findall(r"case (\w+)StorageType", less) == ["memory"]


def test_a_jaeger_that_is_made_otherwise_is_not_built_silently() -> None:
    with pytest.raises(RigError, match=f"Jaeger {places.JAEGER} makes its storage kafka in another way"):
        compose_programs.without_storages(factory("badger", "cassandra", "elasticsearch", "grpc"))


# --- the dashboard ----------------------------------------------------------------------------------------------------

DASHBOARDS = sorted((ROOT / "manifests" / "monitoring" / "dashboards").glob("*.json"))
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_metrics_that_are_documented(path: Path) -> None:
    board = json.loads(path.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert queries
    for query in queries:
        for metric in re.findall(r"slurm_bridge_\w+", query):
            name = re.sub(r"_(bucket|count|sum|total)$", "", metric)
            assert re.search(rf"^\| `{name}(_total)?` ", METRICS, re.MULTILINE), metric


def test_podman_compose_is_run_and_never_depended_on() -> None:
    for lock in ("requirements.txt", "requirements-dev.txt", "requirements-build.txt", "pyproject.toml"):
        assert "podman" not in (ROOT / lock).read_text(encoding="utf-8"), "it is under the GPL"
    assert "--hash=sha256:" in compose_images.TOOLS.read_text(encoding="utf-8")

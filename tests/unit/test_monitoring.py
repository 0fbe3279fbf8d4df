"""Alerts and dashboards of manifests/monitoring: complete, explained and tested.  A journey runs their queries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.readme import ROOT

MONITORING = ROOT / "manifests" / "monitoring"
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))["spec"]["groups"]
    for rule in group["rules"]
]
RUNBOOK = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
LABELS_OF = {
    metric: re.findall(r"`(\w+)`", labels)
    for metric, labels in re.findall(r"^\| `(slurm_bridge_\w+)` \| \w+ \|([^|]*)\|", METRICS, re.MULTILINE)
}
TESTS = yaml.safe_load((ROOT / "integration" / "monitoring" / "rules_test.yaml").read_text(encoding="utf-8"))["tests"]


def board(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_has_a_severity_and_leads_to_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/monitoring.md#{rule['alert'].lower()}"
    assert f"\n### {rule['alert']}\n" in RUNBOOK


def test_each_alert_fires_in_a_test() -> None:
    firing = {
        labels
        for test in TESTS
        for asked in test["promql_expr_test"]
        for sample in asked["exp_samples"]
        for labels in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    assert firing == {rule["alert"] for rule in RULES}


def test_the_runbook_names_no_other_alert() -> None:
    assert set(re.findall(r"\bSlurmBridge\w+", RUNBOOK)) - {"SlurmBridgeLacksRights"} == {
        rule["alert"] for rule in RULES
    }


def test_the_overlay_has_every_dashboard_and_kubectl_can_apply_them() -> None:
    """`kubectl apply` writes the whole object into an annotation, of which an API server takes 256 KiB."""
    kustomization = yaml.safe_load((MONITORING / "kustomization.yaml").read_text(encoding="utf-8"))
    [generated] = kustomization["configMapGenerator"]
    assert [MONITORING / name for name in generated["files"]] == DASHBOARDS
    applied = json.dumps({path.name: path.read_text(encoding="utf-8") for path in DASHBOARDS})
    assert len(applied) < 200 * 1024


def test_each_dashboard_has_a_stable_uid_and_a_title_of_its_own() -> None:
    assert {board(path)["uid"] for path in DASHBOARDS} == {
        "slurm-bridge-latency",
        "slurm-bridge-clusters",
        "slurm-bridge-itself",
    }
    assert len({board(path)["title"] for path in DASHBOARDS}) == len(DASHBOARDS)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_each_panel_has_a_query_a_legend_and_a_description(path: Path) -> None:
    panels = [panel for panel in board(path)["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board(path)["panels"]}) == len(board(path)["panels"])
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        for target in panel["targets"]:
            assert target["expr"], panel["title"]
            assert target["legendFormat"], panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_each_query_follows_the_variables_of_its_dashboard(path: Path) -> None:
    """The panels "Waiting by reason" and "by partition" had all partitions, and all panels the sums over all bridges."""
    named = [each["name"] for each in board(path)["templating"]["list"]]
    assert named[:3] == ["source", "job", "namespace"]
    queries = [target["expr"] for panel in board(path)["panels"] for target in panel.get("targets", ())]
    for query in queries:
        series = re.findall(r"\b((?:slurm_bridge|process)_\w+|up)(\{[^}]*\})?", query)
        assert series, query
        for metric, selector in series:
            assert 'namespace=~"$namespace", job=~"$job"' in selector, query
            for label in LABELS_OF.get(metric.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count"), ()):
                assert label not in named or f'{label}=~"${label}"' in selector, query


def unknown_in(query: str) -> set[str]:
    """The metrics and labels of a query that docs/metrics.md does not have, which a test compares with the code."""
    names = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\bslurm_bridge_\w+", query)}
    lists = re.findall(r"\bby \(([^)]*)\)", query) + re.findall(r"\{([^}]*)\}", query)
    labels = {
        label for found in lists for label in re.findall(r"(\w+)(?= *(?:=|!=|,|$))", re.sub('"[^"]*"', "", found))
    }
    of_prometheus = {"namespace", "job", "instance", "le"}
    return (names - LABELS_OF.keys()) | (labels - of_prometheus).difference(
        *(LABELS_OF.get(name, ()) for name in names)
    )


def test_alerts_and_panels_ask_for_metrics_and_labels_that_the_bridge_has() -> None:
    """A metric that got another name leaves an alert that never fires, and a panel that stays empty."""
    panels = [
        target["expr"] for path in DASHBOARDS for panel in board(path)["panels"] for target in panel.get("targets", ())
    ]
    for query in [rule["expr"] for rule in RULES] + panels:
        assert unknown_in(query) == set(), query
    assert unknown_in('sum by (kind, phase) (slurm_bridge_workloads{state="x"}) + slurm_bridge_gone') == {
        "kind",
        "state",
        "slurm_bridge_gone",
    }


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_panel_lies_on_another(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board(path)["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells

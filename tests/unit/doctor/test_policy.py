"""What Slurm and Kubernetes say of a policy: `slurm-bridge policy check`, `policy show`, and the doctor of its templates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bridge.cli.doctor.findings import Finding, Level
from bridge.cli.policy_check import in_clusters
from bridge.cli.policy_show import labels_of
from bridge.cli.policy_show import main as show
from bridge.errors import ConfigError
from bridge.settings import load
from bridge.simulation.kube import objects
from tests.unit.doctor.clusters import MANAGED, Both, said

LABEL = "{namespace.labels['x/slurm-user']}"


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


async def checked(both: Both, *rules: dict[str, Any]) -> list[Finding]:
    both.settings["policy"] = {"rules": list(rules)}
    async with both.served() as options:
        return [each for each in await in_clusters(options, load(options, {})) if each.group == "Slurm"]


async def test_what_slurm_does_not_know_is_an_error_and_templates_are_not_tried(both: Both) -> None:
    found = await checked(
        both,
        {"namespaces": ["a"], "user": "alice", "account": {"allowed": ["teama", "{namespace}"]}},
        {"namespaces": ["b"], "user": "nobodyhere"},
        {"namespaces": ["c"], "user": LABEL},
    )
    assert {each.check for each in found} <= {"users", "choices", "reservations"}
    assert said(found, "users", Level.ERROR) == [
        "The host of slurmctld has no user nobodyhere: pods of that user are not run."
    ]
    assert said(found, "choices", Level.OK) == [
        "Slurm accepts 1 of the 1 accounts, partitions and QOS that the policy offers"
    ]


async def test_slurm_user_is_an_error(both: Both) -> None:
    both.slurm.slurm_conf = {"SlurmUser": "alice(64030)"}
    found = await checked(both, {"namespaces": ["a"], "user": "Alice"})
    assert "is the user that runs Slurm" in said(found, "users", Level.ERROR)[0]


async def test_a_slurm_that_does_not_answer_is_no_error_of_the_policy(both: Both) -> None:
    both.slurm.controller_up = False
    found = await checked(both, {"namespaces": ["a"], "user": "alice"})
    assert [finding.check for finding in found] == ["users", "choices", "reservations"]
    assert {finding.level for finding in found} == {Level.UNKNOWN}
    assert {finding.sentence for finding in found} == {"not checked: slurmctld does not answer slurmrestd"}


async def test_the_labels_of_a_namespace_are_read_from_kubernetes(both: Both) -> None:
    both.kube.create(0.0, "namespaces", objects.namespace("team-a", {**MANAGED, "x/slurm-user": "alice"}))
    async with both.served() as options:
        chosen = load(options, {})
        assert (await labels_of(chosen, "team-a"))["x/slurm-user"] == "alice"
        with pytest.raises(ConfigError, match="Kubernetes has no namespace nowhere"):
            await labels_of(chosen, "nowhere")


async def test_a_rule_with_a_wildcard_says_nothing_of_a_namespace_that_does_not_exist(
    both: Both, capsys: pytest.CaptureFixture[str]
) -> None:
    both.settings["policy"] = {"rules": [{"namespaces": ["*"], "user": "alice"}]}
    async with both.served() as options:
        assert await asyncio.to_thread(show, {**options, "namespace": "hpc"}) == 0
        assert "alice" in capsys.readouterr().out
        with pytest.raises(ConfigError, match=r"Kubernetes has no namespace nowhere\. Correct the name, or"):
            await asyncio.to_thread(show, {**options, "namespace": "nowhere"})
        assert await asyncio.to_thread(show, {**options, "namespace": "nowhere", "labels": ""}) == 0
    assert "alice" in capsys.readouterr().out


async def test_the_doctor_names_managed_namespaces_whose_template_cannot_be_filled(both: Both) -> None:
    both.settings["policy"] = {"rules": [{"namespaces": ["hpc", "team-*"], "user": LABEL}]}
    both.kube.create(0.0, "namespaces", objects.namespace("team-a", {**MANAGED, "x/slurm-user": "alice"}))
    found = await both.findings()
    [sentence] = said(found, "tenants", Level.WARNING)
    assert "namespace hpc has no label x/slurm-user" in sentence
    assert said(found, "users", Level.ERROR) == []

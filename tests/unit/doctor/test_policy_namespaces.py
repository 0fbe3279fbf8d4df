"""`slurm-bridge policy check`: what the policy gives to the namespaces that there are, and what Slurm says of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.cli.doctor.findings import Finding, Level
from bridge.cli.policy_check import in_clusters
from bridge.settings import load
from bridge.simulation.kube import objects
from bridge.simulation.slurm.jobs import SimUser
from scheduler.model.kubernetes import Namespace
from tests.unit.doctor.clusters import MANAGED, Both

USER = "x/slurm-user"
BY_LABEL = {"namespaces": ["team-*"], "user": f"{{namespace.labels['{USER}']}}"}


@pytest.fixture
def both(tmp_path: Path) -> Both:
    """Two clusters; Kubernetes has the managed namespace hpc."""
    return Both(tmp_path)


def space(both: Both, name: str, user: str = "", **labels: str) -> None:
    told = {**MANAGED, **labels} | ({USER: user} if user else {})
    both.kube.create(0.0, "namespaces", objects.namespace(name, told))


async def checked(both: Both, *rules: dict[str, Any], given: tuple[Namespace, ...] = (), **more: Any) -> list[Finding]:
    both.settings["policy"] = {"rules": list(rules), **more}
    async with both.served() as options:
        found = await in_clusters(options, load(options, {}), given)
    return [each for each in found if each.group == "Namespaces"]


def said(found: list[Finding], level: Level, check: str = "") -> list[str]:
    return [each.sentence for each in found if each.level is level and check in ("", each.check)]


HPC = {"namespaces": ["hpc"], "user": "alice"}


async def test_what_templates_give_is_looked_up_in_slurm(both: Both) -> None:
    space(both, "team-a", "alice")
    found = await checked(both, HPC, BY_LABEL)
    assert [each for each in found if each.level in (Level.WARNING, Level.ERROR)] == []
    assert said(found, Level.OK, "namespaces") == ["2 namespaces checked; Slurm users: alice (hpc, team-a)"]


async def test_a_user_of_a_label_that_slurm_does_not_know_is_an_error_with_the_rule_and_the_namespaces(
    both: Both,
) -> None:
    space(both, "team-a", "nobodyhere")
    space(both, "team-b", "nobodyhere")
    [sentence] = said(await checked(both, HPC, BY_LABEL), Level.ERROR)
    assert sentence.startswith("The host of slurmctld has no user nobodyhere: pods of that user are not run.")
    assert (
        "Rule 2 of the policy (namespaces team-*) gives here: user \"nobodyhere\" ({namespace.labels['x/slurm-user']})"
        in sentence
    )
    assert sentence.endswith("Concerned: team-a, team-b.")


async def test_of_two_hundred_tenants_of_one_rule_those_that_slurm_does_not_take_are_named(both: Both) -> None:
    for number in range(200):
        both.slurm.users[f"user{number}"] = SimUser(
            f"user{number}", (f"acct-team-{number}",) if number != 33 else ("x",)
        )
        space(both, f"team-{number}", f"user{number}" if number != 77 else "nobodyhere")
    found = await checked(both, HPC, BY_LABEL | {"account": {"default": "acct-{namespace}"}})
    wrong = [each for each in found if each.level is Level.ERROR]
    unknown, foreign = sorted(wrong, key=lambda each: "nobodyhere" not in each.sentence)
    assert unknown.sentence.startswith("The host of slurmctld has no user nobodyhere: pods of that user are not run.")
    assert unknown.sentence.endswith("Concerned: team-77.")
    assert foreign.sentence.startswith('Slurm does not accept account "acct-team-33" from user33: ')
    assert foreign.sentence.endswith("Concerned: team-33.")
    assert "If not: sacctmgr add user user33 account=acct-team-33 (" in foreign.do
    assert foreign.do.endswith("; or correct the policy.")
    [looked_at] = said(found, Level.OK, "namespaces")
    assert looked_at.startswith("201 namespaces checked; Slurm users: ")


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("", "namespace team-a has no label x/slurm-user"),
        ("1000", "must be an ordinary Slurm user's name, not a number"),
        ("root", "must be an ordinary Slurm user's name"),
        ("Slurm", "is the user that runs Slurm (SlurmUser)"),
    ],
)
async def test_a_label_that_gives_no_user_is_an_error(both: Both, user: str, why: str) -> None:
    both.slurm.slurm_conf = {"SlurmUser": "slurm(64030)"}
    space(both, "team-a", user)
    [sentence] = said(await checked(both, HPC, BY_LABEL), Level.ERROR)
    assert sentence.startswith("Rule 2 of the policy")
    assert sentence.endswith(" Refused are pods of team-a.")
    assert why in sentence


async def test_an_account_that_slurm_does_not_take_is_an_error(both: Both) -> None:
    rule = {**BY_LABEL, "account": {"default": "{namespace}"}, "qos": {"allowed": ["{namespace}"]}}
    space(both, "team-a", "alice")
    found = said(await checked(both, HPC, rule), Level.ERROR)
    assert any('Slurm does not accept account "team-a" from alice' in each and "(error 2045)" in each for each in found)


async def test_the_rule_that_decides_is_named_and_a_rule_that_never_decides_is_a_warning(both: Both) -> None:
    space(both, "team-a", "alice", tenant="yes")
    by_tenant = {"namespace_selector": {"matchLabels": {"tenant": "yes"}}, "user": "alice"}
    found = await checked(both, HPC, BY_LABEL, by_tenant)
    assert "rules 2 and 3 match pods of team-a: rule 2 decides" in said(found, Level.OK, "overlaps")
    assert said(found, Level.WARNING, "overlaps") == [
        "Rule 3 (namespace labels tenant=yes) decides for no pod now: it matches, and rule 2 decides before it."
    ]


async def test_a_namespace_without_a_rule_is_a_warning_and_a_rule_without_a_namespace_is_none(both: Both) -> None:
    found = await checked(both, {"namespaces": ["lab"], "user": "alice"})
    assert said(found, Level.WARNING) == ["Pods of these namespaces have no Slurm user, and are refused: hpc."]
    assert said(found, Level.OK, "overlaps") == ["rules that no namespace matches now: namespaces lab"]
    assert said(await checked(both, default={"user": "alice"}), Level.WARNING) == []


async def test_what_is_allowed_and_cannot_be_filled_is_a_warning(both: Both) -> None:
    rule = {**HPC, "account": {"allowed": ["{namespace.labels['x/account']}"]}}
    assert said(await checked(both, rule), Level.WARNING) == [
        "Rule 1 of the policy (namespaces hpc): templates under account.allowed cannot be filled in hpc, and allow nothing "
        "there."
    ]


async def test_each_service_account_that_a_rule_names_is_looked_at(both: Both) -> None:
    rule = {"namespaces": ["hpc"], "service_accounts": ["runner"], "user": "{serviceAccount}"}
    [sentence] = said(await checked(both, rule, HPC), Level.ERROR)
    assert "no user runner" in sentence
    assert sentence.endswith("Concerned: hpc (service account runner).")


async def test_only_managed_namespaces_are_looked_at(both: Both) -> None:
    both.kube.create(0.0, "namespaces", objects.namespace("team-x", {}))
    found = await checked(both, HPC, BY_LABEL)
    assert said(found, Level.ERROR) == []
    assert said(found, Level.OK, "namespaces") == ["1 namespace checked; Slurm users: alice (hpc)"]


async def test_namespaces_that_are_given_take_their_place(both: Both) -> None:
    given = (Namespace("team-z", "", {USER: "nobodyhere"}),)
    [sentence] = said(await checked(both, BY_LABEL, given=given), Level.ERROR)
    assert sentence.endswith("Concerned: team-z.")


async def test_without_slurm_what_templates_give_is_filled_all_the_same(both: Both) -> None:
    both.slurm.controller_up = False
    space(both, "team-a")
    found = await checked(both, HPC, BY_LABEL)
    assert len(said(found, Level.ERROR)) == 1
    assert said(found, Level.UNKNOWN) == [], "the checks of Slurm say why"

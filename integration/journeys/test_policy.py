"""The Slurm user of a namespace, with the associations of a real slurmdbd; the policy changes while the bridge runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually, slurm_says
from integration.journeys.conftest import POLICY
from integration.journeys.test_doctor_explain import ran

Space = Callable[[str], str]
TENANT, USER, ACCOUNT = "journey/tenant", "journey/slurm-user", "journey/account"
BY_LABEL: dict[str, Any] = {
    "namespace_selector": {"matchLabels": {TENANT: "yes"}},
    "user": f"{{namespace.labels['{USER}']}}",
    "account": {"default": f"{{namespace.labels['{ACCOUNT}']}}"},
    "partition": {"default": "main"},
    "qos": {"allowed": ["high", "low"]},
    "max_time": "30",
    "max_nodes": 2,
    "max_gres": {"gpu": 2},
}
RULES = {"rules": [BY_LABEL, *POLICY["rules"]]}
HIGH = "journey-high"


@pytest.fixture
def tenants(bridge: BridgeProcess, kube: Kube) -> Iterator[None]:
    """One rule for all tenants is in force, without a restart, and a PriorityClass means QOS high."""
    kube.scheduling.create_priority_class({"metadata": {"name": HIGH}, "value": 1000, "preemptionPolicy": "Never"})
    with bridge.with_file(policy=RULES, priority_classes={HIGH: {"qos": "high"}}):
        yield
    kube.scheduling.delete_priority_class(HIGH)


def label(kube: Kube, namespace: str, user: str | None, account: str | None = None) -> None:
    labels = {TENANT: "yes", USER: user, ACCOUNT: account}
    kube.core.patch_namespace(namespace, {"metadata": {"labels": labels}})


@contextmanager
def associated(user: str, account: str) -> Iterator[None]:
    """The user has that account, too."""
    slurm_says("sacctmgr", "-i", "add", "user", user, f"account={account}")
    try:
        yield
    finally:
        slurm_says("sacctmgr", "-i", "delete", "user", user, f"account={account}")


def test_three_tenants_are_one_rule(kube: Kube, slurm: Slurm, space: Space, tenants: None) -> None:
    wanted = {"alice": "teama-dev", "bob": "teamb", "carol": "teamb"}  # carol stands in no rule by her name
    spaces = {user: space(user) for user in wanted}
    for user, account in wanted.items():
        label(kube, spaces[user], user, account)
        kube.run(spaces[user], "train")
    eventually("all run", lambda: all(kube.bound(ns) for ns in spaces.values()))
    for user, account in wanted.items():
        [job] = slurm.live(f"{spaces[user]}/train~")
        assert (job["user_name"], job["account"], job["partition"]) == (user, account, "main")
        assert job["time_limit"]["number"] == 30, "the longest that the rule allows is asked for"


TEAMS = [f"team-{number}" for number in range(200)]
OF_TEAMS = {"namespaces": ["team-*"], "user": f"{{namespace.labels['{USER}']}}", "account": {"default": "{namespace}"}}


def test_two_hundred_tenants_are_one_rule(kube: Kube, slurm: Slurm, bridge: BridgeProcess, own_rig: None) -> None:
    users = dict(zip(TEAMS, itertools.cycle(("alice", "bob", "carol")), strict=False))
    slurm_says("sacctmgr", "-i", "add", "account", ",".join(TEAMS))
    for user in set(users.values()):
        accounts = ",".join(team for team in TEAMS if users[team] == user)
        slurm_says("sacctmgr", "-i", "add", "user", user, f"account={accounts}")
    try:
        with bridge.with_file(policy={"rules": [OF_TEAMS, *POLICY["rules"]]}):
            for team, user in users.items():
                labels = {PREFIX + "managed": "true", USER: user}
                kube.core.create_namespace({"metadata": {"name": team, "labels": labels}})
            eventually("each has its service account", lambda: namespaces_with_an_account(kube) >= set(TEAMS))
            for team in TEAMS:
                kube.run(team, "train")
            jobs = eventually("each has a job", lambda: all_of(slurm, TEAMS))
            assert {team: (job["user_name"], job["account"]) for team, job in jobs.items()} == {
                team: (users[team], team) for team in TEAMS
            }
            for team in TEAMS:
                kube.core.delete_collection_namespaced_pod(team)
                kube.core.delete_namespace(team)
            eventually("no job is left", lambda: not slurm.live("team-"))
    finally:
        eventually("no namespace is left", lambda: not [each for each in kube.namespaces() if each in TEAMS])
        slurm_says("sacctmgr", "-i", "delete", "account", ",".join(TEAMS))


def namespaces_with_an_account(kube: Kube) -> set[str]:
    return {each.metadata.namespace for each in kube.core.list_service_account_for_all_namespaces().items}


def all_of(slurm: Slurm, teams: list[str]) -> dict[str, dict[str, Any]]:
    """The live job of each team; {} while one has none."""
    found = {job["name"].partition("/")[0]: job for job in slurm.live("/train~")}
    return found if found.keys() >= set(teams) else {}


def test_a_priority_class_is_a_qos_and_an_annotation_wins_over_it(
    kube: Kube, slurm: Slurm, space: Space, tenants: None
) -> None:
    ns = space("alice")
    label(kube, ns, "alice", "teama")
    kube.run(ns, "urgent", spec={"priorityClassName": HIGH})
    kube.run(ns, "modest", spec={"priorityClassName": HIGH}, says={"qos": "low"})
    eventually("both run", lambda: len(kube.bound(ns)) == 2)
    assert [job["qos"] for job in slurm.live(f"{ns}/urgent~")] == ["high"]
    assert [job["qos"] for job in slurm.live(f"{ns}/modest~")] == ["low"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gpu": 3}, "The pods of the job ask for 3 gpu. Rule 1 of the policy"),
        ({"says": {"time-limit": "31"}}, 'time-limit: "31" asks for 31 minutes. Rule 1 of the policy'),
        ({"says": {"account": "teamb"}}, 'The account "teamb" is not allowed'),
    ],
    ids=["GPUs", "time", "account"],
)
def test_a_pod_beyond_the_limits_of_its_rule_is_refused_in_words(
    kube: Kube, slurm: Slurm, space: Space, tenants: None, options: dict[str, Any], sentence: str
) -> None:
    ns = space("alice")
    label(kube, ns, "alice", "teama")
    kube.run(ns, "greedy", **options)
    eventually("it says why", lambda: sentence in kube.said(ns, "greedy"))
    assert not slurm.live(f"{ns}/")


def test_a_label_that_is_missing_is_reported_and_once_it_is_there_the_pod_runs(
    kube: Kube, slurm: Slurm, space: Space, tenants: None
) -> None:
    ns = space("alice")
    label(kube, ns, None)
    kube.run(ns, "train")
    eventually("it says what is missing", lambda: f"has no label {USER}" in kube.said(ns, "train"))
    label(kube, ns, "alice", "teama")
    eventually("it runs", lambda: kube.bound(ns))


@pytest.mark.parametrize("user", ["root", "Root", "1000", "slurm"])
def test_no_label_makes_a_pod_root_or_slurm_itself(
    kube: Kube, slurm: Slurm, space: Space, tenants: None, user: str
) -> None:
    ns = space("alice")
    label(kube, ns, user, "teama")
    kube.run(ns, "mighty")
    eventually("it says why", lambda: f'with "{user}", which ' in kube.said(ns, "mighty"))
    assert not slurm.live(f"{ns}/")


def test_a_user_whom_slurm_does_not_know_is_reported_with_the_rule(
    kube: Kube, slurm: Slurm, space: Space, tenants: None
) -> None:
    ns = space("alice")
    label(kube, ns, "zoe", "teama")
    kube.run(ns, "train")
    eventually("it says who", lambda: 'gives here: user "zoe"' in kube.said(ns, "train"))
    assert "If not: sacctmgr add user zoe account=teama (" in kube.said(ns, "train")


def test_an_account_without_association_is_reported_with_the_rule_and_runs_once_there_is_one(
    kube: Kube, slurm: Slurm, space: Space, tenants: None, own_rig: None
) -> None:
    ns = space("alice")
    label(kube, ns, "alice", "teamb")
    kube.run(ns, "train")
    eventually("it says which", lambda: 'account "teamb"' in kube.said(ns, "train"))
    with associated("alice", "teamb"):
        label(kube, ns, "alice", "teama")  # who changes a label is asked again at once
        label(kube, ns, "alice", "teamb")
        eventually("it runs", lambda: kube.bound(ns))
        jobs = slurm.live(f"{ns}/train~")
        assert {job["user_name"] for job in jobs} == {"alice"}
        kube.core.delete_namespaced_pod("train", ns)
        eventually("its job is gone", lambda: not slurm.live(f"{ns}/"))


@pytest.mark.parametrize("account", ["teamb", "newcomers"])
def test_an_admin_runs_the_commands_in_the_pods_message_and_the_pod_runs(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, own_rig: None, account: str
) -> None:
    """Slurm has the account teamb, and not yet newcomers.  Nothing but accounts and associations changes."""
    ns = space("alice")
    label(kube, ns, "alice", account)
    with bridge.with_settings(policy=RULES, tuning={"refused_retry_s": 2.0}):
        kube.run(ns, "train")
        pattern = (
            r"What an admin can do: sacctmgr (?P<look>show association .*) shows if the user has the account. If not: "
            r"sacctmgr (?P<give>add user .*) \(before that, sacctmgr (?P<make>add account .*) if Slurm has no such account\)"
        )
        found = eventually("it says what to do", lambda: re.search(pattern, kube.said(ns, "train")))
        assert account not in slurm_says("sacctmgr", "-nP", *found["look"].split())
        if account not in slurm_says("sacctmgr", "-nP", "show", "account"):
            slurm_says("sacctmgr", "-i", *found["make"].split())
        slurm_says("sacctmgr", "-i", *found["give"].split())
        try:
            assert account in slurm_says("sacctmgr", "-nP", *found["look"].split())
            eventually("it runs", lambda: kube.bound(ns))
            kube.core.delete_namespaced_pod("train", ns)
            eventually("its job is gone", lambda: not slurm.live(f"{ns}/"))
        finally:
            slurm_says("sacctmgr", "-i", "delete", "user", "alice", f"account={account}")


def test_a_namespace_that_loses_its_label_keeps_its_pods_and_submits_nothing_new(
    kube: Kube, slurm: Slurm, space: Space, tenants: None
) -> None:
    ns = space("alice")
    label(kube, ns, "alice", "teama")
    kube.run(ns, "first")
    [before] = eventually("it runs", lambda: kube.bound(ns))
    label(kube, ns, None)
    kube.run(ns, "next")
    eventually("the next one says why it waits", lambda: f"has no label {USER}" in kube.said(ns, "next"))
    [still] = kube.bound(ns)
    assert still.metadata.uid == before.metadata.uid
    [job] = slurm.live(f"{ns}/")
    assert job["job_id"] == int(before.metadata.annotations[PREFIX + "job-id"])
    kube.core.delete_namespaced_pod("first", ns)
    eventually("its job ends with it", lambda: not slurm.live(f"{ns}/first~"))


def test_after_a_restart_a_pod_still_ends_with_the_job_of_the_user_whom_it_had(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess
) -> None:
    ns = space("alice")
    kube.run(ns, "train")
    [pod] = eventually("it runs", lambda: kube.bound(ns))
    job = int(pod.metadata.annotations[PREFIX + "job-id"])
    others = {"rules": [{"namespaces": ["alice-*"], "user": "bob"}, {"namespaces": ["bob-*"], "user": "alice"}]}
    with bridge.with_settings(policy=others):
        kube.run(ns, "next")
        eventually(
            "the next one is bob's", lambda: [each["user_name"] for each in slurm.live(f"{ns}/next~")] == ["bob"]
        )
        assert {each.metadata.name for each in kube.bound(ns)} >= {"train"}
        slurm.cancel(job)
        eventually("its pod ends", lambda: "train" not in {each.metadata.name for each in kube.bound(ns)})


def test_a_file_that_cannot_be_used_changes_nothing_and_is_reported(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess
) -> None:
    ns = space("alice")
    with bridge.with_file("policy: {rules: [{namespaces: [alice-*], user: root}]}"):
        eventually("it says so", lambda: "must be an ordinary Slurm user's name" in bridge.ask("readyz")[1])
        status, said = bridge.ask("readyz")
        assert status == 200
        assert "stays in force" in said
        [line] = [
            line for line in bridge.ask("metrics")[1].splitlines() if line.startswith("slurm_bridge_policy_rejected")
        ]
        assert line.endswith(" 1.0")
        kube.run(ns, "train")
        eventually("it runs", lambda: kube.bound(ns))
        assert {job["user_name"] for job in slurm.live(f"{ns}/")} == {"alice"}
    eventually("it is mended", lambda: bridge.ask("readyz")[1] == "ok\n")


def test_a_policy_is_checked_against_the_namespaces_and_the_associations_that_there_are(
    kube: Kube, slurm: Slurm, space: Space, tmp_path: Path
) -> None:
    fine, unknown, foreign, bare = (space("alice") for _ in range(4))
    label(kube, fine, "carol", "teamb")
    label(kube, unknown, "zoe", "teamb")
    label(kube, foreign, "alice", "teamb")
    label(kube, bare, None)
    by_name = {"namespaces": [fine], "user": "alice"}
    file = tmp_path / "settings.yaml"
    ends = {"slurm_url": slurm.url, "slurm_token_file": slurm.token_file}
    file.write_text(yaml.safe_dump(ends | {"policy": {"rules": [BY_LABEL, by_name, *POLICY["rules"]]}}))
    check = ("policy", "check", str(file), "--kubeconfig", kube.kubeconfig)

    code, text = ran(*check)
    said = " ".join(text.split())
    assert code == 2
    assert "The host of slurmctld has no user zoe" in said
    assert f"user \"zoe\" ({{namespace.labels['{USER}']}})" in said
    assert f"Concerned: {unknown}." in said
    assert 'Slurm does not accept account "teamb" from alice' in said
    assert "sacctmgr add user alice account=teamb" in said
    assert f"Concerned: {foreign}." in said
    assert f"Refused are pods of {bare}." in said
    assert f"namespace {bare} has no label {USER}" in said
    assert f"Rule 2 (namespaces {fine}) decides for no pod now" in said
    assert 'Slurm does not accept qos "high" from carol' in said
    assert "no user carol" not in said

    hidden = "decides for no pod now"  # in the namespaces that are asked about; it may decide in others
    asked = f"{bare},{TENANT}=yes,{USER}=alice,{ACCOUNT}=teama"
    code, text = ran(*check, "--namespace", asked)
    assert code == 0, text
    assert hidden not in text
    assert "1 namespace checked; Slurm users: alice" in " ".join(text.split())
    with associated("alice", "teamb"):
        code, text = ran(*check, "--namespace", f"{foreign},{TENANT}=yes,{USER}=alice,{ACCOUNT}=teamb")
    assert code == 0, text
    assert hidden not in text

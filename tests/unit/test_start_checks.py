"""What is refused at start, in one sentence, because it would do harm later."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bridge.connections import Connections, user_tokens
from bridge.errors import ConfigError
from bridge.kube.access import anonymous
from bridge.kube.transport import opened
from bridge.policy_file import privileged_user
from bridge.preflight.checks import check_slurm, token_lacks_node_rights, users_without_token
from bridge.settings import Settings
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken
from bridge.slurm.wire import API_VERSIONS
from scheduler.events import Side
from tests.in_process_slurm import InProcessSlurm

NOW = 1_800_000_000.0
SETTINGS = Settings.model_validate({"slurm_url": "http://127.0.0.1:6820"})


def client(cluster: SlurmCluster, user: str) -> SlurmClient:
    return SlurmClient(InProcessSlurm(cluster, lambda: NOW), LiteralToken(cluster.token(user)), clock=lambda: NOW)


async def test_a_token_from_which_others_jobs_are_hidden_is_refused() -> None:
    """Slurm would deny that the bridge's own jobs exist, with the number of a job that is gone."""
    cluster = SlurmCluster.example(started=NOW)
    cluster.slurm_conf = {"PrivateData": ["jobs"]}
    with pytest.raises(ConfigError, match="hides the jobs of other users from alice") as caught:
        await check_slurm(client(cluster, "alice"), SETTINGS, "alice")
    # sacctmgr modifies no user of whom accounting has no record; a user of whom it has one is not added again.
    assert "sacctmgr modify user alice set adminlevel=operator (" in caught.value.what
    assert "sacctmgr add user alice account=root adminlevel=operator)." in caught.value.what
    cluster.operators.add("alice")
    assert (await check_slurm(client(cluster, "alice"), SETTINGS, "alice")).responding
    assert (await check_slurm(client(cluster, "slurm"), SETTINGS, "slurm")).responding


async def test_with_a_token_for_each_user_the_bridges_own_token_is_not_mistaken_for_that_of_slurm_user(
    tmp_path: Path,
) -> None:
    cluster = SlurmCluster.example(started=NOW)
    own = Settings.model_validate({**SETTINGS.model_dump(), "slurm_user_token_dir": str(tmp_path)})
    assert (await check_slurm(client(cluster, "carol"), own, "carol")).slurm_user == "slurm"
    with_old_api = SlurmClient(
        InProcessSlurm(cluster, lambda: NOW),
        LiteralToken(cluster.token("carol")),
        versions=tuple(each for each in API_VERSIONS if each.name == "v0.0.44"),
    )
    assert (await check_slurm(with_old_api, own, "carol")).slurm_user == ""


def test_what_the_bridge_cannot_do_without_slurm_users_token_is_reported_once(tmp_path: Path) -> None:
    own = Settings.model_validate({"slurm_user_token_dir": str(tmp_path)})
    said = token_lacks_node_rights(own, "carol", "slurm(64030)")
    assert said is not None
    assert said.what.startswith("The Slurm token for nodes names user carol, not slurm. ")
    assert said.do.endswith("name a token of slurm in slurm_acting_token_file.")
    assert token_lacks_node_rights(own, "slurm", "slurm(64030)") is None
    assert token_lacks_node_rights(own, "carol", "") is None
    assert token_lacks_node_rights(Settings(), "carol", "slurm") is None, "one token acts for all: users tells"


def test_a_folder_of_tokens_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(ConfigError, match=f"^slurm_user_token_dir: {missing}: No such file or directory"):
        user_tokens(Settings.model_validate({"slurm_user_token_dir": str(missing)}))
    assert user_tokens(Settings()) is None


def test_users_whose_tokens_are_of_no_use_are_named_but_not_all_of_them(tmp_path: Path) -> None:
    rules = [{"namespaces": [f"n{number}"], "user": f"u{number}"} for number in range(8)]
    rules.append({"namespaces": ["t"], "user": "{namespace}"})
    settings = Settings.model_validate({"policy": {"rules": rules}, "slurm_user_token_dir": str(tmp_path)})
    users = user_tokens(settings)
    assert users is not None
    told = users_without_token(users, settings, NOW)
    assert told[0].startswith(f"token file {tmp_path}/u0: there is no such file.")
    assert told[-1] == "3 more Slurm users have no token that can be used."
    assert len(told) == 6


async def test_it_starts_though_a_partition_of_one_rule_is_gone_or_slurmdbd_is_away_and_none_is_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = SlurmCluster.example(started=NOW)
    policy = {"rules": [{"namespaces": ["hpc"], "user": "alice", "partition": {"default": "no-such"}}]}
    settings = Settings.model_validate({"slurm_url": "http://127.0.0.1:6820", "policy": policy})
    assert (await check_slurm(client(cluster, "slurm"), settings, "slurm")).accounting
    assert 'no partition "no-such"' in caplog.text
    caplog.clear()
    cluster.accounting_up = False
    assert (await check_slurm(client(cluster, "slurm"), settings, "slurm")).accounting
    assert "no partition" not in caplog.text


@pytest.mark.parametrize("conf", [{"SlurmUser": "hpcd"}, {"SlurmUser": "HPCd(64030)"}])
async def test_a_policy_that_makes_pods_the_user_by_whom_slurm_runs_is_refused(conf: dict[str, str]) -> None:
    cluster = SlurmCluster.example(started=NOW)
    cluster.slurm_conf = conf
    rules = [{"namespaces": ["a"], "user": "alice"}, {"namespaces": ["b"], "user": "hpcd"}]
    policy = {"slurm_url": "http://127.0.0.1:6820", "policy": {"rules": rules}}
    with pytest.raises(ConfigError, match="is the user that runs Slurm") as refused:
        await check_slurm(client(cluster, "slurm"), Settings.model_validate(policy), "slurm")
    assert str(refused.value).count(".") == 1, "one sentence"
    rules[1]["user"] = "bob"
    assert await check_slurm(client(cluster, "slurm"), Settings.model_validate(policy), "slurm")


async def test_if_slurm_does_not_show_its_user_the_tokens_user_counts_as_slurm_user() -> None:
    assert "is the user that runs Slurm" in privileged_user(
        Settings.model_validate({"policy": {"default": {"user": "slurm"}}}), "slurm"
    )
    assert privileged_user(Settings.model_validate({"policy": {"default": {"user": "alice"}}}), "slurm") == ""


async def test_the_notes_name_each_side_whose_renewed_credentials_cannot_be_used(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        file = tmp_path / "token"
        file.write_text("a.b.c")
        connections = Connections(Settings(slurm_url="https://slurm.example", slurm_token_file=str(file)), stack)
        access = anonymous("https://10.0.0.1")
        connections._transport = opened(access, stack)
        assert connections.troubles() == {Side.SLURM: "", Side.KUBERNETES: ""}
        connections.tls._trouble = "slurm_ca_file ca.pem: there is no certificate in it."
        assert connections.troubles() == {Side.SLURM: connections.tls.trouble, Side.KUBERNETES: ""}
        access.trouble = lambda: "kubeconfig k: its token is empty."
        assert connections.troubles()[Side.KUBERNETES] == "kubeconfig k: its token is empty."
        file.write_text("")
        said = connections.troubles()[Side.SLURM]
        assert said.startswith(
            f"{connections.tls.trouble} token file {file}: empty. The token that was read before stays"
        )

"""What is refused at start, in one sentence, because it would do harm later."""

from __future__ import annotations

import pytest

from bridge.app import check_slurm
from bridge.dev.slurm_cluster import SlurmCluster
from bridge.dev.slurm_transport import InProcessSlurm
from bridge.errors import ConfigError
from bridge.policy_file import privileged_user
from bridge.settings import Settings
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken

NOW = 1_800_000_000.0
SETTINGS = Settings.model_validate({"slurm_url": "http://127.0.0.1:6820"})


def client(cluster: SlurmCluster, user: str) -> SlurmClient:
    return SlurmClient(InProcessSlurm(cluster, lambda: NOW), LiteralToken(cluster.token(user)), clock=lambda: NOW)


async def test_a_token_from_which_others_jobs_are_hidden_is_refused() -> None:
    """Slurm would deny that the bridge's own jobs exist, with the number of a job that is gone."""
    cluster = SlurmCluster.example(started=NOW)
    cluster.slurm_conf = {"PrivateData": ["jobs"]}
    with pytest.raises(ConfigError, match="hides the jobs of other users from alice"):
        await check_slurm(client(cluster, "alice"), SETTINGS, "alice")
    cluster.operators.add("alice")
    assert (await check_slurm(client(cluster, "alice"), SETTINGS, "alice")).responding
    assert (await check_slurm(client(cluster, "slurm"), SETTINGS, "slurm")).responding


async def test_it_starts_while_slurmdbd_is_away_and_partitions_are_not_told() -> None:
    cluster = SlurmCluster.example(started=NOW)
    policy = {"rules": [{"namespaces": ["hpc"], "user": "alice", "partition": {"default": "no-such"}}]}
    settings = Settings.model_validate({"slurm_url": "http://127.0.0.1:6820", "policy": policy})
    with pytest.raises(ConfigError, match='no partition "no-such"'):
        await check_slurm(client(cluster, "slurm"), settings, "slurm")
    cluster.accounting_up = False
    assert (await check_slurm(client(cluster, "slurm"), settings, "slurm")).accounting


@pytest.mark.parametrize("conf", [{"SlurmUser": "hpcd"}, {"SlurmUser": "HPCd(64030)"}])
async def test_a_policy_that_makes_pods_the_user_by_whom_slurm_runs_is_refused(conf: dict[str, str]) -> None:
    cluster = SlurmCluster.example(started=NOW)
    cluster.slurm_conf = conf
    rules = [{"namespaces": ["a"], "user": "alice"}, {"namespaces": ["b"], "user": "hpcd"}]
    policy = {"slurm_url": "http://127.0.0.1:6820", "policy": {"rules": rules}}
    with pytest.raises(ConfigError, match="is the user by whom Slurm runs") as refused:
        await check_slurm(client(cluster, "slurm"), Settings.model_validate(policy), "slurm")
    assert str(refused.value).count(".") == 1, "one sentence"
    rules[1]["user"] = "bob"
    assert await check_slurm(client(cluster, "slurm"), Settings.model_validate(policy), "slurm")


async def test_where_slurm_does_not_tell_its_user_the_tokens_user_is_taken_for_it() -> None:
    assert "is the user by whom Slurm runs" in privileged_user(
        Settings.model_validate({"policy": {"default": {"user": "slurm"}}}), "slurm"
    )
    assert privileged_user(Settings.model_validate({"policy": {"default": {"user": "alice"}}}), "slurm") == ""

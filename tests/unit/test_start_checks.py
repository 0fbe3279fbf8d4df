"""What is refused at start, in one sentence, because it would do harm later."""

from __future__ import annotations

import pytest

from bridge.app import check_slurm
from bridge.dev.slurm_cluster import SlurmCluster
from bridge.dev.slurm_transport import InProcessSlurm
from bridge.errors import ConfigError
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

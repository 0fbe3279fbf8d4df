"""Both simulated clusters behind real HTTP, and the doctor's look at them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from bridge.cli.doctor.command import GROUPS
from bridge.cli.doctor.findings import Finding, Level, findings
from bridge.cli.doctor.look import look
from bridge.simulation.http import serve_kube, serve_slurm
from bridge.simulation.kube import objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimPartition, SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from scheduler import names

MANAGED = {names.MANAGED_LABEL: "true"}
POLICY: dict[str, Any] = {
    "rules": [
        {
            "namespaces": ["hpc"],
            "user": "alice",
            "account": {"default": "teama"},
            "partition": {"allowed": ["main"]},
        }
    ]
}


class Both:
    """A healthy pair, to be spoilt by a test before it is looked at."""

    def __init__(self, folder: Path) -> None:
        now = time.time()
        self.folder = folder
        self.kube = KubeCluster(1)
        self.slurm = SlurmCluster(
            [SlurmSimNode(name, devices={("gpu", "h100"): 4}, cpus=8, memory_mib=16_000) for name in ("x1", "x2")],
            (SimPartition("main", default_time_min=60, default=True), SimPartition("empty")),
            (SimUser("alice", ("teama",)), SimUser("slurm", ("root",))),
            started=now,
        )
        self.token = self.slurm.token("slurm")
        self.settings: dict[str, Any] = {"policy": POLICY, "http": ""}
        self.environment: dict[str, str] = {}
        for name in ("x1", "x2"):
            self.add_node(name)
        self.kube.create(now, "namespaces", objects.namespace("hpc", MANAGED))

    def add_node(self, name: str, *, cpu: str = "8") -> None:
        self.kube.create(time.time(), "nodes", objects.node(name, cpu=cpu, memory="32Gi", **{"nvidia.com/gpu": "4"}))

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Mapping[str, str | None]]:
        """The options that lead there."""
        kube = InProcessKube(self.kube, time.time)
        async with serve_kube(kube) as kube_url, serve_slurm(self.slurm, time.time) as slurm_url:
            config, access, token = (self.folder / name for name in ("settings.yaml", "kubeconfig", "token"))
            config.write_text(yaml.safe_dump({"slurm_url": slurm_url, **self.settings}))
            access.write_text(yaml.safe_dump(kubeconfig(kube_url)))
            token.write_text(self.token)
            token.chmod(0o600)
            yield {"config": str(config), "kubeconfig": str(access), "slurm_token_file": str(token)}

    async def findings(self, **options: str | None) -> list[Finding]:
        """What the doctor finds.  Each problem comes with advice (O5)."""
        async with self.served() as served:
            found = list(findings(GROUPS, await look({**served, **options}, self.environment)))
        problems = [each for each in found if each.level in (Level.ERROR, Level.WARNING)]
        assert [each for each in problems if not each.do and "Renew it" not in each.sentence] == []
        return found


def kubeconfig(server: str) -> dict[str, Any]:
    """The access of a cluster without authentication."""
    return {
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "users": [{"name": "me", "user": {}}],
    }


def said(found: list[Finding], check: str, level: Level) -> list[str]:
    """The sentences of that check and level."""
    return [each.sentence for each in found if each.check == check and each.level is level]


def troubles(found: list[Finding]) -> list[tuple[str, Level]]:
    """Every check that is not well."""
    return [(each.check, each.level) for each in found if each.level in (Level.WARNING, Level.ERROR)]

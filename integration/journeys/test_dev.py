"""`slurm-bridge dev` with real ends: the same pods, the same invariants, nothing left behind, nothing else disturbed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from integration.checker import journal
from integration.clusters import IMAGE, PREFIX, BridgeProcess, Kube, Slurm, eventually
from tests.patience import PATIENCE_S

Space = Callable[[str], str]
SPACE = "slurm-bridge-dev"
PODS = 3


def begins(*ends: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "bridge",
        "dev",
        "--headless",
        "--output=json",
        "--pods",
        str(PODS),
        *ends,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ends_well(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, complaints = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaints) == (0, ""), said + complaints
    result: dict[str, Any] = json.loads(said)
    assert (result["bound"], result["ended"], result["failed"], result["violations"]) == (PODS, PODS, 0, 0), result
    assert all(result["checked"][invariant] >= PODS for invariant in ("V1", "V2", "V3", "V5", "V8")), result["checked"]
    assert result["create_to_bind_ms"]["all"]["n"] == PODS
    return result


def test_dev_on_real_clusters_beside_a_bridge_that_works_there(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess
) -> None:
    ns = space("alice")
    kube.run(ns, "resident")
    eventually("the other bridge has bound its pod", lambda: kube.bound(ns))
    job = int(kube.pod(ns, "resident").metadata.annotations[PREFIX + "job-id"])
    real_slurm = ("--slurm-url", slurm.url, "--slurm-token-file", slurm.token_file, "--slurm-user", "alice")
    real_kube = ("--kubeconfig", kube.kubeconfig, "--image", IMAGE)

    journal.policy({"rules": [{"namespaces": [SPACE], "user": "alice"}]}, scheduler=SPACE)
    with (
        journal.breaking("V6", "hpc/*", "they are placeholders of a simulated Kubernetes, and its bridge ends them"),
        journal.breaking("V7", f"{SPACE}/serve-*", "dev cancels the job of a service, as the user who owns it"),
    ):
        both_real, slurm_real = begins(*real_kube, *real_slurm), begins(*real_slurm)
        ends_well(both_real)
        ends_well(slurm_real)
    assert not slurm.live(f"{SPACE}/"), "its jobs are gone"
    assert not slurm.live("hpc/"), "those of its simulated Kubernetes too"
    with journal.breaking("V2", f"{SPACE}/*", "its jobs are those of a simulated Slurm"):
        ends_well(begins(*real_kube))

    assert "RUNNING" in slurm.job(job)["job_state"], "the other bridge's job, of the same user, lives on"
    assert [pod.metadata.name for pod in kube.bound(ns)] == ["resident"]
    gone = "the namespace that it made is gone"
    eventually(gone, lambda: SPACE not in [each.metadata.name for each in kube.core.list_namespace().items])

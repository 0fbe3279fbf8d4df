"""`slurm-bridge doctor` and `slurm-bridge explain`, as an admin types them, on real clusters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.clusters import BridgeProcess, Kube, Slurm, eventually, free_port, pod
from integration.journeys.conftest import POLICY

Space = Callable[[str], str]
# What the rig has on purpose, and what other journeys may be about on the same clusters.
KNOWN_WARNINGS = {"preemption", "sizes", "others' pods", "nodes", "tenants", "addresses", "bridge", "token"}


def ran(*arguments: str, given: str = "") -> tuple[int, str]:
    """Exit code and what it said; never a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "bridge", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"COLUMNS": "100"},
        input=given,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def ends(kube: Kube, slurm: Slurm, tmp_path: Path) -> list[str]:
    """The options of both commands, with the policy that the bridge of these journeys has."""
    return options(tmp_path, kube, slurm, POLICY)


def options(folder: Path, kube: Kube, slurm: Slurm, policy: Any) -> list[str]:
    settings = folder / "settings.yaml"
    settings.write_text(yaml.safe_dump({"slurm_url": slurm.url, "policy": policy, "http": f"127.0.0.1:{free_port()}"}))
    return ["--config", str(settings), "--kubeconfig", kube.kubeconfig, "--slurm-token-file", slurm.token_file]


def findings(*arguments: str) -> tuple[int, list[dict[str, str]]]:
    code, said = ran("doctor", "-o", "json", *arguments)
    found = json.loads(said)
    assert found["exit_code"] == code
    return code, found["findings"]


def sentences(found: list[dict[str, str]], check: str, level: str) -> str:
    return " ".join(each["sentence"] for each in found if (each["check"], each["level"]) == (check, level))


@contextmanager
def jobs_left_as_they_are(slurm: Slurm) -> Iterator[None]:
    """No job is made, and none that lives goes; slurmctld itself forgets a job that ended MinJobAge ago."""
    live, known = _ids(slurm.live()), _ids(slurm.jobs())
    yield
    assert live <= _ids(slurm.jobs()) <= known


def _ids(jobs: list[dict[str, Any]]) -> set[int]:
    return {job["job_id"] for job in jobs}


# --- doctor ---------------------------------------------------------------------------------------------------------


def test_a_healthy_pair_has_at_most_warnings_that_are_known_and_is_left_as_it_was(
    space: Space, ends: list[str], slurm: Slurm
) -> None:
    space("alice")  # a pair without a managed namespace would be warned of that
    with jobs_left_as_they_are(slurm):
        code, found = findings(*ends)
    assert code in (0, 1), [each for each in found if each["level"] == "error"]
    assert {each["check"] for each in found if each["level"] == "warning"} <= KNOWN_WARNINGS
    assert "may act for alice, bob" in sentences(found, "users", "ok")
    if os.environ.get("RIG_NAME"):  # its partition lowgrace is made to do that
        assert "in partition lowgrace" in sentences(found, "preemption", "warning")


def test_a_token_that_slurm_does_not_accept(ends: list[str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJzbHVybSJ9.bm8")
    wrong.chmod(0o600)
    code, said = ran("doctor", *ends, "--slurm-token-file", str(wrong))
    assert code == 2
    assert all(len(line) <= 100 or str(tmp_path) in line for line in said.splitlines())
    told = " ".join(said.split())
    assert "Protocol authentication error" in told
    assert "not checked, since Slurm does not accept the token: " in told
    assert "eyJ" not in said


def test_a_policy_that_slurm_would_not_follow(kube: Kube, slurm: Slurm, tmp_path: Path, own_rig: None) -> None:
    rules = [
        {"namespaces": ["a"], "user": "alice", "account": {"allowed": ["teama", "teamb"]}},
        {"namespaces": ["z"], "user": "zoe-who-is-nobody"},
    ]
    found = options(tmp_path, kube, slurm, {"rules": rules})
    code, rows = findings(*found)
    assert code == 2
    assert "has no user zoe-who-is-nobody" in sentences(rows, "users", "error")
    assert 'Slurm does not accept account "teamb" from alice' in sentences(rows, "choices", "error")
    bobs = str(Path(os.environ["RIG_TOKENS"]) / "bob")
    _, rows = findings(*found, "--slurm-token-file", bobs)
    assert "The token of bob may not act for alice" in sentences(rows, "users", "error")


# --- explain --------------------------------------------------------------------------------------------------------


def test_a_waiting_pod(space: Space, kube: Kube, bridge: BridgeProcess, ends: list[str], full: None) -> None:
    namespace = space("alice")
    kube.run(namespace, "train", gpu=1, says={"partition": "gpu"})
    eventually("it waits", lambda: "SlurmJobPending" in kube.said(namespace, "train"))
    code, said = ran("explain", "train", "-n", namespace, "--bridge", f"http://127.0.0.1:{bridge.port}", *ends)
    assert code == 0, said
    assert said.startswith(f"Pod {namespace}/train: Pending\n  Waiting in Slurm partition gpu (")
    assert "queueing in Slurm partition gpu as alice" in said, "the bridge's own story"
    assert "SlurmJobSubmitted: " in said, "and Kubernetes' events"
    code, said = ran("explain", "train", "-n", namespace, *ends)
    assert code == 0, said
    assert said.startswith(f"Pod {namespace}/train: Pending\n  Waiting in Slurm partition gpu (")
    assert "Both clusters were asked instead; they lack the facts that only a bridge remembers." in " ".join(
        said.split()
    )


def test_a_bound_pod(space: Space, kube: Kube, bridge: BridgeProcess, ends: list[str]) -> None:
    namespace = space("alice")
    kube.run(namespace, "train", gpu=1)
    [bound] = eventually("it is bound", lambda: kube.bound(namespace))
    for more in ([], ["--bridge", f"http://127.0.0.1:{bridge.port}"]):
        code, said = ran("explain", "pod/train", "-n", namespace, *ends, *more)
        assert code == 0, said
        assert f"  It is on node {bound.spec.node_name} for Slurm job " in said
        assert f"1 gpu:h100 on {bound.spec.node_name}" in said


def test_manifests_that_fit_that_cannot_run_and_that_slurm_would_refuse(
    space: Space, ends: list[str], slurm: Slurm
) -> None:
    namespace = space("alice")
    wanted = (manifest("train", gpu=1), manifest("big", cpu="1000"), manifest("choosy", says={"constraints": "nope"}))
    with jobs_left_as_they_are(slurm):
        code, said = ran("explain", "-f", "-", "-n", namespace, *ends, given="---\n".join(wanted))
    assert code == 1, said
    train, big, refused = said.split("\n\nPod ")
    assert "Slurm would accept it: " in train
    assert "Its job would not be submitted. 0/" in big
    assert "with too little cpu in all" in big
    why = "no node of Slurm has such a feature (annotation constraints)"
    in_one_line = " ".join(refused.split())
    assert f"Slurm would refuse it: Invalid feature specification: {why} (error 2029)." in in_one_line


def manifest(name: str, **options: Any) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod(name, **options)})


def test_a_pod_that_is_not_there_is_one_line(ends: list[str]) -> None:
    code, said = ran("explain", "nope", *ends)
    assert code == 2
    [line] = said.splitlines()
    assert line.startswith("slurm-bridge: No bridge answers at http://127.0.0.1:")
    assert line.endswith("Both clusters were asked instead: there is no pod default/nope; name its namespace with -n.")

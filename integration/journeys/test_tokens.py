"""A token for each Slurm user, on a real slurmrestd: the bridge has none that may name other users.

The bridge's own token is of a user without any account in Slurm, who can read and submit nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from bridge.mint.token import minted
from bridge.slurm.token import claims_of
from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually, slurm_says
from integration.journeys.conftest import POLICY
from integration.journeys.test_doctor_explain import findings, sentences

Space = Callable[[str], str]
READER = "daemon"  # a user of slurmctld's host, and nothing in Slurm
LIFETIME_S = 20
HOUR_S = 3600

pytestmark = pytest.mark.usefixtures("own_rig")


class Tokens:
    """The folder of the users' tokens, and Slurm's key, with which a journey makes what it needs."""

    def __init__(self, folder: Path) -> None:
        self.users = folder / "users"
        self.users.mkdir()
        self.reader = folder / "reader"
        self.key_file = Path(os.environ["RIG_STATE"], "slurm", "etc", "jwt_hs256.key")
        _write(self.reader, self.make(READER))

    def make(self, user: str, lifetime_s: int = HOUR_S, ago_s: int = 0) -> str:
        return minted(self.key_file.read_bytes(), user, int(time.time()) - ago_s, lifetime_s)

    def give(self, user: str, token: str = "") -> None:
        """In one step, as a mounted Secret is renewed."""
        _write(self.users / user, token or self.make(user))

    def all_made(self) -> list[str]:
        return [path.read_text().strip() for path in (self.reader, *self.users.iterdir())]


def _write(path: Path, token: str) -> None:
    new = path.with_name(f".{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(token + "\n")
    new.replace(path)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module", autouse=True)
def own_tokens(bridge: BridgeProcess, tokens: Tokens) -> Iterator[None]:
    """The bridge runs with the tokens of alice and bob, and a third that may only read."""
    for user in ("alice", "bob"):
        tokens.give(user)
    with bridge.with_settings(slurm_token_file=str(tokens.reader), slurm_user_token_dir=str(tokens.users)):
        yield
    said = bridge.log.read_text()
    assert not [token for token in tokens.all_made() if token in said]


@pytest.fixture(autouse=True)
def whole_again(tokens: Tokens) -> Iterator[None]:
    yield
    for user in ("alice", "bob"):
        tokens.give(user)


def squeue(namespace: str) -> set[tuple[str, str]]:
    """User and state of the jobs of that namespace."""
    lines = [line.split() for line in slurm_says("squeue", "-h", "-o", "%u %T %j").splitlines()]
    return {(user, state) for user, state, name in lines if name.startswith(f"{namespace}/")}


def may_read_alone(slurm: Slurm, tokens: Tokens) -> bool:
    """The bridge's own token makes no job, and ends none."""
    headers = {"X-SLURM-USER-TOKEN": tokens.reader.read_text().strip(), "X-SLURM-USER-NAME": "alice"}
    answer = requests.get(f"{slurm.url}/slurm/v0.0.45/jobs/state/", headers=headers, timeout=60).json()
    return [each["error_number"] for each in answer["errors"]] == [1007]


def test_pods_of_two_users_run_and_end_with_their_own_tokens(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, tokens: Tokens
) -> None:
    assert may_read_alone(slurm, tokens)
    spaces = {user: space(user) for user in ("alice", "bob")}
    for ns in spaces.values():
        for name in ("deleted", "done"):
            kube.run(ns, name)
    eventually("all run", lambda: all(len(kube.bound(ns)) == 2 for ns in spaces.values()))
    done: dict[str, int] = {}
    for user, ns in spaces.items():
        assert squeue(ns) == {(user, "RUNNING")}
        done[user] = int(kube.pod(ns, "done").metadata.annotations[PREFIX + "job-id"])
        kube.succeed(ns, "done")
        kube.core.delete_namespaced_pod("deleted", ns)
    for user, ns in spaces.items():
        eventually(f"the jobs of {user} are ended", lambda ns=ns: not squeue(ns))  # type: ignore[misc]
        comment = eventually("how the pod ended is recorded", lambda user=user: _comment(slurm, done[user]))  # type: ignore[misc]
        assert f"{ns}/done" in comment
    assert bridge.ask("readyz") == (200, "ok\n")


def _comment(slurm: Slurm, job_id: int) -> str:
    comment: str = slurm.accounted(job_id).get("comment", {}).get("job", "")
    return comment if "/done: Succeeded" in comment else ""


def test_a_pod_that_waits_is_changed_and_withdrawn(kube: Kube, slurm: Slurm, space: Space, full: None) -> None:
    ns = space("alice")
    kube.run(ns, "train", gpu=1, says={"partition": "gpu"})
    eventually("it waits", lambda: "SlurmJobPending" in kube.said(ns, "train"))
    kube.core.patch_namespaced_pod("train", ns, {"metadata": {"annotations": {PREFIX + "time-limit": "7"}}})
    eventually("the job has the new limit", lambda: slurm.live(f"{ns}/train~")[0]["time_limit"]["number"] == 7)
    kube.core.delete_namespaced_pod("train", ns)
    eventually("the job is withdrawn", lambda: not squeue(ns))


def missing(tokens: Tokens) -> None:
    (tokens.users / "alice").unlink()


def unreadable(tokens: Tokens) -> None:
    (tokens.users / "alice").unlink()
    (tokens.users / "alice").mkdir()


def expired(tokens: Tokens) -> None:
    tokens.give("alice", tokens.make("alice", 60, ago_s=600))


def swapped(tokens: Tokens) -> None:
    tokens.give("alice", tokens.make("bob"))


def of_another_cluster(tokens: Tokens) -> None:
    tokens.give("alice", minted(b"another key of 32 bytes or so ...", "alice", int(time.time()), HOUR_S))


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (missing, "there is no such file."),
        (unreadable, "Is a directory."),
        (expired, "expired 9 min ago."),
        (swapped, "it is a token of bob, not of alice."),
        (of_another_cluster, "Slurm does not accept it (error 1007)."),
    ],
    ids=lambda each: each.__name__ if callable(each) else None,
)
def test_a_token_that_is_of_no_use_keeps_only_its_own_users_pods_waiting(
    kube: Kube,
    slurm: Slurm,
    space: Space,
    bridge: BridgeProcess,
    tokens: Tokens,
    break_it: Callable[[Tokens], None],
    sentence: str,
) -> None:
    alice, bob = space("alice"), space("bob")
    kube.run(alice, "before")
    eventually("it runs", lambda: kube.bound(alice))
    break_it(tokens)
    kube.run(alice, "after")
    found = eventually("the pod says what is wrong", lambda: _refused(kube, alice, "after"))
    file = tokens.users / "alice"
    assert f"slurm-bridge cannot act as Slurm user alice: token file {file}: {sentence}" in found
    assert found.endswith(
        "Put a token of alice there: scontrol token username=alice lifespan=3600, as root or SlurmUser."
    )
    kube.run(bob, "train")
    eventually("bob's pod runs", lambda: kube.bound(bob))
    kube.core.delete_namespaced_pod("train", bob)
    eventually("bob's job is ended", lambda: not squeue(bob))
    assert [pod.metadata.name for pod in kube.bound(alice)] == ["before"], "a pod that runs is left in peace"
    status, said = bridge.ask("readyz")
    assert (status, said.count("cannot act as Slurm user")) == (200, 1)
    kube.core.delete_namespaced_pod("before", alice)
    eventually("it is gone", lambda: [pod.metadata.name for pod in kube.pods(alice)] == ["after"])
    if file.is_dir():
        file.rmdir()
    tokens.give("alice")
    eventually("it runs", lambda: kube.bound(alice))
    eventually("the job of the one that ended is ended, too", lambda: len(squeue_jobs(slurm, alice)) == 1)
    eventually("nothing is wrong", lambda: bridge.ask("readyz") == (200, "ok\n"))


def squeue_jobs(slurm: Slurm, namespace: str) -> list[str]:
    return [job["name"] for job in slurm.live(f"{namespace}/")]


def _refused(kube: Kube, namespace: str, name: str) -> str:
    said = kube.said(namespace, name)
    return said if "cannot act as" in said else ""


def test_doctor_says_whose_token_is_of_no_use(kube: Kube, slurm: Slurm, tokens: Tokens, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    lines = {"slurm_url": slurm.url, "slurm_token_file": str(tokens.reader), "slurm_user_token_dir": str(tokens.users)}
    settings.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()) + f"policy: {POLICY}\n")
    options = ["--config", str(settings), "--kubeconfig", kube.kubeconfig]
    _, found = findings(*options)
    assert f"{tokens.users} has tokens of alice, bob" in sentences(found, "token", "ok")
    assert "their own tokens may act for alice, bob" in sentences(found, "users", "ok")
    assert f"The Slurm token for nodes names user {READER}, not slurm" in sentences(found, "token", "warning")
    swapped(tokens)
    code, found = findings(*options)
    assert code == 2
    assert "it is a token of bob, not of alice. Pods of alice are not run." in sentences(found, "token", "error")
    assert "their own tokens may act for bob" in sentences(found, "users", "ok")
    assert "alice has no token that can be used" in sentences(found, "users", "unknown")


# --- minted ----------------------------------------------------------------------------------------------------------


@contextmanager
def minting(tokens: Tokens, folder: Path, *users: str) -> Iterator[Path]:
    """A mint for these users; the folder where the tokens are, once they are there."""
    folder.mkdir()
    command = [sys.executable, "-m", "bridge", "mint", "--key", str(tokens.key_file), "--out", str(folder)]
    command += [word for user in users for word in ("--user", user)]
    with (folder.parent / "mint.log").open("ab") as log:
        process = subprocess.Popen([*command, "--lifetime", str(LIFETIME_S)], stdout=log, stderr=log)
        try:
            eventually("the tokens are there", lambda: all((folder / user).is_file() for user in users))
            yield folder
        finally:
            process.terminate()
            assert process.wait(30) == 0, (folder.parent / "mint.log").read_text()


def ends_at(folder: Path, user: str) -> float:
    found = claims_of((folder / user).read_text().strip()).exp
    assert found is not None
    return found


def test_with_minted_tokens_the_bridge_works_for_longer_than_they_live(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, tokens: Tokens, tmp_path: Path
) -> None:
    """All three of its tokens are renewed under it: its own, alice's and bob's."""
    folder = tmp_path / "minted"
    with (
        minting(tokens, folder, READER, "alice", "bob"),
        bridge.with_settings(slurm_token_file=str(folder / READER), slurm_user_token_dir=str(folder)),
    ):
        spaces = {user: space(user) for user in ("alice", "bob")}
        first = {user: ends_at(folder, user) for user in (READER, *spaces)}
        began, number = time.time(), 0
        while time.time() < max(first.values()) + LIFETIME_S:
            for ns in spaces.values():
                kube.run(ns, f"p{number}")
            eventually("both run", lambda: all(kube.bound(ns) for ns in spaces.values()))
            for ns in spaces.values():
                kube.core.delete_namespaced_pod(f"p{number}", ns)
            eventually("both jobs are ended", lambda: not any(squeue(ns) for ns in spaces.values()))
            number += 1
        assert time.time() - began > 1.5 * LIFETIME_S
        assert number > 1
        assert all(ends_at(folder, user) > time.time() > end for user, end in first.items()), (
            "renewed, and needed to be"
        )
        assert bridge.ask("readyz") == (200, "ok\n")
        print(f"{2 * number} pods ran and ended in {time.time() - began:.0f} s with tokens that live {LIFETIME_S} s")

"""`slurm-bridge run` with a token for each user, between simulated clusters: one user's token goes, and comes back."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from bridge.simulation.kube import objects
from bridge.simulation.slurm.jobs import SimUser
from tests.patience import PATIENCE_S
from tests.unit.doctor.clusters import MANAGED, POLICY, Both
from tests.unit.processes import Process, create_pod, running, until

USERS = {"hpc": "alice", "bobs": "bob"}


class Two(Both):
    """A pair with two tenants, each with a token of its own; the bridge's own token is of carol, who may only read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for user in ("bob", "carol"):
            self.slurm.users[user] = SimUser(user, ("teama",))
        self.kube.create(0, "namespaces", objects.namespace("bobs", MANAGED))
        self.settings["policy"] = {"rules": [*POLICY["rules"], {"namespaces": ["bobs"], "user": "bob"}]}
        self.token = self.slurm.token("carol")
        self.tokens = folder / "users"
        self.tokens.mkdir(mode=0o700)
        for user in USERS.values():
            self.give(user)

    def give(self, user: str, token: str = "") -> None:
        new = self.tokens / ".new"
        new.touch(mode=0o600)
        new.write_text(token or self.slurm.token(user))
        new.replace(self.tokens / user)

    async def is_bound(self, namespace: str, name: str) -> bool:
        found = self.kube.store.get("pods", namespace, name)
        return found is not None and bool(found["spec"].get("nodeName"))

    async def says(self, namespace: str, name: str) -> str:
        found = self.kube.store.get("pods", namespace, name)
        assert found is not None
        conditions = found["status"].get("conditions", ())
        return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), "")

    def live(self) -> dict[str, str]:
        """Users of the jobs that have not ended, by name of the pod."""
        return {job.name.partition("~")[0]: job.user for job in self.slurm.jobs.values() if not job.ended}


async def ready(bridge: Process) -> bool:
    return await bridge.get("/readyz") == (200, "ok\n")


async def test_what_becomes_of_one_users_token_is_that_users_alone(tmp_path: Path) -> None:
    both = Two(tmp_path)
    async with (
        both.served() as options,
        running(tmp_path, options, slurm_user_token_dir=str(both.tokens), poll_interval_s=0.2) as bridge,
    ):
        await until(lambda: ready(bridge), "the bridge is ready")
        for namespace in USERS:
            await create_pod(options, objects.pod(namespace, "first"))
        await until(lambda: both.is_bound("hpc", "first"), "alice's pod is bound")
        await until(lambda: both.is_bound("bobs", "first"), "bob's pod is bound")
        assert both.live() == {"hpc/first": "alice", "bobs/first": "bob"}
        both.give("alice", both.slurm.token("bob"))
        await create_pod(options, objects.pod("hpc", "second"))
        await until(lambda: _tells(both, "it is a token of bob, not of alice."), "the pod says what is wrong")
        await create_pod(options, objects.pod("bobs", "second"))
        await until(lambda: both.is_bound("bobs", "second"), "bob's pods go on")
        status, said = await bridge.get("/readyz")
        assert (status, said.count("cannot act as Slurm user alice")) == (200, 1)
        await until(lambda: _counts(bridge, 1), "the metric tells")
        assert await both.is_bound("hpc", "first")
        assert not await both.is_bound("hpc", "second")
        both.give("alice")
        await until(lambda: both.is_bound("hpc", "second"), "alice's pod is bound")
        await until(lambda: ready(bridge), "nothing is wrong")
        await until(lambda: _counts(bridge, 0), "the metric tells")
    assert set(both.live().values()) == {"alice", "bob"}
    assert "The Slurm token for nodes names user carol, not slurm." in bridge.log
    assert "Traceback" not in bridge.log
    assert not [token for token in map(both.slurm.token, (*USERS.values(), "carol")) if token in bridge.log]


async def _tells(both: Two, what: str) -> bool:
    said = await both.says("hpc", "second")
    return f"slurm-bridge cannot act as Slurm user alice: token file {both.tokens}/alice: {what}" in said


async def _counts(bridge: Process, users: int) -> bool:
    _, text = await bridge.get("/metrics")
    found = re.findall(r"^slurm_bridge_users_without_token(?:\{.*\})? ([\d.]+)$", text, re.MULTILINE)
    return [float(each) for each in found] == [users]


async def test_a_broken_token_file_of_the_bridge_is_reported_and_keeps_it_ready_while_the_token_before_works(
    tmp_path: Path,
) -> None:
    both = Both(tmp_path)
    async with both.served() as options, running(tmp_path, options, poll_interval_s=0.2) as bridge:
        await until(lambda: ready(bridge), "the bridge is ready")
        (tmp_path / "token").write_text("")
        status, said = await bridge.get("/readyz")
        assert status == 200
        assert said.startswith(f"ok\ntoken file {tmp_path}/token: empty. The token that was read before stays in use.")
        metrics = (await bridge.get("/metrics"))[1].splitlines()
        [rejected] = [each for each in metrics if each.startswith("slurm_bridge_cred") and 'side="Slurm"' in each]
        assert rejected.endswith(" 1.0")
        await create_pod(options, objects.pod("hpc", "first"))
        await until(lambda: bound(both), "the pod is bound")
        (tmp_path / "token").write_text(both.token)
        await until(lambda: ready(bridge), "nothing is wrong")
    assert "The token that was read before stays in use." in bridge.log
    assert both.token not in bridge.log


async def bound(both: Both) -> bool:
    found = both.kube.store.get("pods", "hpc", "first")
    return found is not None and bool(found["spec"].get("nodeName"))


async def test_a_user_without_a_token_is_reported_at_start_and_a_missing_folder_ends_it(tmp_path: Path) -> None:
    both = Two(tmp_path)
    (both.tokens / "bob").unlink()
    async with both.served() as options:
        async with running(tmp_path, options, slurm_user_token_dir=str(both.tokens)) as bridge:
            await until(bridge.is_ready, "the bridge is ready")
            said = (await bridge.get("/readyz"))[1]
        assert f"token file {both.tokens}/bob: there is no such file." in said
        assert f"token file {both.tokens}/bob: there is no such file." in bridge.log
        async with running(tmp_path, options, slurm_user_token_dir=str(tmp_path / "none")) as bridge:
            assert await asyncio.wait_for(bridge.process.wait(), PATIENCE_S) == 2
        assert f"slurm_user_token_dir: {tmp_path}/none: No such file or directory." in bridge.log

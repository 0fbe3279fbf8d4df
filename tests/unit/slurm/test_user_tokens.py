"""A token for each Slurm user: used for that user alone, strict about whose it is, and an error of that user alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.errors import ConfigError, Invalid, NoUserToken
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken
from bridge.slurm.user_tokens import UserTokens, follow
from scheduler.events import Event, TokenMissing, TokenUsable
from scheduler.model.slurm import JobSpec
from tests.unit.slurm.test_client import NOW, Witness
from tests.unit.slurm.test_token import jwt

DO = "Put a token of alice there: scontrol token username=alice lifespan=3600, as root or SlurmUser."


def give(folder: Path, user: str, token: str) -> None:
    (folder / ".new").write_text(token)
    (folder / ".new").replace(folder / user)


def spec(user: str = "alice") -> JobSpec:
    return JobSpec("n", user, 1, 100)


@pytest.fixture
def cluster() -> SlurmCluster:
    return SlurmCluster.example(started=NOW)


@pytest.fixture
def wire(cluster: SlurmCluster) -> Witness:
    return Witness(cluster)


@pytest.fixture
async def client(cluster: SlurmCluster, wire: Witness, tmp_path: Path) -> SlurmClient:
    """Its own token is that of carol, who may act for no other user; alice and bob have tokens of their own."""
    for user in ("alice", "bob"):
        give(tmp_path, user, cluster.token(user))
    client = SlurmClient(
        wire, LiteralToken(cluster.token("carol")), user_tokens=UserTokens(tmp_path), clock=lambda: NOW
    )
    await client.discover()
    wire.asked.clear()
    return client


async def test_all_that_is_done_as_a_user_is_done_with_that_users_token(
    client: SlurmClient, cluster: SlurmCluster, wire: Witness
) -> None:
    job_id = await client.allocate_now(spec())
    await client.grant(job_id, "alice")
    await client.nudge(job_id, "alice")
    await client.cancel(job_id, "n", "alice")
    await client.record_end(job_id, "alice", 3, "ns/a: Error")
    alices = cluster.token("alice")
    assert {(token, name) for _, token, name in wire.asked} == {(alices, "alice")}
    wire.asked.clear()
    await client.job(job_id)
    await client.states()
    await client.nodes()
    await client.find("n")
    assert {(token, name) for _, token, name in wire.asked} == {(cluster.token("carol"), "")}


async def test_nodes_are_changed_with_the_token_for_nodes(cluster: SlurmCluster, wire: Witness, tmp_path: Path) -> None:
    acting = LiteralToken(cluster.token("slurm"))
    carol = LiteralToken(cluster.token("carol"))
    client = SlurmClient(wire, carol, acting_tokens=acting, user_tokens=UserTokens(tmp_path), clock=lambda: NOW)
    await client.discover()
    await client.reconfigure()
    assert wire.asked[-1][1:] == (acting.token(), "")
    client = SlurmClient(wire, carol, user_tokens=UserTokens(tmp_path), clock=lambda: NOW)
    await client.discover()
    with pytest.raises(Invalid) as caught:
        await client.reconfigure()
    assert caught.value.number == 2010


async def test_slurm_shows_what_a_job_holds_and_lets_its_end_be_recorded_to_its_user_alone(
    client: SlurmClient, cluster: SlurmCluster
) -> None:
    job_id = await client.allocate_now(spec())
    with pytest.raises(Invalid) as caught:
        await client.grant(job_id, "bob")
    assert caught.value.number == 2010
    cluster.account(NOW)
    with pytest.raises(Invalid) as caught:
        await client.record_end(job_id, "bob", 3, "")
    assert caught.value.number == 2002


def swapped(folder: Path, cluster: SlurmCluster) -> None:
    give(folder, "alice", jwt(sun="bob", exp=NOW + 60))


def named_by_the_other_claim(folder: Path, cluster: SlurmCluster) -> None:
    give(folder, "alice", jwt(username="bob", exp=NOW + 60))


def missing(folder: Path, cluster: SlurmCluster) -> None:
    (folder / "alice").unlink()


def a_folder(folder: Path, cluster: SlurmCluster) -> None:
    (folder / "alice").unlink()
    (folder / "alice").mkdir()


def expired(folder: Path, cluster: SlurmCluster) -> None:
    give(folder, "alice", cluster.token("alice", expires=NOW - 7200))


def foreign(folder: Path, cluster: SlurmCluster) -> None:
    give(folder, "alice", jwt(sun="alice", exp=NOW + 60))


@pytest.mark.parametrize(
    ("break_it", "why", "sent"),
    [
        (swapped, "it is a token of bob, not of alice.", False),
        (named_by_the_other_claim, "it is a token of bob, not of alice.", False),
        (missing, "there is no such file.", False),
        (a_folder, "Is a directory.", False),
        (expired, "expired 2 h ago.", True),
        (foreign, "Slurm does not accept it (error 1007).", True),
    ],
)
async def test_what_is_wrong_with_one_token_is_an_error_of_its_user_alone(
    client: SlurmClient,
    cluster: SlurmCluster,
    wire: Witness,
    tmp_path: Path,
    break_it: Callable[[Path, SlurmCluster], None],
    why: str,
    sent: bool,
) -> None:
    await client.cancel(await client.allocate_now(spec()), "n", "alice")  # also where it was right before
    break_it(tmp_path, cluster)
    wire.asked.clear()
    with pytest.raises(NoUserToken) as caught:
        await client.submit(spec())
    sentence = f"slurm-bridge cannot act as Slurm user alice: token file {tmp_path}/alice: {why} {DO}"
    assert caught.value.message == sentence
    assert bool(wire.asked) is sent
    assert client.user_tokens is not None
    assert dict(client.user_tokens.unusable) == {"alice": sentence}
    await client.submit(spec("bob"))
    await client.states()
    if break_it is a_folder:
        (tmp_path / "alice").rmdir()
    give(tmp_path, "alice", cluster.token("alice"))
    await client.submit(spec())
    assert not client.user_tokens.unusable


@pytest.mark.parametrize("content", ["", "eyJhbGci", "no token"])
async def test_a_file_in_the_middle_of_being_written_leaves_the_token_before_in_use(
    client: SlurmClient, cluster: SlurmCluster, wire: Witness, tmp_path: Path, content: str
) -> None:
    await client.submit(spec())
    (tmp_path / "alice").write_text(content)
    await client.submit(spec())
    assert [token for _, token, _ in wire.asked] == [cluster.token("alice")] * 2


@pytest.mark.parametrize("user", ["../alice", "", ".hidden", "..", "a/b"])
def test_a_user_whose_name_is_no_name_of_a_file_has_none(tmp_path: Path, user: str) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "alice").write_text(jwt(sun="../alice"))
    (tmp_path / "users" / ".hidden").write_text(jwt())
    with pytest.raises(ConfigError, match="names no file"):
        UserTokens(tmp_path / "users").of(user).token()


def test_a_secret_that_kubelet_renews_is_read_again(tmp_path: Path) -> None:
    """A mounted Secret is a link to a link to a folder, and the middle one is replaced."""
    for number, end in ((1, NOW), (2, NOW + 900)):
        folder = tmp_path / f"..{number}"
        folder.mkdir()
        (folder / "alice").write_text(jwt(sun="alice", exp=end))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "alice").symlink_to("..data/alice")
    token = UserTokens(tmp_path).of("alice")
    assert token.expires_at() == NOW
    os.symlink("..2", tmp_path / "..new")
    os.replace(tmp_path / "..new", tmp_path / "..data")
    assert token.expires_at() == NOW + 900


def test_only_tokens_of_the_given_users_are_checked(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text(jwt(sun="alice"))
    users = UserTokens(tmp_path)
    assert list(users.troubles(frozenset({"alice"}), NOW)) == []
    assert [user for user, _ in users.troubles(frozenset({"alice", "bob"}), NOW)] == ["bob"]


async def test_the_core_knows_whose_token_is_of_no_use_and_when_there_is_another(tmp_path: Path) -> None:
    users = UserTokens(tmp_path)
    told: asyncio.Queue[Event] = asyncio.Queue()
    give(tmp_path, "bob", jwt(sun="bob", exp=NOW))
    users.of("bob").token()
    users.note_refused("alice", "there is no file")
    users.note_refused("bob", "Slurm does not accept it", jwt(sun="bob", exp=NOW))
    following = asyncio.create_task(follow(users, told.put_nowait, lambda: NOW))
    try:
        assert [await told.get(), await told.get()] == [TokenMissing("alice", NOW), TokenMissing("bob", NOW)]
        give(tmp_path, "bob", jwt(sun="bob", exp=NOW + 1))
        assert await told.get() == TokenUsable("bob", NOW)
        users.note_accepted("alice")
        assert await told.get() == TokenUsable("alice", NOW)
    finally:
        following.cancel()

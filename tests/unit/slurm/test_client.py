"""Where the contract suite cannot go: far sides without accounting, tokens that vanish, two roles, two lanes (I2)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from bridge.errors import AccountingUnavailable, ContractError, Unanswered, Unauthorized, Unreachable
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm.client import SlurmClient
from bridge.slurm.slurmdbd_lane import MOST, PAUSE_S
from bridge.slurm.token import FileToken, LiteralToken
from bridge.slurm.transport import Reply
from bridge.slurm.user_tokens import UserTokens
from scheduler.model.slurm import JobSpec
from tests.in_process_slurm import InProcessSlurm

NOW = 1_800_000_000.0


class Witness:
    """A transport over a simulated Slurm that records users and requests, or sends the set response."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self._inner = InProcessSlurm(cluster, lambda: NOW)
        self.asked: list[tuple[str, str, str]] = []
        self.told: Reply | Exception | None = None

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        self.asked.append((f"{method} {target}", headers["X-SLURM-USER-TOKEN"], headers.get("X-SLURM-USER-NAME", "")))
        if isinstance(self.told, Exception):
            raise self.told
        return self.told or await self._inner.exchange(method, target, headers, body, deadline_s=deadline_s)


@pytest.fixture
def cluster() -> SlurmCluster:
    return SlurmCluster.example(started=NOW)


@pytest.fixture
def wire(cluster: SlurmCluster) -> Witness:
    return Witness(cluster)


async def discovered(cluster: SlurmCluster, wire: Witness, **more: object) -> SlurmClient:
    client = SlurmClient(wire, LiteralToken(cluster.token("slurm")), clock=lambda: NOW, **more)
    await client.discover()
    wire.asked.clear()
    return client


def spec(name: str = "n") -> JobSpec:
    return JobSpec(name, "alice", 1, 100)


async def test_jobs_are_made_changed_and_ended_in_the_tenants_name_and_read_in_our_own(
    cluster: SlurmCluster, wire: Witness
) -> None:
    client = await discovered(cluster, wire)
    job_id = await client.allocate_now(spec())
    await client.job(job_id)
    await client.nudge(job_id, "alice")
    await client.cancel(job_id, "n", "alice")
    assert [name for _, _, name in wire.asked] == ["alice", "", "alice", "alice"]


async def test_a_proxy_that_forbids_a_request_blames_no_token(
    cluster: SlurmCluster, wire: Witness, tmp_path: Path
) -> None:
    (tmp_path / "alice").write_text(cluster.token("alice"))
    client = await discovered(cluster, wire, user_tokens=UserTokens(tmp_path))
    wire.told = Reply(403, {}, b"<html>Forbidden by the gateway</html>")
    for asked in (client.states(), client.submit(spec())):
        with pytest.raises(Unauthorized) as refused:
            await asked
        assert "the proxy before slurmrestd does not let it pass (<html>Forbidden by the gateway</html>)" in str(
            refused.value
        )
        assert "token" not in str(refused.value)
    assert client.user_tokens is not None
    assert client.user_tokens.unusable == {}


async def test_the_acting_role_has_a_token_of_its_own(cluster: SlurmCluster, wire: Witness) -> None:
    acting = cluster.token("slurm", expires=NOW + 60)
    client = await discovered(cluster, wire, acting_tokens=LiteralToken(acting))
    await client.submit(spec())
    await client.states()
    assert [token for _, token, _ in wire.asked] == [acting, cluster.token("slurm")]


async def test_the_poll_has_a_lane_of_its_own(cluster: SlurmCluster, wire: Witness) -> None:
    polls = Witness(cluster)
    client = await discovered(cluster, wire, polls=polls)
    await client.states()
    await client.job(1)
    assert [call for call, _, _ in polls.asked] == ["GET /slurm/v0.0.45/jobs/state/"]
    assert [call for call, _, _ in wire.asked] == ["GET /slurm/v0.0.45/job/1"]


async def test_equal_answers_of_polls_are_decoded_once(cluster: SlurmCluster, wire: Witness) -> None:
    client = await discovered(cluster, wire)
    job_id = await client.allocate_now(spec())
    first = await client.states()
    assert await client.states() is first
    await client.cancel(job_id, "n", "alice")
    assert (await client.states())[job_id] != first[job_id]


async def test_without_accounting_nothing_is_found_and_nothing_is_recorded(wire: Witness) -> None:
    alone = SlurmCluster([], SlurmCluster.example().partitions.values(), [], accounting=False)
    wire = Witness(alone)
    client = await discovered(alone, wire)
    assert await client.find("n") == ()
    assert await client.record_end(1, "alice", 0, "") is False
    assert wire.asked == []


async def test_a_token_file_that_vanished_is_reported_in_words_and_nothing_is_sent(
    cluster: SlurmCluster, wire: Witness, tmp_path: Path
) -> None:
    client = await discovered(cluster, wire, acting_tokens=FileToken(tmp_path / "gone"))
    with pytest.raises(Unauthorized, match="there is no such file"):
        await client.submit(spec())
    assert wire.asked == []


async def test_an_expired_token_is_reported_with_what_to_do(cluster: SlurmCluster, wire: Witness) -> None:
    client = SlurmClient(wire, LiteralToken(cluster.token("slurm", expires=NOW - 7200)), clock=lambda: NOW)
    await client.discover()
    with pytest.raises(Unauthorized, match=r"expired 2 h ago\. Renew it"):
        await client.states()


@pytest.mark.parametrize("job_id", [7, 8])
async def test_a_job_that_the_answer_does_not_hold_is_neither_found_nor_gone(
    cluster: SlurmCluster, wire: Witness, job_id: int
) -> None:
    client = await discovered(cluster, wire)
    jobs = [{"job_id": 9, "name": "n", "user_name": "alice", "job_state": ["RUNNING"]}] if job_id == 8 else []
    wire.told = Reply(200, {}, json.dumps({"jobs": jobs, "errors": [], "warnings": []}).encode())
    with pytest.raises(ContractError, match="does not hold it"):
        await client.job(job_id)


async def test_the_outcome_of_a_call_is_reported_in_the_words_of_the_call(cluster: SlurmCluster, wire: Witness) -> None:
    calls: list[tuple[str, str]] = []
    client = await discovered(cluster, wire, on_call=lambda name, _seconds, outcome: calls.append((name, outcome)))
    calls.clear()
    wire.told = Unanswered("POST /slurm/v0.0.45/job/submit", "Slurm", "no answer within 12 s")
    with pytest.raises(Unanswered, match=r"^Slurm: submit: no answer within 12 s$"):
        await client.submit(spec())
    assert calls == [("submit", "unanswered")]


async def test_a_request_without_an_answer_that_needs_slurmdbd_is_an_outage_of_slurmdbd_and_not_of_slurm(
    cluster: SlurmCluster, wire: Witness
) -> None:
    client = await discovered(cluster, wire)
    wire.told = Unanswered("", "Slurm", "no answer within 12 s")
    for of_slurmdbd in (client.partitions(), client.find("n"), client.record_end(1, "alice", 0, "ended")):
        with pytest.raises(
            AccountingUnavailable, match=r"slurmdbd does not answer \((no answer within 12 s|another .*)\)"
        ):
            await of_slurmdbd
    assert len(wire.asked) == 1, "one request is enough to see it"
    for of_slurmctld in (client.nodes(), client.states(), client.job(1), client.submit(spec())):
        with pytest.raises(Unanswered):
            await of_slurmctld


async def test_while_a_frozen_slurmctld_holds_all_threads_of_slurmrestd_slurmdbd_is_not_blamed(
    cluster: SlurmCluster, wire: Witness
) -> None:
    client = await discovered(cluster, wire)
    wire.told = Unanswered("", "Slurm", "no answer within 12 s")
    with pytest.raises(Unanswered):
        await client.states()
    wire.asked.clear()
    for of_slurmdbd in (client.partitions(), client.find("n"), client.record_end(1, "alice", 0, "ended")):
        with pytest.raises(Unreachable, match="not sent, because the request before got no answer") as caught:
            await of_slurmdbd
        assert not isinstance(caught.value, AccountingUnavailable)
    assert not wire.asked
    wire.told = None
    await client.states()
    assert await client.partitions(), "they are sent again at once"


async def test_a_request_to_slurmdbd_that_was_sent_before_slurmctld_froze_does_not_blame_slurmdbd(
    cluster: SlurmCluster,
) -> None:
    frozen, sent = asyncio.Event(), asyncio.Event()

    class Frozen(Witness):
        async def exchange(
            self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
        ) -> Reply:
            if "/slurmdb/" in target:
                sent.set()
                await frozen.wait()
            return await super().exchange(method, target, headers, body, deadline_s=deadline_s)

    wire = Frozen(cluster)
    client = await discovered(cluster, wire)
    find = asyncio.create_task(client.find("n"))
    await sent.wait()
    wire.told = Unanswered("", "Slurm", "no answer within 12 s")
    with pytest.raises(Unanswered):
        await client.states()
    frozen.set()
    with pytest.raises(Unanswered):
        await find


async def test_soon_after_a_request_to_a_frozen_slurmdbd_no_other_one_is_sent(cluster: SlurmCluster) -> None:
    """Each of them would hold a thread of slurmrestd for more than a minute, until slurmrestd answers nothing at all."""
    frozen, all_sent, sent = asyncio.Event(), asyncio.Event(), list[str]()

    class Frozen(Witness):
        async def exchange(
            self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
        ) -> Reply:
            if "/slurmdb/" not in target:
                return await super().exchange(method, target, headers, body, deadline_s=deadline_s)
            sent.append(target)
            if len(sent) == MOST:
                all_sent.set()
            await frozen.wait()
            raise Unanswered("", "Slurm", "no answer within 12 s")

    now = [0.0]
    client = await discovered(cluster, Frozen(cluster), stopwatch=lambda: now[0])
    finds = [asyncio.create_task(client.find(f"n{number}")) for number in range(20)]
    await all_sent.wait()
    assert await client.nodes(), "others go on"
    frozen.set()
    ended = await asyncio.gather(*finds, return_exceptions=True)
    assert {type(each) for each in ended} == {AccountingUnavailable}
    assert len(sent) == MOST
    for now[0], more in ((PAUSE_S - 1, 0), (PAUSE_S, 1)):
        with pytest.raises(AccountingUnavailable):
            await client.find("later")
        assert len(sent) == MOST + more, now


async def test_a_status_that_is_no_known_verdict_on_a_cancel_is_an_error(cluster: SlurmCluster, wire: Witness) -> None:
    client = await discovered(cluster, wire)
    wire.told = Reply(200, {}, json.dumps({"status": [{"error": {"code": 5004, "message": "timed out"}}]}).encode())
    with pytest.raises(Unanswered, match="timed out"):
        await client.cancel(1, "n", "alice")


async def test_cpus_are_counted_by_the_threads_of_the_nodes_last_seen(cluster: SlurmCluster, wire: Witness) -> None:
    client = await discovered(cluster, wire)
    job_id = await client.allocate_now(spec())
    node = (await client.grant(job_id, "alice")).nodes[0]
    assert node.cpus == 1
    listed = {"nodes": [{"name": node.name, "state": ["MIXED"], "cpus": 128, "threads": 2}]}
    wire.told = Reply(200, {}, json.dumps(listed).encode())
    await client.nodes()
    wire.told = None
    assert (await client.grant(job_id, "alice")).nodes[0].cpus == 2


class Threads:
    """A Slurm whose two nodes have two threads a core, and a gang of three tasks of 1 CPU there."""

    def __init__(self, select: str) -> None:
        self.select = select
        self.asked: list[str] = []
        self.is_requeued = False  # a job that waits again holds nothing

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        path = target.split("/", 3)[-1]
        self.asked.append(path)
        node = {"state": ["IDLE"], "cpus": 16, "sockets": 1, "cores": 8, "threads": 2}
        held = [{"name": "t1", "cpus": {"count": 1}}, {"name": "t2", "cpus": {"count": 2}}]
        answers: dict[str, object] = {
            "ping/": {"pings": [{"responding": True}]},
            "nodes/": {"nodes": [{"name": "t1", **node}, {"name": "t2", **node}]},
            "resources/7": {
                "nodes": [{"node": name, "mem_alloc": 0, "core_bitmap": "0x01", "gres": []} for name in ("t1", "t2")]
            },
            "job/7": {
                "jobs": [{"job_id": 7, "job_resources": {"select_type": [self.select], "nodes": {"allocation": held}}}]
            },
        }
        if self.is_requeued:
            answers["job/7"] = {"jobs": [{"job_id": 7, "job_resources": None}]}
        return Reply(200, {}, json.dumps(answers[path]).encode())


async def test_threads_that_are_given_away_one_by_one_are_counted_one_by_one() -> None:
    wire = Threads("CR_CPU")
    client = SlurmClient(wire, LiteralToken("a.b.c"), clock=lambda: NOW)
    await client.discover()
    await client.nodes()
    assert [node.cpus for node in (await client.grant(7, "alice")).nodes] == [1, 2]


async def test_a_job_that_lost_its_nodes_between_two_reads_does_not_show_how_cpus_are_counted() -> None:
    """Otherwise each later gang would have places for twice as many pods as it was granted, until a restart."""
    wire = Threads("CR_CPU")
    client = SlurmClient(wire, LiteralToken("a.b.c"), clock=lambda: NOW)
    await client.discover()
    await client.nodes()
    wire.is_requeued = True
    await client.grant(7, "alice")
    wire.is_requeued = False
    assert [node.cpus for node in (await client.grant(7, "alice")).nodes] == [1, 2]


async def test_where_whole_cores_are_given_away_that_is_asked_once() -> None:
    wire = Threads("CR_CORE")
    client = SlurmClient(wire, LiteralToken("a.b.c"), clock=lambda: NOW)
    await client.discover()
    await client.nodes()
    wire.asked.clear()
    for _ in range(3):
        assert [node.cpus for node in (await client.grant(7, "alice")).nodes] == [2, 2]
    assert wire.asked == ["resources/7", "job/7", "resources/7", "resources/7"]


class Renewing:
    """A far side that takes only the second token, and says what it was asked with and how long it may take."""

    def __init__(self, taken: str, status: int = 511, takes_s: float = 0.0, waits_s: float = 0.0) -> None:
        self.taken, self.status, self.takes_s, self.waits_s = taken, status, takes_s, waits_s
        self.now = 0.0
        self.asked: list[tuple[str, str, float]] = []

    def clock(self) -> float:
        return self.now

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        token = headers["X-SLURM-USER-TOKEN"]
        self.asked.append((method, token, deadline_s))
        self.now += self.takes_s
        if "ping" in target:
            return Reply(200, {}, b'{"pings": [{"responding": true}]}')
        if token != self.taken:
            refused = b'{"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}'
            said = refused if self.status == 511 else b"Authentication failure"
            return Reply(self.status, {}, said, waited_s=self.waits_s)
        return Reply(200, {}, b'{"jobs": [], "job_id": 7}')


OLD, NEW = "old.old.old", "new.new.new"


def write(path: Path, token: str) -> None:
    """In a way that the file does not look changed."""
    path.write_text(token)
    os.utime(path, ns=(1, 1))


async def renewing(wire: Renewing, path: Path) -> SlurmClient:
    write(path, OLD)
    client = SlurmClient(wire, FileToken(path), clock=lambda: NOW, stopwatch=wire.clock, deadline_s=12.0)
    await client.discover()
    wire.asked.clear()
    write(path, NEW)
    return client


@pytest.mark.parametrize("status", [511, 401])
async def test_a_token_that_is_not_accepted_any_more_is_read_again_and_the_call_repeated_once(
    tmp_path: Path, status: int
) -> None:
    wire = Renewing(NEW, status)
    client = await renewing(wire, tmp_path / "token")
    assert await client.submit(spec()) == 7
    assert [token for _, token, _ in wire.asked] == [OLD, NEW]


async def test_where_there_is_no_other_token_a_call_is_not_repeated(tmp_path: Path) -> None:
    wire = Renewing("a.third.one")
    client = await renewing(wire, tmp_path / "token")
    with pytest.raises(Unauthorized):
        await client.states()
    with pytest.raises(Unauthorized):
        await client.states()
    assert [token for _, token, _ in wire.asked] == [OLD, NEW, NEW]


async def test_one_deadline_holds_for_a_call_and_its_repetition(tmp_path: Path) -> None:
    wire = Renewing(NEW, takes_s=5.0)
    client = await renewing(wire, tmp_path / "token")
    await client.states()
    assert [deadline_s for _, _, deadline_s in wire.asked] == [12.0, 7.0]


async def test_the_deadline_of_a_repetition_does_not_count_the_wait_for_a_connection(tmp_path: Path) -> None:
    wire = Renewing(NEW, takes_s=20.0, waits_s=18.0)
    client = await renewing(wire, tmp_path / "token")
    await client.states()
    assert [deadline_s for _, _, deadline_s in wire.asked] == [12.0, 10.0]


async def test_a_token_of_a_user_who_may_not_act_for_others_is_to_be_replaced_by_one_of_slurm_user() -> None:
    cluster = SlurmCluster.example()
    client = SlurmClient(InProcessSlurm(cluster, lambda: NOW), LiteralToken(cluster.token("bob")))
    await client.discover()
    with pytest.raises(Unauthorized) as caught:
        await client.submit(JobSpec("hpc/train", "alice", 1, 1024))
    assert caught.value.message == (
        "token in SLURM_JWT: Slurm does not accept it, because it is of another cluster, or its user bob may not act for "
        "alice. Make one of SlurmUser: scontrol token username=slurm lifespan=3600, as root or SlurmUser. Slurm's reason: "
        "Protocol authentication error"
    )

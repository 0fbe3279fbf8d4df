"""`kubectl slurm nodes` and `free`: the bridge's answer about all nodes as tables and for programs, and if there is none."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.__main__ import EXIT_CONFIG
from bridge.errors import ConfigError
from bridge.health import Health
from bridge.http_access import Bearers
from bridge.plugin import survey, variables
from bridge.plugin.command import main
from bridge.plugin.nodes import Shown, free, nodes
from bridge.plugin.table import CLEAR, Screen
from bridge.plugin.watch import ask_again
from bridge.starting import StandingBy, Starting
from bridge.telemetry import Telemetry
from scheduler.events import NodesListed, SlurmNodesPolled
from scheduler.model.slurm import Partition
from tests.builders import START, Story, node, pod, slurm_node
from tests.unit.test_health import Turning

ADMIN, TENANT = "0123456789abcdef0123456789abcdef", "tenants-may-read-sums-of-nodes"


def story() -> Story:
    """Three equal nodes, of which one is drained, and a cordoned one with other devices; a pod runs on x1."""
    told = Story(nodes=[node(name) for name in ("x1", "x2", "x3")])
    told.runs(pod("train", cpu=4000, memory=2048, gpu=2), 17, at=START + 20)
    told.sees(NodesListed((*(node(name) for name in ("x1", "x2", "x3")), node("y1", unschedulable=True, gpu=4))))
    in_slurm = [slurm_node(name) for name in ("x1", "x2", "x3", "y1")]
    in_slurm[0] = replace(in_slurm[0], states=frozenset({"MIXED", "EXTERNAL"}))
    in_slurm[2] = replace(in_slurm[2], states=frozenset({"IDLE", "DRAIN"}), reason="bad fan")
    in_slurm[3] = replace(in_slurm[3], gres={"gpu": 4, "gpu:a100": 4}, partitions=("gpu",))
    partitions = (Partition("main", default=True), Partition("gpu", max_time_min=2 * 24 * 60 + 90))
    told.sees(SlurmNodesPolled(tuple(in_slurm), partitions, START + 30))
    return told


@asynccontextmanager
async def served(told: Story, bearers: Bearers = Bearers()) -> AsyncIterator[str]:  # noqa: B008 - frozen
    loop: Any = Turning(told.world)
    runner = await Health(loop, [], Telemetry(), lambda: START + 31, bearers).serve("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def typed(*arguments: str) -> int:
    return await asyncio.to_thread(main, list(arguments))


def squeezed(text: str) -> list[str]:
    return [re.sub(r" {2,}", " | ", line) for line in text.splitlines()]


async def test_nodes_are_a_line_for_each_group_of_equal_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    async with served(story()) as url:
        assert await typed("nodes", "--bridge", url) == 0
    assert squeezed(capsys.readouterr().out) == [
        "NODES | COUNT | KUBERNETES | SLURM | PARTITIONS | CPUS HELD/ALL | MEMORY | DEVICES | REASON",
        "x1 | 1 | Ready | mixed | gpu,main | 4/64 | 2/500Gi | 2/8 gpu | -",
        "x2 | 1 | Ready | idle | gpu,main | 0/64 | 0/500Gi | 0/8 gpu | -",
        "x3 | 1 | Ready | drained | gpu,main | 0/64 | 0/500Gi | 0/8 gpu | bad fan",
        "y1 | 1 | Ready,SchedulingDisabled | idle | gpu | 0/64 | 0/500Gi | 0/4 gpu:a100 | cordoned in Kubernetes",
    ]


async def test_equal_nodes_are_folded_and_their_amounts_added(capsys: pytest.CaptureFixture[str]) -> None:
    told = Story(nodes=[node(f"x{number}") for number in range(1, 5)])
    told.runs(pod("train", cpu=4000, memory=2048, gpu=2), 17, at=START + 20)
    async with served(told) as url:
        await typed("nodes", "--bridge", url, "-o", "wide")
        [_, row] = squeezed(capsys.readouterr().out)
        assert row == (
            "x[1-4] | 4 | Ready | idle | gpu,main | 4/256 | 2/2,000Gi | 2/32 gpu | 1: 4 CPUs, 2Gi, 2 gpu | - | - | -"
        )
        await typed("nodes", "--bridge", url, "--each")
        assert [row.split(" | ")[0] for row in squeezed(capsys.readouterr().out)[1:]] == ["x1", "x2", "x3", "x4"]


async def test_free_is_what_could_start_now_by_partition(capsys: pytest.CaptureFixture[str]) -> None:
    async with served(story()) as url:
        assert await typed("free", "--bridge", url, "-o", "wide") == 0
        assert squeezed(capsys.readouterr().out) == [
            "PARTITION | STATE | NODES | CPUS FREE/ALL | MEMORY | DEVICES | ROOM ON ONE NODE | FREE NODES | CLOSED NODES "
            "| TIME LIMIT",
            "gpu | up | 2/4 | 124/256 | 998/2,000Gi | 14/24 gpu, 0/4 gpu:a100 | 64 CPUs, 500Gi, 8 gpu | x[1-2] | "
            "1 DRAIN in Slurm; 1 cordoned in Kubernetes | 2-01:30:00",
            "main* | up | 2/3 | 124/192 | 998/1,500Gi | 14/24 gpu | 64 CPUs, 500Gi, 8 gpu | x[1-2] | 1 DRAIN in Slurm "
            "| infinite",
        ]
        assert await typed("free", "--bridge", url, "-p", "main", "-o", "json") == 0
    [told] = json.loads(capsys.readouterr().out)
    assert told["devices"] == {"gpu": {"free": 14, "total": 24}}
    assert told["largest"] == {"node": "x2", "cpus": 64, "memory_mib": 512000, "devices": {"gpu": 8}}
    assert told["polled"] == START + 30


async def test_in_a_partition_that_is_down_and_on_a_node_without_cpus_nothing_is_free() -> None:
    told = Story(nodes=[node("x1"), node("x2", cpu=0)])
    async with served(told) as url:
        shown = free(await survey.asked(url, ""), "", wide=False)
        assert shown.entries["main"]["devices"] == {"gpu": {"free": 8, "total": 16}}
        told.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), (Partition("main", up=False),), START + 9))
    async with served(told) as url:
        shown = free(await survey.asked(url, ""), "main", wide=False)
    assert shown.rows["main"][1:4] == ("down", "0/2", "0/128")


async def test_an_empty_answer_is_a_sentence_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    async with served(story()) as url:
        for command, said in (
            ("nodes", "The bridge knows no nodes in partition nope. Partitions with nodes: gpu, main.\n"),
            ("free", "Partition nope has no node of this Kubernetes cluster. Partitions with nodes: gpu, main.\n"),
        ):
            assert await typed(command, "--bridge", url, "-p", "nope") == 0
            assert capsys.readouterr() == ("", said)


# --- who is answered ----------------------------------------------------------------------------------------------------


async def test_the_token_of_tenants_opens_nodes_and_nothing_else(tmp_path: Path) -> None:
    admin, tenants = tmp_path / "admin", tmp_path / "tenants"
    admin.write_text(ADMIN)
    tenants.write_text(TENANT)
    async with served(story(), Bearers.of(str(admin), str(tenants))) as url:
        assert len((await survey.asked(url, str(tenants))).nodes) == 4
        assert len((await survey.asked(url, str(admin))).nodes) == 4
        with pytest.raises(ConfigError, match="asks for a token"):
            await survey.asked(url, "")
        (tmp_path / "wrong").write_text("wrong" * 5)
        with pytest.raises(ConfigError, match="does not accept this token"):
            await survey.asked(url, str(tmp_path / "wrong"))
        import aiohttp

        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TENANT}"}) as session:
            for path in ("/explain", "/events", "/workloads/train"):
                async with session.get(url + path) as answer:
                    assert answer.status == 401, path
            async with session.post(f"{url}/release", headers={"X-Slurm-Bridge": "release"}) as answer:
                assert answer.status == 401


async def test_the_environment_names_the_bridge_and_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tenants").write_text(TENANT)
    async with served(story(), Bearers.of(str(tmp_path / "tenants"), "")) as url:
        monkeypatch.setenv(variables.BRIDGE_URL, f"{url}/")
        monkeypatch.setenv(variables.BRIDGE_TOKEN_FILE, str(tmp_path / "tenants"))
        assert await typed("free") == 0
    assert "main*" in capsys.readouterr().out


async def test_a_bridge_that_cannot_be_asked_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variables.BRIDGE_URL, raising=False)
    assert await typed("nodes", "--bridge", "http://127.0.0.1:1") == EXIT_CONFIG
    assert capsys.readouterr().err == (
        f"kubectl slurm: no slurm-bridge answers at http://127.0.0.1:1. {survey.WHERE}\n"
    )
    monkeypatch.setattr("bridge.http_access._FORWARDED", ("User-Agent",))  # as if the request came from elsewhere
    async with served(story()) as url:
        assert await typed("free", "--bridge", url) == EXIT_CONFIG
    assert "answers this only on its own machine. Ask your admin for a token." in capsys.readouterr().err


async def test_a_standby_names_the_replica_that_leads() -> None:
    class Follower:
        holder, trouble, lost = "slurm-bridge-0", "", None

    starting, follower = Starting({}, [], Telemetry(), lambda: START), Follower()
    starting.standby = StandingBy(follower, follower)
    runner = await starting.serve("127.0.0.1", 0)
    try:
        with pytest.raises(ConfigError, match="standby, replica slurm-bridge-0 leads"):
            await survey.asked(f"http://127.0.0.1:{runner.addresses[0][1]}", "")
    finally:
        await runner.cleanup()


# --- watch --------------------------------------------------------------------------------------------------------------


class Asked:
    """The answers that a watch gets, one after the other; then it is cancelled."""

    def __init__(self, *answers: Shown | ConfigError) -> None:
        self.answers = list(answers)
        self.printed: list[list[str]] = []
        self.warned: list[str] = []

    async def ask(self) -> Shown:
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    async def watched(self, monkeypatch: pytest.MonkeyPatch, form: str, screen: Screen) -> None:
        monkeypatch.setattr("bridge.plugin.watch.ASK_S", 0.0)
        with pytest.raises(asyncio.CancelledError):
            await ask_again(self.ask, form, screen, lambda lines: self.printed.append(list(lines)), self.warned.append)


async def both(told: Story) -> tuple[Shown, Shown]:
    """Before and after x2 is drained."""
    async with served(told) as url:
        before = nodes(await survey.asked(url, ""), "", wide=False, each=True)
    drained = replace(slurm_node("x2"), states=frozenset({"IDLE", "DRAIN"}), reason="dust")
    told.sees(SlurmNodesPolled((slurm_node("x1"), drained), None, START + 60))
    async with served(told) as url:
        return before, nodes(await survey.asked(url, ""), "", wide=False, each=True)


async def test_a_watch_without_a_terminal_adds_a_line_for_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = await both(Story())
    asked = Asked(before, before, ConfigError("it is away."), ConfigError("it is away."), after)
    await asked.watched(monkeypatch, "text", Screen())
    first, later = asked.printed
    assert [line.split()[0] for line in first] == ["NODES", "x1", "x2"]
    assert [line.split()[0::3][:2] for line in later] == [["x2", "drained"]]
    assert asked.warned == ["it is away."], "once"


async def test_a_watch_for_programs_is_a_line_for_each_entry_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(*await both(Story()))
    await asked.watched(monkeypatch, "json", Screen())
    assert [[json.loads(line)["name"] for line in lines] for lines in asked.printed] == [["x1", "x2"], ["x2"]]


async def test_a_watch_on_a_terminal_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(*await both(Story()))
    await asked.watched(monkeypatch, "text", Screen(width=60, colours=True, live=True))
    assert [lines[0].startswith(CLEAR) for lines in asked.printed] == [True, True]
    assert ["\x1b[31mdrained" in lines[2] for lines in asked.printed] == [False, True]

"""`kubectl slurm` before servers that answer wrongly and tenants who write what no server should pass on."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from bridge.cli import bridge_client
from bridge.cli.bridge_client import NoBridgeError
from bridge.errors import BridgeError, ConfigError, RemoteError
from bridge.explanation_json import decoded
from bridge.http_access import HEADER
from bridge.kube.lists import listed
from bridge.kube.transport import Reply, TooLong
from bridge.kube.watch import our_pods
from bridge.plugin import cluster, costs, nodes, survey
from bridge.plugin.cluster import Cluster, Selection
from bridge.plugin.pods import PODS, Seen
from bridge.plugin.table import Screen, table
from bridge.plugin.trace import waterfall
from bridge.simulation.virtual_time import run
from tests.patience import PATIENCE_S
from tests.raw_server import server
from tests.unit.kube.fakes import FakeTransport, Line, line, no, pod, reply
from tests.web_server import serving

OURS = Selection("slurm-bridge", "hpc")
TOO_LONG = TooLong("get", "Kubernetes", "the answer is longer than 16 MiB", 200)
ENDED = {"exitCode": 1, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}


def page(*pods: Any, token: str = "") -> Reply:
    return reply({"metadata": {"resourceVersion": "7", "continue": token}, "items": list(pods)})


def seen(**fields: Any) -> Seen:
    return PODS.one(json.dumps(pod() | fields).encode())


async def test_pods_with_long_annotations_are_listed_on_smaller_pages() -> None:
    server = FakeTransport(TOO_LONG, TOO_LONG, page(pod("a", "u-1"), token="next"), page(pod("b", "u-2")))
    assert {each.pod.name for each in (await Cluster(server).pods(OURS)).values()} == {"a", "b"}
    assert [int(params["limit"]) for _, _, params, _ in server.asked] == [500, 250, 125, 250]


async def test_a_pod_that_cannot_be_read_is_named_and_hides_no_other_one() -> None:
    said: list[str] = []
    server = FakeTransport(page(pod("odd") | {"spec": 5}, pod("plain", "u-2")))
    assert [each.pod.name for each in (await Cluster(server, said.append).pods(OURS)).values()] == ["plain"]
    assert said == ["Pods that cannot be read are left out: hpc/odd."]


async def test_a_list_without_an_end_is_given_up_by_the_command_and_by_the_bridge() -> None:
    endless = [page(pod(), token="same") for _ in range(10)]
    with pytest.raises(RemoteError, match="the list has no end"):
        await Cluster(FakeTransport(*endless)).pods(OURS)
    with pytest.raises(RemoteError, match="the list has no end"):
        await listed(FakeTransport(*endless), our_pods("slurm-bridge"))


async def test_a_server_whose_lists_always_expire_is_asked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RETRY_S", 0.0)
    server = FakeTransport(*[no(410, "Expired") for _ in range(10)])
    with pytest.raises(RemoteError, match="error 410"):
        await Cluster(server).pods(OURS)
    assert len(server.asked) == cluster.MOST_LISTS


@pytest.mark.parametrize("ends", [[], [line("ERROR", {"kind": "Status", "code": 410})]], ids=["closed", "expired"])
def test_a_server_that_ends_each_watch_at_once_is_not_asked_without_a_pause(ends: list[Line]) -> None:
    async def followed() -> float:
        server = FakeTransport(*[page(pod())] * 6, streams=[ends] * 5)
        lists = Cluster(server).follow(OURS)
        for _ in range(6):
            await anext(lists)
        return server.times[-1] - server.times[0]

    assert run(followed()) == pytest.approx(5 * cluster.RETRY_S)


def test_a_name_cannot_control_the_terminal_that_shows_a_trace() -> None:
    shown = waterfall(seen(spec={"nodeName": "x\x1b[2J\r\n"}), (), 0.0, Screen())
    assert all(line.isprintable() for line in shown)


def test_a_pod_that_ended_before_it_was_created_by_another_clock_has_a_trace() -> None:
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": ENDED}}]}
    late = pod()["metadata"] | {"creationTimestamp": "2026-01-01T01:00:00Z"}
    [title, created, *_] = waterfall(seen(metadata=late, status=status), (), 2e9, Screen())
    assert (title, created) == ("Pod hpc/a: Failed", "created 2026-01-01 01:00:00 UTC, 0s in all")


@pytest.mark.parametrize(
    "body",
    [b'{"polled": 1.0, "nodes": [{"name": "\xff"}], "partitions": {}}', b'{"x": %b%b}' % (b"[" * 50000, b"]" * 50000)],
    ids=["no text", "deep"],
)
async def test_an_answer_that_is_no_survey_and_no_explanation_is_one_sentence(body: bytes) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json", headers={HEADER: "answer"})

    async with serving(answer) as url:
        with pytest.raises(ConfigError, match="is not of this version"):
            await survey.asked(url, "")
    with pytest.raises(ValueError):  # noqa: PT011 - its text is that of the decoder
        decoded(body)


AMOUNT = {"total": 4, "held": 1, "bridge": 1.0, "others": 0.5, "free": 2}
NODE = {
    "name": "n1",
    "slurm_name": "n1",
    "kubernetes": "Ready",
    "taints": ["key"],
    "slurm": ["IDLE"],
    "reason": "a reason",
    "partitions": ["main"],
    "closed": "",
    "pods": {"bridge": 1, "others": 1},
    "cpus": AMOUNT,
    "memory_mib": AMOUNT,
    "devices": {"gpu": AMOUNT},
}
SURVEY = {
    "at": 1.0,
    "polled": 1.0,
    "partitions": {"main": {"up": True, "default": True, "max_time_min": 60}},
    "nodes": [NODE],
}
ODD = [None, -1, 10**30, 10**400, 1e308, 0.1, True, "\u202e\x1b[2J\n", "x" * 10_000, [], {}, [None], {"a": 1}]


def changed(thing: Any, value: Any) -> list[Any]:
    """Copies of a JSON value, each with another part of it replaced."""
    copies = [value]
    if isinstance(thing, dict):
        copies += [{**thing, key: copy} for key, part in thing.items() for copy in changed(part, value)]
        copies += [{other: thing[other] for other in thing if other != key} for key in thing]  # an older bridge
        copies += [{**thing, "new": value}]
    if isinstance(thing, list):
        copies += [[copy] for part in thing for copy in changed(part, value)]
    return copies


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:12])
def test_an_answer_about_nodes_with_odd_values_is_shown_or_refused(value: Any) -> None:
    shown = 0
    for answer in changed(SURVEY, value):
        try:
            found = survey._SURVEY.decode(json.dumps(answer).encode())
        except msgspec.MsgspecError:
            continue
        for made in (nodes.nodes(found, "", wide=True, each=False), nodes.free(found, "", wide=True)):
            assert all(line.isprintable() for line in made.lines(Screen()))
            assert json.dumps(list(made.entries.values()))
            shown += 1
    assert shown, "an additional key is ignored"


def test_one_long_cell_costs_other_rows_no_blanks() -> None:
    """A tenant may write an annotation of 256 KiB, and `queue -o wide` shows it beside thousands of other pods."""
    [_, long, short] = table(("PARTITION", "NODE"), [("x" * 200_000, "n1"), ("main", "n2")], Screen())
    assert long.endswith("x   n1")
    assert len(short) < 200


def test_a_sentence_names_a_few_of_many_partitions() -> None:
    found = survey._SURVEY.decode(
        json.dumps(SURVEY | {"nodes": [NODE | {"partitions": [f"p{n}" for n in range(5000)]}]})
    )
    assert len(nodes.nodes(found, "none", wide=False, each=False).empty) < 300
    assert nodes.free(found, "none", wide=False).empty.endswith("and 4,980 more.")


def dripping(begin: bytes, drop: bytes) -> AbstractAsyncContextManager[str]:
    """A server whose answer has no end, and comes faster than any timeout of a read."""

    async def drip(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        while not writer.is_closing():
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.01)

    return server(drip)


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["header", "body", "chunks"],
)
async def test_an_answer_without_an_end_is_given_up(begin: bytes, drop: bytes) -> None:
    async with dripping(begin, drop) as url, asyncio.timeout(PATIENCE_S):
        with pytest.raises(NoBridgeError):
            await bridge_client.ask("GET", url, within_s=0.3)


@pytest.mark.parametrize("url", ["http://me:SECRET@bridge:8080", "http://bridge:8080/?token=SECRET"])
def test_an_address_with_a_password_is_refused_without_a_copy_of_it(url: str) -> None:
    with pytest.raises(BridgeError) as refused:
        bridge_client.address(url)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    ("names", "shown"), [(["n2", "n1"], "n[1-2]"), (["n1", "a b[", "n2"], "n[1-2],a b["), (["]"], "]"), ([], "")]
)
def test_the_name_of_a_node_that_slurm_cannot_have_is_shown_as_it_is(names: list[str], shown: str) -> None:
    assert nodes._hostlist(names) == shown


async def test_a_server_that_sends_the_token_back_does_not_get_it_into_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may show the headers of a request in its error page."""
    token = "e30.eyJzdW4iOiAiYm9iIn0.c2lnbmF0dXJl"
    (tmp_path / "token").write_text(token)
    statuses = iter([200, 302, 400, 401, 404, 500, 503])

    async def answer(request: web.Request) -> web.Response:
        text = json.dumps({"errors": [{"error_number": 5004, "error": str(dict(request.headers))}]})
        return web.Response(status=next(statuses), text=text if request.path.startswith("/slurm/") else text[1:])

    async with serving(answer) as url:
        monkeypatch.setenv("SLURM_JWT", token)
        shown = [(await costs._asked(7, url, "")).sentence for _ in range(4)]
        shown += [(await bridge_client.ask("GET", url, within_s=9, token_file=str(tmp_path / "token"))).text]
    assert all("[token]" in text for text in (shown[0], shown[-1]))
    assert not any("eyJzdW4iOiAiYm9iIn0" in text for text in shown)


async def test_billing_units_out_of_range_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "e30.e30.c2lnbmF0dXJl")
    job = {"partition": "main", "tres_req_str": "cpu=1,billing=" + "9" * 400}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"pings": [{"responding": True}], "jobs": [job], "partitions": []})

    async with serving(answer) as url:
        shown = await costs._asked(7, url, "")
    assert shown.sentence == ""
    assert shown.entry["billing"] is None

"""Whatever slurmrestd, a proxy or a user's job says: each call gives a value or an error of the far side, nothing else.

The samples are what the simulated slurmrestd answers, which the contract suite holds equal to a real one.  Values are put
into the text, not into a parsed document, so that they may be what no JSON writer writes.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import RemoteError
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm import admin_reads
from bridge.slurm.client import SlurmClient
from bridge.slurm.poll import undecoded_jobs, undecoded_names
from bridge.slurm.token import LiteralToken, age, claims_of
from bridge.slurm.transport import Reply
from bridge.slurm.wire import LAST_MOMENT
from scheduler.events import JobsPolled, SlurmNodesPolled
from scheduler.model.slurm import JobSpec
from scheduler.rules.status import clock
from tests.in_process_slurm import InProcessSlurm

NOW = 1_800_000_000.0
DEEP = "[" * 1500 + "]" * 1500
HOSTILE = st.sampled_from(
    [
        *(
            "NaN",
            "Infinity",
            "-Infinity",
            "1e999",
            "-1e308",
            "1e308",
            "1.5",
            "-0.0",
            "-1",
            "0",
            "4294967294",
            "4294967295",
        ),
        *(str(10**18), str(-(10**18)), str(2**63), str(2**64), "9" * 400, "9" * 5000, "253402300800", "-62135596800"),
        *("null", "true", "[]", "{}", '""', "[[]]", "[null]", '[{"name": 5}]', '{"set": true, "number": 1e300}'),
        *('{"set": true, "infinite": false, "number": 253402300800}', '{"set": true, "infinite": true}'),
        *(
            '"\\u001b[31mred\\u001b[0m"',
            '"\\ud800"',
            '"\\u0000"',
            '"x[1-1000000000]"',
            '"gpu:h100:99999999999999999999P"',
        ),
        *(
            '"fe80::1%eth0"',
            '"0x"',
            '"-0xff"',
            '"nan"',
            f'"{"9" * 5000}"',
            f'"{"a" * 100_000}"',
            DEEP,
            f'{{"a": {DEEP}}}',
        ),
        *("", "}", '"', '"\\', "\\u00"),
    ]
) | st.text(max_size=20).map(json.dumps)
MARK = '"\\u2622"'


class Edited:
    """The simulated slurmrestd, whose next answers are changed on their way."""

    def __init__(self, inner: InProcessSlurm) -> None:
        self._inner = inner
        self.edit: Callable[[bytes], bytes] | None = None
        self.status = 200

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        reply = await self._inner.exchange(method, target, headers, body, deadline_s=deadline_s)
        return reply if self.edit is None else Reply(self.status, {}, self.edit(reply.body))


Call = Callable[[SlurmClient, int], Awaitable[Any]]
CALLS: Mapping[str, Call] = {
    "discover": lambda slurm, _: slurm.discover(),
    "states": lambda slurm, _: slurm.listed_states(),
    "job": lambda slurm, job: slurm.job(job),
    "grant": lambda slurm, job: slurm.grant(job, "alice"),
    "nodes": lambda slurm, _: slurm.listed_nodes(),
    "node": lambda slurm, _: slurm.node("x1"),
    "partitions": lambda slurm, _: slurm.listed_partitions(),
    "find": lambda slurm, _: slurm.find("n"),
    "allocate": lambda slurm, _: slurm.allocate_now(JobSpec("m", "alice", 1, 100)),
    "submit": lambda slurm, _: slurm.submit(JobSpec("m", "alice", 1, 100)),
    "cancel": lambda slurm, job: slurm.cancel(job, "n", "alice"),
    "record": lambda slurm, job: slurm.record_end(job, "alice", 1, "why"),
    "configuration": lambda slurm, _: admin_reads.configuration(slurm),
    "clock": lambda slurm, _: admin_reads.clock(slurm),
    "reservations": lambda slurm, _: admin_reads.reservations(slurm),
    "survey nodes": lambda slurm, _: admin_reads.nodes(slurm),
    "survey partitions": lambda slurm, _: admin_reads.partitions(slurm),
    "sees all": lambda slurm, _: admin_reads.sees_all_jobs(
        slurm, admin_reads.Configuration(private_data=("JOBS",)), "x"
    ),
    "trial": lambda slurm, _: admin_reads.trial(slurm, JobSpec("m", "alice", 1, 100)),
}


def paths(thing: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    return [here, *(path for key, value in inner for path in paths(value, (*here, key)))]


def edited(text: bytes, choose: Callable[[int], int], value: str) -> bytes:
    """The text with one of its values replaced."""
    document = {"": json.loads(text)}
    *way, last = ("", *(found := paths(document[""]))[choose(len(found))])
    at: Any = document
    for step in way:
        at = at[step]
    at[last] = "\u2622"
    return json.dumps(document[""]).replace(MARK, value, 1).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(), value=HOSTILE, status=st.sampled_from([200, 200, 200, 500, 422, 404, 511]), failing=st.booleans()
)
def test_an_answer_with_any_value_anywhere_gives_a_value_or_an_error_of_the_far_side(
    name: str, data: st.DataObject, value: str, status: int, failing: bool
) -> None:
    def choose(count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    asyncio.run(_ask(name, lambda text: edited(text, choose, value), status, failing))


async def _ask(name: str, edit: Callable[[bytes], bytes], status: int, failing: bool) -> None:
    cluster = SlurmCluster.example(started=NOW)
    wire = Edited(InProcessSlurm(cluster, lambda: NOW))
    slurm = SlurmClient(wire, LiteralToken(cluster.token("slurm")), clock=lambda: NOW)
    await slurm.discover()
    job = await slurm.allocate_now(JobSpec("n", "alice", 2, 100, gres=(("gpu", 1),)))
    cluster.account(NOW)
    wire.status = status
    wire.edit = (lambda _: edit(_AN_ERROR)) if failing else edit
    try:
        _sound(await CALLS[name](slurm, job))
    except RemoteError as error:
        _readable(str(error))


_AN_ERROR = json.dumps(
    {"errors": [{"error_number": 2016, "error": "busy", "description": "d"}], "warnings": [{"source": "s"}]}
).encode()


def _readable(text: str) -> None:
    assert text.isprintable()
    assert len(text) < 1000


def _sound(value: Any) -> None:
    """The decoded values can be shown: every time has a date, and each left-out object has a place in a poll."""
    for moment in _named(value, {"submitted", "starts", "ends", "preempted"}):
        assert moment is None or 0 < moment <= LAST_MOMENT
        assert moment is None or clock(moment, NOW)
    for undecoded in _named(value, {"undecoded"}):
        JobsPolled(NOW, NOW, {}, undecoded_jobs(undecoded))
        SlurmNodesPolled((), (), NOW, undecoded_nodes=undecoded_names(undecoded))


def _named(value: Any, wanted: set[str]) -> list[Any]:
    if is_dataclass(value):
        pairs = [(each.name, getattr(value, each.name)) for each in fields(value)]
        return [part for key, part in pairs if key in wanted] + [
            found for _, part in pairs for found in _named(part, wanted)
        ]
    if isinstance(value, tuple | list):
        return [found for part in value for found in _named(part, wanted)]
    return []


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | HOSTILE.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_a_token_may_claim_anything(payload: bytes) -> None:
    for text in (payload, b'{"exp": %s}' % payload, b'{"sun": %s}' % payload):
        claims = claims_of("a." + base64.urlsafe_b64encode(text).decode().rstrip("=") + ".c")
        if claims.exp is not None:
            assert age(claims.exp - NOW)
            assert age(NOW - claims.exp)


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_text_at_all_is_an_error_of_the_far_side(text: bytes) -> None:
    async def every() -> None:
        cluster = SlurmCluster.example(started=NOW)
        wire = Edited(InProcessSlurm(cluster, lambda: NOW))
        slurm = SlurmClient(wire, LiteralToken(cluster.token("slurm")), clock=lambda: NOW)
        await slurm.discover()
        wire.edit = lambda _: text
        for call in CALLS.values():
            try:
                await call(slurm, 1)
            except RemoteError:
                continue

    asyncio.run(every())

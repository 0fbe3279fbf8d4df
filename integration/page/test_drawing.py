"""The page alone, with states that a healthy bridge does not show: a broken invariant, thousands of pods, hostile names."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from bridge.page.feed import entries_of
from bridge.page.server import Page
from integration.browser import Tab

NOW = time.time()
HOSTILE = "<img src=x onerror=alert(1)>"


def row(name: str, **fields: Any) -> dict[str, Any]:
    plain = {"namespace": "hpc", "name": name, "key": name, "created": NOW - 5, "phase": "queued", "word": "Pending"}
    plain |= {"job": 17, "state": "PENDING", "user": "alice", "node": "", "why": "it waits", "reason": "Priority"}
    return plain | fields


class Shown:
    """A page of a state that tests give."""

    def __init__(self) -> None:
        self.state: dict[str, dict[str, Any]] = {"pods": {}, "counts": {}}
        self.detail: dict[str, Any] = {"story": [], "waterfall": []}
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        page = Page(lambda: entries_of(self.state), lambda _key: self.detail, time.time)
        self._runner = web.AppRunner(
            page.application(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner
        await self._runner.cleanup()


@pytest.fixture
async def shown() -> AsyncIterator[Shown]:
    it = Shown()
    await it.start()
    yield it
    await it.stop()


async def test_a_broken_invariant_is_red_and_reported_in_words(shown: Shown, tab: Tab) -> None:
    shown.state["invariants"] = {
        "V1": {"says": "a workload has at most one running job", "checked": 12345, "broken": 0},
        "V2": {"says": "a pod is bound only to nodes of its job", "checked": 7, "broken": 1},
    }
    shown.state["violations"] = {"000000": {"at": NOW, "what": "V2: hpc/train is bound to x1, job 17 holds x2"}}
    await tab.open(shown.url)
    await tab.eventually("document.querySelectorAll('#invariants li').length === 2")
    marks = await tab.ask("[...document.querySelectorAll('#invariants .mark')].map(e => [e.innerText, e.className])")
    assert marks == [["✓", "mark run"], ["✗", "mark bad"]]
    assert await tab.ask("document.getElementById('kept').innerText") == "1 broken"
    assert "job 17 holds x2" in await tab.ask("document.getElementById('violations').innerText")


async def test_what_is_left_out_is_counted(shown: Shown, tab: Tab) -> None:
    shown.state["pods"] = {f"uid-{number}": row(f"p{number}") for number in range(100)}
    shown.state["counts"] = {"queued": 4321, "bound": 0}
    await tab.open(shown.url)
    await tab.eventually("document.getElementById('none').innerText === 'and 4,221 more'")
    assert await tab.ask("document.getElementById('counts').innerText") == "4,321 waiting"


async def test_only_what_has_gates_is_gated(shown: Shown, tab: Tab) -> None:
    phases = "[...document.querySelectorAll('#pods .phase')].map(phase => phase.innerText).join()"
    gang = {
        "a": row("w-0", phase="gathering", word="Gathering", job=None),
        "b": row("w-1", phase="gathering", word="Gated", job=None),
    }
    shown.state = {"pods": gang, "counts": {"gathering": 2}}
    await tab.open(shown.url)
    await tab.eventually(f"{phases} === 'Gathering,Gated'")
    assert await tab.ask("document.getElementById('none').hidden")


async def test_rows_come_change_and_go(shown: Shown, tab: Tab) -> None:
    names = "[...document.querySelectorAll('#pods tbody tr')].map(row => row.cells[0].innerText).join()"
    shown.state = {"pods": {"a": row("one", created=NOW - 9), "b": row("two")}, "counts": {"queued": 2}}
    await tab.open(shown.url)
    await tab.eventually(f"{names} === 'one,two'")
    shown.state = {
        "pods": {"a": row("one", phase="bound", word="Running", node="x1"), "b": row("two")},
        "counts": {"queued": 1},
    }
    await tab.eventually(f"{names} === 'two,one'")
    shown.state = {"pods": {"a": row("one", phase="done", word="Failed")}, "counts": {"done": 1}}
    await tab.eventually(f"{names} === 'one'")
    assert await tab.ask("document.querySelector('#pods .phase').innerText") == "Failed"
    assert await tab.ask("document.querySelector('#pods .phase').className") == "phase bad"


async def test_what_users_write_is_text(shown: Shown, tab: Tab) -> None:
    shown.state = {"pods": {"a": row(HOSTILE, why=HOSTILE, node=HOSTILE)}, "counts": {"queued": 1}}
    shown.state["nodes"] = {HOSTILE: {"ready": True, "cordoned": False, "pods": 0, "cpus": [0, 1], "gib": [0, 1],
                                      "devices": [0, 0], "slurm": None}}  # fmt: skip
    await tab.open(shown.url)
    await tab.eventually("document.querySelectorAll('#pods tbody tr').length === 1")
    assert await tab.ask("document.querySelector('#pods tbody td').innerText") == HOSTILE
    assert await tab.ask("document.querySelectorAll('img').length") == 0


LONG, REVERSED, NAN = "x" * 10_000, "\u202etxt.exe\u2066", float("nan")


async def test_odd_texts_and_numbers_break_no_other_part(shown: Shown, tab: Tab) -> None:
    """Texts without an end, texts that reverse what follows, keys of JavaScript's own, and numbers that are none."""
    odd = {"word": LONG, "why": LONG, "node": LONG, "reason": LONG, "user": LONG, "state": LONG, "namespace": LONG}
    shown.state["pods"] = {
        "a": row(LONG, **odd),
        "b": row(REVERSED, word=REVERSED, why=REVERSED, node=REVERSED, reason=REVERSED),
        "c": row("constructor", word="constructor", created=NAN, job=-1, reason="__proto__"),
        "plain": row("plain"),
    }
    amounts = {"ready": True, "cordoned": False, "pods": 0, "cpus": [NAN, 2**70], "gib": [0, 1], "devices": [-1, -7]}
    reason = {"name": LONG, "states": ["DOWN", LONG], "reason": LONG, "cpus": [0, 0], "devices": [0, 0]}
    shown.state["nodes"] = dict.fromkeys([LONG, REVERSED, "__proto__", "n1"], amounts | {"slurm": reason})
    times = [(-5.0, NAN), (NAN, None), (1e300, 1e300), (NOW, NOW - 9)]
    shown.detail = {
        "story": [{"at": at, "what": text} for at, text in ((NAN, LONG), (1e300, REVERSED), (-1e300, HOSTILE))],
        "waterfall": [{"name": "constructor", "start": start, "end": end} for start, end in times],
        "waits": LONG,
    }
    await tab.open(shown.url)
    await tab.eventually("document.querySelectorAll('#pods tbody tr').length === 4")
    await tab.eventually("document.querySelectorAll('#nodes li').length === 4")
    await tab.eventually("document.querySelectorAll('#story li').length === 3")
    assert await tab.ask("document.querySelectorAll('#waterfall li').length") == len(times)
    assert await tab.ask("new Set([...document.querySelectorAll('#pods tbody tr')].map(r => r.offsetHeight)).size") == 1
    assert await tab.ask("document.documentElement.scrollWidth <= window.innerWidth")
    for text, left in {"a(b[.*+?^${}|\\": 0, "name:plain": 1, "is:": 0, "constructor:x": 0, "NAME:PLAIN": 1}.items():
        await tab.ask(
            f"(field => (field.value = {json.dumps(text)}, field.dispatchEvent(new Event('input'))))"
            "(document.getElementById('filter'))"
        )
        assert await tab.ask("document.getElementById('none').innerText") == f"{left} of 4 pods", text


async def test_a_page_without_faults_and_invariants_shows_none(shown: Shown, tab: Tab) -> None:
    """As the bridge's own page will be."""
    shown.state = {"pods": {"a": row("one")}, "counts": {"queued": 1}}
    await tab.open(shown.url)
    await tab.eventually("document.querySelectorAll('#pods tbody tr').length === 1")
    hidden = "['faults-panel', 'invariants-panel', 'try'].every(id => document.getElementById(id).hidden)"
    assert await tab.ask(hidden)


async def test_before_any_list_nothing_is_shown_of_pods(shown: Shown, tab: Tab) -> None:
    shown.state = {}
    await tab.open(shown.url)
    assert await tab.ask("document.getElementById('none').innerText") == "Connecting …"
    shown.state = {"pods": {}, "counts": {"queued": 0}}
    await tab.eventually("document.getElementById('none').innerText === 'No pods yet.'")


DOT = "getComputedStyle(document.querySelector('#sides li'), '::before').backgroundColor"
BUTTON_WORKS = "document.querySelector('#faults button').matches(':enabled')"
ANSWERS = {"since": None, "why": ""}
SIDES = {
    "Kubernetes": ANSWERS,
    "Slurm": ANSWERS,
    "bridge": {"started": NOW, "polled": NOW, "missing": [], "quiet": None},
}
FAULT = {"label": "Break it", "does": "breaks it", "on": None, "unavailable": ""}


async def test_a_bridge_that_went_away_is_reported_and_followed_again(shown: Shown, tab: Tab) -> None:
    shown.state = {"pods": {"a": row("one")}, "counts": {"queued": 1}, "sides": SIDES, "faults": {"break": FAULT}}
    await tab.open(shown.url)
    await tab.eventually("document.querySelectorAll('#pods tbody tr').length === 1")
    alive = await tab.ask(DOT)
    assert await tab.ask(BUTTON_WORKS)
    await shown.stop()
    await tab.eventually("document.getElementById('trouble').innerText.includes('does not answer')")
    assert not await tab.ask(BUTTON_WORKS)
    assert await tab.ask(DOT) != alive, "what nobody says is not so any more"
    shown.state = shown.state | {"pods": {"b": row("two")}, "counts": {"queued": 1}}
    await shown.start()
    await tab.eventually("document.querySelector('#pods tbody').innerText.includes('two')")
    assert "one" not in await tab.ask("document.querySelector('#pods tbody').innerText"), "it begins with everything"
    assert await tab.ask("document.getElementById('trouble').hidden")
    assert await tab.ask(BUTTON_WORKS)
    assert await tab.ask(DOT) == alive
    assert all("net::ERR_" in error for error in tab.errors)
    tab.errors.clear()

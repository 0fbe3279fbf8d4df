"""The page of a running bridge: read only, behind its token, with names that tenants chose; and the page of a standby."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridge.guard import Guard
from bridge.health import Health
from bridge.http_access import BearerFile, Bearers
from bridge.starting import StandingBy, Starting
from bridge.telemetry import Telemetry
from integration.browser import Tab
from tests.builders import START, Story, pod

TOKEN = "correct-horse-battery-staple"
HOSTILE = "</td><img src=x onerror=alert(1)><script>alert(2)</script>"
ROWS = "document.querySelectorAll('#pods tbody tr').length"
VISIBLE = "!document.getElementById('token-form').hidden"


class Turning:
    """What the endpoints read of the loop: one pod runs, and one has a hostile end."""

    def __init__(self) -> None:
        story = Story()
        story.runs(pod("train"), 17, at=START + 20)
        hostile = pod("hostile")
        story.sees(replace(hostile, end_reason=HOSTILE, name=HOSTILE, deleting_at=START))
        self.world, self.passed, self.guard = story.world, START, Guard(on=True)


@asynccontextmanager
async def served(asked: Health | Starting, tab: Tab) -> AsyncIterator[str]:
    """Its URL.  The tab leaves the page before the server ends: a page that goes on asking would report a fault."""
    runner = await asked.serve("127.0.0.1", 0)
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await tab.open("about:blank")
    await runner.cleanup()


def bridge(bearer: BearerFile | None = None) -> Health:
    loop: Any = Turning()
    return Health(loop, [], Telemetry(recent=10), lambda: START + 30, Bearers(bearer))


async def test_the_page_shows_pods_and_has_no_faults(tab: Tab) -> None:
    async with served(bridge(), tab) as url:
        await tab.open(url)
        await tab.eventually(f"{ROWS} === 2")
        hidden = (
            "['faults-panel', 'invariants-panel', 'try', 'token-form'].every(id => document.getElementById(id).hidden)"
        )
        assert await tab.ask(hidden)
        await tab.click("#pods tbody tr[data-uid=uid-train]")
        await tab.eventually("document.getElementById('story').innerText.includes('Slurm job 17')")
        assert await tab.ask("document.querySelectorAll('#waterfall .bar').length > 0")


async def test_what_tenants_name_is_text(tab: Tab) -> None:
    async with served(bridge(), tab) as url:
        await tab.open(url)
        await tab.eventually(f"{ROWS} === 2")
        await tab.click("#pods tbody tr[data-uid=uid-hostile]")
        await tab.eventually("document.getElementById('detail-pod').innerText.includes('<script>')")
        assert await tab.ask("[...document.querySelectorAll('td.name')].some(cell => cell.innerText.includes('<img'))")
        assert await tab.ask("document.querySelectorAll('img, main script').length") == 0


async def test_a_browser_that_forbids_storage_shows_the_page_and_keeps_the_token_while_it_is_open(
    tab: Tab, tmp_path: Path
) -> None:
    forbid = "Object.defineProperty(window, {!r}, {{get() {{ throw new DOMException('denied', 'SecurityError'); }}}});"
    for storage in ("localStorage", "sessionStorage"):
        await tab.call("Page.addScriptToEvaluateOnNewDocument", source=forbid.format(storage))
    (tmp_path / "token").write_text(TOKEN)
    async with served(bridge(BearerFile(str(tmp_path / "token"))), tab) as url:
        await tab.open(url)
        await tab.eventually(VISIBLE)
        await give(tab, TOKEN)
        await tab.eventually(f"{ROWS} === 2")
        await tab.click("#theme")
        assert await tab.ask("document.documentElement.dataset.theme") == "light"
    tab.errors[:] = [error for error in tab.errors if "401" not in error]


async def test_without_javascript_the_page_says_what_it_needs(tab: Tab) -> None:
    async with served(bridge(), tab) as url:
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        await tab.open(url)
        says = await tab.ask("document.body.innerText")
        assert "needs JavaScript" in says
        assert "Connecting" not in says
        await tab.call("Emulation.setScriptExecutionDisabled", value=False)


async def test_a_bridge_with_a_token_asks_for_it_once(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    async with served(bridge(BearerFile(str(tmp_path / "token"))), tab) as url:
        await tab.open(url)
        await tab.eventually(VISIBLE)
        assert await tab.ask(ROWS) == 0
        await give(tab, "another-token-of-the-right-length")
        await tab.eventually("document.getElementById('token-wrong').innerText.includes('does not accept')")
        await give(tab, TOKEN)
        await tab.eventually(f"{ROWS} === 2")
        await tab.click("#pods tbody tr[data-uid=uid-train]")
        await tab.eventually("document.getElementById('story').innerText.includes('Slurm job 17')")
        assert TOKEN not in await tab.ask("location.href + JSON.stringify(localStorage) + document.cookie")
        await tab.open(url)
        await tab.eventually(f"{ROWS} === 2")
        assert not await tab.ask(VISIBLE), "the tab has kept it"
    assert all("401" in error or "net::ERR_" in error for error in tab.errors)
    tab.errors.clear()


async def give(tab: Tab, token: str) -> None:
    """Type the token into the form, and send the form."""
    await tab.ask("document.getElementById('token').focus()")
    await tab.type(token)
    await tab.press("Enter")


class Follower:
    """The lease and the mirror of a standby."""

    holder, trouble, lost = "slurm-bridge-0", "", None

    def missing(self) -> list[str]:
        return []


async def test_the_page_of_a_standby_says_which_replica_leads_and_shows_pods_once_it_leads(tab: Tab) -> None:
    starting = Starting({}, [], Telemetry(), lambda: START)
    follower: Any = Follower()
    starting.standby = StandingBy(follower, follower)
    async with served(starting, tab) as url:
        await tab.open(url)
        await tab.eventually("document.getElementById('none').innerText.includes('replica slurm-bridge-0 leads')")
        starting.health = bridge()
        await tab.eventually(f"{ROWS} === 2")
        await tab.eventually("document.getElementById('none').hidden")

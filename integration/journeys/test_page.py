"""The page of `slurm-bridge run` between real clusters, in a browser: what it shows is what Slurm and Kubernetes have."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from integration.browser import PROGRAM, browser
from integration.clusters import BridgeProcess, Kube, Slurm, eventually

CELLS = "[...document.querySelectorAll('#pods tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"


@pytest.mark.skipif(not shutil.which(PROGRAM), reason=f"no {PROGRAM} here")
async def test_the_page_shows_a_pod_its_job_its_node_and_its_steps(
    bridge: BridgeProcess, kube: Kube, slurm: Slurm, space: Callable[[str], str]
) -> None:
    ns = space("alice")
    kube.run(ns, "shown")
    eventually("it is bound", lambda: kube.bound(ns))
    [job] = slurm.live(f"{ns}/")
    [node] = [each.spec.node_name for each in kube.bound(ns)]
    async with browser() as tab:
        await tab.open(f"http://127.0.0.1:{bridge.port}/")
        await tab.press("/")
        await tab.type(f"ns:{ns}")
        row = f"{CELLS}.find(cells => cells[0] === 'shown' && cells[3])"
        await tab.eventually(row)
        shown = await tab.ask(row)
        assert shown[2].split() == [str(job["job_id"]), "RUNNING"]
        assert shown[3] == node
        await tab.click("#pods tbody tr")
        await tab.eventually("document.querySelectorAll('#waterfall .bar').length >= 3")
        assert f"pod {ns}/shown created" in await tab.ask("document.getElementById('story').innerText")
        assert not await tab.ask("document.getElementById('latency-panel').hidden")
        await tab.eventually(
            "[...document.querySelectorAll('#nodes .stands')].some(e => e.innerText.includes('shown'))"
        )
        assert await tab.ask("document.getElementById('faults-panel').hidden")
        assert tab.errors == []

"""The page of `slurm-bridge dev` in a browser: what it shows is what the clusters are, and its buttons do what they say.

PICTURES=folder keeps pictures of it, light and dark, wide and narrow.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from bridge.dev.faults import FAULTS
from integration.browser import Tab
from integration.demo import Dev

ROWS = "[...document.querySelectorAll('#pods tbody tr')]"
RUNNING = f"{ROWS}.filter(row => row.cells[1].innerText === 'Running')"
TABLE = f"{RUNNING}.map(row => [...row.cells].map(cell => cell.innerText))"
LASTING = [name for name, fault in FAULTS.items() if fault.on is not None and name != "lose-answer"]
AT_ONCE = [name for name in FAULTS if name not in LASTING]


def pods(dev: Dev) -> dict[str, Any]:
    """By name, as the simulated Kubernetes has them."""
    server = yaml.safe_load(dev.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    listed = requests.get(f"{server}/api/v1/namespaces/hpc/pods", timeout=10).json()["items"]
    return {pod["metadata"]["name"]: pod for pod in listed}


async def press(tab: Tab, name: str) -> str:
    """A fault's button; what it says was done."""
    await tab.ask("document.getElementById('note').textContent = ''")
    await tab.eventually(f"!!document.querySelector('button[data-fault={name}]')")  # pods are drawn before buttons
    await tab.click(f"button[data-fault={name}]")
    return str(await tab.eventually("document.getElementById('note').textContent"))


def pressed(name: str, *, on: bool) -> str:
    return f"document.querySelector('button[data-fault={name}]').ariaPressed === '{str(on).lower()}'"


async def test_a_row_is_a_pod_its_job_and_its_node(dev: Dev, tab: Tab) -> None:
    await tab.open(dev.url)
    await tab.eventually(f"{RUNNING}.length >= 3")
    shown, there = await tab.ask(TABLE), pods(dev)
    compared = 0
    for name, _phase, job, node, *_ in shown:
        if name in there:  # it may have been deleted since
            assert there[name]["spec"]["nodeName"] == node
            assert job.split() == [there[name]["metadata"]["annotations"]["slurm-bridge/job-id"], "RUNNING"]
            compared += 1
    assert compared >= 2
    assert await tab.ask("document.querySelectorAll('#nodes li').length") == 4
    assert await tab.ask("document.querySelectorAll('#nodes meter').length") == 8


async def test_the_trace_of_the_chosen_pod_is_a_waterfall(dev: Dev, tab: Tab) -> None:
    await tab.open(dev.url)
    await tab.eventually(f"{RUNNING}.length >= 2")
    name = await tab.ask(f"(row => (row.click(), row.cells[0].innerText))({RUNNING}.at(-1))")
    await tab.eventually(f"document.getElementById('detail-pod').innerText.includes('/{name},')")
    await tab.eventually("document.querySelectorAll('#waterfall .bar').length >= 4")
    steps = await tab.ask("[...document.querySelectorAll('#waterfall li')].map(li => li.firstChild.innerText)")
    assert steps[:3] == ["created → asked Slurm", "waiting for Slurm", "granted → bound"]
    assert steps[-1] in ("containers start", "runs", "job ended")
    widths = await tab.ask(
        "[...document.querySelectorAll('#waterfall .bar')].map(bar => bar.getBoundingClientRect().width)"
    )
    assert all(width > 0 for width in widths)
    assert f"pod hpc/{name} created" in await tab.ask("document.getElementById('story').innerText")
    chosen = await tab.ask("document.querySelector('#pods tr[aria-selected=true]').cells[0].innerText")
    assert chosen == name


@pytest.mark.parametrize("name", LASTING)
async def test_a_fault_that_lasts_is_seen_and_ends_when_pressed_again(dev: Dev, tab: Tab, name: str) -> None:
    await tab.open(dev.url)
    await tab.eventually("document.querySelectorAll('button[data-fault]').length")
    assert await press(tab, name)
    await tab.eventually(pressed(name, on=True))
    if name.endswith("-down"):
        await tab.eventually("!document.getElementById('trouble').hidden")
        away = {"apiserver-down": "Kubernetes", "slurmdbd-down": "slurmdbd"}.get(name, "Slurm")
        assert away in await tab.ask("document.getElementById('trouble').innerText")
        bad = await tab.ask("[...document.querySelectorAll('#sides li.bad')].map(side => side.innerText).join()")
        assert bad == ("" if away == "slurmdbd" else f"{away} does not answer"), "all else goes on without slurmdbd"
    if name == "drain-node":
        await tab.eventually("document.querySelector('#nodes .bad')?.innerText.includes('DRAIN')")
    assert await press(tab, name)
    await tab.eventually(pressed(name, on=False))
    await tab.eventually("document.getElementById('trouble').hidden")
    await tab.eventually("!document.querySelector('#nodes .bad')")


@pytest.mark.parametrize("name", AT_ONCE)
async def test_a_fault_is_survived(dev: Dev, tab: Tab, name: str) -> None:
    await tab.open(dev.url)
    await tab.eventually(f"{RUNNING}.length >= 1")
    said = await press(tab, name)
    for _ in range(5):
        if not said.startswith("No job runs"):  # it ended between the look and the click
            break
        await tab.eventually(f"{RUNNING}.length >= 1")
        said = await press(tab, name)
    if name == "restart-bridge":
        process = re.search(r"process (\d+)", said)
        assert process
        await tab.eventually(f"document.getElementById('sides').innerText.includes('process {process[1]}, up')")
    if name in ("preempt-job", "cancel-job"):
        job = re.search(r"Job (\d+) was", said)
        assert job, said
        gone = f"!{RUNNING}.some(row => row.cells[2].innerText.startsWith('{job[1]} '))"
        await tab.eventually(gone)
    if name == "lose-answer":
        await tab.eventually(pressed(name, on=False))  # some write has lost its answer
    await tab.eventually(f"{RUNNING}.length >= 1")


async def test_after_all_that_every_invariant_was_checked_and_held(dev: Dev, tab: Tab) -> None:
    await tab.open(dev.url)
    await tab.eventually("document.querySelectorAll('#invariants li').length")
    unchecked = "[...document.querySelectorAll('#invariants li')].filter(li => li.children[0].innerText !== '✓')"
    names = f"{unchecked}.map(li => li.children[1].innerText)"
    await tab.eventually(f"{names}.every(name => name === 'V4' || name[0] === 'L')")  # gangs come when they come
    shown = await tab.ask(
        "[...document.querySelectorAll('#invariants li')].map(li => [...li.children].map(e => e.innerText))"
    )
    counted = {name: int(re.sub(r"\D", "", count)) for _, name, _, count in shown}
    assert list(counted) == ["V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "L1", "L2", "L3", "L4"]
    always = {name for name in counted if name.startswith("V")} - {"V4"}
    assert {mark for mark, name, *_ in shown if name in always} == {"✓"}
    assert all(counted[name] > 0 for name in always), counted
    assert await tab.ask("document.getElementById('violations').hidden")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
async def test_nothing_runs_out_of_the_window(dev: Dev, tab: Tab, width: int, dark: bool) -> None:
    await tab.open(dev.url, width=width, dark=dark)
    await tab.eventually(f"{RUNNING}.length >= 1")
    await tab.eventually("document.querySelectorAll('#waterfall .bar').length >= 4")
    assert await tab.ask("document.documentElement.scrollWidth") <= width
    ground = await tab.ask("getComputedStyle(document.body).backgroundColor")
    brightness = sum(json.loads(f"[{ground.removeprefix('rgb(').removesuffix(')')}]"))
    assert (brightness < 150) is dark
    if folder := os.environ.get("PICTURES"):
        picture = await tab.picture(whole=width < 600)
        path = Path(folder, f"page-{'dark' if dark else 'light'}-{width}.png")
        await asyncio.to_thread(path.write_bytes, picture)

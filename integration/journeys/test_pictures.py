"""The pictures of README and docs: the page of `slurm-bridge run` between real clusters, in a browser, with pods on it.

Each picture is made and looked at: light and dark, wide and narrow.  PICTURES=folder keeps them (`make pictures`).
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from integration.browser import PROGRAM, Tab, browser
from integration.clusters import BridgeProcess, Kube, Slurm, eventually

pytestmark = pytest.mark.skipif(not shutil.which(PROGRAM), reason=f"no {PROGRAM} here")
SPACES = ("alice-vision", "bob-speech")
ROWS = "document.querySelectorAll('#pods tbody tr').length"
SHOWN = (
    "ring-0",
    "tune-1",
    "nightly",
    "BeginTime",
    "Resources",
    "Why pods wait",
    "IDLE+DRAIN · bad fan",
    "Refused",
    "created → bound",
)
# Elements beyond the right edge of the window, and texts that are cut without an ellipsis.
OUTSIDE = """
    [...document.querySelectorAll('body *')]
        .filter(e => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1)
        .map(e => e.outerHTML.slice(0, 80))
"""
CUT = """
    [...document.querySelectorAll('#waterfall span, #queue span, #nodes span, h2, .head span')]
        .filter(e => e.offsetParent && !e.children.length && e.scrollWidth > e.clientWidth + 1)
        .filter(e => !['inline'].includes(getComputedStyle(e).display) && getComputedStyle(e).textOverflow !== 'ellipsis')
        .map(e => e.textContent)
"""


@pytest.fixture(scope="module")
def life(bridge: BridgeProcess, kube: Kube, slurm: Slurm) -> Iterator[None]:
    """Pods of two tenants: some run, some wait for different reasons, one has ended, one was refused; a node is drained."""
    vision, speech = SPACES
    for name in SPACES:
        kube.namespace(name)
    drained = kube.external_nodes()[-1]
    slurm.change_node(drained, "DRAIN", "bad fan")
    try:
        for number in range(4):
            kube.run(
                vision, f"ring-{number}", gpu=2, cpu="8", memory="32Gi", labels={"slurm-bridge/gang": "ring"},
                says={"gang-size": "4"},
            )  # fmt: skip
        for number in range(3):
            kube.run(vision, f"tune-{number}", gpu=1, cpu="8", memory="64Gi", says={"partition": "gpu"})
        kube.run(speech, "train", gpu=4, cpu="16", memory="128Gi")
        eventually("they run", lambda: (len(kube.bound(vision)), len(kube.bound(speech))) == (7, 1))
        kube.succeed(vision, "tune-0")
        kube.run(speech, "eval", gpu=2)
        kube.run(vision, "nightly", gpu=2, says={"begin": "now+6hours"})
        kube.run(vision, "large", cpu="60", gpu=8, says={"exclusive": "true", "time-limit": "2:00:00"})
        eventually("the last node with GPUs is taken", lambda: kube.pod(vision, "large").spec.node_name)
        for name in ("deep-0", "deep-1"):
            kube.run(vision, name, cpu="32", gpu=8, says={"time-limit": "2:00:00"})
            eventually("its job is in Slurm's queue, before the next one", partial(kube.said, vision, name))
        kube.run(speech, "odd", says={"partition": "nosuch"})
        eventually("each says why it waits", lambda: all(kube.said(*each) for each in waiting(kube)))
        eventually("Slurm says when one may start", lambda: "expected start" in kube.said(vision, "deep-0"))
        kube.succeed(vision, "large")
        eventually("another pod has its place", lambda: kube.pod(vision, "deep-0").spec.node_name)
        yield
    finally:
        slurm.change_node(drained, "RESUME")
        for name in SPACES:
            kube.remove(name)
            eventually(f"no job of {name} is left", lambda n=name: not slurm.live(f"{n}/"))  # type: ignore[misc]


def waiting(kube: Kube) -> list[tuple[str, str]]:
    """Namespace and name of the pods without a node."""
    return [(name, each.metadata.name) for name in SPACES for each in kube.pods(name) if not each.spec.node_name]


async def shown(tab: Tab, url: str, *, width: int, height: int, dark: bool) -> None:
    """Open the page, with a pod chosen that had to wait, and wait until everything is there."""
    await tab.open(url, width=width, height=height, dark=dark)
    await tab.eventually(f"{ROWS} >= 12")
    await tab.ask(
        "[...document.querySelectorAll('#pods tbody tr')].find(row => row.cells[0].innerText === 'deep-0').click()"
    )
    await tab.eventually("document.querySelectorAll('#waterfall .bar').length >= 4")
    await tab.eventually("document.getElementById('detail-pod').innerText.includes('deep-0')")
    await tab.eventually("!document.getElementById('latency-panel').hidden")
    await tab.eventually("document.querySelectorAll('#nodes li').length > 2")
    await tab.eventually("!document.getElementById('pods').innerText.includes('not looked at yet')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_the_page_of_a_real_bridge_is_a_picture(
    life: None, bridge: BridgeProcess, kube: Kube, width: int, dark: bool
) -> None:
    async with browser() as tab:
        await shown(tab, f"http://127.0.0.1:{bridge.port}/", width=width, height=900, dark=dark)
        for text in SHOWN:
            await tab.eventually(f"document.body.innerText.includes('{text}')")
        assert await tab.ask("document.documentElement.scrollWidth") <= width
        assert await tab.ask(OUTSIDE) == []
        assert await tab.ask(CUT) == []
        theme = "-dark" if dark else ""
        whole = await tab.picture(whole=width < 600)
        keep("page", whole, f"page{theme}{'-narrow' if width < 600 else ''}.png", at_least=width)
        if width >= 600:
            await tab.eventually("document.getElementById('waterfall').innerText.includes('runs')")
            keep("trace", await tab.picture(of="#detail"), f"trace{theme}.png", at_least=600)
        assert tab.errors == []


def keep(what: str, picture: bytes, name: str, *, at_least: int) -> None:
    """Check that it is a PNG of that width which shows something, and write it where PICTURES says."""
    width, height = struct.unpack(">II", picture[16:24])
    assert picture.startswith(b"\x89PNG")
    assert width >= at_least, what
    assert len(picture) > width * height / 100, f"the picture of the {what} is nearly empty"
    if folder := os.environ.get("PICTURES"):
        Path(folder, name).write_bytes(picture)

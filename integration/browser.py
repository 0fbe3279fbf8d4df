"""Drives a headless Chromium by its DevTools protocol, which needs no other package.

`Tab.eventually` waits until a script returns a true value; `Tab.errors` has the errors of the browser's console.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.patience import PATIENCE_S

PROGRAM = "chromium"
START_S = 90.0
LOOK_EVERY_S = 0.05
QUIET = ("--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")


@dataclass
class Tab:
    """One page in the browser."""

    socket: aiohttp.ClientWebSocketResponse
    errors: list[str] = field(default_factory=list)
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _asked: int = 0

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol.  Raises RuntimeError where the browser refuses it."""
        self._asked += 1
        answer = self._answers[self._asked] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": self._asked, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            said = await answer
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']['message']}")
        result: dict[str, Any] = said["result"]
        return result

    async def listen(self) -> None:
        """Receive messages of the browser, for ever."""
        async for message in self.socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Runtime.exceptionThrown":
                self.errors.append(str(said["params"]["exceptionDetails"]))
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                self.errors.append(str(said["params"]["entry"]["text"]))
            elif said["method"] == "Runtime.consoleAPICalled" and said["params"]["type"] in ("error", "warning"):
                self.errors.append(str(said["params"]["args"]))

    async def open(self, url: str, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Load the URL, in a window of that size."""
        narrow = width < 600
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=narrow
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=url)
        await self.eventually("document.readyState === 'complete'")

    async def ask(self, script: str) -> Any:
        """Run a script.  Returns its value."""
        said = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, f"{script}: {said['exceptionDetails']}"
        return said["result"].get("value")

    async def eventually(self, script: str, *, within_s: float = PATIENCE_S) -> Any:
        """Run the script until its value is true.  Raises AssertionError with what the page shows instead."""
        answer = None
        try:
            async with asyncio.timeout(within_s):
                while not (answer := await self.ask(script)):  # noqa: ASYNC110 - a page is polled, because it sends no event
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            text = await self.ask("document.body.innerText")
            raise AssertionError(f"not within {within_s:g} s: {script}; last: {answer!r}; the page:\n{text}") from None
        return answer

    async def busy_s(self) -> float:
        """Processor time of the page's main thread until now, in seconds: what other programs use does not count."""
        await self.call("Performance.enable", timeDomain="threadTicks")
        found = await self.call("Performance.getMetrics")
        return float(next(each["value"] for each in found["metrics"] if each["name"] == "TaskDuration"))

    async def click(self, selector: str) -> None:
        """Click on the first element of that selector."""
        assert await self.ask(f"(e => e && (e.click(), true))(document.querySelector({selector!r}))"), selector

    async def press(self, key: str) -> None:
        """Press one key: a character, or the name of a key such as "Escape"."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Escape": 27, "Enter": 13}.get(key, 0)
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def type(self, text: str) -> None:
        """Type the text into the field that has the focus."""
        await self.call("Input.insertText", text=text)

    async def picture(self, *, whole: bool = False, of: str = "") -> bytes:
        """A PNG of the window, of the whole page, or of the first element of that selector."""
        clip: dict[str, Any] = {}
        if of:
            box = await self.ask(f"document.querySelector({of!r}).getBoundingClientRect().toJSON()")
            clip = {"clip": {side: box[side] for side in ("x", "y", "width", "height")} | {"scale": 1}}
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """A browser with one tab."""
    program = shutil.which(PROGRAM)
    assert program, f"there is no {PROGRAM}: integration/run.py installs it"
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as folder:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # it does not start as root with one
        process = await asyncio.create_subprocess_exec(
            program, *QUIET, *sandbox, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as session:
                socket = await session.ws_connect(await _address(session, Path(folder)), max_msg_size=0)
                tab = Tab(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                yield tab
                listening.cancel()
        finally:
            process.terminate()
            await process.wait()


async def _address(session: aiohttp.ClientSession, folder: Path) -> str:
    """The address of the first tab.  The browser writes its port into its folder when it listens."""
    port = folder / "DevToolsActivePort"
    async with asyncio.timeout(START_S):
        while not (port.exists() and "\n" in port.read_text()):  # noqa: ASYNC110 - it sends no event
            await asyncio.sleep(LOOK_EVERY_S)
    async with session.get(f"http://127.0.0.1:{port.read_text().split()[0]}/json/list") as answer:
        tabs = await answer.json()
    return next(str(tab["webSocketDebuggerUrl"]) for tab in tabs if tab["type"] == "page")

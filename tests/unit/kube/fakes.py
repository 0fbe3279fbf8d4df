"""A server written by hand: it sends the responses that a test sets, and records the requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from bridge.kube.transport import NO_PARAMS, Call, Reply

Answer = Reply | BaseException
Line = bytes | float | BaseException  # a line, a silence in seconds, or the end by this error


class FakeTransport:
    """Answers in the order given; a stream gives its lines and then ends."""

    def __init__(self, *answers: Answer, streams: list[list[Line] | BaseException] | None = None) -> None:
        self.answers = list(answers)
        self.streams = list(streams or [])
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.opened: list[dict[str, str]] = []
        self.stalls: list[float] = []
        self.opens_after_s = 0.0
        self.times: list[float] = []
        self.on_ask: Callable[[], None] = lambda: None

    async def exchange(self, call: Call) -> Reply:
        self.asked.append((call.method, call.path, dict(call.params), json.loads(call.body) if call.body else None))
        self.times.append(asyncio.get_running_loop().time())
        self.on_ask()
        assert self.answers, f"nobody told how to answer {call.method} {call.path}"
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        del path
        self.opened.append(dict(params))
        self.stalls.append(stall_s)
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.opens_after_s)
        assert self.streams, "nobody told how this stream goes"
        lines = self.streams.pop(0)
        if isinstance(lines, BaseException):
            raise lines
        yield self._lines(lines)

    async def _lines(self, lines: list[Line]) -> AsyncIterator[bytes]:
        for line in lines:
            if isinstance(line, BaseException):
                raise line
            if isinstance(line, bytes):
                yield line
            else:
                await asyncio.sleep(line)

    async def close(self) -> None:
        """Nothing is held."""


def reply(thing: Any, code: int = 200, **headers: str) -> Reply:
    """An answer with this JSON."""
    return Reply(code, headers, json.dumps(thing).encode())


def no(code: int, reason: str, message: str = "no", **details: Any) -> Reply:
    """A refusal as the API server writes it."""
    return reply({"kind": "Status", "message": message, "reason": reason, "code": code, "details": details}, code)


def pod(name: str = "a", uid: str = "u-1", version: str = "5", **spec: Any) -> dict[str, Any]:
    """A pod as the API server writes it."""
    meta = {"name": name, "namespace": "hpc", "uid": uid, "resourceVersion": version}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def line(kind: str, thing: Any) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": thing}).encode()


def bookmark(version: str) -> bytes:
    """A line that says that nothing happened."""
    return line("BOOKMARK", {"metadata": {"resourceVersion": version}})


def listed(version: str, *items: Any, token: str = "") -> Reply:
    """A page of a list."""
    return reply({"metadata": {"resourceVersion": version, "continue": token}, "items": list(items)})

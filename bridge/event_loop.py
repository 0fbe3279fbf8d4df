"""The event loop of the processes that serve: uvloop, and the log of errors that no caller can catch."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop

CLOSED = "the handler is closed"  # the end of uvloop's error

log = logging.getLogger("slurm-bridge")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A factory for `asyncio.Runner`."""
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_log)
    return loop


def _log(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a bug with its traceback, as asyncio does, and an error on a closed connection as a line for debugging.

    uvloop goes on with TLS on a connection that a timeout has closed meanwhile.  That fails, and changes nothing: the call
    that had the connection has reported its timeout.  After an abort, `is_closing` of uvloop may be False.
    """
    transport = context.get("transport")
    if transport is not None and (transport.is_closing() or CLOSED in str(context.get("exception"))):
        log.debug("a closed connection: %s: %s", context.get("message"), context.get("exception"))
    else:
        loop.default_exception_handler(context)

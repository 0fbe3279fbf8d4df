"""Keeps faults of HTTP peers out of the log: aiohttp logs a traceback if a peer sends malformed HTTP or disconnects.

Any client that reaches a port could fill the log that way.  Errors of the bridge itself are logged as before.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

# What reading a request raises when the peer goes away, or sends it malformed.
PEERS_FAULT = (web.RequestPayloadError, web.PayloadAccessError, HttpProcessingError, ConnectionError)


def without_peers(name: str) -> logging.Logger:
    """The logger of this name, for a server of aiohttp.  It drops records about errors of a peer."""
    made = logging.getLogger(name)
    made.filters[:] = [_is_ours]
    return made


def _is_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, PEERS_FAULT)

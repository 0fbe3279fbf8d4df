"""Sentences about environment variables (OTEL_*) with values that OpenTelemetry's SDK does not accept.

The SDK itself raises an exception for some of these values, and logs the others.  Its text may lack the name of the variable,
and it may contain a traceback, or a header that holds a token.  Here each exception becomes a ConfigError, and each entry of
the log a warning; both name the variable and hide headers.  There is no list of variables here: each SDK has another one.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote

from bridge.errors import ConfigError

PREFIX = "OTEL_"
LOGGERS = "opentelemetry", "opentelemetry.exporter"  # `delivery.lower` may have taken the second from the first
DO = "Correct it, or remove it (docs/tracing.md)."
HIDDEN = "[hidden]"
SHORTEST_TOKEN = 4  # characters; to hide shorter values would spoil other words
log = logging.getLogger("slurm-bridge")


@contextmanager
def sdk_reads() -> Iterator[None]:
    """While the SDK reads its variables: log a sentence for each that it does not accept and replaces by its default.

    Raises ConfigError in place of any exception of the SDK.
    """
    notes = _Notes(logging.WARNING)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [notes], False
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if not _given():
            raise
        raise ConfigError(_sentence(str(error) or type(error).__name__), DO) from None
    finally:
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate


def without_headers(text: str) -> str:
    """The text with HIDDEN in place of headers that variables of the environment give: they may hold a token."""
    headers = [header for name, given in _given().items() if "HEADERS" in name for header in given.split(",")]
    values = [header.partition("=")[2] for header in headers]
    for part in sorted({*headers, *values, *map(unquote, values)}, key=len, reverse=True):
        if len(part.strip()) >= SHORTEST_TOKEN:
            text = text.replace(part.strip(), HIDDEN)
    return text


class _Notes(logging.Handler):
    """Logs a record of the SDK as a sentence, without its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        log.warning("%s %s", _sentence(record.getMessage()), DO)


def _sentence(text: str) -> str:
    return f"{_about(text)}: OpenTelemetry does not accept its value: {without_headers(text).rstrip(' .')}."


def _about(text: str) -> str:
    """The variables that the text of the SDK may be about: those that it names, or whose value it has; else all."""
    given = _given()
    named = [name for name in given if _has(text, name)] or [
        name for name in given if _has(text, name.removeprefix(PREFIX))
    ]
    quoted = [name for name, value in given.items() if any(_has(text, part) for part in (value, *value.split(",")))]
    about = named or quoted or list(given)
    return about[0] if len(about) == 1 else f"one of {', '.join(about)}" if about else f"a variable {PREFIX}*"


def _has(text: str, part: str) -> bool:
    return bool(part.strip()) and re.search(rf"(?<!\w){re.escape(part.strip())}(?!\w)", text) is not None


def _given() -> Mapping[str, str]:
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith(PREFIX)}

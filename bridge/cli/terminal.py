"""Text for a terminal.  Parts of it were written by tenants and by servers, and must not control the terminal."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

PAGE_WIDTH = 110  # columns; longer lines are hard to read
UNLIMITED = 10**6


def columns(output: object) -> int:
    """How long a line may be.  output: the chosen format; "wide": whatever the terminal has"""
    return UNLIMITED if output == "wide" else min(PAGE_WIDTH, shutil.get_terminal_size((100, 24)).columns)


class NotWritten(Exception):
    """The output cannot take the answer, for example because a disk is full."""


@contextmanager
def written() -> Iterator[None]:
    """What is printed in this context is written at its end.  Raises BrokenPipeError and NotWritten."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NotWritten(f"the answer cannot be written: {error.strerror}.") from None


def say(text: str) -> None:
    """Print what was asked for.  Raises BrokenPipeError and NotWritten."""
    with written():
        print(text)  # noqa: T201


def tell(sentence: str) -> None:
    """Print a sentence to standard error.  If it cannot be written, the exit code of the command stays what it is."""
    try:
        print(printable(sentence), file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        _discard(sys.stderr)


def discard_output() -> None:
    """Let nothing more be written to standard output."""
    _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Python writes what is left once more at its exit; let the stream take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def use_any_encoding() -> None:
    """Let characters that the encoding of the output lacks be printed as "?", and let a closed output take everything."""
    if sys.stdout is None:  # as after >&-
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    if sys.stderr is None:  # `print` would take standard output in its place
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Also with PYTHONUNBUFFERED, so that the flush of `written` fails if the output cannot be written: argparse of
        # Python >= 3.12 hides the failure of its own writes.
        sys.stdout.reconfigure(write_through=False)


def printable(line: str) -> str:
    """The line, with a replacement character for each character that is not printed."""
    return line if line.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in line)

"""What others wrote controls no terminal: not in a line, not in the log, not in its tracebacks."""

from __future__ import annotations

import logging
import sys

from bridge.cli.terminal import LogFormatter, printable


def record(message: str, *, error: BaseException | None = None) -> logging.LogRecord:
    shown = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("slurm-bridge", logging.ERROR, "x.py", 1, "%s", (message,), shown)


def test_what_is_not_printed_is_replaced() -> None:
    assert printable("Job 17: \x1b[2Jgone\x9b") == "Job 17: \ufffd[2Jgone\ufffd"
    assert printable("größer ≤ 5 … 漢") == "größer ≤ 5 … 漢"


def test_a_name_with_a_line_break_begins_no_line_of_the_log() -> None:
    said = LogFormatter("%(levelname)s %(message)s").format(record("pod a\n2026-01-01 INFO all is well\x1b[2K"))
    assert said == "ERROR pod a\ufffd2026-01-01 INFO all is well\ufffd[2K"


def test_a_traceback_keeps_its_lines_and_loses_what_controls() -> None:
    try:
        raise ValueError("reason \x1b[31mred\rblack")
    except ValueError as error:
        said = LogFormatter("%(message)s").format(record("broken", error=error))
    lines = said.split("\n")
    assert lines[:2] == ["broken", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: reason \ufffd[31mred\ufffdblack"
    assert all(map(str.isprintable, lines))
    assert sys.exc_info() == (None, None, None)

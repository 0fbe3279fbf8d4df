"""The log: its lines, and a reader that stops reading (real pipes)."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from bridge.cli.log_output import LEFT_OUT, MOST_KEPT, LogFormatter, LogOutput


@pytest.fixture
def pipe() -> Iterator[tuple[int, LogOutput]]:
    """The end of a pipe that the reader has, and a log that writes into the other end."""
    reader, writer = os.pipe()
    log = LogOutput(writer)
    yield reader, log
    os.close(reader)
    for thread in threading.enumerate():
        if thread.name == "log":
            thread.join(10)
    log.close()
    os.close(writer)


def record(message: str, *, error: BaseException | None = None) -> logging.LogRecord:
    shown = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("slurm-bridge", logging.ERROR, "x.py", 1, "%s", (message,), shown)


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


def read_until(reader: int, last: str) -> list[str]:
    said = b""
    while not said.endswith(f"{last}\n".encode()):
        said += os.read(reader, 1 << 16)
    return said.decode().splitlines()


def test_each_line_is_written_at_once_and_in_order(pipe: tuple[int, LogOutput]) -> None:
    reader, log = pipe
    for number in range(3):
        log.handle(record(f"line {number}"))
        assert os.read(reader, 100) == f"line {number}\n".encode()


def test_a_reader_that_stops_reading_blocks_nobody_and_later_gets_all_lines(pipe: tuple[int, LogOutput]) -> None:
    reader, log = pipe
    said = [f"line {number} {'x' * 90}" for number in range(3000)]  # a pipe takes 64 KiB
    for line in said:
        log.handle(record(line))
    assert read_until(reader, said[-1]) == said
    log.handle(record("and on"))
    assert os.read(reader, 100) == b"and on\n"


def test_beyond_a_limit_lines_are_left_out_and_counted(pipe: tuple[int, LogOutput]) -> None:
    reader, log = pipe
    entry = "x" * 999
    count = MOST_KEPT // 1000 + 500
    for _ in range(count):
        log.handle(record(entry))
    got = read_until(reader, "because the reader of the log took none.")
    kept = got.count(entry)
    assert kept == len(got) - 1
    assert got[-1] == (LEFT_OUT % (count - kept)).strip()
    assert count - kept > 0


def test_an_entry_longer_than_the_pipe_stays_whole(pipe: tuple[int, LogOutput]) -> None:
    reader, log = pipe
    long = "x" * 300_000
    log.handle(record(long))
    log.handle(record("after it"))
    assert read_until(reader, "after it") == [long, "after it"]


def test_at_the_exit_a_slow_reader_gets_what_was_kept(pipe: tuple[int, LogOutput]) -> None:
    reader, log = pipe
    for number in range(2000):
        log.handle(record(f"line {number} {'x' * 90}"))
    got: list[str] = []
    reading = threading.Thread(target=lambda: got.extend(read_until(reader, f"line 1999 {'x' * 90}")))
    reading.start()
    log.acquire()  # as logging.shutdown does
    log.flush()
    log.release()
    reading.join(10)
    assert len(got) == 2000


def test_nobody_waits_for_a_reader_that_has_gone() -> None:
    reader, writer = os.pipe()
    log = LogOutput(writer)
    os.close(reader)
    log.handle(record("nobody reads this"))
    log.flush()
    log.close()
    os.close(writer)

"""The log of a command that runs on: lines on standard error, which never wait for their reader.

The reader of a pipe can stop reading, for example a container runtime whose disk is full.  Then a write blocks, and with it
the event loop: no pod is bound, and the lease expires.  So a line is written only if it fits.  The lines after it are kept,
and a thread writes them when the reader goes on.  Beyond a limit they are left out and counted.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from collections import deque
from types import TracebackType

from bridge.cli.terminal import printable

MOST_KEPT = 1 << 20  # bytes of lines that wait for the reader
AT_EXIT_S = 1.0  # for a reader that is only slow
AT_ONCE = select.PIPE_BUF  # a pipe that poll(2) calls writable takes so many bytes without blocking
LEFT_OUT = "%d entries of the log are left out here, because the reader of the log took none.\n"


def log_to_stderr(level: str) -> None:
    """Let the log of this process go to standard error.  level: "debug", "info", "warning" or "error"."""
    handler = LogOutput(sys.stderr.fileno(), sys.stderr.encoding)
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class LogFormatter(logging.Formatter):
    """One entry is one line, and a traceback its lines: no name or message from outside begins another line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        """As logging calls it."""
        return printable(super().formatMessage(record))

    def formatException(  # noqa: N802 - the name in logging
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """As logging calls it."""
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


class LogOutput(logging.Handler):
    """Writes entries to a file descriptor, and never blocks its caller.

    Its lock guards all fields.  While an entry is kept, a thread waits for the reader, and later entries are kept, too.
    """

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        super().__init__()
        self._descriptor = descriptor
        self._encoding = encoding
        self._now = _writable(descriptor)
        self._kept: deque[bytes] = deque()
        self._size = 0  # bytes in `_kept`
        self._left_out = 0  # entries after the last one in `_kept`

    def emit(self, record: logging.LogRecord) -> None:
        """As logging calls it, with the lock."""
        try:
            entry = f"{self.format(record)}\n".encode(self._encoding, "replace")
        except Exception:  # noqa: BLE001 - as in each handler of logging: a mistake in one line of the log stops nothing
            self.handleError(record)
            return
        if self._kept:
            self._keep(entry)
        elif rest := self._write(entry):
            self._keep(rest)
            threading.Thread(target=self._follow_reader, name="log", daemon=True).start()

    def flush(self) -> None:
        """As logging calls it at the exit, with the lock.  What a stopped reader does not take then is lost."""
        until = time.monotonic() + AT_EXIT_S
        while not self._write_kept() and (left_s := until - time.monotonic()) > 0:
            self._now.poll(left_s * 1000)

    def _keep(self, entry: bytes) -> None:
        if self._size + len(entry) > MOST_KEPT:
            self._left_out += 1
            return
        if self._left_out:
            entry = self._note() + entry
        self._kept.append(entry)
        self._size += len(entry)

    def _note(self) -> bytes:
        note, self._left_out = LEFT_OUT % self._left_out, 0
        return note.encode(self._encoding)

    def _follow_reader(self) -> None:
        """In a thread, until nothing is kept."""
        writable = _writable(self._descriptor)
        is_done = False
        while not is_done:
            writable.poll()
            self.acquire()
            try:
                is_done = self._write_kept()
            finally:
                self.release()

    def _write_kept(self) -> bool:
        """Write what fits now.  True: nothing is kept any more."""
        while self._kept:
            entry = self._kept.popleft()
            rest = self._write(entry)
            self._size -= len(entry) - len(rest)
            if rest:
                self._kept.appendleft(rest)
                return False
            if not self._kept and self._left_out:
                self._keep(b"")  # the note alone
        return True

    def _write(self, entry: bytes) -> bytes:
        """Write what fits now, and return the rest.  Where nothing can be written, there is no rest: nobody can read it."""
        while entry and self._now.poll(0):
            try:
                entry = entry[os.write(self._descriptor, entry[:AT_ONCE]) :]
            except OSError:
                return b""
        return entry


def _writable(descriptor: int) -> select.poll:
    """It shows when the descriptor takes AT_ONCE bytes.  Two threads may not call one such object at the same time."""
    found = select.poll()
    found.register(descriptor, select.POLLOUT)
    return found

"""README.md as its reader types it: every command in it, its examples, and a terminal to type them in.

A command is a line of a block of `sh` or of an indented block, or a piece of code in a sentence that begins with one of our
programs and says what it is to do.  Other blocks say what they are (`yaml`, `text`).  Commands are run as they are written;
`Terminal` replaces examples in them that cannot be typed (a URL, the path of a token), and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("make", "slurm-bridge", "kubectl", "docker")
LANGUAGES = {"sh", "yaml", "text"}
# Which test runs the commands of which section.
RUN_BY = {
    "Try it": "integration/page/test_readme.py",
    "Try it on real servers": "integration/compose/test_compose.py",
    "Install": "integration/journeys/test_installed.py",
    "Run it from a checkout": "integration/journeys/test_readme.py",
}
RUNS_ALL_TESTS = "make test"  # the one command that no test can run
STOP_S = 30

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4,}(\S.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMENT = re.compile(r"(^|\s+)#.*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.  section: its heading."""

    section: str
    language: str
    content: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a reader may type."""

    section: str
    line: str


def blocks() -> list[Block]:
    """All of them, in order."""
    return [Block(name, *found.groups()) for name, body in _sections() for found in _FENCED.finditer(body)]


def commands() -> list[Command]:
    """In the order in which they are read, each once a section."""
    return list(dict.fromkeys(Command(name, line) for name, body in _sections() for line in _lines(body)))


def lines_for(test: str) -> list[str]:
    """The commands that a test has to run.  test: its file."""
    [section] = [name for name, runner in RUN_BY.items() if Path(test).resolve() == ROOT / runner]
    return [each.line for each in commands() if each.section == section]


def example(key: str) -> str:
    """The one YAML block that has this key at its top."""
    [found] = [each.content for each in blocks() if each.language == "yaml" and f"\n{key}:" in f"\n{each.content}"]
    return found


def _sections() -> Iterator[tuple[str, str]]:
    for part in re.split(r"^## ", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE):
        heading, _, body = part.partition("\n")
        yield heading, body


def _lines(body: str) -> Iterator[str]:
    """Block after block, with the sentences between them."""
    at = 0
    for block in _FENCED.finditer(body):
        yield from _of_prose(body[at : block.start()])
        if block[1] == "sh":
            yield from (line for each in block[2].splitlines() if (line := _COMMENT.sub("", each)))
        at = block.end()
    yield from _of_prose(body[at:])


def _of_prose(text: str) -> Iterator[str]:
    yield from (_COMMENT.sub("", line) for line in _INDENTED.findall(text))
    for code in _INLINE.findall(text):
        if code.split()[0] in PROGRAMS and " " in code:
            yield code


# --- typing -------------------------------------------------------------------------------------------------------


@dataclass
class Lasting:
    """A command that runs until it is stopped.  log: its output."""

    line: str
    log: Path
    process: subprocess.Popen[bytes]

    def says(self, pattern: str) -> re.Match[str] | None:
        """True if the output of the program has that text.  Raises AssertionError if the program has ended."""
        self.still_runs()
        return re.search(pattern, self.log.read_text(), re.MULTILINE)

    def still_runs(self) -> None:
        assert self.process.poll() is None, f"{self.line} has ended: {self.log.read_text()}"

    def interrupt(self) -> None:
        """Ctrl-C."""
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.killpg(self.process.pid, signal.SIGINT)

    def ends(self) -> int:
        """Wait until it has ended.  Returns its exit code."""
        return self.process.wait(STOP_S)


@dataclass
class Terminal:
    """A shell in a folder, with `slurm-bridge` and `kubectl` on its PATH.

    folder       the current folder; `make` runs in the checkout
    kubectl      the program
    environment  what is exported
    stands_for   example text of README to the text that is typed instead
    """

    folder: Path
    kubectl: str
    environment: dict[str, str]
    stands_for: Mapping[str, str] = field(default_factory=dict)
    _lasting: list[Lasting] = field(default_factory=list)

    def types(self, line: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run the command to its end.  Returns its output.  codes: accepted exit codes"""
        done = subprocess.run(
            self._shell(line), cwd=self._place(line), env=self._exported(), stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in codes, f"{line}: exit code {done.returncode}: {done.stdout}"
        assert "Traceback" not in done.stdout, f"{line}: {done.stdout}"
        return done.stdout

    def begins(self, line: str) -> Lasting:
        """Start the command, which runs until it is interrupted, or `close` ends it."""
        log = self.folder / f"said-{len(self._lasting)}"
        with log.open("wb") as said:
            process = subprocess.Popen(
                self._shell(line), cwd=self._place(line), env=self._exported(), stdin=subprocess.DEVNULL,
                stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        self._lasting.append(Lasting(line, log, process))
        return self._lasting[-1]

    def close(self) -> None:
        """End the commands that still run."""
        lasting = [each for each in self._lasting if each.process.poll() is None]
        for each in lasting:
            each.interrupt()
        for each in lasting:
            each.ends()

    def here(self, text: str) -> str:
        """The text of README, with its examples replaced as `stands_for` says."""
        for example_of, real in self.stands_for.items():
            text = text.replace(example_of, real)
        return text

    def _shell(self, line: str) -> list[str]:
        return ["bash", "-ec", self.here(line)]

    def _place(self, line: str) -> Path:
        return ROOT if line.startswith("make ") else self.folder

    def _exported(self) -> dict[str, str]:
        ours = [str(Path(sys.executable).parent), str(Path(self.kubectl).parent)]
        inherited = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        return {**inherited, "PATH": os.pathsep.join([*ours, os.environ["PATH"]]), **self.environment}

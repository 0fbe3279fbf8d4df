"""Where the bridge spends its time: py-spy looks at it some hundred times a second, from outside."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from integration.bench.clients import BenchError

RATE = 250
SHOWN = 30
OURS = ("bridge", "scheduler")


def profiled_if(pid: int, out: Path | None) -> AbstractContextManager[None]:
    """`profiled`, if there is a file for the stacks."""
    return profiled(pid, out) if out else nullcontext()


@contextmanager
def profiled(pid: int, out: Path) -> Iterator[None]:
    """Look at a process meanwhile; stacks go to the file ("frame;frame count", for any flame graph), the top is printed."""
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        raise BenchError("py-spy is not there: make setup")
    command = (
        spy,
        "record",
        "--pid",
        str(pid),
        "--rate",
        str(RATE),
        "--function",
        "--format",
        "raw",
        "--output",
        str(out),
    )
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    if not out.exists():
        raise BenchError(f"py-spy wrote nothing: {said.decode()[-300:]}")
    print(f"bench: profile in {out}\n{top(out)}", flush=True)


def top(stacks: Path) -> str:
    """Where most of the time was spent: in a function itself, and in one of the bridge's own with all that it called."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in stacks.read_text().splitlines():
        frames, _, number = line.rpartition(" ")
        stack = frames.split(";")
        own[stack[-1]] += int(number)
        whole.update(dict.fromkeys(stack, int(number)))
    ours = Counter({name: count for name, count in whole.items() if any(f"({place}/" in name for place in OURS)})
    total = own.total()
    return f"itself, of {total} samples\n{_lines(own, total)}\nwith all that it called\n{_lines(ours, total)}"


def _lines(counts: Counter[str], total: int) -> str:
    return "\n".join(f"  {100 * count / total:5.1f} %  {name}" for name, count in counts.most_common(SHOWN))

"""Asks each question once, and keeps its answer or failure for the checks.

A group of questions is a table: a field of Observations, and the function that asks for it.  If the cluster of the group
cannot be reached, every field of the table is marked as not seen for that reason.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from bridge.cli.doctor.views import NotSeen, Observations, Observed, nothing
from bridge.errors import BridgeError, ConfigError, RemoteError, said

A = TypeVar("A")
T = TypeVar("T")

PATIENCE_S = 20.0  # for questions that fail: two without an answer from slurmrestd, one from the API server
MISTAKEN = "the settings cannot be used"
WITHOUT_DEFAULT = ("slurm_url", "slurm_token_file")
Questions = Mapping[str, Callable[[A], Awaitable[object]]]


async def ask_all(seen: Observations, questions: Questions[A], subject: A, do: str) -> NotSeen | None:
    """Ask each question of the table about `subject`, one after the other, and keep the answer in the field of its name.

    After PATIENCE_S in questions that failed the others are not asked: a server that hangs would take the whole deadline
    for each.  Returns the first of these failures; None: all were asked.

    do   the advice if a question fails without one of its own
    """
    first: NotSeen | None = None
    lost_s = 0.0
    for name, asked in questions.items():
        if first is not None and lost_s > PATIENCE_S:
            setattr(seen, name, nothing(first.because))
            continue
        began = time.perf_counter()
        found: Observed[object] = await observed(lambda asked=asked: asked(subject), do=do)  # type: ignore[misc]
        if found.missing is not None and found.missing.failed:
            first = first or found.missing
            lost_s += time.perf_counter() - began
        setattr(seen, name, found)
    return first if lost_s > PATIENCE_S else None


def ask_none(seen: Observations, names: Iterable[str], because: str) -> None:
    """Mark these fields as not seen."""
    for name in names:
        setattr(seen, name, nothing(because))


async def observed(asked: Callable[[], Awaitable[T]], because: str = "", do: str = "") -> Observed[T]:
    """The answer or the failure.  because, do: if it fails, the short reason why later questions are not asked, and advice"""
    began, clock = time.perf_counter(), time.time()
    try:
        value = await asked()
    except NotSeen as missing:
        return Observed(missing=missing)
    except BridgeError as error:
        return Observed(missing=not_seen(error, because, do))
    took_s = time.perf_counter() - began
    return Observed(value, took_s=took_s, at=clock + took_s / 2)


def not_seen(error: BridgeError, because: str, do: str = "") -> NotSeen:
    """The error as NotSeen.  do: the advice if the error itself has none"""
    advice = error.do if isinstance(error, ConfigError) else ""
    return NotSeen(sentence(error), because=because, do=advice or do)


def sentence(error: BridgeError) -> str:
    """The error's message as a sentence, without side, call and advice."""
    if isinstance(error, ConfigError):
        return said(ConfigError(error.what))
    if not isinstance(error, RemoteError):
        return said(error)
    text = error.message.rstrip(".")
    first = text.partition(" ")[0]
    if first.isalpha() and not first.startswith(("slurm", "kube")):  # no address, and no name of a program
        text = text[:1].upper() + text[1:]
    number = f" (error {error.number})" if error.number else ""
    return f"{text}{number}" + ("" if text.endswith("?") else ".")


def unnamed(seen: Observations, key: str, missing: NotSeen) -> NotSeen:
    """The reason why a setting is missing; if the mistake in the settings may concern this key, that mistake.

    Without settings, a key that has no default is missing because no settings are named.
    """
    if key in seen.uncertain:
        return NotSeen(MISTAKEN, failed=False)
    return missing if seen.source or key not in WITHOUT_DEFAULT else NotSeen("no settings are named", failed=False)

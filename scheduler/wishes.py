"""What a pod's annotations choose, read and checked (BEHAVIOUR K, T8, T9).

Each key says what sbatch's option of that name says.  What cannot be read is refused with key and value: it is never
guessed, and never blocks another pod.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler import names
from scheduler.model import UNLIMITED, Owner, Pod, Refusal

MAX_TEXT = 1024  # characters of a value that reaches Slurm (T9)
MAX_SHOWN = 60  # characters of a refused value that are shown back
MAX_MINUTES = 10 * 366 * 24 * 60  # ten years: beyond that somebody meant UNLIMITED
MAX_NICE = 2147483645  # Slurm's own, sbatch(1)
MAX_COUNT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Wishes:
    """One field a key of K; None where nobody said anything.

    time_limit   minutes, or UNLIMITED
    exclusive    "" (no), "exclusive", "user", "mcs"
    gres         name with type to count, sorted
    memory       MiB
    """

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraints: str | None = None
    wckey: str | None = None
    job_name: str | None = None
    comment: str | None = None
    time_limit: int | None = None
    nice: int | None = None
    exclusive: str | None = None
    gres: tuple[tuple[str, int], ...] | None = None
    cpus_per_task: int | None = None
    memory: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None


class _Unreadable(Exception):
    """What is wrong with a value, in words; becomes a Refusal that names the key."""


def wishes(pod: Pod, owners: Iterable[Owner] = ()) -> Wishes | Refusal:
    """What was chosen: by the pod's annotations, else by those of its owners, nearest first."""
    said = user_input(pod, owners)
    if isinstance(said, Refusal):
        return said
    read: dict[str, Any] = {}
    for name, value in said.items():
        try:
            read[name.replace("-", "_")] = _READERS[name](value)
        except _Unreadable as why:
            return Refusal(names.REFUSED, f'Annotation {names.PREFIX}{name}: "{_shown(value)}" {why}.')
    return Wishes(**read)


def user_input(pod: Pod, owners: Iterable[Owner] = ()) -> Mapping[str, str] | Refusal:
    """The same before it is read: what is compared to see whether the user changed his mind (K)."""
    if names.PREFIX + "gang" in pod.labels:
        return _not_yet("label", names.PREFIX + "gang")
    found: dict[str, str] = {}
    sources: tuple[Pod | Owner, ...] = (pod, *owners)
    for source in sources:
        here = _chosen_by(source.annotations, strict=source is pod)
        if isinstance(here, Refusal):
            return here
        found = {**here, **found}
    return found


def _chosen_by(said: Mapping[str, str], strict: bool) -> dict[str, str] | Refusal:
    """Of one object; its own keys before their aliases.  strict: a key that nobody knows is a spelling mistake."""
    own: dict[str, str] = {}
    aliased: dict[str, str] = {}
    for key, value in said.items():
        if key.startswith(names.PREFIX):
            name = key[len(names.PREFIX) :]
            if name in names.WISHES:
                own[name] = value
            elif name in names.NOT_YET:
                return _not_yet("annotation", key)
            elif strict and name not in names.WRITTEN_BY_US:
                return _unknown_key(key, name)
        elif key.startswith(names.ALIAS_PREFIX):
            name = key[len(names.ALIAS_PREFIX) :]
            if name in names.ALIASES_REFUSED:
                return Refusal(names.REFUSED, f"Annotation {key}: this is the admin's to decide. Take it away.")
            target = names.ALIASES.get(name)
            if target in names.NOT_YET:
                return _not_yet("annotation", key)
            if target is not None:
                aliased[target] = value
    return {**aliased, **own}


def _not_yet(kind: str, key: str) -> Refusal:
    return Refusal(names.REFUSED, f"The {kind} {key} is not supported yet; the pod is not run without it.")


def _unknown_key(key: str, name: str) -> Refusal:
    near = difflib.get_close_matches(name, names.WISHES, n=1)
    hint = f" Did you mean {names.PREFIX}{near[0]}?" if near else ""
    return Refusal(names.REFUSED, f"Annotation {_shown(key)} is not a key of slurm-bridge.{hint}")


# --- readers of values --------------------------------------------------------------------------------------------


def _shown(value: str) -> str:
    short = value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + "…"
    return "".join(char if char.isprintable() else "�" for char in short)


def text(value: str) -> str:
    """T9: printable, of bounded length."""
    if len(value) > MAX_TEXT:
        raise _Unreadable(f"is longer than {MAX_TEXT} characters")
    if not value.isprintable():
        raise _Unreadable("has control characters")
    return value


def _word(value: str) -> str:
    if not re.fullmatch(r"[\w.@+=:-]+", text(value), re.ASCII):
        raise _Unreadable("is not a name Slurm could know (letters, digits and . _ @ + = : - only)")
    return value


def _partition(value: str) -> str:
    if "," in value:
        raise _Unreadable("names several partitions; name one")
    return _word(value)


def _name(value: str) -> str:
    if len(value) > names.MAX_READABLE:
        raise _Unreadable(f"is longer than {names.MAX_READABLE} characters")
    return text(value)


def _whole(value: str, low: int = 1, high: int = MAX_COUNT) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", value.strip(), re.ASCII) or not low <= int(value) <= high:
        raise _Unreadable(f"is not a whole number from {low} to {high}")
    return int(value)


def _nice(value: str) -> int:
    return _whole(value, 0, MAX_NICE)


def _memory_mib(value: str) -> int:
    """sbatch(1) --mem: megabytes, or with K, M, G, T; rounded up to MiB, at least 1 (T4)."""
    match = re.fullmatch(r"([0-9]{1,12})\s*(?:([KMGT])i?B?)?", value.strip(), re.ASCII | re.IGNORECASE)
    if not match:
        raise _Unreadable("is not an amount of memory as sbatch --mem takes it (4096, 4G)")
    kib = int(match[1]) * {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3}[(match[2] or "").upper()]
    mib = -(-kib // 1024)
    if not 1 <= mib <= MAX_COUNT:
        raise _Unreadable("is not an amount of memory a job could have (0 would mean a whole node: use exclusive)")
    return mib


def time_limit_min(value: str) -> int:
    """Minutes, of any form sbatch --time takes: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S, UNLIMITED; rounded up."""
    if value.strip().upper() in ("UNLIMITED", "INFINITE"):
        return UNLIMITED
    match = re.fullmatch(r"(?:([0-9]{1,6})-)?([0-9]{1,8})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?", value.strip(), re.ASCII)
    if not match:
        raise _Unreadable("is not a time as sbatch --time takes it (90, 1:30:00, 2-12:00:00)")
    days, first, second, third = (int(part) if part is not None else None for part in match.groups())
    if days is not None:
        seconds = days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    elif third is not None:
        seconds = (first or 0) * 3600 + (second or 0) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    minutes = -(-seconds // 60)
    if not 1 <= minutes <= MAX_MINUTES:
        raise _Unreadable(f"is not between one minute and {MAX_MINUTES} (say UNLIMITED for no limit)")
    return minutes


def _exclusive(value: str) -> str:
    """sbatch(1) --exclusive[={user|mcs}]; true means the whole node."""
    known = {"true": "exclusive", "exclusive": "exclusive", "user": "user", "mcs": "mcs", "false": ""}
    if value.strip().lower() not in known:
        raise _Unreadable("is none of true, false, user, mcs")
    return known[value.strip().lower()]


_GRES = re.compile(r"(?:gres/)?([A-Za-z][\w-]*(?::[A-Za-z0-9_.-]*[A-Za-z_][\w.-]*)?)(?::([0-9]{1,9}))?", re.ASCII)


def gres(value: str) -> tuple[tuple[str, int], ...]:
    """sbatch(1) --gres: name[:type][:count], separated by commas."""
    counts: dict[str, int] = {}
    for item in text(value).split(","):
        match = _GRES.fullmatch(item.strip())
        if not match:
            raise _Unreadable("is not a list of name[:type][:count] as sbatch --gres takes it")
        count = int(match[2]) if match[2] is not None else 1
        counts[match[1]] = counts.get(match[1], 0) + count
    return tuple(sorted((name, count) for name, count in counts.items() if count))


_READERS: Mapping[str, Callable[[str], Any]] = {
    names.ACCOUNT: _word,
    names.PARTITION: _partition,
    names.QOS: _word,
    names.RESERVATION: text,
    names.CONSTRAINTS: text,
    names.WCKEY: _word,
    names.JOB_NAME: _name,
    names.COMMENT: text,
    names.TIME_LIMIT: time_limit_min,
    names.NICE: _nice,
    names.EXCLUSIVE: _exclusive,
    names.GRES: gres,
    names.CPUS_PER_TASK: _whole,
    names.MEMORY: _memory_mib,
    names.MIN_NODES: _whole,
    names.MAX_NODES: _whole,
}

assert frozenset(_READERS) == names.WISHES, "every wish has its reader"

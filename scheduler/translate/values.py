"""Values of annotations as sbatch's options take them, read and checked (K2, T8, T9).

Each function reads one kind of value and returns its meaning, or raises Unreadable with the end of a sentence that begins
with key and value.  No meaning is guessed.  The functions do not read those forms of sbatch whose meaning depends on the day,
the country or the machine.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from scheduler import names
from scheduler.model.slurm import MAX_NICE, UNLIMITED

MAX_TEXT = 1024  # characters of a value that reaches Slurm (T9)
MAX_MINUTES = 10 * 366 * 24 * 60  # ten years: a larger value is meant as UNLIMITED
MAX_COUNT = 1_000_000_000
LONGEST_WAIT_S = 2**31 - 1  # for switches; Slurm cuts it to the admin's max_switch_wait
DAY_S = 86_400


class Unreadable(Exception):
    """The value cannot be read.  The text is the reason."""


def text(value: str) -> str:
    """A printable text of bounded length (T9)."""
    if len(value) > MAX_TEXT:
        raise Unreadable(f"is longer than {MAX_TEXT:,} characters")
    if not value.isprintable():
        raise Unreadable("has control characters")
    return value


def word(value: str) -> str:
    """The name of an account, a QOS or a wckey."""
    if not re.fullmatch(r"[\w.@+=:-]+", text(value), re.ASCII):
        raise Unreadable("is not a possible name in Slurm (letters, digits and . _ @ + = : - only)")
    return value


def partition(value: str) -> str:
    """The name of one partition: a list is refused, because excluded nodes depend on the partition."""
    if "," in value:
        raise Unreadable("names several partitions; name one")
    return word(value)


def readable_name(value: str) -> str:
    """The readable part of the job's name."""
    if len(value) > names.MAX_READABLE:
        raise Unreadable(f"is longer than {names.MAX_READABLE:,} characters")
    return text(value)


def count(value: str, low: int = 1, high: int = MAX_COUNT) -> int:
    """A whole number."""
    if not re.fullmatch(r"[0-9]{1,10}", value.strip(), re.ASCII) or not low <= int(value) <= high:
        raise Unreadable(f"is not a whole number from {low:,} to {high:,}")
    return int(value)


def nice(value: str) -> int:
    """A nice value of at least 0: only admins raise priorities (I6)."""
    return count(value, 0, MAX_NICE)


def memory_mib(value: str) -> int:
    """sbatch(1) --mem: megabytes, or with K, M, G, T; rounded up to MiB, at least 1 (T4)."""
    match = re.fullmatch(r"([0-9]{1,12})\s*(?:([KMGT])i?B?)?", value.strip(), re.ASCII | re.IGNORECASE)
    if not match:
        raise Unreadable("is not an amount of memory as sbatch --mem takes it (4096, 4G)")
    kib = int(match[1]) * {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3}[(match[2] or "").upper()]
    mib = -(-kib // 1024)
    if not 1 <= mib <= MAX_COUNT:
        raise Unreadable("is not a possible amount of memory (0 would mean a whole node: use exclusive)")
    return mib


def exclusive(value: str) -> str:
    """sbatch(1) --exclusive[={user|mcs}]; true means the whole node."""
    known = {"true": "exclusive", "exclusive": "exclusive", "user": "user", "mcs": "mcs", "false": ""}
    if value.strip().lower() not in known:
        raise Unreadable("is not true, false, user or mcs")
    return known[value.strip().lower()]


# --- times --------------------------------------------------------------------------------------------------------


def time_limit_min(value: str) -> int:
    """Minutes, from any form that sbatch --time takes: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S, UNLIMITED; rounded up."""
    seconds = _duration_s(value)
    if seconds is None:
        return UNLIMITED
    minutes = -(-seconds // 60)
    if not 1 <= minutes <= MAX_MINUTES:
        raise Unreadable(f"is not between one minute and {MAX_MINUTES:,} minutes (UNLIMITED means no limit)")
    return minutes


def time_min(value: str) -> int:
    """sbatch(1) --time-min, in the forms of --time: minutes, rounded up."""
    minutes = time_limit_min(value)
    if minutes == UNLIMITED:
        raise Unreadable("means no limit: name the shortest time limit that the job can use")
    return minutes


# The signals that sbatch(1) --signal knows by name.
_SIGNALS = (
    "HUP",
    "INT",
    "QUIT",
    "ABRT",
    "KILL",
    "ALRM",
    "TERM",
    "USR1",
    "USR2",
    "URG",
    "CONT",
    "STOP",
    "TSTP",
    "TTIN",
    "TTOU",
)
_SIGNAL = re.compile(
    rf"(?:[RB]{{1,2}}:|R:B:|B:R:)?(?:(?:SIG)?(?:{'|'.join(_SIGNALS)})|[1-9][0-9]?)(?:@([0-9]{{1,5}}))?",
    re.ASCII | re.IGNORECASE,
)
SIGNAL_DEFAULT_S = 60
SIGNAL_MOST_S = 65535


def signal_s(value: str) -> int:
    """sbatch(1) --signal=[{R|B}:]SIGNAL[@SECONDS], or the seconds alone: seconds before the time limit.

    The name of the signal has no effect: kubelet sends the stop signal of the container, mostly SIGTERM.
    """
    if re.fullmatch(r"[0-9]{1,5}", value.strip(), re.ASCII):
        return count(value, 0, SIGNAL_MOST_S)
    match = _SIGNAL.fullmatch(value.strip())
    if not match:
        raise Unreadable(
            "is neither a number of seconds nor a signal as sbatch --signal takes it (TERM@120, B:USR1@300)"
        )
    return count(match[1], 0, SIGNAL_MOST_S) if match[1] is not None else SIGNAL_DEFAULT_S


def switches(value: str) -> tuple[int, int]:
    """sbatch(1) --switches=count[@max-time]: the most leaf switches, and for how many seconds the job waits for them."""
    how_many, at, wait = value.strip().partition("@")
    seconds = _duration_s(wait) if at else None
    return count(how_many), LONGEST_WAIT_S if seconds is None else min(seconds, LONGEST_WAIT_S)


def _duration_s(value: str) -> int | None:
    """Seconds; None: no limit."""
    if value.strip().upper() in ("UNLIMITED", "INFINITE"):
        return None
    match = re.fullmatch(r"(?:([0-9]{1,6})-)?([0-9]{1,8})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?", value.strip(), re.ASCII)
    if not match:
        raise Unreadable("is not a time as sbatch --time takes it (90, 1:30:00, 2-12:00:00)")
    days, first, second, third = (int(part) if part is not None else None for part in match.groups())
    if days is not None:
        return days * DAY_S + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)


_UNITS_S = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": DAY_S, "week": 7 * DAY_S}
_FROM_NOW = re.compile(r"now(?:\s*\+\s*([0-9]{1,9})\s*(second|minute|hour|day|week)?s?)?", re.ASCII | re.IGNORECASE)
_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?Z?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?", re.ASCII)


def begin(value: str, created: float) -> int:
    """sbatch(1) --begin, as epoch seconds: now, now+1hour, HH:MM[:SS], YYYY-MM-DD[THH:MM[:SS][Z or ±HH:MM]].

    created   when the pod was created, epoch seconds: this is "now", and a time of day means the next such time after it.
              Times without an offset are UTC
    """
    if match := _FROM_NOW.fullmatch(value.strip()):
        at = int(created) + int(match[1] or 0) * _UNITS_S[(match[2] or "").lower()]
    elif match := _OF_DAY.fullmatch(value.strip()):
        at = _next(*(int(part or 0) for part in match.groups()), created=created)
    elif _DATE.fullmatch(value.strip()):
        at = _on(value.strip())
    else:
        raise Unreadable("is not a known time format; examples: now+1hour, 16:30, 2027-03-31T16:30:00Z (UTC)")
    if at > created + MAX_MINUTES * 60:
        raise Unreadable("is more than ten years after the pod was created")
    return max(1, at)


def _next(hour: int, minute: int, second: int, *, created: float) -> int:
    if hour > 23 or minute > 59 or second > 59:
        raise Unreadable("is not a time of day")
    midnight = int(created) - int(created) % DAY_S
    at = midnight + hour * 3600 + minute * 60 + second
    return at if at >= int(created) else at + DAY_S


def _on(value: str) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise Unreadable("is not an existing date and time") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


# --- lists --------------------------------------------------------------------------------------------------------

# name[:type]; a type has a letter, a count has none.  A text matches in one way only, so that matching takes linear time.
GRES_NAME = r"[A-Za-z][\w-]*(?::[0-9.-]*[A-Za-z_][\w.-]*)?"
_GRES = re.compile(rf"(?:gres/)?({GRES_NAME})(?::([0-9]{{1,9}}))?", re.ASCII)
_LICENSE = re.compile(r"([\w.-]+(?:@[\w.-]+)?)(?::([0-9]{1,9}))?", re.ASCII)


def gres(value: str) -> tuple[tuple[str, int], ...]:
    """sbatch(1) --gres: name[:type][:count], separated by commas."""
    return _counted(value, _GRES, "name[:type][:count] as sbatch --gres takes it")


def licenses(value: str) -> tuple[tuple[str, int], ...]:
    """sbatch(1) --licenses: name[@server][:count], separated by commas: the job holds all of them while it runs."""
    return _counted(value, _LICENSE, "name[@server][:count] as sbatch --licenses takes it, separated by commas")


def _counted(value: str, form: re.Pattern[str], words: str) -> tuple[tuple[str, int], ...]:
    """Name to count, sorted.  No count means 1; counts of one name are added up; a count of 0 is left out."""
    counts: dict[str, int] = {}
    for item in text(value).split(","):
        match = form.fullmatch(item.strip())
        if not match:
            raise Unreadable(f"is not a list of {words}")
        counts[match[1]] = counts.get(match[1], 0) + (int(match[2]) if match[2] is not None else 1)
    return tuple(sorted((name, number) for name, number in counts.items() if number))


_JOB = r"[1-9][0-9]{0,9}(?:_(?:[0-9]{1,9}|\*))?"  # also a task, or all tasks, of a job array
_AFTER_START = re.compile(rf"after(?::{_JOB}(?:\+[0-9]{{1,7}})?)+", re.ASCII)
_AFTER_END = re.compile(rf"after(?:any|burstbuffer|corr|notok|ok)(?::{_JOB})+", re.ASCII)


def dependency(value: str) -> str:
    """sbatch(1) --dependency: conditions that must all hold.  `singleton` is left out, because every placeholder has it.

    Slurm checks that the jobs exist: they may belong to any user.
    """
    if "?" in value:
        raise Unreadable("joins alternatives by ?; join conditions by commas, which means that all must hold")
    conditions = [item.strip().lower() for item in text(value).split(",")]
    for item in conditions:
        if item != "singleton" and not _AFTER_START.fullmatch(item) and not _AFTER_END.fullmatch(item):
            raise Unreadable("is not a list of after:ID[+minutes], afterany:ID, afterok:ID, afternotok:ID (ID[:ID…])")
    return ",".join(item for item in conditions if item != "singleton")

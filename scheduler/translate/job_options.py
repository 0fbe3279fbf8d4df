"""The job options that annotations set (K2): which key of which object counts, and its value.

Each key has the meaning of the sbatch option of that name; values.py reads the value.  If a value cannot be read, the pod is
refused with key and value.  The value is not guessed, and no other pod is blocked.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler import names
from scheduler.model.kubernetes import Owner, Pod
from scheduler.model.refusal import Refusal
from scheduler.translate import values

MAX_SHOWN = 60  # characters of a refused value that are shown back
# Other keys of the bridge that a pod may have.
_NO_JOB_OPTIONS = names.WRITTEN_BY_US | names.GROUPING | {names.INTERCEPT}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """One field for each key of K2; None: no annotation has the key.

    time_limit   minutes, or UNLIMITED
    time_min     minutes: Slurm may cut the time limit to this if the job starts sooner
    signal       seconds before the time limit: the latest time of SIGTERM
    exclusive    "" (no), "exclusive", "user", "mcs"
    gres         name with type to count, sorted
    memory       MiB
    licenses     name (with server) to count, sorted
    begin        epoch seconds
    dependency   as Slurm reads it, all conditions joined by commas; "": only the bridge's own
    switches     the most leaf switches, and the most seconds to wait for them
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
    time_min: int | None = None
    signal: int | None = None
    nice: int | None = None
    exclusive: str | None = None
    gres: tuple[tuple[str, int], ...] | None = None
    cpus_per_task: int | None = None
    memory: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    licenses: tuple[tuple[str, int], ...] | None = None
    begin: int | None = None
    dependency: str | None = None
    switches: tuple[int, int] | None = None


def job_options(pod: Pod, owners: Sequence[Owner] = ()) -> JobOptions | Refusal:
    """The options in the annotations of the pod, otherwise of its owners, nearest first; or a Refusal."""
    if not pod.node and (preset := [key for key in names.ONLY_OURS if key in pod.annotations]):
        keys = f"Annotation {preset[0]} is" if len(preset) == 1 else f"Annotations {', '.join(preset)} are"
        return Refusal(
            names.REFUSED, f"{keys} written only by slurm-bridge, when it binds the pod. Remove it from the pod."
        )
    written = user_input(pod, owners)
    if isinstance(written, Refusal):
        return written
    read: dict[str, Any] = {}
    for name, value in written.items():
        try:
            read[name.replace("-", "_")] = _read(name, value, pod.created)
        except values.Unreadable as why:
            return Refusal(names.REFUSED, f"{as_written(name, pod, owners)} {why}.")
    return JobOptions(**read)


def as_written(name: str, pod: Pod, owners: Sequence[Owner] = ()) -> str:
    """The annotation that sets the key `name`, as the user wrote it: the beginning of a sentence."""
    keys = [names.PREFIX + name, *(names.ALIAS_PREFIX + alias for alias, of in names.ALIASES.items() if of == name)]
    sources: tuple[Pod | Owner, ...] = (pod, *owners)
    for source in sources:
        for key in keys:
            if (value := source.annotations.get(key)) is not None:
                whose = f" of {source.ref.kind} {source.ref.name}" if isinstance(source, Owner) else ""
                return f'Annotation {key}{whose}: "{_shown(value)}"'
    raise AssertionError(f"no annotation says {name}")


def user_input(pod: Pod, owners: Iterable[Owner] = ()) -> Mapping[str, str] | Refusal:
    """The texts of the annotations by key.  They are compared with earlier texts to find changes by the user (K8)."""
    found: dict[str, str] = {}
    sources: tuple[Pod | Owner, ...] = (pod, *owners)
    for source in sources:
        here = _chosen_by(source.annotations, strict=source is pod)
        if isinstance(here, Refusal):
            return here
        found = {**here, **found}
    return found


def _chosen_by(annotations: Mapping[str, str], strict: bool) -> dict[str, str] | Refusal:
    """The job options of one object; keys come before their aliases.  strict: an unknown key is refused"""
    own: dict[str, str] = {}
    aliased: dict[str, str] = {}
    for key, value in annotations.items():
        if key.startswith(names.PREFIX):
            name = key[len(names.PREFIX) :]
            if name in names.JOB_OPTIONS:
                own[name] = value
            elif name in names.GROUPING and not strict:
                return Refusal(
                    names.REFUSED,
                    f"Annotation {key} has no effect on an owner of the pod: remove it there, and write it into the template "
                    "of the pods.",
                )
            elif strict and name not in _NO_JOB_OPTIONS:
                return _unknown_key(key, name)
        elif key.startswith(names.ALIAS_PREFIX):
            name = key[len(names.ALIAS_PREFIX) :]
            if name in names.ALIASES_REFUSED:
                return Refusal(names.REFUSED, f"Annotation {key}: only the admin may set this. Remove the annotation.")
            target = names.ALIASES.get(name)
            if target is not None:
                aliased[target] = value
    return {**aliased, **own}


def _unknown_key(key: str, name: str) -> Refusal:
    near = difflib.get_close_matches(name, names.JOB_OPTIONS | {names.INTERCEPT}, n=1)
    hint = f" Did you mean {names.PREFIX}{near[0]}?" if near else ""
    return Refusal(names.REFUSED, f"Annotation {_shown(key)} is not a key of slurm-bridge.{hint}")


# --- values -------------------------------------------------------------------------------------------------------


def _read(name: str, value: str, created: float) -> Any:
    if name == names.BEGIN:
        return values.begin(value, created)
    return _READERS[name](value)


def _shown(value: str) -> str:
    short = value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + "…"
    return "".join(char if char.isprintable() else "�" for char in short)


_READERS: Mapping[str, Callable[[str], Any]] = {
    names.ACCOUNT: values.word,
    names.PARTITION: values.partition,
    names.QOS: values.word,
    names.RESERVATION: values.text,
    names.CONSTRAINTS: values.text,
    names.WCKEY: values.word,
    names.JOB_NAME: values.readable_name,
    names.COMMENT: values.text,
    names.TIME_LIMIT: values.time_limit_min,
    names.TIME_MIN: values.time_min,
    names.SIGNAL: values.signal_s,
    names.NICE: values.nice,
    names.EXCLUSIVE: values.exclusive,
    names.GRES: values.gres,
    names.CPUS_PER_TASK: values.count,
    names.MEMORY: values.memory_mib,
    names.MIN_NODES: values.count,
    names.MAX_NODES: values.count,
    names.LICENSES: values.licenses,
    names.DEPENDENCY: values.dependency,
    names.SWITCHES: values.switches,
}

assert frozenset(_READERS) | {names.BEGIN} == names.JOB_OPTIONS, "every job option has its reader"

"""The name of a pod on a command line."""

from __future__ import annotations

from bridge.errors import ConfigError

KINDS = ("pod", "pods", "po")


def named(given: str) -> tuple[str, str]:
    """Namespace ("": none was given) and name.  Raises ConfigError.

    given   "train", "pod/train" as kubectl takes it, or "hpc/train" as sentences name it
    """
    before, slash, name = given.rpartition("/")
    if not name or "/" in before or (slash and not before):
        raise ConfigError(f'"{given}" is not the name of a pod.', "Write NAME, pod/NAME or NAMESPACE/NAME.")
    return ("" if before in KINDS else before), name

"""The objects of a YAML file as kubectl sends them: JSON, in which no value contains itself.

YAML has more than JSON: aliases, also of the value that contains them; keys that are no text; sets; numbers of any length.
Ten lines of aliases of aliases are a billion values.  Here each alias becomes a copy, so that a change of one object never
changes another one, and the number of values and of levels is limited.  As kubectl reads it, 2026-01-02 is text, and so is
1:30:00, which YAML 1.1 reads as a number of seconds.  Of two equal keys kubectl takes the last one; here they are a mistake.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import yaml

from bridge.errors import ConfigError
from bridge.unique_keys import DuplicateKeyError, UniqueKeyLoader

MOST_CHARACTERS = 16 * 2**20
MOST_VALUES = 10**6
MOST_LEVELS = 200
MOST_NUMBER = 2**63 - 1


def documents(path: str) -> list[Any]:
    """The documents of a file ("-": standard input) that are not empty.  Raises ConfigError."""
    try:
        text = _read(path)
        if len(text) > MOST_CHARACTERS:
            raise ConfigError(f"{path}: is longer than {MOST_CHARACTERS:,} characters.")
        found = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except DuplicateKeyError as error:
        raise ConfigError(f"{path}: {error}", "Remove one of them.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}. Name a manifest with -f FILE.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: the file is no text, or has an invalid number.
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path}: is not YAML{f' in line {mark.line + 1}' if mark else ''}.") from None
    try:
        return _Copy().of(found, 0)  # type: ignore[no-any-return]  # a list gives a list
    except _NoJsonError as error:
        raise ConfigError(f"{path}: has {error}, which a Kubernetes object cannot have.") from None


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read(MOST_CHARACTERS + 1)
    with open(path, encoding="utf-8") as file:
        return file.read(MOST_CHARACTERS + 1)


class _Loader(UniqueKeyLoader):
    """UniqueKeyLoader without dates, bytes, and numbers of base 60."""


def _as_written(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node)


def _whole(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node) if ":" in node.value else loader.construct_yaml_int(node)


def _fraction(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node) if ":" in node.value else loader.construct_yaml_float(node)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _as_written)
_Loader.add_constructor("tag:yaml.org,2002:binary", _as_written)
_Loader.add_constructor("tag:yaml.org,2002:int", _whole)
_Loader.add_constructor("tag:yaml.org,2002:float", _fraction)


class _NoJsonError(Exception):
    """The file has a value that JSON does not have."""


class _Copy:
    """Copies values, and counts them."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def of(self, value: Any, level: int) -> Any:
        """The value as JSON.  level: the number of values that contain it.  Raises _NoJsonError."""
        self._left -= 1
        if self._left < 0:
            raise _NoJsonError(f"more than {MOST_VALUES:,} values, if each alias is counted as what it stands for")
        if level > MOST_LEVELS:
            raise _NoJsonError(f"more than {MOST_LEVELS} levels, or a value that contains itself")
        if isinstance(value, dict):
            return {_key(key): self.of(item, level + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item, level + 1) for item in value]
        return _scalar(value)


def _key(key: Any) -> str:
    """A key as kubectl sends it: numbers and truth values are written as text."""
    match _scalar(key):
        case bool() as truth:
            return "true" if truth else "false"
        case None:
            raise _NoJsonError("an empty key")
        case plain:
            return str(plain)


def _scalar(value: Any) -> str | int | float | bool | None:
    match value:
        case str() if value.isascii() or value.encode("utf-8", "replace").decode() == value:
            return value
        case bool() | None:
            return value
        case int() if abs(value) <= MOST_NUMBER:
            return value
        case float() if math.isfinite(value):
            return value
        case str():
            raise _NoJsonError("text with half a character (a surrogate)")
        case int() | float():
            raise _NoJsonError("a number that is too large, .inf or .nan")
    raise _NoJsonError("a value of another type (!!set, !!omap or !!pairs)")

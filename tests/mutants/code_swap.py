"""Puts the code of a mutant into the functions that live in this process.

Modules, classes and closures keep their references to a function, so the function stays and its code is replaced: of methods,
properties, functions behind a cache, and closures made before.  A code object is found by its qualified name and first line.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutants.mutations import Mutant

Key = tuple[str, int]  # qualified name and first line
CACHED = type(lru_cache(int))


class LiveFunctions:
    """The functions of some modules that this process holds, and the caches of results."""

    def __init__(self, root: Path, package: str) -> None:
        """package: below the root; its modules have been imported"""
        self._root = root
        self._functions: dict[str, dict[Key, list[FunctionType]]] = {}
        self._caches: list[Callable[[], None]] = []
        below = f"{root / package}/"
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(below):
                code = each.__code__
                of_file = self._functions.setdefault(code.co_filename, {})
                of_file.setdefault((code.co_qualname, code.co_firstlineno), []).append(each)
            elif isinstance(each, CACHED) and str(each.__module__).split(".")[0] == package:
                self._caches.append(each.cache_clear)

    def mutate(self, mutant: Mutant) -> None:
        """From now on the functions behave as the mutant.  Raises LookupError if no function has its code."""
        path = str(self._root / mutant.path)
        live = self._functions.get(path, {})
        changed = 0
        for code in compiled(mutant, path):
            for function in live.get((code.co_qualname, code.co_firstlineno), ()):
                function.__code__ = code
                changed += 1
        if not changed:
            raise LookupError(f"no function of this process has the code of {mutant}")
        for clear in self._caches:
            clear()


def compiled(mutant: Mutant, path: str) -> Iterator[CodeType]:
    """The code objects of the changed function: its own and those of the functions in it."""
    back = mutant.edit.swap()
    try:
        module = compile(mutant.outermost.module(), path, "exec")
    finally:
        back.swap()
    for code in _codes(module):
        if code.co_qualname == mutant.function or code.co_qualname.startswith(f"{mutant.function}."):
            yield code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)

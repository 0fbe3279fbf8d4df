"""Puts the code of a mutant into the functions that live in this process.

Modules, classes and closures keep their references to a function, so the function stays and its code is replaced: of methods,
properties, functions behind a cache, and closures made before.  A code object is found by its qualified name and first line.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
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
        path = self.path(mutant.path)
        back = mutant.edit.swap()
        try:
            module = compile(mutant.outermost.module(), path, "exec")
        finally:
            back.swap()
        if not self.replace(codes_of(module, mutant.function)):
            raise LookupError(f"no function of this process has the code of {mutant}")
        self.forget()

    def path(self, below: str) -> str:
        """The file of a module, as its code names it."""
        return str(self._root / below)

    def replace(self, codes: Iterable[CodeType]) -> int:
        """Put each code into the functions that it belongs to.  Returns how many functions have another code now."""
        changed = 0
        for code in codes:
            for function in self._functions.get(code.co_filename, {}).get((code.co_qualname, code.co_firstlineno), ()):
                function.__code__ = code
                changed += 1
        return changed

    def forget(self) -> None:
        """Empty the caches of results."""
        for clear in self._caches:
            clear()


def codes_of(module: CodeType, function: str) -> Iterator[CodeType]:
    """The code objects of a function: its own and those of the functions in it."""
    for code in _codes(module):
        if code.co_qualname == function or code.co_qualname.startswith(f"{function}."):
            yield code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)

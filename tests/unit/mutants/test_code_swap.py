"""Functions that live in this process get the code of a mutant."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.code_swap import LiveFunctions
from tests.mutants.mutations import Mutant, mutants_of

SOURCE = """
from dataclasses import dataclass
from functools import lru_cache


def plain(a):
    return a is None


@lru_cache
def cached(a):
    return a is None


def makes():
    return lambda a: a is None


made = makes()


@dataclass(frozen=True, slots=True)
class Value:
    a: int

    @property
    def none(self):
        return self.a is None

    @staticmethod
    def static(a):
        return a is None


class Base:
    def above(self):
        return None


class Derived(Base):
    def above(self):
        return super().above() is None
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "swapped").mkdir()
    (tmp_path / "swapped" / "functions.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("swapped.functions")
    for name in ("swapped.functions", "swapped"):
        sys.modules.pop(name, None)


def mutant(function: str) -> Mutant:
    [found] = [each for each in mutants_of("swapped/functions.py", SOURCE).mutants if each.function == function]
    return found


def live(module: ModuleType) -> LiveFunctions:
    return LiveFunctions(Path(str(module.__file__)).parents[1], "swapped")


def test_a_function_that_others_refer_to_is_changed_in_its_place(module: ModuleType) -> None:
    referred = module.plain
    live(module).mutate(mutant("plain"))
    assert referred(1)


def test_a_function_behind_a_cache_is_changed_and_the_cache_is_empty(module: ModuleType) -> None:
    assert not module.cached(1)
    live(module).mutate(mutant("cached"))
    assert module.cached(1)


def test_a_closure_that_was_made_before_is_changed(module: ModuleType) -> None:
    live(module).mutate(mutant("makes"))
    assert module.made(1)
    assert module.makes()(1)


def test_properties_static_methods_and_methods_that_call_their_base_are_changed(module: ModuleType) -> None:
    functions = live(module)
    for name in ("Value.none", "Value.static", "Derived.above"):
        functions.mutate(mutant(name))
    assert module.Value(1).none
    assert module.Value.static(1)
    assert not module.Derived().above()


def test_a_mutant_of_code_that_nobody_has_loaded_is_an_error(module: ModuleType) -> None:
    [unknown] = mutants_of("swapped/other.py", "def f(a):\n    return a is None\n").mutants
    with pytest.raises(LookupError, match=r"swapped/other\.py:2 f"):
        live(module).mutate(unknown)

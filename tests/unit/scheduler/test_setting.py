"""A field that is declared as a setting is validated and described by pydantic (scheduler/model/setting.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from scheduler.model.setting import setting


def declared() -> type[Any]:
    """The settings of an invented program."""

    @dataclass(frozen=True)
    class Limits:
        shared: bool = setting(True, "Whether nodes are shared.")
        names: tuple[str, ...] = setting((), "The names.")
        weights: Mapping[str, int] = setting(dict, "The weights.")
        rate: float = setting(2.0, "How many a second.", gt=0)
        internal_s: float = setting(1.0)

    return Limits


def test_each_setting_has_a_default() -> None:
    made = declared()()
    assert (made.shared, made.names, made.weights, made.rate, made.internal_s) == (True, (), {}, 2.0, 1.0)


def test_only_settings_for_admins_are_described() -> None:
    told = {each.name: each.metadata.get("description") for each in fields(declared())}
    assert (told["rate"], told["internal_s"]) == ("How many a second.", None)


@pytest.mark.parametrize("given", [{"names": ["a"]}, {"rate": 3}, {"weights": {"a": 1}}, {"shared": False}], ids=str)
def test_what_yaml_has_for_a_setting_is_accepted(given: dict[str, Any]) -> None:
    limits = declared()
    assert TypeAdapter(limits).validate_python(given) != limits()


@pytest.mark.parametrize("given", [{"rate": "3"}, {"rate": True}, {"rate": 0}, {"weights": [("a", 1)]}], ids=str)
def test_a_value_of_another_kind_or_beyond_the_limits_is_not_accepted(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(declared()).validate_python(given)

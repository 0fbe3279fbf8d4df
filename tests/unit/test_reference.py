"""The pages that are generated from the code are up to date and complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bridge.settings import Settings, _model_of
from integration.readme import ROOT
from integration.reference import settings
from integration.reference.pages import PAGES
from scheduler.tuning import Tuning


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_the_code_gives(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page](), "make reference writes it"


# --- settings ---------------------------------------------------------------------------------------------------------

SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and all models of its fields."""
    yield model
    for _, field in settings.written(model):
        if (part := _model_of(field.annotation)) is not None:
            yield from models(part)


def every_field() -> list[tuple[str, str, FieldInfo]]:
    found = dict.fromkeys(models(Settings))
    return [(model.__name__, key, field) for model in found for key, field in settings.written(model)]


def test_every_setting_says_what_it_means_and_when_to_change_it() -> None:
    assert len(every_field()) > 50
    for model, key, field in every_field():
        meaning, _, change = (field.description or "").partition("\n")
        assert meaning.endswith("."), (model, key)
        assert change.endswith(".") or _model_of(field.annotation), (
            model,
            key,
            "only a part with keys of its own needs none",
        )
        assert "\n" not in change, (model, key)


def test_every_setting_is_in_the_page() -> None:
    told = SETTINGS.count("\n| `")
    assert all(f"\n| `{key}` | " in SETTINGS for _, key, _ in every_field())
    assert {each.model for each in settings.SECTIONS if each.model} | {type(Settings().tuning)} == set(models(Settings))
    rule_again = len(settings.TENANT)  # a rule has the keys of the section about what pods get
    assert told == len(every_field()) - rule_again + len(Tuning.meanings()) + len(settings.OPTIONS)


def test_every_tuning_value_is_in_the_page_with_its_default_and_those_for_admins_with_a_text() -> None:
    for name, default in asdict(Tuning()).items():
        if name not in Tuning.meanings():
            assert f"`{name}` ({default})" in SETTINGS
    assert 15 <= len(Tuning.meanings()) <= 20
    for name, text in Tuning.meanings().items():
        meaning, _, change = text.partition("\n")
        assert meaning.endswith("."), name
        assert change.endswith("."), name


def test_tuning_values_that_the_documentation_has_somebody_change_are_for_admins() -> None:
    advised = {
        name
        for path in (ROOT / "docs").glob("*.md")
        for name in re.findall(r"`tuning: \{(\w+): ", path.read_text(encoding="utf-8"))
    }
    assert "gang_bind_deadline_s" in advised
    assert advised <= Tuning.meanings().keys()

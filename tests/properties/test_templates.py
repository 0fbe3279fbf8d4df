"""Which values a template can give, by the plain definition: each source is replaced by a text that is not empty."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.policy.templates import LONGEST, can_give

FIXED = st.text("ab", max_size=3)
SOURCES = st.sampled_from(["{namespace}", "{serviceAccount}", "{namespace.labels['a']}"])
TEMPLATES = st.lists(st.one_of(FIXED, SOURCES), max_size=6).map("".join)


def can_give_by_definition(text: str, value: str) -> bool:
    fixed = map(re.escape, re.split(r"\{[^}]*\}", text))
    return re.fullmatch(".+".join(fixed), value) is not None


@given(TEMPLATES, st.text("ab", max_size=8))
@example("a{namespace}b{serviceAccount}", "abb")
@example("{namespace}{namespace}", "a")
@example("{namespace}a{namespace}a", "aaaa")
def test_a_template_gives_a_value_if_texts_for_its_sources_make_the_value(text: str, value: str) -> None:
    assert can_give(text, value) is can_give_by_definition(text, value)


@pytest.mark.parametrize(("characters", "possible"), [(LONGEST, True), (LONGEST + 1, False)])
def test_a_value_that_is_too_long_for_a_name_is_not_compared(characters: int, possible: bool) -> None:
    assert can_give("{namespace}", "a" * characters) is possible

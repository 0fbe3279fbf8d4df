"""Times and texts as people read them."""

from __future__ import annotations

import pytest

from scheduler.model.text import dated, decimal, line, span


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (0.02, "1 s"), (11.9984, "12 s"), (300.0, "300 s"), (1.4, "1 s")]
)
def test_a_span_of_time_is_written_in_whole_seconds(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1e15, -1e15])
def test_a_time_outside_the_calendar_is_reported(at: float) -> None:
    assert dated(at) == "a time that has no date"


def test_a_time_is_written_in_utc() -> None:
    assert dated(1_700_000_000.9) == "2023-11-14 22:13:20 UTC"
    assert dated(1_700_000_000, "%H:%M") == "22:13"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("drained by ops", "drained by ops"),
        ("fan\nis\tbroken\x1b[31m", "fan is broken [31m"),
        ("x" * 20, "xxxxxxxxx…"),
        ("a\x00" + "b" * 20, "a bbbbbbb…"),
    ],
)
def test_a_text_of_another_machine_is_one_printable_line(text: str, shown: str) -> None:
    assert line(text, most=20 if len(text) < 20 else 10) == shown


def test_a_line_of_just_the_most_characters_is_not_cut() -> None:
    assert [line("x" * length, most=10) for length in (10, 11)] == ["xxxxxxxxxx", "xxxxxxxxx…"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (2.0, "2"),
        (1632.4, "1,632"),
        (16_324.4, "16,324"),
        (1e6, "1,000,000"),
        (0.12345, "0.1235"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_a_decimal_is_short_and_whole_numbers_are_in_full(number: float, text: str) -> None:
    assert decimal(number) == text


def test_more_digits_can_be_asked_for() -> None:
    assert decimal(1234.5, 6) == "1,234.5"

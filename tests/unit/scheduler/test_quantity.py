"""Kubernetes quantities: what is one, what is none, and how it is rounded."""

from __future__ import annotations

from fractions import Fraction

import pytest

from scheduler.model.quantity import QuantityError, amount, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("2", 2),
        ("+2", 2),
        ("-1", -1),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("500m", Fraction(1, 2)),
        ("1n", Fraction(1, 10**9)),
        ("1u", Fraction(1, 10**6)),
        ("1k", 1000),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 2**10),
        ("1Mi", 2**20),
        ("1.5Gi", 3 * 2**29),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", Fraction(6, 5)),
        ("1e+2", 100),
    ],
)
def test_a_quantity_has_its_exact_value(text: str, value: Fraction) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "foo",
            "NaN",
            "nan",
            "Infinity",
            "inf",
            "-",
            "+",
            ".",
            "m",
            "Gi",
            "e3",
            "1_000",
            "1,5",
            "1 Gi",
            " 1",
        ),
        *(
            "1\n",
            "1ki",
            "1KI",
            "1K",
            "1mi",
            "1e",
            "1e1.5",
            "1Gie3",
            "1e3Gi",
            "0x10",
            "--1",
            "1..2",
            "٣",
            "１",
            "1m\x00",
        ),
        *("1e99", "1e-25", "1e999999999", "9" * 65),
    ],
)
def test_what_is_no_quantity_is_refused_in_words(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse(text)
    assert str(refused.value).isprintable()
    assert str(refused.value).replace("…", "").isascii()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("resource", "text", "up", "down"),
    [
        ("cpu", "1", 1000, 1000),
        ("cpu", "1.5", 1500, 1500),
        ("cpu", "100m", 100, 100),
        ("cpu", "1u", 1, 0),
        ("cpu", "1500500u", 1501, 1500),
        ("memory", "512Ki", 524288, 524288),
        ("memory", "1500m", 2, 1),
        ("memory", "1G", 10**9, 10**9),
        ("nvidia.com/gpu", "2", 2, 2),
    ],
)
def test_what_is_asked_is_rounded_up_and_what_is_offered_down(resource: str, text: str, up: int, down: int) -> None:
    assert amount(resource, text, True) == up
    assert amount(resource, text, False) == down


def test_a_negative_amount_is_refused() -> None:
    with pytest.raises(QuantityError, match="negative"):
        amount("memory", "-1", True)

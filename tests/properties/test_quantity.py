"""Properties of quantities: any text is read exactly or refused in words, and rounding never loses anything."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.model.quantity import MAX_LENGTH, MOST, QuantityError, amount, parse

SUFFIXES = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "G": Fraction(10**9),
    "Ki": Fraction(1024),
    "Gi": Fraction(2**30),
    "Ei": Fraction(2**60),
}


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        value = parse(text)
    except QuantityError as refused:
        sentence = str(refused)
    else:
        assert isinstance(value, Fraction)
        assert text.isascii()
        assert len(text) <= MAX_LENGTH
        return
    assert sentence.isprintable()


@given(st.integers(0, 10**12), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_a_decimal_number_with_a_suffix_is_their_product(whole: int, thousandths: int, suffix: str) -> None:
    text = f"{whole}.{thousandths:03}{suffix}"
    assert parse(text) == (whole + Fraction(thousandths, 1000)) * SUFFIXES[suffix]


@given(st.integers(0, 10**9), st.integers(-24, 24))
def test_an_exponent_scales_by_tens(number: int, exponent: int) -> None:
    assert parse(f"{number}e{exponent}") == number * Fraction(10) ** exponent


@given(
    st.decimals(0, 10**9, allow_nan=False, places=6),
    st.sampled_from(sorted(SUFFIXES)),
    st.sampled_from(["cpu", "memory"]),
)
def test_up_and_down_enclose_the_value_within_one_unit(number: object, suffix: str, resource: str) -> None:
    text = f"{number:f}{suffix}"
    assume(len(text) <= MAX_LENGTH)
    exact = min(parse(text), MOST) * (1000 if resource == "cpu" else 1)
    up, down = amount(resource, text, True), amount(resource, text, False)
    assert down <= exact <= up
    assert up - down == (0 if exact.denominator == 1 else 1)

"""A value at its limit is taken, and the next one beyond it is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler import names
from scheduler.model import hostlist, quantity
from scheduler.model.hostlist import MAX_DIGITS, MAX_NAME_LENGTH, HostlistError, expand, fold
from scheduler.model.quantity import MAX_EXPONENT, MAX_LENGTH, QuantityError
from scheduler.model.refusal import Refusal
from scheduler.policy import templates
from scheduler.translate import values
from scheduler.translate.job_options import job_options
from scheduler.translate.values import MAX_COUNT, MAX_MINUTES, MAX_TEXT, Unreadable
from tests.builders import pod

CREATED = 1_000_000.0


@pytest.mark.parametrize(
    ("read", "taken", "refused"),
    [
        (values.text, "a" * MAX_TEXT, "a" * (MAX_TEXT + 1)),
        (values.readable_name, "a" * names.MAX_READABLE, "a" * (names.MAX_READABLE + 1)),
        (values.count, "1", "0"),
        (values.count, str(MAX_COUNT), str(MAX_COUNT + 1)),
        (values.memory_mib, "1M", "0"),
        (values.memory_mib, f"{MAX_COUNT}M", f"{MAX_COUNT + 1}M"),
        (values.time_limit_min, "1", "0"),
        (values.time_limit_min, str(MAX_MINUTES), str(MAX_MINUTES + 1)),
        (lambda value: values.begin(value, CREATED), "23:59:59", "24:00:00"),
        (lambda value: values.begin(value, CREATED), "00:59", "00:60"),
        (lambda value: values.begin(value, CREATED), "00:00:59", "00:00:60"),
        (
            lambda value: values.begin(value, CREATED),
            f"now+{MAX_MINUTES}minutes",
            f"now+{MAX_MINUTES * 60 + 1}seconds",
        ),
        (quantity.parse, "1" * MAX_LENGTH, "1" * (MAX_LENGTH + 1)),
        (quantity.parse, f"1e{MAX_EXPONENT}", f"1e{MAX_EXPONENT + 1}"),
        (quantity.parse, f"1e-{MAX_EXPONENT}", f"1e-{MAX_EXPONENT + 1}"),
        (lambda value: quantity.amount("memory", value, True), "0", "-1"),
        (expand, "n" * MAX_NAME_LENGTH, "n" * (MAX_NAME_LENGTH + 1)),
        (lambda value: expand(f"n{value}", 10), "[1-10]", "[1-11]"),
        (lambda value: expand(f"{value},n[1-9]", 10), "a", "a,b"),
        (lambda value: fold([value]), "n" * MAX_NAME_LENGTH, "n" * (MAX_NAME_LENGTH + 1)),
    ],
)
def test_a_value_at_its_limit_is_taken_and_one_beyond_it_refused(
    read: Callable[[str], object], taken: str, refused: str
) -> None:
    read(taken)
    with pytest.raises((Unreadable, QuantityError, HostlistError)):
        read(refused)


def test_a_time_of_day_is_today_s_up_to_the_second_at_which_the_pod_was_created() -> None:
    midnight = 1_000_000 - 1_000_000 % 86_400
    assert values.begin("01:00:00", midnight + 3600.0) == midnight + 3600
    assert values.begin("01:00:00", midnight + 3601.0) == midnight + 86_400 + 3600


def test_names_are_folded_up_to_the_most_digits_that_slurm_reads_in_a_range() -> None:
    last = 10**MAX_DIGITS - 1
    assert fold([f"n{last - 1}", f"n{last}"]) == f"n[{last - 1}-{last}]"
    assert fold([f"n{last}", f"n{last + 1}"]) == f"n{last},n{last + 1}"


def test_a_name_without_node_is_left_out_of_what_is_folded() -> None:
    assert hostlist.folded(["n1", "n,2", "n2", ""]) == "n[1-2]"
    assert hostlist.folded(["n" * (MAX_NAME_LENGTH + 1)]) == ""


def test_a_name_counts_with_the_digits_of_its_ranges() -> None:
    prefix = "n" * (MAX_NAME_LENGTH - 2)
    assert len(expand(f"{prefix}[9-10]")[-1]) == MAX_NAME_LENGTH
    assert len(expand(f"{prefix}[98-99]")[-1]) == MAX_NAME_LENGTH
    with pytest.raises(HostlistError, match="not a node name"):
        expand(f"{prefix}[99-100]")


def test_a_long_text_is_cut_in_what_is_said_about_it() -> None:
    for length, shown in ((80, "]" * 80), (81, "]" * 77 + "…")):
        with pytest.raises(HostlistError, match="unmatched") as caught:
            expand("]" * length)
        assert str(caught.value).endswith(f"{shown!r}")


@pytest.mark.parametrize(("length", "shown"), [(60, "x" * 60), (61, "x" * 60 + "…")])
def test_a_long_value_of_an_annotation_is_cut_in_what_is_said_about_it(length: int, shown: str) -> None:
    refused = job_options(pod(says={"nice": "x" * length}))
    assert isinstance(refused, Refusal)
    assert refused.message.startswith(f'Annotation slurm-bridge/nice: "{shown}" ')


def test_a_template_and_what_it_gives_have_a_longest_length() -> None:
    assert templates.mistake("a" * templates.LONGEST) == ""
    assert templates.mistake("a" * (templates.LONGEST + 1)) == f"is longer than {templates.LONGEST} characters"
    long = "a" * (templates.LONGEST - 2)
    assert templates.can_give("u-{namespace}", f"u-{long}")
    assert not templates.can_give("u-{namespace}", f"u-a{long}")


def test_a_source_of_a_template_is_never_empty() -> None:
    assert templates.can_give("{namespace}-x", "a-x")
    assert not templates.can_give("{namespace}-x", "-x")
    assert not templates.can_give("u{namespace}-{service-account}", "u-a")

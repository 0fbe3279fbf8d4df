"""Hostlists as Slurm writes and reads them; tests/properties/test_hostlist.py has what holds for all names."""

from __future__ import annotations

import pytest

from scheduler.model.hostlist import MAX_NAME_LENGTH, HostlistError, expand, fold, folded


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (["x1"], "x1"),
        (["x1", "x2", "x3", "x7"], "x[1-3,7]"),
        (["x08", "x09", "x10"], "x[08-10]"),
        (["x8", "x9", "x10"], "x[8-10]"),
        (["a", "x1"], "a,x1"),
        (["x999999998", "x999999999"], "x[999999998-999999999]"),
        (["x999999999", "x1000000000"], "x999999999,x1000000000"),
    ],
)
def test_names_are_written_in_ranges_and_read_back(names: list[str], written: str) -> None:
    assert fold(names) == written
    assert sorted(expand(written)) == sorted(names)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x[1-", "unmatched brackets"),
        ("x]1", "unmatched brackets"),
        ("x][1", "not a hostlist: 'x][1'"),
        ("x],y[", "not a hostlist: 'x],y['"),
        ("x[[1]]", "not a hostlist: 'x[[1]]'"),
        ("x[1-2-3]", "not a range of numbers: '1-2-3'"),
        ("x[3-1]", "a range that runs backwards: '3-1'"),
        ("x y", "not a hostlist: 'x y'"),
        ("x" * 300, "not a node name: 'xxxx"),
        ("a,,b", "not a node name: ''"),
    ],
)
def test_a_text_that_is_no_hostlist_says_which_part_is_wrong(text: str, why: str) -> None:
    with pytest.raises(HostlistError) as caught:
        expand(text)
    assert str(caught.value).startswith(why)


def test_a_name_that_no_hostlist_can_hold_is_refused() -> None:
    with pytest.raises(HostlistError, match="not a node name: 'x,y'"):
        fold(["x,y"])


def test_as_many_names_as_the_limit_allows_are_read_also_after_other_names() -> None:
    assert expand("x[1-3]", limit=3) == ["x1", "x2", "x3"]
    assert expand("a,b,x3", limit=3) == ["a", "b", "x3"]
    with pytest.raises(HostlistError, match="more than 3 names"):
        expand("a,b,x[3-4]", limit=3)


@pytest.mark.parametrize(
    "text", ["x" * MAX_NAME_LENGTH, "x" * (MAX_NAME_LENGTH - 2) + "[8-10]", "x" * (MAX_NAME_LENGTH - 2) + "[99]"]
)
def test_the_longest_name_is_read_and_one_character_more_is_no_name(text: str) -> None:
    names = expand(text)
    assert max(map(len, names)) == MAX_NAME_LENGTH
    assert folded(names) == (text if len(names) > 1 else names[0])
    assert folded([*names, "x" * (MAX_NAME_LENGTH + 1)]) == folded(names)
    with pytest.raises(HostlistError, match="not a node name"):
        expand("x" + text)


def test_a_message_shows_the_beginning_of_a_long_text() -> None:
    """It shows up to 80 characters as they are."""
    with pytest.raises(HostlistError) as whole:
        expand("!" * 80)
    with pytest.raises(HostlistError) as cut:
        expand("!" * 81)
    assert str(whole.value) == f"not a hostlist: {'!' * 80!r}"
    assert str(cut.value) == f"not a hostlist: {'!' * 77 + '…'!r}"

"""Hostlists as Slurm writes and reads them; tests/properties/test_hostlist.py has what holds for all names."""

from __future__ import annotations

import pytest

from scheduler.model.hostlist import HostlistError, expand, fold


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (["x1"], "x1"),
        (["x1", "x2", "x3", "x7"], "x[1-3,7]"),
        (["x08", "x09", "x10"], "x[08-10]"),
        (["x8", "x9", "x10"], "x[8-10]"),
        (["a", "x1"], "a,x1"),
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

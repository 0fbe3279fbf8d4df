"""Hostlists: what was folded unfolds to the same names, and no text costs more than its limit."""

from __future__ import annotations

import contextlib
import string
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.model.hostlist import HostlistError, expand, fold

letters = st.text(string.ascii_lowercase + "-.", min_size=0, max_size=4)
names = st.builds(
    lambda prefix, number, width, suffix: f"{prefix}{str(number).zfill(width)}{suffix}",
    letters,
    st.integers(0, 120),
    st.integers(1, 4),
    st.sampled_from(["", "", "", "-ib", "x", "9876543210"]),
)


@given(st.lists(names, max_size=60))
@example(["n9", "n09", "n10", "n010"])
@example(["n999999999", "n1000000000"])
def test_what_was_folded_unfolds_to_the_same_names_each_once(nodes: list[str]) -> None:
    assert sorted(expand(fold(nodes))) == sorted(set(nodes))


@given(st.lists(names, max_size=60), st.randoms())
def test_a_fold_does_not_depend_on_the_order_of_the_names(nodes: list[str], random: object) -> None:
    shuffled = list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fold(nodes) == fold(shuffled)


@given(st.lists(names, max_size=60))
def test_folding_again_changes_nothing(nodes: list[str]) -> None:
    assert fold(expand(fold(nodes))) == fold(nodes)


@given(st.text("n0123456789[]-,", max_size=40))
def test_any_text_is_expanded_within_the_limit_or_refused(text: str) -> None:
    with contextlib.suppress(HostlistError):  # any other exception fails this test
        assert len(expand(text, limit=50)) <= 50


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", []),
        ("x1", ["x1"]),
        ("x[1-3,07],gpu-a", ["x1", "x2", "x3", "x07", "gpu-a"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("n[98-101]-ib", ["n98-ib", "n99-ib", "n100-ib", "n101-ib"]),
    ],
)
def test_a_hostlist_is_read_as_slurm_reads_it(text: str, nodes: list[str]) -> None:
    assert expand(text) == nodes


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([], ""),
        (["x1"], "x1"),
        (["x2", "x1", "x3", "x2"], "x[1-3]"),
        (["n08", "n09", "n10", "n11", "gpu-a"], "gpu-a,n[08-11]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n1", "n3"], "n[1,3]"),
        (["r1n01", "r1n02", "r2n01"], "r1n[01-02],r2n01"),
    ],
)
def test_names_are_folded_as_slurm_would_fold_them(nodes: list[str], text: str) -> None:
    assert fold(nodes) == text


@pytest.mark.parametrize(
    "text",
    ["n[1-1000000000]", "n[1-999999999]", "a[0-999]b[0-999]c[0-999]", "n[1-100001]", ",".join(["n[1-60000]"] * 2)],
)
def test_a_hostlist_of_too_many_names_is_refused_at_once(text: str) -> None:
    began = time.perf_counter()
    with pytest.raises(HostlistError):
        expand(text)
    assert time.perf_counter() - began < 1.0


@pytest.mark.parametrize(
    "text",
    ["n[", "n]", "n[[1]]", "n[1-]", "n[-1]", "n[3-1]", "n[]", "n[a]", "a,,b", ",", "None assigned", "(null)", "é"],
)
def test_nonsense_is_refused_in_words(text: str) -> None:
    with pytest.raises(HostlistError, match=r"\w+ \w+"):
        expand(text)


def test_a_name_that_no_hostlist_can_hold_is_not_folded() -> None:
    with pytest.raises(HostlistError, match="not a node name"):
        fold(["x1", "a,b"])

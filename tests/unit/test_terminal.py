"""What others wrote controls no terminal."""

from __future__ import annotations

from bridge.cli.terminal import printable


def test_what_is_not_printed_is_replaced() -> None:
    assert printable("Job 17: \x1b[2Jgone\x9b") == "Job 17: \ufffd[2Jgone\ufffd"
    assert printable("größer ≤ 5 … 漢") == "größer ≤ 5 … 漢"

"""What a run of generated sequences says of a difference that does not appear again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.contract import sequences
from tests.contract.sequences import Call, Calls, Difference, findings

TWO: Mapping[int, Calls] = {7: [Call("create", "a")], 8: [Call("create", "a"), Call("delete", "a")]}


async def test_a_sequence_that_differs_once_is_no_finding_and_is_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequences, "differed_once", [])
    played: list[int] = []

    async def differ(some: Mapping[int, Calls]) -> dict[int, list[Difference]]:
        played.extend(some)
        return {number: [Difference("create a", "", 201, 409)] if played.count(7) == 1 else [] for number in some}

    assert await findings({7: TWO[7]}, differ) == ""
    assert [each.split(" ", 1)[0] for each in sequences.differed_once] == ["7"]


async def test_a_sequence_that_differs_twice_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "differed_once", [])

    async def differ(some: Mapping[int, Calls]) -> dict[int, list[Difference]]:
        return {
            number: [Difference("delete a", "", 200, 404)] if calls[-1].verb == "delete" else []
            for number, calls in some.items()
        }

    assert "1 of 2 sequences differ: 8" in await findings(TWO, differ)
    assert sequences.differed_once == []

"""A list in which one item makes no sense: the others are read, and that one is not taken as absent."""

from __future__ import annotations

import json

import msgspec
import pytest

from bridge.errors import ContractError
from bridge.json_text import parts
from bridge.slurm.lists import ListDecoder, UndecodedItem
from bridge.slurm.responses import read
from bridge.slurm.transport import Reply


class Item(msgspec.Struct):
    name: str
    cpus: int = 0


DECODER = ListDecoder("nodes", Item, "name")
GOOD = ('{"name": "x1", "cpus": 4}', '{"name": "x2", "junk": [{"a": "]"}, "\\\\\\""]}')
LEVELS = 200_000  # more than any version of Python decodes
DEEP = "[" * LEVELS + "]" * LEVELS


def listed(*items: str, more: str = "") -> bytes:
    return f'{{"meta": {{}}, "nodes": [{", ".join(items)}]{more}, "errors": []}}'.encode()


def names_and_undecoded(body: bytes) -> tuple[list[str], list[str | int | None]]:
    answer = read("nodes", Reply(200, {}, body), DECODER, write=False)
    return [item.name for item in answer.items], [each.key for each in answer.undecoded]


def test_a_list_that_makes_sense_is_whole() -> None:
    assert names_and_undecoded(listed(*GOOD)) == (["x1", "x2"], [])
    assert names_and_undecoded(listed()) == ([], [])


@pytest.mark.parametrize(
    "broken",
    [
        '{"name": "bad", "cpus": "many"}',
        '{"name": "bad", "cpus": 1e999}',
        '{"name": "bad", "cpus": NaN}',
        '{"name": "bad", "cpus": -Infinity}',
        '{"name": "bad", "cpus": ' + "9" * 5000 + ".5}",
        '{"name": "bad", "junk": "\\ud800", "cpus": "many"}',
        '{"junk": ' + DEEP + ', "name": "bad"}',
        '{"name": "bad", "junk": ' + DEEP + "}",
    ],
)
def test_an_item_that_cannot_be_read_is_left_out_by_its_name(broken: str) -> None:
    assert names_and_undecoded(listed(GOOD[0], broken, GOOD[1])) == (["x1", "x2"], ["bad"])


@pytest.mark.parametrize("broken", ["5", "null", '"x3"', "[]", "{}", '{"name": []}', DEEP, '{"name": ' + DEEP + "}"])
def test_an_item_without_a_name_is_left_out_without_one(broken: str) -> None:
    assert names_and_undecoded(listed(GOOD[0], broken, GOOD[1])) == (["x1", "x2"], [None])


def test_why_an_item_was_left_out_is_kept() -> None:
    answer = DECODER.decode(listed('{"name": "bad", "cpus": "many"}'))
    assert answer.undecoded == (UndecodedItem("bad", "Expected `int`, got `str` - at `$.cpus`"),)


def test_errors_of_the_answer_are_read_beside_a_broken_item() -> None:
    body = listed('{"name": 5}', more=', "warnings": [{"description": "w"}]')
    assert DECODER.decode(body).warnings is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b'{"nodes": ' + b"[" * 100_000,
        b'{"nodes": 5}',
        b'{"nodes": {"name": "x1"}}',
        b'{"x": ' + b"[" * LEVELS + b"]" * LEVELS + b', "nodes": []}',
        b'{"nodes": [}]',
        b"\xff",
        b"NaN",
    ],
)
def test_a_text_that_holds_no_list_is_a_contract_error(body: bytes) -> None:
    with pytest.raises(ContractError, match="makes no sense"):
        read("nodes", Reply(200, {}, body), DECODER, write=False)


def test_a_text_is_split_without_recursion() -> None:
    inside = [1, "a,b]", {"c": [1, 2, {"d": '}"\\'}]}, [], {}, None]
    assert [json.loads(part) for part in parts(json.dumps(inside).encode())] == inside
    assert list(parts(b" [ ] ")) == []
    for broken in (b"[1", b"[1]]", b"[[1]", b"1", b"[]]["):
        with pytest.raises(ValueError, match=r"bracket|neither"):
            list(parts(broken))


def test_a_text_that_never_ends_is_no_list_and_takes_no_time_without_end() -> None:
    """A proxy cut the answer inside a string full of quotes: 4 MB of these would take a day."""
    body = b'{"nodes": [{"name": "' + b'\\"' * 2_000_000 + b"}"
    with pytest.raises(ContractError):
        names_and_undecoded(body)

"""The choices of the torture follow from its seed, and a line that is cut ends what it carries."""

from __future__ import annotations

import socket
import threading
from random import Random

import pytest

from integration.torture.faults import DECK, cycles
from integration.torture.line import Line


def test_the_same_seed_gives_the_same_cycles() -> None:
    once = [str(each) for each in cycles(60, Random(7))]
    assert once == [str(each) for each in cycles(60, Random(7))]
    assert once != [str(each) for each in cycles(60, Random(8))]


def test_fifty_cycles_have_every_fault_and_some_outlive_the_quiet_period() -> None:
    drawn = list(cycles(50, Random(1)))
    assert {(each.what, each.how) for each in drawn} == DECK.keys()
    assert len(drawn) == sum(DECK.values())
    assert sum(each.after_s >= 12 for each in drawn) >= 5


def test_a_line_that_is_cut_ends_its_connections_and_takes_new_ones() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Line(*server.getsockname()) as line:
        threading.Thread(target=_echo, args=(server, 2), daemon=True).start()
        with socket.create_connection(("127.0.0.1", line.port)) as near:
            near.settimeout(10)
            near.sendall(b"one")
            assert near.recv(3) == b"one"
            line.cut()
            with pytest.raises(ConnectionResetError):
                _read_until_end(near)
        with socket.create_connection(("127.0.0.1", line.port)) as near:
            near.settimeout(10)
            near.sendall(b"two")
            assert near.recv(3) == b"two"


def _read_until_end(near: socket.socket) -> None:
    while near.recv(1):
        pass


def _echo(server: socket.socket, connections: int) -> None:
    for _ in range(connections):
        far, _ = server.accept()
        with far:
            try:
                while data := far.recv(100):
                    far.sendall(data)
            except ConnectionError:
                continue

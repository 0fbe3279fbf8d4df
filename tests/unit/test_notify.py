"""Notifications to systemd, by a socket in a folder or in the abstract namespace."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import pytest

from bridge.notify import READY, STOPPING, notify


@pytest.mark.parametrize("abstract", [False, True])
def test_each_state_is_one_datagram(tmp_path: Path, abstract: bool) -> None:
    name = f"@slurm-bridge-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(5)
        assert notify(READY, {"NOTIFY_SOCKET": name})
        assert notify(STOPPING, {"NOTIFY_SOCKET": name})
        assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "@nobody-listens-there"])
def test_without_a_listener_nothing_happens(address: str) -> None:
    assert not notify(READY, {"NOTIFY_SOCKET": address} if address else {})

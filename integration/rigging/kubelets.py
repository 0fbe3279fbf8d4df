"""Nodes with a real kubelet and containerd."""

from __future__ import annotations

from .daemons import Daemon, start
from .places import Rig

NODE = "--node"


def up(rig: Rig) -> None:
    for daemon in all_daemons(rig):
        start(daemon)


def all_daemons(rig: Rig) -> list[Daemon]:
    return []


def be_node(rig: Rig, name: str) -> int:
    return 0

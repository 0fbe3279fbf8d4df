"""Notifies systemd that the bridge is ready, and that it stops: the protocol of sd_notify, for Type=notify.

Source: sd_notify(3).  The state is one datagram to the Unix socket that NOTIFY_SOCKET names; a name that begins with @ is in
the abstract namespace.  Without NOTIFY_SOCKET nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send the state to the service manager.  Returns True if it was sent; errors of the socket are ignored."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), address)
        return True
    return False

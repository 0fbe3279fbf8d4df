"""JSON over HTTP to the rig's own two servers; one connection, for one thread."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from .places import API_SERVER, SLURM_REST, Rig
from .shell import RigError


class Rest:
    """A server by URL.  Answers are decoded JSON; a refusal is a RigError with the server's words."""

    def __init__(self, url: str, headers: dict[str, str], trust: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._headers = {"Content-Type": "application/json", **headers}
        self._connection: http.client.HTTPConnection
        if trust is None:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        else:
            self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=60, context=trust)

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.ask(method, path, body)
        if status >= 300:
            raise RigError(f"{method} {path} was answered {status}: {answer[:2000].decode(errors='replace')}")
        return json.loads(answer)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """The status and the body.  Raises OSError or http.client.HTTPException where there is no answer."""
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body), self._headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next call opens a connection
            raise

    def answers(self, path: str) -> bool:
        """True if it says 200 to that."""
        try:
            return self.ask("GET", path)[0] == 200
        except (OSError, http.client.HTTPException):
            return False


def slurm(rig: Rig) -> Rest:
    return Rest(SLURM_REST, {"X-SLURM-USER-TOKEN": (rig.tokens / "slurm").read_text().strip()})


def kubernetes(rig: Rig) -> Rest:
    """Kubernetes as cluster admin; the API server has to have made its certificate."""
    trust = ssl.create_default_context(cafile=str(rig.kube / "certs" / "apiserver.crt"))
    return Rest(API_SERVER, {"Authorization": f"Bearer {(rig.kube / 'admin.token').read_text()}"}, trust)


def listens(port: int, address: str = "127.0.0.1") -> bool:
    """True if something accepts connections there."""
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def greets(port: int) -> bool:
    """True if the server sends the first bytes, as databases do.  A server that still starts accepts and sends nothing."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            return bool(connection.recv(1))
    except OSError:
        return False

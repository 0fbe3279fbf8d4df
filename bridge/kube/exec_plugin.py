"""Exec plugins of a kubeconfig: a program that issues short-lived credentials.

If a plugin is missing or fails, the `kubernetes` package sends requests without credentials.  Here a missing or failing
plugin is an error with a message, the plugin has a deadline, and the certificates that it issues expire, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bridge.errors import ConfigError
from bridge.kube.access import Now
from bridge.kube.sources import TRY, Found, reason
from scheduler.model.text import span

EXEC_DEADLINE_S = 30.0
EXPIRY_MARGIN_S = 30.0  # credentials are renewed so long before they expire: the server's clock may differ
BY_HAND = "Run it by hand to see why."


@dataclass(slots=True)
class ExecPlugin:
    """A client-go credential plugin: a program that prints an ExecCredential.

    Source: "client-go credential plugins" in the Kubernetes documentation.
    """

    entry: Mapping[str, Any]
    where: str
    now: Now
    wall: Now
    _expires: float | None = None  # by `now`

    def expired(self) -> bool:
        return self._expires is not None and self.now() > self._expires - EXPIRY_MARGIN_S

    async def run(self, found: Found) -> Found:
        """The credentials, with the token or client certificate that the plugin returns.  Raises ConfigError."""
        status = self._status(await self._output())
        expires, token_text = status.get("expirationTimestamp"), status.get("token")
        ends = _epoch(expires) if isinstance(expires, str) else None
        self._expires = None if ends is None else self.now() + (ends - self.wall())
        pair = [status.get("clientCertificateData"), status.get("clientKeyData")]
        certificate, key = (text.encode() if isinstance(text, str) else b"" for text in pair)
        token = " ".join(token_text.split()) if isinstance(token_text, str) else ""
        if not token and not (certificate and key):
            raise self.wrong("printed neither a token nor a client certificate with its key")
        if not (certificate and key):
            certificate, key = found.certificate, found.key
        return replace(found, token=f"Bearer {token}" if token else found.token, certificate=certificate, key=key)

    async def _output(self) -> bytes:
        given, environ = self.entry.get("args") or [], self.entry.get("env") or []
        named = isinstance(environ, list) and all(
            isinstance(item, dict) and {"name", "value"} <= item.keys() for item in environ
        )
        if not isinstance(given, list) or not named:
            raise self.wrong("has args that are not a list, or an env that is not a list of names and values")
        command = [self._command(), *map(str, given)]
        variables = {str(item["name"]): str(item["value"]) for item in environ}
        info = {"apiVersion": self.entry.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
        except FileNotFoundError:
            hint = " ".join(str(self.entry.get("installHint") or "").split())
            raise self.wrong("is not installed", hint or "Install it on this host.") from None
        except (OSError, ValueError) as error:  # ValueError: a zero byte, or half of a surrogate pair
            raise self.wrong(f"cannot be started: {reason(error)}") from None
        try:
            async with asyncio.timeout(EXEC_DEADLINE_S):
                output, _ = await process.communicate()
        except TimeoutError:
            raise self.wrong(f"did not answer within {span(EXEC_DEADLINE_S)}") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise self.wrong(f"failed with exit code {process.returncode}")
        return output

    def _command(self) -> str:
        command = str(self.entry.get("command") or "")
        if not command or not self.entry.get("apiVersion"):
            raise ConfigError(f"{self.where}: its exec entry lacks command or apiVersion.", TRY)
        if self.entry.get("interactiveMode") == "Always":
            raise self.wrong("asks for a terminal (interactiveMode Always), which a scheduler does not have")
        if "/" in command and not command.startswith("/"):  # relative to the kubeconfig, as kubectl has it
            folder = (
                Path(self.where.removeprefix("kubeconfig ").partition(",")[0].split(os.pathsep)[0]).expanduser().parent
            )
            return str(folder / command)
        return command

    def _status(self, output: bytes) -> Mapping[str, Any]:
        try:
            answer = json.loads(output)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("status"), dict):
            raise self.wrong("printed no ExecCredential with a status")
        if answer.get("apiVersion") != self.entry.get("apiVersion"):
            raise self.wrong(f"answered in {answer.get('apiVersion')}, asked in {self.entry.get('apiVersion')}")
        status: Mapping[str, Any] = answer["status"]
        return status

    def wrong(self, problem: str, hint: str = "") -> ConfigError:
        """The error, with advice."""
        return ConfigError(f"{self.where}: its exec plugin {self.entry.get('command')} {problem}.", hint or BY_HAND)


def _epoch(timestamp: str) -> float | None:
    try:
        moment = datetime.fromisoformat(timestamp)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None

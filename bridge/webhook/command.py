"""The command line of the webhook: start, look at the certificate every few seconds, stop."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Protocol

from bridge.cli.log_output import log_to_stderr
from bridge.errors import ConfigError
from bridge.kube.transport import connect
from bridge.preflight.waiting import Waiting, unless
from bridge.stopping import listening

try:
    from bridge.webhook.certificate_files import CERTIFICATE, KEY, CertificateFiles
    from bridge.webhook.own_certificate import OwnCertificate, Places
    from bridge.webhook.server import Server
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] not in ("cryptography", "cffi"):
        raise
    raise ConfigError(
        "webhook: the Python package cryptography is not installed.", "Install it: pip install cryptography"
    ) from None
from bridge.webhook.review import Intercept

LOOK_EVERY_S = 10.0
_NAME = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
Options = Mapping[str, str | None]

log = logging.getLogger("slurm-bridge")


class Source(Protocol):
    """The source of the certificate."""

    async def look(self) -> None:
        """Use the certificate that is valid now.  Raises ConfigError."""
        ...


def main(options: Options) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code 0.  Raises ConfigError for a mistake at the start."""
    log_to_stderr("info")
    asyncio.run(_serve(options))
    return 0


async def _serve(options: Options) -> None:
    host, port = _address(options.get("listen") or ":8443")
    server = Server(Intercept(options.get("intercept") or "unnamed"), time.time)
    stopped = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.enter_context(listening(stopped.set))
        source = await _source(options, server, stack)
        await unless(stopped, _first_look(source))
        if stopped.is_set():
            return
        runner = await server.listen(host, port)
        stack.push_async_callback(runner.cleanup)
        log.info("listens on %s:%d", host, port)
        while not stopped.is_set():
            await unless(stopped, _look(source, server))


async def _source(options: Options, server: Server, stack: AsyncExitStack) -> Source:
    """The files of the options, or if no file is named the webhook's own certificate.  Raises ConfigError."""
    certificate, key = options.get("tls_cert_file"), options.get("tls_key_file")
    if certificate and key:
        return CertificateFiles(certificate, key, server.use, time.time)
    if certificate or key:
        raise ConfigError(f"{CERTIFICATE} and {KEY} belong together.", "Name both files, or none.")
    return OwnCertificate(await connect(options.get("kubeconfig"), stack), _places(options), server.use)


async def _first_look(source: Source) -> None:
    """Get the first certificate.  An own certificate is retried while Kubernetes does not answer.

    Raises ConfigError for a problem with the files, or for a problem with Kubernetes that does not end by itself.
    """
    if isinstance(source, OwnCertificate):
        await Waiting().wait_for("Kubernetes", source.look)
    else:
        await source.look()


async def _look(source: Source, server: Server) -> None:
    """Check the certificate once, after a pause.  If that fails, the former certificate stays in use.

    The same problem is logged once.
    """
    await asyncio.sleep(LOOK_EVERY_S)
    try:
        await source.look()
    except ConfigError as error:
        trouble = " ".join(filter(None, [error.what, "The former certificate stays in use.", error.do]))
        if trouble != server.trouble:
            log.error("%s", trouble)
        server.trouble = trouble
    else:
        if server.trouble:
            log.info("the certificate is in order again")
        server.trouble = ""


def _places(options: Options) -> Places:
    """The names of the two objects, from the options.  Raises ConfigError."""
    secret = options.get("secret") or "slurm-bridge/slurm-bridge-webhook"
    configuration = options.get("configuration") or "slurm-bridge-webhook"
    namespace, slash, name = secret.partition("/")
    if not (slash and re.fullmatch(_NAME, namespace) and re.fullmatch(_NAME, name)):
        raise ConfigError(f"--secret {secret}: is not NAMESPACE/NAME.")
    if not re.fullmatch(_NAME, configuration):
        raise ConfigError(f"--configuration {configuration}: is not a valid name of a Kubernetes object.")
    return Places(namespace, name, configuration)


def _address(text: str) -> tuple[str, int]:
    """The host ("": all addresses) and the port of HOST:PORT.  Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or not 0 < int(port) < 2**16:
        raise ConfigError(f"--listen {text}: is not HOST:PORT.")
    return host.strip("[]"), int(port)

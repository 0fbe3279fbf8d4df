"""Common parts of the sources of credentials: what is read, the advice in messages, and the texts of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bridge.kube.kubernetes_config import Configuration

TRY = "See whether kubectl works with it, or point --kubeconfig or KUBECONFIG at another one."
Read = Callable[[], Awaitable[Configuration]]


@dataclass(frozen=True, slots=True)
class Found:
    """The content of the files that were read; equal contents give the same credentials.

    token        the Authorization header
    trusted      certificate authorities, PEM; b"": the authorities of the machine
    certificate, key   of the client, PEM; b"": none
    verify       the server's certificate is verified
    """

    token: str | None = None
    trusted: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    verify: bool = True

    @property
    def has_credentials(self) -> bool:
        return bool(self.token or self.certificate)


def new_configuration() -> Configuration:
    # The package's own loaders do the same: calling the class would copy a process-wide default.
    made: Configuration = type.__call__(Configuration)
    return made


def reason(error: Exception) -> str:
    """The error's text for a message: "Permission denied" rather than "[Errno 13] Permission denied: '…'"."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error).rstrip(".")


def file_and_reason(error: OSError) -> str:
    """As `reason`, with the name of the file."""
    return f"{error.filename}: {reason(error)}" if error.filename else reason(error)

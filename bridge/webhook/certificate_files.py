"""A certificate in two files, which an admin or cert-manager renews.

API servers trust the certificate if `caBundle` in the MutatingWebhookConfiguration names its authority.  The program that
renews the certificate writes `caBundle`, so this process needs no rights in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bridge.errors import ConfigError
from bridge.webhook.certificates import Pair, Unusable, check, read

CERTIFICATE, KEY = "--tls-cert-file", "--tls-key-file"
MOST_BYTES = 2**20


class CertificateFiles:
    """The pair in two PEM files.

    use   is called with the pair at each `look`; raises Unusable
    wall  returns the time in epoch seconds
    """

    def __init__(self, certificate: str, key: str, use: Callable[[Pair], None], wall: Callable[[], float]) -> None:
        self._certificate = certificate
        self._key = key
        self._use = use
        self._wall = wall

    async def look(self) -> None:
        """Read both files, and use the pair.  Raises ConfigError if that fails; the former pair then stays in use."""
        certificate, key = _content(CERTIFICATE, self._certificate), _content(KEY, self._key)
        try:
            pair = read(certificate, key)
            check(pair, self._wall())
            self._use(pair)
        except Unusable as error:
            raise ConfigError(
                f"{CERTIFICATE} {self._certificate}, {KEY} {self._key}: {error}.",
                "Write a valid certificate, and the key that belongs to it, without a passphrase, as PEM.",
            ) from None


def _content(option: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"{option} {path}: {why}.", "Name a PEM file that this user may read.") from None
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{option} {path}: the file is larger than {MOST_BYTES >> 20} MiB.", "Name a PEM file.")
    return content

"""TLS towards slurmrestd, or the proxy before it: trusted authorities and the client certificate, from files.

A new context is made when one of its files changes (another inode, size or time).  If the files cannot be used then,
for example while they are being written, the previous context stays; the files are tried again at the next connection.
`trouble` and the log report this: nothing else shows it before the old certificate expires.

A server of TLS 1.3 refuses a client certificate after the handshake, so the refusal may arrive in the place of an answer.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from bridge.errors import ConfigError
from bridge.file_stamp import Stamp, stamp_of

CA, CERTIFICATE, KEY = "slurm_ca_file", "slurm_cert_file", "slurm_key_file"
PEM = "It must be a PEM file that this user may read."
MOST_BYTES = 2**20
_MARK_OF_KEY = b"PRIVATE KEY-----"
_MARK_OF_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_PASSPHRASE = (b"ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")
# What a certificate lacks, by OpenSSL's number (X509_V_ERR_…): its dates, or the name by which the server was asked for.
_DATES = frozenset({9, 10})
_NAMES = frozenset({62, 63, 64})
# What a server says of a client certificate, by the end of OpenSSL's reason.
_REFUSALS = {
    "CERTIFICATE_EXPIRED": "it has expired",
    "CERTIFICATE_REVOKED": "it is revoked",
    "UNKNOWN_CA": "its authority is not known there",
    "BAD_CERTIFICATE": "it is not valid there",
    "CERTIFICATE_UNKNOWN": "it is not valid there",
    "UNSUPPORTED_CERTIFICATE": "its kind is not supported there",
    "ACCESS_DENIED": "its owner has no access",
}

log = logging.getLogger("slurm-bridge")


class TlsFiles:
    """The TLS context of some files; "": none.

    ca_file     certificates of authorities to trust instead of the system's
    cert_file   client certificate, with its chain; its key in key_file, or in the same file
    """

    def __init__(self, ca_file: str = "", cert_file: str = "", key_file: str = "") -> None:
        self._ca_file = ca_file
        self._cert_file = cert_file
        self._key_file = key_file
        self._known: tuple[tuple[Stamp, ...], ssl.SSLContext] | None = None
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why the files as they are now are not used, as a sentence; "": they are, or no context was needed yet.

        It looks at the files: a standby makes no connection that would.
        """
        if self._known is not None:
            self.context()
        return self._trouble

    def context(self) -> ssl.SSLContext:
        """The current context; a new object after a file has changed.  Raises ConfigError if none could ever be made."""
        try:
            stamp = self._stamps()
            if self._known is None or self._known[0] != stamp:
                self._known = stamp, self._made()
        except ConfigError as error:
            if self._known is None:
                raise
            self._note_trouble(f"{error.what} The files that were read before stay in use. {error.do}")
        else:
            self._note_trouble("")
        return self._known[1]

    def _note_trouble(self, trouble: str) -> None:
        """Remember the trouble with the files, and log it if it is new, or its end."""
        if trouble and trouble != self._trouble:
            log.error("%s", trouble)
        elif self._trouble and not trouble:
            log.info("the TLS files for slurmrestd are in order again")
        self._trouble = trouble

    # --- what goes wrong with the files ---------------------------------------------------------------------------

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(_stamp(key, path) for key, path in self._named() if path)

    def _named(self) -> tuple[tuple[str, str], ...]:
        return ((CA, self._ca_file), (CERTIFICATE, self._cert_file), (KEY, self._key_file))

    def _made(self) -> ssl.SSLContext:
        """Raises ConfigError."""
        for key, path in self._named():
            if path:
                _content(key, path)
        try:
            context = ssl.create_default_context(cafile=self._ca_file or None)
        except (ssl.SSLError, OSError, ValueError):
            raise ConfigError(f"{CA} {self._ca_file}: there is no certificate in it.", PEM) from None
        # Python >= 3.13 requires certificate extensions that an admin's own authority often lacks.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self._cert_file:
            try:
                # A key with a passphrase would ask for it at a terminal.
                context.load_cert_chain(self._cert_file, self._key_file or None, password=lambda: b"")
            except (ssl.SSLError, OSError, ValueError) as error:
                raise self._unfit(error) from None
        return context

    def _unfit(self, error: Exception) -> ConfigError:
        """Why a certificate and a key that can be read cannot be used together."""
        keyed = (KEY, self._key_file) if self._key_file else (CERTIFICATE, self._cert_file)
        certificate, key = _content(CERTIFICATE, self._cert_file), _content(*keyed)
        both = f"{CERTIFICATE} {self._cert_file}" + (f", {KEY} {self._key_file}" if self._key_file else "")
        if _MARK_OF_CERTIFICATE not in certificate and _MARK_OF_KEY in certificate and _MARK_OF_CERTIFICATE in key:
            return ConfigError(f"{both}: the certificate and the key are swapped.", f"Swap {CERTIFICATE} and {KEY}.")
        if _MARK_OF_CERTIFICATE not in certificate:
            return ConfigError(f"{CERTIFICATE} {self._cert_file}: there is no certificate in it.", PEM)
        if _MARK_OF_KEY not in key:
            where = "" if self._key_file else f" If the key is in another file, name that in {KEY}."
            return ConfigError(f"{' '.join(keyed)}: there is no private key in it.", PEM + where)
        if any(mark in key for mark in _PASSPHRASE):
            return ConfigError(f"{' '.join(keyed)}: the key has a passphrase.", "Store it without one.")
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return ConfigError(f"{both}: the key does not belong to the certificate.", "Name the key that does.")
        return ConfigError(f"{both}: cannot be used.", "Name a certificate and its key, as PEM.")

    # --- what goes wrong with a server ----------------------------------------------------------------------------

    def why_not(self, server: str, error: ssl.SSLError) -> str:
        """Why TLS with that server failed, and what to do; a sentence or two, without the last full stop."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"the certificate of {server} is not trusted ({error.verify_message.rstrip('.')}). "
                f"{self._to_trust(error.verify_code)}"
            )
        reason = error.reason or ""
        refusal = next((said for end, said in _REFUSALS.items() if reason.endswith(end)), "")
        if refusal and self._cert_file:
            return (
                f"{server} does not accept the client certificate: {refusal}. Renew {CERTIFICATE} {self._cert_file}, or "
                "see which authority the server wants"
            )
        if reason.endswith("CERTIFICATE_REQUIRED"):
            return f"{server} wants a client certificate. Name one in {CERTIFICATE}"
        return f"{server} does not speak TLS as expected ({reason or error})"

    @property
    def perhaps_refused(self) -> str:
        """Advice if a server closes a new connection without an answer, as some servers do that refuse the client."""
        if self._cert_file:
            return f"See in the log there whether the client certificate ({CERTIFICATE} {self._cert_file}) is accepted"
        return f"See in the log there whether a client certificate ({CERTIFICATE}) is wanted"

    def _to_trust(self, code: int) -> str:
        """Advice about a certificate of the server that is not trusted, by OpenSSL's number of the reason."""
        if code in _NAMES:
            return "Name in slurm_url a host that the certificate is for, or renew the certificate with this name"
        authorities = f"{CA} {self._ca_file}" if self._ca_file else "the authorities of the system"
        if code in _DATES:
            return f"Renew the certificate, or its authority in {authorities}, and see that the clocks are right"
        if self._ca_file:
            return f"Its authority is not in {authorities}: write it there"
        return f"Its authority is not among {authorities}: name a file with it in {CA}"


def _stamp(key: str, path: str) -> Stamp:
    """Raises ConfigError."""
    try:
        return stamp_of(path)
    except OSError as error:
        raise _unreadable(key, path, error) from None


def _content(key: str, path: str) -> bytes:
    """Raises ConfigError."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise _unreadable(key, path, error) from None


def _unreadable(key: str, path: str, error: OSError) -> ConfigError:
    return ConfigError(f"{key} {path}: {error.strerror}.", PEM)

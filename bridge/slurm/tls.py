"""TLS towards slurmrestd, or the proxy before it: trusted authorities and the client certificate, from files.

A new context is made when one of its files changes (another inode, size or time).  Files that cannot be used then, as in the
middle of being written, leave the context before in place; they are tried again at the next connection.
"""

from __future__ import annotations

import os
import ssl

from bridge.errors import ConfigError

Stamp = tuple[tuple[int, int, int], ...]


class TlsFiles:
    """The TLS context of some files; "": none.

    ca_file     certificates of authorities to trust instead of the system's
    cert_file   client certificate, with its chain; its key in key_file, or in the same file
    """

    def __init__(self, ca_file: str = "", cert_file: str = "", key_file: str = "") -> None:
        self._ca_file = ca_file
        self._cert_file = cert_file
        self._key_file = key_file
        self._known: tuple[Stamp, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """The current context; a new object after a file has changed.  Raises ConfigError if none could ever be made."""
        try:
            stamp = self._stamp()
            if self._known is None or self._known[0] != stamp:
                self._known = stamp, self._made()
        except (ssl.SSLError, OSError, ValueError) as error:
            if self._known is None:
                raise self._wrong(error) from None
        return self._known[1]

    def _stamp(self) -> Stamp:
        stats = [os.stat(path) for path in (self._ca_file, self._cert_file, self._key_file) if path]
        return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)

    def _made(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._ca_file or None)
        if self._cert_file:
            # A key with a passphrase would ask for it at a terminal.
            context.load_cert_chain(self._cert_file, self._key_file or None, password=lambda: b"")
        return context

    def _wrong(self, error: Exception) -> ConfigError:
        keys = {"slurm_ca_file": self._ca_file, "slurm_cert_file": self._cert_file, "slurm_key_file": self._key_file}
        named = ", ".join(f"{key} {path}" for key, path in keys.items() if path)
        if (
            isinstance(error, OSError)
            and error.filename is None
            and error.strerror
            and not isinstance(error, ssl.SSLError)
        ):
            why = error.strerror.lower()
        elif isinstance(error, FileNotFoundError):
            why = "there is no such file"
        else:
            why = "no certificate, or no key that fits it, without a passphrase"
        return ConfigError(f"{named}: cannot be used: {why}.", "They are PEM files, readable by this user.")

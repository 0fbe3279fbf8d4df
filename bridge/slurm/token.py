"""The token for Slurm: a JWT, from a file that another program renews, or from the environment.

If the file changes (another inode, size or time), the token is read again, so the next call uses a renewed token (I3).  If
the file is empty, cut or missing, for example while it is being written, the previous token stays in use.  `trouble` and the
log report that, and the file is read again at each call.  `check` fails only if the previous token has expired, too, or Slurm
does not accept it.  If Slurm does not accept a token, the file is read at once (`renew`).

The expiry of a token is read from its claim `exp` without verification: only Slurm can verify a token, and the bridge uses
the expiry only for warnings.  An expired token is still sent, because Slurm's clock decides.

Only the return value of `token()` carries a token out of this module: no repr, error text or log contains it (I4).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from bridge.errors import ConfigError
from bridge.file_stamp import Stamp, stamp_of
from bridge.slurm.lists import UNDECODABLE

log = logging.getLogger("slurm-bridge")

# A JWT with every claim that Slurm knows is below 1 kB.  A much larger file is not a token file.
MAX_TOKEN_BYTES = 64 * 1024

# Three base64url parts.  The pattern also keeps line ends out of a header.
_JWT = re.compile(r"[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+")


def command(user: str) -> str:
    """The command that makes a token of that Slurm user; "": the old token names no user, so SlurmUser's usual name.

    To other users than root and SlurmUser, scontrol says only "Invalid user id".
    """
    return f"scontrol token username={user or 'slurm'} lifespan=3600, as root or SlurmUser"


class TokenSource(Protocol):
    """Provides a token."""

    def token(self) -> str:
        """The current token.  Raises ConfigError with a sentence if there is none."""
        ...

    def renew(self, refused: str) -> bool:
        """True if there is a newer token than the token that Slurm rejected."""
        ...

    @property
    def user(self) -> str:
        """The Slurm user that the token names; "": none."""
        ...

    @property
    def name(self) -> str:
        """The source of the token, for messages: "token file /etc/token"."""
        ...

    def check(self, now: float) -> None:
        """Raises ConfigError if there is no token, or it has expired, or Slurm has rejected it and there is no newer one."""
        ...

    @property
    def trouble(self) -> str:
        """Why the token that was read before stays in use, a sentence; "": the present content of the source is used."""
        ...

    def expires_at(self) -> float | None:
        """When the token expires, epoch seconds; None: it names no time, or there is no token."""
        ...


class Claims(msgspec.Struct):
    """The part of a JWT that Slurm's tokens carry.

    iat, exp        when the token was made, and when it expires, epoch seconds
    sun, username   the Slurm user; Slurm reads `username` if `sun` is missing
    """

    iat: float | None = None
    exp: float | None = None
    sun: str = ""
    username: str = ""

    @property
    def user(self) -> str:
        """The Slurm user; "": the claims name none."""
        return self.sun or self.username


class Unfinished(ConfigError):
    """The file holds no complete token, for example because it is being written."""


@dataclass(slots=True, repr=False)
class Known:
    """A token that was read.  stamp: of its file; refused: Slurm did not accept the token"""

    stamp: Stamp | None
    token: str
    claims: Claims
    refused: bool = False


class FileToken:
    """A token in a file: the bare JWT, or the line `SLURM_JWT=…` that `scontrol token` prints."""

    def __init__(self, path: str | Path, *, option: str = "--slurm-token-file") -> None:
        self._path = Path(path)
        self._option = option
        self._known: Known | None = None
        self._trouble: ConfigError | None = None  # why the file cannot be used now; None: it can

    def __repr__(self) -> str:
        return f"FileToken({str(self._path)!r})"

    def renew(self, refused: str) -> bool:
        """See TokenSource.  The file is read even if its times are the same, because times of files are coarse."""
        if self._known is not None and self._known.token == refused:
            self._known.stamp, self._known.refused = None, True
        try:
            return self.token() != refused
        except ConfigError:
            return False

    def token(self) -> str:
        """See TokenSource.  One stat a call; the file is read only if it changed."""
        return self._current().token

    def expires_at(self) -> float | None:
        """See TokenSource."""
        try:
            return self._current().claims.exp
        except ConfigError:
            return None

    @property
    def user(self) -> str:
        """The Slurm user that the token names; "": none."""
        return self._current().claims.user

    def check(self, now: float) -> None:
        """See TokenSource."""
        known, trouble = self._current(), self._trouble
        has_expired = known.claims.exp is not None and known.claims.exp <= now
        if trouble is not None and (has_expired or known.refused):
            why = "has expired" if has_expired else "is not accepted by Slurm"
            raise ConfigError(f"{trouble.what} The token that was read before {why}.", trouble.do)
        if known.claims.exp is not None and has_expired:
            raise _expired(
                self.name,
                now - known.claims.exp,
                f"Renew it ({command(known.claims.user)}) or point {self._option} elsewhere.",
            )

    @property
    def trouble(self) -> str:
        """See TokenSource."""
        with contextlib.suppress(ConfigError):
            self._current()
        return "" if self._trouble is None else _still_used(self._trouble)

    @property
    def name(self) -> str:
        """See TokenSource."""
        return f"token file {self._path}"

    def _current(self) -> Known:
        try:
            self._known = self._as_it_is()
        except ConfigError as error:
            if self._known is None or not self._is_excused(error):
                raise
            self._keep(error)
        else:
            self._keep(None)
        return self._known

    def _keep(self, trouble: ConfigError | None) -> None:
        """Note why the previous token stays in use; None: it does not.  Log a change of that."""
        before, self._trouble = self._trouble, trouble
        if trouble is not None and (before is None or before.what != trouble.what):
            log.error("%s", _still_used(trouble))
        elif before is not None and trouble is None:
            log.info("%s is in order again", self.name)

    def _is_excused(self, error: ConfigError) -> bool:
        """True if the previous token stays in use after this error."""
        return True

    def _as_it_is(self) -> Known:
        """The token in the file.  Raises ConfigError if the file contains none."""
        try:
            stamp = stamp_of(self._path)
            if self._known is not None and self._known.stamp == stamp:
                return self._known
            with open(self._path, "rb") as file:
                token = _read(file.read(MAX_TOKEN_BYTES + 1), self.name, self._option)
            if self._known is not None and not self._known.refused and _is_cut(token, self._known.token):
                renew = f"Renew it ({command(self._known.claims.user)})."
                raise Unfinished(f"{self.name}: the end of the token is missing.", renew)
        except OSError as error:
            raise ConfigError(f"{self.name}: {_why(error)}.", f"Point {self._option} to a file with a token.") from None
        return Known(stamp, token, claims_of(token))


class LiteralToken:
    """The token in the environment variable SLURM_JWT."""

    name = "token in SLURM_JWT"

    def __init__(self, token: str) -> None:
        self._token = _read(token.encode(), self.name, "SLURM_JWT")
        self._claims = claims_of(self._token)

    def __repr__(self) -> str:
        return "LiteralToken(from SLURM_JWT)"

    def token(self) -> str:
        """See TokenSource."""
        return self._token

    def renew(self, refused: str) -> bool:
        """See TokenSource.  The environment of a process is not renewed."""
        return False

    def expires_at(self) -> float | None:
        """See TokenSource."""
        return self._claims.exp

    @property
    def trouble(self) -> str:
        """See TokenSource.  A literal token is always in use."""
        return ""

    @property
    def user(self) -> str:
        """The Slurm user that the token names; "": none."""
        return self._claims.user

    def check(self, now: float) -> None:
        """See TokenSource."""
        expires = self._claims.exp
        if expires is not None and expires <= now:
            raise _expired(
                self.name, now - expires, f"Renew it ({command(self.user)}); a token file needs no restart for that."
            )


def _still_used(trouble: ConfigError) -> str:
    return f"{trouble.what} The token that was read before stays in use. {trouble.do}".rstrip()


def problem(tokens: TokenSource, now: float) -> str | None:
    """The problem with the token, in a sentence that says what to do; None: no problem can be seen from here."""
    try:
        tokens.check(now)
    except ConfigError as error:
        return str(error)
    return None


def _expired(name: str, for_s: float, do: str) -> ConfigError:
    return ConfigError(f"{name}: expired {age(for_s)} ago.", do)


def age(seconds: float) -> str:
    """A duration in words: "40 s", "12 min", "3 h", "5 days"."""
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit or (unit < 86_400 and seconds >= unit):
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} s"


def _read(content: bytes, name: str, option: str) -> str:
    if not content.strip():
        raise Unfinished(f"{name}: empty.", f"Put a token there ({command('')}) or change {option}.")
    text = content[:MAX_TOKEN_BYTES].decode("ascii", "replace").strip().removeprefix("SLURM_JWT=")
    if len(content) > MAX_TOKEN_BYTES or not _JWT.fullmatch(text):
        raise Unfinished(f"{name}: this is no token (a JWT has three parts, a.b.c).", f"Make one: {command('')}.")
    return text


def _is_cut(token: str, before: str) -> bool:
    """True if the end of the token is missing: its signature is shorter than the previous one of the same algorithm."""
    header, _, signature = token.split(".")
    header_before, _, signature_before = before.split(".")
    return header == header_before and len(signature) < len(signature_before)


def claims_of(token: str) -> Claims:
    """The claims of the token; empty if it cannot be read, in which case Slurm refuses it."""
    part = [*token.split("."), "", ""][1].rstrip("=")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=Claims)
    except (binascii.Error, *UNDECODABLE):
        return Claims()


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, PermissionError):
        return "this user may not read it"
    return error.strerror or str(error)

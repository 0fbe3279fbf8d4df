"""Which HTTP requests the bridge's own server answers: by name, peer and bearer token.

/healthz, /readyz and /metrics show no pod and are open to all, and so are the files of the page.  /explain shows a pod's
user, account and comment, /events and /workloads/KEY show what the page shows of all pods, and /release ends pods.  So these
requests are answered only

    with a token file       if the request carries that token, from any peer under any name
    without a token file    if the peer is this machine and the request names a loopback address

/nodes shows sums by node, and no pod.  A second token may open only /nodes.  It is for users of namespaces: they must not
have the first token, which opens /release.

A browser on this machine is a peer on this machine.  A page of another site can point its own name at a loopback address (DNS
rebinding), and then the Host header holds that name.  A reverse proxy on this machine is a peer on this machine, too; it
says so in Forwarded or X-Forwarded-For.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from bridge.errors import ConfigError
from bridge.file_stamp import Stamp, stamp_of

OPTION = "http_token_file"
NODES_OPTION = "http_nodes_token_file"
# Each answer has this header, so that a command does not take the answer of another program for that of the bridge.
# A request for /release must have it, too: a page of another origin in a browser on this machine may not add a header.
HEADER = "X-Slurm-Bridge"
MAX_TOKEN_BYTES = 4096
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")  # RFC 6750, long enough not to be guessed
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
_MAKE = "Write a random one: openssl rand -hex 32."


class BearerFile:
    """The token that requests must carry; the file is read again whenever it changes.

    option   the setting that names the file
    If the file cannot be read or holds no token, every request is refused.
    """

    def __init__(self, path: str, option: str = OPTION) -> None:
        self._path = Path(path)
        self._option = option
        self._stamp: Stamp | None = None
        self._token = ""

    @classmethod
    def of(cls, path: str, option: str = OPTION) -> BearerFile | None:
        """The token in that file; None without a file.  Raises ConfigError if the file holds no token."""
        if not path:
            return None
        bearer = cls(path, option)
        bearer.token()
        return bearer

    def __repr__(self) -> str:
        return f"BearerFile({str(self._path)!r})"

    def token(self) -> str:
        """The token as it is now.  Raises ConfigError if there is none."""
        try:
            stamp = stamp_of(self._path)
            if stamp != self._stamp:
                self._stamp, self._token = None, ""
                with open(self._path, "rb") as file:
                    self._token = self._read(file.read(MAX_TOKEN_BYTES + 1))
                self._stamp = stamp
        except OSError as error:
            self._stamp, self._token = None, ""
            why = error.strerror or str(error)
            raise ConfigError(f"{self._option}: {self._path}: {why}.", "Point it at a file with a token.") from None
        return self._token

    def _read(self, content: bytes) -> str:
        text = content.decode("ascii", "replace").strip()
        if len(content) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(text):
            what = "must hold one line of at least 16 letters, digits and -._~+/ ."
            raise ConfigError(f"{self._option}: {self._path}: {what}", _MAKE)
        return text

    def accepts(self, authorization: str) -> bool:
        """True if the header `Authorization` carries the token; compared in constant time."""
        scheme, _, given = authorization.partition(" ")
        try:
            expected = self.token().encode()
        except ConfigError:
            return False
        shown = given.strip().encode("utf-8", "surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown, expected)


@dataclass(frozen=True, slots=True)
class Bearers:
    """The tokens that requests may carry.

    admin   opens everything; None: there is none, and programs on this machine are answered
    nodes   opens /nodes alone; None: there is none
    """

    admin: BearerFile | None = None
    nodes: BearerFile | None = None

    @classmethod
    def of(cls, admin: str, nodes: str) -> Bearers:
        """The tokens in these files; "": there is none.  Raises ConfigError if a file holds no token, or both the same."""
        both = cls(BearerFile.of(admin), BearerFile.of(nodes, NODES_OPTION))
        if both.admin is not None and both.nodes is not None and both.nodes.accepts(f"Bearer {both.admin.token()}"):
            what = f"{NODES_OPTION} holds the token of {OPTION}, which opens /release to every user of /nodes."
            raise ConfigError(what, _MAKE)
        return both


def refusal(request: web.Request, bearer: BearerFile | None) -> web.Response | None:
    """None if /explain or /release may be answered, else the answer that says what is missing."""
    if bearer is not None:
        if bearer.accepts(request.headers.get("Authorization", "")):
            return None
        text = f"This needs the bearer token of the setting {OPTION}.\n"
        return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
    if not is_loopback(request.remote or "") or any(name in request.headers for name in _FORWARDED):
        text = f"Only commands on the bridge's machine may ask this, unless the setting {OPTION} names a token.\n"
        return web.Response(status=403, text=text)
    return None if is_loopback(host_of(request)) else _misdirected()


def refusal_of_nodes(request: web.Request, bearers: Bearers) -> web.Response | None:
    """As `refusal`, for /nodes."""
    no = refusal(request, bearers.admin)
    if no is None or bearers.nodes is None:
        return no
    if bearers.nodes.accepts(request.headers.get("Authorization", "")):
        return None
    text = f"This needs the bearer token of the setting {NODES_OPTION}.\n"
    return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})


async def sign(_: web.Request, response: web.StreamResponse) -> None:
    """Mark an answer as one of slurm-bridge (HEADER); for on_response_prepare of an application."""
    response.headers[HEADER] = "answer"


def host_of(request: web.Request) -> str:
    """The name or address that the request was sent to, without its port; "" if there is none or it is malformed."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(:[0-9]{1,5})?", request.headers.get("Host", ""), re.ASCII)
    return found[1].strip("[]").lower() if found else ""


def is_loopback(address: str) -> bool:
    """True for localhost and addresses of the loopback interface; no other name counts."""
    if address == "localhost":
        return True
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def loopback_names_alone() -> Middleware:
    """Middleware for a server that listens on loopback alone: refuses requests under any other name (DNS rebinding)."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await handler(request) if is_loopback(host_of(request)) else _misdirected()

    return guard


def _misdirected() -> web.Response:
    return web.Response(status=421, text="This name is not served: use 127.0.0.1 or localhost.\n")

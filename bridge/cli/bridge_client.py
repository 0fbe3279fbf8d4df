"""One request to the running bridge, as the commands `explain`, `release` and `doctor` send it.

Proxies and credentials of the environment (HTTP_PROXY, .netrc) are not used: the bridge runs on this machine or at the URL
that the admin gave, and its bearer token is for it alone.  A redirect is not followed, because the bridge sends none.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import MaxRetryError

from bridge.errors import ConfigError
from bridge.http_access import HEADER, BearerFile
from bridge.redaction import without

ANSWER_MOST = 64 * 2**20  # bytes; 3,000 nodes, each in 1,000 partitions, are 23 MB
CHUNK = 64 * 2**10
REASON_MOST = 200  # characters; the page of a proxy may be much longer


class NoBridgeError(Exception):
    """No HTTP answer.  listening: a program accepted the connection and does not speak HTTP."""

    def __init__(self, *, listening: bool) -> None:
        super().__init__("no HTTP answer")
        self.listening = listening


def address(given: str) -> str:
    """The address of a bridge as an admin or a user wrote it, without a slash at its end.  Raises ConfigError."""
    try:
        parts = urlsplit(given)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, for example
        is_one = False
    if not is_one:
        raise ConfigError(f'"{given}" is not the address of a bridge.', "Write http://HOST:PORT, or https://HOST.")
    if "@" in parts.netloc or parts.query or parts.fragment:  # it would be in every message, and in no request
        what = f"the address of the bridge at {parts.hostname} has a user, a password or a query."
        raise ConfigError(what, "Write http://HOST:PORT, or https://HOST; its token is in a file (--http-token-file).")
    return given.rstrip("/")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer.

    status   its status code
    is_own   True if slurm-bridge gave it; False if another program did, or an older slurm-bridge
    """

    status: int
    body: bytes
    is_own: bool

    @property
    def text(self) -> str:
        """The body as text, without white space at its ends."""
        return self.body.decode("utf-8", "replace").strip()

    @property
    def reason(self) -> str:
        """The beginning of the text, for a sentence; without a text the status."""
        return self.text[:REASON_MOST] or f"HTTP {self.status}"

    def foreign(self, url: str) -> str:
        """A sentence without a capital about an answer that is not the bridge's own; "": it is."""
        if self.is_own:
            return ""
        return f"the server at {url} is not a slurm-bridge of this version: it answers with HTTP {self.status}."


async def ask(
    method: str,
    url: str,
    *,
    within_s: float,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    token_file: str = "",
) -> Answer:
    """Send one request and return its answer, whatever its status.

    within_s     seconds for the whole answer
    token_file   file with the bearer token; "": none is sent
    Raises NoBridgeError, and ConfigError if the file holds no token.
    """
    bearer = BearerFile.of(token_file)
    sent = {**(headers or {}), **({"Authorization": f"Bearer {bearer.token()}"} if bearer is not None else {})}
    answer: Future[Answer] = Future()
    answer.set_running_or_notify_cancel()
    # `requests` waits for each byte anew.  A daemon thread does not delay the end of the command, as asyncio.to_thread does.
    threading.Thread(
        target=_fill, args=(answer, partial(_asked, method, url, within_s, params, sent)), daemon=True
    ).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(answer), within_s)
    except TimeoutError:
        raise NoBridgeError(listening=False) from None


def _fill(answer: Future[Answer], ask_server: Callable[[], Answer]) -> None:
    try:
        answer.set_result(ask_server())
    except BaseException as error:  # noqa: BLE001 - raised by the coroutine that waits
        answer.set_exception(error)


def _asked(
    method: str, url: str, within_s: float, params: Mapping[str, str] | None, headers: Mapping[str, str]
) -> Answer:
    until = time.monotonic() + within_s
    try:
        with requests.Session() as session:
            session.trust_env = False
            with session.request(
                method, url, params=params, headers=headers, timeout=within_s, stream=True, allow_redirects=False
            ) as answer:
                body = without(headers.get("Authorization", ""), _body(answer, until))
                return Answer(answer.status_code, body, is_own=HEADER in answer.headers)
    except (requests.RequestException, ValueError) as error:  # ValueError: a URL that is none
        raise NoBridgeError(listening=_is_listening(error)) from None


def _body(answer: requests.Response, until: float) -> bytes:
    body = bytearray()
    for chunk in answer.iter_content(CHUNK):
        body += chunk
        if len(body) > ANSWER_MOST:
            raise requests.exceptions.ContentDecodingError("too long")
        if time.monotonic() > until:
            raise requests.Timeout
    return bytes(body)


def _is_listening(error: Exception) -> bool:
    """True if a program accepted the connection and its answer failed; False if none accepted it, or none answered."""
    if isinstance(error, requests.Timeout | ValueError):
        return False
    if isinstance(error, requests.ConnectionError) and not isinstance(error, requests.exceptions.SSLError):
        return not (error.args and isinstance(error.args[0], MaxRetryError))
    return True

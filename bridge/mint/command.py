"""The command line of the mint: write tokens, renew them, stop at SIGTERM.

The process has no event loop and no connection.  Once a second it checks if a token is due; meanwhile it waits for a signal.
A mistake at the start ends the process with exit code 2.  A later problem is logged once, and the mint tries again each
second.  The existing tokens stay: a token that is due is still valid for half of its life.  A users file or a policy that
cannot be used any more does not stop the mint: the users that it named before stay.
"""

from __future__ import annotations

import grp
import logging
import signal
import time
from collections.abc import Mapping
from typing import Any

from bridge.cli.log_output import log_to_stderr
from bridge.errors import ConfigError
from bridge.mint.files import Mint
from bridge.mint.users import Users
from bridge.notify import READY, STOPPING, notify

LOOK_S = 1.0
SHORTEST_S, LONGEST_S = 10, 86_400
HIGHEST_GID = 2**32 - 2  # the number above it means "no change" to chown
MOST_DIGITS = 10
SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})

log = logging.getLogger("slurm-bridge")


def main(options: Mapping[str, Any]) -> int:
    """Write and renew tokens until SIGTERM or SIGINT, and return the exit code 0.  Raises ConfigError at the start."""
    log_to_stderr("info")
    lifetime_s = _lifetime(options["lifetime"])
    users = Users(options["user"] or (), options["users_file"] or (), options["policy"] or (), options["slurm_user"])
    mint = Mint(options["out"], options["key"], lifetime_s, _group(options["group"]))
    if not users.now():
        raise ConfigError("mint: no user is named.", "Name users with --user, --users-file or --policy.")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the loop receives these signals by sigtimedwait
    try:
        count = mint.renew(users.now(), time.time())
        log.info(
            "wrote %s to %s; they live %s s, and are renewed at half of that",
            _tokens(count),
            options["out"],
            f"{lifetime_s:,}",
        )
        notify(READY)
        _until_signalled(users, mint)
        notify(STOPPING)
        log.info("stopped; the tokens live on until they expire")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def _until_signalled(users: Users, mint: Mint) -> None:
    logged = ""
    while signal.sigtimedwait(SIGNALS, LOOK_S) is None:
        trouble = _renew(users, mint)
        if trouble and trouble != logged:
            log.error("%s", trouble)
        elif logged and not trouble:
            log.info("tokens can be written again")
        logged = trouble


def _renew(users: Users, mint: Mint) -> str:
    """Renew the tokens that are due.  Returns what cannot be used, in sentences; "": everything can."""
    try:
        if count := mint.renew(users.now(), time.time()):
            log.info("wrote %s", _tokens(count))
    except ConfigError as error:
        return f"{error} The tokens that were written before live on until they expire."
    return f"{users.trouble} The users that were named there before stay." if users.trouble else ""


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


def _lifetime(text: str) -> int:
    if not _is_number(text) or not SHORTEST_S <= int(text) <= LONGEST_S:
        raise ConfigError(f"--lifetime: {text[:40]!a} is not a number of seconds from {SHORTEST_S} to {LONGEST_S}.")
    return int(text)


def _group(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text) if _is_number(text) and int(text) <= HIGHEST_GID else grp.getgrnam(text).gr_gid
    except KeyError:
        raise ConfigError(f"--group: this host has no group {text[:80]!a}.") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS

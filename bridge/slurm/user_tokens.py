"""One token for each Slurm user: DIR/NAME, the layout of a Secret that is mounted as a directory.

With it the bridge makes, changes and ends the jobs of a user with that user's own token, and needs none that may name others.
An error of one file concerns the pods of that user alone: their condition names the file and what to do, and their requests
are repeated as soon as the file changes.

A token here differs from the bridge's own in two ways.  It must be of the user that its file is named after: the claim is
compared here, and Slurm compares the user, too, because each request names the user (`X-SLURM-USER-NAME`).  If its file
is deleted, the token is no longer used: an admin deletes the file to take the user away from the bridge.  While a
file is being written, the previous token stays in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import ConfigError
from bridge.slurm.token import FileToken, Known, Unfinished, command, problem
from scheduler.events import Event, TokenMissing, TokenUsable
from scheduler.model.text import line

SETTING = "slurm_user_token_dir"
LOOK_S = 1.0  # between two reads of the files of users without a usable token
MOST_USERS = 10_000  # templates of the policy can name any number
LONGEST_SHOWN = 64  # characters of a name that a token gives


def advice(user: str) -> str:
    """Advice for the admin about any problem with the token file of that user."""
    return f"Put a token of {user} there: {command(user)}."


class UserToken(FileToken):
    """The token of one Slurm user; see the module."""

    def __init__(self, folder: Path, user: str) -> None:
        super().__init__(folder / user, option=SETTING)
        self._whose = user
        self._nowhere = "" if user and "/" not in user and not user.startswith(".") else f"{user!a} names no file"

    def check(self, now: float) -> None:
        """See TokenSource."""
        try:
            super().check(now)
        except ConfigError as error:
            raise ConfigError(error.what, self.advice) from None

    @property
    def last(self) -> str:
        """The token that was used last; "": none was yet."""
        return self._known.token if self._known is not None else ""

    @property
    def advice(self) -> str:
        """As `advice` of its user."""
        return advice(self._whose)

    def _is_excused(self, error: ConfigError) -> bool:
        return isinstance(error, Unfinished)

    def _as_it_is(self) -> Known:
        if self._nowhere:
            raise ConfigError(f"{SETTING}: {self._nowhere}.")
        try:
            found = super()._as_it_is()
        except ConfigError as error:
            raise type(error)(error.what, self.advice) from None
        if found.claims.user not in ("", self._whose):
            of = line(found.claims.user, LONGEST_SHOWN)
            raise ConfigError(f"{self.name}: it is a token of {of}, not of {self._whose}.", self.advice)
        return found


@dataclass(frozen=True, slots=True)
class _Unusable:
    """Why the token of a user cannot be used.  token: the token that Slurm did not accept; "": no token was sent."""

    why: str
    token: str


class UserTokens:
    """The tokens of all users, by name.

    unusable   Slurm users whose token could not be used when it was last needed, and the reason, a sentence
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._known: dict[str, UserToken] = {}
        self._unusable: dict[str, _Unusable] = {}

    def of(self, user: str) -> UserToken:
        """The token of that user.  Nothing is read before it is asked for."""
        known = self._known.get(user)
        if known is None:
            while len(self._known) >= MOST_USERS:
                del self._known[next(iter(self._known))]
            known = self._known[user] = UserToken(self.folder, user)
        return known

    def note_refused(self, user: str, why: str, token: str = "") -> None:
        """Record that the user's token cannot be used.  token: the token that Slurm rejected; "": the user has none"""
        while len(self._unusable) >= MOST_USERS:
            del self._unusable[next(iter(self._unusable))]
        self._unusable[user] = _Unusable(why, token)

    def note_accepted(self, user: str) -> None:
        """Slurm took the token of that user."""
        if self._unusable:
            self._unusable.pop(user, None)

    @property
    def unusable(self) -> Mapping[str, str]:
        """See the class."""
        return {user: unusable.why for user, unusable in self._unusable.items()}

    def look(self) -> None:
        """Forget the errors of files whose token has changed."""
        for user, unusable in list(self._unusable.items()):
            try:
                renewed = self.of(user).token() != unusable.token
            except ConfigError:
                continue
            if renewed:
                del self._unusable[user]

    def troubles(self, users: frozenset[str], now: float) -> Iterator[tuple[str, str]]:
        """Users (of these, and in `unusable`) without a usable token or file, by name, each with the reason, a sentence."""
        for user in sorted(users | self._unusable.keys()):
            unusable = self._unusable.get(user)
            why = unusable.why if unusable is not None else problem(self.of(user), now) or self.of(user).trouble
            if why:
                yield user, why


async def follow(tokens: UserTokens, emit: Callable[[Event], None], clock: Callable[[], float]) -> None:
    """Emit TokenMissing for users whose token cannot be used, and TokenUsable when its file changes.  Never returns."""
    logged: set[str] = set()
    while True:
        tokens.look()
        unusable = tokens.unusable
        for user in sorted(logged - unusable.keys()):
            emit(TokenUsable(user, clock()))
        for user in sorted(unusable.keys() - logged):
            emit(TokenMissing(user, clock()))
        logged = set(unusable)
        await asyncio.sleep(LOOK_S)

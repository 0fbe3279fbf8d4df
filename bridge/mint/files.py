"""One token file for each user, written as a whole or not at all, and renewed at half of its life.

A new token is written beside the old file and replaces it by one rename, so a reader sees either the old token or the new.
Only the user of this process can read the files (0600), or also one group (0640).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from bridge.errors import ConfigError
from bridge.mint.token import minted

MOST_KEY_BYTES = 64 * 1024
SHORTEST_KEY_BYTES = 16


def key_of(path: str) -> bytes:
    """The key in that file.

    Raises ConfigError if the file cannot be read, if every user can read or write it, or if it has no usual length of a key.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(MOST_KEY_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"key file {path}: {error.strerror}.", "Name Slurm's jwt_hs256.key with --key.") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(f"key file {path}: every user of this host can read or write it.", f"chmod o= {path}")
    if not SHORTEST_KEY_BYTES <= len(key) <= MOST_KEY_BYTES:
        raise ConfigError(
            f"key file {path}: has {len(key):,} bytes, which is not a key.", "Name Slurm's jwt_hs256.key with --key."
        )
    return key


class Mint:
    """Writes the token files of one folder.

    folder      holds each user's token, in a file with the user's name
    key_file    read each time that tokens are made, so that a new key is used for the next token
    lifetime_s  of each token
    group       id of a group that may read the files; None: none may
    """

    def __init__(self, folder: str, key_file: str, lifetime_s: int, group: int | None = None) -> None:
        self._folder, self._key_file = Path(folder), key_file
        self._lifetime_s, self._group = lifetime_s, group
        self._issued: dict[str, int] = {}

    def renew(self, users: Sequence[str], now: float) -> int:
        """Write the tokens that are missing or at half of their life; remove the tokens of users not named any more.

        now   epoch seconds
        Returns the number of written tokens.  Raises ConfigError for the key, or for the first user whose file cannot be
        written or removed, after the files of all other users.
        """
        due = [user for user in users if not self._is_fresh(user, now)]
        gone = sorted(self._issued.keys() - set(users))
        troubles: list[ConfigError] = []
        if due:
            with _noted(troubles):
                key = key_of(self._key_file)
                for user in due:
                    with _noted(troubles):
                        self._write(user, minted(key, user, int(now), self._lifetime_s))
                        self._issued[user] = int(now)
        for user in gone:
            with _noted(troubles):
                self._remove(user)
                del self._issued[user]
        if troubles:
            raise troubles[0]
        return len(due)

    def _is_fresh(self, user: str, now: float) -> bool:
        """True if the token need not be renewed.  A token from the future is not fresh, because the clock was set back."""
        issued = self._issued.get(user)
        return issued is not None and issued <= now < issued + self._lifetime_s / 2 and (self._folder / user).is_file()

    def _write(self, user: str, token: str) -> None:
        new = self._folder / f".{user}.new"
        try:
            new.unlink(missing_ok=True)  # left by an earlier process that was killed
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
                if self._group is not None:
                    if os.fstat(file.fileno()).st_gid != self._group:  # without a chown no right is needed
                        os.fchown(file.fileno(), -1, self._group)
                    os.fchmod(file.fileno(), 0o640)
                file.write(token + "\n")
            new.replace(self._folder / user)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise self._trouble(user, error) from None

    def _remove(self, user: str) -> None:
        try:
            (self._folder / user).unlink(missing_ok=True)
        except OSError as error:
            raise self._trouble(user, error) from None

    def _trouble(self, user: str, error: OSError) -> ConfigError:
        return ConfigError(
            f"token file {self._folder / user}: {error.strerror}.", "Name a folder that this user may write with --out."
        )


@contextlib.contextmanager
def _noted(troubles: list[ConfigError]) -> Iterator[None]:
    """What goes wrong within this block is added to `troubles`, and stops nothing else."""
    try:
        yield
    except ConfigError as error:
        troubles.append(error)

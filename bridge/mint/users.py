"""The users to mint tokens for: named on the command line, in a file, or by the rules of a policy.

A template in a policy gives users that depend on namespaces.  This process does not see namespaces, so the admin lists these
users in a file.  Both kinds of files are read again when they change.  If a changed file cannot be used, its former users
stay: an error in a file must not let the tokens of all users expire.

Users in a file or a policy must be ordinary: neither root nor SlurmUser nor a number, because an author of these files must
not become an administrator of Slurm.  The command line may also name SlurmUser, for a bridge that has one token for all
users.  It may not name root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bridge.errors import ConfigError
from bridge.file_stamp import Stamp, stamp_of
from scheduler.policy import templates

# Most bytes of a user name.  A file name has at most 255, and the name of a file that is being written is a little longer.
LONGEST = 240
MOST_USERS = 10_000  # of one file
MOST_BYTES = 1 << 20


class Users:
    """The users of all sources.

    named       users that the command line names
    files       files with one name a line; text after a # is a comment
    policies    settings files with a policy
    slurm_user  the name of SlurmUser
    Raises ConfigError if the command line names a user that is not allowed.
    """

    def __init__(
        self, named: Sequence[str], files: Sequence[str] = (), policies: Sequence[str] = (), slurm_user: str = "slurm"
    ) -> None:
        for user in named:
            _checked("--user", user, _why_forbidden(user))
        self._named = tuple(named)
        self._sources = [_Source(file, in_file, slurm_user) for file in files]
        self._sources += [_Source(file, in_policy, slurm_user) for file in policies]

    @property
    def trouble(self) -> str:
        """Why the former users of a file stay, in sentences; "": the files are used as they are."""
        return " ".join(source.trouble for source in self._sources if source.trouble)

    def now(self) -> tuple[str, ...]:
        """All users, each once.

        Raises ConfigError if a source could never be used: it cannot be read, or names a user that is not allowed.
        """
        found = dict.fromkeys(self._named)
        for source in self._sources:
            found |= dict.fromkeys(source.users())
        return tuple(found)


class _Source:
    """One file, which is read again when it has changed.

    A file that is half written names fewer users, and the mint removes the tokens of all users that the file does not name.
    So the mint reads a changed file only if the file was the same at two looks.

    trouble   why the former users stay, in sentences; "": the file is used as it is
    """

    def __init__(self, path: str, read: Callable[[str, str], Iterator[str]], slurm_user: str) -> None:
        self._path, self._read, self._slurm_user = path, read, slurm_user
        self._stamp: Stamp | None = None  # of the content that was read
        self._seen: Stamp | None = None  # at the last look
        self._users: tuple[str, ...] = ()
        self.trouble = ""

    def users(self) -> tuple[str, ...]:
        """The users of the file.  Raises ConfigError if the file could never be used."""
        try:
            self._look()
        except ConfigError as error:
            if self._stamp is None:
                raise
            self.trouble = str(error)
        return self._users

    def _look(self) -> None:
        """Read the file if it has changed and is not being written.  Raises ConfigError."""
        before, self._seen = self._seen, self._stamped()
        if self._seen == self._stamp:
            self.trouble = ""
        elif self._stamp is None or self._seen == before:
            found = tuple(dict.fromkeys(self._read(self._path, self._slurm_user)))
            if len(found) > MOST_USERS:
                raise ConfigError(f"{self._path}: names {len(found):,} users; at most {MOST_USERS:,} can be.")
            if self._stamped() == self._seen:
                self._users, self._stamp, self.trouble = found, self._seen, ""

    def _stamped(self) -> Stamp:
        try:
            return stamp_of(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}.") from None


def in_file(path: str, slurm_user: str) -> Iterator[str]:
    """The users that a file names, one a line.  Raises ConfigError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8.") from None
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{path}: is larger than {MOST_BYTES >> 20} MiB.")
    for number, written in enumerate(text.splitlines(), 1):
        if user := written.partition("#")[0].strip():
            yield _checked(f"{path}, line {number}", user, _why_not_ordinary(user, slurm_user))


def in_policy(path: str, slurm_user: str) -> Iterator[str]:
    """The users that the rules of a settings file name, without users from templates.  Raises ConfigError."""
    from bridge import settings  # imported only here: the process that holds the key loads few libraries

    for tenant in settings.load({"config": path}, {}).policy.tenants:
        if not templates.is_template(tenant.user):
            yield _checked(f"{path}: policy", tenant.user, _why_not_ordinary(tenant.user, slurm_user))


def _checked(where: str, user: str, why: str) -> str:
    """The user.  Raises ConfigError if there is a reason not to mint a token.  why: the reason; "": none"""
    if why:
        raise ConfigError(f"{where}: {user[:80]!a} {why}.", "Name an ordinary user of Slurm.")
    return user


def _why_not_ordinary(user: str, slurm_user: str) -> str:
    """Why a file may not name that user, as the rest of a sentence; "": the user is ordinary."""
    if user.casefold() == slurm_user.casefold():
        return "is SlurmUser, whose token is minted only for --user"
    return _why_forbidden(user) or templates.no_ordinary_user(user)


def _why_forbidden(user: str) -> str:
    """Why no token may be minted for that user, as the rest of a sentence; "": a token may be minted."""
    if user.casefold() == templates.ROOT:
        return "may do anything in Slurm"
    odd = not templates.is_name(user) or user.startswith((".", "-")) or "/" in user
    return "cannot be the name of a file" if odd or len(user.encode()) > LONGEST else ""

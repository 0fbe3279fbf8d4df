"""The policy of the settings file, read again while the bridge runs.

Only `policy` and `priority_classes` follow the file; other keys need a restart, and /readyz names those that differ.  A file
that cannot be used changes nothing: the previous policy stays in force, and log, metric and /readyz say so until the file is
mended.  A ConfigMap is mounted as a symbolic link that kubelet replaces, so the file behind the link is checked.

Half of a file is often a valid policy, which lacks rules or cuts the name of a user.  So a file that has changed is read only
if it stays the same for SETTLE_S, or was written longer ago.  A replica that begins to lead reads what was written before at
once, and does not decide by the policy of its start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bridge.errors import ConfigError
from bridge.file_stamp import Stamp, stamp_of
from bridge.settings import Settings
from scheduler.events import Event, PolicyChanged
from scheduler.policy import templates
from scheduler.policy.rules import ANY
from scheduler.rules.status import clock as time_of_day
from scheduler.state.world import World

log = logging.getLogger("slurm-bridge")

EVERY_S = 2.0
SETTLE_S = 0.5
RELOADED = frozenset({"policy", "priority_classes"})
_NEVER = Stamp(0, 0, 0, 0)


# --- what is checked against Slurm ------------------------------------------------------------------------------------


def privileged_user(settings: Settings, slurm_user: str) -> str:
    """A sentence if the policy maps pods to the user by whom Slurm itself runs; "": it does not.

    slurm_user   SlurmUser of slurm.conf; if Slurm does not show it, the user of the bridge's token, which acts as other users
    """
    name = slurm_user.partition("(")[0]
    if not name or name.casefold() not in {tenant.user.casefold() for tenant in settings.policy.tenants}:
        return ""
    return (
        f'policy: "{name}" is the user that runs Slurm (SlurmUser), which may change any job; map namespaces to '
        "ordinary users."
    )


def unknown_partition(settings: Settings, known: Collection[str], before: Settings | None = None) -> str:
    """A sentence if the policy names a partition that Slurm does not have; "": it names none.

    before   names of partitions in this policy are left out
    """
    named = _named_partitions(settings) - (_named_partitions(before) if before is not None else set())
    lacking = sorted(named.difference(known))
    return f'policy: Slurm has no partition "{lacking[0]}". It has: {", ".join(sorted(known))}.' if lacking else ""


def policy_trouble(settings: Settings, world: World, before: Settings | None = None) -> list[str]:
    """Unknown partitions of the policy (see unknown_partition).  Only pods that need one of them are refused."""
    found = unknown_partition(settings, world.partitions, before) if world.partitions else ""
    return [found] if found else []


def _named_partitions(settings: Settings) -> set[str]:
    """Partitions that the policy names without a template; results of templates are checked for each pod."""
    tenants = settings.policy.tenants
    named = {name for tenant in tenants for name in (tenant.partition.default, *tenant.partition.allowed)}
    return {name for name in named - {"", ANY} if not templates.is_template(name)}


# --- the file ---------------------------------------------------------------------------------------------------------


@dataclass
class PolicyFile:
    """The settings file of a running bridge.

    path        the file
    settings    the settings in force: the settings of the start, with the policy that was read last
    reread      reads the settings again as the start did; raises ConfigError
    slurm_user  SlurmUser of slurm.conf; "": not known
    clock       epoch seconds
    trouble     why the present file is not in force, as a sentence; "": it is in force
    """

    path: str
    settings: Settings
    reread: Callable[[], Settings]
    slurm_user: str
    clock: Callable[[], float]
    trouble: str = ""

    def __post_init__(self) -> None:
        self._started_with = self.settings
        self._loaded_at = self.clock()
        # The first check reads the file: it may have changed since the start read it.
        self._stamp: Stamp | None = _NEVER
        # what was read last and its stamp; an error is taken once
        self._content: tuple[Stamp | None, Settings | ConfigError] | None = None
        self._other_keys: list[str] = []

    async def follow(self, emit: Callable[[Event], None], world: World) -> None:
        """Emit PolicyChanged whenever the policy changes.  Never returns.

        A thousand rules take 0.4 s.  So a thread reads the file, except the first time: no decision may come before.
        """
        is_first = True
        while True:
            await self._written()
            if not is_first:
                await self._read_ahead()
            if (event := self.look(world)) is not None:
                emit(event)
            is_first = False
            await asyncio.sleep(EVERY_S)

    async def _read_ahead(self) -> None:
        """Read the file by a thread, if `look` is to read it."""
        stamp = self._stamped()
        if (stamp != self._stamp or self.trouble) and (self._content is None or self._content[0] != stamp):
            self._content = stamp, await asyncio.to_thread(self._read)

    def _read(self) -> Settings | ConfigError:
        try:
            return self.reread()
        except ConfigError as error:
            return error

    async def _written(self) -> None:
        """Wait while the file changes: it is being written."""
        stamp = self._stamped()
        while stamp != self._stamp and not _is_old(stamp):
            await asyncio.sleep(SETTLE_S)
            before, stamp = stamp, self._stamped()
            if stamp == before:
                return

    def look(self, world: World) -> PolicyChanged | None:
        """The policy of the file if it has changed; None: nothing changed, or the file cannot be used."""
        stamp = self._stamped()
        # With trouble the file is checked again: Slurm may have the missing partition now.
        if stamp == self._stamp and not self.trouble:
            return None
        self._stamp = stamp
        before = self.settings
        try:
            found = self._usable(stamp, world)
        except ConfigError as error:
            self._reject(str(error))
            return None
        if self._stamped() != stamp:
            return None  # it was written while it was read, and is read again
        self.trouble = ""
        self._name_others(found)
        if (found.policy, found.priority_classes) == (before.policy, before.priority_classes):
            return None
        self._loaded_at = self.clock()
        self.settings = before.model_copy(update={key: getattr(found, key) for key in RELOADED})
        log.info("policy read again from %s: %s rules", self.path, f"{len(found.policy.rules):,}")
        return PolicyChanged(self.settings.core_policy(self.slurm_user), self._loaded_at)

    def notes(self, now: float) -> list[str]:
        """Notes about the file for the admin, one sentence each."""
        said = []
        if self.trouble:
            at = time_of_day(self._loaded_at, now)
            said.append(f"{self.trouble} The policy that was read at {at} stays in force.")
        if self._other_keys:
            said.append(f"{self.path}: changed since the start, and needs a restart: {', '.join(self._other_keys)}.")
        return said

    def rejected(self) -> list[tuple[float, dict[str, str]]]:
        """The value of the gauge: 1 while the file cannot be used."""
        return [(1.0 if self.trouble else 0.0, {})]

    def _usable(self, stamp: Stamp | None, world: World) -> Settings:
        """The settings of the file with that stamp.  Raises ConfigError if they or their policy cannot be used."""
        if self._content is None or self._content[0] != stamp:
            self._content = stamp, self._read()
        found = self._content[1]
        if isinstance(found, ConfigError):
            self._content = None
            raise found
        policy = found.core_policy(self.slurm_user)
        if policy.has_templates and not self.slurm_user:
            raise ConfigError(
                f"{self.path}: policy: it has templates, and SlurmUser was not known at the start.",
                "Restart the bridge while slurmctld answers.",
            )
        # A partition that was removed from Slurm must not hold up the other edits of the policy that names it.
        missing = policy_trouble(found, world, before=self.settings)
        if trouble := privileged_user(found, self.slurm_user) or next(iter(missing), ""):
            raise ConfigError(f"{self.path}: {trouble}")
        return found

    def _reject(self, why: str) -> None:
        if why != self.trouble:
            log.error("%s The policy before stays in force.", why)
        self.trouble = why

    def _name_others(self, found: Settings) -> None:
        start = self._started_with
        keys = [key for key in Settings.model_fields if key not in RELOADED]
        changed = [key for key in keys if getattr(found, key) != getattr(start, key)]
        if changed and changed != self._other_keys:
            log.warning("%s: changed, and needs a restart: %s", self.path, ", ".join(changed))
        self._other_keys = changed

    def _stamped(self) -> Stamp | None:
        """The stamp of the file; None: the file cannot be read."""
        try:
            return stamp_of(self.path)
        except OSError:
            return None


def _is_old(stamp: Stamp | None) -> bool:
    """True if the file was written at least SETTLE_S ago, by the machine's clock."""
    return stamp is not None and time.time() - stamp.written_ns / 1e9 >= SETTLE_S

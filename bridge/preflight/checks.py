"""Checks at start, each with one sentence for the admin.

A mistake is a ConfigError, which ends the process with exit code 2.  A cluster that is away is a NotYet, which
`bridge.preflight.waiting` waits for.  The pods and /readyz report a later failure, and the bridge goes on once it is mended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar, cast

from bridge.errors import AccountingUnavailable, ConfigError, NotYet, Refused, RemoteError, Unauthorized, said
from bridge.kube.client import KubeClient
from bridge.policy_file import privileged_user, unknown_partition
from bridge.preflight import rights
from bridge.settings import Settings
from bridge.slurm import admin_reads
from bridge.slurm.client import Discovery, SlurmClient
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from bridge.slurm.user_tokens import UserTokens
from scheduler.policy.templates import is_template

log = logging.getLogger("slurm-bridge")

MOST_NAMED = 5  # users without a usable token that are named

_A = TypeVar("_A")
_B = TypeVar("_B")


def check_tuning(settings: Settings) -> None:
    """The settle time and the quiet period must outlast the longest call (ARCHITECTURE 3).  Raises ConfigError."""
    tuning = settings.tuning
    for key in ("settle_s", "quiet_s"):
        if getattr(tuning, key) < DEFAULT_DEADLINE_S:
            raise ConfigError(f"tuning.{key}: must be at least {DEFAULT_DEADLINE_S:g}, the longest duration of a call.")


def users_without_token(users: UserTokens, settings: Settings, now: float) -> list[str]:
    """A sentence for each of the first Slurm users whose token cannot be used, and one with the number of the others."""
    named = frozenset(tenant.user for tenant in settings.policy.tenants if not is_template(tenant.user))
    troubles = [why for _, why in users.troubles(named, now)]
    rest = len(troubles) - MOST_NAMED
    more = [f"{rest:,} more Slurm users have no token that can be used."] if rest > 0 else []
    return troubles[:MOST_NAMED] + more


def token_lacks_node_rights(settings: Settings, whose: str, slurm_user: str) -> ConfigError | None:
    """The error about actions on nodes that fail because the token for nodes is not SlurmUser's; None: there is none.

    whose        the user of the token that is used for nodes
    slurm_user   SlurmUser of slurm.conf; "": not known
    """
    name = slurm_user.partition("(")[0]
    if not settings.slurm_user_token_dir or not name or whose in (name, "root"):
        return None
    return ConfigError(
        f"The Slurm token for nodes names user {whose or 'none'}, not {name}. Slurm lets only administrators "
        "register and remove nodes (label slurm-bridge/external-node), and drain and resume them. Pods are scheduled "
        "nevertheless.",
        f"If the bridge should do that, name a token of {name} in slurm_acting_token_file.",
    )


def operator(user: str) -> str:
    """How an admin of Slurm makes an operator of the user, whom Slurm's accounting need not know yet."""
    return (
        f"sacctmgr modify user {user} set adminlevel=operator (if that modifies nothing, Slurm's accounting does not have "
        f"the user: sacctmgr add user {user} account=root adminlevel=operator)"
    )


async def check_kubernetes(kube: KubeClient, server: str) -> str:
    """The API server answers, and gives the rights without which the bridge sees nothing.  Returns its version.

    Raises NotYet if waiting may mend it, else ConfigError.
    """
    try:
        version = await kube.server_version()
        lacking = await rights.missing(kube, rights.CLUSTER)
    except RemoteError as error:
        raise _at_start(f"kubeconfig's server {server}", error) from None
    if lacking:
        raise ConfigError(
            f"Kubernetes: this user may not {rights.spelled(lacking)} in all namespaces. "
            "Give it the ClusterRole slurm-bridge of manifests/base/rbac.yaml."
        )
    return version


async def check_slurm(slurm: SlurmClient, settings: Settings, user: str) -> Discovery:
    """slurmrestd answers, is of a known version, and shows `user` all jobs.

    If slurmctld is down while slurmrestd answers, the bridge starts, unless its policy has templates.  It also starts, with a
    warning, if the policy names a partition that Slurm does not have.
    Raises NotYet if waiting may mend it, else ConfigError.
    """
    found = None
    try:
        found = await slurm.discover()
        found, partitions = await _check_slurmctld(slurm, settings, user, found)
    except RemoteError as error:
        if found is None or found.responding or isinstance(error, Refused):
            raise _at_start(f"slurm_url {settings.slurm_url}", error) from None
        if settings.policy.policy().has_templates:
            raise NotYet(
                f"slurm_url {settings.slurm_url}: slurmctld does not answer, so SlurmUser is not known, and templates "
                "of the policy must not map pods to SlurmUser."
            ) from None
        return found
    if partitions is not None and (missing := unknown_partition(settings, partitions)):
        log.warning("%s Pods that need it are refused.", missing)  # an admin may remove a partition: other pods go on
    return found


async def _check_slurmctld(
    slurm: SlurmClient, settings: Settings, user: str, found: Discovery
) -> tuple[Discovery, frozenset[str] | None]:
    """Slurm as discovered, with SlurmUser, and the names of the partitions.  Raises ConfigError, RemoteError."""
    # A ping is answered even to a token that nothing else accepts.
    partitions, conf = await _both(_partitions(slurm), admin_reads.configuration(slurm))
    if conf is not None and not await admin_reads.sees_all_jobs(slurm, conf, user):
        raise ConfigError(
            f"Slurm hides the jobs of other users from {user} (PrivateData=jobs), also those that the bridge makes for "
            f"them. Use a token of {conf.slurm_user}, or: {operator(user)}."
        )
    unknown = "" if settings.slurm_user_token_dir else user  # the user that acts for all users has SlurmUser's rights
    found = replace(found, slurm_user=conf.slurm_user if conf is not None else unknown)
    if trouble := privileged_user(settings, found.slurm_user):
        raise ConfigError(trouble)
    return found, partitions


async def _partitions(slurm: SlurmClient) -> frozenset[str] | None:
    """Their names; None while slurmdbd is away: slurmrestd does not list partitions without it."""
    try:
        return frozenset(partition.name for partition in await slurm.partitions())
    except AccountingUnavailable:
        return None


async def _both(one: Awaitable[_A], other: Awaitable[_B]) -> tuple[_A, _B]:
    """Both results; runs both to their end, and raises the error of the first before that of the second."""
    a, b = await asyncio.gather(one, other, return_exceptions=True)
    for found in (a, b):
        if isinstance(found, BaseException):
            raise found
    return cast(_A, a), cast(_B, b)


def _at_start(where: str, error: RemoteError) -> ConfigError:
    """A refused token or right is a mistake; anything else may pass."""
    kind = ConfigError if isinstance(error, Unauthorized) else NotYet
    return kind(f"{where}: {said(error)}")

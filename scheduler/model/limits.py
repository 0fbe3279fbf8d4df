"""Limits of Slurm on the jobs of an account or a QOS, under the names that sacctmgr(1) gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class LimitsOf(NamedTuple):
    """The jobs that the limits are about: of this user in this account, with this QOS, in a partition with that QOS."""

    user: str
    account: str
    qos: str
    partition_qos: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit.

    name      "GrpTRES", "MaxJobsPerUser"
    resource  "cpu", "mem" (MiB), "gres/gpu"; "": the limit is on jobs, or on wall-clock time in minutes
    account, user, qos   what has the limit: an account, a user in an account, or a QOS
    """

    name: str
    resource: str
    value: int
    account: str = ""
    user: str = ""
    qos: str = ""

    @property
    def of(self) -> str:
        """What has the limit, in words."""
        if self.qos:
            return f"QOS {self.qos}"
        return f"user {self.user} in account {self.account}" if self.user else f"account {self.account}"

    def __str__(self) -> str:
        limited = f"{self.name}={self.resource}" if self.resource else self.name
        return f"{limited}={self.value}{'M' if self.resource == 'mem' else ''} of {self.of}"


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """The limits on some jobs, as of a time, epoch seconds.

    unseen   why the limits of the association are not among them, a sentence; "": they are
    """

    at: float
    limits: tuple[Limit, ...] = ()
    unseen: str = ""

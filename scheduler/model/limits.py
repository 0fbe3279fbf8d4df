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
    of        what has the limit: "account teamb", "user bob in account teamb", "QOS normal"
    by_qos    a QOS has it, not an association
    """

    name: str
    resource: str
    value: int
    of: str
    by_qos: bool = False

    def __str__(self) -> str:
        what = f"{self.name}={self.resource}" if self.resource else self.name
        return f"{what}={self.value}{'M' if self.resource == 'mem' else ''} of {self.of}"


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """The limits on some jobs, as of a time, epoch seconds.

    unseen   why the limits of the association are not among them, a sentence; "": they are
    """

    at: float
    limits: tuple[Limit, ...] = ()
    unseen: str = ""

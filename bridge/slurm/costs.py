"""The costs of a job as far as Slurm shows them: its billing, the fair share of its account, and limits with their use.

Only `explain` and `kubectl slurm why` read these.  Slurm facts 10 describes which token may read which of these, and the size
of the answers.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import msgspec

from bridge.errors import NotFound, RemoteError, said
from bridge.slurm.admin_reads import CONFIGURATION_SINCE
from bridge.slurm.client import SlurmClient
from bridge.slurm.limits import associations, known_limits
from bridge.slurm.wire import Envelope, Number
from scheduler.model.limits import Limit, LimitsOf
from scheduler.model.slurm import JobSpec, holds_nodes

_T = TypeVar("_T")
MOST_RUNNING = 500  # a job's record in slurmdbd has 6 kB, and slurmrestd does not free the memory of large answers
MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_BILLING = re.compile(r"(?:^|,)billing=([0-9]{1,20})(?:,|$)")
_WEIGHT = re.compile(r"([^=,]+)=([0-9]{1,20}(?:\.[0-9]*)?)([KMGTP]?)", re.IGNORECASE)
NO_ACCOUNTING = "This Slurm has no slurmdbd: there are no accounts, no limits and no fair share."
TOO_MANY = f"The use of the limits is not read: more than {MOST_RUNNING:,} jobs run. See `scontrol show assoc_mgr`."


@dataclass(frozen=True, slots=True)
class Share:
    """The fair share of a user in an account.

    factor   0 to 1: the larger, the higher the priority
    shares, used   its part of the shares of all siblings, and of their usage, which decays; 0 to 1
    """

    user: str
    account: str
    factor: float
    shares: float
    used: float


@dataclass(frozen=True, slots=True)
class LimitInUse:
    """A limit in the notation of Limit.  used: the amount that running jobs use; None: not known."""

    limit: str
    used: int | None


@dataclass(frozen=True, slots=True)
class Terms:
    """The values on which the costs of a user's jobs in a partition depend.

    weights   TRESBillingWeights of the partition, "": none; None: not shown
    flags     PriorityFlags of slurm.conf
    absent    sentences about missing values, with the reason
    """

    partition: str
    weights: str | None = None
    flags: tuple[str, ...] = ()
    share: Share | None = None
    limits: tuple[LimitInUse, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one job.  billing: billing units an hour; None: not known."""

    billing: float | None
    terms: Terms


# --- what slurmrestd sends ------------------------------------------------------------------------------------------


class _Weights(msgspec.Struct):
    billing_weights: str | None = ""


class _PartitionQos(msgspec.Struct):
    assigned: str = ""


class _Partition(msgspec.Struct):
    name: str
    tres: _Weights = msgspec.field(default_factory=_Weights)
    qos: _PartitionQos = msgspec.field(default_factory=_PartitionQos)


class PartitionAnswer(Envelope, kw_only=True):
    """`GET partition/{name}`.  If the partition does not exist, the answer is 200 with a warning and without this field."""

    partitions: tuple[_Partition, ...] = ()


class _Conf(msgspec.Struct, rename="pascal"):
    priority_flags: tuple[str, ...] | None = ()


class PriorityAnswer(Envelope, kw_only=True):
    """`GET conf`: the fields that decide how billing units are counted."""

    slurm_conf: _Conf


class _FairShare(msgspec.Struct):
    factor: Number = msgspec.field(default_factory=Number)


class _Share(msgspec.Struct):
    name: str = ""
    parent: str = ""
    partition: str = ""
    fairshare: _FairShare = msgspec.field(default_factory=_FairShare)
    shares_normalized: Number = msgspec.field(default_factory=Number)
    effective_usage: Number = msgspec.field(default_factory=Number)


class _Shares(msgspec.Struct):
    shares: tuple[_Share, ...] = ()


class SharesAnswer(Envelope, kw_only=True):
    """`GET shares`: 7 kB for each association."""

    shares: _Shares


class _Tres(msgspec.Struct):
    type: str
    count: int
    name: str = ""


class _Allocated(msgspec.Struct):
    allocated: tuple[_Tres, ...] = ()


class RunningJob(msgspec.Struct):
    """One item of `GET slurmdb/…/jobs`."""

    user: str = ""
    account: str = ""
    qos: str = ""
    tres: _Allocated = msgspec.field(default_factory=_Allocated)


class RunningAnswer(Envelope, kw_only=True):
    """`GET slurmdb/…/jobs?state=RUNNING`."""

    jobs: tuple[RunningJob, ...]


class _KnownJob(msgspec.Struct):
    user_name: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    tres_req_str: str | None = ""


class KnownJobAnswer(Envelope, kw_only=True):
    """`GET job/{id}`: the job, with all components of a heterogeneous one."""

    jobs: tuple[_KnownJob, ...]


_PARTITION = msgspec.json.Decoder(PartitionAnswer)
_JOB = msgspec.json.Decoder(KnownJobAnswer)
_CONF = msgspec.json.Decoder(PriorityAnswer)
_SHARES = msgspec.json.Decoder(SharesAnswer)
_RUNNING = msgspec.json.Decoder(RunningAnswer)


# --- reads --------------------------------------------------------------------------------------------------


async def terms_of(slurm: SlurmClient, user: str, account: str, partition: str, qos: str) -> Terms:
    """The terms of these jobs.  account "": the default account of the user; qos "": limits of no QOS are read.

    Raises no RemoteError: if a request fails, `absent` has a sentence about it.
    """
    return await _Reading(slurm, user, account, partition, qos).terms()


async def costs_of_job(slurm: SlurmClient, job_id: int) -> Costs:
    """The costs of a job as Slurm itself counts them, and their terms.  Raises RemoteError if the job cannot be read."""
    components = (await slurm.ask("costs", "GET", f"job/{job_id}", _JOB)).jobs
    if not components:
        raise NotFound("costs", "Slurm", f"shows no job {job_id}")
    billed = [_BILLING.search(component.tres_req_str or "") for component in components]
    first = components[0]
    terms = await terms_of(slurm, first.user_name, first.account, first.partition, first.qos)
    return Costs(sum(float(found[1]) for found in billed if found) if all(billed) else None, terms)


class _Reading:
    """Reads the terms of some jobs.  If one read fails, the other reads are made nevertheless."""

    def __init__(self, slurm: SlurmClient, user: str, account: str, partition: str, qos: str) -> None:
        self._slurm, self._user, self._account = slurm, user, account
        self._partition_name, self._qos = partition, qos
        self._absent: list[str] = []

    async def terms(self) -> Terms:
        partition = await self._read_or_note(self._read_partition(), f"Partition {self._partition_name} is not shown")
        weights = (partition.tres.billing_weights or "") if partition is not None else None
        flags = (
            await self._read_or_note(self._read_priority_flags(), "How weights are added up is not shown")
            if weights
            else ()
        )
        share: Share | None = None
        limits: tuple[LimitInUse, ...] = ()
        if self._slurm.discovery is None or not self._slurm.discovery.accounting:
            self._absent.append(NO_ACCOUNTING)
        elif await self._find_account():
            share = await self._read_or_note(self._read_share(), "The fair share is not shown")
            limits = await self._read_limits(partition.qos.assigned if partition is not None else "")
        return Terms(self._partition_name, weights, flags or (), share, limits, tuple(self._absent))

    async def _read_or_note(self, asked: Awaitable[_T], subject: str) -> _T | None:
        try:
            return await asked
        except RemoteError as error:
            self._absent.append(f"{subject}: {said(error)}")
            return None

    async def _read_partition(self) -> _Partition | None:
        path = f"partition/{quote(self._partition_name, safe='')}"
        found = (await self._slurm.ask("partition", "GET", path, _PARTITION)).partitions
        if not found:
            self._absent.append(f"Slurm has no partition {self._partition_name}.")
        return found[0] if found else None

    async def _read_priority_flags(self) -> tuple[str, ...]:
        """The PriorityFlags; (): Slurm adds the weights up, or this API version does not show slurm.conf."""
        if self._slurm.discovery is None or self._slurm.discovery.api < CONFIGURATION_SINCE:
            return ()
        return (await self._slurm.ask("configuration", "GET", "conf/", _CONF)).slurm_conf.priority_flags or ()

    async def _find_account(self) -> bool:
        """True if the account is known: the account of the job, or the default account of its user."""
        if not self._account:
            found = await self._read_or_note(
                associations(self._slurm, user=self._user), "The default account is not shown"
            )
            self._account = next((association.account for association in found or () if association.is_default), "")
            if found is not None and not self._account:
                self._absent.append(f"slurmdbd shows no default account of user {self._user} to this token.")
        return bool(self._account)

    async def _read_share(self) -> Share | None:
        shown = (await self._slurm.ask("shares", "GET", "shares/", _SHARES)).shares.shares
        for line in shown:
            if (line.name, line.parent) == (self._user, self._account) and not line.partition:
                factor, shares, used = line.fairshare.factor, line.shares_normalized, line.effective_usage
                return Share(line.name, line.parent, factor.number, shares.number, used.number)
        whose = f"user {self._user} in account {self._account}"
        self._absent.append(
            f"Slurm shows no fair share of {whose}: PrivateData hides it, or the priority does not use it."
        )
        return None

    async def _read_limits(self, partition_qos: str) -> tuple[LimitInUse, ...]:
        of = LimitsOf(self._user, self._account, self._qos, partition_qos)
        known = await self._read_or_note(known_limits(self._slurm, of, time.time()), "The limits are not shown")
        if known is None:
            return ()
        self._absent += [known.unseen] if known.unseen else []
        running = (
            await self._read_or_note(self._read_running(), "The use of the limits is not shown")
            if known.limits
            else None
        )
        return tuple(LimitInUse(str(limit), used_of(limit, of, running)) for limit in known.limits)

    async def _read_running(self) -> tuple[RunningJob, ...] | None:
        """The jobs that run now; None: too many to be read."""
        states = await self._slurm.states()
        if sum(map(holds_nodes, states.values())) > MOST_RUNNING:
            self._absent.append(TOO_MANY)
            return None
        path = "jobs/?state=RUNNING&skip_steps=true"
        return (await self._slurm.ask("running", "GET", path, _RUNNING, side="slurmdb")).jobs


# --- counts ----------------------------------------------------------------------------------------------


def billing_of(spec: JobSpec, terms: Terms) -> float | None:
    """The billing units of a job for an hour; without weights its CPUs count.  None: the weights are not known.

    Slurm adds up the weighted amounts.  With the flag MAX_TRES, only the largest amount on nodes counts, GRES included; with
    MAX_TRES_GRES, the largest of CPUs and memory counts, and GRES are added.
    """
    by_resource = weights_in(terms.weights) if terms.weights is not None else None
    if by_resource is None:
        return None
    try:
        billed = _billing(_amounts(spec), by_resource, {flag.upper() for flag in terms.flags})
    except OverflowError:  # an answer of a server may have an integer of any length
        return None
    return billed if math.isfinite(billed) else None


def _billing(amounts: Mapping[str, float], by_resource: Mapping[str, float], flags: Set[str]) -> float:
    if not by_resource:
        return amounts["cpu"]
    billed = {name: amounts.get(name, 0.0) * weight for name, weight in by_resource.items()}
    on_nodes = [value for name, value in billed.items() if name in ("cpu", "mem")]
    devices = [value for name, value in billed.items() if name.startswith("gres/")]
    rest = sum(billed.values()) - sum(on_nodes) - sum(devices)
    if "MAX_TRES_GRES" in flags:
        return max(on_nodes, default=0.0) + sum(devices) + rest
    return max([*on_nodes, *devices], default=0.0) + rest if "MAX_TRES" in flags else sum(billed.values())


def weights_in(text: str) -> dict[str, float] | None:
    """ "CPU=1.0,Mem=0.25G" -> {"cpu": 1.0, "mem": 0.25 / 1024}: by lower-case name, of memory by MiB.  None: unreadable."""
    weights: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        found = _WEIGHT.fullmatch(item.strip())
        if found is None:
            return None
        name = found[1].lower()
        weights[name] = float(found[2]) / (MIB[found[3].upper()] if name == "mem" else 1.0)
    return weights


def _amounts(spec: JobSpec) -> dict[str, float]:
    """The amounts that the job asks for, by the resource's lower-case name; a typed GRES counts under its plain name, too."""
    amounts: Counter[str] = Counter()
    for part in (spec, *spec.parts):
        amounts["cpu"] += part.cpus_per_task * part.tasks
        amounts["mem"] += part.memory_mib * part.tasks
        amounts["node"] += part.min_nodes or 1
        for name, count in part.gres:
            for gres in {name, name.partition(":")[0]}:
                amounts[f"gres/{gres}".lower()] += count * part.tasks
        for name, count in part.licenses:
            amounts[f"license/{name}".lower()] += count
    return {name: float(amount) for name, amount in amounts.items()}


def used_of(limit: Limit, of: LimitsOf, running: Sequence[RunningJob] | None) -> int | None:
    """The part of the limit that running jobs use; None: not known (minutes, parent accounts, jobs in the queue)."""
    if running is None or limit.name not in _COUNTED:
        return None
    if limit.qos:
        in_qos = [job for job in running if job.qos == limit.qos]
        counted = [job for job in in_qos if _is_in_scope(job, limit.name, of)]
    elif limit.user:
        counted = [job for job in running if (job.user, job.account) == (limit.user, limit.account)]
    else:
        return None  # jobs of child accounts count, too, and these accounts are not known
    return sum(_held(job, limit.resource) for job in counted) if limit.resource else len(counted)


# Limits on what runs now.
_COUNTED = frozenset(
    {"GrpTRES", "GrpJobs", "MaxJobs", "MaxJobsPerUser", "MaxJobsPerAccount", "MaxTRESPerUser", "MaxTRESPerAccount"}
)


def _is_in_scope(job: RunningJob, name: str, of: LimitsOf) -> bool:
    if name.endswith("PerUser"):
        return job.user == of.user
    return job.account == of.account if name.endswith("PerAccount") else True


def _held(job: RunningJob, resource: str) -> int:
    for tres in job.tres.allocated:
        if (f"{tres.type}/{tres.name}" if tres.name else tres.type) == resource:
            return max(0, tres.count)
    return 0

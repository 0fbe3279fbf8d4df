"""The limits of associations and QOS, as slurmdbd has them (`GET slurmdb/…/associations`, `qos/{name}`).

slurmrestd shows limits, but not the use of most of them (Slurm facts 10).  Its fields have other names than sacctmgr(1);
the tables give the place of each limit.  Limits of the kind `Max…` are inherited: slurmdbd shows them on each association.
Those of the kind `Grp…` are not, so the parent accounts are read, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from bridge.slurm.client import SlurmClient
from bridge.slurm.wire import Envelope
from scheduler.model.limits import KnownLimits, Limit, LimitsOf

Path = tuple[str, ...]
MOST_PARENTS = 16
MOST_LIMITS = 256
MOST_COUNT = 2**63 - 1  # as of all counts (wire.Count)
UNSEEN = (
    "slurmdbd does not show the association of user {user} in account {account} to this token: PrivateData hides it, "
    "or it does not exist."
)

ASSOCIATION: Mapping[Path, str] = {  # below `max`: counts, and minutes
    ("jobs", "per", "count"): "GrpJobs",
    ("jobs", "per", "submitted"): "GrpSubmitJobs",
    ("jobs", "active"): "MaxJobs",
    ("jobs", "total"): "MaxSubmitJobs",
    ("jobs", "per", "wall_clock"): "MaxWall",
    ("per", "account", "wall_clock"): "GrpWall",
}
ASSOCIATION_TRES: Mapping[Path, str] = {
    ("tres", "total"): "GrpTRES",
    ("tres", "group", "minutes"): "GrpTRESMins",
    ("tres", "group", "active"): "GrpTRESRunMins",
    ("tres", "minutes", "total"): "MaxTRESRunMins",
    ("tres", "minutes", "per", "job"): "MaxTRESMins",
    ("tres", "per", "job"): "MaxTRES",
    ("tres", "per", "node"): "MaxTRESPerNode",
}
QOS: Mapping[Path, str] = {  # below `limits`
    ("max", "active_jobs", "count"): "GrpJobs",
    ("max", "jobs", "count"): "GrpSubmitJobs",
    ("max", "jobs", "active_jobs", "per", "account"): "MaxJobsPerAccount",
    ("max", "jobs", "active_jobs", "per", "user"): "MaxJobsPerUser",
    ("max", "jobs", "per", "account"): "MaxSubmitJobsPerAccount",
    ("max", "jobs", "per", "user"): "MaxSubmitJobsPerUser",
    ("max", "wall_clock", "per", "qos"): "GrpWall",
    ("max", "wall_clock", "per", "job"): "MaxWall",
}
QOS_TRES: Mapping[Path, str] = {
    ("max", "tres", "total"): "GrpTRES",
    ("max", "tres", "minutes", "total"): "GrpTRESMins",
    ("max", "tres", "minutes", "per", "qos"): "GrpTRESRunMins",
    ("max", "tres", "minutes", "per", "job"): "MaxTRESMinsPerJob",
    ("max", "tres", "minutes", "per", "account"): "MaxTRESRunMinsPerAccount",
    ("max", "tres", "minutes", "per", "user"): "MaxTRESRunMinsPerUser",
    ("max", "tres", "per", "account"): "MaxTRESPerAccount",
    ("max", "tres", "per", "job"): "MaxTRESPerJob",
    ("max", "tres", "per", "node"): "MaxTRESPerNode",
    ("max", "tres", "per", "user"): "MaxTRESPerUser",
    ("min", "tres", "per", "job"): "MinTRES",
}


class Association(msgspec.Struct):
    """One item of `GET associations/`.  user "": of the account itself; lineage: "/parent/account/0-user/"."""

    account: str
    user: str = ""
    partition: str = ""
    lineage: str = ""
    is_default: bool = False
    max: dict[str, Any] = {}


class AssociationsAnswer(Envelope, kw_only=True):
    """`GET slurmdb/…/associations/`."""

    associations: tuple[Association, ...]


class _Qos(msgspec.Struct):
    name: str
    limits: dict[str, Any] = {}


class QosAnswer(Envelope, kw_only=True):
    """`GET slurmdb/…/qos/{name}`."""

    qos: tuple[_Qos, ...]


_ASSOCIATIONS = msgspec.json.Decoder(AssociationsAnswer)
_QOS = msgspec.json.Decoder(QosAnswer)


async def known_limits(slurm: SlurmClient, of: LimitsOf, at: float) -> KnownLimits:
    """The limits on these jobs.  Raises what any call raises; at: the time to note, epoch seconds."""
    own = await associations(slurm, user=of.user, account=of.account)
    found = list(_of_associations(association for association in own if not association.partition))
    if own and (parents := _accounts(own[0])):
        above = await associations(slurm, account=parents, parent_account=["root", *parents[:-1]])
        found += _of_associations(above)
    for name in sorted({of.qos, of.partition_qos} - {""}):
        answer = await slurm.ask("limits", "GET", f"qos/{quote(name, safe='')}", _QOS, side="slurmdb")
        for qos in answer.qos:
            found += [replace(limit, qos=qos.name) for limit in _limits(qos.limits, QOS, QOS_TRES)]
    return KnownLimits(at, tuple(found[:MOST_LIMITS]), "" if own else UNSEEN.format(user=of.user, account=of.account))


async def associations(slurm: SlurmClient, **wanted: str | list[str]) -> tuple[Association, ...]:
    """The associations with these values; several values of a key are sent as several keys (a comma is refused)."""
    query = urlencode(wanted, doseq=True, quote_via=quote, safe="")
    return (await slurm.ask("limits", "GET", f"associations/?{query}", _ASSOCIATIONS, side="slurmdb")).associations


def _accounts(own: Association) -> list[str]:
    """The account and the accounts above it, the topmost first, without root."""
    return [name for name in own.lineage.split("/")[:-2] if name][-MOST_PARENTS:]


def _of_associations(found: Iterable[Association]) -> Iterator[Limit]:
    """The limits of associations; `Max…` of an account are left out, because the associations below it show them, too."""
    for association in found:
        for limit in _limits(association.max, ASSOCIATION, ASSOCIATION_TRES):
            if association.user or not limit.name.startswith("Max"):
                yield replace(limit, account=association.account, user=association.user)


def _limits(shown: Mapping[str, Any], counts: Mapping[Path, str], amounts: Mapping[Path, str]) -> Iterator[Limit]:
    """The limits that are set; user, account and QOS of a limit are left empty."""
    for path, name in counts.items():
        number = _at(shown, path)
        if isinstance(number, dict) and number.get("set") is True and _is_count(number.get("number")):
            yield Limit(name, "", int(number["number"]))
    for path, name in amounts.items():
        found = _at(shown, path)
        for tres in found if isinstance(found, list) else ():
            if isinstance(tres, dict) and _is_count(tres.get("count")):
                yield Limit(name, _resource(tres), int(tres["count"]))


def _at(shown: object, path: Path) -> Any:
    """The value at that place; None: there is none."""
    for key in path:
        shown = shown.get(key) if isinstance(shown, dict) else None
    return shown


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT


def _resource(tres: Mapping[str, Any]) -> str:
    """ "cpu", "gres/gpu", as sacctmgr(1) writes it."""
    return f"{tres.get('type', '')}/{tres['name']}" if tres.get("name") else str(tres.get("type", ""))

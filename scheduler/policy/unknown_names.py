"""The message of a pod if Slurm does not know, or does not accept now, a name in its job: user, account, partition, QOS …

Slurm's own text names no value ("Invalid account or account/partition combination specified").  So the sentence adds what the
job asked for, which rule of the policy gave it, and what an admin can do.  The same for limits of a partition: Slurm's text
does not name them ("Requested time limit is invalid (missing or exceeds some limit)").  And for limits of users,
accounts and QOS: Slurm's text does not say whose limit it is ("Job violates accounting/QOS policy (job submit limit, …)").
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec
from scheduler.policy.rules import Tenant

# Slurm's error numbers
PARTITION, NO_DEFAULT, ACCOUNT, RESERVATION, QOS, NOT_UP, USER = 2000, 2001, 2045, 2053, 2066, 2070, 6010
ACCESS, NODE_COUNT, TIME = _OF_PARTITION = 2002, 2006, 2051
LIMIT = 2050
NUMBERS = frozenset({PARTITION, NO_DEFAULT, ACCOUNT, RESERVATION, QOS, NOT_UP, USER, *_OF_PARTITION, LIMIT})
_ASKED_FOR = ("user", "account", "partition", "qos", "reservation")
_MAY_BE_EXCLUDED = {ACCOUNT: "account", QOS: "QOS"}


def with_names(refusal: Refusal, spec: JobSpec, tenant: Tenant | Refusal, default_partition: str) -> Refusal:
    """The refusal of that job by one of NUMBERS, with the names that Slurm was asked for, their rule, and a remedy."""
    asked = {field: _values(spec, field) for field in _ASKED_FOR}
    if refusal.number != NO_DEFAULT:
        asked["partition"] = asked["partition"] or default_partition
    named = ", ".join(f'{field} "{value}"' for field, value in asked.items() if value)
    given = "" if isinstance(tenant, Refusal) else tenant.filled or f"{tenant.rule} decides here."
    about = {QOS: "qos", NOT_UP: "partition", **dict.fromkeys(_OF_PARTITION, "partition")}
    value = asked[about.get(refusal.number, "account")]
    do = f"What an admin can do: {remedy(refusal.number, spec.user, value)}."
    if (what := _MAY_BE_EXCLUDED.get(refusal.number)) is not None and asked["partition"]:
        do += f" The partition may also exclude the {what} (scontrol show partition {asked['partition']})."
    return replace(refusal, message=" ".join(filter(None, (refusal.message, f"Asked for: {named}.", given, do))))


def remedy(number: int, user: str, value: str) -> str:
    """How an admin of Slurm makes Slurm accept the name that it refused by this number; the rest of a sentence.

    value   of account, QOS or partition; "": the job named none
    """
    return {
        PARTITION: "sinfo -s lists the partitions",
        NO_DEFAULT: "scontrol update partition=PARTITION default=yes, or name a partition in the policy",
        ACCOUNT: f"sacctmgr add user {user} account={value or 'ACCOUNT'}",
        RESERVATION: "scontrol show reservation lists the reservations, and who may use each",
        QOS: f"sacctmgr modify user {user} set qos+={value or 'QOS'}",
        NOT_UP: f"scontrol update partition={value or 'PARTITION'} state=up",
        ACCESS: f"scontrol show partition {value or 'PARTITION'} shows who may use it (RootOnly, AllocNodes, ReqResv)",
        NODE_COUNT: f"scontrol show partition {value or 'PARTITION'} shows MinNodes and MaxNodes; a QOS may limit nodes, too",
        LIMIT: f"sacctmgr show association where user={user} account={value or 'ACCOUNT'} shows MaxSubmitJobs and more; "
        "the account and a QOS may have limits, too",
        TIME: f"scontrol show partition {value or 'PARTITION'} shows MaxTime; a QOS may limit times, too",
        USER: f"make the user known on the host of slurmctld, where `id {user}` must work",
    }[number]


def _values(spec: JobSpec, field: str) -> str:
    """The value of the job, or the values of its components."""
    return ",".join(dict.fromkeys(filter(None, (getattr(component, field) for component in (spec, *spec.parts)))))

"""The message of a pod if Slurm does not know the user, account, partition or QOS of its job.

Slurm's own text names no value ("Invalid account or account/partition combination specified").  So the sentence adds what the
job asked for, which rule of the policy gave it, and what an admin can do.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec
from scheduler.policy.rules import Tenant

PARTITION, ACCOUNT, QOS, USER = 2000, 2045, 2066, 6010  # Slurm's error numbers
NUMBERS = frozenset({PARTITION, ACCOUNT, QOS, USER})
_ASKED_FOR = ("user", "account", "partition", "qos")


def with_names(refusal: Refusal, spec: JobSpec, tenant: Tenant | Refusal) -> Refusal:
    """The refusal of that job by one of NUMBERS, with the names that Slurm was asked for, their rule, and a remedy."""
    asked = {field: _values(spec, field) for field in _ASKED_FOR}
    named = ", ".join(f'{field} "{value}"' for field, value in asked.items() if value)
    given = "" if isinstance(tenant, Refusal) else tenant.filled or f"{tenant.rule} decides here."
    value = asked["qos" if refusal.number == QOS else "account"]
    do = f"What an admin can do: {remedy(refusal.number, spec.user, value)}."
    return replace(refusal, message=" ".join(filter(None, (refusal.message, f"Asked for: {named}.", given, do))))


def remedy(number: int, user: str, value: str) -> str:
    """How an admin of Slurm makes the name known that Slurm refused by this number; the rest of a sentence.

    value   of account or QOS; "": the job named none
    """
    return {
        PARTITION: "sinfo -s lists the partitions",
        ACCOUNT: f"sacctmgr add user {user} account={value or 'ACCOUNT'}",
        QOS: f"sacctmgr modify user {user} set qos+={value or 'QOS'}",
        USER: f"make the user known on the host of slurmctld, where `id {user}` must work",
    }[number]


def _values(spec: JobSpec, field: str) -> str:
    """The value of the job, or the values of its components."""
    return ",".join(dict.fromkeys(filter(None, (getattr(component, field) for component in (spec, *spec.parts)))))

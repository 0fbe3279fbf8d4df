"""The message of a pod if Slurm refuses a name in its job (user, account, partition, QOS …), or a limit of a name is reached.

Slurm's own text names no value ("Invalid account or account/partition combination specified").  So the sentence adds what the
job asked for, which rule of the policy gave it, and what an admin can do.  The same for limits of a partition: Slurm's text
does not name them ("Requested time limit is invalid (missing or exceeds some limit)").  And for limits of users,
accounts and QOS: Slurm's text does not say whose limit it is ("Job violates accounting/QOS policy (job submit limit, …)").
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.model import slurm_errors
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec
from scheduler.policy.rules import Tenant

_ASKED_FOR = ("user", "account", "partition", "qos", "reservation")
_OF_REMEDY = ("account", "partition", "qos")


def with_names(refusal: Refusal, spec: JobSpec, tenant: Tenant | Refusal, default_partition: str) -> Refusal:
    """The refusal, with the names that Slurm was asked for, their rule, and a remedy.

    refusal  of that job, by one of slurm_errors.WITH_REMEDY
    """
    asked = {field: _values(spec, field) for field in _ASKED_FOR}
    if refusal.number != slurm_errors.NO_DEFAULT:
        asked["partition"] = asked["partition"] or default_partition
    named = ", ".join(f'{field} "{value}"' for field, value in asked.items() if value)
    given = "" if isinstance(tenant, Refusal) else tenant.filled or f"{tenant.rule} decides here."
    of_remedy = {field: asked[field] for field in _OF_REMEDY}
    do = f"What an admin can do: {slurm_errors.remedy(refusal.number, spec.user, **of_remedy)}."
    return replace(refusal, message=" ".join(filter(None, (refusal.message, f"Asked for: {named}.", given, do))))


def _values(spec: JobSpec, field: str) -> str:
    """The value of the job, or the values of its components."""
    return ",".join(dict.fromkeys(filter(None, (getattr(component, field) for component in (spec, *spec.parts)))))

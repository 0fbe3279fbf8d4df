"""Who a namespace may be in Slurm, and what its pods may ask for (BEHAVIOUR I).

A pod's annotations only choose within what the admin allows.  Where nothing is mapped and the admin set no default, the
answer is a clear no: the bridge never makes a job with privileges of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from scheduler.model import Refusal
from scheduler.names import REFUSED

ANY = "*"


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that an annotation may choose.

    default   used where the pod says nothing; "": Slurm's own default
    allowed   what a pod may name besides the default; ("*",): anything
    """

    default: str = ""
    allowed: tuple[str, ...] = ()

    def pick(self, what: str, wanted: str | None, where: str) -> str | Refusal:
        """What is used, or a no that names what would be allowed."""
        if wanted is None or wanted == self.default:
            return self.default
        if wanted in self.allowed or ANY in self.allowed:
            return wanted
        choices = sorted({self.default, *self.allowed} - {""})
        hint = f"Allowed here: {', '.join(choices)}." if choices else "None may be named here."
        return Refusal(REFUSED, f'The {what} "{wanted}" is not allowed for {where}. {hint}')


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who a workload is in Slurm.

    max_jobs          so many jobs wait and run at a time; max_submit_rate: so many are submitted a second; None: no limit
    """

    user: str
    accounts: Choice = Choice()
    partitions: Choice = Choice()
    qos: Choice = Choice()
    reservations: Choice = Choice()
    max_jobs: int | None = None
    max_submit_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the policy; patterns as in a shell ("team-*").  No service accounts named: all of them."""

    namespaces: tuple[str, ...]
    tenant: Tenant
    service_accounts: tuple[str, ...] = ()

    def matches(self, namespace: str, service_account: str) -> bool:
        """Whether this line speaks of pods of that namespace and service account."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces) and (
            not self.service_accounts or any(fnmatchcase(service_account, pattern) for pattern in self.service_accounts)
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """The first rule that matches decides; then the default; then nobody."""

    rules: tuple[Rule, ...] = ()
    default: Tenant | None = None

    def tenant(self, namespace: str, service_account: str) -> Tenant | Refusal:
        """Who pods of that namespace are in Slurm (I1)."""
        place = self.place(namespace, service_account)
        if place is not None and place < len(self.rules):
            return self.rules[place].tenant
        if self.default is not None:
            return self.default
        return Refusal(
            REFUSED,
            f"Namespace {namespace} has no Slurm user: the admin's policy maps neither it nor a default. "
            "Ask for a line under `policy` in slurm-bridge's settings.",
        )

    def place(self, namespace: str, service_account: str) -> int | None:
        """Which of `tenants` those pods are; None: nobody."""
        for place, rule in enumerate(self.rules):
            if rule.matches(namespace, service_account):
                return place
        return len(self.rules) if self.default is not None else None

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """One a rule, in their order; then the default."""
        return (*(rule.tenant for rule in self.rules), *([self.default] if self.default is not None else []))

    @property
    def users(self) -> frozenset[str]:
        """Every Slurm user that the policy can give: only their jobs can be ours (ARCHITECTURE 4)."""
        return frozenset(tenant.user for tenant in self.tenants)

    def users_in(self, namespace: str) -> frozenset[str]:
        """Every Slurm user that pods of that namespace can have, whatever their service account."""
        rules = (rule for rule in self.rules if any(fnmatchcase(namespace, each) for each in rule.namespaces))
        tenants = [rule.tenant for rule in rules] + ([self.default] if self.default else [])
        return frozenset(tenant.user for tenant in tenants)

"""A cache of the policy: the identity in Slurm of the pods of each namespace and service account.

An answer is kept with the labels that it depends on, and is computed again after they change.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.model.refusal import Refusal
from scheduler.policy.rules import Policy, Tenant

MAX_REMEMBERED = 16_384  # a limit, because tenants choose how many service accounts there are


class Identities:
    """The answers of one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._known: dict[tuple[str, str], tuple[Mapping[str, str], Tenant | Refusal]] = {}

    def of(self, namespace: str, labels: Mapping[str, str], service_account: str) -> Tenant | Refusal:
        """The identity of pods of that service account in that namespace, which has these labels; or a Refusal."""
        key = namespace, service_account
        known = self._known.get(key)
        if known is not None and known[0] == labels:
            return known[1]
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        found = self._policy.tenant(namespace, service_account, labels)
        self._known[key] = labels, found
        return found

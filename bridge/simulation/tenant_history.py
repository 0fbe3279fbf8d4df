"""The Slurm users that the policy gave each namespace, now and before: the reference for the invariant V8.

The bridge learns of a changed policy at once, and of a changed label when its watch shows it.  So a job that is submitted now
may follow the present policy with labels of a minute ago, but no older policy and no older labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Labels = Mapping[str, str]

POLICY_S = 1.0  # the bridge sends a request within this time after the pass that decided it
LABELS_S = 60.0  # the longest outage of the API server in a run, with the backoff of a watch after it


@dataclass(frozen=True, slots=True)
class Tenant:
    """The Slurm user of a namespace, and the account of its pods that name none.

    account   None: any account; "": the default account of the user
    """

    user: str
    account: str | None = None


TenantOf = Callable[[str, Labels], Tenant | None]
"""The user that a policy gives a namespace with these labels; None: no user."""


class TenantHistory:
    """The policies and labels of a run, each with the time since which it is in force."""

    def __init__(self, gives: TenantOf, labels: Mapping[str, Labels]) -> None:
        start = float("-inf")
        self._policies = [(start, gives)]
        self._labels = {namespace: [(start, dict(there))] for namespace, there in labels.items()}
        self._ever: dict[str, set[str]] = {}
        self._anybody: set[str] = set()
        self._note()

    @classmethod
    def always(cls, users: Mapping[str, str]) -> TenantHistory:
        """A policy that never changes.  users: namespace to Slurm user"""
        return cls(lambda namespace, _: Tenant(users[namespace]), {namespace: {} for namespace in users})

    def note_policy(self, gives: TenantOf, at: float) -> None:
        """Note that another policy is in force."""
        self._policies.append((at, gives))
        self._note()

    def note_labels(self, namespace: str, labels: Labels, at: float) -> None:
        """Note that the namespace has other labels."""
        self._labels[namespace].append((at, dict(labels)))
        self._note()

    def was_given(self, user: str) -> bool:
        """True if some namespace was given that user at some time."""
        return user in self._anybody

    def ever_gave(self, namespace: str, user: str) -> bool:
        """True if that namespace was given that user at some time, or if the namespace is unknown."""
        return namespace not in self._ever or user in self._ever[namespace]

    def gave_for(self, span_s: float, user: str, since: float, until: float) -> bool:
        """True if at every moment of such a span, between *since* and *until*, some namespace was given that user."""
        changes = {at for at, _ in self._policies} | {at for labels in self._labels.values() for at, _ in labels}
        began: float | None = None
        for at in (since, *sorted(at for at in changes if since < at < until)):
            if self._gave_at(at, user):
                began = at if began is None else began
            elif began is not None:
                if at - began >= span_s:
                    return True
                began = None
        return began is not None and until - began >= span_s

    def _gave_at(self, at: float, user: str) -> bool:
        policy = _latest(self._policies, at)
        identities = (policy(namespace, _latest(history, at)) for namespace, history in self._labels.items())
        return any(identity is not None and identity.user == user for identity in identities)

    def gives(self, namespace: str, user: str, account: str, at: float) -> bool:
        """True if a job that is submitted or changed at that time may have this user and this account ("": none)."""
        found = (
            gives(namespace, labels)
            for gives in _since(self._policies, at - POLICY_S)
            for labels in _since(self._labels.get(namespace, ()), at - LABELS_S)
        )
        return any(
            identity is not None and identity.user == user and identity.account in (account, None) for identity in found
        )

    def gives_now(self, namespace: str, user: str) -> bool:
        """True if the present policy gives that namespace, with its present labels, that user; also if it is unknown."""
        if namespace not in self._labels:
            return True
        identity = self._policies[-1][1](namespace, self._labels[namespace][-1][1])
        return identity is not None and identity.user == user

    def _note(self) -> None:
        for namespace, labels in self._labels.items():
            all_of_them = (gives(namespace, there) for _, gives in self._policies for _, there in labels)
            self._ever[namespace] = {identity.user for identity in all_of_them if identity is not None}
        self._anybody = set().union(*self._ever.values())


def _since(history: Sequence[tuple[float, T]], since: float) -> Iterator[T]:
    """The entries that were in force at some time after *since*, the latest first."""
    for at, entry in reversed(history):
        yield entry
        if at <= since:
            return


def _latest(history: Sequence[tuple[float, T]], at: float) -> T:
    """The entry in force at that moment.  The first entry is in force since ever."""
    return next(entry for since, entry in reversed(history) if since <= at)

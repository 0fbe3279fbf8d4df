"""The identities that a policy gives to namespaces of Kubernetes, or to namespaces that the command line names.

Templates are filled as for pods of that namespace (Policy.tenant).  The filled values are tried in Slurm without effect, as
the doctor tries values without templates.  The checked service accounts are `default` and the accounts that rules name
without wildcards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bridge.cli.doctor.choices import choices_of
from bridge.cli.doctor.findings import Result, count, error, ok, some, warning
from bridge.cli.doctor.slurm_checks import accepted, refused
from bridge.cli.doctor.views import Choice, Observations
from scheduler.model.kubernetes import Namespace
from scheduler.model.refusal import Refusal
from scheduler.policy.rules import ANY, Policy, Rule, Tenant
from scheduler.policy.templates import Origin, is_template

DEFAULT_ACCOUNT = "default"
MOST_NAMED = 5  # namespaces, users or rules that a sentence names


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of one namespace and one service account, and the identity that the policy gives them.

    matching   positions of the rules that match; the first one decides
    """

    namespace: str
    service_account: str
    matching: tuple[int, ...]
    tenant: Tenant | Refusal

    @property
    def called(self) -> str:
        if self.service_account == DEFAULT_ACCOUNT:
            return self.namespace
        return f"{self.namespace} (service account {self.service_account})"


def pods_of(policy: Policy, spaces: Sequence[Namespace]) -> list[Pods]:
    """The pods of each namespace, by service account, with the rules that match them and the identity that they get."""
    return [
        Pods(space.name, account, _matching(policy, space, account), policy.tenant(space.name, account, space.labels))
        for space in sorted(spaces, key=lambda space: space.name)
        for account in _accounts(policy, space)
    ]


def choices_in(found: Sequence[Pods]) -> list[Choice]:
    """The combinations of account, partition and QOS of these pods, which are tried in Slurm."""
    return choices_of(group.tenant for group in found if isinstance(group.tenant, Tenant))


def judged(
    policy: Policy, found: Sequence[Pods], seen: Observations, *, named: bool = False
) -> Iterator[tuple[str, Result]]:
    """The findings about the namespaces, by check.

    named   the command line named these namespaces: a rule that decides for none of them may decide for others
    """
    if not found:
        yield "namespaces", ok("none is managed: kubectl label namespace NAME slurm-bridge/managed=true")
        return
    yield from (("namespaces", result) for result in _refused(policy, found))
    yield from (("overlaps", result) for result in _overlaps(found))
    if not named:
        yield from (("overlaps", result) for result in _without_effect(policy, found))
    yield from (("sources", result) for result in _empty(policy, found))
    yield from (("in Slurm", result) for result in _unknown_to_slurm(found, seen))
    yield "namespaces", _given(found)


def _accounts(policy: Policy, space: Namespace) -> list[str]:
    named = {
        account
        for rule in policy.rules
        if rule.selects(space.name, space.labels)
        for account in rule.service_accounts
        if not any(char in account for char in "*?[")
    }
    return [DEFAULT_ACCOUNT, *sorted(named - {DEFAULT_ACCOUNT})]


def _matching(policy: Policy, space: Namespace, account: str) -> tuple[int, ...]:
    origin = Origin(space.name, account, space.labels)
    return tuple(place for place, rule in enumerate(policy.rules) if rule.matches(origin))


def _refused(policy: Policy, found: Sequence[Pods]) -> Iterator[Result]:
    """Pods that the policy itself refuses: no rule, a missing label, a user that is not allowed."""
    nobody = [group.called for group in found if not group.matching and policy.default is None]
    if nobody:
        yield warning(
            f"Pods of these namespaces have no Slurm user, and are refused: {some(nobody, MOST_NAMED)}.",
            "Add a rule for them under policy.rules, or a policy.default.",
        )
    refused: dict[str, list[str]] = {}
    for group in found:
        if isinstance(group.tenant, Refusal) and group.called not in nobody:
            refused.setdefault(group.tenant.message, []).append(group.called)
    for message, pods in refused.items():
        yield error(f"{message} Refused are pods of {some(pods, MOST_NAMED)}.", "")


def _overlaps(found: Sequence[Pods]) -> Iterator[Result]:
    """Namespaces that several rules match: the first rule decides."""
    several: dict[tuple[int, ...], list[str]] = {}
    for group in found:
        if len(group.matching) > 1:
            several.setdefault(group.matching, []).append(group.called)
    for places, names in several.items():
        rules = " and ".join(str(place + 1) for place in places)
        yield ok(f"rules {rules} match pods of {some(names, MOST_NAMED)}: rule {places[0] + 1} decides")


def _without_effect(policy: Policy, found: Sequence[Pods]) -> Iterator[Result]:
    """Rules that decide for no namespace, which is probably a mistake."""
    decide = {group.matching[0] for group in found if group.matching}
    match = {place for group in found for place in group.matching}
    for place in sorted(match - decide):
        others = sorted({group.matching[0] + 1 for group in found if place in group.matching})
        before = f"rule {others[0]} decides" if len(others) == 1 else f"rules {', '.join(map(str, others))} decide"
        yield warning(
            f"Rule {place + 1} ({policy.rules[place].about}) decides for no pod now: it matches, and {before} before it.",
            f"Put rule {place + 1} first, or remove it.",
        )
    if idle := [rule for place, rule in enumerate(policy.rules) if place not in match]:
        yield ok(f"rules that no namespace matches now: {some(map(_about, idle), MOST_NAMED)}")


def _about(rule: Rule) -> str:
    return rule.about


def _empty(policy: Policy, found: Sequence[Pods]) -> Iterator[Result]:
    """Templates under `allowed` that cannot be filled for a namespace: they allow nothing there, without any message."""
    lost: dict[str, list[str]] = {}
    for group in found:
        if isinstance(group.tenant, Refusal):
            continue
        written = policy.tenants[group.matching[0] if group.matching else len(policy.rules)]
        for option, choice in written.choices.items():
            filled = group.tenant.choices[option].allowed
            if len(filled) < len(choice.allowed) and any(map(is_template, choice.allowed)):
                lost.setdefault(f"{group.tenant.rule}: templates under {option}.allowed", []).append(group.called)
    for where, names in lost.items():
        yield warning(
            f"{where} cannot be filled in {some(names, MOST_NAMED)}, and allow nothing there.",
            "Give these namespaces the label that the template names, or remove the template.",
        )


def _unknown_to_slurm(found: Sequence[Pods], seen: Observations) -> Iterator[Result]:
    """Users, accounts, partitions and QOS from templates that Slurm does not accept; each once."""
    if seen.jobs.missing is not None:  # the checks of Slurm report that
        return
    wrong: dict[Choice, list[Pods]] = {}
    for group in found:
        if isinstance(group.tenant, Refusal):
            continue
        for choice in choices_of([group.tenant]):
            if choice in seen.filled and not accepted(seen.filled[choice]):
                wrong.setdefault(choice, []).append(group)
    users = {user for user, option, _ in wrong if not option}
    for choice, pods in sorted(wrong.items()):
        user, option, _ = choice
        if option and user in users:
            continue  # reported for the user already
        result = refused(choice, seen.filled[choice].get(), seen)
        first = pods[0].tenant
        given = first.filled if isinstance(first, Tenant) else ""
        concerned = some(dict.fromkeys(same.called for same in pods), MOST_NAMED)
        sentence = " ".join(filter(None, [result.sentence, given, f"Concerned: {concerned}."]))
        yield Result(result.level, sentence, result.do)
    yield from _reservations(found, seen)
    if not wrong and seen.filled:
        yield ok(
            f"Slurm accepts all {count(len(seen.filled), 'user and choice', 'users and choices')} of templates there"
        )


def _reservations(found: Sequence[Pods], seen: Observations) -> Iterator[Result]:
    there = seen.reservations.value
    if there is None:
        return
    concerned: dict[tuple[str, str], list[str]] = {}
    for group in found:
        if isinstance(group.tenant, Refusal) or not group.tenant.filled:
            continue
        named = {group.tenant.reservations.default, *group.tenant.reservations.allowed} - {"", ANY}
        if missing := named - there:
            concerned.setdefault((some(missing), group.tenant.filled), []).append(group.called)
    for (missing_now, filled), pods in concerned.items():
        yield warning(
            f"Slurm has no reservation {missing_now} now. {filled} Concerned: {some(pods, MOST_NAMED)}.",
            "scontrol show reservation; reservations end by themselves.",
        )


def _given(found: Sequence[Pods]) -> Result:
    by_user: dict[str, list[str]] = {}
    for group in found:
        if isinstance(group.tenant, Tenant):
            by_user.setdefault(group.tenant.user, []).append(group.called)
    users = [f"{user} ({some(dict.fromkeys(names), 2)})" for user, names in sorted(by_user.items())]
    spaces = count(len({group.namespace for group in found}), "namespace")
    return ok(f"{spaces} checked; Slurm users: {some(users, MOST_NAMED)}" if users else f"{spaces} checked")

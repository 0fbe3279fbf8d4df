"""`slurm-bridge policy check`: mistakes in a policy, and rules that probably do not mean what the admin wants.

A file with a mistake is refused as by `run`.  The other findings are:

* rules that can never be reached, as far as that follows from the rules alone
* Slurm users that people other than the admin can choose
* names that Slurm does not know, if the settings name a Slurm that answers
* the identity that the policy gives to each namespace, if there are any (bridge/cli/policy_namespaces.py)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from bridge import settings
from bridge.cli import policy_namespaces
from bridge.cli.doctor import slurm_checks
from bridge.cli.doctor.findings import (
    Finding,
    Level,
    Result,
    count,
    exit_code,
    findings,
    not_checked,
    ok,
    some,
    warning,
)
from bridge.cli.doctor.look import look_at_namespaces, look_at_slurm
from bridge.cli.doctor.report import as_json, as_text
from bridge.cli.doctor.views import Observations, managed_namespaces
from bridge.cli.policy_show import labels_given, namespace_given
from bridge.cli.terminal import columns, say
from bridge.policy_file import privileged_user
from bridge.settings import Settings
from scheduler import names
from scheduler.model.kubernetes import Namespace
from scheduler.model.refusal import Refusal
from scheduler.policy import templates
from scheduler.policy.rules import ANY, Policy, Rule, Tenant

IN_SLURM = ("users", "choices", "reservations")


def main(options: Mapping[str, str | None], namespaces: Sequence[str] = ()) -> int:
    """Exit code 0 (nothing to do), 1 (warnings), 2 (errors).  Raises ConfigError for a file with a mistake.

    options      by field of Settings; `config`: the file; `output`: "text", "wide" or "json"
    namespaces   "NAME" or "NAME,KEY=VALUE,…" with labels; these are checked instead of the managed namespaces
    """
    chosen = settings.load(options, os.environ)
    given = [_space(namespace) for namespace in namespaces]
    found = [Finding("Policy", name, result.level, result.sentence, result.do) for name, result in _judged(chosen)]
    found += asyncio.run(in_clusters(options, chosen, given))
    output = options.get("output")
    say(as_json(found) if output == "json" else as_text(found, columns(output)))
    return exit_code(found)


def _space(given: str) -> Namespace:
    """A namespace of the command line.  Raises ConfigError."""
    name, _, labels = given.partition(",")
    return Namespace(namespace_given(name), "", labels_given(labels, "--namespace"))


async def in_clusters(
    options: Mapping[str, str | None], chosen: Settings, given: Sequence[Namespace] = ()
) -> list[Finding]:
    """The findings about names in Slurm, and about these namespaces; without any: about all managed namespaces."""
    spaces, missing = (given, "") if given else await _managed(options)
    filled = policy_namespaces.choices_in(policy_namespaces.pods_of(chosen.core_policy(""), spaces))
    seen = await look_at_slurm(options, os.environ, filled)
    about_slurm = in_slurm(chosen, seen)
    if missing:
        return [*about_slurm, not_checked(str(missing)).at("Namespaces", "namespaces")]
    policy = chosen.core_policy(_slurm_user(seen))
    pods = policy_namespaces.pods_of(policy, spaces)
    of_spaces = policy_namespaces.judged(policy, pods, seen, named=bool(given))
    return about_slurm + [
        Finding("Namespaces", name, result.level, result.sentence, result.do) for name, result in of_spaces
    ]


async def _managed(options: Mapping[str, str | None]) -> tuple[list[Namespace], str]:
    """(the managed namespaces of Kubernetes, why they are not known); "": they are known."""
    seen = await look_at_namespaces(options, os.environ)
    if (missing := seen.namespaces.missing) is not None:
        return [], missing.because or missing.why
    managed = managed_namespaces(seen)
    return [namespace for namespace in seen.namespaces.get() if namespace.name in managed], ""


def in_slurm(chosen: Settings, seen: Observations) -> list[Finding]:
    """The findings about users, accounts, partitions, QOS and reservations that the policy names without templates."""
    if not chosen.slurm_url:
        return _not_checked("the settings name no Slurm")
    if (missing := seen.jobs.missing) is not None:
        return _not_checked(missing.because or missing.why)
    mapped = privileged_user(chosen, _slurm_user(seen))
    found = [Finding("Slurm", "users", Level.ERROR, mapped)] if mapped else []
    checks = [check for check in slurm_checks.CHECKS if check.name in IN_SLURM]
    return [*found, *findings([("Slurm", checks)], seen)]


def _slurm_user(seen: Observations) -> str:
    """SlurmUser; if Slurm does not show it, the user of the token; "": not known."""
    if seen.configuration.value is not None:
        return seen.configuration.value.slurm_user
    return seen.token.value.user if seen.token.value is not None else ""


def _not_checked(why: str) -> list[Finding]:
    return [not_checked(why).at("Slurm", check) for check in IN_SLURM]


def _judged(chosen: Settings) -> Iterator[tuple[str, Result]]:
    policy = chosen.core_policy("")
    default = " and a default" if policy.default else ""
    yield "file", ok(f"{count(len(policy.rules), 'rule')}{default}")
    if not policy.tenants:
        yield "file", warning("It maps no namespace to a Slurm user: every pod is refused.", "Write policy.rules.")
    unreached = list(_unreached(policy))
    yield from (("overlaps", result) for result in unreached)
    if policy.rules and not unreached:
        yield "overlaps", ok("no rule follows another rule that matches all of its pods, as far as the patterns show")
    yield from (("sources", result) for result in _chosen_by_others(policy))
    yield from (("priorities", result) for result in _priorities(policy))


# --- rules that are never reached -----------------------------------------------------------------------------------


def _unreached(policy: Policy) -> Iterator[Result]:
    for place, rule in enumerate(policy.rules):
        before = next((other for other in range(place) if takes_all_of(policy.rules[other], rule)), None)
        if before is not None:
            yield warning(
                f"Rule {place + 1} ({rule.about}) is never reached: rule {before + 1} ({policy.rules[before].about}) matches "
                "all of its pods, and the first rule that matches decides.",
                f"Put rule {place + 1} before rule {before + 1}, or remove it.",
            )
    if policy.default is not None:
        all_of_them = next((n for n, rule in enumerate(policy.rules) if _takes_everything(rule)), None)
        if all_of_them is not None:
            message = f"The default is never reached: rule {all_of_them + 1} matches every pod."
            yield warning(message, "Remove the rule or the default.")


def takes_all_of(one: Rule, other: Rule) -> bool:
    """True if `one` matches every pod that `other` matches; False also if that cannot be decided."""
    return (
        set(one.selector) <= set(other.selector)
        and _all_covered(one.namespaces, other.namespaces)
        and _all_covered(one.service_accounts, other.service_accounts)
    )


def _takes_everything(rule: Rule) -> bool:
    return ANY in rule.namespaces and not rule.selector and (not rule.service_accounts or ANY in rule.service_accounts)


def _all_covered(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    """True if the patterns `wide` match every name that the patterns `narrow` match; (): any name."""
    if not wide or ANY in wide:
        return True
    return bool(narrow) and all(any(_covers(other, pattern) for other in wide) for pattern in narrow)


def _covers(wide: str, narrow: str) -> bool:
    """True if the pattern `wide` matches every name that `narrow` matches; False also if that is hard to decide."""
    fixed = wide[:-1]
    if wide.endswith(ANY) and not _is_pattern(fixed):
        return narrow.startswith(fixed) and not _is_pattern(narrow[: len(fixed)])
    return wide == narrow or (not _is_pattern(narrow) and fnmatchcase(narrow, wide))


def _is_pattern(text: str) -> bool:
    return any(char in text for char in "*?[")


# --- users that other people choose ---------------------------------------------------------------------------------------


def _chosen_by_others(policy: Policy) -> Iterator[Result]:
    for place, tenant in enumerate(policy.tenants):
        named = templates.sources(tenant.user)
        called = policy.called(place)
        if f"{{{templates.SERVICE_ACCOUNT}}}" in named and not _accounts_are_named(policy, place):
            yield warning(
                f"{called} fills user from {{{templates.SERVICE_ACCOUNT}}}: any user who may create service accounts "
                "in such a namespace chooses a Slurm user.",
                "Name the service accounts of the rule without wildcards, or use a label of the namespace.",
            )
        elif named:
            right = "create namespaces" if named == [f"{{{templates.NAMESPACE}}}"] else "label namespaces"
            yield ok(f"{called} fills user from {tenant.user}: any user who may {right} chooses a Slurm user")


def _accounts_are_named(policy: Policy, place: int) -> bool:
    accounts = policy.rules[place].service_accounts if place < len(policy.rules) else ()
    return bool(accounts) and not any(map(_is_pattern, accounts))


def _priorities(policy: Policy) -> Iterator[Result]:
    for name, priority in sorted(policy.priorities.items()):
        refusing = [place for place, tenant in enumerate(policy.tenants) if not _allows(tenant, priority.qos)]
        if priority.qos and refusing and len(refusing) == len(policy.tenants):
            yield warning(
                f"PriorityClass {name} selects QOS {priority.qos}, which no rule allows: its pods are refused.",
                "Allow it under qos of a rule, or remove it from priority_classes.",
            )
        elif priority.qos and refusing:
            rules = some((policy.called(place) for place in refusing), 2)
            yield ok(f"PriorityClass {name} selects QOS {priority.qos}; its pods are refused under: {rules}")


def _allows(tenant: Tenant, qos: str) -> bool:
    return not isinstance(tenant.qos.pick(names.QOS, qos, ""), Refusal)

"""`slurm-bridge policy check`: what is wrong with a policy, or is probably not meant.

A file with a mistake is refused as `run` would refuse it.  The rest are rules that can never be reached, as far as that
follows from the rules alone; users that others than the admin choose; and, if the settings name a Slurm that answers, names
that Slurm does not know.  What a template gives follows from namespaces: `slurm-bridge policy show` tells it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from bridge import settings
from bridge.doctor import slurm
from bridge.doctor.command import PAGE_WIDTH
from bridge.doctor.findings import NOT_CHECKED, Finding, Level, Said, count, exit_code, findings, ok, some, warning
from bridge.doctor.look import look_at_slurm
from bridge.doctor.report import as_text
from bridge.policy_file import privileged_user
from bridge.settings import Settings
from scheduler import templates
from scheduler.policy import ANY, Policy, Rule, Tenant

IN_SLURM = ("users", "choices", "reservations")


def main(options: Mapping[str, str | None]) -> int:
    """Exit code 0 (nothing to do), 1 (warnings), 2 (errors).  Raises ConfigError for a file with a mistake.

    options   by field of Settings; `config`: the file
    """
    chosen = settings.load(options, os.environ)
    found = [Finding("Policy", name, each.level, each.sentence, each.do) for name, each in _judged(chosen)]
    found += asyncio.run(in_slurm(options, chosen))
    width = min(PAGE_WIDTH, shutil.get_terminal_size((100, 24)).columns)
    print(as_text(found, width), file=sys.stdout)  # noqa: T201 - what was asked for
    return exit_code(found)


async def in_slurm(options: Mapping[str, str | None], chosen: Settings) -> list[Finding]:
    """What Slurm says of the users, accounts, partitions, QOS and reservations that are written out."""
    if not chosen.slurm_url:
        return [_not_checked("the settings name no Slurm")]
    seen = await look_at_slurm(options, os.environ)
    if (missing := seen.jobs.missing) is not None:
        return [_not_checked(missing.because or missing.why)]
    conf = seen.configuration.value
    mapped = privileged_user(chosen, conf.slurm_user if conf is not None else seen.token.get().user)
    found = [Finding("Slurm", "users", Level.ERROR, mapped)] if mapped else []
    checks = [check for check in slurm.CHECKS if check.name in IN_SLURM]
    return [*found, *findings([("Slurm", checks)], seen)]


def _not_checked(why: str) -> Finding:
    return Finding("Slurm", "names", Level.UNKNOWN, f"{NOT_CHECKED}{why}")


def _judged(chosen: Settings) -> Iterator[tuple[str, Said]]:
    policy = chosen.core_policy("")
    default = " and a default" if policy.default else ""
    yield "file", ok(f"{count(len(policy.rules), 'rule')}{default}")
    if not policy.tenants:
        yield "file", warning("It maps no namespace to a Slurm user: every pod is refused.", "Write policy.rules.")
    unreached = list(_unreached(policy))
    yield from (("overlaps", each) for each in unreached)
    if policy.rules and not unreached:
        yield "overlaps", ok("no rule stands behind another that takes all of its pods, as far as the patterns tell")
    yield from (("sources", each) for each in _chosen_by_others(policy))
    yield from (("priorities", each) for each in _priorities(policy))


# --- rules that are never reached -----------------------------------------------------------------------------------


def _unreached(policy: Policy) -> Iterator[Said]:
    for place, rule in enumerate(policy.rules):
        before = next((other for other in range(place) if takes_all_of(policy.rules[other], rule)), None)
        if before is not None:
            yield warning(
                f"Rule {place + 1} ({rule.about}) is never reached: rule {before + 1} ({policy.rules[before].about}) takes "
                "all of its pods, and the first rule that matches decides.",
                f"Put rule {place + 1} before rule {before + 1}, or take it away.",
            )
    if policy.default is not None:
        all_of_them = next((n for n, rule in enumerate(policy.rules) if _takes_everything(rule)), None)
        if all_of_them is not None:
            said = f"The default is never reached: rule {all_of_them + 1} takes every pod."
            yield warning(said, "Take one of them away.")


def takes_all_of(one: Rule, other: Rule) -> bool:
    """True if every pod that the other rule is about is one of the first's; False also where that cannot be told."""
    return (
        set(one.selector) <= set(other.selector)
        and _all_covered(one.namespaces, other.namespaces)
        and _all_covered(one.service_accounts, other.service_accounts)
    )


def _takes_everything(rule: Rule) -> bool:
    return ANY in rule.namespaces and not rule.selector and (not rule.service_accounts or ANY in rule.service_accounts)


def _all_covered(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    """Patterns; (): any name."""
    if not wide or ANY in wide:
        return True
    return bool(narrow) and all(any(_covers(each, pattern) for each in wide) for pattern in narrow)


def _covers(wide: str, narrow: str) -> bool:
    """True if every name that the narrow pattern matches is matched by the wide one, as far as that is easily told."""
    fixed = wide[:-1]
    if wide.endswith(ANY) and not _is_pattern(fixed):
        return narrow.startswith(fixed) and not _is_pattern(narrow[: len(fixed)])
    return wide == narrow or (not _is_pattern(narrow) and fnmatchcase(narrow, wide))


def _is_pattern(text: str) -> bool:
    return any(char in text for char in "*?[")


# --- users that others choose ---------------------------------------------------------------------------------------


def _chosen_by_others(policy: Policy) -> Iterator[Said]:
    for place, tenant in enumerate(policy.tenants):
        named = templates.sources(tenant.user)
        called = policy.called(place)
        if f"{{{templates.SERVICE_ACCOUNT}}}" in named and not _accounts_are_named(policy, place):
            yield warning(
                f"{called} fills user from {{{templates.SERVICE_ACCOUNT}}}: whoever may create service accounts in such a "
                "namespace chooses a Slurm user.",
                "Name the service accounts of the rule without wildcards, or use a label of the namespace.",
            )
        elif named:
            who = "create namespaces" if named == [f"{{{templates.NAMESPACE}}}"] else "label namespaces"
            yield ok(f"{called} fills user from {tenant.user}: whoever may {who} chooses a Slurm user")


def _accounts_are_named(policy: Policy, place: int) -> bool:
    accounts = policy.rules[place].service_accounts if place < len(policy.rules) else ()
    return bool(accounts) and not any(map(_is_pattern, accounts))


def _priorities(policy: Policy) -> Iterator[Said]:
    for name, priority in sorted(policy.priorities.items()):
        refusing = [place for place, tenant in enumerate(policy.tenants) if not _allows(tenant, priority.qos)]
        if priority.qos and refusing and len(refusing) == len(policy.tenants):
            yield warning(
                f"PriorityClass {name} means QOS {priority.qos}, which no rule allows: its pods are refused.",
                "Allow it under qos of a rule, or take it away from priority_classes.",
            )
        elif priority.qos and refusing:
            rules = some((policy.called(place) for place in refusing), 2)
            yield ok(f"PriorityClass {name} means QOS {priority.qos}; its pods are refused under: {rules}")


def _allows(tenant: Tenant, qos: str) -> bool:
    return qos in (tenant.qos.default, *tenant.qos.allowed) or ANY in tenant.qos.allowed

"""`slurm-bridge policy show`: the Slurm user of the pods of one namespace, and what they may request.

The namespace is read from Kubernetes: a rule with a wildcard matches names of namespaces that do not exist, too.  If its
labels are given by hand, Kubernetes is not asked, so that a policy can be tried before the namespace exists.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from bridge import settings
from bridge.cli.terminal import printable, say
from bridge.connections import Connections
from bridge.errors import ConfigError, RemoteError, said
from bridge.settings import Settings
from scheduler.model.refusal import Refusal
from scheduler.model.text import decimal
from scheduler.policy import templates
from scheduler.policy.rules import ANY, Choice, Policy, Tenant

_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
CREATE_OR_TRY = "Correct the name, or try labels that it would have: --labels KEY=VALUE,… (--labels '' for none)."


def main(options: Mapping[str, str | None]) -> int:
    """Returns the exit code: 0; 1 if pods there are refused.  Raises ConfigError, also if policy or namespace are missing.

    options   by field of Settings; `namespace`, `service_account`; `labels`: KEY=VALUE,… instead of those in Kubernetes;
              `output`: "text", "wide" (the same) or "json"
    """
    chosen = settings.load(options, os.environ)
    if "policy" not in chosen.model_fields_set:
        raise ConfigError(
            "no policy was given.", "Name the bridge's settings file: --config FILE (SLURM_BRIDGE_CONFIG)."
        )
    namespace, account = namespace_given(options.get("namespace") or ""), options.get("service_account") or "default"
    policy = chosen.core_policy("")
    labels, unread = _labels(chosen, options, namespace, policy)
    found = policy.tenant(namespace, account, labels)
    if options.get("output") == "json":
        say(json.dumps(_entry(namespace, account, found, unread), indent=2))
        return 1 if isinstance(found, Refusal) else 0
    lines = [f"Pods of namespace {namespace}, service account {account}:"]
    lines += (
        [f"  {found.message}"] if isinstance(found, Refusal) else [f"  {line}" for line in described(found, policy)]
    )
    lines += [f"Whether Kubernetes has this namespace was not checked: {unread}"] if unread else []
    say("\n".join(map(printable, lines)))
    return 1 if isinstance(found, Refusal) else 0


def _entry(namespace: str, account: str, found: Tenant | Refusal, unread: str) -> dict[str, Any]:
    """The answer for programs: `tenant` or `refusal`; the other one is null."""
    return {
        "namespace": namespace,
        "service_account": account,
        "tenant": msgspec.to_builtins(found) if isinstance(found, Tenant) else None,
        "refusal": found.message if isinstance(found, Refusal) else None,
        "not_checked": unread or None,
    }


def _labels(
    chosen: Settings, options: Mapping[str, str | None], namespace: str, policy: Policy
) -> tuple[dict[str, str], str]:
    """The labels of the namespace, given by hand or read; and why Kubernetes could not be asked, if no rule needs labels."""
    if (given := options.get("labels")) is not None:
        return labels_given(given, "--labels"), ""
    try:
        return asyncio.run(labels_of(chosen, namespace)), ""
    except NoNamespaceError:
        raise
    except ConfigError as error:
        if asks_for_labels(policy):
            raise
        return {}, error.what


def asks_for_labels(policy: Policy) -> bool:
    """True if the result of the policy depends on labels of namespaces."""
    selected = any(rule.selector for rule in policy.rules)
    return selected or any("namespace.labels" in text for tenant in policy.tenants for text in templates_of(tenant))


def templates_of(tenant: Tenant) -> list[str]:
    """The texts of a rule that are templates."""
    return [text for text in tenant.texts if templates.is_template(text)]


def described(tenant: Tenant, policy: Policy) -> Iterator[str]:
    """The values that the policy gives, one line each."""
    rows = {"by": tenant.rule.removesuffix("."), "Slurm user": tenant.user}
    rows |= {option: _choice(choice) for option, choice in tenant.choices.items()}
    rows["time limit"] = _most(tenant.max_time_min, "minutes; that is also asked for pods that name none")
    rows["nodes of a job"] = _most(tenant.max_nodes, "")
    rows["GRES of a job"] = ", ".join(f"at most {most:,} {name}" for name, most in tenant.max_gres) or "no limit"
    rows["jobs"] = _most(tenant.max_jobs, f"at a time, {_shared(tenant)}")
    rows["submissions"] = _most(tenant.max_submit_rate, f"a second, {_shared(tenant)}")
    for name, priority in sorted(policy.priorities.items()):
        asked = [f"QOS {priority.qos}"] if priority.qos else []
        asked += [f"nice {priority.nice}"] if priority.nice is not None else []
        allowed = not priority.qos or not isinstance(tenant.qos.pick("qos", priority.qos, ""), Refusal)
        rows[f"PriorityClass {name}"] = ", ".join(asked) + (
            "" if allowed else " (not allowed here: such pods are refused)"
        )
    width = max(map(len, rows))
    yield from (f"{label:<{width}}  {value}" for label, value in rows.items())


def _choice(choice: Choice) -> str:
    usual = choice.default or "Slurm's own default"
    others = [value for value in choice.allowed if value != choice.default]
    if ANY in others:
        return f"{usual}; pods may name any"
    return f"{usual}; pods may name {', '.join(others)}" if others else usual


def _most(most: float | None, unit: str) -> str:
    return "no limit" if most is None else f"at most {decimal(most, 6)} {unit}".rstrip()


def _shared(tenant: Tenant) -> str:
    whose = "of this user" if " for " in tenant.counts_with else "of all pods"
    return f"{whose} under this rule"


def namespace_given(given: str) -> str:
    """The name of a namespace as written after --namespace.  Raises ConfigError if no namespace can have this name."""
    if not _NAMESPACE.fullmatch(given):
        raise ConfigError(f'--namespace: "{given}" is not the name of a namespace.', "Write it as Kubernetes shows it.")
    return given


def labels_given(given: str, option: str) -> dict[str, str]:
    """ "KEY=VALUE,…" as written after that option.  Raises ConfigError."""
    labels = {}
    for pair in filter(None, given.split(",")):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise ConfigError(f'{option}: "{pair}" is not KEY=VALUE.')
        labels[key] = value
    return labels


class NoNamespaceError(ConfigError):
    """Kubernetes has no such namespace."""


async def labels_of(chosen: Settings, namespace: str) -> dict[str, str]:
    """The labels of a namespace in Kubernetes.  Raises NoNamespaceError; ConfigError if Kubernetes cannot be asked."""
    advice = "Name a kubeconfig with --kubeconfig FILE, or give the labels: --labels KEY=VALUE,…"
    async with AsyncExitStack() as stack:
        kube = await Connections(chosen, stack).kube()
        try:
            found = await kube.namespace(namespace)
        except RemoteError as error:
            raise ConfigError(f"the labels of namespace {namespace} cannot be read: {said(error)}", advice) from None
    if found is None:
        raise NoNamespaceError(f"Kubernetes has no namespace {namespace}.", CREATE_OR_TRY)
    return dict(found.labels)

"""Templates in the policy: texts that are filled for each namespace, so that one rule serves 200 tenants (I1).

A template names its sources in braces: `{namespace}`, `{namespace.labels['KEY']}`, `{serviceAccount}`.  Labels and
annotations of a pod are no sources, because the creator of a pod chooses them.

A filled text is never parsed.  `can_give` tells if a template can give a user: that is asked about a job whose pods are gone.
Its time is proportional to the length of the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.model.amounts import NO_TEXT

ROOT = "root"
LONGEST = 512  # characters of a template, and of a name that is compared with one
NAMESPACE, SERVICE_ACCOUNT = "namespace", "serviceAccount"
SOURCES = "{namespace}, {namespace.labels['KEY']}, {serviceAccount}"

_SOURCE = re.compile(r"\{([^{}]*)\}")
_LABEL = re.compile(r"namespace\.labels\[(?:'([^'\[\]]+)'|\"([^\"\[\]]+)\")\]")


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of pods, from which templates are filled.  labels: of the namespace"""

    namespace: str
    service_account: str = ""
    labels: Mapping[str, str] = NO_TEXT


class Missing(ValueError):
    """A source has no value.  The text is the rest of a sentence about the template, with what to do."""


def is_template(text: str) -> bool:
    """True if the text has a brace: it names a source, perhaps wrongly."""
    return "{" in text or "}" in text


def mistake(text: str) -> str:
    """Why the text cannot be filled, as the rest of a sentence about the text; "": it can be filled."""
    if len(text) > LONGEST:
        return f"is longer than {LONGEST} characters"
    for source in _SOURCE.findall(text):
        if source not in (NAMESPACE, SERVICE_ACCOUNT) and _LABEL.fullmatch(source) is None:
            return f"names {{{source}}}, which is not a source; the sources are {SOURCES}"
    if is_template(_SOURCE.sub("", text)):
        return f"has a brace without its partner; a source is one of {SOURCES}"
    return ""


def sources(text: str) -> list[str]:
    """The sources that a template names, with their braces, in order."""
    return [f"{{{source}}}" for source in _SOURCE.findall(text)]


def fill(text: str, origin: Origin) -> str:
    """The text with the values of its sources.  Raises Missing if a source has none."""
    return _SOURCE.sub(lambda found: _value(found[1], origin), text)


def _value(source: str, origin: Origin) -> str:
    if source == NAMESPACE:
        return origin.namespace
    if source == SERVICE_ACCOUNT:
        if not origin.service_account:
            raise Missing("the pod names no service account")
        return origin.service_account
    label = _LABEL.fullmatch(source)
    assert label is not None, "checked when the settings were read"
    key = label[1] or label[2]
    if not origin.labels.get(key):
        raise Missing(
            f"namespace {origin.namespace} has no label {key}. "
            f"An admin sets it: kubectl label namespace {origin.namespace} {key}=VALUE"
        )
    return origin.labels[key]


def narrowed(text: str, origin: Origin) -> str:
    """The text with the values of all sources except the service account.  Raises Missing."""

    def value(found: re.Match[str]) -> str:
        if found[1] == SERVICE_ACCOUNT:
            return found[0]
        filled = _value(found[1], origin)
        if is_template(filled):
            raise Missing("a label holds a brace")
        return filled

    return _SOURCE.sub(value, text)


def can_give(text: str, value: str) -> bool:
    """True if some namespace, label or service account fills the text with this value.

    Only the text between the sources is compared, so the answer may be True for a value that no namespace gives now.
    """
    if not is_template(text):
        return text == value
    first, *others = _SOURCE.split(text)[::2]
    if len(value) > LONGEST or not value.startswith(first):
        return False
    *middle, last = others
    at = len(first)
    for fixed in middle:
        at = value.find(fixed, at + 1)  # a source is never empty
        if at < 0:
            return False
        at += len(fixed)
    return len(value) - len(last) > at and value.endswith(last)


def no_ordinary_user(user: str) -> str:
    """Why the text is no name of an ordinary Slurm user, as the rest of a sentence; "": it may be one.

    Slurm reads a number as a user id, and 0 as root.
    """
    if re.fullmatch(r"[+-]?[0-9]+", user):
        return "must be an ordinary Slurm user's name, not a number"
    if user.casefold() == ROOT or not is_name(user):
        return "must be an ordinary Slurm user's name"
    return ""


def is_name(text: str) -> bool:
    """True if a filled text can be a name in Slurm: not empty, printable, without blank, comma or asterisk."""
    return bool(text) and text.isprintable() and not any(char.isspace() or char in ",*" for char in text)

"""Checks that an account has exactly the rights that its work needs: RBAC rules compared with the API server's audit log.

The audit log names for each request the role that allowed it, or says that no role did.  A right that no request used may be
left out of its role.  A request that was forbidden needs a right that is missing, unless an admission policy forbade it.

What a rule with several API groups and several resources gives is every pair of them, also pairs that do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

ROLES = ("ClusterRole", "Role")
FORBIDDEN = 403
_ALLOWED_BY = re.compile(r'^RBAC: allowed by \w+ "[^"]*" of (\w+) "([^"]*)" to ')


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, as one role gives it.

    role      "ClusterRole slurm-bridge"
    resource  "pods", "pods/binding"
    group     API group; "": the core's
    name      the only object that it is for; "": all
    """

    role: str
    verb: str
    resource: str
    group: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.role}: {self.verb} {_spelled(self.resource, self.group, self.name)}"


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """A request that the API server answered.

    role   the role that allowed it, as in Right; "": none did
    code   HTTP status of the answer
    """

    verb: str
    resource: str
    group: str
    namespace: str
    name: str
    role: str
    code: int

    def uses(self, right: Right) -> bool:
        """True if this right allowed it."""
        return (self.role, self.verb, self.resource, self.group) == (
            right.role,
            right.verb,
            right.resource,
            right.group,
        ) and right.name in ("", self.name)


@dataclass(frozen=True, slots=True)
class Verdict:
    """True if every right was used and no request was forbidden.

    unused    "ClusterRole slurm-bridge: patch nodes"
    refused   "create pods/eviction in namespace hpc: no role allows it"
    """

    unused: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.unused and not self.refused


def rights_of(objects: Iterable[Mapping[str, Any]]) -> set[Right]:
    """The rights that the roles among these objects give."""
    found = set()
    for each in objects:
        if each["kind"] not in ROLES:
            continue
        role = f"{each['kind']} {each['metadata']['name']}"
        for rule in each["rules"]:
            found |= {
                Right(role, verb, resource, group, name)
                for verb in rule["verbs"]
                for resource in rule["resources"]
                for group in rule["apiGroups"]
                for name in rule.get("resourceNames", [""])
            }
    return found


def requests_of(user: str, entries: Iterable[bytes]) -> set[Request]:
    """The different requests of that user for objects, from the lines of an audit log."""
    name = user.encode()
    return set(_requests(user, (line for line in entries if name in line)))


def judged(rights: Iterable[Right], requests: Iterable[Request]) -> Verdict:
    """Which rights were not used, and which requests were forbidden, each in a sentence."""
    asked = sorted(requests)
    unused = [right for right in sorted(rights) if not any(each.uses(right) for each in asked)]
    return Verdict(tuple(map(str, unused)), tuple(_refused(asked)))


def _refused(asked: Iterable[Request]) -> Iterator[str]:
    sentences: dict[str, None] = {}
    for each in asked:
        if each.code == FORBIDDEN:
            why = "forbidden by admission" if each.role else "no role allows it"
            where = f" in namespace {each.namespace}" if each.namespace else ""
            sentences[f"{each.verb} {_spelled(each.resource, each.group)}{where}: {why}"] = None
    yield from sentences


def _spelled(resource: str, group: str, name: str = "") -> str:
    """As kubectl names them: "leases.coordination.k8s.io/slurm-bridge"."""
    kind, slash, sub = resource.partition("/")
    return f"{kind}{'.' if group else ''}{group}{slash}{sub}{'/' if name else ''}{name}"


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct, rename="camel"):
    resource: str = ""
    subresource: str = ""
    api_group: str = ""
    namespace: str = ""
    name: str = ""


class _Answer(msgspec.Struct):
    code: int = 0


class _Entry(msgspec.Struct, rename="camel"):
    verb: str
    user: _User
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    object_ref: _Object | None = None
    response_status: _Answer = msgspec.field(default_factory=_Answer)


_ENTRY = msgspec.json.Decoder(_Entry)


def _requests(user: str, entries: Iterable[bytes]) -> Iterator[Request]:
    for line in entries:
        entry = _ENTRY.decode(line)
        about = entry.object_ref
        if entry.user.username != user or about is None:
            continue
        resource = f"{about.resource}/{about.subresource}" if about.subresource else about.resource
        by = _ALLOWED_BY.match(entry.annotations.get("authorization.k8s.io/reason", ""))
        role = f"{by[1]} {by[2]}" if by is not None else ""
        yield Request(
            entry.verb, resource, about.api_group, about.namespace, about.name, role, entry.response_status.code
        )

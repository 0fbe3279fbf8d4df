"""Reads that only diagnostic commands need: the own user name, the time of the API server, and the events of a pod.

The API server does not show when a client certificate ends (openssl x509 -enddate does), nor, before Kubernetes 1.28, the own
user name.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from bridge.errors import ContractError
from bridge.kube import codec
from bridge.kube.client import DEADLINE_S
from bridge.kube.decoding import decoded
from bridge.kube.objects import epoch
from bridge.kube.responses import http_date, judged
from bridge.kube.transport import Call, Transport
from bridge.kube.wire import Time, Wire

MOST_EVENTS = 200  # of one pod; the API server forgets them after an hour


@dataclass(frozen=True, slots=True)
class Greeting:
    """version: as in "v1.36.3"; clock: the server's clock, whole epoch seconds, None: not shown"""

    version: str
    clock: float | None


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event of a pod.  at: the last time, epoch seconds; began: the first time; count: how many times"""

    at: float
    reason: str
    message: str
    source: str
    count: int = 1
    warning: bool = False
    began: float = 0.0


class _UserInfo(Wire):
    username: str = ""


class _ReviewStatus(Wire):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _SelfReview(Wire):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class _Source(Wire):
    component: str = ""


class _Series(Wire):
    count: int = 1
    last_observed_time: Time | None = None


class _Event(Wire):
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    count: int | None = None
    source: _Source | None = None
    reporting_component: str | None = None
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: Time | None = None
    series: _Series | None = None


class _Events(Wire):
    items: list[msgspec.Raw] | None = None


_REVIEW = msgspec.json.Decoder(_SelfReview)
_EVENTS = msgspec.json.Decoder(_Events)
_EVENT = msgspec.json.Decoder(_Event)


async def greet(transport: Transport) -> Greeting:
    """The server's version and clock.  Raises what any read raises."""
    reply = judged("read version", await transport.exchange(Call("GET", "/version", deadline_s=DEADLINE_S)))
    return Greeting(codec.git_version(reply.body), http_date(reply.headers.get("date", "")))


async def whoami(transport: Transport) -> str:
    """This client's user, as the API server knows it.  Raises what any write raises; ContractError before Kubernetes 1.28."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    reply = await transport.exchange(Call("POST", path, body=codec.encode(body), deadline_s=DEADLINE_S))
    return decoded(_REVIEW.decode, judged("ask who we are", reply).body, "read").status.user_info.username


async def events_of(transport: Transport, namespace: str, uid: str) -> tuple[PodEvent, ...]:
    """The events of a pod, oldest first, without events that cannot be decoded.  Raises what any read raises."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
    params = {"fieldSelector": f"involvedObject.uid={uid}", "limit": str(MOST_EVENTS)}
    reply = judged("list events", await transport.exchange(Call("GET", path, params=params, deadline_s=DEADLINE_S)))
    found: list[PodEvent] = []
    for text in decoded(_EVENTS.decode, reply.body, "read").items or ():
        with contextlib.suppress(ContractError):
            found.append(_event(decoded(_EVENT.decode, text, "read")))
    return tuple(sorted(found, key=lambda event: event.at))


def _event(seen: _Event) -> PodEvent:
    """The event.  Events have two forms: counted (core/v1) and as series (events.k8s.io/v1)."""
    series = seen.series
    moments = (
        series.last_observed_time if series else None,
        seen.last_timestamp,
        seen.event_time,
        seen.first_timestamp,
    )
    at = next((moment for moment in map(epoch, moments) if moment is not None), 0.0)
    return PodEvent(
        at=at,
        reason=seen.reason or "",
        message=seen.message or "",
        source=(seen.source.component if seen.source else "") or seen.reporting_component or "",
        count=(series.count if series else seen.count) or 1,
        warning=seen.type == "Warning",
        began=epoch(seen.first_timestamp) or epoch(seen.event_time) or at,
    )

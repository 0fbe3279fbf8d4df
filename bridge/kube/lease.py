"""Which replica leads: a coordination.k8s.io/v1 Lease that at most one replica holds at a time.

The holder renews the Lease several times before it ends.  Three clocks take part and none is compared with another:

    holder     works until `works_for_s` after it *sent* the last renewal that the API server confirmed, by its own monotonic
               clock.  That is a quarter shorter than the lease, so that work stops before another replica may begin.
    standby    takes the lease when it has seen the same record for the whole duration, by its own monotonic clock.
    the times  in the Lease are for people.  No decision reads them.

Every write names the resourceVersion that was read.  So if two replicas write, one gets a Conflict and reads again.

The holder's identity is the replica's name, which survives a restart.  A process that starts and finds its own name takes the
lease at once: the process of that name before it has ended.  Each process also writes a random mark.  A process that wakes
after a pause finds the mark of its successor and does not mistake the successor's lease for its own.

A process that stops removes its name.  If none of its requests can take effect any more, the same write says so (annotation
`slurm-bridge/drained`, with its mark).  The next holder removes the annotation with the write that takes the lease.  The
annotation counts only if its mark is the mark of the last holder and the Lease names no holder.

People edit Leases.  Every Lease can be read as a Record.  A missing or invalid duration is replaced by a safe one: the
duration of the replica's own setting, or LONGEST_S.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from bridge.clock import monotonic
from bridge.errors import Conflict, ContractError, NotFound, RemoteError, Unauthorized, said
from bridge.kube.codec import encode
from bridge.kube.decoding import decoded
from bridge.kube.responses import judged
from bridge.kube.transport import SIDE, Call, Transport
from scheduler import names
from scheduler.model.text import line

PROCESS = names.PREFIX + "process"
DRAINED = names.PREFIX + "drained"
SHORTEST_S, LONGEST_S = 2, 60
RELEASE_S = 1.0
RETRY_S = 0.2
RENEWAL_S = 0.5
LOGGED_EVERY_S = 10.0
NAME_MOST = 100  # characters of a holder's name that are shown
UNAUTHENTICATED = 401  # the credentials are not accepted, so rights are not the cause
CREATE = "create lease"


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings of the lease for one replica.

    identity     this replica's name, which no other replica has and which a restart keeps
    duration_s   seconds that a standby waits after the last renewal that it saw
    """

    namespace: str
    name: str
    identity: str
    duration_s: int = 4

    @property
    def works_for_s(self) -> float:
        """Seconds for which the holder works after it sent a renewal."""
        return self.duration_s * 3 / 4

    @property
    def renew_every_s(self) -> float:
        """Seconds between two renewals."""
        return self.duration_s / 5

    @property
    def look_every_s(self) -> float:
        """Seconds between two reads of a standby."""
        return min(1.0, self.duration_s / 25)

    @property
    def readable(self) -> str:
        """Namespace and name of the Lease, for messages."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a Lease.

    holder      the replica that holds it; "": none
    process     mark of the process that acquired it last
    drained     the last holder released the Lease, and none of that holder's requests can take effect any more
    duration_s  as written; None: no valid duration is written
    beat        the fields that change with every renewal
    wrong       the mistake in the Lease, as a sentence; "": none
    content     the whole object
    """

    holder: str
    process: str
    drained: bool
    duration_s: int | None
    beat: tuple[object, ...]
    wrong: str
    content: Mapping[str, Any]


def record_of(content: Mapping[str, Any]) -> Record:
    """The Lease as a Record, whatever is in it."""
    spec, annotations = _mapping(content, "spec"), _mapping(_mapping(content, "metadata"), "annotations")
    holder, process = _text(spec.get("holderIdentity")), _text(annotations.get(PROCESS))
    duration, wrong = spec.get("leaseDurationSeconds"), ""
    if isinstance(duration, bool) or not isinstance(duration, int) or not 0 < duration <= LONGEST_S:
        if duration is not None:
            wrong = f"leaseDurationSeconds is {line(str(duration))[:NAME_MOST]}, which is not 1 to {LONGEST_S}"
        duration = None if not isinstance(duration, int) or duration <= LONGEST_S else LONGEST_S
    elif holder and not process:
        wrong = "it names a holder that is no slurm-bridge"
    drained = not holder and bool(process) and _text(annotations.get(DRAINED)) == process
    beat = (holder, process, _text(spec.get("renewTime")), _text(spec.get("acquireTime")))
    return Record(holder, process, drained, duration, beat, wrong, content)


@dataclass(slots=True)
class _Seen:
    """The last record that was read.  since: when it was first read, by the monotonic clock."""

    beat: tuple[object, ...]
    since: float


class Lease:
    """One replica's part in the election.

    clock     monotonic seconds; wall: epoch seconds, for people
    on_wrong  called with a sentence for each problem with the Lease, once for each problem
    holder    the replica that leads, as far as is known; "": none
    rival     another replica that renewed the Lease while this replica waited; "": none
    trouble   why the Lease cannot be used now, as a sentence; "": it can be read and written
    """

    def __init__(
        self,
        transport: Transport,
        terms: Terms,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time.time,
        on_wrong: Callable[[str], None] = lambda _sentence: None,
        process: str = "",
    ) -> None:
        self.terms = terms
        self.holder = ""
        self.rival = ""
        self.trouble = ""
        self._transport = transport
        self._clock = clock
        self._wall = wall
        self._on_wrong = on_wrong
        self._logged, self._logged_at = "", float("-inf")
        self._process = process or secrets.token_hex(8)
        self._content: Mapping[str, Any] | None = None  # the Lease as last written or read; None: no Lease exists
        self._works_until = float("-inf")
        self._seen: _Seen | None = None
        self._first = True  # no Lease was read yet
        path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(terms.namespace, safe='')}/leases"
        self._collection, self._path = path, f"{path}/{quote(terms.name, safe='')}"

    def holds(self) -> bool:
        """True if this replica may act now."""
        return self._clock() < self._works_until

    # --- acquire --------------------------------------------------------------------------------------------------

    async def lead(self) -> bool:
        """Wait until this replica holds the lease.  Returns True if no request of the last holder can still take effect."""
        while True:
            began = self._clock()
            try:
                drained = await self._try()
                if drained is not None and self.holds():
                    return drained
            except RemoteError as error:
                if not _is_overtaken(error):
                    self._report(self._cannot(error))
            await asyncio.sleep(max(0.0, self.terms.look_every_s - (self._clock() - began)))

    async def _try(self) -> bool | None:
        """Read the lease once, and take it if it is free.  None: another replica holds it.  Raises RemoteError."""
        asked, record = self._clock(), await self._read(self.terms.works_for_s)
        first, self._first = self._first, False
        is_held = False
        if record is None and self._was_renewed(asked):
            return None
        if record is not None and not self._is_open(record, first=first):
            self._note_beat(record)
            is_held = not self._is_expired(record, asked)
        self._report(self._edited(record) or (self._silent(record) if is_held else ""))
        if record is not None and is_held:
            self.holder = line(record.holder)[:NAME_MOST]
            return None
        self._content = record.content if record is not None else None
        await self._write(self._taken(record), self.terms.works_for_s)
        return record is not None and record.drained

    def _is_open(self, record: Record, *, first: bool) -> bool:
        """True if this replica may acquire the lease at once: nobody holds it, or this replica does.

        first   True for the first answer that this process has
        """
        if not record.holder:
            return True
        return record.holder == self.terms.identity and (first or record.process == self._process)

    def _note_beat(self, record: Record) -> None:
        """Note when the record changed last.  If another replica renewed the lease meanwhile, it becomes the `rival`."""
        if self._seen is None or self._seen.beat != record.beat:
            if self._seen is not None and self._seen.beat[:2] == record.beat[:2]:
                self.rival = line(record.holder)[:NAME_MOST]
            self._seen = _Seen(record.beat, self._clock())

    def _was_renewed(self, asked: float) -> bool:
        """True if another replica renewed the lease less than its duration ago: if the Lease is deleted, it still works."""
        return self._seen is not None and asked - self._seen.since < self.terms.duration_s

    def _is_expired(self, record: Record, asked: float) -> bool:
        """True if the record, which was requested at *asked*, has been the same for the whole duration of the lease."""
        return self._seen is not None and asked - self._seen.since >= max(self.terms.duration_s, record.duration_s or 0)

    def _taken(self, record: Record | None) -> dict[str, Any]:
        now = _micro_time(self._wall())
        spec = _mapping(record.content, "spec") if record is not None else {}
        before = spec.get("leaseTransitions")
        count = before if isinstance(before, int) and 0 <= before < 2**31 - 1 else 0
        changed = {"acquireTime": now, "leaseTransitions": count + (record is not None)}
        return self._with({**changed, **self._renewed()}, {PROCESS: self._process, DRAINED: None})

    # --- renew and release ----------------------------------------------------------------------------------------

    async def keep(self) -> str:
        """Renew the lease until that fails for too long or another replica has it.  Returns which, as a sentence."""
        renewed, why = True, ""
        while self.holds():
            pause_s = self.terms.renew_every_s if renewed else RETRY_S
            await asyncio.sleep(min(pause_s, max(0.0, self._works_until - self._clock())))
            if not (left_s := self._works_until - self._clock()) > 0:
                break
            renewed = False
            try:
                # If one answer is lost, there is time for a second try.
                if other := await self._renew(within_s=max(RENEWAL_S, left_s / 2)):
                    self._works_until = float("-inf")
                    return other
                renewed, why = True, ""
                self._report("")
            except RemoteError as error:
                why = self._cannot(error)
                if not _is_overtaken(error):
                    self._report(why)
        self._works_until, self.holder = float("-inf"), ""
        return why or f"This process stood still for longer than the lease {self.terms.readable} lasts."

    async def _renew(self, within_s: float) -> str:
        """Renew the lease once.  Returns a sentence if another process has it; "": it is renewed.  Raises RemoteError."""
        try:
            await self._write(self._with(self._renewed(), {PROCESS: self._process, DRAINED: None}), within_s)
        except RemoteError as error:
            if not _is_overtaken(error):
                raise
            if other := await self._read_after_conflict():
                return other
            raise
        return ""

    async def _read_after_conflict(self) -> str:
        """A sentence about the other process that holds the lease; "": none does.  Raises RemoteError."""
        record = await self._read(max(RETRY_S, self._works_until - self._clock()))
        is_edited = record is not None and not record.process and record.holder == self.terms.identity
        if record is None or record.process == self._process or is_edited:
            if record is not None and record.holder != self.terms.identity:
                holder = line(record.holder)[:NAME_MOST] or "no replica"
                self._report(
                    f"The lease {self.terms.readable} was edited: it named {holder} as holder. It is written again."
                )
            self._content = record.content if record is not None else None
            return ""  # the Lease was deleted or edited, or an earlier write of this process took effect
        self.holder = line(record.holder)[:NAME_MOST]
        if record.holder == self.terms.identity:
            return (
                f"Another process of the same name, {self.terms.identity}, took the lease {self.terms.readable}. If two "
                "replicas have the same name, give each replica its own name (lease.identity)."
            )
        return f"{self.holder or 'Another client'} took the lease {self.terms.readable}."

    async def release(self, *, drained: bool) -> None:
        """Let the next replica begin at once.  drained: none of this process's requests can take effect any more.

        If the request fails, the lease expires by itself.
        """
        if not self.holds():
            return
        self._works_until = float("-inf")
        body = self._with({"holderIdentity": None, "renewTime": _micro_time(self._wall())}, {DRAINED: self._process})
        if not drained:
            del body["metadata"]["annotations"][DRAINED]
        try:
            await self._put_released(body)
        except RemoteError as error:
            self._report(self._cannot(error))
        self.holder = ""

    async def _put_released(self, body: dict[str, Any]) -> None:
        """Write the released Lease.  If the last renewal of this process causes a Conflict, write once more."""
        try:
            await self._exchange("release lease", "PUT", self._path, body, RELEASE_S)
        except Conflict:
            record = await self._read(RELEASE_S)
            if record is None or (record.holder, record.process) != (self.terms.identity, self._process):
                return
            body["metadata"]["resourceVersion"] = record.content["metadata"]["resourceVersion"]
            await self._exchange("release lease", "PUT", self._path, body, RELEASE_S)

    # --- calls ----------------------------------------------------------------------------------------------------

    async def _read(self, deadline_s: float) -> Record | None:
        """The Lease; None: there is none.  Raises RemoteError."""
        try:
            content = await self._exchange("read lease", "GET", self._path, None, deadline_s)
        except NotFound:
            return None
        return record_of(content)

    async def _write(self, body: dict[str, Any], deadline_s: float) -> None:
        """Create or replace the Lease; this replica may then work for `works_for_s` from the sending.  Raises RemoteError."""
        sent = self._clock()
        if self._content is None:
            self._content = await self._exchange(CREATE, "POST", self._collection, body, deadline_s)
        else:
            self._content = await self._exchange("renew lease", "PUT", self._path, body, deadline_s)
        self.holder = self.terms.identity
        self._works_until = sent + self.terms.works_for_s

    async def _exchange(
        self, operation: str, method: str, path: str, body: Mapping[str, Any] | None, deadline_s: float
    ) -> Mapping[str, Any]:
        """The Lease in the API server's answer, with a resourceVersion.  Raises RemoteError."""
        try:
            sent = encode(body) if body is not None else None
        except OverflowError:  # a number that no API server keeps
            raise ContractError(operation, SIDE, "the Lease holds a number that cannot be written") from None
        reply = judged(operation, await self._transport.exchange(Call(method, path, body=sent, deadline_s=deadline_s)))
        content = decoded(msgspec.json.decode, reply.body, operation)
        if not isinstance(content, dict) or not _text(_mapping(content, "metadata").get("resourceVersion")):
            raise ContractError(operation, SIDE, "the answer is not a Lease", reply.status)
        return content

    # --- parts ----------------------------------------------------------------------------------------------------

    def _renewed(self) -> dict[str, Any]:
        return {
            "holderIdentity": self.terms.identity,
            "leaseDurationSeconds": self.terms.duration_s,
            "renewTime": _micro_time(self._wall()),
        }

    def _with(self, spec: Mapping[str, Any], annotations: Mapping[str, str | None]) -> dict[str, Any]:
        """The Lease as last read, with these changes; None removes a field."""
        content = self._content or {}
        meta = {key: value for key, value in _mapping(content, "metadata").items() if key != "managedFields"}
        meta |= {"namespace": self.terms.namespace, "name": self.terms.name}
        meta["annotations"] = _changed(_mapping(meta, "annotations"), annotations)
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": _changed(_mapping(content, "spec"), spec),
        }

    def _cannot(self, error: RemoteError) -> str:
        if isinstance(error, Unauthorized) and error.number != UNAUTHENTICATED:
            return (
                f"Kubernetes does not let slurm-bridge use the lease {self.terms.readable}: {said(error)} Give its account "
                "the Role slurm-bridge-lease of manifests/base/rbac.yaml."
            )
        if isinstance(error, NotFound) and not _is_overtaken(error):
            do = "Create the namespace, or name another (lease.namespace)."
            return f"The lease {self.terms.readable} cannot be made: {said(error)} {do}"
        return f"The lease {self.terms.readable} cannot be used: {said(error)}"

    def _edited(self, record: Record | None) -> str:
        """A sentence about a mistake in a Lease that names a holder; "": there is none."""
        if record is None or not record.holder or not record.wrong:
            return ""
        return f"The lease {self.terms.readable} was edited: {record.wrong}. It is taken over when that is safe."

    def _silent(self, record: Record | None) -> str:
        """A sentence if the Lease has not been renewed for this replica's duration; "": it was renewed."""
        if record is None or self._seen is None or self._clock() - self._seen.since <= self.terms.duration_s:
            return ""
        holder, patience_s = line(record.holder)[:NAME_MOST], max(self.terms.duration_s, record.duration_s or 0)
        return (
            f"The lease {self.terms.readable} names {holder} as holder, and nothing has renewed it for more than "
            f"{self.terms.duration_s} s. Its duration is {patience_s} s, so it is taken over {patience_s} s after its last "
            "renewal. If no such replica runs, delete the lease."
        )

    def _report(self, problem: str) -> None:
        """Keep the problem as `trouble`.  Call `on_wrong` if the problem is new; if it only changed, at most every few
        seconds.

        problem   a sentence; "": there is none
        """
        before, self.trouble = self.trouble, problem
        now = self._clock()
        if problem and (not before or (problem != self._logged and now - self._logged_at >= LOGGED_EVERY_S)):
            self._logged, self._logged_at = problem, now
            self._on_wrong(problem)


def _is_overtaken(error: RemoteError) -> bool:
    """True if another client changed, made or deleted the Lease meanwhile: the next attempt goes on with what is there."""
    return isinstance(error, Conflict) or (isinstance(error, NotFound) and error.operation != CREATE)


def _changed(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**before, **changes}.items() if value is not None}


def _mapping(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = content.get(key)
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _micro_time(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

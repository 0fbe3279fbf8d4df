"""The client of slurmrestd: one method for each call.

Every method sends one request, checks the answer (responses.py) and returns values of the scheduler's model (codec.py).
Every method may raise the errors of bridge/errors.py: Refused and its subclasses (nothing happened), Unreachable (nothing was
sent), Unanswered and, for a write, ContractError (the request may have taken effect: read before you repeat it).  "Raises" in
a method's docstring names only errors that have a special meaning there; numbers are Slurm's error numbers.

Jobs are made, changed and ended *as their tenant* (I2): a request has the header `X-SLURM-USER-NAME`, and the bridge's token
or the token of that user (user_tokens.py).  So Slurm itself refuses to end a job of another user that has a reused id (V6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from bridge.errors import ConfigError, ContractError, Invalid, NotFound, NoUserToken, RemoteError, Unauthorized
from bridge.redaction import without
from bridge.slurm import bodies, codec, wire
from bridge.slurm.codec import Listed
from bridge.slurm.lists import UNDECODABLE, ListAnswer, ListDecoder
from bridge.slurm.responses import (
    FORBIDDEN,
    Decoder,
    Unchanged,
    by_number,
    plain,
    read,
)
from bridge.slurm.slurmdbd_lane import SlurmdbdLane, asks_slurmdbd
from bridge.slurm.token import TokenSource, command, problem
from bridge.slurm.transport import DEFAULT_DEADLINE_S, SIDE, Reply, Transport
from bridge.slurm.user_tokens import UserToken, UserTokens
from bridge.slurm.wire import API_VERSIONS, ApiVersion, Envelope, ErrorEntry
from scheduler.actions import NodeChange
from scheduler.model import slurm_errors
from scheduler.model.slurm import Grant, Job, JobSpec, NodeSpec, Partition, SlurmNode, States

TOKEN_HEADER = "X-SLURM-USER-TOKEN"  # noqa: S105 - the name of a header
# Why a cancel found nothing to end.
NOTHING_TO_END = (slurm_errors.UNKNOWN_JOB, slurm_errors.ALREADY_ENDED, slurm_errors.ANOTHERS_NAME)
RENEWING = (401, 511)  # HTTP statuses if slurmrestd does not accept the token: bad, expired or of another cluster
OnCall = Callable[[str, float, str], None]
OnUndecoded = Callable[[str, str, str], None]


_E = TypeVar("_E", bound=Envelope)
_A = TypeVar("_A")
_N = TypeVar("_N")

_ENVELOPE = msgspec.json.Decoder(Envelope)
_PING = msgspec.json.Decoder(wire.PingAnswer)
_ID = msgspec.json.Decoder(wire.IdAnswer)
_STATES = ListDecoder("jobs", wire.JobState, "job_id")
_JOB = msgspec.json.Decoder(wire.JobAnswer)
_HELD = msgspec.json.Decoder(wire.JobResourcesAnswer)
_RESOURCES = msgspec.json.Decoder(wire.ResourcesAnswer)
_NODE = msgspec.json.Decoder(wire.NodesAnswer)
_NODES = ListDecoder("nodes", wire.Node, "name")
_PARTITIONS = ListDecoder("partitions", wire.Partition, "name")
_KILL = msgspec.json.Decoder(wire.KillAnswer)
_ACCOUNTED = ListDecoder("jobs", wire.AccountedJob, "job_id")


@dataclass(frozen=True, slots=True)
class Discovery:
    """What `discover()` found: the version of Slurm, and the API version to use.

    api         the API version of all later requests
    version     Slurm's version, "26.05.5"
    cluster     Slurm's ClusterName
    accounting  True if there is a slurmdbd: jobs can be found by name, and ends of jobs can be recorded
    responding  True if slurmctld answers slurmrestd
    slurm_user  SlurmUser of slurm.conf; "": not read
    """

    api: str
    version: str
    cluster: str
    accounting: bool
    responding: bool
    slurm_user: str = ""


def _no_hook(operation: str, seconds: float, outcome: str) -> None:
    """Does nothing."""


def _no_undecoded_hook(list_name: str, which: str, why: str) -> None:
    """Does nothing."""


class SlurmClient:
    """One Slurm cluster.  Call `discover()` first: all other methods need the API version.

    transport     for all calls but the poll
    tokens        the bridge's own token: sees all jobs, and acts for users if `acting_tokens` is None
    polls         transport of `listed_states()`, so that a burst does not delay the poll; None: *transport*
    acting_tokens the token for requests as a user and for changes of nodes; None: *tokens*
    user_tokens   a token for each user, for requests as that user; `acting_tokens` is then for nodes only
    deadline_s    for each call, a second attempt with a renewed token included
    on_call       called with (operation, seconds, outcome) for each call; outcome: "ok" or the error's class in lower case
    on_undecodable called with (list, id or name, why) each time an item of a list could not be read
    """

    def __init__(
        self,
        transport: Transport,
        tokens: TokenSource,
        *,
        polls: Transport | None = None,
        acting_tokens: TokenSource | None = None,
        user_tokens: UserTokens | None = None,
        versions: tuple[ApiVersion, ...] = API_VERSIONS,
        deadline_s: float = DEFAULT_DEADLINE_S,
        on_call: OnCall = _no_hook,
        on_undecodable: OnUndecoded = _no_undecoded_hook,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._transport = transport
        self._polls = polls or transport
        self._tokens = tokens
        self._acting_tokens = acting_tokens or tokens
        self.user_tokens = user_tokens
        self._versions = versions
        self._deadline_s = deadline_s
        self._on_call = on_call
        self._on_undecoded = on_undecodable
        self._clock = clock
        self._stopwatch = stopwatch
        self._slurmdbd = SlurmdbdLane(stopwatch)
        self._discovery: Discovery | None = None
        self._states_reader = Unchanged(_STATES)
        self._decoded_states: tuple[ListAnswer[wire.JobState], Listed[Mapping[int, States]]] | None = None
        # CPUs a core by node, from the last nodes(): resources/ has cores only.
        self._cpus_per_core: Mapping[str, int] = {}
        self._single_cpus: bool | None = None  # True if Slurm allocates single threads of a core; None: not known

    @property
    def discovery(self) -> Discovery | None:
        """The result of the last `discover()`; None: not called yet."""
        return self._discovery

    # --- Slurm itself

    async def discover(self) -> Discovery:
        """Find the newest API version that slurmrestd and this client know (`GET ping/` of each version, newest first).

        Raises ContractError if slurmrestd serves none of them: this Slurm is too old, or the URL leads elsewhere.
        """
        refusal: ContractError | None = None
        for version in self._versions:
            try:
                answer = await self._get("discover", f"/slurm/{version.name}/ping/", _PING)
            except ContractError as error:
                if error.number != 404:
                    raise
                refusal = error
                continue
            meta = answer.meta or wire.Meta()
            self._discovery = Discovery(
                api=version.name,
                version=plain(meta.slurm.release) if meta.slurm else "",
                cluster=plain(meta.slurm.cluster) if meta.slurm else "",
                accounting=bool(meta.plugin and meta.plugin.accounting_storage.endswith("slurmdbd")),
                responding=any(ping.responding for ping in answer.pings),
            )
            return self._discovery
        oldest = self._versions[-1]
        raise ContractError(
            "discover",
            SIDE,
            f"it serves none of the API versions {', '.join(v.name for v in self._versions)}; either the URL does not "
            f"lead to slurmrestd or this Slurm is older than {oldest.since}",
            refusal.number if refusal else 0,
        )

    # --- placeholders

    async def allocate_now(self, spec: JobSpec) -> int:
        """Request nodes now or not at all, as `spec.user` (`POST job/allocate` with `immediate`).

        Returns the job id of the granted job; `grant(id)` reads its nodes.
        Use it only for a job whose one dependency is singleton, which may begin now, and which is not heterogeneous.
        Raises Exhausted (no room now: 2013, 2016, 2040, 2068; a limit: 2050), Conflict (2038: another job of this name has
        not ended; find it), Invalid (the request cannot be met; 2018: a node in `excluded_nodes` does not exist).  A refusal
        leaves a FAILED record in accounting.  If partitions preempt, slurmctld may have preempted jobs before it answers
        2016.  So callers limit the rate of these calls (ARCHITECTURE 5).
        """
        body = bodies.job_body(spec, immediate=True)
        return (await self._call("allocate", "POST", self._path("job/allocate"), body, _ID, user=spec.user)).job_id

    async def submit(self, spec: JobSpec) -> int:
        """Put a job into Slurm's queue as `spec.user` (`POST job/submit`).

        Returns the job id (that of the leader of a heterogeneous job; `job(id)` reads the other components).
        A second job of the same name waits (singleton), so this call may be repeated after Unanswered.
        Raises Exhausted (a limit on jobs), Invalid (2038: it depends on a job that Slurm does not know).
        """
        body = bodies.job_body(spec, immediate=False)
        return (await self._call("submit", "POST", self._path("job/submit"), body, _ID, user=spec.user)).job_id

    async def update(self, job_id: int, user: str, spec: JobSpec, changes: frozenset[str]) -> None:
        """Set fields of a job of that user to their values in `spec` (`POST job/{id}`).

        changes  names of these fields; each must be changeable (scheduler/translate/job_update.py)
        Raises Invalid if Slurm does not change such a field of a waiting or running job (2073, 2036, 2002) or the job
        has ended (2084), NotFound if it is gone.
        """
        body = bodies.update_body(spec, changes)
        await self._call("update", "POST", self._path(f"job/{job_id}"), body, _ENVELOPE, user=user)

    async def nudge(self, job_id: int, user: str) -> None:
        """Make slurmctld run a scheduling pass now, by an update of a waiting job without any field (ARCHITECTURE 5).

        The update writes nothing, so it cannot undo a change that the job's user makes at the same time.
        Raises NotFound if the job is gone, Invalid if it has ended (2084).
        """
        await self._call("nudge", "POST", self._path(f"job/{job_id}"), bodies.NO_CHANGE, _ENVELOPE, user=user)

    async def cancel(self, job_id: int, name: str, user: str) -> bool:
        """End the job of that id if it has that name and that user (`DELETE jobs/`, docs/decisions/0003).

        The request names no signal, because a signal breaks external nodes (Slurm facts 2).
        The id of the leader ends a whole heterogeneous job; the id of another component ends that component alone.
        Returns False if the job had ended already (2021), Slurm does not know it (2017), or another job has its id (2172).
        Also returns False if one component had ended before, and this call ended the others.
        Raises Invalid if the job is not that user's (2002).
        """
        body = msgspec.json.encode({"jobs": [str(job_id)], "job_name": name})
        answer = await self._call("cancel", "DELETE", self._path("jobs/"), body, _KILL, user=user)
        failures = [status.error for status in answer.status or () if status.error.code]
        for failed in failures:
            if failed.code not in NOTHING_TO_END:
                raise by_number("cancel", ErrorEntry(failed.code, failed.message or failed.string))
        return not failures

    # --- reads

    async def states(self) -> Mapping[int, States]:
        """The states of every job that Slurm knows, by id; see listed_states()."""
        return (await self.listed_states()).found

    async def listed_states(self) -> Listed[Mapping[int, States]]:
        """The states of every job that Slurm knows, by id, over the poller's own connection (`GET jobs/state/`).

        Returns the same object as long as nothing changes; callers must not change it.
        """
        answer = await self._get("states", self._path("jobs/state/"), self._states_reader, transport=self._polls)
        if self._decoded_states is None or self._decoded_states[0] is not answer:
            self._decoded_states = answer, self._report_undecoded("jobs/state", codec.job_states(answer))
        return self._decoded_states[1]

    async def job(self, job_id: int) -> Job | None:
        """One job, a heterogeneous one with all its components (`GET job/{id}`, 2 ms).

        None only if Slurm itself answers that it knows no such job (2017).
        """
        try:
            answer = await self._get("job", self._path(f"job/{job_id}"), _JOB)
        except NotFound as error:
            if error.number != slurm_errors.UNKNOWN_JOB:
                raise
            return None
        return _decoded("job", lambda a: codec.job(a, job_id), answer)

    async def grant(self, job_id: int, user: str) -> Grant:
        """The grant of a running job or component, node by node (`GET resources/{id}`, 0.3 kB a node).

        user   the user of the job: Slurm shows a grant only to this user and to operators (2010)
        Raises NotFound if the job is gone, Invalid if it has no nodes yet, or no nodes any more, or is suspended (2085).
        """
        answer = await self._get(
            "grant", self._path(f"resources/{job_id}"), _RESOURCES, user=self._with_own_token(user)
        )
        held = await self._held_cpus(job_id) if self._shows_too_many_cpus(answer) else {}
        return _decoded("grant", lambda a: codec.grant(a, job_id, self._cpus_per_core, held), answer)

    def _shows_too_many_cpus(self, answer: wire.ResourcesAnswer) -> bool:
        """True if the answer may show too many CPUs: it shows whole cores, but the job may hold one thread of a core."""
        shared = any(node.node in self._cpus_per_core for node in answer.nodes)
        return self._single_cpus is not False and shared and len(answer.nodes) > 1

    async def _held_cpus(self, job_id: int) -> Mapping[str, int]:
        """Node name to the CPUs that the job holds there; {} if Slurm allocates whole cores."""
        answer = await self._get("grant", self._path(f"job/{job_id}"), _HELD)
        single, held = codec.cpus_held(answer, job_id)
        if single is not None:
            self._single_cpus = single
        return held if self._single_cpus else {}

    async def nodes(self) -> tuple[SlurmNode, ...]:
        """Every node of Slurm that can be read; see listed_nodes()."""
        return (await self.listed_nodes()).found

    async def listed_nodes(self) -> Listed[tuple[SlurmNode, ...]]:
        """Every node of Slurm (`GET nodes/`: 2.6 kB a node, 0.8 s for 5,000)."""
        answer = await self._get("nodes", self._path("nodes/"), _NODES)
        undecoded = {item.key for item in answer.undecoded}
        kept = {name: count for name, count in self._cpus_per_core.items() if name in undecoded}
        self._cpus_per_core = kept | codec.cpus_per_core(answer.items)
        return self._report_undecoded("nodes", codec.nodes(answer))

    async def node(self, name: str) -> SlurmNode:
        """One node (`GET node/{name}`).  Raises Unanswered if Slurm has no such node: its answer has no error number."""
        answer = await self._get("node", self._path(_node_path(name)), _NODE)
        return _decoded("node", lambda a: codec.node(a, name), answer)

    async def partitions(self) -> tuple[Partition, ...]:
        """Every partition that can be read; see listed_partitions()."""
        return (await self.listed_partitions()).found

    async def listed_partitions(self) -> Listed[tuple[Partition, ...]]:
        """Every partition (`GET partitions/`)."""
        answer = await self._get("partitions", self._path("partitions/"), _PARTITIONS)
        return self._report_undecoded("partitions", codec.partitions(answer))

    def _report_undecoded(self, list_name: str, listed: Listed[_N]) -> Listed[_N]:
        """Report the unreadable items of the list.  Returns the list."""
        for item in listed.undecoded:
            self._on_undecoded(list_name, "" if item.key is None else plain(str(item.key)), plain(item.why))
        return listed

    # --- nodes: with the acting token and no user, because Slurm lets no tenant change nodes

    async def register_node(self, spec: NodeSpec) -> None:
        """Register one external node (`POST new/node`).  It survives a restart of slurmctld.

        One call registers one node, because Slurm reads only the devices of the first node of a request.
        Slurm drops a GRES that slurm.conf does not know, and reports no error.
        Raises Conflict (2168: the node exists), Unauthorized, Invalid (2010: the token may not change nodes).
        """
        await self._change_nodes("register_node", "POST", "new/node/", bodies.node_body(spec))

    async def change_node(self, name: str, change: NodeChange, reason: str) -> None:
        """Drain the node, resume it, or set it down, which ends its jobs for good (`POST node/{name}`).

        reason   Slurm shows it while the node is drained or down
        Raises Invalid (2018: Slurm has no such node; 2010: the token may not change nodes).
        """
        await self._change_nodes("change_node", "POST", _node_path(name), bodies.node_change_body(change, reason))

    async def remove_node(self, name: str) -> None:
        """Delete a node that was registered by `new/node` (`DELETE node/{name}`).

        Raises Exhausted (2016: the node is busy), Invalid (2018: Slurm has no such node; 2028: the node is in slurm.conf).
        """
        await self._change_nodes("remove_node", "DELETE", _node_path(name), b"")

    async def reconfigure(self) -> None:
        """Have slurmctld read its configuration again (`GET reconfigure/`, seconds): nodes of slurm.conf respond again."""
        await self._change_nodes("reconfigure", "GET", "reconfigure/", b"")

    async def _change_nodes(self, operation: str, method: str, rest: str, body: bytes) -> None:
        await self._call(operation, method, self._path(rest), body, _ENVELOPE, tokens=self._acting_tokens)

    # --- accounting

    async def find(self, name: str) -> tuple[int, ...]:
        """Ids of jobs of exactly this name that have not ended according to accounting; () if there is no slurmdbd.

        Accounting may be behind slurmctld, and may list a job that slurmctld lost.  So the caller reads each of these jobs.
        Raises ContractError if a record cannot be read and does not show which job it is about.
        """
        if not self._accounting:
            return ()
        path = f"/slurmdb/{self._api}/jobs/?{urlencode({'job_name': name})}"
        answer = await self._get("find", path, _ACCOUNTED)
        self._report_undecoded("slurmdb jobs", Listed(None, answer.undecoded))
        return _decoded("find", lambda a: codec.live_ids(a, name), answer)

    async def record_end(self, job_id: int, user: str, exit_code: int, comment: str) -> bool:
        """Write how the pods ended into the accounting record of an ended job (derived exit code and comment, S2).

        user     the user of the job.  If that user has a token, the request is sent as the user
        comment  the whole new comment
        Returns False if there is no slurmdbd: nothing was sent.
        Raises NotFound if accounting has no such job.
        """
        if not self._accounting:
            return False
        path = f"/slurmdb/{self._api}/job/{job_id}"
        body = bodies.end_body(exit_code, comment)
        await self._call("record_end", "POST", path, body, _ENVELOPE, user=self._with_own_token(user))
        return True

    # --- one call

    async def ask(
        self,
        operation: str,
        method: str,
        rest: str,
        decoder: Decoder[_E],
        body: bytes = b"",
        *,
        user: str = "",
        side: str = "slurm",
    ) -> _E:
        """Send a read that only commands for admins need (admin_reads.py).

        rest   the path after the API version
        side   "slurm", or "slurmdb" for accounting
        """
        target = f"/{side}/{self._api}/{rest}"
        return await self._call(operation, method, target, body, decoder, user=user)

    @property
    def _api(self) -> str:
        assert self._discovery is not None, "discover() comes first"
        return self._discovery.api

    @property
    def _accounting(self) -> bool:
        assert self._discovery is not None, "discover() comes first"
        return self._discovery.accounting

    def _path(self, rest: str) -> str:
        return f"/slurm/{self._api}/{rest}"

    async def _get(
        self,
        operation: str,
        target: str,
        decoder: Decoder[_E],
        *,
        transport: Transport | None = None,
        user: str = "",
    ) -> _E:
        return await self._call(operation, "GET", target, b"", decoder, transport=transport, user=user)

    async def _call(
        self,
        operation: str,
        method: str,
        target: str,
        body: bytes,
        decoder: Decoder[_E],
        *,
        transport: Transport | None = None,
        user: str = "",
        tokens: TokenSource | None = None,
    ) -> _E:
        asked = self._stopwatch()
        outcome = "ok"
        tokens = tokens or self._tokens_for(user)
        request = partial(self._answered, operation, method, target, body, transport or self._transport, tokens, user)
        needs_slurmdbd = asks_slurmdbd(target)
        try:
            reply = await (self._slurmdbd.send(operation, request) if needs_slurmdbd else request())
            answer = read(operation, reply, decoder, write=method != "GET")
            if user and self.user_tokens is not None:
                self.user_tokens.note_accepted(user)
            return answer
        except Invalid as error:
            outcome = "invalid"
            if error.number == slurm_errors.USER:  # Slurm's own text names the user "nobody"
                raise Invalid(operation, SIDE, f"Slurm does not know the user {user}", error.number) from None
            raise
        except Unauthorized as error:
            outcome = "unauthorized"
            raise self._with_advice(error, tokens, user) from None
        except RemoteError as error:
            outcome = type(error).__name__.lower()
            raise
        except BaseException:
            outcome = "abandoned"  # the caller was cancelled
            raise
        finally:
            if outcome != "abandoned" and not needs_slurmdbd:
                self._slurmdbd.note_other(is_answered=outcome not in ("unanswered", "unreachable"))
            self._on_call(operation, self._stopwatch() - asked, outcome)

    async def _answered(
        self,
        operation: str,
        method: str,
        target: str,
        body: bytes,
        transport: Transport,
        tokens: TokenSource,
        user: str,
    ) -> Reply:
        """Send the request.  If Slurm does not accept the token and there is a newer token, send the request again.

        A request with a token that is not accepted has no effect.  Both requests share one deadline.
        """
        began = self._stopwatch()
        headers = self._headers(operation, tokens, user)
        reply = await self._exchange(operation, transport, method, target, headers, body, began)
        if reply.status in RENEWING and tokens.renew(headers[TOKEN_HEADER]):
            headers = self._headers(operation, tokens, user)
            began += reply.waited_s
            reply = await self._exchange(operation, transport, method, target, headers, body, began)
        return reply

    async def _exchange(
        self,
        operation: str,
        transport: Transport,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        began: float,
    ) -> Reply:
        left_s = max(0.0, self._deadline_s - (self._stopwatch() - began))
        try:
            reply = await transport.exchange(method, target, headers, body, deadline_s=left_s)
        except RemoteError as error:  # the transport names the path, and here the operation is known
            raise type(error)(operation, SIDE, error.message, error.number) from None
        return replace(reply, body=without(headers[TOKEN_HEADER], reply.body))

    def _headers(self, operation: str, tokens: TokenSource, user: str) -> dict[str, str]:
        try:
            headers = {
                TOKEN_HEADER: tokens.token(),
                "Accept": "application/json",
                "Content-Type": "application/json",  # without this header slurmrestd answers 500 "Unspecified error"
            }
        except ConfigError as error:  # the token file cannot be read (any more), so nothing is sent
            if isinstance(tokens, UserToken):
                raise self._no_token_of(user, operation, str(error)) from None
            raise Unauthorized(operation, SIDE, str(error)) from None
        if user:
            headers["X-SLURM-USER-NAME"] = user
        return headers

    def _with_own_token(self, user: str) -> str:
        """*user* if each user has a token; otherwise "": the bridge's own token may send this request."""
        return user if self.user_tokens is not None else ""

    def _tokens_for(self, user: str) -> TokenSource:
        """The token for requests as that user; "": the bridge's own request."""
        if not user:
            return self._tokens
        return self._acting_tokens if self.user_tokens is None else self.user_tokens.of(user)

    def _no_token_of(self, user: str, operation: str, why: str, number: int = 401, token: str = "") -> NoUserToken:
        """Record that the bridge has no usable token of that user.  Returns the error for the request.

        token, number  the token that Slurm did not accept, and Slurm's error number; "" and 401: there is no token to send
        """
        assert self.user_tokens is not None
        message = f"slurm-bridge cannot act as Slurm user {user}: {why}"
        self.user_tokens.note_refused(user, message, token)
        return NoUserToken(operation, SIDE, message, number)

    def _with_advice(self, error: Unauthorized, tokens: TokenSource, user: str) -> Unauthorized:
        """The error, with advice about the token that was not accepted."""
        if isinstance(error, NoUserToken) or error.number == FORBIDDEN:  # there is a token, or no token is at fault
            return error
        trouble = problem(tokens, self._clock())
        if isinstance(tokens, UserToken):
            why = trouble or f"{tokens.name}: Slurm does not accept it (error {error.number}). {tokens.advice}"
            return self._no_token_of(user, error.operation, why, error.number, tokens.last)
        if trouble:
            return Unauthorized(error.operation, SIDE, trouble, error.number)
        if user:
            cause = f"its user {tokens.user} may not act for {user}. Make one of SlurmUser: {command('')}"
        else:
            cause = f"Slurm's key was replaced since. Make another one: {command(tokens.user)}"
        reason = "Slurm gives no reason" if error.number in RENEWING else f"Slurm's reason: {error.message}"
        message = f"{tokens.name}: Slurm does not accept it, because it is of another cluster, or {cause}. {reason}"
        return Unauthorized(error.operation, SIDE, message, error.number)


def _node_path(name: str) -> str:
    return f"node/{quote(name, safe='')}"


def _decoded(operation: str, decode: Callable[[_A], _N], answer: _A) -> _N:
    """Decode an answer.  Raises ContractError if the answer makes no sense."""
    try:
        return decode(answer)
    except UNDECODABLE as error:
        raise ContractError(operation, SIDE, f"an answer that makes no sense: {plain(str(error))}") from None

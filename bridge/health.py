"""The bridge's HTTP endpoints: /healthz, /readyz, /metrics, /explain, /nodes, /release, and the page.

/healthz answers 200 while the loop makes passes.  /readyz answers 200 while the bridge can do its work; if not, it says why.
These two and /metrics show no pod, and need no authentication.  /explain (one pod), /nodes (sums by node), the data of the
page (all pods) and /release (the only request that changes anything) require a client on the same machine, or a bearer token
(bridge/http_access.py).

`Starting` answers until a bridge acts, and while this replica stands by; `Health` answers while a bridge acts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from aiohttp import web

from bridge.clock import SlewedClock
from bridge.errors import ConfigError
from bridge.explanation_json import encoded
from bridge.guard import KINDS
from bridge.http_access import HEADER, Bearers, refusal, refusal_of_nodes
from bridge.http_clients import Site, in_parts
from bridge.http_log import without_peers
from bridge.kube.lease import Lease
from bridge.kube.mirror import Mirror
from bridge.loop import HEARTBEAT_S, Loop
from bridge.node_survey import NodeSurvey
from bridge.page.feed import Entry, Item
from bridge.page.server import Page
from bridge.page.source import detail_of_bridge, entries_of_bridge, note
from bridge.preflight.rights import RightsMonitor
from bridge.share import Busy, Share
from bridge.slurm.token import TokenSource, problem
from bridge.stopping import READERS_S
from bridge.telemetry import Telemetry
from bridge.world_gauges import Register, Values, WorldGauges
from scheduler.actions import ObjectKind
from scheduler.events import AbsenceConfirmed, Side
from scheduler.explain import explain, key_of, prepare
from scheduler.model.anomaly import Anomaly
from scheduler.model.text import decimal, span
from scheduler.rules.status import clock as time_of_day
from scheduler.state.anomalies import held_back, missing
from scheduler.state.phase import Phase
from scheduler.state.rivals import another_bridge
from scheduler.state.world import World

PAGE_EVERY_S = 1.0  # between two updates of the page, while a browser shows it
STANDSTILL_S = 3 * HEARTBEAT_S  # without a pass for so long, the process is not healthy
INTERNAL = "slurm-bridge had an internal error; the admin finds it in the log of slurm-bridge.\n"


def not_ready(world: World, tokens: Sequence[TokenSource], now: float) -> list[str]:
    """Every reason why a bridge cannot do its work now."""
    reasons = [_with_side(side, away.why) for side, away in world.outages.items()]
    reasons += [f"waiting for {what}" for what in world.missing]
    if world.held_back_since is not None:
        reasons.append(f"since {time_of_day(world.held_back_since, now)}: {held_back(world)}")
    troubles = (problem(each, now) for each in tokens)
    return reasons + [each for each in troubles if each and not any(each in reason for reason in reasons)]


def _with_side(side: Side, why: str) -> str:
    """The reason, with the name of the side at its beginning."""
    return why if why.startswith(f"{side.value}: ") else f"{side.value}: {why}"


def undecoded(world: World) -> str:
    """A sentence with the number of objects of Kubernetes that cannot be decoded; "": none."""
    counts = Counter(each.kind for each in world.undecoded)
    if not counts:
        return ""
    some = ", ".join(f"{count:,} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(counts.items()))
    return f"Kubernetes lists objects that slurm-bridge cannot read (the log has details): {some}. Nothing is done to these."


def quarantined(world: World) -> str:
    """A sentence with the number of objects in quarantine, by kind; "": none."""
    counts = Counter(entry.kind.value for entry in world.quarantine.values())
    if not counts:
        return ""
    some = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    return f"in quarantine after internal errors of slurm-bridge (the log has details): {some}. All others are handled."


def readiness(reasons: list[str], *notes: str) -> web.Response:
    """200 ok, or 503 with every reason, a line each; then the notes, a line each."""
    lines = [*(reasons or ["ok"]), *filter(None, notes)]
    return web.Response(text="\n".join(lines) + "\n", status=503 if reasons else 200)


def degraded(world: World, now: float) -> list[str]:
    """Sentences about what does not work, or is not as it should be, while the bridge as a whole works."""
    beside = list(filter(None, [another_bridge(world, now)]))
    away = world.accounting_outage
    if away is None:
        return beside
    waiting = len(world.parked["records"])
    partitions = "are those of the last answer" if world.partitions else "are not known yet"
    jobs = "1 ended job waits" if waiting == 1 else f"{waiting:,} ended jobs wait"
    return [
        *beside,
        f"Slurm accounting, since {time_of_day(away.since, now)}: {away.why.rstrip(' .')}. {jobs} to be recorded, and "
        f"Slurm's partitions {partitions}; everything else goes on.",
    ]


def explained(world: World, request: web.Request, now: float) -> web.Response:
    """Answer `?namespace=&pod=`: 200 and a scheduler.explain.Explanation as JSON; 404 if the bridge has no such pod."""
    namespace, name = asked_for(request)
    key = key_of(world, namespace, name)
    if key is None:
        return web.Response(text=f"No pod {namespace}/{name} is known here.\n", status=404)
    return web.Response(body=encoded(explain(world, key, now)), content_type="application/json")


def asked_for(request: web.Request) -> tuple[str, str]:
    """The namespace and the name of the pod for which the request asks."""
    return request.query.get("namespace", "default"), request.query.get("pod", "")


def too_many() -> web.Response:
    """429: too many requests at a time; to answer them all would delay the bridge's work."""
    text = "Too many requests at once; try again in a second.\n"
    return web.Response(text=text, status=429, headers={"Retry-After": "1"})


def measure_clock(clock: SlewedClock, telemetry: Telemetry) -> None:
    """Register the metric of the difference between the machine's clock and the bridge's."""
    what = "seconds by which the machine's clock is ahead of the bridge's, which follows it slowly"
    telemetry.gauge("slurm_bridge_clock_behind_seconds", what, lambda: [(clock.behind(), {})])


def measure_lead(leads: Callable[[], bool], telemetry: Telemetry) -> None:
    """Register the metric that shows whether this replica leads; a bridge without a lease always leads."""
    says = "1 while this replica leads, or is the only one"
    telemetry.gauge("slurm_bridge_leader", says, lambda: [(float(leads()), {})])


def measure_rights(rights: RightsMonitor, telemetry: Telemetry) -> None:
    """Register the metric of managed namespaces in which the bridge lacks rights."""
    what = "managed namespaces in which the bridge lacks rights"
    telemetry.gauge("slurm_bridge_namespaces_lacking_rights", what, lambda: [(len(rights.namespaces), {})])


class _Endpoints:
    """What `Health` and `Starting` have in common: /metrics, the checks of access, and the time."""

    def __init__(self, telemetry: Telemetry, clock: Callable[[], float], bearers: Bearers) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._bearers = bearers
        self._scraping = Share()

    async def metrics(self, request: web.Request) -> web.Response:
        """See `Telemetry.scrape`."""
        return await _scraped(request, self._telemetry, self._scraping)

    def refused(self, request: web.Request) -> web.Response | None:
        """As http_access.refusal."""
        return refusal(request, self._bearers.admin)

    def nodes_refused(self, request: web.Request) -> web.Response | None:
        """As http_access.refusal_of_nodes."""
        return refusal_of_nodes(request, self._bearers)

    def now(self) -> float:
        """The bridge's time, epoch seconds."""
        return self._clock()


class Health(_Endpoints):
    """The endpoints of one bridge.

    tokens   the bridge's own Slurm token, and the acting token if there is one
    bearers  the tokens that requests for /explain, /nodes and /release must carry
    degraded returns further problems that do not stop the bridge, a sentence each
    lease_trouble   why the lease cannot be renewed now; "": it can be renewed, or there is none
    calls_trouble   why no call to Kubernetes was answered for a while, even if the watches go on; "": calls are answered
    """

    def __init__(
        self,
        loop: Loop,
        tokens: Sequence[TokenSource],
        telemetry: Telemetry,
        clock: Callable[[], float],
        bearers: Bearers = Bearers(),  # noqa: B008 - frozen
        degraded: Callable[[World], list[str]] = lambda _: [],
        lease_trouble: Callable[[], str] = lambda: "",
        calls_trouble: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(telemetry, clock, bearers)
        self._degraded = degraded
        self._lease_trouble = lease_trouble
        self._calls_trouble = calls_trouble
        self._loop = loop
        self._tokens = tokens
        self._explaining = Share()
        self._survey = NodeSurvey(failed=self._node_failed)
        self._acts = True
        gauge, counter = self._while_it_acts(telemetry.gauge), self._while_it_acts(telemetry.counter)
        self._measure(gauge, counter)
        WorldGauges(lambda: self._loop.world, clock, gauge, counter)

    def _measure(self, gauge: Register, counter: Register) -> None:
        gauge("slurm_bridge_workloads", "workloads by phase", self._by_phase)
        gauge("slurm_bridge_bypassing_pods", "pods that run on nodes of Slurm and have no job", self._bypassing)
        gauge("slurm_bridge_poll_age_seconds", "age of the last answered poll of Slurm", self._poll_age)
        ends = "when the Slurm token ends, of two the first"
        gauge("slurm_bridge_token_expiry_timestamp_seconds", ends, self._expiry)
        ahead = "seconds by which a cluster's clock is ahead of the bridge's"
        gauge("slurm_bridge_clock_ahead_seconds", ahead, self._ahead)
        gauge("slurm_bridge_side_lost", "1 while this side does not answer", self._outages)
        gauge("slurm_bridge_accounting_lost", "1 while slurmdbd does not answer", self._accounting)
        gauge("slurm_bridge_records_waiting", "ended jobs that wait to be recorded in accounting", self._waiting)
        counter("slurm_bridge_records_dropped", "ends that were never recorded in accounting", self._dropped)
        gauge("slurm_bridge_unreadable_jobs", "jobs whose reads fail again and again", self._unreadable)
        rejected = "observations rejected as implausible, by reason"
        counter("slurm_bridge_observations_rejected", rejected, self._rejected)
        gauge("slurm_bridge_quarantined", "objects in quarantine, by kind", self._quarantined)
        counter("slurm_bridge_own_errors", "errors of slurm-bridge itself, by what they concern", self._errors)

    def follow(self, loop: Loop) -> None:
        """Answer for the bridge of this loop from now on.  Called for the first bridge, and when this replica leads again."""
        self._loop, self._acts = loop, True
        self._survey = NodeSurvey(failed=self._node_failed)

    def stand_by(self) -> None:
        """The bridge does not act any more: leave out the metrics of its World, because they become outdated."""
        self._acts = False

    def _while_it_acts(self, register: Register) -> Register:
        def registered(name: str, what: str, values: Callable[[], Values]) -> None:
            register(name, what, lambda: values() if self._acts else [])

        return registered

    def _quarantined(self) -> Values:
        counts = Counter(entry.kind for entry in self._loop.world.quarantine.values())
        return [(counts[kind], {"kind": kind.value}) for kind in ObjectKind]

    def _errors(self) -> Values:
        return [(self._loop.guard.contained[kind], {"kind": kind}) for kind in KINDS]

    def _rejected(self) -> Values:
        counted = {why.value: self._loop.world.rejected[why] for why in Anomaly} | self._telemetry.rejected
        return [(count, {"reason": reason}) for reason, count in counted.items()]

    def _by_phase(self) -> Values:
        return [(len(self._loop.world.by_phase[phase]), {"phase": phase.value}) for phase in Phase]

    def _unreadable(self) -> Values:
        return [(len(self._loop.world.reads_postponed), {})]

    def _bypassing(self) -> Values:
        return [(len(self._loop.world.bypassing), {})]

    def _poll_age(self) -> Values:
        polled = self._loop.world.polled
        return [] if polled is None else [(self._clock() - polled.ended, {})]

    def _expiry(self) -> Values:
        ends = [at for each in self._tokens if (at := each.expires_at()) is not None]
        return [(min(ends), {})] if ends else []

    def _ahead(self) -> Values:
        clocks = self._loop.world.clocks
        return [(clock.ahead, {"side": side.value}) for side, clock in clocks.items() if clock.is_known]

    def _outages(self) -> Values:
        outages = self._loop.world.outages
        return [(1.0 if side in outages else 0.0, {"side": side.value}) for side in Side]

    def _accounting(self) -> Values:
        return [(0.0 if self._loop.world.accounting_outage is None else 1.0, {})]

    def _waiting(self) -> Values:
        return [(len(self._loop.world.parked["records"]), {})]

    def _dropped(self) -> Values:
        return [(self._loop.world.dropped_records, {})]

    def not_turning(self) -> str:
        """Why the process is not healthy: its loop makes no passes; "": it is healthy."""
        age = self._clock() - self._loop.passed
        return f"the loop has stood still for {span(age)}" if age > STANDSTILL_S else ""

    def not_ready(self) -> list[str]:
        """Every reason why the bridge cannot do its work now."""
        reasons = not_ready(self._loop.world, self._tokens, self._clock())
        if Side.KUBERNETES not in self._loop.world.outages and (why := self._calls_trouble()):
            reasons.insert(0, _with_side(Side.KUBERNETES, why))
        return reasons

    # --- HTTP -----------------------------------------------------------------------------------------------------

    async def healthz(self, _: web.Request) -> web.Response:
        """Answer 200 ok, or 500 and why the process is not healthy."""
        why = self.not_turning()
        return web.Response(text=f"{why or 'ok'}\n", status=500 if why else 200)

    async def readyz(self, _: web.Request) -> web.Response:
        """See readiness."""
        world = self._loop.world
        notes = [undecoded(world), quarantined(world), *degraded(world, self._clock()), *self._degraded(world)]
        notes.append(self._lease_trouble())
        return readiness(self.not_ready(), *notes)

    def look(self) -> Iterator[Entry]:
        """What the page shows."""
        return entries_of_bridge(self._loop.world, self._telemetry, self._clock())

    def detail(self, key: str) -> Item:
        """What the page shows of one workload; None if it is not known."""
        return detail_of_bridge(self._loop.world, self._telemetry, key, self._clock())

    def page_failed(self, what: str, error: Exception) -> None:
        """Contain an exception to one item of the page."""
        self._loop.guard.caught(error, "page", f"page: {what}")

    async def explain(self, request: web.Request) -> web.Response:
        """See `explained`; http_access decides which clients get an answer."""
        if (no := refusal(request, self._bearers.admin)) is not None:
            return no
        try:
            async with self._explaining.turn():
                await self._prepare(*asked_for(request))
                return explained(self._loop.world, request, self._clock())
        except Busy:
            return too_many()
        except Exception as error:  # noqa: BLE001 - contained to this answer, or raised
            self._loop.guard.caught(error, "explanation", "explanation of {}/{}".format(*asked_for(request)))
            return web.Response(text=INTERNAL, status=500)

    async def _prepare(self, namespace: str, name: str) -> None:
        """Prepare the slow part of an explanation in small steps, so that decisions go on meanwhile."""
        while not prepare(self._loop.world, namespace, name):  # noqa: ASYNC110 - each call does a part of the work
            await asyncio.sleep(0)

    def _node_failed(self, name: str, error: Exception) -> None:
        self._loop.guard.caught(error, "nodes", f"node {name} in /nodes")

    async def nodes(self, request: web.Request) -> web.Response:
        """Answer 200 and the survey of nodes (node_survey.py); http_access decides which clients get an answer."""
        if (no := self.nodes_refused(request)) is not None:
            return no
        try:
            body = await self._survey.body(self._loop.world, self._clock())
        except Exception as error:  # noqa: BLE001 - contained to this answer, or raised
            self._loop.guard.caught(error, "nodes", "answer to /nodes")
            return web.Response(text=INTERNAL, status=500)
        return web.Response(body=in_parts(body), content_type="application/json")

    async def release(self, request: web.Request) -> web.Response:
        """POST: the admin confirms that the jobs missing in Slurm are gone (X6); http_access decides which clients may."""
        if (no := refusal(request, self._bearers.admin)) is not None:
            return no
        if request.headers.get(HEADER) != "release":
            return web.Response(text="Only `slurm-bridge release` may confirm that.\n", status=403)
        world = self._loop.world
        if world.held_back_since is None and world.claims_held_back_since is None:
            return web.Response(text="Nothing is held back.\n")
        count = len(missing(world))
        self._loop.emit(AbsenceConfirmed(self._clock()))
        return web.Response(
            text=f"{count:,} jobs count as gone. If Slurm does not grant the nodes of their pods to them again, their pods "
            f"are ended, {decimal(world.config.tuning.absent_rate)} a second.\n"
        )

    async def serve(self, host: str, port: int) -> web.AppRunner:
        """Start listening; the caller calls `cleanup` of the runner.  Raises ConfigError if the address cannot be used."""
        return await serve(lambda: self, host, port)


class StandingBy:
    """The endpoints of a standby."""

    def __init__(self, lease: Lease, mirror: Mirror) -> None:
        self._lease = lease
        self._mirror = mirror

    def not_ready(self) -> list[str]:
        """Every reason why this replica could not lead now."""
        waits = [_with_side(Side.KUBERNETES, self._mirror.outage.why)] if self._mirror.outage is not None else []
        waits += [self._lease.trouble] if self._lease.trouble else []
        return waits + [f"waiting for {what}" for what in self._mirror.missing()]

    def role(self) -> str:
        """ "standby, NAME leads"."""
        return f"standby, {self._lease.holder or 'nobody'} leads"

    def whom_to_ask(self) -> str:
        """A line that says why this replica does not answer, and which replica does."""
        if leader := self._lease.holder:
            return f"This replica of slurm-bridge is standby, replica {leader} leads: ask {leader}.\n"
        return "This replica of slurm-bridge is standby, and none leads now: ask again in some seconds.\n"


class Starting(_Endpoints):
    """The endpoints while no bridge acts.  Once `health` is set, `Health` answers all requests instead.

    reasons   by cluster, why the cluster has not answered yet; the caller may change it
    standby   set while this replica stands by; None: the bridge is about to start
    notes     further problems that do not stop the bridge, a sentence each
    """

    def __init__(
        self,
        reasons: Mapping[str, str],
        tokens: Sequence[TokenSource],
        telemetry: Telemetry,
        clock: Callable[[], float],
        bearers: Bearers = Bearers(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(telemetry, clock, bearers)
        self._reasons = reasons
        self._tokens = tokens
        self.health: Health | None = None
        self.standby: StandingBy | None = None
        self.notes: Callable[[], list[str]] = list

    async def serve(self, host: str, port: int) -> web.AppRunner:
        """As `Health.serve`."""
        return await serve(lambda: self.health or self, host, port)

    async def healthz(self, _: web.Request) -> web.Response:
        """Answer 200, because a bridge that waits must not be restarted."""
        return web.Response(text="ok\n")

    def not_ready(self) -> list[str]:
        """Why it is not ready, a sentence each; a standby that could lead is ready."""
        if self.health is not None:
            return self.health.not_ready()
        problems = [trouble for each in self._tokens if (trouble := problem(each, self._clock()))]
        if self.standby is not None:
            return [*self.standby.not_ready(), *problems]
        return [*self._reasons.values(), *problems] or ["the bridge is about to start"]

    async def readyz(self, _: web.Request) -> web.Response:
        """503 and what the bridge waits for; 200 and the leader's name for a standby that could lead."""
        role = [self.standby.role()] if self.standby is not None else []
        return readiness(self.not_ready(), *role, *self.notes())

    def look(self) -> Iterator[Entry]:
        """What the page shows: which replica leads, or what the bridge waits for."""
        if self.standby is not None:
            return note(self.standby.whom_to_ask().strip())
        return note("slurm-bridge has not started: " + "  ".join(self.not_ready()))

    def detail(self, _key: str) -> Item:
        """None: no workload is known."""
        return None

    def page_failed(self, _what: str, error: Exception) -> None:
        """Raise the exception."""
        raise error

    async def explain(self, request: web.Request) -> web.Response:
        """503, and what the bridge waits for, or the leader's name; http_access decides which clients get an answer."""
        if (no := refusal(request, self._bearers.admin)) is not None:
            return no
        return await self._whom_to_ask(request)

    async def nodes(self, request: web.Request) -> web.Response:
        """As `explain`."""
        if (no := self.nodes_refused(request)) is not None:
            return no
        return await self._whom_to_ask(request)

    async def _whom_to_ask(self, request: web.Request) -> web.Response:
        if self.standby is not None:
            return web.Response(text=self.standby.whom_to_ask(), status=503)
        return await self.readyz(request)

    async def release(self, request: web.Request) -> web.Response:
        """As `explain`."""
        return await self.explain(request)


async def _scraped(request: web.Request, telemetry: Telemetry, share: Share) -> web.Response:
    try:
        async with share.turn():
            body, content_type = telemetry.scrape(request.headers.get("Accept", ""))
    except Busy:
        return too_many()
    return web.Response(body=in_parts(body), headers={"Content-Type": content_type})


async def serve(answers: Callable[[], Health | Starting], host: str, port: int) -> web.AppRunner:
    """Start listening; each request is answered by what `answers` returns at that moment.

    The caller calls `cleanup` of the runner.  Raises ConfigError if the address cannot be used.
    """
    app = web.Application()
    app.on_response_prepare.append(_with_headers)

    def route(method: str, path: str, name: str) -> None:
        async def answer(request: web.Request) -> web.Response:
            found: web.Response = await getattr(answers(), name)(request)
            return found

        app.router.add_route(method, path, answer)

    for name in ("healthz", "readyz", "metrics", "explain", "nodes"):
        route("GET", f"/{name}", name)
    route("POST", "/release", "release")
    page = Page(
        lambda: answers().look(),
        lambda key: answers().detail(key),
        lambda: answers().now(),
        every_s=PAGE_EVERY_S,
        refused=lambda request: answers().refused(request),
        failed=lambda what, error: answers().page_failed(what, error),
    )
    page.add_to(app)
    quiet = without_peers("slurm-bridge.http")
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=READERS_S, logger=quiet)
    await runner.setup()
    try:
        await Site(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        why = error.strerror or str(error)
        raise ConfigError(f"http {host}:{port}: {why}. Choose another address with --http HOST:PORT.") from None
    return runner


async def _with_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Forbid browsers to cache an answer, or to guess another content type."""
    response.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})

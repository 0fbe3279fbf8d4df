"""The answers of a bridge that acts, by HTTP endpoint (http_server.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from aiohttp import web

from bridge.bridge_gauges import BridgeGauges
from bridge.explanation_json import encoded
from bridge.http_access import HEADER, Bearers, refusal
from bridge.http_clients import in_parts
from bridge.http_server import Endpoints, serve, too_many
from bridge.loop import HEARTBEAT_S, Loop
from bridge.node_survey import NodeSurvey
from bridge.page.feed import Entry, Item
from bridge.page.source import detail_of_bridge, entries_of_bridge
from bridge.readiness import degraded, not_ready, quarantined, readiness, undecoded, with_side
from bridge.share import Busy, Share
from bridge.slurm.token import TokenSource
from bridge.telemetry import Telemetry
from bridge.world_gauges import Register, Values, WorldGauges
from scheduler.events import AbsenceConfirmed, Side
from scheduler.explain import explain, key_of, prepare
from scheduler.model.text import decimal, span
from scheduler.state.anomalies import missing
from scheduler.state.world import World

STANDSTILL_S = 3 * HEARTBEAT_S  # without a pass for so long, the process is not healthy
INTERNAL = "slurm-bridge had an internal error; the admin finds it in the log of slurm-bridge.\n"


class Health(Endpoints):
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
        BridgeGauges(lambda: self._loop, tokens, telemetry, clock, gauge, counter)
        self._gauges = WorldGauges(lambda: self._loop.world, clock, gauge, counter)

    def follow(self, loop: Loop) -> None:
        """Answer for the bridge of this loop from now on.  Called for the first bridge, and when this replica leads again."""
        self._loop, self._acts = loop, True
        self._survey = NodeSurvey(failed=self._node_failed)

    def stand_by(self) -> None:
        """The bridge does not act any more: leave out the metrics of its World, because they become outdated."""
        self._acts = False

    def _while_it_acts(self, register: Register) -> Register:
        def registered(name: str, help_text: str, values: Callable[[], Values]) -> None:
            register(name, help_text, lambda: values() if self._acts else [])

        return registered

    def why_stalled(self) -> str:
        """Why the process is not healthy: its loop makes no passes; "": it is healthy."""
        age = self._clock() - self._loop.passed
        return f"the loop has stood still for {span(age)}" if age > STANDSTILL_S else ""

    def not_ready(self) -> list[str]:
        """Every reason why the bridge cannot do its work now."""
        reasons = not_ready(self._loop.world, self._tokens, self._clock())
        if Side.KUBERNETES not in self._loop.world.outages and (why := self._calls_trouble()):
            reasons.insert(0, with_side(Side.KUBERNETES, why))
        return reasons

    # --- HTTP -----------------------------------------------------------------------------------------------------

    async def prepare_scrape(self) -> None:
        """See WorldGauges.count.  If it fails, these metrics stay as they were."""
        try:
            if self._acts:
                await self._gauges.count()
        except Exception as error:  # noqa: BLE001 - contained to these metrics, or raised
            self._loop.guard.caught(error, "observer", "metrics of both clusters")

    async def healthz(self, _: web.Request) -> web.Response:
        """Answer 200 ok, or 500 and why the process is not healthy."""
        why = self.why_stalled()
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

    def page_failed(self, item: str, error: Exception) -> None:
        """Contain an exception to one item of the page."""
        self._loop.guard.caught(error, "page", f"page: {item}")

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
        return released(self._loop, request, self._clock())

    async def serve(self, host: str, port: int) -> web.AppRunner:
        """Start listening; the caller calls `cleanup` of the runner.  Raises ConfigError if the address cannot be used."""
        return await serve(lambda: self, host, port)


def explained(world: World, request: web.Request, now: float) -> web.Response:
    """Answer `?namespace=&pod=`: 200 and a scheduler.explain.Explanation as JSON; 404 if the bridge has no such pod."""
    namespace, name = asked_for(request)
    key = key_of(world, namespace, name)
    if key is None:
        return web.Response(text=f"No pod {namespace}/{name} is known here.\n", status=404)
    return web.Response(body=encoded(explain(world, key, now, name)), content_type="application/json")


def released(loop: Loop, request: web.Request, now: float) -> web.Response:
    """Take the confirmation that the jobs missing in Slurm are gone (X6), if `slurm-bridge release` sent it."""
    if request.headers.get(HEADER) != "release":
        return web.Response(text="Only `slurm-bridge release` may confirm that.\n", status=403)
    world = loop.world
    if world.held_back_since is None and world.hints_held_back_since is None:
        return web.Response(text="Nothing is held back.\n")
    count = len(missing(world))
    loop.emit(AbsenceConfirmed(now))
    return web.Response(
        text=f"{count:,} jobs count as gone. If Slurm does not grant the nodes of their pods to them again, their pods "
        f"are ended, {decimal(world.config.tuning.absent_rate)} a second.\n"
    )


def asked_for(request: web.Request) -> tuple[str, str]:
    """The namespace and the name of the pod for which the request asks."""
    return request.query.get("namespace", "default"), request.query.get("pod", "")

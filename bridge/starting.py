"""The answers while no bridge acts, by HTTP endpoint (http_server.py): at the start, and on a standby."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from aiohttp import web

from bridge.health import Health
from bridge.http_access import Bearers, refusal
from bridge.http_server import Endpoints, serve
from bridge.kube.lease import Lease
from bridge.kube.mirror import Mirror
from bridge.page.feed import Entry, Item
from bridge.page.source import note
from bridge.readiness import readiness, with_side
from bridge.slurm.token import TokenSource, problem
from bridge.telemetry import Telemetry
from scheduler.events import Side


class Starting(Endpoints):
    """The endpoints while no bridge acts.  Once `health` is set, `Health` answers all requests instead.

    reasons   by cluster, why the cluster has not answered yet; the caller may change it
    standby   set while this replica stands by; None: the bridge is about to start
    notes     further problems that do not stop the bridge, a sentence each
    leads     returns True while this replica leads; the caller sets it when the first bridge begins to act
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
        self.leads: Callable[[], bool] = lambda: False

    async def serve(self, host: str, port: int) -> web.AppRunner:
        """As `Health.serve`."""
        return await serve(lambda: self.health or self, host, port)

    async def prepare_scrape(self) -> None:
        """Nothing: there is no World to count."""

    async def healthz(self, _: web.Request) -> web.Response:
        """Answer 200, because a bridge that waits must not be restarted."""
        return web.Response(text="ok\n")

    def not_ready(self) -> list[str]:
        """Why it is not ready, a sentence each; a standby that could lead is ready."""
        if self.health is not None:
            return self.health.not_ready()
        problems = [trouble for token in self._tokens if (trouble := problem(token, self._clock()))]
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


class StandingBy:
    """The endpoints of a standby."""

    def __init__(self, lease: Lease, mirror: Mirror) -> None:
        self._lease = lease
        self._mirror = mirror

    def not_ready(self) -> list[str]:
        """Every reason why this replica could not lead now."""
        waits = [with_side(Side.KUBERNETES, self._mirror.outage.why)] if self._mirror.outage is not None else []
        waits += [self._lease.trouble] if self._lease.trouble else []
        return waits + [f"waiting for {missing}" for missing in self._mirror.missing()]

    def role(self) -> str:
        """ "standby, NAME leads"."""
        return f"standby, {self._lease.holder or 'nobody'} leads"

    def whom_to_ask(self) -> str:
        """A line that says why this replica does not answer, and which replica does."""
        if leader := self._lease.holder:
            return f"This replica of slurm-bridge is standby, replica {leader} leads: ask {leader}.\n"
        return "This replica of slurm-bridge is standby, and none leads now: ask again in some seconds.\n"

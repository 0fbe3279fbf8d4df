"""What is asked over HTTP: /healthz (does it turn?), /readyz (can it work, and if not why?), /metrics, /explain (a pod).

None of it says a secret, so it needs no authentication; by default it listens on loopback.  The one thing that can be told
it, /release, is taken only from the machine that it runs on.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence

from aiohttp import web

from bridge.errors import ConfigError
from bridge.explain_text import encoded
from bridge.loop import HEARTBEAT_S, Loop
from bridge.release import HEADER
from bridge.slurm.token import TokenSource, problem
from bridge.telemetry import Telemetry
from scheduler.doubt import Doubt, held_back, missing
from scheduler.events import AbsenceBelieved, Side
from scheduler.explaining import explain, key_of
from scheduler.phase import Phase
from scheduler.telling import clock as time_of_day
from scheduler.world import World

STANDSTILL_S = 3 * HEARTBEAT_S


def not_ready(world: World, tokens: Sequence[TokenSource], now: float) -> list[str]:
    """Every reason why a bridge cannot do its work now."""
    reasons = [f"{side.value}: {lost.why}" for side, lost in world.lost.items()]
    reasons += [f"waiting for {what}" for what in world.missing]
    if world.held_back_since is not None:
        reasons.append(f"since {time_of_day(world.held_back_since, now)}: {held_back(world)}")
    return reasons + [trouble for each in tokens if (trouble := problem(each, now))]


def readiness(reasons: list[str]) -> web.Response:
    """200 ok, or 503 and every reason, a line each."""
    return web.Response(text="\n".join(reasons or ["ok"]) + "\n", status=503 if reasons else 200)


def explained(world: World, request: web.Request, now: float) -> web.Response:
    """`?namespace=&pod=`: 200 and scheduler.explaining.Explanation as JSON; 404 where no such pod is ours."""
    namespace, name = request.query.get("namespace", "default"), request.query.get("pod", "")
    key = key_of(world, namespace, name)
    if key is None:
        return web.Response(text=f"No pod {namespace}/{name} is known here.\n", status=404)
    return web.Response(body=encoded(explain(world, key, now)), content_type="application/json")


class Health:
    """Three questions about one bridge.

    tokens   its own, and the one by which it acts where that is another
    """

    def __init__(
        self, loop: Loop, tokens: Sequence[TokenSource], telemetry: Telemetry, clock: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._tokens = tokens
        self._telemetry = telemetry
        self._clock = clock
        telemetry.gauge("slurm_bridge_workloads", "workloads by phase", self._by_phase)
        telemetry.gauge("slurm_bridge_poll_age_seconds", "age of the last answered poll of Slurm", self._poll_age)
        telemetry.gauge(
            "slurm_bridge_token_expiry_timestamp_seconds", "when the Slurm token ends, of two the first", self._expiry
        )
        telemetry.gauge("slurm_bridge_side_lost", "1 while this side does not answer", self._lost)

        telemetry.counter("slurm_bridge_disbelieved", "times that what was said was not believed", self._disbelieved)

    def _disbelieved(self) -> list[tuple[float, dict[str, str]]]:
        counted = {why.value: self._loop.world.disbelieved[why] for why in Doubt} | self._telemetry.disbelieved
        return [(count, {"reason": reason}) for reason, count in counted.items()]

    def _by_phase(self) -> list[tuple[float, dict[str, str]]]:
        return [(len(self._loop.world.by_phase[phase]), {"phase": phase.value}) for phase in Phase]

    def _poll_age(self) -> list[tuple[float, dict[str, str]]]:
        polled = self._loop.world.polled
        return [] if polled is None else [(self._clock() - polled.ended, {})]

    def _expiry(self) -> list[tuple[float, dict[str, str]]]:
        ends = [at for each in self._tokens if (at := each.expires_at()) is not None]
        return [(min(ends), {})] if ends else []

    def _lost(self) -> list[tuple[float, dict[str, str]]]:
        lost = self._loop.world.lost
        return [(1.0 if side in lost else 0.0, {"side": side.value}) for side in Side]

    def not_turning(self) -> str:
        """Why it is not healthy; "" where it is."""
        age = self._clock() - self._loop.passed
        return f"the loop has stood still for {age:.0f} s" if age > STANDSTILL_S else ""

    def not_ready(self) -> list[str]:
        """Every reason why it cannot do its work now."""
        return not_ready(self._loop.world, self._tokens, self._clock())

    # --- HTTP -----------------------------------------------------------------------------------------------------

    async def healthz(self, _: web.Request) -> web.Response:
        """200 ok, or 500 and why."""
        why = self.not_turning()
        return web.Response(text=f"{why or 'ok'}\n", status=500 if why else 200)

    async def readyz(self, _: web.Request) -> web.Response:
        """See readiness."""
        return readiness(self.not_ready())

    async def metrics(self, _: web.Request) -> web.Response:
        """OpenMetrics."""
        body, content_type = self._telemetry.scrape()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def explain(self, request: web.Request) -> web.Response:
        """See explained."""
        return explained(self._loop.world, request, self._clock())

    async def release(self, request: web.Request) -> web.Response:
        """POST: what is missing in Slurm now is gone indeed (X6).  200; 403 to anybody elsewhere."""
        try:
            here = ipaddress.ip_address(request.remote or "").is_loopback
        except ValueError:
            here = False
        if not here or request.headers.get(HEADER) != "release":
            return web.Response(
                text="Only `slurm-bridge release`, run where the bridge runs, may say so.\n", status=403
            )
        world = self._loop.world
        if world.held_back_since is None:
            return web.Response(text="Nothing is held back.\n")
        count = len(missing(world))
        self._loop.emit(AbsenceBelieved(self._clock()))
        return web.Response(
            text=f"{count} jobs are taken as gone; their pods are ended, {world.config.tuning.absent_rate:g} a second.\n"
        )

    async def serve(self, host: str, port: int) -> web.AppRunner:
        """Start listening; the caller cleans the runner up.  Raises ConfigError where the address cannot be had."""
        app = web.Application()
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/explain", self.explain)
        app.router.add_post("/release", self.release)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            why = error.strerror or str(error)
            raise ConfigError(f"http {host}:{port}: {why}. Choose another address with --http HOST:PORT.") from None
        return runner

"""`slurm-bridge dev`: the real bridge between two clusters that are simulated or real, on a page or in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from bridge.dev import sides
from bridge.dev.faults import FAULTS
from bridge.dev.hands import AGAIN_S, Hands, Life
from bridge.dev.http import LOOPBACK
from bridge.dev.load import IMAGE, KINDS, SERVICES, Load, fitted
from bridge.dev.stage import Stage
from bridge.dev.story import OUTLIVED_S, Run, StalledError
from bridge.errors import ConfigError, FarSideError, said
from bridge.kube.transport import HttpTransport
from bridge.page.server import Page
from bridge.page.snapshot import Sections

LIVE_PODS = 24  # on the page, at a time
HEADLESS_PODS = 12
GIVE_UP_S = 60.0
A_POD_S = 2.0
LINGER_S = 20.0  # a pod that has ended can be looked at for so long
TIDY_S = 45.0
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pod.yaml"


@dataclass(frozen=True, slots=True)
class Options:
    """The command line.  pods 0: as many as is usual; "" : simulated."""

    seed: int = 1
    pods: int = 0
    headless: bool = False
    json: bool = False
    kubeconfig: str = ""
    slurm_url: str = ""
    slurm_token_file: str = ""
    slurm_user: str = ""
    image: str = ""
    port: int = 0


def main(options: Options) -> int:
    """Exit code 0; 1 where a promise was broken, a pod failed or something stalled.  Raises ConfigError."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    logging.getLogger("slurm-bridge").addHandler(logging.NullHandler())
    return asyncio.run(_Dev(options).run())


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the command's own output


class _Dev:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._began = time.time()

    async def run(self) -> int:
        """Until it has ended, or is told to."""
        task = asyncio.create_task(self._run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return 0
        except ExceptionGroup as errors:
            raise _first(errors) from None

    async def _run(self) -> int:
        options = self._options
        async with AsyncExitStack() as stack:
            kube, slurm = await sides.both(
                stack,
                kubeconfig=options.kubeconfig,
                slurm_url=options.slurm_url,
                token_file=options.slurm_token_file,
                user=options.slurm_user,
                seed=options.seed,
            )
            transport = HttpTransport(kube.access)
            stack.push_async_callback(transport.close)
            hands = Hands(transport, kube.space, time.time)
            load = Load(fitted(KINDS, kube.nodes), kube.scheduler_name, options.seed, options.image or IMAGE)
            stage = Stage(kube, slurm, options.seed)
            if kube.simulated is None:
                await hands.open()
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(stage.run()), group.create_task(hands.watch())]
                try:
                    return await self._performance(stage, hands, load)
                finally:
                    await _tidy(stage, hands)
                    for task in background:
                        task.cancel()
        raise AssertionError("the performance returns or raises")

    async def _performance(self, stage: Stage, hands: Hands, load: Load) -> int:
        if self._options.headless:
            return await self._headless(stage, hands, load)
        await self._page(stage, hands, load)
        return 0

    # --- in the terminal ------------------------------------------------------------------------------------------

    async def _headless(self, stage: Stage, hands: Hands, load: Load) -> int:
        pods = self._options.pods or HEADLESS_PODS
        run = Run(stage, hands, load, pods, self._tell, GIVE_UP_S + A_POD_S * pods)
        stalled = ""
        self._tell("", f"Kubernetes {stage.kube.version}, Slurm {stage.slurm.release}; the real bridge between them")
        try:
            await run.go(fitted(SERVICES, stage.kube.nodes))
        except StalledError as error:
            stalled = str(error)
        except FarSideError as error:
            stalled = said(error)
        hands.on_change = lambda _life: None
        result = run.result() | ({"stalled": stalled} if stalled else {})
        if self._options.json:
            _say(json.dumps(result))
        else:
            self._sum_up(result)
        if stalled:
            print(f"slurm-bridge: {stalled}", file=sys.stderr)  # noqa: T201 - the one line
        return 1 if stalled or result["failed"] or result["violations"] else 0

    def _tell(self, who: str, what: str) -> None:
        if not self._options.json:
            _say(f"{time.time() - self._began:8.3f}  {who:<16} {what}" if who else f"\n{'':10}— {what}")

    def _sum_up(self, result: dict[str, Any]) -> None:
        checks = sum(result["checked"].values())
        kept = "all promises kept" if not result["violations"] else "PROMISES BROKEN: " + "; ".join(result["broken"])
        counts = f"{result['bound']} of {result['pods']} pods bound, {result['failed']} failed"
        self._tell("", f"{counts}; {kept} ({checks} checks)")
        for name, told in (("at once", "at_once"), ("all", "all")):
            took = result["create_to_bind_ms"][told]
            if took["n"]:
                at = ", ".join(f"{key} {took[key]:.0f} ms" for key in ("p50", "p90", "p99", "max"))
                _say(f"{'':12}create → bind, {name} ({took['n']} pods): {at}")

    # --- on the page ----------------------------------------------------------------------------------------------

    async def _page(self, stage: Stage, hands: Hands, load: Load) -> None:
        """Until it is cancelled."""
        with _kubeconfig(stage) as kubeconfig:
            about: dict[str, Any] = {"title": "dev", "kubernetes": stage.kube.version, "slurm": stage.slurm.release}
            about["commands"] = [f"export KUBECONFIG={shlex.quote(str(kubeconfig))}", *_commands(stage, "kubectl")]

            def look() -> Sections:
                return {**stage.look(), "about": {**about, "life": stage.promises.life}}

            page = Page(look, stage.detail, time.time)
            app = page.application()
            app.router.add_post("/faults/{name}", _fault_maker(stage))
            async with _served(app, self._options.port) as url:
                _say(url)
                _say(f"\nexport KUBECONFIG={shlex.quote(str(kubeconfig))}")
                for command in _commands(stage, f"kubectl --kubeconfig {shlex.quote(str(kubeconfig))}"):
                    _say(f"  {command}")
                _say("\nCtrl-C ends it." if stage.kube.simulated else "\nCtrl-C ends it, and deletes what it made.")
                await self._busy(stage, hands, load)

    async def _busy(self, stage: Stage, hands: Hands, load: Load) -> None:
        """Pods come and go, for ever."""
        most = self._options.pods or LIVE_PODS
        runs_s: dict[str, int] = {}
        for kind in fitted(SERVICES, stage.kube.nodes):
            await hands.create("replicasets", load.service(kind))
        while True:
            await asyncio.sleep(load.pause_s())
            now = time.time()
            with contextlib.suppress(FarSideError):  # the page says which side does not answer
                if sum(not life.ended for life in hands.lives.values()) < most:
                    pod, seconds = load.next_pod()
                    runs_s[await hands.create("pods", pod)] = seconds
                for uid in [uid for uid in runs_s if uid in hands.lives]:
                    if _is_over(hands.lives[uid], runs_s[uid], now):
                        await hands.delete("pods", hands.lives[uid].name)
                        del runs_s[uid]
            hands.forget(now - LINGER_S)


def _is_over(life: Life, runs_s: int, now: float) -> bool:
    """It has ended a while ago; or it should have, where nothing really runs."""
    if life.ended is not None:
        return now > life.ended + LINGER_S
    return life.bound is not None and now > life.bound + runs_s + OUTLIVED_S


async def _tidy(stage: Stage, hands: Hands) -> None:
    """Leave nothing behind on a real end; the bridge still runs, and ends the jobs."""
    if stage.kube.simulated and stage.slurm.simulated:
        return
    try:
        async with asyncio.timeout(TIDY_S):
            stage.cable.cut = False
            await hands.clear()
            while stage.promises.ours() or await hands.pods():  # noqa: ASYNC110 - asked, not told
                await asyncio.sleep(AGAIN_S)
            if not stage.kube.simulated:
                await hands.close()
    except TimeoutError:
        left = ", ".join(f"Slurm job {job.id}" for job in stage.promises.ours())
        where = "" if stage.kube.simulated else f"namespace {stage.kube.space}; "
        print(f"slurm-bridge: not all could be tidied up: {where}{left}", file=sys.stderr)  # noqa: T201 - the one line
    except FarSideError as error:
        print(f"slurm-bridge: not all could be tidied up: {said(error)}", file=sys.stderr)  # noqa: T201


@contextlib.contextmanager
def _kubeconfig(stage: Stage) -> Iterator[Path]:
    """A kubeconfig of the simulated Kubernetes, for as long as it lives; of a real one, the one that was given."""
    if stage.kube.simulated is None:
        yield Path(stage.kube.kubeconfig)
        return
    name = "slurm-bridge-dev"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": stage.kube.access.server}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": stage.kube.space}}],
        "current-context": name,
    }
    with tempfile.TemporaryDirectory(prefix="slurm-bridge-dev-") as folder:  # 0700
        path = Path(folder) / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        yield path


def _commands(stage: Stage, kubectl: str) -> list[str]:
    """What somebody may want to try.  On a real Kubernetes the pods are of another scheduler, in another namespace."""
    real = stage.kube.simulated is None
    kubectl += f" -n {stage.kube.space}" if real else ""
    commands = [f"{kubectl} get pods -o wide -w"]
    if EXAMPLE.exists():
        example = shlex.quote(os.path.relpath(EXAMPLE))
        rename = f"s/schedulerName: .*/schedulerName: {stage.kube.scheduler_name}/"
        piped = f"sed {shlex.quote(rename)} {example} | {kubectl} apply -f -"
        commands.append(piped if real else f"{kubectl} apply -f {example}")
    return commands


def _fault_maker(stage: Stage) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def make(request: web.Request) -> web.StreamResponse:
        # Another site's page can send a form here, but no header of its own.
        if "X-Slurm-Bridge" not in request.headers:
            return web.json_response(
                {"note": "faults are made by the page, with the header X-Slurm-Bridge"}, status=403
            )
        name = request.match_info["name"]
        if name not in FAULTS:
            return web.json_response({"note": f"there is no fault {name}"}, status=404)
        return web.json_response({"note": await stage.make(name)})

    return make


@asynccontextmanager
async def _served(app: web.Application, port: int) -> AsyncIterator[str]:
    """Raises ConfigError where the port cannot be had."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, LOOPBACK, port).start()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else "it cannot be had"
            raise ConfigError(f"port {port}: {why}. Choose another one with --port.") from None
        yield f"http://{LOOPBACK}:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first

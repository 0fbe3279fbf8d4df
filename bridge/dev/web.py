"""The page of `slurm-bridge dev`: served, with its buttons, files for kubectl and for our own commands, and pods that come
and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from aiohttp import web

from bridge.cli.terminal import say
from bridge.dev.faults import FAULTS
from bridge.dev.headless import OUTLIVED_S
from bridge.dev.load import SERVICES, Load, fitted
from bridge.dev.session import Session
from bridge.dev.workload_client import PodHistory, WorkloadClient
from bridge.errors import ConfigError, RemoteError
from bridge.health import explained, released
from bridge.http_access import sign
from bridge.node_survey import NodeSurvey
from bridge.page.feed import Entry, entries_of
from bridge.page.server import Page
from bridge.readiness import degraded, not_ready, readiness, undecoded
from bridge.simulation.http import LOOPBACK

PROGRAM, PLUGIN = "slurm-bridge", "kubectl-slurm"
NOT_STARTED = "the bridge has not started"
LINGER_S = 20.0  # a pod that has ended can be looked at for so long
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pod.yaml"


async def show(session: Session, workload_client: WorkloadClient, load: Load, *, most: int, port: int) -> None:
    """Until it is cancelled.  most: pods at a time.  Raises ConfigError, RemoteError if it cannot begin."""
    with tempfile.TemporaryDirectory(prefix="slurm-bridge-dev-") as name:  # 0700
        folder = Path(name)
        kubeconfig = _kubeconfig(session, folder)
        about: dict[str, Any] = {"title": "dev", "kubernetes": session.kube.version, "slurm": session.slurm.version}
        about["commands"] = [f"export KUBECONFIG={shlex.quote(str(kubeconfig))}", *_commands(session, "kubectl")]

        def look() -> Iterator[Entry]:
            yield from session.look()
            yield from entries_of({"about": {**about, "process": session.invariants.process}})

        app = Page(look, session.detail, time.time).application()
        app.router.add_post("/faults/{name}", _fault_maker(session))
        _answers_commands(app, session)
        async with _served(app, port) as url:
            settings = _settings(session, folder, kubeconfig, url)
            _print_addresses(session, url, kubeconfig, settings)
            await _busy(session, workload_client, load, most)


def _print_addresses(session: Session, url: str, kubeconfig: Path, settings: Path) -> None:
    quoted = shlex.quote(str(kubeconfig))
    tidies = session.kube.simulated is None or session.slurm.simulated is None
    lines = [url, "", "In another terminal:", f"export KUBECONFIG={quoted}"]
    lines += [f"  {command}" for command in _commands(session, f"kubectl --kubeconfig {quoted}")]
    looks = ("doctor", f"explain {session.kube.space}/POD")
    lines += [f"  {_program(PROGRAM)} {arguments} --config {shlex.quote(str(settings))}" for arguments in looks]
    lines += [f"  {_program(PLUGIN)} queue --kubeconfig {quoted}", f"  {_program(PLUGIN)} free --bridge {url}"]
    lines += ["", "Ctrl-C ends the demo, and deletes what it made." if tidies else "Ctrl-C ends the demo."]
    say("\n".join(lines))


async def _busy(session: Session, workload_client: WorkloadClient, load: Load, most: int) -> None:
    """Create pods, and delete the pods that are over, for ever."""
    runs_s: dict[str, int] = {}
    for kind in fitted(SERVICES, session.kube.nodes):
        await workload_client.create("replicasets", load.service(kind))
    while True:
        await asyncio.sleep(load.pause_s())
        now = time.time()
        with contextlib.suppress(RemoteError):  # the page says which side does not answer
            if sum(not history.ended for history in workload_client.histories.values()) < most:
                pod, seconds = load.next_pod()
                runs_s[await workload_client.create("pods", pod)] = seconds
            for uid, seconds in runs_s.items():
                if _is_over(workload_client.histories[uid], seconds, now):
                    await workload_client.delete("pods", workload_client.histories[uid].name)
        workload_client.forget(now - LINGER_S)
        runs_s = {uid: seconds for uid, seconds in runs_s.items() if uid in workload_client.histories}


def _is_over(history: PodHistory, runs_s: int, now: float) -> bool:
    """True if the pod ended a while ago, or should have ended in a simulation, where nothing runs."""
    if history.gone:
        return False
    if history.ended is not None:
        return now > history.ended + LINGER_S
    return history.bound is not None and now > history.bound + runs_s + OUTLIVED_S


# --- for the commands that look at it -----------------------------------------------------------------------------


def _answers_commands(app: web.Application, session: Session) -> None:
    """The endpoints that `explain`, `doctor`, `release` and `kubectl slurm` use, answered by the bridge of that moment."""

    async def ready(_: web.Request) -> web.StreamResponse:
        world, now = session.world, time.time()
        if world is None:
            return readiness([NOT_STARTED])
        return readiness(not_ready(world, [session.slurm.tokens], now), undecoded(world), *degraded(world, now))

    async def explain(request: web.Request) -> web.StreamResponse:
        world = session.world
        return explained(world, request, time.time()) if world else readiness([NOT_STARTED])

    async def nodes(_: web.Request) -> web.StreamResponse:
        world = session.world
        if world is None:
            return readiness([NOT_STARTED])
        return web.Response(body=await NodeSurvey().body(world, time.time()), content_type="application/json")

    async def release(request: web.Request) -> web.StreamResponse:
        bridge = session.bridge
        return released(bridge.loop, request, time.time()) if bridge else readiness([NOT_STARTED])

    app.on_response_prepare.append(sign)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/explain", explain)
    app.router.add_get("/nodes", nodes)
    app.router.add_post("/release", release)


def _settings(session: Session, folder: Path, kubeconfig: Path, url: str) -> Path:
    """Settings with both clusters and the policy of this demo, and the usual times: a real bridge can use them, too."""
    token_file = Path(session.slurm.token_file).absolute() if session.slurm.token_file else None
    if session.slurm.simulated is not None:
        token_file = _write(folder / "token", session.slurm.tokens.token())
    content = session.settings.model_dump(mode="json", exclude_unset=True, include={"scheduler_name", "policy"})
    content |= {"kubeconfig": str(kubeconfig.absolute()), "slurm_url": session.slurm.url}
    content |= {"slurm_token_file": str(token_file)} if token_file else {}
    content |= {"http": urlsplit(url).netloc}
    return _write(folder / "settings.yaml", yaml.safe_dump(content, sort_keys=False))


def _program(name: str) -> str:
    """A program of this package, as it can be typed here."""
    here = Path(sys.executable).with_name(name)
    return name if shutil.which(name) or not here.exists() else shlex.quote(os.path.relpath(here))


def _write(path: Path, text: str) -> Path:
    """For its owner alone."""
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def _kubeconfig(session: Session, folder: Path) -> Path:
    """A kubeconfig of the simulated Kubernetes while it runs; for a real one, the given kubeconfig."""
    if session.kube.simulated is None:
        return Path(session.kube.kubeconfig)
    name = "slurm-bridge-dev"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": session.kube.access.server}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": session.kube.space}}],
        "current-context": name,
    }
    return _write(folder / "kubeconfig", yaml.safe_dump(content))


def _commands(session: Session, kubectl: str) -> list[str]:
    """Commands to try.  On a real Kubernetes the pods name another scheduler, in another namespace."""
    real = session.kube.simulated is None
    kubectl += f" -n {session.kube.space}" if real else ""
    commands = [f"{kubectl} get pods -o wide -w"]
    if EXAMPLE.exists():
        example = shlex.quote(os.path.relpath(EXAMPLE))
        rename = f"s/schedulerName: .*/schedulerName: {session.kube.scheduler_name}/"
        piped = f"sed {shlex.quote(rename)} {example} | {kubectl} apply -f -"
        commands.append(piped if real else f"{kubectl} apply -f {example}")
    return commands


def _fault_maker(session: Session) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def make(request: web.Request) -> web.StreamResponse:
        # Another site's page can send a form here, but no header of its own.
        if "X-Slurm-Bridge" not in request.headers:
            return web.json_response(
                {"note": "faults are made by the page, with the header X-Slurm-Bridge"}, status=403
            )
        name = request.match_info["name"]
        if name not in FAULTS:
            return web.json_response({"note": f"there is no fault {name}"}, status=404)
        return web.json_response({"note": await session.make(name)})

    return make


@asynccontextmanager
async def _served(app: web.Application, port: int) -> AsyncIterator[str]:
    """Raises ConfigError if the port cannot be had."""
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

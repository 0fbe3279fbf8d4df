"""`slurm-bridge dev`: the real bridge between two clusters that are simulated or real, on a page or in the terminal."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from bridge.cli.terminal import say, tell
from bridge.dev import backends
from bridge.dev.headless import Run, StalledError, exit_code
from bridge.dev.load import IMAGE, KINDS, SERVICES, Load, fitted
from bridge.dev.session import Session
from bridge.dev.web import show
from bridge.dev.workload_client import AGAIN_S, WorkloadClient
from bridge.errors import ConfigError, RemoteError, said
from bridge.kube.transport import opened

LAST_PORT = 65535
LIVE_PODS = 24  # on the page, at a time
HEADLESS_PODS = 12
GIVE_UP_S = 60.0
A_POD_S = 2.0
TIDY_S = 120.0  # a busy cluster needs long to delete a namespace
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Options:
    """The command line.  pods None: the default number; kubeconfig or slurm_url "": simulated; port None: any free port."""

    seed: int = 1
    pods: int | None = None
    headless: bool = False
    output: str = "text"
    kubeconfig: str = ""
    slurm_url: str = ""
    slurm_token_file: str = ""
    slurm_user: str = ""
    image: str = ""
    port: int | None = None


def main(options: Options) -> int:
    """Exit code 0; 1 if an invariant was violated, a pod failed or the run stalled.  Raises ConfigError."""
    _check(options)
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    logging.getLogger("slurm-bridge").addHandler(logging.NullHandler())
    return asyncio.run(_Dev(options).run())


def _check(options: Options) -> None:
    """Raises ConfigError for options that would have no effect."""
    if options.pods is not None and options.pods < 1:
        raise ConfigError(f"--pods {options.pods}: at least 1 pod is needed.")
    if options.port is not None and not 0 <= options.port <= LAST_PORT:
        raise ConfigError(f"--port {options.port}: a port is a number from 0 (any free one) to {LAST_PORT}.")
    if options.port is not None and options.headless:
        raise ConfigError("--port has no effect with --headless, which serves no page: remove one of the two options.")
    for option, given, needs, there in (
        ("-o json", options.output == "json", "--headless", options.headless),
        ("--slurm-token-file", options.slurm_token_file, "--slurm-url URL", options.slurm_url),
        ("--slurm-user", options.slurm_user, "--slurm-url URL", options.slurm_url),
        ("--image", options.image, "--kubeconfig FILE", options.kubeconfig),
    ):
        if given and not there:
            raise ConfigError(f"{option} has an effect only with {needs}: add {needs}, or remove {option}.")


class _Dev:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._began = time.time()

    async def run(self) -> int:
        """Run until the end, or until a signal."""
        task = asyncio.create_task(self._run())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)  # a second Ctrl-C ends the program at once
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, _end_once, task)
        try:
            return await task
        except asyncio.CancelledError:
            return INTERRUPTED if self._options.headless else 0
        except ExceptionGroup as errors:
            raise _first(errors) from None

    async def _run(self) -> int:
        options = self._options
        async with AsyncExitStack() as stack:
            kube, slurm = await backends.both(
                stack,
                kubeconfig=options.kubeconfig,
                slurm_url=options.slurm_url,
                token_file=options.slurm_token_file,
                user=options.slurm_user,
                seed=options.seed,
            )
            transport = opened(kube.access, stack)
            workload_client = WorkloadClient(transport, kube.space, time.time)
            load = Load(fitted(KINDS, kube.nodes), kube.scheduler_name, options.seed, options.image or IMAGE)
            session = Session(kube, slurm, options.seed)
            if kube.simulated is None:
                await workload_client.open()
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(session.run()), group.create_task(workload_client.watch())]
                try:
                    return await self._present(session, workload_client, load)
                finally:
                    await _tidy(session, workload_client)
                    for task in background:
                        task.cancel()
        raise AssertionError("_present returns or raises")

    async def _present(self, session: Session, workload_client: WorkloadClient, load: Load) -> int:
        if self._options.headless:
            return await self._headless(session, workload_client, load)
        try:
            await show(
                session, workload_client, load, most=self._options.pods or LIVE_PODS, port=self._options.port or 0
            )
        except RemoteError as error:
            raise ConfigError(said(error)) from None
        return 0

    # --- in the terminal ------------------------------------------------------------------------------------------

    async def _headless(self, session: Session, workload_client: WorkloadClient, load: Load) -> int:
        pods = self._options.pods or HEADLESS_PODS
        run = Run(session, workload_client, load, pods, self._print_event, GIVE_UP_S + A_POD_S * pods)
        stalled = ""
        self._print_event(
            "", f"Kubernetes {session.kube.version}, Slurm {session.slurm.version}; the real bridge between them"
        )
        try:
            await run.go(fitted(SERVICES, session.kube.nodes))
        except StalledError as error:
            stalled = str(error)
        except RemoteError as error:
            stalled = said(error)
        finally:
            workload_client.on_change = lambda _life: None
        result = run.result() | ({"stalled": stalled} if stalled else {})
        if self._options.output == "json":
            say(json.dumps(result))
        else:
            self._sum_up(result)
        if stalled:
            tell(f"slurm-bridge: {stalled}")
        return exit_code(result)

    def _print_event(self, subject: str, event: str) -> None:
        if self._options.output != "json":
            say(f"{time.time() - self._began:8.3f}  {subject:<16} {event}" if subject else f"\n{'':10}— {event}")

    def _sum_up(self, result: dict[str, Any]) -> None:
        checks = sum(result["checked"].values())
        kept = (
            "all invariants held" if not result["violations"] else "INVARIANTS BROKEN: " + "; ".join(result["broken"])
        )
        counts = f"{result['bound']:,} of {result['pods']:,} pods bound, {result['failed']:,} failed"
        self._print_event("", f"{counts}; {kept} ({checks:,} checks)")
        for name, key in (("at once", "at_once"), ("all", "all")):
            took = result["create_to_bind_ms"][key]
            if took["n"]:
                at = ", ".join(f"{key} {took[key]:.0f} ms" for key in ("p50", "p90", "p99", "max"))
                say(f"{'':12}create → bind, {name} ({took['n']} pods): {at}")


def _end_once(task: asyncio.Task[int]) -> None:
    """Cancel once: a closed terminal sends its signal twice, and the second must not interrupt the clean-up."""
    if not task.cancelling():
        task.cancel()


async def _tidy(session: Session, workload_client: WorkloadClient) -> None:
    """Delete all pods and the namespace in a real cluster.  The bridge still runs, and ends the jobs."""
    if session.kube.simulated and session.slurm.simulated:
        return
    try:
        async with asyncio.timeout(TIDY_S):
            session.cable.cut = False
            await workload_client.clear()
            while await workload_client.pods() or session.left:  # noqa: ASYNC110 - polled
                await asyncio.sleep(AGAIN_S)
            if not session.kube.simulated:
                await workload_client.close()
    except TimeoutError:
        left = ", ".join(f"Slurm job {job.id}" for job in session.invariants.ours())
        where = "" if session.kube.simulated else f"namespace {session.kube.space}; "
        tell(f"slurm-bridge: not everything could be deleted: {where}{left}")
    except RemoteError as error:
        tell(f"slurm-bridge: not everything could be deleted: {said(error)}")


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first

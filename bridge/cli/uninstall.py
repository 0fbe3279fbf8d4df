"""`slurm-bridge uninstall`: remove what the bridge put into both clusters, then end (docs/operations.md lists it).

The command runs a bridge that uninstalls itself (scheduler/rules/uninstall.py), with the same World, loop and executor.  So
the rules of a bridge apply: the command reads before it ends anything, handles unknown outcomes, and waits for the end of an
outage.  The command keeps no state: if it is killed and started again, it lists both clusters and continues.

The command ends when nothing is left to do.  With the setting `lease` it works only while it holds the Lease, under its own
name, and does not begin while a bridge renews the Lease.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence

from bridge import app
from bridge.app import Clusters
from bridge.cli.terminal import printable, say, tell
from bridge.errors import ConfigError
from bridge.event_loop import new_event_loop
from bridge.kube.lease import Lease
from bridge.settings import Settings
from scheduler.rules import uninstall
from scheduler.state.world import World

CHECK_EVERY_S = 1.0  # between two checks of what is left
STATUS_EVERY_S = 5.0  # between two lines about the remaining work
NODES_S = 5.0  # between two polls of Slurm's nodes, at most
MOST_NAMED = 3  # things to do that a line names
EXIT_STOPPED = 1


def main(settings: Settings, *, end_pods: bool = False, dry_run: bool = False) -> int:
    """Returns the exit code: 0 if nothing is left; 1 if the command was stopped before that.  Raises ConfigError.

    end_pods   running pods are ended; otherwise they run to their end
    dry_run    the changes are printed and not made
    """
    work = Uninstall(dry_run=dry_run)
    how = uninstall.END if end_pods else uninstall.WAIT
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(app.run(_for_this(settings, dry_run=dry_run), act=work.act, leaving=how))
    if work.done:
        return 0
    tell("slurm-bridge: stopped before everything was removed. Start the command again to continue.")
    return EXIT_STOPPED


def _for_this(settings: Settings, *, dry_run: bool) -> Settings:
    """The settings of the bridge, under another name in the Lease; a dry run works beside a bridge."""
    changed: dict[str, object] = {"nodes_interval_s": min(NODES_S, settings.nodes_interval_s)}
    if dry_run:
        changed |= {"lease": None, "http": ""}
    elif settings.lease is not None:
        own = f"uninstall@{settings.lease.terms(os.environ).identity}"
        changed["lease"] = settings.lease.model_copy(update={"identity": own})
    return settings.model_copy(update=changed)


class Uninstall:
    """One run of the command.

    done     nothing is left; in a dry run: all changes were printed
    """

    def __init__(self, *, dry_run: bool = False) -> None:
        self.done = False
        self._dry_run = dry_run
        self._printed, self._printed_at = "", time.monotonic()

    async def act(self, clusters: Clusters, lease: Lease | None, signalled: asyncio.Event) -> None:
        """Work until nothing is left, or the event is set.  Raises ConfigError if a bridge is at work."""
        if self._dry_run:
            clusters.connections.let_write(lambda: False)
        if lease is not None:
            replica = clusters.replica(lease)
            working = replica.run(signalled)
            watching = self._watch(
                lambda: replica.now.world if replica.now is not None else None, lease, clusters.clock
            )
        else:
            bridge = clusters.bridge()
            working = app.until_signalled(bridge, signalled)
            watching = self._watch(lambda: bridge.world, None, clusters.clock)
        await self._until_done(working, watching, signalled)

    async def _until_done(
        self,
        working: Coroutine[object, object, None],
        watching: Coroutine[object, object, None],
        signalled: asyncio.Event,
    ) -> None:
        """Let the bridge work, and stop it when nothing is left."""
        bridge = asyncio.create_task(working, name="bridge")
        watch = asyncio.create_task(watching, name="watch the remaining work")
        try:
            await asyncio.wait((bridge, watch), return_when=asyncio.FIRST_COMPLETED)
            signalled.set()
            await bridge
            if watch.done():
                watch.result()
                self.done = True
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self, world: Callable[[], World | None], lease: Lease | None, clock: Callable[[], float]) -> None:
        """Return when nothing is left, or when a dry run has printed all changes.  Raises ConfigError if a bridge is at work.

        world   returns the bridge's World; None: the bridge waits for the lease
        """
        while True:
            known = world()
            if known is None:
                assert lease is not None, "without a lease there is a world from the start"
                self._print_status(_waits_for(lease))
            elif self._dry_run:
                if not (why := uninstall.why_incomplete(known)):
                    self._print_steps(known, uninstall.left_to_remove(known, clock()))
                    return
                self._print_status(why)
            else:
                why, todo = uninstall.waits_for(known, clock()), uninstall.left_to_remove(known, clock())
                if not why and not todo:
                    _print(_nothing_left(known))
                    return
                self._print_status(" ".join(filter(None, (why, _in_short(todo)))))
            await asyncio.sleep(CHECK_EVERY_S)

    def _print_status(self, sentence: str) -> None:
        """Print this sentence about the remaining work if it has changed, at most every STATUS_EVERY_S."""
        now = time.monotonic()
        if sentence != self._printed and now - self._printed_at >= STATUS_EVERY_S:
            self._printed, self._printed_at = sentence, now
            _print(sentence)

    def _print_steps(self, world: World, todo: Sequence[str]) -> None:
        _print("slurm-bridge uninstall would:" if todo else _nothing_left(world))
        for remaining in todo:
            _print(f"  {remaining}")


def _waits_for(lease: Lease) -> str:
    """Why the command does not hold the lease yet.  Raises ConfigError if a bridge renews the lease."""
    if lease.rival:
        namespace = lease.terms.namespace
        raise ConfigError(
            f"{lease.rival} holds the lease {lease.terms.readable} and renews it, so a bridge is running.",
            f"Stop it first: kubectl --namespace={namespace} scale deployment/slurm-bridge --replicas=0",
        )
    if lease.trouble:
        return lease.trouble
    return f"Waiting for the lease {lease.terms.readable}" + (f", which names {lease.holder}." if lease.holder else ".")


def _in_short(todo: Sequence[str]) -> str:
    """The first steps that are still to do, and the number of the others."""
    if not todo:
        return ""
    more = f"; and {len(todo) - MOST_NAMED:,} more" if len(todo) > MOST_NAMED else ""
    return f"Still to do: {'; '.join(todo[:MOST_NAMED])}{more}."


def _nothing_left(world: World) -> str:
    ours = (workload for workload in world.workloads.values() if not workload.of_other_scheduler)
    waiting = sum(not workload.node_of(pod) for workload in ours for pod in workload.members)
    if waiting == 1:
        named = " 1 pod names it as its scheduler and waits; its condition says so."
    else:
        named = f" {waiting:,} pods name it as their scheduler and wait; their conditions say so." if waiting else ""
    return f"Nothing of slurm-bridge is left in Slurm and on the nodes of Kubernetes.{named}"


def _print(line: str) -> None:
    say(printable(line))

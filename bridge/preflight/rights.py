"""The rights in Kubernetes that the bridge needs, and the namespaces in which a right is missing.

CLUSTER     everywhere: to list and watch pods, nodes and namespaces.  Without these rights the bridge does not start
NAMESPACE   in each managed namespace: to bind its pods, to write on them and to end them.  A RoleBinding in each namespace
            gives these rights (manifests/namespace).  If one is missing, pods of that namespace wait, and all others go on
NODE        to taint labelled nodes, and to write their condition SlurmReady

Rights may be withdrawn and granted while the bridge runs: it reports that, and goes on without a restart.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from bridge.errors import RemoteError, Unauthorized
from bridge.kube.client import KubeClient
from scheduler import names
from scheduler.events import Event, RightsChecked
from scheduler.state.world import World

Right = tuple[str, str, str, str]  # verb, resource, API group, subresource

CLUSTER: tuple[Right, ...] = (
    ("list", "pods", "", ""),
    ("watch", "pods", "", ""),
    ("list", "nodes", "", ""),
    ("watch", "nodes", "", ""),
    ("list", "namespaces", "", ""),
    ("watch", "namespaces", "", ""),
)
NAMESPACE: tuple[Right, ...] = (
    ("delete", "pods", "", ""),
    ("patch", "pods", "", ""),
    ("patch", "pods", "", "status"),
    ("create", "pods", "", "binding"),
    ("create", "pods", "", "eviction"),
    ("patch", "persistentvolumeclaims", "", ""),
    ("create", "events", "", ""),
    ("patch", "events", "", ""),
)
NODE: tuple[Right, ...] = (
    ("get", "nodes", "", ""),
    ("patch", "nodes", "", ""),
    ("patch", "nodes", "", "status"),
)
ESSENTIAL: tuple[Right, ...] = (  # without one of them no job is submitted: its pods could not be bound, or not ended
    ("delete", "pods", "", ""),
    ("patch", "pods", "", ""),
    ("create", "pods", "", "binding"),
)
SAYS: Right = ("patch", "pods", "", "status")
EVERYWHERE = ""  # in the place of a namespace
CHECK_EVERY_S = 2.0  # between two checks which namespaces are due; a check sends no request
ASK_AGAIN_S = 5.0  # where a right is missing, or a request was refused
ASK_EVERYWHERE_S = 30.0  # for CLUSTER and NODE: a watch that runs does not notice that its right is gone
ASK_RARELY_S = 600.0  # in a namespace where none is missing: a refused request shows a loss at once
CHECKED_AT_ONCE = 20  # namespaces
NOT_ACCEPTED = 401
MOST_NAMED = 3  # namespaces that /readyz names

log = logging.getLogger("slurm-bridge")


async def missing(kube: KubeClient, rights: Sequence[Right], namespace: str = "") -> list[Right]:
    """The rights that the bridge lacks in that namespace ("": in all namespaces).  Raises RemoteError."""
    held = await asyncio.gather(
        *(
            kube.can_i(verb, resource, group=group, subresource=subresource, namespace=namespace)
            for verb, resource, group, subresource in rights
        )
    )
    return [right for right, has in zip(rights, held, strict=True) if not has]


async def missing_in(kube: KubeClient, namespaces: Iterable[str]) -> dict[str, list[Right]]:
    """The missing rights of NAMESPACE, by namespace; namespaces that lack none are left out.  Raises RemoteError."""
    not_everywhere = await missing(kube, NAMESPACE)
    if not not_everywhere:
        return {}
    found = {namespace: await missing(kube, not_everywhere, namespace) for namespace in sorted(namespaces)}
    return {namespace: lacking for namespace, lacking in found.items() if lacking}


def spelled(rights: Iterable[Right]) -> str:
    """As kubectl names them: "create pods/binding, patch events"."""
    return ", ".join(f"{verb} {resource}{'/' + sub if sub else ''}" for verb, resource, _, sub in rights)


def remedy(namespace: str, bridge: str, lacking: Sequence[Right]) -> str:
    """What gives the rights of NAMESPACE to the bridge of that `scheduler_name`.

    The file of the command names the account of the bridge slurm-bridge.  Other bridges are releases of the chart.

    lacking   if these are not all, the namespace has its RoleBinding, and the ClusterRole that it names lacks rights
    """
    if len(lacking) < len(NAMESPACE):
        if bridge != names.SCHEDULER_NAME:
            return f"the ClusterRole of {bridge} lacks them; helm upgrade its release of the chart (docs/scale.md)."
        return (
            "kubectl apply -f manifests/base/rbac.yaml (the ClusterRole slurm-bridge-namespace lacks them; with Helm: "
            "helm upgrade)"
        )
    if bridge != names.SCHEDULER_NAME:
        return f"name {namespace} under `namespaces` in the values of {bridge}'s release of the chart (docs/scale.md)."
    # Helm would not take over a RoleBinding that kubectl made.
    return (
        f"kubectl apply --namespace={namespace} -f manifests/namespace/rolebinding.yaml (with Helm: name {namespace} under "
        "`namespaces` in the values)"
    )


class RightsMonitor:
    """Checks the rights everywhere and in each managed namespace: at once when a namespace is new, then from time to time.

    A refused request leads to a check soon.  A change becomes the event RightsChecked: no job is submitted for pods of a
    namespace without rights, and these pods go on at once when the rights are back.

    world       holds the namespaces; None: no bridge acts yet
    monotonic   seconds
    clock       epoch seconds
    lacking     missing rights by namespace; EVERYWHERE: those of CLUSTER and NODE

    While the API server does not accept the bridge's credentials (401), the bridge has no rights at all.  Open watches go on,
    so this is no outage.
    """

    def __init__(
        self,
        kube: KubeClient,
        world: World | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
        emit: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        self._kube = kube
        self._world = world
        self._monotonic = monotonic
        self._clock = clock
        self._emit = emit
        self._ask_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self.lacking: dict[str, list[Right]] = {}
        self._is_rejected = False
        self._emitted: dict[str, str] | None = None  # what the last event said; None: the world has heard of none

    def follow(self, world: World, emit: Callable[[Event], None]) -> None:
        """Check the namespaces of this world, and emit what is missing."""
        self._world, self._emit, self._emitted = world, emit, None
        if self.lacking or self._is_rejected:
            self._emit_missing()

    def note_refused(self, namespace: str) -> None:
        """A request about an object there was refused for lack of rights.  EVERYWHERE: the object is in no namespace."""
        for name in {namespace, EVERYWHERE} & self._ask_at.keys():
            soon = self._asked_at.get(name, float("-inf")) + ASK_AGAIN_S
            self._ask_at[name] = min(self._ask_at[name], soon)

    @property
    def namespaces(self) -> dict[str, list[Right]]:
        """The missing rights, by managed namespace."""
        return {name: rights for name, rights in self.lacking.items() if name != EVERYWHERE}

    def sentences(self) -> list[str]:
        """A sentence for each of the first namespaces with what is missing and what to do, and one for the others."""
        everywhere = self.lacking.get(EVERYWHERE)
        shown = [self._sentence(namespace, rights) for namespace, rights in sorted(self.namespaces.items())]
        rest = len(shown) - MOST_NAMED
        return (
            ([self._sentence(EVERYWHERE, everywhere)] if everywhere else [])
            + shown[:MOST_NAMED]
            + ([f"Rights are missing in {rest:,} more namespaces; the log names them."] if rest > 0 else [])
        )

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            await self.check()
            await asyncio.sleep(CHECK_EVERY_S)

    async def check(self) -> None:
        """Check the namespaces that are due, at most CHECKED_AT_ONCE; log and emit what has changed."""
        now, world = self._monotonic(), self._world
        wanted = {name for name in world.namespaces or () if world.manages(name)} if world is not None else set()
        if world is not None:
            wanted.add(EVERYWHERE)
        if self._forget(self._ask_at.keys() - wanted):
            self._emit_missing()  # a namespace that is managed again later, and lacks nothing then, is no change
        for name in wanted:
            self._ask_at.setdefault(name, now)
        due = sorted(
            (name for name in wanted if self._ask_at[name] <= now), key=lambda name: (self._ask_at[name], name)
        )
        due = due[:CHECKED_AT_ONCE]
        if not due:
            return
        try:
            found = await self._missing(due)
        except RemoteError as error:  # if Kubernetes is away, the watches report that; what was known stays
            self._asked_at.update(dict.fromkeys(due, now))
            self._ask_at.update(dict.fromkeys(due, now + ASK_AGAIN_S))
            if isinstance(error, Unauthorized) and error.number == NOT_ACCEPTED:
                self._note_credentials(rejected=True)
            return
        self._note_credentials(rejected=False)
        changed = [name for name in due if self._update(name, found.get(name, []))]
        for name in due:
            self._asked_at[name] = now
            rarely = ASK_EVERYWHERE_S if name == EVERYWHERE else ASK_RARELY_S
            self._ask_at[name] = now + (ASK_AGAIN_S if name in found else rarely)
        if changed:
            self._emit_missing()

    def _note_credentials(self, *, rejected: bool) -> None:
        """Emit what is missing for as long as the API server does not accept the credentials, and when it accepts them again.

        Namespaces may become managed meanwhile: the open watches show that.
        """
        if rejected or self._is_rejected:
            self._is_rejected = rejected
            self._emit_missing()

    def _forget(self, gone: Iterable[str]) -> bool:
        """Forget namespaces that are no longer managed.  True if a right was missing in one of them."""
        was_lacking = False
        for name in list(gone):
            del self._ask_at[name]
            self._asked_at.pop(name, None)
            was_lacking = self.lacking.pop(name, None) is not None or was_lacking
        return was_lacking

    async def _missing(self, due: Sequence[str]) -> dict[str, list[Right]]:
        namespaces = [name for name in due if name != EVERYWHERE]
        found = await missing_in(self._kube, namespaces) if namespaces else {}
        if EVERYWHERE in due and (lacking := await missing(self._kube, (*CLUSTER, *NODE))):
            found[EVERYWHERE] = lacking
        return found

    def _update(self, namespace: str, lacking: list[Right]) -> bool:
        """Keep what is missing there; True if it has changed."""
        before = self.lacking.pop(namespace, [])
        if lacking:
            self.lacking[namespace] = lacking
            if lacking != before:
                log.warning("%s", self._sentence(namespace, lacking))
        elif before:
            where = f"in namespace {namespace}" if namespace else "everywhere"
            log.info("Kubernetes: all rights are there %s now", where)
        return lacking != before

    def _emit_missing(self) -> None:
        """Emit the namespaces in which pods cannot be bound or ended, if they have changed.

        While this replica stands by, no loop takes the events, so they must not gather.
        """
        waits = {name: rights for name, rights in self.namespaces.items() if not set(ESSENTIAL).isdisjoint(rights)}
        said = {name: "" if SAYS in rights else self._sentence(name, rights) for name, rights in waits.items()}
        if self._is_rejected and self._world is not None:
            said = {name: "" for name in self._world.namespaces or () if self._world.manages(name)}
        if said != self._emitted:
            self._emitted = said
            self._emit(RightsChecked(said, self._clock()))

    def _sentence(self, namespace: str, rights: list[Right]) -> str:
        bridge = names.SCHEDULER_NAME if self._world is None else self._world.config.scheduler_name
        if namespace == EVERYWHERE:
            blind = not set(CLUSTER).isdisjoint(rights)
            what = (
                "what changes there is not seen, and pods wait"
                if blind
                else "nodes are not tainted, and do not say how Slurm sees them"
            )
            return (
                f"Kubernetes: slurm-bridge may not {spelled(rights)} in all namespaces, so {what}. "
                "Give it the ClusterRole slurm-bridge: kubectl apply -f manifests/base/rbac.yaml"
            )
        effect = (
            "its pods wait" if not set(ESSENTIAL).isdisjoint(rights) else "its pods lack a part of the bridge's work"
        )
        return (
            f"Kubernetes: slurm-bridge may not {spelled(rights)} in namespace {namespace}, so {effect}. "
            f"Give it the rights: {remedy(namespace, bridge, rights)}"
        )

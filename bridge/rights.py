"""What the bridge may do in Kubernetes, and where a right is missing.

CLUSTER     everywhere: to see pods, nodes and namespaces.  Without them the bridge knows nothing, and does not start
NAMESPACE   in each managed namespace: to bind, report on and end its pods.  A RoleBinding in each gives them
            (manifests/namespace), so one may be missing in one namespace: its pods wait, and all others go on
NODE        to taint labelled nodes and to say on them how Slurm sees them; asked for by `slurm-bridge doctor`
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from bridge.errors import FarSideError
from bridge.kube.client import KubeClient
from scheduler.world import World

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
LOOK_EVERY_S = 2.0  # at which namespaces are managed now; that costs no call
ASK_AGAIN_S = 30.0  # where a right is missing
ASK_RARELY_S = 600.0  # where none is: rights can be taken away
TOLD = 3  # so many namespaces are named in /readyz

log = logging.getLogger("slurm-bridge")


async def missing(kube: KubeClient, rights: Sequence[Right], namespace: str = "") -> list[Right]:
    """Those of `rights` that we do not have in that namespace; "": in all namespaces.  Raises FarSideError."""
    held = await asyncio.gather(
        *(
            kube.can_i(verb, resource, group=group, subresource=subresource, namespace=namespace)
            for verb, resource, group, subresource in rights
        )
    )
    return [right for right, has in zip(rights, held, strict=True) if not has]


async def missing_in(kube: KubeClient, namespaces: Iterable[str]) -> dict[str, list[Right]]:
    """Which rights of NAMESPACE are missing, by namespace; a namespace that has all is left out.  Raises FarSideError."""
    not_everywhere = await missing(kube, NAMESPACE)
    if not not_everywhere:
        return {}
    found = {namespace: await missing(kube, not_everywhere, namespace) for namespace in sorted(namespaces)}
    return {namespace: lacking for namespace, lacking in found.items() if lacking}


def spelled(rights: Iterable[Right]) -> str:
    """As kubectl names them: "create pods/binding, patch events"."""
    return ", ".join(f"{verb} {resource}{'/' + sub if sub else ''}" for verb, resource, _, sub in rights)


def remedy(namespace: str) -> str:
    """The command that gives the rights of NAMESPACE."""
    return f"kubectl apply --namespace={namespace} -f manifests/namespace/rolebinding.yaml"


class NamespaceRights:
    """Asks for the rights in each managed namespace: at once when it is new, and again from time to time.

    world       knows the namespaces; None: no bridge acts yet
    monotonic   seconds
    """

    def __init__(
        self, kube: KubeClient, world: World | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._kube = kube
        self._world = world
        self._monotonic = monotonic
        self._ask_at: dict[str, float] = {}
        self.lacking: dict[str, list[Right]] = {}

    def follow(self, world: World) -> None:
        """From now on the namespaces are those that this bridge knows."""
        self._world = world

    def sentences(self) -> list[str]:
        """What is missing where, and what to do; a sentence for each of the first namespaces, and one for the rest."""
        told = [_sentence(namespace, rights) for namespace, rights in sorted(self.lacking.items())]
        rest = len(told) - TOLD
        return told[:TOLD] + (
            [f"Rights are missing in {rest} more namespaces; the log names them."] if rest > 0 else []
        )

    async def run(self) -> None:
        """For ever; cancel it."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Ask for every namespace that is due; log what has changed."""
        now, world = self._monotonic(), self._world
        managed = {name for name in world.namespaces or () if world.manages(name)} if world is not None else set()
        for gone in self._ask_at.keys() - managed:
            del self._ask_at[gone]
            self.lacking.pop(gone, None)
        due = [name for name in managed if self._ask_at.get(name, now) <= now]
        if not due:
            return
        try:
            found = await missing_in(self._kube, due)
        except FarSideError:  # Kubernetes is away, which the watches report; what was known stays
            self._ask_at.update(dict.fromkeys(due, now + ASK_AGAIN_S))
            return
        for name in due:
            self._take(name, found.get(name, []))
            self._ask_at[name] = now + (ASK_AGAIN_S if name in found else ASK_RARELY_S)

    def _take(self, namespace: str, lacking: list[Right]) -> None:
        before = self.lacking.pop(namespace, [])
        if lacking:
            self.lacking[namespace] = lacking
            if lacking != before:
                log.warning("%s", _sentence(namespace, lacking))
        elif before:
            log.info("Kubernetes: all rights are there in namespace %s now", namespace)


def _sentence(namespace: str, rights: list[Right]) -> str:
    return (
        f"Kubernetes: slurm-bridge may not {spelled(rights)} in namespace {namespace}, so its pods wait. "
        f"Give it the rights: {remedy(namespace)}"
    )

"""The doctor's requests to the API server.  Nothing is changed: the only writes are access reviews."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from bridge.cli.doctor.questions import Questions, ask_all, ask_none, not_seen, observed, sentence, unnamed
from bridge.cli.doctor.views import NotSeen, Observations, Observed, OtherPods, managed_namespaces
from bridge.connections import Connections
from bridge.errors import ConfigError, Unauthorized
from bridge.kube import admin_reads, watch
from bridge.kube.client import KubeClient
from bridge.kube.lists import Query, listed
from bridge.kube.transport import HttpTransport
from bridge.preflight import rights
from bridge.preflight.rights import Right
from bridge.slurm.token import claims_of

T = TypeVar("T")

# Read where a pod has an owner or a volume; without them such pods are scheduled by less (W2, F1).
REFERRED = (
    ("get", "replicasets", "apps", ""),
    ("get", "jobs", "batch", ""),
    ("get", "persistentvolumeclaims", "", ""),
    ("get", "persistentvolumes", "", ""),
    ("get", "storageclasses", "storage.k8s.io", ""),
)
ASK_KUBERNETES_AGAIN = (
    "If the row *rights* names a missing right, give it. "
    "Otherwise run doctor again, and look at the logs of kube-apiserver and etcd."
)
NAME_KUBECONFIG = "Name a kubeconfig that kubectl can use with --kubeconfig FILE."


@dataclass(frozen=True, slots=True)
class _Kubernetes:
    """An API server that answers."""

    seen: Observations
    transport: HttpTransport
    client: KubeClient
    scheduler_name: str

    async def listed(self, query: Query[T]) -> tuple[T, ...]:
        """All objects that can be decoded; `seen.undecoded` receives the others.

        Raises NotSeen without the right to list them, which the row *rights* reports; RemoteError.
        """
        resource = query.path.rpartition("/")[2]
        if not (self.seen.rights.value or {}).get(("list", resource, "", ""), True):
            raise NotSeen(f"Kubernetes does not let this client list {resource}", failed=False)
        all_ = await listed(self.transport, query)
        self.seen.undecoded.extend(all_.undecoded)
        return all_.found

    async def rights(self) -> Mapping[Right, bool]:
        asked = (*rights.CLUSTER, *REFERRED, *rights.NODE)
        lacking = await rights.missing(self.client, asked)
        return {right: right not in lacking for right in asked}

    async def rights_in(self) -> Mapping[str, list[Right]]:
        return await rights.missing_in(self.client, managed_namespaces(self.seen))

    async def other_pods(self) -> OtherPods:
        return OtherPods(await self.listed(watch.other_pods(self.scheduler_name)))


QUESTIONS: Questions[_Kubernetes] = {
    "whoami": lambda kube: admin_reads.whoami(kube.transport),
    "rights": lambda kube: kube.rights(),
    "namespaces": lambda kube: kube.listed(watch.namespaces()),
    "rights_in": lambda kube: kube.rights_in(),  # needs the namespaces
    "nodes": lambda kube: kube.listed(watch.nodes()),
    "ours": lambda kube: kube.listed(watch.our_pods(kube.scheduler_name)),
    "other_pods": lambda kube: kube.other_pods(),
}
NAMESPACES: Questions[_Kubernetes] = {"namespaces": QUESTIONS["namespaces"]}


async def look_at_kubernetes(
    seen: Observations, connections: Connections, questions: Questions[_Kubernetes] = QUESTIONS
) -> None:
    """Ask the questions; if the API server cannot be reached, mark them as not seen."""
    transport = await _connected(seen, connections)
    if transport is None:
        return
    name = seen.usable.scheduler_name
    kube = _Kubernetes(seen, transport, await connections.kube(), name)
    await ask_all(seen, questions, kube, ASK_KUBERNETES_AGAIN)


async def _connected(seen: Observations, connections: Connections) -> HttpTransport | None:
    """The way to an API server that answers; None: there is none."""
    try:
        transport = await connections.transport()
        headers = (await transport.access.credentials()).headers
    except ConfigError as error:
        missing = not_seen(error, "there is no way to Kubernetes", NAME_KUBECONFIG)
        if not os.environ.get("KUBECONFIG"):
            missing = unnamed(seen, "kubeconfig", missing)
        seen.server = Observed(missing=missing)
        ask_none(seen, ("greeting", *QUESTIONS), missing.because)
        return None
    server = transport.access.server
    seen.server = Observed(server)
    token = dict(headers).get("Authorization", "").removeprefix("Bearer ")
    seen.kube_token_expires = claims_of(token).exp
    no_server = "the API server does not answer"
    do = f"Is {server} right, does the server run, does a firewall let this host through?"
    seen.greeting = await observed(lambda: _greeting(transport), no_server, do)
    if seen.greeting.missing is not None:
        ask_none(seen, QUESTIONS, seen.greeting.missing.because)
        return None
    return transport


async def _greeting(transport: HttpTransport) -> admin_reads.Greeting:
    """Raises NotSeen for credentials that are not accepted: the sentence names the credentials, and what to do."""
    try:
        return await admin_reads.greet(transport)
    except Unauthorized as error:
        raise NotSeen(sentence(error), because="the API server does not accept the credentials") from None

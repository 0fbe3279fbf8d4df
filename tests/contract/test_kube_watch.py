"""Lists and watches: which events come, in which order, and what happens at the limits (Kubernetes facts 3)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from bridge.kube.transport import Call, Reply, StreamRefused
from bridge.kube.watch import Listing, Watching, namespaces, nodes, other_pods, our_pods
from scheduler.events import (
    Event,
    NamespaceSeen,
    NamespacesListed,
    NodeDeleted,
    NodeSeen,
    NodesListed,
    PodDeleted,
    PodSeen,
    PodsListed,
    Scope,
)
from scheduler.model.kubernetes import PodPhase
from tests.contract.kube_subjects import MERGE, Kube, Seen, every_forgetful_kube, every_kube  # noqa: F401 -- fixtures

NODE_STATUS = {"allocatable": {"cpu": "63500m", "memory": "500Gi", "pods": "110", "nvidia.com/gpu": "8"}}


def names(event: Event) -> list[str]:
    assert isinstance(event, PodsListed)
    return [pod.name for pod in event.pods]


def gone(events: Sequence[Event]) -> list[str]:
    return [event.pod.name for event in events if isinstance(event, PodDeleted)]


async def test_all_pages_are_one_list(kube: Kube) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await kube.pod(name)
    received = Seen()
    state = await kube.list_watch(our_pods(kube.scheduler), received, page_size=2).step(Listing())
    assert isinstance(state, Watching)
    [listed] = received.events
    assert names(listed) == ["a", "b", "c", "d", "e"]


async def test_an_empty_list_is_an_event_too(kube: Kube) -> None:
    received = Seen()
    await kube.list_watch(our_pods(kube.scheduler), received).step(Listing())
    [listed] = received.events
    assert names(listed) == []


async def test_every_change_after_the_list_is_an_event_in_order(kube: Kube) -> None:
    await kube.pod("a")
    async with kube.watching(our_pods(kube.scheduler)) as received:
        await kube.pod("b")
        await kube.bind("b", "contract-n1")
        await kube.raw("DELETE", kube.path("a"))
        await received.until(lambda events: gone(events) == ["a"])

    assert names(received.events[0]) == ["a"]
    seen = [event for event in received.events if isinstance(event, PodSeen) and event.pod.name == "b"]
    assert [event.pod.node for event in seen] == ["", "contract-n1"]
    assert all(event.scope is Scope.OURS for event in seen)


async def test_a_change_between_list_and_watch_is_not_lost(kube: Kube) -> None:
    received = Seen()
    watch = kube.list_watch(our_pods(kube.scheduler), received)
    state = await watch.step(Listing())
    assert isinstance(state, Watching)
    await kube.pod("a")
    await kube.pod("b")
    await kube.raw("DELETE", kube.path("a"))

    params = {"watch": "true", "resourceVersion": state.version, "fieldSelector": watch.resource.fields}
    async with kube.transport.stream("/api/v1/pods", params=params, stall_s=20) as lines:
        lines_read: list[tuple[str, str]] = []
        async for line in lines:
            change = json.loads(line)
            lines_read.append((change["type"], change["object"]["metadata"]["name"]))
            if lines_read[-1] == ("DELETED", "a"):
                break
    # A pod on no node is first marked, then removed.
    assert lines_read == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_without_changes_ends_at_its_timeout_with_a_bookmark(kube: Kube) -> None:
    received = Seen()
    state = await kube.list_watch(our_pods(kube.scheduler), received).step(Listing())
    assert isinstance(state, Watching)
    params = {
        "watch": "true",
        "resourceVersion": state.version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "4",  # a bookmark comes two seconds before the end
        "fieldSelector": f"spec.schedulerName={kube.scheduler}",
    }
    async with kube.transport.stream("/api/v1/pods", params=params, stall_s=20) as lines:
        lines_read = [json.loads(line) async for line in lines]
    # Nothing but bookmarks; a server where nothing at all happened since has none to give (Kubernetes facts 3).
    assert {line["type"] for line in lines_read} <= {"BOOKMARK"}
    assert all(int(line["object"]["metadata"]["resourceVersion"]) >= int(state.version) for line in lines_read)


async def test_pods_of_other_schedulers_are_listed_only_while_they_are_on_a_node(kube: Kube) -> None:
    await kube.pod("ours")
    await kube.bind("ours", "contract-n1")
    await kube.pod("waiting", schedulerName="another")
    await kube.pod("standing", schedulerName="another")
    await kube.bind("standing", "contract-n1")
    await kube.pod("ended", schedulerName="another")
    await kube.bind("ended", "contract-n1")
    await kube.end("ended", "Succeeded")

    async with kube.watching(other_pods(kube.scheduler)) as received:
        await kube.bind("waiting", "contract-n2")
        await received.until(lambda events: any(isinstance(e, PodSeen) and e.pod.name == "waiting" for e in events))
        await kube.end("standing", "Failed")
        await received.until(lambda events: "standing" in gone(events))

    [listed] = [event for event in received.events if isinstance(event, PodsListed)]
    assert listed.scope is Scope.OTHERS
    assert [pod.name for pod in listed.pods if pod.namespace == kube.namespace] == ["standing"]
    [left] = [event for event in received.events if isinstance(event, PodDeleted) and event.pod.name == "standing"]
    # The event shows the object as it was when it last belonged to the selection.
    assert (left.scope, left.pod.phase) == (Scope.OTHERS, PodPhase.PENDING)


async def test_pods_of_the_bridge_are_still_listed_after_their_end(kube: Kube) -> None:
    await kube.pod("a")
    await kube.bind("a", "contract-n1")
    async with kube.watching(our_pods(kube.scheduler)) as received:
        await kube.end("a", "Succeeded")
        await received.until(lambda events: any(isinstance(e, PodSeen) and e.pod.finished for e in events))
    assert gone(received.events) == []


async def test_nodes_are_read_with_their_resources(kube: Kube) -> None:
    name = kube.namespace[:50]
    spec = {"taints": [{"key": "slurm-bridge/managed", "effect": "NoSchedule"}]}
    try:
        async with kube.watching(nodes()) as received:
            await kube.make("/api/v1/nodes", {"metadata": {"name": name}, "spec": spec, "status": NODE_STATUS})
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "contract"}
            patch = {"status": {"conditions": [{**ready, "lastTransitionTime": "2026-11-21T05:00:00Z"}]}}
            await kube.raw("PATCH", f"/api/v1/nodes/{name}/status", patch, MERGE)
            await received.until(
                lambda events: any(isinstance(e, NodeSeen) and e.node.name == name and e.node.ready for e in events)
            )
            await kube.raw("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, MERGE)
            await received.until(
                lambda events: any(
                    isinstance(e, NodeSeen) and e.node.name == name and e.node.unschedulable for e in events
                )
            )
            await kube.raw("DELETE", f"/api/v1/nodes/{name}")
            await received.until(lambda events: NodeDeleted(name) in events)
    finally:
        await kube.raw("DELETE", f"/api/v1/nodes/{name}")

    assert isinstance(received.events[0], NodesListed)
    node = next(e.node for e in reversed(received.events) if isinstance(e, NodeSeen) and e.node.name == name)
    assert node.allocatable == {"cpu": 63500, "memory": 500 * 2**30, "pods": 110, "nvidia.com/gpu": 8}
    assert "slurm-bridge/managed" in {taint.key for taint in node.taints}


async def test_namespaces_are_read_with_their_labels(kube: Kube) -> None:
    async with kube.watching(namespaces()) as received:
        managed = {"metadata": {"labels": {"slurm-bridge/managed": "true"}}}
        await kube.raw("PATCH", f"/api/v1/namespaces/{kube.namespace}", managed, MERGE)
        await received.until(
            lambda events: any(
                isinstance(e, NamespaceSeen) and "slurm-bridge/managed" in e.namespace.labels for e in events
            )
        )
    [listed] = [event for event in received.events if isinstance(event, NamespacesListed)]
    mine = next(namespace for namespace in listed.namespaces if namespace.name == kube.namespace)
    assert mine.uid != ""
    assert "kube-system" in {namespace.name for namespace in listed.namespaces}


async def test_an_invalid_page_token_starts_the_list_again(kube: Kube) -> None:
    reply = await kube.transport.exchange(
        Call("GET", "/api/v1/pods", params={"limit": "2", "continue": "none"}, deadline_s=10)
    )
    assert reply.status == 400


async def test_a_list_whose_snapshot_has_expired_starts_again(forgetful_kube: Kube) -> None:
    kube = forgetful_kube
    for name in ("a", "b", "c"):
        await kube.pod(name)
    forgetting = _ForgetsAfterOnePage(kube)
    received = Seen()
    watch = kube.list_watch(our_pods(kube.scheduler), received, page_size=2)
    watch.transport = forgetting

    assert await watch.step(Listing()) == Listing()
    assert forgetting.statuses == [200, 410]
    assert received.events == []

    assert isinstance(await watch.step(Listing()), Watching)
    [listed] = received.events
    assert names(listed) == ["a", "b", "c", "d"]


async def test_a_watch_from_an_expired_version_lists_again(forgetful_kube: Kube) -> None:
    kube = forgetful_kube
    await kube.pod("a")
    _, pod = await kube.raw("GET", kube.path("a"))
    await kube.pod("b")
    await kube.subject.forget()

    received = Seen()
    watch = kube.list_watch(our_pods(kube.scheduler), received)
    assert await watch.step(Watching(pod["metadata"]["resourceVersion"])) == Listing()
    assert received.events == []
    await watch.step(Listing())
    assert names(received.events[0]) == ["a", "b"]


async def test_a_watch_of_an_unknown_field_is_refused(kube: Kube) -> None:
    params = {"watch": "true", "fieldSelector": "spec.colour=red"}
    with pytest.raises(StreamRefused) as refused:
        async with kube.transport.stream("/api/v1/pods", params=params, stall_s=20):
            pass
    assert refused.value.reply.status == 400


class _ForgetsAfterOnePage:
    """The same server, which forgets its past after the first page."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.statuses: list[int] = []

    async def exchange(self, call: Call) -> Reply:
        if len(self.statuses) == 1:
            await self.kube.pod("d")  # there must be something after the snapshot for it to be the past
            await self.kube.subject.forget()
        reply = await self.kube.transport.exchange(call)
        self.statuses.append(reply.status)
        return reply

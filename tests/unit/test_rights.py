"""A right that is missing in one namespace is named there, and stops no other namespace; the loss of a right is noticed."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from bridge.errors import Unauthorized, Unreachable
from bridge.kube.client import KubeClient
from bridge.preflight import rights
from bridge.preflight.rights import Right, RightsMonitor
from bridge.settings import Settings
from scheduler.apply.events import new_world
from scheduler.events import Event, RightsChecked
from scheduler.model.kubernetes import Namespace

BIND: Right = ("create", "pods", "", "binding")
MANAGED = {"slurm-bridge/managed": "true"}


class Server:
    """What SelfSubjectAccessReview answers.

    bound       namespaces that have the RoleBinding; "": all
    everywhere  what the ClusterRole gives
    """

    def __init__(self, *bound: str) -> None:
        self.bound = set(bound)
        self.everywhere: set[Right] = {*rights.CLUSTER, *rights.NODE}
        self.without: set[Right] = set()  # in every namespace
        self.away = False
        self.accepts = True
        self.asked = 0

    async def can_i(
        self, verb: str, resource: str, *, group: str = "", subresource: str = "", namespace: str = ""
    ) -> bool:
        if self.away:
            raise Unreachable("check rights", "Kubernetes", "connection refused")
        if not self.accepts:
            raise Unauthorized("authenticate", "Kubernetes", "the API server does not accept its token", 401)
        self.asked += 1
        right = (verb, resource, group, subresource)
        if right in {*rights.CLUSTER, *rights.NODE}:
            return right in self.everywhere
        return right not in self.without and not self.bound.isdisjoint({namespace, ""})


def watching(
    server: Server, bridge: str = "slurm-bridge", **namespaces: dict[str, str]
) -> tuple[RightsMonitor, list[float]]:
    """With a clock that the test moves."""
    world = new_world(Settings(scheduler_name=bridge).config(accounting=False), started=0.0)
    world.namespaces = {name: Namespace(name=name, uid=name, labels=labels) for name, labels in namespaces.items()}
    clock = [0.0]
    return RightsMonitor(cast(KubeClient, server), world, lambda: clock[0], lambda: 0.0, told.append), clock


told: list[Event] = []


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    told.clear()


async def test_a_namespace_without_a_role_binding_is_named_with_what_gives_the_rights(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("hpc")
    found, _ = watching(server, hpc=MANAGED, lab=MANAGED, other={})
    await found.check()
    assert found.lacking == {"lab": list(rights.NAMESPACE)}
    [sentence] = found.sentences()
    assert "may not delete pods, patch pods, patch pods/status, create pods/binding" in sentence
    assert sentence.endswith(
        "kubectl apply --namespace=lab -f manifests/namespace/rolebinding.yaml "
        "(with Helm: name lab under `namespaces` in the values)"
    )
    assert [record.message for record in caplog.records] == [sentence]


@pytest.mark.parametrize(
    ("bridge", "advice"), [("slurm-bridge", "manifests/base/rbac.yaml"), ("second", "helm upgrade")]
)
async def test_a_cluster_role_that_lacks_a_right_is_not_mended_by_a_role_binding(bridge: str, advice: str) -> None:
    server = Server("lab")
    server.without = {BIND}
    monitor, _ = watching(server, bridge, lab=MANAGED)
    await monitor.check()
    [sentence] = monitor.sentences()
    assert advice in sentence
    assert "rolebinding.yaml" not in sentence


async def test_another_bridge_is_not_told_to_give_the_first_one_its_rights() -> None:
    """manifests/namespace/rolebinding.yaml names the account slurm-bridge/slurm-bridge."""
    found, _ = watching(Server(), "gpu-bridge", lab=MANAGED)
    await found.check()
    [sentence] = found.sentences()
    assert "rolebinding.yaml" not in sentence
    assert sentence.endswith(
        "name lab under `namespaces` in the values of gpu-bridge's release of the chart (docs/scale.md)."
    )


async def test_rights_that_are_held_everywhere_are_not_asked_for_in_each_namespace() -> None:
    server = Server("")
    found, _ = watching(server, **{f"team-{number}": MANAGED for number in range(50)})
    await found.check()
    assert not found.lacking
    assert server.asked == len((*rights.NAMESPACE, *rights.CLUSTER, *rights.NODE))


async def test_a_right_that_is_given_and_one_that_is_taken_away_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    found, clock = watching(server, hpc=MANAGED)
    await found.check()
    assert found.sentences()
    server.bound.add("hpc")
    await found.check()
    assert found.sentences(), "not asked all the time"
    clock[0] += rights.ASK_AGAIN_S
    await found.check()
    assert not found.sentences()
    server.bound.clear()
    clock[0] += rights.ASK_RARELY_S
    await found.check()
    assert found.sentences()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


async def test_what_was_known_stays_while_kubernetes_is_away() -> None:
    server = Server()
    found, clock = watching(server, hpc=MANAGED)
    await found.check()
    server.away = True
    clock[0] += rights.ASK_AGAIN_S
    await found.check()
    assert list(found.lacking) == ["hpc"]


async def test_a_namespace_that_is_managed_no_more_is_forgotten() -> None:
    server = Server()
    found, _ = watching(server, hpc=MANAGED)
    await found.check()
    found._world.namespaces = {}
    await found.check()
    assert not found.sentences()


async def test_many_namespaces_are_a_few_sentences() -> None:
    found, _ = watching(Server(), **{f"team-{number}": MANAGED for number in range(50)})
    for _ in range(3):
        await found.check()
    assert len(found.sentences()) == rights.MOST_NAMED + 1
    assert found.sentences()[-1].startswith("Rights are missing in 47 more namespaces")


async def test_a_few_namespaces_are_asked_about_at_a_time() -> None:
    found, _ = watching(Server(), **{f"team-{number}": MANAGED for number in range(50)})
    await found.check()
    assert len(found.lacking) < rights.CHECKED_AT_ONCE + 1


async def test_rights_that_are_gone_everywhere_are_reported_first_and_say_what_follows() -> None:
    server = Server("hpc")
    found, clock = watching(server, hpc=MANAGED, lab=MANAGED)
    await found.check()
    server.everywhere.clear()
    clock[0] += rights.ASK_EVERYWHERE_S
    await found.check()
    first, second = found.sentences()
    assert "may not list pods, watch pods" in first
    assert "in all namespaces, so what changes there is not seen, and pods wait." in first
    assert first.endswith("kubectl apply -f manifests/base/rbac.yaml")
    assert "in namespace lab" in second
    assert list(found.namespaces) == ["lab"], "of which the metric tells"
    server.everywhere |= {*rights.CLUSTER, *rights.NODE}
    clock[0] += rights.ASK_AGAIN_S
    await found.check()
    assert len(found.sentences()) == 1


async def test_nodes_that_cannot_be_written_do_not_keep_pods_waiting() -> None:
    server = Server("hpc")
    server.everywhere -= set(rights.NODE)
    found, _ = watching(server, hpc=MANAGED)
    await found.check()
    [sentence] = found.sentences()
    assert "nodes are not tainted, and do not say how Slurm sees them" in sentence
    assert "wait" not in sentence
    assert [event for event in told if isinstance(event, RightsChecked) and event.lacking] == []


@pytest.mark.parametrize(("refused_in", "noticed"), [("hpc", True), ("lab", False), ("", False)])
async def test_a_request_that_was_refused_makes_it_ask_there_soon(refused_in: str, noticed: bool) -> None:
    server = Server("hpc", "lab")
    found, clock = watching(server, hpc=MANAGED, lab=MANAGED)
    await found.check()
    server.bound.discard("hpc")
    clock[0] += rights.ASK_AGAIN_S
    found.note_refused(refused_in)
    await found.check()
    assert bool(found.sentences()) is noticed


async def test_refusals_that_go_on_though_no_right_is_missing_are_asked_about_at_a_pace() -> None:
    server = Server("hpc")
    found, clock = watching(server, hpc=MANAGED)
    await found.check()
    asked = server.asked
    for _ in range(100):
        found.note_refused("hpc")
        await found.check()
        clock[0] += rights.ASK_AGAIN_S / 100
    assert server.asked <= 3 * asked


async def test_a_namespace_that_was_not_managed_while_it_got_its_rights_keeps_no_pod_waiting() -> None:
    server = Server()
    found, _ = watching(server, hpc=MANAGED)
    await found.check()
    assert found._world is not None
    managed, found._world.namespaces = found._world.namespaces, {}
    await found.check()
    server.bound.add("hpc")
    found._world.namespaces = managed
    await found.check()
    assert told[-1] == RightsChecked({}, 0.0)


async def test_the_world_gets_events_where_pods_cannot_be_bound_and_when_they_can_again() -> None:
    server = Server()
    found, clock = watching(server, hpc=MANAGED)
    await found.check()
    server.bound.add("hpc")
    clock[0] += rights.ASK_AGAIN_S
    await found.check()
    assert told == [RightsChecked({"hpc": ""}, 0.0), RightsChecked({}, 0.0)], "it could not write on the pods either"


@pytest.mark.parametrize(
    ("right", "waits"),
    [
        (BIND, True),
        (("delete", "pods", "", ""), True),
        (("create", "events", "", ""), False),
        (("create", "pods", "", "eviction"), False),
    ],
)
async def test_pods_wait_for_what_they_could_not_be_bound_or_ended_without(right: Right, waits: bool) -> None:
    server = Server("hpc")
    server.without.add(right)
    found, _ = watching(server, hpc=MANAGED)
    await found.check()
    [sentence] = found.sentences()
    assert ("its pods wait" in sentence) is waits
    [event] = told
    assert isinstance(event, RightsChecked)
    assert event.lacking == ({"hpc": sentence} if waits else {}), "the pods say it themselves"


async def test_a_bridge_that_begins_to_lead_gets_what_is_known() -> None:
    found, _ = watching(Server(), hpc=MANAGED)
    await found.check()
    heard: list[Event] = []
    found.follow(new_world(Settings().config(accounting=False), started=0.0), heard.append)
    assert heard == [RightsChecked({"hpc": ""}, 0.0)]


async def test_while_the_api_server_does_not_accept_the_token_no_namespace_has_rights_and_all_go_on_once_it_does() -> (
    None
):
    """The open watches show new pods all the time: each of them would hold nodes until its binds have failed."""
    server = Server("hpc")
    found, clock = watching(server, hpc=MANAGED, other={})
    await found.check()
    server.accepts = False
    found.note_refused("hpc")
    clock[0] += rights.ASK_AGAIN_S
    await found.check()
    assert told == [RightsChecked({"hpc": ""}, 0.0)]
    for _ in range(3):
        clock[0] += rights.ASK_AGAIN_S
        await found.check()
    assert len(told) == 1, "a replica that lost its lease because of that applies no event"
    server.away = True
    clock[0] += rights.ASK_AGAIN_S
    await found.check()
    assert len(told) == 1, "what was known stays"
    server.away, server.accepts = False, True
    clock[0] += rights.ASK_AGAIN_S
    await found.check()
    assert told[1:] == [RightsChecked({}, 0.0)]


async def test_a_namespace_that_becomes_managed_while_the_token_is_not_accepted_has_no_rights_either() -> None:
    """The open watch of namespaces shows it, and its pods must not hold nodes until their binds have failed."""
    server = Server("hpc", "new")
    found, clock = watching(server, hpc=MANAGED, new={})
    server.accepts = False
    await found.check()
    assert told == [RightsChecked({"hpc": ""}, 0.0)]
    assert found._world is not None
    found._world.namespaces["new"] = Namespace("new", "new", MANAGED)
    clock[0] += rights.CHECK_EVERY_S
    await found.check()
    assert told[1:] == [RightsChecked({"hpc": "", "new": ""}, 0.0)]

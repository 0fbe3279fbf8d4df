"""A right that is missing in one namespace is named there, and stops nobody else."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from bridge import rights
from bridge.errors import Unreachable
from bridge.kube.client import KubeClient
from bridge.rights import NamespaceRights, Right
from bridge.settings import Settings
from scheduler.model import Namespace
from scheduler.world import World

BIND: Right = ("create", "pods", "", "binding")
MANAGED = {"slurm-bridge/managed": "true"}


class Server:
    """What SelfSubjectAccessReview answers.  bound: namespaces that have the RoleBinding; "": all."""

    def __init__(self, *bound: str) -> None:
        self.bound = set(bound)
        self.away = False
        self.asked = 0

    async def can_i(
        self, verb: str, resource: str, *, group: str = "", subresource: str = "", namespace: str = ""
    ) -> bool:
        if self.away:
            raise Unreachable("check rights", "Kubernetes", "connection refused")
        self.asked += 1
        return not self.bound.isdisjoint({namespace, ""})


def watching(server: Server, **namespaces: dict[str, str]) -> tuple[NamespaceRights, list[float]]:
    """With a clock that the test moves."""
    world = World(Settings().config(accounting=False), started=0.0)
    world.namespaces = {name: Namespace(name=name, uid=name, labels=labels) for name, labels in namespaces.items()}
    clock = [0.0]
    return NamespaceRights(cast(KubeClient, server), world, lambda: clock[0]), clock


async def test_a_namespace_without_a_role_binding_is_named_with_what_gives_the_rights(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("hpc")
    found, _ = watching(server, hpc=MANAGED, lab=MANAGED, other={})
    await found.look()
    assert found.lacking == {"lab": list(rights.NAMESPACE)}
    [sentence] = found.sentences()
    assert "may not delete pods, patch pods, patch pods/status, create pods/binding" in sentence
    assert sentence.endswith("kubectl apply --namespace=lab -f manifests/namespace/rolebinding.yaml")
    assert [record.message for record in caplog.records] == [sentence]


async def test_rights_that_are_held_everywhere_are_not_asked_for_in_each_namespace() -> None:
    server = Server("")
    found, _ = watching(server, **{f"team-{number}": MANAGED for number in range(50)})
    await found.look()
    assert not found.lacking
    assert server.asked == len(rights.NAMESPACE)


async def test_a_right_that_is_given_and_one_that_is_taken_away_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    found, clock = watching(server, hpc=MANAGED)
    await found.look()
    assert found.sentences()
    server.bound.add("hpc")
    await found.look()
    assert found.sentences(), "not asked all the time"
    clock[0] += rights.ASK_AGAIN_S
    await found.look()
    assert not found.sentences()
    server.bound.clear()
    clock[0] += rights.ASK_RARELY_S
    await found.look()
    assert found.sentences()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


async def test_what_was_known_stays_while_kubernetes_is_away() -> None:
    server = Server()
    found, clock = watching(server, hpc=MANAGED)
    await found.look()
    server.away = True
    clock[0] += rights.ASK_AGAIN_S
    await found.look()
    assert list(found.lacking) == ["hpc"]


async def test_a_namespace_that_is_managed_no_more_is_forgotten() -> None:
    server = Server()
    found, _ = watching(server, hpc=MANAGED)
    await found.look()
    found._world.namespaces = {}
    await found.look()
    assert not found.sentences()


async def test_many_namespaces_are_a_few_sentences() -> None:
    found, _ = watching(Server(), **{f"team-{number}": MANAGED for number in range(50)})
    await found.look()
    assert len(found.sentences()) == rights.TOLD + 1
    assert found.sentences()[-1].startswith("Rights are missing in 47 more namespaces")

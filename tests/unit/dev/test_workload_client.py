"""A user of a real cluster: what it made goes again, also where it could not begin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bridge.dev import workload_client as module
from bridge.dev.workload_client import WorkloadClient
from bridge.errors import ConfigError
from tests.unit.kube.fakes import FakeTransport, no, reply

SPACE = "slurm-bridge-dev"
MADE = reply({"kind": "Namespace", "metadata": {"name": SPACE}}, 201)
ABSENT = no(404, "NotFound", name=SPACE)
NO_ACCOUNT = no(404, "NotFound", name="default")


def user(far: FakeTransport) -> WorkloadClient:
    return WorkloadClient(far, SPACE, lambda: 0.0)


def asked(far: FakeTransport) -> list[str]:
    return [f"{method} {path.rpartition('/')[2]}" for method, path, *_ in far.asked]


async def test_a_namespace_that_takes_pods_stays() -> None:
    far = FakeTransport(ABSENT, MADE, reply({"kind": "ServiceAccount"}))
    await user(far).open()
    assert asked(far) == [f"GET {SPACE}", "POST namespaces", "GET default"]


async def test_a_namespace_without_a_visible_service_account_is_reported_as_deleted() -> None:
    far = FakeTransport(ABSENT, MADE, no(403, "Forbidden", "you may not"), reply({}))
    with pytest.raises(ConfigError) as failed:
        await user(far).open()
    assert "was created, but its service account default cannot be read: Kubernetes: get: you may not" in str(
        failed.value
    )
    assert asked(far)[-1] == f"DELETE {SPACE}"


async def test_a_namespace_that_never_gets_its_service_account_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMESPACE_S", 0.01)
    far = FakeTransport(ABSENT, MADE, NO_ACCOUNT, reply({}))
    with pytest.raises(ConfigError, match="was created, but its service account default was not"):
        await user(far).open()
    assert asked(far)[-1] == f"DELETE {SPACE}"


async def test_a_run_that_is_cancelled_while_its_namespace_is_prepared_deletes_the_namespace() -> None:
    far = FakeTransport(ABSENT, MADE, NO_ACCOUNT, reply({}))
    waits = asyncio.Event()
    far.on_ask = lambda: waits.set() if asked(far)[-1] == "GET default" else None
    opening = asyncio.create_task(user(far).open())
    await waits.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert asked(far)[-1] == f"DELETE {SPACE}"


async def test_a_namespace_that_cannot_be_deleted_again_is_named() -> None:
    far = FakeTransport(ABSENT, MADE, no(403, "Forbidden"), no(403, "Forbidden", "nor that"))
    with pytest.raises(ConfigError, match=f"nor that .*kubectl delete namespace {SPACE}$"):
        await user(far).open()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (no(409, "AlreadyExists", name=SPACE), "exists already"),
        (no(403, "Forbidden", "you may not"), "cannot be created"),
    ],
)
async def test_a_namespace_that_this_did_not_make_is_left_alone(answer: Any, said: str) -> None:
    far = FakeTransport(ABSENT, answer)
    with pytest.raises(ConfigError, match=said):
        await user(far).open()
    assert "DELETE" not in " ".join(asked(far))

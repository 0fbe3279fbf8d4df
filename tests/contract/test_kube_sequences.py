"""Random calls get the same answers from every Kubernetes, leave the same, and are watched alike."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bridge.simulation.kube.cluster import KubeCluster
from tests.contract import kube_sequences
from tests.contract.kube_subjects import KUBECONFIG, Kube, Real, Simulated, Subject
from tests.contract.sequences import Calls, Difference, assert_shown, differences, findings, numbers

NAMESPACE = f"contract-{secrets.token_hex(4)}"  # a run that was killed may have left objects in its namespace
TOGETHER = 125
OTHERS = ["served", *(["real"] if KUBECONFIG else [])]


@asynccontextmanager
async def opened(subject: Subject) -> AsyncIterator[Kube]:
    """A Kubernetes with an empty namespace, and nodes to bind pods to."""
    kube = Kube(subject, NAMESPACE)
    await subject.open(NAMESPACE)
    try:
        await kube.make("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for node in kube_sequences.PLACES:
            await kube.raw("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        await subject.furnish(NAMESPACE)
        yield kube
        for node in kube_sequences.PLACES:
            await kube.raw("DELETE", f"/api/v1/nodes/{node}")
    finally:
        await subject.close()


async def differ(real: Kube, simulated: Kube, sequences: Mapping[int, Calls]) -> dict[int, list[Difference]]:
    """The differences by the number of the sequence.

    Few are played at a time: after 40 s Kubernetes' own controllers would miss the kubelets.
    """
    found: dict[int, list[Difference]] = {}
    for first in range(0, len(sequences), TOGETHER):
        some = dict(list(sequences.items())[first : first + TOGETHER])
        found |= await _differ(real, simulated, some)
    return found


async def _differ(real: Kube, simulated: Kube, sequences: Mapping[int, Calls]) -> dict[int, list[Difference]]:
    run = secrets.token_hex(3)
    prefixed = {f"s{number}-{run}": calls for number, calls in sequences.items()}
    theirs, ours = await kube_sequences.play(real, prefixed), await kube_sequences.play(simulated, prefixed)
    return {
        number: differences(calls, theirs[prefix], ours[prefix])
        for (number, calls), prefix in zip(sequences.items(), prefixed, strict=True)
    }


@pytest.mark.parametrize("other", OTHERS)
async def test_generated_calls_are_answered_alike(other: str) -> None:
    subject = Real("sequences") if other == "real" else Simulated(served=True, lives=False)
    sequences = {number: kube_sequences.sequence(number) for number in numbers()}
    async with opened(subject) as real, opened(Simulated(served=False, lives=False)) as simulated:
        report = await findings(sequences, lambda some: differ(real, simulated, some))
    assert not report, report


# --- a wrong simulation is found --------------------------------------------------------------------------------------


def hits_namesakes(cluster: KubeCluster, patch: pytest.MonkeyPatch) -> None:
    """A bind does not look at the uid."""
    bind = cluster._bind
    patch.setattr(cluster, "_bind", lambda now, target, body: bind(now, target, without(body, "uid")))


def without(binding: Any, field: str) -> Any:
    """The binding without that field of its metadata."""
    return {**binding, "metadata": {key: value for key, value in binding["metadata"].items() if key != field}}


def binds_without_annotations(cluster: KubeCluster, patch: pytest.MonkeyPatch) -> None:
    """A bind does not say for which job it is."""
    bind = cluster._bind
    patch.setattr(cluster, "_bind", lambda now, target, body: bind(now, target, without(body, "annotations")))


def shows_no_deletion(cluster: KubeCluster, patch: pytest.MonkeyPatch) -> None:
    """A watch never tells that a pod is gone."""
    changes = cluster.changes_after

    def kept(*asked: Any) -> Any:
        lines, version, ended = changes(*asked)
        return [line for line in lines if not line.startswith(b'{"type":"DELETED"')], version, ended

    patch.setattr(cluster, "changes_after", kept)


def kills_at_once(cluster: KubeCluster, patch: pytest.MonkeyPatch) -> None:
    """A deletion has no grace."""
    remove = cluster._remove_pod
    patch.setattr(cluster, "_remove_pod", lambda now, pod, _grace: remove(now, pod, 0))


def writes_what_is_the_same(cluster: KubeCluster, patch: pytest.MonkeyPatch) -> None:
    """A patch that changes nothing is an event."""
    written = cluster._written

    def again(now: float, target: Any, before: Any, after: Any) -> Any:
        done = written(now, target, before, after)
        return cluster.store.put(target.resource, done) if done is before else done

    patch.setattr(cluster, "_written", again)


SABOTAGES = (hits_namesakes, binds_without_annotations, shows_no_deletion, kills_at_once, writes_what_is_the_same)


@pytest.mark.parametrize("sabotage", SABOTAGES)
async def test_a_simulation_that_is_wrong_is_found(
    sabotage: Callable[[KubeCluster, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Simulated(served=False, lives=False)
    sabotage(wrong.kube.cluster, monkeypatch)
    async with opened(Simulated(served=False, lives=False)) as real, opened(wrong) as simulated:
        await assert_shown(kube_sequences.sequence, lambda some: differ(real, simulated, some))

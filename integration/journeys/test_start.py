"""A bridge that starts before the clusters are there waits for them, and then works as ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm, eventually, stopped


def test_a_bridge_that_starts_before_both_clusters_waits_for_them(
    request: pytest.FixtureRequest, kube: Kube, slurm: Slurm, one_bridge: BridgeProcess, no_bridge: None, own_rig: None
) -> None:
    with stopped("slurmctld"), stopped("slurmrestd"):
        with stopped("kube-apiserver"):
            one_bridge.launch()
            eventually("it waits for both", lambda: _says(one_bridge, "kubeconfig's server", "slurm_url"))
        eventually("it waits for Slurm alone", lambda: not _says(one_bridge, "kubeconfig's server"))
        assert _says(one_bridge, "slurm_url")
    eventually("it is ready", one_bridge.ready)
    space: Callable[[str], str] = request.getfixturevalue("space")
    ns = space("alice")
    kube.run(ns, "train")
    eventually("it is bound", lambda: kube.bound(ns))
    assert slurm.live(f"{ns}/")


def _says(bridge: BridgeProcess, *words: str) -> bool:
    assert not bridge.last_words, bridge.last_words
    status, text = bridge.ask("readyz")
    if status:
        assert bridge.ask("healthz") == (200, "ok\n")
    return status == 503 and all(any(word in line for line in text.splitlines()) for word in words)

"""A list and the watch from its version are together the whole truth, whatever happens and whatever is selected."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.simulation.kube.store import Store, TooOld, selection

NAMES = st.sampled_from(["a", "b", "c"])
PHASES = st.sampled_from(["Pending", "Running", "Succeeded"])
WRITES = st.lists(st.tuples(st.sampled_from(["hpc", "web"]), NAMES, st.one_of(PHASES, st.none())), max_size=30)
SELECTORS = st.sampled_from(
    ["", "status.phase=Running", "status.phase!=Succeeded", "metadata.name=a,status.phase!=Pending"]
)


def write(store: Store, namespace: str, name: str, phase: str | None) -> None:
    """phase None: delete, where it is there."""
    if phase is not None:
        meta = {"namespace": namespace, "name": name, "labels": {"team": name}}
        store.put("pods", {"metadata": meta, "status": {"phase": phase}})
    elif thing := store.get("pods", namespace, name):
        store.delete("pods", thing)


def phases(encoded: list[bytes]) -> dict[tuple[str, str], str]:
    things = [json.loads(text) for text in encoded]
    return {(t["metadata"]["namespace"], t["metadata"]["name"]): t["status"]["phase"] for t in things}


@settings(max_examples=200)
@given(WRITES, WRITES, SELECTORS, st.sampled_from(["", "hpc"]))
def test_a_list_and_its_watch_are_the_whole_truth(before: Any, after: Any, fields: str, namespace: str) -> None:
    store, chosen = Store(), selection("pods", namespace, {"fieldSelector": fields})
    for one in before:
        write(store, *one)
    known, version = phases(store.matching(chosen)), store.version
    for one in after:
        write(store, *one)

    told, newest = store.changes_since(version, chosen)
    assert newest == store.version
    for kind, text in told:
        [(key, phase)] = phases([text]).items()
        assert (kind == "ADDED") is (key not in known)
        if kind == "DELETED":
            del known[key]
        else:
            known[key] = phase
    assert known == phases(store.matching(chosen))


@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(0, 40))
def test_a_forgotten_change_is_an_error_and_never_left_out(history: int, writes: int) -> None:
    store, chosen = Store(history), selection("pods", "", {})
    for number in range(writes):
        write(store, "hpc", f"p{number}", "Pending")
    for version in range(1, store.version + 1):
        try:
            told, _ = store.changes_since(version, chosen)
        except TooOld:
            assert store.version - version > history
            continue
        assert len(told) == store.version - version

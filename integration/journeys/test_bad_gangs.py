"""A mistake in a gang is shown on its pods within seconds, and other pods are not affected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from integration.clusters import PREFIX, Kube, Slurm, eventually, pod

MANY = 300
Space = Callable[[str], str]
pytestmark = pytest.mark.usefixtures("bridge")


def member(
    name: str, gang: str, size: str = "", says: Mapping[str, str] | None = None, **options: Any
) -> dict[str, Any]:
    sized = {"gang-size": size} if size else {}
    return pod(name, labels={PREFIX + "gang": gang}, says={**sized, **(says or {})}, **options)


def apart(made: dict[str, Any], gang: str) -> dict[str, Any]:
    """With an anti-affinity against its own gang: one a node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {PREFIX + "gang": gang}}}
    made["spec"]["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return made


def create(kube: Kube, space: str, *pods: dict[str, Any]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: kube.core.create_namespaced_pod(space, each), pods))


def says(kube: Kube, space: str, name: str, words: str) -> None:
    def shows() -> str:
        said = kube.said(space, name)
        return said if words in said else ""

    eventually(f"{name} says {words!r} and not {kube.said(space, name)!r}", shows)


def runs_soon(kube: Kube, space: str, name: str) -> None:
    """A pod that has nothing to do with any of it."""
    kube.run(space, name)
    eventually(f"{name} is bound", lambda: kube.pod(space, name).spec.node_name)


BAD_SIZE = "is not a whole number from 1 to 10,000."
# What the first and the last pod of a gang of two have of their own, and what both say.
DISAGREE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "size": ({"size": "2"}, {"size": "3"}, "do not agree on their number (size-0 says 2, size-1 says 3)"),
    "unsized": ({"size": "2"}, {}, "do not agree on their number (unsized-0 says 2, unsized-1 says none)"),
    "partition": (
        {"size": "2"},
        {"size": "2", "says": {"partition": "gpu"}},
        "must agree on partition: partition-0 has none, partition-1 has gpu.",
    ),
    "account": (
        {"size": "2"},
        {"size": "2", "says": {"account": "teama-dev"}},
        "must agree on account: account-0 has teama, account-1 has teama-dev.",
    ),
    "huge": ({"size": "2"}, {"size": "2", "cpu": "900"}, "huge-1: 0/"),
}


def test_members_that_disagree_or_never_fit_say_so_and_a_pod_beside_them_runs(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    here = space("alice")
    pods = [
        member(f"{gang}-{number}", gang, **options)
        for gang, (first, last, _) in DISAGREE.items()
        for number, options in enumerate((first, last))
    ]
    create(kube, here, *pods)
    runs_soon(kube, here, "bystander")
    for gang, (_, _, words) in DISAGREE.items():
        for number in (0, 1):
            says(kube, here, f"{gang}-{number}", words)
    assert [job["name"].split("~")[0] for job in slurm.live(f"{here}/")] == [f"{here}/bystander"]


def test_a_size_that_is_no_number_is_reported_on_its_pod_until_it_is_mended(kube: Kube, space: Space) -> None:
    here = space("alice")
    sizes = dict(enumerate(("three", "-1", "0", "1e9")))
    for number, size in sizes.items():
        gang = f"ring{number}"
        create(kube, here, member(f"{gang}-0", gang, "2"), member(f"{gang}-1", gang, size))
    for number, size in sizes.items():
        says(kube, here, f"ring{number}-1", f"Annotation slurm-bridge/gang-size: '{size}' {BAD_SIZE}")
        says(kube, here, f"ring{number}-0", f"1 of 2 pods of gang ring{number} are here in namespace {here}. ")
    patch = {"metadata": {"annotations": {PREFIX + "gang-size": "2"}}}
    kube.core.patch_namespaced_pod("ring0-1", here, patch)
    eventually("mended, both run", lambda: len(kube.bound(here)) == 2)


def test_an_anti_affinity_that_asks_for_more_nodes_than_there_are_is_reported(kube: Kube, space: Space) -> None:
    here = space("alice")
    nodes = len(kube.core.list_node(label_selector="type=kwok").items)
    size = str(nodes + 1)
    create(kube, here, *[apart(member(f"ring-{number}", "ring", size), "ring") for number in range(nodes + 1)])
    words = f"a node of its own for each of {size} pods of {here}/ring, and only {nodes} nodes can run them."
    says(kube, here, "ring-0", words)
    says(kube, here, f"ring-{nodes}", words)


def test_a_gang_label_on_hundreds_of_pods_by_mistake_delays_no_other_pod(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    here, elsewhere = space("alice"), space("bob")
    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(create, kube, here, *[member(f"ring-{number}", "ring") for number in range(MANY)])
        runs_soon(kube, elsewhere, "while-they-come")
        made.result()
    runs_soon(kube, elsewhere, "when-they-are-here")
    for name in ("ring-0", f"ring-{MANY - 1}"):
        says(kube, here, name, "gang ring does not show how many pods it has: give it the annotation")
    assert slurm.live(f"{here}/") == []

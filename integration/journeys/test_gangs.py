"""Gangs on real clusters: all or nothing, packed, by rank (rules W)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from integration.clusters import PREFIX, Kube, Slurm, eventually


def gang(
    kube: Kube, space: str, name: str, size: int, *, first: int = 0, last: int | None = None, **options: Any
) -> None:
    for number in range(first, size if last is None else last):
        one_of(kube, space, name, number, size, **options)


def one_of(kube: Kube, space: str, name: str, number: int, size: int, **options: Any) -> None:
    labels = {PREFIX + "gang": name}
    kube.run(space, f"{name}-{number}", labels=labels, says={"gang-size": str(size)}, **options)


def bound(kube: Kube, space: str, name: str) -> list[Any]:
    return [each for each in kube.bound(space) if each.metadata.labels.get(PREFIX + "gang") == name]


def keys(pods: list[Any], key: str) -> list[str]:
    return [each.metadata.annotations[PREFIX + key] for each in pods]


def whole(kube: Kube, space: str, name: str, size: int) -> list[Any]:
    eventually(f"all of {name} are bound", lambda: len(bound(kube, space, name)) == size)
    return bound(kube, space, name)


def test_a_gang_is_one_job_and_all_of_it_is_bound(kube: Kube, slurm: Slurm, space: Callable[[str], str]) -> None:
    here = space("alice")
    gang(kube, here, "ring", 8, cpu="2", gpu=1)
    pods = whole(kube, here, "ring", 8)
    [job] = slurm.live(f"{here}/ring")
    assert set(keys(pods, "job-id")) == {str(job["job_id"])}
    assert sorted(map(int, keys(pods, "rank"))) == list(range(8))
    assert set(keys(pods, "size")) == {"8"}
    assert len({each.spec.node_name for each in pods}) == 1, "packed on one node, as it fits there"


def test_nothing_is_asked_for_before_all_are_here_and_who_waits_says_so(
    kube: Kube, slurm: Slurm, space: Callable[[str], str]
) -> None:
    here = space("alice")
    gang(kube, here, "ring", 3, last=2)
    eventually("it says who is missing", lambda: "2 of 3 pods of gang ring are here" in kube.said(here, "ring-0"))
    assert slurm.live(f"{here}/") == []
    one_of(kube, here, "ring", 2, 3)
    whole(kube, here, "ring", 3)


def test_a_gang_that_does_not_fit_holds_nothing_and_starts_when_it_does(
    kube: Kube, slurm: Slurm, space: Callable[[str], str], full: Callable[[], None]
) -> None:
    here = space("alice")
    gang(kube, here, "ring", 4, gpu=8)
    eventually("its job waits", lambda: [job["job_state"] for job in slurm.live(f"{here}/ring")] == [["PENDING"]])
    assert bound(kube, here, "ring") == []
    full()
    pods = whole(kube, here, "ring", 4)
    assert len({each.spec.node_name for each in pods}) == 4


def test_a_member_that_is_made_again_takes_the_freed_place(
    kube: Kube, slurm: Slurm, space: Callable[[str], str]
) -> None:
    here = space("alice")
    gang(kube, here, "ring", 3)
    before = whole(kube, here, "ring", 3)
    [job] = slurm.live(f"{here}/ring")
    kube.core.delete_namespaced_pod("ring-1", here)
    eventually("it is gone", lambda: len(kube.pods(here)) == 2)
    one_of(kube, here, "ring", 1, 3)
    after = whole(kube, here, "ring", 3)
    assert [each["job_id"] for each in slurm.live(f"{here}/ring")] == [job["job_id"]]
    assert {each.spec.node_name for each in after} == {each.spec.node_name for each in before}


def test_when_its_job_ends_all_of_a_gang_ends(kube: Kube, slurm: Slurm, space: Callable[[str], str]) -> None:
    here = space("alice")
    gang(kube, here, "ring", 3)
    whole(kube, here, "ring", 3)
    [job] = slurm.live(f"{here}/ring")
    slurm.cancel(job["job_id"])
    eventually("none of it runs", lambda: bound(kube, here, "ring") == [])

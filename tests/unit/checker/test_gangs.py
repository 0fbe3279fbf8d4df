"""V4: a forged log of a gang that was bound in part is found.  A gang that was released, or is whole otherwise, passes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.checker.forged import EPOCH, RING, Run

NOTHING: Mapping[str, object] = {}


def _gang(members: int, *, bound: int, size: int = 3, written: int = 3, before: Mapping[str, object] = NOTHING) -> Run:
    """A gang of job 7, of which that many members are bound.

    written   the size that the bridge writes with a bind
    before    patches of members before the bind
    """
    run = Run()
    for number in range(members):
        run.pod(1, f"ring{number}", gang="ring", size=size)
    for name, patch in before.items():
        run.entry(1.5, "patch", "pods", patch, None, ref={"namespace": "alice-x", "name": name})
    run.submit(2, 7, "", name=RING)
    run.grant(3, 7, "k1", "cpu=3,mem=192M,node=1")
    for number in range(bound):
        run.bind(4, f"ring{number}", "k1", 7, size=written)
    return run


def test_a_gang_that_is_bound_as_a_whole_breaks_nothing() -> None:
    verdict = _gang(3, bound=3).verdict()
    assert (verdict.broken, verdict.judged["V4"]) == ([], 1)


def test_a_gang_that_is_bound_in_part_and_not_released_is_found() -> None:
    run = _gang(3, bound=2)
    assert run.broken(30) == []
    [sentence] = run.broken(60)
    assert sentence == (
        "V4: 56 calm seconds after 08:00:04.000 only 2 of 3 pods of a gang were bound for "
        f"job 7 ({RING} of alice), which was not released: alice-x/ring0, alice-x/ring1"
    )


def test_the_size_that_pods_show_counts_and_not_what_the_bridge_wrote() -> None:
    assert [each[:2] for each in _gang(3, bound=2, written=2).broken()] == ["V4"]


def test_a_size_that_is_edited_counts_as_it_was_at_the_bind() -> None:
    edit = {"metadata": {"annotations": {"slurm-bridge/gang-size": "4"}}}
    ref = {"namespace": "alice-x", "name": "ring0"}
    late = _gang(3, bound=3)
    late.entry(9, "patch", "pods", edit, None, ref=ref)
    assert late.broken() == []
    early = _gang(4, bound=3, size=3, before={"ring0": edit})
    assert [each[:2] for each in early.broken()] == ["V4"]


def test_without_a_size_on_its_pods_what_the_bridge_wrote_counts() -> None:
    assert [each[:2] for each in _gang(3, bound=2, size=0).broken()] == ["V4"]


def test_a_gang_that_is_released_in_time_breaks_nothing() -> None:
    run = _gang(3, bound=2)
    run.cancel(32, 7)
    assert run.broken() == []


def test_a_member_that_its_user_deletes_just_before_its_bind_is_part_of_the_whole() -> None:
    run = _gang(3, bound=2)
    run.delete(4.001, "ring2", by="kubectl", gone=True)
    assert run.broken() == []


@pytest.mark.parametrize(("has_its_own_job", "found"), [(False, ["V4"]), (True, [])])
def test_a_member_that_left_is_missing_if_another_one_waits_for_its_place(
    *, has_its_own_job: bool, found: list[str]
) -> None:
    run = _gang(4, bound=2)
    run.delete(4.001, "ring2", by="kubectl", gone=True)
    if has_its_own_job:
        run.submit(5, 8, "uid-ring3")
    assert [each[:2] for each in run.broken()] == found


def test_a_member_that_left_long_before_the_first_bind_is_missing() -> None:
    run = Run()
    for number in range(3):
        run.pod(1, f"ring{number}", gang="ring", size=3)
    run.delete(2, "ring2", by="kubectl", gone=True)
    run.submit(2, 7, "", name=RING)
    run.grant(3, 7, "k1", "cpu=3,mem=192M,node=1")
    for number in range(2):
        run.bind(20, f"ring{number}", "k1", 7, size=3)
    assert [each[:2] for each in run.broken(80)] == ["V4"]


def test_a_member_that_the_bridge_deletes_itself_is_missing() -> None:
    run = _gang(3, bound=2)
    run.delete(5, "ring2", by="slurm-bridge", gone=True)
    assert "V4" in [each[:2] for each in run.broken()]


def test_the_time_of_a_fault_does_not_count() -> None:
    run = _gang(3, bound=2)
    run.journal.faults.append((EPOCH + 20, EPOCH + 40))
    assert run.broken() == []


def test_a_pod_that_has_succeeded_is_part_of_the_whole() -> None:
    run = _gang(3, bound=3)
    run.phase(10, "ring0", "Succeeded")
    run.phase(10, "ring1", "Failed")
    run.cancel(11, 7)
    run.pod(12, "ring1", gang="ring", size=3)
    run.submit(13, 8, "", name=RING)
    run.grant(14, 8, "k2", "cpu=2,mem=128M,node=1")
    run.bind(15, "ring1", "k2", 8)
    run.bind(15, "ring2", "k2", 8)
    assert [each for each in run.broken() if each.startswith("V4")] == []

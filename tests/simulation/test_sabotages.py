"""Each rule on which an invariant depends is taken out in one place, and a story notices it.

Each story is the shortest one that notices.  It is played with the rule, too, and then nothing is wrong.  Two more sabotages
are in test_crashes.py.  Each invariant is broken by hand in test_invariants.py and in tests/unit/dev/test_invariants.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bridge import executor
from bridge.kube.client import KubeClient
from bridge.kube.lease import Lease
from bridge.simulation.kube import objects
from bridge.simulation.slurm import reads, requests
from scheduler import names
from scheduler.actions import CancelJob, Outcome
from scheduler.apply import job_reads
from scheduler.model.slurm import Job
from scheduler.place import fit
from scheduler.state.facts import Facts
from scheduler.state.placeholder import Placeholder
from scheduler.state.world import World
from tests.simulation.calm import SPACE, Calm
from tests.simulation.calm_replicas import CalmReplicas
from tests.simulation.disturbed import SEED, Place, Story, play
from tests.simulation.stories import (
    no_node_can_be_used_when_the_pod_is_bound,
    one_pod_runs_and_ends,
    the_room_comes_back_while_the_grant_is_released,
)
from tests.simulation.submissions import submit

WHOLE = {"cpu": "8"}  # of a node


# --- the stories --------------------------------------------------------------------------------------------------


async def other_pods_have_all_room(life: Calm) -> None:
    """Slurm does not know of these pods, and grants nodes."""
    for node in life.slurm.nodes:
        made = objects.pod(SPACE, f"other-{node}", scheduler="other", requests=WHOLE, nodeName=node)
        life.kube.create(life.kube_clock(), "pods", made)
    life.inner.wake()
    await asyncio.sleep(5)
    life.creates("alone")
    await asyncio.sleep(20)


async def a_pod_is_bound_soon_after_it_says_that_it_waits(life: Calm) -> None:
    life.creates("alone", {names.PREFIX + names.BEGIN: "now+4seconds"})
    await life.first("alone", within=60)


async def the_id_of_a_lost_job_is_given_to_a_job_of_the_same_user(life: Calm) -> None:
    life.creates("alone")
    lost = life.job_of(await life.first("alone"))
    life.invariants.note_lost(life.slurm.lose_everything(life.slurm_clock()))
    assert submit(life.slurm, life.slurm_clock(), lost.user, "native") == lost.id
    await asyncio.sleep(60)
    life.deletes("alone")
    await asyncio.sleep(30)


def a_list_lacks_the_job(monkeypatch: pytest.MonkeyPatch) -> Story:
    """One list of jobs lacks the job of a pod.  No job is asked for again, because the pod cannot be translated any more."""

    async def story(life: Calm) -> None:
        life.creates("alone")
        job = life.job_of(await life.first("alone"))
        life.annotates("alone", {names.PREFIX + names.TIME_LIMIT: "soon"})
        await asyncio.sleep(5)
        with monkeypatch.context() as once:
            once.setattr(reads, "yes", lambda asked, body: requests.yes(asked, _without(body, str(job.id))))
            await asyncio.sleep(1.2)
        await asyncio.sleep(30)

    return story


def _without(body: dict[str, Any], job_id: str) -> dict[str, Any]:
    """The answer to jobs/state without that job; another answer as it is."""
    jobs = body.get("jobs") or ()
    return {**body, "jobs": [job for job in jobs if job["job_id"] != job_id or "name" in job]} if jobs else body


# --- what is found ------------------------------------------------------------------------------------------------


def wrong(story: Story, request: str = "", how: str = "") -> str:
    """What is wrong with the story, which is disturbed at the first request of that kind; "": nothing.

    request   the end of the path; "": the story is not disturbed
    """
    try:
        whole = play(story)
        if not request:
            return ""
        number = next(number for number, each in enumerate(whole.seen) if each.endswith(request))
        end = play(story, Place(number, how)).end
    except AssertionError as broken:
        return repr(broken)
    except TimeoutError:
        return "it does not end"
    return "" if end == whole.end else f"it ends otherwise: {end}"


def without_uid(write: Callable[..., Any]) -> Callable[..., Any]:
    """A write whose body names no incarnation."""

    def written(client: KubeClient, operation: str, method: str, path: str, body: dict[str, Any], **more: Any) -> Any:
        if operation == "bind":
            body["metadata"].pop("uid")
        return write(client, operation, method, path, body, **more)

    return written


def without_version(patch: Callable[..., Any]) -> Callable[..., Any]:
    """A patch whose body names no version."""

    def patched(client: KubeClient, operation: str, path: str, body: dict[str, Any], kind: str) -> Any:
        body["metadata"].pop("resourceVersion", None)
        return patch(client, operation, path, body, kind)

    return patched


KeyOfJob = Callable[[World, Placeholder | None, Job], str | None]


def by_id(key_of_job: KeyOfJob) -> KeyOfJob:
    """A job of a known id is taken for the known job, whatever its name."""

    def key_by_id(world: World, known: Placeholder | None, read: Job) -> str | None:
        return known.key if known is not None and known.key is not None else key_of_job(world, known, read)

    return key_by_id


def test_a_bridge_that_takes_an_unknown_outcome_for_a_failure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It releases the grant of a late bind, so the pod ends; and it binds a pod for the job of a late cancel."""
    late_bind = no_node_can_be_used_when_the_pod_is_bound, "/binding", "unanswered-late"
    late_cancel = the_room_comes_back_while_the_grant_is_released, "/jobs/", "unanswered-late"
    assert wrong(*late_bind) == wrong(*late_cancel) == ""
    monkeypatch.setattr(executor, "_outcome", lambda _: Outcome.UNREACHED)
    assert "pod alone `Failed`" in wrong(*late_bind)
    assert "V7: alice-a/alone was bound for job 1" in wrong(*late_cancel)


def test_a_bridge_without_a_quiet_period_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process before sent a bind or a cancel, which takes effect later: as in the test above."""
    late_bind = no_node_can_be_used_when_the_pod_is_bound, "/binding", "killed-late"
    late_cancel = the_room_comes_back_while_the_grant_is_released, "/jobs/", "killed-late"
    assert wrong(*late_bind) == wrong(*late_cancel) == ""
    monkeypatch.setattr(Facts, "quiet_until", lambda facts: facts.started)
    assert "pod alone `Failed`" in wrong(*late_bind)
    assert "V7: alice-a/alone was bound for job 1" in wrong(*late_cancel)


def test_a_bridge_that_does_not_look_at_the_room_on_a_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(other_pods_have_all_room) == ""
    monkeypatch.setattr(fit, "_lacking", lambda *_, **__: "")
    assert "V3: alice-a/alone is bound to x1: 9000 cpu of 8000" in wrong(other_pods_have_all_room)


def test_a_bridge_that_knows_jobs_by_their_id_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    story = the_id_of_a_lost_job_is_given_to_a_job_of_the_same_user
    assert wrong(story) == ""
    monkeypatch.setattr(job_reads, "_key_of_job", by_id(job_reads._key_of_job))
    assert "V6: DELETE of foreign job 1 (native of alice)" in wrong(story)


def test_a_bridge_that_believes_in_an_absence_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    story = a_list_lacks_the_job(monkeypatch)
    assert wrong(story) == ""
    monkeypatch.setattr(Placeholder, "is_lost", lambda job, _: job.absent)
    assert "V7: alice-a/alone is ended while its job 1 is RUNNING" in wrong(story)


def test_a_bridge_that_binds_whichever_pod_has_the_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(one_pod_runs_and_ends) == ""
    monkeypatch.setattr(KubeClient, "_write", without_uid(KubeClient._write))
    assert "V7: a write on pod alice-a/alone without its uid" in wrong(one_pod_runs_and_ends)


def test_a_bridge_that_writes_a_condition_whatever_became_of_the_pod_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is late, and the pod is bound before."""
    late = a_pod_is_bound_soon_after_it_says_that_it_waits, "/status", "unanswered-late"
    assert wrong(*late) == ""
    monkeypatch.setattr(KubeClient, "_patch", without_version(KubeClient._patch))
    assert "alone is on a node and shows that it waits" in wrong(*late)


def test_a_leader_that_does_not_look_at_the_clock_before_it_writes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is paused with the decision to give a grant back, and wakes when the other replica has bound the pod for it."""
    assert _runs_after_the_pause_of_a_leader()
    monkeypatch.setattr(Lease, "holds", lambda lease: lease._works_until != float("-inf"))
    assert not _runs_after_the_pause_of_a_leader()


def _runs_after_the_pause_of_a_leader() -> bool:
    """True if the job of the pod runs in the end."""
    life = CalmReplicas(SEED)

    async def story() -> None:
        name = await life.leader()
        await asyncio.sleep(20)  # the quiet period is over
        leader = life.running[name]
        assert leader.bridge is not None
        perform = leader.bridge.executor.perform
        others = [
            life.kube.create(
                life.kube_clock(),
                "pods",
                objects.pod("alice-a", f"other-{node}", scheduler="other", requests=WHOLE, nodeName=node),
            )
            for node in life.slurm.nodes
        ]

        async def paused(action: Any) -> Any:
            if isinstance(action, CancelJob) and not leader.process.paused:
                for other in others:
                    life.kube.remove(life.kube_clock(), "pods", other, 0)
                others.clear()
                life.inner.wake()
                leader.process.pause(40)
                await asyncio.sleep(0)
            return await perform(action)

        leader.bridge.executor.perform = paused
        life.pod("train")
        await life.bound("train")
        assert await life.leader() != name
        await asyncio.sleep(60)

    life.tell(story)
    return [job.state for job in life.slurm.jobs.values()] == ["RUNNING"]

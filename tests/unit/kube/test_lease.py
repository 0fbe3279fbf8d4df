"""One replica holds the lease, stops before it can lose it, and believes no Lease more than is safe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.errors import Unanswered, Unauthorized
from bridge.kube.lease import DRAINED, LONGEST_S, PROCESS, Lease, Terms, record_of
from bridge.kube.transport import Call, Reply
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.virtual_time import START, run

PATH = "/apis/coordination.k8s.io/v1/namespaces/slurm-bridge/leases/slurm-bridge"


class Wire:
    """The simulated API server, and what may be wrong on the way there.

    away   nothing is answered; lost: the answer of the next write is lost
    """

    def __init__(self, inner: InProcessKube) -> None:
        self._inner = inner
        self.away = False
        self.lost = False
        self.slow_s = 0.0

    async def exchange(self, call: Call) -> Reply:
        if self.away:
            await asyncio.sleep(call.deadline_s)
            raise Unanswered(call.method.lower(), "Kubernetes", "nothing answers")
        await asyncio.sleep(0.001)
        reply = await self._inner.exchange(call)
        await asyncio.sleep(self.slow_s)
        if self.lost and call.method != "GET":
            self.lost = False
            raise Unanswered(call.method.lower(), "Kubernetes", "the answer was lost")
        return reply

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a lease is not watched")

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class Place:
    """An API server, and replicas by name."""

    cluster: KubeCluster = field(default_factory=lambda: KubeCluster(started=START))
    said: list[str] = field(default_factory=list)
    wires: dict[Lease, Wire] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster.create(START, "namespaces", {"metadata": {"name": "slurm-bridge"}})

    def replica(self, name: str, process: str = "", duration_s: int = 3) -> Lease:
        clock = asyncio.get_running_loop().time
        wire = Wire(InProcessKube(self.cluster, clock))
        terms = Terms("slurm-bridge", "slurm-bridge", name, duration_s)
        lease = Lease(wire, terms, clock, clock, self.said.append, process or f"process of {name}")
        self.wires[lease] = wire
        return lease

    @property
    def object(self) -> dict[str, Any]:
        found = self.cluster.store.get("leases", "slurm-bridge", "slurm-bridge")
        assert found is not None
        return found

    def edit(self, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> None:
        """As a person with kubectl; None takes a field away."""
        patch = {"spec": spec, "metadata": {"annotations": annotations or {}}}
        now = asyncio.get_running_loop().time()
        answer = self.cluster.handle(now, "PATCH", PATH, {}, json.dumps(patch).encode(), "application/merge-patch+json")
        assert answer[0] == 200, answer


def story(tell: Callable[[Place], Awaitable[None]]) -> None:
    async def told() -> None:
        await tell(Place())

    run(told())


async def took(lease: Lease) -> tuple[bool, float]:
    """True if nothing was left behind, and the seconds after which it leads."""
    clock = asyncio.get_running_loop().time
    began = clock()
    return await lease.lead(), clock() - began


async def took_by(leading: asyncio.Task[bool]) -> tuple[bool, float]:
    """As `took`, of a replica that waits already."""
    clock = asyncio.get_running_loop().time
    began = clock()
    return await leading, clock() - began


async def holder(place: Place) -> tuple[Lease, asyncio.Task[str]]:
    """A replica that leads and keeps the lease, and the task that ends with the reason when it has lost the lease."""
    lease = place.replica("a")
    await lease.lead()
    return lease, asyncio.create_task(lease.keep())


def test_the_first_replica_makes_the_lease_and_holds_it() -> None:
    async def tell(place: Place) -> None:
        lease = place.replica("a")
        drained, after_s = await took(lease)
        assert (drained, lease.holds(), lease.holder) == (False, True, "a")
        assert after_s < 0.1
        assert place.object["spec"]["holderIdentity"] == "a"
        assert place.object["spec"]["leaseDurationSeconds"] == 3

    story(tell)


def test_a_holder_that_renews_keeps_the_lease_and_the_other_stands_by() -> None:
    async def tell(place: Place) -> None:
        one, other = place.replica("a"), place.replica("b")
        await one.lead()
        keeping, waiting = asyncio.create_task(one.keep()), asyncio.create_task(other.lead())
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert one.holds()
            assert not other.holds()
        assert other.holder == "a"
        assert not keeping.done()
        waiting.cancel()
        keeping.cancel()

    story(tell)


def test_a_holder_that_cannot_renew_stops_before_the_other_begins() -> None:
    async def tell(place: Place) -> None:
        one, other = place.replica("a"), place.replica("b")
        await one.lead()
        keeping, waiting = asyncio.create_task(one.keep()), asyncio.create_task(other.lead())
        await asyncio.sleep(10.4)
        place.wires[one].away = True
        both, free = 0, 0
        while not waiting.done():
            await asyncio.sleep(0.01)
            both += one.holds() and other.holds()
            free += not one.holds() and not other.holds()
        assert both == 0
        assert 0.5 < free / 100 < 1.5, "work stops a while before anybody else may begin"
        assert waiting.result() is False
        assert "nothing answers" in await keeping
        assert not one.holds()

    story(tell)


def test_a_holder_that_could_not_renew_does_not_say_that_it_leads() -> None:
    """As a standby it sent people to itself, for as long as the API server was away."""

    async def tell(place: Place) -> None:
        lease = place.replica("a")
        await lease.lead()
        place.wires[lease].away = True
        await lease.keep()
        assert lease.holder == ""

    story(tell)


def test_a_killed_holder_is_followed_within_its_duration_and_a_look() -> None:
    async def tell(place: Place) -> None:
        one, other = place.replica("a"), place.replica("b")
        await one.lead()
        waiting = asyncio.create_task(took(other))
        await asyncio.sleep(0)
        drained, after_s = await waiting
        assert not drained
        assert 3.0 <= after_s < 3.6

    story(tell)


def test_work_is_counted_from_when_the_renewal_was_sent() -> None:
    async def tell(place: Place) -> None:
        lease = place.replica("a")
        place.wires[lease].slow_s = 1.5
        sent = asyncio.get_running_loop().time()
        await lease.lead()
        await asyncio.sleep(sent + 1.5 + 2.25 - 0.1 - asyncio.get_running_loop().time())
        assert lease.holds()
        await asyncio.sleep(0.2)
        assert not lease.holds(), "a look of 1.5 s, then 2.25 s from the write on, whose answer took 1.5 s"

    story(tell)


def test_a_restarted_replica_acquires_its_own_lease_again_at_once() -> None:
    async def tell(place: Place) -> None:
        await place.replica("a", "first").lead()
        again = place.replica("a", "second")
        drained, after_s = await took(again)
        assert not drained
        assert after_s < 0.1
        assert place.object["metadata"]["annotations"][PROCESS] == "second"

    story(tell)


def test_a_process_that_wakes_does_not_take_its_successors_lease_for_its_own() -> None:
    async def tell(place: Place) -> None:
        paused = place.replica("a", "paused")
        await paused.lead()
        keeping = asyncio.create_task(paused.keep())
        again = place.replica("a", "again")
        await again.lead()
        holding = asyncio.create_task(again.keep())
        why = await keeping
        assert "Another process of the same name, a, took the lease slurm-bridge/slurm-bridge" in why
        waiting = asyncio.create_task(paused.lead())
        await asyncio.sleep(20)
        assert again.holds()
        assert not waiting.done()
        for task in (waiting, holding):
            task.cancel()

    story(tell)


def test_a_clean_stop_is_believed_once() -> None:
    async def tell(place: Place) -> None:
        one, other = place.replica("a"), place.replica("b")
        await one.lead()
        waiting = asyncio.create_task(took(other))
        await asyncio.sleep(0.5)
        await one.release(drained=True)
        assert not one.holds()
        drained, after_s = await waiting
        assert drained
        assert after_s < 0.5 + 0.3
        assert DRAINED not in place.object["metadata"]["annotations"]
        assert not (await place.replica("b", "after a crash").lead())

    story(tell)


def test_a_stop_with_calls_in_flight_lets_the_next_begin_and_claims_nothing() -> None:
    async def tell(place: Place) -> None:
        one = place.replica("a")
        await one.lead()
        await one.release(drained=False)
        drained, after_s = await took(place.replica("b"))
        assert not drained
        assert after_s < 0.1

    story(tell)


def test_a_statement_that_its_last_holder_did_not_write_counts_for_nothing() -> None:
    async def tell(place: Place) -> None:
        one = place.replica("a")
        await one.lead()
        place.edit({}, {DRAINED: "an earlier process"})
        place.edit({"holderIdentity": None})
        assert not await place.replica("b").lead()
        place.edit({}, {DRAINED: "process of b"})
        assert not record_of(place.object).drained, "b holds it still"

    story(tell)


def test_a_release_follows_a_renewal_without_an_answer() -> None:
    async def tell(place: Place) -> None:
        one = place.replica("a")
        await one.lead()
        place.edit({"renewTime": "2026-11-22T00:00:00.000000Z"})  # as that renewal did, after the last answered renewal
        await one.release(drained=True)
        assert await place.replica("b").lead()

    story(tell)


def test_a_write_whose_answer_was_lost_is_no_lease_until_a_look_shows_it() -> None:
    async def tell(place: Place) -> None:
        lease = place.replica("a")
        place.wires[lease].lost = True
        waiting = asyncio.create_task(took(lease))
        await asyncio.sleep(0.1)
        assert place.object["spec"]["holderIdentity"] == "a"
        assert not lease.holds()
        _, after_s = await waiting
        assert after_s < 1

    story(tell)


def test_a_lease_that_was_deleted_or_edited_is_written_again_by_its_holder() -> None:
    async def tell(place: Place) -> None:
        lease, keeping = await holder(place)
        place.cluster.remove(START, "leases", place.object)
        await asyncio.sleep(3)
        assert place.object["spec"]["holderIdentity"] == "a"
        place.edit({"holderIdentity": "somebody", "leaseDurationSeconds": 1_000_000, "leaseTransitions": 0})
        await asyncio.sleep(3)
        assert lease.holds()
        assert place.object["spec"]["holderIdentity"] == "a"
        assert any("was edited: it named somebody as holder" in each for each in place.said)
        keeping.cancel()

    story(tell)


def test_a_lease_that_was_deleted_is_not_taken_while_its_holder_works() -> None:
    """The standby looks more often than the holder renews: both led until the holder looked."""

    async def tell(place: Place) -> None:
        one, other = place.replica("a"), place.replica("b")
        await one.lead()
        keeping, waiting = asyncio.create_task(one.keep()), asyncio.create_task(other.lead())
        await asyncio.sleep(5)
        for _ in range(5):
            place.cluster.remove(START, "leases", place.object)
            await asyncio.sleep(1.5)
            assert one.holds()
            assert not other.holds()
        place.wires[one].away = True
        place.cluster.remove(START, "leases", place.object)
        _, after_s = await asyncio.wait_for(took_by(waiting), 5)
        assert 2 < after_s < 3.5, "a holder that is gone is followed within the duration"
        assert "nothing answers" in await keeping

    story(tell)


def test_a_deleted_lease_of_a_holder_that_has_not_renewed_it_is_taken_at_once() -> None:
    """The message on such a lease says so: delete the lease."""

    async def tell(place: Place) -> None:
        meta = {"namespace": "slurm-bridge", "name": "slurm-bridge", "annotations": {PROCESS: "feedfeed"}}
        place.cluster.create(
            START, "leases", {"metadata": meta, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 40}}
        )
        waiting = asyncio.create_task(place.replica("a").lead())
        await asyncio.sleep(4)
        place.cluster.remove(START, "leases", place.object)
        _, after_s = await took_by(waiting)
        assert after_s < 0.5

    story(tell)


@pytest.mark.parametrize(
    ("spec", "waits_s", "says"),
    [
        ({"holderIdentity": "x", "leaseDurationSeconds": 2_000_000_000}, LONGEST_S, "2000000000"),
        ({"holderIdentity": "x", "leaseDurationSeconds": -1}, 3, "-1"),
        ({"holderIdentity": "x", "leaseDurationSeconds": "soon"}, 3, "soon"),
        ({"holderIdentity": "x"}, 3, ""),
        ({"holderIdentity": 17, "leaseTransitions": "many", "renewTime": []}, 0, ""),
        ({"holderIdentity": "x", "renewTime": "9999-99-99", "leaseDurationSeconds": 5}, 5, "no slurm-bridge"),
        ({}, 0, ""),
    ],
)
def test_a_lease_that_was_edited_is_waited_for_as_long_as_is_safe(
    spec: dict[str, Any], waits_s: float, says: str
) -> None:
    async def tell(place: Place) -> None:
        meta = {"namespace": "slurm-bridge", "name": "slurm-bridge"}
        place.cluster.create(START, "leases", {"metadata": meta, "spec": spec})
        _, after_s = await took(place.replica("a"))
        assert waits_s <= after_s < waits_s + 0.6
        assert len(place.said) == bool(says), "told once, not at each look"
        assert all(says in each for each in place.said)

    story(tell)


def test_a_holder_that_does_not_renew_a_lease_of_long_duration_is_reported() -> None:
    """A hand-written Lease: it looks like that of another replica."""

    async def tell(place: Place) -> None:
        meta = {"namespace": "slurm-bridge", "name": "slurm-bridge", "annotations": {PROCESS: "feedfeed"}}
        spec = {"holderIdentity": "alien", "leaseDurationSeconds": 40}
        place.cluster.create(START, "leases", {"metadata": meta, "spec": spec})
        lease = place.replica("a")
        leading = asyncio.create_task(lease.lead())
        await asyncio.sleep(2.5)
        assert (lease.trouble, place.said) == ("", [])
        await asyncio.sleep(10)
        assert lease.trouble == (
            "The lease slurm-bridge/slurm-bridge names alien as holder, and nothing has renewed it for more than 3 s. Its "
            "duration is 40 s, so it is taken over 40 s after its last renewal. If no such replica runs, delete the lease."
        )
        assert place.said == [lease.trouble], "told once, not at each look"
        await leading
        assert (lease.holder, lease.trouble) == ("a", "")

    story(tell)


def test_rights_that_are_taken_away_are_a_sentence_and_end_the_lead_in_time() -> None:
    async def tell(place: Place) -> None:
        lease, keeping = await holder(place)
        place.cluster.forbidden |= {("get", "leases"), ("update", "leases")}
        why = await keeping
        assert not lease.holds()
        assert "Role slurm-bridge-lease of manifests/base/rbac.yaml" in why
        waiting = asyncio.create_task(lease.lead())
        await asyncio.sleep(5)
        assert "Role slurm-bridge-lease" in lease.trouble
        assert len(place.said) == len(set(place.said)), "each sentence once"
        place.cluster.forbidden.clear()
        await asyncio.wait_for(waiting, 1)
        assert lease.holds()
        assert not lease.trouble

    story(tell)


def test_a_namespace_that_is_not_there_is_a_sentence() -> None:
    async def tell(place: Place) -> None:
        place.cluster.remove(START, "namespaces", place.cluster.store.get("namespaces", "", "slurm-bridge") or {})
        waiting = asyncio.create_task(place.replica("a").lead())
        await asyncio.sleep(1)
        assert not waiting.done()
        assert "Create the namespace" in place.said[0]
        waiting.cancel()

    story(tell)


def test_a_holder_whose_namespace_is_deleted_says_so() -> None:
    """It said that the process had stood still, and /readyz said nothing."""

    async def tell(place: Place) -> None:
        lease, keeping = await holder(place)
        place.cluster.remove(START, "leases", place.object)
        place.cluster.remove(START, "namespaces", place.cluster.store.get("namespaces", "", "slurm-bridge") or {})
        why = await keeping
        assert "Create the namespace" in why
        assert place.said == [why] == [lease.trouble]

    story(tell)


def test_a_holder_that_may_not_read_the_lease_after_a_conflict_says_so() -> None:
    async def tell(place: Place) -> None:
        lease, keeping = await holder(place)
        place.cluster.forbidden |= {("get", "leases")}
        place.edit({}, {"note": "edited"})
        why = await keeping
        assert "Role slurm-bridge-lease" in why
        assert place.said == [why] == [lease.trouble]

    story(tell)


def test_a_holder_that_another_client_overtakes_each_time_says_so() -> None:
    async def tell(place: Place) -> None:
        _, keeping = await holder(place)

        async def edit() -> None:
            for number in range(1_000_000):
                place.edit({}, {"note": str(number)})
                await asyncio.sleep(0.0005)

        editing = asyncio.create_task(edit())
        assert "the object has been modified" in await keeping
        editing.cancel()

    story(tell)


def test_credentials_that_are_not_accepted_are_no_missing_rights() -> None:
    async def tell(place: Place) -> None:
        lease = place.replica("a")

        async def unauthorized(call: Call) -> Reply:
            raise Unauthorized("authenticate", "Kubernetes", "/kubeconfig: its token expired. Renew it", 401)

        place.wires[lease].exchange = unauthorized
        waiting = asyncio.create_task(lease.lead())
        await asyncio.sleep(1)
        assert place.said == [
            "The lease slurm-bridge/slurm-bridge cannot be used: Kubernetes: authenticate: /kubeconfig: its token expired. "
            "Renew it (error 401)."
        ]
        waiting.cancel()

    story(tell)


@pytest.mark.parametrize(
    "content", [{}, {"spec": None}, {"metadata": []}, {"spec": [], "metadata": {"annotations": 1}}]
)
def test_any_object_is_a_record(content: dict[str, Any]) -> None:
    record = record_of(content)
    assert (record.holder, record.drained, record.duration_s) == ("", False, None)

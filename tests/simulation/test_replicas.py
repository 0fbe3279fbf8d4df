"""Two replicas among faults: if one is killed, stopped or paused, the invariants hold and the other goes on at once (X4).

`make replicas` lives 200 seeds of an hour each.  SEED and SEEDS are as in test_seeds.py, HOURS is the length of a life.
"""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from bridge.simulation.virtual_time import START, run
from scheduler.actions import BindPod
from tests.simulation.calm_replicas import CalmReplicas, Handover
from tests.simulation.disturbed import LEASES, Place, is_write, kills, observations, swept, unanswered
from tests.simulation.life import live_together
from tests.simulation.many_lives import assert_all_hold, wanted_seeds
from tests.simulation.processes import PausingLoop, Process
from tests.simulation.replicas import LEASE, NAMES, SPACE, Replicas

SEEDS, HOURS = 4, 0.05
HOUR_S = 3600.0


def live_replicas(seed: int) -> None:
    """Raises AssertionError with the seed and the end of the log."""
    live_together(seed, Replicas(seed, chaos_s=float(os.environ.get("HOURS", str(HOURS))) * HOUR_S))


def live_without_a_lease(seed: int) -> None:
    """The same, where both replicas act all the time."""
    live_together(seed, Replicas(seed, chaos_s=HOURS * HOUR_S, leased=False))


def test_every_invariant_holds_with_two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_all_hold(live_replicas, wanted_seeds(SEEDS), monkeypatch)


def test_every_invariant_holds_with_two_bridges_and_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of an admin, which does no harm."""
    assert_all_hold(live_without_a_lease, range(2), monkeypatch)


# --- one story each -----------------------------------------------------------------------------------------------


def test_a_standby_takes_over_within_five_seconds_of_a_kill_and_within_one_of_a_stop() -> None:
    life = CalmReplicas(1)

    async def story() -> None:
        life.pod("first")
        await life.bound("first")
        await asyncio.sleep(30)
        name = await life.leader()
        life.running[name].task.cancel()
        life.pod("after-a-kill")
        assert await life.bound("after-a-kill") < 5
        assert life.bridge is not None
        assert life.bridge.world.quiet_until() > life.clock(), "a crash: what it sent may still take effect"
        await asyncio.sleep(30)
        life.running[await life.leader()].stop.set()
        life.pod("after-a-stop")
        assert await life.bound("after-a-stop") < 1
        await asyncio.sleep(1)
        assert life.bridge.world.quiet_until() <= life.clock(), "a clean stop: there is nothing to wait for"

    life.tell(story)


def test_a_standby_that_is_stopped_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    life = CalmReplicas(1)
    caplog.set_level(logging.INFO)

    async def story() -> None:
        leader = await life.leader()
        [standby] = [each for name, each in life.running.items() if name != leader]
        standby.stop.set()
        await asyncio.sleep(1)
        assert "stopped; this replica stood by" in caplog.messages

    life.tell(story)


def test_a_stop_that_follows_a_crash_too_soon_does_not_end_the_quiet_period() -> None:
    life = CalmReplicas(2)

    async def story() -> None:
        name = await life.leader()
        await asyncio.sleep(30)
        life.running[name].task.cancel()
        await asyncio.sleep(6)
        life.running[await life.leader()].stop.set()
        await asyncio.sleep(2)
        assert life.bridge is not None
        assert life.bridge.world.quiet_until() > life.clock(), "what the first one sent may still take effect"

    life.tell(story)


def test_a_leader_that_wakes_acts_no_more_and_becomes_a_standby() -> None:
    life = CalmReplicas(3)

    async def story() -> None:
        life.pod("first")
        await life.bound("first")
        name = await life.leader()
        before = life.bridge
        life.running[name].process.pause(20)
        await asyncio.sleep(10)
        life.pod("meanwhile")
        await life.bound("meanwhile")
        assert await life.leader() != name
        assert life.bridge is not before
        await asyncio.sleep(30)
        assert await life.leader() != name
        replica = life.running[name].replica
        assert replica is not None
        assert replica.now is None
        assert replica.standby is not None

    life.tell(story)


def test_a_decision_that_was_not_sent_before_the_pause_is_not_sent_after_it() -> None:
    life = CalmReplicas(4)
    sent: list[str] = []

    async def story() -> None:
        name = await life.leader()
        await asyncio.sleep(2)
        bridge = life.bridge
        assert bridge is not None
        perform = bridge.executor.perform

        async def noted(action: object) -> object:
            if isinstance(action, BindPod):
                life.running[name].process.pause(20)
                await asyncio.sleep(0)
                ended = await perform(action)
                sent.append(ended.outcome.value)
                return ended
            return await perform(action)

        bridge.executor.perform = noted
        life.pod("train")
        # The lease takes 4 s to expire; then the bind waits for the quiet period, because the grant is the former leader's.
        assert await life.bound("train") < 20, "the other replica binds it"
        await asyncio.sleep(20)
        assert sent in ([], ["unknown"])

    life.tell(story)


def test_a_replica_that_leads_again_does_not_go_by_a_list_of_pods_from_before_its_own_binds() -> None:
    life = CalmReplicas(6)
    ours = ("/api/v1/pods", "spec.schedulerName=slurm-bridge")

    async def story() -> None:
        life.pod("train")  # the first list of the replica shows it, and shows it unbound
        name = await life.leader()
        other = next(each for each in NAMES if each != name)
        await life.bound("train")
        life.running[other].process.pause(60)
        life.running[name].process.pause(5)
        life.faults.stale_once.add(ours)
        life.kube.compact()  # no watch catches up from the version of the old list
        life.faults.api.begin()
        began = life.leads
        await asyncio.sleep(30)
        life.faults.api.end()
        await asyncio.sleep(20)
        assert life.leads == began + 1
        assert life.running[name].bridge is life.bridge, "it was the first to lead again"
        assert not life.faults.stale_once, "it was told an old list"
        binds = [what for _, what in life.invariants.log if what.startswith("plans BindPod train")]
        assert len(binds) == 1

    life.tell(story)


def test_a_standby_whose_watch_hangs_lists_the_pods_before_it_binds() -> None:
    life = CalmReplicas(7)

    async def story() -> None:
        name = await life.leader()
        other = life.running[next(each for each in NAMES if each != name)]
        await asyncio.sleep(2)
        life.pod("train")
        await asyncio.sleep(0.002)
        assert other.transport is not None
        other.transport.hang()  # it has seen the pod, and does not see the bind
        await life.bound("train")
        life.running[name].process.pause(60)
        await asyncio.sleep(20)
        assert other.bridge is life.bridge, "the standby leads"
        binds = [what for _, what in life.invariants.log if what.startswith("plans BindPod train")]
        assert len(binds) == 1

    life.tell(story)


HANDOVER = Handover.played


def test_wherever_a_replica_is_killed_the_other_one_finishes_the_work() -> None:
    """Also just before and after a write of the Lease: a renewal, the release, the takeover."""
    wrong = swept(HANDOVER, lambda whole: kills(whole.seen, leases=True))
    assert not wrong, "\n".join(wrong)


def test_whatever_is_observed_late_twice_or_not_at_all_the_replicas_finish_the_work() -> None:
    wrong = swept(HANDOVER, observations)
    assert not wrong, "\n".join(wrong)


def test_whichever_answer_is_lost_and_its_request_late_the_replicas_finish_the_work() -> None:
    wrong = swept(HANDOVER, lambda whole: unanswered(whole.seen, leases=True))
    assert not wrong, "\n".join(wrong)


def test_the_handover_is_killed_around_each_write_of_the_lease() -> None:
    """The last write of the leader that stops is the release, and the next write is the takeover."""
    whole = HANDOVER()
    assert whole.end == ["alice-a/first", "alice-a/second", "Running", "Running"]
    leases = {number for number, request in enumerate(whole.seen) if is_write(request) and LEASES in request}
    assert len(leases) >= 2
    places = set(kills(whole.seen, leases=True))
    assert all(
        Place(number, how) in places for number in leases for how in ("killed-before", "killed-after", "killed-late")
    )


def test_a_paused_process_runs_nothing_until_it_wakes() -> None:
    async def story() -> list[float]:
        clock, seen, process = asyncio.get_running_loop().time, [], Process()

        async def ticks() -> None:
            while True:
                await asyncio.sleep(1)
                seen.append(clock() - START)

        task = process.start(ticks())
        await asyncio.sleep(2.5)
        process.pause(3)
        await asyncio.sleep(4.2)
        task.cancel()
        return seen

    assert [round(at, 1) for at in run(story(), loop_of=PausingLoop)] == [1.0, 2.0, 5.5, 6.5]


def test_the_lease_names_the_replica_that_leads() -> None:
    life = CalmReplicas(5)

    async def story() -> None:
        name = await life.leader()
        found = life.kube.store.get("leases", SPACE, LEASE)
        assert found is not None
        assert found["spec"]["holderIdentity"] == name

    life.tell(story)

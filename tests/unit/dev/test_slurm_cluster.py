"""The simulated Slurm's levers and its books: what the contract suite cannot do to a real one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.simulation.slurm import rest
from bridge.simulation.slurm.cluster import MIN_JOB_AGE_S, SlurmCluster
from bridge.simulation.slurm.layout import layout
from bridge.simulation.slurm.nodes import SlurmSimNode, Wanted
from bridge.slurm.bodies import job_body
from scheduler.model.slurm import JobSpec


class Face:
    """A cluster, asked as slurmrestd would be."""

    def __init__(self, **how: Any) -> None:
        self.cluster = SlurmCluster.example(**how)
        self.token = self.cluster.token("slurm")
        self.now = 0.0

    def ask(self, method: str, path: str, body: bytes = b"", *, user: str = "") -> tuple[int, Any]:
        headers = {"x-slurm-user-token": self.token} | ({"X-SLURM-USER-NAME": user} if user else {})
        status, _, content = rest.answer(self.cluster, self.now, method, f"/slurm/v0.0.45/{path}", headers, body)
        return status, json.loads(content)

    def submit(self, name: str = "n", **options: Any) -> int:
        spec = JobSpec(**{"name": name, "user": "alice", "cpus_per_task": 1, "memory_mib": 100, **options})
        status, answer = self.ask("POST", "job/submit", job_body(spec, immediate=False), user=spec.user)
        assert status == 200, answer
        return int(answer["job_id"])

    def allocate(self, name: str = "n", **options: Any) -> int:
        """The job id, or the number that says why not."""
        spec = JobSpec(**{"name": name, "user": "alice", "cpus_per_task": 1, "memory_mib": 100, **options})
        status, answer = self.ask("POST", "job/allocate", job_body(spec, immediate=True), user=spec.user)
        return int(answer["job_id"] if status == 200 else -answer["errors"][0]["error_number"])

    def state(self, job_id: int) -> str:
        return self.cluster.jobs[job_id].state

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.cluster.tick(self.now)


def test_after_a_crash_young_jobs_are_gone_and_their_ids_are_given_out_again() -> None:
    face = Face()
    old = face.allocate("old")
    face.pass_time(21)
    young = face.allocate("young", gres=(("gpu", 3),))
    face.pass_time(2)
    youngest = face.allocate("youngest")
    assert face.cluster.lose_state(face.now) == [young, youngest]
    face.cluster.check()
    assert face.state(old) == "RUNNING"
    assert face.ask("GET", f"job/{young}")[0] == 404
    assert face.allocate("another") == young
    # slurmdbd still lists the lost job "young", which slurmctld had sent to slurmdbd before the crash.
    assert {"old", "young"} == {job.name for job in face.cluster.accounted}


def test_jobs_of_one_id_never_have_one_sluid() -> None:
    face = Face()
    first = face.allocate("a")
    seen = face.ask("GET", f"job/{first}")[1]["jobs"][0]["step_id"]["sluid"]
    face.cluster.lose_state(face.now)
    assert face.allocate("b") == first
    assert face.ask("GET", f"job/{first}")[1]["jobs"][0]["step_id"]["sluid"] != seen


def test_a_preemption_with_grace_is_reported_before_it_comes() -> None:
    face = Face()
    job_id = face.allocate()
    face.cluster.preempt(job_id, face.now, grace_s=20)
    told = face.ask("GET", f"job/{job_id}")[1]["jobs"][0]
    assert told["job_state"] == ["RUNNING", "SIGNALING"]
    assert told["end_time"]["number"] == 20
    face.pass_time(40)
    assert face.state(job_id) == "PREEMPTED"


def test_stock_slurm_looks_at_a_new_job_after_three_seconds_and_a_tuned_one_at_the_next() -> None:
    stock, tuned = Face(stock=True), Face(stock=False)
    jobs = stock.submit(), tuned.submit()
    stock.pass_time(2)
    tuned.pass_time(1)
    assert (stock.state(jobs[0]), tuned.state(jobs[1])) == ("PENDING", "RUNNING")
    stock.pass_time(1)
    assert stock.state(jobs[0]) == "RUNNING"


def test_freed_capacity_is_noticed_in_the_end_without_a_nudge() -> None:
    face = Face(external=1, slurmd=0)
    full = face.allocate("full", cpus_per_task=64)
    waiting = face.submit("waiting")
    face.pass_time(5)
    face.cluster.cancel(full, face.now)
    face.pass_time(31)
    assert face.state(waiting) == "RUNNING"


def test_a_small_job_starts_first_if_it_delays_no_other_job() -> None:
    face = Face(external=1, slurmd=0, stock=False)
    face.allocate("long", cpus_per_task=32, time_limit_min=60)
    big = face.submit("big", cpus_per_task=64, time_limit_min=60)
    small = face.submit("small", time_limit_min=30)
    too_long = face.submit("too long", time_limit_min=90)
    face.pass_time(3)
    assert [face.state(job) for job in (big, small, too_long)] == ["PENDING", "RUNNING", "PENDING"]
    assert face.cluster.jobs[big].planned == "k1"
    assert face.cluster.jobs[big].starts == 3600


def test_an_immediate_allocation_that_is_refused_has_ended_the_lower_job_all_the_same() -> None:
    face = Face(external=1, slurmd=0)
    low = face.allocate("low", partition="low", cpus_per_task=64)
    assert face.allocate("high") == -2016
    assert face.state(low) == "PREEMPTED"
    assert face.allocate("high") > 0


@pytest.mark.parametrize(
    ("reason", "blocks"), [("held", False), ("dependency", False), ("low", False), ("room", True), ("elsewhere", True)]
)
def test_only_a_runnable_job_of_an_equal_or_higher_tier_blocks_immediate_allocations(reason: str, blocks: bool) -> None:
    face = Face(external=1, slurmd=0)
    full = face.allocate("full", cpus_per_task=63, partition="low" if reason == "low" else "main")
    partition = {"low": "low", "elsewhere": "gpu"}.get(reason, "main")
    name = "full" if reason == "dependency" else "waits"
    waits = face.submit(name, cpus_per_task=2, partition=partition)
    if reason == "held":
        face.cluster.hold(waits)
    assert full
    assert (face.allocate("now") == -2013) is blocks


def test_ended_jobs_are_forgotten_after_their_age() -> None:
    face = Face()
    job_id = face.allocate()
    face.cluster.end(job_id, "COMPLETED", face.now, exit_code=3)
    face.pass_time(MIN_JOB_AGE_S - 1)
    assert face.ask("GET", "jobs/state/")[1]["jobs"] == [{"job_id": str(job_id), "state": ["COMPLETED"]}]
    face.pass_time(1)
    assert face.ask("GET", "jobs/state/")[1]["jobs"] == []


def test_a_suspended_job_shows_its_nodes_again_when_it_is_resumed() -> None:
    face = Face()
    job_id = face.allocate()
    granted = face.ask("GET", f"resources/{job_id}")[1]["nodes"]
    face.cluster.suspend(job_id)
    status, answer = face.ask("GET", f"resources/{job_id}")
    assert (status, answer["errors"][0]["error_number"]) == (422, 2085)
    face.cluster.unsuspend(job_id)
    assert face.state(job_id) == "RUNNING"
    assert face.ask("GET", f"resources/{job_id}")[1]["nodes"] == granted


def test_nodes_come_and_go() -> None:
    face = Face(external=1, slurmd=0)
    face.cluster.add_node(SlurmSimNode("m1", cpus=8, devices={("gpu", "1g.10gb"): 2}, features=("mig",)))
    job_id = face.allocate("mig", gres=(("gpu:1g.10gb", 2),), constraints="mig")
    assert face.ask("GET", f"resources/{job_id}")[1]["nodes"][0]["node"] == "m1"
    face.cluster.cancel(job_id, face.now)
    face.cluster.remove_node("m1")
    assert face.allocate("mig", gres=(("gpu:1g.10gb", 2),)) < 0


def test_a_field_that_slurm_does_not_know_is_warned_of() -> None:
    face = Face()
    body = b'{"job":{"name":"n","flags":["EXTERNAL_JOB"],"nosuch":1}}'
    assert face.ask("POST", "job/submit", body, user="alice")[1]["warnings"][0]["source"] == "#/job/nosuch/"


def test_more_jobs_than_slurm_holds_are_refused() -> None:
    face = Face()
    face.cluster.max_job_count = 2
    face.submit("a"), face.submit("b")
    assert face.allocate("c") == -2007


def test_a_node_that_has_no_room_refuses_to_be_taken() -> None:
    node = SlurmSimNode("x", cpus=2)
    node.take(1, Wanted(2, 100))
    with pytest.raises(AssertionError, match="no room"):
        node.take(2, Wanted(1, 100))


ACTS = (
    "submit", "allocate", "gang", "components", "cancel", "preempt", "down", "drain", "resume", "crash", "update", "hold",
    "time",
)  # fmt: skip
acts = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9), st.integers(1, 40), st.integers(0, 5)), max_size=40)


def come(face: Face, act: str, which: int, amount: int, gpus: int) -> None:
    """A job of one of many kinds, granted or not."""
    shape: dict[str, Any] = {
        "cpus_per_task": amount,
        "gres": (("gpu" if which % 2 else "gpu:h100", gpus),) if gpus else (),
        "partition": ("main", "low", "gpu")[which % 3],
        "exclusive": "exclusive" if which == 7 else "",
    }
    if act == "submit":
        face.submit(f"j{which}", **shape)
    elif act == "allocate":
        face.allocate(f"j{which}", **shape)
    elif act == "gang":
        lay = {"tasks_per_node": 1} if which == 3 else {"max_nodes": 3} if which == 4 else {}
        face.allocate(f"j{which}", tasks=1 + gpus % 3, **shape, **lay)
    else:
        workers = JobSpec(f"j{which}", "alice", amount, 100, tasks=2 + which % 2, partition=shape["partition"])
        face.submit(f"j{which}", parts=(workers,), **shape)


@settings(max_examples=150, deadline=None)
@given(acts, st.booleans())
def test_whatever_happens_nothing_is_given_twice_and_all_books_agree(
    history: list[tuple[str, int, int, int]], stock: bool
) -> None:
    face = Face(external=2, slurmd=1, stock=stock)
    cluster = face.cluster
    for act, which, amount, gpus in history:
        living = [job.id for job in cluster.jobs.values() if not job.ended]
        chosen = living[which % len(living)] if living else 0
        node = list(cluster.nodes)[which % 3]
        if act in ("submit", "allocate", "gang", "components"):
            come(face, act, which, amount, gpus)
        elif act == "time":
            face.pass_time(amount)
        elif act in ("down", "resume"):
            getattr(cluster, act)(node, face.now)
        elif act == "drain":
            cluster.drain(node)
        elif act == "crash":
            cluster.lose_state(face.now)
        elif chosen and act in ("cancel", "preempt"):
            if act == "cancel" or cluster.jobs[chosen].state == "RUNNING":
                getattr(cluster, act)(chosen, face.now)
                assert act == "cancel" or not any(job.holds for job in cluster.components(cluster.jobs[chosen]))
        elif chosen and act == "hold":
            if cluster.jobs[chosen].pending:
                cluster.hold(chosen)
        elif chosen and act == "update":
            face.ask(
                "POST", f"job/{chosen}", json.dumps({"cpus_per_task": amount, "comment": "c"}).encode(), user="alice"
            )
        cluster.check()


def test_where_scheduling_is_deferred_nothing_is_allocated_at_once_and_no_record_is_kept() -> None:
    face = Face()
    face.cluster.slurm_conf["SchedulerParameters"] = ["defer"]
    assert face.allocate() == -2125
    assert face.cluster.jobs == {}
    job_id = face.submit()
    face.pass_time(5)
    assert face.state(job_id) == "RUNNING"


# --- what jobs wait for -------------------------------------------------------------------------------------------


def reason(face: Face, job_id: int) -> str:
    return str(face.ask("GET", f"job/{job_id}")[1]["jobs"][0]["state_reason"])


def test_a_begin_time_is_seen_at_slurms_leisure_or_at_the_next_update() -> None:
    late, nudged = Face(), Face()
    jobs = late.submit("a", begin=40), nudged.submit("a", begin=40)
    late.pass_time(41)
    nudged.pass_time(41)
    assert (late.state(jobs[0]), reason(late, jobs[0])) == ("PENDING", "BeginTime")
    assert nudged.ask("POST", f"job/{jobs[1]}", b'{"comment":""}', user="alice")[0] == 200
    late.pass_time(1)
    nudged.pass_time(1)
    assert (late.state(jobs[0]), nudged.state(jobs[1])) == ("PENDING", "RUNNING")
    late.pass_time(30)
    assert late.state(jobs[0]) == "RUNNING"


def test_after_counts_the_minutes_from_the_other_jobs_start() -> None:
    face = Face(stock=False)
    first = face.allocate("first")
    second = face.submit("second", dependency=f"singleton,after:{first}+1")
    face.pass_time(59)
    assert reason(face, second) == "Dependency"
    face.pass_time(1)
    assert face.state(second) == "RUNNING"


@pytest.mark.parametrize(
    ("ended", "code", "kind", "then"),
    [
        ("COMPLETED", 0, "afterok", "None"),
        ("COMPLETED", 0, "aftercorr", "None"),
        ("COMPLETED", 0, "afternotok", "DependencyNeverSatisfied"),
        ("FAILED", 1, "afterok", "DependencyNeverSatisfied"),
        ("FAILED", 1, "afternotok", "None"),
        ("CANCELLED", 0, "afterany", "None"),
    ],
)
def test_a_dependency_is_judged_by_the_end_of_the_other_job(ended: str, code: int, kind: str, then: str) -> None:
    face = Face(stock=False)
    first = face.allocate("first")
    second = face.submit("second", dependency=f"singleton,{kind}:{first}")
    face.cluster.end(first, ended, face.now, exit_code=code)
    face.pass_time(1)
    assert reason(face, second) == then
    face.pass_time(MIN_JOB_AGE_S + 1)
    assert reason(face, second) == then, "how it ended is known after it is forgotten"


# --- gangs and heterogeneous jobs ---------------------------------------------------------------------------------


def components(face: Face, **of_workers: Any) -> tuple[int, int]:
    """A launcher and its three workers; their ids."""
    workers = JobSpec(
        **{"name": "mpi", "user": "alice", "cpus_per_task": 2, "memory_mib": 100, "tasks": 3, **of_workers}
    )
    leader = face.submit("mpi", parts=(workers,))
    return leader, leader + 1


@pytest.mark.parametrize(("state", "act"), [("PREEMPTED", "preempt"), ("NODE_FAIL", "down")])
def test_a_change_of_one_component_affects_all_components(state: str, act: str) -> None:
    face = Face(stock=False)
    both = components(face, excluded_nodes="n1")
    face.pass_time(1)
    if act == "down":
        face.cluster.down(face.cluster.jobs[both[1]].nodes[0], face.now)
    else:
        face.cluster.preempt(both[0], face.now)
    assert [face.state(job_id) for job_id in both] == [state, state]


def test_a_time_limit_ends_one_component_alone() -> None:
    face = Face(stock=False)
    leader, workers = components(face, time_limit_min=1)
    face.pass_time(100)
    assert (face.state(leader), face.state(workers)) == ("RUNNING", "TIMEOUT")


def test_a_waiting_heterogeneous_job_that_lost_a_component_never_starts() -> None:
    face = Face(stock=False)
    leader, workers = components(face)
    meant = json.dumps({"jobs": [str(workers)], "job_name": "mpi"}).encode()
    assert face.ask("DELETE", "jobs/", meant, user="alice")[0] == 200
    face.pass_time(100)
    assert (face.state(leader), face.state(workers)) == ("PENDING", "CANCELLED")


def test_stock_slurm_starts_components_only_when_it_backfills_and_a_nudge_does_not_help() -> None:
    face = Face(stock=True)
    leader, _ = components(face)
    assert face.ask("POST", f"job/{leader}", b'{"comment":""}', user="alice")[0] == 200
    face.pass_time(29)
    assert face.state(leader) == "PENDING"
    assert face.allocate("at once") == -2013, "and nothing is granted at once meanwhile"
    face.pass_time(1)
    assert face.state(leader) == "RUNNING"


def test_a_gang_preempts_on_all_its_nodes_or_on_none() -> None:
    face = Face(external=2, slurmd=0, stock=False)
    low = [face.allocate(f"low{i}", partition="low", cpus_per_task=64) for i in range(2)]
    small = face.submit("small", cpus_per_task=30, tasks=2)
    face.pass_time(1)
    assert sorted(face.state(job_id) for job_id in low) == ["PREEMPTED", "RUNNING"]
    assert face.state(small) == "RUNNING"
    large = face.submit("large", cpus_per_task=60, tasks=2, tasks_per_node=1)
    face.pass_time(1)
    assert face.state(large) == "PENDING", "one of its two nodes is taken by a job that is not lower"
    assert sorted(face.state(job_id) for job_id in low) == ["PREEMPTED", "RUNNING"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=7),
    st.integers(2, 20),
    st.none() | st.integers(1, 4),
    st.integers(1, 3),
    st.none() | st.integers(3, 6),
)
def test_a_layout_places_every_task_where_there_is_room_and_keeps_to_the_number_of_nodes(
    rooms: list[int], tasks: int, a_node: int | None, least: int, most: int | None
) -> None:
    nodes = {f"x{i}": (a_node if room >= a_node else 0) if a_node else room for i, room in enumerate(rooms)}
    wanted = Wanted(1, 100, tasks=tasks, tasks_per_node=a_node, min_nodes=min(least, tasks), max_nodes=most)
    places = layout(nodes, wanted)
    if places is None:
        at_most = sorted(nodes.values(), reverse=True)[:most]
        assert sum(at_most) < tasks or len([room for room in at_most if room]) < wanted.min_nodes
        return
    assert all(0 < count <= nodes[node] for node, count in places.items())
    assert list(places) == [node for node in nodes if node in places], "in Slurm's order"
    assert wanted.min_nodes <= len(places) <= (most or len(nodes))
    if a_node is None:
        assert sum(places.values()) == tasks
    else:
        assert set(places.values()) == {a_node}
        assert sum(places.values()) >= tasks

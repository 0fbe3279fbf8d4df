"""The codec: Slurm's words into the core's nouns, and a spec into a request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.slurm import bodies, codec, wire
from bridge.slurm.codec import Listed
from bridge.slurm.lists import ListAnswer
from scheduler.model.slurm import UNLIMITED, JobSpec

SPEC = JobSpec("ns/a~c.k", "alice", 2, 1024)


def states(*jobs: tuple[object, list[str]]) -> Listed[Any]:
    return codec.job_states(
        ListAnswer(items=tuple(msgspec.convert({"job_id": i, "state": s}, wire.JobState) for i, s in jobs))
    )


def number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


def job(**fields: Any) -> dict[str, Any]:
    return {"job_id": 7, "name": "n", "user_name": "alice", "job_state": ["PENDING"], **fields}


def one(**fields: Any) -> Any:
    return codec.job(msgspec.convert({"jobs": [job(**fields)]}, wire.JobAnswer), 7)


def test_equal_states_of_many_jobs_are_one_object() -> None:
    found = states(("1", ["CANCELLED", "COMPLETING"]), ("2", ["CANCELLED", "COMPLETING"])).found
    assert found[1] is found[2]
    assert found[1] == {"CANCELLED", "COMPLETING"}


def test_states_are_interned_only_up_to_a_bound() -> None:
    for n in range(2 * codec.MAX_INTERNED):
        assert codec.states((f"S{n}",)) == {f"S{n}"}
    assert len(codec._interned) <= codec.MAX_INTERNED


def test_components_of_a_heterogeneous_job_have_ids_of_their_own() -> None:
    assert states(("53+0", ["RUNNING"]), ("54+1", ["PENDING"])).found == {53: {"RUNNING"}, 54: {"PENDING"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"accounts": {"allowed": "teamb", "deny": ""}},
        {"accounts": {"allowed": "", "deny": "teamb"}},
        {"groups": {"allowed": "staff"}},
        {"qos": {"allowed": "high", "deny": "", "assigned": ""}},
        {"qos": {"allowed": "", "deny": "low", "assigned": ""}},
        {"maximums": {"nodes": number(0)}},
        {"maximums": {"cpus_per_node": number(4)}},
        {"maximums": {"cpus_per_socket": number(4)}},
        {"maximums": {"partition_memory_per_cpu": number(10)}},
        {"maximums": {"partition_memory_per_node": number(10)}},
        {"minimums": {"nodes": 2}},
        {"flags": ["REQ_RESV"]},
    ],
    ids=str,
)
def test_a_change_of_what_a_partition_accepts_is_a_change_of_the_partition(fields: dict[str, object]) -> None:
    seen = {"name": "main", "partition": {"state": ["UP"]}}
    both = (msgspec.convert(each, wire.Partition) for each in (seen, seen | fields))
    before, after = codec.partitions(ListAnswer(items=tuple(both))).found
    assert before != after


def test_the_state_of_an_array_is_that_of_a_task_that_lives() -> None:
    found = states(("12_1", ["COMPLETED"]), ("12_[2-9]", ["PENDING"]), ("12_0", ["FAILED"])).found
    assert found == {12: {"PENDING"}}


@pytest.mark.parametrize("none", ["soon", "", 0, -1, 10**18, "9" * 5000, "99999999999"])
def test_a_job_whose_id_is_none_does_not_hide_the_others(none: object) -> None:
    listed = states(("7", ["PENDING"]), (none, ["PENDING"]), (8, ["RUNNING"]))
    assert listed.found == {7: {"PENDING"}, 8: {"RUNNING"}}
    assert [each.key for each in listed.undecoded] == [None]


def test_an_invalid_time_is_unknown_and_the_job_is_read_all_the_same() -> None:
    for none in ("soon", -1, number(-(10**18)), number(10**18), number(253_402_300_800), {"set": "?"}, None, [], True):
        found = one(start_time=none, end_time=none, submit_time=none, preempt_time=none)
        assert (found.starts, found.ends, found.submitted, found.preempted) == (None,) * 4, none
    assert one(start_time=number(253_402_200_000)).starts == 253_402_200_000  # 9999-12-30


def test_a_count_that_slurm_cannot_have_meant_is_not_known() -> None:
    for none in (-1, 2**32 - 2, 10**18):
        assert one(time_limit=number(none)).time_limit_min is None
        assert one(tasks=number(none)).tasks == 1


def test_zero_and_absent_times_are_not_known() -> None:
    assert one(start_time=number(0), end_time={"set": False, "infinite": False, "number": 9}).starts is None
    assert one(end_time={"set": True, "infinite": True, "number": 0}).ends is None
    assert one(preempt_time=number(1_795_237_200)).preempted == 1_795_237_200.0
    assert one(preempt_time=number(0)).preempted is None
    assert one(submit_time=number(5)).submitted == 5.0


@pytest.mark.parametrize(
    ("sent", "minutes"),
    [(number(60), 60), ({"set": True, "infinite": True, "number": 0}, UNLIMITED), ({"set": False, "number": 0}, None)],
)
def test_a_time_limit_is_minutes_unlimited_or_not_set(sent: object, minutes: int | None) -> None:
    assert one(time_limit=sent).time_limit_min == minutes


def test_the_part_that_was_asked_for_is_taken_from_a_heterogeneous_job() -> None:
    answer = msgspec.convert({"jobs": [job(job_id=53), job(job_id=54, name="b")]}, wire.JobAnswer)
    assert codec.job(answer, 54).name == "b"
    with pytest.raises(ValueError, match="does not hold it"):
        codec.job(answer, 55)


def test_the_leader_of_a_heterogeneous_job_shows_all_of_it_and_another_component_itself() -> None:
    parts = [
        job(job_id=53 + i, tasks=number(i + 1), het_job_id=number(53), het_job_offset=number(i)) for i in (0, 2, 1)
    ]
    leader = codec.job(msgspec.convert({"jobs": parts}, wire.JobAnswer), 53)
    assert (leader.tasks, leader.het_id, leader.het_offset) == (1, 53, 0)
    assert [(part.id, part.tasks, part.het_id, part.het_offset) for part in leader.parts] == [
        (54, 2, 53, 1),
        (55, 3, 53, 2),
    ]
    other = codec.job(msgspec.convert({"jobs": parts[2:]}, wire.JobAnswer), 54)
    assert (other.het_id, other.het_offset, other.parts) == (53, 1, ())


@pytest.mark.parametrize(
    ("reasons", "shown"),
    [
        (("None", "JobHeldAdmin"), "JobHeldAdmin"),
        (("JobHeldUser", "JobHeldAdmin"), "JobHeldUser"),
        (("Resources", "Priority"), "Resources"),
        (("None", "Dependency"), "None"),
    ],
)
def test_a_heterogeneous_job_waits_for_what_keeps_one_component_from_its_turn(reasons: list[str], shown: str) -> None:
    parts = [
        job(job_id=53 + i, job_state=["PENDING"], state_reason=reason, het_job_id=number(53), het_job_offset=number(i))
        for i, reason in enumerate(reasons)
    ]
    assert codec.job(msgspec.convert({"jobs": parts}, wire.JobAnswer), 53).reason == shown
    running = [{**part, "job_state": ["RUNNING"]} for part in parts]
    assert codec.job(msgspec.convert({"jobs": running}, wire.JobAnswer), 53).reason == reasons[0]


def test_an_ordinary_job_is_no_component() -> None:
    ordinary = one(het_job_id=number(0), het_job_offset=number(0), tasks=number(4))
    assert (ordinary.het_id, ordinary.het_offset, ordinary.parts, ordinary.tasks) == (None, None, (), 4)


def test_a_job_without_a_user_is_a_contract_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"jobs": [{"job_id": 7, "name": "n", "job_state": []}]}, wire.JobAnswer)


def test_a_grant_counts_cores_threads_and_devices_under_both_names() -> None:
    answer = msgspec.convert(
        {
            "nodes": [
                {
                    "node": "x1",
                    "mem_alloc": 100,
                    "core_bitmap": "0x00000003000000C0",
                    "gres": [
                        {"name": "gpu", "type": "h100", "count": 2, "index": "0-1"},
                        {"name": "gpu", "type": "a100", "count": 1, "index": "4"},
                        {"name": "shard", "type": "", "count": 3, "index": None},
                    ],
                }
            ]
        },
        wire.ResourcesAnswer,
    )
    [node] = codec.grant(answer, 1, {"x1": 2}).nodes
    assert (node.cpus, node.memory_mib) == (8, 100)
    assert node.gres == {"gpu": 3, "gpu:h100": 2, "gpu:a100": 1, "shard": 3}
    assert node.indices == {"gpu": "0-1,4", "gpu:h100": "0-1", "gpu:a100": "4", "shard": ""}


def test_a_core_is_as_many_cpus_as_slurm_conf_says() -> None:
    sent = [
        {"name": "threads", "state": ["IDLE"], "cpus": 128, "sockets": 2, "cores": 32, "threads": 2},
        {"name": "cores-only", "state": ["IDLE"], "cpus": 64, "sockets": 2, "cores": 32, "threads": 2},
        {"name": "single", "state": ["IDLE"], "cpus": 64, "sockets": 2, "cores": 32, "threads": 1},
    ]
    assert codec.cpus_per_core(msgspec.convert(sent, tuple[wire.Node, ...])) == {"threads": 2}


def test_what_a_job_holds_of_each_node_is_reported_by_the_job_itself_where_slurm_gives_away_single_cpus() -> None:
    def held(select: str) -> object:
        allocation = [{"name": "t1", "cpus": {"count": 3, "used": 0}}, {"name": "t2", "cpus": {"count": 1, "used": 0}}]
        resources = {"select_type": [select], "nodes": {"allocation": allocation}}
        answer = {"jobs": [{"job_id": 6}, {"job_id": 7, "job_resources": resources}]}
        return codec.cpus_held(msgspec.convert(answer, wire.JobResourcesAnswer), 7)

    assert held("CR_CPU") == (True, {"t1": 3, "t2": 1})
    assert held("CR_CPU_MEMORY") == (True, {"t1": 3, "t2": 1})
    assert held("CR_CORE_MEMORY") == (False, {"t1": 3, "t2": 1})


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", {}),
        ("gpu:8", {"gpu": 8}),
        ("gpu:h100:8(S:0-1),gpu:a100:4(S:0,2-3),shard:32", {"gpu": 12, "gpu:h100": 8, "gpu:a100": 4, "shard": 32}),
        ("gpu:1g.10gb:7,gpu:3g.40gb:2", {"gpu": 9, "gpu:1g.10gb": 7, "gpu:3g.40gb": 2}),
        ("gpu:h100", {"gpu": 1, "gpu:h100": 1}),
        ("lustre:no_consume:4G", {"lustre": 4 << 30}),
        ("bw:2K", {"bw": 2048}),
        ("gpu:h100:2(IDX:0-1),gpu:a100:0(IDX:N/A)", {"gpu": 2, "gpu:h100": 2, "gpu:a100": 0}),
        ("gpu:(null):3(IDX:0,2-3)", {"gpu": 3}),
    ],
)
def test_devices_of_a_node_are_counted_under_both_names(text: str, counts: dict[str, int]) -> None:
    assert codec.gres_counts(text) == counts
    assert codec.gres_counts(text) is codec.gres_counts(text), "it is counted once for all nodes"


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["gpu", "shard", "mps"]), st.sampled_from(["", "h100", "1g.10gb"])),
        st.integers(1, 99),
        max_size=6,
    )
)
def test_any_list_of_devices_is_counted_fully(devices: dict[tuple[str, str], int]) -> None:
    text = ",".join(f"{name}:{kind}:{n}" if kind else f"{name}:{n}" for (name, kind), n in devices.items())
    counts = codec.gres_counts(text)
    assert sum(n for name, n in counts.items() if ":" not in name) == sum(devices.values())
    assert all(counts[f"{name}:{kind}"] == n for (name, kind), n in devices.items() if kind)


@pytest.mark.parametrize("text", ["gpu:9999999999999999999", "gpu:h100:8192P", "gpu:4000P,gpu:4000P,gpu:4000P"])
def test_more_devices_than_slurm_can_count_are_no_devices(text: str) -> None:
    """The node is left out of the list; in an answer to /nodes no number is so large."""
    with pytest.raises(ValueError, match="more devices"):
        codec.gres_counts(text)


def test_brackets_that_never_close_are_no_devices_and_take_no_time_without_end() -> None:
    """If each bracket began a new search, they would take hours."""
    with pytest.raises(ValueError, match="not a GRES"):
        codec.gres_counts("gpu:" + "(a:" * 2_000_000)


def test_a_node_offers_what_slurm_does_not_keep_for_itself() -> None:
    sent = {
        "name": "x",
        "state": ["IDLE"],
        "cpus": 64,
        "effective_cpus": 62,
        "real_memory": 1000,
        "specialized_memory": 24,
    }
    [node] = codec.nodes(ListAnswer(items=(msgspec.convert(sent, wire.Node),))).found
    assert (node.cpus, node.memory_mib) == (62, 976)


def test_the_smallest_placeholder_is_one_task_on_one_node_with_its_memory_named() -> None:
    assert json.loads(bodies.job_body(SPEC, immediate=False)) == {
        "job": {
            "flags": ["EXTERNAL_JOB"],
            "tasks": 1,
            "nodes": "1",
            "name": "ns/a~c.k",
            "cpus_per_task": 2,
            "memory_per_node": {"set": True, "number": 1024},
            "dependency": "singleton",
        }
    }


def test_every_job_option_reaches_slurm_in_its_own_words() -> None:
    spec = JobSpec(
        "n", "alice", 2, 1024, gres=(("gpu:h100", 2), ("shard", 1)), account="a", partition="p", qos="q", reservation="r",
        constraints="c&d", wckey="w", comment="why", time_limit_min=30, nice=5, exclusive="exclusive",
        excluded_nodes="x[1-3,07],gpu-a", required_nodes="x4", dependency="singleton,afterany:8",
        begin=1_800_000_000, switches=(2, 60), licenses=(("ansys", 1), ("matlab@flex", 2)),
    )  # fmt: skip
    assert json.loads(bodies.job_body(spec, immediate=True))["job"] == {
        "flags": ["EXTERNAL_JOB"], "tasks": 1, "nodes": "1", "immediate": True, "name": "n", "cpus_per_task": 2,
        "memory_per_node": {"set": True, "number": 1024}, "tres_per_node": "gres/gpu:h100:2,gres/shard:1", "account": "a",
        "partition": "p", "qos": "q", "reservation": "r", "constraints": "c&d", "wckey": "w", "comment": "why",
        "time_limit": {"set": True, "number": 30}, "nice": 5, "shared": ["none"],
        "excluded_nodes": ["x[1-3,07],gpu-a"], "required_nodes": ["x4"],
        "dependency": "singleton,afterany:8",
        "begin_time": {"set": True, "number": 1_800_000_000}, "required_switches": 2, "wait_for_switch": 60,
        "licenses": "ansys:1,matlab@flex:2",
    }  # fmt: skip


def test_every_field_of_a_spec_but_the_user_can_be_sent() -> None:
    layout = {"tasks", "tasks_per_node", "min_nodes", "max_nodes", "parts"}  # only of a new job (job_update.py)
    assert set(bodies._FIELDS) == set(JobSpec.__dataclass_fields__) - {"user"} - layout


def sent(spec: JobSpec) -> dict[str, Any]:
    """What of a new job is about tasks, nodes, memory and devices."""
    body = json.loads(bodies.job_body(spec, immediate=True))["job"]
    told = ("task", "node", "memory", "tres")
    return {field: value for field, value in body.items() if any(word in field for word in told)}


def test_tasks_that_slurm_may_pack_are_asked_for_by_the_task() -> None:
    assert sent(replace(SPEC, tasks=12, gres=(("gpu", 1), ("shard", 3)))) == {
        "tasks": 12,
        "cpus_per_task": 2,
        "memory_per_cpu": {"set": True, "number": 512},
        "tres_per_task": "gres/gpu:1,gres/shard:3",
    }


@given(st.integers(1, 512), st.integers(1, 10**7))
def test_memory_by_the_cpu_is_never_less_than_a_task_asks_for_and_hardly_more(cpus: int, memory_mib: int) -> None:
    asked = sent(replace(SPEC, tasks=2, cpus_per_task=cpus, memory_mib=memory_mib))["memory_per_cpu"]["number"]
    assert memory_mib <= asked * cpus < memory_mib + cpus


def test_tasks_with_a_number_a_node_are_asked_for_by_the_node() -> None:
    assert sent(replace(SPEC, tasks=7, tasks_per_node=2, gres=(("gpu:h100", 3),))) == {
        "tasks": 7,
        "tasks_per_node": 2,
        "cpus_per_task": 2,
        "memory_per_node": {"set": True, "number": 2048},
        "tres_per_node": "gres/gpu:h100:6",
    }


def test_the_number_of_nodes_is_sent_if_the_pod_names_it() -> None:
    assert sent(replace(SPEC, tasks=4, min_nodes=2, max_nodes=3)) == {
        "tasks": 4,
        "minimum_nodes": 2,
        "maximum_nodes": 3,
        "cpus_per_task": 2,
        "memory_per_cpu": {"set": True, "number": 512},
    }


def test_a_heterogeneous_job_is_its_components_each_in_its_own_words() -> None:
    launcher = replace(SPEC, cpus_per_task=1, parts=(replace(SPEC, tasks=3, gres=(("gpu", 1),), account="a"),))
    body = json.loads(bodies.job_body(launcher, immediate=False))
    assert [(part["tasks"], part.get("tres_per_task"), part.get("account")) for part in body["jobs"]] == [
        (1, None, None),
        (3, "gres/gpu:1", "a"),
    ]
    assert {part["name"] for part in body["jobs"]} == {SPEC.name}
    assert {part["dependency"] for part in body["jobs"]} == {"singleton"}


def test_changed_cpus_of_many_tasks_are_sent_with_what_slurm_reckons_from_them() -> None:
    assert json.loads(bodies.update_body(replace(SPEC, tasks=6, cpus_per_task=3), frozenset({"cpus_per_task"}))) == {
        "tasks": 6,
        "cpus_per_task": 3,
        "memory_per_cpu": {"set": True, "number": 342},
        "minimum_cpus": 18,
        "minimum_cpus_per_node": 3,
    }
    a_node = replace(SPEC, tasks=6, tasks_per_node=2, cpus_per_task=3)
    assert json.loads(bodies.update_body(a_node, frozenset({"cpus_per_task"})))["minimum_cpus_per_node"] == 6


def test_an_update_sends_the_named_fields_alone_and_clears_empty_fields() -> None:
    assert json.loads(bodies.update_body(SPEC, frozenset({"comment", "excluded_nodes"}))) == {
        "comment": "",
        "excluded_nodes": [""],
    }
    assert json.loads(bodies.update_body(SPEC, frozenset({"begin", "licenses", "switches", "dependency"}))) == {
        "begin_time": {"set": True, "number": 1},  # long past; 0 would leave it as it is
        "dependency": "singleton",
        "licenses": "",
        "required_switches": 0,
        "wait_for_switch": 0,
    }


def test_an_update_of_the_cpus_of_a_single_pod_names_how_many_the_job_needs() -> None:
    """Slurm 26.05 grants the former number without the second field, and without the third on a node that has that many."""
    body = bodies.update_body(replace(SPEC, cpus_per_task=4), frozenset({"cpus_per_task"}))
    assert json.loads(body) == {"cpus_per_task": 4, "minimum_cpus": 4, "minimum_cpus_per_node": 4}


def test_a_nudge_writes_nothing_so_that_it_undoes_no_edit_of_the_jobs_user() -> None:
    assert json.loads(bodies.NO_CHANGE) == {}


@pytest.mark.parametrize("field", ["exclusive", "time_limit_min", "account", "user", "tasks"])
def test_an_update_of_what_slurm_does_not_change_is_a_mistake_of_the_bridge(field: str) -> None:
    with pytest.raises(AssertionError):
        bodies.update_body(SPEC, frozenset({field}))


def test_an_exit_code_is_written_as_the_wait_status_slurm_wants() -> None:
    assert json.loads(bodies.end_body(3, "ns/a: Error"))["derived_exit_code"]["return_code"]["number"] == 768

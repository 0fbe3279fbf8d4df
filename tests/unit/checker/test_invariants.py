"""A forged log that violates an invariant is found; the sentence names job, pod, time and lines.  A clean log passes."""

from __future__ import annotations

import json

import pytest

from tests.unit.checker.forged import BRIDGE, EPOCH, RING, SECOND, Run, key, mark


@pytest.fixture
def run() -> Run:
    """A pod that is bound for its job at second 2."""
    run = Run()
    uid = run.pod(1, "train")
    run.submit(1.5, 7, uid)
    run.grant(1.8, 7, "k1")
    run.bind(2, "train", "k1", 7)
    return run


def test_a_run_in_which_all_goes_well_breaks_nothing(run: Run) -> None:
    run.phase(30, "train", "Succeeded")
    run.cancel(30.5, 7)
    run.submit(31, 8, "", user="carol", name="native")
    run.cancel(40, 8, by=64030)
    verdict = run.verdict(300)
    assert verdict.broken == []
    assert verdict.judged.keys() >= {"V1", "V2", "V5", "V6", "V8", "L2", "L3", "L4"}, "each was asked"


def test_a_second_bridge_has_jobs_of_its_own_mark(run: Run) -> None:
    run.second_bridge(2)
    uid = run.pod(3, "other", scheduler=SECOND)
    run.submit(3.5, 8, uid, name=f"alice-x/other~{mark(SECOND)}.{key(uid)}")
    run.grant(3.8, 8, "k2")
    run.bind(4, "other", "k2", 8, by=SECOND)
    run.delete(20, "other", by="test")
    run.delete(22, "other", by="kubelet", gone=True)
    run.cancel(23, 8)
    assert run.broken() == []


def test_two_running_jobs_of_one_workload_are_found(run: Run) -> None:
    run.submit(3, 9, "uid-train")
    run.grant(4.25, 9, "k2")
    [sentence] = run.broken()
    assert sentence.startswith("V1: job 9 (alice-x/uid-train~")
    assert "08:00:04.250 (slurmctld.log:4)" in sentence
    assert "job 7 of the same workload had its own, from 08:00:01.800 (slurmctld.log:2) to ever" in sentence


def test_the_part_of_a_name_that_users_choose_does_not_make_another_workload(run: Run) -> None:
    run.submit(3, 9, "uid-train", name=f"mine~{mark(BRIDGE)}.{key('uid-train')}")
    run.grant(4, 9, "k2")
    assert [each[:2] for each in run.broken()] == ["V1"]


def test_a_job_that_slurmctld_lost_and_another_one_after_it_are_no_two_jobs(run: Run) -> None:
    run.restart(10)
    run.submit(11, 8, "uid-train")
    run.grant(12, 8, "k1")
    assert run.broken() == []


def test_a_job_that_went_back_to_its_queue_when_slurmctld_was_killed_does_not_hold_nodes(run: Run) -> None:
    run.restart(10, 7)
    run.states[7] = "PENDING"
    run.grant(20, 7, "k1")
    run.cancel(21, 7)
    [history] = run.slurm.histories
    assert [(each.at - EPOCH, each.state) for each in history.changes] == [
        (1.5, "PENDING"),
        (pytest.approx(1.8), "RUNNING"),
        (10, "PENDING"),
        (20, "RUNNING"),
        (21, "CANCELLED"),
    ]


def test_a_bind_to_a_node_that_the_job_does_not_have_is_found(run: Run) -> None:
    uid = run.pod(3, "other")
    run.submit(3.1, 8, uid)
    run.grant(3.2, 8, "k[2-3]")
    run.bind(4, "other", "k9", 8)
    assert run.broken() == [
        "V2: pod alice-x/other was bound to k9 at 08:00:04.000 (audit.log:9) for job 8, which has k2, k3"
    ]


def test_nodes_that_slurmdbd_never_learnt_of_are_those_of_slurmctlds_log(run: Run) -> None:
    uid = run.pod(3, "other")
    run.submit(3.1, 8, uid)
    run.state(3.2, 8, "RUNNING")
    run.log(3.2, "sched: Allocate JobId=8 NodeList=k[2-3] #CPUs=1 Partition=main")
    run.bind(4, "other", "k3", 8)
    assert run.broken() == []
    run.bind(5, "other", "k1", 8)
    assert any("which has k2, k3" in each for each in run.broken())


def test_a_bind_for_a_job_that_slurmdbd_never_learnt_of_is_not_one_for_the_job_that_had_its_id_before(run: Run) -> None:
    uid = run.pod(3, "other")
    run.submit(3.1, 8, uid)
    run.restart(10, 7)
    run.pod(11, "next")
    run.log(12, "TRACE_JOBS: select_nodes: [JobId=8] change state: PENDING -> RUNNING")
    run.bind(13, "next", "k3", 8)
    assert run.broken(20) == []


def test_a_job_may_get_another_node_when_a_killed_slurmctld_has_forgotten_the_first(run: Run) -> None:
    uid = run.pod(3, "other")
    run.submit(3.1, 8, uid)
    run.state(3.2, 8, "RUNNING")
    run.log(3.2, "sched: _slurm_rpc_allocate_resources JobId=8 NodeList=k1 usec=9")
    run.bind(4, "other", "k1", 8)
    run.restart(10, 7, 8)
    run.states[8] = "PENDING"
    run.state(12, 8, "RUNNING", NodeList="k4")
    run.log(12, "sched: Allocate JobId=8 NodeList=k4 #CPUs=1 Partition=main")
    assert run.broken() == [], "the bind was to the node that the job had then"
    run.bind(60, "other", "k1", 8)
    assert any("which has k4" in each for each in run.broken(70)), "k1 was lost long before"


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (7, "which is that of pod alice-x/train"),
        (8, "which is foreign: job 8 (native of carol)"),
        (99, "slurmctld's log does not have"),
    ],
)
def test_a_bind_for_a_job_that_is_not_the_pods_is_found(run: Run, job: int, says: str) -> None:
    run.submit(1, 8, "", user="carol", name="native")
    run.grant(1.2, 8, "k1")
    run.pod(3, "other")
    run.bind(4, "other", "k1", job)
    assert any(each.startswith("V2: pod alice-x/other was bound to k1") and says in each for each in run.broken())


def test_a_bind_for_a_gang_of_another_bridge_is_found() -> None:
    run = Run()
    run.pod(1, "theirs", scheduler="second")
    run.pod(1, "mine", gang="ring")
    run.submit(2, 7, "", name=RING)
    run.grant(3, 7, "k1")
    run.bind(4, "mine", "k1", 7)
    run.bind(4, "theirs", "k1", 7, by=SECOND)
    [sentence] = run.broken(20)
    assert sentence.endswith(f"for job 7, which is that of another bridge, slurm-bridge ({RING})")


def test_a_bind_long_after_the_job_has_ended_is_found(run: Run) -> None:
    uid = run.pod(3, "late")
    run.submit(3.1, 8, uid)
    run.grant(3.2, 8, "k2")
    run.cancel(4, 8)
    run.bind(50, "late", "k2", 8)
    assert any("which was CANCELLED since 08:00:04.000 (slurmctld.log:5)" in each for each in run.broken())


@pytest.mark.parametrize(
    ("at", "by", "fault", "found"),
    [
        (8, 64030, (0, 0), []),
        (24, 64030, (0, 0), ["V2"]),
        (24, 64030, (15, 30), ["V2"]),
        (24, 64030, (5, 20), []),
        (40, 64030, (5, 45), ["V2"]),
        (4.5, 2001, (0, 0), ["V2"]),
    ],
    ids=[
        "it was on its way",
        "later",
        "a fault after five seconds",
        "a fault meanwhile",
        "longer than any fault explains",
        "the bridge cancelled it",
    ],
)
def test_a_bind_may_arrive_soon_after_somebody_else_cancelled_the_job(
    run: Run, at: float, by: int, fault: tuple[float, float], found: list[str]
) -> None:
    uid = run.pod(3, "late")
    run.submit(3.1, 8, uid)
    run.grant(3.2, 8, "k2")
    run.cancel(4, 8, by=by)
    run.journal.faults.append((EPOCH + fault[0], EPOCH + fault[1]))
    run.bind(at, "late", "k2", 8)
    assert [each[:2] for each in run.broken()] == found


def test_a_gang_of_more_pods_than_its_job_was_given_room_for_is_found() -> None:
    run = Run()
    for number in range(3):
        run.pod(1, f"ring{number}", gang="ring", gpu=1)
    run.submit(2, 7, "", name=RING)
    run.grant(3, 7, "k1", "cpu=3,gres/gpu=2,mem=192M,node=1")
    for number in range(3):
        run.bind(4 + number, f"ring{number}", "k1", 7)
    [sentence] = run.broken()
    assert sentence.startswith("V5: pod alice-x/ring2 was bound at 08:00:06.000")
    assert "as one of 3 pods" in sentence
    assert "which together request 3 gres/gpu; it has 2" in sentence


def test_a_pod_that_names_the_id_of_a_job_in_another_slurm_takes_nothing_of_the_job_of_that_id_here() -> None:
    """The checker reports the pod once, by V2: it was bound for a job that is not its own."""
    run = Run()
    run.submit(2, 7, run.pod(1, "train"))
    run.grant(3, 7, "k1", "cpu=1,node=1")
    run.bind(4, "train", "k1", 7)
    run.pod(3, "elsewhere", gpu=1)
    run.bind(5, "elsewhere", "k1", 7)
    assert [each[:2] for each in run.broken()] == ["V2"]


@pytest.mark.parametrize(("elsewhere", "found"), [("cpu=1,node=1", []), ("cpu=1,mem=64M,node=1", ["V5"])])
def test_memory_counts_unless_slurm_counts_it_for_no_job_of_the_run(elsewhere: str, found: list[str]) -> None:
    run = Run()
    run.submit(2, 7, run.pod(1, "train"))
    run.grant(3, 7, "k1", "cpu=1,node=1")
    run.bind(4, "train", "k1", 7)
    run.submit(2, 8, "", user="carol", name="native")
    run.grant(3, 8, "k2", elsewhere)
    assert [each[:2] for each in run.broken()] == found


def test_a_place_that_a_member_left_may_be_taken_again() -> None:
    run = Run()
    name = RING
    for number in range(2):
        run.pod(1, f"ring{number}", gang="ring", gpu=1)
    run.submit(2, 7, "", name=name)
    run.grant(3, 7, "k1", "cpu=2,gres/gpu=1,mem=128M,node=1")
    run.bind(4, "ring0", "k1", 7)
    run.phase(5, "ring0", "Failed")
    run.bind(6, "ring1", "k1", 7)
    assert run.broken() == []


def test_a_foreign_job_that_is_cancelled_as_its_user_is_found(run: Run) -> None:
    run.submit(3, 8, "", name="by-hand")
    run.grant(4, 8, "k3")
    run.cancel(5, 8, by=2001)
    [sentence] = run.broken()
    assert (
        sentence
        == "V6: job 8 (by-hand of alice), which is foreign, was cancelled as alice at 08:00:05.000 (slurmctld.log:5)"
    )


def test_a_foreign_job_that_is_changed_as_its_user_is_found(run: Run) -> None:
    run.submit(3, 8, "", user="carol", name="x")
    run.log(5, "_update_job: setting comment to hello for JobId=8")
    run.log(5, "_slurm_rpc_update_job: complete JobId=8 uid=2003 usec=46")
    run.log(6, "_update_job: setting num_tasks to 2 for JobId=8")
    run.log(6, "_slurm_rpc_update_job: JobId=8 uid=2003: Access/permission denied")
    assert run.broken() == [
        "V6: job 8 (x of carol), which is foreign, was changed as carol at 08:00:05.000 (slurmctld.log:5)",
        "V6: job 8 (x of carol), which is foreign, was changed as carol at 08:00:06.000 (slurmctld.log:7)",
    ]


def test_a_foreign_job_that_a_nudge_reached_is_not_changed(run: Run) -> None:
    run.submit(3, 8, "", user="carol", name="x")
    run.log(4, "_update_job: setting comment to hello for JobId=7")
    run.log(4, "_slurm_rpc_update_job: complete JobId=7 uid=2001 usec=46")
    run.log(5, "_slurm_rpc_update_job: complete JobId=8 uid=2003 usec=46")
    assert run.broken() == []


def test_a_placeholder_that_its_user_renamed_is_no_foreign_job(run: Run) -> None:
    run.rename(10, 7, "mine")
    run.phase(19, "train", "Succeeded")
    run.cancel(20, 7)
    assert run.broken() == []


def test_a_pod_that_is_bound_long_after_its_job_was_renamed_is_found(run: Run) -> None:
    uid = run.pod(3, "late")
    run.submit(3.1, 8, uid)
    run.grant(3.2, 8, "k2")
    run.rename(4, 8, "mine")
    run.bind(50, "late", "k2", 8)
    [sentence] = [each for each in run.broken() if "late" in each and each.startswith("V2")]
    assert sentence.endswith("for job 8, which is foreign: job 8 (mine of alice)")


def test_a_job_that_gets_the_name_of_a_placeholder_while_it_runs_is_no_second_placeholder(run: Run) -> None:
    run.submit(0.5, 9, "", name="by-hand", Account="other", Partition="secret")
    run.grant(0.6, 9, "k3")
    run.rename(5, 9, run.sacct[7, 1.5]["JobName"])
    run.cancel(6, 9)
    assert run.broken() == []


def _on_two_nodes() -> Run:
    """A gang of two pods, one on each node of its job, which gives up the second node at second 20."""
    run = Run()
    for number in range(2):
        run.pod(1, f"ring{number}", gang="ring", gpu=1, size=2)
    run.submit(2, 7, "", name=RING)
    run.grant(3, 7, "k[1-2]", "cpu=2,gres/gpu=2,mem=128M,node=2")
    for number in range(2):
        run.bind(4, f"ring{number}", f"k{number + 1}", 7, size=2)
    run.shrink(20, 7, "k1", "cpu=1,gres/gpu=1,mem=64M,node=1")
    return run


def test_what_a_job_gave_up_later_was_given_to_its_pods() -> None:
    assert _on_two_nodes().broken() == []


def test_the_pods_on_a_node_that_a_job_gave_up_may_be_ended_and_no_others() -> None:
    run = _on_two_nodes()
    run.delete(22, "ring1", by="slurm-bridge")
    run.delete(24, "ring1", by="kwok", gone=True)
    assert run.broken(30) == []
    run.delete(25, "ring0", by="slurm-bridge")
    assert [each[:21] for each in run.broken(30)] == ["V7: pod alice-x/ring0"]


def test_a_job_that_gave_up_the_node_of_a_pod_may_be_ended_with_all_its_pods() -> None:
    run = _on_two_nodes()
    run.cancel(40, 7)
    for number in range(2):
        run.delete(41, f"ring{number}", by="slurm-bridge")
        run.delete(43, f"ring{number}", by="kwok", gone=True)
    assert run.broken() == []


def test_a_pod_that_is_bound_to_a_node_that_its_job_gave_up_is_found() -> None:
    run = _on_two_nodes()
    run.phase(22, "ring1", "Failed")
    run.pod(23, "ring2", gang="ring", gpu=1)
    run.bind(55, "ring2", "k2", 7)
    assert [each.partition(" at ")[0] for each in run.broken(56)] == ["V2: pod alice-x/ring2 was bound to k2"]


@pytest.mark.parametrize(("nodes", "found"), [("k1", []), ("k[1-2]", ["V5"])])
def test_two_pods_on_one_node_of_a_job_that_has_a_cpu_on_another_one_are_found(nodes: str, found: list[str]) -> None:
    run = Run()
    for number in range(2):
        run.pod(1, f"ring{number}", gang="ring")
    run.submit(2, 7, "", name=RING)
    run.grant(3, 7, nodes, "cpu=2,mem=128M,node=2")
    for number in range(2):
        run.bind(4 + number, f"ring{number}", "k1", 7)
    sentences = run.broken()
    assert [each[:2] for each in sentences] == found
    assert all("as one of 2 pods on k1 for job 7" in each and "it has at most 1 there" in each for each in sentences)


def test_pods_of_a_part_of_a_cpu_take_a_whole_one() -> None:
    run = Run()
    for number in range(3):
        run.pod(1, f"ring{number}", gang="ring", cpu="100m")
    run.submit(2, 7, "", name=RING)
    run.grant(3, 7, "k1", "cpu=2,mem=192M,node=1")
    for number in range(3):
        run.bind(4 + number, f"ring{number}", "k1", 7)
    [sentence] = run.broken()
    assert sentence.startswith("V5: pod alice-x/ring2 was bound at 08:00:06.000")
    assert "which together request 3 cpu; it has 2" in sentence


def test_a_job_of_our_name_but_of_a_user_outside_the_policy_is_foreign(run: Run) -> None:
    run.submit(3, 8, "uid-train", user="carol")
    run.grant(4, 8, "k1")
    run.cancel(5, 8, by=2003)
    assert [each[:2] for each in run.broken()] == ["V6", "V8"]


def test_a_pod_that_is_deleted_while_its_job_runs_is_found(run: Run) -> None:
    run.delete(20, "train", by="slurm-bridge")
    run.delete(22, "train", by="kwok", gone=True)
    run.cancel(23, 7)
    [sentence] = run.broken()
    assert sentence.startswith(
        "V7: pod alice-x/train was deleted by the bridge at 08:00:20.000 (audit.log:7) while its job 7 ("
    )
    assert sentence.endswith("was RUNNING since 08:00:01.800 (slurmctld.log:2)")


def test_a_pod_that_gets_a_deadline_long_before_its_time_limit_is_found(run: Run) -> None:
    run.deadline(20, "train", 60)
    assert [each[:40] for each in run.broken()] == ["V7: pod alice-x/train was given a deadline"[:40]]


def test_a_pod_may_be_ended_when_its_job_has_ended_or_its_time_is_nearly_over(run: Run) -> None:
    uid = run.pod(3, "long")
    run.submit(3, 8, uid, Timelimit="00:02:00")
    run.grant(3.5, 8, "k2")
    run.bind(4, "long", "k2", 8)
    run.deadline(30, "long", 106)
    run.phase(110, "long", "Failed")
    run.cancel(111, 8)
    run.cancel(112, 7, by=64030)
    run.delete(113, "train", by="slurm-bridge")
    run.delete(115, "train", by="kwok", gone=True)
    assert run.broken(150) == []


def test_a_pod_may_be_ended_when_an_admin_took_its_time_or_its_job_got_notice(run: Run) -> None:
    run.log(10, "sched: _update_job: setting time_limit to 0 for JobId=7")
    run.deadline(20, "train", 60)
    uid = run.pod(3, "low")
    run.submit(3.1, 8, uid)
    run.grant(3.2, 8, "k2")
    run.bind(4, "low", "k2", 8)
    run.log(30, "job_signal: 18 of running JobId=8 successful 0x400001")
    run.delete(31, "low", by="slurm-bridge")
    assert run.broken() == []
    run.delete(200, "low", by="slurm-bridge")
    assert [each[:2] for each in run.broken(210) if "low" in each] == ["V7"], "the notice was long ago"


def test_a_pod_that_the_bridge_never_bound_and_ends_is_found(run: Run) -> None:
    run.pod(3, "stray")
    run.bind(4, "stray", "k5", 7, by="other-scheduler")
    run.delete(5, "stray", by="slurm-bridge", gone=True)
    [sentence] = run.broken()
    assert sentence.startswith(
        "V7: pod alice-x/stray was deleted by the bridge at 08:00:05.000 (audit.log:11), though "
    )


def test_an_id_that_is_given_out_again_makes_no_job_of_the_one_before(run: Run) -> None:
    run.restart(10)
    run.submit(10.6, 7, "", user="carol", name="native")
    run.grant(11, 7, "k5")
    run.delete(20, "train", by="slurm-bridge")
    run.delete(22, "train", by="kwok", gone=True)
    assert run.broken() == []


@pytest.mark.parametrize("fields", [{"Partition": "secret"}, {"User": "bob", "UID": "2002"}])
def test_a_job_that_the_policy_does_not_give_is_found(fields: dict[str, str]) -> None:
    policy = {"rules": [*_rules(), {"namespaces": ["bob-*"], "user": "bob"}]}
    run = Run(policy=policy)
    run.submit(3, 8, run.pod(2, "sly"), **fields)
    assert [each[:2] for each in run.broken(20)] == ["V8"]


@pytest.mark.parametrize(("uid", "found"), [(0, []), (2001, ["V8"])], ids=["an admin", "as its user"])
def test_a_waiting_job_may_be_moved_by_an_admin_alone(uid: int, found: list[str]) -> None:
    run = Run()
    run.submit(3, 8, run.pod(2, "moved"), Partition="secret")
    run.log(5, "_update_job: setting partition to secret for JobId=8")
    run.log(5, "_update_job: updating accounting")
    run.log(5, f"_slurm_rpc_update_job: complete JobId=8 uid={uid} usec=117")
    assert [each[:2] for each in run.broken(20)] == found


@pytest.mark.parametrize(
    ("policy", "found", "judged"),
    [
        ({"default": {"user": "alice"}}, [], 1),
        ({"default": {"user": "bob"}}, ["V8"], 1),
        ({"default": {"user": "{namespace}"}}, [], 0),
        ({"rules": [{"namespaces": ["alice-*"], "user": "bob"}], "default": {"user": "alice"}}, ["V8"], 1),
        ({"rules": [{"namespaces": ["bob-*"], "user": "{namespace}"}], "default": {"user": "bob"}}, ["V8"], 1),
        ({"rules": [{"namespace_selector": {}, "user": "carol"}], "default": {"user": "bob"}}, [], 0),
    ],
)
def test_the_policy_of_an_installed_bridge_is_that_of_its_config_map(
    policy: dict[str, object], found: list[str], judged: int
) -> None:
    run = Run()
    run.journal.policies.clear()
    name = "slurm-bridge-settings-29mfg554fm"
    sent = {"metadata": {"name": name}, "data": {"settings.yaml": json.dumps({"policy": policy})}}
    run.entry(0, "create", "configmaps", sent, None)
    run.submit(2, 8, run.pod(1, "train"))
    verdict = run.verdict(20)
    assert ([each.invariant for each in verdict.broken], verdict.judged["V8"]) == (found, judged)


def test_each_bridge_has_a_policy_of_its_own() -> None:
    run = Run(policy={"rules": [*_rules(), {"namespaces": ["bob-*"], "user": "bob"}]})
    run.journal.policies["second"] = [(EPOCH, {"rules": [{"namespaces": ["alice-*"], "user": "bob"}]})]
    for number, scheduler in ((8, BRIDGE), (9, "second")):
        uid = run.pod(1, f"pod{number}", scheduler=scheduler)
        run.submit(2, number, uid, user="alice", name=f"alice-x/pod~{mark(scheduler)}.{key(uid)}")
    [sentence] = run.broken(20)
    assert sentence.startswith("V8: job 9 (")


def test_a_job_that_stays_after_its_pod_is_found(run: Run) -> None:
    run.phase(10, "train", "Succeeded")
    [sentence] = run.broken(100)
    assert sentence.startswith("L2: job 7 (alice-x/uid-train~")
    assert "stayed 90 calm seconds after alice-x/train had gone at 08:00:10.001" in sentence
    assert [each[:2] for each in run.broken(100, rest_s=30)] == ["L2"]


def test_liveness_is_not_judged_while_something_is_broken_on_purpose(run: Run) -> None:
    run.phase(10, "train", "Succeeded")
    run.journal.faults.append((EPOCH + 20, EPOCH + 80))
    assert run.broken(100) == []


def test_a_pod_whose_job_has_nodes_and_that_is_not_bound_is_found() -> None:
    run = Run()
    run.submit(2, 7, run.pod(1, "train"))
    run.grant(3, 7, "k1")
    [sentence] = run.broken(100)
    assert sentence.startswith("L3: pod alice-x/train was not bound within 97 calm seconds after its job 7 (")


def test_a_gang_whose_job_has_nodes_and_that_is_not_bound_is_found() -> None:
    run = Run()
    for number in range(2):
        run.pod(1, f"ring{number}", gang="ring")
    run.submit(2, 7, "", name=RING)
    run.grant(3, 7, "k1", "cpu=2,mem=128M,node=1")
    [sentence] = run.broken(100)
    assert sentence.startswith(
        "L3: pod alice-x/ring0, alice-x/ring1 was not bound within 97 calm seconds after its job 7 ("
    )


def test_a_job_beside_one_component_of_another_is_found() -> None:
    run = Run()
    uid = run.pod(1, "train")
    for number, submitted in (("11", 2), ("12", 2.1), ("13", 3)):
        run.submit(submitted, int(number), uid)
    run.log(3, "TRACE_JOBS: select_nodes: [JobId=11+0(11)] change state: PENDING -> RUNNING")
    run.log(3, "TRACE_JOBS: select_nodes: [JobId=11+1(12)] change state: PENDING -> RUNNING")
    run.log(4, "TRACE_JOBS: job_signal: [JobId=11+1(12)] change state: RUNNING -> CANCELLED")
    run.grant(5, 13, "k3")
    [sentence] = [each for each in run.broken(10) if each.startswith("V1")]
    assert sentence.startswith("V1: job 13")
    assert "while job 11 of the same workload had its own" in sentence


def test_a_pod_that_stays_on_its_node_after_its_job_is_found(run: Run) -> None:
    run.cancel(10, 7, by=64030)
    assert run.broken(300) == []
    [sentence] = run.broken(400)
    assert sentence.startswith("L4: pod alice-x/train stayed on k1 for 390 calm seconds after its job 7 (")


@pytest.mark.parametrize("shown", [True, False], ids=["a read shows that it runs", "nothing shows it"])
def test_a_job_whose_end_a_killed_slurmctld_has_forgotten_runs_again(run: Run, shown: bool) -> None:
    run.cancel(9, 7, by=64030)
    run.restart(10, 7)
    if shown:
        run.log(11, "_slurm_rpc_request_resource_layout: JobId=7 running!")
    assert run.broken(600) == []
    assert run.slurm.histories[0].changes[-1].state == ("RUNNING" if shown else "CANCELLED")


def test_a_pod_may_be_ended_just_after_slurmctld_has_forgotten_that_its_job_ended(run: Run) -> None:
    run.cancel(9, 7, by=64030)
    run.restart(10, 7)
    run.log(11, "_slurm_rpc_request_resource_layout: JobId=7 running!")
    run.delete(12, "train", by="slurm-bridge")
    assert run.broken(20) == []
    run.delete(50, "train", by="slurm-bridge")
    assert [each[:2] for each in run.broken(60)] == ["V7"]


def test_a_pod_that_stays_after_a_job_that_ended_long_before_slurmctld_was_killed_is_found(run: Run) -> None:
    run.cancel(9, 7, by=64030)
    run.restart(50, 7)
    assert [each[:2] for each in run.broken(600)] == ["L4"]


def test_a_bind_that_took_effect_without_an_answer_is_a_bind(run: Run) -> None:
    """As when etcd is killed: the API server answers 504, and the pod starts."""
    uid = run.pod(3, "other")
    run.submit(3.1, 8, uid)
    run.grant(3.2, 8, "k2")
    run.bind(4, "other", "k2", 8, code=504)
    run.cancel(20, 8, by=64030)
    run.delete(21, "other", by="slurm-bridge")
    assert run.broken() == []
    assert run.audit.pods[uid].bind is not None


def test_a_delete_without_an_answer_is_judged(run: Run) -> None:
    run.delete(20, "train", by="slurm-bridge", code=504)
    assert [each[:2] for each in run.broken()] == ["V7"]


def test_an_announced_violation_is_excused_and_only_it(run: Run) -> None:
    run.delete(20, "train", by="slurm-bridge")
    run.announce("V7", "alice-x/train")
    verdict = run.verdict()
    assert (verdict.broken, verdict.excused, verdict.unused) == ([], 1, [])
    run.submit(3, 9, "uid-train")
    run.grant(4, 9, "k2")
    assert [each[:2] for each in run.broken()] == ["V1"]


def test_an_announced_violation_that_does_not_occur_is_reported(run: Run) -> None:
    run.announce("V7", "alice-x/train")
    assert run.verdict().unused == ["V7 of alice-x/train was announced to be broken (on purpose), and holds"]


def _rules() -> list[object]:
    return list(Run().journal.policies[BRIDGE][0][1]["rules"])

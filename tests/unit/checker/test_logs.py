"""The logs as the servers write them: lines copied from a rig, with Slurm 26.05 and Kubernetes 1.36."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.checker import accounting, audit, journal, rest_log, slurm_log

HETEROGENEOUS = """\
[2026-11-24T09:03:55.046] _slurm_rpc_submit_batch_het_job: JobId=11 SLUID=s3ESM86CR95500 usec=277
[2026-11-24T09:04:08.865] TRACE_JOBS: _het_job_limit_check: [JobId=11+0(11)] change state: PENDING -> COMPLETED,COMPLETING
[2026-11-24T09:04:08.865] TRACE_JOBS: _het_job_limit_check: [JobId=11+0(11)] change state: COMPLETED,COMPLETING -> PENDING
[2026-11-24T09:04:08.865] TRACE_JOBS: select_nodes: [JobId=11+0(11)] change state: PENDING -> RUNNING
[2026-11-24T09:04:08.865] TRACE_JOBS: select_nodes: [JobId=11+0(11)] change state: PENDING -> RUNNING
[2026-11-24T09:04:08.865] TRACE_JOBS: select_nodes: [JobId=11+1(12)] change state: PENDING -> RUNNING
[2026-11-24T09:04:20.000] TRACE_JOBS: job_signal: [JobId=11+1(12)] change state: RUNNING -> CANCELLED,COMPLETING
[2026-11-24T09:04:20.000] TRACE_JOBS: cleanup_completing: [JobId=11+1(12)] change state: CANCELLED,COMPLETING -> CANCELLED
[2026-11-24T09:09:53.003] TRACE_JOBS: purge_old_job: [JobId=11+1(12)] change state: CANCELLED -> UNINITIALISED
"""
RESTARTED = """\
[2026-11-24T09:03:57.000] TRACE_JOBS: select_nodes: [JobId=3] change state: PENDING -> RUNNING
[2026-11-24T09:03:58.000] TRACE_JOBS: select_nodes: [JobId=4] change state: PENDING -> RUNNING
[2026-11-24T09:04:00.000] slurmctld version 26.05.5 started on cluster rig(886)
[2026-11-24T09:04:00.500] Recovered JobId=3 Assoc=7
[2026-11-24T09:04:00.600] Running as primary controller
[2026-11-24T09:04:02.000] TRACE_JOBS: select_nodes: [JobId=4] change state: PENDING -> RUNNING
"""

# By scontrol: another name, an end that is 89 s earlier (the time limit was ten minutes before, too), and fewer nodes.
UPDATED = """\
[2026-11-29T08:03:46.552] _slurm_rpc_submit_batch_job: JobId=1 SLUID=sB6NM8K59R7Q00 InitPrio=1 usec=413
[2026-11-29T08:03:46.789] TRACE_JOBS: select_nodes: [JobId=1] change state: PENDING -> RUNNING
[2026-11-29T08:03:46.790] sched: Allocate JobId=1 NodeList=k[1-2] #CPUs=2 Partition=main
[2026-11-29T08:03:48.512] sched: _update_job: setting name to mine renamed for JobId=3 for JobId=1
[2026-11-29T08:03:48.512] _update_job: updating accounting
[2026-11-29T08:03:48.512] _slurm_rpc_update_job: complete JobId=1 uid=0 usec=120
[2026-11-29T08:03:48.527] sched: _update_job: setting time_limit to 10 for JobId=1
[2026-11-29T08:03:48.528] _slurm_rpc_update_job: complete JobId=1 uid=0 usec=103
[2026-11-29T08:03:54.056] sched: _update_job: set node count to 1 for JobId=1
[2026-11-29T08:03:54.056] TRACE_JOBS: job_pre_resize_acctg: [JobId=1] change state: RUNNING -> RUNNING,RESIZING
[2026-11-29T08:03:54.056] TRACE_JOBS: job_pre_resize_acctg: [JobId=1] change state: RUNNING -> RUNNING,RESIZING
[2026-11-29T08:03:54.056] TRACE_JOBS: job_post_resize_acctg: [JobId=1] change state: RUNNING,RESIZING -> RUNNING
[2026-11-29T08:03:54.056] TRACE_JOBS: job_post_resize_acctg: [JobId=1] change state: RUNNING,RESIZING -> RUNNING
[2026-11-29T08:03:54.056] sched: _update_job: set nodes to k1 for JobId=1
[2026-11-29T08:03:54.056] _slurm_rpc_update_job: complete JobId=1 uid=2001 usec=503
[2026-11-29T08:03:54.070] sched: _update_job: Invalid node list (k2) for JobId=1 update
"""


def _log(tmp_path: Path, text: str) -> slurm_log.SlurmLog:
    (path := tmp_path / "slurmctld.log").write_text(text)
    return slurm_log.read(path)


def test_components_of_a_heterogeneous_job_are_jobs_of_one_leader(tmp_path: Path) -> None:
    histories = _log(tmp_path, HETEROGENEOUS).histories
    assert [(history.id, history.leader, [each.state for each in history.changes]) for history in histories] == [
        (11, 11, ["PENDING", "RUNNING"]),
        (12, 11, ["PENDING", "RUNNING", "CANCELLED"]),
    ]
    assert histories[1].begun == histories[0].begun, "the log shows the submission of the leader alone"


def test_a_job_that_a_start_does_not_list_is_lost_and_its_id_is_another_jobs(tmp_path: Path) -> None:
    kept, lost, other = _log(tmp_path, RESTARTED).histories
    assert (kept.id, kept.over) == (3, float("inf"))
    assert (lost.id, lost.changes[-1].state) == (4, "LOST")
    assert (other.id, other.changes[-1].state) == (4, "RUNNING")


def test_a_running_job_gets_another_name_another_end_and_fewer_nodes(tmp_path: Path) -> None:
    [history] = _log(tmp_path, UPDATED).histories
    begun = history.begun
    assert [(round(at - begun, 3), name) for at, name in history.names] == [(1.96, "mine renamed for JobId=3")]
    assert [(round(at - begun, 3), limit_s) for at, limit_s in history.limits] == [(1.975, 600.0)]
    assert [(round(at - begun, 3), nodes) for at, _, nodes in history.held()] == [(0.237, "k[1-2]"), (7.504, "k1")]
    assert len(history.holds()) == 1, "it holds nodes all the time"


@pytest.mark.parametrize(
    ("shown", "names"),
    [("k1", ["k1"]), ("k[1-3,7],n1", ["k1", "k2", "k3", "k7", "n1"]), ("g[08-10]x,y2", ["g08x", "g09x", "g10x", "y2"])],
)
def test_a_host_list_is_its_hosts(shown: str, names: list[str]) -> None:
    assert list(accounting.hosts(shown)) == names


def test_a_record_says_who_cancelled_the_job_and_what_it_was_given() -> None:
    cells = [
        "9",
        "9",
        "alice",
        "2001",
        "teama",
        "gpu",
        "normal",
        "CANCELLED by 64030",
        "2026-11-24T08:52:38",
        "2026-11-24T08:52:40",
    ]
    cells += ["k[1-2]", "billing=4,cpu=4,gres/gpu:h100=32,gres/gpu=32,mem=2G,node=4", "1-00:00:01", "a|b~k0.1"]
    [record] = accounting.parse("\x1f".join(cells))
    assert (record.state, record.ended_by, record.name) == ("CANCELLED", 64030, "a|b~k0.1")
    assert (dict(record.tres), record.limit_s) == ({"cpu": 4, "gres/gpu": 32, "mem": 2048}, 86401)


def test_a_record_of_a_grant_that_slurmctld_lost_does_not_say_what_the_job_was_given() -> None:
    """slurmctld was killed after it had told slurmdbd of the start, and took the job for a waiting one after that."""
    cells = ["654", "654", "alice", "2001", "teama", "main", "normal", "CANCELLED"]
    cells += ["2026-11-27T00:51:47", "2026-11-27T00:51:59", "k1", "billing=1,cpu=1", "1-00:00:01", "a|b~k0.1"]
    [record] = accounting.parse("\x1f".join(cells))
    assert (record.nodes, record.tres) == ({"k1"}, {})


def test_half_a_line_and_a_refused_request_say_nothing(tmp_path: Path) -> None:
    entry = {
        "auditID": "1", "stage": "ResponseComplete", "verb": "create", "requestURI": "/api", "userAgent": "slurm-bridge/1",
        "objectRef": {"resource": "pods", "subresource": "binding", "namespace": "a", "name": "p"},
        "requestObject": {"metadata": {"uid": "u", "annotations": {audit.JOB_ID: "7"}}, "target": {"name": "k1"}},
        "requestReceivedTimestamp": "2026-11-24T08:52:05.392777Z", "stageTimestamp": "2026-11-24T08:52:05.394849Z",
    }  # fmt: skip
    good = json.dumps(entry | {"responseStatus": {"code": 201}})
    (tmp_path / "audit.log").write_text(
        f"{json.dumps(entry | {'responseStatus': {'code': 409}})}\n{good}\n{good[:99]}\n{good}"
    )
    [pod] = audit.read(tmp_path).pods.values()
    assert pod.bind is not None
    assert (pod.who, pod.bind.job, pod.bind.line) == ("a/p", 7, "audit.log:2")


def test_the_journal_says_what_was_done_on_purpose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_STATE", str(tmp_path))
    journal.policy({"rules": []})
    journal.policy({"default": {}}, scheduler="second", tuning={"start_timeout_s": 8})
    with journal.breaking("V6", "hpc/*", "a simulated cluster"):
        pass
    journal.breaks("V7", "alice-x/*", "an admin lets bypassing pods be ended")
    with journal.disturbed("slurmctld"):
        pass
    journal.note("disturbed", what="etcd")
    found = journal.read(tmp_path / journal.FILE)
    assert {scheduler: [each for _, each in policies] for scheduler, policies in found.policies.items()} == {
        "slurm-bridge": [{"rules": []}],
        "second": [{"default": {}}],
    }
    assert {scheduler: [each for _, each in tunings] for scheduler, tunings in found.tunings.items()} == {
        "slurm-bridge": [{}],
        "second": [{"start_timeout_s": 8}],
    }
    over, breach = found.breaches
    assert over.excuses("V6", "hpc/train~k1.2", over.until)
    assert not over.excuses("V6", "hpc/train~k1.2", over.until + 1), "it was announced for a time"
    assert breach.excuses("V7", "alice-x/stray", breach.at)
    assert not breach.excuses("V7", "alice-x/stray", breach.at - 1), "what came before was not announced"
    assert not breach.excuses("V2", "alice-x/stray", breach.at)
    assert [end == float("inf") for _, end in found.faults] == [False, True]


def test_calm_is_what_lies_between_the_faults() -> None:
    calm = journal.without([(0, 100)], [(10, 20), (50, 60)])
    assert calm == [(0, 10), (20, 50), (60, 100)]
    assert journal.longest(5, 55, calm) == 30
    assert journal.longest(12, 18, calm) <= 0


def test_a_hostile_patch_that_is_nested_too_deep_is_read_without_its_depths() -> None:
    deep = b"[" * 100_000 + b'"]"' + b"]" * 100_000
    line = b'{"verb":"patch","requestObject":{"metadata":{"managedFields":[' + deep + b'],"name":"a]\\"b"}}}\n'
    read = json.loads(audit.shallow(line))
    assert read["verb"] == "patch"
    assert read["requestObject"]["metadata"]["name"] == 'a]"b'


def test_slurmrestd_says_how_jobs_were_cancelled(tmp_path: Path) -> None:
    (path := tmp_path / "slurmrestd.log").write_text(
        "[2026-11-28T00:25:16.128] operations_router: [127.0.0.1:6820(fd:12)] DELETE /slurm/v0.0.45/job/17\n"
        "[2026-11-28T00:25:17.000] operations_router: [127.0.0.1:6820(fd:12)] GET /slurm/v0.0.45/jobs/state/\n"
        "[2026-11-28T00:25:20.060] operations_router: [127.0.0.1:6820(fd:16)] DELETE /slurm/v0.0.45/jobs/\n"
    )
    found = rest_log.read(path)
    [at] = found.together
    assert (list(found.by_id), found.by_id[17]) == ([17], [pytest.approx(at - 3.932)])
    assert found.a_bridge_cancelled([18], at + 0.1)
    assert not found.a_bridge_cancelled([17, 18], at + 0.1)
    assert not found.a_bridge_cancelled([18], at - 0.1)
    assert rest_log.read(tmp_path / "no-such.log").together == []

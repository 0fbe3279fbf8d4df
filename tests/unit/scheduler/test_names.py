"""Keys, and the name that says whose a job is (rules K, ARCHITECTURE 4)."""

from __future__ import annotations

import re

import pytest

from scheduler import names
from scheduler.model.anomaly import Anomaly
from scheduler.state.anomalies import MESSAGES
from tests.builders import CLUSTER

KEY = names.workload_key("some-uid")


def test_a_name_is_for_people_and_its_end_is_for_us() -> None:
    name = names.job_name("hpc/train-0", CLUSTER, KEY)
    assert re.fullmatch(r"hpc/train-0~k[0-9a-f]{8}\.[0-9a-f]{16}", name)
    assert names.parse_job_name(name) == (CLUSTER, KEY)


def test_a_long_readable_part_is_cut_and_the_mark_never_is() -> None:
    name = names.job_name("x" * 5000, CLUSTER, KEY)
    assert len(name) == names.MAX_READABLE + 27
    assert names.parse_job_name(name) == (CLUSTER, KEY)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "allocation",
        f"x{CLUSTER}.{KEY}",
        f"x~{CLUSTER}.{KEY} ",
        f"x~{CLUSTER}.{KEY}\n",
        f"x~{CLUSTER}.{KEY[:-1]}",
        f"x~{CLUSTER}.{KEY.upper()}",
        f"x~{CLUSTER}{KEY}",
        f"x~0123456789.{KEY}",
    ],
)
def test_any_other_name_belongs_to_no_cluster(name: str) -> None:
    assert names.parse_job_name(name) is None


def test_what_follows_the_last_tilde_counts() -> None:
    other = names.workload_key("other")
    assert names.parse_job_name(f"a~{CLUSTER}.{other}~{CLUSTER}.{KEY}") == (CLUSTER, KEY)


def test_two_clusters_share_one_slurm_without_sharing_names() -> None:
    assert names.cluster_id("one") != names.cluster_id("two")


def test_two_schedulers_of_one_cluster_are_distinguished() -> None:
    """Else each would end the other's jobs as left behind (L2)."""
    assert names.cluster_id("one") == names.cluster_id("one", names.SCHEDULER_NAME)
    assert names.cluster_id("one") != names.cluster_id("one", "slurm-bridge-dev")


def test_workloads_have_keys_of_their_own() -> None:
    keys = {names.workload_key(f"uid-{number}") for number in range(1000)}
    assert len(keys) == 1000


@pytest.mark.parametrize(
    ("message", "job"),
    [
        ("Waiting in Slurm partition gpu (Priority). Job 4711, as of 13:40 UTC.", 4711),
        ("Slurm job 17 was granted x1; the bind waits: node x1 …", 17),
        (MESSAGES[Anomaly.NOT_ITS_USER].format(job=3), None),  # after a restart such a job would count as the pod's
        ("The other pods of hpc/ring run, but their job 3 may have been renamed by its user, so …", None),
        ("Slurm knows no job 3 of this pod. The pod is left alone, …", None),
        ("0/3 nodes can run this pod", None),
        ("Job 99999999999", None),
        ("jobs 17", None),
        ("", None),
    ],
)
def test_a_condition_of_the_bridge_shows_its_job(message: str, job: int | None) -> None:
    assert names.shown_job(message) == job


def test_a_workload_has_one_trace_whichever_process_reports_it() -> None:
    """O3: the ids follow from the workload."""
    assert names.traceparent(CLUSTER, KEY) == names.traceparent(CLUSTER, KEY)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", names.traceparent(CLUSTER, KEY))
    assert names.traceparent(CLUSTER, KEY) != names.traceparent(CLUSTER, names.workload_key("other"))


def test_every_key_is_spelled_under_one_prefix() -> None:
    for key in (names.MANAGED_LABEL, names.SLURM_NODE_LABEL, names.JOB_ID, names.JOB_NODES, names.TRACEPARENT):
        assert key.startswith("slurm-bridge/")
    assert not names.JOB_OPTIONS & names.GROUPING
    assert not names.JOB_OPTIONS & names.WRITTEN_BY_US
    assert set(names.ALIASES.values()) <= names.JOB_OPTIONS


def test_waiting_is_never_called_unschedulable() -> None:
    """Q3: autoscalers would add nodes."""
    said = (names.PENDING, names.REFUSED, names.NO_NODE, names.NOT_MANAGED, names.UNAVAILABLE, names.GRANT_WAITS)
    assert "Unschedulable" not in (*said, names.GRANT_RELEASED)

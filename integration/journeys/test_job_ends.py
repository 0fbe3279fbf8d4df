"""The job ends first: each row of that table in docs/ends.md that a real Slurm can be made to show, with real containers.

Slurm has no way to make a job without a script COMPLETED, FAILED, OUT_OF_MEMORY, BOOT_FAIL or REVOKED; those rows happen on
simulated clusters alone (tests/simulation/test_ends_table.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from integration.clusters import ENDED, BridgeProcess, Kube, Slurm, eventually, slurm_says
from integration.ends_table import table
from integration.kinds import KINDS, Three

Space = Callable[[str], str]
JOB_TABLE = table("The job ends first")
SLOW = "trap 'sleep 2; exit 143' TERM; sleep 600 & wait"
# So that what happens two minutes before a job's end happens within a limit of two, yet not before all its pods run.
SOON = {"end_notice_s": 50, "end_lead_s": 30}


class Act:
    """The ways in which jobs are ended, and how each is undone afterwards."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._native: list[int] = []
        self._told: set[str] = set()

    def cancel(self, three: Three) -> None:
        for job in three.jobs.values():
            self._slurm.cancel(job)

    def take_time(self, three: Three) -> None:
        for job in three.jobs.values():
            slurm_says("scontrol", "update", f"jobid={job}", "timelimit=0")

    def break_node(self, three: Three) -> None:
        for node in _nodes(three):
            slurm_says("scontrol", "update", f"nodename={node}", "state=down", "reason=broken")
            slurm_says("scontrol", "update", f"nodename={node}", "state=resume")

    def preempt(self, three: Three) -> None:
        """Somebody of a better partition wants their node for himself."""
        for node in _nodes(three):
            self._native.append(self._slurm.submit("carol", required_nodes=[node], shared=["none"]))

    def preempt_with_notice(self, three: Three) -> None:
        """The same; slurmctld informs the nodes' slurmds, which do not exist, and then believes that the nodes are away."""
        self.preempt(three)
        self._told |= _nodes(three)

    def leave(self, three: Three) -> None:
        """Does nothing, because the end comes by itself."""

    def undo(self) -> None:
        for node in self._told:
            eventually(f"slurmctld gives {node} up", lambda n=node: "NOT_RESPONDING" in self._slurm.node(n)["state"])  # type: ignore[misc]
        for job in self._native:
            self._slurm.cancel(job)
        for node in self._told:
            self._slurm.renew_node(node)


def _nodes(three: Three) -> set[str]:
    return {each.spec.node_name for each in three.first.values()}


# Row: the annotations, what is done, and what the job's state is then.
ROWS: dict[str, tuple[dict[str, str], Callable[[Act, Three], None], set[str]]] = {
    "`CANCELLED` (scancel)": ({}, Act.cancel, {"CANCELLED"}),
    # CANCELLED where the bridge read the new limit before slurmctld, who looks twice a minute, ended the job for it.
    "`TIMEOUT`, before kubelet had the deadline": ({}, Act.take_time, {"TIMEOUT", "CANCELLED"}),
    "its time limit is two minutes away": ({"time-limit": "2"}, Act.leave, {"CANCELLED"}),
    "`NODE_FAIL`": ({}, Act.break_node, {"NODE_FAIL"}),
    "`PREEMPTED`": ({"partition": "low"}, Act.preempt, {"PREEMPTED"}),
    "it is preempted and has a grace": (
        {"partition": "lowgrace"},
        Act.preempt_with_notice,
        {"CANCELLED", "PREEMPTED"},
    ),
}
ELSEWHERE = {"`COMPLETED`", "`FAILED`", "`BOOT_FAIL`", "`OUT_OF_MEMORY`", "`REVOKED`", "`DEADLINE`"} | {
    "Slurm lost it, and does not grant its nodes again"
}
# Side by side, each with the number of its node: who breaks or wants a whole node has it to itself.
TOGETHER = (
    dict(zip(list(ROWS)[:4], (0, 0, 0, 1), strict=True)),
    dict(zip(list(ROWS)[4:], (0, 1), strict=True)),
)


@pytest.fixture(scope="module", autouse=True)
def soon(bridge: BridgeProcess, roomy: list[str]) -> Iterator[None]:
    with bridge.with_settings(tuning=SOON):
        yield


def test_every_row_of_the_table_is_reported_here_or_on_simulated_clusters() -> None:
    assert ROWS.keys() | ELSEWHERE == JOB_TABLE.keys()


@pytest.mark.parametrize("rows", TOGETHER, ids=["ended", "preempted"])
def test_when_their_job_ends_pods_end_with_the_reason_and_are_replaced(
    rows: dict[str, int], kube: Kube, slurm: Slurm, space: Space, roomy: list[str], needs_kubelets: None, own_rig: None
) -> None:
    act, each = Act(slurm), {row: _three(kube, slurm, space("alice"), row, roomy[on]) for row, on in rows.items()}
    with ExitStack() as stack:
        for three in each.values():
            stack.enter_context(three.watched())
            three.run()
        for row, three in each.items():
            ROWS[row][1](act, three)
        for row, three in each.items():
            eventually(f"{row}: they have ended", three.over)
        # Before the nodes are created again, all later pods must wait: slurmctld sends an old signal to the node's name
        # again, and when that fails the new node takes no more jobs.
        for row, three in each.items():
            eventually(f"{row}: others have come", three.has_followers)
        act.undo()
        for row, three in each.items():
            eventually(f"{row}: others run", three.replaced)
            assert three.became() == JOB_TABLE[row]
            _both_sides_agree(row, three)


def _three(kube: Kube, slurm: Slurm, ns: str, row: str, node: str) -> Three:
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 5}
    return Three(kube, slurm, ns, on="", cpu="50m", memory="16Mi", command=SLOW, says=ROWS[row][0], spec=spec)


def _both_sides_agree(row: str, three: Three) -> None:
    """In Slurm each job has ended in its way, and accounting has what became of its pod; the batch Job counts rightly."""
    for kind in KINDS:
        job = three.jobs[kind]
        eventually(f"the job of {kind} has ended", lambda j=job: ENDED & set(three.slurm.job(j)["job_state"]))  # type: ignore[misc]
        assert set(three.slurm.job(job)["job_state"]) & ROWS[row][2], row
    counted = three.kube.batch.read_namespaced_job("batch", three.ns).status.failed or 0
    assert counted == (0 if "disrupted" in JOB_TABLE[row][1] else 1), f"{row}: what its backoff limit counts"
    [alone] = eventually("sacct tells of alone", lambda: _recorded(three.jobs["alone"]))
    assert alone == ["143:0", f"{three.ns}/alone: DeadlineExceeded"], row


def _recorded(job: int) -> list[list[str]]:
    """Derived exit code and comment, once there is one."""
    said = slurm_says("sacct", "-nPX", "-o", "DerivedExitCode,Comment", "-j", str(job)).splitlines()
    return [line.split("|", 1) for line in said if not line.endswith("|")]

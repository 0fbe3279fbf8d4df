"""The invariants where a cluster is real: observed now and then, so a contradiction counts if a second look shows it.

That they find what is wrong in simulated clusters is proven in tests/simulation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.simulation.invariants.checks import Invariants
from bridge.simulation.invariants.patience import FORMER_JOB_S, GANG_S, REASON_S, SOON_S
from bridge.simulation.invariants.unused_grants import GRANTS_IN_VAIN
from bridge.simulation.kube import objects
from bridge.simulation.slurm.jobs import SimJob
from bridge.simulation.slurm.nodes import Holding, Wanted
from bridge.simulation.tenant_history import Tenant, TenantHistory
from scheduler import names

CLUSTER = names.cluster_id("uid-of-kube-system")
Object = dict[str, Any]


@dataclass
class Seen:
    """Both clusters as the last look showed them."""

    clock: float = 1000.0
    there: dict[str, Object] = field(default_factory=dict)
    listed: dict[int, SimJob] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def pods(self) -> list[Object]:
        return list(self.there.values())

    def pod(self, namespace: str, name: str) -> Object | None:
        return self.there.get(name)

    def node(self, name: str) -> Object:
        return objects.node(name, cpu="4")

    def jobs(self) -> list[SimJob]:
        return list(self.listed.values())

    def job(self, job_id: int) -> SimJob | None:
        self.asked.append(job_id)
        return self.listed.get(job_id)

    # --- what tests do

    def has_pod(self, name: str, *, on: str = "", job: int | None = None, cpu: str = "1", said: str = "") -> Object:
        pod = objects.pod("dev", name, requests={"cpu": cpu}, nodeName=on)
        conditions = [{"type": "PodScheduled", "status": "False", "message": said}] if said else []
        annotations = {names.JOB_ID: str(job)} if job is not None else {}
        meta = pod["metadata"] | {"uid": f"uid-{name}", "annotations": annotations}
        meta["creationTimestamp"] = objects.rfc3339(self.clock)
        self.there[name] = pod | {"metadata": meta, "status": {"phase": "Pending", "conditions": conditions}}
        return self.there[name]

    def has_gang(self, *members: str) -> None:
        """Those pods carry one gang's label."""
        for name in members:
            self.there[name]["metadata"]["labels"] = {names.PREFIX + names.GANG: "g"}

    def has_gangs_job(self, job_id: int, tasks: int, on: dict[str, int]) -> SimJob:
        """Its placeholder, with places for so many tasks on each node."""
        job = self.has_job(job_id, "g", on="x")
        job.name = names.job_name("dev/g", CLUSTER, names.workload_key("gang\0dev\0g"))
        job.wanted = Wanted(1, 100, tasks=tasks)
        job.holdings = tuple(Holding(node, (1 << places) - 1, 100, {}) for node, places in on.items())
        return job

    def has_heterogeneous_job(self, job_id: int, *components: dict[str, int]) -> None:
        """The gang's placeholder with these components, each with places for so many tasks on each node."""
        for offset, on in enumerate(components):
            part = self.has_gangs_job(job_id + offset, sum(on.values()), on)
            part.het_id, part.het_offset = job_id, offset

    def has_job(self, job_id: int, name: str, *, on: str = "", user: str = "alice", **fields: Any) -> SimJob:
        """The placeholder of that pod, or a foreign job where the name has a space."""
        full = name if " " in name else names.job_name(f"dev/{name}", CLUSTER, names.workload_key(f"uid-{name}"))
        holdings = (Holding(on, 1, 100, {}),) if on else ()
        made = SimJob(
            job_id, job_id, full, user, "teama", "main", "normal", Wanted(1, 100), "", "", None, int(self.clock),
            state="RUNNING" if on else "PENDING", starts=int(self.clock), holdings=holdings, **fields,
        )  # fmt: skip
        self.listed[job_id] = made
        return made


def invariants(seen: Seen) -> Invariants:
    return Invariants(
        seen, seen, {"dev": "alice"}, lambda: seen.clock, CLUSTER, exact=False, on_broken=lambda _violation: None
    )


def looks(kept: Invariants, seen: Seen, *, after_s: float = 1.0, calm_since: float = 0.0) -> list[str]:
    """A look so much later; what is broken by then."""
    seen.clock += after_s
    kept.check(seen.clock - 0.1, calm_since)
    return [str(violation) for violation in kept.violations]


def half_bound(kept: Invariants, seen: Seen) -> set[str]:
    """The violations of V4 that looks over several deadlines of a gang find."""
    return {broken for _ in range(4) for broken in looks(kept, seen, after_s=GANG_S) if broken.startswith("V4")}


def binds(kept: Invariants, name: str, node: str, job_id: int) -> None:
    meta = {"uid": f"uid-{name}", "annotations": {names.JOB_ID: str(job_id)}}
    body = json.dumps({"metadata": meta, "target": {"name": node}}).encode()
    kept.sent_to_kube("POST", f"/api/v1/namespaces/dev/pods/{name}/binding", body)


def test_a_bind_that_is_seen_later_and_right_breaks_nothing() -> None:
    seen = Seen()
    kept = invariants(seen)
    binds(kept, "train", "x1", 17)
    assert looks(kept, seen) == []
    seen.has_pod("train", on="x1", job=17)
    seen.has_job(17, "train", on="x1")
    assert looks(kept, seen) == looks(kept, seen) == []
    assert kept.checked["V2"] == kept.checked["V3"] == kept.checked["V5"] == 1


def test_a_bind_to_another_node_than_the_job_holds_is_broken_at_the_second_look() -> None:
    seen = Seen()
    kept = invariants(seen)
    binds(kept, "train", "x1", 17)
    seen.has_pod("train", on="x1", job=17)
    seen.has_job(17, "train", on="x2")
    assert looks(kept, seen) == []
    assert looks(kept, seen) == ["V2: dev/train is bound to x1, job 17 holds x2"]
    assert len(looks(kept, seen)) == 1, "told once"


def test_a_contradiction_that_the_second_look_does_not_show_was_only_old_news() -> None:
    seen = Seen()
    kept = invariants(seen)
    binds(kept, "train", "x1", 17)
    seen.has_pod("train", on="x1", job=17)  # Slurm was looked at before the job was there
    assert looks(kept, seen) == []
    assert 17 in seen.asked
    seen.has_job(17, "train", on="x1")
    assert looks(kept, seen) == looks(kept, seen) == []


def test_a_bind_where_it_does_not_fit_breaks_v3() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("squatter", on="x1", cpu="4")
    binds(kept, "train", "x1", 17)
    seen.has_pod("train", on="x1", job=17)
    seen.has_job(17, "train", on="x1")
    looks(kept, seen)
    assert looks(kept, seen) == ["V3: dev/train is bound to x1: 5000 cpu of 4000"]


def test_one_grant_for_two_pods_breaks_v2_and_v5() -> None:
    seen = Seen()
    kept = invariants(seen)
    for name in ("train", "other"):
        binds(kept, name, "x1", 17)
        seen.has_pod(name, on="x1", job=17)
    seen.has_job(17, "train", on="x1")
    looks(kept, seen)
    assert {broken[:2] for broken in looks(kept, seen)} == {"V2", "V5"}


def test_a_foreign_job_that_was_cancelled_is_recognised_when_it_is_read() -> None:
    seen = Seen()
    kept = invariants(seen)
    body = b'{"jobs": ["5"], "job_name": "somebody\'s own"}'
    kept.sent_to_slurm("DELETE", "/slurm/v0.0.45/jobs/", {"X-SLURM-USER-NAME": "alice"}, body)
    seen.has_job(5, "somebody's own")
    looks(kept, seen)
    assert looks(kept, seen) == ["V6: DELETE of foreign job 5 (somebody's own of alice)"]


def test_a_pod_that_was_ended_before_its_job_breaks_v7_though_the_job_ends_too() -> None:
    seen = Seen()
    kept = invariants(seen)
    pod, job = seen.has_pod("train", on="x1", job=17), seen.has_job(17, "train", on="x1")
    options = json.dumps({"preconditions": {"uid": pod["metadata"]["uid"]}}).encode()
    kept.sent_to_kube("DELETE", "/api/v1/namespaces/dev/pods/train", options)
    del seen.there["train"]
    job.state, job.ends = "CANCELLED", int(seen.clock) + 20
    looks(kept, seen, after_s=30)
    assert looks(kept, seen) == ["V7: dev/train is ended while its job 17 is CANCELLED"]


def test_a_pod_that_was_ended_after_its_job_breaks_nothing() -> None:
    seen = Seen()
    kept = invariants(seen)
    pod, job = seen.has_pod("train", on="x1", job=17), seen.has_job(17, "train", on="x1")
    options = json.dumps({"preconditions": {"uid": pod["metadata"]["uid"]}}).encode()
    kept.sent_to_kube("DELETE", "/api/v1/namespaces/dev/pods/train", options)
    job.state, job.ends = "PREEMPTED", int(seen.clock)
    assert looks(kept, seen) == looks(kept, seen) == []


def test_two_running_jobs_of_a_workload_break_v1_and_anothers_user_v8() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("train", on="x1", job=17)
    seen.has_job(17, "train", on="x1")
    seen.has_job(18, "train", on="x1")
    looks(kept, seen)
    assert [broken[:2] for broken in looks(kept, seen)] == ["V1"]
    seen.listed = {}
    seen.has_job(19, "train").partition = "secret"
    looks(kept, seen)
    assert [broken[:2] for broken in looks(kept, seen)] == ["V1", "V8"]


def test_the_part_of_a_name_that_users_choose_does_not_make_another_workload() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("train", on="x1", job=17)
    first, second = seen.has_job(17, "train", on="x1"), seen.has_job(18, "train", on="x1")
    second.name = f"mine~{first.name.partition('~')[2]}"
    looks(kept, seen)
    assert [broken[:2] for broken in looks(kept, seen)] == ["V1"]


def test_a_job_whose_pod_is_gone_may_get_another_name() -> None:
    """The pod was never observed, so only the first name of the job shows its namespace."""
    seen = Seen()
    kept = invariants(seen)
    job = seen.has_job(17, "train", on="x1")
    looks(kept, seen)
    job.name = "n12" + job.name[job.name.index("~") :]
    looks(kept, seen)
    assert not [broken for broken in looks(kept, seen) if broken.startswith("V8")]


def test_a_job_that_its_user_names_may_be_requested_although_its_pod_is_gone() -> None:
    """The bridge does not know yet that the pod is gone; the comment of the job shows its namespace."""
    for namespace, broken in (("dev", []), ("other", ["V8"])):
        seen = Seen()
        kept = invariants(seen)
        requests_job(kept, f"n9~{CLUSTER}.{names.workload_key('uid-gone')}", "alice", comment=f"mine; {namespace}/gone")
        looks(kept, seen)
        assert [found[:2] for found in looks(kept, seen)] == broken


def requests_job(kept: Invariants, name: str, user: str, comment: str = "") -> None:
    body = json.dumps({"job": {"name": name, "account": "", "comment": comment}}).encode()
    kept.sent_to_slurm("POST", "/slurm/v0.0.45/job/allocate", {"X-SLURM-USER-NAME": user}, body)


def a_killed_process_requested_a_job() -> tuple[Seen, Invariants]:
    """A former process requested job 17 as alice, and it runs.  The policy can give two users; the pod names job 18."""
    seen = Seen()
    kept = invariants(seen)
    kept.tenants = TenantHistory.always({"dev": "alice", "other": "bob"})
    seen.has_pod("train", on="x1", job=18)
    requests_job(kept, seen.has_job(17, "train", on="x1").name, "alice")
    return seen, kept


def test_a_job_that_a_killed_process_requested_as_the_former_user_may_run_beside_the_new_one_for_a_while() -> None:
    seen, kept = a_killed_process_requested_a_job()
    seen.clock += 1.0
    kept.born = seen.clock
    new = seen.has_job(18, "train", on="x1", user="bob")
    requests_job(kept, new.name, "bob")
    assert not [broken for broken in (*looks(kept, seen), *looks(kept, seen)) if broken.startswith("V1")]
    looks(kept, seen, after_s=FORMER_JOB_S)
    assert [broken for broken in looks(kept, seen) if broken.startswith("V1")] == [
        f"V1: 2 running placeholders of {new.name}"
    ]


def test_a_job_of_a_former_user_is_foreign_to_a_process_whose_policy_never_gave_that_user() -> None:
    seen, kept = a_killed_process_requested_a_job()
    kept.tenants.note_policy(lambda _namespace, _labels: Tenant("bob"), seen.clock + 1.0)
    seen.clock += 2.0
    kept.born = seen.clock
    requests_job(kept, seen.has_job(18, "train", on="x1", user="bob").name, "bob")
    looks(kept, seen, after_s=FORMER_JOB_S)
    assert not [broken for broken in looks(kept, seen) if broken.startswith("V1")]
    kept.tenants.note_policy(lambda namespace, _labels: Tenant("alice" if namespace == "other" else "bob"), seen.clock)
    assert not [broken for broken in looks(kept, seen) if broken.startswith("V1")], "the bridge has time to end the job"
    looks(kept, seen, after_s=FORMER_JOB_S)
    assert [broken[:2] for broken in looks(kept, seen)] == ["V1"], "the bridge has known this user for that long"


def test_a_vain_request_of_this_process_does_not_make_the_running_job_of_a_former_process_its_own() -> None:
    seen, kept = a_killed_process_requested_a_job()
    seen.clock += 2.0
    kept.born = seen.clock
    requests_job(kept, seen.listed[17].name, "alice")
    kept.tenants.note_policy(lambda _namespace, _labels: Tenant("bob"), seen.clock + 1.0)
    seen.clock += 2.0
    requests_job(kept, seen.has_job(18, "train", on="x1", user="bob").name, "bob")
    looks(kept, seen)
    assert not [broken for broken in looks(kept, seen) if broken.startswith("V1")]
    kept.tenants.note_policy(lambda namespace, _labels: Tenant("alice" if namespace == "other" else "bob"), seen.clock)
    looks(kept, seen, after_s=FORMER_JOB_S)
    assert [broken[:2] for broken in looks(kept, seen)] == ["V1"], "the bridge has known this user for that long"


def test_a_request_of_a_killed_process_that_took_effect_late_is_not_the_later_vain_request_of_this_process() -> None:
    seen = Seen()
    kept = invariants(seen)
    kept.tenants = TenantHistory.always({"dev": "alice", "other": "bob"})
    seen.has_pod("train", on="x1", job=18)
    kept.born = seen.clock + 1.0
    seen.clock += 2.0
    late = seen.has_job(17, "train", on="x1")
    seen.clock += 2.0
    requests_job(kept, late.name, "alice")  # slurmrestd is away
    kept.tenants.note_policy(lambda namespace, _labels: Tenant("alice" if namespace == "other" else "bob"), seen.clock)
    requests_job(kept, seen.has_job(18, "train", on="x1", user="bob").name, "bob")
    assert not [broken for broken in (*looks(kept, seen), *looks(kept, seen)) if broken.startswith("V1")]
    looks(kept, seen, after_s=FORMER_JOB_S)
    assert [broken[:2] for broken in looks(kept, seen)] == ["V1"], "the bridge has known this user for that long"


def test_two_jobs_of_one_user_break_v1_also_if_a_killed_process_requested_one() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("train", on="x1", job=18)
    requests_job(kept, seen.has_job(17, "train", on="x1").name, "alice")
    seen.clock += 1.0
    kept.born = seen.clock
    seen.has_job(18, "train", on="x1")
    looks(kept, seen)
    assert [broken[:2] for broken in looks(kept, seen)] == ["V1"]


def test_what_lasts_too_long_after_the_last_fault_breaks_the_liveness_invariants() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("silent")
    seen.has_job(20, "gone", on="x1")
    looks(kept, seen)
    assert looks(kept, seen, after_s=REASON_S - 10) == [], "it may take a while"
    assert looks(kept, seen, after_s=15, calm_since=float("inf")) == [], "while a fault lasts nothing is owed"
    healed = seen.clock
    assert looks(kept, seen, after_s=5, calm_since=healed) == []
    assert looks(kept, seen, after_s=REASON_S - 2, calm_since=healed) == []
    assert [broken[:2] for broken in looks(kept, seen, after_s=3, calm_since=healed)] == ["L1"]
    assert [broken[:2] for broken in looks(kept, seen, after_s=SOON_S - REASON_S - 5, calm_since=healed)] == ["L1"]
    looks(kept, seen, after_s=31, calm_since=healed)
    assert {broken[:2] for broken in looks(kept, seen, calm_since=healed)} >= {"L1", "L2", "L3"}


def release_grant(kept: Invariants, seen: Seen, job_id: int, node: str = "x1") -> None:
    """A grant is seen, and at the next look it has ended."""
    job = seen.has_job(job_id, "doomed", on=node)
    looks(kept, seen, calm_since=1.0)
    job.state, job.ends = "CANCELLED", int(seen.clock)
    looks(kept, seen, after_s=20, calm_since=1.0)


def test_a_workload_whose_jobs_are_granted_and_released_without_end_breaks_l3() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("doomed", said="Slurm job 20 was released, and nodes are requested again.")
    for job_id in range(20, 20 + GRANTS_IN_VAIN):
        assert kept.violations == []
        release_grant(kept, seen, job_id)
    for _ in range(3):
        told = looks(kept, seen, after_s=SOON_S / 2, calm_since=1.0)
    assert told == ["L3: 3 grants of doomed were released within 42 s, and it waits"]


@pytest.mark.parametrize(("nodes", "is_end"), [("x1 x1 x2", False), ("x1 x2 x3", False), ("x1 x2 x1 x2", True)])
def test_a_workload_learns_of_each_node_by_one_grant(nodes: str, is_end: bool) -> None:
    """A full node is asked for again after a minute; meanwhile another one may be granted, and turn out full."""
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("doomed", said="Slurm job 20 was released, and nodes are requested again.")
    for job_id, node in enumerate(nodes.split(), 20):
        release_grant(kept, seen, job_id, node)
    for _ in range(3):
        told = looks(kept, seen, after_s=SOON_S / 2, calm_since=1.0)
    assert bool(told) is is_end


def test_grants_that_are_released_while_a_fault_lasts_break_nothing() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("patient", said="Slurm job 20 was released, and nodes are requested again.")
    for job_id in range(20, 20 + GRANTS_IN_VAIN):
        job = seen.has_job(job_id, "patient", on="x1")
        looks(kept, seen, calm_since=float("inf"))
        job.state = "CANCELLED"
        looks(kept, seen, after_s=20, calm_since=float("inf"))
    for _ in range(3):
        assert looks(kept, seen, after_s=SOON_S, calm_since=seen.clock - 1) == []


def test_jobs_that_served_a_pod_each_were_no_grants_in_vain() -> None:
    """The pods of a failing gang are replaced again and again; the last pods wait in the queue."""
    seen = Seen()
    kept = invariants(seen)
    for job_id in range(20, 20 + GRANTS_IN_VAIN):
        job = seen.has_job(job_id, "train", on="x1")
        seen.has_pod("train", on="x1", job=job_id)
        looks(kept, seen, calm_since=1.0)
        job.state = "CANCELLED"
        del seen.there["train"]
        looks(kept, seen, after_s=20, calm_since=1.0)
    seen.has_pod("train", said="Waiting in Slurm partition main (Priority)")
    for _ in range(3):
        assert looks(kept, seen, after_s=SOON_S, calm_since=1.0) == []


def test_a_pod_that_says_why_it_waits_breaks_nothing() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_pod("patient", said="Waiting in Slurm partition main (Priority)")
    seen.has_job(17, "patient")
    for _ in range(3):
        assert looks(kept, seen, after_s=SOON_S) == []


# --- gangs --------------------------------------------------------------------------------------------------------


def gang(seen: Seen, kept: Invariants, *on: str) -> None:
    """Members m0, m1, … bound for job 17 to those nodes; "": not bound."""
    for number, node in enumerate(on):
        if node:
            binds(kept, f"m{number}", node, 17)
        seen.has_pod(f"m{number}", on=node, job=17 if node else None, said="waits" if not node else "")
        seen.has_gang(f"m{number}")


def test_a_gang_that_is_bound_where_its_job_has_places_breaks_nothing() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_gangs_job(17, 3, {"x1": 2, "x2": 1})
    gang(seen, kept, "x1", "x1", "x2")
    assert looks(kept, seen) == looks(kept, seen, after_s=100) == []
    assert kept.checked["V2"] == kept.checked["V5"] == 3


def test_a_member_on_a_node_that_its_gangs_job_does_not_hold_breaks_v2() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_gangs_job(17, 2, {"x1": 2})
    gang(seen, kept, "x1", "x3")
    looks(kept, seen)
    assert looks(kept, seen) == ["V2: dev/m1 is bound to x3, job 17 holds x1"]


def test_more_members_on_a_node_than_their_job_has_places_there_break_v5() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_gangs_job(17, 3, {"x1": 1, "x2": 2})
    gang(seen, kept, "x1", "x1")
    looks(kept, seen)
    assert {broken[:2] for broken in looks(kept, seen)} == {"V5"}


def test_a_gang_that_stays_half_bound_breaks_v4() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_gangs_job(17, 3, {"x1": 3})
    gang(seen, kept, "x1", "x1", "")
    assert looks(kept, seen, after_s=GANG_S - 5) == [], "its binds may be on their way"
    for _ in range(3):
        told = looks(kept, seen, after_s=SOON_S)
    assert told == ["V4: 2 pods are bound for job 17 of 3 tasks; pods that wait: 1"]


@pytest.mark.parametrize("bound_before", [True, False])
def test_a_pod_that_came_after_the_bound_pods_may_wait_for_their_free_place_though_slurm_lost_their_first_job(
    bound_before: bool,
) -> None:
    """Job 17 replaced that job after the pod was created.  The place is too small for the pod, which says so."""
    seen = Seen()
    kept = invariants(seen)
    gang(seen, kept, "x1", "x1", "")
    for name in ("m0", "m1"):
        seen.there[name]["status"]["startTime"] = objects.rfc3339(seen.clock + (-10.0 if bound_before else 10.0))
    seen.there["m2"]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": names.GRANT_WAITS}
    ]
    seen.clock += 5.0
    seen.has_gangs_job(17, 3, {"x1": 3})
    assert bool(half_bound(kept, seen)) is not bound_before


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_after_a_restart_a_surplus_pod_may_wait_with_its_own_job_beside_a_free_place_of_its_gang(user: str) -> None:
    """The policy may have given the pods another user since the gang was bound."""
    seen = Seen()
    kept = invariants(seen)
    kept.tenants = TenantHistory.always({"dev": "alice", "other": "bob"})
    requests_job(kept, seen.has_gangs_job(17, 3, {"x1": 3}).name, "alice")
    seen.has_job(18, "m2", user=user)
    gang(seen, kept, "x1", "x1", "")
    seen.clock += 1.0
    kept.born = seen.clock
    assert not half_bound(kept, seen)
    del seen.listed[18]
    told = [broken[:2] for _ in range(3) for broken in looks(kept, seen, after_s=SOON_S)]
    assert "V4" in told, "without its own job it is a member"


def test_a_surplus_pod_keeps_its_own_job_while_another_pod_has_its_port_on_the_node_of_the_free_place() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_gangs_job(17, 3, {"x1": 2, "x2": 1})
    gang(seen, kept, "x1", "x1", "")
    seen.has_job(18, "m2")
    seen.has_pod("other", on="x2")
    for name in ("m0", "m2", "other"):
        seen.there[name]["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    assert not half_bound(kept, seen)
    seen.there["other"]["status"]["phase"] = "Succeeded"
    assert half_bound(kept, seen)


def test_a_surplus_pod_may_keep_its_own_job_of_another_user_beside_a_free_place_of_its_gang() -> None:
    """The policy gave the namespace another user between the two submissions."""
    seen = Seen()
    kept = invariants(seen)
    kept.tenants = TenantHistory.always({"dev": "alice", "other": "bob"})
    seen.has_gangs_job(17, 3, {"x1": 3})
    gang(seen, kept, "x1", "x1", "")
    seen.has_job(18, "m2", user="bob")
    assert not half_bound(kept, seen)
    seen.listed[18].user = "alice"
    assert half_bound(kept, seen), "as the same user it takes the place"


def test_a_pod_beside_the_free_place_of_a_failed_member_of_its_gang_breaks_v4() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_gangs_job(17, 3, {"x1": 3})
    gang(seen, kept, "x1", "x1", "x1")
    seen.there["m1"]["status"]["phase"] = "Failed"
    seen.there["m2"]["status"]["phase"] = "Succeeded"
    seen.has_pod("m3", said="waits in Slurm")
    seen.has_gang("m3")
    seen.has_job(18, "m3")
    assert half_bound(kept, seen) == {"V4: 1 pods are bound for job 17 of 3 tasks; pods that wait: 1"}, (
        "a failed pod's place is free"
    )


def test_too_much_of_a_resource_that_the_pod_does_not_request_breaks_nothing() -> None:
    """Another client bound a pod where there was no room for it."""
    seen = Seen()
    kept = invariants(seen)
    for name in ("first", "second"):
        seen.has_pod(name, on="x1")["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": "1"}
    seen.has_job(17, "train", on="x1")
    binds(kept, "train", "x1", 17)
    seen.has_pod("train", on="x1", job=17)
    assert looks(kept, seen) == []
    assert kept.checked["V3"] == 1


def test_a_gang_whose_other_pods_succeeded_needs_no_more_pods() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_gangs_job(17, 3, {"x1": 3})
    gang(seen, kept, "x1", "x1", "x1")
    for name in ("m1", "m2"):
        seen.there[name]["status"]["phase"] = "Succeeded"
    seen.has_pod("m3", said="waits in Slurm")
    seen.has_gang("m3")
    seen.has_job(18, "m3")
    assert not half_bound(kept, seen)


def test_members_that_are_ended_while_their_gang_is_half_bound_break_nothing() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_gangs_job(17, 2, {"x1": 2})
    gang(seen, kept, "x1", "")
    options = json.dumps({"preconditions": {"uid": "uid-m0"}}).encode()
    kept.sent_to_kube("DELETE", "/api/v1/namespaces/dev/pods/m0", options)
    looks(kept, seen)
    assert looks(kept, seen) == []


def test_a_surplus_pod_may_keep_its_own_job_beside_the_free_place_of_another_shape() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_heterogeneous_job(17, {"x1": 1}, {"x2": 1})
    gang(seen, kept, "x1", "")
    seen.has_job(19, "m1")
    assert not half_bound(kept, seen)
    del seen.listed[19]
    told = [broken[:2] for _ in range(3) for broken in looks(kept, seen, after_s=SOON_S)]
    assert "V4" in told, "without its own job it is a member"


def test_components_of_one_job_are_one_placeholder_and_serve_one_gang() -> None:
    seen = Seen()
    kept = invariants(seen)
    seen.has_heterogeneous_job(17, {"x1": 1}, {"x2": 2})
    gang(seen, kept, "x1", "x2", "x2")
    assert looks(kept, seen) == looks(kept, seen) == []
    seen.has_gangs_job(19, 3, {"x3": 3})
    looks(kept, seen)
    assert [broken[:2] for broken in looks(kept, seen)] == ["V1"]

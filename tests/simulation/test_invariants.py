"""The invariants can be broken: each is broken by hand between two simulated clusters, and its check notices.

tests/unit/dev/test_invariants.py has the same where a cluster is real, and states that only look like a violation.
"""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from bridge.simulation.invariants.patience import DELETED_S, UNKNOWN_S
from bridge.simulation.invariants.pod_facts import shows_earlier_job
from bridge.simulation.invariants.unused_grants import GRANTS_IN_VAIN
from bridge.simulation.invariants.violation import Violation
from bridge.simulation.kube import objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.slurm.cluster import SlurmCluster
from scheduler import names
from tests.simulation.life import invariants
from tests.simulation.submissions import submit


class Clusters:
    """Two small clusters with one pod and one running job of it."""

    def __init__(self) -> None:
        self.kube = KubeCluster()
        self.slurm = SlurmCluster.example(external=2, slurmd=0, stock=False)
        self.kube.create(0.0, "namespaces", objects.namespace("alice-a"))
        for name in ("k1", "k2"):
            self.kube.create(0.0, "nodes", objects.node(name))
        self.pod = self.kube.create(0.0, "pods", objects.pod("alice-a", "p", requests={"cpu": "1"}))
        self.invariants = invariants(self.kube, self.slurm, lambda: 100.0)
        self.job = self.submit("alice", self.name_of(self.pod))
        self.slurm.tick(1.0)
        assert self.slurm.jobs[self.job].state == "RUNNING"

    def name_of(self, pod: objects.Object) -> str:
        key = names.workload_key(pod["metadata"]["uid"])
        return names.job_name(f"alice-a/{pod['metadata']['name']}", self.invariants.cluster, key)

    def submit(self, user: str, name: str) -> int:
        job_id = submit(self.slurm, 0.0, user, name)
        assert job_id
        return job_id

    def says_why(self, pod: objects.Object) -> None:
        said = [{"type": "PodScheduled", "status": "False", "reason": "SlurmGrantReleased", "message": "It waits."}]
        self.kube.store.put("pods", {**pod, "status": {**pod["status"], "conditions": said}})

    def binds(self, pod: objects.Object, node: str, job_id: int) -> None:
        meta = pod["metadata"]
        keys = {names.JOB_ID: str(job_id)}
        body = {"metadata": {"uid": meta["uid"], "annotations": keys}, "target": {"name": node}}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
        raw = json.dumps(body).encode()
        self.invariants.sent_to_kube("POST", path, raw)
        self.invariants.reaches_kube(path, raw, self.invariants.process)
        self.kube.handle(100.0, "POST", path, {}, raw)


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


def test_a_pod_that_stays_long_after_its_job_breaks_l4(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    now = [100.0]
    clusters.invariants.clock = lambda: now[0]
    clusters.binds(clusters.pod, holding.node, clusters.job)
    clusters.kube.actors.act(100.0)  # kubelets say that they are ready
    clusters.slurm.cancel(clusters.job, 100.0)
    longest_s = clusters.invariants.stands_s + DELETED_S
    now[0] = 100.0 + longest_s
    assert list(clusters.invariants.at_rest()) == []
    now[0] += 1
    [wrong] = clusters.invariants.at_rest()
    assert wrong.invariant == "L4"
    assert f"alice-a/p is still on {holding.node} {longest_s + 1:.0f} s after its job" in wrong.what
    clusters.kube.actors.stop_kubelet(now[0], holding.node)
    clusters.kube.actors.act(now[0] + 3600)
    assert list(clusters.invariants.at_rest()) == [], "nobody can end it there"


def test_the_right_bind_breaks_nothing(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.binds(clusters.pod, holding.node, clusters.job)
    clusters.invariants.after()
    assert list(clusters.invariants.at_rest()) == []


def test_a_bind_to_a_node_that_was_not_granted_breaks_v2(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    with pytest.raises(Violation, match="V2"):
        clusters.binds(clusters.pod, "k2" if holding.node == "k1" else "k1", clusters.job)


def test_a_bind_for_the_job_of_another_breaks_v2(clusters: Clusters) -> None:
    other = clusters.kube.create(0.0, "pods", objects.pod("alice-a", "q"))
    with pytest.raises(Violation, match="V2"):
        clusters.binds(other, "k1", clusters.job)


def test_a_bind_for_a_job_that_ended_before_any_list_that_the_bridge_may_act_on_breaks_v2(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.slurm.cancel(clusters.job, 100.0 - UNKNOWN_S - 1)
    with pytest.raises(Violation, match=r"V2.*CANCELLED 11 s ago"):
        clusters.binds(clusters.pod, holding.node, clusters.job)


def test_a_bind_for_a_job_that_ended_just_now_breaks_nothing(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.slurm.cancel(clusters.job, 100.0 - UNKNOWN_S)
    clusters.binds(clusters.pod, holding.node, clusters.job)


def test_a_bind_for_a_job_that_waits_breaks_v2(clusters: Clusters) -> None:
    other = clusters.kube.create(0.0, "pods", objects.pod("alice-a", "q"))
    waits = clusters.submit("alice", clusters.name_of(other))
    with pytest.raises(Violation, match=r"V2.*has not started"):
        clusters.binds(other, "k1", waits)


def test_after_a_loss_the_binds_for_lost_jobs_alone_may_be_wrong(clusters: Clusters) -> None:
    """The job of the first pod was lost, and the job of the second pod was not."""
    other = clusters.kube.create(0.0, "pods", objects.pod("alice-a", "q"))
    kept = clusters.submit("alice", clusters.name_of(other))
    clusters.slurm.tick(2.0)
    [holding] = clusters.slurm.jobs[kept].holdings
    del clusters.slurm.jobs[clusters.job]
    clusters.invariants.note_lost([clusters.job])
    clusters.binds(clusters.pod, "k1", clusters.job)
    with pytest.raises(Violation, match="V2"):
        clusters.binds(other, "k2" if holding.node == "k1" else "k1", kept)


def test_a_bind_for_a_job_that_was_lost_before_any_list_that_the_bridge_may_act_on_breaks_v2(
    clusters: Clusters,
) -> None:
    now = [100.0]
    clusters.invariants.clock = lambda: now[0]
    clusters.invariants.note_lost(clusters.slurm.lose_everything(100.0))
    now[0] += UNKNOWN_S + 1
    with pytest.raises(Violation, match=r"V2.*does not exist"):
        clusters.binds(clusters.pod, "k1", clusters.job)


def test_a_bind_where_there_is_no_room_breaks_v3(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    squatter = objects.pod("alice-a", "squatter", scheduler="other", requests={"cpu": "64"}, nodeName=holding.node)
    clusters.kube.create(0.0, "pods", squatter)
    with pytest.raises(Violation, match="V3"):
        clusters.binds(clusters.pod, holding.node, clusters.job)


def test_a_bind_where_another_pod_has_the_host_port_breaks_v3(clusters: Clusters) -> None:
    clusters.kube.remove(0.0, "pods", clusters.pod, 0)
    clusters.pod = clusters.kube.create(0.0, "pods", objects.pod("alice-a", "web", host_port=8080))
    job_id = clusters.submit("alice", clusters.name_of(clusters.pod))
    clusters.slurm.tick(2.0)
    [holding] = clusters.slurm.jobs[job_id].holdings
    squatter = objects.pod("alice-a", "squatter", scheduler="other", host_port=8080, nodeName=holding.node)
    clusters.kube.create(0.0, "pods", squatter)
    with pytest.raises(Violation, match=r"V3.*has its host port"):
        clusters.binds(clusters.pod, holding.node, job_id)


def test_touching_a_foreign_job_breaks_v6(clusters: Clusters) -> None:
    foreign = clusters.submit("alice", "native")
    with pytest.raises(Violation, match="V6"):
        clusters.invariants.sent_to_slurm("POST", f"/slurm/v0.0.45/job/{foreign}", {"X-SLURM-USER-NAME": "alice"})


def test_ending_a_pod_whose_job_runs_breaks_v7(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.binds(clusters.pod, holding.node, clusters.job)
    options = json.dumps({"preconditions": {"uid": clusters.pod["metadata"]["uid"]}}).encode()
    with pytest.raises(Violation, match="V7"):
        clusters.invariants.sent_to_kube("DELETE", "/api/v1/namespaces/alice-a/pods/p", options)


@pytest.mark.parametrize(("limit_min", "allowed"), [(2, True), (3, False)])
def test_a_pod_is_ended_at_once_only_when_its_grace_before_the_time_limit_has_come(
    clusters: Clusters, limit_min: int, allowed: bool
) -> None:
    """The job runs since second 1, now is second 100: of 2 minutes 21 s are left, and the pod has a grace of 30 s."""
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.binds(clusters.pod, holding.node, clusters.job)
    clusters.slurm.jobs[clusters.job].ends = 1 + limit_min * 60
    deadline = {"metadata": {"uid": clusters.pod["metadata"]["uid"]}, "spec": {"activeDeadlineSeconds": 1}}
    raw = json.dumps(deadline).encode()
    with nullcontext() if allowed else pytest.raises(Violation, match="V7"):
        clusters.invariants.sent_to_kube("PATCH", "/api/v1/namespaces/alice-a/pods/p", raw)


def test_ending_a_pod_whose_lost_job_was_replaced_breaks_v7(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.binds(clusters.pod, holding.node, clusters.job)
    clusters.slurm.lose_everything(2.0)
    clusters.submit("carol", "takes the first id")
    another = clusters.submit("alice", clusters.name_of(clusters.pod))
    clusters.slurm.tick(3.0)
    assert another != clusters.job
    options = json.dumps({"preconditions": {"uid": clusters.pod["metadata"]["uid"]}}).encode()
    with pytest.raises(Violation, match="V7"):
        clusters.invariants.sent_to_kube("DELETE", "/api/v1/namespaces/alice-a/pods/p", options)


def test_a_job_of_another_user_that_got_the_id_of_a_lost_one_is_not_the_pods(clusters: Clusters) -> None:
    """Bob's job with a forged name is not the pod's: the pod's own job is lost, so ending the pod breaks nothing."""
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.binds(clusters.pod, holding.node, clusters.job)
    clusters.slurm.lose_everything(2.0)
    assert clusters.submit("bob", clusters.name_of(clusters.pod)) == clusters.job
    clusters.slurm.tick(3.0)
    assert clusters.slurm.jobs[clusters.job].state == "RUNNING"
    options = json.dumps({"preconditions": {"uid": clusters.pod["metadata"]["uid"]}}).encode()
    clusters.invariants.sent_to_kube("DELETE", "/api/v1/namespaces/alice-a/pods/p", options)
    assert clusters.invariants.violations == []


def test_a_foreign_job_under_the_id_of_a_job_that_replaced_a_lost_one_is_not_the_pods(clusters: Clusters) -> None:
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.binds(clusters.pod, holding.node, clusters.job)
    shown = clusters.kube.store.get("pods", "alice-a", "p")
    shown["metadata"]["annotations"][names.JOB_SINCE] = "1970-01-01T00:00:01Z"
    clusters.slurm.lose_everything(2.0)
    assert clusters.submit("bob", "interactive") == clusters.job
    clusters.slurm.tick(3.0)
    options = json.dumps({"preconditions": {"uid": clusters.pod["metadata"]["uid"]}}).encode()
    clusters.invariants.sent_to_kube("DELETE", "/api/v1/namespaces/alice-a/pods/p", options)
    assert clusters.invariants.violations == []


@pytest.mark.parametrize("since", ["", "2027-01-15T08:00:00Z", "2027-01-15T07:59:59Z"])
def test_a_pod_shows_an_earlier_job_if_its_time_is_before_the_start_of_the_job(clusters: Clusters, since: str) -> None:
    job = clusters.slurm.jobs[clusters.job]
    job.starts = int(objects.epoch("2027-01-15T08:00:00Z"))
    shown = {"metadata": {"annotations": {names.JOB_SINCE: since} if since else {}}}
    assert shows_earlier_job(shown, job) is (since == "2027-01-15T07:59:59Z")


def test_a_bind_for_a_job_of_another_user_with_a_forged_name_breaks_v2(clusters: Clusters) -> None:
    clusters.slurm.cancel(clusters.job, 2.0)
    forged = clusters.submit("bob", clusters.name_of(clusters.pod))
    clusters.slurm.tick(3.0)
    [holding] = clusters.slurm.jobs[forged].holdings
    with pytest.raises(Violation, match="V2"):
        clusters.binds(clusters.pod, holding.node, forged)


def stranger(clusters: Clusters, namespace: str) -> objects.Object:
    """A pod that shows the job of another pod, and was never bound for that job."""
    says = {names.JOB_ID: str(clusters.job)}
    made = objects.pod(namespace, "stranger", annotations=says, nodeName="k1")
    return clusters.kube.create(0.0, "pods", made)


def test_ending_a_pod_whose_job_id_is_invented_breaks_v7(clusters: Clusters) -> None:
    clusters.kube.create(0.0, "namespaces", objects.namespace("wild"))
    options = json.dumps({"preconditions": {"uid": stranger(clusters, "wild")["metadata"]["uid"]}}).encode()
    with pytest.raises(Violation, match="V7: wild/stranger was never bound by the bridge"):
        clusters.invariants.sent_to_kube("DELETE", "/api/v1/namespaces/wild/pods/stranger", options)


def test_a_pod_of_a_managed_namespace_may_be_mistaken_for_one_of_an_earlier_process_and_never_for_one_of_this(
    clusters: Clusters,
) -> None:
    options = json.dumps({"preconditions": {"uid": stranger(clusters, "alice-a")["metadata"]["uid"]}}).encode()
    clusters.invariants.born = 50.0
    clusters.invariants.sent_to_kube("DELETE", "/api/v1/namespaces/alice-a/pods/stranger", options)
    clusters.invariants.born = -50.0
    with pytest.raises(Violation, match="V7"):
        clusters.invariants.sent_to_kube("DELETE", "/api/v1/namespaces/alice-a/pods/stranger", options)


def test_ending_a_pod_that_another_client_bound_breaks_v7(clusters: Clusters) -> None:
    """A bind of the bridge was on its way, which the API server refused."""
    clusters.invariants.note_bound_by_other(clusters.pod, "k1", None)
    [holding] = clusters.slurm.jobs[clusters.job].holdings
    clusters.binds(clusters.pod, holding.node, clusters.job)
    clusters.kube.store.put("pods", {**clusters.pod, "spec": {**clusters.pod["spec"], "nodeName": "k1"}})
    options = json.dumps({"preconditions": {"uid": clusters.pod["metadata"]["uid"]}}).encode()
    with pytest.raises(Violation, match="V7: alice-a/p was never bound by the bridge"):
        clusters.invariants.sent_to_kube("DELETE", "/api/v1/namespaces/alice-a/pods/p", options)


def test_an_invented_job_id_hides_no_job_that_is_left_behind(clusters: Clusters) -> None:
    stranger(clusters, "alice-a")
    clusters.kube.remove(0.0, "pods", clusters.pod, 0)
    assert "L2" in {each.invariant for each in clusters.invariants.at_rest()}


@pytest.mark.parametrize(("born", "is_young"), [(50.0, True), (39.0, False)])
def test_a_job_that_a_former_process_requested_under_another_name_may_run_beside_the_new_one_for_a_while(
    clusters: Clusters, born: float, is_young: bool
) -> None:
    clusters.submit("alice", clusters.name_of(clusters.pod).replace("alice-a/p", "edited"))
    clusters.slurm.tick(2.0)
    clusters.invariants.born = born
    with nullcontext() if is_young else pytest.raises(Violation, match="V1"):
        clusters.invariants.after()


def test_another_users_job_breaks_v8(clusters: Clusters) -> None:
    clusters.submit("bob", clusters.name_of(clusters.pod))
    with pytest.raises(Violation, match="V8"):
        clusters.invariants.after()


def test_what_is_left_behind_is_found(clusters: Clusters) -> None:
    wrong = {each.invariant for each in clusters.invariants.at_rest()}
    assert "L1" in wrong, "the pod waits and shows no reason"
    assert "L3" in wrong, "its job runs and it is not bound"
    clusters.kube.remove(0.0, "pods", clusters.pod, 0)
    assert "L2" in {each.invariant for each in clusters.invariants.at_rest()}


def test_a_grant_whose_place_another_pod_took_is_not_released_in_vain(clusters: Clusters) -> None:
    """Slurm grants two jobs a node on which strangers leave room for one pod: each time another pod is bound there."""
    name, job_id = clusters.name_of(clusters.pod), clusters.job
    clusters.says_why(clusters.pod)
    for at in range(2, 2 + GRANTS_IN_VAIN):
        clusters.invariants.after()
        faster = clusters.kube.create(0.0, "pods", objects.pod("alice-a", f"faster-{at}", requests={"cpu": "1"}))
        its_job = clusters.submit("alice", clusters.name_of(faster))
        clusters.slurm.tick(float(at))
        clusters.invariants.after()
        [node] = clusters.invariants.slurm.job(its_job).nodes
        assert clusters.invariants.slurm.job(job_id).nodes == (node,)
        clusters.binds(faster, node, its_job)
        clusters.slurm.cancel(job_id, float(at))
        clusters.invariants.after()
        job_id = clusters.submit("alice", name)
        clusters.slurm.tick(float(at))
    assert not [each for each in clusters.invariants.at_rest() if "released" in str(each)]


def test_grants_that_are_released_again_and_again_break_l3(clusters: Clusters) -> None:
    """The pod says why it waits, and each of its jobs has ended: nothing else is wrong."""
    name, job_id = clusters.name_of(clusters.pod), clusters.job
    clusters.says_why(clusters.pod)
    for at in range(2, 2 + GRANTS_IN_VAIN):
        clusters.invariants.after()
        assert "L3" in {each.invariant for each in clusters.invariants.at_rest()}, "its job runs and it is not bound"
        clusters.slurm.cancel(job_id, float(at))
        clusters.invariants.after()
        if at < 1 + GRANTS_IN_VAIN:
            assert list(clusters.invariants.at_rest()) == []
            job_id = clusters.submit("alice", name)
            clusters.slurm.tick(float(at))
    [wrong] = clusters.invariants.at_rest()
    assert str(wrong) == "L3: 3 grants of p were released within 0 s, and it waits"
    clusters.invariants.calm_since = 101.0
    assert list(clusters.invariants.at_rest()) == [], "that was before the faults ended"

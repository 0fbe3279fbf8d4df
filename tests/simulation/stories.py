"""Stories of one event each, which the sweep of test_crashes.py disturbs at every place."""

from __future__ import annotations

import asyncio

from bridge.simulation.kube import objects
from scheduler import names
from tests.batch_job import batch_job
from tests.simulation.calm import SPACE, Calm
from tests.simulation.disturbed import Story

P = names.PREFIX
LATER = {P + "begin": "now+30"}
# Until a pod of LATER runs: its time comes, Slurm looks at its queue, and a new process begins quietly.
BEGINS_S = 240.0
RUNS = {objects.RUN_S: "5"}


async def all_ended(life: Calm) -> None:
    """Until every job that there was has ended."""
    await life.until(lambda: life.slurm.jobs and all(job.ended for job in life.slurm.jobs.values()), 120)


async def submitted(life: Calm, count: int = 1) -> None:
    await life.until(lambda: len([job for job in life.slurm.jobs.values() if job.pending]) == count)


async def started_or_failed(life: Calm, kind: str) -> None:
    await life.until(lambda: life.pods_of(kind)[0]["status"]["phase"] != "Pending", 200)


async def one_pod_runs_and_ends(life: Calm) -> None:
    life.creates("alone", RUNS)
    await life.first("alone", "Succeeded")
    await all_ended(life)


async def a_pod_waits_and_is_granted_later(life: Calm) -> None:
    life.creates("alone", LATER)
    await life.first("alone", within=BEGINS_S)


async def a_pod_is_deleted_while_it_waits(life: Calm) -> None:
    life.creates("alone", {P + "begin": "now+1hour"})
    await submitted(life)
    life.deletes("alone")
    await all_ended(life)


async def a_pod_is_deleted_while_it_runs(life: Calm) -> None:
    life.creates("alone")
    await life.first("alone")
    life.deletes("alone")
    await all_ended(life)


async def a_pod_is_deleted_by_force(life: Calm) -> None:
    life.creates("alone")
    await life.first("alone")
    life.deletes("alone", 0)
    await all_ended(life)


async def a_waiting_pod_is_edited(life: Calm) -> None:
    life.creates("alone", LATER)
    await submitted(life)
    life.annotates("alone", {P + "time-limit": "33"})
    await life.first("alone", within=BEGINS_S)  # if a process is killed before it sends the edit, the edit is lost (K8)


async def an_admin_holds_and_releases_a_waiting_job(life: Calm) -> None:
    life.creates("alone", LATER)
    await submitted(life)
    [job] = life.slurm.jobs.values()
    life.slurm.hold(job.id)
    await asyncio.sleep(40)
    life.slurm.release(job.id, life.slurm_clock())
    await life.first("alone", within=BEGINS_S)


async def no_node_can_be_used_when_the_pod_is_bound(life: Calm) -> None:
    """The bind is on its way when every node is cordoned.  If it is late, the grant is kept until the pod was read."""
    life.creates("alone")
    await life.until(lambda: any(job.state == "RUNNING" for job in life.slurm.jobs.values()))
    for node in life.slurm.nodes:
        life.cordons(node, True)
    await asyncio.sleep(40)
    for node in life.slurm.nodes:
        life.cordons(node, False)
    await started_or_failed(life, "alone")


async def the_room_comes_back_while_the_grant_is_released(life: Calm) -> None:
    """Other pods have all room, so the grant is released; they go while that cancel is on its way."""
    others = []
    for node in life.slurm.nodes:
        made = objects.pod(SPACE, f"other-{node}", scheduler="other", requests={"cpu": "8"}, nodeName=node)
        others.append(life.kube.create(life.kube_clock(), "pods", made))
    life.inner.wake()
    await asyncio.sleep(20)  # the bridge has seen them, however late
    life.creates("alone")
    await life.until(lambda: any("plans CancelJob" in what for _, what in life.invariants.log), 120)
    for other in others:
        life.kube.remove(life.kube_clock(), "pods", other, 0)
    life.inner.wake()
    await started_or_failed(life, "alone")


async def jobs_are_cancelled(life: Calm) -> None:
    for kind in ("alone", "batch", "service"):
        life.creates(kind)
    for kind in ("alone", "batch", "service"):
        life.slurm.cancel(life.job_of(await life.first(kind)).id, life.slurm_clock())


async def a_job_is_preempted_with_a_grace(life: Calm) -> None:
    life.creates("batch")
    preempted = life.job_of(await life.first("batch"))
    life.slurm.preempt(preempted.id, life.slurm_clock(), grace_s=120)  # longer than any delay
    await life.until(lambda: len(life.pods_of("batch")) > 1, 120)
    await life.until(lambda: preempted.ended, 240)  # containers of a pod that vanished unobserved may run on (S3)


async def time_limits_are_reached(life: Calm) -> None:
    for kind in ("alone", "service"):
        life.creates(kind)
    for kind in ("alone", "service"):
        job = life.job_of(await life.first(kind))
        job.time_limit_min, job.ends = 3, int(life.slurm_clock()) + 150
    await asyncio.sleep(170)


async def slurm_loses_a_job(life: Calm) -> None:
    life.creates("alone")
    lost = life.job_of(await life.first("alone"))
    life.loses(lost)
    await life.until(lambda: any(job.state == "RUNNING" for job in life.slurm.jobs.values()), 120)


async def slurm_loses_a_job_and_has_no_place(life: Calm) -> None:
    life.creates("alone")
    lost = life.job_of(await life.first("alone"))
    life.loses(lost)
    for node in life.slurm.nodes:
        life.slurm.drain(node, "an admin works on it")
    await life.until(lambda: not life.runs("alone"), 600)  # a new process asks for the nodes again first (S7)


async def a_gang_runs_and_ends(life: Calm) -> None:
    life.creates_gang("ring", [{"cpu": "2"}] * 3, RUNS)
    await all_ended(life)


async def a_gang_of_two_shapes(life: Calm) -> None:
    life.creates_gang(
        "mpi", [{"cpu": "1"}, {"cpu": "2", "nvidia.com/gpu": "1"}, {"cpu": "2", "nvidia.com/gpu": "1"}], RUNS
    )
    await all_ended(life)


async def a_gang_waits_for_its_last_member(life: Calm) -> None:
    life.creates_gang("ring", [{"cpu": "2"}] * 2, size=3)
    await asyncio.sleep(20)
    life.creates_gang("ring", [{"cpu": "2"}], size=3, first=2)
    await life.first("ring-2")


async def a_gang_is_deleted_and_comes_again(life: Calm) -> None:
    """Under the same label, and asks for something else."""
    life.creates_gang("ring", [{"cpu": "2"}] * 2, {P + "begin": "now+1hour"})
    await submitted(life)
    for number in range(2):
        life.deletes(f"ring-{number}", 0)
    await asyncio.sleep(5)  # times are in whole seconds, by two clocks
    life.creates_gang("ring", [{"cpu": "2"}] * 2, first=2)
    await life.first("ring-2")


async def a_gang_ends_and_a_larger_one_comes(life: Calm) -> None:
    """Under the same label; the pods of the first one are kept."""
    life.creates_gang("ring", [{"cpu": "2"}] * 2, RUNS)
    await life.first("ring-0", "Succeeded")
    await life.first("ring-1", "Succeeded")
    life.creates_gang("ring", [{"cpu": "1"}] * 3, first=2)
    await life.first("ring-4", within=120)


async def a_member_of_a_gang_is_replaced(life: Calm) -> None:
    template = objects.pod(SPACE, "t", requests={"cpu": "2"}, annotations={P + names.GANG_SIZE: "2"}, grace_s=5)
    template = {"metadata": {"annotations": template["metadata"]["annotations"]}, "spec": template["spec"]}
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    life.kube.create(life.kube_clock(), "jobs", batch_job(SPACE, "batch", template, **spec))
    life.inner.wake()
    await life.until(lambda: len([pod for pod in life.pods_of("batch") if life.runs_now(pod)]) == 2)
    life.kube.remove(life.kube_clock(), "pods", life.pods_of("batch")[0], None)
    life.inner.wake()
    await life.until(lambda: len(life.pods_of("batch")) == 3)
    await life.until(lambda: len([pod for pod in life.pods_of("batch") if life.runs_now(pod)]) == 2, 120)


async def an_image_never_comes(life: Calm) -> None:
    life.creates("alone", {objects.WAITS: "ImagePullBackOff"})
    await life.until(lambda: life.slurm.jobs)
    await life.until(lambda: all(job.ended for job in life.slurm.jobs.values()), 800)


async def a_node_is_cordoned_and_uncordoned(life: Calm) -> None:
    life.creates("alone")
    node = (await life.first("alone"))["spec"]["nodeName"]
    life.cordons(node, True)
    await life.until(lambda: life.slurm.nodes[node].drained)
    life.deletes("alone")
    await all_ended(life)
    life.cordons(node, False)
    await life.until(lambda: not life.slurm.nodes[node].drained)


async def a_node_is_silent_and_back(life: Calm) -> None:
    life.creates("alone")
    node = (await life.first("alone"))["spec"]["nodeName"]
    life.kube.actors.stop_kubelet(life.kube_clock(), node)
    life.inner.wake()
    await life.until(lambda: life.slurm.nodes[node].drained, 120)
    life.kube.actors.start_kubelet(life.kube_clock(), node)
    life.inner.wake()
    await life.until(lambda: not life.slurm.nodes[node].drained, 120)


async def a_node_is_registered_and_leaves(life: Calm) -> None:
    life.kube.create(life.kube_clock(), "nodes", objects.node("e1", cpu="8", memory="16Gi"))
    life.inner.wake()
    life.labels_node("e1", {names.EXTERNAL_NODE_LABEL: "true"})
    await life.until(lambda: "e1" in life.slurm.nodes, 200)
    life.labels_node("e1", {names.EXTERNAL_NODE_LABEL: None})
    await life.until(lambda: "e1" not in life.slurm.nodes, 200)


STORIES: tuple[Story, ...] = (
    one_pod_runs_and_ends,
    a_pod_waits_and_is_granted_later,
    a_pod_is_deleted_while_it_waits,
    a_pod_is_deleted_while_it_runs,
    a_pod_is_deleted_by_force,
    a_waiting_pod_is_edited,
    an_admin_holds_and_releases_a_waiting_job,
    no_node_can_be_used_when_the_pod_is_bound,
    the_room_comes_back_while_the_grant_is_released,
    jobs_are_cancelled,
    a_job_is_preempted_with_a_grace,
    time_limits_are_reached,
    slurm_loses_a_job,
    slurm_loses_a_job_and_has_no_place,
    a_gang_runs_and_ends,
    a_gang_of_two_shapes,
    a_gang_waits_for_its_last_member,
    a_gang_is_deleted_and_comes_again,
    a_gang_ends_and_a_larger_one_comes,
    a_member_of_a_gang_is_replaced,
    an_image_never_comes,
    a_node_is_cordoned_and_uncordoned,
    a_node_is_silent_and_back,
    a_node_is_registered_and_leaves,
)

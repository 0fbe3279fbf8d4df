"""What happens in a life until its faults end: one act after the other, chosen by its seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bridge.simulation.invariants.pod_facts import is_finished
from bridge.simulation.kube import objects
from bridge.simulation.slurm import rest
from bridge.simulation.slurm.jobs import SimJob
from scheduler import names
from tests.simulation.clusters import Clusters, annotations_of
from tests.simulation.policies import USERS
from tests.simulation.strangers import stranger
from tests.simulation.submissions import submit

CHAOS_S = 90.0
GANG, GANG_SIZE = names.PREFIX + names.GANG, names.PREFIX + names.GANG_SIZE


@dataclass(slots=True)
class Chaos(Clusters):
    """The acts of users, admins and failing servers.

    chaos_s  so long anything may happen; pause_s: between two things that happen, in the mean
    kill     ends the process of the bridge without warning; None: none runs
    former_jobs   the jobs that slurmctld had when it lost jobs; ids of lost jobs are reused
    """

    chaos_s: float = CHAOS_S
    pause_s: float = 1 / 0.53
    kill: Callable[[], object] | None = None
    former_jobs: list[SimJob] = field(default_factory=list)

    def _acts(self) -> list[Callable[[], None]]:
        """The acts to choose from; a frequent act is listed several times."""
        return (
            [self._new_pod] * 12
            + [self._delete_pod] * 4
            + [self._new_replica_set, self._new_batch_job]
            + [self._new_pod_with_port] * 2
            + [self._new_ring_with_port, self._kubelet_falls_silent, self._invented_hint, self._many_invented_hints]
            + [self._new_ring, self._new_launcher, self._new_batch_gang, self._member_again]
            + [self._gang_again, self._nightly] * 2
            + [self._cancel_job] * 3
            + [self._preempt_job, self._foreign_job, self._forged_job, self._edit_pod]
            + [self._edit_job, self._rename_job, self._hold_job, self._suspend_job]
            + [self._drain, self._resume, self._cordon, self._node_down]
            + [self._kill_bridge] * 2
            + [self._controller_down, self._forget_watches, self._lose_jobs, self._lose_all_jobs]
            + [self._api_server_down, self._member_of_lower_rank, self._member_of_other_shape, self._force_delete]
        )

    async def _chaos(self) -> None:
        ends, acts = self.clock() + self.chaos_s, self._acts()
        while self.clock() < ends:
            await asyncio.sleep(self.rng.expovariate(1 / self.pause_s))
            act = self.rng.choice(acts)
            self.invariants.note(f"chaos: {act.__name__.strip('_')}")
            act()
            self.inner.wake()

    def _heal(self) -> None:
        self.invariants.note("faults end")
        self.invariants.calm_since = self.clock()
        self.faults.on = False
        self.faults.api.end()
        self.slurm.controller_up = True
        self.slurm.accounting_up = self.slurm.accounting
        for name in list(self.slurm.nodes):
            self.slurm.resume(name, self.slurm_clock())
        for job in list(self.slurm.jobs.values()):
            if job.held:
                self.slurm.release(job.id, self.slurm_clock())
            if job.state == "SUSPENDED":
                self.slurm.unsuspend(job.id)
        for node in list(self.kube.store.all("nodes")):
            self._cordoned(node, False)
        for name in self.kube.actors.silent:
            self._kubelet_is_back(name)
        self.inner.wake()

    def _new_pod_with_port(self) -> None:
        """Creates a pod with a host port, which needs a node without that port in use.  Slurm knows nothing of ports."""
        self._new_pod(self._port())

    def _port(self) -> int:
        return self.rng.choice([8080, 8080, 9090])

    def _new_pod(self, host_port: int = 0) -> None:
        self.made += 1
        space = self.rng.choice(list(USERS))
        runs = self.rng.choice(["2", "8", "25", ""])
        says = {objects.RUN_S: runs, objects.EXIT_CODE: self.rng.choice("003")} if runs else {}
        self.kube.create(
            self.kube_clock(),
            "pods",
            objects.pod(
                space, f"p{self.made}", requests=self._wants(), annotations=says, grace_s=5, host_port=host_port
            ),
        )

    def _wants(self) -> dict[str, str]:
        wants = {"cpu": str(self.rng.choice([1, 1, 2, 4])), "memory": "512Mi"}
        if self.rng.random() < 0.4:
            wants["nvidia.com/gpu"] = str(self.rng.choice([1, 2]))
        return wants

    def _template(self) -> dict[str, Any]:
        made = objects.pod("alice-a", "t", requests=self._wants(), grace_s=5)
        return {"metadata": {"labels": {"app": "t"}}, "spec": made["spec"]}

    def _new_replica_set(self) -> None:
        self.made += 1
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "t"}}, "template": self._template()}
        meta = {"namespace": "alice-a", "name": f"r{self.made}"}
        self.kube.create(self.kube_clock(), "replicasets", {"metadata": meta, "spec": spec})

    def _new_batch_job(self) -> None:
        self.made += 1
        template = self._template()
        template["metadata"]["annotations"] = {objects.RUN_S: "5"}
        spec = {"parallelism": 2, "completions": 3, "template": template}
        meta = {"namespace": "alice-a", "name": f"j{self.made}"}
        self.kube.create(self.kube_clock(), "jobs", {"metadata": meta, "spec": spec})

    def _new_ring(self) -> None:
        """A gang of one shape; now and then its last member is late, or there is one too many."""
        wants, size = self._wants(), self.rng.choice([2, 3, 4])
        self._new_gang(size, [wants] * (size + self.rng.choice([-1, 0, 0, 0, 1])))

    def _new_ring_with_port(self) -> None:
        """Each of its members is on another node."""
        size = self.rng.choice([2, 3])
        self._new_gang(size, [self._wants()] * size, self._port())

    def _new_launcher(self) -> None:
        """A gang of two shapes: one heterogeneous job."""
        workers = [self._wants()] * self.rng.choice([1, 2])
        self._new_gang(1 + len(workers), [{"cpu": "1", "memory": "256Mi"}, *workers])

    def _new_gang(self, size: int, shapes: list[dict[str, str]], host_port: int = 0) -> None:
        self.made += 1
        space, runs = self.rng.choice(list(USERS)), self.rng.choice(["2", "8", "25", ""])
        says = {GANG_SIZE: str(size)} | ({objects.RUN_S: runs} if runs else {})
        for number, wants in enumerate(shapes):
            name, labels = f"g{self.made}-{number}", {GANG: f"g{self.made}"}
            made = objects.pod(
                space, name, requests=wants, labels=labels, annotations=says, grace_s=5, host_port=host_port
            )
            self.kube.create(self.kube_clock(), "pods", made)

    def _gang_again(self) -> None:
        """The pods of a gang have all ended, and are kept; others come under its label, as many or not."""
        gangs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for pod in self.invariants.pods():
            if label := (pod["metadata"].get("labels") or {}).get(GANG):
                gangs.setdefault((pod["metadata"]["namespace"], label), []).append(pod)
        over = [which for which, pods in sorted(gangs.items()) if all(is_finished(pod) for pod in pods)]
        if not over:
            return
        self.made += 1
        space, label = self.rng.choice(over)
        size = self.rng.choice([2, 3])
        says = {GANG_SIZE: str(size), objects.RUN_S: self.rng.choice(["2", "8"])}
        wants = self._wants()
        for number in range(size):
            name = f"{label}-run{self.made}-{number}"
            made = objects.pod(space, name, requests=wants, labels={GANG: label}, annotations=says, grace_s=5)
            self.kube.create(self.kube_clock(), "pods", made)

    def _nightly(self) -> None:
        """A batch Job as a CronJob makes it: the label of its template is that of every night's Job."""
        self.made += 1
        template, size = self._template(), self.rng.choice([2, 3])
        template["metadata"]["labels"] = {"app": "t", GANG: f"nightly-{size}"}
        template["metadata"]["annotations"] = {GANG_SIZE: str(size), objects.RUN_S: self.rng.choice(["2", "5"])}
        spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template}
        meta = {"namespace": "alice-a", "name": f"n{self.made}"}
        self.kube.create(self.kube_clock(), "jobs", {"metadata": meta, "spec": spec})

    def _new_batch_gang(self) -> None:
        """An indexed batch Job whose pods are one gang; its controller recreates failed pods."""
        self.made += 1
        template, size = self._template(), self.rng.choice([2, 3])
        template["metadata"]["annotations"] = {GANG_SIZE: str(size), objects.RUN_S: self.rng.choice(["5", "20"])}
        spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template}
        meta = {"namespace": "alice-a", "name": f"b{self.made}"}
        self.kube.create(self.kube_clock(), "jobs", {"metadata": meta, "spec": spec})

    def _member_again(self) -> None:
        """One more of some gang comes: it takes a freed place, completes the gang, or is one too many."""
        self._another_member("{gang}-again-{number}")

    def _member_of_lower_rank(self) -> None:
        """Also while the binds of the others are under way."""
        self._another_member("a{number}-{gang}")

    def _member_of_other_shape(self) -> None:
        """Creates a member that may ask for more than the free place in its gang has."""
        self._another_member("{gang}-other-{number}", self._wants())

    def _another_member(self, called: str, wants: dict[str, str] | None = None) -> None:
        """Creates one more member of a random gang, like an existing member.  wants: resources that differ"""
        members = [pod for pod in self.invariants.pods() if GANG in (pod["metadata"].get("labels") or {})]
        if not members:
            return
        self.made += 1
        like = self.rng.choice(members)
        meta = like["metadata"]
        says = {key: value for key, value in annotations_of(like).items() if key in (GANG_SIZE, objects.RUN_S)}
        labels = {GANG: meta["labels"][GANG]}
        requests = wants or like["spec"]["containers"][0]["resources"]["requests"]
        name = called.format(gang=labels[GANG], number=self.made)
        port = next((each.port for each in objects.host_ports(like)), 0)
        space = meta["namespace"]
        made = objects.pod(space, name, requests=requests, labels=labels, annotations=says, grace_s=5, host_port=port)
        self.kube.create(self.kube_clock(), "pods", made)

    def _some_pod(self) -> dict[str, Any] | None:
        pods = self.invariants.pods()
        return self.rng.choice(pods) if pods else None

    def _delete_pod(self) -> None:
        if (pod := self._some_pod()) is not None and not pod["metadata"].get("deletionTimestamp"):
            self.kube.remove(self.kube_clock(), "pods", pod, self.rng.choice([None, None, 0]))

    def _force_delete(self) -> None:
        """Its object is gone at once, also while it terminates; its containers run on for a while."""
        if (pod := self._some_pod()) is not None:
            self.kube.remove(self.kube_clock(), "pods", pod, 0)

    def _edit_pod(self) -> None:
        if (pod := self._some_pod()) is not None:
            meta = pod["metadata"]
            minutes = str(self.rng.randint(1, 90))
            said = {
                **meta.get("annotations", {}),
                "slurm-bridge/time-limit": minutes,
                "slurm-bridge/job-name": f"n{minutes}",
            }
            self.kube.store.put("pods", {**pod, "metadata": {**meta, "annotations": said}})

    def _some_job(self) -> int | None:
        live = self.invariants.ours()
        return self.rng.choice(live).id if live else None

    def _cancel_job(self) -> None:
        if (job_id := self._some_job()) is not None:
            self.slurm.cancel(job_id, self.slurm_clock())

    def _preempt_job(self) -> None:
        running = [job.id for job in self.invariants.ours() if job.holds]
        if running:
            self.slurm.preempt(self.rng.choice(running), self.slurm_clock())

    def _as_user(self, job_id: int, body: bytes) -> None:
        """Its own user changes the job, as with scontrol."""
        headers = {"X-SLURM-USER-TOKEN": self.slurm.token("slurm"), "X-SLURM-USER-NAME": self.slurm.jobs[job_id].user}
        rest.answer(self.slurm, self.slurm_clock(), "POST", f"/slurm/v0.0.45/job/{job_id}", headers, body)

    def _edit_job(self) -> None:
        if (job_id := self._some_job()) is not None:
            minutes = self.rng.randint(1, 60)
            self._as_user(job_id, b'{"time_limit":{"set":true,"number":%d},"comment":"mine"}' % minutes)

    def _rename_job(self) -> None:
        """Not once slurmctld lost jobs: what took a lost job's place is younger than its pods, as one of a reused id is.

        Under another name a bridge that starts anew cannot tell the two apart (docs/decisions/0003).
        """
        if self.invariants.lost_at == float("-inf") and (job_id := self._some_job()) is not None:
            job = self.slurm.jobs[job_id]
            self.invariants.renamed.setdefault(job.serial, job.name)
            self._as_user(job_id, b'{"name":"mine-%d"}' % job_id)

    def _hold_job(self) -> None:
        waiting = [job.id for job in self.invariants.ours() if job.state == "PENDING"]
        if waiting:
            self.slurm.hold(self.rng.choice(waiting), by_admin=self.rng.random() < 0.5)

    def _suspend_job(self) -> None:
        running = [job.id for job in self.invariants.ours() if job.state == "RUNNING"]
        if running:
            self.slurm.suspend(self.rng.choice(running))

    def _foreign_job(self) -> None:
        submit(self.slurm, self.slurm_clock(), self.rng.choice(["alice", "carol"]), f"native-{self.made}")

    def _forged_job(self) -> None:
        if (job_id := self._some_job()) is not None:
            submit(self.slurm, self.slurm_clock(), "carol", self.slurm.jobs[job_id].name)

    def _drain(self) -> None:
        self.slurm.drain(self.rng.choice(list(self.slurm.nodes)), "chaos")

    def _resume(self) -> None:
        for name in list(self.slurm.nodes):
            self.slurm.resume(name, self.slurm_clock())

    def _node_down(self) -> None:
        self.slurm.down(self.rng.choice(list(self.slurm.nodes)), self.slurm_clock(), "chaos")

    def _cordon(self) -> None:
        node = self.rng.choice(list(self.kube.store.all("nodes")))
        self._cordoned(node, not node["spec"].get("unschedulable"))

    def _cordoned(self, node: dict[str, Any], cordoned: bool) -> None:
        self.kube.store.put("nodes", {**node, "spec": {**node["spec"], "unschedulable": cordoned}})

    def _kubelet_falls_silent(self) -> None:
        """A node dies, or its network does; its pods may be deleted meanwhile, and stay Terminating until it is back."""
        name = self.rng.choice(self.nodes)
        self.kube.actors.stop_kubelet(self.kube_clock(), name)
        later = asyncio.get_running_loop().call_later
        if self.rng.random() < 0.8:
            later(self.rng.uniform(0, 30), self._delete_pods_on, name)
        later(self.rng.choice([self.rng.uniform(5, 40), self.rng.uniform(60, 90)]), self._kubelet_is_back, name)

    def _kubelet_is_back(self, name: str) -> None:
        self.kube.actors.start_kubelet(self.kube_clock(), name)
        self.inner.wake()

    def _delete_pods_on(self, node: str) -> None:
        """As after the taint of a dead node, or `kubectl drain`."""
        if node not in self.kube.actors.silent:
            return
        for pod in self.invariants.pods():
            if pod["spec"].get("nodeName") == node and not pod["metadata"].get("deletionTimestamp"):
                self.kube.remove(self.kube_clock(), "pods", pod)
        self.inner.wake()

    def _invented_hint(self) -> None:
        self._strangers(1)

    def _many_invented_hints(self) -> None:
        """More than may vanish at once before that is believed (X6)."""
        self._strangers(12)

    def _strangers(self, count: int) -> None:
        jobs = [job.id for job in self.slurm.jobs.values()]
        for _ in range(count):
            self.made += 1
            made = stranger(self.rng, f"s{self.made}", self.nodes, jobs, list(USERS))
            self.kube.create(self.kube_clock(), "pods", made)

    def _kill_bridge(self) -> None:
        if self.kill is not None:
            self.kill()

    def _api_server_down(self) -> None:
        """For seconds, or for as long as a control plane takes to restart."""
        self.faults.api.begin()
        lasts_s = self.rng.choice([self.rng.uniform(1, 10), self.rng.uniform(16, 45)])
        asyncio.get_running_loop().call_later(lasts_s, self.faults.api.end)

    def _controller_down(self) -> None:
        self.slurm.controller_up = False
        asyncio.get_running_loop().call_later(self.rng.uniform(1, 20), self._controller_back)

    def _controller_back(self) -> None:
        self.slurm.controller_up = True

    def _lose_jobs(self) -> None:
        """slurmctld crashes: what it had not saved is gone, and those ids are given out again."""
        self._jobs_are_lost(self.slurm.lose_state)

    def _lose_all_jobs(self) -> None:
        """slurmctld comes back without its state."""
        self._jobs_are_lost(self.slurm.lose_everything)

    def _jobs_are_lost(self, lose: Callable[[float], list[int]]) -> None:
        self.former_jobs += self.slurm.jobs.values()
        lost = lose(self.slurm_clock())
        for each in (self, *self.sharers):
            each.invariants.note_lost(lost)

    def _forget_watches(self) -> None:
        self.kube.compact()

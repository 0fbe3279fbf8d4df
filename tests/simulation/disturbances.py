"""What happens beside the chaos in some lives, each with random numbers of its own.

So the other faults of a seed stay what they are if one of these changes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from dataclasses import dataclass
from typing import Any, ClassVar

from bridge.app import Bridge
from bridge.simulation.invariants.pod_facts import is_finished
from bridge.simulation.kube import objects
from scheduler import names
from scheduler.events import PolicyChanged
from tests.simulation.chaos import CHAOS_S, Chaos
from tests.simulation.clusters import annotations_of
from tests.simulation.policies import ACCOUNT_LABEL, MANAGED, OTHERS, POLICIES, USER_LABEL, USERS, AnyPolicy, of_managed
from tests.simulation.strangers import NOBODYS_ID

OTHERS_BIND = 0.1  # share of the lives
BOUND_BY_OTHERS_S = 20.0  # between two binds of others, in the mean
POLICY_CHANGES = 0.25  # share of the lives
ANOTHER_POLICY_S = 15.0  # between two changes of policy or labels, in the mean
# Share of the lives in which namespaces become other users.  A new process does not know the policy of the process before:
# V1 has an exception for that (docs/behaviour.md).
IDENTITY_CHANGES = float(os.environ.get("IDENTITY_CHANGES", "0.25"))
RIGHTS_GO = 0.2  # share of the lives
RIGHTS_GO_S = 10.0  # between two times that rights are taken away, and for so long, in the mean
STUBBORN = 0.5  # share of the lives in which no grace is longer than the chaos
STUBBORN_S = 15.0  # between two things that happen to pods which do not stop, in the mean
GRACES = (600, 3600, 86_400)
LONGEST_GRACE_S = 10**10

# What a RoleBinding, a ClusterRoleBinding and single rules give.
IN_NAMESPACES = frozenset(
    {
        ("create", "pods/binding"),
        ("patch", "pods"),
        ("delete", "pods"),
        ("patch", "pods/status"),
        ("create", "pods/eviction"),
    }
)
EVERYWHERE = frozenset((verb, what) for verb in ("get", "list", "watch") for what in ("pods", "nodes", "namespaces"))
ON_NODES = frozenset({("patch", "nodes"), ("patch", "nodes/status")})
RIGHTS = (
    IN_NAMESPACES,
    EVERYWHERE | ON_NODES,
    frozenset({("create", "pods/binding")}),
    frozenset({("delete", "pods")}),
    ON_NODES,
)


@dataclass(slots=True)
class Disturbances(Chaos):
    """Other clients, changes of policy and of rights, pods that do not stop, and a slurmdbd that is away.

    policy   that of the bridge, now
    bridge   the bridge that runs, or that ran last
    identities   namespaces may become other users
    """

    bridge: Bridge | None = None
    policy: AnyPolicy = POLICIES[0]
    identities: ClassVar[bool] = True

    @property
    def others_bind(self) -> bool:
        """Another scheduler, or a person, binds pods that wait for the bridge."""
        return random.Random(f"{self.seed} bound by others").random() < OTHERS_BIND

    async def _slurmdbd_is_away_for_a_while(self) -> None:
        """In some lives; with random numbers of its own, so that the other faults of a seed stay what they are."""
        rng = random.Random(self.seed + 2)
        if self.beside is not None or not self.slurm.accounting or rng.random() < 0.6:
            return
        await asyncio.sleep(rng.choice([0.0, rng.uniform(0.0, CHAOS_S / 2)]))
        self.invariants.note("chaos: slurmdbd is away")
        self.slurm.accounting_up = False
        await asyncio.sleep(rng.uniform(5.0, CHAOS_S))
        self.invariants.note("slurmdbd is back")
        self.slurm.accounting_up = True

    async def _others_bind_pods(self) -> None:
        """In some lives; with random numbers of its own, so that the other faults of a seed stay what they are."""
        if not self.others_bind:
            return
        rng, ends = random.Random(f"{self.seed} binds of others"), self.clock() + CHAOS_S
        while self.clock() + (waits_s := rng.expovariate(1 / BOUND_BY_OTHERS_S)) < ends:
            await asyncio.sleep(waits_s)
            self._bind_by_others(rng)

    def _bind_by_others(self, rng: random.Random) -> None:
        """Another scheduler, or a person, binds a waiting pod of the bridge, and may write the id of a job on it."""
        waiting = [pod for pod in self.invariants.pods() if self._waits_for_the_bridge(pod)]
        if not waiting:
            return
        pod, node = rng.choice(waiting), rng.choice(self.nodes)
        # Slurm may have reused the id of an earlier job of the pod.  A pod that names its own ended job may be ended.
        jobs = (*self.slurm.jobs.values(), *self.former_jobs)
        own = {job.id for job in jobs if self.invariants.is_for(job, pod)}
        foreign = [job_id for job_id in self.slurm.jobs if job_id not in own]
        shown = rng.choice([None, None, NOBODYS_ID, rng.choice([*foreign, NOBODYS_ID])])
        self.invariants.note_bound_by_other(pod, node, shown)
        meta: dict[str, Any] = {"uid": pod["metadata"]["uid"]}
        if shown is not None:
            meta["annotations"] = {names.JOB_ID: str(shown)}
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/binding"
        body = json.dumps({"metadata": meta, "target": {"kind": "Node", "name": node}}).encode()
        of_the_bridge, self.kube.forbidden = self.kube.forbidden, set()
        status, _, answer = self.kube.handle(self.kube_clock(), "POST", path, {}, body)
        self.kube.forbidden = of_the_bridge
        assert status == 201, answer
        self.inner.wake()

    def _waits_for_the_bridge(self, pod: dict[str, Any]) -> bool:
        spec, meta = pod["spec"], pod["metadata"]
        ours = spec.get("schedulerName") == names.SCHEDULER_NAME and meta["namespace"] in USERS
        return ours and not (spec.get("nodeName") or meta.get("deletionTimestamp") or is_finished(pod))

    async def _policy_changes(self) -> None:
        """In some lives, also while no bridge runs; with random numbers of its own."""
        rng, ends = random.Random(f"{self.seed} policy"), self.clock() + CHAOS_S
        may_change, others = rng.random() < POLICY_CHANGES, self._others_are_given
        if not (may_change or others):
            return
        while self.clock() + (waits_s := rng.expovariate(1 / ANOTHER_POLICY_S)) < ends:
            await asyncio.sleep(waits_s)
            if others:
                self._another_identity(rng)
            elif rng.random() < 0.3:
                self._label(rng.choice(list(USERS)), there=rng.random() < 0.5)
            else:
                self._write_policy(rng.choice(POLICIES))
        await asyncio.sleep(ends - self.clock())
        for name in USERS:
            self._label(name, there=True)
        # By another policy a job whose pods went while no bridge ran is nobody's: only a template gave its user.
        self._write_policy(POLICIES[0] if others else POLICIES[rng.randrange(2)])

    @property
    def _others_are_given(self) -> bool:
        return self.identities and random.Random(f"{self.seed} identities").random() < IDENTITY_CHANGES

    def _another_identity(self, rng: random.Random) -> None:
        """Another policy; or a namespace has other labels, or loses those that it needs."""
        if rng.random() < 0.4:
            self._write_policy(rng.choice(OTHERS))
            return
        space = rng.choice(list(USERS))
        user, account = rng.choice(["alice", "alice", "bob", "bob", None]), rng.choice(["teama", "teamb", None])
        managed = "true" if rng.random() < 0.8 else None
        self._labels(space, {USER_LABEL: user, ACCOUNT_LABEL: account, MANAGED: managed})

    def _write_policy(self, policy: AnyPolicy) -> None:
        self.invariants.note(f"the admin: policy {OTHERS.index(policy)}")
        self.policy = policy
        self.invariants.tenants.note_policy(of_managed(policy.gives), self.clock())
        if self.bridge is not None:
            self.bridge.loop.emit(PolicyChanged(policy.written.policy(), self.clock()))

    def _label(self, name: str, *, there: bool) -> None:
        self._labels(name, {USER_LABEL: USERS[name] if there else None, ACCOUNT_LABEL: None, MANAGED: "true"})

    def _labels(self, name: str, labels: dict[str, str | None]) -> None:
        """The namespace gets these labels, and loses those that are None."""
        said = ", ".join(f"{key}={value}" for key, value in labels.items() if value is not None)
        self.invariants.note(f"the admin: namespace {name} is labelled {said}")
        body = json.dumps({"metadata": {"labels": labels}}).encode()
        headers = {"Content-Type": "application/merge-patch+json"}
        status, _, answer = self.kube.handle(self.kube_clock(), "PATCH", f"/api/v1/namespaces/{name}", headers, body)
        assert status == 200, answer
        self.invariants.tenants.note_labels(name, json.loads(answer)["metadata"].get("labels") or {}, self.clock())
        self.inner.wake()

    @property
    def rights_go(self) -> bool:
        """Rights of the bridge in Kubernetes are taken away for a while."""
        return random.Random(f"{self.seed} rights").random() < RIGHTS_GO

    async def _rights_are_taken_and_given_back(self) -> None:
        """In some lives; with random numbers of its own, so that the other faults of a seed stay what they are."""
        rng, ends = random.Random(f"{self.seed} which rights"), self.clock() + CHAOS_S
        while self.rights_go and self.clock() + (waits_s := rng.expovariate(1 / RIGHTS_GO_S)) < ends:
            await asyncio.sleep(waits_s)
            taken = rng.choice(RIGHTS)
            self.invariants.note(f"chaos: rights are taken away: {', '.join(' '.join(each) for each in sorted(taken))}")
            self.kube.forbidden |= taken
            await asyncio.sleep(min(ends - self.clock(), rng.uniform(1.0, 2 * RIGHTS_GO_S)))
            self.invariants.note("the rights are given back")
            self.kube.forbidden -= taken

    async def _stubborn_pods(self) -> None:
        """Containers that ignore SIGTERM, with a long grace of the pod or of the deletion; in some lives.

        With random numbers of its own.  Only where no grace counts for long: else they stand in others' way beyond the end.
        """
        rng, ends = random.Random(f"{self.seed} stubborn"), self.clock() + CHAOS_S
        if not self.hasty or rng.random() >= STUBBORN:
            return
        while self.clock() + (waits_s := rng.expovariate(1 / STUBBORN_S)) < ends:
            await asyncio.sleep(waits_s)
            stubborn = [pod for pod in self.invariants.pods() if objects.STOP_S in annotations_of(pod)]
            running = [pod for pod in stubborn if names.JOB_ID in annotations_of(pod) and not is_finished(pod)]
            if not running or rng.random() < 0.4:
                self._new_stubborn_pod(rng)
            elif rng.random() < 0.5:
                pod, grace_s = rng.choice(running), rng.choice([*GRACES, LONGEST_GRACE_S])
                self.invariants.note(f"somebody deletes {pod['metadata']['name']} with a grace of {grace_s} s")
                self.kube.remove(self.kube_clock(), "pods", pod, grace_s)
            else:
                job = self.slurm.jobs.get(int(rng.choice(running)["metadata"]["annotations"][names.JOB_ID]))
                if job is not None and self.invariants.is_ours(job) and not job.ended:
                    self.invariants.note(f"somebody ends job {job.id}")
                    self.slurm.cancel(job.id, self.slurm_clock())
            self.inner.wake()

    def _new_stubborn_pod(self, rng: random.Random) -> None:
        self.made += 1
        name, says = f"stubborn{self.made}", {objects.STOP_S: "100000"}
        made = objects.pod("alice-a", name, requests={"cpu": "1"}, annotations=says, grace_s=rng.choice(GRACES))
        template = {"metadata": {"labels": {"app": name}, "annotations": says}, "spec": made["spec"]}
        self.invariants.note(f"somebody makes {name}")
        if rng.random() < 0.5:
            self.kube.create(self.kube_clock(), "pods", made)
        else:
            self.kube.create(self.kube_clock(), "replicasets", objects.replica_set("alice-a", name, 1, template))

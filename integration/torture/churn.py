"""What users and admins do all the time: pods and gangs come, end and are deleted, jobs are cancelled, nodes are cordoned.

It goes on while servers are down.  If no server answers, the act happened or did not, as for any client.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self

import requests
import urllib3
from kubernetes.client import ApiException

from integration.checker.journal import BRIDGE
from integration.clusters import ENDED, PREFIX, Kube, Slurm, pod, replica_set

EVERY_S = 0.2  # between two acts, on average
MOST_PODS = 40
MOST_FOREIGN = 6
REPLICAS = 4
CALL_S = 5.0
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"  # of the others there are ever more
GPUS = (0, 0, 0, 0, 1, 8)
ACTS = {"pod": 6, "gang": 2, "finish": 3, "delete": 2, "scancel": 4, "cordon": 1, "foreign": 1}


class Churn:
    """Acts as users and admins, in a thread, while it is entered.

    scheduler  schedulerName that its pods name; "": they name none
    weights    how often it does what
    gpus       the requests of pods, one of which is drawn

    acts     how many acts of each kind an answer confirmed
    foreign  ids of jobs that are no placeholders, and that only this object may end
    """

    def __init__(
        self,
        kube: Kube,
        slurm: Slurm,
        namespace: str,
        rng: Random,
        *,
        scheduler: str = BRIDGE,
        weights: Mapping[str, int] = ACTS,
        gpus: Sequence[int] = GPUS,
    ) -> None:
        self._kube, self._slurm, self._space, self._rng = kube, slurm, namespace, rng
        self._scheduler, self._weights, self._gpus = scheduler, weights, gpus
        self.acts: Counter[str] = Counter()
        self.foreign: list[int] = []
        self._number = 0
        self._cordoned = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        service = replica_set("service", REPLICAS, scheduler=self._scheduler)
        self._kube.apps.create_namespaced_replica_set(self._space, service)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(60)
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        kinds, weights = list(self._weights), list(self._weights.values())
        while not self._over.wait(self._rng.uniform(0, 2 * EVERY_S)):
            [kind] = self._rng.choices(kinds, weights)
            act: Callable[[], bool] = getattr(self, f"_{kind}")
            try:
                self.acts[kind] += act()
            except (ApiException, urllib3.exceptions.HTTPError, requests.RequestException):
                self.acts["unanswered"] += 1
            except BaseException as error:  # noqa: BLE001 - raised again when the churn ends
                self._error = error
                return

    def _pods(self) -> list[dict[str, Any]]:
        """Those that have not ended, as they are sent: to make objects of them for each act takes half a core."""
        answer = self._kube.core.list_namespaced_pod(
            self._space, field_selector=UNFINISHED, _request_timeout=CALL_S, _preload_content=False
        )
        found: list[dict[str, Any]] = json.loads(answer.data)["items"]
        return found

    def _create(self, name: str, **options: Any) -> None:
        made = pod(name, scheduler=self._scheduler, **options)
        self._kube.core.create_namespaced_pod(self._space, made, _request_timeout=CALL_S)

    def _pod(self) -> bool:
        if len(self._pods()) >= MOST_PODS:
            return False
        self._number += 1
        self._create(f"pod{self._number}", gpu=self._rng.choice(self._gpus))
        return True

    def _gang(self) -> bool:
        if len(self._pods()) >= MOST_PODS:
            return False
        self._number += 1
        name, size = f"gang{self._number}", self._rng.randint(2, 4)
        for member in range(size):
            self._create(f"{name}-{member}", labels={PREFIX + "gang": name}, says={"gang-size": str(size)})
        return True

    def _finish(self) -> bool:
        """Ends a pod, or all members of a gang, as their containers would."""
        bound = [
            each["metadata"]["name"]
            for each in self._pods()
            if each["spec"].get("nodeName") and each["metadata"]["name"].startswith(("pod", "gang"))
        ]
        if not bound:
            return False
        group = self._rng.choice(bound).partition("-")[0]
        for name in bound:
            if name.partition("-")[0] == group:
                self._kube.core.patch_namespaced_pod_status(
                    name, self._space, {"status": {"phase": "Succeeded"}}, _request_timeout=CALL_S
                )
        return True

    def _delete(self) -> bool:
        pods = self._pods()
        if pods:
            chosen = self._rng.choice(pods)["metadata"]["name"]
            self._kube.core.delete_namespaced_pod(chosen, self._space, _request_timeout=CALL_S)
        return bool(pods)

    def _scancel(self) -> bool:
        """An admin cancels a placeholder whose pods run."""
        jobs = [job for job in self._slurm.live(f"{self._space}/") if "RUNNING" in job["job_state"]]
        if jobs:
            self._slurm.cancel(self._rng.choice(jobs)["job_id"])
        return bool(jobs)

    def _cordon(self) -> bool:
        """Uncordon the node that is cordoned, and cordon another one, or none."""
        chosen = self._rng.choice([*self._kube.external_nodes(), ""])
        self.settle(CALL_S)
        if chosen:
            self._cordoned = chosen  # before the call, which may take effect though its answer is lost
            self._set_cordoned(chosen, True, CALL_S)
        return True

    def _foreign(self) -> bool:
        """A user of the policy, or somebody else, submits a job by hand; the oldest one is ended."""
        if len(self.foreign) >= MOST_FOREIGN:
            self._slurm.cancel(self.foreign.pop(0))
        made = self._slurm.submit(self._rng.choice(("alice", "carol")), name="by-hand")
        if made in self.foreign:  # slurmctld has lost the job that had this id
            self.foreign.remove(made)
        self.foreign.append(made)
        return True

    def settle(self, timeout_s: float | None = None) -> None:
        """Uncordon the node that is cordoned, so that every node takes pods."""
        if self._cordoned:
            self._set_cordoned(self._cordoned, False, timeout_s)
        self._cordoned = ""

    def _set_cordoned(self, name: str, cordoned: bool, timeout_s: float | None) -> None:
        self._kube.core.patch_node(name, {"spec": {"unschedulable": cordoned}}, _request_timeout=timeout_s)

    def foreign_ended(self) -> list[int]:
        """Foreign jobs that ended though no user ended them.  Jobs that a killed slurmctld lost are not among them."""
        states = {job["job_id"]: set(job["job_state"]) for job in self._slurm.jobs() if job["name"] == "by-hand"}
        return [job for job in self.foreign if ENDED & states.get(job, set())]

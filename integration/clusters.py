"""The two real clusters and the bridge under test, for journeys, by the interfaces that users and admins have.

A journey asserts the state of the clusters: Slurm's jobs, Kubernetes' pods.  `eventually` waits for a condition.  If the
condition does not become true in time, the error has the last answer.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import requests
import yaml
from kubernetes import client, config
from urllib3 import HTTPHeaderDict

from integration.checker import journal
from tests.patience import PATIENCE_S

T = TypeVar("T")
PREFIX = "slurm-bridge/"
API = "v0.0.45"
ENDED = {"CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "DEADLINE", "OUT_OF_MEMORY"}
IN_ORDER = {"IDLE", "MIXED", "ALLOCATED", "EXTERNAL", "DYNAMIC_NORM"}  # of a node
IMAGE = "localhost/busybox:rig"
# By this Python: a shim before another one takes half a second.
RIG = (sys.executable, str(Path(__file__).parent / "rig"))
PAUSE_S = 0.05  # between the first two questions; then ever longer, since some of them list all jobs
LONGEST_PAUSE_S = 0.5
# When to give up, on whatever machine and beside whatever else: how soon things happen is for `make bench` to say.


def eventually(what: str, ask: Callable[[], T | Literal[False] | None], *, within_s: float = PATIENCE_S) -> T:
    """Ask until the answer is true; returns that answer.  Raises AssertionError with the last answer."""
    deadline, pause = time.monotonic() + within_s, PAUSE_S
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}; last seen: {answer!r}")
        time.sleep(pause)  # between two questions, not in place of one
        pause = min(LONGEST_PAUSE_S, pause * 1.3)


READ_ONE_BY_ONE = 20  # jobs
NO_SUCH_JOB = 2017
FIRST_VERDICT = 2000  # error numbers below, also -1, say that slurmctld did not answer; 0: no such node


class Slurm:
    """Slurm by its REST interface, as an administrator or as another user."""

    def __init__(self, url: str, token_file: str) -> None:
        self.url = url
        self.token_file = token_file
        self._session = requests.Session()

    def _call(self, method: str, path: str, body: Any = None, user: str = "", check: bool = True) -> dict[str, Any]:
        headers = {"X-SLURM-USER-TOKEN": Path(self.token_file).read_text().strip()}
        if user:
            headers["X-SLURM-USER-NAME"] = user
        answer = self._session.request(method, f"{self.url}/slurm/{API}/{path}", json=body, headers=headers, timeout=60)
        found: dict[str, Any] = answer.json()
        errors = found.get("errors") or []
        numbers = {each.get("error_number") or 0 for each in errors} - {0}
        if min(numbers, default=FIRST_VERDICT) < FIRST_VERDICT:
            raise requests.ConnectionError(f"{method} {path}: slurmctld did not answer: {errors}", response=answer)
        if check:
            assert not errors, (method, path, errors)
        return found

    def jobs(self) -> list[dict[str, Any]]:
        """Every job that Slurm knows, ended ones too."""
        found: list[dict[str, Any]] = self._call("GET", "jobs/")["jobs"]
        return found

    def live(self, text: str = "") -> list[dict[str, Any]]:
        """Jobs that have not ended and whose name holds `text`.

        A record has 7 kB, and Slurm keeps ended jobs for minutes, so the list of states says which few to read.
        """
        states = self._call("GET", "jobs/state/")["jobs"]
        leaders = {int(each["job_id"].partition("+")[0]) for each in states if not ENDED & set(each["state"])}
        known = (
            self.jobs() if len(leaders) > READ_ONE_BY_ONE else [job for each in leaders for job in self._known(each)]
        )
        found = {int(job["job_id"]): job for job in known}  # a component is read by its own id and by its leader's
        return [job for _, job in sorted(found.items()) if text in job["name"] and not ENDED & set(job["job_state"])]

    def _known(self, job_id: int) -> list[dict[str, Any]]:
        """The job with all its components; []: Slurm has forgotten it meanwhile."""
        answer = self._call("GET", f"job/{job_id}", check=False)
        assert {each.get("error_number") for each in answer["errors"]} <= {NO_SUCH_JOB}, answer["errors"]
        return list(answer["jobs"])

    def job(self, job_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self._call("GET", f"job/{job_id}")["jobs"][0]
        return found

    def accounted(self, job_id: int) -> dict[str, Any]:
        """The job in slurmdbd."""
        headers = {"X-SLURM-USER-TOKEN": Path(self.token_file).read_text().strip()}
        answer = self._session.get(f"{self.url}/slurmdb/{API}/job/{job_id}", headers=headers, timeout=60).json()
        return answer["jobs"][-1] if answer["jobs"] else {}

    def submit(self, user: str, **fields: Any) -> int:
        """An external job of that user, with no more than what a foreign tool would send."""
        job = {"flags": ["EXTERNAL_JOB"], "memory_per_node": {"set": True, "number": 100}, "cpus_per_task": 1}
        job_id: int = self._call("POST", "job/submit", {"job": job | fields}, user)["job_id"]
        return job_id

    def batch(self, user: str, script: str, **fields: Any) -> int:
        """Submits an ordinary job of that user, as sbatch does; slurmds run it on its nodes.  Returns the job's id."""
        job = {"environment": ["PATH=/usr/bin:/bin"], "current_working_directory": "/tmp", "script": script}
        job_id: int = self._call("POST", "job/submit", {"job": job | fields}, user)["job_id"]
        return job_id

    def holds(self, job_id: int) -> dict[str, dict[str, Any]]:
        """The resources that a job holds, by node: "cores", "memory" in MiB, and the set of indices of each kind of GRES."""
        return {node["node"]: _held(node) for node in self._call("GET", f"resources/{job_id}")["nodes"]}

    def signal(self, job_id: int, name: str) -> None:
        """Signals a job, as `scancel --signal` does."""
        self._call("DELETE", f"job/{job_id}?signal={name}")

    def cancel(self, job_id: int) -> None:
        self._call("DELETE", f"job/{job_id}")

    def add_node(self, name: str, address: str, cpus: int, memory_mib: int, devices: str = "") -> None:
        """An external node; `devices`: its Gres and GresConf."""
        size = f"Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory_mib} {devices}"
        self._call("POST", "new/node/", {"node_conf": f"NodeName={name} NodeAddr={address} {size} State=EXTERNAL"})

    def node(self, name: str) -> dict[str, Any]:
        """Slurm's record of the node; {} if Slurm has no such node."""
        found = self._call("GET", f"node/{name}", check=False).get("nodes") or [{}]
        return dict(found[0])

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes."""
        found: list[dict[str, Any]] = self._call("GET", "nodes/")["nodes"]
        return found

    def change_node(self, name: str, state: str, reason: str = "") -> None:
        """Changes the state of a node, as `scontrol update` does."""
        self._call("POST", f"node/{name}", {"state": [state]} | ({"reason": reason} if reason else {}))

    def remove_node(self, name: str) -> bool:
        """False: a job is still on it."""
        return not self._call("DELETE", f"node/{name}", check=False).get("errors")

    def renew_node(self, name: str) -> None:
        """Delete it once no job is there, and create it again, without devices: nothing else brings such a node back."""
        was = self.node(name)
        eventually(f"Slurm lets {name} go", lambda: self.remove_node(name))
        self.add_node(name, was["address"], was["cpus"], was["real_memory"], f"Feature={','.join(was['features'])}")

    def in_short(self) -> list[str]:
        """A line for each job that has not ended, and for each node that is not as it should be."""
        nodes = [(node["name"], set(node["state"]), node["reason"]) for node in self.nodes()]
        odd = [f"{name} {sorted(state)} {why}" for name, state, why in nodes if state - IN_ORDER]
        keys = ("job_id", "name", "job_state", "state_reason", "required_nodes", "nodes")
        return odd + [" ".join(str(job[key]) for key in keys) for job in self.live()]

    def responding(self) -> bool:
        try:
            return any(ping["responding"] for ping in self._call("GET", "ping/", check=False)["pings"])
        except requests.RequestException:
            return False


def _held(node: Mapping[str, Any]) -> dict[str, Any]:
    devices = {gres["name"]: _numbers(gres["index"] or "") for gres in node["gres"] or []}
    return {"cores": int(node["core_bitmap"], 16).bit_count(), "memory": node["mem_alloc"], **devices}


def _numbers(text: str) -> set[int]:
    """ "0-1,4" -> {0, 1, 4}"""
    runs = (part.partition("-") for part in text.split(",") if part)
    return {number for first, _, last in runs for number in range(int(first), int(last or first) + 1)}


class Kube:
    """Kubernetes as its administrator."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self.api = api = config.new_client_from_config(kubeconfig)
        self.core = client.CoreV1Api(api)
        self.apps = client.AppsV1Api(api)
        self.batch = client.BatchV1Api(api)
        self.policy = client.PolicyV1Api(api)
        self.scheduling = client.SchedulingV1Api(api)
        self.rbac = client.RbacAuthorizationV1Api(api)

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        more: Iterable[tuple[str, str]] = (),
    ) -> tuple[int, bytes]:
        """One request, and its answer as it is: status and text.  more: headers, which may have the same name."""
        headers = HTTPHeaderDict({"Content-Type": content_type, "Accept": "application/json"})
        for name, value in more:
            headers.add(name, value)
        url = self.api.configuration.host + path
        self.api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        answer = self.api.rest_client.pool_manager.request(method, url, body=body, headers=headers)
        return answer.status, answer.data

    def namespace(self, name: str, *, managed: bool = True, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        labels = {PREFIX + "managed": "true", **labels} if managed else dict(labels)
        self.core.create_namespace({"metadata": {"name": name, "labels": labels}})
        eventually(f"{name} has its service account", lambda: self.core.list_namespaced_service_account(name).items)

    def remove(self, namespace: str) -> None:
        """Deletes the controllers of the namespace, then its pods with their grace, then the namespace."""
        self.apps.delete_collection_namespaced_deployment(namespace)
        self.apps.delete_collection_namespaced_replica_set(namespace)
        self.apps.delete_collection_namespaced_stateful_set(namespace)
        self.batch.delete_collection_namespaced_job(namespace, propagation_policy="Background")
        self.core.delete_collection_namespaced_pod(namespace)
        self.core.delete_namespace(namespace)

    def namespaces(self) -> list[str]:
        """The namespaces that are not being deleted."""
        found = self.core.list_namespace().items
        return [each.metadata.name for each in found if not each.metadata.deletion_timestamp]

    def external_nodes(self) -> list[str]:
        """The played nodes without a slurmd, k1…kN."""
        names = [node.metadata.name for node in self.core.list_node(label_selector="type=kwok").items]
        return sorted(name for name in names if name.startswith("k"))

    @contextmanager
    def marked(
        self, labels: Mapping[str, Mapping[str, str]], taints: Mapping[str, list[dict[str, str]]] | None = None
    ) -> Iterator[None]:
        """Nodes with those labels and taints, by name, and afterwards without."""
        for name, added in labels.items():
            body: dict[str, Any] = {"metadata": {"labels": dict(added)}}
            if name in (taints or {}):
                body["spec"] = {"taints": (taints or {})[name]}
            self.core.patch_node(name, body)
        try:
            yield
        finally:
            for name, added in labels.items():
                gone = {"metadata": {"labels": dict.fromkeys(added)}}
                self.core.patch_node(name, gone | ({"spec": {"taints": None}} if name in (taints or {}) else {}))

    def in_short(self) -> list[str]:
        """A line for each pod of ours, and for each node that Slurm does not serve."""
        nodes = [(node.metadata.name, condition(node, "SlurmReady")) for node in self.core.list_node().items]
        odd = [f"{name} {said.reason}: {said.message}" for name, said in nodes if said and said.status != "True"]
        pods = self.core.list_pod_for_all_namespaces().items
        return odd + [_in_a_line(each) for each in pods if each.spec.scheduler_name == "slurm-bridge"]

    def run(self, namespace: str, name: str, **options: Any) -> None:
        self.core.create_namespaced_pod(namespace, pod(name, **options))

    def succeed(self, namespace: str, name: str) -> None:
        """Reports a pod on a kwok node as Succeeded, as a kubelet would.

        The pod has to run first: kwok would report it as Running later.
        """
        eventually(f"kwok runs {name}", lambda: self.pod(namespace, name).status.phase != "Pending")
        self.core.patch_namespaced_pod_status(name, namespace, {"status": {"phase": "Succeeded"}})

    def add_node(
        self, name: str, address: str, cpus: int, memory_mib: int, labels: Mapping[str, str], **devices: str
    ) -> None:
        """A node that kwok plays."""
        size = {"cpu": str(cpus), "memory": f"{memory_mib}Mi", "pods": "110", "ephemeral-storage": "1Ti", **devices}
        labels = {"kubernetes.io/hostname": name, "type": "kwok", **labels}
        addresses = [{"type": "InternalIP", "address": address}]
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        meta = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        status = {"capacity": size, "allocatable": size, "addresses": addresses, "conditions": [ready]}
        self.core.create_node({"metadata": meta, "status": status})

    def pod(self, namespace: str, name: str) -> Any:
        return self.core.read_namespaced_pod(name, namespace)

    def pods(self, namespace: str) -> list[Any]:
        found: list[Any] = self.core.list_namespaced_pod(namespace).items
        return found

    def bound(self, namespace: str) -> list[Any]:
        """Unfinished pods with a node."""
        return [
            each
            for each in self.pods(namespace)
            if each.spec.node_name and each.status.phase not in ("Succeeded", "Failed")
        ]

    def said(self, namespace: str, name: str) -> str:
        """Reason and message of the PodScheduled condition while it is False."""
        said = condition(self.pod(namespace, name), "PodScheduled")
        return f"{said.reason}: {said.message}" if said and said.status == "False" else ""

    def events(self, namespace: str, name: str) -> set[str]:
        found = self.core.list_namespaced_event(namespace, field_selector=f"involvedObject.name={name}").items
        return {event.reason for event in found}


def kubectl(*arguments: str) -> str:
    """The output of kubectl, run as the administrator.  Raises AssertionError with its error text if it fails."""
    done = subprocess.run(("kubectl", *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def condition(each: Any, kind: str) -> Any:
    """The condition of that type of a pod or a node; None if it has none."""
    return next((found for found in each.status.conditions or [] if found.type == kind), None)


def _in_a_line(each: Any) -> str:
    leaving = "on its way out" if each.metadata.deletion_timestamp else ""
    said = condition(each, "PodScheduled")
    words = [each.status.phase, leaving, said and said.message, str(each.metadata.annotations)]
    return " ".join(
        [f"{each.metadata.namespace}/{each.metadata.name}", f"on {each.spec.node_name}", *filter(None, words)]
    )


def pod(
    name: str,
    *,
    cpu: str = "1",
    memory: str = "64Mi",
    gpu: int = 0,
    on: str = "kwok",
    command: str = "",
    says: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    scheduler: str = "slurm-bridge",
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod; on: "kwok" (played), "kubelet" (real containers) or "" (anywhere); spec: fields of it that count instead."""
    wants: dict[str, str] = {"cpu": cpu, "memory": memory}
    if gpu:
        wants["nvidia.com/gpu"] = str(gpu)
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"requests": wants, "limits": wants},
    }
    if command:
        container["command"] = ["sh", "-c", command]
    fields: dict[str, Any] = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "containers": [container],
        "tolerations": [{"operator": "Exists"}],
    }
    if on:
        fields["affinity"] = _on_nodes("In" if on == "kwok" else "NotIn")
    annotations = {PREFIX + key: value for key, value in (says or {}).items()}
    return {
        "metadata": {"name": name, "annotations": annotations, "labels": dict(labels or {})},
        "spec": fields | dict(spec or {}),
    }


def _on_nodes(operator: str) -> dict[str, Any]:
    """The affinity to the nodes that kwok plays ("In"), or to the other nodes ("NotIn")."""
    term = {"matchExpressions": [{"key": "type", "operator": operator, "values": ["kwok"]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def replica_set(name: str, replicas: int, **options: Any) -> dict[str, Any]:
    template = pod(name, labels={"app": name}, **options)
    del template["metadata"]["name"]
    template["spec"]["restartPolicy"] = "Always"
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


class BridgeProcess:
    """`slurm-bridge run`, as a user starts it."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        folder: Path,
        kubeconfig: str,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._settings = dict(settings)
        self._kubeconfig = kubeconfig
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.log = folder / "bridge.log"

    def start(self) -> None:
        self.launch()
        eventually("the bridge is ready", self._ready_or_gone)

    def launch(self) -> None:
        """Start it, and wait for nothing."""
        path = self._write(yaml.safe_dump(self._settings | {"http": f"127.0.0.1:{self.port}"}))
        command = [sys.executable, "-m", "bridge", "run", "--config", str(path), "--kubeconfig", self._kubeconfig]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | self._environment)

    def _write(self, text: str) -> Path:
        """Another file in the place of the one before, as a mounted ConfigMap is replaced."""
        path, new = self._folder / "settings.yaml", self._folder / "new.yaml"
        new.write_text(text)
        with suppress(yaml.YAMLError, AttributeError):  # a file that cannot be used: the policy before stays in force
            settings = yaml.safe_load(text)
            if policy := settings.get("policy"):
                scheduler = self._settings.get("scheduler_name", journal.BRIDGE)
                journal.policy(policy, scheduler=scheduler, tuning=settings.get("tuning"))
        return new.replace(path)

    @contextmanager
    def with_file(self, text: str = "", **changed: Any) -> Iterator[None]:
        """Change the settings file while this is entered; the bridge runs on.

        text      the whole file, which cannot be used; "": it is not given
        changed   settings that differ: another policy, which is in force while this is entered
        """
        usual = self._settings | {"http": f"127.0.0.1:{self.port}"}
        self._says_anew(text or yaml.safe_dump(usual | changed))
        try:
            yield
        finally:
            if text:  # the policy that stayed in force: nothing is read again
                self._write(yaml.safe_dump(usual))
            else:
                self._says_anew(yaml.safe_dump(usual))

    def _says_anew(self, text: str) -> None:
        """Write the settings file, and wait until the bridge has read it."""

        def looks() -> int:
            log = self.log.read_text()
            return log.count("policy read again from") + log.count("The policy before stays in force.")

        before = looks()
        self._write(text)
        eventually("the settings file is read anew", lambda: looks() > before)

    @contextmanager
    def with_settings(self, **changed: Any) -> Iterator[None]:
        """The bridge runs with changed settings within this block, and afterwards with the former settings."""
        with self._with(self._settings | changed, self._environment):
            yield

    @contextmanager
    def with_environment(self, **variables: str) -> Iterator[None]:
        """The bridge runs with these variables within this block, and afterwards without them."""
        with self._with(self._settings, self._environment | variables):
            yield

    @contextmanager
    def _with(self, settings: dict[str, Any], environment: dict[str, str]) -> Iterator[None]:
        before = self._settings, self._environment
        self.stop()
        self._settings, self._environment = settings, environment
        self.start()
        try:
            yield
        finally:
            self.stop()
            self._settings, self._environment = before
            self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def last_words(self) -> str:
        """The end of its log, once it has ended; "" while it runs."""
        assert self._process is not None
        return "" if self._process.poll() is None else self.log.read_text()[-2000:] or "(it said nothing)"

    def in_short(self) -> list[str]:
        """Its log."""
        return self.log.read_text().splitlines()

    def _ready_or_gone(self) -> bool:
        assert not self.last_words, self.last_words
        return self.ready()

    def ready(self) -> bool:
        return self.ask("readyz")[0] == 200

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of one of its own pages; 0 while it does not listen."""
        try:
            answer = requests.get(f"http://127.0.0.1:{self.port}/{path}", timeout=30)
        except requests.ConnectionError:
            return 0, ""
        return answer.status_code, answer.text

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The process is stopped (SIGSTOP) within this block."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            with journal.disturbed(f"bridge {self.pid} is paused"):
                yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self._process is None or self._process.poll() is not None:
            return -1
        self._process.terminate()
        return self._process.wait(PATIENCE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def rig(*arguments: str) -> None:
    """Start, stop, pause … a daemon of the rig.  Needs a rig of this test run."""
    daemon, act = arguments
    if act in ("stop", "kill", "pause", "forget"):
        journal.note("disturbed", what=daemon)
    subprocess.run([*RIG, *arguments, "--name", os.environ["RIG_NAME"]], check=True, capture_output=True)
    if act in ("start", "resume", "forget"):
        journal.note("calm", what=daemon)


def slurm_says(program: str, *arguments: str) -> str:
    """The output of one of Slurm's own commands, run as its administrator.  Needs a rig of this test run."""
    command = [*RIG, "slurm", program, "--name", os.environ["RIG_NAME"], *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def saved_jobs() -> bytes:
    """The jobs that slurmctld saves when it is stopped.  slurmctld is started again."""
    with stopped("slurmctld"):
        return _job_state().read_bytes()


def back_to(jobs: bytes) -> None:
    """Kill the rig's slurmctld, and start it with these saved jobs, so that it gives out later ids again.

    (It does not start without saved jobs.)
    """
    rig("slurmctld", "kill")
    _job_state().write_bytes(jobs)
    rig("slurmctld", "start")


def _job_state() -> Path:
    return Path(os.environ["RIG_STATE"], "slurm", "state", "job_state")


@contextmanager
def stopped(daemon: str) -> Iterator[None]:
    """Stop that daemon of the rig while this is entered."""
    rig(daemon, "stop")
    try:
        yield
    finally:
        rig(daemon, "start")


@contextmanager
def frozen(daemon: str) -> Iterator[None]:
    """Freeze that daemon of the rig (SIGSTOP) while this is entered: it accepts connections, and answers nothing."""
    rig(daemon, "pause")
    try:
        yield
    finally:
        rig(daemon, "resume")

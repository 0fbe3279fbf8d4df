"""Two bridges of one Kubernetes cluster on one Slurm, as docs/scale.md divides the work, under load (ARCHITECTURE 4).

Each has a schedulerName, a Lease, a service account and a Slurm user of its own, and the namespaces with its label.  Neither
touches what is the other's: jobs, pods, Lease, nodes that the other registered.  What both share, nodes that both clusters
have anyway, they keep in the same state without overwriting each other.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from integration import own_account
from integration.checker.accounting import hosts
from integration.checker.journal import without
from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, condition, eventually, kubectl, pod
from integration.proxy import RecordingProxy, Request
from integration.torture.churn import Churn
from integration.torture.rest import unsettled
from integration.watching import Watching, longest_gap
from scheduler import names

FIRST, SECOND = names.SCHEDULER_NAME, "second-bridge"
REPLICAS = {FIRST: ("first-0", "first-1"), SECOND: ("second-0",)}
USERS = {FIRST: "alice", SECOND: "bob"}
LABEL = "example.com/bridge"  # of a namespace: the bridge of its pods
WEIGHTS = {"pod": 6, "gang": 2, "finish": 5, "delete": 2, "scancel": 2}
OF_AN_ADMIN = {"cordon": 1, "foreign": 1}
BINDS = 10  # that show that a bridge goes on
GAP_S = 30.0  # the machine may be busy with other suites
NODES = 2  # that come and go meanwhile, at least
POLLS = 3
QUICK = {"nodes_interval_s": 1, "tuning": {"node_settle_s": 1, "node_gone_s": 2, "node_retry_s": 5}}
OF_A_JOB, OF_A_NODE = re.compile(r"/job/(\d+)\Z"), re.compile(r"/v[0-9.]+/node/([^/]+)\Z")


@dataclass(frozen=True)
class Bridge:
    """One bridge of the site.

    replicas  its processes, by their names in its Lease
    line      between it and slurmrestd
    load      the namespace under load; quiet: one with pods that only the test itself ends
    """

    name: str
    replicas: dict[str, BridgeProcess]
    line: RecordingProxy

    @property
    def user(self) -> str:
        return USERS[self.name]

    @property
    def load(self) -> str:
        return f"{self.user}-under-load"

    @property
    def quiet(self) -> str:
        return f"{self.user}-in-quiet"

    def leader(self) -> str:
        """The replica that leads; "": none does."""
        asked = {name: each.ask("readyz") for name, each in self.replicas.items() if each.runs}
        return next((name for name, (status, text) in asked.items() if status == 200 and "standby" not in text), "")


Site = dict[str, Bridge]  # by schedulerName


@pytest.fixture(scope="module")
def site(no_bridge: None, kube: Kube, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Both bridges run, each with its namespaces."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "intercept.yaml").write_text(yaml.safe_dump_all(_intercepts()))
    (folder / "account.yaml").write_text(own_account.of_another(SECOND))
    with ExitStack() as stack:
        own_account.make(kubectl)
        for file in ("account.yaml", "intercept.yaml"):
            kubectl("apply", "-f", str(folder / file))
            stack.callback(kubectl, "delete", "-f", str(folder / file))
        made = {name: _bridge(name, kube, slurm, folder, stack) for name in (FIRST, SECOND)}
        for each in made.values():
            for process in each.replicas.values():
                eventually("it is ready", process.ready)
            for space in (each.load, each.quiet):
                kube.namespace(space, labels={LABEL: each.name})
        eventually("pods are intercepted", lambda: all(_is_given(kube, each) for each in made.values()))
        yield made
        for each in made.values():
            for space in (each.load, each.quiet):
                kube.remove(space)
            eventually("no job of it is left", lambda e=each: not slurm.live(f"{e.user}-"))  # type: ignore[misc]
        stopped = {name: each.stop() for of in made.values() for name, each in of.replicas.items()}
        assert not any(stopped.values()), stopped
    for said in (each.log.read_text() for of in made.values() for each in of.replicas.values()):
        assert "Traceback" not in said
        assert "Another slurm-bridge" not in said


def _bridge(name: str, kube: Kube, slurm: Slurm, folder: Path, stack: ExitStack) -> Bridge:
    """That bridge, which starts."""
    kubeconfig, ends = folder / f"{name}.kubeconfig", kube.api.configuration
    space = own_account.NAME if name == FIRST else name
    access = kubectl, ends.host, ends.ssl_ca_cert, kubeconfig
    if name == FIRST:
        own_account.write_kubeconfig(*access)
    else:
        own_account.write_kubeconfig_of(own_account.NAME, *access, namespace=space)
    line = stack.enter_context(RecordingProxy(slurm.url))
    settings = QUICK | {
        "scheduler_name": name,
        "slurm_url": line.url,
        "slurm_token_file": slurm.token_file,
        "policy": {"rules": [{"namespace_selector": {"matchLabels": {LABEL: name}}, "user": USERS[name]}]},
    }
    replicas = {}
    for identity in REPLICAS[name]:
        (own := folder / identity).mkdir()
        lease = {"namespace": space, "name": name, "identity": identity}
        replicas[identity] = BridgeProcess(settings | {"lease": lease}, own, str(kubeconfig))
        stack.callback(replicas[identity].stop)
        replicas[identity].launch()
    return Bridge(name, replicas, line)


def _intercepts() -> list[dict[str, Any]]:
    """manifests/admission/intercept.yaml for each bridge, limited to the namespaces with its label."""
    text = (own_account.MANIFESTS / "admission" / "intercept.yaml").read_text()
    made = []
    for name in (FIRST, SECOND):
        own = text.replace("slurm-bridge-intercept", f"intercept-{name}").replace("'slurm-bridge'}", f"'{name}'}}")
        policy, binding = yaml.safe_load_all(own)
        policy["spec"]["matchConstraints"]["namespaceSelector"]["matchLabels"][LABEL] = name
        made += [policy, binding]
    return made


def _is_given(kube: Kube, bridge: Bridge) -> bool:
    """True if a new pod of its namespaces that names no scheduler gets its name."""
    made = kube.core.create_namespaced_pod(bridge.load, pod("new", scheduler=""), dry_run="All")
    return bool(made.spec.scheduler_name == bridge.name)


class Turnover:
    """An admin labels new nodes, one after the other; each is cordoned and removed again.  In a thread, while it is entered.

    owners  the bridge that registered each node that has come and gone, by the node's name
    """

    def __init__(self, kube: Kube, slurm: Slurm, site: Site) -> None:
        self._kube, self._slurm, self._site = kube, slurm, site
        self.owners: dict[str, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None:
            self.gone()

    def gone(self) -> int:
        """The number of nodes that have come and gone.  Raises the error that ended the thread."""
        if self._error is not None:
            raise self._error
        return len(self.owners)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                name = f"two{len(self.owners)}"
                self.owners[name] = self._one(name)
        except BaseException as error:  # noqa: BLE001 - raised again by `gone`
            self._error = error

    def _one(self, node: str) -> str:
        """Returns the bridge that registered it.  A pod of each bridge runs on it."""
        kube, slurm = self._kube, self._slurm
        # Not of the kind of nodes on which the load runs, which would keep it busy.
        kube.add_node(node, "192.0.2.78", 8, 16384, {PREFIX + "external-node": "true", "type": "turnover"})
        try:
            eventually(f"{node} is in service", lambda: shown(kube, node) == "True")
            [mark] = (each for each in slurm.node(node)["features"] if each.startswith(names.NODE_MARK))
            where = {"nodeSelector": {"kubernetes.io/hostname": node}}
            for bridge in self._site.values():
                kube.run(bridge.quiet, f"on-{node}", on="", scheduler="", spec=where)
            for bridge in self._site.values():
                space = bridge.quiet
                eventually(f"{space} uses {node}", lambda s=space: kube.pod(s, f"on-{node}").spec.node_name == node)  # type: ignore[misc]
            kube.core.patch_node(node, {"spec": {"unschedulable": True}})
            eventually(f"{node} is drained", lambda: "DRAIN" in slurm.node(node)["state"])
            for bridge in self._site.values():
                kube.succeed(bridge.quiet, f"on-{node}")
            kube.core.patch_node(node, {"metadata": {"labels": {PREFIX + "external-node": None}}})
            eventually(f"Slurm has no {node} any more", lambda: not slurm.node(node))
            eventually(
                "neither condition nor taint is left", lambda: shown(kube, node) == "" and not tainted(kube, node)
            )
        finally:
            kube.core.delete_node(node)
        return marks(kube)[mark.removeprefix(names.NODE_MARK)]


def test_under_load_each_of_two_bridges_does_its_own_work_all_the_time_and_touches_nothing_of_the_other(
    kube: Kube, slurm: Slurm, site: Site
) -> None:
    for bridge in site.values():
        for number in range(4):
            kube.run(bridge.quiet, f"kept-{number}", scheduler="")
    kube.run(site[SECOND].quiet, "astray", scheduler=FIRST)
    with (
        Watching(kube, (own_account.NAME, SECOND)) as seen,
        Churn(kube, slurm, site[FIRST].load, random.Random(1), scheduler="", weights=WEIGHTS | OF_AN_ADMIN) as admin,
        Churn(kube, slurm, site[SECOND].load, random.Random(2), scheduler="", weights=WEIGHTS, gpus=(0,)),
        Turnover(kube, slurm, site) as nodes,
    ):
        began = time.monotonic()
        goes_on(site, seen, began)
        away = {FIRST: a_leader_is_killed(site, seen), SECOND: a_bridge_is_killed(kube, slurm, site, seen)}
        goes_on(site, seen, time.monotonic())
        eventually("nodes come and go", lambda: nodes.gone() >= NODES)
        ended = time.monotonic()
    admin.settle()
    for bridge in site.values():
        eventually(f"{bridge.name} rests", lambda b=bridge: not unsettled(kube, slurm, b.load))  # type: ignore[misc]
        each_has_its_own(kube, slurm, bridge.load)
    for name, bridge in site.items():
        calm = without([(began, ended)], [away[name]])
        gaps = [longest_gap(seen.binds(bridge.load), *each) for each in calm]
        print(
            f"{name}: {len(seen.binds(bridge.load))} binds, never more than {max(gaps):.1f} s apart but while it was away"
        )
        assert max(gaps) < GAP_S
    print(
        f"{ended - began:.0f} s of load; away: {[f'{name} {end - begin:.1f} s' for name, (begin, end) in away.items()]}"
    )
    print(f"{len(nodes.owners)} nodes came and went, of {sorted(set(nodes.owners.values()))}")
    assert not admin.foreign_ended()
    for job in admin.foreign:
        slurm.cancel(job)
    assert not kube.pod(site[SECOND].quiet, "astray").spec.node_name
    assert "has no Slurm user" in kube.said(site[SECOND].quiet, "astray")
    each_lease_had_its_own_holders(site, seen)
    each_pod_ran_in_a_job_of_its_bridge(kube, slurm, site, seen)
    each_bridge_asked_for_its_own_jobs_and_nodes(kube, slurm, site, nodes.owners)


def goes_on(site: Site, seen: Watching, since: float) -> None:
    """Each of the bridges binds pods that came since then."""
    for bridge in site.values():
        eventually(f"{bridge.name} goes on", lambda b=bridge: seen.bound_of(b.load, since) >= BINDS)  # type: ignore[misc]


def a_leader_is_killed(site: Site, seen: Watching) -> tuple[float, float]:
    """Another replica takes over, and the other bridge goes on meanwhile.  Returns when that bridge was away."""
    first, second = site[FIRST], site[SECOND]
    killed = eventually("one leads", first.leader)
    since = time.monotonic()
    first.replicas[killed].kill()
    eventually("the other one leads", lambda: first.leader() not in ("", killed))
    eventually("it binds pods", lambda: seen.bound_of(first.load, since) > 0)
    until = time.monotonic()
    goes_on(site, seen, since)
    first.replicas[killed].start()
    assert second.leader()
    return since, until


def a_bridge_is_killed(kube: Kube, slurm: Slurm, site: Site, seen: Watching) -> tuple[float, float]:
    """Its pods and jobs end while it is away; it follows these ends when it is back, and the other bridge does not."""
    first, second = site[FIRST], site[SECOND]
    [process] = second.replicas.values()
    kept = [f"kept-{number}" for number in range(4)]
    theirs = {name: job_of(kube, second.quiet, name) for name in kept}
    mine = {name: job_of(kube, first.quiet, name) for name in kept}
    over, orphaned = kept[:2], kept[2:]
    process.kill()
    since = time.monotonic()
    for name in over:
        kube.succeed(second.quiet, name)
    for name in orphaned:
        slurm.cancel(theirs[name])
    # What the first one does about pods and jobs of its own that end afterwards shows that it has seen those ends.
    kube.succeed(first.quiet, "kept-0")
    slurm.cancel(mine["kept-1"])
    eventually("the first one's job ends", lambda: not alive(slurm, mine["kept-0"]))
    eventually("the first one's pod is ended", lambda: is_ended(kube, first.quiet, "kept-1"))
    eventually("the first one goes on", lambda: seen.bound_of(first.load, since) >= BINDS)
    assert all(alive(slurm, theirs[name]) for name in over)
    assert not any(is_ended(kube, second.quiet, name) for name in orphaned)
    assert seen.bound_of(second.load, since) == 0, "nobody else binds its pods"
    process.start()
    back = time.monotonic()
    eventually("the second one goes on", lambda: seen.bound_of(second.load, back) > 0)
    until = time.monotonic()
    eventually("jobs of its pods that are over end", lambda: not any(alive(slurm, theirs[name]) for name in over))
    eventually("pods whose jobs are over end", lambda: all(is_ended(kube, second.quiet, name) for name in orphaned))
    return since, until


def each_lease_had_its_own_holders(site: Site, seen: Watching) -> None:
    """Only replicas of its bridge held each Lease; both of them where the leader was killed."""
    held = {name: {holder for holder, _ in terms} - {""} for (_, name), terms in seen.terms.items()}
    assert held == {name: set(bridge.replicas) for name, bridge in site.items()}


def each_pod_ran_in_a_job_of_its_bridge(kube: Kube, slurm: Slurm, site: Site, seen: Watching) -> None:
    """Each pod that was ever bound: the job is one of its bridge and of the Slurm user of its bridge, and has its node."""
    jobs = {job["job_id"]: job for job in slurm.jobs()}
    whose = bridges_of_jobs(kube, jobs.values())
    for bridge in site.values():
        ran = [each.last for each in seen.pods.values() if each.last.metadata.namespace in (bridge.load, bridge.quiet)]
        ran = [each for each in ran if each.spec.node_name]
        assert len(ran) >= BINDS
        for each in ran:
            who = f"{each.metadata.namespace}/{each.metadata.name}"
            job = jobs[int(each.metadata.annotations[names.JOB_ID])]
            assert each.spec.scheduler_name == bridge.name == whose[job["job_id"]], (who, job["name"])
            assert job["user_name"] == bridge.user, (who, job["user_name"])
            assert each.spec.node_name in hosts(job["nodes"]), (who, job["nodes"])
            others = {other for other in site if other != bridge.name}
            assert not others & {of.manager for of in each.metadata.managed_fields}, who
    of = {space: bridge for bridge in site.values() for space in (bridge.load, bridge.quiet)}
    for number, name in whose.items():  # jobs of earlier journeys are among them
        if owner := of.get(jobs[number]["name"].partition("/")[0]):
            assert (name, jobs[number]["user_name"]) == (owner.name, owner.user), jobs[number]["name"]


def each_bridge_asked_for_its_own_jobs_and_nodes(kube: Kube, slurm: Slurm, site: Site, owners: dict[str, str]) -> None:
    """No request named a job of the other bridge or a node that the other registered, apart from reads."""
    whose = bridges_of_jobs(kube, slurm.jobs())
    for bridge in site.values():
        requests = [each for each in bridge.line.requests if each.method != "GET"]
        asked = [number for each in requests for number in jobs_of(each)]
        assert len(asked) >= BINDS
        assert {whose[number] for number in asked} == {bridge.name}
        nodes = {found[1] for each in requests if (found := OF_A_NODE.search(each.path))}
        assert {owners[node] for node in nodes & owners.keys()} <= {bridge.name}


def bridges_of_jobs(kube: Kube, jobs: Iterable[dict[str, Any]]) -> dict[int, str]:
    """The schedulerName of the bridge of each job, by the mark in the job's name, ended jobs too."""
    of = marks(kube)
    parsed = {job["job_id"]: names.parse_job_name(job["name"]) for job in jobs}
    return {number: of[found[0]] for number, found in parsed.items() if found is not None and found[0] in of}


def marks(kube: Kube) -> dict[str, str]:
    """The schedulerName of each bridge, by its mark."""
    uid = kube.core.read_namespace("kube-system").metadata.uid
    return {names.cluster_id(uid, name): name for name in (FIRST, SECOND)}


def jobs_of(request: Request) -> list[int]:
    """The jobs that a request names."""
    if found := OF_A_JOB.search(request.path):
        return [int(found[1])]
    of_many = request.method == "DELETE" and request.path.endswith("/jobs/")
    return [int(each) for each in json.loads(request.body)["jobs"]] if of_many else []


def test_each_node_is_drained_once_and_shown_by_one_of_two_bridges_and_both_rest_afterwards(
    kube: Kube, slurm: Slurm, site: Site
) -> None:
    """Two nodes are drained: a bridge registered one of them in Slurm; both clusters have the other one from the start."""
    [had, *_], made = kube.external_nodes(), "two1"
    kube.add_node(made, "192.0.2.77", 8, 16384, {PREFIX + "external-node": "true"})
    try:
        eventually("both are in service", lambda: all(shown(kube, each) == "True" for each in (had, made)))
        assert len([each for each in slurm.node(made)["features"] if each.startswith(names.NODE_MARK)]) == 1
        assert_quiet(site)
        for each in (had, made):
            kube.core.patch_node(each, {"spec": {"unschedulable": True}})
        eventually("both are drained", lambda: all(is_drained(kube, slurm, each) for each in (had, made)))
        assert_quiet(site)
        kube.core.patch_node(made, {"metadata": {"labels": {PREFIX + "external-node": None}}})
        eventually("Slurm has it no more", lambda: not slurm.node(made))
        eventually("neither condition nor taint is left", lambda: shown(kube, made) == "" and not tainted(kube, made))
    finally:
        kube.core.delete_node(made)
        kube.core.patch_node(had, {"spec": {"unschedulable": None}})
    eventually("it is in service", lambda: shown(kube, had) == "True" and "DRAIN" not in slurm.node(had)["state"])
    assert_quiet(site)


def each_has_its_own(kube: Kube, slurm: Slurm, ns: str) -> None:
    """No job is of two workloads."""
    workloads: Counter[tuple[str, str]] = Counter()
    for each in kube.bound(ns):
        workloads[
            each.metadata.annotations[names.JOB_ID],
            (each.metadata.labels or {}).get(PREFIX + "gang", each.metadata.name),
        ] += 1
    assert len({job_id for job_id, _ in workloads}) == len(workloads)


def job_of(kube: Kube, ns: str, name: str) -> int:
    return int(kube.pod(ns, name).metadata.annotations[names.JOB_ID])


def alive(slurm: Slurm, job_id: int) -> bool:
    return "RUNNING" in slurm.job(job_id)["job_state"]


def is_ended(kube: Kube, ns: str, name: str) -> bool:
    found: dict[str, Any] = {each.metadata.name: each for each in kube.pods(ns)}
    each = found.get(name)
    return each is None or each.status.phase == "Failed" or condition(each, "DisruptionTarget") is not None


def shown(kube: Kube, node: str) -> str:
    """The status of the bridge's condition of the node; "": it has none."""
    found = condition(kube.core.read_node(node), names.IN_SLURM)
    return found.status if found is not None else ""


def is_drained(kube: Kube, slurm: Slurm, node: str) -> bool:
    """True if both clusters show that it is drained."""
    return shown(kube, node) == "False" and "DRAIN" in slurm.node(node)["state"]


def tainted(kube: Kube, node: str) -> bool:
    return any(taint.key == names.MANAGED_TAINT for taint in kube.core.read_node(node).spec.taints or [])


def calls(process: BridgeProcess, operation: str) -> int:
    """The number of calls of that operation since the bridge started."""
    counts = re.findall(
        rf'slurm_bridge_call_seconds_count{{.*operation="{operation}".*}} (\S+)', process.ask("metrics")[1]
    )
    return int(sum(map(float, counts)))


def assert_quiet(site: Site) -> None:
    """Neither bridge writes to a node while each polls Slurm's nodes a few times; the last writes may still be under way."""

    leaders = [bridge.replicas[eventually("one leads", bridge.leader)] for bridge in site.values()]

    def writes() -> tuple[int, ...]:
        kinds = ("show node", "change_node", "register_node", "remove_node")
        return tuple(calls(process, kind) for process in leaders for kind in kinds)

    def polls() -> list[int]:
        return [calls(process, "nodes") for process in leaders]

    def stays() -> bool:
        before, polled = writes(), polls()
        eventually("both poll", lambda: all(now >= then + POLLS for now, then in zip(polls(), polled, strict=True)))
        return writes() == before

    assert stays() or stays(), "the bridges go on writing to nodes"

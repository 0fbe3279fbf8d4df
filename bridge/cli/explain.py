"""`slurm-bridge explain`: the history of one pod, its feasible nodes, its present or future job, and why it waits (O4).

The running bridge has the most facts, so the command asks it first (`GET /explain` of its HTTP address).  If no bridge
answers, the command makes a World from lists of both clusters; this World lacks only the facts that a bridge remembers.  For
a manifest (-f) the command adds the pods that the manifest would create to such a World.  The command submits and writes
nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from bridge import settings
from bridge.cli import bridge_client, manifest
from bridge.cli.bridge_client import NoBridgeError
from bridge.cli.explain_text import Answer, as_json, as_text
from bridge.cli.planned_pods import Planned
from bridge.cli.pod_name import named
from bridge.cli.terminal import columns, say
from bridge.connections import Connections
from bridge.errors import AccountingUnavailable, BridgeError, ConfigError, RemoteError, said
from bridge.explanation_json import decoded
from bridge.kube import admin_reads, auth, watch
from bridge.kube.client import KubeClient
from bridge.kube.lists import listed
from bridge.kube.transport import HttpTransport
from bridge.settings import Settings
from bridge.slurm import admin_reads as slurm_survey
from bridge.slurm import bodies
from bridge.slurm.admin_reads import Verdict
from bridge.slurm.client import SlurmClient
from bridge.slurm.costs import Costs, Terms, billing_of, terms_of
from scheduler import events as ev
from scheduler import names
from scheduler.apply.events import new_world
from scheduler.apply.settling import settle, settle_all
from scheduler.events import Scope
from scheduler.explain import Explanation, explain, key_of
from scheduler.model.kubernetes import Claim, Pod, owner_key
from scheduler.model.slurm import Partition, holds_nodes, is_ended
from scheduler.model.text import span
from scheduler.state.world import World

EXIT_REFUSED = 1
BRIDGE_DEADLINE_S = 10.0
SLURM_DEADLINE_S = 15.0  # for what only completes an explanation; longer than one request, whose error names the cause
NOT_KNOWN = 404
LONG_AGO_S = 3600.0  # the World counts as started so long ago, so that it is not in its quiet period
INSTEAD = "Both clusters were asked instead"
NO_POLICY = (
    "No policy was read, so the Slurm user of the pods and the limits of their jobs are not known here. "
    "The bridge has the policy, and may choose another Slurm user and another job."
)
NAME_SETTINGS = "Name the settings of the bridge with --config FILE (SLURM_BRIDGE_CONFIG)."
MOST_NAMED = 4  # so many objects of one gang are named
MOST_JOBS = 5  # so many jobs of one name in accounting are read, the newest first


def main(options: Mapping[str, str | None]) -> int:
    """Print the explanation.  Raises ConfigError if a settings file, a manifest or a cluster cannot be read.

    Returns 0; 1 if the job of a workload of the file would be refused.

    options   fields of Settings by name; `pod` or `file`, `namespace`, `bridge`, `output` ("text", "wide", "json")
    """
    chosen = settings.load(options, os.environ)
    try:
        answers = asyncio.run(of_manifest(chosen, options) if options.get("file") else of_pod(chosen, options))
    except RemoteError as error:
        raise ConfigError(_one_line(error)) from None
    output = options.get("output")
    say(as_json(answers) if output == "json" else as_text(answers, columns(output), time.time()))
    sys.stdout.flush()
    return EXIT_REFUSED if any(answer.planned and answer.is_refused for answer in answers) else 0


# --- a pod that exists ----------------------------------------------------------------------------------------------


async def of_pod(chosen: Settings, options: Mapping[str, str | None]) -> list[Answer]:
    """The explanation of a pod that exists.  Raises BridgeError."""
    namespace_in_name, name = named(options.get("pod") or "")
    namespace = namespace_in_name or options.get("namespace") or auth.namespace_of(chosen.kubeconfig)
    explanation, why_not = await _ask_bridge(chosen, options, namespace, name)
    notes = [f"{why_not} {INSTEAD}; they lack the facts that only a bridge remembers."] if why_not else []
    costs: Costs | None = None
    try:
        async with AsyncExitStack() as stack:
            clusters = _Clusters(chosen, stack)
            if explanation is None:
                explanation = await clusters.explain_pod(namespace, name, notes)
                notes += [] if chosen.policy.tenants else [f"{NO_POLICY} {NAME_SETTINGS}"]
            explanation, costs = await _completed(explanation, clusters, notes)
            events = await clusters.events_of(namespace, name, notes)
    except BridgeError as error:
        if explanation is None:
            raise ConfigError(f"{why_not} {INSTEAD}: {_one_line(error)}") from None
        notes.append(f"Events of the pod are not shown: {said(error)}")
        events = ()
    return [Answer(f"Pod {namespace}/{name}", explanation, events, tuple(notes), costs=costs)]


async def _completed(known: Explanation, clusters: _Clusters, notes: list[str]) -> tuple[Explanation, Costs | None]:
    """The explanation with the jobs that are not read yet, and the costs of the last job; a note says what is missing."""
    missing = "Details of the job, and its costs,"
    try:
        async with asyncio.timeout(SLURM_DEADLINE_S):
            known = await clusters.with_unread_jobs(known)
            missing = "The costs of the job"
            if why := _why_no_costs(known):
                notes.append(why)
                return known, None
            return known, await clusters.costs(known)
    except TimeoutError:
        notes.append(f"{missing} are not shown: Slurm did not answer within {span(SLURM_DEADLINE_S)}.")
    except BridgeError as error:
        notes.append(f"{missing} are not shown: {said(error)}")
    return known, None


def _why_no_costs(known: Explanation) -> str:
    """A sentence if slurmdbd does not answer: a request to a frozen one holds a thread of slurmrestd.  "": it answers."""
    away = known.accounting_outage
    return f"The costs of the job are not shown: {away}" if away and known.spec is not None else ""


def _one_line(error: BridgeError) -> str:
    """The error as a line; for an error of a cluster, with the command that finds its cause."""
    return (
        f"{said(error)} Run slurm-bridge doctor to find the cause." if isinstance(error, RemoteError) else said(error)
    )


async def _ask_bridge(
    chosen: Settings, options: Mapping[str, str | None], namespace: str, name: str
) -> tuple[Explanation | None, str]:
    """(the running bridge's explanation, ""); or (None, a sentence with the reason why there is none)."""
    url = options.get("bridge") or chosen.http_url
    if not url:
        return None, "No bridge was asked: the settings name no http address."
    url = bridge_client.address(url)
    query = {"namespace": namespace, "pod": name}
    try:
        answer = await bridge_client.ask(
            "GET", f"{url}/explain", within_s=BRIDGE_DEADLINE_S, params=query, token_file=chosen.http_token_file
        )
    except ConfigError as error:
        return None, f"The bridge was not asked: {said(error)}"
    except NoBridgeError:
        return None, f"No bridge answers at {url} (--bridge)."
    if foreign := answer.foreign(url):
        return None, f"{foreign[0].upper()}{foreign[1:]}"
    if answer.status == NOT_KNOWN:
        return None, f"The bridge at {url} does not know this pod."
    if answer.status != 200:
        return None, f"The bridge at {url} does not answer this command: {answer.reason}"
    try:
        found = decoded(answer.body)
    except ValueError:
        found = None
    if found is None or (found.spec is not None and not bodies.is_job(found.spec)):
        return None, f"The answer of {url} is not of this version of slurm-bridge."
    return found, ""


# --- pods of a manifest ---------------------------------------------------------------------------------------------


async def of_manifest(chosen: Settings, options: Mapping[str, str | None]) -> list[Answer]:
    """The explanation of each workload of a file, as if its pods existed.  Raises BridgeError."""
    if not chosen.policy.tenants:
        raise ConfigError(
            "a manifest cannot be explained without the policy, which gives its pods a Slurm user.", NAME_SETTINGS
        )
    now, namespace = time.time(), options.get("namespace") or ""
    usual = namespace or auth.namespace_of(chosen.kubeconfig)
    found = manifest.read(options.get("file") or "-", namespace, now, usual=usual)
    if not found.planned:
        raise ConfigError(f"{options['file']}: {_no_pods_in(found)}")
    answers = []
    async with AsyncExitStack() as stack:
        clusters = _Clusters(chosen, stack)
        world = await clusters.world()
        for group in found.groups:
            world.apply(ev.OwnerRead(group.ref, group.owner, now, group.namespace))
        for planned in found.planned:  # all pods first, because some may be members of one gang
            for owner in planned.owners:
                world.apply(ev.OwnerRead(owner.ref, owner, now, planned.pod.namespace))
            for pod in planned.pods:
                world.apply(ev.PodSeen(Scope.OURS, replace(pod, scheduler_name=chosen.scheduler_name)))
        for planned in found.planned:
            await clusters.complete(world, planned.pod.uid)
        for alike in _by_workload(world, found.planned):
            pod = alike[0].pod
            explanation = replace(explain(world, world.key_of_pod[pod.uid], now, pod.name), story=(), next=())
            trial, why_no_costs = await clusters.trial(explanation), _why_no_costs(explanation)
            costs = await clusters.costs(explanation) if not why_no_costs else None
            title, notes = f"{_named(alike)}, as in {_source(options)}", _notes(alike, chosen.scheduler_name)
            notes = (*notes, why_no_costs) if why_no_costs else notes
            answers.append(Answer(title, explanation, notes=notes, planned=True, trial=trial, costs=costs))
    return [*answers[:-1], replace(answers[-1], notes=(*answers[-1].notes, *_left_out(found)))]


def _by_workload(world: World, planned: Sequence[Planned]) -> list[list[Planned]]:
    """The plans in the order of the file, grouped by workload."""
    found: dict[str, list[Planned]] = {}
    for plan in planned:
        found.setdefault(world.key_of_pod[plan.pod.uid], []).append(plan)
    return list(found.values())


def _named(gang: Sequence[Planned]) -> str:
    """The title of an explanation: one object of the file, or the objects whose pods are one gang."""
    first = ", ".join(plan.what for plan in gang[:MOST_NAMED])
    more = f" and {len(gang) - MOST_NAMED:,} more" if len(gang) > MOST_NAMED else ""
    return f"One gang: {first}{more}" if len(gang) > 1 else first


def _source(options: Mapping[str, str | None]) -> str:
    """The file, as the title names it."""
    return "standard input" if options["file"] == "-" else str(options["file"])


def _notes(gang: Sequence[Planned], scheduler: str) -> tuple[str, ...]:
    """The notes of all objects of a gang, each sentence once."""
    notes: list[str] = []
    for planned in gang:
        notes += planned.notes
        if planned.pod.scheduler_name != scheduler:
            named = planned.pod.scheduler_name or "none, so default-scheduler"
            notes.append(
                f"The schedulerName of {planned.what} is {named}. The bridge schedules pods only with {scheduler}."
            )
    return tuple(dict.fromkeys(notes))


def _left_out(found: manifest.Contents) -> Iterator[str]:
    """Sentences about the objects that are not explained, with the reason."""
    if found.podless:
        yield f"Left out, because they make no pods: {', '.join(found.podless)}."
    if found.foreign:
        yield f"Left out: {_foreign(found.foreign)}"


def _no_pods_in(found: manifest.Contents) -> str:
    if found.foreign:
        return _foreign(found.foreign)
    only = f" (only {', '.join(found.podless)})" if found.podless else ""
    return (
        f"contains no object that makes pods{only}. Name a manifest of a pod, or of a controller of pods, with -f FILE."
    )


def _foreign(objects: Sequence[str]) -> str:
    return (
        f"{', '.join(objects)} cannot be explained from a file: only the controller knows which pods it makes. Apply "
        "the file, then explain one of the pods: slurm-bridge explain POD -n NAMESPACE."
    )


# --- a world made from lists ----------------------------------------------------------------------------------------


class _Clusters:
    """Reads both clusters, and changes nothing there.  Every method may raise the errors of bridge/errors.py."""

    def __init__(self, chosen: Settings, stack: AsyncExitStack) -> None:
        self.chosen = chosen
        self._connections = Connections(chosen, stack)
        self._discovered = False
        self._terms: dict[tuple[str, str, str, str], Terms] = {}

    async def transport(self) -> HttpTransport:
        return await self._connections.transport()

    async def kube(self) -> KubeClient:
        return await self._connections.kube()

    async def slurm(self) -> SlurmClient:
        slurm = self._connections.slurm
        if not self._discovered:
            await slurm.discover()
            self._discovered = True
        return slurm

    async def world(self) -> World:
        """A World with all facts that a bridge has after its first lists."""
        transport, slurm = await self.transport(), await self.slurm()
        accounting = slurm.discovery is not None and slurm.discovery.accounting
        now = time.time()
        conf = await slurm_survey.configuration(slurm)
        slurm_user = conf.slurm_user if conf is not None else ""
        world = new_world(self.chosen.config(accounting=accounting, slurm_user=slurm_user), started=now - LONG_AGO_S)
        namespaces, nodes = watch.namespaces(), watch.nodes()
        ours, others = watch.our_pods(self.chosen.scheduler_name), watch.other_pods(self.chosen.scheduler_name)
        world.apply(namespaces.listed(await listed(transport, namespaces), now))
        world.apply(nodes.listed(await listed(transport, nodes), now))
        world.apply(others.listed(await listed(transport, others), now))
        partitions: tuple[Partition, ...] | None = None
        try:
            partitions = await slurm.partitions()
        except AccountingUnavailable as error:  # as in a bridge that starts now
            world.apply(ev.AccountingOutageBegan(now, said(error)))
        world.apply(ev.SlurmNodesPolled(await slurm.nodes(), partitions, now))
        began = time.time()
        world.apply(ev.JobsPolled(began, time.time(), await slurm.states()))
        world.apply(ours.listed(await listed(transport, ours), now))
        settle_all(world)
        return world

    async def explain_pod(self, namespace: str, name: str, notes: list[str]) -> Explanation:
        """The explanation of a pod; a note says what is missing.

        Raises ConfigError if there is no such pod, or it names another scheduler.
        """
        pod = await (await self.kube()).read_pod(namespace, name)
        if pod is None:
            raise ConfigError(f"there is no pod {namespace}/{name}; name its namespace with -n.")
        if pod.scheduler_name != self.chosen.scheduler_name:
            raise ConfigError(
                f"pod {namespace}/{name} is for the scheduler {pod.scheduler_name}, not for {self.chosen.scheduler_name}."
            )
        world = await self.world()
        if key_of(world, namespace, name) is None:  # the pod was created after the list
            world.apply(ev.PodSeen(Scope.OURS, pod))
        await self.complete(world, pod.uid)
        key = key_of(world, namespace, name)
        assert key is not None, "the pod was just applied to the world"
        await self._read_jobs(world, key, notes)
        explanation = explain(world, key, time.time())
        # Only a running bridge knows the next step, and the times of its observations.
        return replace(
            explanation, next=(), story=((pod.created, f"pod {pod.full_name} created"), *_times(explanation))
        )

    async def trial(self, explanation: Explanation) -> Verdict | None:
        """Slurm's verdict on the job, tried without effect; None: there is no job to submit."""
        if explanation.spec is None or explanation.refusal is not None:
            return None
        return await slurm_survey.trial(await self.slurm(), explanation.spec)

    async def costs(self, explanation: Explanation) -> Costs | None:
        """The present or future costs of the pod's job; None: there is no job to submit."""
        spec = explanation.spec
        if spec is None:
            return None
        slurm = await self.slurm()
        job = explanation.jobs[-1] if explanation.jobs else None
        partition = job.partition if job is not None else spec.partition
        if not partition:
            partition = next((known.name for known in await slurm.partitions() if known.default), "")
        account, qos = (job.account, job.qos) if job is not None else (spec.account, spec.qos)
        asked = (spec.user, account, partition, qos)
        if asked not in self._terms:  # the pods of a manifest mostly have the same terms
            self._terms[asked] = await terms_of(slurm, *asked)
        return Costs(billing_of(spec, self._terms[asked]), self._terms[asked])

    async def complete(self, world: World, uid: str) -> None:
        """Read the objects to which the pods of this workload refer: owners, volumes, and the object with the gang size."""
        workload = world.workloads[world.key_of_pod[uid]]
        group, kube = workload.group, await self.kube()
        claims: dict[tuple[str, ...], tuple[Claim, ...]] = {}
        for pod in list(workload.pods.values()):
            await self._read_owners(world, pod)
            if pod.claims:
                if pod.claims not in claims:
                    claims[pod.claims] = await kube.read_claims(pod.namespace, pod.claims)
                world.apply(ev.ClaimsRead(pod.uid, claims[pod.claims], time.time()))
        namespace, size_source = workload.first.namespace, group.size_source if group is not None else None
        if size_source is not None and owner_key(namespace, size_source) not in world.owners:
            owner = await kube.read_owner(size_source, namespace)
            world.apply(ev.OwnerRead(size_source, owner, time.time(), namespace))
        if settle(world, workload):  # no rule waits for owners here, so the gang is counted again at once
            world.refresh(workload)
        settle_all(world)

    async def _read_owners(self, world: World, pod: Pod) -> None:
        kube = await self.kube()
        while (ref := world.owners_of(pod)[1]) is not None:
            owner = await kube.read_owner(ref, pod.namespace)
            world.apply(ev.OwnerRead(ref, owner, time.time(), pod.namespace))

    async def with_unread_jobs(self, known: Explanation) -> Explanation:
        """The explanation, completed by jobs that the bridge has not read: a bridge reads only the grant of a running job."""
        unread = {job_id for job_id, _ in known.states} - {job.id for job in known.jobs}
        if not unread:
            return known
        slurm = await self.slurm()
        read = [await slurm.job(job_id) for job_id in sorted(unread)]
        own = [job for job in read if job is not None and (names.parse_job_name(job.name) or ("", ""))[1] == known.key]
        return replace(known, jobs=tuple(sorted((*known.jobs, *own), key=lambda job: job.id)))

    async def _read_jobs(self, world: World, key: str, notes: list[str]) -> None:
        """Read the job whose id the pod shows; if it shows none, the jobs of the workload's name in accounting."""
        slurm, workload = await self.slurm(), world.workloads[key]
        spec = explain(world, key, time.time()).spec
        found = [workload.hint] if workload.hint is not None else []
        if not found and spec is not None and world.accounting_outage is not None:
            notes.append("Slurm may have a job for the pod: only slurmdbd finds it by its name.")
        elif not found and spec is not None:
            found = list(await slurm.find(spec.name))[-MOST_JOBS:]
        for job_id in found:
            began = time.time()
            job = await slurm.job(job_id)
            grant = await slurm.grant(job_id, job.user) if job is not None and holds_nodes(job.states) else None
            world.apply(ev.JobRead(job_id, began, time.time(), job, grant))

    async def events_of(self, namespace: str, name: str, notes: list[str]) -> tuple[admin_reads.PodEvent, ...]:
        """The Kubernetes events of the pod."""
        pod = await (await self.kube()).read_pod(namespace, name)
        if pod is None:
            notes.append("The pod does not exist any more.")
            return ()
        try:
            return await admin_reads.events_of(await self.transport(), namespace, pod.uid)
        except RemoteError as error:
            notes.append(f"Events of the pod are not shown: {said(error)}")
            return ()


def _times(explanation: Explanation) -> Iterator[tuple[float, str]]:
    """The times that Slurm shows for the jobs."""
    for job in explanation.jobs:
        if job.submitted:
            yield job.submitted, f"Slurm job {job.id} submitted"
        if job.starts and "PENDING" not in job.states:
            yield job.starts, f"Slurm job {job.id} started on {job.nodes}"
        if job.ends and is_ended(job.states):
            yield job.ends, f"Slurm job {job.id} ended: {', '.join(sorted(job.states))}"

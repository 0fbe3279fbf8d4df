"""Reads that only diagnostic commands need: Slurm's configuration, its clock, its nodes in detail, and what a user may do.

These reads change nothing.  To find out what a user may do, a job is *tried without effect*: it is submitted as that user,
and excludes a node that does not exist.  slurmctld checks user, partition, account and QOS, and only then node names.  So
error 2018 means that the rest was accepted; slurmctld keeps no record of the job (26.05.5, measured).  The job is also
submitted as held: if Slurm accepted it nevertheless, it would not start, and it is cancelled at once.

slurmrestd does not show gres.conf, nor whether slurmctld can resolve an address, nor slurm.conf before API v0.0.45 (Slurm
26.05).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from urllib.parse import quote

import msgspec

from bridge.errors import ContractError, Refused
from bridge.slurm import bodies, codec, wire
from bridge.slurm.client import SlurmClient
from bridge.slurm.lists import ListDecoder
from bridge.slurm.responses import plain
from bridge.slurm.transport import SIDE
from bridge.slurm.wire import Envelope, IdAnswer, Number, moment
from scheduler.model import slurm_errors
from scheduler.model.slurm import JobSpec, SlurmNode

CONFIGURATION_SINCE = "v0.0.45"
NO_NODE = "no-node-of-this-name-slurm-bridge-doctor"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The parameters of slurm.conf that decide if and how fast placeholders start.

    scheduler_parameters   as written, "defer", "bf_interval=30"; parameters that are not written have Slurm's defaults
    preempt_mode           of the cluster: CANCEL, REQUEUE, SUSPEND, GANG, …
    private_data           data that ordinary users may not see of each other: "JOBS", …
    max_node_count         the largest number of nodes that Slurm has room for; gres_types: devices that Slurm counts
    saves_power            Slurm powers nodes down (SuspendProgram)
    suspend_time_s         after this time without a job, unless a partition of the node has another; infinite: it does not
    suspend_exc_nodes, suspend_exc_states   the nodes and states of nodes that it does not power down, as written
    """

    scheduler_type: str = ""
    scheduler_parameters: tuple[str, ...] = ()
    select_type: str = ""
    select_type_parameters: tuple[str, ...] = ()
    max_job_count: int = 10_000
    min_job_age_s: int = 300
    preempt_type: str = ""
    preempt_mode: tuple[str, ...] = ()
    private_data: tuple[str, ...] = ()
    enforce_part_limits: tuple[str, ...] = ()
    slurm_user: str = ""
    job_submit_plugins: tuple[str, ...] = ()
    max_node_count: int = 0
    gres_types: tuple[str, ...] = ()
    saves_power: bool = False
    suspend_time_s: float = math.inf
    suspend_exc_nodes: tuple[str, ...] = ()
    suspend_exc_states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """The configuration of a node of Slurm.

    address      NodeAddr; the node's name if no address is configured
    lost         True if the node lost devices (Slurm facts 7): it counts as used, but none of its CPUs is used
    """

    node: SlurmNode
    address: str
    lost: bool = False

    @property
    def static(self) -> bool:
        """True if the node is in slurm.conf, where external nodes lose GPUs and show no indices (Slurm facts 7)."""
        return "DYNAMIC_NORM" not in self.node.states


@dataclass(frozen=True, slots=True)
class PartitionDetails:
    """The configuration of a partition.

    preempt_mode  its own, or CLUSTER_GLOBAL; grace_s: notice before a preemption
    node_sets     the part of its Nodes in slurm.conf that is "ALL" or a NodeSet; "": it lists nodes by name alone
    suspend_time_s  as in Configuration; None: it has no SuspendTime of its own
    oversubscribe  OverSubscribe as in slurm.conf ("NO", "YES:4", "FORCE:4")
    """

    name: str
    preempt_mode: tuple[str, ...] = ()
    grace_s: int = 0
    node_sets: str = ""
    suspend_time_s: float | None = None
    oversubscribe: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Slurm's answer to the probe.

    number     the error number; 0: there is none, so the request was not sent, or Slurm accepted the job
    accepted   Slurm accepted the job, which is cancelled again
    """

    number: int
    text: str
    accepted: bool = False

    @property
    def may(self) -> bool:
        """True if Slurm accepted all but the node that does not exist."""
        return self.accepted or self.number == slurm_errors.UNKNOWN_NODE

    @property
    def why_not(self) -> str:
        """Why Slurm does not accept it, with the error number, without a full stop."""
        return f"{self.text.rstrip(' .')} (error {self.number})" if self.number else self.text.rstrip(" .")


# --- what slurmrestd sends ------------------------------------------------------------------------------------------


class _Conf(msgspec.Struct, rename="pascal"):
    scheduler_type: str = ""
    scheduler_parameters: tuple[str, ...] | None = ()
    select_type: str = ""
    select_type_parameters: tuple[str, ...] | None = ()
    max_job_count: int = 10_000
    min_job_age: int = 300
    preempt_type: str | None = ""
    preempt_mode: tuple[str, ...] | None = ()
    private_data: tuple[str, ...] | None = ()
    enforce_part_limits: tuple[str, ...] | None = ()
    slurm_user: str = ""
    job_submit_plugins: tuple[str, ...] | None = ()
    max_node_count: int = 0
    gres_types: tuple[str, ...] | None = ()
    suspend_program: str | None = ""
    suspend_time: Number = msgspec.field(default_factory=Number)
    suspend_exc_nodes: tuple[str, ...] | None = ()
    suspend_exc_states: tuple[str, ...] | None = ()


class ConfigurationAnswer(Envelope, kw_only=True):
    """`GET conf/`."""

    slurm_conf: _Conf


class _Statistics(msgspec.Struct):
    req_time: object


class DiagAnswer(Envelope, kw_only=True):
    """`GET diag/`."""

    statistics: _Statistics


class _Reservation(msgspec.Struct):
    name: str


class ReservationsAnswer(Envelope, kw_only=True):
    """`GET reservations/`."""

    reservations: tuple[_Reservation, ...]


class _User(msgspec.Struct):
    name: str
    administrator_level: tuple[str, ...] = ()


class UsersAnswer(Envelope, kw_only=True):
    """`GET /slurmdb/…/user/NAME`."""

    users: tuple[_User, ...]


class _DetailedNode(wire.Node):
    """One item of `GET nodes/`, with its configuration."""

    address: str = ""


class _Sharing(msgspec.Struct):
    oversubscribe: str | None = ""


class _DetailedPartition(msgspec.Struct):
    """One item of `GET partitions/`, with its preemption."""

    name: str
    preempt_mode: tuple[str, ...] | None = ()
    grace_time: int = 0
    node_sets: str | None = ""
    suspend_time: Number = msgspec.field(default_factory=Number)
    partition: _Sharing = msgspec.field(default_factory=_Sharing)


_CONF = msgspec.json.Decoder(ConfigurationAnswer)
_DIAG = msgspec.json.Decoder(DiagAnswer)
_RESERVATIONS = msgspec.json.Decoder(ReservationsAnswer)
_USERS = msgspec.json.Decoder(UsersAnswer)
_NODES = ListDecoder("nodes", _DetailedNode, "name")
_PARTITIONS = ListDecoder("partitions", _DetailedPartition, "name")
_ID = msgspec.json.Decoder(IdAnswer)


# --- reads --------------------------------------------------------------------------------------------------


async def configuration(slurm: SlurmClient) -> Configuration | None:
    """slurm.conf as slurmctld has it; None: this API version does not show it."""
    if slurm.discovery is None or slurm.discovery.api < CONFIGURATION_SINCE:
        return None
    found = (await slurm.ask("configuration", "GET", "conf/", _CONF)).slurm_conf
    return Configuration(
        scheduler_type=found.scheduler_type,
        scheduler_parameters=found.scheduler_parameters or (),
        select_type=found.select_type,
        select_type_parameters=found.select_type_parameters or (),
        max_job_count=found.max_job_count,
        min_job_age_s=found.min_job_age,
        preempt_type=found.preempt_type or "",
        preempt_mode=found.preempt_mode or (),
        private_data=tuple(flag.upper() for flag in found.private_data or ()),
        enforce_part_limits=found.enforce_part_limits or (),
        slurm_user=found.slurm_user,
        job_submit_plugins=found.job_submit_plugins or (),
        max_node_count=found.max_node_count,
        gres_types=found.gres_types or (),
        saves_power=bool(found.suspend_program),
        suspend_time_s=math.inf if found.suspend_time.value is None else found.suspend_time.value,
        suspend_exc_nodes=found.suspend_exc_nodes or (),
        suspend_exc_states=found.suspend_exc_states or (),
    )


async def clock(slurm: SlurmClient) -> float:
    """slurmctld's clock, whole epoch seconds.  Raises ContractError if the answer has none."""
    shown = (await slurm.ask("clock", "GET", "diag/", _DIAG)).statistics.req_time
    if (now := moment(shown)) is None:
        raise ContractError("clock", SIDE, f"a clock that makes no sense: {plain(str(shown))}")
    return now


async def reservations(slurm: SlurmClient) -> frozenset[str]:
    """Names of the present reservations."""
    found = await slurm.ask("reservations", "GET", "reservations/", _RESERVATIONS)
    return frozenset(reservation.name for reservation in found.reservations)


async def nodes(slurm: SlurmClient) -> tuple[NodeDetails, ...]:
    """The configuration of every node."""
    answer = await slurm.ask("nodes", "GET", "nodes/", _NODES)
    known = {node.name: node for node in codec.nodes(answer).found}
    return tuple(
        NodeDetails(known[node.name], node.address, _lost(node)) for node in answer.items if node.name in known
    )


def _lost(node: _DetailedNode) -> bool:
    return bool({"MIXED", "ALLOCATED"} & set(node.state)) and node.alloc_cpus == 0 and bool(node.gres)


async def sees_all_jobs(slurm: SlurmClient, conf: Configuration, user: str) -> bool:
    """True if Slurm shows all users' jobs to the token of that user, whatever PrivateData says.

    With PrivateData=jobs, `jobs/state` shows every job to every user.  But GET job/{id} of another user's job answers the
    error number of a job that is gone (2017; 26.05.5, measured).
    """
    if "JOBS" not in conf.private_data or user in (conf.slurm_user, "root"):
        return True
    if slurm.discovery is None or not slurm.discovery.accounting:
        return False
    found = (await slurm.ask("user", "GET", f"user/{quote(user, safe='')}", _USERS, side="slurmdb")).users
    return any({"Operator", "Administrator"} & set(user.administrator_level) for user in found)


async def partitions(slurm: SlurmClient) -> tuple[PartitionDetails, ...]:
    """The partitions: their preemption, grace time, node sets and OverSubscribe."""
    answer = await slurm.ask("partitions", "GET", "partitions/", _PARTITIONS)
    return tuple(
        PartitionDetails(
            partition.name,
            partition.preempt_mode or (),
            partition.grace_time,
            partition.node_sets or "",
            math.inf if partition.suspend_time.infinite else partition.suspend_time.value,
            partition.partition.oversubscribe or "",
        )
        for partition in answer.items
    )


async def probe(slurm: SlurmClient, user: str, *, account: str = "", partition: str = "", qos: str = "") -> Verdict:
    """Try if this user may submit with these choices, without effect (see the module).

    Raises what any call raises, except Refused, which becomes the verdict.
    """
    asked = JobSpec("slurm-bridge-doctor", user, 1, 1, account=account, partition=partition, qos=qos)
    return await trial(slurm, asked)


async def trial(slurm: SlurmClient, spec: JobSpec) -> Verdict:
    """Try if Slurm would accept this job.  User, account, QOS, partition, features and devices are tried, nodes are not.

    The components of a heterogeneous job are tried one by one; the first refusal counts.
    Raises what any call raises, except Refused, which becomes the verdict.
    """
    tried = [await _tried(slurm, part) for part in (replace(spec, parts=()), *spec.parts)]
    return next((verdict for verdict in tried if not verdict.may), tried[0])


async def _tried(slurm: SlurmClient, spec: JobSpec) -> Verdict:
    job = msgspec.json.decode(bodies.job_body(spec, immediate=False))["job"]
    body = msgspec.json.encode({"job": {**job, "hold": True, "excluded_nodes": [NO_NODE]}})
    try:
        taken = await slurm.ask("probe", "POST", "job/submit", _ID, body, user=spec.user)
    except Refused as refusal:
        return Verdict(refusal.number, refusal.message)
    await slurm.cancel(taken.job_id, spec.name, spec.user)
    return Verdict(0, "the job was accepted", accepted=True)

"""The interface of slurmrestd to the simulated cluster: paths, JSON, statuses.

The answers are as measured on the real slurmrestd, with its oddities: 200 with an error in `status`, warnings for fields it
does not know, 404 in plain text for a path it does not know, 403 to a cancel while slurmctld is down, job ids as strings
in jobs/state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from bridge.simulation.slurm import accounts, reads, writes
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.error_numbers import SlurmRefusal
from bridge.simulation.slurm.requests import NO_URL, SLURM_USER, TEXT, VERSIONS, Answer, Asked, refusal


def answer(
    cluster: SlurmCluster, now: float, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """One request, one answer; see SlurmCluster.handle."""
    path, _, query = target.partition("?")
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in ("slurm", "slurmdb") or parts[1] not in VERSIONS:
        return 404, TEXT, NO_URL
    route, argument = _ROUTES.get((method, parts[0], parts[2], len(parts))), parts[-1]
    if route is None:
        return 404, TEXT, NO_URL
    asked = Asked(cluster, now, parts[1], query, body)
    lowered = {name.lower(): value for name, value in headers.items()}
    if body and "json" not in lowered.get("content-type", "application/json"):
        return 500, TEXT, b"Unspecified error"
    token = lowered.get("x-slurm-user-token", "")
    if not token:
        return 401, TEXT, b"Authentication failure"
    try:
        if route is not reads.ping:
            _authenticate(asked, token, lowered.get("x-slurm-user-name", ""))
            _reachable(cluster, parts[0], method, parts[2], argument)
        return route(asked, argument)
    except SlurmRefusal as no:
        return refusal(asked, no.number)
    except msgspec.DecodeError:
        return 400, TEXT, b"Failure during parsing"


def _authenticate(asked: Asked, token: str, name: str) -> None:
    user = asked.cluster.who(token, asked.now)
    if user is None or (name and name != user and user != SLURM_USER):
        raise SlurmRefusal(1007)
    asked.as_user = name or user
    asked.operator = asked.as_user == SLURM_USER


def _reachable(cluster: SlurmCluster, side: str, method: str, noun: str, argument: str) -> None:
    """slurmrestd alone: what it says of each call while the daemon behind it is down."""
    if side == "slurmdb":
        if not cluster.accounting_up:
            raise SlurmRefusal(7000)
    elif not cluster.controller_up:
        if noun == "jobs" and method == "DELETE":
            raise SlurmRefusal(1)
        raise SlurmRefusal(_WHILE_DOWN.get((method, noun), 1800) if argument not in ("submit", "allocate") else 1800)


# Measured with slurmctld stopped.  POST job/{id} is an update, unless it is a submission or an allocation.
_WHILE_DOWN = {("GET", "jobs"): -1, ("GET", "job"): -1, ("GET", "resources"): -1, ("POST", "job"): 1000}


# (method, side, noun, number of path segments)
_ROUTES: Mapping[tuple[str, str, str, int], Callable[[Asked, str], Answer]] = {
    ("GET", "slurm", "ping", 3): reads.ping,
    ("GET", "slurm", "jobs", 4): reads.states,
    ("GET", "slurm", "job", 4): reads.job,
    ("GET", "slurm", "resources", 4): reads.resources,
    ("GET", "slurm", "nodes", 3): reads.nodes,
    ("GET", "slurm", "node", 4): reads.one_node,
    ("GET", "slurm", "partitions", 3): reads.partitions,
    ("GET", "slurm", "partition", 4): reads.one_partition,
    ("POST", "slurm", "job", 4): writes.post_job,
    ("DELETE", "slurm", "jobs", 3): writes.cancel,
    ("POST", "slurm", "new", 4): writes.new_node,
    ("POST", "slurm", "node", 4): writes.change_node,
    ("DELETE", "slurm", "node", 4): writes.remove_node,
    ("GET", "slurm", "reconfigure", 3): writes.reconfigure,
    ("GET", "slurm", "conf", 3): reads.conf,
    ("GET", "slurm", "diag", 3): reads.diag,
    ("GET", "slurm", "reservations", 3): reads.reservations,
    ("POST", "slurm", "reservation", 3): writes.reserve,
    ("DELETE", "slurm", "reservation", 4): writes.unreserve,
    ("GET", "slurmdb", "jobs", 3): reads.accounted,
    ("POST", "slurmdb", "job", 4): writes.record,
    ("GET", "slurmdb", "user", 4): reads.user,
    ("GET", "slurmdb", "associations", 3): accounts.associations,
    ("GET", "slurmdb", "qos", 4): accounts.qos,
    ("GET", "slurm", "shares", 3): accounts.shares,
}

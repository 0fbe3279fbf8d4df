"""A call of the simulated slurmrestd, taken apart, and the shapes of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.error_numbers import TEXTS, SlurmRefusal
from bridge.simulation.slurm.jobs import SimJob

Answer = tuple[int, dict[str, str], bytes]
Body = dict[str, Any]

VERSIONS = ("v0.0.45", "v0.0.44")
SLURM_USER = "slurm"
RELEASE = "26.05.5"

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain", "Connection": "Close"}
NO_URL = b"Unable to find requested URL endpoint. Please query the '/openapi/v3' endpoint."


class Asked:
    """One request.

    as_user     the user who sends the request
    operator    True if this user is an administrator of Slurm
    """

    __slots__ = ("as_user", "body", "cluster", "now", "operator", "query", "version")

    def __init__(self, cluster: SlurmCluster, now: float, version: str, query: str, body: bytes) -> None:
        self.cluster, self.now, self.version = cluster, now, version
        self.query = parse_qs(query) if query else {}
        self.body = body
        self.as_user = ""
        self.operator = False

    def may_look_into(self, job: SimJob) -> bool:
        """True if the caller is the user of the job or an operator.  Other callers may not read what a job holds."""
        return self.operator or self.as_user == job.user or self.as_user in self.cluster.operators


def known(asked: Asked, argument: str) -> SimJob:
    """The job that the path names.  Raises SlurmRefusal."""
    job = asked.cluster.jobs.get(job_id_of(argument))
    if job is None:
        raise SlurmRefusal(2017)
    return job


def job_id_of(argument: str) -> int:
    """-1, which is no job's id, if the text is not an id."""
    return int(argument) if argument.isdecimal() and len(argument) < 12 else -1


def with_parts(asked: Asked, job: SimJob) -> list[SimJob]:
    """The components of the job; a request for the leader concerns all of them."""
    return asked.cluster.components(job) if job.id == job.het_id else [job]


_metas: dict[tuple[str, bool], msgspec.Raw] = {}


def _meta(asked: Asked) -> msgspec.Raw:
    key = (asked.version, asked.cluster.accounting)
    if key not in _metas:
        storage = "accounting_storage/slurmdbd" if asked.cluster.accounting else ""
        meta = {
            "plugin": {
                "type": "openapi/slurmctld",
                "data_parser": f"data_parser/{asked.version}",
                "accounting_storage": storage,
            },
            "slurm": {"release": RELEASE, "cluster": "simulated"},
        }
        _metas[key] = msgspec.Raw(msgspec.json.encode(meta))
    return _metas[key]


def yes(asked: Asked, content: Mapping[str, Any], warnings: tuple[Mapping[str, str], ...] = ()) -> Answer:
    """The answer of success, with this content."""
    return 200, JSON, msgspec.json.encode({**content, "meta": _meta(asked), "errors": (), "warnings": warnings})


def refusal(asked: Asked, number: int, source: str = "slurmctld") -> Answer:
    """The answer of a refusal, with the status and the text of that error number."""
    status, text = TEXTS[number]
    errors = ({"description": "Request failed", "error_number": number, "error": text, "source": source},)
    body = msgspec.json.encode({"meta": _meta(asked), "errors": errors, "warnings": ()})
    return status, {**JSON, "Connection": "Close"}, body


def number(value: int | None) -> Mapping[str, Any]:
    """A number that may be absent, as Slurm writes it."""
    return {"set": value is not None, "infinite": False, "number": value or 0}

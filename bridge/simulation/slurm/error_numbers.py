"""Slurm's refusals by number, with the status that slurmrestd gives them."""

from __future__ import annotations

from collections.abc import Mapping

_UNKNOWN_JOB = "Invalid job id specified"

TEXTS: Mapping[int, tuple[int, str]] = {
    -1: (500, "Unspecified error"),
    0: (200, "No error"),  # a node that it does not know
    1: (403, "Operation not permitted"),
    22: (500, "Invalid argument"),
    111: (500, "Connection refused"),
    1000: (500, "Unexpected message received"),
    1007: (511, "Protocol authentication error"),
    1800: (502, "Unable to contact slurm controller (connect failure)"),
    2000: (422, "Invalid partition name specified"),
    2002: (422, "Access/permission denied"),
    2005: (422, "More processors requested than permitted"),
    2007: (422, "MaxJobCount limit reached"),
    2010: (422, "Invalid user id"),
    2013: (422, "Immediate execution impossible, insufficient priority"),
    2014: (422, "Requested node configuration is not available"),
    2016: (422, "Requested nodes are busy"),
    2017: (404, _UNKNOWN_JOB),
    2018: (422, "Invalid node name specified"),
    2025: (422, "Task count specification invalid"),
    2028: (422, "Invalid node state specified"),
    2029: (422, "Invalid feature specification"),
    2036: (422, "Job is not pending and this field cannot be changed"),
    2038: (422, "Job dependency problem"),
    2040: (422, "Licenses currently unavailable"),
    2045: (422, "Invalid account or account/partition combination specified"),
    2048: (422, "Invalid license specification"),
    2050: (422, "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
    2051: (422, "Requested time limit is invalid (missing or exceeds some limit)"),
    2053: (422, "Requested reservation is invalid"),
    2066: (422, "Invalid qos specification"),
    2068: (422, "Required node not available (down, drained or reserved)"),
    2072: (422, "Invalid generic resource (gres) specification"),
    2073: (422, "Job is no longer pending execution"),
    2078: (422, "Job can not start immediately"),
    2084: (422, "Job has already finished"),
    2085: (422, "Job is not running"),
    2101: (422, "Partition in DOWN state"),
    2123: (422, "Invalid --nice value"),
    2124: (422, "Invalid time-min specification (exceeds job's time or other limits)"),
    2125: (422, "Immediate execution impossible. Individual job submission scheduling attempts deferred"),
    2168: (422, "Node already exists"),
    2178: (422, "Requested topology configuration is not available"),
    2180: (422, "Node state is invalid for this change"),
    6010: (500, "Rejecting authentication of user nobody or group nobody"),
    7000: (502, "Unable to connect to database"),
    9000: (422, "Query empty or not RFC7320 compliant"),
}

# Numbers of single jobs in the answer to a cancel of several jobs.  The answer as a whole is not a refusal.
NOT_CANCELLED: Mapping[int, str] = {2021: "Job/step already completing or completed", 2172: "Cannot signal job"}


class SlurmRefusal(Exception):
    """A refusal by number."""

    def __init__(self, number: int) -> None:
        super().__init__(TEXTS[number][1])
        self.number = number

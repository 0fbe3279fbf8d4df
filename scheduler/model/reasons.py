"""Why a job waits in Slurm, in words: every reason that Slurm 26.05 can give (`job_state_reason_string`, squeue(1)).

A pod shows the meaning and what its user can do; docs/reasons.md also says what an admin can do.  Reasons that name a limit
follow a grammar (whose limit, of what, over what), so one function words them all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache


@dataclass(frozen=True, slots=True)
class Reason:
    """The meaning of one reason.

    meaning   a clause for the sentence on the pod
    user      what the pod's user can do, after "You can"; "": nothing but wait
    admin     what an admin can do; "": nothing
    limit     the limit that the reason is about, as sacctmgr(1) names it ("GrpTRES=gres/…"); "": it is about none
    by_qos    the limit is one of a QOS, not of an association
    blocked   the job does not start, however long it waits, before the job or what it may use is changed
    """

    meaning: str
    user: str = ""
    admin: str = ""
    limit: str = ""
    by_qos: bool = False
    blocked: bool = False


_RESERVATION = "correct or remove the annotation `reservation`"
_ACCOUNT = "choose another `account`, or ask an admin for access"
_NODES = "look at `sinfo -R`, and resume the nodes that may serve again"

REASONS: Mapping[str, Reason] = {
    "None": Reason("not looked at yet"),
    "Priority": Reason("others are before it in the queue", "", "`sprio` and `sshare` show why"),
    "Resources": Reason(
        "waiting for nodes: first in line",
        "request less, or a shorter time limit",
        f"if no node is in service, {_NODES}",
    ),
    "Dependency": Reason("waiting for other jobs, as its dependency says"),
    "DependencyNeverSatisfied": Reason(
        "a job it depends on did not end as it should, so it never starts",
        "change or remove the annotation `dependency`",
        blocked=True,
    ),
    "BeginTime": Reason("waiting for its begin time", "change the annotation `begin`"),
    "JobHeldUser": Reason("held by its user", "release it (`scontrol release JOB`), or delete the pod", blocked=True),
    "JobHeldAdmin": Reason(
        "held by an administrator",
        "ask the admin of Slurm why, and to release job JOB",
        "`scontrol release JOB`",
        blocked=True,
    ),
    "JobHoldMaxRequeue": Reason(
        "held, because it was requeued too often",
        "delete the pod and create it again",
        "`scontrol release JOB`",
        blocked=True,
    ),
    "PartitionDown": Reason(
        "the partition is down", "choose another `partition`", "`scontrol update partition=… state=up`", blocked=True
    ),
    "PartitionInactive": Reason(
        "the partition is inactive",
        "choose another `partition`",
        "`scontrol update partition=… state=up`",
        blocked=True,
    ),
    "PartitionNodeLimit": Reason(
        "it requests more or fewer nodes than the partition allows, or its nodes are down",
        "change the number of nodes, or the `partition`",
        _NODES,
    ),
    "PartitionTimeLimit": Reason(
        "its time limit is longer than the partition allows",
        "shorten `time-limit`, or choose another `partition`",
        blocked=True,
    ),
    "PartitionConfig": Reason(
        "the partition does not allow what it requests",
        "choose another `partition`",
        "compare `scontrol show partition`",
        blocked=True,
    ),
    "Licenses": Reason("waiting for licenses", "", "`scontrol show licenses` shows who holds them"),
    "Reservation": Reason(
        "waiting for a reservation: its own has not begun, or others have reserved the nodes",
        "correct or remove the annotation `reservation`, if the pod has it",
        "`scontrol show reservation` shows all of them",
    ),
    "ReservationDeleted": Reason("its reservation was deleted", _RESERVATION, blocked=True),
    "ReservationInvalid": Reason(
        "its reservation does not let it in", _RESERVATION, "`scontrol show reservation`", blocked=True
    ),
    "ReqNodeNotAvail": Reason(
        "the nodes it can use are down, drained, reserved or being powered down",
        "widen `constraints` or the node selector",
        _NODES,
    ),
    "NodeDown": Reason("a node it needs is down", "widen `constraints` or the node selector", _NODES),
    "BadConstraints": Reason(
        "no node can ever satisfy its constraints",
        "correct `constraints`, the node selector or the requests",
        blocked=True,
    ),
    "Constraints": Reason("no node that is free satisfies its constraints", "widen `constraints` or the node selector"),
    "SchedDefer": Reason("Slurm defers it to its next scheduling pass", "", "see `defer` in `SchedulerParameters`"),
    "NvidiaImexChannels": Reason("no NVIDIA IMEX channel is free on its nodes"),
    "SystemFailure": Reason("Slurm could not start it: a failure of the system", "", "slurmctld's log has the cause"),
    "JobLaunchFailure": Reason("Slurm could not start it", "", "slurmctld's log has the cause"),
    "Prolog": Reason("its prolog runs", "", "if that takes long, look at PrologSlurmctld"),
    "Cleaning": Reason("Slurm cleans up after its previous run"),
    "MaxPoweredUpNodes": Reason("as many nodes are powered up as the site allows", "", "see `PowerSave` in slurm.conf"),
    "MpiPortsBusy": Reason("no MPI port is free on its nodes"),
    "BurstBufferResources": Reason("waiting for space in the burst buffer"),
    "BurstBufferStageIn": Reason("data is copied into the burst buffer"),
    "BurstBufferOperation": Reason("the burst buffer works for it"),
    "JobArrayTaskLimit": Reason("as many tasks of its array run as the array allows"),
    "FedJobLock": Reason("its federation decides which cluster runs it"),
    "InvalidAccount": Reason(
        "its user no longer has its account in Slurm", _ACCOUNT, "`sacctmgr show association`", blocked=True
    ),
    "AccountNotAllowed": Reason(
        "the partition does not allow its account", _ACCOUNT, "see AllowAccounts", blocked=True
    ),
    "InvalidQOS": Reason(
        "its user may no longer use its QOS, or Slurm no longer has it",
        "choose another `qos`, or ask an admin for access",
        "`sacctmgr show association` shows the QOS of the user, `sacctmgr show qos` all of them",
        blocked=True,
    ),
    "QOSNotAllowed": Reason(
        "its account or partition does not allow its QOS", "choose another `qos`", "see AllowQos", blocked=True
    ),
    "QOSUsageThreshold": Reason(
        "its account has used more of its share than the QOS allows (UsageThreshold)", "choose another `qos`"
    ),
    "QOSJobLimit": Reason("its QOS runs as many jobs as it may", "choose another `qos`"),
    "QOSResourceLimit": Reason("its QOS uses as much as it may", "choose another `qos`"),
    "QOSTimeLimit": Reason("its QOS has used up its time", "choose another `qos`"),
    "AssociationJobLimit": Reason("its account runs as many jobs as it may", "choose another `account`"),
    "AssociationResourceLimit": Reason("its account uses as much as it may", "choose another `account`"),
    "AssociationTimeLimit": Reason("its account has used up its time", "choose another `account`"),
    "AccountingPolicy": Reason(
        "a limit of its account or QOS", "choose another `account` or `qos`", "`sacctmgr show association`"
    ),
    "MaxMemPerLimit": Reason(
        "it requests more memory for a CPU or node than MaxMemPerCPU or MaxMemPerNode allows", "request less memory"
    ),
    # What follows are reasons of ended jobs: a placeholder that still waits has them only for a moment.
    "NonZeroExitCode": Reason("its last run ended with an error"),
    "RaisedSignal": Reason("its last run was ended by a signal"),
    "TimeLimit": Reason("it reached its time limit"),
    "InactiveLimit": Reason("it was inactive for too long (InactiveLimit)"),
    "OutOfMemory": Reason("its last run needed more memory than it requested", "request more memory"),
    "DeadLine": Reason("it cannot end before its deadline"),
}

_RESOURCES: Mapping[str, tuple[str, str, str]] = {  # in the reason: in words, with minutes, in TRES=…
    "Cpu": ("CPUs", "CPU minutes", "cpu"),
    "CPU": ("CPUs", "CPU minutes", "cpu"),
    "Mem": ("memory", "memory minutes", "mem"),
    "Memory": ("memory", "memory minutes", "mem"),
    "Node": ("nodes", "node minutes", "node"),
    "Energy": ("energy", "energy minutes", "energy"),
    "GRES": ("GRES such as GPUs", "minutes of GRES such as GPUs", "gres/…"),
    "License": ("licenses", "license minutes", "license/…"),
    "BB": ("burst buffer", "burst buffer minutes", "bb/…"),
    "Billing": ("billing units", "billing minutes", "billing"),
    "Unknown": ("of a resource", "minutes of a resource", "…"),
}
_COUNTED: Mapping[str, str] = {"Jobs": "running jobs", "SubmitJob": "jobs in the queue", "Wall": "wall-clock time"}
_LIMIT = re.compile(
    rf"(?P<whose>Assoc|QOS|)(?P<kind>Grp|Max|Min)"
    rf"(?P<what>{'|'.join(sorted(_RESOURCES, key=len, reverse=True))}|SubmitJobs?|Jobs|Wall(?:Duration)?)"
    rf"(?P<time>Minutes|RunMinutes|RunMins|)(?P<each>PerJob|PerNode|PerUser|PerAccount|)(?:Limit|NotSatisfied|)"
)


@cache
def meaning_of(reason: str) -> Reason | None:
    """The meaning of a reason; None: the reason is unknown, and is shown unchanged.

    Limits are named as sacctmgr(1) names them, so that an admin finds the value.
    """
    if reason in REASONS:
        return REASONS[reason]
    found = _LIMIT.fullmatch(reason)
    return None if found is None else replace(_limit(found), limit=_named(found), by_qos=found["whose"] != "Assoc")


def is_blocked(reason: str) -> bool:
    """True if a job with this reason does not start as it is; Slurm still shows the start that it expected before."""
    known = meaning_of(reason)
    return known is not None and known.blocked


def _limit(found: re.Match[str]) -> Reason:
    whose, kind, what, each = found["whose"] or "QOS", found["kind"], found["what"], found["each"]
    owner, key, table = ("QOS", "qos", "qos") if whose == "QOS" else ("account", "account", "association")
    amount, name = _amount(what, found["time"]), _named(found)
    other, show = f"choose another `{key}`", f"`sacctmgr show {table}` shows the limit"
    if kind == "Min":
        demand = f"its {owner} demands more {amount} than it requests ({name})"
        return Reason(demand, f"request more, or {other}", show, blocked=True)
    if each in ("PerJob", "PerNode"):
        scope = "one job on one node" if each == "PerNode" else "one job"
        excess = f"it requests more {amount} than its {owner} allows {scope} ({name})"
        return Reason(excess, f"request less, or {other}", show, blocked=True)
    scope = "all its jobs together" if kind == "Grp" else "one account" if each == "PerAccount" else "one user"
    return Reason(f"its {owner} allows {scope} no more {amount} now ({name})", f"wait until jobs end, or {other}", show)


def _amount(what: str, time: str) -> str:
    if what not in _RESOURCES:
        return next(words for key, words in _COUNTED.items() if what.startswith(key))
    plain, minutes, _ = _RESOURCES[what]
    return plain if not time else minutes if time == "Minutes" else f"{minutes} of running jobs"


def _named(found: re.Match[str]) -> str:
    """The limit's name in sacctmgr(1)."""
    whose, kind, what, time, each = (found[group] for group in ("whose", "kind", "what", "time", "each"))
    if what.startswith("Wall"):
        return "GrpWall" if kind == "Grp" else "MaxWall"
    if what not in _RESOURCES:
        return f"{kind}{'Jobs' if what == 'Jobs' else 'SubmitJobs'}{each}"
    minutes = {"": "", "Minutes": "Mins"}.get(time, "RunMins")
    per = each if whose != "Assoc" or each == "PerNode" else ""
    return f"{kind}TRES{minutes}{per}={_RESOURCES[what][2]}"

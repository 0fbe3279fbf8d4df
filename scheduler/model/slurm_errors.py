"""Slurm's error numbers that mean more than a refusal (slurm_errno.h), and what to do where Slurm's own text does not say it.

Slurm's texts name no value: "Invalid account or account/partition combination specified", "Job violates accounting/QOS policy
(job submit limit, …)".  A number without a name here is a refusal that people see in Slurm's words.  The class of error of a
number is in bridge/slurm/responses.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The first verdict of slurmctld or slurmdbd about the request; lower numbers are of the system, of HTTP or of the protocol.
FIRST_VERDICT: Final = 2000

AUTHENTICATION: Final = 1007  # "Protocol authentication error": bad, expired or foreign token alike
CONTROLLER_AWAY: Final = 1800  # slurmctld is down: slurmrestd sent nothing on
PARTITION: Final = 2000  # there is no such partition
NO_DEFAULT: Final = 2001  # the job names no partition, and none is the default
ACCESS: Final = 2002  # the user may not do this, or not in this partition
GROUP: Final = 2003  # the partition is for groups (AllowGroups) of which the user is in none
CPUS: Final = 2005  # more than the partition allows
NODE_COUNT: Final = 2006  # more or fewer nodes than the partition allows
MAX_JOBS: Final = 2007  # MaxJobCount
NO_ADMIN: Final = 2010  # the user is no administrator of Slurm
PRIORITY: Final = 2013  # an immediate allocation, while jobs of higher or equal priority wait
CONFIGURATION: Final = (
    2014  # no node of the partition is as requested, or the partition does not allow so much of a node
)
BUSY: Final = 2016  # no room now
UNKNOWN_JOB: Final = 2017
UNKNOWN_NODE: Final = 2018  # the request names a node that Slurm does not have, or has no more
ALREADY_ENDED: Final = 2021
FEATURE: Final = 2029  # no node has it
# A submission depends on a job that Slurm does not know; an immediate allocation depends on singleton alone, so a twin of its
# name lives (Slurm facts 8).
DEPENDENCY: Final = 2038
NO_LICENSE_LEFT: Final = 2040  # now
MEMORY: Final = 2044  # more than the partition, or slurm.conf, allows
ACCOUNT: Final = 2045  # no such account, or the user or the partition may not use it
LICENSE: Final = 2048  # there is no such license, or not that many
LIMIT: Final = 2050  # a limit of the user, account or QOS, now (MaxSubmitJobs, MaxJobs, GrpTRES with `immediate`)
TIME: Final = 2051  # a longer time limit than the partition or QOS allows
RESERVATION: Final = 2053
QOS: Final = 2066
NODES_UNAVAILABLE: Final = 2068  # the nodes that would do are down, drained or reserved
NOT_UP: Final = 2070  # the partition
PARTITION_DOWN: Final = 2101  # an immediate allocation; jobs may wait in the queue of the partition
DEFERRED: Final = 2125  # SchedulerParameters=defer: no immediate allocations; the job may be submitted to the queue
NODE_EXISTS: Final = 2168
ANOTHERS_NAME: Final = 2172  # the job with this id has another name
TOPOLOGY: Final = 2178  # Slurm's topology has no such unit
UNANSWERED: Final = 5004  # slurmctld did not answer in time; it may have acted
USER: Final = 6010  # the host of slurmctld does not know the user
ACCOUNTING_AWAY: Final = 7000  # slurmrestd does not reach slurmdbd, or slurmdbd its database

# Advice on any request, behind Slurm's text.
ADVICE: Mapping[int, str] = {
    DEPENDENCY: "it does not know a job that this one depends on, or knows it no more",
    FEATURE: "no node of Slurm has such a feature (annotation constraints)",
    LICENSE: "there is no such license, or not that many",
}
# Advice on a change of a node, in sentences.
NODE_ADVICE: Mapping[int, str] = {
    NO_ADMIN: "Slurm lets only its administrators change nodes: name a token of SlurmUser in slurm_acting_token_file.",
    NODE_EXISTS: "Another client created it meanwhile.",
    TOPOLOGY: "Slurm's topology has no unit of that name: correct the node's label, or add the unit to topology.yaml.",
}
# An admin of Slurm can make Slurm accept the job: `remedy`.
OF_PARTITION: Final = (ACCESS, GROUP, CPUS, NODE_COUNT, CONFIGURATION, MEMORY, TIME)  # a limit of the partition
WITH_REMEDY: Final = frozenset({PARTITION, NO_DEFAULT, ACCOUNT, RESERVATION, QOS, NOT_UP, USER, *OF_PARTITION, LIMIT})


def remedy(number: int, user: str, *, account: str = "", partition: str = "", qos: str = "") -> str:
    """How an admin of Slurm makes Slurm accept the name that it refused by this number; the rest of a sentence.

    number                    one of WITH_REMEDY
    account, partition, qos   of the job; "": the job named none
    """
    partition = partition or "PARTITION"
    show = f"scontrol show partition {partition}"
    return {
        PARTITION: "sinfo -s lists the partitions",
        NO_DEFAULT: "scontrol update partition=PARTITION default=yes, or name a partition in the policy",
        ACCOUNT: _account_remedy(user, account, show),
        RESERVATION: "scontrol show reservation lists the reservations, and who may use each",
        QOS: _qos_remedy(user, qos, show),
        NOT_UP: f"scontrol update partition={partition} state=up",
        ACCESS: f"{show} shows who may use it (RootOnly, AllocNodes, ReqResv)",
        GROUP: f"{show} shows whose groups may use it (AllowGroups)",
        **dict.fromkeys(
            (CPUS, CONFIGURATION),
            f"{show} shows MaxCPUsPerNode, and sinfo -p {partition} -o '%n %c %m %G %f' what its nodes have",
        ),
        MEMORY: f"{show} shows MaxMemPerNode and MaxMemPerCPU; slurm.conf may limit memory, too",
        NODE_COUNT: f"{show} shows MinNodes and MaxNodes; a QOS may limit nodes, too",
        LIMIT: f"sacctmgr show association where user={user} account={account or 'ACCOUNT'} shows MaxSubmitJobs and more; "
        "the account and a QOS may have limits, too",
        TIME: f"{show} shows MaxTime; a QOS may limit times, too",
        USER: f"make the user known on the host of slurmctld, where `id {user}` must work",
    }[number]


def _account_remedy(user: str, account: str, show: str) -> str:
    excludes = f"see AllowAccounts and DenyAccounts in {show}"
    if not account:
        return (
            f"sacctmgr show association where user={user} shows the accounts of the user. If there are none: sacctmgr add "
            f"user {user} account=ACCOUNT. Otherwise the partition excludes the default account: {excludes}"
        )
    return (
        f"sacctmgr show association where user={user} account={account} shows if the user has the account. If not: sacctmgr "
        f"add user {user} account={account} (before that, sacctmgr add account {account} if Slurm has no such account). "
        f"Otherwise the partition excludes it: {excludes}"
    )


def _qos_remedy(user: str, qos: str, show: str) -> str:
    excludes = f"see AllowQos and DenyQos in {show}"
    lists = f"sacctmgr -P show association where user={user} format=account,defaultqos,qos shows"
    if not qos:
        return f"{lists} the default QOS of the user in each account. The partition may exclude it: {excludes}"
    return (
        f"{lists} if the user has the QOS. If not: sacctmgr modify user {user} set qos+={qos} (before that, sacctmgr add "
        f"qos {qos} if Slurm has no such QOS). Otherwise the partition excludes it: {excludes}"
    )

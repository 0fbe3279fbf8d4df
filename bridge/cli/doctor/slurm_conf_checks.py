"""Checks of slurm.conf: parameters that delay grants, that prevent them, or that external jobs cannot work with.

A parameter that slurm.conf lacks has Slurm's default (slurm.conf(5)), which the bridge expects: no warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.cli.doctor.findings import Check, Result, count, error, ok, some, warning
from bridge.cli.doctor.views import Observations
from bridge.slurm.admin_reads import Configuration, PartitionDetails

# Slurm's defaults of SchedulerParameters, and limits above which pods wait noticeably longer than with the defaults.
BATCH_SCHED_DELAY_S = 3
QUEUE_DEPTH = 100
BACKFILL_INTERVAL_S = 30
SCHED_INTERVAL_S = 60
LONG_BACKFILL_S = 120
LONG_MIN_INTERVAL_US = 1_000_000
FASTER = "Sooner grants by SchedulerParameters batch_sched_delay=0, default_queue_depth=5000, bf_interval=2"
FULL_SHARE = 0.8  # of MaxJobCount
FEW_A_SECOND = 5.0


def _scheduling(seen: Observations) -> Iterator[Result]:
    conf = seen.configuration.get()
    slow = list(_slow(conf))
    yield from slow
    if not slow:
        delay = _number(conf, "batch_sched_delay", BATCH_SCHED_DELAY_S)
        depth = _number(conf, "default_queue_depth", QUEUE_DEPTH)
        backfill = _number(conf, "bf_interval", BACKFILL_INTERVAL_S)
        is_fast = delay < 1 and depth >= 10 * QUEUE_DEPTH
        yield ok(
            f"slurmctld considers a waiting job within {max(1, delay)} s, {depth} jobs a pass; backfill every {backfill} s",
            "" if is_fast else FASTER,
        )


# Parameter, its default, the highest value that is no warning, and the effect of a higher one.
PERIODS = (
    ("batch_sched_delay", BATCH_SCHED_DELAY_S, BATCH_SCHED_DELAY_S, "slurmctld considers a new job only after {} s"),
    ("sched_interval", SCHED_INTERVAL_S, SCHED_INTERVAL_S, "slurmctld considers the whole queue only every {} s"),
    ("bf_interval", BACKFILL_INTERVAL_S, LONG_BACKFILL_S, "backfill and expected starts are computed only every {} s"),
    ("sched_min_interval", 2, LONG_MIN_INTERVAL_US, "at least {} µs between two scheduling passes"),
)


def _slow(conf: Configuration) -> Iterator[Result]:
    written = {parameter.partition("=")[0] for parameter in conf.scheduler_parameters}
    if conf.scheduler_type == "sched/builtin":
        yield warning(
            "SchedulerType=sched/builtin: a job that cannot start holds back all jobs behind it, and no start is predicted.",
            "SchedulerType=sched/backfill",
        )
    if "defer" in written:
        yield warning(
            "SchedulerParameters=defer: no immediate allocation (error 2125), so each pod waits in the queue first.",
            "Remove defer, or set defer_batch, which does not affect allocations.",
        )
    for name, default, most, effect in PERIODS:
        value = _number(conf, name, default)
        if value > most:
            yield warning(f"SchedulerParameters {name}={value}: {effect.format(value)}.", f"{name}={default} or less")
        elif value < 0:
            yield warning(
                f"SchedulerParameters {name}={value} turns that part of the scheduler off.", f"{name}={default}"
            )
    depth = _number(conf, "default_queue_depth", QUEUE_DEPTH)
    if depth < QUEUE_DEPTH:
        yield warning(
            f"SchedulerParameters default_queue_depth={depth}: slurmctld considers only so many jobs after each event.",
            f"default_queue_depth={QUEUE_DEPTH} or more",
        )


def _number(conf: Configuration, name: str, default: int) -> int:
    for parameter in conf.scheduler_parameters:
        key, _, value = parameter.partition("=")
        if key == name and value.removeprefix("-").isdecimal():
            return int(value)
    return default


def _job_limit(seen: Observations) -> Iterator[Result]:
    """Is MaxJobCount large enough?  Ended jobs count as long as slurmctld remembers them."""
    conf, jobs = seen.configuration.get(), seen.jobs.get()
    most, age_s = conf.max_job_count, conf.min_job_age_s
    keeps = f"MaxJobCount={most:,}, ended jobs count for {age_s:,} s (MinJobAge): {jobs:,} now"
    if age_s == 0:
        yield error(
            f"MinJobAge=0: slurmctld forgets no job, and accepts no job after {most:,} ({jobs:,} now).",
            "MinJobAge=300",
        )
        return
    needed = 2 * seen.chosen("poll_interval_s").poll_interval_s + 2
    if age_s < needed:
        yield warning(
            f"MinJobAge={age_s}: Slurm forgets ended jobs before the bridge has read how they ended.",
            f"MinJobAge={max(10, round(needed))} or more",
        )
    if jobs > FULL_SHARE * most:
        yield warning(
            f"Nearly full: {keeps}. Slurm accepts no job when it is full (error 2007).",
            "Raise MaxJobCount or lower MinJobAge.",
        )
    elif most / age_s < FEW_A_SECOND:
        yield warning(
            f"{keeps}: over time Slurm takes {most / age_s:.1f} jobs a second at most.",
            "Raise MaxJobCount or lower MinJobAge.",
        )
    else:
        yield ok(
            f"{keeps}; room for {most // age_s:,} new jobs a second over time, for {count(most - jobs, 'job')} now"
        )


def _resources(seen: Observations) -> Iterator[Result]:
    conf = seen.configuration.get()
    if conf.select_type == "select/linear":
        yield warning(
            "SelectType=select/linear gives whole nodes: each pod takes one for itself.",
            "SelectType=select/cons_tres with SelectTypeParameters=CR_Core_Memory",
        )
        return
    if not any("MEMORY" in parameter.upper() for parameter in conf.select_type_parameters):
        yield warning(
            "Slurm does not count memory (SelectTypeParameters): it grants nodes whose memory is in use, and the "
            "bridge releases these grants.",
            "SelectTypeParameters=CR_Core_Memory",
        )
    else:
        yield ok(f"{conf.select_type}, {','.join(conf.select_type_parameters)}: cores, memory and devices are counted")
    if not {"ALL", "ANY"} & {flag.upper() for flag in conf.enforce_part_limits}:
        yield ok(
            "EnforcePartLimits=NO: a pod that asks for more than its partition allows waits rather than is refused",
            "EnforcePartLimits=ALL",
        )
    if conf.job_submit_plugins:
        yield ok(f"job_submit plugins may change or refuse placeholders: {', '.join(conf.job_submit_plugins)}")


def _preemption(seen: Observations) -> Iterator[Result]:
    """Signals to an external job make slurmctld call a slurmd that is not there (Slurm facts 2)."""
    conf, details = seen.configuration.get(), seen.partition_details.get()
    if conf.preempt_type in ("", "preempt/none"):
        yield ok("none")
        return
    with_externals = {name for view in seen.slurm_nodes.get() if view.node.external for name in view.node.partitions}
    harmful = [name for name in sorted(with_externals) if name in details and _signals(details[name], conf)]
    if not harmful:
        yield ok(f"{conf.preempt_type}: preempted jobs get no signal (a signal would break external nodes)")
        return
    yield warning(
        f"Preemption with notice (GraceTime, SUSPEND) in partition {some(harmful)} leaves external nodes NOT_RESPONDING: "
        "they take no job until they are deleted and created again.",
        "Let these partitions be preempted at once (PreemptMode=REQUEUE or CANCEL, GraceTime=0), or keep external nodes "
        "out of them.",
    )


def _signals(partition: PartitionDetails, conf: Configuration) -> bool:
    own = {mode.upper() for mode in partition.preempt_mode}
    modes = own if own and "CLUSTER_GLOBAL" not in own else {mode.upper() for mode in conf.preempt_mode}
    return "SUSPEND" in modes or ("CANCEL" in modes and partition.grace_s > 0)


CHECKS = (
    Check("scheduling", _scheduling),
    Check("job limit", _job_limit),
    Check("resources", _resources),
    Check("preemption", _preemption),
)

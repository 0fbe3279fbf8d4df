"""Pod → job: every line of rules T and of K2, exact input and exact output.

A row is the rule, what the pod is and says, and what of the job differs from the one of a pod that says nothing.  The whole
job is compared, so a row also says what does not change.  What cannot be read is in test_job_options.py.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from bridge.settings import Settings
from scheduler import names
from scheduler.model.kubernetes import Container, Owner, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import MAX_NICE, UNLIMITED, JobSpec
from scheduler.place.fit import needs
from scheduler.policy.rules import ANY, Choice, Tenant
from scheduler.translate.job_spec import MOST_AMOUNT, MOST_CPUS, Translation, TranslationContext, jobspec, peak
from scheduler.translate.values import LONGEST_WAIT_S, MAX_MINUTES
from tests.builders import CLUSTER, MIB, OWNER, amounts, key_of, pod

ANYTHING = Choice("", (ANY,))
FREE = Tenant("alice", ANYTHING, ANYTHING, ANYTHING, ANYTHING)
LIMITS = {"": 1440, "gpu": 600, "endless": UNLIMITED}
GRES = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu", "nvidia.com/mig-1g.10gb": "gpu:1g.10gb"}
AROUND = TranslationContext(Translation(GRES, default_memory_mib=1024, ignored=("rdma/*",)), CLUSTER, LIMITS.get)
NOON = 1_800_014_400.0  # 2027-01-15 12:00:00 UTC, when the pods of this file were created
KEY = key_of(pod())
PLAIN = JobSpec(f"hpc/train~{CLUSTER}.{KEY}", "alice", cpus_per_task=1, memory_mib=1024, dependency="singleton")


def c(*, sidecar: bool = False, limits: dict[str, int] | None = None, **wants: int) -> Container:
    return Container("c", requests=amounts(**wants), limits=limits or {}, sidecar=sidecar)


def of(*containers: Container, says: dict[str, str] | None = None, **given: Any) -> Pod:
    return pod(containers=containers or (c(),), says=says or {}, created=NOON, **given)


def saying(key: str, value: str) -> Pod:
    return of(says={key: value})


LINES: list[tuple[str, Pod, dict[str, Any]]] = [
    ("T3, T4 a pod that asks for nothing", of(), {}),
    # T1: as Kubernetes counts
    ("T1 containers add up", of(c(cpu=1000), c(cpu=2000, memory=3)), {"cpus_per_task": 3, "memory_mib": 3}),
    ("T1 an init container is larger", of(c(cpu=1000), init_containers=(c(cpu=4000),)), {"cpus_per_task": 4}),
    ("T1 an init container is smaller", of(c(cpu=5000), init_containers=(c(cpu=4000),)), {"cpus_per_task": 5}),
    ("T1 init containers do not add up", of(init_containers=(c(cpu=3000), c(cpu=2000))), {"cpus_per_task": 3}),
    (
        "T1 an init container runs beside the sidecars before it",
        of(c(cpu=1000), init_containers=(c(cpu=1000, sidecar=True), c(cpu=4000))),
        {"cpus_per_task": 5},
    ),
    ("T1 overhead comes on top", of(c(cpu=1000), overhead=amounts(cpu=1000)), {"cpus_per_task": 2}),
    ("T1 the pod's own resources win", of(c(cpu=1000), pod_requests=amounts(cpu=3000)), {"cpus_per_task": 3}),
    # T2: the larger of request and limit
    ("T2 a limit above the request", of(c(cpu=1000, limits=amounts(cpu=2500))), {"cpus_per_task": 3}),
    ("T2 a limit without a request", of(c(limits=amounts(memory=2048))), {"memory_mib": 2048}),
    (
        "T2 a request of the pod caps no limit of its containers",
        of(c(cpu=1000, limits=amounts(cpu=8000)), pod_requests=amounts(cpu=1000)),
        {"cpus_per_task": 8},
    ),
    (
        "T2 a limit of the pod caps those of its containers",
        of(c(cpu=1000, limits=amounts(cpu=8000)), pod_requests=amounts(cpu=1000), pod_limits=amounts(cpu=2000)),
        {"cpus_per_task": 2},
    ),
    (
        "T2 a limit of the pod",
        of(c(), pod_requests=amounts(cpu=2000), pod_limits=amounts(cpu=6000)),
        {"cpus_per_task": 6},
    ),
    # T3: whole CPUs, at least one
    ("T3 100m", of(c(cpu=100)), {"cpus_per_task": 1}),
    ("T3 1.5", of(c(cpu=1500)), {"cpus_per_task": 2}),
    ("T3 init 4 beside app 1", of(c(cpu=1000), init_containers=(c(cpu=4000),)), {"cpus_per_task": 4}),
    ("T3 overhead 250m + 1", of(c(cpu=1000), overhead=amounts(cpu=250)), {"cpus_per_task": 2}),
    # T4: MiB, rounded up, always sent
    ("T4 512Ki", of(Container("c", requests={"memory": 512 * 1024})), {"memory_mib": 1}),
    ("T4 one byte more than 1Mi", of(Container("c", requests={"memory": MIB + 1})), {"memory_mib": 2}),
    ("T4 10^9", of(Container("c", requests={"memory": 10**9})), {"memory_mib": 954}),
    ("T4 asked for 0", of(Container("c", requests={"memory": 0})), {"memory_mib": 1024}),
    # T5: extended resources
    ("T5 devices of all containers add up", of(c(gpu=1), c(gpu=2)), {"gres": (("gpu", 3),)}),
    ("T5 and of sidecars", of(c(gpu=1), init_containers=(c(gpu=1, sidecar=True),)), {"gres": (("gpu", 2),)}),
    ("T5 two names, one GRES", of(Container("c", {"nvidia.com/gpu": 1, "amd.com/gpu": 1})), {"gres": (("gpu", 2),)}),
    ("T5 a MIG slice", of(Container("c", {"nvidia.com/mig-1g.10gb": 3})), {"gres": (("gpu:1g.10gb", 3),)}),
    (
        "T5 several kinds",
        of(Container("c", {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/gpu": 2})),
        {"gres": (("gpu", 2), ("gpu:1g.10gb", 1))},
    ),
    ("T5 none of it", of(Container("c", {"nvidia.com/gpu": 0})), {}),
    ("T5 one that is ignored only limits the nodes", of(Container("c", {"rdma/hca": 1})), {}),
    (
        "T5 Kubernetes' own resources are no devices",
        of(Container("c", {"hugepages-2Mi": 4, "ephemeral-storage": 5})),
        {},
    ),
    # T6: an annotation may ask for more
    ("T6 CPUs", of(c(cpu=1500), says={"cpus-per-task": "7"}), {"cpus_per_task": 7}),
    ("T6 as many CPUs", of(c(cpu=1500), says={"cpus-per-task": "2"}), {"cpus_per_task": 2}),
    ("T6 memory", of(c(memory=100), says={"memory": "100"}), {"memory_mib": 100}),
    ("T6 less than the default of a pod that asks for none", saying("memory", "5"), {"memory_mib": 5}),
    ("T6 devices of a type", of(c(gpu=2), says={"gres": "gpu:h100:2"}), {"gres": (("gpu:h100", 2),)}),
    ("T6 of two types", of(c(gpu=2), says={"gres": "gpu:h100:1,gpu:1"}), {"gres": (("gpu", 1), ("gpu:h100", 1))}),
    ("T6 other devices besides", of(c(gpu=2), says={"gres": "gpu:3,shard:1"}), {"gres": (("gpu", 3), ("shard", 1))}),
    (
        "T6 slices and whole devices",
        of(
            Container("c", {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/gpu": 1}),
            says={"gres": "gpu:1g.10gb:1,gpu:h100:1"},
        ),
        {"gres": (("gpu:1g.10gb", 1), ("gpu:h100", 1))},
    ),
    # T7: time limit (more of it below)
    ("T7 a deadline, rounded up", of(active_deadline_s=601), {"time_limit_min": 11}),
    ("T7 the annotation first", of(active_deadline_s=601, says={"time-limit": "5"}), {"time_limit_min": 5}),
    (
        "T7 a least that is the limit",
        of(says={"time-limit": "30", "time-min": "30"}),
        {"time_limit_min": 30, "time_least_min": 30},
    ),
    ("T7 a service", of(restart_policy="Always"), {"time_limit_min": 1440}),
    # T10
    ("T10 nothing is exclusive unless asked", of(c(cpu=64000, gpu=8)), {"cpus_per_task": 64, "gres": (("gpu", 8),)}),
    # K: every key
    ("K account", saying("account", "teama"), {"account": "teama"}),
    ("K partition", saying("partition", "gpu"), {"partition": "gpu"}),
    ("K qos", saying("qos", "high"), {"qos": "high"}),
    ("K reservation", saying("reservation", "maint,-other"), {"reservation": "maint,-other"}),
    ("K constraints", saying("constraints", "[rack1*2&rack2*4]|ib"), {"constraints": "[rack1*2&rack2*4]|ib"}),
    ("K wckey", saying("wckey", "grant-7"), {"wckey": "grant-7"}),
    ("K comment", saying("comment", "run №7 of 12"), {"comment": "run №7 of 12"}),
    (
        "K job-name",
        saying("job-name", "bert ~ large"),
        {"name": f"bert ~ large~{CLUSTER}.{KEY}", "comment": "hpc/train"},
    ),
    ("K time-limit M", saying("time-limit", "90"), {"time_limit_min": 90}),
    ("K time-limit M:S", saying("time-limit", "1:30"), {"time_limit_min": 2}),
    ("K time-limit H:M:S", saying("time-limit", "1:30:00"), {"time_limit_min": 90}),
    ("K time-limit a second", saying("time-limit", "0:0:1"), {"time_limit_min": 1}),
    ("K time-limit D-H", saying("time-limit", "2-12"), {"time_limit_min": 3600}),
    ("K time-limit D-H:M", saying("time-limit", "2-12:30"), {"time_limit_min": 3630}),
    ("K time-limit D-H:M:S", saying("time-limit", "1-00:00:01"), {"time_limit_min": 1441}),
    ("K time-limit none", saying("time-limit", "unlimited"), {"time_limit_min": UNLIMITED}),
    (
        "K time-min",
        of(says={"time-limit": "2:00:00", "time-min": "0:10:00"}),
        {"time_limit_min": 120, "time_least_min": 10},
    ),
    ("K time-min of the default limit", saying("time-min", "10"), {"time_least_min": 10}),
    (
        "K time-min without a limit",
        of(says={"time-limit": "UNLIMITED", "time-min": "10"}),
        {"time_limit_min": UNLIMITED, "time_least_min": 10},
    ),
    ("K signal is no part of the job", saying("signal", "B:USR1@300"), {}),
    ("K time-limit infinite", saying("time-limit", "INFINITE"), {"time_limit_min": UNLIMITED}),
    ("K nice", saying("nice", "100"), {"nice": 100}),
    ("K nice 0", saying("nice", "0"), {"nice": 0}),
    ("K nice at most", saying("nice", str(MAX_NICE)), {"nice": MAX_NICE}),
    ("K exclusive", saying("exclusive", "true"), {"exclusive": "exclusive"}),
    ("K exclusive as Slurm names it", saying("exclusive", "Exclusive"), {"exclusive": "exclusive"}),
    ("K exclusive user", saying("exclusive", "user"), {"exclusive": "user"}),
    ("K exclusive mcs", saying("exclusive", "mcs"), {"exclusive": "mcs"}),
    ("K exclusive false", saying("exclusive", "false"), {}),
    ("K gres", saying("gres", "gpu"), {"gres": (("gpu", 1),)}),
    ("K gres of two kinds", saying("gres", "gpu:h100:2,shard:4"), {"gres": (("gpu:h100", 2), ("shard", 4))}),
    ("K gres as Slurm shows it", saying("gres", "gres/gpu:1g.10gb:3"), {"gres": (("gpu:1g.10gb", 3),)}),
    ("K gres twice", saying("gres", "gpu:1,gpu:2"), {"gres": (("gpu", 3),)}),
    ("K cpus-per-task", saying("cpus-per-task", "8"), {"cpus_per_task": 8}),
    ("K memory", saying("memory", "4096"), {"memory_mib": 4096}),
    ("K memory M", saying("memory", "4096M"), {"memory_mib": 4096}),
    ("K memory G", saying("memory", "4G"), {"memory_mib": 4096}),
    ("K memory as Kubernetes writes it", saying("memory", "4Gi"), {"memory_mib": 4096}),
    ("K memory spelled out", saying("memory", "4 GiB"), {"memory_mib": 4096}),
    ("K memory K, rounded up", saying("memory", "1025K"), {"memory_mib": 2}),
    ("K memory T", saying("memory", "2T"), {"memory_mib": 2 * 1024 * 1024}),
    ("K min-nodes of a single pod", saying("min-nodes", "1"), {}),
    ("K max-nodes of a single pod", saying("max-nodes", "1"), {}),
    ("K licenses", saying("licenses", "matlab"), {"licenses": (("matlab", 1),)}),
    (
        "K licenses with server and count",
        saying("licenses", "matlab@flex:2, ansys:3"),
        {"licenses": (("ansys", 3), ("matlab@flex", 2))},
    ),
    ("K licenses none", saying("licenses", "matlab:0"), {}),
    ("K switches", saying("switches", "2"), {"switches": (2, LONGEST_WAIT_S)}),
    ("K switches with a time", saying("switches", "1@1:00:00"), {"switches": (1, 3600)}),
    ("K switches with minutes", saying("switches", "1@5"), {"switches": (1, 300)}),
    ("K begin now", saying("begin", "now"), {"begin": int(NOON)}),
    ("K begin in seconds", saying("begin", "now+90"), {"begin": int(NOON) + 90}),
    ("K begin in an hour", saying("begin", "now+1hour"), {"begin": int(NOON) + 3600}),
    ("K begin in two weeks", saying("begin", "NOW + 2 weeks"), {"begin": int(NOON) + 14 * 86400}),
    ("K begin at a time of that day", saying("begin", "16:30"), {"begin": int(NOON) + 16200}),
    ("K begin at that very time", saying("begin", "12:00:00Z"), {"begin": int(NOON)}),
    ("K begin at a time of the next day", saying("begin", "11:59:59"), {"begin": int(NOON) + 86399}),
    ("K begin on a day", saying("begin", "2027-01-16"), {"begin": int(NOON) + 12 * 3600}),
    ("K begin at a moment", saying("begin", "2027-01-15T12:00:30"), {"begin": int(NOON) + 30}),
    ("K begin at a moment, UTC", saying("begin", "2027-01-15T12:01Z"), {"begin": int(NOON) + 60}),
    ("K begin at a moment, elsewhere", saying("begin", "2027-01-15T14:00:00+01:00"), {"begin": int(NOON) + 3600}),
    ("K begin long ago", saying("begin", "1969-12-31"), {"begin": 1}),
    ("K dependency", saying("dependency", "afterany:8"), {"dependency": "singleton,afterany:8"}),
    (
        "K dependency on several",
        saying("dependency", "afterok:8:9, afternotok:10"),
        {"dependency": "singleton,afterok:8:9,afternotok:10"},
    ),
    ("K dependency on a start", saying("dependency", "after:8+5:9"), {"dependency": "singleton,after:8+5:9"}),
    ("K dependency on an array", saying("dependency", "AfterCorr:8_*"), {"dependency": "singleton,aftercorr:8_*"}),
    ("K singleton is there anyhow", saying("dependency", "singleton"), {}),
    ("K singleton is there once", saying("dependency", "afterany:8,singleton"), {"dependency": "singleton,afterany:8"}),
]


def becomes(what: Pod, *owners: Owner, tenant: Tenant = FREE) -> JobSpec | Refusal:
    return jobspec(what, owners, tenant, AROUND, KEY)


@pytest.mark.parametrize(("what", "differs"), [line[1:] for line in LINES], ids=[line[0] for line in LINES])
def test_a_pod_becomes_exactly_this_job(what: Pod, differs: dict[str, Any]) -> None:
    assert becomes(what) == replace(PLAIN, **differs)


def test_the_table_above_has_every_key_and_every_field_that_a_single_pod_can_choose() -> None:
    said = {key.removeprefix(names.PREFIX) for _, what, _ in LINES for key in what.annotations}
    assert said == names.JOB_OPTIONS
    gangs = {"tasks", "tasks_per_node", "min_nodes", "max_nodes", "parts"}
    chosen = {field for _, _, differs in LINES for field in differs}
    assert chosen == {field.name for field in fields(JobSpec)} - {"user", "excluded_nodes", "required_nodes"} - gangs


NO = [
    (
        "K a limit that is shorter than its least",
        of(says={"time-limit": "30", "time-min": "40"}),
        'Annotation slurm-bridge/time-min: "40" asks for at least 40 minutes, but the time limit is 30: lower it, or raise '
        "the limit.",
    ),
    (
        "K a least that exceeds the pod's own deadline",
        of(active_deadline_s=600, says={"time-min": "11"}),
        'Annotation slurm-bridge/time-min: "11" asks for at least 11 minutes, but the time limit is 10: lower it, or raise '
        "the limit.",
    ),
    (
        "K several partitions",
        saying("partition", "gpu,main"),
        'Annotation slurm-bridge/partition: "gpu,main" names several partitions; name one.',
    ),
    (
        "K a least without end",
        saying("time-min", "UNLIMITED"),
        'Annotation slurm-bridge/time-min: "UNLIMITED" means no limit: name the shortest time limit that the job can use.',
    ),
    (
        "K a signal that nobody knows",
        saying("signal", "SIGNONSENSE@300"),
        'Annotation slurm-bridge/signal: "SIGNONSENSE@300" is neither a number of seconds nor a signal as sbatch --signal '
        "takes it (TERM@120, B:USR1@300).",
    ),
    (
        "T8 a value that cannot be read",
        saying("nice", "NaN"),
        f'Annotation slurm-bridge/nice: "NaN" is not a whole number from 0 to {MAX_NICE:,}.',
    ),
    (
        "T9 control characters",
        saying("comment", "two\nlines"),
        'Annotation slurm-bridge/comment: "two�lines" has control characters.',
    ),
    (
        "T9 length",
        saying("job-name", "x" * 201),
        f'Annotation slurm-bridge/job-name: "{"x" * 60}…" is longer than 200 characters.',
    ),
    (
        "T11 resource claims",
        of(refused_fields=("resourceClaims (dynamic resource allocation)",)),
        "Not supported yet: resourceClaims (dynamic resource allocation). Remove them from the pod, or use another "
        "scheduler.",
    ),
    (
        "K more nodes than a pod can stand on",
        saying("min-nodes", "2"),
        "Annotation slurm-bridge/min-nodes: 2 nodes, but a single pod runs on one node. Remove the annotation.",
    ),
    (
        "K alternatives in a dependency",
        saying("dependency", "afterok:8?afterok:9"),
        'Annotation slurm-bridge/dependency: "afterok:8?afterok:9" joins alternatives by ?; join '
        "conditions by commas, which means that all must hold.",
    ),
    (
        "K a begin that means another day in another country",
        saying("begin", "02/03/27"),
        'Annotation slurm-bridge/begin: "02/03/27" is not a known time format; examples: now+1hour, 16:30, '
        "2027-03-31T16:30:00Z (UTC).",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("what", "sentence"), [line[1:] for line in NO], ids=[line[0] for line in NO])
def test_a_pod_that_cannot_become_a_job_shows_exactly_this(what: Pod, sentence: str) -> None:
    assert becomes(what) == Refusal(names.REFUSED, sentence)


LESS = "The annotation may ask for more, not for less: raise it, or remove it."
TAKE = "but the containers of the pod take"
WITH = "(the larger of requests and limits, with overhead)"
MIG = Container("c", {"nvidia.com/mig-1g.10gb": 2})
UNDERSTATED = [
    ("CPUs", of(c(cpu=60000), says={"cpus-per-task": "1"}), 'cpus-per-task: "1" asks for 1 CPUs', "60"),
    ("a part of a CPU", of(c(cpu=1001), says={"cpus-per-task": "1"}), 'cpus-per-task: "1" asks for 1 CPUs', "2"),
    (
        "less than the limit",
        of(c(cpu=1000, limits=amounts(cpu=4000)), says={"cpus-per-task": "3"}),
        'cpus-per-task: "3" asks for 3 CPUs',
        "4",
    ),
    (
        "less than an init container",
        of(c(cpu=1000), init_containers=(c(cpu=4000),), says={"cpus-per-task": "3"}),
        'cpus-per-task: "3" asks for 3 CPUs',
        "4",
    ),
    (
        "less than the overhead adds",
        of(c(memory=100), overhead=amounts(memory=28), says={"memory": "100M"}),
        'memory: "100M" asks for 100 MiB',
        "128 MiB",
    ),
    ("no devices", of(c(gpu=4), says={"gres": "gpu:0"}), 'gres: "gpu:0" asks for 0 gpu', "4 gpu"),
    ("fewer", of(c(gpu=4), says={"gres": "gpu:h100:3"}), 'gres: "gpu:h100:3" asks for 3 gpu', "4 gpu"),
    ("other devices", of(c(gpu=1), says={"gres": "shard:8"}), 'gres: "shard:8" asks for 0 gpu', "1 gpu"),
    (
        "slices for whole devices",
        of(c(gpu=1), says={"gres": "gpu:1g.10gb:1"}),
        'gres: "gpu:1g.10gb:1" asks for 0 gpu',
        "1 gpu",
    ),
    ("any device for slices", of(MIG, says={"gres": "gpu:2"}), 'gres: "gpu:2" asks for 0 gpu:1g.10gb', "2 gpu:1g.10gb"),
    (
        "one device counted twice",
        of(MIG, c(gpu=1), says={"gres": "gpu:1g.10gb:3"}),
        'gres: "gpu:1g.10gb:3" asks for 0 gpu',
        "1 gpu",
    ),
    (
        "whatever is exclusive",
        of(c(cpu=4000), says={"cpus-per-task": "1", "exclusive": "true"}),
        'cpus-per-task: "1" asks for 1 CPUs',
        "4",
    ),
]


@pytest.mark.parametrize(
    ("what", "asks", "take"), [line[1:] for line in UNDERSTATED], ids=[each[0] for each in UNDERSTATED]
)
def test_no_user_is_charged_for_less_than_the_containers_take(what: Pod, asks: str, take: str) -> None:
    """T6: kubelet gives them what their spec says, whatever Slurm charges."""
    assert becomes(what) == Refusal(names.REFUSED, f"Annotation slurm-bridge/{asks}, {TAKE} {take} {WITH}. {LESS}")


@pytest.mark.parametrize(
    ("alias", "value", "asks"),
    [("cpu-per-task", "1", "1 CPUs"), ("mem-per-node", "1M", "1 MiB"), ("gres", "gpu:1", "1 gpu")],
)
def test_an_understatement_by_an_alias_or_by_an_owner_is_reported_as_it_was_written(
    alias: str, value: str, asks: str
) -> None:
    key = names.ALIAS_PREFIX + alias
    large = of(c(cpu=2000, memory=2, gpu=2))
    by_pod = becomes(replace(large, annotations={key: value}))
    assert isinstance(by_pod, Refusal)
    assert by_pod.message.startswith(f'Annotation {key}: "{value}" asks for {asks}, {TAKE} 2')
    by_owner = becomes(large, Owner(OWNER, annotations={key: value}))
    assert isinstance(by_owner, Refusal)
    assert by_owner.message.startswith(f'Annotation {key} of ReplicaSet web: "{value}" asks for {asks}, {TAKE} 2')


def test_a_device_that_slurm_does_not_count_is_refused_unless_the_admin_lets_pods_take_it() -> None:
    """T5."""
    assert becomes(of(Container("c", limits={"example.org/fpga": 1}))) == Refusal(
        names.REFUSED,
        "The pod asks for example.org/fpga, which Slurm does not count. An admin names its GRES (settings: gres), or lets "
        "pods use it uncounted (settings: ignored_resources).",
    )
    assert isinstance(becomes(of(Container("c", {"example.org/fpga": 0}))), JobSpec)


# --- what the job does not show -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "cpu", "memory_mib"),
    [
        pytest.param(of(c(cpu=1000), c(cpu=500, memory=3)), 1500, 3, id="containers add up"),
        pytest.param(of(c(cpu=1000), init_containers=(c(cpu=500, sidecar=True),)), 1500, 0, id="a sidecar runs beside"),
        pytest.param(
            of(c(cpu=100), init_containers=(c(cpu=2000), c(cpu=500, sidecar=True))),
            2000,
            0,
            id="an init container does not run beside the sidecars after it",
        ),
        pytest.param(
            of(c(), init_containers=(c(cpu=500, sidecar=True), c(cpu=700, sidecar=True))), 1200, 0, id="sidecars alone"
        ),
        pytest.param(
            of(c(cpu=1000, memory=10), pod_requests=amounts(cpu=3000), overhead=amounts(cpu=250)),
            3250,
            10,
            id="overhead on top of the pod's own, which win where set",
        ),
        pytest.param(of(c(cpu=1000, limits=amounts(cpu=9000))), 1000, 0, id="kubernetes counts requests"),
    ],
)
def test_needs_are_counted_as_kubernetes_counts_them(pod: Pod, cpu: int, memory_mib: int) -> None:
    """T1, to the millicore; and the pod itself is one of the node's `pods`."""
    counted = needs(pod)
    assert (counted.get("cpu", 0), counted.get("memory", 0), counted["pods"]) == (cpu, memory_mib * MIB, 1)


def test_the_larger_of_request_and_limit_is_taken_container_by_container() -> None:
    """T2."""
    assert peak(of(c(cpu=1000, limits=amounts(cpu=2000)), c(cpu=1000)))["cpu"] == 3000
    assert peak(of(c(cpu=3000, limits=amounts(cpu=2500))))["cpu"] == 3000
    assert peak(of(c(cpu=1000, limits=amounts(memory=1))))["cpu"] == 1000


def test_an_unmapped_resource_still_limits_the_nodes() -> None:
    """T5, F1."""
    assert needs(of(Container("c", requests={"example.org/fpga": 1})))["example.org/fpga"] == 1


def test_the_usual_devices_are_mapped_without_a_setting() -> None:
    """T5."""
    usual = Settings().config(accounting=True).translation.gres
    assert {
        "nvidia.com/gpu": "gpu",
        "amd.com/gpu": "gpu",
        "nvidia.com/mig-1g.10gb": "gpu:1g.10gb",
    }.items() <= usual.items()


# --- T7: time limit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "given", "owner_deadline_s", "minutes"),
    [
        pytest.param({}, {"active_deadline_s": 1}, None, 1, id="at least one"),
        pytest.param({}, {}, 0, 1, id="at least one, of a Job that ends at once"),
        pytest.param({}, {}, 2**63 - 1, MAX_MINUTES, id="no more than Slurm can count"),
        pytest.param({}, {}, 7200, 120, id="that of its batch Job"),
        pytest.param({}, {"active_deadline_s": 600}, 300, 5, id="whichever ends first"),
        pytest.param({}, {"restart_policy": "Always", "active_deadline_s": 600}, None, 10, id="a service with a deadline"),
        pytest.param({"partition": "gpu"}, {"restart_policy": "Always"}, None, 600, id="a service: as long as its partition"),
        pytest.param({"partition": "endless"}, {"restart_policy": "Always"}, None, UNLIMITED, id="for ever where allowed"),
        pytest.param({"partition": "new"}, {"restart_policy": "Always"}, None, None, id="not known: Slurm's default"),
        pytest.param({}, {"restart_policy": "OnFailure"}, None, None, id="else Slurm's default"),
        pytest.param({}, {"restart_policy": "Never"}, None, None, id="and here"),
    ],
)  # fmt: skip
def test_the_time_limit(
    says: dict[str, str], given: dict[str, Any], owner_deadline_s: int | None, minutes: int | None
) -> None:
    spec = becomes(of(says=says, **given), Owner(OWNER, active_deadline_s=owner_deadline_s))
    assert isinstance(spec, JobSpec)
    assert spec.time_limit_min == minutes


# --- I1, I6: only within the policy -------------------------------------------------------------------------------

BOUNDED = Tenant("alice", Choice("teama", ("teama-dev",)), Choice("main", ("gpu",)), Choice(), Choice())


@pytest.mark.parametrize(
    ("says", "differs"),
    [
        ({}, {"account": "teama", "partition": "main"}),
        ({"account": "teama-dev", "partition": "gpu"}, {"account": "teama-dev", "partition": "gpu"}),
    ],
    ids=["what the pod does not say is the policy's default", "what the policy allows may be chosen"],
)
def test_within_the_policy(says: dict[str, str], differs: dict[str, str]) -> None:
    assert becomes(of(says=says), tenant=BOUNDED) == replace(PLAIN, **differs)


NO_VALUE = "No value may be chosen here: ask for none, or have the admin allow this one in the policy."


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("account", "teamx", 'The account "teamx" is not allowed for namespace hpc. Allowed here: teama, teama-dev.'),
        ("partition", "big", 'The partition "big" is not allowed for namespace hpc. Allowed here: gpu, main.'),
        ("qos", "high", 'The qos "high" is not allowed for namespace hpc. ' + NO_VALUE),
        ("reservation", "r", 'The reservation "r" is not allowed for namespace hpc. ' + NO_VALUE),
    ],
)
def test_what_the_policy_does_not_allow_is_refused_and_says_what_is(key: str, value: str, sentence: str) -> None:
    assert becomes(saying(key, value), tenant=BOUNDED) == Refusal(names.REFUSED, sentence)


def test_a_pod_that_asks_for_more_than_slurm_can_count_is_refused_with_its_amounts() -> None:
    refused = jobspec(pod(cpu=10**16, gpu=2), (), FREE, AROUND, KEY)
    assert isinstance(refused, Refusal)
    assert refused.message == "The pod asks for more than any node has: 10,000,000,000,000 CPUs, 100 MiB, 2 gpu."
    assert isinstance(becomes(pod(cpu=MOST_CPUS * 1000)), JobSpec)
    assert isinstance(becomes(pod(cpu=MOST_CPUS * 1000 + 1)), Refusal)
    assert isinstance(becomes(pod(gpu=MOST_AMOUNT)), JobSpec)
    assert isinstance(becomes(pod(gpu=MOST_AMOUNT + 1)), Refusal)


def test_an_annotation_for_more_cpus_than_slurm_counts_is_refused() -> None:
    """slurmrestd cuts the number to 16 bits: the job got 1 CPU, and the grant was released again and again as too small."""
    assert isinstance(becomes(of(says={"cpus-per-task": "65533"})), JobSpec)
    refused = becomes(of(says={"cpus-per-task": "65537"}))
    assert isinstance(refused, Refusal)
    assert refused.message.startswith("The pod asks for more than any node has: 65,537 CPUs, ")

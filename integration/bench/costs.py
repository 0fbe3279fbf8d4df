"""The cost of a scenario, as figures: processor time and memory of the bridge and of the servers that it uses."""

from __future__ import annotations

from integration.bench.figures import Figure, Target
from integration.bench.processes import Spent

API_SERVER = "kube-apiserver"
SERVERS = ("slurmctld", "slurmrestd", API_SERVER, "etcd")
MS_PER_S = 1000
PER_CENT = 100


def per_pod(
    scenario: str,
    bridge: Spent,
    floor: Spent,
    pods: int,
    target: Target | None = None,
    of_api_server: Target | None = None,
) -> list[Figure]:
    """Processor time for each pod, of the bridge (the floor) and of the servers while it (the floor) was at work.

    target   of the bridge; of_api_server: of kube-apiserver
    """

    def figure(name: str, beside: str, target: Target | None) -> Figure:
        value, compared = (spent / pods * MS_PER_S for spent in (bridge.cpu_s[name], floor.cpu_s[beside]))
        return Figure(scenario, f"{name}: CPU a pod", "ms", (value,), target, (compared,))

    return [
        figure("bridge", "floor", target),
        *(figure(name, name, of_api_server if name == API_SERVER else None) for name in (*SERVERS, "bench")),
        Figure(scenario, "others on this machine", "cores", (bridge.others,), None, (floor.others,)),
    ]


def of_ends(scenario: str, what: str, spent: Spent, floor: Spent, ends: int) -> list[Figure]:
    """Processor time for each end, of the bridge (the floor) and of the servers while it (the floor) follows the ends."""

    def figure(name: str, beside: str) -> Figure:
        value, compared = (each.cpu_s[which] / ends * MS_PER_S for each, which in ((spent, name), (floor, beside)))
        return Figure(scenario, f"{what}: {name}: CPU an end", "ms", (value,), None, (compared,))

    others = Figure(scenario, f"{what}: others on this machine", "cores", (spent.others,), None, (floor.others,))
    return [figure("bridge", "floor"), *(figure(name, name) for name in (*SERVERS, "bench")), others]


def of_a_core(scenario: str, spent: Spent, target: Target | None = None) -> list[Figure]:
    """Processor time as a share of one core.

    target   of the bridge
    """

    def figure(name: str, target: Target | None) -> Figure:
        return Figure(scenario, f"{name}: CPU", "% of a core", (spent.cpu_s[name] / spent.seconds * PER_CENT,), target)

    return [
        figure("bridge", target),
        *(figure(name, None) for name in SERVERS),
        Figure(scenario, "others on this machine", "cores", (spent.others,)),
    ]


def memory(scenario: str, spent: Spent, target: Target | None = None) -> list[Figure]:
    """The most that each had since peaks were forgotten.

    target   of the bridge
    """

    def figure(name: str, target: Target | None) -> Figure:
        return Figure(scenario, f"{name}: peak memory", "MiB", (spent.peak_mib[name],), target)

    return [figure("bridge", target), *(figure(name, None) for name in SERVERS)]

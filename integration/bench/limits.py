"""What the machine allows: the CPU time of all processes limits a burst and many ends, with the floor and with the bridge."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from textwrap import fill

from integration.bench.figures import Figure

BURST = "burst-4000"
CPU = ": CPU a pod"
ENDS, MANY = "ends", "200 jobs end a second: "
CPU_OF_END = ": CPU an end"
ENDS_A_SECOND = 200
SERVERS = ("slurmctld", "slurmrestd", "kube-apiserver", "etcd")


def burst_limit(figures: Sequence[Figure]) -> str:
    """What the targets of a burst of 4,000 need on the measured machine; empty if it was not measured."""
    of = {figure.name: figure for figure in figures if figure.scenario == BURST}
    bridge, rate = of.get("bridge" + CPU), of.get("pods bound a second")
    if not bridge or not rate or not bridge.target or not rate.target:
        return ""
    cpu = [of[name + CPU] for name in ("bridge", *SERVERS, "bench")]
    floor, whole = sum(map(_floor, cpu)), sum(each.median for each in cpu)
    asked, ratio = bridge.target.bound, rate.target.bound
    best = floor + asked - _floor(bridge)
    more = sum(of[name + CPU].median - _floor(of[name + CPU]) for name in SERVERS)
    needed = floor / ratio - floor + _floor(bridge)
    verdict = "is enough" if needed >= asked else "is not enough"
    return _item(
        f"* **A burst of 4,000 beside the floor.** With the floor all processes together take {floor:.2f} ms of CPU time for "
        f"a pod, of which the floor takes {_floor(bridge):.2f} ms; at {_floor(rate):.0f} pods a second these are "
        f"{floor * _floor(rate) / 1000:.2f} cores. With the bridge it is {whole:.2f} ms, at {rate.median:.0f} pods a second "
        f"{whole * rate.median / 1000:.2f} cores. A bridge of exactly the asked {asked:g} ms, whose servers take no more "
        f"than with the floor, would make it {floor:.2f} + {asked:g} − {_floor(bridge):.2f} = {best:.2f} ms. If the cores "
        f"are as busy as with the floor, {floor / best:.2f} times as many pods are bound then. {ratio:g} of the floor needs "
        f"a bridge of {needed:.2f} ms on this machine, so {asked:g} ms {verdict}. The rest of the difference are the "
        f"servers: they take {more:.1f} ms more for a pod beside the bridge."
    )


def ends_limit(figures: Sequence[Figure]) -> str:
    """How much of the measured machine 200 ends of jobs a second take; empty if they were not measured."""
    of = {figure.name.removeprefix(MANY): figure for figure in figures if figure.scenario == ENDS}
    waits = of.get("the last tenth, p99")
    if not waits or not waits.compared:
        return ""
    cpu = {name: of[name + CPU_OF_END] for name in ("bridge", *SERVERS, "bench")}
    floor, whole = sum(map(_floor, cpu.values())), sum(each.median for each in cpu.values())
    kube, slurm = [cpu["kube-apiserver"], cpu["etcd"]], [cpu["slurmctld"], cpu["slurmrestd"]]
    return _item(
        f"* **200 jobs end a second: the machine.** An end takes {floor:.1f} ms of all processors with the floor and "
        f"{whole:.1f} ms with the bridge, so 200 ends a second take {floor * ENDS_A_SECOND / 1000:.2f} and "
        f"{whole * ENDS_A_SECOND / 1000:.2f} cores. Of these, kube-apiserver and etcd take "
        f"{sum(map(_floor, kube)):.1f} and {sum(each.median for each in kube):.1f} ms, slurmctld and slurmrestd "
        f"{sum(map(_floor, slurm)):.1f} and {sum(each.median for each in slurm):.1f} ms, the floor "
        f"{_floor(cpu['bridge']):.1f} and the bridge {cpu['bridge'].median:.1f} ms. If the cores are nearly or wholly busy, "
        f"the ends queue up: the last tenth waits {_floor(waits):.1f} s with the floor and {waits.median:.1f} s with the "
        "bridge (p99), though the difference of the work is small. A restarted bridge knows jobs by their ids alone, and "
        "reads each of them before it ends the pod."
    )


def _item(text: str) -> str:
    """The item of a list, in lines."""
    return fill(text, width=124, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _floor(figure: Figure) -> float:
    return statistics.median(figure.compared)

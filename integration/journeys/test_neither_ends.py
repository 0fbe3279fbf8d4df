"""Neither ends: what an admin does to the job of a pod, and what becomes of Slurm's daemons (docs/ends.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from subprocess import CalledProcessError
from typing import Any

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm, eventually, rig, slurm_says, stopped
from integration.ends_table import table
from integration.kinds import KINDS, Three

Space = Callable[[str], str]
STAYS = table("Neither ends")
# Jobs of running pods are read in turn; here it is soon the turn of each.
SOON = {"running_fresh_s": 2, "running_every_s": 4}
READS_OF_ALL = 30  # after so many reads of single jobs, the job of each of nine pods was read in its turn


@pytest.fixture(scope="module", autouse=True)
def soon(bridge: BridgeProcess) -> Iterator[None]:
    with bridge.with_settings(tuning=SOON):
        yield


def test_pods_of_a_job_that_is_suspended_resumed_or_given_more_time_run_on_and_say_so(
    kube: Kube, slurm: Slurm, bridge: BridgeProcess, space: Space, own_rig: None
) -> None:
    rows = ("an admin suspends it", "an admin resumes it", "an admin gives it more time")
    three = {row: Three(kube, slurm, space("alice")) for row in rows}
    suspended, resumed, longer = three.values()
    for each in three.values():
        each.run()
    try:
        _scontrol("suspend", suspended)
        bridge.stop()
        _scontrol("suspend", resumed)  # Slurm shows no grant of it to the next bridge
        bridge.start()
        at_first = _reads(bridge)
        for each in (suspended, resumed):
            eventually("they say so", lambda e=each: e.say() == STAYS[rows[0]])  # type: ignore[misc]
        _scontrol("resume", resumed)
        # A new limit is shown only if the bridge knows the former one.
        eventually("all are read", lambda: _reads(bridge) >= at_first + READS_OF_ALL)
        for job in longer.jobs.values():
            slurm_says("scontrol", "update", f"jobid={job}", "timelimit=120")
        for row in rows:
            eventually(row, lambda r=row: three[r].say() == STAYS[r])  # type: ignore[misc]
        assert all("is 120 minutes now, and was " in said for said in longer.messages()), longer.messages()
        assert [each.states() for each in three.values()] == [{"SUSPENDED"}, {"RUNNING"}, {"RUNNING"}]
        with pytest.raises(CalledProcessError):  # "Only batch jobs are accepted or processed"
            _scontrol("requeue", longer)
        _scontrol("resume", suspended)
    finally:
        # slurmctld informs the nodes' slurmds, which do not exist, and then believes that the nodes are away.
        slurm_says("scontrol", "reconfigure")
    eventually("slurmctld answers", slurm.responding)
    eventually("all jobs run", lambda: all(each.states() == {"RUNNING"} for each in three.values()))
    assert all(each.unharmed() for each in three.values())


def _reads(bridge: BridgeProcess) -> float:
    """How often the bridge has read a single job."""
    status, text = bridge.ask("metrics")
    assert status == 200
    counted = (line for line in text.splitlines() if line.startswith("slurm_bridge_call_seconds_count{"))
    return sum(float(line.rpartition(" ")[2]) for line in counted if 'operation="job"' in line)


def _scontrol(verb: str, *which: Three) -> None:
    for three in which:
        for job in three.jobs.values():
            slurm_says("scontrol", verb, str(job))


def test_a_waiting_job_that_an_admin_holds_waits_and_a_job_that_an_admin_puts_first_is_first(
    kube: Kube, slurm: Slurm, space: Space, own_rig: None
) -> None:
    ns = space("alice")
    native = slurm.submit("carol", required_nodes=["k1"], tres_per_node="gres/gpu:8")
    eventually("all GPUs of k1 are taken", lambda: "RUNNING" in slurm.job(native)["job_state"])
    spec = {"nodeSelector": {"kubernetes.io/hostname": "k1"}}
    names = ("held", "early", "late")
    for name in names:
        kube.run(ns, name, gpu=8, on="", spec=spec)
        eventually(f"{name} waits in Slurm", lambda n=name: slurm.live(f"{ns}/{n}~"))  # type: ignore[misc]
    jobs = {name: slurm.live(f"{ns}/{name}~")[0]["job_id"] for name in names}
    slurm_says("scontrol", "hold", str(jobs["held"]))
    [words] = set(STAYS["an admin holds it while it waits"])
    reason = words.split("`")[1]
    eventually("it says so", lambda: f"({reason}:" in kube.said(ns, "held"))
    slurm_says("scontrol", "update", f"jobid={jobs['late']}", "priority=4000000")
    slurm.cancel(native)
    for name in ("late", "early"):
        eventually(f"{name} runs", lambda n=name: [p.metadata.name for p in kube.bound(ns)] == [n])  # type: ignore[misc]
        assert slurm.job(jobs[name])["job_state"] == ["RUNNING"]
        if name == "early":
            slurm_says("scontrol", "release", str(jobs["held"]))
        kube.core.delete_namespaced_pod(name, ns)
    eventually("held runs", lambda: [p.metadata.name for p in kube.bound(ns)] == ["held"])
    assert slurm.job(jobs["held"])["job_state"] == ["RUNNING"], "in the job that was held"


def test_a_slurmrestd_that_is_away_for_a_while_does_no_harm(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, own_rig: None
) -> None:
    three = Three(kube, slurm, space("alice"))
    three.run()
    with stopped("slurmrestd"):
        eventually("the bridge says so", lambda: not bridge.ready())
        kube.run(three.ns, "meanwhile")
        eventually("a new pod says so", lambda: "SlurmUnavailable" in kube.said(three.ns, "meanwhile"))
        kube.core.delete_namespaced_pod("alone", three.ns)
        eventually("alone is gone", lambda: len(three.running()) == len(KINDS) - 1)
    eventually("the new pod runs", lambda: len(three.running()) == len(KINDS))
    eventually("alone has no job", lambda: not slurm.live(f"{three.ns}/alone~"))
    assert {three.jobs["batch"], three.jobs["service"]} < set(three.named()), "the others run in the jobs that they had"
    assert bridge.ready()


def test_slurmctld_killed_and_restarted_with_its_state_and_then_without(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, own_rig: None
) -> None:
    external = {"nodeSelector": {"kubernetes.io/hostname": "k1"}}  # which is lost with the state, and made again
    threes = [Three(kube, slurm, space("alice")), Three(kube, slurm, space("alice"), on="", spec=external)]
    for three in threes:
        three.run()
    slurm_says("scontrol", "reconfigure")  # which writes its state
    rig("slurmctld", "kill")
    rig("slurmctld", "start")
    ns = space("alice")
    kube.run(ns, "after")
    eventually("a new pod runs", lambda: kube.bound(ns))
    kube.core.delete_namespaced_pod("after", ns)
    eventually("and ends", lambda: not slurm.live(f"{ns}/"))
    for three in threes:
        assert three.unharmed()
        assert three.states() == {"RUNNING"}

    slurm.submit("carol", name="native")
    rig("slurmctld", "forget")
    assert STAYS["Slurm lost it"] == ["runs on, in another job"] * len(KINDS)
    for three in threes:
        again = eventually("each has a job", lambda t=three: len(found := _jobs(t)) == len(KINDS) and found)  # type: ignore[misc]
        eventually("their pods name it", lambda t=three, a=again: t.named() == sorted(job["job_id"] for job in a))  # type: ignore[misc]
        assert three.unharmed()
        assert sorted(job["nodes"] for job in again) == sorted(each.spec.node_name for each in three.first.values())
        assert all(job["job_state"] == ["RUNNING"] for job in again)
    assert not slurm.live("native"), "nobody brings back what is not ours"


def _jobs(three: Three) -> list[Any]:
    return three.slurm.live(f"{three.ns}/")

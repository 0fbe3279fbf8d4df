"""Why a job waits: the list of reasons is that of this Slurm's library, and a pod shows the reason soon, in words (Q2)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm, eventually, slurm_says
from integration.journeys.conftest import POLICY
from integration.reference.page_reasons import names
from integration.rigging import places
from scheduler.model.reasons import meaning_of
from tests.patience import PATIENCE_S

# The library needs the libc of the folder that Slurm is installed in; so that folder's loader runs Python.
LIBRARIES = "usr/lib/x86_64-linux-gnu"
SCRIPT = """
import ctypes, sys
word = ctypes.CDLL(sys.argv[1]).slurm_job_state_reason_string
word.restype, word.argtypes = ctypes.c_char_p, [ctypes.c_uint32]
print(*{word(number).decode() for number in range(1000)})
"""
AGAIN_S = 3.0  # after that a condition may be written again
LOOK_S = 0.05
SOON_S = 3.0
RESERVED = "later-for-alice"


def test_every_reason_of_this_slurm_is_in_the_list() -> None:
    root = places.slurm_root()
    folders = [root / LIBRARIES, root / LIBRARIES / "slurm-wlm"]
    loader = [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", ":".join(map(str, folders))]
    library = str(folders[1] / "libslurmfull.so")
    done = subprocess.run(
        [*loader, os.path.realpath(sys.executable), "-c", SCRIPT, library], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) - {"InvalidReason"} == set(names())


class Waits:
    """Pods that wait, each for a reason of its own; and how soon a pod shows the reason that Slurm has."""

    def __init__(self, kube: Kube, slurm: Slurm, space: Callable[[str], str], undo: ExitStack) -> None:
        self.kube, self.slurm, self.undo = kube, slurm, undo
        self.spaces = [space("alice"), space("bob")]

    @property
    def space(self) -> str:
        return self.spaces[0]

    def run(self, name: str, *, gpu: int = 0, user: str = "alice", **says: str) -> str:
        """Create a pod in partition gpu; returns its namespace."""
        where = self.spaces[user == "bob"]
        self.kube.run(where, name, gpu=gpu, says={"partition": "gpu"} | says)
        return where

    def runs(self, name: str, **options: Any) -> str:
        """As `run`, and wait until the pod is bound."""
        where = self.run(name, **options)
        eventually(f"{name} is bound", lambda: self.kube.pod(where, name).spec.node_name)
        return where

    def job(self, where: str, name: str) -> int:
        [job] = eventually(f"{name} has its job", lambda: self.slurm.live(f"{where}/{name}~"))
        return int(job["job_id"])

    def admin(self, program: str, *arguments: str, undo: tuple[str, ...] = ()) -> None:
        """Act as Slurm's administrator, and undo that after the test."""
        slurm_says(program, *arguments)
        if undo:
            self.undo.callback(slurm_says, program, *undo)

    def clear(self) -> None:
        """Delete the pods, and wait until none of their jobs is left."""
        for space in self.spaces:
            self.kube.core.delete_collection_namespaced_pod(space)
            eventually(f"no job of {space} is left", lambda n=space: not self.slurm.live(f"{n}/"))  # type: ignore[misc]

    def delay_s(self, where: str, name: str, reason: str) -> tuple[float, float]:
        """Seconds from when Slurm shows the reason until the pod shows it in words; and by how much that may be too long.

        Both are seen by looks, and on a busy machine a look takes long.  A job may show its reason at its submission, and
        none after that until slurmctld considers it, up to three seconds later: then the second time counts.  If Slurm shows
        another reason by the time that the pod shows this one, it counts since Slurm began to show this one.
        """
        known = meaning_of(reason)
        assert known is not None
        words = f"({reason}: {known.meaning.removesuffix(')').partition(' (')[0]}"
        job_id, since, shows, longest_s = self.job(where, name), 0.0, False, 0.0
        gives_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < gives_up:
            began = time.monotonic()
            is_shown = words in self.kube.said(where, name)
            showed, shows = shows, self.slurm.job(job_id)["state_reason"] == reason
            since = time.monotonic() if shows and not showed else since
            longest_s = max(longest_s, time.monotonic() - began)
            if is_shown:
                return (time.monotonic() - since if since else 0.0), longest_s + LOOK_S
            time.sleep(LOOK_S)  # between two looks
        raise AssertionError(f"Slurm {'showed' if since else 'did not show'} {reason}; {self.kube.said(where, name)}")


@pytest.fixture
def waits(own_rig: None, kube: Kube, slurm: Slurm, space: Callable[[str], str]) -> Iterator[Waits]:
    with ExitStack() as undo:
        made = Waits(kube, slurm, space, undo)
        yield made
        made.clear()  # Slurm keeps a reservation that a job names


@contextmanager
def no_room(kube: Kube, slurm: Slurm) -> Iterator[None]:
    """Other jobs hold every GPU of the external nodes."""
    held = [
        slurm.submit("carol", name="native", required_nodes=[name], tres_per_node="gres/gpu:8")
        for name in kube.external_nodes()
    ]
    eventually("they run", lambda: all("RUNNING" in slurm.job(job)["job_state"] for job in held))
    try:
        yield
    finally:
        for job in held:
            slurm.cancel(job)


def resources(waits: Waits) -> str:
    waits.undo.enter_context(no_room(waits.kube, waits.slurm))
    return waits.run("waits", gpu=8)


def priority(waits: Waits) -> str:
    resources(waits)
    waits.job(waits.space, "waits")
    return waits.run("behind", gpu=8)


def dependency(waits: Waits) -> str:
    other = waits.slurm.submit(
        "bob", name="prepare", partition="main", begin_time={"set": True, "number": 4_102_444_800}
    )
    waits.undo.callback(waits.slurm.cancel, other)
    return waits.run("waits", dependency=f"afterany:{other}")


def begin_time(waits: Waits) -> str:
    return waits.run("waits", begin="now+1week")


def has_waited(waits: Waits) -> str:
    """A pod that said why it waits so long ago that its condition may be written again."""
    where = resources(waits)
    waits.delay_s(where, "waits", "Resources")
    free_at = time.monotonic() + AGAIN_S
    eventually("its condition may be written again", lambda: time.monotonic() > free_at)
    return where


def held_by_admin(waits: Waits) -> str:
    """The admin holds a job that has waited for a while."""
    where = has_waited(waits)
    waits.admin("scontrol", "hold", str(waits.job(where, "waits")))
    return where


def account_limit(waits: Waits) -> str:
    """bob may have four GPUs."""
    waits.runs("holds", gpu=3, user="bob")
    return waits.run("waits", gpu=3, user="bob")


def jobs_of_a_user(waits: Waits) -> str:
    limit = ("modify", "qos", "low", "set")
    waits.admin("sacctmgr", "-i", *limit, "maxjobsperuser=1", undo=("-i", *limit, "maxjobsperuser=-1"))
    waits.runs("holds", qos="low")
    return waits.run("waits", qos="low")


def cpus_of_a_qos(waits: Waits) -> str:
    limit = ("modify", "qos", "high", "set")
    waits.admin("sacctmgr", "-i", *limit, "grptres=cpu=1", undo=("-i", *limit, "grptres=cpu=-1"))
    waits.runs("holds", qos="high")
    return waits.run("waits", qos="high")


def partition_down(waits: Waits) -> str:
    """The partition goes down while the job waits: Slurm refuses new jobs there."""
    where = has_waited(waits)
    update = ("update", "partitionname=gpu")
    waits.admin("scontrol", *update, "state=down", undo=(*update, "state=up"))
    return where


def node_drained(waits: Waits) -> str:
    [name, *_] = waits.kube.external_nodes()
    update = ("update", f"nodename={name}")
    waits.admin("scontrol", *update, "state=drain", "reason=maintenance", undo=(*update, "state=resume"))
    spec = {"nodeSelector": {"kubernetes.io/hostname": name}}
    waits.kube.run(waits.space, "waits", says={"partition": "gpu"}, spec=spec)
    return waits.space


def licenses(waits: Waits) -> str:
    holder = waits.slurm.submit("carol", name="solver", partition="low", licenses="matlab:9")
    waits.undo.callback(waits.slurm.cancel, holder)
    eventually("it runs", lambda: "RUNNING" in waits.slurm.job(holder)["job_state"])
    return waits.run("waits", licenses="matlab:2")


def reservation(waits: Waits) -> str:
    waits.admin(
        "scontrol",
        *("create", f"reservationname={RESERVED}", "starttime=now+1hour", "duration=60", "users=alice"),
        f"nodes={waits.kube.external_nodes()[0]}",
        undo=("delete", f"reservationname={RESERVED}"),
    )
    return waits.run("waits", reservation=RESERVED)


MADE: dict[str, tuple[Callable[[Waits], str], str]] = {
    "Resources": (resources, "waits"),
    "Priority": (priority, "behind"),
    "Dependency": (dependency, "waits"),
    "BeginTime": (begin_time, "waits"),
    "JobHeldAdmin": (held_by_admin, "waits"),
    "AssocGrpGRES": (account_limit, "waits"),
    "QOSMaxJobsPerUserLimit": (jobs_of_a_user, "waits"),
    "QOSGrpCpuLimit": (cpus_of_a_qos, "waits"),
    "PartitionDown": (partition_down, "waits"),
    "ReqNodeNotAvail": (node_drained, "waits"),
    "Licenses": (licenses, "waits"),
    "Reservation": (reservation, "waits"),
}


@pytest.fixture(scope="module")
def with_reservation(bridge: BridgeProcess) -> Iterator[None]:
    policy = deepcopy(POLICY)
    policy["rules"][0]["reservation"] = {"allowed": [RESERVED]}
    with bridge.with_file(policy=policy):
        yield


@pytest.mark.parametrize("reason", MADE)
def test_a_pod_says_why_it_waits_soon_after_slurm_does(with_reservation: None, waits: Waits, reason: str) -> None:
    make, name = MADE[reason]
    delay_s, at_most_less_s = waits.delay_s(make(waits), name, reason)
    print(f"{reason}: {delay_s:.2f} s, or up to {at_most_less_s:.2f} s less")
    assert delay_s - at_most_less_s <= SOON_S

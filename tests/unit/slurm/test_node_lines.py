"""A node as a line of slurm.conf: nothing in it can be another option, and every device has a file of its own."""

from __future__ import annotations

import json

import pytest

from bridge.slurm import bodies
from scheduler.actions import NodeChange
from scheduler.model.slurm import NodeSpec


def line(**fields: object) -> str:
    given: dict[str, object] = {"name": "x1", "address": "198.51.100.7", "cpus": 63, "memory_mib": 510_976, **fields}
    told = json.loads(bodies.node_body(NodeSpec(**given)))
    assert told.keys() == {"node_conf"}
    return str(told["node_conf"])


def test_a_node_without_devices_is_sent_with_its_size_and_address() -> None:
    assert line(features=("slurm-bridge-k0", "gpu")) == (
        "NodeName=x1 NodeAddr=198.51.100.7 Sockets=1 CoresPerSocket=63 ThreadsPerCore=1 RealMemory=510976 "
        "Feature=slurm-bridge-k0,gpu State=EXTERNAL"
    )


@pytest.mark.parametrize(
    ("gres", "said"),
    [
        ((("gpu", 8),), "Gres=gpu:8 GresConf=count=8,name=gpu,file=/dev/gpu[0-7] State"),
        ((("gpu:h100", 1),), "Gres=gpu:h100:1 GresConf=count=1,name=gpu,type=h100,file=/dev/gpu0 State"),
        (
            (("gpu:1g.10gb", 7), ("gpu:3g.40gb", 2)),
            "Gres=gpu:1g.10gb:7,gpu:3g.40gb:2 GresConf=count=7,name=gpu,type=1g.10gb,file=/dev/gpu[0-6]"
            "+count=2,name=gpu,type=3g.40gb,file=/dev/gpu[7-8] State",
        ),
    ],
)
def test_devices_are_sent_as_files_numbered_one_after_the_other(gres: object, said: str) -> None:
    assert said in line(gres=gres)


def test_the_place_in_each_topology_is_sent() -> None:
    assert " Topology=blocks:b-2,tree:s1 State=" in line(topology=(("blocks", "b-2"), ("tree", "s1")))


def test_a_value_with_a_blank_in_it_is_never_sent() -> None:
    with pytest.raises(AssertionError):
        line(features=("gpu State=UP",))


def test_a_resume_takes_no_reason() -> None:
    assert json.loads(bodies.node_change_body(NodeChange.RESUME, "why")) == {"state": ["RESUME"]}
    assert json.loads(bodies.node_change_body(NodeChange.DRAIN, "why")) == {"state": ["DRAIN"], "reason": "why"}

"""bridge/simulation/kube/protobuf.json: how the kinds that `slurm-bridge dev` serves are written as protobuf.

    python -m integration.protobuf      writes it, from the Go types of the Kubernetes version that go.mod names; needs Go

Write it again after a kind is added to bridge/simulation/kube/kinds.py, or for another version of Kubernetes.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from bridge.simulation.kube.kinds import sent

HERE = Path(__file__).parent
FILE = HERE.parents[1] / "bridge" / "simulation" / "kube" / "protobuf.json"


def kubernetes() -> str:
    """The version of Kubernetes whose types are read: "1.36.3"."""
    found = re.search(r"k8s\.io/client-go v0\.(\S+)", (HERE / "go.mod").read_text(encoding="utf-8"))
    assert found, "go.mod names client-go"
    return f"1.{found[1]}"


def table() -> str:
    """The file: one line for each message."""
    asked = "".join(f"{kind.api_version} {kind.kind}\n" for kind in sent())
    done = subprocess.run(["go", "run", "."], cwd=HERE, input=asked, text=True, stdout=subprocess.PIPE, check=True)
    read = json.loads(done.stdout)
    parts = []
    for name in ("kinds", "messages"):
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(read[name].items())]
        parts.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"

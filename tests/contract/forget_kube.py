"""Make the rig's Kubernetes forget its past: what KUBE_FORGET_COMMAND can name when the rig is the server.

    integration/rig run -- env KUBE_FORGET_COMMAND="python3 tests/contract/forget_kube.py" pytest tests/contract -k kube

etcd drops every version before now, and the API server, which remembers more than that, starts afresh.  On a busy cluster
both happen by themselves: etcd is compacted every five minutes, and the server's memory is bounded.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

ETCD = os.environ.get("ETCD_ENDPOINT", "http://127.0.0.1:2379")
RIG = Path(__file__).parents[2] / "integration" / "rig"


def ask(path: str, question: dict[str, Any]) -> Any:
    """etcd's own JSON gateway."""
    request = urllib.request.Request(ETCD + path, json.dumps(question).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def main() -> None:
    newest = ask("/v3/kv/range", {"key": base64.b64encode(b"\0").decode()})["header"]["revision"]
    ask("/v3/kv/compaction", {"revision": newest, "physical": True})
    for act in ("kill", "start"):  # a stop waits half a minute for watches to end
        command = [sys.executable, str(RIG), "kube-apiserver", act, "--name", os.environ["RIG_NAME"]]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()

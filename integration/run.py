"""`make integration`: the journeys and the contract suite on real clusters.

Where KUBECONFIG and SLURM_REST (with SLURM_TOKEN_FILE) name an existing pair, that pair is used.  Otherwise a rig of our own
is started for the run and ended after it.  A machine that cannot have one (not root, not Debian or Ubuntu) is told what was
left out and why; with CI=true that is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RIG = ROOT / "integration" / "rig"
NAME = os.environ.get("RIG_NAME", "integration")
GIVEN = ("KUBECONFIG", "SLURM_REST", "SLURM_TOKEN_FILE")
TESTS = ("integration/journeys", "tests/contract")


def main(arguments: list[str]) -> int:
    """Exit code of the tests; 1 where CI may not leave them out."""
    tests = [sys.executable, "-m", "pytest", "-q", *(arguments or TESTS)]
    if all(os.environ.get(name) for name in GIVEN):
        print(f"integration: using the clusters of {', '.join(GIVEN)}")
        return subprocess.run(tests, cwd=ROOT, check=False).returncode
    if why := _no_rig():
        print(f"integration: LEFT OUT, the journeys on real clusters and the contract suite's real subjects: {why}")
        return 1 if os.environ.get("CI") == "true" else 0
    subprocess.run([RIG, "up", "--fresh", "--name", NAME], check=True)
    try:
        return subprocess.run([RIG, "run", "--name", NAME, "--", *tests], cwd=ROOT, check=False).returncode
    finally:
        subprocess.run([RIG, "down", "--name", NAME], check=True)


def _no_rig() -> str:
    """Why there can be no rig here; "" where there can."""
    if os.geteuid() != 0:
        return "a rig needs root (network namespaces, chroot, containerd)"
    if shutil.which("apt-get") is None:
        return "a rig is made from Debian packages, and this machine has no apt-get"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Checks a rig that is up, after a run on it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from integration.checker import accounting, audit, journal, slurm_log
from integration.checker.evidence import Evidence
from integration.checker.invariants import judge
from integration.checker.verdict import Verdict
from integration.rigging.places import Rig

RIG = Path(__file__).resolve().parent.parent / "rig"
MOST = 20  # violations that are printed


def main(arguments: list[str]) -> int:
    """Exit code 1: an invariant was violated, or an announced violation did not occur."""
    parser = argparse.ArgumentParser(prog="python -m integration.checker")
    parser.add_argument("rig", help="its name")
    parser.add_argument("--rest", type=float, help="seconds of calm after which L2, L3 and L4 must hold")
    asked = parser.parse_args(arguments)
    evidence = gather(Rig(asked.rig))
    verdict = judge(evidence, rest_s=asked.rest)
    print(summary(evidence, verdict), flush=True)
    return 1 if verdict.broken or verdict.unused else 0


def gather(rig: Rig) -> Evidence:
    """What the logs of a rig say, and which pods there are.  Both clusters must answer."""
    printed = _says(rig, "slurm", "--name", after=accounting.SACCT)
    here = json.loads(_says(rig, "run", "--name", after=("--", "kubectl", "get", "--raw", "/api/v1/pods")))
    return Evidence(
        audit.read(rig.log),
        slurm_log.read(rig.log / "slurmctld.log"),
        accounting.parse(printed),
        journal.read(rig.state / journal.FILE),
        frozenset(pod["metadata"]["uid"] for pod in here["items"]),
    )


def _says(rig: Rig, command: str, option: str, *, after: tuple[str, ...]) -> str:
    """What a command of the rig prints."""
    program, rest = (after[:1], after[1:]) if command == "slurm" else ((), after)
    argv = [sys.executable, str(RIG), command, *program, option, rig.name, *rest]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def summary(evidence: Evidence, verdict: Verdict) -> str:
    """What was judged, and each violation in a sentence."""
    pods, jobs = len(evidence.audit.pods), len(evidence.jobs)
    judged = ", ".join(f"{name} {number}" for name, number in sorted(verdict.judged.items()))
    lines = [f"checker: {pods} pods and {jobs} jobs in the logs; judged: {judged or 'nothing'}"]
    if evidence.unnamed:
        lines.append(f"checker: {evidence.unnamed} jobs of slurmctld's log are not in slurmdbd, and are not judged")
    if verdict.excused:
        lines.append(f"checker: {verdict.excused} violations were announced by their test")
    lines += [f"checker: BROKEN {each}" for each in verdict.broken[:MOST]]
    if len(verdict.broken) > MOST:
        lines.append(f"checker: and {len(verdict.broken) - MOST} more")
    lines += [f"checker: {sentence}" for sentence in verdict.unused]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

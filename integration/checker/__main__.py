"""Checks a rig that is up, after a run on it, or the logs that were kept of one."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from integration.checker import accounting, audit, journal, rest_log, slurm_log
from integration.checker.evidence import Evidence
from integration.checker.invariants import judge
from integration.checker.verdict import LACKS, Verdict
from integration.rigging.places import Rig, cache

RIG = Path(__file__).resolve().parent.parent / "rig"
RECORDS, PODS = "sacct.txt", "pods.json"  # what the clusters answered, beside their logs
MOST = 5  # violations of an invariant that are printed


def main(arguments: list[str]) -> int:
    """Exit code 1: an invariant was violated, an announced violation did not occur, or too little was judged."""
    parser = argparse.ArgumentParser(prog="python -m integration.checker")
    parser.add_argument("rig", help="its name, or the folder of logs that were kept of one")
    parser.add_argument("--rest", type=float, help="seconds of calm after which L2, L3 and L4 must hold")
    parser.add_argument(
        "--must", type=_names, help='invariants that must be judged, as in "V1,V2"; default: any of them'
    )
    asked = parser.parse_args(arguments)
    folder = Path(asked.rig) if "/" in asked.rig else ask(Rig(asked.rig))
    evidence = read(folder)
    verdict = judge(evidence, rest_s=asked.rest)
    missing = verdict.missing(asked.must) if asked.must is not None else _nothing(verdict)
    print(
        "\n".join([summary(evidence, verdict), *(f"checker: MISSING {sentence}" for sentence in missing)]), flush=True
    )
    if verdict.broken and "/" not in asked.rig:
        print(f"checker: the logs are kept in {keep(folder, asked.rig)}", flush=True)
    return 1 if verdict.broken or verdict.unused or missing else 0


def _names(shown: str) -> list[str]:
    names = [each for each in shown.split(",") if each]
    if unknown := set(names) - LACKS.keys():
        raise argparse.ArgumentTypeError(f"no invariant is called {', '.join(sorted(unknown))}")
    return names


def _nothing(verdict: Verdict) -> list[str]:
    return [] if verdict.judged.total() else ["everything: the logs show nothing that can be judged"]


def ask(rig: Rig) -> Path:
    """The folder with the logs of a rig, and now with the records of jobs and the pods.  Both clusters must answer."""
    (rig.log / RECORDS).write_text(_says(rig, "slurm", "--name", after=accounting.SACCT))
    (rig.log / PODS).write_text(_says(rig, "run", "--name", after=("--", "kubectl", "get", "--raw", "/api/v1/pods")))
    if (noted := rig.state / journal.FILE).exists():
        shutil.copy(noted, rig.log)
    return rig.log


def read(folder: Path) -> Evidence:
    """What the logs in this folder say, and which pods there were at last."""
    here = json.loads((folder / PODS).read_text())
    return Evidence(
        audit.read(folder),
        slurm_log.read(folder / "slurmctld.log"),
        accounting.parse((folder / RECORDS).read_text()),
        journal.read(folder / journal.FILE),
        frozenset(pod["metadata"]["uid"] for pod in here["items"]),
        rest_log.read(folder / "slurmrestd.log"),
    )


def keep(folder: Path, name: str) -> Path:
    """A copy of the folder, because the next rig of that name replaces the logs.  An older copy of that name is replaced."""
    kept = cache() / "log" / f"broken-{name}"
    shutil.rmtree(kept, ignore_errors=True)
    return Path(shutil.copytree(folder, kept))


def _says(rig: Rig, command: str, option: str, *, after: tuple[str, ...]) -> str:
    """What a command of the rig prints."""
    program, rest = (after[:1], after[1:]) if command == "slurm" else ((), after)
    argv = [sys.executable, str(RIG), command, *program, option, rig.name, *rest]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def summary(evidence: Evidence, verdict: Verdict) -> str:
    """What was judged, and each violation in a sentence."""
    pods, jobs = len(evidence.audit.pods), len(evidence.jobs)
    judged = ", ".join(f"{name} {number}" for name, number in sorted(verdict.judged.items()) if number)
    lines = [f"checker: {pods} pods and {jobs} jobs in the logs; judged: {judged or 'nothing'}"]
    if evidence.unnamed:
        lines.append(f"checker: {evidence.unnamed} jobs of slurmctld's log are not in slurmdbd, and are not judged")
    if verdict.excused:
        lines.append(f"checker: {verdict.excused} violations were announced by their test")
    for invariant in sorted({each.invariant for each in verdict.broken}):
        broken = [each for each in verdict.broken if each.invariant == invariant]
        lines += [f"checker: BROKEN {each}" for each in broken[:MOST]]
        if len(broken) > MOST:
            lines.append(f"checker: BROKEN {invariant}, and {len(broken) - MOST} more")
    lines += [f"checker: {sentence}" for sentence in verdict.unused]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

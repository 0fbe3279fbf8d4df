"""`make bench`: rigs up and down, one scenario after the other, and the report.

python -m integration.bench --help
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from integration.bench import report
from integration.bench.catalogue import chosen
from integration.bench.clients import BenchError
from integration.bench.figures import Figure, Measured, merged, table
from integration.bench.scenarios import Scenario

ROOT = Path(__file__).resolve().parents[2]
RIG = ROOT / "integration" / "rig"


def main() -> int:
    """Exit code 0; 1 where something asked was missed or could not be measured; 2 for a wrong call."""
    asked = _parser().parse_args()
    _compile()
    try:
        scenarios = chosen(asked.scenario, asked.pods, asked.seconds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    try:
        return _measure_all(scenarios, asked)
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130


def _compile() -> None:
    """Compile all modules that a bridge loads, as those of an installed one are, also where Python may not in passing."""
    for package in ("bridge", "scheduler"):
        compileall.compile_dir(ROOT / package, quiet=1)
    may_write = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", "import bridge.app"], cwd=ROOT, env=may_write, check=True)


def _measure_all(scenarios: list[Scenario], asked: argparse.Namespace) -> int:
    figures: list[Figure] = []
    commits: dict[str, str] = {}
    failed = False
    for scenario in scenarios:
        try:
            measured = _measured(scenario, asked)
        except BenchError as error:
            print(f"bench: {scenario.name}: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        figures += measured.figures
        run = report.Run(report.describe(measured.versions), measured.figures)
        commits[scenario.name] = run.about["commit"]
        print(f"\n{table(measured.figures, commits)}\n", flush=True)
        if asked.json:
            _keep(run, asked.json, asked.write)
    missed = [figure for figure in figures if figure.met is False]
    if missed:
        print(f"bench: missed\n{table(missed, commits)}")
    return 1 if failed or missed else 0


def _keep(run: report.Run, file: Path, page: Path | None) -> None:
    """At once: a run of all scenarios takes most of an hour, and may be interrupted."""
    runs = report.known(file) | {run.figures[0].scenario: run}
    order = [scenario.name for scenario in chosen([])]
    runs = dict(sorted(runs.items(), key=lambda each: order.index(each[0]) if each[0] in order else len(order)))
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report.plain(runs)), indent=1))
    print(f"bench: figures in {file}", flush=True)
    if page:
        page.write_text(report.page(runs))
        print(f"bench: report in {page}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="How fast the bridge is and what it costs.")
    parser.add_argument("scenario", nargs="*", help="which (default: all); the beginning of a name will do")
    parser.add_argument("--repeats", type=int, default=0, metavar="N", help="how often (default: as the scenario says)")
    parser.add_argument("--pods", type=int, default=0, metavar="N", help="another number of pods")
    parser.add_argument("--seconds", type=float, default=0, metavar="S", help="another length of what is watched idle")
    parser.add_argument("--name", default="bench", metavar="RIG", help="the rig's name (default: bench)")
    parser.add_argument("--keep", action="store_true", help="use the rig that is up, as it is, and leave it up")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the figures there, beside others that are there"
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="with --json: a page of Markdown of all that is there"
    )
    parser.add_argument("--profile", type=Path, metavar="FILE", help="look where the bridge spends its time")
    return parser


def _measured(scenario: Scenario, asked: argparse.Namespace) -> Measured:
    """Every repeat of one scenario, and what is counted apart.  Raises BenchError."""
    repeats = asked.repeats or scenario.repeats
    why = f" ({scenario.why})" if scenario.why and repeats == scenario.repeats else ""
    print(f"bench: {scenario.name}: repeats: {repeats}{why}", flush=True)
    many, each = (repeats, 1) if scenario.apart else (1, repeats)
    runs = [_run(scenario, asked, "--turn", str(turn), "--repeats", str(each)) for turn in range(many)]
    if scenario.count is not None:
        runs.append(_run(scenario, asked, "--counted"))
    return Measured(merged(figure for run in runs for figure in run.figures), runs[-1].versions)


def _run(scenario: Scenario, asked: argparse.Namespace, *arguments: str) -> Measured:
    """On a rig of its own.  Raises BenchError."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _rig(scenario, asked) as within:
        out = Path(folder) / "figures.json"
        inside = [sys.executable, "-m", "integration.bench.inside", scenario.name, str(out)]
        command = [*within, *inside, *arguments]
        command += ["--pods", str(asked.pods), "--seconds", str(asked.seconds)]
        if asked.profile and "--counted" not in arguments:
            command += ["--profile", str(asked.profile.resolve())]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise BenchError("not measured; why is said above")
        _prove(scenario, asked)
        measured = msgspec.json.decode(out.read_bytes(), type=Measured)
    print(f"bench: {scenario.name} {' '.join(arguments)}: {time.monotonic() - began:.0f} s", flush=True)
    return measured


def _prove(scenario: Scenario, asked: argparse.Namespace) -> None:
    """The invariants, from the logs of the rig that is still up.  Raises BenchError."""
    checker = [sys.executable, "-m", "integration.checker", asked.name, "--must", ",".join(scenario.judges)]
    if scenario.repeat is not None and subprocess.run(checker, cwd=ROOT, check=False).returncode:
        raise BenchError("an invariant was violated, or too little was judged; the lines above say which")


@contextmanager
def _rig(scenario: Scenario, asked: argparse.Namespace) -> Iterator[tuple[str | Path, ...]]:
    """A rig as the scenario wants it, ended after it; gives the command that runs another one within the rig."""
    if scenario.repeat is None:
        yield ()
        return
    fresh = () if asked.keep else ("--fresh",)
    size = ("--no-kubelets", "--slurmd", "0", "--kwok", str(scenario.nodes))
    up = [RIG, "up", "--name", asked.name, *fresh, *size]
    done = subprocess.run(up, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"no rig: {done.stdout}{done.stderr}")
    try:
        yield RIG, "run", "--name", asked.name, "--"
    finally:
        if not asked.keep:
            subprocess.run([RIG, "down", "--name", asked.name], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())

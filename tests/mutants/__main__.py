"""Mutation testing of scheduler/: python -m tests.mutants [PATH…]

Prints each mutant that no test notices when it is found, then those of them that the type checker rejects (`types`), then the
score of each package.  The exit code is 1 if a test notices the mutant of an entry of explained.toml, or if less than LEAST
percent of the mutants are noticed: an explained mutant does not count as noticed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.mutants.mutations import Mutant, mutants_of
from tests.mutants.report import EXPLAINED, Change, Report, explained
from tests.mutants.trials import KEPT, NOTICED, Outcome, Trial, Trials
from tests.mutants.type_check import rejected

ROOT = Path(__file__).parents[2]
PACKAGE = "scheduler"
# Property tests of the bridge: what they run of the scheduler, other tests run faster.
OF_THE_BRIDGE = {"hostile_values", "kube_codec", "kube_hostile", "kube_store", "policy", "slurm_codec"}
PROPERTIES = sorted((ROOT / "tests" / "properties").glob("test_*.py"))
TESTS = [
    "tests/unit/scheduler",
    *(str(path.relative_to(ROOT)) for path in PROPERTIES if path.stem.removeprefix("test_") not in OF_THE_BRIDGE),
    *(f"tests/simulation/test_{name}.py" for name in ("contained", "ends_table", "leaving", "nodes")),
    "tests/mutants/lives.py",
]
COUNTS_CALLS = "tests/unit/scheduler/test_way_to_the_bind.py"  # the probes in the code are calls, too
HASH_SEED = "PYTHONHASHSEED"
LEAST = 92.0  # percent


def mutants_below(paths: Sequence[str]) -> list[Mutant]:
    """All mutants of these files and directories, which are below the root."""
    return [mutant for path in paths for file in _files(path) for mutant in _of_file(file)]


def _files(path: str) -> Iterator[Path]:
    given = (ROOT / path).resolve()
    if not given.exists():
        raise SystemExit(f"mutants: {path} does not exist below {ROOT}")
    yield from sorted(given.rglob("*.py")) if given.is_dir() else [given]


def _of_file(file: Path) -> tuple[Mutant, ...]:
    return mutants_of(str(file.relative_to(ROOT)), file.read_text()).mutants


def _type_checked(trials: Sequence[Trial]) -> Iterator[Trial]:
    """The trials, with the mutants that only the type checker notices."""
    left = [trial.mutant for trial in trials if trial.outcome not in NOTICED]
    work = ROOT / KEPT / "types"
    work.mkdir(parents=True, exist_ok=True)
    noticed = set(map(id, rejected(left, ROOT, PACKAGE, work)))
    for trial in trials:
        if id(trial.mutant) in noticed:
            print(f"types:{trial.mutant.line} {Change.of(trial.mutant)}")
        yield Trial(trial.mutant, Outcome.TYPES) if id(trial.mutant) in noticed else trial


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Which changes of the scheduler no test notices."
    )
    parser.add_argument("paths", nargs="*", default=[PACKAGE], help=f"files and directories of {PACKAGE}/")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="the tests that try the mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at the same time")
    parser.add_argument("--budget", type=float, default=2.0, help="CPU seconds of fast tests, and of slow ones")
    parser.add_argument("--again", type=Path, help="output of an earlier run: try only mutants that it prints")
    sample = "try one of N mutants: an estimate of the score; no entry of explained.toml is judged"
    parser.add_argument("--every", type=int, default=1, metavar="N", help=sample)
    parser.add_argument(
        "--first", type=int, metavar="M", help="the place of the first mutant of the sample, if not N / 2"
    )
    return parser.parse_args(arguments)


def _chosen(mutants: Sequence[Mutant], given: argparse.Namespace) -> list[int]:
    """The places of the mutants to try: of the given paths in their order, of an earlier run, of a sample."""
    wanted = {str(file.relative_to(ROOT)): None for path in given.paths for file in _files(path)}
    of_file: dict[str, list[int]] = {path: [] for path in wanted}
    for place, mutant in enumerate(mutants):
        if mutant.path in of_file:
            of_file[mutant.path].append(place)
    places = [place for path in wanted for place in of_file[path]]
    if given.again:
        earlier = {line.split(" ", 1)[1] for line in given.again.read_text().splitlines() if "  →  " in line}
        places = [place for place in places if str(Change.of(mutants[place])) in earlier]
    return places[given.every // 2 if given.first is None else given.first :: given.every]


def main(arguments: Sequence[str]) -> int:
    """Try the mutants, and print the report."""
    given = _parsed(arguments)
    known = explained(EXPLAINED.read_text())
    mutants = mutants_below([PACKAGE])
    tried = _chosen(mutants, given)
    trials: list[Trial] = []
    began = time.monotonic()

    def told(trial: Trial) -> None:
        trials.append(trial)
        if trial.outcome not in NOTICED and trial.mutant not in known:
            print(f"{trial.outcome.value.replace(' ', '-')}:{trial.mutant.line} {Change.of(trial.mutant)}", flush=True)
        if len(trials) % 250 == 0:
            print(f"{len(trials)} of {len(tried)} after {time.monotonic() - began:.0f} s", file=sys.stderr)

    plugin = Trials(ROOT, PACKAGE, mutants, tried=tried, budget_s=given.budget, jobs=given.jobs, told=told)
    # Output is not captured: a fork gives its results through a pipe.
    code = pytest.main(
        ["-q", "-s", "-p", "no:cacheprovider", f"--ignore={COUNTS_CALLS}", *given.tests], plugins=[plugin]
    )
    if code:
        return int(code)
    report = Report(tuple(_type_checked(trials)), known)
    print(*report.lines(), sep="\n")
    stale = report.stale if given.every == 1 else []  # of a sample, mutants with equal texts may not have been tried
    for change in stale:
        print(f"stale entry of {EXPLAINED.name}, a test notices it: {change}")
    return 1 if stale or report.score() < LEAST else 0


if __name__ == "__main__":
    if os.environ.get(HASH_SEED) != "0":  # a life depends on the order of words in sets
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.mutants", *sys.argv[1:]], {**os.environ, HASH_SEED: "0"}
        )
    sys.exit(main(sys.argv[1:]))

"""`make integration`: the journeys and the contract suite on real clusters, and the page in a real browser.

Where KUBECONFIG and SLURM_REST (with SLURM_TOKEN_FILE) name an existing pair, that pair is used.  Otherwise each suite gets a
rig of its own, side by side, ended after the run.  If this machine cannot have a rig (not root, no apt-get), the
output says what was left out and why; with CI=true that is a failure.  The page needs no cluster, but Chromium and a kubectl.
What the rigs need is built first, which takes minutes once.

Tests that fail beside other suites run once more, alone, on a new rig.  If a test fails again, the run fails.  If it passes,
the last lines of the run name it as unsteady: either the test depends on how busy the machine is, or the bridge does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from integration.rigging import packages, places
    from integration.rigging.shell import RigError
else:  # the path has the folder of the script, not the folder above it
    from rigging import packages, places
    from rigging.shell import RigError

ROOT = Path(__file__).resolve().parent.parent
RIG = str(ROOT / "integration" / "rig")
GIVEN = ("KUBECONFIG", "SLURM_REST", "SLURM_TOKEN_FILE")


class Run(NamedTuple):
    """The run of one suite.

    code    the exit code
    broken  the checker fails: the logs show a violated invariant, or too little; running the suite again excuses nothing
    """

    code: int
    broken: bool = False


# What bridges do in every suite: they submit jobs, bind pods, and cancel jobs whose pods are gone.
ALWAYS = ("K1", "V1", "V2", "V3", "V5", "V7", "V8", "L2", "L3", "L4")
ALL = (*ALWAYS, "V4", "V6", "L1")


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests that run together.

    rig      the options of the rig that the tests need; None: they need no rig
    browser  they need Chromium and a kubectl
    image    they need the bridge's image; the network is needed to build it
    compose  they need the images of docker-compose.yml, and podman-compose
    programs  they need what these commands of the rig build
    lanes    they need the lanes of generated sequences in slurm.conf
    judges   invariants of which the checker must judge something in the logs of its rig, if all its tests ran and passed;
             (): no bridge runs, and the checker does not run either
    """

    name: str
    tests: tuple[str, ...]
    rig: tuple[str, ...] | None = ()
    browser: bool = False
    image: bool = False
    compose: bool = False
    programs: tuple[str, ...] = ()
    lanes: bool = False
    judges: tuple[str, ...] = ALWAYS


def _journeys(*names: str) -> tuple[str, ...]:
    return tuple(f"integration/journeys/test_{name}.py" for name in names)


def _contract(side: str) -> tuple[str, ...]:
    """On the real servers alone: the other subjects need no rig (`make contract`)."""
    tests = sorted(str(path) for path in (ROOT / "tests" / "contract").glob(f"test_{side}_*.py"))
    return (*tests, "-k", "real")


SEQUENCES = "tests/contract/test_slurm_sequences.py"

# Journeys mostly wait, so several run side by side, the longest first, and the next one when another has ended.  Six keep
# two cores busy all the time; beside more of them a server takes so long to start that tests fail which say nothing of it.
# Journeys of a person at a terminal, and those about gangs and placement, need no real kubelets.
AT_ONCE = 6
# Go's compiler, and the programs in Go that the rigs run, collect garbage when their memory has grown by so many percent.
# With Go's default of 100, to build etcd takes 110 s of CPU instead of 85, and a kube-apiserver a tenth more.
GARBAGE_PERCENT = "400"
COMMANDS = _journeys(
    "bench",
    "dev",
    "doctor_explain",
    "examples",
    "expected_start",
    "kubectl",
    "plugin",
    "readme",
    "reasons",
    "uninstall",
)
WORKLOADS = _journeys("bad_gangs", "devices", "gangs", "groups", "hostile_pods", "placement")
FAULTS = _journeys("admission", "canary", "faults", "foreign_jobs", "policy", "start", "tokens", "webhook")
NODES = _journeys("nodes", "time_limits")
INSTALLED = _journeys("installed", "installed_webhook", "installed_mint", "chart", "installed_replicas")
ENDS = _journeys("job_ends", "pod_ends")
CONTROLLERS = _journeys("controllers", "image", "neither_ends")
TORTURE = _journeys("release", "torture", "crashes")
SAYS = "-rfEP"  # what a test printed although it passed, and the usual line for each test that failed
# urllib3 leaves a socket open if its server dies during the TLS handshake.  It may be collected after the last test.
UNCLOSED = "ignore:unclosed:ResourceWarning"
REPLICAS = _journeys("granted", "lease", "rights_lost", "systemd", "two_bridges")
PICTURES = _journeys("page", "pictures")
UNCOUNTED = _journeys("uncounted", "power", "backup_controller")
MONITORING = _journeys("monitoring", "tracing")
SUITES = (
    Suite("faults", FAULTS, ("--no-kubelets",), judges=(*ALWAYS, "V6", "L1")),
    # They say how soon another one took over.
    Suite("replicas", (*REPLICAS, SAYS), ("--no-kubelets",), judges=ALL),
    Suite("commands", COMMANDS, ("--no-kubelets",), judges=ALL),
    Suite("installed", (*INSTALLED, SAYS), ("--kubelets", "1", "--kwok", "1"), image=True),  # it says how long it took
    Suite("contract-slurm", _contract("slurm"), ("--no-kubelets",), judges=()),  # no bridge runs
    # They say how soon all went on.
    Suite("torture", (*TORTURE, SAYS, "-W", UNCLOSED), ("--no-kubelets",), judges=ALL),
    Suite("nodes", NODES, ("--kubelets", "1", "--kwok", "1")),
    Suite("controllers", CONTROLLERS, image=True, judges=(*ALWAYS, "V6")),
    Suite("workloads", WORKLOADS, ("--no-kubelets",), judges=ALL),
    Suite("ends", ENDS, judges=(*ALWAYS, "V6")),
    Suite("page", ("integration/page",), None, browser=True),
    Suite(
        "journeys",
        (
            "integration/journeys",
            *(
                f"--ignore={each}"
                for each in COMMANDS
                + WORKLOADS
                + FAULTS
                + NODES
                + INSTALLED
                + ENDS
                + CONTROLLERS
                + TORTURE
                + REPLICAS
                + PICTURES
                + UNCOUNTED
                + MONITORING
            ),
        ),
        judges=(*ALWAYS, "V6", "L1"),
    ),
    Suite("compose", ("integration/compose",), None, compose=True),
    # No bridge runs.  The Slurm of this rig is for generated sequences alone, which have partitions of their own.
    Suite("contract-kube", (*_contract("kube"), SEQUENCES), ("--no-kubelets", "--slurmd", "0"), lanes=True, judges=()),
    Suite(
        "monitoring",
        ("integration/monitoring", *MONITORING),
        ("--no-kubelets", "--slurm-conf", str(ROOT / "integration/rigging/conf/licenses.conf")),
        programs=("prometheus", "collector"),
        judges=(*ALWAYS, "V4", "L1"),
    ),
    Suite("pictures", PICTURES, ("--no-kubelets",), browser=True),
    Suite(
        "uncounted",
        UNCOUNTED,
        ("--no-kubelets", "--kwok", "2", "--slurm-conf", str(ROOT / "integration/rigging/conf/uncounted.conf")),
    ),
)


def main(chosen: list[str]) -> int:
    """Run the named suites, or all.  Returns the exit code: 0 if all passed; with CI=true 1 also if one was left out."""
    suites = [suite for suite in SUITES if not chosen or suite.name in chosen]
    os.environ.setdefault("GOGC", GARBAGE_PERCENT)
    if all(os.environ.get(name) for name in GIVEN):
        print(f"integration: on the clusters of {', '.join(GIVEN)}", flush=True)
        return max(_here(suite) for suite in suites)
    wants_rig = [suite for suite in suites if suite.rig is not None]
    code = 0
    if wants_rig and (why := _no_rig()):
        what = "the journeys on real clusters and the contract suite's real subjects"
        code = _left_out(what, why)
        suites = [suite for suite in suites if suite.rig is None]
    elif wants_rig:
        subprocess.run([sys.executable, RIG, "build"], check=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = list(pool.map(_run, suites))
    broken = {suite.name for suite, run in zip(suites, runs, strict=True) if run.broken}
    for suite in (suite for suite, run in zip(suites, runs, strict=True) if run.code):
        before = _failures(suite)
        again = _run(suite, again=True)
        code = max(code, again.code)
        broken |= {suite.name} if again.broken else set()
        after = _failures(suite)
        if passed := sorted(set(before) - set(after)) or (["pytest itself"] if not again.code else []):
            print(f"integration: UNSTEADY, {suite.name} passed only alone: {', '.join(passed)}", flush=True)
        if again.code:
            print(f"integration: FAILED, {suite.name}: {', '.join(after) or 'pytest itself'}", flush=True)
    for name in sorted(broken):
        print(
            f"integration: the logs of {name} show a violated invariant, or too little (checker: …, above)", flush=True
        )
    return max(code, bool(broken))


def _run(suite: Suite, *, again: bool = False) -> Run:
    """Run one suite, or (again) those of its tests that failed."""
    if suite.browser and (why := _no_browser()):
        return Run(_left_out(f"{suite.name}, in a browser", why))
    return Run(_here(suite, again=again)) if suite.rig is None else _on_a_rig(suite, suite.rig, again=again)


def _failures(suite: Suite) -> list[str]:
    """The tests of this suite that failed in their last run, as pytest keeps them; [] if pytest itself failed."""
    kept = ROOT / _cache(suite) / "v" / "cache" / "lastfailed"
    return list(json.loads(kept.read_text())) if kept.exists() else []


def _cache(suite: Suite) -> str:
    return f".pytest_cache/{suite.name}"


def _left_out(what: str, why: str) -> int:
    print(f"integration: LEFT OUT, {what}: {why}", flush=True)
    return 1 if os.environ.get("CI") == "true" else 0


def _here(suite: Suite, *, again: bool = False) -> int:
    """Run one suite without a rig of its own, then print its output as a whole.  Returns the exit code."""
    if suite.compose:
        if why := _no_rig():
            return _left_out("docker-compose.yml, run by podman-compose", why)
        made = subprocess.run([RIG, "compose"], capture_output=True, text=True, check=False)
        if made.returncode:
            print(f"integration: {suite.name}: `rig compose` failed:\n{made.stdout}{made.stderr}", flush=True)
            return 1
    done = subprocess.run(
        _pytest(suite, again=again), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    print(f"\n=== {suite.name}\n{done.stdout.decode()}", flush=True)
    return done.returncode


def _no_browser() -> str:
    """Why Chromium or kubectl is missing and cannot be installed; "": both are there now."""
    try:
        packages.ensure(packages.BROWSER, _log())
    except RigError as error:
        return str(error)
    if not places.kubectl():
        return "there is no kubectl: put one on the PATH (a rig builds its own)"
    return ""


def _log() -> Path:
    folder = places.cache() / "log"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "apt.log"


def _pytest(suite: Suite, *, again: bool) -> list[str]:
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--durations=5",
        "-o",
        f"cache_dir={_cache(suite)}",
        *(["--last-failed"] if again else []),
        *suite.tests,
    ]


def _on_a_rig(suite: Suite, wanted: Sequence[str], *, again: bool = False) -> Run:
    """Run one suite on a rig of its own, then print its output as a whole.  wanted: the options of the rig"""
    name = f"it-{suite.name}"
    steps = [[RIG, "image"]] if suite.image else []
    steps += [[RIG, program] for program in suite.programs]
    lanes = ["--slurm-conf", str(_lanes())] if suite.lanes else []
    for step in [*steps, [RIG, "up", "--fresh", "--name", name, *wanted, *lanes]]:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"integration: {suite.name}: `rig {step[1]}` failed:\n{done.stdout}{done.stderr}", flush=True)
            return Run(1)
    try:
        control = {
            "SLURM_CONTROL": f"{sys.executable} {RIG} slurmctld --name {name}",
            "SLURM_ACCOUNTING_CONTROL": f"{sys.executable} {RIG} slurmdbd --name {name}",
            **({"SLURM_LANES": "1"} if suite.lanes else {}),
            "KUBE_FORGET_COMMAND": f"{sys.executable} {ROOT / 'tests' / 'contract' / 'forget_kube.py'}",
        }
        inside = [sys.executable, RIG, "run", "--name", name, "--", *_pytest(suite, again=again)]
        tested = subprocess.run(
            inside, cwd=ROOT, env=os.environ | control, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        whole = not again and not tested.returncode and "PYTEST_ADDOPTS" not in os.environ
        proved = _proof(name, suite.judges if whole else ()) if suite.judges else None
        said = tested.stdout.decode() + (proved.stdout.decode() if proved else "")
        print(f"\n=== {suite.name}, on real Slurm and real Kubernetes\n{said}", flush=True)
        return Run(tested.returncode, broken=proved is not None and bool(proved.returncode))
    finally:
        subprocess.run([RIG, "down", "--name", name], check=True)


def _proof(name: str, must: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """The output of the checker on the logs of that rig, which is up.  must: invariants that it must judge"""
    command = [sys.executable, "-m", "integration.checker", name, "--must", ",".join(must)]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def _lanes() -> Path:
    """A file with the lines of slurm.conf for the lanes of generated sequences."""
    made = subprocess.run(
        [sys.executable, "-m", "tests.contract.slurm_sequences"], cwd=ROOT, capture_output=True, check=True
    )
    file = _log().with_name("lanes.conf")
    file.write_bytes(made.stdout)
    return file


def _no_rig() -> str:
    """Why this machine cannot have a rig; "": it can."""
    if os.geteuid() != 0:
        return "a rig needs root (network namespaces, chroot, containerd)"
    if shutil.which("apt-get") is None:
        return "a rig is made from Debian packages, and this machine has no apt-get"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Which tests notice a mutant.

One process imports and collects all tests.  Each measurement and each mutant is a fork of it, which runs tests until one
fails.  So a mutant costs the fork and its tests, and no import.

A mutant is tried by the tests in which it makes a difference (tests/mutants/probes.py): first by those that noticed other
mutants of its function or of its file, then by those in which a mutant of the function, or of the file, makes a difference
that makes one in few tests: they are about that code.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

from tests.mutants.code_swap import LiveFunctions
from tests.mutants.mutations import Mutant
from tests.mutants.probes import Probes, probed

KEPT = ".mutants"  # below the root: which mutant makes a difference in which test
HISTORIES = 12  # examples of a state machine; a whole run of one takes longer than all other tests
OVERHEAD_S = 0.0005  # of a test, beside what is measured
# A test that takes so many times its usual time, and so many seconds more, does not end.
LIMIT_FACTOR, LIMIT_S = 5.0, 2.0
MORE_MEMORY = 2 << 30  # bytes, beyond what the process has
SLOW_S = 0.1  # a test that takes longer waits until faster ones have passed
LATEST = 12  # tests that noticed mutants of a function, or of a file, and are tried first


class Outcome(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    TIMEOUT = "timeout"  # a test did not end: noticed, too
    TYPES = "rejected by the type checker"  # noticed, too, and by no test
    SURVIVED = "survived"
    SAME = "no difference"  # in any test


# Of a path, or a path and a function: test to the number of tests, as a power of 2, in which its rarest mutant differs.
Aims = dict[str, dict[int, int]]
NOTICED = (Outcome.KILLED, Outcome.TIMEOUT, Outcome.TYPES)


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one mutant.  test: that failed or did not end"""

    mutant: Mutant
    outcome: Outcome
    test: str = ""


@dataclass(slots=True)
class Reach:
    """What a run without mutants shows.  Mutants and tests are named by their places in the lists of both.

    tests    mutant to the tests in which it makes a difference
    times_s  CPU seconds of each test, with probes
    failed   tests that fail without a mutant
    """

    tests: dict[int, list[int]] = field(default_factory=dict)
    times_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def add(self, test: int, measured: Measured, name: str) -> None:
        """Add what was measured of a test; tests are added in order of their files."""
        self.times_s[test] = measured.time_s
        for place in measured.differing:
            self.tests.setdefault(place, []).append(test)
        if measured.failed:
            self.failed.append(name)


@dataclass(frozen=True, slots=True)
class Measured:
    """One test without mutants: its CPU seconds with probes, the mutants that make a difference, and whether it fails."""

    time_s: float
    differing: Sequence[int]
    failed: bool


class Trials:
    """A plugin of pytest: in the place of a run of the tests, it tries mutants by them."""

    def __init__(
        self,
        root: Path,
        package: str,
        mutants: Sequence[Mutant],
        *,
        tried: Sequence[int],
        budget_s: float,
        jobs: int,
        told: Callable[[Trial], None],
    ) -> None:
        """
        mutants   all of the package: what is measured of them is kept for later runs
        tried     the places in this list of those that are tried
        budget_s  CPU seconds of fast tests for one mutant, and as much of slow tests
        jobs      mutants at the same time
        told      gets each trial
        """
        self._told = told
        self.reach = Reach()
        self._root, self._package = root, package
        self._mutants, self._tried, self._budget_s, self._jobs = mutants, tried, budget_s, jobs
        self._items: list[pytest.Item] = []
        self._noticed: defaultdict[str, list[int]] = defaultdict(list)  # by path, and by path and function

    def pytest_configure(self) -> None:
        """Examples are the same each time, and a failing one is not made smaller."""
        from hypothesis import Phase, settings  # pytest warns of a plugin that was imported before it

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", settings(), derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants by the collected tests."""
        from hypothesis import settings

        if session.testsfailed:
            pytest.exit("tests could not be collected", returncode=1)
        self._items = session.items
        for item in session.items:
            if machine := getattr(getattr(item, "cls", None), "settings", None):
                item.cls.settings = settings(machine, max_examples=HISTORIES)  # type: ignore[attr-defined]
        live = LiveFunctions(self._root, self._package)
        gc.collect()
        gc.freeze()  # a collection in a fork would copy every page
        self.reach = self._known_reach(live)
        if self.reach.failed:
            pytest.exit(f"these fail without a mutant: {', '.join(self.reach.failed)}", returncode=1)
        self._try_all(live)
        return True

    # --- the run without mutants ---------------------------------------------------------------------------------------

    def _known_reach(self, live: LiveFunctions) -> Reach:
        """What was measured with the same mutants, code and tests.  The tests of files that have changed are measured now."""
        files: defaultdict[Path, list[int]] = defaultdict(list)
        for test, item in enumerate(self._items):
            files[item.path].append(test)
        around = {above for path in files for above in path.parents if above.is_relative_to(self._root)}
        helpers = {
            path for above in around for path in above.glob("*.py") if not path.name.startswith("test_")
        } - files.keys()
        paths = sorted({*(self._root / self._package).rglob("*.py"), *helpers})
        all_mutants = "\n".join(map(str, self._mutants)).encode()
        code = sha256(b"".join((all_mutants, *(path.read_bytes() for path in paths)))).digest()
        (self._root / KEPT).mkdir(exist_ok=True)
        kept = {path: self._root / KEPT / self._known_as(code, path, tests) for path, tests in files.items()}
        if missing := [path for path in files if not kept[path].exists()]:
            _Fork(lambda: self._measure_all(live, {kept[path]: files[path] for path in missing})).whole()
        reach = Reach(times_s=[0.0] * len(self._items))
        for path, tests in files.items():
            for test, of in zip(tests, pickle.loads(kept[path].read_bytes()), strict=True):
                reach.add(test, of, self._items[test].nodeid)
        return reach

    def _known_as(self, code: bytes, path: Path, tests: Sequence[int]) -> str:
        """The name under which it is kept what these tests of one file reach."""
        names = "\n".join(self._items[test].nodeid for test in tests)
        return sha256(b"".join((code, path.read_bytes(), names.encode()))).hexdigest()

    def _measure_all(self, live: LiveFunctions, of_files: Mapping[Path, Sequence[int]]) -> bytes:
        """In a fork: keep what a run of these tests shows, each file of tests by itself: an interrupted run goes on there."""
        probes = Probes()
        of_function: dict[int, list[tuple[int, Mutant]]] = {}
        for place, mutant in enumerate(self._mutants):
            of_function.setdefault(id(mutant.outermost), []).append((place, mutant))
        for mutants in of_function.values():
            outermost = mutants[0][1].outermost
            live.replace(probed(outermost, mutants, live.path(outermost.path)))
        running: dict[int, _Fork] = {}
        for kept, tests in of_files.items():
            if len(running) == self._jobs:
                _end_one(running)
            fork = _Fork(lambda kept=kept, tests=tests: self._measure(live, probes, kept, tests))  # type: ignore[misc]
            running[fork.pid] = fork
        while running:
            _end_one(running)
        return b""

    def _measure(self, live: LiveFunctions, probes: Probes, kept: Path, tests: Sequence[int]) -> bytes:
        """In a fork of that fork: the tests of one file."""
        found: list[Measured] = []
        for item, following in _followed([self._items[test] for test in tests]):
            live.forget()  # a function behind a cache runs in each test
            began = time.process_time()
            failed = not passes(item, following)
            found.append(Measured(time.process_time() - began, probes.taken(), failed))
        whole = kept.with_suffix(".new")
        whole.write_bytes(pickle.dumps(found))
        whole.rename(kept)
        return b""

    # --- the mutants ---------------------------------------------------------------------------------------------------

    def _try_all(self, live: LiveFunctions) -> None:
        running: dict[int, tuple[Mutant, _Fork]] = {}
        aimed = self._aimed()
        for place in self._tried:
            mutant, tests = self._mutants[place], self._tests_of(place, aimed)
            if not tests:
                self._told(Trial(mutant, Outcome.SAME))
                continue
            if len(running) == self._jobs:
                self._take_one(running)
            fork = _Fork(lambda mutant=mutant, tests=tests: self._first_that_fails(live, mutant, tests))  # type: ignore[misc]
            running[fork.pid] = mutant, fork
        while running:
            self._take_one(running)

    def _tests_of(self, place: int, aimed: Aims) -> list[int]:
        """The tests in which the mutant makes a difference, as far as the budget goes, in the order in which they try it."""
        mutant, times = self._mutants[place], self.reach.times_s
        function = f"{mutant.path} {mutant.function}"
        of_file, of_function = aimed[mutant.path], aimed[function]
        noticed = [*self._noticed[mutant.path], *self._noticed[function]]
        rank = {test: -latest for latest, test in enumerate(noticed)}
        order = sorted(
            self.reach.tests.get(place, ()),
            key=lambda test: (times[test] > SLOW_S, rank.get(test, 1), of_function[test], of_file[test], times[test]),
        )
        # Properties and long stories have a budget of their own, or there would be no time for them after many fast tests.
        left = {False: self._budget_s, True: self._budget_s}
        chosen = []
        for test in order:
            is_slow = times[test] > SLOW_S
            if times[test] + OVERHEAD_S > left[is_slow] and chosen:
                continue
            left[is_slow] -= times[test] + OVERHEAD_S
            chosen.append(test)
        return chosen

    def _aimed(self) -> Aims:
        aimed: Aims = {}
        files = {self._mutants[place].path for place in self._tried}
        for place, mutant in enumerate(self._mutants):
            if mutant.path not in files:
                continue
            tests = self.reach.tests.get(place, ())
            for of in (mutant.path, f"{mutant.path} {mutant.function}"):
                known = aimed.setdefault(of, {})
                for test in tests:
                    known[test] = min(known.get(test, 64), len(tests).bit_length())
        return aimed

    def _first_that_fails(self, live: LiveFunctions, mutant: Mutant, tests: Sequence[int]) -> bytes:
        """In a fork: its place in the list of tests, as text; nothing if all pass."""
        live.mutate(mutant)
        _bound_memory()
        for test, (item, following) in zip(tests, _followed([self._items[test] for test in tests]), strict=True):
            limit_s = LIMIT_FACTOR * self.reach.times_s[test] + LIMIT_S
            signal.setitimer(signal.ITIMER_PROF, limit_s)  # SIGPROF ends the process
            if not passes(item, following):
                return str(test).encode()
        return b""

    def _take_one(self, running: dict[int, tuple[Mutant, _Fork]]) -> None:
        pid, status = os.waitpid(-1, 0)
        mutant, fork = running.pop(pid)
        answer = fork.answer()
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL):
            self._told(Trial(mutant, Outcome.TIMEOUT))
        elif status != 0:
            raise RuntimeError(f"the trial of {mutant} ended with status {status}: {answer.decode()}")
        elif answer:
            test = int(answer)
            for noticed in (self._noticed[mutant.path], self._noticed[f"{mutant.path} {mutant.function}"]):
                if test in noticed:
                    noticed.remove(test)
                noticed.append(test)
                del noticed[:-LATEST]
            self._told(Trial(mutant, Outcome.KILLED, self._items[test].nodeid))
        else:
            self._told(Trial(mutant, Outcome.SURVIVED))


class _Fork:
    """A copy of this process that does some work and ends."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _end_with(work, writing)
        os.close(writing)
        self._reading = reading

    def whole(self) -> bytes:
        """What the work returned.  Raises RuntimeError if it raised."""
        answer = self.answer()
        if os.waitpid(self.pid, 0)[1]:
            raise RuntimeError(answer.decode())
        return answer

    def answer(self) -> bytes:
        """What the work returned; of work that raised, the traceback.  Waits until it is complete."""
        with open(self._reading, "rb") as answer:
            return answer.read()


def _end_one(running: dict[int, _Fork]) -> None:
    """Wait until one of the forks has ended.  Raises RuntimeError if it raised."""
    pid, status = os.waitpid(-1, 0)
    answer = running.pop(pid).answer()
    if status:
        raise RuntimeError(answer.decode())


def _end_with(work: Callable[[], bytes], writing: int) -> NoReturn:
    """Do the work and end the process, without what pytest does at its end."""
    status = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with open(writing, "wb") as answer:
            try:
                answer.write(work())
                status = 0
            except BaseException:  # noqa: BLE001 - the parent raises it
                answer.write(traceback.format_exc().encode())
    finally:
        os._exit(status)


def passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test with its fixtures.  No text is made of a failure, because that takes longer than the test."""
    hook = item.ihook
    phases = (
        lambda: hook.pytest_runtest_setup(item=item),
        lambda: hook.pytest_runtest_call(item=item),
    )
    return all(map(_succeeds, phases)) & _succeeds(lambda: hook.pytest_runtest_teardown(item=item, nextitem=following))


def _succeeds(phase: Callable[[], object]) -> bool:
    try:
        phase()
    except BaseException:  # noqa: BLE001 - a mutant may raise anything
        return False
    return True


def _followed(items: Sequence[pytest.Item]) -> Iterable[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _bound_memory() -> None:
    """A mutant that fills a list for ever gets a MemoryError."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + MORE_MEMORY, resource.RLIM_INFINITY))

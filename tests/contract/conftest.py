"""The contract suite: one suite, three subjects (recordings, the simulated clusters, the real servers).

What a run has to do without it says by name in its summary; nothing is skipped silently.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator

import pytest

from tests.contract import sequences, slurm_subjects
from tests.contract.slurm_subjects import Real, Recorded, Simulated, Slurm, Subject


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-slurm", action="store_true", help="write what the real Slurm answers as the recordings")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "outage: ends and begins slurmctld or slurmdbd")
    config.addinivalue_line("markers", "lanes: needs the partitions of the lanes (slurm_sequences.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the subjects that are not here."""

    def runs(item: pytest.Item) -> bool:
        subject = getattr(item, "callspec", None) and item.callspec.params.get("slurm")  # type: ignore[attr-defined]
        if config.getoption("--record-slurm") and subject not in (None, "real"):
            return False
        if subject == "real" and item.get_closest_marker("outage"):
            return slurm_subjects.outage_is_possible()
        if item.get_closest_marker("lanes"):
            return slurm_subjects.lanes_are_there()
        return bool(subject != "real" or slurm_subjects.real_is_there())

    left_out = [item for item in items if not runs(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if runs(item)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for module in ("slurm_subjects", "kube_subjects"):
        name = f"tests.contract.{module}"
        if importlib.util.find_spec(name) and (why := importlib.import_module(name).left_out()):
            terminalreporter.write_line(f"left out: {why}", yellow=True)
    for each in sequences.differed_once:
        terminalreporter.write_line(f"UNSTEADY, this sequence differed once and not again: {each}", yellow=True)


@pytest.fixture(params=slurm_subjects.NAMES)
async def slurm(request: pytest.FixtureRequest) -> AsyncIterator[Slurm]:
    """A Slurm, and what a test needs of it."""
    test = request.node.originalname + _parameters(request)
    subject: Subject
    if request.param == "recorded":
        subject = Recorded(test)
    elif request.param == "simulated":
        subject = Simulated()
    else:
        subject = Real(test, recording=request.config.getoption("--record-slurm"))
    failed_before = request.session.testsfailed
    yield await Slurm.of(subject)
    await subject.close(passed=request.session.testsfailed == failed_before)


def _parameters(request: pytest.FixtureRequest) -> str:
    """The test's other parameters, so that each has a recording of its own."""
    others = [value for name, value in request.node.callspec.params.items() if name != "slurm"]
    return "".join(f"-{value.id if hasattr(value, 'id') else value}" for value in others)

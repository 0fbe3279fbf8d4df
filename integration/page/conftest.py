"""`slurm-bridge dev` as a user starts it, and the programs that a user looks at it with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from integration.browser import Tab, browser
from integration.demo import Dev, running
from integration.rigging import places


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A running `slurm-bridge dev`."""
    with running(tmp_path_factory.mktemp("dev") / "stderr", "--seed", "3") as started:
        yield started


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    """A browser; its console must have nothing to complain of."""
    async with browser() as opened:
        yield opened
        assert opened.errors == []


@pytest.fixture(scope="session")
def kubectl() -> str:
    """The kubectl that the rig was built with, else the machine's."""
    found = places.kubectl()
    assert found, "there is no kubectl: integration/rig build makes one"
    return found

"""One scenario on the clusters at hand: what `python -m integration.bench` runs within a rig's network.

    python -m integration.bench.inside SCENARIO OUT.json …

KUBECONFIG, SLURM_REST and SLURM_TOKEN_FILE name the clusters, if the scenario needs a rig.  The figures go to the file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from integration.bench.catalogue import chosen
from integration.bench.clients import BenchError
from integration.bench.figures import Measured, merged
from integration.bench.ground import furnished
from integration.bench.scenarios import Scenario


def main() -> int:
    """Exit code 0, or 1 with a sentence."""
    parser = argparse.ArgumentParser(prog="python -m integration.bench.inside")
    parser.add_argument("scenario")
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--turn", type=int, default=0, help="the number of the first repeat")
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--counted", action="store_true", help="count what cannot be counted while time is measured")
    parser.add_argument(
        "--brief", action="store_true", help="only to see whether it works: do not wait for a fair start"
    )
    parser.add_argument("--profile", type=Path, help="where the bridge's stacks go")
    asked = parser.parse_args()
    try:
        [scenario] = chosen([asked.scenario], asked.pods, asked.seconds)
        measured = asyncio.run(_measure(scenario, asked))
    except (BenchError, ExceptionGroup) as error:
        if not isinstance(_first(error), BenchError):
            raise
        print(f"bench: {asked.scenario}: {_first(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # the caller says it
        return 130
    asked.out.write_bytes(msgspec.json.encode(measured))
    return 0


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _measure(scenario: Scenario, asked: argparse.Namespace) -> Measured:
    turns = range(asked.turn, asked.turn + asked.repeats)
    measure = scenario.count if asked.counted else scenario.repeat
    with _folder() as folder:
        if measure is None:
            assert scenario.alone is not None, f"{scenario.name} is measured either on a rig or alone"
            found = [figure for _ in turns for figure in await scenario.alone(folder, asked.profile)]
            return Measured(merged(found), {})
        async with furnished(folder, thorough=not asked.brief, profile=asked.profile) as ground:
            figures = [figure for turn in turns for figure in await measure(replace(ground, turn=turn))]
            return Measured(merged(figures), await ground.versions())


@contextmanager
def _folder() -> Iterator[Path]:
    """For the bridge's log and settings: beside the rig's own, where they can be read as long as it is up."""
    if state := os.environ.get("RIG_STATE"):
        folder = Path(state) / "bench"
        folder.mkdir(exist_ok=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="bench-") as passing:
            yield Path(passing)


if __name__ == "__main__":
    sys.exit(main())

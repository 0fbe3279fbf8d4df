"""The loop on virtual time."""

from __future__ import annotations

import asyncio
import time

import pytest

from bridge.simulation.virtual_time import START, Deadlock, run


def test_waiting_takes_no_time_and_moves_the_clock_exactly() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(3600)
        after = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return after, loop.time()

    began = time.monotonic()
    assert run(main()) == (START + 3600, START + 3605)
    assert time.monotonic() - began < 2


def test_what_waits_longer_goes_on_later() -> None:
    order: list[int] = []

    async def wait(seconds: int) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    async def main() -> None:
        await asyncio.gather(*(wait(seconds) for seconds in (30, 10, 20)))

    run(main())
    assert order == [10, 20, 30]


def test_a_deadlock_is_raised_and_names_each_waiting_task_and_its_line() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.sleep(1)
        await asyncio.create_task(stuck(), name="the stuck one")

    with pytest.raises(Deadlock, match=r"at 1\.000 s(.|\n)*the stuck one: .*wait"):
        run(main())


def test_an_error_comes_through() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(main())

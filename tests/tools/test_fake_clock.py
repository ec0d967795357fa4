from __future__ import annotations

import asyncio

from perdure.clock import Clock
from perdure.testing.clock import FakeClock


async def test_it_stands_still_until_it_is_moved() -> None:
    clock: Clock = FakeClock(wall=5, monotonic=2.0)
    assert (clock.wall(), clock.monotonic()) == (5, 2.0)
    await clock.sleep(0)
    await clock.sleep(-1)
    assert (clock.wall(), clock.monotonic()) == (5, 2.0)


async def test_sleepers_wake_at_their_time_and_in_order() -> None:
    clock = FakeClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *seconds: float) -> None:
        for each in seconds:
            await clock.sleep(each)
            woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("a", 3))
        group.create_task(sleeper("b", 1, 1))
        group.create_task(sleeper("c", 2))
        await clock.advance(2.5)
        assert woken == [("b", 1.0), ("c", 2.0), ("b", 2.0)]
        assert (clock.monotonic(), clock.sleeping) == (2.5, 1)
        await clock.advance(0.5)
        assert woken[-1] == ("a", 3.0)


async def test_the_wall_moves_with_it() -> None:
    clock = FakeClock(wall=0)
    await clock.advance(1.5)
    assert clock.wall() == 1_500_000_000


async def test_a_cancelled_sleeper_does_not_wake() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.advance(0.5)
    task.cancel()
    await asyncio.wait({task})
    assert clock.sleeping == 0
    await clock.advance(1)
    assert task.cancelled()

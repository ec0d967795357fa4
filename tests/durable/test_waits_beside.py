"""Waits beside one another: what came for one is not lost because another has not come."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

import pytest

from perdure import Program, Runs, interrupt, race, recover, sleep, step, wait_for
from perdure.log import Message
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock

Function = Callable[[], Awaitable[object]]


class Remote(MemoryStore):
    """A store whose inbox is read over a network."""

    async def unconsumed(self, session: str) -> tuple[Message, ...]:
        await asyncio.sleep(0.005)
        return await super().unconsumed(session)


class Bench:
    """A program, its store and its time."""

    def __init__(self, function: Function, clock: FakeClock) -> None:
        self.clock = clock
        store = Remote()
        self.program = Program(function, name="beside", store=store, clock=clock)
        self.runs = Runs(store, clock=clock)

    async def status(self) -> str:
        return (await self.runs.get("r")).status

    async def waits(self) -> list[str]:
        """What the run waits for, by name."""
        wait = (await self.runs.get("r")).pending[0].wait or {}
        return sorted(one["name"] for one in wait["waits"])  # type: ignore[attr-defined]

    async def later(self, seconds: float) -> None:
        """Some time passes, and whoever is due is driven."""
        await self.clock.advance(seconds)
        await recover(programs=[self.program])


@pytest.mark.parametrize("timed", [False, True], ids=["a sleep", "a timeout"])
async def test_a_race_whose_time_came_beside_a_question_goes_on(timed: bool) -> None:
    sent: list[str] = []

    async def reminding() -> None:
        for turn in ("first", "second", "third"):
            late = wait_for(f"late {turn}", timeout=60) if timed else sleep(f"late {turn}", 60)
            try:
                came = await race(turn, {"paid": wait_for("paid"), "late": late})
                if came.which == "paid":
                    return
            except TimeoutError:
                pass
            await step(f"remind {turn}", functools.partial(sent.append, turn))

    async def both() -> object:
        return await asyncio.gather(reminding(), interrupt("allowed", "May it go on?", bool))

    bench = Bench(both, FakeClock())
    await bench.program.run(run_id="r")
    for _ in range(3):
        await bench.later(61)
    assert sent == ["first", "second", "third"]
    assert await bench.waits() == ["allowed"]


@pytest.mark.parametrize("kind", ["sleep", "signal", "race"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
async def test_two_that_wait_for_one_time_both_go_on(kind: str, beside: bool) -> None:
    clock = FakeClock()
    reached: list[int] = []

    async def time_passes() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await clock.advance(61)

    async def waits(number: int) -> None:
        if kind == "sleep":
            await sleep("deadline", 60)
        elif kind == "race":
            await race(f"race {number}", {"late": sleep("deadline", 60)})
        else:
            with pytest.raises(TimeoutError):
                await wait_for("deadline", timeout=60)

    async def helper(number: int) -> None:
        if number == 2:  # the other sleeps by now, and its call is held up by this step
            await step("prepare", time_passes)
        await waits(number)
        await step(f"act {number}", lambda: reached.append(number))

    async def asks() -> None:
        if beside:
            await wait_for("other")

    async def together() -> None:
        await asyncio.gather(helper(1), helper(2), asks())

    bench = Bench(together, clock)
    await bench.program.run(run_id="r")
    await bench.later(61)
    assert sorted(reached) == [1, 2]
    assert await bench.status() == ("suspended" if beside else "done")


async def fails() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    raise LookupError("no such shelf")


async def asks() -> None:
    await interrupt("old", "Which one?", int)


async def sleeps() -> None:
    await sleep("old", 60)


async def races() -> None:
    await race("old", {"asked": interrupt("old", "Which one?", int), "late": sleep("old", 60)})


@pytest.mark.parametrize("waits", [asks, sleeps, races])
async def test_what_was_cut_is_waited_for_no_more(waits: Function) -> None:
    async def cut() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(waits())  # type: ignore[arg-type]
                group.create_task(step("look", fails, effect="none"))
        except* LookupError:
            pass
        await wait_for("new")

    bench = Bench(cut, FakeClock())
    result = await bench.program.run(run_id="r")
    assert result.status == "suspended"
    assert await bench.waits() == ["new"]
    assert (await bench.runs.get("r")).due is None


@pytest.mark.parametrize("waits", [sleeps, races])
async def test_a_name_whose_wait_was_cut_is_free_for_other_terms(waits: Function) -> None:
    async def cut() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(waits())  # type: ignore[arg-type]
                group.create_task(step("look", fails, effect="none"))
        except* LookupError:
            pass
        await sleep("old", 90)

    bench = Bench(cut, FakeClock())
    assert (await bench.program.run(run_id="r")).status == "suspended"
    assert await bench.waits() == ["old"]
    await bench.later(91)
    assert await bench.status() == "done"

"""Two waits under one name at once are one wait, or a mistake that is told (LOG 5.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import Program, Runs, interrupt, race, receive, sleep, sleep_until, wait_for
from perdure.errors import ConfigError, RunFailed
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock
from tests.durable.test_work import CALL, Bench, Body, bench_of
from tests.durable.world import RUN, outputs


class Desk:
    """A program that does what a test says."""

    def __init__(self, body: Callable[[], Awaitable[object]]) -> None:
        self.clock, self.store = FakeClock(), MemoryStore()
        self.runs = Runs(self.store, clock=self.clock)

        async def work() -> object:
            return await body()

        self.program: Program[object] = Program(work, store=self.store, clock=self.clock)

    async def run(self) -> Any:
        return await self.program.run(run_id=RUN)


DIFFERENT: list[tuple[str, Callable[[], list[Awaitable[object]]]]] = [
    ("the sleep 'a'", lambda: [sleep("a", 60), sleep("a", 90)]),
    ("the sleep 'a'", lambda: [sleep("a", 60), sleep_until("a", 1_800_000_000 * 10**9)]),
    ("the signal 'a'", lambda: [wait_for("a"), wait_for("a", timeout=60)]),
    ("the signal 'a'", lambda: [wait_for("a", timeout=5), wait_for("a", timeout=60)]),
    ("the interrupt 'a'", lambda: [interrupt("a", "Who?", str), interrupt("a", "Who?", int)]),
    ("the interrupt 'a'", lambda: [interrupt("a", "Who?", str), interrupt("a", "What?", str)]),
    (
        "the signal 'a'",
        lambda: [wait_for("a", timeout=5), race("first", {"a": wait_for("a"), "b": sleep("b", 1)})],
    ),
    (
        "the signal 'a'",
        lambda: [race("first", {"a": wait_for("a"), "b": sleep("b", 1)}), wait_for("a", timeout=5)],
    ),
    (
        "race 'a'",
        lambda: [
            race("a", {"x": wait_for("x"), "late": sleep("x", 60)}),
            race("a", {"y": wait_for("y"), "late": sleep("y", 90)}),
        ],
    ),
    (
        "the signal 'a'",
        lambda: [race("first", {"a": wait_for("a"), "b": wait_for("a", timeout=5)})],
    ),
]


@pytest.mark.parametrize(("names", "waits"), DIFFERENT)
@pytest.mark.parametrize("how", ["gather", "group", "tasks"])
async def test_waits_at_once_under_one_name_with_other_terms_are_refused(
    how: str, names: str, waits: Callable[[], list[Any]]
) -> None:
    async def body() -> object:
        if how == "gather":
            return await asyncio.gather(*waits())
        if how == "group":
            async with asyncio.TaskGroup() as group:
                for one in waits():
                    group.create_task(one)
            return None
        tasks = [asyncio.ensure_future(one) for one in waits()]
        for task in tasks:  # the first to fail is all that is told of
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return [await task for task in tasks]

    desk = Desk(body)
    with pytest.raises(RunFailed) as caught:
        await desk.run()
    error = caught.value.cause
    if isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, ConfigError)
    assert names in str(error)
    assert "give each a name of its own" in str(error)


async def test_a_tool_reads_that_two_waits_at_once_share_a_name() -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            return await asyncio.gather(sleep("a", 60), sleep("a", 90))

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    assert "the sleep 'a' of this call" in outputs(bench.result)[CALL]


async def test_waits_at_once_that_ask_the_same_are_one_wait() -> None:
    async def body() -> object:
        found = await asyncio.gather(
            wait_for("a", timeout=60),
            wait_for("a", timeout=60),
            interrupt("q", "Who?", str),
            interrupt("q", "Who?", str),
        )
        await asyncio.gather(sleep("nap", 60), sleep("nap", 60))
        return found

    desk = Desk(body)
    assert (await desk.run()).status == "input_required"
    await desk.runs.signal(RUN, "a", 7)
    await desk.runs.answer(RUN, "", "q", "Ann")
    assert (await desk.run()).status == "suspended"
    await desk.clock.advance(61)
    assert (await desk.run()).output == [7, 7, "Ann", "Ann"]


async def test_what_waits_one_after_the_other_under_one_name_may_ask_otherwise() -> None:
    async def body() -> object:
        first = await wait_for("a", timeout=60)
        again = await wait_for("a", timeout=5)
        await sleep("nap", 60)
        await sleep("nap", 90)  # has slept
        days: list[str] = []
        for day in range(3):
            lost = await race(
                f"day {day}", {"b": wait_for("b", timeout=1000 + day), "late": sleep(f"{day}", 10)}
            )
            days.append(lost.which)
        same = await race("day 0", {"b": wait_for("b"), "late": sleep("0", 10)})
        got = await receive("c")
        more = await receive("c")
        return [first, again, days, same.which, got.key, more.key]

    desk = Desk(body)
    await desk.run()
    await desk.runs.signal(RUN, "a", 1)
    for _ in range(5):
        await desk.run()
        await desk.clock.advance(61)
    await desk.run()
    await desk.runs.send(RUN, "c", 1, key="k")
    assert (await desk.run()).output == [1, 1, ["late"] * 3, "late", "k", "k"]


async def test_a_wait_that_was_cut_may_be_asked_for_anew_with_other_terms() -> None:
    """A suspension that waits for a slow step is cut by a time that the tool set."""

    def make(bench: Bench) -> Body:
        async def slow() -> str:
            await asyncio.sleep(0.03)
            return await bench.does("slow")

        async def body() -> object:
            from perdure import step

            beside = asyncio.ensure_future(step("slow", slow))
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(0.005):
                    await wait_for("a", timeout=60)
            except TimeoutError:
                await beside
            return await wait_for("a")

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.runs.signal(RUN, "a", 5)
    assert await bench.run() == "done"
    assert (outputs(bench.result)[CALL], bench.did) == ("5", ["slow"])

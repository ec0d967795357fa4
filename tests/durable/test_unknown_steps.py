"""Of a `once` step that began, the record alone says what came of it (LOG 5.5, 5.10; DESIGN 8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from perdure import (
    OutcomeUnknown,
    Program,
    Runs,
    race,
    run_agent,
    sleep,
    sleep_until,
    step,
    wait_for,
)
from perdure.errors import CallEnded, ConfigError
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock
from tests.durable.test_children import clerk
from tests.durable.test_work import CALL, Bench
from tests.durable.world import RUN, Act, World, outputs


class Odd(BaseException):
    """No exception that anybody expects."""


async def cancelled() -> None:
    other = asyncio.get_running_loop().create_future()
    other.cancel()
    await other


async def odd() -> None:
    raise Odd


async def late() -> None:
    await asyncio.sleep(0.02)
    raise ConnectionError("gone")


WORKS = {
    "cancelled": cancelled,
    "odd": odd,
    "half a character": lambda: "ch_\udcff",
    "no JSON": object,
    "late": late,
}


async def pays(work: Callable[[], object]) -> object:
    """Take a step, and make nothing of what comes of it."""
    with contextlib.suppress(BaseException):
        async with asyncio.timeout(0.005):
            await step("pay", work)
    return "gave up"


@pytest.mark.parametrize("name", WORKS)
async def test_a_call_halts_whatever_its_tool_makes_of_an_unknown_step(name: str) -> None:
    bench = Bench(lambda: pays(WORKS[name]))
    assert await bench.run() == "halted"
    await bench.runs.resolve(RUN, CALL, step="pay", value="paid")
    assert await bench.run() == "done"


@pytest.mark.parametrize("name", WORKS)
async def test_a_program_halts_whatever_it_makes_of_an_unknown_step(name: str) -> None:
    store = MemoryStore()

    async def job() -> object:
        return await pays(WORKS[name])

    program = Program(job, store=store)
    assert (await program.run(run_id=RUN)).status == "halted"
    await Runs(store).resolve(RUN, "", step="pay", value="paid")
    assert (await program.run(run_id=RUN)).status == "done"


async def test_a_call_that_waits_halts_when_a_step_beside_it_turns_out_unknown() -> None:
    async def body() -> object:
        async def given_up() -> None:
            await pays(late)

        other = asyncio.create_task(given_up())
        await asyncio.sleep(0.01)
        await sleep("a while", 60)
        return other

    assert await Bench(body).run() == "halted"


async def test_a_program_does_not_end_while_an_agent_of_it_halts() -> None:
    store, world = MemoryStore(), World()

    worker = clerk([Act(world=world, does=lambda _: _unknown())])

    async def job() -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.005):
                await run_agent("part", worker, "Act.")
        return "gave up"

    program = Program(job, store=store, clock=FakeClock())
    result = await program.run(run_id=RUN)
    assert result.status == "halted"
    (below,) = [one for one in result.pending if one.path]
    await Runs(store).resolve(RUN, below.call.call_id, session=below.session, output="acted")
    assert (await program.run(run_id=RUN)).status == "done"


async def _unknown() -> str:
    await asyncio.sleep(0.02)
    raise OutcomeUnknown("nobody knows")


async def test_what_goes_on_after_its_call_was_suspended_takes_no_step() -> None:
    told: list[str] = []

    async def stray() -> None:
        await asyncio.sleep(0.01)
        try:
            await step("pay", lambda: told.append("paid"))
        except CallEnded:
            told.append("ended")

    async def body() -> None:
        await asyncio.gather(sleep("a while", 60), stray())

    assert await Bench(body).run() == "suspended"
    await asyncio.sleep(0.03)
    assert told == ["ended"]


async def test_a_wait_that_begins_anew_after_a_race_counts_from_then() -> None:
    async def body() -> str:
        first = await race("r0", {"go": wait_for("go"), "late": sleep("late", 100)})
        second = await race("r1", {"stop": wait_for("stop"), "late": sleep("late", 100)})
        return f"{first.which} {second.which}"

    bench = Bench(body)
    assert await bench.run() == "suspended"
    await bench.clock.advance(90)
    await bench.runs.signal(RUN, "go")
    assert await bench.run() == "suspended"
    await bench.clock.advance(11)
    assert await bench.run() == "suspended"
    await bench.clock.advance(90)
    assert await bench.run() == "done"
    assert outputs(bench.result) == {CALL: "go late"}


@pytest.mark.parametrize("wall", [-1, 2**63 - 1, 2**63, 10**30])
async def test_a_time_that_no_store_keeps_is_refused(wall: int) -> None:
    bench = Bench(lambda: sleep_until("then", wall))
    assert await bench.run() == "done"
    assert "from 1970 to 2200" in outputs(bench.result)[CALL]


async def test_what_a_step_gave_has_to_be_said_and_may_be_none() -> None:
    bench = Bench(lambda: pays(odd))
    assert await bench.run() == "halted"
    with pytest.raises(ConfigError, match="value="):
        await bench.runs.resolve(RUN, CALL, step="pay")
    await bench.runs.resolve(RUN, CALL, step="pay", value=None)
    assert await bench.run() == "done"

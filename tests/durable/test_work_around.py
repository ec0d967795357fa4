"""What stands around steps and waits, and what stands beside them (DESIGN 8, LOG 5.4, 5.5)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from perdure import (
    Agent,
    OutcomeUnknown,
    Program,
    RunFailed,
    Runs,
    current_call,
    interrupt,
    recover,
    sleep,
    step,
    tool,
    wait_for,
)
from perdure.log.entries import StepEntry
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike
from tests.durable.test_work import CALL, Bench, Body, bench_of
from tests.durable.world import RUN, entries_of, outputs

# --- around a step -------------------------------------------------------------------------------


def around(bench: Bench, how: str) -> Body:
    """A slow step that acts once, with something around it that would cut it short."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def charge() -> str:
        begun.set()
        await go.wait()
        return await bench.does("charge")

    async def fails() -> None:
        await begun.wait()
        asyncio.get_running_loop().call_later(0.01, go.set)
        raise LookupError("no such shelf")

    async def grouped() -> None:
        with contextlib.suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(step("charge", charge))
                group.create_task(fails())

    async def gathered() -> None:
        with contextlib.suppress(LookupError):
            await asyncio.gather(step("charge", charge), fails())

    async def timed() -> None:
        asyncio.get_running_loop().call_later(0.02, go.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await step("charge", charge)

    async def swallowed() -> None:
        task = asyncio.ensure_future(step("charge", charge))
        await begun.wait()
        task.cancel()
        asyncio.get_running_loop().call_later(0.01, go.set)
        with contextlib.suppress(BaseException):
            await task

    kinds: dict[str, Callable[[], Awaitable[None]]] = {
        "group": grouped,
        "gather": gathered,
        "timeout": timed,
        "except BaseException": swallowed,
    }

    async def body() -> object:
        await kinds[how]()
        return "went on"

    return body


@pytest.mark.parametrize("how", ["group", "gather", "timeout", "except BaseException"])
async def test_a_once_step_is_finished_and_recorded_whatever_cuts_its_tool_short(how: str) -> None:
    bench = bench_of(lambda bench: around(bench, how))
    assert await bench.run() == "done"
    assert bench.did == ["charge"]
    assert outputs(bench.result)[CALL] == "went on"
    (end,) = [
        e for e in await entries_of(bench.store) if isinstance(e, StepEntry) and e.phase == "end"
    ]
    assert bytes(end.result) == b'"charge done"'


async def test_a_step_without_an_effect_is_cut_short_with_its_tool() -> None:
    def make(bench: Bench) -> Body:
        async def look() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                bench.did.append("cut short")

        async def body() -> object:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.001):
                    await step("look", look, effect="none")
            return await bench.step("charge")

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    assert bench.did == ["cut short", "charge"]


async def test_steps_of_a_group_are_taken_once_though_one_of_them_fails() -> None:
    def make(bench: Bench) -> Body:
        async def fails() -> None:
            raise OutcomeUnknown("the bank did not answer")

        async def body() -> object:
            with contextlib.suppress(BaseExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(bench.step("charge"))
                    group.create_task(step("mail", fails, effect="idempotent"))
            await sleep("night", 60)
            return await bench.step("charge")

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.clock.advance(61)
    assert await bench.run() == "done"
    assert bench.did == ["charge"]


# --- around waits --------------------------------------------------------------------------------


async def star() -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleep("nap", 60))
            group.create_task(wait_for("paid", timeout=60))
    except* LookupError:
        pass
    except* TimeoutError:
        pass


async def completed() -> None:
    for one in asyncio.as_completed([sleep("nap", 60), interrupt("sure", "Sure?", bool)]):
        await one


async def timed() -> None:
    async with asyncio.timeout(3600):
        await asyncio.gather(sleep("nap", 60), sleep("longer", 120))


async def shielded() -> None:
    await asyncio.shield(sleep("nap", 60))


async def stacked() -> None:
    async with contextlib.AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(timed())
        await sleep("night", 60)


PASS: dict[str, Callable[[], Awaitable[object]]] = {
    "except*": star,
    "as_completed": completed,
    "wait_for": lambda: asyncio.wait_for(sleep("nap", 60), 3600),
    "timeout": timed,
    "shield": shielded,
    "groups in groups": stacked,
}


@pytest.mark.parametrize("how", PASS)
@pytest.mark.parametrize("asker", ["tool", "program"])
async def test_what_passes_an_error_on_passes_a_wait_on(asker: str, how: str) -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            await PASS[how]()
            return await bench.step("behind")

        return body

    bench = bench_of(make)
    program = Program(bench.body, name="work", store=bench.store, clock=bench.clock)

    async def run() -> str:
        if asker == "tool":
            return await bench.run()
        return (await program.run(run_id=RUN)).status

    waits = {"suspended", "input_required"}
    assert await run() in waits
    (pending,) = (await bench.runs.get(RUN)).pending
    if how == "as_completed":
        await bench.runs.answer(RUN, pending.call.call_id, "sure", True)
    for _ in range(2):
        await bench.clock.advance(61)
        status = await run()
    assert status == "done"
    assert bench.did == ["behind"]


async def waited() -> object:
    tasks = [asyncio.ensure_future(sleep("nap", 60)), asyncio.ensure_future(wait_for("paid"))]
    await asyncio.wait(tasks)
    return [task.exception() is None for task in tasks]


async def kept() -> object:
    found = await asyncio.gather(sleep("nap", 60), wait_for("paid"), return_exceptions=True)
    return len(found)


async def caught() -> object:
    try:
        await sleep("nap", 60)
    except BaseException as error:  # noqa: BLE001 - what users must not write
        return str(error)
    return "slept"


async def starred() -> object:
    said = "slept"
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleep("nap", 60))
    except* BaseException as errors:  # noqa: BLE001 - likewise
        said = str(errors)
    return said


SWALLOW: dict[str, Callable[[], Awaitable[object]]] = {
    "asyncio.wait": waited,
    "return_exceptions": kept,
    "except BaseException": caught,
    "except* BaseException": starred,
}


@pytest.mark.parametrize("how", SWALLOW)
@pytest.mark.parametrize("asker", ["tool", "program"])
async def test_what_swallows_an_error_swallows_a_wait_and_is_not_believed(
    asker: str, how: str
) -> None:
    bench = bench_of(lambda _: SWALLOW[how])
    if asker == "tool":
        assert await bench.run() == "done"
        assert "went on after it was told to wait" in outputs(bench.result)[CALL]
        return
    program = Program(bench.body, name="work", store=bench.store, clock=bench.clock)
    with pytest.raises(RunFailed, match="went on after it was told to wait"):
        await program.run(run_id=RUN)


# --- beside other calls --------------------------------------------------------------------------


async def test_a_halt_is_told_ahead_of_what_waits_beside_it() -> None:
    store, clock = MemoryStore(), FakeClock()

    @tool(effect="idempotent")
    async def rest() -> None:
        """Rest."""
        await sleep("night", 60)

    @tool(effect="idempotent")
    async def charge() -> None:
        """Charge."""

        def fails() -> None:
            raise OutcomeUnknown("the bank did not answer")

        await step("charge", fails)

    script: list[TurnLike] = [turn(call("rest"), call("charge")), "Done."]
    agent = Agent(ScriptedModel(script), tools=[rest, charge], store=store, clock=clock)
    result = await agent.run("Go.", run_id=RUN)
    assert result.status == "halted"
    assert [one.may_have_run for one in result.pending] == [False, True]
    await clock.advance(61)
    assert (await agent.run("Go.", run_id=RUN)).status == "halted"
    halted = result.pending[1].call.call_id
    await Runs(store).resolve(RUN, halted, step="charge", value="ch_1")
    assert (await agent.run("Go.", run_id=RUN)).status == "done"


async def test_sub_agents_that_sleep_under_one_name_both_wake() -> None:
    store, clock = MemoryStore(), FakeClock()
    woken: list[str] = []

    def sleeper(name: str, seconds: int) -> Agent:
        @tool(effect="idempotent")
        async def nap() -> None:
            """Nap."""
            await sleep("nap", seconds)
            woken.append(name)

        return Agent(ScriptedModel([call("nap"), "Slept."]), name=name, tools=[nap], clock=clock)

    script: list[TurnLike] = [
        turn(call("one", {"task": "nap"}), call("two", {"task": "nap"})),
        "Both slept.",
    ]
    tools = [sleeper("one", 200).as_tool(), sleeper("two", 100).as_tool()]
    agent = Agent(ScriptedModel(script), tools=tools, store=store, clock=clock)
    assert (await agent.run("Go.", run_id=RUN)).status == "suspended"
    await clock.advance(101)
    assert [one.status for one in await recover(agent)] == ["suspended"]
    assert woken == ["two"]
    await clock.advance(100)
    assert [one.status for one in await recover(agent)] == ["done"]
    assert woken == ["two", "one"]


async def test_a_run_that_fails_when_it_wakes_is_woken_again_and_one_that_waits_is_not() -> None:
    fails = [True]

    def make(bench: Bench) -> Body:
        async def body() -> object:
            await sleep("night", 60)
            if fails.pop():
                raise SystemError("the disk is full")
            await sleep("another night", 60)
            return "morning"

        return body

    bench = bench_of(make)
    model = ScriptedModel([call("work", {"n": 0}), RuntimeError("no network"), "Done."])
    agent = bench.agent.with_(model=model)
    assert (await agent.run("go", run_id=RUN)).status == "suspended"
    await bench.clock.advance(61)
    (failed,) = await recover(agent)
    assert failed.status == "failed"
    assert "no network" in str(failed.error)
    (done,) = await recover(bench.agent)
    assert done.status == "done"

    fails[:] = [False]
    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.clock.advance(61)
    (waits,) = await recover(bench.agent)
    assert waits.status == "suspended"
    assert await recover(bench.agent) == []


async def test_answers_of_tools_that_ask_at_once_never_change_places() -> None:
    @tool(effect="idempotent")
    async def ask(who: str) -> str:
        """Ask."""
        for _ in range(order.randrange(4)):
            await asyncio.sleep(0)
        first = await interrupt("word", f"Which word has {who}?", str)
        await step("note", lambda: did.append(f"{who}: {first}"))
        second = await interrupt("again", f"Sure, {who}?", str)
        return f"{who} {first} {second}"

    script: list[TurnLike] = [turn(call("ask", {"who": "a"}), call("ask", {"who": "b"})), "Done."]
    did: list[str] = []
    for seed in range(200):
        order = random.Random(seed)
        did.clear()
        agent = Agent(ScriptedModel(script), tools=[ask], store=MemoryStore())
        runs = Runs(agent.opened(agent.store))
        result = await agent.run("go", run_id=RUN)
        for key in ("word", "again"):
            asked = list(result.pending)
            order.shuffle(asked)
            for one in asked:
                word = "A" if '"a"' in one.call.arguments else "B"
                await runs.answer(RUN, one.call.call_id, key, word)
            result = await agent.run("go", run_id=RUN)
        assert list(outputs(result).values()) == ["a A A", "b B B"]
        assert sorted(did) == ["a: A", "b: B"]


async def test_a_tool_with_two_questions_takes_each_effect_between_them_once() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            await bench.step("before")
            where = await interrupt("where", "Where to?", str)
            await bench.step("reserve")
            fast = await interrupt("fast", "Fast?", bool)
            await bench.step("send")
            return [where, fast, current_call().id]

        return body

    bench = bench_of(make)
    assert await bench.run() == "input_required"
    await bench.runs.answer(RUN, CALL, "where", "home")
    assert await bench.run() == "input_required"
    assert await bench.run() == "input_required"
    await bench.runs.answer(RUN, CALL, "fast", True)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == f'["home",true,"{CALL}"]'
    assert bench.did == ["before", "reserve", "send"]

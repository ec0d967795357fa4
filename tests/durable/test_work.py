"""Steps and waits inside calls (LOG 5.4, 5.5, 9; DESIGN 8)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from perdure import (
    Agent,
    Runs,
    ack,
    current_call,
    interrupt,
    invoke,
    parallel,
    receive,
    recover,
    sleep,
    sleep_until,
    step,
    step_key,
    tool,
    wait_for,
)
from perdure.clock import SystemClock
from perdure.errors import (
    AlreadyResolved,
    ConfigError,
    HaltTooYoung,
    NotHalted,
    NotHeld,
    OutcomeUnknown,
    StepFailed,
    ToolError,
    WrongAnswer,
)
from perdure.log.entries import StepEntry
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import Effect, arguments_digest
from tests.durable.world import RUN, cut_after, cut_behind, entries_of, outputs, session_of, shapes

CALL = "call_t0_1"

Body = Callable[[], Awaitable[object]]


class Unheard:
    """A type that no JSON Schema says."""


class Bench:
    """An agent whose one tool does what a test says."""

    def __init__(self, body: Body, *, effect: Effect = "idempotent", calls: int = 1) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.did: list[str] = []
        self.body = body
        self.effect: Effect = effect
        self.calls = calls
        self.seconds = 0.0

    @property
    def runs(self) -> Runs:
        return Runs(self.store, clock=self.clock)

    @property
    def agent(self) -> Agent:
        bench = self

        @tool(effect=self.effect)
        async def work(n: int) -> object:
            """Work."""
            return await bench.body()

        script: list[TurnLike] = [
            turn(*(call("work", {"n": n}) for n in range(self.calls))),
            "All done.",
        ]
        return Agent(ScriptedModel(script), tools=[work], store=self.store, clock=self.clock)

    async def run(self) -> str:
        self.result = await self.agent.run("go", run_id=RUN)
        return self.result.status

    async def does(self, what: str) -> str:
        self.did.append(what)
        return f"{what} done"

    async def step(self, name: str, effect: Effect = "once") -> object:
        return await step(name, lambda: self.does(name), effect=effect)


def bench_of(make: Callable[[Bench], Body], **members: object) -> Bench:
    bench = Bench(lambda: asyncio.sleep(0), **members)  # type: ignore[arg-type]
    bench.body = make(bench)
    return bench


# --- steps ---------------------------------------------------------------------------------------


async def test_a_call_that_is_entered_again_gets_its_steps_from_the_record() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            first = await bench.step("charge")
            await sleep("cool off", 60)
            return [first, await bench.step("charge"), await bench.step("ship")]

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.clock.advance(61)
    assert await bench.run() == "done"
    assert bench.did == ["charge", "ship"]
    assert outputs(bench.result)[CALL] == '["charge done","charge done","ship done"]'


@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed", "once"])
async def test_a_call_with_steps_cut_behind_any_entry_doubles_no_step_that_must_not(
    effect: Effect,
) -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            first = await bench.step("one", effect)
            return [first, await bench.step("two", effect)]

        return body

    whole = bench_of(make)
    assert await whole.run() == "done"
    entries = await entries_of(whole.store)
    for keep in range(1, len(entries) + 1):
        bench = bench_of(make)
        bench.store = await cut_after(whole.store, keep)
        kept = entries[:keep]
        begun = {str(e.members["name"]) for e in kept if e.type == "perdure:step"}
        status = await bench.run()
        if status == "halted":
            assert effect == "once", keep
            for name in ("one", "two"):
                with contextlib.suppress(NotHalted):
                    await bench.runs.resolve(RUN, CALL, step=name, value="known")
            status = await bench.run()
        assert status == "done", keep
        if effect == "once":
            assert not begun & set(bench.did), keep
        assert len(bench.did) == len(set(bench.did)), keep
        await session_of(bench.store)


@pytest.mark.parametrize("further", [True, False])
async def test_a_call_halts_that_five_processes_died_in_unless_each_came_further(
    further: bool,
) -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            for part in range(8):
                await bench.step(f"part {part}", "idempotent")
            return "all"

        return body

    bench = bench_of(make)
    for life in range(7):
        if await bench.run() == "halted":
            break
        entries = await entries_of(bench.store)
        ends = [n for n, e in enumerate(entries) if isinstance(e, StepEntry) and e.phase == "end"]
        dispatches = [n for n, e in enumerate(entries) if e.type == "dispatch"]
        bench.store = await cut_after(bench.store, (ends[life] if further else dispatches[-1]) + 1)
    if further:
        assert await bench.run() == "done"
        assert shapes(await entries_of(bench.store)).count("dispatch") == 8
    else:
        assert bench.result.status == "halted"
        assert shapes(await entries_of(bench.store)).count("dispatch") == 5


async def test_an_open_once_step_halts_until_somebody_says_what_it_gave() -> None:
    def make(bench: Bench) -> Body:
        async def unsure() -> str:
            bench.did.append("charge")
            raise RuntimeError("the line dropped")

        async def body() -> object:
            return await step("charge", unsure)

        return body

    bench = bench_of(make)
    assert await bench.run() == "halted"
    assert await bench.run() == "halted"
    with pytest.raises(NotHalted):
        await bench.runs.resolve(RUN, CALL, step="other", value=1)
    with pytest.raises(ConfigError, match="min_age"):
        await bench.runs.resolve(RUN, CALL, step="charge", never_ran=True)
    with pytest.raises(HaltTooYoung):
        await bench.runs.resolve(RUN, CALL, step="charge", never_ran=True, min_age=60)
    with pytest.raises(ConfigError, match="a step is resolved by"):
        await bench.runs.resolve(RUN, CALL, step="charge", output="charged")
    with pytest.raises(ConfigError, match="a step is resolved by"):
        await bench.runs.resolve(RUN, CALL, step="charge", value=7, never_ran=True, min_age=0)
    with pytest.raises(ConfigError, match="what a step gave"):
        await bench.runs.resolve(RUN, CALL, output="charged", value=7)
    await bench.runs.resolve(RUN, CALL, step="charge", value={"tx": 7}, by="ann")
    with pytest.raises(AlreadyResolved):
        await bench.runs.resolve(RUN, CALL, step="charge", value={"tx": 8}, by="bo")
    assert await bench.run() == "done"
    assert (outputs(bench.result)[CALL], bench.did) == ('{"tx":7}', ["charge"])


async def test_a_step_that_halts_its_call_leaves_no_error_that_nobody_took() -> None:
    def make(bench: Bench) -> Body:
        async def unsure() -> str:
            raise OutcomeUnknown("the line dropped")

        async def body() -> object:
            return await step("charge", unsure)

        return body

    untaken: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: untaken.append(context))
    assert await bench_of(make).run() == "halted"
    gc.collect()
    assert untaken == []


async def test_a_step_that_never_ran_is_taken_again() -> None:
    def make(bench: Bench) -> Body:
        async def once_unsure() -> str:
            bench.did.append("charge")
            if len(bench.did) == 1:
                raise OutcomeUnknown("the line dropped")
            return "charged"

        async def body() -> object:
            return await step("charge", once_unsure)

        return body

    bench = bench_of(make)
    assert await bench.run() == "halted"
    await bench.clock.advance(10)
    await bench.runs.resolve(RUN, CALL, step="charge", never_ran=True, min_age=5)
    assert await bench.run() == "done"
    assert bench.did == ["charge", "charge"]


async def test_a_step_that_failed_for_certain_fails_again_from_the_record() -> None:
    def make(bench: Bench) -> Body:
        async def declined() -> str:
            bench.did.append("charge")
            raise ToolError("declined")

        async def body() -> object:
            try:
                await step("charge", declined)
            except ToolError as error:
                first = type(error).__name__
            await sleep("cool off", 60)
            return first

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.clock.advance(61)
    assert await bench.run() == "done"
    assert bench.did == ["charge"]
    assert outputs(bench.result)[CALL] == StepFailed.__name__


async def test_a_step_is_tried_again_where_its_effect_allows() -> None:
    def make(bench: Bench) -> Body:
        async def flaky() -> str:
            bench.did.append("look")
            if len(bench.did) < 3:
                raise RuntimeError("not yet")
            return "seen"

        async def body() -> object:
            return await step("look", flaky, effect="idempotent", retries=2)

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    assert len(bench.did) == 3


async def test_a_step_that_asks_the_model_to_try_again_took_effect_once() -> None:
    def make(bench: Bench) -> Body:
        async def refuses() -> str:
            bench.did.append("charge")
            raise ToolError("give the amount in cents")

        async def body() -> object:
            return await step("charge", refuses, effect="idempotent", retries=3)

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    assert (bench.did, outputs(bench.result)[CALL]) == (
        ["charge"],
        "Error: give the amount in cents",
    )


async def test_steps_that_run_at_once_all_run_and_none_runs_twice() -> None:
    def make(bench: Bench) -> Body:
        async def fails() -> str:
            bench.did.append("b")
            raise ToolError("no")

        async def body() -> object:
            try:
                await parallel(
                    [("a", lambda: bench.does("a")), ("b", fails), ("c", lambda: bench.does("c"))],
                    effect="idempotent",
                    most=2,
                )
            except BaseExceptionGroup as group:
                return [str(error) for error in group.exceptions]
            return "all"

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    assert sorted(bench.did) == ["a", "b", "c"]
    assert outputs(bench.result)[CALL] == '["no"]'


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda: step("", dict), "1 to"),
        (lambda: step("x" * 300, dict), "1 to"),
        (lambda: step("a\nb", dict), "printable"),
        (lambda: step("perdure:mine", dict), "reserved"),
        (lambda: step("a", dict, effect="transactional"), "transactional"),
        (lambda: step("a", dict, effect="often"), "often"),  # type: ignore[call-overload]
        (lambda: step("a", dict, retries=1), "not tried again"),
        (lambda: step("a", dict, effect="none", retries=-1), "at least 0"),
        (lambda: step("a", dict, timeout=0), "positive"),
        (lambda: step("a", lambda: step("b", dict), effect="none"), "inside"),
        (lambda: step("a", lambda: sleep("b", 1), effect="none"), "do not wait"),
        (lambda: parallel([("a", dict), ("a", dict)]), "two steps"),
        (lambda: parallel([("a", dict)], most=0), "most"),
        (lambda: sleep("", 1), "1 to"),
        (lambda: sleep("a", -1), "0 or more"),
        (lambda: sleep("a", float("inf")), "seconds"),
        (lambda: sleep("a", float("nan")), "seconds"),
        (lambda: sleep("a", "60"), "seconds"),  # type: ignore[arg-type]
        (lambda: sleep_until("a", 1.5e18), "nanoseconds"),  # type: ignore[arg-type]
        (lambda: wait_for("a", timeout=float("inf")), "seconds"),
        (lambda: step("a", 5), "function"),  # type: ignore[call-overload]
        (lambda: step(5, dict), "printable"),  # type: ignore[call-overload]
        (lambda: interrupt("a", "?", Unheard), "the answer to 'a'"),
        (lambda: wait_for("a", timeout=-1), "0 or more"),
    ],
)
async def test_what_no_call_can_do_is_refused(wrong: Body, match: str) -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            try:
                await wrong()
            except ConfigError as error:
                return str(error)
            except OutcomeUnknown as error:
                return str(error)
            return "done"

        return body

    bench = bench_of(make)
    await bench.run()
    text = outputs(bench.result).get(CALL) or ""
    assert match in text


@pytest.mark.parametrize("effect", ["once"])
async def test_a_tool_that_must_not_run_twice_cannot_wait(effect: Effect) -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            await sleep("a", 1)
            return "slept"

        return body

    bench = bench_of(make, effect=effect)
    await bench.run()
    assert "cannot wait" in outputs(bench.result)[CALL]


async def test_steps_and_waits_belong_to_calls() -> None:
    for outside in (step("a", dict), sleep("a", 1), wait_for("a"), interrupt("a", "?", str)):
        with pytest.raises(ConfigError):
            await outside


# --- waits ---------------------------------------------------------------------------------------


async def test_a_sleep_counts_from_when_the_call_first_came_there() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            bench.did.append("enter")
            await sleep("night", 100)
            return "morning"

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    due = (await bench.runs.get(RUN)).due
    await bench.clock.advance(60)
    assert await bench.run() == "suspended"
    assert bench.did == ["enter"], "it is not entered before its time"
    assert (await bench.runs.get(RUN)).due == due
    await bench.clock.advance(41)
    (recovered,) = await recover(bench.agent)
    assert recovered.status == "done"


async def test_a_wait_that_is_due_is_served_in_place() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            await sleep_until("past", bench.clock.wall() - 1)
            await sleep("now", 0)
            return "here"

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    assert "decision hold" not in shapes(await entries_of(bench.store))


async def test_a_call_that_is_cancelled_while_it_waits_says_what_it_had_done() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            await bench.step("charge")
            await bench.step("look", "none")
            await sleep("night", 60)
            return await bench.step("ship")

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.runs.cancel(RUN)
    assert await bench.run() == "cancelled"
    assert outputs(bench.result)[CALL] == (
        "Error: the run was cancelled while this call waited. "
        "Before that it had done: charge, look."
    )
    assert shapes(await entries_of(bench.store))[-5:] == [
        "decision answer",
        "item",
        "perdure:end",
        "run end",
        "perdure:closed cancelled",
    ]


async def test_a_call_that_waits_beside_a_step_that_may_have_run_is_cancelled_as_unknown() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            async with asyncio.TaskGroup() as group:
                group.create_task(sleep("night", 60))
                group.create_task(bench.step("charge"))
            return "both"

        return body

    whole = bench_of(make)
    assert await whole.run() == "suspended"
    bench = bench_of(make)
    bench.store = await cut_behind(whole.store, "perdure:step start")
    assert await bench.run() == "halted"
    await bench.runs.cancel(RUN)
    assert await bench.run() == "cancelled"
    assert "the outcome of this call is unknown" in outputs(bench.result)[CALL]


async def test_nothing_of_a_run_that_waits_stays_in_the_process() -> None:
    seen: list[weakref.ref[object]] = []

    def make(bench: Bench) -> Body:
        async def body() -> object:
            seen.append(weakref.ref(current_call()))
            await bench.step("look")
            await sleep("night", 60)
            return "morning"

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    gc.collect()
    assert [one() for one in seen] == [None]


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    bench = bench_of(lambda bench: lambda: sleep("nap", bench.seconds))
    agent = bench.agent
    for bench.seconds in (30.0, 10.0, 20.0):
        await agent.run("go", run_id=f"sleeper-{bench.seconds:g}")
    await bench.clock.advance(100)
    recovered = await recover(agent, concurrency=1)
    assert [one.run_id for one in recovered] == ["sleeper-10", "sleeper-20", "sleeper-30"]


async def test_a_signal_may_come_before_it_is_waited_for_and_the_first_stands() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            await sleep("first", 10)
            return await wait_for("paid")

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.runs.signal(RUN, "paid", {"cents": 5}, by="bank")
    await bench.runs.signal(RUN, "paid", {"cents": 5}, by="bank")
    with pytest.raises(AlreadyResolved):
        await bench.runs.signal(RUN, "paid", {"cents": 6}, by="bank")
    await bench.clock.advance(11)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == '{"cents":5}'


async def test_the_race_of_a_signal_and_its_timeout_is_recorded_once() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            try:
                got = await wait_for("paid", timeout=10)
            except TimeoutError:
                got = "too late"
            await sleep("then", 10)
            return got

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.clock.advance(11)
    assert await bench.run() == "suspended"
    await bench.runs.signal(RUN, "paid")
    await bench.clock.advance(11)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == "too late"


async def test_each_of_parallel_questions_gets_its_own_answer() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            return await interrupt(f"q-{current_call().id}", "Who?", str)

        return body

    bench = bench_of(make, calls=3)
    assert await bench.run() == "input_required"
    ids = [one.call.call_id for one in bench.result.pending]
    assert [str((one.wait or {})["prompt"]) for one in bench.result.pending] == ["Who?"] * 3
    for place in (1, 0):
        await bench.runs.answer(RUN, ids[place], f"q-{ids[place]}", f"answer {place}")
        assert await bench.run() == "input_required"
    await bench.runs.answer(RUN, ids[2], f"q-{ids[2]}", "answer 2")
    assert await bench.run() == "done"
    assert outputs(bench.result) == {ids[n]: f"answer {n}" for n in range(3)}


async def test_an_answer_that_does_not_fit_is_refused_and_nothing_is_written() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            return await interrupt("age", "How old?", int) + 1

        return body

    bench = bench_of(make)
    assert await bench.run() == "input_required"
    before = len(await entries_of(bench.store))
    for refused, telling in (
        (WrongAnswer, bench.runs.answer(RUN, CALL, "age", "old")),
        (NotHeld, bench.runs.answer(RUN, CALL, "name", 5)),
        (NotHeld, bench.runs.answer(RUN, "nobody", "age", 5)),
        (NotHeld, bench.runs.approve(RUN, CALL)),
    ):
        with pytest.raises(refused):
            await telling
    assert len(await entries_of(bench.store)) == before
    await bench.runs.answer(RUN, CALL, "age", 41, by="ann")
    await bench.runs.answer(RUN, CALL, "age", 41, by="ann")
    with pytest.raises(AlreadyResolved):
        await bench.runs.answer(RUN, CALL, "age", 42)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == "42"


async def test_a_call_that_finished_beside_one_that_waits_does_not_run_again() -> None:
    entered: list[str] = []

    @tool
    async def weather() -> str:
        """Look."""
        entered.append("weather")
        return "sunny"

    @tool(effect="idempotent")
    async def ask() -> str:
        """Ask."""
        return await interrupt("name", "Who?", str)

    store = MemoryStore()
    script: list[TurnLike] = [turn(call("weather"), call("ask")), "Done."]
    agent: Agent = Agent(ScriptedModel(script), tools=[weather, ask], store=store)
    (waiting,) = (await agent.run("go", run_id=RUN)).pending
    await Runs(store).answer(RUN, waiting.call.call_id, "name", "Ann")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert entered == ["weather"]


@pytest.mark.parametrize("how", ["group", "gather", "timeout", "except Exception", "finally"])
async def test_a_wait_passes_what_a_tool_puts_around_it(how: str) -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            if how == "group":
                async with asyncio.TaskGroup() as group:
                    slow = group.create_task(bench.step("beside", "idempotent"))
                    group.create_task(sleep("nap", 10))
                return slow.result()
            if how == "gather":
                found = await asyncio.gather(bench.step("beside"), sleep("nap", 10))
                return found[0]
            if how == "timeout":
                async with asyncio.timeout(3600):
                    await sleep("nap", 10)
            elif how == "except Exception":
                try:
                    await sleep("nap", 10)
                except Exception:  # noqa: BLE001 - what users write
                    return "swallowed"
            else:
                try:
                    await sleep("nap", 10)
                finally:
                    bench.did.append("tidied up")
            return "slept"

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.clock.advance(11)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] in ("slept", "beside done")
    assert bench.did.count("beside") <= 1


async def test_a_tool_that_swallows_the_signal_of_a_wait_is_not_believed() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            with contextlib.suppress(BaseException):  # what users must not write
                await sleep("nap", 10)
            return "went on"

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    assert "went on after it was told to wait" in outputs(bench.result)[CALL]


async def test_of_waits_at_once_each_is_taken_when_it_comes_in_whatever_order() -> None:
    def make(bench: Bench) -> Body:
        async def then(name: str, wait: Awaitable[object]) -> None:
            await wait
            await bench.step(name)

        async def body() -> object:
            async with asyncio.TaskGroup() as group:
                group.create_task(then("slept", sleep("night", 60)))
                group.create_task(then("paid", wait_for("paid")))
                group.create_task(then("asked", interrupt("sure", "Sure?", bool)))
            return "all"

        return body

    bench = bench_of(make)
    assert await bench.run() == "input_required"
    await bench.runs.signal(RUN, "paid")
    assert await bench.run() == "input_required"
    assert bench.did == ["paid"]
    await bench.runs.answer(RUN, CALL, "sure", True)
    assert await bench.run() == "suspended"
    assert bench.did == ["paid", "asked"]
    await bench.clock.advance(61)
    assert await bench.run() == "done"
    assert bench.did == ["paid", "asked", "slept"]


async def test_a_wait_that_its_tool_asks_for_no_more_keeps_nobody_busy() -> None:
    def make(bench: Bench) -> Body:
        async def fails() -> None:
            raise LookupError("no such shelf")

        async def body() -> object:
            bench.did.append("enter")
            if len(bench.did) == 1:
                with contextlib.suppress(LookupError):
                    await asyncio.gather(sleep("short", 60), fails())
            await sleep("long", 6000)
            return "done"

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.clock.advance(61)
    assert await bench.run() == "suspended"
    assert bench.did == ["enter", "enter"]
    await bench.clock.advance(6000)
    assert await bench.run() == "done"


async def test_a_wait_unwinds_only_when_no_step_of_its_call_runs() -> None:
    def make(bench: Bench) -> Body:
        async def slow() -> str:
            await asyncio.sleep(0.02)
            return await bench.does("slow")

        async def body() -> object:
            beside = asyncio.ensure_future(step("slow", slow))
            await asyncio.sleep(0)
            await sleep("nap", 10)
            return await beside

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    assert bench.did == ["slow"]
    await bench.clock.advance(11)
    assert await bench.run() == "done"
    assert bench.did == ["slow"]


async def test_a_poll_that_times_out_is_no_denial() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            return await interrupt("ok", "May I?", bool)

        return body

    bench = bench_of(make)
    for _ in range(3):
        assert await bench.run() == "input_required"
        await bench.clock.advance(10)
    await bench.runs.answer(RUN, CALL, "ok", True)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == "true"


async def test_waits_work_in_sub_agents_and_wake_the_root() -> None:
    clock, store = FakeClock(), MemoryStore()

    @tool(effect="idempotent")
    async def nap() -> str:
        """Sleep, then ask."""
        await sleep("nap", 100)
        return await interrupt("name", "Who?", str)

    clerk: Agent = Agent(
        ScriptedModel([call("nap"), "Slept."]), name="clerk", tools=[nap], clock=clock
    )
    middle: Agent = Agent(
        ScriptedModel([call("clerk", {"task": "nap"}), "It slept."]),
        name="middle",
        tools=[clerk.as_tool()],
        clock=clock,
    )
    boss: Agent = Agent(
        ScriptedModel([call("middle", {"task": "nap"}), "All done."]),
        name="boss",
        tools=[middle.as_tool()],
        store=store,
        clock=clock,
    )
    runs = Runs(store, clock=clock)
    assert (await boss.run("go", run_id=RUN)).status == "suspended"
    assert await recover(boss) == []
    await clock.advance(101)
    (recovered,) = await recover(boss)
    assert recovered.status == "input_required"
    waiting = (await runs.get(RUN)).pending[-1]
    assert len(waiting.path) == 2
    await runs.answer(RUN, waiting.call.call_id, "name", "Ann", session=waiting.session)
    assert (await boss.run("go", run_id=RUN)).status == "done"


async def test_without_a_record_steps_run_and_sleeps_wait_in_place() -> None:
    did: list[str] = []

    @tool(effect="idempotent")
    async def work() -> object:
        """Work."""
        await sleep("a moment", 0.01)
        await step("one", lambda: did.append("one"))
        try:
            await wait_for("nothing")
        except ConfigError as error:
            return str(error)
        return "?"

    agent: Agent = Agent(ScriptedModel([call("work"), "Done."]), tools=[work])
    result = await agent.run("go")
    assert did == ["one"]
    assert "give the run an id" in outputs(result)[CALL]


async def test_a_chat_takes_its_steps_once_and_waits_in_place() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            first = await bench.step("charge")
            await sleep("a moment", 0.01)
            try:
                await interrupt("name", "Who?", str)
            except ConfigError as error:
                return [first, str(error)]
            return "?"

        return body

    bench = bench_of(make)
    agent = bench.agent.with_(clock=SystemClock())
    async with agent.session("chat") as chat:
        result = await chat.send("go")
    assert (result.status, bench.did) == ("done", ["charge"])
    assert "give the run an id" in outputs(result)[CALL]
    assert "perdure:step" in [e.type for e in await entries_of(bench.store, "chat")]


async def test_a_timed_out_once_step_leaves_open_what_it_did() -> None:
    def make(bench: Bench) -> Body:
        async def slow() -> str:
            bench.did.append("slow")
            await asyncio.sleep(3600)
            return "never"

        async def body() -> object:
            return await step("slow", slow, timeout=0.01)

        return body

    bench = bench_of(make)
    assert await bench.run() == "halted"
    assert bench.did == ["slow"]


async def test_no_tool_can_make_up_the_outcome_of_a_step_that_is_unknown() -> None:
    def make(bench: Bench) -> Body:
        async def unsure() -> str:
            bench.did.append("charge")
            raise RuntimeError("the line dropped")

        async def body() -> object:
            try:
                return await step("charge", unsure)
            except Exception:  # noqa: BLE001 - what users write
                return "it failed"

        return body

    bench = bench_of(make)
    assert await bench.run() == "halted"
    assert await bench.run() == "halted"
    assert bench.did == ["charge"]
    await bench.runs.resolve(RUN, CALL, step="charge", value="charged")
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == "charged"


async def test_a_once_step_that_gives_no_json_took_effect_all_the_same() -> None:
    def make(bench: Bench) -> Body:
        async def given() -> object:
            bench.did.append("charge")
            return object()

        async def body() -> object:
            return await step("charge", given)

        return body

    bench = bench_of(make)
    assert await bench.run() == "halted"
    assert bench.did == ["charge"]


async def test_questions_beside_other_waits_keep_their_prompts_and_their_types() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            async with asyncio.TaskGroup() as group:
                paid = group.create_task(wait_for("paid"))
                name = group.create_task(interrupt("name", "Who?", str))
                age = group.create_task(interrupt("age", "How old?", int))
            return [paid.result(), name.result(), age.result()]

        return body

    bench = bench_of(make)
    assert await bench.run() == "input_required"
    wait = bench.result.pending[0].wait or {}
    assert (wait["kind"], wait["prompt"]) == ("interrupt", "Who?")
    await bench.runs.answer(RUN, CALL, "name", "Ann")
    await bench.run()
    with pytest.raises(WrongAnswer):
        await bench.runs.answer(RUN, CALL, "age", "old")
    await bench.runs.answer(RUN, CALL, "age", 41)
    assert await bench.run() == "suspended"
    await bench.runs.signal(RUN, "paid", True)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == '[true,"Ann",41]'


async def test_a_keyed_step_knows_its_key() -> None:
    keys: list[str] = []

    def make(bench: Bench) -> Body:
        async def body() -> object:
            await step("charge", lambda: keys.append(step_key()), effect="keyed")
            with pytest.raises(ConfigError):
                step_key()
            return "ok"

        return body

    bench = bench_of(make)
    assert await bench.run() == "done"
    steps = [e.members for e in await entries_of(bench.store) if e.type == "perdure:step"]
    assert keys == [one["idempotency_key"] for one in steps if one["phase"] == "start"]


# --- channels ------------------------------------------------------------------------------------


async def test_messages_of_a_channel_are_handled_one_after_the_other_over_restarts() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            while True:
                message = await receive("orders")
                if message.value == "stop":
                    await message.ack()
                    return "stopped"
                text = str(message.value)
                await step(f"handle-{message.key}", lambda text=text: bench.does(text))  # type: ignore[misc]
                await message.ack()

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.runs.send(RUN, "orders:vip", "not this one", key="1")
    assert await bench.run() == "suspended"
    await bench.runs.send(RUN, "orders", "first", key="1")
    await bench.runs.send(RUN, "orders", "first", key="1")
    await bench.runs.send(RUN, "orders", "second", key="2")
    with pytest.raises(AlreadyResolved):
        await bench.runs.send(RUN, "orders", "other", key="1")
    (recovered,) = await recover(bench.agent)
    assert (recovered.status, bench.did) == ("suspended", ["first", "second"])
    with pytest.raises(AlreadyResolved):
        await bench.runs.send(RUN, "orders", "other", key="1")
    await bench.runs.send(RUN, "orders", "stop", key="3")
    assert await bench.run() == "done"
    assert bench.did == ["first", "second"]


async def test_a_message_is_the_first_of_its_channel_until_it_is_done_with() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            first = await receive("orders")
            again = await receive("orders")
            await first.ack()
            await ack("orders", "1")
            second = await receive("orders")
            return [first.key, again.key, second.key]

        return body

    bench = bench_of(make)
    await bench.run()
    await bench.runs.send(RUN, "orders", {"n": 1}, key="1")
    await bench.runs.send(RUN, "orders", {"n": 2}, key="2")
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == '["1","1","2"]'


async def test_what_no_channel_has_cannot_be_acknowledged() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            try:
                await ack("orders", "9")
            except ConfigError as error:
                return str(error)
            await sleep("then", 10)
            return "?"

        return body

    bench = bench_of(make)
    await bench.run()
    assert "no message" in outputs(bench.result)[CALL]


async def test_a_channel_and_a_message_have_names() -> None:
    bench = bench_of(lambda bench: lambda: receive("orders"))
    assert await bench.run() == "suspended"
    for channel, key in (("", "1"), ("orders", ""), ("perdure:x", "1")):
        with pytest.raises(ConfigError):
            await bench.runs.send(RUN, channel, 1, key=key)


# --- calls that tools make -----------------------------------------------------------------------


class Maker:
    """An agent whose tool makes calls of another, with naps between them."""

    def __init__(self, effect: Effect, *, unsure: bool = False) -> None:
        self.clock, self.store = FakeClock(), MemoryStore()
        self.fired: list[tuple[int, str]] = []
        maker = self

        @tool(effect=effect)
        async def inner(n: int) -> dict[str, int]:
            """Take effect."""
            maker.fired.append((n, current_call().idempotency_key))
            if unsure:
                raise OutcomeUnknown("the line dropped")
            return {"n": n}

        @tool(effect="idempotent")
        async def outer() -> list[str]:
            """Make calls."""
            first = await invoke("inner", {"n": 1})
            await sleep("nap", 10)
            second = await invoke("inner", {"n": 2})
            return [str(first.output), str(second.output)]

        self.agent: Agent = Agent(
            ScriptedModel([call("outer"), "Done."]),
            tools=[inner, outer],
            store=self.store,
            clock=self.clock,
        )


@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed", "once"])
async def test_a_call_that_a_tool_makes_is_a_step_and_is_made_once(effect: Effect) -> None:
    maker = Maker(effect)
    assert (await maker.agent.run("go", run_id=RUN)).status == "suspended"
    await maker.clock.advance(11)
    result = await maker.agent.run("go", run_id=RUN)
    assert (result.status, [n for n, _ in maker.fired]) == ("done", [1, 2])
    assert outputs(result)[CALL] == '["{\\"n\\":1}","{\\"n\\":2}"]'


async def test_a_call_that_a_tool_makes_and_that_may_have_run_halts() -> None:
    maker = Maker("once", unsure=True)
    assert (await maker.agent.run("go", run_id=RUN)).status == "halted"
    assert (await maker.agent.run("go", run_id=RUN)).status == "halted"
    assert len(maker.fired) == 1
    (waiting,) = (await Runs(maker.store).get(RUN)).pending
    digest = arguments_digest('{"n": 1}')
    name = f"perdure:invoke/inner/{digest[:16]}/1"
    runs = Runs(maker.store)
    await runs.resolve(RUN, waiting.call.call_id, step=name, value="it went through")
    assert (await maker.agent.run("go", run_id=RUN)).status == "suspended"
    assert len(maker.fired) == 1


async def test_a_keyed_call_that_a_tool_makes_runs_again_under_its_key() -> None:
    maker = Maker("keyed")
    await maker.agent.run("go", run_id=RUN)
    await maker.clock.advance(11)
    assert (await maker.agent.run("go", run_id=RUN)).status == "done"
    whole, first = maker.store, list(maker.fired)
    shown = [f"{e.type} {e.members.get('phase', '')}".strip() for e in await entries_of(whole)]
    maker.store = await cut_after(whole, shown.index("perdure:step start") + 1)
    again = maker.agent.with_(store=maker.store)
    maker.fired.clear()
    assert (await again.run("go", run_id=RUN)).status == "suspended"
    assert maker.fired == first[:1]

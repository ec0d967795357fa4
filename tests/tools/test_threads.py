"""Sync tools on daemon threads of our own."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

import pytest

from perdure.errors import CallEnded, ConfigError, ToolError, ToolTimeout
from perdure.testing.clock import FakeClock, settle
from perdure.tools import (
    Call,
    Effect,
    Executor,
    Job,
    Outcome,
    ToolResult,
    abandoned,
    current_call,
    tool,
)
from perdure.tools.threads import start_thread
from tests.tools.batches import Log

PATIENCE = 20.0
"""Real seconds that a test waits for a thread at most."""


async def run(function: Callable[..., object], arguments: str = "{}") -> ToolResult:
    a_tool = tool(function)
    return await a_tool.execute(Call(id="c", name=a_tool.name, arguments=arguments))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in a thread
            await asyncio.sleep(0.001)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a hanging tool waits for; opened at the end, whatever happens."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_thread_sees_the_context_of_its_caller() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    name.set("ann")

    def read() -> str:
        before = name.get()
        name.set("changed")
        return before

    assert (await run(read)).output == "ann"
    assert name.get() == "ann"


async def test_a_thread_finds_its_call() -> None:
    @tool
    def who() -> str:
        return current_call().id

    (outcome,) = await Executor().run([Job(tool=who, call_id="c7")])
    assert outcome.result == ToolResult("c7")


async def test_what_a_thread_raises_arrives() -> None:
    def fails() -> str:
        raise ToolError("no")

    with pytest.raises(ToolError, match="no"):
        await run(fails)


async def test_a_thread_that_raises_stop_iteration_does_not_end_its_caller() -> None:
    def stops() -> str:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await run(stops)


async def test_a_sync_function_may_return_something_to_await() -> None:
    async def later() -> str:
        return "later"

    def now() -> object:
        return later()

    assert (await run(now)).output == "later"


async def test_a_result_that_is_not_json_says_so() -> None:
    def odd() -> object:
        return object()

    with pytest.raises(ToolError, match="the tool ran, but its result is not JSON"):
        await run(odd)


async def test_many_sync_tools_run_beside_each_other() -> None:
    barrier = threading.Barrier(8, timeout=PATIENCE)

    @tool
    def meet(n: int) -> int:
        barrier.wait()
        return n

    jobs = [Job(tool=meet, call_id=f"c{n}", arguments=f'{{"n": {n}}}') for n in range(16)]
    outcomes = await Executor().run(jobs)
    assert [outcome.result for outcome in outcomes] == [ToolResult(str(n)) for n in range(16)]


async def test_progress_and_records_from_a_thread_arrive_in_order() -> None:
    class Port:
        def __init__(self) -> None:
            self.records: list[object] = []

        async def write_record(self, call: Call, namespace: str, data: object) -> None:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop
            self.records.append(data)

    @tool
    def work(call: Call) -> str:
        for n in range(3):
            call.progress(f"{n}")
        call.block_on(call.write_record("acme:job", {"id": 7}))
        call.progress("last")
        return "done"

    loop = asyncio.get_running_loop()
    hooks = Log()
    port = Port()
    await Executor().run([Job(tool=work, call_id="c0", port=port)], hooks)
    assert port.records == [{"id": 7}]
    assert hooks.lines == [
        "start c0",
        *[f"progress c0 {n}" for n in range(3)],
        "progress c0 last",
        "settled c0 returned",
    ]


async def test_a_coroutine_is_not_blocked_on_where_waiting_would_stop_the_loop() -> None:
    call = Call(id="c", name="t")
    with pytest.raises(ConfigError, match="await instead"):
        call.block_on(call.write_record("acme:job", {}))


async def test_a_sync_tool_can_wait_for_being_told() -> None:
    waiting = threading.Event()

    @tool
    def patient(call: Call) -> str:
        assert not call.cancelled.wait_in_thread(0)
        waiting.set()
        assert call.cancelled.wait_in_thread(PATIENCE)
        return call.cancelled.reason

    batch = Executor().batch([Job(tool=patient, call_id="c0")])
    task = asyncio.create_task(batch.run())
    await until(waiting.is_set)
    batch.stop("enough")
    (outcome,) = await task
    assert (outcome.status, outcome.result) == ("returned", ToolResult("enough"))


# --- a tool that does not end --------------------------------------------------


def hanging(gate: threading.Event, entered: threading.Event) -> Callable[[], str]:
    def hang() -> str:
        entered.set()
        gate.wait(PATIENCE)
        return "charged"

    return hang


async def test_the_time_of_a_sync_tool_runs_out(gate: threading.Event) -> None:
    entered = threading.Event()
    hang = tool(hanging(gate, entered), effect="none", timeout=1)
    clock = FakeClock()
    task = asyncio.create_task(Executor(clock=clock).run([Job(tool=hang, call_id="c0")]))
    await until(entered.is_set)
    await clock.advance(1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run) == ("failed", False)
    assert outcome.result == ToolResult("Error: tool 'hang' timed out after 1 s")


@pytest.mark.parametrize("effect", ["idempotent", "keyed", "once"])
async def test_a_sync_tool_with_an_effect_may_have_run_and_is_heard_late(
    gate: threading.Event, effect: Effect
) -> None:
    entered = threading.Event()
    hang = tool(hanging(gate, entered), effect=effect, timeout=1)
    clock, hooks = FakeClock(), Log()
    executor = Executor(clock=clock, grace=5.0)
    task = asyncio.create_task(executor.run([Job(tool=hang, call_id="c0")], hooks))
    await until(entered.is_set)
    await clock.advance(6)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run, outcome.result) == ("abandoned", True, None)
    assert isinstance(outcome.error, ToolTimeout)
    assert len(abandoned()) == 1
    gate.set()
    await until(lambda: hooks.late)
    assert hooks.late["c0"] == Outcome(status="returned", result=ToolResult("charged"))
    assert not abandoned()


async def test_a_late_failure_of_a_thread_is_heard_too(gate: threading.Event) -> None:
    entered = threading.Event()

    @tool
    def fails() -> str:
        entered.set()
        gate.wait(PATIENCE)
        raise ToolError("declined")

    hooks = Log()
    batch = Executor(clock=FakeClock()).batch([Job(tool=fails, call_id="c0")], hooks)
    task = asyncio.create_task(batch.run())
    await until(entered.is_set)
    batch.stop(grace=False)
    await task
    gate.set()
    await until(lambda: hooks.late)
    assert hooks.late["c0"].result == ToolResult("Error: declined")


async def test_a_thread_that_gives_something_to_await_too_late_is_not_awaited(
    gate: threading.Event,
) -> None:
    entered = threading.Event()

    async def later() -> str:
        raise AssertionError

    @tool
    def odd() -> object:
        entered.set()
        gate.wait(PATIENCE)
        return later()

    hooks = Log()
    batch = Executor(clock=FakeClock()).batch([Job(tool=odd, call_id="c0")], hooks)
    task = asyncio.create_task(batch.run())
    await until(entered.is_set)
    batch.stop(grace=False)
    await task
    gate.set()
    await until(lambda: not abandoned())
    assert not hooks.late


async def test_an_abandoned_thread_that_uses_its_handle_is_refused(gate: threading.Event) -> None:
    entered = threading.Event()
    raised: list[BaseException] = []

    @tool
    def stray(call: Call) -> str:
        entered.set()
        gate.wait(PATIENCE)
        try:
            call.progress("x")
        except CallEnded as error:
            raised.append(error)
        try:
            call.block_on(call.write_record("a:b", 1))
        except CallEnded as error:
            raised.append(error)
        return ""

    batch = Executor(clock=FakeClock()).batch([Job(tool=stray, call_id="c0")])
    task = asyncio.create_task(batch.run())
    await until(entered.is_set)
    batch.stop(grace=False)
    await task
    gate.set()
    await until(lambda: not abandoned())
    assert len(raised) == 2


def test_a_thread_that_ends_after_its_loop_was_closed_harms_nobody(gate: threading.Event) -> None:
    ended = threading.Event()

    def work() -> str:
        gate.wait(PATIENCE)
        ended.set()
        return "too late"

    async def main() -> None:
        given_up = start_thread(work, name="test")
        assert not given_up.done()

    asyncio.run(main())
    gate.set()
    assert ended.wait(PATIENCE)
    for thread in threading.enumerate():
        if thread.name == "test":
            thread.join(PATIENCE)


async def test_a_future_that_was_given_up_is_left_alone() -> None:
    future = start_thread(lambda: "x", name="test")
    future.cancel()
    failing = start_thread(lambda: 1 / 0, name="test")
    failing.cancel()
    await settle()
    assert future.cancelled()
    assert failing.cancelled()


# --- the process ----------------------------------------------------------------------


def program(body: str) -> subprocess.CompletedProcess[str]:
    code = """
        import asyncio, sys, time
        from perdure.tools import Executor, Job, tool

        @tool
        def hang() -> str:
            print("entered", flush=True)
            time.sleep(600)
            return ""
    """
    source = textwrap.dedent(code) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_tool_that_hangs_does_not_hold_up_the_exit_of_the_process() -> None:
    ended = program("""
        async def main():
            batch = Executor(grace=0.01, linger=0.01).batch([Job(tool=hang, call_id="c")])
            asyncio.get_running_loop().call_later(0.2, batch.stop)
            print((await batch.run())[0].status)

        asyncio.run(main())
        print("out")
    """)
    assert ended.stdout.split() == ["entered", "abandoned", "out"]
    assert ended.returncode == 0


def test_a_closing_event_loop_does_not_wait_for_a_tool_that_hangs() -> None:
    ended = program("""
        async def main():
            task = asyncio.create_task(Executor(linger=0.01).run([Job(tool=hang, call_id="c")]))
            await asyncio.sleep(0.2)

        asyncio.run(main())
        print("out")
    """)
    assert ended.stdout.split() == ["entered", "out"]
    assert ended.returncode == 0


def test_a_sync_tool_that_exits_ends_the_program() -> None:
    ended = program("""
        @tool
        def leave() -> str:
            sys.exit(7)

        asyncio.run(Executor().run([Job(tool=leave, call_id="c")]))
    """)
    assert ended.returncode == 7
    assert "never retrieved" not in ended.stderr

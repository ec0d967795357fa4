"""How a batch winds down: stops, timeouts, cancellation, deaf tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from perdure.errors import Aborted, CallEnded, ToolError, ToolTimeout
from perdure.testing.clock import settle
from perdure.tools import (
    Call,
    Effect,
    Enter,
    Executor,
    Job,
    Outcome,
    ToolResult,
    abandoned,
)
from tests.tools.batches import (
    Bench,
    Log,
    Scripted,
    assert_nothing_is_left,
    assert_one_outcome_each,
    forever,
    says,
    until_told,
)

EFFECTFUL: tuple[Effect, ...] = ("idempotent", "keyed", "once")


class Deaf:
    """A body that ignores being told and cancelled, until a test lets it end."""

    def __init__(self, end: Callable[[], object] = lambda: "late") -> None:
        self.may_end = asyncio.Event()
        self.cancelled = 0
        self._end = end

    async def __call__(self, call: Call) -> object:
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        return self._end()


def slow_to_stop(bench: Bench, seconds: float, then: Callable[[], object]) -> Scripted:
    async def body(call: Call) -> object:
        await call.cancelled
        await bench.clock.sleep(seconds)
        return then()

    return Scripted(body)


# --- a stop ---------------------------------------------------------------------------


async def test_a_tool_without_an_effect_is_cancelled_at_once() -> None:
    bench = Bench(Scripted(forever, effect="none"))
    task = bench.start()
    await settle()
    bench.batch.stop("user pressed Esc")
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run, outcome.result) == ("cancelled", False, None)
    assert isinstance(outcome.error, Aborted)
    assert str(outcome.error) == "user pressed Esc"
    assert bench.clock.monotonic() == 0
    await assert_nothing_is_left()


@pytest.mark.parametrize("effect", EFFECTFUL)
async def test_a_tool_with_an_effect_is_told_and_has_its_grace(effect: Effect) -> None:
    bench = Bench(Scripted(forever, effect=effect), grace=5.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await bench.clock.advance(4.9)
    assert not task.done()
    await bench.clock.advance(0.1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run, outcome.result) == ("cancelled", True, None)
    assert outcome.entered == 1
    await assert_nothing_is_left()


async def test_what_a_tool_returns_when_it_is_told_is_its_result() -> None:
    bench = Bench(Scripted(until_told))
    task = bench.start()
    await settle()
    bench.batch.stop("enough")
    (outcome,) = await task
    assert (outcome.status, outcome.result) == ("returned", ToolResult("stopped: enough"))
    assert not outcome.may_have_run


async def test_what_a_tool_raises_when_it_is_told_is_its_own_word() -> None:
    async def body(call: Call) -> object:
        await call.cancelled.wait()
        raise ToolError("stopped before the charge")

    bench = Bench(Scripted(body))
    task = bench.start()
    await settle()
    bench.batch.stop()
    (outcome,) = await task
    assert outcome.result == ToolResult("Error: stopped before the charge")
    assert not outcome.may_have_run


async def test_what_a_tool_raises_because_it_was_cancelled_says_nothing() -> None:
    async def body(call: Call) -> object:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ToolError("connection closed") from None
        return ""

    bench = Bench(Scripted(body), grace=1.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await bench.clock.advance(1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run, outcome.result) == ("cancelled", True, None)


async def test_what_a_tool_returns_although_it_was_cancelled_is_its_result() -> None:
    async def body(call: Call) -> object:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "charged all the same"
        return ""

    bench = Bench(Scripted(body), grace=1.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await bench.clock.advance(1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run) == ("returned", False)
    assert outcome.result == ToolResult("charged all the same")


async def test_jobs_that_wait_for_a_slot_or_their_turn_are_not_started() -> None:
    bench = Bench(
        Scripted(until_told, resource="disk"),
        Scripted(says("b"), resource="disk"),
        Scripted(until_told),
        Scripted(says("d")),
        max_parallel=2,
    )
    task = bench.start()
    await settle()
    bench.batch.stop("enough")
    outcomes = await task
    assert [outcome.status for outcome in outcomes] == [
        "returned",
        "not_started",
        "returned",
        "not_started",
    ]
    for outcome in (outcomes[1], outcomes[3]):
        assert (outcome.entered, outcome.dispatched, outcome.may_have_run) == (0, False, False)
        assert str(outcome.error) == "enough"
    assert [line for line in bench.log.lines if line.startswith("start")] == [
        "start c0",
        "start c2",
    ]
    assert_one_outcome_each(bench)


async def test_jobs_that_are_not_started_settle_without_waiting_for_the_grace() -> None:
    bench = Bench(Scripted(forever), Scripted(says("")), max_parallel=1, grace=5.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await settle()
    assert bench.log.lines == ["start c0", "settled c1 not_started"]
    await bench.clock.advance(5)
    await task


async def test_finished_siblings_keep_their_results() -> None:
    bench = Bench(Scripted(says("done")), Scripted(forever), grace=1.0)
    task = bench.start()
    await settle()
    assert bench.log.lines[-1] == "settled c0 returned"
    bench.batch.stop()
    await bench.clock.advance(1)
    first, second = await task
    assert first.result == ToolResult("done")
    assert second.status == "cancelled"
    assert_one_outcome_each(bench)


async def test_a_batch_that_was_stopped_before_it_ran_starts_nothing() -> None:
    bench = Bench(Scripted(forever), Scripted(forever))
    bench.batch.stop()
    outcomes = await bench.run()
    assert [outcome.status for outcome in outcomes] == ["not_started", "not_started"]


async def test_a_second_stop_ends_the_grace() -> None:
    bench = Bench(Scripted(forever), grace=100.0)
    task = bench.start()
    await settle()
    bench.batch.stop("first")
    await bench.clock.advance(1)
    bench.batch.stop("second", grace=False)
    (outcome,) = await task
    assert (outcome.status, str(outcome.error)) == ("cancelled", "first")
    assert bench.clock.monotonic() == 1


async def test_a_stop_does_not_cut_on_start_short_but_keeps_the_tool_from_being_entered() -> None:
    durable = asyncio.Event()

    class Dispatch(Log):
        async def on_start(self, job: Job) -> None:
            await durable.wait()
            await super().on_start(job)

    bench = Bench(Scripted(forever), hooks=Dispatch())
    task = bench.start()
    await settle()
    bench.batch.stop()
    await settle()
    assert not task.done()
    durable.set()
    (outcome,) = await task
    assert (outcome.status, outcome.dispatched, outcome.entered) == ("not_started", True, 0)
    assert not outcome.may_have_run


async def test_a_stopped_tool_is_not_entered_again() -> None:
    class Stubborn(Log):
        async def around(self, job: Job, enter: Enter) -> ToolResult:
            while True:
                try:
                    return await enter()
                except ToolError:
                    continue

    async def body(call: Call) -> object:
        await call.cancelled
        raise ToolError("stopped")

    bench = Bench(Scripted(body, effect="idempotent"), hooks=Stubborn())
    task = bench.start()
    await settle()
    bench.batch.stop()
    (outcome,) = await task
    assert (outcome.status, outcome.entered) == ("failed", 1)
    assert outcome.result == ToolResult("Error: stopped")


async def test_progress_from_the_grace_is_delivered() -> None:
    async def body(call: Call) -> object:
        await call.cancelled
        call.progress("stopping")
        return "stopped"

    bench = Bench(Scripted(body))
    task = bench.start()
    await settle()
    bench.batch.stop()
    await task
    assert bench.log.lines == ["start c0", "progress c0 stopping", "settled c0 returned"]


# --- deaf tools -----------------------------------------------------------------------


async def test_a_deaf_tool_is_abandoned_and_may_have_run(caplog: pytest.LogCaptureFixture) -> None:
    deaf = Deaf()
    bench = Bench(Scripted(deaf, name="charge"), grace=5.0, linger=1.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await bench.clock.advance(5.9)
    assert not task.done()
    await bench.clock.advance(0.1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run, outcome.result) == ("abandoned", True, None)
    assert deaf.cancelled == 1
    assert "tool 'charge' of call 'c0' does not end and was abandoned" in caplog.text
    assert len(abandoned()) == 1

    deaf.may_end.set()
    await settle()
    assert bench.log.late["c0"] == Outcome(status="returned", result=ToolResult("late"))
    assert_one_outcome_each(bench)
    assert not abandoned()
    await assert_nothing_is_left()


async def test_a_deaf_tool_that_fails_late_is_heard_too() -> None:
    def end() -> object:
        raise ToolError("card declined")

    deaf = Deaf(end)
    bench = Bench(Scripted(deaf), grace=1.0, linger=1.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await bench.clock.advance(2)
    await task
    deaf.may_end.set()
    await settle()
    assert bench.log.late["c0"].result == ToolResult("Error: card declined")


async def test_a_deaf_tool_without_an_effect_is_abandoned_and_nothing_is_made_of_it() -> None:
    deaf = Deaf()
    bench = Bench(Scripted(deaf, effect="none"), linger=1.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await bench.clock.advance(1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run) == ("abandoned", False)
    deaf.may_end.set()
    await settle()
    assert not bench.log.late
    assert not abandoned()


async def test_the_handle_of_an_abandoned_call_is_closed() -> None:
    raised: list[BaseException] = []
    may_end = asyncio.Event()

    async def body(call: Call) -> object:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        try:
            call.progress("still here")
        except CallEnded as error:
            raised.append(error)
        return ""

    bench = Bench(Scripted(body), grace=1.0, linger=1.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await bench.clock.advance(2)
    await task
    may_end.set()
    await settle()
    assert len(raised) == 1


async def test_a_late_result_that_nobody_can_take_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Log):
        def on_late(self, job: Job, outcome: Outcome) -> None:
            raise OSError("no inbox")

    deaf = Deaf()
    bench = Bench(Scripted(deaf), hooks=Broken(), grace=1.0, linger=1.0)
    task = bench.start()
    await settle()
    bench.batch.stop()
    await bench.clock.advance(2)
    await task
    deaf.may_end.set()
    await settle()
    assert "the late result of call 'c0' was not taken" in caplog.text
    assert any(record.levelno == logging.ERROR for record in caplog.records)


# --- timeouts -------------------------------------------------------------------------


async def test_a_tool_without_an_effect_that_outlives_its_time_has_failed() -> None:
    bench = Bench(Scripted(forever, effect="none", timeout=2), Scripted(says("b")))
    task = bench.start()
    await bench.clock.advance(2)
    outcome, other = await task
    assert (outcome.status, outcome.may_have_run) == ("failed", False)
    assert outcome.result == ToolResult("Error: tool 't' timed out after 2 s")
    assert isinstance(outcome.error, ToolTimeout)
    assert other.result == ToolResult("b")
    await assert_nothing_is_left()


@pytest.mark.parametrize("effect", EFFECTFUL)
async def test_a_tool_with_an_effect_that_outlives_its_time_may_have_run(effect: Effect) -> None:
    bench = Bench(Scripted(forever, effect=effect, timeout=2), grace=5.0)
    task = bench.start()
    await bench.clock.advance(6.9)
    assert not task.done()
    await bench.clock.advance(0.1)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run, outcome.result) == ("cancelled", True, None)
    assert isinstance(outcome.error, ToolTimeout)


async def test_a_result_within_the_grace_counts() -> None:
    bench = Bench(Scripted(forever))
    bench = Bench(slow_to_stop(bench, 1, lambda: "charged"), grace=5.0)
    tool = bench.jobs[0].tool
    assert isinstance(tool, Scripted)
    tool.timeout = 2

    async def body(call: Call) -> object:
        await call.cancelled
        assert call.cancelled.reason == "tool 't' timed out after 2 s"
        await bench.clock.sleep(3)
        return "charged"

    tool.body = body
    task = bench.start()
    await bench.clock.advance(5)
    (outcome,) = await task
    assert (outcome.status, outcome.result) == ("returned", ToolResult("charged"))


async def test_a_deaf_tool_that_outlives_its_time_is_abandoned_and_heard_late() -> None:
    deaf = Deaf()
    bench = Bench(Scripted(deaf, timeout=2), grace=1.0, linger=1.0)
    task = bench.start()
    await bench.clock.advance(4)
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run) == ("abandoned", True)
    assert isinstance(outcome.error, ToolTimeout)
    deaf.may_end.set()
    await settle()
    assert bench.log.late["c0"].result == ToolResult("late")


async def test_a_tool_knows_its_deadline() -> None:
    async def body(call: Call) -> object:
        return call.deadline

    bench = Bench(Scripted(body, timeout=2.5), Scripted(body))
    await bench.clock.advance(10)
    first, second = await bench.run()
    assert first.result == ToolResult("12.5")
    assert second.result == ToolResult("None")


async def test_the_time_of_a_tool_does_not_run_while_it_waits_for_its_slot() -> None:
    async def body(call: Call) -> object:
        await bench.clock.sleep(1.5)
        return ""

    bench = Bench(*[Scripted(body, timeout=2) for _ in range(3)], max_parallel=1)
    task = bench.start()
    await bench.clock.advance(5)
    assert [outcome.status for outcome in await task] == ["returned"] * 3


async def test_a_stop_during_the_grace_of_a_timeout_can_end_it() -> None:
    bench = Bench(Scripted(forever, timeout=1), grace=100.0)
    task = bench.start()
    await bench.clock.advance(2)
    bench.batch.stop(grace=False)
    (outcome,) = await task
    assert isinstance(outcome.error, ToolTimeout)
    assert outcome.may_have_run


# --- cancelling the one who runs the batch --------------------------------------------


async def test_cancelling_run_stops_without_grace_and_settles_every_job() -> None:
    bench = Bench(
        Scripted(says("a")),
        Scripted(forever),
        Scripted(forever, effect="none"),
        Scripted(says("d"), resource="x"),
        max_parallel=3,
        grace=100.0,
    )
    bench.jobs[3] = bench.jobs[3]
    task = bench.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_one_outcome_each(bench)
    assert bench.clock.monotonic() == 0
    statuses = [bench.log.outcomes[f"c{n}"][0].status for n in range(4)]
    assert statuses[1:3] == ["cancelled", "cancelled"]
    assert bench.log.outcomes["c1"][0].may_have_run
    await assert_nothing_is_left()


async def test_cancelling_run_abandons_what_is_deaf() -> None:
    deaf = Deaf()
    bench = Bench(Scripted(deaf), grace=100.0, linger=1.0)
    task = bench.start()
    await settle()
    task.cancel()
    await bench.clock.advance(1)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.log.outcomes["c0"][0].status == "abandoned"
    deaf.may_end.set()
    await settle()
    assert bench.log.late["c0"].status == "returned"


@pytest.mark.parametrize("where", ["on_start", "around", "on_progress", "on_settled"])
async def test_cancelling_run_again_cancels_hooks_that_hang(where: str) -> None:
    class Hanging(Log):
        async def around(self, job: Job, enter: Enter) -> ToolResult:
            result = await enter()
            if where == "around":
                await asyncio.Event().wait()
            return result

        async def on_start(self, job: Job) -> None:
            if where == "on_start":
                await asyncio.Event().wait()

        async def on_progress(self, job: Job, partial: ToolResult) -> None:
            if where == "on_progress":
                await asyncio.Event().wait()

        async def on_settled(self, job: Job, outcome: Outcome) -> None:
            await super().on_settled(job, outcome)
            if where == "on_settled":
                await asyncio.Event().wait()

    async def body(call: Call) -> object:
        call.progress("x")
        return "a"

    bench = Bench(Scripted(body), hooks=Hanging())
    task = bench.start()
    await settle()
    task.cancel()
    await settle()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_one_outcome_each(bench)
    (outcome,) = bench.log.outcomes["c0"]
    if where == "on_start":
        assert (outcome.status, outcome.entered) == ("not_started", 0)
    else:
        assert outcome.result == ToolResult("a")
    await assert_nothing_is_left()


@pytest.mark.parametrize("steps", range(12))
async def test_a_cancellation_at_any_moment_leaves_one_outcome_each(steps: int) -> None:
    async def body(call: Call) -> object:
        call.progress("x")
        await asyncio.sleep(0)
        return "a"

    bench = Bench(
        Scripted(body, resource="disk"),
        Scripted(body, resource="disk"),
        Scripted(body),
        Scripted(forever),
        max_parallel=2,
    )
    task = bench.start()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if steps:
        assert_one_outcome_each(bench)
    for (outcome,) in bench.log.outcomes.values():
        assert (outcome.result is not None) == (outcome.status == "returned")
        assert outcome.may_have_run == (outcome.status in {"cancelled", "abandoned"})
        assert (outcome.entered == 0) == (outcome.status == "not_started")
    await assert_nothing_is_left()


# --- interrupts and a closing event loop ----------------------------------------------


def run_to_the_end(main: Callable[[], Awaitable[object]]) -> None:
    """Run on an event loop of its own, as a program does."""
    with asyncio.Runner() as runner:
        runner.run(main())  # type: ignore[arg-type]


@pytest.mark.parametrize("interrupt", [SystemExit, KeyboardInterrupt])
def test_an_interrupt_ends_the_program_and_every_job_has_its_outcome(
    interrupt: type[BaseException],
) -> None:
    hooks = Log()

    async def quits(call: Call) -> object:
        raise interrupt

    async def main() -> None:
        tools = [Scripted(says("a")), Scripted(quits), Scripted(forever)]
        jobs = [Job(tool=tool, call_id=f"c{n}") for n, tool in enumerate(tools)]
        await Executor().run(jobs, hooks)

    with pytest.raises(interrupt):
        run_to_the_end(main)
    statuses = {name: [one.status for one in each] for name, each in hooks.outcomes.items()}
    assert statuses == {"c0": ["returned"], "c1": ["cancelled"], "c2": ["cancelled"]}
    assert isinstance(hooks.outcomes["c1"][0].error, interrupt)
    assert hooks.outcomes["c1"][0].may_have_run


def test_an_interrupt_that_the_program_survives_is_raised_by_the_batch() -> None:
    hooks = Log()

    async def quits(call: Call) -> object:
        raise SystemExit(3)

    loop = asyncio.new_event_loop()
    try:
        jobs = [Job(tool=Scripted(quits), call_id="c0"), Job(tool=Scripted(forever), call_id="c1")]

        async def main() -> None:
            await Executor().run(jobs, hooks)

        task = loop.create_task(main())
        with pytest.raises(SystemExit):
            loop.run_until_complete(task)
        with pytest.raises(SystemExit):
            loop.run_until_complete(task)
        assert isinstance(task.exception(), SystemExit)
    finally:
        loop.close()
    assert [each[0].status for each in hooks.outcomes.values()] == ["cancelled", "cancelled"]


def test_a_closing_event_loop_is_a_stop_without_grace() -> None:
    hooks = Log()

    async def main() -> None:
        jobs = [
            Job(tool=Scripted(says("a")), call_id="c0"),
            Job(tool=Scripted(forever), call_id="c1"),
            Job(tool=Scripted(forever, sequential=False, resource="x"), call_id="c2"),
            Job(tool=Scripted(forever, resource="x"), call_id="c3"),
        ]
        batch = Executor(grace=1000.0, linger=1000.0).batch(jobs, hooks)
        background.append(asyncio.create_task(batch.run()))
        await settle()

    background: list[asyncio.Task[tuple[Outcome, ...]]] = []
    run_to_the_end(main)
    assert background[0].cancelled()
    statuses = {name: [one.status for one in each] for name, each in hooks.outcomes.items()}
    assert statuses == {
        "c0": ["returned"],
        "c1": ["cancelled"],
        "c2": ["cancelled"],
        "c3": ["not_started"],
    }
    assert hooks.outcomes["c1"][0].may_have_run


@pytest.mark.parametrize("where", ["on_start", "around"])
async def test_an_interrupt_of_a_hook_is_raised_by_the_batch(where: str) -> None:
    class Quitting(Log):
        async def around(self, job: Job, enter: Enter) -> ToolResult:
            if where == "around" and job.call_id == "c0":
                raise KeyboardInterrupt
            return await enter()

        async def on_start(self, job: Job) -> None:
            if where == "on_start" and job.call_id == "c0":
                raise KeyboardInterrupt

    bench = Bench(Scripted(forever), Scripted(forever), hooks=Quitting(), grace=100.0)
    with pytest.raises(KeyboardInterrupt):
        await bench.batch.run()
    assert_one_outcome_each(bench)
    assert bench.log.outcomes["c0"][0].entered == 0
    await assert_nothing_is_left()

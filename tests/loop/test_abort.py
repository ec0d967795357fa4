"""Stopping: aborts, callers that are cancelled, loops that close, and who does not let go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from perdure.agent import Agent
from perdure.errors import Aborted, RunFailed
from perdure.loop import (
    Broadcast,
    Config,
    DriveHandle,
    Event,
    Middleware,
    ModelRequest,
    Opening,
    RunEnd,
    ToolCallInfo,
    ToolDecision,
    ToolDispatch,
    ToolEnd,
    ToolResultInfo,
    Transcript,
    begin,
    drive_scope,
)
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.testing.event_check import check_events
from perdure.tools import Call, tool
from perdure.wire import StreamEvent, user
from tests.loop.fakes import (
    Ear,
    Failure,
    Ledger,
    Tool,
    answer,
    fails,
    life,
    listening,
    never,
    outputs,
    pending,
    texts,
    until_told,
    waits,
)

CALLS = turn(call("a", {}, "c1"), call("b", {}, "c2"))


def starting(
    config: Config, *subscribers: Ear, ledger: Ledger | None = None
) -> tuple[DriveHandle, Broadcast]:
    consumers = Broadcast()
    handle = begin(
        Transcript(),
        Opening(prompts=(user("go"),)),
        config,
        subscribers=subscribers,
        consumers=consumers,
        ledger=ledger,
    )
    return handle, consumers


# --- what an abort leaves ---------------------------------------------------------------


async def test_a_finished_sibling_keeps_its_result_and_the_stalled_call_is_pending() -> None:
    clock = FakeClock()
    slow = Tool("b", never)
    agent = Agent(ScriptedModel([CALLS, "done"]), tools=[Tool("a"), slow], clock=clock, grace=1)
    session, ear = listening(agent)
    ear.on("tool_end", lambda event: session.abort("esc"), call_id="c1")
    sending = asyncio.create_task(session.send("go"))
    await clock.advance(1)
    result = await sending
    ear.check()
    assert (result.status, result.cause) == ("aborted", "esc")
    assert outputs(result.items) == [("c1", "ok")]
    assert pending(ear.end) == {"c2": "aborted"}


async def test_after_an_abort_the_next_request_has_both_outputs() -> None:
    clock = FakeClock()
    model = ScriptedModel([CALLS, "done"])
    agent = Agent(model, tools=[Tool("a"), Tool("b", never)], clock=clock, grace=0)
    session, ear = listening(agent)
    ear.on("tool_end", lambda event: session.abort(), call_id="c1")
    await session.send("go")
    from perdure.loop import outcome_unknown

    result = await session.resume(outcome_unknown("c2"))
    assert result.status == "done"
    said = dict(outputs(model.requests[-1].input))
    assert said["c1"] == "ok"
    assert said["c2"].startswith("Error: the outcome of this call is unknown")
    ear.check()


@pytest.mark.parametrize(
    "kind",
    [
        "run_start",
        "item_start",
        "item_end",
        "turn_start",
        "item_update",
        "response_end",
        "tool_start",
        "tool_dispatch",
        "tool_end",
        "turn_end",
    ],
)
async def test_an_abort_at_any_event_gives_one_end_and_no_further_model_call(kind: str) -> None:
    model = ScriptedModel([turn("so", CALLS), "done"])
    tools = [Tool("a", until_told), Tool("b", until_told)]
    session, ear = listening(Agent(model, tools=tools, clock=FakeClock()))
    asked = 0

    def abort(event: Event) -> None:
        nonlocal asked
        asked = len(model.requests)
        session.abort("esc")
        session.steer("and then")

    ear.on(kind, abort)
    if kind in {"tool_end", "turn_end"}:
        for one in tools:
            one.does = "ok"
    result = await session.send("go")
    ear.check()
    assert (result.status, result.cause) == ("aborted", "esc")
    assert ear.names.count("run_end") == 1
    assert ear.events[-1] is ear.end
    assert len(model.requests) == asked
    waiting = texts(session.state.steering)  # type: ignore[arg-type]
    kept = texts(session.state.transcript)
    assert [*waiting, *kept].count("user: and then") == 1


async def test_the_cause_of_an_abort_is_the_cause_of_the_end_and_the_first_stands() -> None:
    session, ear = listening(Agent(ScriptedModel(["hi"])))

    class Pressed(Exception):
        pass

    def abort(event: Event) -> None:
        session.abort(Pressed("esc"))
        session.abort("second")

    ear.on("turn_start", abort)
    result = await session.send("go")
    assert isinstance(ear.end.error, Pressed)
    assert result.cause == "esc"


@pytest.mark.parametrize("cause", [asyncio.CancelledError("x"), KeyboardInterrupt("x")])
async def test_a_cause_that_is_no_exception_does_not_escape_the_drive(
    cause: BaseException,
) -> None:
    session, ear = listening(Agent(ScriptedModel(["hi"])))
    ear.on("turn_start", lambda event: session.abort(cause))
    result = await session.send("go")
    assert result.status == "aborted"
    ear.check()
    assert ear.end.error is not None
    assert "x" in str(ear.end.error)


async def test_an_abort_before_the_drive_has_run_at_all_ends_it() -> None:
    ear = Ear()
    model = ScriptedModel(["hi"])
    handle, _ = starting(Config(model=model), ear)
    handle.abort("at once")
    end = await handle.wait()
    assert (end.reason, str(end.error)) == ("aborted", "at once")
    assert model.requests == []
    ear.check()


async def test_what_runs_after_an_abort_is_not_cancelled_itself() -> None:
    cancelling: list[int] = []

    class Looks(Middleware):
        async def on_end(self, end: RunEnd) -> None:
            here = asyncio.current_task()
            assert here is not None
            cancelling.append(here.cancelling())

    class Stalls:
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            yield answer()[0]
            await asyncio.Event().wait()

    session, ear = listening(Agent(Stalls(), middleware=[Looks()]))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort("esc")
    assert (await sending).status == "aborted"
    assert cancelling == [0]
    ear.check()


async def test_an_abort_while_idle_is_nothing_and_does_not_reach_the_next_drive() -> None:
    session, ear = listening(Agent(ScriptedModel(["one", "two"])))
    session.abort()
    assert (await session.send("go")).status == "done"
    session.abort()
    assert (await session.send("on")).status == "done"
    ear.check()


async def test_every_subscriber_hears_everything_that_follows_an_abort() -> None:
    model = ScriptedModel([CALLS, "done"])
    tools = [Tool("a", until_told), Tool("b", until_told)]
    session, first = listening(Agent(model, tools=tools, clock=FakeClock()))
    second = Ear()
    session.subscribe(second)
    first.on("tool_dispatch", lambda event: session.abort(), call_id="c2")
    await session.send("go")
    assert first.events == second.events
    second.check()


async def test_a_call_that_waits_for_a_slot_is_cut_without_a_dispatch() -> None:
    tools = [Tool("a", until_told), Tool("b")]
    agent = Agent(ScriptedModel([CALLS, "done"]), tools=tools, max_parallel=1, clock=FakeClock())
    session, ear = listening(agent)
    ear.on("tool_dispatch", lambda event: session.abort(), call_id="c1")
    await session.send("go")
    assert life(ear.events, "c2") == ["tool_start", "tool_end"]
    assert pending(ear.end)["c2"] == "undispatched"
    assert tools[1].entered == []
    ear.check()


async def test_calls_that_an_abort_cut_are_judged_with_its_error() -> None:
    seen: list[tuple[str, str]] = []

    class Sees(Middleware):
        async def after_tool_call(self, info: ToolResultInfo) -> None:
            seen.append((info.call.call_id, type(info.error).__name__))

    clock = FakeClock()
    tools = [Tool("a", never), Tool("b", never)]
    agent = Agent(ScriptedModel([CALLS]), tools=tools, middleware=[Sees()], clock=clock, grace=0)
    session, _ = listening(agent)
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort()
    await sending
    assert sorted(seen) == [("c1", "Aborted"), ("c2", "Aborted")]


async def test_no_further_call_is_decided_after_an_abort() -> None:
    asked: list[str] = []

    class Asks(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
            asked.append(info.call.call_id)
            return None

    agent = Agent(ScriptedModel([CALLS]), tools=[Tool("a"), Tool("b")], middleware=[Asks()])
    session, ear = listening(agent)
    ear.on("tool_start", lambda event: session.abort(), call_id="c1")
    await session.send("go")
    assert asked == ["c1"]
    assert pending(ear.end) == {"c1": "undispatched", "c2": "undispatched"}
    ear.check()


async def test_notes_are_not_said_beside_calls_that_were_cut() -> None:
    class Notes(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision:
            return ToolDecision(note=f"note {info.call.call_id}")

    clock = FakeClock()
    tools = [Tool("a"), Tool("b", never)]
    agent = Agent(ScriptedModel([CALLS]), tools=tools, middleware=[Notes()], clock=clock, grace=0)
    session, ear = listening(agent)
    ear.on("tool_end", lambda event: session.abort(), call_id="c1")
    sending = asyncio.create_task(session.send("go"))
    await clock.advance(0)
    result = await sending
    assert not any("note" in said for said in texts(result.items))
    ear.check()


# --- subscribers while a drive is stopped -------------------------------------------------


async def test_a_subscriber_that_fails_on_one_cut_call_leaves_the_others_their_ends() -> None:
    clock = FakeClock()
    tools = [Tool("a", never), Tool("b", never)]
    session, ear = listening(Agent(ScriptedModel([CALLS]), tools=tools, clock=clock, grace=0))
    ear.on("tool_dispatch", lambda event: session.abort("esc"), call_id="c2")
    ear.on("tool_end", fails("disk full"))
    sending = asyncio.create_task(session.send("go"))
    await clock.advance(0)
    result = await sending
    assert result.status == "aborted"
    ends = [event.call_id for event in ear.of(ToolEnd)]
    assert sorted(ends) == ["c1", "c2"]
    error = ear.end.error
    assert isinstance(error, Aborted)
    assert "disk full" in " ".join([*getattr(error, "__notes__", ()), str(error.__cause__)])
    ear.check()


@pytest.mark.parametrize("kind", ["tool_end", "run_end"])
async def test_a_subscriber_that_hangs_while_a_drive_winds_down_does_not_hold_it(
    kind: str,
) -> None:
    clock = FakeClock()
    agent = Agent(
        ScriptedModel([CALLS]),
        tools=[Tool("a", until_told), Tool("b", until_told)],
        clock=clock,
        wind_down=7,
    )
    session, hangs = listening(agent)
    other = Ear()
    session.subscribe(other)

    async def hang(event: Event) -> None:
        await asyncio.Event().wait()

    hangs.on("tool_dispatch", lambda event: session.abort("esc"), call_id="c2")
    hangs.on(kind, hang)
    sending = asyncio.create_task(session.send("go"))
    await clock.advance(6)
    assert not sending.done()
    await clock.advance(10)
    assert sending.done()
    with contextlib.suppress(RunFailed):
        await sending
    assert not session.state.running
    assert other.names[-1] == "run_end"
    assert other.of(ToolEnd)


async def test_a_subscriber_that_hangs_already_when_the_abort_comes_is_cut() -> None:
    clock = FakeClock()
    session, ear = listening(Agent(ScriptedModel(["hi"]), clock=clock, wind_down=7))

    async def hang(event: Event) -> None:
        await asyncio.Event().wait()

    ear.on("turn_start", hang)
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort("esc")
    await clock.advance(8)
    result = await sending
    assert (result.status, result.cause) == ("aborted", "esc")
    assert ear.names[-1] == "turn_start"  # it hung, and hears nothing more


async def test_the_end_reaches_every_subscriber_and_hook_also_when_one_fails_on_it() -> None:
    ends: list[str] = []

    class Ends(Middleware):
        def __init__(self, name: str, *, failing: bool = False) -> None:
            self.name = name
            self.failing = failing

        async def on_end(self, end: RunEnd) -> None:
            ends.append(self.name)
            if self.failing:
                raise Failure

    agent = Agent(ScriptedModel(["hi"]), middleware=[Ends("one", failing=True), Ends("two")])
    session, first = listening(agent)
    second = Ear()
    session.subscribe(second)
    first.on("run_end", fails())
    with pytest.raises(RunFailed):
        await session.send("go")
    assert second.names[-1] == "run_end"
    assert ends == ["one", "two"]


async def test_a_reader_hears_of_the_end_also_when_a_hook_fails_on_it() -> None:
    from perdure.loop import run

    class Fails(Middleware):
        async def on_event(self, event: Event) -> None:
            if isinstance(event, RunEnd):
                raise Failure

    config = Config(model=ScriptedModel(["hi"]), middleware=[Fails()])
    async with run([], [user("go")], config) as events:
        reading = asyncio.create_task(_all(events))
        await settle()
        assert reading.done()
        heard = await reading
    assert isinstance(heard[-1], RunEnd)


async def _all(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


# --- tools that are told --------------------------------------------------------------------


async def test_a_tool_without_effect_is_cut_at_once_and_others_have_their_grace() -> None:
    clock = FakeClock()
    looks, pays = Tool("a", never, effect="none"), Tool("b", never)
    agent = Agent(ScriptedModel([CALLS]), tools=[looks, pays], clock=clock, grace=5)
    session, ear = listening(agent)
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort()
    await settle()
    assert [event.call_id for event in ear.of(ToolEnd)] == ["c1"]
    assert pays.calls[0].cancelled.is_set()
    await clock.advance(4.9)
    assert not sending.done()
    await clock.advance(0.1)
    await sending
    assert pending(ear.end) == {"c1": "aborted", "c2": "aborted"}
    ear.check()


async def test_a_tool_that_ends_in_its_grace_has_its_result_recorded() -> None:
    agent = Agent(
        ScriptedModel([CALLS]),
        tools=[Tool("a", until_told), Tool("b", until_told)],
        clock=FakeClock(),
    )
    session, ear = listening(agent)
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort("esc")
    result = await sending
    assert result.status == "aborted"
    assert outputs(result.items) == [("c1", "stopped: esc"), ("c2", "stopped: esc")]
    assert ear.end.pending == ()
    ear.check()


async def test_a_tool_that_swallows_cancellation_is_abandoned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = asyncio.Event()

    async def deaf(call: Call) -> str:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return "late"

    clock = FakeClock()
    agent = Agent(
        ScriptedModel([call("a", {}, "c1")]), tools=[Tool("a", deaf)], clock=clock, grace=2
    )
    session, ear = listening(agent)
    with caplog.at_level(logging.ERROR, "perdure.tools"):
        sending = asyncio.create_task(session.send("go"))
        await settle()
        session.abort()
        await clock.advance(10)
        result = await sending
    assert result.status == "aborted"
    assert pending(ear.end) == {"c1": "aborted"}
    ear.check()
    gate.set()
    await settle()
    assert ear.events[-1] is ear.end  # nothing follows the end


async def test_a_sync_tool_that_hangs_is_abandoned() -> None:
    gate = threading.Event()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def hangs() -> str:
        gate.wait()
        loop.call_soon_threadsafe(ended.set)
        return "late"

    clock = FakeClock()
    agent = Agent(ScriptedModel([call("hangs", {}, "c1")]), tools=[hangs], clock=clock, grace=2)
    session, ear = listening(agent)
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort()
    await clock.advance(10)
    result = await sending
    assert result.status == "aborted"
    assert pending(ear.end) == {"c1": "aborted"}
    ear.check()
    gate.set()
    await ended.wait()


async def test_background_work_ends_with_an_abort_and_outlives_a_drive_that_ends() -> None:
    work: list[asyncio.Task[str]] = []
    gate = asyncio.Event()

    async def starts(call: Call) -> str:
        work.append(drive_scope().spawn(waits(gate, "reported")(call)))
        return "started"

    model = ScriptedModel([call("a", {}, "c1"), "done", call("a", {}, "c2"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a", starts)]))
    await session.send("go")
    session.abort("nothing runs")
    await settle()
    assert not work[0].done()
    ear.on("tool_end", lambda event: session.abort("esc"), call_id="c2")
    await session.send("again")
    await settle()
    assert work[1].cancelled()
    assert not work[0].done()
    gate.set()
    assert await work[0] == "reported"


# --- callers that are cancelled ---------------------------------------------------------------


async def test_a_cancelled_caller_aborts_the_run_and_waits_until_it_has_wound_down() -> None:
    heard = Ear()

    class Hears(Middleware):
        async def on_event(self, event: Event) -> None:
            await heard(event)

    agent = Agent(
        ScriptedModel([call("a", {}, "c1")]),
        tools=[Tool("a", until_told)],
        middleware=[Hears()],
        clock=FakeClock(),
    )
    running = asyncio.create_task(agent.run("go"))
    await settle()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard.end.reason == "aborted"
    assert outputs(heard.end.items) == [("c1", "stopped: the caller was cancelled")]
    heard.check()


async def test_a_caller_cancelled_twice_still_waits_and_leaves_when_its_time_is_up() -> None:
    clock = FakeClock()
    gate = asyncio.Event()

    class Waits(Middleware):
        async def after_tool_call(self, info: ToolResultInfo) -> None:
            await gate.wait()

    agent = Agent(
        ScriptedModel([call("a", {}, "c1")]),
        tools=[Tool("a")],
        middleware=[Waits()],
        clock=clock,
        wind_down=7,
    )
    running = asyncio.create_task(agent.run("go"))
    await settle()
    running.cancel()
    await settle()
    running.cancel()
    await settle()
    assert not running.done()
    await clock.advance(6.9)
    assert not running.done()
    await clock.advance(0.2)
    assert running.cancelled()
    gate.set()
    await settle()


async def test_a_timeout_around_a_run_is_a_timeout() -> None:
    agent = Agent(
        ScriptedModel([call("a", {}, "c1")]), tools=[Tool("a", until_told)], clock=FakeClock()
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await agent.run("go")


async def test_a_send_that_waits_for_its_turn_can_be_cancelled_without_harm() -> None:
    gate = asyncio.Event()
    agent = Agent(
        ScriptedModel([call("a", {}, "c1"), "one", "two"]), tools=[Tool("a", waits(gate))]
    )
    session, ear = listening(agent)
    first = asyncio.create_task(session.send("go"))
    await settle()
    second = asyncio.create_task(session.send("on"))
    await settle()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    assert (await first).text == "one"
    assert (await session.send("again")).text == "two"
    ear.check()


# --- an event loop that closes ------------------------------------------------------------------


def test_a_closing_event_loop_is_an_abort_with_one_end() -> None:
    heard: list[Event] = []

    class Hears(Middleware):
        async def on_event(self, event: Event) -> None:
            heard.append(event)

    async def main() -> None:
        agent = Agent(
            ScriptedModel([CALLS]),
            tools=[Tool("a", never), Tool("b", never, effect="none")],
            middleware=[Hears()],
        )
        running = asyncio.create_task(agent.run("go"))
        await settle()
        assert any(isinstance(event, ToolDispatch) and event.call_id == "c2" for event in heard)
        assert not running.done()

    asyncio.run(main())
    check_events(heard)
    end = heard[-1]
    assert isinstance(end, RunEnd)
    assert end.reason == "aborted"
    assert "closing" in str(end.error) or "cancelled" in str(end.error)
    assert pending(end) == {"c1": "aborted", "c2": "aborted"}


def test_a_closing_event_loop_while_the_model_speaks_is_an_abort_with_one_end() -> None:
    heard: list[Event] = []

    class Stalls:
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            for event in answer()[:2]:
                yield event
            await asyncio.Event().wait()

    class Hears(Middleware):
        async def on_event(self, event: Event) -> None:
            heard.append(event)

    async def main() -> None:
        running = asyncio.create_task(Agent(Stalls(), middleware=[Hears()]).run("go"))
        await settle()
        assert not running.done()

    asyncio.run(main())
    check_events(heard)
    assert isinstance(heard[-1], RunEnd)
    assert heard[-1].reason == "aborted"


@pytest.mark.parametrize("where", ["subscriber", "ledger"])
def test_a_closing_event_loop_gives_the_last_append_a_bounded_time(where: str) -> None:
    reached: list[str] = []

    class Hangs(Middleware):
        async def on_event(self, event: Event) -> None:
            if isinstance(event, RunEnd) and where == "subscriber":
                reached.append("run_end")
                await asyncio.Event().wait()

    async def main() -> None:
        ledger = Ledger(by_hand=where == "ledger")
        config = Config(
            model=ScriptedModel([call("a", {}, "c1")]),
            tools=[Tool("a", never, effect="none")],
            middleware=[Hangs()],
            wind_down=0.02,
        )
        starting(config, ledger=ledger)
        await settle()
        ledger.complete()
        await settle()

    worker = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    worker.start()
    worker.join(10)
    assert not worker.is_alive()
    assert reached == (["run_end"] if where == "subscriber" else [])


# --- what the ledger says -------------------------------------------------------------------------


async def test_an_end_that_is_not_durable_is_told_to_nobody_and_raised() -> None:
    ledger = Ledger()
    ledger.broken["run_end"] = Failure("disk full")
    ear = Ear()
    handle, consumers = starting(Config(model=ScriptedModel(["hi"])), ear, ledger=ledger)
    end = await handle.wait()
    assert (end.reason, str(end.error)) == ("error", "disk full")
    assert ear.of(RunEnd) == []
    assert consumers.closed
    assert [event.type for event in [e async for e in consumers.subscribe()]].count("run_end") == 0

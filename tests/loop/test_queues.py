"""Items that come while a drive runs: steered, followed up, delivered."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import pytest

from perdure.agent import Agent
from perdure.errors import AlreadyRunning, ConfigError, InputRequired
from perdure.loop import (
    Event,
    Hidden,
    ItemEnd,
    Middleware,
    ModelRequest,
    Queued,
    RunEnd,
    ToolCallInfo,
    ToolDecision,
    ToolEnd,
    ToolStart,
    Trigger,
    TurnInfo,
    TurnStart,
    answer_with,
    drive_scope,
)
from perdure.session import Delivered, Session
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.tools import Call, ToolResult
from perdure.wire import developer
from tests.loop.fakes import (
    Ear,
    Failure,
    Tool,
    fails,
    listening,
    outputs,
    texts,
    until_told,
    waits,
)


def sent(model: ScriptedModel, which: int = -1) -> list[str]:
    return texts(model.requests[which].input)


async def hold(info: ToolCallInfo) -> ToolDecision:
    return ToolDecision(action="hold")


class Holds(Middleware):
    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision:
        return await hold(info)


# --- where steered items go -------------------------------------------------------------


async def test_a_steered_item_joins_after_the_batch_and_before_the_next_model_call() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a")]))
    ear.on("tool_dispatch", lambda event: session.steer("shorter"))
    await session.send("go")
    assert sent(model) == ["user: go", "call c1: a({})", "output c1: ok", "user: shorter"]
    [queued] = ear.of(Queued)
    assert queued.run_id == ear.end.run_id
    [end] = [event for event in ear.of(ItemEnd) if event.queue_id == queued.queue_id]
    assert texts([end.item]) == ["user: shorter"]
    ear.check()


async def test_a_followed_up_item_joins_when_the_drive_would_otherwise_end() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "one", "two"])
    session, ear = listening(Agent(model, tools=[Tool("a")]))
    ear.on("tool_dispatch", lambda event: session.follow_up("then this"))
    result = await session.send("go")
    assert [len(request.input) for request in model.requests] == [1, 3, 5]
    assert sent(model)[-2:] == ["assistant: one", "user: then this"]
    assert (result.text, result.turns) == ("two", 3)
    modes = [[one.mode for one in event.inputs] for event in ear.of(TurnStart)]
    assert modes == [["prompt"], ["tool"], ["follow_up"]]
    ear.check()


async def test_what_is_steered_comes_before_what_follows_up() -> None:
    model = ScriptedModel(["one", "two", "three"])
    session, ear = listening(Agent(model))

    def queue(event: Event) -> None:
        session.follow_up("later")
        session.steer("now")

    ear.on("turn_start", queue)
    await session.send("go")
    assert sent(model, 1)[-1] == "user: now"
    assert sent(model, 2)[-1] == "user: later"
    ear.check()


class Stops(Middleware):
    async def should_stop(self, info: TurnInfo) -> bool:
        return True


async def ends(call: Call) -> ToolResult:
    return ToolResult("ok", terminate=True)


def ends_after(work: Callable[[Call], Awaitable[str]]) -> Callable[[Call], Awaitable[ToolResult]]:
    async def both(call: Call) -> ToolResult:
        return ToolResult(await work(call), terminate=True)

    return both


@pytest.mark.parametrize("how", ["max_turns", "hook", "terminate", "hold"])
async def test_an_item_steered_in_the_turn_that_stops_waits_for_the_next_drive(how: str) -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    agent = Agent(
        model,
        tools=[Tool("a", ends if how == "terminate" else "ok")],
        max_turns=1 if how == "max_turns" else 5,
        middleware=[Stops()] if how == "hook" else [Holds()] if how == "hold" else [],
    )
    session, ear = listening(agent)
    ear.on("tool_start", lambda event: session.steer("wait"))
    await session.send("go")
    assert texts(session.state.steering) == ["user: wait"]  # type: ignore[arg-type]
    assert not any("wait" in said for said in texts(session.state.transcript))
    session.use(Agent(model, tools=[Tool("a")]))
    if how == "hold":
        await session.resume(answer_with("c1", "done by hand"))
        assert sent(model)[-2:] == ["output c1: done by hand", "user: wait"]
    else:
        await session.send("on")
        assert sent(model)[-2:] == ["user: on", "user: wait"]
    ear.check()


async def test_an_item_steered_while_the_end_is_told_waits_and_the_session_still_runs() -> None:
    model = ScriptedModel(["one", "two"])
    session, ear = listening(Agent(model))
    seen: list[bool] = []

    def steer(event: Event) -> None:
        seen.append(session.state.running)
        session.steer("late")

    ear.on("run_end", steer)
    await session.send("go")
    assert seen == [True]
    assert not session.state.running
    assert len(model.requests) == 1
    await session.send("on")
    assert sent(model)[-2:] == ["user: on", "user: late"]
    [queued] = ear.of(Queued)
    assert queued.run_id == ""
    ear.check()


async def test_an_item_steered_while_idle_joins_before_the_first_model_call_after_the_prompt() -> (
    None
):
    model = ScriptedModel(["one"])
    session, ear = listening(Agent(model))
    session.steer("first")
    await session.send("go")
    assert sent(model) == ["user: go", "user: first"]
    assert ear.names[:2] == ["queued", "run_start"]
    ear.check()


async def test_an_item_steered_while_calls_are_held_joins_after_the_approved_batch() -> None:
    from perdure.loop import approve

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a")], middleware=[Holds()]))
    await session.send("go")
    session.steer("and now")
    session.use(Agent(model, tools=[Tool("a")]))
    await session.resume(approve("c1"))
    assert sent(model)[-2:] == ["output c1: ok", "user: and now"]
    ear.check()


async def test_a_turn_limit_without_tools_and_an_empty_queue_is_done() -> None:
    session, ear = listening(Agent(ScriptedModel(["one"]), max_turns=1))
    result = await session.send("go")
    assert (result.status, ear.end.cause) == ("done", None)


async def test_a_turn_limit_with_something_queued_is_a_stop() -> None:
    model = ScriptedModel(["one", "two"])
    session, ear = listening(Agent(model, max_turns=1))
    ear.on("turn_start", lambda event: session.follow_up("more"))
    result = await session.send("go")
    assert (result.status, result.cause) == ("stopped", "max_turns")
    assert texts(session.state.follow_ups) == ["user: more"]  # type: ignore[arg-type]
    ear.check()


async def test_a_subscriber_may_steer_and_the_report_comes_before_the_item() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a")]))
    ear.on("response_end", lambda event: session.steer("quick"))
    await asyncio.wait_for(session.send("go"), 5)
    names = ear.names
    assert names[names.index("response_end") + 1] == "queued"
    report = names.index("queued")
    [joined] = [
        place
        for place, event in enumerate(event for event in ear.events if event.type != "item_update")
        if isinstance(event, ItemEnd) and event.queue_id
    ]
    assert report < joined
    ear.check()


async def test_a_subscriber_that_steers_on_what_it_steered_feeds_the_session_for_ever() -> None:
    model = ScriptedModel(lambda number: "so")
    session = Agent(model, max_turns=20).session()

    async def feeds(event: Event) -> None:
        if isinstance(event, ItemEnd) and getattr(event.item, "role", "") == "user":
            session.steer("more")

    session.subscribe(feeds)
    result = await session.send("go")
    assert (result.status, result.turns) == ("stopped", 20)


async def test_hidden_items_say_so_and_are_sent() -> None:
    model = ScriptedModel(["one"])
    session, ear = listening(Agent(model))
    session.steer(Hidden(developer("context")))
    assert session.state.steering == (Hidden(developer("context")),)
    await session.send("go")
    assert sent(model) == ["user: go", "developer: context"]
    [queued] = ear.of(Queued)
    assert queued.hidden
    [end] = [event for event in ear.of(ItemEnd) if event.queue_id]
    assert end.hidden
    ear.check()


@pytest.mark.parametrize(
    "extra", [{"kind": "x"}, {"ref": "x"}, {"source": "x"}, {"at": object()}], ids=str
)
def test_what_a_trigger_must_not_carry_is_refused_where_it_is_made(
    extra: dict[str, object],
) -> None:
    with pytest.raises(ConfigError):
        Trigger(kind="cron", extra=extra)


async def test_a_queued_item_carries_its_own_trigger_and_a_prompt_that_of_the_drive() -> None:
    session, ear = listening(Agent(ScriptedModel(["one"])))
    person, cron = Trigger(kind="person"), Trigger(kind="cron", ref="daily")
    session.queue("late", trigger=person)
    await session.send("go", trigger=cron)
    [start] = ear.of(TurnStart)
    assert [(one.mode, one.trigger) for one in start.inputs] == [
        ("prompt", cron),
        ("steer", person),
    ]
    ends = [event for event in ear.of(ItemEnd) if not event.response_id]
    assert [event.trigger for event in ends] == [cron, None]
    assert ear.of(Queued)[0].trigger == person


# --- nothing is lost ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["item_start", "item_end"])
async def test_items_taken_from_a_queue_are_in_one_place_when_telling_of_one_fails(
    kind: str,
) -> None:
    model = ScriptedModel(["one", "two", "three"])
    session, ear = listening(Agent(model))
    wanted = [f"user: {n}" for n in range(3)]

    def queue(event: Event) -> None:
        session.steer("0", "1", "2")

    ear.on("turn_start", queue)

    async def fail_on_one(event: Event) -> None:
        if event.type == kind and texts([getattr(event, "item", developer("-"))]) == ["user: 1"]:
            unsubscribe()
            raise Failure

    unsubscribe = session.subscribe(fail_on_one)
    with pytest.raises(Exception, match="failed"):
        await session.send("go")
    kept = [said for said in texts(session.state.transcript) if said in wanted]
    queued = texts(session.state.steering)  # type: ignore[arg-type]
    assert sorted([*kept, *queued]) == wanted
    await session.send("on")
    assert [said for said in sent(model) if said in wanted] == wanted


async def test_an_abort_as_the_turn_ends_leaves_a_steered_item_in_one_place() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done", "more"])
    session, ear = listening(Agent(model, tools=[Tool("a")]))
    ear.on("tool_dispatch", lambda event: session.steer("keep me"))
    ear.on("turn_end", lambda event: session.abort())
    await session.send("go")
    assert ear.end.reason == "aborted"
    waiting = texts(session.state.steering)  # type: ignore[arg-type]
    assert [*waiting, *texts(session.state.transcript)].count("user: keep me") == 1
    await session.send("on")
    assert sent(model).count("user: keep me") == 1
    ear.check()


async def test_an_abort_during_a_tool_with_something_steered_is_one_end_and_no_model_call() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "never"])
    session, ear = listening(Agent(model, tools=[Tool("a", until_told)]))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.steer("wait")
    session.abort("esc")
    result = await sending
    assert result.status == "aborted"
    assert ear.names.count("run_end") == 1
    assert len(model.requests) == 1
    ear.check()


async def test_every_report_of_a_queue_is_told_though_telling_of_one_fails() -> None:
    session, ear = listening(Agent(ScriptedModel(["one", "two"])))
    session.steer("0", "1", "2")
    ear.on("queued", fails())
    with pytest.raises(Exception, match="failed"):
        await session.send("go")
    await session.send("on")
    assert len(ear.of(Queued)) == 3


async def test_a_report_that_cannot_be_told_does_not_hold_back_the_event_after_it() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "never"])
    session, ear = listening(Agent(model, tools=[Tool("a")]))
    ear.on("tool_dispatch", lambda event: session.steer("late"))
    ear.on("queued", fails())
    with pytest.raises(Exception, match="failed"):
        await session.send("go")
    assert [event.call_id for event in ear.of(ToolEnd)] == ["c1"]
    assert outputs(session.state.transcript) == [("c1", "ok")]
    assert texts(session.state.steering) == ["user: late"]  # type: ignore[arg-type]
    ear.check()


# --- skipping -----------------------------------------------------------------------------------


async def test_a_steered_item_may_skip_the_rest_of_a_sequential_batch() -> None:
    calls = turn(*(call("a", {"n": n}, f"c{n}") for n in range(3)))
    model = ScriptedModel([calls, "done"])
    one = Tool("a")
    session, ear = listening(Agent(model, tools=[one], sequential=True))
    ear.on("tool_end", lambda event: session.steer("stop that", skip=True), call_id="c0")
    await session.send("go")
    assert one.entered == ["c0"]
    assert outputs(session.state.transcript) == [
        ("c0", "ok"),
        ("c1", "Error: skipped: the user spoke"),
        ("c2", "Error: skipped: the user spoke"),
    ]
    assert sent(model)[-1] == "user: stop that"
    assert [event.call_id for event in ear.of(ToolStart)] == ["c0", "c1", "c2"]
    assert [event.rejected for event in ear.of(ToolEnd)] == [False, True, True]
    ear.check()


async def test_a_plainly_steered_item_skips_nothing() -> None:
    calls = turn(*(call("a", {"n": n}, f"c{n}") for n in range(2)))
    one = Tool("a")
    session, ear = listening(Agent(ScriptedModel([calls, "done"]), tools=[one], sequential=True))
    ear.on("tool_end", lambda event: session.steer("by the way"), call_id="c0")
    await session.send("go")
    assert one.entered == ["c0", "c1"]


async def test_a_waiting_tool_can_hear_that_something_is_steered() -> None:
    async def listens(call: Call) -> str:
        steered = drive_scope().steered()
        await asyncio.wait({steered})
        return "heard"

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a", listens)]))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    assert not sending.done()
    session.steer("hello")
    await sending
    assert sent(model)[-2:] == ["output c1: heard", "user: hello"]
    ear.check()


# --- deliveries -----------------------------------------------------------------------------------


async def test_a_delivery_joins_the_drive_that_runs_once_a_request_has_carried_it() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a", waits(gate))]))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    delivering = asyncio.create_task(session.deliver("report"))
    await settle()
    assert not delivering.done()
    gate.set()
    await sending
    assert (await delivering).joined
    assert sent(model)[-1] == "user: report"
    modes = [[one.mode for one in event.inputs] for event in ear.of(TurnStart)]
    assert modes[-1] == ["tool", "deliver"]
    ear.check()


async def test_a_delivery_to_an_idle_session_starts_a_drive() -> None:
    model = ScriptedModel(["one"])
    session, ear = listening(Agent(model))
    delivered = await session.deliver("report", trigger=Trigger(kind="job"))
    assert not delivered.joined
    assert delivered.result is not None
    assert delivered.result.text == "one"
    ear.check()


async def test_a_delivery_after_the_last_look_into_the_queues_starts_a_drive() -> None:
    model = ScriptedModel(["one", "two"])
    session, ear = listening(Agent(model))
    deliveries: list[asyncio.Task[object]] = []

    def deliver(event: Event) -> None:
        deliveries.append(asyncio.get_running_loop().create_task(_deliver(session), context=OUT))

    OUT = contextvars.copy_context()  # noqa: N806
    ear.on("run_end", deliver)
    await session.send("go")
    await deliveries[0]
    assert sent(model)[-1] == "user: report"
    ear.check()


async def _deliver(session: Session) -> object:
    return await session.deliver("report")


async def test_background_work_delivers_its_result_and_waits_until_it_was_carried() -> None:
    gate = asyncio.Event()
    jobs: list[asyncio.Task[object]] = []
    model = ScriptedModel([call("a", {}, "c1"), "working", "thanks"])

    async def starts(call: Call) -> str:
        async def job() -> object:
            await gate.wait()
            return await session.deliver("the report")

        jobs.append(drive_scope().spawn(job()))
        return "started"

    session, ear = listening(Agent(model, tools=[Tool("a", starts)]))
    ear.on("run_end", lambda event: gate.set())
    await session.send("go")
    await jobs[0]
    assert sent(model)[-1] == "user: the report"
    ear.check()


async def test_background_work_that_delivers_into_a_drive_that_is_stopped_starts_another() -> None:
    jobs: list[asyncio.Task[Delivered]] = []
    model = ScriptedModel([call("a", {}, "c1"), "thanks"])

    async def starts(call: Call) -> str:
        jobs.append(drive_scope().spawn(session.deliver("the report")))
        jobs.append(drive_scope().spawn(session.deliver("another")))
        return "started"

    session, ear = listening(Agent(model, tools=[Tool("a", ends_after(starts))]))
    await session.send("go")
    assert [(await job).joined for job in jobs].count(True) <= 1
    assert {"user: the report", "user: another"} <= set(sent(model))
    ear.check()


async def test_two_deliveries_and_a_send_at_once_each_arrive_once() -> None:
    gate = asyncio.Event()
    model = ScriptedModel(lambda number: call("a", {}, "c1") if number == 0 else "so")
    agent = Agent(model, tools=[Tool("a", waits(gate))], max_turns=1)
    session, ear = listening(agent)
    first = asyncio.create_task(session.send("go"))
    await settle()
    both = [asyncio.create_task(session.deliver(f"d{n}")) for n in range(2)]
    second = asyncio.create_task(session.send("on"))
    await settle()
    gate.set()
    await first
    await second
    for one in both:
        await one
    said = texts(session.state.transcript)
    assert [said.count(f"user: d{n}") for n in range(2)] == [1, 1]
    ear.check()


async def test_a_delivery_from_inside_the_drive_does_not_wait() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    seen: list[object] = []

    async def delivers(call: Call) -> str:
        seen.append(await session.deliver("from inside"))
        return "ok"

    session, ear = listening(Agent(model, tools=[Tool("a", delivers)]))
    await session.send("go")
    assert seen
    assert sent(model)[-1] == "user: from inside"
    ear.check()


async def test_a_delivery_while_calls_wait_stays_queued() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a")], middleware=[Holds()]))
    await session.send("go")
    with pytest.raises(InputRequired):
        await session.deliver("report")
    await session.resume(answer_with("c1", "ok"))
    assert sent(model)[-1] == "user: report"
    ear.check()


async def test_a_delivery_whose_drive_stops_before_a_request_carries_it_says_so() -> None:
    class Blocks(Middleware):
        async def before_model_call(self, request: ModelRequest) -> None:
            raise Failure

    session, ear = listening(Agent(ScriptedModel(["one"]), middleware=[Blocks()]))
    with pytest.raises(Exception, match="failed"):
        await session.deliver("report")
    assert isinstance(ear.events[-1], RunEnd)
    ear.check()


# --- one at a time -------------------------------------------------------------------------------


async def test_a_second_send_waits_for_the_first() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([call("a", {}, "c1"), "one", "two"])
    session, ear = listening(Agent(model, tools=[Tool("a", waits(gate))]))
    first = asyncio.create_task(session.send("go"))
    await settle()
    second = asyncio.create_task(session.send("on"))
    await settle()
    assert ear.names.count("run_start") == 1
    gate.set()
    assert [(await first).text, (await second).text] == ["one", "two"]
    ear.check()


@pytest.mark.parametrize("where", ["tool", "subscriber"])
async def test_a_drive_cannot_send_to_its_own_session(where: str) -> None:
    refused: list[Exception] = []

    async def sends(_: object) -> str:
        try:
            await session.send("again")
        except AlreadyRunning as error:
            refused.append(error)
        return "ok"

    model = ScriptedModel([call("a", {}, "c1"), "one"])
    agent = Agent(model, tools=[Tool("a", sends if where == "tool" else "ok")])
    session, ear = listening(agent)
    if where == "subscriber":

        async def react(event: Event) -> None:
            await sends(event)

        ear.on("turn_start", react)
    await session.send("go")
    assert len(refused) == 1
    ear.check()


async def test_a_session_says_how_it_stands() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([call("a", {}, "c1"), "one"])
    session, ear = listening(Agent(model, tools=[Tool("a", waits(gate))]))
    assert (session.state.running, session.state.run_id, session.state.turn) == (False, "", 0)
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.steer("s")
    session.follow_up("f")
    state = session.state
    assert (state.running, state.turn) == (True, 1)
    assert state.run_id
    assert texts(state.steering) == ["user: s"]  # type: ignore[arg-type]
    assert texts(state.follow_ups) == ["user: f"]  # type: ignore[arg-type]
    changes: list[Callable[[], None]] = [
        lambda: session.use(session.agent),
        lambda: session.set_transcript([]),
        lambda: session.set_pending([]),
        lambda: session.reserve_call_ids([]),
    ]
    for change in changes:
        with pytest.raises(AlreadyRunning):
            change()
    session.abort()
    gate.set()
    await sending
    ear.check()


async def test_subscribers_come_and_go_during_a_drive() -> None:
    class Hears(Middleware):
        async def on_event(self, event: Event) -> None:
            pass

    model = ScriptedModel([call("a", {}, "c1"), "one"])
    session, first = listening(Agent(model, tools=[Tool("a")], middleware=[Hears()]))
    second = Ear()

    def change(event: Event) -> None:
        session.subscribe(second)

    first.on("tool_start", change)
    await session.send("go")
    assert second.events[0].type == "tool_dispatch"
    assert second.events == first.events[first.events.index(second.events[0]) :]

"""Guards and the other hooks around a turn: when each is asked, and what its refusal does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

import perdure
from perdure import tool, wire
from perdure.agent import Agent
from perdure.errors import Guard, RunFailed
from perdure.loop import (
    NOT_RUN_WITHHELD,
    Broadcast,
    Config,
    Event,
    ItemEnd,
    ItemUpdate,
    MessageInfo,
    Middleware,
    ModelBlocked,
    ModelRequest,
    NextModel,
    NextTool,
    ResponseEnd,
    Retry,
    RunEnd,
    RunInfo,
    ToolCallInfo,
    ToolDispatch,
    ToolResultInfo,
    TurnInfo,
    TurnStart,
    TurnStartInfo,
    after_tool_call,
    alongside_model_call,
    before_model_call,
    before_run,
    before_turn,
    on_message,
    should_stop,
)
from perdure.testing import FakeClock, ScriptedModel, attempts, call, error, turn
from perdure.testing.clock import settle
from perdure.testing.scripted import reasoning
from perdure.tools import ToolResult
from perdure.wire import Item, Message, StreamEvent, assistant, user
from tests.loop.fakes import (
    Failure,
    Stream,
    Tool,
    completed,
    created,
    done,
    listening,
    outputs,
    pending,
    ran,
    says,
    texts,
    until_told,
)

SECRET = "the guard's own words"


def nowhere(told: Sequence[Event]) -> None:
    """The guard's words reach no item and no output."""
    end = told[-1]
    assert isinstance(end, RunEnd)
    assert not any(SECRET in said for said in texts(end.items))
    assert not any(SECRET in said for said in texts(end.partial))


# --- before the model is called ------------------------------------------------------------


async def test_a_guard_before_the_turn_stops_it_without_a_turn_start() -> None:
    @before_turn
    async def guard(info: TurnStartInfo) -> list[Item]:
        raise Guard(SECRET)

    model = ScriptedModel(["never"])
    told = await ran(Config(model=model, middleware=[guard]), "go")
    assert (told.end.reason, told.end.cause) == ("stopped", "guard")
    assert isinstance(told.end.error, Guard)
    assert told.of(TurnStart) == []
    assert model.requests == []
    assert told.end.turns == 0
    nowhere(told.events)


async def test_a_guard_before_the_call_stops_it_with_the_request_it_refused() -> None:
    @before_model_call
    async def guard(request: ModelRequest) -> None:
        raise Guard(SECRET)

    model = ScriptedModel(["never"])
    told = await ran(Config(model=model, middleware=[guard]), "go")
    assert (told.end.reason, told.end.cause) == ("stopped", "guard")
    assert told.names[-2:] == ["model_blocked", "run_end"]
    assert texts(told.of(ModelBlocked)[0].request.input) == ["user: go"]
    assert model.requests == []
    nowhere(told.events)


async def test_a_failing_hook_before_the_call_is_an_error_and_no_stop() -> None:
    @before_model_call
    async def fails(request: ModelRequest) -> None:
        raise Failure

    told = await ran(Config(model=ScriptedModel(["never"]), middleware=[fails]), "go")
    assert (told.end.reason, told.names[-2]) == ("error", "model_blocked")


async def test_a_guard_before_the_drive_refuses_it() -> None:
    @before_run
    async def guard(info: RunInfo) -> None:
        raise Guard(SECRET)

    model = ScriptedModel(["never"])
    told = await ran(Config(model=model, middleware=[guard]), "go")
    assert told.names == ["run_end"]
    assert (told.end.reason, told.end.cause, told.end.run_id) == ("stopped", "guard", "")
    assert (told.end.items, model.requests) == ((), [])


async def test_a_guard_after_a_turn_stops_with_its_error() -> None:
    @should_stop
    async def guard(info: TurnInfo) -> bool:
        raise Guard(SECRET)

    told = await ran(
        Config(model=ScriptedModel([call("a", {}, "c1")]), tools=[Tool("a")], middleware=[guard]),
        "go",
    )
    assert (told.end.reason, told.end.cause) == ("stopped", "guard")
    assert told.end.pending == ()
    nowhere(told.events)


async def test_hooks_give_items_as_facts_and_requests_to_send_instead() -> None:
    @before_turn
    async def clock(info: TurnStartInfo) -> list[Item]:
        return [wire.developer(f"turn {info.turn}")]

    @before_model_call
    async def cooler(request: ModelRequest) -> ModelRequest:
        settings = wire.Request(model="other", temperature=0)
        return ModelRequest(settings=settings, input=request.input)

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    told = await ran(Config(model=model, tools=[Tool("a")], middleware=[clock, cooler]), "go")
    assert [request.settings.model for request in model.requests] == ["other", "other"]
    assert told.of(TurnStart)[0].request is model.requests[0]
    assert texts(told.end.items) == [
        "user: go",
        "developer: turn 1",
        "call c1: a({})",
        "output c1: ok",
        "developer: turn 2",
        "assistant: done",
    ]
    modes = [[one.mode for one in event.inputs] for event in told.of(TurnStart)]
    assert modes == [["prompt", "hook"], ["tool", "hook"]]


async def test_what_a_transform_leaves_out_stays_in_the_transcript() -> None:
    class Shortens(Middleware):
        async def transform(self, items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
            return items[-1:]

    model = ScriptedModel(["one", "two"])
    session, ear = listening(Agent(model, middleware=[Shortens()]))
    await session.send("first")
    await session.send("second")
    assert texts(model.requests[-1].input) == ["user: second"]
    assert len(session.state.transcript) == 4
    ear.check()


async def test_a_hook_that_stops_ends_the_drive_after_its_turn() -> None:
    finals: list[bool] = []

    @should_stop
    async def stop(info: TurnInfo) -> bool:
        finals.append(info.final)
        return True

    model = ScriptedModel([call("a", {}, "c1"), "never"])
    told = await ran(Config(model=model, tools=[Tool("a")], middleware=[stop]), "go")
    assert (told.end.reason, told.end.cause, finals) == ("stopped", "hook", [False])
    assert outputs(told.end.items) == [("c1", "ok")]
    answered = await ran(Config(model=ScriptedModel(["hi"]), middleware=[stop]), "go")
    assert (answered.end.cause, finals) == ("hook", [False, True])


# --- the output guard ------------------------------------------------------------------------


def guarding(words: str) -> Middleware:
    @on_message
    async def guard(message: Message, info: MessageInfo) -> None:
        if words in message.text:
            raise Guard(SECRET)

    return guard


async def test_a_withheld_answer_reaches_neither_the_transcript_nor_the_caller() -> None:
    session, ear = listening(Agent(ScriptedModel(["a secret"]), middleware=[guarding("secret")]))
    result = await session.send("go")
    assert (result.status, result.cause, result.text) == ("stopped", "guard", "")
    assert texts(session.state.transcript) == ["user: go"]
    [response] = ear.of(ResponseEnd)
    assert response.withheld
    assert response.response.status == "incomplete"
    assert response.response.incomplete_details is not None
    assert response.response.output == ()
    assert response.response.usage
    assert ear.end.withheld
    assert "turn_end" not in ear.names
    assert any(isinstance(event, ItemUpdate) for event in ear.events)  # deltas were shown
    ear.check()
    nowhere(ear.events)


async def test_calls_before_a_withheld_message_are_answered_and_the_next_input_goes_ahead() -> None:
    tool = Tool("a")
    model = ScriptedModel([turn(call("a", {}, "c1"), "a secret", call("a", {}, "c2")), "fine"])
    session, ear = listening(Agent(model, tools=[tool], middleware=[guarding("secret")]))
    result = await session.send("go")
    assert result.status == "stopped"
    assert outputs(result.items) == [("c1", NOT_RUN_WITHHELD)]
    assert (tool.entered, ear.end.pending) == ([], ())
    assert (await session.send("on")).text == "fine"
    ear.check()


async def test_what_was_said_before_a_withheld_message_is_no_answer() -> None:
    stream = [
        created(),
        *says("preamble", 0, item_id="msg_1"),
        *says("a secret", 1, item_id="msg_2"),
        completed(assistant("preamble", id="msg_1"), assistant("a secret", id="msg_2")),
    ]
    session, ear = listening(Agent(Stream(stream), middleware=[guarding("secret")]))
    result = await session.send("go")
    assert result.text == ""
    assert texts(result.items) == ["user: go", "assistant: preamble"]
    ear.check()


async def test_what_was_said_before_a_call_is_no_answer_when_a_guard_stops_the_next_turn() -> None:
    @before_turn
    async def guard(info: TurnStartInfo) -> list[Item]:
        if info.turn == 2:
            raise Guard(SECRET)
        return []

    model = ScriptedModel([turn("I will look.", call("a", {}, "c1")), "never"])
    session, ear = listening(Agent(model, tools=[Tool("a")], middleware=[guard]))
    result = await session.send("go")
    assert (result.status, result.cause, result.text) == ("stopped", "guard", "")
    ear.check()


async def test_an_extension_item_after_the_answer_does_not_hide_it() -> None:
    note = wire.decode_item(b'{"type":"acme:trace","id":"n1"}')
    from perdure.testing.scripted import item

    result = await Agent(ScriptedModel([turn("42", item(note))])).run("go")
    assert result.text == "42"


async def test_a_replaced_message_is_what_the_transcript_and_the_reader_get() -> None:
    @on_message
    async def redact(message: Message, info: MessageInfo) -> Message:
        return assistant(message.text.replace("secret", "***"), id="msg_x")

    told = await ran(Config(model=ScriptedModel(["a secret"]), middleware=[redact]), "go")
    assert texts(told.end.items) == ["user: go", "assistant: a ***"]
    assert [texts([event.item])[0] for event in told.of(ItemEnd)][-1] == "assistant: a ***"
    assert told.of(ResponseEnd)[0].response.output_text == "a secret"  # the model's own


async def test_a_guard_sees_each_message_with_what_stands_before_it() -> None:
    seen: list[tuple[str, int]] = []

    @on_message
    async def look(message: Message, info: MessageInfo) -> None:
        seen.append((message.text, len(info.output)))

    model = ScriptedModel([turn(reasoning("hm"), "one", call("a", {}, "c1"), "two"), "done"])
    await ran(Config(model=model, tools=[Tool("a")], middleware=[look]), "go")
    assert seen == [("one", 1), ("two", 3), ("done", 0)]


# --- a guard beside the model ------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [False, True], ids=["before", "beside"])
async def test_no_tool_starts_before_a_guard_has_settled(parallel: bool) -> None:
    gate = asyncio.Event()

    async def slow(request: ModelRequest) -> None:
        await gate.wait()
        raise Guard(SECRET)

    guard = alongside_model_call(slow) if parallel else before_model_call(slow)
    tool = Tool("a")
    model = ScriptedModel([turn("so", call("a", {}, "c1")), "never"])
    session, ear = listening(Agent(model, tools=[tool], middleware=[guard]))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    assert len(model.requests) == (1 if parallel else 0)
    assert not sending.done()
    gate.set()
    result = await sending
    assert (result.status, result.cause) == ("stopped", "guard")
    assert (tool.entered, ear.of(ToolDispatch)) == ([], [])
    assert texts(session.state.transcript) == ["user: go"]
    assert ear.end.pending == ()
    ear.check()
    nowhere(ear.events)


async def test_a_guard_beside_the_model_that_agrees_lets_everything_through() -> None:
    gate = asyncio.Event()

    @alongside_model_call
    async def slow(request: ModelRequest) -> None:
        await gate.wait()

    tool = Tool("a")
    model = ScriptedModel([turn(reasoning("hm"), "so", call("a", {}, "c1")), "done"])
    session, ear = listening(Agent(model, tools=[tool], middleware=[slow]))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    assert tool.entered == []
    gate.set()
    result = await sending
    assert (result.text, tool.entered) == ("done", ["c1"])
    assert texts(result.items)[1:4] == ["reasoning", "assistant: so", "call c1: a({})"]
    ear.check()


async def test_a_guard_beside_the_model_that_fails_is_an_error() -> None:
    @alongside_model_call
    async def fails(request: ModelRequest) -> None:
        raise Failure

    told = await ran(Config(model=ScriptedModel(["hi"]), middleware=[fails]), "go")
    assert told.end.reason == "error"
    assert isinstance(told.end.error, Failure)
    assert texts(told.end.items) == ["user: go"]


async def test_a_guard_beside_an_attempt_that_fails_is_asked_again_for_the_next() -> None:
    asked: list[int] = []

    @alongside_model_call
    async def counts(request: ModelRequest) -> None:
        asked.append(1)
        await asyncio.sleep(0)

    from perdure.errors import rejection

    model = ScriptedModel([attempts(error(rejection("busy", status=503)), "ok")])
    retry = Retry(max_attempts=2, backoff=lambda attempt, error: 0)
    told = await ran(Config(model=model, retry=retry, middleware=[counts]), "go")
    assert told.end.reason == "done"
    assert len(asked) == len(model.requests) == 2


async def test_an_abort_ends_a_guard_beside_the_model() -> None:
    ended: list[str] = []

    @alongside_model_call
    async def waits(request: ModelRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    session, ear = listening(Agent(ScriptedModel(["hi"]), middleware=[waits], clock=FakeClock()))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort("esc")
    result = await sending
    assert (result.status, ended) == ("aborted", ["ended"])
    ear.check()


# --- the same hooks everywhere ------------------------------------------------------------------


class Traces(Middleware):
    """Writes down which hook is called."""

    def __init__(self) -> None:
        self.trace: list[str] = []

    async def before_run(self, info: RunInfo) -> None:
        self.trace.append("before_run")

    async def before_turn(self, info: TurnStartInfo) -> Sequence[Item]:
        self.trace.append(f"before_turn {info.turn}")
        return ()

    async def transform(self, items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
        self.trace.append("transform")
        return items

    async def before_model_call(self, request: ModelRequest) -> None:
        self.trace.append("before_model_call")

    def wrap_model_call(
        self,
        request: ModelRequest,
        next: NextModel,  # noqa: A002
    ) -> AsyncIterator[StreamEvent]:
        self.trace.append("wrap_model_call")
        return next(request)

    async def on_message(self, message: Message, info: MessageInfo) -> None:
        self.trace.append("on_message")

    async def before_tool_call(self, info: ToolCallInfo) -> None:
        self.trace.append("before_tool_call")

    async def wrap_tool_call(
        self,
        info: ToolCallInfo,
        next: NextTool,  # noqa: A002
    ) -> ToolResult:
        self.trace.append("wrap_tool_call")
        return await next()

    async def after_tool_call(self, info: ToolResultInfo) -> None:
        self.trace.append("after_tool_call")

    async def should_stop(self, info: TurnInfo) -> bool:
        self.trace.append("should_stop")
        return False

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, ItemUpdate):
            self.trace.append(event.type)

    async def on_end(self, end: RunEnd) -> None:
        self.trace.append("on_end")


async def by_run(agent: Agent) -> None:
    await agent.run("go")


async def by_stream(agent: Agent) -> None:
    async with agent.stream("go") as stream:
        async for _ in stream.text():
            pass
        await stream.result()


async def by_send(agent: Agent) -> None:
    await agent.session().send("go")


async def by_session_stream(agent: Agent) -> None:
    async with agent.session().stream("go") as stream:
        await stream.result()


async def by_begin(agent: Agent) -> None:
    from perdure.loop import Opening, Transcript

    consumers = Broadcast()
    handle = await agent.begin(Transcript(), Opening(prompts=(user("go"),)), consumers=consumers)
    await handle.wait()


async def test_the_hooks_are_the_same_however_an_agent_is_run() -> None:
    traces: list[list[str]] = []
    for way in (by_run, by_stream, by_send, by_session_stream, by_begin):
        hook = Traces()
        model = ScriptedModel([turn("so", call("a", {}, "c1")), "done"])
        await way(Agent(model, tools=[Tool("a")], middleware=[hook]))
        traces.append(hook.trace)
    assert all(trace == traces[0] for trace in traces)
    first = [name for name in traces[0] if name in set(dir(Middleware)) | {"before_turn 1"}]
    assert first[:6] == [
        "before_run",
        "before_turn 1",
        "transform",
        "before_model_call",
        "wrap_model_call",
        "on_message",
    ]
    assert traces[0][-2:] == ["run_end", "on_end"]


async def test_a_hook_that_fails_says_so_in_the_failure() -> None:
    @after_tool_call
    async def fails(info: ToolResultInfo) -> None:
        raise Failure("hook")

    agent = Agent(ScriptedModel([call("a", {}, "c1")]), tools=[Tool("a")], middleware=[fails])
    with pytest.raises(RunFailed) as failed:
        await agent.run("go")
    assert isinstance(failed.value.cause, Failure)
    assert outputs(failed.value.result.items) == [("c1", "ok")]
    assert failed.value.result.pending == ()


async def test_tools_that_run_beside_a_guard_s_stop_are_not_told_its_words() -> None:
    @after_tool_call
    async def guard(info: ToolResultInfo) -> None:
        if info.call.call_id == "c1":
            raise Guard(SECRET)

    model = ScriptedModel([turn(call("a", {}, "c1"), call("b", {}, "c2"))])
    tools = [Tool("a"), Tool("b", until_told)]
    config = Config(model=model, tools=tools, middleware=[guard], clock=FakeClock())
    told = await ran(config, "go")
    assert (told.end.reason, told.end.cause) == ("stopped", "guard")
    assert dict(outputs(told.end.items))["c2"].startswith("stopped: ")
    nowhere(told.events)


async def test_a_guard_that_stops_a_model_in_mid_stream_leaves_no_open_call() -> None:
    class Stops(Middleware):
        async def wrap_model_call(
            self,
            request: ModelRequest,
            next: NextModel,  # noqa: A002
        ) -> AsyncIterator[StreamEvent]:
            async for event in next(request):
                if event.type == "response.completed":
                    raise Guard(SECRET)
                yield event

    stream = [created(), done(0, wire.function_call("c1", "a")), completed()]
    tool = Tool("a")
    told = await ran(Config(model=Stream(stream), tools=[tool], middleware=[Stops()]), "go")
    assert (told.end.reason, told.end.cause) == ("stopped", "guard")
    assert (pending(told.end), tool.entered) == ({}, [])
    nowhere(told.events)


@pytest.mark.parametrize("enters", [True, False], ids=["after the tool", "before the tool"])
async def test_a_guard_around_a_tool_stops_the_drive_and_its_words_reach_nobody(
    enters: bool,
) -> None:
    ran: list[str] = []

    @tool(effect="none")
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    @perdure.wrap_tool_call
    async def stop(info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        if enters:
            await next()
        raise Guard("the secret limit")

    model = ScriptedModel([call("pay"), "never asked"])
    agent = Agent(model, tools=[pay], middleware=[stop])
    result = await agent.run("go")
    assert (result.status, result.cause) == ("stopped", "guard")
    assert ran == (["pay"] if enters else [])
    assert result.pending == ()
    assert "secret" not in repr(result)
    assert len(model.requests) == 1

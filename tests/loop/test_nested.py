"""Nested calls: a tool runs another tool of its turn."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from perdure.agent import Agent
from perdure.errors import CallEnded, ConfigError, Guard, RunFailed, ToolError
from perdure.loop import (
    Event,
    Middleware,
    ToolCallInfo,
    ToolDecision,
    ToolDispatch,
    ToolEnd,
    ToolResultInfo,
    ToolStart,
    invoke,
)
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.testing.event_check import check_events
from perdure.tools import Call, Question, Reply, current_call
from perdure.wire import FunctionCall, FunctionCallOutput
from tests.loop.fakes import (
    Ear,
    Failure,
    Tool,
    fails,
    life,
    listening,
    never,
    outputs,
    pending,
    texts,
    waits,
)


async def asks_inner(call: Call) -> str:
    """A tool's work: run the inner tool and say what it said."""
    try:
        result = await invoke("inner", {"n": 1})
    except ToolError as error:
        return f"refused: {error}"
    return f"inner said {result.output}"


def outer(inner: Tool, **members: object) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel([call("outer", {}, "c1"), "done"])
    tools = [Tool("outer", asks_inner), inner]
    return Agent(model, tools=tools, **members), model  # type: ignore[arg-type]


async def test_a_guard_around_a_nested_call_stops_the_drive_and_says_nothing_to_the_tool() -> None:
    class Guards(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> None:
            if info.parent:
                raise Guard("the guard's own words")

    agent, model = outer(Tool("inner"), middleware=[Guards()])
    session, ear = listening(agent)
    result = await session.send("go")
    assert (result.status, result.cause) == ("stopped", "guard")
    assert not any("own words" in said for said in texts(session.state.transcript))
    assert len(model.requests) == 1
    ear.check()


def nested(ear: Ear) -> str:
    """The id of the only nested call."""
    [start] = [event for event in ear.of(ToolStart) if event.parent]
    return start.call_id


async def test_a_nested_call_is_told_like_any_and_leaves_no_item() -> None:
    inner = Tool("inner")
    agent, _ = outer(inner)
    session, ear = listening(agent)
    result = await session.send("go")
    assert outputs(result.items) == [("c1", "inner said ok")]
    assert life(ear.events, nested(ear)) == ["tool_start", "tool_dispatch", "tool_end"]
    assert {event.parent for event in ear.of(ToolEnd)} == {"c1", ""}
    assert len([item for item in result.items if isinstance(item, FunctionCall)]) == 1
    assert inner.calls[0].idempotency_key not in {"", ear.of(ToolDispatch)[0].idempotency_key}
    ear.check()


async def test_hooks_decide_and_judge_nested_calls_one_at_a_time() -> None:
    inside = most = 0
    seen: list[tuple[str, str]] = []

    async def enters(kind: str, parent: str) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        seen.append((kind, parent))
        for _ in range(3):
            await asyncio.sleep(0)
        inside -= 1

    class Watches(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> None:
            await enters("before", info.parent)

        async def after_tool_call(self, info: ToolResultInfo) -> None:
            await enters("after", info.call.name)

    model = ScriptedModel([turn(*(call("outer", {"n": n}, f"c{n}") for n in range(4))), "done"])
    tools = [Tool("outer", asks_inner), Tool("inner")]
    session, ear = listening(Agent(model, tools=tools, middleware=[Watches()]))
    await session.send("go")
    assert most == 1
    assert sum(kind == "before" and bool(parent) for kind, parent in seen) == 4
    assert sum(kind == "after" and name == "inner" for kind, name in seen) == 4
    ear.check()


async def test_events_of_nested_calls_come_one_at_a_time() -> None:
    model = ScriptedModel([turn(*(call("outer", {"n": n}, f"c{n}") for n in range(8))), "done"])
    tools = [Tool("outer", asks_inner), Tool("inner")]
    session, ear = listening(Agent(model, tools=tools))
    await session.send("go")
    assert not ear.twice
    assert sum(bool(event.parent) for event in ear.of(ToolEnd)) == 8
    ear.check()


class HoldsInner(Middleware):
    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        hold = info.call.name == "inner"
        return ToolDecision(action="hold", reason="ask ann") if hold else None


class Person:
    """Answers every question the same."""

    def __init__(self, reply: Reply | Exception) -> None:
        self.reply = reply
        self.questions: list[Question] = []
        self.inside: list[str] = []

    async def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        self.inside.append(current_call().id)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(action="accept"), "inner said ok"),
        (Reply(action="decline"), "refused: declined when asked: ask ann"),
        (Reply(action="cancel"), "refused: ask ann: the question was cancelled"),
        (Failure("offline"), "refused: ask ann: asking failed: offline"),
        (None, "refused: ask ann: nobody could be asked"),
    ],
    ids=["accept", "decline", "cancel", "failure", "nobody"],
)
async def test_a_nested_call_that_is_held_is_put_to_the_user_and_is_never_pending(
    reply: Reply | Exception | None, said: str
) -> None:
    inner = Tool("inner")
    person = Person(reply) if reply is not None else None
    agent, _ = outer(inner, middleware=[HoldsInner()], elicitor=person)
    session, ear = listening(agent)
    result = await session.send("go")
    assert outputs(result.items) == [("c1", said)]
    assert (result.status, result.pending) == ("done", ())
    accepted = isinstance(reply, Reply) and reply.action == "accept"
    assert bool(inner.entered) == accepted
    [end] = [event for event in ear.of(ToolEnd) if event.parent]
    assert (end.rejected, end.held) == (not accepted, False)
    if person is not None:
        [question] = person.questions
        assert question.asked is not None
        assert (question.asked.name, question.asked.arguments) == ("inner", '{"n":1}')
        assert (question.asked.parent, question.asked.reason) == ("c1", "ask ann")
        assert person.inside == ["c1"]
    if accepted:
        [start] = [event for event in ear.of(ToolStart) if event.parent]
        assert start.decision is not None
        assert start.decision.by == "human"
    ear.check()


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("gone", "{}", 'unknown tool "gone"'),
        ("inner", "[1]", "invalid arguments"),
        ("breaks", "{}", "it broke"),
    ],
)
async def test_what_fails_in_a_nested_call_is_the_invoking_tool_s_to_handle(
    name: str, arguments: str, said: str
) -> None:
    async def work(call: Call) -> str:
        with pytest.raises(ToolError, match=said):
            await invoke(name, arguments)
        return "handled"

    tools = [Tool("outer", work), Tool("inner"), Tool("breaks", ToolError("it broke"))]
    session, ear = listening(Agent(ScriptedModel([call("outer", {}, "c1"), "done"]), tools=tools))
    result = await session.send("go")
    assert outputs(result.items) == [("c1", "handled")]
    ear.check()


async def test_an_abort_cuts_a_nested_call_and_its_parent() -> None:
    clock = FakeClock()
    inner = Tool("inner", never)
    agent, _ = outer(inner, clock=clock, grace=1)
    session, ear = listening(agent)
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort()
    await clock.advance(5)
    result = await sending
    assert result.status == "aborted"
    assert set(pending(ear.end)) <= {"c1"}
    ear.check()


async def test_a_nested_call_that_its_parent_does_not_wait_for_ends_with_it() -> None:
    stray: list[asyncio.Task[object]] = []

    async def leaves(call: Call) -> str:
        stray.append(asyncio.get_running_loop().create_task(_invoke("inner")))
        await settle()
        return "done early"

    clock = FakeClock()
    inner = Tool("inner", never)
    tools = [Tool("outer", leaves), inner]
    agent = Agent(
        ScriptedModel([call("outer", {}, "c1"), "done"]), tools=tools, clock=clock, grace=1
    )
    session, ear = listening(agent)
    sending = asyncio.create_task(session.send("go"))
    await clock.advance(5)
    assert (await asyncio.wait_for(sending, 5)).status == "done"
    ear.check()
    assert ear.events[-1] is ear.end
    with contextlib.suppress(CallEnded, ToolError, asyncio.CancelledError):
        await stray[0]


async def _invoke(name: str) -> object:
    return await invoke(name)


async def test_a_stray_task_that_invokes_after_its_call_is_refused() -> None:
    gate = asyncio.Event()
    stray: list[asyncio.Task[object]] = []

    async def later() -> object:
        await gate.wait()
        return await invoke("inner")

    async def leaves(call: Call) -> str:
        stray.append(asyncio.get_running_loop().create_task(later()))
        return "done early"

    model = ScriptedModel([call("outer", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("outer", leaves), Tool("inner")]))
    await session.send("go")
    gate.set()
    with pytest.raises(CallEnded):
        await stray[0]
    ear.check()


async def test_nothing_can_be_invoked_outside_a_tool() -> None:
    with pytest.raises(ConfigError):
        await invoke("inner")


@pytest.mark.parametrize("kind", ["tool_start", "tool_dispatch", "tool_end"])
async def test_a_subscriber_that_fails_on_a_nested_call_ends_the_drive(kind: str) -> None:
    async def swallows(call: Call) -> str:
        with contextlib.suppress(Exception):
            await invoke("inner", {})
        return "all is well"

    inner = Tool("inner")
    model = ScriptedModel([call("outer", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("outer", swallows), inner]))
    ear.on(kind, fails(), name="inner")
    with pytest.raises(RunFailed) as failed:
        await session.send("go")
    assert isinstance(failed.value.cause, Failure)
    assert len(model.requests) == 1
    if kind != "tool_end":
        assert inner.entered == []
    check_events(ear.events)


async def test_a_parent_that_times_out_takes_its_nested_call_with_it() -> None:
    clock = FakeClock()
    inner = Tool("inner", never)
    tools = [Tool("outer", asks_inner, timeout=3), inner]
    model = ScriptedModel([call("outer", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=tools, clock=clock, grace=1))
    sending = asyncio.create_task(session.send("go"))
    await clock.advance(20)
    result = await sending
    assert result.status == "done"
    assert outputs(result.items)[0][1].startswith("Error: tool 'outer' timed out")
    ear.check()


async def test_a_nested_call_waits_for_no_slot_that_its_parent_holds() -> None:
    agent, _ = outer(Tool("inner"), max_parallel=1)
    session, ear = listening(agent)
    result = await asyncio.wait_for(session.send("go"), 5)
    assert outputs(result.items) == [("c1", "inner said ok")]
    ear.check()


async def test_nested_calls_do_not_reach_the_transcript_even_when_the_drive_fails() -> None:
    gate = asyncio.Event()
    inner = Tool("inner", waits(gate))
    agent, _ = outer(inner)
    session = agent.session()

    async def fail(event: Event) -> None:
        if isinstance(event, ToolEnd) and event.parent:
            raise Failure

    session.subscribe(fail)
    sending = asyncio.create_task(session.send("go"))
    await settle()
    gate.set()
    with pytest.raises(RunFailed):
        await sending
    transcript = session.state.transcript
    assert {item.call_id for item in transcript if isinstance(item, FunctionCallOutput)} <= {"c1"}
    assert [one.call.call_id for one in session.state.pending] in ([], ["c1"])

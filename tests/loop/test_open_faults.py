"""What is still wrong. Each test is the smallest way to see it, and states what should be.

A test that passes belongs into the file of its subject.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from perdure import wire
from perdure.agent import Agent
from perdure.loop import (
    Event,
    Items,
    Middleware,
    ModelRequest,
    ToolCallInfo,
    ToolDecision,
    alongside_model_call,
)
from perdure.models.openresponses import request_body
from perdure.session import Session
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.testing.clock import settle
from perdure.wire import FunctionCall, Item, Reasoning, StreamEvent, user
from tests.loop.fakes import Tool, answer, listening


class Stubborn:
    """Something that neither ends by itself nor heeds a cancellation, until the test is over."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def wait(self) -> None:
        while not self.over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.over.wait()


async def ends_after_an_abort(session: Session, clock: FakeClock, over: asyncio.Event) -> bool:
    """Whether a drive that is aborted has ended when its time to wind down is long over."""
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort("esc")
    for _ in range(5):
        await clock.advance(20)
        await settle()
    ended = not session.state.running
    over.set()
    with contextlib.suppress(Exception):
        await sending
    return ended


async def test_a_hook_that_waits_for_ever_does_not_keep_an_aborted_drive_from_ending() -> None:
    """A policy that waits for a person: Esc must free the session (Middleware: "An abort does not
    cut a hook short"; DESIGN 8 bounds subscribers and says nothing of hooks)."""
    over = asyncio.Event()

    class Asks(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
            await over.wait()
            return None

    clock = FakeClock()
    model = ScriptedModel([call("a", {}, "c1")])
    agent = Agent(model, tools=[Tool("a")], middleware=[Asks()], clock=clock, wind_down=5)
    session, _ = listening(agent)
    assert await ends_after_an_abort(session, clock, over)


async def test_a_subscriber_that_heeds_no_cancellation_does_not_keep_a_drive_from_ending() -> None:
    """It is bounded when it is told of an event after the abort, not when it already hangs then:
    `Barrier._tell_patiently` awaits it on the drive's own task."""
    stubborn = Stubborn()
    clock = FakeClock()
    session, ear = listening(Agent(ScriptedModel(["hi"]), clock=clock, wind_down=5))

    async def hang(event: Event) -> None:
        await stubborn.wait()

    ear.on("turn_start", hang)
    assert await ends_after_an_abort(session, clock, stubborn.over)


async def test_a_guard_beside_the_model_that_heeds_no_cancellation_does_not_keep_it_either() -> (
    None
):
    """`modelcall._end_guards` waits for its guards without a bound."""
    stubborn = Stubborn()

    @alongside_model_call
    async def guard(request: ModelRequest) -> None:
        await stubborn.wait()

    clock = FakeClock()
    agent = Agent(ScriptedModel(["hi"]), middleware=[guard], clock=clock, wind_down=5)
    session, _ = listening(agent)
    assert await ends_after_an_abort(session, clock, stubborn.over)


async def test_a_model_whose_stream_does_not_close_does_not_keep_it_either() -> None:
    """`modelcall._read` closes the stream without a bound."""
    over = asyncio.Event()

    class Hangs:
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            try:
                yield answer()[0]
                await over.wait()
            finally:
                await over.wait()

    clock = FakeClock()
    session, _ = listening(Agent(Hangs(), clock=clock, wind_down=5))
    assert await ends_after_an_abort(session, clock, over)


def sent_items(*items: Item) -> list[dict[str, object]]:
    """The items of the body of a request."""
    request = ModelRequest(settings=wire.Request(model="m"), input=Items.of(items))
    body = request_body(request).value()
    assert isinstance(body, dict)
    return list(body["input"])


THOUGHT = Reasoning(id="rs_1", summary=(), encrypted_content="sig")
ASKED = FunctionCall(id="fc_1", call_id="c1", name="a", arguments="{}")


def test_a_thought_without_what_it_led_to_is_left_out_of_the_body() -> None:
    """OpenAI refuses a reasoning item without the item that must follow it: the mapping leaves it
    out of the outgoing copy (DESIGN 6.1); the request and its hash keep it."""
    sent = sent_items(user("go"), THOUGHT, user("never mind"))
    assert [one["type"] for one in sent] == ["message", "message"]


async def test_a_switch_of_models_leaves_no_dangling_id() -> None:
    """OpenAI refuses `fc_1` without the reasoning item it was made with: what is sent without its
    thought must not be sent under its id."""
    first = ScriptedModel([wire_turn()], after=0)
    second = ScriptedModel(["two"], after=1)
    session, _ = listening(Agent(first, model_name="a", tools=[Tool("a")], max_turns=1))
    await session.send("go")
    session.use(Agent(second, model_name="b"))
    await session.send("on")
    body = request_body(second.requests[0]).value()
    assert isinstance(body, dict)
    types = [one["type"] for one in body["input"]]
    assert "reasoning" not in types
    assert [one.get("id") for one in body["input"] if one["type"] == "function_call"] == [None]


def wire_turn() -> list[StreamEvent]:
    response = wire.Response(id="resp_1", status="completed", output=(THOUGHT, ASKED))
    return [
        wire.ResponseCreated(response=wire.Response(id="resp_1", status="in_progress", output=())),
        wire.OutputItemDone(output_index=0, item=THOUGHT),
        wire.OutputItemDone(output_index=1, item=ASKED),
        wire.ResponseCompleted(response=response),
    ]

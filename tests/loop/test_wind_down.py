"""An aborted drive ends, whatever a hook, a guard or a model holds it with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from perdure.agent import Agent
from perdure.loop import (
    Middleware,
    ModelRequest,
    NextTool,
    ToolCallInfo,
    ToolDecision,
    ToolResultInfo,
    alongside_model_call,
)
from perdure.session import Session
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.testing.clock import settle
from perdure.tools import ToolResult
from perdure.wire import StreamEvent
from tests.loop.fakes import Tool, answer, listening, outputs


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


@pytest.mark.parametrize("hook", ["wrap_tool_call", "after_tool_call"])
async def test_nor_does_a_hook_around_a_tool(hook: str) -> None:
    over = asyncio.Event()

    class Waits(Middleware):
        async def wrap_tool_call(
            self,
            info: ToolCallInfo,
            next: NextTool,  # noqa: A002
        ) -> ToolResult:
            if hook == "wrap_tool_call":
                await over.wait()
            return await next()

        async def after_tool_call(self, info: ToolResultInfo) -> None:
            if hook == "after_tool_call":
                await over.wait()

    clock = FakeClock()
    model = ScriptedModel([call("a", {}, "c1")])
    agent = Agent(model, tools=[Tool("a")], middleware=[Waits()], clock=clock, wind_down=5)
    session, ear = listening(agent)
    assert await ends_after_an_abort(session, clock, over)
    ear.check()
    known = dict(outputs(ear.end.items))
    assert known == ({"c1": "ok"} if hook == "after_tool_call" else {})


async def test_a_guard_beside_the_model_that_heeds_no_cancellation_does_not_keep_it_either() -> (
    None
):
    stubborn = Stubborn()

    @alongside_model_call
    async def guard(request: ModelRequest) -> None:
        await stubborn.wait()

    clock = FakeClock()
    agent = Agent(ScriptedModel(["hi"]), middleware=[guard], clock=clock, wind_down=5)
    session, _ = listening(agent)
    assert await ends_after_an_abort(session, clock, stubborn.over)


async def test_a_model_whose_stream_does_not_close_does_not_keep_it_either() -> None:
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

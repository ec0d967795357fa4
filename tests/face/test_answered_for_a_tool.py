"""An answer that a hook or a guard gives in place of the tool of a call that may have run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest

from perdure import Agent, RunFailed, RunResult, ToolError, ToolResult, tool
from perdure.errors import Guard, NotEntered
from perdure.loop import Middleware, ToolCallInfo, approve
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.tools import Effect
from perdure.wire import FunctionCallOutput

RUN = "run-1"
SECRET = "the guard's own words"
CHECK = "Check whether it took effect before asking for it again."

How = Literal["guard", "error", "answer"]
SAID: dict[How, str] = {
    "guard": "stopped by a policy",
    "error": "not today",
    "answer": "from a cache",
}


Next = Callable[[], Awaitable[ToolResult]]


class Answers(Middleware):
    """Answers in place of the tool."""

    def __init__(self, how: How) -> None:
        self.how = how

    async def wrap_tool_call(self, info: ToolCallInfo, call_next: Next) -> ToolResult:
        if self.how == "guard":
            raise Guard(SECRET)
        if self.how == "error":
            raise ToolError("not today")
        return ToolResult("from a cache")


class Bench:
    """An agent whose tool is cut while it is inside, and one with a hook that answers for it."""

    def __init__(self, effect: Effect) -> None:
        self.inside = asyncio.Event()

        @tool(effect=effect)
        async def pay() -> str:
            """Pay."""
            self.inside.set()
            await asyncio.sleep(1000)
            return "paid"

        self.store = MemoryStore()
        self.agent = Agent(ScriptedModel([call("pay")]), tools=[pay], store=self.store, grace=0.001)

    def answering(self, how: How) -> Agent:
        return self.agent.with_(
            middleware=(Answers(how),), model=ScriptedModel([call("pay"), "I see."])
        )

    async def cut_chat(self) -> str:
        """Cut the call in a conversation; its id."""
        async with self.agent.session("chat") as chat:
            sending = asyncio.ensure_future(chat.send("Pay."))
            await self.inside.wait()
            chat.abort("cut")
            return (await sending).pending[0].call.call_id

    async def cut_run(self) -> None:
        """Cut the call in a run by id."""
        running = asyncio.ensure_future(self.agent.run("Pay.", run_id=RUN))
        await self.inside.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def output_of(result: RunResult[str]) -> str:
    (found,) = [one for one in result.items if isinstance(one, FunctionCallOutput)]
    return found.text


@pytest.mark.parametrize("how", SAID)
@pytest.mark.parametrize("effect", ["idempotent", "keyed", "once"])
async def test_a_conversation_is_told_that_the_call_may_have_run(effect: Effect, how: How) -> None:
    bench = Bench(effect)
    call_id = await bench.cut_chat()
    async with bench.answering(how).session("chat") as chat:
        result = await chat.resume(approve(call_id, run_again=True))
    assert output_of(result) == (
        f"Error: this call may have run before, and was not run again: {SAID[how]}. {CHECK}"
    )
    assert result.status == ("stopped" if how == "guard" else "done")
    (chat_info,) = (await bench.store.list()).sessions
    lines = (await bench.store.read(chat_info.id)).lines
    assert not any(SECRET.encode() in line or b'"reject"' in line for line in lines)


@pytest.mark.parametrize("how", SAID)
async def test_a_call_without_effect_is_answered_as_it_is(how: How) -> None:
    bench = Bench("none")
    call_id = await bench.cut_chat()
    async with bench.answering(how).session("chat") as chat:
        result = await chat.resume(approve(call_id))
    assert output_of(result).removeprefix("Error: ") == SAID[how]


@pytest.mark.parametrize("how", SAID)
@pytest.mark.parametrize("effect", ["idempotent", "keyed"])
async def test_a_run_by_id_fails_and_keeps_what_may_have_run(effect: Effect, how: How) -> None:
    bench = Bench(effect)
    await bench.cut_run()
    for _ in range(2):  # each drive tries once, and none closes the run
        with pytest.raises(RunFailed, match="may have run") as failed:
            await bench.answering(how).run("Pay.", run_id=RUN)
        assert isinstance(failed.value.cause, NotEntered)
        assert SECRET not in str(failed.value)
    assert (how == "guard") == isinstance(failed.value.cause.__cause__, Guard)
    (one,) = failed.value.result.pending
    assert (one.reason, one.may_have_run) == ("aborted", True)


async def test_a_tool_that_is_gone_says_nothing_of_what_it_did() -> None:
    bench = Bench("idempotent")
    call_id = await bench.cut_chat()
    agent = bench.agent.with_(tools=(), model=ScriptedModel([call("pay"), "I see."]))
    async with agent.session("chat") as chat:
        result = await chat.resume(approve(call_id, run_again=True))
    assert output_of(result) == (
        f'Error: this call may have run before, and was not run again: unknown tool "pay". {CHECK}'
    )

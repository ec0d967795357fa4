"""What nobody gave is no result: hooks that answer for a call that may have run, and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from perdure import Approval, Middleware, RunFailed, Runs, SagaReport, ToolError, tool
from perdure.errors import NotEntered
from perdure.loop import ToolCallInfo
from perdure.stores.memory import MemoryStore
from perdure.testing import call
from perdure.testing.scripted import TurnLike
from perdure.tools import Effect, Tool, ToolResult, error_result, wrap
from tests.durable.bank import Bank, Payment, cut_in_flight, failing, names, report, run, saga
from tests.durable.world import RUN, cut_behind, outputs

Next = Callable[[], Awaitable[ToolResult]]


class Raises(Middleware):
    """Fails before the tool is entered."""

    async def wrap_tool_call(self, info: ToolCallInfo, call_next: Next) -> ToolResult:
        if info.call.name == "slow":
            raise ConnectionError("the limiter is down")
        return await call_next()


class Refuses(Middleware):
    """Answers in place of the tool."""

    async def wrap_tool_call(self, info: ToolCallInfo, call_next: Next) -> ToolResult:
        return error_result(ToolError("policy")) if info.call.name == "slow" else await call_next()


HOOKS = pytest.mark.parametrize("hook", [Raises(), Refuses()], ids=["raises", "refuses"])


@HOOKS
@pytest.mark.parametrize("effect", ["idempotent", "keyed"])
async def test_a_hook_that_answers_for_a_forward_run_stops_the_rollback(
    hook: Middleware, effect: Effect
) -> None:
    store, bank = await cut_in_flight(effect)
    slow = Payment(bank=bank, name="slow", effect=effect, does=lambda _: "at last")
    agent = saga(store, [], slow, failing(bank), Payment(bank=bank))
    for _ in range(2):
        with pytest.raises(RunFailed) as failed:
            await run(agent.with_(middleware=(hook,)))
        assert isinstance(failed.value.cause, NotEntered)
    assert (bank.did, bank.undone) == ([], [])
    assert (await run(agent)).status == "rolled_back"
    assert [one.text for one in bank.undone] == ["at last", "pay did it"]


@HOOKS
async def test_a_run_does_not_take_a_hooks_answer_for_what_a_call_gave(hook: Middleware) -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("slow"), "end"]
    slow = Payment(bank=bank, name="slow", effect="idempotent")
    await run(saga(store, script, slow))
    cut = await cut_behind(store, "dispatch")
    with pytest.raises(RunFailed) as failed:
        await run(saga(cut, script, slow, middleware=(hook,)))
    assert isinstance(failed.value.cause, NotEntered)
    await Runs(cut).resolve(RUN, "call_t0_1", output="it did", by="ann")
    result = await run(saga(cut, script, slow, middleware=(hook,)))
    assert (result.status, outputs(result)) == ("done", {"call_t0_1": "it did"})


async def test_arguments_that_fit_no_more_say_nothing_of_what_a_call_did() -> None:
    store, bank = await cut_in_flight("idempotent")

    @tool(effect="idempotent", compensate=never)
    async def slow(n: int) -> str:
        """Take long."""
        return str(n)

    with pytest.raises(RunFailed) as failed:
        await run(saga(store, [], slow, failing(bank), Payment(bank=bank)))
    assert isinstance(failed.value.cause, NotEntered)
    assert bank.undone == []


async def never(result: str) -> None:
    raise AssertionError(result)


async def test_a_denied_second_run_halts_a_later_rollback() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("slow"), call("ship"), "never"]
    slow = Payment(bank=bank, name="slow", effect="idempotent")
    await run(saga(store, script, slow, failing(bank)))
    cut = await cut_behind(store, "dispatch")
    bank.undone.clear()
    agent = saga(cut, script, wrap(slow, approval=Approval(of=["bo"])), failing(bank))
    assert (await run(agent)).status == "input_required"
    await Runs(cut).deny(RUN, "call_t0_1", by="bo")
    result = await run(agent)
    assert (result.status, names(report(result).unknown), bank.undone) == ("halted", ["slow"], [])
    await Runs(cut).resolve(RUN, "call_t0_1", left=True, by="ann")
    assert (await run(agent)).status == "rolled_back"


# --- errors that a tool returns -------------------------------------------------------------------


async def test_a_tool_that_returns_an_error_failed() -> None:
    store, bank = MemoryStore(), Bank()
    charge = Payment(bank=bank, name="charge", does=lambda _: error_result(ToolError("declined")))
    agent = saga(store, [call("pay"), call("charge"), "never"], Payment(bank=bank), charge)
    result = await run(agent)
    assert (result.status, result.cause) == ("rolled_back", "charge failed: declined")
    assert bank.undid == ["pay {}"]


class Spoils(Middleware):
    """Makes a failure of what a tool gave."""

    async def wrap_tool_call(self, info: ToolCallInfo, call_next: Next) -> ToolResult:
        given = await call_next()
        return error_result(ToolError("not good enough")) if info.call.name == "book" else given


async def test_what_a_tool_gave_is_undone_if_a_hook_made_an_error_of_it() -> None:
    store, bank = MemoryStore(), Bank()
    tools: tuple[Tool, ...] = (Payment(bank=bank), Payment(bank=bank, name="book"))
    script: list[TurnLike] = [call("pay"), call("book"), "never"]
    agent = saga(store, script, *tools, middleware=(Spoils(),))
    result = await run(agent)
    assert result.cause == "book failed: not good enough"
    assert [one.text for one in bank.undone] == ["book did it", "pay did it"]
    assert report(result) == SagaReport(compensated=report(result).compensated)

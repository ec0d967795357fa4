"""Standing approvals answer before a policy asks; a person who has answered wins over them."""

from __future__ import annotations

import pytest

from perdure import (
    Agent,
    StandingApprovals,
    ToolDecision,
    always,
    approve,
    before_tool_call,
    never,
    tool,
)
from perdure.loop import Middleware, ToolCallInfo, ToolEnd, ToolStart
from perdure.middleware import Rule
from perdure.testing import ScriptedModel, call, text as say


def ask(action: str = "hold") -> Middleware:
    @before_tool_call
    async def policy(info: ToolCallInfo) -> ToolDecision | None:
        if action == "nothing":
            return None
        return ToolDecision(action=action, reason="ask first", note="asked")  # type: ignore[arg-type]

    return policy


@tool(effect="none")
async def read_file(path: str, lines: int = 10) -> str:
    """Read a file."""
    return f"{path}:{lines}"


CALL = call("read_file", {"path": "/srv/a.txt", "lines": 10})

RULES: list[tuple[list[Rule], str, str]] = [
    ([], "hold", "input_required"),
    ([always("read_file")], "hold", "done"),
    ([always("read_*")], "hold", "done"),
    ([always("write_*")], "hold", "input_required"),
    ([always("read_file", path="/srv/*")], "hold", "done"),
    ([always("read_file", path="/etc/*")], "hold", "input_required"),
    ([always("read_file", lines=10)], "hold", "done"),
    ([always("read_file", lines="10")], "hold", "input_required"),
    ([always("read_file", nothing="*")], "hold", "input_required"),
    ([always("read_file")], "reject", "rejected"),
    ([never("read_file")], "nothing", "rejected"),
    ([never("read_file", path="/srv/*")], "hold", "rejected"),
    ([always("read_file"), never("read_*")], "hold", "rejected"),
]


@pytest.mark.parametrize(("rules", "policy", "outcome"), RULES)
async def test_a_rule_decides_what_the_policy_would_ask(
    rules: list[Rule], policy: str, outcome: str
) -> None:
    standing = StandingApprovals(ask(policy), rules)
    agent = Agent(ScriptedModel([CALL, say("ok")]), tools=[read_file], middleware=[standing])
    async with agent.stream("go") as stream:
        events = [event async for event in stream.events()]
        result = await stream.result()
    (end,) = [event for event in events if isinstance(event, ToolEnd)]
    assert (result.status if not end.rejected else "rejected") == outcome


async def test_a_rule_says_that_a_policy_decided_and_why() -> None:
    standing = StandingApprovals(ask(), [always("read_file", "trusted")])
    agent = Agent(ScriptedModel([CALL, say("ok")]), tools=[read_file], middleware=[standing])
    async with agent.stream("go") as stream:
        events = [event async for event in stream.events()]
    (start,) = [event for event in events if isinstance(event, ToolStart)]
    assert start.decision is not None
    assert (start.decision.by, start.decision.reason) == ("policy", "trusted")
    assert start.decision.note == "asked"


async def test_a_rule_added_later_holds_for_the_calls_that_follow() -> None:
    standing = StandingApprovals(ask())
    model = ScriptedModel([CALL, say("one"), CALL, say("two")])
    agent = Agent(model, tools=[read_file], middleware=[standing])
    async with agent.session() as chat:
        held = await chat.send("go")
        await chat.resume(approve(held.pending[0].call.call_id, by="human"))
        rule = always("read_file")
        standing.add(rule)
        assert (await chat.send("again")).text == "two"
        standing.remove(rule)
        assert standing.rules == ()


async def test_a_decision_for_the_exact_call_wins_over_a_rule() -> None:
    standing = StandingApprovals(ask())
    agent = Agent(ScriptedModel([CALL, say("ok")]), tools=[read_file], middleware=[standing])
    async with agent.session() as chat:
        held = await chat.send("go")
        standing.add(never("read_file"))
        result = await chat.resume(approve(held.pending[0].call.call_id, by="human"))
    assert result.text == "ok"
    assert "/srv/a.txt:10" in [getattr(item, "output", "") for item in result.items]

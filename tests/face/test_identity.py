"""Who runs a drive, and for whom: what tools and hooks see, what is recorded, what is inherited."""

from __future__ import annotations

import pytest

from perdure import Agent, Middleware, Runs, ToolDecision, drive_scope, recover, tool
from perdure.durable import read_run
from perdure.errors import ConfigError, RunMismatch
from perdure.log import Filters
from perdure.log.entries import DecisionEntry, DispatchEntry
from perdure.loop import ToolCallInfo
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.tools import Call
from tests.durable.world import RUN, session_of

WHO = ("payments@eu-1", "user:42")


class Sees(Middleware):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
        scope = drive_scope()
        self.seen.append((scope.deployment, scope.principal))
        return ToolDecision(action="hold", reason="look") if call.arguments == '{"n":0}' else None


def agent_of(seen: list[tuple[str, str]], n: int = 1, **members: object) -> Agent:
    @tool
    async def act(n: int, call: Call) -> str:
        """Act."""
        seen.append((call.deployment, call.principal))
        return "done"

    plain: Agent = Agent(ScriptedModel([call("act", {"n": n}), "All done."]), tools=[act])
    return plain.with_(**{"identity": WHO[0], **members})


async def test_tools_and_hooks_see_who_runs_them_and_for_whom() -> None:
    seen: list[tuple[str, str]] = []
    sees = Sees()
    agent = agent_of(seen, middleware=[sees])
    await agent.run("go", principal=WHO[1])
    assert (seen, sees.seen) == ([WHO], [WHO])
    async with agent.stream("go", principal=WHO[1]) as stream:
        await stream.result()
    async with agent.session(principal=WHO[1]) as chat:
        await chat.send("go")
    assert seen == [WHO] * 3
    await agent.with_(identity="").run("go")
    assert seen[-1] == ("", "")


async def test_a_run_keeps_its_principal_and_records_it_with_each_decision_and_dispatch() -> None:
    store, seen = MemoryStore(), list[tuple[str, str]]()
    agent = agent_of(seen, n=0, store=store, middleware=[Sees()])
    await agent.run("go", run_id=RUN, principal=WHO[1])
    await Runs(store).approve(RUN, "call_t0_1", by="ann")
    moved = agent.with_(identity="payments@eu-2")
    await recover(moved)
    assert seen == [("payments@eu-2", WHO[1])]
    assert (await Runs(store).get(RUN)).principal == WHO[1]
    told = [
        (type(one).__name__, one.deployment, one.principal)
        for one in (await session_of(store)).entries
        if isinstance(one, DecisionEntry | DispatchEntry)
    ]
    assert told == [
        ("DecisionEntry", "payments@eu-1", WHO[1]),
        ("DecisionEntry", "payments@eu-2", WHO[1]),
        ("DispatchEntry", "payments@eu-2", WHO[1]),
    ]
    dispatch = (await session_of(store)).entries
    salted = [one for one in dispatch if isinstance(one, DispatchEntry)]
    assert all("perdure:salt" in one.members for one in salted)


async def test_a_run_is_bound_to_its_principal() -> None:
    store = MemoryStore()
    agent = agent_of([], store=store)
    await agent.run("go", run_id=RUN, principal="user:1")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    with pytest.raises(RunMismatch, match="was begun for 'user:1'"):
        await agent.run("go", run_id=RUN, principal="user:2")
    await agent.run("go", run_id="order-2")
    with pytest.raises(RunMismatch, match="for nobody"):
        await agent.run("go", run_id="order-2", principal="user:1")


@pytest.mark.parametrize("run_id", [RUN, None])
async def test_sub_agents_inherit_both(run_id: str | None) -> None:
    store, seen = MemoryStore(), list[tuple[str, str]]()
    inner = agent_of(seen, identity="")
    helper = inner.with_(name="helper").as_tool("helper", "Helps.")
    model = ScriptedModel([call("helper", {"task": "Help."}), "Done."])
    agent: Agent = Agent(model, tools=[helper], identity=WHO[0])
    if run_id is not None:
        agent = agent.with_(store=store)
    await agent.run("go", run_id=run_id, principal=WHO[1])
    assert seen == [WHO]
    if run_id is not None:
        listed = (await store.list(Filters())).sessions
        headers = [(await read_run(store, one.id)).header.principal for one in listed]
        assert headers == [WHO[1]] * 2


@pytest.mark.parametrize("text", ["a\nb", "x" * 513, 7])
async def test_what_names_nobody_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        agent_of([], identity=text)
    with pytest.raises(ConfigError):
        await agent_of([]).run("go", principal=text)
    with pytest.raises(ConfigError):
        await agent_of([], store=MemoryStore()).run("go", run_id=RUN, principal=text)

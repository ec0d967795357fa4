"""Agents that a tool calls with `invoke`: sessions of their own, found again (LOG 5.5, 5.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure import Agent, Runs, interrupt, invoke, step, tool
from perdure.log import Store, subsession_id
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.testing.scripted import TurnLike
from perdure.tools import Effect, Tool, arguments_digest
from tests.durable.test_children import clerk, copied, tree, verified
from tests.durable.world import RUN, Act, Holds, World, asked, outputs, shapes


async def _ask() -> object:
    return (await invoke("clerk", {"task": "Act."})).output


def lead(
    store: Store,
    *agents: Agent,
    effect: Effect = "idempotent",
    body: Callable[[], Awaitable[object]] = _ask,
) -> Agent:
    @tool(effect=effect)
    async def ask() -> object:
        """Ask an agent."""
        return await body()

    tools: list[Tool] = [ask, *(one.as_tool() for one in agents)]
    model = ScriptedModel([call("ask"), "All done."])
    return Agent(model, name="lead", tools=tools, store=store, clock=FakeClock())


async def test_an_agent_that_a_tool_calls_works_in_a_session_that_is_linked_before() -> None:
    store, world = MemoryStore(), World()
    result = await lead(store, clerk([Act(world=world)])).run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {"call_t0_1": "Acted."})
    root, child = await tree(store)
    digest = arguments_digest('{"task":"Act."}')[:16]
    assert child.id == subsession_id(root.id, f"call_t0_1/clerk/{digest}/1")
    assert shapes((await verified(store))[root.id]).count("link") == 1


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_tree_below_a_tool_cut_anywhere_ends_and_doubles_nothing(effect: Effect) -> None:
    store, before = MemoryStore(), World()
    await lead(store, clerk([Act(world=before, effect=effect)])).run("go", run_id=RUN)
    root, child = (await verified(store)).values()
    linked = shapes(root).index("link") + 1
    for keep in range(len(child) + 1):
        crashed = await copied(store, linked, keep)
        ran = "dispatch" in shapes(child[:keep])
        world = World()
        worker = clerk([Act(world=world, effect=effect)])
        agent = lead(crashed, worker)
        result = await agent.run("go", run_id=RUN)
        if result.status == "halted":
            (below,) = [one for one in result.pending if one.path]
            assert (effect, below.path) == ("once", ("call_t0_1",))
            await Runs(crashed).resolve(
                RUN, below.call.call_id, session=below.session, output="done by hand"
            )
            result = await agent.run("go", run_id=RUN)
        assert (result.status, result.text) == ("done", "All done."), keep
        assert len(world.fired) <= (1 if not ran or effect == "idempotent" else 0), keep
        assert len(await tree(crashed)) == 2


async def test_a_call_waits_for_what_the_agent_of_its_tool_waits_for() -> None:
    store, world = MemoryStore(), World()
    worker = clerk([Act(world=world)], middleware=[Holds()])
    agent = lead(store, worker)
    result = await agent.run("go", run_id=RUN)
    assert result.status == "input_required"
    assert asked(worker) == 1
    (below,) = [one for one in result.pending if one.path]
    assert (below.path, below.reason, world.fired) == (("call_t0_1",), "held", [])
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await Runs(store).approve(RUN, below.call.call_id, session=below.session)
    last = await agent.run("go", run_id=RUN)
    assert (last.status, outputs(last)) == ("done", {"call_t0_1": "Acted."})
    assert (len(world.fired), asked(worker)) == (1, 2)


async def test_a_tool_waits_for_two_agents_and_a_person_at_once() -> None:
    store, world = MemoryStore(), World()
    worker = clerk([Act(world=world)], middleware=[Holds()])
    script: list[TurnLike] = [call("act", {"n": 1}), "Acted too."]
    other = worker.with_(name="other", model=ScriptedModel(script))

    async def body() -> object:
        first = invoke("clerk", {"task": "Act."})
        second = invoke("other", {"task": "Act."})
        found = await asyncio.gather(first, second, interrupt("sure", "Sure?", bool))
        return [found[0].output, found[1].output, found[2]]

    agent = lead(store, worker, other, body=body)
    result = await agent.run("go", run_id=RUN)
    below = [one for one in result.pending if one.path]
    assert (result.status, len(below)) == ("input_required", 2)
    for one in below:
        await Runs(store).approve(RUN, one.call.call_id, session=one.session)
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    await Runs(store).answer(RUN, "call_t0_1", "sure", value=True)
    last = await agent.run("go", run_id=RUN)
    assert outputs(last) == {"call_t0_1": '["Acted.","Acted too.",true]'}
    assert len(world.fired) == 2


async def test_a_once_tool_whose_agent_waits_halts() -> None:
    store, world = MemoryStore(), World()
    worker = clerk([Act(world=world)], middleware=[Holds()])
    result = await lead(store, worker, effect="once").run("go", run_id=RUN)
    assert (result.status, world.fired) == ("halted", [])


async def test_an_agent_is_not_invoked_inside_a_step() -> None:
    store, world = MemoryStore(), World()

    async def body() -> object:
        return await step("ask", _ask, effect="idempotent")

    result = await lead(store, clerk([Act(world=world)]), body=body).run("go", run_id=RUN)
    assert "inside a step" in outputs(result)["call_t0_1"]
    assert world.fired == []

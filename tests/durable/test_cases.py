"""Faults that users of durable runtimes reported, as what has to happen here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pytest

from perdure import Agent, Middleware, RunFailed, Runs, Secret, ToolError, tool
from perdure.clock import SystemClock
from perdure.durable import Driving, run_by_id
from perdure.errors import InvalidInput, RunFinished, StoreFailed
from perdure.log import AnyEntry, Appended, Fence, Summary
from perdure.loop import NextTool, ToolCallInfo
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike, error
from perdure.tools import Call, ToolResult
from perdure.wire import user
from tests.durable.world import (
    RUN,
    Act,
    World,
    agent_of,
    asked,
    cut_behind,
    entries_of,
    one_call,
    outputs,
    shapes,
    two_calls,
)

CALL = "call_t0_1"


class Hasty(SystemClock):
    """Waits for nothing."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Unsure(MemoryStore):
    """Its appends of a dispatch fail, and may have happened all the same."""

    def __init__(self, *, commits: bool) -> None:
        super().__init__()
        self.failing = True
        self._commits = commits

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        dispatches = any(entry.type == "dispatch" for entry in batch)
        if self.failing and dispatches and not self._commits:
            raise StoreFailed("the disk is gone")
        appended = await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )
        if self.failing and dispatches:
            raise StoreFailed("the disk is gone")
        return appended


@pytest.mark.parametrize("commits", [True, False])
async def test_a_dispatch_that_could_not_be_settled_entered_nothing_and_runs_later(
    commits: bool,
) -> None:
    store, world = Unsure(commits=commits), World()
    agent = agent_of(store, [Act(world=world)], one_call(), clock=Hasty())
    for _ in range(2):
        with pytest.raises(RunFailed):
            await agent.run("go", run_id=RUN)
        assert world.fired == []
    store.failing = False
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.count(CALL)) == ("done", 1)


async def test_a_model_call_that_failed_is_made_again_and_no_tool_with_it() -> None:
    refused = InvalidInput("the request is wrong", status=400)
    store, world = MemoryStore(), World()
    broken = agent_of(store, [Act(world=world)], [call("act", {"n": 1}), error(refused)])
    with pytest.raises(RunFailed):
        await broken.run("go", run_id=RUN)
    agent = agent_of(store, [Act(world=world)], one_call())
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.count(CALL), asked(agent)) == ("done", 1, 1)


async def test_a_tool_that_asks_to_be_called_again_took_effect_once() -> None:
    store, world = MemoryStore(), World()

    def refuses(call: Call) -> str:
        raise ToolError("give the amount in cents")

    agent = agent_of(store, [Act(world=world, does=refuses)], one_call())
    result = await agent.run("go", run_id=RUN)
    assert outputs(result) == {CALL: "Error: give the amount in cents"}
    assert len(world.fired) == 1


async def test_what_stands_around_a_tool_cannot_deny_that_it_ran() -> None:
    store, world = MemoryStore(), World()

    class Denies(Middleware):
        async def wrap_tool_call(self, call: ToolCallInfo, next_: NextTool) -> ToolResult:
            await next_()
            raise ToolError("it did not work")

    agent = agent_of(store, [Act(world=world)], one_call(), middleware=[Denies()])
    result = await agent.run("go", run_id=RUN)
    assert (result.status, len(world.fired)) == ("halted", 1)


async def test_a_result_that_comes_while_the_caller_leaves_is_recorded() -> None:
    store, world, entered = MemoryStore(), World(), asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge, whatever happens meanwhile."""
        world.fired.append(("charge", ""))
        entered.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "charged"
        return "never"

    agent: Agent = Agent(
        ScriptedModel([call("charge"), "Done."]), tools=[charge], store=store, grace=0.0
    )
    running = asyncio.create_task(agent.run("go", run_id=RUN))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {CALL: "charged"})
    assert len(world.fired) == 1


@pytest.mark.parametrize("call_id", ["a/b:c>d", "run:complete", "x" * 10_000, "perdure:closed"])
async def test_no_call_id_is_taken_for_anything_else(call_id: str) -> None:
    store, world = MemoryStore(), World()
    script: list[TurnLike] = [turn(call("act", {"n": 1}, call_id=call_id)), "All done."]
    agent = agent_of(store, [Act(world=world)], script)
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {call_id: f"done {call_id}"})
    crashed = await cut_behind(store, "dispatch")
    again = agent_of(crashed, [Act(world=World())], script)
    assert (await again.run("go", run_id=RUN)).status == "halted"
    await Runs(crashed).resolve(RUN, call_id, output="known")
    assert outputs(await again.run("go", run_id=RUN)) == {call_id: "known"}


async def test_of_an_end_and_a_cancel_the_first_on_the_record_stands() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call())
    told: list[asyncio.Task[None]] = []

    def at(point: str) -> None:
        if point == "closed":
            told.append(asyncio.ensure_future(Runs(store).cancel(RUN)))

    ran = await run_by_id(agent, store, RUN, [user("go")], driving=Driving(at=at))
    assert ran.state.status == "done"
    with pytest.raises(RunFinished):
        await told[0]
    assert (await Runs(store).get(RUN)).status == "done"


async def test_a_cancel_before_the_end_is_written_cancels() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], one_call())
    runs = Runs(store)

    class Late(Middleware):
        async def on_end(self, end: object) -> None:
            if (await runs.get(RUN)).status != "cancelled":
                await runs.cancel(RUN)

    ran = await agent.with_(middleware=[Late()]).run("go", run_id=RUN)
    assert ran.status == "cancelled"
    assert shapes(await entries_of(store))[-1] == "perdure:closed cancelled"


async def test_a_keyed_message_that_crashed_goes_on_with_its_own_transcript() -> None:
    store, world = MemoryStore(), World()
    act = Act(world=world, effect="idempotent")
    script = ["Hello.", *two_calls()]
    agent = agent_of(store, [act], script)
    async with agent.session("chat") as chat:
        await chat.send("hi", key="one")
        await chat.send("go", key="two")
    crashed = await cut_behind(store, "run end", "dispatch", run_id="chat")
    again = agent_of(crashed, [Act(world=World(), effect="idempotent")], script)
    async with again.session("chat") as chat:
        result = await chat.send("go", key="two")
        assert result.text == "All done."
        assert (await chat.send("hi", key="one")).text == "Hello."
        assert asked(again) == 1


def the_key() -> str:
    return "s3cr3t-value-of-the-bank"


KEY = Secret(the_key, reference="vault:bank")


async def test_a_secret_argument_is_in_no_file_of_a_run(tmp_path: Path) -> None:
    seen: list[str] = []

    @tool
    async def charge(
        cents: int, key: Annotated[str, Secret(the_key, reference="vault:bank")]
    ) -> str:
        """Charge."""
        seen.append(key)
        raise RuntimeError(f"the bank does not know {key}")

    agent: Agent = Agent(
        ScriptedModel([call("charge", {"cents": 5}), "Done."]),
        tools=[charge],
        store=f"sqlite:///{tmp_path / 'runs.db'}",
    )
    result = await agent.run("go", run_id=RUN)
    await agent.aclose()
    assert seen == [the_key()]
    assert "s3cr3t" not in repr(result)
    for file in await asyncio.to_thread(lambda: list(tmp_path.rglob("*"))):
        assert b"s3cr3t" not in await asyncio.to_thread(file.read_bytes), file

"""Waits that a tool does not ask for any more, and words that came before a time (LOG 4.2, 9)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine

import pytest

from perdure import (
    Agent,
    Program,
    Runs,
    interrupt,
    race,
    receive,
    recover,
    sleep,
    step,
    tool,
    wait_for,
)
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from tests.durable.world import RUN

Body = Callable[[], Awaitable[object]]


class Desk:
    """A body that runs in the tool of an agent, or as a program, and may be another one later."""

    def __init__(self, what: str, body: Body) -> None:
        self.what = what
        self.body = body
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.runs = Runs(self.store, clock=self.clock)
        self.entered = 0
        self.output: object = None

    async def _work(self) -> object:
        self.entered += 1
        self.output = await self.body()
        return self.output

    @property
    def program(self) -> Program[object]:
        return Program(self._work, name="work", store=self.store, clock=self.clock)

    @property
    def agent(self) -> Agent:
        async def work() -> object:
            """Work."""
            return await self._work()

        model = ScriptedModel([call("work"), "Done."])
        return Agent(
            model,
            name="clerk",
            tools=[tool(effect="idempotent")(work)],
            store=self.store,
            clock=self.clock,
        )

    async def run(self) -> str:
        if self.what == "program":
            return str((await self.program.run(run_id=RUN)).status)
        return str((await self.agent.run("Go.", run_id=RUN)).status)

    async def recovered(self) -> int:
        agents = [self.agent] if self.what == "agent" else []
        programs = [self.program] if self.what == "program" else []
        found = await recover(*agents, store=self.store, programs=programs)
        return len(found)

    async def entries(self) -> int:
        return len((await self.runs.record(RUN)).entries)


both = pytest.mark.parametrize("what", ["agent", "program"])


@both
async def test_a_wait_that_is_not_asked_for_any_more_wakes_nobody(what: str) -> None:
    desk = Desk(what, lambda: sleep("old", 60))
    await desk.run()
    desk.body = lambda: wait_for("paid")
    await desk.clock.advance(61)
    assert await desk.recovered() == 1
    (waits, *_) = (await desk.runs.get(RUN)).pending
    assert (waits.wait or {})["waits"] == [{"kind": "signal", "name": "paid"}]
    entered, entries = desk.entered, await desk.entries()
    for _ in range(3):
        await desk.clock.advance(5)
        assert await desk.recovered() == 0
        assert await desk.run() == "suspended"
    assert (desk.entered, await desk.entries()) == (entered, entries)
    assert (await desk.runs.get(RUN)).due is None
    await desk.runs.signal(RUN, "paid", 1)
    assert await desk.run() == "done"
    assert desk.output == 1


@both
async def test_a_signal_that_came_before_its_time_was_up_is_taken(what: str) -> None:
    async def body() -> object:
        await step("tell", lambda: desk.runs.signal(RUN, "go", 7), effect="idempotent")
        return await wait_for("go", timeout=0)

    desk = Desk(what, body)
    assert await desk.run() == "done"
    assert desk.output == 7


@both
@pytest.mark.parametrize("kind", ["signal", "message", "answer"])
async def test_what_came_before_a_time_wins_a_race_with_it(what: str, kind: str) -> None:
    async def tell() -> None:
        match kind:
            case "signal":
                await desk.runs.signal(RUN, "go", 7)
            case "message":
                await desk.runs.send(RUN, "go", 7, key="k")
            case _:
                await desk.runs.answer(RUN, asking, "go", 7)

    async def body() -> object:
        if desk.entered == 2:
            await step("tell", tell, effect="idempotent")
        asks: Coroutine[object, object, object] = interrupt("go", "Go?", int)
        if kind != "answer":
            asks.close()
            asks = wait_for("go") if kind == "signal" else receive("go")
        first = await race("first", {"told": asks, "late": sleep("night", 60)})
        return first.which

    desk = Desk(what, body)
    assert await desk.run() in {"suspended", "input_required"}
    asking = (await desk.runs.get(RUN)).pending[0].call.call_id
    await desk.clock.advance(61)
    assert await desk.run() == "done"
    assert desk.output == "told"


@both
async def test_a_time_wins_where_nothing_came(what: str) -> None:
    async def body() -> object:
        await step("tell", lambda: desk.runs.signal(RUN, "other", 7), effect="idempotent")
        first = await race("first", {"told": wait_for("go"), "late": sleep("night", 0)})
        return first.which

    desk = Desk(what, body)
    assert await desk.run() == "done"
    assert desk.output == "late"

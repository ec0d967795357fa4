"""What tests of sagas share: a bank whose tools say what they did, and what they undid."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from perdure import (
    Agent,
    Compensation,
    RunResult,
    SagaReport,
    SagaRolledBack,
    ToolError,
    Undone,
    events_of,
)
from perdure.durable import read_run
from perdure.log import Store
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.event_check import check_events
from perdure.testing.scripted import TurnLike
from perdure.tools import Call, Effect, Tool, ToolResult
from tests.durable.world import RUN, Given, cut_behind


class Bank:
    """Remembers what was done and undone, in order, whatever dies."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.undone: list[Compensation] = []

    @property
    def undid(self) -> list[str]:
        return [f"{one.tool} {one.arguments}" for one in self.undone]


@dataclasses.dataclass(kw_only=True)
class Deed:
    """A tool that takes effect."""

    bank: Bank
    name: str = "pay"
    effect: Effect = "once"
    timeout: float | None = None
    does: Callable[[Call], Given | Awaitable[Given]] | None = None
    description: str = "Does something."
    parameters: dict[str, object] | None = None

    async def execute(self, call: Call) -> ToolResult:
        self.bank.did.append(f"{self.name} {call.arguments}")
        given = self.does(call) if self.does is not None else f"{self.name} did it"
        if inspect.isawaitable(given):
            given = await given
        return given if isinstance(given, ToolResult) else ToolResult(given)


@dataclasses.dataclass(kw_only=True)
class Payment(Deed):
    """A tool whose effect can be undone."""

    fails: int = 0
    """How often its compensator fails before it works."""

    async def compensator(self, compensation: Compensation) -> None:
        self.bank.undone.append(compensation)
        if self.fails:
            self.fails -= 1
            raise ConnectionError("the bank does not answer")


def boom(call: Call) -> str:
    """Fails."""
    raise ToolError(f"{call.name} broke")


def failing(bank: Bank, name: str = "ship", effect: Effect = "once") -> Deed:
    """A tool that fails."""
    return Deed(bank=bank, name=name, effect=effect, does=boom)


def saga(store: Store, script: Sequence[TurnLike], *tools: Tool, **members: object) -> Agent:
    agent: Agent = Agent(ScriptedModel(script), tools=list(tools), store=store, lease=0.2)
    return agent.with_(**members) if members else agent


async def run(agent: Agent) -> RunResult[str]:
    """The result of a saga, rolled back or not; what its record tells is whole in either case."""
    try:
        return await agent.run("go", run_id=RUN, saga=True)
    except SagaRolledBack as error:
        return cast("RunResult[str]", error.result)
    finally:
        store = agent.opened(agent.store)
        for listed in (await store.list()).sessions:  # those of its agents among them
            session = await read_run(store, listed.id)
            if session.view().drives.open is None:  # else the next driver ends it
                check_events(events_of(session))


async def cut_in_flight(effect: Effect) -> tuple[MemoryStore, Bank]:
    """A saga that died when one call had failed and the other was in its tool."""
    store, bank = MemoryStore(), Bank()
    slow = Payment(bank=bank, name="slow", effect=effect, does=lambda _: asyncio.sleep(0.01, "it"))
    script: list[TurnLike] = [call("pay"), turn(call("slow"), call("ship")), "never"]
    agent = saga(store, script, slow, failing(bank), Payment(bank=bank))
    await run(agent)
    bank.did.clear()
    bank.undone.clear()
    return await cut_behind(store, "perdure:saga tripped"), bank


def report(result: RunResult[str]) -> SagaReport:
    assert result.report is not None
    return result.report


def names(calls: Sequence[Undone]) -> list[str]:
    return [one.tool for one in calls]


def reasons(calls: Sequence[Undone]) -> dict[str, str]:
    return {one.tool: one.reason for one in calls}

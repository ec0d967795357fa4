"""What tests of durable runs share: a world that counts effects, logs cut where a crash cuts."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from perdure import Agent, Middleware, RunResult, ToolDecision
from perdure.log import AnyEntry, Filters, Session, Store, Summary, read_lines
from perdure.loop import ToolCallInfo
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.scripted import Script, TurnLike
from perdure.tools import Call, Effect, Tool, ToolResult
from perdure.wire import FunctionCallOutput

RUN = "order-1"

Given: TypeAlias = str | ToolResult


class World:
    """What tools do to it outlives every crash."""

    def __init__(self) -> None:
        self.fired: list[tuple[str, str]] = []
        """The call and its key, each time a tool took effect."""

    def count(self, call_id: str) -> int:
        return sum(one == call_id for one, _ in self.fired)

    def keys(self, call_id: str) -> set[str]:
        return {key for one, key in self.fired if one == call_id}


@dataclasses.dataclass(kw_only=True)
class Act:
    """A tool that takes effect, and then does what a test says."""

    world: World
    name: str = "act"
    effect: Effect = "once"
    timeout: float | None = None
    does: Callable[[Call], Given | Awaitable[Given]] | None = None
    description: str = "Acts."
    parameters: dict[str, object] | None = None
    sequential: bool = False
    resource: str | None = None

    async def execute(self, call: Call) -> ToolResult:
        self.world.fired.append((call.id, call.idempotency_key))
        given = self.does(call) if self.does is not None else f"done {call.id}"
        if inspect.isawaitable(given):
            given = await given
        return given if isinstance(given, ToolResult) else ToolResult(given)


class Holds(Middleware):
    """Holds every call of the tools it names."""

    def __init__(self, *names: str) -> None:
        self._names = names or ("act",)

    async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
        if call.call.name not in self._names:
            return None
        return ToolDecision(action="hold", reason="somebody has to look")


def two_calls() -> list[TurnLike]:
    return [turn(call("act", {"n": 1}), call("act", {"n": 2})), "All done."]


def one_call() -> list[TurnLike]:
    return [call("act", {"n": 1}), "All done."]


def agent_of(
    store: Store,
    tools: Sequence[Tool],
    script: Script | None = None,
    **members: object,
) -> Agent:
    model = ScriptedModel(script if script is not None else two_calls())
    agent: Agent = Agent(model, tools=list(tools), store=store, lease=0.2)
    return agent.with_(**members) if members else agent


def asked(agent: Agent) -> int:
    """How many requests the agent's model got."""
    assert isinstance(agent.model, ScriptedModel)
    return len(agent.model.requests)


async def session_of(store: Store, run_id: str = RUN) -> Session:
    """What the store holds of a run, verified."""
    (listed,) = (await store.list(Filters(name=run_id))).sessions
    stored = await store.read(listed.id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    return reading.session


async def entries_of(store: Store, run_id: str = RUN) -> list[AnyEntry]:
    return (await session_of(store, run_id)).entries


async def cut_after(store: Store, keep: int, run_id: str = RUN) -> MemoryStore:
    """What the next process finds if this one died when `keep` entries of the run were durable."""
    found = MemoryStore()
    session = await session_of(store, run_id)
    kept = Session(session.header, session.entries[:keep])
    summary = Summary(status=kept.status, due=kept.view().due, leaf=kept.leaf)
    await found.create(session.header, name=run_id, batch=kept.entries, summary=summary)
    return found


async def cut_behind(store: Store, *kinds: str, run_id: str = RUN) -> MemoryStore:
    """The same, right behind the last of consecutive finds: `cut_behind(s, "dispatch")`."""
    place = 0
    shown = shapes(await entries_of(store, run_id))
    for kind in kinds:
        place = shown.index(kind, place) + 1
    return await cut_after(store, place, run_id)


def shapes(entries: Iterable[AnyEntry]) -> list[str]:
    """Entries, shortly: `decision proceed`, `run start`, `perdure:closed done`."""
    shown: list[str] = []
    for entry in entries:
        members = entry.members
        more = members.get("verdict") or members.get("phase") or ""
        if entry.type == "perdure:closed":
            more = members.get("status", "")
        shown.append(f"{entry.type} {more}".strip())
    return shown


def outputs(result: RunResult[str]) -> dict[str, str]:
    return {one.call_id: one.text for one in result.items if isinstance(one, FunctionCallOutput)}

"""Agents whose runs die in tests. Processes find them by name.

`batch_EFFECT_HOW_DATABASE` is an agent with three calls of an effect in one batch, which run in
`parallel` or in `sequence`; `mixed_HOW_DATABASE` has one call of each effect, and a second turn.
`saga_EFFECT_LEVEL_DATABASE` pays at four levels, and fails at one; `saga_batch_HOW_DATABASE` fails
beside payments of all effects.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import cast

from perdure import (
    Agent,
    Approval,
    Call,
    Compensation,
    Found,
    NeverRan,
    ToolDecision,
    ToolError,
    before_tool_call,
    tool,
)
from perdure.loop import ModelRequest, ToolCallInfo, invoke
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.chaos_votes import chaos_keys
from perdure.testing.scripted import Script, TurnLike
from perdure.tools import AsyncTx, Effect, Tool, Transaction, Tx, wrap
from perdure.tools.effect import EFFECTS
from perdure.wire import FunctionCall, FunctionCallOutput, StreamEvent

DATABASES = ("sqlite", "postgres")
HOWS = ("parallel", "sequence")


class StrictModel(ScriptedModel):
    """Refuses a request in which a call has not exactly one output, behind it (DESIGN 6.1)."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        open_calls: set[str] = set()
        for one in request.input:
            if isinstance(one, FunctionCall):
                assert one.call_id not in open_calls, f"{one.call_id} twice"
                open_calls.add(one.call_id)
            elif isinstance(one, FunctionCallOutput):
                assert one.call_id in open_calls, f"{one.call_id} has no call, or two outputs"
                open_calls.remove(one.call_id)
        assert not open_calls, f"{open_calls} have no output"
        async for event in super().stream(request):
            yield event


def acting(effect: Effect, name: str, database: str = "sqlite") -> Tool:
    """A tool of an effect, that says what it did; some take longer than others."""

    @tool(name=name, effect=effect)
    async def act(what: int) -> str:
        """Act."""
        await asyncio.sleep(0.002 * (what % 3))
        return f"did {what}"

    def run(tx: Tx) -> str:
        tx.execute("SELECT 1")
        return "committed"

    async def run_later(tx: AsyncTx) -> str:
        await tx.execute("SELECT 1")
        return "committed"

    @tool(name=name, effect="transactional")
    async def commit(what: int) -> Transaction:
        """Commit."""
        await asyncio.sleep(0.002 * (what % 3))
        return run if database == "sqlite" else run_later

    return commit if effect == "transactional" else act


def _agent(script: Script, tools: list[Tool], how: str = "parallel", **options: object) -> Agent:
    plain: Agent = Agent(StrictModel(script), sequential=how == "sequence")
    return plain.with_(tools=tools, **options)


def batch(effect: Effect, how: str, database: str) -> Agent:
    """Three calls at once, the first the slowest, and an answer."""
    calls = turn(*(call("act", {"what": what}) for what in (2, 1, 0)))
    return _agent([calls, "Done."], [acting(effect, "act", database)], how)


def mixed(how: str, database: str) -> Agent:
    """A call of each effect at once, then one more that acts once, then an answer."""
    tools = [acting(effect, effect, database) for effect in EFFECTS]
    calls = turn(*(call(effect, {"what": 5 - place}) for place, effect in enumerate(EFFECTS)))
    return _agent([calls, call("once", {"what": 9}), "Done."], tools, how)


def one(effect: Effect, database: str = "sqlite") -> Agent:
    """One call, and an answer."""
    return _agent([call("act", {"what": 0}), "Done."], [acting(effect, "act", database)])


@before_tool_call
async def ask(info: ToolCallInfo) -> ToolDecision | None:
    """Holds what is risky."""
    risky = info.call.name == "risky"
    return ToolDecision(action="hold", reason="it is risky") if risky else None


def held() -> Agent:
    """Two calls at once, one of which waits for an approval."""
    calls = turn(call("risky", {"what": 0}), call("plain", {"what": 1}))
    tools = [acting("once", "risky"), acting("once", "plain")]
    return _agent([calls, "Done."], tools, middleware=(ask,))


DEMAND = Approval(need=2, of=["ann", "bo", "cy"])


def gate(act: Tool) -> Tool:
    """The tool, which two of three people have to approve."""
    return wrap(act, approval=DEMAND)


def voted() -> Agent:
    """Two calls at once, one of which waits for the votes of two of three people."""
    calls = turn(call("risky", {"what": 0}), call("plain", {"what": 1}))
    tools = [gate(acting("once", "risky")), acting("once", "plain")]
    return _agent([calls, "Done."], tools, approvers=chaos_keys)


def nested_voted() -> Agent:
    """A sub-agent that waits for a word before it begins, and one of whose calls for votes."""
    script: Script = [turn(call("risky", {"what": 0}), call("plain", {"what": 1})), "Child's done."]
    tools = [gate(acting("once", "risky")), acting("once", "plain")]
    inner = _agent(script, tools, approvers=chaos_keys)
    helper = inner.with_(name="helper").as_tool("helper", "Helps.", approval=True)
    return _agent([call("helper", {"task": "Help."}), "Done."], [helper])


def once() -> Agent:
    """One call that acts once."""
    return one("once")


def nested() -> Agent:
    """A sub-agent that acts once, beside a call that does so too."""
    inner = _agent([call("act", {"what": 0}), "The child is done."], [acting("once", "act")])
    helper = inner.with_(name="helper").as_tool("helper", "Helps.")
    calls = turn(call("helper", {"task": "Help."}), call("act", {"what": 1}))
    return _agent([calls, "Done."], [helper, acting("once", "act")])


def nested_held() -> Agent:
    """A sub-agent one of whose calls waits for an approval."""
    script: Script = [turn(call("risky", {"what": 0}), call("plain", {"what": 1})), "Child's done."]
    inner = _agent(script, [acting("once", "risky"), acting("once", "plain")], middleware=(ask,))
    helper = inner.with_(name="helper").as_tool("helper", "Helps.")
    return _agent([call("helper", {"task": "Help."}), "Done."], [helper])


def paying(effect: Effect, name: str = "pay", database: str = "sqlite") -> Tool:
    """A tool of an effect, with a compensator."""

    async def refund(undo: Compensation) -> None:
        await asyncio.sleep(0)

    return wrap(acting(effect, name, database), compensator=refund)


@tool(effect="idempotent")
async def ship() -> str:
    """Fail."""
    await asyncio.sleep(0.002)
    raise ToolError("nothing is left")


def _level(
    level: int, effect: Effect, fails: int, database: str
) -> tuple[list[TurnLike], list[Tool]]:
    """Pays, and lets the level below do the same; one of them fails then."""
    script: list[TurnLike] = [call("pay", {"what": level})]
    tools: list[Tool] = [paying(effect, database=database)]
    if level < 3:
        inner, its_tools = _level(level + 1, effect, fails, database)
        name = f"level{level + 1}"
        below = Agent(StrictModel(inner), name=name, tools=its_tools)
        tools.append(below.as_tool(name, "Goes deeper."))
        script.append(call(name, {"task": "Go on."}))
    if level == fails:
        tools.append(ship)
        script.append(call("ship"))
    return [*script, f"Level {level} is done."], tools


def saga(effect: Effect, fails: str, database: str) -> Agent:
    """Payments at three levels of sub-agents below the run; a call at one of the levels fails."""
    script, tools = _level(0, effect, int(fails), database)
    return _agent(script, tools)


def saga_batch(how: str, database: str) -> Agent:
    """A payment of each effect, then as many beside a call that fails."""
    tools = [paying(effect, effect, database) for effect in EFFECTS]
    calls = [call(effect, {"what": 5 - place}) for place, effect in enumerate(EFFECTS)]
    script: Script = [turn(*calls), turn(*calls[:3], call("ship"), *calls[3:]), "Never."]
    return _agent(script, [*tools, ship], how)


def saga_nested() -> Agent:
    """A tool that makes payments, which are undone after its own."""

    @tool(effect="idempotent")
    async def trip() -> str:
        """Book a trip."""
        first = await invoke("pay", {"what": 0})
        second = await invoke("keep", {"what": 1})
        return f"{first.output} {second.output}"

    async def cancel_trip(undo: Compensation) -> None:
        await asyncio.sleep(0)

    tools = [wrap(trip, compensator=cancel_trip), paying("once"), paying("keyed", "keep"), ship]
    return _agent([call("trip"), call("ship"), "Never."], tools)


def reconciled() -> Agent:
    """Calls whose outcome is looked up, in a world that remembers what was done in it."""
    world = tempfile.mkdtemp(prefix="perdure-world-")
    atexit.register(shutil.rmtree, world, ignore_errors=True)

    def place(call: Call) -> Path:
        return Path(world, call.idempotency_key.replace("/", "-"))

    @tool(effect="once")
    async def charge(what: int, call: Call) -> str:
        """Charge a card."""
        with place(call).open("x") as file:
            file.write(f"did {what}")
        return f"did {what}"

    @charge.reconcile
    async def look_up(call: Call) -> Found | NeverRan:
        done = place(call)
        return Found(done.read_text()) if done.exists() else NeverRan(min_age=0.0)

    calls = turn(call("charge", {"what": 0}), call("charge", {"what": 1}))
    return _agent([calls, "Done."], [charge])


def __getattr__(name: str) -> Callable[[], Agent]:
    parts = name.split("_")
    if len(parts) == 4 and parts[0] == "batch":
        return functools.partial(batch, cast("Effect", parts[1]), parts[2], parts[3])
    if len(parts) == 4 and parts[:2] == ["saga", "batch"]:
        return functools.partial(saga_batch, parts[2], parts[3])
    if len(parts) == 4 and parts[0] == "saga":
        return functools.partial(saga, cast("Effect", parts[1]), parts[2], parts[3])
    if len(parts) == 3 and parts[0] == "mixed":
        return functools.partial(mixed, parts[1], parts[2])
    raise AttributeError(name)

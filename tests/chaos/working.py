"""Agents and programs with steps and waits, whose runs die in tests. Processes find them by name.

`WHERE_WHAT` is one whose work stands in a tool of its own (`tool`), in one three levels of
sub-agents deep (`deep`), in a program without a model (`program`), in two agents that a program
drives (`part`), in one three levels deep below a program (`below`), or in an agent that the tool of
another calls, which a program drives (`asked`). What it does is two steps of an effect with a sleep
between them, or a wait of a kind between two steps that act once. `together` is a saga that has
some of each.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from perdure import (
    Agent,
    Budget,
    Compensation,
    Program,
    interrupt,
    invoke,
    parallel,
    race,
    receive,
    run_agent,
    sleep,
    step,
    tool,
    wait_for,
)
from perdure.testing import call, turn
from perdure.testing.chaos_votes import chaos_keys
from perdure.testing.chaos_waits import Answers
from perdure.testing.scripted import Script
from perdure.tools import Effect, Tool, wrap
from tests.chaos.agents import StrictModel, acting, gate, paying, ship

Work: TypeAlias = Callable[[], Awaitable[object]]

ANSWERS = Answers(signals={"paid": 5}, answers={"sure": True}, messages={"orders": [1, 2]})

EFFECTS: tuple[Effect, ...] = ("none", "idempotent", "keyed", "once")

KINDS = ("sleep", "signal", "timely", "timeout", "channel", "interrupt", "race")

OTHERS = ("atonce", "invoked")


async def do(what: str) -> str:
    """Take effect, and say so."""
    await asyncio.sleep(0.001)
    return f"did {what}"


async def steps(effect: Effect) -> object:
    """Two steps of an effect, some time apart."""
    first = await step("one", lambda: do("one"), effect=effect)
    await sleep("night", 3600)
    return [first, await step("two", lambda: do("two"), effect=effect)]


async def _sleep() -> object:
    await sleep("night", 3600)
    return "slept"


async def _signal() -> object:
    return await wait_for("paid")


async def _timely() -> object:
    return await wait_for("paid", timeout=3600)


async def _timeout() -> object:
    try:
        return await wait_for("never", timeout=3600)
    except TimeoutError:
        return "in vain"


async def _channel() -> object:
    found: list[object] = []
    for _ in range(2):
        message = await receive("orders")
        found.append(await step(f"pack {message.key}", lambda: do("pack")))
        await message.ack()
    return found


async def _interrupt() -> object:
    return await interrupt("sure", "Sure?", bool)


async def _race() -> object:
    first = await race("first", {"never": wait_for("never"), "night": sleep("night", 3600)})
    return first.which


WAITS: dict[str, Work] = {
    "sleep": _sleep,
    "signal": _signal,
    "timely": _timely,
    "timeout": _timeout,
    "channel": _channel,
    "interrupt": _interrupt,
    "race": _race,
}


async def between(wait: Work) -> object:
    """A wait between two steps that act once."""
    first = await step("before", lambda: do("before"))
    came = await wait()
    return [first, came, await step("behind", lambda: do("behind"))]


async def at_once() -> object:
    """Steps and waits at once."""
    async with asyncio.TaskGroup() as group:
        group.create_task(sleep("night", 3600))
        group.create_task(wait_for("paid"))
        both = group.create_task(
            parallel([(name, functools.partial(do, name)) for name in ("a", "b")])
        )
    return [both.result(), await step("behind", lambda: do("behind"))]


async def invoked() -> object:
    """A wait between two calls of a tool that acts once, and one that has no effect."""
    first = await invoke("act", {"what": 0})
    await sleep("night", 3600)
    seen = await invoke("look", {"what": 2})
    return [first.output, seen.output, (await invoke("act", {"what": 1})).output]


def work_of(what: str) -> Work:
    """What there is to do, by its word."""
    if what in EFFECTS:
        return functools.partial(steps, what)
    if what in WAITS:
        return functools.partial(between, WAITS[what])
    return {"atonce": at_once, "invoked": invoked}[what]


def _worker(work: Work, name: str = "worker") -> Agent:
    @tool(name="work", effect="idempotent")
    async def doing() -> object:
        """Work."""
        return await work()

    tools: list[Tool] = [doing, acting("once", "act"), acting("none", "look")]
    return Agent(StrictModel([call("work"), "It is worked."]), name=name, tools=tools)


def _above(agent: Agent, level: int) -> Agent:
    script: Script = [call(agent.name, {"task": "Go on."}), f"Level {level} is done."]
    below = agent.as_tool(agent.name, "Goes deeper.")
    return Agent(StrictModel(script), name=f"level{level}", tools=[below])


def in_tool(what: str) -> Agent:
    """The work in a tool of the run's own agent."""
    return _worker(work_of(what))


def in_deep(what: str) -> Agent:
    """The work three levels of sub-agents below the run."""
    agent = _worker(work_of(what))
    for level in (3, 2, 1):
        agent = _above(agent, level)
    return agent


def in_program(what: str) -> Program[object]:
    """The work in a program without a model."""
    work = work_of(what)

    async def program() -> object:
        return await work()

    return Program(program, name=f"program-{what}")


def in_part(what: str) -> Program[object]:
    """The work of two agents that a program drives at once, beside a step of its own."""

    async def program() -> object:
        async with asyncio.TaskGroup() as group:
            parts = [
                group.create_task(run_agent(name, _worker(work_of(what), name), "Work."))
                for name in ("first", "second")
            ]
        return [[part.result() for part in parts], await step("close", lambda: do("close"))]

    return Program(program, name=f"parts-{what}")


def _driving(agent: Agent, name: str) -> Program[object]:
    """A program that has an agent do all there is to do."""

    async def program() -> object:
        return await run_agent("part", agent, "Work.")

    return Program(program, name=name)


def in_below(what: str) -> Program[object]:
    """The work in a tool three levels of agents below a program."""
    agent = _worker(work_of(what))
    for level in (2, 1):
        agent = _above(agent, level)
    return _driving(agent, f"below-{what}")


def in_asked(what: str) -> Program[object]:
    """The work in an agent that the tool of another calls, which a program drives."""
    worker = _worker(work_of(what))

    @tool(name="ask", effect="idempotent")
    async def asking() -> object:
        """Ask an agent."""
        return (await invoke("worker", {"task": "Work."})).output

    tools: list[Tool] = [asking, worker.as_tool("worker", "Works.")]
    asker = Agent(StrictModel([call("ask"), "It was asked."]), name="asker", tools=tools)
    return _driving(asker, f"asked-{what}")


WHERE: dict[str, Callable[[str], Agent | Program[object]]] = {
    "tool": in_tool,
    "deep": in_deep,
    "program": in_program,
    "part": in_part,
    "below": in_below,
    "asked": in_asked,
}


def together() -> Agent:
    """A saga with a budget, all of whose work is undone.

    A sub-agent takes a step, sleeps and takes another, and makes a payment that two of three people
    approve. What its parent does next fails.
    """

    @tool(effect="keyed")
    async def book() -> str:
        """Book."""
        first = await step("one", lambda: do("one"), effect="once")
        await sleep("night", 3600)
        return f"{first}, {await step('two', lambda: do('two'), effect='once')}"

    async def unbook(undo: Compensation) -> None:
        await asyncio.sleep(0)

    clerk = Agent(
        StrictModel([turn(call("book"), call("pay", {"what": 0})), "It is paid."]),
        name="clerk",
        tools=[wrap(book, compensator=unbook), gate(paying("once"))],
        approvers=chaos_keys,
    )
    script: Script = [call("clerk", {"task": "Pay."}), call("ship"), "Never."]
    return Agent(
        StrictModel(script),
        tools=[clerk.as_tool("clerk", "Pays."), ship],
        budget=Budget(tokens=1_000_000),
    )


def __getattr__(name: str) -> Callable[[], Agent | Program[object]]:
    where, _, what = name.partition("_")
    if where in WHERE and what in (*EFFECTS, *KINDS, *OTHERS):
        return functools.partial(WHERE[where], what)
    raise AttributeError(name)

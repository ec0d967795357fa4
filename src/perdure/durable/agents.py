"""Agents that a program drives: each a session below the program's run, as a sub-agent is.

An agent is entered again with its program, and goes on where its session ends. What it waits for,
the program waits for. Several may run at once; the program unwinds when all of them rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

import msgspec
from msgspec import Raw

from perdure.durable.callwork import ProgramPort, Recorded, check_between_steps, recorded_now
from perdure.durable.children import AgentTool
from perdure.durable.driven import Driven
from perdure.durable.given import check_name, check_text
from perdure.durable.waits import asking, ended, suspend
from perdure.errors import ConfigError, StepFailed, Suspend, ToolError
from perdure.log import Draft, subsession_id
from perdure.log.calls import SUBSESSION
from perdure.log.work import CHILD
from perdure.tools import ToolResult
from perdure.tools.result import json_text
from perdure.wire import text_of


def _plain(agent: Driven) -> AgentTool:
    return AgentTool(agent, "agent", "")


agent_tool: ContextVar[Callable[[Driven], AgentTool]] = ContextVar(
    "perdure_agent_tool", default=_plain
)
"""Makes the tool behind which an agent of a program works; another, for those who try crashes."""

_RUNNING = "perdure:agent/"
"""What stands before the name of an agent among the work of a program that runs."""


async def run_agent(name: str, agent: Driven, task: str) -> str:
    """Have an agent do a task, as a part of a program; its answer is recorded, and taken once.

    Its work is a session of its own below the program's run: its tools keep their effects, what it
    waits for is shown on the run's `pending` with the path that leads to it, and cancelling the run
    cancels it.

    Args:
        name: Unique among the agents of the program.
        agent: The agent. Its store is not used: it is recorded with the program.
        task: What it is to do.

    Returns:
        Its answer, as text.

    Raises:
        ToolError: It failed, or was stopped before it had an answer; asked again, `StepFailed`.
        ConfigError: The name cannot be used, or no program is running here.
    """
    check_name(name, "agent")
    if not hasattr(agent, "tools_now") or isinstance(agent, type):
        raise ConfigError(f"agent {name!r} is no Agent: {agent!r}")
    check_text(task, f"the task of agent {name!r}")
    recorded = recorded_now()
    if recorded is None or recorded.target:
        raise ConfigError("run_agent() is for programs; in a tool, invoke the agent as a tool")
    check_between_steps(f"agent {name!r}")
    wait = recorded.work.waits.get((CHILD, name))
    if wait is not None and wait.end is not None:
        value = str(msgspec.json.decode(bytes(wait.end.value)))
        if wait.end.outcome == "failed":
            raise StepFailed(name, value)
        return value
    with asking(recorded, CHILD, name, None):
        if wait is None:
            await _linked(recorded, name)
        result = await _rested(recorded, name, agent, task)
        if result is None:
            await suspend(recorded, f"agent {name!r} waits")
        if isinstance(result, ToolError):
            await _ended(recorded, name, "failed", str(result))
            raise result
        await _ended(recorded, name, "answer", text_of(result.output))
        return text_of(result.output)


async def _linked(recorded: Recorded, name: str) -> None:
    """Write that an agent is about to begin, and where: before it does, so that it is found."""
    session = subsession_id(recorded.recording.session.id, name)
    link = {"rel": SUBSESSION, "session": session, "call_id": name}
    begin = {"phase": "begin", "kind": CHILD, "name": name}
    with recorded.at_work():
        await recorded.recording.append(Draft("link", link), Draft("perdure:wait", begin))


async def _rested(
    recorded: Recorded, name: str, agent: Driven, task: str
) -> ToolResult | ToolError | None:
    """What an agent gave, or failed with; None if it waits.

    It runs on a task of its own, which a wait of the program beside it lets come to rest first.
    """
    key = f"{_RUNNING}{name}"
    if key in recorded.running:
        raise ConfigError(f"agent {name!r} of this program is running; give another its own name")
    call = recorded.call.part(name, agent.name, json_text({"task": task}))

    gave: list[ToolResult | ToolError] = []

    async def work() -> object:
        try:
            gave.append(await agent_tool.get()(agent).execute(call))
        except ToolError as error:
            gave.append(error)
        except Suspend as waits:
            recorded.agents[name] = {n: v for n, v in waits.wait.items() if n != "kind"}
        return gave

    running: asyncio.Task[object]
    running = asyncio.get_running_loop().create_task(work(), name=f"perdure-agent-{name}")
    recorded.running[key] = running
    running.add_done_callback(lambda _: recorded.running.pop(key, None))
    port = recorded.call.port
    if isinstance(port, ProgramPort):
        port.attend(running)
    await asyncio.shield(running)
    return gave[0] if gave else None


async def _ended(recorded: Recorded, name: str, outcome: str, value: str) -> None:
    wait = recorded.work.waits[CHILD, name]
    await ended(recorded, wait, outcome, Raw(msgspec.json.encode(value)))

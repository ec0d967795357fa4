"""The members of a wait, as the page lists them and as a pending call has them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from perdure import Agent, Program, interrupt, receive, run_agent, sleep, tool, wait_for
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call

PAGE = Path(__file__).parents[2] / "docs" / "steps-and-waits.md"


def listed() -> set[str]:
    """The members that the table names, in its first column."""
    section = PAGE.read_text("utf-8").partition("## What a wait says")[2].partition("\n## ")[0]
    rows = (line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@tool(effect="idempotent")
async def several() -> None:
    """Wait for all that there is."""
    async with asyncio.TaskGroup() as group:
        group.create_task(interrupt("sure", "Sure?", bool))
        group.create_task(sleep("night", 60))
        group.create_task(wait_for("paid", timeout=30))
        group.create_task(receive("orders"))


def clerk() -> Agent:
    model = ScriptedModel([call("several"), "Done."])
    return Agent(model, name="clerk", description="Waits.", tools=[several])


async def test_the_page_lists_every_member_of_a_wait() -> None:
    boss = ScriptedModel([call("clerk", {"task": "Wait."}), "Done."])
    agent = Agent(boss, tools=[clerk().as_tool()], store=MemoryStore())

    async def program() -> str:
        return await run_agent("part", clerk(), "Wait.")

    found: set[str] = set()
    for result in (
        await agent.run("Go.", run_id="r"),
        await Program(program, store=MemoryStore()).run(run_id="r"),
    ):
        for pending in result.pending:
            wait = dict(pending.wait or {})
            inner = wait.get("waits", [])
            assert isinstance(inner, list)
            found |= wait.keys() | {name for one in inner for name in one}
    assert found >= {"kind", "name", "due", "prompt", "schema", "session", "status", "waits"}
    assert found <= listed()

"""A program that kills its process: `python -m tests.chaos.killing URL PARTS`.

It takes a step and kills its process, as often as it has parts; one without parts kills it each
time, and one with -1 while an agent of it waits. A process after the other asks for its run, until
one lives; how each ended is printed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from perdure import Agent, Program, interrupt, run_agent, step, tool
from perdure.testing import ScriptedModel, call

RUN = "r"

MOST = 12
"""How many processes ask for a run at most."""


def killing(url: str, parts: int) -> Program[object]:
    """The program, for whoever may kill it."""

    async def kills() -> str:
        if parts < 0:
            return await _beside_an_agent()
        for part in range(parts):
            taken: list[int] = []
            await step(f"part {part}", lambda: taken.append(1), effect="idempotent")  # noqa: B023
            if taken:
                os.kill(os.getpid(), signal.SIGKILL)
        if not parts:
            os.kill(os.getpid(), signal.SIGKILL)
        return "all"

    return Program(kills, store=url, lease=0.2)


async def _beside_an_agent() -> str:
    @tool(effect="idempotent")
    async def ask() -> str:
        """Ask."""
        return str(await interrupt("sure", "Sure?", bool))

    asker = Agent(ScriptedModel([call("ask"), "Asked."]), name="asker", tools=[ask])

    async def kills() -> None:
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)

    async with asyncio.TaskGroup() as group:
        group.create_task(run_agent("part", asker, "Ask."))
        group.create_task(step("late", kills, effect="idempotent"))
    return "asked"


async def _ask(url: str, parts: int) -> str:
    program = killing(url, parts)
    try:
        return (await program.run(run_id=RUN)).status
    finally:
        await program.aclose()


def _life(url: str, parts: int) -> str:
    """How a process ended: the status that it was told, or what killed it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, asyncio.run(_ask(url, parts)).encode())
        os._exit(0)
    os.close(writing)
    said = os.read(reading, 100).decode()
    os.close(reading)
    _, status = os.waitpid(child, 0)
    return said or signal.Signals(-os.waitstatus_to_exitcode(status)).name


def main(url: str, parts: str) -> None:
    for _ in range(MOST):
        ended = _life(url, int(parts))
        sys.stdout.write(f"{ended}\n")
        if ended != "SIGKILL":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])

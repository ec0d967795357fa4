"""A program that rolls a saga back, cancels it meanwhile, and kills itself on the way.

`python -m tests.stores.rollback_killed DIRECTORY < spots` reads `NAME WHO POINT NUMBER` a line and
forks a process for each, which drives the saga in `NAME.db` and dies at that write behind the
failure of it. WHO cancels: `inside`, a compensator of the process itself; `after`, nobody yet;
`dying`, a second process, which dies at its own first write.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import cast

from perdure import Agent, RunResult, Runs, SagaRolledBack, ToolError, tool
from perdure.clock import Clock, SystemClock
from perdure.stores.points import At, Point
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ScriptedModel, call

RUN = "order-42"


class Book:
    """What was done and undone, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, line: str) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{line}\n".encode())
        os.close(handle)

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def book_of(directory: Path, name: str) -> Book:
    return Book(directory / f"{name}.txt")


async def cancel(directory: Path, name: str, *, at: At | None = None) -> None:
    """Cancel the run, as an operator in a process of its own does."""
    path = directory / f"{name}.db"
    store = SqliteStore(path, at=at) if at is not None else SqliteStore(path)
    await Runs(store).cancel(RUN, by="ann")
    book_of(directory, name).write("cancelled")
    await store.close()


async def roll_back(
    directory: Path, name: str, *, inside: bool = False, at: At | None = None, clock: Clock
) -> RunResult[str]:
    """Drive the saga: two payments, one of a sub-agent, and then something that fails."""
    book = book_of(directory, name)

    async def refund(cents: int) -> None:
        book.write(f"undid {cents}")
        if inside and "cancelled" not in book.lines:
            await cancel(directory, name)

    @tool(effect="once", compensate=refund)
    async def pay(cents: int) -> str:
        """Pay."""
        book.write(f"did {cents}")
        return "paid"

    @tool(effect="none")
    async def ship() -> str:
        """Fail."""
        book.write("fails")
        raise ToolError("the warehouse is empty")

    helper = Agent(ScriptedModel([call("pay", {"cents": 2}), "ok"]), name="helper", tools=[pay])
    script = [call("pay", {"cents": 1}), call("helper", {"task": "Pay."}), call("ship")]
    path = directory / f"{name}.db"
    store = (
        SqliteStore(path, at=at, clock=clock) if at is not None else SqliteStore(path, clock=clock)
    )
    agent = Agent(ScriptedModel(script), tools=[pay, helper.as_tool(), ship], store=store)
    try:
        return await agent.run("Sell it.", run_id=RUN, saga=True)
    finally:
        await store.close()


def killing(point: Point, number: int, *, begun: Callable[[], bool]) -> At:
    """Kill this process at the given time that a point is reached, once something has begun."""
    left = number

    def at(reached: Point) -> None:
        nonlocal left
        if reached == point and begun():
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return at


def forked(work: Callable[[], Coroutine[object, object, object]]) -> int:
    """Do something in a process of its own; how it ended."""
    process = os.fork()
    if not process:
        try:
            asyncio.run(work())
        except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def spot(directory: Path, line: str) -> list[int]:
    """How the processes of a spot ended."""
    name, who, reached, number = line.split()
    point, book = cast("Point", reached), book_of(directory, name)
    at = killing(point, int(number), begun=lambda: "fails" in book.lines)

    async def drive() -> None:
        with contextlib.suppress(SagaRolledBack):
            await roll_back(directory, name, inside=who == "inside", at=at, clock=SystemClock())

    ended = [forked(drive)]
    if who == "dying":
        dying = killing(point, 1, begun=lambda: True)
        ended.append(forked(lambda: cancel(directory, name, at=dying)))
    return ended


def main() -> None:
    for line in sys.stdin:
        ended = spot(Path(sys.argv[1]), line)
        sys.stdout.write(f"{line.split()[0]}\t{ended}\n")


if __name__ == "__main__":
    main()

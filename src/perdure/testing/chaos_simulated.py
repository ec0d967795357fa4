"""Processes that die without a process: an event loop that is left where it stands.

What a dead process was doing, it does no more: no handler runs, nothing is written, no tool goes
on. So a loop whose process died is stopped and never run again, and all that belongs to it is kept
until this process ends, because throwing it away would run what cleans up after it. The tools of
sync functions are the exception: their threads run to their end.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from perdure.testing.chaos_store import Fault, Faults

Ended: TypeAlias = Literal["ended", "killed", "hung"]

_TOOL_THREAD = "perdure-tool-"
_THREAD_PATIENCE = 5.0

_graves: list[object] = []
"""Loops whose processes died, with their tasks. It lives longer than the interpreter cleans up."""

ctypes.pythonapi.Py_IncRef(ctypes.py_object(_graves))


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


def simulate(
    work: Callable[[Faults], Awaitable[object]], fault: Fault | None, *, patience: float
) -> Ended:
    """Run a life on an event loop of its own; how it ended.

    Args:
        work: The life; it dies where the faults it gets say so.
        fault: Where.
        patience: Seconds after which it counts as hung.
    """
    loop = asyncio.new_event_loop()

    async def die() -> None:
        loop.stop()
        await _forever()

    faults = Faults(fault, die)
    task = loop.create_task(_awaited(work(faults)), name="perdure-chaos-life")
    task.add_done_callback(lambda _: loop.stop())
    timer = loop.call_later(patience, loop.stop)
    loop.run_forever()
    timer.cancel()
    if task.done() and not faults.dead:
        _wind_up(loop)
        task.result()
        return "ended"
    _bury(loop)
    return "killed" if faults.dead else "hung"


async def _awaited(work: Awaitable[object]) -> object:
    return await work


def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    """End a loop as `asyncio.run` does."""
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    with contextlib.closing(loop):
        if rest:
            loop.run_until_complete(asyncio.wait(rest))
        loop.run_until_complete(loop.shutdown_asyncgens())


def _bury(loop: asyncio.AbstractEventLoop) -> None:
    for thread in threading.enumerate():
        if thread.name.startswith(_TOOL_THREAD):
            thread.join(_THREAD_PATIENCE)
    tasks = asyncio.all_tasks(loop)
    _graves.append((loop, tasks, [task.get_coro() for task in tasks]))
    loop.close()

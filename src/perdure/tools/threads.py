"""Threads for sync tools.

They are daemons of our own and not the event loop's default executor: a tool that hangs cannot
hold up the exit of the process (DESIGN 8). A thread that nobody waits for any more runs on; what
it gives then is late.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def start_thread(function: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Call `function` on a daemon thread of its own.

    The function sees the context variables of the caller. The future may be given up: the thread
    goes on, and what it gives is dropped if the event loop has closed by then.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            value = context.run(function)
        except BaseException as error:  # noqa: BLE001 - it travels to whoever waits
            _post(loop, _fail, future, error)
        else:
            _post(loop, _succeed, future, value)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


def _post(loop: asyncio.AbstractEventLoop, settle: Callable[..., None], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(settle, *args)
    except RuntimeError:  # the loop has closed: nobody can be told
        if not loop.is_closed():
            raise


def _succeed(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[object], error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future refuses it: it would end the awaiting generator
        stopped = RuntimeError("the function raised StopIteration")
        stopped.__cause__ = error
        error = stopped
    future.set_exception(error)

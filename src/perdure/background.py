"""The event loop behind `run_sync`: one a process, in a thread of its own, until it ends."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import TypeVar

from perdure.errors import InsideEventLoop

T = TypeVar("T")

_CLOSE_SECONDS = 5.0
"""How long the end of the process waits for the loop to close what it holds."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def run_sync(work: Callable[[], Coroutine[object, object, T]], *, name: str, instead: str) -> T:
    """Run a coroutine on the background loop and wait for it.

    Ctrl-C cancels it, waits for it to wind down, and raises KeyboardInterrupt.

    Args:
        work: Makes the coroutine.
        name: What the caller is called, for the message.
        instead: What to await inside an event loop.

    Raises:
        InsideEventLoop: An event loop is running in this thread.
    """
    if _inside_loop():
        raise InsideEventLoop(name, instead)
    future = asyncio.run_coroutine_threadsafe(work(), _ensure())
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        concurrent.futures.wait([future])
        raise


def _inside_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _ensure() -> asyncio.AbstractEventLoop:
    global _loop, _thread  # noqa: PLW0603 - one loop a process is the point
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(
                target=_loop.run_forever, name="perdure background loop", daemon=True
            )
            _thread.start()
        return _loop


def close() -> None:
    """Stop the background loop, and let it close what it holds. The next call starts another."""
    global _loop, _thread
    with _lock:
        loop, thread, _loop, _thread = _loop, _thread, None, None
    if loop is None or thread is None:
        return
    asyncio.run_coroutine_threadsafe(_wind_down(), loop).result(_CLOSE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSE_SECONDS)
    if not thread.is_alive():
        loop.close()


async def _wind_down() -> None:
    here = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not here]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CLOSE_SECONDS / 2)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _forget() -> None:
    """In a forked child the thread is gone; the next call starts another."""
    global _lock, _loop, _thread
    _lock, _loop, _thread = threading.Lock(), None, None


atexit.register(close)
os.register_at_fork(after_in_child=_forget)

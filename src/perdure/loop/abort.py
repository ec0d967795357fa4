"""How a drive is told to stop.

An abort interrupts one kind of wait: the drive's own, inside `guard`. It never cuts a
delivery, and tools hear of it from their executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TypeVar

from perdure.errors import Aborted

T = TypeVar("T")


class AbortSignal:
    """Whether and why a drive should stop. It is set once."""

    __slots__ = ("_interrupted", "_task", "cause", "listeners")

    def __init__(self) -> None:
        self.cause: Exception | None = None
        self._task: asyncio.Task[object] | None = None
        self._interrupted = False
        self.listeners: list[Callable[[], object]] = []
        """Called once when the drive is told to stop."""

    def abort(self, cause: BaseException) -> None:
        """Stop. The first cause stands.

        One that is no `Exception` would leave through the event loop where it is raised, so an
        `Aborted` stands for it.
        """
        if self.cause is not None:
            return
        self.cause = cause if isinstance(cause, Exception) else _standing_for(cause)
        if self._task is not None and self._task is not asyncio.current_task():
            self._interrupted = True
            self._task.cancel()
        for listener in list(self.listeners):
            listener()

    def check(self) -> None:
        """Raise the cause if the drive was told to stop."""
        if self.cause is not None:
            raise self.cause

    def _raise_cause(self) -> None:
        if self.cause is not None:
            raise self.cause from None

    async def guard(self, awaitable: Awaitable[T]) -> T:
        """Await something that an abort may cut.

        Raises:
            Aborted: Or whatever the cause is, in place of the cancellation.
        """
        if self.cause is not None:
            if isinstance(awaitable, Coroutine):
                awaitable.close()
            raise self.cause
        task = self._task = asyncio.current_task()
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._interrupted:
                self._raise_cause()
            raise
        finally:
            self._task = None
            if self._interrupted and task is not None:
                task.uncancel()
                self._interrupted = False

    @contextmanager
    def listening(self, listener: Callable[[], object]) -> Generator[None]:
        """Call `listener` once when the drive is told to stop, at once if it already was."""
        self.listeners.append(listener)
        try:
            if self.cause is not None:
                listener()
            yield
        finally:
            self.listeners.remove(listener)


def _standing_for(cause: BaseException) -> Aborted:
    aborted = Aborted(str(cause) or type(cause).__name__)
    aborted.__cause__ = cause
    return aborted

"""The store under test, and how a function becomes a check of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TypeAlias

from perdure.log.store import Store


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The store under test.

    Attributes:
        open: Opens it; called again, it opens the same one once more.
        persistent: Whether what was written is there when it is opened again.
    """

    open: Callable[[], Store]
    persistent: bool = True

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[Store]:
        """The store, until the block ends."""
        store = self.open()
        try:
            yield store
        finally:
            await store.close()


Check: TypeAlias = Callable[[Subject], Awaitable[None]]

CHECKS: list[Check] = []
"""Every check."""


def name_of(check: Check) -> str:
    """What a check is called."""
    return getattr(check, "__name__", "check")


def checks(function: Callable[[Store], Awaitable[None]]) -> Check:
    """Make a check of what a store that was just opened must do."""

    async def run(subject: Subject) -> None:
        async with subject.opened() as store:
            await function(store)

    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    CHECKS.append(run)
    return run


def reopens(function: Check) -> Check:
    """Make a check of what a store does that is opened more than once."""

    async def run(subject: Subject) -> None:
        if subject.persistent:
            await function(subject)

    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    CHECKS.append(run)
    return run


@contextlib.contextmanager
def refused(*errors: type[BaseException]) -> Generator[None]:
    """See that the block raises one of these."""
    try:
        yield
    except errors:
        return
    names = " or ".join(error.__name__ for error in errors)
    raise AssertionError(f"the store did not raise {names}")

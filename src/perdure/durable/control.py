"""The end by which a driver is told to stop, and where it stopped."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator

from perdure.durable.driven import Handle
from perdure.errors import FenceLost, LeaseExpired, StaleVersion
from perdure.loop import RunEnd

LOST = (FenceLost, LeaseExpired, StaleVersion)
"""What says that somebody else may drive now."""


class Control:
    """The end by which a driver is told to stop. Its drive is aborted, and no other is started."""

    __slots__ = ("_listeners", "cause", "handle")

    def __init__(self) -> None:
        self.cause: BaseException | str | None = None
        self.handle: Handle | None = None
        """The drive that runs, or ran last."""
        self._listeners: list[Callable[[], None]] = []

    def abort(self, cause: BaseException | str = "aborted") -> None:
        """Stop. The first cause stands."""
        self.cause = self.cause or cause
        if self.handle is not None:
            self.handle.abort(cause)
        for listener in list(self._listeners):
            listener()

    @contextlib.contextmanager
    def listening(self, listener: Callable[[], None]) -> Generator[None]:
        """Call `listener` when the driver is told to stop, at once if it already was."""
        self._listeners.append(listener)
        try:
            if self.cause is not None:
                listener()
            yield
        finally:
            self._listeners.remove(listener)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rested:
    """Where a driver stopped."""

    status: str
    end: RunEnd | None = None
    """Of its last drive, if it drove."""
    failure: Exception | None = None
    """What it failed with outside of a drive."""
    gone: bool = False
    """It lost its lease outside of a drive."""

    @property
    def error(self) -> BaseException | None:
        """What it failed with, or its last drive did."""
        if self.failure is not None:
            return self.failure
        return self.end.error if self.end is not None and self.end.reason == "error" else None

    @property
    def lost(self) -> bool:
        """Whether it stopped because somebody else may drive."""
        return self.gone or (self.end is not None and isinstance(self.end.error, LOST))

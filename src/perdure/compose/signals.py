"""A signal that stops runs from outside: one may be shared by many."""

from __future__ import annotations

from collections.abc import Callable

from perdure.errors import Aborted


class RunSignal:
    """Set once; every run that was given it stops, and one that begins later fails at once."""

    __slots__ = ("_listeners", "_reason")

    def __init__(self) -> None:
        self._reason: str | None = None
        self._listeners: list[Callable[[str], None]] = []

    @property
    def reason(self) -> str | None:
        """Why it was set; None while it is not."""
        return self._reason

    def set(self, reason: str = "aborted") -> None:
        """Stop. The first reason stands."""
        if self._reason is not None:
            return
        self._reason = reason
        for listener in list(self._listeners):
            listener(reason)

    def check(self) -> None:
        """Raise if it was set.

        Raises:
            Aborted: It was.
        """
        if self._reason is not None:
            raise Aborted(self._reason)

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` when it is set.

        Returns:
            A function that ends this; a run calls it at its end, so that a signal that is never
            set keeps nothing of the runs it was given to.
        """
        self._listeners.append(listener)

        def leave() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return leave

    def __len__(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def __bool__(self) -> bool:
        return self._reason is not None

"""The state of a conversation refuses."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class StateError(PerdureError):
    """A conversation's state refuses."""


class InvalidState(StateError, ValueError):
    """What was stored is no state: it is not JSON, or a member is missing or of another type.

    Attributes:
        member: The member at fault; empty if it is the whole.
    """

    def __init__(self, reason: str, *, member: str = "") -> None:
        self.member = member
        self.reason = reason
        super().__init__(f"{member}: {reason}" if member else reason)


class UnsupportedStateVersion(StateError, ValueError):
    """A state of a version that this one does not read.

    Attributes:
        found: The version it has.
        supported: The versions that are read.
    """

    def __init__(self, found: float, supported: tuple[int, ...]) -> None:
        self.found = found
        self.supported = supported
        known = ", ".join(str(version) for version in supported)
        super().__init__(f"the state has version {found!r}; this reads {known}")


class StateConflict(StateError):
    """Somebody else saved the state since it was loaded; nothing was written.

    Attributes:
        key: What the store calls it.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the state {key!r} was saved by somebody else; load it again")


class StateNotSaved(StateError, OSError):
    """The state's accessor failed to save it; `__cause__` says why. Nothing went on without it."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the state could not be saved: {cause}")
        self.__cause__ = cause


class TaskSettled(StateError):
    """A background task had its outcome before; the first one stands.

    Attributes:
        task_id: The task.
        status: What became of it.
    """

    def __init__(self, task_id: str, status: str) -> None:
        self.task_id = task_id
        self.status = status
        super().__init__(f"task {task_id!r} is {status} already")

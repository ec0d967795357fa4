"""The log or its store refuses."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class LogError(PerdureError):
    """The log or its store refuses."""


class NoSession(LogError, LookupError):
    """There is no session of this id or name.

    Attributes:
        session: The id or name.
    """

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"there is no session {session!r}")


class NoEntry(LogError, LookupError):
    """The session has no such entry.

    Attributes:
        entry: The id that was asked for.
    """

    def __init__(self, entry: str) -> None:
        self.entry = entry
        super().__init__(f"the session has no entry {entry!r}")


class SessionExists(LogError):
    """A session of this id exists already."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session!r} exists already; open it, or give a fresh id")


class NameTaken(LogError):
    """Another session has the name.

    Attributes:
        name: The name.
        session: The id of the session that has it.
    """

    def __init__(self, name: str, session: str) -> None:
        self.name = name
        self.session = session
        super().__init__(f"the name {name!r} belongs to session {session!r}")


class UnsupportedFormat(LogError, ValueError):
    """A format that this version does not read.

    Attributes:
        format: The format as the header names it.
    """

    def __init__(self, format: str) -> None:  # noqa: A002 - the header's own name
        self.format = format
        super().__init__(f"cannot read the format {format!r}; a newer version may")


class CorruptLog(LogError, ValueError):
    """A line of a session is not what it must be.

    Attributes:
        line: Its number, from 1; 0 if it has none.
        reason: What is wrong with it.
    """

    def __init__(self, reason: str, *, line: int = 0) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}" if line else reason)


class EntryRefused(LogError, ValueError):
    """An entry that the rules of the format forbid at this place; nothing was written."""


class NoProgress(LogError):
    """A driver was stopped that did the same again and again, and nothing came of it.

    Attributes:
        session: The session.
        drives: How many of its drives left the run as if they had not been.
    """

    def __init__(self, session: str, drives: int) -> None:
        self.session = session
        self.drives = drives
        super().__init__(
            f"session {session!r} was driven {drives} times in a row, and nothing came of it but "
            "that it goes on; its driver stopped"
        )


class StaleVersion(LogError):
    """An append built on another version of the session; nothing was written.

    Attributes:
        session: The session.
        expected: The version the append named.
        actual: The number of entries the session has.
    """

    def __init__(self, session: str, expected: int, actual: int) -> None:
        self.session = session
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"session {session!r} has {actual} entries, the append was built on {expected}; "
            "read it again"
        )


class FenceLost(LogError):
    """The fence is not the one in force; nothing was written, and the driver must stop."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(f"the lease on session {root!r} was lost; another driver may have it")


class Leased(LogError):
    """Another driver drives the session.

    Attributes:
        root: The root session.
        holder: Who holds the lease.
    """

    def __init__(self, root: str, holder: str) -> None:
        self.root = root
        self.holder = holder
        super().__init__(f"session {root!r} is driven by {holder!r}")


class StopRequested(LogError):
    """A stop of the tree waits to be taken up: no effect may begin, and the run may not end."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(f"session {root!r} was told to stop; nothing with an effect may begin")


class MessageTaken(LogError):
    """An append consumes an inbox message that is not there to be consumed.

    Attributes:
        message: The message's id.
    """

    def __init__(self, message: str, why: str = "was consumed already") -> None:
        self.message = message
        super().__init__(f"message {message!r} {why}")


class RewindRefused(LogError):
    """A session cannot go on from an entry that it left behind; nothing was written.

    Attributes:
        session: The session.
        entry: The entry.
        reason: Why not.
    """

    def __init__(self, session: str, entry: str, reason: str) -> None:
        self.session = session
        self.entry = entry
        self.reason = reason
        super().__init__(f"session {session!r} cannot be rewound to {entry!r}: {reason}")


class TransactionUndone(LogError):
    """The function of a transactional tool failed; of what it did, and its output, nothing stands.

    Attributes:
        error: What it raised.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(f"the transaction was undone: {error!r}")
        self.__cause__ = error


class StoreFailed(LogError, OSError):
    """The store failed while it wrote, and whether it did is unknown.

    Submit the same append again: what was written is held, the rest is written (LOG 1.3).
    """


class NoRequestHash(LogError):
    """A response was recorded without the hash of its request, so nothing can be checked.

    Attributes:
        entry: The response entry.
    """

    def __init__(self, entry: str) -> None:
        self.entry = entry
        super().__init__(f"response {entry!r} has no request hash")


class RequestMismatch(LogError):
    """The log does not rebuild the request that a response answered.

    Attributes:
        entry: The response entry.
        recorded: The hash it holds.
        rebuilt: The hash of the request that the log gives.
    """

    def __init__(self, entry: str, recorded: str, rebuilt: str) -> None:
        self.entry = entry
        self.recorded = recorded
        self.rebuilt = rebuilt
        super().__init__(
            f"response {entry!r} answers the request {recorded!r}; the log rebuilds {rebuilt!r}"
        )

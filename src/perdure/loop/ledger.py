"""The port through which a drive writes down what it does (LOG 1.7).

A *ledger* hears every event first. `note` takes one and returns at once; what it returns is a
*ticket*, and whoever awaits the ticket knows that the event, and all before it, is durable.
The loop waits at three points only (DESIGN 7): before it enters a tool whose effect is not `none`,
before it sends a request, and before it reports an end.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, runtime_checkable

from perdure.loop.events import Event
from perdure.tools import ToolResult, Transaction


class Ticket(Protocol):
    """Await it to know that what was noted is durable.

    Awaiting raises what kept it from being so; the loop then does not do what had to wait for it.
    It may be awaited more than once, and by several tasks.
    """

    def __await__(self) -> Generator[object, None, None]: ...


class Ledger(Protocol):
    """Where a drive's events are written down."""

    def note(self, event: Event) -> Ticket:
        """Take an event, in order, without waiting.

        Raises:
            Exception: The event may not be recorded; a call whose dispatch is refused does not run.
        """
        ...


@runtime_checkable
class TransactionLedger(Protocol):
    """A ledger that can commit what a tool does together with the tool's output (LOG 6)."""

    @property
    def transacts(self) -> bool:
        """Whether the store behind it can."""
        ...

    async def transact(self, call_id: str, transaction: Transaction) -> ToolResult:
        """Run a transaction function in one transaction with the output of its call.

        The call was dispatched. Cancelling whoever waits does not stop it.

        Returns:
            The result, which is on the record.

        Raises:
            TransactionUndone: The function failed; nothing of it stands, and there is no output.
            StopRequested: The tree was told to stop; the function was not called.
            Exception: Whether it happened is unknown here.
        """
        ...


def transacts(ledger: object) -> bool:
    """Whether a ledger commits what transactional tools do."""
    return isinstance(ledger, TransactionLedger) and ledger.transacts


class _Durable:
    """The ticket of what needs no writing."""

    def __await__(self) -> Generator[object, None, None]:
        return
        yield


_DURABLE = _Durable()


class NullLedger:
    """Writes nothing: the drive lives in memory alone."""

    def note(self, event: Event) -> Ticket:  # noqa: ARG002 - the port's signature
        return _DURABLE

"""Events on their way out: the ledger first, then the log of consumers, then the subscribers.

One event is delivered at a time, whichever task raised it (DESIGN 6.7). Subscribers are barriers:
the drive goes on when the last of them has returned.
"""

from __future__ import annotations

import asyncio

from perdure.errors import ConfigError
from perdure.loop.barrier import Barrier
from perdure.loop.broadcast import Broadcast
from perdure.loop.events import Event, RunEnd, ToolEnd
from perdure.loop.ledger import Ledger, Ticket, TransactionLedger, transacts
from perdure.loop.queues import Queues
from perdure.tools import ToolResult, Transaction


class Delivery:
    """Delivers the events of one drive."""

    def __init__(
        self,
        ledger: Ledger,
        queues: Queues,
        *,
        barrier: Barrier,
        consumers: Broadcast | None = None,
    ) -> None:
        self._ledger = ledger
        self._queues = queues
        self._consumers = consumers
        self._barrier = barrier
        self._lock = asyncio.Lock()
        self._last: Ticket | None = None

    @property
    def ledger(self) -> Ledger:
        """Where the events are written down."""
        return self._ledger

    async def deliver(self, event: Event) -> None:
        """Deliver an event without waiting until it is durable."""
        if self._barrier.anybody or self._queues.has_reports:
            _ = await self._deliver(event)
            return
        self._last = self._note(event)
        self._show(event)

    async def deliver_ticketed(self, event: Event) -> Ticket:
        """Deliver an event; whoever awaits the ticket knows that it is durable."""
        return await self._deliver(event)

    async def _deliver(self, event: Event) -> Ticket:
        async with self._lock:
            failure = await self._report()
            self._last = ticket = self._note(event)
            self._show(event)
            await self._barrier.tell(event)
            if failure is not None:
                raise failure
            return ticket

    @property
    def transacts(self) -> bool:
        """Whether the ledger commits what transactional tools do."""
        return transacts(self._ledger)

    async def transact(self, call_id: str, transaction: Transaction) -> ToolResult:
        """Commit what a tool does together with its output. Raises as `TransactionLedger`."""
        if not isinstance(self._ledger, TransactionLedger):
            raise ConfigError("this ledger commits nothing but entries")
        return await self._ledger.transact(call_id, transaction)

    async def settle(self) -> None:
        """Wait until all that was delivered is durable."""
        if self._last is not None:
            await self._last

    async def finish(self, end: RunEnd) -> None:
        """Deliver the end once it is durable, and close the log of consumers whatever happens.

        Every subscriber hears it, whoever of them fails.
        """
        try:
            async with self._lock:
                failure = await self._report()
                self._last = self._ledger.note(end)
                await self._last
                self._show(end)
                await self._barrier.tell_all(end)
                if failure is not None:
                    raise failure
        finally:
            if self._consumers is not None:
                self._consumers.close()

    async def _report(self) -> Exception | None:
        """Tell what was queued since the last event, before anything it leads to.

        Returns:
            The first failure. The event that comes after is told nevertheless.
        """
        failures: list[Exception] = []
        while (report := self._queues.next_report()) is not None:
            try:
                if not report.noted:
                    self._last = self._ledger.note(report.event)
                self._show(report.event)
                await self._barrier.tell(report.event)
            except Exception as error:  # noqa: BLE001 - a subscriber or the ledger may raise anything
                failures.append(error)
        return failures[0] if failures else None

    def _note(self, event: Event) -> Ticket:
        """Tell the ledger. The end of a call that it refuses is shown all the same (DESIGN 6.2)."""
        try:
            return self._ledger.note(event)
        except Exception:
            if isinstance(event, ToolEnd):
                self._show(event)
            raise

    def _show(self, event: Event) -> None:
        if self._consumers is not None:
            self._consumers.append(event)

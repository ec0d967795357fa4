"""The appender: the one place where entries of a session get their parents (LOG 1.7).

Groups of drafts are *added* in order, without waiting, and leave the queue in that order: then they
are sealed under the leaf and appended, as many as wait at once. A *ticket* is awaited to know that
a group, and all before it, is durable; to await one is also what sends the queue on its way. An
append whose outcome is unknown is submitted again, byte for byte, until it is settled (LOG 1.3);
meanwhile nothing is told to be durable.

A *transaction* is a function whose effects are written with the entry that says what it gave. It
takes its turn in the queue and is never grouped with others (LOG 6). One whose outcome is unknown
is settled by looking for the entry, and begun anew if it is not there.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from perdure.clock import Clock, Ids
from perdure.errors import (
    ConfigError,
    EntryRefused,
    PerdureError,
    StopRequested,
    StoreFailed,
    TransactionUndone,
)
from perdure.log.appending import stop_forbids
from perdure.log.entries import AnyEntry, UnknownEntry
from perdure.log.path import View
from perdure.log.rules import call_fault
from perdure.log.session import Session
from perdure.log.store import Appended, Composed, Fence, Summary, Transactions
from perdure.log.timestamps import timestamp
from perdure.log.writing import Draft, salted, seal
from perdure.tools import Transaction

RETRIES = (0.05, 0.2, 1.0, 3.0, 10.0)
"""Seconds between the attempts to settle an append whose outcome is unknown."""

Group: TypeAlias = "Sequence[Draft] | Callable[[View], Sequence[Draft]]"
"""Drafts that stand together, or what makes them once all before them is sealed."""


class Log(Protocol):
    """The one method of a store that the appender needs."""

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = ...,
        summary: Summary | None = ...,
    ) -> Appended: ...


class Writing(NamedTuple):
    """A transaction to be run, and what is written of it."""

    transaction: Transaction
    compose: Callable[[object], Draft]
    """Makes the entry of what the function returned; on any thread, maybe more than once."""
    done: Callable[[], None]
    """Called when it is durable, before anybody else learns of it."""


@dataclasses.dataclass(slots=True, eq=False)
class _Waiting:
    """A group in the queue."""

    number: int
    group: Group
    consumed: tuple[str, ...]
    writing: Writing | None = None
    """Of a transaction; its group is empty."""
    drafts: Sequence[Draft] = ()
    entries: list[AnyEntry] = dataclasses.field(default_factory=list[AnyEntry])

    def undo(self) -> None:
        """Its entries will not stand; nobody can name them."""
        self.entries.clear()
        for draft in self.drafts:
            draft.id = ""


class _Waiter(NamedTuple):
    """Somebody waits for a group to be durable."""

    number: int
    future: asyncio.Future[None]


class AppendTicket:
    """Await it to know that a group and all before it is durable."""

    __slots__ = ("appender", "number")

    def __init__(self, appender: Appender, number: int) -> None:
        self.appender = appender
        self.number = number

    def __await__(self) -> Generator[object, None, None]:
        return self.appender.settle(self.number).__await__()


class Appender:
    """Appends to one session under one fence.

    Args:
        log: Where to.
        session: The session as it is; it takes every entry that is durable.
        fence: Of the lease.
        clock: What timestamps come from.
        ids: What salts come from.
    """

    def __init__(self, log: Log, session: Session, fence: Fence, *, clock: Clock, ids: Ids) -> None:
        self.session = session
        self.view = session.at()
        """The view at the leaf; what is sealed and not yet durable shows in it."""
        self.appends = 0
        """How many appends it took so far."""
        self.fence = fence
        self._log = log
        self._transactions = log if isinstance(log, Transactions) else None
        self._clock = clock
        self._ids = ids
        self._queue: deque[_Waiting] = deque()
        self._added = 0
        self._durable = 0
        self._refused: dict[int, Exception] = {}
        self._broken: Exception | None = None
        self._ticket = AppendTicket(self, 0)
        self._waiters: list[_Waiter] = []
        self._runner: asyncio.Task[None] | None = None
        self._last_wall = 0

    def add(self, group: Group, *, consumed: Sequence[str] = ()) -> AppendTicket:
        """Queue a group; it is written no later than somebody awaits its ticket.

        Raises:
            PerdureError: An append failed for good; nothing is written any more.
        """
        if self._broken is not None:
            raise self._broken
        self._added += 1
        self._queue.append(_Waiting(self._added, group, tuple(consumed)))
        return self.ticket

    @property
    def transacts(self) -> bool:
        """Whether the store can write a transaction."""
        return self._transactions is not None

    def add_transaction(self, writing: Writing) -> AppendTicket:
        """Queue a transaction. Raises as `add`; its ticket raises what kept it from happening."""
        ticket = self.add(())
        self._queue[-1].writing = writing
        return ticket

    @property
    def ticket(self) -> AppendTicket:
        """The ticket of all that was added so far."""
        if self._ticket.number != self._added:
            self._ticket = AppendTicket(self, self._added)
        return self._ticket

    @property
    def settled(self) -> bool:
        """Whether all that was added is durable or refused."""
        return self._durable >= self._added

    async def settle(self, number: int) -> None:
        """Wait until a group and all before it is durable.

        Raises:
            PerdureError: What kept the group from being written.
        """
        if self._durable < number and self._broken is None:
            self.hurry()
            waiter = _Waiter(number, asyncio.get_running_loop().create_future())
            self._waiters.append(waiter)
            await waiter.future
        if number in self._refused:
            raise self._refused[number]
        if self._durable < number and self._broken is not None:
            raise self._broken

    def hurry(self) -> None:
        """Let what is queued be written now, without waiting for it."""
        if self._runner is None or self._runner.done():
            self._runner = asyncio.get_running_loop().create_task(
                self._run(), name=f"perdure-append-{self.session.id}"
            )

    async def close(self) -> None:
        """Write what is queued, if that can still be done."""
        while self._queue and self._broken is None:
            self.hurry()
            if self._runner is not None:
                await asyncio.wait([self._runner])

    # --- writing -----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._queue and self._broken is None:
                if self._queue[0].writing is not None:
                    await self._transact(self._queue.popleft())
                else:
                    await self._append(self._seal())
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may go on
            self._break(error)
        except asyncio.CancelledError:  # what follows must not tell that this was written
            self._break(StoreFailed("an append was cut off with its event loop"))
            raise

    def _break(self, error: Exception) -> None:
        self._broken = error
        self._wake()

    def _seal(self) -> list[_Waiting]:
        """Give all that is queued its parents."""
        sealed: list[_Waiting] = []
        while self._queue and self._queue[0].writing is None:
            waiting = self._queue.popleft()
            sealed.append(waiting)
            try:
                self._seal_group(waiting)
            except PerdureError as error:
                if any(draft.type == "run" for draft in waiting.drafts):
                    raise  # without its bounds, nothing of a drive has a place
                self._refused[waiting.number] = error
                waiting.undo()
                if self.view.leaf != self._leaf_of(sealed):
                    self._rewind(sealed)
        return sealed

    def _seal_group(self, waiting: _Waiting) -> None:
        group = waiting.group
        waiting.drafts = group(self.view) if callable(group) else group
        for draft in waiting.drafts:
            entry = self._sealed(draft)
            self.view.follow(entry)
            waiting.entries.append(entry)

    def _now(self) -> str:
        """The time, never the same twice: two entries alike in all else would be one."""
        self._last_wall = max(self._clock.wall(), self._last_wall + 1)
        return timestamp(self._last_wall)

    def _leaf_of(self, sealed: Sequence[_Waiting]) -> str | None:
        for waiting in reversed(sealed):
            if waiting.entries:
                return waiting.entries[-1].id
        return self.session.leaf

    def _rewind(self, sealed: Sequence[_Waiting]) -> None:
        """Make the view that of the session and what of `sealed` still stands."""
        self.view = self.session.at()
        for waiting in sealed:
            for entry in waiting.entries:
                self.view.follow(entry)

    async def _append(self, sealed: list[_Waiting]) -> None:
        while True:
            batch = [entry for waiting in sealed for entry in waiting.entries]
            consumed = [message for waiting in sealed for message in waiting.consumed]
            try:
                await self._submit(batch, consumed)
            except StopRequested as error:
                sealed = self._split(sealed, error)
                continue
            for entry in batch:
                self.session.take(entry)
            if not self._queue and self.view.leaf != self.session.leaf:
                self.view = self.session.at()  # a label moved the leaf
            self._tell(sealed)
            return

    def _split(self, sealed: list[_Waiting], error: StopRequested) -> list[_Waiting]:
        """Take out the first group that a stop forbids; what follows is sealed anew."""
        at = next(
            place
            for place, waiting in enumerate(sealed)
            if any(stop_forbids(self.session.header, entry) for entry in waiting.entries)
        )
        self._refused[sealed[at].number] = error
        sealed[at].undo()
        for later in reversed(sealed[at + 1 :]):
            later.undo()
            self._queue.appendleft(later)
        kept = sealed[: at + 1]
        self._rewind(kept)
        return kept

    async def _submit(self, batch: list[AnyEntry], consumed: list[str]) -> None:
        """Append a batch; an outcome that is unknown is settled by the same bytes again."""
        if not batch:
            return
        summary = Summary(status=self.view.status, due=self.view.due, leaf=self.view.leaf)
        for delay in (*RETRIES, None):
            try:
                self.appends += 1
                await self._log.append(
                    self.session.id,
                    self.session.version,
                    self.fence,
                    batch,
                    consumed=consumed,
                    summary=summary,
                )
            except StoreFailed:
                if delay is None:
                    raise
                await self._clock.sleep(delay)
            else:
                return

    async def _transact(self, waiting: _Waiting) -> None:
        """Run a transaction, and its entry with it."""
        if waiting.writing is None or self._transactions is None:
            raise ConfigError("this store commits nothing but entries")
        try:
            entry = await self._committed(self._transactions, waiting.writing)
        except (TransactionUndone, StopRequested) as error:
            self._refused[waiting.number] = error
        else:
            self.view.follow(entry)
            self.session.take(entry)
            waiting.writing.done()
        self._tell([waiting])

    async def _committed(self, log: Transactions, writing: Writing) -> AnyEntry:
        tried: list[AnyEntry] = []

        def compose(value: object) -> Composed:
            tried[:] = [self._sealed(writing.compose(value))]
            return Composed(tried[0], Summary(status=self.view.status, leaf=tried[0].id))

        for delay in (*RETRIES, None):
            try:
                self.appends += 1
                await log.transact(
                    self.session.id,
                    self.session.version,
                    self.fence,
                    writing.transaction,
                    compose,
                    tried=tried[0] if tried else None,
                )
            except StoreFailed:
                if delay is None:
                    raise
                await self._clock.sleep(delay)
            else:
                break
        return tried[0]

    def _sealed(self, draft: Draft) -> AnyEntry:
        """The entry of a draft at the leaf, without taking it."""
        entry = seal(salted(draft, self._ids), self.view.leaf, self._now())
        fault = call_fault(self.view, entry)
        if fault:
            raise EntryRefused(fault)
        if isinstance(entry, UnknownEntry) and entry.malformed:  # whoever reads it would miss it
            raise EntryRefused(f"an entry {entry.type!r} could not be read back: {entry.malformed}")
        return entry

    def _tell(self, sealed: Sequence[_Waiting]) -> None:
        if sealed:
            self._durable = sealed[-1].number
        self._wake()

    def _wake(self) -> None:
        """Wake those who wait for what is durable now, or everybody if nothing more will be."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if self._broken is None and waiter.number > self._durable:
                self._waiters.append(waiter)
            elif not waiter.future.done():  # else its caller was cancelled
                waiter.future.set_result(None)

"""A store that fails a process at one of its writes, and what such a failure does.

A *fault* names a write of one process, by its number, and whether the process dies before it or
after it. What a tool does counts as a write too, where it begins and where it has ended: that is
where a crash hurts most.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar, cast

from perdure.log.entries import AnyEntry
from perdure.log.header import Header
from perdure.log.store import (
    Appended,
    Fence,
    Filters,
    Lease,
    Message,
    Page,
    Put,
    Store,
    Stored,
    Summary,
)

T = TypeVar("T")

When: TypeAlias = Literal["before", "after"]

Die: TypeAlias = Callable[[], Awaitable[None]]
"""Ends the process, or all of it that anybody could notice. It never returns."""


class Fault(NamedTuple):
    """Where a process dies."""

    number: int
    """Of the write, from 1."""
    when: When

    def __str__(self) -> str:
        return f"{self.when} write {self.number}"


class Faults:
    """Counts the writes of one process, and ends it at one of them.

    Args:
        fault: At which; None to count alone.
        die: What ends the process.

    Attributes:
        writes: What was written so far, in order.
        dead: The process has ended; whoever still runs waits for ever.
    """

    def __init__(self, fault: Fault | None, die: Die) -> None:
        self._fault = fault
        self._die = die
        self.writes: list[str] = []
        self.dead = False

    async def around(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do a write, unless the process dies before it; it may die after it."""
        await self.breathe()
        self.writes.append(name)
        number = len(self.writes)
        await self._meet(number, "before")
        value = await work()
        await self._meet(number, "after")
        return value

    async def breathe(self) -> None:
        """Go on, in a process that lives."""
        if self.dead:
            await self._die()

    async def _meet(self, number: int, when: When) -> None:
        if self._fault == (number, when):
            self.dead = True
        await self.breathe()


OnLease: TypeAlias = Callable[[Lease], None]


class FaultStore:
    """A store, each of whose writes may be the last thing that a process does.

    Made by `faulted`, which keeps what the inner store offers beside the protocol. Renewals of a
    lease are not counted: they happen when time passes.
    """

    def __init__(self, inner: Store, faults: Faults, on_lease: OnLease) -> None:
        self.inner = inner
        self.faults = faults
        self._on_lease = on_lease

    # --- the log -------------------------------------------------------------------------

    async def create(
        self,
        header: Header,
        *,
        name: str = "",
        batch: Sequence[AnyEntry] = (),
        fence: Fence | None = None,
        summary: Summary | None = None,
    ) -> Appended:
        return await self.faults.around(
            "create",
            lambda: self.inner.create(header, name=name, batch=batch, fence=fence, summary=summary),
        )

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        return await self.faults.around(
            f"append {_named(batch)}",
            lambda: self.inner.append(
                session, version, fence, batch, consumed=consumed, summary=summary
            ),
        )

    async def read(self, session: str, *, since: int = 0, leaf: str | None = None) -> Stored:
        await self.faults.breathe()
        return await self.inner.read(session, since=since, leaf=leaf)

    async def list(
        self,
        filters: Filters = Filters(),  # noqa: B008 - it is frozen
        *,
        after: str = "",
        limit: int = 100,
    ) -> Page:
        await self.faults.breathe()
        return await self.inner.list(filters, after=after, limit=limit)

    async def delete(self, session: str, *, fence: Fence | None = None) -> None:
        await self.faults.around("delete", lambda: self.inner.delete(session, fence=fence))

    # --- leases ----------------------------------------------------------------------------

    async def lease(self, root: str, *, holder: str, seconds: float = 30.0) -> Lease:
        async def take() -> Lease:
            lease = await self.inner.lease(root, holder=holder, seconds=seconds)
            self._on_lease(lease)
            return lease

        return await self.faults.around("lease", take)

    async def renew(self, lease: Lease) -> Lease:
        await self.faults.breathe()
        return await self.inner.renew(lease)

    async def release(self, lease: Lease) -> None:
        await self.faults.around("release", lambda: self.inner.release(lease))

    async def due(self, before: int, *, limit: int = 100) -> tuple[str, ...]:
        await self.faults.breathe()
        return await self.inner.due(before, limit=limit)

    # --- the inbox -------------------------------------------------------------------------

    async def put(self, session: str, message: Message, *, stop: bool = False) -> Put:
        return await self.faults.around(
            f"put {message.id.partition('/')[0]}",
            lambda: self.inner.put(session, message, stop=stop),
        )

    async def unconsumed(self, session: str) -> tuple[Message, ...]:
        await self.faults.breathe()
        return await self.inner.unconsumed(session)

    # --- blobs -----------------------------------------------------------------------------

    async def write_blob(self, session: str, data: bytes) -> str:
        return await self.faults.around("blob", lambda: self.inner.write_blob(session, data))

    async def read_blob(self, session: str, digest: str) -> bytes:
        await self.faults.breathe()
        return await self.inner.read_blob(session, digest)

    async def erase_blob(self, session: str, digest: str) -> None:
        await self.faults.around("erase blob", lambda: self.inner.erase_blob(session, digest))

    async def close(self) -> None:
        """Nothing: whoever opened the inner store closes it."""


def nobody_hears(lease: Lease) -> None:
    """Of leases that lapse by themselves."""


def faulted(inner: Store, faults: Faults, *, on_lease: OnLease = nobody_hears) -> FaultStore:
    """A store with faults, that offers what the inner one does beside the protocol too.

    Args:
        inner: Any store.
        faults: Where the process ends.
        on_lease: Hears of every lease that is taken, so that somebody can let a dead process's
            lapse.
    """
    extra = {
        name: _through(name)
        for name in dir(inner)
        if not name.startswith("_")
        and not hasattr(FaultStore, name)
        and name != "leave_loop"  # a process that dies with its loop renews on no other
        and inspect.iscoroutinefunction(getattr(inner, name))
    }
    # On the class, where whoever looks for a capability looks.
    kind = cast("type[FaultStore]", type("FaultStore", (FaultStore,), extra))
    return kind(inner, faults, on_lease)


def _through(name: str) -> Callable[..., Awaitable[object]]:
    async def method(self: FaultStore, *args: object, **options: object) -> object:
        work: Callable[..., Awaitable[object]] = getattr(self.inner, name)
        return await self.faults.around(name, lambda: work(*args, **options))

    return method


def _named(batch: Sequence[AnyEntry]) -> str:
    """The types of a batch, each once, in the order of their last appearance."""
    return "+".join(dict.fromkeys(entry.type.removeprefix("perdure:") for entry in batch))

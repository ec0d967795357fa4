"""The memory store: sessions that live as long as the process."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence

import msgspec

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.errors import (
    ConfigError,
    FenceLost,
    Leased,
    NameTaken,
    NoEntry,
    NoSession,
    SessionExists,
)
from perdure.log.appending import check_append, check_batch, path_lines
from perdure.log.entries import AnyEntry
from perdure.log.header import Header
from perdure.log.ids import digest
from perdure.log.store import (
    Appended,
    Fence,
    Filters,
    Lease,
    Listed,
    Message,
    Page,
    Put,
    Stored,
    Summary,
)
from perdure.log.writing import erased_line
from perdure.stores.listing import matches, page


@dataclasses.dataclass(slots=True, eq=False)
class _Held:
    """One session."""

    header: Header
    name: str
    lines: list[bytes] = dataclasses.field(default_factory=list[bytes])
    places: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    parents: dict[str, str | None] = dataclasses.field(default_factory=dict[str, str | None])
    messages: dict[str, Message] = dataclasses.field(default_factory=dict[str, Message])
    consumed: set[str] = dataclasses.field(default_factory=set[str])
    blobs: dict[str, bytes] = dataclasses.field(default_factory=dict[str, bytes])
    summary: Summary = dataclasses.field(default_factory=Summary)
    lease: Lease | None = None
    until: float = 0.0
    """When the lease lapses, on the store's monotonic clock."""
    fences: int = 0

    @property
    def version(self) -> int:
        return len(self.lines)

    def lines_from(self, version: int) -> Sequence[bytes]:
        return self.lines[version:]

    def has(self, entry: str) -> bool:
        return entry in self.parents

    def waits(self, message: str) -> bool:
        return message in self.messages and message not in self.consumed

    def unconsumed(self) -> Iterator[Message]:
        return (one for one in self.messages.values() if one.id not in self.consumed)

    def take(self, batch: Sequence[AnyEntry]) -> None:
        for entry in batch:
            self.places[entry.id] = len(self.lines)
            self.lines.append(entry.line)
            self.parents[entry.id] = entry.parent
            if entry.message:
                self.consumed.add(entry.message)


class MemoryStore:
    """A store without a disk.

    Args:
        clock: What leases lapse by.
        ids: What the nonces of fences come from.
    """

    def __init__(self, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._sessions: dict[str, _Held] = {}
        self._names: dict[str, str] = {}
        self._leasing = threading.Lock()
        """Leases are renewed from another thread; all else happens on one."""

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
        name = name or header.name
        check_batch(header, batch)
        if header.root:
            self._check_fence(self._held(header.root), fence)
        found = self._sessions.get(header.id)
        if found is not None:
            return _created_before(found, header, batch)
        holder = self._names.get(name) if name else None
        if holder is not None:
            raise NameTaken(name, holder)
        held = _Held(header, name, summary=summary or Summary())
        held.take(batch)
        self._sessions[header.id] = held
        if name:
            self._names[name] = header.id
        return Appended(held.version)

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
        held = self._held(session)
        root = self._held(held.header.lease_root)
        self._check_fence(root, fence)
        stopped = any(message.stop for message in root.unconsumed())
        already = check_append(held, version, batch, consumed, stopped=stopped)
        held.take(batch[already:])
        held.summary = summary or held.summary
        return Appended(held.version, already)

    async def read(self, session: str, *, since: int = 0, leaf: str | None = None) -> Stored:
        held = self._held(session)
        lines = held.lines[since:]
        if leaf is not None:
            if not held.has(leaf):
                raise NoEntry(leaf)
            lines = path_lines(held.lines, held.places, held.parents, leaf)
        return Stored(
            header=held.header, version=held.version, lines=tuple(lines), summary=held.summary
        )

    async def list(
        self,
        filters: Filters = Filters(),  # noqa: B008 - it is frozen
        *,
        after: str = "",
        limit: int = 100,
    ) -> Page:
        listed = (
            Listed(header=held.header, name=held.name, version=held.version, summary=held.summary)
            for held in self._sessions.values()
        )
        return page((one for one in listed if matches(one, filters)), after, limit)

    async def delete(self, session: str, *, fence: Fence | None = None) -> None:
        held = self._sessions.get(session)
        if held is None:
            return
        root = self._sessions.get(held.header.lease_root)
        lease = self._in_force(root) if root is not None else None
        if lease is not None and lease.fence != fence:
            raise Leased(lease.root, lease.holder)
        del self._sessions[session]
        self._names.pop(held.name, None)

    # --- leases ----------------------------------------------------------------------------

    async def lease(self, root: str, *, holder: str, seconds: float = 30.0) -> Lease:
        held = self._held(root)
        if held.header.root:
            raise ConfigError(f"session {root!r} is no root; lease {held.header.root!r}")
        with self._leasing:
            current = self._in_force(held)
            if current is not None:
                raise Leased(root, current.holder)
            held.fences += 1
            fence = Fence(held.fences, self._ids.new(""))
            held.lease = Lease(root=root, fence=fence, holder=holder, seconds=seconds)
            held.until = self._clock.monotonic() + seconds
            return held.lease

    async def renew(self, lease: Lease) -> Lease:
        held = self._held(lease.root)
        with self._leasing:
            self._check_fence(held, lease.fence)
            held.until = self._clock.monotonic() + (lease.seconds or 0)
        return lease

    async def release(self, lease: Lease) -> None:
        held = self._sessions.get(lease.root)
        if held is None:
            return
        with self._leasing:
            if held.lease is not None and held.lease.fence == lease.fence:
                held.lease = None

    async def leave_loop(self) -> None:
        """Nothing is held for an event loop."""

    async def due(self, before: int, *, limit: int = 100) -> tuple[str, ...]:
        wanted: dict[str, int] = {}
        for held in self._sessions.values():
            root, at = held.header.lease_root, held.summary.due
            if any(held.unconsumed()):
                wanted[root] = 0
            elif at is not None and at <= before:
                wanted[root] = min(wanted.get(root, at), at)
        return tuple(sorted(wanted, key=wanted.__getitem__))[:limit]

    # --- the inbox ---------------------------------------------------------------------------

    async def put(self, session: str, message: Message, *, stop: bool = False) -> Put:
        held = self._held(session)
        if stop and held.header.root:
            raise ConfigError(f"session {session!r} is no root; stop {held.header.root!r}")
        found = held.messages.get(message.id)
        if found is not None:
            return Put(found.number, duplicate=True)
        number = len(held.messages) + 1
        held.messages[message.id] = msgspec.structs.replace(message, number=number, stop=stop)
        return Put(number)

    async def unconsumed(self, session: str) -> tuple[Message, ...]:
        return tuple(self._held(session).unconsumed())

    # --- blobs, erasure ------------------------------------------------------------------------

    async def write_blob(self, session: str, data: bytes) -> str:
        name = digest(data)
        self._held(session).blobs[name] = bytes(data)
        return name

    async def read_blob(self, session: str, digest: str) -> bytes:
        blobs = self._held(session).blobs
        if digest not in blobs:
            raise NoEntry(digest)
        return blobs[digest]

    async def erase_blob(self, session: str, digest: str) -> None:
        self._held(session).blobs.pop(digest, None)

    async def erase(self, session: str, fence: Fence, entries: Sequence[str]) -> int:
        held = self._held(session)
        self._check_fence(self._held(held.header.lease_root), fence)
        places = held.places
        for entry in entries:
            if entry not in places:
                raise NoEntry(entry)
        stubs = {places[entry]: erased_line(held.lines[places[entry]]) for entry in entries}
        count = sum(held.lines[place] != stub for place, stub in stubs.items())
        for place, stub in stubs.items():
            held.lines[place] = stub
        return count

    async def close(self) -> None:
        """Nothing is held that needs letting go."""

    # --- what it holds -------------------------------------------------------------------------

    def _held(self, session: str) -> _Held:
        held = self._sessions.get(session)
        if held is None:
            raise NoSession(session)
        return held

    def _in_force(self, root: _Held) -> Lease | None:
        """The lease that keeps others out."""
        if root.lease is None or self._clock.monotonic() >= root.until:
            return None
        return root.lease

    def _check_fence(self, root: _Held, fence: Fence | None) -> None:
        if root.lease is None or root.lease.fence != fence:
            raise FenceLost(root.header.id)


def _created_before(found: _Held, header: Header, batch: Sequence[AnyEntry]) -> Appended:
    same = found.header.line == header.line
    lines = [entry.line for entry in batch]
    if not same or found.lines[: len(lines)] != lines:
        raise SessionExists(header.id)
    return Appended(found.version, len(lines))


_shared: dict[str, MemoryStore] = {}


def open_url(url: str) -> MemoryStore:
    """`memory:` is a store of its own; `memory:NAME` is one and the same in the process."""
    name = url.partition(":")[2]
    return _shared.setdefault(name, MemoryStore()) if name else MemoryStore()

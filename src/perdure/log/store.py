"""The Store: where sessions live, as a few small protocols on one object (LOG 8).

*version*: how many entries a session has ever had, on all branches. An append names the one it
builds on. *fence*: what a lease gives its holder, a counter and a nonce, compared for equality.
*root*: the session whose lease covers a whole tree of sub-sessions. *message*: what somebody who
does not drive a session puts into its inbox. *summary*: a cache of projections, written with an
append and recomputed at will.

Every method may raise `StoreFailed` when the store could not do its work. An append that raises it,
or whose caller was cancelled, may have happened: submit the same again (LOG 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from perdure.errors import ConfigError
from perdure.log.entries import AnyEntry
from perdure.log.header import Header
from perdure.tools.transaction import Transaction
from perdure.wire.surrogates import scalar_text


class Fence(NamedTuple):
    """What tells the driver in force from all others (LOG 1.2)."""

    counter: int
    nonce: str


class Lease(Struct, frozen=True, kw_only=True):
    """The right to drive a root session and all below it."""

    root: str
    fence: Fence
    holder: str
    seconds: float | None = None
    """How long it holds from when it was asked for or renewed; None if it does not lapse."""


class Summary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cache of what a session's entries say."""

    status: str = ""
    due: int | None = None
    """When it wants to be driven, in nanoseconds since the Unix epoch."""
    leaf: str | None = None
    bytes: int = 0
    """Of its lines."""


class Appended(NamedTuple):
    """An append that is durable."""

    version: int
    """How many entries the session has now."""
    held: int = 0
    """How many of the batch were there already, from an append whose outcome was unknown."""


class Stored(Struct, frozen=True, kw_only=True):
    """What a store holds of a session."""

    header: Header
    version: int
    lines: tuple[bytes, ...]
    """The entries asked for, in their order, as they were written."""
    summary: Summary = Summary()


class Filters(Struct, frozen=True, kw_only=True):
    """Which sessions to list. What is empty does not narrow."""

    name: str = ""
    statuses: frozenset[str] = frozenset()
    kind: str = ""
    """Of a run by id."""
    parent: str = ""
    """The session they come from."""
    root: str = ""
    """The tree they are in, the root itself included."""
    cwd: str = ""
    roots_only: bool = False
    runs_only: bool = False


class Listed(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    header: Header
    name: str
    version: int
    summary: Summary

    @property
    def id(self) -> str:
        return self.header.id


class Page(NamedTuple):
    """Some of the sessions that were asked for, oldest first."""

    sessions: tuple[Listed, ...]
    after: str = ""
    """Ask with it for those that follow; empty if these are the last."""


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What waits in an inbox."""

    id: str
    """Unique for the life of the session, so that a second delivery stays a duplicate."""
    body: bytes = b"{}"
    """JSON text."""
    stop: bool = False
    """Nothing with an effect may begin in the tree until it is consumed (LOG 3.5)."""
    number: int = 0
    """Its place among the session's messages, from 1; the store gives it."""


class Put(NamedTuple):
    """A message that was accepted."""

    number: int
    duplicate: bool = False
    """A message of this id was there already; it stays as it was."""


class Log(Protocol):
    """Sessions and their entries."""

    async def create(
        self,
        header: Header,
        *,
        name: str = "",
        batch: Sequence[AnyEntry] = (),
        fence: Fence | None = None,
        summary: Summary | None = None,
    ) -> Appended:
        """Create a session with its first entries, all or nothing.

        The same again is held: it answers as if it had just happened.

        Args:
            header: Its header, which names its root if it is a child.
            name: A name that no other session of the store has; else the header's.
            batch: Its first entries; for a fork, the path to its base first.
            fence: Of the root's lease, for a child; a root has none yet.
            summary: What to keep of it.

        Raises:
            SessionExists: A session with another header has the id.
            NameTaken: Another session has the name.
            NoSession: The root of a child does not exist.
            FenceLost: The fence of a child's root is not in force.
            ConfigError: The id or the header cannot be stored here.
        """
        ...

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
        """Add entries at the end, all or nothing but for files, where any first part may stand.

        What is the tail already, from an append with the same bytes, is held (LOG 1.3).

        Args:
            session: The session.
            version: How many entries it had when the batch was built.
            fence: Of the root's lease.
            batch: The entries, each after its parent.
            consumed: The inbox messages that entries of the batch name (LOG 3.1).
            summary: What to keep; None leaves what is there.

        Raises:
            NoSession: There is no such session.
            FenceLost: The fence is not in force.
            StaleVersion: The session has grown since `version`, by others.
            StopRequested: An effect would begin, or the run end, and the tree was told to stop.
            MessageTaken: A message was consumed already, or does not exist.
            EntryRefused: An entry's parent is missing, its id is there already, or `consumed` and
                the batch name different messages.
        """
        ...

    async def read(self, session: str, *, since: int = 0, leaf: str | None = None) -> Stored:
        """A session, whole, since a version, or one path of it.

        Raises:
            NoSession: There is no such session.
            NoEntry: It has no entry `leaf`.
        """
        ...

    async def list(self, filters: Filters = ..., *, after: str = "", limit: int = 100) -> Page:
        """Sessions, oldest first. No lock is held between pages."""
        ...

    async def delete(self, session: str, *, fence: Fence | None = None) -> None:
        """Remove a session with its inbox, blobs and name. One that is gone stays gone.

        Raises:
            Leased: Its tree is leased, and not under this fence.
        """
        ...


class Leases(Protocol):
    """Who drives.

    A lease that lapsed may be taken by another; until it is, its fence stays in force. What keeps
    two drivers apart is the fence alone (LOG 1.1), never a clock.
    """

    async def lease(self, root: str, *, holder: str, seconds: float = 30.0) -> Lease:
        """Take the lease of a root session; its fence is new.

        Raises:
            NoSession: There is no such session.
            Leased: Somebody has it, the same holder included.
            ConfigError: The session is no root.
        """
        ...

    async def renew(self, lease: Lease) -> Lease:
        """Hold it for as long again.

        Raises:
            FenceLost: It was taken or released.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give it back. One that is not in force any more stays as it is."""
        ...

    async def due(self, before: int, *, limit: int = 100) -> tuple[str, ...]:
        """The roots that want a driver: their time has come, or a message waits in their tree.

        Args:
            before: Times up to this one have come, in nanoseconds since the Unix epoch.
            limit: How many at most.
        """
        ...


class Inbox(Protocol):
    """What others tell a session."""

    async def put(self, session: str, message: Message, *, stop: bool = False) -> Put:
        """Leave a message; durable when it returns. Needs no lease.

        Raises:
            NoSession: There is no such session.
            ConfigError: A stop is not put to a root.
        """
        ...

    async def unconsumed(self, session: str) -> tuple[Message, ...]:
        """The messages that no entry names, by number.

        Raises:
            NoSession: There is no such session.
        """
        ...


class Blobs(Protocol):
    """Binary content beside a session, by its hash."""

    async def write_blob(self, session: str, data: bytes) -> str:
        """Keep bytes; returns `sha256:` and their hash. Raises as `Log.read`."""
        ...

    async def read_blob(self, session: str, digest: str) -> bytes:
        """The bytes of a hash.

        Raises:
            NoSession: There is no such session.
            NoEntry: It has no such bytes, or they were erased.
        """
        ...

    async def erase_blob(self, session: str, digest: str) -> None:
        """Remove bytes; such as are gone stay gone. Raises `NoSession`."""
        ...


class Store(Log, Leases, Inbox, Blobs, Protocol):
    """All that perdure needs of a store."""

    async def close(self) -> None:
        """Let go of what it holds; leases stay until they lapse."""
        ...


# --- what a store may offer beside ------------------------------------------------------


def check_store(store: object) -> None:
    """Refuse what is no store.

    Raises:
        ConfigError: It is none.
    """
    if not hasattr(store, "append") or not hasattr(store, "unconsumed") or isinstance(store, type):
        raise ConfigError(f"a store is a URL, as 'sqlite:///a.db', or a Store, not {store!r:.60}")


async def named_session(store: Log, name: object) -> Listed | None:
    """The session of a name; None if there is none, as for what is no name."""
    if not isinstance(name, str) or not name or scalar_text(name) != name:
        return None  # a list without a name is of all sessions
    found = (await store.list(Filters(name=name), limit=1)).sessions
    return found[0] if found else None


@runtime_checkable
class Renewing(Protocol):
    """Leases that may be renewed on another event loop, in a thread of its own, meanwhile.

    `renew` may be called there at any time. A store without this is asked on the loop that drives,
    and whatever blocks that for longer than a lease loses it.
    """

    async def leave_loop(self) -> None:
        """Let go of what is held for the event loop that runs: no lease is renewed there any more.

        It may be used there again.
        """
        ...


@runtime_checkable
class Erasure(Protocol):
    """Removing bodies while their hashes stand (LOG 7)."""

    async def erase(self, session: str, fence: Fence, entries: Sequence[str]) -> int:
        """Remove the bodies of entries; returns how many still had one.

        Raises:
            NoSession: There is no such session.
            NoEntry: An entry is not there.
            FenceLost: The fence is not in force.
        """
        ...


@runtime_checkable
class Redaction(Protocol):
    """Removing bodies where every line must hash to its id, as in a file (LOG 8)."""

    async def redact(self, session: str, fence: Fence, entries: Sequence[str]) -> int:
        """Replace a session by its redacted projection; returns how many still had a body.

        The entries behind the first of them have new ids, and nothing is appended any more.

        Raises:
            NoSession: There is no such session.
            NoEntry: An entry is not there.
            FenceLost: The fence is not in force.
        """
        ...


class Composed(NamedTuple):
    """What is written with what a transaction function did."""

    entry: AnyEntry
    summary: Summary | None = None


@runtime_checkable
class Transactions(Protocol):
    """Committing what a transactional tool does, in the store's own database, with its output."""

    async def transact(
        self,
        session: str,
        version: int,
        fence: Fence,
        transaction: Transaction,
        compose: Callable[[object], Composed],
        *,
        tried: AnyEntry | None = None,
    ) -> Appended:
        """Run a function and append an entry, in one transaction, shared with no other append.

        The session's row is locked and version, fence and stops are checked first, then the
        function is called with a handle on the transaction. It may be called more than once; all
        it did before is then undone.

        Args:
            session: The session.
            version: How many entries it had.
            fence: Of the root's lease.
            transaction: What to do; plain or async, as the store says.
            compose: Makes the entry of what the function returned. It may be called on any thread.
            tried: The entry of an earlier attempt whose outcome is unknown. If it is the tail, it
                is held, and the function is not called.

        Raises:
            TransactionUndone: `transaction` or `compose` failed; nothing was written.
            StopRequested: The tree was told to stop; the function was not called.
            NoSession: There is no such session.
            FenceLost: The fence is not in force.
            StaleVersion: The session has grown since `version`, by others.
            EntryRefused: The entry cannot stand there.
        """
        ...


@runtime_checkable
class Frames(Protocol):
    """Numbered bytes of a response being streamed, which expire and are no part of the log."""

    async def put_frames(
        self, stream: str, first: int, frames: Sequence[bytes], *, seconds: float
    ) -> None:
        """Keep frames, numbered from `first` on, for some time after the last."""
        ...

    async def frames(self, stream: str, after: int) -> tuple[bytes, ...]:
        """The frames behind the number `after`; none if they have expired."""
        ...

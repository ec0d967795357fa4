"""Looking after a store: collecting what has ended, erasing with all copies, recomputing caches.

Nothing here drives a session, but what changes a tree holds its lease meanwhile; a tree that is
driven is left alone and named.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from perdure.errors import ConfigError, EntryRefused, Leased, NoSession
from perdure.log.entries import AnyEntry, CompactionEntry, ItemEntry, QueuedEntry, decode_entry
from perdure.log.reading import read_lines
from perdure.log.session import Session
from perdure.log.store import Erasure, Filters, Lease, Listed, Redaction, Store, Summary
from perdure.log.timestamps import wall_of

ENDED = frozenset({"done", "stopped", "failed", "cancelled", "aborted", "rolled_back"})
"""The statuses of sessions that nobody waits for."""


class Collected(NamedTuple):
    """A session that was removed, or one that stays although it is old."""

    session: str
    bytes: int = 0
    kept: str = ""
    """Why it stays; empty if it was removed."""


class Finding(NamedTuple):
    """One thing that a store says of itself."""

    level: Literal["ok", "warning", "error"]
    what: str
    todo: str = ""


@runtime_checkable
class Examined(Protocol):
    """A store that can say how it is."""

    async def examine(self) -> tuple[Finding, ...]:
        """What is right with it, and what is not. Raises as any of its methods."""
        ...


async def every(store: Store, filters: Filters = Filters()) -> AsyncGenerator[Listed]:  # noqa: B008
    """All sessions of a list, page after page."""
    after = ""
    while True:
        page = await store.list(filters, after=after)
        for one in page.sessions:
            yield one
        after = page.after
        if not after:
            return


@contextlib.asynccontextmanager
async def leased(store: Store, root: str, holder: str) -> AsyncGenerator[Lease]:
    """The lease of a root, while the block runs. Raises as `Leases.lease`."""
    lease = await store.lease(root, holder=holder)
    try:
        yield lease
    finally:
        await store.release(lease)


# --- collecting ----------------------------------------------------------------------------


async def collect(
    store: Store, before: int, *, statuses: Collection[str] = ENDED, remove: bool = True
) -> AsyncGenerator[Collected]:
    """Remove trees of sessions that ended, and in which nothing happened since a time.

    Children go before their roots, so that what an interruption leaves is found again.

    Args:
        store: The store.
        before: The time, in nanoseconds since the Unix epoch.
        statuses: The root's status has to be one of these.
        remove: If not, it is only told what would be removed.
    """
    trees: dict[str, list[Listed]] = {}
    async for one in every(store):
        trees.setdefault(one.header.lease_root, []).append(one)
    forked = {
        one.header.parent_session: root
        for root, tree in trees.items()
        for one in tree
        if one.header.base
    }
    for root, tree in trees.items():
        if not _ended(root, tree, statuses) or not await _is_old(store, tree, before):
            continue
        why = await _needed(store, root, tree, forked)
        if why:
            yield Collected(root, kept=why)
            continue
        for one in sorted(tree, key=lambda one: one.id == root):
            if remove:
                try:
                    await store.delete(one.id)
                except Leased as error:
                    yield Collected(root, kept=f"it is driven by {error.holder!r}")
                    break
            yield Collected(one.id, one.summary.bytes)


def _ended(root: str, tree: Sequence[Listed], statuses: Collection[str]) -> bool:
    """Whether a tree is over; one whose root is gone was being removed."""
    found = [one for one in tree if one.id == root]
    return not found or found[0].summary.status in statuses


async def _is_old(store: Store, tree: Sequence[Listed], before: int) -> bool:
    for one in tree:
        times = [one.header.created_at]
        with contextlib.suppress(NoSession):
            stored = await store.read(one.id, since=max(one.version - 1, 0))
            times += [decode_entry(line).ts for line in stored.lines]
        try:
            if max(map(wall_of, times)) >= before:
                return False
        except ValueError:
            return False  # nobody knows how old it is
    return True


async def _needed(store: Store, root: str, tree: Sequence[Listed], forked: dict[str, str]) -> str:
    for one in tree:
        other = forked.get(one.id)
        if other is not None and other != root:
            return f"session {other!r} was forked from it"
        if await store.unconsumed(one.id):
            return "messages wait in it"
    return ""


# --- reindexing ----------------------------------------------------------------------------


async def reindex(store: Store, root: str) -> int:
    """Recompute what lists show of a tree; returns how many summaries were wrong.

    Raises:
        NoSession: There is no such root.
        Leased: It is driven.
    """
    wrong = 0
    async with leased(store, root, "reindex") as lease:
        async for one in every(store, Filters(root=root)):
            stored = await store.read(one.id)
            session = read_lines(stored.header, stored.lines, verify=False).session
            summary = Summary(status=session.status, leaf=session.leaf, due=stored.summary.due)
            was = (stored.summary.status, stored.summary.leaf)
            if was != (summary.status, summary.leaf):
                wrong += 1
                await store.append(one.id, stored.version, lease.fence, (), summary=summary)
    return wrong


# --- repairing -----------------------------------------------------------------------------


async def settle(store: Store, session: str) -> int:
    """Make a session what its whole entries say: a torn tail is trimmed. Returns its version.

    Raises:
        NoSession: There is no such session.
        Leased: It is driven.
    """
    stored = await store.read(session)
    async with leased(store, stored.header.lease_root, "repair") as lease:
        last = [decode_entry(line) for line in stored.lines[-1:]]
        # What is held is made durable, and nothing stands behind it then (LOG 1.3).
        appended = await store.append(
            session,
            stored.version - len(last),
            lease.fence,
            last,
            consumed=[entry.message for entry in last if entry.message],
        )
    return appended.version


# --- erasing -------------------------------------------------------------------------------


class Erased(NamedTuple):
    """What was erased of one session."""

    session: str
    bodies: int


async def erase(store: Store, session: str, entries: Collection[str]) -> list[Erased]:
    """Remove the bodies of entries, of their copies, and of both in every fork; hashes stand.

    A session in a file becomes its redacted projection instead: ids change, and it is over.

    Copies are what was queued and became an item, and what a compaction pinned or summarises in
    the same bytes. What a tool or a sub-agent's session made of it is another text, and stays.

    Raises:
        ConfigError: The store cannot erase.
        NoSession: There is no such session.
        NoEntry: It has no such entry.
        EntryRefused: There is nothing to erase.
        Leased: The session, or a fork of it, is driven.
    """
    if not isinstance(store, Erasure | Redaction):
        raise ConfigError(f"{type(store).__name__} cannot erase")
    if not entries:
        raise EntryRefused("name the entries to erase")
    stored = await store.read(session)
    found = read_lines(stored.header, stored.lines, verify=False).session
    doomed = {found.entry(entry).id for entry in entries}
    doomed |= copies_of(found, doomed)
    erased = [Erased(session, await _erase(store, stored.header.lease_root, found, doomed))]
    async for one in every(store, Filters(parent=session)):
        if one.header.base:
            fork = await store.read(one.id)
            theirs = read_lines(fork.header, fork.lines, verify=False).session
            shared = [entry for entry in doomed if entry in theirs]
            if shared:
                erased += await erase(store, one.id, shared)
    return erased


async def _erase(store: Store, root: str, session: Session, doomed: Collection[str]) -> int:
    ordered = sorted(doomed, key=session.place)
    async with leased(store, root, "erase") as lease:
        if isinstance(store, Erasure):
            return await store.erase(session.id, lease.fence, ordered)
        if isinstance(store, Redaction):
            return await store.redact(session.id, lease.fence, ordered)
    return 0


def copies_of(session: Session, entries: Collection[str]) -> set[str]:
    """The entries that hold what these hold, in the same bytes."""
    known = {text for entry in entries for text in _contents(session.entry(entry)) if text != b"{}"}
    return {
        entry.id for entry in session.entries if not known.isdisjoint(_contents(entry))
    }.difference(entries)


def _contents(entry: AnyEntry) -> Iterator[bytes]:
    match entry:
        case ItemEntry() | QueuedEntry():
            yield bytes(entry.item)
        case CompactionEntry():
            yield bytes(entry.summary)
            yield from map(bytes, entry.pinned)
        case _:
            return

"""Appends in Postgres: work inside one transaction.

The rows of the root and the session are locked first, in one statement, and everything is looked up
afterwards: a statement that waited for a lock still sees other tables as they were before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from typing import Literal, NamedTuple

import msgspec

from perdure.errors import FenceLost, NameTaken, NoSession, SessionExists, StaleVersion
from perdure.log.appending import check_append
from perdure.log.entries import AnyEntry
from perdure.log.header import Header, decode_header, raised
from perdure.log.store import Appended, Fence, Summary
from perdure.stores.asked import Change, Creation, size_of
from perdure.stores.points import At
from perdure.stores.postgres_pool import Transaction


class Held(NamedTuple):
    """What an append has to know of a session, looked up under its lock."""

    header: Header
    version: int
    ids: AbstractSet[str]
    waiting: AbstractSet[str]
    lines: Mapping[int, bytes]

    def lines_from(self, version: int) -> Sequence[bytes]:
        return [self.lines[number] for number in range(version + 1, self.version + 1)]

    def has(self, entry: str) -> bool:
        return entry in self.ids

    def waits(self, message: str) -> bool:
        return message in self.waiting


# --- locking -------------------------------------------------------------------------------


RowLock = Literal["UPDATE", "SHARE", "KEY SHARE"]


class Locked(NamedTuple):
    """A session and its root, whose rows are locked."""

    key: int
    version: int
    header: bytes
    root: str
    messages: int
    counter: int
    nonce: str
    stops: int


async def lock(transaction: Transaction, session: str, *, root: RowLock = "UPDATE") -> Locked:
    """Lock a session's row, and its root's.

    Args:
        transaction: Where to.
        session: The session.
        root: `SHARE` lets others of the tree append meanwhile, but whoever takes the lease or
            puts a stop has to wait (LOG 3.5); `KEY SHARE` keeps nobody waiting.

    Raises:
        NoSession: There is no such session, or its root is gone.
    """
    found = await transaction.row(
        "SELECT s.key, s.version, s.header, s.root, s.messages, "  # noqa: S608 - one of three
        "r.counter, r.nonce, r.stops "
        "FROM @sessions s JOIN @roots r ON r.session = s.root WHERE s.id = %s "
        f"FOR {root} OF r FOR UPDATE OF s",
        session,
    )
    if found is not None:
        return Locked(*found)
    orphan = await transaction.row("SELECT root FROM @sessions WHERE id = %s", session)
    raise NoSession(orphan[0] if orphan is not None else session)


async def check_root(transaction: Transaction, root: str, fence: Fence | None) -> None:
    """Whether a fence is in force, until the transaction ends.

    Raises:
        NoSession: There is no such root.
        FenceLost: It is not.
    """
    found = await transaction.row(
        "SELECT counter, nonce FROM @roots WHERE session = %s FOR SHARE", root
    )
    if found is None:
        raise NoSession(root)
    check_fence(root, found[0], found[1], fence)


def check_fence(root: str, counter: int, nonce: str, fence: Fence | None) -> None:
    """Whether a fence is the one in force. Raises `FenceLost`."""
    if not nonce or (counter, nonce) != fence:
        raise FenceLost(root)


# --- create ------------------------------------------------------------------------------


async def create(transaction: Transaction, asked: Creation) -> Appended:
    """Create a session. Raises as `Log.create`."""
    if asked.header.root:
        await check_root(transaction, asked.header.root, asked.fence)
    while True:
        key = await _insert(transaction, asked)
        if key is not None:
            break
        held = await _created_before(transaction, asked)
        if held is not None:
            return held
    if asked.batch:
        await _insert_entries(transaction, key, asked.batch)
    if not asked.header.root:
        await transaction.do("INSERT INTO @roots (session) VALUES (%s)", asked.header.id)
    return Appended(len(asked.batch))


async def _insert(transaction: Transaction, asked: Creation) -> int | None:
    """The key of the new row; None if there is one of its id or name, whose end was waited for."""
    header, summary = asked.header, asked.summary
    row = await transaction.row(
        "INSERT INTO @sessions (id, root, name, created_at, parent, cwd, run, kind, version, "
        "bytes, status, due, leaf, header) VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%b) "
        "ON CONFLICT DO NOTHING RETURNING key",
        header.id,
        header.lease_root,
        asked.name or None,
        header.created_at,
        header.parent_session,
        header.cwd,
        header.run is not None,
        header.run.kind if header.run is not None else "",
        len(asked.batch),
        len(header.line) + 1 + size_of(asked.batch),
        summary.status,
        summary.due,
        summary.leaf,
        header.line,
    )
    return int(row[0]) if row is not None else None


async def _created_before(transaction: Transaction, asked: Creation) -> Appended | None:
    header = asked.header
    found = await transaction.row(
        "SELECT key, version, header FROM @sessions WHERE id = %s FOR UPDATE", header.id
    )
    if found is None:
        named = await transaction.row("SELECT id FROM @sessions WHERE name = %s", asked.name)
        if named is not None:
            raise NameTaken(asked.name, named[0])
        return None  # who was in the way has been deleted meanwhile
    key, version, line = found
    lines = await transaction.rows(
        "SELECT line FROM @entries WHERE session = %s AND number <= %s ORDER BY number",
        key,
        len(asked.batch),
    )
    if line != header.line or [row[0] for row in lines] != [e.line for e in asked.batch]:
        raise SessionExists(header.id)
    await settle(transaction, key)
    return Appended(version, len(asked.batch))


# --- append ------------------------------------------------------------------------------


async def append(transaction: Transaction, asked: Change, at: At) -> Appended:
    """Append to a session. Raises as `Log.append`."""
    locked = await lock(transaction, asked.session, root="UPDATE" if asked.consumed else "SHARE")
    check_fence(locked.root, locked.counter, locked.nonce, asked.fence)
    held = await look(transaction, locked, asked.version, asked.batch)
    already = check_append(
        held, asked.version, asked.batch, asked.consumed, stopped=locked.stops > 0
    )
    at("checked")
    rest = asked.batch[already:]
    if already:
        await settle(transaction, locked.key)
    if rest:
        await write(transaction, locked, held.header, rest, asked.summary)
        await _consume(transaction, locked, rest)
    elif asked.summary is not None:
        await _summarise(transaction, locked.key, asked.summary)
    return Appended(locked.version + len(rest), already)


_LOOK = """
SELECT 'entry', 0, convert_to(id, 'UTF8') FROM @entries WHERE session = %s AND id = ANY(%s)
UNION ALL
SELECT 'message', 0, convert_to(id, 'UTF8') FROM @messages
    WHERE session = %s AND id = ANY(%s) AND entry IS NULL
UNION ALL
SELECT 'line', number, line FROM @entries WHERE session = %s AND number > %s AND number <= %s
"""


async def look(
    transaction: Transaction, locked: Locked, version: int, batch: Sequence[AnyEntry]
) -> Held:
    """What has to be known of a session to append a batch."""
    header = decode_header(locked.header)
    ids = {entry.id for entry in batch} | {e.parent for e in batch if e.parent}
    messages = {entry.message for entry in batch if entry.message}
    known: dict[str, set[str]] = {"entry": set(), "message": set()}
    lines: dict[int, bytes] = {}
    key = locked.key
    if ids:
        for kind, number, value in await transaction.rows(
            _LOOK,
            *(key, [one for one in ids if "\x00" not in one]),
            *(key, [one for one in messages if "\x00" not in one]),
            *(key, version, version + len(batch)),
        ):
            if kind == "line":
                lines[number] = value
            else:
                known[kind].add(value.decode())
    return Held(header, locked.version, known["entry"], known["message"], lines)


_WRITE = """
WITH moved AS (
    UPDATE @sessions SET version = version + %s, bytes = bytes + %s, header = %b,
        status = CASE WHEN %s THEN %s ELSE status END,
        due = CASE WHEN %s THEN %s ELSE due END,
        leaf = CASE WHEN %s THEN %s ELSE leaf END
    WHERE key = %s AND version = %s RETURNING key
)
INSERT INTO @entries (session, number, id, parent, parents, type, ts, line)
SELECT moved.key, %s + place, batch.id, parent, parents, type, ts, line FROM moved, unnest(
    %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %b::bytea[]
) WITH ORDINALITY AS batch (id, parent, parents, type, ts, line, place)
"""


async def write(
    transaction: Transaction,
    locked: Locked,
    header: Header,
    rest: Sequence[AnyEntry],
    summary: Summary | None,
) -> None:
    """Take the next versions; that of another is a count of no rows (LOG 1.6)."""
    raise_to = raised(header)
    given, kept = summary is not None, summary or Summary()
    written = await transaction.do(
        _WRITE,
        len(rest),
        size_of(rest) + len(raise_to.line) - len(header.line),
        raise_to.line,
        *(given, kept.status, given, kept.due, given, kept.leaf),
        *(locked.key, locked.version, locked.version),
        *_columns(rest),
    )
    if written != len(rest):
        raise StaleVersion(header.id, locked.version, -1)


async def _summarise(transaction: Transaction, key: int, summary: Summary) -> None:
    await transaction.do(
        "UPDATE @sessions SET status = %s, due = %s, leaf = %s WHERE key = %s",
        summary.status,
        summary.due,
        summary.leaf,
        key,
    )


async def _insert_entries(transaction: Transaction, key: int, batch: Sequence[AnyEntry]) -> None:
    """The first entries of a session."""
    await transaction.do(
        "INSERT INTO @entries (session, number, id, parent, parents, type, ts, line) "
        "SELECT %s, place, id, parent, parents, type, ts, line FROM unnest("
        "%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %b::bytea[]) "
        "WITH ORDINALITY AS batch (id, parent, parents, type, ts, line, place)",
        key,
        *_columns(batch),
    )


def _columns(batch: Sequence[AnyEntry]) -> tuple[list[object], ...]:
    """Entries, column by column."""
    return (
        [entry.id for entry in batch],
        [entry.parent for entry in batch],
        [msgspec.json.encode(e.parents).decode() if e.parents else None for e in batch],
        [_plain(entry.type) for entry in batch],
        [_plain(entry.ts) for entry in batch],
        [entry.line for entry in batch],
    )


def _plain(text: str) -> str:
    """Text for a column that only people read; Postgres takes no NUL."""
    return text.replace("\x00", "\ufffd")


async def _consume(transaction: Transaction, locked: Locked, batch: Iterable[AnyEntry]) -> None:
    for entry in batch:
        if not entry.message:
            continue
        (stop,) = await transaction.row(
            "UPDATE @messages SET entry = %s WHERE session = %s AND id = %s RETURNING stop",
            entry.id,
            locked.key,
            entry.message,
        )
        if stop:  # it was put to a root, which is this session
            await transaction.do(
                "UPDATE @roots SET stops = stops - 1 WHERE session = %s", locked.root
            )


async def settle(transaction: Transaction, key: int) -> None:
    """Make what is there durable, by a change whose commit waits for all before it.

    A server that died, or a session that was ended, while it waited for its standbys leaves what
    the next one reads and a failover still takes.
    """
    await transaction.do("UPDATE @sessions SET settled = settled + 1 WHERE key = %s", key)

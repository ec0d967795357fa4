"""Appends in SQLite: functions of the writer's connection, inside its transaction.

Each checks all it has to check before it changes anything, so that a refusal leaves the transaction
of others as it is (LOG 1.6).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import chain
from sqlite3 import SQLITE_CONSTRAINT_UNIQUE, Connection, IntegrityError
from typing import NamedTuple

import msgspec

from perdure.errors import (
    EntryRefused,
    FenceLost,
    NameTaken,
    NoSession,
    SessionExists,
    StaleVersion,
)
from perdure.log.appending import check_append
from perdure.log.entries import AnyEntry
from perdure.log.header import decode_header, raised
from perdure.log.store import Appended, Fence, Summary
from perdure.stores.asked import Change, Creation, size_of
from perdure.stores.points import At

PLACES = 1 << 32
"""How many places every session has."""

_MOST = 64  # entries that are written by one statement

_header = functools.lru_cache(maxsize=1024)(decode_header)


class Held:
    """A session as it is inside the transaction."""

    def __init__(self, connection: Connection, key: int, version: int, header: bytes) -> None:
        self.key = key
        self.version = version
        self.header = _header(header)
        self.known: dict[str, bool] = {}
        """Whether each of some entries is there; others are looked up when they are asked for."""
        self._connection = connection

    def lines_from(self, version: int) -> Sequence[bytes]:
        rows = self._connection.execute(
            "SELECT line FROM perdure_entries WHERE place > ? AND place <= ? ORDER BY place",
            (self.key * PLACES + version, self.key * PLACES + self.version),
        )
        return [line for (line,) in rows]

    def has(self, entry: str) -> bool:
        if entry in self.known:
            return self.known[entry]
        found = self._connection.execute(
            "SELECT 1 FROM perdure_entries WHERE session = ? AND id = ?", (self.key, entry)
        )
        return found.fetchone() is not None

    def waits(self, message: str) -> bool:
        found = self._connection.execute(
            "SELECT 1 FROM perdure_messages WHERE session = ? AND id = ? AND entry IS NULL",
            (self.key, message),
        )
        return found.fetchone() is not None


# --- create ------------------------------------------------------------------------------


def create(connection: Connection, asked: Creation) -> Appended:
    """Create a session. Raises as `Log.create`."""
    header = asked.header
    if header.root:
        check_fence(connection, header.root, asked.fence)
    found = connection.execute(
        "SELECT key, version, header FROM perdure_sessions WHERE id = ?", (header.id,)
    ).fetchone()
    if found is not None:
        return _created_before(connection, Held(connection, *found), asked)
    if asked.name:
        _check_name(connection, asked.name)
    key = _insert(connection, asked)
    _insert_entries(connection, key, 0, asked.batch)
    if not header.root:
        connection.execute("INSERT INTO perdure_roots (session) VALUES (?)", (header.id,))
    return Appended(len(asked.batch))


def _created_before(connection: Connection, held: Held, asked: Creation) -> Appended:
    lines = [entry.line for entry in asked.batch]
    if held.header.line != asked.header.line or held.lines_from(0)[: len(lines)] != lines:
        raise SessionExists(held.header.id)
    settle(connection, held.key)
    return Appended(held.version, len(lines))


def _check_name(connection: Connection, name: str) -> None:
    taken = connection.execute("SELECT id FROM perdure_sessions WHERE name = ?", (name,)).fetchone()
    if taken is not None:
        raise NameTaken(name, taken[0])


def _insert(connection: Connection, asked: Creation) -> int:
    header, summary = asked.header, asked.summary
    inserted = connection.execute(
        "INSERT INTO perdure_sessions (id, root, name, created_at, parent, cwd, run, kind, "
        "version, bytes, status, due, leaf, header) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
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
        ),
    )
    return int(inserted.lastrowid or 0)


# --- append ------------------------------------------------------------------------------

_FIND = """
SELECT s.key, s.version, s.header, s.root, r.counter, r.nonce, r.stops, s.status, s.due,
EXISTS (SELECT 1 FROM perdure_entries e WHERE e.session = s.key AND e.id = ?)
FROM perdure_sessions s LEFT JOIN perdure_roots r ON r.session = s.root WHERE s.id = ?
"""


class Found(NamedTuple):
    """A session whose fence is in force."""

    held: Held
    stopped: bool
    """A stop waits to be taken up."""
    status: str
    due: int | None
    """Of the summary, what is indexed."""


def find(connection: Connection, session: str, fence: Fence, parent: str | None = None) -> Found:
    """Find a session to append to, and at once whether it has the entry to go on from.

    Raises:
        NoSession: There is no such session, or its root is gone.
        FenceLost: The fence is not in force.
    """
    found = connection.execute(_FIND, (parent, session)).fetchone()
    if found is None:
        raise NoSession(session)
    key, version, header, root, counter, nonce, stops, status, due, there = found
    if counter is None:
        raise NoSession(root)
    if not nonce or (counter, nonce) != fence:
        raise FenceLost(root)
    held = Held(connection, key, version, header)
    if parent is not None:
        held.known[parent] = bool(there)
    return Found(held, stops > 0, status, due)


def append(connection: Connection, asked: Change, at: At) -> Appended:
    """Append to a session. Raises as `Log.append`."""
    batch = asked.batch
    found = find(connection, asked.session, asked.fence, batch[0].parent if batch else None)
    held = found.held
    if held.version == asked.version and len(batch) <= _MOST:
        held.known |= dict.fromkeys([entry.id for entry in batch], False)  # writing them tells
    already = check_append(held, asked.version, batch, asked.consumed, stopped=found.stopped)
    at("checked")
    rest = batch[already:]
    if already:
        settle(connection, held.key)
    write(connection, found, rest, asked.summary)
    return Appended(held.version + len(rest), already)


def write(
    connection: Connection, found: Found, rest: Sequence[AnyEntry], summary: Summary | None
) -> None:
    """Write entries that were checked, and the summary with them.

    Raises:
        EntryRefused: One of them is there already; nothing was written.
        StaleVersion: Another has the version.
    """
    if rest:
        _add(connection, found.held, rest)
    _move(connection, found, rest, summary)
    _consume(connection, found.held, rest)


def _add(connection: Connection, held: Held, rest: Sequence[AnyEntry]) -> None:
    try:
        _insert_entries(connection, held.key, held.version, rest)
    except IntegrityError as error:
        if error.sqlite_errorcode != SQLITE_CONSTRAINT_UNIQUE or len(rest) > _MOST:
            raise
        raise EntryRefused(f"an entry of {held.header.id!r} is there already") from None


def _move(
    connection: Connection, found: Found, rest: Sequence[AnyEntry], summary: Summary | None
) -> None:
    """Take the next versions; that of another is a count of no rows (LOG 1.6).

    What is indexed is written only if it changed: its indexes are updated even if it did not.
    """
    held = found.held
    header = raised(held.header) if rest else held.header
    changes: dict[str, object] = {}
    if summary is not None:
        changes["leaf = ?"] = summary.leaf
        if (summary.status, summary.due) != (found.status, found.due):
            changes["status = ?"], changes["due = ?"] = summary.status, summary.due
    if header is not held.header:
        changes["header = ?"] = header.line
    if rest:
        changes["version = version + ?"] = len(rest)
        size = size_of(rest) + len(header.line) - len(held.header.line)
        changes["bytes = bytes + ?"] = size
    if not changes:
        return
    moved = connection.execute(
        f"UPDATE perdure_sessions SET {', '.join(changes)} WHERE key = ? AND version = ?",  # noqa: S608
        (*changes.values(), held.key, held.version),
    )
    if moved.rowcount != 1:
        raise StaleVersion(held.header.id, held.version, -1)


def _insert_entries(
    connection: Connection, key: int, version: int, batch: Sequence[AnyEntry]
) -> None:
    """Insert entries: a batch of common size in one statement, which does all of it or nothing."""
    rows = [
        (
            key * PLACES + number,
            key,
            entry.id,
            entry.parent,
            msgspec.json.encode(entry.parents).decode() if entry.parents else None,
            entry.type,
            entry.ts,
            entry.line,
        )
        for number, entry in enumerate(batch, version + 1)
    ]
    if 0 < len(rows) <= _MOST:
        connection.execute(_insertion(len(rows)), tuple(chain.from_iterable(rows)))
    else:
        connection.executemany(_insertion(1), rows)


@functools.cache
def _insertion(rows: int) -> str:
    row = "(?,?,?,?,?,?,?,?)"
    return _INSERT + ",".join([row] * rows)


_INSERT = (
    "INSERT INTO perdure_entries (place, session, id, parent, parents, type, ts, line) VALUES "
)


def _consume(connection: Connection, held: Held, batch: Iterable[AnyEntry]) -> None:
    for entry in batch:
        if not entry.message:
            continue
        connection.execute(
            "UPDATE perdure_messages SET entry = ? WHERE session = ? AND id = ?",
            (entry.id, held.key, entry.message),
        )
        # A stop was put to a root, which is then this session.
        connection.execute(
            "UPDATE perdure_roots SET stops = stops - 1 WHERE session = ? AND EXISTS "
            "(SELECT 1 FROM perdure_messages m WHERE m.session = ? AND m.id = ? AND m.stop)",
            (held.header.id, held.key, entry.message),
        )


# --- what others need as well ------------------------------------------------------------


def settle(connection: Connection, key: int) -> None:
    """Make what is there durable, by a change that has to be synchronised.

    Whoever is told that something is held must be able to rely on it (`synchronise`).
    """
    connection.execute("UPDATE perdure_sessions SET settled = settled + 1 WHERE key = ?", (key,))


def check_fence(connection: Connection, root: str, fence: Fence | None) -> None:
    """Whether a fence is in force.

    Raises:
        NoSession: There is no such root.
        FenceLost: It is not.
    """
    found = connection.execute(
        "SELECT counter, nonce FROM perdure_roots WHERE session = ?", (root,)
    ).fetchone()
    if found is None:
        raise NoSession(root)
    if fence is None or not found[1] or found != fence:
        raise FenceLost(root)

"""Appends in SQLite: functions of the writer's connection, inside its transaction.

Each checks all it has to check before it changes anything, so that a refusal leaves the transaction
of others as it is (LOG 1.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sqlite3 import Connection
from typing import NamedTuple

import msgspec

from perdure.errors import FenceLost, NameTaken, NoSession, SessionExists, StaleVersion
from perdure.log.appending import check_append
from perdure.log.entries import AnyEntry
from perdure.log.header import decode_header, raised
from perdure.log.store import Appended, Fence, Summary
from perdure.stores.asked import Change, Creation, size_of
from perdure.stores.points import At

PLACES = 1 << 32
"""How many places every session has."""


class Held:
    """A session as it is inside the transaction."""

    def __init__(self, connection: Connection, key: int, version: int, header: bytes) -> None:
        self.key = key
        self.version = version
        self.header = decode_header(header)
        self._connection = connection

    def lines_from(self, version: int) -> Sequence[bytes]:
        rows = self._connection.execute(
            "SELECT line FROM perdure_entries WHERE place > ? AND place <= ? ORDER BY place",
            (self.key * PLACES + version, self.key * PLACES + self.version),
        )
        return [line for (line,) in rows]

    def has(self, entry: str) -> bool:
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
SELECT s.key, s.version, s.header, s.root, r.counter, r.nonce, r.stops
FROM perdure_sessions s LEFT JOIN perdure_roots r ON r.session = s.root WHERE s.id = ?
"""


class Found(NamedTuple):
    """A session whose fence is in force."""

    held: Held
    stopped: bool
    """A stop waits to be taken up."""


def find(connection: Connection, session: str, fence: Fence) -> Found:
    """Find a session to append to. Raises `NoSession` and `FenceLost`."""
    found = connection.execute(_FIND, (session,)).fetchone()
    if found is None:
        raise NoSession(session)
    key, version, header, root, counter, nonce, stops = found
    if counter is None:
        raise NoSession(root)
    if not nonce or (counter, nonce) != fence:
        raise FenceLost(root)
    return Found(Held(connection, key, version, header), stops > 0)


def append(connection: Connection, asked: Change, at: At) -> Appended:
    """Append to a session. Raises as `Log.append`."""
    held, stopped = find(connection, asked.session, asked.fence)
    already = check_append(held, asked.version, asked.batch, asked.consumed, stopped=stopped)
    at("checked")
    rest = asked.batch[already:]
    if already:
        settle(connection, held.key)
    if rest:
        write(connection, held, rest)
    if asked.summary is not None:
        summarise(connection, held.key, asked.summary)
    return Appended(held.version + len(rest), already)


def write(connection: Connection, held: Held, rest: Sequence[AnyEntry]) -> None:
    """Write entries that were checked."""
    _move(connection, held, rest)
    _insert_entries(connection, held.key, held.version, rest)
    _consume(connection, held, rest)


def _move(connection: Connection, held: Held, rest: Sequence[AnyEntry]) -> None:
    """Take the next versions; that of another is a count of no rows (LOG 1.6)."""
    header = raised(held.header)
    moved = connection.execute(
        "UPDATE perdure_sessions SET version = version + ?, bytes = bytes + ? "
        "WHERE key = ? AND version = ?",
        (
            len(rest),
            size_of(rest) + len(header.line) - len(held.header.line),
            held.key,
            held.version,
        ),
    )
    if moved.rowcount != 1:
        raise StaleVersion(held.header.id, held.version, -1)
    if header is not held.header:
        connection.execute(
            "UPDATE perdure_sessions SET header = ? WHERE key = ?", (header.line, held.key)
        )


def summarise(connection: Connection, key: int, summary: Summary) -> None:
    """Keep a summary of a session."""
    connection.execute(
        "UPDATE perdure_sessions SET status = ?, due = ?, leaf = ? WHERE key = ?",
        (summary.status, summary.due, summary.leaf, key),
    )


def _insert_entries(
    connection: Connection, key: int, version: int, batch: Iterable[AnyEntry]
) -> None:
    connection.executemany(
        "INSERT INTO perdure_entries (place, session, id, parent, parents, type, ts, line) "
        "VALUES (?,?,?,?,?,?,?,?)",
        [
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
        ],
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

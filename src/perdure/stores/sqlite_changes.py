"""Leases, messages, blobs, erasure and deletion in SQLite.

Functions of the writer's connection, inside its transaction; each checks before it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from perdure.errors import ConfigError, FenceLost, Leased, NoEntry, NoSession
from perdure.log.entries import decode_entry
from perdure.log.ids import digest
from perdure.log.store import Fence, Lease, Message, Put
from perdure.log.writing import erased_line
from perdure.stores.sqlite_append import PLACES, check_fence, settle

_SECOND = 10**9


def _key(connection: Connection, session: str) -> int:
    found = connection.execute(
        "SELECT key FROM perdure_sessions WHERE id = ?", (session,)
    ).fetchone()
    if found is None:
        raise NoSession(session)
    return int(found[0])


# --- leases ------------------------------------------------------------------------------

IN_FORCE = "nonce <> '' AND until > :now AND until <= :now + (seconds + 1) * 1000000000"
"""Whether a lease keeps others out. One that would last longer than was asked for is of a clock
that was set back since."""


def lease(
    connection: Connection, root: str, *, holder: str, nonce: str, seconds: float, now: int
) -> Lease:
    """Take a lease. Raises as `Leases.lease`."""
    found = connection.execute(
        f"SELECT s.root, r.counter, r.holder, {IN_FORCE} FROM perdure_sessions s "  # noqa: S608
        "LEFT JOIN perdure_roots r ON r.session = s.id WHERE s.id = :root",
        {"root": root, "now": now},
    ).fetchone()
    if found is None:
        raise NoSession(root)
    of, counter, current, in_force = found
    if of != root:
        raise ConfigError(f"session {root!r} is no root; lease {of!r}")
    if in_force:
        raise Leased(root, current)
    fence = Fence(counter + 1, nonce)
    connection.execute(
        "UPDATE perdure_roots SET counter = ?, nonce = ?, holder = ?, seconds = ?, until = ? "
        "WHERE session = ?",
        (*fence, holder, seconds, now + int(seconds * _SECOND), root),
    )
    return Lease(root=root, fence=fence, holder=holder, seconds=seconds)


def renew(connection: Connection, lease: Lease, now: int) -> Lease:
    """Hold a lease for as long again. Raises as `Leases.renew`."""
    seconds = lease.seconds or 0.0
    renewed = connection.execute(
        "UPDATE perdure_roots SET seconds = ?, until = ? "
        "WHERE session = ? AND counter = ? AND nonce = ?",
        (seconds, now + int(seconds * _SECOND), lease.root, *lease.fence),
    )
    if not lease.fence.nonce or renewed.rowcount != 1:
        raise FenceLost(lease.root)
    return lease


def release(connection: Connection, lease: Lease) -> None:
    """Give a lease back, if it is the one in force."""
    connection.execute(
        "UPDATE perdure_roots SET nonce = '', holder = '', until = 0 "
        "WHERE session = ? AND counter = ? AND nonce = ?",
        (lease.root, *lease.fence),
    )


# --- the inbox ---------------------------------------------------------------------------


def put(connection: Connection, session: str, message: Message, *, stop: bool) -> Put:
    """Leave a message. Raises as `Inbox.put`."""
    found = connection.execute(
        "SELECT key, root, messages FROM perdure_sessions WHERE id = ?", (session,)
    ).fetchone()
    if found is None:
        raise NoSession(session)
    key, root, count = found
    if stop and root != session:
        raise ConfigError(f"session {session!r} is no root; stop {root!r}")
    there = connection.execute(
        "SELECT number FROM perdure_messages WHERE session = ? AND id = ?", (key, message.id)
    ).fetchone()
    if there is not None:
        settle(connection, key)
        return Put(there[0], duplicate=True)
    number = count + 1
    connection.execute(
        "INSERT INTO perdure_messages (session, number, id, stop, body) VALUES (?,?,?,?,?)",
        (key, number, message.id, stop, message.body),
    )
    connection.execute("UPDATE perdure_sessions SET messages = ? WHERE key = ?", (number, key))
    if stop:
        connection.execute(
            "UPDATE perdure_roots SET stops = stops + 1 WHERE session = ?", (session,)
        )
    return Put(number)


# --- blobs -------------------------------------------------------------------------------


def write_blob(connection: Connection, session: str, data: bytes) -> str:
    """Keep bytes. Raises `NoSession`."""
    name = digest(data)
    connection.execute(
        "INSERT OR IGNORE INTO perdure_blobs VALUES (?,?,?)",
        (_key(connection, session), name, data),
    )
    return name


def erase_blob(connection: Connection, session: str, name: str) -> None:
    """Remove bytes. Raises `NoSession`."""
    connection.execute(
        "DELETE FROM perdure_blobs WHERE session = ? AND digest = ?",
        (_key(connection, session), name),
    )


# --- erasing and deleting ----------------------------------------------------------------


def erase(connection: Connection, session: str, fence: Fence, entries: Sequence[str]) -> int:
    """Remove bodies, and those of the messages they consumed. Raises as `Erasure.erase`."""
    found = connection.execute(
        "SELECT key, root FROM perdure_sessions WHERE id = ?", (session,)
    ).fetchone()
    if found is None:
        raise NoSession(session)
    key, root = found
    check_fence(connection, root, fence)
    lines = {entry: _line(connection, key, entry) for entry in dict.fromkeys(entries)}
    count = saved = 0
    for entry, line in lines.items():
        stub = erased_line(line)
        if stub != line:
            count, saved = count + 1, saved + len(line) - len(stub)
            _erase(connection, key, entry, stub)
    connection.execute("UPDATE perdure_sessions SET bytes = bytes - ? WHERE key = ?", (saved, key))
    return count


def _line(connection: Connection, key: int, entry: str) -> bytes:
    found = connection.execute(
        "SELECT line FROM perdure_entries WHERE session = ? AND id = ?", (key, entry)
    ).fetchone()
    if found is None:
        raise NoEntry(entry)
    return bytes(found[0])


def _erase(connection: Connection, key: int, entry: str, stub: bytes) -> None:
    connection.execute(
        "UPDATE perdure_entries SET content = ?, line = ? WHERE session = ? AND id = ?",
        (decode_entry(stub).erased, stub, key, entry),
    )
    connection.execute(
        "UPDATE perdure_messages SET body = ? WHERE session = ? AND entry = ?",
        (b"{}", key, entry),
    )


def delete(connection: Connection, session: str, *, fence: Fence | None, now: int) -> None:
    """Remove a session. Raises as `Log.delete`."""
    found = connection.execute(
        f"SELECT s.key, s.root, r.counter, r.nonce, r.holder, {IN_FORCE} "  # noqa: S608
        "FROM perdure_sessions s LEFT JOIN perdure_roots r ON r.session = s.root WHERE s.id = :id",
        {"id": session, "now": now},
    ).fetchone()
    if found is None:
        return
    key, root, counter, nonce, holder, in_force = found
    if in_force and (counter, nonce) != fence:
        raise Leased(root, holder)
    connection.execute(
        "DELETE FROM perdure_entries WHERE place > ? AND place < ?",
        (key * PLACES, (key + 1) * PLACES),
    )
    connection.execute("DELETE FROM perdure_messages WHERE session = ?", (key,))
    connection.execute("DELETE FROM perdure_blobs WHERE session = ?", (key,))
    connection.execute("DELETE FROM perdure_roots WHERE session = ?", (session,))
    connection.execute("DELETE FROM perdure_sessions WHERE key = ?", (key,))

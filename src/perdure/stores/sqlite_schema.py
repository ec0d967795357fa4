"""The tables of a SQLite store, and how older ones become those of today.

A *place* is where an entry stands among all entries: the key of its session, then its number there,
from 1. It is the row's own key, so that a session is read in one sweep.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from sqlite3 import Connection

from perdure.errors import ConfigError

_FIRST = (
    "CREATE TABLE perdure_schema (owner TEXT NOT NULL, version INTEGER NOT NULL)",
    "INSERT INTO perdure_schema VALUES ('perdure', 0)",
    """CREATE TABLE perdure_sessions (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        root TEXT NOT NULL,
        name TEXT UNIQUE,
        created_at TEXT NOT NULL,
        parent TEXT NOT NULL,
        cwd TEXT NOT NULL,
        run INTEGER NOT NULL,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        messages INTEGER NOT NULL DEFAULT 0,
        settled INTEGER NOT NULL DEFAULT 0,
        status TEXT NOT NULL,
        due INTEGER,
        leaf TEXT,
        header BLOB NOT NULL
    )""",
    "CREATE INDEX perdure_sessions_created ON perdure_sessions (created_at, id)",
    "CREATE INDEX perdure_sessions_status ON perdure_sessions (status, created_at, id)",
    "CREATE INDEX perdure_sessions_root ON perdure_sessions (root)",
    "CREATE INDEX perdure_sessions_parent ON perdure_sessions (parent) WHERE parent <> ''",
    "CREATE INDEX perdure_sessions_due ON perdure_sessions (due) WHERE due IS NOT NULL",
    # Of root sessions: the lease, and how many stops wait. An empty nonce is no lease.
    """CREATE TABLE perdure_roots (
        session TEXT PRIMARY KEY,
        counter INTEGER NOT NULL DEFAULT 0,
        nonce TEXT NOT NULL DEFAULT '',
        holder TEXT NOT NULL DEFAULT '',
        seconds REAL NOT NULL DEFAULT 0,
        until INTEGER NOT NULL DEFAULT 0,
        stops INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    # `content` is the hash of a body that was erased, and null until then; `line` is then a stub.
    """CREATE TABLE perdure_entries (
        place INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        id TEXT NOT NULL,
        parent TEXT,
        parents TEXT,
        type TEXT NOT NULL,
        ts TEXT NOT NULL,
        content TEXT,
        line BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX perdure_entries_id ON perdure_entries (session, id)",
    # `entry` is the one that consumed the message.
    """CREATE TABLE perdure_messages (
        session INTEGER NOT NULL,
        number INTEGER NOT NULL,
        id TEXT NOT NULL,
        stop INTEGER NOT NULL,
        entry TEXT,
        body BLOB NOT NULL,
        PRIMARY KEY (session, number)
    )""",
    "CREATE UNIQUE INDEX perdure_messages_id ON perdure_messages (session, id)",
    "CREATE INDEX perdure_messages_waiting ON perdure_messages (session) WHERE entry IS NULL",
    """CREATE TABLE perdure_blobs (
        session INTEGER NOT NULL,
        digest TEXT NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (session, digest)
    )""",
)

MIGRATIONS = (_FIRST,)
"""What makes each version of the schema out of the one before. Never changed, only added to."""

VERSION = len(MIGRATIONS)


def prepare(connection: Connection, path: Path) -> None:
    """Make the tables, or bring them to today's version; many processes may do so at once.

    Whoever finds the database locked closes the connection and tries again.

    Raises:
        ConfigError: The database cannot have a write-ahead log, has tables of these names that are
            not perdure's, or was made by a newer perdure.
        sqlite3.Error: It is locked, or could not be read or written.
    """
    if is_prepared(connection, path):
        return
    mode = _journal(connection, "= WAL")
    if mode != "wal":
        raise ConfigError(f"{str(path)!r} cannot have a write-ahead log; it has {mode!r}")
    connection.execute("BEGIN IMMEDIATE")
    _migrate(connection, _version(connection, path))
    connection.execute("COMMIT")


def is_prepared(connection: Connection, path: Path) -> bool:
    """Whether it has today's tables and a write-ahead log. Raises as `prepare`."""
    return _version(connection, path) == VERSION and _journal(connection) == "wal"


def _journal(connection: Connection, change: str = "") -> str:
    (mode,) = connection.execute(f"PRAGMA journal_mode {change}").fetchone()
    return str(mode)


def _migrate(connection: Connection, version: int) -> None:
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute("UPDATE perdure_schema SET version = ?", (VERSION,))


def _version(connection: Connection, path: Path) -> int:
    """The version of the schema; 0 if there is none."""
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE name LIKE 'perdure\\_%' ESCAPE '\\'"
    ).fetchall()
    names = {str(name) for (name,) in rows}
    if not names:
        return 0
    found = _owned(connection) if "perdure_schema" in names else None
    if found is None:
        raise ConfigError(
            f"{str(path)!r} has a table {min(names)!r} that is not perdure's; use another file"
        )
    if found > VERSION:
        raise ConfigError(
            f"{str(path)!r} has schema {found}, made by a newer perdure; this one knows {VERSION}"
        )
    return found


def _owned(connection: Connection) -> int | None:
    try:
        row = connection.execute(
            "SELECT version FROM perdure_schema WHERE owner = 'perdure'"
        ).fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return None  # it has no such columns
    return int(row[0]) if row is not None else None

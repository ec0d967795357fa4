"""What is read from SQLite: functions of a reader's connection, each in one snapshot."""

from __future__ import annotations

from sqlite3 import Connection

from perdure.errors import NoEntry, NoSession
from perdure.log.header import decode_header
from perdure.log.store import Filters, Listed, Message, Page, Stored, Summary
from perdure.stores.listing import place_of
from perdure.stores.sqlite_append import PLACES
from perdure.stores.sqlite_changes import IN_FORCE


def read(connection: Connection, session: str, *, since: int, leaf: str | None) -> Stored:
    """A session, or a part of it. Raises as `Log.read`."""
    found = connection.execute(
        "SELECT key, version, header, status, due, leaf, bytes FROM perdure_sessions WHERE id = ?",
        (session,),
    ).fetchone()
    if found is None:
        raise NoSession(session)
    key, version, header, *summary = found
    lines = _since(connection, key, since) if leaf is None else _path(connection, key, leaf)
    return Stored(
        header=decode_header(header), version=version, lines=lines, summary=_summary(*summary)
    )


def _summary(status: str, due: int | None, leaf: str | None, size: int) -> Summary:
    return Summary(status=status, due=due, leaf=leaf, bytes=size)


def _since(connection: Connection, key: int, since: int) -> tuple[bytes, ...]:
    rows = connection.execute(
        "SELECT line FROM perdure_entries WHERE place > ? AND place < ? ORDER BY place",
        (key * PLACES + max(since, 0), (key + 1) * PLACES),
    )
    return tuple(line for (line,) in rows)


_PATH = """
WITH RECURSIVE path (place, parent) AS (
    SELECT place, parent FROM perdure_entries WHERE session = :key AND id = :leaf
    UNION ALL
    SELECT e.place, e.parent FROM path JOIN perdure_entries e
        ON e.session = :key AND e.id = path.parent
)
SELECT e.line FROM path JOIN perdure_entries e ON e.place = path.place ORDER BY e.place
"""


def _path(connection: Connection, key: int, leaf: str) -> tuple[bytes, ...]:
    rows = connection.execute(_PATH, {"key": key, "leaf": leaf}).fetchall()
    if not rows:
        raise NoEntry(leaf)
    return tuple(line for (line,) in rows)


# --- lists -------------------------------------------------------------------------------


def listing(connection: Connection, filters: Filters, after: str, limit: int) -> Page:
    """Sessions, oldest first."""
    wanted, values = _conditions(filters)
    if after:
        created_at, _, session = after.partition("/")
        wanted.append("(created_at, id) > (?, ?)")
        values += [created_at, session]
    rows = connection.execute(
        "SELECT header, name, version, status, due, leaf, bytes FROM perdure_sessions "  # noqa: S608
        f"WHERE {' AND '.join(wanted) or '1'} ORDER BY created_at, id LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    shown = tuple(
        Listed(
            header=decode_header(header),
            name=name or "",
            version=version,
            summary=_summary(*summary),
        )
        for header, name, version, *summary in rows[:limit]
    )
    return Page(shown, place_of(shown[-1]) if shown and len(rows) > limit else "")


def _conditions(filters: Filters) -> tuple[list[str], list[object]]:
    equal = {
        "name": filters.name,
        "kind": filters.kind,
        "parent": filters.parent,
        "root": filters.root,
        "cwd": filters.cwd,
    }
    wanted = [f"{column} = ?" for column, value in equal.items() if value]
    values: list[object] = [value for value in equal.values() if value]
    if filters.statuses:
        wanted.append(f"status IN ({','.join('?' * len(filters.statuses))})")
        values += sorted(filters.statuses)
    if filters.roots_only:
        wanted.append("root = id")
    if filters.runs_only:
        wanted.append("run")
    return wanted, values


_DUE = f"""
SELECT want.root FROM (
    SELECT root, due AS at FROM perdure_sessions WHERE due <= :before
    UNION ALL
    SELECT s.root, 0 FROM perdure_messages m JOIN perdure_sessions s ON s.key = m.session
        WHERE m.entry IS NULL
) want LEFT JOIN perdure_roots ON session = want.root
GROUP BY want.root ORDER BY max(coalesce({IN_FORCE}, 0)), min(want.at) LIMIT :limit
"""  # noqa: S608


def due(connection: Connection, before: int, *, limit: int, now: int) -> tuple[str, ...]:
    """The roots that want a driver; those that have one come last."""
    rows = connection.execute(_DUE, {"before": before, "limit": limit, "now": now})
    return tuple(root for (root,) in rows)


# --- messages, blobs ---------------------------------------------------------------------


def _key(connection: Connection, session: str) -> int:
    found = connection.execute(
        "SELECT key FROM perdure_sessions WHERE id = ?", (session,)
    ).fetchone()
    if found is None:
        raise NoSession(session)
    return int(found[0])


def unconsumed(connection: Connection, session: str) -> tuple[Message, ...]:
    """The messages that no entry names. Raises `NoSession`."""
    rows = connection.execute(
        "SELECT id, body, stop, number FROM perdure_messages "
        "WHERE session = ? AND entry IS NULL ORDER BY number",
        (_key(connection, session),),
    )
    return tuple(
        Message(id=id_, body=body, stop=bool(stop), number=number)
        for id_, body, stop, number in rows
    )


def read_blob(connection: Connection, session: str, name: str) -> bytes:
    """The bytes of a hash. Raises as `Blobs.read_blob`."""
    found = connection.execute(
        "SELECT data FROM perdure_blobs WHERE session = ? AND digest = ?",
        (_key(connection, session), name),
    ).fetchone()
    if found is None:
        raise NoEntry(name)
    return bytes(found[0])

"""What is read from Postgres: work in one snapshot."""

from __future__ import annotations

from perdure.errors import NoEntry, NoSession
from perdure.log.header import decode_header
from perdure.log.store import Filters, Listed, Message, Page, Stored, Summary
from perdure.stores.listing import place_of
from perdure.stores.postgres_changes import IN_FORCE, key_of
from perdure.stores.postgres_pool import Transaction


async def read(transaction: Transaction, session: str, *, since: int, leaf: str | None) -> Stored:
    """A session, or a part of it. Raises as `Log.read`."""
    found = await transaction.row(
        "SELECT key, version, header, status, due, leaf, bytes FROM @sessions WHERE id = %s",
        session,
    )
    if found is None:
        raise NoSession(session)
    key, version, header, *summary = found
    if leaf is None:
        lines = await _since(transaction, key, since)
    else:
        lines = await _path(transaction, key, leaf)
    return Stored(
        header=decode_header(header), version=version, lines=lines, summary=_summary(*summary)
    )


def _summary(status: str, due: int | None, leaf: str | None, size: int) -> Summary:
    return Summary(status=status, due=due, leaf=leaf, bytes=size)


async def _since(transaction: Transaction, key: int, since: int) -> tuple[bytes, ...]:
    rows = await transaction.rows(
        "SELECT line FROM @entries WHERE session = %s AND number > %s ORDER BY number", key, since
    )
    return tuple(line for (line,) in rows)


_PATH = """
WITH RECURSIVE path (number, parent) AS (
    SELECT number, parent FROM @entries WHERE session = %s AND id = %s
    UNION ALL
    SELECT e.number, e.parent FROM path JOIN @entries e ON e.session = %s AND e.id = path.parent
)
SELECT e.line FROM path JOIN @entries e ON e.session = %s AND e.number = path.number
ORDER BY e.number
"""


async def _path(transaction: Transaction, key: int, leaf: str) -> tuple[bytes, ...]:
    rows = await transaction.rows(_PATH, key, leaf, key, key)
    if not rows:
        raise NoEntry(leaf)
    return tuple(line for (line,) in rows)


# --- lists -------------------------------------------------------------------------------


async def listing(transaction: Transaction, filters: Filters, after: str, limit: int) -> Page:
    """Sessions, oldest first."""
    wanted, values = _conditions(filters)
    if after:
        created_at, _, session = after.partition("/")
        wanted.append("(created_at, id) > (%s, %s)")
        values += [created_at, session]
    rows = await transaction.rows(
        "SELECT header, name, version, status, due, leaf, bytes FROM @sessions "  # noqa: S608
        f"WHERE {' AND '.join(wanted) or 'true'} ORDER BY created_at, id LIMIT %s",
        *values,
        limit + 1,
    )
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
    wanted = [f"{column} = %s" for column, value in equal.items() if value]
    values: list[object] = [value for value in equal.values() if value]
    if filters.statuses:
        wanted.append("status = ANY(%s)")
        values.append(sorted(filters.statuses))
    if filters.roots_only:
        wanted.append("root = id")
    if filters.runs_only:
        wanted.append("run")
    return wanted, values


_DUE = f"""
SELECT want.root FROM (
    SELECT root, due AS at FROM @sessions WHERE due <= %s
    UNION ALL
    SELECT s.root, 0 FROM @messages m JOIN @sessions s ON s.key = m.session WHERE m.entry IS NULL
) want LEFT JOIN @roots ON session = want.root
GROUP BY want.root ORDER BY bool_or(coalesce({IN_FORCE}, false)), min(want.at) LIMIT %s
"""  # noqa: S608


async def due(transaction: Transaction, before: int, *, limit: int) -> tuple[str, ...]:
    """The roots that want a driver; those that have one come last."""
    return tuple(root for (root,) in await transaction.rows(_DUE, before, limit))


# --- messages, blobs ---------------------------------------------------------------------


async def unconsumed(transaction: Transaction, session: str) -> tuple[Message, ...]:
    """The messages that no entry names. Raises `NoSession`."""
    rows = await transaction.rows(
        "SELECT id, body, stop, number FROM @messages "
        "WHERE session = %s AND entry IS NULL ORDER BY number",
        await key_of(transaction, session),
    )
    return tuple(
        Message(id=id_, body=body, stop=stop, number=number) for id_, body, stop, number in rows
    )


async def read_blob(transaction: Transaction, session: str, name: str) -> bytes:
    """The bytes of a hash. Raises as `Blobs.read_blob`."""
    found = await transaction.row(
        "SELECT data FROM @blobs WHERE session = %s AND digest = %s",
        await key_of(transaction, session),
        name,
    )
    if found is None:
        raise NoEntry(name)
    return bytes(found[0])

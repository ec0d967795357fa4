"""What the checks write, and how they read it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.log.entries import MESSAGE, AnyEntry
from perdure.log.header import Header, new_header
from perdure.log.store import Lease, Store
from perdure.log.timestamps import timestamp
from perdure.log.writing import Draft, seal

START = 1_790_000_000 * 10**9


def header(session: str = "s1", **members: object) -> Header:
    """A header of a test."""
    created = timestamp(START + len(members) * 10**9)
    return new_header(session, created, **members)  # type: ignore[arg-type]


def chain(
    count: int,
    *,
    under: str | None = None,
    first: int = 0,
    type: str = "custom",  # noqa: A002 - the format's own name
    body: Mapping[str, object] | None = None,
) -> list[AnyEntry]:
    """Entries, each under the one before."""
    entries: list[AnyEntry] = []
    for number in range(first, first + count):
        parent = entries[-1].id if entries else under
        draft = Draft(type, body or {"ns": "kit", "data": {"n": number}})
        entries.append(seal(draft, parent, timestamp(START + number * 10**6)))
    return entries


async def begun(
    store: Store, *, session: str = "s1", entries: int = 0, **members: object
) -> tuple[Lease, list[AnyEntry]]:
    """A session with some entries, and its lease."""
    batch = chain(entries)
    await store.create(header(session, **members), batch=batch)
    return await store.lease(session, holder="kit"), batch


async def lines_of(store: Store, session: str = "s1") -> list[bytes]:
    """What the store has of a session."""
    return list((await store.read(session)).lines)


def written(entries: Sequence[AnyEntry]) -> list[bytes]:
    """What a store should have of entries."""
    return [entry.line for entry in entries]


def consuming(message: str, *, under: str | None, first: int) -> list[AnyEntry]:
    """An entry that names a message."""
    return chain(1, under=under, first=first, body={"ns": "kit", MESSAGE: message})

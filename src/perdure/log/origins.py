"""Where a fork comes from: what was dispatched there may have run here too."""

from __future__ import annotations

from perdure.errors import CorruptLog, NoSession
from perdure.log.header import Header
from perdure.log.reading import read_lines
from perdure.log.session import Session
from perdure.log.store import Log

MAX_ORIGINS = 64
"""How far back forks are followed."""


async def origins_of(store: Log, header: Header) -> tuple[Session, ...]:
    """The sessions that a session was forked from, nearest first, as far as the store has them.

    Raises:
        CorruptLog: They lead in a circle, or further back than `MAX_ORIGINS`.
    """
    origins: list[Session] = []
    seen = {header.id}
    while header.base and header.parent_session:
        if header.parent_session in seen or len(origins) == MAX_ORIGINS:
            raise CorruptLog(f"the forks of {header.id!r} lead back without an end", line=1)
        seen.add(header.parent_session)
        try:
            origin = await store.read(header.parent_session)
        except NoSession:
            break
        found = read_lines(origin.header, origin.lines, verify=False).session
        origins.append(found)
        header = found.header
    return tuple(origins)

"""The Postgres store: sessions in a schema of a database, for drivers on many machines.

Each append is a transaction that locks the session's row; drivers of other sessions never wait for
it. Nothing outlives a transaction on a connection, so a transaction pooler may stand in between.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.errors import ConfigError
from perdure.log.appending import check_batch
from perdure.log.entries import AnyEntry
from perdure.log.header import Header
from perdure.log.store import (
    Appended,
    Composed,
    Fence,
    Filters,
    Lease,
    Message,
    Page,
    Put,
    Stored,
    Summary,
)
from perdure.stores.asked import Change, Creation, Transacting
from perdure.stores.points import At, passing
from perdure.stores.upkeep import Finding
from perdure.tools import Transaction as ToolTransaction

try:
    from perdure.stores import (
        postgres_append as appends,
        postgres_changes as changes,
        postgres_doctor as doctor,
        postgres_reads as reads,
        postgres_schema as schemas,
        postgres_transact as transacts,
    )
    from perdure.stores.postgres_pool import Pool, Transaction
except ImportError as missing:
    raise ConfigError(
        f"postgresql: stores need psycopg ({missing}); install perdure[postgres]"
    ) from missing

T = TypeVar("T")


class PostgresStore:
    """Sessions in a Postgres database.

    Args:
        url: `postgresql://user@server/database`, with libpq's parameters.
        schema: Where the tables are; it is made when it is first used.
        connections: How many at most, for each event loop that uses the store.
        clock: What the server's is compared with by `examine`; leases lapse by the server's.
        ids: What the nonces of fences come from.
        at: Called at every stop point.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "perdure",
        connections: int = 10,
        clock: Clock | None = None,
        ids: Ids | None = None,
        at: At = passing,
    ) -> None:
        self.schema = schema
        self._pool = Pool(url, schema=schema, connections=connections, at=at)
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._at = at
        self._prepared = False

    async def _write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        await self._prepare()
        return await self._pool.write(work)

    async def _read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        await self._prepare()
        return await self._pool.read(work)

    async def _prepare(self) -> None:
        if not self._prepared:
            await schemas.prepare(self._pool)
            self._prepared = True

    # --- the log -------------------------------------------------------------------------

    async def create(
        self,
        header: Header,
        *,
        name: str = "",
        batch: Sequence[AnyEntry] = (),
        fence: Fence | None = None,
        summary: Summary | None = None,
    ) -> Appended:
        check_batch(header, batch)
        creation = Creation(header, name or header.name, tuple(batch), fence, summary or Summary())
        return await self._write(lambda t: appends.create(t, creation))

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        change = Change(session, version, fence, tuple(batch), tuple(consumed), summary)
        return await self._write(lambda t: appends.append(t, change, self._at))

    async def transact(
        self,
        session: str,
        version: int,
        fence: Fence,
        transaction: ToolTransaction,
        compose: Callable[[object], Composed],
        *,
        tried: AnyEntry | None = None,
    ) -> Appended:
        asked = Transacting(session, version, fence, transaction, compose, tried)
        return await self._write(lambda t: transacts.transact(t, asked, self._at))

    async def read(self, session: str, *, since: int = 0, leaf: str | None = None) -> Stored:
        return await self._read(lambda t: reads.read(t, session, since=since, leaf=leaf))

    async def list(
        self,
        filters: Filters = Filters(),  # noqa: B008 - it is frozen
        *,
        after: str = "",
        limit: int = 100,
    ) -> Page:
        return await self._read(lambda t: reads.listing(t, filters, after, limit))

    async def delete(self, session: str, *, fence: Fence | None = None) -> None:
        await self._write(lambda t: changes.delete(t, session, fence=fence))

    # --- leases ----------------------------------------------------------------------------

    async def lease(self, root: str, *, holder: str, seconds: float = 30.0) -> Lease:
        nonce = self._ids.new("")
        return await self._write(
            lambda t: changes.lease(t, root, holder=holder, nonce=nonce, seconds=seconds)
        )

    async def renew(self, lease: Lease) -> Lease:
        return await self._write(lambda t: changes.renew(t, lease))

    async def release(self, lease: Lease) -> None:
        await self._write(lambda t: changes.release(t, lease))

    async def leave_loop(self) -> None:
        """Close the connections of this event loop; others are opened when it needs them."""
        await self._pool.leave_loop()

    async def due(self, before: int, *, limit: int = 100) -> tuple[str, ...]:
        return await self._read(lambda t: reads.due(t, before, limit=limit))

    # --- the inbox -------------------------------------------------------------------------

    async def put(self, session: str, message: Message, *, stop: bool = False) -> Put:
        return await self._write(lambda t: changes.put(t, session, message, stop=stop))

    async def unconsumed(self, session: str) -> tuple[Message, ...]:
        return await self._read(lambda t: reads.unconsumed(t, session))

    # --- blobs, erasure ----------------------------------------------------------------------

    async def write_blob(self, session: str, data: bytes) -> str:
        kept = bytes(data)
        return await self._write(lambda t: changes.write_blob(t, session, kept))

    async def read_blob(self, session: str, digest: str) -> bytes:
        return await self._read(lambda t: reads.read_blob(t, session, digest))

    async def erase_blob(self, session: str, digest: str) -> None:
        await self._write(lambda t: changes.erase_blob(t, session, digest))

    async def erase(self, session: str, fence: Fence, entries: Sequence[str]) -> int:
        asked = tuple(entries)
        return await self._write(lambda t: changes.erase(t, session, fence, asked))

    # --- how it is -------------------------------------------------------------------------

    async def examine(self) -> tuple[Finding, ...]:
        """What is right with the server, and what is not."""
        return await self._read(lambda t: doctor.examine(t, self._clock.wall() / 1e9))

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._pool.close()


def open_url(url: str) -> PostgresStore:
    """`postgresql://user@server/database`, with libpq's parameters and `schema`.

    Raises:
        ConfigError: A schema without a name, or one that is named twice.
    """
    parsed = urllib.parse.urlsplit(url)
    parameters = urllib.parse.parse_qsl(parsed.query, keep_blank_values=True)
    schemas = [value for name, value in parameters if name == "schema"] or ["perdure"]
    if len(schemas) > 1 or not schemas[0]:
        raise ConfigError(f"{url!r} must name one schema")
    rest = [(name, value) for name, value in parameters if name != "schema"]
    query = urllib.parse.urlencode(rest, quote_via=urllib.parse.quote)
    return PostgresStore(parsed._replace(query=query).geturl(), schema=schemas[0])

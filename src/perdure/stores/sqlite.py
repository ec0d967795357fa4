"""The SQLite store: sessions in one file, for the processes of one machine.

Everything that is written goes through one thread of the process, and appends of many sessions
share commits (`sqlite_writer`). Reading happens on other threads and never waits for writing.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path

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
from perdure.stores import (
    sqlite_append,
    sqlite_changes,
    sqlite_doctor,
    sqlite_reads,
    sqlite_transact,
)
from perdure.stores.asked import Change, Creation, Transacting
from perdure.stores.points import At, passing
from perdure.stores.sqlite_files import open_file
from perdure.stores.upkeep import Finding
from perdure.tools import Transaction


class SqliteStore:
    """Sessions in a SQLite file.

    Args:
        path: The file; it is made, with its directory, when it is first used.
        clock: What leases lapse by: its wall time, which all processes of a machine share.
        ids: What the nonces of fences come from.
        at: Called at every stop point, by the thread that writes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        at: At = passing,
    ) -> None:
        self.path = Path(path).absolute()
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._at = at
        self._file = open_file(self.path, at)
        self._closed = False

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
        return await self._file.writer.run(lambda c: sqlite_append.create(c, creation))

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
        return await self._file.writer.run(lambda c: sqlite_append.append(c, change, self._at))

    async def transact(
        self,
        session: str,
        version: int,
        fence: Fence,
        transaction: Transaction,
        compose: Callable[[object], Composed],
        *,
        tried: AnyEntry | None = None,
    ) -> Appended:
        asked = Transacting(session, version, fence, transaction, compose, tried)
        return await self._file.writer.run(
            lambda c: sqlite_transact.transact(c, asked, self._at), alone=True
        )

    async def read(self, session: str, *, since: int = 0, leaf: str | None = None) -> Stored:
        return await self._file.read(
            lambda c: sqlite_reads.read(c, session, since=since, leaf=leaf)
        )

    async def list(
        self,
        filters: Filters = Filters(),  # noqa: B008 - it is frozen
        *,
        after: str = "",
        limit: int = 100,
    ) -> Page:
        return await self._file.read(lambda c: sqlite_reads.listing(c, filters, after, limit))

    async def delete(self, session: str, *, fence: Fence | None = None) -> None:
        await self._file.writer.run(
            lambda c: sqlite_changes.delete(c, session, fence=fence, now=self._clock.wall())
        )
        self._file.checkpoints.want("TRUNCATE")

    # --- leases ----------------------------------------------------------------------------

    async def lease(self, root: str, *, holder: str, seconds: float = 30.0) -> Lease:
        nonce = self._ids.new("")
        return await self._file.writer.run(
            lambda c: sqlite_changes.lease(
                c, root, holder=holder, nonce=nonce, seconds=seconds, now=self._clock.wall()
            )
        )

    async def renew(self, lease: Lease) -> Lease:
        return await self._file.writer.run(
            lambda c: sqlite_changes.renew(c, lease, self._clock.wall()), first=True
        )

    async def release(self, lease: Lease) -> None:
        await self._file.writer.run(lambda c: sqlite_changes.release(c, lease))

    async def leave_loop(self) -> None:
        """Nothing is held for an event loop: the writer answers to any."""

    async def due(self, before: int, *, limit: int = 100) -> tuple[str, ...]:
        return await self._file.read(
            lambda c: sqlite_reads.due(c, before, limit=limit, now=self._clock.wall())
        )

    # --- the inbox -------------------------------------------------------------------------

    async def put(self, session: str, message: Message, *, stop: bool = False) -> Put:
        return await self._file.writer.run(
            lambda c: sqlite_changes.put(c, session, message, stop=stop)
        )

    async def unconsumed(self, session: str) -> tuple[Message, ...]:
        return await self._file.read(lambda c: sqlite_reads.unconsumed(c, session))

    # --- blobs, erasure ----------------------------------------------------------------------

    async def write_blob(self, session: str, data: bytes) -> str:
        kept = bytes(data)
        return await self._file.writer.run(lambda c: sqlite_changes.write_blob(c, session, kept))

    async def read_blob(self, session: str, digest: str) -> bytes:
        return await self._file.read(lambda c: sqlite_reads.read_blob(c, session, digest))

    async def erase_blob(self, session: str, digest: str) -> None:
        await self._file.writer.run(lambda c: sqlite_changes.erase_blob(c, session, digest))
        self._file.checkpoints.want("TRUNCATE")

    async def erase(self, session: str, fence: Fence, entries: Sequence[str]) -> int:
        asked = tuple(entries)
        count = await self._file.writer.run(
            lambda c: sqlite_changes.erase(c, session, fence, asked)
        )
        self._file.checkpoints.want("TRUNCATE")
        return count

    # --- how it is -------------------------------------------------------------------------

    async def examine(self) -> tuple[Finding, ...]:
        """What is right with the file, and what is not."""
        return await self._file.read(lambda c: sqlite_doctor.examine(c, self.path))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._file.close()


def open_url(url: str) -> SqliteStore:
    """`sqlite:///relative/file` or `sqlite:////absolute/file`, percent-encoded where need be.

    Raises:
        ConfigError: It names no file. Sessions without a file are in `memory:`.
    """
    parsed = urllib.parse.urlsplit(url)
    path = urllib.parse.unquote(parsed.path).removeprefix("/")
    if parsed.netloc or parsed.query or parsed.fragment or not path:
        raise ConfigError(
            f"{url!r} names no file; write sqlite:///relative/file or sqlite:////absolute/file, "
            "or memory: for sessions without a file"
        )
    if path == ":memory:":
        raise ConfigError(f"{url!r} would be lost with a thread; write memory:")
    return SqliteStore(path)

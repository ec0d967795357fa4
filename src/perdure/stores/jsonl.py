"""The JSONL store: a directory of sessions in the interchange layout.

```
DIR/PROJECT/CREATED_ID.jsonl            a session: its header, then an entry a line
DIR/PROJECT/CREATED_ID.jsonl.lock       the lease of a root (see `locks`)
DIR/PROJECT/CREATED_ID.jsonl.mutex      the momentary lock of a root's tree
DIR/PROJECT/CREATED_ID.jsonl.inbox      its messages
DIR/PROJECT/CREATED_ID.jsonl.summary    a cache
DIR/PROJECT/ID/                         its blobs, each under its hash
DIR/.names/                             which session has which name
```
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.errors import ConfigError, Leased, NoEntry, SessionExists, StoreFailed
from perdure.log.appending import check_append, check_batch, path_lines
from perdure.log.entries import AnyEntry, decode_entry
from perdure.log.header import Header
from perdure.log.ids import PREFIX, digest
from perdure.log.redaction import REDACTED, redacted
from perdure.log.store import (
    Appended,
    Fence,
    Filters,
    Lease,
    Listed,
    Message,
    Page,
    Put,
    Stored,
    Summary,
)
from perdure.log.timestamps import timestamp
from perdure.stores.layout import file_name, is_file_id, project
from perdure.stores.listing import matches, page
from perdure.stores.locks import (
    Lock,
    OnTakeover,
    check_lease,
    drop_lease,
    momentary,
    read_lock,
    steady,
    take_lease,
)
from perdure.stores.names import Names
from perdure.stores.session_directory import Held, SessionDirectory
from perdure.stores.session_file import sync_directory, write_new

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 8
_HASH = re.compile(r"[0-9a-f]{64}")


class _Change(NamedTuple):
    """What an append asks for."""

    version: int
    fence: Fence
    batch: tuple[AnyEntry, ...]
    consumed: tuple[str, ...]
    summary: Summary | None


class JsonlStore:
    """Sessions as files, for one machine.

    Args:
        directory: Where they are; it is made with the first session.
        clock: What the time of a lock comes from.
        ids: What the nonces of fences come from.
        on_takeover: Told when the lock of a dead process is taken over.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        on_takeover: OnTakeover | None = None,
    ) -> None:
        self.directory = Path(directory)
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._on_takeover = on_takeover
        self._names = Names(self.directory / ".names")
        self._sessions = SessionDirectory(self.directory)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="perdure-jsonl")

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do blocking work on a thread. Cancelling does not stop it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

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
        if not is_file_id(header.id):
            raise ConfigError(f"the session id {header.id!r} is no name of a file")
        return await self._run(
            self._create, header, name or header.name, tuple(batch), fence, summary
        )

    def _create(
        self,
        header: Header,
        name: str,
        batch: Sequence[AnyEntry],
        fence: Fence | None,
        summary: Summary | None,
    ) -> Appended:
        self.directory.mkdir(parents=True, exist_ok=True)
        with momentary(self.directory / ".mutex"):
            if header.root:
                root = self._sessions.held(header.root)
                with momentary(root.beside(".mutex")):
                    check_lease(root.beside(".lock"), header.root, fence)
                    return self._make(header, name, batch, summary)
            return self._make(header, name, batch, summary)

    def _make(
        self, header: Header, name: str, batch: Sequence[AnyEntry], summary: Summary | None
    ) -> Appended:
        lines = [entry.line for entry in batch]
        found = self._sessions.find(header.id)
        if found is not None:
            return _created_before(found, header, lines)
        if name:
            self._names.take(name, header.id, self._sessions.has)
        path = self.directory / project(header.cwd) / file_name(header)
        try:
            path.parent.mkdir(exist_ok=True)
            fresh = path.with_name(f".{path.name}")
            write_new(fresh, b"".join(line + b"\n" for line in (header.line, *lines)))
            fresh.replace(path)
            sync_directory(path.parent)
        except OSError as error:
            raise StoreFailed(f"{str(path)!r} could not be written: {error}") from error
        if summary is not None:
            self._sessions.held(header.id).keep_summary(summary)
        return Appended(len(lines))

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
        change = _Change(version, fence, tuple(batch), tuple(consumed), summary)
        return await self._run(self._append, session, change)

    def _append(self, session: str, change: _Change) -> Appended:
        held = self._sessions.held(session)
        root = self._sessions.root(held)
        with momentary(root.beside(".mutex")):
            held.file.refresh()
            root.file.refresh()
            check_lease(root.beside(".lock"), root.header.id, change.fence)
            stopped = any(message.stop for message in root.unconsumed())
            already = check_append(
                held, change.version, change.batch, change.consumed, stopped=stopped
            )
            if change.batch:
                held.file.write([entry.line for entry in change.batch[already:]])
            if change.summary is not None:
                held.keep_summary(change.summary)
            return Appended(held.version, already)

    async def read(self, session: str, *, since: int = 0, leaf: str | None = None) -> Stored:
        return await self._run(self._read, session, since, leaf)

    def _read(self, session: str, since: int, leaf: str | None) -> Stored:
        held = self._sessions.held(session)
        with steady(self._sessions.root(held).beside(".mutex")):
            held.file.refresh()
            lines = held.file.lines[since:]
            if leaf is not None:
                if not held.has(leaf):
                    raise NoEntry(leaf)
                file = held.file
                lines = path_lines(file.lines, file.places, file.parents, leaf)
            return Stored(
                header=held.header,
                version=held.version,
                lines=tuple(lines),
                summary=held.summary(),
            )

    async def list(
        self,
        filters: Filters = Filters(),  # noqa: B008 - it is frozen
        *,
        after: str = "",
        limit: int = 100,
    ) -> Page:
        return await self._run(self._list, filters, after, limit)

    def _list(self, filters: Filters, after: str, limit: int) -> Page:
        names = self._names.by_session()
        sessions = self._sessions.all()
        listed = (self._listed(held, names.get(held.header.id, "")) for held in sessions)
        return page((one for one in listed if matches(one, filters)), after, limit)

    def _listed(self, held: Held, name: str) -> Listed:
        return Listed(header=held.header, name=name, version=held.version, summary=held.summary())

    async def delete(self, session: str, *, fence: Fence | None = None) -> None:
        await self._run(self._delete, session, fence)

    def _delete(self, session: str, fence: Fence | None) -> None:
        held = self._sessions.find(session)
        if held is None:
            return
        root = self._sessions.find(held.header.lease_root) or held
        with momentary(root.beside(".mutex")):
            lock = read_lock(root.beside(".lock"))
            if lock is not None and (fence is None or fence.nonce != lock.nonce):
                raise Leased(root.header.id, lock.holder)
            self._remove(held)

    def _remove(self, held: Held) -> None:
        session = held.header.id
        held.file.path.unlink(missing_ok=True)
        self._names.drop(session)
        for suffix in (".inbox", ".summary", ".lock", ".mutex"):
            held.beside(suffix).unlink(missing_ok=True)
        blobs = held.blobs
        if blobs.is_dir():
            for blob in blobs.iterdir():
                blob.unlink()
            blobs.rmdir()
        self._sessions.forget(session)

    # --- leases ----------------------------------------------------------------------------

    async def lease(self, root: str, *, holder: str, seconds: float = 30.0) -> Lease:  # noqa: ARG002
        """Take the lease of a root session. It does not lapse by time (LOG 8)."""
        return await self._run(self._lease, root, holder)

    def _lease(self, root: str, holder: str) -> Lease:
        held = self._sessions.held(root)
        if held.header.root:
            raise ConfigError(f"session {root!r} is no root; lease {held.header.root!r}")
        lock = Lock(
            pid=os.getpid(),
            host=socket.gethostname(),
            since=timestamp(self._clock.wall()),
            nonce=self._ids.new(""),
            holder=holder,
        )
        with momentary(held.beside(".mutex")):
            take_lease(held.beside(".lock"), root, lock, self._on_takeover)
        return Lease(root=root, fence=Fence(1, lock.nonce), holder=holder)

    async def renew(self, lease: Lease) -> Lease:
        await self._run(self._check_lease, lease)
        return lease

    def _check_lease(self, lease: Lease) -> None:
        held = self._sessions.held(lease.root)
        with momentary(held.beside(".mutex")):
            check_lease(held.beside(".lock"), lease.root, lease.fence)

    async def release(self, lease: Lease) -> None:
        await self._run(self._release, lease)

    def _release(self, lease: Lease) -> None:
        held = self._sessions.find(lease.root)
        if held is not None:
            with momentary(held.beside(".mutex")):
                drop_lease(held.beside(".lock"), lease.fence)

    async def break_lock(self, root: str) -> None:
        """Remove the lock of a process that is known to be gone, as one of another machine.

        Raises:
            NoSession: There is no such session.
        """
        held = self._sessions.held(root)
        held.beside(".lock").unlink(missing_ok=True)

    async def due(self, before: int, *, limit: int = 100) -> tuple[str, ...]:
        return await self._run(self._due, before, limit)

    def _due(self, before: int, limit: int) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for held in self._sessions.all():
            due = held.summary().due
            if (due is not None and due <= before) or any(held.unconsumed()):
                found[held.header.lease_root] = None
        return tuple(found)[:limit]

    # --- the inbox ---------------------------------------------------------------------------

    async def put(self, session: str, message: Message, *, stop: bool = False) -> Put:
        return await self._run(self._put, session, message, stop=stop)

    def _put(self, session: str, message: Message, *, stop: bool) -> Put:
        held = self._sessions.held(session)
        if stop and held.header.root:
            raise ConfigError(f"session {session!r} is no root; stop {held.header.root!r}")
        root = self._sessions.root(held)
        with momentary(root.beside(".mutex")):
            return held.inbox.put(message, stop=stop)

    async def unconsumed(self, session: str) -> tuple[Message, ...]:
        return await self._run(self._unconsumed, session)

    def _unconsumed(self, session: str) -> tuple[Message, ...]:
        held = self._sessions.held(session)
        with steady(self._sessions.root(held).beside(".mutex")):
            held.file.refresh()
            return tuple(held.unconsumed())

    # --- erasing -----------------------------------------------------------------------------

    async def redact(self, session: str, fence: Fence, entries: Sequence[str]) -> int:
        return await self._run(self._redact, session, fence, tuple(entries))

    def _redact(self, session: str, fence: Fence, entries: Sequence[str]) -> int:
        held = self._sessions.held(session)
        root = self._sessions.root(held)
        with momentary(root.beside(".mutex")):
            held.file.refresh()
            check_lease(root.beside(".lock"), root.header.id, fence)
            missing = next((entry for entry in entries if not held.has(entry)), None)
            if missing is not None:
                raise NoEntry(missing)
            doomed = [decode_entry(held.file.lines[held.file.places[entry]]) for entry in entries]
            projected = redacted(held.header, held.file.lines, entries)
            summary = held.summary()
            held.inbox.empty({entry.message for entry in doomed if entry.message})
            held.file.replace(projected.header, projected.lines)
            leaf = projected.ids.get(summary.leaf or "")
            held.keep_summary(msgspec.structs.replace(summary, leaf=leaf))
            return sum(REDACTED not in entry.members for entry in doomed)

    # --- blobs -------------------------------------------------------------------------------

    async def write_blob(self, session: str, data: bytes) -> str:
        return await self._run(self._write_blob, session, bytes(data))

    def _write_blob(self, session: str, data: bytes) -> str:
        name = digest(data)
        folder = self._sessions.held(session).blobs
        path = folder / name.removeprefix(PREFIX)
        if path.exists():
            return name
        try:
            folder.mkdir(exist_ok=True)
            fresh = path.with_name(f".{path.name}.{self._ids.new('')}")
            write_new(fresh, data)
            fresh.replace(path)
            sync_directory(folder)
        except OSError as error:
            raise StoreFailed(f"{str(path)!r} could not be written: {error}") from error
        return name

    async def read_blob(self, session: str, digest: str) -> bytes:
        return await self._run(self._read_blob, session, digest)

    def _read_blob(self, session: str, name: str) -> bytes:
        try:
            return self._blob(session, name).read_bytes()
        except FileNotFoundError:
            raise NoEntry(name) from None

    async def erase_blob(self, session: str, digest: str) -> None:
        await self._run(lambda: self._blob(session, digest).unlink(missing_ok=True))

    def _blob(self, session: str, name: str) -> Path:
        hexadecimal = name.removeprefix(PREFIX)
        if _HASH.fullmatch(hexadecimal) is None:
            raise NoEntry(name)
        return self._sessions.held(session).blobs / hexadecimal

    async def close(self) -> None:
        self._threads.shutdown(wait=False)


def _created_before(found: Held, header: Header, lines: list[bytes]) -> Appended:
    if found.header.line != header.line or found.file.lines[: len(lines)] != lines:
        raise SessionExists(header.id)
    return Appended(found.version, len(lines))


def open_url(url: str) -> JsonlStore:
    """`file:///absolute/directory`, percent-encoded where need be.

    Raises:
        ConfigError: It names a machine, or no absolute directory.
    """
    parsed = urllib.parse.urlsplit(url)
    if parsed.netloc not in ("", "localhost") or not parsed.path.startswith("/"):
        raise ConfigError(f"{url!r} is no file store; write file:///absolute/directory")
    return JsonlStore(urllib.parse.unquote(parsed.path))

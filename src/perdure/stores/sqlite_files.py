"""One SQLite file, as this process has it open: its writer, its readers, its checkpoints.

All stores of one file in one process share them, so that all share commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sqlite3 import Connection, Error
from typing import TypeVar

from perdure.stores.points import At
from perdure.stores.sqlite_connection import PATIENCE, connect, failure, synchronise
from perdure.stores.sqlite_schema import is_prepared
from perdure.stores.sqlite_writer import Writer

T = TypeVar("T")

_READERS = 4
_CHANGES = 1000  # rows changed between checkpoints
_ATTEMPTS = 20  # for one that has to wait for readers and writers
_PAUSE = 0.5  # seconds that a writer pauses for a checkpoint, at most
_LONG = 4000  # pages: a log that others keep from being begun anew


class _Unprepared(Exception):
    """There is no file yet, or it has no tables of today."""


class File:
    """A database file. Made by `open_file`, and given back by `close`."""

    def __init__(self, path: Path, *, at: At, patience: float = PATIENCE) -> None:
        self.path = path
        self.users = 0
        self.checkpoints = Checkpointer(path)
        self.writer = Writer(path, at=at, patience=patience, checkpoints=self.checkpoints)
        self._at = at
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="perdure-sqlite-read")
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._process = os.getpid()

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Read on a thread, in one snapshot of what is durable."""
        self.writer.check_open()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._read, work)
        except _Unprepared:
            await self.writer.run(lambda _: None)  # it makes the file and its tables
            return await loop.run_in_executor(self._threads, self._read, work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                return work(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._idle.put(connection)
        except (Error, OSError) as error:
            raise failure(error, self.path) from error

    def _reader(self) -> Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return self._connect()

    def _connect(self) -> Connection:
        if not self.path.exists():
            raise _Unprepared
        connection = connect(self.path, timeout=PATIENCE)
        try:
            if not is_prepared(connection, self.path):
                raise _Unprepared
            synchronise(connection)
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        """Give it back; the last of its users closes it."""
        with _lock:
            self.users -= 1
            if self.users > 0:
                return
            _files.pop((self.path, self._at), None)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._process != os.getpid():
            return  # threads and connections are those of the process that this one came from
        self._threads.shutdown()
        self.checkpoints.close()
        self.writer.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()


class Checkpointer:
    """Moves what was committed from the write-ahead log into the database, on a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wake = threading.Condition()
        self._wanted: str = ""
        self._changes = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self._clear = threading.Event()
        self._clear.set()

    def wait(self) -> None:
        """Wait as long as a checkpoint needs the writer to pause; never long."""
        self._clear.wait(_PAUSE)

    def committed(self, changes: int) -> None:
        """Count what a transaction changed. Called by the writer's thread."""
        self._changes += changes
        if self._changes >= _CHANGES:
            self._changes = 0
            self.want("PASSIVE")

    def want(self, mode: str) -> None:
        """Run a checkpoint soon; `TRUNCATE` leaves nothing of what was erased in the log."""
        with self._wake:
            if self._closing:
                return
            self._wanted = mode if not self._wanted or mode == "TRUNCATE" else self._wanted
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name=f"perdure-checkpoint {self._path.name}", daemon=True
                )
                self._thread.start()
            self._wake.notify()

    def close(self) -> None:
        """Finish, and wait for it."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        connection: Connection | None = None
        while mode := self._next():
            with contextlib.suppress(Error, OSError):  # the next one does what this one could not
                connection = connection or connect(self._path, timeout=0.25)
                self._checkpoint(connection, mode)
        if connection is not None:
            connection.close()

    def _checkpoint(self, connection: Connection, mode: str) -> None:
        for _ in range(_ATTEMPTS):
            busy, pages, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            if mode == "PASSIVE" and pages > _LONG:
                # A writer that never pauses keeps the log from being begun anew.
                self._clear.clear()
                try:
                    connection.execute("PRAGMA wal_checkpoint(RESTART)")
                finally:
                    self._clear.set()
            if not busy:
                return

    def _next(self) -> str:
        with self._wake:
            self._wake.wait_for(lambda: self._wanted or self._closing)
            mode, self._wanted = self._wanted, ""
            return mode


# --- which files are open --------------------------------------------------------------

_files: dict[tuple[Path, At], File] = {}
_lock = threading.Lock()


def open_file(path: Path, at: At) -> File:
    """The file of a path, shared by all who open it with the same stop points."""
    path = Path(os.path.realpath(path))
    with _lock:
        file = _files.get((path, at))
        if file is None:
            file = _files[path, at] = File(path, at=at)
        file.users += 1
        return file


def _forget() -> None:
    """A forked process has none of its parent's threads."""
    global _lock  # noqa: PLW0603 - the parent may have held it
    _lock = threading.Lock()
    _files.clear()


os.register_at_fork(after_in_child=_forget)

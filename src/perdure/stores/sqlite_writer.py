"""The writer of a SQLite file: one thread for the whole process, whose commits are shared.

*work* is a function of the connection. What waits when a transaction begins is its *group*; its
members run one after the other, and all learn their outcomes once the commit has returned
(LOG 1.6).

* Work that refuses raises a PerdureError before it has changed anything, and the group goes on.
* On any other exception the group is rolled back and its members run one by one.
* When a commit fails, nobody knows: every member gets `StoreFailed`.
* Work that asks for it is a group *alone*, whatever waits.

The thread belongs to no event loop, and outlives those that it answers to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import NamedTuple, Protocol, TypeVar, cast

from perdure.errors import ConfigError, PerdureError, StoreFailed
from perdure.stores.points import At
from perdure.stores.sqlite_connection import connect, failure, patiently, synchronise
from perdure.stores.sqlite_schema import prepare
from perdure.stores.sqlite_turn import Turn

T = TypeVar("T")

_MOST = 512  # members of a group, at most


class Checkpoints(Protocol):
    """Whoever moves what was committed into the database."""

    def committed(self, changes: int) -> None:
        """Count what a transaction changed."""
        ...

    def wait(self) -> None:
        """Wait as long as a checkpoint needs the writer to pause; never long."""
        ...


class _Job(NamedTuple):
    work: Callable[[Connection], object]
    alone: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]


class _Outcome(NamedTuple):
    job: _Job
    value: object = None
    error: Exception | None = None


class _CommitFailed(Exception):
    """Whether the transaction happened is unknown."""


class Writer:
    """Runs work on the one connection that writes.

    Args:
        path: The file; it is made, with its directory, before the first work.
        at: Called at every stop point.
        patience: Seconds to wait for the lock of another process.
        checkpoints: Told of every commit, and asked for leave to begin.
    """

    def __init__(self, path: Path, *, at: At, patience: float, checkpoints: Checkpoints) -> None:
        self._path = path
        self._at = at
        self._patience = patience
        self._checkpoints = checkpoints
        self._turn = Turn(path, patience)
        self._queue: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._calling: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._most = _MOST
        self._closing = False
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._process = os.getpid()

    async def run(
        self, work: Callable[[Connection], T], *, first: bool = False, alone: bool = False
    ) -> T:
        """Do work in a transaction. Work that has begun is not stopped by a cancelled caller.

        Args:
            work: What to do.
            first: Go ahead of all that waits, as the renewal of a lease does.
            alone: Share the transaction with nobody; whatever the work raises undoes it.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, alone, loop, loop.create_future())
        with self._wake:
            self.check_open()
            if first:
                self._queue.appendleft(job)
            else:
                self._queue.append(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name=f"perdure-sqlite {self._path.name}", daemon=True
                )
                self._thread.start()
            if first:
                self._wake.notify()
            elif loop not in self._calling:
                self._calling.add(loop)
                loop.call_soon(self._call, loop)
        return cast("T", await job.future)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call the thread, for all that one round of an event loop asked for.

        Nobody there can hear of an outcome before its next round, and together they are one group.
        """
        with self._wake:
            self._calling.discard(loop)
            self._wake.notify()

    def close(self) -> None:
        """Finish what waits, then let go of the file. Blocks until it is done."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def check_open(self) -> None:
        """Whether it may be used.

        Raises:
            ConfigError: It was closed, or belongs to the process that this one was forked from.
        """
        if self._closing:
            raise ConfigError("the store is closed; open it again")
        if self._process != os.getpid():
            raise ConfigError("the store was opened before this process was forked; open another")

    # --- the thread ----------------------------------------------------------------------

    def _serve(self) -> None:
        while self._wait():
            try:
                self._serve_group()
            except Exception as error:  # noqa: BLE001 - the thread has to live on
                self._fail(self._take(_MOST), error)
        self._disconnect()
        self._turn.close()

    def _wait(self) -> bool:
        """Wait for work; False if there will be none any more."""
        with self._wake:
            self._wake.wait_for(lambda: self._queue or self._closing)
            return bool(self._queue)

    def _take(self, most: int) -> list[_Job]:
        """What waits, but for those who do not wait any more."""
        jobs: list[_Job] = []
        with self._wake:
            while self._queue and len(jobs) < most:
                if jobs and (jobs[0].alone or self._queue[0].alone):
                    break
                jobs.append(self._queue.popleft())
        return [job for job in jobs if not job.future.cancelled()]

    def _serve_group(self) -> None:
        self._checkpoints.wait()
        connection = self._begin()
        jobs = self._take(
            self._most
        )  # only now: the longer the lock was waited for, the more share it
        try:
            outcomes = self._transact(connection, jobs)
        except _CommitFailed as error:
            self._most = 1  # one that no commit can take must not fail the others again
            self._disconnect()
            self._fail(jobs, error)
        except Exception as error:  # noqa: BLE001 - a disk error, or a fault in one member
            self._rollback()
            if len(jobs) == 1:
                self._fail(jobs, error)
            else:
                self._serve_singly(jobs)
        else:
            self._most = min(self._most * 2, _MOST)
            self._tell(outcomes)

    def _serve_singly(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            try:
                outcomes = self._transact(self._begin(), [job])
            except _CommitFailed as error:
                self._disconnect()
                self._fail([job], error)
            except Exception as error:  # noqa: BLE001 - as above
                self._rollback()
                self._fail([job], error)
            else:
                self._tell(outcomes)

    # --- transactions --------------------------------------------------------------------

    def _begin(self) -> Connection:
        self._at("begin")
        connection = self._connected()
        with self._turn.taken():
            patiently(lambda: connection.execute("BEGIN IMMEDIATE"), self._patience)
        return connection

    def _transact(self, connection: Connection, jobs: Iterable[_Job]) -> list[_Outcome]:
        before = connection.total_changes
        outcomes = [self._member(connection, job) for job in jobs]
        try:
            self._at("commit")
            connection.execute("COMMIT")
            self._at("committed")
        except Exception as error:
            raise _CommitFailed(f"the outcome of a commit is unknown: {error}") from error
        self._checkpoints.committed(connection.total_changes - before)
        return outcomes

    def _member(self, connection: Connection, job: _Job) -> _Outcome:
        before = connection.total_changes
        try:
            value = job.work(connection)
        except PerdureError as error:
            if job.alone or connection.total_changes != before:
                raise
            return _Outcome(job, error=error)
        self._at("written")
        return _Outcome(job, value)

    def _rollback(self) -> None:
        """Undo; a full disk has done so by itself (LOG 1.6)."""
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 - closing the connection undoes it as well
            self._disconnect()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = patiently(self._opened, self._patience)
        return self._connection

    def _opened(self) -> Connection:
        connection = connect(self._path)
        try:
            prepare(connection, self._path)
            connection.execute("PRAGMA secure_delete = ON")  # what is erased is gone
            synchronise(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- outcomes ------------------------------------------------------------------------

    def _fail(self, jobs: Iterable[_Job], error: Exception) -> None:
        if isinstance(error, _CommitFailed):
            self._tell([_Outcome(job, error=StoreFailed(str(error))) for job in jobs])
        else:
            self._tell([_Outcome(job, error=failure(error, self._path)) for job in jobs])

    def _tell(self, outcomes: Iterable[_Outcome]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
        for outcome in outcomes:
            by_loop.setdefault(outcome.job.loop, []).append(outcome)
        for loop, settled in by_loop.items():
            with contextlib.suppress(RuntimeError):  # a closed loop: nobody waits there any more
                loop.call_soon_threadsafe(_settle, settled)
        self._at("told")


def _settle(outcomes: Sequence[_Outcome]) -> None:
    for outcome in outcomes:
        future = outcome.job.future
        if future.done():
            continue  # its caller was cancelled meanwhile
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value)

"""Connections to a Postgres server, and transactions on them.

A transaction pooler may stand in between: whatever a connection is told holds for one transaction
alone, and no statement is prepared on the server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.errors import (
    DeadlockDetected,
    InsufficientPrivilege,
    InvalidAuthorizationSpecification,
    InvalidCatalogName,
    LockNotAvailable,
    SerializationFailure,
)
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from perdure.errors import ConfigError, StoreFailed
from perdure.stores.points import At

T = TypeVar("T")

_Pool: TypeAlias = "AsyncConnectionPool[AsyncConnection[TupleRow]]"

_PATIENCE = 30.0
"""Seconds to wait for a connection."""

_ATTEMPTS = 3
"""Of what failed before its commit was sent, so that nothing has happened."""

# A commit that returned has been flushed here and, where there are synchronous standbys, there; a
# server that asks for more gets more. A client that vanished must not keep its locks for long.
DURABLY = """SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"""
"""What makes a commit wait, of a transaction that has not begun to."""

_BEGIN = f"""BEGIN; {DURABLY};
SET LOCAL idle_in_transaction_session_timeout = '60s'""".encode()
_BEGIN_READING = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"

_MISUSE = (InsufficientPrivilege, InvalidAuthorizationSpecification, InvalidCatalogName)


class Transaction:
    """Statements on one connection, between its begin and its end.

    Attributes:
        schema: Where the tables are.
    """

    __slots__ = ("_connection", "quoted", "schema")

    def __init__(self, connection: AsyncConnection[TupleRow], schema: str) -> None:
        self._connection = connection
        self.schema = schema
        self.quoted = '"' + schema.replace('"', '""') + '"'

    async def rows(self, statement: str, *values: object) -> list[Any]:
        """The rows that a statement gives."""
        return await (await self._execute(statement, values)).fetchall()

    async def row(self, statement: str, *values: object) -> Any:  # noqa: ANN401 - columns differ
        """The first of them; None if there is none."""
        return await (await self._execute(statement, values)).fetchone()

    async def do(self, statement: str, *values: object) -> int:
        """How many rows a statement changed."""
        return (await self._execute(statement, values)).rowcount

    async def raw(
        self, statement: str, parameters: Sequence[object]
    ) -> psycopg.AsyncCursor[TupleRow]:
        """One statement with `$1`, `$2` for parameters, prepared by the server without a name.

        The server takes several statements at once only where it does not prepare them, and the
        client has it prepare those that have parameters: one without gets a number that none of
        its text names.
        """
        cursor = psycopg.AsyncRawCursor(self._connection)
        await cursor.execute(statement.encode(), list(parameters) or [0])
        return cursor

    @property
    def is_open(self) -> bool:
        """Whether the transaction goes on, and no statement has failed in it."""
        return self._connection.info.transaction_status is TransactionStatus.INTRANS

    async def _execute(
        self, statement: str, values: tuple[object, ...]
    ) -> psycopg.AsyncCursor[TupleRow]:
        text = statement.replace("@", f"{self.quoted}.perdure_")
        return await self._connection.execute(text.encode(), values or None)


class Pool:
    """A pool of connections for each event loop that uses the store.

    Args:
        url: The server and the database.
        schema: Where the tables are.
        connections: How many at most for each event loop.
        at: Called at every stop point.
    """

    def __init__(self, url: str, *, schema: str, connections: int, at: At) -> None:
        self._url = url
        self._schema = schema
        self._connections = connections
        self._at = at
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._closed = False

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Do work in a transaction, again as long as it failed by chance and before its commit.

        Raises:
            StoreFailed: The server failed, or the outcome of the commit is unknown.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._at("begin")
                async with self._begun(_BEGIN) as connection:
                    return await self._write(connection, work)
            except psycopg.Error as error:
                if attempt == _ATTEMPTS or not by_chance(error):
                    raise failure(error) from error
            except UnicodeEncodeError as error:
                raise failure(error) from error
        raise AssertionError  # the last attempt has returned or raised

    async def _write(
        self, connection: AsyncConnection[TupleRow], work: Callable[[Transaction], Awaitable[T]]
    ) -> T:
        try:
            value = await work(Transaction(connection, self._schema))
            self._at("written")
        except BaseException:
            await _rollback(connection)
            raise
        try:
            self._at("commit")
            await connection.execute(b"COMMIT")
            self._at("committed")
        except Exception as error:
            raise StoreFailed(f"the outcome of a commit is unknown: {error}") from error
        self._at("told")
        return value

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Read in one snapshot.

        Raises:
            StoreFailed: The server failed.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._begun(_BEGIN_READING) as connection:
                    try:
                        return await work(Transaction(connection, self._schema))
                    finally:
                        await _rollback(connection)
            except psycopg.Error as error:
                if attempt == _ATTEMPTS or not by_chance(error):
                    raise failure(error) from error
            except UnicodeEncodeError as error:
                raise failure(error) from error
        raise AssertionError  # as above

    @contextlib.asynccontextmanager
    async def direct(self) -> AsyncGenerator[Transaction]:
        """A transaction on a connection of its own, which says at once why there is none.

        Raises:
            ConfigError: The server refuses the user or does not know the database.
            StoreFailed: It could not be reached, or failed.
        """
        try:
            connection = await AsyncConnection.connect(self._url, **_OPTIONS)
            try:
                await connection.execute(_BEGIN)
                yield Transaction(connection, self._schema)
                await connection.execute(b"COMMIT")
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise failure(error) from error

    @contextlib.asynccontextmanager
    async def _begun(self, begin: bytes) -> AsyncGenerator[AsyncConnection[TupleRow]]:
        """A connection on which a transaction has begun: that shows that it is alive.

        One that broke while nobody used it is replaced at once; nothing has happened on it.
        """
        pool = await self._pool()
        for _ in range(self._connections):
            async with pool.connection() as connection:
                try:
                    await connection.execute(begin)
                except psycopg.OperationalError:
                    if connection.closed:
                        continue
                    raise
                yield connection
                return
        raise psycopg.OperationalError("all connections were broken")

    async def _pool(self) -> _Pool:
        if self._closed:
            raise ConfigError("the store is closed; open it again")
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._forget_dead_loops()
            pool = self._pools[loop] = _pool(self._url, self._connections)
            await pool.open()
        return pool

    def _forget_dead_loops(self) -> None:
        for loop in list(self._pools):  # at once: another thread may bring its loop
            pool = self._pools.pop(loop, None) if loop.is_closed() else None
            if pool is not None:
                _abandon(pool)

    async def leave_loop(self) -> None:
        """Close the connections of this event loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    async def close(self) -> None:
        """Close the connections of this event loop, and those of loops that are over."""
        self._closed = True
        self._forget_dead_loops()
        await self.leave_loop()


_OPTIONS: dict[str, Any] = {
    "autocommit": True,  # transactions are begun and ended here, each in one round trip
    "prepare_threshold": None,  # a pooler may give the next statement to another connection
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


def _pool(url: str, connections: int) -> _Pool:
    return AsyncConnectionPool(
        url,
        kwargs=_OPTIONS,
        min_size=0,
        max_size=connections,
        open=False,
        timeout=_PATIENCE,
        name="perdure",
    )


def _abandon(pool: _Pool) -> None:
    """Close the connections of a loop that cannot close them any more."""
    # There is no public way without the loop.
    for connection in pool._pool:  # pyright: ignore[reportPrivateUsage]
        connection.pgconn.finish()


async def _rollback(connection: AsyncConnection[TupleRow]) -> None:
    """Undo; if that fails, the pool throws the connection away."""
    with contextlib.suppress(psycopg.Error):
        await connection.execute(b"ROLLBACK")


# --- errors ------------------------------------------------------------------------------


def by_chance(error: psycopg.Error) -> bool:
    """Whether the same, once more, may well succeed."""
    if isinstance(error, SerializationFailure | DeadlockDetected | LockNotAvailable):
        return True
    # A connection that broke; what the server itself says has a state.
    return isinstance(error, psycopg.OperationalError) and (
        error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))
    )


def failure(error: Exception) -> Exception:
    """What a caller gets for an error of a connection."""
    text = str(error).strip()
    if isinstance(error, UnicodeEncodeError):
        return ConfigError(f"a store keeps no text like {error.object!r}")
    if isinstance(error, psycopg.DataError) and "NUL" in text:
        return ConfigError("Postgres keeps no text with NUL characters, as an id or a name")
    if isinstance(error, _MISUSE) or (
        # Whoever could not connect has no state, only what the server said.
        isinstance(error, psycopg.OperationalError)
        and any(said in text for said in ("authentication failed", "does not exist"))
    ):
        return ConfigError(f"Postgres refuses: {text}")
    return StoreFailed(f"Postgres: {text}")

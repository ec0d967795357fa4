"""Transactional tools in SQLite: their function runs on the writer's thread (LOG 6)."""

from __future__ import annotations

import inspect
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from sqlite3 import Connection
from typing import cast

from perdure.errors import TransactionRefused, TransactionUndone
from perdure.log.appending import check_append, check_transaction
from perdure.log.store import Appended, Composed
from perdure.stores.asked import Transacting
from perdure.stores.points import At
from perdure.stores.sqlite_append import find, settle, write
from perdure.tools import Rows, Tx

_OWN = "perdure_"
"""What the names of perdure's own tables begin with."""

_DENIED = {
    sqlite3.SQLITE_TRANSACTION,
    sqlite3.SQLITE_SAVEPOINT,
    sqlite3.SQLITE_ATTACH,
    sqlite3.SQLITE_DETACH,
    sqlite3.SQLITE_PRAGMA,
}

_OF_COLUMNS = {sqlite3.SQLITE_READ, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_FUNCTION}
"""What names a table and a column, or a function; all else names tables."""


def transact(connection: Connection, asked: Transacting, at: At) -> Appended:
    """Run a transaction function and append its entry. Raises as `Transactions.transact`."""
    found = find(connection, asked.session, asked.fence)
    held = found.held
    if check_transaction(held, asked.version, asked.tried, stopped=found.stopped):
        settle(connection, held.key)
        return Appended(held.version, 1)
    at("checked")
    composed = _run(connection, asked)
    check_append(held, asked.version, (composed.entry,), (), stopped=False)
    write(connection, found, (composed.entry,), composed.summary)
    return Appended(held.version + 1)


def _run(connection: Connection, asked: Transacting) -> Composed:
    tx = SqliteTx(connection)
    function = cast("Callable[[Tx], object]", asked.transaction)
    try:
        with tx.lent():
            value = function(tx)
        if inspect.isawaitable(value):
            _discard(value)
            raise TransactionRefused(
                "on SQLite the function of a transactional tool is a plain one; it was async"
            )
        return asked.compose(value)
    except BaseException as error:
        raise TransactionUndone(error) from error


def _discard(value: object) -> None:
    if inspect.iscoroutine(value):
        value.close()


class SqliteTx:
    """The handle on the transaction of a SQLite store, while its function runs."""

    __slots__ = ("_connection", "_ended", "_thread")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._thread = threading.get_ident()
        self._ended = ""

    @contextmanager
    def lent(self) -> Generator[None]:
        """Let the function use it.

        Raises:
            TransactionRefused: The transaction was not open any more when the function returned.
        """
        self._connection.set_authorizer(_authorize)
        try:
            yield
        finally:
            ended, self._ended = self._ended, self._ended or "the transaction is over"
            self._connection.set_authorizer(None)
        if ended:
            raise TransactionRefused(ended)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Rows:
        """Run one statement; see `Tx.execute`."""
        if threading.get_ident() != self._thread:
            raise TransactionRefused("a transaction is used on the thread it was given on, only")
        if self._ended:
            raise TransactionRefused(self._ended)
        try:
            return self._execute(statement, parameters)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH:
                raise TransactionRefused(f"refused: {statement!r}: {error}") from error
            raise
        finally:
            # INSERT OR ROLLBACK ends a transaction without asking, and so does a full disk.
            if not self._connection.in_transaction:
                self._ended = f"the transaction was ended by {statement!r}; nothing of it stands"

    def _execute(self, statement: str, parameters: Sequence[object]) -> Rows:
        cursor = self._connection.execute(statement, parameters)
        try:
            rows = cursor.fetchall()
            return Rows(rows, len(rows) if cursor.description else cursor.rowcount)
        finally:
            cursor.close()


def _authorize(
    action: int, first: str | None, second: str | None, database: str | None, source: str | None
) -> int:
    del database, source
    names = (first,) if action in _OF_COLUMNS else (first, second)
    own = any(name and name.lower().startswith(_OWN) for name in names)
    return sqlite3.SQLITE_DENY if action in _DENIED or own else sqlite3.SQLITE_OK

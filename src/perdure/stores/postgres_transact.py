"""Transactional tools in Postgres: their function runs on the append's connection (LOG 6)."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import psycopg

from perdure.errors import TransactionRefused, TransactionUndone
from perdure.log.appending import check_append, check_transaction
from perdure.log.store import Appended, Composed
from perdure.stores.asked import Transacting
from perdure.stores.points import At
from perdure.stores.postgres_append import check_fence, lock, look, settle, write
from perdure.stores.postgres_pool import DURABLY, Transaction, by_chance
from perdure.tools import AsyncTx, Rows

_ALLOWED = frozenset({"call", "lock", "notify", "select", "table", "values", "with"}) | {
    "delete",
    "insert",
    "merge",
    "update",
}
"""What a statement may begin with: what reads and changes rows, and what waits or tells of it."""

_BLANK = re.compile(r"(?:[\s(]|--[^\n]*)*")
_WORD = re.compile(r"[A-Za-z]*")
_COMMENT = re.compile(r"/\*|\*/")

_ENDED = "the transaction was ended by a statement in it"


async def transact(transaction: Transaction, asked: Transacting, at: At) -> Appended:
    """Run a transaction function and append its entry. Raises as `Transactions.transact`."""
    locked = await lock(transaction, asked.session, root="SHARE")
    check_fence(locked.root, locked.counter, locked.nonce, asked.fence)
    tried = (asked.tried,) if asked.tried is not None else ()
    held = await look(transaction, locked, asked.version, tried)
    if check_transaction(held, asked.version, asked.tried, stopped=locked.stops > 0):
        await settle(transaction, locked.key)
        return Appended(locked.version, 1)
    at("checked")
    composed = await _run(transaction, asked)
    batch = (composed.entry,)
    held = await look(transaction, locked, asked.version, batch)
    check_append(held, asked.version, batch, (), stopped=False)
    await write(transaction, locked, held.header, batch, composed.summary)
    return Appended(locked.version + 1)


async def _run(transaction: Transaction, asked: Transacting) -> Composed:
    (number,) = await transaction.row("SELECT txid_current()")
    tx = PostgresTx(transaction)
    function = cast("Callable[[AsyncTx], Awaitable[object]]", asked.transaction)
    try:
        value = await _called(function, tx)
        tx.end()
        composed = asked.compose(value)
    except BaseException as error:
        tx.close()
        here = asyncio.current_task()
        if here is not None and here.cancelling():
            raise
        if tx.failure is not None and by_chance(tx.failure):
            raise tx.failure from None  # the same once more may well succeed
        raise TransactionUndone(error) from error
    # Whatever the function called, this is the transaction that began, and its commit waits.
    (same, _) = await transaction.row(f"SELECT txid_current() = %s, ({DURABLY})", number)
    if not same:
        raise TransactionUndone(TransactionRefused(_ENDED))
    return composed


async def _called(function: Callable[[AsyncTx], Awaitable[object]], tx: PostgresTx) -> object:
    """Call the function on a task without context, so that it finds no call to step in."""
    later = contextvars.Context().run(function, tx)
    if not inspect.isawaitable(later):
        raise TransactionRefused(
            "on Postgres the function of a transactional tool is async; it was a plain one"
        )
    return await asyncio.get_running_loop().create_task(
        _awaited(later), name="perdure-transaction", context=contextvars.Context()
    )


async def _awaited(later: Awaitable[object]) -> object:
    return await later


class PostgresTx:
    """The handle on the transaction of a Postgres store, while its function runs."""

    __slots__ = ("_busy", "_ended", "_transaction", "failure")

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._busy = False
        self._ended = ""
        self.failure: psycopg.Error | None = None
        """What ended the transaction, if a statement that failed did."""

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> Rows:
        """Run one statement; see `AsyncTx.execute`."""
        if self._ended:
            raise TransactionRefused(self._ended)
        if self._busy:
            raise TransactionRefused("a transaction runs one statement after the other")
        word = _first_word(statement)
        if word not in _ALLOWED:
            raise TransactionRefused(
                f"refused: {statement!r}: a transactional tool reads and changes rows, no more"
            )
        self._busy = True
        try:
            return await self._execute(statement, parameters)
        except psycopg.Error as error:
            self.failure = error
            raise
        finally:
            self._busy = False
            if not self._transaction.is_open:
                self._ended = f"{_ENDED}: {statement!r}"

    async def _execute(self, statement: str, parameters: Sequence[object]) -> Rows:
        cursor = await self._transaction.raw(statement, parameters)
        async with cursor:
            rows = await cursor.fetchall() if cursor.description else []
            return Rows(rows, cursor.rowcount)

    def end(self) -> None:
        """The function has returned.

        Raises:
            TransactionRefused: The transaction was not open any more, or a statement still runs.
        """
        if self._busy:
            raise TransactionRefused("the function returned while a statement of it still ran")
        if self._ended:
            raise TransactionRefused(self._ended)
        self.close()

    def close(self) -> None:
        """Let nobody use it any more."""
        self._ended = self._ended or "the transaction is over"


def _first_word(statement: str) -> str:
    """The first word behind blanks, parentheses and comments, which nest."""
    at, depth = 0, 0
    while True:
        if not depth:
            found = _BLANK.match(statement, at)
            at = found.end() if found is not None else at
            if not statement.startswith("/*", at):
                word = _WORD.match(statement, at)
                return word.group().lower() if word is not None else ""
        mark = _COMMENT.search(statement, at)
        if mark is None:
            return ""
        at = mark.end()
        depth += 1 if mark.group() == "/*" else -1

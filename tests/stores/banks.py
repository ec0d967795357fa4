"""Accounts in the log's own database, and transactional tools that pay from them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from perdure import tool
from perdure.log.store import Store
from perdure.stores.points import At, passing
from perdure.stores.sqlite import SqliteStore
from perdure.tools import AsyncTx, Tool, Transaction, Tx

Between = Callable[[], None]
"""Called between the two statements of a payment."""


def nothing() -> None:
    """Goes on."""


class Bank(Protocol):
    """A database with a log and payments."""

    store: Store

    def pays(self, cents: int, between: Between = nothing) -> Transaction:
        """A function that pays, in two statements, and gives how many payments there are."""
        ...

    def runs(self, *statements: str, then: Callable[[], object] = nothing) -> Transaction:
        """A function that pays 1, runs statements and swallows their errors."""
        ...

    def paid(self) -> list[int]:
        """What was paid, and was noted in the ledger as well."""
        ...


_PAYMENTS = ("SELECT cents FROM paid ORDER BY 1", "SELECT cents FROM noted ORDER BY 1")


def _whole(paid: list[tuple[int]], noted: list[tuple[int]]) -> list[int]:
    assert paid == noted, "half a payment"
    return [cents for (cents,) in paid]


class SqliteBank:
    """Beside the log in a file."""

    def __init__(self, path: Path, *, at: At = passing) -> None:
        self.path = path
        self.store: Store = SqliteStore(path, at=at)
        with sqlite3.connect(path) as connection:
            for table in ("paid", "noted"):
                connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (cents INTEGER UNIQUE)")
        connection.close()

    def pays(self, cents: int, between: Between = nothing) -> Transaction:
        def pay(tx: Tx) -> object:
            tx.execute("INSERT INTO paid VALUES (?)", (cents,))
            between()
            tx.execute("INSERT INTO noted VALUES (?)", (cents,))
            return {"payments": tx.execute("SELECT count(*) FROM paid").rows[0][0]}

        return pay

    def runs(self, *statements: str, then: Callable[[], object] = nothing) -> Transaction:
        def run(tx: Tx) -> object:
            tx.execute("INSERT INTO paid VALUES (1)")
            errors = [_error(tx, one) for one in statements]
            then()
            return " | ".join(errors)

        return run

    def paid(self) -> list[int]:
        connection = sqlite3.connect(self.path)
        paid, noted = (connection.execute(one).fetchall() for one in _PAYMENTS)
        connection.close()
        return _whole(paid, noted)


def _error(tx: Tx, statement: str) -> str:
    try:
        tx.execute(statement)
    except Exception as error:  # noqa: BLE001 - what a careless tool does
        return f"{type(error).__name__}: {error}"
    return "ran"


class PostgresBank:
    """In the log's schema."""

    def __init__(self, url: str, schema: str, *, at: At = passing) -> None:
        from perdure.stores.postgres import PostgresStore

        self.url = f"{url}&options=-csearch_path%3D{schema}"
        self.store: Store = PostgresStore(self.url, schema=schema, at=at)

    async def open(self) -> None:
        """Make the tables, the log's first."""
        await self.store.list()
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE paid (cents INT UNIQUE)")
            connection.execute("CREATE TABLE noted (cents INT UNIQUE)")

    def pays(self, cents: int, between: Between = nothing) -> Transaction:
        async def pay(tx: AsyncTx) -> object:
            await tx.execute("INSERT INTO paid VALUES ($1)", (cents,))
            between()
            await tx.execute("INSERT INTO noted VALUES ($1)", (cents,))
            count = await tx.execute("SELECT count(*) FROM paid")
            return {"payments": count.rows[0][0]}

        return pay

    def runs(self, *statements: str, then: Callable[[], object] = nothing) -> Transaction:
        async def run(tx: AsyncTx) -> object:
            await tx.execute("INSERT INTO paid VALUES (1)")
            errors = [await _later_error(tx, one) for one in statements]
            then()
            return " | ".join(errors)

        return run

    def paid(self) -> list[int]:
        import psycopg

        with psycopg.connect(self.url) as connection:
            paid, noted = (connection.execute(one).fetchall() for one in _PAYMENTS)
        return _whole(paid, noted)


async def _later_error(tx: AsyncTx, statement: str) -> str:
    try:
        await tx.execute(statement)
    except Exception as error:  # noqa: BLE001 - what a careless tool does
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "ran"


def paying(bank: Bank, between: Between = nothing) -> Tool:
    """A tool that pays."""

    @tool(effect="transactional")
    async def pay(cents: int) -> Transaction:
        """Pay."""
        return bank.pays(cents, between)

    return pay


def careless(bank: Bank, statements: Sequence[str], then: Callable[[], object] = nothing) -> Tool:
    """A tool that runs statements whatever comes of them."""

    @tool(effect="transactional")
    def run() -> Transaction:
        """Run statements."""
        return bank.runs(*statements, then=then)

    return run

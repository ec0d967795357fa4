"""Transactional tools: what they do commits with the log, or not at all (LOG 6).

Such a tool has two halves. Its *body* runs like that of any tool, without a transaction, and
returns a *transaction function*. The store calls the function inside the transaction that writes
the call's output, with a *handle* on that transaction; what the function returns is the output.

The function awaits nothing but its handle and makes no step, wait or nested call. It may be called
more than once, since a transaction that a store could not commit is begun anew; only the last
call's effects stand. What it raises undoes the transaction and is what the model reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from perdure.errors import NoTransactions

if TYPE_CHECKING:
    from perdure.tools.tool import Tool


NO_TRANSACTION = "tool {!r} is transactional, and its body returned no function that does it"


class Rows(NamedTuple):
    """What a statement gave."""

    rows: Sequence[tuple[object, ...]] = ()
    rowcount: int = 0
    """How many rows it changed, or gave; -1 where the database does not say."""


class Tx(Protocol):
    """The handle on a transaction of a SQLite store, for a plain function."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Rows:
        """Run one statement, with `?` for each parameter.

        Raises:
            TransactionRefused: The statement controls transactions, reaches what belongs to
                perdure, or comes after the transaction has ended.
            sqlite3.Error: The statement failed.
        """
        ...


class AsyncTx(Protocol):
    """The handle on a transaction of a Postgres store, for an async function."""

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> Rows:
        """Run one statement, with `$1`, `$2` for the parameters. A failed one ends the transaction.

        Raises:
            TransactionRefused: The statement does not read or change rows, or comes after the
                transaction has ended.
            psycopg.Error: The statement failed.
        """
        ...


Transaction: TypeAlias = Callable[[Tx], object] | Callable[[AsyncTx], Awaitable[object]]
"""A transaction function: plain for SQLite, async for Postgres."""


def check_transactional(tools: Iterable[Tool], *, transacts: bool) -> None:
    """Refuse transactional tools where nothing commits them.

    Args:
        tools: The tools.
        transacts: Whether the store can.

    Raises:
        NoTransactions: One of them is transactional, and it cannot.
    """
    for tool in tools:
        if not transacts and getattr(tool, "effect", "once") == "transactional":
            raise NoTransactions(tool.name)

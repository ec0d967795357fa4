"""Counting what transactional tools committed, in the log's own database, past perdure's hands."""

from __future__ import annotations

import contextlib
import sqlite3
import urllib.parse
from collections import Counter
from collections.abc import Callable, Generator
from typing import Protocol

from perdure.stores.sqlite import open_url as open_sqlite


class Commits(Protocol):
    """A table with a row for each call that committed."""

    def of_run(self, run: str) -> Counter[str]:
        """How often each call of a run committed."""
        ...


class NoCommits:
    """Of a store that commits nothing but entries."""

    def of_run(self, run: str) -> Counter[str]:  # noqa: ARG002 - the port's signature
        return Counter()


class _Table:
    def __init__(self, select: Callable[[str], list[str]]) -> None:
        self._select = select

    def of_run(self, run: str) -> Counter[str]:
        return Counter(self._select(run))


@contextlib.contextmanager
def counting(url: str, table: str) -> Generator[Commits]:
    """Make the table in the database of a store, and drop it at the end."""
    scheme = url.partition(":")[0]
    match scheme:
        case "sqlite":
            with _sqlite(url, table) as found:
                yield found
        case "postgresql":
            with _postgres(url, table) as found:
                yield found
        case _:
            yield NoCommits()


@contextlib.contextmanager
def _sqlite(url: str, table: str) -> Generator[Commits]:
    path = open_sqlite(url).path

    def run(statement: str, *values: str) -> list[str]:
        connection = sqlite3.connect(path, timeout=30)
        try:
            with connection:
                return [str(row[0]) for row in connection.execute(statement, values)]
        finally:
            connection.close()

    run(f"CREATE TABLE {table} (run TEXT, call TEXT)")
    try:
        yield _Table(lambda name: run(f"SELECT call FROM {table} WHERE run = ?", name))  # noqa: S608
    finally:
        run(f"DROP TABLE {table}")


@contextlib.contextmanager
def _postgres(url: str, table: str) -> Generator[Commits]:
    import psycopg

    parsed = urllib.parse.urlsplit(url)
    parameters = urllib.parse.parse_qsl(parsed.query, keep_blank_values=True)
    rest = [(name, value) for name, value in parameters if name != "schema"]
    query = urllib.parse.urlencode(rest, quote_via=urllib.parse.quote)
    plain = parsed._replace(query=query).geturl()

    def select(name: str) -> list[str]:
        with psycopg.connect(plain, autocommit=True) as connection:
            statement = f"SELECT call FROM {table} WHERE run = %s".encode()  # noqa: S608
            return [str(row[0]) for row in connection.execute(statement, [name])]

    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (run TEXT, call TEXT)".encode())
    try:
        yield _Table(select)
    finally:
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(f"DROP TABLE {table}".encode())

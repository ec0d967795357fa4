"""Stores: appends a second and how long one takes, for sessions that append at once.

Each session appends one entry after the other and waits for it, as a driver does before it enters a
tool. Beside perdure's stores stands a bare loop over sqlite3 that commits one row an entry, with
the same synchronisation. Postgres is measured if PERDURE_TEST_POSTGRES names a server.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.table import Table
from perdure.log.entries import AnyEntry
from perdure.log.store import Store
from perdure.stores.jsonl import JsonlStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_kit import chain, header

SESSIONS = (1, 10, 100, 200)
APPENDS = {1: 400, 10: 100, 100: 40, 200: 30}
BODY = {"ns": "bench", "data": "x" * 600}


class Measured:
    """What one run took."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self._wall = time.perf_counter()
        self._processor = time.process_time()

    def stop(self) -> None:
        self._wall = time.perf_counter() - self._wall
        self._processor = time.process_time() - self._processor
        self.latencies.sort()

    @property
    def row(self) -> tuple[float, float, float, float]:
        count = len(self.latencies)
        return (
            count / self._wall,
            self.latencies[count // 2] * 1e3,
            self.latencies[count * 99 // 100] * 1e3,
            self._processor / count * 1e6,
        )


def entries(sessions: int) -> list[Sequence[AnyEntry]]:
    """What each session appends, one after the other."""
    count = APPENDS[sessions]
    return [
        [chain(1, first=place * count + number, body=BODY)[0] for number in range(count)]
        for place in range(sessions)
    ]


async def drive(store: Store, sessions: int) -> Measured:
    """All sessions at once."""
    given = entries(sessions)
    fences = []
    for place in range(sessions):
        await store.create(header(f"s{place}"))
        fences.append((await store.lease(f"s{place}", holder="bench", seconds=3600)).fence)
    measured = Measured()

    async def append(place: int) -> None:
        for version, entry in enumerate(given[place]):
            start = time.perf_counter()
            await store.append(f"s{place}", version, fences[place], [entry])
            measured.latencies.append(time.perf_counter() - start)

    async with asyncio.TaskGroup() as group:
        for place in range(sessions):
            group.create_task(append(place))
    measured.stop()
    await store.close()
    return measured


def bare(path: Path, sessions: int) -> Measured:
    """One row an entry, one commit a row."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (session TEXT, number INTEGER, line BLOB)")
    given = entries(sessions)
    measured = Measured()
    for version in range(APPENDS[sessions]):
        for place in range(sessions):
            start = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            row = (f"s{place}", version, given[place][version].line)
            connection.execute("INSERT INTO rows VALUES (?,?,?)", row)
            connection.execute("COMMIT")
            measured.latencies.append(time.perf_counter() - start)
    measured.stop()
    connection.close()
    return measured


def stores(directory: Path) -> dict[str, Callable[[], Store]]:
    """What opens each store, fresh."""
    openers: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "jsonl": lambda: JsonlStore(directory / secrets.token_hex(4)),
        "sqlite": lambda: SqliteStore(directory / f"{secrets.token_hex(4)}.db"),
    }
    server = os.environ.get("PERDURE_TEST_POSTGRES")
    if server:
        from perdure.stores.postgres import PostgresStore

        openers["postgres"] = lambda: PostgresStore(
            server, schema=f"bench_{secrets.token_hex(4)}", connections=20
        )
    return openers


def main() -> None:
    """Print a table for each number of sessions."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for sessions in SESSIONS:
            title = f"{sessions} sessions at once, {APPENDS[sessions]} appends each"
            table = Table(title, "", "appends/s", "median ms", "99% ms", "CPU µs")
            table.row("bare sqlite3", *bare(directory / f"bare{sessions}.db", sessions).row)
            for store, opener in stores(directory).items():
                table.row(store, *asyncio.run(drive(opener(), sessions)).row)
            table.show()


if __name__ == "__main__":
    main()

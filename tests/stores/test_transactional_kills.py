"""A payment in the log's own database, killed at every commit and between its statements."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.clock import SystemClock
from perdure.log.reading import read_lines
from perdure.stores.sqlite import SqliteStore
from tests.stores.agent_killed import cents_of, go_on_paying
from tests.stores.banks import Bank, PostgresBank, SqliteBank

ROOT = Path(__file__).parents[2]

_AT = [(point, n) for point in ("commit", "committed") for n in range(2, 8)]
SPOTS = [f"{point}-{n}-{cents} {point} {n}" for cents, (point, n) in enumerate(_AT, 1)]
SPOTS += ["between-100 between 1", "never-101 begin 99"]


class Later(SystemClock):
    """After every lease has lapsed."""

    def wall(self) -> int:
        return super().wall() + 3600 * 10**9


async def killed(*arguments: str) -> dict[str, str]:
    """What each agent was told before it was killed."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.stores.killed", *arguments],
        cwd=ROOT,
        env={**os.environ, "PAYING": "1"},
        input="\n".join(SPOTS),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert {status for _, status, _ in lines} <= {"0", "-9"}
    return {spot.split()[0]: told for spot, _, told in lines}


async def recorded(bank: Bank, name: str) -> tuple[bool, bool]:
    """Whether a session has the call with its response, and whether it has the output."""
    found = [one for one in (await bank.store.list()).sessions if one.name == name]
    if not found:
        return False, False
    stored = await bank.store.read(found[0].id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    paid = sum(b'"output":"{\\"payments\\":' in line for line in stored.lines)
    assert paid <= 1
    assert not any(b"UNIQUE" in line or b"Error:" in line for line in stored.lines)
    types = [entry.type for entry in reading.session.entries]
    return "response" in types, bool(paid)


async def check(bank: Bank, name: str, told: str) -> tuple[bool, bool]:
    """Whether it was paid before the next process came, and after it; never twice."""
    asked, output = await recorded(bank, name)
    before = cents_of(name) in bank.paid()
    assert before == output, "an effect without its output, or an output without its effect"
    if told:
        assert (told, before) == ("It is done.", True)
    assert await go_on_paying(bank, name) == "Hello."
    after = cents_of(name) in bank.paid()
    assert after == (await recorded(bank, name))[1] == asked
    return before, after


ALL = {(False, False), (False, True), (True, True)}
"""Killed before the model asked; between then and the commit; after it."""


async def test_on_sqlite(tmp_path: Path) -> None:
    told = await killed("tests.stores.banks:SqliteBank", str(tmp_path / "{}.db"))
    seen: set[tuple[bool, bool]] = set()
    for name, text in told.items():
        bank = SqliteBank(tmp_path / f"{name}.db")
        await bank.store.close()
        bank.store = SqliteStore(bank.path, clock=Later())
        seen.add(await check(bank, name, text))
        await bank.store.close()
    assert seen == ALL


async def test_on_postgres(postgres_server: str, postgres_schema: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    bank = PostgresBank(postgres_server, postgres_schema)
    await bank.open()
    told = await killed("tests.stores.banks:PostgresBank", postgres_server, postgres_schema)
    with psycopg.connect(bank.url) as connection:
        connection.execute("UPDATE perdure_roots SET until = 'epoch'")
    assert {await check(bank, name, text) for name, text in told.items()} == ALL
    await bank.store.close()

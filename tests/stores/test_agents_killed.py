"""An agent with a tool that must not run twice, killed at every commit, taken up by the next."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.clock import SystemClock
from perdure.log.reading import read_lines
from perdure.log.store import Store
from perdure.stores.sqlite import SqliteStore
from tests.stores.agent_killed import go_on

ROOT = Path(__file__).parents[2]
SPOTS = [(point, n) for point in ("commit", "committed") for n in range(1, 9)]


class Later(SystemClock):
    """After every lease has lapsed."""

    def wall(self) -> int:
        return super().wall() + 3600 * 10**9


async def killed(directory: Path, *arguments: str) -> dict[str, str]:
    """What each agent was told before it was killed."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.stores.killed", *arguments],
        cwd=ROOT,
        env={**os.environ, "CHARGES": str(directory)},
        input="\n".join(f"{point}-{n} {point} {n}" for point, n in SPOTS),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert {status for _, status, _ in lines} <= {"0", "-9"}
    assert sum(status == "-9" for _, status, _ in lines) > len(SPOTS) / 2
    return {spot.split()[0]: told for spot, _, told in lines}


def charged_to(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def check(store: Store, name: str, charges: Path, told: str) -> bool:
    """Whether the card was charged; never twice, and never without a record of it."""
    before = charged_to(charges)
    assert before in ("", "5\n")
    assert await go_on(store, name, str(charges)) == "Hello."
    assert charged_to(charges) == before
    (listed,) = [one for one in (await store.list()).sessions if one.name == name]
    stored = await store.read(listed.id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    types = [entry.type for entry in reading.session.entries]
    assert types.count("dispatch") <= 1
    if before:
        assert "dispatch" in types
    if told:
        assert (told, before) == ("It is done.", "5\n")
        assert any(b"It is done." in line for line in stored.lines)
    return bool(before)


async def test_on_sqlite(tmp_path: Path) -> None:
    told = await killed(tmp_path, "perdure.stores.sqlite:SqliteStore", str(tmp_path / "{}.db"))
    charged: set[bool] = set()
    for name, text in told.items():
        store = SqliteStore(tmp_path / f"{name}.db", clock=Later())
        charged.add(await check(store, name, tmp_path / name, text))
        await store.close()
    assert charged == {False, True}


async def test_on_postgres(tmp_path: Path, postgres_server: str, postgres_schema: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    from perdure.stores.postgres import PostgresStore

    store = PostgresStore(postgres_server, schema=postgres_schema)
    await store.list()
    told = await killed(tmp_path, "tests.stores.killed:postgres", postgres_server, postgres_schema)
    with psycopg.connect(postgres_server) as connection:
        lapse = f"UPDATE {postgres_schema}.perdure_roots SET until = 'epoch'"  # noqa: S608
        connection.execute(lapse)
    charged = {await check(store, name, tmp_path / name, text) for name, text in told.items()}
    assert charged == {False, True}
    await store.close()

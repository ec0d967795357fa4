"""Leases of real stores are renewed on a thread, whatever the loop that drives is doing."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from perdure import Agent, Middleware, ToolDecision
from perdure.errors import RunBusy
from perdure.log.leases import Held, take_lease
from perdure.log.store import Renewing
from perdure.loop import ToolCallInfo
from perdure.stores import open_store
from perdure.stores.jsonl import JsonlStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ScriptedModel, call
from perdure.testing.store_kit import header
from tests.durable.world import RUN, Act, World, one_call

PATIENCE = 60.0

LEASE = 3.0
"""Seconds; it is renewed after one of them, so a machine has two to do that."""


class Place(NamedTuple):
    """A store, and the end of the one lease in it, read past the event loop."""

    url: str
    until: Callable[[], object]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(f"sqlite:///{tmp_path}/s.db", lambda: _until_sqlite(tmp_path / "s.db"))
    server: str = request.getfixturevalue("postgres_server")
    schema: str = request.getfixturevalue("postgres_schema")
    return Place(f"{server}&schema={schema}", lambda: _until_postgres(server, schema))


def _until_sqlite(path: Path) -> object:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT max(until) FROM perdure_roots").fetchone()
    connection.close()
    return found


def _until_postgres(server: str, schema: str) -> object:
    import psycopg

    with psycopg.connect(server) as connection:
        statement = f"SELECT max(until) FROM {schema}.perdure_roots"  # noqa: S608
        found = connection.execute(statement.encode()).fetchone()
        assert found is not None
        return found[0]


class Blocks(Middleware):
    """Blocks the event loop until the lease has been renewed, and somebody else has asked for it.

    Args:
        place: Where the lease is.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.renewed = False
        self.told = ""

    async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
        self._block()
        return None

    def _block(self) -> None:
        before, end = self._place.until(), time.monotonic() + PATIENCE
        while self._place.until() == before and time.monotonic() < end:
            time.sleep(0.02)
        self.renewed = self._place.until() != before
        thread = threading.Thread(target=self._ask)
        thread.start()
        thread.join(PATIENCE)

    def _ask(self) -> None:
        self.told = asyncio.run(_ask(self._place.url))


async def test_a_hook_that_blocks_the_loop_does_not_lose_the_run(place: Place) -> None:
    store, world, blocks = open_store(place.url), World(), Blocks(place)
    agent: Agent = Agent(
        ScriptedModel(one_call()),
        tools=[Act(world=world)],
        store=store,
        lease=LEASE,
        middleware=[blocks],
    )
    result = await agent.run("go", run_id=RUN)
    assert blocks.renewed
    assert blocks.told == "busy"
    assert result.status == "done"
    assert len(world.fired) == 1
    await store.close()


async def _ask(url: str) -> str:
    """Another driver, on a loop and with connections of its own, asks for the run."""
    store = open_store(url)
    agent: Agent = Agent(ScriptedModel([call("act"), "Done."]), tools=[Act(world=World())])
    try:
        return (await agent.with_(store=store).run("go", run_id=RUN, wait=False)).status
    except RunBusy:
        return "busy"
    finally:
        await store.close()


# --- capabilities ------------------------------------------------------------------------------


def test_which_stores_are_renewed_on_another_loop(tmp_path: Path) -> None:
    assert isinstance(MemoryStore(), Renewing)
    assert isinstance(SqliteStore(tmp_path / "s.db"), Renewing)
    assert not isinstance(JsonlStore(tmp_path / "sessions"), Renewing)  # its leases do not lapse


async def test_a_store_that_left_a_loop_may_be_used_there_again(place: Place) -> None:
    store = open_store(place.url)
    assert isinstance(store, Renewing)
    await store.create(header("s"))
    lease = await store.lease("s", holder="us")
    await store.leave_loop()
    await store.renew(lease)
    await store.close()


# --- connections to Postgres -------------------------------------------------------------------


class Kept(NamedTuple):
    """Two leases of one store."""

    held: tuple[Held, Held]
    loops: Callable[[], int]
    """For how many event loops the store has connections."""
    busy: Callable[[], AbstractAsyncContextManager[object]]
    """Takes the one connection of the loop that runs."""


@pytest_asyncio.fixture
async def kept(postgres_server: str, postgres_schema: str) -> AsyncGenerator[Kept]:
    from perdure.stores.postgres import PostgresStore

    store = PostgresStore(postgres_server, schema=postgres_schema, connections=1)
    held: list[Held] = []
    for session in ("a", "b"):
        await store.create(header(session))
        held.append(await take_lease(store, session, holder="us", seconds=LEASE))
    pools = store._pool._pools
    yield Kept((held[0], held[1]), lambda: len(pools), lambda: store._pool._begun(b"BEGIN"))
    await store.close()


async def _renewed(kept: Kept) -> None:
    for held in kept.held:
        held.keep()
    async with asyncio.timeout(PATIENCE):
        while kept.loops() < 2:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)


async def test_the_connections_for_renewals_go_with_the_last_lease(kept: Kept) -> None:
    await _renewed(kept)
    await kept.held[0].release()
    assert kept.loops() == 2
    await kept.held[1].release()
    assert kept.loops() == 1


async def test_renewals_wait_for_no_connection_that_appends_use(
    kept: Kept, postgres_server: str, postgres_schema: str
) -> None:
    """The one connection of this loop is in the hands of somebody who does not let go."""
    before = _until_postgres(postgres_server, postgres_schema)
    async with kept.busy():
        await _renewed(kept)
        async with asyncio.timeout(PATIENCE):
            while _until_postgres(postgres_server, postgres_schema) == before:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert _until_postgres(postgres_server, postgres_schema) != before
    for held in kept.held:
        await held.release()

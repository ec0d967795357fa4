"""Postgres: schemas, unknown commits, broken connections, poolers, locks."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

pytest.importorskip("psycopg_pool", reason="psycopg is not installed: perdure[postgres]")

import psycopg
from psycopg.rows import TupleRow

from perdure.errors import (
    ConfigError,
    FenceLost,
    Leased,
    StaleVersion,
    StopRequested,
    StoreFailed,
)
from perdure.log.header import Origin, decode_header
from perdure.log.reading import read_lines
from perdure.log.store import Appended, Composed, Lease, Message
from perdure.stores import open_store
from perdure.stores.points import Point
from perdure.stores.postgres import PostgresStore
from perdure.stores.postgres_schema import VERSION
from perdure.testing import store_kit
from perdure.testing.store_kit import chain, header
from perdure.tools import AsyncTx
from tests.stores.faults import Faults
from tests.stores.pgbouncer import pgbouncer
from tests.stores.postgres_proxy import Network, Pooler
from tests.stores.steps import Drive, check_after_crash, resume, spots

ROOT = Path(__file__).parents[2]


@pytest_asyncio.fixture
async def store(postgres_server: str, postgres_schema: str) -> AsyncGenerator[PostgresStore]:
    made = PostgresStore(postgres_server, schema=postgres_schema)
    yield made
    await made.close()


@pytest.fixture
def sql(postgres_server: str) -> Generator[psycopg.Connection[TupleRow]]:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        yield connection


@pytest.fixture
def short() -> Generator[Path]:
    """A directory whose name is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="px") as directory:
        yield Path(directory)


async def driven(store: PostgresStore, session: str = "s1") -> Lease:
    await store.create(header(session))
    return await store.lease(session, holder="test")


DISPATCH = chain(1, type="dispatch", body={"call_id": "c", "target": "t"})


# --- names and schemas -----------------------------------------------------------------------


async def test_the_schema_is_a_parameter_of_the_url() -> None:
    made = open_store("postgresql://u@h/d?schema=mine&connect_timeout=3")
    assert isinstance(made, PostgresStore)
    assert made.schema == "mine"
    assert made._pool._url == "postgresql://u@h/d?connect_timeout=3"
    other = open_store("postgresql://u@h/d")
    assert isinstance(other, PostgresStore)
    assert other.schema == "perdure"
    for url in ("postgresql://h/d?schema=", "postgresql://h/d?schema=a&schema=b"):
        with pytest.raises(ConfigError):
            open_store(url)


async def test_many_open_a_fresh_schema_at_once(postgres_server: str, postgres_schema: str) -> None:
    stores = [PostgresStore(postgres_server, schema=postgres_schema) for _ in range(8)]
    async with asyncio.TaskGroup() as group:
        for number, one in enumerate(stores):
            group.create_task(one.create(header(f"s{number}")))
    assert len((await stores[0].list()).sessions) == 8
    for one in stores:
        await one.close()


@pytest.mark.parametrize(
    "table", ["perdure_sessions (x int)", "perdure_schema (x int)", "perdure_mine (x int)"]
)
async def test_tables_of_others_with_such_names_are_refused(
    store: PostgresStore, sql: psycopg.Connection[TupleRow], table: str
) -> None:
    sql.execute(f"CREATE SCHEMA {store.schema}".encode())
    sql.execute(f"CREATE TABLE {store.schema}.{table}".encode())
    with pytest.raises(ConfigError, match="not perdure's"):
        await store.create(header())


async def test_a_newer_schema_is_refused(
    store: PostgresStore, sql: psycopg.Connection[TupleRow], postgres_server: str
) -> None:
    await store.create(header())
    sql.execute(f"UPDATE {store.schema}.perdure_schema SET version = {VERSION + 1}".encode())  # noqa: S608
    again = PostgresStore(postgres_server, schema=store.schema)
    with pytest.raises(ConfigError, match="newer perdure"):
        await again.read("s1")
    await again.close()


async def test_a_database_that_is_not_there_is_a_mistake_and_a_server_a_failure(
    postgres_server: str, tmp_path: Path
) -> None:
    from psycopg.conninfo import make_conninfo

    missing = PostgresStore(make_conninfo(postgres_server, dbname="nosuch"))
    with pytest.raises(ConfigError, match="nosuch"):
        await missing.list()
    away = PostgresStore(f"postgresql:///d?host={tmp_path}")
    with pytest.raises(StoreFailed):
        await away.list()
    await missing.close()
    await away.close()


async def test_text_that_postgres_cannot_hold_is_refused(store: PostgresStore) -> None:
    for name in ("a\x00b", "\ud800"):
        with pytest.raises(ConfigError):
            await store.create(header(), name=name)
    lease = await driven(store)
    await store.append("s1", 0, lease.fence, chain(1, type="acme:\x00", body={"x": "\x00"}))
    stored = await store.read("s1")
    assert read_lines(stored.header, stored.lines).faults == ()


async def test_a_closed_store_says_so(store: PostgresStore) -> None:
    await store.create(header())
    await store.close()
    with pytest.raises(ConfigError, match="closed"):
        await store.read("s1")


def test_each_event_loop_has_its_own_connections(
    postgres_server: str, postgres_schema: str
) -> None:
    store = PostgresStore(postgres_server, schema=postgres_schema)

    async def once(session: str) -> int:
        await store.create(header(session))
        return len((await store.list()).sessions)

    assert [asyncio.run(once(f"s{number}")) for number in range(3)] == [1, 2, 3]

    async def close() -> None:
        await store.close()

    asyncio.run(close())


async def test_the_header_of_an_older_format_is_raised_by_the_first_append(
    store: PostgresStore,
) -> None:
    old = decode_header(header().line.replace(b"agentsession/0.11", b"agentsession/0.6"))
    await store.create(old)
    lease = await store.lease("s1", holder="x")
    await store.append("s1", 0, lease.fence, [])
    assert (await store.read("s1")).header.format == "agentsession/0.6"
    await store.append("s1", 0, lease.fence, chain(1))
    stored = await store.read("s1")
    assert stored.header.format == "agentsession/0.11"
    assert stored.summary.bytes == len(stored.header.line) + len(stored.lines[0]) + 2


# --- leases ------------------------------------------------------------------------------


async def test_a_lapsed_lease_may_be_taken_and_until_then_its_fence_holds(
    store: PostgresStore, sql: psycopg.Connection[TupleRow]
) -> None:
    lease = await driven(store)
    with pytest.raises(Leased):
        await store.lease("s1", holder="second")
    shift = f"UPDATE {store.schema}.perdure_roots SET until = until + %s * interval '1 second'"  # noqa: S608
    sql.execute(shift.encode(), (-31,))
    await store.append("s1", 0, lease.fence, chain(1))  # nobody took it
    await store.renew(lease)
    with pytest.raises(Leased):
        await store.lease("s1", holder="second")
    sql.execute(shift.encode(), (3600,))  # of before the clock was set back
    second = await store.lease("s1", holder="second")
    for attempt in (store.append("s1", 1, lease.fence, []), store.renew(lease)):
        with pytest.raises(FenceLost):
            await attempt
    await store.append("s1", 1, second.fence, [])


# --- commits whose outcome is unknown ----------------------------------------------------------


@pytest.mark.parametrize("happened", [False, True])
async def test_a_commit_that_broke_off_is_settled_by_the_same_bytes(
    postgres_server: str, postgres_schema: str, short: Path, happened: bool
) -> None:
    network = Network(postgres_server)
    async with network.listening(short) as url:
        store = PostgresStore(url, schema=postgres_schema)
        lease = await driven(store)
        await store.put("s1", Message(id="m"))
        batch = chain(1, body={"ns": "x", "perdure:message": "m"})
        network.on_commit = "drop after" if happened else "drop"
        with pytest.raises(StoreFailed):
            await store.append("s1", 0, lease.fence, batch, consumed=["m"])
        assert (await store.read("s1")).version == int(happened)
        appended = await store.append("s1", 0, lease.fence, batch, consumed=["m"])
        assert appended == Appended(1, int(happened))
        assert await store.unconsumed("s1") == ()
        await store.close()


@pytest.mark.parametrize("happens", [False, True])
async def test_a_resubmission_waits_until_the_first_commit_is_decided(
    postgres_server: str, postgres_schema: str, short: Path, happens: bool
) -> None:
    """LOG 1.3: the client is cut off, while the server still has the transaction open."""
    network = Network(postgres_server)
    async with network.listening(short) as url:
        store = PostgresStore(url, schema=postgres_schema)
        lease = await driven(store)
        network.hold()
        with pytest.raises(StoreFailed):
            await store.append("s1", 0, lease.fence, DISPATCH)
        decide = await network.held()
        again = asyncio.ensure_future(store.append("s1", 0, lease.fence, DISPATCH))
        stop = asyncio.ensure_future(store.put("s1", Message(id="stop"), stop=True))
        taken = asyncio.ensure_future(store.release(lease))
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in (again, stop, taken))
        await decide(happens)
        await asyncio.wait([again, stop, taken])
        assert (await stop).number == 1
        # Whether the stop or the release came first is open; that nothing is twice is not.
        error = again.exception()
        assert error is None or isinstance(error, FenceLost | StopRequested)
        assert (await store.read("s1")).version in ((1,) if happens else (0, 1))
        await store.close()


async def test_an_unknown_dispatch_is_settled_although_a_stop_came(
    postgres_server: str, postgres_schema: str, short: Path
) -> None:
    network = Network(postgres_server)
    async with network.listening(short) as url:
        store = PostgresStore(url, schema=postgres_schema)
        lease = await driven(store)
        network.on_commit = "drop after"
        with pytest.raises(StoreFailed):
            await store.append("s1", 0, lease.fence, DISPATCH)
        await store.put("s1", Message(id="stop"), stop=True)
        assert await store.append("s1", 0, lease.fence, DISPATCH) == Appended(1, 1)
        more = chain(1, under=DISPATCH[0].id, first=4, type="dispatch", body={"call_id": "d"})
        with pytest.raises(StopRequested):
            await store.append("s1", 1, lease.fence, more)
        await store.close()


async def test_a_held_append_is_made_durable_again(store: PostgresStore) -> None:
    """What one reads may be what a failover still takes, until something later is flushed."""
    lease = await driven(store)
    await store.append("s1", 0, lease.fence, chain(1))

    async def settled() -> object:
        return await store._read(lambda t: t.row("SELECT settled FROM @sessions"))

    assert await settled() == (0,)
    assert (await store.append("s1", 0, lease.fence, chain(1))).held == 1
    assert await settled() == (1,)
    assert (await store.create(header())).held == 0
    assert await settled() == (2,)


@pytest.mark.parametrize("point", ["begin", "checked", "written"])
async def test_what_fails_before_the_commit_by_chance_is_tried_again(
    postgres_server: str, postgres_schema: str, point: Point
) -> None:
    faults = Faults()
    store = PostgresStore(postgres_server, schema=postgres_schema, at=faults)
    lease = await driven(store)
    faults.fail(point, psycopg.errors.SerializationFailure)
    assert await store.append("s1", 0, lease.fence, chain(1)) == Appended(1)
    faults.fail(point, psycopg.errors.DiskFull)
    more = chain(2)[1:]
    with pytest.raises(StoreFailed):
        await store.append("s1", 1, lease.fence, more)
    assert await store.append("s1", 1, lease.fence, more) == Appended(2)
    await store.close()


# --- connections -------------------------------------------------------------------------


async def test_connections_cut_between_two_writes_are_survived_without_a_duplicate(
    postgres_server: str, postgres_schema: str, short: Path
) -> None:
    network = Network(postgres_server)
    async with network.listening(short) as url:
        store = PostgresStore(url, schema=postgres_schema)
        lease = await driven(store)
        for number, entry in enumerate(chain(5)):
            network.cut()
            assert (await store.append("s1", number, lease.fence, [entry])).held == 0
        await store.close()


async def test_backends_that_the_server_ended_are_replaced(
    store: PostgresStore, sql: psycopg.Connection[TupleRow]
) -> None:
    lease = await driven(store)
    for number, entry in enumerate(chain(3)):
        sql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        assert (await store.append("s1", number, lease.fence, [entry])).held == 0


async def test_a_transaction_pooler_may_stand_in_between(
    postgres_server: str,
    postgres_schema: str,
    short: Path,
    sql: psycopg.Connection[TupleRow],
) -> None:
    pooler = Pooler(postgres_server)
    async with pooler.listening(short) as url:
        store = PostgresStore(url, schema=postgres_schema)
        for number in range(3):
            await resume(Drive(store, f"p{number}-"))
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(store.put("p0-s1", Message(id=f"x{number}")))
        assert len(await store.unconsumed("p0-s1")) == 20
        left = await store._pool.read(
            lambda t: t.row(
                "SELECT (SELECT count(*) FROM pg_prepared_statements), "
                "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
            )
        )
        assert left == (0, 0)
        await store.close()


async def test_pgbouncer_may_stand_in_between(
    postgres_server: str, postgres_schema: str, short: Path
) -> None:
    async with pgbouncer(postgres_server, short) as url:
        store = PostgresStore(url, schema=postgres_schema)
        for number in range(2):
            await resume(Drive(store, f"p{number}-"))
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(store.put("p0-s1", Message(id=f"x{number}")))
        assert len(await store.unconsumed("p0-s1")) == 20
        lease = await driven(store, "paid")
        (entry,) = chain(1)

        async def adds(tx: AsyncTx) -> object:
            return (await tx.execute("SELECT $1::int + 1", (1,))).rows[0][0]

        def compose(value: object) -> Composed:
            assert value == 2
            return Composed(entry)

        assert (await store.transact("paid", 0, lease.fence, adds, compose)).version == 1
        await store.close()


@pytest.mark.parametrize(
    "check",
    [
        store_kit.of_racing_appends_one_wins,
        store_kit.one_of_many_gets_a_name,
        store_kit.racers_through_several_objects,
        store_kit.a_cancelled_append_is_whole_or_absent,
        store_kit.a_stop_forbids_effects_in_the_whole_tree,
    ],
    ids=store_kit.name_of,
)
async def test_the_kits_races_hold_behind_a_pooler(
    check: store_kit.Check, postgres_server: str, postgres_schema: str, short: Path
) -> None:
    async with Pooler(postgres_server).listening(short) as url:
        await check(store_kit.Subject(lambda: PostgresStore(url, schema=postgres_schema)))


# --- locks -------------------------------------------------------------------------------


async def test_messages_are_numbered_under_the_lock_of_the_session(
    postgres_server: str, postgres_schema: str
) -> None:
    stores = [PostgresStore(postgres_server, schema=postgres_schema) for _ in range(4)]
    await stores[0].create(header())
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(stores[n % 4].put("s1", Message(id=f"m{n % 50}"))) for n in range(100)
        ]
    first = {task.result().number for task in tasks if not task.result().duplicate}
    assert first == set(range(1, 51))
    assert [m.number for m in await stores[1].unconsumed("s1")] == list(range(1, 51))
    for one in stores:
        await one.close()


async def test_a_message_is_consumed_once_by_whoever_is_first(store: PostgresStore) -> None:
    lease = await driven(store)
    await store.put("s1", Message(id="m"))

    async def attempt(number: int) -> bool:
        batch = chain(1, first=number, body={"ns": "x", "perdure:message": "m"})
        try:
            await store.append("s1", 0, lease.fence, batch, consumed=["m"])
        except StaleVersion:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(number)) for number in range(12)]
    assert sum(task.result() for task in tasks) == 1


async def test_a_stop_that_returned_is_before_every_later_dispatch(store: PostgresStore) -> None:
    """Drivers dispatch in a root and its children while stops come: none gets past."""
    lease = await driven(store)
    names = [f"c{number}" for number in range(4)]
    for name in names:
        await store.create(header(name, root="s1", origin=Origin("s1")), fence=lease.fence)
    stopped = asyncio.Event()

    async def drive(session: str) -> int:
        for version in range(200):
            late = stopped.is_set()
            batch = chain(1, first=version, type="dispatch", body={"call_id": "c"})
            try:
                await store.append(session, version, lease.fence, batch)
            except StopRequested:
                return version
            assert not late
        raise AssertionError("it was never stopped")

    async def stop() -> None:
        await asyncio.sleep(0.05)
        await store.put("s1", Message(id="stop"), stop=True)
        stopped.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(stop())
        tasks = [group.create_task(drive(name)) for name in (*names, "s1")]
    for name, task in zip((*names, "s1"), tasks, strict=True):
        assert (await store.read(name)).version == task.result()


async def test_leases_stops_appends_and_deletions_do_not_block_each_other_for_good(
    store: PostgresStore,
) -> None:
    lease = await driven(store)
    await store.create(header("c", root="s1", origin=Origin("s1")), fence=lease.fence)

    async def appends(session: str) -> None:
        for version in range(30):
            await store.append(session, version, lease.fence, chain(1, first=version))

    async def others(number: int) -> None:
        for turn in range(10):
            await store.put("s1", Message(id=f"{number}.{turn}"), stop=bool(turn % 2))
            await store.put("c", Message(id=f"{number}.{turn}"))
            await store.renew(lease)
            with contextlib.suppress(Leased):
                await store.delete("s1")

    async with asyncio.TaskGroup() as group:
        group.create_task(appends("s1"))
        group.create_task(appends("c"))
        for number in range(4):
            group.create_task(others(number))
    assert (await store.read("c")).version == 30
    assert len(await store.unconsumed("s1")) == 40


# --- killed ------------------------------------------------------------------------------


async def test_killed_at_every_point_what_was_acknowledged_is_there(
    store: PostgresStore, postgres_server: str
) -> None:
    await store.list()
    lines = [f"{point}-{n}- {point} {n}" for point, n in spots()]
    done = await asyncio.to_thread(
        subprocess.run,
        [
            sys.executable,
            "-m",
            "tests.stores.killed",
            "tests.stores.killed:postgres",
            postgres_server,
            store.schema,
        ],
        cwd=ROOT,
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    killed = 0
    for line in done.stdout.splitlines():
        spot, status, names = line.split("\t")
        assert int(status) in (0, -9)
        killed += status == "-9"
        drive = Drive(store, spot.split()[0])
        await check_after_crash(drive, names.split(",") if names else [])
        await resume(drive)
    assert killed >= 25

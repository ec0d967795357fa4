"""The SQLite file: how it is named, made, shared by processes, filled up and cleaned."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs
from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.errors import ConfigError, FenceLost, Leased, StaleVersion, StoreFailed
from perdure.log.entries import AnyEntry
from perdure.log.header import decode_header
from perdure.log.reading import read_lines
from perdure.log.store import Message
from perdure.stores import open_store
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite_schema import VERSION
from perdure.testing import FakeClock
from perdure.testing.store_kit import chain, header

ROOT = Path(__file__).parents[2]


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteStore]:
    made = SqliteStore(tmp_path / "s.db")
    yield made
    await made.close()


def program(text: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> list[bytes]:
    out, _ = process.communicate()
    assert process.returncode == 0
    return out.split()


# --- names ---------------------------------------------------------------------------------


async def test_urls_are_relative_with_three_slashes_and_absolute_with_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in (
        ("sqlite:///runs.db", tmp_path / "runs.db"),
        ("sqlite:///a/b%20c.db", tmp_path / "a" / "b c.db"),
        (f"sqlite:///{tmp_path}/x.db", tmp_path / "x.db"),
    ):
        opened = open_store(url)
        assert isinstance(opened, SqliteStore)
        assert opened.path == path
        await opened.create(header())
        assert path.exists()
        await opened.close()


@pytest.mark.parametrize(
    "url",
    ["sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://h/x", "sqlite:///x?y=1"],
)
def test_urls_without_a_file_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="memory:"):
        open_store(url)


def test_sqlite3_loads_with_the_first_such_store() -> None:
    text = (
        "import sys, perdure, perdure.stores; perdure.stores.open_store('memory:');"
        "print('sqlite3' in sys.modules);"
        "perdure.stores.open_store('sqlite:///x'); print('sqlite3' in sys.modules)"
    )
    assert finish(program(text)) == [b"False", b"True"]


async def test_opening_and_closing_makes_no_file(tmp_path: Path) -> None:
    opened = SqliteStore(tmp_path / "s.db")
    await opened.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_closed_store_says_so(store: SqliteStore) -> None:
    await store.create(header())
    await store.close()
    for attempt in (store.read("s1"), store.create(header("s2"))):
        with pytest.raises(ConfigError, match="closed"):
            await attempt


# --- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        "perdure_sessions (x)",
        "perdure_schema (x)",
        "perdure_schema (owner, version)",
        "perdure_mine (x)",
    ],
)
async def test_tables_of_others_with_such_names_are_refused(store: SqliteStore, table: str) -> None:
    connection = sqlite3.connect(store.path)
    connection.execute(f"CREATE TABLE {table}")
    connection.close()
    for attempt in (store.create(header()), store.list()):
        with pytest.raises(ConfigError, match="not perdure's"):
            await attempt


async def test_tables_of_others_with_other_names_are_left_alone(store: SqliteStore) -> None:
    connection = sqlite3.connect(store.path)
    connection.execute("CREATE TABLE accounts (x)")
    connection.execute("INSERT INTO accounts VALUES (7)")
    connection.commit()
    await store.create(header())
    assert connection.execute("SELECT x FROM accounts").fetchall() == [(7,)]
    connection.close()


async def test_a_newer_schema_is_refused(store: SqliteStore) -> None:
    await store.create(header())
    await store.close()
    connection = sqlite3.connect(store.path)
    connection.execute("UPDATE perdure_schema SET version = ?", (VERSION + 1,))
    connection.commit()
    connection.close()
    again = SqliteStore(store.path)
    with pytest.raises(ConfigError, match="newer perdure"):
        await again.read("s1")
    await again.close()


async def test_a_file_that_is_no_database_is_refused(store: SqliteStore) -> None:
    store.path.write_bytes(b"no database" * 1000)
    for attempt in (store.create(header()), store.list()):
        with pytest.raises(ConfigError, match="no SQLite database"):
            await attempt


async def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    opened = SqliteStore(tmp_path / "file" / "s.db")
    with pytest.raises(StoreFailed):
        await opened.create(header())
    await opened.close()


async def test_commits_are_synchronous_and_logged_ahead(store: SqliteStore) -> None:
    def modes(connection: sqlite3.Connection) -> list[object]:
        pragmas = ("journal_mode", "synchronous", "wal_autocheckpoint")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]

    assert await store._file.writer.run(modes) == ["wal", 2, 0]


async def test_the_header_of_an_older_format_is_raised_by_the_first_append(
    store: SqliteStore,
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


async def test_text_that_no_file_can_hold_is_refused(store: SqliteStore) -> None:
    with pytest.raises(ConfigError):
        await store.create(header(), name="\ud800")


# --- leases -----------------------------------------------------------------------------------


async def test_a_lapsed_lease_may_be_taken_and_until_then_its_fence_holds(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    await store.create(header())
    first = await store.lease("s1", holder="first", seconds=10)
    await clock.advance(9)
    with pytest.raises(Leased):
        await store.lease("s1", holder="second")
    await clock.advance(2)
    await store.append("s1", 0, first.fence, chain(1))  # nobody took it
    await store.renew(first)
    with pytest.raises(Leased):
        await store.lease("s1", holder="second")
    await clock.advance(11)
    second = await store.lease("s1", holder="second")
    assert second.fence.counter == first.fence.counter + 1
    for attempt in (store.append("s1", 1, first.fence, []), store.renew(first)):
        with pytest.raises(FenceLost):
            await attempt
    await store.close()


async def test_a_clock_set_back_frees_leases_instead_of_keeping_them(tmp_path: Path) -> None:
    before, after = FakeClock(), FakeClock()
    await before.advance(86_400)
    one, two = (
        SqliteStore(tmp_path / "s.db", clock=before),
        SqliteStore(tmp_path / "s.db", clock=after),
    )
    await one.create(header())
    late = await one.lease("s1", holder="of tomorrow")
    assert (await two.lease("s1", holder="next")).fence != late.fence
    await one.close()
    await two.close()


async def test_those_that_are_driven_are_due_last(store: SqliteStore) -> None:
    for name in ("a", "b", "c"):
        await store.create(header(name))
        await store.put(name, Message(id="m"))
    await store.lease("a", holder="x")
    assert set(await store.due(0, limit=2)) == {"b", "c"}
    assert (await store.due(0))[2:] == ("a",)


# --- many processes ----------------------------------------------------------------------------

OPENING = """
import asyncio, sys
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_kit import chain, header

async def main(directory, me):
    sys.stdin.read(1)
    for number in range(20):
        store = SqliteStore(f"{directory}/{number}.db")
        await store.create(header(f"s{me}"))
        lease = await store.lease(f"s{me}", holder=me)
        for version, entry in enumerate(chain(10)):
            await store.append(f"s{me}", version, lease.fence, [entry])
        await store.close()
    print("done")

asyncio.run(main(*sys.argv[1:]))
"""


async def test_eight_processes_opening_twenty_fresh_files_at_once_lose_nothing(
    tmp_path: Path,
) -> None:
    """1,600 entries, and nobody finds a table there already or the database locked."""
    processes = [program(OPENING, tmp_path, number) for number in range(8)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.flush()
    assert [finish(process) for process in processes] == [[b"done"]] * 8
    for number in range(20):
        opened = SqliteStore(tmp_path / f"{number}.db")
        sessions = (await opened.list()).sessions
        assert sorted((one.id, one.version) for one in sessions) == [
            (f"s{n}", 10) for n in range(8)
        ]
        await opened.close()


RACING = """
import asyncio, sys
from perdure.errors import Leased, StaleVersion
from perdure.log.store import Message
from perdure.stores.sqlite import SqliteStore

async def main(path, me):
    store = SqliteStore(path)
    sys.stdin.read(1)
    for number in range(20):
        await store.put("s1", Message(id=f"{me}-{number}"))
    try:
        await store.lease("s1", holder=me)
        print("driver")
    except Leased as error:
        print(error.holder)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_number_messages_without_a_gap_and_one_drives(store: SqliteStore) -> None:
    await store.create(header())
    processes = [program(RACING, store.path, number) for number in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.flush()
    said = [finish(process) for process in processes]
    winner = said.index([b"driver"])
    assert said == [[b"driver"] if n == winner else [str(winner).encode()] for n in range(4)]
    messages = await store.unconsumed("s1")
    assert [one.number for one in messages] == list(range(1, 81))
    for number in range(4):  # and each process's own stand in their order
        mine = [one.id for one in messages if one.id.startswith(f"{number}-")]
        assert mine == [f"{number}-{turn}" for turn in range(20)]


BUSY = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("CREATE TABLE IF NOT EXISTS other (x)")
print("busy", flush=True)
while not sys.stdin.closed:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO other VALUES (1)")
    time.sleep(0.002)
    connection.execute("COMMIT")
"""


async def test_a_busy_writer_in_another_process_does_not_cost_a_lease(store: SqliteStore) -> None:
    await store.create(header())
    lease = await store.lease("s1", holder="x")
    process = program(BUSY, store.path)
    assert process.stdout is not None
    assert process.stdout.readline() == b"busy\n"
    try:
        for number, entry in enumerate(chain(4)):
            await store.renew(lease)
            await store.append("s1", number, lease.fence, [entry])
    finally:
        process.kill()
        process.communicate()
    assert (await store.read("s1")).version == 4


SHARING = """
import asyncio, sys
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_kit import chain, header

async def main(path, me):
    store = SqliteStore(path)
    await store.create(header(me))
    done = 0

    async def write(session):
        nonlocal done
        await store.create(header(session))
        own = await store.lease(session, holder=me)
        for number in range(10_000):
            await store.append(session, number, own.fence, chain(1, first=number))
            done += 1
            if done % 100 == 0:
                print(me, flush=True)

    await asyncio.gather(*(write(f"{me}.{n}") for n in range(4)))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_always_write_take_turns(store: SqliteStore) -> None:
    await store.create(header())
    reading, writing = os.pipe()
    processes = [
        subprocess.Popen(  # noqa: ASYNC220 - it starts a program and waits for nothing
            [sys.executable, "-c", SHARING, store.path, str(me)], stdout=writing
        )
        for me in range(2)
    ]
    os.close(writing)
    try:
        with os.fdopen(reading) as said:
            counts = {"0\n": 0, "1\n": 0}
            while min(counts.values()) == 0:  # both have begun
                counts[said.readline()] += 1
            counts = dict.fromkeys(counts, 0)
            for _ in range(20):
                counts[said.readline()] += 1
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert min(counts.values()) >= 4, counts


async def test_a_lock_that_another_holds_is_waited_for(store: SqliteStore) -> None:
    await store.create(header())
    lease = await store.lease("s1", holder="x")
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    task = asyncio.ensure_future(store.renew(lease))
    assert (await store.read("s1")).version == 0  # reading never waits
    await asyncio.sleep(0.05)
    assert not task.done()
    other.execute("ROLLBACK")
    await task
    other.close()


FORKED = """
import asyncio, os, sys
from perdure.errors import ConfigError
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_kit import header

store = SqliteStore(sys.argv[1])

async def refused():
    for attempt in (store.create(header("s2")), store.read("s1")):
        try:
            await attempt
        except ConfigError as error:
            assert "forked" in str(error)
    await store.close()
    own = SqliteStore(sys.argv[1])
    assert own._file is not store._file
    await own.create(header("s3"))
    await own.close()
    print("child", flush=True)

async def parent():
    await store.create(header("s1"))

asyncio.run(parent())
if not os.fork():
    asyncio.run(refused())
    os._exit(0)
os.wait()

async def after():
    print(*[one.id for one in (await store.list()).sessions])
    await store.close()

asyncio.run(after())
"""


def test_a_forked_process_needs_a_store_of_its_own(tmp_path: Path) -> None:
    assert finish(program(FORKED, tmp_path / "s.db")) == [b"child", b"s1", b"s3"]


# --- space -----------------------------------------------------------------------------------

FULL_DISK = """
import asyncio, resource, signal, sys
from perdure.errors import StoreFailed
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_kit import chain, header

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(sys.argv[1])
    leases = []
    for number in range(3):
        await store.create(header(f"s{number}"))
        leases.append(await store.lease(f"s{number}", holder="x"))
    big = chain(1, body={"ns": "x", "data": "x" * int(sys.argv[2])})
    small = chain(2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    outcomes = await asyncio.gather(
        store.append("s0", 0, leases[0].fence, small),
        store.append("s1", 0, leases[1].fence, big),
        store.append("s2", 0, leases[2].fence, small),
        return_exceptions=True,
    )
    print(*(type(outcome).__name__ for outcome in outcomes))
    print((await store.append("s0", 0, leases[0].fence, small)).held)
    print((await store.append("s2", 0, leases[2].fence, small)).held)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print((await store.append("s1", 0, leases[1].fence, big)).version)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("size", "outcomes"),
    [
        # It is noticed while the member writes: the group is run one by one.
        (8_000_000, [b"Appended", b"StoreFailed", b"Appended", b"2", b"2", b"1"]),
        # It is noticed by the commit: nobody knows, and the same again settles it.
        (2_000_000, [b"StoreFailed", b"StoreFailed", b"StoreFailed", b"0", b"0", b"1"]),
    ],
)
async def test_a_full_disk_fails_what_does_not_fit_and_nothing_else(
    store: SqliteStore, size: int, outcomes: list[bytes]
) -> None:
    assert finish(program(FULL_DISK, store.path, size)) == outcomes
    for session, version in (("s0", 2), ("s1", 1), ("s2", 2)):
        stored = await store.read(session)
        assert stored.version == version
        assert read_lines(stored.header, stored.lines).faults == ()


async def test_the_log_ahead_is_folded_in_while_writers_go_on(store: SqliteStore) -> None:
    await store.create(header())
    lease = await store.lease("s1", holder="x")
    body: dict[str, object] = {"ns": "x", "data": "x" * 50_000}
    for start in range(0, 2_000, 50):
        await store.append("s1", start, lease.fence, flat(start, 50, body))
    wal = store.path.with_name("s.db-wal").stat().st_size
    assert wal < 50_000_000  # of a hundred that were written
    await store.close()
    assert not store.path.with_name("s.db-wal").exists()


def flat(start: int, count: int, body: dict[str, object]) -> list[AnyEntry]:
    """Entries that are all roots."""
    return [chain(1, first=number, body=body)[0] for number in range(start, start + count)]


async def test_bytes_grow_linearly(tmp_path: Path) -> None:
    sizes: list[float] = []
    for turns in (10, 50, 200):
        store = SqliteStore(tmp_path / f"{turns}.db")
        await store.create(header())
        lease = await store.lease("s1", holder="x")
        for turn in range(turns):
            batch = flat(turn * 4, 4, {"ns": "x", "data": "x" * 2000})
            await store.append("s1", turn * 4, lease.fence, batch)
        await store.close()
        sizes.append(store.path.stat().st_size)
    ten, fifty, many = sizes
    assert (many - fifty) / 150 == pytest.approx((fifty - ten) / 40, rel=0.1)


async def test_what_is_erased_is_in_no_file_any_more(store: SqliteStore) -> None:
    secret = b"4111-1111-1111-1111"
    body = {"ns": "x", "data": secret.decode()}
    await store.create(header(), batch=chain(1, body=body))
    await store.put("s1", Message(id="m", body=b'"' + secret + b'"'))
    lease = await store.lease("s1", holder="x")
    (first,) = chain(1, body=body)
    taking = chain(1, under=first.id, first=1, body={"ns": "x", "perdure:message": "m"})
    await store.append("s1", 1, lease.fence, taking, consumed=["m"])
    blob = await store.write_blob("s1", secret * 400)
    assert present(store.path, secret)
    await store.erase("s1", lease.fence, [first.id, taking[0].id])
    await store.erase_blob("s1", blob)
    await store.close()
    assert not present(store.path, secret)
    opened = SqliteStore(store.path)
    stored = await opened.read("s1")
    assert read_lines(stored.header, stored.lines).faults == ()
    await opened.close()


def present(path: Path, secret: bytes) -> bool:
    return any(secret in one.read_bytes() for one in path.parent.glob(path.name + "*"))


async def test_a_stale_version_names_what_is_there(store: SqliteStore) -> None:
    await store.create(header(), batch=chain(3))
    lease = await store.lease("s1", holder="x")
    with pytest.raises(StaleVersion) as caught:
        await store.append("s1", 1, lease.fence, chain(1, first=9))
    assert (caught.value.expected, caught.value.actual) == (1, 3)


def test_no_other_test_left_a_file_here() -> None:
    assert not list(ROOT.glob("*.db*"))
    assert os.getcwd() == str(ROOT)  # noqa: PTH109

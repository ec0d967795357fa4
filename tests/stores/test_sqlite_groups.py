"""Group commit: who shares a transaction, who learns what, and when (LOG 1.6)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, Awaitable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.errors import FenceLost, StaleVersion, StopRequested, StoreFailed
from perdure.log.entries import AnyEntry
from perdure.log.store import Appended, Fence, Lease, Message
from perdure.stores.points import Point
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_kit import chain, header
from tests.stores.faults import Gate


class Writers:
    """Sessions of one file, each with its driver."""

    def __init__(self, path: Path, count: int) -> None:
        self.gate = Gate()
        self.store = SqliteStore(path, at=self.gate)
        self.count = count
        self.leases: list[Lease] = []

    async def begin(self) -> None:
        for number in range(self.count):
            await self.store.create(header(f"s{number}"))
            self.leases.append(await self.store.lease(f"s{number}", holder="test"))

    def append(
        self, number: int, batch: Sequence[AnyEntry] | None = None, *, version: int = 0
    ) -> Awaitable[Appended]:
        return self.store.append(
            f"s{number}",
            version,
            self.leases[number].fence,
            chain(1, first=number) if batch is None else batch,
        )

    async def together(self, *attempts: Awaitable[object]) -> list[object]:
        """Let attempts be one group, whatever the machine does."""
        self.gate.hold("begin")
        tasks = [asyncio.ensure_future(attempt) for attempt in attempts]
        await asyncio.sleep(0)  # each is in the queue now
        self.gate.release()
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def versions(self) -> list[int]:
        return [(await self.store.read(f"s{number}")).version for number in range(self.count)]


@pytest_asyncio.fixture
async def writers(tmp_path: Path) -> AsyncGenerator[Writers]:
    made = Writers(tmp_path / "s.db", 8)
    await made.begin()
    yield made
    made.gate.release()
    await made.store.close()


def full() -> sqlite3.OperationalError:
    return sqlite3.OperationalError("database or disk is full")


async def test_sessions_share_a_commit(writers: Writers) -> None:
    before = writers.gate.counts["commit"]
    await writers.together(*(writers.append(number) for number in range(8)))
    assert writers.gate.counts["commit"] == before + 1
    assert await writers.versions() == [1] * 8


async def test_a_loop_that_comes_round_no_more_keeps_nobody_waiting(writers: Writers) -> None:
    other = asyncio.new_event_loop()

    def ask_and_stop() -> asyncio.Task[Appended]:
        asking = other.create_task(_result(writers.append(0)))
        other.call_soon(other.stop)
        other.run_forever()
        return asking

    asking = await asyncio.to_thread(ask_and_stop)
    await writers.append(1)
    assert await writers.versions() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert (await asyncio.to_thread(other.run_until_complete, asking)).version == 1
    other.close()


async def _result(attempt: Awaitable[Appended]) -> Appended:
    return await attempt


async def test_a_refusal_leaves_its_group_as_it_is(writers: Writers) -> None:
    before = writers.gate.counts["begin"]
    fence = Fence(1, "of another")
    outcomes = await writers.together(
        writers.append(0),
        writers.append(1, version=1),
        writers.append(2),
        writers.store.append("s3", 0, fence, chain(1)),
        writers.append(4),
    )
    assert [type(outcome) for outcome in outcomes] == [
        Appended,
        StaleVersion,
        Appended,
        FenceLost,
        Appended,
    ]
    assert writers.gate.counts["begin"] == before + 1
    assert await writers.versions() == [1, 0, 1, 0, 1, 0, 0, 0]


async def test_two_appends_of_one_session_in_one_group_are_told_apart(writers: Writers) -> None:
    one, two = chain(1, first=1), chain(1, first=2)
    outcomes = await writers.together(writers.append(0, one), writers.append(0, two))
    assert sorted(str(type(outcome).__name__) for outcome in outcomes) == [
        "Appended",
        "StaleVersion",
    ]


@pytest.mark.parametrize("point", ["checked", "written"])
@pytest.mark.parametrize("member", [1, 3, 6])
async def test_a_full_disk_in_the_middle_of_a_group_fails_one_member_alone(
    writers: Writers, point: Point, member: int
) -> None:
    # The first time for the group, the second for the member by itself: the disk stays full for it.
    writers.gate.fail(point, full, nth=member)
    writers.gate.fail(point, full, nth=member + member)
    outcomes = await writers.together(*(writers.append(number) for number in range(6)))
    failed = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, StoreFailed)]
    assert failed == [member - 1]
    expected = [int(place != member - 1) for place in range(6)]
    assert await writers.versions() == [*expected, 0, 0]


async def test_a_full_disk_that_passes_fails_nobody(writers: Writers) -> None:
    writers.gate.fail("written", full, nth=3)
    outcomes = await writers.together(*(writers.append(number) for number in range(6)))
    assert outcomes == [Appended(1)] * 6
    assert await writers.versions() == [1] * 6 + [0, 0]


async def test_a_fault_of_ours_in_one_member_fails_that_member(writers: Writers) -> None:
    async def faulty() -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE perdure_sessions SET status = 'half done'")
            raise ZeroDivisionError

        await writers.store._file.writer.run(work)

    outcomes = await writers.together(writers.append(0), faulty(), writers.append(2))
    assert [type(outcome) for outcome in outcomes] == [Appended, ZeroDivisionError, Appended]
    assert {one.summary.status for one in (await writers.store.list()).sessions} == {""}


@pytest.mark.parametrize("point", ["commit", "committed"])
async def test_a_commit_error_makes_every_member_unknown(writers: Writers, point: Point) -> None:
    """Whether it happened or not, the refused among them, who were refused by what may not be."""
    writers.gate.fail(point, full)
    attempts = [writers.append(0), writers.append(1), writers.append(1, chain(1, first=77))]
    outcomes = await writers.together(*attempts)
    assert [type(outcome) for outcome in outcomes] == [StoreFailed] * 3
    happened = point == "committed"
    assert (await writers.versions())[:2] == [int(happened)] * 2
    # LOG 1.3: the same bytes settle it.
    assert await writers.append(0) == Appended(1, int(happened))
    assert await writers.append(1) == Appended(1, int(happened))
    with pytest.raises(StaleVersion):
        await writers.append(1, chain(1, first=77))


async def test_an_unknown_dispatch_is_settled_although_a_stop_came(writers: Writers) -> None:
    """It is held, not refused: the driver has to learn that it may have happened."""
    dispatch = chain(1, type="dispatch", body={"call_id": "c", "target": "t"})
    writers.gate.fail("committed", full)
    with pytest.raises(StoreFailed):
        await writers.append(0, dispatch)
    await writers.store.put("s0", Message(id="stop"), stop=True)
    assert await writers.append(0, dispatch) == Appended(1, 1)
    with pytest.raises(StopRequested):
        await writers.append(
            0, chain(1, under=dispatch[0].id, type="dispatch", body={"n": 1}), version=1
        )


async def test_a_stop_and_a_dispatch_in_one_group_stand_in_their_order(writers: Writers) -> None:
    dispatch = chain(1, type="dispatch", body={"call_id": "c", "target": "t"})

    def stop(number: int) -> Awaitable[object]:
        return writers.store.put(f"s{number}", Message(id="stop"), stop=True)

    outcomes = await writers.together(
        writers.append(0, dispatch), stop(0), stop(1), writers.append(1, dispatch)
    )
    assert isinstance(outcomes[0], Appended)
    assert isinstance(outcomes[3], StopRequested)


async def test_nobody_learns_an_outcome_before_the_commit_returned(writers: Writers) -> None:
    writers.gate.hold("commit")
    tasks = [asyncio.ensure_future(writers.append(0)), asyncio.ensure_future(writers.append(0))]
    await asyncio.to_thread(writers.gate.wait)
    await asyncio.sleep(0.02)
    assert not any(task.done() for task in tasks)
    assert (await writers.store.read("s0")).version == 0  # and no reader sees it
    writers.gate.release()
    await asyncio.gather(*tasks)


async def test_renewals_go_ahead_of_queued_appends(writers: Writers) -> None:
    order: list[str] = []

    async def noting(name: str, attempt: Awaitable[object]) -> None:
        await attempt
        order.append(name)

    await writers.together(
        *(noting(f"append {n}", writers.append(n)) for n in range(3)),
        noting("renew", writers.store.renew(writers.leases[0])),
    )
    assert order[0] == "renew"


async def test_a_caller_cancelled_before_the_writer_came_leaves_nothing(writers: Writers) -> None:
    writers.gate.hold("begin")
    task = asyncio.ensure_future(writers.append(0))
    other = asyncio.ensure_future(writers.append(1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    writers.gate.release()
    await other
    assert (await writers.versions())[:2] == [0, 1]


async def test_a_caller_cancelled_during_the_commit_has_written(writers: Writers) -> None:
    writers.gate.hold("commit")
    task = asyncio.ensure_future(writers.append(0))
    await asyncio.to_thread(writers.gate.wait)
    task.cancel()
    await asyncio.wait([task])
    writers.gate.release()
    assert await writers.append(0) == Appended(1, 1)


def test_the_writer_outlives_event_loops(tmp_path: Path) -> None:
    gate = Gate()
    store = SqliteStore(tmp_path / "s.db", at=gate)

    async def abandon() -> None:
        await store.create(header())
        gate.hold("commit")
        abandoned = asyncio.ensure_future(store.create(header("s2")))
        await asyncio.to_thread(gate.wait)
        assert not abandoned.done()

    asyncio.run(abandon())
    gate.release()  # its loop is closed now

    async def after() -> int:
        assert (await store.create(header("s2"))).held == 0
        return len((await store.list()).sessions)

    assert asyncio.run(after()) == 2
    asyncio.run(store.close())


def test_many_loops_on_many_threads_share_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    failures: list[BaseException] = []

    async def drive(name: str) -> None:
        await store.create(header(name))
        lease = await store.lease(name, holder=name)
        entries = chain(20)
        for number, entry in enumerate(entries):
            await store.append(name, number, lease.fence, [entry])

    def thread(name: str) -> None:
        try:
            asyncio.run(drive(name))
        except BaseException as error:  # noqa: BLE001 - it is asserted
            failures.append(error)

    threads = [threading.Thread(target=thread, args=(f"s{n}",)) for n in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    async def versions() -> list[int]:
        return [one.version for one in (await store.list()).sessions]

    assert failures == []
    assert asyncio.run(versions()) == [20] * 6
    named = [t.name for t in threading.enumerate() if t.name == f"perdure-sqlite {path.name}"]
    asyncio.run(store.close())
    assert len(named) == 1


async def test_stores_of_one_file_share_a_writer_until_the_last_is_closed(tmp_path: Path) -> None:
    one, two = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "." / "s.db")
    assert one._file is two._file
    await one.create(header())
    await one.close()
    await one.close()
    assert (await two.read("s1")).version == 0
    await two.close()

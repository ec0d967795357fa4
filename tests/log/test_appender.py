"""What the appender tells of groups whose append was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure.clock import RandomIds, SystemClock
from perdure.errors import StoreFailed
from perdure.log.appender import Appender
from perdure.log.entries import AnyEntry
from perdure.log.header import new_header
from perdure.log.session import Session
from perdure.log.store import Appended, Fence, Summary
from perdure.log.writing import Draft


class Stuck:
    """A log that answers to nothing while it is told to wait."""

    def __init__(self) -> None:
        self.waits = True
        self.asked: list[Sequence[AnyEntry]] = []

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        self.asked.append(batch)
        if self.waits:
            await asyncio.Event().wait()
        return Appended(version + len(batch))


def appender_of(log: Stuck) -> Appender:
    session = Session(new_header("s", "2026-10-02T00:00:00Z"))
    return Appender(log, session, Fence(1, "n"), clock=SystemClock(), ids=RandomIds())


def named(name: str) -> list[Draft]:
    return [Draft("info", {"name": name})]


def test_an_append_that_ended_with_its_event_loop_is_told_by_none_that_follows() -> None:
    log = Stuck()
    appender = appender_of(log)

    async def begins() -> None:
        _ = appender.add(named("first"))
        appender.hurry()
        await asyncio.sleep(0)

    asyncio.run(begins())
    log.waits = False

    async def follows() -> None:
        with pytest.raises(StoreFailed):
            await appender.add(named("second"))

    asyncio.run(follows())
    assert len(log.asked) == 1
    assert appender.session.version == 0


async def test_whoever_waits_for_an_append_that_is_cut_off_hears_of_it() -> None:
    appender = appender_of(Stuck())
    before = asyncio.all_tasks()

    async def waits() -> None:
        await appender.add(named("first"))

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0.01)
    for task in asyncio.all_tasks() - before - {waiting}:
        task.cancel()
    with pytest.raises(StoreFailed):
        await waiting


async def test_groups_of_one_round_share_an_append() -> None:
    log = Stuck()
    log.waits = False
    appender = appender_of(log)
    async with asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(_added(appender, name))
    assert [len(batch) for batch in log.asked] == [3]
    assert appender.settled


async def _added(appender: Appender, name: str) -> None:
    await appender.add(named(name))

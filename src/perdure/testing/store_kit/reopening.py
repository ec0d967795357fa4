"""A store that is opened again, or more than once."""

# ruff: noqa: S101 - it asserts, and has no pytest
from __future__ import annotations

import asyncio

from perdure.errors import Leased, NameTaken, StaleVersion
from perdure.log.entries import AnyEntry
from perdure.log.store import Filters, Message, Store, Summary
from perdure.testing.store_kit.subject import Subject, refused, reopens
from perdure.testing.store_kit.writing import begun, chain, header, lines_of, written


@reopens
async def what_was_written_is_there(subject: Subject) -> None:
    """Entries, names, messages, blobs and summaries outlive the store object."""
    async with subject.opened() as store:
        lease, batch = await begun(store, entries=2)
        await store.append(
            "s1", 2, lease.fence, chain(1, under=batch[1].id, first=5), summary=Summary(status="x")
        )
        await store.put("s1", Message(id="m"))
        blob = await store.write_blob("s1", b"data")
        await store.create(header("s2"), name="named")
        before = await store.read("s1")
        await store.release(lease)
    async with subject.opened() as store:
        assert await store.read("s1") == before
        assert [one.id for one in await store.unconsumed("s1")] == ["m"]
        assert await store.read_blob("s1", blob) == b"data"
        with refused(NameTaken):
            await store.create(header("s3"), name="named")
        assert (await store.list(Filters(statuses=frozenset({"x"})))).sessions[0].id == "s1"


@reopens
async def a_held_append_is_held_by_the_next(subject: Subject) -> None:
    """LOG 1.3 across a restart: the same bytes are recognised."""
    more: list[AnyEntry] = []
    async with subject.opened() as store:
        lease, batch = await begun(store, entries=1)
        more = chain(2, under=batch[0].id, first=5)
        await store.append("s1", 1, lease.fence, more)
        await store.release(lease)
    async with subject.opened() as store:
        lease = await store.lease("s1", holder="next")
        assert (await store.append("s1", 1, lease.fence, more)).held == 2


@reopens
async def two_objects_are_one_store(subject: Subject) -> None:
    """What one object of a store writes, another reads and is bound by."""
    async with subject.opened() as one, subject.opened() as two:
        lease, batch = await begun(one, entries=1)
        assert await lines_of(two) == written(batch)
        with refused(Leased):
            await two.lease("s1", holder="two")
        more = chain(1, under=batch[0].id, first=5)
        await two.append("s1", 1, lease.fence, more)  # who knows the fence is the driver
        assert await lines_of(one) == written([*batch, *more])
        with refused(StaleVersion):
            await one.append("s1", 1, lease.fence, chain(1, under=batch[0].id, first=9))
        await two.put("s1", Message(id="m"))
        assert [m.id for m in await one.unconsumed("s1")] == ["m"]


@reopens
async def racers_through_several_objects(subject: Subject) -> None:
    """Of many appends through three objects, one wins."""
    async with subject.opened() as one, subject.opened() as two, subject.opened() as three:
        lease, batch = await begun(one, entries=1)

        async def attempt(store: Store, number: int) -> bool:
            try:
                await store.append(
                    "s1", 1, lease.fence, chain(1, under=batch[0].id, first=100 + number)
                )
            except StaleVersion:
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(attempt((one, two, three)[number % 3], number))
                for number in range(48)
            ]
        assert sum(task.result() for task in tasks) == 1
        for store in (one, two, three):
            assert len(await lines_of(store)) == 2

"""Appends: versions, entries, and what is held."""

# ruff: noqa: S101 - it asserts, and has no pytest
from __future__ import annotations

import asyncio

from perdure.errors import EntryRefused, FenceLost, StaleVersion
from perdure.log.entries import AnyEntry
from perdure.log.reading import read_lines
from perdure.log.store import Fence, Store, Summary
from perdure.testing.store_kit.subject import checks, refused
from perdure.testing.store_kit.writing import START, begun, chain, lines_of, written


@checks
async def append_extends(store: Store) -> None:
    """Entries stand in the order they were given, and the version counts them."""
    lease, batch = await begun(store, entries=1)
    more = chain(3, under=batch[0].id, first=5)
    appended = await store.append("s1", 1, lease.fence, more)
    assert (appended.version, appended.held) == (4, 0)
    assert await lines_of(store) == written([*batch, *more])


@checks
async def a_stale_version_is_refused(store: Store) -> None:
    """LOG 1.1: branch, dispatch, rewind, and a second dispatch built on the old version."""
    lease, batch = await begun(store, entries=2)
    root = batch[0].id
    branch = chain(1, under=root, first=10, type="dispatch", body={"call_id": "c", "target": "t"})
    await store.append("s1", 2, lease.fence, branch)
    mark = chain(1, under=root, first=11, type="label", body={"target": root, "label": "leaf"})
    await store.append("s1", 3, lease.fence, mark)
    second = chain(1, under=root, first=12, type="dispatch", body={"call_id": "c", "target": "t"})
    for version in (0, 1, 2, 3, 5, 99):
        with refused(StaleVersion):
            await store.append("s1", version, lease.fence, second)
    assert await lines_of(store) == written([*batch, *branch, *mark])


@checks
async def the_same_append_again_is_held(store: Store) -> None:
    """LOG 1.3: an append that errored but committed, resubmitted."""
    lease, batch = await begun(store, entries=1)
    more = chain(3, under=batch[0].id, first=5)
    await store.append("s1", 1, lease.fence, more)
    again = await store.append("s1", 1, lease.fence, more)
    assert (again.version, again.held) == (4, 3)
    assert await lines_of(store) == written([*batch, *more])


@checks
async def what_is_missing_of_a_held_append_is_written(store: Store) -> None:
    """LOG 1.3: the first part of a batch committed, and the whole is submitted again."""
    lease, batch = await begun(store, entries=1)
    more = chain(4, under=batch[0].id, first=5)
    await store.append("s1", 1, lease.fence, more[:2])
    again = await store.append("s1", 1, lease.fence, more)
    assert (again.version, again.held) == (5, 2)
    assert await lines_of(store) == written([*batch, *more])


@checks
async def a_held_append_that_others_followed_is_stale(store: Store) -> None:
    """Held is what is the tail; what others have built on is not."""
    lease, batch = await begun(store, entries=1)
    more = chain(2, under=batch[0].id, first=5)
    await store.append("s1", 1, lease.fence, more)
    await store.append("s1", 3, lease.fence, chain(1, under=more[-1].id, first=20))
    with refused(StaleVersion):
        await store.append("s1", 1, lease.fence, more)


@checks
async def an_entry_needs_its_parent_and_an_id_of_its_own(store: Store) -> None:
    """What cannot stand in the tree is refused whole."""
    lease, batch = await begun(store, entries=2)
    orphan = chain(1, under="sha256:no", first=5)
    next_one = chain(1, under=batch[1].id, first=6)
    for wrong in (orphan, [batch[0]], [*next_one, *orphan], [*next_one, batch[0]]):
        with refused(EntryRefused):
            await store.append("s1", 2, lease.fence, wrong)
    assert await lines_of(store) == written(batch)


@checks
async def an_empty_append_checks_version_and_fence(store: Store) -> None:
    """A driver may ask whether it still drives."""
    lease, _ = await begun(store, entries=2)
    assert (await store.append("s1", 2, lease.fence, [])).version == 2
    with refused(StaleVersion):
        await store.append("s1", 1, lease.fence, [])
    with refused(FenceLost):
        await store.append("s1", 2, Fence(lease.fence.counter, "another"), [])


@checks
async def of_racing_appends_one_wins(store: Store) -> None:
    """Sixty-four appends on one version: one stands, the others are told."""
    lease, batch = await begun(store, entries=1)

    async def attempt(number: int) -> bool:
        try:
            await store.append(
                "s1", 1, lease.fence, chain(1, under=batch[0].id, first=100 + number)
            )
        except StaleVersion:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(number)) for number in range(64)]
    assert sum(task.result() for task in tasks) == 1
    assert len(await lines_of(store)) == 2


@checks
async def every_byte_comes_back(store: Store) -> None:
    """NUL, emoji, long numbers, 5 MB, unknown types and members."""
    lease, _ = await begun(store)
    values: list[object] = [
        "W\x00s \\u0000 \U0001f600 \u2028 <b>&</b>",
        "123456789012345678901234567890",
        {"deep": [{"z": 1, "a": None}], "n": 1e21},
        "x" * 5_000_000,
    ]
    entries: list[AnyEntry] = []
    for number, value in enumerate(values):
        parent = entries[-1].id if entries else None
        entries += chain(
            1, under=parent, first=number, type="acme:thing", body={"acme:value": value}
        )
    await store.append("s1", 0, lease.fence, entries)
    stored = await store.read("s1")
    assert list(stored.lines) == written(entries)
    assert read_lines(stored.header, stored.lines).faults == ()


@checks
async def the_summary_is_what_was_last_given(store: Store) -> None:
    """An append without a summary leaves the one that is there."""
    lease, batch = await begun(store, entries=1)
    summary = Summary(status="running", due=START, leaf=batch[0].id)
    await store.append("s1", 1, lease.fence, [], summary=summary)
    await store.append("s1", 1, lease.fence, chain(1, under=batch[0].id, first=3))
    found = (await store.list()).sessions[0].summary
    assert (found.status, found.due, found.leaf) == ("running", START, batch[0].id)


@checks
async def a_cancelled_append_is_whole_or_absent(store: Store) -> None:
    """Whoever was cancelled may ask again, and gets what stands."""
    lease, batch = await begun(store, entries=1)
    more = chain(3, under=batch[0].id, first=5)
    task = asyncio.ensure_future(store.append("s1", 1, lease.fence, more))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    appended = await store.append("s1", 1, lease.fence, more)
    assert appended.version == 4
    assert await lines_of(store) == written([*batch, *more])

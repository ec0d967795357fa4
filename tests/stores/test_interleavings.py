"""Interleavings that would fire an effect twice or lose a result, on every store that lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.errors import FenceLost, Leased, MessageTaken, StaleVersion, StopRequested
from perdure.log.entries import MESSAGE, AnyEntry
from perdure.log.header import Origin
from perdure.log.store import Fence, Lease, Message, Store
from perdure.stores.jsonl import JsonlStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.store_kit import chain, header

Opener = Callable[[], Store]


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens one and the same store again and again."""
    if request.param == "jsonl":
        return lambda: JsonlStore(tmp_path / "sessions")
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "s.db")
    server: str = request.getfixturevalue("postgres_server")
    schema: str = request.getfixturevalue("postgres_schema")
    from perdure.stores.postgres import PostgresStore

    return lambda: PostgresStore(server, schema=schema)


@pytest_asyncio.fixture
async def store(opener: Opener) -> AsyncGenerator[Store]:
    made = opener()
    yield made
    await made.close()


async def driven(store: Store) -> Lease:
    await store.create(header())
    return await store.lease("s1", holder="first", seconds=0.001)


async def next_lease(store: Store, lease: Lease) -> Lease:
    """The lease after one that lapsed, or whose process has gone."""
    if lease.seconds is None:
        await store.release(lease)
    while True:
        try:
            return await store.lease("s1", holder="second")
        except Leased:
            await asyncio.sleep(0.001)


def dispatch(number: int = 0, under: str | None = None) -> list[AnyEntry]:
    body = {"call_id": f"c{number}", "target": "t"}
    return chain(1, under=under, first=number, type="dispatch", body=body)


def taking(message: str, number: int, under: str | None = None) -> list[AnyEntry]:
    return chain(1, under=under, first=number, body={"ns": "x", MESSAGE: message})


# --- fences ----------------------------------------------------------------------------------


async def test_the_loser_appends_to_nothing_of_the_tree_and_the_winner_to_all(
    store: Store,
) -> None:
    """LOG 2.1, 2.3: the root, a child there was, and one that it would make."""
    lost = await driven(store)
    child = header("child", root="s1", origin=Origin("s1"), spawned_by="c")
    await store.create(child, fence=lost.fence)
    won = await next_lease(store, lost)
    late = header("late", root="s1", origin=Origin("s1"), spawned_by="d")
    for attempt in (
        store.append("s1", 0, lost.fence, dispatch()),
        store.append("child", 0, lost.fence, dispatch()),
        store.create(late, fence=lost.fence),
        store.renew(lost),
    ):
        with pytest.raises(FenceLost):
            await attempt
    await store.append("s1", 0, won.fence, dispatch())
    await store.append("child", 0, won.fence, dispatch())


async def test_a_fence_of_the_same_counter_is_another(store: Store) -> None:
    """LOG 1.2: a standby that was promoted hands out the counter again."""
    lease = await driven(store)
    twin = Fence(lease.fence.counter, lease.fence.nonce[::-1])
    with pytest.raises(FenceLost):
        await store.append("s1", 0, twin, dispatch())
    with pytest.raises(FenceLost):
        await store.append("s1", 0, Fence(lease.fence.counter, ""), dispatch())


async def test_no_fence_is_in_force_between_two_leases(store: Store) -> None:
    lease = await driven(store)
    await store.release(lease)
    for fence in (lease.fence, Fence(lease.fence.counter, ""), Fence(0, "")):
        with pytest.raises(FenceLost):
            await store.append("s1", 0, fence, dispatch())


async def test_of_two_drivers_one_dispatches(opener: Opener) -> None:
    """Both read the same log; the tool of the loser never runs."""
    one, two = opener(), opener()
    lost = await driven(one)
    before = await two.read("s1")
    won = await next_lease(two, lost)

    async def attempt(store: Store, lease: Lease, number: int) -> str:
        try:
            await store.append("s1", before.version, lease.fence, dispatch(number))
        except (FenceLost, StaleVersion):
            return "refused"
        return lease.holder

    outcomes = tuple(await asyncio.gather(attempt(one, lost, 1), attempt(two, won, 2)))
    assert outcomes == ("refused", "second")
    assert list((await one.read("s1")).lines) == [dispatch(2)[0].line]
    await one.close()
    await two.close()


# --- versions ----------------------------------------------------------------------------------


async def test_a_branch_a_dispatch_a_rewind_and_the_old_append_is_stale(store: Store) -> None:
    """LOG 1.1: the leaf is what it was, and the version is not."""
    lease = await driven(store)
    first = chain(2)
    await store.append("s1", 0, lease.fence, first)
    leaf = first[-1].id
    await store.append("s1", 2, lease.fence, dispatch(5, under=leaf))
    rewound = chain(1, under=leaf, first=6, type="label", body={"target": leaf, "label": "leaf"})
    await store.append("s1", 3, lease.fence, rewound)
    with pytest.raises(StaleVersion):
        await store.append("s1", 2, lease.fence, dispatch(7, under=leaf))


async def test_a_resubmission_with_other_bytes_is_not_held(store: Store) -> None:
    lease = await driven(store)
    await store.append("s1", 0, lease.fence, chain(3))
    other = [*chain(2), *chain(1, under=chain(2)[1].id, first=9)]
    with pytest.raises(StaleVersion):
        await store.append("s1", 0, lease.fence, other)


# --- the inbox ---------------------------------------------------------------------------------


async def test_messages_may_be_consumed_out_of_order(store: Store) -> None:
    """LOG 3.2: drivers read what is unconsumed, never what follows a cursor."""
    lease = await driven(store)
    for number in range(3):
        await store.put("s1", Message(id=f"m{number}"))
    await store.append("s1", 0, lease.fence, taking("m2", 1), consumed=["m2"])
    assert [one.id for one in await store.unconsumed("s1")] == ["m0", "m1"]
    assert (await store.put("s1", Message(id="m3"))).number == 4
    await store.append("s1", 1, lease.fence, taking("m0", 2), consumed=["m0"])
    assert [one.id for one in await store.unconsumed("s1")] == ["m1", "m3"]


async def test_a_message_consumed_on_one_branch_is_consumed_on_all(store: Store) -> None:
    """LOG 3.1: consumption is session-wide, after a rewind too."""
    lease = await driven(store)
    await store.put("s1", Message(id="m"))
    root = chain(1)
    await store.append("s1", 0, lease.fence, root)
    await store.append("s1", 1, lease.fence, taking("m", 2, root[0].id), consumed=["m"])
    with pytest.raises(MessageTaken):
        await store.append("s1", 2, lease.fence, taking("m", 3, root[0].id), consumed=["m"])


async def test_a_message_is_consumed_once_across_a_crash(opener: Opener) -> None:
    """Its id stays known, so that a webhook delivered again stays a duplicate."""
    store = opener()
    lease = await driven(store)
    await store.put("s1", Message(id="m"))
    entry = taking("m", 1)
    await store.append("s1", 0, lease.fence, entry, consumed=["m"])
    await store.close()
    store = opener()
    lease = await next_lease(store, lease)
    assert await store.unconsumed("s1") == ()
    assert (await store.put("s1", Message(id="m"))).duplicate
    assert await store.unconsumed("s1") == ()
    with pytest.raises(MessageTaken):
        await store.append("s1", 1, lease.fence, taking("m", 2, entry[0].id), consumed=["m"])
    await store.close()


async def test_a_put_is_seen_by_whoever_looks_for_work_afterwards(opener: Opener) -> None:
    """LOG 3.3: no wake-up is lost between the driver's last look and its release."""
    one, two = opener(), opener()
    lease = await driven(one)
    assert await one.unconsumed("s1") == ()  # the driver's last look
    await two.put("s1", Message(id="m"))
    await one.release(lease)
    assert await two.due(0) == ("s1",)
    await one.close()
    await two.close()


async def test_what_a_displaced_driver_knows_goes_to_the_inbox(store: Store) -> None:
    """LOG 3.4: the charge that took longer than the lease is known, and not by an append."""
    lost = await driven(store)
    entry = dispatch()
    await store.append("s1", 0, lost.fence, entry)
    won = await next_lease(store, lost)
    output = chain(1, under=entry[0].id, first=1, body={"ns": "x", "data": "charged"})
    with pytest.raises(FenceLost):
        await store.append("s1", 1, lost.fence, output)
    await store.put("s1", Message(id="late", body=b'{"dispatch":"..."}'))
    taken = taking("late", 2, entry[0].id)
    await store.append("s1", 1, won.fence, taken, consumed=["late"])


# --- stops ---------------------------------------------------------------------------------------


async def test_after_a_stop_no_effect_begins_until_the_stop_is_consumed(opener: Opener) -> None:
    """LOG 3.5: also not for the next driver, nor together with the stop's own consumption."""
    store = opener()
    lease = await driven(store)
    await store.put("s1", Message(id="stop"), stop=True)
    await store.put("s1", Message(id="again"), stop=True)
    await store.close()
    store = opener()
    lease = await next_lease(store, lease)

    async def refused(attempt: Awaitable[object]) -> None:
        with pytest.raises(StopRequested):
            await attempt

    await refused(store.append("s1", 0, lease.fence, dispatch()))
    one = taking("stop", 1)
    both = [*one, *dispatch(2, under=one[0].id)]
    await refused(store.append("s1", 0, lease.fence, both, consumed=["stop"]))
    await store.append("s1", 0, lease.fence, one, consumed=["stop"])
    await refused(store.append("s1", 1, lease.fence, dispatch(3)))  # the other one still waits
    two = taking("again", 4, one[0].id)
    await store.append("s1", 1, lease.fence, two, consumed=["again"])
    await store.append("s1", 2, lease.fence, dispatch(5, under=two[0].id))
    await store.close()


async def test_a_duplicate_of_a_stop_stops_nothing_again(store: Store) -> None:
    lease = await driven(store)
    await store.put("s1", Message(id="stop"), stop=True)
    one = taking("stop", 1)
    await store.append("s1", 0, lease.fence, one, consumed=["stop"])
    assert (await store.put("s1", Message(id="stop"), stop=True)).duplicate
    await store.append("s1", 1, lease.fence, dispatch(2, under=one[0].id))

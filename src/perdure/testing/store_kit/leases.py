"""Leases and their fences."""

# ruff: noqa: S101, PT017 - it asserts, and has no pytest
from __future__ import annotations

from perdure.errors import ConfigError, FenceLost, Leased
from perdure.log.header import Origin
from perdure.log.store import Fence, Store
from perdure.testing.store_kit.subject import checks, refused
from perdure.testing.store_kit.writing import begun, chain, header, lines_of


@checks
async def a_lease_keeps_others_out(store: Store) -> None:
    """The second is told who has it, the same holder too."""
    await begun(store)
    for holder in ("other", "kit"):
        try:
            await store.lease("s1", holder=holder)
        except Leased as error:
            assert error.holder == "kit"
        else:
            raise AssertionError("the store gave one lease twice")


@checks
async def a_released_lease_is_over(store: Store) -> None:
    """Its fence is in force no more, and the next one is another."""
    lease, _ = await begun(store)
    assert await store.renew(lease) == lease
    await store.release(lease)
    await store.release(lease)
    for attempt in (store.append("s1", 0, lease.fence, []), store.renew(lease)):
        with refused(FenceLost):
            await attempt
    second = await store.lease("s1", holder="other")
    assert second.fence != lease.fence
    await store.release(lease)  # not its own: nothing happens
    await store.append("s1", 0, second.fence, [])


@checks
async def a_fence_is_compared_whole(store: Store) -> None:
    """LOG 1.2: the same counter with another nonce is another fence."""
    lease, _ = await begun(store)
    with refused(FenceLost):
        await store.append("s1", 0, Fence(lease.fence.counter, "0" * 32), chain(1))
    assert await lines_of(store) == []


@checks
async def a_child_is_under_its_roots_lease(store: Store) -> None:
    """LOG 2.1: a stale driver appends to no child, makes none, and no child is leased."""
    lease, _ = await begun(store)
    child = header("child", root="s1", origin=Origin("s1"), spawned_by="c")
    for fence in (None, Fence(lease.fence.counter, "stale")):
        with refused(FenceLost):
            await store.create(child, fence=fence)
    await store.create(child, fence=lease.fence)
    await store.append("child", 0, lease.fence, chain(1))
    with refused(ConfigError):
        await store.lease("child", holder="kit")
    await store.release(lease)
    second = await store.lease("s1", holder="other")
    with refused(FenceLost):
        await store.append("child", 1, lease.fence, chain(1, first=3))
    await store.append("child", 1, second.fence, [])

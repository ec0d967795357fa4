"""Blobs, and bodies that are erased or redacted."""

# ruff: noqa: S101 - it asserts, and has no pytest
from __future__ import annotations

from perdure.errors import EntryRefused, FenceLost, NoEntry
from perdure.log.entries import ERASED
from perdure.log.reading import read_lines
from perdure.log.store import Erasure, Fence, Redaction, Store
from perdure.testing.store_kit.subject import checks, refused
from perdure.testing.store_kit.writing import begun, chain, header, lines_of


@checks
async def blobs_come_back_and_go(store: Store) -> None:
    """Bytes by their hash, once however often they are written."""
    await store.create(header())
    data = bytes(range(256)) * 40
    name = await store.write_blob("s1", data)
    assert await store.write_blob("s1", data) == name
    assert await store.read_blob("s1", name) == data
    await store.erase_blob("s1", name)
    await store.erase_blob("s1", name)
    for gone in (name, "sha256:" + "0" * 64, "../../etc/passwd"):
        with refused(NoEntry):
            await store.read_blob("s1", gone)


@checks
async def erasing_keeps_hashes(store: Store) -> None:
    """LOG 7: the body is gone, the tree still verifies. Only where the store can."""
    if not isinstance(store, Erasure):
        return
    lease, batch = await begun(store, entries=3)
    assert await store.erase("s1", lease.fence, [batch[1].id]) == 1
    assert await store.erase("s1", lease.fence, [batch[1].id]) == 0
    stored = await store.read("s1")
    assert ERASED.encode() in stored.lines[1]
    assert b'"data"' not in stored.lines[1]
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    assert [entry.id for entry in reading.session.entries] == [entry.id for entry in batch]
    with refused(NoEntry):
        await store.erase("s1", lease.fence, ["sha256:no"])
    with refused(FenceLost):
        await store.erase("s1", Fence(0, ""), [batch[0].id])


@checks
async def redacting_leaves_a_session_to_read(store: Store) -> None:
    """LOG 8: the body is gone, what is left verifies and goes on no more. Where the store can."""
    if not isinstance(store, Redaction):
        return
    lease, batch = await begun(store, entries=3)
    for entries, fence in ((["sha256:no"], lease.fence), ([batch[0].id], Fence(0, ""))):
        with refused(NoEntry, FenceLost):
            await store.redact("s1", fence, entries)
    assert await lines_of(store) == [entry.line for entry in batch]
    assert await store.redact("s1", lease.fence, [batch[1].id]) == 1
    stored = await store.read("s1")
    assert stored.header.redacted
    assert b'"data":null' in stored.lines[1]
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    assert [entry.type for entry in reading.session.entries] == [entry.type for entry in batch]
    assert stored.lines[0] == batch[0].line
    with refused(EntryRefused):
        await store.append("s1", 3, lease.fence, chain(1, under=reading.session.leaf, first=9))

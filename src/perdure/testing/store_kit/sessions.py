"""Sessions: created, read, listed and deleted."""

# ruff: noqa: S101, PT017 - it asserts, and has no pytest
from __future__ import annotations

import asyncio

from perdure.errors import EntryRefused, Leased, NameTaken, NoEntry, NoSession, SessionExists
from perdure.log.header import Origin, RunIdentity
from perdure.log.store import Fence, Filters, Message, Store, Summary
from perdure.testing.store_kit.subject import checks, refused
from perdure.testing.store_kit.writing import begun, chain, header, lines_of, written


@checks
async def create_keeps_header_and_batch(store: Store) -> None:
    """What was created is read byte for byte."""
    batch = chain(3)
    made = header(extra={"acme:x": {"b": 1, "a": [None, "\x00 \U0001f600"]}})
    assert (await store.create(made, batch=batch)).version == 3
    stored = await store.read("s1")
    assert stored.header.line == made.line
    assert (stored.version, list(stored.lines)) == (3, written(batch))


@checks
async def create_refuses_a_taken_id(store: Store) -> None:
    """Another header under the id is refused, and changes nothing."""
    await store.create(header())
    with refused(SessionExists):
        await store.create(header(cwd="/elsewhere"))
    assert (await store.read("s1")).header.cwd == ""


@checks
async def create_again_is_held(store: Store) -> None:
    """An unknown outcome is settled by the same create (LOG 1.3)."""
    batch = chain(2)
    await store.create(header(), batch=batch)
    again = await store.create(header(), batch=batch)
    assert (again.version, again.held) == (2, 2)
    assert await lines_of(store) == written(batch)


@checks
async def create_refuses_a_broken_batch(store: Store) -> None:
    """An entry without its parent leaves nothing behind."""
    with refused(EntryRefused):
        await store.create(header(), batch=chain(2)[1:])
    with refused(NoSession):
        await store.read("s1")


@checks
async def a_name_is_unique(store: Store) -> None:
    """A name belongs to one session, and its loser leaves nothing behind."""
    await store.create(header("s1"), name="order-42")
    try:
        await store.create(header("s2"), name="order-42")
    except NameTaken as error:
        assert error.session == "s1"
    else:
        raise AssertionError("the store gave one name twice")
    with refused(NoSession):
        await store.read("s2")
    assert [one.id for one in (await store.list(Filters(name="order-42"))).sessions] == ["s1"]


@checks
async def one_of_many_gets_a_name(store: Store) -> None:
    """Of many who create under one name at once, one wins."""

    async def attempt(number: int) -> str:
        try:
            await store.create(header(f"s{number}"), name="run")
        except NameTaken as error:
            return error.session
        return f"s{number}"

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(number)) for number in range(24)]
    assert len({task.result() for task in tasks}) == 1


@checks
async def what_is_missing_is_named(store: Store) -> None:
    """Every method names a session that is not there."""
    fence = Fence(1, "n")
    for attempt in (
        store.read("no"),
        store.append("no", 0, fence, []),
        store.lease("no", holder="kit"),
        store.put("no", Message(id="m")),
        store.unconsumed("no"),
        store.write_blob("no", b""),
        store.read_blob("no", "sha256:" + "0" * 64),
    ):
        with refused(NoSession):
            await attempt


@checks
async def reading_since_a_version(store: Store) -> None:
    """A follower reads what is new; a leaf gives its path alone."""
    lease, batch = await begun(store, entries=2)
    branch = chain(2, under=batch[0].id, first=10)
    await store.append("s1", 2, lease.fence, branch)
    assert list((await store.read("s1", since=2)).lines) == written(branch)
    assert (await store.read("s1", since=4)).lines == ()
    path = await store.read("s1", leaf=branch[-1].id)
    assert list(path.lines) == written([batch[0], *branch])
    assert path.version == 4
    with refused(NoEntry):
        await store.read("s1", leaf="sha256:no")


@checks
async def what_is_read_is_a_copy(store: Store) -> None:
    """A reading does not change when the session grows."""
    lease, batch = await begun(store, entries=1)
    before = await store.read("s1")
    await store.append("s1", 1, lease.fence, chain(1, under=batch[0].id, first=5))
    assert (before.version, len(before.lines)) == (1, 1)


@checks
async def listing_filters_and_pages(store: Store) -> None:
    """Lists narrow by what sessions are, oldest first, page by page."""
    run = RunIdentity(id="r", kind="chat")
    await store.create(header("a"), summary=Summary(status="done"))
    await store.create(header("b", cwd="/w"), summary=Summary(status="running"))
    await store.create(header("c", cwd="/w", run=run), summary=Summary(status="done"))
    lease = await store.lease("a", holder="kit")
    child = header("d", root="a", origin=Origin("a"), spawned_by="call", cwd="/w")
    await store.create(child, fence=lease.fence)
    table: list[tuple[Filters, list[str]]] = [
        (Filters(), ["a", "b", "c", "d"]),
        (Filters(roots_only=True), ["a", "b", "c"]),
        (Filters(statuses=frozenset({"done"})), ["a", "c"]),
        (Filters(cwd="/w", roots_only=True), ["b", "c"]),
        (Filters(parent="a"), ["d"]),
        (Filters(root="a"), ["a", "d"]),
        (Filters(kind="chat"), ["c"]),
        (Filters(runs_only=True), ["c"]),
    ]
    for filters, expected in table:
        assert [one.id for one in (await store.list(filters)).sessions] == expected, filters
    seen: list[str] = []
    after = ""
    for _ in range(4):
        page = await store.list(after=after, limit=1)
        seen += [one.id for one in page.sessions]
        after = page.after
    assert (seen, after) == (["a", "b", "c", "d"], "")


@checks
async def delete_removes_all_of_it(store: Store) -> None:
    """A session that is gone leaves neither name nor messages, and stays gone."""
    await store.create(header(), name="n", batch=chain(2))
    await store.put("s1", Message(id="m"))
    blob = await store.write_blob("s1", b"x")
    await store.delete("s1")
    await store.delete("s1")
    with refused(NoSession):
        await store.read("s1")
    await store.create(header(), name="n")
    assert await store.unconsumed("s1") == ()
    with refused(NoEntry):
        await store.read_blob("s1", blob)


@checks
async def delete_respects_a_lease(store: Store) -> None:
    """What is driven is not deleted but by its driver."""
    lease, _ = await begun(store)
    with refused(Leased):
        await store.delete("s1")
    await store.delete("s1", fence=lease.fence)
    with refused(NoSession):
        await store.read("s1")

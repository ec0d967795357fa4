"""The conformance kit of stores: what every store must do, as checks that a test suite runs.

```
@pytest.mark.parametrize("check", store_kit.CHECKS, ids=store_kit.name_of)
async def test_my_store(check, tmp_path):
    await check(store_kit.Subject(lambda: MyStore(tmp_path)))
```

A check raises AssertionError when the store does not do what the protocols of
`perdure.log.store` promise. Checks that close and open a store again need `persistent`.
"""

# ruff: noqa: S101, PT017 - it asserts, and has no pytest
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import TypeAlias

from perdure.errors import (
    ConfigError,
    EntryRefused,
    FenceLost,
    Leased,
    MessageTaken,
    NameTaken,
    NoEntry,
    NoSession,
    SessionExists,
    StaleVersion,
    StopRequested,
)
from perdure.log.entries import ERASED, MESSAGE, AnyEntry
from perdure.log.header import Header, Origin, RunIdentity, new_header
from perdure.log.reading import read_lines
from perdure.log.store import (
    Erasure,
    Fence,
    Filters,
    Lease,
    Message,
    Redaction,
    Store,
    Summary,
)
from perdure.log.timestamps import timestamp
from perdure.log.writing import Draft, seal

START = 1_790_000_000 * 10**9


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The store under test.

    Attributes:
        open: Opens it; called again, it opens the same one once more.
        persistent: Whether what was written is there when it is opened again.
    """

    open: Callable[[], Store]
    persistent: bool = True

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[Store]:
        """The store, until the block ends."""
        store = self.open()
        try:
            yield store
        finally:
            await store.close()


Check: TypeAlias = Callable[[Subject], Awaitable[None]]

CHECKS: list[Check] = []
"""Every check."""


def name_of(check: Check) -> str:
    """What a check is called."""
    return getattr(check, "__name__", "check")


def _check(function: Callable[[Store], Awaitable[None]]) -> Check:
    async def run(subject: Subject) -> None:
        async with subject.opened() as store:
            await function(store)

    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    CHECKS.append(run)
    return run


def _reopening(function: Check) -> Check:
    async def run(subject: Subject) -> None:
        if subject.persistent:
            await function(subject)

    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    CHECKS.append(run)
    return run


@contextlib.contextmanager
def _refused(*errors: type[BaseException]) -> Generator[None]:
    try:
        yield
    except errors:
        return
    names = " or ".join(error.__name__ for error in errors)
    raise AssertionError(f"the store did not raise {names}")


# --- what checks write ----------------------------------------------------------------


def header(session: str = "s1", **members: object) -> Header:
    """A header of a test."""
    created = timestamp(START + len(members) * 10**9)
    return new_header(session, created, **members)  # type: ignore[arg-type]


def chain(
    count: int,
    *,
    under: str | None = None,
    first: int = 0,
    type: str = "custom",  # noqa: A002 - the format's own name
    body: Mapping[str, object] | None = None,
) -> list[AnyEntry]:
    """Entries, each under the one before."""
    entries: list[AnyEntry] = []
    for number in range(first, first + count):
        parent = entries[-1].id if entries else under
        draft = Draft(type, body or {"ns": "kit", "data": {"n": number}})
        entries.append(seal(draft, parent, timestamp(START + number * 10**6)))
    return entries


async def _made(
    store: Store, *, session: str = "s1", entries: int = 0, **members: object
) -> tuple[Lease, list[AnyEntry]]:
    batch = chain(entries)
    await store.create(header(session, **members), batch=batch)
    return await store.lease(session, holder="kit"), batch


async def _lines(store: Store, session: str = "s1") -> list[bytes]:
    return list((await store.read(session)).lines)


def _of(entries: Sequence[AnyEntry]) -> list[bytes]:
    return [entry.line for entry in entries]


# --- create, read, list, delete -------------------------------------------------------


@_check
async def create_keeps_header_and_batch(store: Store) -> None:
    """What was created is read byte for byte."""
    batch = chain(3)
    made = header(extra={"acme:x": {"b": 1, "a": [None, "\x00 \U0001f600"]}})
    assert (await store.create(made, batch=batch)).version == 3
    stored = await store.read("s1")
    assert stored.header.line == made.line
    assert (stored.version, list(stored.lines)) == (3, _of(batch))


@_check
async def create_refuses_a_taken_id(store: Store) -> None:
    """Another header under the id is refused, and changes nothing."""
    await store.create(header())
    with _refused(SessionExists):
        await store.create(header(cwd="/elsewhere"))
    assert (await store.read("s1")).header.cwd == ""


@_check
async def create_again_is_held(store: Store) -> None:
    """An unknown outcome is settled by the same create (LOG 1.3)."""
    batch = chain(2)
    await store.create(header(), batch=batch)
    again = await store.create(header(), batch=batch)
    assert (again.version, again.held) == (2, 2)
    assert await _lines(store) == _of(batch)


@_check
async def create_refuses_a_broken_batch(store: Store) -> None:
    """An entry without its parent leaves nothing behind."""
    with _refused(EntryRefused):
        await store.create(header(), batch=chain(2)[1:])
    with _refused(NoSession):
        await store.read("s1")


@_check
async def a_name_is_unique(store: Store) -> None:
    """A name belongs to one session, and its loser leaves nothing behind."""
    await store.create(header("s1"), name="order-42")
    try:
        await store.create(header("s2"), name="order-42")
    except NameTaken as error:
        assert error.session == "s1"
    else:
        raise AssertionError("the store gave one name twice")
    with _refused(NoSession):
        await store.read("s2")
    assert [one.id for one in (await store.list(Filters(name="order-42"))).sessions] == ["s1"]


@_check
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


@_check
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
        with _refused(NoSession):
            await attempt


@_check
async def reading_since_a_version(store: Store) -> None:
    """A follower reads what is new; a leaf gives its path alone."""
    lease, batch = await _made(store, entries=2)
    branch = chain(2, under=batch[0].id, first=10)
    await store.append("s1", 2, lease.fence, branch)
    assert list((await store.read("s1", since=2)).lines) == _of(branch)
    assert (await store.read("s1", since=4)).lines == ()
    path = await store.read("s1", leaf=branch[-1].id)
    assert list(path.lines) == _of([batch[0], *branch])
    assert path.version == 4
    with _refused(NoEntry):
        await store.read("s1", leaf="sha256:no")


@_check
async def what_is_read_is_a_copy(store: Store) -> None:
    """A reading does not change when the session grows."""
    lease, batch = await _made(store, entries=1)
    before = await store.read("s1")
    await store.append("s1", 1, lease.fence, chain(1, under=batch[0].id, first=5))
    assert (before.version, len(before.lines)) == (1, 1)


@_check
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


@_check
async def delete_removes_all_of_it(store: Store) -> None:
    """A session that is gone leaves neither name nor messages, and stays gone."""
    await store.create(header(), name="n", batch=chain(2))
    await store.put("s1", Message(id="m"))
    blob = await store.write_blob("s1", b"x")
    await store.delete("s1")
    await store.delete("s1")
    with _refused(NoSession):
        await store.read("s1")
    await store.create(header(), name="n")
    assert await store.unconsumed("s1") == ()
    with _refused(NoEntry):
        await store.read_blob("s1", blob)


@_check
async def delete_respects_a_lease(store: Store) -> None:
    """What is driven is not deleted but by its driver."""
    lease, _ = await _made(store)
    with _refused(Leased):
        await store.delete("s1")
    await store.delete("s1", fence=lease.fence)
    with _refused(NoSession):
        await store.read("s1")


# --- append ---------------------------------------------------------------------------


@_check
async def append_extends(store: Store) -> None:
    """Entries stand in the order they were given, and the version counts them."""
    lease, batch = await _made(store, entries=1)
    more = chain(3, under=batch[0].id, first=5)
    appended = await store.append("s1", 1, lease.fence, more)
    assert (appended.version, appended.held) == (4, 0)
    assert await _lines(store) == _of([*batch, *more])


@_check
async def a_stale_version_is_refused(store: Store) -> None:
    """LOG 1.1: branch, dispatch, rewind, and a second dispatch built on the old version."""
    lease, batch = await _made(store, entries=2)
    root = batch[0].id
    branch = chain(1, under=root, first=10, type="dispatch", body={"call_id": "c", "target": "t"})
    await store.append("s1", 2, lease.fence, branch)
    mark = chain(1, under=root, first=11, type="label", body={"target": root, "label": "leaf"})
    await store.append("s1", 3, lease.fence, mark)
    second = chain(1, under=root, first=12, type="dispatch", body={"call_id": "c", "target": "t"})
    for version in (0, 1, 2, 3, 5, 99):
        with _refused(StaleVersion):
            await store.append("s1", version, lease.fence, second)
    assert await _lines(store) == _of([*batch, *branch, *mark])


@_check
async def the_same_append_again_is_held(store: Store) -> None:
    """LOG 1.3: an append that errored but committed, resubmitted."""
    lease, batch = await _made(store, entries=1)
    more = chain(3, under=batch[0].id, first=5)
    await store.append("s1", 1, lease.fence, more)
    again = await store.append("s1", 1, lease.fence, more)
    assert (again.version, again.held) == (4, 3)
    assert await _lines(store) == _of([*batch, *more])


@_check
async def what_is_missing_of_a_held_append_is_written(store: Store) -> None:
    """LOG 1.3: the first part of a batch committed, and the whole is submitted again."""
    lease, batch = await _made(store, entries=1)
    more = chain(4, under=batch[0].id, first=5)
    await store.append("s1", 1, lease.fence, more[:2])
    again = await store.append("s1", 1, lease.fence, more)
    assert (again.version, again.held) == (5, 2)
    assert await _lines(store) == _of([*batch, *more])


@_check
async def a_held_append_that_others_followed_is_stale(store: Store) -> None:
    """Held is what is the tail; what others have built on is not."""
    lease, batch = await _made(store, entries=1)
    more = chain(2, under=batch[0].id, first=5)
    await store.append("s1", 1, lease.fence, more)
    await store.append("s1", 3, lease.fence, chain(1, under=more[-1].id, first=20))
    with _refused(StaleVersion):
        await store.append("s1", 1, lease.fence, more)


@_check
async def an_entry_needs_its_parent_and_an_id_of_its_own(store: Store) -> None:
    """What cannot stand in the tree is refused whole."""
    lease, batch = await _made(store, entries=2)
    orphan = chain(1, under="sha256:no", first=5)
    next_one = chain(1, under=batch[1].id, first=6)
    for wrong in (orphan, [batch[0]], [*next_one, *orphan], [*next_one, batch[0]]):
        with _refused(EntryRefused):
            await store.append("s1", 2, lease.fence, wrong)
    assert await _lines(store) == _of(batch)


@_check
async def an_empty_append_checks_version_and_fence(store: Store) -> None:
    """A driver may ask whether it still drives."""
    lease, _ = await _made(store, entries=2)
    assert (await store.append("s1", 2, lease.fence, [])).version == 2
    with _refused(StaleVersion):
        await store.append("s1", 1, lease.fence, [])
    with _refused(FenceLost):
        await store.append("s1", 2, Fence(lease.fence.counter, "another"), [])


@_check
async def of_racing_appends_one_wins(store: Store) -> None:
    """Sixty-four appends on one version: one stands, the others are told."""
    lease, batch = await _made(store, entries=1)

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
    assert len(await _lines(store)) == 2


@_check
async def every_byte_comes_back(store: Store) -> None:
    """NUL, emoji, long numbers, 5 MB, unknown types and members."""
    lease, _ = await _made(store)
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
    assert list(stored.lines) == _of(entries)
    assert read_lines(stored.header, stored.lines).faults == ()


@_check
async def the_summary_is_what_was_last_given(store: Store) -> None:
    """An append without a summary leaves the one that is there."""
    lease, batch = await _made(store, entries=1)
    summary = Summary(status="running", due=START, leaf=batch[0].id)
    await store.append("s1", 1, lease.fence, [], summary=summary)
    await store.append("s1", 1, lease.fence, chain(1, under=batch[0].id, first=3))
    found = (await store.list()).sessions[0].summary
    assert (found.status, found.due, found.leaf) == ("running", START, batch[0].id)


@_check
async def a_cancelled_append_is_whole_or_absent(store: Store) -> None:
    """Whoever was cancelled may ask again, and gets what stands."""
    lease, batch = await _made(store, entries=1)
    more = chain(3, under=batch[0].id, first=5)
    task = asyncio.ensure_future(store.append("s1", 1, lease.fence, more))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    appended = await store.append("s1", 1, lease.fence, more)
    assert appended.version == 4
    assert await _lines(store) == _of([*batch, *more])


# --- leases ---------------------------------------------------------------------------


@_check
async def a_lease_keeps_others_out(store: Store) -> None:
    """The second is told who has it, the same holder too."""
    await _made(store)
    for holder in ("other", "kit"):
        try:
            await store.lease("s1", holder=holder)
        except Leased as error:
            assert error.holder == "kit"
        else:
            raise AssertionError("the store gave one lease twice")


@_check
async def a_released_lease_is_over(store: Store) -> None:
    """Its fence is in force no more, and the next one is another."""
    lease, _ = await _made(store)
    assert await store.renew(lease) == lease
    await store.release(lease)
    await store.release(lease)
    for attempt in (store.append("s1", 0, lease.fence, []), store.renew(lease)):
        with _refused(FenceLost):
            await attempt
    second = await store.lease("s1", holder="other")
    assert second.fence != lease.fence
    await store.release(lease)  # not its own: nothing happens
    await store.append("s1", 0, second.fence, [])


@_check
async def a_fence_is_compared_whole(store: Store) -> None:
    """LOG 1.2: the same counter with another nonce is another fence."""
    lease, _ = await _made(store)
    with _refused(FenceLost):
        await store.append("s1", 0, Fence(lease.fence.counter, "0" * 32), chain(1))
    assert await _lines(store) == []


@_check
async def a_child_is_under_its_roots_lease(store: Store) -> None:
    """LOG 2.1: a stale driver appends to no child, makes none, and no child is leased."""
    lease, _ = await _made(store)
    child = header("child", root="s1", origin=Origin("s1"), spawned_by="c")
    for fence in (None, Fence(lease.fence.counter, "stale")):
        with _refused(FenceLost):
            await store.create(child, fence=fence)
    await store.create(child, fence=lease.fence)
    await store.append("child", 0, lease.fence, chain(1))
    with _refused(ConfigError):
        await store.lease("child", holder="kit")
    await store.release(lease)
    second = await store.lease("s1", holder="other")
    with _refused(FenceLost):
        await store.append("child", 1, lease.fence, chain(1, first=3))
    await store.append("child", 1, second.fence, [])


# --- the inbox ------------------------------------------------------------------------


@_check
async def messages_are_numbered_and_kept(store: Store) -> None:
    """A message needs no lease, and a second of its id is a duplicate."""
    await store.create(header())
    first = await store.put("s1", Message(id="m1", body=b'{"text":"\xe2\x82\xac\\u0000"}'))
    second = await store.put("s1", Message(id="m2"))
    again = await store.put("s1", Message(id="m1", body=b'{"text":"other"}'))
    assert (first.number, second.number) == (1, 2)
    assert (again.number, again.duplicate) == (1, True)
    found = await store.unconsumed("s1")
    assert [one.id for one in found] == ["m1", "m2"]
    assert found[0].body == b'{"text":"\xe2\x82\xac\\u0000"}'


def _consuming(message: str, *, under: str | None, first: int) -> list[AnyEntry]:
    return chain(1, under=under, first=first, body={"ns": "kit", MESSAGE: message})


@_check
async def a_message_is_consumed_by_an_append_that_names_it(store: Store) -> None:
    """LOG 3.1: once, and only by an entry that names it."""
    lease, _ = await _made(store)
    await store.put("s1", Message(id="m1"))
    await store.put("s1", Message(id="m2"))
    entry = _consuming("m1", under=None, first=1)
    for batch, consumed in ((entry, []), (entry, ["m2"]), (chain(1), ["m1"])):
        with _refused(EntryRefused):
            await store.append("s1", 0, lease.fence, batch, consumed=consumed)
    await store.append("s1", 0, lease.fence, entry, consumed=["m1"])
    assert [one.id for one in await store.unconsumed("s1")] == ["m2"]
    twice = _consuming("m1", under=entry[0].id, first=2)
    never = _consuming("m9", under=entry[0].id, first=2)
    for batch, message in ((twice, "m1"), (never, "m9")):
        with _refused(MessageTaken):
            await store.append("s1", 1, lease.fence, batch, consumed=[message])
    assert (await store.put("s1", Message(id="m1"))).duplicate


@_check
async def a_consuming_append_again_is_held(store: Store) -> None:
    """LOG 1.3 with a message: what it consumed the first time is its own."""
    lease, _ = await _made(store)
    await store.put("s1", Message(id="m1"))
    batch = _consuming("m1", under=None, first=1)
    await store.append("s1", 0, lease.fence, batch, consumed=["m1"])
    again = await store.append("s1", 0, lease.fence, batch, consumed=["m1"])
    assert again.held == 1


@_check
async def a_stop_forbids_effects_in_the_whole_tree(store: Store) -> None:
    """LOG 3.5: no dispatch and no step begins until the stop is consumed."""
    lease, _ = await _made(store)
    await store.create(header("child", root="s1", origin=Origin("s1")), fence=lease.fence)
    with _refused(ConfigError):
        await store.put("child", Message(id="m"), stop=True)
    await store.put("s1", Message(id="stop"), stop=True)
    assert [one.stop for one in await store.unconsumed("s1")] == [True]
    dispatch = chain(1, type="dispatch", body={"call_id": "c", "target": "t"})
    step = chain(1, type="perdure:step", body={"call_id": "c", "phase": "start"})
    for session in ("s1", "child"):
        for batch in (dispatch, step):
            with _refused(StopRequested):
                await store.append(session, 0, lease.fence, batch)
    await store.append("child", 0, lease.fence, chain(1))  # what has no effect goes on
    taken = _consuming("stop", under=None, first=1)
    await store.append("s1", 0, lease.fence, taken, consumed=["stop"])
    later = chain(
        1, under=taken[0].id, first=7, type="dispatch", body={"call_id": "c", "target": "t"}
    )
    await store.append("s1", 1, lease.fence, later)


@_check
async def a_stop_forbids_that_its_run_ends_by_itself(store: Store) -> None:
    """LOG 9: the run ends by the stop, which the last entry consumes; a sub-agent may end."""
    lease, _ = await _made(store)
    await store.create(header("child", root="s1", origin=Origin("s1")), fence=lease.fence)
    await store.put("s1", Message(id="stop"), stop=True)
    for status in ("done", "stopped"):
        ends = chain(1, type="perdure:closed", body={"status": status})
        with _refused(StopRequested):
            await store.append("s1", 0, lease.fence, ends)
    done = chain(1, type="perdure:closed", body={"status": "done"})
    await store.append("child", 0, lease.fence, done)
    body = {"status": "cancelled", MESSAGE: "stop"}
    taken = chain(1, first=9, type="perdure:closed", body=body)
    await store.append("s1", 0, lease.fence, taken, consumed=["stop"])


@_check
async def roots_are_due_by_time_or_message(store: Store) -> None:
    """LOG 3.3: also for a message to a child; no longer once it is consumed."""
    lease, _ = await _made(store, session="a")
    await store.create(header("b", cwd="/b"), summary=Summary(due=START + 100))
    await store.create(header("kid", root="a", origin=Origin("a")), fence=lease.fence)
    assert await store.due(START) == ()
    assert await store.due(START + 100) == ("b",)
    await store.put("kid", Message(id="m"))
    assert set(await store.due(START)) == {"a"}
    assert set(await store.due(START + 100)) == {"a", "b"}
    assert len(await store.due(START + 100, limit=1)) == 1
    batch = _consuming("m", under=None, first=1)
    await store.append("kid", 0, lease.fence, batch, consumed=["m"])
    assert await store.due(START) == ()


# --- blobs, erasure -------------------------------------------------------------------


@_check
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
        with _refused(NoEntry):
            await store.read_blob("s1", gone)


@_check
async def erasing_keeps_hashes(store: Store) -> None:
    """LOG 7: the body is gone, the tree still verifies. Only where the store can."""
    if not isinstance(store, Erasure):
        return
    lease, batch = await _made(store, entries=3)
    assert await store.erase("s1", lease.fence, [batch[1].id]) == 1
    assert await store.erase("s1", lease.fence, [batch[1].id]) == 0
    stored = await store.read("s1")
    assert ERASED.encode() in stored.lines[1]
    assert b'"data"' not in stored.lines[1]
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    assert [entry.id for entry in reading.session.entries] == [entry.id for entry in batch]
    with _refused(NoEntry):
        await store.erase("s1", lease.fence, ["sha256:no"])
    with _refused(FenceLost):
        await store.erase("s1", Fence(0, ""), [batch[0].id])


@_check
async def redacting_leaves_a_session_to_read(store: Store) -> None:
    """LOG 8: the body is gone, what is left verifies and goes on no more. Where the store can."""
    if not isinstance(store, Redaction):
        return
    lease, batch = await _made(store, entries=3)
    for entries, fence in ((["sha256:no"], lease.fence), ([batch[0].id], Fence(0, ""))):
        with _refused(NoEntry, FenceLost):
            await store.redact("s1", fence, entries)
    assert await _lines(store) == [entry.line for entry in batch]
    assert await store.redact("s1", lease.fence, [batch[1].id]) == 1
    stored = await store.read("s1")
    assert stored.header.redacted
    assert b'"data":null' in stored.lines[1]
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    assert [entry.type for entry in reading.session.entries] == [entry.type for entry in batch]
    assert stored.lines[0] == batch[0].line
    with _refused(EntryRefused):
        await store.append("s1", 3, lease.fence, chain(1, under=reading.session.leaf, first=9))


# --- opening again --------------------------------------------------------------------


@_reopening
async def what_was_written_is_there(subject: Subject) -> None:
    """Entries, names, messages, blobs and summaries outlive the store object."""
    async with subject.opened() as store:
        lease, batch = await _made(store, entries=2)
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
        with _refused(NameTaken):
            await store.create(header("s3"), name="named")
        assert (await store.list(Filters(statuses=frozenset({"x"})))).sessions[0].id == "s1"


@_reopening
async def a_held_append_is_held_by_the_next(subject: Subject) -> None:
    """LOG 1.3 across a restart: the same bytes are recognised."""
    more: list[AnyEntry] = []
    async with subject.opened() as store:
        lease, batch = await _made(store, entries=1)
        more = chain(2, under=batch[0].id, first=5)
        await store.append("s1", 1, lease.fence, more)
        await store.release(lease)
    async with subject.opened() as store:
        lease = await store.lease("s1", holder="next")
        assert (await store.append("s1", 1, lease.fence, more)).held == 2


@_reopening
async def two_objects_are_one_store(subject: Subject) -> None:
    """What one object of a store writes, another reads and is bound by."""
    async with subject.opened() as one, subject.opened() as two:
        lease, batch = await _made(one, entries=1)
        assert await _lines(two) == _of(batch)
        with _refused(Leased):
            await two.lease("s1", holder="two")
        more = chain(1, under=batch[0].id, first=5)
        await two.append("s1", 1, lease.fence, more)  # who knows the fence is the driver
        assert await _lines(one) == _of([*batch, *more])
        with _refused(StaleVersion):
            await one.append("s1", 1, lease.fence, chain(1, under=batch[0].id, first=9))
        await two.put("s1", Message(id="m"))
        assert [m.id for m in await one.unconsumed("s1")] == ["m"]


@_reopening
async def racers_through_several_objects(subject: Subject) -> None:
    """Of many appends through three objects, one wins."""
    async with subject.opened() as one, subject.opened() as two, subject.opened() as three:
        lease, batch = await _made(one, entries=1)

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
            assert len(await _lines(store)) == 2

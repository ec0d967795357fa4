"""The inbox: messages, stops, and what is due."""

# ruff: noqa: S101 - it asserts, and has no pytest
from __future__ import annotations

from perdure.errors import ConfigError, EntryRefused, MessageTaken, StopRequested
from perdure.log.entries import MESSAGE
from perdure.log.header import Origin
from perdure.log.store import Message, Store, Summary
from perdure.testing.store_kit.subject import checks, refused
from perdure.testing.store_kit.writing import START, begun, chain, consuming, header


@checks
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


@checks
async def a_message_is_consumed_by_an_append_that_names_it(store: Store) -> None:
    """LOG 3.1: once, and only by an entry that names it."""
    lease, _ = await begun(store)
    await store.put("s1", Message(id="m1"))
    await store.put("s1", Message(id="m2"))
    entry = consuming("m1", under=None, first=1)
    for batch, consumed in ((entry, []), (entry, ["m2"]), (chain(1), ["m1"])):
        with refused(EntryRefused):
            await store.append("s1", 0, lease.fence, batch, consumed=consumed)
    await store.append("s1", 0, lease.fence, entry, consumed=["m1"])
    assert [one.id for one in await store.unconsumed("s1")] == ["m2"]
    twice = consuming("m1", under=entry[0].id, first=2)
    never = consuming("m9", under=entry[0].id, first=2)
    for batch, message in ((twice, "m1"), (never, "m9")):
        with refused(MessageTaken):
            await store.append("s1", 1, lease.fence, batch, consumed=[message])
    assert (await store.put("s1", Message(id="m1"))).duplicate


@checks
async def a_consuming_append_again_is_held(store: Store) -> None:
    """LOG 1.3 with a message: what it consumed the first time is its own."""
    lease, _ = await begun(store)
    await store.put("s1", Message(id="m1"))
    batch = consuming("m1", under=None, first=1)
    await store.append("s1", 0, lease.fence, batch, consumed=["m1"])
    again = await store.append("s1", 0, lease.fence, batch, consumed=["m1"])
    assert again.held == 1


@checks
async def a_stop_forbids_effects_in_the_whole_tree(store: Store) -> None:
    """LOG 3.5: no dispatch and no step begins until the stop is consumed."""
    lease, _ = await begun(store)
    await store.create(header("child", root="s1", origin=Origin("s1")), fence=lease.fence)
    with refused(ConfigError):
        await store.put("child", Message(id="m"), stop=True)
    await store.put("s1", Message(id="stop"), stop=True)
    assert [one.stop for one in await store.unconsumed("s1")] == [True]
    dispatch = chain(1, type="dispatch", body={"call_id": "c", "target": "t"})
    step = chain(1, type="perdure:step", body={"call_id": "c", "phase": "start"})
    for session in ("s1", "child"):
        for batch in (dispatch, step):
            with refused(StopRequested):
                await store.append(session, 0, lease.fence, batch)
    await store.append("child", 0, lease.fence, chain(1))  # what has no effect goes on
    taken = consuming("stop", under=None, first=1)
    await store.append("s1", 0, lease.fence, taken, consumed=["stop"])
    later = chain(
        1, under=taken[0].id, first=7, type="dispatch", body={"call_id": "c", "target": "t"}
    )
    await store.append("s1", 1, lease.fence, later)


@checks
async def a_stop_forbids_that_its_run_ends_by_itself(store: Store) -> None:
    """LOG 9: the run ends by the stop, which the last entry consumes; a sub-agent may end."""
    lease, _ = await begun(store)
    await store.create(header("child", root="s1", origin=Origin("s1")), fence=lease.fence)
    await store.put("s1", Message(id="stop"), stop=True)
    for status in ("done", "stopped"):
        ends = chain(1, type="perdure:closed", body={"status": status})
        with refused(StopRequested):
            await store.append("s1", 0, lease.fence, ends)
    done = chain(1, type="perdure:closed", body={"status": "done"})
    await store.append("child", 0, lease.fence, done)
    body = {"status": "cancelled", MESSAGE: "stop"}
    taken = chain(1, first=9, type="perdure:closed", body=body)
    await store.append("s1", 0, lease.fence, taken, consumed=["stop"])


@checks
async def roots_are_due_by_time_or_message(store: Store) -> None:
    """LOG 3.3: also for a message to a child; no longer once it is consumed."""
    lease, _ = await begun(store, session="a")
    await store.create(header("b", cwd="/b"), summary=Summary(due=START + 100))
    await store.create(header("kid", root="a", origin=Origin("a")), fence=lease.fence)
    assert await store.due(START) == ()
    assert await store.due(START + 100) == ("b",)
    await store.put("kid", Message(id="m"))
    assert set(await store.due(START)) == {"a"}
    assert set(await store.due(START + 100)) == {"a", "b"}
    assert len(await store.due(START + 100, limit=1)) == 1
    batch = consuming("m", under=None, first=1)
    await store.append("kid", 0, lease.fence, batch, consumed=["m"])
    assert await store.due(START) == ()

"""Rules of the log whose interleavings no other test builds."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

import perdure
from perdure import Middleware, Runs, ToolDecision
from perdure.durable import Driving, run_by_id
from perdure.errors import FenceLost, Leased, RunBusy
from perdure.log import AnyEntry, Erasure, Filters, Lease, Message, Store, decode_entry
from perdure.log.header import Origin
from perdure.loop import NextTool, ToolCallInfo
from perdure.stores.jsonl import JsonlStore
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike
from perdure.testing.store_kit import chain, header
from perdure.tools import Call, ToolResult, arguments_digest
from perdure.wire import user
from tests.durable.world import (
    RUN,
    Act,
    Holds,
    World,
    agent_of,
    cut_behind,
    entries_of,
    one_call,
    two_calls,
)
from tests.log.driving import Flaky, Slow

SOURCE = Path(perdure.__file__).parent


@pytest_asyncio.fixture(params=["memory", "jsonl", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "jsonl":
        made = JsonlStore(tmp_path / "sessions")
    else:
        made = SqliteStore(tmp_path / "s.db")
    yield made
    await made.close()


# --- LOG 1.5, 1.7: what is written together, and by whom -----------------------------------------


async def test_the_items_of_a_response_and_its_entry_are_one_append() -> None:
    store, world = Flaky(), World()
    script: list[TurnLike] = [
        turn("Two at once.", call("act", {"n": 1}), call("act", {"n": 2})),
        "Done.",
    ]
    await agent_of(store, [Act(world=world)], script).run("go", run_id=RUN)
    appended = [[decode_entry(line) for line in batch] for batch in store.batches]
    begins = [batch for batch in appended if any(_is_call(entry) for entry in batch)]
    (batch,) = begins
    assert sum(_is_call(entry) for entry in batch) == 2
    first = next(place for place, entry in enumerate(batch) if entry.type == "item")
    assert "response" in [entry.type for entry in batch[first:]]


def _is_call(entry: AnyEntry) -> bool:
    item = entry.members.get("item")
    return isinstance(item, dict) and item.get("type") == "function_call"


async def test_whatever_writes_at_once_the_record_is_one_chain() -> None:
    """LOG 1.7: tools that write records, outputs that land, and messages, on a slow disk."""
    store, world = Slow(), World()

    async def busy(one: Call) -> str:
        for number in range(5):
            await one.write_record("test:busy", {"call": one.id, "number": number})
        return "ok"

    script: list[TurnLike] = [turn(*(call("act", {"n": n}) for n in range(4))), "Done."]
    agent = agent_of(store, [Act(world=world, effect="idempotent", does=busy)], script)
    result = await agent.run("go", run_id=RUN)
    entries = await entries_of(store)
    assert result.status == "done"
    assert [entry.parent for entry in entries] == [None, *(entry.id for entry in entries[:-1])]
    assert sum(b"test:busy" in entry.line for entry in entries) == 20


SEALS = {
    "log/appender.py",
    "log/branching.py",  # the first entries of a fork, and of a successor
    "log/migrate.py",  # a session of another format, raised whole
    "log/inputs.py",  # compares, and writes nothing
    "durable/starting.py",  # the first entries of a run
    "durable/children.py",  # the first entry of a child's path
    "testing/store_kit/writing.py",
}
"""Who makes entries. All but the appender make those of a session that nobody drives yet, or such
as have no parent."""


def test_nobody_but_the_appender_gives_an_entry_of_a_driven_session_its_parent() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "seal"
        and not (len(node.args) > 1 and _is_none(node.args[1]))
    }
    assert found <= SEALS


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# --- LOG 2.1: one lease for a tree ---------------------------------------------------------------


async def test_a_detached_child_is_its_own_root(store: Store) -> None:
    """It comes from its parent, and is driven under a lease of its own."""
    await store.create(header("s1"))
    parent = await store.lease("s1", holder="parent")
    detached = header("away", origin=Origin("s1"), spawned_by="c")
    await store.create(detached)
    child = await store.lease("away", holder="child")
    with pytest.raises(FenceLost):
        await store.append("away", 0, parent.fence, chain(1))
    await store.append("away", 0, child.fence, chain(1))
    await store.release(parent)
    with pytest.raises(Leased):
        await store.lease("away", holder="another")
    await store.append("away", 1, child.fence, chain(1, under=chain(1)[0].id, first=5))


class Watched(MemoryStore):
    """Remembers the lease that was taken last."""

    taken: Lease | None = None

    async def lease(self, root: str, *, holder: str, seconds: float = 30.0) -> Lease:
        self.taken = await super().lease(root, holder=holder, seconds=seconds)
        return self.taken


async def test_a_driver_hears_from_its_renewal_that_another_drives() -> None:
    """LOG 2.3: it waits for a model, and looks for nothing else for an hour."""
    store = Watched()
    agent = agent_of(store, [], ["A long story."], model=ScriptedModel(["A story."], delay=3600))
    driving = Driving(poll=3600)
    running = asyncio.create_task(
        run_by_id(agent, store, RUN, [user("go")], wait=False, driving=driving)
    )
    async with asyncio.timeout(60):
        while driving.control.handle is None:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        assert store.taken is not None
        await store.release(store.taken)
        await store.lease(store.taken.root, holder="another", seconds=3600)
        with pytest.raises(RunBusy):
            await running


# --- LOG 3.2: a message id is unique for the life of its session ---------------------------------


async def test_a_message_that_is_delivered_again_stays_a_duplicate_for_ever(store: Store) -> None:
    """Before it was taken up, after it, after the run has ended, and after its body was erased."""
    world = World()
    agent = agent_of(store, [Act(world=world)], one_call(), middleware=[Holds()])
    (held,) = (await agent.run("go", run_id=RUN)).pending
    await Runs(store).approve(RUN, held.call.call_id, by="ann")
    (listed,) = (await store.list(Filters(name=RUN))).sessions
    (message,) = await store.unconsumed(listed.id)
    again = Message(id=message.id, body=message.body)

    async def redeliver() -> None:
        assert (await store.put(listed.id, again)).duplicate

    await redeliver()
    assert await store.unconsumed(listed.id) == (message,)
    assert (await agent.run("go", run_id=RUN)).status == "done"
    await redeliver()
    await store.put(listed.id, Message(id="webhook-2", body=b'{"kind":"nothing"}'))
    assert (await agent.run("go", run_id=RUN)).status == "done"
    await redeliver()
    if isinstance(store, Erasure):
        named = [e.id for e in await entries_of(store) if e.message == message.id]
        lease = await store.lease(listed.id, holder="eraser")
        assert await store.erase(listed.id, lease.fence, named) == len(named) == 1
        await store.release(lease)
        await redeliver()
    assert await store.unconsumed(listed.id) == ()
    assert await store.due(0) == ()
    assert world.count(held.call.call_id) == 1


# --- LOG 5.3: a call with a dispatch is never rejected -------------------------------------------


async def test_a_call_whose_dispatch_is_void_is_closed_by_an_answer_and_not_by_a_reject() -> None:
    """The driver was stopped before the tool, said so, and then the run is cancelled."""
    store, world = MemoryStore(), World()
    await agent_of(store, [Act(world=world)], one_call()).run("go", run_id=RUN)
    store = await cut_behind(store, "dispatch")
    (listed,) = (await store.list(Filters(name=RUN))).sessions
    dispatch = [e for e in await entries_of(store) if e.type == "dispatch"][-1]
    void = {"call_id": dispatch.members["call_id"], "target": dispatch.id, "fence": "f"}
    lease = await store.lease(listed.id, holder="the driver that was displaced")
    version = (await store.read(listed.id)).version
    entry = chain(1, under=dispatch.id, type="perdure:not_started", body=void)
    await store.append(listed.id, version, lease.fence, entry)
    await store.release(lease)
    await Runs(store).cancel(RUN, by="ann")
    result = await agent_of(store, [Act(world=World())], one_call()).run("go", run_id=RUN)
    assert result.status == "cancelled"
    behind = [e for e in await entries_of(store) if e.type == "decision"]
    assert "reject" not in [e.members["verdict"] for e in behind]


# --- LOG 5.6: arguments freeze at the decision ---------------------------------------------------


class Rewrites(Middleware):
    """Decides on other arguments than the model gave."""

    def __init__(self, arguments: str) -> None:
        self._arguments = arguments

    async def before_tool_call(self, call: ToolCallInfo) -> ToolDecision | None:
        return ToolDecision(reason="rewritten", arguments=self._arguments)


class Meddles(Middleware):
    """Tries to change what a tool gets, after it was decided on."""

    async def wrap_tool_call(self, call: ToolCallInfo, next_: NextTool) -> ToolResult:
        other = '{"n": 666}'
        object.__setattr__(call, "arguments", other)
        object.__setattr__(call, "call", msgspec.structs.replace(call.call, arguments=other))
        with pytest.raises(TypeError):
            await next_(other)  # type: ignore[call-arg]
        return await next_()


def decided(entries: list[AnyEntry], call_id: str) -> str:
    """The digest of the arguments that the last decision before a call's dispatch let through."""
    given = ""
    for entry in entries:
        item = entry.members.get("item")
        if isinstance(item, dict) and item.get("call_id") == call_id and "arguments" in item:
            given = str(item["arguments"])
        if entry.members.get("call_id") != call_id:
            continue
        if entry.type == "dispatch":
            break
        if entry.type == "decision" and "args" in entry.members:
            given = msgspec.json.encode(entry.members["args"]).decode()
    return arguments_digest(given)


@pytest.mark.parametrize(
    "around",
    [(Meddles(),), (Rewrites('{"n": 7}'), Meddles()), (Meddles(), Rewrites('{"n": 7}'))],
    ids=["meddles", "rewrites, meddles", "meddles, rewrites"],
)
async def test_a_tool_gets_what_was_decided_on_whatever_middleware_does(
    around: tuple[Middleware, ...],
) -> None:
    store, world, got = MemoryStore(), World(), dict[str, str]()

    def notes(one: Call) -> str:
        got[one.id] = arguments_digest(one.arguments)
        return "ok"

    agent = agent_of(store, [Act(world=world, does=notes)], two_calls(), middleware=list(around))
    assert (await agent.run("go", run_id=RUN)).status == "done"
    entries = await entries_of(store)
    assert len(got) == 2
    assert got == {call_id: decided(entries, call_id) for call_id in got}


async def test_what_was_approved_is_what_runs_although_hooks_would_now_rewrite_it() -> None:
    """The hook of the process that goes on is another one than that which held the call."""
    store, world, got = MemoryStore(), World(), list[str]()

    def notes(one: Call) -> str:
        got.append(arguments_digest(one.arguments))
        return "ok"

    act = Act(world=world, does=notes)
    agent = agent_of(store, [act], one_call(), middleware=[Holds()])
    (held,) = (await agent.run("go", run_id=RUN)).pending
    await Runs(store).approve(RUN, held.call.call_id, by="ann")
    after = agent.with_(
        model=ScriptedModel(one_call()), middleware=[Rewrites('{"n": 666}'), Meddles()]
    )
    assert (await after.run("go", run_id=RUN)).status == "done"
    assert got == [arguments_digest('{"n": 1}')]
    assert got == [decided(await entries_of(store), held.call.call_id)]


async def test_a_decision_that_a_crash_cut_from_its_dispatch_stands() -> None:
    """The next driver's hooks would rewrite it otherwise, and are not asked."""
    store, world, got = MemoryStore(), World(), list[str]()

    def notes(one: Call) -> str:
        got.append(arguments_digest(one.arguments))
        return "ok"

    first = agent_of(store, [Act(world=World())], one_call(), middleware=[Rewrites('{"n": 7}')])
    await first.run("go", run_id=RUN)
    store = await cut_behind(store, "decision proceed")
    hooks = [Rewrites('{"n": 8}'), Meddles()]
    then = agent_of(store, [Act(world=world, does=notes)], one_call(), middleware=hooks)
    assert (await then.run("go", run_id=RUN)).status == "done"
    (call_id,) = {one for one, _ in world.fired}
    assert got == [arguments_digest('{"n": 7}')]
    assert got == [decided(await entries_of(store), call_id)]

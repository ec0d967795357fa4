"""Sub-agents in the record: provenance of what they gave, second runs, where they are found.

The numbers are the situations of the inventory's list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure import Agent, Runs
from perdure.durable.events_read import decision_of
from perdure.durable.late import sent
from perdure.errors import CallEnded
from perdure.log import Filters, Recording, go_on, read_lines, subsession_id
from perdure.log.entries import AnyEntry, CustomEntry, DecisionEntry, ItemEntry, LinkEntry
from perdure.log.header import Header, new_header
from perdure.log.session import Session
from perdure.loop import Opening, ToolDecision, approve
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.testing.scripted import TurnLike
from perdure.tools import Call, Effect, ToolResult
from perdure.wire import Message, user

CALL = "call_t0_1"


def clerk(*script: TurnLike, **members: object) -> Agent:
    agent: Agent = Agent(ScriptedModel(list(script) or ["Filed."]), name="clerk")
    return agent.with_(**members) if members else agent


def boss(store: MemoryStore, *agents: Agent, script: Sequence[TurnLike] = ()) -> Agent:
    turns = list(script) or [call("clerk", {"task": "file it"}), "Done."]
    return Agent(ScriptedModel(turns), tools=[one.as_tool() for one in agents], store=store)


async def read(store: MemoryStore, session: str) -> Session:
    stored = await store.read(session)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    return reading.session


async def named(store: MemoryStore, name: str) -> Session:
    (listed,) = (await store.list(Filters(name=name))).sessions
    return await read(store, listed.id)


def output_of(entries: Sequence[AnyEntry]) -> ItemEntry:
    (found,) = [
        one
        for one in entries
        if isinstance(one, ItemEntry) and b'"function_call_output"' in one.line
    ]
    return found


def before_dispatch(session: Session) -> str:
    """The entry before the link to the sub-agent, where its call is on the path already."""
    (link,) = [one for one in session.entries if isinstance(one, LinkEntry)]
    assert link.parent is not None
    return link.parent


async def test_an_output_that_another_branch_has_keeps_the_child_it_came_from() -> None:
    store = MemoryStore()
    worker = clerk()
    async with boss(store, worker).session("chat") as chat:
        await chat.send("go")
        session = await named(store, "chat")
        await chat.rewind(before_dispatch(session), keep_effects=True)
        result = await chat.continue_()
    assert result.text == "Done."
    assert isinstance(worker.model, ScriptedModel)
    assert len(worker.model.requests) == 1  # nothing was done twice
    after = await named(store, "chat")
    child = subsession_id(after.id, CALL)
    path = after.path()
    assert not any(one.type == "dispatch" for one in path)
    (link,) = [one for one in path if isinstance(one, LinkEntry)]
    assert (link.rel, link.session, link.call_id) == ("subsession", child, CALL)
    taken = output_of(path)
    assert taken.parents == output_of(session.path()).parents
    assert [ref.session for ref in taken.parents] == [child]
    (answer,) = [one for one in path if isinstance(one, DecisionEntry)]
    assert (answer.verdict, answer.by) == ("answer", "policy")
    assert answer.reason == "ran on a branch the rebase left"
    places = [after.place(one.id) for one in (link, answer, taken)]
    assert places == sorted(places)


async def test_a_fork_takes_the_output_over_from_its_origin_and_links_nothing() -> None:
    store = MemoryStore()
    worker = clerk()
    agent = boss(store, worker)
    async with agent.session("chat") as chat:
        await chat.send("go")
        session = await named(store, "chat")
        other = await chat.fork("fork", entry=before_dispatch(session))
    async with other:
        assert (await other.continue_()).text == "Done."
    fork = await named(store, "fork")
    path = fork.path()
    assert [ref.session for ref in output_of(path).parents] == [subsession_id(session.id, CALL)]
    assert not any(isinstance(one, LinkEntry) for one in path)
    (answer,) = [one for one in path if isinstance(one, DecisionEntry)]
    assert answer.reason == "ran in the session this one forks"
    assert isinstance(worker.model, ScriptedModel)
    assert len(worker.model.requests) == 1


async def rewound(store: MemoryStore, agent: Agent, *, run_again: bool) -> Session:
    """A chat whose sub-agent has ended, and whose call is approved on another branch."""
    async with agent.session("chat") as chat:
        await chat.send("go")
        await chat.rewind(before_dispatch(await named(store, "chat")), keep_effects=True)
        (pending,) = chat.state.pending
        again = approve(pending.call.call_id, by="human", run_again=run_again)
        assert (await chat.resume(again)).text == "Done."
    return await named(store, "chat")


async def test_a_second_run_that_somebody_decided_on_is_a_new_root_of_the_child() -> None:
    store = MemoryStore()
    worker = clerk()
    parent = await rewound(store, boss(store, worker), run_again=True)
    assert isinstance(worker.model, ScriptedModel)
    assert len(worker.model.requests) == 2
    child = await read(store, subsession_id(parent.id, CALL))
    roots = [one for one in child.entries if one.parent is None]
    assert len(roots) == 2
    decided = [one for one in parent.path() if isinstance(one, DecisionEntry) and one.run_again]
    assert roots[1].members["perdure:run_again"] == decided[0].id
    assert decision_of(decided[0]) == ToolDecision(
        reason="run again: accepted by the caller", by="human", run_again=True
    )
    said = [one.text for one in child.context().items if isinstance(one, Message)]
    assert said == ["file it", "Filed."]
    assert [ref.entry for ref in output_of(parent.path()).parents] == [child.leaf]
    assert {one.status for one in (child, parent)} == {"done"}


async def test_entering_the_call_again_otherwise_gives_what_the_child_gave() -> None:
    store = MemoryStore()
    worker = clerk()
    parent = await rewound(store, boss(store, worker), run_again=False)
    child = await read(store, subsession_id(parent.id, CALL))
    assert [one.parent for one in child.entries].count(None) == 1
    assert isinstance(worker.model, ScriptedModel)
    assert len(worker.model.requests) == 1


async def cut_at_root(
    store: MemoryStore, session: Session, child: Session, keep: int
) -> MemoryStore:
    """What the next process finds: the parent dispatched again, of the child `keep` entries."""
    dispatches = [n for n, one in enumerate(session.entries) if one.type == "dispatch"]
    found = MemoryStore()
    await found.create(session.header, name="chat", batch=session.entries[: dispatches[-1] + 1])
    lease = await found.lease(session.id, holder="x")
    await found.create(child.header, batch=child.entries[:keep], fence=lease.fence)
    await found.release(lease)
    return found


async def test_a_decision_to_run_again_counts_once_however_often_it_is_entered() -> None:
    store = MemoryStore()
    parent = await rewound(store, boss(store, clerk()), run_again=True)
    child = await read(store, subsession_id(parent.id, CALL))
    second = [n for n, one in enumerate(child.entries) if one.parent is None][1]
    for keep in range(second, len(child.entries) + 1):
        crashed = await cut_at_root(store, parent, child, keep)
        async with boss(crashed, clerk()).session("chat") as c:
            assert (await c.continue_()).text == "Done.", keep
        after = await read(crashed, child.id)
        assert [one.parent for one in after.entries].count(None) == 2, keep
        texts = [one.text for one in after.context().items if isinstance(one, Message)]
        assert texts == ["file it", "Filed."], keep


async def test_a_child_that_has_not_ended_goes_on_and_keeps_the_decision_in_mind() -> None:
    store = MemoryStore()
    parent = await rewound(store, boss(store, clerk()), run_again=True)
    child = await read(store, subsession_id(parent.id, CALL))
    closed = next(n for n, one in enumerate(child.entries) if one.type == "perdure:closed")
    crashed = await cut_at_root(store, parent, child, closed)
    worker = clerk()
    async with boss(crashed, worker).session("chat") as chat:
        assert (await chat.continue_()).text == "Done."
    after = await read(crashed, child.id)
    assert [one.parent for one in after.entries].count(None) == 1
    (noted,) = [one for one in after.entries if b'"perdure:run_again"' in one.line]
    assert noted.type == "custom"
    assert isinstance(worker.model, ScriptedModel)
    assert worker.model.requests == []  # its answer stood; it had only not been closed


async def test_a_host_that_prompts_the_child_goes_on_at_its_leaf() -> None:
    store = MemoryStore()
    async with boss(store, clerk()).session("chat") as chat:
        await chat.send("go")
        parent = await named(store, "chat")
    child = subsession_id(parent.id, CALL)
    before = await read(store, child)
    async with await go_on(store, parent.id) as root:
        again = await go_on(store, child, held=root.held)
        await prompted(again, clerk("Filed.", "More."), "and more")
    after = await read(store, child)
    assert after.path()[: len(before)] == before.path()
    assert [one.text for one in after.context().items if isinstance(one, Message)] == [
        "file it",
        "Filed.",
        "and more",
        "More.",
    ]


async def prompted(recording: Recording, agent: Agent, text: str) -> None:
    handle = await agent.begin(
        recording.transcript,
        Opening(prompts=(user(text),)),
        call_ids=recording.call_ids,
        recording=recording,
    )
    await handle.wait()
    await recording.close()


async def test_the_session_of_a_child_is_listed_under_its_parents_directory() -> None:
    store = MemoryStore()
    header: Header = new_header("s1", "2026-10-01T12:00:00Z", name="chat", cwd="/work")
    await store.create(header, name="chat")
    async with boss(store, clerk()).session("chat") as chat:
        await chat.send("go")
    found = (await store.list(Filters(cwd="/work"))).sessions
    assert {one.id for one in found} == {"s1", subsession_id("s1", CALL)}
    assert {one.header.cwd for one in found} == {"/work"}


class Deaf:
    """A tool that does not hear that its time is over."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.entered: list[Call] = []

    async def execute(self, call: Call) -> ToolResult:
        self.entered.append(call)
        await call.write_record("acme:job", {"id": 7})
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                continue
        return ToolResult("charged after all")

    name = "charge"
    description = ""
    parameters: dict[str, object] | None = None
    effect: Effect = "once"
    timeout = 0.05


async def test_what_a_tool_tells_of_an_ended_child_goes_to_its_session_with_its_call() -> None:
    """And what it told before it ended stands there too, under its call."""
    store, deaf = MemoryStore(), Deaf()
    worker = clerk(call("charge"), "Filed.", tools=[deaf], grace=0.01)
    agent = boss(store, worker).with_(name="boss")
    halted = await agent.run("go", run_id="order-1")
    assert halted.status == "halted"
    (waiting,) = [one for one in halted.pending if one.path]
    await Runs(store).resolve(
        "order-1", waiting.call.call_id, session=waiting.session, output="done by hand"
    )
    assert (await agent.run("go", run_id="order-1")).status == "done"
    parent = await named(store, "order-1")
    before = await read(store, subsession_id(parent.id, CALL))
    deaf.gate.set()
    await settled()
    (told,) = await store.unconsumed(before.id)
    (dispatch,) = [one for one in before.entries if one.type == "dispatch"]
    assert told.id == f"late/{dispatch.id}"
    assert await store.unconsumed(parent.id) == ()
    with pytest.raises(CallEnded):
        await deaf.entered[0].write_record("acme:job", {"id": 8})

    assert (await agent.run("go", run_id="order-1")).status == "done"
    after = await read(store, before.id)
    (refused,) = after.entries[len(before.entries) :]
    assert refused.type == "perdure:refused"
    assert refused.message == told.id
    assert await store.unconsumed(before.id) == ()
    assert len(await read(store, parent.id)) == len(parent)
    assert await store.due(2**62) == ()
    (record,) = [one for one in after.entries if b'"acme:job"' in one.line]
    assert isinstance(record, CustomEntry)
    assert (record.call_id, bytes(record.data)) == (waiting.call.call_id, b'{"id":7}')


async def settled() -> None:
    """Wait until the late result was put."""
    for _ in range(100):
        await asyncio.sleep(0.001)
    await sent()

"""Sub-agents: agents as tools whose work is a session of its own (LOG 2.1, 5.9)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perdure import Agent, OutcomeUnknown, RunFailed, Runs, recover, tool
from perdure.errors import FenceLost, NotHeld, ToolError
from perdure.log import (
    AnyEntry,
    Appended,
    Draft,
    Fence,
    Filters,
    Header,
    Listed,
    Store,
    Summary,
    read_lines,
    seal,
    subsession_id,
)
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import Call, Tool, ToolResult, wrap
from tests.durable.world import (
    RUN,
    Act,
    Holds,
    World,
    agent_of,
    asked,
    cut_behind,
    one_call,
    outputs,
    session_of,
    shapes,
)


def clerk(tools: Sequence[Tool], script: Sequence[TurnLike] = (), **members: object) -> Agent:
    model = ScriptedModel(script or [call("act", {"n": 1}), "Acted."])
    agent: Agent = Agent(model, name="clerk", tools=list(tools))
    return agent.with_(**members) if members else agent


def boss(store: Store, *agents: Agent, script: Sequence[TurnLike] = ()) -> Agent:
    names = [agent.name for agent in agents]
    calls = turn(*(call(name, {"task": f"for {name}"}) for name in names))
    model = ScriptedModel(script or [calls, "All done."])
    return Agent(model, name="boss", tools=[one.as_tool() for one in agents], store=store)


async def tree(store: Store) -> list[Listed]:
    """All sessions, the roots first, also where all are of one instant."""
    listed = (await store.list(Filters())).sessions
    return sorted(listed, key=lambda one: bool(one.header.parent_session))


async def verified(store: Store) -> dict[str, list[AnyEntry]]:
    """The entries of every session, each checked."""
    found: dict[str, list[AnyEntry]] = {}
    for listed in await tree(store):
        stored = await store.read(listed.id)
        reading = read_lines(stored.header, stored.lines)
        assert reading.faults == ()
        found[listed.id] = reading.session.entries
    return found


async def test_a_sub_agent_works_in_a_session_of_its_own_under_its_root() -> None:
    store, world = MemoryStore(), World()
    agent = boss(store, clerk([Act(world=world)]))
    result = await agent.run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {"call_t0_1": "Acted."})
    root, child = await tree(store)
    assert child.id == subsession_id(root.id, "call_t0_1")
    assert (child.header.root, child.header.parent_session) == (root.id, root.id)
    assert (child.header.spawned_by, child.header.agent) == ("call_t0_1", "clerk")
    entries = (await verified(store))[root.id]
    shown = shapes(entries)
    assert shown.index("link") < shown.index("dispatch")
    output = next(e for e in entries if b"function_call_output" in e.line)
    assert [ref.session for ref in output.parents] == [child.id]
    assert len(world.fired) == 1


async def test_a_finished_child_gives_its_recorded_answer() -> None:
    store, world = MemoryStore(), World()
    worker = clerk([Act(world=world)])
    await boss(store, worker).run("go", run_id=RUN)
    root = (await session_of(store)).entries
    cut = shapes(root).index("dispatch") + 1
    crashed = await copied(store, cut)
    result = await boss(crashed, worker).run("go", run_id=RUN)
    assert (result.status, outputs(result)) == ("done", {"call_t0_1": "Acted."})
    assert (len(world.fired), asked(worker)) == (1, 2)


async def copied(store: Store, keep_root: int, keep_child: int | None = None) -> MemoryStore:
    """What the next process finds if this one died with so much of root and child durable."""
    found = MemoryStore()
    keeps: list[int | None] = [keep_root, keep_child]
    for place, listed in enumerate(await tree(store)):
        stored = await store.read(listed.id)
        entries = read_lines(stored.header, stored.lines).session.entries
        keep = keeps[place] if place < len(keeps) else None
        if keep == 0:
            continue
        lease = await found.lease(stored.header.root, holder="x") if stored.header.root else None
        fence = lease.fence if lease is not None else None
        await found.create(
            stored.header, name=listed.name, batch=entries[:keep] if keep else entries, fence=fence
        )
        if lease is not None:
            await found.release(lease)
    return found


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_tree_cut_anywhere_ends_and_doubles_nothing(effect: str) -> None:
    store, before = MemoryStore(), World()
    await boss(store, clerk([Act(world=before, effect=effect)])).run("go", run_id=RUN)  # type: ignore[arg-type]
    root, child = (await verified(store)).values()
    dispatched = shapes(root).index("dispatch") + 1
    for keep in range(len(child) + 1):
        crashed = await copied(store, dispatched, keep)
        ran = "dispatch" in shapes(child[:keep])
        world = World()
        agent = boss(crashed, clerk([Act(world=world, effect=effect)]))  # type: ignore[arg-type]
        result = await agent.run("go", run_id=RUN)
        if result.status == "halted":
            (open_call,) = [one for one in result.pending if one.path]
            assert (effect, open_call.path) == ("once", ("call_t0_1",))
            await Runs(crashed).resolve(
                RUN, open_call.call.call_id, session=open_call.session, output="done by hand"
            )
            result = await agent.run("go", run_id=RUN)
        assert (result.status, result.text) == ("done", "All done."), keep
        if effect == "once" and ran:
            assert world.fired == [], keep
        await verified(crashed)


async def test_what_a_sub_agent_waits_for_is_shown_at_the_root_with_its_path() -> None:
    store, world = MemoryStore(), World()
    worker = clerk([Act(world=world)], middleware=[Holds()])
    middle = Agent(
        ScriptedModel([call("clerk", {"task": "act"}), "Clerk did."]),
        name="middle",
        tools=[worker.as_tool()],
    )
    agent = boss(store, middle)
    result = await agent.run("go", run_id=RUN)
    assert result.status == "input_required"
    assert [(one.call.name, one.reason, one.path) for one in result.pending] == [
        ("middle", "suspended", ()),
        ("clerk", "suspended", ("call_t0_1",)),
        ("act", "held", ("call_t0_1", "call_t0_1")),
    ]
    assert [one.run_id for one in await Runs(store).list(status="input_required")] == [RUN]
    written = {name: len(entries) for name, entries in (await verified(store)).items()}
    assert (await agent.run("go", run_id=RUN)).status == "input_required"
    assert {name: len(e) for name, e in (await verified(store)).items()} == written

    waiting = result.pending[-1]
    runs = Runs(store)
    with pytest.raises(NotHeld):
        await runs.approve(RUN, waiting.call.call_id)  # the root has a call of this id too
    await runs.approve(RUN, waiting.call.call_id, session=waiting.session, by="ann")
    (recovered,) = await recover(agent)
    assert (recovered.run_id, recovered.status) == (RUN, "done")
    assert len(world.fired) == 1


async def test_a_halt_of_a_sub_agent_is_a_halt_of_its_root() -> None:
    store = MemoryStore()

    def unsure(call: Call) -> str:
        raise OutcomeUnknown("the line dropped")

    world = World()
    agent = boss(store, clerk([Act(world=world, does=unsure)]))
    result = await agent.run("go", run_id=RUN)
    assert (result.status, len(world.fired)) == ("halted", 1)
    deep = result.pending[-1]
    await Runs(store).resolve(RUN, deep.call.call_id, session=deep.session, output="it is done")
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert len(world.fired) == 1


async def test_two_sub_agents_of_one_turn_each_go_their_own_way() -> None:
    store, first, second = MemoryStore(), World(), World()
    one = clerk([Act(world=first)])
    two = clerk([Act(world=second)], middleware=[Holds()], name="other")
    agent = boss(store, one, two)
    result = await agent.run("go", run_id=RUN)
    assert (result.status, len(first.fired), len(second.fired)) == ("input_required", 1, 0)
    waiting = result.pending[-1]
    await Runs(store).approve(RUN, waiting.call.call_id, session=waiting.session)
    result = await agent.run("go", run_id=RUN)
    assert (result.status, len(first.fired), len(second.fired)) == ("done", 1, 1)


async def test_a_sub_agent_that_fails_is_a_failed_tool_and_is_closed() -> None:
    store = MemoryStore()
    agent = boss(store, clerk([], [call("act")]))
    result = await agent.run("go", run_id=RUN)
    assert result.status == "done"
    assert "gave no answer" in outputs(result)["call_t0_1"]
    assert [one.summary.status for one in await tree(store)] == ["done", "failed"]


async def test_a_sub_agent_that_is_stopped_by_a_limit_gave_no_answer() -> None:
    store, world = MemoryStore(), World()
    worker = clerk([Act(world=world)], [call("act"), call("act"), "Acted."], max_turns=1)
    result = await boss(store, worker).run("go", run_id=RUN)
    assert outputs(result) == {"call_t0_1": "Error: agent 'clerk' gave no answer: max_turns"}


async def test_cancelling_the_root_closes_the_tree() -> None:
    store, world = MemoryStore(), World()
    agent = boss(store, clerk([Act(world=world)], middleware=[Holds()]))
    await agent.run("go", run_id=RUN)
    await Runs(store).cancel(RUN, reason="no need")
    assert [one.summary.status for one in await tree(store)] == ["cancelled", "cancelled"]
    assert (await agent.run("go", run_id=RUN)).cause == "no need"
    assert world.fired == []
    await verified(store)


async def test_a_driver_of_a_child_is_fenced_by_its_root() -> None:
    store, world = MemoryStore(), World()
    agent = boss(store, clerk([Act(world=world)], middleware=[Holds()]))
    await agent.run("go", run_id=RUN)
    root, child = await tree(store)
    stale = await store.lease(root.id, holder="one")
    await store.release(stale)
    await store.lease(root.id, holder="two")
    entry = seal(Draft("info", {"name": "late"}), None, "2026-11-30T00:00:00Z")
    with pytest.raises(FenceLost):
        await store.append(child.id, child.version, stale.fence, [entry])


async def test_a_sub_agent_in_a_recorded_chat_is_recorded_too() -> None:
    store, world = MemoryStore(), World()
    agent = boss(store, clerk([Act(world=world)]))
    async with agent.session("chat") as chat:
        assert (await chat.send("go")).status == "done"
    root, child = await tree(store)
    assert (child.header.root, child.header.run) == (root.id, None)


async def test_a_sub_agent_of_a_chat_is_told_of_what_a_run_would_halt_on() -> None:
    def unsure(call: Call) -> str:
        raise OutcomeUnknown("the line dropped")

    store, world = MemoryStore(), World()
    agent = boss(store, clerk([Act(world=world, does=unsure)]))
    async with agent.session("chat") as chat:
        result = await chat.send("go")
    assert (result.status, outputs(result)) == ("done", {"call_t0_1": "Acted."})
    assert len(world.fired) == 1


async def test_a_sub_agent_without_a_record_is_a_plain_tool() -> None:
    world = World()
    agent = boss(MemoryStore(), clerk([Act(world=world)])).with_(store="")
    result = await agent.run("go")
    assert outputs(result) == {"call_t0_1": "Acted."}


@pytest.mark.parametrize("arguments", ["{}", '{"task": 1}', '{"task": "x", "more": 1}', "[]"])
async def test_a_sub_agent_takes_a_task_and_nothing_else(arguments: str) -> None:
    worker = clerk([]).as_tool()
    with pytest.raises(ToolError):
        worker.check(arguments)  # type: ignore[attr-defined]


async def test_a_sub_agent_is_found_through_wrappers() -> None:
    store, world = MemoryStore(), World()
    worker = wrap(clerk([Act(world=world)], middleware=[Holds()]).as_tool(), description="Wrapped.")
    model = ScriptedModel([call("clerk", {"task": "act"}), "All done."])
    agent: Agent = Agent(model, tools=[worker], store=store)
    waiting = (await agent.run("go", run_id=RUN)).pending[-1]
    await Runs(store).approve(RUN, waiting.call.call_id, session=waiting.session)
    assert (await agent.run("go", run_id=RUN)).status == "done"
    assert len(world.fired) == 1


async def test_a_log_that_fails_under_a_child_is_no_failure_of_its_work() -> None:
    class Broken(MemoryStore):
        broken = True

        async def create(
            self,
            header: Header,
            *,
            name: str = "",
            batch: Sequence[AnyEntry] = (),
            fence: Fence | None = None,
            summary: Summary | None = None,
        ) -> Appended:
            if header.root and self.broken:
                raise FenceLost(header.root)
            return await super().create(
                header, name=name, batch=batch, fence=fence, summary=summary
            )

    store, world = Broken(), World()
    agent = boss(store, clerk([Act(world=world)]))
    result = await agent.run("go", run_id=RUN)
    assert (result.status, world.fired, outputs(result)) == ("suspended", [], {})
    store.broken = False
    result = await agent.run("go", run_id=RUN)
    assert (result.status, len(world.fired)) == ("done", 1)


async def test_the_keys_of_a_calls_operations_are_the_same_when_it_runs_again() -> None:
    keys: list[list[str]] = []
    store = MemoryStore()

    def work(call: Call) -> ToolResult:
        keys.append([call.next_key("a"), call.next_key("a"), call.next_key("b")])
        assert call.fence
        return ToolResult("ok")

    act = Act(world=World(), effect="idempotent", does=work)
    await agent_of(store, [act], one_call()).run("go", run_id=RUN)
    crashed = await cut_behind(store, "dispatch")
    await agent_of(crashed, [act], one_call()).run("go", run_id=RUN)
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 3


async def test_a_run_of_a_boss_that_fails_raises_as_any_run() -> None:
    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "x"

    agent: Agent = Agent(ScriptedModel([call("look")]), tools=[look], store=MemoryStore())
    with pytest.raises(RunFailed):
        await agent.run("go", run_id=RUN)

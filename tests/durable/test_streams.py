"""Streams of runs by id: what is recorded first, marked as replayed, then what happens."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure import (
    Agent,
    ConfigError,
    ModelRequest,
    RunFailed,
    RunResult,
    Runs,
    events_of,
    tool,
)
from perdure.errors import FenceLost, MissingKey, RecordedFailure, RunMismatch
from perdure.log import AnyEntry, Appended, Fence, Session, Store, Summary
from perdure.loop import (
    Event,
    ItemEnd,
    Retry,
    RunEnd,
    ToolDispatch,
    ToolEnd,
    TurnEnd,
)
from perdure.stores import open_store
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, fail, reasoning, turn
from perdure.testing.event_check import check_events
from perdure.testing.scripted import Script, TurnLike
from perdure.wire import FunctionCall, FunctionCallOutput
from tests.durable.told import drives, entered, gist, live, outputs, shown, until
from tests.durable.world import (
    RUN,
    Act,
    Holds,
    World,
    agent_of,
    asked,
    cut_after,
    cut_behind,
    entries_of,
    session_of,
)

# --- a run that is shown -----------------------------------------------------------------------


async def test_a_new_run_is_shown_live_and_gives_what_run_gives() -> None:
    store = MemoryStore()
    events, result = await shown(agent_of(store, [Act(world=World())]))
    check_events(events)
    assert live(events) == events
    assert (result.status, result.text, result.turns) == ("done", "All done.", 2)
    again = await agent_of(store, [Act(world=World())]).run("go", run_id=RUN)
    assert again == result


async def test_a_finished_run_shows_its_record_asks_no_model_and_writes_nothing() -> None:
    store = MemoryStore()
    first = await agent_of(store, [Act(world=World())]).run("go", run_id=RUN)
    before = await entries_of(store)
    world = World()
    agent = agent_of(store, [Act(world=world)])
    events, result = await shown(agent)
    check_events(events)
    assert live(events) == []
    assert all(event.durable for event in events)
    assert result == first
    assert (asked(agent), world.fired) == (0, [])
    assert await entries_of(store) == before


async def test_consumers_early_and_late_see_the_same_sequence() -> None:
    store = await cut_behind(await whole(), "response")
    agent = agent_of(store, [Act(world=World())])
    async with agent.stream("go", run_id=RUN) as stream:

        async def collect() -> list[Event]:
            return [event async for event in stream.events()]

        early = [asyncio.create_task(collect()) for _ in range(2)]
        await stream.result()
        late = await collect()
        assert [await one for one in early] == [late, late]
        assert [event.replayed for event in late] == sorted(
            (event.replayed for event in late), reverse=True
        )
        assert "".join([piece async for piece in stream.text()]) == "All done."
        items = [item async for item in stream.items()]
        assert items == [event.item for event in late if isinstance(event, ItemEnd)]


async def test_a_crash_between_the_answer_and_its_marker_shows_the_same_answer() -> None:
    store = await whole()
    marked = [entry.type for entry in await entries_of(store)].index("perdure:closed")
    cut = await cut_after(store, marked)
    agent = agent_of(cut, [Act(world=World())])
    events, result = await shown(agent)
    assert (result.status, result.text, asked(agent)) == ("done", "All done.", 0)
    assert live(events) == []
    assert (await entries_of(cut))[-1].type == "perdure:closed"


async def test_text_and_partial_output_of_a_record_come_whole() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel([call("final_answer", {"n": 3})]), output=Told, store=store)
    await agent.run("go", run_id=RUN)
    async with agent.stream("go", run_id=RUN) as stream:
        values = [value async for value in stream.partial_output()]
        assert values == [{"n": 3}]
        assert (await stream.result()).output == Told(3)


@dataclasses.dataclass
class Told:
    """A number."""

    n: int


# --- what a stream refuses, and how it ends --------------------------------------------------


async def test_what_run_refuses_entering_the_stream_raises() -> None:
    store = MemoryStore()
    agent = agent_of(store, [])
    with pytest.raises(ConfigError):
        await agent.stream("go", run_id="").__aenter__()
    await agent.with_(model=ScriptedModel(["Hello."])).run("go", run_id=RUN)
    with pytest.raises(RunMismatch):
        await agent.stream("another input", run_id=RUN).__aenter__()


async def test_a_missing_key_is_told_on_entering_and_not_asked_of_a_finished_run() -> None:
    store = MemoryStore()
    keyless: Agent = Agent("groq:some-model", store=store)
    with pytest.raises(MissingKey):
        await keyless.stream("go", run_id=RUN).__aenter__()
    await keyless.with_(model=ScriptedModel(["Hello."])).run("go", run_id=RUN)
    _, result = await shown(keyless)
    assert result.text == "Hello."


async def test_what_keeps_a_run_from_going_on_is_raised_on_leaving_if_nobody_asked() -> None:
    store = await cut_behind(await whole(), "response")
    keyless: Agent = Agent(
        "groq:some-model", store=store, tools=[Act(world=World(), effect="none")]
    )
    stream = keyless.with_(tool_provider=broken_tools).stream("go", run_id=RUN)
    with pytest.raises(ZeroDivisionError):
        async with stream:
            assert [event async for event in stream.events()]
    stream = keyless.with_(tool_provider=broken_tools).stream("go", run_id=RUN)
    async with stream:
        with pytest.raises(ZeroDivisionError):
            await stream.result()


async def broken_tools() -> list[Act]:
    raise ZeroDivisionError


async def test_a_run_that_fails_raises_in_result_and_its_end_says_so() -> None:
    agent = agent_of(MemoryStore(), [], [fail("no luck")], retry=Retry())
    async with agent.stream("go", run_id=RUN) as stream:
        events = [event async for event in stream.events()]
        with pytest.raises(RunFailed, match="no luck") as failed:
            await stream.result()
    assert failed.value.result.status == "failed"
    check_events(events)
    replayed = events_of(await session_of(store_of(agent)))
    check_events(replayed)
    assert isinstance(replayed[-1], RunEnd)
    assert isinstance(replayed[-1].error, RecordedFailure)


def store_of(agent: Agent) -> Store:
    assert not isinstance(agent.store, str)
    return agent.store


async def test_leaving_a_stream_aborts_the_drive_and_winds_down() -> None:
    store, world = MemoryStore(), World()
    running = asyncio.Event()

    @tool(effect="none")
    async def wait() -> str:
        running.set()
        await asyncio.sleep(60)
        return "never"

    agent = agent_of(store, [wait], [call("wait"), "Later."])
    async with agent.stream("go", run_id=RUN) as stream:
        await running.wait()
    events = [event async for event in stream.events()]
    check_events(events)
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert (end.reason, str(end.error)) == ("aborted", "the consumer left")
    assert (await stream.result()).status == "aborted"
    done = agent_of(store, [Act(world=world, name="wait", effect="none")], [call("wait"), "Later."])
    assert (await done.run("go", run_id=RUN)).text == "Later."


async def test_an_abort_by_hand_ends_the_run_as_aborted() -> None:
    running = asyncio.Event()

    async def slow(_: ModelRequest) -> TurnLike:
        running.set()
        await asyncio.sleep(60)
        return "never"

    agent = agent_of(MemoryStore(), [], [slow])
    async with agent.stream("go", run_id=RUN) as stream:
        await running.wait()
        stream.abort("somebody pressed Esc")
        result = await stream.result()
    assert (result.status, result.cause) == ("aborted", "somebody pressed Esc")


# --- another driver -------------------------------------------------------------------------------


class Gate:
    """Holds up a tool until a test opens it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self) -> str:
        self.reached.set()
        await self.open.wait()
        return "through"


def gated(store: Store, gate: Gate) -> Agent:
    @tool(effect="idempotent", name="pass")
    async def through() -> str:
        return await gate()

    return agent_of(store, [through], [call("pass"), call("pass"), "All done."], grace=0.01)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
async def test_a_run_that_another_drives_is_shown_as_its_entries_land(
    kind: str, tmp_path: Path
) -> None:
    gate = Gate()
    first, second = two_ends(kind, tmp_path)
    other = asyncio.create_task(gated(first, gate).run("go", run_id=RUN))
    await gate.reached.wait()
    agent = gated(second, Gate())
    async with agent.stream("go", run_id=RUN) as stream:
        events = stream.events()
        async for event in events:
            if isinstance(event, ToolDispatch):
                break
        gate.open.set()  # only now, so it was shown while the other drives
        rest = [event async for event in events]
        assert await stream.result() == await other
    assert asked(agent) == 0
    assert all(event.replayed for event in rest)
    everything = [event async for event in stream.events()]
    check_events(everything)
    assert sum(isinstance(event, TurnEnd) for event in everything) == 3
    await first.close()
    await second.close()


def two_ends(kind: str, path: Path) -> tuple[Store, Store]:
    """A store as two processes have it."""
    if kind == "memory":
        store = MemoryStore()
        return store, store
    url = f"sqlite:///{path / 'log.db'}" if kind == "sqlite" else f"file://{path / 'log'}"
    return open_store(url), open_store(url)


async def test_leaving_while_another_drives_leaves_its_run_alone() -> None:
    store, gate = MemoryStore(), Gate()
    other = asyncio.create_task(gated(store, gate).run("go", run_id=RUN))
    await gate.reached.wait()
    async with gated(store, Gate()).stream("go", run_id=RUN) as stream:
        pass
    assert (await stream.result()).status == "running"
    gate.open.set()
    assert (await other).status == "done"


async def test_a_run_whose_driver_stops_is_taken_over_and_goes_on_live() -> None:
    store, gate = MemoryStore(), Gate()
    other = asyncio.create_task(gated(store, gate).run("go", run_id=RUN))
    await gate.reached.wait()
    free = Gate()
    free.open.set()
    agent = gated(store, free)
    async with agent.stream("go", run_id=RUN) as stream:
        other.cancel()
        events = [event async for event in stream.events()]
        result = await stream.result()
    with pytest.raises(asyncio.CancelledError):
        await other
    check_events(events)
    assert (result.status, result.text) == ("done", "All done.")
    assert (drives(events), drives(live(events))) == (2, 1)
    first = next(event for event in events if isinstance(event, RunEnd))
    assert (first.reason, first.replayed) == ("aborted", True)


async def test_a_stream_entered_before_anything_was_recorded_waits_for_the_other_driver() -> None:
    store = MemoryStore()
    asking, answer = asyncio.Event(), asyncio.Event()

    async def slow(_: ModelRequest) -> TurnLike:
        asking.set()
        await answer.wait()
        return "Hello."

    other = asyncio.create_task(agent_of(store, [], [slow]).run("go", run_id=RUN))
    await asking.wait()
    async with agent_of(store, [], []).stream("go", run_id=RUN) as stream:
        answer.set()
        assert "".join([piece async for piece in stream.text()]) == "Hello."
    assert (await other).text == "Hello."


class Deposing(MemoryStore):
    """Another driver takes the lease, once, before an append that the test counts to."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        self._left -= 1
        if self._left == 0:
            raise FenceLost(session)
        return await super().append(
            session, version, fence, batch, consumed=consumed, summary=summary
        )


@pytest.mark.parametrize("at", range(1, 8))
async def test_a_driver_that_is_deposed_anywhere_goes_on_in_the_same_stream(at: int) -> None:
    store = Deposing(at)
    events, result = await shown(reckless(store))
    check_events(events)
    assert (result.status, result.text) == ("done", "All done.")
    ends = [event for event in events if isinstance(event, RunEnd)]
    lost = [end for end in ends if isinstance(end.error, FenceLost)]
    assert len(lost) <= 1
    assert not any(end.durable for end in lost)
    assert ends[-1].reason == "done"
    await session_of(store)


# --- several drives --------------------------------------------------------------------------


async def test_an_approval_that_arrives_while_it_streams_goes_on_in_the_same_stream() -> None:
    store, gate = MemoryStore(), Gate()

    @tool(effect="idempotent", name="pass")
    async def through() -> str:
        return await gate()

    world = World()
    agent = agent_of(
        store,
        [through, Act(world=world)],
        [turn(call("act", {"n": 1}), call("pass")), "All done."],
        middleware=[Holds()],
    )
    runs = Runs(store)
    async with agent.stream("go", run_id=RUN) as stream:
        await gate.reached.wait()
        await until(lambda: held(store))
        (waiting,) = [one for one in (await runs.get(RUN)).pending if one.reason == "held"]
        await runs.approve(RUN, waiting.call.call_id, by="ann")
        gate.open.set()
        events = [event async for event in stream.events()]
        result = await stream.result()
    check_events(events)
    assert (result.status, result.text, len(world.fired)) == ("done", "All done.", 1)
    assert [event.reason for event in events if isinstance(event, RunEnd)] == [
        "input_required",
        "done",
    ]
    assert live(events) == events
    replayed = events_of(await session_of(store))
    check_events(replayed)
    assert gist(replayed) == gist(events)


async def held(store: Store) -> bool:
    pending = (await Runs(store).get(RUN)).pending
    return any(one.call.name == "act" and one.reason == "held" for one in pending)


async def test_a_run_that_waits_shows_that_and_then_the_rest_in_the_next_stream() -> None:
    store, world = MemoryStore(), World()
    agent = agent_of(store, [Act(world=world)], middleware=[Holds()])
    events, result = await shown(agent)
    assert result.status == "input_required"
    first, second = (one.call.call_id for one in result.pending)
    await Runs(store).approve(RUN, first, by="ann")
    await Runs(store).deny(RUN, second, by="bo", reason="too dear")
    more, done = await shown(agent)
    check_events(more)
    assert gist([event for event in more if event.replayed]) == gist(events)
    assert gist(live(more))[0] == "run_start resume"
    assert done.status == "done"
    answered = {
        event.item.call_id: event.answer
        for event in events_of(await session_of(store))
        if isinstance(event, ItemEnd) and isinstance(event.item, FunctionCallOutput)
    }
    denial = answered[second]
    assert denial is not None
    assert (denial.by, denial.provenance and denial.provenance.who) == ("human", "bo")
    assert answered[first] is None


async def test_the_pause_of_a_sub_agent_is_shown_as_its_calls_wait() -> None:
    store, world = MemoryStore(), World()
    script: Script = [call("act", {"n": 1}), "The sub-agent is done."]
    sub: Agent = Agent(
        ScriptedModel(script), name="sub", tools=[Act(world=world)], middleware=[Holds()]
    )
    both = turn(call("sub", {"task": "act"}), call("act", {"n": 2}))
    root = agent_of(store, [sub.as_tool(), Act(world=world)], [both, "All done."])
    events, paused = await shown(root)
    check_events(events)
    assert paused.status == "input_required"
    (waits,) = [event for event in events if isinstance(event, ToolEnd) and event.wait]
    assert waits.held
    assert gist(events_of(await session_of(store))) == gist(events)

    (inner,) = [one for one in paused.pending if one.path]
    await Runs(store).approve(RUN, inner.call.call_id, session=inner.session, by="ann")
    more, result = await shown(root)
    check_events(more)
    assert (result.status, result.text, len(world.fired)) == ("done", "All done.", 2)
    assert gist(events_of(await session_of(store))) == gist(more)


async def test_a_cancel_while_it_streams_shows_how_the_calls_were_closed() -> None:
    store, gate = MemoryStore(), Gate()
    agent = gated(store, gate)
    async with agent.stream("go", run_id=RUN) as stream:
        await gate.reached.wait()
        await Runs(store).cancel(RUN, by="ann", reason="too late")
        events = [event async for event in stream.events()]
        result = await stream.result()
    check_events(events)
    assert (result.status, result.cause) == ("cancelled", "too late")
    assert list(outputs(events)) == [one.call_id for one in outputs_of(result)]


def outputs_of(result: RunResult) -> list[FunctionCallOutput]:
    return [item for item in result.items if isinstance(item, FunctionCallOutput)]


# --- a run that was cut anywhere ---------------------------------------------------------------


def three_turns() -> Script:
    return [
        turn(reasoning("Let me see."), call("act", {"n": 1}), call("slow"), call("act", {"n": 2})),
        call("act", {"n": 3}),
        "All done.",
    ]


def reckless(store: Store) -> Agent:
    """An agent all of whose calls may run again."""

    @tool(effect="idempotent")
    async def slow() -> str:
        await asyncio.sleep(0.002)
        return "slow"

    return agent_of(store, [Act(world=World(), effect="idempotent"), slow], three_turns())


async def whole() -> MemoryStore:
    """A run that went to its end."""
    store = MemoryStore()
    assert (await agent_of(store, [Act(world=World())]).run("go", run_id=RUN)).status == "done"
    return store


async def test_a_run_cut_at_any_entry_and_streamed_tells_the_same_as_one_that_was_not_cut() -> None:
    store = MemoryStore()
    uncut, result = await shown(reckless(store))
    check_events(uncut)
    told = events_of(await session_of(store))
    for keep, inside in enumerate(cuts(await session_of(store)), 1):
        cut = await cut_after(store, keep)
        agent = reckless(cut)
        events, again = await shown(agent)
        check_events(events)
        assert (again.status, again.text) == ("done", "All done.")
        before = events_of(await session_of(await cut_after(store, keep)))
        assert before == told[: len(before)]
        recorded = events_of(await session_of(cut))
        check_events(recorded)
        if not inside:
            assert turns(events) == turns(uncut)
            assert outputs(events) == outputs(uncut)
            assert sorted(outputs_of_run(again)) == sorted(outputs_of_run(result))
        else:
            assert all("cut" in text for text in more_than(outputs(events), outputs(uncut)))
        # What went on live stands in the record as it was told.
        assert gist(recorded) == gist(events)


def cuts(session: Session) -> list[bool]:
    """For each place where a run may be cut: whether it lies within a response."""
    inside: list[bool] = []
    for entry in session.entries:
        response = entry.members.get("response") if entry.type == "item" else None
        inside.append(bool(response))
    return inside


def turns(events: Sequence[Event]) -> list[tuple[str, str]]:
    """What the model said, turn by turn."""
    items = [event.item for event in entered(events) if isinstance(event, ItemEnd)]
    return [(str(item.type), getattr(item, "arguments", "")) for item in items]


def outputs_of_run(result: RunResult) -> list[tuple[str, str]]:
    return [(one.call_id, one.text) for one in outputs_of(result)]


def more_than(found: dict[str, str], known: dict[str, str]) -> list[str]:
    return [text for call_id, text in found.items() if known.get(call_id) != text]


async def test_results_stand_in_call_order_though_the_record_took_them_in_another() -> None:
    store, gate = MemoryStore(), Gate()

    @tool(effect="idempotent", name="pass")
    async def through() -> str:
        return await gate()

    quick = Act(world=World(), effect="idempotent", name="quick")
    script: Script = [turn(call("pass"), call("quick"), call("quick")), "All done."]
    agent = agent_of(store, [through, quick], script)
    running = asyncio.create_task(agent.run("go", run_id=RUN))
    await gate.reached.wait()
    await until(lambda: landed(store, 2))
    crashed = await cut_after(store, len(await entries_of(store)))
    gate.open.set()
    await running
    events = events_of(await session_of(store))
    check_events(events)
    order = [one.call_id for one in calls_of(await session_of(store))]
    ends = [event.call_id for event in events if isinstance(event, ToolEnd)]
    assert sorted(ends) == order != ends
    assert list(outputs(events)) == order
    ended = next(event for event in events if isinstance(event, TurnEnd))
    assert [one.output for one in ended.tool_results] == [outputs(events)[one] for one in order]

    free = agent_of(crashed, [Act(world=World(), effect="idempotent", name="pass"), quick], script)
    again, result = await shown(free)
    check_events(again)
    assert result.status == "done"
    assert sorted(outputs(again)) == order
    assert drives(again) == 2


def calls_of(session: Session) -> list[FunctionCall]:
    return [one for one in session.context().items if isinstance(one, FunctionCall)]


async def landed(store: Store, count: int) -> bool:
    return [entry.type for entry in await entries_of(store)].count("perdure:result") == count

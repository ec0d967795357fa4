"""What a record tells, beside what was told when it was made."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest

from perdure import (
    Agent,
    Guard,
    ModelRequest,
    OutcomeUnknown,
    RunFailed,
    Tool,
    ToolDecision,
    before_model_call,
    before_tool_call,
    events_of,
    invoke,
    on_message,
    replay_model,
    tool,
)
from perdure.errors import ServerFailed, Truncated, UnsupportedFormat
from perdure.log import Store, read_session
from perdure.loop import (
    Event,
    ItemEnd,
    Middleware,
    Queued,
    Retry,
    RunEnd,
    ToolCallInfo,
    ToolEnd,
    ToolStart,
    TurnStart,
)
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, attempts, call, error, fail, reasoning, turn
from perdure.testing.event_check import check_events
from perdure.testing.scripted import Script
from perdure.wire import Message
from tests.durable.told import gist, outputs
from tests.durable.world import (
    RUN,
    Act,
    Holds,
    World,
    agent_of,
    session_of,
    two_calls,
)
from tests.loop.scenario import RECORDED, plain, play
from tests.loop.scenario_format import Scenario
from tests.shared_data import ROOT, find, needs_shared


class Heard(Middleware):
    """All that a run tells."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def on_event(self, event: Event) -> None:
        self.events.append(event)


@before_tool_call
async def rejects(info: ToolCallInfo) -> ToolDecision | None:
    reject = ToolDecision(action="reject", reason="not today")
    return reject if info.call.name == "act" else None


@before_model_call
async def blocks(_: ModelRequest) -> ModelRequest:
    raise Guard("the request says too much")


@before_model_call
async def breaks(_: ModelRequest) -> ModelRequest:
    raise ValueError("the hook broke")


@on_message
async def withholds(_message: Message, _info: object) -> Message:
    raise Guard("the answer says too much")


@tool(effect="once")
async def unsure() -> str:
    raise OutcomeUnknown("nobody knows")


@tool(effect="none")
async def outer() -> str:
    return str((await invoke("act", {"n": 0})).output)


NOW = Retry(max_attempts=3, backoff=lambda _number, _error: 0.0)

RUNS: dict[str, tuple[Script, dict[str, object]]] = {
    "calls": (
        [turn(reasoning("Let me see."), call("act"), call("slow"), call("act")), "All done."],
        {},
    ),
    "one that is retried": ([attempts(ServerFailed("busy"), "Hello.")], {"retry": NOW}),
    "one that fails": ([fail("no")], {"retry": Retry()}),
    "one that breaks off": ([turn("Hel", error(Truncated()))], {"retry": Retry()}),
    "a thought and a cut": (
        [turn(reasoning("Hm."), call("act"), error(Truncated()))],
        {"retry": Retry()},
    ),
    "a truncated answer": ([turn(call("act"), incomplete="max_output_tokens")], {}),
    "a turn limit": ([call("act")] * 3, {"max_turns": 2}),
    "held calls": (two_calls(), {"middleware": [Holds()]}),
    "some held, some not": (
        [turn(call("act", {"n": 1}), call("slow"), call("act", {"n": 2})), "Done."],
        {"middleware": [Holds()]},
    ),
    "a halt": ([turn(call("unsure"), call("act"))], {}),
    "nothing but a guard": (["Hello."], {"middleware": [blocks]}),
    "a broken hook": (["Hello."], {"middleware": [breaks]}),
    "a withheld answer": ([turn("Hello.", call("act"))], {"middleware": [withholds]}),
}


def wide(store: Store, script: Script, members: dict[str, object]) -> tuple[Agent, Heard]:
    heard = Heard()
    middleware = (heard, *members.get("middleware", ()))  # type: ignore[misc]

    @tool(effect="none")
    async def slow() -> str:
        await asyncio.sleep(0.002)
        return "slow"

    tools: list[Tool] = [Act(world=World(), effect="idempotent"), slow, unsure, outer]
    return agent_of(store, tools, script, **{**members, "middleware": middleware}), heard


@pytest.mark.parametrize("what", RUNS)
async def test_the_record_tells_what_was_told(what: str) -> None:
    script, members = RUNS[what]
    store = MemoryStore()
    agent, heard = wide(store, script, members)
    with contextlib.suppress(RunFailed):
        await agent.run("go", run_id=RUN)
    check_events(heard.events)
    replayed = events_of(await session_of(store))
    check_events(replayed)
    assert gist(replayed) == gist(heard.events)


@pytest.mark.parametrize(
    "script",
    [
        [turn(call("nobody"), call("slow"), call("act", "[1]")), "Done."],
        [turn(call("act"), call("slow")), "Done."],
    ],
    ids=["unknown and malformed", "rejected"],
)
async def test_calls_that_never_ran_are_told_with_their_outputs(script: Script) -> None:
    store = MemoryStore()
    members: dict[str, object] = {"middleware": [rejects]}
    agent, heard = wide(store, script, members)
    await agent.run("go", run_id=RUN)
    replayed = events_of(await session_of(store))
    check_events(replayed)
    check_events(heard.events)
    assert outputs(replayed) == outputs(heard.events)
    names = [event.name for event in replayed if isinstance(event, ToolStart)]
    assert names == [event.name for event in heard.events if isinstance(event, ToolStart)]
    ends = {event.call_id: event for event in replayed if isinstance(event, ToolEnd)}
    assert len(ends) == len(names)


SCENARIOS = {
    path.stem: msgspec.json.decode(path.read_bytes(), type=Scenario)
    for path in sorted((ROOT / "tests" / "scenarios").glob("*.json"))
}


@pytest.mark.parametrize("name", [n for n, one in SCENARIOS.items() if not one.transcript])
async def test_every_scenario_of_the_loop_is_told_in_order_by_its_record(name: str) -> None:
    store = MemoryStore()
    *_, final = await play(SCENARIOS[name], store)
    told = events_of(await session_of(store, RECORDED))
    check_events(told)
    items = [plain(event.item) for event in told if isinstance(event, ItemEnd)]
    assert items == final
    begun = [drive for drive in SCENARIOS[name].drives if drive.expect.refused is None]
    assert sum(isinstance(event, RunEnd) for event in told) == len(begun)


async def test_a_call_that_a_tool_made_lies_within_its_own() -> None:
    store = MemoryStore()
    agent, _ = wide(store, [call("outer"), "Done."], {})
    await agent.run("go", run_id=RUN)
    replayed = events_of(await session_of(store))
    check_events(replayed)
    tools = [event for event in replayed if isinstance(event, ToolStart | ToolEnd)]
    assert [(event.type, event.name) for event in tools] == [
        ("tool_start", "outer"),
        ("tool_start", "act"),
        ("tool_end", "act"),
        ("tool_end", "outer"),
    ]
    assert tools[1].parent == tools[2].parent == tools[0].call_id


async def test_a_session_with_queues_is_projected_too() -> None:
    store = MemoryStore()
    agent: Agent = Agent(ScriptedModel(["One.", "Two."]), store=store)
    heard = Heard()
    async with agent.with_(middleware=[heard]).session("chat") as chat:
        chat.follow_up("and then this")
        await chat.send("first this")
    replayed = events_of(await session_of(store, "chat"))
    check_events(replayed)
    assert gist(replayed) == gist(heard.events)
    (queued,) = [event for event in replayed if isinstance(event, Queued)]
    assert [event.queue_id for event in replayed if isinstance(event, ItemEnd)].count(
        queued.queue_id
    ) == 1


async def test_a_prefix_of_a_record_tells_the_first_of_its_events() -> None:
    session = await session_of(await driven())
    told = events_of(session)
    for entry in session.entries:
        first = events_of(session, entry.id)
        assert first == told[: len(first)]


async def test_the_work_of_a_projection_grows_with_the_record() -> None:
    script: Script = [*[call("act") for _ in range(60)], "Done."]
    store = MemoryStore()
    await agent_of(store, [Act(world=World(), effect="none")], script, max_turns=None).run(
        "go", run_id=RUN
    )
    session = await session_of(store)
    told = events_of(session)
    check_events(told)
    starts = [event for event in told if isinstance(event, TurnStart)]
    assert len(starts) == 61
    memos = {id(start.request.input.memo) for start in starts}
    assert len(memos) == 1  # all are snapshots of one list, and no turn copies it
    assert len({id(start.request.settings) for start in starts}) == 1


def fixtures() -> list[Path]:
    shared = find()
    if shared is None:
        return []
    return sorted((shared / "fixtures" / "agentsession" / "sessions").glob("*.jsonl"))


@needs_shared
@pytest.mark.parametrize("path", fixtures(), ids=lambda path: str(path.stem))
def test_records_of_other_writers_tell_events_in_order(path: Path) -> None:
    try:
        reading = read_session(path.read_bytes())
    except UnsupportedFormat:
        return
    replay_model(reading.session)
    for head in reading.session.heads:
        told = events_of(reading.session, head)
        assert all(event.replayed for event in told)
        if not reading.faults and reading.session.at(head).drives.open is None:
            check_events(told)


async def driven() -> MemoryStore:
    """A run that went to its end."""
    store = MemoryStore()
    await agent_of(store, [Act(world=World())]).run("go", run_id=RUN)
    return store

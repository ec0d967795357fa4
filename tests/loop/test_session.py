"""The life of a session: starting, ending, and what may be changed when."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from perdure.agent import Agent
from perdure.errors import (
    AlreadyRunning,
    ConfigError,
    DuplicateTool,
    InsideEventLoop,
    NoPrompt,
    RunFailed,
)
from perdure.loop import Event, RunEnd, current_run_id, drive_scope
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.testing.clock import settle
from perdure.tools import Call
from perdure.wire import assistant, user
from tests.loop.fakes import Ear, Failure, Tool, fails, listening, texts, until_told, waits


class Instructions:
    """Instructions that are slow to come, and may fail."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.gate = asyncio.Event()
        self.failure = failure

    async def __call__(self) -> str:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return "be brief"


async def test_what_fails_while_a_drive_is_started_leaves_the_session_free() -> None:
    slow = Instructions(Failure("no instructions"))
    slow.gate.set()
    session, ear = listening(Agent(ScriptedModel(["hi"]), instructions=slow))
    with pytest.raises(Failure):
        await session.send("go")
    assert not session.state.running
    assert ear.events == []
    slow.failure = None
    assert (await session.send("go")).text == "hi"
    ear.check()


async def test_a_session_that_is_starting_a_drive_cannot_be_changed() -> None:
    slow = Instructions()
    session, ear = listening(Agent(ScriptedModel(["hi"]), instructions=slow))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    with pytest.raises(AlreadyRunning):
        session.set_transcript([])
    with pytest.raises(AlreadyRunning):
        session.use(session.agent)
    slow.gate.set()
    await sending
    assert texts(session.state.transcript) == ["user: go", "assistant: hi"]
    ear.check()


async def test_leaving_a_session_stops_what_runs_and_starts_nothing_that_waits() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "one", "two"])
    agent = Agent(model, tools=[Tool("a", until_told)], clock=FakeClock())
    ear = Ear()
    async with agent.session() as session:
        session.subscribe(ear)
        first = asyncio.create_task(session.send("go"))
        await settle()
        second = asyncio.create_task(session.send("on"))
        await settle()
    assert (await first).status == "aborted"
    with contextlib.suppress(ConfigError):
        await second
    assert ear.names.count("run_start") == 1
    assert len(model.requests) == 1
    ear.check()


async def test_an_abort_reaches_a_drive_that_is_being_started() -> None:
    slow = Instructions()
    model = ScriptedModel(["hi"])
    session, ear = listening(Agent(model, instructions=slow))
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort("esc")
    slow.gate.set()
    result = await sending
    assert (result.status, result.cause, model.requests) == ("aborted", "esc", [])
    ear.check()


async def test_waiting_for_idle_inside_the_drive_is_refused() -> None:
    async def waits_for_itself(call: Call) -> str:
        with pytest.raises(AlreadyRunning):
            await session.wait_for_idle()
        return "ok"

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, _ = listening(Agent(model, tools=[Tool("a", waits_for_itself)]))
    assert (await asyncio.wait_for(session.send("go"), 5)).text == "done"


async def test_waiting_for_idle_ends_with_the_drive() -> None:
    gate = asyncio.Event()
    session, ear = listening(
        Agent(ScriptedModel([call("a", {}, "c1"), "done"]), tools=[Tool("a", waits(gate))])
    )
    await session.wait_for_idle()
    sending = asyncio.create_task(session.send("go"))
    await settle()
    waiting = asyncio.create_task(session.wait_for_idle())
    await settle()
    assert not waiting.done()
    gate.set()
    await waiting
    assert ear.names[-1] == "run_end"
    await sending


async def test_nothing_to_say_is_refused() -> None:
    session, ear = listening(Agent(ScriptedModel(["hi"])))
    with pytest.raises(NoPrompt):
        await session.send([])
    with pytest.raises(NoPrompt):
        await Agent(ScriptedModel(["hi"])).run([])
    with pytest.raises(ConfigError):
        await session.send([assistant("I speak first")])
    assert ear.events == []


async def test_delivering_nothing_is_refused() -> None:
    session, _ = listening(Agent(ScriptedModel(["hi"])))
    with pytest.raises(ConfigError):
        await asyncio.wait_for(session.deliver(), 5)


async def test_a_sync_call_inside_an_event_loop_says_what_to_call_instead() -> None:
    with pytest.raises(InsideEventLoop, match=r"Agent\.run"):
        Agent(ScriptedModel(["hi"])).run_sync("go")


def test_a_sync_call_in_a_script_runs() -> None:
    assert Agent(ScriptedModel(["hi"])).run_sync("go").text == "hi"


def test_two_tools_of_one_name_are_refused_when_the_agent_is_defined() -> None:
    with pytest.raises(DuplicateTool):
        Agent(ScriptedModel([]), tools=[Tool("a"), Tool("a")])


@pytest.mark.parametrize("members", [{"max_turns": 0}, {"max_parallel": 0}], ids=str)
def test_a_limit_that_is_not_positive_is_refused(members: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Agent(ScriptedModel([]), **members)  # type: ignore[arg-type]


async def test_a_failure_carries_the_result_and_the_session_goes_on() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done", "more"])
    session, ear = listening(Agent(model, tools=[Tool("a")]))
    ear.on("turn_end", fails("disk full"))
    with pytest.raises(RunFailed) as failed:
        await session.send("go")
    assert isinstance(failed.value.cause, Failure)
    assert failed.value.result.status == "failed"
    assert texts(failed.value.result.items)[-1] == "output c1: ok"
    assert (await session.send("on")).text == "done"
    ear.check()


async def test_hooks_and_tools_know_the_drive_they_serve() -> None:
    seen: list[tuple[str, int]] = []

    async def looks(call: Call) -> str:
        scope = drive_scope()
        seen.append((scope.run_id, len(scope.transcript)))
        return "ok"

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a", looks)]))
    await session.send("go")
    assert seen == [(ear.end.run_id, 2)]
    assert current_run_id() == ""
    with pytest.raises(ConfigError):
        drive_scope()


async def test_sessions_of_one_agent_do_not_know_each_other() -> None:
    agent = Agent(ScriptedModel(lambda number: "so"))
    sessions = [agent.session() for _ in range(10)]
    results = await asyncio.gather(*(one.send(str(n)) for n, one in enumerate(sessions)))
    assert len({result.run_id for result in results}) == 10
    assert [texts(one.state.transcript)[0] for one in sessions] == [f"user: {n}" for n in range(10)]


async def test_a_tool_may_run_another_agent() -> None:
    inner = Agent(ScriptedModel(["42"]))

    async def asks(call: Call) -> str:
        return (await inner.run("what is it?")).text

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    session, ear = listening(Agent(model, tools=[Tool("a", asks)]))
    result = await session.send([user("go")])
    assert "output c1: 42" in texts(result.items)
    ear.check()


async def test_every_drive_of_a_session_has_one_end_and_an_id_of_its_own() -> None:
    session, ear = listening(Agent(ScriptedModel(["one", "two", "three"])))
    for _ in range(3):
        await session.send("go")
    ends: list[Event] = [event for event in ear.events if isinstance(event, RunEnd)]
    assert len({event.run_id for event in ends}) == 3
    ear.check()

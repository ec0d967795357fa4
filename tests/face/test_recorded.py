"""An agent with a store: what it records, and what a session takes up after a restart."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from perdure import (
    Agent,
    ConfigError,
    RunFailed,
    ToolDecision,
    ToolError,
    approve,
    before_tool_call,
    tool,
)
from perdure.errors import Leased
from perdure.log import Filters, Lease, Store, read_lines
from perdure.loop import Event, Middleware, ToolCallInfo
from perdure.stores import open_store
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, text as say
from perdure.testing.event_check import check_events
from perdure.testing.scripted import TurnLike
from perdure.wire import FunctionCallOutput, user


@pytest.fixture(params=["file", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind: str = request.param
    return f"file://{tmp_path / 'log'}" if kind == "file" else f"sqlite:///{tmp_path / 'log.db'}"


async def verified(url: str) -> list[list[str]]:
    """The entry types of every session of a store, each verified."""
    store = open_store(url)
    try:
        found: list[list[str]] = []
        for one in (await store.list(Filters())).sessions:
            stored = await store.read(one.id)
            reading = read_lines(stored.header, stored.lines)
            assert reading.faults == ()
            found.append([entry.type for entry in reading.session.entries])
        return found
    finally:
        await store.close()


@tool(effect="none")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_run_is_recorded_as_a_session_that_verifies(url: str) -> None:
    model = ScriptedModel([call("add", {"a": 1, "b": 2}), say("It is 3.")])
    result = await Agent(model, tools=[add], store=url).run("1 + 2?")
    assert result.text == "It is 3."
    (types,) = await verified(url)
    assert types.count("response") == 2
    assert types[-1] == "run"


async def test_a_streamed_run_is_recorded_and_lets_go_of_its_session(url: str) -> None:
    async with Agent(ScriptedModel(["Hello."]), store=url).stream("hi") as stream:
        assert "".join([piece async for piece in stream.text()]) == "Hello."
        await stream.result()
    assert len(await verified(url)) == 1


async def test_a_session_goes_on_after_a_restart_with_all_that_was_said(url: str) -> None:
    async with Agent(ScriptedModel(["One."]), store=url).session("chat-7") as chat:
        await chat.send("first")
    model = ScriptedModel({1: "Two."}.__getitem__)
    async with Agent(model, store=url).session("chat-7") as chat:
        assert (await chat.send("second")).text == "Two."
        assert len(chat.state.transcript) == 4
    assert [getattr(item, "text", "") for item in model.requests[0].input] == [
        "first",
        "One.",
        "second",
    ]


def held() -> Middleware:
    @before_tool_call
    async def hold(info: ToolCallInfo) -> ToolDecision:
        return ToolDecision(action="hold", reason="ask first")

    return hold


async def test_a_held_call_waits_over_a_restart_and_runs_once_approved(url: str) -> None:
    script = [call("add", {"a": 1, "b": 2}), say("Done.")]
    agent = Agent(ScriptedModel(script), tools=[add], store=url, middleware=[held()])
    async with agent.session("chat") as chat:
        result = await chat.send("go")
        assert result.status == "input_required"
    agent = Agent(ScriptedModel(script), tools=[add], store=url)
    async with agent.session("chat") as chat:
        (waiting,) = chat.state.pending
        assert (waiting.reason, waiting.may_have_run) == ("held", False)
        result = await chat.resume(approve(waiting.call.call_id, by="human"))
        assert result.text == "Done."
    await verified(url)


async def test_a_call_that_was_cut_in_its_tool_is_not_run_again_and_the_model_is_told(
    url: str,
) -> None:
    ran: list[str] = []

    @tool  # the effect is `once`
    async def charge() -> str:
        """Charge."""
        ran.append("charge")
        chat.abort("killed")
        raise ToolError("cut")

    @tool(name="charge")
    async def again() -> str:
        """Charge."""
        ran.append("again")
        return "charged"

    script = [call("charge"), say("I will check.")]
    agent = Agent(ScriptedModel(script), tools=[charge], store=url, grace=0.01)
    async with agent.session("chat") as chat:
        await chat.send("charge me")
    async with Agent(ScriptedModel(script), tools=[again], store=url).session("chat") as chat:
        result = await chat.send("well?")
        outputs = [i for i in chat.state.transcript if isinstance(i, FunctionCallOutput)]
    assert ran == ["charge"]
    assert result.text == "I will check."
    assert len(outputs) == 1
    await verified(url)


async def test_what_was_queued_and_not_taken_is_owed_to_the_next_process(url: str) -> None:
    async with Agent(ScriptedModel(["One."]), store=url).session("chat") as chat:
        await chat.send("first")
        chat.follow_up("later")
    async with Agent(ScriptedModel({1: "Two."}.__getitem__), store=url).session("chat") as chat:
        assert len(chat.state.follow_ups) == 1


async def test_only_one_driver_has_a_session_at_a_time(url: str) -> None:
    store: Store = open_store(url)
    agent = Agent(ScriptedModel(["One."]), store=store)
    async with agent.session("chat"):
        with pytest.raises(Leased):
            async with agent.session("chat"):
                pass
    await store.close()


class Brief(MemoryStore):
    """Its leases lapse at once, if nobody renews them."""

    async def lease(self, root: str, *, holder: str, seconds: float = 30.0) -> Lease:
        return await super().lease(root, holder=holder, seconds=seconds / 200)


async def test_an_open_session_keeps_its_lease_however_long_nothing_happens() -> None:
    store = Brief()
    agent = Agent(ScriptedModel(["One."]), store=store)
    async with agent.session("chat") as chat:
        await asyncio.sleep(0.5)
        with pytest.raises(Leased):
            async with agent.session("chat"):
                pass
        assert (await chat.send("hi")).text == "One."
    async with agent.session("chat"):
        pass


async def test_whoever_lost_the_lease_of_a_session_enters_no_tool() -> None:
    store = MemoryStore()
    ran: list[str] = []

    @tool
    async def charge() -> str:
        """Charge."""
        ran.append("charge")
        return "charged"

    agent = Agent(ScriptedModel([call("charge"), say("Done.")]), tools=[charge], store=store)
    async with agent.session("chat") as chat:
        (listed,) = (await store.list(Filters())).sessions
        recording = chat._recording
        assert recording is not None
        await store.release(recording.lease)
        taken = await store.lease(listed.id, holder="another")
        with pytest.raises(RunFailed):
            await chat.send("go")
        await store.release(taken)
    assert ran == []


async def test_a_name_without_a_store_is_kept_in_the_memory_of_the_process() -> None:
    async with Agent(ScriptedModel(["One."])).session("face-memory") as chat:
        await chat.send("first")
    async with Agent(ScriptedModel([])).session("face-memory") as chat:
        assert len(chat.state.transcript) == 2


@pytest.mark.parametrize("given", [{"store": "memory:"}, {"name": "chat"}])
async def test_a_recorded_session_that_was_not_entered_says_nothing_unrecorded(
    given: dict[str, str],
) -> None:
    model = ScriptedModel(["One."])
    chat = Agent(model, store=given.get("store", "")).session(given.get("name", ""))
    with pytest.raises(ConfigError, match="recorded once it is entered"):
        await chat.send("hi")
    assert model.requests == []
    async with chat:
        assert (await chat.send("hi")).text == "One."


@pytest.mark.parametrize("given", [{"store": "memory:"}, {"name": "chat"}])
def test_a_recorded_session_takes_no_transcript(given: dict[str, str]) -> None:
    agent = Agent(ScriptedModel(["One."]), store=given.get("store", ""))
    with pytest.raises(ConfigError, match="begins from its record"):
        agent.session(given.get("name", ""), transcript=[user("hi")])


async def test_a_store_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="no store for"):
        await Agent(ScriptedModel(["One."]), store="redis://x").run("hi")


async def test_an_agent_keeps_the_store_it_opened_until_it_is_closed(url: str) -> None:
    agent = Agent(ScriptedModel(["One."]), store=url)
    store = agent.opened(url)
    assert agent.opened(url) is store
    await agent.aclose()
    assert agent.opened(url) is not store
    await agent.aclose()


async def test_what_is_queued_between_drives_is_told_to_subscribers_and_written_once() -> None:
    store = MemoryStore()
    heard: list[Event] = []

    async def ear(event: Event) -> None:
        heard.append(event)

    agent = Agent(ScriptedModel(["One.", "Two."]), store=store)
    async with agent.session("chat") as chat:
        chat.subscribe(ear)
        chat.follow_up("and then?")
        await chat.send("hi")
    assert [event.type for event in heard].count("queued") == 1
    check_events(heard)
    (listed,) = (await store.list(Filters())).sessions
    lines = (await store.read(listed.id)).lines
    assert sum(b'"type":"queued"' in line for line in lines) == 1


async def test_a_chat_is_told_of_a_tool_that_outlived_its_time_and_refuses_what_it_gives_late() -> (
    None
):
    store, gate = MemoryStore(), asyncio.Event()

    @tool(timeout=0.05)
    async def charge() -> str:
        """Charge, and heed nothing."""
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return "charged"

    script: list[TurnLike] = [call("charge"), "I cannot tell.", "Still not."]
    agent = Agent(ScriptedModel(script), tools=[charge], store=store, grace=0.01)
    async with agent.session("chat") as chat:
        assert (await chat.send("go")).text == "I cannot tell."
        gate.set()
        await asyncio.sleep(0.05)
        assert (await chat.send("and now?")).text == "Still not."
    async with agent.session("chat"):
        pass
    (listed,) = (await store.list(Filters())).sessions
    stored = await store.read(listed.id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    shown = [
        f"{entry.type} {entry.members.get('verdict', '')}".strip()
        for entry in reading.session.entries
    ]
    assert shown.index("dispatch") < shown.index("decision answer")
    assert shown.count("perdure:refused") == 1
    assert await store.unconsumed(listed.id) == ()

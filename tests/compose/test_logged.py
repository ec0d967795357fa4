"""A conversation in perdure's log: its state is a projection of what happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import call_model
from perdure.compose import (
    ClientTool,
    LogState,
    Settlement,
    ToolContext,
    client_tool,
    human_tool,
    manual_tool,
    settle_tasks,
)
from perdure.errors import ConfigError, InputRequired, ServerFailed
from perdure.log import Filters, read_lines
from perdure.loop import Retry
from perdure.stores import open_store
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, attempts, call, fail, turn
from perdure.wire import function_call_output
from tests.compose.helpers import Counter, check_pairs, check_requests, outputs


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def entries(store: MemoryStore, name: str) -> list[str]:
    found = (await store.list(Filters(name=name), limit=1)).sessions
    stored = await store.read(found[0].id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    return [entry.type for entry in reading.session.view().path]


async def test_a_run_is_recorded_and_the_state_says_what_the_log_says(store: MemoryStore) -> None:
    counter, state = Counter(), LogState(store, "chat")
    assert await state.load() is None
    model = ScriptedModel([call("work", {"x": "a"}, "c1"), "done", "again"])
    result = call_model(model, "go", tools=[counter.tool()], state=state)
    assert await result.text() == "done"
    loaded = await state.load()
    assert loaded == await result.state()
    assert loaded is not None
    assert loaded.status == "complete"
    assert check_pairs(loaded.messages) == []
    assert loaded.previous_response_id == "resp_t1"
    assert "response" in await entries(store, "chat")
    await call_model(model, "and?", tools=[counter.tool()], state=LogState(store, "chat")).text()
    after = await state.load()
    assert after is not None
    assert after.messages[:4] == loaded.messages
    assert len(after.messages) == 6
    check_requests(model)


def every_kind(counter: Counter) -> list[ClientTool]:
    @human_tool(output=str)
    async def ask() -> str | None:
        """Ask."""
        return None

    return [counter.tool("gated", require_approval=True), ask, manual_tool("mine")]


async def test_every_pause_is_seen_in_the_log_and_gone_on_from(store: MemoryStore) -> None:
    counter, state = Counter(), LogState(store, "chat")
    every = turn(
        call("gated", {"x": "g"}, "c_g"), call("ask", call_id="c_a"), call("mine", call_id="c_m")
    )
    model = ScriptedModel([every, "done"])
    tools = every_kind(counter)
    result = call_model(model, "go", tools=tools, state=state)
    await result.text()
    loaded = await state.load()
    assert loaded is not None
    assert loaded.status == "awaiting_approval"
    assert [(one.id, one.why) for one in loaded.pending_tool_calls] == [
        ("c_g", "approval"),
        ("c_a", "hitl"),
        ("c_m", "client"),
    ]
    with pytest.raises(InputRequired):
        await call_model(model, "and?", tools=tools, state=state).text()
    approved = call_model(model, tools=tools, state=LogState(store, "chat"), approve=["c_g"])
    await approved.text()
    assert (await approved.state()).status == "awaiting_hitl"
    answers = [function_call_output("c_a", '"yes"'), function_call_output("c_m", "mine")]
    done = call_model(model, answers, tools=tools, state=LogState(store, "chat"))
    assert await done.text() == "done"
    assert counter.ran == ["g"]
    assert outputs(model.requests[1]) == {"c_g": "did g", "c_a": '"yes"', "c_m": "mine"}
    assert (await done.state()).status == "complete"
    check_requests(model)


async def test_a_rejected_call_is_answered_in_the_log(store: MemoryStore) -> None:
    counter, state = Counter(), LogState(store, "chat")
    model = ScriptedModel([call("gated", {"x": "g"}, "c1"), "done"])
    tools = every_kind(counter)
    await call_model(model, "go", tools=tools, state=state).text()
    done = call_model(model, tools=tools, state=state, reject={"c1": "no"})
    assert await done.text() == "done"
    assert counter.ran == []
    assert outputs(model.requests[1])["c1"] == "Error: no"


async def test_tasks_and_what_else_the_log_does_not_say_stand_in_an_entry(
    store: MemoryStore,
) -> None:
    @client_tool(output=int, lifecycle="deferred", effect="none")
    async def later(ctx: ToolContext) -> object:
        """Answer later."""
        return ctx.defer("job-1")

    state = LogState(store, "chat")
    model = ScriptedModel([call("later", call_id="c1"), "done"])
    await call_model(model, "go", tools=[later], state=state, tool_choice="required").text()
    loaded = await state.load()
    assert loaded is not None
    assert loaded.status == "awaiting_async_tools"
    assert loaded.consumed_tool_choice == "required"
    assert [one.task_id for one in loaded.tasks] == ["job-1"]
    settled = await settle_tasks(state, Settlement(task_id="job-1", result=42), tools=[later])
    assert settled.status == "in_progress"
    assert await call_model(model, tools=[later], state=state).text() == "done"
    after = await state.load()
    assert after is not None
    assert after.status == "complete"
    assert after.tasks[0].delivered


async def test_a_run_that_died_goes_on_from_its_record(store: MemoryStore) -> None:
    ran: list[str] = []

    @client_tool(effect="idempotent")
    async def work(x: str) -> str:
        """Work."""
        ran.append(x)
        return f"did {x}"

    state = LogState(store, "chat")
    model = ScriptedModel([call("work", {"x": "a"}, "c1"), attempts(fail("no"), "done")])
    with pytest.raises(ServerFailed):
        await call_model(model, "go", tools=[work], state=state, retry=Retry()).text()
    loaded = await state.load()
    assert loaded is not None
    assert loaded.status == "in_progress"
    assert await call_model(model, tools=[work], state=state).text() == "done"
    assert ran == ["a"]


async def test_an_interruption_stops_a_recorded_run(store: MemoryStore) -> None:
    state = LogState(store, "chat")

    @client_tool(effect="none")
    async def work() -> str:
        """Work."""
        await state.interrupt("ann")
        return "did it"

    model = ScriptedModel([call("work", call_id="c1"), "done"])
    result = call_model(model, "go", tools=[work], state=state)
    await result.text()
    ended = await result.state()
    assert (ended.status, ended.interrupted_by) == ("interrupted", "ann")
    again = call_model(model, tools=[work], state=state)
    assert await again.text() == "done"
    assert (await again.state()).status == "complete"


async def test_files_keep_a_conversation(tmp_path: Path) -> None:
    for number, words in enumerate(("one", "two")):
        store = open_store(f"file:{tmp_path}/runs")
        model = ScriptedModel(["one", "two"])
        result = call_model(model, f"say {number}", state=LogState(store, "chat"))
        assert await result.text() == words
        await store.close()


def test_a_recorded_conversation_has_a_name(store: MemoryStore) -> None:
    with pytest.raises(ConfigError, match="name"):
        LogState(store, "")

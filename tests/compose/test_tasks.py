"""Tasks that outlive their calls: in the background here, or settled from elsewhere."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from perdure import call_model
from perdure.compose import (
    AsyncSettled,
    AsyncStarted,
    ClientTool,
    ModelResult,
    Settlement,
    ToolContext,
    client_tool,
    settle_tasks,
)
from perdure.errors import Aborted, ConfigError, InvalidArguments, TaskSettled
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.wire import FunctionCallOutput, Message
from tests.compose.helpers import Counter, CountingIds, Kept, check_requests, outputs


class Bench:
    """A background tool that ends when the test says so."""

    def __init__(self, **options: object) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []
        self.cancelled: list[str] = []

        @client_tool(name="slow", output=dict, lifecycle="background", effect="none", **options)  # type: ignore[call-overload, untyped-decorator]
        async def slow(x: str, ctx: ToolContext) -> dict[str, object]:
            """Work slowly."""
            self.begun.append(x)
            ctx.log(f"begun {x}")
            try:
                await self.gates.setdefault(x, asyncio.Event()).wait()
            except asyncio.CancelledError:
                self.cancelled.append(x)
                raise
            if x == "bad":
                raise ValueError("went wrong")
            return {"did": x}

        self.tool: ClientTool = slow

    def end(self, x: str) -> None:
        self.gates.setdefault(x, asyncio.Event()).set()


def messages(model: ScriptedModel, number: int) -> list[dict[str, object]]:
    """The outcomes that the last message of a request tells."""
    last = model.requests[number].input[-1]
    assert isinstance(last, Message)
    first, *lines = last.text.split("\n")
    assert "Machine-generated" in first
    return [msgspec.json.decode(line) for line in lines]


async def full(result: ModelResult) -> list[object]:
    return [event async for event in result.full_responses_stream()]


async def test_a_task_that_ends_within_its_grace_is_an_ordinary_result() -> None:
    bench = Bench(grace=5)
    bench.end("a")
    model = ScriptedModel([call("slow", {"x": "a"}, "c1"), "done"])
    result = call_model(model, "go", tools=[bench.tool])
    events = await full(result)
    assert outputs(model.requests[1]) == {"c1": '{"did":"a"}'}
    assert not [event for event in events if isinstance(event, AsyncStarted | AsyncSettled)]
    assert await result.tasks() == ()


async def test_a_task_that_takes_longer_has_a_placeholder_and_its_outcome_is_told_later() -> None:
    bench, counter = Bench(grace=0, ack={"eta": "soon"}), Counter()

    def second(request: object) -> object:
        bench.end("a")
        return call("work", {"x": "w"}, "c2")

    model = ScriptedModel([call("slow", {"x": "a"}, "c1"), second, "done"])  # type: ignore[list-item]
    kept = Kept()
    result = call_model(
        model, "go", tools=[bench.tool, counter.tool()], state=kept, ids=CountingIds()
    )
    events = await full(result)
    placeholder = msgspec.json.decode(outputs(model.requests[1])["c1"])
    (task,) = await result.tasks()
    assert placeholder == {
        "status": "pending",
        "task_id": task.task_id,
        "note": placeholder["note"],
        "eta": "soon",
    }
    assert messages(model, 2) == [
        {
            "type": "tool_task_result",
            "tool": "slow",
            "task_id": task.task_id,
            "call_id": "c1",
            "status": "completed",
            "result": {"did": "a"},
        }
    ]
    assert (task.status, task.delivered, task.log) == ("completed", True, ("begun a",))
    started = [event for event in events if isinstance(event, AsyncStarted)]
    ended = [event for event in events if isinstance(event, AsyncSettled)]
    assert [event.task_id for event in started] == [event.task_id for event in ended]
    assert kept.status() == "complete"
    check_requests(model)


async def test_the_end_waits_for_tasks_and_tells_their_outcomes_once_more() -> None:
    bench, clock = Bench(grace=0), FakeClock()
    both = turn(call("slow", {"x": "a"}, "c1"), call("slow", {"x": "bad"}, "c2"))
    model = ScriptedModel([both, "meanwhile", "all done"], clock=clock)
    result = call_model(model, "go", tools=[bench.tool], clock=clock)
    result.begin()
    await clock.advance(1)
    bench.end("a")
    bench.end("bad")
    await clock.advance(1)
    assert await result.text() == "all done"
    assert [one["status"] for one in messages(model, 2)] == ["completed", "failed"]
    assert "went wrong" in str(messages(model, 2)[1]["error"])
    assert model.requests[2].settings.tool_choice == "none"


async def test_the_end_waits_for_thirty_seconds_and_no_longer() -> None:
    bench, clock, kept = Bench(grace=0), FakeClock(), Kept()
    model = ScriptedModel([call("slow", {"x": "a"}, "c1"), "answer"], clock=clock)
    result = call_model(model, "go", tools=[bench.tool], clock=clock, state=kept)
    result.begin()
    await clock.advance(29)
    assert kept.statuses[-1] == "in_progress"
    await clock.advance(40)
    assert await result.text() == "answer"
    (task,) = await result.tasks()
    assert task.status == "pending"
    bench.end("a")
    await settle()


@pytest.mark.parametrize(("policy", "status"), [("cancel", "cancelled"), ("detach", "orphaned")])
async def test_the_end_may_stop_tasks_or_let_them_go(policy: str, status: str) -> None:
    bench, kept = Bench(grace=0), Kept()
    model = ScriptedModel([call("slow", {"x": "a"}, "c1"), "answer", "next"])
    result = call_model(model, "go", tools=[bench.tool], state=kept, on_run_end=policy)  # type: ignore[arg-type]
    assert await result.text() == "answer"
    (task,) = await result.tasks()
    assert task.status == status
    assert bench.cancelled == (["a"] if policy == "cancel" else [])
    bench.end("a")
    await settle()
    await call_model(model, "and?", tools=[bench.tool], state=kept).text()
    assert [one["status"] for one in messages(model, 2)] == [status]


async def test_background_calls_of_a_round_begin_together() -> None:
    bench, clock = Bench(grace=10), FakeClock()
    calls = [call("slow", {"x": name}) for name in "abc"]
    model = ScriptedModel([turn(*calls), "answer"], clock=clock)
    result = call_model(model, "go", tools=[bench.tool], clock=clock, on_run_end="cancel")
    result.begin()
    await clock.advance(10)
    assert bench.begun == ["a", "b", "c"]
    assert await result.text() == "answer"


async def test_a_saturated_tool_holds_no_place_of_the_pool() -> None:
    narrow = Bench(grace=0, max_concurrency=1)
    done: list[str] = []

    @client_tool(output=str, lifecycle="background", grace=0, effect="none")
    async def other(x: str) -> str:
        """Work."""
        done.append(x)
        return x

    calls = [call("slow", {"x": name}) for name in "abc"]
    model = ScriptedModel([turn(*calls, call("other", {"x": "o"})), "answer"])
    result = call_model(
        model, "go", tools=[narrow.tool, other], background_concurrency=2, on_run_end="cancel"
    )
    assert await result.text() == "answer"
    assert narrow.begun == ["a"]
    assert done == ["o"]


async def test_a_task_out_of_time_is_expired_and_not_completed() -> None:
    bench, clock = Bench(grace=0, timeout=5), FakeClock()
    model = ScriptedModel([call("slow", {"x": "a"}, "c1"), "answer", "told"], clock=clock)
    result = call_model(model, "go", tools=[bench.tool], clock=clock)
    result.begin()
    await clock.advance(6)
    assert await result.text() == "told"
    (task,) = await result.tasks()
    assert task.status == "expired"
    assert "timed out after 5 s" in task.error


async def test_a_run_that_pauses_keeps_the_outcomes_of_its_tasks() -> None:
    bench, counter, kept, clock = Bench(grace=0), Counter(), Kept(), FakeClock()
    both = turn(call("slow", {"x": "a"}, "c1"), call("gated", {"x": "g"}, "c2"))
    model = ScriptedModel([both, "done"], clock=clock)
    tools = [bench.tool, counter.tool("gated", require_approval=True)]
    result = call_model(model, "go", tools=tools, state=kept, clock=clock)
    result.begin()
    await clock.advance(1)
    bench.end("a")
    await clock.advance(1)
    await result.text()
    assert kept.status() == "awaiting_approval"
    assert [(one.status, one.delivered) for one in kept.now.tasks] == [("completed", False)]
    await call_model(model, tools=tools, state=kept, approve=["c2"]).text()
    assert messages(model, 1)[0]["result"] == {"did": "a"}
    assert [one.delivered for one in kept.now.tasks] == [True]
    check_requests(model)


async def test_a_run_that_is_cancelled_stops_its_tasks() -> None:
    bench = Bench(grace=0)
    entered = asyncio.Event()

    @client_tool(effect="none")
    async def wait() -> None:
        """Wait."""
        entered.set()
        await asyncio.Event().wait()

    model = ScriptedModel([call("slow", {"x": "a"}), call("wait")])
    result = call_model(model, "go", tools=[bench.tool, wait])
    result.begin()
    await entered.wait()
    result.cancel()
    with pytest.raises(Aborted):
        await result.text()
    assert bench.cancelled == ["a"]


async def test_a_run_that_waits_for_its_tasks_can_be_cancelled() -> None:
    bench, clock = Bench(grace=0), FakeClock()
    model = ScriptedModel([call("slow", {"x": "a"}), "answer"], clock=clock)
    result = call_model(model, "go", tools=[bench.tool], clock=clock)
    result.begin()
    await clock.advance(1)
    result.cancel("enough")
    with pytest.raises(Aborted, match="enough"):
        await result.text()
    assert bench.cancelled == ["a"]


async def test_a_dead_process_leaves_orphans_that_the_next_run_tells() -> None:
    import dataclasses

    from perdure.compose import AsyncTask, create_initial_state

    dead = AsyncTask(task_id="t", call_id="c", name="slow", mode="background")
    kept = Kept(dataclasses.replace(create_initial_state(), tasks=(dead,)))
    model = ScriptedModel(["hello"])
    await call_model(model, "hi", tools=[Bench().tool], state=kept).text()
    assert messages(model, 0)[0]["status"] == "orphaned"
    assert kept.status() == "complete"


# --- deferred -----------------------------------------------------------------------------


def deferring(counter: Counter) -> ClientTool:
    @client_tool(output=int, lifecycle="deferred", effect="none")
    async def later(x: str, ctx: ToolContext) -> object:
        """Answer later."""
        counter.ran.append(x)
        return 7 if x == "now" else ctx.defer(f"job-{x}", note="ask the warehouse")

    return later


async def deferred(kept: Kept, *names: str) -> tuple[ScriptedModel, list[ClientTool]]:
    tools = [deferring(Counter())]
    calls = [call("later", {"x": name}, f"c_{name}") for name in names]
    model = ScriptedModel([turn(*calls), "done", "more"])
    await call_model(model, "go", tools=tools, state=kept).text()
    return model, tools


async def test_a_deferred_result_pauses_and_comes_from_elsewhere() -> None:
    kept = Kept()
    model, tools = await deferred(kept, "a")
    assert kept.status() == "awaiting_async_tools"
    assert len(model.requests) == 1
    (task,) = kept.now.tasks
    assert (task.task_id, task.mode, task.status) == ("job-a", "deferred", "pending")
    state = await settle_tasks(kept, Settlement(task_id="job-a", result=42), tools=tools)
    assert state.status == "in_progress"
    assert await call_model(model, tools=tools, state=kept).text() == "done"
    assert "ask the warehouse" in outputs(model.requests[1])["c_a"]
    assert messages(model, 1)[0]["result"] == 42
    assert kept.status() == "complete"
    assert kept.now.tasks[0].delivered


async def test_a_deferring_tool_may_answer_at_once() -> None:
    kept = Kept()
    model, _ = await deferred(kept, "now")
    assert outputs(model.requests[1]) == {"c_now": "7"}
    assert kept.status() == "complete"


async def test_the_pause_lasts_until_every_task_has_its_outcome() -> None:
    kept = Kept()
    _, tools = await deferred(kept, "a", "b")
    await settle_tasks(kept, Settlement(call_id="c_a", result=1), tools=tools)
    assert kept.status() == "awaiting_async_tools"
    await settle_tasks(kept, Settlement(task_id="job-b", cancelled=True), tools=tools)
    assert kept.status() == "in_progress"
    assert [one.status for one in kept.now.tasks] == ["completed", "cancelled"]


async def test_a_task_is_settled_once() -> None:
    kept = Kept()
    _, tools = await deferred(kept, "a")
    await settle_tasks(kept, Settlement(task_id="job-a", error="lost"), tools=tools)
    with pytest.raises(TaskSettled, match="failed"):
        await settle_tasks(kept, Settlement(task_id="job-a", result=1), tools=tools)
    before = kept.now
    await settle_tasks(
        kept, Settlement(task_id="job-a", result=1), tools=tools, ignore_settled=True
    )
    assert kept.now == before


async def test_nothing_is_written_unless_every_outcome_can_be_taken() -> None:
    kept = Kept()
    _, tools = await deferred(kept, "a", "b")
    before = kept.now
    good = Settlement(task_id="job-a", result=1)
    with pytest.raises(InvalidArguments, match="job-b"):
        await settle_tasks(kept, good, Settlement(task_id="job-b", result="no"), tools=tools)
    with pytest.raises(ConfigError, match="no task"):
        await settle_tasks(kept, good, Settlement(task_id="job-x", result=1), tools=tools)
    with pytest.raises(ConfigError, match="not among the tools"):
        await settle_tasks(kept, good, tools=[])
    with pytest.raises(ConfigError, match="belongs to"):
        await settle_tasks(kept, good, tools=tools, tool_name="other")
    assert kept.now == before


async def test_settling_leaves_another_pause_alone() -> None:
    counter, kept = Counter(), Kept()
    tools = [deferring(Counter()), counter.tool("gated", require_approval=True)]
    both = turn(call("later", {"x": "a"}, "c1"), call("gated", {"x": "g"}, "c2"))
    model = ScriptedModel([both, "done"])
    await call_model(model, "go", tools=tools, state=kept).text()
    assert kept.status() == "awaiting_approval"
    await settle_tasks(kept, Settlement(task_id="job-a", result=1), tools=tools)
    assert kept.status() == "awaiting_approval"
    await call_model(model, tools=tools, state=kept, approve=["c2"]).text()
    assert kept.status() == "complete"
    assert messages(model, 1)[0]["result"] == 1


async def test_an_id_that_is_taken_and_a_tool_that_may_not_defer_are_errors_of_the_call() -> None:
    @client_tool(effect="none")
    async def ordinary(ctx: ToolContext) -> object:
        """Try to defer."""
        return ctx.defer("job-z")

    kept = Kept()
    tools = [deferring(Counter()), ordinary]
    calls = [call("later", {"x": "a"}, "c1"), call("later", {"x": "a"}, "c2"), call("ordinary")]
    model = ScriptedModel([turn(*calls), "done"])
    await call_model(model, "go", tools=tools, state=kept).text()
    items = [one for one in kept.now.messages if isinstance(one, FunctionCallOutput)]
    said = {one.call_id: one.text for one in items}
    assert "is taken" in said["c2"]
    assert any("cannot defer" in text for text in said.values())

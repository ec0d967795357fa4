"""The kinds of tools: what they are made of, what they give, what they share."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

import msgspec
import pytest

from perdure import RawTool, call_model, tool
from perdure.compose import (
    ClientTool,
    ContextStore,
    Final,
    Lifecycle,
    ModelResult,
    ToolContext,
    ToolPreliminaryResult,
    ToolResultEvent,
    ToolVerdict,
    TurnContext,
    as_client,
    client_tool,
    execute_tool,
    execute_tools,
    execution_errors,
    execution_output,
    executions_by_call,
    has_approval_configured,
    has_approval_required_tools,
    has_execute,
    human_tool,
    is_auto_resolvable,
    is_client_tool,
    is_generator_tool,
    is_hitl_tool,
    is_long_running,
    is_manual_tool,
    is_mcp_tool,
    is_regular_tool,
    is_server_tool,
    manual_tool,
    mark_mcp,
    partition_tool_calls,
    sanitize_schema,
    server_tool,
    summarize_executions,
    tool_context,
)
from perdure.compose.turns import tool_call_of
from perdure.errors import ConfigError, NeedsApproval
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.tools import definition
from perdure.wire import function_call, input_text
from tests.compose.helpers import Counter, Kept, outputs


def one_call(name: str, arguments: Mapping[str, object] | str | None = None) -> ScriptedModel:
    return ScriptedModel([call(name, arguments, "c1"), "done"])


async def output_of(one: ClientTool, arguments: Mapping[str, object] | str | None = None) -> str:
    model = one_call(one.name, arguments)
    assert await call_model(model, "go", tools=[one]).text() == "done"
    return outputs(model.requests[1])["c1"]


async def full(result: ModelResult) -> list[object]:
    return [event async for event in result.full_responses_stream()]


# --- what a tool is --------------------------------------------------------------------------


@tool
def plain(x: str) -> str:
    """Plain."""
    return x


@client_tool(output=str)
async def regular(x: str) -> str:
    """Regular."""
    return x


@client_tool(output=int, events=str)
async def counting(upto: int) -> AsyncIterator[object]:
    """Count."""
    for number in range(upto):
        yield f"at {number}"
    yield Final(upto)


@human_tool(output=str)
async def ask(question: str) -> str | None:
    """Ask."""
    return None


@client_tool(output=int, lifecycle="background", require_approval=True)
async def slow() -> int:
    """Slow."""
    return 1


mine = manual_tool("mine", "Mine.", parameters={"type": "object", "properties": {}})
search = server_tool({"type": "web_search"})

PREDICATES = {
    is_client_tool: {plain, regular, counting, ask, slow, mine},
    is_server_tool: {search},
    is_manual_tool: {mine},
    is_hitl_tool: {ask},
    is_generator_tool: {counting},
    is_regular_tool: {plain, regular, slow},
    has_execute: {plain, regular, counting, slow},
    is_auto_resolvable: {plain, regular, counting, ask, slow},
    is_long_running: {slow},
    has_approval_configured: {slow},
}


def test_what_a_tool_is() -> None:
    every = [plain, regular, counting, ask, slow, mine]
    for predicate, those in PREDICATES.items():
        found = {one for one in every if predicate(one)}  # type: ignore[arg-type]
        assert found | ({search} if predicate is is_server_tool else set()) == those, predicate
        assert predicate(search) is (predicate is is_server_tool)
    assert has_approval_required_tools([plain, slow])
    assert not has_approval_required_tools([plain, search])


def test_a_tool_is_made_with_options_or_without_of_types_that_stand_beside_it() -> None:
    class Place(msgspec.Struct):
        town: str

    @client_tool
    def plainly(place: Place) -> str:
        return place.town

    @client_tool(name="named")
    def with_options(place: Place) -> str:
        return place.town

    assert plainly.parameters == with_options.parameters
    assert "town" in json.dumps(plainly.parameters)
    assert (plainly.name, with_options.name) == ("plainly", "named")
    assert {"fn", "name", "effect"} <= inspect.signature(client_tool).parameters.keys()


def test_a_mark_is_a_copy_and_changes_nothing_on_the_wire() -> None:
    marked = mark_mcp(regular)
    assert is_mcp_tool(marked)
    assert not is_mcp_tool(regular)
    assert definition(marked) == definition(regular)
    assert is_mcp_tool(mark_mcp(plain))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: human_tool(output=None), "what the answer is"),
        (lambda: human_tool(output=str, effect="once")(regular.inner.fn), "may be put again"),  # type: ignore[attr-defined]
        (lambda: client_tool(lifecycle="background")(regular.inner.fn), "what its result will be"),  # type: ignore[attr-defined]
        (lambda: server_tool({"name": "x"}), "has a type"),
        (lambda: client_tool(name="shared")(regular.inner.fn), "all tools share"),  # type: ignore[attr-defined]
        (lambda: client_tool(max_concurrency=0)(regular.inner.fn), "at least 1"),  # type: ignore[attr-defined]
        (lambda: client_tool(timeout=-1)(regular.inner.fn), "positive"),  # type: ignore[attr-defined]
    ],
)
def test_what_cannot_be_a_tool_is_refused(make: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()  # type: ignore[operator]


def test_what_a_tool_says_of_itself_holds_in_any_kind() -> None:
    from perdure.tools import effect_of, traits

    @tool(effect="keyed", resource="db", sequential=True)
    async def inner(x: str) -> str:
        """Work."""
        return x

    marked = mark_mcp(inner)
    assert effect_of(marked, "{}") == "keyed"
    assert traits(marked).resource == "db"
    assert traits(marked).sequential
    assert not hasattr(marked, "nothing")


def test_a_sync_generator_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match="make the generator async"):

        @client_tool
        def generate() -> object:
            yield 1


def test_a_name_that_is_needed_for_tasks_is_reserved_where_there_are_tasks() -> None:
    model = ScriptedModel(["x"])
    task = manual_tool("task")
    call_model(model, "hi", tools=[task])
    with pytest.raises(ConfigError, match="'task' is reserved"):
        call_model(model, "hi", tools=[task, slow])


def test_strict_is_on_the_wire_where_it_was_asked_for() -> None:
    @client_tool(strict=True)
    async def exact(x: str) -> str:
        """Exact."""
        return x

    assert definition(exact).strict is True
    assert not definition(regular).strict


def test_a_schema_loses_what_only_others_read() -> None:
    schema = {"~standard": 1, "properties": {"a": {"~x": 1, "type": "string"}}, "l": [{"~y": 2}]}
    assert sanitize_schema(schema) == {"properties": {"a": {"type": "string"}}, "l": [{}]}


# --- arguments -------------------------------------------------------------------------------


async def test_empty_arguments_are_none_and_blank_ones_too() -> None:
    @client_tool(effect="none")
    async def work(x: str = "default") -> str:
        """Work."""
        return x

    assert await output_of(work, "") == "default"


async def test_a_body_sees_parsed_values() -> None:
    @dataclasses.dataclass
    class Point:
        x: int
        y: int = 7

    seen: list[Point] = []

    @client_tool(effect="none")
    async def work(at: Annotated[Point, "where"]) -> None:
        """Work."""
        seen.append(at)

    assert await output_of(work, {"at": {"x": 1}}) == "null"
    assert seen == [Point(1, 7)]
    assert (await output_of(work, {"at": {"x": "no"}})).startswith("Error: invalid arguments")


async def test_a_json_schema_may_stand_in_for_a_signature() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

    @client_tool(parameters=schema, effect="none")
    async def work(arguments: dict[str, int]) -> int:
        """Double a number.

        And say it.
        """
        return arguments["x"] * 2

    assert work.description == "Double a number."
    assert await output_of(work, {"x": 4}) == "8"
    assert "expected integer" in await output_of(work, {"x": "a"})


# --- outputs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, "null"),
        ("text", "text"),
        ({"a": 1}, '{"a":1}'),
        ([1, 2], "[1,2]"),
        (3.5, "3.5"),
        ([], "[]"),
    ],
)
async def test_what_the_model_reads_of_a_value(value: object, output: str) -> None:
    @client_tool(effect="none")
    async def work() -> object:
        """Work."""
        return value

    assert await output_of(work) == output


async def test_a_content_array_is_parts_in_an_ordinary_round_too() -> None:
    @client_tool(effect="none")
    async def work() -> object:
        """Work."""
        return [{"type": "input_text", "text": "a"}]

    model = one_call("work")
    await call_model(model, "go", tools=[work]).text()
    assert model.requests[1].input[-1].output == (input_text("a"),)  # type: ignore[union-attr]


async def test_a_value_that_is_not_json_is_an_error_of_its_call_alone() -> None:
    @client_tool(effect="none")
    async def work() -> object:
        """Work."""
        return object()

    counter = Counter()
    model = ScriptedModel(
        [turn(call("work", call_id="c1"), call("other", {"x": "a"}, "c2")), "done"]
    )
    await call_model(model, "go", tools=[work, counter.tool("other")]).text()
    said = outputs(model.requests[1])
    assert "not JSON" in said["c1"]
    assert said["c2"] == "did a"


async def test_an_output_is_held_to_its_schema_and_the_parsed_value_goes_on() -> None:
    @dataclasses.dataclass
    class Found:
        name: str
        score: int = 5

    @client_tool(output=Found, effect="none")
    async def good() -> object:
        """Good."""
        return {"name": "a"}

    @client_tool(output=Found, effect="none")
    async def bad() -> object:
        """Bad."""
        return {"score": 1}

    assert await output_of(good) == '{"name":"a","score":5}'
    assert "result does not fit its schema: name: missing" in await output_of(bad)


async def test_what_the_model_reads_may_be_another_thing_than_the_result() -> None:
    async def shown(output: object, arguments: Mapping[str, object]) -> object:
        return [{"type": "input_text", "text": f"{arguments['x']}: {output}"}]

    def broken(output: object, arguments: Mapping[str, object]) -> object:
        raise ValueError("cannot show it")

    @client_tool(to_model_output=shown, effect="none")
    async def work(x: str) -> int:
        """Work."""
        return 42

    model = one_call("work", {"x": "a"})
    result = call_model(model, "go", tools=[work])
    events = await full(result)
    assert model.requests[1].input[-1].output == (input_text("a: 42"),)  # type: ignore[union-attr]
    (told,) = [event for event in events if isinstance(event, ToolResultEvent)]
    assert told.result == 42

    @client_tool(to_model_output=broken, effect="none")
    async def fails() -> int:
        """Fail."""
        return 42

    assert "cannot show it" in await output_of(fails)


# --- generators and preliminary results ------------------------------------------------------


async def test_a_generators_events_come_live_and_its_final_value_is_the_result() -> None:
    model = one_call("counting", {"upto": 2})
    result = call_model(model, "go", tools=[counting])
    events = await full(result)
    shown = [event.result for event in events if isinstance(event, ToolPreliminaryResult)]
    assert shown == ["at 0", "at 1"]
    (told,) = [event for event in events if isinstance(event, ToolResultEvent)]
    assert (told.result, told.preliminary_results) == (2, ("at 0", "at 1"))
    assert outputs(model.requests[1])["c1"] == "2"


async def test_a_value_of_the_outputs_shape_alone_is_the_result() -> None:
    @client_tool(output=int, events=str, effect="none")
    async def work() -> AsyncIterator[object]:
        """Work."""
        yield "begun"
        yield 7
        yield "after"

    assert await output_of(work) == "7"


async def test_without_a_result_the_last_event_is_the_result() -> None:
    @client_tool(effect="none")
    async def work() -> AsyncIterator[object]:
        """Work."""
        yield {"at": 1}
        yield {"at": 2}

    assert await output_of(work) == '{"at":2}'


async def test_a_generator_that_gives_nothing_or_a_wrong_event_fails() -> None:
    @client_tool(effect="none")
    async def nothing() -> AsyncIterator[object]:
        """Nothing."""
        for value in list[object]():
            yield value

    @client_tool(events=int, output=int, effect="none")
    async def wrong() -> AsyncIterator[object]:
        """Wrong."""
        yield "no number"

    assert "gave nothing" in await output_of(nothing)
    assert "expected integer" in await output_of(wrong)


async def test_any_tool_may_emit_and_a_sync_one_from_its_thread() -> None:
    @client_tool(events=str, effect="none")
    def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.emit("begun")
        return "done"

    result = call_model(one_call("work"), "go", tools=[work])
    shown = [event async for event in result.tool_stream()]
    assert [e.result for e in shown if isinstance(e, ToolPreliminaryResult)] == ["begun"]
    assert is_generator_tool(work)


# --- the context -----------------------------------------------------------------------------


@dataclasses.dataclass
class Own:
    count: int = 0


async def test_slots_are_read_live_and_writes_are_held_to_the_schema() -> None:
    seen: list[object] = []

    @client_tool(context=Own, effect="none")
    async def work(ctx: ToolContext) -> str:
        """Work."""
        seen.append(dict(ctx.local))
        ctx.merge_context({"count": 2, "other": 3})
        seen.append(dict(ctx.local))
        ctx.set_shared_context({"user": "ann"})
        ctx.merge_shared_context({"group": "admins"})
        seen.append(dict(ctx.shared))
        assert tool_context() is ctx
        ctx.set_context({"count": "many"})
        return "never"

    model = one_call("work")
    result = call_model(
        model,
        "go",
        tools=[work],
        context={"work": {"count": 1}},
        shared_context={
            "type": "object",
            "properties": {"user": {"type": "string"}, "group": {"type": "string"}},
        },
    )
    shared = {"user": "ann", "group": "admins"}
    updates = [one async for one in result.context_updates()]
    assert seen == [{"count": 1}, {"count": 2}, shared]
    assert updates == [
        {"work": {"count": 2}},
        {"work": {"count": 2}, "shared": {"user": "ann"}},
        {"work": {"count": 2}, "shared": shared},
    ]
    assert "expected integer" in outputs(model.requests[1])["c1"]


async def test_a_slot_without_a_schema_cannot_be_written_and_says_so() -> None:
    @client_tool(effect="none")
    async def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.merge_context({"a": 1})
        return "never"

    assert "no context schema" in await output_of(work)


async def test_context_that_does_not_fit_is_an_error_of_the_call() -> None:
    @client_tool(context=Own, effect="none")
    async def work() -> str:
        """Work."""
        return "never"

    model = one_call("work")
    await call_model(model, "go", tools=[work], context={"work": {"count": "many"}}).text()
    assert "context of 'work' does not fit" in outputs(model.requests[1])["c1"]


async def test_a_function_gives_the_context_once() -> None:
    asked: list[int] = []

    async def given(turn: TurnContext) -> dict[str, dict[str, object]]:
        asked.append(turn.number_of_turns)
        return {"work": {"count": 4}}

    seen: list[object] = []

    @client_tool(context=Own, effect="none")
    async def work(ctx: ToolContext) -> None:
        """Work."""
        seen.append((ctx.number_of_turns, ctx.call_id, dict(ctx.local)))

    model = ScriptedModel([call("work", call_id="c1"), call("work", call_id="c2"), "done"])
    kept = Kept()
    await call_model(model, "go", tools=[work], context=given, state=kept).text()
    assert asked == [0]
    assert seen == [(1, "c1", {"count": 4}), (2, "c2", {"count": 4})]


async def test_a_tool_knows_its_call_and_conversation() -> None:
    seen: list[object] = []

    @client_tool(effect="none")
    async def work(ctx: ToolContext, x: str) -> None:
        """Work."""
        assert ctx.tool_call is not None
        assert ctx.cancelled is not None
        seen.append((ctx.tool_call.members, ctx.tool_call.name, ctx.conversation_id))

    kept = Kept()
    await call_model(one_call("work", {"x": "a"}), "go", tools=[work], state=kept).text()
    assert seen == [({"x": "a"}, "work", kept.now.id)]


def test_a_store_takes_and_gives_copies_and_tells_of_changes() -> None:
    given = {"a": {"x": 1}}
    store = ContextStore(given)
    told: list[object] = []
    leave = store.subscribe(told.append)
    given["a"]["x"] = 9
    assert store.get("a") == {"x": 1}
    store.get("a")["x"] = 8
    store.merge("a", {"y": 2})
    store.set("b", {"z": 3})
    assert store.snapshot() == {"a": {"x": 1, "y": 2}, "b": {"z": 3}}
    leave()
    leave()
    store.set("a", {})
    assert len(told) == 2
    assert store.get("nowhere") == {}


async def test_changes_far_back_are_folded_and_the_newest_is_always_seen() -> None:
    from perdure.compose.shared_context import ContextLog

    log = ContextLog(tail=2)
    early, reading = log.subscribe(), log.subscribe()
    seen: list[object] = []
    for number in range(9):
        log.append({"a": {"x": number}})
        if number % 4 == 0:
            seen.append((await anext(reading))["a"]["x"])
    log.close()
    late = [one["a"]["x"] async for one in log.subscribe()]
    assert late == [one["a"]["x"] async for one in early]
    assert late[-2:] == [7, 8]
    assert len(log) < 5
    seen += [one["a"]["x"] async for one in reading]
    assert seen == sorted(set(seen), key=lambda x: int(str(x)))
    assert seen[-1] == 8


async def test_what_is_no_context_is_refused() -> None:
    with pytest.raises(ConfigError, match="mapping of members"):
        await call_model(ScriptedModel(["x"]), "hi", context={"work": 3}).text()  # type: ignore[dict-item]


async def test_outside_a_tool_there_is_no_context() -> None:
    with pytest.raises(ConfigError, match="outside a tool"):
        tool_context()


# --- how tools run ---------------------------------------------------------------------------


async def test_tools_of_a_round_run_at_once_and_outputs_keep_the_order_of_the_calls() -> None:
    gates = {name: asyncio.Event() for name in "abc"}
    ended: list[str] = []

    @client_tool(effect="none")
    async def work(x: str) -> str:
        """Work."""
        after = {"a": "b", "b": "c"}.get(x)
        if after:
            await gates[after].wait()
        gates[x].set()
        ended.append(x)
        return x

    calls = [call("work", {"x": name}, f"c_{name}") for name in "abc"]
    model = ScriptedModel([turn(*calls), "done"])
    result = call_model(model, "go", tools=[work])
    events = await full(result)
    assert ended == ["c", "b", "a"]
    assert list(outputs(model.requests[1])) == ["c_a", "c_b", "c_c"]
    results = [event.tool_call_id for event in events if isinstance(event, ToolResultEvent)]
    assert results == ["c_a", "c_b", "c_c"]


async def test_caps_hold_for_the_round_and_for_the_tool() -> None:
    now, most = dict.fromkeys("nw", 0), dict.fromkeys("nw", 0)

    def counted(kind: str, name: str, **options: object) -> ClientTool:
        @client_tool(name=name, effect="none", **options)  # type: ignore[call-overload, untyped-decorator]
        async def work() -> None:
            """Work."""
            now[kind] += 1
            most[kind] = max(most[kind], now[kind])
            await settle()
            now[kind] -= 1

        made: ClientTool = work
        return made

    narrow = counted("n", "narrow", max_concurrency=2)
    wide = counted("w", "wide")
    calls = [call("narrow") for _ in range(5)] + [call("wide") for _ in range(5)]
    await call_model(ScriptedModel([turn(*calls), "done"]), "go", tools=[narrow, wide]).text()
    assert most["n"] == 2
    assert most["w"] > 2
    most["n"] = most["w"] = 0
    await call_model(
        ScriptedModel([turn(*calls), "done"]), "go", tools=[narrow, wide], tool_concurrency=1
    ).text()
    assert most == {"n": 1, "w": 1}


async def test_a_tool_out_of_time_is_told_and_the_run_goes_on() -> None:
    told: list[bool] = []
    clock = FakeClock()

    @client_tool(effect="idempotent", timeout=2)
    async def hang(ctx: ToolContext) -> str:
        """Hang."""
        assert ctx.cancelled is not None
        await ctx.cancelled
        told.append(True)
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([call("hang", call_id="c1"), "done"], clock=clock)
    result = call_model(model, "go", tools=[hang], clock=clock, grace=1)
    result.begin()
    for _ in range(6):
        await clock.advance(1)
    assert await result.text() == "done"
    assert told == [True]
    assert "timed out after 2 s" in outputs(model.requests[1])["c1"]


async def test_waiting_for_a_turn_does_not_eat_a_tools_time() -> None:
    clock = FakeClock()

    @client_tool(effect="none", timeout=4, max_concurrency=1)
    async def takes() -> str:
        """Take three seconds."""
        await clock.sleep(3)
        return "in time"

    model = ScriptedModel([turn(call("takes"), call("takes"), call("takes")), "done"], clock=clock)
    result = call_model(model, "go", tools=[takes], clock=clock)
    result.begin()
    for _ in range(10):
        await clock.advance(1)
    assert await result.text() == "done"
    assert list(outputs(model.requests[1]).values()) == ["in time"] * 3


async def test_the_runs_timeout_is_for_tools_that_name_none() -> None:
    clock = FakeClock()

    @client_tool(effect="none")
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([call("hang", call_id="c1"), "done"], clock=clock)
    result = call_model(model, "go", tools=[hang], clock=clock, tool_timeout=3)
    result.begin()
    for _ in range(5):
        await clock.advance(1)
    assert await result.text() == "done"
    assert "timed out after 3 s" in outputs(model.requests[1])["c1"]


class Heard(Lifecycle):
    def __init__(self, verdict: ToolVerdict | None = None) -> None:
        self.told: list[object] = []
        self.verdict = verdict or ToolVerdict()

    async def pre_tool_use(
        self, session_id: str, tool: str, arguments: Mapping[str, object]
    ) -> ToolVerdict:
        self.told.append(("pre", tool, dict(arguments)))
        return self.verdict

    async def post_tool_use(
        self,
        session_id: str,
        tool: str,
        arguments: Mapping[str, object],
        output: object,
        seconds: float,
    ) -> None:
        self.told.append(("post", dict(arguments), output))

    async def post_tool_use_failure(
        self, session_id: str, tool: str, arguments: Mapping[str, object], error: BaseException
    ) -> None:
        self.told.append(("failed", str(error)))


async def test_changed_arguments_reach_the_tool_and_history_keeps_the_models() -> None:
    counter, hooks = Counter(), Heard(ToolVerdict(arguments={"x": "changed"}))
    model = one_call("work", {"x": "given"})
    await call_model(model, "go", tools=[counter.tool()], hooks=hooks).text()
    assert counter.ran == ["changed"]
    assert hooks.told == [
        ("pre", "work", {"x": "given"}),
        ("post", {"x": "changed"}, "did changed"),
    ]
    assert model.requests[1].input[1].arguments == '{"x":"given"}'  # type: ignore[union-attr]


async def test_a_blocked_call_runs_nothing_and_no_hook_hears_of_an_end() -> None:
    counter, hooks = Counter(), Heard(ToolVerdict(blocked="not today"))
    model = one_call("work", {"x": "a"})
    result = call_model(model, "go", tools=[counter.tool()], hooks=hooks)
    events = await full(result)
    assert counter.ran == []
    assert outputs(model.requests[1])["c1"] == "Error: not today"
    assert [one[0] for one in hooks.told] == ["pre"]  # type: ignore[index]
    types = [event.type for event in events]  # type: ignore[attr-defined]
    assert "tool.result" not in types
    assert "tool.call_output" in types


async def test_a_body_that_fails_is_told_as_failed() -> None:
    @client_tool(effect="none")
    async def work() -> str:
        """Work."""
        raise ValueError("broken")

    hooks = Heard()
    await call_model(one_call("work"), "go", tools=[work], hooks=hooks).text()
    assert [one[0] for one in hooks.told] == ["pre", "failed"]  # type: ignore[index]


async def test_a_result_says_where_its_tool_comes_from() -> None:
    counter = Counter()
    model = ScriptedModel([turn(call("a", {"x": "1"}), call("b", {"x": "2"})), "done"])
    tools = [mark_mcp(counter.tool("a")), counter.tool("b")]
    events = await full(call_model(model, "go", tools=tools))
    sources = [event.source for event in events if isinstance(event, ToolResultEvent)]
    assert sources == ["mcp", "client"]


async def test_plain_tools_of_perdure_are_taken_as_they_are() -> None:
    raw = RawTool(name="raw", description="Raw.", fn=lambda arguments: arguments, effect="none")

    def function(x: str) -> str:
        """Function."""
        return f"f {x}"

    model = ScriptedModel(
        [turn(call("raw", {"a": 1}, "c1"), call("function", {"x": "b"}, "c2")), "done"]
    )
    await call_model(model, "go", tools=[raw, function]).text()
    assert outputs(model.requests[1]) == {"c1": '{"a":1}', "c2": "f b"}


# --- by hand ---------------------------------------------------------------------------------


def asked(name: str, arguments: str = "{}", call_id: str = "c1") -> object:
    return tool_call_of(function_call(call_id, name, arguments))


async def test_tools_run_by_hand() -> None:
    done = await execute_tool(counting, asked("counting", '{"upto":2}'))  # type: ignore[arg-type]
    assert (done.result, done.events, done.error) == (2, ("at 0", "at 1"), "")
    assert execution_output(done).output == "2"
    several = await execute_tools(
        [regular, search],
        [asked("regular", '{"x":"a"}'), asked("gone", "{}", "c2")],  # type: ignore[list-item]
    )
    assert execution_errors(several) == ('unknown tool "gone"',)
    assert list(executions_by_call(several)) == ["c1", "c2"]
    assert summarize_executions(several) == (
        "regular: a",
        'gone: failed: unknown tool "gone"',
    )
    with pytest.raises(ConfigError):
        await execute_tool(search, asked("x"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        await execute_tool(mine, asked("mine"))  # type: ignore[arg-type]


async def test_calls_part_by_what_needs_an_approval() -> None:
    calls = [asked("slow"), asked("regular", '{"x":"a"}'), asked("slow", "{broken")]
    parted = await partition_tool_calls(
        [slow, regular],
        calls,  # type: ignore[arg-type]
        TurnContext(number_of_turns=0),
    )
    assert [one.name for one in parted.pending] == ["slow"]
    assert [one.name for one in parted.approved] == ["regular", "slow"]
    assert as_client(regular) is regular


async def test_a_tool_that_people_have_to_approve_is_not_run_by_hand() -> None:
    fired: list[int] = []

    @tool(approval=True)
    async def charge(cents: int) -> str:
        """Charge."""
        fired.append(cents)
        return "charged"

    with pytest.raises(NeedsApproval, match="somebody"):
        await execute_tool(charge, asked("charge", '{"cents":5}'))  # type: ignore[arg-type]
    result = call_model(
        ScriptedModel([call("charge", {"cents": 5}), "Done."]), "go", tools=[charge]
    )
    assert await result.requires_approval()
    assert fired == []

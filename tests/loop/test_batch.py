"""The batch of a turn: decisions, dispatches, ends and outputs, and what a failure leaves."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable

import pytest

from perdure.errors import Guard, OutcomeUnknown, ToolError, Tripped
from perdure.loop import (
    Config,
    Event,
    ItemStart,
    Middleware,
    NextTool,
    ResponseEnd,
    Retry,
    ToolCallInfo,
    ToolDecision,
    ToolDispatch,
    ToolEnd,
    ToolOverride,
    ToolResultInfo,
    ToolStart,
    ToolUpdate,
    TurnEnd,
)
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.testing.event_check import check_events
from perdure.tools import Call, ToolResult, current_call, tool
from perdure.wire import FunctionCallOutput
from tests.loop.fakes import (
    Failure,
    Tool,
    item_ends,
    life,
    never,
    outputs,
    pending,
    ran,
    texts,
    waits,
)


class On(Middleware):
    """Fails, once, on the first event of a type that has these members."""

    def __init__(self, kind: str, **members: object) -> None:
        self.kind = kind
        self.members = members
        self.failed = 0
        self.heard: list[Event] = []

    async def on_event(self, event: Event) -> None:
        self.heard.append(event)
        has = all(getattr(event, name, None) == value for name, value in self.members.items())
        if event.type == self.kind and has and not self.failed:
            self.failed += 1
            raise Failure(self.kind)


class Decides(Middleware):
    """Decides by the name of the tool."""

    def __init__(self, **decisions: ToolDecision) -> None:
        self.decisions = decisions
        self.asked: list[str] = []

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        self.asked.append(info.call.call_id)
        return self.decisions.get(info.call.name)


class After(Middleware):
    """What `after_tool_call` sees, and gives."""

    def __init__(
        self, gives: Callable[[ToolResultInfo], Awaitable[ToolOverride | None]] | None = None
    ) -> None:
        self.seen: list[tuple[str, BaseException | None]] = []
        self.gives = gives

    async def after_tool_call(self, info: ToolResultInfo) -> ToolOverride | None:
        self.seen.append((info.call.call_id, info.error))
        return await self.gives(info) if self.gives else None


def two(first: str = "a", second: str = "b") -> ScriptedModel:
    """A model that makes two calls, and is done when it has their outputs."""
    return ScriptedModel([turn(call(first, {}, "c1"), call(second, {}, "c2")), "done"])


# --- the plain case ------------------------------------------------------------------


async def test_calls_are_decided_before_any_runs_and_their_outputs_stand_in_their_order() -> None:
    gate = asyncio.Event()

    async def opens(call: Call) -> str:
        gate.set()
        return "second"

    tools = [Tool("a", waits(gate, "first")), Tool("b", opens)]
    told = await ran(Config(model=two(), tools=tools), "go")
    assert [event.call_id for event in told.of(ToolStart)] == ["c1", "c2"]
    assert [event.call_id for event in told.of(ToolEnd)] == ["c2", "c1"]
    assert outputs(told.end.items) == [("c1", "first"), ("c2", "second")]
    assert [result.output for result in told.of(TurnEnd)[0].tool_results] == ["first", "second"]
    names = told.names
    assert names.index("tool_dispatch") > max(n for n, x in enumerate(names) if x == "tool_start")


async def test_the_order_of_outputs_does_not_depend_on_who_is_first() -> None:
    calls = turn(*(call("wait", {"n": n}, f"c{n}") for n in range(3)))

    async def transcript_of(seed: int) -> tuple[object, ...]:
        chance = random.Random(seed)

        async def work(call: Call) -> str:
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            return call.id

        config = Config(model=ScriptedModel([calls, "done"]), tools=[Tool("wait", work)])
        return (await ran(config, "go")).end.items

    transcripts = [await transcript_of(seed) for seed in range(50)]
    assert all(one == transcripts[0] for one in transcripts)
    assert outputs(transcripts[0]) == [("c0", "c0"), ("c1", "c1"), ("c2", "c2")]  # type: ignore[arg-type]


async def test_where_a_failure_trips_the_drive_its_siblings_are_stopped_and_no_model_is_asked() -> (
    None
):
    async def hangs(call: Call) -> str:
        await call.cancelled
        return "ended when told"

    model = two("hangs", "fails")
    tools = [Tool("hangs", hangs), Tool("fails", ToolError("no"))]
    told = await ran(Config(model=model, tools=tools, on_failure="trip"), "go")
    check_events(told.events)
    assert isinstance(told.end.error, Tripped)
    assert (told.end.reason, told.end.error.call_id) == ("aborted", "c2")
    assert outputs(told.end.items) == [("c1", "ended when told"), ("c2", "Error: no")]
    assert [(one.call_id, one.failed, one.trips) for one in told.of(ToolEnd)] == [
        ("c2", True, True),
        ("c1", False, False),
    ]
    assert len(model.requests) == 1


async def test_a_call_that_entered_no_tool_trips_nothing() -> None:
    model = two("nobody", "a")
    told = await ran(Config(model=model, tools=[Tool("a")], on_failure="trip"), "go")
    assert told.end.reason == "done"
    assert [one.failed for one in told.of(ToolEnd)] == [False, False]


async def test_one_failing_call_leaves_the_others_their_results() -> None:
    tools = [Tool("a"), Tool("b", ToolError("no")), Tool("c", ValueError("bug"))]
    model = ScriptedModel([turn(*(call(n, {}, f"c_{n}") for n in "abc")), "done"])
    told = await ran(Config(model=model, tools=tools), "go")
    assert outputs(told.end.items) == [
        ("c_a", "ok"),
        ("c_b", "Error: no"),
        ("c_c", "Error: tool 'c' panicked: bug"),
    ]
    assert told.end.reason == "done"


async def test_an_unknown_tool_and_arguments_that_are_no_object_are_refused_undispatched() -> None:
    calls = [
        call("gone", {}, "c1"),
        call("t", "[1]", "c2"),
        call("t", "{", "c3"),
        call("t", "", "c4"),
        call("t", "null", "c5"),
    ]
    one = Tool("t")
    told = await ran(Config(model=ScriptedModel([turn(*calls), "done"]), tools=[one]), "go")
    said = dict(outputs(told.end.items))
    assert said["c1"] == 'Error: unknown tool "gone"'
    assert all(said[bad].startswith("Error: invalid arguments: ") for bad in ("c2", "c3", "c5"))
    assert one.entered == ["c4"]  # nothing is an empty object where nothing is required
    assert [event.call_id for event in told.of(ToolDispatch)] == ["c4"]
    assert not any(event.rejected for event in told.of(ToolEnd))


async def test_arguments_reach_the_tool_exactly_as_the_model_wrote_them() -> None:
    written = '{"n": 9007199254740993, "x": 1.0, "a" :null}'
    one = Tool("t")
    await ran(Config(model=ScriptedModel([call("t", written, "c1"), "done"]), tools=[one]), "go")
    assert one.calls[0].arguments == written


# --- decisions ------------------------------------------------------------------------


async def test_a_rejected_call_ends_at_once_with_its_reason_and_never_runs() -> None:
    hook = Decides(a=ToolDecision(action="reject", reason="not today"))
    tools = [Tool("a"), Tool("b")]
    after = After()
    told = await ran(Config(model=two(), tools=tools, middleware=[hook, after]), "go")
    assert outputs(told.end.items) == [("c1", "Error: not today"), ("c2", "ok")]
    assert (tools[0].entered, tools[1].entered) == ([], ["c2"])
    assert life(told.events, "c1") == ["tool_start", "tool_end"]
    [end] = [event for event in told.of(ToolEnd) if event.call_id == "c1"]
    assert (end.rejected, end.reason) == (True, "not today")
    assert after.seen == [("c2", None)]


async def test_a_call_rejected_without_a_reason_says_so_to_the_model() -> None:
    hook = Decides(a=ToolDecision(action="reject"))
    told = await ran(Config(model=two(), tools=[Tool("a"), Tool("b")], middleware=[hook]), "go")
    assert outputs(told.end.items)[0] == ("c1", "Error: call rejected")


async def test_a_held_call_waits_while_the_others_of_its_batch_run() -> None:
    hook = Decides(a=ToolDecision(action="hold", reason="ask ann"))
    tools = [Tool("a"), Tool("b")]
    told = await ran(Config(model=two(), tools=tools, middleware=[hook]), "go")
    assert (told.end.reason, pending(told.end)) == ("input_required", {"c1": "held"})
    assert outputs(told.end.items) == [("c2", "ok")]
    assert life(told.events, "c1") == ["tool_start", "tool_end"]
    assert told.names[-2:] == ["turn_end", "run_end"]
    assert tools[0].entered == []


async def test_the_strictest_decision_stands_and_a_rejection_ends_the_chain() -> None:
    first = Decides(a=ToolDecision(action="hold", reason="ask", note="n1"))
    second = Decides(a=ToolDecision(action="reject", reason="never", terminate=True))
    third = Decides()
    config = Config(
        model=ScriptedModel([call("a", {}, "c1"), "done"]),
        tools=[Tool("a")],
        middleware=[first, second, third],
    )
    told = await ran(config, "go")
    assert outputs(told.end.items) == [("c1", "Error: never")]
    assert third.asked == []
    assert (told.end.reason, told.end.cause) == ("stopped", "terminate")


async def test_of_several_notes_the_first_stands_and_of_rewritten_arguments_the_last() -> None:
    one = Tool("a")
    config = Config(
        model=ScriptedModel([call("a", {}, "c1"), "done"]),
        tools=[one],
        middleware=[
            Decides(a=ToolDecision(note="first", arguments='{"n":1}')),
            Decides(a=ToolDecision(note="second", arguments='{"n":2}')),
        ],
    )
    told = await ran(config, "go")
    assert texts(told.end.items)[-2] == "developer: first"
    assert one.calls[0].arguments == '{"n":2}'


async def test_rewritten_arguments_reach_the_later_hooks_and_the_tool() -> None:
    seen: list[str] = []

    class Looks(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
            seen.append(info.arguments)
            return None

    one = Tool("a")
    config = Config(
        model=ScriptedModel([call("a", {"n": 1}, "c1"), "done"]),
        tools=[one],
        middleware=[Decides(a=ToolDecision(arguments='{"n":2}')), Looks()],
    )
    told = await ran(config, "go")
    assert seen == ['{"n":2}']
    assert one.calls[0].arguments == '{"n":2}'
    assert told.of(ToolStart)[0].arguments == '{"n":2}'
    assert 'call c1: a({"n":1})' in texts(told.end.items)


async def test_notes_of_calls_that_proceed_follow_the_outputs() -> None:
    hook = Decides(
        a=ToolDecision(note="mind the gap"),
        b=ToolDecision(action="reject", reason="no", note="not said"),
    )
    told = await ran(Config(model=two(), tools=[Tool("a"), Tool("b")], middleware=[hook]), "go")
    assert texts(told.end.items)[-4:-1] == [
        "output c1: ok",
        "output c2: Error: no",
        "developer: mind the gap",
    ]


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [(True, True, "terminate"), (True, False, "partial_terminate"), (False, False, None)],
)
async def test_results_that_ask_for_it_end_the_drive(
    first: bool, second: bool, cause: str | None
) -> None:
    async def one(call: Call) -> ToolResult:
        return ToolResult("ok", terminate=first)

    async def other(call: Call) -> ToolResult:
        return ToolResult("ok", terminate=second)

    model = two()
    told = await ran(Config(model=model, tools=[Tool("a", one), Tool("b", other)]), "go")
    assert told.end.cause == cause
    assert told.end.reason == ("stopped" if cause else "done")
    assert told.end.pending == ()
    assert len(model.requests) == (1 if cause else 2)


async def test_a_decision_that_terminates_a_call_that_proceeds_stands_over_an_override() -> None:
    async def override(info: ToolResultInfo) -> ToolOverride:
        return ToolOverride(result=ToolResult("other", terminate=False))

    config = Config(
        model=ScriptedModel([call("a", {}, "c1")]),
        tools=[Tool("a")],
        middleware=[Decides(a=ToolDecision(terminate=True)), After(override)],
    )
    told = await ran(config, "go")
    assert (told.end.reason, told.end.cause) == ("stopped", "terminate")
    assert outputs(told.end.items) == [("c1", "other")]


async def test_at_the_turn_limit_the_batch_runs_and_nothing_is_pending() -> None:
    one = Tool("a")
    model = ScriptedModel([call("a", {}, "c1"), "never asked"])
    told = await ran(Config(model=model, tools=[one], max_turns=1), "go")
    assert (told.end.reason, told.end.cause) == ("stopped", "max_turns")
    assert outputs(told.end.items) == [("c1", "ok")]
    assert told.end.pending == ()
    assert life(told.events, "c1") == ["tool_start", "tool_dispatch", "tool_end"]
    assert len(model.requests) == 1


# --- around the tool ------------------------------------------------------------------


class Wraps(Middleware):
    def __init__(self, does: Callable[[ToolCallInfo, NextTool], Awaitable[ToolResult]]) -> None:
        self.does = does

    async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        return await self.does(info, next)


def wrapped(
    one: Tool, does: Callable[[ToolCallInfo, NextTool], Awaitable[ToolResult]], **members: object
) -> Config:
    model = ScriptedModel([call(one.name, {"n": 1}, "c1"), "done"])
    return Config(model=model, tools=[one], middleware=[Wraps(does)], **members)  # type: ignore[arg-type]


async def test_the_dispatch_is_told_inside_of_every_wrapper() -> None:
    order: list[str] = []

    async def does(info: ToolCallInfo, enter: NextTool) -> ToolResult:
        order.append("outside")
        result = await enter()
        order.append("back")
        return result

    class Hears(Middleware):
        async def on_event(self, event: Event) -> None:
            if isinstance(event, ToolDispatch):
                order.append("dispatch")

    config = wrapped(Tool("a"), does)
    config = dataclasses.replace(config, middleware=[*config.middleware, Hears()])
    await ran(config, "go")
    assert order == ["outside", "dispatch", "back"]


async def test_an_answer_without_entry_is_a_rejection_by_policy_and_its_output() -> None:
    async def does(info: ToolCallInfo, enter: NextTool) -> ToolResult:
        return ToolResult("from the cache")

    one = Tool("a")
    told = await ran(wrapped(one, does), "go")
    assert one.entered == []
    assert life(told.events, "c1") == ["tool_start", "tool_end"]
    [end] = told.of(ToolEnd)
    assert (end.rejected, end.entered) == (True, False)
    assert outputs(told.end.items) == [("c1", "from the cache")]


async def again(info: ToolCallInfo, enter: NextTool) -> ToolResult:
    await enter()
    return await enter()


async def both(info: ToolCallInfo, enter: NextTool) -> ToolResult:
    first, second = await asyncio.gather(enter(), enter(), return_exceptions=True)
    for given in (first, second):
        if isinstance(given, ToolResult):
            return given
    raise first if isinstance(first, BaseException) else AssertionError


@pytest.mark.parametrize("twice", [again, both], ids=["one after another", "at once"])
@pytest.mark.parametrize(("effect", "entries"), [("once", 1), ("keyed", 2)])
async def test_a_second_entry_is_refused_where_the_effect_forbids_it(
    twice: Callable[[ToolCallInfo, NextTool], Awaitable[ToolResult]], effect: str, entries: int
) -> None:
    class Suspends(Middleware):
        async def on_event(self, event: Event) -> None:
            await asyncio.sleep(0)

    one = Tool("a", effect=effect)
    config = wrapped(one, twice)
    config = dataclasses.replace(config, middleware=[*config.middleware, Suspends()])
    await ran(config, "go")
    assert len(one.entered) == entries
    assert len({made.idempotency_key for made in one.calls}) == 1


async def test_what_a_wrapper_raises_after_entry_does_not_deny_that_the_tool_ran() -> None:
    async def does(info: ToolCallInfo, enter: NextTool) -> ToolResult:
        await enter()
        raise ToolError("too long")

    one = Tool("a")
    told = await ran(wrapped(one, does), "go")
    assert one.entered == ["c1"]
    ((call_id, text),) = outputs(told.end.items)
    assert call_id == "c1"
    assert text.startswith("Error: too long; it may have taken effect.")


async def test_what_a_wrapper_raises_around_a_tool_without_an_effect_is_its_failure() -> None:
    async def does(info: ToolCallInfo, enter: NextTool) -> ToolResult:
        await enter()
        raise ToolError("too long")

    told = await ran(wrapped(Tool("a", effect="none"), does), "go")
    assert outputs(told.end.items) == [("c1", "Error: too long")]


# --- chains ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["config", "tool", "resource"])
async def test_the_next_of_a_chain_is_dispatched_after_the_last_was_judged(how: str) -> None:
    order: list[str] = []
    gate = asyncio.Event()

    async def slow(info: ToolResultInfo) -> None:
        order.append(f"judging {info.call.call_id}")
        gate.set()
        for _ in range(20):
            await asyncio.sleep(0)
        order.append(f"judged {info.call.call_id}")

    class Hears(Middleware):
        async def on_event(self, event: Event) -> None:
            if isinstance(event, ToolDispatch):
                order.append(f"dispatch {event.call_id}")

    sequential, resource = how == "tool", "db" if how == "resource" else None
    tools = [
        Tool("a", sequential=sequential, resource=resource),
        Tool("b", resource=resource),
    ]
    config = Config(
        model=two(), tools=tools, sequential=how == "config", middleware=[After(slow), Hears()]
    )
    await ran(config, "go")
    assert order == [
        "dispatch c1",
        "judging c1",
        "judged c1",
        "dispatch c2",
        "judging c2",
        "judged c2",
    ]


async def test_at_most_as_many_tools_run_at_once_as_may() -> None:
    running = most = 0

    async def work(call: Call) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "ok"

    calls = turn(*(call("t", {"n": n}, f"c{n}") for n in range(20)))
    one = Tool("t", work)
    config = Config(model=ScriptedModel([calls, "done"]), tools=[one], max_parallel=3)
    told = await ran(config, "go")
    assert (most, len(one.entered)) == (3, 20)
    assert [call_id for call_id, _ in outputs(told.end.items)] == [f"c{n}" for n in range(20)]


async def test_hooks_on_calls_go_one_at_a_time() -> None:
    inside = most = 0

    async def enters() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(3):
            await asyncio.sleep(0)
        inside -= 1

    class Watches(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> None:
            await enters()

        async def after_tool_call(self, info: ToolResultInfo) -> None:
            await enters()

    calls = turn(*(call("t", {"n": n}, f"c{n}") for n in range(5)))
    config = Config(model=ScriptedModel([calls, "done"]), tools=[Tool("t")], middleware=[Watches()])
    await ran(config, "go")
    assert most == 1


async def test_progress_is_told_in_order_and_never_after_the_end() -> None:
    late: list[Call] = []

    async def work(call: Call) -> str:
        late.append(call)
        call.progress("one", done=1, total=2)
        call.progress("two", done=2, total=2)
        return "ok"

    told = await ran(
        Config(model=ScriptedModel([call("t", {}, "c1"), "done"]), tools=[Tool("t", work)]), "go"
    )
    assert [event.partial.output for event in told.of(ToolUpdate)] == ["one", "two"]
    with pytest.raises(RuntimeError):
        late[0].progress("three")


# --- failures in the middle -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["tool_start", "tool_dispatch", "tool_update", "tool_end"])
async def test_a_subscriber_that_fails_in_a_batch_leaves_every_call_its_end(kind: str) -> None:
    async def shows(call: Call) -> str:
        call.progress("on it")
        await asyncio.sleep(0)
        return "ok"

    on = On(kind)
    tools = [Tool("a", shows), Tool("b", shows)]
    told = await ran(Config(model=two(), tools=tools, middleware=[on]), "go", check=False)
    check_events(on.heard)
    assert told.end.reason == "error"
    assert isinstance(told.end.error, Failure)
    starts = [event.call_id for event in on.heard if isinstance(event, ToolStart)]
    ends = [event.call_id for event in on.heard if isinstance(event, ToolEnd)]
    assert sorted(starts) == sorted(ends)  # nothing is ended twice
    known = dict(outputs(told.end.items))
    open_calls = pending(told.end)
    assert set(known) | set(open_calls) == {"c1", "c2"}
    for one in tools:
        for call_id in one.ended:
            assert known[call_id] == "ok"
        if not one.entered:
            [missing] = {"c1", "c2"} & ({"c1"} if one.name == "a" else {"c2"})
            assert open_calls[missing] == "undispatched"


async def test_a_dispatch_that_a_subscriber_refuses_keeps_the_tool_from_running() -> None:
    on = On("tool_dispatch", call_id="c1")
    tools = [Tool("a"), Tool("b")]
    model = two()
    told = await ran(Config(model=model, tools=tools, middleware=[on]), "go", check=False)
    check_events(on.heard)
    assert tools[0].entered == []
    assert pending(told.end)["c1"] == "undispatched"
    assert (told.end.reason, len(model.requests)) == ("error", 1)
    assert isinstance(told.end.error, Failure)


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call"])
async def test_a_hook_that_fails_in_a_batch_ends_the_drive_and_keeps_what_is_known(
    hook: str,
) -> None:
    class Fails(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> None:
            if hook == "before_tool_call" and info.call.call_id == "c2":
                raise Failure

        async def after_tool_call(self, info: ToolResultInfo) -> None:
            if hook == "after_tool_call" and info.call.call_id == "c2":
                raise Failure

    tools = [Tool("a"), Tool("b")]
    told = await ran(Config(model=two(), tools=tools, sequential=True, middleware=[Fails()]), "go")
    assert told.end.reason == "error"
    assert isinstance(told.end.error, Failure)
    if hook == "before_tool_call":
        assert pending(told.end) == {"c1": "undispatched", "c2": "undispatched"}
        assert not tools[0].entered
    else:
        assert dict(outputs(told.end.items)) == {"c1": "ok", "c2": "ok"}
        assert told.end.pending == ()


async def test_a_guard_in_a_batch_stops_the_drive_and_keeps_what_is_known() -> None:
    async def guard(info: ToolResultInfo) -> None:
        raise Guard("too dear")

    told = await ran(
        Config(
            model=ScriptedModel([call("a", {}, "c1")]), tools=[Tool("a")], middleware=[After(guard)]
        ),
        "go",
    )
    assert (told.end.reason, told.end.cause) == ("stopped", "guard")
    assert outputs(told.end.items) == [("c1", "ok")]
    assert not any("too dear" in said for said in texts(told.end.items))


@pytest.mark.parametrize("kind", ["item_start", "item_end"])
@pytest.mark.parametrize("which", [0, 1])
async def test_results_are_kept_when_telling_of_an_output_fails(kind: str, which: int) -> None:
    class Fails(Middleware):
        count = 0

        async def on_event(self, event: Event) -> None:
            if event.type == kind and isinstance(getattr(event, "item", None), FunctionCallOutput):
                self.count += 1
                if self.count == which + 1:
                    raise Failure

    ear = On("never")
    config = Config(model=two(), tools=[Tool("a"), Tool("b")], middleware=[ear, Fails()])
    told = await ran(config, "go", check=False)
    check_events(ear.heard)
    assert told.end.reason == "error"
    assert outputs(told.end.items) == [("c1", "ok"), ("c2", "ok")]
    assert told.end.pending == ()


async def test_the_calls_after_a_failure_are_not_judged() -> None:
    async def fails_first(info: ToolResultInfo) -> None:
        if info.call.call_id == "c1":
            raise Failure

    after = After(fails_first)
    tools = [Tool("a"), Tool("b", never)]
    told = await ran(
        Config(model=two(), tools=tools, middleware=[after], clock=FakeClock(), grace=0), "go"
    )
    assert told.end.reason == "error"
    assert [call_id for call_id, _ in after.seen] == ["c1"]


# --- what tools may do ----------------------------------------------------------------


async def test_a_tool_that_does_not_know_its_outcome_is_answered_so_and_the_drive_goes_on() -> None:
    one = Tool("a", OutcomeUnknown("the line went dead"))
    told = await ran(Config(model=ScriptedModel([call("a", {}, "c1"), "done"]), tools=[one]), "go")
    [(_, said)] = outputs(told.end.items)
    assert said.startswith("Error: the line went dead")
    assert "before asking for it again" in said
    assert told.end.reason == "done"


@pytest.mark.parametrize("effect", ["none", "once"])
async def test_a_tool_that_outlives_its_time_is_answered_and_the_drive_goes_on(
    effect: str,
) -> None:
    clock = FakeClock()
    one = Tool("a", never, effect=effect, timeout=3)
    config = Config(
        model=ScriptedModel([call("a", {}, "c1"), "done"]), tools=[one], clock=clock, grace=2
    )
    drive = asyncio.create_task(ran(config, "go"))
    await clock.advance(3 if effect == "none" else 5)
    told = await drive
    [(_, said)] = outputs(told.end.items)
    assert said.startswith("Error: tool 'a' timed out after 3 s")
    assert ("before asking for it again" in said) == (effect == "once")
    assert told.end.reason == "done"


async def cancels_itself(call: Call) -> str:
    here = asyncio.current_task()
    assert here is not None
    here.cancel()
    await asyncio.sleep(0)
    return "never"


async def test_a_tool_that_cancels_itself_is_answered_and_leaves_no_open_call() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    told = await ran(Config(model=model, tools=[Tool("a", cancels_itself)]), "go")
    assert told.end.reason == "done"
    [(_, said)] = outputs(told.end.items)
    assert said.startswith("Error: ")


async def test_an_exception_group_of_one_is_that_one() -> None:
    async def groups(call: Call) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(_raise(ToolError("only me")))
            group.create_task(never(call))
        return "never"

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    told = await ran(Config(model=model, tools=[Tool("a", groups)]), "go")
    assert outputs(told.end.items) == [("c1", "Error: only me")]


async def test_an_exception_group_of_several_says_all_of_them() -> None:
    async def groups(call: Call) -> str:
        raise ExceptionGroup("both", [ToolError("one"), ToolError("two")])

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    told = await ran(Config(model=model, tools=[Tool("a", groups)]), "go")
    assert outputs(told.end.items) == [("c1", "Error: one; two")]


async def _raise(error: Exception) -> None:
    raise error


async def test_a_timeout_of_the_tool_s_own_is_its_failure() -> None:
    async def impatient(call: Call) -> str:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)
        return "never"

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    told = await ran(Config(model=model, tools=[Tool("a", impatient)]), "go")
    [(_, said)] = outputs(told.end.items)
    assert said.startswith("Error: tool 'a' panicked: ")
    assert told.end.reason == "done"


async def test_a_task_group_in_a_tool_runs_with_the_call_s_context() -> None:
    seen: list[str] = []

    async def work(call: Call) -> str:
        async def part() -> None:
            seen.append(current_call().id)

        async with asyncio.TaskGroup() as group:
            group.create_task(part())
            group.create_task(part())
        return "ok"

    model = ScriptedModel([call("a", {}, "c1"), "done"])
    await ran(Config(model=model, tools=[Tool("a", work)]), "go")
    assert seen == ["c1", "c1"]


async def test_a_sync_tool_runs_on_a_thread_with_its_call() -> None:
    import threading

    where: list[tuple[str, bool]] = []

    @tool(effect="none")
    def looks(n: int) -> str:
        main = threading.current_thread() is threading.main_thread()
        where.append((current_call().id, main))
        return str(n)

    model = ScriptedModel([turn(call("looks", {"n": 1}, "c1"), call("looks", {"n": 2}, "c2")), "."])
    told = await ran(Config(model=model, tools=[looks]), "go")
    assert outputs(told.end.items) == [("c1", "1"), ("c2", "2")]
    assert sorted(where) == [("c1", False), ("c2", False)]


async def test_every_call_has_a_key_of_its_own_and_the_dispatch_names_it() -> None:
    tools = [Tool("a", effect="keyed"), Tool("b", effect="keyed")]
    told = await ran(Config(model=two(), tools=tools), "go")
    keys = [event.idempotency_key for event in told.of(ToolDispatch)]
    assert [one.calls[0].idempotency_key for one in tools] == keys
    assert len(set(keys)) == 2
    assert all(keys)


async def test_response_end_comes_before_any_call_and_items_before_it() -> None:
    told = await ran(Config(model=two(), tools=[Tool("a"), Tool("b")]), "go")
    at = told.events.index(told.of(ResponseEnd)[0])
    assert all(told.events.index(event) > at for event in told.of(ToolStart))
    assert item_ends(told.events[:at]) == ["user: go", "call c1: a({})", "call c2: b({})"]


async def test_a_drive_without_a_retry_policy_sends_once() -> None:
    assert Retry().max_attempts == 1
    told = await ran(Config(model=ScriptedModel(["hi"])), "go")
    assert [event.item.type for event in told.of(ItemStart)] == ["message", "message"]
    await settle()

"""Pauses: for an approval, for a person's answer, for the caller's own tool; and going on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from perdure import call_model
from perdure.compose import (
    ClientTool,
    Lifecycle,
    PermissionVerdict,
    Risk,
    ToolCall,
    ToolVerdict,
    TurnContext,
    UnsentToolResult,
    client_tool,
    human_tool,
    manual_tool,
    update_state,
)
from perdure.errors import InputRequired, NotPending, ServerFailed
from perdure.loop import Middleware, Retry, ToolCallInfo, ToolDecision
from perdure.testing import ScriptedModel, attempts, call, fail, turn
from perdure.wire import (
    FunctionCallOutput,
    Item,
    function_call_output,
    input_text,
    user,
)
from tests.compose.helpers import Counter, Kept, calls_of, check_requests, outputs


def gated(counter: Counter, name: str = "gated") -> ClientTool:
    return counter.tool(name, require_approval=True)


def two_calls() -> ScriptedModel:
    both = turn(
        call("free", {"x": "f"}, "c_free"),
        call("gated", {"x": "g"}, "c_gated"),
    )
    return ScriptedModel([both, "done"])


class Permits(Lifecycle):
    """Answers permission requests, and keeps what it was asked."""

    def __init__(self, *verdicts: PermissionVerdict) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[tuple[str, Mapping[str, object], Risk]] = []
        self.used: list[str] = []

    async def permission_request(
        self, session_id: str, tool: str, arguments: Mapping[str, object], risk: Risk
    ) -> PermissionVerdict:
        self.asked.append((tool, arguments, risk))
        return self.verdicts.pop(0) if self.verdicts else PermissionVerdict()

    async def pre_tool_use(
        self, session_id: str, tool: str, arguments: Mapping[str, object]
    ) -> ToolVerdict:
        self.used.append(tool)
        return ToolVerdict()


# --- approvals ------------------------------------------------------------------------------


async def test_a_gated_call_waits_and_the_others_run() -> None:
    counter, kept, model = Counter(), Kept(), two_calls()
    tools = [counter.tool("free"), gated(counter)]
    result = call_model(model, "go", tools=tools, state=kept)
    assert await result.text() == ""
    assert await result.requires_approval()
    (waiting,) = await result.pending_tool_calls()
    assert (waiting.id, waiting.name, waiting.arguments) == ("c_gated", "gated", {"x": "g"})
    assert counter.ran == ["f"]
    assert kept.status() == "awaiting_approval"
    assert len(model.requests) == 1
    assert calls_of((await result.response()).output) == ["c_free", "c_gated"]


async def test_an_approved_call_runs_once_and_the_run_goes_on() -> None:
    counter, kept, model = Counter(), Kept(), two_calls()
    tools = [counter.tool("free"), gated(counter)]
    await call_model(model, "go", tools=tools, state=kept).text()
    result = call_model(model, tools=tools, state=kept, approve=["c_gated"])
    assert await result.text() == "done"
    assert counter.ran == ["f", "g"]
    assert outputs(model.requests[1]) == {"c_free": "did f", "c_gated": "did g"}
    assert kept.status() == "complete"
    assert kept.now.pending_tool_calls == ()
    assert not await result.requires_approval()
    check_requests(model)


async def test_a_rejected_call_never_runs_and_the_model_reads_why() -> None:
    counter, kept, model = Counter(), Kept(), two_calls()
    tools = [counter.tool("free"), gated(counter)]
    await call_model(model, "go", tools=tools, state=kept).text()
    reject = {"c_gated": "too expensive"}
    assert await call_model(model, tools=tools, state=kept, reject=reject).text() == "done"
    assert counter.ran == ["f"]
    assert outputs(model.requests[1])["c_gated"] == "Error: too expensive"


async def test_a_value_may_be_the_state() -> None:
    counter, model = Counter(), two_calls()
    tools = [counter.tool("free"), gated(counter)]
    state = await call_model(model, "go", tools=tools).state()
    again = call_model(model, tools=tools, state=state, approve=["c_gated"])
    assert await again.text() == "done"
    assert state.status == "awaiting_approval", "the state given is as it was"


async def test_undecided_calls_go_on_waiting_without_a_request() -> None:
    counter, kept = Counter(), Kept()
    three = turn(*(call("gated", {"x": name}, f"c_{name}") for name in "abc"))
    model = ScriptedModel([three, "done"])
    tools = [gated(counter)]
    await call_model(model, "go", tools=tools, state=kept).text()
    result = call_model(model, tools=tools, state=kept, approve=["c_b"])
    assert await result.text() == ""
    with pytest.raises(InputRequired):
        await result.response()
    assert [one.id for one in await result.pending_tool_calls()] == ["c_a", "c_c"]
    assert counter.ran == ["b"]
    assert len(model.requests) == 1
    assert kept.status() == "awaiting_approval"
    final = call_model(model, tools=tools, state=kept, approve=["c_c"], reject=["c_a"])
    assert await final.text() == "done"
    assert counter.ran == ["b", "c"]
    assert outputs(model.requests[1])["c_a"] == "Error: rejected by the user"


async def test_decisions_about_calls_that_do_not_wait_are_refused() -> None:
    counter, kept, model = Counter(), Kept(), two_calls()
    tools = [counter.tool("free"), gated(counter)]
    await call_model(model, "go", tools=tools, state=kept).text()
    for wrong in ("c_free", "c_other"):
        with pytest.raises(NotPending, match=wrong):
            await call_model(model, tools=tools, state=kept, approve=[wrong]).text()
    assert counter.ran == ["f"]


async def test_a_new_input_while_an_approval_waits_is_refused_and_changes_nothing() -> None:
    counter, kept, model = Counter(), Kept(), two_calls()
    tools = [counter.tool("free"), gated(counter)]
    await call_model(model, "go", tools=tools, state=kept).text()
    before = kept.now
    with pytest.raises(InputRequired) as refused:
        await call_model(model, "and?", tools=tools, state=kept).text()
    assert refused.value.call_ids == ("c_gated",)
    assert kept.now == before
    assert len(model.requests) == 1


async def test_a_gate_is_asked_once_for_each_call() -> None:
    asked: list[str] = []

    async def gate(one: ToolCall, turn: TurnContext) -> bool:
        asked.append(f"{one.id}@{turn.number_of_turns}")
        return one.members["x"] == "g"

    counter = Counter()
    hooks = Permits()
    tools = [counter.tool(name, require_approval=gate) for name in ("free", "gated")]
    await call_model(two_calls(), "go", tools=tools, state=Kept(), hooks=hooks).text()
    assert asked == ["c_free@0", "c_gated@0"]
    assert hooks.asked == [("gated", {"x": "g"}, "high")]


async def test_the_runs_own_gate_replaces_those_of_the_tools() -> None:
    counter, kept = Counter(), Kept()
    tools = [counter.tool("free"), gated(counter)]

    def gate(one: ToolCall, turn: TurnContext) -> bool:
        return one.name == "free"

    await call_model(two_calls(), "go", tools=tools, state=kept, require_approval=gate).text()
    assert counter.ran == ["g"]
    assert [one.name for one in kept.now.pending_tool_calls] == ["free"]


@pytest.mark.parametrize(
    ("verdict", "ran", "output"),
    [
        (PermissionVerdict("allow"), ["f", "g"], "did g"),
        (PermissionVerdict("deny", "not now"), ["f"], "Error: not now"),
        (PermissionVerdict("deny"), ["f"], "Error: denied by a permission hook"),
    ],
)
async def test_a_hook_may_answer_in_place_of_a_person(
    verdict: PermissionVerdict, ran: list[str], output: str
) -> None:
    counter, model = Counter(), two_calls()
    hooks = Permits(verdict)
    tools = [counter.tool("free"), gated(counter)]
    assert await call_model(model, "go", tools=tools, hooks=hooks).text() == "done"
    assert sorted(counter.ran) == sorted(ran)
    assert outputs(model.requests[1])["c_gated"] == output
    assert hooks.asked == [("gated", {"x": "g"}, "medium")]


async def test_a_call_that_a_hook_allowed_runs_though_another_waits() -> None:
    counter, kept = Counter(), Kept()
    both = turn(call("gated", {"x": "a"}, "c_a"), call("gated", {"x": "b"}, "c_b"))
    model = ScriptedModel([both, "done"])
    hooks = Permits(PermissionVerdict("allow"), PermissionVerdict("ask_user"))
    await call_model(model, "go", tools=[gated(counter)], state=kept, hooks=hooks).text()
    assert counter.ran == ["a"]
    again = call_model(model, tools=[gated(counter)], state=kept, approve=["c_b"], hooks=hooks)
    assert await again.text() == "done"
    assert counter.ran == ["a", "b"]
    assert len(hooks.asked) == 2, "a decision asks no permission again"
    assert hooks.used == ["gated", "gated"]


class NeedsTwo(Middleware):
    """A gate of several people: no approval of one passes it."""

    def __init__(self) -> None:
        self.votes = 0

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        if info.call.name == "gated" and self.votes < 2:
            return ToolDecision(action="hold", reason="2 of 3 must approve", by="policy")
        return None


async def test_neither_an_approval_nor_a_permission_passes_a_gate_of_several_people() -> None:
    counter, kept, gate = Counter(), Kept(), NeedsTwo()
    model = two_calls()
    tools = [counter.tool("free"), gated(counter)]
    hooks = Permits(PermissionVerdict("allow"))
    await call_model(model, "go", tools=tools, state=kept, hooks=hooks, middleware=[gate]).text()
    assert kept.status() == "awaiting_approval"
    for _ in range(2):
        await call_model(
            model, tools=tools, state=kept, approve=["c_gated"], middleware=[gate]
        ).text()
        assert kept.status() == "awaiting_approval"
        assert counter.ran == ["f"]
    gate.votes = 2
    done = call_model(model, tools=tools, state=kept, approve=["c_gated"], middleware=[gate])
    assert await done.text() == "done"
    assert counter.ran == ["f", "g"]


async def test_arguments_that_cannot_be_read_raise_nothing_and_are_answered() -> None:
    def gate(one: ToolCall, turn: TurnContext) -> bool:
        return one.members["x"] == "g"

    counter, hooks = Counter(), Permits()
    tools = [counter.tool("gated", require_approval=gate)]
    model = ScriptedModel([call("gated", "{broken", "c"), "done"])
    assert await call_model(model, "go", tools=tools, hooks=hooks).text() == "done"
    assert outputs(model.requests[1])["c"].startswith("Error: invalid arguments: not valid JSON")
    assert counter.ran == []
    assert hooks.asked == []
    assert hooks.used == []


async def test_results_that_another_library_kept_unsent_are_sent() -> None:
    counter, model = Counter(), two_calls()
    tools = [counter.tool("free"), gated(counter)]
    state = await call_model(model, "go", tools=tools).state()
    without = tuple(one for one in state.messages if not isinstance(one, FunctionCallOutput))
    foreign = update_state(
        state,
        messages=without,
        unsent_tool_results=(UnsentToolResult(call_id="c_free", name="free", output="did f"),),
    )
    kept = Kept(foreign)
    await call_model(model, tools=tools, state=kept, approve=["c_gated"]).text()
    assert outputs(model.requests[1]) == {"c_free": "did f", "c_gated": "did g"}
    assert counter.ran == ["f", "g"]
    assert kept.now.unsent_tool_results == ()


# --- tools that the caller runs ----------------------------------------------------------------


async def test_a_round_of_both_kinds_sends_no_unanswered_call() -> None:
    counter, kept = Counter(), Kept()
    both = turn(call("work", {"x": "a"}, "c_a"), call("mine", {"y": 1}, "c_m"))
    model = ScriptedModel([both, "done"])
    tools = [counter.tool(), manual_tool("mine")]
    await call_model(model, "go", tools=tools, state=kept).text()
    assert len(model.requests) == 1
    assert counter.ran == ["a"]
    assert kept.status() == "awaiting_client_tools"
    (waiting,) = kept.now.pending_tool_calls
    assert (waiting.id, waiting.arguments, waiting.why) == ("c_m", {"y": 1}, "client")
    answer = function_call_output("c_m", "mine")
    result = call_model(model, answer, tools=tools, state=kept)
    assert await result.text() == "done"
    assert outputs(model.requests[1]) == {"c_a": "did a", "c_m": "mine"}
    assert kept.status() == "complete"
    assert await result.pending_tool_calls() == ()


async def test_a_round_of_manual_calls_alone_lists_them() -> None:
    kept = Kept()
    model = ScriptedModel([turn(call("mine", call_id="c1"), call("mine", call_id="c2"))])
    await call_model(model, "go", tools=[manual_tool("mine")], state=kept).text()
    assert [one.id for one in kept.now.pending_tool_calls] == ["c1", "c2"]
    assert kept.status() == "awaiting_client_tools"


async def test_an_unknown_tool_is_the_callers() -> None:
    kept = Kept()
    model = ScriptedModel([call("elsewhere", call_id="c1"), "done"])
    await call_model(model, "go", state=kept).text()
    assert kept.status() == "awaiting_client_tools"
    answered = call_model(model, function_call_output("c1", "there"), state=kept)
    assert await answered.text() == "done"


async def test_a_resume_that_fails_leaves_the_pause_as_it_was() -> None:
    kept = Kept()
    model = ScriptedModel([call("mine", call_id="c1"), attempts(fail("busy"), "done")])
    tools = [manual_tool("mine")]
    await call_model(model, "go", tools=tools, state=kept).text()
    before = kept.now
    answer = function_call_output("c1", "mine")
    with pytest.raises(ServerFailed):
        await call_model(model, answer, tools=tools, state=kept, retry=Retry()).text()
    assert kept.now == before
    assert await call_model(model, answer, tools=tools, state=kept).text() == "done"
    assert kept.now.pending_tool_calls == ()


async def test_an_answer_may_come_with_what_the_user_says() -> None:
    kept = Kept()
    model = ScriptedModel([call("mine", call_id="c1"), "done"])
    tools = [manual_tool("mine")]
    await call_model(model, "go", tools=tools, state=kept).text()
    said: list[Item] = [function_call_output("c1", "mine"), user("and hurry")]
    await call_model(model, said, tools=tools, state=kept).text()
    assert model.requests[1].input[-2:] == said
    check_requests(model)


async def test_some_answers_are_kept_while_others_are_awaited() -> None:
    kept = Kept()
    model = ScriptedModel([turn(call("mine", call_id="c1"), call("mine", call_id="c2")), "done"])
    tools = [manual_tool("mine")]
    await call_model(model, "go", tools=tools, state=kept).text()
    await call_model(model, function_call_output("c1", "one"), tools=tools, state=kept).text()
    assert len(model.requests) == 1
    assert [one.id for one in kept.now.pending_tool_calls] == ["c2"]
    again = call_model(model, function_call_output("c2", "two"), tools=tools, state=kept)
    assert await again.text() == "done"
    assert outputs(model.requests[1]) == {"c1": "one", "c2": "two"}


async def test_an_output_for_a_call_that_does_not_wait_is_refused() -> None:
    kept = Kept()
    model = ScriptedModel([call("mine", call_id="c1"), "done"])
    await call_model(model, "go", tools=[manual_tool("mine")], state=kept).text()
    with pytest.raises(NotPending, match="c9"):
        await call_model(
            model, function_call_output("c9", "x"), tools=[manual_tool("mine")], state=kept
        ).text()


# --- people -----------------------------------------------------------------------------------


def asking(answers: list[object], counter: Counter | None = None, **options: object) -> ClientTool:
    """A question that is answered from a list; None is not answered."""

    @human_tool(output=dict, name="ask", **options)  # type: ignore[arg-type]
    async def ask(x: str = "") -> object:
        """Ask a person."""
        if counter is not None:
            counter.ran.append(x)
        return answers.pop(0) if answers else None

    return ask


async def test_a_question_that_is_answered_at_once_is_a_result() -> None:
    counter = Counter()
    model = ScriptedModel([call("ask", {"x": "q"}, "c1"), "done"])
    result = call_model(model, "go", tools=[asking([{"yes": True}], counter)])
    assert await result.text() == "done"
    assert counter.ran == ["q"]
    assert outputs(model.requests[1]) == {"c1": '{"yes":true}'}


async def test_a_question_without_an_answer_pauses_and_the_others_outputs_are_kept() -> None:
    counter, kept = Counter(), Kept()
    both = turn(call("ask", {"x": "q"}, "c1"), call("work", {"x": "a"}, "c2"))
    model = ScriptedModel([both, "done"])
    tools = [asking([]), counter.tool()]
    await call_model(model, "go", tools=tools, state=kept).text()
    assert kept.status() == "awaiting_hitl"
    assert [one.id for one in kept.now.pending_tool_calls] == ["c1"]
    assert len(model.requests) == 1
    assert counter.ran == ["a"]
    answer = function_call_output("c1", '{"yes":true}')
    result = call_model(model, answer, tools=tools, state=kept)
    assert await result.text() == "done"
    assert await result.pending_tool_calls() == ()
    assert not await result.requires_approval()
    assert outputs(model.requests[1]) == {"c1": '{"yes":true}', "c2": "did a"}


async def test_an_answer_that_does_not_fit_reaches_the_model_with_what_was_wrong() -> None:
    kept = Kept()
    model = ScriptedModel([call("ask", call_id="c1"), "done"])
    await call_model(model, "go", tools=[asking([])], state=kept).text()
    answer = function_call_output("c1", '"no object"')
    await call_model(model, answer, tools=[asking([])], state=kept).text()
    said = msgspec.json.decode(outputs(model.requests[1])["c1"])
    assert said["originalOutput"] == "no object"
    assert "expected object" in said["error"]


async def test_what_a_tool_makes_of_an_answer_takes_its_place_and_history_is_left_alone() -> None:
    received: list[object] = []

    async def take(raw: object) -> object:
        received.append(raw)
        return {"seen": raw}

    kept = Kept()
    tools = [asking([], on_response_received=take)]
    model = ScriptedModel([call("ask", call_id="c1"), "done", "again"])
    await call_model(model, "go", tools=tools, state=kept).text()
    await call_model(model, function_call_output("c1", "plain"), tools=tools, state=kept).text()
    assert outputs(model.requests[1])["c1"] == '{"seen":"plain"}'
    await call_model(model, "more", tools=tools, state=kept).text()
    assert received == ["plain"]


async def test_a_failing_hook_shows_the_model_the_error_and_what_was_sent() -> None:
    def fails(raw: object) -> object:
        raise ValueError("cannot take it")

    tools = [asking([], on_response_received=fails)]
    for sent, shown in (
        ("plain", ['{"error":"cannot take it","originalOutput":"plain"}']),
        ((input_text("a"), input_text("b")), ['{"error":"cannot take it"}', "a", "b"]),
    ):
        kept = Kept()
        model = ScriptedModel([call("ask", call_id="c1"), "done"])
        await call_model(model, "go", tools=tools, state=kept).text()
        answer = FunctionCallOutput(call_id="c1", output=sent)
        await call_model(model, answer, tools=tools, state=kept).text()
        given = model.requests[1].input[-1].output  # type: ignore[union-attr]
        said = [given] if isinstance(given, str) else [part.text for part in given]  # type: ignore[union-attr]
        assert said == shown


async def test_a_content_array_that_is_an_answer_stays_one() -> None:
    def pass_on(raw: object) -> object:
        return raw

    @human_tool(output=list, name="ask", on_response_received=pass_on)
    async def ask() -> object:
        """Ask."""
        return None

    kept = Kept()
    model = ScriptedModel([call("ask", call_id="c1"), "done"])
    await call_model(model, "go", tools=[ask], state=kept).text()
    answer = function_call_output("c1", (input_text("a"), input_text("b")))
    await call_model(model, answer, tools=[ask], state=kept).text()
    assert model.requests[1].input[-1].output == (input_text("a"), input_text("b"))  # type: ignore[union-attr]


async def test_an_answer_to_a_call_of_the_same_input_is_put_to_its_tool() -> None:
    from perdure.wire import function_call

    async def take(raw: object) -> object:
        return {"seen": raw}

    model = ScriptedModel(["done"], after=1)
    history: list[Item] = [
        user("go"),
        function_call("c1", "ask"),
        function_call_output("c1", "plain"),
    ]
    await call_model(model, history, tools=[asking([], on_response_received=take)]).text()
    assert outputs(model.requests[0])["c1"] == '{"seen":"plain"}'


async def test_an_approved_question_without_an_answer_goes_on_waiting_for_the_answer() -> None:
    received: list[object] = []
    counter, kept = Counter(), Kept()
    tools = [asking([], counter, require_approval=True, on_response_received=received.append)]
    model = ScriptedModel([call("ask", {"x": "q"}, "c1"), "done"])
    await call_model(model, "go", tools=tools, state=kept).text()
    assert kept.status() == "awaiting_approval"
    assert counter.ran == []
    await call_model(model, tools=tools, state=kept, approve=["c1"]).text()
    assert kept.status() == "awaiting_hitl"
    assert [one.id for one in kept.now.pending_tool_calls] == ["c1"]
    assert counter.ran == ["q"]
    assert received == [], "what a run makes itself is no answer of a person"


async def test_a_question_that_raises_is_an_error_that_the_model_reads() -> None:
    @human_tool(output=str)
    async def ask() -> str | None:
        """Ask."""
        raise ValueError("nobody there")

    model = ScriptedModel([call("ask", call_id="c1"), "done"])
    assert await call_model(model, "go", tools=[ask]).text() == "done"
    assert "nobody there" in outputs(model.requests[1])["c1"]


async def test_questions_of_one_round_are_put_at_once() -> None:
    asked = 0
    both = asyncio.Event()

    @human_tool(output=str)
    async def ask() -> str:
        """Ask."""
        nonlocal asked
        asked += 1
        if asked == 2:
            both.set()
        await both.wait()
        return "yes"

    model = ScriptedModel([turn(call("ask", call_id="c1"), call("ask", call_id="c2")), "done"])
    assert await call_model(model, "go", tools=[ask]).text() == "done"


# --- every kind at once -------------------------------------------------------------------------


async def test_whoever_waits_first_names_the_status() -> None:
    counter, kept = Counter(), Kept()
    every = turn(
        call("gated", {"x": "g"}, "c_g"), call("ask", call_id="c_a"), call("mine", call_id="c_m")
    )
    model = ScriptedModel([every, "done"])
    tools = [gated(counter), asking([]), manual_tool("mine")]
    await call_model(model, "go", tools=tools, state=kept).text()
    assert kept.status() == "awaiting_approval"
    await call_model(model, tools=tools, state=kept, approve=["c_g"]).text()
    assert kept.status() == "awaiting_hitl"
    await call_model(model, function_call_output("c_a", "{}"), tools=tools, state=kept).text()
    assert kept.status() == "awaiting_client_tools"
    done = call_model(model, function_call_output("c_m", "x"), tools=tools, state=kept)
    assert await done.text() == "done"
    assert counter.ran == ["g"]
    check_requests(model)


async def test_a_nested_call_of_a_gated_tool_is_not_run_without_being_asked() -> None:
    from perdure import invoke

    counter = Counter()

    @client_tool(effect="none")
    async def outer() -> str:
        """Call another."""
        try:
            return str((await invoke("gated", {"x": "g"})).output)
        except Exception as error:  # noqa: BLE001
            return f"refused: {error}"

    model = ScriptedModel([call("outer", call_id="c1"), "done"])
    await call_model(model, "go", tools=[outer, gated(counter)]).text()
    assert counter.ran == []
    assert "refused" in outputs(model.requests[1])["c1"]


async def test_a_gate_that_fails_lets_nothing_run_and_ends_nothing() -> None:
    def broken(one: ToolCall, turn: TurnContext) -> bool:
        raise ValueError("no idea")

    counter, kept, model = Counter(), Kept(), two_calls()
    tools = [counter.tool("free"), counter.tool("gated", require_approval=broken)]
    await call_model(model, "go", tools=tools, state=kept).text()
    assert counter.ran == ["f"]
    assert kept.status() == "awaiting_approval"


async def test_an_approved_call_that_nothing_here_can_run_is_answered() -> None:
    kept = Kept()
    model = ScriptedModel([call("mine", call_id="c1"), "done"])
    tools = [manual_tool("mine")]
    await call_model(model, "go", tools=tools, state=kept).text()
    done = call_model(model, tools=tools, state=kept, approve=["c1"])
    assert await done.text() == "done"
    assert outputs(model.requests[1])["c1"].startswith("Error: not run")


async def test_the_refusal_of_a_call_is_a_new_message_and_the_callers_answer_is_none() -> None:
    kept, counter = Kept(), Counter()
    both = turn(call("gated", {"x": "g"}, "c_g"), call("mine", call_id="c_m"))
    model = ScriptedModel([both, "done"])
    tools = [gated(counter), manual_tool("mine")]
    await call_model(model, "go", tools=tools, state=kept).text()
    first = call_model(model, tools=tools, state=kept, reject=["c_g"])
    shown = [one async for one in first.new_messages_stream()]
    assert [one.type for one in shown] == ["function_call_output"]
    second = call_model(model, function_call_output("c_m", "x"), tools=tools, state=kept)
    assert [one.type async for one in second.new_messages_stream()] == ["message"]


async def test_an_approval_holds_though_a_context_is_passed_with_it() -> None:
    counter, kept, model = Counter(), Kept(), two_calls()
    tools = [counter.tool("free"), gated(counter)]
    await call_model(model, "go", tools=tools, state=kept).text()
    done = call_model(model, tools=tools, state=kept, approve=["c_gated"], context={"gated": {}})
    assert await done.text() == "done"
    assert counter.ran == ["f", "g"]

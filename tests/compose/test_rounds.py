"""Rounds: when they stop, what is asked then, and what each request is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from perdure import call_model, tool
from perdure.compose import (
    FINAL_RESPONSE_DIRECTIVE,
    ClientTool,
    Lifecycle,
    ModelCalled,
    StepResult,
    StopVerdict,
    TurnContext,
    client_tool,
    finish_reason,
    finish_reason_is,
    has_tool_call,
    human_tool,
    is_stop_condition_met,
    manual_tool,
    max_cost,
    max_tokens_used,
    step_count_is,
)
from perdure.errors import ConfigError, EmptyAnswer
from perdure.loop import ModelRequest
from perdure.testing import ScriptedModel, TurnLike, attempts, call, item, reasoning, turn
from perdure.wire import (
    AllowedTools,
    FunctionChoice,
    IncompleteDetails,
    Response,
    Usage,
    assistant,
    function_call,
    user,
    with_unknown,
)
from tests.compose.helpers import Counter, Kept, body, check_pairs, check_requests, outputs


def asking(name: str = "work") -> ScriptedModel:
    """A model that asks for a tool for ever."""
    return ScriptedModel(lambda number: call(name, {"x": str(number)}))


def asking_until(last: int, words: str = "done") -> ScriptedModel:
    return ScriptedModel(
        lambda number: call("work", {"x": str(number)}) if number < last else words
    )


# --- the limit and the final answer --------------------------------------------------------


async def test_five_rounds_and_then_the_final_answer_with_its_directive() -> None:
    counter, model = Counter(), asking_until(5, "enough")
    result = call_model(model, "go", tools=[counter.tool()], state=(kept := Kept()))
    assert await result.text() == "enough"
    assert counter.ran == ["0", "1", "2", "3", "4"]
    final = model.requests[5]
    assert final.settings.tool_choice == "none"
    assert final.settings.tools, "the tools stay, for the provider's cache"
    assert final.input[-1] == user(FINAL_RESPONSE_DIRECTIVE)
    assert all(request.settings.tool_choice != "none" for request in model.requests[:5])
    assert user(FINAL_RESPONSE_DIRECTIVE) not in kept.now.messages
    check_requests(model)


async def test_a_call_in_the_final_answer_is_answered_not_run() -> None:
    counter, model = Counter(), asking()
    kept = Kept()
    result = call_model(model, "go", tools=[counter.tool()], state=kept)
    assert await result.text() == ""
    assert counter.ran == ["0", "1", "2", "3", "4"]
    state = await result.state()
    assert state.status == "complete"
    assert state.messages[-1].output == "Error: not run: limit"  # type: ignore[union-attr]
    # the answer was empty, so it was asked for once more, and that is accepted
    assert len(model.requests) == 7
    assert model.requests[6].settings.tool_choice == "none"
    check_requests(model)


async def test_pending_calls_run_before_the_final_answer_of_a_stop() -> None:
    counter, model = Counter(), asking_until(2)
    result = call_model(model, "go", tools=[counter.tool()], stop_when=step_count_is(1))
    assert await result.text() == "done"
    # one round, then the next response stops the run: its calls run, then comes the final answer
    assert counter.ran == ["0", "1"]
    assert [r.settings.tool_choice for r in model.requests][-1] == "none"


async def test_a_stop_that_no_call_waits_for_is_a_plain_end() -> None:
    counter, model = Counter(), asking_until(1)
    result = call_model(model, "go", tools=[counter.tool()], stop_when=step_count_is(1))
    assert await result.text() == "done"
    assert model.requests[-1].settings.tool_choice != "none"


@pytest.mark.parametrize(
    ("final", "said"),
    [(True, FINAL_RESPONSE_DIRECTIVE), ("Answer.", "Answer."), ("", None)],
)
async def test_what_the_final_request_says(final: bool | str, said: str | None) -> None:
    counter, model = Counter(), asking_until(2)
    await call_model(
        model, "go", tools=[counter.tool()], stop_when=step_count_is(1), final_response=final
    ).text()
    last = model.requests[-1]
    assert last.settings.tool_choice == "none"
    if said is None:
        assert last.input[-1].type == "function_call_output"
    else:
        assert last.input[-1] == user(said)


async def test_without_a_final_answer_the_pending_calls_are_answered_and_the_run_is_over() -> None:
    counter, model, kept = Counter(), asking(), Kept()
    result = call_model(
        model,
        "go",
        tools=[counter.tool()],
        stop_when=step_count_is(1),
        final_response=False,
        state=kept,
    )
    assert await result.text() == ""
    assert counter.ran == ["0"]
    assert len(model.requests) == 2
    assert kept.status() == "complete"
    assert kept.now.messages[-1].output == "Error: not run: limit"  # type: ignore[union-attr]


async def test_a_manual_call_at_a_stop_is_answered_and_one_alone_pauses() -> None:
    counter, kept = Counter(), Kept()
    both = turn(call("work", {"x": "a"}), call("mine"))
    model = ScriptedModel([call("work", {"x": "0"}), both, "done"])
    tools = [counter.tool(), manual_tool("mine")]
    result = call_model(model, "go", tools=tools, stop_when=step_count_is(1), state=kept)
    assert await result.text() == "done"
    assert counter.ran == ["0", "a"]
    assert sorted(outputs(model.requests[-1]).values()) == [
        "Error: not run: limit",
        "did 0",
        "did a",
    ]
    assert kept.status() == "complete"

    alone = ScriptedModel([call("work", {"x": "0"}), call("mine")])
    kept = Kept()
    await call_model(alone, "go", tools=tools, stop_when=step_count_is(1), state=kept).text()
    assert kept.status() == "awaiting_client_tools"
    assert [one.name for one in kept.now.pending_tool_calls] == ["mine"]


async def test_an_unanswered_question_at_a_stop_pauses_with_the_other_outputs_saved() -> None:
    @human_tool(output=str)
    async def ask() -> str | None:
        """Ask."""
        return None

    counter, kept = Counter(), Kept()
    both = turn(call("work", {"x": "a"}), call("ask"))
    model = ScriptedModel([call("work", {"x": "0"}), both])
    result = call_model(
        model, "go", tools=[counter.tool(), ask], stop_when=step_count_is(1), state=kept
    )
    await result.text()
    assert kept.status() == "awaiting_hitl"
    assert len(model.requests) == 2
    assert counter.ran == ["0", "a"]
    assert kept.now.messages[-1].output == "did a"  # type: ignore[union-attr]


async def test_a_gated_call_at_a_stop_is_never_run_without_its_approval() -> None:
    counter, kept = Counter(), Kept()
    gated = counter.tool(require_approval=True)
    for stop in (step_count_is(0), lambda steps: True):
        model = asking()
        await call_model(model, "go", tools=[gated], stop_when=stop, state=kept).text()
        assert counter.ran == []
        assert kept.status() == "awaiting_approval"
        kept = Kept()


async def test_step_count_zero_stops_at_once_and_runs_what_waits() -> None:
    counter, model = Counter(), asking_until(1)
    await call_model(model, "go", tools=[counter.tool()], stop_when=step_count_is(0)).text()
    assert counter.ran == ["0"]
    assert len(model.requests) == 2


async def test_a_condition_that_raises_ends_the_run() -> None:
    def broken(steps: Sequence[StepResult]) -> bool:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await call_model(asking(), "go", tools=[Counter().tool()], stop_when=broken).text()


# --- conditions ---------------------------------------------------------------------------


def step(*, tokens: int = 0, cost: float | None = None, name: str = "work") -> StepResult:
    usage = Usage(input_tokens=0, output_tokens=tokens, total_tokens=tokens)
    if cost is not None:
        usage = with_unknown(usage, {"cost": cost})
    from perdure.compose.turns import tool_call_of

    asked = function_call("c", name)
    return StepResult(
        response=Response(id="r", output=(asked,), usage=usage, status="completed"),
        tool_calls=(tool_call_of(asked),),
    )


@pytest.mark.parametrize(
    ("condition", "steps", "met"),
    [
        (step_count_is(2), [step()], False),
        (step_count_is(2), [step(), step()], True),
        (has_tool_call("work"), [], False),
        (has_tool_call("work"), [step()], True),
        (has_tool_call("rest"), [step()], False),
        (max_tokens_used(10), [step(tokens=5), step(tokens=4)], False),
        (max_tokens_used(10), [step(tokens=5), step(tokens=5)], True),
        (max_cost(1.0), [step(cost=0.5)], False),
        (max_cost(1.0), [step(cost=0.5), step(), step(cost=0.5)], True),
        (finish_reason_is("tool_calls"), [step()], True),
        (finish_reason_is("stop"), [step()], False),
    ],
)
async def test_conditions_speak_about_the_rounds_done(
    condition: object, steps: list[StepResult], met: bool
) -> None:
    assert await is_stop_condition_met([condition], steps) is met  # type: ignore[list-item]


async def test_any_of_several_conditions_stops_and_they_may_be_async() -> None:
    async def never(steps: Sequence[StepResult]) -> bool:
        return False

    assert await is_stop_condition_met([never, step_count_is(1)], [step()])
    assert not await is_stop_condition_met([never], [step()])
    counter, model = Counter(), asking_until(2)
    both = (never, step_count_is(1))
    await call_model(model, "go", tools=[counter.tool()], stop_when=both).text()
    assert counter.ran == ["0", "1"]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (Response(id="r", output=(assistant("x"),), status="completed"), "stop"),
        (Response(id="r", output=(function_call("c", "f"),), status="completed"), "tool_calls"),
        (Response(id="r", output=(), status="failed"), "error"),
        (
            Response(
                id="r",
                output=(),
                status="incomplete",
                incomplete_details=IncompleteDetails(reason="max_output_tokens"),
            ),
            "length",
        ),
        (
            Response(
                id="r",
                output=(),
                status="incomplete",
                incomplete_details=IncompleteDetails(reason="content_filter"),
            ),
            "content_filter",
        ),
    ],
)
def test_why_a_response_ended(response: Response, reason: str) -> None:
    assert finish_reason(response) == reason


async def test_a_step_holds_the_round() -> None:
    seen: list[StepResult] = []

    def look(steps: Sequence[StepResult]) -> bool:
        seen[:] = steps
        return False

    model = ScriptedModel(
        [
            turn("I look. ", call("work", {"x": "a"}), call("work", "{broken")),
            call("work", {"x": "b"}),
            "x",
        ]
    )
    await call_model(model, "go", tools=[Counter().tool()], stop_when=look).text()
    (only,) = seen
    assert only.text == "I look. "
    assert [one.name for one in only.tool_calls] == ["work", "work"]
    assert [one.error[:17] for one in only.tool_results] == ["", "invalid arguments"]
    assert only.tool_results[0].result == "did a"
    assert only.usage is not None


# --- the empty answer -----------------------------------------------------------------------


async def test_an_empty_answer_after_rounds_is_asked_for_once_more_with_the_same_input() -> None:
    counter, kept = Counter(), Kept()
    model = ScriptedModel([call("work", {"x": "a"}), attempts(turn(), "at last")])
    result = call_model(model, "go", tools=[counter.tool()], state=kept)
    assert await result.text() == "at last"
    first, again = model.requests[1:]
    assert again.input == first.input
    assert again.settings.tool_choice == "none"
    assert kept.now.messages[-1].text == "at last"  # type: ignore[union-attr]
    check_requests(model)


async def test_an_answer_that_stays_empty_is_accepted_as_empty_text() -> None:
    model = ScriptedModel([call("work", {"x": "a"}), attempts(turn(), turn())])
    result = call_model(model, "go", tools=[Counter().tool()])
    assert await result.text() == ""
    assert len(model.requests) == 3


async def test_an_empty_message_does_not_travel_with_the_second_request() -> None:
    model = ScriptedModel(
        [call("work", {"x": "a"}), attempts(turn(item(assistant(""))), "at last"), "at last"]
    )
    assert await call_model(model, "go", tools=[Counter().tool()]).text() == "at last"
    assert model.requests[2].input == model.requests[1].input


async def test_a_thought_alone_is_no_answer_and_earlier_thoughts_travel_again() -> None:
    model = ScriptedModel(
        [
            turn(reasoning("I look."), call("work", {"x": "a"})),
            attempts(turn(reasoning("Hm.")), "at last"),
            "at last",
        ]
    )
    assert await call_model(model, "go", tools=[Counter().tool()]).text() == "at last"
    assert model.requests[2].input == model.requests[1].input
    assert model.requests[2].input[1].type == "reasoning"


async def test_a_strict_run_raises_for_an_empty_answer() -> None:
    model = ScriptedModel([call("work", {"x": "a"}), turn()])
    with pytest.raises(EmptyAnswer):
        await call_model(model, "go", tools=[Counter().tool()], strict_final_response=True).text()
    assert len(model.requests) == 2


async def test_a_call_in_the_answer_asked_for_again_never_runs() -> None:
    counter, kept = Counter(), Kept()
    model = ScriptedModel([call("work", {"x": "a"}), attempts(turn(), call("work", {"x": "b"}))])
    await call_model(model, "go", tools=[counter.tool()], state=kept).text()
    assert counter.ran == ["a"]
    assert kept.now.messages[-1].output == "Error: not run: limit"  # type: ignore[union-attr]
    assert kept.status() == "complete"


# --- callbacks ----------------------------------------------------------------------------


async def test_callbacks_stand_around_rounds_and_not_the_first_turn() -> None:
    told: list[str] = []

    async def starts(turn: TurnContext) -> None:
        told.append(f"start {turn.number_of_turns}")

    def ends(turn: TurnContext, response: Response) -> None:
        told.append(f"end {turn.number_of_turns} {response.output_text}")

    counter = Counter()
    model = ScriptedModel([call("work", {"x": "a"}), turn("two ", call("work", {"x": "b"})), "x"])
    await call_model(
        model, "go", tools=[counter.tool()], on_turn_start=starts, on_turn_end=ends
    ).text()
    assert told == ["start 1", "end 1 two ", "start 2", "end 2 x"]


async def test_no_callback_for_a_round_that_pauses() -> None:
    told: list[int] = []
    model = asking()
    await call_model(
        model,
        "go",
        tools=[Counter().tool(require_approval=True)],
        state=Kept(),
        on_turn_start=lambda turn: told.append(turn.number_of_turns),
    ).text()
    assert told == []


# --- dynamic values ------------------------------------------------------------------------


async def test_functions_are_asked_for_every_request_with_the_round() -> None:
    async def instructions(turn: TurnContext) -> str:
        return f"round {turn.number_of_turns}"

    model = asking_until(2)
    await call_model(
        model,
        "go",
        tools=[Counter().tool()],
        temperature=lambda turn: turn.number_of_turns / 10,
        instructions=instructions,
        top_p=0.9,
    ).text()
    assert [r.settings.temperature for r in model.requests] == [0.0, 0.1, 0.2]
    assert [r.settings.instructions for r in model.requests] == ["round 0", "round 1", "round 2"]
    assert [r.settings.top_p for r in model.requests] == [0.9, 0.9, 0.9]


async def test_a_function_that_fails_is_named() -> None:
    def broken(turn: TurnContext) -> float:
        raise ValueError("no idea")

    with pytest.raises(ConfigError, match="'temperature' failed: no idea"):
        await call_model(ScriptedModel(["x"]), "go", temperature=broken).text()


async def test_a_function_of_the_turn_may_give_the_model() -> None:
    from perdure.models import Resolved
    from perdure.models.registry import register

    one, two = ScriptedModel([call("work", {"x": "a"})]), ScriptedModel(["two"], after=1)
    register("compose-one", lambda rest: Resolved(one, rest))
    register("compose-two", lambda rest: Resolved(two, rest))

    def model(turn: TurnContext) -> str:
        return "compose-one:first" if turn.number_of_turns == 0 else "compose-two:second"

    assert await call_model(model, "go", tools=[Counter().tool()]).text() == "two"
    assert one.requests[0].settings.model == "first"
    assert two.requests[0].settings.model == "second"


# --- what tools change of the requests to come ------------------------------------------------


def changing(name: str, counter: Counter, **params: object) -> ClientTool:
    return counter.tool(name, next_turn_params=params)


async def test_what_a_tool_changes_lasts_beside_functions_of_the_turn() -> None:
    def hotter(arguments: Mapping[str, object], request: Mapping[str, object]) -> object:
        return 0.9

    model = ScriptedModel(
        [call("hot", {"x": "a"}), call("work", {"x": "b"}), call("work", {"x": "c"}), "x"]
    )
    counter = Counter()
    tools = [changing("hot", counter, temperature=hotter), counter.tool()]
    await call_model(
        model, "go", tools=tools, temperature=0.1, top_p=lambda turn: turn.number_of_turns / 10
    ).text()
    assert [r.settings.temperature for r in model.requests] == [0.1, 0.9, 0.9, 0.9]
    assert [r.settings.top_p for r in model.requests] == [0.0, 0.1, 0.2, 0.3]


async def test_changes_compose_in_the_order_of_the_tools_and_none_unsets() -> None:
    def longer(arguments: Mapping[str, object], request: Mapping[str, object]) -> object:
        return f"{request.get('instructions', '')}+{arguments['x']}"

    counter = Counter()
    tools = [
        changing("one", counter, instructions=longer),
        changing("two", counter, instructions=longer, temperature=lambda a, r: None),
    ]
    model = ScriptedModel([turn(call("two", {"x": "t"}), call("one", {"x": "o"})), "x"])
    await call_model(model, "go", tools=tools, instructions="base", temperature=0.5).text()
    assert model.requests[1].settings.instructions == "base+o+t"
    assert "temperature" not in body(model.requests[1])


async def test_only_calls_that_ran_change_anything_and_broken_arguments_raise_nothing() -> None:
    asked: list[object] = []

    def note(arguments: Mapping[str, object], request: Mapping[str, object]) -> object:
        asked.append(arguments)
        return 0.9

    counter = Counter()
    tools = [
        changing("work", counter, temperature=note),
        changing("gone", counter, temperature=note),
    ]

    class Blocks(Lifecycle):
        async def pre_tool_use(self, session_id: str, tool: str, arguments: object) -> object:  # type: ignore[override]
            from perdure.compose import ToolVerdict

            return ToolVerdict(blocked="no") if tool == "gone" else ToolVerdict()

    model = ScriptedModel([turn(call("work", "{broken"), call("gone", {"x": "a"})), "x"])
    await call_model(model, "go", tools=tools, hooks=Blocks()).text()
    assert asked == []


async def test_changes_reach_the_forced_final_request() -> None:
    counter = Counter()
    tools = [changing("work", counter, temperature=lambda a, r: 0.7)]
    model = asking_until(2)
    await call_model(model, "go", tools=tools, stop_when=step_count_is(1)).text()
    assert model.requests[-1].settings.temperature == 0.7


async def test_a_tool_may_replace_what_one_request_carries() -> None:
    counter = Counter()
    tools = [changing("work", counter, input=lambda a, r: "only this")]

    def answer(request: ModelRequest) -> TurnLike:
        only = list(request.input) == [user("only this")]
        return "x" if only else call("work", {"x": "a"})

    model = ScriptedModel(lambda number: answer)
    result = call_model(model, "go", tools=tools)
    await result.text()
    assert list(model.requests[1].input) == [user("only this")]
    assert len((await result.state()).messages) == 4


def test_a_parameter_that_no_tool_may_change_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot change 'tools'"):

        @client_tool(next_turn_params={"tools": lambda a, r: None})
        async def bad() -> str:
            return ""


# --- a forced tool choice is for one call ----------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "after"),
    [
        ("required", "auto"),
        (FunctionChoice(name="work"), "auto"),
        (
            AllowedTools(tools=(FunctionChoice(name="work"),), mode="required"),
            AllowedTools(tools=(FunctionChoice(name="work"),), mode="auto"),
        ),
        ({"type": "function", "name": "work"}, "auto"),
    ],
)
async def test_a_forced_choice_relaxes_after_its_call(choice: object, after: object) -> None:
    model = asking_until(2)
    await call_model(model, "go", tools=[Counter().tool()], tool_choice=choice).text()
    first, *rest = [r.settings.tool_choice for r in model.requests]
    assert first == (choice if not isinstance(choice, dict) else FunctionChoice(name="work"))
    assert rest == [after, after]


async def test_a_forced_choice_stays_relaxed_across_a_pause_and_is_armed_after_the_end() -> None:
    kept, tools = Kept(), [manual_tool("mine")]
    model = ScriptedModel([call("mine", call_id="c1"), "done", call("mine", call_id="c2")])
    await call_model(model, "go", tools=tools, state=kept, tool_choice="required").text()
    assert kept.now.consumed_tool_choice == "required"
    from perdure.wire import function_call_output

    answer = function_call_output("c1", "ok")
    await call_model(model, answer, tools=tools, state=kept, tool_choice="required").text()
    assert model.requests[1].settings.tool_choice == "auto"
    assert kept.now.consumed_tool_choice == ""
    await call_model(model, "again", tools=tools, state=kept, tool_choice="required").text()
    assert model.requests[2].settings.tool_choice == "required"


async def test_another_forced_choice_arms_again_and_so_does_a_turn_that_forces_nothing() -> None:
    choices: list[object] = ["required", FunctionChoice(name="work"), "auto", "required"]

    def choose(turn: TurnContext) -> object:
        return choices[turn.number_of_turns]

    model = asking_until(3)
    await call_model(model, "go", tools=[Counter().tool()], tool_choice=choose).text()
    assert [r.settings.tool_choice for r in model.requests] == choices


# --- hooks at a stop ------------------------------------------------------------------------


class Stops(Lifecycle):
    def __init__(self, *verdicts: StopVerdict) -> None:
        self.verdicts = list(verdicts)
        self.asked = 0
        self.types: list[str] = []

    async def stop(self, session_id: str) -> StopVerdict:
        self.asked += 1
        return self.verdicts.pop(0) if self.verdicts else StopVerdict()

    async def post_model_call(self, called: ModelCalled) -> None:
        self.types.append(called.turn_type)


async def test_a_hook_may_have_the_run_go_on_and_its_prompt_joins_after_the_outputs() -> None:
    hooks = Stops(StopVerdict(resume=True, prompt="Look again."))
    counter, kept = Counter(), Kept()
    model = asking_until(3)
    await call_model(
        model, "go", tools=[counter.tool()], stop_when=step_count_is(1), hooks=hooks, state=kept
    ).text()
    assert counter.ran == ["0", "1", "2"]
    assert hooks.asked == 2
    assert model.requests[2].input[-1] == user("Look again.")
    assert hooks.types == ["initial", "tool_round", "tool_round", "final"]
    check_requests(model)


async def test_the_prompt_of_a_stop_is_said_before_the_final_answer_too() -> None:
    hooks = Stops(StopVerdict(prompt="Sum up."))
    model = asking_until(2)
    await call_model(
        model, "go", tools=[Counter().tool()], stop_when=step_count_is(1), hooks=hooks
    ).text()
    assert model.requests[-1].input[-2:] == [user("Sum up."), user(FINAL_RESPONSE_DIRECTIVE)]


# --- exactly once ---------------------------------------------------------------------------


@tool(effect="once")
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@pytest.mark.parametrize("hooks", [None, Lifecycle(), Stops()])
async def test_every_call_runs_once_with_hooks_and_without(hooks: Lifecycle | None) -> None:
    counter = Counter()
    calls = [call("work", {"x": str(n)}) for n in range(4)]
    model: ScriptedModel = ScriptedModel([turn(*calls), "done"])
    await call_model(model, "go", tools=[counter.tool(), pay], hooks=hooks).text()
    assert counter.ran == ["0", "1", "2", "3"]


# --- with the batteries -----------------------------------------------------------------------


async def test_a_model_that_goes_in_circles_is_stopped_and_leaves_a_whole_history() -> None:
    from perdure.middleware import DoomLoop

    kept, counter = Kept(), Counter()
    model = ScriptedModel(lambda number: turn(call("work", {"x": "same"}), call("work", "{odd")))
    ends: list[str] = []
    result = call_model(
        model,
        "go",
        tools=[counter.tool()],
        state=kept,
        middleware=[DoomLoop()],
        max_rounds=None,
        hooks={"SessionEnd": lambda payload, context: ends.append(payload.reason)},
    )
    await result.text()
    assert ends == ["doom_loop"]
    assert len(model.requests) == 6
    assert counter.ran == ["same", "same"]
    assert kept.status() == "complete"
    assert check_pairs(kept.now.messages) == []
    check_requests(model)


async def test_a_hooks_manager_hears_a_run_and_may_be_given_by_name() -> None:
    from perdure.compose.hooks import PRE_TOOL_USE, SESSION_END, HooksManager, PreToolUse

    told: list[str] = []

    def before(payload: PreToolUse, context: object) -> None:
        told.append(payload.tool_name)

    hooks = HooksManager()
    hooks.on(PRE_TOOL_USE, before)
    hooks.on(SESSION_END, lambda payload, context: told.append(payload.reason))
    await call_model(asking_until(1), "go", tools=[Counter().tool()], hooks=hooks).text()
    assert told == ["work", "complete"]
    told.clear()
    by_name = {"PreToolUse": before}
    await call_model(asking_until(1), "go", tools=[Counter().tool()], hooks=by_name).text()
    assert told == ["work"]

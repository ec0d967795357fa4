"""One run of `call_model`, from a question to an answer."""

from __future__ import annotations

import asyncio

import pytest

import perdure
from perdure import call_model, tool
from perdure.compose import (
    ClientTool,
    ModelResult,
    RunSignal,
    TurnContext,
    client_tool,
    manual_tool,
    result_from_response,
    server_tool,
    step_count_is,
)
from perdure.errors import Aborted, ConfigError, DuplicateTool, EmptyAnswer, ServerFailed
from perdure.loop import collect
from perdure.testing import ScriptedModel, call, fail, turn
from perdure.testing.clock import settle
from perdure.wire import Usage, assistant, user
from tests.compose.helpers import Counter, Kept, body, check_requests, outputs


@tool(effect="none")
async def weather(city: str) -> dict[str, object]:
    """Look up the weather."""
    return {"city": city, "degrees": 21}


def script() -> ScriptedModel:
    return ScriptedModel([call("weather", {"city": "Oslo"}), "21 degrees."])


async def test_nothing_happens_until_the_result_is_asked() -> None:
    model = script()
    result = call_model(model, "How warm is it?", tools=[weather])
    await settle()
    assert model.requests == []
    assert await result.text() == "21 degrees."
    assert len(model.requests) == 2
    assert list(outputs(model.requests[1]).values()) == ['{"city":"Oslo","degrees":21}']


async def test_every_accessor_waits_for_one_run() -> None:
    model = script()
    result = call_model(model, "How warm is it?", tools=[weather])
    text, response, state, usage = await asyncio.gather(
        result.text(), result.response(), result.state(), result.usage()
    )
    assert len(model.requests) == 2
    assert text == response.output_text == "21 degrees."
    assert state.status == "complete"
    assert usage.model_calls == 2
    assert [one.name for one in await result.tool_calls()] == ["weather"]
    assert not await result.requires_approval()
    check_requests(model)


async def test_a_failed_run_raises_the_same_error_from_every_accessor() -> None:
    model = ScriptedModel([fail("no room", type="server_error")])
    result = call_model(model, "hi", retry=perdure.Retry())
    with pytest.raises(ServerFailed, match="no room") as first:
        await result.text()
    with pytest.raises(ServerFailed) as second:
        await result.response()
    assert first.value is second.value
    assert (await result.usage()).model_calls == 0
    with pytest.raises(ServerFailed):
        async for _ in result.text_stream():
            pass


async def test_a_failure_after_rounds_says_what_the_provider_said() -> None:
    model = ScriptedModel([call("weather", {"city": "Oslo"}), fail("boom", code="oops")])
    with pytest.raises(ServerFailed, match="boom"):
        await call_model(model, "hi", tools=[weather], retry=perdure.Retry()).text()


async def test_members_reach_the_request_and_nothing_of_the_engine_does() -> None:
    model = script()
    result = call_model(
        model,
        "hi",
        tools=[weather, server_tool({"type": "web_search", "max": 3})],
        temperature=0.5,
        reasoning={"effort": "low"},
        models=["a", "b"],
        instructions="Be brief.",
        additional_instructions="Be kind.",
        stop_when=step_count_is(9),
        strict_final_response=True,
        context={"weather": {}},
        on_turn_start=lambda turn: None,
    )
    await result.text()
    sent = body(model.requests[0])
    assert set(sent) == {
        "include",
        "instructions",
        "models",
        "reasoning",
        "store",
        "temperature",
        "tools",
    }
    assert sent["instructions"] == "Be brief.\n\nBe kind."
    assert sent["reasoning"] == {"effort": "low"}
    assert sent["tools"][1] == {"type": "web_search", "max": 3}  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temprature": 1}, "no member 'temprature'"),
        ({"stream": True}, "belongs to the loop"),
        ({"approve": ["c1"]}, "give state="),
        ({"max_rounds": 0}, "at least 1"),
        ({"tool_timeout": 0}, "positive"),
        ({"stop_when": [3]}, "stop condition"),
        ({"state": 3}, "load and save"),
        ({"reasoning": object()}, "cannot be"),
        ({"shared_context": 3}, "shared_context"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_happens(
    options: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        call_model(ScriptedModel(["x"]), "hi", **options)  # type: ignore[arg-type]


def test_two_tools_of_one_name_and_reserved_names_are_refused() -> None:
    with pytest.raises(DuplicateTool):
        call_model(ScriptedModel(["x"]), "hi", tools=[weather, weather])
    with pytest.raises(ConfigError, match="shared"):
        manual_tool("shared")


def test_a_call_both_approved_and_rejected_is_refused() -> None:
    with pytest.raises(ConfigError, match="both"):
        call_model(ScriptedModel([]), state=Kept(), approve=["c"], reject=["c"])


async def test_an_empty_answer_without_any_round_raises() -> None:
    with pytest.raises(EmptyAnswer):
        await call_model(ScriptedModel([turn()]), "hi").text()


async def test_text_is_that_of_all_messages_of_the_last_response() -> None:
    from perdure.testing import item

    model = ScriptedModel([turn(item(assistant("one ")), item(assistant("two")))])
    assert await call_model(model, "hi").text() == "one two"


async def test_a_string_or_items_or_a_function_may_be_the_input() -> None:
    asked = 0

    def given(turn: TurnContext) -> str:
        nonlocal asked
        asked += 1
        return "hi"

    for one in ("hi", user("hi"), [user("hi")], given):
        model = script()
        await call_model(model, one, tools=[weather]).text()
        assert model.requests[0].input[0] == user("hi")
    assert asked == 1


async def test_a_finished_response_is_a_result_too() -> None:
    response = await collect(ScriptedModel(["Hello."]).stream(_request()))
    result = result_from_response(response)
    assert isinstance(result, ModelResult)
    assert await result.text() == "Hello."
    assert [piece async for piece in result.text_stream()] == ["Hello."]


def _request() -> perdure.ModelRequest:
    from perdure.loop import Items
    from perdure.wire import Request

    return perdure.ModelRequest(settings=Request(), input=Items.of([user("hi")]))


async def test_usage_is_the_sum_of_all_responses_with_what_they_cost() -> None:
    from perdure.wire import with_unknown

    paid = with_unknown(Usage(input_tokens=1, output_tokens=2, total_tokens=3), {"cost": 0.25})
    model = ScriptedModel(
        [turn(call("weather", {"city": "Oslo"}), usage=paid), turn("done", usage=paid)]
    )
    totals = await call_model(model, "hi", tools=[weather]).usage()
    assert totals.usage.total_tokens == 6
    assert totals.cost == 0.5
    assert totals.model_calls == 2


# --- stopping -----------------------------------------------------------------------------


def waiting_tool(entered: asyncio.Event, told: list[str]) -> ClientTool:
    @client_tool(effect="idempotent")
    async def wait() -> str:
        """Wait."""
        entered.set()
        call = perdure.current_call()
        await call.cancelled
        told.append(call.cancelled.reason)
        return "stopped"

    return wait


async def test_cancel_stops_tools_and_sends_no_other_request() -> None:
    entered, told = asyncio.Event(), list[str]()
    model = ScriptedModel([call("wait"), "never"])
    kept = Kept()
    result = call_model(model, "hi", tools=[waiting_tool(entered, told)], state=kept)
    result.begin()
    await entered.wait()
    result.cancel("enough")
    with pytest.raises(Aborted, match="enough"):
        await result.text()
    assert told == ["enough"]
    assert len(model.requests) == 1
    assert kept.status() == "in_progress"


async def test_a_signal_that_was_set_before_fails_before_any_request() -> None:
    signal, model = RunSignal(), script()
    signal.set("no")
    with pytest.raises(Aborted, match="no"):
        await call_model(model, "hi", tools=[weather], signal=signal).text()
    assert model.requests == []


async def test_a_shared_signal_stops_every_run_and_keeps_none_of_them() -> None:
    signal = RunSignal()
    for _ in range(3):
        await call_model(script(), "hi", tools=[weather], signal=signal).text()
    assert len(signal) == 0
    entered, told = asyncio.Event(), list[str]()
    result = call_model(
        ScriptedModel([call("wait")]),
        "hi",
        tools=[waiting_tool(entered, told)],
        signal=signal,
    )
    result.begin()
    await entered.wait()
    signal.set("closing")
    with pytest.raises(Aborted, match="closing"):
        await result.text()
    assert len(signal) == 0


async def test_leaving_the_result_stops_what_runs() -> None:
    entered, told = asyncio.Event(), list[str]()
    async with call_model(
        ScriptedModel([call("wait")]),
        "hi",
        tools=[waiting_tool(entered, told)],
    ) as result:
        result.begin()
        await entered.wait()
    assert told == ["the result was left"]


async def test_a_consumer_that_leaves_leaves_alone() -> None:
    model = script()
    result = call_model(model, "hi", tools=[weather])
    async for _ in result.text_stream():
        break
    assert await result.text() == "21 degrees."


async def test_a_waiter_that_is_cancelled_leaves_the_run_alone() -> None:
    counter = Counter()
    model = ScriptedModel([call("work", {"x": "a"}), "done"])
    result = call_model(model, "hi", tools=[counter.tool()])
    waiter = asyncio.create_task(result.text())
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert await result.text() == "done"
    assert counter.ran == ["a"]

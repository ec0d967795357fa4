"""Agents that answer with a value of a type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest

from perdure import Agent, Request, RunFailed, tool
from perdure.errors import ConfigError, NoOutput, OutputInvalid, OutputRefused, Overloaded
from perdure.loop import (
    Middleware,
    ModelRequest,
    ToolCallInfo,
    ToolDecision,
    ToolEnd,
    TurnInfo,
    approve,
)
from perdure.models.capabilities import Capabilities
from perdure.output import FINAL_TOOL, Output
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, attempts, call, refusal, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import Tool
from perdure.wire import (
    FunctionCall,
    FunctionTool,
    JsonSchemaFormat,
    Message,
    StreamEvent,
    TextConfig,
)
from tests.face.recorded import crashed
from tests.output.forms import INVOICE, Invoice, Person, Place

VALUE = Invoice("A-1", 4200)
WRONG = '{"number": "A-1", "total": "much"}'


class Able:
    """A scripted model that is known to be able to do something."""

    def __init__(self, script: Sequence[TurnLike], **can: bool) -> None:
        self._script = ScriptedModel(script)
        self._can = Capabilities(**can)

    @property
    def requests(self) -> list[ModelRequest]:
        return self._script.requests

    def capabilities(self, model: str) -> Capabilities:
        return self._can

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        return self._script.stream(request)


def native(*script: TurnLike) -> Able:
    return Able(script, schema=True, schema_with_tools=True)


def final(text: str = INVOICE) -> TurnLike:
    return call(FINAL_TOOL, text)


@tool(effect="none")
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} was found"


def tools_of(request: ModelRequest) -> list[str]:
    return [one.name for one in request.settings.tools or () if isinstance(one, FunctionTool)]


def said(request: ModelRequest) -> list[str]:
    return [
        item.text for item in request.input if isinstance(item, Message) and item.role == "user"
    ]


# --- natively --------------------------------------------------------------------------------


async def test_a_model_that_can_is_held_to_the_schema() -> None:
    model = native(INVOICE)
    result = await Agent(model, output=Invoice, tools=[look]).run("Read it.")

    assert (result.status, result.output, result.text) == ("done", VALUE, INVOICE)
    (request,) = model.requests
    assert tools_of(request) == ["look"]
    text = request.settings.text
    assert text
    form = text.format
    assert isinstance(form, JsonSchemaFormat)
    assert (form.name, form.strict, form.description) == ("Invoice", True, "What is to be paid.")


async def test_the_rest_of_the_settings_for_the_text_stays() -> None:
    model = native(INVOICE)
    settings = Request(text=TextConfig(verbosity="low"))
    await Agent(model, output=Invoice, settings=settings).run("Read it.")
    text = model.requests[0].settings.text
    assert text
    assert text.verbosity == "low"
    assert text.format


async def test_an_answer_that_does_not_fit_is_sent_back_with_what_is_wrong() -> None:
    model = native(WRONG, "none of it", INVOICE)
    result = await Agent(model, output=Invoice).run("Read it.")

    assert (result.output, result.turns) == (VALUE, 3)
    corrections = said(model.requests[2])[1:]
    assert "total: expected integer" in corrections[0]
    assert "not valid JSON" in corrections[1]


async def test_a_model_that_does_not_learn_ends_the_run_with_what_was_wrong() -> None:
    model = native(WRONG, WRONG, WRONG, INVOICE)
    with pytest.raises(RunFailed) as failed:
        await Agent(model, output=Invoice).run("Read it.")

    cause = failed.value.cause
    assert isinstance(cause, OutputInvalid)
    assert (cause.attempts, cause.reason) == (3, "total: expected integer, got string")
    assert len(model.requests) == 3
    assert not failed.value.result.has_output


async def test_no_retries_means_one_attempt() -> None:
    model = native(WRONG, INVOICE)
    with pytest.raises(RunFailed, match="after 1 attempts"):
        await Agent(model, output=Output(Invoice, retries=0)).run("Read it.")


async def test_a_refusal_is_said_to_be_one() -> None:
    with pytest.raises(RunFailed) as failed:
        await Agent(native(refusal("I will not.")), output=Invoice).run("Read it.")
    cause = failed.value.cause
    assert isinstance(cause, OutputRefused)
    assert cause.refusal == "I will not."


async def test_a_cut_answer_is_no_output_even_if_it_fits() -> None:
    result = await Agent(native(turn(INVOICE, incomplete="max_output_tokens")), output=Invoice).run(
        "Read it."
    )
    assert (result.status, result.cause) == ("stopped", "length")
    with pytest.raises(NoOutput, match=r"stopped \(length\)"):
        _ = result.output


async def test_a_failed_attempt_at_the_model_call_counts_as_no_answer() -> None:
    model = native(attempts(Overloaded("no", status=503, retry_after=0), WRONG), INVOICE)
    result = await Agent(model, output=Output(Invoice, retries=1)).run("Read it.")
    assert result.output == VALUE


# --- by the final tool -------------------------------------------------------------------------


async def test_a_model_that_cannot_gives_its_answer_by_the_final_tool() -> None:
    model = ScriptedModel([call("look", {"what": "it"}), final(), "never asked"])
    result = await Agent(model, output=Invoice, tools=[look]).run("Read it.")

    assert (result.status, result.output, result.cause) == ("done", VALUE, "")
    assert (result.text, result.turns) == (INVOICE, 2)
    assert tools_of(model.requests[0]) == [FINAL_TOOL, "look"]
    assert FINAL_TOOL in (model.requests[0].settings.instructions or "")
    assert not model.requests[0].settings.text


@pytest.mark.parametrize(
    ("can", "tools", "by_tool"),
    [
        ({"schema": True}, [look], True),
        ({"schema": True}, [], False),
        ({"schema": True, "schema_with_tools": True}, [look], False),
        ({}, [], True),
    ],
)
async def test_the_table_of_capabilities_chooses(
    can: dict[str, bool], tools: list[Tool], by_tool: bool
) -> None:
    model = Able([final() if by_tool else INVOICE], **can)
    result = await Agent(model, output=Invoice, tools=tools).run("Read it.")
    assert result.output == VALUE
    assert (FINAL_TOOL in tools_of(model.requests[0])) == by_tool


async def test_a_model_that_can_is_told_that_it_has_to_call_a_tool() -> None:
    chosen = []
    for settings in (Request(), Request(tool_choice="auto")):
        model = Able([final()], required=True)
        await Agent(model, output=Invoice, settings=settings).run("Read it.")
        chosen.append(model.requests[0].settings.tool_choice)
    assert chosen == ["required", "auto"]


async def test_the_mode_can_be_chosen_by_hand() -> None:
    by_tool, by_format = native(final()), ScriptedModel([INVOICE])
    assert (await Agent(by_tool, output=Output(Invoice, mode="tool")).run("x")).output == VALUE
    asked = Output(Invoice, mode="native", name="bill", description="A bill.")
    assert (await Agent(by_format, output=asked).run("x")).output == VALUE
    text = by_format.requests[0].settings.text
    assert text
    assert isinstance(text.format, JsonSchemaFormat)
    assert (text.format.name, text.format.description) == ("bill", "A bill.")


async def test_arguments_that_do_not_fit_are_an_error_that_the_model_reads() -> None:
    model = ScriptedModel([final(WRONG), final()])
    result = await Agent(model, output=Invoice).run("Read it.")
    assert result.output == VALUE
    assert model.requests[1].input[-1].text == (  # type: ignore[union-attr]
        "Error: invalid arguments: total: expected integer, got string"
    )


async def test_the_bound_holds_for_the_final_tool_too() -> None:
    model = ScriptedModel([final(WRONG), final(WRONG), final()])
    with pytest.raises(RunFailed) as failed:
        await Agent(model, output=Output(Invoice, retries=1)).run("Read it.")
    cause = failed.value.cause
    assert isinstance(cause, OutputInvalid)
    assert "total: expected integer" in cause.reason
    assert len(model.requests) == 2


async def test_text_instead_of_the_tool_is_taken_if_it_fits_and_sent_back_if_not() -> None:
    assert (await Agent(ScriptedModel([INVOICE]), output=Invoice).run("x")).output == VALUE

    model = ScriptedModel(["It is 42 euros.", final()])
    result = await Agent(model, output=Invoice).run("x")
    assert result.output == VALUE
    assert f"calling {FINAL_TOOL}" in said(model.requests[1])[1]


async def test_the_first_accepted_of_two_answers_in_one_response_is_the_answer() -> None:

    other = '{"number": "B", "total": 1}'
    model = ScriptedModel([turn(final(WRONG), final(), final(other))])  # type: ignore[arg-type]
    assert (await Agent(model, output=Invoice).run("x")).output == VALUE


async def test_a_call_beside_the_answer_runs_and_the_run_is_done() -> None:
    model = ScriptedModel([turn(call("look", {"what": "it"}), final())])  # type: ignore[arg-type]
    result = await Agent(model, output=Invoice, tools=[look]).run("x")
    assert (result.status, result.output) == ("done", VALUE)


async def test_a_model_that_never_answers_ends_within_its_turns() -> None:
    model = ScriptedModel(lambda number: call("look", {"what": str(number)}))
    result = await Agent(model, output=Invoice, tools=[look], max_turns=4).run("x")
    assert (result.status, result.cause, result.turns) == ("stopped", "max_turns", 4)
    assert not result.has_output


async def test_an_answer_on_the_last_turn_is_in_time() -> None:
    model = ScriptedModel([call("look", {"what": "it"}), final()])
    result = await Agent(model, output=Invoice, tools=[look], max_turns=2).run("x")
    assert (result.status, result.output) == ("done", VALUE)


async def test_tools_that_a_provider_gives_have_the_final_one_among_them() -> None:
    model = ScriptedModel([call("look", {"what": "it"}), final()])
    agent = Agent(model, output=Invoice, tool_provider=lambda: [look])
    assert (await agent.run("x")).output == VALUE
    assert tools_of(model.requests[1]) == [FINAL_TOOL, "look"]


async def test_arguments_that_a_policy_rewrote_are_the_answer() -> None:
    class Rounds(Middleware):
        async def before_tool_call(self, info: object) -> ToolDecision:
            return ToolDecision(arguments='{"number": "A-1", "total": 4000}')

    agent = Agent(ScriptedModel([final()]), output=Invoice, middleware=[Rounds()])
    assert (await agent.run("x")).output == Invoice("A-1", 4000)


# --- what is refused, what stays as it was ------------------------------------------------------


def test_what_cannot_be_is_refused_when_the_agent_is_made() -> None:
    @tool(name=FINAL_TOOL)
    def mine() -> str:
        """Mine."""
        return ""

    with pytest.raises(ConfigError, match=FINAL_TOOL):
        Agent(ScriptedModel([]), output=Invoice, tools=[mine])
    form = TextConfig(format=JsonSchemaFormat(name="x", schema={}))
    with pytest.raises(ConfigError, match="format"):
        Agent(native(), output=Invoice, settings=Request(text=form))
    with pytest.raises(ConfigError, match="no provider enforces"):
        Agent(native(), output=Output(dict[str, int], mode="native"))
    with pytest.raises(ConfigError, match="output"):
        Agent(native(), output=3)  # type: ignore[arg-type]


async def test_text_is_text_as_ever() -> None:
    model = ScriptedModel(["Hello.", "Hello."])
    assert (await Agent(model).run("x")).output == "Hello."
    assert (await Agent(model, output=str).run("x")).output == "Hello."
    assert model.requests[0].settings == model.requests[1].settings


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (Place, '{"city": "Oslo", "at": [59.9]}', {"city": "Oslo", "at": [59.9]}),
        (Person, '{"name": "Ann"}', Person(name="Ann")),
        (int, '{"value": 42}', 42),
        (dict[str, int], '{"value": {"a": 1}}', {"a": 1}),
    ],
)
async def test_types_of_many_kinds_come_out_as_themselves(
    form: type[object], text: str, value: object
) -> None:
    assert (await Agent(ScriptedModel([final(text)]), output=form).run("x")).output == value


async def test_a_hook_that_stops_after_the_answer_does_not_take_it_away() -> None:
    class Stops(Middleware):
        async def should_stop(self, info: TurnInfo) -> bool:
            return True

    result = await Agent(native(INVOICE), output=Invoice, middleware=[Stops()]).run("x")
    assert (result.status, result.output) == ("stopped", VALUE)


# --- while it comes ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [native, lambda *script: ScriptedModel(script)])
async def test_the_answer_is_shown_as_it_comes(make: Callable[..., Able]) -> None:
    by_tool = make is not native
    model = make(
        call("look", {"what": "it"}),
        final(WRONG) if by_tool else WRONG,
        final() if by_tool else INVOICE,
    )
    agent = Agent(model, output=Invoice, tools=[look])
    async with agent.stream("x") as stream:
        values = [value async for value in stream.partial_output()]
        result = await stream.result()
    assert result.output == VALUE
    assert values[0] in ({}, {"number": ""})
    assert {"number": "A-1", "total": "much"} in values
    assert values[-2:] == [{"number": "A-1"}, {"number": "A-1", "total": 4200}]


async def test_a_wrapped_answer_is_shown_without_its_wrapping() -> None:
    agent = Agent(ScriptedModel([final('{"value": ["a", "bc"]}')]), output=list[str])
    async with agent.stream("x") as stream:
        values = [value async for value in stream.partial_output()]
    assert values == [[""], ["a", "bc"]]


async def test_an_agent_of_text_shows_no_partial_answers() -> None:
    async with Agent(ScriptedModel(["{}"])).stream("x") as stream:
        assert [value async for value in stream.partial_output()] == []


# --- recorded ---------------------------------------------------------------------------------


async def test_an_answer_in_the_record_is_the_result_after_a_crash_and_no_model_is_asked() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel([final()]), output=Invoice, store=store)
    async with agent.session("chat") as chat:
        assert (await chat.send("x")).output == VALUE
    whole = (await store.list()).sessions[0].version
    found: list[tuple[object, int]] = []
    for keep in range(3, whole + 1):
        model = ScriptedModel([final(), final()])
        again = agent.with_(model=model, store=await crashed(store, keep))
        async with again.session("chat") as chat:
            if not chat.state.transcript:
                continue
            found.append(((await chat.continue_()).output, len(model.requests)))
    assert all(output == VALUE for output, _ in found)
    asked = [requests for _, requests in found]
    assert asked == sorted(asked, reverse=True)  # once it is there, nobody is asked
    assert asked[0] == 1
    assert asked[-1] == 0


async def test_a_correction_that_a_crash_cut_off_is_not_lost() -> None:
    store = MemoryStore()
    agent = Agent(native(WRONG, INVOICE), output=Invoice, store=store, max_turns=1)
    async with agent.session("chat") as chat:
        result = await chat.send("x")
    assert (result.status, result.cause) == ("stopped", "max_turns")

    model = native(WRONG, INVOICE)
    again = agent.with_(model=model, store=await crashed(store), max_turns=2)
    async with again.session("chat") as chat:
        assert (await chat.continue_()).output == VALUE
    assert "total: expected integer" in said(model.requests[0])[1]


async def test_an_answer_that_a_person_has_to_approve_ends_the_run_when_they_have() -> None:
    class Asks(Middleware):
        async def before_tool_call(self, info: object) -> ToolDecision:
            return ToolDecision(action="hold", reason="look at it first")

    model = ScriptedModel([final()])
    async with Agent(model, output=Invoice, middleware=[Asks()]).session() as chat:
        held = await chat.send("x")
        assert (held.status, held.has_output) == ("input_required", False)
        with pytest.raises(NoOutput, match="input_required"):
            _ = held.output
        done = await chat.resume(approve(held.pending[0].call.call_id, by="human"))
    assert (done.status, done.output) == ("done", VALUE)
    assert len(model.requests) == 1


async def test_a_call_that_waited_beside_the_answer_runs_and_then_the_run_is_done() -> None:
    class AsksToLook(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
            return ToolDecision(action="hold") if info.call.name == "look" else None

    model = ScriptedModel([turn(final(), call("look", {"what": "it"}))])  # type: ignore[arg-type]
    agent = Agent(model, output=Invoice, tools=[look], middleware=[AsksToLook()])
    async with agent.session() as chat:
        held = await chat.send("x")
        assert held.status == "input_required"
        done = await chat.resume(approve(held.pending[0].call.call_id, by="human"))
    assert (done.status, done.output) == ("done", VALUE)
    assert len(model.requests) == 1


async def test_what_is_said_while_the_answer_comes_is_answered_too() -> None:
    other = '{"number": "B", "total": 1}'
    model = ScriptedModel([final(), final(other)])
    async with Agent(model, output=Invoice).session() as chat:

        async def hear(event: object) -> None:
            if isinstance(event, ToolEnd) and len(model.requests) == 1:
                chat.steer("the other one")

        chat.subscribe(hear)
        result = await chat.send("x")
    assert (result.status, result.output) == ("done", Invoice("B", 1))
    assert said(model.requests[1]) == ["x", "the other one"]


async def test_a_second_answer_of_a_conversation_is_its_own() -> None:
    other = '{"number": "B", "total": 1}'
    async with Agent(ScriptedModel([final(), final(other)]), output=Invoice).session() as chat:
        first, second = await chat.send("x"), await chat.send("y")
    assert (first.output, second.output) == (VALUE, Invoice("B", 1))
    calls = [item for item in second.items if isinstance(item, FunctionCall)]
    assert [msgspec.json.decode(one.arguments) for one in calls] == [{"number": "B", "total": 1}]

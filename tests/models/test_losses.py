"""What a request loses is told with the request, and worked out once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure import Agent, ModelRequest, Request, Retry, user
from perdure.errors import ConfigError, Overloaded, RunFailed
from perdure.loop import Event, Items, Loss, ModelRetry, Transcript, TurnStart, losses_of
from perdure.models import OpenResponses, anthropic, bedrock, chat, gemini, openresponses
from perdure.testing import LoopbackServer, ScriptedModel, attempts, item, turn
from perdure.wire import (
    Item,
    Reasoning,
    StreamEvent,
    SummaryText,
    assistant,
    decode_item,
    function_call,
    function_call_output,
    with_unknown,
)

THOUGHT = with_unknown(
    Reasoning(summary=(SummaryText(text="Hm."),), encrypted_content="sealed"),
    {"perdure:provider": "deepseek"},
)
HISTORY: list[Item] = [user("hi"), THOUGHT, assistant("Hello.")]


class Losing:
    """A model that takes nothing, in the words of another."""

    def __init__(self, inner: ScriptedModel) -> None:
        self.inner = inner

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        return self.inner.stream(request)

    def losses(self, request: ModelRequest) -> tuple[Loss, ...]:
        return tuple(Loss(f"input[{n}]", one.type, "no") for n, one in enumerate(request.input))


async def test_a_turn_tells_what_its_request_loses() -> None:
    events: list[Event] = []

    async def hear(event: Event) -> None:
        events.append(event)

    async with LoopbackServer(ScriptedModel(["Fine."], after=1)) as server:
        model = OpenResponses(server.base_url)
        settings = with_unknown(Request(), {"seed": 1})
        agent = Agent(model, model_name="m", settings=settings)
        async with agent.session(transcript=HISTORY) as talk:
            talk.subscribe(hear)
            await talk.send("How are you?")
        await model.aclose()
    (turn,) = [event for event in events if isinstance(event, TurnStart)]
    assert turn.losses == (
        Loss("seed", "seed", "Open Responses has no such setting"),
        Loss("input[1]", "reasoning", "made by 'deepseek', and for it alone"),
    )
    assert not turn.durable
    assert turn.losses == model.losses(turn.request)


async def test_a_retry_tells_what_the_next_request_loses() -> None:
    events: list[Event] = []

    async def hear(event: Event) -> None:
        events.append(event)

    def shorter(attempt: int, request: ModelRequest, error: Exception) -> ModelRequest:
        return ModelRequest(settings=request.settings, input=Items.of([*request.input][-1:]))

    model = Losing(ScriptedModel([attempts(Overloaded("no", status=503, retry_after=0), "ok")]))
    agent = Agent(model, retry=Retry(max_attempts=2, revise=shorter))
    async with agent.session() as talk:
        talk.subscribe(hear)
        await talk.send([user("a"), user("b")])
    (turn,) = [event for event in events if isinstance(event, TurnStart)]
    (retry,) = [event for event in events if isinstance(event, ModelRetry)]
    assert [loss.at for loss in turn.losses] == ["input[0]", "input[1]"]
    assert [loss.at for loss in retry.losses] == ["input[0]"]


async def test_a_model_that_never_says_loses_nothing_and_one_that_refuses_says_so_when_asked() -> (
    None
):
    request = ModelRequest(settings=Request(), input=Items.of([user("hi")]))
    assert losses_of(ScriptedModel(["x"]), request) == ()
    elsewhere = ModelRequest(
        settings=Request(), input=request.input, via=Losing(ScriptedModel(["x"]))
    )
    assert [loss.at for loss in losses_of(ScriptedModel(["x"]), elsewhere)] == ["input[0]"]

    class Refusing(Losing):
        def losses(self, request: ModelRequest) -> tuple[Loss, ...]:
            raise ConfigError("not so")

        def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            raise ConfigError("not so")

    with pytest.raises(RunFailed) as failed:
        await Agent(Refusing(ScriptedModel(["x"]))).run("hi")
    assert isinstance(failed.value.cause, ConfigError)


TARGETS = {
    "openresponses": (openresponses, "m"),
    "chat": (chat, "gpt-5-mini"),
    "anthropic": (anthropic, "claude-opus-4-8"),
    "gemini": (gemini, "gemini-3-pro-preview"),
    "bedrock": (bedrock, "us.amazon.nova-2-lite-v1:0"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_settled_is_looked_at_once(name: str) -> None:
    """A later turn gives the very losses of the turns before, and does not make them again."""
    module, model = TARGETS[name]
    transcript = Transcript(HISTORY)
    settings = Request(model=model)
    for number in range(3):
        transcript.append(function_call(f"c{number}", "f"))
        transcript.append(function_call_output(f"c{number}", "x"))
    transcript.append(user("on"))
    first = module.losses(ModelRequest(settings=settings, input=transcript.snapshot()))
    transcript.append(assistant("so"))
    transcript.append(user("on"))
    second = module.losses(ModelRequest(settings=settings, input=transcript.snapshot()))
    assert [loss.at for loss in first] == ["input[1]"]
    assert [id(loss) for loss in first] == [id(loss) for loss in second]


RAN = decode_item(
    b'{"type":"anthropic:server_tool_use","id":"st_1","status":"completed",'
    b'"block":{"type":"server_tool_use","id":"st_1","name":"web_search","input":{}}}'
)
BESIDE = decode_item(b'{"type":"acme:note","id":"n1"}')


async def test_what_a_provider_ran_itself_goes_back_to_it_with_the_next_turn() -> None:
    model = ScriptedModel([turn(item(RAN), "Found."), "Fine."])
    async with Agent(model, model_name="claude-opus-4-8").session() as talk:
        await talk.send([BESIDE, user("look")])
        await talk.send("thanks")
    request = model.requests[1]
    assert RAN in list(request.input)
    assert BESIDE not in list(request.input)
    assert b'"type":"server_tool_use"' in b"".join(anthropic.request_body(request).fragments)
    assert [loss.what for loss in openresponses.losses(request)] == ["anthropic:server_tool_use"]


async def test_what_a_provider_ran_itself_goes_back_to_it_after_a_restart() -> None:
    store = "memory:provider-items"
    first = Agent(ScriptedModel([turn(item(RAN), "Found.")]), model_name="m", store=store)
    async with first.session("chat") as talk:
        await talk.send([BESIDE, user("look")])
    model = ScriptedModel(["Fine."], after=1)
    async with first.with_(model=model).session("chat") as talk:
        await talk.send("thanks")
    assert [one.type for one in model.requests[0].input] == [
        "message",
        "anthropic:server_tool_use",
        "message",
        "message",
    ]

"""Settings in words that hold for every provider, and what each adapter makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, ConfigError, Request, Settings
from perdure.loop import Items, ModelRequest
from perdure.models import anthropic, bedrock, chat, gemini, openresponses, openrouter
from perdure.models.dialects import DEEPSEEK, MISTRAL
from perdure.testing import ScriptedModel
from perdure.wire import FunctionChoice, function_tool, user

FULL = Settings(
    temperature=0.5,
    top_p=0.9,
    top_k=40,
    max_tokens=500,
    stop=("END", "STOP"),
    seed=7,
    presence_penalty=0.1,
    frequency_penalty=0.2,
    user="u1",
)


def asked(settings: Settings, model: str) -> ModelRequest:
    made = settings.request()
    request = Request(model=model, tools=(function_tool("f"),))
    members = {
        name: value
        for name in request.__struct_fields__
        if (value := getattr(made, name)) and name not in {"model", "tools"}
    }
    return ModelRequest(
        settings=Request(model=model, tools=request.tools, **members),
        input=Items.of([user("hi")]),
    )


def test_settings_are_members_of_a_request() -> None:
    assert Settings(temperature=0, max_tokens=5, user="u", cache_key="k").request() == Request(
        temperature=0, max_output_tokens=5, safety_identifier="u", prompt_cache_key="k"
    )
    assert Settings().request() == Request()
    made = Settings(
        stop="END",
        seed=7,
        effort="low",
        reasoning_summary="auto",
        verbosity="low",
        tool_choice=FunctionChoice(name="f"),
        parallel_tool_calls=False,
        extra={"acme": {"x": 1}, "service_tier": "flex"},
    ).request()
    assert made.unknown == {"stop": ["END"], "seed": 7, "acme": {"x": 1}}
    assert made.reasoning
    assert (made.reasoning.effort, made.reasoning.summary) == ("low", "auto")
    assert made.text
    assert made.text.verbosity == "low"
    assert made.tool_choice == FunctionChoice(name="f")
    assert (made.parallel_tool_calls, made.service_tier) == (False, "flex")


WANTED: dict[str, tuple[Any, str, dict[str, Any], set[str]]] = {
    "openresponses": (
        openresponses,
        "m",
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 500,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "safety_identifier": "u1",
        },
        {"stop", "seed", "top_k"},
    ),
    "chat": (
        chat,
        "gpt-4.1",
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_completion_tokens": 500,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "stop": ["END", "STOP"],
            "seed": 7,
            "safety_identifier": "u1",
        },
        {"top_k"},
    ),
    "openrouter": (
        openrouter,
        "meta/llama",
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 40,
            "max_completion_tokens": 500,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "stop": ["END", "STOP"],
            "seed": 7,
        },
        {"safety_identifier"},
    ),
    "anthropic": (
        anthropic,
        "claude-3-5-haiku-latest",
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 40,
            "max_tokens": 500,
            "stop_sequences": ["END", "STOP"],
            "metadata": {"user_id": "u1"},
        },
        {"seed", "presence_penalty", "frequency_penalty"},
    ),
    "gemini": (
        gemini,
        "gemini-2.5-flash",
        {
            "generationConfig": {
                "temperature": 0.5,
                "topP": 0.9,
                "topK": 40,
                "maxOutputTokens": 500,
                "stopSequences": ["END", "STOP"],
                "seed": 7,
                "presencePenalty": 0.1,
                "frequencyPenalty": 0.2,
            }
        },
        {"safety_identifier"},
    ),
    "bedrock": (
        bedrock,
        "us.amazon.nova-2-lite-v1:0",
        {
            "inferenceConfig": {
                "temperature": 0.5,
                "topP": 0.9,
                "maxTokens": 500,
                "stopSequences": ["END", "STOP"],
            }
        },
        {"top_k", "seed", "presence_penalty", "frequency_penalty", "safety_identifier"},
    ),
}


@pytest.mark.parametrize("name", WANTED)
def test_each_adapter_sends_what_its_provider_has_and_tells_the_rest(name: str) -> None:
    module, model, wanted, lost = WANTED[name]
    request = asked(FULL, model)
    body = module.request_body(request).value()
    assert {member: body.get(member) for member in wanted} == wanted
    assert {loss.at for loss in module.losses(request)} == lost
    assert not lost & body.keys()


def test_services_over_chat_differ() -> None:
    request = asked(Settings(seed=7, top_k=40), "m")
    body: Any = chat.request_body(request, dialect=MISTRAL).value()
    assert body["random_seed"] == 7
    assert {loss.at for loss in chat.losses(request, dialect=DEEPSEEK)} == {"seed", "top_k"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": True},
        {"top_p": 1.1},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"stop": ("",)},
        {"stop": 3},
        {"seed": "x"},
        {"frequency_penalty": 3},
        {"top_k": 0},
    ],
    ids=str,
)
def test_a_setting_that_can_be_no_providers_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Settings(**wrong)


async def test_an_agent_takes_settings_and_sends_them_the_same_each_turn() -> None:
    model = ScriptedModel(["a", "b"])
    agent = Agent(model, model_name="m", settings=Settings(temperature=0, stop="END"))
    async with agent.session() as talk:
        await talk.send("one")
        await talk.send("two")
    first, second = (request.settings for request in model.requests)
    assert first == second
    assert (first.temperature, first.unknown) == (0, {"stop": ["END"]})
    assert first.include == ("reasoning.encrypted_content",)
    with pytest.raises(ConfigError, match="settings"):
        Agent(model, settings={"temperature": 0})  # type: ignore[arg-type]


async def test_settings_are_recorded_and_a_change_of_them_too() -> None:
    first = Agent(ScriptedModel(["a"]), model_name="m", store="memory:settings-recorded")
    first = first.with_(settings=Settings(temperature=0.5, seed=7))
    async with first.session("chat") as talk:
        await talk.send("one")
    again = first.with_(model=ScriptedModel(["b"], after=1), settings=Settings(temperature=1))
    async with again.session("chat") as talk:
        await talk.send("two")
        entries = await recorded(again)
    assert [entry.get("extra") for entry in entries] == [
        {"include": ["reasoning.encrypted_content"], "seed": 7, "temperature": 0.5},
        {"seed": None, "temperature": 1},
    ]


async def recorded(agent: Agent) -> list[dict[str, Any]]:
    """The config entries of the agent's only session."""
    import json

    store = agent.opened(agent.store)
    (page,) = [await store.list()]
    log = await store.read(page.sessions[0].id)
    return [e for e in (json.loads(line) for line in log.lines) if e["type"] == "config"]

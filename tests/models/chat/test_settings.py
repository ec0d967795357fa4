"""Settings as members of a body, in every dialect."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.chat import losses, request_body
from perdure.models.dialects import (
    AZURE,
    CEREBRAS,
    DEEPSEEK,
    GENERIC,
    GROQ,
    LMSTUDIO,
    MISTRAL,
    OLLAMA,
    OPENAI,
    OPENROUTER,
    VLLM,
    XAI,
    ZAI,
    Dialect,
    dialect_at,
)
from perdure.wire import (
    AllowedTools,
    FunctionChoice,
    JsonObjectFormat,
    JsonSchemaFormat,
    ReasoningConfig,
    Request,
    Source,
    StreamOptions,
    TextConfig,
    TextFormat,
    ToolChoice,
    UnknownFormat,
    UnknownTool,
    UnknownToolChoice,
    decode_request,
    function_tool,
    user,
    with_unknown,
)

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
}
F = function_tool("f", description="Do f.", parameters=SCHEMA, strict=True)
G = function_tool("g")


def request(settings: Request) -> ModelRequest:
    return ModelRequest(settings=settings, input=Items.of([user("hi")]))


def body(settings: Request, dialect: Dialect = OPENAI, *, stream: bool = True) -> dict[str, Any]:
    made: Any = request_body(request(settings), dialect=dialect, stream=stream).value()
    return made  # type: ignore[no-any-return]


def lost(settings: Request, dialect: Dialect = OPENAI) -> list[str]:
    return [loss.at for loss in losses(request(settings), dialect=dialect)]


def test_a_body_says_what_the_settings_say() -> None:
    settings = Request(
        model="gpt-4o",
        instructions="Be brief.",
        temperature=0,
        top_p=0.5,
        max_output_tokens=100,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        top_logprobs=2,
        parallel_tool_calls=False,
        service_tier="flex",
        safety_identifier="u1",
        prompt_cache_key="k",
        tools=(F,),
        tool_choice="required",
        text=TextConfig(format=TextFormat(), verbosity="low"),
        reasoning=ReasoningConfig(effort="low"),
        stream_options=StreamOptions(include_obfuscation=False),
        include=("reasoning.encrypted_content", "message.output_text.logprobs"),
    )
    assert body(settings) == {
        "model": "gpt-4o",
        "temperature": 0,
        "top_p": 0.5,
        "presence_penalty": 0.25,
        "frequency_penalty": 0.5,
        "service_tier": "flex",
        "safety_identifier": "u1",
        "prompt_cache_key": "k",
        "max_completion_tokens": 100,
        "store": False,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "Do f.",
                    "parameters": SCHEMA,
                    "strict": True,
                },
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "verbosity": "low",
        "reasoning_effort": "low",
        "logprobs": True,
        "top_logprobs": 2,
        "stream": True,
        "stream_options": {"include_usage": True, "include_obfuscation": False},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ],
    }
    assert lost(settings) == []


def test_what_is_absent_or_null_is_not_sent() -> None:
    null = Request(model="m", temperature=None, tools=None, text=None, reasoning=None)
    for settings in (Request(model="m"), null):
        assert set(body(settings, GROQ, stream=False)) == {"model", "stream", "messages"}


@pytest.mark.parametrize(
    ("dialect", "model", "member"),
    [
        (OPENAI, "gpt-4o", "max_completion_tokens"),
        (MISTRAL, "mistral-large-latest", "max_tokens"),
        (DEEPSEEK, "deepseek-reasoner", "max_tokens"),
        (VLLM, "qwen3", "max_tokens"),
        (GENERIC, "gpt-5-mini", "max_completion_tokens"),
        (GENERIC, "openai/o3-mini", "max_completion_tokens"),
        (GENERIC, "olmo", "max_tokens"),
    ],
)
def test_the_limit_of_the_output_goes_by_the_name_that_is_read(
    dialect: Dialect, model: str, member: str
) -> None:
    made = body(Request(model=model, max_output_tokens=7), dialect)
    assert made[member] == 7
    assert len({"max_tokens", "max_completion_tokens"} & made.keys()) == 1


NAMED = FunctionChoice(name="f")
ALLOWED = AllowedTools(tools=(NAMED,), mode="required")
FUNCTION = {"type": "function", "function": {"name": "f"}}
LIST = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [FUNCTION]}}


@pytest.mark.parametrize(
    ("dialect", "choice", "sent", "tools", "losses_"),
    [
        (OPENAI, "auto", "auto", "fg", []),
        (OPENAI, "none", "none", "fg", []),
        (OPENAI, "required", "required", "fg", []),
        (OPENAI, NAMED, FUNCTION, "fg", []),
        (OPENAI, ALLOWED, LIST, "fg", []),
        (AZURE, ALLOWED, LIST, "fg", []),
        (MISTRAL, "required", "any", "fg", []),
        (MISTRAL, NAMED, FUNCTION, "fg", []),
        (MISTRAL, ALLOWED, "any", "f", []),
        (GROQ, ALLOWED, "required", "f", []),
        (GROQ, AllowedTools(tools=(NAMED,)), "auto", "f", []),
        (LMSTUDIO, "required", "required", "fg", []),
        (LMSTUDIO, NAMED, "required", "f", []),
        (OLLAMA, "auto", None, "fg", []),
        (OLLAMA, "none", None, "", []),
        (OLLAMA, "required", None, "fg", ["tool_choice"]),
        (ZAI, NAMED, None, "f", ["tool_choice"]),
        (
            OPENAI,
            UnknownToolChoice(type="mcp", source=Source(b'{"type":"mcp"}')),
            None,
            "fg",
            ["tool_choice"],
        ),
    ],
)
def test_a_choice_of_tools_is_spelled_as_the_service_takes_it(
    dialect: Dialect, choice: ToolChoice, sent: object, tools: str, losses_: list[str]
) -> None:
    plain = function_tool("f"), G
    settings = Request(model="m", tools=plain, tool_choice=choice)
    made = body(settings, dialect)
    assert made.get("tool_choice") == sent
    assert "".join(tool["function"]["name"] for tool in made.get("tools", ())) == tools
    assert lost(settings, dialect) == losses_


def test_without_tools_nothing_is_said_of_their_choice() -> None:
    made = body(Request(model="m", tool_choice="auto", parallel_tool_calls=False))
    assert made.keys().isdisjoint({"tools", "tool_choice", "parallel_tool_calls"})


def test_a_tool_without_parameters_has_an_empty_object_of_them() -> None:
    tool = body(Request(model="m", tools=(G,)))["tools"][0]["function"]
    assert tool == {"name": "g", "parameters": {"type": "object", "properties": {}}}


def test_strict_is_lost_where_nobody_is_held_to_a_schema() -> None:
    settings = Request(model="m", tools=(F,))
    assert "strict" not in body(settings, VLLM)["tools"][0]["function"]
    assert lost(settings, VLLM) == ["tools[0].strict"]


@pytest.mark.parametrize("name", ["", "a.b", "ä", "x" * 65])
def test_a_tool_whose_name_cannot_be_sent_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="tool name"):
        body(Request(model="m", tools=(function_tool(name),)))


def test_a_services_own_tools_go_to_it_alone() -> None:
    raw = b'{"type":"openrouter:web_search","parameters":{"max_uses":1}}'
    hosted = UnknownTool(type="openrouter:web_search", source=Source(raw))
    cached = with_unknown(F, {"cache_control": {"type": "ephemeral"}})
    settings = Request(model="m", tools=(hosted, cached))
    made = body(settings, OPENROUTER)["tools"]
    assert made[0] == {"type": "openrouter:web_search", "parameters": {"max_uses": 1}}
    assert made[1]["cache_control"] == {"type": "ephemeral"}
    assert lost(settings, OPENROUTER) == []
    assert len(body(settings)["tools"]) == 1
    assert lost(settings) == ["tools[0]", "tools[1].cache_control"]


JSON = TextConfig(format=JsonObjectFormat())
TYPED = TextConfig(
    format=JsonSchemaFormat(name="out", schema=SCHEMA, strict=True, description="An x.")
)
AS_SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "out", "schema": SCHEMA, "strict": True, "description": "An x."},
}
AS_JSON = {"type": "json_object"}


@pytest.mark.parametrize(
    ("dialect", "text", "sent", "losses_"),
    [
        (OPENAI, JSON, AS_JSON, []),
        (OPENAI, TYPED, AS_SCHEMA, []),
        (MISTRAL, TYPED, AS_SCHEMA, []),
        (DEEPSEEK, JSON, AS_JSON, []),
        (DEEPSEEK, TYPED, AS_JSON, ["text.format"]),
        (ZAI, TYPED, AS_JSON, ["text.format"]),
        (LMSTUDIO, TYPED, AS_SCHEMA, []),
        (LMSTUDIO, JSON, None, ["text.format"]),
        (
            OPENAI,
            TextConfig(format=UnknownFormat(type="grammar", source=Source(b'{"type":"grammar"}'))),
            None,
            ["text.format"],
        ),
    ],
)
def test_an_answer_is_held_to_a_form_as_far_as_the_service_can(
    dialect: Dialect, text: TextConfig, sent: object, losses_: list[str]
) -> None:
    settings = Request(model="m", text=text)
    assert body(settings, dialect).get("response_format") == sent
    assert lost(settings, dialect) == losses_


def test_effort_goes_where_it_is_read() -> None:
    settings = Request(model="m", reasoning=ReasoningConfig(effort="low", summary="auto"))
    assert body(settings)["reasoning_effort"] == "low"
    assert lost(settings) == ["reasoning.summary"]
    own = with_unknown(settings.reasoning or ReasoningConfig(), {"max_tokens": 500})
    assert body(Request(model="m", reasoning=own), OPENROUTER)["reasoning"] == {
        "effort": "low",
        "summary": "auto",
        "max_tokens": 500,
    }
    assert lost(Request(model="m", reasoning=own), OPENROUTER) == []


@pytest.mark.parametrize(
    ("settings", "dialect", "losses_"),
    [
        (Request(max_tool_calls=3), OPENAI, ["max_tool_calls"]),
        (Request(truncation="auto"), OPENAI, ["truncation"]),
        (Request(truncation="disabled", background=False), OPENAI, []),
        (Request(background=True), OPENAI, ["background"]),
        (Request(include=("file_search_call.results",)), OPENAI, ["include"]),
        (Request(metadata={"a": "b"}), OPENAI, ["metadata"]),
        (Request(metadata={"a": "b"}), MISTRAL, []),
        (Request(presence_penalty=1), CEREBRAS, ["presence_penalty"]),
        (Request(top_logprobs=2), GROQ, ["top_logprobs"]),
        (Request(include=("message.output_text.logprobs",)), GROQ, ["include"]),
        (Request(service_tier="flex"), XAI, ["service_tier"]),
        (Request(prompt_cache_key="k"), OPENROUTER, ["prompt_cache_key"]),
        (Request(text=TextConfig(verbosity="low")), GROQ, ["verbosity"]),
        (Request(tools=(G,), parallel_tool_calls=False), DEEPSEEK, ["parallel_tool_calls"]),
        (Request(tools=(G,), parallel_tool_calls=True), DEEPSEEK, []),
        (
            Request(stream_options=StreamOptions(include_obfuscation=True)),
            GROQ,
            ["stream_options.include_obfuscation"],
        ),
        (with_unknown(Request(), {"logit_bias": {"1": 2}}), CEREBRAS, ["logit_bias"]),
    ],
)
def test_what_a_service_does_not_take_is_left_out_and_said_to_be(
    settings: Request, dialect: Dialect, losses_: list[str]
) -> None:
    assert lost(settings, dialect) == losses_
    made = body(settings, dialect)
    assert made.keys().isdisjoint(losses_)
    assert all(loss.reason for loss in losses(request(settings), dialect=dialect))


def test_members_of_a_services_own_go_as_they_are() -> None:
    own = {"seed": 7, "stop": ["x"], "provider": {"order": ["a"]}, "perdure:x": 1}
    made = body(with_unknown(Request(model="m"), own), OPENROUTER)
    assert (made["seed"], made["stop"], made["provider"]) == (7, ["x"], {"order": ["a"]})
    assert "perdure:x" not in made
    made = body(with_unknown(Request(model="m"), own), MISTRAL)
    assert made["random_seed"] == 7
    assert "seed" not in made
    options = with_unknown(Request(model="m"), {"stream_options": {"chunk": 1}, "n": 1})
    assert body(options)["n"] == 1


@pytest.mark.parametrize("own", [{"messages": []}, {"n": 2}, {"functions": []}])
def test_members_that_perdure_makes_itself_are_refused(own: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        body(with_unknown(Request(model="m"), own))


@pytest.mark.parametrize(
    "source",
    [b'{"model":"m","previous_response_id":"resp_1"}', b'{"model":"m","conversation":"conv_1"}'],
)
def test_a_conversation_that_a_server_holds_is_refused(source: bytes) -> None:
    with pytest.raises(ConfigError, match="_1"):
        body(decode_request(source))
    assert body(decode_request(b'{"model":"m","previous_response_id":null}'))["model"] == "m"


def test_usage_is_asked_for_where_a_stream_has_it_only_then() -> None:
    assert body(Request(model="m"))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in body(Request(model="m"), MISTRAL)
    assert "stream_options" not in body(Request(model="m"), stream=False)


def test_equal_settings_are_encoded_once_and_others_anew() -> None:
    items = Items.of([user("hi")])
    settings = Request(model="m", tools=(F,))
    one = request_body(ModelRequest(settings=settings, input=items))
    same = ModelRequest(settings=Request(model="m", tools=(F,)), input=items)
    assert request_body(same).fragments[0] is one.fragments[0]
    other: Any = request_body(ModelRequest(settings=Request(model="o"), input=items)).value()
    assert other["model"] == "o"


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("https://api.openai.com/v1", OPENAI),
        ("https://me.openai.azure.com/openai/v1", AZURE),
        ("https://api.groq.com/openai/v1", GROQ),
        ("https://openrouter.ai/api/v1", OPENROUTER),
        ("https://eu.api.x.ai/v1", XAI),
        ("https://notopenai.com/v1", GENERIC),
        ("https://api.openai.com.example.org/v1", GENERIC),
        ("http://127.0.0.1:8000/v1", GENERIC),
    ],
)
def test_a_dialect_is_told_by_its_host(url: str, dialect: Dialect) -> None:
    assert dialect_at(url) is dialect

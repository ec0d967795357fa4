"""Requests to Converse: the rules of the API, whatever the transcript is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items, Transcript
from perdure.models.bedrock import losses, path_of, request_body
from perdure.wire import (
    ABSENT,
    AllowedTools,
    FunctionChoice,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    JsonObjectFormat,
    Message,
    OutputText,
    Part,
    Reasoning,
    ReasoningConfig,
    Refusal,
    Request,
    Source,
    SummaryText,
    TextConfig,
    UnknownItem,
    UnknownPart,
    UnknownTool,
    UrlCitation,
    assistant,
    decode_request,
    function_call,
    function_call_output,
    function_tool,
    json_schema,
    reasoning,
    system,
    user,
    with_unknown,
)
from tests.models.asking import Asking, output

CLAUDE = Request(model="us.anthropic.claude-sonnet-4-5-20250929-v1:0")
NOVA = Request(model="us.amazon.nova-2-lite-v1:0")


ASKING = Asking(request_body, losses, CLAUDE)
asked, body, lost = ASKING.asked, ASKING.body, ASKING.lost


def messages(*items: Item, settings: Request = CLAUDE) -> list[tuple[str, list[Any]]]:
    """Roles and blocks; a text block as its text."""
    return [
        (message["role"], [_short(block) for block in message["content"]])
        for message in body(*items, settings=settings)["messages"]
    ]


def _short(block: dict[str, Any]) -> Any:
    match block:
        case {"text": text}:
            return text
        case {"toolUse": {"toolUseId": call_id}}:
            return "call", call_id
        case {"toolResult": {"toolUseId": call_id, "content": content}}:
            return "result", call_id, [_short(one) for one in content]
        case _:
            return block


def call(call_id: str) -> Item:
    return function_call(call_id, "f", '{"x": 1.50}')


# --- turns --------------------------------------------------------------------------------


def test_results_stand_in_one_turn_before_what_the_user_says_next() -> None:
    items = [user("q"), call("a"), call("b"), output("a", "1"), output("b", "2"), user("next")]
    assert messages(*items) == [
        ("user", ["q"]),
        ("assistant", [("call", "a"), ("call", "b")]),
        ("user", [("result", "a", ["1"]), ("result", "b", ["2"]), "next"]),
    ]
    assert lost(*items) == []


def test_a_call_without_an_output_and_outputs_without_a_call() -> None:
    items = [user("q"), call("a"), call("b"), output("b"), output("b"), output("z")]
    result = body(*items)["messages"][2]["content"][0]["toolResult"]
    assert result == {
        "toolUseId": "a",
        "content": [{"text": "Error: the call has no output"}],
        "status": "error",
    }
    assert lost(*items) == [
        ("input[4]", "function_call_output"),
        ("input[5]", "function_call_output"),
        ("input[1]", "function_call"),
    ]


def test_there_are_no_empty_blocks_and_an_empty_output_is_an_empty_list() -> None:
    items = [user("a"), assistant(""), user(""), user("b"), call("c"), output("c", "")]
    assert messages(*items) == [
        ("user", ["a", "b"]),
        ("assistant", [("call", "c")]),
        ("user", [("result", "c", [])]),
    ]


def test_an_output_that_is_an_error_is_marked_as_one() -> None:
    made = body(user("q"), call("a"), call("b"), output("a", "Error: no"), output("b"))
    blocks = made["messages"][2]["content"]
    assert [block["toolResult"]["status"] for block in blocks] == ["error", "success"]


def test_ids_that_the_api_refuses_are_replaced_in_call_and_result() -> None:
    made = messages(user("q"), call("a b"), call("x" * 65), output("a b"), output("x" * 65))
    ids, results = made[1][1], made[2][1]
    assert [one[1] for one in ids] == [one[1] for one in results]
    assert all(len(one[1]) <= 64 and " " not in one[1] for one in ids)
    assert len({one[1] for one in ids}) == 2


def test_the_user_begins_where_the_model_wants_that() -> None:
    assert messages(assistant("a"), user("b"), settings=NOVA)[0] == ("user", ["."])
    assert messages(assistant("a"), user("b"))[0] == ("assistant", ["a"])


def test_what_the_system_says_stands_before_the_messages_or_in_its_turn() -> None:
    settings = msgspec.structs.replace(CLAUDE, instructions="one")
    items = [system("two"), user("a"), assistant("b"), system("c"), user("d")]
    assert body(*items, settings=settings)["system"] == [{"text": "one"}, {"text": "two"}]
    assert messages(*items)[-1] == ("user", ["<system>c</system>", "d"])
    assert lost(*items) == [("input[3]", "system")]


# --- thoughts -------------------------------------------------------------------------------


def thought(text: str, signature: str | None, maker: str | None = "bedrock") -> Item:
    made = Reasoning(
        summary=(SummaryText(text=text),) if text else (), encrypted_content=signature or ABSENT
    )
    return with_unknown(made, {"perdure:provider": maker}) if maker else made


def test_signed_thoughts_go_back_as_they_came_and_others_stay() -> None:
    redacted = with_unknown(thought("", "eA=="), {"perdure:redacted": True})
    items = [user("q"), thought("hm", "sig"), redacted, assistant("a")]
    assert messages(*items)[1][1] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "eA=="}},
        "a",
    ]
    others = [thought("hm", "sig", "anthropic"), thought("hm", None), reasoning("hm")]
    assert messages(user("q"), *others, assistant("a"))[1][1] == ["a"]
    assert [at for at, _ in lost(user("q"), *others)] == ["input[1]", "input[2]", "input[3]"]


def thinking(model: str, effort: str, **members: Any) -> Request:
    return Request(model=model, reasoning=ReasoningConfig(effort=effort), **members)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (
            thinking("anthropic.claude-sonnet-4-5-20250929-v1:0", "low"),
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        (
            thinking("anthropic.claude-sonnet-4-6", "high"),
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        (thinking("openai.gpt-oss-120b-1:0", "high"), {"reasoning_effort": "high"}),
        (thinking("qwen.qwen3-32b-v1:0", "high"), {"reasoning_config": "high"}),
        (
            thinking("us.amazon.nova-2-lite-v1:0", "low"),
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
        ),
        (thinking("us.meta.llama4-v1:0", "low"), None),
        (thinking("anthropic.claude-3-5-haiku-20241022-v1:0", "low"), None),
    ],
)
def test_effort_is_what_each_family_calls_it(settings: Request, wanted: object) -> None:
    made = body(user("q"), settings=settings)
    assert made.get("additionalModelRequestFields") == wanted
    assert bool(lost(user("q"), settings=settings)) == (wanted is None)
    budget = (wanted or {}).get("thinking", {}).get("budget_tokens", 0)  # type: ignore[attr-defined]
    assert made.get("inferenceConfig", {}).get("maxTokens", 10**6) > budget


def test_claude_does_not_think_where_the_last_calls_lack_their_thought() -> None:
    settings = thinking("anthropic.claude-sonnet-4-5", "low", temperature=0.5)
    made = body(user("q"), call("a"), output("a"), settings=settings)
    assert "additionalModelRequestFields" not in made
    assert made["inferenceConfig"] == {"temperature": 0.5}
    assert "temperature" not in body(user("q"), settings=settings)["inferenceConfig"]


# --- parts ----------------------------------------------------------------------------------

PNG = "data:image/png;base64,iVBORw0KGgo="
SOUND = UnknownPart(
    type="input_audio",
    source=Source(b'{"type":"input_audio","input_audio":{"data":"AA==","format":"mp3"}}'),
)
VIDEO = InputVideo(video_url="s3://b/k.mov")


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        (
            InputImage(image_url=PNG),
            {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
        ),
        (
            InputImage(image_url="s3://b/k.jpg"),
            {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://b/k.jpg"}}}},
        ),
        (
            InputFile(filename="re port_(1).pdf", file_data="JVBERi0x"),
            {
                "document": {
                    "format": "pdf",
                    "name": "re port (1) 0-1",
                    "source": {"bytes": "JVBERi0x"},
                }
            },
        ),
        (
            InputFile(file_data="data:text/markdown;base64,AA=="),
            {"document": {"format": "md", "name": "Document 0-1", "source": {"bytes": "AA=="}}},
        ),
        (
            VIDEO,
            {"video": {"format": "mov", "source": {"s3Location": {"uri": "s3://b/k.mov"}}}},
        ),
        (SOUND, {"audio": {"format": "mp3", "source": {"bytes": "AA=="}}}),
        (InputImage(image_url="https://x/y.png"), None),
        (InputImage(file_id="file_1"), None),
        (InputFile(filename="a.zip", file_data="AA=="), None),
    ],
)
def test_media_are_sent_in_what_the_api_takes(part: Part, wanted: object) -> None:
    item = user([InputText(text="see"), part])
    assert messages(item, settings=NOVA)[0][1] == ["see", *([wanted] if wanted else [])]
    assert bool(lost(item, settings=NOVA)) == (wanted is None)


def test_claude_takes_no_videos_and_no_sounds() -> None:
    item = user([InputText(text="see"), VIDEO, SOUND])
    assert messages(item)[0][1] == ["see"]
    assert lost(item) == [
        ("input[0].content[1]", "input_video"),
        ("input[0].content[2]", "input_audio"),
    ]


def test_a_document_in_a_result_stands_in_it_or_beside_it_with_a_text() -> None:
    part = InputFile(filename="a.pdf", file_data="JVBERi0x")
    items = [user("q"), call("a"), function_call_output("a", [part])]
    document = {"document": {"format": "pdf", "name": "a 2-0", "source": {"bytes": "JVBERi0x"}}}
    assert messages(*items)[2][1] == [("result", "a", [document])]
    beside: list[Any] = [("result", "a", []), "See the attached document.", document]
    assert messages(*items, settings=NOVA)[2][1] == beside
    assert messages(*items, user("see"), settings=NOVA)[2][1] == [beside[0], document, "see"]
    assert lost(*items, settings=NOVA) == [("input[2].output[0]", "input_file")]


def test_documents_have_names_of_their_own() -> None:
    part = InputFile(filename="a.pdf", file_data="JVBERi0x")
    blocks = body(user([part, part]), user([part]))["messages"][0]["content"]
    names = [block["document"]["name"] for block in blocks if "document" in block]
    assert len(set(names)) == 3


def test_what_an_assistant_cannot_say_is_left_out() -> None:
    cited = UrlCitation(url="https://x", title="x", start_index=0, end_index=1)
    item = Message(
        role="assistant",
        content=(
            InputImage(image_url=PNG),
            OutputText(text="a", annotations=(cited,)),
            Refusal(refusal="no"),
        ),
    )
    assert messages(user("q"), item)[1][1] == ["a", "no"]
    assert lost(user("q"), item) == [
        ("input[1].content[0]", "input_image"),
        ("input[1].content[1].annotations[0]", "url_citation"),
        ("input[1].content[2]", "refusal"),
    ]


def test_items_of_others_are_left_out_and_own_ones_go_back_whole() -> None:
    block = {"toolUse": {"toolUseId": "t", "name": "f", "input": {}, "type": "server_tool_use"}}
    own, other = (
        UnknownItem(
            type=f"{maker}:toolUse",
            source=Source(json.dumps({"type": f"{maker}:toolUse", "block": block}).encode()),
        )
        for maker in ("bedrock", "anthropic")
    )
    assert body(user("q"), own, other)["messages"][1]["content"] == [block]
    assert lost(user("q"), own, other) == [("input[2]", "anthropic:toolUse")]


def test_a_cache_breakpoint_is_a_point_behind_its_block() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    tool = with_unknown(function_tool("f"), mark)
    settings = msgspec.structs.replace(CLAUDE, tools=(tool,))
    items = [
        with_unknown(system("s"), mark),
        user([with_unknown(InputText(text="a"), mark)]),
        with_unknown(call("c"), mark),
        with_unknown(output("c"), mark),
        user("d"),
    ]
    made = body(*items, settings=settings)
    assert made["system"] == [{"text": "s"}, point]
    assert made["toolConfig"]["tools"][1] == point
    assert [m["content"][1] for m in made["messages"]] == [point] * 3
    assert lost(*items, settings=settings) == []


# --- settings -------------------------------------------------------------------------------


def chosen(value: object, *items: Item) -> Any:
    tools = (function_tool("f"), function_tool("g"))
    settings = Request(model="m", tools=tools, tool_choice=value)  # type: ignore[arg-type]
    config = body(user("q"), *items, settings=settings).get("toolConfig")
    return config and (
        config.get("toolChoice"),
        [tool["toolSpec"]["name"] for tool in config["tools"]],
    )


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("auto", ({"auto": {}}, ["f", "g"])),
        ("required", ({"any": {}}, ["f", "g"])),
        (FunctionChoice(name="g"), ({"tool": {"name": "g"}}, ["f", "g"])),
        (ABSENT, (None, ["f", "g"])),
        (AllowedTools(tools=(FunctionChoice(name="g"),), mode="required"), ({"any": {}}, ["g"])),
        ("none", None),
    ],
)
def test_tool_choices(value: object, wanted: object) -> None:
    assert chosen(value) == wanted


def test_calls_cannot_be_forbidden_where_some_were_made() -> None:
    assert chosen("none", call("a"), output("a")) == (None, ["f", "g"])
    settings = Request(model="m", tools=(function_tool("f"),), tool_choice="none")
    assert lost(user("q"), call("a"), output("a"), settings=settings) == [("tool_choice", "none")]


def test_calls_without_tools_have_them_declared() -> None:
    assert body(user("q"), call("a"), output("a"))["toolConfig"] == {
        "tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]
    }


@pytest.mark.parametrize(
    "settings",
    [
        Request(model="m", tool_choice="required"),
        Request(model="m", tools=(function_tool("f"),), tool_choice=FunctionChoice(name="g")),
        Request(model="m", tools=(function_tool("a.b"),)),
        Request(model="m", tools=(function_tool("x" * 65),)),
        Request(model="m", previous_response_id="resp_1"),
        decode_request(b'{"model":"m","conversation":"conv_1"}'),
        Request(),
        Request(
            model="m",
            text=TextConfig(
                format=json_schema("t", {"type": "object", "additionalProperties": True})
            ),
        ),
    ],
)
def test_what_the_api_cannot_do_is_refused_before_anything_is_sent(settings: Request) -> None:
    with pytest.raises(ConfigError):
        request_body(asked(user("q"), settings=settings))


def test_strict_tools_and_schemas() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string", "maxLength": 3}}}
    open_schema = {"type": "object", "additionalProperties": True}
    tools = (
        function_tool("f", parameters=schema, strict=True),
        function_tool("g", parameters=open_schema, strict=True),
    )
    settings = Request(model="m", tools=tools, text=TextConfig(format=json_schema("t", schema)))
    made = body(user("q"), settings=settings)
    wanted = {
        "type": "object",
        "properties": {"n": {"type": "string", "description": "{maxLength: 3}"}},
        "additionalProperties": False,
    }
    first, second = (tool["toolSpec"] for tool in made["toolConfig"]["tools"])
    assert (first["inputSchema"]["json"], first["strict"]) == (wanted, True)
    assert (second["inputSchema"]["json"], second.get("strict")) == (open_schema, None)
    told = made["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert (told["name"], json.loads(told["schema"])) == ("t", wanted)
    assert lost(user("q"), settings=settings) == [
        ("tools[0].parameters.properties.n.maxLength", "maxLength"),
        ("tools[1].strict", "strict"),
        ("text.format.schema.properties.n.maxLength", "maxLength"),
    ]


def test_tools_of_the_api_are_named_by_their_type() -> None:
    tools = (
        UnknownTool(
            type="bedrock:systemTool", source=Source(b'{"type":"bedrock:systemTool","name":"n"}')
        ),
        UnknownTool(
            type="bedrock:cachePoint",
            source=Source(b'{"type":"bedrock:cachePoint","config":{"type":"default"}}'),
        ),
        UnknownTool(type="web_search", source=Source(b'{"type":"web_search"}')),
    )
    settings = Request(model="m", tools=tools)
    assert body(user("q"), settings=settings)["toolConfig"]["tools"] == [
        {"systemTool": {"name": "n"}},
        {"cachePoint": {"type": "default"}},
    ]
    assert lost(user("q"), settings=settings) == [("tools[2]", "web_search")]


def test_settings_that_the_api_has_are_sent() -> None:
    settings = with_unknown(
        Request(
            model="anthropic.claude-3-5-haiku-20241022-v1:0",
            max_output_tokens=10,
            temperature=0,
            top_p=0.5,
            metadata={"a": "b"},
            service_tier="flex",
        ),
        {
            "stop": ["x"],
            "top_k": 5,
            "performanceConfig": {"latency": "optimized"},
            "additionalModelRequestFields": {"extra": 1},
            "perdure:bedrock": {"inferenceConfig": {"maxTokens": 11}},
        },
    )
    made = body(user("q"), settings=settings)
    assert made == {
        "messages": made["messages"],
        "inferenceConfig": {
            "maxTokens": 11,
            "temperature": 0,
            "topP": 0.5,
            "stopSequences": ["x"],
        },
        "additionalModelRequestFields": {"top_k": 5, "extra": 1},
        "requestMetadata": {"a": "b"},
        "serviceTier": {"type": "flex"},
        "performanceConfig": {"latency": "optimized"},
    }
    assert lost(user("q"), settings=settings) == []


def test_settings_that_the_api_has_not_are_lost() -> None:
    settings = with_unknown(
        Request(
            model="m",
            temperature=1.5,
            presence_penalty=1,
            parallel_tool_calls=False,
            truncation="auto",
            text=TextConfig(format=JsonObjectFormat(), verbosity="low"),
            include=("message.output_text.logprobs",),
            safety_identifier="u",
        ),
        {"seed": 1, "top_k": 2, "cache_control": {"type": "ephemeral"}},
    )
    assert lost(user("q"), settings=settings) == [
        ("temperature",) * 2,
        ("top_k",) * 2,
        ("text.verbosity", "verbosity"),
        ("text.format", "json_object"),
        ("presence_penalty",) * 2,
        ("safety_identifier",) * 2,
        ("truncation",) * 2,
        ("include[0]", "message.output_text.logprobs"),
        ("parallel_tool_calls",) * 2,
        ("seed",) * 2,
        ("cache_control",) * 2,
    ]


def test_the_address_names_the_model() -> None:
    assert path_of("a.b-v1:0", stream=True) == "/model/a.b-v1%3A0/converse-stream"
    assert path_of("arn:aws:x/y", stream=False) == "/model/arn%3Aaws%3Ax%2Fy/converse"


# --- bytes that are made once ------------------------------------------------------------------

LONG: list[Item] = [
    system("s"),
    assistant("hello"),
    user([InputFile(filename="a.pdf", file_data="JVBERi0x")]),
    thought("hm", "sig"),
    call("c1"),
    call("c2"),
    output("c2"),
    user("steer"),
    function_call_output("c1", [InputFile(filename="a.pdf", file_data="JVBERi0x")]),
    assistant("b"),
    thought("foreign", "sig", "gemini"),
    user("c"),
    system("later"),
    call("c1"),
    output("c1"),
]


@pytest.mark.parametrize("settings", [CLAUDE, NOVA])
def test_bytes_and_losses_depend_on_nothing_but_the_request(settings: Request) -> None:
    for seen in range(len(LONG) + 1):
        memo = Transcript(LONG).snapshot().memo
        request_body(ModelRequest(settings=settings, input=Items(LONG, seen, memo)))
        for length in range(len(LONG) + 1):
            request = ModelRequest(settings=settings, input=Items(LONG, length, memo))
            fresh = asked(*LONG[:length], settings=settings)
            made, again = request_body(request), request_body(fresh)
            assert b"".join(made.fragments) == b"".join(again.fragments)
            assert losses(request) == losses(fresh)

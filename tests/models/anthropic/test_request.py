"""Requests to Claude: the rules of the API, whatever the transcript is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items, Transcript
from perdure.models.anthropic import losses, request_body
from perdure.wire import (
    ABSENT,
    AllowedTools,
    FunctionCallOutput,
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
    ToolDefinition,
    UnknownItem,
    UnknownTool,
    UrlCitation,
    assistant,
    decode_request,
    developer,
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

SETTINGS = Request(model="claude-sonnet-4-5")


ASKING = Asking(request_body, losses, SETTINGS)
asked, body, lost = ASKING.asked, ASKING.body, ASKING.lost


def messages(*items: Item, settings: Request = SETTINGS) -> list[tuple[str, list[Any]]]:
    """Roles and blocks; a text block as its text."""
    return [
        (message["role"], [_short(block) for block in message["content"]])
        for message in body(*items, settings=settings)["messages"]
    ]


def _short(block: dict[str, Any]) -> Any:
    match block:
        case {"type": "text", "text": text} if len(block) == 2:
            return text
        case {"type": "tool_use"}:
            return "call", block["id"]
        case {"type": "tool_result", "tool_use_id": call_id}:
            return "result", call_id, [_short(one) for one in block.get("content", ())]
        case _:
            return block


def call(call_id: str) -> Item:
    return function_call(call_id, "f", '{"x": 1}')


def thought(text: str, signature: str | None, maker: str | None = "anthropic") -> Item:
    made = Reasoning(
        summary=(SummaryText(text=text),) if text else (), encrypted_content=signature or ABSENT
    )
    return with_unknown(made, {"perdure:provider": maker}) if maker else made


# --- turns --------------------------------------------------------------------------------


def test_neighbours_of_one_role_are_one_message() -> None:
    assert messages(user("a"), user("b"), assistant("c"), assistant("d"), user("e")) == [
        ("user", ["a", "b"]),
        ("assistant", ["c", "d"]),
        ("user", ["e"]),
    ]


def test_results_come_first_in_the_order_of_their_calls() -> None:
    items = [user("q"), call("a"), call("b"), user("also"), output("b", "2"), output("a", "1")]
    assert messages(*items, user("next")) == [
        ("user", ["q"]),
        ("assistant", [("call", "a"), ("call", "b")]),
        ("user", [("result", "a", ["1"]), ("result", "b", ["2"]), "also", "next"]),
    ]
    assert lost(*items, user("next")) == []


MISSING = "Error: the call has no output"


def test_a_call_without_an_output_is_said_to_have_none() -> None:
    items = [call("a"), call("b"), output("b"), user("next"), assistant("ok"), call("c")]
    made = body(*items)["messages"]
    first, last = made[1]["content"][0], made[3]["content"][0]
    assert first["content"] == [{"type": "text", "text": MISSING}]
    assert first["is_error"] is True
    assert (last["tool_use_id"], last["is_error"]) == ("c", True)
    assert lost(*items) == [("input[0]", "function_call"), ("input[5]", "function_call")]


def test_a_second_output_and_one_without_a_call_are_left_out() -> None:
    items = [output("z"), user("q"), call("a"), output("a", "1"), output("a", "2"), output("b")]
    assert messages(*items) == [
        ("user", ["q"]),
        ("assistant", [("call", "a")]),
        ("user", [("result", "a", ["1"])]),
    ]
    assert lost(*items) == [
        ("input[0]", "function_call_output"),
        ("input[4]", "function_call_output"),
        ("input[5]", "function_call_output"),
    ]


def test_an_output_that_stands_behind_the_next_answer_is_too_late() -> None:
    items = [call("a"), user("x"), assistant("y"), output("a", "1")]
    assert messages(*items) == [
        ("assistant", [("call", "a")]),
        ("user", [("result", "a", [MISSING]), "x"]),
        ("assistant", ["y"]),
    ]
    assert lost(*items) == [("input[0]", "function_call"), ("input[3]", "function_call_output")]


def test_ids_that_the_api_refuses_or_has_seen_are_replaced_in_call_and_result() -> None:
    made = messages(call("a/b:c"), output("a/b:c"), call("a"), output("a"), call("a"), output("a"))
    ids = [block[1] for role, blocks in made for block in blocks if role == "assistant"]
    results = [block[1] for role, blocks in made for block in blocks if role == "user"]
    assert ids == results
    assert len(set(ids)) == 3
    assert ids[0].startswith("call_")
    assert ids[1:] == ["a", "a_4"]
    again = messages(call("a/b:c"), output("a/b:c"))
    assert again[0][1][0][1] == ids[0]


def test_a_call_id_twice_in_one_turn_is_one_call() -> None:
    assert messages(call("a"), call("a"), output("a")) == [
        ("assistant", [("call", "a")]),
        ("user", [("result", "a", ["done"])]),
    ]
    assert lost(call("a"), call("a"), output("a")) == [("input[1]", "function_call")]


def test_there_are_no_empty_blocks_and_no_empty_messages() -> None:
    items = [user("a"), assistant(""), user(""), assistant(" \n"), user("b"), call("c")]
    assert messages(*items, output("c", "")) == [
        ("user", ["a", "b"]),
        ("assistant", [("call", "c")]),
        ("user", [("result", "c", [])]),
    ]
    assert lost(*items, output("c", "")) == [("input[3].content[0]", "text")]
    assert "content" not in body(*items, output("c", ""))["messages"][2]["content"][0]


def test_empty_arguments_are_an_empty_object_and_no_object_is_wrapped() -> None:
    items = [
        function_call("a", "f", ""),
        function_call("b", "f", '{"x":'),
        output("a"),
        output("b"),
    ]
    blocks = body(*items)["messages"][0]["content"]
    assert [block["input"] for block in blocks] == [{}, {"arguments": '{"x":'}]
    assert lost(*items) == [("input[1].arguments", "arguments")]


def test_arguments_keep_their_bytes() -> None:
    text = '{"n": 1.50, "big": 123456789012345678901234567890, "é": "\\u00e9"}'
    made = request_body(asked(function_call("a", "f", text), output("a")))
    assert text.encode() in b"".join(made.fragments)


def test_an_output_that_is_an_error_is_marked_as_one() -> None:
    blocks = body(call("a"), call("b"), output("a", "Error: no"), output("b", "Errors: 0"))
    results = blocks["messages"][1]["content"]
    assert [block.get("is_error") for block in results] == [True, None]


def test_lone_surrogates_do_not_reach_the_wire() -> None:
    assert messages(user("a\ud800b"))[0][1] == ["a\ufffdb"]


# --- the system -----------------------------------------------------------------------------


def test_what_the_system_says_first_stands_before_the_messages() -> None:
    settings = msgspec.structs.replace(SETTINGS, instructions="one")
    made = body(system("two"), developer("three"), user("q"), settings=settings)
    assert [block["text"] for block in made["system"]] == ["one", "two", "three"]
    assert len(made["messages"]) == 1


def test_what_the_system_says_later_keeps_its_turn() -> None:
    items = [user("a"), assistant("b"), system("c"), user("d")]
    assert messages(*items)[2] == ("user", ["d", "<system>c</system>"])
    assert lost(*items) == [("input[2]", "system")]
    inline = Request(model="claude-opus-4-8")
    assert messages(*items, settings=inline)[2:] == [("user", ["d"]), ("system", ["c"])]
    assert lost(*items, settings=inline) == []
    assert messages(*items[:3], settings=inline)[2] == ("user", ["<system>c</system>"])


def test_what_the_system_shows_later_is_no_text() -> None:
    picture = InputImage(image_url="https://host/a.png")
    shows = Message(role="system", content=(InputText(text="look"), picture))
    role, (said, shown) = messages(user("a"), assistant("b"), shows)[2]
    assert (role, said) == ("user", "<system>look</system>")
    assert shown == {"type": "image", "source": {"type": "url", "url": "https://host/a.png"}}


# --- thoughts -------------------------------------------------------------------------------


def test_signed_thoughts_go_back_as_they_came_and_others_stay() -> None:
    redacted = with_unknown(thought("", "data"), {"perdure:redacted": True})
    items = [thought("hm", "sig"), thought("", "sig2"), redacted, assistant("a")]
    assert messages(*items)[0][1] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "thinking", "thinking": "", "signature": "sig2"},
        {"type": "redacted_thinking", "data": "data"},
        "a",
    ]
    foreign = [
        thought("hm", "sig", "gemini"),
        thought("hm", "sig", None),
        reasoning("hm"),
        thought("hm", None),
    ]
    assert messages(*foreign, assistant("a"))[0][1] == ["a"]
    assert [at for at, _ in lost(*foreign, assistant("a"))] == [f"input[{n}]" for n in range(4)]


def thinking(effort: str, model: str = "claude-sonnet-4-5", **members: Any) -> Request:
    return Request(model=model, reasoning=ReasoningConfig(effort=effort), **members)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (thinking("low"), {"type": "enabled", "budget_tokens": 2048}),
        (thinking("high", max_output_tokens=3000), {"type": "enabled", "budget_tokens": 1500}),
        (thinking("none"), {"type": "disabled"}),
        (thinking("medium", "claude-opus-4-6"), {"type": "adaptive"}),
        (thinking("medium", "claude-new"), {"type": "adaptive"}),
        (thinking("high", max_output_tokens=1000), None),
        (thinking("high", "claude-3-5-haiku-20241022"), None),
        (thinking("high", tool_choice="required", tools=(function_tool("f"),)), None),
        (Request(model="claude-opus-4-6"), None),
    ],
)
def test_effort_is_a_budget_or_left_to_the_model(
    settings: Request, wanted: dict[str, object] | None
) -> None:
    made = body(user("q"), settings=settings)
    assert made.get("thinking") == wanted
    assert made["max_tokens"] > made.get("thinking", {}).get("budget_tokens", 0)
    asked_for_more = bool(settings.reasoning)
    assert bool(lost(user("q"), settings=settings)) == (wanted is None and asked_for_more)
    adaptive = wanted == {"type": "adaptive"}
    assert made.get("output_config") == ({"effort": "medium"} if adaptive else None)


def test_a_model_does_not_think_where_the_last_calls_lack_their_thought() -> None:
    foreign = [user("q"), call("a"), output("a")]
    own = [user("q"), thought("hm", "sig"), call("a"), output("a")]
    settings = thinking("low")
    assert "thinking" not in body(*foreign, settings=settings)
    assert lost(*foreign, settings=settings) == [("reasoning", "thinking")]
    assert "thinking" in body(*own, settings=settings)
    assert "thinking" in body(*foreign, assistant("done"), user("next"), settings=settings)


def test_a_model_that_thinks_takes_no_temperature() -> None:
    settings = thinking("low", temperature=0.5, top_p=0.5)
    made = body(user("q"), settings=settings)
    assert not {"temperature", "top_p"} & made.keys()
    assert lost(user("q"), settings=settings) == [("temperature",) * 2, ("top_p",) * 2]


# --- parts ----------------------------------------------------------------------------------

PNG = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        (
            InputImage(image_url=PNG),
            {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
        ),
        (InputImage(image_url="https://x/y.svg"), {"type": "url", "url": "https://x/y.svg"}),
        (InputImage(file_id="file_1"), {"type": "file", "file_id": "file_1"}),
        (
            InputFile(filename="a.pdf", file_data="JVBERi0x"),
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"},
        ),
        (
            InputFile(filename="a.csv", file_data="YSxi"),
            {"type": "text", "media_type": "text/plain", "data": "a,b"},
        ),
        (InputFile(file_url="https://x/y.pdf"), {"type": "url", "url": "https://x/y.pdf"}),
        (InputImage(image_url="data:image/tiff;base64,AA=="), None),
        (InputFile(filename="a.docx", file_data="AA=="), None),
        (InputVideo(video_url="https://x/y.mp4"), None),
    ],
)
def test_media_are_sent_in_what_the_api_takes(part: Part, wanted: object) -> None:
    item = user([InputText(text="see"), part])
    blocks = body(item)["messages"][0]["content"]
    results = body(call("a"), function_call_output("a", [part]))["messages"][1]["content"]
    if wanted is None:
        assert len(blocks) == 1
        assert [at for at, _ in lost(item)] == ["input[0].content[1]"]
        assert "content" not in results[0]
        return
    assert blocks[1]["source"] == wanted
    assert results[0]["content"][0]["source"] == wanted
    assert lost(item) == []


def test_what_an_assistant_cannot_say_is_left_out() -> None:
    item = Message(role="assistant", content=(InputImage(image_url=PNG), OutputText(text="a")))
    assert messages(item)[0][1] == ["a"]
    assert lost(item) == [("input[0].content[0]", "input_image")]


def test_a_refusal_is_sent_as_text() -> None:
    item = Message(role="assistant", content=(Refusal(refusal="no"),))
    assert messages(item)[0][1] == ["no"]
    assert lost(item) == [("input[0].content[0]", "refusal")]


def test_citations_of_others_are_left_out() -> None:
    cited = UrlCitation(url="https://x", title="x", start_index=0, end_index=1)
    item = Message(role="assistant", content=(OutputText(text="a", annotations=(cited,)),))
    assert messages(item)[0][1] == ["a"]
    assert lost(item) == [("input[0].content[0].annotations[0]", "url_citation")]


def test_items_of_others_are_left_out_and_own_ones_go_back_whole() -> None:
    block = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1.50}}
    own, other = (
        UnknownItem(
            type=f"{maker}:server_tool_use",
            source=Source(
                json.dumps({"type": f"{maker}:server_tool_use", "block": block}).encode()
            ),
        )
        for maker in ("anthropic", "gemini")
    )
    assert messages(user("q"), own, other)[1][1] == [block]
    assert lost(user("q"), own, other) == [("input[2]", "gemini:server_tool_use")]


def test_a_cache_breakpoint_goes_to_its_block() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    part = with_unknown(InputText(text="a"), mark)
    tool = with_unknown(function_tool("f"), mark)
    settings = with_unknown(msgspec.structs.replace(SETTINGS, tools=(tool,)), mark)
    items = [
        user([part]),
        with_unknown(user("b"), mark),
        call("c"),
        with_unknown(output("c"), mark),
    ]
    made = body(*items, settings=settings)
    blocks = [
        *made["messages"][0]["content"],
        *made["messages"][2]["content"],
        *made["tools"],
        made,
    ]
    assert [block["cache_control"] for block in blocks] == [{"type": "ephemeral"}] * 5
    assert lost(*items, settings=settings) == []


def test_members_that_nobody_knows_and_marks_of_others_are_lost() -> None:
    item = with_unknown(user("a"), {"priority": 1, "perdure:gemini": {}, "perdure:anthropic": {}})
    assert lost(item) == [
        ("input[0].perdure:gemini", "perdure:gemini"),
        ("input[0].priority", "priority"),
    ]


# --- settings -------------------------------------------------------------------------------


def choice(value: object, **members: Any) -> Any:
    tools = (function_tool("f"), function_tool("g"))
    settings = Request(model="m", tools=tools, tool_choice=value, **members)  # type: ignore[arg-type]
    return body(user("q"), settings=settings)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        (FunctionChoice(name="g"), {"type": "tool", "name": "g"}),
        (ABSENT, None),
    ],
)
def test_tool_choices(value: object, wanted: object) -> None:
    made = choice(value)
    assert made.get("tool_choice") == wanted
    assert [tool["name"] for tool in made["tools"]] == ["f", "g"]


def test_one_call_at_a_time() -> None:
    assert choice(ABSENT, parallel_tool_calls=False)["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert choice("none", parallel_tool_calls=False)["tool_choice"] == {"type": "none"}


def test_allowed_tools_are_the_only_ones_named() -> None:
    made = choice(AllowedTools(tools=(FunctionChoice(name="g"),), mode="required"))
    assert [tool["name"] for tool in made["tools"]] == ["g"]
    assert made["tool_choice"] == {"type": "any"}


@pytest.mark.parametrize(
    "settings",
    [
        Request(model="m", tool_choice="required"),
        Request(model="m", tool_choice=FunctionChoice(name="f")),
        Request(model="m", tools=(function_tool("f"),), tool_choice=FunctionChoice(name="g")),
        Request(model="m", tools=(function_tool("a b"),)),
        Request(model="m", tools=(function_tool("x" * 129),)),
        Request(model="m", previous_response_id="resp_1"),
        decode_request(b'{"model":"m","conversation":{"id":"conv_1"}}'),
        Request(),
        Request(
            model="m",
            text=TextConfig(
                format=json_schema(
                    "t",
                    {"type": "object"}
                    | {
                        "additionalProperties": True,
                    },
                )
            ),
        ),
    ],
)
def test_what_the_api_cannot_do_is_refused_before_anything_is_sent(settings: Request) -> None:
    with pytest.raises(ConfigError):
        request_body(asked(user("q"), settings=settings))


def test_calls_without_tools_have_them_declared_but_not_called() -> None:
    made = body(user("q"), call("a"), output("a"))
    assert made["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert made["tool_choice"] == {"type": "none"}


def test_tools_of_the_api_are_named_by_their_type() -> None:
    source = b'{"type":"anthropic:web_search_20250305","name":"web_search","max_uses":2}'
    tools: tuple[ToolDefinition, ...] = (
        UnknownTool(type="anthropic:web_search_20250305", source=Source(source)),
        UnknownTool(type="web_search", source=Source(b'{"type":"web_search"}')),
    )
    settings = Request(model="m", tools=tools)
    assert body(user("q"), settings=settings)["tools"] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    ]
    assert lost(user("q"), settings=settings) == [("tools[1]", "web_search")]


SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1, "description": "A number"}},
    "required": ["n"],
}


def test_strict_schemas_say_what_is_not_enforced() -> None:
    tool = function_tool("f", parameters=SCHEMA, strict=True)
    settings = Request(model="m", tools=(tool,), text=TextConfig(format=json_schema("t", SCHEMA)))
    made = body(user("q"), settings=settings)
    wanted = {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "A number\n\n{minimum: 1}"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    assert made["tools"][0]["strict"] is True
    assert made["tools"][0]["input_schema"] == wanted
    assert made["output_config"]["format"] == {"type": "json_schema", "schema": wanted}
    assert lost(user("q"), settings=settings) == [
        ("tools[0].parameters.properties.n.minimum", "minimum"),
        ("text.format.schema.properties.n.minimum", "minimum"),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"x": {}}},
        {"type": "object", "properties": {"x": {"type": "array"}}},
        {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/T"}},
            "$defs": {"T": {"type": "object", "properties": {"y": {"$ref": "#/$defs/T"}}}},
        },
    ],
)
def test_a_tool_that_cannot_be_strict_is_not(schema: dict[str, object]) -> None:
    tool = function_tool("f", parameters=schema, strict=True)
    settings = Request(model="m", tools=(tool,))
    made = body(user("q"), settings=settings)["tools"][0]
    assert made == {"name": "f", "description": "", "input_schema": schema}
    assert lost(user("q"), settings=settings) == [("tools[0].strict", "strict")]


def test_settings_that_the_api_has_are_sent() -> None:
    settings = with_unknown(
        Request(
            model="claude-3-5-haiku-20241022",
            max_output_tokens=10,
            temperature=0,
            top_p=0.5,
            safety_identifier="u1",
            service_tier="default",
        ),
        {"stop": ["x"], "top_k": 5, "perdure:anthropic": {"speed": "fast"}},
    )
    made = body(user("q"), settings=settings)
    assert made == {
        "model": "claude-3-5-haiku-20241022",
        "max_tokens": 10,
        "messages": made["messages"],
        "temperature": 0,
        "top_p": 0.5,
        "metadata": {"user_id": "u1"},
        "service_tier": "standard_only",
        "stop_sequences": ["x"],
        "top_k": 5,
        "speed": "fast",
        "stream": True,
    }
    assert lost(user("q"), settings=settings) == []


def test_settings_that_the_api_has_not_are_lost() -> None:
    settings = with_unknown(
        Request(
            model="m",
            temperature=1.5,
            presence_penalty=1,
            top_logprobs=2,
            truncation="auto",
            metadata={"a": "b"},
            text=TextConfig(format=JsonObjectFormat(), verbosity="low"),
            include=("message.output_text.logprobs", "reasoning.encrypted_content"),
            service_tier="flex",
        ),
        {"seed": 1},
    )
    assert lost(user("q"), settings=settings) == [
        ("text.verbosity", "verbosity"),
        ("text.format", "json_object"),
        ("temperature", "temperature"),
        ("presence_penalty", "presence_penalty"),
        ("top_logprobs", "top_logprobs"),
        ("truncation", "truncation"),
        ("include[0]", "message.output_text.logprobs"),
        ("metadata.a", "a"),
        ("service_tier", "flex"),
        ("seed", "seed"),
    ]
    assert body(user("q"), settings=settings)["temperature"] == 1


# --- bytes that are made once ------------------------------------------------------------------

LONG: list[Item] = [
    system("s"),
    user("a"),
    thought("hm", "sig"),
    call("c1"),
    call("c2"),
    output("c2"),
    user("steer"),
    output("c1"),
    assistant("b"),
    thought("foreign", "sig", "gemini"),
    user("c"),
    system("later"),
    call("c1"),
    output("c1"),
    output("c1"),
]


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-8"])
def test_bytes_and_losses_depend_on_nothing_but_the_request(model: str) -> None:
    settings = Request(model=model)
    for seen in range(len(LONG) + 1):
        transcript = Transcript(LONG)
        memo = transcript.snapshot().memo
        request_body(ModelRequest(settings=settings, input=Items(LONG, seen, memo)))
        for length in range(len(LONG) + 1):
            request = ModelRequest(settings=settings, input=Items(LONG, length, memo))
            fresh = asked(*LONG[:length], settings=settings)
            assert b"".join(request_body(request).fragments) == b"".join(
                request_body(fresh).fragments
            )
            assert losses(request) == losses(fresh)
            assert all(int(at.split("[")[1].split("]")[0]) < length for at, *_ in losses(fresh))


def test_settled_turns_keep_their_bytes_and_are_not_read_again() -> None:
    transcript = Transcript(LONG[:8])
    first = request_body(ModelRequest(settings=SETTINGS, input=transcript.snapshot()))
    transcript.append(LONG[8])
    second = request_body(ModelRequest(settings=SETTINGS, input=transcript.snapshot()))
    assert second.fragments[0] is first.fragments[0]
    transcript.append(LONG[10])
    third = request_body(ModelRequest(settings=SETTINGS, input=transcript.snapshot()))
    assert all(a is b for a, b in zip(second.fragments[:4], third.fragments, strict=False))


def test_an_output_twice_is_told_of_once_by_its_place() -> None:
    twice = FunctionCallOutput(call_id="a", output="2")
    found = losses(asked(call("a"), output("a"), twice))
    assert [loss.at for loss in found] == ["input[2]"]
    assert "'a'" in found[0].reason

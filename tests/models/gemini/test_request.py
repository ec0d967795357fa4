"""Requests to Gemini: the rules of the API, whatever the transcript is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items, Transcript
from perdure.models.gemini import losses, path_of, request_body
from perdure.wire import (
    ABSENT,
    AllowedTools,
    FunctionCall,
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

NEW = Request(model="gemini-3-pro-preview")
OLD = Request(model="gemini-2.5-flash")
SKIP = "skip_thought_signature_validator"


ASKING = Asking(request_body, losses, NEW)
asked, body, lost = ASKING.asked, ASKING.body, ASKING.lost


def contents(*items: Item, settings: Request = NEW) -> list[tuple[str, list[Any]]]:
    """Roles and parts; a text part as its text."""
    return [
        (content["role"], [_short(part) for part in content["parts"]])
        for content in body(*items, settings=settings)["contents"]
    ]


def _short(part: dict[str, Any]) -> Any:
    match part:
        case {"text": text} if len(part) == 1:
            return text
        case {"functionCall": {"id": call_id}}:
            return "call", call_id, part.get("thoughtSignature")
        case {"functionResponse": {"id": call_id, "response": response}}:
            return "answer", call_id, response
        case _:
            return part


def call(call_id: str, signature: str | None = None) -> Item:
    made = function_call(call_id, f"f_{call_id}", '{"x": 1.50}')
    return with_unknown(made, {"perdure:thought_signature": signature}) if signature else made


# --- turns --------------------------------------------------------------------------------


def test_responses_stand_alone_in_the_order_of_their_calls() -> None:
    items = [
        user("q"),
        call("a", "sig"),
        call("b"),
        output("b", "2"),
        user("and"),
        output("a", "1"),
    ]
    assert contents(*items, assistant("ok"), user("next")) == [
        ("user", ["q"]),
        ("model", [("call", "a", "sig"), ("call", "b", None)]),
        ("user", [("answer", "a", {"output": "1"}), ("answer", "b", {"output": "2"})]),
        ("user", ["and"]),
        ("model", ["ok"]),
        ("user", ["next"]),
    ]
    assert lost(*items) == []
    names = [p["functionResponse"]["name"] for p in body(*items)["contents"][2]["parts"]]
    assert names == ["f_a", "f_b"]


def test_a_call_without_an_output_and_outputs_without_a_call() -> None:
    items = [user("q"), call("a", "s"), call("b"), output("b"), output("b"), output("z")]
    assert contents(*items)[2] == (
        "user",
        [("answer", "a", {"error": "the call has no output"}), ("answer", "b", {"output": "done"})],
    )
    assert lost(*items) == [
        ("input[4]", "function_call_output"),
        ("input[5]", "function_call_output"),
        ("input[1]", "function_call"),
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {"output": ""}),
        ("42", {"output": "42"}),
        ('{"n": 1}', {"n": 1}),
        ("[1, 2]", {"output": [1, 2]}),
        ("Error: no such town", {"error": "no such town"}),
        ("{broken", {"output": "{broken"}),
    ],
)
def test_what_a_function_gave_is_an_object(text: str, wanted: object) -> None:
    assert contents(user("q"), call("a", "s"), output("a", text))[2][1] == [("answer", "a", wanted)]


def test_the_user_begins_even_if_nobody_spoke() -> None:
    assert contents() == [("user", [""])]
    assert contents(call("a", "s"), output("a"))[0] == ("user", [""])
    assert contents(system("s")) == [("user", [""])]
    assert contents(user(""), user("a"), assistant("")) == [("user", ["a"])]


def test_what_the_system_says_stands_before_the_contents_or_in_its_turn() -> None:
    settings = msgspec.structs.replace(NEW, instructions="one")
    items = [system("two"), user("a"), assistant("b"), system("c"), user("d")]
    made = body(*items, settings=settings)
    assert [part["text"] for part in made["systemInstruction"]["parts"]] == ["one", "two"]
    assert contents(*items)[-1] == ("user", ["<system>c</system>", "d"])
    assert lost(*items) == [("input[3]", "system")]


# --- signatures -----------------------------------------------------------------------------


def test_signatures_go_back_where_they_came_from() -> None:
    text = OutputText(text="")
    signed = with_unknown(text, {"perdure:thought_signature": "s2"})
    item = Message(role="assistant", content=(OutputText(text="a"), signed, text))
    assert contents(user("q"), call("a", "s1"), output("a"), item)[3][1] == [
        "a",
        {"text": "", "thoughtSignature": "s2"},
    ]


def test_the_first_call_of_another_maker_is_signed_as_such_since_the_user_spoke() -> None:
    first = [user("q"), call("a"), call("b"), output("a"), output("b")]
    second = [user("next"), call("c"), call("d"), output("c"), output("d"), call("e"), output("e")]
    calls = [p for role, parts in contents(*first) for p in parts if role == "model"]
    assert calls == [("call", "a", SKIP), ("call", "b", None)]
    calls = [p for role, parts in contents(*first, *second) for p in parts if role == "model"]
    assert calls == [
        ("call", "a", None),
        ("call", "b", None),
        ("call", "c", SKIP),
        ("call", "d", None),
        ("call", "e", SKIP),
    ]
    assert contents(*first, settings=OLD)[1][1][0] == ("call", "a", None)
    own = [user("q"), call("a", "sig"), call("b"), output("a"), output("b")]
    assert contents(*own)[1][1] == [("call", "a", "sig"), ("call", "b", None)]


def thought(text: str, signature: str | None, maker: str | None) -> Item:
    made = Reasoning(
        summary=(SummaryText(text=text),) if text else (), encrypted_content=signature or ABSENT
    )
    return with_unknown(made, {"perdure:provider": maker}) if maker else made


def test_own_thoughts_go_back_and_signed_ones_of_others_stay() -> None:
    items = [
        thought("hm", None, "gemini"),
        thought("", "sig", "gemini"),
        reasoning("anybody's"),
        thought("hm", "sig", "anthropic"),
        thought("hm", "sig", None),
        thought("hm", None, "anthropic"),
    ]
    assert contents(user("q"), *items, assistant("a"))[1][1] == [
        {"text": "hm", "thought": True},
        {"text": "", "thought": True, "thoughtSignature": "sig"},
        {"text": "anybody's", "thought": True},
        "a",
    ]
    assert [at for at, _ in lost(user("q"), *items)] == ["input[4]", "input[5]", "input[6]"]


# --- parts ----------------------------------------------------------------------------------

PNG = "data:image/png;base64,iVBORw0KGgo="
SOUND = UnknownPart(
    type="input_audio",
    source=Source(b'{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}'),
)


@pytest.mark.parametrize(
    ("part", "wanted", "inside"),
    [
        (
            InputImage(image_url=PNG),
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
            True,
        ),
        (
            InputImage(image_url="https://x/y.jpg"),
            {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://x/y.jpg"}},
            True,
        ),
        (InputFile(file_id="files/1"), {"fileData": {"fileUri": "files/1"}}, False),
        (
            InputFile(filename="a.pdf", file_data="JVBERi0x"),
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0x"}},
            True,
        ),
        (
            InputFile(filename="a.json", file_data="e30="),
            {"inlineData": {"mimeType": "text/plain", "data": "e30="}},
            True,
        ),
        (SOUND, {"inlineData": {"mimeType": "audio/wav", "data": "AA=="}}, False),
        (
            InputVideo(video_url="https://youtu.be/x"),
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://youtu.be/x"}},
            False,
        ),
        (InputFile(filename="a.docx", file_data="AA=="), None, False),
        (InputFile(file_data="AA=="), None, False),
    ],
)
def test_media_are_sent_in_what_the_api_takes(part: Part, wanted: object, *, inside: bool) -> None:
    item = user([InputText(text="see"), part])
    assert contents(item)[0][1] == (["see"] if wanted is None else ["see", wanted])
    assert [at for at, _ in lost(item)] == (["input[0].content[1]"] if wanted is None else [])
    given = [user("q"), call("a", "s"), function_call_output("a", [InputText(text="1"), part])]
    made = body(*given)["contents"]
    assert made[2]["parts"][0]["functionResponse"]["response"] == {"output": "1"}
    assert made[2]["parts"][0]["functionResponse"].get("parts") == ([wanted] if inside else None)
    assert [c["parts"] for c in made[3:]] == ([] if inside or wanted is None else [[wanted]])
    assert [at for at, _ in lost(*given)] == ([] if inside else ["input[2].output[1]"])
    beside = body(*given, settings=OLD)["contents"][3:]
    assert [c["parts"] for c in beside] == ([] if wanted is None else [[wanted]])


def test_what_a_model_cannot_say_is_left_out() -> None:
    cited = UrlCitation(url="https://x", title="x", start_index=0, end_index=1)
    own = with_unknown(cited, {"perdure:gemini": {}})
    item = Message(
        role="assistant",
        content=(
            InputImage(image_url=PNG),
            OutputText(text="a", annotations=(cited, own)),
            Refusal(refusal="no"),
        ),
    )
    assert contents(user("q"), item)[1][1] == ["a", "no"]
    assert lost(user("q"), item) == [
        ("input[1].content[0]", "input_image"),
        ("input[1].content[1].annotations[0]", "url_citation"),
        ("input[1].content[2]", "refusal"),
    ]


def test_items_of_others_are_left_out_and_own_ones_go_back_whole() -> None:
    part = {"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "s"}
    own, other = (
        UnknownItem(
            type=f"{maker}:executableCode",
            source=Source(json.dumps({"type": f"{maker}:executableCode", "part": part}).encode()),
        )
        for maker in ("gemini", "anthropic")
    )
    assert contents(user("q"), own, other)[1][1] == [part]
    assert lost(user("q"), own, other) == [("input[2]", "anthropic:executableCode")]


def test_names_that_the_api_refuses_are_replaced_in_call_and_response() -> None:
    made = body(user("q"), function_call("a", "über cool", "{}"), output("a"))["contents"]
    call_part, answer = made[1]["parts"][0], made[2]["parts"][0]
    assert call_part["functionCall"]["name"] == answer["functionResponse"]["name"] == "_ber_cool"
    wide = FunctionCall(call_id="a", name="f" * 80, arguments="")
    assert len(body(user("q"), wide)["contents"][1]["parts"][0]["functionCall"]["name"]) == 64


# --- settings -------------------------------------------------------------------------------


def chosen(value: object, *, strict: bool = False, **members: Any) -> Any:
    tools = (function_tool("f", strict=strict), function_tool("g"))
    settings = Request(model="m", tools=tools, tool_choice=value, **members)  # type: ignore[arg-type]
    made = body(user("q"), settings=settings)
    names = [one["name"] for one in made["tools"][0]["functionDeclarations"]]
    return made.get("toolConfig", {}).get("functionCallingConfig"), names


@pytest.mark.parametrize(
    ("value", "wanted", "names"),
    [
        ("auto", {"mode": "AUTO"}, "fg"),
        ("none", {"mode": "NONE"}, "fg"),
        ("required", {"mode": "ANY"}, "fg"),
        (FunctionChoice(name="g"), {"mode": "ANY", "allowedFunctionNames": ["g"]}, "fg"),
        (ABSENT, None, "fg"),
        (AllowedTools(tools=(FunctionChoice(name="g"),)), {"mode": "AUTO"}, "g"),
        (
            AllowedTools(tools=(FunctionChoice(name="g"),), mode="required"),
            {"mode": "ANY", "allowedFunctionNames": ["g"]},
            "fg",
        ),
    ],
)
def test_tool_choices(value: object, wanted: object, names: str) -> None:
    assert chosen(value) == (wanted, list(names))


def test_strict_tools_are_validated() -> None:
    assert chosen("auto", strict=True)[0] == {"mode": "VALIDATED"}
    assert chosen(ABSENT, strict=True)[0] == {"mode": "VALIDATED"}
    assert chosen("required", strict=True)[0] == {"mode": "ANY"}


FORMAT = TextConfig(format=json_schema("t", {"type": "object"}))


@pytest.mark.parametrize(
    "settings",
    [
        Request(model="m", tool_choice="required"),
        Request(model="m", tools=(function_tool("f"),), tool_choice=FunctionChoice(name="g")),
        Request(model="m", tools=(function_tool("1f"),)),
        Request(model="m", tools=(function_tool("x" * 65),)),
        Request(model="gemini-2.5-pro", tools=(function_tool("f"),), text=FORMAT),
        Request(model="m", previous_response_id="resp_1"),
        decode_request(b'{"model":"m","conversation":"conv_1"}'),
        Request(),
    ],
)
def test_what_the_api_cannot_do_is_refused_before_anything_is_sent(settings: Request) -> None:
    with pytest.raises(ConfigError):
        request_body(asked(user("q"), settings=settings))


SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "n": {"type": "string", "pattern": "a+", "description": "A name"},
        "k": {"const": 1},
        "m": {"allOf": [{"$ref": "#/$defs/M"}]},
        "free": True,
    },
    "$defs": {"M": {"type": "object", "additionalProperties": {"type": "integer"}}},
    "$schema": "x",
}


def test_schemas_say_what_the_api_does_not_take() -> None:
    tool = function_tool("f", parameters=SCHEMA)
    settings = Request(model="m", tools=(tool,), text=TextConfig(format=json_schema("t", SCHEMA)))
    made = body(user("q"), settings=settings)
    wanted = {
        "type": "object",
        "properties": {
            "n": {"type": "string", "description": 'A name\n\n{pattern: "a+"}'},
            "k": {"enum": [1]},
            "m": {"$ref": "#/$defs/M"},
            "free": True,
        },
        "$defs": {"M": {"type": "object", "additionalProperties": {"type": "integer"}}},
    }
    assert made["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == wanted
    assert made["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": wanted,
    }
    assert lost(user("q"), settings=settings) == [
        ("tools[0].parameters.properties.n.pattern", "pattern"),
        ("text.format.schema.properties.n.pattern", "pattern"),
    ]


def test_json_without_a_schema() -> None:
    settings = Request(model="m", text=TextConfig(format=JsonObjectFormat()))
    made = body(user("q"), settings=settings)["generationConfig"]
    assert made == {"responseMimeType": "application/json"}


def test_tools_of_the_api_are_named_by_their_type() -> None:
    tools = (
        UnknownTool(
            type="gemini:googleSearch", source=Source(b'{"type":"gemini:googleSearch","x":1}')
        ),
        UnknownTool(type="web_search", source=Source(b'{"type":"web_search"}')),
        function_tool("f"),
    )
    settings = Request(model="m", tools=tools)
    made = body(user("q"), settings=settings)["tools"]
    assert made[0] == {"googleSearch": {"x": 1}}
    assert [one["name"] for one in made[1]["functionDeclarations"]] == ["f"]
    assert lost(user("q"), settings=settings) == [("tools[1]", "web_search")]


def thinking(model: str, effort: str | None, summary: str | None = None) -> Request:
    return Request(model=model, reasoning=ReasoningConfig(effort=effort, summary=summary))


@pytest.mark.parametrize(
    ("settings", "wanted", "told"),
    [
        (thinking("gemini-3-pro-preview", "low"), {"thinkingLevel": "low"}, False),
        (thinking("gemini-3-pro-preview", "minimal"), {"thinkingLevel": "low"}, True),
        (thinking("gemini-3-flash", "none"), {"thinkingLevel": "minimal"}, True),
        (
            thinking("gemini-3-flash", "high", "auto"),
            {"thinkingLevel": "high", "includeThoughts": True},
            False,
        ),
        (thinking("gemini-2.5-flash", "none"), {"thinkingBudget": 0}, False),
        (thinking("gemini-2.5-pro", "none"), {"thinkingBudget": 128}, True),
        (thinking("gemini-2.5-flash", "medium"), {"thinkingBudget": 8192}, False),
        (thinking("gemini-2.0-flash", "low"), None, True),
    ],
)
def test_effort_is_a_level_or_a_budget(settings: Request, wanted: object, *, told: bool) -> None:
    made = body(user("q"), settings=settings)
    assert made.get("generationConfig", {}).get("thinkingConfig") == wanted
    assert bool(lost(user("q"), settings=settings)) == told


def test_settings_that_the_api_has_are_sent() -> None:
    settings = with_unknown(
        Request(
            model="m",
            max_output_tokens=10,
            temperature=0,
            top_p=0.5,
            presence_penalty=1,
            frequency_penalty=2,
            top_logprobs=3,
        ),
        {
            "stop": "x",
            "top_k": 5,
            "seed": 7,
            "safetySettings": [{"category": "c"}],
            "perdure:gemini": {"generationConfig": {"topK": 6, "mediaResolution": "LOW"}},
        },
    )
    made = body(user("q"), settings=settings)
    assert made["generationConfig"] == {
        "maxOutputTokens": 10,
        "temperature": 0,
        "topP": 0.5,
        "presencePenalty": 1,
        "frequencyPenalty": 2,
        "responseLogprobs": True,
        "logprobs": 3,
        "stopSequences": ["x"],
        "topK": 6,
        "seed": 7,
        "mediaResolution": "LOW",
    }
    assert made["safetySettings"] == [{"category": "c"}]
    assert lost(user("q"), settings=settings) == []


def test_settings_that_the_api_has_not_are_lost() -> None:
    settings = with_unknown(
        Request(
            model="m",
            parallel_tool_calls=False,
            truncation="auto",
            metadata={"a": "b"},
            text=TextConfig(verbosity="low"),
            include=("message.output_text.logprobs",),
            prompt_cache_key="k",
            service_tier="flex",
        ),
        {"cache_control": {}},
    )
    assert lost(user("q"), settings=settings) == [
        ("parallel_tool_calls",) * 2,
        ("text.verbosity", "verbosity"),
        ("prompt_cache_key",) * 2,
        ("service_tier",) * 2,
        ("truncation",) * 2,
        ("include[0]", "message.output_text.logprobs"),
        ("metadata.a", "a"),
        ("cache_control",) * 2,
    ]


@pytest.mark.parametrize(
    ("model", "stream", "wanted"),
    [
        ("gemini-3", True, "/models/gemini-3:streamGenerateContent?alt=sse"),
        ("gemini-3", False, "/models/gemini-3:generateContent"),
        ("tunedModels/mine", False, "/tunedModels/mine:generateContent"),
        ("a b?c", False, "/models/a%20b%3Fc:generateContent"),
    ],
)
def test_the_address_names_the_model(model: str, wanted: str, *, stream: bool) -> None:
    assert path_of(model, stream=stream) == wanted


# --- bytes that are made once ------------------------------------------------------------------

LONG: list[Item] = [
    system("s"),
    user("a"),
    call("c1"),
    call("c2"),
    output("c2"),
    user("steer"),
    output("c1"),
    assistant("b"),
    thought("foreign", "sig", "anthropic"),
    user("c"),
    system("later"),
    call("c1"),
    output("c1"),
    call("c3", "sig"),
    output("c3"),
    call("c4"),
    output("c4"),
]


@pytest.mark.parametrize("settings", [NEW, OLD])
def test_bytes_and_losses_depend_on_nothing_but_the_request(settings: Request) -> None:
    for seen in range(len(LONG) + 1):
        memo = Transcript(LONG).snapshot().memo
        request_body(ModelRequest(settings=settings, input=Items(LONG, seen, memo)))
        for length in range(len(LONG) + 1):
            request = ModelRequest(settings=settings, input=Items(LONG, length, memo))
            fresh = asked(*LONG[:length], settings=settings)
            made, again = request_body(request), request_body(fresh)
            assert b"".join(made.fragments) == b"".join(again.fragments)
            assert made.length == len(b"".join(made.fragments))
            assert losses(request) == losses(fresh)

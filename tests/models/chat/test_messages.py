"""Transcripts as messages: groups, pairing, thoughts, parts, and the legality of it all."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings as settings_of, strategies as st

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items, Transcript
from perdure.models.chat import losses, request_body
from perdure.models.dialects import (
    CEREBRAS,
    DEEPSEEK,
    DIALECTS,
    GEMINI,
    GENERIC,
    GROQ,
    LMSTUDIO,
    MISTRAL,
    OPENAI,
    OPENROUTER,
    VLLM,
    XAI,
    ZAI,
    Dialect,
)
from perdure.models.mapping.forms import NO_OUTPUT
from perdure.wire import (
    ABSENT,
    Compaction,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    Refusal,
    Request,
    Source,
    SummaryText,
    UnknownItem,
    UnknownPart,
    UrlCitation,
    assistant,
    developer,
    function_call,
    function_call_output,
    system,
    user,
    with_unknown,
)
from tests.models.legal import check_chat

U = user("hi")
PNG = "data:image/png;base64,iVBORw0KGgo="


def request(*items: Item, model: str = "m", instructions: str = "") -> ModelRequest:
    told = instructions or ABSENT
    return ModelRequest(settings=Request(model=model, instructions=told), input=Items.of(items))


def sent(*items: Item, dialect: Dialect = OPENAI, model: str = "m") -> list[dict[str, Any]]:
    body: Any = request_body(request(*items, model=model), dialect=dialect).value()
    return body["messages"]  # type: ignore[no-any-return]


def lost(*items: Item, dialect: Dialect = OPENAI) -> list[tuple[str, str]]:
    return [(loss.at, loss.what) for loss in losses(request(*items), dialect=dialect)]


def shape(messages: list[dict[str, Any]]) -> str:
    """The roles, each by its letter; an assistant's with the number of its calls."""
    return " ".join(
        m["role"][0] + str(len(m.get("tool_calls", ()))) * ("tool_calls" in m) for m in messages
    )


def thought(text: str = "I think", maker: str = "", own: Any = None, **members: Any) -> Reasoning:
    item = Reasoning(summary=(), content=(ReasoningText(text=text),), **members)
    marks = {"perdure:provider": maker, f"perdure:{maker}": own} if maker else {}
    return with_unknown(item, {name: mark for name, mark in marks.items() if mark is not None})


# --- pairing ----------------------------------------------------------------------------

A, B = function_call("a", "f", '{"x":1}'), function_call("b", "g", "{}")
OA, OB = function_call_output("a", "1"), function_call_output("b", "2")


def contents(messages: list[dict[str, Any]]) -> list[Any]:
    return [m["content"] for m in messages if m["role"] == "tool"]


def test_parallel_calls_are_one_message_and_their_outputs_follow_in_their_order() -> None:
    messages = sent(U, assistant("so"), A, B, OB, OA)
    assert shape(messages) == "u a2 t t"
    assert messages[1] == {
        "role": "assistant",
        "content": "so",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert [m["tool_call_id"] for m in messages[2:]] == ["a", "b"]
    assert contents(messages) == ["1", "2"]


def test_calls_that_were_answered_one_by_one_are_messages_of_their_own() -> None:
    assert shape(sent(U, A, OA, B, OB)) == "u a1 t a1 t"


def test_a_text_between_calls_that_wait_joins_their_message() -> None:
    assert shape(sent(U, A, assistant("so"), B, OA, OB)) == "u a2 t t"
    assert shape(sent(U, assistant("one"), assistant("two"), A, OA)) == "u a a1 t"


def test_an_output_that_comes_late_stands_beside_its_call() -> None:
    messages = sent(U, A, B, OA, user("wait"), system("note"), OB, user("on"))
    assert shape(messages) == "u a2 t t u s u"
    assert contents(messages) == ["1", "2"]
    assert lost(U, A, B, OA, user("wait"), OB) == []


def test_a_call_without_an_output_gets_one_that_says_so() -> None:
    messages = sent(U, A, B, OB, user("on"))
    assert contents(messages) == [NO_OUTPUT, "2"]
    assert lost(U, A, B, OB, user("on")) == [("input[1]", "function_call")]


def test_outputs_too_many_and_of_no_call_are_left_out_and_said_to_be() -> None:
    again = function_call_output("a", "again")
    stray = function_call_output("z", "?")
    messages = sent(stray, U, A, OA, again, user("on"), again)
    assert shape(messages) == "u a1 t u"
    assert contents(messages) == ["1"]
    assert lost(stray, U, A, OA, again, user("on"), again) == [
        ("input[0]", "function_call_output"),
        ("input[4]", "function_call_output"),
        ("input[6]", "function_call_output"),
    ]


def test_a_call_id_that_comes_again_belongs_to_the_call_before_its_output() -> None:
    later = function_call_output("a", "later")
    assert contents(sent(U, A, OA, user("more"), A, later)) == ["1", "later"]
    assert contents(sent(U, A, user("more"), A, later)) == [NO_OUTPUT, "later"]


def test_one_call_id_twice_in_a_message_is_one_call() -> None:
    assert shape(sent(U, A, A, OA)) == "u a1 t"
    assert lost(U, A, A, OA) == [("input[2]", "function_call")]


def test_an_empty_output_keeps_its_place_and_nothing_empty_is_made_up() -> None:
    messages = sent(U, A, function_call_output("a", ""))
    assert messages[1]["content"] is None
    assert messages[2]["content"] == ""
    assert sent(U, A, function_call_output("a", ()))[2]["content"] == ""
    assert shape(sent(user(""), assistant(""), U)) == "u"


@pytest.mark.parametrize("arguments", ["", "  "])
def test_empty_arguments_are_sent_as_an_empty_object(arguments: str) -> None:
    call = sent(U, function_call("a", "f", arguments), OA, dialect=GROQ)[1]["tool_calls"][0]
    assert call["function"]["arguments"] == "{}"


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", '"x"', "null"])
def test_arguments_that_are_no_object_go_as_they_are_to_who_takes_any_text(arguments: str) -> None:
    made = function_call("a", "f", arguments)
    assert sent(U, made, OA)[1]["tool_calls"][0]["function"]["arguments"] == arguments
    wrapped = sent(U, made, OA, dialect=VLLM)[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(wrapped) == {"arguments": arguments}
    assert lost(U, made, OA, dialect=VLLM) == [("input[1].arguments", "arguments")]


# --- ids and names ------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_ids_are_such_that_the_service_takes_them(dialect: Dialect) -> None:
    for call_id in ("a", "call_" + "x" * 150, "with space", "Qä", "toolu_01:x"):
        items = (U, function_call(call_id, "f", "{}"), function_call_output(call_id, "1"))
        messages = sent(*items, dialect=dialect)
        made = messages[1]["tool_calls"][0]["id"]
        assert re.fullmatch(dialect.call_ids, made)
        assert messages[2]["tool_call_id"] == made
        assert sent(*items, dialect=dialect) == messages
        assert (made == call_id) == bool(re.fullmatch(dialect.call_ids, call_id))


def test_ids_made_for_mistral_differ() -> None:
    ids = [f"call_{number}" for number in range(2000)]
    items = [
        i for one in ids for i in (function_call(one, "f", "{}"), function_call_output(one, ""))
    ]
    made = [m["tool_call_id"] for m in sent(*items, dialect=MISTRAL) if m["role"] == "tool"]
    assert len(set(made)) == len(ids)


def test_a_name_of_a_call_elsewhere_is_made_legal() -> None:
    call = function_call("a", "files.read:all", "{}")
    assert sent(U, call, OA)[1]["tool_calls"][0]["function"]["name"] == "files_read_all"
    assert lost(U, call, OA)[0][0] == "input[1].name"


# --- system and users ----------------------------------------------------------------------


def test_system_text_stands_where_it_was_said_under_the_roles_there_are() -> None:
    items = (system("one"), developer("two"), U, assistant("a"), system("three"), U)
    assert [m["role"] for m in sent(*items)] == [
        "system",
        "developer",
        "user",
        "assistant",
        "system",
        "user",
    ]
    assert shape(sent(*items, dialect=GROQ)) == "s s u a s u"


@pytest.mark.parametrize("dialect", [VLLM, LMSTUDIO, MISTRAL])
def test_system_text_is_one_message_and_the_first_where_it_has_to_be(dialect: Dialect) -> None:
    told = request(U, assistant("a"), system("one"), developer("two"), U, instructions="zero")
    body: Any = request_body(told, dialect=dialect).value()
    assert body["messages"][0] == {"role": "system", "content": "zero\n\none\n\ntwo"}
    assert shape(body["messages"]) == "s u a u"


def test_instructions_are_the_first_message() -> None:
    body: Any = request_body(request(U, instructions="Be brief.")).value()
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    empty: Any = request_body(request(instructions="Be brief.")).value()
    assert shape(empty["messages"]) == "s"
    assert sent() == []


def test_users_who_speak_in_a_row_are_one_where_they_have_to_be() -> None:
    items = (
        user("one"),
        user("two"),
        assistant("a"),
        assistant("b"),
        user([InputImage(image_url=PNG)]),
    )
    assert shape(sent(*items)) == "u u a a u"
    messages = sent(*items, dialect=VLLM)
    assert shape(messages) == "u a u"
    assert [m["content"] for m in messages[:2]] == ["one\n\ntwo", "a\n\nb"]
    mixed = sent(user("one"), user([InputImage(image_url=PNG)]), dialect=VLLM)
    assert [part["type"] for part in mixed[0]["content"]] == ["text", "image_url"]
    between = (user("one"), function_call_output("z", "?"), system("s"), user("two"))
    assert shape(sent(*between, dialect=VLLM)) == "s u"


def test_between_a_result_and_a_user_mistral_lets_the_assistant_speak() -> None:
    messages = sent(U, A, OA, user("on"), dialect=MISTRAL)
    assert shape(messages) == "u a1 t a u"
    assert messages[3] == {"role": "assistant", "content": "OK"}
    assert shape(sent(U, A, OA, assistant("so"), user("on"), dialect=MISTRAL)) == "u a1 t a u"


# --- parts -------------------------------------------------------------------------------------

PDF = "data:application/pdf;base64,JVBERi0="
AUDIO = UnknownPart(
    type="input_audio",
    source=Source(b'{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}'),
)


def parts(*given: Any, dialect: Dialect = OPENAI) -> Any:
    """What a user's parts become, beside a text."""
    content = sent(user([InputText(text="see"), *given]), dialect=dialect)[0]["content"]
    return content[1:] if isinstance(content, list) else []


def test_images_go_by_their_url_with_their_detail() -> None:
    assert parts(
        InputImage(image_url=PNG, detail="auto"), InputImage(image_url=PNG, detail="low")
    ) == [
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
    ]


@pytest.mark.parametrize(
    ("dialect", "part", "made"),
    [
        (
            OPENAI,
            InputFile(filename="a.pdf", file_data=PDF),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
        ),
        (
            OPENAI,
            InputFile(filename="a.pdf", file_data="JVBERi0="),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
        ),
        (OPENAI, InputFile(file_id="file-1"), {"type": "file", "file": {"file_id": "file-1"}}),
        (
            OPENROUTER,
            InputFile(filename="a.pdf", file_url="https://x/a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "https://x/a.pdf"}},
        ),
        (
            MISTRAL,
            InputFile(filename="a.pdf", file_url="https://x/a.pdf"),
            {"type": "document_url", "document_url": "https://x/a.pdf", "document_name": "a.pdf"},
        ),
        (MISTRAL, InputFile(file_data=PDF), {"type": "document_url", "document_url": PDF}),
        (MISTRAL, InputFile(file_id="f1"), {"type": "file", "file_id": "f1"}),
        (
            GROQ,
            InputFile(filename="a.png", file_url="https://x/a.png"),
            {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
        ),
        (
            OPENAI,
            AUDIO,
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        ),
        (MISTRAL, AUDIO, {"type": "input_audio", "input_audio": "AA=="}),
        (
            OPENAI,
            InputFile(filename="a.mp3", file_data="data:audio/mpeg;base64,AA=="),
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
        ),
        (
            OPENROUTER,
            InputVideo(video_url="https://x/v.mp4"),
            {"type": "video_url", "video_url": {"url": "https://x/v.mp4"}},
        ),
    ],
)
def test_media_go_in_the_form_that_the_service_takes(
    dialect: Dialect, part: Any, made: dict[str, Any]
) -> None:
    assert parts(part, dialect=dialect) == [made]
    assert lost(user([part]), dialect=dialect) == []


@pytest.mark.parametrize(
    ("dialect", "part"),
    [
        (OPENAI, InputImage(file_id="file-1")),
        (DEEPSEEK, InputImage(image_url=PNG)),
        (OPENAI, InputFile(file_url="https://x/a.pdf")),
        (OPENROUTER, InputFile(file_id="file-1")),
        (GROQ, InputFile(filename="a.pdf", file_data=PDF)),
        (OPENAI, InputVideo(video_url="https://x/v.mp4")),
        (GROQ, AUDIO),
        (OPENAI, UnknownPart(type="acme:x", source=Source(b'{"type":"acme:x"}'))),
        (MISTRAL, InputFile()),
    ],
)
def test_media_that_a_service_takes_not_are_left_out_and_said_to_be(
    dialect: Dialect, part: Any
) -> None:
    assert parts(part, dialect=dialect) == []
    found = losses(request(user([InputText(text="see"), part])), dialect=dialect)
    assert [(loss.at, loss.what) for loss in found] == [("input[0].content[1]", part.type)]
    assert found[0].reason


def test_a_text_file_is_text_where_files_are_none() -> None:
    part = InputFile(filename="a.txt", file_data="data:text/plain;base64,aGk=")
    for dialect in (OPENAI, GROQ):
        text = parts(part, dialect=dialect)[0]["text"]
        assert "hi" in text
        assert "a.txt" in text
    assert lost(user([part]), dialect=GROQ) == [("input[0].content[0]", "input_file")]


def test_what_a_tool_shows_goes_into_a_user_message_after_its_output() -> None:
    shown = function_call_output("a", (InputText(text="look"), InputImage(image_url=PNG)))
    messages = sent(U, A, B, shown, OB)
    assert shape(messages) == "u a2 t t u"
    assert [part["text"] for part in messages[2]["content"]] == ["look", "See attachment a#1."]
    assert messages[4]["content"] == [
        {"type": "text", "text": "Attachment a#1:"},
        {"type": "image_url", "image_url": {"url": PNG}},
    ]
    assert lost(U, A, shown) == [("input[2].output[1]", "input_image")]
    joined = sent(U, A, shown, dialect=GENERIC)[2]["content"]
    assert joined == "look\nSee attachment a#1."
    assert shape(sent(U, A, shown, user("on"), dialect=MISTRAL)) == "u a1 t a u u"


def test_what_a_tool_shows_joins_what_the_user_says_next_where_it_has_to() -> None:
    shown = function_call_output("a", (InputImage(image_url=PNG),))
    assert shape(sent(U, A, shown, dialect=VLLM)) == "u a1 t u"
    messages = sent(U, A, shown, user("on"), dialect=VLLM)
    assert shape(messages) == "u a1 t u"
    assert messages[3]["content"][-1] == {"type": "text", "text": "on"}
    assert shape(sent(U, A, shown, assistant("so"), user("on"), dialect=VLLM)) == "u a1 t u a u"


def test_members_of_a_services_own_stay_on_its_parts_and_are_lost_elsewhere() -> None:
    cached = with_unknown(InputText(text="hi"), {"cache_control": {"type": "ephemeral"}})
    content = sent(user([cached]), dialect=OPENROUTER)[0]["content"]
    assert content == [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    assert sent(user([cached]))[0]["content"] == "hi"
    assert lost(user([cached])) == [("input[0].content[0].cache_control", "cache_control")]


def test_what_an_assistant_says_beside_text() -> None:
    refusal = Message(role="assistant", content=(Refusal(refusal="no"),))
    assert sent(U, refusal)[1] == {"role": "assistant", "content": None, "refusal": "no"}
    assert sent(U, refusal, dialect=GROQ)[1] == {"role": "assistant", "content": "no"}
    cited = UrlCitation(url="https://x", title="X", start_index=0, end_index=1)
    message = Message(
        role="assistant", content=(OutputText(text="a", annotations=(cited,)),), phase="commentary"
    )
    assert lost(U, message) == [
        ("input[1].phase", "phase"),
        ("input[1].content[0].annotations[0]", "url_citation"),
    ]
    flat = {"url": "https://x", "title": "X", "start_index": 0, "end_index": 1}
    assert sent(U, message, dialect=OPENROUTER)[1]["annotations"] == [
        {"type": "url_citation", "url_citation": flat}
    ]


def test_what_only_its_maker_can_read_is_left_out_and_breaks_no_message() -> None:
    hosted = UnknownItem(type="web_search_call", source=Source(b'{"type":"web_search_call"}'))
    folded = Compaction(encrypted_content="x")
    assert shape(sent(folded, U, assistant("a"), hosted, A, OA)) == "u a1 t"
    assert lost(folded, U, assistant("a"), hosted, A, OA) == [
        ("input[0]", "compaction"),
        ("input[3]", "web_search_call"),
    ]
    assert lost(U, Message(role="narrator", content="x")) == [("input[1]", "message")]


def test_lone_halves_of_characters_are_sent_as_replacements() -> None:
    assert sent(user("a\ud83d"))[0]["content"] == "a\ufffd"


# --- thoughts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "member"),
    [
        (DEEPSEEK, "reasoning_content"),
        (ZAI, "reasoning_content"),
        (GENERIC, "reasoning_content"),
        (GROQ, "reasoning"),
        (CEREBRAS, "reasoning"),
        (VLLM, "reasoning"),
        (OPENROUTER, "reasoning"),
    ],
)
def test_thoughts_go_back_in_the_member_that_the_service_reads(
    dialect: Dialect, member: str
) -> None:
    for item in (thought(maker=dialect.name), thought()):
        message = sent(U, item, assistant("a"), dialect=dialect)[1]
        assert message == {"role": "assistant", "content": "a", member: "I think"}
        assert lost(U, item, assistant("a"), dialect=dialect) == []


def test_thoughts_go_back_in_the_member_they_came_in() -> None:
    item = thought(maker="chat", own={"field": "reasoning"})
    message = sent(U, item, A, OA, dialect=GENERIC)[1]
    assert message["reasoning"] == "I think"
    assert "reasoning_content" not in message


def test_thoughts_between_tags_go_back_between_tags() -> None:
    item = thought(text="I\n", maker="lmstudio", own={"inline": "\n<think>"})
    message = sent(U, item, assistant("\n\na"), dialect=LMSTUDIO)[1]
    assert message["content"] == "\n<think>I\n</think>\n\na"
    glm = thought(maker="cerebras")
    told = sent(U, glm, assistant("a"), dialect=CEREBRAS, model="zai-glm-4.7")[1]
    assert told == {"role": "assistant", "content": "<think>\nI think\n</think>\n\na"}


def test_thoughts_of_mistral_are_parts_among_the_texts() -> None:
    one, two = thought("one", "mistral"), thought("two", "mistral")
    message = sent(
        U, one, two, assistant("a"), thought("three", "mistral"), A, OA, dialect=MISTRAL
    )[1]
    assert [part["type"] for part in message["content"]] == ["thinking", "text", "thinking"]
    assert [part["text"] for part in message["content"][0]["thinking"]] == ["one", "two"]


def test_deepseek_gets_an_empty_thought_with_calls_that_nobody_thought_about() -> None:
    assert sent(U, A, OA, dialect=DEEPSEEK)[1]["reasoning_content"] == ""
    assert "reasoning_content" not in sent(U, assistant("a"), dialect=DEEPSEEK)[1]


def test_google_gets_its_signature_back_or_word_that_there_is_none() -> None:
    signed = with_unknown(A, {"perdure:provider": "gemini", "perdure:thought_signature": "sig"})
    calls = sent(U, signed, B, OA, OB, dialect=GEMINI)[1]["tool_calls"]
    assert calls[0]["extra_content"] == {"google": {"thought_signature": "sig"}}
    assert "extra_content" not in calls[1]
    foreign = sent(U, A, B, OA, OB, dialect=GEMINI)[1]["tool_calls"]
    skipped = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert foreign[0]["extra_content"] == skipped
    assert "extra_content" not in foreign[1]
    assert "extra_content" not in sent(U, signed, OA, dialect=GROQ)[1]["tool_calls"][0]
    assert lost(U, signed, OA, dialect=GROQ) == [
        ("input[1].perdure:thought_signature", "perdure:thought_signature")
    ]


@pytest.mark.parametrize(
    ("item", "dialect"),
    [
        (thought(maker="anthropic", encrypted_content="sig"), OPENROUTER),
        (thought(maker="deepseek"), ZAI),
        (Reasoning(summary=(SummaryText(text="s"),), encrypted_content="abc"), OPENROUTER),
        (thought(), OPENAI),
        (thought(maker="xai"), XAI),
    ],
)
def test_thoughts_for_somebody_else_are_left_out_and_said_to_be(
    item: Reasoning, dialect: Dialect
) -> None:
    messages = sent(U, item, assistant("a"), dialect=dialect)
    assert messages[1] == {"role": "assistant", "content": "a"}
    assert lost(U, item, assistant("a"), dialect=dialect) == [("input[1]", "reasoning")]


def test_a_thought_alone_that_nobody_gets_gives_no_message() -> None:
    assert shape(sent(U, thought(), U)) == "u u"
    assert shape(sent(U, Reasoning(summary=()), U, dialect=GROQ)) == "u u"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_what_the_system_says_between_users_ends_what_they_say_together(dialect: Dialect) -> None:
    found = sent(U, system("s"), U, system("t"), dialect=dialect)
    assert shape(found) in {"s u", "s u u", "u s u s"}
    assert [text in str(found) for text in ("s", "t")] == [True, True]


# --- what is settled is mapped once --------------------------------------------------------------

_CALLS = st.sampled_from(["a", "b", "c"])
_ITEMS = st.one_of(
    st.sampled_from([U, user(""), assistant("so"), assistant(""), system("s"), developer("d")]),
    st.sampled_from(
        [thought(maker="groq"), thought(), Reasoning(summary=(), encrypted_content="x")]
    ),
    st.builds(function_call, _CALLS, st.just("f"), st.sampled_from(["{}", "", "[1]"])),
    st.builds(
        function_call_output,
        _CALLS,
        st.sampled_from(["1", "", (InputText(text="t"), InputImage(image_url=PNG))]),
    ),
    st.just(Compaction(encrypted_content="x")),
)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
@settings_of(max_examples=15)
@given(data=st.data(), items=st.lists(_ITEMS, max_size=14))
def test_a_transcript_that_grows_gives_what_it_gives_at_once(
    dialect: Dialect, data: st.DataObject, items: list[Item]
) -> None:
    transcript = Transcript()
    for item in items:
        transcript.append(item)
        if data.draw(st.booleans()):
            request_body(_with(transcript.snapshot()), dialect=dialect)
    memo = transcript.snapshot().memo
    lengths = data.draw(st.permutations(range(len(items) + 1)))
    for length in [len(items), *lengths[:4]]:
        told = _with(Items(items, length, memo))
        fresh = _with(Items.of(items[:length]))
        body, once = (request_body(one, dialect=dialect) for one in (told, fresh))
        assert b"".join(body.fragments) == b"".join(once.fragments)
        assert body.length == len(b"".join(body.fragments))
        assert losses(told, dialect=dialect) == losses(fresh, dialect=dialect)
        check_chat(body.value(), dialect)


def _with(items: Items) -> ModelRequest:
    return ModelRequest(settings=Request(model="m", instructions="Be brief."), input=items)


def test_the_fragments_of_a_turn_are_those_of_the_turn_before_and_the_new_ones() -> None:
    transcript = Transcript([U])
    before: list[bytes] = []
    for turn in range(20):
        for item in (assistant("so"), function_call(f"c{turn}", "f", "{}")):
            transcript.append(item)
        transcript.append(function_call_output(f"c{turn}", "1"))
        fragments = request_body(_with(transcript.snapshot())).fragments
        assert len(fragments) == turn + 4  # the head, the user, a group for each turn, the tail
        settled = before[:-2]
        assert all(one is other for one, other in zip(settled, fragments, strict=False))
        before = fragments


def test_two_dialects_do_not_mix_in_one_transcript() -> None:
    transcript = Transcript([U, thought(), assistant("a"), U])
    told = _with(transcript.snapshot())
    for dialect in (*DIALECTS, *DIALECTS):
        body = request_body(told, dialect=dialect).value()
        assert body == request_body(_with(Items.of(list(told.input))), dialect=dialect).value()

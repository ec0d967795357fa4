"""What a history is in Claude messages, kind by kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure import wire
from perdure.errors import DecodeError
from perdure.formats import (
    claude_request,
    from_claude_messages,
    is_claude_style,
    to_claude_message,
    to_claude_messages,
    unsupported_content,
)
from perdure.formats.values import plain, same
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.anthropic import losses, request_body
from perdure.wire import (
    InputFile,
    InputImage,
    Item,
    OutputText,
    Reasoning,
    Refusal,
    Request,
    Response,
    SummaryText,
    UrlCitation,
    Usage,
    decode_items,
    user,
    with_unknown,
)

PNG = "data:image/png;base64,iVBORw0KGgo="

# --- items, and the messages that say the same without anything beside them --------------

SAME: list[tuple[str, list[Item], list[dict[str, Any]]]] = [
    (
        "what the user says",
        [wire.user("hi"), wire.user("again")],
        [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "user", "content": [{"type": "text", "text": "again"}]},
        ],
    ),
    (
        "an image beside a text",
        [wire.user([wire.input_text("look"), wire.input_image(PNG)])],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/png",
                            "data": "iVBORw0KGgo=",
                        },
                    },
                ],
            }
        ],
    ),
    (
        "files: by URL, with data, and text",
        [
            wire.user(
                [
                    wire.input_file(file_url="https://x.test/a.pdf"),
                    wire.input_file(filename="a", file_data="data:application/pdf;base64,JVBE"),
                    wire.input_file(file_data="data:text/plain;base64,aMOpIQ=="),
                ]
            )
        ],
        [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "url", "url": "https://x.test/a.pdf"},
                    },
                    {
                        "type": "document",
                        "source": {
                            "type": "base64",
                            "media_type": "application/pdf",
                            "data": "JVBE",
                        },
                        "title": "a",
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "hé!"},
                    },
                ],
            }
        ],
    ),
    (
        "thoughts, words and parallel calls in their order, results in one message",
        [
            with_unknown(
                wire.reasoning("Add.", encrypted_content="sig"), {"perdure:provider": "anthropic"}
            ),
            wire.assistant("First"),
            wire.function_call("c1", "add", '{"a":1}'),
            wire.assistant("then"),
            wire.function_call("c2", "add", "{}"),
            wire.function_call_output("c1", "Error: no"),
            wire.function_call_output("c2", [wire.input_image(PNG)]),
            wire.user("go on"),
        ],
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Add.", "signature": "sig"},
                    {"type": "text", "text": "First"},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                    {"type": "text", "text": "then"},
                    {"type": "tool_use", "id": "c2", "name": "add", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": "Error: no",
                        "is_error": True,
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": [
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/png",
                                    "data": "iVBORw0KGgo=",
                                },
                            }
                        ],
                    },
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    ),
    (
        "an empty result is a result",
        [wire.function_call("c", "f"), wire.function_call_output("c", "")],
        [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": ""}],
            },
        ],
    ),
    (
        "arguments that are no object",
        [wire.function_call("c", "f", '{"a":')],
        [
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "c",
                        "name": "f",
                        "input": {"_raw_arguments": '{"a":'},
                    }
                ],
            }
        ],
    ),
]


@pytest.mark.parametrize(("items", "messages"), [row[1:] for row in SAME], ids=[r[0] for r in SAME])
def test_items_are_messages_that_say_the_same(
    items: list[Item], messages: list[dict[str, Any]]
) -> None:
    assert to_claude_messages(items) == messages
    assert list(from_claude_messages(messages)) == items


# --- messages whose form is kept in marks -------------------------------------------------

FORMS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    (
        "a breakpoint of the cache",
        [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
        [{"type": "input_text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    ),
    (
        "an error that does not say so",
        [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}],
        [
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": "no",
                "perdure:anthropic": {"is_error": True},
            }
        ],
    ),
    (
        "what looks like an error and is none",
        [{"type": "tool_result", "tool_use_id": "c", "content": "Error: 0"}],
        [
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": "Error: 0",
                "perdure:claude": {"without": ["is_error"]},
            }
        ],
    ),
    (
        "a document with members of its own",
        [{"type": "document", "source": {"type": "file", "file_id": "f"}, "context": "old"}],
        [{"type": "input_file", "file_id": "f", "perdure:anthropic": {"context": "old"}}],
    ),
    (
        "a block of a type nobody registered",
        [{"type": "search_result", "title": "t"}],
        [{"type": "anthropic:search_result", "block": {"type": "search_result", "title": "t"}}],
    ),
]


@pytest.mark.parametrize(("content", "values"), [r[1:] for r in FORMS], ids=[r[0] for r in FORMS])
def test_the_form_of_a_block_is_kept(
    content: list[dict[str, Any]], values: list[dict[str, Any]]
) -> None:
    messages = [{"role": "user", "content": content}]
    items = from_claude_messages(messages)
    found = plain(items)
    shown = found if found[0]["type"] == "function_call_output" else found[0]["content"]
    assert shown == values
    assert to_claude_messages(items) == messages


def test_thoughts_of_an_answer_keep_their_signatures() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "sealed"},
        {"type": "thinking", "thinking": "unsigned", "signature": ""},
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
    ]
    items = from_claude_messages([{"role": "assistant", "content": content}])
    assert plain(items) == [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hm"}],
            "encrypted_content": "s",
            "perdure:provider": "anthropic",
        },
        {
            "type": "reasoning",
            "summary": [],
            "encrypted_content": "sealed",
            "perdure:provider": "anthropic",
            "perdure:redacted": True,
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "unsigned"}]},
        {
            "type": "anthropic:server_tool_use",
            "id": "srv",
            "status": "completed",
            "block": content[3],
        },
    ]


def test_citations_hang_on_their_text() -> None:
    web = {
        "type": "web_search_result_location",
        "url": "https://x.test",
        "title": "X",
        "cited_text": "a",
        "encrypted_index": "e",
    }
    page = {"type": "page_location", "cited_text": "b", "document_index": 0}
    messages = [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "abc", "citations": [web, page]}],
        }
    ]
    items = from_claude_messages(messages)
    assert plain(items)[0]["content"] == [
        {
            "type": "output_text",
            "text": "abc",
            "annotations": [
                {
                    "type": "url_citation",
                    "url": "https://x.test",
                    "title": "X",
                    "start_index": 0,
                    "end_index": 3,
                    "perdure:anthropic": web,
                },
                {"type": "anthropic:page_location", "citation": page},
            ],
        }
    ]
    assert to_claude_messages(items) == messages


def test_two_messages_of_one_role_stay_two() -> None:
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}],
        },
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "user", "content": "plain"},
        {"role": "user", "content": []},
    ]
    assert to_claude_messages(from_claude_messages(messages)) == messages


# --- what Claude cannot express -------------------------------------------------------------


CARRIED: list[tuple[str, Item, list[tuple[str, object, str]]]] = [
    (
        "ids",
        wire.assistant("a", id="m1"),
        [("message", {"id": "m1"}, "Claude gives no ids to items")],
    ),
    (
        "the text of arguments",
        wire.function_call("c", "f", '{ "a": 1.50 }'),
        [("function_call", {"arguments": '{ "a": 1.50 }'}, "the exact text of the arguments")],
    ),
    (
        "refusals",
        wire.assistant([wire.output_text("a"), Refusal(refusal="no")]),
        [("refusal", {"type": "refusal", "refusal": "no"}, "Claude has no refusals")],
    ),
    (
        "the seal of another provider",
        Reasoning(summary=(SummaryText(text="hm"),), encrypted_content="gAAA"),
        [("reasoning", {"encrypted_content": "gAAA"}, "sealed by another provider")],
    ),
    (
        "places of citations",
        wire.assistant(
            OutputText(
                text="abc",
                annotations=(UrlCitation(url="u", title="t", start_index=1, end_index=2),),
            )
        ),
        [("url_citation", {"start_index": 1, "end_index": 2}, "Claude cites a whole text")],
    ),
    (
        "items of other types",
        wire.decode_item('{"type":"web_search_call","id":"ws","action":{"query":"q"}}'),
        [
            (
                "items",
                [{"type": "web_search_call", "id": "ws", "action": {"query": "q"}}],
                "Claude has no such order",
            )
        ],
    ),
]


@pytest.mark.parametrize(("item", "carried"), [r[1:] for r in CARRIED], ids=[r[0] for r in CARRIED])
def test_what_claude_cannot_express_is_carried(
    item: Item, carried: list[tuple[str, object, str]]
) -> None:
    (message,) = to_claude_messages([item])
    assert unsupported_content(message) == carried
    assert from_claude_messages([message]) == (item,)


def test_a_carrier_whose_place_is_gone_is_left_out() -> None:
    (message,) = to_claude_messages([wire.assistant("a", id="m1")])
    message["content"] = []
    message["unsupported_content"][0]["at"] = [3, "content", 7]  # type: ignore[index]
    (item,) = from_claude_messages([message])
    assert plain([item])[0]["content"] == []


def test_what_somebody_else_carries_stays() -> None:
    carried = [{"original_type": "refusal", "data": {"refusal": "no"}, "reason": "r"}, "odd"]
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "a", "unsupported_content": carried}
    ]
    assert to_claude_messages(from_claude_messages(messages)) == messages


# --- requests and answers --------------------------------------------------------------------


def test_a_request_has_its_system_apart_and_no_carriers() -> None:
    items: list[Item] = [
        wire.system("Be brief."),
        wire.developer("Be kind."),
        wire.user("hi"),
        wire.reasoning("unsigned"),
        wire.assistant("hello", id="m1"),
        wire.system("Be quick."),
    ]
    assert claude_request(items) == {
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
            {"role": "system", "content": [{"type": "text", "text": "Be quick."}]},
        ],
    }


def test_the_adapter_sends_what_a_history_had() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "Add."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "s"},
                {"type": "text", "text": "I will.", "cache_control": {"type": "ephemeral"}},
                {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [{"type": "search_result", "title": "t", "source": "s"}],
                    "is_error": True,
                },
                {"type": "text", "text": "Well?"},
            ],
        },
    ]
    items = from_claude_messages(messages, system="Be brief.")
    request = ModelRequest(
        settings=Request(model="claude-sonnet-4-5", max_output_tokens=10), input=Items.of(items)
    )
    sent = json.loads(b"".join(request_body(request).fragments))
    assert sent["messages"] == messages
    assert sent["system"] == [{"type": "text", "text": "Be brief."}]
    assert losses(request) == ()


def answer(*items: Item, **members: Any) -> Response:
    return Response(id="r1", output=items, status="completed", model="m", **members)


def test_an_answer_is_one_message() -> None:
    response = answer(
        wire.assistant("One."),
        wire.assistant("Two."),
        wire.function_call("c", "f"),
        usage=Usage(
            input_tokens=10,
            output_tokens=2,
            total_tokens=12,
            input_tokens_details=wire.InputTokensDetails(cached_tokens=7, cache_creation_tokens=1),
        ),
    )
    message = to_claude_message(response)
    carriers = message.pop("unsupported_content")
    assert message == {
        "id": "r1",
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "text", "text": "One."},
            {"type": "text", "text": "Two."},
            {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        ],
        "model": "m",
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 2,
            "output_tokens": 2,
            "cache_creation_input_tokens": 1,
            "cache_read_input_tokens": 7,
        },
    }
    again = plain(from_claude_messages([{**message, "unsupported_content": carriers}]))
    assert again[0].pop("perdure:claude")
    assert same(again, plain(response.output))


def test_an_answer_of_plain_texts_shows_them_all() -> None:
    said = [wire.Message(role="assistant", content=text) for text in ("One.", "Two.")]
    message = to_claude_message(answer(*said))
    assert message["content"] == [
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two."},
    ]
    again = plain(from_claude_messages([message]))
    assert [one["content"] for one in again] == ["One.", "Two."]


@pytest.mark.parametrize(
    ("status", "reason", "called", "stop"),
    [
        ("completed", "", False, "end_turn"),
        ("completed", "", True, "tool_use"),
        ("incomplete", "max_output_tokens", True, "max_tokens"),
        ("incomplete", "content_filter", False, "refusal"),
        ("incomplete", "odd", False, "end_turn"),
    ],
)
def test_the_reason_to_stop(status: str, reason: str, called: bool, stop: str) -> None:
    items = [wire.function_call("c", "f")] if called else []
    details = wire.IncompleteDetails(reason=reason)
    response = Response(id="r", output=tuple(items), status=status, incomplete_details=details)
    assert to_claude_message(response)["stop_reason"] == stop


# --- what is no message ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        (["hi"], "[0]"),
        ([{"content": "hi"}], "[0]"),
        ([{"role": "user"}], "[0]"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": [{"text": "a"}]}], "[1]"),
        ([{"role": "user", "content": [{"type": "x", "y": float("nan")}]}], "[0].content[0].y"),
        ([{"role": "user", "content": [object()]}], "[0].content[0]"),
        ([{"role": "user", 1: "x", "content": []}], "[0]"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(messages: Any, place: str) -> None:
    with pytest.raises(DecodeError) as raised:
        from_claude_messages(messages)
    assert raised.value.path.startswith(place)


def test_lone_surrogates_and_long_numbers_pass() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "\ud83d"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"n": 2**80}}],
        },
    ]
    items = from_claude_messages(messages)
    assert to_claude_messages(items) == messages
    assert plain(items)[1]["arguments"] == f'{{"n":{2**80}}}'


def test_an_edited_item_is_written_as_edited() -> None:
    items = from_claude_messages(
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a"}]}]
    )
    edited = decode_items(json.dumps([{**plain(items)[0], "output": "b"}]))
    (message,) = to_claude_messages(edited)
    assert message["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": "b"}]


@pytest.mark.parametrize(
    ("messages", "claude"),
    [
        ([{"role": "user", "content": "hi"}], False),
        ([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}], True),
        ([{"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]}], True),
        ([{"role": "user", "content": [{"type": "image", "source": {}}]}], True),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], False),
        ([{"role": "assistant", "content": [{"type": "tool_use"}]}], False),
        (
            [
                {"role": "system", "content": "x"},
                {"role": "user", "content": [{"type": "image", "source": {}}]},
            ],
            False,
        ),
        (
            [{"type": "message", "role": "user", "content": [{"type": "tool_use", "id": "c"}]}],
            False,
        ),
        ("hi", False),
        (None, False),
    ],
)
def test_claude_messages_are_told_by_what_only_they_have(messages: object, claude: bool) -> None:
    assert is_claude_style(messages) is claude


def test_an_image_by_file_id_and_with_detail() -> None:
    items = [wire.user([InputImage(file_id="f"), InputImage(image_url=PNG, detail="low")])]
    (message,) = to_claude_messages(items)
    assert message["content"][0] == {  # type: ignore[index]
        "type": "image",
        "source": {"type": "file", "file_id": "f"},
    }
    assert list(from_claude_messages([message])) == items


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (
            "data:text/plain;charset=utf-8;base64,aGk=",
            {"type": "text", "media_type": "text/plain", "data": "hi"},
        ),
        (
            "data:application/pdf,JVBERi0x",
            {"type": "base64", "media_type": "application/pdf", "data": "SlZCRVJpMHg="},
        ),
    ],
)
def test_a_file_is_shown_however_its_data_url_is_spelled(data: str, source: Any) -> None:
    items = (user([InputFile(file_data=data)]),)
    (message,) = to_claude_messages(items)
    block = message["content"][0]  # type: ignore[index]
    assert block == {"type": "document", "source": source}
    assert from_claude_messages([message]) == items

"""What a history is in Chat messages, kind by kind."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import wire
from perdure.errors import DecodeError
from perdure.formats import (
    from_chat_messages,
    has_unsupported_content,
    scan_unsupported,
    to_chat_message,
    to_chat_messages,
    unsupported_content,
    unsupported_summary,
)
from perdure.formats.values import plain, same
from perdure.wire import Item, OutputText, Reasoning, ReasoningText, Refusal, Response, UrlCitation

PNG = "data:image/png;base64,iVBORw0KGgo="


def call(id_: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


SAME: list[tuple[str, list[Item], list[dict[str, Any]]]] = [
    (
        "texts are strings",
        [wire.system("Be brief."), wire.developer("Be kind."), wire.user("hi")],
        [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "hi"},
        ],
    ),
    (
        "images, files and videos",
        [
            wire.user(
                [
                    wire.input_text("look"),
                    wire.input_image(PNG),
                    wire.input_image("https://x.test/a", detail="low"),
                    wire.input_file(filename="a.pdf", file_data="data:application/pdf;base64,JV"),
                    wire.input_file(file_url="https://x.test/a.pdf"),
                    wire.InputVideo(video_url="https://x.test/a.mp4"),
                ]
            )
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": PNG}},
                    {
                        "type": "image_url",
                        "image_url": {"url": "https://x.test/a", "detail": "low"},
                    },
                    {
                        "type": "file",
                        "file": {
                            "filename": "a.pdf",
                            "file_data": "data:application/pdf;base64,JV",
                        },
                    },
                    {"type": "file", "file": {"file_data": "https://x.test/a.pdf"}},
                    {"type": "video_url", "video_url": {"url": "https://x.test/a.mp4"}},
                ],
            }
        ],
    ),
    (
        "a thought, words and parallel calls are one message, each result one",
        [
            Reasoning(summary=(), content=(ReasoningText(text="Hm."),)),
            wire.assistant("I add."),
            wire.function_call("c1", "add", '{ "a": 1 }'),
            wire.function_call("c2", "add", ""),
            wire.function_call_output("c1", "Error: no"),
            wire.function_call_output("c2", [wire.input_text("see"), wire.input_image(PNG)]),
            wire.assistant("Done."),
        ],
        [
            {
                "role": "assistant",
                "reasoning_content": "Hm.",
                "content": "I add.",
                "tool_calls": [call("c1", "add", '{ "a": 1 }'), call("c2", "add", "")],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "Error: no"},
            {
                "role": "tool",
                "tool_call_id": "c2",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": PNG}},
                ],
            },
            {"role": "assistant", "content": "Done."},
        ],
    ),
    (
        "calls without words",
        [wire.function_call("c", "f"), wire.function_call_output("c", "")],
        [
            {"role": "assistant", "content": None, "tool_calls": [call("c", "f", "{}")]},
            {"role": "tool", "tool_call_id": "c", "content": ""},
        ],
    ),
    (
        "words after a call are a message of their own",
        [wire.function_call("c", "f"), wire.assistant("a"), wire.assistant("b")],
        [
            {"role": "assistant", "content": None, "tool_calls": [call("c", "f", "{}")]},
            {"role": "assistant", "content": "a"},
            {"role": "assistant", "content": "b"},
        ],
    ),
    (
        "a refusal",
        [wire.assistant([Refusal(refusal="no")])],
        [{"role": "assistant", "content": None, "refusal": "no"}],
    ),
    (
        "citations",
        [
            wire.assistant(
                OutputText(
                    text="abc",
                    annotations=(UrlCitation(url="u", title="t", start_index=1, end_index=2),),
                )
            )
        ],
        [
            {
                "role": "assistant",
                "content": "abc",
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {
                            "url": "u",
                            "title": "t",
                            "start_index": 1,
                            "end_index": 2,
                        },
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
    assert to_chat_messages(items) == messages
    assert list(from_chat_messages(messages)) == items


FORMS: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "a content that is a list of one text",
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "a"}],
                "perdure:chat": {"parts": True},
            }
        ],
    ),
    (
        "a breakpoint of the cache",
        {
            "role": "user",
            "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
        },
        [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "a", "cache_control": {"type": "ephemeral"}}
                ],
            }
        ],
    ),
    (
        "a name, a prefix, whatever a service has",
        {"role": "user", "content": "a", "name": "ann"},
        [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "a"}],
                "perdure:chat": {"message": {"name": "ann"}},
            }
        ],
    ),
    (
        "a thought in another member",
        {"role": "assistant", "content": "a", "reasoning": "Hm."},
        [
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
                "perdure:chat": {"field": "reasoning"},
            },
            {
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a", "annotations": []}],
            },
        ],
    ),
    (
        "thoughts in the content, as Mistral has them",
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                {"type": "text", "text": "a"},
            ],
        },
        [
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
                "perdure:chat": {"field": "content"},
            },
            {
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a", "annotations": []}],
            },
        ],
    ),
    (
        "a thought in detail, in the shape of OpenRouter's adapter",
        {
            "role": "assistant",
            "content": None,
            "reasoning_details": [
                {"type": "reasoning.text", "text": "Hm.", "signature": "s", "index": 0},
                {"type": "reasoning.encrypted", "data": "e", "id": None},
            ],
        },
        [
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
                "encrypted_content": "s",
                "perdure:provider": "openrouter",
                "perdure:openrouter": {"type": "reasoning.text", "index": 0},
            },
            {
                "type": "reasoning",
                "summary": [],
                "encrypted_content": "e",
                "perdure:provider": "openrouter",
                "perdure:openrouter": {"type": "reasoning.encrypted", "id": None},
            },
        ],
    ),
    (
        "a call that Google signed, and one of another kind",
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    **call("c", "f", "{}"),
                    "extra_content": {"google": {"thought_signature": "s"}},
                },
                {"id": "d", "type": "custom", "custom": {"name": "x", "input": "y"}},
            ],
        },
        [
            {
                "type": "function_call",
                "call_id": "c",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
                "perdure:thought_signature": "s",
            },
            {
                "type": "chat:custom",
                "status": "completed",
                "call": {"id": "d", "type": "custom", "custom": {"name": "x", "input": "y"}},
            },
        ],
    ),
    (
        "a part of a type nobody registered, and a document of Mistral's",
        {
            "role": "user",
            "content": [
                {"type": "hologram", "x": 1},
                {"type": "document_url", "document_url": "https://x.test/a.pdf"},
            ],
        },
        [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "chat:hologram", "part": {"type": "hologram", "x": 1}},
                    {
                        "type": "input_file",
                        "file_url": "https://x.test/a.pdf",
                        "perdure:chat": {"as": "document_url"},
                    },
                ],
            }
        ],
    ),
]


@pytest.mark.parametrize(("message", "values"), [r[1:] for r in FORMS], ids=[r[0] for r in FORMS])
def test_the_form_of_a_message_is_kept(
    message: dict[str, Any], values: list[dict[str, Any]]
) -> None:
    items = from_chat_messages([message])
    assert plain(items) == values
    assert to_chat_messages(items) == [message]


def test_two_messages_of_the_assistant_stay_two() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call("c", "f", "{}")]},
        {"role": "assistant", "content": None, "tool_calls": [call("d", "f", "{}")]},
    ]
    assert to_chat_messages(from_chat_messages(messages)) == messages


CARRIED: list[tuple[str, Item, list[tuple[str, object, str]]]] = [
    ("ids", wire.assistant("a", id="m"), [("message", {"id": "m"}, "Chat gives no ids to items")]),
    (
        "the seal of a thought",
        wire.reasoning("hm", encrypted_content="gAAA"),
        [
            (
                "reasoning",
                {
                    "summary": [{"type": "summary_text", "text": "hm"}],
                    "encrypted_content": "gAAA",
                },
                "the parts of the summary",
            )
        ],
    ),
]


@pytest.mark.parametrize(("item", "carried"), [r[1:] for r in CARRIED], ids=[r[0] for r in CARRIED])
def test_what_chat_cannot_express_is_carried(
    item: Item, carried: list[tuple[str, object, str]]
) -> None:
    (message,) = to_chat_messages([item])
    assert unsupported_content(message) == carried
    assert from_chat_messages([message]) == (item,)


def test_an_answer_is_one_message_with_everything_it_said() -> None:
    items = (
        wire.reasoning("Hm."),
        wire.assistant("One."),
        wire.assistant("Two."),
        wire.function_call("c", "f"),
    )
    message = to_chat_message(Response(id="r", output=items, model="m", status="completed"))
    assert has_unsupported_content(message)
    assert unsupported_summary(message) == {"items": 1}
    assert {name: one for name, one in message.items() if name != "unsupported_content"} == {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
        "tool_calls": [call("c", "f", "{}")],
        "metadata": {"id": "r", "model": "m", "status": "completed"},
    }
    assert same(plain(from_chat_messages([message])), plain(items))


def test_an_empty_answer_is_a_message() -> None:
    assert to_chat_message(Response(id="", output=())) == {"role": "assistant", "content": ""}


def test_what_is_carried_is_found_anywhere() -> None:
    carried = {"original_type": "refusal", "data": {"refusal": "no"}, "reason": "r"}
    history = [{"role": "user", "content": [{"x": [carried]}]}, {"unsupported_content": [carried]}]
    assert scan_unsupported(history) == [("refusal", {"refusal": "no"}, "r")] * 2
    assert unsupported_content({"unsupported_content": [carried]}, "other") == []


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([{"content": "x"}], "[0]"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": ["a"]}], "[1].content[0]"),
        ([{"role": "user", "content": 3}], "[0]"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(messages: Any, place: str) -> None:
    with pytest.raises(DecodeError) as raised:
        from_chat_messages(messages)
    assert raised.value.path == place

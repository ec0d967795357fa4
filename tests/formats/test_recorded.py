"""Recorded histories: in as their service had them, through items, out as they were.

`CARRIED` is what the recorded Responses traffic holds that Claude and Chat cannot express, and why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.formats import (
    from_chat_messages,
    from_claude_messages,
    to_chat_message,
    to_chat_messages,
    to_claude_message,
    to_claude_messages,
    unsupported_content,
)
from perdure.formats.values import plain, same
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models import anthropic, chat
from perdure.wire import Item, Request, Response, decode_items, decode_response
from tests.models.chat.reading import compared, dialect_of, settings_of
from tests.models.recorded import Interaction, interactions

# --- Claude's and Chat's own ----------------------------------------------------------


def claude_histories(shared: Path) -> list[list[dict[str, Any]]]:
    """Each history: the system's words, the messages, and the answer where one came whole."""
    found: list[list[dict[str, Any]]] = []
    for one in interactions(shared, "anthropic"):
        answer = [one.value] if _is_whole(one) and one.value.get("type") == "message" else []
        found.append([*_system(one), *one.request["messages"], *answer])
    return found


def _system(one: Interaction) -> list[dict[str, Any]]:
    system = one.request.get("system")
    return [] if system is None else [{"role": "system", "content": system}]


def _is_whole(one: Interaction) -> bool:
    return not one.stream and one.status == 200


def chat_histories(shared: Path) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    for one in interactions(shared, "chat"):
        choices = one.value.get("choices", []) if _is_whole(one) else []
        found.append([*one.request["messages"], *(choice["message"] for choice in choices)])
    return found


def test_claude_histories_come_out_as_they_went_in(shared: Path) -> None:
    histories = claude_histories(shared)
    for history in histories:
        items = from_claude_messages(history)
        assert same(to_claude_messages(items), history)
    assert (len(histories), sum(map(len, histories))) == (144, 461)


def test_chat_histories_come_out_as_they_went_in(shared: Path) -> None:
    histories = chat_histories(shared)
    for history in histories:
        assert same(to_chat_messages(from_chat_messages(history)), history)
    assert (len(histories), sum(map(len, histories))) == (194, 538)


def test_the_system_of_a_request_is_its_first_message(shared: Path) -> None:
    for one in interactions(shared, "anthropic"):
        body = one.request
        items = from_claude_messages(body["messages"], system=body.get("system"))
        assert same(to_claude_messages(items), [*_system(one), *body["messages"]])


def test_a_history_crosses_to_the_other_format_and_comes_back(shared: Path) -> None:
    for history in claude_histories(shared)[::2]:
        items = from_claude_messages(history)
        assert same(to_claude_messages(from_chat_messages(to_chat_messages(items))), history)
    for history in chat_histories(shared)[::2]:
        items = from_chat_messages(history)
        assert same(to_chat_messages(from_claude_messages(to_claude_messages(items))), history)


# --- what agents send of them ----------------------------------------------------------


def test_the_anthropic_adapter_sends_a_history_as_it_was(shared: Path) -> None:
    for one in interactions(shared, "anthropic"):
        items = from_claude_messages(one.request["messages"], system=one.request.get("system"))
        settings = Request(model=one.request["model"], max_output_tokens=100)
        request = ModelRequest(settings=settings, input=Items.of(items))
        sent = json.loads(b"".join(anthropic.request_body(request).fragments))
        assert _comparable(sent["messages"]) == _comparable(one.request["messages"]), one.name
        assert anthropic.losses(request) == (), one.name


def _comparable(messages: list[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Messages without differences of form: what a role says in a row is one, text is blocks."""
    found: list[tuple[str, list[Any]]] = []
    for message in messages:
        blocks = [_block(block) for block in _blocks(message["content"])]
        if found and found[-1][0] == message["role"]:
            found[-1][1].extend(blocks)
        else:
            found.append((message["role"], blocks))
    return found


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _block(block: dict[str, Any]) -> dict[str, Any]:
    rest = {name: one for name, one in block.items() if one is not None}
    if block["type"] == "tool_result":
        rest["content"] = _blocks(block.get("content"))
        rest["is_error"] = bool(block.get("is_error"))
    return rest


UNSIGNED = "test_compatible_api_with_tool_calls_without_id.1"
"""Its client did not send what Google signed; the adapter sends a text in its place."""


def test_the_chat_adapters_send_a_history_as_it_was(shared: Path) -> None:
    for one in interactions(shared, "chat"):
        dialect = dialect_of(one)
        items = from_chat_messages(one.request["messages"])
        request = ModelRequest(settings=settings_of(one.request), input=Items.of(items))
        sent = chat.request_body(request, dialect=dialect).value()
        assert (compared(sent) == compared(one.request)) is (one.name != UNSIGNED), one.name
        lost = {loss.what for loss in chat.losses(request, dialect=dialect)}
        assert lost <= {"perdure:chat"}, one.name  # a mark, of which nothing is said to anybody


# --- Responses, in the other formats -----------------------------------------------------


def responses(shared: Path) -> list[Response]:
    return [
        decode_response(one.answer)
        for one in interactions(shared, "responses")
        if _is_whole(one) and "output" in one.value
    ]


def item_histories(shared: Path) -> list[tuple[Item, ...]]:
    inputs = [one.request.get("input") for one in interactions(shared, "responses")]
    given = [decode_items(json.dumps(one)) for one in inputs if isinstance(one, list)]
    return [*given, *(one.output for one in responses(shared))]


def test_items_come_back_from_both_formats(shared: Path) -> None:
    histories = item_histories(shared)
    for items in histories:
        assert same(plain(from_claude_messages(to_claude_messages(items))), plain(items))
        assert same(plain(from_chat_messages(to_chat_messages(items))), plain(items))
    assert len(histories) == 271


def test_answers_come_back_from_one_message(shared: Path) -> None:
    for response in responses(shared):
        wanted = plain(response.output)
        for mark, found in (
            ("perdure:claude", from_claude_messages([to_claude_message(response)])),
            ("perdure:chat", from_chat_messages([to_chat_message(response)])),
        ):
            values = plain(found)
            if values and wanted:
                for value in values:
                    value.pop(mark, None)  # what the message has beside its content
                assert same(values, wanted)


CARRIED = {
    "claude": {
        ("additional_tools", "Claude has no such type"),
        ("compaction", "Claude has no such type"),
        ("file_search_call", "Claude has no such type"),
        ("function_call", "Claude gives no ids to items"),
        ("function_call", "Claude gives no status to items"),
        ("function_call", "the exact text of the arguments"),
        ("function_call", "the item does not have it"),
        ("input_text", "Claude has no place for it"),
        ("mcp_call", "Claude has no such type"),
        ("mcp_list_tools", "Claude has no such type"),
        ("message", "Claude gives no ids to items"),
        ("message", "Claude has no phases"),
        ("message", "the item does not have it"),
        ("output_text", "Claude gives no log probabilities"),
        ("output_text", "Claude has no such citations"),
        ("reasoning", "nothing of it may be read, or its maker is another"),
        ("reasoning", "sealed by another provider"),
        ("reasoning", "the exact form of the content"),
        ("reasoning", "the parts of the summary"),
        ("url_citation", "Claude cites a whole text"),
        ("web_search_call", "Claude has no such type"),
    },
    "chat": {
        ("additional_tools", "Chat has no such type"),
        ("compaction", "Chat has no such type"),
        ("file_search_call", "Chat has no such type"),
        ("function_call", "Chat gives no ids to items"),
        ("function_call", "Chat gives no status to items"),
        ("function_call", "the item does not have it"),
        ("items", "Chat has no such order"),
        ("mcp_call", "Chat has no such type"),
        ("mcp_list_tools", "Chat has no such type"),
        ("message", "Chat gives no ids to items"),
        ("message", "Chat has no phases"),
        ("message", "the exact form of the content"),
        ("message", "the item does not have it"),
        ("output_text", "Chat has them beside the message, not in it"),
        ("reasoning", "Chat gives no ids to items"),
        ("reasoning", "nothing of it may be read, or its message has a thought"),
        ("reasoning", "sealed by its provider"),
        ("reasoning", "the parts of the summary"),
        ("web_search_call", "Chat has no such type"),
    },
}


def carried(histories: list[list[dict[str, Any]]]) -> set[tuple[str, str]]:
    return {
        (one.original_type, one.reason)
        for history in histories
        for message in history
        for one in unsupported_content(message)
    }


def test_what_is_carried_is_on_a_list_with_reasons(shared: Path) -> None:
    histories = item_histories(shared)
    assert carried([to_claude_messages(items) for items in histories]) == CARRIED["claude"]
    assert carried([to_chat_messages(items) for items in histories]) == CARRIED["chat"]

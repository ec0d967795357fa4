"""What goes out comes back: any history through either format, any messages through items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings

from perdure.formats import (
    from_chat_messages,
    from_claude_messages,
    to_chat_messages,
    to_claude_messages,
)
from perdure.formats.values import same
from perdure.wire import Item, encode
from tests.formats.strategies import chat_messages, claude_messages, histories


def plain(items: Sequence[Item]) -> list[Any]:
    return [json.loads(encode(item)) for item in items]


def through_json(messages: Any) -> Any:
    return json.loads(json.dumps(messages))


@settings(max_examples=60)
@given(histories)
def test_a_history_comes_back_from_claude_messages(items: tuple[Item, ...]) -> None:
    messages = through_json(to_claude_messages(items))
    assert same(plain(from_claude_messages(messages)), plain(items))


@settings(max_examples=60)
@given(histories)
def test_a_history_comes_back_from_chat_messages(items: tuple[Item, ...]) -> None:
    messages = through_json(to_chat_messages(items))
    assert same(plain(from_chat_messages(messages)), plain(items))


@settings(max_examples=60)
@given(claude_messages)
def test_claude_messages_come_back_from_items(messages: list[dict[str, Any]]) -> None:
    assert same(to_claude_messages(from_claude_messages(messages)), messages)


@settings(max_examples=60)
@given(chat_messages)
def test_chat_messages_come_back_from_items(messages: list[dict[str, Any]]) -> None:
    assert same(to_chat_messages(from_chat_messages(messages)), messages)

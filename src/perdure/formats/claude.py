"""Histories as Claude messages, and back.

A *history* is a list of items. Its messages are plain JSON objects with a `role` and a `content`,
and what Claude cannot express stands in their `unsupported_content`. What one role says in a row is
one message, but two messages of the transcript stay two; what the system says stands in messages of
the role `system`, where it was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, cast

from perdure.errors import DecodeError
from perdure.formats.carriers import (
    MEMBER,
    Missing,
    Reasons,
    carry,
    own_and_others,
    restored,
)
from perdure.formats.claude_blocks import MARK, Piece, piece_of
from perdure.formats.claude_read import items_of
from perdure.formats.grouping import Rules, groups, joined_history, without_begin
from perdure.formats.marks import put
from perdure.formats.values import Json, copied, is_object, member, objects, plain, typed
from perdure.wire import Item

REASONS = Reasons(
    "Claude",
    {
        "reasoning": "nothing of it may be read, or its maker is another",
        "refusal": "Claude has no refusals",
        "arguments": "the exact text of the arguments",
        "content": "the exact form of the content",
        "output": "the exact form of the output",
        "summary": "the parts of the summary",
        "encrypted_content": "sealed by another provider",
        "annotations": "Claude has no such citations",
        "start_index": "Claude cites a whole text",
        "end_index": "Claude cites a whole text",
        "logprobs": "Claude gives no log probabilities",
        "detail": "Claude decides about an image's detail itself",
        "phase": "Claude has no phases",
        "id": "Claude gives no ids to items",
        "status": "Claude gives no status to items",
    },
)
"""What of an item Claude cannot express, and why; types that are not here have no place at all."""

ClaudeMessage = dict[str, object]
"""A message: `role` and `content`, and what else its history has."""


class ClaudeRequest(TypedDict):
    """The members of a request to the Messages API that hold a history."""

    system: list[dict[str, object]]
    messages: list[ClaudeMessage]


def to_claude_messages(items: Iterable[Item]) -> list[ClaudeMessage]:
    """The messages of a history; `from_claude_messages` gives the same items again."""
    values = plain(items)
    return [
        written(values[first:last], joined=joined) for first, last, joined in groups(values, RULES)
    ]


def from_claude_messages(
    messages: Sequence[Mapping[str, object]], *, system: object = None
) -> tuple[Item, ...]:
    """The items of Claude messages; `to_claude_messages` gives the same messages again.

    Args:
        messages: The messages.
        system: What a request says in its `system`: text or blocks. It is the first message then,
            of the role `system`.

    Raises:
        DecodeError: A message is none; the error names its place.
    """
    given = [copied(one, f"[{index}]") for index, one in enumerate(messages)]
    if system is not None:
        given.insert(0, {"role": "system", "content": copied(system, "system")})
    shift = len(given) - len(messages)
    found = [
        _read(message, f"[{index - shift}]" if index >= shift else "system")
        for index, message in enumerate(given)
    ]
    return typed(joined_history(found, RULES))


def claude_request(items: Iterable[Item]) -> ClaudeRequest:
    """What the Messages API takes of a history: `system` and `messages`, without carriers.

    Thoughts that Anthropic did not sign and messages without content are left out. Nothing else is
    repaired: a call without an output stays without one. Agents do not need this; their model's
    adapter makes its requests itself.
    """
    messages = to_claude_messages(items)
    system: list[Json] = []
    rest: list[ClaudeMessage] = []
    for message in messages:
        blocks = _sendable(message["content"])
        role = "system" if message["role"] == "developer" else message["role"]
        if role == "system" and not rest:
            system += blocks
        elif blocks:
            rest.append({"role": role, "content": blocks})
    return {"system": system, "messages": rest}


def _sendable(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [
        block
        for block in objects(content)
        if not (block.get("type") == "thinking" and not block.get("signature"))
        and not (block.get("type") == "text" and not block.get("text"))
    ]


# --- messages of items -------------------------------------------------------------------


def _joins(before: Piece, piece: Piece) -> bool:
    """Whether what follows is of the same message by the rules."""
    if before.role != piece.role or isinstance(piece.content, str):
        return False
    if isinstance(before.content, str) or not before.content or not piece.content:
        return False
    return not (before.message and piece.message)


RULES = Rules(MARK, piece_of, _joins)


def written(items: list[Json], *, joined: bool = False, role: str = "") -> ClaudeMessage:
    """The one message of some items; its role is that of the first, unless one is given."""
    pieces = [piece_of(item) for item in items]
    given = [piece for piece in pieces if piece is not None]
    first = next((index for index, piece in enumerate(pieces) if piece is not None), 0)
    blocks = [block for piece in given for block in _blocks(piece)]
    beside = _beside(items[first])
    message: ClaudeMessage = {
        "role": role or (given[0].role if given else "assistant"),
        "content": given[0].content if len(given) == 1 else blocks,
        **beside,
    }
    carry(
        message,
        without_begin(items, first, MARK) if joined else items,
        Missing(
            frozenset(index for index, piece in enumerate(pieces) if piece is None),
            {index: piece.gaps for index, piece in enumerate(pieces) if piece and piece.gaps},
        ),
        [len(_blocks(piece)) for piece in given],
        lambda counts: _reread(message, "", counts),
        reasons=REASONS,
    )
    return message


def _blocks(piece: Piece) -> list[Json]:
    """The blocks of an item; a text that is not the whole content has to be one."""
    if isinstance(piece.content, str):
        return [{"type": "text", "text": piece.content}] if piece.content else []
    return piece.content


def _beside(item: Json) -> Json:
    """What a message has beside its role and its content, as its first item is marked."""
    given = member(member(item, MARK), "message")
    return {name: one for name, one in given.items() if name not in {"role", "content"}}


# --- items of messages -------------------------------------------------------------------


def _read(message: object, path: str) -> list[Json]:
    """The items of a message, with what its carriers hold."""
    if not is_object(message) or not isinstance(message.get("role"), str):
        raise DecodeError("a message is an object with a role and a content", path=path)
    own, _ = own_and_others(message)
    return restored(lambda counts: _reread(message, path, counts), own)


def _reread(message: Json, path: str, counts: Sequence[int] | None) -> list[Json]:
    """The items of a message, as its content and its other members say."""
    items = items_of(cast("str", message["role"]), message.get("content"), path, counts)
    own, others = own_and_others(message)
    beside = {name: one for name, one in message.items() if name not in {"role", "content"}}
    if own:
        del beside[MEMBER]
        if others:
            beside[MEMBER] = others
    put(items[0], MARK, message=beside)
    return items

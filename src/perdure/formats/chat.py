"""Histories as Chat messages, and back.

A *history* is a list of items. Its messages are plain JSON objects with a `role`; what Chat cannot
express stands in their `unsupported_content`. Thoughts, what is said after them, and the calls made
after that are one message of the assistant; everything else is a message for each item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perdure.errors import DecodeError
from perdure.formats.carriers import (
    MEMBER,
    Missing,
    Reasons,
    carry,
    own_and_others,
    restored,
)
from perdure.formats.chat_assistant import (
    IN_CONTENT,
    call_of,
    calls_of,
    detail_of,
    is_call,
    leading_thoughts,
    message_of,
    said_in,
    said_members,
    thinking_of,
    thought_member,
    thoughts_of,
)
from perdure.formats.chat_parts import MARK, chat_parts, wire_parts
from perdure.formats.grouping import Rules, groups, joined_history, without_begin
from perdure.formats.marks import difference, put
from perdure.formats.values import (
    Json,
    copied,
    is_array,
    is_message,
    is_object,
    member,
    objects,
    plain,
    text,
    typed,
)
from perdure.wire import Item

REASONS = Reasons(
    "Chat",
    {
        "reasoning": "nothing of it may be read, or its message has a thought",
        "content": "the exact form of the content",
        "output": "the exact form of the output",
        "summary": "the parts of the summary",
        "encrypted_content": "sealed by its provider",
        "annotations": "Chat has them beside the content, not in it",
        "logprobs": "Chat has them beside the message, not in it",
        "phase": "Chat has no phases",
        "id": "Chat gives no ids to items",
        "status": "Chat gives no status to items",
    },
)
"""What of an item Chat cannot express, and why; types that are not here have no place at all."""

ChatMessage = dict[str, object]
"""A message: `role`, and what its history has."""


def to_chat_messages(items: Iterable[Item]) -> list[ChatMessage]:
    """The messages of a history; `from_chat_messages` gives the same items again."""
    values = plain(items)
    return [
        written(values[first:last], joined=joined) for first, last, joined in groups(values, RULES)
    ]


def from_chat_messages(messages: Sequence[Mapping[str, object]]) -> tuple[Item, ...]:
    """The items of Chat messages; `to_chat_messages` gives the same messages again.

    Raises:
        DecodeError: A message is none; the error names its place.
    """
    found = [_read(copied(one, f"[{index}]"), f"[{index}]") for index, one in enumerate(messages)]
    return typed(joined_history(found, RULES))


# --- messages of items -------------------------------------------------------------------


def _stage(item: Json) -> str | None:
    """Where in a message an item stands; None if it gives nothing."""
    kind = item.get("type")
    if is_call(item):
        return "call"
    if kind == "reasoning":
        return "thought" if thought_member(item) else None
    if kind == "function_call_output":
        return "output"
    if not is_message(item):
        return None
    parts = item.get("content")
    if is_array(parts) and parts and not chat_parts(objects(parts))[0]:
        return None
    return "said" if item["role"] == "assistant" else "message"


def _joins(before: str, stage: str) -> bool:
    """Whether what follows is of the same message by the rules."""
    return {
        "thought": before == "thought",
        "said": before == "thought",
        "call": before in {"thought", "said", "call"},
    }.get(stage, False)


RULES = Rules(MARK, _stage, _joins)


class _Made(NamedTuple):
    """A message by the rules, and what of its items it does not show."""

    message: ChatMessage
    missing: Missing
    shown: int


def _by_the_rules(items: list[Json], *, answer: bool = False) -> _Made:
    """The message of some items.

    Args:
        items: The items.
        answer: They are a response, so it is an assistant's whatever is among them.
    """
    message: ChatMessage = {"role": "assistant"}
    calls: list[Json] = []
    details: list[Json] = []
    within: list[Json] = []
    left: set[int] = set()
    gaps: dict[int, tuple[int, ...]] = {}
    for index, item in enumerate(items):
        stage = _stage(item)
        match None if answer and stage in {"output", "message"} else stage:
            case "thought":
                name = thought_member(item)
                if name == "reasoning_details":
                    details.append(detail_of(item))
                elif name == IN_CONTENT:
                    within.append(item)
                elif name in message:
                    left.add(index)  # a message holds one thought
                else:
                    message[name] = said_in(item)
            case "call":
                calls.append(call_of(item))
            case "output":
                content = item.get("output")
                if is_array(content):
                    content, gaps[index] = chat_parts(objects(content))
                message = {"role": "tool", "tool_call_id": item["call_id"], "content": content}
            case None:
                left.add(index)
            case _:
                members, gaps[index] = said_members(item)
                message |= {"role": item["role"], **_with(message, members)}
    if details:
        message["reasoning_details"] = details
    if within:
        message["content"] = [thinking_of(within), *_content(message)]
    if message["role"] == "assistant":
        message.setdefault("content", None)
    if calls:
        message["tool_calls"] = calls
    return _Made(message, Missing(frozenset(left), gaps), len(items) - len(left))


def _with(before: Json, members: Json) -> Json:
    """What is said, after what was said before it in the same response."""
    said = [*_content(before), *_content(members)]
    if len(said) > 1 and _content(before):
        members["content"] = said
    refusals = text(before, "refusal") + text(members, "refusal")
    return {**members, "refusal": refusals} if refusals else members


def _content(members: Json) -> list[Json]:
    content = members.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return objects(content)


def written(items: list[Json], *, joined: bool = False, answer: bool = False) -> ChatMessage:
    """The one message of some items: of those of a group, or of an answer's."""
    message, missing, shown = _by_the_rules(items, answer=answer)
    first = next((index for index, item in enumerate(items) if _stage(item)), 0)
    own = member(items[first], MARK)
    beside = {n: one for n, one in member(own, "message").items() if n != "role"}
    lacks = own.get("lacks")
    names = [*(lacks if is_array(lacks) else [])]
    message = {n: one for n, one in {**message, **beside}.items() if n == "role" or n not in names}
    carry(
        message,
        without_begin(items, first, MARK) if joined else items,
        missing,
        [1] * shown,
        lambda _: _reread(message, ""),
        reasons=REASONS,
    )
    return message


# --- items of messages -------------------------------------------------------------------


def _read(message: object, path: str) -> list[Json]:
    """The items of a message, with what its carriers hold."""
    if not is_object(message) or not isinstance(message.get("role"), str):
        raise DecodeError("a message is an object with a role", path=path)
    own, _ = own_and_others(message)
    return restored(lambda _: _reread(message, path), own)


def _reread(message: Json, path: str) -> list[Json]:
    """The items of a message, as its members say; the first is marked with what they do not."""
    if message["role"] == "tool" and isinstance(message.get("tool_call_id"), str):
        items = [_output(message, path)]
    elif message["role"] == "assistant":
        items = _assistant(message, path)
    else:
        items = [message_of(message, path, alone=True) or {}]
    own, others = own_and_others(message)
    wanted = {name: one for name, one in message.items() if not (own and name == MEMBER)}
    if own and others:
        wanted[MEMBER] = others
    changed, without = difference(_by_the_rules(items).message, wanted)
    put(items[0], MARK, message=changed, lacks=without)
    return items


def _output(message: Json, path: str) -> Json:
    content = message.get("content")
    output: object = content if isinstance(content, str) else ""
    if is_array(content):
        output = wire_parts(content, path, assistant=False)
    return {
        "type": "function_call_output",
        "call_id": text(message, "tool_call_id"),
        "output": output,
    }


def _assistant(message: Json, path: str) -> list[Json]:
    within = leading_thoughts(message.get("content"))
    thoughts, calls = [*thoughts_of(message), *within], calls_of(message)
    said = message_of(message, path, alone=not (thoughts or calls), skip=bool(within))
    return [*thoughts, *([said] if said is not None else []), *calls]

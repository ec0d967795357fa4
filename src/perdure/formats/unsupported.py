"""What foreign messages carry beside their content, and what kind of messages they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from perdure.formats.carriers import MEMBER
from perdure.formats.values import Json, copied, is_array, is_object, objects, text


class UnsupportedContent(NamedTuple):
    """Something that a message carries because its format cannot express it."""

    original_type: str
    data: object
    reason: str


def unsupported_content(
    message: Mapping[str, object], original_type: str = ""
) -> list[UnsupportedContent]:
    """What a message carries: all of it, or what was of one type."""
    found = [_carried(one) for one in objects(copied(message.get(MEMBER)))]
    return [one for one in found if original_type in ("", one.original_type)]


def has_unsupported_content(message: Mapping[str, object]) -> bool:
    """Whether a message carries anything."""
    return bool(unsupported_content(message))


def unsupported_summary(message: Mapping[str, object]) -> dict[str, int]:
    """How much a message carries of each type."""
    return dict(Counter(one.original_type for one in unsupported_content(message)))


def scan_unsupported(value: object) -> list[UnsupportedContent]:
    """Whatever is carried anywhere in a JSON value, in a history say, as deep as it may be."""
    return list(_scan(copied(value)))


def _scan(value: object) -> Iterator[UnsupportedContent]:
    if is_object(value):
        if {"original_type", "data", "reason"} <= value.keys():
            yield _carried(value)
        for one in value.values():
            yield from _scan(one)
    elif is_array(value):
        for one in value:
            yield from _scan(one)


def _carried(value: Json) -> UnsupportedContent:
    return UnsupportedContent(
        text(value, "original_type"), value.get("data"), text(value, "reason")
    )


# --- telling formats apart -----------------------------------------------------------------


def is_claude_style(messages: object) -> bool:
    """Whether messages are certainly Claude's: some block in them is one that only Claude has.

    Messages of plain text are in both formats alike, so of those it is not certain. A message of
    the role `system`, `developer` or `tool` says that they are not Claude's; what has a `type` of
    its own is an item, and says nothing.
    """
    if not isinstance(messages, list | tuple):
        return False
    given = objects(copied(cast("object", messages)))
    if any(one.get("role") in {"system", "developer", "tool"} for one in given):
        return False
    return any(
        _only_claude(block)
        for one in given
        if "type" not in one
        for block in objects(one.get("content"))
    )


def _only_claude(block: Json) -> bool:
    match block:
        case {"type": "tool_result", "tool_use_id": str()}:
            return True
        case {"type": "tool_use", "id": str()}:
            return True
        case {"type": "image" | "document", "source": dict()}:
            return True
        case {"type": "thinking", "signature": str()} | {"type": "redacted_thinking"}:
            return True
        case _:
            return False

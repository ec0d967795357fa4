"""Normal forms, and the hash of a request.

*normal form*: the one way to write what can be written in several: a content is a list of
parts, an image has a detail, a tool a description, and nothing that is empty is written. It is
what hashes are taken over, so that two programs that mean the same get the same hash; values
are recorded and sent as they are, not in it.

A message without a `type` has no normal form and counts as it was written. Members that a type
does not know stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from perdure.errors import NotIJson
from perdure.wire.canonical import canonicalize
from perdure.wire.codec import encode
from perdure.wire.construct import user
from perdure.wire.items import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    Reasoning,
    UnknownItem,
)
from perdure.wire.parts import (
    Annotation,
    InputFile,
    InputImage,
    InputText,
    LogProb,
    OutputText,
    Part,
    TopLogProb,
)
from perdure.wire.requests import ReasoningConfig, Request, TextConfig, TextFormat
from perdure.wire.tools import AllowedTools, FunctionTool, ToolChoice, ToolDefinition
from perdure.wire.values import ABSENT, Absent, Kept, Wire

W = TypeVar("W", bound=Wire)

# --- items -------------------------------------------------------------------------


def normal_item(item: Item) -> bytes:
    """An item in its normal form, as canonical JSON.

    Raises:
        NotIJson: It holds what canonical JSON cannot carry, as a lone surrogate.
    """
    return canonicalize(encode(_item(item)))


def normal_tool(tool: ToolDefinition) -> bytes:
    """A tool's definition in its normal form, as canonical JSON. Raises as `normal_item`."""
    return canonicalize(encode(_tool(tool)))


def _item(item: Item) -> Item:
    match item:
        case UnknownItem():
            return item
        case Message():
            return _message(item)
        case ItemReference():
            return _without_nulls(item)
        case FunctionCall():
            return replace(
                _without_nulls(item), id=item.id or ABSENT, status=item.status or ABSENT
            )
        case _:
            return _item_with_parts(item)


def _message(item: Message) -> Message:
    if item.kept and "type" in item.kept.absent:
        return item
    content = item.content
    if isinstance(content, str):
        of_text = OutputText if item.role == "assistant" else InputText
        content = (of_text(text=content),)
    return replace(
        item,
        kept=_unknown(item),
        id=item.id or ABSENT,
        status=item.status or ABSENT,
        content=_parts(content),
        phase=item.phase or ABSENT,
    )


def _item_with_parts(item: FunctionCallOutput | Reasoning | Compaction) -> Item:
    item = replace(
        _without_nulls(item), id=item.id or ABSENT, status=item.status or ABSENT
    )
    match item:
        case FunctionCallOutput(output=tuple() as output):
            return replace(item, output=_parts(output))
        case Reasoning():
            return replace(
                item,
                summary=_parts(item.summary),
                content=_parts(item.content or ()) or ABSENT,
                encrypted_content=item.encrypted_content or ABSENT,
            )
        case Compaction():
            return replace(item, created_by=item.created_by or ABSENT)
        case _:
            return item

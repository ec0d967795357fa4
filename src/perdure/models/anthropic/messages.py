"""Requests to the Messages API: what a transcript says, as the API's messages and blocks.

A *block* is the API's piece of content. What the API wants back as it gave it stands in marks:
`perdure:anthropic` on an item or a part holds members of its block, and the items, parts, tools and
annotations whose types begin with `anthropic:` hold a block, a tool or a citation whole. A
`cache_control` on an item, a part or a tool goes to its block; on the settings, to the request.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
from msgspec import Raw

from perdure.models.mapping.forms import (
    NO_OUTPUT,
    Answered,
    BlockForm,
    Piece,
    Result,
    Turn,
    said,
    said_by_system,
    sealed,
    written,
)
from perdure.models.mapping.kept import extension, kept, kept_object, report_unknown
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.names import legal_id, legal_name
from perdure.models.mapping.texts import arguments_text, json_text
from perdure.wire import (
    Annotation,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    Message,
    OutputText,
    Part,
    Reasoning,
    Refusal,
    TextPart,
    UnknownAnnotation,
    UnknownPart,
    Wire,
    text_of,
)
from perdure.wire.marks import REDACTED, mark_of
from perdure.wire.media import Media, is_text, media_of, text_of_media
from perdure.wire.outputs import is_error

PROVIDER = "anthropic"
OWN = mark_of(PROVIDER)
"""The mark that holds members of a block."""

CALL_ID = re.compile(r"[A-Za-z0-9_-]+")
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_FOREIGN = "Anthropic takes back only what it made itself"

Block = dict[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class Messages(BlockForm):
    """How the Messages API writes a transcript.

    Attributes:
        inline_system: Whether the model takes what the system says after a turn of the user's, as
            a message of its own.
    """

    provider: ClassVar[str] = PROVIDER
    foreign: ClassVar[str] = _FOREIGN

    inline_system: bool

    def call_id(self, call_id: str) -> str:
        return legal_id(call_id, CALL_ID)

    def _call(self, call: FunctionCall, lost: Lost) -> list[bytes]:
        return [json_text(_tool_use(call, lost))]

    def _thought(self, thought: Reasoning, lost: Lost) -> Mapping[str, object] | None:
        return _thinking(thought, lost)

    def _message(self, message: Message, lost: Lost) -> Piece | None:
        report_unknown(message, lost, maker="Anthropic", own={OWN}, cached=True)
        blocks = [json_text(block) for block in _blocks(message, lost)]
        return said(message, blocks, lost, maker="Anthropic")

    def result(self, answered: Answered, lost: Lost) -> Result:
        return Result(json_text(_tool_result(answered.call, answered.output, lost)))

    def message(self, turn: Turn, results: Sequence[Result], lost: Lost) -> bytes:
        if turn.role == "assistant":
            return written("assistant", "content", turn.blocks("thought", "call", "other"))
        spoken = [*(result.block for result in results), *turn.blocks("other")]
        system = turn.blocks("system")
        if system and (not spoken or not self.inline_system):
            for piece in turn.pieces:
                if piece.kind == "system":
                    spoken += said_by_system(piece, lost)
            system = []
        message = written("user", "content", spoken)
        return message + b"," + written("system", "content", system) if system else message


# --- blocks ---------------------------------------------------------------------------


def _blocks(message: Message, lost: Lost) -> list[Block]:
    """The blocks of a message, none of them empty."""
    if isinstance(message.content, str):
        found = [_text(message.content, None, lost, ".content")]
    else:
        user = message.role != "assistant"
        found = [
            _block(part, lost, f".content[{index}]", user=user)
            for index, part in enumerate(message.content)
        ]
    blocks = [block for block in found if block is not None]
    if blocks and "cache_control" in kept(message):
        blocks[-1]["cache_control"] = Raw(kept(message)["cache_control"])
    return blocks


def _block(part: Part, lost: Lost, at: str, *, user: bool) -> Block | None:
    """The block of a part; None if there is none, which is a loss unless the part is empty."""
    match part:
        case Refusal():
            lost.add(part.type, "sent as text", at)
            return _text(part.refusal, part, lost, at)
        case OutputText():
            block = _text(part.text, part, lost, at)
            citations = _citations(part.annotations or (), lost, at)
            if block is not None and citations:
                block["citations"] = citations
            return block
        case UnknownPart():
            raw = extension(part, PROVIDER, "block")
            if raw is not None:
                return msgspec.json.decode(raw, type=dict[str, Raw])  # type: ignore[return-value]
        case InputImage() | InputFile() if user:
            source = _media_block(part, media_of(part), lost, at)
            if source is not None:
                return {**source, **own_members(part, lost, at)}
            return None
        case _ if isinstance(part, TextPart):
            return _text(part.text, part, lost, at)
        case _:
            pass
    lost.add(part.type, "Anthropic takes no such part" + ("" if user else " from an assistant"), at)
    return None


def _text(text: str, value: Wire | None, lost: Lost, at: str) -> Block | None:
    if not text or text.isspace():
        if text:
            lost.add("text", "Anthropic takes no text that is only white space", at)
        return None
    block: Block = {"type": "text", "text": text}
    return block if value is None else {**block, **own_members(value, lost, at)}


def own_members(value: Wire, lost: Lost, at: str = "") -> Block:
    """What a value carries for its block, beside what its type says."""
    if not value.kept:
        return {}
    report_unknown(value, lost, at, maker="Anthropic", own={OWN}, cached=True)
    own: Block = dict(kept_object(value, OWN))
    if "cache_control" in kept(value):
        own["cache_control"] = Raw(kept(value)["cache_control"])
    return own


def _media_block(part: Part, media: Media, lost: Lost, at: str) -> Block | None:
    """An image or a document."""
    detail = getattr(part, "detail", None)
    if detail and detail != "auto":
        lost.add("detail", "Anthropic decides about an image's detail itself", f"{at}.detail")
    image = isinstance(part, InputImage) or media.type.startswith("image/")
    source = _source(media, image=image)
    if source is None:
        what = media.type or part.type
        lost.add(what, "Anthropic takes JPEG, PNG, GIF and WebP images, PDF and text", at)
        return None
    if image:
        return {"type": "image", "source": source}
    titled = {"title": media.name} if media.name else {}
    return {"type": "document", "source": source, **titled}


def _source(media: Media, *, image: bool) -> Block | None:
    if media.file_id:
        return {"type": "file", "file_id": media.file_id}
    if media.url:
        return {"type": "url", "url": media.url}
    if image:
        good = media.type in _IMAGES
    else:
        good = media.type == "application/pdf"
        text = text_of_media(media) if is_text(media) else None
        if text is not None:
            return {"type": "text", "media_type": "text/plain", "data": text}
    if not good or media.data is None:
        return None
    return {"type": "base64", "media_type": media.type, "data": media.data}


def _citations(annotations: Sequence[Annotation], lost: Lost, at: str) -> list[Raw]:
    found: list[Raw] = []
    for index, annotation in enumerate(annotations):
        if isinstance(annotation, UnknownAnnotation):
            raw = extension(annotation, PROVIDER, "citation")
        elif OWN in kept(annotation):
            raw = Raw(kept(annotation)[OWN])
        else:
            raw = None
        if raw is None:
            lost.add(annotation.type, _FOREIGN, f"{at}.annotations[{index}]")
        else:
            found.append(raw)
    return found


# --- items ----------------------------------------------------------------------------


def _tool_use(call: FunctionCall, lost: Lost) -> Block:
    return {
        "type": "tool_use",
        "id": call.call_id,
        "name": legal_name(call.name, NAME, lost),
        "input": Raw(arguments_text(call.arguments, lost)),
        **own_members(call, lost),
    }


def _tool_result(call: FunctionCall, output: FunctionCallOutput | None, lost: Lost) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": call.call_id}
    if output is None:
        return {**block, "content": [{"type": "text", "text": NO_OUTPUT}], "is_error": True}
    if isinstance(output.output, str):
        whole = _text(output.output, None, lost, ".output")
        content = [whole] if whole is not None else []
    else:
        parts = enumerate(output.output)
        found = [_block(part, lost, f".output[{index}]", user=True) for index, part in parts]
        content = [one for one in found if one is not None]
    if content:
        block["content"] = content
    if is_error(output.text):
        block["is_error"] = True
    return {**block, **own_members(output, lost)}


def _thinking(thought: Reasoning, lost: Lost) -> Mapping[str, object] | None:
    unsigned = "its signature never came; Anthropic takes no thought without"
    signature = sealed(thought, PROVIDER, lost, maker="Anthropic", unsigned=unsigned)
    if not signature:
        return None
    if kept(thought).get(REDACTED) == b"true":
        return {"type": "redacted_thinking", "data": signature}
    text = text_of(thought.summary) or text_of(thought.content or ())
    return {"type": "thinking", "thinking": text, "signature": signature}

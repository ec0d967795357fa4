"""Requests to Bedrock Converse: what a transcript says, as the API's messages and blocks.

What the API wants back as it gave it stands in marks: `perdure:bedrock` on an item or a part holds
members of its block, or the block itself where text is cited, and the items, parts, tools and
annotations whose types begin with `bedrock:` hold a block or a tool whole. A `cache_control` on an
item, a part or a tool is a cache point behind it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Raw

from perdure.models.mapping.forms import (
    NO_OUTPUT,
    Answered,
    BlockForm,
    Piece,
    Result,
    Turn,
    said,
    sealed,
    spoken,
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
    InputVideo,
    Message,
    OutputText,
    Part,
    Reasoning,
    Refusal,
    TextPart,
    UnknownPart,
    Wire,
    text_of,
)
from perdure.wire.jsontext import members_of
from perdure.wire.marks import REDACTED, mark_of
from perdure.wire.media import Media, media_of
from perdure.wire.outputs import is_error

PROVIDER = "bedrock"
OWN = mark_of(PROVIDER)
"""The mark that holds members of a block."""

CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_FOREIGN = "Bedrock takes back only what it made itself"
_SEE = "See the attached document."
"""What is said with a document where nothing else is; Bedrock takes none alone."""

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "application/json": "txt",
    "text/markdown": "md",
}
_VIDEOS = {
    "video/x-matroska": "mkv",
    "video/quicktime": "mov",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
_SOUNDS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
}

Block = dict[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class Converse(BlockForm):
    """How Converse writes a transcript.

    Attributes:
        claude: Whether the model is Claude, which takes no videos and no sounds.
        nova: Whether the model is Nova, which takes no documents in what a tool gave.
    """

    provider: ClassVar[str] = PROVIDER
    foreign: ClassVar[str] = _FOREIGN

    claude: bool
    nova: bool

    def call_id(self, call_id: str) -> str:
        return legal_id(call_id, CALL_ID)

    def _call(self, call: FunctionCall, lost: Lost) -> list[bytes]:
        blocks = [{"toolUse": _tool_use(call, lost)}, *_cache_point(call)]
        return [json_text(block) for block in blocks]

    def _thought(self, thought: Reasoning, lost: Lost) -> Mapping[str, object] | None:
        return _thought(thought, lost)

    def _message(self, message: Message, lost: Lost) -> Piece | None:
        _report(message, lost)
        blocks = self._blocks(message, lost)
        blocks += _cache_point(message) if blocks else []
        return said(message, list(map(json_text, blocks)), lost, maker="Bedrock")

    def _blocks(self, message: Message, lost: Lost) -> list[Block]:
        """The blocks of a message, none of them empty."""
        if isinstance(message.content, str):
            return [{"text": message.content}] if message.content else []
        user = message.role != "assistant"
        blocks: list[Block] = []
        for index, part in enumerate(message.content):
            block = self._block(part, lost, f".content[{index}]", user=user)
            if block is not None:
                blocks += [block, *_cache_point(part)]
        return blocks

    def _block(self, part: Part, lost: Lost, at: str, *, user: bool) -> Block | None:
        """The block of a part; None if there is none, which is a loss unless the part is empty."""
        match part:
            case Refusal():
                lost.add(part.type, "sent as text", at)
                return {"text": part.refusal} if part.refusal else None
            case OutputText():
                return _output_text(part, lost, at)
            case _ if isinstance(part, TextPart):
                _report(part, lost, at)
                return {"text": part.text} if part.text else None
            case InputImage() | InputFile() | InputVideo() | UnknownPart() if user:
                return self._media_block(part, lost, at)
            case _:
                lost.add(part.type, "Bedrock takes no such part from an assistant", at)
                return None

    def _media_block(self, part: Part, lost: Lost, at: str) -> Block | None:
        """An image, a document, a video or a sound."""
        if isinstance(part, UnknownPart):
            raw = extension(part, PROVIDER, "block")
            if raw is not None:
                return dict(members_of(raw))
        media = media_of(part)
        kind, form = _kind(part, media)
        source = _source(media)
        if self.claude and kind in {"video", "audio"}:
            lost.add(part.type, "Claude takes no videos and no sounds", at)
            return None
        if form is None or source is None:
            what = media.type or part.type
            lost.add(what, "Bedrock takes bytes or an s3: address, of the types it knows", at)
            return None
        detail = getattr(part, "detail", None)
        if detail and detail != "auto":
            lost.add("detail", "Bedrock has no such setting of an image", f"{at}.detail")
        _report(part, lost, at)
        named = {"name": _name(media, lost.at + at)} if kind == "document" else {}
        return {kind: {"format": form, **named, "source": source, **kept_object(part, OWN)}}

    def result(self, answered: Answered, lost: Lost) -> Result:
        call, output = answered.call, answered.output
        made: Block = {"toolUseId": call.call_id}
        if output is None:
            made |= {"content": [{"text": NO_OUTPUT}], "status": "error"}
            return Result(json_text({"toolResult": made}))
        inside, beside = self._output(output, lost)
        made["content"] = inside
        made["status"] = "error" if is_error(output.text) else "success"
        _report(output, lost)
        made |= kept_object(output, OWN)
        blocks = [{"toolResult": made}, *_cache_point(output)]
        return Result(b",".join(map(json_text, blocks)), [json_text(block) for block in beside])

    def _output(self, output: FunctionCallOutput, lost: Lost) -> tuple[list[Block], list[Block]]:
        """What stands in a tool's result, and what is said beside it."""
        if isinstance(output.output, str):
            return ([{"text": output.output}] if output.output else []), []
        inside: list[Block] = []
        beside: list[Block] = []
        for index, part in enumerate(output.output):
            at = f".output[{index}]"
            block = self._block(part, lost, at, user=True)
            if block is None:
                continue
            if "audio" in block or ("document" in block and self.nova):
                lost.add(part.type, "sent by the user, after the tool's result", at)
                beside.append(block)
            else:
                inside.append(block)
        return inside, beside

    def message(self, turn: Turn, results: Sequence[Result], lost: Lost) -> bytes:
        if turn.role == "assistant":
            return written("assistant", "content", turn.blocks("thought", "call", "other"))
        blocks = [block for result in results for block in result.beside]
        blocks += spoken(turn, lost)
        documents = any(block.startswith(b'{"document"') for block in blocks)
        if documents and not any(block.startswith(b'{"text"') for block in blocks):
            blocks.insert(0, json_text({"text": _SEE}))
        return written("user", "content", [*(result.block for result in results), *blocks])


# --- blocks ---------------------------------------------------------------------------


def _output_text(part: OutputText, lost: Lost, at: str) -> Block | None:
    """Text, as the block that it was cited in if it was."""
    _report(part, lost, at)
    for index, one in enumerate(part.annotations or ()):
        if not _is_own(one):
            lost.add(one.type, _FOREIGN, f"{at}.annotations[{index}]")
    own: Block = dict(kept_object(part, OWN))
    return own or ({"text": part.text} if part.text else None)


def _is_own(annotation: Annotation) -> bool:
    return OWN in kept(annotation) or annotation.type.startswith(f"{PROVIDER}:")


def _cache_point(value: Wire) -> list[Block]:
    raw = kept(value).get("cache_control")
    return [] if raw is None else [cache_point(raw)]


def cache_point(raw: bytes) -> Block:
    """What a `cache_control` is here."""
    ttl = members_of(raw).get("ttl")
    return {"cachePoint": {"type": "default", **({"ttl": ttl} if ttl is not None else {})}}


def _report(value: Wire, lost: Lost, at: str = "") -> None:
    report_unknown(value, lost, at, maker="Bedrock", own={OWN}, cached=True)


def _kind(part: Part, media: Media) -> tuple[str, str | None]:
    """The kind of a block, and its format if Bedrock knows it."""
    if isinstance(part, InputImage):
        return "image", _IMAGES.get(media.type, "jpeg" if not media.type else None)
    for kind, forms in (("image", _IMAGES), ("video", _VIDEOS), ("audio", _SOUNDS)):
        if media.type in forms:
            return kind, forms[media.type]
    return "document", _DOCUMENTS.get(media.type)


def _source(media: Media) -> Block | None:
    if media.data:
        return {"bytes": media.data}
    address = media.url or media.file_id or ""
    return {"s3Location": {"uri": address}} if address.startswith("s3://") else None


def _name(media: Media, at: str) -> str:
    """A document's name: of letters and digits, and no other document's, for it is at its place."""
    stem = re.sub(r"\.\w+$", "", media.name or "") or "Document"
    clean = " ".join(re.sub(r"[^A-Za-z0-9()\[\]-]+", " ", stem).split())[:150]
    return f"{clean or 'Document'} {'-'.join(re.findall('[0-9]+', at))}"


# --- items ----------------------------------------------------------------------------


def _tool_use(call: FunctionCall, lost: Lost) -> Block:
    _report(call, lost)
    return {
        "toolUseId": call.call_id,
        "name": legal_name(call.name, NAME, lost),
        "input": Raw(arguments_text(call.arguments, lost)),
        **kept_object(call, OWN),
    }


def _thought(thought: Reasoning, lost: Lost) -> Block | None:
    unsigned = "not signed; the models that do not sign take no thoughts back"
    signature = sealed(thought, PROVIDER, lost, maker="Bedrock", unsigned=unsigned)
    if not signature:
        return None
    if kept(thought).get(REDACTED) == b"true":
        return {"reasoningContent": {"redactedContent": signature}}
    text = text_of(thought.summary) or text_of(thought.content or ())
    return {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}

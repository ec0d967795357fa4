"""Requests to Gemini: what a transcript says, as the API's contents and parts.

What the API wants back as it gave it stands in marks: `perdure:thought_signature` on a call or a
text part, `perdure:gemini` on an item or a part with members of its part, and the items, parts and
tools whose types begin with `gemini:`, which hold a part or a tool whole.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

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
    spoken,
    written,
)
from perdure.models.mapping.kept import extension, kept, kept_object, kept_text, report_unknown
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.names import legal_name
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
from perdure.wire.foreign import NO_SIGNATURE
from perdure.wire.jsontext import members_of
from perdure.wire.marks import MAKER, SIGNATURE, mark_of
from perdure.wire.media import Media, media_of
from perdure.wire.outputs import ERROR, is_error

PROVIDER = "gemini"
OWN = mark_of(PROVIDER)
"""The mark that holds members of a part."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")

_FOREIGN = "Gemini takes back only what it made itself"
_RESULT_MEDIA = re.compile(r"image/(png|jpeg|webp)|application/pdf|text/plain")
_MEDIA = re.compile(r"(image|audio|video|text)/.+|application/pdf")
_RENAMED = {"application/json": "text/plain", "application/xml": "text/xml"}

ApiPart = dict[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class Contents(BlockForm):
    """How Gemini writes a transcript.

    Attributes:
        signed: Whether the model wants the first call of each of its turns signed, and takes media
            in what a function gave.
    """

    provider: ClassVar[str] = PROVIDER
    whole: ClassVar[str] = "part"
    foreign: ClassVar[str] = _FOREIGN

    signed: bool

    def call_id(self, call_id: str) -> str:
        return call_id

    def _call(self, call: FunctionCall, lost: Lost) -> list[bytes]:
        return [json_text(_function_call(call, lost))]

    def _thought(self, thought: Reasoning, lost: Lost) -> Mapping[str, object] | None:
        return _thought(thought, lost)

    def _message(self, message: Message, lost: Lost) -> Piece | None:
        report_unknown(message, lost, maker="Gemini", own={OWN, SIGNATURE}, cached=False)
        parts = [json_text(part) for part in _parts(message, lost)]
        return said(message, parts, lost, maker="Gemini")

    def result(self, answered: Answered, lost: Lost) -> Result:
        return _function_response(answered.call, answered.output, lost, media=self.signed)

    def message(self, turn: Turn, results: Sequence[Result], lost: Lost) -> bytes:
        if turn.role == "assistant":
            return written("model", "parts", turn.blocks("thought", "call", "other"))
        beside = [part for result in results for part in result.beside]
        answers = [result.block for result in results]
        both = answers, [*beside, *spoken(turn, lost)]
        return b",".join(written("user", "parts", parts) for parts in both if parts)

    def variant(self, turn: Turn) -> bytes | None:
        first = next((piece for piece in turn.pieces if piece.kind == "call"), None)
        if not self.signed or first is None:
            return None
        call = members_of(first.blocks[0])
        if "thoughtSignature" in call:
            return None
        signed = json_text({**call, "thoughtSignature": NO_SIGNATURE})
        return written(
            "model",
            "parts",
            [
                signed if piece is first else block
                for piece in turn.pieces
                for block in piece.blocks
            ],
        )


# --- parts ----------------------------------------------------------------------------


def _parts(message: Message, lost: Lost) -> list[ApiPart]:
    """The parts of a message, none of them empty."""
    if isinstance(message.content, str):
        return [{"text": message.content}] if message.content else []
    user = message.role != "assistant"
    parts = [
        _part(part, lost, f".content[{index}]", user=user)
        for index, part in enumerate(message.content)
    ]
    return [part for part in parts if part is not None]


def _part(part: Part, lost: Lost, at: str, *, user: bool) -> ApiPart | None:
    """The part; None if there is none, which is a loss unless it is empty."""
    match part:
        case Refusal():
            lost.add(part.type, "sent as text", at)
            return {"text": part.refusal} if part.refusal else None
        case OutputText():
            _report_citations(part.annotations or (), lost, at)
            return _text(part.text, part, lost, at)
        case _ if isinstance(part, TextPart):
            return _text(part.text, part, lost, at)
        case InputImage() | InputFile() | InputVideo() | UnknownPart() if user:
            return media_part(part, lost, at)
        case _:
            lost.add(part.type, "Gemini takes no such part from a model", at)
            return None


def _text(text: str, part: Part, lost: Lost, at: str) -> ApiPart | None:
    made: ApiPart = {"text": text, **own_members(part, lost, at)}
    return made if text or "thoughtSignature" in made else None


def own_members(value: Wire, lost: Lost, at: str = "") -> ApiPart:
    """What a value carries for its part, beside what its type says."""
    if not value.kept:
        return {}
    report_unknown(value, lost, at, maker="Gemini", own={OWN, SIGNATURE}, cached=False)
    own: ApiPart = dict(kept_object(value, OWN))
    signature = kept_text(value, SIGNATURE)
    if signature is not None:
        own["thoughtSignature"] = signature
    return own


def media_part(part: Part, lost: Lost, at: str) -> ApiPart | None:
    """An image, a file, a video or a sound."""
    if isinstance(part, UnknownPart):
        raw = extension(part, PROVIDER, "part")
        if raw is not None:
            return dict(members_of(raw))
    media = media_of(part)
    made = _media_members(media)
    if made is None:
        lost.add(
            media.type or part.type,
            "Gemini takes images, sounds, videos, PDF and text, by a type it knows",
            at,
        )
        return None
    detail = getattr(part, "detail", None)
    if detail and detail != "auto":
        lost.add("detail", "Gemini has no such setting of an image", f"{at}.detail")
    return {**made, **own_members(part, lost, at)}


def _media_members(media: Media) -> ApiPart | None:
    type_ = _RENAMED.get(media.type, media.type)
    if media.data is not None:
        if not _MEDIA.fullmatch(type_):
            return None
        return {"inlineData": {"mimeType": type_, "data": media.data}}
    uri = media.file_id or media.url
    if not uri:
        return None
    typed = {"mimeType": type_} if type_ else {}
    return {"fileData": {**typed, "fileUri": uri}}


def _report_citations(annotations: Sequence[Annotation], lost: Lost, at: str) -> None:
    """Gemini never takes a citation back, so its own are none that it misses."""
    for index, one in enumerate(annotations):
        if OWN not in kept(one) and not one.type.startswith(f"{PROVIDER}:"):
            lost.add(one.type, "Gemini takes no citations", f"{at}.annotations[{index}]")


# --- items ----------------------------------------------------------------------------


def _function_call(call: FunctionCall, lost: Lost) -> ApiPart:
    return {
        "functionCall": {
            "id": call.call_id,
            "name": legal_name(call.name, NAME, lost),
            "args": Raw(arguments_text(call.arguments, lost)),
        },
        **own_members(call, lost),
    }


def _thought(thought: Reasoning, lost: Lost) -> ApiPart | None:
    maker, signature = kept_text(thought, MAKER), thought.encrypted_content or None
    if maker != PROVIDER and (maker or signature):
        lost.add(thought.type, f"signed by {maker or 'another provider'}; {_FOREIGN}")
        return None
    text = text_of(thought.summary) or text_of(thought.content or ())
    if not text and signature is None:
        return None
    signed = {} if signature is None else {"thoughtSignature": signature}
    return {"text": text, "thought": True, **signed}


def _function_response(
    call: FunctionCall, output: FunctionCallOutput | None, lost: Lost, *, media: bool
) -> Result:
    quiet = Lost()
    made: ApiPart = {"id": call.call_id, "name": legal_name(call.name, NAME, quiet)}
    if output is None:
        made["response"] = {"error": NO_OUTPUT.removeprefix(ERROR)}
        return Result(json_text({"functionResponse": made}))
    inside: list[ApiPart] = []
    beside: list[bytes] = []
    for index, part in enumerate(() if isinstance(output.output, str) else output.output):
        at = f".output[{index}]"
        if isinstance(part, TextPart):
            continue
        found = media_part(part, lost, at)
        if found is None:
            continue
        if media and _stands_inside(found):
            inside.append(found)
        else:
            lost.add(part.type, "sent by the user, after the function's response", at)
            beside.append(json_text(found))
    made["response"] = _response(output.text, media=bool(inside or beside))
    if inside:
        made["parts"] = inside
    report_unknown(output, lost, maker="Gemini", own={OWN, SIGNATURE}, cached=False)
    return Result(json_text({"functionResponse": made, **kept_object(output, OWN)}), beside)


def _stands_inside(part: ApiPart) -> bool:
    for name in ("inlineData", "fileData"):
        data = part.get(name)
        if isinstance(data, dict):
            type_ = cast("dict[str, object]", data).get("mimeType", "")
            return bool(_RESULT_MEDIA.fullmatch(str(type_)))
    return False


def _response(text: str, *, media: bool) -> object:
    """What a function gave, as the object that the API wants."""
    if is_error(text):
        return {"error": text.removeprefix(ERROR)}
    if not text and media:
        return {}
    try:
        value = msgspec.json.decode(text.encode(), type=Raw)
        first = bytes(value)[:1]
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {"output": text}
    if first == b"{":
        return value
    return {"output": value if first == b"[" else text}

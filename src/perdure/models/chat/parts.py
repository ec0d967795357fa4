"""Parts of content as Chat Completions writes them.

What a service has no place for is told to a `Lost`; text files, which few services take, become
text where their bytes are at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.models.dialects import Dialect
from perdure.models.mapping.kept import kept
from perdure.models.mapping.losses import Lost
from perdure.wire import (
    InputFile,
    InputImage,
    InputVideo,
    Part,
    Refusal,
    UnknownPart,
    Wire,
)
from perdure.wire.jsontext import members_of, text_of_raw
from perdure.wire.marks import MAKER, REDACTED
from perdure.wire.media import Media, data_url, is_text, media_of, text_of_media

ChatPart = dict[str, object]
"""One part of a message's content."""

_NO_PLACE = "the service takes none"


def content_parts(content: str | Sequence[Part], dialect: Dialect, lost: Lost) -> list[ChatPart]:
    """What a user or a system may say, without what is empty."""
    if isinstance(content, str):
        return [text_part(content)] if content else []
    found: list[ChatPart] = []
    base = lost.at
    for index, part in enumerate(content):
        lost.at = f"{base}.content[{index}]"
        made = _part(part, dialect, lost)
        if made is not None:
            found.append(made)
    lost.at = base
    return found


def text_part(text: str) -> ChatPart:
    """Text."""
    return {"type": "text", "text": text}


def flat(parts: list[ChatPart]) -> str | list[ChatPart]:
    """A content: plain text where it is one text and nothing else."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return str(parts[0]["text"])
    return parts


class Output(NamedTuple):
    """What a tool gave.

    Attributes:
        texts: What its message says.
        attachments: What no tool message can hold, for a user message after it.
    """

    texts: list[ChatPart]
    attachments: list[ChatPart]


def output_parts(output: str | Sequence[Part], label: str, dialect: Dialect, lost: Lost) -> Output:
    """The output of a call.

    Args:
        output: What the tool gave.
        label: What an attachment is called.
        dialect: Who reads it.
        lost: Where losses go.
    """
    if isinstance(output, str):
        return Output([text_part(output)], [])
    texts: list[ChatPart] = []
    attachments: list[ChatPart] = []
    base = lost.at
    for index, part in enumerate(output):
        lost.at = f"{base}.output[{index}]"
        made = _part(part, dialect, lost)
        if made is None:
            continue
        if made["type"] == "text":
            texts.append(made)
            continue
        name = f"{label}#{len(attachments) // 2 + 1}"
        lost.add(part.type, "a tool message holds text alone; sent in a user message after it")
        texts.append(text_part(f"See attachment {name}."))
        attachments += [text_part(f"Attachment {name}:"), made]
    lost.at = base
    return Output(texts, attachments)


def _part(part: Part, dialect: Dialect, lost: Lost) -> ChatPart | None:
    made: ChatPart | None
    match part:
        case InputImage():
            made = _image(part, dialect, lost)
        case InputFile():
            made = _file(part, dialect, lost)
        case InputVideo():
            made = _video(part, dialect, lost)
        case Refusal():
            made = text_part(part.refusal) if part.refusal else None
        case UnknownPart():
            return _unknown(part, dialect, lost)
        case _:
            made = text_part(part.text) if part.text else None
    if made is not None:
        made.update(own_members(part, dialect.part_members))
        note_unknown(part, lost, *dialect.part_members)
    return made


def _image(part: InputImage, dialect: Dialect, lost: Lost) -> ChatPart | None:
    if not dialect.images or not part.image_url:
        lost.add(part.type, _NO_PLACE if part.image_url else "it is known by a file id alone")
        return None
    return _image_at(part.image_url, part.detail or "auto")


def _image_at(url: str, detail: str) -> ChatPart:
    image: ChatPart = {"url": url}
    if detail != "auto":
        image["detail"] = detail
    return {"type": "image_url", "image_url": image}


def _video(part: InputVideo, dialect: Dialect, lost: Lost) -> ChatPart | None:
    if not dialect.video:
        lost.add(part.type, _NO_PLACE)
        return None
    return {"type": "video_url", "video_url": {"url": part.video_url}}


# --- files -----------------------------------------------------------------------------


def _file(part: InputFile, dialect: Dialect, lost: Lost) -> ChatPart | None:
    media = media_of(part)
    if media.type.startswith("image/") and dialect.images and (media.data or media.url):
        return _image_at(_address(media), "auto")
    if media.type.startswith("audio/") and dialect.audio and media.data:
        return _audio(media.data, media.type, dialect)
    if dialect.files == "document":
        return _document(media, part, lost)
    if dialect.files and not is_text(media):
        return _own_file(media, part, dialect, lost)
    text = text_of_media(media) if is_text(media) else None
    if text is None:
        lost.add(part.type, "the service takes no such file")
        return None
    lost.add(part.type, "the service takes no text files; sent as text")
    name = media.name or "file"
    return text_part(f'<file name="{name}" type="{media.type}">\n{text}\n</file>')


def _own_file(media: Media, part: InputFile, dialect: Dialect, lost: Lost) -> ChatPart | None:
    file: ChatPart = {"filename": media.name} if media.name else {}
    if media.data:
        file["file_data"] = _address(media)
    elif media.url and dialect.files == "url":
        file["file_data"] = media.url
    elif media.file_id and dialect.files == "data":
        file = {"file_id": media.file_id}
    else:
        why = "a URL" if media.url else "a file id"
        lost.add(part.type, f"the service does not take files by {why}")
        return None
    return {"type": "file", "file": file}


def _document(media: Media, part: InputFile, lost: Lost) -> ChatPart | None:
    if media.data or media.url:
        named: ChatPart = {"document_name": media.name} if media.name else {}
        return {"type": "document_url", "document_url": _address(media), **named}
    if media.file_id:
        return {"type": "file", "file_id": media.file_id}
    lost.add(part.type, "it holds nothing")
    return None


def _address(media: Media) -> str:
    return data_url(media.type, media.data) if media.data else media.url or ""


# --- audio, and types nobody registered ---------------------------------------------------

_FORMATS = {"audio/mp3": "mp3", "audio/mpeg": "mp3", "audio/x-wav": "wav"}


def _audio(data: str, type_: str, dialect: Dialect) -> ChatPart:
    if dialect.audio == "data":
        return {"type": "input_audio", "input_audio": data}
    format_ = _FORMATS.get(type_) or type_.partition("/")[2]
    return {"type": "input_audio", "input_audio": {"data": data, "format": format_}}


def _unknown(part: UnknownPart, dialect: Dialect, lost: Lost) -> ChatPart | None:
    audio = members_of(part.source.raw).get("input_audio") if part.type == "input_audio" else None
    if audio is None or not dialect.audio:
        lost.add(part.type, _NO_PLACE)
        return None
    if dialect.audio == "object":
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "input_audio", "input_audio": text_of_raw(members_of(audio).get("data")) or ""}


# --- members that a type does not know -------------------------------------------------------


def own_members(value: Wire, names: Sequence[str]) -> dict[str, object]:
    """Members that the service knows though the wire's type does not."""
    members = kept(value)
    return {name: msgspec.Raw(members[name]) for name in names if name in members}


def note_unknown(value: Wire, lost: Lost, *known: str) -> None:
    """Tell of the members that neither the wire's type nor the service knows."""
    for name in kept(value):
        if name not in {*known, MAKER, REDACTED, *value.__struct_encode_fields__}:
            lost.add(name, "the service has no place for it", f".{name}")

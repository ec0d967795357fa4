"""Images, files, videos and sounds, however a part gives them; data URLs."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import NamedTuple

from perdure.wire.jsontext import members_of, text_of_raw
from perdure.wire.parts import InputFile, InputImage, InputVideo, Part, UnknownPart
from perdure.wire.values import Absent


class DataUrl(NamedTuple):
    """What a data URL holds.

    Attributes:
        type: The media type; empty if it says none.
        data: The bytes in base64.
    """

    type: str
    data: str


def data_url(type_: str, data: str) -> str:
    """The data URL of bytes in base64."""
    return f"data:{type_ or 'application/octet-stream'};base64,{data}"


def read_data_url(url: str) -> DataUrl | None:
    """What a data URL holds; None if it is none."""
    found = _DATA_URL.match(url)
    if found is None:
        return None
    data = url[found.end() :]
    if ";base64" not in found[2].lower():
        from urllib.parse import unquote_to_bytes

        data = b64encode(unquote_to_bytes(data)).decode()
    return DataUrl(found[1].lower(), data)


_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)

_TYPES = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "log": "text/plain",
    "py": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "htm": "text/html",
    "html": "text/html",
    "xml": "text/xml",
    "json": "application/json",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "heif": "image/heif",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "aac": "audio/aac",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "aiff": "audio/aiff",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "mpg": "video/mpeg",
    "mov": "video/quicktime",
    "mkv": "video/x-matroska",
    "webm": "video/webm",
    "wmv": "video/x-ms-wmv",
    "flv": "video/x-flv",
    "3gp": "video/3gpp",
}

_MAGIC = (
    ("JVBERi0", "application/pdf"),
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
)


class Media(NamedTuple):
    """Bytes with their type, or where they are.

    Attributes:
        type: The media type; empty if nothing says it.
        data: The bytes in base64; None if there is only an address.
        url: The address.
        file_id: The provider's own name for an uploaded file.
        name: The file's name.
    """

    type: str = ""
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None


def media_of(part: Part) -> Media:
    """What an image, a file, a video or a sound is, however it was given; nothing for the rest."""
    match part:
        case InputImage():
            return _media(part.image_url, None, part.file_id, None)
        case InputFile():
            return _media(part.file_url, part.file_data, part.file_id, part.filename)
        case InputVideo():
            media = _media(part.video_url, None, None, None)
            return media if media.type else media._replace(type="video/mp4")
        case UnknownPart(type="input_audio"):
            audio = members_of(members_of(part.source.raw).get("input_audio", b"{}"))
            form = text_of_raw(audio.get("format")) or "wav"
            return Media(f"audio/{form}", data=text_of_raw(audio.get("data")))
        case _:
            return Media()


Given = str | Absent | None


def _media(url: Given, data: Given, file_id: Given, name: Given) -> Media:
    label = name or None
    given = data or (url if isinstance(url, str) and url[:5].lower() == "data:" else None)
    if given:
        return _inline(given, label)
    if url:
        return Media(type_of_name(label) or type_of_name(url), url=url, name=label)
    return Media(type_of_name(label), file_id=file_id or None, name=label)


def _inline(given: str, name: str | None) -> Media:
    found = read_data_url(given)
    if found is None:
        return Media(type_of_name(name) or _type_of_bytes(given), data=given, name=name)
    return Media(found.type or type_of_name(name), data=found.data, name=name)


def type_of_name(name: str | None) -> str:
    """The media type that a file name, or the path of an address, ends in; empty if none."""
    if not name:
        return ""
    path = re.split(r"[?#]", name, maxsplit=1)[0]
    return _TYPES.get(path.rpartition(".")[2].lower(), "")


def _type_of_bytes(data: str) -> str:
    return next((type_ for magic, type_ in _MAGIC if data.startswith(magic)), "")


def text_of_media(media: Media) -> str | None:
    """The text of a file that is text; None if it is not."""
    if media.data is None:
        return None
    try:
        return b64decode(media.data, validate=False).decode()
    except (Base64Error, ValueError):
        return None


def is_text(media: Media) -> bool:
    """Whether the media type is one of text."""
    return media.type.startswith("text/") or media.type in {"application/json", "application/xml"}

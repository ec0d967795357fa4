"""What foreign request formats share: JSON texts, media, arguments, names and ids they take.

Everything here is a function of values; what a value loses on its way is told to a `Lost`.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from perdure.errors import ConfigError
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.makers import is_mark, report_marks
from perdure.wire import (
    ABSENT,
    Absent,
    CompactRequest,
    InputFile,
    InputImage,
    InputVideo,
    Kept,
    Part,
    Request,
    UnknownAnnotation,
    UnknownItem,
    UnknownPart,
    UnknownTool,
    UnknownToolChoice,
    Wire,
    scalar_text,
)

# --- JSON ------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode


def json_text(value: object) -> bytes:
    """The JSON text of a value. Lone surrogates, which no request can carry, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_clean(value))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return scalar_text(value)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {scalar_text(name): _clean(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [_clean(element) for element in cast("list[object]", value)]
    return value


def object_text(arguments: str) -> bytes | None:
    """Arguments as the text of a JSON object, exactly as they are; None if they are none.

    Empty arguments are an empty object.
    """
    if not arguments or arguments.isspace():
        return b"{}"
    try:
        raw = arguments.encode()
        _decode_object(raw)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return raw.strip()


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def input_text_of(pieces: Sequence[str]) -> msgspec.Raw:
    """The input of a call that came in pieces; as a string if it was cut, and is no JSON."""
    text = scalar_text("".join(pieces))
    try:
        return msgspec.json.decode(text.encode(), type=msgspec.Raw).copy()
    except msgspec.DecodeError:
        return msgspec.Raw(_encode(text))


def arguments_text(arguments: str, lost: Lost) -> bytes:
    """Arguments for a provider that takes nothing but an object."""
    raw = object_text(arguments)
    if raw is not None:
        return raw
    lost.add("arguments", "no JSON object; sent as the text of a member 'arguments'", ".arguments")
    return json_text({"arguments": arguments})


# --- what is kept beside typed members ----------------------------------------------

_NOTHING: dict[str, bytes] = {}


def kept(value: Wire) -> Mapping[str, bytes]:
    """The members that the type of a value does not know, each with its JSON text."""
    return value.kept.members if value.kept else _NOTHING


def kept_object(value: Wire, name: str) -> dict[str, msgspec.Raw]:
    """A member that the type does not know, if it is an object: its members."""
    raw = kept(value).get(name)
    return members_of(raw) if raw is not None else {}


def members_of(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object; none if the text is no object."""
    try:
        return _decode_object(raw)
    except msgspec.DecodeError:
        return {}


def kept_text(value: Wire, name: str) -> str | None:
    """A member that the type does not know, if it is a string."""
    return text_of_raw(kept(value).get(name))


def text_of_raw(raw: bytes | msgspec.Raw | None) -> str | None:
    """The string of a JSON text, if it is one."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return None


Extension = UnknownItem | UnknownPart | UnknownAnnotation | UnknownTool | UnknownToolChoice


def extension(value: Extension, maker: str, member: str) -> msgspec.Raw | None:
    """What an extension of a maker's holds in a member; None for one of somebody else's."""
    if not value.type.startswith(f"{maker}:"):
        return None
    return members_of(value.source.raw).get(member)


def as_unknown(members: Mapping[str, object]) -> Kept:
    """Members for the `kept` of a new value."""
    return Kept({name: _encode(member) for name, member in members.items()}, frozenset())


def report_unknown(
    value: Wire, lost: Lost, at: str = "", *, maker: str, own: Collection[str], cached: bool
) -> None:
    """Note the members that nobody here knows, and the marks of other makers.

    Args:
        value: What carries them.
        lost: Where they are noted.
        at: Where the value stands.
        maker: Who does not take them.
        own: The marks that it takes.
        cached: Whether a `cache_control` is taken.
    """
    report_marks(value, lost, at, own=own)
    for name, raw in kept(value).items():
        known = is_mark(name) or (cached and name == "cache_control")
        if not known and raw != b"null":
            lost.add(name, f"{maker} has no such member", f"{at}.{name}")


# --- media -------------------------------------------------------------------------

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
    found = _DATA_URL.match(given)
    if found is None:
        return Media(type_of_name(name) or _type_of_bytes(given), data=given, name=name)
    data = given[found.end() :]
    if ";base64" not in found[2].lower():
        from urllib.parse import unquote_to_bytes

        data = b64encode(unquote_to_bytes(data)).decode()
    return Media(found[1].lower() or type_of_name(name), data=data, name=name)


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


# --- settings ------------------------------------------------------------------------


def refuse_held(request: Request | CompactRequest) -> None:
    """Refuse a conversation that a server holds: the history is always sent whole (DESIGN 5).

    Raises:
        ConfigError: The request names one.
    """
    for name, value in (
        ("previous_response_id", request.previous_response_id),
        ("conversation", request.unknown.get("conversation")),
    ):
        if value:
            raise ConfigError(
                f"{name} {value!r} names a conversation that the server holds; "
                "perdure sends the whole history, so give its items as input"
            )


def model_named(settings: Request) -> str:
    """The model that the settings name.

    Raises:
        ConfigError: They name none.
    """
    if not settings.model:
        raise ConfigError("the settings name no model")
    return settings.model


def report_settings(settings: Request, names: Sequence[str], lost: Lost, *, maker: str) -> None:
    """Note the settings that a provider has not.

    Args:
        settings: The settings.
        names: The members that it has not; how to shorten the input and what to include, which
            none of those who need this have, go without saying.
        lost: Where they are noted.
        maker: Who the provider is.
    """
    for name in names:
        if getattr(settings, name):
            lost.add(name, f"{maker} has no such setting", name)
    if settings.truncation and settings.truncation != "disabled":
        lost.add("truncation", f"{maker} never shortens the input", "truncation")
    for index, name in enumerate(settings.include or ()):
        if name != "reasoning.encrypted_content":
            lost.add(name, f"{maker} has nothing of the kind", f"include[{index}]")


def stops_of(settings: Request) -> list[str]:
    """The texts to stop at, which the wire has no member for: `stop`, or `stop_sequences`."""
    members = kept(settings)
    raw = members.get("stop_sequences") or members.get("stop") or b"null"
    stop = msgspec.json.decode(raw, type=str | list[str] | None)
    return [stop] if isinstance(stop, str) else stop or []


def merged(made: object, own: msgspec.Raw) -> object:
    """A member with a provider's own put into it: its members win, one by one."""
    inner = members_of(own)
    if not isinstance(made, Mapping) or not inner:
        return own
    found = dict(cast("Mapping[str, object]", made))
    for name, raw in inner.items():
        found[name] = merged(found.get(name), raw)
    return found


def checked_name(name: str, pattern: re.Pattern[str]) -> str:
    """The name of a tool, as a provider takes it.

    Raises:
        ConfigError: It takes no such name.
    """
    if not pattern.fullmatch(name):
        raise ConfigError(
            f"the provider takes no tool named {name!r}: it must be {pattern.pattern}"
        )
    return name


# --- names and ids -------------------------------------------------------------------


def legal_id(call_id: str, pattern: re.Pattern[str]) -> str:
    """A call id that a provider takes: as it is, or one that stands for it alone, always the same.

    Args:
        call_id: The id.
        pattern: What the provider takes, whole.
    """
    if pattern.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def legal_name(name: str, pattern: re.Pattern[str], lost: Lost) -> str:
    """A function name, in a call that was made, that a provider takes."""
    if pattern.fullmatch(name):
        return name
    lost.add(name, "the provider takes no such function name; sent with '_' in it", ".name")
    legal = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
    return legal if pattern.fullmatch(legal) else "_" + legal[:63]


def given(value: object) -> bool:
    """Whether a member says anything."""
    return value is not None and value is not ABSENT

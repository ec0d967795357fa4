"""Parts of content as Chat messages write them, and back.

What a part has beside what its type knows goes along as it is; what cannot stands in the mark
`perdure:chat`, in `set`. A part of a type that nobody registered is kept whole, as `chat:TYPE`.
"""

from __future__ import annotations

from perdure.errors import DecodeError
from perdure.formats.marks import difference, kept, put
from perdure.formats.values import Json, is_array, is_object, member, text
from perdure.wire.marks import is_mark, mark_of

MARK = mark_of("chat")
PREFIX = "chat:"

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_KNOWN = frozenset(
    [
        "type",
        "text",
        "annotations",
        "logprobs",
        "refusal",
        "image_url",
        "detail",
        "file_id",
        "filename",
        "file_data",
        "file_url",
        "video_url",
        "part",
    ]
)
"""Members that have a meaning on a part of the wire, so that nothing else may go by their names."""


def chat_part(part: Json) -> Json | None:
    """A part as Chat writes it; None if Chat has nothing like it."""
    made = _chat_part(part)
    return made if made and text(made, "type") else None


def _chat_part(part: Json) -> Json | None:
    made = _natural(part)
    if made is None or part.get("type") == f"{PREFIX}{made.get('type')}":
        return made
    beside = {
        name: one
        for name, one in part.items()
        if name not in _KNOWN and name not in made and not is_mark(name)
    }
    own = member(part, MARK)
    return kept(part, MARK, {**made, **beside, **member(own, "set")})


def _natural(part: Json) -> Json | None:
    match part:
        case {"type": str(kind), "text": str(said)} if kind in _TEXTS:
            return {"type": "text", "text": said}
        case {"type": "refusal", "refusal": str(said)}:
            return {"type": "refusal", "refusal": said}
        case {"type": "input_image", "image_url": str(url)}:
            detail = text(part, "detail")
            shown: Json = {"detail": detail} if detail not in {"", "auto"} else {}
            return {"type": "image_url", "image_url": {"url": url, **shown}}
        case {"type": "input_video", "video_url": str(url)}:
            return {"type": "video_url", "video_url": {"url": url}}
        case {"type": "input_file"}:
            return _file(part)
        case {"type": "input_audio", "input_audio": dict()}:
            return {"type": "input_audio", "input_audio": part["input_audio"]}
        case {"type": str(kind), "part": dict()} if kind.startswith(PREFIX):
            return member(part, "part")
        case _:
            return None


def _file(part: Json) -> Json | None:
    address = text(part, "file_data") or text(part, "file_url")
    if member(part, MARK).get("as") == "document_url" and address:
        return {"type": "document_url", "document_url": address}
    file: Json = {name: one for name, one in part.items() if name in {"filename", "file_id"}}
    if address:
        file["file_data"] = address
    return {"type": "file", "file": file} if address or "file_id" in file else None


def wire_part(given: object, path: str, *, assistant: bool) -> Json:
    """The part of one of Chat's.

    Raises:
        DecodeError: It is no object with a type.
    """
    if not is_object(given) or not text(given, "type"):
        raise DecodeError("a part is an object with a type", path=path)
    part = _wire_part(given, assistant=assistant)
    made = chat_part(part)
    if made is None:
        return {"type": f"{PREFIX}{text(given, 'type')}", "part": given}
    changed, without = difference(made, given)
    beside = {
        name: one
        for name, one in changed.items()
        if name not in _KNOWN and name not in part and not is_mark(name)
    }
    part |= beside
    put(part, MARK, set={k: v for k, v in changed.items() if k not in beside}, without=without)
    return part


def _wire_part(given: Json, *, assistant: bool) -> Json:
    match given:
        case {"type": "text", "text": str(said)}:
            if assistant:
                return {"type": "output_text", "text": said, "annotations": []}
            return {"type": "input_text", "text": said}
        case {"type": "refusal", "refusal": str(said)}:
            return {"type": "refusal", "refusal": said}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            detail = text(member(given, "image_url"), "detail") or "auto"
            return {"type": "input_image", "image_url": url, "detail": detail}
        case {"type": "video_url", "video_url": {"url": str(url)}}:
            return {"type": "input_video", "video_url": url}
        case {"type": "input_audio", "input_audio": dict()}:
            return {"type": "input_audio", "input_audio": given["input_audio"]}
        case {"type": "document_url", "document_url": str(url)} if url:
            return {"type": "input_file", **_address(url), MARK: {"as": "document_url"}}
        case {"type": "file", "file": dict()}:
            file = member(given, "file")
            named: Json = {n: file[n] for n in ("filename", "file_id") if text(file, n)}
            data = text(file, "file_data")
            if data or "file_id" in named:
                return {"type": "input_file", **named, **(_address(data) if data else {})}
        case _:
            pass
    return {"type": f"{PREFIX}{text(given, 'type')}", "part": given}


def _address(data: str) -> Json:
    return {"file_url" if data.startswith(("http:", "https:")) else "file_data": data}


def chat_parts(parts: list[Json]) -> tuple[list[Json], tuple[int, ...]]:
    """The parts of a list, and the places of those that Chat has nothing like."""
    made = [chat_part(part) for part in parts]
    gaps = tuple(place for place, one in enumerate(made) if one is None)
    return [one for one in made if one is not None], gaps


def wire_parts(content: object, path: str, *, assistant: bool) -> list[Json]:
    """The parts of a content: of a text, one.

    Raises:
        DecodeError: It is neither a text nor a list of parts.
    """
    if isinstance(content, str):
        return [wire_part({"type": "text", "text": content}, path, assistant=assistant)]
    if not is_array(content):
        raise DecodeError("the content is neither a text nor a list of parts", path=path)
    return [
        wire_part(one, f"{path}.content[{index}]", assistant=assistant)
        for index, one in enumerate(content)
    ]

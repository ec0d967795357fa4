"""What Gemini's text rests on, as citations.

*grounding*: the pages and documents the model was given, and which stretches of its text rest on
which. It counts bytes of UTF-8, and the wire characters.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from perdure.models.gemini.contents import OWN, PROVIDER
from perdure.models.mapping.kept import as_unknown
from perdure.models.mapping.texts import json_text
from perdure.wire import Annotation, Source, UnknownAnnotation, UrlCitation
from perdure.wire.jsontext import members_of, text_of_raw


class _Segment(msgspec.Struct, rename="camel"):
    start_index: int = 0
    end_index: int = 0
    text: str = ""


class _Support(msgspec.Struct, rename="camel"):
    segment: _Segment
    grounding_chunk_indices: list[int] = []


class _Grounding(msgspec.Struct, rename="camel"):
    grounding_chunks: list[dict[str, Raw]] = []
    grounding_supports: list[_Support] = []


def annotations_of(grounding: Raw, text: str) -> Iterator[Annotation]:
    """The citations of a text; none if the grounding is not what it should be."""
    try:
        found = msgspec.json.decode(grounding, type=_Grounding)
    except msgspec.DecodeError:
        return
    for support in found.grounding_supports:
        start, end = _span(support.segment, text)
        for index in support.grounding_chunk_indices:
            if 0 <= index < len(found.grounding_chunks):
                for kind, chunk in found.grounding_chunks[index].items():
                    yield _annotation(kind, chunk, start, end)


def _span(segment: _Segment, text: str) -> tuple[int, int]:
    """Where a segment stands in the text, in characters; the whole text if nobody knows."""
    raw = text.encode("utf-8", "surrogatepass")
    before = raw[: segment.start_index].decode("utf-8", "ignore")
    said = raw[segment.start_index : segment.end_index].decode("utf-8", "ignore")
    if said == segment.text:
        return len(before), len(before) + len(said)
    at = text.find(segment.text) if segment.text else -1
    return (at, at + len(segment.text)) if at >= 0 else (0, len(text))


def _annotation(kind: str, chunk: Raw, start: int, end: int) -> Annotation:
    members = members_of(chunk)
    url = text_of_raw(members.get("uri"))
    if url is not None:
        return UrlCitation(
            url=url,
            title=text_of_raw(members.get("title")) or "",
            start_index=start,
            end_index=end,
            kept=as_unknown({OWN: {kind: chunk}}),
        )
    type_ = f"{PROVIDER}:{kind}"
    told = {"type": type_, "start_index": start, "end_index": end, kind: chunk}
    return UnknownAnnotation(type=type_, source=Source(json_text(told)))

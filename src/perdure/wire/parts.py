"""Content parts of messages, reasoning and function outputs, and what hangs on them."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from perdure.wire.values import ABSENT, Absent, Source, Wire


class TopLogProb(Wire, frozen=True, kw_only=True):
    """One candidate token."""

    token: str
    logprob: int | float
    bytes: tuple[int, ...] | None | Absent = ABSENT


class LogProb(Wire, frozen=True, kw_only=True):
    """One emitted token with its candidates."""

    token: str
    logprob: int | float
    bytes: tuple[int, ...] | None | Absent = ABSENT
    top_logprobs: tuple[TopLogProb, ...] | Absent = ABSENT


class UrlCitation(Wire, frozen=True, kw_only=True, tag="url_citation"):
    """A citation; the indexes count characters of the part's text."""

    type: ClassVar[Literal["url_citation"]] = "url_citation"
    url: str
    title: str
    start_index: int
    end_index: int


class UnknownAnnotation(Wire, frozen=True, kw_only=True, tag="\x7fannotation"):
    """An annotation of a type nobody registered."""

    type: str = msgspec.field(name="\x7ftype")
    source: Source


Annotation: TypeAlias = UrlCitation | UnknownAnnotation


class InputText(Wire, frozen=True, kw_only=True, tag="input_text"):
    type: ClassVar[Literal["input_text"]] = "input_text"
    text: str


class InputImage(Wire, frozen=True, kw_only=True, tag="input_image"):
    """An image by URL (`https:` or `data:`) or by a file id of the provider's."""

    type: ClassVar[Literal["input_image"]] = "input_image"
    image_url: str | None | Absent = ABSENT
    detail: str | None | Absent = ABSENT
    file_id: str | None | Absent = ABSENT


class InputFile(Wire, frozen=True, kw_only=True, tag="input_file"):
    """A file: base64 data, a URL, or a file id of the provider's."""

    type: ClassVar[Literal["input_file"]] = "input_file"
    filename: str | None | Absent = ABSENT
    file_data: str | None | Absent = ABSENT
    file_url: str | None | Absent = ABSENT
    file_id: str | None | Absent = ABSENT


class InputVideo(Wire, frozen=True, kw_only=True, tag="input_video"):
    type: ClassVar[Literal["input_video"]] = "input_video"
    video_url: str


class OutputText(Wire, frozen=True, kw_only=True, tag="output_text"):
    type: ClassVar[Literal["output_text"]] = "output_text"
    text: str
    annotations: tuple[Annotation, ...] | Absent = ABSENT
    logprobs: tuple[LogProb, ...] | Absent = ABSENT


class Refusal(Wire, frozen=True, kw_only=True, tag="refusal"):
    type: ClassVar[Literal["refusal"]] = "refusal"
    refusal: str


class Text(Wire, frozen=True, kw_only=True, tag="text"):
    """Text inside a function output."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class SummaryText(Wire, frozen=True, kw_only=True, tag="summary_text"):
    type: ClassVar[Literal["summary_text"]] = "summary_text"
    text: str


class ReasoningText(Wire, frozen=True, kw_only=True, tag="reasoning_text"):
    type: ClassVar[Literal["reasoning_text"]] = "reasoning_text"
    text: str


class UnknownPart(Wire, frozen=True, kw_only=True, tag="\x7fpart"):
    """A part of a type nobody registered."""

    type: str = msgspec.field(name="\x7ftype")
    source: Source


Part: TypeAlias = (
    InputText
    | InputImage
    | InputFile
    | InputVideo
    | OutputText
    | Refusal
    | Text
    | SummaryText
    | ReasoningText
    | UnknownPart
)

TextPart: TypeAlias = InputText | OutputText | Text | SummaryText | ReasoningText


def text_of(content: str | tuple[Part, ...]) -> str:
    """The text of a content, concatenated. A refusal is not text."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))

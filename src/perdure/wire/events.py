"""Stream events: the 24 of the specification, and the second spelling of the reasoning deltas.

Events name an item by its id and its place in the output. `sequence_number` counts from 0 within a
stream; some servers leave it out. The last event of a stream is *terminal*: completed, incomplete
or failed.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from perdure.wire.items import Item
from perdure.wire.parts import Annotation, LogProb, Part
from perdure.wire.responses import ErrorPayload, Response
from perdure.wire.values import ABSENT, Absent, Source, Wire


class ResponseCreated(Wire, frozen=True, kw_only=True, tag="response.created"):
    """The first event of a stream."""

    type: ClassVar[Literal["response.created"]] = "response.created"
    sequence_number: int | Absent = ABSENT
    response: Response


class ResponseQueued(Wire, frozen=True, kw_only=True, tag="response.queued"):
    type: ClassVar[Literal["response.queued"]] = "response.queued"
    sequence_number: int | Absent = ABSENT
    response: Response


class ResponseInProgress(Wire, frozen=True, kw_only=True, tag="response.in_progress"):
    type: ClassVar[Literal["response.in_progress"]] = "response.in_progress"
    sequence_number: int | Absent = ABSENT
    response: Response


class ResponseCompleted(Wire, frozen=True, kw_only=True, tag="response.completed"):
    """Terminal: the response is whole."""

    type: ClassVar[Literal["response.completed"]] = "response.completed"
    sequence_number: int | Absent = ABSENT
    response: Response


class ResponseFailed(Wire, frozen=True, kw_only=True, tag="response.failed"):
    """Terminal: the response failed."""

    type: ClassVar[Literal["response.failed"]] = "response.failed"
    sequence_number: int | Absent = ABSENT
    response: Response


class ResponseIncomplete(Wire, frozen=True, kw_only=True, tag="response.incomplete"):
    """Terminal: the response was cut; `incomplete_details` says why."""

    type: ClassVar[Literal["response.incomplete"]] = "response.incomplete"
    sequence_number: int | Absent = ABSENT
    response: Response


class OutputItemAdded(Wire, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item opens."""

    type: ClassVar[Literal["response.output_item.added"]] = "response.output_item.added"
    sequence_number: int | Absent = ABSENT
    output_index: int
    item: Item | None


class OutputItemDone(Wire, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is whole."""

    type: ClassVar[Literal["response.output_item.done"]] = "response.output_item.done"
    sequence_number: int | Absent = ABSENT
    output_index: int
    item: Item | None


class ContentPartAdded(Wire, frozen=True, kw_only=True, tag="response.content_part.added"):
    type: ClassVar[Literal["response.content_part.added"]] = "response.content_part.added"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    part: Part


class ContentPartDone(Wire, frozen=True, kw_only=True, tag="response.content_part.done"):
    type: ClassVar[Literal["response.content_part.done"]] = "response.content_part.done"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    part: Part


class OutputTextDelta(Wire, frozen=True, kw_only=True, tag="response.output_text.delta", gc=False):
    type: ClassVar[Literal["response.output_text.delta"]] = "response.output_text.delta"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: tuple[LogProb, ...] | Absent = ABSENT
    obfuscation: str | Absent = ABSENT


class OutputTextDone(Wire, frozen=True, kw_only=True, tag="response.output_text.done"):
    type: ClassVar[Literal["response.output_text.done"]] = "response.output_text.done"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: tuple[LogProb, ...] | Absent = ABSENT


class RefusalDelta(Wire, frozen=True, kw_only=True, tag="response.refusal.delta", gc=False):
    type: ClassVar[Literal["response.refusal.delta"]] = "response.refusal.delta"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    delta: str
    obfuscation: str | Absent = ABSENT


class RefusalDone(Wire, frozen=True, kw_only=True, tag="response.refusal.done"):
    type: ClassVar[Literal["response.refusal.done"]] = "response.refusal.done"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    refusal: str


class FunctionCallArgumentsDelta(
    Wire, frozen=True, kw_only=True, tag="response.function_call_arguments.delta", gc=False
):
    type: ClassVar[Literal["response.function_call_arguments.delta"]] = (
        "response.function_call_arguments.delta"
    )
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    delta: str
    obfuscation: str | Absent = ABSENT


class FunctionCallArgumentsDone(
    Wire, frozen=True, kw_only=True, tag="response.function_call_arguments.done"
):
    type: ClassVar[Literal["response.function_call_arguments.done"]] = (
        "response.function_call_arguments.done"
    )
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    arguments: str


class ReasoningSummaryPartAdded(
    Wire, frozen=True, kw_only=True, tag="response.reasoning_summary_part.added"
):
    type: ClassVar[Literal["response.reasoning_summary_part.added"]] = (
        "response.reasoning_summary_part.added"
    )
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    summary_index: int
    part: Part


class ReasoningSummaryPartDone(
    Wire, frozen=True, kw_only=True, tag="response.reasoning_summary_part.done"
):
    type: ClassVar[Literal["response.reasoning_summary_part.done"]] = (
        "response.reasoning_summary_part.done"
    )
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    summary_index: int
    part: Part


class ReasoningSummaryTextDelta(
    Wire, frozen=True, kw_only=True, tag="response.reasoning_summary_text.delta", gc=False
):
    type: ClassVar[Literal["response.reasoning_summary_text.delta"]] = (
        "response.reasoning_summary_text.delta"
    )
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    summary_index: int
    delta: str
    obfuscation: str | Absent = ABSENT


class ReasoningSummaryTextDone(
    Wire, frozen=True, kw_only=True, tag="response.reasoning_summary_text.done"
):
    type: ClassVar[Literal["response.reasoning_summary_text.done"]] = (
        "response.reasoning_summary_text.done"
    )
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    summary_index: int
    text: str


class ReasoningDelta(Wire, frozen=True, kw_only=True, tag="response.reasoning.delta", gc=False):
    type: ClassVar[Literal["response.reasoning.delta"]] = "response.reasoning.delta"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    delta: str
    obfuscation: str | Absent = ABSENT


class ReasoningDone(Wire, frozen=True, kw_only=True, tag="response.reasoning.done"):
    type: ClassVar[Literal["response.reasoning.done"]] = "response.reasoning.done"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    text: str


class ReasoningTextDelta(
    Wire, frozen=True, kw_only=True, tag="response.reasoning_text.delta", gc=False
):
    """`ReasoningDelta` as some servers spell it."""

    type: ClassVar[Literal["response.reasoning_text.delta"]] = "response.reasoning_text.delta"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    delta: str
    obfuscation: str | Absent = ABSENT


class ReasoningTextDone(Wire, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """`ReasoningDone` as some servers spell it."""

    type: ClassVar[Literal["response.reasoning_text.done"]] = "response.reasoning_text.done"
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    text: str


class OutputTextAnnotationAdded(
    Wire, frozen=True, kw_only=True, tag="response.output_text.annotation.added"
):
    type: ClassVar[Literal["response.output_text.annotation.added"]] = (
        "response.output_text.annotation.added"
    )
    sequence_number: int | Absent = ABSENT
    item_id: str
    output_index: int
    content_index: int
    annotation_index: int
    annotation: Annotation | None


class ErrorEvent(Wire, frozen=True, kw_only=True, tag="error"):
    """An error; over SSE `response.failed` follows it."""

    type: ClassVar[Literal["error"]] = "error"
    sequence_number: int | Absent = ABSENT
    error: ErrorPayload
    status: int | None | Absent = ABSENT


class UnknownEvent(Wire, frozen=True, kw_only=True, tag="\x7fevent"):
    """An event of a type nobody registered; it is encoded as its source."""

    type: str = msgspec.field(name="\x7ftype")
    sequence_number: int | Absent = msgspec.field(default=ABSENT, name="\x7fsequence_number")
    source: Source


TerminalEvent: TypeAlias = ResponseCompleted | ResponseFailed | ResponseIncomplete

ResponseEvent: TypeAlias = ResponseCreated | ResponseQueued | ResponseInProgress | TerminalEvent

DeltaEvent: TypeAlias = (
    OutputTextDelta
    | RefusalDelta
    | FunctionCallArgumentsDelta
    | ReasoningSummaryTextDelta
    | ReasoningDelta
    | ReasoningTextDelta
)

StreamEvent: TypeAlias = (
    ResponseEvent
    | DeltaEvent
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDone
    | RefusalDone
    | FunctionCallArgumentsDone
    | ReasoningSummaryPartAdded
    | ReasoningSummaryPartDone
    | ReasoningSummaryTextDone
    | ReasoningDone
    | ReasoningTextDone
    | OutputTextAnnotationAdded
    | ErrorEvent
    | UnknownEvent
)

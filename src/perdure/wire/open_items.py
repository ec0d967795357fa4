"""Items that a producer is writing: each call gives the events it causes.

The emitter decides when an item opens and closes; what happens inside it is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec.structs import replace

from perdure.wire import events as ev
from perdure.wire.items import FunctionCall, Item, Message, Reasoning
from perdure.wire.partial import PartialItem, PartialPart
from perdure.wire.parts import (
    Annotation,
    LogProb,
    OutputText,
    Part,
    ReasoningText,
    Refusal,
    SummaryText,
    text_of,
)
from perdure.wire.values import ABSENT


class OpenMessage:
    """A message that is being written."""

    def __init__(self, item: Message, index: int, numbers: Iterator[int]) -> None:
        self._item = PartialItem(item)
        self._id = item.id or ""
        self._index = index
        self._numbers = numbers
        self._part: PartialPart | None = None
        self._kind: type[Part] | None = None
        self._at = -1  # of the part, open or not
        self._annotations = 0

    def value(self) -> Item:
        """The message as far as it has come."""
        return self._item.value()

    def text(self, delta: str, logprobs: tuple[LogProb, ...]) -> list[ev.StreamEvent]:
        """Add to the text part, which opens if need be."""
        events, part = self._turn_to(OutputText)
        part.add_logprobs(logprobs)
        if delta or logprobs:
            part.append(delta)
            events.append(
                ev.OutputTextDelta(
                    sequence_number=next(self._numbers),
                    item_id=self._id,
                    output_index=self._index,
                    content_index=self._at,
                    delta=delta,
                    logprobs=logprobs or ABSENT,
                )
            )
        return events

    def refusal(self, delta: str) -> list[ev.StreamEvent]:
        """Add to the refusal part, which opens if need be."""
        events, part = self._turn_to(Refusal)
        if delta:
            part.append(delta)
            events.append(
                ev.RefusalDelta(
                    sequence_number=next(self._numbers),
                    item_id=self._id,
                    output_index=self._index,
                    content_index=self._at,
                    delta=delta,
                )
            )
        return events

    def annotation(self, annotation: Annotation) -> list[ev.StreamEvent]:
        """Annotate the text part, which opens if need be."""
        events, part = self._turn_to(OutputText)
        part.annotate(self._annotations, annotation)
        events.append(
            ev.OutputTextAnnotationAdded(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                content_index=self._at,
                annotation_index=self._annotations,
                annotation=annotation,
            )
        )
        self._annotations += 1
        return events

    def _turn_to(
        self, kind: type[OutputText | Refusal]
    ) -> tuple[list[ev.StreamEvent], PartialPart]:
        """The open part, of this kind; closes one of the other kind and opens one if need be."""
        if self._part and self._kind is kind:
            return [], self._part
        events = self.end()
        empty = Refusal(refusal="") if kind is Refusal else OutputText(text="", annotations=())
        self._at += 1
        self._annotations = 0
        self._kind = kind
        self._part = self._item.parts("content")[self._at] = PartialPart(empty)
        events.append(
            ev.ContentPartAdded(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                content_index=self._at,
                part=empty,
            )
        )
        return events, self._part

    def end(self) -> list[ev.StreamEvent]:
        """Close the open part, if there is one."""
        if not self._part:
            return []
        part = self._part.value()
        self._part = None
        return [
            self._text_done(part),
            ev.ContentPartDone(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                content_index=self._at,
                part=part,
            ),
        ]

    def _text_done(self, part: Part) -> ev.StreamEvent:
        if isinstance(part, Refusal):
            return ev.RefusalDone(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                content_index=self._at,
                refusal=part.refusal,
            )
        return ev.OutputTextDone(
            sequence_number=next(self._numbers),
            item_id=self._id,
            output_index=self._index,
            content_index=self._at,
            text=text_of((part,)),
            logprobs=part.logprobs if isinstance(part, OutputText) else ABSENT,
        )


class OpenCall:
    """A function call whose arguments are being written."""

    def __init__(self, item: FunctionCall, index: int, numbers: Iterator[int]) -> None:
        self._item = PartialItem(item)
        self._id = item.id or ""
        self._index = index
        self._numbers = numbers

    def value(self) -> Item:
        """The call as far as it has come."""
        return self._item.value()

    def arguments(self, delta: str) -> list[ev.StreamEvent]:
        """Add to the arguments."""
        if not delta:
            return []
        self._item.append_arguments(delta)
        return [
            ev.FunctionCallArgumentsDelta(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                delta=delta,
            )
        ]

    def end(self) -> list[ev.StreamEvent]:
        """The arguments are whole."""
        item = self._item.value()
        return [
            ev.FunctionCallArgumentsDone(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                arguments=item.arguments if isinstance(item, FunctionCall) else "",
            )
        ]


class OpenReasoning:
    """A thought that is being written: parts of a summary, and one text."""

    def __init__(self, item: Reasoning, index: int, numbers: Iterator[int]) -> None:
        self.encrypted_content: str | None = None
        self._item = PartialItem(item)
        self._id = item.id or ""
        self._index = index
        self._numbers = numbers
        self._summary: PartialPart | None = None
        self._summary_at = -1  # of the part, open or not
        self._text: PartialPart | None = None

    def value(self) -> Item:
        """The thought as far as it has come."""
        item = self._item.value()
        if isinstance(item, Reasoning) and self.encrypted_content is not None:
            return replace(item, encrypted_content=self.encrypted_content)
        return item

    def summary(self, delta: str) -> list[ev.StreamEvent]:
        """Add to the open part of the summary, which opens if need be."""
        events, part = self._open_summary()
        if delta:
            part.append(delta)
            events.append(
                ev.ReasoningSummaryTextDelta(
                    sequence_number=next(self._numbers),
                    item_id=self._id,
                    output_index=self._index,
                    summary_index=self._summary_at,
                    delta=delta,
                )
            )
        return events

    def _open_summary(self) -> tuple[list[ev.StreamEvent], PartialPart]:
        if self._summary:
            return [], self._summary
        empty = SummaryText(text="")
        self._summary_at += 1
        self._summary = self._item.parts("summary")[self._summary_at] = PartialPart(empty)
        added = ev.ReasoningSummaryPartAdded(
            sequence_number=next(self._numbers),
            item_id=self._id,
            output_index=self._index,
            summary_index=self._summary_at,
            part=empty,
        )
        return [added], self._summary

    def end_summary(self) -> list[ev.StreamEvent]:
        """Close the open part of the summary, if there is one."""
        if not self._summary:
            return []
        part = self._summary.value()
        self._summary = None
        return [
            ev.ReasoningSummaryTextDone(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                summary_index=self._summary_at,
                text=text_of((part,)),
            ),
            ev.ReasoningSummaryPartDone(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                summary_index=self._summary_at,
                part=part,
            ),
        ]

    def text(self, delta: str) -> list[ev.StreamEvent]:
        """Add to the thought itself."""
        if not delta:
            return []
        events = self.end_summary()
        if not self._text:
            self._text = self._item.parts("content")[0] = PartialPart(ReasoningText(text=""))
        self._text.append(delta)
        events.append(
            ev.ReasoningDelta(
                sequence_number=next(self._numbers),
                item_id=self._id,
                output_index=self._index,
                content_index=0,
                delta=delta,
            )
        )
        return events

    def end(self) -> list[ev.StreamEvent]:
        """Close what is open in it."""
        events = self.end_summary()
        if self._text:
            events.append(
                ev.ReasoningDone(
                    sequence_number=next(self._numbers),
                    item_id=self._id,
                    output_index=self._index,
                    content_index=0,
                    text=text_of((self._text.value(),)),
                )
            )
        return events


OpenItem: TypeAlias = OpenMessage | OpenCall | OpenReasoning

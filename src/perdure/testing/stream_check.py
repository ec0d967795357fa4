"""The order that the specification wants of a stream, checked event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from perdure.wire import events as ev
from perdure.wire.items import FunctionCall, Item, Message, Reasoning
from perdure.wire.parts import OutputText, Part, Refusal, text_of
from perdure.wire.responses import Response


def check_stream(events: Sequence[ev.StreamEvent]) -> None:
    """Check that the events of one response come in the order of the specification.

    * `response.created` comes first, one terminal event last, and the numbers count from 0;
    * an `error` is directly followed by `response.failed`;
    * items open at consecutive indexes, one at a time, and close with the same id and type;
    * so do the parts of a message and of a summary, inside their open item; deltas name the open
      part; its text is done, with what the deltas said, before the part is, and the part before
      the item;
    * a terminal response has the status that its event names, and lists the items as they closed
      (one that failed may leave its last item open).

    Events of unknown types may stand anywhere in between.

    Raises:
        AssertionError: A rule is broken; the message names the event and the rule.
    """
    checker = _Checker()
    for index, event in enumerate(events):
        checker.step(index, event)
    if not checker.ended:
        raise AssertionError("the stream has no terminal event")


class _OpenText:
    """A text that deltas add to: of a part, a thought or a call's arguments."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.text = ""
        self.done = False


class _OpenItem:
    """The item that is open, and what is open in it."""

    def __init__(self, item: Item, index: int) -> None:
        self.item = item
        self.index = index
        self.id: object = getattr(item, "id", None)
        self.parts = 0
        self.part: _OpenText | None = None
        self.summaries = 0
        self.summary: _OpenText | None = None
        self.stream = _OpenText("text")  # of a thought itself, or a call's arguments


_InMessage: TypeAlias = (
    ev.ContentPartAdded
    | ev.ContentPartDone
    | ev.OutputTextDelta
    | ev.OutputTextDone
    | ev.OutputTextAnnotationAdded
    | ev.RefusalDelta
    | ev.RefusalDone
)

_InSummary: TypeAlias = (
    ev.ReasoningSummaryPartAdded
    | ev.ReasoningSummaryPartDone
    | ev.ReasoningSummaryTextDelta
    | ev.ReasoningSummaryTextDone
)

_InItem: TypeAlias = (
    _InMessage
    | _InSummary
    | ev.FunctionCallArgumentsDelta
    | ev.FunctionCallArgumentsDone
    | ev.ReasoningDelta
    | ev.ReasoningDone
    | ev.ReasoningTextDelta
    | ev.ReasoningTextDone
)


class _Checker:
    """How far a stream has come."""

    def __init__(self) -> None:
        self.ended = False
        self._at = ""
        self._failing = False
        self._closed: list[Item] = []
        self._item: _OpenItem | None = None

    def step(self, index: int, event: ev.StreamEvent) -> None:
        self._at = f"event {index} ({event.type})"
        self._need(not self.ended, "nothing may follow the terminal event")
        numbered = event.sequence_number == index
        self._need(numbered, f"its sequence_number is {event.sequence_number!r}")
        created = isinstance(event, ev.ResponseCreated)
        self._need(created == (index == 0), "response.created is the first event, and only it")
        if self._failing:
            failed = isinstance(event, ev.ResponseFailed)
            self._need(failed, "response.failed must directly follow an error")
        self._dispatch(event)

    def _dispatch(self, event: ev.StreamEvent) -> None:
        match event:
            case ev.ResponseCreated() | ev.ResponseQueued() | ev.ResponseInProgress():
                pass
            case ev.ResponseCompleted() | ev.ResponseFailed() | ev.ResponseIncomplete():
                self._end(event)
            case ev.ErrorEvent():
                self._failing = True
            case ev.OutputItemAdded():
                self._open_item(event)
            case ev.OutputItemDone():
                self._close_item(event)
            case ev.UnknownEvent():
                pass
            case _:
                self._in_item(event, self._open(event))

    # --- items

    def _open_item(self, event: ev.OutputItemAdded) -> None:
        if event.item is None:
            self._fail("it has no item")
        self._need(self._item is None, "the item before is still open")
        due = len(self._closed)
        self._need(event.output_index == due, f"output_index {event.output_index} should be {due}")
        self._item = _OpenItem(event.item, event.output_index)

    def _close_item(self, event: ev.OutputItemDone) -> None:
        opened = self._item
        if opened is None or event.item is None or event.output_index != opened.index:
            self._fail("it closes no open item")
        item = event.item
        same = (item.type, getattr(item, "id", None)) == (opened.item.type, opened.id)
        self._need(same, "it has another id or type than the item that opened")
        self._need(opened.part is None, "a content part is still open")
        self._need(opened.summary is None, "a summary part is still open")
        finished = opened.stream.done or not opened.stream.text
        self._need(finished, "what its deltas added to was not done")
        self._closed.append(item)
        self._item = None

    def _open(self, event: _InItem) -> _OpenItem:
        opened = self._item
        if opened is None or opened.index != event.output_index or opened.id != event.item_id:
            self._fail("it names an item that is not open")
        return opened

    # --- inside an item

    def _in_item(self, event: _InItem, item: _OpenItem) -> None:
        match event:
            case ev.FunctionCallArgumentsDelta():
                self._of(item, FunctionCall)
                self._add(item.stream, event.delta)
            case ev.FunctionCallArgumentsDone():
                self._of(item, FunctionCall)
                self._finish(item.stream, event.arguments)
            case ev.ReasoningDelta() | ev.ReasoningTextDelta():
                self._of(item, Reasoning)
                self._add(item.stream, event.delta)
            case ev.ReasoningDone() | ev.ReasoningTextDone():
                self._of(item, Reasoning)
                self._finish(item.stream, event.text)
            case (
                ev.ReasoningSummaryPartAdded()
                | ev.ReasoningSummaryPartDone()
                | ev.ReasoningSummaryTextDelta()
                | ev.ReasoningSummaryTextDone()
            ):
                self._of(item, Reasoning)
                self._in_summary(event, item)
            case _:
                self._of(item, Message)
                self._in_message(event, item)

    def _in_message(self, event: _InMessage, item: _OpenItem) -> None:
        if isinstance(event, ev.ContentPartAdded):
            self._need(item.part is None, "the part before is still open")
            due = event.content_index == item.parts
            self._need(due, f"content_index {event.content_index} should be {item.parts}")
            item.parts += 1
            item.part = _OpenText(event.part.type)
            return
        part = item.part
        if part is None or event.content_index != item.parts - 1:
            self._fail("it names a part that is not open")
        match event:
            case ev.ContentPartDone():
                self._close_part(part, event.part)
                item.part = None
            case ev.OutputTextDelta():
                self._add(part, event.delta, OutputText.type)
            case ev.OutputTextDone():
                self._finish(part, event.text, OutputText.type)
            case ev.OutputTextAnnotationAdded():
                self._add(part, "", OutputText.type)
            case ev.RefusalDelta():
                self._add(part, event.delta, Refusal.type)
            case ev.RefusalDone():
                self._finish(part, event.refusal, Refusal.type)

    def _in_summary(self, event: _InSummary, item: _OpenItem) -> None:
        if isinstance(event, ev.ReasoningSummaryPartAdded):
            self._need(item.summary is None, "the part before is still open")
            due = event.summary_index == item.summaries
            self._need(due, f"summary_index {event.summary_index} should be {item.summaries}")
            item.summaries += 1
            item.summary = _OpenText(event.part.type)
            return
        part = item.summary
        if part is None or event.summary_index != item.summaries - 1:
            self._fail("it names a part that is not open")
        match event:
            case ev.ReasoningSummaryPartDone():
                self._close_part(part, event.part)
                item.summary = None
            case ev.ReasoningSummaryTextDelta():
                self._add(part, event.delta)
            case ev.ReasoningSummaryTextDone():
                self._finish(part, event.text)

    def _of(self, item: _OpenItem, kind: type[Item]) -> None:
        self._need(isinstance(item.item, kind), f"the open item is a {item.item.type!r}")

    def _add(self, text: _OpenText, delta: str, kind: str | None = None) -> None:
        self._need(kind in {None, text.kind}, f"the open part is a {text.kind!r}")
        self._need(not text.done, "a delta may not follow what is done")
        text.text += delta

    def _finish(self, text: _OpenText, whole: str, kind: str | None = None) -> None:
        self._add(text, "", kind)
        self._need(text.text == whole, "it differs from what the deltas said")
        text.done = True

    def _close_part(self, opened: _OpenText, part: Part) -> None:
        self._need(part.type == opened.kind, f"the open part is a {opened.kind!r}")
        self._need(opened.done, "the text of the part is not done")
        whole = part.refusal if isinstance(part, Refusal) else text_of((part,))
        self._need(whole == opened.text, "it differs from what the deltas said")

    # --- the end

    def _end(self, event: ev.TerminalEvent) -> None:
        self.ended = True
        response: Response = event.response
        status = event.type.removeprefix("response.")
        self._need(response.status == status, f"its response has the status {response.status!r}")
        if status == "failed":
            return
        self._need(self._item is None, "an item is still open")
        listed = list(response.output) == self._closed
        self._need(listed, "its response does not list the items as they closed")

    def _need(self, holds: bool, rule: str) -> None:  # noqa: FBT001 - reads as an assertion
        if not holds:
            self._fail(rule)

    def _fail(self, rule: str) -> NoReturn:
        raise AssertionError(f"{self._at}: {rule}")

"""The producer's side of a stream: says what happens, gets well-ordered events.

*open*: at most one item is open, and in it at most one part of its content and one of its
summary. Opening the next closes the one before; so does the end. Indexes, ids and sequence
numbers are the emitter's own affair, and the order of the specification holds by construction.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from msgspec.structs import replace

from perdure.clock import Clock, Ids
from perdure.errors import ConfigError, TerminalSent
from perdure.wire import events as ev
from perdure.wire.echo import response_to
from perdure.wire.items import FunctionCall, Item, Message, Reasoning, UnknownItem
from perdure.wire.open_items import OpenCall, OpenItem, OpenMessage, OpenReasoning
from perdure.wire.parts import Annotation, LogProb
from perdure.wire.requests import Request
from perdure.wire.responses import (
    ErrorPayload,
    IncompleteDetails,
    Response,
    ResponseStatus,
    Usage,
)
from perdure.wire.values import ABSENT, Absent


class Emitter:
    """The events of one response. Every method returns the events it causes, perhaps none.

    The first call also starts the stream; after `complete`, `incomplete` or `fail` every
    method raises `TerminalSent`.

    Args:
        request: What the response answers; its settings are repeated.
        ids: Where ids come from.
        clock: Where the times come from.
        response_id: The response's id, if there is one already.

    Attributes:
        response: The response as the next event that carries it will show it, without its
            output. May be replaced, by a copy with another `model`, say.
    """

    def __init__(
        self, request: Request, *, ids: Ids, clock: Clock, response_id: str | None = None
    ) -> None:
        self._ids = ids
        self._clock = clock
        self._numbers = count()
        self._started = False
        self._ended = False
        self._done: list[Item] = []
        self._open: OpenItem | None = None
        self.response: Response = response_to(
            request, id=response_id or ids.new("resp_"), created_at=self._now()
        )

    def start(self) -> list[ev.StreamEvent]:
        """The response is created and in progress. Nothing if it already is."""
        if self._ended:
            raise TerminalSent
        if self._started:
            return []
        self._started = True
        return [
            ev.ResponseCreated(sequence_number=next(self._numbers), response=self.response),
            ev.ResponseInProgress(sequence_number=next(self._numbers), response=self.response),
        ]

    # --- messages

    def message(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the wire's own name
        phase: str | Absent = ABSENT,
    ) -> list[ev.StreamEvent]:
        """Open a message. `text` and `refusal` do it themselves unless one is open."""
        return self._opening(
            Message(
                id=id or self._ids.new("msg_"),
                status="in_progress",
                role="assistant",
                content=(),
                phase=phase,
            )
        )

    def text(self, delta: str, *, logprobs: Iterable[LogProb] = ()) -> list[ev.StreamEvent]:
        """Add to the text of the message."""
        if isinstance(self._open, OpenMessage):
            return self._open.text(delta, tuple(logprobs))
        return [*self.message(), *self.text(delta, logprobs=logprobs)]

    def refusal(self, delta: str) -> list[ev.StreamEvent]:
        """Add to the refusal of the message."""
        if isinstance(self._open, OpenMessage):
            return self._open.refusal(delta)
        return [*self.message(), *self.refusal(delta)]

    def annotation(self, annotation: Annotation) -> list[ev.StreamEvent]:
        """Annotate the text of the message."""
        if isinstance(self._open, OpenMessage):
            return self._open.annotation(annotation)
        return [*self.message(), *self.annotation(annotation)]

    # --- reasoning

    def reasoning(self, *, id: str | None = None) -> list[ev.StreamEvent]:  # noqa: A002 - the wire's own name
        """Open a thought. What follows does it itself unless one is open."""
        item_id = id or self._ids.new("rs_")
        return self._opening(Reasoning(id=item_id, status="in_progress", summary=()))

    def reasoning_summary(self, delta: str) -> list[ev.StreamEvent]:
        """Add to the summary of the thought; `end_summary` makes the next a part of its own."""
        if isinstance(self._open, OpenReasoning):
            return self._open.summary(delta)
        return [*self.reasoning(), *self.reasoning_summary(delta)]

    def end_summary(self) -> list[ev.StreamEvent]:
        """Close the open part of the summary, if there is one."""
        started = self.start()
        if isinstance(self._open, OpenReasoning):
            return [*started, *self._open.end_summary()]
        return started

    def reasoning_text(self, delta: str) -> list[ev.StreamEvent]:
        """Add to the thought itself."""
        if isinstance(self._open, OpenReasoning):
            return self._open.text(delta)
        return [*self.reasoning(), *self.reasoning_text(delta)]

    def encrypted(self, content: str) -> list[ev.StreamEvent]:
        """Give the thought its encrypted content, which its last event carries."""
        if isinstance(self._open, OpenReasoning):
            self._open.encrypted_content = content
            return []
        return [*self.reasoning(), *self.encrypted(content)]

    # --- calls and other items

    def call(
        self,
        name: str,
        call_id: str | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the wire's own name
    ) -> list[ev.StreamEvent]:
        """Open a function call."""
        return self._opening(
            FunctionCall(
                id=id or self._ids.new("fc_"),
                call_id=call_id or self._ids.new("call_"),
                name=name,
                arguments="",
                status="in_progress",
            )
        )

    def arguments(self, delta: str) -> list[ev.StreamEvent]:
        """Add to the arguments of the open call.

        Raises:
            ConfigError: No call is open.
        """
        if self._ended:
            raise TerminalSent
        if isinstance(self._open, OpenCall):
            return self._open.arguments(delta)
        raise ConfigError("arguments() belongs to an open call; begin one with call()")

    def item(self, item: Item) -> list[ev.StreamEvent]:
        """A whole item without deltas: an output, a compaction, an extension."""
        events = self.close()
        index = len(self._done)
        number = next(self._numbers)
        events.append(ev.OutputItemAdded(sequence_number=number, output_index=index, item=item))
        events.append(self._finished(_with_status(item, "completed")))
        return events

    def close(self) -> list[ev.StreamEvent]:
        """Close the open item, if there is one."""
        return self._close("completed")

    # --- the end

    def complete(self, *, usage: Usage | None = None) -> list[ev.StreamEvent]:
        """The response is whole."""
        events = self._close("completed")
        number, response = self._end("completed", usage)
        events.append(ev.ResponseCompleted(sequence_number=number, response=response))
        return events

    def incomplete(self, reason: str, *, usage: Usage | None = None) -> list[ev.StreamEvent]:
        """The response was cut: `max_output_tokens` or `content_filter`."""
        events = self._close("incomplete")
        details = IncompleteDetails(reason=reason)
        self.response = replace(self.response, incomplete_details=details)
        number, response = self._end("incomplete", usage)
        events.append(ev.ResponseIncomplete(sequence_number=number, response=response))
        return events

    def fail(self, error: ErrorPayload, *, usage: Usage | None = None) -> list[ev.StreamEvent]:
        """The response failed. An item that is open stays so, and counts as incomplete."""
        events = self.start()
        if self._open:
            self._done.append(_with_status(self._open.value(), "incomplete"))
        self.response = replace(self.response, error=error)
        events.append(ev.ErrorEvent(sequence_number=next(self._numbers), error=error))
        number, response = self._end("failed", usage)
        events.append(ev.ResponseFailed(sequence_number=number, response=response))
        return events

    # --- the order

    def _opening(self, item: Message | FunctionCall | Reasoning) -> list[ev.StreamEvent]:
        events = self.close()
        index = len(self._done)
        number = next(self._numbers)
        events.append(ev.OutputItemAdded(sequence_number=number, output_index=index, item=item))
        match item:
            case Message():
                self._open = OpenMessage(item, index, self._numbers)
            case FunctionCall():
                self._open = OpenCall(item, index, self._numbers)
            case Reasoning():
                self._open = OpenReasoning(item, index, self._numbers)
        return events

    def _close(self, status: str) -> list[ev.StreamEvent]:
        events = self.start()
        if self._open:
            events += self._open.end()
            item = self._open.value()
            self._open = None
            events.append(self._finished(_with_status(item, status)))
        return events

    def _finished(self, item: Item) -> ev.OutputItemDone:
        index = len(self._done)
        self._done.append(item)
        number = next(self._numbers)
        return ev.OutputItemDone(sequence_number=number, output_index=index, item=item)

    def _end(self, status: ResponseStatus, usage: Usage | None) -> tuple[int, Response]:
        self._ended = True
        self._open = None
        self.response = replace(
            self.response,
            status=status,
            completed_at=None if status == "failed" else self._now(),
            usage=usage or self.response.usage,
            output=tuple(self._done),
        )
        return next(self._numbers), self.response

    def _now(self) -> int:
        return self._clock.wall() // 1_000_000_000


def _with_status(item: Item, status: str) -> Item:
    """The item with a status, unless it has an end status already or cannot have one."""
    if isinstance(item, UnknownItem) or "status" not in item.__struct_fields__:
        return item
    if getattr(item, "status", None) in ("completed", "incomplete"):
        return item
    return replace(item, status=status)

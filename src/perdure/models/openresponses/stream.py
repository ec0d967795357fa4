"""The answer of an Open Responses server: a stream of the wire's events, or a response whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from perdure.errors import (
    BadBody,
    DecodeError,
    EmptyBody,
    ModelError,
    NotTerminal,
    Truncated,
    WireError,
)
from perdure.loop.model import ModelRequest
from perdure.models.http.client import (
    BODY_LIMIT,
)
from perdure.models.http.failures import failure, readable
from perdure.models.http.stream import QUOTE, StreamEnd, bad_frame
from perdure.models.mapping.decoding import PLAIN, stops_in_the_middle
from perdure.wire import (
    ABSENT,
    Absent,
    CompactResponse,
    ErrorEvent,
    ErrorPayload,
    FunctionCall,
    IncompleteDetails,
    Response,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    TerminalEvent,
    decode_compact_response,
    decode_event,
    decode_response,
)
from perdure.wire.sse import FRAME_LIMIT, Frame, SSEParser

T = TypeVar("T")


def response(body: bytes, request: ModelRequest | None = None) -> Response:
    """The response in a JSON body.

    Raises:
        EmptyBody: There is nothing.
        Truncated: The JSON stops in the middle.
        BadBody: It is no JSON, or no response.
        Rejected: It is an error, or a response that has not ended.
    """
    return end_event(body, request).response


def end_event(body: bytes, request: ModelRequest | None = None) -> TerminalEvent:
    """The event that ends a stream in the response of a JSON body. Raises as `response`.

    A response without a status, or with the `complete` that some servers write, is completed; one
    with calls that fell on the very limit of tokens is cut, whatever it says.
    """
    value = _decoded(body, decode_response)
    if value.kept and {"id", "output"} <= value.kept.absent:
        raise failure(value.error) if value.error else _no_response(body)
    match value.status or "completed":
        case "completed" | "complete":
            return _whole(ResponseCompleted(response=replace(value, status="completed")), request)
        case "incomplete":
            return ResponseIncomplete(response=value)
        case "failed":
            return ResponseFailed(response=value)
        case status:
            raise NotTerminal(f"response {value.id!r} is no end: its status is {status!r}")


def _whole(
    event: ResponseCompleted, request: ModelRequest | None
) -> ResponseCompleted | ResponseIncomplete:
    """A completed response, as one that was cut if its calls may be half there (DESIGN 6.6)."""
    limit = request.settings.max_output_tokens if request is not None else None
    response, usage = event.response, event.response.usage
    calls = any(isinstance(item, FunctionCall) for item in response.output)
    if not (limit and usage and calls and usage.output_tokens >= limit):
        return event
    why = IncompleteDetails(reason="max_output_tokens")
    cut = replace(response, status="incomplete", incomplete_details=why)
    return ResponseIncomplete(response=cut, sequence_number=event.sequence_number)


def compact_response(body: bytes) -> CompactResponse:
    """The folded history in a JSON body. Raises as `response`."""
    value = _decoded(body, decode_compact_response)
    if value.kept and "output" in value.kept.absent:
        raise _no_response(body)
    return value


def _decoded(body: bytes, decode: Callable[[bytes], T]) -> T:
    if not body.strip():
        raise EmptyBody
    try:
        return decode(body)
    except DecodeError as error:
        if stops_in_the_middle(body):
            raise Truncated("the answer stops in the middle") from error
        raise _no_response(body, error) from error


def _no_response(body: bytes, error: DecodeError | None = None) -> BadBody:
    why = f" ({error})" if error and not body.lstrip().startswith(b"<") else ""
    return BadBody(f"the answer is no response{why}: {readable(body)}", body=body[:QUOTE])


class StreamDecoder:
    """Events from the bytes of an answer, in pieces of any size.

    Takes a JSON body too, where a stream was asked for: its end is the only event then.

    Args:
        request: What is answered.
        frame_limit: The bytes of the largest frame that is taken.
    """

    __slots__ = (
        "_empty",
        "_error",
        "_frame_limit",
        "_parser",
        "_plain",
        "_request",
        "failure",
        "finished",
    )

    def __init__(
        self, request: ModelRequest | None = None, *, frame_limit: int = FRAME_LIMIT
    ) -> None:
        self._request = request
        self._frame_limit = frame_limit
        self._parser = SSEParser(frame_limit)
        self._empty = True  # nothing but white space has come
        self._plain: bytearray | None = None  # a body that is no stream
        self._error: ErrorEvent | None = None  # the last one
        self.failure: WireError | None = None
        """What the next `feed` raises."""
        self.finished = False
        """Whether the terminal event or `[DONE]` has come. What follows is not looked at."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that these bytes complete.

        Raises:
            DecodeError: A frame is no event, or a JSON body is too large. The events before it are
                returned first; the error comes with the next call then, and with every later one.
            FrameTooLarge: A frame is too large. Likewise.
        """
        if self._empty:
            self._begin(data)
        events: list[StreamEvent] = []
        if self.failure is None and not self.finished:
            try:
                if self._plain is None:
                    self._decode(self._parser.feed(data), events)
                else:
                    self._keep(data, self._plain)
            except WireError as error:
                self.failure = error
        if self.failure is not None and not events:
            raise self.failure
        return events

    def end(self) -> StreamEnd:
        """What it would be if the bytes ended here. The decoder is left as it was.

        The error is None for a stream that finished. It is `EmptyBody` when no byte came,
        `Rejected` when the server said what went wrong, `BadBody` for bytes that are no response,
        and `Truncated` otherwise.
        """
        if self.finished:
            return StreamEnd([], None)
        if self.failure is not None:
            return StreamEnd([], bad_frame(self.failure))
        if self._plain is not None:
            return self._end_plain(bytes(self._plain))
        twin = self.copy()
        events: list[StreamEvent] = []
        with contextlib.suppress(WireError):  # a frame that was cut
            whole = [frame for frame in twin._parser.end() if frame.data.rstrip()[-1:] in _CLOSING]
            twin._decode(whole, events)
        return StreamEnd(events, twin._outcome())

    def copy(self) -> StreamDecoder:
        """A decoder in the same state."""
        twin = StreamDecoder(self._request, frame_limit=self._frame_limit)
        twin._parser = self._parser.copy()
        twin._empty, twin._error = self._empty, self._error
        twin._plain = None if self._plain is None else self._plain.copy()
        twin.failure, twin.finished = self.failure, self.finished
        return twin

    def _decode(self, frames: list[Frame], events: list[StreamEvent]) -> None:
        """Add the events of `frames`, up to the one that ends the stream."""
        add, ends = events.append, _ENDS
        for _, data in frames:
            try:
                event = decode_event(data)
            except DecodeError:
                if data.strip() == _DONE:
                    self.finished = True
                    return
                flat = _flat_error(data)
                if flat is None:
                    raise
                event = flat
            if type(event) is ResponseCompleted:
                event = _whole(event, self._request)
            add(event)
            if type(event) in ends:
                if isinstance(event, ErrorEvent):
                    self._error = event
                else:
                    self.finished = True
                    return

    def _outcome(self) -> ModelError | None:
        if self.finished:
            return None
        if self._error is not None:
            return failure(self._error.error)
        return EmptyBody() if self._empty else Truncated()

    # --- a body that is no stream ------------------------------------------------

    def _begin(self, data: bytes) -> None:
        """Tell JSON and HTML from a stream: no line of a stream begins as they do."""
        first = data.lstrip()[:1]
        self._empty = not first
        if first in PLAIN:
            self._plain = bytearray()

    def _keep(self, data: bytes, plain: bytearray) -> None:
        plain += data
        if len(plain) > BODY_LIMIT:
            plain.clear()
            raise DecodeError(f"the answer exceeds {BODY_LIMIT} bytes")

    def _end_plain(self, body: bytes) -> StreamEnd:
        try:
            return StreamEnd([end_event(body, self._request)], None)
        except ModelError as error:
            return StreamEnd([], error)


class _FlatError(msgspec.Struct, tag_field="type", tag="error"):
    """An error event whose members stand beside its type, as OpenAI writes it."""

    message: str
    code: str | int | None = None
    param: str | None = None
    sequence_number: int | Absent = ABSENT


def _flat_error(data: bytes) -> ErrorEvent | None:
    try:
        flat = _decode_flat_error(data)
    except msgspec.DecodeError:
        return None
    payload = ErrorPayload(code=flat.code, message=flat.message, param=flat.param)
    return ErrorEvent(error=payload, sequence_number=flat.sequence_number)


_decode_flat_error = msgspec.json.Decoder(_FlatError).decode
_ENDS = frozenset({ResponseCompleted, ResponseIncomplete, ResponseFailed, ErrorEvent})
_DONE = b"[DONE]"
_CLOSING = (b"}", b"]")  # what no event ends without

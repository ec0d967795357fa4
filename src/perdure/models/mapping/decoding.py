"""What the decoders of foreign answers share: frames to an assembler, ends, copies, JSON bodies.

A *frame* is what a stream is made of; a *parser* cuts bytes into frames. An *assembler* makes
events of the frames of one provider, and knows when its answer has ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import msgspec

from perdure.clock import Clock, Ids
from perdure.errors import BadBody, DecodeError, EmptyBody, ModelError, Truncated, WireError
from perdure.loop.model import ModelRequest
from perdure.models.http.client import BODY_LIMIT
from perdure.models.http.failures import readable
from perdure.models.http.stream import QUOTE, StreamEnd, bad_frame
from perdure.wire import (
    Frame,
    Response,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
)
from perdure.wire.sse import FRAME_LIMIT, SSEParser


class Parser(Protocol):
    """Cuts bytes into frames."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete. Raises `WireError`, and loses none before it."""
        ...

    def end(self) -> list[Frame]:
        """What a last frame would be if the bytes ended here. The parser is left as it was."""
        ...

    def copy(self) -> Self:
        """A parser in the same state."""
        ...


class Assembler(Protocol):
    """Makes events of the frames of one answer."""

    @property
    def finished(self) -> bool:
        """Whether the terminal event was made."""
        ...

    def frame(self, frame: Frame, events: list[StreamEvent]) -> None:
        """Add the events of a frame. Raises `WireError` for one that cannot be."""
        ...

    def body(self, body: bytes, events: list[StreamEvent]) -> None:
        """Add the events of a whole answer, given as JSON.

        Raises:
            Rejected: It is an error.
            DecodeError: It is no answer of the provider's.
        """
        ...

    def copy(self) -> Self:
        """An assembler in the same state."""
        ...


class AnswerDecoder:
    """Events from the bytes of an answer, in pieces of any size.

    Takes a JSON body too, where a stream was asked for; its events come at the end then.

    Args:
        assembler: What makes events.
        parser: What makes frames.
    """

    __slots__ = ("_assembler", "_empty", "_parser", "_plain", "failure")

    def __init__(self, assembler: Assembler, parser: Parser) -> None:
        self._assembler = assembler
        self._parser = parser
        self._empty = True  # nothing but white space has come
        self._plain: bytearray | None = None  # a body that is no stream
        self.failure: WireError | None = None
        """What the next `feed` raises."""

    @property
    def finished(self) -> bool:
        """Whether the terminal event has come. What follows is not looked at."""
        return self._assembler.finished

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that these bytes complete.

        Raises:
            DecodeError: A frame is none of the provider's, or comes where none may. The events
                before it are returned first; the error comes with the next call then, and with
                every later one.
            FrameTooLarge: A frame, or a body that is no stream, is too large. Likewise.
        """
        if self._empty:
            self._begin(data)
        events: list[StreamEvent] = []
        if self._plain is not None:
            self._feed_plain(data)
        elif self.failure is None and not self._assembler.finished:
            try:
                self._assemble(self._parser.feed(data), events)
            except WireError as error:
                self.failure = error
        if self.failure is not None and not events:
            raise self.failure
        return events

    def end(self) -> StreamEnd:
        """What it would be if the bytes ended here. The decoder is left as it was.

        The error is None for a stream that finished. It is `EmptyBody` when no byte came, `BadBody`
        for bytes that are no answer, `Rejected` for a JSON body that is an error, and `Truncated`
        otherwise.
        """
        if self._assembler.finished:
            return StreamEnd([], None)
        if self.failure is not None:
            return StreamEnd([], bad_frame(self.failure))
        if self._plain is not None:
            return self._end_plain(bytes(self._plain))
        events: list[StreamEvent] = []
        with contextlib.suppress(WireError):  # a frame that was cut
            last = [frame for frame in self._parser.end() if frame.data.rstrip()[-1:] == b"}"]
            if last:
                twin = self.copy()
                twin._assemble(last, events)
                if twin.finished:
                    return StreamEnd(events, None)
        return StreamEnd(events, EmptyBody() if self._empty else Truncated())

    def copy(self) -> Self:
        """A decoder in the same state."""
        twin = type(self).__new__(type(self))
        twin._assembler, twin._parser = self._assembler.copy(), self._parser.copy()
        twin._empty, twin.failure = self._empty, self.failure
        twin._plain = None if self._plain is None else self._plain.copy()
        return twin

    def _assemble(self, frames: Sequence[Frame], events: list[StreamEvent]) -> None:
        assembler = self._assembler
        take = assembler.frame
        for frame in frames:
            take(frame, events)
            if assembler.finished:
                return

    # --- a body that is no stream ------------------------------------------------

    def _begin(self, data: bytes) -> None:
        """Tell JSON and HTML from a stream: no frame begins as they do."""
        first = data.lstrip()[:1]
        self._empty = not first
        if first in PLAIN:
            self._plain = bytearray()

    def _feed_plain(self, data: bytes) -> None:
        if self._plain is not None and self.failure is None:
            self._plain += data
            if len(self._plain) > BODY_LIMIT:
                self.failure = DecodeError(f"the answer exceeds {BODY_LIMIT} bytes")
                self._plain = bytearray()

    def _end_plain(self, body: bytes) -> StreamEnd:
        try:
            return StreamEnd(whole_answer(body, self._assembler.copy()), None)
        except ModelError as error:
            return StreamEnd([], error)


class AssemblerOf(Protocol):
    """Makes the assembler of the answer to a request."""

    def __call__(
        self, request: ModelRequest | None, /, *, ids: Ids | None, clock: Clock | None
    ) -> Assembler: ...


class ParserOf(Protocol):
    """Makes a parser that refuses frames beyond a limit, in bytes."""

    def __call__(self, limit: int, /) -> Parser: ...


class ApiDecoder(AnswerDecoder):
    """The decoder of one provider's answers, by what makes its frames and its events.

    Args:
        request: What is answered.
        ids: Where ids come from that the provider does not give.
        clock: Where the times come from.
        frame_limit: The bytes of the largest frame that is taken.
    """

    __slots__ = ()

    assembler: ClassVar[AssemblerOf]
    parser: ClassVar[ParserOf] = SSEParser

    def __init__(
        self,
        request: ModelRequest | None = None,
        *,
        ids: Ids | None = None,
        clock: Clock | None = None,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        cls = type(self)
        super().__init__(cls.assembler(request, ids=ids, clock=clock), cls.parser(frame_limit))


PLAIN = (b"{", b"[", b"<")
"""What the first byte of a body is that is no stream; no frame begins so."""


def whole_answer(body: bytes, assembler: Assembler) -> list[StreamEvent]:
    """The events of an answer that is a JSON body.

    Raises:
        EmptyBody: There is nothing.
        Truncated: The JSON stops in the middle.
        BadBody: It is no JSON, or no answer of the provider's.
        Rejected: It is an error.
    """
    if not body.strip():
        raise EmptyBody
    events: list[StreamEvent] = []
    try:
        assembler.body(body, events)
    except WireError as error:
        raise _bad_answer(body, error) from error
    return events


def response_in(body: bytes, assembler: Assembler) -> Response:
    """The response in a JSON body. Raises as `whole_answer`."""
    event = whole_answer(body, assembler)[-1]
    assert isinstance(event, ResponseCompleted | ResponseIncomplete | ResponseFailed)  # noqa: S101
    return event.response


def _bad_answer(body: bytes, error: WireError) -> ModelError:
    if stops_in_the_middle(body):
        return Truncated("the answer stops in the middle")
    why = "" if body.lstrip().startswith(b"<") else f" ({error})"
    return BadBody(f"the answer is no response{why}: {readable(body)}", body=body[:QUOTE])


def stops_in_the_middle(body: bytes) -> bool:
    """Whether bytes are the beginning of a JSON text."""
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except UnicodeDecodeError:
        pass
    return False

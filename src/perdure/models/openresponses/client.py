"""Open Responses over HTTP: OpenAI, and every server that speaks the same.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `OpenResponses` is
the client that sends and reads them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from perdure.clock import Clock
from perdure.errors import (
    BadBody,
    ConfigError,
    DecodeError,
    EmptyBody,
    ModelError,
    NotTerminal,
    Truncated,
    WireError,
)
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.http.body import Body
from perdure.models.http.client import (
    BODY_LIMIT,
    Exchange,
    Hooks,
    HttpClient,
    Key,
    ModelClient,
    Timeouts,
)
from perdure.models.http.failures import failure, readable
from perdure.models.http.stream import QUOTE, EventStream, StreamEnd, bad_frame
from perdure.models.mapping.content import refuse_held
from perdure.models.mapping.decoding import PLAIN, stops_in_the_middle
from perdure.models.mapping.heads import Head, head_of, opened
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.openresponses.items import sent
from perdure.models.openresponses.settings import settings_members
from perdure.models.registry import Resolved, key_from, register
from perdure.wire import (
    ABSENT,
    Absent,
    CompactRequest,
    CompactResponse,
    ErrorEvent,
    ErrorPayload,
    FunctionCall,
    IncompleteDetails,
    Request,
    Response,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    TerminalEvent,
    decode_compact_response,
    decode_event,
    decode_response,
    encode,
)
from perdure.wire.sse import FRAME_LIMIT, Frame, SSEParser

T = TypeVar("T")

# --- the request ---------------------------------------------------------------

_HEAD_KEY = "perdure.models.openresponses:head"
_TAIL = b"]}"


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /responses`.

    Items are encoded once for a transcript and settings once for a drive (DESIGN 7). Nothing is
    stored by the server: the history is sent whole (DESIGN 5). How items are sent stands in
    `items`.

    Raises:
        ConfigError: The settings name a conversation that a server holds.
    """
    items = request.input
    head = _head(request.settings, items, stream=stream)
    return sent(items).between(head.begin, _TAIL)


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What of a request its server does not get, or gets in another form. Raises as above."""
    items = request.input
    return (*_head(request.settings, items, stream=True).losses, *sent(items).losses)


def _head(settings: Request, items: Items, *, stream: bool) -> Head:
    """Everything before the first item."""

    def make(lost: Lost) -> bytes:
        return opened(settings_members(settings, lost, stream=stream), "input")

    return head_of(items, (_HEAD_KEY, stream), settings, make)


def compact_body(request: CompactRequest) -> Body:
    """The body of `POST /responses/compact`. Raises as `request_body`."""
    refuse_held(request)
    if not isinstance(request.input, tuple):
        raw = encode(request)
        return Body([raw], len(raw))
    begin = opened(encode(replace(request, input=ABSENT)), "input")
    return sent(Items.of(request.input)).between(begin, _TAIL)


# --- the answer ----------------------------------------------------------------


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


# --- the client ----------------------------------------------------------------


class OpenResponses(ModelClient):
    """A model behind an Open Responses server.

    ```python
    model = OpenResponses("http://127.0.0.1:8000/v1", timeouts=Timeouts(idle=60))
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    One client serves any number of tasks and event loops. Connections are kept for the next request
    and closed with `aclose`, or with their event loop.

    Args:
        base_url: The address that `/responses` is appended to, or a function that gives it.
        api_key: The key, or a function, perhaps async, that gives it for each request. It never
            shows in an error or to a hook.
        headers: Headers of every request.
        user_agent: What the client calls itself.
        timeouts: The limits of each request.
        hooks: Functions to call around each request.
        clock: Where the time comes from.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    def __init__(
        self,
        base_url: str | Callable[[], str],
        *,
        api_key: Key | None = None,
        headers: Mapping[str, str] | None = None,
        user_agent: str | None = None,
        timeouts: Timeouts | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = HttpClient(
            base_url,
            api_key=api_key,
            headers=headers,
            user_agent=user_agent,
            timeouts=timeouts,
            hooks=hooks,
            clock=clock,
        )

    def stream(self, request: ModelRequest) -> EventStream:
        """The events of the response to `request`, sent when the first is asked for.

        A server that answers with a JSON body gives its response as one terminal event.
        """

        async def send() -> Exchange:
            body = request_body(request)
            return await self._client.send("/responses", body, accept="text/event-stream")

        return EventStream(send, StreamDecoder(request))

    async def create(self, request: ModelRequest) -> Response:
        """The response to `request`, whole, without streaming.

        Raises:
            ConfigError: The request cannot be sent. Nothing was.
            ModelError: It failed. A response with the status `failed` is returned.
        """
        body = request_body(request, stream=False)
        return await self._client.fetch("/responses", body, lambda raw: response(raw, request))

    def losses(self, request: ModelRequest) -> tuple[Loss, ...]:
        """What of `request` the server does not get, or gets in another form."""
        return losses(request)

    async def compact(self, request: CompactRequest) -> CompactResponse:
        """Have the server fold a history. Raises as `create`."""
        return await self._client.fetch(
            "/responses/compact", compact_body(request), compact_response
        )


# --- model strings ----------------------------------------------------------------

OPENAI_URL = "https://api.openai.com/v1"

# One client for each address, so that its connections are used again from run to run.


@lru_cache(maxsize=1)
def _openai_client() -> OpenResponses:
    return OpenResponses(
        lambda: os.environ.get("OPENAI_BASE_URL") or OPENAI_URL,
        api_key=key_from("openai", "OPENAI_API_KEY"),
    )


@lru_cache(maxsize=64)
def _client_at(base_url: str) -> OpenResponses:
    return OpenResponses(base_url, api_key=lambda: os.environ.get("OPENRESPONSES_API_KEY"))


def _openresponses(rest: str) -> Resolved:
    base_url, _, name = rest.partition("#")
    if not name:
        raise ConfigError(
            f"'openresponses:{rest}' names no model; write openresponses:http://HOST/v1#MODEL"
        )
    return Resolved(_client_at(base_url), name)


def register_models() -> None:
    """Let `openai:MODEL` and `openresponses:URL#MODEL` name a model."""
    register("openai", lambda name: Resolved(_openai_client(), name))
    register("openresponses", _openresponses)

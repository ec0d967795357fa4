"""Claude over the Messages API.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `Anthropic` is the
client that sends and reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from perdure.clock import Clock, Ids
from perdure.errors import QuotaExhausted, Rejected
from perdure.loop.model import ModelRequest
from perdure.models.anthropic.messages import PROVIDER, Messages
from perdure.models.anthropic.settings import Seen, settings_members
from perdure.models.anthropic.stream import MessageAssembler
from perdure.models.http import failures
from perdure.models.http.body import Body
from perdure.models.http.client import Exchange, Hooks, HttpClient, Key, ModelClient, Timeouts
from perdure.models.http.stream import EventStream
from perdure.models.mapping.claude import takes_inline_system
from perdure.models.mapping.content import json_text, members_of, text_of_raw
from perdure.models.mapping.decoding import AnswerDecoder, last_response, whole_answer
from perdure.models.mapping.heads import Head, head_of, opened
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.turns import Turns, View
from perdure.models.registry import Resolved, key_from, register
from perdure.wire import Request, Response
from perdure.wire.sse import FRAME_LIMIT, SSEParser

URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

# --- the request ---------------------------------------------------------------

_HEAD = "perdure.models.anthropic:head"
_TURNS = "perdure.models.anthropic:turns"


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /v1/messages`.

    Turns are encoded once for a transcript and settings once for a drive (DESIGN 7).

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    view = _view(request)
    return view.between(_head(request, view, stream=stream).begin, b"]}")


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What a request does not say to Claude as it was given, and why. Raises as `request_body`."""
    view = _view(request)
    return (*_head(request, view, stream=True).losses, *view.losses())


def _view(request: ModelRequest) -> View:
    dialect = Messages(takes_inline_system(request.settings.model or ""))
    return Turns.of(request.input, (_TURNS, dialect), dialect)


def _seen(settings: Request, view: View) -> Seen:
    return Seen(
        system=[block for piece in view.leading for block in piece.blocks],
        names=() if settings.tools else view.names,
        calls_without_thought=view.calls_without_thought,
    )


def _head(request: ModelRequest, view: View, *, stream: bool) -> Head:
    """Everything before the first turn."""
    settings = request.settings
    seen = _seen(settings, view)

    def make(lost: Lost) -> bytes:
        members = settings_members(settings, seen, stream=stream, lost=lost)
        return opened(json_text(members), "messages")

    return head_of(request.input, (_HEAD, stream), settings, make, seen=seen)


# --- the answer ----------------------------------------------------------------


def response(
    body: bytes,
    request: ModelRequest | None = None,
    *,
    ids: Ids | None = None,
    clock: Clock | None = None,
) -> Response:
    """The response in a JSON body.

    Raises:
        EmptyBody: There is nothing.
        Truncated: The JSON stops in the middle.
        BadBody: It is no JSON, or no message.
        Rejected: It is an error.
    """
    return last_response(whole_answer(body, MessageAssembler(request, ids=ids, clock=clock)))


class StreamDecoder(AnswerDecoder):
    """Events from the bytes of an answer, in pieces of any size.

    Args:
        request: What is answered.
        ids: Where ids come from that the API does not give.
        clock: Where the times come from.
        frame_limit: The bytes of the largest frame that is taken.
    """

    __slots__ = ()

    def __init__(
        self,
        request: ModelRequest | None = None,
        *,
        ids: Ids | None = None,
        clock: Clock | None = None,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        assembler = MessageAssembler(request, ids=ids, clock=clock)
        super().__init__(assembler, SSEParser(frame_limit))


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Rejected:
    """The error of an HTTP answer that is not a success. Arguments as `failures.refusal`."""
    error = failures.refusal(status, headers, body, now=now)
    details = members_of(members_of(members_of(body).get("error", b"{}")).get("details", b"{}"))
    code = text_of_raw(details.get("error_code")) or error.code
    spent = "credit balance" in error.message or (code or "").endswith("spend_limit_reached")
    if spent or error.type == "billing_error":
        return failures.as_class(QuotaExhausted, error, code=code)
    return failures.as_class(type(error), error, code=code)


# --- the client ----------------------------------------------------------------


class Anthropic(ModelClient):
    """Claude behind the Messages API.

    ```python
    model = Anthropic(betas=["files-api-2025-04-14"])
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    One client serves any number of tasks and event loops. Connections are kept for the next request
    and closed with `aclose`, or with their event loop.

    Args:
        base_url: The address that `/v1/messages` is appended to, or a function that gives it.
        api_key: The key, or a function, perhaps async, that gives it for each request; the variable
            `ANTHROPIC_API_KEY` if there is none. It never shows in an error or to a hook.
        betas: The beta features to take part in.
        headers: Headers of every request.
        user_agent: What the client calls itself.
        timeouts: The limits of each request.
        hooks: Functions to call around each request.
        clock: Where the time comes from.
        ids: Where ids come from that the API does not give.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    scheme = PROVIDER

    def __init__(
        self,
        base_url: str | Callable[[], str] = URL,
        *,
        api_key: Key | None = None,
        betas: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        user_agent: str | None = None,
        timeouts: Timeouts | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        own = {"anthropic-version": VERSION}
        if betas:
            own["anthropic-beta"] = ",".join(betas)
        self._clock = clock
        self._ids = ids
        self._client = HttpClient(
            base_url,
            api_key=api_key or key_from(PROVIDER, "ANTHROPIC_API_KEY"),
            key_header="x-api-key",
            refusal=refusal,
            headers={**own, **(headers or {})},
            user_agent=user_agent,
            timeouts=timeouts,
            hooks=hooks,
            clock=clock,
        )

    def stream(self, request: ModelRequest) -> EventStream:
        """The events of the response to `request`, sent when the first is asked for."""

        async def send() -> Exchange:
            body = request_body(request)
            return await self._client.send("/v1/messages", body, accept="text/event-stream")

        return EventStream(send, StreamDecoder(request, ids=self._ids, clock=self._clock))

    async def create(self, request: ModelRequest) -> Response:
        """The response to `request`, whole, without streaming.

        Raises:
            ConfigError: The request cannot be sent. Nothing was.
            ModelError: It failed. A response with the status `failed` is returned.
        """

        def parse(raw: bytes) -> Response:
            return response(raw, request, ids=self._ids, clock=self._clock)

        return await self._client.fetch("/v1/messages", request_body(request, stream=False), parse)

    def losses(self, request: ModelRequest) -> tuple[Loss, ...]:
        """What of `request` its model does not get, or gets in another form."""
        return losses(request)


# --- model strings ----------------------------------------------------------------


@lru_cache(maxsize=1)
def _from_environment() -> Anthropic:
    return Anthropic(lambda: os.environ.get("ANTHROPIC_BASE_URL") or URL)


def register_models() -> None:
    """Let `anthropic:MODEL` name a model."""
    register(PROVIDER, lambda name: Resolved(_from_environment(), name))

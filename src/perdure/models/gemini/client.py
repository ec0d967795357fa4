"""Gemini over its own API, with an API key.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `Gemini` is the
client that sends and reads them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import quote

import msgspec
from msgspec import Raw

from perdure.clock import Clock, Ids
from perdure.errors import AuthFailed, ContextTooLong, QuotaExhausted, Rejected
from perdure.loop.model import ModelRequest
from perdure.models.gemini.contents import PROVIDER, Contents
from perdure.models.gemini.settings import settings_members, version
from perdure.models.gemini.stream import ResponseAssembler
from perdure.models.http import failures
from perdure.models.http.body import Body
from perdure.models.http.client import Exchange, Hooks, HttpClient, Key, ModelClient, Timeouts
from perdure.models.http.stream import EventStream
from perdure.models.mapping.content import json_text, members_of, model_named, text_of_raw
from perdure.models.mapping.decoding import AnswerDecoder, last_response, whole_answer
from perdure.models.mapping.heads import Head, head_of, opened
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.turns import Turns, View
from perdure.models.registry import Resolved, key_from, register
from perdure.wire import Response
from perdure.wire.sse import FRAME_LIMIT, SSEParser

URL = "https://generativelanguage.googleapis.com/v1beta"

# --- the request ---------------------------------------------------------------

_HEAD = "perdure.models.gemini:head"
_TURNS = "perdure.models.gemini:turns"


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /models/MODEL:streamGenerateContent`, or of `:generateContent`.

    Turns are encoded once for a transcript and settings once for a drive (DESIGN 7). Calls that
    another model made are signed as such since the user last spoke, and only then.

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    del stream  # the address says it
    view = _view(request)
    head = _head(request, view).begin
    if view.first != "user":  # who says nothing where the model is to begin
        head += _NOTHING if view.first is None else _NOTHING + b","
    return view.between(head, b"]}")


_NOTHING = b'{"role":"user","parts":[{"text":""}]}'


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What a request does not say to Gemini as it was given, and why. Raises as `request_body`."""
    view = _view(request)
    return (*_head(request, view).losses, *view.losses())


def _view(request: ModelRequest) -> View:
    dialect = Contents(version(request.settings.model or "") >= (3, 0))
    return Turns.of(request.input, (_TURNS, dialect), dialect)


def _system(view: View) -> list[bytes]:
    return [part for piece in view.leading for part in piece.blocks]


def _head(request: ModelRequest, view: View) -> Head:
    """Everything before the first turn."""
    settings, system = request.settings, _system(view)

    def make(lost: Lost) -> bytes:
        return opened(json_text(settings_members(settings, system, lost)), "contents")

    return head_of(request.input, _HEAD, settings, make, seen=system)


def path_of(model: str, *, stream: bool) -> str:
    """Where a request for a model goes, below the base URL."""
    name = model if "/" in model else f"models/{model}"
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/{quote(name)}:{method}"


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
        BadBody: It is no JSON, or no answer.
        Rejected: It is an error.
    """
    return last_response(whole_answer(body, ResponseAssembler(request, ids=ids, clock=clock)))


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
        assembler = ResponseAssembler(request, ids=ids, clock=clock)
        super().__init__(assembler, SSEParser(frame_limit))


class _Detail(msgspec.Struct, rename="camel"):
    """One of the details of an error: a reason, a wait, or quotas that are used up."""

    reason: str | None = None
    retry_delay: str | None = None
    violations: list[dict[str, Raw]] = []


_LONGEST = 365 * 24 * 3600.0  # seconds
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Rejected:
    """The error of an HTTP answer that is not a success. Arguments as `failures.refusal`."""
    error = failures.refusal(status, headers, body, now=now)
    details = _details(body)
    code = next((one.reason for one in details if one.reason), error.code)
    delays = [_DELAY.fullmatch(one.retry_delay or "") for one in details]
    delay = next((min(float(found[1]), _LONGEST) for found in delays if found), None)
    quotas = [text_of_raw(v.get("quotaId")) or "" for one in details for v in one.violations]
    cls: type[Rejected] = type(error)
    if status == 429 and any("PerDay" in quota for quota in quotas):
        cls = QuotaExhausted
    elif code == "API_KEY_INVALID":
        cls = AuthFailed
    elif status == 400 and "exceeds the maximum number of tokens" in error.message:
        cls = ContextTooLong
    return failures.as_class(cls, error, code=code, retry_after=delay)


def _details(body: bytes) -> list[_Detail]:
    inner = members_of(body.strip().removeprefix(b"[").removesuffix(b"]")).get("error", b"{}")
    raw = members_of(inner).get("details", b"[]")
    try:
        return msgspec.json.decode(raw, type=list[_Detail])
    except msgspec.DecodeError:
        return []


# --- the client ----------------------------------------------------------------


class Gemini(ModelClient):
    """Gemini behind its API.

    ```python
    model = Gemini(timeouts=Timeouts(idle=60))
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    One client serves any number of tasks and event loops. Connections are kept for the next request
    and closed with `aclose`, or with their event loop.

    Args:
        base_url: The address that `/models/MODEL:METHOD` is appended to, or a function that gives
            it.
        api_key: The key, or a function, perhaps async, that gives it for each request; the variable
            `GEMINI_API_KEY` or `GOOGLE_API_KEY` if there is none. It never shows in an error or to
            a hook.
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
        headers: Mapping[str, str] | None = None,
        user_agent: str | None = None,
        timeouts: Timeouts | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._client = HttpClient(
            base_url,
            api_key=api_key or key_from(PROVIDER, "GEMINI_API_KEY", "GOOGLE_API_KEY"),
            key_header="x-goog-api-key",
            refusal=refusal,
            headers=headers,
            user_agent=user_agent,
            timeouts=timeouts,
            hooks=hooks,
            clock=clock,
        )

    def stream(self, request: ModelRequest) -> EventStream:
        """The events of the response to `request`, sent when the first is asked for."""

        async def send() -> Exchange:
            path = path_of(model_named(request.settings), stream=True)
            return await self._client.send(path, request_body(request), accept="text/event-stream")

        return EventStream(send, StreamDecoder(request, ids=self._ids, clock=self._clock))

    async def create(self, request: ModelRequest) -> Response:
        """The response to `request`, whole, without streaming.

        Raises:
            ConfigError: The request cannot be sent. Nothing was.
            ModelError: It failed. A response with the status `failed` is returned.
        """

        def parse(raw: bytes) -> Response:
            return response(raw, request, ids=self._ids, clock=self._clock)

        path = path_of(model_named(request.settings), stream=False)
        return await self._client.fetch(path, request_body(request), parse)

    def losses(self, request: ModelRequest) -> tuple[Loss, ...]:
        """What of `request` its model does not get, or gets in another form."""
        return losses(request)


# --- model strings ----------------------------------------------------------------


@lru_cache(maxsize=1)
def _from_environment() -> Gemini:
    return Gemini(lambda: os.environ.get("GEMINI_BASE_URL") or URL)


def register_models() -> None:
    """Let `gemini:MODEL` and `google:MODEL` name a model."""
    for scheme in (PROVIDER, "google"):
        register(scheme, lambda name: Resolved(_from_environment(), name))

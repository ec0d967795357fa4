"""The models of Bedrock over Converse, signed and cut into frames by botocore.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response; and `losses`, what the first cannot say. `Bedrock` is the
client that sends and reads them. It needs the extra `bedrock`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import quote

from perdure.clock import Clock, Ids
from perdure.errors import (
    ContextTooLong,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
)
from perdure.loop.model import ModelRequest
from perdure.models.bedrock.events import EventStreamParser
from perdure.models.bedrock.messages import PROVIDER, Converse
from perdure.models.bedrock.settings import Seen, is_claude, settings_members
from perdure.models.bedrock.signing import (
    Credentials,
    default_credentials,
    default_region,
    signer_of,
)
from perdure.models.bedrock.stream import ConverseAssembler
from perdure.models.http import failures
from perdure.models.http.body import Body
from perdure.models.http.client import Exchange, Hooks, HttpClient, Key, ModelClient, Timeouts
from perdure.models.http.stream import EventStream
from perdure.models.mapping.content import json_text, model_named
from perdure.models.mapping.decoding import AnswerDecoder, last_response, whole_answer
from perdure.models.mapping.heads import Head, head_of, opened
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.turns import Turns, View
from perdure.models.registry import Resolved, register
from perdure.wire import Request, Response
from perdure.wire.sse import FRAME_LIMIT

# --- the request ---------------------------------------------------------------

_HEAD = "perdure.models.bedrock:head"
_TURNS = "perdure.models.bedrock:turns"
_BEGIN = b'{"role":"user","content":[{"text":"."}]},'
"""What the user says where the assistant begins, and the model does not take that."""


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /model/MODEL/converse-stream`, or of `/converse`.

    Turns are encoded once for a transcript and settings once for a drive (DESIGN 7).

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    del stream  # the address says it
    view = _view(request)
    head = _head(request, view).begin
    if view.first == "assistant" and not is_claude(request.settings.model or ""):
        head += _BEGIN
    return view.between(head, b"]}")


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What a request does not say to its model as it was given, and why.

    Raises as `request_body`.
    """
    view = _view(request)
    return (*_head(request, view).losses, *view.losses())


def _view(request: ModelRequest) -> View:
    model = request.settings.model or ""
    dialect = Converse(claude=is_claude(model), nova="nova" in model)
    return Turns.of(request.input, (_TURNS, dialect), dialect)


def _seen(settings: Request, view: View) -> Seen:
    needed = not settings.tools or settings.tool_choice == "none"
    return Seen(
        system=[block for piece in view.leading for block in piece.blocks],
        names=view.names if needed else (),
        calls_without_thought=view.calls_without_thought,
    )


def _head(request: ModelRequest, view: View) -> Head:
    """Everything before the first turn."""
    settings = request.settings
    seen = _seen(settings, view)

    def make(lost: Lost) -> bytes:
        return opened(json_text(settings_members(settings, seen, lost)), "messages")

    return head_of(request.input, _HEAD, settings, make, seen=seen)


def path_of(model: str, *, stream: bool) -> str:
    """Where a request for a model goes, below the base URL."""
    return f"/model/{quote(model, safe='')}/{'converse-stream' if stream else 'converse'}"


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
    """
    return last_response(whole_answer(body, ConverseAssembler(request, ids=ids, clock=clock)))


class StreamDecoder(AnswerDecoder):
    """Events from the bytes of an answer, in pieces of any size.

    Args:
        request: What is answered.
        ids: Where ids come from; the API gives none but those of calls.
        clock: Where the times come from.
        frame_limit: The bytes of the largest message that is taken.

    Raises:
        ConfigError: botocore is not installed.
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
        assembler = ConverseAssembler(request, ids=ids, clock=clock)
        super().__init__(assembler, EventStreamParser(frame_limit))


_NAMED: dict[str, type[Rejected]] = {
    "ThrottlingException": RateLimited,
    "ModelNotReadyException": Overloaded,
    "ModelErrorException": ServerFailed,
}
_TOO_LONG = ("input is too long", "too many input tokens", "exceed context limit")


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Rejected:
    """The error of an HTTP answer that is not a success. Arguments as `failures.refusal`."""
    error = failures.refusal(status, headers, body, now=now)
    named = next((v for n, v in headers.items() if n.lower() == "x-amzn-errortype"), "")
    code = named.partition(":")[0] or error.code
    said = error.message.lower()
    cls: type[Rejected] = type(error)
    if code == "ServiceQuotaExceededException" or (status == 429 and "per day" in said):
        cls = QuotaExhausted
    elif code in _NAMED:
        cls = _NAMED[code]
    elif status == 400 and any(words in said for words in _TOO_LONG):
        cls = ContextTooLong
    return failures.as_class(cls, error, code=code)


# --- the client ----------------------------------------------------------------


class Bedrock(ModelClient):
    """The models of Bedrock behind Converse.

    ```python
    model = Bedrock(region="eu-central-1")
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    One client serves any number of tasks and event loops. Connections are kept for the next request
    and closed with `aclose`, or with their event loop.

    Args:
        region: The region; `AWS_REGION`, `AWS_DEFAULT_REGION` or AWS's own configuration if there
            is none.
        api_key: A key of Bedrock's own, or a function that gives it for each request; the variable
            `AWS_BEARER_TOKEN_BEDROCK` if there is none. Where that is not set either, requests are
            signed.
        credentials: Gives what to sign with, on a thread, for each request; the credentials that
            botocore finds in its usual places if there is none.
        base_url: The address that `/model/MODEL/METHOD` is appended to; the region's if there is
            none.
        headers: Headers of every request.
        user_agent: What the client calls itself.
        timeouts: The limits of each request.
        hooks: Functions to call around each request.
        clock: Where the time comes from. Signatures bear the machine's.
        ids: Where ids come from that the API does not give.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    scheme = PROVIDER

    def __init__(
        self,
        *,
        region: str | None = None,
        api_key: Key | None = None,
        credentials: Callable[[], Credentials] | None = None,
        base_url: str | Callable[[], str] | None = None,
        headers: Mapping[str, str] | None = None,
        user_agent: str | None = None,
        timeouts: Timeouts | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._clock = clock
        self._ids = ids

        def region_of() -> str:
            return region or default_region()

        self._client = HttpClient(
            base_url or (lambda: f"https://bedrock-runtime.{region_of()}.amazonaws.com"),
            api_key=api_key or (lambda: os.environ.get("AWS_BEARER_TOKEN_BEDROCK")),
            refusal=refusal,
            signer=signer_of(credentials or default_credentials, region_of),
            headers=headers,
            user_agent=user_agent,
            timeouts=timeouts,
            hooks=hooks,
            clock=clock,
        )

    def stream(self, request: ModelRequest) -> EventStream:
        """The events of the response to `request`, sent when the first is asked for.

        Raises:
            ConfigError: botocore is not installed.
        """

        async def send() -> Exchange:
            path = path_of(model_named(request.settings), stream=True)
            body = request_body(request)
            return await self._client.send(path, body, accept="application/vnd.amazon.eventstream")

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
def _from_environment() -> Bedrock:
    return Bedrock()


def register_models() -> None:
    """Let `bedrock:MODEL` name a model."""
    register(PROVIDER, lambda name: Resolved(_from_environment(), name))

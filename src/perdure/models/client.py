"""The client of every adapter: what one provider's functions say, sent and read over HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import ClassVar, ForwardRef, NamedTuple, Protocol, Unpack

from perdure.clock import Clock, Ids
from perdure.loop.losses import Loss
from perdure.loop.model import ModelRequest
from perdure.models.http import failures
from perdure.models.http.body import Body
from perdure.models.http.client import ClientOptions, Exchange, HttpClient, Refusal, Signer
from perdure.models.http.stream import Decoder, EventStream
from perdure.models.mapping.settings import model_named
from perdure.wire import Response


class PathOf(Protocol):
    """Where a request for a model goes, below the base URL."""

    def __call__(self, model: str, /, *, stream: bool) -> str: ...


class BodyOf(Protocol):
    """The body of a request. Raises `ConfigError` for one that cannot be sent."""

    def __call__(self, request: ModelRequest, /, *, stream: bool) -> Body: ...


class DecoderOf(Protocol):
    """What reads the stream that answers a request."""

    def __call__(
        self, request: ModelRequest, /, *, ids: Ids | None, clock: Clock | None
    ) -> Decoder: ...


class ResponseOf(Protocol):
    """The response in a JSON body that answers a request. Raises `ModelError`."""

    def __call__(
        self, body: bytes, request: ModelRequest, /, *, ids: Ids | None, clock: Clock | None
    ) -> Response: ...


class Api(NamedTuple):
    """One provider's API, as functions of values.

    Attributes:
        path: Where requests go, below the base URL.
        body: What is sent.
        decoder: What reads a stream.
        response: What reads a body that is no stream.
        losses: What a request does not say. Raises as `body`.
        accept: The type of a stream.
        key_header: The header of the key; empty for `Authorization`, as a bearer.
        refusal: What makes the error of an answer that is not a success.
    """

    path: str | PathOf
    body: BodyOf
    decoder: DecoderOf
    response: ResponseOf
    losses: Callable[[ModelRequest], tuple[Loss, ...]]
    accept: str = "text/event-stream"
    key_header: str = ""
    refusal: Refusal = failures.refusal


class ModelClient:
    """A model behind HTTP.

    One client serves any number of tasks and event loops. Connections are kept for the next request
    and closed with `aclose`, or with their event loop.

    Args:
        api: What is sent, and how the answer is read.
        base_url: What paths are appended to, or a function that gives it for each request.
        ids: Where ids come from that the provider does not give.
        signer: What signs the requests that carry no key.
        options: What every client takes: see `ClientOptions`.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    scheme: ClassVar[str] = ""
    """What model strings of its models begin with; empty for a client of any server."""

    __signature__: ClassVar[Signature]

    def __init__(
        self,
        api: Api,
        base_url: str | Callable[[], str],
        *,
        ids: Ids | None = None,
        signer: Signer | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        for name in options.keys() - ClientOptions.__annotations__:
            raise TypeError(f"{type(self).__name__}() has no option {name!r}")
        self._api = api
        self._ids = ids
        self._clock = options.get("clock")
        self._client = HttpClient(
            base_url, options, key_header=api.key_header, refusal=api.refusal, signer=signer
        )

    def __init_subclass__(cls) -> None:
        """Spell the options out, for `help` and for whoever else looks at the signature."""
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__signature__ = _spelled_out(inspect.signature(cls.__init__))

    def stream(self, request: ModelRequest) -> EventStream:
        """The events of the response to `request`, sent when the first is asked for.

        A server that answers with a JSON body gives its response at the end of it.
        """
        api = self._api

        async def send() -> Exchange:
            path, body = self._path(request, stream=True), api.body(request, stream=True)
            return await self._client.send(path, body, accept=api.accept)

        return EventStream(send, api.decoder(request, ids=self._ids, clock=self._clock))

    async def create(self, request: ModelRequest) -> Response:
        """The response to `request`, whole, without streaming.

        Raises:
            ConfigError: The request cannot be sent. Nothing was.
            ModelError: It failed. A response with the status `failed` is returned.
        """
        api = self._api

        def parse(raw: bytes) -> Response:
            return api.response(raw, request, ids=self._ids, clock=self._clock)

        path, body = self._path(request, stream=False), api.body(request, stream=False)
        return await self._client.fetch(path, body, parse)

    def losses(self, request: ModelRequest) -> tuple[Loss, ...]:
        """What of `request` its model does not get, or gets in another form."""
        return self._api.losses(request)

    async def check(self) -> None:
        """Raise `ConfigError` if no request could be sent, for want of a key, say."""
        await self._client.check()

    async def aclose(self) -> None:
        """Close the connections that the running event loop keeps. The client stays usable."""
        await self._client.aclose()

    def _path(self, request: ModelRequest, *, stream: bool) -> str:
        path = self._api.path
        return path if isinstance(path, str) else path(model_named(request.settings), stream=stream)


def _spelled_out(signature: Signature) -> Signature:
    """A signature without its `self`, and with the options in place of `**options`."""
    found = list(signature.parameters.values())[1:]
    if not found or found[-1].annotation != "Unpack[ClientOptions]":
        return signature.replace(parameters=found, return_annotation=Signature.empty)
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_said(type_))
        for name, type_ in ClientOptions.__annotations__.items()
    ]
    return signature.replace(parameters=[*found[:-1], *options], return_annotation=Signature.empty)


def _said(annotation: object) -> object:
    """An annotation as it was written."""
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation

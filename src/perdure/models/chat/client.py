"""Chat Completions over HTTP: OpenAI, and the many services and servers that speak the same.

Three maps, each a pure function of bytes and values: `request_body` from a request, `StreamDecoder`
and `response` to events and a response. `losses` says what a request cannot carry, `Chat` is the
client that sends and reads. How services differ stands in `dialects`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from perdure.clock import Clock, Ids
from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.models.chat.chunks import refusal_of
from perdure.models.chat.messages import Messages, messages
from perdure.models.chat.settings import instructions, members
from perdure.models.chat.stream import ChatAssembler, StreamDecoder
from perdure.models.dialects import (
    AZURE,
    CEREBRAS,
    DEEPSEEK,
    GEMINI,
    GENERIC,
    GROQ,
    LMSTUDIO,
    MISTRAL,
    OLLAMA,
    OPENAI,
    VLLM,
    XAI,
    ZAI,
    Dialect,
    dialect_at,
)
from perdure.models.http.body import Body
from perdure.models.http.client import Exchange, Hooks, HttpClient, Key, ModelClient, Timeouts
from perdure.models.http.stream import EventStream
from perdure.models.mapping.content import json_text
from perdure.models.mapping.decoding import last_response, whole_answer
from perdure.models.mapping.heads import Head, head_of
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.registry import Resolved, key_from, register
from perdure.wire import Response

_HEAD_KEY = "perdure.models.chat:head"
_TAIL = b"]}"


# --- the request ---------------------------------------------------------------


def request_body(request: ModelRequest, *, stream: bool = True, dialect: Dialect = OPENAI) -> Body:
    """The body of `POST /chat/completions`.

    What is settled of the input is encoded once for a transcript, and settings once for a drive
    (DESIGN 7).

    Raises:
        ConfigError: The settings name a conversation that a server holds, or a tool whose name
            cannot be sent.
    """
    said, head = _mapped(request, dialect, stream=stream)
    before = head.begin if said.fragments else head.begin.removesuffix(b",")
    length = len(before) + said.length + len(_TAIL)
    return Body([before, *said.fragments, _TAIL], length)


def losses(request: ModelRequest, *, dialect: Dialect = OPENAI) -> tuple[Loss, ...]:
    """What of a request its service does not get, or gets in another form. Raises as above."""
    said, head = _mapped(request, dialect, stream=True)
    return (*head.losses, *said.losses)


def _mapped(request: ModelRequest, dialect: Dialect, *, stream: bool) -> tuple[Messages, Head]:
    items, settings = request.input, request.settings
    said = messages(items, dialect, dialect.thoughts_of(settings.model or ""))

    def make(lost: Lost) -> bytes:
        body = members(settings, dialect, lost, stream=stream)
        body["messages"] = instructions(settings, said.system)
        begin = json_text(body).removesuffix(_TAIL)
        return begin if begin.endswith(b"[") else begin + b","

    key = (_HEAD_KEY, dialect, stream)
    return said, head_of(items, key, settings, make, seen=said.system)


# --- the answer ----------------------------------------------------------------


def response(
    body: bytes,
    request: ModelRequest | None = None,
    *,
    dialect: Dialect = OPENAI,
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
    assembler = ChatAssembler(request, dialect, ids=ids, clock=clock)
    return last_response(whole_answer(body, assembler))


# --- the client ----------------------------------------------------------------


class Chat(ModelClient):
    """A model behind a Chat Completions server.

    ```python
    model = Chat("http://127.0.0.1:8000/v1", dialect=VLLM)
    async with model.stream(request) as events:
        async for event in events: ...
    ```

    One client serves any number of tasks and event loops. Connections are kept for the next request
    and closed with `aclose`, or with their event loop.

    Args:
        base_url: The address that `/chat/completions` is appended to, or a function that gives it.
        dialect: Who stands there; told by the host if it is not given.
        api_key: The key, or a function, perhaps async, that gives it for each request. It never
            shows in an error or to a hook.
        headers: Headers of every request.
        user_agent: What the client calls itself.
        timeouts: The limits of each request.
        hooks: Functions to call around each request.
        clock: Where the time comes from.
        ids: Where ids come from that the service does not give.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    def __init__(
        self,
        base_url: str | Callable[[], str],
        *,
        dialect: Dialect | None = None,
        api_key: Key | None = None,
        headers: Mapping[str, str] | None = None,
        user_agent: str | None = None,
        timeouts: Timeouts | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        if dialect is None:
            dialect = dialect_at(base_url) if isinstance(base_url, str) else GENERIC
        self.dialect = dialect
        self._clock = clock
        self._ids = ids
        self._client = HttpClient(
            base_url,
            api_key=api_key,
            key_header=dialect.key_header,
            refusal=refusal_of,
            headers=headers,
            user_agent=user_agent,
            timeouts=timeouts,
            hooks=hooks,
            clock=clock,
        )

    def stream(self, request: ModelRequest) -> EventStream:
        """The events of the response to `request`, sent when the first is asked for."""

        async def send() -> Exchange:
            body = request_body(request, dialect=self.dialect)
            return await self._client.send(_PATH, body, accept="text/event-stream")

        decoder = StreamDecoder(request, dialect=self.dialect, ids=self._ids, clock=self._clock)
        return EventStream(send, decoder)

    async def create(self, request: ModelRequest) -> Response:
        """The response to `request`, whole, without streaming.

        Raises:
            ConfigError: The request cannot be sent. Nothing was.
            ModelError: It failed. A response with the status `failed` is returned.
        """
        return await self._client.fetch(
            _PATH,
            request_body(request, stream=False, dialect=self.dialect),
            partial(
                response, request=request, dialect=self.dialect, ids=self._ids, clock=self._clock
            ),
        )

    def losses(self, request: ModelRequest) -> tuple[Loss, ...]:
        """What of `request` the service does not get, or gets in another form."""
        return losses(request, dialect=self.dialect)


_PATH = "/chat/completions"


# --- model strings ---------------------------------------------------------------

SCHEMES: Mapping[str, Dialect] = {
    "openai-chat": OPENAI,
    "azure": AZURE,
    "groq": GROQ,
    "deepseek": DEEPSEEK,
    "mistral": MISTRAL,
    "cerebras": CEREBRAS,
    "xai": XAI,
    "zai": ZAI,
    "gemini-chat": GEMINI,
    "ollama": OLLAMA,
    "vllm": VLLM,
    "lmstudio": LMSTUDIO,
    "chat": GENERIC,
}
"""Who a scheme names. After it stands a model, or `URL#MODEL` for a server elsewhere."""


def register_models() -> None:
    """Let model strings of the schemes above name clients of this module."""
    for scheme, dialect in SCHEMES.items():
        register(scheme, partial(_resolve, scheme, dialect))


def _resolve(scheme: str, dialect: Dialect, rest: str) -> Resolved:
    if not rest.startswith(("http://", "https://")):
        if not dialect.base_url and not dialect.url_variable:
            raise ConfigError(
                f"'{scheme}:{rest}' names no server; write {scheme}:http://HOST/v1#MODEL"
            )
        return Resolved(_client(scheme, dialect, None), rest)
    base_url, _, name = rest.partition("#")
    if not name:
        raise ConfigError(f"'{scheme}:{rest}' names no model; write {scheme}:http://HOST/v1#MODEL")
    found = dialect_at(base_url) if dialect is GENERIC else dialect
    return Resolved(_client(scheme, found, base_url), name)


@lru_cache(maxsize=64)
def _client(scheme: str, dialect: Dialect, base_url: str | None) -> Chat:
    """The client of an address, so that its connections are used again from run to run."""
    return Chat(
        base_url or partial(base_url_of, dialect),
        dialect=dialect,
        api_key=key_of(scheme, dialect),
    )


def key_of(provider: str, dialect: Dialect) -> Callable[[], str | None]:
    """A key that is read from the environment whenever a request is sent."""
    if dialect.needs_key:
        return key_from(provider, *dialect.keys)
    return lambda: next(filter(None, map(os.environ.get, dialect.keys)), None)


def base_url_of(dialect: Dialect) -> str:
    """The address of a service, which the environment may change.

    Raises:
        ConfigError: Nobody says where it is.
    """
    found = os.environ.get(dialect.url_variable, "").strip() if dialect.url_variable else ""
    url = found or dialect.base_url
    if not url:
        raise ConfigError(f"no address for {dialect.name!r}: set {dialect.url_variable}")
    if dialect is AZURE and "/openai" not in url:  # the address of a resource
        return url.rstrip("/") + "/openai/v1"
    return url

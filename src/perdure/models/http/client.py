"""What adapters share of HTTP: addresses, keys, limits, hooks, and errors that hide secrets."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar
from urllib.parse import urlsplit

import msgspec

from perdure.clock import Clock, SystemClock
from perdure.errors import ConfigError, ModelError, Rejected
from perdure.models.http.body import Body
from perdure.models.http.failures import refusal, scrub
from perdure.models.http.timeouts import Timeouts

if TYPE_CHECKING:
    from perdure.models.http.transport import Answer, Sessions

ERROR_LIMIT = 64 * 1024
"""The most bytes to read of an answer that is an error."""

BODY_LIMIT = 32 * 1024 * 1024
"""The most bytes to take of an answer that is not a stream."""

T = TypeVar("T")
ErrorT = TypeVar("ErrorT", bound=ModelError)

Key = str | Callable[[], str | None] | Callable[[], Awaitable[str | None]]
"""An API key, or what gives it: it is asked for each request."""


class Refusal(Protocol):
    """What makes the error of an answer that is not a success."""

    def __call__(
        self, status: int, headers: Mapping[str, str], body: bytes, *, now: float
    ) -> Rejected: ...


Signature = Callable[[str, Body], Mapping[str, str]]
"""Gives the headers that sign a request, from its address and its body."""

Signer = Callable[[], Awaitable[Signature]]
"""Gives the signature of a request that carries no key; it is asked for each.

It raises `ConfigError` if there is nothing to sign with.
"""

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is about to be sent.

    Attributes:
        method: The HTTP method.
        url: Where it goes.
        headers: Its headers but those that hold secrets. A `before_request` hook may change them.
        size: How many bytes its body has.
    """

    method: str
    url: str
    headers: dict[str, str]
    size: int


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The head of an answer, success or not.

    Attributes:
        request: What it answers.
        status: The HTTP status.
        headers: Its headers.
        seconds: How long it took to come.
    """

    request: HttpRequest
    status: int
    headers: Mapping[str, str]
    seconds: float


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """Functions to call around each request. They run on the event loop and must not block.

    What one raises reaches whoever asked for the response, and the connection is closed.

    Attributes:
        before_request: Called once for every request, directly before it is sent; what it raises
            keeps the request from being sent.
        after_response: Called when the head of an answer has come.
        on_error: Called with the error before it is raised: no answer, a refusal, or a stream that
            broke. Not called for a caller that stops or is cancelled.
    """

    before_request: Callable[[HttpRequest], None] | None = None
    after_response: Callable[[HttpResponse], None] | None = None
    on_error: Callable[[HttpRequest, ModelError], None] | None = None


class ClientOptions(TypedDict, total=False):
    """What every client takes, by keyword.

    Attributes:
        api_key: The key, or a function, perhaps async, that gives it for each request. It never
            shows in an error or to a hook.
        headers: Headers of every request. They win over those that the client makes; where one of
            them authorizes, no key is asked for.
        user_agent: What the client calls itself.
        timeouts: The limits of each request.
        hooks: Functions to call around each request.
        clock: Where the time comes from.
    """

    api_key: Key | None
    headers: Mapping[str, str] | None
    user_agent: str | None
    timeouts: Timeouts | None
    hooks: Hooks | None
    clock: Clock | None


class Exchange:
    """One request that was sent, and its answer.

    Attributes:
        request: The request, as the hooks see it.
        answer: The answer; its head is a success.
    """

    __slots__ = ("_hooks", "_secrets", "answer", "request")

    answer: Answer

    def __init__(self, request: HttpRequest, hooks: Hooks, secrets: tuple[str, ...]) -> None:
        self.request = request
        self._hooks = hooks
        self._secrets = secrets

    def failed(self, error: ErrorT) -> ErrorT:
        """The error, without secrets and known to the hooks, to be raised."""
        scrub(error, self._secrets)
        if self._hooks.on_error is not None:
            self._hooks.on_error(self.request, error)
        return error


class HttpClient:
    """Sends requests to one provider. Nothing is ever sent twice.

    Args:
        base_url: What paths are appended to, or a function that gives it for each request.
        options: What every client takes.
        key_header: The header of the key; empty for `Authorization`, as a bearer.
        refusal: What makes the error of an answer that is not a success.
        signer: What signs the requests that carry no key.

    Raises:
        ConfigError: `base_url` is not the URL of an HTTP server, or a header cannot be sent.
    """

    def __init__(
        self,
        base_url: str | Callable[[], str],
        options: ClientOptions,
        *,
        key_header: str = "",
        refusal: Refusal = refusal,
        signer: Signer | None = None,
    ) -> None:
        if isinstance(base_url, str):
            _check_url(base_url)
        self._base_url = base_url
        self._headers = dict(options.get("headers") or {})
        _check_headers(self._headers)
        given = {name.lower() for name in self._headers}
        self._authorized = not given.isdisjoint({"authorization", key_header.lower()})
        self._api_key = None if self._authorized else options.get("api_key")
        self._key_header = key_header
        self._refusal = refusal
        self._signer = signer
        self._user_agent = options.get("user_agent")
        self._timeouts = options.get("timeouts") or Timeouts()
        self._hooks = options.get("hooks") or Hooks()
        self._clock: Clock = options.get("clock") or SystemClock()
        self._sessions: Sessions | None = None

    async def send(self, path: str, body: Body, *, accept: str = "application/json") -> Exchange:
        """Send a request, and wait until the head of its answer says success.

        Raises:
            ConfigError: It cannot be sent, for want of a key, say. Nothing was.
            ModelError: There was no answer, or the server refused.
        """
        url = self._url(path)
        headers, secret, sign = await self._both_headers(accept)
        request = HttpRequest(method="POST", url=url, headers=headers, size=body.length)
        if self._hooks.before_request is not None:
            self._hooks.before_request(request)
        if sign is not None:
            secret.update(sign(url, body))
        exchange = Exchange(request, self._hooks, _secrets_of(secret))
        try:
            exchange.answer = await self._post(request, secret, body)
            await self._check(exchange.answer)
        except ModelError as error:
            exchange.failed(error)
            raise
        return exchange

    async def fetch(self, path: str, body: Body, parse: Callable[[bytes], T]) -> T:
        """Send a request, and give its whole answer to `parse`. Raises as `send`."""
        exchange = await self.send(path, body)
        try:
            return parse(await exchange.answer.read_all(BODY_LIMIT))
        except ModelError as error:
            exchange.failed(error)
            raise
        finally:
            exchange.answer.abort()

    async def check(self) -> None:
        """Whether a request could be sent, as far as that shows without sending one.

        Raises:
            ConfigError: It could not, for want of a key, say.
        """
        self._url("")
        await self._both_headers("")

    async def aclose(self) -> None:
        """Close the connections that the running event loop keeps."""
        if self._sessions is not None:
            await self._sessions.aclose()

    async def _post(self, request: HttpRequest, secret: dict[str, str], body: Body) -> Answer:
        from perdure.models.http import transport

        if self._sessions is None:
            self._sessions = transport.Sessions()
        session = await self._sessions.current()
        started = self._clock.monotonic()
        headers = {**request.headers, **secret}
        answer = await transport.post(session, request.url, headers, body, self._timeouts)
        if self._hooks.after_response is not None:
            seconds = self._clock.monotonic() - started
            head = HttpResponse(
                request=request, status=answer.status, headers=answer.headers, seconds=seconds
            )
            try:
                self._hooks.after_response(head)
            except BaseException:
                answer.abort()
                raise
        return answer

    async def _check(self, answer: Answer) -> None:
        if 200 <= answer.status < 300:
            return
        try:
            body = await answer.read_some(ERROR_LIMIT)
        finally:
            answer.abort()
        raise self._refusal(answer.status, answer.headers, body, now=self._clock.wall() / 1e9)

    def _url(self, path: str) -> str:
        base = self._base_url
        if not isinstance(base, str):
            base = base()
            _check_url(base)
        address, mark, query = base.partition("?")
        return f"{address.rstrip('/')}{path}{mark}{query}"

    async def _both_headers(
        self, accept: str
    ) -> tuple[dict[str, str], dict[str, str], Signature | None]:
        """The headers to show, those that hold secrets, and what signs the request if anything."""
        headers = {
            "Content-Type": "application/json",
            "Accept": accept,
            "Accept-Encoding": "identity",
            "User-Agent": self._user_agent or _own_name(),
        }
        key = await self._key()
        if key:
            headers[self._key_header or "Authorization"] = (
                key if self._key_header else f"Bearer {key}"
            )
        given = {name.lower() for name in self._headers}
        every = {name: value for name, value in headers.items() if name.lower() not in given}
        every.update(self._headers)
        secret = {
            name: value for name, value in every.items() if _is_secret(name, self._key_header)
        }
        sign = None
        if self._signer is not None and not (key or self._authorized):
            sign = await self._signer()
        return {n: v for n, v in every.items() if n not in secret}, secret, sign

    async def _key(self) -> str | None:
        key = self._api_key
        if callable(key):
            found = key()
            key = await found if inspect.isawaitable(found) else found
        if key and not (key.isascii() and key.isprintable()):
            raise ConfigError("the API key holds characters that no header may have")
        return key


def _is_secret(name: str, key_header: str) -> bool:
    return name == key_header or _SECRET_HEADER.search(name) is not None


def _secrets_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What must not show in an error: the values, and a key without the word before it."""
    values = {value for header in headers.values() for value in (header, header.split(" ")[-1])}
    return tuple(sorted(filter(None, values), key=len, reverse=True))


def _check_url(url: str) -> None:
    if re.match(r"[^/]*//[^/?#]*@", url):  # first, so that no message shows them
        raise ConfigError("a base URL must not hold credentials; give them as headers")
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, say
        good = False
    if not good or re.search(r"[#\s]", url):
        raise ConfigError(f"{url!r} is not the URL of an HTTP server; write http://HOST/v1")


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if re.search(r"[\x00-\x1f\x7f]", name + value):
            raise ConfigError(f"header {name!r} holds characters that no header may have")


@cache
def _own_name() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"perdure/{version('perdure')}"
    except PackageNotFoundError:
        return "perdure"

"""A model call failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from perdure.errors.base import PerdureError

TimeoutPhase = Literal["connect", "first_byte", "idle", "total"]


class ModelError(PerdureError):
    """A model call failed.

    Attributes:
        status: The HTTP status, when the server gave one.
    """

    status: int | None = None


class Transport(ModelError, ConnectionError):
    """The connection to the model failed: refused, reset, unresolved, not TLS.

    Attributes:
        sent: Whether the request may have reached the server.
    """

    def __init__(self, *args: object, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(*args)


class ModelTimeout(Transport, TimeoutError):
    """A model call took too long.

    Attributes:
        phase: Which limit was reached: `connect`, `first_byte`, `idle` or `total`.
        seconds: That limit.
    """

    def __init__(self, phase: TimeoutPhase, seconds: float) -> None:
        self.phase: TimeoutPhase = phase
        self.seconds = seconds
        super().__init__(
            f"the model call reached its {phase} timeout of {seconds:g} s", sent=phase != "connect"
        )


class Truncated(ModelError):
    """The stream ended before its terminal event. What had come is kept by whoever folded it."""

    def __init__(self, message: str = "the stream ended before its terminal event") -> None:
        super().__init__(message)


class EmptyBody(Truncated):
    """The server closed the answer without sending a byte of it."""

    def __init__(self) -> None:
        super().__init__("the server sent an empty body")


class BadBody(ModelError):
    """The server's answer is not JSON, or not a response.

    Attributes:
        body: The beginning of what it sent.
    """

    def __init__(self, reason: str, *, body: bytes = b"", status: int | None = None) -> None:
        self.body = body
        self.status = status
        super().__init__(reason)


class EmptyAnswer(ModelError):
    """A response that says nothing where an answer was due.

    Attributes:
        response_id: Its id.
    """

    def __init__(self, response_id: str, *, status: str = "") -> None:
        self.response_id = response_id
        how = f" with the status {status!r}" if status else ""
        super().__init__(f"response {response_id!r} has no output{how}; ask again")


class RecordedFailure(ModelError):
    """A model call or a drive failed on the record, which has its words and not its class.

    Attributes:
        again: The call was made again there, and may be made again here, at once.
        retry_after: Seconds to wait before that; None if it is not to be made again.
        took: What it took there, for the spend of the run; None if the record does not say.
    """

    def __init__(self, message: str, *, again: bool = False, took: object = None) -> None:
        self.again = again
        self.took = took
        self.retry_after = 0.0 if again else None
        super().__init__(message)


class NoRecordedTurn(ModelError):
    """A record was asked for more turns than it has.

    Attributes:
        turns: How many model calls it has, those that failed among them.
    """

    def __init__(self, turns: int) -> None:
        self.turns = turns
        super().__init__(f"the record has {turns} model calls, and another was asked for")


class ReplayMismatch(ModelError):
    """A record answers another request than the one that is made.

    Something else is sent than was then: other instructions, tools, settings, or items before.

    Attributes:
        entry: The response entry that would be next.
        recorded: The hash of the request that it answers.
        given: The hash of the request that was made; empty if it has none.
    """

    def __init__(self, entry: str, recorded: str, given: str) -> None:
        self.entry = entry
        self.recorded = recorded
        self.given = given
        super().__init__(
            f"response {entry!r} answers the request {recorded!r}, and {given!r} was made"
        )


class Rejected(ModelError):
    """The server refused the request, or said that the response failed.

    `rejection` picks the exact class.

    Attributes:
        status: The HTTP status; None for an error inside a stream.
        type: The wire's error type, as `invalid_request` or `too_many_requests`.
        code: The server's code, if any.
        param: The member at fault, if any.
        message: The server's own message.
        retry_after: Seconds the server asks to wait, if it said; never negative.
        headers: The headers that describe the error.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str = "server_error",  # noqa: A002 - the wire's own name
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.message = message
        self.status = status
        self.type = type
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.headers: Mapping[str, str] = dict(headers or {})
        where = f" (HTTP {status})" if status is not None else ""
        super().__init__(f"{type}{where}: {message}")


class RateLimited(Rejected):
    """Too many requests or tokens for now. `retry_after` says how long to wait, if known."""


class QuotaExhausted(Rejected):
    """The account has no credit or quota left. Waiting does not help; somebody has to pay."""


class Overloaded(Rejected):
    """The server has no room at the moment. Another try later may succeed."""


class ServerFailed(Rejected):
    """The server failed, or a proxy before it did."""


class AuthFailed(Rejected):
    """The key is missing, wrong, or not allowed to do this."""


class NotFound(Rejected):
    """There is no such model, or nothing answers at this address."""


class ContextTooLong(Rejected):
    """The input, with what the answer may take, does not fit into the model's context."""


class InvalidInput(Rejected):
    """The request is wrong; the same request fails again. `param` names the member, if known."""


class NotTerminal(Rejected):
    """The answer is no end of a response: it is queued, still in progress, or was cancelled."""


_CODES: dict[type[Rejected], tuple[str, ...]] = {
    QuotaExhausted: (
        "insufficient_quota",
        "quota_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_balance",
        "insufficient_credits",
        "payment_required",
    ),
    RateLimited: ("rate_limit_exceeded", "rate_limit_error", "rate_limited", "too_many_requests"),
    Overloaded: (
        "server_overloaded",
        "overloaded",
        "overloaded_error",
        "engine_overloaded",
        "slow_down",
    ),
    ContextTooLong: ("context_length_exceeded", "context_window_exceeded"),
    AuthFailed: (
        "invalid_api_key",
        "authentication_error",
        "permission_error",
        "permission_denied",
    ),
    NotFound: ("not_found", "not_found_error", "model_not_found", "deployment_not_found"),
}
"""Codes and types that mean one thing, as servers write them, in lower case."""

_CLASS_OF_CODE = {code: cls for cls, codes in _CODES.items() for code in codes}

_CLASS_OF_STATUS: dict[int, type[Rejected]] = {
    401: AuthFailed,
    402: QuotaExhausted,
    403: AuthFailed,
    404: NotFound,
    408: ServerFailed,
    429: RateLimited,
    503: Overloaded,
    529: Overloaded,
}

_TOO_LONG = ("context length", "context window", "context_length", "prompt is too long")


def rejection(
    message: str,
    *,
    status: int | None = None,
    type: str | None = None,  # noqa: A002 - the wire's own name
    code: str | None = None,
    param: str | None = None,
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> Rejected:
    """The error of what a server said, in its exact class.

    A code or type that means one thing decides, since servers say under 400 or 429 what they mean
    by it; then the status, or a code that is one.
    """
    said = _CLASS_OF_CODE.get((code or "").lower()) or _CLASS_OF_CODE.get((type or "").lower())
    cls = said or _class_of_status(status or _status_in(code), type, message)
    return cls(
        message,
        status=status,
        type=type or "server_error",
        code=code,
        param=param,
        retry_after=retry_after,
        headers=headers,
    )


def _status_in(code: str | None) -> int | None:
    return int(code) if code and code.isdecimal() and len(code) == 3 else None


def _class_of_status(status: int | None, type_: str | None, message: str) -> type[Rejected]:
    cls = _CLASS_OF_STATUS.get(status or 0)
    if cls is not None:
        return cls
    wrong = status < 500 if status else (type_ or "").startswith("invalid")
    if not wrong:
        return ServerFailed
    said = message.lower()
    return ContextTooLong if any(words in said for words in _TOO_LONG) else InvalidInput

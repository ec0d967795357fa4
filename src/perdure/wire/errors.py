"""Errors between the wire and HTTP: which status a payload has, which payload an answer has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from perdure.errors import DecodeError, InvalidRequest, Rejected, rejection
from perdure.wire.codec import decode_error, encode
from perdure.wire.responses import ErrorPayload
from perdure.wire.values import ABSENT

_STATUSES = {
    "invalid_request": 400,
    "invalid_request_error": 400,
    "not_found": 404,
    "too_many_requests": 429,
}
_TYPES = {
    400: "invalid_request",
    404: "not_found",
    422: "invalid_request",
    429: "too_many_requests",
}

MAX_RETRY_AFTER = 365 * 24 * 3600.0
"""The longest wait a server can ask for, in seconds; longer ones, and infinity, are this."""

_DESCRIBING = re.compile(r"retry-after(-ms)?|x-should-retry|(x-)?ratelimit-.+", re.IGNORECASE)


class HttpError(NamedTuple):
    """An error as an HTTP answer carries it."""

    status: int
    payload: ErrorPayload


def status_of(error_type: str | None) -> int:
    """The HTTP status of an error type. What is not known is the server's own fault: 500."""
    return _STATUSES.get(error_type or "", 500)


def type_of(status: int) -> str:
    """The error type of an HTTP status."""
    return _TYPES.get(status, "server_error")


def describing_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that describe an error: when to come again, and the rate limits."""
    return {name: value for name, value in headers.items() if _DESCRIBING.fullmatch(name)}


def error_from_http(status: int, body: bytes, headers: Mapping[str, str]) -> ErrorPayload:
    """The error that an HTTP answer carries.

    Args:
        status: Decides the type where the body does not name one.
        body: An envelope with an `error`; anything else becomes the message as it is.
        headers: Those that describe the error are kept in the payload.
    """
    payload = _from_envelope(body) or ErrorPayload(
        code=None, message=body.decode("utf-8", "replace").strip() or _phrase(status), param=None
    )
    described = {**describing_headers(headers), **(payload.headers or {})}
    return msgspec.structs.replace(
        payload,
        type=payload.type or type_of(status),
        headers=described or payload.headers,
    )


def error_to_http(error: BaseException) -> HttpError:
    """What a server answers when this was raised.

    An error that has an HTTP `status` keeps it. An error of an unknown class is the server's own,
    with its text as the message.
    """
    payload = _payload_of(error)
    status: object = getattr(error, "status", None)
    if not isinstance(status, int) or not 400 <= status <= 599:
        status = status_of(payload.type or None)
    return HttpError(status, payload)


def error_body(payload: ErrorPayload) -> bytes:
    """The envelope of an error: `code` and `param` are always in it."""
    complete = msgspec.structs.replace(
        payload,
        type=payload.type or "server_error",
        code=payload.code or None,
        param=payload.param or None,
    )
    return b'{"error":' + encode(complete) + b"}"


def _payload_of(error: BaseException) -> ErrorPayload:
    match error:
        case InvalidRequest():
            return ErrorPayload(
                type="invalid_request", code=error.code, message=error.message, param=error.param
            )
        case DecodeError():
            code = "invalid_value" if error.path else "invalid_json"
            return ErrorPayload(
                type="invalid_request", code=code, message=error.reason, param=error.path or None
            )
        case Rejected():
            return ErrorPayload(
                type=error.type,
                code=error.code,
                message=error.message,
                param=error.param,
                headers=describing_headers(error.headers) or ABSENT,
            )
        case _:
            status: object = getattr(error, "status", None)
            return ErrorPayload(
                type=type_of(status) if isinstance(status, int) else "server_error",
                code="internal_error",
                message=str(error) or type(error).__name__,
                param=None,
            )


def _from_envelope(body: bytes) -> ErrorPayload | None:
    try:
        payload = decode_error(bytes(msgspec.json.decode(body, type=_Envelope).error))
    except (msgspec.DecodeError, UnicodeDecodeError, DecodeError):
        return None
    return payload if payload.message else None


class _Envelope(msgspec.Struct):
    error: msgspec.Raw


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "the server gave no reason"


def rejected(error: ErrorPayload) -> Rejected:
    """The exception of an `error` event or of a response that failed."""
    return rejection(
        error.message,
        type=error.type or None,
        code=str(error.code) if error.code else None,
        param=error.param or None,
        retry_after=retry_after(error.headers or {}, now=None),
        headers=error.headers or {},
    )


def retry_after(headers: Mapping[str, str], *, now: float | None) -> float | None:
    """The seconds a server asks to wait, between 0 and `MAX_RETRY_AFTER`; None if it does not say.

    A date is measured from the answer's own `Date`, if it has one, so clocks need not agree.
    """
    found = {name.lower(): value.strip() for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return _bounded(float(found.get(name, "")) / unit)
        except ValueError:
            pass
    until = _timestamp(found.get("retry-after", ""))
    since = _timestamp(found.get("date", "")) or now
    return None if until is None or since is None else _bounded(until - since)


def _bounded(seconds: float) -> float | None:
    return None if seconds != seconds else min(max(seconds, 0.0), MAX_RETRY_AFTER)  # noqa: PLR0124


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None

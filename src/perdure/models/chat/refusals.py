"""What services of Chat Completions say when they refuse, and when they fail midway."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.errors import Rejected, rejection
from perdure.models.chat.chunks import Chunk, Members, object_of, rest_of
from perdure.models.http import failures
from perdure.wire import ErrorPayload


def error_of(error: object) -> ErrorPayload:
    """What a server says went wrong, in a chunk, a frame or a body, whatever its shape."""
    outer = object_of(error)
    inner = outer.get("error", outer) if outer else error
    said = object_of(inner)
    message = said.get("message") or said.get("detail") or (inner if inner and not said else "")
    code, kind, param = said.get("code"), said.get("type"), said.get("param")
    if code is None:
        code = said.get("status_code")
    return ErrorPayload(
        type=kind if isinstance(kind, str) else None,
        code=code if isinstance(code, str | int) else None,
        message=_readable(message) + _upstream(said),
        param=param if isinstance(param, str) else None,
        kept=rest_of(said, "message", "code", "type", "param", "object"),
    )


def value_of(data: bytes) -> object:
    """What JSON holds; text where it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")


def error_in(chunk: Chunk, data: bytes) -> object:
    """What a chunk or a body says went wrong; None if nothing did."""
    if chunk.error or chunk.kind == "error":
        return chunk.error or value_of(data)
    for choice in chunk.choices or ():
        if choice.error:
            return choice.error
    return None


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Rejected:
    """The error of an HTTP answer that is not a success, in the words of whoever said no.

    Args:
        status: Its status.
        headers: Its headers.
        body: The beginning of its body.
        now: Seconds since the Unix epoch, for a wait that is given as a date.
    """
    error = failures.refusal(status, headers, body, now=now)
    try:
        more = _upstream(object_of(object_of(msgspec.json.decode(body)).get("error")))
    except (msgspec.DecodeError, UnicodeDecodeError):
        more = ""
    if not more:
        return error
    return rejection(
        error.message + more,
        status=error.status,
        type=error.type,
        code=error.code,
        param=error.param,
        retry_after=error.retry_after,
        headers=error.headers,
    )


def _readable(message: object) -> str:
    if not message:
        return "the server did not say what went wrong"
    return message if isinstance(message, str) else msgspec.json.encode(message).decode()


def _upstream(said: Members) -> str:
    """What the provider behind OpenRouter said."""
    raw = object_of(said.get("metadata")).get("raw")
    return f": {raw[:_CLIP]}" if isinstance(raw, str) and raw else ""


_CLIP = 2000

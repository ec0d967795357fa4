"""What a server says when it refuses, as the error to raise.

Servers put their errors into many shapes, and proxies answer in HTML. Whatever comes, the server's
own words reach the error, in its exact class (`errors.rejection`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple, TypeVar, cast

import msgspec

from perdure.errors import PerdureError, Rejected, rejection
from perdure.wire.errors import describing_headers, rejected, retry_after, type_of

RejectedT = TypeVar("RejectedT", bound=Rejected)

CLIP = 400
"""The most characters of a body that is not JSON to quote."""

_INVISIBLE = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<!--.*?-->", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")


class _Said(NamedTuple):
    """What an error body says."""

    message: str = ""
    type: str | None = None
    code: str | None = None
    param: str | None = None


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Rejected:
    """The error of an HTTP answer that is not a success.

    Args:
        status: Its status.
        headers: Its headers.
        body: The beginning of its body.
        now: Seconds since the Unix epoch, for a wait that is given as a date.
    """
    said = _said(body)
    return rejection(
        said.message or readable(body) or _phrase(status, headers),
        status=status,
        type=said.type or type_of(status),
        code=said.code,
        param=said.param,
        retry_after=retry_after(headers, now=now),
        headers=describing_headers(headers),
    )


def as_class(
    cls: type[RejectedT], error: Rejected, *, code: str | None, retry_after: float | None = None
) -> RejectedT:
    """An error as one of another class, with another code, or with a wait where it has none."""
    return cls(
        error.message,
        status=error.status,
        type=error.type,
        code=code,
        param=error.param,
        retry_after=retry_after if error.retry_after is None else error.retry_after,
        headers=error.headers,
    )


failure = rejected
"""The exception of an `error` event or of a response that failed."""


def readable(body: bytes) -> str:
    """What a person can read of a body that is no JSON, on one line and not too long."""
    text = body[:8192].decode("utf-8", "replace")
    if "<" in text:
        title = _TITLE.search(text)
        rest = _TAG.sub(" ", _INVISIBLE.sub(" ", text))
        text = html.unescape(f"{title[1]}: {rest}" if title and title[1].strip() else rest)
    text = " ".join(text.split())
    return text if len(text) <= CLIP else f"{text[:CLIP]}…"


def _said(body: bytes) -> _Said:
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Said()
    if isinstance(value, list) and value:
        value = cast("list[object]", value)[0]
    if not isinstance(value, dict):
        return _Said()
    outer = cast("dict[str, object]", value)
    error = outer.get("error", outer)
    if isinstance(error, str):
        return _Said(error, code=_text(outer, "code"))
    if not isinstance(error, dict):
        return _Said()
    inner = cast("dict[str, object]", error)
    message = _text(inner, "message") or _text(inner, "detail") or _text(outer, "message")
    return _Said(message or "", _text(inner, "type"), _text(inner, "code"), _text(inner, "param"))


def _text(members: Mapping[str, object], name: str) -> str | None:
    value = members.get(name)
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _phrase(status: int, headers: Mapping[str, str]) -> str:
    """What a status says where the body says nothing."""
    if 300 <= status < 400:
        return f"the server redirects to {headers.get('Location', 'nowhere')!r}; name that address"
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "the server gave no reason"


def scrub(error: BaseException | None, secrets: tuple[str, ...]) -> None:
    """Take secrets out of an error that is about to be raised, and out of ours that caused it."""
    found = [secret for secret in secrets if secret]
    while found and isinstance(error, PerdureError):
        error.args = tuple(_scrubbed(value, found) for value in error.args)
        for name, value in vars(error).items():
            setattr(error, name, _scrubbed(value, found))
        error = error.__cause__


def _scrubbed(value: object, secrets: list[str]) -> object:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return value
    if isinstance(value, bytes):
        for secret in secrets:
            value = value.replace(secret.encode(), b"***")
        return value
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return {name: _scrubbed(member, secrets) for name, member in members.items()}
    return value

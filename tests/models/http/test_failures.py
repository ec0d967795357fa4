"""What servers say when they refuse, read into exact errors."""

from __future__ import annotations

import math

import pytest

from perdure.errors import (
    AuthFailed,
    ContextTooLong,
    InvalidInput,
    ModelError,
    NotFound,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
    Transport,
    rejection,
)
from perdure.models.http.failures import (
    CLIP,
    failure,
    readable,
    refusal,
    scrub,
)
from perdure.wire import ErrorPayload
from perdure.wire.errors import MAX_RETRY_AFTER, retry_after

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": " 3 "}, 3.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "-5"}, 0.0),
        ({"Retry-After": "9" * 400}, MAX_RETRY_AFTER),
        ({"Retry-After": "1e308"}, MAX_RETRY_AFTER),
        ({"Retry-After": "inf"}, MAX_RETRY_AFTER),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:00 GMT"}, 0.0),
        ({"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}, MAX_RETRY_AFTER),
        ({"Retry-After": "Tue, 99 Nov 2023 22:13:50 GMT"}, None),
        (
            {
                "Retry-After": "Wed, 21 Oct 2015 07:28:10 GMT",
                "Date": "Wed, 21 Oct 2015 07:28:00 GMT",
            },
            10.0,
        ),
        ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After-Ms": "x", "Retry-After": "1"}, 1.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=NOW) == seconds


def test_a_date_without_a_clock_says_nothing() -> None:
    assert retry_after({"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT"}, now=None) is None


@pytest.mark.parametrize(
    ("status", "type_", "code", "message", "kind"),
    [
        (None, None, None, "x", ServerFailed),
        (None, "invalid_request", None, "x", InvalidInput),
        (None, "server_error", None, "x", ServerFailed),
        (None, "server_error", "rate_limit_exceeded", "x", RateLimited),
        (None, "not_found", None, "x", NotFound),
        (None, None, "429", "x", RateLimited),
        (None, None, "503", "x", Overloaded),
        (400, None, None, "x", InvalidInput),
        (400, None, "INSUFFICIENT_QUOTA", "x", QuotaExhausted),
        (400, "invalid_request_error", "context_length_exceeded", "x", ContextTooLong),
        (400, None, None, "the prompt is too long: 200001 tokens", ContextTooLong),
        (500, None, None, "the prompt is too long", ServerFailed),
        (401, "invalid_request_error", "invalid_api_key", "x", AuthFailed),
        (403, None, None, "x", AuthFailed),
        (404, "invalid_request_error", "model_not_found", "x", NotFound),
        (409, None, None, "x", InvalidInput),
        (408, None, None, "x", ServerFailed),
        (429, "tokens", "rate_limit_exceeded", "x", RateLimited),
        (429, "requests", None, "x", RateLimited),
        (429, "insufficient_quota", None, "x", QuotaExhausted),
        (500, None, None, "x", ServerFailed),
        (503, None, None, "x", Overloaded),
        (504, None, None, "x", ServerFailed),
        (529, None, None, "x", Overloaded),
        (599, None, None, "x", ServerFailed),
    ],
)
def test_the_exact_class(
    status: int | None, type_: str | None, code: str | None, message: str, kind: type[Rejected]
) -> None:
    error = rejection(message, status=status, type=type_, code=code)
    assert type(error) is kind
    assert error.message == message
    assert (error.status, error.code) == (status, code)


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b'{"error":{"message":"no","code":"c"}}', "no", "c"),
        (b'{"error":{"message":"no","code":7}}', "no", "7"),
        (b'{"error":"no","code":"c"}', "no", "c"),
        (b'{"message":"no"}', "no", None),
        (b'{"error":{},"message":"no"}', "no", None),
        (b'{"detail":"no"}', "no", None),
        (b'[{"error":{"message":"no"}}]', "no", None),
        (b'{"detail":[{"loc":["body"],"msg":"no"}]}', '[{"loc":["body"],"msg":"no"}]', None),
        (b'{"hello":"world"}', '{"hello":"world"}', None),
        (b'"no"', '"no"', None),
        (b"[]", "[]", None),
        (b"  no \n really ", "no really", None),
        (b"", "Bad Request", None),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2, None),
    ],
)
def test_the_servers_own_words(body: bytes, message: str, code: str | None) -> None:
    error = refusal(400, {}, body, now=NOW)
    assert (error.message, error.code, error.type) == (message, code, "invalid_request")


def test_a_status_nobody_knows_has_words_too() -> None:
    assert refusal(599, {}, b"", now=NOW).message == "the server gave no reason"


def test_a_page_is_made_readable() -> None:
    page = (
        b"<!DOCTYPE html><html><head><title>Error 1020</title><script>alert('x')</script></head>"
        b"<body>\n<!-- hidden --><h1>Access   denied</h1><p>Ray&nbsp;ID &amp; more</p></html>"
    )
    assert readable(page) == "Error 1020: Access denied Ray ID & more"
    assert len(readable(b"<p>" + b"word " * 10_000)) <= CLIP + 1
    assert readable(b"<script " * 5_000) is not None


def test_a_payload_in_a_stream_is_the_same_error() -> None:
    payload = ErrorPayload(
        type="too_many_requests", code=None, message="slow", headers={"Retry-After": "2"}
    )
    error = failure(payload)
    assert type(error) is RateLimited
    assert error.retry_after == 2.0
    assert error.status is None


def test_secrets_are_taken_out_of_an_error_and_of_what_caused_it() -> None:
    error: ModelError = refusal(401, {"X-RateLimit-K": "a-key-b"}, b"bad a-key-b", now=NOW)
    error.__cause__ = Transport("a-key-b")
    scrub(error, ("", "key"))
    assert "key" not in str(error) + repr(vars(error)) + str(error.__cause__)
    assert "a-***-b" in str(error)


def test_seconds_are_finite() -> None:
    assert math.isfinite(MAX_RETRY_AFTER)

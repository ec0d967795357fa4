"""What a server refuses, and how errors travel over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure import wire
from perdure.errors import DecodeError, InvalidRequest, Rejected, Truncated, WireError
from perdure.wire.errors import (
    describing_headers,
    error_body,
    error_from_http,
    error_to_http,
    status_of,
    type_of,
)
from perdure.wire.validate import validate_request

MISSING, INVALID = "missing_required_parameter", "invalid_value"


def refused(members: dict[str, Any]) -> tuple[str | None, str] | None:
    """What is at fault and how; None if nothing is."""
    try:
        validate_request(wire.decode_request(json.dumps({"model": "m", **members})))
    except InvalidRequest as error:
        return error.param, error.code
    return None


USER = {"type": "message", "role": "user", "content": "hi"}
OUTPUT = {"type": "output_text", "text": "x", "annotations": []}
INPUT = {"type": "input_text", "text": "x"}

BAD_ITEMS = [
    ({"type": "function_call", "name": "f", "arguments": ""}, "call_id", MISSING),
    ({"type": "function_call", "call_id": "", "name": "f", "arguments": ""}, "call_id", MISSING),
    ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "name", MISSING),
    ({"type": "function_call", "call_id": "c", "name": "f"}, "arguments", MISSING),
    ({"type": "function_call", "call_id": None, "name": "f", "arguments": ""}, "call_id", INVALID),
    ({"type": "function_call_output", "output": "x"}, "call_id", MISSING),
    ({"type": "function_call_output", "call_id": "c"}, "output", MISSING),
    ({"type": "function_call_output", "call_id": "c", "output": None}, "output", INVALID),
    ({"type": "compaction", "encrypted_content": ""}, "encrypted_content", MISSING),
    ({"type": "item_reference", "id": ""}, "id", MISSING),
    ({"type": "message", "content": "x"}, "role", MISSING),
    ({"type": "message", "role": "robot", "content": "x"}, "role", INVALID),
    ({"role": "robot", "content": "x"}, "role", INVALID),
    ({"type": "message", "role": "user"}, "content", MISSING),
    ({"type": "message", "role": "user", "content": None}, "content", INVALID),
    ({"type": "message", "role": "user", "content": [INPUT, OUTPUT]}, "content[1]", INVALID),
    ({"type": "message", "role": "system", "content": [OUTPUT]}, "content[0]", INVALID),
    ({"type": "message", "role": "developer", "content": [OUTPUT]}, "content[0]", INVALID),
    ({"type": "message", "role": "assistant", "content": [INPUT]}, "content[0]", INVALID),
    (
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]},
        "content[0]",
        INVALID,
    ),
    ({"type": "message", "role": "assistant", "content": "x", "phase": "odd"}, "phase", INVALID),
    (
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": None}]},
        "content[0].text",
        INVALID,
    ),
]


@pytest.mark.parametrize(("item", "member", "code"), BAD_ITEMS)
def test_an_item_at_fault_is_named(item: dict[str, Any], member: str, code: str) -> None:
    assert refused({"input": [USER, USER, USER, item]}) == (f"input[3].{member}", code)


@pytest.mark.parametrize(
    ("members", "param", "code"),
    [
        ({"model": ""}, "model", MISSING),
        ({"model": None}, "model", MISSING),
        (
            {"tools": [{"type": "function", "name": "a"}, {"type": "function"}]},
            "tools[1].name",
            MISSING,
        ),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name", MISSING),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": ""}]}},
            "tool_choice.tools[0].name",
            MISSING,
        ),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.name", MISSING),
        ({"text": {"format": {"type": "json_schema", "name": None}}}, "text.format.name", INVALID),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata", INVALID),
        (
            {"stream_options": {"include_obfuscation": None}},
            "stream_options.include_obfuscation",
            INVALID,
        ),
    ],
)
def test_a_setting_at_fault_is_named(members: dict[str, Any], param: str, code: str) -> None:
    assert refused(members) == (param, code)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"input": "hi"},
        {"input": []},
        {"input": [USER, {"role": "user", "content": [INPUT]}]},
        {"input": [{"type": "acme:thing"}, {"type": "message", "role": "user", "content": []}]},
        {"input": [{"type": "message", "role": "user", "content": [{"type": "acme:part"}]}]},
        {"input": [{"type": "message", "role": "assistant", "content": [OUTPUT], "phase": None}]},
        {
            "input": [
                {"type": "message", "role": "assistant", "content": "x", "phase": "commentary"}
            ]
        },
        {"input": [{"type": "function_call_output", "call_id": "c", "output": ""}], "kept": None},
        {"tools": [{"type": "web_search"}], "tool_choice": "auto", "metadata": {}},
        {"temperature": None, "kept": 1, "acme:x": None},
    ],
)
def test_a_good_request_passes(members: dict[str, Any]) -> None:
    assert refused(members) is None


def test_a_request_to_fold_is_checked_too() -> None:
    with pytest.raises(InvalidRequest, match="model"):
        validate_request(wire.CompactRequest(input="x"))
    call = wire.function_call("", "f")
    with pytest.raises(InvalidRequest, match=r"input\[0\].call_id"):
        validate_request(wire.CompactRequest(model="m", input=(call,)))


def test_every_recorded_request_passes(shared: Path) -> None:
    checked = 0
    for line in (shared / "fixtures/wire/responses.jsonl").read_bytes().splitlines():
        one = json.loads(line)
        source = json.dumps(one["request"])
        if one["path"].endswith("/responses"):
            validate_request(wire.decode_request(source))
        elif one["path"].endswith("/compact"):
            validate_request(wire.decode_compact_request(source))
        else:
            continue
        checked += 1
    assert checked > 100


# --- errors and HTTP ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error_type", "status"),
    [
        ("invalid_request", 400),
        ("invalid_request_error", 400),
        ("not_found", 404),
        ("too_many_requests", 429),
        ("model_error", 500),
        ("server_error", 500),
        ("something_else", 500),
        (None, 500),
    ],
)
def test_a_type_has_a_status(error_type: str | None, status: int) -> None:
    assert status_of(error_type) == status


@pytest.mark.parametrize(
    ("status", "error_type"),
    [
        (400, "invalid_request"),
        (422, "invalid_request"),
        (404, "not_found"),
        (429, "too_many_requests"),
        (401, "server_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_a_status_has_a_type(status: int, error_type: str) -> None:
    assert type_of(status) == error_type


def test_an_answer_with_an_envelope_gives_its_error() -> None:
    body = b'{"error":{"message":"slow down","code":null,"param":null,"more":1}}'
    headers = {"Retry-After": "3", "x-ratelimit-remaining-tokens": "0", "Set-Cookie": "secret"}
    payload = error_from_http(429, body, headers)
    assert payload.type == "too_many_requests"
    assert payload.message == "slow down"
    assert payload.headers == {"Retry-After": "3", "x-ratelimit-remaining-tokens": "0"}
    assert payload.unknown == {"more": 1}


def test_the_type_an_envelope_names_stands() -> None:
    body = b'{"error":{"type":"invalid_request_error","message":"m","code":"c","param":"input"}}'
    payload = error_from_http(500, body, {})
    assert (payload.type, payload.code, payload.param) == ("invalid_request_error", "c", "input")
    assert payload.headers is wire.ABSENT


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (502, b"<html>Bad gateway</html>", "<html>Bad gateway</html>"),
        (503, b"", "Service Unavailable"),
        (400, b'{"detail":"x"}', '{"detail":"x"}'),
        (400, b'{"error":"x"}', '{"error":"x"}'),
        (400, b'{"error":{"message":7}}', '{"error":{"message":7}}'),
        (400, b'{"error":{"code":"c"}}', '{"error":{"code":"c"}}'),
        (500, b"\xff", "\ufffd"),
        (599, b" ", "the server gave no reason"),
    ],
)
def test_any_other_body_becomes_the_message(status: int, body: bytes, message: str) -> None:
    payload = error_from_http(status, body, {"Content-Type": "text/html"})
    assert (payload.type, payload.message) == (type_of(status), message)


@pytest.mark.parametrize(
    ("name", "describes"),
    [
        ("Retry-After", True),
        ("retry-after-ms", True),
        ("X-RateLimit-Reset-Requests", True),
        ("RateLimit-Policy", True),
        ("x-should-retry", True),
        ("Authorization", False),
        ("Set-Cookie", False),
        ("x-request-id", False),
        ("Content-Length", False),
    ],
)
def test_only_headers_that_describe_an_error_are_kept(name: str, describes: bool) -> None:
    assert (name in describing_headers({name: "1"})) is describes


class Teapot(Exception):
    status = 418


@pytest.mark.parametrize(
    ("error", "status", "payload"),
    [
        (
            InvalidRequest("required", param="model", code=MISSING),
            400,
            ("invalid_request", MISSING, "required", "model"),
        ),
        (
            DecodeError("expected string, got number", path="input[0].role"),
            400,
            ("invalid_request", INVALID, "expected string, got number", "input[0].role"),
        ),
        (
            DecodeError("malformed JSON: oh"),
            400,
            ("invalid_request", "invalid_json", "malformed JSON: oh", None),
        ),
        (
            Rejected("wait", status=429, type="too_many_requests", code="rate", param="p"),
            429,
            ("too_many_requests", "rate", "wait", "p"),
        ),
        (Rejected("odd", type="not_found"), 404, ("not_found", None, "odd", None)),
        (Teapot("short"), 418, ("server_error", "internal_error", "short", None)),
        (Truncated("cut"), 500, ("server_error", "internal_error", "cut", None)),
        (KeyError(), 500, ("server_error", "internal_error", "KeyError", None)),
        (WireError("w"), 500, ("server_error", "internal_error", "w", None)),
    ],
)
def test_what_a_server_answers(
    error: Exception, status: int, payload: tuple[str, str | None, str, str | None]
) -> None:
    answer = error_to_http(error)
    got = answer.payload
    assert answer.status == status
    assert (got.type, got.code, got.message, got.param) == payload
    body = json.loads(error_body(got))
    assert body == {"error": dict(zip(("type", "code", "message", "param"), payload, strict=True))}


def test_the_headers_of_a_rejection_travel_on() -> None:
    error = Rejected("wait", status=429, headers={"Retry-After": "1", "cf-ray": "x"})
    assert error_to_http(error).payload.headers == {"Retry-After": "1"}


def test_an_envelope_always_has_code_and_param() -> None:
    body = json.loads(error_body(wire.ErrorPayload(message="m")))
    assert body == {"error": {"type": "server_error", "code": None, "message": "m", "param": None}}

"""Decoding and encoding lose nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure import wire
from perdure.errors import ConfigError, DecodeError
from perdure.wire.codec import register
from perdure.wire.values import Wire

Decode = Callable[[bytes], Any]


def round_trips(decode: Decode, value: object) -> None:
    source = json.dumps(value, ensure_ascii=False).encode()
    assert json.loads(wire.encode(decode(source))) == value


# --- recorded traffic ---------------------------------------------------------------


def interactions(shared: Path) -> Iterator[dict[str, Any]]:
    with (shared / "fixtures/wire/responses.jsonl").open() as lines:
        yield from map(json.loads, lines)


def bodies(shared: Path) -> Iterator[tuple[Decode, object]]:
    """Every request and response that was recorded, each with its decoder."""
    for one in interactions(shared):
        compact = one["path"].endswith("/compact")
        request, response = one["request"], one.get("response")
        yield (wire.decode_compact_request if compact else wire.decode_request), request
        if isinstance(request.get("input"), list):
            yield from ((wire.decode_item, item) for item in request["input"])
            yield wire.decode_items, request["input"]
        if not isinstance(response, dict):
            continue
        if "output" in response:
            yield (wire.decode_compact_response if compact else wire.decode_response), response
            yield from ((wire.decode_item, item) for item in response["output"])
        elif one["status"] >= 400:
            yield wire.decode_error, response["error"]


def events(shared: Path) -> Iterator[bytes]:
    for one in interactions(shared):
        if one["stream"] and "body" in one:
            for line in one["body"].splitlines():
                if line.startswith("data: "):
                    yield line[6:].encode()


def test_every_recorded_request_and_response_comes_back_member_for_member(shared: Path) -> None:
    count = 0
    for decode, value in bodies(shared):
        round_trips(decode, value)
        count += 1
    assert count > 500


def test_every_recorded_event_comes_back_member_for_member(shared: Path) -> None:
    count = 0
    for data in events(shared):
        assert json.loads(wire.encode(wire.decode_event(data))) == json.loads(data)
        count += 1
    assert count > 200


def test_the_token_counts_of_a_request_decode_as_that_request(shared: Path) -> None:
    counted = [one for one in interactions(shared) if one["path"].endswith("/input_tokens")]
    assert len(counted) == 2
    for one in counted:
        assert one["response"]["object"] == "response.input_tokens"
        round_trips(wire.decode_request, one["request"])


@pytest.mark.parametrize(
    ("name", "decode"), [("request", wire.decode_request), ("response", wire.decode_response)]
)
def test_golden_bodies_come_back(shared: Path, name: str, decode: Decode) -> None:
    path = shared / f"fixtures/openresponses/golden/{name}.json"
    round_trips(decode, json.loads(path.read_bytes()))


# --- what the types do not show ------------------------------------------------------

LOSSLESS = [
    {"type": "message", "role": "user", "content": "hi"},
    {"role": "user", "content": "hi"},
    {"role": "user", "content": [], "acme:mark": {"deep": [1, {"x": None}]}},
    {"type": "message", "role": "assistant", "content": [{"type": "acme:chart", "svg": "<svg/>"}]},
    {"type": "message", "role": "user", "content": [{"text": "no type"}]},
    {"type": "message", "role": "assistant", "content": [], "id": None, "status": None},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "extra": 1.50},
    {"type": "function_call", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": None, "name": "f", "arguments": ""},
    {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_text", "text": ""}],
    },
    {"type": "reasoning", "summary": None, "content": None, "encrypted_content": ""},
    {"type": "reasoning"},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "acme:note", "id": "n", "status": "completed", "numbers": [10**30, 0.1, -0.0]},
    {"id": "only an id"},
    {"type": ""},
]


@pytest.mark.parametrize("item", LOSSLESS, ids=json.dumps)
def test_an_item_comes_back_member_for_member(item: object) -> None:
    round_trips(wire.decode_item, item)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NULLABLE = ["id", "status", "phase"]


@given(
    members=st.dictionaries(
        st.text().filter(lambda n: n not in ("type", "role", "content")), JSON_VALUES, max_size=4
    ),
    nulls=st.sets(st.sampled_from(NULLABLE)),
    text=st.text(st.characters(exclude_categories=())),
    typed=st.booleans(),
)
def test_any_member_survives(
    members: dict[str, object], nulls: set[str], text: str, typed: bool
) -> None:
    item = {k: v for k, v in members.items() if k not in NULLABLE} | dict.fromkeys(nulls)
    item |= {"role": "user", "content": [{"type": "input_text", "text": text, **item}]}
    if typed:
        item["type"] = "message"
    source = json.dumps(item).encode()
    decoded = wire.decode_item(source)
    assert isinstance(decoded, wire.Message)
    assert json.loads(wire.encode(decoded)) == item


def test_an_unregistered_type_keeps_its_source_bytes() -> None:
    source = b'{ "type" : "acme:note",  "big": 1.0e400, "x": "\\u00e9" }'
    item = wire.decode_item(source)
    assert isinstance(item, wire.UnknownItem)
    assert item.type == "acme:note"
    assert wire.encode(item) == source


def test_numbers_of_unknown_members_keep_their_spelling() -> None:
    source = b'{"type":"compaction","encrypted_content":"x","n":1.10,"big":123456789012345678901}'
    assert wire.encode(wire.decode_item(source)) == source


def test_absent_is_not_null() -> None:
    absent = wire.decode_item(b'{"type":"function_call","call_id":"c","name":"f","arguments":""}')
    null = wire.decode_item(
        b'{"type":"function_call","id":null,"call_id":"c","name":"f","arguments":""}'
    )
    assert isinstance(absent, wire.FunctionCall)
    assert isinstance(null, wire.FunctionCall)
    assert absent.id is wire.ABSENT
    assert null.id is None


def test_a_member_that_is_set_later_appears() -> None:
    call = wire.decode_item(b'{"type":"function_call","name":"f","arguments":"{}"}')
    assert isinstance(call, wire.FunctionCall)
    assert call.call_id == ""
    named = msgspec.structs.replace(call, call_id="call_1")
    assert json.loads(wire.encode(named))["call_id"] == "call_1"


def test_an_error_frame_without_a_type_is_an_error_event() -> None:
    event = wire.decode_event(b'{"error":{"message":"no"},"status":429}')
    assert isinstance(event, wire.ErrorEvent)
    assert event.error.message == "no"
    assert wire.encode(event) == b'{"error":{"message":"no"},"status":429}'


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        wire.user("hi").role = "system"  # type: ignore[misc]


# --- lone surrogates -----------------------------------------------------------------

SURROGATES = [
    rb'{"type":"function_call","call_id":"c","name":"f","arguments":"\ud83d"}',
    rb'{"type":"message","role":"user","content":[{"type":"input_text","text":"a\udc00b"}]}',
    rb'{"type":"message","role":"user","content":"x","note":{"deep":["\ud800"]}}',
    rb'{"type":"acme:x","text":"\udfff"}',
]


@pytest.mark.parametrize("source", SURROGATES)
def test_a_lone_surrogate_survives(source: bytes) -> None:
    assert wire.encode(wire.decode_item(source)) == source


def test_a_lone_surrogate_in_a_delta_is_there_to_be_noticed() -> None:
    source = (
        rb'{"type":"response.output_text.delta","item_id":"m","output_index":0,'
        rb'"content_index":0,"delta":"\ud83d"}'
    )
    event = wire.decode_event(source)
    assert isinstance(event, wire.OutputTextDelta)
    assert event.delta == "\ud83d"
    assert wire.encode(event) == source


# --- bad input -----------------------------------------------------------------------

MALFORMED = {
    b"": "malformed JSON",
    b"nonsense": "malformed JSON",
    b'{"type":"message"': "malformed JSON",
    b'{"type":"message"} trailing': "malformed JSON",
    b'{"a":NaN}': "NaN is not a JSON value",
    b'{"type":"message","role":"user","content":"\xff"}': "is not UTF-8",
    b"[" * 100_000: "nested too deeply",
    b"5": "expected object, got number",
    b"null": "expected object, got null",
    b'{"type":7}': "type: expected string, got number",
    b'{"type":"message","role":1,"content":""}': "role: expected string, got number",
    b'{"type":"message","role":"user","content":{}}': "content: expected array or string, got obj",
    b'{"type":"message","role":"user","content":[{"type":"input_text","text":[]}]}': (
        "content[0].text: expected string, got array"
    ),
    b'{"type":"message","role":"user","role":"system","content":""}': "duplicate member 'role'",
    b'{"type":"acme:x","deep":[{"a":1,"a":1}]}': "deep[0]: duplicate member 'a'",
}


@pytest.mark.parametrize(("source", "message"), MALFORMED.items(), ids=lambda v: repr(v)[:60])
def test_bad_input_names_the_place_and_keeps_the_source(source: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        wire.decode_item(source)
    assert message in str(caught.value)
    assert caught.value.source == source


@pytest.mark.parametrize("space", ["", " ", "\t"])
def test_a_duplicate_member_of_a_delta_is_noticed_however_it_is_spelled(space: str) -> None:
    source = (
        '{"type":"response.output_text.delta","item_id":"m","output_index":0,'
        f'"content_index":0,"delta":"a","delta"{space}:"b"}}'
    )
    with pytest.raises(DecodeError, match="duplicate member 'delta'"):
        wire.decode_event(source.encode())


# --- extension types -----------------------------------------------------------------


class Note(Wire, frozen=True, kw_only=True, tag="acme:noted"):
    type: ClassVar[Literal["acme:noted"]] = "acme:noted"
    text: str


def test_a_registered_type_decodes_as_its_class_and_keeps_unknown_members() -> None:
    register("item", Note)
    item = wire.decode_item(b'{"type":"acme:noted","text":"hi","more":1}')
    assert isinstance(item, Note)
    assert item.text == "hi"
    assert json.loads(wire.encode(item)) == {"type": "acme:noted", "text": "hi", "more": 1}


def test_a_type_without_a_tag_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a tag"):
        register("item", wire.Usage)

"""Request bodies: fragments that are encoded once, and say what the request says."""

from __future__ import annotations

import json
from collections.abc import Hashable

import pytest

from perdure.errors import ConfigError
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items, Transcript
from perdure.models.http.body import Body
from perdure.models.openresponses import compact_body, request_body
from perdure.wire import (
    CompactRequest,
    Item,
    ReasoningConfig,
    Request,
    decode_item,
    decode_request,
    encode,
    function_call,
    function_call_output,
    function_tool,
    reasoning,
    user,
)

SETTINGS = Request(
    model="gpt-5-mini",
    instructions="Be brief.",
    tools=(function_tool("add", parameters={"type": "object"}, strict=True),),
    reasoning=ReasoningConfig(effort="low"),
    include=("reasoning.encrypted_content",),
    temperature=0,
)

ITEMS: list[Item] = [
    user("What is 19 + 23? \N{SNOWMAN}"),
    reasoning("I add.", encrypted_content="abc=="),
    function_call("call_1", "add", '{"a":19, "b":23}'),
    function_call_output("call_1", "42"),
    decode_item(b'{"role":"user","content":"no type","made_up":[1.50, 1e400]}'),
    decode_item(b'{"type":"acme:note","n": 1.0,"deep":{"x":null}}'),
    decode_item(b'{"type":"message","role":"user","content":"lone \\ud800"}'),
]


def joined(body: Body) -> bytes:
    return b"".join(body.fragments)


def test_a_body_says_what_the_request_says_and_that_it_streams_and_is_not_stored() -> None:
    request = ModelRequest(settings=SETTINGS, input=Items.of(ITEMS))
    body = request_body(request)
    whole = json.loads(encode(request.to_request()))
    assert json.loads(joined(body)) == {**whole, "stream": True, "store": False}
    assert body.length == len(joined(body))
    assert decode_request(joined(body)).input == tuple(ITEMS)


def test_a_body_that_does_not_stream_says_so() -> None:
    body = request_body(ModelRequest(settings=SETTINGS, input=Items.of(ITEMS)), stream=False)
    assert json.loads(joined(body))["stream"] is False


@pytest.mark.parametrize(
    "settings", [Request(), Request(store=True, stream=False), Request(input="x")]
)
def test_what_the_settings_say_of_storing_streaming_and_input_does_not_count(
    settings: Request,
) -> None:
    body = request_body(ModelRequest(settings=settings, input=Items.of([])))
    assert body.value() == {"stream": True, "store": False, "input": []}


def test_the_fragments_of_a_turn_are_those_of_the_turn_before_and_the_new_ones() -> None:
    transcript = Transcript(ITEMS[:4])
    first = request_body(ModelRequest(settings=SETTINGS, input=transcript.snapshot()))
    transcript.append(ITEMS[4])
    second = request_body(ModelRequest(settings=SETTINGS, input=transcript.snapshot()))
    assert all(a is b for a, b in zip(first.fragments[:5], second.fragments, strict=False))
    assert len(second.fragments) == len(first.fragments) + 1


@pytest.mark.parametrize("length", range(len(ITEMS) + 1))
def test_a_shorter_snapshot_of_a_list_is_right_after_a_longer_one(length: int) -> None:
    memo: dict[Hashable, object] = {}
    longer = ModelRequest(settings=SETTINGS, input=Items(ITEMS, len(ITEMS), memo))
    request_body(longer)
    shorter = ModelRequest(settings=SETTINGS, input=Items(ITEMS, length, memo))
    body = request_body(shorter)
    fresh = ModelRequest(settings=SETTINGS, input=Items.of(ITEMS[:length]))
    assert joined(body) == joined(request_body(fresh))
    assert body.length == len(joined(body))


def test_equal_settings_are_encoded_once_and_others_anew() -> None:
    transcript = Transcript(ITEMS[:1])
    one = request_body(ModelRequest(settings=SETTINGS, input=transcript.snapshot()))
    same = decode_request(encode(SETTINGS))
    two = request_body(ModelRequest(settings=same, input=transcript.snapshot()))
    assert two.fragments[0] is one.fragments[0]
    other = ModelRequest(settings=Request(model="other"), input=transcript.snapshot())
    assert json.loads(joined(request_body(other)))["model"] == "other"


@pytest.mark.parametrize(
    "source",
    [
        b'{"model":"m","previous_response_id":"resp_1"}',
        b'{"model":"m","conversation":"conv_1"}',
        b'{"model":"m","conversation":{"id":"conv_1"}}',
    ],
)
def test_a_conversation_that_the_server_holds_is_refused(source: bytes) -> None:
    with pytest.raises(ConfigError, match="_1"):
        request_body(ModelRequest(settings=decode_request(source), input=Items.of(ITEMS)))


@pytest.mark.parametrize("source", [b'{"previous_response_id":null,"conversation":null}', b"{}"])
def test_naming_no_conversation_is_no_offence(source: bytes) -> None:
    body = request_body(ModelRequest(settings=decode_request(source), input=Items.of(ITEMS)))
    members = json.loads(joined(body))
    assert not members.get("previous_response_id")
    assert not members.get("conversation")


def test_a_compact_body_refuses_a_held_conversation_too() -> None:
    with pytest.raises(ConfigError, match="resp_1"):
        compact_body(CompactRequest(model="m", previous_response_id="resp_1"))
    body = compact_body(CompactRequest(model="m", input=tuple(ITEMS)))
    assert json.loads(joined(body))["model"] == "m"
    assert body.length == len(joined(body))


@pytest.mark.parametrize("count", [0, 1, 2, 999])
@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_blocks_are_the_bytes_in_fewer_pieces(count: int, size: int) -> None:
    fragments = [b"x" * (index % 50) for index in range(count)]
    body = Body(fragments, sum(map(len, fragments)))
    blocks = list(body.blocks(size))
    assert b"".join(blocks) == b"".join(fragments)
    assert len(blocks) <= max(1, 2 * body.length // size + 1, count if size == 1 else 0)

"""Normal forms and the hash of a request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure import wire
from perdure.errors import NotIJson
from perdure.wire.canonical import canonical_json
from perdure.wire.normal import RequestHash, normal_item, normal_tool, request_hash


def request(**members: Any) -> wire.Request:
    return wire.decode_request(json.dumps(members))


def item(value: object) -> wire.Item:
    return wire.decode_item(json.dumps(value))


def hash_of(value: object) -> str:
    return "sha256:" + hashlib.sha256(canonical_json(value)).hexdigest()


# --- the hashes of other implementations -------------------------------------------------


def test_published_vectors(shared: Path) -> None:
    vectors = json.loads(
        (shared / "fixtures/openresponses/agentturn-hash/vectors.json").read_bytes()
    )
    assert len(vectors) == 6
    for vector in vectors:
        assert request_hash(request(**vector["request"])) == vector["hash"], vector["name"]


def rebuilt(path: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The request that the last entry of a path answers; None where that takes a reader's work."""
    settings: dict[str, Any] = {}
    items: list[dict[str, Any]] = []
    *before, response = path
    for entry in before:
        match entry["type"]:
            case "config" if entry.keys() & {"replace", "omit", "instructions_parts"}:
                return None
            case "config":
                configure(settings, entry)
            case "item":
                items.append(entry)
            case "compaction" | "branch_summary":
                return None
    while items and items[-1].get("response") == response["response_id"]:
        items.pop()
    return {**settings, "input": [entry["item"] for entry in items]}


def configure(settings: dict[str, Any], entry: dict[str, Any]) -> None:
    for name in ("model", "instructions", "reasoning", "text"):
        if name in entry:
            settings[name] = entry[name]
    gone = {*entry.get("tools_removed", ()), *(t["name"] for t in entry.get("tools_added", ()))}
    kept = [tool for tool in settings.get("tools", ()) if tool["name"] not in gone]
    settings["tools"] = [*kept, *entry.get("tools_added", ())]
    for name, value in entry.get("extra", {}).items():
        settings[name] = value
        if value is None:
            del settings[name]


def recorded_requests(shared: Path) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Each recorded response that has a hash, with the request its entries rebuild."""
    for file in sorted((shared / "fixtures/agentsession/sessions").glob("*.jsonl")):
        if file.stem.startswith(("bad-", "corrupt-", "missing-", "truncated")):
            continue
        entries = [json.loads(line) for line in file.read_bytes().splitlines()[1:]]
        by_id = {entry["id"]: entry for entry in entries}
        for entry in entries:
            if entry["type"] == "response" and entry.get("request_hash"):
                path = [entry]
                while path[0]["parent"]:
                    path.insert(0, by_id[path[0]["parent"]])
                built = rebuilt(path)
                if built:
                    yield file.name, built, entry["request_hash"]


def test_recorded_hashes(shared: Path) -> None:
    checked = 0
    for name, built, expected in recorded_requests(shared):
        assert request_hash(request(**built, stream=True, store=True)) == expected, name
        checked += 1
    assert checked >= 20


# --- normal forms ------------------------------------------------------------------------

NORMAL_ITEMS = [
    pytest.param(
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        id="a text is one part",
    ),
    pytest.param(
        {"type": "message", "role": "assistant", "content": "hi"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}],
        },
        id="of an assistant an output",
    ),
    pytest.param(
        {"type": "message", "role": "user", "id": None, "status": "", "phase": None, "content": []},
        {"type": "message", "role": "user", "content": []},
        id="what is empty is left out",
    ),
    pytest.param(
        {"type": "message", "role": "user", "content": None},
        {"type": "message", "role": "user", "content": []},
        id="a null content is an empty one",
    ),
    pytest.param(
        {"type": "message", "role": "user"},
        {"type": "message", "role": "user", "content": []},
        id="a missing content is an empty one",
    ),
    pytest.param(
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_image", "image_url": "u"}, {"type": "input_image"}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "u", "detail": "auto"},
                {"type": "input_image", "image_url": "", "detail": "auto"},
            ],
        },
        id="an image has a detail and an address",
    ),
    pytest.param(
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_file", "filename": "f", "file_url": None, "file_id": ""}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_file", "filename": "f"}]},
        id="a file has what it has",
    ),
    pytest.param(
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "x",
                    "annotations": None,
                    "logprobs": [
                        {
                            "token": "x",
                            "logprob": -1.0,
                            "top_logprobs": [{"token": "y", "logprob": -2}],
                        }
                    ],
                },
                {"type": "output_text", "text": "y", "logprobs": []},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "x",
                    "annotations": [],
                    "logprobs": [
                        {
                            "token": "x",
                            "logprob": -1,
                            "bytes": [],
                            "top_logprobs": [{"token": "y", "logprob": -2, "bytes": []}],
                        }
                    ],
                },
                {"type": "output_text", "text": "y", "annotations": []},
            ],
        },
        id="output text has annotations, and logprobs their lists",
    ),
    pytest.param(
        {"type": "reasoning", "content": [], "encrypted_content": ""},
        {"type": "reasoning", "summary": []},
        id="reasoning has a summary",
    ),
    pytest.param(
        {"type": "function_call", "call_id": "c", "name": "f"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
        id="a call has arguments",
    ),
    pytest.param(
        {"type": "function_call_output", "call_id": "c", "output": [], "status": None},
        {"type": "function_call_output", "call_id": "c", "output": []},
        id="an empty list of parts stays one",
    ),
    pytest.param(
        {"type": "function_call_output", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": ""},
        id="a missing output is an empty text",
    ),
    pytest.param(
        {"type": "compaction", "encrypted_content": "e", "created_by": None},
        {"type": "compaction", "encrypted_content": "e"},
        id="compaction",
    ),
    pytest.param(
        {"type": "item_reference", "id": "x"}, {"type": "item_reference", "id": "x"}, id="reference"
    ),
]


@pytest.mark.parametrize(("source", "normal"), NORMAL_ITEMS)
def test_an_item_in_its_normal_form(source: object, normal: object) -> None:
    assert normal_item(item(source)) == canonical_json(normal)
    assert normal_item(item(normal)) == canonical_json(normal)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "acme:thing", "b": [3, 2], "a": {"x": None}},
        {"role": "user", "content": "an item without a type"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "u"}], "id": None},
        {"type": "message", "role": "user", "content": [{"type": "acme:part", "detail": None}]},
    ],
)
def test_what_has_no_normal_form_stays_as_it_was_written(value: object) -> None:
    assert normal_item(item(value)) == canonical_json(value)


def test_unknown_members_stay_at_every_depth() -> None:
    value = {
        "type": "message",
        "role": "assistant",
        "acme:x": {"n": 1.0},
        "kept": 1,
        "content": [
            {
                "type": "output_text",
                "text": "t",
                "annotations": [
                    {
                        "type": "url_citation",
                        "url": "u",
                        "title": "t",
                        "start_index": 0,
                        "end_index": 1,
                        "more": True,
                    },
                    {"type": "acme:note", "at": 7},
                ],
                "why": None,
            }
        ],
    }
    assert normal_item(item(value)) == canonical_json(value)


@pytest.mark.parametrize(
    ("source", "normal"),
    [
        (
            {"type": "function", "name": "f"},
            {"type": "function", "name": "f", "description": "", "parameters": None},
        ),
        (
            {"type": "function", "name": "f", "description": None, "strict": None, "x": 1},
            {"type": "function", "name": "f", "description": "", "parameters": None, "x": 1},
        ),
        (
            {"type": "function", "name": "f", "parameters": {}, "strict": False},
            {"type": "function", "name": "f", "description": "", "parameters": {}, "strict": False},
        ),
        ({"type": "web_search", "size": None}, {"type": "web_search", "size": None}),
    ],
)
def test_a_tool_in_its_normal_form(source: object, normal: object) -> None:
    tools = request(tools=[source]).tools
    assert tools
    assert normal_tool(tools[0]) == canonical_json(normal)


# --- what a request's hash covers ----------------------------------------------------------

BASE = {"model": "m", "store": False}


@pytest.mark.parametrize(
    ("members", "hashed"),
    [
        ({}, {}),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, {}),
        ({"background": True, "previous_response_id": "r", "store": True}, {}),
        ({"input": [], "tools": [], "include": [], "metadata": {}, "instructions": ""}, {}),
        ({"temperature": None, "text": {}, "tool_choice": None, "truncation": None}, {}),
        ({"text": {"format": None, "verbosity": ""}}, {}),
        ({"temperature": 0.0, "top_logprobs": 0}, {"temperature": 0, "top_logprobs": 0}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"reasoning": {"effort": "low"}}, {"reasoning": {"effort": "low", "summary": None}}),
        ({"reasoning": {"summary": ""}}, {"reasoning": {"effort": None, "summary": None}}),
        (
            {"text": {"verbosity": "low"}},
            {"text": {"format": {"type": "text"}, "verbosity": "low"}},
        ),
        (
            {
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": None}
                }
            },
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        ),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "x", "n": 1}]}},
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "tools": [{"type": "x", "n": 1}],
                    "mode": "",
                }
            },
        ),
        ({"acme:x": {"b": 1, "a": None}, "kept": []}, {"acme:x": {"b": 1, "a": None}, "kept": []}),
        (
            {"input": "hi"},
            {
                "input": [
                    {
                        "type": "message",
                        "role": "user",
                        "content": [{"type": "input_text", "text": "hi"}],
                    }
                ]
            },
        ),
    ],
)
def test_what_is_hashed(members: dict[str, Any], hashed: dict[str, Any]) -> None:
    assert request_hash(request(model="m", **members)) == hash_of({**BASE, **hashed})


def test_a_request_without_anything() -> None:
    assert request_hash(wire.Request()) == hash_of({"store": False})


# --- the running hash ------------------------------------------------------------------------

ITEMS: tuple[wire.Item, ...] = (
    wire.user("What is 2+2?"),
    wire.reasoning("Arithmetic."),
    wire.function_call("call_1", "add", '{"a":2}'),
    wire.function_call_output("call_1", "4"),
    wire.assistant("Four."),
)
SETTINGS = request(
    model="m", instructions="Be brief.", include=["x"], temperature=0.2, **{"acme:z": 1, "zz": 2}
)


@given(st.lists(st.integers(0, len(ITEMS)), max_size=4))
def test_items_may_come_in_any_portions(cuts: list[int]) -> None:
    running = RequestHash(SETTINGS)
    done = 0
    for cut in sorted(cuts):
        running.extend(ITEMS[done:cut])
        done = max(done, cut)
        grown = wire.decode_request(
            b'{"input":' + wire.encode(ITEMS[:done]) + b"," + wire.encode(SETTINGS)[1:]
        )
        assert running.digest() == running.digest() == request_hash(grown)


def test_a_copy_of_the_hash_goes_its_own_way() -> None:
    running = RequestHash(SETTINGS)
    running.extend(ITEMS[:2])
    twin, before = running.copy(), running.digest()
    twin.extend(ITEMS[2:])
    assert running.digest() == before != twin.digest()
    running.extend(ITEMS[2:])
    assert running.digest() == twin.digest()


def test_the_order_of_unknown_members_and_spaces_does_not_count() -> None:
    one = wire.decode_request('{"model":"m","x":{"b":1,"a":[1.0]},"y":"\\u0041"}')
    two = wire.decode_request('{ "y": "A", "x": {"a":[1], "b":1.0}, "model":"m" }')
    assert request_hash(one) == request_hash(two)


def test_an_item_that_cannot_be_hashed_spoils_the_hash_and_is_named() -> None:
    broken = wire.decode_item('{"type":"message","role":"user","content":"\\ud83d"}')
    running = RequestHash(SETTINGS)
    running.extend((ITEMS[0], broken, ITEMS[1]))
    for state in (running, running.copy()):
        with pytest.raises(NotIJson) as raised:
            state.digest()
        assert raised.value.path == "/input/1/content/0/text"


def test_settings_that_cannot_be_hashed_are_named() -> None:
    with pytest.raises(NotIJson) as raised:
        RequestHash(wire.decode_request('{"model":"m","seed":9007199254740993}'))
    assert raised.value.path == "/seed"

"""Sealing: every way of writing a body gives the same line, and ids that never change."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from perdure.errors import NotIJson
from perdure.log.ids import ParentRef
from perdure.log.writing import Draft, seal

TS = "2026-11-30T12:00:00.000000001Z"
PARENT = "sha256:" + "0" * 64
CALL = Raw(b'{"type":"function_call","call_id":"c","name":"n","arguments":"{\\"a\\": 1}"}')

BODIES: dict[str, dict[str, object]] = {
    "call": {"item": CALL, "response": "r", "perdure:salt": "s"},
    "text of every kind": {"ns": "a", "data": Raw('"ä\\n\\u0001\U0001f600"'.encode())},
    "names beyond ASCII": {"ns": "a", "\U0001f600": "x", "\uffff": "y", "ä": None},
    "numbers": {"ns": "a", "n": 3, "exact": 2**53, "rounded": 2**53 + 1, "yes": True},
    "white space inside": {"data": Raw(b'{"b": 1, "a": [1, 2]}'), "ns": "a"},
    "a line end inside": {"data": Raw(b'{"b":\n1}'), "ns": "a"},
    "a fraction": {"data": Raw(b"1.50"), "ns": "a", "lasts": 60.0},
    "a surrogate": {"ns": "a", "label": "x\ud800y"},
    "nothing": {},
}

IDS = {
    "call": "sha256:6b470d51c868c05b0d3340d3bb93e89e58939236c20728691bee157a865ecd74",
    "text of every kind": "sha256:55735a24353ae23459cc087cd367ca76aa42b8bf19c18f996b2c10bb7a0b78b6",
    "names beyond ASCII": "sha256:d2690ddd5b6617cd3b928ea44a4f4979a7972fa28106243987524c0cec6599b9",
    "numbers": "sha256:30e48b356477acb9ee5248b762cb671bed7c6bbef855e9d172da600b79ccb5eb",
    "white space inside": "sha256:d51c286a0ca536e22578a486b920407bf060af7890830ced821f1de8d4af8482",
    "a line end inside": "sha256:e91f2869f8016ffe42df558f5ca0fd21024246839f9405522cc85b7dd3bb54d1",
    "a fraction": "sha256:6c506d45fa18cdf1c90bbcbb9b20adb11f3ec1a90d3f27d55ee63fe457c9dc43",
    "a surrogate": "sha256:74cba49785e7c9ece54c07ba3ff23ceb40f44c7b63881e8fbdf0cf36978e1f3b",
    "nothing": "sha256:907d6eb9ff990cfe305e5cff37d0865908d596d391b47c8e6f7b074841fd5a2a",
}


def spelled_apart(body: dict[str, object]) -> dict[str, object]:
    """The body as texts with white space around them, which are written piece by piece."""
    return {name: Raw(b" " + _text(value) + b" ") for name, value in body.items()}


def _text(value: object) -> bytes:
    if isinstance(value, str) and "\ud800" in value:
        return b'"' + value.encode("ascii", "backslashreplace") + b'"'
    return msgspec.json.encode(value)


@pytest.mark.parametrize("name", BODIES)
def test_ids_never_change(name: str) -> None:
    assert seal(Draft("custom", BODIES[name]), PARENT, TS).id == IDS[name]


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("parents", [(), (ParentRef(entry="z"), ParentRef(entry="a", session="s"))])
def test_a_body_gives_one_line_however_it_was_given(
    name: str, parents: tuple[ParentRef, ...]
) -> None:
    body = BODIES[name]
    entry = seal(Draft("custom", body, parents=parents), PARENT, TS)
    other = seal(Draft("custom", spelled_apart(body), parents=parents), PARENT, TS)
    assert (entry.id, entry.line) == (other.id, other.line)
    members = list(msgspec.json.decode(entry.line, type=dict[str, Raw]))
    assert members == sorted(members, key=lambda member: member.encode("utf-16-be"))


def test_a_draft_stands_for_its_id() -> None:
    named = Draft("custom", {"ns": "a"})
    seal(named, None, TS)
    entry = seal(Draft("dispatch", {"target": named, "call_id": "c"}), named.id, TS)
    other = seal(Draft("dispatch", {"target": named.id, "call_id": "c"}), named.id, TS)
    assert (entry.id, entry.line) == (other.id, other.line)


@pytest.mark.parametrize("body", [{"data": Raw(b"")}, {"data": Raw(b"[")}, {1: "x"}])
def test_what_is_no_json_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(NotIJson):
        seal(Draft("custom", body), None, TS)

"""Entries: ids, timestamps, what a writer normalises, what is kept."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from perdure.clock import RandomIds, SystemClock
from perdure.errors import CorruptLog, EntryRefused, NotIJson
from perdure.log.entries import (
    ClosedEntry,
    DispatchEntry,
    ItemEntry,
    ResponseEntry,
    StepEntry,
    UnknownEntry,
    decode_entry,
    ends_by_itself,
    starts_effect,
)
from perdure.log.ids import ENVELOPE, ParentRef, new_session_id, subsession_id
from perdure.log.normalise import Change, normalise
from perdure.log.timestamps import is_timestamp, respelled, timestamp, wall_of
from perdure.log.writing import Draft, salted, seal
from perdure.wire import canonical_json, canonicalize

TS = "2026-10-01T12:00:00Z"

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def core_id(line: bytes) -> str:
    """The id of a line by the format's formula, without perdure's code for it."""

    def jcs_hash(value: object) -> str:
        return "sha256:" + hashlib.sha256(canonicalize(json.dumps(value))).hexdigest()

    members = json.loads(line)
    body = {name: value for name, value in members.items() if name not in ENVELOPE}
    envelope = {
        "type": members["type"],
        "parent": members["parent"],
        "ts": members["ts"],
        "content": jcs_hash(body),
    }
    if members.get("parents"):
        envelope["parents"] = members["parents"]
    return jcs_hash(envelope)


def test_sealing_a_published_body_gives_its_published_line(sessions: Path) -> None:
    checked = 0
    for path in sessions.glob("*.jsonl"):
        for line in path.read_bytes().splitlines()[1:]:
            try:
                entry = decode_entry(line)
            except CorruptLog:
                continue
            body = {n: v for n, v in entry.members.items() if n not in ENVELOPE}
            sealed = seal(Draft(entry.type, body, parents=entry.parents), entry.parent, entry.ts)
            assert sealed.line == line or path.stem == "missing-id"
            checked += 1
    assert checked > 300


@given(st.dictionaries(st.text(min_size=1, max_size=6).filter(str.isidentifier), values))
def test_an_entry_hashes_as_the_format_says(body: dict[str, object]) -> None:
    body = {f"x:{name}": value for name, value in body.items()}
    entry = seal(Draft("acme:note", body, parents=(ParentRef(entry="b"),)), "sha256:p", TS)
    assert core_id(entry.line) == entry.id
    assert isinstance(entry, UnknownEntry)
    kept = {n: v for n, v in entry.members.items() if n not in ENVELOPE}
    assert canonical_json(kept) == canonical_json(body)


@given(values)
def test_what_is_i_json_is_not_changed(value: object) -> None:
    source = json.dumps(value).encode()
    assert normalise(source) == (canonicalize(source), ())


@pytest.mark.parametrize(
    ("source", "text", "change"),
    [
        (
            b'{"n":9007199254740993}',
            '{"n":9007199254740992}',
            Change(at="/n", was="9007199254740993"),
        ),
        (b'["cut \\ud83d"]', '["cut \ufffd"]', Change(at="/0", was='"cut \\ud83d"')),
        (
            b'["\\ud83d\\ude00 \\udc00"]',
            '["\U0001f600 \ufffd"]',
            Change(at="/0", was='"\\ud83d\\ude00 \\udc00"'),
        ),
        (b'{"a/~":"\xe2\x82 x"}', '{"a/~":"\ufffd x"}', Change(at="/a~1~0", raw="IuKCIHgi")),
        (b'"\xf0\x9f\x98\xff\x80"', '"\ufffd\ufffd\ufffd"', Change(at="", raw="IvCfmP+AIg==")),
        (
            b'{"b\\ud800":{"c":"\\ud801"}}',
            '{"b\ufffd":{"c":"\ufffd"}}',
            Change(at="", was='{"b\\ud800":{"c":"\\ud801"}}'),
        ),
        (
            b"[123456789012345678901234567890]",
            "[1.2345678901234568e+29]",
            Change(at="/0", was="123456789012345678901234567890"),
        ),
    ],
)
def test_what_is_changed_is_recoverable(source: bytes, text: str, change: Change) -> None:
    assert normalise(source) == (text.encode(), (change,))


@pytest.mark.parametrize(
    "source",
    [
        *(b"[1e999]", b"[1,]", b"[01]", b'{"a"}', b"", b"NaN", b'["\\ud800"]]', b'"\\ud800'),
        *(b'{"a":1,"a":"\\ud800"}', b'{"a\\ud800":1,"a\\ud801":2}'),
    ],
)
def test_what_cannot_be_recorded_is_refused(source: bytes) -> None:
    with pytest.raises(NotIJson):
        normalise(source)


def test_changes_are_sorted_by_utf16() -> None:
    source = '{"\ue000":"\\ud800","\U0001f600":"\\ud800"}'.encode()
    assert [change.at for change in normalise(source).changes] == ["/\U0001f600", "/\ue000"]


def test_a_body_keeps_what_it_was() -> None:
    entry = seal(Draft("custom", {"ns": "acme", "data": {"t": "W\x00s \ud800"}}), None, TS)
    assert entry.members["data"] == {"t": "W\x00s \ufffd"}
    assert entry.members["normalised"] == [{"at": "/data/t", "was": '"W\\u0000s \\ud800"'}]
    assert core_id(entry.line) == entry.id


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: 2}, b"bytes"])
def test_a_value_that_is_not_json_is_refused_with_its_path(value: object) -> None:
    with pytest.raises(NotIJson) as caught:
        seal(Draft("custom", {"data": {"deep": [value]}}), None, TS)
    assert caught.value.path == "/data/deep/0"


@pytest.mark.parametrize(
    "body", [{1: "x"}, {"ns": "a", None: 1}, {"s": {"x"}}, {"b": b"x"}, {"n": float("nan")}]
)
def test_a_body_is_json_from_the_top(body: dict[str, object]) -> None:
    with pytest.raises(NotIJson):
        seal(Draft("custom", body), None, TS)


@pytest.mark.parametrize("name", [*ENVELOPE, "content"])
def test_a_body_must_not_name_the_envelope(name: str) -> None:
    with pytest.raises(EntryRefused):
        seal(Draft("custom", {name: "x"}), None, TS)


def test_a_draft_names_another_by_its_id() -> None:
    first = Draft("queued", {"mode": "steer"})
    with pytest.raises(EntryRefused):
        seal(Draft("item", {"queued_from": first}), None, TS)
    seal(first, None, TS)
    second = seal(Draft("item", {"queued_from": first, "item": {}}), first.id, TS)
    assert isinstance(second, ItemEntry)
    assert second.queued_from == first.id


@pytest.mark.parametrize(
    ("type_", "body", "salt"),
    [
        ("item", {"item": {}}, True),
        ("config", {"model": "m"}, True),
        ("dispatch", {"call_id": "c"}, False),
        ("run", {"phase": "start"}, False),
        ("run", {"phase": "start", "ref": "cron:night"}, True),
        ("decision", {"verdict": "hold"}, False),
        ("decision", {"verdict": "hold", "reason": "needs approval"}, True),
        ("perdure:vote", {}, True),
    ],
)
def test_what_tells_of_a_user_is_salted(type_: str, body: dict[str, object], salt: bool) -> None:
    draft = salted(Draft(type_, body), RandomIds())
    assert ("perdure:salt" in draft.body) == salt
    if salt:
        assert len(str(draft.body["perdure:salt"])) == 32


def test_an_entry_of_another_shape_is_kept_and_said_to_be_malformed() -> None:
    line = b'{"type":"response","id":"x","parent":null,"ts":"t","attempts":"two"}'
    entry = decode_entry(line)
    assert isinstance(entry, UnknownEntry)
    assert entry.type == "response"
    assert "attempts" in entry.malformed
    assert entry.line == line


def test_a_null_counts_as_absent() -> None:
    line = b'{"type":"response","id":"x","parent":null,"ts":"t","model":null,"attempts":2}'
    entry = decode_entry(line)
    assert isinstance(entry, ResponseEntry)
    assert (entry.model, entry.attempts, entry.line) == ("", 2, line)


@pytest.mark.parametrize("line", [b"", b"null", b"[]", b"{", b'{"type":1}', b'"\xff"', b"[" * 9999])
def test_what_is_no_entry_is_corrupt(line: bytes) -> None:
    with pytest.raises(CorruptLog):
        decode_entry(line)


def test_dispatches_and_step_starts_begin_effects() -> None:
    assert starts_effect(DispatchEntry())
    assert starts_effect(StepEntry(phase="start"))
    assert not starts_effect(StepEntry(phase="end"))
    assert not starts_effect(ItemEntry())


def test_a_run_ends_by_itself_when_it_is_done_and_not_by_a_message() -> None:
    assert ends_by_itself(ClosedEntry(status="done"))
    assert ends_by_itself(ClosedEntry(status="stopped"))
    assert not ends_by_itself(ClosedEntry(status="cancelled"))
    assert not ends_by_itself(ClosedEntry(status="done", message="m"))


@given(st.integers(0, 4 * 10**18))
def test_a_timestamp_has_one_spelling(wall: int) -> None:
    text = timestamp(wall)
    assert is_timestamp(text)
    assert wall_of(text) == wall
    assert respelled(text) == text


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("2026-09-17T12:00:02.500Z", "2026-09-17T12:00:02.5Z"),
        ("2026-09-17T12:00:02.000Z", "2026-09-17T12:00:02Z"),
        ("2026-09-17t14:30:00+02:30", "2026-09-17T12:00:00Z"),
        ("2026-12-31T23:59:60Z", "2026-12-31T23:59:59Z"),
        ("2026-09-17T12:00:00.1234567891Z", "2026-09-17T12:00:00.123456789Z"),
    ],
)
def test_other_spellings_are_told_apart_and_respelled(text: str, one: str) -> None:
    assert not is_timestamp(text)
    assert respelled(text) == one


@pytest.mark.parametrize("text", ["", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "yesterday"])
def test_no_such_instant(text: str) -> None:
    assert not is_timestamp(text)
    with pytest.raises(ValueError):
        respelled(text)


def test_session_ids() -> None:
    first, second = (new_session_id(SystemClock(), RandomIds()) for _ in range(2))
    assert first != second
    assert first[14] == "7"
    assert first[19] in "89ab"
    assert subsession_id("parent", "call_1") == subsession_id("parent", "call_1")
    assert subsession_id("parent", "call_1", 2) != subsession_id("parent", "call_1")
    assert subsession_id("parent", "call_1")[14] == "5"

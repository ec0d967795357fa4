"""The published sessions: each behaves as its page says."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.errors import CorruptLog, NoRequestHash, RequestMismatch, UnsupportedFormat
from perdure.log.context import context_json
from perdure.log.entries import ResponseEntry
from perdure.log.reading import Reading, read_session
from perdure.log.session import Session
from perdure.log.timeline import entry_line
from perdure.wire import canonicalize

WHOLE = [
    *("basic", "branch", "compaction", "converge", "empty-resume", "extensions", "fork"),
    *("instructions", "normalised", "omit", "omit-absent", "omitted", "parts", "pinned"),
    *("replay", "resume", "runs"),
]
LEGACY = ["basic", "branch", "compaction", "extensions", "instructions"]

FAULTS = {
    "bad-base-parent": ("base", 10),
    "bad-base-prefix": ("base", 4),
    "bad-base-root": ("base", 10),
    "bad-first-kept": ("context", 3),
    "bad-handback": ("context", 18),
    "bad-omit": ("request_hash", 16),
    "bad-parent": ("parent", 4),
    "bad-records": ("records", 6),
    "bad-resume": ("source", 13),
    "corrupt-middle": ("unreadable", 3),
    "duplicate-id": ("duplicate", 11),
    "missing-id": ("missing_id", 3),
    "truncated": ("torn", 10),
    "v0.4/bad-first-kept": ("context", 3),
    "v0.4/bad-parent": ("parent", 3),
    "v0.4/bad-parents": ("parents", 3),
    "v0.4/missing-id": ("missing_id", 2),
}


def read(sessions: Path, name: str) -> Reading:
    origins = [read(sessions, "basic").session] if name == "fork" else []
    return read_session((sessions / f"{name}.jsonl").read_bytes(), origins=origins)


@pytest.mark.parametrize("name", [*WHOLE, *(f"v0.4/{one}" for one in LEGACY)])
def test_a_whole_session_has_no_fault(sessions: Path, name: str) -> None:
    reading = read(sessions, name)
    assert reading.faults == ()
    assert reading.torn == b""
    assert len(reading.session) > 4


@pytest.mark.parametrize(("name", "fault"), FAULTS.items())
def test_each_negative_session_is_reported_for_its_one_fault(
    sessions: Path, name: str, fault: tuple[str, int]
) -> None:
    assert [(one.kind, one.line) for one in read(sessions, name).faults] == [fault]


def test_another_major_format_is_refused(sessions: Path) -> None:
    with pytest.raises(UnsupportedFormat):
        read(sessions, "unsupported-format")


@pytest.mark.parametrize("minor", ["0.12", "0.0", "1.0", "0.x"])
def test_a_minor_that_nobody_named_is_refused(minor: str) -> None:
    with pytest.raises(UnsupportedFormat):
        read_session(b'{"type":"session","format":"agentsession/%s","id":"s"}' % minor.encode())


def shown(session: Session, leaf: str) -> Any:
    return json.loads(msgspec.json.encode(context_json(session.context(leaf))))


@pytest.mark.parametrize(
    "name",
    [
        *("bad-handback", "bad-omit", "bad-resume", "basic", "branch", "compaction", "converge"),
        *("empty-resume", "extensions", "instructions", "omit", "omit-absent", "pinned"),
        *("resume", "runs"),
    ],
)
def test_every_head_gives_the_published_context(sessions: Path, contexts: Path, name: str) -> None:
    session = read(sessions, name).session
    expected = json.loads((contexts / f"{name}.json").read_bytes())
    assert set(session.heads) == set(expected)
    for leaf, context in expected.items():
        mine = shown(session, leaf)
        if name == "instructions":  # the page says to ignore it there
            mine["settings"].pop("instructions_omitted")
        assert mine == context


@pytest.mark.parametrize(
    "name", ["branch", "branch.with-item_entries", "compaction", "extensions", "instructions"]
)
def test_legacy_sessions_give_the_published_context(
    sessions: Path, contexts: Path, name: str
) -> None:
    session = read(sessions, f"v0.4/{name.partition('.')[0]}").session
    short = {entry.id: str(entry.members["legacy_id"]) for entry in session.entries}
    expected = json.loads((contexts / "legacy-0.1" / f"{name}.json").read_bytes())
    assert {short[head] for head in session.heads} == set(expected)
    for head in session.heads:
        mine, theirs = shown(session, head), expected[short[head]]
        mine["settings"].pop("instructions_omitted", None)
        for member in ("entries", "item_entries"):
            mine[member] = [short[one] for one in mine[member]]
        if "item_entries" not in theirs:
            del mine["item_entries"]
        assert mine == theirs


@pytest.mark.parametrize("name", [*LEGACY, "bad-first-kept"])
def test_a_legacy_session_migrates_to_the_newer_file(sessions: Path, name: str) -> None:
    old, new = (read(sessions, one).session for one in (f"v0.4/{name}", name))
    assert [entry.id for entry in old.entries] == [entry.id for entry in new.entries]
    assert [canonicalize(e.line) for e in old.entries] == [e.line for e in new.entries]


@pytest.mark.parametrize("name", WHOLE)
def test_every_recorded_request_is_rebuilt(sessions: Path, name: str) -> None:
    session = read(sessions, name).session
    for entry in session.entries:
        if isinstance(entry, ResponseEntry) and entry.request_hash:
            session.check_request(entry.id)
        elif isinstance(entry, ResponseEntry):
            with pytest.raises(NoRequestHash):
                session.check_request(entry.id)


def test_a_request_that_is_not_the_one_is_told_apart_from_none(sessions: Path) -> None:
    session = read(sessions, "bad-omit").session
    responses = [e for e in session.entries if isinstance(e, ResponseEntry)]
    with pytest.raises(RequestMismatch):
        session.check_request(responses[2].id)


@pytest.mark.parametrize("name", WHOLE)
def test_a_changed_byte_is_found(sessions: Path, name: str) -> None:
    lines = (sessions / f"{name}.jsonl").read_bytes().splitlines()
    for number in range(2, len(lines) + 1):
        spoiled = lines[number - 1].replace(b'"ts":"202', b'"ts":"203')
        data = b"\n".join([*lines[: number - 1], spoiled, *lines[number:]])
        assert ("hash", number) in {(f.kind, f.line) for f in read_session(data).faults}


@pytest.mark.parametrize("name", WHOLE)
def test_every_prefix_of_a_session_reads(sessions: Path, name: str) -> None:
    lines = (sessions / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        faults = read_session(b"".join(lines[:count])).faults
        assert faults == ()


@pytest.mark.parametrize("seed", range(40))
def test_whatever_stands_in_a_file_is_read_or_reported(sessions: Path, seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray((sessions / f"{dice.choice(WHOLE)}.jsonl").read_bytes())
    for _ in range(20):
        for _ in range(dice.randint(1, 3)):
            data[dice.randrange(len(data))] = dice.choice(b'\x00\xff\n"{}[],:0aZ')
        try:
            reading = read_session(bytes(data))
        except (CorruptLog, UnsupportedFormat):
            return
        for head in reading.session.heads:
            shown(reading.session, head)
            reading.session.calls(head)
            reading.session.drives(head)
        for entry in reading.session.entries:
            assert entry_line(entry)
        assert reading.session.call_ids is not None

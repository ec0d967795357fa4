"""The redacted projection: bodies go, what is left is a log (LOG 7, 8)."""

from __future__ import annotations

import pytest

from perdure.log.entries import AnyEntry, ItemEntry
from perdure.log.header import Origin
from perdure.log.reading import read_lines
from perdure.log.redaction import redacted
from perdure.log.writing import erased_line
from perdure.testing.store_kit import header
from tests.log.building import Built

SECRET = b"4111"


def conversation() -> Built:
    built = Built(header())
    built.config(model="m")
    built.start()
    built.user("my card is 4111")
    built.call("c", arguments='{"card": "4111"}')
    built.response()
    built.dispatch("c", "k")
    built.output("c", "charged 4111")
    built.end()
    queued = built.add("queued", {"item": {"type": "message"}, "mode": "steer"})
    built.add("custom", {"ns": "test", "data": "4111", "of": queued})
    return built


BUILT = conversation()
LINES = [entry.line for entry in BUILT.session.entries]


@pytest.mark.parametrize("place", range(len(LINES)))
def test_what_is_left_verifies_whichever_body_goes(place: int) -> None:
    doomed = BUILT.session.entries[place].id
    projected = redacted(BUILT.header, LINES, [doomed])
    reading = read_lines(projected.header, projected.lines)
    assert [fault for fault in reading.faults if fault.kind != "call"] == []
    assert projected.header.redacted
    assert list(projected.lines[:place]) == LINES[:place]
    assert [entry.type for entry in reading.session.entries] == [
        entry.type for entry in BUILT.session.entries
    ]
    assert projected.ids[doomed] == reading.session.entries[place].id != doomed


def test_all_that_was_said_can_go() -> None:
    projected = redacted(BUILT.header, LINES, [entry.id for entry in BUILT.session.entries])
    assert not any(SECRET in line for line in projected.lines)
    assert read_lines(projected.header, projected.lines).faults == ()


def test_entries_that_name_others_name_them_still() -> None:
    first = BUILT.session.entries[0].id
    projected = redacted(BUILT.header, LINES, [first])
    dispatch = next(e for e in read(projected.lines) if e.type == "dispatch")
    target = next(e for e in read(projected.lines) if b'function_call"' in e.line)
    assert isinstance(target, ItemEntry)
    assert dispatch.members["target"] == target.id


def read(lines: tuple[bytes, ...]) -> list[AnyEntry]:
    return list(read_lines(BUILT.header, lines).session.entries)


def test_bodies_that_were_erased_before_go_with_it() -> None:
    lines = [erased_line(line) if b"my card" in line else line for line in LINES]
    projected = redacted(BUILT.header, lines)
    assert not any(b"perdure:erased" in line for line in projected.lines)
    assert read_lines(projected.header, projected.lines).faults == ()


def test_a_fork_keeps_its_base() -> None:
    base = BUILT.session.entries[2].id
    fork = header("fork", origin=Origin("s1", base))
    projected = redacted(fork, LINES[:3], [BUILT.session.entries[0].id])
    assert projected.header.base == projected.ids[base] != base

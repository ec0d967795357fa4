"""Forks, successors, convergence."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.clock import RandomIds, SystemClock
from perdure.errors import EntryRefused, NoEntry
from perdure.log.branching import Beginning, converging, fork, successor
from perdure.log.reading import read_session
from perdure.log.session import Session
from perdure.log.writing import Draft, seal
from perdure.stores.memory import MemoryStore
from perdure.wire import user
from tests.log.building import Built, message, texts


def begun(made: Beginning, *origins: Session) -> Session:
    lines = [made.header.line, *(entry.line for entry in made.entries)]
    reading = read_session(b"".join(line + b"\n" for line in lines), origins=origins)
    assert reading.faults == ()
    return reading.session


def fork_at(session: Session, base: str) -> Beginning:
    return fork(session, base, clock=SystemClock(), ids=RandomIds())


def test_a_fork_shares_the_path_and_leaves_its_origin_alone() -> None:
    built = Built()
    built.config(model="m")
    base = built.user("a")
    built.user("b")
    before = built.data
    made = fork_at(built.session, base)
    session = begun(made, built.session)
    assert built.data == before
    assert (session.header.base, session.header.parent_session) == (base, "session")
    assert session.leaf == base
    assert texts(session.at()) == ["a"]
    assert session.context().settings.model == "m"


def test_a_fork_into_a_drive_closes_it_as_interrupted() -> None:
    built = Built()
    built.start()
    base = built.call("c")
    built.response()
    session = begun(fork_at(built.session, base), built.session)
    end = session.entries[-1]
    assert end.members["reason"] == "interrupted"
    assert end.members["pending"] == ["c"]


async def test_a_fork_is_stored_like_any_session(sessions: Path) -> None:
    origin = read_session((sessions / "basic.jsonl").read_bytes()).session
    made = fork_at(origin, origin.entries[5].id)
    store = MemoryStore()
    await store.create(made.header, batch=made.entries)
    assert (await store.read(made.header.id)).version == 6


def test_what_cannot_be_a_base() -> None:
    built = Built()
    root = built.user("a")
    label = built.rewind(root)
    with pytest.raises(EntryRefused):
        fork_at(built.session, label)
    with pytest.raises(NoEntry):
        fork_at(built.session, "sha256:no")


def test_a_base_whose_path_converges_another_branch_is_refused() -> None:
    built = Built()
    root = built.user("a")
    one = built.add("item", {"item": message("b")}, under=root)
    two = built.add("item", {"item": message("c")}, under=root)
    draft = Draft("item", {"item": message("merge")}, parents=converging(one))
    merged = seal(draft, two, "2026-10-05T00:00:00Z")
    built.session.take(merged)
    assert built.faults == ()
    with pytest.raises(EntryRefused):
        fork_at(built.session, merged.id)
    fork_at(built.session, two)


def test_a_session_without_hashes_is_not_forked(sessions: Path) -> None:
    legacy = read_session((sessions / "v0.4" / "basic.jsonl").read_bytes()).session
    with pytest.raises(EntryRefused):
        fork_at(legacy, legacy.entries[-1].id)


def test_convergence_is_sorted_and_never_walked() -> None:
    built = Built()
    root = built.user("a")
    others = [built.add("item", {"item": message(t)}, under=root) for t in ("x", "y", "z")]
    refs = (*converging("far", session="s2"), *converging(*others), *converging("f", session="s1"))
    merged = seal(Draft("item", {"item": message("m")}, parents=refs), root, "2026-10-05T00:00:00Z")
    built.session.take(merged)
    assert built.faults == ()
    assert [(r.session, r.entry) for r in merged.parents] == sorted(
        (r.session, r.entry) for r in refs
    )
    assert texts(built.session.at(merged.id)) == ["a", "m"]


def test_a_successor_takes_the_settings_along(sessions: Path) -> None:
    old = read_session((sessions / "omit.jsonl").read_bytes()).session
    made, link = successor(
        old, clock=SystemClock(), ids=RandomIds(), summary=user("so far"), name="part two"
    )
    session = begun(made)
    assert session.context().settings.as_json() == old.context().settings.as_json()
    assert [item.type for item in session.context().items] == ["message"]
    assert session.view().name == "part two"
    assert link.body == {"rel": "continued_in", "session": session.id}

"""The tree, the leaf and the projections of a session."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from perdure.errors import EntryRefused, NoEntry
from perdure.log.entries import decode_entry
from perdure.log.header import Origin, new_header, raised
from perdure.log.reading import read_session
from perdure.log.session import Session
from perdure.log.writing import Draft, seal
from tests.log.building import Built, message, texts


def test_an_empty_session_has_no_leaf() -> None:
    session = Built().session
    assert session.leaf is None
    assert session.version == 0
    assert session.status == "idle"
    assert session.path() == []
    assert list(session.context().items) == []


def test_the_leaf_is_the_last_line_while_no_label_is_in_force() -> None:
    built = Built()
    first = built.user("a")
    built.user("b")
    branch = built.add("item", {"item": message("c")}, under=first)
    assert built.session.leaf == branch
    assert texts(built.view) == ["a", "c"]


def test_after_a_leaf_label_only_its_descendants_move_the_leaf() -> None:
    built = Built()
    root = built.user("root")
    first = built.add("item", {"item": message("a")}, under=root)
    other = built.add("item", {"item": message("b")}, under=root)
    built.rewind(first)
    assert built.session.leaf == first
    built.add("item", {"item": message("late")}, under=other)
    assert built.session.leaf == first
    below = built.user("c")
    assert built.session.leaf == below
    assert built.user("d") == built.session.leaf
    assert texts(built.view) == ["root", "a", "c", "d"]


def test_a_branch_below_the_mark_moves_the_leaf_but_not_one_beside_it() -> None:
    built = Built()
    root = built.user("root")
    mark = built.user("mark")
    built.rewind(mark)
    one = built.user("one")
    two = built.add("item", {"item": message("two")}, under=mark)
    assert built.session.leaf == two
    built.add("item", {"item": message("beside")}, under=root)
    assert built.session.leaf == two
    assert one in built.session.heads


def test_a_leaf_never_rests_on_a_leaf_label() -> None:
    built = Built()
    first = built.user("a")
    label = built.add("label", {"target": "missing", "label": "leaf"})
    assert built.session.leaf == first
    built.add("label", {"target": label, "label": "leaf"})
    assert built.session.leaf == first


def test_null_on_the_marked_target_takes_the_mark_back() -> None:
    built = Built()
    first = built.user("a")
    built.user("b")
    built.rewind(first)
    cleared = built.add("label", {"target": first, "label": None})
    assert built.session.leaf == cleared


def test_taking_a_mark_back_leaves_the_one_before_in_force() -> None:
    built = Built()
    first = built.user("a")
    second = built.user("b")
    built.rewind(first)
    below = built.user("c")
    built.rewind(second)
    built.add("label", {"target": second, "label": None}, under=None)
    assert built.session.leaf == below


def test_another_label_moves_nothing_but_is_a_place_to_rest() -> None:
    built = Built()
    first = built.user("a")
    label = built.add("label", {"target": first, "label": "good"})
    assert built.session.leaf == label


def fork_of(origin: Built, base: str) -> Built:
    header = new_header("fork", "2026-10-02T00:00:00Z", origin=Origin(origin.session.id, base))
    return Built(header, origin.session.path(base))


def test_a_leaf_label_above_the_base_is_not_in_force() -> None:
    origin = Built()
    first = origin.user("a")
    base = origin.user("b")
    fork = fork_of(origin, base)
    assert fork.session.leaf == base
    fork.rewind(first)
    assert fork.session.leaf == base
    fork.rewind(base)
    assert fork.session.leaf == base


def test_an_entry_that_is_here_is_the_same_entry() -> None:
    built = Built()
    built.user("a")
    assert not built.session.take(decode_entry(built.session.entries[0].line))
    assert built.session.version == 1


def test_an_entry_needs_its_parent() -> None:
    with pytest.raises(EntryRefused):
        Session(Built().header, [seal(Draft("info", {"name": "x"}), "sha256:no", "t")])


def test_what_is_not_there_is_named() -> None:
    session = Built().session
    for ask in (session.entry, session.place, session.depth, session.at, session.request_of):
        with pytest.raises(NoEntry):
            ask("sha256:no")


def test_timestamps_never_order() -> None:
    built = Built()
    first = seal(Draft("item", {"item": message("a")}), None, "2026-10-01T12:00:00Z")
    second = seal(Draft("item", {"item": message("b")}), first.id, "2026-10-01T12:00:00Z")
    third = seal(Draft("item", {"item": message("c")}), second.id, "2020-01-01T00:00:00Z")
    for entry in (first, second, third):
        built.session.take(entry)
    assert texts(built.view) == ["a", "b", "c"]
    assert built.faults == ()


def test_call_ids_of_every_branch_are_taken() -> None:
    built = Built()
    root = built.user()
    built.call("call_a")
    built.rewind(root)
    built.call("call_b")
    assert built.session.call_ids == {"call_a", "call_b"}


def test_unknown_types_and_members_come_back_exactly() -> None:
    built = Built()
    built.add("acme:note", {"z": {"b": 1, "a": [None, 1e21]}, "perdure:x": "kept"})
    built.item({"type": "acme:thing", "id": "x", "deep": {"m": "\U0001f600"}}, acme_member=True)
    read = read_session(built.data)
    assert [e.line for e in read.session.entries] == [e.line for e in built.session.entries]
    assert read.faults == ()


def test_raising_a_header_changes_its_format_alone() -> None:
    line = b'{"type":"session","format":"agentsession/0.6","id":"s","acme:x":{"b":1,"a":2}}'
    header = read_session(line).session.header
    expected = line.replace(b"0.6", b"0.11")
    assert raised(header).line == expected
    assert raised(raised(header)).line == expected
    legacy = read_session(line.replace(b"0.6", b"0.4")).session.header
    assert raised(legacy) is legacy


@given(st.lists(st.tuples(st.sampled_from(["user", "config", "rewind", "branch", "compact"]),
                          st.integers(0, 9)), max_size=14))  # fmt: skip
def test_following_gives_what_reading_anew_gives(steps: list[tuple[str, int]]) -> None:
    built = Built()
    built.config(model="m0")
    followed = built.session.view()
    for kind, number in steps:
        entries = built.session.entries
        some = entries[number % len(entries)].id
        if kind == "user":
            built.user(str(number))
        elif kind == "config":
            built.config(model=f"m{number}", omit={"reasoning": "other_models"})
        elif kind == "rewind":
            built.rewind(some)
        elif kind == "branch":
            built.add("item", {"item": message(f"b{number}")}, under=some)
        else:
            kept = built.session.path()[0].id
            body = {"first_kept": kept, "summary": message("s"), "config": {"model": "c"}}
            built.add("compaction", body)
        shared, fresh = built.session.view(), built.session.at()
        assert shared.leaf == fresh.leaf == built.session.leaf
        assert shared.context == fresh.context
        assert shared.context.item_entries == fresh.context.item_entries
    assert followed is not None

"""The tables of docs/coming-from/bide.md name everything, and name what exists.

`bide-names.txt` lists the names of bide's package `agent`: every function, method, type and
constant; the fields of Safety, Result, ResumeHalt and Usage; and the free functions that the
reference page leaves out.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from tests.docs.test_coming_from import CODE, NOTHING, ROOT, Row, found, read, resolve

DOCUMENT = ROOT / "docs" / "coming-from" / "bide.md"
NAMES = (ROOT / "tests" / "docs" / "bide-names.txt").read_text("utf-8").split()
ROWS = read(DOCUMENT.read_text("utf-8"))

PARTS = {
    "approvals": "perdure.Approval",
    "audit": "perdure.audit",
    "retrieval": "perdure.Retrieval",
    "sagas": "perdure.durable.sagas",
}
"""The parts of perdure that a name may wait for, each with a name that it will bring."""

NOT_YET = re.compile(r"not yet: (\w+)")


def test_every_name_of_the_reference_stands_in_the_tables_once() -> None:
    assert Counter(row.theirs for row in ROWS) == Counter(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_every_line_of_a_table_is_read() -> None:
    lines = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row.theirs for row in ROWS])
def test_every_name_of_ours_exists(row: Row) -> None:
    if row.ours == NOTHING:
        assert row.remarks, "a name without a counterpart says why"
        return
    assert NOT_YET.search(row.remarks) is None, "what has a counterpart is there"
    names = CODE.findall(row.ours)
    assert names, row.ours
    thing: object = None
    for name in names:
        if name.startswith('"'):
            assert name.strip('"') in get_args(thing), name
        else:
            assert name.startswith("perdure."), name
            thing = resolve(name)


def test_what_a_name_waits_for_is_a_part_that_is_not_there() -> None:
    waited_for = {found[1] for row in ROWS if (found := NOT_YET.match(row.remarks))}
    assert waited_for <= set(PARTS)
    for part in waited_for:
        there = True
        try:
            resolve(PARTS[part])
        except (AttributeError, ModuleNotFoundError):
            there = False
        assert not there, f"{part} are here now: docs/coming-from/bide.md can name them"


# --- the list against the reference, where it lies beside the project ------------------


STRUCTS = ("Safety", "Result", "ResumeHalt", "Usage")
"""The types whose fields are all listed."""


def declared(page: str) -> set[str]:
    """The names that the API page declares."""
    names = set(found(r"^func ([A-Z]\w*)[\[(]", page))
    names.update(found(r"^func \((?:\w+ )?\*?(\w+)\) (\w+)\(", page))
    names.update(found(r"^type ([A-Z]\w*)", page))
    for block in found(r"^const \((.*?)^\)", page):
        names.update(found(r"^\t([A-Z]\w*)", block))
    for struct in STRUCTS:
        (body,) = found(rf"^type {struct} struct \{{(.*?)^\}}", page)
        names.update(f"{struct}.{field}" for field in found(r"^\t([A-Z]\w*) ", body))
    return names


def described(inventory: str) -> set[str]:
    """The names that section 29 of the inventory lists: of the page, and those it leaves out."""
    section = inventory[inventory.index("\n## 29.") : inventory.index("\n## 30.")]
    return set(
        re.findall(r"[A-Z]\w+(?:\.[A-Z]\w+)?(?=[,.\n])", section.partition("Types (82):")[2])
    )


def test_the_list_is_complete(shared: Path) -> None:
    reference = shared / "reference"
    page = declared((reference / "bide-agent-api.txt").read_text("utf-8"))
    told = described((reference / "bide-inventory.md").read_text("utf-8"))
    assert set(NAMES) == page | told

"""The tables of docs/coming-from/agentturn.md name everything, and name what exists.

`agentturn-names.txt` lists the names of agentturn's root package: every function, method, type,
constant and variable; the fields of Config, Answer, PendingCall, RunEnd, ToolDecision, Retry and
State; and those fields of other types that are called something else here.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs" / "coming-from" / "agentturn.md"
NAMES = (ROOT / "tests" / "docs" / "agentturn-names.txt").read_text("utf-8").split()

ROW = re.compile(
    r"^\| `(?P<theirs>[\w.]+)` \| (?P<ours>[^|]+) \| (?P<remarks>[^|]*) ?\|$", re.MULTILINE
)
CODE = re.compile(r"`([^`]+)`")
NOTHING = "—"


class Row(NamedTuple):
    theirs: str
    ours: str
    remarks: str


def read(text: str) -> list[Row]:
    return [Row(m["theirs"], m["ours"].strip(), m["remarks"].strip()) for m in ROW.finditer(text)]


def resolve(name: str) -> object:
    """What a dotted name stands for: a module's name, or a member of what stands before it."""
    module = name
    while True:
        try:
            found: object = import_module(module)
            break
        except ModuleNotFoundError:
            module = module.rpartition(".")[0]
    for part in name[len(module) :].split(".")[1:]:
        fields: dict[str, object] = getattr(found, "__dataclass_fields__", {})
        found = fields[part] if part in fields else getattr(found, part)
    return found


ROWS = read(DOCUMENT.read_text("utf-8"))


def test_every_name_of_the_reference_stands_in_the_tables_once() -> None:
    assert Counter(row.theirs for row in ROWS) == Counter(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_every_line_of_a_table_is_read() -> None:
    text = DOCUMENT.read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row.theirs for row in ROWS])
def test_every_name_of_ours_exists(row: Row) -> None:
    if row.ours == NOTHING:
        assert row.remarks, "a name without a counterpart says why"
        return
    names = CODE.findall(row.ours)
    assert names, row.ours
    found: object = None
    for name in names:
        if name.startswith('"'):
            assert name.strip('"') in get_args(found), name
        else:
            assert name.startswith("perdure."), name
            found = resolve(name)


def test_a_constant_that_names_an_event_stands_beside_the_type_of_that_name() -> None:
    for row in ROWS:
        if re.fullmatch(r"Event[A-Z]\w+", row.theirs) and row.ours.endswith(".type`"):
            words = re.findall("[A-Z][a-z]+", row.theirs.removeprefix("Event"))
            assert resolve(CODE.findall(row.ours)[0]) == "_".join(words).lower()


def test_a_name_that_does_not_exist_is_found() -> None:
    with pytest.raises(AttributeError):
        resolve("perdure.loop.Retry.max_tries")
    with pytest.raises(AttributeError):
        resolve("perdure.loop.nothing.at_all")


# --- the list against the reference, where it lies beside the project ------------------


STRUCTS = ("Config", "Answer", "PendingCall", "RunEnd", "ToolDecision", "Retry", "State")
"""The types whose fields are all listed."""

OTHER_FIELDS = {
    "OutputInfo.Message",
    "ToolEnd.Blocked",
    "ToolEnd.Deferred",
    "TurnStart.Arrived",
    "TurnStart.Inputs",
}
"""Fields of other types that are listed because they are called something else."""


def found(pattern: str, text: str) -> list[str]:
    """What the groups of a pattern match, each a line's beginning; two groups are one name."""
    return [
        ".".join(match.groups()) for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL)
    ]


def declared(reference: str) -> set[str]:
    """The names that an API page of pkg.go.dev declares."""
    page = reference[reference.index("\nOverview\n") :]
    names = set(found(r"^func ([A-Z]\w*)\(", page))
    names.update(found(r"^func \((?:\w+ )?\*?(\w+)\) (\w+)\(", page))
    names.update(found(r"^type (\w+) (?:struct|interface|map|func|string|int|=)", page))
    names.update(found(r"^(?:const|var) (\w+)", page))
    for block in found(r"^(?:const|var) \((.*?)^\)", page):
        names.update(found(r"^\t([A-Z]\w*)", block))
    for struct in STRUCTS:
        (body,) = found(rf"^type {struct} struct \{{(.*?)^\}}", page)
        names.update(f"{struct}.{field}" for field in found(r"^\t([A-Z]\w*)", body))
    return names | {"Event.EventType"}  # of the interface


def test_the_list_is_complete(shared: Path) -> None:
    reference = (shared / "reference" / "agentturn-api.txt").read_text("utf-8")
    assert set(NAMES) == declared(reference) | OTHER_FIELDS

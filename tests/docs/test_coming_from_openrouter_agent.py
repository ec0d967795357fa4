"""The tables of docs/coming-from/openrouter-agent.md name everything, and name what exists.

`openrouter-agent-names.txt` lists the names of the Go module: every function, method, type,
constant and variable; and the fields of those structs that are arguments or results of calls. A
name of ours that ends in `=` is a parameter of the function or class before it.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from tests.docs.test_coming_from import CODE, NOTHING, ROOT, Row, found, read, resolve

DOCUMENT = ROOT / "docs" / "coming-from" / "openrouter-agent.md"
NAMES = (ROOT / "tests" / "docs" / "openrouter-agent-names.txt").read_text("utf-8").split()
ROWS = read(DOCUMENT.read_text("utf-8"))


def test_every_name_of_the_reference_stands_in_the_tables_once() -> None:
    assert Counter(row.theirs for row in ROWS) == Counter(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_every_line_of_a_table_is_read() -> None:
    lines = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS)


def parameters(thing: object) -> set[str]:
    """The names of the parameters of a function or a class."""
    assert callable(thing)
    return set(inspect.signature(thing).parameters)


@pytest.mark.parametrize("row", ROWS, ids=[row.theirs for row in ROWS])
def test_every_name_of_ours_exists(row: Row) -> None:
    if row.ours == NOTHING:
        assert row.remarks, "a name without a counterpart says why"
        return
    names = CODE.findall(row.ours)
    assert names, row.ours
    thing: object = None
    for name in names:
        if name.startswith('"'):
            assert name.strip('"') in get_args(thing), name
        elif name.endswith("="):
            assert name.removesuffix("=") in parameters(thing), name
        else:
            assert name.startswith("perdure."), name
            thing = resolve(name)


# --- the list against the reference, where it lies beside the project ------------------


STRUCTS = (
    "CallModelInput",
    "ConversationState",
    "ToolConfig",
    "StepResult",
    "ToolExecuteContext",
    "OpenRouterOptions",
    "SDKOptions",
    "HooksManagerOptions",
    "EmitOptions",
    "EmitResult",
)
"""The types whose fields are all listed."""


def declared(reference: str) -> set[str]:
    """The names that an API page of pkg.go.dev declares, generic ones too."""
    page = reference[reference.index("\nOverview\n") :]
    generic = r"(?:\[[^\]]*\])?"
    names = set(found(rf"^func ([A-Z]\w*){generic}\(", page))
    names.update(found(rf"^func \((?:\w+ )?\*?(\w+){generic}\) (\w+)\(", page))
    kinds = r"(?:struct|interface|map|func|string|int|=|\[\]|any)"
    names.update(found(rf"^type (\w+){generic} {kinds}", page))
    names.update(found(r"^(?:const|var) (\w+)", page))
    for block in found(r"^(?:const|var) \((.*?)^\)", page):
        names.update(found(r"^\t([A-Z]\w*)", block))
    for struct in STRUCTS:
        (body,) = found(rf"^type {struct}{generic} struct \{{(.*?)^\}}", page)
        names.update(f"{struct}.{field}" for field in found(r"^\t([A-Z]\w*)", body))
    return names


def test_the_list_is_complete(shared: Path) -> None:
    reference = (shared / "reference" / "openrouter-go-agent-api.txt").read_text("utf-8")
    assert set(NAMES) == declared(reference)


def test_a_parameter_that_does_not_exist_is_found() -> None:
    import perdure

    assert "max_rounds" in parameters(perdure.call_model)
    assert "max_turns" not in parameters(perdure.call_model)
    assert re.fullmatch(r"\w+=", "max_rounds=")

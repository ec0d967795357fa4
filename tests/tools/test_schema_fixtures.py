"""The shapes of the public schema corpus, as Python spells them.

Each shape of the corpus has a Python counterpart below that gives the same schema, or a reason why
there is none. The corpus describes shapes as Go has them:

* *optional and nullable*: `NotRequired[T | None]`, or `T | None` in a function.
* *embedded*: inheritance; the fields stand in place.
* *shadowed*: a subclass that declares a field anew. That two embedded structs of equal depth tie
  and the field vanishes has no counterpart: Python's method resolution order always decides.
* *pointer to the argument struct*: every Python argument is a reference; it is the same function.
* *a type with its own text form*: `pathlib.Path`, which JSON has as a string.
* *a type with its own JSON form*: `msgspec.Raw`, or `Any`: its shape is unknown.
* *a supplied schema*: `RawTool`, or `extra_json_schema` for a single parameter.
* *a byte array of fixed size*: `list[int]`; Python's bytes have no fixed size in their type.
* *duration, uint, uintptr*: `int`; Python has one whole number. `timedelta` is text (ISO 8601).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest

from perdure.tools import RawTool, json_schema, tool
from perdure.wire.canonical import canonical_json


class Nested(TypedDict):
    name: str
    Tags: list[str]


Everything = TypedDict(  # noqa: UP013 - as a class, its members would shadow their types
    "Everything",
    {
        "str": str,
        "int": Annotated[int, "an integer"],
        "uint": int,
        "float": float,
        "bool": bool,
        "level": Literal["low", "medium", "high"],
        "count": NotRequired[Literal[1, 2, 3] | None],
        "when": dt.datetime,
        "raw": NotRequired[msgspec.Raw],
        "any": NotRequired[Any],
        "bytes": NotRequired[bytes],
        "list": list[Nested],
        "matrix": NotRequired[list[list[float]]],
        "nested": Nested,
        "pointer": NotRequired[Nested | None],
        "labels": NotRequired[dict[str, str]],
        "duration": NotRequired[int],
    },
)


@dataclasses.dataclass
class NestedClass:
    name: str
    Tags: list[str]


@dataclasses.dataclass
class Embedded(NestedClass):
    extra: str = ""


@dataclasses.dataclass
class Inner:
    Memo: str
    id: int


@dataclasses.dataclass
class Shadowed(Inner):
    id: Annotated[str, "outer wins"]  # type: ignore[assignment]


class Deep(msgspec.Struct):
    deep: bool


async def read_file(path: str, max_bytes: int = 0) -> str:
    """Read a file from disk.

    Args:
        path: Absolute path to read
        max_bytes: Stop after this many bytes
    """
    return f"{path} {max_bytes}"


def search(
    query: Annotated[str, "Search terms"],
    limit: Annotated[int | None, "Maximum results"],
    inner: Deep,
) -> str:
    return f"{query} {limit} {inner}"


def nullable(
    level: Literal["low", "high"] | None,
    raw: Any,
    when: dt.datetime | None,
    items: list[Nested],
) -> str:
    return f"{level} {raw} {when} {items}"


def text_form(key: Path) -> str:
    return str(key)


def json_form(value: msgspec.Raw, word: Literal[1, 2]) -> str:
    return f"{value!r} {word}"


def byte_arrays(slice: bytes, fixed: list[int]) -> str:  # noqa: A002 - the corpus' own name
    return f"{slice!r} {fixed}"


def no_args() -> str:
    return ""


SUPPLIED: dict[str, object] = {"type": "object", "properties": {"x": {"type": "string"}}}


def of_function(function: Callable[..., object], *, strict: bool = False) -> object:
    return tool(function, strict=strict).parameters


COUNTERPARTS: dict[str, Callable[[], object]] = {
    "read_file": lambda: of_function(read_file),
    "read_file_strict": lambda: of_function(read_file, strict=True),
    "pointer_to_struct": lambda: of_function(read_file),
    "everything": lambda: json_schema(Everything),
    "embedded": lambda: json_schema(Embedded),
    "shadowed": lambda: json_schema(Shadowed),
    "strict": lambda: of_function(search, strict=True),
    "strict_nullable": lambda: of_function(nullable, strict=True),
    "no_args": lambda: of_function(no_args),
    "no_args_strict": lambda: of_function(no_args, strict=True),
    "custom": lambda: RawTool(name="x", description="", parameters=SUPPLIED, fn=len).parameters,
    "text_marshaler": lambda: of_function(text_form),
    "json_marshaler": lambda: of_function(json_form),
    "byte_array": lambda: of_function(byte_arrays),
}

WITHOUT_A_FILE: dict[str, object] = {
    "no_args": {"type": "object", "properties": {}, "required": []},
    "no_args_strict": {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    },
}


def expected(shared: Path, name: str) -> object:
    if name in WITHOUT_A_FILE:
        return WITHOUT_A_FILE[name]
    same = {"read_file": "pointer_to_struct"}.get(name, name)
    return json.loads((shared / "fixtures/agenttool/schema" / f"{same}.json").read_bytes())


def test_every_shape_of_the_corpus_has_a_counterpart(shared: Path) -> None:
    manifest = json.loads((shared / "fixtures/agenttool/schema/manifest.json").read_bytes())
    assert sorted(one["name"] for one in manifest["fixtures"]) == sorted(COUNTERPARTS)


@pytest.mark.parametrize("name", sorted(COUNTERPARTS))
def test_a_counterpart_gives_the_schema_of_the_corpus(shared: Path, name: str) -> None:
    assert canonical_json(COUNTERPARTS[name]()) == canonical_json(expected(shared, name))


@pytest.mark.parametrize("name", sorted(COUNTERPARTS))
def test_members_stand_in_the_order_of_the_corpus(shared: Path, name: str) -> None:
    assert json.dumps(COUNTERPARTS[name]()) == json.dumps(expected(shared, name))


def test_a_parameter_can_supply_its_own_schema() -> None:
    @tool
    def query(
        filter: Annotated[object, msgspec.Meta(extra_json_schema=SUPPLIED)],  # noqa: A002
    ) -> str:
        return str(filter)

    assert query.parameters["properties"] == {"filter": SUPPLIED}

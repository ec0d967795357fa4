from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import pathlib
import uuid
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
)

import msgspec
import pydantic
import pytest
from typing_extensions import TypeAliasType

from perdure.errors import ConfigError
from perdure.tools import json_schema

T = TypeVar("T")

OrderId = NewType("OrderId", str)
Alias = TypeAliasType("Alias", list[int])


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    A = "a"
    B = 2


class Permission(enum.Flag):
    READ = 1


class Empty(enum.Enum):
    pass


@dataclasses.dataclass
class Point:
    """A point.

    Attributes:
        x: To the right.
        y (int): Upwards,
            where the sky is.
    """

    x: int
    y: int = 0


class Partial(TypedDict, total=False):
    a: Required[int]
    b: str


class Closed(TypedDict):
    a: int
    b: NotRequired[str]


class Pair(NamedTuple):
    left: int
    right: str = ""


class Record(msgspec.Struct, rename="camel"):
    first_name: str
    last_name: str | msgspec.UnsetType = msgspec.UNSET


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


@dataclasses.dataclass
class Box(Generic[T]):
    content: T
    spare: list[T] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Node:
    children: list[Node]


class Array(msgspec.Struct, array_like=True):
    x: int


@dataclasses.dataclass
class WithInit:
    x: int
    seed: dataclasses.InitVar[int]


class Model(pydantic.BaseModel):
    """A model."""

    name: str = pydantic.Field(description="The name", min_length=1)
    tags: list[str] = []


class Tree(pydantic.BaseModel):
    children: list[Tree]


class Free(pydantic.BaseModel):
    values: dict[str, int]


STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def record(required: list[str], **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": required}


SCHEMAS: list[tuple[object, object]] = [
    (Any, {}),
    (object, {}),
    (msgspec.Raw, {}),
    (None, {"type": "null"}),
    (bool, {"type": "boolean"}),
    (int, INTEGER),
    (float, {"type": "number"}),
    (decimal.Decimal, {"type": "number"}),
    (str, STRING),
    (bytes, STRING),
    (bytearray, STRING),
    (pathlib.Path, STRING),
    (dt.datetime, {"type": "string", "format": "date-time"}),
    (dt.date, {"type": "string", "format": "date"}),
    (dt.time, {"type": "string", "format": "time"}),
    (dt.timedelta, {"type": "string", "format": "duration"}),
    (Annotated[dt.datetime, msgspec.Meta(tz=False)], STRING),
    (uuid.UUID, {"type": "string", "format": "uuid"}),
    (OrderId, STRING),
    (Alias, {"type": "array", "items": INTEGER}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal[3, 1], {"type": "integer", "enum": [3, 1]}),
    (Literal[True], {"type": "boolean", "enum": [True]}),
    (Literal["auto", 1], {"type": ["string", "integer"], "enum": ["auto", 1]}),
    (Literal["a", None], {"type": "string", "enum": ["a"]}),  # noqa: PYI061 - both are known
    (Color, {"type": "string", "enum": ["red", "green"]}),
    (Level, {"type": "integer", "enum": [1, 2]}),
    (Mixed, {"type": ["string", "integer"], "enum": ["a", 2]}),
    (Optional[int], INTEGER),  # noqa: UP045 - both are known
    (int | None, INTEGER),
    (Union[int, str], {"anyOf": [INTEGER, STRING]}),  # noqa: UP007 - both are known
    (int | str | None, {"anyOf": [INTEGER, STRING]}),
    (list, {"type": "array", "items": {}}),
    (list[int], {"type": "array", "items": INTEGER}),
    (set[int], {"type": "array", "items": INTEGER}),
    (frozenset[str], {"type": "array", "items": STRING}),
    (tuple[int, ...], {"type": "array", "items": INTEGER}),
    (collections.abc.Sequence[int], {"type": "array", "items": INTEGER}),
    (tuple[int, int], {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2},
    ),
    (dict, {"type": "object", "additionalProperties": {}}),
    (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
    (collections.abc.Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
    (
        Point,
        record(
            ["x"],
            x={"type": "integer", "description": "To the right."},
            y={"type": "integer", "description": "Upwards, where the sky is."},
        ),
    ),
    (Partial, record(["a"], a=INTEGER, b=STRING)),
    (Closed, record(["a"], a=INTEGER, b=STRING)),
    (Pair, record(["left"], left=INTEGER, right=STRING)),
    (Record, record(["firstName"], firstName=STRING, lastName=STRING)),
    (
        Cat | Dog,
        {
            "anyOf": [
                record(["type", "lives"], type={"type": "string", "enum": ["cat"]}, lives=INTEGER),
                record(
                    ["type", "tricks"],
                    type={"type": "string", "enum": ["dog"]},
                    tricks={"type": "array", "items": STRING},
                ),
            ]
        },
    ),
    (Box[int], record(["content"], content=INTEGER, spare={"type": "array", "items": INTEGER})),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (
        Annotated[int, msgspec.Meta(ge=1, lt=9, description="some")],
        {"type": "integer", "description": "some", "minimum": 1, "exclusiveMaximum": 9},
    ),
    (
        Annotated[str, msgspec.Meta(min_length=1, max_length=3, pattern="^a")],
        {"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 3},
    ),
    (
        Annotated[list[int], msgspec.Meta(min_length=1)],
        {"type": "array", "items": INTEGER, "minItems": 1},
    ),
    (
        Annotated[int, msgspec.Meta(examples=[1, 2])],
        {"type": "integer", "examples": [1, 2]},
    ),
    (
        Model,
        record(
            ["name"],
            name={"type": "string", "description": "The name", "minLength": 1},
            tags={"type": "array", "items": STRING},
        )
        | {"description": "A model."},
    ),
    (
        Annotated[int, pydantic.Field(ge=1, description="some")],
        {"type": "integer", "description": "some", "minimum": 1},
    ),
]


@pytest.mark.parametrize(("annotation", "schema"), SCHEMAS, ids=lambda value: repr(value)[:60])
def test_a_type_has_its_schema(annotation: object, schema: object) -> None:
    assert json_schema(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int | None, {"type": ["integer", "null"]}),
        (Any, {}),
        (Literal["a"] | None, {"type": ["string", "null"], "enum": ["a", None]}),
        (Color | None, {"type": ["string", "null"], "enum": ["red", "green", None]}),
        (int | str | None, {"anyOf": [INTEGER, STRING, {"type": "null"}]}),
        (
            list[int | None],
            {"type": "array", "items": {"type": ["integer", "null"]}},
        ),
        (
            Partial,
            record(["a", "b"], a=INTEGER, b=STRING) | {"additionalProperties": False},
        ),
        (
            Model,
            record(
                ["name", "tags"],
                name={"type": "string", "description": "The name", "minLength": 1},
                tags={"type": "array", "items": STRING},
            )
            | {"description": "A model.", "additionalProperties": False},
        ),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_strict_mode_requires_every_member_and_names_null(
    annotation: object, schema: object
) -> None:
    assert json_schema(annotation, strict=True) == schema


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (fractions.Fraction, "cannot be expressed as a JSON schema"),
        (complex, "cannot be expressed as a JSON schema"),
        (collections.abc.Callable[[], int], "cannot be expressed as a JSON schema"),
        (dict[int, str], "the keys of an object are str, not <class 'int'>"),
        (Permission, "a Flag cannot be expressed"),
        (Empty, "is empty"),
        (T, "the type variable"),
        (tuple[()], "such a tuple cannot be expressed"),
        (Node, "the type 'Node' contains itself"),
        (Tree, "the type 'Tree' refers to itself"),
        (Array, "written as an array"),
        (WithInit, "cannot be made from its fields alone"),
        (Literal[b"x"], "cannot be in an enumeration"),
        (Annotated[bytes, msgspec.Meta(max_length=3)], "limits of bytes cannot be expressed"),
        (list[list[complex]], "[][]"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_type_without_a_schema_is_refused(annotation: object, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        json_schema(annotation)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "annotation", [dict[str, int], tuple[int, str], Free, list[dict[str, int]]]
)
def test_strict_mode_refuses_what_providers_do_not_enforce(annotation: object) -> None:
    json_schema(annotation)
    with pytest.raises(ConfigError):
        json_schema(annotation, strict=True)


def test_a_type_that_stands_twice_does_not_contain_itself() -> None:
    @dataclasses.dataclass
    class Line:
        start: Point
        end: Point

    schema = json_schema(Line)
    assert schema["required"] == ["start", "end"]


def test_a_schema_is_new_each_time() -> None:
    first = json_schema(Point)
    first["properties"] = {}
    assert json_schema(Point)["properties"] != {}

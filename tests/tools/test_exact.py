"""An exact schema says all that reading holds a value to, so either refuses what the other does."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure.errors import InvalidArguments
from perdure.tools import check_value
from perdure.tools.arguments import parse_value
from perdure.tools.schema import shape_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Inner:
    day: dt.date
    note: str | None = None
    sizes: tuple[int, str] = (1, "a")


class Loose(TypedDict, total=False):
    amount: Decimal
    key: uuid.UUID | None


class Pair(NamedTuple):
    left: int
    right: list[dt.timedelta] | None


class Told(msgspec.Struct, tag="told"):
    data: bytes


class Asked(msgspec.Struct, tag="asked"):
    at: dt.datetime


TYPES: list[Any] = [
    int,
    float,
    Decimal,
    bytes,
    dt.datetime,
    Annotated[dt.datetime, msgspec.Meta(tz=False)],
    dt.time,
    uuid.UUID,
    Colour | None,
    Literal["a", 1] | None,
    list[int | None],
    dict[int, dt.date],
    dict[Colour, Decimal | None],
    dict[dt.date, str],
    Inner,
    Inner | None,
    Loose,
    Pair,
    Told | Asked,
    Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)],
    Annotated[Decimal, msgspec.Meta(ge=0)],
]

TEXTS = st.sampled_from(
    [
        "2026-01-31",
        "2026-02-31",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00",
        "12:30:00",
        "25:00:00",
        "PT1H",
        "P",
        "19.99",
        "1_0",
        "nan",
        "AAAA",
        "AAA",
        "red",
        "told",
        "asked",
        "a",
        "",
        "1",
        "01",
        "-0",
        "abcdef01-1234-5678-1234-567812345678",
        "5\n",
        "AAAA\n",
    ]
)
NUMBERS = st.sampled_from([0, 1, -1, 2.0, 2.5, 10**20, True, False, None])
NAMES = TEXTS | st.sampled_from(["day", "note", "sizes", "amount", "key", "left", "right", "type"])
VALUES = st.recursive(
    TEXTS | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def reads(annotation: object, value: object) -> tuple[bool, bool]:
    """Whether the schema takes a value, and whether it is read."""
    shape = shape_of(annotation, exact=True)
    text = json.dumps(value)
    fits = read = True
    try:
        check_value(shape.schema(), parse_value(text), formats=True)
    except InvalidArguments:
        fits = False
    try:
        shape.read(parse_value(text), "")
    except InvalidArguments:
        read = False
    return fits, read


@given(st.sampled_from(TYPES), VALUES)
def test_the_exact_schema_and_the_reader_agree_on_any_value(
    annotation: object, value: object
) -> None:
    fits, read = reads(annotation, value)
    assert fits == read


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (str | None, {"type": ["string", "null"]}),
        (
            dict[int, str],
            {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "propertyNames": {"type": "string", "pattern": "^(0|-?[1-9][0-9]*)$"},
            },
        ),
        (
            Decimal,
            {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]},
        ),
        (
            Asked,
            {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": ["asked"]},
                    "at": {"type": "string", "format": "date-time"},
                },
                "required": ["type", "at"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_an_exact_schema_says_formats_names_and_nulls(annotation: object, schema: object) -> None:
    assert shape_of(annotation, exact=True).schema() == schema

"""Python types that stand for a single JSON value."""

from __future__ import annotations

import dataclasses
import datetime as dt
import pathlib
import re
import types
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from perdure.tools.shapes import (
    AnyShape,
    BooleanShape,
    ConstrainedShape,
    NullShape,
    NumberShape,
    RawShape,
    Schema,
    Shape,
    StringShape,
    UnionShape,
    from_base64,
)
from perdure.tools.values import Number

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", re.ASCII | re.IGNORECASE)
_DATE_TIME = re.compile(_DATE.pattern + "[Tt ]" + _TIME.pattern, re.ASCII | re.IGNORECASE)
_DECIMAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,9})?", re.ASCII)
_WHOLE = r"^(0|-?[1-9][0-9]*)$"
_UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def _read_date_time(text: str) -> dt.datetime:
    match = _DATE_TIME.fullmatch(text)
    if match is None or match[2] is None:
        raise ValueError(text)
    return dt.datetime.fromisoformat(text.upper())


def _read_local_date_time(text: str) -> dt.datetime:
    match = _DATE_TIME.fullmatch(text)
    if match is None or match[2] is not None:
        raise ValueError(text)
    return dt.datetime.fromisoformat(text.upper())


def _read_date(text: str) -> dt.date:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return dt.date.fromisoformat(text)


def _read_time(text: str) -> dt.time:
    if not _TIME.fullmatch(text):
        raise ValueError(text)
    return dt.time.fromisoformat(text.upper())


def _read_duration(text: str) -> dt.timedelta:
    return msgspec.convert(text, dt.timedelta)


def _read_uuid(text: str) -> uuid.UUID:
    if not _UUID.fullmatch(text):
        raise ValueError(text)
    return uuid.UUID(text)


def _read_decimal(text: str) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    return Decimal(text)


LOCAL_DATE_TIME = StringShape(
    _read_local_date_time, what="a date and time without a time zone, as 2026-01-31T12:00:00"
)

SINGLE: Mapping[object, Shape] = {
    Any: AnyShape(),
    object: AnyShape(),
    None: NullShape(),
    types.NoneType: NullShape(),
    bool: BooleanShape(),
    int: NumberShape("integer", Number.integer),
    float: NumberShape("number", Number.number),
    Decimal: NumberShape("number", Number.decimal),
    str: StringShape(),
    bytes: StringShape(from_base64, what="base64"),
    bytearray: StringShape(lambda text: bytearray(from_base64(text)), what="base64"),
    dt.datetime: StringShape(
        _read_date_time,
        "date-time",
        "a date and time with its time zone, as 2026-01-31T12:00:00Z",
    ),
    dt.date: StringShape(_read_date, "date", "a date, as 2026-01-31"),
    dt.time: StringShape(_read_time, "time", "a time, as 12:00:00"),
    dt.timedelta: StringShape(_read_duration, "duration", "an ISO 8601 duration, as PT1H30M"),
    uuid.UUID: StringShape(_read_uuid, "uuid", "a UUID"),
    pathlib.Path: StringShape(pathlib.Path, what="a path"),
    pathlib.PurePath: StringShape(pathlib.PurePath, what="a path"),
    pathlib.PurePosixPath: StringShape(pathlib.PurePosixPath, what="a path"),
    msgspec.Raw: RawShape(),
}


# --- where the schema says all -------------------------------------------------------------------

LOCAL_FORMAT = "date-time-local"
"""The format of a date and a time without a time zone, for which JSON Schema has none."""

EXACT_LOCAL_DATE_TIME = dataclasses.replace(LOCAL_DATE_TIME, format=LOCAL_FORMAT)

_DECIMAL_TEXT = StringShape(_read_decimal, "decimal", "a decimal number, as 19.99")

_BASE64: Schema = {"contentEncoding": "base64"}

EXACT: Mapping[object, Shape] = {
    bytes: ConstrainedShape(SINGLE[bytes], {}, _BASE64),
    bytearray: ConstrainedShape(SINGLE[bytearray], {}, _BASE64),
    Decimal: UnionShape((SINGLE[Decimal], _DECIMAL_TEXT)),
}
"""The types whose plain schema leaves open what is read."""

WHOLE_NUMBER_NAME = ConstrainedShape(
    StringShape(int, what="a whole number"), {"pattern": _WHOLE}, {}
)
"""The name of a member that stands for a whole number."""

FORMATS: Mapping[str, Shape] = {
    shape.format: shape
    for shape in (*SINGLE.values(), EXACT_LOCAL_DATE_TIME, _DECIMAL_TEXT)
    if isinstance(shape, StringShape) and shape.format
}
"""What is read of a text, by the format that its schema names."""


def check_format(rules: Mapping[str, object], value: str, at: str) -> None:
    """Hold a text to the format that its schema names, if it is known here.

    Raises:
        InvalidArguments: It is not of it.
    """
    shape = FORMATS.get(str(rules.get("format", "")))
    if shape is None and rules.get("contentEncoding") == "base64":
        shape = SINGLE[bytes]
    if shape is not None:
        shape.read(value, at)

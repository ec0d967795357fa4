"""JSON values as a model wrote them: numbers keep their spelling until somebody asks for a type.

*Number*: the text of a number. *Kind*: one of the words of JSON Schema for what a value is; a
number without a fractional part is an `integer`, however it is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, DecimalException
from json.encoder import encode_basestring_ascii
from typing import NamedTuple, TypeAlias, Union, cast

from perdure.errors import InvalidArguments

MAX_DIGITS = 4300
"""The longest whole number that Python reads from text by default."""

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", re.ASCII)
_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def quoted(text: str) -> str:
    """A string as JSON text, in ASCII."""
    return encode_basestring_ascii(text)


class Exact(NamedTuple):
    """A number as sign, digits without zeros at either end, and a power of ten."""

    sign: str
    digits: str
    exponent: int


class Number:
    """A JSON number, as it is spelled."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Number({self.text!r})"

    @property
    def exact(self) -> Exact | None:
        """Its value, the same for all spellings; None for an exponent beyond all use."""
        match = _NUMBER.fullmatch(self.text)
        if match is None or len(match[4] or "") > 18:
            return None
        fraction = match[3] or ""
        digits = (match[2] + fraction).lstrip("0")
        short = digits.rstrip("0")
        if not short:
            return Exact("", "0", 0)
        exponent = int(match[4] or 0) - len(fraction) + len(digits) - len(short)
        return Exact(match[1], short, exponent)

    @property
    def is_plain(self) -> bool:
        """Whether it is spelled without a fraction and an exponent."""
        return self.text.lstrip("-").isdigit()

    @property
    def is_integer(self) -> bool:
        """Whether it has no fractional part; 1.0 and 1e0 have none."""
        if self.is_plain:
            return True
        exact = self.exact
        return exact is not None and exact.exponent >= 0

    def integer(self) -> int | None:
        """The whole number, exactly; None if it has more digits than `MAX_DIGITS`."""
        if len(self.text) < MAX_DIGITS and self.is_plain:
            return int(self.text)
        exact = self.exact
        if exact is None or len(exact.digits) + exact.exponent > MAX_DIGITS:
            return None
        return int(exact.sign + exact.digits + "0" * exact.exponent)

    def number(self) -> int | float | None:
        """The nearest float; the exact int where a whole number has none; None if out of range."""
        nearest = float(self.text)
        if nearest in (float("inf"), float("-inf")):
            return self.integer() if self.is_plain else None
        if self.is_plain and len(self.text) > 15:
            whole = self.integer()
            return nearest if whole is None or nearest == whole else whole
        return nearest

    def decimal(self) -> Decimal | None:
        """The number exactly; None if its exponent is out of range."""
        try:
            return Decimal(self.text)
        except DecimalException:
            return None


Json: TypeAlias = Union[None, bool, Number, str, "list[Json]", "dict[str, Json]"]


def kind_of(value: Json) -> str:
    """The kind of a value: `null`, `boolean`, `integer`, `number`, `string`, `array`, `object`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case Number():
            return "integer" if value.is_integer else "number"
        case list():
            return "array"
        case dict():
            return "object"


def plain(value: Json, at: str) -> object:
    """A value as Python has it: whole numbers as int, others as float.

    Raises:
        InvalidArguments: A number is out of range.
    """
    if isinstance(value, Number):
        return in_range(_plain_number(value), at)
    if isinstance(value, list):
        return [plain(item, element(at, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: plain(item, member(at, name)) for name, item in value.items()}
    return value


def _plain_number(number: Number) -> int | float | None:
    return number.integer() if number.is_plain else number.number()


def in_range(value: int | float | Decimal | None, at: str) -> int | float | Decimal:
    """`value`, refused where it is None.

    Raises:
        InvalidArguments: It is None: Python has no such number.
    """
    if value is None:
        raise InvalidArguments("the number is out of range", path=at)
    return value


def json_of(value: object) -> Json:
    """The other way: a plain JSON value, as it stands in a schema, with its numbers as text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return Number(repr(value))
    if isinstance(value, list | tuple):
        return [json_of(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        return {str(n): json_of(item) for n, item in cast("dict[object, object]", value).items()}
    raise TypeError(f"{type(value).__name__!r} is not a JSON type")


def json_source(value: Json) -> str:
    """The value as JSON text, with its numbers as they were spelled."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case Number():
            return value.text
        case list():
            return "[" + ",".join([json_source(item) for item in value]) + "]"
        case dict():
            members = [f"{quoted(name)}:{json_source(item)}" for name, item in value.items()]
            return "{" + ",".join(members) + "}"


# --- paths: `items[2].name` -----------------------------------------------------------


def member(at: str, name: str) -> str:
    """The path of a member of the object at `at`."""
    if not _PLAIN_NAME.fullmatch(name):
        return f"{at}[{quoted(name)}]"
    return f"{at}.{name}" if at else name


def element(at: str, index: int) -> str:
    """The path of an element of the array at `at`."""
    return f"{at}[{index}]"

"""The keywords of JSON Schema that limit a single value, as draft 2020-12 defines them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from perdure.errors import InvalidArguments
from perdure.tools.values import MAX_DIGITS, Json, Number, quoted


def check_keywords(schema: Mapping[str, object], value: Json, at: str) -> None:
    """Hold a value to the limits in `schema`; keywords for other kinds of values do not matter.

    Raises:
        InvalidArguments: The value is beyond one.
    """
    if isinstance(value, Number):
        _check_number(schema, value, at)
    elif isinstance(value, str):
        _check_size(schema, ("minLength", "maxLength", "characters"), len(value), at)
        _check_pattern(schema, value, at)
    elif isinstance(value, list):
        _check_size(schema, ("minItems", "maxItems", "elements"), len(value), at)
    elif isinstance(value, dict):
        _check_size(schema, ("minProperties", "maxProperties", "members"), len(value), at)


_LIMITS: tuple[tuple[str, str, Callable[[Decimal, Decimal], bool]], ...] = (
    ("minimum", "at least", lambda number, limit: number >= limit),
    ("maximum", "at most", lambda number, limit: number <= limit),
    ("exclusiveMinimum", "greater than", lambda number, limit: number > limit),
    ("exclusiveMaximum", "less than", lambda number, limit: number < limit),
)


def _check_number(schema: Mapping[str, object], value: Number, at: str) -> None:
    number = value.decimal()
    for keyword, words, holds in _LIMITS:
        limit = schema.get(keyword)
        if not isinstance(limit, int | float) or isinstance(limit, bool):
            continue
        if number is None or not holds(number, Decimal(str(limit))):
            raise InvalidArguments(f"must be {words} {limit}", path=at)
    factor = schema.get("multipleOf")
    if isinstance(factor, int | float) and not _is_multiple(value, Number(repr(factor))):
        raise InvalidArguments(f"must be a multiple of {factor}", path=at)


def _is_multiple(value: Number, factor: Number) -> bool:
    left, right = value.exact, factor.exact
    if left is None or right is None or right.digits == "0":
        return False
    shift = left.exponent - right.exponent
    if left.digits == "0":
        return True
    if abs(shift) > MAX_DIGITS:
        return False
    return int(left.digits + "0" * shift) % int(right.digits + "0" * -shift) == 0


def _check_size(
    schema: Mapping[str, object], words: tuple[str, str, str], size: int, at: str
) -> None:
    least, most = schema.get(words[0]), schema.get(words[1])
    if isinstance(least, int) and size < least:
        raise InvalidArguments(f"must have at least {least} {words[2]}, has {size}", path=at)
    if isinstance(most, int) and size > most:
        raise InvalidArguments(f"must have at most {most} {words[2]}, has {size}", path=at)


def _check_pattern(schema: Mapping[str, object], value: str, at: str) -> None:
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return
    try:
        found = re.search(pattern, value)
    except re.error:  # it is a pattern of another language; whoever wrote it must check it
        return
    if found is None:
        raise InvalidArguments(f"must match the pattern {pattern}", path=at)


def unexpected(name: str, known: Sequence[str]) -> str:
    """What is said of a member that should not be there; names the one that was probably meant."""
    for right in known:
        if right.casefold() == name.casefold():
            return f"unexpected member; the name is {quoted(right)}, in exactly this case"
    return "unexpected member"

"""Canonical JSON: one spelling for one value, so that hashes agree.

*canonical*: RFC 8785. Members sorted by UTF-16 code units, numbers as ECMAScript writes
them, the fewest escapes, no white space.

*I-JSON*: what may be written so (RFC 7493): finite numbers, whole numbers that a double
holds or that are spelled as the nearest double is, no member twice, no lone surrogates.

The common case (no fractions, no long numbers) runs in C: what msgspec writes sorted is
canonical when `_plain` says so. Everything else takes the written-out way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from json.encoder import encode_basestring as _quote
from typing import NamedTuple, NoReturn, cast

import msgspec

from perdure.errors import NotIJson

_EXACT = 2**53
"""Up to here a double holds every whole number."""

_NOT_A_DOUBLE = "a number that no double holds"


def canonical_json(value: object) -> bytes:
    """Write a JSON value (None, bool, int, float, str, list, tuple, dict) canonically.

    Raises:
        NotIJson: The value holds what I-JSON does not; the path is a JSON pointer.
    """
    try:
        written = _SORTED.encode(value)
        # Equal to what it decodes to: NaN (written null), a key that is no string and
        # every type that JSON lacks differ, and take the way that names them.
        if _plain(written) and _WHOLE.decode(written) == value:
            return written
    except _FAST_PATH_GAVE_UP:
        pass
    return _canonical(value)


def canonicalize(source: bytes | str) -> bytes:
    """Rewrite JSON text canonically. Numbers are judged as they are spelled.

    Raises:
        NotIJson: The text is not JSON, or not I-JSON; the path is a JSON pointer.
    """
    try:
        raw = source.encode() if isinstance(source, str) else source
        written = _SORTED.encode(_WHOLE.decode(raw))
        # White space, a longer escape and a member given twice each make the source
        # longer, and nothing makes it shorter: of equal length means none of them.
        if len(written) == len(raw) and _plain(written):
            return written
    except _FAST_PATH_GAVE_UP:
        pass
    return _canonical(_parse(source))


def format_number(number: float) -> str:
    """A finite number as ECMAScript's `String(number)` writes it.

    Raises:
        NotIJson: The number is infinite or not a number.
    """
    if not math.isfinite(number):
        raise NotIJson(f"{number!r} is not a finite number")
    text = repr(number)
    if "e" in text:
        return _with_exponent(text)
    return "0" if number == 0 else text.removesuffix(".0")


def _with_exponent(text: str) -> str:
    # Python and ECMAScript agree on the digits and differ in when to use an exponent.
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.removeprefix("-").replace(".", "")
    point = int(exponent) + 1
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


# --- the way in C --------------------------------------------------------------


class _Fraction(ValueError):
    """The text has a number with a fraction or an exponent."""


def _no_fractions(text: str) -> NoReturn:
    raise _Fraction(text)


_SORTED = msgspec.json.Encoder(order="sorted")
_WHOLE = msgspec.json.Decoder(float_hook=_no_fractions)
_FAST_PATH_GAVE_UP = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 16


def _plain(written: bytes) -> bool:
    """Whether msgspec's sorted JSON of a value without fractions is canonical."""
    if _LONG_NUMBER in written.translate(_DIGITS_AS_ZERO):
        return False  # perhaps a whole number beyond 2**53
    if written.isascii():
        return True
    # msgspec sorts by code point. That differs from UTF-16 only where a name beyond
    # U+FFFF (leads F0 to F4) meets one at U+E000 to U+FFFF (leads EE and EF).
    private = b"\xee" in written or b"\xef" in written
    return not (private and any(bytes((lead,)) in written for lead in range(0xF0, 0xF5)))


# --- the written-out way ---------------------------------------------------------


class _Refused(Exception):
    """Something in the value is not I-JSON; `_faults` says what."""


class _Bad(NamedTuple):
    """Stands in a parsed value for what I-JSON refuses there."""

    reason: str
    below: str = ""


def _canonical(value: object) -> bytes:
    try:
        return _write(value).encode()
    except (_Refused, UnicodeEncodeError):
        path, reason = next(_faults(value, ""))
        raise NotIJson(reason, path=path) from None
    except RecursionError:
        raise NotIJson("nested too deeply") from None


def _write(value: object) -> str:
    match value:
        case str():
            return _quote(value)
        case dict():
            members = cast("dict[object, object]", value)
            return (
                "{" + ",".join([f"{_name(k)}:{_write(members[k])}" for k in _order(members)]) + "}"
            )
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number(value)
        case _Bad():
            raise _Refused
        case list() | tuple():
            elements = cast("Sequence[object]", value)
            return "[" + ",".join([_write(element) for element in elements]) + "]"
        case _:
            raise _Refused


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise _Refused
    return _quote(name)


def _order(names: Iterable[object]) -> list[object]:
    return sorted(names, key=_utf16)


def _utf16(name: object) -> bytes:
    if not isinstance(name, str):
        raise _Refused
    return name.encode("utf-16-be", "surrogatepass")


def _number(number: float) -> str:
    if isinstance(number, int) and -_EXACT <= number <= _EXACT:
        return str(int(number))
    if _double(number) is None:
        raise _Refused
    return format_number(float(number))


def _double(number: int | float | str) -> float | None:
    """The double that a number, or its text, stands for; None if I-JSON refuses it."""
    try:
        double = float(number)
    except OverflowError:
        return None
    if isinstance(number, float) or abs(double) < _EXACT:
        return double if math.isfinite(double) else None
    if not math.isfinite(double):
        return None
    exact = Decimal(number)
    same = exact in (Decimal(double), Decimal(format_number(double)))
    return double if same or exact != exact.to_integral_value() else None


def _faults(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Where a value is not I-JSON, and why, in its own order."""
    match value:
        case None | bool():
            return
        case _Bad():
            yield path + value.below, value.reason
        case str():
            if not _is_unicode(value):
                yield path, "a lone surrogate"
        case int() | float():
            if _double(value) is None:
                yield path, _NOT_A_DOUBLE
        case dict():
            yield from _faults_of_members(cast("dict[object, object]", value), path)
        case list() | tuple():
            for index, element in enumerate(cast("Sequence[object]", value)):
                yield from _faults(element, f"{path}/{index}")
        case _:
            yield path, f"{type(value).__name__!r} is not a JSON type"


def _faults_of_members(members: dict[object, object], path: str) -> Iterator[tuple[str, str]]:
    for name, member in members.items():
        if not isinstance(name, str):
            yield path, f"the member name {name!r} is not a string"
        elif not _is_unicode(name):
            yield path, f"a lone surrogate in the member name {name!r}"
        else:
            yield from _faults(member, path + _pointer(name))


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- reading -----------------------------------------------------------------------


def _parse(source: bytes | str) -> object:
    """JSON text as Python values, with a `_Bad` in the place of what I-JSON refuses."""
    try:
        return _READER.decode(source if isinstance(source, str) else source.decode())
    except UnicodeDecodeError as error:
        raise NotIJson(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotIJson(f"malformed JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise NotIJson("nested too deeply") from None


def _read_number(text: str) -> int | float | _Bad:
    double = _double(text)
    return _Bad(_NOT_A_DOUBLE) if double is None else double


def _read_constant(text: str) -> _Bad:
    return _Bad(f"{text} is not a number that JSON has")


def _read_object(pairs: list[tuple[str, object]]) -> object:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    return _Bad(f"the member {twice!r} stands twice", _pointer(twice))


_READER = json.JSONDecoder(
    object_pairs_hook=_read_object,
    parse_int=_read_number,
    parse_float=_read_number,
    parse_constant=_read_constant,
)

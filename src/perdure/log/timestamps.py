"""Timestamps: one spelling for one instant.

`YYYY-MM-DDTHH:MM:SS[.f]Z`, UTC, with a fraction of one to nine digits only if it is not zero and
without zeros at its end. A timestamp says when, never in which order.
"""

from __future__ import annotations

import datetime as dt
import functools
import re

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NANOSECONDS = 10**9

_ONE_SPELLING = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
    r"(?:\.\d{0,8}[1-9])?Z"
)
_RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))"
)


def timestamp(wall: int) -> str:
    """An instant, in nanoseconds since the Unix epoch, as text."""
    seconds, fraction = divmod(wall, _NANOSECONDS)
    digits = f"{fraction:09d}".rstrip("0")
    return f"{_second(seconds)}{'.' + digits if digits else ''}Z"


@functools.lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    """A whole second without its zone; the same one is asked for again and again."""
    return f"{_EPOCH + dt.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


def wall_of(text: str) -> int:
    """The instant of a timestamp in nanoseconds since the Unix epoch.

    Raises:
        ValueError: The text is no RFC 3339 timestamp.
    """
    moment, fraction = _read(text)
    return int((moment - _EPOCH).total_seconds()) * _NANOSECONDS + int(fraction[:9].ljust(9, "0"))


def is_timestamp(text: str) -> bool:
    """Whether the text is spelled as a timestamp is, and names a day that exists."""
    if _ONE_SPELLING.fullmatch(text) is None:
        return False
    if text[8:10] < "29":
        return True
    try:
        dt.date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


def respelled(text: str) -> str:
    """An RFC 3339 timestamp in the one spelling; digits beyond nanoseconds are cut.

    Raises:
        ValueError: The text is no RFC 3339 timestamp.
    """
    return _spell(*_read(text))


def _read(text: str) -> tuple[dt.datetime, str]:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no RFC 3339 timestamp")
    day, minute, second, fraction, zulu, sign, hours, minutes = found.groups()
    if second == "60":  # a leap second is the last of its minute
        second = "59"
    moment = dt.datetime.fromisoformat(f"{day}T{minute}:{second}+00:00")
    if not zulu:
        offset = dt.timedelta(hours=int(hours), minutes=int(minutes))
        moment -= offset if sign == "+" else -offset
    return moment, fraction or ""


def _spell(moment: dt.datetime, fraction: str) -> str:
    digits = fraction[:9].rstrip("0")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' + digits if digits else ''}Z"

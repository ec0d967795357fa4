"""Spans of time that a program gives, checked where they are defined."""

from __future__ import annotations

from perdure.errors import ConfigError

MOST_SECONDS = 10**9
"""Thirty years: who wants longer wants no limit."""


def check_seconds(name: str, given: object, *, zero: bool = False) -> None:
    """Refuse what is no span of time that a record and a timer can hold.

    Args:
        name: What it is of, for the error.
        given: The span.
        zero: Whether it may be none at all.

    Raises:
        ConfigError: It is no number, not positive, not finite, or longer than thirty years.
    """
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise ConfigError(f"{name} is a number of seconds, got {given!r}")
    if not (0 < given <= MOST_SECONDS or (zero and given == 0)):
        least = "0 or more" if zero else "positive"
        raise ConfigError(
            f"{name} must be {least} and at most {MOST_SECONDS:_} seconds, got {given!r}"
        )

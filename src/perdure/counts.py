"""Counts and rates that a program gives, checked where they are defined."""

from __future__ import annotations

import math

from perdure.errors import ConfigError


def check_count(name: str, given: object, *, least: int = 1) -> None:
    """Refuse what is no whole number, or too small a one.

    Args:
        name: What it counts, for the error.
        given: The count.
        least: The smallest that it may be.

    Raises:
        ConfigError: It is no such number; True and 3.0 are none.
    """
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {given!r}")


def check_rate(name: str, given: object) -> None:
    """Refuse what is no positive, finite number.

    Args:
        name: What it is the rate of, for the error.
        given: The number.

    Raises:
        ConfigError: It is no such number.
    """
    if (
        not isinstance(given, int | float)
        or isinstance(given, bool)
        or not math.isfinite(given)
        or given <= 0
    ):
        raise ConfigError(f"{name} must be a positive, finite number, got {given!r}")

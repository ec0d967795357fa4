"""What is given to steps and waits, checked before anything happens.

Each check names what it is about and what was given, and says what is taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import cast

from perdure.errors import ConfigError
from perdure.seconds import check_seconds

MAX_NAME = 200
"""How many characters the name of a step or a wait may have."""

RESERVED = "perdure:"
"""What no name of a step or a wait may begin with."""

_LATEST = 7_258_118_400 * 10**9
"""The year 2200, in nanoseconds since the Unix epoch; stores keep 64 bits."""


def check_name(name: object, what: str) -> None:
    """Refuse what cannot name a step or a wait.

    Raises:
        ConfigError: It is no text, empty, blank, too long, not printable, or reserved.
    """
    about = f"the name of {'an' if what[0] in 'aeiou' else 'a'} {what}"
    fits = isinstance(name, str) and 0 < len(name) <= MAX_NAME and bool(name.strip())
    if not fits or not isinstance(name, str) or not name.isprintable():
        raise ConfigError(f"{about} has 1 to {MAX_NAME} printable characters, not {name!r:.60}")
    if name.startswith(RESERVED):
        raise ConfigError(f"{about} does not begin with {RESERVED!r}, which is reserved: {name!r}")


def check_text(text: object, what: str) -> None:
    """Refuse what is no text that a record holds.

    Raises:
        ConfigError: It is none, or has half of a surrogate pair, which UTF-8 has no bytes for.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{what} is a text, got {text!r}")
    try:
        _ = text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} has half of a surrogate pair: {text!r}") from None


def check_texts(**given: object) -> None:
    """The same of several, by their names. Raises as `check_text`."""
    for name, text in given.items():
        check_text(text, name)


def nanoseconds(seconds: object, what: str) -> int:
    """A span of time, which may be none, in nanoseconds.

    Raises:
        ConfigError: It is none that a record and a timer can hold.
    """
    check_seconds(what, seconds, zero=True)
    return round(cast("float", seconds) * 1e9)


def check_instant(name: str, wall: object) -> None:
    """Refuse what is no time that a sleep can last until.

    Raises:
        ConfigError: It is no whole number of nanoseconds from 1970 to 2200.
    """
    fits = isinstance(wall, int) and not isinstance(wall, bool) and 0 <= wall <= _LATEST
    if not fits:
        raise ConfigError(
            f"a time is in whole nanoseconds since 1970, and from 1970 to 2200; sleep {name!r} got "
            f"{wall!r}; of a datetime with its zone that is int(when.timestamp()) * 10**9"
        )


def check_work(name: str, work: object) -> None:
    """Refuse what a step cannot call.

    Raises:
        ConfigError: It is no function, or wants arguments.
    """
    if isinstance(work, Coroutine):
        cast("Coroutine[object, object, object]", work).close()
        raise ConfigError(f"step {name!r} calls its function itself: hand over look, not look()")
    if not callable(work):
        raise ConfigError(f"step {name!r} needs a function to call, not {work!r}")
    if missing := _missing(work):
        raise ConfigError(
            f"step {name!r} calls its function without arguments, and {work!r} wants {missing!r}: "
            "hand over functools.partial(function, ...)"
        )


def _missing(work: Callable[..., object]) -> str:
    """The first argument that a function cannot be called without; empty if there is none."""
    code = getattr(work, "__code__", None)
    if code is not None and not code.co_argcount and not code.co_kwonlyargcount:
        return ""  # most are lambdas without any, and to ask `inspect` takes its time
    try:
        parameters = inspect.signature(work).parameters.values()
    except (TypeError, ValueError):  # what is not written in Python may not say
        return ""
    needed = (one for one in parameters if one.default is one.empty)
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return next((one.name for one in needed if one.kind not in free), "")

"""Bytes of an AWS event stream to frames, cut by botocore.

A *message* is what such a stream is made of: headers, a payload and checksums. Its frame is named
after the event it carries, or `exception NAME`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Protocol, cast

from perdure.errors import ConfigError, DecodeError, FrameTooLarge, WireError
from perdure.wire import Frame

_PRELUDE = 12  # the length, the headers' length, and their checksum


class _Message(Protocol):
    headers: Mapping[str, object]
    payload: bytes


class _Buffer(Protocol):
    def add_data(self, data: bytes) -> None: ...
    def __iter__(self) -> Iterator[_Message]: ...


def load(name: str) -> ModuleType:
    """A module of botocore.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return import_module(f"botocore.{name}")
    except ImportError as error:
        raise ConfigError(
            "Bedrock needs botocore; install it with: pip install 'perdure[bedrock]'"
        ) from error


@cache
def _make_buffer() -> Callable[[], _Buffer]:
    return cast("Callable[[], _Buffer]", load("eventstream").EventStreamBuffer)


@cache
def _faults() -> tuple[type[Exception], ...]:
    """What botocore raises for a message that is none."""
    own = cast("type[Exception]", load("eventstream").ParserError)
    return own, struct.error, ValueError, KeyError


class EventStreamParser:
    """Bytes in, frames out.

    Args:
        limit: The bytes of the largest message that is taken.

    Raises:
        ConfigError: botocore is not installed.
    """

    __slots__ = ("_failure", "_limit", "_new_buffer", "_tail")

    def __init__(self, limit: int) -> None:
        self._new_buffer = _make_buffer()
        self._limit = limit
        self._tail = b""
        self._failure: WireError | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete.

        Raises:
            DecodeError: A checksum is wrong, say. The frames before it are returned first; the
                error comes with the next call, and with every later one.
            FrameTooLarge: A message is beyond the limit. Likewise.
        """
        frames: list[Frame] = []
        if self._failure is None:
            data = self._tail + data if self._tail else data
            at = 0
            try:
                while (end := self._end_of_message(data, at)) <= len(data):
                    frames.append(self._frame(data[at:end]))
                    at = end
            except WireError as error:
                self._failure = error
            self._tail = data[at:]
        if self._failure is not None and not frames:
            raise self._failure
        return frames

    def end(self) -> list[Frame]:
        """A message that is cut is never whole."""
        return []

    def copy(self) -> EventStreamParser:
        """A parser in the same state."""
        twin = EventStreamParser(self._limit)
        twin._tail, twin._failure = self._tail, self._failure
        return twin

    def _end_of_message(self, data: bytes, at: int) -> int:
        """Where the message at a place ends; beyond the data if that is not known yet."""
        if len(data) - at < _PRELUDE:
            return len(data) + 1
        length = int.from_bytes(data[at : at + 4])
        if length > self._limit:
            raise FrameTooLarge(self._limit)
        return at + max(length, _PRELUDE)

    def _frame(self, message: bytes) -> Frame:
        buffer = self._new_buffer()
        buffer.add_data(message)
        try:
            for found in buffer:
                return Frame(_name(found.headers), found.payload)
        except _faults() as error:
            raise DecodeError(f"malformed message: {error}", source=message) from error
        raise DecodeError("malformed message: its length is wrong", source=message)


def _name(headers: Mapping[str, object]) -> str:
    if headers.get(":message-type") == "event":
        return str(headers.get(":event-type"))
    return f"exception {headers.get(':exception-type') or headers.get(':error-code')}"

"""JSON that is still being written, as far as it has come.

A *safe place* is one behind which the text makes a whole value when what is open there is closed:
after a bracket that opens, after a member or an element that is whole. A string is safe at every
character; a number only when something follows it, for until then it is another number.
"""

from __future__ import annotations

import re
from typing import TypeAlias, cast

import msgspec

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
"""A plain JSON value."""

_GAP = re.compile(r"[ \t\r\n]*")
_START = re.compile(r"\s*(```[\w-]*\s*)?")
_WORD = re.compile(r"[-+.\w]+")
_STRING_STOP = re.compile(r'["\\]')
_CLOSER = {"{": "}", "[": "]"}


class PartialJson:
    """Takes the text of one JSON object in pieces, and says what it is so far.

    Scanning costs each character once. White space and a code fence before the object are skipped.
    """

    __slots__ = ("_broken", "_in_key", "_in_string", "_open", "_place", "_safe", "_text", "size")

    def __init__(self) -> None:
        self._text = ""
        self._place = 0  # scanned up to here
        self._open = ""  # the brackets that are open
        self._in_string = False
        self._in_key = False
        self._safe: tuple[int, str] | None = None  # a place, and what is open there
        self._broken = False
        self.size = 0
        """How many characters have come."""

    def feed(self, piece: str) -> None:
        """Take more of the text."""
        self.size += len(piece)
        if self._broken:
            return
        self._text += piece
        if not self._open and self._safe is None and not self._start():
            return
        while self._step():
            pass

    def value(self) -> dict[str, JsonValue] | None:
        """The object as far as it has come; None before it has begun."""
        if self._safe is None:
            return None
        place, still_open = self._safe
        text = self._text[:place]
        if self._in_string and not self._in_key:
            text, still_open = self._text[: self._place] + '"', self._open
        closed = text + "".join(_CLOSER[bracket] for bracket in reversed(still_open))
        try:
            return cast("dict[str, JsonValue]", msgspec.json.decode(closed))
        except (msgspec.DecodeError, UnicodeEncodeError):  # half of a pair of surrogates, say
            return None

    def _start(self) -> bool:
        found = _START.match(self._text)
        place = found.end() if found else 0
        if place == len(self._text) or self._text[place:].startswith("`"):
            return False
        if self._text[place] != "{":
            self._broken = True
            return False
        self._text, self._place = self._text[place:], 0
        return True

    def _step(self) -> bool:
        """Take one token; False when there is no whole one, or nothing more to take."""
        if self._in_string:
            return self._string()
        found = _GAP.match(self._text, self._place)
        self._place = found.end() if found else self._place
        if self._place >= len(self._text) or (self._safe is not None and not self._open):
            return False
        character = self._text[self._place]
        if character in "{[":
            self._open += character
            self._in_key = character == "{"
            self._mark(self._place + 1)
        elif character in "}]":
            self._open = self._open[:-1]
            self._mark(self._place + 1)
        elif character == '"':
            self._in_string = True
            self._place += 1
        elif character == ",":
            self._in_key = self._open.endswith("{")
            self._place += 1
        elif character == ":":
            self._in_key = False
            self._place += 1
        else:
            return self._word()
        return True

    def _word(self) -> bool:
        """A number or a literal."""
        found = _WORD.match(self._text, self._place)
        if found is None:
            self._broken = True
            return False
        literal = found[0] in {"true", "false", "null"}
        if found.end() == len(self._text) and not literal:
            return False
        self._mark(found.end())
        return True

    def _string(self) -> bool:
        """More of a string; it stops before an escape that is not whole."""
        found = _STRING_STOP.search(self._text, self._place)
        if found is None:
            self._place = len(self._text)
            return False
        self._place = found.start()
        if found[0] == '"':
            self._in_string = False
            if self._in_key:
                self._place += 1
            else:
                self._mark(self._place + 1)
            return True
        size = self._escape()
        if self._place + size > len(self._text):
            return False
        self._place += size
        return True

    def _escape(self) -> int:
        """How long the escape at this place is; the first half of a pair has its second."""
        if self._text[self._place + 1 : self._place + 2] != "u":
            return 2
        return 12 if self._text[self._place + 2 : self._place + 4].lower() in _HIGH else 6

    def _mark(self, place: int) -> None:
        self._place = place
        self._safe = (place, self._open)


_HIGH = frozenset({"d8", "d9", "da", "db"})
"""How the first half of a surrogate pair begins."""

"""What a writer must change before a body can be hashed, and the record of it.

Bodies are I-JSON by value. What a model gave may not be: a lone surrogate and ill-formed UTF-8
become U+FFFD, a whole number that no double holds becomes the nearest one. Each change is noted in
`normalised`, with the source text (`was`) or, where that is no text, its bytes in base64 (`raw`),
so that nothing is lost. Numbers beyond every double and members that stand twice are refused.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from perdure.errors import NotIJson
from perdure.wire import canonicalize
from perdure.wire.canonical import format_number


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value that was changed."""

    at: str
    """A JSON pointer into the body."""
    was: str = ""
    """The JSON text it was."""
    raw: str = ""
    """In base64, the bytes it was, if they were no text."""


class Normalised(NamedTuple):
    """A body that can be hashed."""

    text: bytes
    """Canonical JSON."""
    changes: tuple[Change, ...]
    """Sorted by pointer, as the format asks."""


def normalise(source: bytes) -> Normalised:
    """JSON text as canonical JSON, and what had to change for that.

    Raises:
        NotIJson: It is not JSON, a member stands twice, or a number is beyond every double.
    """
    try:
        return Normalised(canonicalize(source), ())
    except NotIJson:
        pass
    changes: list[Change] = []
    try:
        text = b"".join(_Scan(source, changes).document())
    except RecursionError:
        raise NotIJson("nested too deeply") from None
    changes.sort(key=lambda change: change.at.encode("utf-16-be"))
    return Normalised(canonicalize(text), tuple(changes))


_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_SPACE = re.compile(rb"[ \t\n\r]*")
_WORD = re.compile(rb"true|false|null")


class _Scan:
    """Reads JSON text and gives it again, piece by piece, with every value normalised."""

    def __init__(self, source: bytes, changes: list[Change]) -> None:
        self._source = source
        self._at = 0
        self._changes = changes

    def document(self) -> Iterator[bytes]:
        yield from self._value("")
        self._skip()
        if self._at != len(self._source):
            raise self._malformed()

    def _value(self, path: str) -> Iterator[bytes]:
        self._skip()
        first = self._source[self._at : self._at + 1]
        if first == b"{":
            yield from self._object(path)
        elif first == b"[":
            yield from self._array(path)
        elif first == b'"':
            yield self._string(path)
        elif word := _WORD.match(self._source, self._at):
            yield self._take(word)
        else:
            yield self._number(path)

    def _object(self, path: str) -> Iterator[bytes]:
        start, before, names = self._at, len(self._changes), set[str]()
        pieces: list[bytes] = []
        changed = False
        while self._more(b"{" if not pieces else b",", b"}"):
            self._skip()
            token = self._token()
            name, spoiled = _text_of(token)
            changed = changed or spoiled
            if name in names:
                raise NotIJson(f"the member {name!r} stands twice", path=path)
            names.add(name)
            self._expect(b":")
            pieces += [b"," if pieces else b"{", msgspec.json.encode(name), b":"]
            pieces += self._value(f"{path}/{name.replace('~', '~0').replace('/', '~1')}")
        if changed:  # no pointer names a name: the object's own source tells everything below
            del self._changes[before:]
            self._note(path, self._source[start : self._at])
        yield b"".join([*(pieces or [b"{"]), b"}"])

    def _array(self, path: str) -> Iterator[bytes]:
        index = 0
        while self._more(b"[" if not index else b",", b"]"):
            yield b"," if index else b"["
            yield from self._value(f"{path}/{index}")
            index += 1
        yield b"]" if index else b"[]"

    def _more(self, opening: bytes, closing: bytes) -> bool:
        """Whether an element follows; steps over what opens it, or what closes the whole."""
        self._skip()
        if opening == b"," and self._source[self._at : self._at + 1] == closing:
            self._at += 1
            return False
        self._expect(opening)
        self._skip()
        if opening != b"," and self._source[self._at : self._at + 1] == closing:
            self._at += 1
            return False
        return True

    def _string(self, path: str) -> bytes:
        token = self._token()
        text, spoiled = _text_of(token)
        if spoiled:
            self._note(path, token)
        return msgspec.json.encode(text)

    def _token(self) -> bytes:
        found = _STRING.match(self._source, self._at)
        if found is None:
            raise self._malformed()
        return self._take(found)

    def _number(self, path: str) -> bytes:
        found = _NUMBER.match(self._source, self._at)
        if found is None:
            raise self._malformed()
        token = self._take(found)
        try:
            canonicalize(token)
        except NotIJson as error:
            number = float(token)
            if number in (float("inf"), float("-inf")):
                raise NotIJson(error.reason, path=path) from None
            self._note(path, token)
            return format_number(number).encode()
        return token

    def _note(self, path: str, source: bytes) -> None:
        try:
            self._changes.append(Change(at=path, was=source.decode()))
        except UnicodeDecodeError:
            self._changes.append(Change(at=path, raw=base64.b64encode(source).decode()))

    def _skip(self) -> None:
        found = _SPACE.match(self._source, self._at)
        if found is not None:
            self._at = found.end()

    def _expect(self, byte: bytes) -> None:
        self._skip()
        if self._source[self._at : self._at + 1] != byte:
            raise self._malformed()
        self._at += 1

    def _take(self, found: re.Match[bytes]) -> bytes:
        self._at = found.end()
        return found.group()

    def _malformed(self) -> NotIJson:
        return NotIJson(f"malformed JSON at byte {self._at}")


def _text_of(token: bytes) -> tuple[str, bool]:
    """The text of a string token, and whether it had to change."""
    spoiled = False
    try:
        source = token.decode()
    except UnicodeDecodeError:
        # One U+FFFD for each maximal ill-formed subpart: Python's rule is the format's.
        source, spoiled = token.decode("utf-8", "replace"), True
    try:
        text = str(json.loads(source))
    except json.JSONDecodeError as error:
        raise NotIJson(f"malformed JSON: {error.msg}") from None
    clean = _without_surrogates(text)
    return clean, spoiled or clean != text


_SURROGATE = re.compile("[\ud800-\udfff]")


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text

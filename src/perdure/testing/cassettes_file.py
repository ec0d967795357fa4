"""The file of a cassette: exchanges, one a line, and where two requests differ."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

import msgspec

from perdure.errors import BadBody, ConfigError, ModelError, ModelTimeout, Transport, Truncated
from perdure.wire.jsontext import member_path

_TYPES: Mapping[str, type[ModelError]] = {
    cls.__name__: cls for cls in (BadBody, Transport, Truncated)
}


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an exchange broke, in place of an answer or in its middle."""

    type: str
    message: str = ""
    phase: Literal["connect", "first_byte", "idle", "total", ""] = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, error: ModelError) -> Failure:
        """The failure that an error tells of."""
        if isinstance(error, ModelTimeout):
            return cls(type="ModelTimeout", phase=error.phase, seconds=error.seconds)
        known = next((name for name, one in _TYPES.items() if isinstance(error, one)), "Transport")
        return cls(type=known, message=str(error))

    def error(self) -> ModelError:
        """The error again."""
        if self.type == "ModelTimeout" and self.phase:
            return ModelTimeout(self.phase, self.seconds)
        return _TYPES.get(self.type, Transport)(self.message)


class Exchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request and its answer.

    Attributes:
        url: Where it went.
        request: Its body: the JSON as it was sent, a text if it is no JSON.
        status: The HTTP status; 0 if no answer came.
        headers: The headers of the answer that describe it.
        cuts: The sizes of the pieces in which its bytes came.
        body: Its bytes, if they are UTF-8.
        body_b64: Its bytes, if they are not.
        failure: How it broke.
        abandoned: Nobody read it to its end.
    """

    url: str
    request: msgspec.Raw
    status: int = 0
    headers: dict[str, str] = {}
    cuts: list[int] = []
    body: str = ""
    body_b64: str = ""
    failure: Failure | None = None
    abandoned: bool = False

    def pieces(self) -> list[bytes]:
        """The bytes of the answer, as they came."""
        whole = b64decode(self.body_b64) if self.body_b64 else self.body.encode()
        pieces: list[bytes] = []
        for size in self.cuts or [len(whole)]:
            pieces.append(whole[:size])
            whole = whole[size:]
        return [piece for piece in [*pieces, whole] if piece]

    def value(self) -> object:
        """The JSON value of the request."""
        return msgspec.json.decode(self.request)

    @property
    def path(self) -> str:
        """The path of the URL: servers move, what they are asked for does not."""
        return urlsplit(self.url).path


def read_cassette(path: str | Path) -> list[Exchange]:
    """The exchanges of a cassette.

    Raises:
        ConfigError: It is none.
    """
    exchanges: list[Exchange] = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        try:
            exchanges.append(msgspec.json.decode(line, type=Exchange))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ConfigError(f"cassette {str(path)!r}, line {number}: {error}") from error
    return exchanges


def write_cassette(path: str | Path, exchanges: Sequence[Exchange]) -> None:
    """Write a cassette; its directory is made if it is not there."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in exchanges)
    part = target.with_name(f"{target.name}.part")
    part.write_bytes(lines)
    part.replace(target)


# --- comparing --------------------------------------------------------------------------------


def value_of(text: str) -> object:
    """The JSON value of a request; its text if it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def difference(before: object, now: object, at: str = "") -> str | None:
    """The path of the first difference of two JSON values; None if there is none."""
    if before == now:
        return None
    for where, one, other in _members(before, now, at):
        found = difference(one, other, where)
        if found is not None:
            return found
    return at


_NOTHING = object()


def _members(before: object, now: object, at: str) -> list[tuple[str, object, object]]:
    """The members or elements of two values of one kind, each with its path."""
    if isinstance(before, dict) and isinstance(now, dict):
        old, new = cast("dict[str, object]", before), cast("dict[str, object]", now)
        return [
            (member_path(at, name), old.get(name, _NOTHING), new.get(name, _NOTHING))
            for name in {**old, **new}
        ]
    if isinstance(before, list) and isinstance(now, list):
        pairs = zip_longest(
            cast("list[object]", before), cast("list[object]", now), fillvalue=_NOTHING
        )
        return [(f"{at}[{index}]", one, other) for index, (one, other) in enumerate(pairs)]
    return []

"""The beginning of a request body: what the settings say, encoded once for a drive (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple, cast

from perdure.loop.transcript import Items
from perdure.models.mapping.losses import Loss, Lost
from perdure.wire import Request


class Head(NamedTuple):
    """Everything before the first item of a body.

    Attributes:
        settings: What it says.
        seen: What else it was made of.
        begin: Its bytes.
        losses: What of the settings was lost.
    """

    settings: Request
    seen: object
    begin: bytes
    losses: tuple[Loss, ...]


def head_of(
    items: Items,
    key: Hashable,
    settings: Request,
    make: Callable[[Lost], bytes],
    *,
    seen: object = None,
) -> Head:
    """The head for some settings, made anew only if they are others than the last time.

    Args:
        items: The input, whose list remembers the head.
        key: What tells this head from others there.
        settings: The settings.
        make: Makes the bytes, and notes what is lost.
        seen: What else the bytes depend on; it is compared.
    """
    held = cast("Head | None", items.memo.get(key))
    if held is not None and held.seen == seen:
        if held.settings is settings:
            return held
        if held.settings == settings:
            items.memo[key] = held = held._replace(settings=settings)
            return held
    lost = Lost()
    begin = make(lost)
    made = items.memo[key] = Head(settings, seen, begin, tuple(lost.all))
    return made


def opened(members: bytes, name: str) -> bytes:
    """An object that goes on with the elements of an array.

    Args:
        members: The object so far, whole.
        name: The member that the array is.
    """
    comma = b"," if len(members) > 2 else b""
    return b'%b%b"%b":[' % (members[:-1], comma, name.encode())

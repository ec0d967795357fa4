"""Request bodies as fragments: what was encoded once is never encoded again (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, cast

import msgspec

from perdure.loop.transcript import Items
from perdure.wire import Item

BLOCK_SIZE = 256 * 1024
"""About how many bytes go into one write."""


class Body(NamedTuple):
    """A request body: its bytes in pieces, and how many bytes they are together."""

    fragments: list[bytes]
    length: int

    def blocks(self, size: int = BLOCK_SIZE) -> Iterator[bytes]:
        """The bytes in blocks of about `size`, joined without a look at each fragment."""
        fragments = self.fragments
        each = self.length // len(fragments) if fragments else 0
        step = max(1, size // max(1, each))
        for start in range(0, len(fragments), step):
            yield b"".join(fragments[start : start + step])

    def value(self) -> object:
        """The body as Python values. For tests and for people."""
        return msgspec.json.decode(b"".join(self.fragments))


class ItemFragments:
    """The encoded items of one transcript list, each with the comma that goes before it.

    It lives in the `memo` that all snapshots of a list share: an item is encoded when a snapshot
    first shows it, and a shorter snapshot takes the beginning.
    """

    __slots__ = ("_ends", "_fragments")

    def __init__(self) -> None:
        self._fragments: list[bytes] = []
        self._ends: list[int] = [0]  # how many bytes the first n fragments are

    @classmethod
    def of(cls, items: Items, key: Hashable, encode: Callable[[Item], bytes]) -> ItemFragments:
        """The fragments of a snapshot's list, grown to hold all that the snapshot shows.

        Args:
            items: The snapshot.
            key: What tells this encoding from others in the memo.
            encode: The bytes of one item. It must always give the same.
        """
        memo = items.memo
        held = cast("ItemFragments | None", memo.get(key))
        if held is None:
            held = memo[key] = cls()
        held._grow(items, encode)
        return held

    def _grow(self, items: Items, encode: Callable[[Item], bytes]) -> None:
        fragments, ends = self._fragments, self._ends
        for item in items[len(fragments) :]:
            raw = encode(item)
            fragments.append(b"," + raw if fragments else raw)
            ends.append(ends[-1] + len(fragments[-1]))

    def between(self, head: bytes, count: int, tail: bytes) -> Body:
        """A body of `head`, the first `count` items, and `tail`."""
        length = len(head) + self._ends[count] + len(tail)
        return Body([head, *self._fragments[:count], tail], length)

"""Request bodies as fragments: what was encoded once is never encoded again (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

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

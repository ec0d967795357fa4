"""How many tokens a request may take, before anybody has counted them.

It is a bound to reserve by, made of sizes alone: the same request has the same estimate in every
process. Each item is measured once (DESIGN 7).
"""

from __future__ import annotations

import re
from typing import cast

from perdure.loop.model import ModelRequest
from perdure.loop.spend import Tokens
from perdure.loop.transcript import Items
from perdure.wire import Item, Request, encode

BYTES_A_TOKEN = 3
"""Of JSON. English text has more, so a count is seldom above its estimate."""

BYTES_AN_ATTACHMENT = 6_000
"""What an image or a file in the transcript counts for, however large: 2,000 tokens."""

DEFAULT_OUTPUT = 2_048
"""Tokens of output that a request without `max_tokens` reserves."""

_SIZES = "perdure.loop:sizes"
_ATTACHED = re.compile(rb'"data:[^"]*"|"(?:file_data|data)":"[^"]{1000,}"')


class Estimator:
    """Estimates the requests of one drive.

    Args:
        output: Tokens of output that a request reserves which sets no limit of its own.
    """

    __slots__ = ("_output", "_settings", "_size")

    def __init__(self, output: int = DEFAULT_OUTPUT) -> None:
        self._output = output
        self._settings: Request | None = None
        self._size = 0

    def of(self, request: ModelRequest) -> Tokens:
        """The tokens that a request may take."""
        size = self._of_settings(request.settings) + _of_items(request.input)
        limit = request.settings.max_output_tokens
        ins, outs = -(-size // BYTES_A_TOKEN), limit if isinstance(limit, int) else self._output
        return Tokens(input=ins, output=outs, total=ins + outs)

    def _of_settings(self, settings: Request) -> int:
        if settings is not self._settings:
            self._settings, self._size = settings, len(encode(settings))
        return self._size


def _of_items(items: Items) -> int:
    """The size of items: sums up to each, which all snapshots of one list share."""
    sums = cast("list[int]", items.memo.setdefault(_SIZES, [0]))
    for item in items[len(sums) - 1 :] if len(sums) <= len(items) else ():
        sums.append(sums[-1] + size_of(item))
    return sums[len(items)]


def size_of(item: Item) -> int:
    """How many bytes an item counts for."""
    text = encode(item)
    if b"data:" not in text and b'data"' not in text:
        return len(text)
    found = [len(one) for one in _ATTACHED.findall(text)]
    return len(text) - sum(found) + BYTES_AN_ATTACHMENT * len(found)


def tokens_in(size: int) -> int:
    """The tokens of output that were streamed as so many bytes."""
    return -(-size // BYTES_A_TOKEN)

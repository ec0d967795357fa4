"""A model that counts what it serves, and fails as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Literal

from msgspec.structs import replace

from perdure.errors import ServerFailed, Truncated
from perdure.loop import ModelRequest
from perdure.testing import ScriptedModel
from perdure.testing.scripted import Script
from perdure.wire import ABSENT, ResponseCompleted, StreamEvent, Usage

Fate = Literal["ok", "refused", "lost", "cut", "silent", "absurd", "negative"]
"""`refused`: the server says 500. `lost`: the connection ends before the answer. `cut`: within it.
`silent`: the answer comes without a usage. `absurd`, `negative`: with one that cannot be."""

INPUT, OUTPUT = 100, 10


class Counting:
    """A model that answers from a script and counts the tokens that it served.

    Attributes:
        requests: How many requests came.
        told: The tokens of the answers whose usage it told.
        untold: How many of the others took something.
    """

    def __init__(
        self,
        script: Script,
        fates: Callable[[], Fate] = lambda: "ok",
        *,
        usage: tuple[int, int] = (INPUT, OUTPUT),
    ) -> None:
        self._model = ScriptedModel(script)
        self._fates = fates
        self._usage = usage
        self.requests = 0
        self.told = 0
        self.untold = 0
        self.open = 0
        self.most = 0
        """How many requests it served at once at most."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        fate = self._fates()
        self.requests += 1
        self.untold += fate not in {"ok", "refused"}
        if fate == "refused":
            raise ServerFailed("it failed", status=500)
        if fate == "lost":
            raise Truncated
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await asyncio.sleep(0)
            began = False
            async for event in self._model.stream(request):
                if fate == "cut" and began:
                    raise Truncated
                began = began or event.type == "response.output_item.added"
                yield self._counted(event, fate)
        finally:
            self.open -= 1

    def _counted(self, event: StreamEvent, fate: Fate) -> StreamEvent:
        if not isinstance(event, ResponseCompleted):
            return event
        ins, outs = self._usage
        usage = Usage(input_tokens=ins, output_tokens=outs, total_tokens=ins + outs)
        if fate == "ok":
            self.told += ins + outs
        elif fate == "absurd":
            usage = replace(usage, output_tokens=10**12)
        elif fate == "negative":
            usage = replace(usage, input_tokens=-5)
        given = ABSENT if fate == "silent" else usage
        return replace(event, response=replace(event.response, usage=given))


def in_turn(*fates: Fate) -> Callable[[], Fate]:
    """Fates in their order, and then `ok`."""
    left: Iterator[Fate] = iter(fates)

    def draw() -> Fate:
        for fate in left:
            return fate
        return "ok"

    return draw

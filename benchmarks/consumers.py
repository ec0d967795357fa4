"""Many consumers of one `call_model`: that they see the same, and what they cost.

Twenty consumers of mixed speed, who join before, during and after a run of 20,000 deltas, must see
the same sequence up to joined deltas, and what is held must grow with the content and not with the
number of deltas. A run that twenty idle consumers look at must cost at most 1.5 times one that a
single consumer looks at.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable

from benchmarks.table import Table
from perdure import call_model
from perdure.compose import FullEvent, ModelResult
from perdure.loop import ModelRequest
from perdure.testing import ScriptedModel
from perdure.wire import OutputTextDelta, StreamEvent

DELTAS = 20_000
CONSUMERS = 20
REPEATS = 4
PIECE = 8
"""How many deltas come in one piece of the network, between two turns of the event loop."""

WORDS = "word " * DELTAS
BOUND = 1.5
HELD_BOUND = 8 * 1024 * 1024
"""Bytes that a run may hold at its end beyond what its one text takes."""


class Network:
    """A model whose deltas come piece by piece, as from a network."""

    def __init__(self) -> None:
        self._events: list[StreamEvent] = []

    async def prepare(self) -> None:
        """Make the events once, so that runs cost what the runtime costs."""
        request = ModelRequest(settings=_settings(), input=_input())
        self._events = [e async for e in ScriptedModel([WORDS]).stream(request)]

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        del request
        for number, event in enumerate(self._events):
            if number % PIECE == 0:
                await asyncio.sleep(0)
            yield event


def _settings() -> object:
    from perdure.wire import Request

    return Request()


def _input() -> object:
    from perdure.loop import Items
    from perdure.wire import user

    return Items.of([user("go")])


# --- the same sequence --------------------------------------------------------------------


def joined(events: list[FullEvent]) -> list[object]:
    """The events with neighbouring deltas of one text as one."""
    told: list[object] = []
    text = ""
    for event in events:
        if isinstance(event, OutputTextDelta):
            text += event.delta
            continue
        if text:
            told.append(text)
            text = ""
        told.append(event)
    return told


async def consume(result: ModelResult, pace: int, join: int) -> list[FullEvent]:
    """What a consumer sees that joins after `join` turns of the loop, and pauses as often."""
    for _ in range(join):
        await asyncio.sleep(0)
    seen: list[FullEvent] = []
    async for event in result.full_responses_stream():
        seen.append(event)
        if pace and len(seen) % pace == 0:
            await asyncio.sleep(0)
    return seen


async def same(network: Network) -> tuple[int, int, int]:
    """Check twenty consumers; the events that the first, the slowest and the last saw."""
    result = call_model(network, "go")
    turns = DELTAS // PIECE
    paces = [0, 1, 2, 50, 1000]
    during = [
        asyncio.create_task(consume(result, paces[n % 5], n * turns // CONSUMERS))
        for n in range(CONSUMERS - 5)
    ]
    await result.text()
    seen = [await one for one in during]
    seen += [await consume(result, pace, 0) for pace in paces]
    first = joined(seen[0])
    assert all(joined(one) == first for one in seen)
    assert WORDS.strip() in {one for one in first if isinstance(one, str)} or WORDS in first
    return len(seen[0]), len(seen[1]), len(seen[-1])


async def held(network: Network) -> float:
    """Bytes that a run holds at its end, beside the model's own events."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    result = call_model(network, "go")
    await result.text()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result is not None
    return after - before


# --- what idle consumers cost ---------------------------------------------------------------

Idle = Callable[[ModelResult], AsyncIterator[object]]


async def waits(stream: AsyncIterator[object]) -> None:
    """A consumer that waits for what does not come."""
    async for _ in stream:
        pass


async def cost(network: Network, idle: int, stream: Idle) -> float:
    """The least CPU seconds of a run that one consumer reads and others wait beside."""
    best = float("inf")
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        result = call_model(network, "go")
        others = [asyncio.create_task(waits(stream(result))) for _ in range(idle)]
        async for _ in result.text_stream():
            pass
        for one in others:
            await one
        best = min(best, time.process_time() - start)
    return best


async def unread(network: Network, idle: int) -> float:
    """The same with consumers that have begun and read no more."""
    best = float("inf")
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        result = call_model(network, "go")
        streams = [result.full_responses_stream() for _ in range(idle)]
        for one in streams:
            await anext(one)
        async for _ in result.text_stream():
            pass
        best = min(best, time.process_time() - start)
    return best


IDLE: dict[str, Idle] = {
    "context updates": lambda result: result.context_updates(),
    "tool calls": lambda result: result.tool_calls_stream(),
    "reasoning": lambda result: result.reasoning_stream(),
    "tools": lambda result: result.tool_stream(),
    "new messages": lambda result: result.new_messages_stream(),
}


async def main() -> None:
    """Run them, print the tables, and fail where a bound is missed."""
    network = Network()
    await network.prepare()
    first, slow, late = await same(network)
    print(f"{CONSUMERS} consumers saw the same {DELTAS:,} deltas, in {first:,} events")
    print(f"(the first), {slow:,} (one of the slow) and {late:,} (one that came after the end)\n")

    bytes_held = await held(network)
    print(f"held at the end: {bytes_held / 1024:,.0f} KiB for a text of {len(WORDS) // 1024} KiB")
    print(f"bound: {HELD_BOUND // 1024:,} KiB\n")

    table = Table("CPU of a run, milliseconds", "idle consumers", "1", str(CONSUMERS), "ratio")
    ratios: list[float] = []
    for name, stream in IDLE.items():
        one, many = await cost(network, 1, stream), await cost(network, CONSUMERS, stream)
        ratios.append(many / one)
        table.row(name, one * 1e3, many * 1e3, many / one)
    one, many = await unread(network, 1), await unread(network, CONSUMERS)
    ratios.append(many / one)
    table.row("that read no more", one * 1e3, many * 1e3, many / one)
    table.show()
    print(f"worst: {max(ratios):.2f}; bound: {BOUND}")
    if bytes_held > HELD_BOUND or max(ratios) > BOUND:
        sys.exit("a bound was missed")


if __name__ == "__main__":
    asyncio.run(main())

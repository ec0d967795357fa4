"""The loop: CPU per turn as the transcript grows, streams, and wide batches.

Everything runs in one process with the scripted model, so the model's own work is in every figure;
the bare loop's figure shows how much that is.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

from benchmarks.bare import run_bare
from benchmarks.table import Table
from perdure import Agent, tool
from perdure.loop import Event
from perdure.testing import ScriptedModel, Turn, call, text as say, turn

REPEATS = 5


@tool(effect="none")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script(turns: int) -> Callable[[int], Turn]:
    """A model that calls `add` in every turn but the last."""
    return lambda index: call("add", {"a": index, "b": 1}) if index < turns - 1 else say("done")


async def cpu(work: Callable[[], Awaitable[object]]) -> float:
    """The least CPU seconds of a few repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        await work()
        best = min(best, time.process_time() - start)
    return best


async def per_turn(turns: int, *, subscriber: bool = False, streamed: bool = False) -> float:
    """Microseconds of CPU a turn."""

    async def heard(event: Event) -> None:
        pass

    async def once() -> None:
        agent = Agent(ScriptedModel(script(turns)), tools=[add], max_turns=None)
        async with agent.session() as chat:
            if subscriber:
                chat.subscribe(heard)
            if not streamed:
                await chat.send("go")
                return
            async with chat.stream("go") as stream:
                async for _ in stream.text():
                    pass

    return await cpu(once) / turns * 1e6


async def per_turn_bare(turns: int) -> float:
    """Microseconds of CPU a turn of the bare loop."""

    async def once() -> None:
        await run_bare(ScriptedModel(script(turns)), "go", {"add": add})

    return await cpu(once) / turns * 1e6


async def deltas(count: int) -> tuple[float, float]:
    """Microseconds of CPU a delta: of the model alone, and through `stream`."""
    words = "word " * count
    model = ScriptedModel([words])

    async def bare() -> None:
        await run_bare(model, "go", {})

    async def streamed() -> None:
        async with Agent(model).stream("go") as stream:
            async for _ in stream.text():
                pass

    return await cpu(bare) / count * 1e6, await cpu(streamed) / count * 1e6


async def wide(count: int) -> tuple[float, float]:
    """Milliseconds of CPU for a batch of tools: bare, one after the other, and perdure's."""
    turns = [turn(*(call("add", {"a": n, "b": 1}) for n in range(count))), "done"]

    async def bare() -> None:
        await run_bare(ScriptedModel(turns), "go", {"add": add})

    async def ours() -> None:
        await Agent(ScriptedModel(turns), tools=[add]).run("go")

    return await cpu(bare) * 1e3, await cpu(ours) * 1e3


async def main() -> None:
    """Run them and print the tables."""
    table = Table("CPU a turn, microseconds", "turns", "bare", "perdure", "subscribed", "streamed")
    figures: dict[int, list[float]] = {}
    for turns in (1, 10, 50, 200, 1000):
        figures[turns] = [
            await per_turn_bare(turns),
            await per_turn(turns),
            await per_turn(turns, subscriber=True),
            await per_turn(turns, streamed=True),
        ]
        table.row(turns, *figures[turns])
    table.show()
    ratios = [late / early for early, late in zip(figures[10], figures[1000], strict=True)]
    print("1,000 turns to 10: " + ", ".join(f"{ratio:.2f}" for ratio in ratios))
    print("bound: 1.30 for perdure, with a subscriber and without\n")

    table = Table("CPU a delta, microseconds", "deltas", "bare", "stream")
    for count in (2000, 20_000):
        table.row(count, *await deltas(count))
    table.show()

    table = Table("a batch, milliseconds of CPU", "tools", "bare", "perdure")
    table.row(100, *await wide(100))
    table.show()


if __name__ == "__main__":
    asyncio.run(main())

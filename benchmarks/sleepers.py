"""Sleepers: many runs asleep on one SQLite file, what they cost, and how fast they wake.

Each run is an agent's: the model asks for a tool, the tool sleeps, and when it has slept the model
answers. Three things are measured and held to a limit:

* memory: a fresh process that opens the file and looks for what is due, beside one that does so on
  an empty file; and what the process that drove all of them to sleep grew by since the first
  quarter slept. Runs that sleep are in no process, so neither is more than noise and the caches of
  the file.
* rate: recoveries that wake all of them, beside *plain drives*, runs of one agent like theirs whose
  tool does not sleep, so many at once as a recovery drives. Both are of this very process, turn and
  turn about, so that what else the machine does meets both; the first drives of a process count for
  neither.
* order: the place at which each entered its tool, beside its place in the order of the due times.
  Those that are driven at once may overtake each other, and no others.

`python -m benchmarks.sleepers [--runs N]`
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import Table
from perdure import Agent, recover, sleep, tool
from perdure.durable import DEFAULT_CONCURRENCY
from perdure.stores.sqlite import SqliteStore
from perdure.testing import FakeClock, ScriptedModel, call

RUNS = 20_000
ROUNDS = 5
"""How often a part of them wakes, with plain drives before and behind it."""

PLAIN = 400
"""Plain drives of a round."""

WARM = 100
"""Drives before anything is measured."""

FILLING = 64
"""How many fall asleep at once."""

STRIDE = 7919
"""A prime: the runs are due in an order that is not that of their making."""

LEAST_RATE = 0.5
"""Of the rate of plain drives."""

MOST_MEMORY = 4.0
"""MiB that a fresh process may take beside one of an empty file."""

MOST_GROWN = 16.0
"""MiB that the process may grow by in which the last 15,000 fell asleep: about 1 KiB for each."""


class Bench:
    """The agent, and where its runs are."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.store = SqliteStore(path)
        self.woken: list[int] = []
        """The due times, in seconds, in the order in which the tools went on."""

    def agent(self, seconds: int) -> Agent:
        """Its tool sleeps for so long; not at all for 0."""

        @tool(effect="idempotent")
        async def rest(seconds: int) -> str:
            """Rest."""
            if seconds:
                await sleep("night", seconds)
                self.woken.append(seconds)
            return "rested"

        model = ScriptedModel([call("rest", {"seconds": seconds}), "Done."])
        return Agent(model, tools=[rest], store=self.store, clock=self.clock)


async def at_once(count: int, most: int, work: Callable[[int], Awaitable[object]]) -> float:
    """Do work so many times; how often a second."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await work(number)

    gc.collect()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(most):
            group.create_task(some())
    return count / (time.perf_counter() - began)


async def plain(bench: Bench, name: str, count: int = PLAIN) -> float:
    """Plain drives a second."""
    agent = bench.agent(0)  # one for all of them, as a recovery has

    async def drive(number: int) -> None:
        result = await agent.run("Go.", run_id=f"{name}-{number}")
        assert result.status == "done"

    return await at_once(count, DEFAULT_CONCURRENCY, drive)


async def fall_asleep(bench: Bench, runs: int, part: range) -> float:
    """A part of the runs that falls asleep, a second; each is due at a time of its own."""

    async def drive(place: int) -> None:
        number = part[place]
        seconds = 3600 + number * STRIDE % runs
        result = await bench.agent(seconds).run("Go.", run_id=f"sleeper-{number}")
        assert result.status == "suspended"

    return await at_once(len(part), FILLING, drive)


async def wake(bench: Bench, seconds: float, runs: int) -> float:
    """Runs that wake a second, of those that are due when some seconds have passed."""
    await bench.clock.advance(seconds)
    gc.collect()
    began = time.perf_counter()
    found = await recover(bench.agent(1), store=bench.store)
    taken = time.perf_counter() - began
    assert len(found) == runs
    assert {one.status for one in found} == {"done"}
    return runs / taken


class Rates(NamedTuple):
    """What was measured in turn."""

    plain: list[float]
    """One more than the other."""
    woken: list[float]

    @property
    def beside(self) -> list[float]:
        """Of each round, the rate of waking beside the plain drives around it."""
        pairs = zip(self.plain, self.plain[1:], strict=False)
        return [
            woken / statistics.fmean(pair) for woken, pair in zip(self.woken, pairs, strict=True)
        ]


async def in_turn(bench: Bench, runs: int) -> Rates:
    """Plain drives, then a part of the runs that wakes, and so on."""
    rates = Rates([await plain(bench, "plain-0")], [])
    await bench.clock.advance(3599.5)  # half a second before the first is due
    for number in range(ROUNDS):
        part = (runs * (number + 1)) // ROUNDS - (runs * number) // ROUNDS
        rates.woken.append(await wake(bench, part, part))
        rates.plain.append(await plain(bench, f"plain-{number + 1}"))
    return rates


async def look(path: Path) -> None:
    """Look once for what is due, and tell what this process takes, in MiB."""
    bench = Bench(path)
    found = await recover(bench.agent(1), store=bench.store)
    assert not found
    print(resident())
    await bench.store.close()


def resident() -> float:
    """The memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def memory_of(path: Path) -> float:
    """What a fresh process takes that looks for what is due, the least of some."""
    command = [sys.executable, "-m", "benchmarks.sleepers", "--look", str(path)]
    return min(float(subprocess.check_output(command, text=True)) for _ in range(3))


def displaced(woken: list[int]) -> int:
    """By how many places the worst one went on too early or too late."""
    rank = {seconds: place for place, seconds in enumerate(sorted(woken))}
    return max(abs(rank[seconds] - place) for place, seconds in enumerate(woken))


async def measured(directory: Path, runs: int) -> int:
    """Print the figures. Returns 1 if one is over its limit."""
    path = directory / "runs.db"
    bench = Bench(path)
    await plain(bench, "warm", WARM)
    await fall_asleep(bench, runs, range(runs // 4))
    gc.collect()
    before = resident()
    asleep = await fall_asleep(bench, runs, range(runs // 4, runs))
    gc.collect()
    grown = resident() - before
    empty, full = memory_of(directory / "empty.db"), memory_of(path)
    rates = await in_turn(bench, runs)
    await bench.store.close()
    beside = statistics.median(rates.beside)
    worst = displaced(bench.woken)
    table = Table(f"{runs:,} runs asleep on one SQLite file", "", "figure")
    table.row("fall asleep a second", asleep)
    table.row("this process grew meanwhile by, MiB", grown)
    table.row("a fresh process, an empty file, MiB", empty)
    table.row("a fresh process, all asleep, MiB", full)
    table.row("plain drives a second", statistics.median(rates.plain))
    table.row("wake a second", statistics.median(rates.woken))
    table.row("waking beside plain drives, median", beside)
    table.row("the same, the worst round", min(rates.beside))
    table.row("places out of order, at most", float(worst))
    table.show()
    good = {
        f"at least {LEAST_RATE:g} of plain drives": beside >= LEAST_RATE,
        f"at most {MOST_MEMORY:g} MiB beside an empty file": full - empty <= MOST_MEMORY,
        f"at most {MOST_GROWN:g} MiB where they fell asleep": grown <= MOST_GROWN,
        f"in the order of their times, but for {DEFAULT_CONCURRENCY} at once": (
            worst < 2 * DEFAULT_CONCURRENCY
        ),
    }
    for what, holds in good.items():
        print(f"  {what}: {'yes' if holds else 'NO'}")
    return 0 if all(good.values()) else 1


def main() -> int:
    """Measure, or be a process that is measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--look", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.look is not None:
        asyncio.run(look(options.look))
        return 0
    with tempfile.TemporaryDirectory() as name:
        return asyncio.run(measured(Path(name), options.runs))


if __name__ == "__main__":
    sys.exit(main())

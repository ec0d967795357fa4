"""A cancel whose process dies at any of its writes, of a run whose process died at some of its own.

Whoever asks for the run then finishes what was begun: a stop that was put cancels the run, and one
that was not leaves it as it is. Nothing with an effect begins once the cancel has returned.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from perdure import Runs
from perdure.durable import find_run, read_run
from perdure.log.store import Lease
from perdure.stores.memory import MemoryStore
from perdure.testing.chaos import BEFORE_AND_AFTER
from perdure.testing.chaos_ledger import EffectLedger
from perdure.testing.chaos_life import Life, Target, live
from perdure.testing.chaos_simulated import Ended, simulate
from perdure.testing.chaos_store import Fault, Faults, faulted
from tests.chaos import agents, working

RUN = "r"


@dataclasses.dataclass(kw_only=True)
class Scene:
    """A run, and what its processes and those of its operator live on."""

    agent: Target
    ledger: EffectLedger
    store: MemoryStore = dataclasses.field(default_factory=MemoryStore)
    leases: list[Lease] = dataclasses.field(default_factory=list[Lease])
    lives: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def drive(self, fault: Fault | None) -> Ended:
        """A process that drives, answers what waits, and maybe dies."""

        async def work(faults: Faults) -> str:
            life = Life(
                run=RUN,
                input="Go.",
                number=next(self.lives),
                ledger=self.ledger,
                faults=faults,
                answers=working.ANSWERS,
            )
            own = faulted(self.store, faults, on_lease=self.leases.append)
            return await live(self.agent, own, life)

        return simulate(work, fault, patience=30)

    def cancel(self, fault: Fault | None) -> Ended:
        """An operator who cancels, and whose process maybe dies."""

        async def work(faults: Faults) -> None:
            await Runs(faulted(self.store, faults, on_lease=self.leases.append)).cancel(RUN)

        return simulate(work, fault, patience=30)

    async def lapse(self) -> None:
        for lease in self.leases:
            await self.store.release(lease)
        self.leases.clear()

    def entered(self) -> list[str]:
        """The calls and the steps that act once and were entered."""
        return [
            line.call_id
            for line in self.ledger.lines(RUN)
            if line.phase == "entered" and line.effect == "once"
        ]

    async def status(self) -> str:
        return (await Runs(self.store).get(RUN)).status

    async def stops(self) -> int:
        """How many stops were put, taken up or not."""
        session = await read_run(self.store, await find_run(self.store, RUN))
        taken = sum(entry.message == "cancel" for entry in session.entries)
        return taken + len(await self.store.unconsumed(session.id))


ONCE: dict[str, Callable[[], object]] = {
    "once": agents.once,
    "tool_interrupt": functools.partial(working.in_tool, "interrupt"),
    "program_timely": functools.partial(working.in_program, "timely"),
    "below_sleep": functools.partial(working.in_below, "sleep"),
}
"""Runs that act once; with waits, they do so before and behind one."""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *(("once", number) for number in (3, 4, 5, 6, 7)),
        *(("tool_interrupt", number) for number in (8, 13, 17)),
        *(("program_timely", number) for number in (5, 9, 12)),
        *(("below_sleep", number) for number in (20, 27)),
    ],
)
def test_a_cancel_that_dies_is_finished_by_the_next_process(
    name: str, number: int, tmp_path: Path
) -> None:
    for place, when in itertools.product(range(1, 20), BEFORE_AND_AFTER):
        directory = tmp_path / f"{place}-{when}"
        directory.mkdir()
        scene = Scene(agent=cast("Target", ONCE[name]()), ledger=EffectLedger(directory))
        assert scene.drive(Fault(number, "after")) == "killed"
        asyncio.run(scene.lapse())
        before = scene.entered()
        ended = scene.cancel(Fault(place, when))
        asyncio.run(scene.lapse())
        stopped = asyncio.run(scene.stops())
        assert scene.drive(None) == "ended"
        assert asyncio.run(scene.status()) == ("cancelled" if stopped else "done")
        after = scene.entered()
        assert len(after) == len(set(after))
        if stopped:
            assert after == before
        if ended == "ended":
            assert stopped
            assert place > 3
            return
    pytest.fail("a cancel ends")

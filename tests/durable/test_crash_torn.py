"""A process that dies while a batch is written, on a store that is not atomic over entries.

Every first part of every batch is a legal log and a safe one (LOG 1.4): whatever of a batch a crash
leaves, the next process finishes the run, enters no tool twice and loses no result.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from perdure import Agent
from perdure.log.entries import AnyEntry
from perdure.log.store import Appended, Fence, Summary
from perdure.stores.memory import MemoryStore
from perdure.testing.chaos_judge import Evidence, judge, read_record
from perdure.testing.chaos_ledger import EffectLedger, leases_of
from perdure.testing.chaos_life import Life, live
from perdure.testing.chaos_simulated import Ended, simulate
from perdure.testing.chaos_store import Faults
from tests.chaos import agents


class Torn(MemoryStore):
    """Writes a part of one batch, and takes its process with it.

    Attributes:
        cut: The number of an append, and how many of its entries are written.
        faults: Of the process that writes.
        sizes: How many entries each append had.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cut: tuple[int, int] = (0, 0)
        self.faults: Faults | None = None
        self.sizes: list[int] = []

    async def append(
        self,
        session: str,
        version: int,
        fence: Fence,
        batch: Sequence[AnyEntry],
        *,
        consumed: Sequence[str] = (),
        summary: Summary | None = None,
    ) -> Appended:
        self.sizes.append(len(batch))
        number, written = self.cut
        if len(self.sizes) != number or self.faults is None:
            return await super().append(
                session, version, fence, batch, consumed=consumed, summary=summary
            )
        part = batch[:written]
        named = [entry.message for entry in part if entry.message]
        appended = await super().append(session, version, fence, part, consumed=named)
        self.faults.dead = True
        await self.faults.breathe()
        return appended


def life_of(agent: Agent[object], store: Torn, directory: Path, number: int) -> Ended:
    """One process of the run, on a store that may tear one of its batches."""

    async def work(faults: Faults) -> str:
        store.faults, store.sizes = faults, []
        ledger = EffectLedger(directory)
        life = Life(run="r", input="Go.", number=number, ledger=ledger, faults=faults)
        return await live(agent, store, life)

    return simulate(work, None, patience=30)


@pytest.mark.parametrize("name", ["once", "held", "nested_held", "batch_keyed_sequence_sqlite"])
def test_every_part_of_a_batch_is_a_safe_log(name: str, tmp_path: Path) -> None:
    agent = cast("Agent[object]", getattr(agents, name)())
    whole = Torn()
    assert life_of(agent, whole, tmp_path, 0) == "ended"
    cuts = [(n, part) for n, size in enumerate(whole.sizes, start=1) for part in range(1, size)]
    assert cuts
    for cut in cuts:
        directory = tmp_path / f"{cut}"
        directory.mkdir()
        store = Torn()
        store.cut = cut
        if life_of(agent, store, directory, 0) != "killed":
            continue  # another run wrote its batches otherwise
        store.cut = (0, 0)
        check(agent, store, directory, cut)


def check(agent: Agent[object], store: Torn, directory: Path, cut: tuple[int, int]) -> None:
    """The next process finishes the run, and nothing was lost or done twice."""
    ledger = EffectLedger(directory)

    async def lapse() -> dict[str, str]:
        for lease in leases_of(ledger.lines("r")):
            await store.release(lease)
        return dict((await read_record(store, "r")).outputs)

    durable = asyncio.run(lapse())
    assert life_of(agent, store, directory, 1) == "ended"
    final = asyncio.run(read_record(store, "r"))
    evidence = Evidence(
        run="r",
        lines=ledger.lines("r"),
        durable=[durable],
        final=final.outputs,
        commits=Counter(),
        faults=final.faults,
    )
    trial = judge(evidence, died=(f"in append {cut}",), expected="done", session=final.session)
    assert trial.ok, trial

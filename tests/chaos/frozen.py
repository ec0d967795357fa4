"""A driver that is frozen at one of its writes, past its lease, and goes on after others drove.

This is SIGSTOP without a process: the event loop of a life stops where its fault is, other lives
take the run up and finish it, and then the loop runs on. Wherever it was frozen, the stale driver
fires nothing twice, and what it knows is taken or refused, never lost. Where a tool is entered it
is not frozen: that gap is one of scheduling, which the minimum age of a resolution guards
(LOG 2.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import cast

from perdure.log.store import Store
from perdure.stores import open_store
from perdure.testing.chaos import BEFORE_AND_AFTER
from perdure.testing.chaos_commits import Commits, counting
from perdure.testing.chaos_judge import Evidence, judge, read_record
from perdure.testing.chaos_ledger import EffectLedger
from perdure.testing.chaos_life import Life, Target, live
from perdure.testing.chaos_simulated import simulate
from perdure.testing.chaos_store import Fault, Faults
from tests.chaos import agents, working

LEASE = 0.2
"""Seconds that a lease holds."""

PATIENCE = 60.0

Work = Callable[[Faults], Awaitable[object]]


class FrozenLife:
    """A life that stops at its fault, and can be let go on."""

    def __init__(self, work: Work, fault: Fault) -> None:
        self._loop = asyncio.new_event_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self.faults = Faults(fault, self._freeze)
        self._task = self._loop.create_task(_awaited(work(self.faults)))
        self._task.add_done_callback(lambda _: self._loop.stop())
        self._run()

    @property
    def is_frozen(self) -> bool:
        return self.faults.dead

    def thaw(self) -> None:
        """Let it go on to its end."""
        self.faults.dead = False
        for waiting in self._waiting:
            waiting.set_result(None)
        if not self._task.done():
            self._run()
        assert self._task.done(), "a driver that was frozen hangs"
        rest = asyncio.all_tasks(self._loop)
        for task in rest:
            task.cancel()
        if rest:
            self._loop.run_until_complete(asyncio.wait(rest))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._task.result()

    def _run(self) -> None:
        timer = self._loop.call_later(PATIENCE, self._loop.stop)
        self._loop.run_forever()
        timer.cancel()

    async def _freeze(self) -> None:
        self._loop.stop()
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiting)
        await waiting


async def _awaited(work: Awaitable[object]) -> object:
    return await work


class Freezer:
    """Tries out faults with an agent, a run for each."""

    def __init__(self, agent: Target, store: Store, ledger: EffectLedger, commits: Commits) -> None:
        self._agent = agent
        self._store = store
        self._ledger = ledger
        self._commits = commits
        assert simulate(self._life("undisturbed", 0), None, patience=PATIENCE) == "ended"
        lines = ledger.lines("undisturbed")
        self.writes = next(line.writes for line in lines if line.phase == "writes")

    def everywhere(self) -> int:
        """Freeze a driver at every write, before and after; how many were."""
        numbers = range(1, len(self.writes) + 1)
        return sum(
            self.freeze(Fault(number, when)) for number in numbers for when in BEFORE_AND_AFTER
        )

    def freeze(self, fault: Fault) -> bool:
        """Freeze a driver, let others finish the run, and let it go on; whether it was frozen."""
        run = f"run-{fault.number}-{fault.when}"
        first = FrozenLife(self._life(run, 0), fault)
        frozen = first.is_frozen and not first.faults.writes[-1].startswith("enter")
        if frozen:
            time.sleep(1.3 * LEASE)
            assert simulate(self._life(run, 1), None, patience=PATIENCE) == "ended"
        first.thaw()
        assert simulate(self._life(run, 2), None, patience=PATIENCE) == "ended"
        with asyncio.Runner() as runner:
            final = runner.run(read_record(self._store, run))
            waiting = runner.run(self._store.unconsumed(final.session))
        assert waiting == ()
        evidence = Evidence(
            run=run,
            lines=self._ledger.lines(run),
            durable=(),
            final=final.outputs,
            commits=self._commits.of_run(run),
            faults=final.faults,
            nested=final.nested,
            waiting=final.waiting,
            known=final.known,
            answered=final.answered,
            rewrites=True,  # what was resolved while it was frozen stands
            raced=True,
        )
        trial = judge(evidence, died=(f"frozen {fault}",), expected="done", session=final.session)
        assert trial.ok, trial
        return frozen

    def _life(self, run: str, number: int) -> Work:
        async def work(faults: Faults) -> str:
            life = Life(
                run=run,
                input="Go.",
                number=number,
                ledger=self._ledger,
                faults=faults,
                table="fired",
                answers=working.ANSWERS,
            )
            return await live(self._agent, self._store, life)

        return work


@contextlib.contextmanager
def freezer(name: str) -> Generator[Freezer]:
    """What freezes drivers, on SQLite, of one of `tests.chaos.agents` or `tests.chaos.working`."""
    module = agents if hasattr(agents, name) else working
    agent = dataclasses.replace(cast("Target", getattr(module, name)()), lease=LEASE)
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/log.db"
        store = open_store(url)
        with asyncio.Runner() as runner:
            _ = runner.run(store.list(limit=1))
        with counting(url, "fired") as commits:
            ledger = EffectLedger(Path(directory))
            yield Freezer(agent, store, ledger, commits)
        with asyncio.Runner() as runner:
            runner.run(store.close())

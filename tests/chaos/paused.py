"""A process that stops itself with SIGSTOP once a dispatch is durable, before its tool is entered.

`python -m tests.chaos.paused URL LEDGER` drives one run, and prints how it stands at the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from perdure import Agent
from perdure.log.store import Store
from perdure.stores import open_store
from perdure.testing.chaos_ledger import EffectLedger
from perdure.testing.chaos_life import Life, watched
from perdure.testing.chaos_store import Faults, faulted
from tests.chaos import agents

T = TypeVar("T")

LEASE = 0.5
"""Seconds that the lease of a process holds."""

RUN = "r"


class Stopping(Faults):
    """Stops its process once, when a dispatch is durable."""

    def __init__(self) -> None:
        super().__init__(None, never)
        self._stopped = False

    async def around(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        value = await super().around(name, work)
        if "dispatch" in name and not self._stopped:
            self._stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)
        return value


async def never() -> None:
    """Nobody dies."""
    raise AssertionError


async def drive(store: Store, ledger: EffectLedger, faults: Faults) -> str:
    """Ask for the run once; how it stands then."""
    life = Life(run=RUN, input="Go.", number=os.getpid(), ledger=ledger, faults=faults)
    own = faulted(store, faults)
    agent = watched(cast("Agent[object]", agents.once()), life).with_(store=own, lease=LEASE)
    return (await agent.run("Go.", run_id=RUN)).status


async def main(url: str, directory: str) -> None:
    store = open_store(url)
    sys.stdout.write(await drive(store, EffectLedger(directory), Stopping()))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A server that counts what it serves, and kills the process that asks it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from perdure import ModelRequest, Runs
from perdure.errors import ServerFailed, Truncated
from perdure.log import Spend
from perdure.stores.sqlite import SqliteStore
from perdure.testing import LoopbackServer, ScriptedModel, call, turn
from perdure.wire import ResponseCompleted, StreamEvent
from tests.budgets.killed import LOOKS, TASKS

ROOT = Path(__file__).parents[2]
Fate: TypeAlias = Literal["kill before", "kill within", "refuse", "lose", "cut"]

SCRIPTS = {
    "lead": ScriptedModel([turn(*(call("kid", {"task": "go"}) for _ in range(TASKS))), "Done."]),
    "kid": ScriptedModel([*(call("look", {"n": n}) for n in range(LOOKS)), "All of it."]),
}
TURNS = 2 + TASKS * (LOOKS + 1)


class Counted:
    """Answers who asks, by the name of the model, and counts what it serves."""

    def __init__(self, fates: Mapping[int, Fate]) -> None:
        self._fates = fates
        self.pid = 0
        """The process that asks."""
        self.requests = 0
        self.told = 0
        self.untold = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self.requests += 1
        fate = self._fates.get(self.requests)
        if fate == "refuse":
            raise ServerFailed("not now", status=500)
        if fate is not None:
            self.untold += 1
        if fate == "kill before":
            os.kill(self.pid, signal.SIGKILL)
        if fate in {"lose", "kill before"}:
            raise Truncated
        served = 0
        async for event in SCRIPTS[request.settings.model or ""].stream(request):
            served += 1
            if served == 4 and fate is not None:
                if fate == "kill within":
                    await asyncio.sleep(0.02)  # it has read what came
                    os.kill(self.pid, signal.SIGKILL)
                raise Truncated
            if isinstance(event, ResponseCompleted) and event.response.usage:
                self.told += event.response.usage.total_tokens
            yield event


async def ask(server: LoopbackServer, counted: Counted, path: Path, tokens: str = "") -> str:
    """Run the process until it ends by itself; how the run stands then."""
    while True:
        asking = subprocess.Popen(  # noqa: ASYNC220 - it is waited for on a thread
            [sys.executable, "-m", "tests.budgets.killed", server.base_url, str(path), tokens],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        counted.pid = asking.pid
        out, _ = await asyncio.to_thread(asking.communicate)
        if asking.returncode == 0:
            return out.strip()
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE perdure_roots SET until = 0")  # its lease lapses now


async def spend_in(path: Path) -> Spend:
    store = SqliteStore(path)
    state = await Runs(store).get("r")
    await store.close()
    return state.spend

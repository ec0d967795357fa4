"""Real processes that die: a warm process that forks for each life, and kills it with SIGKILL.

The warm process imports perdure and the agent's module once, so that a life costs a fork and not a
start. It reads a JSON object a line, and answers each with a line that says how the life ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import IO, cast

import msgspec
from msgspec import Struct

from perdure.agent import Agent
from perdure.errors import ConfigError
from perdure.programs import Program
from perdure.stores import open_store
from perdure.testing.chaos_ledger import EffectLedger
from perdure.testing.chaos_life import Life, Target, live
from perdure.testing.chaos_simulated import Ended
from perdure.testing.chaos_store import Fault, Faults, When
from perdure.testing.chaos_waits import NO_ANSWERS, Answers


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A life that a warm process is to let live."""

    target: str
    """The agent, as `module:name`."""
    store: str
    ledger: str
    run: str
    input: str
    life: int
    saga: bool = False
    answers: Answers = NO_ANSWERS
    table: str = ""
    path: tuple[str, ...] = ()
    """Where modules are looked for."""
    number: int = 0
    when: When = "before"
    patience: float = 60.0


class Reply(Struct, frozen=True, kw_only=True):
    """How it went."""

    ended: Ended
    error: str = ""


def load_agent(target: str) -> Target:
    """The agent or the program that `module:name` names; a function there makes one.

    Raises:
        ConfigError: There is none.
    """
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        raise ConfigError(f"{target!r} names no agent; write MODULE:NAME")
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"there is no module {module!r}: {error}") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if callable(found) and not isinstance(found, Agent | Program):
        found = found()
    if not isinstance(found, Agent | Program):
        raise ConfigError(f"{target!r} is no agent and no program, and no function that makes one")
    return cast("Target", found)


# --- the side that asks -------------------------------------------------------------------------


class WarmProcess:
    """The end of a warm process by which it is asked."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def live(self, order: Order) -> Reply:
        """Let a life be lived; returns when it has ended."""
        asked, told = cast("IO[bytes]", self._process.stdin), self._process.stdout
        line = b""
        with contextlib.suppress(BrokenPipeError):
            asked.write(msgspec.json.encode(order) + b"\n")
            asked.flush()
            line = told.readline() if told is not None else b""
        if not line:
            return Reply(ended="hung", error="the warm process is gone")
        return msgspec.json.decode(line, type=Reply)


_PROGRAM = """\
import sys
sys.path.insert(0, sys.argv.pop())
from perdure.testing.chaos_process import serve
serve()
"""
"""What a warm process runs, which need not have this perdure installed."""


@contextlib.contextmanager
def warm_process() -> Generator[WarmProcess]:
    """Start a warm process, and end it."""
    here = str(Path(__file__).parents[2])
    process = subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-c", _PROGRAM, here], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        with process:
            yield WarmProcess(process)
            if process.stdin is not None:
                process.stdin.close()
    except BaseException:
        process.kill()
        raise


# --- the side that forks ------------------------------------------------------------------------


def serve() -> None:
    """Answer orders until nobody gives any."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what tools print is no reply
    agents: dict[str, Target] = {}
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        replies.write(msgspec.json.encode(_obey(order, agents)) + b"\n")


def _obey(order: Order, agents: dict[str, Target]) -> Reply:
    try:
        if order.target not in agents:
            sys.path[:] = [*order.path, *(one for one in sys.path if one not in order.path)]
            agents[order.target] = load_agent(order.target)
            open_store(order.store)  # what it imports, it imports once
            gc.collect()
            gc.freeze()  # pages that nobody touches are not copied
    except Exception:  # noqa: BLE001 - the other side shows it
        return Reply(ended="hung", error=traceback.format_exc())
    return _forked(order, agents[order.target])


def _forked(order: Order, agent: Target) -> Reply:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        status = 1
        try:
            asyncio.run(_life(order, agent))
            status = 0
        except BaseException:  # noqa: BLE001 - the parent's frames must not go on in the child
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writing)
    error, hung = _until_closed(reading, order.patience)
    if hung:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if hung:
        return Reply(ended="hung", error=f"a life did not end within {order.patience} s")
    if code == -signal.SIGKILL:
        return Reply(ended="killed")
    return Reply(ended="ended", error=error or ("" if code == 0 else f"exit code {code}"))


def _until_closed(pipe: int, patience: float) -> tuple[str, bool]:
    """What a child wrote until it was gone, and whether it is not."""
    said = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], patience)
        if not ready:
            return said.decode(), True
        more = os.read(pipe, 65536)
        if not more:
            return said.decode(), False
        said += more


async def _life(order: Order, agent: Target) -> None:
    async def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.get_running_loop().create_future()

    fault = Fault(order.number, order.when) if order.number else None
    store = open_store(order.store)
    life = Life(
        run=order.run,
        input=order.input,
        saga=order.saga,
        answers=order.answers,
        number=order.life,
        ledger=EffectLedger(order.ledger),
        faults=Faults(fault, die),
        table=order.table,
    )
    try:
        await live(agent, store, life)
    finally:
        await store.close()

"""A program that drives sessions in processes that kill themselves at stop points.

`python -m tests.stores.killed MODULE:CLASS ARGUMENTS... < spots` reads `PREFIX POINT NUMBER` a
line, forks for each, and writes what its child was told: the names of the steps that were done, or
the agent's answer.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import cast

from perdure.log.store import Store
from perdure.stores.points import At, Point
from tests.stores.agent_killed import converse, pay
from tests.stores.banks import Bank
from tests.stores.steps import Drive, run

CHARGES = os.environ.get("CHARGES", "")
"""If set, an agent charges a card instead, each in a file of this directory."""

PAYING = bool(os.environ.get("PAYING"))
"""If set, an agent pays in the log's own database; what is opened is a bank."""

BETWEEN = cast("Point", "between")
"""Between the two statements of a payment."""

Opener = Callable[..., Store]


def postgres(url: str, schema: str, *, at: At) -> Store:
    """What opens a Postgres store with arguments in their order."""
    from perdure.stores.postgres import PostgresStore

    return PostgresStore(url, schema=schema, at=at)


def killing(point: Point, number: int) -> At:
    """Kill this process at the given time that a point is reached."""
    left = number

    def at(reached: Point) -> None:
        nonlocal left
        if reached == point:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return at


async def child(opener: Opener, arguments: list[str], prefix: str, at: At, pipe: int) -> None:
    if PAYING:
        bank = cast("Bank", opener(*arguments, at=at))
        text = await pay(bank, prefix, lambda: at(BETWEEN))
        os.write(pipe, f"{text}\n".encode())
        await bank.store.close()
        return
    store = opener(*arguments, at=at)
    if CHARGES:
        text = await converse(store, prefix, os.path.join(CHARGES, prefix))  # noqa: PTH118
        os.write(pipe, f"{text}\n".encode())
    else:
        async for name in run(Drive(store, prefix)):
            os.write(pipe, f"{name}\n".encode())
    await store.close()


def fork(opener: Opener, arguments: list[str], spot: str) -> tuple[int, list[str]]:
    """How a child ended, and what it was told."""
    prefix, point, number = spot.split()
    at = killing(cast("Point", point), int(number))
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.close(reading)
        status = 1
        try:
            filled = [argument.replace("{}", prefix) for argument in arguments]
            asyncio.run(child(opener, filled, prefix, at, writing))
            status = 0
        except BaseException:  # noqa: BLE001 - the parent's frames must not go on in the child
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as told:
        names = told.read().splitlines()
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), names


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    opener = cast("Opener", getattr(importlib.import_module(module), name))
    if name in {"postgres", "PostgresBank"}:
        importlib.import_module("perdure.stores.postgres")  # once, not in every child
    for spot in sys.stdin.read().splitlines():
        status, names = fork(opener, sys.argv[2:], spot)
        sys.stdout.write(f"{spot}\t{status}\t{','.join(names)}\n")


if __name__ == "__main__":
    main()

"""Work that handlers leave behind: drained, timed, told to stop, and never a failure of a run."""

from __future__ import annotations

import asyncio

import pytest

from perdure.compose.hooks import (
    DEFAULT_ASYNC_TIMEOUT,
    STOP,
    AsyncWork,
    HookContext,
    HooksManager,
    Stop,
)
from perdure.testing import FakeClock
from tests.compose_hooks.test_chain import Warnings


def manager(*, strict: bool = False) -> tuple[HooksManager, Warnings, FakeClock]:
    warnings, clock = Warnings(), FakeClock()
    return HooksManager(strict=strict, warn=warnings, clock=clock), warnings, clock


async def test_the_chain_goes_on_and_drain_waits() -> None:
    hooks, warnings, _ = manager()
    gate = asyncio.Event()
    done: list[str] = []

    async def work() -> None:
        await gate.wait()
        done.append("work")

    hooks.on(STOP, lambda p, c: AsyncWork(work()))
    hooks.on(STOP, lambda p, c: AsyncWork())  # nothing to keep track of
    hooks.on(STOP, lambda p, c: done.append("next"))
    emitted = await hooks.emit(STOP, Stop())
    assert (done, len(emitted.pending), emitted.results) == (["next"], 1, ())
    draining = asyncio.create_task(hooks.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    gate.set()
    await draining
    assert (done, warnings.told) == (["next", "work"], [])
    await hooks.drain()


async def test_drain_waits_for_work_that_work_starts() -> None:
    hooks, _, _ = manager()
    done: list[str] = []

    async def second() -> None:
        await asyncio.sleep(0)
        done.append("second")

    async def first() -> None:
        hooks.on(STOP, lambda p, c: AsyncWork(second()))
        await hooks.emit(STOP, Stop())

    remove = hooks.on(STOP, lambda p, c: AsyncWork(first()))
    await hooks.emit(STOP, Stop())
    remove()
    await hooks.drain()
    assert done == ["second"]


async def test_drain_from_the_work_itself_does_not_wait_for_it() -> None:
    hooks, warnings, _ = manager()
    hooks.on(STOP, lambda p, c: AsyncWork(hooks.drain()))
    await hooks.emit(STOP, Stop())
    await hooks.drain()
    assert warnings.told == []


async def test_work_that_outlives_its_time_is_told_and_let_go() -> None:
    hooks, warnings, clock = manager()
    told: list[str] = []

    async def work(context: HookContext) -> None:
        told.append(await context.signal.wait())
        raise ValueError("late")

    hooks.on(STOP, lambda p, c: AsyncWork(work(c), timeout=2))
    await hooks.emit(STOP, Stop())
    draining = asyncio.create_task(hooks.drain())
    await clock.advance(1.9)
    assert not draining.done()
    await clock.advance(0.2)
    await draining
    assert told == ["timed out"]
    assert warnings.told == ["the work of a handler of 'Stop' outlived its 2 seconds"]
    assert DEFAULT_ASYNC_TIMEOUT == 30


@pytest.mark.parametrize("strict", [False, True])
async def test_work_that_fails_is_a_warning_also_in_a_strict_manager(strict: bool) -> None:
    hooks, warnings, clock = manager(strict=strict)

    async def fails() -> None:
        raise ValueError("odd")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    hooks.on(STOP, lambda p, c: AsyncWork(fails()))
    hooks.on(STOP, lambda p, c: AsyncWork(cancelled()))
    await hooks.emit(STOP, Stop())
    await hooks.drain()
    assert sorted(warnings.told) == [
        "the work of a handler of 'Stop' failed: ValueError('odd')",
        "the work of a handler of 'Stop' was cancelled",
    ]
    assert clock.sleeping == 0  # no timer is left behind


async def test_an_abort_reaches_chains_that_run_and_work_that_is_left() -> None:
    hooks, _, _ = manager()
    heard: list[str] = []
    inside = asyncio.Event()

    async def work(context: HookContext) -> None:
        heard.append("work: " + await context.signal.wait())

    async def waits(payload: Stop, context: HookContext) -> None:
        inside.set()
        heard.append("chain: " + await context.signal.wait())

    remove = hooks.on(STOP, lambda p, c: AsyncWork(work(c)))
    await hooks.emit(STOP, Stop())
    remove()
    hooks.on(STOP, waits)
    hooks.on(STOP, lambda p, c: heard.append("never"))
    emitting = asyncio.create_task(hooks.emit(STOP, Stop()))
    await inside.wait()
    hooks.abort_inflight("leaving")
    hooks.abort_inflight("again")
    await emitting
    await hooks.drain()
    assert sorted(heard) == ["chain: leaving", "work: leaving"]
    hooks.remove_all()
    hooks.on(STOP, lambda p, c: heard.append(f"later: {c.signal.reason}"))
    await hooks.emit(STOP, Stop())
    assert heard[-1] == "later: None"


async def test_work_may_be_a_task_or_a_future() -> None:
    hooks, warnings, _ = manager()
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    hooks.on(STOP, lambda p, c: AsyncWork(future))
    hooks.on(STOP, lambda p, c: AsyncWork(asyncio.create_task(asyncio.sleep(0))))
    emitted = await hooks.emit(STOP, Stop())
    future.set_result(3)
    await hooks.drain()
    assert all(task.done() for task in emitted.pending)
    assert warnings.told == []


async def test_nothing_is_left_behind() -> None:
    hooks, _, _ = manager()
    before = asyncio.all_tasks()
    for _ in range(50):
        hooks.on(STOP, lambda p, c: AsyncWork(asyncio.sleep(0)))
    await hooks.emit(STOP, Stop())
    await hooks.drain()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before

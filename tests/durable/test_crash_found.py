"""What chaos has found, in the smallest form that shows it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading

import pytest

from perdure import Runs
from perdure.log.leases import take_lease
from perdure.log.store import Lease
from perdure.stores.memory import MemoryStore
from perdure.testing.chaos_simulated import simulate
from perdure.testing.chaos_store import Fault, Faults, faulted
from perdure.testing.store_kit import header
from perdure.tools import wrap
from tests.chaos import agents


async def _never() -> None:
    raise AssertionError


class Deaf(MemoryStore):
    """Loses a cancellation, as drivers of databases do now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.renewing = threading.Event()  # on whatever thread it is renewed

    async def renew(self, lease: Lease) -> Lease:
        self.renewing.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return await super().renew(lease)


async def test_a_lease_is_given_back_although_a_store_loses_the_cancellation() -> None:
    store = Deaf()
    made = header("s")
    await store.create(made)
    held = await take_lease(store, "s", holder="us", seconds=0.03)
    held.keep()
    await asyncio.to_thread(store.renewing.wait, 60)
    async with asyncio.timeout(10):
        await held.release()
    assert (await store.lease("s", holder="somebody else")).holder == "somebody else"


def test_a_run_that_waits_says_so_whatever_ended_its_last_drive() -> None:
    for number in range(4, 9):
        store = MemoryStore()
        leases: list[Lease] = []
        ask_for = functools.partial(_ask_for, store, leases)
        if simulate(ask_for, Fault(number, "before"), patience=20) == "killed":
            assert asyncio.run(_look_again(store, leases)) == ("input_required", ["r"])


async def _ask_for(store: MemoryStore, leases: list[Lease], faults: Faults) -> str:
    own = faulted(store, faults, on_lease=leases.append)
    return (await agents.held().with_(store=own).run("Go.", run_id="r")).status


async def _look_again(store: MemoryStore, leases: list[Lease]) -> tuple[str, list[str]]:
    """How the record says that the run stands, after a drive that found nothing to do."""
    for lease in leases:
        await store.release(lease)
    runs = Runs(store)
    while await _ask_for(store, leases, Faults(None, _never)) == "halted":
        for one in (await runs.get("r")).pending:
            if one.reason == "aborted":
                await runs.resolve("r", one.call.call_id, output="resolved")
    listed = await runs.list(status="input_required")
    return (await runs.get("r")).status, [one.run_id for one in listed]


@pytest.mark.parametrize("member", ["name", "description", "parameters", "execute"])
def test_a_tool_around_a_tool_is_known_as_one_by_its_class(member: str) -> None:
    # From Python 3.12 on, isinstance() with a protocol does not ask __getattr__.
    wrapped = wrap(agents.acting("once", "act"), description="Acts, and says so.")
    assert inspect.getattr_static(wrapped, member) is not None
    assert (wrapped.name, wrapped.description) == ("act", "Acts, and says so.")

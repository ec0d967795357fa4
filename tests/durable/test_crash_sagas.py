"""Sagas whose processes die: a sample of the crash matrix, and a cancel cut at every entry.

`make chaos` runs the whole: every stage of a rollback, before each write and after it, with four
levels of agents, on SQLite and Postgres.
"""

from __future__ import annotations

import pytest

from perdure import Runs
from perdure.stores.memory import MemoryStore
from perdure.testing import call
from perdure.testing.chaos import Chaos, ChaosPlan, chaos
from perdure.testing.chaos_store import Fault
from perdure.testing.scripted import TurnLike
from tests.chaos.matrix import Place, plan_of
from tests.durable.bank import Bank, Deed, Payment, run, saga
from tests.durable.world import RUN, Holds, cut_after, session_of


def sample(tests: Chaos, step: int) -> list[tuple[Fault]]:
    """Faults at every step-th write, now before it and now after it."""
    numbers = range(1, len(tests.writes) + 1, step)
    return [(Fault(n, "before" if n // step % 2 else "after"),) for n in numbers]


@pytest.mark.parametrize("name", ["saga_once_3_sqlite", "saga_keyed_0_sqlite", "saga_nested"])
def test_a_rollback_whose_process_dies_goes_on(name: str) -> None:
    plan = ChaosPlan(agent=f"tests.chaos.agents:{name}", saga=True, store=f"memory:{name}")
    with chaos(plan) as tests:
        report = tests.report(sample(tests, 5))
        report.check()
        assert report.expected == "rolled_back"


def test_a_rollback_whose_process_is_killed_goes_on_sqlite() -> None:
    plan = plan_of("saga_batch_parallel_sqlite", Place("sqlite", ""), saga=True)
    with chaos(plan) as tests:
        tests.report(sample(tests, 12)).check()


def test_a_rollback_whose_process_is_killed_goes_on_postgres(
    postgres_server: str, postgres_schema: str
) -> None:
    place = Place("postgres", f"{postgres_server}&schema={postgres_schema}")
    with chaos(plan_of("saga_transactional_3_postgres", place, saga=True)) as tests:
        report = tests.report(sample(tests, 14))
        report.check()
        assert report.most("pay") == 1


async def test_a_cancelled_saga_that_is_cut_anywhere_is_rolled_back_and_cancelled() -> None:
    store, bank = MemoryStore(), Bank()
    script: list[TurnLike] = [call("pay"), call("book"), call("risky"), "never"]
    tools = (
        Payment(bank=bank),
        Payment(bank=bank, name="book"),
        Deed(bank=bank, name="risky"),
    )
    agent = saga(store, script, *tools, middleware=(Holds("risky"),))
    await run(agent)
    begun = (await session_of(store)).version
    await Runs(store).cancel(RUN, reason="enough")
    await run(agent)
    for keep in range(begun + 1, (await session_of(store)).version):
        bank.undone.clear()
        cut = await cut_after(store, keep)
        result = await run(agent.with_(store=cut))
        assert (result.status, result.cause) == ("cancelled", "enough"), keep
        undid = list(dict.fromkeys(bank.undid))
        assert undid == ["book {}", "pay {}"][2 - len(undid) :], keep

"""A sample of the crash matrix: `make chaos` runs the whole, with tests/chaos/matrix.py.

A batch of all effects loses its process, a real one, at every other write on SQLite and at every
third on Postgres; runs that wait for people, and sub-agents, lose simulated ones, twice in a row.
"""

from __future__ import annotations

import itertools
import random

import pytest

from perdure.testing.chaos import ChaosPlan, chaos
from perdure.testing.chaos_store import Fault
from tests.chaos import agents, working
from tests.chaos.matrix import Place, all_faults, plan_of, waiting_plan


@pytest.mark.parametrize("how", agents.HOWS)
def test_a_batch_of_all_effects_on_sqlite(how: str) -> None:
    with chaos(plan_of(f"mixed_{how}_sqlite", Place("sqlite", ""))) as tests:
        faults = [Fault(n, "before" if n % 4 == 1 else "after") for n in _numbers(tests.writes, 2)]
        tests.report([(fault,) for fault in faults]).check()


def test_a_batch_of_all_effects_on_postgres(postgres_server: str, postgres_schema: str) -> None:
    place = Place("postgres", f"{postgres_server}&schema={postgres_schema}")
    with chaos(plan_of("mixed_parallel_postgres", place)) as tests:
        faults = [Fault(n, "before" if n % 2 else "after") for n in _numbers(tests.writes, 3)]
        report = tests.report([(fault,) for fault in faults])
        report.check()
        assert report.most("once") == report.most("transactional") == 1


def test_votes_on_postgres(postgres_server: str, postgres_schema: str) -> None:
    place = Place("postgres", f"{postgres_server}&schema={postgres_schema}")
    with chaos(plan_of("voted", place)) as tests:
        voting = [
            n for n, write in enumerate(tests.writes, 1) if "vote" in write or "tally" in write
        ]
        faults = [Fault(n, "after" if n % 2 else "before") for n in voting]
        report = tests.report([(fault,) for fault in faults])
        report.check()
        assert report.most("risky") == 1


def _numbers(writes: tuple[str, ...], step: int) -> range:
    return range(1, len(writes) + 1, step)


@pytest.mark.parametrize(
    "name",
    ["held", "nested_held", "voted", "nested_voted", "reconciled", "batch_once_parallel_sqlite"],
)
def test_two_processes_die_one_after_the_other(name: str) -> None:
    with chaos(ChaosPlan(agent=f"tests.chaos.agents:{name}")) as tests:
        pairs = list(itertools.product(all_faults(tests), repeat=2))
        random.Random(name).shuffle(pairs)
        tests.report(pairs[:12]).check()


@pytest.mark.parametrize(
    "name",
    ["tool_keyed", "tool_timeout", "deep_once", "program_once", "program_race", "program_timeout"],
)
def test_work_with_steps_and_waits(name: str) -> None:
    plan = ChaosPlan(agent=f"tests.chaos.working:{name}", answers=working.ANSWERS)
    with chaos(plan) as tests:
        faults = all_faults(tests)
        random.Random(name).shuffle(faults)
        report = tests.report([(fault,) for fault in faults[:8]])
        report.check()
        assert report.expected == "done"


def test_a_wait_three_levels_deep_on_postgres(postgres_server: str, postgres_schema: str) -> None:
    place = Place("postgres", f"{postgres_server}&schema={postgres_schema}")
    with chaos(waiting_plan("deep_interrupt", place)) as tests:
        faults = all_faults(tests)
        random.Random("deep").shuffle(faults)
        tests.report([(fault,) for fault in faults[:8]]).check()


def test_a_saga_with_a_budget_steps_a_wait_and_votes() -> None:
    plan = ChaosPlan(
        agent="tests.chaos.working:together", answers=working.ANSWERS, saga=True, store="memory:all"
    )
    with chaos(plan) as tests:
        faults = all_faults(tests)
        random.Random("together").shuffle(faults)
        report = tests.report([(fault,) for fault in faults[:10]])
        report.check()
        assert report.expected == "rolled_back"

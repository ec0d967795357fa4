"""The whole crash matrix: `make chaos` runs it, and `make test` a sample of it.

Real processes die by SIGKILL at every write, before it and after it, and at the borders of every
tool; then the next process takes the run up. What must hold is judged by the harness: `once` fires
at most once, `keyed` always under one key, `transactional` exactly once, no result is lost, and
every run ends as it does where nobody dies.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure.testing import LoopbackServer
from perdure.testing.chaos import BEFORE_AND_AFTER, Chaos, ChaosPlan, chaos
from perdure.testing.chaos_report import ChaosReport
from perdure.testing.chaos_store import Fault
from perdure.tools.effect import EFFECTS
from tests.budgets.served import TURNS, Counted, Fate, ask, spend_in
from tests.chaos import working
from tests.chaos.agents import DATABASES, HOWS
from tests.chaos.frozen import freezer

pytestmark = pytest.mark.timeout(1200)

WORKERS = min(os.cpu_count() or 1, 4)
PAIRS = 120
"""Of all pairs of faults, how many are tried with an agent."""


class Place(NamedTuple):
    """Where runs are recorded."""

    database: str
    url: str


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest) -> Generator[Place]:
    name = str(request.param)
    if name == "sqlite":
        yield Place(name, "")
        return
    url: str = request.getfixturevalue("postgres_server")
    schema: str = request.getfixturevalue("postgres_schema")
    yield Place(name, f"{url}&schema={schema}")


def plan_of(agent: str, place: Place, *, saga: bool = False) -> ChaosPlan:
    target = f"tests.chaos.agents:{agent}"
    return ChaosPlan(agent=target, saga=saga, store=place.url, kill=True, workers=WORKERS)


def waiting_plan(name: str, place: Place) -> ChaosPlan:
    """A plan for one of `tests.chaos.working`."""
    target = f"tests.chaos.working:{name}"
    return ChaosPlan(
        agent=target, answers=working.ANSWERS, store=place.url, kill=True, workers=WORKERS
    )


def all_faults(tests: Chaos) -> list[Fault]:
    numbers = range(1, len(tests.writes) + 1)
    return [Fault(number, when) for number in numbers for when in BEFORE_AND_AFTER]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_batch_of_an_effect(effect: str, how: str, place: Place) -> None:
    with chaos(plan_of(f"batch_{effect}_{how}_{place.database}", place)) as tests:
        report = tests.everywhere()
        report.check()
        assert len(report.trials) > 2 * len(tests.writes)
        if effect in ("once", "transactional"):
            assert report.most("act") == 1


@pytest.mark.parametrize("how", HOWS)
def test_a_batch_of_all_effects(how: str, place: Place) -> None:
    with chaos(plan_of(f"mixed_{how}_{place.database}", place)) as tests:
        tests.everywhere().check()


@pytest.mark.parametrize(
    "agent", ["held", "nested", "nested_held", "reconciled", "voted", "nested_voted"]
)
def test_other_runs(agent: str, place: Place) -> None:
    with chaos(plan_of(agent, place)) as tests:
        tests.everywhere().check()


@pytest.mark.parametrize(
    ("effect", "level"), [("once", 0), ("once", 3), ("keyed", 3), ("transactional", 0)]
)
def test_a_saga_that_fails_at_a_level(effect: str, level: int, place: Place) -> None:
    name = f"saga_{effect}_{level}_{place.database}"
    with chaos(plan_of(name, place, saga=True)) as tests:
        report = tests.everywhere()
        report.check()
        assert report.expected == "rolled_back"
        if effect != "keyed":
            assert report.most("pay") == 1


@pytest.mark.parametrize("how", HOWS)
def test_a_saga_that_fails_beside_calls_of_all_effects(how: str, place: Place) -> None:
    with chaos(plan_of(f"saga_batch_{how}_{place.database}", place, saga=True)) as tests:
        tests.everywhere().check()


def test_a_saga_whose_tool_makes_calls(place: Place) -> None:
    with chaos(plan_of("saga_nested", place, saga=True)) as tests:
        tests.everywhere().check()


def test_two_processes_of_a_saga_die_one_after_the_other(place: Place) -> None:
    with chaos(plan_of(f"saga_once_3_{place.database}", place, saga=True)) as tests:
        pairs = list(itertools.product(all_faults(tests), repeat=2))
        random.Random("saga").shuffle(pairs)
        tests.report(pairs[:PAIRS]).check()


def work_report(tests: Chaos, place: Place) -> ChaosReport:
    """All faults on SQLite; on Postgres, where lives take longer, each log that a crash can leave.

    A process that dies behind a write leaves what one leaves that dies before the next. Both are
    tried where a tool or a step is, because there the log is not all that is left.
    """
    if place.database == "sqlite":
        return tests.everywhere()
    return tests.report([(fault,) for fault in all_faults(tests) if _leaves_its_own(tests, fault)])


def _leaves_its_own(tests: Chaos, fault: Fault) -> bool:
    """Whether no fault before it leaves the same."""
    near = tests.writes[max(fault.number - 2, 0) : fault.number]
    inside = any(write.startswith(("enter", "leave", "undo", "undid")) for write in near)
    return fault.when == "after" or fault.number == 1 or inside


@pytest.mark.parametrize("effect", working.EFFECTS)
@pytest.mark.parametrize("where", ["tool", "deep", "program"])
def test_steps_of_an_effect(where: str, effect: str, place: Place) -> None:
    with chaos(waiting_plan(f"{where}_{effect}", place)) as tests:
        report = work_report(tests, place)
        report.check()
        assert report.expected == "done"
        firings = {one.tool.rpartition(" ")[2] for trial in report.trials for one in trial.firings}
        assert {"one", "two"} <= firings


@pytest.mark.parametrize("kind", working.KINDS)
@pytest.mark.parametrize("where", ["deep", "program"])
def test_a_wait_between_two_steps_that_act_once(where: str, kind: str, place: Place) -> None:
    with chaos(waiting_plan(f"{where}_{kind}", place)) as tests:
        report = work_report(tests, place)
        report.check()
        assert report.expected == "done"


OTHER_WORK = (
    *("tool_atonce", "tool_invoked", "part_once", "part_interrupt", "part_invoked"),
    *("below_once", "below_timely", "below_interrupt"),
    *("asked_keyed", "asked_channel", "asked_invoked"),
)


@pytest.mark.parametrize("name", OTHER_WORK)
def test_other_work(name: str, place: Place) -> None:
    with chaos(waiting_plan(name, place)) as tests:
        report = work_report(tests, place)
        report.check()
        assert report.expected == "done"


def together_plan(place: Place) -> ChaosPlan:
    """The plan of the saga that has a budget, steps, a wait and votes."""
    return dataclasses.replace(waiting_plan("together", place), saga=True)


def test_a_saga_with_a_budget_steps_a_wait_and_votes(place: Place) -> None:
    with chaos(together_plan(place)) as tests:
        report = work_report(tests, place)
        report.check()
        assert report.expected == "rolled_back"
        assert report.most("pay") == 1


def test_two_processes_of_such_a_saga_die_one_after_the_other(place: Place) -> None:
    with chaos(together_plan(place)) as tests:
        pairs = list(itertools.product(all_faults(tests), repeat=2))
        random.Random("together").shuffle(pairs)
        tests.report(pairs[:PAIRS]).check()


@pytest.mark.parametrize("name", ["deep_once", "program_timely", "part_signal"])
def test_two_processes_die_in_work_one_after_the_other(name: str, place: Place) -> None:
    with chaos(waiting_plan(name, place)) as tests:
        pairs = list(itertools.product(all_faults(tests), repeat=2))
        random.Random(name).shuffle(pairs)
        tests.report(pairs[:PAIRS]).check()


@pytest.mark.parametrize("agent", ["mixed_parallel", "held", "nested_held", "voted"])
def test_two_processes_die_one_after_the_other(agent: str, place: Place) -> None:
    name = f"{agent}_{place.database}" if agent.startswith("mixed") else agent
    with chaos(plan_of(name, place)) as tests:
        pairs = list(itertools.product(all_faults(tests), repeat=2))
        random.Random(agent).shuffle(pairs)
        report = tests.report(pairs[:PAIRS])
        report.check()
        assert any(len(trial.faults) == 2 for trial in report.trials)


FROZEN = (
    *("mixed_parallel_sqlite", "held", "nested_held", "voted"),
    *("tool_once", "program_timely"),
)


@pytest.mark.parametrize("agent", FROZEN)
def test_a_driver_is_frozen_past_its_lease(agent: str) -> None:
    with freezer(agent) as tests:
        assert tests.everywhere() > len(tests.writes)


@pytest.mark.parametrize("fate", ["kill before", "kill within"])
async def test_spend_of_processes_killed_at_every_request(fate: Fate, tmp_path: Path) -> None:
    """Every request of a run with sub-agents loses its process once, then the next one goes on."""
    fates: dict[int, Fate] = dict.fromkeys(range(1, 2 * TURNS, 2), fate)
    counted, path = Counted(fates), tmp_path / "runs.db"
    async with LoopbackServer(counted) as server:
        assert await ask(server, counted, path) == "done"
    spend = await spend_in(path)
    assert (spend.requests, spend.uncounted) == (counted.requests, TURNS)
    assert spend.tokens.total - spend.estimated.total == counted.told

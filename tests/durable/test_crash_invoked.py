"""The chaos harness where tools make calls: it says of each what happened, however deep it is."""

from __future__ import annotations

import random

import pytest

from perdure import Agent, invoke, tool
from perdure.testing import call, run_chaos, turn
from perdure.testing.chaos import Chaos, ChaosPlan, chaos
from perdure.testing.chaos_life import FIRED
from perdure.testing.chaos_report import ChaosReport
from perdure.testing.chaos_store import Fault
from tests.chaos import working
from tests.chaos.agents import StrictModel, acting
from tests.chaos.matrix import all_faults

MEMORY = "memory:all"


def _sample(tests: Chaos, name: str) -> ChaosReport:
    """Some faults of all, most of them where a tool is."""
    near = [
        Fault(number, when)
        for number, write in enumerate(tests.writes, 1)
        if write in ("enter act", "leave act")
        for when in ("before", "after")
    ]
    others = all_faults(tests)
    random.Random(name).shuffle(others)
    return tests.report([(fault,) for fault in (*near, *others[:4])])


@pytest.mark.parametrize("where", working.WHERE.keys() - {"program"})
def test_a_once_tool_that_a_tool_calls_is_resolved_at_every_depth(where: str) -> None:
    name = f"{where}_invoked"
    with chaos(ChaosPlan(agent=f"tests.chaos.working:{name}", store=MEMORY)) as tests:
        report = _sample(tests, name)
    report.check()
    assert report.expected == "done"
    assert report.most("act") == 1


def test_calls_that_share_the_names_of_their_steps_are_told_apart() -> None:
    mixed_up: list[object] = []

    @tool(effect="idempotent")
    async def work(what: int) -> object:
        """Work."""
        gave = (await invoke("act", {"what": what})).output
        mixed_up.extend([gave] if gave not in (f"did {what}", FIRED) else [])
        return gave

    model = StrictModel([turn(call("work", {"what": 0}), call("work", {"what": 1})), "Worked."])
    agent = Agent(model, tools=[work, acting("once", "act")])
    report = run_chaos(agent, store=MEMORY, every=2)
    report.check()
    assert report.most("act") == 1
    assert mixed_up == []


def test_what_an_agent_left_whose_call_somebody_answered_is_not_lost() -> None:
    """A tool that acts once has an agent work: nobody enters it again to hear what that gave."""

    @tool(effect="once")
    async def ask() -> object:
        """Ask."""
        return (await invoke("worker", {"task": "Work."})).output

    worker = Agent(
        StrictModel([call("act", {"what": 0}), "Acted."]),
        name="worker",
        tools=[acting("idempotent", "act")],
    )
    tools = [ask, worker.as_tool("worker", "Works.")]
    report = run_chaos(
        Agent(StrictModel([call("ask"), "Asked."]), tools=tools), store=MEMORY, every=2
    )
    report.check()
    assert report.most("ask") == 1

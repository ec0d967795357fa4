"""What type checkers see of agents that answer with a type. mypy checks it with the tests."""

from __future__ import annotations

from typing import assert_type

from perdure import Agent, RunResult
from perdure.output import Output
from perdure.testing import ScriptedModel, call
from tests.output.forms import INVOICE, Invoice


async def test_a_result_has_the_type_that_its_agent_answers_with() -> None:
    model = ScriptedModel(lambda number: call("final_answer", INVOICE))
    typed = Agent(model, output=Invoice)
    assert_type(typed, Agent[Invoice])
    assert_type(await typed.run("x"), RunResult[Invoice])
    assert_type((await typed.run("x")).output, Invoice)
    assert_type((await typed.with_(max_turns=3).run("x")).output, Invoice)
    assert_type(Agent(model).with_(output=Invoice, max_turns=3), Agent[Invoice])
    async with typed.session() as chat:
        assert_type((await chat.send("x")).output, Invoice)
        assert_type((await chat.send("x")).output.total, int)
    async with typed.stream("x") as stream:
        assert_type((await stream.result()).output, Invoice)
    assert_type(Agent(model, output=Output(Invoice, retries=1)), Agent[Invoice])
    assert_type(Agent(model, output=list[Invoice]), Agent[list[Invoice]])
    assert_type(Agent(model, output=Output(int | str)), Agent[object])


async def test_without_a_type_it_is_text() -> None:
    agent = Agent(ScriptedModel(["Hello."]))
    assert_type(agent, Agent[str])
    assert_type((await agent.run("x")).output, str)
    assert_type(Agent(ScriptedModel([]), output=str), Agent[str])

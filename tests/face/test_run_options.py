"""What a run is given stays with it, whatever else it is given."""

from __future__ import annotations

import pytest

from perdure import Agent, Budget, SagaRolledBack, ToolError, current_call, tool
from perdure.testing import ScriptedModel, call


@pytest.mark.parametrize("budget", [None, Budget(tokens=1_000_000)])
@pytest.mark.parametrize("way", ["run", "stream"])
async def test_a_saga_for_somebody_is_one_with_a_budget_too(
    way: str, budget: Budget | None
) -> None:
    heard: list[str] = []

    @tool(effect="once")
    async def ship() -> str:
        heard.append(current_call().principal)
        raise ToolError("nothing is left")

    agent = Agent(ScriptedModel([call("ship"), "Never."]), tools=[ship], store="memory:sagas")
    name = f"{way}-{budget is None}"

    async def running() -> None:
        if way == "run":
            await agent.run("go", run_id=name, saga=True, principal="user:42", budget=budget)
            return
        stream = agent.stream("go", run_id=name, saga=True, principal="user:42", budget=budget)
        async with stream:
            await stream.result()

    with pytest.raises(SagaRolledBack):
        await running()

    assert heard == ["user:42"]
    await agent.aclose()

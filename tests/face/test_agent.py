"""The face: what an agent refuses, and running it from scripts."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Agent, ConfigError, Retry
from perdure.errors import InsideEventLoop
from perdure.testing import ScriptedModel, call
from perdure.tools import tool

WRONG: list[tuple[str, object]] = [
    ("tools", 1),
    ("tools", None),
    ("max_turns", "3"),
    ("max_turns", 0),
    ("settings", {"temperature": 1}),
    ("middleware", print),
    ("middleware", [print]),
    ("retry", 3),
    ("instructions", 3),
    ("model_name", 3),
    ("max_parallel", 0),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_argument_is_refused_when_the_agent_is_made(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        Agent(ScriptedModel(["hi"]), **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", [3, None, b"x", ["hi"], {"role": "user"}, [{"role": "user"}]])
def test_a_prompt_that_is_no_prompt_is_refused_by_what_it_is(prompt: object) -> None:
    with pytest.raises(ConfigError, match="a prompt is a text"):
        Agent(ScriptedModel(["hi"])).run_sync(prompt)  # type: ignore[arg-type]


def test_running_from_a_script_works_twice_and_after_a_loop_was_closed() -> None:
    agent = Agent(ScriptedModel(["hi"]))
    assert agent.run_sync("a").text == "hi"
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.close()
    try:
        assert agent.run_sync("b").text == "hi"
        assert asyncio.run(agent.run("c")).text == "hi"
    finally:
        asyncio.set_event_loop(None)
    assert agent.run_sync("d").text == "hi"


async def test_running_as_a_script_inside_an_event_loop_says_what_to_call_instead() -> None:
    with pytest.raises(InsideEventLoop, match=r"await Agent\.run\(\) instead"):
        Agent(ScriptedModel(["hi"])).run_sync("a")


def test_tools_of_a_request_do_not_depend_on_the_order_they_were_given_in() -> None:
    @tool(effect="none")
    def b() -> str:
        """B."""
        return "b"

    @tool(effect="none")
    def a() -> str:
        """A."""
        return "a"

    seen = []
    for tools in ([a, b], [b, a]):
        model = ScriptedModel([call("a"), "done"])
        Agent(model, tools=tools, retry=Retry()).run_sync("go")
        seen.append([one.name for one in model.requests[0].settings.tools or ()])  # type: ignore[union-attr]
    assert seen == [["a", "b"], ["a", "b"]]

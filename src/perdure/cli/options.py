"""The agent that the options of a command describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.agent import Agent
from perdure.cli.problems import Unusable
from perdure.cli.toolfiles import load_tools
from perdure.definition import DEFAULT_MAX_TURNS
from perdure.loop.model import check
from perdure.models import resolve, schemes


class Options(NamedTuple):
    """What `run` and `chat` are told alike."""

    model: str | None
    tools: Sequence[str] = ()
    instructions: str = ""
    max_turns: int | None = None
    """None is the default of an `Agent`."""


def agent_of(options: Options) -> Agent:
    """The agent.

    Raises:
        ConfigError: There is no model, or a tool cannot be used; the message says which.
    """
    if not options.model:
        known = ", ".join(schemes())
        raise Unusable(
            "no model is named",
            f"give --model PROVIDER:MODEL, or set PERDURE_MODEL (providers: {known})",
        )
    return Agent(
        options.model,
        instructions=options.instructions,
        tools=load_tools(options.tools),
        max_turns=options.max_turns or DEFAULT_MAX_TURNS,
    )


async def check_model(model: str) -> None:
    """See whether a model could be asked, before somebody has typed a question.

    Raises:
        ConfigError: It could not, for want of a key, say.
    """
    await check(resolve(model).model)

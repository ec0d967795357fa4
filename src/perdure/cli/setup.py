"""The agent that the options of a command describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.agent import DEFAULT_MAX_TURNS, Agent
from perdure.cli.problems import Unusable
from perdure.cli.toolfiles import load_tools
from perdure.models import schemes


class Options(NamedTuple):
    """What `run` and `chat` are told alike."""

    model: str | None
    tools: Sequence[str] = ()
    instructions: str = ""
    max_turns: int = DEFAULT_MAX_TURNS


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
        max_turns=options.max_turns,
    )

"""When a run stops: conditions over the rounds it has done.

A *step* is a completed round: a response that asked for tools, and what they gave. Conditions are
asked when a response asks for tools; the newest response is in none of the steps yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

from perdure.compose.turns import ToolCall, settled
from perdure.errors import ConfigError
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, Response, Usage

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecution:
    """What a tool gave in a round.

    Attributes:
        call: The call, with the arguments the tool got.
        result: What it gave, before it became an output; None if it failed.
        error: Why it failed; empty if it did not.
        source: Where the tool comes from.
        events: The preliminary results it showed.
        output: What the model reads; None for a call that waits.
        entered: Its body ran.
    """

    call: ToolCall
    result: object = None
    error: str = ""
    source: Literal["client", "mcp"] = "client"
    events: tuple[object, ...] = ()
    output: FunctionCallOutput | None = None
    entered: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One completed round.

    Attributes:
        response: The response that asked for it.
        tool_calls: Its calls.
        tool_results: What the tools gave, in the order of the calls.
        server_tool_results: What the provider's own tools gave in it.
    """

    response: Response
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolExecution, ...] = ()
    server_tool_results: tuple[Item, ...] = ()

    @property
    def text(self) -> str:
        """What the response said beside its calls."""
        return self.response.output_text

    @property
    def usage(self) -> Usage | None:
        """Its tokens, if its server said."""
        return self.response.usage or None

    @property
    def finish_reason(self) -> FinishReason:
        """Why the response ended."""
        return finish_reason(self.response)


StopCondition: TypeAlias = Callable[[Sequence[StepResult]], bool | Awaitable[bool]]
"""Whether to stop, given the rounds so far. What it raises ends the run in error."""


def finish_reason(response: Response) -> FinishReason:
    """Why a response ended."""
    if response.status == "failed":
        return "error"
    if response.status == "incomplete":
        details = response.incomplete_details
        reason = details.reason if details else ""
        return "content_filter" if reason == "content_filter" else "length"
    calls = any(isinstance(item, FunctionCall) for item in response.output)
    return "tool_calls" if calls else "stop"


def server_results(response: Response) -> tuple[Item, ...]:
    """The items of a response that the provider's own tools made."""
    own = (Message, FunctionCall, FunctionCallOutput, Reasoning)
    return tuple(item for item in response.output if not isinstance(item, own))


def cost_of(usage: Usage | None) -> float | None:
    """What a response cost in dollars, if its server said."""
    cost = usage.unknown.get("cost") if usage else None
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return float(cost)


# --- conditions -----------------------------------------------------------------------


def step_count_is(count: int) -> StopCondition:
    """Stop when this many rounds are done."""
    return lambda steps: len(steps) >= count


def has_tool_call(name: str) -> StopCondition:
    """Stop when some round called the tool."""
    return lambda steps: any(call.name == name for step in steps for call in step.tool_calls)


def max_tokens_used(limit: int) -> StopCondition:
    """Stop when the responses have used this many tokens in all."""
    return lambda steps: sum(s.usage.total_tokens for s in steps if s.usage) >= limit


def max_cost(dollars: float) -> StopCondition:
    """Stop when the responses have cost this much in all, as far as their servers say."""
    return lambda steps: sum(cost_of(step.usage) or 0.0 for step in steps) >= dollars


def finish_reason_is(reason: FinishReason) -> StopCondition:
    """Stop when some response of the rounds ended for this reason."""
    return lambda steps: any(step.finish_reason == reason for step in steps)


async def is_stop_condition_met(
    conditions: Sequence[StopCondition], steps: Sequence[StepResult]
) -> bool:
    """Whether any of the conditions says so."""
    for condition in conditions:
        if await settled(condition(steps)):
            return True
    return False


def conditions_of(
    given: StopCondition | Sequence[StopCondition] | None,
) -> tuple[StopCondition, ...]:
    """One condition or several.

    Raises:
        ConfigError: One of them is no function.
    """
    if given is None:
        return ()
    found: tuple[object, ...] = (given,) if callable(given) else tuple(given)
    for condition in found:
        if not callable(condition):
            raise ConfigError(f"a stop condition is a function of the steps, got {condition!r}")
    return found  # type: ignore[return-value]

"""What functions of the caller are told: where the run is, and the calls as they can be read."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.errors import InvalidArguments
from perdure.tools import plain_arguments
from perdure.wire import FunctionCall, Request

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """Where a run is.

    Attributes:
        number_of_turns: 0 while the first request is built; n in round n and while the request
            that follows it is built.
        tool_call: The call in question, if there is one.
        turn_request: The settings of the last request that was sent, if one was.
    """

    number_of_turns: int
    tool_call: FunctionCall | None = None
    turn_request: Request | None = None


Dynamic = Callable[[TurnContext], object]
"""A function of the turn, sync or async, whose value is taken where a value could stand."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call, read as far as it can be.

    Attributes:
        id: The call id.
        name: The tool it names.
        arguments: A dict, or the text as it came if that is no JSON object.
        raw: The arguments as they came.
        item_id: The id of the item; empty if it has none.
        turn: The request whose response made it, from 0.
        item: The wire's own item.
    """

    id: str
    name: str
    arguments: dict[str, object] | str
    raw: str
    item_id: str = ""
    turn: int = 0
    item: FunctionCall = dataclasses.field(repr=False)

    @property
    def readable(self) -> bool:
        """Whether the arguments are a JSON object."""
        return not isinstance(self.arguments, str)

    @property
    def members(self) -> dict[str, object]:
        """The arguments, empty if they cannot be read."""
        return {} if isinstance(self.arguments, str) else self.arguments


def tool_call_of(item: FunctionCall, turn: int = 0, arguments: str | None = None) -> ToolCall:
    """A call as callers see it; `arguments` in place of the model's if given."""
    raw = item.arguments if arguments is None else arguments
    return ToolCall(
        id=item.call_id,
        name=item.name,
        arguments=parse_tool_arguments(raw),
        raw=raw,
        item_id=item.id or "",
        turn=turn,
        item=item,
    )


def parse_tool_arguments(raw: str) -> dict[str, object] | str:
    """The arguments a model wrote; the text itself if it is no JSON object.

    Empty and blank text is no arguments. What JSON does not have, as NaN, is refused.
    """
    if not raw.strip():
        return {}
    try:
        return plain_arguments(raw)
    except InvalidArguments:
        return raw


async def settled(value: T | Awaitable[T]) -> T:
    """A value, awaited if it has to be."""
    if inspect.isawaitable(value):
        return await value
    return value

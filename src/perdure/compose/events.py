"""What the streams of a run tell, beside the wire's own events."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, TypeAlias

from perdure.compose.kinds import Origin
from perdure.wire import FunctionCallOutput, StreamEvent


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnStartEvent:
    """A request goes out. Turns count from 0."""

    type: ClassVar[Literal["turn.start"]] = "turn.start"
    turn_number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnEndEvent:
    """Its response is whole."""

    type: ClassVar[Literal["turn.end"]] = "turn.end"
    turn_number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnRetryEvent:
    """The request failed before its answer began, and is made again.

    What the turn has shown so far, thoughts for one, is void.
    """

    type: ClassVar[Literal["turn.retry"]] = "turn.retry"
    turn_number: int
    attempt: int
    """The number of the attempt that failed, from 1."""
    error: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolArgumentsDelta:
    """A piece of a call's arguments."""

    type: ClassVar[Literal["delta"]] = "delta"
    item_id: str
    content: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolPreliminaryResult:
    """A preliminary result of a tool, as it shows it."""

    type: ClassVar[Literal["tool.preliminary_result"]] = "tool.preliminary_result"
    tool_call_id: str
    name: str
    result: object


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultEvent:
    """What a call gave. Results come in the order of the calls, whichever ended first."""

    type: ClassVar[Literal["tool.result"]] = "tool.result"
    tool_call_id: str
    name: str
    source: Origin
    result: object
    error: str = ""
    preliminary_results: tuple[object, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallOutputEvent:
    """What the model reads of a call."""

    type: ClassVar[Literal["tool.call_output"]] = "tool.call_output"
    tool_call_id: str
    name: str
    output: FunctionCallOutput
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AsyncStarted:
    """A call was answered with a placeholder; its task goes on."""

    type: ClassVar[Literal["tool.async_started"]] = "tool.async_started"
    tool_call_id: str
    name: str
    task_id: str
    mode: Literal["background", "deferred"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSettled:
    """A task has its outcome."""

    type: ClassVar[Literal["tool.async_settled"]] = "tool.async_settled"
    tool_call_id: str
    name: str
    task_id: str
    status: str
    result: object = None
    error: str = ""


ToolStreamEvent: TypeAlias = ToolArgumentsDelta | ToolPreliminaryResult

FullEvent: TypeAlias = (
    StreamEvent
    | TurnStartEvent
    | TurnEndEvent
    | TurnRetryEvent
    | ToolPreliminaryResult
    | ToolResultEvent
    | ToolCallOutputEvent
    | AsyncStarted
    | AsyncSettled
)
"""What the full stream tells: the wire's events, and what the engine does between them."""

"""What tests of events and streams share: what a run told, in a form that its record has too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from perdure import Agent, RunResult
from perdure.loop import (
    Event,
    ItemEnd,
    ItemStart,
    ItemUpdate,
    RunEnd,
    RunStart,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    TurnStart,
)
from perdure.wire import FunctionCallOutput
from tests.durable.world import RUN


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Wait until something of another task can be seen."""
    async with asyncio.timeout(5):
        while not await holds():  # noqa: ASYNC110 - the other task knows nothing of us
            await asyncio.sleep(0.005)


async def shown(agent: Agent, run_id: str = RUN) -> tuple[list[Event], RunResult]:
    """All that a stream of a run shows, and its result."""
    async with agent.stream("go", run_id=run_id) as stream:
        events = [event async for event in stream.events()]
        return events, await stream.result()


def live(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not event.replayed]


def drives(events: Sequence[Event]) -> int:
    return sum(isinstance(event, RunStart) for event in events)


def entered(events: Sequence[Event]) -> list[Event]:
    """The ends of items, without those of outputs."""
    ends = [event for event in events if isinstance(event, ItemEnd)]
    return [one for one in ends if not isinstance(one.item, FunctionCallOutput)]


def outputs(events: Sequence[Event]) -> dict[str, str]:
    ends = [event.item for event in events if isinstance(event, ItemEnd)]
    return {one.call_id: one.text for one in ends if isinstance(one, FunctionCallOutput)}


def streamed(event: Event) -> bool:
    """Whether it is told live alone: deltas, and items that a failed call never finished."""
    return isinstance(event, ItemStart | ItemUpdate)


def gist(events: Sequence[Event]) -> list[str]:
    """What events tell that a record keeps, the ends of the calls of a batch in one order.

    A record does not say when a call ended of which it has no output.
    """
    lines: list[str] = []
    ends: list[str] = []
    for event in events:
        if isinstance(event, ToolEnd):
            ends.append(_line(event))
        elif not streamed(event) and not isinstance(event, ToolDispatch):
            lines += sorted(ends)
            ends.clear()
            lines.append(_line(event))
    return lines


def _line(event: Event) -> str:
    match event:
        case RunStart():
            return f"run_start {event.source}"
        case RunEnd():
            pending = [(one.call.call_id, one.reason) for one in event.pending]
            usage = event.usage.total_tokens
            return f"run_end {event.reason} {event.cause} {pending} {event.turns} {usage}"
        case TurnStart():
            modes = [one.mode for one in event.inputs]
            return f"turn_start {event.turn} {modes} {len(event.request.input)}"
        case ItemEnd():
            return f"item {event.turn} {event.item!r}"
        case ToolStart():
            action = event.decision.action if event.decision else ""
            return f"tool_start {event.turn} {event.call_id} {event.arguments} {action}"
        case ToolEnd():
            output = event.result.output if event.result else None
            return f"tool_end {event.call_id} {output} {event.held} {event.entered}"
        case _:
            return event.type

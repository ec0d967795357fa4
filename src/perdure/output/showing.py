"""Showing a typed answer while it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from perdure.loop import Event, ItemEnd, ItemStart, ItemUpdate
from perdure.output.contract import FINAL_TOOL
from perdure.output.form import WRAPPED
from perdure.output.partial import JsonValue, PartialJson
from perdure.output.plan import Plan
from perdure.wire import (
    FunctionCall,
    FunctionCallArgumentsDelta,
    Item,
    Message,
    OutputTextDelta,
)

STEP = 50
"""A value is made again when its text has grown by one part in so many: so the work for all of them
grows with the text, not with its square."""


async def partial_values(
    events: AsyncIterator[Event], plan: Plan[object] | None
) -> AsyncIterator[JsonValue]:
    """The answer of a plan as far as it has come, each time it has come further."""
    if plan is None:
        return
    showing = _Showing(plan)
    async for event in events:
        for value in showing.feed(event):
            yield value


class _Showing:
    """What has come of the answers of one run."""

    def __init__(self, plan: Plan[object]) -> None:
        self._plan = plan
        self._items: dict[str, PartialJson] = {}
        self._shown_at = 0
        self._shown: JsonValue = None

    def feed(self, event: Event) -> list[JsonValue]:
        """The values, one or none, that an event gives."""
        match event:
            case ItemStart(item=FunctionCall() | Message() as item) if self._is_answer(item):
                self._items[item.id or ""] = PartialJson()
                self._shown_at = 0
                self._shown = None
            case ItemUpdate(stream=OutputTextDelta() | FunctionCallArgumentsDelta() as delta):
                return self._more(delta.item_id, delta.delta)
            case ItemEnd(item=FunctionCall() | Message() as item) if self._is_answer(item):
                return self._whole(item)
            case _:
                pass
        return []

    def _is_answer(self, item: FunctionCall | Message) -> bool:
        if isinstance(item, FunctionCall):
            return not self._plan.native and item.name == FINAL_TOOL
        return self._plan.native and item.role == "assistant"

    def _more(self, item_id: str, delta: str) -> list[JsonValue]:
        partial = self._items.get(item_id)
        if partial is None:
            return []
        partial.feed(delta)
        if partial.size - self._shown_at <= self._shown_at // STEP:
            return []
        self._shown_at = partial.size
        return self._new(partial)

    def _whole(self, item: Item) -> list[JsonValue]:
        text = item.arguments if isinstance(item, FunctionCall) else getattr(item, "text", "")
        self._items.pop(getattr(item, "id", None) or "", None)
        partial = PartialJson()
        partial.feed(text)
        return self._new(partial)

    def _new(self, partial: PartialJson) -> list[JsonValue]:
        members = partial.value()
        if members is None or (self._plan.form.wrapped and WRAPPED not in members):
            return []
        value = members[WRAPPED] if self._plan.form.wrapped else members
        if value == self._shown:
            return []
        self._shown = value
        return [value]

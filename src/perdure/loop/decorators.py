"""Middleware from one function: each decorator makes an object with a single hook.

```python
@perdure.before_tool_call
async def ask_first(info):
    if info.call.name == "delete_file":
        return ToolDecision(action="hold", reason="deleting needs a person")

agent = Agent(model, middleware=[ask_first])
```
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from perdure.loop.decisions import ToolDecision
from perdure.loop.events import Event, RunEnd
from perdure.loop.middleware import (
    MessageInfo,
    Middleware,
    NextModel,
    NextTool,
    RunInfo,
    ToolCallInfo,
    ToolOverride,
    ToolResultInfo,
    TurnInfo,
    TurnStartInfo,
)
from perdure.loop.model import ModelRequest
from perdure.loop.trigger import Hidden
from perdure.tools import ToolResult
from perdure.wire import Item, Message, StreamEvent


def _made_of(cls: type[Middleware], function: Callable[..., object]) -> Middleware:
    """An instance of a hook's class, which shows what it was made of."""
    cls.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    cls.__module__ = function.__module__
    return cls()


def before_run(function: Callable[[RunInfo], Awaitable[None]]) -> Middleware:
    """Middleware with `before_run` alone."""

    class BeforeRun(Middleware):
        async def before_run(self, info: RunInfo) -> None:
            await function(info)

    return _made_of(BeforeRun, function)


def before_turn(
    function: Callable[[TurnStartInfo], Awaitable[Sequence[Item | Hidden]]],
) -> Middleware:
    """Middleware with `before_turn` alone."""

    class BeforeTurn(Middleware):
        async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
            return await function(info)

    return _made_of(BeforeTurn, function)


def transform(
    function: Callable[[Sequence[Item], RunInfo], Awaitable[Sequence[Item]]],
) -> Middleware:
    """Middleware with `transform` alone."""

    class Transform(Middleware):
        async def transform(self, items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
            return await function(items, info)

    return _made_of(Transform, function)


def before_model_call(
    function: Callable[[ModelRequest], Awaitable[ModelRequest | None]],
) -> Middleware:
    """Middleware with `before_model_call` alone."""

    class BeforeModelCall(Middleware):
        async def before_model_call(self, request: ModelRequest) -> ModelRequest | None:
            return await function(request)

    return _made_of(BeforeModelCall, function)


def alongside_model_call(function: Callable[[ModelRequest], Awaitable[None]]) -> Middleware:
    """A guard that runs beside the model call; see `Middleware.alongside`."""

    class Alongside(Middleware):
        alongside = True

        async def before_model_call(self, request: ModelRequest) -> ModelRequest | None:
            await function(request)
            return None

    return _made_of(Alongside, function)


def wrap_model_call(
    function: Callable[[ModelRequest, NextModel], AsyncIterator[StreamEvent]],
) -> Middleware:
    """Middleware with `wrap_model_call` alone."""

    class WrapModelCall(Middleware):
        def wrap_model_call(
            self,
            request: ModelRequest,
            next: NextModel,  # noqa: A002 - the hook's own name
        ) -> AsyncIterator[StreamEvent]:
            return function(request, next)

    return _made_of(WrapModelCall, function)


def on_message(
    function: Callable[[Message, MessageInfo], Awaitable[Message | None]],
) -> Middleware:
    """Middleware with `on_message` alone: an output guard."""

    class OnMessage(Middleware):
        async def on_message(self, message: Message, info: MessageInfo) -> Message | None:
            return await function(message, info)

    return _made_of(OnMessage, function)


def before_tool_call(
    function: Callable[[ToolCallInfo], Awaitable[ToolDecision | None]],
) -> Middleware:
    """Middleware with `before_tool_call` alone: a policy."""

    class BeforeToolCall(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
            return await function(info)

    return _made_of(BeforeToolCall, function)


def wrap_tool_call(
    function: Callable[[ToolCallInfo, NextTool], Awaitable[ToolResult]],
) -> Middleware:
    """Middleware with `wrap_tool_call` alone."""

    class WrapToolCall(Middleware):
        async def wrap_tool_call(
            self,
            info: ToolCallInfo,
            next: NextTool,  # noqa: A002 - the hook's own name
        ) -> ToolResult:
            return await function(info, next)

    return _made_of(WrapToolCall, function)


def after_tool_call(
    function: Callable[[ToolResultInfo], Awaitable[ToolOverride | None]],
) -> Middleware:
    """Middleware with `after_tool_call` alone."""

    class AfterToolCall(Middleware):
        async def after_tool_call(self, info: ToolResultInfo) -> ToolOverride | None:
            return await function(info)

    return _made_of(AfterToolCall, function)


def should_stop(function: Callable[[TurnInfo], Awaitable[bool]]) -> Middleware:
    """Middleware with `should_stop` alone."""

    class ShouldStop(Middleware):
        async def should_stop(self, info: TurnInfo) -> bool:
            return await function(info)

    return _made_of(ShouldStop, function)


def on_event(function: Callable[[Event], Awaitable[None]]) -> Middleware:
    """Middleware with `on_event` alone: a barrier subscriber."""

    class OnEvent(Middleware):
        async def on_event(self, event: Event) -> None:
            await function(event)

    return _made_of(OnEvent, function)


def on_end(function: Callable[[RunEnd], Awaitable[None]]) -> Middleware:
    """Middleware with `on_end` alone."""

    class OnEnd(Middleware):
        async def on_end(self, end: RunEnd) -> None:
            await function(end)

    return _made_of(OnEnd, function)

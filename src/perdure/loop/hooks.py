"""A list of middleware, as the loop calls it: each hook once, over those that have it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from perdure.loop.compaction import Compacted, Compaction
from perdure.loop.decisions import ToolDecision, stricter
from perdure.loop.events import RunEnd
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


class Transformed(NamedTuple):
    """What `transform` hooks made of a transcript."""

    items: Sequence[Item]
    compaction: Compaction | None
    """What the last one that folded anything says it did."""


class Hooks:
    """The hooks of a drive, in order. A hook that no middleware overrides costs nothing."""

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        before = [m for m in middleware if not m.alongside]
        self._before_run = _overrides(middleware, Middleware.before_run)
        self._before_turn = _overrides(middleware, Middleware.before_turn)
        self._transform = _overrides(middleware, Middleware.transform)
        self._before_model_call = _overrides(before, Middleware.before_model_call)
        inwards = sorted(middleware, key=lambda m: m.per_request)
        self._wrap_model_call = _overrides(inwards, Middleware.wrap_model_call)
        self._on_message = _overrides(middleware, Middleware.on_message)
        self._before_tool_call = _overrides(middleware, Middleware.before_tool_call)
        self._wrap_tool_call = _overrides(middleware, Middleware.wrap_tool_call)
        self._after_tool_call = _overrides(middleware, Middleware.after_tool_call)
        self._should_stop = _overrides(middleware, Middleware.should_stop)
        self._on_end = _overrides(middleware, Middleware.on_end)
        self.alongside = _overrides(
            [m for m in middleware if m.alongside], Middleware.before_model_call
        )
        """The guards that run beside the model call."""
        self.subscribers = _overrides(middleware, Middleware.on_event)

    @property
    def transforms(self) -> bool:
        """Whether any hook edits what a request carries."""
        return bool(self._transform)

    @property
    def wraps_model_call(self) -> bool:
        """Whether any hook stands around the model call."""
        return bool(self._wrap_model_call)

    async def before_run(self, info: RunInfo) -> None:
        for hook in self._before_run:
            await hook(info)

    async def before_turn(self, info: TurnStartInfo) -> list[Item | Hidden]:
        """What each gives, in order."""
        given: list[Item | Hidden] = []
        for hook in self._before_turn:
            given += await hook(info)
        return given

    async def transform(self, items: Sequence[Item], info: RunInfo) -> Transformed:
        compaction: Compaction | None = None
        for hook in self._transform:
            items = await hook(list(items), info)
            if isinstance(items, Compacted):
                compaction = items.compaction
        return Transformed(items, compaction)

    async def before_model_call(self, request: ModelRequest) -> ModelRequest:
        for hook in self._before_model_call:
            request = await hook(request) or request
        return request

    def model_call(self, request: ModelRequest, call: NextModel) -> AsyncIterator[StreamEvent]:
        """Call the model inside every `wrap_model_call`, the first one outermost."""
        for hook in reversed(self._wrap_model_call):
            call = partial(hook, next=call)
        return call(request)

    async def on_message(self, message: Message, info: MessageInfo) -> Message:
        for hook in self._on_message:
            message = await hook(message, info) or message
        return message

    async def before_tool_call(
        self, describe: Callable[[str], ToolCallInfo], arguments: str
    ) -> ToolDecision | None:
        """The decision of all: a rejection ends the chain, rewritten arguments reach the rest."""
        decision: ToolDecision | None = None
        for hook in self._before_tool_call:
            decision = stricter(decision, await hook(describe(arguments)))
            if decision is not None and decision.arguments is not None:
                arguments = decision.arguments
            if decision is not None and decision.action == "reject":
                break
        return decision

    async def tool_call(self, info: ToolCallInfo, enter: NextTool) -> ToolResult:
        """Enter the tool inside every `wrap_tool_call`, the first one outermost."""
        for hook in reversed(self._wrap_tool_call):
            enter = partial(hook, info, enter)
        return await enter()

    async def after_tool_call(
        self,
        describe: Callable[[ToolResult, BaseException | None], ToolResultInfo],
        result: ToolResult,
        error: BaseException | None,
    ) -> ToolOverride | None:
        """What replaces the result, if any hook replaces it; each sees what the last one left."""
        override: ToolOverride | None = None
        for hook in self._after_tool_call:
            given: ToolOverride | None = await hook(describe(result, error))
            if given is not None:
                override, result, error = given, given.result, given.error
        return override

    async def should_stop(self, info: TurnInfo) -> bool:
        """Whether any says so; the first that does is the last that is asked."""
        for hook in self._should_stop:
            if await hook(info):
                return True
        return False

    async def on_end(self, end: RunEnd) -> None:
        """Tell every one, also those after one that fails; raises what the first raised."""
        failures: list[Exception] = []
        for hook in self._on_end:
            try:
                await hook(end)
            except Exception as error:  # noqa: BLE001 - a hook may raise anything
                failures.append(error)
        if failures:
            raise failures[0]


def _overrides(
    middleware: Sequence[Middleware], hook: Callable[..., Any]
) -> list[Callable[..., Any]]:
    """The hook of each middleware that overrides it, bound."""
    name = hook.__name__
    return [getattr(m, name) for m in middleware if getattr(type(m), name) is not hook]

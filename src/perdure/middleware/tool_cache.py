"""Results of tools, kept for calls that ask the same again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from perdure.clock import Clock, SystemClock
from perdure.counts import check_count
from perdure.errors import ConfigError
from perdure.loop import Middleware, NextTool, ToolCallInfo
from perdure.seconds import check_seconds
from perdure.tools import Tool, ToolResult, arguments_digest, as_tool, traits

DEFAULT_SIZE = 1024


class _Key(NamedTuple):
    tool: str
    arguments: str


class _Kept(NamedTuple):
    result: ToolResult
    until: float


class ToolCache(Middleware):
    """Answers a call with the result of an earlier one of the same tool and arguments.

    Only results of tools whose effect is `none` are kept, in this process, and no errors. The
    record of a call that is answered so says that policy answered it: the tool was not entered.

    Args:
        tools: Whose results are kept.
        ttl: Seconds that one is good for; for ever unless given.
        size: How many are kept; the one that was not asked for the longest goes first.
        clock: Where the time comes from.

    Raises:
        ConfigError: A tool has an effect, or one that depends on its arguments; or no tool is
            given.
    """

    def __init__(
        self,
        *tools: Tool | Callable[..., object],
        ttl: float | None = None,
        size: int = DEFAULT_SIZE,
        clock: Clock | None = None,
    ) -> None:
        if not tools:
            raise ConfigError("ToolCache(...) names no tool; give those whose results are kept")
        check_count("ToolCache(size=...)", size)
        if ttl is not None:
            check_seconds("ToolCache(ttl=...)", ttl, zero=True)
        self._names = frozenset(_checked(as_tool(one)) for one in tools)
        self._ttl = float("inf") if ttl is None else ttl
        self._size = size
        self._clock: Clock = clock or SystemClock()
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()

    async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        """Give what is kept, or run the call and keep what it gives."""
        if info.call.name not in self._names:
            return await next()
        if info.tool is None or traits(info.tool).effect != "none":
            return await next()  # another tool of that name
        key = _Key(info.call.name, arguments_digest(info.arguments))
        found = self._kept.get(key)
        now = self._clock.monotonic()
        if found is not None and now < found.until:
            self._kept.move_to_end(key)
            return found.result
        result = await next()
        self._kept[key] = _Kept(result, now + self._ttl)
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return result

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()


def _checked(tool: Tool) -> str:
    effect = traits(tool).effect
    if effect != "none":
        shown = effect if isinstance(effect, str) else "a function"
        raise ConfigError(
            f"tool {tool.name!r} has the effect {shown!r}; only results of tools with the effect "
            "'none' can be kept"
        )
    return tool.name

"""Tools around tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from perdure.errors import ConfigError
from perdure.tools.call import Call
from perdure.tools.result import ToolResult
from perdure.tools.tool import TRAITS, Tool

PROPERTIES: tuple[str, ...] = ("name", "description", "parameters", *TRAITS)
"""Everything about a tool that another may say instead."""


class _Wrapped:
    """A tool with some of its properties replaced; all others are the inner tool's own."""

    def __init__(
        self,
        inner: Tool,
        execute: Callable[[Call], Awaitable[ToolResult]] | None,
        overrides: dict[str, object],
    ) -> None:
        self.inner = inner
        self._execute = execute or inner.execute
        self._overrides = overrides

    # A tool is known by these four, and Python 3.12 looks for them on the class.

    @property
    def name(self) -> object:
        return self._overrides.get("name", self.inner.name)

    @property
    def description(self) -> object:
        return self._overrides.get("description", self.inner.description)

    @property
    def parameters(self) -> object:
        return self._overrides.get("parameters", self.inner.parameters)

    def __getattr__(self, name: str) -> object:
        overrides = self.__dict__.get("_overrides", {})
        return overrides[name] if name in overrides else getattr(self.inner, name)

    def __repr__(self) -> str:
        return f"wrap({self.inner!r})"

    async def execute(self, call: Call) -> ToolResult:
        return await self._execute(call)


def wrap(
    tool: Tool,
    *,
    execute: Callable[[Call], Awaitable[ToolResult]] | None = None,
    **overrides: object,
) -> Tool:
    """A tool that is `tool` but for what is given.

    Example:
        ```python
        from perdure.tools import Call, ToolResult, tool, wrap

        @tool
        async def shell(command: str) -> str:
            return command

        async def logged(call: Call) -> ToolResult:
            print(call.arguments)
            return await shell.execute(call)

        loud = wrap(shell, execute=logged, description="Runs a command, and says so.")
        ```

    Args:
        tool: The inner tool.
        execute: Called in place of the inner tool's; it may call that.
        overrides: Properties in place of the inner tool's: `name`, `description`, `parameters`, or
            any field of `Traits`.

    Raises:
        ConfigError: There is no such property.
    """
    unknown = sorted(set(overrides) - set(PROPERTIES))
    if unknown:
        raise ConfigError(f"a tool has no property {unknown[0]!r}; it has {', '.join(PROPERTIES)}")
    return _Wrapped(tool, execute, overrides)  # type: ignore[return-value]


def unwrap(tool: Tool) -> Tool:
    """The tool at the bottom of its wrappers; itself if it has none."""
    while isinstance(tool, _Wrapped):
        tool = tool.inner
    return tool

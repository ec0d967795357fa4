"""What a request says of tools."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from perdure.errors import DuplicateTool
from perdure.tools.function import as_tool
from perdure.tools.tool import Tool, traits
from perdure.wire.canonical import canonical_json
from perdure.wire.tools import FunctionTool as FunctionDefinition
from perdure.wire.values import ABSENT

NO_PARAMETERS: Mapping[str, object] = {"type": "object", "properties": {}, "required": []}


def definition(tool: Tool) -> FunctionDefinition:
    """The tool as a request names it.

    It always has a description and parameters, and `strict` only if that is true.
    """
    parameters = NO_PARAMETERS if tool.parameters is None else tool.parameters
    return FunctionDefinition(
        name=tool.name,
        description=tool.description,
        parameters=dict(parameters),
        strict=True if traits(tool).strict else ABSENT,
    )


def definition_hash(tool: Tool) -> str:
    """`sha256:` and the SHA-256 of the definition's canonical JSON."""
    shown = definition(tool)
    members: dict[str, object] = {
        "type": shown.type,
        "name": shown.name,
        "description": shown.description,
        "parameters": shown.parameters,
    }
    if shown.strict:
        members["strict"] = True
    return "sha256:" + hashlib.sha256(canonical_json(members)).hexdigest()


class ToolSet:
    """Tools with distinct names, in their order.

    Raises:
        DuplicateTool: Two share a name.
        ConfigError: Something is neither a tool nor a function that can be one.
    """

    __slots__ = ("_by_name", "_tools")

    def __init__(self, tools: Iterable[Tool | Callable[..., object]] = ()) -> None:
        self._tools = tuple(as_tool(tool) for tool in tools)
        self._by_name: dict[str, Tool] = {}
        for tool in self._tools:
            if tool.name in self._by_name:
                raise DuplicateTool(tool.name)
            self._by_name[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self._by_name)})"

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or None."""
        return self._by_name.get(name)

    def definitions(self) -> tuple[FunctionDefinition, ...]:
        """The tools as a request names them, in their order."""
        return tuple(definition(tool) for tool in self._tools)

    async def aclose(self) -> None:
        """Close the tools that can be closed, in their order, each whatever became of the others.

        Raises:
            ExceptionGroup: What those raised that failed.
        """
        errors: list[Exception] = []
        for tool in self._tools:
            close = traits(tool).aclose
            if close is None:
                continue
            try:
                await close()
            except Exception as error:  # noqa: BLE001 - the next one is closed all the same
                errors.append(error)
        if errors:
            raise ExceptionGroup("closing tools failed", errors)
